// quern-micro: times the building blocks one by one on one thread, beside the goals that were set at the start.
//
// It measures float matrix products by quern's kernels, OpenBLAS and plain C; element-wise operations, activations and
// reductions of 10 thousand to a million elements; log-softmax; and the compilation of a graph to a plan. Times are CPU
// times of the thread, the median of several. The results of each level are compared bit by bit with those of plain C
// before they are timed. With --device gpu it measures the same on a GPU (micro_card.c).
#include "bench/micro.h"
#include "engine/sample/logprobs.h"
#include "engine/model.h"
#include "kernels/cpu/exec.h"
#include "models/synth_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { REPEATS = 15, ITEM_ROWS = 64 };

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

void *micro_must(void *p)
{
    if (!p) {
        fprintf(stderr, "quern-micro: out of memory\n");
        exit(E_MEMORY);
    }
    return p;
}

float *micro_floats(int64_t n, uint32_t seed)
{
    float *x = micro_must(aligned_alloc(64, align_up((size_t)n * sizeof *x, 64)));
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        x[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    return x;
}

// ---- a row of the output

typedef void work_fn(void *arg);

static double time_of(work_fn *work, void *arg, const struct micro *o)
{
    double took[REPEATS];
    int repeats = o->quick ? 3 : REPEATS;
    work(arg);
    for (int i = 0; i < repeats; i++) {
        long turns = 0;
        double before = seconds(), spent;
        do
            work(arg);
        while (turns++, (spent = seconds() - before) < 2e-3);
        took[i] = spent / (double)turns;
    }
    qsort(took, (size_t)repeats, sizeof *took, compare_doubles);
    return took[repeats / 2];
}

void micro_print(struct micro *o, const struct micro_row *r, double took)
{
    double speed = r->work / took / 1e9;
    if (o->json)
        printf(
            "%s\n  {\"what\": \"%s\", \"by\": \"%s\", \"size\": %lld, \"ms\": %.6f, \"speed\": %.4f, \"unit\": \"%s\", "
            "\"set_out_from\": \"%s\"}",
            o->first ? "" : ",", r->what, r->by, (long long)r->size, took * 1e3, speed, r->unit, r->target);
    else
        printf("%-12s %-9s %9lld %12.4f ms %9.3f %-8s %s\n", r->what, r->by, (long long)r->size, took * 1e3, speed,
               r->unit, r->target);
    o->first = false;
    fflush(stdout);
}

static void measure(struct micro *o, const struct micro_row *r, work_fn *work, void *arg)
{
    micro_print(o, r, time_of(work, arg, o));
}

// ---- matrix products

struct product {
    const struct kernels *k; // NULL: OpenBLAS
    enum reading reading;    // queried once, outside of the timed part
    int64_t n;
    float *w, *x, *y;
    const void **rows;
    float **columns, **at;
    void *scratch;
};

static void multiply(void *arg)
{
    struct product *p = arg;
    size_t stride = (size_t)p->n * sizeof(float);
    struct matmul_args a = {.w_stride = stride,
                            .k = p->n,
                            .type = DT_F32,
                            .x = p->rows,
                            .n_x = (int)p->n,
                            .y = p->at,
                            .scratch = p->scratch,
                            .reading = p->reading};
    int64_t step = p->k ? ITEM_ROWS : p->n;
    for (int64_t row = 0; row < p->n; row += step) {
        a.w = p->w + row * p->n;
        a.n_rows = (int)MIN(step, p->n - row);
        for (int64_t j = 0; j < p->n; j++)
            p->at[j] = p->columns[j] + row;
        if (p->k)
            p->k->matmul_f32[DT_F32](&a);
        else
            blas_matmul(&a, stride, stride);
    }
}

static struct product product_new(int64_t n)
{
    struct product p = {.n = n, .w = micro_floats(n * n, 1), .x = micro_floats(n * n, 2), .y = micro_floats(n * n, 3)};
    p.rows = micro_must(calloc((size_t)n, sizeof *p.rows));
    p.columns = micro_must(calloc((size_t)n, sizeof *p.columns));
    p.at = micro_must(calloc((size_t)n, sizeof *p.at));
    p.scratch = micro_must(aligned_alloc(64, SCRATCH_BYTES));
    for (int64_t j = 0; j < n; j++) {
        p.rows[j] = p.x + j * n;
        p.columns[j] = p.y + j * n;
    }
    return p;
}

static void product_free(struct product *p)
{
    free(p->w);
    free(p->x);
    free(p->y);
    free(p->rows);
    free(p->columns);
    free(p->at);
    free(p->scratch);
}

static void measure_products(struct micro *o)
{
    static const struct {
        int64_t n;
        const char *target;
    } sizes[] = {{256, ""}, {1000, "under 10 ms"}, {1024, ""}, {4096, ""}};
    struct error err;
    for (size_t i = 0; i < COUNT_OF(sizes) - o->quick; i++) {
        struct product p = product_new(sizes[i].n);
        double n = (double)p.n;
        for (int l = 0; l < kernels_count(); l++) {
            p.k = kernels_at(l);
            p.reading = kernels_reading(p.k);
            if (p.n > 1024 && !strcmp(p.k->name, "scalar"))
                continue; // it would take half a minute
            measure(o, &(struct micro_row){"matmul", p.k->name, p.n, n * n * n, "GMAC/s", sizes[i].target}, multiply,
                    &p);
        }
        p.k = NULL;
        if (blas_open(&err) == 0)
            measure(o, &(struct micro_row){"matmul", "OpenBLAS", p.n, n * n * n, "GMAC/s", ""}, multiply, &p);
        product_free(&p);
    }
}

// ---- rows of floats

struct block {
    const struct kernels *k;
    int64_t n;
    float *a, *b, *y;
};

static void add_rows(void *arg)
{
    struct block *r = arg;
    r->k->add(r->a, r->b, r->y, r->n);
}

static void scale_row(void *arg)
{
    struct block *r = arg;
    r->k->scale(r->a, 1.5f, r->y, r->n);
}

static void relu_row(void *arg)
{
    struct block *r = arg;
    r->k->act(ACT_RELU, r->a, r->y, r->n);
}

static void gelu_row(void *arg)
{
    struct block *r = arg;
    r->k->act(ACT_GELU_TANH, r->a, r->y, r->n);
}

static void silu_row(void *arg)
{
    struct block *r = arg;
    r->k->act(ACT_SILU, r->a, r->y, r->n);
}

static void sigmoid_row(void *arg)
{
    struct block *r = arg;
    r->k->act(ACT_SIGMOID, r->a, r->y, r->n);
}

static void swiglu_row(void *arg)
{
    struct block *r = arg;
    r->k->glu(ACT_SILU, r->a, r->b, r->y, r->n);
}

// One reduction: the sum of squares.
static void rms_norm_row(void *arg)
{
    struct block *r = arg;
    r->k->norm(NORM_RMS, r->a, NULL, NULL, 1e-5f, r->n, r->y);
}

// Two reductions: the mean, then the squares of the differences from it.
static void layer_norm_row(void *arg)
{
    struct block *r = arg;
    r->k->norm(NORM_LAYER, r->a, NULL, NULL, 1e-5f, r->n, r->y);
}

// One reduction: the largest magnitude of each block of 256.
static void quantize_row(void *arg)
{
    struct block *r = arg;
    r->k->quantize_q8(r->a, r->n, r->y);
}

static const struct {
    const char *name;
    work_fn *work;
    const char *target; // at a million elements
} row_works[] = {
    {"add", add_rows, "under 1 ms"},
    {"scale", scale_row, "under 1 ms"},
    {"relu", relu_row, "under 1 ms"},
    {"gelu", gelu_row, "under 1 ms"},
    {"silu", silu_row, "under 1 ms"},
    {"sigmoid", sigmoid_row, "under 1 ms"},
    {"swiglu", swiglu_row, ""},
    {"rms_norm", rms_norm_row, "reduction under 2 ms, 0.15 G/s"},
    {"layer_norm", layer_norm_row, "reduction under 2 ms, 0.15 G/s"},
    {"quantize_q8", quantize_row, ""},
};

// Whether r's level computes the bits of the scalar level. An output has at most n floats; where it is shorter (a row
// of 8 bits), the rest of both stays 0.
static bool same_bits(struct block r, work_fn *work, float *want)
{
    const struct kernels *k = r.k;
    struct error err;
    float *own = r.y;
    const size_t size = (size_t)r.n * sizeof *own;
    memset(own, 0, size);
    memset(want, 0, size);
    r.k = kernels_find("scalar", &err);
    r.y = want;
    work(&r);
    r.k = k;
    r.y = own;
    work(&r);
    return memcmp(own, want, size) == 0;
}

static bool measure_rows(struct micro *o)
{
    static const int64_t sizes[] = {10240, 102400, 1024000};
    bool right = true;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct block r = {.n = sizes[i],
                          .a = micro_floats(2 * sizes[i], 4),
                          .b = micro_floats(sizes[i], 5),
                          .y = micro_floats(2 * sizes[i], 6)};
        float *want = micro_floats(2 * sizes[i], 6);
        for (size_t w = 0; w < COUNT_OF(row_works); w++)
            for (int l = 0; l < kernels_count(); l++) {
                r.k = kernels_at(l);
                if (!same_bits(r, row_works[w].work, want)) {
                    fprintf(stderr, "quern-micro: %s of %s has not the bits of plain C\n", row_works[w].name,
                            r.k->name);
                    right = false;
                }
                const char *target = i == COUNT_OF(sizes) - 1 ? row_works[w].target : "";
                measure(o, &(struct micro_row){row_works[w].name, r.k->name, r.n, (double)r.n, "G/s", target},
                        row_works[w].work, &r);
            }
        free(r.a);
        free(r.b);
        free(r.y);
        free(want);
    }
    return right;
}

// ---- log-softmax and compilation

static void log_softmax(void *arg)
{
    struct block *r = arg;
    r->y[0] = logprobs_of(r->a, (int)r->n, 7, NULL, 0);
}

static void measure_log_softmax(struct micro *o)
{
    static const int64_t sizes[] = {1000, 32000, 128256};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct block r = {.n = sizes[i], .a = micro_floats(sizes[i], 7), .y = micro_floats(16, 8)};
        measure(o, &(struct micro_row){"log_softmax", "", r.n, (double)r.n, "G/s", ""}, log_softmax, &r);
        free(r.a);
        free(r.y);
    }
}

static void compile(void *arg)
{
    struct model *m = arg;
    struct error err;
    struct plan *plan;
    struct compile_options o = {.max_tokens = 512, .max_outputs = 1, .kv_type = {DT_F16, DT_F16}};
    if (m->machine->v->compile(m->machine, m->graph, &o, &plan, &err) == 0)
        m->machine->v->plan_free(m->machine, plan);
}

static int measure_compile(struct micro *o)
{
    char path[] = "/tmp/quern-micro-XXXXXX";
    struct error err;
    struct model *m = NULL;
    int fd = mkstemp(path);
    int status =
        fd < 0 ||
        synth_model_write(&(struct synth_options){.preset = "llama-15m", .mix = "Q8_0", .seed = 1}, path, &err) ||
        model_open(&m, &(struct model_options){.path = path, .machine.n_threads = 1}, &err);
    if (!status)
        measure(
            o, &(struct micro_row){"compile", "graph", m->graph->n_nodes, m->graph->n_nodes, "Gnode/s", "under 100 ms"},
            compile, m);
    else
        fprintf(stderr, "quern-micro: %s\n", fd < 0 ? path : err.text);
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    model_close(m);
    return status;
}

static int measure_cpu(struct micro *o)
{
    measure_products(o);
    bool right = measure_rows(o);
    measure_log_softmax(o);
    int status = measure_compile(o);
    return status || !right ? E_ITEMS : E_OK;
}

// Parses "gpu" or "gpu:N".
static bool parse_card(const char *word, int *card)
{
    *card = 0;
    return !strcmp(word, "gpu") ||
           (!strncmp(word, "gpu:", 4) && word[4] >= '0' && word[4] <= '9' && !word[5] && (*card = word[4] - '0', true));
}

static bool parse(struct micro *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--quick"))
            o->quick = true;
        else if (more && !strcmp(argv[i], "-o") && !strcmp(argv[i + 1], "json"))
            o->json = true, i++;
        else if (more && !strcmp(argv[i], "--device") && parse_card(argv[i + 1], &o->card))
            i++;
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct micro o = {.first = true, .card = -1};
    if (!parse(&o, argc, argv)) {
        bool help = argc == 2 && !strcmp(argv[1], "--help");
        fprintf(help ? stdout : stderr,
                "usage: quern-micro [--device gpu[:N]] [--quick] [-o json]\n"
                "Times the building blocks on one thread, or on a card, beside the figures that quern set out from.\n"
                "  --quick  fewer repeats, no product of 4096; on a card only the smallest sizes\n");
        return help ? E_OK : E_USAGE;
    }
    if (o.json)
        printf("[");
    else
        printf("%-12s %-9s %9s %15s %18s %s\n", "what", "by", "size", "time", "speed", "set out from");
    int status = o.card >= 0 ? micro_card(&o) : measure_cpu(&o);
    if (o.json)
        printf("\n]\n");
    return status;
}
