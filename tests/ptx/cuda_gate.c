// The tests' libcuda: its state, the entry of its calls, and the names of errors.
#include "tests/ptx/cuda_state.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

struct cuda_state cuda_state = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                .setup = {.n_cards = 1, .major = 9, .version = 13000, .memory = (size_t)1 << 34}};
_Thread_local struct cu_context *cuda_current;

static const char *const call_names[CALL_COUNT] = {
#define CU_CALL(symbol, params) #symbol,
#define CU_MAYBE CU_CALL
#include "kernels/ptx/cuda_api.def"
#undef CU_MAYBE
#undef CU_CALL
};

static int call_of(const char *name)
{
    for (int i = 0; i < CALL_COUNT; i++)
        if (!strcmp(call_names[i], name))
            return i;
    fprintf(stderr, "libcuda of the tests: no call is named %s\n", name);
    abort();
}

static void order_failure(const char *call, uint64_t n, int result)
{
    struct cuda_state *s = &cuda_state;
    s->fail_call = call && *call ? call_of(call) : -1;
    s->fail_at = n ? n + (s->fail_call < 0 ? s->n_calls : s->calls[s->fail_call]) : 0;
    s->fail_result = (enum cu_result)result;
}

static void read_environment(struct quern_cuda_setup *setup)
{
    const char *cards = getenv("QUERN_CUDA_CARDS"), *capability = getenv("QUERN_CUDA_CAPABILITY");
    const char *memory = getenv("QUERN_CUDA_MEMORY"), *version = getenv("QUERN_CUDA_VERSION");
    const char *failure = getenv("QUERN_CUDA_FAIL");
    if (cards)
        setup->n_cards = MIN(atoi(cards), MAX_CARDS);
    if (capability)
        sscanf(capability, "%d.%d", &setup->major, &setup->minor);
    if (memory)
        setup->memory = strtoull(memory, NULL, 10) << 20;
    if (version)
        setup->version = atoi(version);
    char call[64] = "";
    unsigned long long n;
    int result;
    if (failure && (sscanf(failure, "%63[^:]:%llu:%d", call, &n, &result) == 3 ||
                    (call[0] = 0, sscanf(failure, ":%llu:%d", &n, &result) == 2)))
        order_failure(call, n, result);
}

static void get_ready(void)
{
    if (cuda_state.ready)
        return;
    cuda_state.ready = true;
    read_environment(&cuda_state.setup);
}

enum cu_result gate_enter(enum call call, enum gate_need need)
{
    struct cuda_state *s = &cuda_state;
    pthread_mutex_lock(&s->lock);
    get_ready();
    s->n_calls++;
    s->calls[call]++;
    if (s->see_at && s->see_call == (int)call && s->calls[call] == s->see_at) {
        s->see_at = 0;
        s->see(s->see_arg);
    }
    if (s->fail_at && (s->fail_call < 0            ? s->n_calls == s->fail_at
                       : s->fail_call == (int)call ? s->calls[call] == s->fail_at
                                                   : false)) {
        s->fail_at = 0;
        return s->fail_result;
    }
    if (need != NEED_NOTHING && !s->initialised)
        return CU_NOT_INITIALIZED;
    if (need == NEED_CONTEXT && (!cuda_current || !cuda_current->users))
        return CU_INVALID_CONTEXT;
    return need == NEED_CONTEXT ? cuda_current->lost : CU_SUCCESS;
}

void gate_leave(const int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&cuda_state.lock);
}

enum cu_result refuse(enum cu_result result, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(cuda_state.said, sizeof(cuda_state.said), fmt, args);
    va_end(args);
    fprintf(stderr, "libcuda of the tests: %s\n", cuda_state.said);
    return result;
}

// ---- for tests

PUBLIC void quern_cuda_set(const struct quern_cuda_setup *setup)
{
    pthread_mutex_lock(&cuda_state.lock);
    get_ready();
    if (cuda_state.count.contexts) {
        fputs("libcuda of the tests: quern_cuda_set while a context is alive\n", stderr);
        abort();
    }
    cuda_state.setup = *setup;
    pthread_mutex_unlock(&cuda_state.lock);
}

PUBLIC void quern_cuda_fail(const char *call, uint64_t n, int result)
{
    pthread_mutex_lock(&cuda_state.lock);
    get_ready();
    order_failure(call, n, result);
    pthread_mutex_unlock(&cuda_state.lock);
}

PUBLIC void quern_cuda_at(const char *call, uint64_t n, void (*see)(void *arg), void *arg)
{
    struct cuda_state *s = &cuda_state;
    pthread_mutex_lock(&s->lock);
    s->see_call = call_of(call);
    s->see_at = n ? n + s->calls[s->see_call] : 0;
    s->see = see;
    s->see_arg = arg;
    pthread_mutex_unlock(&s->lock);
}

PUBLIC uint64_t quern_cuda_calls(const char *call)
{
    pthread_mutex_lock(&cuda_state.lock);
    uint64_t n = call ? cuda_state.calls[call_of(call)] : cuda_state.n_calls;
    pthread_mutex_unlock(&cuda_state.lock);
    return n;
}

PUBLIC void quern_cuda_count(struct quern_cuda_counts *out)
{
    pthread_mutex_lock(&cuda_state.lock);
    *out = cuda_state.count;
    for (int i = 0; i < MAX_CARDS; i++)
        if (cuda_state.contexts[i].simt)
            out->instructions += simt_count(cuda_state.contexts[i].simt).instructions;
    pthread_mutex_unlock(&cuda_state.lock);
}

PUBLIC int quern_cuda_forget(uint64_t at, size_t n)
{
    int status = -1;
    pthread_mutex_lock(&cuda_state.lock);
    for (int i = 0; i < MAX_CARDS; i++) {
        struct cu_context *c = &cuda_state.contexts[i];
        if (c->users && work_drain_all(c) == CU_SUCCESS && block_has(c->blocks, at, n))
            status = simt_forget(c->simt, at, n, NULL);
    }
    pthread_mutex_unlock(&cuda_state.lock);
    return status;
}

PUBLIC const char *quern_cuda_said(void)
{
    return cuda_state.said;
}

static __attribute__((destructor)) void report(void)
{
    const struct quern_cuda_counts *c = &cuda_state.count;
    if (!getenv("QUERN_CUDA_REPORT"))
        return;
    fprintf(stderr,
            "libcuda of the tests: %llu calls, %llu launches, %llu replays, %llu allocations (at most %zu bytes at a "
            "time), in %llu copies of %llu bytes, out %llu of %llu, alive %llu\n",
            (unsigned long long)cuda_state.n_calls, (unsigned long long)c->launches, (unsigned long long)c->replays,
            (unsigned long long)c->allocations, c->peak, (unsigned long long)c->copies_in,
            (unsigned long long)c->bytes_in, (unsigned long long)c->copies_out, (unsigned long long)c->bytes_out,
            (unsigned long long)(c->contexts + c->streams + c->events + c->links + c->modules + c->graphs + c->execs +
                                 c->blocks + c->pinned));
}

// ---- errors by name: those that a driver of a single card can give

static const struct result_name {
    int result;
    const char *name;
} result_names[] = {
    {0, "CUDA_SUCCESS"},
    {1, "CUDA_ERROR_INVALID_VALUE"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {3, "CUDA_ERROR_NOT_INITIALIZED"},
    {4, "CUDA_ERROR_DEINITIALIZED"},
    {34, "CUDA_ERROR_STUB_LIBRARY"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
    {100, "CUDA_ERROR_NO_DEVICE"},
    {101, "CUDA_ERROR_INVALID_DEVICE"},
    {200, "CUDA_ERROR_INVALID_IMAGE"},
    {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
    {218, "CUDA_ERROR_INVALID_PTX"},
    {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
    {223, "CUDA_ERROR_JIT_COMPILATION_DISABLED"},
    {300, "CUDA_ERROR_INVALID_SOURCE"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM"},
    {400, "CUDA_ERROR_INVALID_HANDLE"},
    {401, "CUDA_ERROR_ILLEGAL_STATE"},
    {500, "CUDA_ERROR_NOT_FOUND"},
    {600, "CUDA_ERROR_NOT_READY"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT"},
    {708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS"},
    {719, "CUDA_ERROR_LAUNCH_FAILED"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
    {801, "CUDA_ERROR_NOT_SUPPORTED"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
    {999, "CUDA_ERROR_UNKNOWN"},
};

enum cu_result cuGetErrorName(enum cu_result result, const char **name)
{
    GATE(cuGetErrorName, NEED_NOTHING);
    *name = NULL;
    for (size_t i = 0; i < COUNT_OF(result_names); i++)
        if (result_names[i].result == (int)result)
            *name = result_names[i].name;
    return *name ? CU_SUCCESS : CU_INVALID_VALUE;
}

// The text is the name of the error in lower-case words.
enum cu_result cuGetErrorString(enum cu_result result, const char **text)
{
    static _Thread_local char words[64];
    const char *prefix = "CUDA_ERROR_";
    GATE(cuGetErrorString, NEED_NOTHING);
    *text = NULL;
    for (size_t i = 0; i < COUNT_OF(result_names); i++) {
        if (result_names[i].result != (int)result)
            continue;
        const char *name = result_names[i].name;
        name += strncmp(name, prefix, strlen(prefix)) ? 0 : strlen(prefix);
        size_t n = 0;
        for (; name[n]; n++)
            words[n] = name[n] == '_' ? ' ' : (char)tolower((unsigned char)name[n]);
        words[n] = 0;
        *text = words;
    }
    return *text ? CU_SUCCESS : CU_INVALID_VALUE;
}
