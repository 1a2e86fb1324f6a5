// Tests text generated on the GPU machine with the tests' libcuda: it equals the CPU's, and it is the same from all
// logits and from the top logits, in which case only those are copied from the GPU.
#include "engine/generate.h"
#include "tests/ptx/quern_cuda.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEXT_BYTES = 2048 };

struct text_of {
    char text[TEXT_BYTES];
    size_t n;
    struct generate_result result;
    struct quern_cuda_counts before, after; // before: taken after the prompt
};

static int take(void *arg, struct str text)
{
    struct text_of *t = arg;
    cr_assert_lt(t->n + text.len, sizeof t->text);
    if (!text.len)
        quern_cuda_count(&t->before);
    else
        memcpy(t->text + t->n, text.data, text.len);
    t->n += text.len;
    return 0;
}

struct way {
    enum device device;
    bool whole; // log-probabilities are requested, which need all logits
    float temperature;
    int top_k, n;
};

static void generate_text(const char *path, const char *prompt, struct way way, struct text_of *out)
{
    struct model *m;
    struct session *s;
    struct error err = {0};
    struct token_list tokens = {0};
    struct model_options options = {.path = path, .device = way.device, .n_ctx = 256};
    *out = (struct text_of){.n = 0};
    cr_assert_eq(model_open(&m, &options, &err), 0, "%s", err.text);
    struct session_options so = {.n_ctx = 256, .n_batch = 16, .kv_type = {DT_F16, DT_F16}};
    cr_assert_eq(session_open(&s, m, &so, &err), 0, "%s", err.text);
    cr_assert_eq(tokenizer_encode(m->tokenizer, str_from(prompt), TOKENIZE_BOS | TOKENIZE_SPECIAL, &tokens, &err), 0);
    struct generate_options o = {.prompt = tokens.ids,
                                 .n_prompt = (int)tokens.n,
                                 .n_predict = way.n,
                                 .sampler = sampler_defaults(),
                                 .n_logprobs = way.whole ? 0 : -1,
                                 .emit = take,
                                 .arg = out};
    o.sampler.temperature = way.temperature;
    o.sampler.top_k = way.top_k;
    o.sampler.seed = 7;
    cr_assert_eq(generate(s, m, 0, &o, &out->result, &err), 0, "%s", err.text);
    quern_cuda_count(&out->after);
    out->text[out->n] = '\0';
    token_list_free(&tokens);
    session_close(s);
    model_close(m);
}

// Checks the bytes copied from the GPU after the prompt's logits: k candidates for each row, or all logits.
static void expect_bytes(const struct text_of *t, size_t row)
{
    uint64_t steps = (uint64_t)t->result.n_steps;
    cr_expect_eq(t->after.bytes_out - t->before.bytes_out, steps * row, "%llu bytes in %llu steps of %zu",
                 (unsigned long long)(t->after.bytes_out - t->before.bytes_out), (unsigned long long)steps, row);
    cr_expect_eq(t->after.copies_out - t->before.copies_out, steps);
    cr_expect_eq(t->after.copies_in - t->before.copies_in, steps);
    cr_expect_eq(t->after.replays - t->before.replays, steps);
}

static const char *stories(char path[512])
{
    const char *shared = getenv("QUERN_SHARED");
    snprintf(path, 512, "%s/models/stories260K.gguf", shared ? shared : "../shared");
    if (access(path, R_OK) != 0)
        cr_skip_test("no stories260K.gguf: set QUERN_SHARED");
    return path;
}

static void check_greedy(const char *path, const char *prompt, int n)
{
    static struct text_of host, card;
    generate_text(path, prompt, (struct way){DEVICE_CPU, false, 0, 40, n}, &host);
    generate_text(path, prompt, (struct way){DEVICE_GPU, false, 0, 40, n}, &card);
    cr_expect_str_eq(card.text, host.text);
    cr_expect_eq(host.result.n_generated, n, "%lld tokens", (long long)host.result.n_generated);
    expect_bytes(&card, sizeof(struct candidate));
}

Test(ptx_text, a_greedy_text_is_the_cpus_and_eight_bytes_a_token_come_back)
{
    char path[512];
    check_greedy(stories(path), "Once upon a time", 64);
}

Test(ptx_text, the_built_in_model_says_what_it_says_on_the_cpu)
{
    if (!model_has_builtin())
        cr_skip_test("this build has no built-in model");
    check_greedy(MODEL_BUILTIN, "<|im_start|>user\nTell me a story about a fox<|im_end|>\n<|im_start|>assistant\n", 24);
}

// Generates the text on each machine, from all logits and from the top logits.
static void check_draws(enum device device, const char *path, int top_k)
{
    static struct text_of whole, some;
    generate_text(path, "Once upon a time", (struct way){device, true, 1.2f, top_k, 16}, &whole);
    generate_text(path, "Once upon a time", (struct way){device, false, 1.2f, top_k, 16}, &some);
    cr_expect_str_eq(some.text, whole.text);
    cr_expect_gt(whole.n, 10);
    if (device != DEVICE_GPU)
        return;
    expect_bytes(&whole, 512 * sizeof(float));
    expect_bytes(&some, (size_t)top_k * sizeof(struct candidate));
}

Test(ptx_text, a_draw_from_the_first_logits_is_that_from_all)
{
    char path[512];
    check_draws(DEVICE_CPU, stories(path), 40);
    check_draws(DEVICE_GPU, stories(path), 40);
    check_draws(DEVICE_GPU, stories(path), 7);
}
