// Embeddings on the GPU machine: the rows of tiny encoders beside those of the reference, the same bits alone and among
// other texts, and kernels that are measured before they serve.
#include "engine/embedder.h"
#include "tests/golden.h"
#include "tests/ptx/quern_cuda.h"

#include <criterion/criterion.h>

// The everyday suite has those that differ in their attention; the others are the same kernels.
static const char *const names[] = {"bert", "nomic-bert-moe", "modern-bert", "gemma-embedding", "jina-bert-v2"};
enum { CARD_BYTES = 512 << 20, TEXTS = 9 };

static void make_card(void)
{
    quern_cuda_set(&(struct quern_cuda_setup){1, 9, 0, 13000, CARD_BYTES});
}

TestSuite(ptx_embed, .init = make_card, .timeout = 300);

static struct model *open_model(const char *name, double tune_seconds, struct logits *want)
{
    char file[64], path[512];
    struct model *m;
    struct error err = {0};
    snprintf(file, sizeof file, "embed/%s.gguf", name);
    cr_assert(golden_path(file, path), "%s is missing", file);
    const struct model_options o = {.path = path, .device = DEVICE_GPU, .tune_seconds = tune_seconds, .hidden = true};
    cr_assert_eq(model_open(&m, &o, &err), 0, "%s", err.text);
    *want = logits_read(path);
    return m;
}

static void run(const struct model *m, int n_batch, const struct embedder_text *texts, size_t n)
{
    struct embedder *e;
    struct error err = {0};
    const struct embedder_options o = {
        .pooling = POOLING_NONE, .normalise = EMBED_AS_THEY_ARE, .n_longest = 48, .n_batch = n_batch};
    cr_assert_eq(embedder_open(&e, m, &o, &err), 0, "%s", err.text);
    cr_assert_eq(embedder_run(e, texts, n, &err), 0, "%s", err.text);
    embedder_close(e);
}

// Parts of the reference's text, of all of it and of one token, in the order in which they come.
static size_t make_texts(const struct logits *want, struct embedder_text texts[TEXTS], float *out)
{
    size_t rows = 0;
    for (int i = 0; i < TEXTS; i++) {
        const int n = i == 0 ? want->n_tokens : i == 1 ? 1 : 1 + i * 7 % 20;
        texts[i] = (struct embedder_text){want->ids + (i ? i : 0), n, out + rows * (size_t)want->n_vocab};
        rows += (size_t)n;
    }
    return rows;
}

static void check(const char *name, double tune_seconds)
{
    enum { ROWS = TEXTS * 48, WIDTH_MAX = 64 };
    static float together[ROWS * WIDTH_MAX], alone[ROWS * WIDTH_MAX];
    struct embedder_text texts[TEXTS];
    struct logits want;
    struct model *m = open_model(name, tune_seconds, &want);
    cr_assert_leq(want.n_vocab, WIDTH_MAX);
    size_t rows = make_texts(&want, texts, together);
    run(m, 160, texts, TEXTS);
    const double error = nmse(together, want.values, (size_t)(want.n_tokens * want.n_vocab));
    cr_expect_leq(error, 1e-9, "%s: NMSE %.3g", name, error);
    make_texts(&want, texts, alone);
    for (size_t i = 0; i < TEXTS; i++)
        run(m, 48, &texts[i], 1);
    cr_expect_arr_eq(together, alone, rows * (size_t)want.n_vocab * sizeof(float), "%s", name);
    logits_free(&want);
    model_close(m);
}

Test(ptx_embed, encoders_agree_with_the_reference_alone_and_among_others)
{
    for (size_t i = 0; i < COUNT_OF(names); i++)
        check(names[i], 0);
}

// Products with biases are measured on memory of which they read one part and write another.
Test(ptx_embed, kernels_with_biases_can_be_measured)
{
    check("bert", 1e9);
}
