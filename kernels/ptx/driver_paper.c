// A driver without a GPU: every driver call succeeds and nothing runs. It serves to inspect what would be loaded on a
// machine without a GPU. Copies transfer nothing, so a host buffer that is read into keeps its previous content.
#include "kernels/ptx/cuda_api.h"

#include <stdlib.h>

static char thing; // all handles point to it

// A function for each call, which does nothing. The functions after them replace those that return something.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define CU_CALL(symbol, params)                                                                                        \
    static enum cu_result paper_##symbol params                                                                        \
    {                                                                                                                  \
        return CU_SUCCESS;                                                                                             \
    }
#define CU_MAYBE CU_CALL
#include "kernels/ptx/cuda_api.def"
#undef CU_CALL

static enum cu_result give_context(struct cu_context **context, int device)
{
    *context = (void *)&thing;
    return CU_SUCCESS;
}

static enum cu_result give_stream(struct cu_stream **stream, unsigned flags)
{
    *stream = (void *)&thing;
    return CU_SUCCESS;
}

static enum cu_result give_event(struct cu_event **event, unsigned flags)
{
    *event = (void *)&thing;
    return CU_SUCCESS;
}

// Returns an address that no other allocation has: the address of one byte of host memory.
static enum cu_result give_memory(cu_address *at, size_t bytes)
{
    void *p = malloc(1);
    *at = (uintptr_t)p;
    return p ? CU_SUCCESS : CU_OUT_OF_MEMORY;
}

static enum cu_result take_memory(cu_address at)
{
    free((void *)(uintptr_t)at);
    return CU_SUCCESS;
}

static enum cu_result give_pinned(void **at, size_t bytes, unsigned flags)
{
    *at = calloc(1, bytes);
    return *at ? CU_SUCCESS : CU_OUT_OF_MEMORY;
}

static enum cu_result take_pinned(void *at)
{
    free(at);
    return CU_SUCCESS;
}

static enum cu_result give_info(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = (size_t)1 << 40;
    return CU_SUCCESS;
}

static enum cu_result give_cubin(struct cu_link *link, void **cubin, size_t *size)
{
    *cubin = &thing;
    *size = 1;
    return CU_SUCCESS;
}

static enum cu_result give_function(struct cu_function **function, struct cu_module *module, const char *name)
{
    *function = (void *)&thing;
    return CU_SUCCESS;
}

static enum cu_result give_exec(struct cu_graph_exec **exec, struct cu_graph *graph, unsigned long long flags)
{
    *exec = (void *)&thing;
    return CU_SUCCESS;
}
#pragma GCC diagnostic pop

void cuda_paper(struct cuda *cu)
{
#define CU_CALL(symbol, params) cu->symbol = paper_##symbol;
#include "kernels/ptx/cuda_api.def"
#undef CU_CALL
#undef CU_MAYBE
    cu->cuDevicePrimaryCtxRetain = give_context;
    cu->cuStreamCreate = give_stream;
    cu->cuEventCreate = give_event;
    cu->cuMemAlloc_v2 = give_memory;
    cu->cuMemFree_v2 = take_memory;
    cu->cuMemHostAlloc = give_pinned;
    cu->cuMemFreeHost = take_pinned;
    cu->cuMemGetInfo_v2 = give_info;
    cu->cuLinkComplete = give_cubin;
    cu->cuModuleGetFunction = give_function;
    cu->cuGraphInstantiateWithFlags = give_exec;
}
