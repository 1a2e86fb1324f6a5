// The GPU part of quern-micro: times graphs of one operation on the GPU machine, by the GPU's own clock, after their
// results have been compared with the CPU machine. It also times transfers, which those times do not include, and
// determines from which size of weights on the GPU is faster than the CPU.
#include "bench/micro.h"
#include "engine/clock.h"
#include "engine/crossover.h"
#include "engine/model.h"
#include "kernels/cpu.h"
#include "kernels/card.h"
#include "models/synth_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PASSES = 15, PASSES_QUICK = 3, LAUNCHES = 20, ROW_WIDTH = 1024, TRANSFER_BYTES = 4 << 20, WEIGHTS = 3 };

struct bench {
    struct micro *o;
    struct machine *cpu, *card;
    struct converters converters;
    int n_threads;
    bool wrong; // a result differed from the CPU's
};

// A graph with one operation. Its inputs are rows of tables: input a is looked up by token, input b by position. w[0]
// and w[1] are the tables of a and b, w[2] is the matrix of a product.
struct one {
    struct graph *graph;
    struct weight w[WEIGHTS];
    int64_t rows, width, n_out;
};

static double seconds(void)
{
    return clock_ms() * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

// ---- graphs

static struct weight table(int64_t width, int64_t rows, uint32_t seed)
{
    return (struct weight){.name = "table",
                           .type = DT_F32,
                           .ne = {width, rows, 1},
                           .data = micro_floats(width * rows, seed),
                           .row_bytes = (size_t)width * sizeof(float)};
}

// Makes a square matrix of random numbers in a type.
static struct weight matrix(const struct bench *b, enum dtype type, int64_t n)
{
    struct weight w = table(n, n, 3);
    if (type == DT_F32)
        return w;
    float *from = (float *)(uintptr_t)w.data;
    w.type = type;
    w.row_bytes = dtype_row_bytes(type, n);
    w.data = micro_must(aligned_alloc(64, align_up(w.row_bytes * (size_t)n, 64)));
    if (b->converters.encode[type])
        b->converters.encode[type](from, (void *)(uintptr_t)w.data, n * n);
    else
        b->converters.quantize[type](from, NULL, (void *)(uintptr_t)w.data, n * n);
    free(from);
    return w;
}

typedef struct tensor *op_fn(struct graph *g, struct tensor *a, struct tensor *b);

static struct tensor *op_add(struct graph *g, struct tensor *a, struct tensor *b)
{
    return graph_add(g, "op", a, b);
}

static struct tensor *op_scale(struct graph *g, struct tensor *a, struct tensor *b)
{
    (void)b;
    return graph_scale(g, "op", a, 1.5f);
}

static struct tensor *op_relu(struct graph *g, struct tensor *a, struct tensor *b)
{
    (void)b;
    return graph_act(g, "op", a, ACT_RELU);
}

static struct tensor *op_gelu(struct graph *g, struct tensor *a, struct tensor *b)
{
    (void)b;
    return graph_act(g, "op", a, ACT_GELU_TANH);
}

static struct tensor *op_silu(struct graph *g, struct tensor *a, struct tensor *b)
{
    (void)b;
    return graph_act(g, "op", a, ACT_SILU);
}

static struct tensor *op_sigmoid(struct graph *g, struct tensor *a, struct tensor *b)
{
    (void)b;
    return graph_act(g, "op", a, ACT_SIGMOID);
}

static struct tensor *op_swiglu(struct graph *g, struct tensor *a, struct tensor *b)
{
    return graph_glu(g, "op", a, b, ACT_SILU);
}

static struct tensor *op_rms_norm(struct graph *g, struct tensor *a, struct tensor *b)
{
    (void)b;
    return graph_norm(g, "op", a, NULL, NULL, NORM_RMS, 1e-5f, 0);
}

static struct tensor *op_layer_norm(struct graph *g, struct tensor *a, struct tensor *b)
{
    (void)b;
    return graph_norm(g, "op", a, NULL, NULL, NORM_LAYER, 1e-5f, 0);
}

// Builds the graph of an operation; op NULL: the product with w[2].
static int build(struct one *one, op_fn *op, struct error *err)
{
    struct graph *g = one->graph = graph_new();
    if (!g)
        return fail(err, E_MEMORY, "no memory for a graph");
    struct tensor *a = graph_embed(g, "a", &one->w[0], INPUT_TOKENS, 1), *b = NULL;
    if (op == op_add || op == op_swiglu)
        b = graph_output_rows(g, "b_out", graph_embed(g, "b", &one->w[1], INPUT_POSITIONS, 1));
    a = graph_output_rows(g, "a_out", a);
    return graph_finish(g, op ? op(g, a, b) : graph_matmul(g, "op", a, &one->w[2], NULL), err);
}

static void one_free(struct one *one)
{
    graph_free(one->graph);
    for (int i = 0; i < WEIGHTS; i++)
        free((void *)(uintptr_t)one->w[i].data);
}

// ---- runs

// Runs a step whose rows are all inputs and outputs.
static int run(struct machine *m, struct plan *p, const struct one *one, float *out, struct error *err)
{
    int32_t *numbers = micro_must(calloc(2 * (size_t)one->rows, sizeof *numbers));
    for (int32_t i = 0; i < one->rows; i++)
        numbers[i] = i;
    struct step s = {.n_tokens = (int)one->rows,
                     .n_outputs = (int)one->rows,
                     .tokens = numbers,
                     .positions = numbers,
                     .seqs = numbers + one->rows, // all 0
                     .outputs = numbers,
                     .logits = out};
    int status = m->v->run(m, p, &s, err);
    free(numbers);
    return status;
}

static int compile(struct machine *m, const struct one *one, bool profile, struct plan **out, struct error *err)
{
    struct compile_options c = {.max_tokens = (int)one->rows, .max_outputs = (int)one->rows, .profile = profile};
    return m->v->compile(m, one->graph, &c, out, err);
}

static int run_on_cpu(const struct bench *b, const struct one *one, float *out, struct error *err)
{
    struct plan *p;
    if (compile(b->cpu, one, false, &p, err))
        return -1;
    int status = run(b->cpu, p, one, out, err);
    b->cpu->v->plan_free(b->cpu, p);
    return status;
}

// Returns the seconds of the operation in the last run: of all nodes except those that make its inputs.
static double take_time(const struct bench *b, struct plan *p)
{
    const struct node_time *times;
    double wait, ns = 0;
    int n;
    b->card->v->profile(p, &times, &n, &wait);
    for (int i = 0; i < n; i++) {
        const char *name = times[i].node->name;
        if (strcmp(name, "a") && strcmp(name, "b") && strcmp(name, "a_out") && strcmp(name, "b_out"))
            ns += times[i].ns;
    }
    return ns * 1e-9;
}

// Returns the sum of squared differences, divided by the sum of squares.
static double difference(const float *got, const float *want, int64_t n)
{
    double d = 0, s = 0;
    for (int64_t i = 0; i < n; i++) {
        d += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        s += (double)want[i] * (double)want[i];
    }
    return s > 0 ? d / s : INFINITY;
}

static int time_one(struct bench *b, const struct one *one, const struct micro_row *row, double bound,
                    struct error *err)
{
    int passes = b->o->quick ? PASSES_QUICK : PASSES;
    int64_t n = one->rows * one->n_out;
    double took[PASSES];
    struct plan *p = NULL;
    float *got = micro_floats(n, 8), *want = micro_floats(n, 9);
    int status =
        run_on_cpu(b, one, want, err) || compile(b->card, one, true, &p, err) || run(b->card, p, one, got, err);
    if (!status && !(difference(got, want, n) <= bound)) {
        fprintf(stderr, "quern-micro: %s %s of %lld: error of squares %.3g against the CPU, more than %g\n", row->what,
                row->by, (long long)row->size, difference(got, want, n), bound);
        b->wrong = true;
    }
    if (p) {
        card_repeat(p, b->o->quick ? 1 : LAUNCHES);
        take_time(b, p);
    }
    for (int i = 0; !status && i < passes; i++) {
        status = run(b->card, p, one, got, err);
        took[i] = take_time(b, p);
    }
    if (!status)
        micro_print(b->o, row, median(took, passes));
    if (p)
        b->card->v->plan_free(b->card, p);
    free(got);
    free(want);
    return status;
}

// ---- rows of the output

// Returns a small size that is not a multiple of a tile, if the type's block allows it.
static int64_t quick_size(enum dtype type)
{
    int block = dtype_info[type].block;
    return block == 1 ? 40 : MAX(block, 64);
}

static int measure_products(struct bench *b, struct error *err)
{
    static const int64_t sizes[] = {256, 1000, 1024, 4096};
    static const enum dtype types[] = {DT_F32, DT_F16, DT_Q8_0, DT_Q4_K};
    for (size_t i = 0; i < (b->o->quick ? 1 : COUNT_OF(sizes)); i++)
        for (size_t t = 0; t < COUNT_OF(types); t++) {
            int64_t n = b->o->quick ? quick_size(types[t]) : sizes[i];
            if (n % dtype_info[types[t]].block)
                continue;
            struct one one = {.rows = n, .width = n, .n_out = n, .w = {table(n, n, 1)}};
            one.w[2] = matrix(b, types[t], n);
            double products = (double)n * (double)n * (double)n;
            struct micro_row row = {"matmul", dtype_info[types[t]].name,
                                    n,        products,
                                    "GMAC/s", n == 1000 && types[t] == DT_F32 ? "under 1 ms" : ""};
            int status = build(&one, NULL, err) ||
                         time_one(b, &one, &row, dtype_info[types[t]].kind == DTYPE_KIND_FLOAT ? 1e-5 : 2e-4, err);
            one_free(&one);
            if (status)
                return -1;
        }
    return 0;
}

static int measure_rows(struct bench *b, struct error *err)
{
    static const struct {
        const char *name;
        op_fn *op;
        const char *target; // at a million elements
    } works[] = {
        {"add", op_add, "under 0.1 ms"},
        {"scale", op_scale, "under 0.1 ms"},
        {"relu", op_relu, "under 0.1 ms"},
        {"gelu", op_gelu, "under 0.1 ms"},
        {"silu", op_silu, "under 0.1 ms"},
        {"sigmoid", op_sigmoid, "under 0.1 ms"},
        {"swiglu", op_swiglu, ""},
        {"rms_norm", op_rms_norm, "reduction under 0.2 ms, 0.15 G/s"},
        {"layer_norm", op_layer_norm, "reduction under 0.2 ms, 0.15 G/s"},
    };
    static const int64_t rows[] = {10, 100, 1000};
    for (size_t i = 0; i < (b->o->quick ? 1 : COUNT_OF(rows)); i++)
        for (size_t w = 0; w < COUNT_OF(works); w++) {
            struct one one = {.rows = rows[i], .width = ROW_WIDTH, .n_out = ROW_WIDTH};
            one.w[0] = table(ROW_WIDTH, rows[i], 4);
            one.w[1] = table(ROW_WIDTH, rows[i], 5);
            int64_t n = rows[i] * ROW_WIDTH;
            struct micro_row row = {works[w].name, "gpu", n, (double)n, "G/s", rows[i] == 1000 ? works[w].target : ""};
            int status = build(&one, works[w].op, err) || time_one(b, &one, &row, 1e-10, err);
            one_free(&one);
            if (status)
                return -1;
        }
    return 0;
}

// Times transfers to and from the GPU, by the host's clock, until the bytes have arrived.
static int measure_transfers(struct bench *b, struct error *err)
{
    struct machine *m = b->card;
    struct buffer *buffer;
    double in[PASSES], out[PASSES];
    int passes = b->o->quick ? PASSES_QUICK : PASSES, status = 0;
    float *bytes = micro_floats(TRANSFER_BYTES / (int64_t)sizeof *bytes, 1);
    if (m->v->alloc(m, TRANSFER_BYTES, &buffer, err)) {
        free(bytes);
        return -1;
    }
    for (int i = 0; !status && i < passes; i++) {
        float word;
        double start = seconds();
        // the read of one word waits for the earlier put
        status =
            m->v->put(m, buffer, 0, bytes, TRANSFER_BYTES, err) || m->v->get(m, buffer, 0, &word, sizeof word, err);
        double middle = seconds();
        status = status || m->v->get(m, buffer, 0, bytes, TRANSFER_BYTES, err);
        out[i] = seconds() - middle;
        in[i] = middle - start;
    }
    m->v->free(m, buffer);
    free(bytes);
    if (status)
        return -1;
    micro_print(b->o, &(struct micro_row){"transfer", "to card", TRANSFER_BYTES, TRANSFER_BYTES, "GB/s", ""},
                median(in, passes));
    micro_print(b->o, &(struct micro_row){"transfer", "from card", TRANSFER_BYTES, TRANSFER_BYTES, "GB/s", ""},
                median(out, passes));
    return 0;
}

// Times the compilation of a small model from its graph to the kernels on the GPU, with the upload of its weights. Sets
// *n_launches to the launches of a step.
static int compile_model(struct bench *b, const char *path, int *n_launches, struct error *err)
{
    struct model *model;
    struct plan *p;
    size_t bytes;
    struct compile_options c = {.max_tokens = 512, .max_outputs = 1, .kv_type = {DT_F16, DT_F16}};
    if (model_open(&model, &(struct model_options){.path = path, .device = DEVICE_CPU, .machine.n_threads = 1}, err))
        return -1;
    double start = seconds();
    int status = b->card->v->compile(b->card, model->graph, &c, &p, err);
    double took = seconds() - start;
    if (!status) {
        int n = model->graph->n_nodes;
        card_plan(b->card, p, n_launches, &bytes);
        b->card->v->plan_free(b->card, p);
        micro_print(b->o, &(struct micro_row){"compile", "graph", n, n, "Gnode/s", "under 100 ms"}, took);
    }
    model_close(model);
    return status;
}

static int measure_compile(struct bench *b, int *n_launches, struct error *err)
{
    char path[] = "/tmp/quern-micro-XXXXXX";
    struct synth_options synth = {.preset = b->o->quick ? "llama-tiny" : "llama-15m", .mix = "Q8_0", .seed = 1};
    int fd = mkstemp(path);
    if (fd < 0)
        return fail(err, E_IO, "%s cannot be made", path);
    int status = synth_model_write(&synth, path, err) || compile_model(b, path, n_launches, err);
    close(fd);
    unlink(path);
    return status;
}

static void print_crossover(struct bench *b, const struct crossover *x, const char *by, int n_launches)
{
    double bytes = crossover_bytes(x, n_launches);
    if (isinf(bytes)) {
        if (!b->o->json)
            printf("crossover    %-9s none: the CPU reads as fast as the card copies\n", by);
        return;
    }
    micro_print(b->o, &(struct micro_row){"crossover", by, (int64_t)bytes, 1e9, "t/s", "products from 500x500"},
                crossover_on_cpu(x, bytes));
}

// Prints what --device auto decides by. The size of a crossover is the bytes of weights that a token reads.
static int measure_crossover(struct bench *b, int n_launches, struct error *err)
{
    struct crossover x;
    char launches[24];
    if (crossover_measure(b->card, b->n_threads, NULL, &x, err))
        return -1;
    micro_print(b->o, &(struct micro_row){"step", "gpu", 1, 1e9, "/s", ""}, x.step);
    micro_print(b->o, &(struct micro_row){"launch", "gpu", 1, 1e9, "/s", ""}, x.launch);
    micro_print(b->o, &(struct micro_row){"copy", "gpu", 1 << 20, 1 << 20, "GB/s", ""}, (1 << 20) / x.copy);
    micro_print(b->o, &(struct micro_row){"read", "cpu", 1 << 20, 1 << 20, "GB/s", ""}, (1 << 20) / x.read);
    snprintf(launches, sizeof launches, "%d", n_launches);
    print_crossover(b, &x, launches, n_launches);
    print_crossover(b, &x, "100", 100);
    print_crossover(b, &x, "300", 300);
    return 0;
}

static int measure_all(struct bench *b, struct error *err)
{
    int n_launches = 1;
    return measure_products(b, err) || measure_rows(b, err) || measure_transfers(b, err) ||
                   measure_compile(b, &n_launches, err) || measure_crossover(b, n_launches, err)
               ? -1
               : 0;
}

int micro_card(struct micro *o)
{
    struct bench b = {.o = o};
    struct error err = {0};
    struct machine_cpu_choice choice;
    int status =
        machine_open_cpu(&b.cpu, &(struct machine_options){0}, &err) ||
        machine_open_gpu(&b.card, &(struct machine_options){0}, &(struct gpu_options){.device = o->card}, &err);
    if (!status) {
        machine_cpu_choice(b.cpu, &choice);
        machine_cpu_converters(b.cpu, &b.converters);
        b.n_threads = choice.n_threads;
        status = measure_all(&b, &err);
    }
    if (b.card)
        b.card->v->close(b.card);
    if (b.cpu)
        b.cpu->v->close(b.cpu);
    if (status)
        fprintf(stderr, "quern-micro: %s\n", err.text);
    return status ? (int)err.code : b.wrong ? E_ITEMS : E_OK;
}
