// Tests interrupts: a prompt that is stopped on many threads at any moment leaves a session that computes as before.
#include "engine/session.h"
#include "tests/tiny_graph.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

struct interrupt {
    atomic_bool cancel, stop;
    _Atomic int wanted, given; // how many of them
};

// Gives each interrupt that is wanted after a while, another one each time.
static void *interrupt_at_odd_moments(void *arg)
{
    struct interrupt *in = arg;
    for (uint64_t seed = 5; !atomic_load(&in->stop);) {
        long ns = (long)((tiny_noise(&seed) + 1) * 1e6f);
        nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
        if (atomic_load(&in->given) < atomic_load(&in->wanted)) {
            atomic_store(&in->cancel, true);
            atomic_fetch_add(&in->given, 1);
        }
    }
    return NULL;
}

// Runs more threads than cores, so that some are late. Every prompt is interrupted or already complete; after that the
// same session computes it again to the same bits.
static void check_interrupts(const struct tiny *t, int chunk)
{
    enum { TIMES = 40, LENGTH = 96 };
    struct error err = {0};
    struct interrupt in = {.cancel = false};
    struct model m = {.graph = t->graph, .n_ctx = 256};
    m.info.n_vocab = TINY_VOCAB;
    cr_assert_eq(machine_open_cpu(&m.machine, &(struct machine_options){.n_threads = 5}, &err), 0, "%s", err.text);
    struct session_options o = {
        .n_seqs = 1, .n_batch = chunk, .kv_type = {DT_F16, DT_F16}, .no_reuse = true, .cancel = &in.cancel};
    struct session *s;
    cr_assert_eq(session_open(&s, &m, &o, &err), 0, "%s", err.text);
    int32_t tokens[LENGTH];
    float first[TINY_VOCAB];
    for (int i = 0; i < LENGTH; i++)
        tokens[i] = i * 31 % TINY_VOCAB;
    cr_assert_eq(session_prompt(s, 0, tokens, LENGTH, NULL, &err), 0, "%s", err.text);
    memcpy(first, session_logits(s, 0), sizeof first);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, interrupt_at_odd_moments, &in), 0);
    int n_interrupted = 0;
    for (int i = 0; i < TIMES; i++) {
        session_truncate(s, 0, 0);
        atomic_fetch_add(&in.wanted, 1);
        while (session_prompt(s, 0, tokens, LENGTH, NULL, &err) == 0 && atomic_load(&in.given) <= i)
            session_truncate(s, 0, 0);
        while (atomic_load(&in.given) <= i)
            sched_yield();
        n_interrupted += err.code == E_INTERRUPTED;
        err = (struct error){0};
        atomic_store(&in.cancel, false);
        session_truncate(s, 0, 0);
        cr_assert_eq(session_prompt(s, 0, tokens, LENGTH, NULL, &err), 0, "%s", err.text);
        cr_assert_arr_eq(session_logits(s, 0), first, sizeof first, "interrupt %d", i);
    }
    cr_expect_gt(n_interrupted, TIMES / 4, "%d", n_interrupted);
    atomic_store(&in.stop, true);
    pthread_join(thread, NULL);
    session_close(s);
    m.machine->v->close(m.machine);
}

Test(interrupt, an_interrupt_at_any_moment_leaves_nothing_behind)
{
    struct tiny t = {.n_layer = 3, .with_data = true, .type = DT_Q4_K, .seed = 11};
    tiny_build(&t);
    check_interrupts(&t, 8);
    check_interrupts(&t, 64);
    tiny_free(&t);
}

// Texts are computed step by step by measurements, too; the step of an answer is completed.
Test(interrupt, steps_of_a_text_end_and_those_of_an_answer_do_not)
{
    enum { LENGTH = 96, FEW = 4 };
    struct tiny t = {.n_layer = 2, .with_data = true, .type = DT_Q4_K, .seed = 12};
    tiny_build(&t);
    struct error err = {0};
    atomic_bool cancel = true;
    struct model m = {.graph = t.graph, .n_ctx = 256};
    m.info.n_vocab = TINY_VOCAB;
    cr_assert_eq(machine_open_cpu(&m.machine, &(struct machine_options){.n_threads = 2}, &err), 0, "%s", err.text);
    struct session_options o = {.n_seqs = 1,
                                .n_batch = LENGTH,
                                .n_outputs = 2,
                                .kv_type = {DT_F16, DT_F16},
                                .no_reuse = true,
                                .cancel = &cancel};
    struct session *s;
    struct session_row rows[LENGTH];
    cr_assert_eq(session_open(&s, &m, &o, &err), 0, "%s", err.text);
    for (int i = 0; i < LENGTH; i++)
        rows[i] = (struct session_row){i % TINY_VOCAB, 0, i == FEW - 1 || i == LENGTH - 1};
    cr_expect_eq(session_step(s, rows, LENGTH, &err), -1);
    cr_expect_eq(err.code, E_INTERRUPTED);
    cr_expect_eq(session_length(s, 0), 0);
    cr_expect_eq(session_step(s, rows, FEW, &err), 0);
    cr_expect_eq(session_length(s, 0), FEW);
    session_close(s);
    m.machine->v->close(m.machine);
    tiny_free(&t);
}

struct onlooker {
    struct session_progress progress;
    atomic_bool stop;
    atomic_int total, most, beyond; // what was seen: the whole text, the most that was done, and how often it was more
};

static void *look_on(void *arg)
{
    struct onlooker *o = arg;
    while (!atomic_load(&o->stop)) {
        const int total = atomic_load(&o->progress.total), done = atomic_load(&o->progress.done);
        const int part = atomic_load(&o->progress.part);
        atomic_store(&o->total, MAX(atomic_load(&o->total), total));
        if (total)
            atomic_store(&o->most, MAX(atomic_load(&o->most), done));
        atomic_fetch_add(&o->beyond, done > 96 || part < 0 || part >= STEP_WHOLE);
    }
    return NULL;
}

// Another thread sees how far a prompt is, within its steps too, and that it is over.
Test(interrupt, the_progress_of_a_text_can_be_followed)
{
    struct error err = {0};
    struct onlooker o = {.stop = false};
    struct tiny t = {.n_layer = 2, .with_data = true, .type = DT_Q4_K, .seed = 13};
    tiny_build(&t);
    struct model m = {.graph = t.graph, .n_ctx = 256};
    m.info.n_vocab = TINY_VOCAB;
    cr_assert_eq(machine_open_cpu(&m.machine, &(struct machine_options){.n_threads = 2}, &err), 0, "%s", err.text);
    struct session_options so = {
        .n_seqs = 1, .n_batch = 16, .kv_type = {DT_F16, DT_F16}, .no_reuse = true, .progress = &o.progress};
    struct session *s;
    cr_assert_eq(session_open(&s, &m, &so, &err), 0, "%s", err.text);
    int32_t tokens[96] = {0};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, look_on, &o), 0);
    for (int i = 0; i < 20000 && (atomic_load(&o.total) < 96 || atomic_load(&o.most) < 48); i++) {
        session_truncate(s, 0, 0);
        cr_assert_eq(session_prompt(s, 0, tokens, 96, NULL, &err), 0, "%s", err.text);
        cr_assert_eq(atomic_load(&o.progress.total), 0);
    }
    atomic_store(&o.stop, true);
    pthread_join(thread, NULL);
    cr_expect_eq(atomic_load(&o.total), 96);
    cr_expect_geq(atomic_load(&o.most), 48);
    cr_expect_eq(atomic_load(&o.beyond), 0);
    session_close(s);
    m.machine->v->close(m.machine);
    tiny_free(&t);
}
