// The tests' libcuda: streams, events and graphs. Work is queued, recorded and executed.
#include "tests/ptx/cuda_state.h"
#include "tests/ptx/simt_isa.h"

#include <stdlib.h>
#include <time.h>

// ---- lists of work

static bool push(struct works *list, struct work w)
{
    if (list->n == list->cap) {
        size_t cap = list->cap * 2 + 16;
        struct work *more = realloc(list->at, cap * sizeof(*more));
        if (!more)
            return false;
        list->at = more;
        list->cap = cap;
    }
    list->at[list->n++] = w;
    return true;
}

static void clear(struct works *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->at[i].own);
    list->n = 0;
}

void works_free(struct works *list)
{
    clear(list);
    free(list->at);
    *list = (struct works){0};
}

static bool copy_works(struct works *to, const struct works *from)
{
    for (size_t i = 0; i < from->n; i++) {
        struct work w = from->at[i];
        if (w.own) {
            w.own = malloc(w.bytes + 1);
            if (!w.own)
                return false;
            memcpy(w.own, from->at[i].own, w.bytes);
        }
        if (!push(to, w)) {
            free(w.own);
            return false;
        }
    }
    return true;
}

// ---- doing

static int copy_in(struct simt *s, const struct work *w, struct error *err)
{
    cuda_state.count.copies_in++;
    cuda_state.count.bytes_in += w->bytes;
    return simt_put(s, w->to, w->own ? w->own : w->host, w->bytes, err);
}

static int copy_out(struct simt *s, const struct work *w, struct error *err)
{
    cuda_state.count.copies_out++;
    cuda_state.count.bytes_out += w->bytes;
    return simt_get(s, w->from, w->host, w->bytes, err);
}

static int copy_within(struct simt *s, const struct work *w, struct error *err)
{
    cuda_state.count.copies_within++;
    cuda_state.count.bytes_within += w->bytes;
    void *bytes = malloc(w->bytes + 1);
    int status = !bytes ? fail(err, E_MEMORY, "no memory for a copy") : simt_get(s, w->from, bytes, w->bytes, err);
    status = status ? status : simt_put(s, w->to, bytes, w->bytes, err);
    free(bytes);
    return status;
}

static int set(struct simt *s, const struct work *w, struct error *err)
{
    uint8_t bytes[4096];
    cuda_state.count.sets++;
    memset(bytes, w->value, sizeof(bytes));
    for (size_t i = 0; i < w->bytes; i += sizeof(bytes))
        if (simt_put(s, w->to + i, bytes, MIN(sizeof(bytes), w->bytes - i), err))
            return -1;
    return 0;
}

static int do_work(struct cu_context *c, const struct work *w, struct error *err)
{
    struct timespec now;
    switch (w->kind) {
    case WORK_IN:
        return copy_in(c->simt, w, err);
    case WORK_OUT:
        return copy_out(c->simt, w, err);
    case WORK_WITHIN:
        return copy_within(c->simt, w, err);
    case WORK_SET:
        return set(c->simt, w, err);
    case WORK_LAUNCH:
        cuda_state.count.launches++;
        cuda_state.count.dependent += w->dependent;
        if (w->dependent)
            simt_set_dependent(c->simt);
        if (w->cooperative)
            simt_set_cooperative(c->simt);
        return simt_launch(c->simt, w->function->kernel, w->grid, w->block, w->shared, w->own,
                           w->function->kernel->params_size, err);
    case WORK_EVENT:
        clock_gettime(CLOCK_MONOTONIC, &now);
        w->event->ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        return 0;
    case WORK_GRAPH:
        cuda_state.count.replays++;
        for (size_t i = 0; i < w->exec->works.n; i++)
            if (do_work(c, &w->exec->works.at[i], err))
                return -1;
        return 0;
    }
    return -1;
}

enum cu_result work_drain(struct cu_stream *s)
{
    struct cu_context *c = s->context;
    struct error err;
    for (size_t i = 0; i < s->queue.n && c->lost == CU_SUCCESS; i++)
        if (do_work(c, &s->queue.at[i], &err))
            c->lost = refuse(CU_ILLEGAL_ADDRESS, "%s", err.text);
    clear(&s->queue);
    return c->lost;
}

enum cu_result work_drain_all(struct cu_context *c)
{
    for (struct cu_stream *s = c->streams; s; s = s->next)
        work_drain(s);
    return c->lost;
}

enum cu_result work_still(struct cu_context *c)
{
    enum cu_result result = CU_SUCCESS;
    for (struct cu_stream *s = c->streams; s; s = s->next)
        if (s->capturing) {
            s->invalid = true;
            result = refuse(CU_CAPTURE_UNSUPPORTED, "a call that must not be made while work is captured");
        }
    return result;
}

enum cu_result work_add(struct cu_stream *s, struct work w)
{
    if (push(s->capturing ? &s->captured : &s->queue, w))
        return CU_SUCCESS;
    free(w.own);
    return CU_OUT_OF_MEMORY;
}

// ---- streams

enum cu_result cuStreamCreate(struct cu_stream **stream, unsigned flags)
{
    GATE(cuStreamCreate, NEED_CONTEXT);
    struct cu_stream *s = flags & ~1u ? NULL : calloc(1, sizeof(*s));
    if (!s)
        return flags & ~1u ? CU_INVALID_VALUE : CU_OUT_OF_MEMORY;
    s->context = cuda_current;
    s->next = cuda_current->streams;
    cuda_current->streams = s;
    cuda_state.count.streams++;
    *stream = s;
    return CU_SUCCESS;
}

enum cu_result cuStreamDestroy_v2(struct cu_stream *stream)
{
    GATE(cuStreamDestroy_v2, NEED_INIT); // a lost context lets go of what it has
    if (!stream)
        return CU_INVALID_HANDLE;
    enum cu_result result = work_drain(stream);
    struct cu_stream **at = &stream->context->streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    works_free(&stream->queue);
    works_free(&stream->captured);
    free(stream);
    cuda_state.count.streams--;
    return result;
}

enum cu_result cuStreamSynchronize(struct cu_stream *stream)
{
    GATE(cuStreamSynchronize, NEED_CONTEXT);
    if (!stream)
        return CU_INVALID_HANDLE;
    if (stream->capturing)
        return work_still(stream->context);
    cuda_state.count.waits++;
    return work_drain(stream);
}

// ---- events

enum cu_result cuEventCreate(struct cu_event **event, unsigned flags)
{
    GATE(cuEventCreate, NEED_CONTEXT);
    if (flags & ~3u)
        return CU_INVALID_VALUE;
    *event = calloc(1, sizeof(**event));
    cuda_state.count.events += *event != NULL;
    return *event ? CU_SUCCESS : CU_OUT_OF_MEMORY;
}

enum cu_result cuEventDestroy_v2(struct cu_event *event)
{
    GATE(cuEventDestroy_v2, NEED_INIT);
    if (!event)
        return CU_INVALID_HANDLE;
    if (cuda_current)
        work_drain_all(cuda_current);
    free(event);
    cuda_state.count.events--;
    return CU_SUCCESS;
}

enum cu_result cuEventRecord(struct cu_event *event, struct cu_stream *stream)
{
    GATE(cuEventRecord, NEED_CONTEXT);
    if (!event || !stream)
        return CU_INVALID_HANDLE;
    return work_add(stream, (struct work){.kind = WORK_EVENT, .event = event});
}

enum cu_result cuEventSynchronize(struct cu_event *event)
{
    GATE(cuEventSynchronize, NEED_CONTEXT);
    if (!event)
        return CU_INVALID_HANDLE;
    cuda_state.count.waits++;
    return work_drain_all(cuda_current);
}

enum cu_result cuEventElapsedTime(float *milliseconds, struct cu_event *from, struct cu_event *to)
{
    GATE(cuEventElapsedTime, NEED_CONTEXT);
    if (!from || !to || !from->ns || !to->ns)
        return CU_INVALID_HANDLE;
    *milliseconds = (float)((double)(int64_t)(to->ns - from->ns) / 1e6);
    return CU_SUCCESS;
}

// ---- captured work

enum cu_result cuStreamBeginCapture_v2(struct cu_stream *stream, enum cu_capture_mode mode)
{
    GATE(cuStreamBeginCapture_v2, NEED_CONTEXT);
    if (!stream || (unsigned)mode > 2)
        return CU_INVALID_VALUE;
    if (stream->capturing)
        return CU_INVALID_VALUE;
    stream->capturing = true;
    stream->invalid = false;
    return CU_SUCCESS;
}

enum cu_result cuStreamEndCapture(struct cu_stream *stream, struct cu_graph **graph)
{
    __attribute__((cleanup(gate_leave))) const int gate = 0;
    enum cu_result result = gate_enter(CALL_cuStreamEndCapture, NEED_CONTEXT);
    (void)gate;
    *graph = NULL;
    if (!stream || !stream->capturing)
        return result != CU_SUCCESS ? result : CU_INVALID_VALUE;
    stream->capturing = false; // whatever else comes of it
    if (result != CU_SUCCESS) {
        works_free(&stream->captured);
        return result;
    }
    struct cu_graph *g = stream->invalid ? NULL : calloc(1, sizeof(*g));
    if (!g) {
        works_free(&stream->captured);
        return stream->invalid ? CU_CAPTURE_INVALIDATED : CU_OUT_OF_MEMORY;
    }
    g->works = stream->captured;
    stream->captured = (struct works){0};
    cuda_state.count.graphs++;
    *graph = g;
    return CU_SUCCESS;
}

enum cu_result cuGraphInstantiateWithFlags(struct cu_graph_exec **exec, struct cu_graph *graph,
                                           unsigned long long flags)
{
    GATE(cuGraphInstantiateWithFlags, NEED_CONTEXT);
    if (!graph || flags)
        return CU_INVALID_VALUE;
    struct cu_graph_exec *e = calloc(1, sizeof(*e));
    if (!e)
        return CU_OUT_OF_MEMORY;
    if (!copy_works(&e->works, &graph->works)) {
        works_free(&e->works);
        free(e);
        return CU_OUT_OF_MEMORY;
    }
    cuda_state.count.execs++;
    *exec = e;
    return CU_SUCCESS;
}

enum cu_result cuGraphLaunch(struct cu_graph_exec *exec, struct cu_stream *stream)
{
    GATE(cuGraphLaunch, NEED_CONTEXT);
    if (!exec || !stream)
        return CU_INVALID_HANDLE;
    if (stream->capturing)
        return refuse(CU_CAPTURE_UNSUPPORTED, "a graph within a graph is not served");
    return work_add(stream, (struct work){.kind = WORK_GRAPH, .exec = exec});
}

enum cu_result cuGraphExecDestroy(struct cu_graph_exec *exec)
{
    GATE(cuGraphExecDestroy, NEED_INIT);
    if (!exec)
        return CU_INVALID_VALUE;
    if (cuda_current)
        work_drain_all(cuda_current);
    works_free(&exec->works);
    free(exec);
    cuda_state.count.execs--;
    return CU_SUCCESS;
}

enum cu_result cuGraphDestroy(struct cu_graph *graph)
{
    GATE(cuGraphDestroy, NEED_INIT);
    if (!graph)
        return CU_INVALID_VALUE;
    works_free(&graph->works);
    free(graph);
    cuda_state.count.graphs--;
    return CU_SUCCESS;
}
