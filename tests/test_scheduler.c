// Tests the scheduler: a request gets the same answer as alone, with any other requests and any amount of memory;
// shared prefixes are computed once and counted; when memory runs out, answers are delayed but none is lost.
#include "models/synth_model.h"
#include "engine/scheduler.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_CTX = 512 };

static char path[] = "/tmp/quern-scheduler-XXXXXX";
static struct model *model;

static void open_all(void)
{
    struct error err;
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    struct synth_options o = {.preset = "llama-tiny", .mix = "Q4_K_M", .n_vocab = 600, .seed = 3};
    cr_assert_eq(synth_model_write(&o, path, &err), 0, "%s", err.text);
    struct model_options mo = {.path = path, .machine.n_threads = 2, .n_ctx = N_CTX};
    cr_assert_eq(model_open(&model, &mo, &err), 0, "%s", err.text);
}

static void close_all(void)
{
    model_close(model);
    unlink(path);
}

TestSuite(scheduler, .init = open_all, .fini = close_all);

static struct session *open_session(int n_seqs, int n_batch, uint64_t kv_limit)
{
    struct session *s;
    struct error err;
    struct session_options o = {
        .n_seqs = n_seqs, .n_ctx = N_CTX, .n_batch = n_batch, .kv_type = {DT_F16, DT_F16}, .kv_limit = kv_limit};
    cr_assert_eq(session_open(&s, model, &o, &err), 0, "%s", err.text);
    return s;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int random_below(uint64_t *state, int n)
{
    return (int)(next_random(state) % (uint64_t)n);
}

// --- requests, and what each gets alone ---

struct wish {
    struct request r;
    int32_t prompt[N_CTX + 8];
    char *expected[4];
    int n_expected[4];
    enum stop_reason reason[4];
    struct text_scores scores, expected_scores; // of some, the log-probabilities of the prompt
};

static int append(void *arg, struct str text)
{
    text_append(arg, text);
    return 0;
}

// The log-probabilities of the prompt, row by row.
static void score_alone(struct wish *w, struct session *s)
{
    struct error err;
    cr_assert_eq(text_scores_new(&w->scores, w->r.n_prompt, 3, &err), 0);
    cr_assert_eq(text_scores_new(&w->expected_scores, w->r.n_prompt, 3, &err), 0);
    w->r.scores = &w->scores;
    session_truncate(s, 0, 0);
    for (int i = 0; i + 1 < w->r.n_prompt; i++) {
        cr_assert_eq(session_step(s, &(struct session_row){w->prompt[i], 0, true}, 1, &err), 0, "%s", err.text);
        text_scores_add(&w->expected_scores, session_logits(s, 0), model->info.n_vocab, w->prompt[i + 1]);
    }
}

static void expect_scored(const struct wish *w, int number)
{
    const struct text_scores *got = &w->scores, *expected = &w->expected_scores;
    cr_assert_eq(got->n_scored, w->r.n_prompt - 1, "request %d: %d scored", number, got->n_scored);
    for (int i = 1; i < w->r.n_prompt; i++) {
        cr_assert_eq(got->logprobs[i], expected->logprobs[i], "request %d, token %d", number, i);
        cr_assert_eq(got->ranks[i], expected->ranks[i], "request %d, token %d", number, i);
        for (int j = 3 * i; j < 3 * i + 3; j++)
            cr_assert(got->top[j].id == expected->top[j].id && got->top[j].logit == expected->top[j].logit);
    }
}

static void expect_alone(struct wish *w, struct session *s)
{
    for (int i = 0; i < w->r.n_samples; i++) {
        struct text text = {0};
        struct generate_options g = {
            .prompt = w->prompt,
            .n_prompt = w->r.n_prompt,
            .n_predict = w->r.n_predict,
            .sampler = w->r.sampler,
            .ignore_end = w->r.ignore_end,
            .emit = append,
            .arg = &text,
        };
        g.sampler.seed = scheduler_sample_seed(g.sampler.seed, i);
        struct generate_result result;
        struct error err;
        cr_assert_eq(generate(s, model, 0, &g, &result, &err), 0, "%s", err.text);
        w->expected[i] = text.data ? text.data : strdup("");
        w->n_expected[i] = (int)result.n_generated;
        w->reason[i] = result.reason;
    }
}

// Prompts of all lengths, some of which begin alike; up to four samples, greedy or not.
static void wish_make(struct wish *w, uint64_t *random, int n_samples_most)
{
    *w = (struct wish){.r = {.n_logprobs = -1,
                             .n_samples = 1 + random_below(random, n_samples_most),
                             .ignore_end = random_below(random, 2)}};
    w->r.sampler = sampler_defaults();
    w->r.sampler.seed = next_random(random);
    w->r.sampler.temperature = random_below(random, 3) ? 0.9f : 0;
    w->r.n_prompt = 1 + random_below(random, random_below(random, 3) ? 60 : 180);
    int shared = random_below(random, 2) ? random_below(random, 150) : 0;
    for (int i = 0; i < w->r.n_prompt; i++)
        w->prompt[i] = i < shared ? 300 + i % 7 : 260 + random_below(random, 300);
    w->r.prompt = w->prompt;
    w->r.n_predict = random_below(random, 30);
}

static void expect_answered(const struct wish *w, int number)
{
    cr_assert_eq(w->r.error.code, E_OK, "request %d: %s", number, w->r.error.text);
    for (int i = 0; i < w->r.n_samples; i++) {
        const struct sample *got = &w->r.samples[i];
        cr_assert_eq(got->n_tokens, w->n_expected[i], "request %d.%d: %d tokens, alone %d", number, i, got->n_tokens,
                     w->n_expected[i]);
        cr_assert_str_eq(got->text.data ? got->text.data : "", w->expected[i], "request %d.%d", number, i);
        cr_assert_eq(got->reason, w->reason[i], "request %d.%d", number, i);
    }
    if (w->r.scores)
        expect_scored(w, number);
}

static void run_all(struct scheduler *q, struct wish *wishes, int n)
{
    struct error err;
    int taken = 0;
    for (int i = 0; i < n || !scheduler_is_idle(q);) {
        while (i < n && scheduler_is_hungry(q))
            cr_assert_eq(scheduler_add(q, &wishes[i++].r, &err), 0, "%s", err.text);
        cr_assert_eq(scheduler_step(q, &err), 0, "%s", err.text);
        while (scheduler_take(q))
            taken++;
    }
    while (scheduler_take(q))
        taken++;
    cr_assert_eq(taken, n);
}

static void free_all(struct wish *wishes, int n)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < wishes[i].r.n_samples; j++)
            free(wishes[i].expected[j]);
        request_free(&wishes[i].r);
        text_scores_free(&wishes[i].scores);
        text_scores_free(&wishes[i].expected_scores);
    }
}

Test(scheduler, a_request_gets_the_same_alone_and_in_any_company)
{
    enum { N = 24 };
    static struct wish wishes[N];
    uint64_t random = 20261121;
    printf("seed %llu\n", (unsigned long long)random);
    static const struct {
        int n_seqs, n_batch;
        int pages; // of the pool; 0: all
    } rooms[] = {{1, 64, 0}, {3, 16, 0}, {8, 32, 0}, {8, 512, 9}, {16, 64, 20}};
    for (size_t room = 0; room < COUNT_OF(rooms); room++) {
        struct session *alone = open_session(1, 32, 0);
        for (int i = 0; i < N; i++) {
            wish_make(&wishes[i], &random, 4);
            expect_alone(&wishes[i], alone);
            if (random_below(&random, 3) == 0)
                score_alone(&wishes[i], alone);
        }
        session_close(alone);
        uint64_t page = kv_page_bytes(model->graph, (enum dtype[]){DT_F16, DT_F16});
        struct session *s = open_session(rooms[room].n_seqs, rooms[room].n_batch, page * (uint64_t)rooms[room].pages);
        struct scheduler *q;
        struct error err;
        cr_assert_eq(scheduler_new(&q, s, model, rooms[room].n_seqs, &err), 0);
        run_all(q, wishes, N);
        struct scheduler_stats stats = scheduler_stats(q);
        printf("room %zu: %lld steps, %lld rows, %lld of %lld reused, %lld put off\n", room, (long long)stats.n_steps,
               (long long)stats.n_rows, (long long)stats.n_reused, (long long)stats.n_prompt,
               (long long)stats.n_preempted);
        for (int i = 0; i < N; i++)
            expect_answered(&wishes[i], i);
        cr_assert_eq(session_pages_free(s), session_pages_total(s), "pages are held when nothing runs");
        scheduler_free(q);
        session_close(s);
        free_all(wishes, N);
    }
}

Test(scheduler, answers_that_outgrow_the_pages_are_put_off_and_come_out_the_same)
{
    enum { N = 5, LONG = 300 };
    static struct wish wishes[N];
    struct session *alone = open_session(1, 32, 0);
    for (int i = 0; i < N; i++) {
        wishes[i] = (struct wish){
            .r = {.n_logprobs = -1, .n_samples = 1, .n_predict = LONG - 20 * i, .n_prompt = 5 + i, .ignore_end = true}};
        wishes[i].r.sampler = sampler_defaults();
        wishes[i].r.prompt = wishes[i].prompt;
        for (int j = 0; j < wishes[i].r.n_prompt; j++)
            wishes[i].prompt[j] = 300 + i;
        expect_alone(&wishes[i], alone);
        score_alone(&wishes[i], alone);
    }
    session_close(alone);
    struct session *s = open_session(N, 64, 14 * kv_page_bytes(model->graph, (enum dtype[]){DT_F16, DT_F16}));
    struct scheduler *q;
    struct error err;
    cr_assert_eq(scheduler_new(&q, s, model, N, &err), 0);
    run_all(q, wishes, N);
    for (int i = 0; i < N; i++)
        expect_answered(&wishes[i], i);
    struct scheduler_stats stats = scheduler_stats(q);
    cr_assert_gt(stats.n_preempted, 0);
    cr_assert_eq(stats.n_generated, N * LONG - 20 * (N * (N - 1) / 2));
    scheduler_free(q);
    session_close(s);
    free_all(wishes, N);
}

Test(scheduler, a_shared_prefix_is_computed_once_and_counted)
{
    enum { N = 24, SHARED = 150, OWN = 10 };
    static struct wish wishes[N];
    struct session *s = open_session(8, 512, 0);
    struct scheduler *q;
    struct error err;
    cr_assert_eq(scheduler_new(&q, s, model, 8, &err), 0);
    for (int i = 0; i < N; i++) {
        wishes[i] = (struct wish){.r = {.n_logprobs = -1, .n_samples = 1, .n_predict = 3, .n_prompt = SHARED + OWN}};
        wishes[i].r.sampler = sampler_defaults();
        wishes[i].r.prompt = wishes[i].prompt;
        for (int j = 0; j < SHARED + OWN; j++)
            wishes[i].prompt[j] = j < SHARED ? 300 + j % 13 : 320 + i;
    }
    run_all(q, wishes, N);
    struct scheduler_stats stats = scheduler_stats(q);
    cr_assert_eq(stats.n_prompt, N * (SHARED + OWN));
    cr_assert_eq(stats.n_reused, (N - 1) * SHARED, "%lld reused", (long long)stats.n_reused);
    for (int i = 0; i < N; i++)
        cr_assert_eq(wishes[i].r.n_reused, i ? SHARED : 0, "request %d: %d reused", i, wishes[i].r.n_reused);
    scheduler_free(q);
    session_close(s);
    free_all(wishes, N);
}

// As of several answers to one question: only the first one's prompt is computed whole.
Test(scheduler, a_shared_prefix_is_scored_once)
{
    enum { N = 40, SHARED = 150, OWN = 10 };
    static struct wish wishes[N];
    struct session *alone = open_session(1, 32, 0), *s = open_session(8, 512, 0);
    struct scheduler *q;
    struct error err;
    cr_assert_eq(scheduler_new(&q, s, model, 8, &err), 0);
    for (int i = 0; i < N; i++) {
        wishes[i] = (struct wish){.r = {.n_logprobs = -1, .n_samples = 1, .n_predict = 0, .n_prompt = SHARED + OWN}};
        wishes[i].r.sampler = sampler_defaults();
        wishes[i].r.prompt = wishes[i].prompt;
        for (int j = 0; j < SHARED + OWN; j++)
            wishes[i].prompt[j] = j < SHARED ? 300 + j % 13 : 320 + i;
        score_alone(&wishes[i], alone);
    }
    run_all(q, wishes, N);
    for (int i = 0; i < N; i++) {
        expect_scored(&wishes[i], i);
        cr_assert_eq(wishes[i].r.n_reused, i ? SHARED - 1 : 0, "request %d: %d reused", i, wishes[i].r.n_reused);
    }
    scheduler_free(q);
    session_close(alone);
    session_close(s);
    free_all(wishes, N);
}

Test(scheduler, samples_of_a_request_share_its_prompt)
{
    struct wish *w = calloc(1, sizeof *w);
    struct session *s = open_session(8, 512, 0);
    struct scheduler *q;
    struct error err;
    cr_assert_eq(scheduler_new(&q, s, model, 8, &err), 0);
    *w = (struct wish){.r = {.n_logprobs = -1, .n_samples = 4, .n_predict = 5, .n_prompt = 100, .ignore_end = true}};
    w->r.sampler = sampler_defaults();
    w->r.prompt = w->prompt;
    for (int i = 0; i < 100; i++)
        w->prompt[i] = 300 + i;
    run_all(q, w, 1);
    struct scheduler_stats stats = scheduler_stats(q);
    cr_assert_eq(stats.n_prompt, 400);
    cr_assert_eq(stats.n_reused, 300);
    cr_assert_eq(stats.n_generated, 20);
    cr_assert_eq(stats.n_rows, 100 + 4 * 4, "%lld rows", (long long)stats.n_rows);
    scheduler_free(q);
    session_close(s);
    free_all(w, 1);
    free(w);
}

Test(scheduler, what_no_sequence_can_serve_comes_back_with_its_error)
{
    struct wish *w = calloc(1, sizeof *w);
    struct session *s = open_session(2, 32, 0);
    struct scheduler *q;
    struct error err;
    cr_assert_eq(scheduler_new(&q, s, model, 2, &err), 0);
    static const struct {
        int n_prompt, n_predict;
        int32_t token;
        const char *text;
    } cases[] = {
        {0, 5, 300, "an empty prompt"},
        {N_CTX + 1, 5, 300, "the prompt has 513 tokens, limit 512; -c sets it"},
        {3, 5, 600, "token 600 is not in the vocabulary of 600"},
        {3, 0, 300, ""},
        {N_CTX, 5, 300, ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        *w = (struct wish){.r = {.n_logprobs = -1,
                                 .n_samples = 1,
                                 .n_predict = cases[i].n_predict,
                                 .n_prompt = cases[i].n_prompt,
                                 .ignore_end = true}};
        w->r.sampler = sampler_defaults();
        w->r.prompt = w->prompt;
        for (int j = 0; j < cases[i].n_prompt; j++)
            w->prompt[j] = cases[i].token;
        run_all(q, w, 1);
        cr_assert_str_eq(w->r.error.text, cases[i].text);
        if (!*cases[i].text)
            cr_assert_eq(w->r.samples[0].reason, cases[i].n_predict ? STOP_CONTEXT : STOP_LENGTH);
        request_free(&w->r);
    }
    scheduler_free(q);
    session_close(s);
    free(w);
}

Test(scheduler, a_request_that_takes_too_long_ends_and_the_others_go_on)
{
    static struct wish wishes[3];
    struct session *s = open_session(3, 32, 0);
    struct scheduler *q;
    struct error err;
    cr_assert_eq(scheduler_new(&q, s, model, 3, &err), 0);
    for (int i = 0; i < 3; i++) {
        wishes[i] =
            (struct wish){.r = {.n_logprobs = -1, .n_samples = 2, .n_predict = 30, .n_prompt = 20, .ignore_end = true}};
        wishes[i].r.sampler = sampler_defaults();
        wishes[i].r.prompt = wishes[i].prompt;
        wishes[i].r.timeout_ms = i == 1 ? 1e9 : 0;
        wishes[i].r.spent_ms = 2e9; // before the request was added
        for (int j = 0; j < 20; j++)
            wishes[i].prompt[j] = 300 + i;
    }
    run_all(q, wishes, 3);
    cr_assert_eq(wishes[1].r.error.code, E_ITEMS);
    cr_assert(strstr(wishes[1].r.error.text, "timeout"), "%s", wishes[1].r.error.text);
    for (int i = 0; i < 3; i += 2)
        cr_assert(wishes[i].r.error.code == E_OK && wishes[i].r.samples[1].n_tokens == 30);
    cr_assert_eq(session_pages_free(s), session_pages_total(s));
    scheduler_free(q);
    session_close(s);
    free_all(wishes, 3);
}
