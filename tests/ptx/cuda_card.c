// The tests' libcuda: devices, contexts and memory.
#include "tests/ptx/cuda_state.h"

#include <stdio.h>
#include <stdlib.h>

// ---- cards

enum cu_result cuInit(unsigned flags)
{
    GATE(cuInit, NEED_NOTHING);
    if (flags)
        return CU_INVALID_VALUE;
    if (cuda_state.setup.n_cards < 1)
        return CU_NO_DEVICE;
    cuda_state.initialised = true;
    return CU_SUCCESS;
}

enum cu_result cuDriverGetVersion(int *version)
{
    GATE(cuDriverGetVersion, NEED_NOTHING);
    *version = cuda_state.setup.version;
    return CU_SUCCESS;
}

enum cu_result cuDeviceGetCount(int *count)
{
    GATE(cuDeviceGetCount, NEED_INIT);
    *count = cuda_state.setup.n_cards;
    return CU_SUCCESS;
}

static bool is_card(int device)
{
    return device >= 0 && device < cuda_state.setup.n_cards;
}

enum cu_result cuDeviceGet(int *device, int ordinal)
{
    GATE(cuDeviceGet, NEED_INIT);
    if (!is_card(ordinal))
        return CU_INVALID_DEVICE;
    *device = ordinal;
    return CU_SUCCESS;
}

enum cu_result cuDeviceGetName(char *name, int size, int device)
{
    GATE(cuDeviceGetName, NEED_INIT);
    if (!is_card(device) || size < 1)
        return CU_INVALID_DEVICE;
    snprintf(name, (size_t)size, "Interpreter of PTX (sm_%d%d)", cuda_state.setup.major, cuda_state.setup.minor);
    return CU_SUCCESS;
}

enum cu_result cuDeviceGetPCIBusId(char *id, int size, int device)
{
    GATE(cuDeviceGetPCIBusId, NEED_INIT);
    if (!is_card(device) || size < 13)
        return CU_INVALID_VALUE;
    snprintf(id, (size_t)size, "FFFF:%02X:00.0", device);
    return CU_SUCCESS;
}

// Returns the maximum of shared memory per block, from the table of compute capabilities in the CUDA programming guide.
static int shared_optin(int major, int minor)
{
    if (major >= 10)
        return major >= 12 ? 99 : 227;
    if (major == 9)
        return 227;
    if (major == 8)
        return minor == 0 ? 163 : minor == 7 ? 163 : 99;
    return 64;
}

enum cu_result cuDeviceGetAttribute(int *value, enum cu_device_attribute what, int device)
{
    GATE(cuDeviceGetAttribute, NEED_INIT);
    const struct quern_cuda_setup *s = &cuda_state.setup;
    if (!is_card(device))
        return CU_INVALID_DEVICE;
    switch (what) {
    case CU_WARP_SIZE:
        *value = 32;
        return CU_SUCCESS;
    case CU_SM_COUNT:
        *value = CARD_MULTIPROCESSORS;
        return CU_SUCCESS;
    case CU_MAJOR:
        *value = s->major;
        return CU_SUCCESS;
    case CU_MINOR:
        *value = s->minor;
        return CU_SUCCESS;
    case CU_SHARED_OPTIN:
        *value = shared_optin(s->major, s->minor) * 1024;
        return CU_SUCCESS;
    }
    return refuse(CU_INVALID_VALUE, "attribute %d of a card is not served", (int)what);
}

enum cu_result cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    GATE(cuDeviceTotalMem_v2, NEED_INIT);
    if (!is_card(device))
        return CU_INVALID_DEVICE;
    *bytes = cuda_state.setup.memory;
    return CU_SUCCESS;
}

// ---- contexts

enum cu_result cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags)
{
    GATE(cuDevicePrimaryCtxSetFlags_v2, NEED_INIT);
    return !is_card(device) ? CU_INVALID_DEVICE : flags & ~0x1fu ? CU_INVALID_VALUE : CU_SUCCESS;
}

enum cu_result cuDevicePrimaryCtxRetain(struct cu_context **context, int device)
{
    GATE(cuDevicePrimaryCtxRetain, NEED_INIT);
    if (!is_card(device))
        return CU_INVALID_DEVICE;
    struct cu_context *c = &cuda_state.contexts[device];
    if (!c->users) {
        *c = (struct cu_context){.simt = simt_new()};
        if (!c->simt)
            return CU_OUT_OF_MEMORY;
        cuda_state.count.contexts++;
    }
    c->users++;
    *context = c;
    return CU_SUCCESS;
}

enum cu_result cuDevicePrimaryCtxRelease_v2(int device)
{
    GATE(cuDevicePrimaryCtxRelease_v2, NEED_INIT);
    struct cu_context *c = is_card(device) ? &cuda_state.contexts[device] : NULL;
    if (!c || !c->users)
        return CU_INVALID_CONTEXT;
    if (--c->users)
        return CU_SUCCESS;
    if (c->blocks || c->streams)
        refuse(CU_SUCCESS, "a context ends with %zu bytes of memory and %s streams alive", c->bytes,
               c->streams ? "some" : "no");
    cuda_state.count.instructions += simt_count(c->simt).instructions;
    simt_free(c->simt);
    c->simt = NULL;
    while (c->blocks)
        block_remove(&c->blocks, c->blocks->at);
    cuda_state.count.contexts--;
    return CU_SUCCESS;
}

enum cu_result cuCtxGetCurrent(struct cu_context **context)
{
    GATE(cuCtxGetCurrent, NEED_INIT);
    *context = cuda_current;
    return CU_SUCCESS;
}

enum cu_result cuCtxSetCurrent(struct cu_context *context)
{
    GATE(cuCtxSetCurrent, NEED_INIT);
    if (context && !context->users)
        return CU_INVALID_CONTEXT;
    cuda_current = context;
    return CU_SUCCESS;
}

// ---- memory

bool block_has(const struct block *list, uint64_t at, size_t n)
{
    for (; list; list = list->next)
        if (at >= list->at && at - list->at <= list->size && n <= list->size - (at - list->at))
            return true;
    return false;
}

bool block_add(struct block **list, uint64_t at, size_t size)
{
    struct block *b = malloc(sizeof(*b));
    if (!b)
        return false;
    *b = (struct block){*list, at, size};
    *list = b;
    return true;
}

size_t block_remove(struct block **list, uint64_t at)
{
    for (; *list; list = &(*list)->next) {
        struct block *b = *list;
        if (b->at != at)
            continue;
        size_t size = b->size;
        *list = b->next;
        free(b);
        return size;
    }
    return 0;
}

enum cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    GATE(cuMemGetInfo_v2, NEED_CONTEXT);
    *total = cuda_state.setup.memory;
    *free_bytes = *total - cuda_current->bytes;
    return CU_SUCCESS;
}

enum cu_result cuMemAlloc_v2(cu_address *at, size_t bytes)
{
    GATE(cuMemAlloc_v2, NEED_CONTEXT);
    struct cu_context *c = cuda_current;
    enum cu_result result = work_still(c);
    if (result != CU_SUCCESS)
        return result;
    if (!bytes)
        return refuse(CU_INVALID_VALUE, "an allocation of 0 bytes");
    if (bytes > cuda_state.setup.memory - c->bytes)
        return CU_OUT_OF_MEMORY;
    uint64_t address = simt_alloc(c->simt, bytes);
    if (!address || !block_add(&c->blocks, address, bytes)) {
        if (address)
            simt_release(c->simt, address, NULL);
        return CU_OUT_OF_MEMORY;
    }
    struct quern_cuda_counts *n = &cuda_state.count;
    *at = address;
    n->allocations++;
    n->blocks++;
    c->bytes += bytes;
    n->bytes += bytes;
    n->peak = MAX(n->peak, n->bytes);
    return CU_SUCCESS;
}

enum cu_result cuMemFree_v2(cu_address at)
{
    GATE(cuMemFree_v2, NEED_CONTEXT);
    struct cu_context *c = cuda_current;
    enum cu_result result = work_still(c);
    if (result != CU_SUCCESS)
        return result;
    result = work_drain_all(c);
    size_t size = block_remove(&c->blocks, at);
    if (!size)
        return refuse(CU_INVALID_VALUE, "0x%llx is freed and is no allocation", at);
    simt_release(c->simt, at, NULL);
    cuda_state.count.blocks--;
    cuda_state.count.bytes -= size;
    c->bytes -= size;
    return result;
}

enum cu_result cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    GATE(cuMemHostAlloc, NEED_CONTEXT);
    enum cu_result result = work_still(cuda_current);
    if (result != CU_SUCCESS)
        return result;
    if (!bytes || flags & ~7u)
        return CU_INVALID_VALUE;
    void *p = aligned_alloc(4096, align_up(bytes, 4096));
    if (!p || !block_add(&cuda_state.pinned, (uintptr_t)p, bytes)) {
        free(p);
        return CU_OUT_OF_MEMORY;
    }
    cuda_state.count.pinned++;
    *at = p;
    return CU_SUCCESS;
}

enum cu_result cuMemFreeHost(void *at)
{
    GATE(cuMemFreeHost, NEED_CONTEXT);
    enum cu_result result = work_drain_all(cuda_current);
    if (!block_remove(&cuda_state.pinned, (uintptr_t)at))
        return refuse(CU_INVALID_VALUE, "%p is freed and is no pinned memory", at);
    free(at);
    cuda_state.count.pinned--;
    return result;
}

static bool whole(cu_address at, size_t bytes, const char *what)
{
    if (block_has(cuda_current->blocks, at, bytes))
        return true;
    refuse(CU_SUCCESS, "%s %zu bytes at 0x%llx: not within an allocation", what, bytes, at);
    return false;
}

enum cu_result cuMemcpyHtoDAsync_v2(cu_address to, const void *from, size_t bytes, struct cu_stream *stream)
{
    GATE(cuMemcpyHtoDAsync_v2, NEED_CONTEXT);
    if (!stream)
        return CU_INVALID_HANDLE;
    if (!whole(to, bytes, "a copy of"))
        return CU_INVALID_VALUE;
    struct work w = {.kind = WORK_IN, .to = to, .bytes = bytes};
    if (stream->capturing || block_has(cuda_state.pinned, (uintptr_t)from, bytes)) {
        memcpy(&w.host, &from, sizeof(w.host));
        return work_add(stream, w);
    }
    w.own = malloc(bytes + 1);
    if (!w.own)
        return CU_OUT_OF_MEMORY;
    memcpy(w.own, from, bytes);
    return work_add(stream, w);
}

enum cu_result cuMemcpyDtoHAsync_v2(void *to, cu_address from, size_t bytes, struct cu_stream *stream)
{
    GATE(cuMemcpyDtoHAsync_v2, NEED_CONTEXT);
    if (!stream)
        return CU_INVALID_HANDLE;
    if (!whole(from, bytes, "a copy of"))
        return CU_INVALID_VALUE;
    bool pinned = block_has(cuda_state.pinned, (uintptr_t)to, bytes);
    if (pinned && !stream->capturing)
        memset(to, 0xa5, bytes);
    enum cu_result result = work_add(stream, (struct work){.kind = WORK_OUT, .from = from, .host = to, .bytes = bytes});
    return result != CU_SUCCESS || pinned || stream->capturing ? result : work_drain(stream);
}

enum cu_result cuMemcpyDtoDAsync_v2(cu_address to, cu_address from, size_t bytes, struct cu_stream *stream)
{
    GATE(cuMemcpyDtoDAsync_v2, NEED_CONTEXT);
    if (!stream)
        return CU_INVALID_HANDLE;
    if (!whole(to, bytes, "a copy to") || !whole(from, bytes, "a copy from"))
        return CU_INVALID_VALUE;
    return work_add(stream, (struct work){.kind = WORK_WITHIN, .to = to, .from = from, .bytes = bytes});
}

enum cu_result cuMemsetD8Async(cu_address at, unsigned char value, size_t bytes, struct cu_stream *stream)
{
    GATE(cuMemsetD8Async, NEED_CONTEXT);
    if (!stream)
        return CU_INVALID_HANDLE;
    if (!whole(at, bytes, "setting"))
        return CU_INVALID_VALUE;
    return work_add(stream, (struct work){.kind = WORK_SET, .to = at, .value = value, .bytes = bytes});
}
