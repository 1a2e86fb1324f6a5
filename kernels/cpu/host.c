// Buffers are anonymous private mappings without reserved swap, so large buffers cost memory only where they are
// touched. From 8 MiB on the kernel is advised to use huge pages. Copies to and from a buffer check its bounds.
#include "kernels/cpu/host.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

struct buffer {
    uint8_t *data;
    size_t size;
};

void *host_map(size_t size)
{
    void *p =
        mmap(NULL, MAX(size, (size_t)1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (size >= 4 * (size_t)HUGE_PAGE)
        madvise(p, size, MADV_HUGEPAGE);
    return p;
}

void host_unmap(void *p, size_t size)
{
    if (p)
        munmap(p, MAX(size, (size_t)1));
}

uint8_t *buffer_data(struct buffer *b)
{
    return b ? b->data : NULL;
}

size_t buffer_size(const struct buffer *b)
{
    return b ? b->size : 0;
}

int host_alloc(struct machine *m, size_t size, struct buffer **out, struct error *err)
{
    (void)m;
    struct buffer *b = malloc(sizeof(*b));
    *out = NULL;
    if (!b || !(b->data = host_map(size))) {
        free(b);
        return fail(err, E_MEMORY, "cannot map %zu bytes of memory; a limit of the process may be why (ulimit -d, -v)",
                    size);
    }
    b->size = size;
    *out = b;
    return 0;
}

void host_free(struct machine *m, struct buffer *b)
{
    (void)m;
    if (b)
        host_unmap(b->data, b->size);
    free(b);
}

static bool outside(const struct buffer *b, size_t at, size_t n)
{
    return at > b->size || n > b->size - at;
}

int host_put(struct machine *m, struct buffer *b, size_t at, const void *src, size_t n, struct error *err)
{
    (void)m;
    if (outside(b, at, n))
        return fail(err, E_MEMORY, "%zu bytes at %zu lie outside of a buffer of %zu", n, at, b->size);
    memcpy(b->data + at, src, n);
    return 0;
}

int host_get(struct machine *m, const struct buffer *b, size_t at, void *dst, size_t n, struct error *err)
{
    (void)m;
    if (outside(b, at, n))
        return fail(err, E_MEMORY, "%zu bytes at %zu lie outside of a buffer of %zu", n, at, b->size);
    memcpy(dst, b->data + at, n);
    return 0;
}
