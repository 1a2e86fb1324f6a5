// Tests the overhead of a token: no allocation, no system call, and few waits for other threads per layer.
//
// A child process generates behind a seccomp filter that traps every system call except exit; with several threads it
// also allows futex, with which a thread sleeps after a long wait. Allocations and waits are counted with the linker's
// --wrap.
#include "engine/sample/sampler.h"
#include "engine/session.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pool.h"
#include "tests/sanitized.h"
#include "tests/tiny_graph.h"

#include <criterion/criterion.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROMPT = 20, TOKENS = 3 * KV_PAGE, SEEN_MAX = 16 }; // TOKENS: over the edges of pages

// The results that the child passes to its parent.
struct counts {
    atomic_int allocations, waits, calls;
    atomic_int asked;   // CPUID queries since the machine was opened
    int seen[SEEN_MAX]; // the first calls, by number
    bool filtered, done;
};
static struct counts *counts;
static atomic_bool counting;

// ---- what is counted

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *p);
void __real_pool_wait_for(struct pool *p, uint32_t n);
enum reading __real_kernels_reading(const struct kernels *k);
bool __real_kernels_spare_adders(void);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *p);
void __wrap_pool_wait_for(struct pool *p, uint32_t n);
enum reading __wrap_kernels_reading(const struct kernels *k);
bool __wrap_kernels_spare_adders(void);

static void count_allocation(void)
{
    if (atomic_load(&counting))
        atomic_fetch_add(&counts->allocations, 1);
}

void *__wrap_malloc(size_t size)
{
    count_allocation();
    return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    count_allocation();
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    count_allocation();
    return __real_realloc(p, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    count_allocation();
    return __real_aligned_alloc(alignment, size);
}

void __wrap_free(void *p)
{
    if (p)
        count_allocation();
    __real_free(p);
}

void __wrap_pool_wait_for(struct pool *p, uint32_t n)
{
    if (atomic_load(&counting))
        atomic_fetch_add(&counts->waits, 1);
    __real_pool_wait_for(p, n);
}

enum reading __wrap_kernels_reading(const struct kernels *k)
{
    atomic_fetch_add(&counts->asked, 1);
    return __real_kernels_reading(k);
}

bool __wrap_kernels_spare_adders(void)
{
    atomic_fetch_add(&counts->asked, 1);
    return __real_kernels_spare_adders();
}

static void see_call(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    int i = atomic_fetch_add(&counts->calls, 1);
    if (i < SEEN_MAX)
        counts->seen[i] = info->si_syscall;
}

// From here on the process can only compute and exit. Returns false without seccomp (under qemu, in some containers).
static bool trap_calls(bool futex)
{
    struct sigaction act = {.sa_sigaction = see_call, .sa_flags = SA_SIGINFO};
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, futex ? SYS_futex : SYS_exit_group, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {COUNT_OF(code), code};
    return sigaction(SIGSYS, &act, NULL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

// ---- a child that generates

struct generation {
    int n_layer, n_threads, n_rows;
    enum dtype type;
    bool filter;
};

static void generate(struct session *s, struct sampler *sampler, int n_rows, int32_t first)
{
    struct session_row rows[8];
    struct error err;
    int32_t token = first;
    for (int i = 0; i < TOKENS; i++) {
        for (int r = 0; r < n_rows; r++)
            rows[r] = (struct session_row){(token + r) % TINY_VOCAB, r, r == 0};
        if (session_step(s, rows, n_rows, &err) != 0)
            _exit(3);
        const int32_t *history = session_tokens(s, 0);
        int n = session_length(s, 0);
        token = sampler_next(sampler, session_logits(s, 0), NULL, history, n, n);
    }
}

static void run_child(const struct generation *g)
{
    struct error err;
    struct tiny t = {.n_layer = g->n_layer, .with_data = true, .type = g->type, .seed = 5};
    tiny_build(&t);
    struct model m = {.graph = t.graph, .n_ctx = 512};
    m.info.n_vocab = TINY_VOCAB;
    struct machine_options mo = {.n_threads = g->n_threads};
    struct session_options so = {.n_seqs = 8, .n_batch = 32, .kv_type = {DT_F16, DT_F16}};
    struct sampler_params params = sampler_defaults();
    struct session *s;
    struct sampler *sampler;
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = i * 7 % TINY_VOCAB;
    if (machine_open_cpu(&m.machine, &mo, &err) || session_open(&s, &m, &so, &err) ||
        sampler_new(&sampler, &params, TINY_VOCAB, NULL, &err) || session_prompt(s, 0, prompt, PROMPT, NULL, &err))
        _exit(2);
    counts->filtered = g->filter && trap_calls(g->n_threads > 1);
    atomic_store(&counting, true);
    generate(s, sampler, g->n_rows, 11);
    atomic_store(&counting, false);
    counts->done = true;
    _exit(0);
}

static void count(const struct generation *g)
{
    counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(counts, MAP_FAILED);
    pid_t child = fork();
    if (child == 0)
        run_child(g);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    for (int i = 0; i < MIN(atomic_load(&counts->calls), (int)SEEN_MAX); i++)
        fprintf(stderr, "system call %d\n", counts->seen[i]);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0 && counts->done,
              "the child ended by signal %d, status %d (a thread's system call: signal %d)",
              WIFSIGNALED(status) ? WTERMSIG(status) : 0, WIFEXITED(status) ? WEXITSTATUS(status) : -1, SIGSYS);
}

static void expect_free(int n_threads, int n_rows, enum dtype type)
{
    struct generation g = {.n_layer = 2, .n_threads = n_threads, .n_rows = n_rows, .type = type, .filter = !sanitized};
    count(&g);
    cr_expect_eq(atomic_load(&counts->allocations), 0, "%d allocations in %d tokens", atomic_load(&counts->allocations),
                 TOKENS);
    if (!counts->filtered)
        fprintf(stderr, "system calls: skipped, no seccomp here\n");
    cr_expect_eq(atomic_load(&counts->calls), 0, "%d system calls in %d tokens", atomic_load(&counts->calls), TOKENS);
    munmap(counts, sizeof(*counts));
}

// ---- the tests

// On a virtual machine a query of the CPU takes tens of microseconds. With a query for each product and number of rows
// a start would take half a second.
Test(token_cost, the_cpu_is_asked_when_the_machine_opens)
{
    struct generation g = {.n_layer = 2, .n_threads = 1, .n_rows = 1, .type = DT_Q8_0};
    count(&g);
    cr_expect_leq(atomic_load(&counts->asked), 2, "%d times", atomic_load(&counts->asked));
    munmap(counts, sizeof(*counts));
}

Test(token_cost, no_allocation_and_no_system_call_on_one_thread)
{
    expect_free(1, 1, DT_Q4_K);
    expect_free(1, 1, DT_F16);
    expect_free(1, 5, DT_Q8_0);
}

Test(token_cost, no_allocation_and_no_system_call_but_to_sleep_on_two_threads)
{
    expect_free(2, 1, DT_Q4_K);
    expect_free(2, 5, DT_Q4_K);
}

// How often a thread waits for others, for each token.
static int waits(int n_layer, int n_threads)
{
    count(&(struct generation){.n_layer = n_layer, .n_threads = n_threads, .n_rows = 1, .type = DT_Q4_K});
    int n = atomic_load(&counts->waits);
    cr_expect_eq(n % TOKENS, 0, "%d waits in %d tokens on %d threads", n, TOKENS, n_threads);
    n = n / TOKENS - 1; // the caller's, for the whole
    cr_expect_eq(n % n_threads, 0, "%d waits a token on %d threads", n, n_threads);
    munmap(counts, sizeof(*counts));
    return n / n_threads;
}

Test(token_cost, a_thread_waits_six_times_a_layer_at_the_most)
{
    for (int threads = 1; threads <= 3; threads++) {
        int few = waits(1, threads), many = waits(4, threads);
        cr_expect_gt(many, few, "%d, %d: nothing was counted", few, many);
        cr_expect_leq(many - few, 3 * 6, "%d waits for three layers on %d threads", many - few, threads);
    }
}
