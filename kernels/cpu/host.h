// Memory of the machines that compute on the host: zeroed pages, which use no memory until they are touched.
//
// Ownership: the caller frees what it maps or allocates. Threads: any.
#ifndef QUERN_HOST_H
#define QUERN_HOST_H

#include "kernels/machine.h"

// NULL: no memory. Large maps use huge pages where the kernel has them. host_unmap(NULL, ..) is fine.
void *host_map(size_t size);
void host_unmap(void *p, size_t size);

uint8_t *buffer_data(struct buffer *b);
size_t buffer_size(const struct buffer *b);

// The buffer functions of struct machine_vtable.
int host_alloc(struct machine *m, size_t size, struct buffer **out, struct error *err);
void host_free(struct machine *m, struct buffer *b);
int host_put(struct machine *m, struct buffer *b, size_t at, const void *src, size_t n, struct error *err);
int host_get(struct machine *m, const struct buffer *b, size_t at, void *dst, size_t n, struct error *err);

#endif
