// Tests that speculative decoding never changes an answer, with any source of drafts, any temperature, any rule, and at
// any boundary of a page or of the context; and that nothing is drafted where it does not pay.
#include "models/synth_model.h"
#include "engine/generate.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_CTX = 320, MOST = 12 };

// --- models ---

struct opened {
    char path[40];
    struct model *model;
    struct session *session;
};

static void write_model(struct opened *m, const char *preset, int n_vocab, uint64_t seed)
{
    struct error err = {0};
    strcpy(m->path, "/tmp/quern-speculate-XXXXXX");
    int fd = mkstemp(m->path);
    cr_assert_geq(fd, 0);
    close(fd);
    struct synth_options o = {.preset = preset, .mix = "Q8_0", .n_vocab = n_vocab, .seed = seed};
    cr_assert_eq(synth_model_write(&o, m->path, &err), 0, "%s", err.text);
}

static void open_model(struct opened *m, const char *preset, int n_vocab, uint64_t seed, int n_rewind)
{
    struct error err = {0};
    write_model(m, preset, n_vocab, seed);
    struct model_options mo = {.path = m->path, .machine.n_threads = 1, .n_ctx = N_CTX};
    cr_assert_eq(model_open(&m->model, &mo, &err), 0, "%s", err.text);
    struct session_options so = {
        .n_ctx = N_CTX, .n_batch = 64, .n_outputs = MOST + 1, .n_rewind = n_rewind, .kv_type = {DT_F16, DT_F16}};
    cr_assert_eq(session_open(&m->session, m->model, &so, &err), 0, "%s", err.text);
}

static void close_model(struct opened *m)
{
    session_close(m->session);
    model_close(m->model);
    unlink(m->path);
}

// --- answers ---

struct reply {
    struct text text;
    int32_t ids[N_CTX];
    float logprobs[N_CTX];
    int n;
    struct generate_result r;
};

static int take_text(void *arg, struct str text)
{
    text_append(&((struct reply *)arg)->text, text);
    return 0;
}

static int take_token(void *arg, const struct generate_token *token)
{
    struct reply *a = arg;
    cr_assert_eq(token->index, a->n);
    a->ids[a->n] = token->id;
    a->logprobs[a->n++] = token->logprob;
    return 0;
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// A rule with a state: after a token t only those of the other parity, or that differ by less than 40, may come.
struct parity {
    int32_t last;
    uint32_t words[64];
};

static int parity_mask(void *state, const uint32_t **allowed, struct error *err)
{
    (void)err;
    struct parity *p = state;
    for (int w = 0; w < 64; w++)
        p->words[w] = p->last % 2 ? 0x55555555u : 0xaaaaaaaau;
    for (int t = MAX(0, p->last - 40); t < MIN(2048, p->last + 40); t++)
        p->words[t / 32] |= 1u << (t % 32);
    *allowed = p->words;
    return 0;
}

static int parity_accept(void *state, int32_t token, struct error *err)
{
    (void)err;
    struct parity *p = state;
    uint32_t bit = p->words[token / 32] >> (token % 32) & 1;
    cr_assert(bit, "token %d was not allowed", token);
    p->last = token;
    return 0;
}

static void answer_once(struct reply *a, struct opened *m, struct generate_options g, bool ruled,
                        struct speculator *speculator)
{
    struct error err = {0};
    struct parity parity = {0};
    struct token_rule rule = {&parity, parity_mask, parity_accept};
    *a = (struct reply){0};
    g.emit = take_text;
    g.on_token = take_token;
    g.arg = a;
    g.rule = ruled ? &rule : NULL;
    g.speculator = speculator;
    cr_assert_eq(generate(m->session, m->model, 0, &g, &a->r, &err), 0, "%s", err.text);
    // what the sequence holds is the prompt and the answer, but for the last token at most
    int length = session_length(m->session, 0);
    cr_assert_eq(length, g.n_prompt + a->n - (a->n > 0 && a->r.reason != STOP_END), "%d, %d", length, a->n);
    cr_assert(!memcmp(session_tokens(m->session, 0) + g.n_prompt, a->ids, (size_t)(length - g.n_prompt) * 4));
}

static void expect_same(const struct reply *a, const struct reply *b, const char *what)
{
    cr_assert_eq(a->n, b->n, "%s: %d tokens, %d", what, a->n, b->n);
    cr_assert(!memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids), "%s: other tokens", what);
    cr_assert(!memcmp(a->logprobs, b->logprobs, (size_t)a->n * sizeof *a->logprobs), "%s: other logits", what);
    cr_assert_eq(a->text.size, b->text.size, "%s", what);
    cr_assert(!a->text.size || !memcmp(a->text.data, b->text.data, a->text.size), "%s: another text", what);
    cr_assert_eq(a->r.reason, b->r.reason, "%s", what);
    cr_assert_eq(a->r.end_token, b->r.end_token, "%s", what);
}

// A prompt of a few phrases that come again and again.
static int make_prompt(int32_t *prompt, int n, int n_vocab, uint64_t *state)
{
    int32_t phrases[3][9];
    for (int i = 0; i < 27; i++)
        phrases[i / 9][i % 9] = 300 + (int32_t)(next(state) % (uint64_t)(n_vocab - 300));
    for (int i = 0; i < n;) {
        int which = (int)(next(state) % 3), length = 3 + (int)(next(state) % 7);
        for (int j = 0; j < length && i < n; j++)
            prompt[i++] = phrases[which][j];
    }
    return n;
}

static struct generate_options random_options(int32_t *prompt, int n_vocab, uint64_t *state)
{
    struct generate_options g = {.prompt = prompt, .n_logprobs = 0, .ignore_end = next(state) % 4 != 0};
    // about the border of a page, or of the context
    const int lengths[] = {1, 20, 62, 63, 64, 65, 120, 128, N_CTX - 20, N_CTX - 1, N_CTX};
    g.n_prompt = make_prompt(prompt, lengths[next(state) % COUNT_OF(lengths)], n_vocab, state);
    g.n_predict = next(state) % 4 ? (int64_t)(next(state) % 100) : -1;
    g.sampler = sampler_defaults();
    g.sampler.seed = next(state);
    g.sampler.temperature = (float)(next(state) % 4) * 0.4f;
    g.sampler.repeat_penalty = next(state) % 4 ? 1 : 1.2f;
    g.sampler.xtc_probability = next(state) % 4 ? 0 : 0.5f;
    g.sampler.mirostat = next(state) % 4 ? 0 : 1 + (int)(next(state) % 2);
    return g;
}

static void same_with_and_without(const char *preset, int rounds, int n_rewind)
{
    struct opened m, other;
    struct error err = {0};
    uint64_t state = 77;
    printf("%s: seed %llu\n", preset, (unsigned long long)state);
    open_model(&m, preset, 600, 1, n_rewind);
    open_model(&other, "llama-tiny", 600, 2, 0);
    struct opened itself = {0};
    open_model(&itself, preset, 600, 1, n_rewind);
    int64_t n_right = 0, n_wrong = 0;
    for (int round = 0; round < rounds; round++) {
        int32_t prompt[N_CTX];
        struct generate_options g = random_options(prompt, 600, &state);
        bool ruled = next(&state) % 3 == 0;
        struct str stop = STR_LIT("zq");
        g.stops = &stop;
        g.n_stops = 1;
        struct reply plain, ahead;
        answer_once(&plain, &m, g, ruled, NULL);
        struct opened *draft = next(&state) % 3 == 0 ? NULL : next(&state) % 2 ? &other : &itself;
        struct speculate_options so = {
            .lookup = !draft || next(&state) % 2,
            .most = 1 + (int)(next(&state) % MOST),
            .least = next(&state) % 3 ? 0 : 2,
            .p_min = next(&state) % 2 ? 0 : 0.1f,
            .always = next(&state) % 4 != 0,
            .draft = draft ? draft->session : NULL,
            .draft_model = draft ? draft->model : NULL,
        };
        struct speculator *s;
        cr_assert_eq(speculator_new(&s, &so, N_CTX, &err), 0, "%s", err.text);
        for (int again = 0; again < 2; again++) { // a second answer, with what was learnt from the first
            answer_once(&ahead, &m, g, ruled, s);
            expect_same(&plain, &ahead, preset);
            n_right += ahead.r.n_right;
            n_wrong += ahead.r.n_drafted - ahead.r.n_right;
            cr_assert_leq(ahead.r.n_steps, plain.r.n_steps);
            text_free(&ahead.text);
        }
        speculator_free(s);
        text_free(&plain.text);
    }
    printf("%lld drafted tokens accepted, %lld not\n", (long long)n_right, (long long)n_wrong);
    cr_assert_gt(n_right, 50);
    cr_assert_gt(n_wrong, 50);
    close_model(&m);
    close_model(&other);
    close_model(&itself);
}

Test(speculate, the_same_answer_with_and_without_llama)
{
    same_with_and_without("llama-tiny", 40, MOST);
}

Test(speculate, the_same_answer_with_and_without_windows_in_turn)
{
    same_with_and_without("gemma2-tiny", 25, MOST);
}

Test(speculate, the_same_answer_with_and_without_windows_everywhere)
{
    same_with_and_without("phi3-window-tiny", 25, MOST);
}

Test(speculate, the_same_answer_where_a_sequence_cannot_be_shortened)
{
    same_with_and_without("phi3-window-tiny", 15, 0);
}

Test(speculate, the_same_answer_with_and_without_experts)
{
    same_with_and_without("llama-moe-tiny", 15, MOST);
}

Test(speculate, a_draft_that_is_the_model_is_always_right)
{
    struct opened m, draft;
    struct error err = {0};
    open_model(&m, "llama-tiny", 600, 1, MOST);
    open_model(&draft, "llama-tiny", 600, 1, 0);
    struct speculate_options so = {.draft = draft.session, .draft_model = draft.model, .most = 8, .always = true};
    struct speculator *s;
    cr_assert_eq(speculator_new(&s, &so, N_CTX, &err), 0);
    int32_t prompt[40];
    uint64_t state = 3;
    make_prompt(prompt, 40, 600, &state);
    struct generate_options g = {
        .prompt = prompt, .n_prompt = 40, .n_predict = 90, .ignore_end = true, .sampler = sampler_defaults()};
    g.sampler.temperature = 1.3f;
    struct reply a;
    answer_once(&a, &m, g, false, s);
    cr_expect_eq(a.n, 90);
    cr_expect_eq(a.r.n_right, a.r.n_drafted);
    // the first token is of the prompt's step; then nine a step
    cr_expect_eq(a.r.n_steps, (90 - 1 + 8) / 9);
    text_free(&a.text);
    speculator_free(s);
    close_model(&draft);
    close_model(&m);
}

Test(speculate, a_draft_of_another_vocabulary_is_refused)
{
    struct opened m, same, longer;
    struct error err = {0};
    open_model(&m, "llama-tiny", 600, 1, 0);
    open_model(&same, "qwen3-tiny", 600, 4, 0);
    open_model(&longer, "llama-tiny", 900, 1, 0);
    cr_expect_eq(speculate_check_vocab(m.model->tokenizer, m.model->tokenizer, &err), 0);
    cr_expect_eq(speculate_check_vocab(m.model->tokenizer, longer.model->tokenizer, &err), -1);
    cr_expect_eq(err.code, E_USAGE);
    cr_expect(strstr(err.text, "900 tokens, the model has 600"), "%s", err.text);
    cr_expect_eq(speculate_check_vocab(m.model->tokenizer, same.model->tokenizer, &err), -1,
                 "as long, but other texts");
    cr_expect(strstr(err.text, "token 366"), "%s", err.text);
    close_model(&m);
    close_model(&same);
    close_model(&longer);
}

// --- what is drafted, and when ---

static struct speculator *lookup_only(bool always)
{
    struct speculator *s;
    struct error err;
    struct speculate_options o = {.lookup = true, .most = 8, .always = always};
    cr_assert_eq(speculator_new(&s, &o, 4096, &err), 0);
    return s;
}

Test(speculate, lookup_drafts_what_followed_the_longest_match)
{
    struct speculator *s = lookup_only(true);
    struct error err;
    struct sampler_params p = sampler_defaults();
    const int32_t text[] = {1, 2, 3, 4, 5, 9, 2, 3, 7, 8, 0, 1, 2, 3};
    int32_t drafted[DRAFT_MAX];
    cr_assert_eq(speculator_begin(s, text, COUNT_OF(text), &p, 10, &err), 0);
    cr_assert_eq(speculator_draft(s, 3, drafted), 3);
    cr_expect_arr_eq(drafted, ((int32_t[]){4, 5, 9}), 12, "1 2 3, though 2 3 came later");
    speculator_push(s, 7);
    cr_assert_eq(speculator_draft(s, 2, drafted), 2);
    cr_expect_arr_eq(drafted, ((int32_t[]){8, 0}), 8);
    speculator_push(s, 6);
    cr_expect_eq(speculator_draft(s, 8, drafted), 0, "7 6 never came before");
    cr_expect_eq(speculator_draft(s, 0, drafted), 0);
    const int32_t round[] = {1, 5, 6, 5, 6};
    cr_assert_eq(speculator_begin(s, round, COUNT_OF(round), &p, 10, &err), 0);
    cr_assert_eq(speculator_draft(s, 5, drafted), 5);
    cr_expect_arr_eq(drafted, ((int32_t[]){5, 6, 5, 6, 5}), 20, "what follows goes round");
    speculator_stop(s);
    cr_expect_eq(speculator_draft(s, 5, drafted), 0);
    speculator_free(s);
}

// Runs a text that repeats itself with probability `sure`, where a step costs `fixed` plus `each` for each row. Returns
// the number of rows computed per token.
static double rows_per_token(double sure, double fixed, double each)
{
    struct speculator *s = lookup_only(false);
    struct sampler_params p = sampler_defaults();
    struct error err;
    uint64_t state = 9;
    int32_t text[4000], drafted[DRAFT_MAX];
    for (int i = 0; i < 4000; i++) {
        bool repeats = i >= 50 && (double)(next(&state) % 1000) < 1000 * sure;
        text[i] = repeats ? text[i - 50] : (int32_t)(next(&state) % 40);
    }
    int rows = 0, n = 100;
    cr_assert_eq(speculator_begin(s, text, n, &p, 40, &err), 0);
    while (n < 3900) {
        int k = speculator_draft(s, 8, drafted), right = 0;
        rows += 1 + k;
        speculator_note_step(s, 1 + k, fixed + each * (1 + k));
        while (right < k && drafted[right] == text[n + right])
            right++;
        for (int i = 0; i <= right; i++)
            speculator_push(s, text[n++]);
    }
    speculator_free(s);
    return (double)rows / 3800;
}

Test(speculate, nothing_is_drafted_where_it_does_not_pay)
{
    double never = rows_per_token(0.0, 0.1, 1), costly = rows_per_token(0.5, 0.0, 1);
    double free_rows = rows_per_token(0.9, 1, 0.0), cheap = rows_per_token(0.95, 1, 0.1);
    printf("rows a token: %.3f, %.3f, %.3f, %.3f\n", never, costly, free_rows, cheap);
    cr_expect_lt(never, 1.1, "noise is hardly ever drafted for");
    cr_expect_lt(costly, 1.1, "where a row costs as much as a step, nothing is won");
    cr_expect_gt(free_rows, 1.2, "where rows are free, drafts are long");
    cr_expect_gt(cheap, 1.05);
}
