// Tests the built-in model: it matches its metadata, it is contained in the program, and it answers.
#include "engine/generate.h"
#include "engine/tap.h"
#include "models/builtin/builtin.h"

#include <criterion/criterion.h>

enum { FILE_BYTES_MAX = 12 << 20, ROW_MULTIPLE = 256, ANSWER_BYTES = 2048 };

struct builtin {
    struct model *model;
    struct session *session;
};

static void open_builtin(struct builtin *b)
{
    *b = (struct builtin){0};
    if (!model_has_builtin())
        cr_skip_test("skipped: this build has no built-in model");
    struct error err;
    struct model_options options = {.path = MODEL_BUILTIN};
    cr_assert_eq(model_open(&b->model, &options, &err), 0, "%s", err.text);
    cr_assert_eq(session_open(&b->session, b->model, &(struct session_options){.kv_type = {DT_F16, DT_F16}}, &err), 0,
                 "%s", err.text);
}

static void close_builtin(struct builtin *b)
{
    session_close(b->session);
    model_close(b->model);
}

// ---- What it is ----

static void expect_str(const struct gguf *g, const char *key, const char *want)
{
    struct str s = {0};
    struct error err;
    cr_expect_eq(gguf_get_str(g, key, &s, &err), 1, "%s", key);
    cr_expect(str_equal_z(s, want), "%s: %.*s", key, STR_ARG(s));
}

Test(builtin, says_honestly_what_it_is)
{
    struct builtin b;
    open_builtin(&b);
    const struct gguf *g = b.model->file;
    expect_str(g, "general.architecture", "llama");
    expect_str(g, "general.name", "quern small");
    expect_str(g, "general.author", "the quern project");
    expect_str(g, "general.license", "mit");
    cr_expect_str_eq(gguf_path(g, 0), MODEL_BUILTIN);
    struct str text;
    cr_expect_eq(gguf_get_str(g, "general.description", &text, NULL), 1);
    cr_expect_eq(gguf_get_str(g, "tokenizer.chat_template", &text, NULL), 1);
    close_builtin(&b);
}

Test(builtin, is_small_and_every_quantisation_fits_its_rows)
{
    struct builtin b;
    open_builtin(&b);
    const struct gguf *g = b.model->file;
    cr_expect_leq(gguf_file_bytes(g), (uint64_t)FILE_BYTES_MAX);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        cr_expect_eq(t->ne[0] % ROW_MULTIPLE, 0, "%.*s: rows of %lld", STR_ARG(t->name), (long long)t->ne[0]);
    }
    close_builtin(&b);
}

Test(builtin, lies_in_the_program_and_is_not_copied)
{
    struct builtin b;
    open_builtin(&b);
    struct bytes image = builtin_image();
    cr_expect_eq((uintptr_t)image.data % 64, 0);
    for (size_t i = 0; i < gguf_n_tensors(b.model->file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(b.model->file, i);
        cr_expect_eq((const uint8_t *)t->data, image.data + t->offset, "%.*s", STR_ARG(t->name));
    }
    close_builtin(&b);
}

// ---- What it says ----

struct reply {
    char text[ANSWER_BYTES];
    size_t n;
};

static int take(void *arg, struct str text)
{
    struct reply *a = arg;
    cr_assert_lt(a->n + text.len, sizeof a->text);
    if (text.len)
        memcpy(a->text + a->n, text.data, text.len);
    a->n += text.len;
    a->text[a->n] = '\0';
    return 0;
}

// The likeliest answer to a dialogue in the model's own form.
static struct generate_result ask(struct builtin *b, const char *dialogue, struct reply *a)
{
    struct token_list tokens = {0};
    struct error err;
    *a = (struct reply){.n = 0};
    cr_assert_eq(tokenizer_encode(b->model->tokenizer, str_from(dialogue), TOKENIZE_SPECIAL, &tokens, &err), 0, "%s",
                 err.text);
    struct generate_options o = {.prompt = tokens.ids,
                                 .n_prompt = (int)tokens.n,
                                 .n_predict = 300,
                                 .sampler = sampler_defaults(),
                                 .n_logprobs = -1,
                                 .emit = take,
                                 .arg = a};
    o.sampler.temperature = 0;
    struct generate_result r;
    cr_assert_eq(generate(b->session, b->model, 0, &o, &r, &err), 0, "%s", err.text);
    token_list_free(&tokens);
    return r;
}

#define USER(text) "<|im_start|>user\n" text "<|im_end|>\n"
#define ASSISTANT(text) "<|im_start|>assistant\n" text "<|im_end|>\n"
#define TURN "<|im_start|>assistant\n"

Test(builtin, answers_simple_questions)
{
    static const struct {
        const char *dialogue, *says;
    } cases[] = {
        {USER("What is the capital of France?") TURN, "Paris"},
        {USER("What is the opposite of hot?") TURN, "cold"},
        {USER("What is 2 plus 3?") TURN, "5"},
        {USER("What color is grass?") TURN, "green"},
        {USER("Count to five.") TURN, "1, 2, 3, 4, 5"},
        {USER("What is the opposite of big?") ASSISTANT("The opposite of big is small.") USER("Who are you?") TURN,
         "quern"},
    };
    struct builtin b;
    open_builtin(&b);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct reply a;
        struct generate_result r = ask(&b, cases[i].dialogue, &a);
        cr_expect_not_null(strstr(a.text, cases[i].says), "%s... %s", cases[i].dialogue, a.text);
        cr_expect_eq(r.reason, STOP_END, "%s", a.text);
    }
    close_builtin(&b);
}

Test(builtin, tells_a_story_that_ends)
{
    struct builtin b;
    open_builtin(&b);
    struct reply a;
    struct generate_result r = ask(&b, USER("Tell me a story about a fox") TURN, &a);
    cr_expect_eq(r.reason, STOP_END, "%s", a.text);
    cr_expect_not_null(strstr(a.text, "fox"), "%s", a.text);
    cr_expect_geq(r.n_generated, 40, "%s", a.text);
    close_builtin(&b);
}

// ---- Interrupted ----

struct interruption {
    atomic_bool cancel;
    int n_seen, after;
};

// Called for each value of a step that is complete; sets the flag after some of them.
static void interrupt(void *arg, const struct tensor *n, const float *rows, size_t stride, int n_rows)
{
    struct interruption *i = arg;
    (void)n, (void)rows, (void)stride, (void)n_rows;
    if (++i->n_seen == i->after)
        atomic_store(&i->cancel, true);
}

// The prompt is one step: it ends within it, and what it computed counts for nothing.
static void expect_stop_within_a_step(struct model *m, int after)
{
    enum { N = 200 };
    static const char *const names[] = {"blk.0.attn_q", "blk.1.attn_output", "blk.3.ffn_down"};
    struct interruption i = {.after = after};
    struct session *s = NULL, *fresh = NULL;
    struct tap *tap = NULL;
    struct error err;
    int32_t tokens[N];
    for (int k = 0; k < N; k++)
        tokens[k] = 300 + 7 * k;
    cr_assert_eq(tap_open(&tap, m->graph, names, COUNT_OF(names), interrupt, &i, &err), 0, "%s", err.text);
    struct session_options o = {.kv_type = {DT_F16, DT_F16}, .cancel = &i.cancel, .taps = tap_taps(tap)};
    cr_assert_eq(session_open(&s, m, &o, &err), 0, "%s", err.text);
    cr_expect_eq(session_prompt(s, 0, tokens, N, NULL, &err), -1);
    cr_expect_eq(err.code, E_INTERRUPTED);
    cr_expect_eq(session_length(s, 0), 0);
    cr_expect_eq(i.n_seen, after, "%d values were computed after the interrupt", i.n_seen - after);
    i = (struct interruption){0};
    cr_expect_eq(session_prompt(s, 0, tokens, N, NULL, &err), 0, "%s", err.text);
    o.taps = NULL;
    cr_assert_eq(session_open(&fresh, m, &o, &err), 0, "%s", err.text);
    cr_expect_eq(session_prompt(fresh, 0, tokens, N, NULL, &err), 0, "%s", err.text);
    cr_expect_eq(memcmp(session_logits(s, 0), session_logits(fresh, 0), (size_t)m->info.n_vocab * sizeof(float)), 0);
    session_close(fresh);
    session_close(s);
    tap_close(tap);
}

Test(builtin, a_prompt_is_interrupted_within_a_step)
{
    static const int threads[] = {1, 3};
    if (!model_has_builtin())
        return;
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        struct model *m;
        struct error err;
        struct model_options o = {.path = MODEL_BUILTIN, .machine.n_threads = threads[i]};
        cr_assert_eq(model_open(&m, &o, &err), 0, "%s", err.text);
        expect_stop_within_a_step(m, 1);
        expect_stop_within_a_step(m, 2);
        model_close(m);
    }
}
