// Tests failing allocations during a whole answer. Each allocation and each mapping fails once, the N-th one for every
// N, while a model, a session and a sampler are opened and while text is generated. The error must be E_MEMORY, or the
// answer unchanged. Nothing may leak, and generating must allocate next to nothing.
#include "models/synth_model.h"
#include "engine/generate.h"
#include "tests/memory_faults.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

// --- further calls that fail as if memory were short ---

WRAP(void *, aligned_alloc, (size_t align, size_t n))
{
    void *p = memory_fails() ? NULL : __real_aligned_alloc(align, n);
    heap_live += p != NULL;
    return p;
}

WRAP(int, pthread_create, (pthread_t * thread, const pthread_attr_t *attributes, void *(*work)(void *), void *arg))
{
    return memory_fails() ? EAGAIN : __real_pthread_create(thread, attributes, work, arg);
}

// mmap64 is the name of mmap where files may be large.
WRAP(void *, mmap64, (void *at, size_t n, int protection, int flags, int fd, off_t offset))
{
    void *p = memory_fails() ? MAP_FAILED : __real_mmap64(at, n, protection, flags, fd, offset);
    heap_live += p != MAP_FAILED;
    return p;
}

WRAP(int, munmap, (void *p, size_t n))
{
    heap_live--;
    return __real_munmap(p, n);
}

// --- a whole answer ---

enum { N_PREDICT = 6, N_PROMPT = 9 };

struct reply {
    char text[400];
    size_t n;
    long calls_before, calls_after; // of allocation, around the generating
};

static int take(void *arg, struct str text)
{
    struct reply *a = arg;
    cr_assert_lt(a->n + text.len, sizeof a->text);
    memcpy(a->text + a->n, text.data, text.len);
    a->n += text.len;
    return 0;
}

static int generate_on(struct session *s, const struct model *m, struct reply *a, struct error *err)
{
    const int32_t prompt[N_PROMPT] = {1, 40, 41, 42, 43, 44, 45, 46, 47};
    struct str stops[] = {STR_LIT("never said")};
    struct generate_options o = {.prompt = prompt,
                                 .n_prompt = N_PROMPT,
                                 .n_predict = N_PREDICT,
                                 .stops = stops,
                                 .n_stops = 1,
                                 .sampler = sampler_defaults(),
                                 .ignore_end = true,
                                 .emit = take,
                                 .arg = a};
    struct generate_result r;
    a->calls_before = memory_fault.calls;
    int status = generate(s, m, 0, &o, &r, err);
    a->calls_after = memory_fault.calls;
    return status;
}

static int answer(const char *path, bool no_mmap, struct reply *a, struct error *err)
{
    struct model *m = NULL;
    struct session *s = NULL;
    struct model_options mo = {.path = path, .machine = {.n_threads = 2}, .n_ctx = 128, .no_mmap = no_mmap};
    struct session_options so = {.n_batch = 4, .kv_type = {DT_F16, DT_F16}};
    *a = (struct reply){.n = 0};
    int status = model_open(&m, &mo, err);
    if (!status)
        status = session_open(&s, m, &so, err);
    if (!status)
        status = generate_on(s, m, a, err);
    session_close(s);
    model_close(m);
    return status;
}

static void every_call_in_turn(const char *path, bool no_mmap)
{
    struct error err = {0};
    struct reply want, got;
    cr_assert_eq(answer(path, no_mmap, &want, &err), 0, "%s", err.text);
    cr_assert_gt(want.n, 0);
    long n = 0, failed = 0, live = heap_live;
    do {
        err = (struct error){0};
        fault_arm(&memory_fault, n++);
        int status = answer(path, no_mmap, &got, &err);
        fault_disarm(&memory_fault);
        cr_assert(status == 0 || (err.code == E_MEMORY && err.text[0]), "call %ld: %d '%s'", n, (int)err.code,
                  err.text);
        cr_assert(status || (got.n == want.n && !memcmp(got.text, want.text, want.n)), "call %ld: another answer", n);
        cr_assert_eq(heap_live, live, "call %ld: %ld blocks leak: %s", n, heap_live - live, err.text);
        failed += status != 0;
    } while (memory_fault.fired);
    printf("%s: %ld calls, %ld of them needed\n", no_mmap ? "read" : "mapped", n - 1, failed);
    cr_expect_gt(failed, 20);
}

static void with_model(void (*work)(const char *path))
{
    char path[] = "/tmp/quern-faults-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    struct synth_options o = {.preset = "llama-tiny", .mix = "Q8_0", .n_vocab = 300, .seed = 1};
    struct error err = {0};
    cr_assert_eq(synth_model_write(&o, path, &err), 0, "%s", err.text);
    work(path);
    unlink(path);
}

static void all_calls(const char *path)
{
    every_call_in_turn(path, false);
    every_call_in_turn(path, true);
}

Test(engine_faults, an_answer_without_memory_says_so_and_leaks_nothing, .timeout = 120)
{
    with_model(all_calls);
}

static void count_calls(const char *path)
{
    struct reply a;
    struct error err = {0};
    cr_assert_eq(answer(path, false, &a, &err), 0, "%s", err.text);
    // the sampler's four blocks and the first of the stream; nothing a token
    cr_expect_leq(a.calls_after - a.calls_before, 6, "%ld allocations", a.calls_after - a.calls_before);
}

Test(engine_faults, tokens_allocate_nothing)
{
    with_model(count_calls);
}
