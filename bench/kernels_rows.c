// Cases of the operations on rows: norms, activations, sums, rotary positions, routing, and conversions to and from
// types.
//
// The table row_ops has one entry for each operation; its kinds are those of tensor.h, or types. A case has n rows of k
// elements. Its speed is the bytes read and written per second, and its ceiling the speed of a copy in the same caches.
#include "bench/kernel_cases.h"

#include <math.h>
#include <stdlib.h>

enum { N_USED = 4 };
#define FLOAT_BOUND 1e-10 // NMSE of a formula in float32
#define ROPE_BOUND 1e-9

struct row_case;
typedef void row_fn(const struct kernels *k, const struct row_case *r, int row);

// One entry of the table.
struct row_op {
    const char *const *kinds; // ended by NULL; NULL: types
    row_fn *run;
    // Sets the sizes of the rows; rope also reduces k to whole heads.
    void (*shape)(struct row_case *r);
    double bound;
    int64_t to_time; // length of a row
};

struct row_case {
    const struct row_op *row_op;
    enum op op;
    int kind; // or type
    int64_t k;
    int n;
    size_t a_bytes, b_bytes, y_bytes; // of a row; a and b are the inputs, y is the output
    size_t exact_from;                // see struct kernel_case
    int64_t head_dim, n_pairs;        // of rope
    struct room a, b, y, gain, bias, spare;
    struct weight weights[2];
};

static float *row_at(const struct room *m, size_t bytes, int row)
{
    return (float *)(void *)(m->data + (size_t)row * bytes);
}
static float *a_at(const struct row_case *r, int row)
{
    return row_at(&r->a, r->a_bytes, row);
}
static float *b_at(const struct row_case *r, int row)
{
    return row_at(&r->b, r->b_bytes, row);
}
static float *y_at(const struct row_case *r, int row)
{
    return row_at(&r->y, r->y_bytes, row);
}

// ---- the operations of a level

#define CAP 30.0f
#define LIMIT 0.5f
static const struct xielu_params xielu = {1.3f, 0.8f, 0.5f, -1e-6f};
#define FACTOR 1.7f
#define EPS 1e-5f

static void run_norm(const struct kernels *k, const struct row_case *r, int row)
{
    k->norm((enum norm_kind)r->kind, a_at(r, row), room_floats(&r->gain), room_floats(&r->bias), EPS, r->k,
            y_at(r, row));
}
static void run_act(const struct kernels *k, const struct row_case *r, int row)
{
    k->act((enum act_kind)r->kind, a_at(r, row), y_at(r, row), r->k);
}
static void run_glu(const struct kernels *k, const struct row_case *r, int row)
{
    k->glu((enum act_kind)r->kind, a_at(r, row), b_at(r, row), y_at(r, row), r->k);
}
static void run_add(const struct kernels *k, const struct row_case *r, int row)
{
    k->add(a_at(r, row), b_at(r, row), y_at(r, row), r->k);
}
static void run_scale(const struct kernels *k, const struct row_case *r, int row)
{
    k->scale(a_at(r, row), FACTOR, y_at(r, row), r->k);
}
static void run_softcap(const struct kernels *k, const struct row_case *r, int row)
{
    k->softcap(a_at(r, row), CAP, y_at(r, row), r->k);
}
static void run_clamp(const struct kernels *k, const struct row_case *r, int row)
{
    k->clamp(a_at(r, row), LIMIT, y_at(r, row), r->k);
}
static void run_xielu(const struct kernels *k, const struct row_case *r, int row)
{
    k->xielu(&xielu, a_at(r, row), y_at(r, row), r->k);
}
static void run_rope(const struct kernels *k, const struct row_case *r, int row)
{
    k->rope(a_at(r, row), b_at(r, row), r->n_pairs, r->head_dim, r->k / r->head_dim, (enum rope_layout)r->kind,
            y_at(r, row));
}
static int n_used(const struct row_case *r)
{
    return (int)MIN(r->k, (int64_t)N_USED);
}
static void run_route(const struct kernels *k, const struct row_case *r, int row)
{
    float *weights = y_at(r, row);
    const struct route_args a = {.kind = (enum route_kind)r->kind,
                                 .n_expert = (int)r->k,
                                 .n_used = n_used(r),
                                 .normalise = true,
                                 .scale = FACTOR};
    k->route(&a, a_at(r, row), weights, (int32_t *)(void *)(weights + n_used(r)));
}
static void run_combine(const struct kernels *k, const struct row_case *r, int row)
{
    k->combine(a_at(r, row), b_at(r, row), N_USED, r->k, y_at(r, row));
}
static void run_quantize(const struct kernels *k, const struct row_case *r, int row)
{
    k->quantize_q8(a_at(r, row), r->k, y_at(r, row));
}
static void run_decode(const struct kernels *k, const struct row_case *r, int row)
{
    k->decode[r->kind](a_at(r, row), y_at(r, row), r->k);
}
static void run_encode(const struct kernels *k, const struct row_case *r, int row)
{
    k->encode[r->kind](a_at(r, row), y_at(r, row), r->k);
}

// ---- sizes of rows

static void shape_one(struct row_case *r)
{
    r->a_bytes = r->y_bytes = (size_t)r->k * sizeof(float);
}
static void shape_two(struct row_case *r)
{
    shape_one(r);
    r->b_bytes = r->a_bytes;
}
// At least three heads if k allows it. In short rows an eighth of each head is not rotated.
static void shape_rope(struct row_case *r)
{
    r->head_dim = MAX(MIN(r->k / 3, (int64_t)128) / 2 * 2, 2);
    r->k = r->k / r->head_dim * r->head_dim;
    r->n_pairs = r->head_dim / 2 - (r->k < 1024 ? r->head_dim / 16 : 0);
    shape_one(r);
    r->b_bytes = 2 * (size_t)r->n_pairs * sizeof(float);
}
static void shape_route(struct row_case *r)
{
    r->a_bytes = (size_t)r->k * sizeof(float);
    r->y_bytes = 2 * (size_t)n_used(r) * sizeof(float);
    r->exact_from = r->y_bytes / 2;
}
static void shape_combine(struct row_case *r)
{
    shape_one(r);
    r->a_bytes *= N_USED;
    r->b_bytes = 2 * N_USED * sizeof(float); // weights, then the ids of their experts
}
static void shape_quantize(struct row_case *r)
{
    shape_one(r);
    r->y_bytes = q8_row_bytes(r->k);
}
static void shape_decode(struct row_case *r)
{
    shape_one(r);
    r->a_bytes = dtype_row_bytes((enum dtype)r->kind, r->k);
}
static void shape_encode(struct row_case *r)
{
    shape_one(r);
    r->y_bytes = dtype_row_bytes((enum dtype)r->kind, r->k);
}

static const char *const norms[] = {[NORM_RMS] = "rms", [NORM_LAYER] = "layer", NULL};
static const char *const acts[] = {[ACT_NONE] = "none",         [ACT_SILU] = "silu",         [ACT_GELU_TANH] = "gelu",
                                   [ACT_GELU_ERF] = "gelu_erf", [ACT_RELU] = "relu",         [ACT_RELU2] = "relu2",
                                   [ACT_SIGMOID] = "sigmoid",   [ACT_SOFTPLUS] = "softplus", NULL};
static const char *const gates[] = {[ACT_SILU] = "silu",
                                    [ACT_GELU_TANH] = "gelu",
                                    [ACT_GELU_ERF] = "gelu_erf",
                                    [ACT_RELU] = "relu",
                                    [ACT_RELU2] = "relu2",
                                    [ACT_SIGMOID] = "sigmoid",
                                    [ACT_SOFTPLUS] = "softplus",
                                    [ACT_SWIGLU_CLAMPED] = "swiglu_clamped",
                                    NULL};
static const char *const layouts[] = {[ROPE_NORM] = "neighbour", [ROPE_NEOX] = "halves", NULL};
static const char *const routes[] = {[ROUTE_SOFTMAX] = "softmax", [ROUTE_SIGMOID] = "sigmoid", NULL};
static const char *const floats[] = {"float", NULL};

// A bound of 0 requires the bits of the reference.
static const struct row_op row_ops[OP_COUNT] = {
    [OP_EMBED] = {NULL, run_decode, shape_decode, 0, 2048},
    [OP_KV_WRITE] = {NULL, run_encode, shape_encode, 0, 2048},
    [OP_NORM] = {norms, run_norm, shape_one, FLOAT_BOUND, 2048},
    [OP_ACT] = {acts, run_act, shape_one, FLOAT_BOUND, 2048},
    [OP_GLU] = {gates, run_glu, shape_two, FLOAT_BOUND, 2048},
    [OP_ADD] = {floats, run_add, shape_two, 0, 2048},
    [OP_SCALE] = {floats, run_scale, shape_one, 0, 2048},
    [OP_SOFTCAP] = {floats, run_softcap, shape_one, FLOAT_BOUND, 2048},
    [OP_CLAMP] = {floats, run_clamp, shape_one, 0, 2048},
    [OP_XIELU] = {floats, run_xielu, shape_one, FLOAT_BOUND, 2048},
    [OP_ROPE] = {layouts, run_rope, shape_rope, ROPE_BOUND, 2048},
    [OP_ROUTE] = {routes, run_route, shape_route, FLOAT_BOUND, 128},
    [OP_EXPERT_COMBINE] = {floats, run_combine, shape_combine, FLOAT_BOUND, 2048},
    [OP_QUANTIZE] = {floats, run_quantize, shape_quantize, 0, 2048},
};

// ---- a case's memory

static struct room inputs_new(const struct row_case *r, struct noise *noise, size_t bytes)
{
    return r->op == OP_EMBED ? room_of_blocks((enum dtype)r->kind, bytes)
                             : room_of_noise(noise, (int64_t)(bytes / sizeof(float)));
}

static void rows_new(struct row_case *r)
{
    struct noise noise = {SEED + 2};
    r->row_op->shape(r);
    r->a = inputs_new(r, &noise, (size_t)r->n * r->a_bytes);
    r->b = room_of_noise(&noise, (int64_t)((size_t)r->n * r->b_bytes / sizeof(float)));
    r->y = room_new((size_t)r->n * r->y_bytes);
    r->gain = room_of_noise(&noise, r->k);
    r->bias = room_of_noise(&noise, r->k);
    r->spare = room_new(r->a.size);
    for (int row = 0; r->op == OP_EXPERT_COMBINE && row < r->n; row++)
        memset(b_at(r, row) + N_USED, 0, N_USED * sizeof(int32_t));
}

static void rows_free(struct row_case *r)
{
    struct room *all[] = {&r->a, &r->b, &r->y, &r->gain, &r->bias, &r->spare};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        room_free(all[i]);
}

static void run_rows(const struct kernels *k, void *data)
{
    const struct row_case *r = data;
    for (int row = 0; row < r->n; row++)
        r->row_op->run(k, r, row);
}

// ---- the reference

static struct tensor node_of(struct row_case *r, struct tensor *a, struct tensor *b)
{
    struct tensor n = {.op = r->op, .id = 2, .width = (int64_t)(r->y_bytes / sizeof(float)), .src = {a, b}};
    for (int i = 0; i < 2; i++)
        r->weights[i] = (struct weight){.type = DT_F32, .ne = {r->k, 1, 1}, .data = (i ? r->bias : r->gain).data};
    switch (r->op) {
    case OP_NORM:
        n.p.norm.kind = (enum norm_kind)r->kind, n.p.norm.eps = EPS;
        n.w[0] = &r->weights[0], n.w[1] = &r->weights[1];
        break;
    case OP_EMBED:
        r->weights[0] = (struct weight){
            .type = (enum dtype)r->kind, .ne = {r->k, r->n, 1}, .data = r->a.data, .row_bytes = r->a_bytes};
        n.p.embed.input = INPUT_TOKENS, n.p.embed.scale = 1, n.w[0] = &r->weights[0];
        break;
    case OP_ACT:
    case OP_GLU:
        n.p.act.kind = (enum act_kind)r->kind;
        break;
    case OP_SCALE:
        n.p.scale.factor = FACTOR;
        break;
    case OP_SOFTCAP:
        n.p.scale.factor = CAP;
        break;
    case OP_CLAMP:
        n.p.scale.factor = LIMIT;
        break;
    case OP_XIELU:
        n.p.xielu = xielu;
        break;
    case OP_ROPE:
        b->p.rope_table.n_pairs = r->n_pairs, n.p.rope.head_dim = r->head_dim,
        n.p.rope.layout = (enum rope_layout)r->kind;
        break;
    case OP_ROUTE:
        n.p.route.kind = (enum route_kind)r->kind, n.p.route.n_used = n_used(r);
        n.p.route.normalise = true, n.p.route.scale = FACTOR;
        break;
    case OP_EXPERT_COMBINE:
        b->p.route.n_used = n.p.expert.n_used = N_USED;
        break;
    default:
        break;
    }
    return n;
}

// The reference of writes to the cache: the conversion of gguf/dtype.c, row by row.
static void encode_rows(const struct row_case *r, uint8_t *y)
{
    for (int row = 0; row < r->n; row++)
        dtype_encode[r->kind](a_at(r, row), y + (size_t)row * r->y_bytes, r->k);
}

static void *reference_of(struct row_case *r)
{
    uint8_t *y = must(malloc(r->y.size + 1));
    float *decoded = must(malloc((size_t)r->k * sizeof(*decoded)));
    double *sums = must(malloc(3 * (size_t)r->k * sizeof(*sums)));
    int32_t *tokens = must(malloc((size_t)r->n * sizeof(*tokens)));
    for (int i = 0; i < r->n; i++)
        tokens[i] = i;
    struct tensor a = {.id = 0, .width = (int64_t)(r->a_bytes / sizeof(float))};
    struct tensor b = {.id = 1, .width = (int64_t)(r->b_bytes / sizeof(float))};
    struct tensor node = node_of(r, &a, r->b_bytes ? &b : NULL);
    struct step step = {.n_tokens = r->n, .tokens = tokens, .positions = tokens};
    float *values[] = {room_floats(&r->a), room_floats(&r->b), (float *)(void *)y};
    if (r->op == OP_KV_WRITE)
        encode_rows(r, y);
    else
        ref_node(&(struct ref_run){.step = &step, .values = values, .decoded = decoded, .sums = sums}, &node);
    free(tokens);
    free(sums);
    free(decoded);
    return y;
}

// The reference has no quantize operation. Whether a block of n elements is right: d is the largest magnitude / 2032,
// each q * step * d is within half a step * d of its element, the sums are those of the q, and padding is 0.
static bool fits_block(const float *x, int64_t n, const int8_t *q, const int16_t *sums, const uint8_t *steps, float d)
{
    float most = 0;
    bool fits = true;
    for (int64_t i = 0; i < n; i++)
        most = MAX(most, fabsf(x[i]));
    for (int j = 0; j < Q8_SUMS; j++) {
        int sum = 0;
        for (int i = 16 * j; i < 16 * j + 16; i++) {
            double want = i < n ? (double)x[i] : 0;
            sum += q[i];
            fits &= fabs(want / steps[j / 2] - (double)q[i] * (double)d) <= 0.5001 * (double)d;
        }
        fits &= sums[j] == sum;
    }
    return fits && d == most / 2032;
}

static bool fits_quantised(const struct kernel_case *c)
{
    const struct row_case *r = c->data;
    bool fits = true;
    for (int row = 0; row < r->n; row++) {
        const void *y = y_at(r, row);
        for (int64_t b = 0; b < q8_blocks(r->k); b++)
            fits &= fits_block(a_at(r, row) + b * Q8_BLOCK, MIN(r->k - b * Q8_BLOCK, (int64_t)Q8_BLOCK),
                               q8_quants(y) + b * Q8_BLOCK, q8_sums(y, r->k) + b * Q8_SUMS,
                               q8_steps(y, r->k) + b * Q8_RUNS, q8_scales(y, r->k)[b]);
    }
    return fits;
}

// ---- cases

static struct timing timing_of(const struct kernels *k, void *data)
{
    struct row_case *r = data;
    (void)k;
    return (struct timing){.data = r,
                           .bytes = (double)(r->a.size + r->b.size + r->y.size),
                           .from = r->a.data,
                           .to = r->spare.data,
                           .size = r->a.size};
}

static void bench_shape(struct bench *b, enum op op, int kind, const char *what, int64_t k, int n)
{
    struct row_case r = {.row_op = &row_ops[op], .op = op, .kind = kind, .k = k, .n = n};
    rows_new(&r);
    r.exact_from = r.exact_from ? r.exact_from : r.row_op->bound > 0 ? r.y_bytes : 0;
    void *reference = op == OP_QUANTIZE ? NULL : reference_of(&r);
    bench_case(b, &(struct kernel_case){.op = op_name(op),
                                        .what = what,
                                        .k = r.k,
                                        .n = n,
                                        .data = &r,
                                        .run = run_rows,
                                        .out = r.y,
                                        .rows = n,
                                        .row_bytes = r.y_bytes,
                                        .stride = r.y_bytes,
                                        .reference = reference,
                                        .exact_from = r.exact_from,
                                        .bound = r.row_op->bound,
                                        .fits = fits_quantised,
                                        .timing = timing_of});
    free(reference);
    rows_free(&r);
}

static void bench_kind(struct bench *b, enum op op, int kind, const char *what, int block)
{
    static const int to_check[] = {1, 3, 0}, to_time[] = {512, 0};
    int counts[COUNTS_MAX], n = bench_counts(b, to_check, to_time, counts);
    int64_t lengths[LENGTHS_MAX];
    int n_lengths = bench_lengths(b, block, row_ops[op].to_time, lengths);
    for (int i = 0; i < n_lengths; i++)
        for (int j = 0; j < n; j++)
            bench_shape(b, op, kind, what, lengths[i], counts[j]);
}

static bool is_wanted(const struct bench *b, enum op op, enum dtype type)
{
    const struct kernels *k = kernels_best();
    return (b->type < 0 || (int)type == b->type) &&
           (op == OP_EMBED ? k->decode[type] != NULL : k->encode[type] != NULL);
}

void bench_rows(struct bench *b, enum op op)
{
    const struct row_op *o = &row_ops[op];
    if (!bench_wants(b, op_name(op)))
        return;
    for (int i = 0; o->kinds && o->kinds[i]; i++)
        bench_kind(b, op, i, o->kinds[i], 1);
    for (enum dtype type = 0; !o->kinds && type < DT_COUNT; type++)
        if (is_wanted(b, op, type))
            bench_kind(b, op, (int)type, dtype_info[type].name, dtype_info[type].block);
}
