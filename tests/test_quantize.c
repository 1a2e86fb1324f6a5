// Tests quantization: every type against an error bound and against plain rounding, the mixes against the types that
// llama-quantize chooses, whole files with any number of threads, and errors.
#include "models/synth_model.h"
#include "engine/quantize/quantizer.h"
#include "gguf/dtype_iq.h"
#include "gguf/writer.h"
#include "kernels/cpu.h"
#include "kernels/cpu/quantize/codebook_neighbours.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t state;

static void seed(uint64_t value)
{
    printf("seed %llu\n", (unsigned long long)value);
    state = value;
}

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(state >> 11) + 0.5) * 0x1p-53;
}

static float gaussian(void)
{
    return (float)(sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()));
}

static struct machine *open_machine(int n_threads, const char *isa)
{
    struct machine *m;
    struct error err;
    struct machine_options o = {.n_threads = n_threads, .isa = isa};
    cr_assert_eq(machine_open_cpu(&m, &o, &err), 0, "%s", err.text);
    return m;
}

static struct converters converters_of(const char *isa)
{
    struct converters c;
    struct machine *m = open_machine(1, isa);
    machine_cpu_converters(m, &c);
    m->v->close(m);
    return c;
}

// --- one type at a time ---

enum { N = 16 * 256 };

// The RMSE of llama.cpp relative to the standard deviation of Gaussian weights, as measured by quern-quantizers: with
// equal columns, and weighted by an importance.
static const struct {
    enum dtype type;
    double alike, weighted;
} bounds[] = {
    {DT_Q4_0, 0.0864, 0.0779},
    {DT_Q4_1, 0.0784, 0.0641},
    {DT_Q5_0, 0.0429, 0.0386},
    {DT_Q5_1, 0.0380, 0.0310},
    {DT_Q8_0, 0.0054, 0.0054},
    {DT_Q2_K, 0.2973, 0.2382},
    {DT_Q3_K, 0.1513, 0.1351},
    {DT_Q4_K, 0.0717, 0.0651},
    {DT_Q5_K, 0.0363, 0.0331},
    {DT_Q6_K, 0.0178, 0.0163},
    {DT_IQ4_NL, 0.0764, 0.0707},
    {DT_IQ4_XS, 0.0770, 0.0715},
    {DT_TQ1_0, 0.8120, 0.8122},
    {DT_TQ2_0, 0.8120, 0.8122},
    {DT_MXFP4, 0.1151, 0.1155},
    {DT_Q1_0, 0.6100, 0.6100},
    {DT_Q2_0, 0.7200, 0.7202},
    // types that need an importance: `alike` is the unweighted RMSE of quantizing with importance
    {DT_IQ2_XXS, 0.3621, 0.2982},
    {DT_IQ2_XS, 0.3190, 0.2579},
    {DT_IQ2_S, 0.2635, 0.2269},
    {DT_IQ3_XXS, 0.2134, 0.1539},
    {DT_IQ3_S, 0.1652, 0.1198},
    {DT_IQ1_S, 0.5232, 0.4424},
    {DT_IQ1_M, 0.4931, 0.3940},
};

static double error_of(enum dtype type, const float *x, const float *w, const void *blocks)
{
    static float back[N];
    double sum = 0, all = 0;
    dtype_decode[type](blocks, back, N);
    for (int i = 0; i < N; i++) {
        double d = (double)back[i] - x[i], wi = w ? w[i] : 1;
        sum += wi * d * d;
        all += wi;
    }
    return sqrt(sum / all);
}

Test(quantize, error_on_gaussian_weights_is_no_worse_than_llama_cpps)
{
    seed(1);
    static float x[N], w[N];
    static uint8_t out[4 * N];
    struct converters c = converters_of(NULL);
    for (int i = 0; i < N; i++) {
        x[i] = gaussian();
        w[i] = expf(gaussian());
    }
    for (size_t i = 0; i < COUNT_OF(bounds); i++) {
        enum dtype type = bounds[i].type;
        cr_assert(c.quantize[type], "%s", dtype_info[type].name);
        c.quantize[type](x, NULL, out, N);
        double alike = error_of(type, x, NULL, out);
        // a sample of 4096 is off by a percent or two
        cr_expect_leq(alike, bounds[i].alike * 1.02, "%s: %g", dtype_info[type].name, alike);
        c.quantize[type](x, w, out, N);
        double weighted = error_of(type, x, w, out);
        cr_expect_leq(weighted, bounds[i].weighted * 1.03, "%s: %g by importance", dtype_info[type].name, weighted);
        cr_expect_gt(alike, bounds[i].alike / 4, "%s: %g is too good to be true", dtype_info[type].name, alike);
    }
}

// --- the points near a pattern of a grid ---

static int square_of_distance(const struct grid_neighbours *g, int pattern, const int8_t *point)
{
    int sum = 0;
    for (int i = g->width - 1; i >= 0; i--, pattern /= g->n_levels) {
        int d = (int)g->level[pattern % g->n_levels] - point[i];
        sum += d * d;
    }
    return sum;
}

// Each listed point is the one it is said to be, none is nearer than the one before it, and all others lie no nearer
// than the last.
static void expect_nearest(const struct grid_neighbours *g, const void *grid, int n_points, int pattern)
{
    const int8_t *points = grid;
    int before = 0, n_nearer = 0;
    for (int k = 0; k < NEAR; k++) {
        const int8_t *point = points + g->number[pattern][k] * g->width;
        int square = square_of_distance(g, pattern, point);
        cr_assert_geq(square, before, "pattern %d", pattern);
        before = square;
        for (int i = 0; i < g->width; i++)
            cr_assert_eq((int)g->level[g->near[pattern][k] >> 4 * i & 15], point[i], "pattern %d", pattern);
    }
    for (int k = 0; k < n_points; k++)
        n_nearer += square_of_distance(g, pattern, points + k * g->width) < before;
    cr_assert_lt(n_nearer, NEAR, "pattern %d: %d points are nearer than the last", pattern, n_nearer);
}

Test(quantize, the_points_listed_for_a_pattern_are_the_nearest)
{
    const struct {
        const struct grid_neighbours *table;
        const void *grid;
        int n_points, n_patterns;
    } grids[] = {
        {neighbours_iq2_xxs(), iq2_xxs_grid, 256, 6561}, {neighbours_iq2_xs(), iq2_xs_grid, 512, 6561},
        {neighbours_iq2_s(), iq2_s_grid, 1024, 6561},    {neighbours_iq3_xxs(), iq3_xxs_grid, 256, 4096},
        {neighbours_iq3_s(), iq3_s_grid, 512, 4096},     {neighbours_iq1(), iq1_grid, 2048, 6561},
    };
    for (size_t i = 0; i < COUNT_OF(grids); i++)
        for (int pattern = 0; pattern < grids[i].n_patterns; pattern += 37)
            expect_nearest(grids[i].table, grids[i].grid, grids[i].n_points, pattern);
}

Test(quantize, every_level_makes_the_same_bits)
{
    seed(2);
    static float x[N], w[N];
    static uint8_t first[4 * N], out[4 * N];
    for (int i = 0; i < N; i++) {
        x[i] = gaussian() * (i / 256 % 3 == 1 ? 1e-3f : 1);
        w[i] = expf(gaussian());
    }
    struct converters best = converters_of(machine_cpu_isa(0));
    for (int level = 1; machine_cpu_isa(level); level++) {
        struct converters c = converters_of(machine_cpu_isa(level));
        for (int type = 0; type < DT_COUNT; type++)
            for (int weighted = 0; best.quantize[type] && weighted < 2; weighted++) {
                size_t bytes = dtype_row_bytes((enum dtype)type, N);
                best.quantize[type](x, weighted ? w : NULL, first, N);
                c.quantize[type](x, weighted ? w : NULL, out, N);
                cr_expect_arr_eq(out, first, bytes, "%s on %s", dtype_info[type].name, machine_cpu_isa(level));
            }
    }
}

// Blocks do not depend on what stands beside them, so a row may be cut anywhere.
Test(quantize, blocks_do_not_depend_on_their_neighbours)
{
    seed(3);
    static float x[N];
    static uint8_t whole[4 * N], parts[4 * N];
    struct converters c = converters_of(NULL);
    for (int i = 0; i < N; i++) {
        x[i] = gaussian();
    }
    for (int type = 0; type < DT_COUNT; type++) {
        if (!c.quantize[type])
            continue;
        int64_t step = 3 * 256;
        c.quantize[type](x, NULL, whole, N);
        for (int64_t at = 0; at < N; at += step)
            c.quantize[type](x + at, NULL, parts + dtype_row_bytes((enum dtype)type, at), MIN(step, N - at));
        cr_expect_arr_eq(parts, whole, dtype_row_bytes((enum dtype)type, N), "%s", dtype_info[type].name);
    }
}

static void expect_kept(const struct converters *c, int type, const char *what, const float *x, double bound)
{
    uint8_t out[4 * 256];
    float back[256];
    double most = 0, top = 0;
    c->quantize[type](x, NULL, out, 256);
    dtype_decode[type](out, back, 256);
    for (int i = 0; i < 256; i++) {
        cr_assert(isfinite(back[i]), "%s, %s: element %d of %g becomes %g", dtype_info[type].name, what, i,
                  (double)x[i], (double)back[i]);
        most = fmax(most, fabs((double)back[i] - x[i]));
        top = fmax(top, fabsf(x[i]));
    }
    cr_expect_leq(most, bound * top, "%s, %s: %g off", dtype_info[type].name, what, most);
}

Test(quantize, strange_blocks_stay_numbers)
{
    struct converters c = converters_of(NULL);
    float x[256];
    seed(4);
    for (int type = 0; type < DT_COUNT; type++) {
        if (!c.quantize[type])
            continue;
        bool coarse = dtype_info[type].bytes * 8 < 4 * dtype_info[type].block; // under four bits
        memset(x, 0, sizeof x);
        expect_kept(&c, type, "zeros", x, 0);
        x[77] = 5;
        expect_kept(&c, type, "one that is not zero", x, coarse ? 1 : type == DT_MXFP4 ? 0.21 : 0.05);
        for (int i = 0; i < 256; i++)
            x[i] = 0.75f;
        expect_kept(&c, type, "all alike", x, coarse ? 1 : 0.13);
        for (int i = 0; i < 256; i++)
            x[i] = gaussian() * 1e4f;
        expect_kept(&c, type, "large", x, 1);
        for (int i = 0; i < 256; i++)
            x[i] = gaussian() * 1e30f;
        expect_kept(&c, type, "beyond a half's range", x, 1.01);
        for (int i = 0; i < 256; i++)
            x[i] = gaussian() * 1e-30f;
        expect_kept(&c, type, "beneath a half's range", x, 2);
        for (int i = 0; i < 256; i++)
            x[i] = gaussian() * 1e-41f;
        expect_kept(&c, type, "subnormal", x, 2);
    }
}

Test(quantize, importance_of_nothing_is_importance_alike)
{
    struct converters c = converters_of(NULL);
    float x[256], none[256] = {0};
    uint8_t alike[1024], weighted[1024];
    seed(5);
    for (int i = 0; i < 256; i++)
        x[i] = gaussian();
    for (int type = 0; type < DT_COUNT; type++) {
        if (!c.quantize[type] || type == DT_Q1_0 || type == DT_Q2_0)
            continue;
        c.quantize[type](x, NULL, alike, 256);
        c.quantize[type](x, none, weighted, 256);
        cr_expect_arr_eq(alike, weighted, dtype_row_bytes((enum dtype)type, 256), "%s", dtype_info[type].name);
    }
}

Test(quantize, ternary_weights_are_kept_exactly)
{
    struct converters c = converters_of(NULL);
    float x[256], back[256];
    uint8_t out[66];
    seed(6);
    for (int i = 0; i < 256; i++)
        x[i] = 0.03125f * (float)((int)(uniform() * 3) - 1);
    const enum dtype types[] = {DT_TQ1_0, DT_TQ2_0};
    for (int i = 0; i < 2; i++) {
        c.quantize[types[i]](x, NULL, out, 256);
        dtype_decode[types[i]](out, back, 256);
        cr_expect_arr_eq(back, x, sizeof x, "%s", dtype_info[types[i]].name);
    }
}

// --- the mixes ---

struct recorded {
    char name[32], arch[32];
    int layers, heads, heads_kv, experts, tied, fused, columns;
};

struct made {
    struct gguf_writer *w;
    size_t sizes[1024];
    int n;
};

static void add_tensor(struct made *m, const char *name, int64_t ne0, int64_t ne1, int64_t ne2)
{
    int64_t ne[3] = {ne0, ne1, ne2};
    int dims = ne2 > 1 ? 3 : ne1 > 1 ? 2 : 1;
    cr_assert_eq(gguf_write_tensor_info(m->w, name, dims == 1 ? DT_F32 : DT_F16, dims, ne, NULL), 0);
    m->sizes[m->n++] = (size_t)(ne0 * ne1 * ne2) * (dims == 1 ? 4 : 2);
}

static void add_layer_tensor(struct made *m, int layer, const char *name, int64_t columns, int64_t rows,
                             int64_t experts)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    add_tensor(m, full, columns, rows, experts);
}

static void add_layer(struct made *m, const struct recorded *r, int layer)
{
    static const char *const dense[] = {"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"};
    static const char *const experts[] = {"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"};
    int64_t c = r->columns;
    add_layer_tensor(m, layer, "attn_norm.weight", c, 1, 1);
    if (r->fused) {
        add_layer_tensor(m, layer, "attn_qkv.weight", c, 2, 1);
    } else {
        add_layer_tensor(m, layer, "attn_q.weight", c, 2, 1);
        add_layer_tensor(m, layer, "attn_k.weight", c, 2, 1);
        add_layer_tensor(m, layer, "attn_v.weight", c, 2, 1);
    }
    add_layer_tensor(m, layer, "attn_output.weight", c, 2, 1);
    if (r->experts)
        add_layer_tensor(m, layer, "ffn_gate_inp.weight", c, r->experts, 1);
    for (int i = r->fused; i < 3; i++)
        add_layer_tensor(m, layer, r->experts ? experts[i] : dense[i], c, 2, r->experts ? r->experts : 1);
}

static void write_model(const struct recorded *r, const char *path)
{
    static const uint8_t zeros[1 << 18];
    struct made m = {0};
    struct error err;
    cr_assert_eq(gguf_writer_open(&m.w, path, &err), 0, "%s", err.text);
    const struct {
        const char *key;
        int value;
    } keys[] = {{"block_count", r->layers},
                {"attention.head_count", r->heads},
                {"attention.head_count_kv", r->heads_kv},
                {"expert_count", r->experts}};
    gguf_write_str(m.w, "general.architecture", str_from(r->arch));
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        char key[96];
        snprintf(key, sizeof key, "%s.%s", r->arch, keys[i].key);
        gguf_write_u32(m.w, key, (uint32_t)keys[i].value);
    }
    add_tensor(&m, "token_embd.weight", r->columns, 2, 1);
    add_tensor(&m, "output_norm.weight", r->columns, 1, 1);
    if (!r->tied)
        add_tensor(&m, "output.weight", r->columns, 2, 1);
    // backwards: the choice must not go by the order of the file
    for (int layer = r->layers - 1; layer >= 0; layer--)
        add_layer(&m, r, layer);
    if (!strcmp(r->arch, "gpt2"))
        add_tensor(&m, "position_embd.weight", r->columns, 4, 1);
    for (int i = 0; i < m.n; i++)
        cr_assert_eq(gguf_write_data(m.w, zeros, m.sizes[i], &err), 0, "%s", err.text);
    cr_assert_eq(gguf_writer_close(m.w, &err), 0, "%s", err.text);
}

// The chosen type; -1 when there is no such tensor.
static int type_of(const struct gguf *g, const struct mix_choice *choices, const char *name)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        if (str_equal_z(gguf_tensor_at(g, i)->name, name))
            return (int)choices[i].type;
    return -1;
}

// One role of a recorded line: "ffn_down=q6_k*4,q4_k,q6_k".
static void check_role(const struct gguf *g, const struct mix_choice *choices, char *word, const char *where)
{
    char *types = strchr(word, '='), *save = NULL;
    cr_assert(types);
    *types++ = '\0';
    int layer = 0;
    for (char *run = strtok_r(types, ",", &save); run; run = strtok_r(NULL, ",", &save)) {
        char *times = strchr(run, '*');
        int n = times ? atoi(times + 1) : 1;
        enum dtype want;
        cr_assert_eq(dtype_from_name((struct str){run, strcspn(run, "*")}, &want), 0, "%s", run);
        for (; n > 0; n--, layer++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", layer, word);
            int got = type_of(g, choices, name);
            if (got < 0) {
                snprintf(name, sizeof name, "%s.weight", word);
                got = type_of(g, choices, name);
            }
            cr_assert_geq(got, 0, "%s: no tensor %s", where, name);
            cr_expect_eq(got, (int)want, "%s: %s is %s, not %s", where, name, dtype_info[got].name,
                         dtype_info[want].name);
        }
    }
}

static void check_line(const struct gguf *g, char *line, const struct recorded *r)
{
    struct mix_options o = {.output_type = -1, .embedding_type = -1};
    struct mix_choice choices[1024];
    struct error err;
    char *save = NULL, *mix = strtok_r(line, " ", &save), where[64];
    snprintf(where, sizeof where, "%s %s", r->name, mix);
    if (mix[strlen(mix) - 1] == '+') {
        o.has_importance = true;
        mix[strlen(mix) - 1] = '\0';
    }
    cr_assert_eq(mix_from_name(mix, &o.mix), 0, "%s", mix);
    cr_assert_eq(mix_choose(g, &o, choices, &err), 0, "%s", err.text);
    for (char *word = strtok_r(NULL, " \n", &save); word; word = strtok_r(NULL, " \n", &save))
        check_role(g, choices, word, where);
}

Test(quantize, every_tensor_gets_the_type_that_llama_quantize_gave_it)
{
    char path[512], model[] = "/tmp/quern-mixes-XXXXXX", line[4096];
    const char *tests = getenv("QUERN_TESTS");
    snprintf(path, sizeof path, "%s/data/quantize_mixes.txt", tests ? tests : "tests");
    FILE *f = fopen(path, "r");
    cr_assert(f, "%s", path);
    close(mkstemp(model));
    struct recorded r = {0};
    struct gguf *g = NULL;
    struct error err;
    int n = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        if (sscanf(line, "model %31s %31s %d %d %d %d %d %d %d", r.name, r.arch, &r.layers, &r.heads, &r.heads_kv,
                   &r.experts, &r.tied, &r.fused, &r.columns) == 9) {
            gguf_close(g);
            write_model(&r, model);
            cr_assert_eq(gguf_open(&g, model, GGUF_METADATA_ONLY, &err), 0, "%s", err.text);
            continue;
        }
        check_line(g, line, &r);
        n++;
    }
    gguf_close(g);
    unlink(model);
    fclose(f);
    cr_expect_gt(n, 400);
}

// --- whole files ---

static char folder[] = "/tmp/quern-quantize-XXXXXX", source[64], result[64];

static void make_source(void)
{
    cr_assert(mkdtemp(folder));
    snprintf(source, sizeof source, "%s/in.gguf", folder);
    snprintf(result, sizeof result, "%s/out.gguf", folder);
    struct synth_options o = {.preset = "llama-tiny", .mix = "F16", .n_vocab = 300, .seed = 5};
    struct error err;
    cr_assert_eq(synth_model_write(&o, source, &err), 0, "%s", err.text);
}

static void remove_folder(void)
{
    unlink(source);
    unlink(result);
    cr_expect_eq(rmdir(folder), 0, "something was left behind");
}

TestSuite(quantize_file, .init = make_source, .fini = remove_folder);

static struct quantize_options options_for(enum mix mix)
{
    return (struct quantize_options){.mix = {.mix = mix, .output_type = -1, .embedding_type = -1}};
}

static int run(const char *from, const char *to, const struct quantize_options *o, int n_threads, struct error *err)
{
    struct gguf *g;
    struct quantizer q = {0};
    struct machine *m = open_machine(n_threads, NULL);
    cr_assert_eq(gguf_open(&g, from, 0, err), 0, "%s", err->text);
    int status = quantizer_plan(&q, g, m, o, err);
    if (!status)
        status = quantizer_write(&q, to, err);
    quantizer_free(&q);
    gguf_close(g);
    m->v->close(m);
    return status;
}

static uint64_t hash_file(const char *path)
{
    FILE *f = fopen(path, "r");
    cr_assert(f, "%s", path);
    uint64_t h = 14695981039346656037u;
    for (int c; (c = getc(f)) != EOF;)
        h = (h ^ (uint64_t)c) * 1099511628211u;
    fclose(f);
    return h;
}

Test(quantize_file, is_the_same_on_any_number_of_threads)
{
    const enum mix mixes[] = {MIX_Q4_K_M, MIX_Q4_0, MIX_IQ4_XS, MIX_BF16};
    struct error err;
    for (size_t i = 0; i < COUNT_OF(mixes); i++) {
        struct quantize_options o = options_for(mixes[i]);
        cr_assert_eq(run(source, result, &o, 1, &err), 0, "%s", err.text);
        uint64_t want = hash_file(result);
        for (int n = 2; n <= 5; n++) {
            cr_assert_eq(run(source, result, &o, n, &err), 0, "%s", err.text);
            cr_expect_eq(hash_file(result), want, "%s on %d threads", mix_info[mixes[i]].name, n);
        }
    }
}

Test(quantize_file, keeps_the_metadata_and_says_what_it_is)
{
    struct error err;
    struct quantize_options o = options_for(MIX_Q5_K_M);
    cr_assert_eq(run(source, result, &o, 2, &err), 0, "%s", err.text);
    struct gguf *in, *out;
    cr_assert_eq(gguf_open(&in, source, GGUF_METADATA_ONLY, &err), 0);
    cr_assert_eq(gguf_open(&out, result, GGUF_METADATA_ONLY, &err), 0, "%s", err.text);
    for (size_t i = 0; i < gguf_n_kv(in); i++) {
        const struct gguf_kv *kv = gguf_kv_at(in, i);
        char key[256];
        snprintf(key, sizeof key, "%.*s", STR_ARG(kv->key));
        const struct gguf_kv *same = gguf_find(out, key);
        cr_assert(same, "%s is gone", key);
        if (strcmp(key, "general.file_type") && strcmp(key, "general.quantization_version"))
            cr_expect(same->type == kv->type && same->count == kv->count, "%s", key);
    }
    uint32_t type = 0, version = 0;
    cr_expect_eq(gguf_get_u32(out, "general.file_type", &type, &err), 1);
    cr_expect_eq(gguf_get_u32(out, "general.quantization_version", &version, &err), 1);
    cr_expect(type == 17 && version == 2);
    cr_expect_eq(gguf_n_tensors(in), gguf_n_tensors(out));
    gguf_close(in);
    gguf_close(out);
}

// --pure, overrides, and the flags for single tensors.
Test(quantize_file, the_users_choice_goes_before_the_mixs)
{
    struct error err;
    struct gguf *g;
    struct mix_choice choices[256];
    cr_assert_eq(gguf_open(&g, source, GGUF_METADATA_ONLY, &err), 0);
    struct mix_options o = {.mix = MIX_Q4_K_M, .pure = true, .output_type = -1, .embedding_type = -1};
    cr_assert_eq(mix_choose(g, &o, choices, &err), 0);
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        cr_expect(choices[i].wanted == DT_Q4_K || choices[i].wanted == DT_F32);
    const struct type_override overrides[] = {{"blk\\.0\\.ffn_(UP|gate)", DT_Q8_0}, {"ffn_", DT_Q3_K}};
    o = (struct mix_options){
        .mix = MIX_Q4_K_M, .output_type = DT_F16, .embedding_type = DT_Q2_K, .overrides = overrides, .n_overrides = 2};
    cr_assert_eq(mix_choose(g, &o, choices, &err), 0);
    cr_expect_eq(type_of(g, choices, "blk.0.ffn_up.weight"), DT_Q8_0);
    cr_expect_eq(type_of(g, choices, "blk.0.ffn_down.weight"), DT_Q3_K);
    cr_expect_eq(type_of(g, choices, "blk.1.ffn_up.weight"), DT_Q3_K);
    cr_expect_eq(type_of(g, choices, "token_embd.weight"), DT_Q2_K);
    cr_expect_eq(type_of(g, choices, "blk.0.attn_norm.weight"), DT_F32);
    o.overrides = &(struct type_override){"ffn_(", DT_Q8_0};
    o.n_overrides = 1;
    cr_expect_eq(mix_choose(g, &o, choices, &err), -1);
    cr_expect(err.code == E_USAGE && strstr(err.text, "--tensor-type ffn_("), "%s", err.text);
    gguf_close(g);
}

static void expect_refused(const char *from, const struct quantize_options *o, enum err_code code, const char *says)
{
    struct error err = {0};
    cr_expect_eq(run(from, result, o, 2, &err), -1);
    cr_expect(err.code == code && strstr(err.text, says), "%d: '%s' says not '%s'", err.code, err.text, says);
    cr_expect_eq(access(result, F_OK), -1, "a file that is not whole stands under its name");
}

Test(quantize_file, what_makes_no_sense_is_refused)
{
    struct quantize_options o = options_for(MIX_IQ2_XS);
    expect_refused(source, &o, E_USAGE, "useless without an importance matrix");
    struct error err;
    char small[80];
    snprintf(small, sizeof small, "%s.q4", source);
    o = options_for(MIX_Q4_0);
    cr_assert_eq(run(source, small, &o, 2, &err), 0, "%s", err.text);
    o = options_for(MIX_Q6_K);
    expect_refused(small, &o, E_USAGE, "--allow-requantize");
    o.allow_requantize = true;
    cr_expect_eq(run(small, result, &o, 2, &err), 0, "%s", err.text);
    unlink(small);
}

// Writes one value of a tensor of F16.
static void poison(const char *path, const char *name, uint16_t value)
{
    struct gguf *g;
    struct error err;
    cr_assert_eq(gguf_open(&g, path, 0, &err), 0);
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    FILE *f = fopen(path, "r+");
    fseek(f, (long)(t->offset + 2 * 300), SEEK_SET);
    fwrite(&value, 2, 1, f);
    fclose(f);
    gguf_close(g);
}

Test(quantize_file, a_value_that_is_no_number_is_found)
{
    poison(source, "blk.1.ffn_up.weight", 0x7c00); // infinite
    struct quantize_options o = options_for(MIX_Q4_K_M);
    expect_refused(source, &o, E_MODEL, "blk.1.ffn_up.weight: row ");
}

// A file of F32 with one large value in a matrix of 256 x 2.
static void write_large(const char *path, float value)
{
    struct gguf_writer *w;
    struct error err;
    float x[512] = {0};
    const int64_t ne[] = {256, 2};
    x[300] = value;
    cr_assert_eq(gguf_writer_open(&w, path, &err), 0, "%s", err.text);
    gguf_write_str(w, "general.architecture", STR_LIT("llama"));
    cr_assert_eq(gguf_write_tensor_info(w, "blk.0.ffn_up.weight", DT_F32, 2, ne, &err), 0, "%s", err.text);
    cr_assert_eq(gguf_write_data(w, x, sizeof x, &err), 0, "%s", err.text);
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
}

Test(quantize_file, a_value_that_the_type_cannot_hold_is_found)
{
    const struct {
        enum mix mix;
        float most;
    } cases[] = {{MIX_F16, 65504}, {MIX_Q8_0, 65504 * 127.0f}, {MIX_Q4_0, 65504 * 8.0f}, {MIX_Q6_K, 65504 * 1024.0f}};
    char large[96];
    snprintf(large, sizeof large, "%s.large", source);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct quantize_options o = options_for(cases[i].mix);
        struct error err;
        o.mix.pure = true;
        write_large(large, cases[i].most * 0.99f);
        cr_expect_eq(run(large, result, &o, 2, &err), 0, "%s: %s", mix_info[cases[i].mix].name, err.text);
        unlink(result);
        write_large(large, cases[i].most * 10);
        expect_refused(large, &o, E_MODEL, "blk.0.ffn_up.weight: row ");
    }
    unlink(large);
}

Test(quantize_file, a_full_disk_leaves_nothing)
{
    signal(SIGXFSZ, SIG_IGN);
    struct quantize_options o = options_for(MIX_Q8_0);
    struct rlimit limit = {100000, 100000};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    expect_refused(source, &o, E_IO, "File too large");
}

Test(quantize_file, an_interrupt_leaves_nothing)
{
    static const atomic_bool stop = true;
    struct quantize_options o = options_for(MIX_Q4_K_M);
    o.cancel = &stop;
    expect_refused(source, &o, E_INTERRUPTED, "interrupted");
}

Test(quantize_file, may_be_written_over_its_source)
{
    struct error err;
    struct quantize_options o = options_for(MIX_Q8_0);
    cr_assert_eq(run(source, result, &o, 2, &err), 0);
    uint64_t want = hash_file(result);
    cr_assert_eq(run(source, source, &o, 2, &err), 0, "%s", err.text);
    cr_expect_eq(hash_file(source), want);
}

Test(quantize_file, copy_changes_no_tensor)
{
    struct error err;
    struct quantize_options o = options_for(MIX_COPY);
    cr_assert_eq(run(source, result, &o, 2, &err), 0);
    struct gguf *a, *b;
    cr_assert_eq(gguf_open(&a, source, 0, &err), 0);
    cr_assert_eq(gguf_open(&b, result, 0, &err), 0, "%s", err.text);
    for (size_t i = 0; i < gguf_n_tensors(a); i++) {
        const struct gguf_tensor *x = gguf_tensor_at(a, i), *y = gguf_tensor_at(b, i);
        cr_expect(x->type == y->type && x->size == y->size && !memcmp(x->data, y->data, x->size), "tensor %zu", i);
    }
    gguf_close(a);
    gguf_close(b);
}
