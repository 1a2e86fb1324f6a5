#include "engine/candidates.h"

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate t = *a;
    *a = *b;
    *b = t;
}

// A heap whose top comes last of all: what stands in it are the k first so far.
static void sift_down(struct candidate *heap, int i, int n)
{
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && candidate_before(heap[child], heap[child + 1]))
            child++;
        if (!candidate_before(heap[i], heap[child]))
            return;
        swap(&heap[i], &heap[child]);
    }
}

static void sift_up(struct candidate *heap, int i)
{
    for (int parent; i > 0 && candidate_before(heap[parent = (i - 1) / 2], heap[i]); i = parent)
        swap(&heap[i], &heap[parent]);
}

void candidates_offer(struct candidate *c, int *n, int k, struct candidate offer)
{
    if (*n < k) {
        c[(*n)++] = offer;
        sift_up(c, *n - 1);
    } else if (candidate_before(offer, c[0])) {
        c[0] = offer;
        sift_down(c, 0, k);
    }
}

void candidates_finish(struct candidate *c, int n)
{
    for (int end = n - 1; end > 0; end--) {
        swap(&c[0], &c[end]);
        sift_down(c, 0, end);
    }
}

void candidates_sort_first(struct candidate *c, int n, int k)
{
    if (k <= 0)
        return;
    for (int i = k / 2 - 1; i >= 0; i--)
        sift_down(c, i, k);
    for (int i = k; i < n; i++) {
        if (!candidate_before(c[i], c[0]))
            continue;
        swap(&c[i], &c[0]);
        sift_down(c, 0, k);
    }
    candidates_finish(c, k);
}

double candidates_sum_exp(const struct candidate *c, int n, float max)
{
    enum { LANES = 8 };
    double sums[LANES] = {0}, sum = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            sums[j] += (double)exp_negative(c[i + j].logit - max);
    for (; i < n; i++)
        sum += (double)exp_negative(c[i].logit - max);
    for (int j = 0; j < LANES; j++)
        sum += sums[j];
    return sum;
}
