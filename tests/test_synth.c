// Tests synthetic models: they match their metadata, open like other models, and have values of reasonable size.
#include "models/synth_fill.h"
#include "models/synth_model.h"
#include "gguf/gguf.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64], path_a[96], path_b[96];

static void make_folder(void)
{
    strcpy(folder, "/tmp/quern-synth-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path_a, sizeof path_a, "%s/a.gguf", folder);
    snprintf(path_b, sizeof path_b, "%s/b.gguf", folder);
}

static void remove_folder(void)
{
    unlink(path_a);
    unlink(path_b);
    cr_expect_eq(rmdir(folder), 0, "something was left in %s", folder);
}

TestSuite(synth, .init = make_folder, .fini = remove_folder);

static struct gguf *written(const char *path, struct synth_options o)
{
    struct error err = {.text = ""};
    struct gguf *g = NULL;
    cr_assert_eq(synth_model_write(&o, path, &err), 0, "%s %s: %s", o.preset, o.mix, err.text);
    cr_assert_eq(gguf_open(&g, path, 0, &err), 0, "%s %s: %s", o.preset, o.mix, err.text);
    return g;
}

static void expect_u32(const struct gguf *g, const char *key, uint32_t want)
{
    uint32_t got = ~want;
    cr_expect_eq(gguf_get_u32(g, key, &got, NULL), 1, "%s", key);
    cr_expect_eq(got, want, "%s is %u, not %u", key, got, want);
}

static void expect_tensor(const struct gguf *g, const char *name, enum dtype type, int64_t cols, int64_t rows)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    cr_assert_not_null(t, "%s", name);
    cr_expect_eq((int)t->type, (int)type, "%s is %s", name, dtype_info[t->type].name);
    cr_expect_eq(t->ne[0], cols, "%s", name);
    cr_expect_eq(t->ne[1], rows, "%s", name);
    cr_expect_eq(t->size, (uint64_t)rows * dtype_row_bytes(type, cols), "%s", name);
}

// Of a tensor's numbers: their root mean square, and their mean; all of them finite.
static double tensor_rms(const struct gguf_tensor *t, double *mean)
{
    int64_t n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    float *x = malloc((size_t)n * sizeof(float));
    double sum = 0, plain = 0;
    dtype_decode[t->type](t->data, x, n);
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i] * x[i];
        plain += x[i];
    }
    free(x);
    *mean = plain / (double)n;
    cr_expect(isfinite(sum), "%.*s", STR_ARG(t->name));
    return sqrt(sum / (double)n);
}

static bool ends_with(struct str s, const char *tail)
{
    return s.len >= strlen(tail) && memcmp(s.data + s.len - strlen(tail), tail, strlen(tail)) == 0;
}

Test(synth, llama_tiny_q4_k_m_has_the_keys_types_and_sizes_of_its_kind)
{
    struct gguf *g = written(path_a, (struct synth_options){.preset = "llama-tiny", .mix = "Q4_K_M", .seed = 3});
    struct str s;
    cr_assert_eq(gguf_get_str(g, "general.architecture", &s, NULL), 1);
    cr_expect(str_equal_z(s, "llama"));
    cr_assert_eq(gguf_get_str(g, "general.name", &s, NULL), 1);
    cr_expect_not_null(memmem(s.data, s.len, "random noise", 12));
    expect_u32(g, "llama.block_count", 4);
    expect_u32(g, "llama.context_length", 2048);
    expect_u32(g, "llama.embedding_length", 256);
    expect_u32(g, "llama.feed_forward_length", 768);
    expect_u32(g, "llama.attention.head_count", 8);
    expect_u32(g, "llama.attention.head_count_kv", 4);
    expect_u32(g, "llama.attention.key_length", 32);
    expect_u32(g, "llama.rope.dimension_count", 32);
    expect_u32(g, "llama.vocab_size", 2048);
    cr_expect_eq(gguf_n_tensors(g), (size_t)(3 + 4 * 9));
    expect_tensor(g, "token_embd.weight", DT_Q4_K, 256, 2048);
    expect_tensor(g, "output.weight", DT_Q6_K, 256, 2048);
    expect_tensor(g, "output_norm.weight", DT_F32, 256, 1);
    expect_tensor(g, "blk.0.attn_q.weight", DT_Q4_K, 256, 256);
    expect_tensor(g, "blk.0.attn_k.weight", DT_Q4_K, 256, 128);
    expect_tensor(g, "blk.0.ffn_down.weight", DT_Q4_K, 768, 256);
    // of four layers: none in the first eighth, the last in the last, and the third as one of every three between
    static const enum dtype down[4] = {DT_Q4_K, DT_Q4_K, DT_Q6_K, DT_Q6_K};
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", i);
        expect_tensor(g, name, down[i], 768, 256);
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", i);
        expect_tensor(g, name, down[i], 256, 128);
    }
    gguf_close(g);
}

// By the sum over n products, a weight's size is 1/sqrt(n); norms are about 1. Scales that are bytes can only be met
// by a ratio: a power of two by sqrt(2), an e4m3 by 1/16.
static void check_sizes(const struct gguf *g, const char *what)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        double mean, rms = tensor_rms(t, &mean), want = 1 / sqrt((double)t->ne[0]);
        bool norm = ends_with(t->name, "norm.weight"), one_sided = norm || ends_with(t->name, ".ssm_a");
        if (norm)
            want = 1;
        else if (str_equal_z(t->name, "token_embd.weight"))
            want = gguf_find_tensor(g, "output.weight") ? 1 : want / 2;
        else if (ends_with(t->name, ".ssm_a"))
            want = 1;
        else if (ends_with(t->name, ".bias") || ends_with(t->name, "attn_sinks.weight"))
            want = 0.1;
        double slack = t->type == DT_MXFP4 ? 1.5 : 1.1 + 2 / sqrt((double)(t->ne[0] * t->ne[1]));
        cr_expect(rms < want * slack && rms > want / slack, "%s, %.*s (%s): rms %g, wanted %g", what, STR_ARG(t->name),
                  dtype_info[t->type].name, rms, want);
        // centred: five standard errors, where the elements of a block lean to one side by 0.41 rms at most (Q2_0)
        double n = (double)(t->ne[0] * t->ne[1]);
        double chance = 5 / sqrt(n) + 5 * 0.41 / sqrt(n / dtype_info[t->type].block);
        cr_expect(one_sided || fabs(mean) < rms * chance, "%s, %.*s (%s): mean %g, rms %g", what, STR_ARG(t->name),
                  dtype_info[t->type].name, mean, rms);
    }
}

Test(synth, every_weight_type_gives_numbers_of_sane_size)
{
    for (int type = 0; type < DT_COUNT; type++) {
        struct synth_options o = {.preset = "llama-tiny", .mix = dtype_info[type].name, .n_vocab = 300, .seed = 1};
        if (dtype_info[type].kind == DTYPE_KIND_INT) {
            struct error err;
            cr_expect_eq(synth_model_write(&o, path_a, &err), -1);
            cr_expect_eq(err.code, E_USAGE);
            continue;
        }
        struct gguf *g = written(path_a, o);
        cr_expect_eq((int)gguf_find_tensor(g, "blk.0.attn_q.weight")->type, type, "%s", o.mix);
        check_sizes(g, o.mix);
        gguf_close(g);
    }
}

Test(synth, every_small_preset_opens_and_has_numbers_of_sane_size)
{
    for (size_t i = 0; synth_preset_name(i); i++) {
        const char *name = synth_preset_name(i);
        if (!strstr(name, "tiny") && strcmp(name, "llama-15m") != 0)
            continue;
        struct gguf *g =
            written(path_a, (struct synth_options){.preset = name, .mix = "q5_k_m", .n_vocab = 400, .seed = 1});
        check_sizes(g, name);
        gguf_close(g);
    }
}

Test(synth, rows_that_a_block_does_not_divide_fall_back_to_q8_0)
{
    struct gguf *g =
        written(path_a, (struct synth_options){.preset = "llama-15m", .mix = "Q4_K", .n_vocab = 300, .seed = 1});
    expect_tensor(g, "blk.0.attn_q.weight", DT_Q8_0, 288, 288);
    expect_tensor(g, "blk.0.ffn_down.weight", DT_Q4_K, 768, 288);
    expect_tensor(g, "output.weight", DT_Q8_0, 288, 300);
    gguf_close(g);
}

Test(synth, families_have_their_own_tensors_and_keys)
{
    struct gguf *g = written(path_a, (struct synth_options){.preset = "llama-moe-tiny", .mix = "Q4_K_M", .seed = 1});
    expect_u32(g, "llama.expert_count", 8);
    expect_u32(g, "llama.expert_used_count", 2);
    expect_tensor(g, "blk.3.ffn_gate_inp.weight", DT_F32, 256, 8);
    const struct gguf_tensor *t = gguf_find_tensor(g, "blk.0.ffn_down_exps.weight");
    cr_assert_not_null(t);
    cr_expect(t->ne[0] == 512 && t->ne[1] == 256 && t->ne[2] == 8 && t->n_dims == 3);
    cr_expect_null(gguf_find_tensor(g, "blk.0.ffn_gate.weight"));
    gguf_close(g);

    g = written(path_a, (struct synth_options){.preset = "gpt-oss-tiny", .mix = "MXFP4", .seed = 1});
    expect_u32(g, "gpt-oss.attention.sliding_window", 128);
    expect_tensor(g, "blk.0.ffn_gate_exps.bias", DT_F32, 256, 8);
    expect_tensor(g, "blk.3.attn_sinks.weight", DT_F32, 8, 1);
    cr_expect_null(gguf_find_tensor(g, "blk.0.ffn_norm.weight"));
    gguf_close(g);

    g = written(path_a, (struct synth_options){.preset = "qwen35-moe-tiny", .mix = "Q4_K_M", .seed = 1});
    expect_u32(g, "qwen35moe.expert_shared_feed_forward_length", 256);
    expect_tensor(g, "blk.0.ffn_gate_inp_shexp.weight", DT_F32, 256, 1);
    expect_tensor(g, "blk.3.ffn_down_shexp.weight", DT_Q6_K, 256, 256);
    gguf_close(g);

    g = written(path_a, (struct synth_options){.preset = "gemma3-tiny", .mix = "Q4_K_M", .seed = 1});
    expect_u32(g, "gemma3.attention.sliding_window", 128);
    expect_tensor(g, "blk.5.attn_q_norm.weight", DT_F32, 64, 1);
    gguf_close(g);

    g = written(path_a, (struct synth_options){.preset = "gemma2-tiny", .mix = "Q4_K_M", .seed = 1});
    expect_u32(g, "gemma2.attention.sliding_window", 128);
    expect_tensor(g, "blk.1.post_ffw_norm.weight", DT_F32, 256, 1);
    expect_tensor(g, "token_embd.weight", DT_Q6_K, 256, 2048); // tied: it is the output
    cr_expect_null(gguf_find_tensor(g, "output.weight"));
    gguf_close(g);

    g = written(path_a, (struct synth_options){.preset = "phi3-tiny", .mix = "F16", .seed = 1});
    expect_tensor(g, "blk.0.attn_qkv.weight", DT_F16, 256, (8 + 2 * 4) * 32);
    expect_tensor(g, "blk.0.ffn_up.weight", DT_F16, 256, 2 * 768);
    gguf_close(g);

    g = written(path_a, (struct synth_options){.preset = "gpt2-tiny", .mix = "Q8_0", .seed = 1});
    expect_tensor(g, "position_embd.weight", DT_F32, 256, 1024);
    expect_tensor(g, "blk.2.attn_qkv.bias", DT_F32, 768, 1);
    cr_expect_null(gguf_find(g, "gpt2.rope.freq_base"));
    gguf_close(g);
}

static char *whole_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size);
    cr_assert_eq(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

static bool same_model(struct synth_options a, struct synth_options b)
{
    size_t size_a, size_b;
    gguf_close(written(path_a, a));
    gguf_close(written(path_b, b));
    char *data_a = whole_file(path_a, &size_a), *data_b = whole_file(path_b, &size_b);
    bool same = size_a == size_b && memcmp(data_a, data_b, size_a) == 0;
    free(data_a);
    free(data_b);
    return same;
}

Test(synth, the_seed_decides_the_bytes)
{
    struct synth_options one = {.preset = "qwen3-tiny", .mix = "Q4_0", .seed = 1}, two = one;
    cr_expect(same_model(one, one));
    two.seed = 2;
    cr_expect_not(same_model(one, two));
}

static const struct gguf_kv *array_of(const struct gguf *g, const char *key, enum gguf_type element, uint64_t count)
{
    const struct gguf_kv *kv = NULL;
    cr_assert_eq(gguf_get_array(g, key, element, &kv, NULL), 1, "%s", key);
    cr_assert_eq(kv->count, count, "%s", key);
    return kv;
}

static int compare_str(const void *a, const void *b)
{
    const struct str *x = a, *y = b;
    int order = memcmp(x->data, y->data, MIN(x->len, y->len));
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

Test(synth, made_up_tokens_are_distinct_and_of_the_right_type)
{
    enum { N = 9000 };
    struct gguf *g =
        written(path_a, (struct synth_options){.preset = "llama-tiny", .mix = "Q8_0", .n_vocab = N, .seed = 7});
    const struct gguf_kv *tokens = array_of(g, "tokenizer.ggml.tokens", GGUF_STRING, N);
    const struct gguf_kv *types = array_of(g, "tokenizer.ggml.token_type", GGUF_I32, N);
    expect_u32(g, "tokenizer.ggml.bos_token_id", 1);
    expect_u32(g, "tokenizer.ggml.eos_token_id", 2);
    cr_expect(str_equal_z(tokens->strings[0], "<unk>") && str_equal_z(tokens->strings[2], "</s>"));
    cr_expect(str_equal_z(tokens->strings[3], "<0x00>") && str_equal_z(tokens->strings[258], "<0xFF>"));
    for (uint64_t i = 0; i < N; i++) {
        int64_t want = i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1;
        cr_expect_eq(gguf_array_i64(types, i), want, "token %d", (int)i);
        cr_expect(utf8_valid(tokens->strings[i]));
    }
    struct str *sorted = malloc(N * sizeof *sorted);
    memcpy(sorted, tokens->strings, N * sizeof *sorted);
    qsort(sorted, N, sizeof *sorted, compare_str);
    for (int i = 1; i < N; i++)
        cr_expect_neq(compare_str(&sorted[i - 1], &sorted[i]), 0, "%.*s occurs twice", STR_ARG(sorted[i]));
    free(sorted);
    gguf_close(g);
}

// A token that no merge of two others makes would never be used.
Test(synth, made_up_tokens_can_be_merged_from_earlier_ones)
{
    enum { N = 7200 };
    struct gguf *g =
        written(path_a, (struct synth_options){.preset = "llama-tiny", .mix = "Q8_0", .n_vocab = N, .seed = 7});
    const struct gguf_kv *tokens = array_of(g, "tokenizer.ggml.tokens", GGUF_STRING, N);
    const struct gguf_kv *scores = array_of(g, "tokenizer.ggml.scores", GGUF_F32, N);
    struct str *earlier = malloc(N * sizeof *earlier);
    int single = 0;
    for (uint64_t i = 259; i < N; i++) {
        struct str s = tokens->strings[i];
        bool made = utf8_decode(s.data, s.len, NULL) == (int)s.len;
        single += made;
        memcpy(earlier, tokens->strings + 259, (i - 259) * sizeof *earlier);
        if (i % 50 != 0 && i > 500) // the large part is sampled
            continue;
        qsort(earlier, i - 259, sizeof *earlier, compare_str);
        for (size_t cut = 1; cut < s.len && !made; cut++) {
            struct str head = {s.data, cut}, tail = {s.data + cut, s.len - cut};
            made = bsearch(&head, earlier, i - 259, sizeof *earlier, compare_str) &&
                   bsearch(&tail, earlier, i - 259, sizeof *earlier, compare_str);
        }
        cr_expect(made, "%.*s", STR_ARG(s));
        cr_expect(i == 259 || gguf_array_f32(scores, i) < gguf_array_f32(scores, i - 1));
    }
    cr_expect_eq(single, 1 + 16 + 5 + 4);
    free(earlier);
    gguf_close(g);
}

Test(synth, a_vocabulary_is_copied_as_it_stands)
{
    gguf_close(
        written(path_a, (struct synth_options){.preset = "llama-tiny", .mix = "Q8_0", .n_vocab = 777, .seed = 7}));
    struct gguf *b =
        written(path_b, (struct synth_options){.preset = "qwen3-tiny", .mix = "F16", .vocab = path_a, .seed = 1});
    struct gguf *a;
    cr_assert_eq(gguf_open(&a, path_a, GGUF_METADATA_ONLY, NULL), 0);
    expect_u32(b, "qwen3.vocab_size", 777);
    expect_tensor(b, "token_embd.weight", DT_F16, 256, 777);
    int copied = 0;
    for (size_t i = 0; i < gguf_n_kv(a); i++) {
        const struct gguf_kv *x = gguf_kv_at(a, i);
        char key[128];
        snprintf(key, sizeof key, "%.*s", STR_ARG(x->key));
        if (strncmp(key, "tokenizer.", 10) != 0)
            continue;
        const struct gguf_kv *y = gguf_find(b, key);
        cr_assert_not_null(y, "%s", key);
        cr_expect(x->type == y->type && x->element == y->element && x->count == y->count, "%s", key);
        copied++;
    }
    cr_expect_eq(copied, 11);
    cr_expect(str_equal(array_of(a, "tokenizer.ggml.tokens", GGUF_STRING, 777)->strings[776],
                        array_of(b, "tokenizer.ggml.tokens", GGUF_STRING, 777)->strings[776]));
    gguf_close(a);
    gguf_close(b);
}

Test(synth, bad_wishes_are_refused_and_leave_no_file)
{
    const struct synth_options wishes[] = {
        {.preset = "llama-huge", .mix = "F32"},
        {.preset = "llama-tiny", .mix = "Q9_K"},
        {.preset = "llama-tiny", .mix = "Q6_K_M"},
        {.preset = "llama-tiny", .mix = "I32"},
        {.preset = "llama-tiny", .mix = ""},
        {.preset = "llama-tiny", .mix = "F32", .n_vocab = 299},
        {.preset = "llama-tiny", .mix = "F32", .n_vocab = 500001},
        {.preset = "llama-tiny", .mix = "F32", .n_vocab = 400, .vocab = "x.gguf"},
    };
    for (size_t i = 0; i < COUNT_OF(wishes); i++) {
        struct error err = {.code = E_OK};
        cr_expect_eq(synth_model_write(&wishes[i], path_a, &err), -1, "wish %zu", i);
        cr_expect_eq(err.code, E_USAGE, "wish %zu: %s", i, err.text);
        cr_expect_neq(access(path_a, F_OK), 0);
    }
    struct error err = {.code = E_OK};
    struct synth_options o = {.preset = "llama-tiny", .mix = "F32", .vocab = path_b};
    cr_expect_eq(synth_model_write(&o, path_a, &err), -1);
    cr_expect_eq(err.code, E_IO, "%s", err.text);
}

Test(synth_fill, floats_have_the_wanted_mean_and_spread)
{
    enum { N = 200000 };
    static float x[N];
    struct fill f = fill_f32(1, 0.1);
    struct rng r = rng_seed(5);
    double sum = 0, square = 0;
    int beyond = 0;
    fill_blocks(&f, &r, x, N);
    for (int i = 0; i < N; i++) {
        double z = (x[i] - 1) / 0.1;
        sum += z;
        square += z * z;
        beyond += fabs(z) > 2;
    }
    cr_expect_lt(fabs(sum / N), 5 / sqrt(N));                          // five standard errors
    cr_expect_lt(fabs(square / N - 1), 5 * sqrt(2.0 / N));             // less, the tails being short
    cr_expect(beyond > 0.035 * N && beyond < 0.055 * N, "%d", beyond); // 4.6% of a normal distribution
}
