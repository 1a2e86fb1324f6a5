// The state that the parts of the tests' libcuda share. Private to tests/ptx/cuda_*.c. Threads: all of it is behind the
// lock of GATE.
#ifndef QUERN_CUDA_STATE_H
#define QUERN_CUDA_STATE_H

#include "kernels/ptx/cuda_api.h"
#include "tests/ptx/interpreter.h"
#include "tests/ptx/quern_cuda.h"

#include <pthread.h>

#define PUBLIC __attribute__((visibility("default")))

#define CU_CALL(symbol, params) PUBLIC enum cu_result symbol params;
#define CU_MAYBE CU_CALL
#include "kernels/ptx/cuda_api.def"
#undef CU_CALL
enum call {
#define CU_CALL(symbol, params) CALL_##symbol,
#include "kernels/ptx/cuda_api.def"
#undef CU_CALL
    CALL_COUNT
};
#undef CU_MAYBE

enum { MAX_CARDS = 8, CARD_MULTIPROCESSORS = 4 };
struct block { // of device or pinned memory
    struct block *next;
    uint64_t at;
    size_t size;
};
struct cu_context {
    struct simt *simt;
    unsigned users; // 0: it does not exist
    enum cu_result lost;
    struct block *blocks;
    struct cu_stream *streams;
    size_t bytes;
};

// One item of queued work.
enum work_kind { WORK_IN, WORK_OUT, WORK_WITHIN, WORK_SET, WORK_LAUNCH, WORK_EVENT, WORK_GRAPH };
struct work {
    enum work_kind kind;
    uint8_t value;               // WORK_SET
    bool dependent, cooperative; // WORK_LAUNCH
    cu_address to, from;
    size_t bytes; // also of `own`
    void *host;   // read or written when the work is done
    void *own;    // a copy owned by the item: parameters, or the bytes of pageable memory
    struct cu_function *function;
    struct simt_dim grid, block;
    uint32_t shared;
    struct cu_event *event;
    struct cu_graph_exec *exec;
};
struct works {
    struct work *at;
    size_t n, cap;
};

struct cu_stream {
    struct cu_context *context;
    struct cu_stream *next;
    struct works queue, captured;
    bool capturing, invalid;
};
struct cu_event {
    uint64_t ns; // 0: not yet come to
};
struct cu_graph {
    struct works works;
};
struct cu_graph_exec {
    struct works works;
};
struct cu_module {
    struct cu_context *context;
    struct simt_kernel *kernels;
    struct cu_function *functions;
    struct block *globals;
};
struct cu_function {
    struct cu_function *next;
    struct cu_module *module;
    const struct simt_kernel *kernel;
    uint32_t dynamic; // bytes of shared memory that a launch may ask for
};

struct cuda_state {
    pthread_mutex_t lock;
    bool ready, initialised;
    struct quern_cuda_setup setup;
    uint64_t calls[CALL_COUNT], n_calls;
    int fail_call; // enum call, -1: any
    uint64_t fail_at;
    enum cu_result fail_result;
    int see_call; // enum call
    uint64_t see_at;
    void (*see)(void *arg);
    void *see_arg;
    struct quern_cuda_counts count;
    struct cu_context contexts[MAX_CARDS];
    struct block *pinned;
    char said[1024]; // the last refusal
};
extern struct cuda_state cuda_state;
extern _Thread_local struct cu_context *cuda_current;

// ---- the entry of every call
//
// It takes the lock until the function ends, and counts the call. The function returns at once if the call is ordered
// to fail, if cuInit is missing, or if the thread has no living context.
//   symbol  the name of the call
//   need    NEED_INIT or NEED_CONTEXT requires that much; NEED_NOTHING requires nothing
enum gate_need { NEED_NOTHING, NEED_INIT, NEED_CONTEXT };
enum cu_result gate_enter(enum call call, enum gate_need need);
void gate_leave(const int *unused);
#define GATE(symbol, need)                                                                                             \
    __attribute__((cleanup(gate_leave))) const int gate_ = 0;                                                          \
    enum cu_result gate_result_ = gate_enter(CALL_##symbol, need);                                                     \
    (void)gate_;                                                                                                       \
    if (gate_result_ != CU_SUCCESS)                                                                                    \
    return gate_result_
// Reports a mistake of the caller on stderr. Returns `result`.
enum cu_result refuse(enum cu_result result, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// ---- work
enum cu_result work_add(struct cu_stream *s, struct work w); // takes w.own
enum cu_result work_drain(struct cu_stream *s);
enum cu_result work_drain_all(struct cu_context *c);
// If a capture of the context is under way, makes all of them invalid and returns CU_CAPTURE_UNSUPPORTED.
enum cu_result work_still(struct cu_context *c);
void works_free(struct works *w);
// Whether [at, at + n) is within one block.
bool block_has(const struct block *list, uint64_t at, size_t n);
bool block_add(struct block **list, uint64_t at, size_t size);
size_t block_remove(struct block **list, uint64_t at); // returns its size; 0: there is no such block

#endif
