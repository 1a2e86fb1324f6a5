// Embeddings: the rows of tiny encoders beside a reference in float64 (make_embed_models.py), on the CPU and on the
// reference machine; pooling; and that a text's vector is the same bits whatever else is in its step.
#include "engine/embedder.h"
#include "tests/golden.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

static const char *const names[] = {"bert",         "bert-rank",          "nomic-bert",   "nomic-bert-moe",
                                    "jina-bert-v2", "jina-bert-v2-fused", "jina-bert-v3", "modern-bert",
                                    "neo-bert",     "eurobert",           "llama-embed",  "gemma-embedding"};

struct rig {
    struct model *model;
    struct logits want; // rows of a text
};

static struct rig rig_open(const char *name, enum device device, int threads)
{
    char file[64], path[512];
    struct rig r;
    struct error err = {0};
    snprintf(file, sizeof file, "embed/%s.gguf", name);
    cr_assert(golden_path(file, path), "%s is missing", file);
    const struct model_options o = {
        .path = path, .device = device, .machine = {.n_threads = threads}, .hidden = true, .kv_type = {DT_F16, DT_F16}};
    cr_assert_eq(model_open(&r.model, &o, &err), 0, "%s", err.text);
    r.want = logits_read(path);
    return r;
}

static void rig_close(struct rig *r)
{
    model_close(r->model);
    logits_free(&r->want);
}

static struct embedder *embedder_of(struct rig *r, enum pooling pooling, int normalise, int longest, int n_batch)
{
    struct embedder *e;
    struct error err = {0};
    const struct embedder_options o = {.pooling = pooling,
                                       .normalise = normalise,
                                       .n_longest = longest,
                                       .n_batch = n_batch,
                                       .kv_type = {DT_F16, DT_F16}};
    cr_assert_eq(embedder_open(&e, r->model, &o, &err), 0, "%s", err.text);
    return e;
}

static void run(struct embedder *e, const struct embedder_text *texts, size_t n)
{
    struct error err = {0};
    cr_assert_eq(embedder_run(e, texts, n, &err), 0, "%s", err.text);
}

static void check_rows(const char *name, enum device device, double bound)
{
    struct rig r = rig_open(name, device, device == DEVICE_REF ? 0 : 2);
    const int n = r.want.n_tokens, width = r.want.n_vocab;
    struct embedder *e = embedder_of(&r, POOLING_NONE, EMBED_AS_THEY_ARE, n, 16);
    cr_assert_eq(embedder_width(e), width);
    float *rows = calloc((size_t)n * (size_t)width, sizeof *rows);
    run(e, &(struct embedder_text){r.want.ids, n, rows}, 1);
    const double error = nmse(rows, r.want.values, (size_t)n * (size_t)width);
    cr_expect_leq(error, bound, "%s: NMSE %.3g, bound %.3g", name, error, bound);
    free(rows);
    embedder_close(e);
    rig_close(&r);
}

Test(embed, rows_are_those_of_the_reference)
{
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        check_rows(names[i], DEVICE_CPU, 1e-9);
        check_rows(names[i], DEVICE_REF, 1e-9);
    }
}

// The vector of the rows that the reference has.
static void pool_by_hand(const struct logits *want, enum pooling pooling, float *out)
{
    const int n = want->n_tokens, width = want->n_vocab;
    double length = 0;
    for (int j = 0; j < width; j++) {
        double sum = 0;
        for (int i = 0; i < n; i++)
            if (pooling == POOLING_MEAN || i == (pooling == POOLING_FIRST ? 0 : n - 1))
                sum += (double)want->values[(size_t)i * (size_t)width + (size_t)j];
        out[j] = (float)sum;
        length += sum * sum;
    }
    for (int j = 0; j < width; j++)
        out[j] = (float)((double)out[j] / sqrt(length));
}

Test(embed, a_vector_is_the_mean_or_one_of_the_rows_at_length_one)
{
    static const enum pooling kinds[] = {POOLING_MEAN, POOLING_FIRST, POOLING_LAST};
    struct rig r = rig_open("nomic-bert", DEVICE_CPU, 1);
    const size_t width = (size_t)r.want.n_vocab;
    float got[64], by_hand[64];
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        struct embedder *e = embedder_of(&r, kinds[i], EMBED_UNIT, r.want.n_tokens, 64);
        run(e, &(struct embedder_text){r.want.ids, r.want.n_tokens, got}, 1);
        pool_by_hand(&r.want, kinds[i], by_hand);
        cr_expect_leq(nmse(got, by_hand, width), 1e-9, "pooling %d", (int)kinds[i]);
        embedder_close(e);
    }
    rig_close(&r);
}

// tanh(x) through the head of bert-rank, as the file has it.
Test(embed, a_reranker_gives_the_score_of_its_head)
{
    struct rig r = rig_open("bert-rank", DEVICE_CPU, 1);
    const struct arch_pooling *p = &r.model->info.pooling;
    cr_assert(p->kind == POOLING_RANK && p->cls && p->cls_out && p->cls_bias && p->cls_out_bias);
    const int width = r.want.n_vocab;
    const float *cls = p->cls->data, *out = p->cls_out->data;
    double score = (double)((const float *)p->cls_out_bias->data)[0];
    for (int i = 0; i < width; i++) {
        double y = (double)((const float *)p->cls_bias->data)[i];
        for (int j = 0; j < width; j++)
            y += (double)cls[i * width + j] * (double)r.want.values[j];
        score += (double)out[i] * tanh(y);
    }
    float got = 0;
    struct embedder *e = embedder_of(&r, POOLING_RANK, EMBED_UNIT, r.want.n_tokens, 64);
    cr_assert_eq(embedder_width(e), 1);
    run(e, &(struct embedder_text){r.want.ids, r.want.n_tokens, &got}, 1);
    cr_expect_float_eq((double)got, score, 1e-5, "%g, by hand %g", (double)got, score);
    embedder_close(e);
    rig_close(&r);
}

enum { TEXTS = 60 };

// Texts of 1 to 48 tokens from the reference's, each beginning at another place.
static void make_texts(const struct logits *want, struct embedder_text *texts, float *out, int width)
{
    for (int i = 0; i < TEXTS; i++) {
        const int n = 1 + i * 29 % want->n_tokens;
        texts[i] = (struct embedder_text){want->ids + i % (want->n_tokens - n + 1), n, out + (ptrdiff_t)i * width};
    }
}

static void check_neighbours(const char *name, int threads)
{
    struct rig r = rig_open(name, DEVICE_CPU, threads);
    const int width = r.want.n_vocab;
    float *together = calloc((size_t)TEXTS * (size_t)width, sizeof *together);
    float *alone = calloc((size_t)TEXTS * (size_t)width, sizeof *alone);
    struct embedder_text texts[TEXTS];
    struct embedder *e = embedder_of(&r, POOLING_MEAN, EMBED_UNIT, r.want.n_tokens, 512);
    make_texts(&r.want, texts, together, width);
    run(e, texts, TEXTS);
    embedder_close(e);
    e = embedder_of(&r, POOLING_MEAN, EMBED_UNIT, r.want.n_tokens, 48);
    make_texts(&r.want, texts, alone, width);
    for (int i = 0; i < TEXTS; i++)
        run(e, &texts[i], 1);
    embedder_close(e);
    for (int i = 0; i < TEXTS; i++)
        cr_expect_arr_eq(together + i * width, alone + i * width, (size_t)width * sizeof(float), "%s: text %d", name,
                         i);
    free(together);
    free(alone);
    rig_close(&r);
}

Test(embed, a_vector_has_the_same_bits_alone_and_among_others)
{
    for (size_t i = 0; i < COUNT_OF(names); i++)
        check_neighbours(names[i], 1 + (int)i % 3);
}

// A model that answers makes vectors of what its logits are computed from, and computes a long text in several steps.
Test(embed, a_decoder_computes_a_long_text_in_steps)
{
    char path[512];
    struct rig r = {0};
    struct error err = {0};
    cr_assert(golden_path("arch/tiny-qwen3.gguf", path));
    const struct model_options o = {.path = path, .device = DEVICE_CPU, .machine = {.n_threads = 2}, .hidden = true};
    cr_assert_eq(model_open(&r.model, &o, &err), 0, "%s", err.text);
    r.want = logits_read(path);
    float whole[2][256], parts[2][256];
    cr_assert_leq(r.model->info.n_out, 256);
    cr_assert_eq(r.model->info.n_out, r.model->info.n_embd);
    struct embedder_text texts[2] = {{r.want.ids, r.want.n_tokens, whole[0]}, {r.want.ids, 3, whole[1]}};
    struct embedder *e = embedder_of(&r, POOLING_MEAN, EMBED_UNIT, r.want.n_tokens, 128);
    run(e, texts, 2);
    embedder_close(e);
    e = embedder_of(&r, POOLING_MEAN, EMBED_UNIT, r.want.n_tokens, 7);
    texts[0].out = parts[0], texts[1].out = parts[1];
    run(e, texts, 2);
    embedder_close(e);
    const size_t bytes = (size_t)r.model->info.n_out * sizeof(float);
    cr_expect(!memcmp(whole[0], parts[0], bytes) && !memcmp(whole[1], parts[1], bytes));
    rig_close(&r);
}

Test(embed, an_encoder_answers_nothing)
{
    char path[512];
    struct model *m = NULL;
    struct error err = {0};
    cr_assert(golden_path("embed/bert.gguf", path));
    const struct model_options o = {.path = path, .device = DEVICE_CPU};
    cr_expect_eq(model_open(&m, &o, &err), -1);
    cr_expect(err.code == E_USAGE && strstr(err.text, "quern embed"), "%s", err.text);
}

Test(embed, a_text_longer_than_the_positions_is_refused)
{
    struct rig r = rig_open("bert", DEVICE_CPU, 1);
    struct embedder *e;
    struct error err = {0};
    const struct embedder_options o = {.pooling = POOLING_MEAN, .n_longest = 257, .n_batch = 64};
    cr_expect_eq(embedder_open(&e, r.model, &o, &err), -1);
    cr_expect(err.code == E_USAGE && strstr(err.text, "256"), "%s", err.text);
    rig_close(&r);
}
