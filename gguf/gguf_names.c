// Sorted indices of names, for searches in logarithmic time and for finding duplicates. The sort is a stable
// merge sort with scratch from the heap; a lack of memory is an error.
#include "gguf/gguf_internal.h"

#include <stdlib.h>

typedef int compare_fn(const void *, const void *);

// Merges the sorted runs [0, half) and [half, n), using scratch[half]. Of equal elements the left one comes first.
static void merge(const void **p, size_t half, size_t n, compare_fn *compare, const void **scratch)
{
    memcpy(scratch, p, half * sizeof *p);
    size_t left = 0, right = half, out = 0;
    while (left < half && right < n)
        p[out++] = compare(p[right], scratch[left]) < 0 ? p[right++] : scratch[left++];
    memcpy(p + out, scratch + left, (half - left) * sizeof *p);
}

static void sort(const void **p, size_t n, compare_fn *compare, const void **scratch)
{
    if (n < 2)
        return;
    size_t half = n / 2;
    sort(p, half, compare, scratch);
    sort(p + half, n - half, compare, scratch);
    merge(p, half, n, compare, scratch);
}

// This does not use qsort, because the C library falls back to a quicksort when memory is short, and a file could make
// that quadratic.
int pointers_sort(const void **p, size_t n, compare_fn *compare, struct error *err)
{
    size_t bytes = (n / 2 + 1) * sizeof *p;
    const void **scratch = malloc(bytes);
    if (!scratch)
        return gguf_fail_memory(err, bytes, "sorting");
    sort(p, n, compare, scratch);
    free(scratch);
    return 0;
}

static int compare_str(const struct str *a, const struct str *b)
{
    int order = memcmp(a->data, b->data, MIN(a->len, b->len));
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

static int by_name(const void *a, const void *b)
{
    return compare_str(a, b);
}

int names_sort(const void **index, size_t n, struct error *err)
{
    return pointers_sort(index, n, by_name, err);
}

const void *names_find(const void *const *index, size_t n, struct str name)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = compare_str(index[mid], &name);
        if (order == 0)
            return index[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const void *names_duplicate(const void *const *index, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (by_name(index[i - 1], index[i]) == 0)
            return index[i];
    return NULL;
}
