// Tests what the rounding of activations costs a model with the outliers of a real one (the bound N15): the divergence
// of the default settings from `exact`, for every type of weights.
//
// Random weights have no outliers, and the built-in model has few, so outliers are put in by an exact change of basis: a
// channel that one matrix writes is multiplied by a power of two, and the columns that read it are divided by it. In
// float32 both models compute the same logits, bit for bit. The channels lie between up and down, between the values
// and the attention's output, and behind both norms of each layer.
//
// The GPU machine runs on the interpreter behind the tests' libcuda.so.1, which is slow: it gets one short window, and
// is compared with the CPU's exact logits.
#include "engine/measure/divergence.h"
#include "engine/model.h"
#include "engine/session.h"
#include "gguf/writer.h"
#include "kernels/cpu.h"
#include "models/builtin/builtin.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    N_TOKENS = 256,      // tokens of each window
    N_WINDOWS = 4,       // of random tokens
    GPU_TOKENS = 48,     // tokens of the only window on the GPU
    OUTLIER = 8,         // what an outlier is multiplied by
    OUTLIER_ONE_IN = 96, // channels, of which one is an outlier
    SEED = 20261128,
    TENSORS_MAX = 256,
    NAME_SIZE = 64,
};

// Returns the mean divergence, in nats, that a type of weights may have. With a scale for each 32 activations it is 0.009
// to 0.017, and 0.027 with Q1_0, of which little of the model is left. With a scale for each 256 it would be 0.041 to
// 0.065, and 0.106 with Q1_0.
static double bound_of(enum dtype type)
{
    return type == DT_Q1_0 ? 0.05 : 0.03;
}

static uint64_t state;

static uint32_t next(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

// --- the model with outliers ---

struct matrix {
    const struct gguf_tensor *t;
    char name[NAME_SIZE];
    float *x; // [rows][columns]
    int64_t columns, rows;
};

struct outlier_model {
    struct gguf *file;
    struct matrix all[TENSORS_MAX];
    size_t n;
};

static void read_matrices(struct outlier_model *m)
{
    struct error err;
    cr_assert_eq(gguf_open_view(&m->file, "built-in", builtin_image(), 0, &err), 0, "%s", err.text);
    m->n = gguf_n_tensors(m->file);
    cr_assert_leq(m->n, TENSORS_MAX);
    for (size_t i = 0; i < m->n; i++) {
        struct matrix *a = &m->all[i];
        a->t = gguf_tensor_at(m->file, i);
        snprintf(a->name, sizeof a->name, "%.*s", STR_ARG(a->t->name));
        a->columns = a->t->ne[0];
        a->rows = a->t->ne[1];
        a->x = malloc((size_t)(a->columns * a->rows) * sizeof *a->x);
        cr_assert(a->x);
        dtype_decode[a->t->type](a->t->data, a->x, a->columns * a->rows);
    }
}

static struct matrix *find(struct outlier_model *m, int layer, const char *role)
{
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, role);
    for (size_t i = 0; i < m->n; i++)
        if (!strcmp(m->all[i].name, name))
            return &m->all[i];
    cr_assert_fail("the built-in model has no %s", name);
    abort();
}

static void choose_outliers(float *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        s[i] = next() % OUTLIER_ONE_IN ? 1 : OUTLIER;
}

static void multiply_rows(struct matrix *a, const float *s)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->columns; c++)
            a->x[r * a->columns + c] *= s[r];
}

static void divide_columns(struct matrix *a, const float *s)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->columns; c++)
            a->x[r * a->columns + c] /= s[c];
}

// A gain is a single row, whose columns are the channels.
static void multiply_gain(struct matrix *gain, const float *s)
{
    for (int64_t c = 0; c < gain->columns; c++)
        gain->x[c] *= s[c];
}

// Query heads share the channels of the KV head that they belong to.
static void spread_to_heads(const float *s, int64_t n_kv, int64_t group, int64_t dim, float *out)
{
    for (int64_t h = 0; h < n_kv * group; h++)
        for (int64_t i = 0; i < dim; i++)
            out[h * dim + i] = s[h / group * dim + i];
}

static void put_outliers(struct outlier_model *m, int layer, int64_t dim)
{
    struct matrix *up = find(m, layer, "ffn_up"), *down = find(m, layer, "ffn_down");
    struct matrix *v = find(m, layer, "attn_v"), *out = find(m, layer, "attn_output");
    float *s = malloc((size_t)up->rows * sizeof *s), *of_heads = malloc((size_t)out->columns * sizeof *of_heads);
    cr_assert(s && of_heads && up->rows >= up->columns);
    choose_outliers(s, up->rows);
    multiply_rows(up, s);
    divide_columns(down, s);
    choose_outliers(s, v->rows);
    multiply_rows(v, s);
    spread_to_heads(s, v->rows / dim, out->columns / v->rows, dim, of_heads);
    divide_columns(out, of_heads);
    choose_outliers(s, up->columns);
    multiply_gain(find(m, layer, "attn_norm"), s);
    divide_columns(find(m, layer, "attn_q"), s);
    divide_columns(find(m, layer, "attn_k"), s);
    divide_columns(v, s);
    choose_outliers(s, up->columns);
    multiply_gain(find(m, layer, "ffn_norm"), s);
    divide_columns(find(m, layer, "ffn_gate"), s);
    divide_columns(up, s);
    free(s);
    free(of_heads);
}

static void model_with_outliers(struct outlier_model *m)
{
    uint32_t layers = 0, heads = 0;
    struct error err;
    read_matrices(m);
    cr_assert_eq(gguf_get_u32(m->file, "llama.block_count", &layers, &err), 1);
    cr_assert_eq(gguf_get_u32(m->file, "llama.attention.head_count", &heads, &err), 1);
    state = SEED;
    for (uint32_t i = 0; i < layers; i++)
        put_outliers(m, (int)i, find(m, 0, "attn_q")->rows / heads);
}

static void free_model(struct outlier_model *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->all[i].x);
    gguf_close(m->file);
}

// --- files of it ---

// Matrices of two dimensions get the type, but for those whose rows do not fit it.
static enum dtype type_in_file(const struct matrix *a, enum dtype type)
{
    return a->t->n_dims < 2 || a->columns % dtype_info[type].block ? DT_F32 : type;
}

static void write_matrix(struct gguf_writer *w, const struct matrix *a, enum dtype type, const struct converters *k)
{
    struct error err;
    size_t size = (size_t)a->rows * dtype_row_bytes(type, a->columns);
    uint8_t *blocks = malloc(size);
    cr_assert(blocks);
    if (type == DT_F32)
        memcpy(blocks, a->x, size);
    else if (k->encode[type])
        k->encode[type](a->x, blocks, a->rows * a->columns);
    else
        k->quantize[type](a->x, NULL, blocks, a->rows * a->columns);
    cr_assert_eq(gguf_write_data(w, blocks, size, &err), 0, "%s", err.text);
    free(blocks);
}

static void write_model(const struct outlier_model *m, enum dtype type, const struct converters *k, const char *path)
{
    struct gguf_writer *w;
    struct error err;
    cr_assert_eq(gguf_writer_open(&w, path, &err), 0, "%s", err.text);
    for (size_t i = 0; i < gguf_n_kv(m->file); i++)
        gguf_write_kv(w, gguf_kv_at(m->file, i));
    for (size_t i = 0; i < m->n; i++) {
        const struct matrix *a = &m->all[i];
        cr_assert_eq(gguf_write_tensor_info(w, a->name, type_in_file(a, type), a->t->n_dims, a->t->ne, &err), 0);
    }
    for (size_t i = 0; i < m->n; i++)
        write_matrix(w, &m->all[i], type_in_file(&m->all[i], type), k);
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
}

// --- what it computes ---

// How a model is run.
struct way {
    enum device device;
    bool exact;
    int n_windows, n_tokens; // of random tokens
};

// Returns the logits (window, token, n_vocab) of the windows, which the caller frees.
static float *logits_of(const char *path, struct way way, int *n_vocab)
{
    struct model *m;
    struct session *s;
    struct error err;
    struct model_options o = {.path = path, .device = way.device, .machine.exact = way.exact};
    struct session_options so = {.n_ctx = way.n_tokens, .n_batch = way.n_tokens, .n_outputs = way.n_tokens};
    cr_assert_eq(model_open(&m, &o, &err), 0, "%s", err.text);
    cr_assert_eq(session_open(&s, m, &so, &err), 0, "%s", err.text);
    size_t n = (size_t)m->info.n_vocab, of_window = (size_t)way.n_tokens * n;
    float *all = malloc((size_t)way.n_windows * of_window * sizeof *all);
    struct session_row rows[N_TOKENS];
    cr_assert(all);
    state = SEED;
    for (int w = 0; w < way.n_windows; w++) {
        session_truncate(s, 0, 0);
        for (int i = 0; i < way.n_tokens; i++)
            rows[i] = (struct session_row){.seq = 0, .token = (int32_t)(next() % n), .logits = true};
        cr_assert_eq(session_step(s, rows, way.n_tokens, &err), 0, "%s", err.text);
        for (int i = 0; i < way.n_tokens; i++)
            memcpy(all + (size_t)w * of_window + (size_t)i * n, session_logits(s, i), n * sizeof *all);
    }
    session_close(s);
    model_close(m);
    *n_vocab = (int)n;
    return all;
}

// The divergence of a device's default settings from the CPU's exact logits.
static double divergence_of_default(const char *path, struct way way)
{
    int n_vocab;
    struct way on_cpu = way;
    on_cpu.device = DEVICE_CPU, on_cpu.exact = true;
    float *exact = logits_of(path, on_cpu, &n_vocab), *rounded = logits_of(path, way, &n_vocab);
    struct divergence d = {0};
    struct error err;
    for (int i = 0; i < way.n_windows * way.n_tokens; i++) {
        size_t at = (size_t)i * (size_t)n_vocab;
        cr_assert_eq(divergence_add(&d, rounded + at, exact + at, n_vocab, 0, &err), 0, "%s", err.text);
    }
    double kld = divergence_kld(&d).value;
    divergence_free(&d);
    free(exact);
    free(rounded);
    return kld;
}

static char path[64];

static void set_up(void)
{
    if (!builtin_image().data)
        cr_skip_test("skipped: this build has no built-in model");
    snprintf(path, sizeof path, "/tmp/quern-precision-%d.gguf", (int)getpid());
}

static void tear_down(void)
{
    unlink(path);
}

TestSuite(precision, .init = set_up, .fini = tear_down, .timeout = 300);

Test(precision, outliers_do_not_change_the_exact_model)
{
    struct outlier_model m = {0}, plain = {0};
    struct error err;
    struct machine *machine;
    struct converters k;
    int n_vocab;
    cr_assert_eq(machine_open_cpu(&machine, &(struct machine_options){0}, &err), 0, "%s", err.text);
    machine_cpu_converters(machine, &k);
    read_matrices(&plain);
    write_model(&plain, DT_F32, &k, path);
    const struct way exact = {DEVICE_CPU, true, N_WINDOWS, N_TOKENS};
    float *want = logits_of(path, exact, &n_vocab);
    model_with_outliers(&m);
    write_model(&m, DT_F32, &k, path);
    float *got = logits_of(path, exact, &n_vocab);
    cr_expect_arr_eq(got, want, (size_t)n_vocab * N_WINDOWS * N_TOKENS * sizeof *want);
    free(want);
    free(got);
    free_model(&plain);
    free_model(&m);
    machine->v->close(machine);
}

// Holds every type of weights that can be written, and that `takes` accepts, to its bound.
static void check_types(struct way way, bool takes(enum dtype type))
{
    struct outlier_model m = {0};
    struct error err;
    struct machine *machine;
    struct converters k;
    cr_assert_eq(machine_open_cpu(&machine, &(struct machine_options){0}, &err), 0, "%s", err.text);
    machine_cpu_converters(machine, &k);
    model_with_outliers(&m);
    for (int type = 0; type < DT_COUNT; type++) {
        if (dtype_info[type].kind != DTYPE_KIND_QUANT || (!k.quantize[type] && !k.encode[type]) ||
            !takes((enum dtype)type))
            continue;
        write_model(&m, (enum dtype)type, &k, path);
        double kld = divergence_of_default(path, way);
        printf("seed %d, %s: %.5f\n", SEED, dtype_info[type].name, kld);
        cr_expect_leq(kld, bound_of((enum dtype)type), "seed %d, %s: a divergence of %.5f", SEED, dtype_info[type].name,
                      kld);
    }
    free_model(&m);
    machine->v->close(machine);
}

static bool any_type(enum dtype type)
{
    (void)type;
    return true;
}

Test(precision, rounded_activations_stay_within_the_bound_for_every_type)
{
    check_types((struct way){DEVICE_CPU, false, N_WINDOWS, N_TOKENS}, any_type);
}

// In the everyday suite one type of each way to multiply: a scale or a scale and a minimum, for 16, 32 or 256 elements.
// The long suite takes all.
static bool type_for_gpu(enum dtype type)
{
#ifdef EVERY_TYPE
    return any_type(type);
#else
    return type == DT_Q8_0 || type == DT_Q4_1 || type == DT_Q2_K || type == DT_Q4_K || type == DT_Q6_K;
#endif
}

Test(precision, so_they_do_on_the_gpu)
{
    check_types((struct way){DEVICE_GPU, false, 1, GPU_TOKENS}, type_for_gpu);
}
