// quern-kernels: how fast the matrix products of each ISA level are, beside what the machine could do in the same
// minutes.
//
// Each figure stands beside its ceiling: the bytes that one thread can stream (one column), or the products that it can
// form when it does nothing else (many columns). Ceiling and kernel are timed in turn, and medians are given, for a
// machine that is not alone changes its speed from second to second. Time is the thread's own (what a neighbour takes
// of the core is left out). A kernel is timed only after its bits were found equal to those of the scalar level.
#include "kernels/cpu/ceilings.h"
#include "kernels/cpu/kernels.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { REPEATS_MAX = 101, COLUMN_COUNTS_MAX = 32, ITEM_ROWS = 128, CHECK_ROWS = 131 };

struct options {
    bool f32; // the product with float activations
    int type; // -1: those that matter
    const char *isa;
    bool check_only, json;
    int repeats;
    int64_t k;
    size_t bytes; // of weights: more than the caches hold
    int columns[COLUMN_COUNTS_MAX];
    int n_columns;
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare_doubles);
    return values[n / 2];
}

// ---- ceilings

// Bytes are read in pieces of four lines, from 1 or 16 rows in turn, and asked for some way ahead in their row; past
// its end, at the start of the row that will be read after it.
enum { PIECE = 256, STREAM_ROW = 16 * PIECE };

static uint64_t read_piece(const uint8_t *p)
{
    uint64_t words[PIECE / 8], sum = 0;
    memcpy(words, p, sizeof(words));
    for (size_t i = 0; i < COUNT_OF(words); i++)
        sum ^= words[i];
    return sum;
}

// Bytes a second.
static double read_speed(const uint8_t *data, size_t size, size_t rows, size_t ahead)
{
    size_t group = rows * STREAM_ROW, n = size / group * group;
    uint64_t sum = 0;
    double before = seconds();
    for (size_t g = 0; g < n; g += group)
        for (size_t at = 0; at < STREAM_ROW; at += PIECE) {
            size_t next = at + ahead < STREAM_ROW ? at + ahead : at + ahead - STREAM_ROW + group;
            for (size_t r = 0; r < group; r += STREAM_ROW) {
                for (size_t line = 0; ahead && line < PIECE; line += 64)
                    __builtin_prefetch(data + g + r + next + line, 0, 2);
                sum ^= read_piece(data + g + r + at);
            }
        }
    double took = seconds() - before;
    __asm__ volatile("" ::"r"(sum));
    return (double)n / took;
}

// The best of several ways to read.
static double read_ceiling(const uint8_t *data, size_t size)
{
    double plain = read_speed(data, size, 1, 0), one = read_speed(data, size, 1, 2048);
    double many = size < 16 * STREAM_ROW ? 0 : read_speed(data, size, 16, 1024);
    return MAX(plain, MAX(one, many));
}

static double product_ceiling(const char *level, bool f32)
{
    double before = seconds(), n = ceiling_run(level, f32, 100000);
    return n > 0 ? n / (seconds() - before) : NAN;
}

// ---- a product

struct product {
    const struct options *o;
    enum dtype type;
    const uint8_t *w;
    size_t row_bytes;
    int64_t n_rows;
    int n_x;
    const void **x;
    float **y, **at; // columns of y, and where they stand at an item
    void *scratch;
    void *tiles;  // of all columns, for levels that use them
};

static uint64_t random_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

// A random block that decodes to moderate numbers: neither infinite, nor so small that sums are denormal.
static void random_block(uint64_t *state, enum dtype type, uint8_t *block)
{
    const struct dtype_info *info = &dtype_info[type];
    float x[256], most;
    do {
        for (int i = 0; i < info->bytes; i++)
            block[i] = (uint8_t)(random_u64(state) >> 32);
        dtype_decode[type](block, x, info->block);
        most = 0;
        for (int i = 0; i < info->block; i++)
            most = isfinite(x[i]) ? MAX(most, fabsf(x[i])) : INFINITY;
    } while (!(most > 1e-3f && most < 1e3f));
}

// All of the weights: a thousand random blocks, over and over.
static void fill_weights(enum dtype type, uint8_t *w, size_t size)
{
    uint64_t state = 1;
    size_t bytes = (size_t)dtype_info[type].bytes, own = MIN(1000 * bytes, size / bytes * bytes);
    for (size_t i = 0; i < own; i += bytes)
        random_block(&state, type, w + i);
    for (size_t at = own; at < size; at += own)
        memcpy(w + at, w, MIN(own, size - at));
}

static void *fail_alloc(void *p)
{
    if (!p) {
        fprintf(stderr, "quern-kernels: out of memory\n");
        exit(E_MEMORY);
    }
    return p;
}

// About normal, as what a norm leaves is: kernels may take activations by their size.
static float random_normal(uint64_t *state)
{
    float sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (float)(random_u64(state) >> 40) * 0x1p-24f;
    return sum;
}

// Columns of plain floats, or of 8 bits.
static const void *column_new(const struct options *o, uint64_t *state)
{
    size_t bytes = (size_t)o->k * sizeof(float);
    float *x = fail_alloc(aligned_alloc(64, align_up(bytes, 64)));
    for (int64_t i = 0; i < o->k; i++)
        x[i] = random_normal(state);
    if (o->f32)
        return x;
    void *row = fail_alloc(aligned_alloc(64, q8_row_bytes(o->k)));
    kernels_best()->quantize_q8(x, o->k, row);
    free(x);
    return row;
}

// The columns once more, as the level wants them in tiles.
static void put_tiles(const struct kernels *k, const struct product *p)
{
    memset(p->tiles, 0, q8_tiles_bytes(p->o->k, p->n_x));
    for (int64_t span = 0; span < q8_blocks(p->o->k); span++)
        for (int j = 0; j < p->n_x; j++)
            k->put_q8_tiles(p->x[j], p->o->k, span, p->tiles, p->n_x, j);
}

static void columns_new(struct product *p, int n, int64_t n_rows)
{
    uint64_t state = 2;
    p->x = fail_alloc(malloc((size_t)n * sizeof(*p->x)));
    p->y = fail_alloc(malloc((size_t)n * sizeof(*p->y)));
    p->at = fail_alloc(malloc((size_t)n * sizeof(*p->at)));
    size_t stride = align_up((size_t)n_rows * sizeof(float), 64) | 64; // an odd number of lines, as plans lay them out
    char *y = fail_alloc(aligned_alloc(64, (size_t)n * stride));
    memset(y, 0, (size_t)n * stride);
    for (int j = 0; j < n; j++) {
        p->x[j] = column_new(p->o, &state);
        p->y[j] = (float *)(void *)(y + (size_t)j * stride);
    }
    p->tiles = fail_alloc(aligned_alloc(64, q8_tiles_bytes(p->o->k, n)));
}

static void columns_free(struct product *p, int n)
{
    for (int j = 0; j < n; j++)
        free((void *)(uintptr_t)p->x[j]);
    free(p->tiles);
    free(p->y[0]);
    free(p->x);
    free(p->y);
    free(p->at);
}

static matmul_fn *product_kernel(const struct kernels *k, const struct product *p)
{
    return (p->o->f32 ? k->matmul_f32 : k->matmul_q8)[p->type];
}

// All rows, a thread's share at a time as the engine hands them out.
static void run(const struct kernels *k, const struct product *p)
{
    struct matmul_args a = {.w_stride = p->row_bytes,
                            .k = p->o->k,
                            .type = p->type,
                            .x = p->x,
                            .n_x = p->n_x,
                            .x_tiles = k->in_tiles && k->in_tiles(p->type, p->n_x) ? p->tiles : NULL,
                            .n_tiled = p->n_x,
                            .y = p->at,
                            .scratch = p->scratch,
                            .reading = kernels_reading(k),
                            .spare_adders = kernels_spare_adders()};
    for (int64_t row = 0; row < p->n_rows; row += ITEM_ROWS) {
        a.w = p->w + (size_t)row * p->row_bytes;
        a.n_rows = (int)MIN(p->n_rows - row, ITEM_ROWS);
        for (int j = 0; j < p->n_x; j++)
            p->at[j] = p->y[j] + row;
        product_kernel(k, p)(&a);
    }
}

// Whether the level gives the bits of the scalar level, for one row of y after another.
static bool check(const struct kernels *k, const struct product *p)
{
    struct error err;
    struct product few = *p;
    few.n_rows = MIN(p->n_rows, CHECK_ROWS);
    float *want = fail_alloc(malloc((size_t)p->n_x * CHECK_ROWS * sizeof(*want)));
    run(kernels_find("scalar", &err), &few);
    for (int j = 0; j < p->n_x; j++)
        memcpy(want + (size_t)j * CHECK_ROWS, p->y[j], (size_t)few.n_rows * sizeof(float));
    run(k, &few);
    bool same = true;
    for (int j = 0; j < p->n_x; j++)
        same &= memcmp(want + (size_t)j * CHECK_ROWS, p->y[j], (size_t)few.n_rows * sizeof(float)) == 0;
    free(want);
    return same;
}

// ---- a line of the answer

struct figure {
    const char *level;
    const char *type;
    int n_x;
    bool same_bits;
    double speed, ceiling; // bytes a second for one column, else products a second
    double bytes;          // a second, of weights
};

static struct figure measure(const struct kernels *k, const struct product *p)
{
    struct figure f = {.level = k->name, .type = dtype_info[p->type].name, .n_x = p->n_x, .same_bits = check(k, p)};
    double took[REPEATS_MAX], ceiling[REPEATS_MAX];
    if (!f.same_bits || p->o->check_only)
        return f;
    for (int i = 0; i < p->o->repeats; i++) {
        ceiling[i] =
            p->n_x == 1 ? read_ceiling(p->w, (size_t)p->n_rows * p->row_bytes) : product_ceiling(k->name, p->o->f32);
        double before = seconds();
        run(k, p);
        took[i] = seconds() - before;
    }
    double t = median(took, p->o->repeats);
    f.bytes = (double)p->n_rows * (double)p->row_bytes / t;
    f.speed = p->n_x == 1 ? f.bytes : (double)p->n_rows * (double)p->o->k * p->n_x / t;
    f.ceiling = median(ceiling, p->o->repeats);
    return f;
}

static void print_figure(const struct options *o, const struct figure *f, bool first)
{
    const char *unit = f->n_x == 1 ? "GB/s" : "GMAC/s";
    bool known = f->ceiling == f->ceiling && f->ceiling > 0;
    if (o->json) {
        printf("%s\n  {\"op\": \"%s\", \"isa\": \"%s\", \"type\": \"%s\", \"k\": %lld, \"n_x\": %d, \"same_bits\": %s",
               first ? "" : ",", o->f32 ? "matmul-f32" : "matmul", f->level, f->type, (long long)o->k, f->n_x,
               f->same_bits ? "true" : "false");
        if (f->speed > 0)
            printf(", \"unit\": \"%s\", \"speed\": %.3f, \"weights_gbs\": %.3f", unit, f->speed * 1e-9,
                   f->bytes * 1e-9);
        if (f->speed > 0 && known)
            printf(", \"ceiling\": %.3f", f->ceiling * 1e-9);
        printf("}");
        return;
    }
    printf("%-8s %-8s %5d  ", f->level, f->type, f->n_x);
    if (!f->same_bits)
        printf("WRONG: not the bits of the scalar level\n");
    else if (o->check_only)
        printf("same bits as the scalar level\n");
    else if (known)
        printf("%8.2f %-6s of %7.2f: %5.1f%%  (%.2f GB/s)\n", f->speed * 1e-9, unit, f->ceiling * 1e-9,
               100 * f->speed / f->ceiling, f->bytes * 1e-9);
    else
        printf("%8.2f %-6s  (%.2f GB/s)\n", f->speed * 1e-9, unit, f->bytes * 1e-9);
}

// Rows: for one column all that fit the buffer, for more some seconds' worth at the most.
static int64_t rows_for(const struct product *p, int n_x, bool fast)
{
    int64_t all = (int64_t)(p->o->bytes / p->row_bytes), budget = fast ? INT64_C(8) << 30 : INT64_C(64) << 20;
    int64_t rows = n_x == 1 && fast ? all : MIN(all, MAX(budget / (p->o->k * n_x), 1));
    return p->o->check_only ? MIN(all, CHECK_ROWS) : MAX(rows / ITEM_ROWS, 1) * ITEM_ROWS;
}

// All levels and numbers of columns for one type. Returns whether all bits were right.
static bool measure_type(const struct options *o, enum dtype type, uint8_t *w, bool *first)
{
    bool right = true;
    struct product p = {.o = o, .type = type, .w = w, .row_bytes = dtype_row_bytes(type, o->k)};
    p.scratch = fail_alloc(aligned_alloc(64, SCRATCH_BYTES));
    fill_weights(type, w, o->bytes);
    for (int i = 0; i < kernels_count(); i++) {
        const struct kernels *k = kernels_at(i);
        if ((o->isa && strcmp(o->isa, k->name) != 0) || !product_kernel(k, &p))
            continue;
        for (int c = 0; c < o->n_columns; c++) {
            p.n_x = o->columns[c];
            p.n_rows = rows_for(&p, p.n_x, strcmp(k->name, "scalar") != 0);
            columns_new(&p, p.n_x, p.n_rows);
            if (!o->f32)
                put_tiles(k, &p);
            struct figure f = measure(k, &p);
            print_figure(o, &f, *first);
            fflush(stdout);
            *first = false;
            right &= f.same_bits;
            columns_free(&p, p.n_x);
        }
    }
    free(p.scratch);
    return right;
}

static bool is_wanted(const struct options *o, enum dtype type)
{
    struct error err;
    if (o->type >= 0)
        return (int)type == o->type;
    return o->f32 ? dtype_info[type].kind == DTYPE_KIND_FLOAT : kernels_find("scalar", &err)->matmul_q8[type] != NULL;
}

static int measure_all(const struct options *o)
{
    bool right = true, first = true;
    uint8_t *w = fail_alloc(aligned_alloc(4096, align_up(o->bytes, 4096)));
    if (o->json)
        printf("[");
    for (enum dtype type = 0; type < DT_COUNT; type++)
        if (is_wanted(o, type) && dtype_decode[type] && o->k % dtype_info[type].block == 0)
            right &= measure_type(o, type, w, &first);
    if (o->json)
        printf("\n]\n");
    free(w);
    return right ? E_OK : E_ITEMS;
}

// ---- the command

static int print_help(FILE *out, int status)
{
    fprintf(
        out,
        "usage: quern-kernels [--op matmul|matmul-f32] [--type TYPE] [--isa LEVEL] [--check] [-k N] [-n N,N,...]\n"
        "                     [-r REPEATS] [--mib N] [-o json]\n"
        "Times one thread's matrix products beside the machine's ceilings: bytes for one column, products for more.\n"
        "  --op      with activations in 8 bits (matmul), or in float32 (matmul-f32)\n"
        "  --type    of the weights (all that the scalar level has; float types for matmul-f32)\n"
        "  --isa     one level (all that this CPU runs)\n"
        "  --check   compare bits with the scalar level, time nothing\n"
        "  -k        length of a row (2048)\n"
        "  -n        numbers of columns (1,512)\n"
        "  -r        repeats, of which the median is given (9)\n"
        "  --mib     of weights, for one column (512)\n");
    return status;
}

static int parse_number(const char *text, int64_t max, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || *end || end == text || v < 1 || v > max)
        return -1;
    *out = v;
    return 0;
}

static int parse_columns(struct options *o, char *text)
{
    char *rest = NULL;
    o->n_columns = 0;
    for (char *p = strtok_r(text, ",", &rest); p; p = strtok_r(NULL, ",", &rest)) {
        int64_t n;
        if (o->n_columns == COLUMN_COUNTS_MAX || parse_number(p, 8192, &n) != 0)
            return -1;
        o->columns[o->n_columns++] = (int)n;
    }
    return o->n_columns ? 0 : -1;
}

// Takes one option and its value: -1 when it is none of ours, or the value is bad.
static int take_option(struct options *o, const char *name, char *value)
{
    int64_t n = 0;
    struct error err;
    enum dtype type;
    if (!value)
        return -1;
    if (strcmp(name, "--op") == 0) {
        o->f32 = strcmp(value, "matmul-f32") == 0;
        return o->f32 || strcmp(value, "matmul") == 0 ? 0 : -1;
    }
    if (strcmp(name, "-o") == 0) {
        o->json = true;
        return strcmp(value, "json") == 0 ? 0 : -1;
    }
    if (strcmp(name, "--isa") == 0) {
        o->isa = value;
        return kernels_find(value, &err) ? 0 : -1;
    }
    if (strcmp(name, "--type") == 0) {
        int status = dtype_from_name(str_from(value), &type);
        o->type = status == 0 ? (int)type : -1;
        return status;
    }
    if (strcmp(name, "-n") == 0)
        return parse_columns(o, value);
    if (strcmp(name, "-k") == 0)
        return parse_number(value, 1 << 20, &o->k);
    int status = parse_number(value, strcmp(name, "-r") == 0 ? REPEATS_MAX : 1 << 20, &n);
    if (strcmp(name, "-r") == 0)
        o->repeats = (int)n;
    else if (strcmp(name, "--mib") == 0)
        o->bytes = (size_t)n << 20;
    else
        return -1;
    return status;
}

int main(int argc, char **argv)
{
    struct options o = {
        .type = -1, .repeats = 9, .k = 2048, .bytes = (size_t)512 << 20, .columns = {1, 512}, .n_columns = 2};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return print_help(stdout, E_OK);
        if (strcmp(argv[i], "--check") == 0) {
            o.check_only = true;
            continue;
        }
        if (take_option(&o, argv[i], argv[i + 1]) != 0) {
            fprintf(stderr, "quern-kernels: bad argument: %s%s%s\n", argv[i], argv[i + 1] ? " " : "",
                    argv[i + 1] ? argv[i + 1] : "");
            return print_help(stderr, E_USAGE);
        }
        i++;
    }
    return measure_all(&o);
}
