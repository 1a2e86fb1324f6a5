// Cases of matrix products: every type of weights by one column and by many, with 8-bit and with float32 activations.
//
// The reference multiplies the same activations as the level, decoded from 8 bits, so the bound is that of sums in
// float32. The loss of 8 bits is checked by the cases of quantize. A call has about as many rows as in the engine.
#include "kernels/cpu.h"
#include "bench/kernel_cases.h"

#include <stdlib.h>

enum { ITEM_ROWS = 128, CHECK_ROWS = 131 };
#define SUM_BOUND 1e-10 // NMSE of sums in float32

struct product {
    const struct bench *b;
    bool f32;
    enum dtype type;
    int64_t k, n_rows;
    int n_x;
    size_t row_bytes;
    struct room w, y;
    struct room *columns;
    size_t stride; // bytes between columns of y
    const void **x;
    float **at;            // the columns of y from the first row of a call on
    void *scratch, *tiles; // tiles: all columns as tiles, for levels that use them
    enum reading reading;  // of the level that runs, like the next two
    bool spare_adders, in_tiles;
    struct product *large; // the case that is timed, or NULL
};

static matmul_fn *kernel_of(const struct kernels *k, const struct product *p)
{
    return (p->f32 ? k->matmul_f32 : k->matmul_q8)[p->type];
}

static bool has_product(const struct kernels *k, const void *data)
{
    return kernel_of(k, data) != NULL;
}

// Copies the columns to the level's tile layout.
static void put_tiles(const struct kernels *k, struct product *p)
{
    if (p->f32)
        return;
    memset(p->tiles, 0, k->tiles_bytes(p->k, p->n_x));
    for (int64_t span = 0; span < q8_blocks(p->k); span++)
        for (int j = 0; j < p->n_x; j++)
            k->put_q8_tiles(p->x[j], p->k, span, p->tiles, p->n_x, j);
}

// Sets what a machine knows before it runs. To query the CPU takes 50 us or more on a virtual machine, so it is done
// outside of the timed part.
static void get_ready(const struct kernels *k, void *data)
{
    struct product *p = data;
    p->reading = p->f32 ? reading_of_floats(k, kernels_reading(k)) : kernels_reading(k);
    p->spare_adders = kernels_spare_adders();
    p->in_tiles = !p->f32 && k->in_tiles && k->in_tiles(p->type, p->k, p->n_x, p->spare_adders);
    put_tiles(k, p);
}

// Returns the rows of a call, about as many as in the engine.
static int64_t item_rows(const struct kernels *k, const struct product *p)
{
    return p->n_x > 8 ? ITEM_ROWS : MAX(k->item_weights / p->k / 16 * 16, (int64_t)16);
}

static void multiply(const struct kernels *k, void *data)
{
    struct product *p = data;
    struct matmul_args a = {.w_stride = p->row_bytes,
                            .k = p->k,
                            .type = p->type,
                            .x = p->x,
                            .n_x = p->n_x,
                            .x_tiles = p->in_tiles ? p->tiles : NULL,
                            .n_tiled = p->n_x,
                            .y = p->at,
                            .scratch = p->scratch,
                            .next_stride = p->row_bytes,
                            .reading = p->reading,
                            .spare_adders = p->spare_adders};
    const int64_t item = item_rows(k, p);
    for (int64_t row = 0; row < p->n_rows; row += item) {
        a.w = p->w.data + (size_t)row * p->row_bytes;
        a.n_rows = (int)MIN(p->n_rows - row, item);
        a.next = row + item < p->n_rows ? (const uint8_t *)a.w + (size_t)item * p->row_bytes : NULL;
        a.next_rows = MIN(p->n_rows - row - a.n_rows, item);
        for (int j = 0; j < p->n_x; j++)
            p->at[j] = (float *)(void *)(p->y.data + (size_t)j * p->stride) + row;
        kernel_of(k, p)(&a);
    }
}

// ---- a product's memory

// Makes a column of floats, or of 8-bit activations.
static struct room column_new(const struct product *p, struct noise *r)
{
    struct room x = room_of_noise(r, p->k);
    if (p->f32)
        return x;
    struct room row = room_new(q8_row_bytes(p->k));
    kernels_best()->quantize_q8(room_floats(&x), p->k, row.data);
    room_free(&x);
    return row;
}

static struct product *product_new(const struct bench *b, bool f32, enum dtype type, int64_t k, int n_x, int64_t n_rows)
{
    struct noise r = {SEED + 1};
    struct product *p = must(calloc(1, sizeof(*p)));
    *p = (struct product){
        .b = b, .f32 = f32, .type = type, .k = k, .n_x = n_x, .n_rows = n_rows, .row_bytes = dtype_row_bytes(type, k)};
    p->w = room_of_blocks(type, (size_t)n_rows * p->row_bytes);
    p->stride = align_up((size_t)n_rows * sizeof(float) + 1, 64) | 64; // an odd number of lines, as plans lay them out
    p->y = room_new((size_t)n_x * p->stride);
    p->columns = must(calloc((size_t)n_x, sizeof(*p->columns)));
    p->x = must(calloc((size_t)n_x, sizeof(*p->x)));
    p->at = must(calloc((size_t)n_x, sizeof(*p->at)));
    for (int j = 0; j < n_x; j++) {
        p->columns[j] = column_new(p, &r);
        p->x[j] = p->columns[j].data;
    }
    p->scratch = must(aligned_alloc(64, SCRATCH_BYTES));
    memset(p->scratch, 0xff, SCRATCH_BYTES); // NaN: what a kernel does not fill must not reach an output
    p->tiles = must(aligned_alloc(64, MAX(q8_tiles_bytes(k, n_x), q8_words_bytes(k, n_x))));
    return p;
}

static void product_free(struct product *p)
{
    if (!p)
        return;
    product_free(p->large);
    for (int j = 0; j < p->n_x; j++)
        room_free(&p->columns[j]);
    room_free(&p->w);
    room_free(&p->y);
    free(p->columns);
    free(p->x);
    free(p->at);
    free(p->scratch);
    free(p->tiles);
    free(p);
}

// ---- the reference

// Converts column j to float32.
static void decode_column(const struct product *p, int j, float *x)
{
    for (int64_t i = 0; i < p->k; i++)
        x[i] = p->f32 ? ((const float *)p->x[j])[i]
                      : (float)(q8_steps(p->x[j], p->k)[i / Q8_RUN] * q8_quants(p->x[j])[i]) *
                            q8_scales(p->x[j], p->k)[i / Q8_BLOCK];
}

// Returns the product of the reference, (n_x, n_rows).
static float *reference_of(const struct product *p)
{
    float *x = must(malloc((size_t)p->n_x * (size_t)p->k * sizeof(*x)));
    float *y = must(malloc((size_t)p->n_x * (size_t)p->n_rows * sizeof(*y)));
    float *row = must(malloc((size_t)p->k * sizeof(*row)));
    for (int j = 0; j < p->n_x; j++)
        decode_column(p, j, x + (size_t)j * (size_t)p->k);
    struct weight w = {.type = p->type, .ne = {p->k, p->n_rows, 1}, .data = p->w.data, .row_bytes = p->row_bytes};
    struct tensor in = {.id = 0, .width = p->k},
                  out = {.op = OP_MATMUL, .id = 1, .width = p->n_rows, .src = {&in}, .w = {&w}};
    struct step step = {.n_tokens = p->n_x};
    ref_node(&(struct ref_run){.step = &step, .values = (float *[]){x, y}, .decoded = row}, &out);
    free(row);
    free(x);
    return y;
}

// ---- cases

// Returns the rows to time. One column reads all b->bytes of weights from memory. More columns have at most 8 Gi
// products, plain C at most 64 Mi, so that a run takes a few seconds at most.
static int64_t rows_to_time(const struct bench *b, int64_t k, size_t row_bytes, int n_x, bool slow)
{
    const int64_t all = MAX((int64_t)(b->bytes / row_bytes), 1), products = slow ? INT64_C(64) << 20 : INT64_C(8) << 30;
    return n_x == 1 && !slow ? all : MIN(all, MAX(products / (k * n_x) / ITEM_ROWS, 1) * ITEM_ROWS);
}

static struct timing timing_of(const struct kernels *k, void *data)
{
    struct product *small = data, *p = small->large;
    const struct bench *b = small->b;
    if (!p)
        p = small->large = product_new(b, small->f32, small->type, small->k, small->n_x,
                                       rows_to_time(b, small->k, small->row_bytes, small->n_x, false));
    p->n_rows = rows_to_time(b, p->k, p->row_bytes, p->n_x, strcmp(k->name, "scalar") == 0);
    return (struct timing){.data = p,
                           .bytes = (double)p->n_rows * (double)p->row_bytes,
                           .macs = (double)p->n_rows * (double)p->k * p->n_x,
                           .from = p->w.data,
                           .size = (size_t)p->n_rows * p->row_bytes,
                           .unit = p->f32 ? UNIT_FLOATS : UNIT_BYTES,
                           .share = 1};
}

static void bench_product(struct bench *b, bool f32, enum dtype type, int64_t k, int n_x)
{
    struct product *p = product_new(b, f32, type, k, n_x, CHECK_ROWS);
    float *reference = reference_of(p);
    bench_case(b, &(struct kernel_case){.op = f32 ? MATMUL_F32 : op_name(OP_MATMUL),
                                        .what = dtype_info[type].name,
                                        .k = k,
                                        .n = n_x,
                                        .data = p,
                                        .has = has_product,
                                        .ready = get_ready,
                                        .run = multiply,
                                        .out = p->y,
                                        .rows = n_x,
                                        .row_bytes = CHECK_ROWS * sizeof(float),
                                        .stride = p->stride,
                                        .reference = reference,
                                        .exact_from = CHECK_ROWS * sizeof(float),
                                        .bound = SUM_BOUND,
                                        .timing = timing_of});
    free(reference);
    product_free(p);
}

static void bench_type(struct bench *b, bool f32, enum dtype type)
{
    static const int to_check[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 22, 31, 33, 0},
                     to_time[] = {1, 512, 0};
    int counts[COUNTS_MAX], n = bench_counts(b, to_check, to_time, counts);
    int64_t lengths[LENGTHS_MAX];
    int n_lengths = bench_lengths(b, dtype_info[type].block, 2048, lengths);
    for (int i = 0; i < n_lengths; i++)
        for (int j = 0; j < n; j++)
            bench_product(b, f32, type, lengths[i], counts[j]);
}

// With float32 activations all types are checked, but only the float types are timed unless a type is selected: the
// others take this path only where a level has no 8-bit one.
static bool is_wanted(const struct bench *b, bool f32, enum dtype type)
{
    struct error err;
    if (!dtype_decode[type] || (b->type >= 0 && (int)type != b->type))
        return false;
    return f32 ? b->check_only || b->type >= 0 || dtype_info[type].kind == DTYPE_KIND_FLOAT
               : kernels_find("scalar", &err)->matmul_q8[type] != NULL;
}

void bench_matmul(struct bench *b, enum op op)
{
    for (int f32 = 0; f32 < 2; f32++)
        for (enum dtype type = 0; type < DT_COUNT; type++)
            if (bench_wants(b, f32 ? MATMUL_F32 : op_name(op)) && is_wanted(b, f32, type))
                bench_type(b, f32, type);
}
