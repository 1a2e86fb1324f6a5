// The open driver: the properties of its GPU, its context, its stream, memory, launches and captured graphs.
#include "kernels/ptx/driver_internal.h"

#include <stdlib.h>

// ---- properties of a GPU

static int attributes(const struct cuda *cu, int device, struct driver_card *out, struct error *err)
{
    const struct {
        enum cu_device_attribute what;
        int *value;
    } wanted[] = {{CU_MAJOR, &out->major},
                  {CU_MINOR, &out->minor},
                  {CU_SM_COUNT, &out->n_sm},
                  {CU_WARP_SIZE, &out->warp},
                  {CU_SHARED_OPTIN, &out->max_shared}};
    for (size_t i = 0; i < COUNT_OF(wanted); i++)
        if (CUDA_TRY(cu, err, cuDeviceGetAttribute, wanted[i].value, wanted[i].what, device))
            return -1;
    return 0;
}

static int describe(const struct cuda *cu, int ordinal, int *device, struct driver_card *out, struct error *err)
{
    int n = 0;
    *out = (struct driver_card){0};
    if (CUDA_TRY(cu, err, cuDeviceGetCount, &n))
        return -1;
    if (ordinal < 0 || ordinal >= n)
        return fail(err, E_GPU, "there is no card %d: the driver finds %d", ordinal, n);
    if (CUDA_TRY(cu, err, cuDeviceGet, device, ordinal) || CUDA_TRY(cu, err, cuDriverGetVersion, &out->version) ||
        CUDA_TRY(cu, err, cuDeviceGetName, out->name, (int)sizeof(out->name), *device) ||
        CUDA_TRY(cu, err, cuDeviceGetPCIBusId, out->pci, (int)sizeof(out->pci), *device) ||
        CUDA_TRY(cu, err, cuDeviceTotalMem_v2, &out->total, *device))
        return -1;
    return attributes(cu, *device, out, err);
}

int driver_count(const char *library, int *n, struct error *err)
{
    struct cuda cu;
    if (cuda_open(&cu, library, err) || CUDA_TRY(&cu, err, cuDeviceGetCount, n))
        return -1;
    return *n > 0 ? 0 : cuda_check(&cu, "cuDeviceGetCount", CU_NO_DEVICE, err);
}

int driver_card(const char *library, int device, struct driver_card *out, struct error *err)
{
    struct driver *d;
    struct driver_options o = {.library = library, .device = device};
    if (driver_open(&d, &o, err))
        return -1;
    *out = d->card;
    driver_close(d);
    return 0;
}

// ---- the context

int driver_enter(struct driver *d, struct error *err)
{
    return CUDA_TRY(&d->cu, err, cuCtxSetCurrent, d->context);
}

int driver_enter_not_recording(struct driver *d, const char *what, struct error *err)
{
    if (d->recording)
        return fail(err, E_GPU, "the driver cannot %s while it records", what);
    return driver_enter(d, err);
}

static int open_context(struct driver *d, struct error *err)
{
    const struct cuda *cu = &d->cu;
    // Threads that wait for the GPU are to sleep. If this process uses the context already, its setting stays.
    enum cu_result result = cu->cuDevicePrimaryCtxSetFlags_v2(d->device, CU_CONTEXT_BLOCKING);
    if (result != CU_CONTEXT_ACTIVE && cuda_check(cu, "cuDevicePrimaryCtxSetFlags_v2", result, err))
        return -1;
    if (CUDA_TRY(cu, err, cuDevicePrimaryCtxRetain, &d->context, d->device))
        return -1;
    d->retained = true;
    if (driver_enter(d, err) || CUDA_TRY(cu, err, cuStreamCreate, &d->stream, CU_STREAM_OWN) ||
        CUDA_TRY(cu, err, cuEventCreate, &d->marks[0], CU_EVENT_BLOCKING) ||
        CUDA_TRY(cu, err, cuEventCreate, &d->marks[1], CU_EVENT_BLOCKING))
        return -1;
    return driver_memory(d, &d->card.free, err);
}

int driver_open(struct driver **out, const struct driver_options *o, struct error *err)
{
    struct driver *d = calloc(1, sizeof(*d));
    if (!d)
        return fail(err, E_MEMORY, "no memory for a driver");
    if (o->cache && !(d->folder = strdup(o->cache))) {
        fail(err, E_MEMORY, "no memory for a driver");
        goto fail;
    }
    if (o->paper) {
        cuda_paper(&d->cu);
        d->card = *o->paper;
    } else if (cuda_open(&d->cu, o->library, err) || describe(&d->cu, o->device, &d->device, &d->card, err)) {
        goto fail;
    }
    if (open_context(d, err))
        goto fail;
    *out = d;
    return 0;
fail:
    driver_close(d);
    return -1;
}

void driver_close(struct driver *d)
{
    if (!d)
        return;
    if (d->retained) {
        driver_enter(d, NULL);
        if (d->recording)
            driver_recorded(d, NULL, NULL);
        while (d->graphs)
            driver_graph_free(d, d->graphs);
        while (d->modules)
            driver_unload(d, d->modules);
        for (int i = 0; i < 2; i++)
            if (d->marks[i])
                d->cu.cuEventDestroy_v2(d->marks[i]);
        if (d->stream)
            d->cu.cuStreamDestroy_v2(d->stream);
        d->cu.cuCtxSetCurrent(NULL);
        d->cu.cuDevicePrimaryCtxRelease_v2(d->device);
    }
    free(d->folder);
    free(d);
}

const struct driver_card *driver_facts(const struct driver *d)
{
    return &d->card;
}

// ---- memory

int driver_memory(struct driver *d, size_t *free, struct error *err)
{
    size_t total;
    return driver_enter(d, err) || CUDA_TRY(&d->cu, err, cuMemGetInfo_v2, free, &total) ? -1 : 0;
}

int driver_reserve(struct driver *d, size_t size, uint64_t *at, struct error *err)
{
    cu_address address;
    if (driver_enter_not_recording(d, "allocate", err) || CUDA_TRY(&d->cu, err, cuMemAlloc_v2, &address, size))
        return -1;
    *at = address;
    return 0;
}

int driver_alloc(struct driver *d, size_t size, uint64_t *at, struct error *err)
{
    uint64_t address;
    if (driver_reserve(d, size, &address, err))
        return -1;
    if (CUDA_TRY(&d->cu, err, cuMemsetD8Async, address, 0, size, d->stream)) {
        d->cu.cuMemFree_v2(address);
        return -1;
    }
    *at = address;
    return 0;
}

void driver_free(struct driver *d, uint64_t at)
{
    if (!at)
        return;
    driver_enter(d, NULL); // even if this fails, freeing is tried
    d->cu.cuMemFree_v2(at);
}

int driver_put(struct driver *d, uint64_t at, const void *src, size_t n, struct error *err)
{
    return driver_enter(d, err) || CUDA_TRY(&d->cu, err, cuMemcpyHtoDAsync_v2, at, src, n, d->stream) ? -1 : 0;
}

int driver_get(struct driver *d, void *dst, uint64_t at, size_t n, struct error *err)
{
    if (driver_enter(d, err) || CUDA_TRY(&d->cu, err, cuMemcpyDtoHAsync_v2, dst, at, n, d->stream))
        return -1;
    return d->recording ? 0 : CUDA_TRY(&d->cu, err, cuStreamSynchronize, d->stream);
}

int driver_copy(struct driver *d, uint64_t to, uint64_t from, size_t n, struct error *err)
{
    return driver_enter(d, err) || CUDA_TRY(&d->cu, err, cuMemcpyDtoDAsync_v2, to, from, n, d->stream) ? -1 : 0;
}

int driver_zero(struct driver *d, uint64_t at, size_t n, struct error *err)
{
    return driver_enter(d, err) || CUDA_TRY(&d->cu, err, cuMemsetD8Async, at, 0, n, d->stream) ? -1 : 0;
}

int driver_pinned(struct driver *d, size_t size, void **out, struct error *err)
{
    return driver_enter_not_recording(d, "allocate", err) || CUDA_TRY(&d->cu, err, cuMemHostAlloc, out, size, 0) ? -1
                                                                                                                 : 0;
}

void driver_pinned_free(struct driver *d, void *p)
{
    if (!p)
        return;
    driver_enter(d, NULL);
    d->cu.cuMemFreeHost(p);
}

// ---- launches

// Of static and dynamic shared memory together, a kernel may use 48 KB without opting in. All that use dynamic shared
// memory opt in.
static int allow_shared(struct driver *d, struct driver_kernel *k, uint32_t bytes, struct error *err)
{
    if (bytes <= k->shared)
        return 0;
    if (bytes > (uint32_t)d->card.max_shared)
        return fail(err, E_GPU, "a kernel needs %u bytes of shared memory; this card has %d", bytes,
                    d->card.max_shared);
    if (CUDA_TRY(&d->cu, err, cuFuncSetAttribute, k->function, CU_FUNCTION_DYNAMIC_SHARED, (int)bytes))
        return -1;
    k->shared = bytes;
    return 0;
}

static int launch_dependent(struct driver *d, struct driver_kernel *k, const struct driver_launch *l, struct error *err)
{
    struct cu_launch_attribute attribute = {.id = CU_LAUNCH_DEPENDENT, .value.dependent = 1};
    struct cu_launch_config config = {.grid = {l->grid[0], l->grid[1], l->grid[2]},
                                      .block = {l->block[0], l->block[1], l->block[2]},
                                      .shared = l->shared,
                                      .stream = d->stream,
                                      .attributes = &attribute,
                                      .n_attributes = 1};
    return CUDA_TRY(&d->cu, err, cuLaunchKernelEx, &config, k->function, l->params, NULL);
}

int driver_run(struct driver *d, struct driver_kernel *k, const struct driver_launch *l, struct error *err)
{
    if (driver_enter(d, err) || allow_shared(d, k, l->shared, err))
        return -1;
    if (l->cooperative)
        return CUDA_TRY(&d->cu, err, cuLaunchCooperativeKernel, k->function, l->grid[0], l->grid[1], l->grid[2],
                        l->block[0], l->block[1], l->block[2], l->shared, d->stream, l->params);
    if (l->dependent && d->card.major >= 9 && d->cu.cuLaunchKernelEx)
        return launch_dependent(d, k, l, err);
    return CUDA_TRY(&d->cu, err, cuLaunchKernel, k->function, l->grid[0], l->grid[1], l->grid[2], l->block[0],
                    l->block[1], l->block[2], l->shared, d->stream, l->params, NULL);
}

// ---- captured graphs

int driver_record(struct driver *d, struct error *err)
{
    if (driver_enter_not_recording(d, "record", err) ||
        CUDA_TRY(&d->cu, err, cuStreamBeginCapture_v2, d->stream, CU_CAPTURE_THREAD))
        return -1;
    d->recording = true;
    return 0;
}

static int instantiate(struct driver *d, struct cu_graph *graph, struct driver_graph **out, struct error *err)
{
    struct driver_graph *g = calloc(1, sizeof(*g));
    if (!g)
        return fail(err, E_MEMORY, "no memory for a graph");
    if (CUDA_TRY(&d->cu, err, cuGraphInstantiateWithFlags, &g->exec, graph, 0)) {
        free(g);
        return -1;
    }
    g->next = d->graphs;
    g->link = &d->graphs;
    if (g->next)
        g->next->link = &g->next;
    *out = d->graphs = g;
    return 0;
}

int driver_recorded(struct driver *d, struct driver_graph **out, struct error *err)
{
    struct cu_graph *graph = NULL;
    if (!d->recording)
        return fail(err, E_GPU, "the driver records nothing");
    d->recording = false;
    // The capture is ended even if the context cannot be set, because it is most likely current already.
    int status = driver_enter(d, err);
    if (CUDA_TRY(&d->cu, status ? NULL : err, cuStreamEndCapture, d->stream, &graph))
        status = -1;
    if (!status && out)
        status = instantiate(d, graph, out, err);
    if (graph)
        d->cu.cuGraphDestroy(graph);
    return status;
}

int driver_replay(struct driver *d, struct driver_graph *g, struct error *err)
{
    return driver_enter(d, err) || CUDA_TRY(&d->cu, err, cuGraphLaunch, g->exec, d->stream) ? -1 : 0;
}

void driver_graph_free(struct driver *d, struct driver_graph *g)
{
    if (!g)
        return;
    driver_enter(d, NULL);
    d->cu.cuGraphExecDestroy(g->exec);
    *g->link = g->next;
    if (g->next)
        g->next->link = g->link;
    free(g);
}

// ---- waiting

int driver_wait(struct driver *d, struct error *err)
{
    return driver_enter(d, err) || CUDA_TRY(&d->cu, err, cuStreamSynchronize, d->stream) ? -1 : 0;
}

int driver_mark(struct driver *d, int which, struct error *err)
{
    return driver_enter(d, err) || CUDA_TRY(&d->cu, err, cuEventRecord, d->marks[which], d->stream) ? -1 : 0;
}

int driver_reach(struct driver *d, int which, struct error *err)
{
    return driver_enter(d, err) || CUDA_TRY(&d->cu, err, cuEventSynchronize, d->marks[which]) ? -1 : 0;
}

int driver_between(struct driver *d, double *seconds, struct error *err)
{
    float milliseconds = 0;
    if (driver_enter(d, err) || CUDA_TRY(&d->cu, err, cuEventSynchronize, d->marks[1]) ||
        CUDA_TRY(&d->cu, err, cuEventElapsedTime, &milliseconds, d->marks[0], d->marks[1]))
        return -1;
    *seconds = milliseconds / 1e3;
    return 0;
}
