// Tests sessions: the bookkeeping of pages, with a machine whose logits depend on the whole text that it was given; and
// that the logits of a row have the same bits for any number of threads, any chunks, any other rows of the step and any
// earlier computation.
#include "kernels/cpu.h"
#include "engine/session.h"
#include "tests/sanitized.h"
#include "tests/tiny_graph.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

// --- a machine that shows what it sees ---
//
// Its "key" of a position is a hash of that token and of the key before it, so it depends on the whole text up to
// there, as real keys do. The logits of a row are a hash of the keys that the row reads through its page table. A page
// that is stale, missing or of another text therefore gives wrong logits.

enum { ORACLE_VOCAB = 8, BAD_TOKEN = 7 }; // BAD_TOKEN makes logits that are no numbers

struct oracle {
    struct machine machine;
    int window;
    size_t page_bytes;
    bool recurrent; // has a state too, which is the key of the last token: it must always be that of the text
    int fails_in;   // runs until one fails; below 0: never
    long n_rows;    // computed so far
};
struct buffer {
    size_t size;
    char *data;
};

static int oracle_alloc(struct machine *m, size_t size, struct buffer **out, struct error *err)
{
    (void)m, (void)err;
    *out = malloc(sizeof **out);
    **out = (struct buffer){size, calloc(1, size)};
    return 0;
}

static void oracle_free(struct machine *m, struct buffer *b)
{
    (void)m;
    free(b->data);
    free(b);
}

static int oracle_put(struct machine *m, struct buffer *b, size_t at, const void *src, size_t n, struct error *err)
{
    (void)m, (void)err;
    cr_assert_leq(at + n, b->size);
    memcpy(b->data + at, src, n);
    return 0;
}

static int oracle_get(struct machine *m, const struct buffer *b, size_t at, void *dst, size_t n, struct error *err)
{
    (void)m, (void)err;
    cr_assert_leq(at + n, b->size);
    memcpy(dst, b->data + at, n);
    return 0;
}

static int oracle_compile(struct machine *m, const struct graph *g, const struct compile_options *o, struct plan **out,
                          struct error *err)
{
    (void)g, (void)o, (void)err;
    *out = (struct plan *)m;
    return 0;
}

static void oracle_plan_free(struct machine *m, struct plan *p)
{
    (void)m, (void)p;
}

static uint32_t mix(uint32_t h, uint32_t value)
{
    h = (h ^ value) * 0x9e3779b1u;
    return h ^ h >> 15;
}

static void oracle_logits(const uint32_t *keys, int length, int window, float *out)
{
    uint32_t h = 1;
    for (int i = window && length > window ? length - window : 0; i < length; i++)
        h = mix(h, keys[i]);
    for (int i = 0; i < ORACLE_VOCAB; i++)
        out[i] = (float)(h >> (4 * i) & 0xfff);
}

static uint32_t *slot_of(const struct step *s, const struct oracle *o, int row, int position)
{
    int32_t page = s->pages[s->seqs[row] * s->pages_stride + position / KV_PAGE];
    size_t at = (size_t)page * o->page_bytes + (size_t)(position % KV_PAGE) * sizeof(uint32_t);
    cr_assert(page >= 0 && at + sizeof(uint32_t) <= s->kv->size, "row %d: page %d", row, page);
    return (uint32_t *)(void *)(s->kv->data + at);
}

// The state of a slot; NULL: slot -1.
static uint32_t *state_of(const struct step *s, int32_t slot)
{
    const size_t at = (size_t)slot * 64;
    cr_assert(slot >= -1 && (slot < 0 || at + 64 <= s->states->size), "slot %d", slot);
    return slot < 0 ? NULL : (uint32_t *)(void *)(s->states->data + at);
}

// Takes the state of a sequence through row i, whose key is known.
static void oracle_state(const struct step *s, int i, uint32_t key, bool fails, uint32_t *state)
{
    if (step_begins(s, i)) {
        const uint32_t *from = state_of(s, s->state_from[i]);
        cr_assert_eq(!from, s->positions[i] == 0, "row %d: position %d", i, s->positions[i]);
        *state = from ? *from : 7;
    }
    *state = mix(*state, (uint32_t)s->tokens[i]);
    cr_assert(fails || *state == key, "row %d, position %d: the state is of another text", i, s->positions[i]);
    uint32_t *to = state_of(s, s->state_to[i]);
    if (to)
        *to = fails ? 0xdead : *state;
}

static int oracle_run(struct machine *m, struct plan *p, const struct step *s, struct error *err)
{
    (void)p;
    struct oracle *o = (struct oracle *)m;
    bool fails = o->fails_in >= 0 && o->fails_in-- == 0;
    uint32_t state = 0;
    for (int i = 0; i < s->n_tokens; i++) {
        int at = s->positions[i];
        uint32_t key = mix(at ? *slot_of(s, o, i, at - 1) : 7, (uint32_t)s->tokens[i]), *slot = slot_of(s, o, i, at);
        if (o->recurrent)
            oracle_state(s, i, key, fails, &state);
        if (*slot != key) // of a step that fails anything may be left, but where nothing was to change
            *slot = fails ? 0xdead : key;
    }
    if (fails)
        return fail(err, E_GPU, "the oracle is silent");
    o->n_rows += s->n_tokens;
    for (int i = 0; i < s->n_outputs; i++) {
        int row = s->outputs[i], length = s->positions[row] + 1;
        uint32_t seen[512] = {0};
        cr_assert_leq(length, 512);
        for (int at = o->window && length > o->window ? length - o->window : 0; at < length; at++)
            seen[at] = *slot_of(s, o, row, at);
        oracle_logits(seen, length, o->window, s->logits + (size_t)i * ORACLE_VOCAB);
        if (s->tokens[row] == BAD_TOKEN)
            s->logits[(size_t)i * ORACLE_VOCAB + 3] = row % 2 ? NAN : -INFINITY;
    }
    return 0;
}

static void oracle_describe(const struct machine *m, const struct plan *p, struct text *out)
{
    (void)m, (void)p;
    text_print(out, "oracle\n");
}

static const struct machine_vtable oracle_vtable = {
    .name = "oracle",
    .alloc = oracle_alloc,
    .free = oracle_free,
    .put = oracle_put,
    .get = oracle_get,
    .compile = oracle_compile,
    .run = oracle_run,
    .plan_free = oracle_plan_free,
    .describe = oracle_describe,
};

struct scene {
    struct tiny tiny;
    struct oracle oracle;
    struct model model;
    struct session *session;
};

enum { RECURRENT = -1 }; // in place of a window

static void open_scene(struct scene *s, int window, const struct session_options *o)
{
    const bool recurrent = window == RECURRENT;
    window = MAX(window, 0);
    *s = (struct scene){.tiny = {.n_layer = 2, .type = DT_F32, .window = window, .seed = 5}};
    tiny_build(&s->tiny);
    s->tiny.graph->state_floats = recurrent ? 16 : 0;
    s->oracle = (struct oracle){.machine = {&oracle_vtable}, .window = window, .recurrent = recurrent, .fails_in = -1};
    s->oracle.page_bytes = kv_page_bytes(s->tiny.graph, o->kv_type);
    s->model = (struct model){.graph = s->tiny.graph, .machine = &s->oracle.machine, .n_ctx = o->n_ctx};
    s->model.info.n_vocab = ORACLE_VOCAB;
    struct error err = {0};
    cr_assert_eq(session_open(&s->session, &s->model, o, &err), 0, "%s", err.text);
}

static void close_scene(struct scene *s)
{
    session_close(s->session);
    tiny_free(&s->tiny);
}

static void check_logits(const struct scene *s, int i, const int32_t *tokens, int length, const char *what)
{
    float want[ORACLE_VOCAB];
    uint32_t keys[512], key = 7;
    for (int at = 0; at < length; at++)
        keys[at] = key = mix(key, (uint32_t)tokens[at]);
    oracle_logits(keys, length, s->oracle.window, want);
    cr_assert_arr_eq(session_logits(s->session, i), want, sizeof want, "%s: a row of %d tokens saw another text", what,
                     length);
}

// --- random histories ---

enum { SEQS = 4, CTX = 200, BATCH = 24 };

struct text_state {
    int32_t tokens[CTX];
    int length;
};

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)((tiny_noise(state) * 0.5f + 0.5f) * (float)n) % n;
}

// Texts that begin alike: one of three, changed at one place, and cut.
static void random_text(uint64_t *random, struct text_state *out)
{
    uint32_t theme = random_below(random, 3);
    out->length = 1 + (int)random_below(random, CTX);
    for (int i = 0; i < out->length; i++)
        out->tokens[i] = (int32_t)((uint32_t)i * (theme + 1) / 3 % (BAD_TOKEN - 1));
    if (random_below(random, 2))
        out->tokens[random_below(random, (uint32_t)out->length)] = BAD_TOKEN - 1;
}

static void do_prompt(struct scene *s, struct text_state *states, uint64_t *random)
{
    int seq = (int)random_below(random, SEQS);
    struct text_state text;
    struct error err = {0};
    random_text(random, &text);
    if (random_below(random, 3) == 0) { // what it holds already, and more
        text = states[seq];
        while (text.length < CTX && random_below(random, 8))
            text.tokens[text.length++] = (int32_t)random_below(random, BAD_TOKEN);
        if (!text.length)
            return;
    }
    bool fails = random_below(random, 10) == 0;
    s->oracle.fails_in = fails ? (int)random_below(random, 4) : -1;
    long before = s->oracle.n_rows;
    int reused = -1, status = session_prompt(s->session, seq, text.tokens, text.length, &reused, &err);
    s->oracle.fails_in = -1;
    cr_assert(status == 0 || fails, "%s", err.text);
    if (status == 0) {
        check_logits(s, 0, text.tokens, text.length, "prompt");
        cr_assert_eq(s->oracle.n_rows - before, text.length - reused);
        cr_assert_lt(reused, text.length);
    }
    text.length = session_length(s->session, seq);
    cr_assert(!memcmp(session_tokens(s->session, seq), text.tokens, (size_t)text.length * 4));
    states[seq] = text;
}

// A step of several sequences, in rows that lie between each other; with state, in rows that follow each other.
static void do_step(struct scene *s, struct text_state *states, uint64_t *random)
{
    struct session_row rows[BATCH];
    struct text_state after[SEQS];
    memcpy(after, states, sizeof after);
    int lengths[BATCH], n = 1 + (int)random_below(random, BATCH), n_rows = 0, n_outputs = 0, seqs[BATCH];
    for (int i = 0; i < n; i++)
        seqs[i] = s->oracle.recurrent ? i * SEQS / n : (int)random_below(random, SEQS);
    for (int i = 0; i < n; i++) {
        int seq = seqs[i];
        if (after[seq].length == CTX)
            continue;
        bool logits = n_outputs < SEQS && random_below(random, 2);
        int32_t token = (int32_t)random_below(random, 2);
        rows[n_rows] = (struct session_row){token, seq, logits};
        after[seq].tokens[after[seq].length++] = token;
        lengths[n_rows++] = after[seq].length;
        n_outputs += logits;
    }
    if (!n_rows)
        return;
    bool fails = random_below(random, 5) == 0;
    s->oracle.fails_in = fails ? 0 : -1;
    struct error err = {0};
    int status = session_step(s->session, rows, n_rows, &err);
    s->oracle.fails_in = -1;
    cr_assert_eq(status, fails ? -1 : 0, "%s", err.text);
    if (fails)
        return;
    memcpy(states, after, sizeof after);
    for (int i = 0, output = 0; i < n_rows; i++)
        if (rows[i].logits)
            check_logits(s, output++, states[rows[i].seq].tokens, lengths[i], "step");
}

static void do_edit(struct scene *s, struct text_state *states, uint64_t *random)
{
    int seq = (int)random_below(random, SEQS), other = (int)random_below(random, SEQS);
    if (random_below(random, 2)) {
        session_fork(s->session, other, seq);
        states[other] = states[seq];
        return;
    }
    int n = (int)random_below(random, CTX);
    bool kept = session_truncate(s->session, seq, n);
    cr_assert(kept || s->oracle.window || s->oracle.recurrent);
    const int length = session_length(s->session, seq);
    cr_assert(kept ? length == MIN(n, states[seq].length) : length <= MIN(n, states[seq].length));
    cr_assert(kept || s->oracle.recurrent || length == 0);
    states[seq].length = length;
}

static void random_history(int window, bool no_reuse, uint64_t seed)
{
    struct scene s;
    struct text_state states[SEQS] = {0};
    struct session_options o = {
        .n_seqs = SEQS, .n_ctx = CTX, .n_batch = BATCH, .kv_type = {DT_F16, DT_F16}, .no_reuse = no_reuse};
    printf("seed %llu, window %d\n", (unsigned long long)seed, window);
    open_scene(&s, window, &o);
    for (int i = 0; i < 12000; i++) {
        uint32_t dice = random_below(&seed, 10);
        (dice < 3 ? do_prompt : dice < 8 ? do_step : do_edit)(&s, states, &seed);
        for (int seq = 0; seq < SEQS; seq++) {
            cr_assert_eq(session_length(s.session, seq), states[seq].length);
            cr_assert(!memcmp(session_tokens(s.session, seq), states[seq].tokens, (size_t)states[seq].length * 4));
        }
    }
    close_scene(&s);
}

Test(session, every_row_sees_its_own_text_through_any_history)
{
    for (uint64_t seed = 1; seed <= 6; seed++)
        random_history(0, false, seed);
}

Test(session, every_row_sees_its_window_through_any_history)
{
    const int windows[] = {1, 2, 40, 63, 64, 65, 66, 130};
    for (size_t i = 0; i < 2 * COUNT_OF(windows); i++)
        random_history(windows[i % COUNT_OF(windows)], false, 11 + i);
}

Test(session, the_state_is_that_of_the_text_through_any_history)
{
    for (uint64_t seed = 31; seed <= 36; seed++)
        random_history(RECURRENT, false, seed);
    random_history(RECURRENT, true, 37);
}

// The state is kept at the ends of pages: a text that begins like an earlier one is computed from the last of them on, and
// a sequence that is shortened keeps the pages before.
Test(session, a_shared_beginning_is_computed_once_with_state)
{
    struct scene s;
    struct session_options o = {.n_seqs = 2, .n_ctx = CTX, .n_batch = CTX, .kv_type = {DT_F16, DT_F16}};
    struct error err = {0};
    int32_t a[190], b[190];
    int reused;
    for (int i = 0; i < 190; i++)
        a[i] = i % 5, b[i] = i < 150 ? a[i] : 6;
    open_scene(&s, RECURRENT, &o);
    cr_assert_eq(session_prompt(s.session, 0, a, 190, &reused, &err), 0, "%s", err.text);
    cr_expect_eq(reused, 0);
    cr_assert_eq(session_prompt(s.session, 1, b, 190, &reused, &err), 0, "%s", err.text);
    cr_expect_eq(reused, 128);
    cr_expect_not(session_truncate(s.session, 0, 189));
    cr_expect_eq(session_length(s.session, 0), 128);
    cr_assert_eq(session_prompt(s.session, 0, a, 190, &reused, &err), 0, "%s", err.text);
    cr_expect_eq(reused, 128);
    close_scene(&s);
}

Test(session, histories_without_reuse)
{
    random_history(0, true, 21);
    random_history(70, true, 22);
}

// Computes drafts, rows that all have logits, and then truncates the sequence to some of them.
static void draft_and_truncate(int window, uint64_t seed)
{
    const int most = window == RECURRENT ? 8 : 16;
    enum { MOST = 16 };
    struct scene s;
    struct session_options o = {
        .n_ctx = CTX, .n_batch = BATCH, .n_outputs = MOST + 1, .n_rewind = most, .kv_type = {DT_F16, DT_F16}};
    printf("seed %llu, window %d\n", (unsigned long long)seed, window);
    open_scene(&s, window, &o);
    int32_t text[CTX];
    int length = 0;
    for (int i = 0; i < 4000; i++) {
        struct session_row rows[MOST + 1];
        struct error err = {0};
        int n = 1 + (int)random_below(&seed, (uint32_t)most + 1);
        n = MIN(n, CTX - length);
        for (int j = 0; j < n; j++) {
            text[length + j] = (int32_t)random_below(&seed, 2);
            rows[j] = (struct session_row){text[length + j], 0, true};
        }
        cr_assert_eq(session_step(s.session, rows, n, &err), 0, "%s", err.text);
        for (int j = 0; j < n; j++)
            check_logits(&s, j, text, length + j + 1, "draft");
        length += n - (int)random_below(&seed, (uint32_t)n);
        cr_assert(session_truncate(s.session, 0, length), "%d of %d", length, session_length(s.session, 0));
        cr_assert_eq(session_length(s.session, 0), length);
        if (length == CTX) {
            length = (int)random_below(&seed, CTX);
            session_truncate(s.session, 0, 0);
            cr_assert(!length || !session_prompt(s.session, 0, text, length, NULL, &err), "%s", err.text);
        }
    }
    close_scene(&s);
}

Test(session, drafts_are_taken_back_whatever_the_window)
{
    const int windows[] = {0, 1, 2, 40, 63, 64, 65, 130, RECURRENT};
    for (size_t i = 0; i < COUNT_OF(windows); i++)
        draft_and_truncate(windows[i], 31 + i);
}

// --- reuse ---

static void fill(int32_t *tokens, int n, int salt)
{
    for (int i = 0; i < n; i++)
        tokens[i] = (i * 5 + i / 7 + salt) % BAD_TOKEN;
}

Test(session, a_text_that_was_computed_is_not_computed_again)
{
    struct scene s;
    struct session_options o = {.n_seqs = 3, .n_ctx = 300, .n_batch = 100, .kv_type = {DT_F16, DT_F16}};
    int32_t text[300];
    int reused;
    struct error err;
    open_scene(&s, 0, &o);
    fill(text, 300, 0);
    cr_assert_eq(session_prompt(s.session, 0, text, 200, &reused, &err), 0);
    cr_expect_eq(reused, 0);
    cr_assert_eq(session_prompt(s.session, 1, text, 200, &reused, &err), 0);
    cr_expect_eq(reused, 199, "the same text in another sequence: all but its last token");
    text[150] = BAD_TOKEN - 1 - text[150];
    cr_assert_eq(session_prompt(s.session, 1, text, 250, &reused, &err), 0);
    cr_expect_eq(reused, 150, "a text that differs within a page: up to there");
    session_truncate(s.session, 0, 0);
    session_truncate(s.session, 1, 0);
    cr_assert_eq(session_prompt(s.session, 2, text, 250, &reused, &err), 0);
    cr_expect_eq(reused, 249, "a text that no sequence holds any more");
    session_truncate(s.session, 2, 0);
    int32_t other[200];
    fill(other, 200, 3);
    cr_assert_eq(session_prompt(s.session, 0, other, 200, &reused, &err), 0);
    cr_assert_eq(session_prompt(s.session, 2, text, 250, &reused, &err), 0);
    cr_expect_eq(reused, 249, "another text takes pages that hold nothing first");
    close_scene(&s);
}

// Two sequences say the same in one step, past a page's end, and part later: the second one's pages follow the shared
// page.
Test(session, equal_pages_become_one)
{
    enum { SAME = 70, LENGTH = 90 };
    struct scene s;
    struct session_options o = {.n_seqs = 3, .n_ctx = 300, .n_batch = 2 * SAME, .kv_type = {DT_F16, DT_F16}};
    struct session_row rows[2 * SAME];
    int32_t text[LENGTH];
    int reused;
    struct error err;
    open_scene(&s, 0, &o);
    fill(text, LENGTH, 0);
    for (int i = 0; i < 2 * SAME; i++)
        rows[i] = (struct session_row){text[i % SAME], i / SAME, i % SAME == SAME - 1};
    cr_assert_eq(session_step(s.session, rows, 2 * SAME, &err), 0);
    check_logits(&s, 0, text, SAME, "first");
    check_logits(&s, 1, text, SAME, "second");
    for (int i = SAME; i < LENGTH; i++)
        rows[i - SAME] = (struct session_row){text[i], 1, i == LENGTH - 1};
    cr_assert_eq(session_step(s.session, rows, LENGTH - SAME, &err), 0);
    check_logits(&s, 0, text, LENGTH, "longer");
    cr_assert_eq(session_prompt(s.session, 2, text, LENGTH, &reused, &err), 0);
    cr_expect_eq(reused, LENGTH - 1);
    close_scene(&s);
}

Test(session, without_reuse_all_of_a_prompt_is_computed)
{
    struct scene s;
    struct session_options o = {
        .n_seqs = 2, .n_ctx = 300, .n_batch = 100, .kv_type = {DT_F16, DT_F16}, .no_reuse = true};
    int32_t text[200];
    int reused = -1;
    struct error err;
    open_scene(&s, 0, &o);
    fill(text, 200, 0);
    cr_assert_eq(session_prompt(s.session, 0, text, 200, &reused, &err), 0);
    cr_assert_eq(session_prompt(s.session, 1, text, 200, &reused, &err), 0);
    cr_expect_eq(reused, 0);
    cr_expect_eq(s.oracle.n_rows, 400);
    close_scene(&s);
}

Test(session, a_window_needs_pages_for_what_it_sees_only)
{
    struct scene s, all;
    struct session_options o = {.n_ctx = 64000, .n_batch = 64, .kv_type = {DT_F16, DT_F16}};
    open_scene(&s, 100, &o);
    open_scene(&all, 0, &o);
    cr_expect_lt(session_memory(s.session).kv * 100, session_memory(all.session).kv);
    // and it goes on past its pages
    struct error err = {0};
    int32_t tail[512];
    for (int i = 0; i < 500; i++) {
        tail[i] = i % 5;
        cr_assert_eq(session_step(s.session, &(struct session_row){tail[i], 0, true}, 1, &err), 0, "%s", err.text);
        check_logits(&s, 0, tail, i + 1, "window");
    }
    close_scene(&s);
    close_scene(&all);
}

// --- refusals ---

Test(session, bad_rows_are_refused_and_change_nothing)
{
    struct scene s;
    struct session_options o = {.n_seqs = 2, .n_ctx = 10, .n_batch = 4, .kv_type = {DT_F16, DT_F16}};
    struct error err;
    open_scene(&s, 0, &o);
    const struct {
        struct session_row rows[5];
        int n;
        enum err_code code;
        const char *says;
    } cases[] = {
        {{{-1, 0, true}}, 1, E_USAGE, "token -1 is not in the vocabulary of 8"},
        {{{ORACLE_VOCAB, 0, true}}, 1, E_USAGE, "token 8 is not in the vocabulary of 8"},
        {{{0, 2, true}}, 1, E_USAGE, "sequence 2 of 2"},
        {{{0, -1, true}}, 1, E_USAGE, "sequence -1 of 2"},
        {{{0}}, 0, E_USAGE, "a step of 0 rows, limit 4"},
        {{{0}}, 5, E_USAGE, "a step of 5 rows, limit 4"},
        {{{0, 0, true}, {0, 0, true}, {0, 1, true}}, 3, E_USAGE, "a step with logits of 3 rows, limit 2"},
        {{{1, 0, false}, {BAD_TOKEN, 0, true}}, 2, E_MODEL, "non-finite logits at position 1"},
        {{{BAD_TOKEN, 0, true}}, 1, E_MODEL, "non-finite logits at position 0"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        err = (struct error){0};
        cr_expect_eq(session_step(s.session, cases[i].rows, cases[i].n, &err), -1, "case %zu", i);
        cr_expect_eq(err.code, cases[i].code, "case %zu: %s", i, err.text);
        cr_expect(strstr(err.text, cases[i].says), "case %zu: %s", i, err.text);
        cr_expect_eq(session_length(s.session, 0), 0);
    }
    int32_t text[11] = {0};
    cr_expect_eq(session_prompt(s.session, 0, text, 11, NULL, &err), -1);
    cr_expect(strstr(err.text, "11 tokens, limit 10"), "%s", err.text);
    cr_expect_eq(session_prompt(s.session, 0, text, 10, NULL, &err), 0);
    cr_expect_eq(session_step(s.session, &(struct session_row){0, 0, true}, 1, &err), -1);
    cr_expect(strstr(err.text, "11 tokens, limit 10"), "%s", err.text);
    cr_expect_eq(session_length(s.session, 0), 10);
    close_scene(&s);
}

Test(session, a_cancelled_prompt_stops_between_steps)
{
    struct scene s;
    atomic_bool cancel = false;
    struct session_options o = {.n_ctx = 100, .n_batch = 10, .kv_type = {DT_F16, DT_F16}, .cancel = &cancel};
    struct error err;
    int32_t text[50] = {0};
    open_scene(&s, 0, &o);
    cancel = true;
    cr_expect_eq(session_prompt(s.session, 0, text, 50, NULL, &err), -1);
    cr_expect_eq(err.code, E_INTERRUPTED);
    cr_expect_eq(s.oracle.n_rows, 0);
    cancel = false;
    cr_expect_eq(session_prompt(s.session, 0, text, 50, NULL, &err), 0);
    close_scene(&s);
}

// --- memory ---

Test(session, what_does_not_fit_is_refused_with_the_sum_and_a_setting)
{
    struct scene s;
    struct session_options o = {.n_ctx = 128, .kv_type = {DT_F16, DT_F16}};
    open_scene(&s, 0, &o);
    struct session *big = NULL;
    struct error err = {0};
    o.n_ctx = 1 << 30; // some TiB
    o.n_batch = 512;
    cr_expect_eq(session_open(&big, &s.model, &o, &err), -1);
    cr_expect_eq(err.code, E_MEMORY, "%s", err.text);
    cr_expect(strstr(err.text, "TiB needed") && strstr(err.text, " free by ") && strstr(err.text, "; -c "), "%s",
              err.text);
    int n_ctx = atoi(strstr(err.text, "; -c ") + 5);
    cr_expect(n_ctx > 0 && n_ctx % KV_PAGE == 0, "%s", err.text);
    // the setting that it names does fit, by half at least, for memory comes and goes
    o.n_ctx = n_ctx / 2;
    cr_expect_eq(session_open(&big, &s.model, &o, &err), 0, "%s", err.text);
    session_close(big);
    close_scene(&s);
}

Test(session, the_limit_of_the_address_space_counts)
{
    if (sanitized)
        cr_skip_test("skipped: no limit of the address space under AddressSanitizer");
    struct scene s;
    struct session_options o = {.n_ctx = 128, .kv_type = {DT_F16, DT_F16}};
    open_scene(&s, 0, &o);
    struct rlimit limit = {(rlim_t)1 << 30, (rlim_t)1 << 30};
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    o.n_ctx = 4 << 20; // 8 KiB a position of the KV cache and more
    struct session *big = NULL;
    struct error err = {0};
    cr_expect_eq(session_open(&big, &s.model, &o, &err), -1);
    cr_expect_eq(err.code, E_MEMORY);
    cr_expect(strstr(err.text, " free by "), "%s", err.text);
    close_scene(&s);
}

static void write_file(const char *root, const char *path, const char *text)
{
    char full[512], command[600];
    snprintf(full, sizeof full, "%s%s", root, path);
    *strrchr(full, '/') = '\0';
    snprintf(command, sizeof command, "mkdir -p '%s'", full);
    cr_assert_eq(system(command), 0);
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = fopen(full, "w");
    cr_assert(f);
    fputs(text, f);
    fclose(f);
}

Test(memory, the_least_of_machine_and_control_groups)
{
    char root[] = "/tmp/quern-memory-XXXXXX", command[80];
    cr_assert(mkdtemp(root));
    struct memory_free m;
    write_file(root, "/proc/meminfo", "MemTotal:   2000 kB\nMemFree: 3 kB\nMemAvailable:    1000 kB\n");
    memory_query(root, &m);
    cr_expect_eq(m.bytes, 1000 * 1024);
    cr_expect_eq(m.total, 2000 * 1024);
    write_file(root, "/proc/self/cgroup", "0::/a/b\n");
    write_file(root, "/sys/fs/cgroup/a/b/memory.max", "max\n");
    memory_query(root, &m);
    cr_expect_eq(m.bytes, 1000 * 1024, "no limit");
    write_file(root, "/sys/fs/cgroup/a/memory.max", "500000\n");
    write_file(root, "/sys/fs/cgroup/a/memory.current", "300000\n");
    write_file(root, "/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100000\nactive_file 5\n");
    memory_query(root, &m);
    cr_expect_eq(m.bytes, 300000, "of a group further out: the file pages that it can drop are free");
    cr_expect(strstr(m.limit, "control group"));
    write_file(root, "/proc/self/cgroup", "3:cpu,memory:/x\n2:pids:/y\n");
    write_file(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "70000\n");
    write_file(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "80000\n");
    memory_query(root, &m);
    cr_expect_eq(m.bytes, 0, "version 1, over its limit, seen from a namespace");
    snprintf(command, sizeof command, "rm -r '%s'", root);
    cr_expect_eq(system(command), 0);
}

Test(memory, sizes_are_written_with_units)
{
    const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.0 KiB"},
                 {1536, "1.5 KiB"},
                 {200 << 20, "200 MiB"},
                 {(uint64_t)5 << 30, "5.0 GiB"},
                 {UINT64_MAX, "16.0 EiB"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[24];
        memory_format(cases[i].bytes, text);
        cr_expect_str_eq(text, cases[i].text);
    }
}

// --- the same bits, on the real machine ---

enum { PROMPT = 150, DECODE = 6, LOGITS = DECODE + 1 };

struct setting {
    const char *isa;
    int threads, chunk, neighbours;
    bool reuse; // of a text that another sequence has computed
    enum dtype kv;
};

static void prompt_tokens(int32_t *out, int n, int salt)
{
    for (int i = 0; i < n; i++)
        out[i] = (i * 37 + i / 11 + salt * 101) % TINY_VOCAB;
}

// Other sequences grow by a row a step beside the one that is looked at.
static void step_with_neighbours(struct session *s, int32_t token, int neighbours, int i)
{
    struct session_row rows[8];
    int n = 0;
    struct error err = {0};
    for (int k = 0; k < neighbours; k++)
        rows[n++] = (struct session_row){(i * 13 + k * 7) % TINY_VOCAB, 2 + k, false};
    rows[n++] = (struct session_row){token, 0, true};
    cr_assert_eq(session_step(s, rows, n, &err), 0, "%s", err.text);
}

// The logits after the prompt and after each of DECODE tokens.
static void real_logits(const struct tiny *t, const struct setting *w, float *out)
{
    struct error err = {0};
    struct model m = {.graph = t->graph, .n_ctx = 256};
    m.info.n_vocab = TINY_VOCAB;
    struct machine_options mo = {.n_threads = w->threads, .isa = w->isa};
    cr_assert_eq(machine_open_cpu(&m.machine, &mo, &err), 0, "%s", err.text);
    struct session *s;
    struct session_options o = {.n_seqs = 8, .n_batch = w->chunk < 8 ? 8 : w->chunk, .kv_type = {w->kv, w->kv}};
    cr_assert_eq(session_open(&s, &m, &o, &err), 0, "%s", err.text);
    int32_t tokens[PROMPT];
    prompt_tokens(tokens, PROMPT, 0);
    if (w->reuse)
        cr_assert_eq(session_prompt(s, 1, tokens, PROMPT - 20, NULL, &err), 0, "%s", err.text);
    int reused = 0;
    if (w->chunk >= 8 || w->reuse)
        cr_assert_eq(session_prompt(s, 0, tokens, PROMPT, &reused, &err), 0, "%s", err.text);
    else
        for (int at = 0; at < PROMPT; at += w->chunk) {
            struct session_row rows[8];
            int n = MIN(w->chunk, PROMPT - at);
            for (int i = 0; i < n; i++)
                rows[i] = (struct session_row){tokens[at + i], 0, at + i == PROMPT - 1};
            cr_assert_eq(session_step(s, rows, n, &err), 0, "%s", err.text);
        }
    cr_assert_eq(reused, w->reuse ? PROMPT - 20 : 0);
    for (int i = 0; i < LOGITS; i++) {
        if (i)
            step_with_neighbours(s, i * 3, w->neighbours, i);
        memcpy(out + (size_t)i * TINY_VOCAB, session_logits(s, 0), TINY_VOCAB * sizeof *out);
    }
    session_close(s);
    m.machine->v->close(m.machine);
}

static void check_same_bits(enum dtype type, enum dtype kv)
{
    struct tiny t = {.n_layer = 2, .with_data = true, .type = type, .seed = 77};
    static float want[LOGITS * TINY_VOCAB], got[LOGITS * TINY_VOCAB];
    tiny_build(&t);
    for (int level = 0; machine_cpu_isa(level); level++) {
        const char *isa = machine_cpu_isa(level);
        real_logits(&t, &(struct setting){isa, 1, 512, 0, false, kv}, want);
        const struct setting others[] = {
            {isa, 2, 512, 0, false, kv}, {isa, 3, 512, 0, false, kv}, {isa, 4, 16, 0, false, kv},
            {isa, 2, 1, 0, false, kv},   {isa, 1, 7, 0, false, kv},   {isa, 2, 16, 0, false, kv},
            {isa, 1, 512, 6, false, kv}, {isa, 3, 16, 3, false, kv},  {isa, 2, 512, 0, true, kv},
            {isa, 2, 7, 5, true, kv},
        };
        // the last level is plain C and slow: some settings will do
        size_t stride = machine_cpu_isa(level + 1) ? 1 : 4;
        for (size_t i = 0; i < COUNT_OF(others); i += stride) {
            real_logits(&t, &others[i], got);
            cr_expect(!memcmp(want, got, sizeof want), "%s, keys %s, %s: %d threads, chunks of %d, %d neighbours%s",
                      dtype_info[type].name, dtype_info[kv].name, isa, others[i].threads, others[i].chunk,
                      others[i].neighbours, others[i].reuse ? ", reused" : "");
        }
    }
    tiny_free(&t);
}

Test(session_bits, f32_weights, .timeout = 120)
{
    check_same_bits(DT_F32, DT_F32);
}

Test(session_bits, q8_0_weights, .timeout = 120)
{
    check_same_bits(DT_Q8_0, DT_F16);
}

Test(session_bits, q4_k_weights, .timeout = 120)
{
    check_same_bits(DT_Q4_K, DT_Q8_0);
}
