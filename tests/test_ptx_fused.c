// Tests a step of one row on the GPU machine, with the tests' libcuda: the number of launches of a layer; that fused
// kernels give the bits of the kernels for single nodes and agree with the CPU; and that ptxas accepts their texts.
#include "kernels/card.h"
#include "kernels/ptx/emit_fused_ring.h"
#include "kernels/ptx/gpu.h"
#include "tests/built_model.h"
#include "tests/golden.h"
#include "tests/ptx/quern_cuda.h"

#include <criterion/criterion.h>
#include <math.h>

enum { STEPS = 4, PAGES = 2 };

static struct machine *open_card(bool exact, int variant)
{
    struct machine *m;
    struct error err = {0};
    cr_assert_eq(machine_open_gpu(&m, &(struct machine_options){.exact = exact},
                                  &(struct gpu_options){.variant = variant}, &err),
                 0, "%s", err.text);
    return m;
}

static struct plan *compile(struct machine *m, const struct graph *g, int rows, enum dtype kv, const struct taps *taps)
{
    struct plan *p;
    struct error err = {0};
    struct compile_options o = {rows, 1, {kv, kv}, false, taps};
    cr_assert_eq(m->v->compile(m, g, &o, &p, &err), 0, "%s", err.text);
    return p;
}

// ---- launches

// Counts the launches for one row: those named for a layer, and others.
static void count_launches(const struct plan *p, int *of_layers, int *others)
{
    const struct gpu_list *list = &p->lists[GPU_ONE_ROW];
    *of_layers = *others = 0;
    for (int i = 0; i < list->n_launches; i++) {
        bool layer = !strncmp(list->launches[i].node->name, "blk.", 4);
        *(layer ? of_layers : others) += 1;
        if (!layer)
            fprintf(stderr, " %s", list->launches[i].node->name);
    }
}

static void check_launches(const char *preset, const char *mix, int a_layer)
{
    struct built_model model = build_model(preset, mix, 7);
    struct machine *m = open_card(false, 0);
    struct plan *p = compile(m, model.graph, 8, DT_F16, NULL);
    int of_layers, others;
    fprintf(stderr, "%s, %s: beside the layers", preset, mix);
    count_launches(p, &of_layers, &others);
    fprintf(stderr, "; %d launches of %d layers\n", of_layers, model.info.n_layer);
    cr_expect(of_layers <= a_layer * model.info.n_layer, "%s: %d launches of %d layers", preset, of_layers,
              model.info.n_layer);
    cr_expect(others <= 3, "%s: %d launches that belong to no layer", preset, others); // tables, the head
    m->v->plan_free(m, p);
    m->v->close(m);
    built_model_free(&model);
}

Test(ptx_fused, one_row_takes_five_launches_a_layer)
{
    check_launches("llama-tiny", "Q4_K_M", 5);
    check_launches("llama-tiny", "F16", 5);
    check_launches("qwen2-tiny", "Q4_K_M", 5);
    check_launches("qwen3-tiny", "Q4_K_M", 5);
    check_launches("gemma2-tiny", "Q4_K_M", 5);
    check_launches("phi3-tiny", "Q4_K_M", 5);
    check_launches("gpt2-tiny", "Q8_0", 5);
}

// A layer of a mixture: QKV, attention, O, the router, gate and up, down. A shared expert's output takes one more.
Test(ptx_fused, one_row_takes_six_launches_a_layer_of_experts)
{
    check_launches("llama-moe-tiny", "Q4_K_M", 6);
    check_launches("llama-moe-tiny", "F16", 6);
    check_launches("qwen3-moe-tiny", "Q4_K_M", 6);
    check_launches("qwen3-moe-tiny", "Q8_0", 6);
    check_launches("gpt-oss-tiny", "MXFP4", 6);
    check_launches("gpt-oss-tiny", "BF16", 6);
}

// Latent attention: its slices, rotations and norms are a launch, and so are its joins with the write to the cache.
Test(ptx_fused, one_row_takes_twelve_launches_a_layer_of_latent_attention)
{
    check_launches("deepseek2-tiny", "Q4_K_M", 12);
}

// ---- bits

struct run {
    struct machine *m;
    struct plan *plan;
    struct buffer *kv;
    float logits[STEPS][N_VOCAB + 64];
};

static void look_away(void *arg, int i, const float *rows, size_t stride, int n_rows)
{
    (void)arg, (void)i, (void)rows, (void)stride, (void)n_rows;
}

static void run_open(struct run *r, struct machine *m, const struct graph *g, enum dtype type, const struct taps *taps)
{
    struct error err = {0};
    r->m = m;
    r->plan = compile(m, g, 1, type, taps);
    cr_assert_eq(m->v->alloc(m, kv_page_bytes(g, (enum dtype[2]){type, type}) * PAGES, &r->kv, &err), 0, "%s",
                 err.text);
    for (int i = 0; i < STEPS; i++) {
        static const int32_t pages[] = {1, 0};
        // behind the first page's end as well
        int32_t token = (37 * i + 5) % N_VOCAB, position = i < STEPS - 1 ? i : KV_PAGE, seq = 0, output = 0;
        struct step s = {1, 1,    &token, &position, &seq, &output, pages, PAGES, r->kv, r->logits[i],
                         0, NULL, NULL,   NULL,      NULL, NULL};
        cr_assert_eq(m->v->run(m, r->plan, &s, &err), 0, "%s", err.text);
    }
}

static void run_close(struct run *r)
{
    r->m->v->free(r->m, r->kv);
    r->m->v->plan_free(r->m, r->plan);
}

// Compares a variant of fused kernels with the first one.
static void check_variant(const struct built_model *model, int variant, const struct run *first, enum dtype type,
                          const char *what)
{
    static struct run other;
    struct machine *m = open_card(false, variant);
    run_open(&other, m, model->graph, type, NULL);
    for (int i = 0; i < STEPS; i++)
        cr_expect(!memcmp(first->logits[i], other.logits[i], (size_t)model->info.n_vocab * sizeof(float)),
                  "%s: step %d has other bits in variant %d", what, i, variant);
    run_close(&other);
    m->v->close(m);
}

// Compares fused kernels with a kernel for each node (which a tap needs), with kernels that have a ring, and with the
// CPU.
static void check_bits(const char *preset, const char *mix, bool exact, enum dtype type, double bound)
{
    static struct run fused, single, cpu;
    struct built_model model = build_model(preset, mix, 7);
    struct machine *m = open_card(exact, 0), *host;
    struct error err = {0};
    const struct tensor *tapped[] = {model.graph->nodes[1]};
    struct taps taps = {tapped, 1, look_away, NULL};
    cr_assert_eq(machine_open_cpu(&host, &(struct machine_options){.n_threads = 1, .exact = exact}, &err), 0);
    run_open(&fused, m, model.graph, type, NULL);
    run_open(&single, m, model.graph, type, &taps);
    run_open(&cpu, host, model.graph, type, NULL);
    cr_expect(fused.plan->lists[GPU_ONE_ROW].n_launches && !single.plan->lists[GPU_ONE_ROW].n_launches);
    for (int i = 0; i < STEPS; i++) {
        size_t n = (size_t)model.info.n_vocab;
        double error = nmse(fused.logits[i], cpu.logits[i], n);
        cr_expect(!memcmp(fused.logits[i], single.logits[i], n * sizeof(float)),
                  "%s, %s, cache %s: step %d has other bits", preset, mix, dtype_info[type].name, i);
        cr_expect(error <= bound, "%s, %s, cache %s: step %d, NMSE %.3g", preset, mix, dtype_info[type].name, i, error);
    }
    if (!exact && !strncmp(preset, "llama", 5)) // test_ptx_ring.c has all types
        check_variant(&model, FUSED_RING, &fused, type, mix);
    run_close(&fused);
    run_close(&single);
    run_close(&cpu);
    m->v->close(m);
    host->v->close(host);
    built_model_free(&model);
}

// The only differences are roundings to 8 bits or to the cache's type that change with the last bit of a norm.
#define ROUNDED 1e-3
Test(ptx_fused, gives_the_bits_of_single_nodes)
{
    check_bits("llama-tiny", "Q4_K_M", false, DT_F16, ROUNDED);
    check_bits("qwen3-tiny", "Q4_K_M", false, DT_Q8_0, ROUNDED);
    check_bits("llama-tiny", "Q8_0", false, DT_Q4_0, ROUNDED);
    check_bits("gemma2-tiny", "Q5_K", false, DT_BF16, ROUNDED);
    check_bits("gpt2-tiny", "Q4_0", false, DT_F32, ROUNDED);
    check_bits("phi3-tiny", "F16", false, DT_F16, 1e-5);
    check_bits("qwen3-tiny", "BF16", false, DT_F16, 1e-5);
    check_bits("gpt2-tiny", "F16", false, DT_F32, 1e-5);
    check_bits("phi3-tiny", "F16", true, DT_F16, 1e-5);
    check_bits("qwen3-tiny", "Q4_K", true, DT_F32, 1e-9);
}

Test(ptx_fused, gives_the_bits_of_single_nodes_of_experts)
{
    check_bits("qwen3-moe-tiny", "Q4_K_M", false, DT_F16, ROUNDED);
    check_bits("gpt-oss-tiny", "MXFP4", false, DT_F16, ROUNDED);
    check_bits("deepseek2-tiny", "Q5_K", false, DT_F16, ROUNDED);
    check_bits("llama-moe-tiny", "BF16", false, DT_F16, 1e-5);
    check_bits("deepseek2-tiny", "F16", false, DT_F32, 1e-5);
    check_bits("deepseek2-tiny", "Q8_0", false, DT_Q8_0, ROUNDED);
    check_bits("deepseek2-tiny", "Q4_0", false, DT_Q4_0, ROUNDED);
    check_bits("llama-moe-tiny", "Q4_K", true, DT_F32, 1e-9);
}

// ---- rows that have no room in a fused kernel

// Makes rows of Q4_0 with small, different weights. The caller frees the data.
static struct weight noise(const char *name, int64_t k, int64_t n)
{
    struct weight w = {.name = name, .type = DT_Q4_0, .ne = {k, n, 1}, .row_bytes = (size_t)k / 32 * 18};
    uint8_t *data = malloc((size_t)n * w.row_bytes);
    uint32_t state = 1;
    cr_assert_not_null(data);
    for (size_t i = 0; i < (size_t)n * w.row_bytes; i++) {
        state = state * 1664525 + 1013904223;
        data[i] = i % 18 == 0 ? (uint8_t)(state >> 28) : i % 18 == 1 ? 0x1c : (uint8_t)(state >> 24); // scales of 2^-8
    }
    w.data = data;
    return w;
}

// Compiles a graph of a table, a norm and an output head with rows of k for a GPU of 7.5, and checks the number of
// launches.
static void check_wide(int64_t k, int n_launches)
{
    struct weight table = noise("table", k, 8), head = noise("head", k, 8);
    struct graph *g = graph_new();
    struct machine *m = open_card(false, 0);
    struct error err = {0};
    float logits[2][8];
    struct tensor *x = graph_embed(g, "embed", &table, INPUT_TOKENS, 1);
    struct tensor *normed = graph_norm(g, "norm", x, NULL, NULL, NORM_RMS, 1e-5f, 0);
    cr_assert_eq(graph_finish(g, graph_matmul(g, "out", graph_output_rows(g, "rows", normed), &head, NULL), &err), 0,
                 "%s", err.text);
    const struct tensor *tapped[] = {x};
    struct taps taps = {tapped, 1, look_away, NULL};
    for (int i = 0; i < 2; i++) {
        struct plan *p = compile(m, g, 1, DT_F16, i ? &taps : NULL);
        int32_t token = 3, zero = 0;
        struct step s = {1, 1, &token, &zero, &zero, &zero, NULL, 0, NULL, logits[i], 0, NULL, NULL, NULL, NULL, NULL};
        cr_assert_eq(m->v->run(m, p, &s, &err), 0, "%s", err.text);
        cr_expect(i || p->lists[GPU_ONE_ROW].n_launches == n_launches, "%lld: %d launches", (long long)k,
                  p->lists[GPU_ONE_ROW].n_launches);
        m->v->plan_free(m, p);
    }
    cr_expect(!memcmp(logits[0], logits[1], sizeof logits[0]), "%lld: other bits", (long long)k);
    cr_expect(isfinite(logits[0][0]) && logits[0][0] != 0);
    m->v->close(m);
    graph_free(g);
    free((void *)(uintptr_t)table.data);
    free((void *)(uintptr_t)head.data);
}

Test(ptx_fused, rows_without_room_are_made_before)
{
    check_wide(4096, 2);    // the table, and all the rest
    check_wide(40960, 4);   // the norm and its 8 bits have launches of their own, the product reads them
    check_wide(2 << 16, 4); // not even the sums have room: the product as well
}

// From compute capability 9.0 on, launches start before the earlier ones have ended. The interpreter checks that they
// wait before they read.
Test(ptx_fused, begins_early_where_cards_know_how)
{
    struct quern_cuda_counts before, after;
    quern_cuda_count(&before);
    check_bits("llama-tiny", "Q4_K_M", false, DT_F16, ROUNDED);
    quern_cuda_count(&after);
    struct quern_cuda_setup old = {1, 8, 6, 13000, (size_t)1 << 30};
    cr_expect(after.dependent > before.dependent, "no launch of a card of 9.0 began early");
    quern_cuda_set(&old);
    check_bits("llama-tiny", "Q4_K_M", false, DT_F16, ROUNDED);
    quern_cuda_count(&before);
    cr_expect_eq(before.dependent, after.dependent);
}

// ---- ptxas, where it is found: no warnings, no spills; for every architecture in the long suite
#ifdef EVERY_ARCH
static const int archs[] = {75, 80, 86, 89, 90, 100, 120};
#else
static const int archs[] = {75};
#endif

// Checks that two CTAs of a narrow kernel fit on a multiprocessor: its registers, threads and shared memory.
static void check_room(const char *report, int arch, const struct ptx_fused *f, const struct ptx_launch *l,
                       const char *what)
{
    const char *used = strstr(report, "Used "), *shared = strstr(report, " bytes smem");
    const uint32_t threads = l->block[0], most = arch == 75                                ? 1024
                                                 : arch == 86 || arch == 89 || arch == 120 ? 1536
                                                                                           : 2048;
    uint32_t registers = used ? (uint32_t)atoi(used + 5) : 0, bytes = l->shared;
    while (shared && shared > report && shared[-1] >= '0' && shared[-1] <= '9')
        shared--;
    bytes += shared ? (uint32_t)atoi(shared) : 0;
    cr_assert(used, "%s", report);
    cr_expect(2 * threads * align_up(registers, 8) <= 65536 && 2 * threads <= most,
              "%s, sm_%d, variant %d: %u threads of %u registers", what, arch, f->variant, threads, registers);
    cr_expect(f->variant < FUSED_RING || bytes <= ptx_ring_shared((uint32_t)arch),
              "%s, sm_%d: %u bytes of shared memory", what, arch, bytes);
}

static void assemble(const char *folder, int arch, const struct ptx_fused *f, const struct ptx_launch *l,
                     const char *what)
{
    char command[256], report[4096];
    snprintf(command, sizeof command, "ptxas -v -arch=sm_%d -o %s/cubin %s/ptx 2>&1", arch, folder, folder);
    FILE *out = popen(command, "r");
    cr_assert_not_null(out);
    report[fread(report, 1, sizeof report - 1, out)] = 0;
    cr_expect_eq(pclose(out), 0, "%s, sm_%d: %s", what, arch, report);
    cr_expect(!strstr(report, "warning"), "%s, sm_%d: %s", what, arch, report);
    cr_expect(strstr(report, " 0 bytes spill stores, 0 bytes spill loads"), "%s, sm_%d, variant %d: %s", what, arch,
              f->variant, report);
    if (f->variant >= (f->halves ? FUSED_RING : FUSED_SMALL))
        check_room(report, arch, f, l, what);
}

static void write_text(const char *folder, const struct ptx *p)
{
    char path[128];
    snprintf(path, sizeof path, "%s/ptx", folder);
    FILE *out = fopen(path, "w");
    cr_assert(out && fwrite(p->data, 1, p->size, out) == p->size && !fclose(out));
}

// Assembles a text for all architectures from `least` on, and at least for that.
static void assemble_text(const char *folder, const struct ptx *p, int least, const char *what)
{
    const struct ptx_fused none = {.variant = FUSED_WIDE};
    bool any = false;
    write_text(folder, p);
    for (size_t a = 0; a <= COUNT_OF(archs); a++) {
        int arch = a < COUNT_OF(archs) ? archs[a] : least;
        if (arch < least || (a == COUNT_OF(archs) && any))
            continue;
        any = true;
        assemble(folder, arch, &none, NULL, what);
    }
}

static char text_of_kernel[1 << 20];

static void assemble_for(const char *folder, const struct ptx_fused *f, int arch, const char *what)
{
    struct ptx p;
    struct ptx_launch launch;
    struct error err = {0};
    ptx_start(&p, text_of_kernel, sizeof text_of_kernel);
    cr_assert_eq(ptx_emit_fused(&p, f, &launch, &err), 0, "%s: %s", what, err.text);
    write_text(folder, &p);
    assemble(folder, arch, f, &launch, what);
}

// Assembles each variant for each architecture that the kernel serves, at least for the first of these. The last two
// variants have one text.
static void assemble_spec(const char *folder, const struct ptx_fused *spec, const char *what)
{
    struct ptx_fused f = *spec;
    const int least = f.dependent ? 90 : f.halves ? 80 : 75;
    bool any = false;
    for (size_t a = 0; a <= COUNT_OF(archs); a++) {
        int arch = a < COUNT_OF(archs) ? archs[a] : least;
        if (arch < least || (a == COUNT_OF(archs) && any))
            continue;
        any = true;
        f.target = (uint32_t)arch;
        uint32_t variants = MIN(ptx_fused_variants(&f), (uint32_t)FUSED_RING_PAIR);
        for (f.variant = FUSED_WIDE; f.variant < variants; f.variant++)
            assemble_for(folder, &f, arch, what);
    }
}

// A node of each kind, of the widest rows and the largest groups.
static struct ptx_row chain(enum norm_kind kind, enum rope_layout layout, enum dtype kv)
{
    const uint32_t width = PTX_ROW_WIDTH;
    struct ptx_row r = {.n_nodes = 7, .n_params = 12};
    for (int i = 0; i < r.n_nodes; i++)
        r.nodes[i] = (struct ptx_row_node){
            .width = width, .a = i - 1, .b = -1, .x = i, .z = i + 1, .y = i + 2, .gain = 10, .bias = 11};
    r.nodes[0].kind = PTX_ROW_SLICE;
    r.nodes[0].slice = (struct ptx_slice){.group = 192, .from = 128, .n = 64};
    r.nodes[1].kind = PTX_ROW_NORM;
    r.nodes[1].norm = (struct ptx_norm){.group = PTX_ROW_GROUP, .kind = kind, .eps = 1e-5f};
    r.nodes[2].kind = PTX_ROW_ROPE;
    r.nodes[2].rope = (struct ptx_rope){.head_dim = 64, .pairs = 16, .layout = layout};
    r.nodes[3].kind = PTX_ROW_JOIN;
    r.nodes[3].join = (struct ptx_join){.first = 32, .second = 32};
    r.nodes[4].kind = PTX_ROW_ELEMENT;
    r.nodes[4].element = (struct ptx_elements){.op = PTX_GLU, .act = ACT_GELU_ERF};
    r.nodes[5].kind = PTX_ROW_NORM;
    r.nodes[5].norm = (struct ptx_norm){.group = 100, .kind = kind, .by_column = true};
    r.nodes[5].width = 1700;
    r.nodes[6].kind = PTX_ROW_KV;
    r.nodes[6].kv = (struct ptx_kv){.page_bytes = 1 << 20, .dim = 64, .type = kv};
    return r;
}

static void assemble_chains(const char *folder)
{
    struct ptx p;
    struct ptx_launch launch;
    struct error err = {0};
    for (int i = 0; i < 2; i++) {
        struct ptx_row r = chain(i ? NORM_LAYER : NORM_RMS, i ? ROPE_NEOX : ROPE_NORM, i ? DT_Q4_0 : DT_F16);
        r.dependent = i;
        ptx_start(&p, text_of_kernel, sizeof text_of_kernel);
        cr_assert_eq(ptx_emit_row(&p, &r, &launch, &err), 0, "%s", err.text);
        assemble_text(folder, &p, i ? 90 : 75, "a chain");
    }
}

// A row of 4096 with a norm in the prologue, and queries, keys and values as products: rotary positions, norms of
// heads, writes to the cache.
static struct ptx_fused qkv(enum dtype type, enum dtype values, enum dtype kv, bool neox)
{
    struct ptx_fused f = {.n_in = 4096, .q8 = ptx_takes_q8(type), .n_prologue = 2, .n_sections = 2, .n_params = 12};
    f.prologue[0] = (struct ptx_fused_node){.kind = FUSED_LOAD, .param = 0, .other = -1, .store = -1};
    f.prologue[1] = (struct ptx_fused_node){.kind = FUSED_NORM, .param = 1, .other = -1, .store = -1};
    f.prologue[1].norm.group = 4096;
    if (!f.q8)
        f.n_in = f.prologue[1].norm.group = 2048; // that has room in shared memory
    for (int i = 0; i < 2; i++) {
        struct ptx_fused_section *s = &f.sections[i];
        struct ptx_fused_node *n = s->nodes;
        *s = (struct ptx_fused_section){.n_out = 1024, .unit = neox ? 128 : 32, .n_legs = 1};
        s->legs[0] = (struct ptx_fused_leg){i ? values : type, 2 + i, i ? -1 : 4, -1};
        n[s->n_nodes++] = (struct ptx_fused_node){.kind = FUSED_SUM, .param = -1, .other = -1, .store = -1};
        if (!i && neox) {
            n[s->n_nodes] = (struct ptx_fused_node){.kind = FUSED_NORM, .param = 5, .other = -1, .store = -1};
            n[s->n_nodes++].norm.group = 128;
        }
        if (!i) {
            n[s->n_nodes] = (struct ptx_fused_node){.kind = FUSED_ROPE, .a = s->n_nodes - 1, .param = 6, .store = 7};
            n[s->n_nodes].rope.head_dim = 128;
            n[s->n_nodes].rope.pairs = 64;
            n[s->n_nodes++].rope.layout = neox ? ROPE_NEOX : ROPE_NORM;
        }
        n[s->n_nodes] = (struct ptx_fused_node){.kind = FUSED_KV, .a = s->n_nodes - 1, .param = 8, .store = -1};
        n[s->n_nodes++].kv = (struct ptx_kv){1 << 20, 0, 128, kv, 0};
    }
    return f;
}

// A product of a row of 14336, which is rounded to 8 bits in the prologue.
static struct ptx_fused down(enum dtype type)
{
    struct ptx_fused f = qkv(type, type, DT_F16, false);
    f.n_in = 14336;
    f.n_prologue = f.n_sections = f.sections[0].n_nodes = 1;
    f.sections[0].nodes[0].store = 7;
    return f;
}

// A gated activation with a layer norm in the prologue.
static struct ptx_fused gated(enum dtype type, enum act_kind act)
{
    struct ptx_fused f = qkv(type, type, DT_F16, false);
    struct ptx_fused_section *s = &f.sections[0];
    f.prologue[1].norm.kind = NORM_LAYER;
    f.prologue[1].other = 9;
    f.n_sections = 1;
    s->n_legs = s->n_nodes = 2;
    s->legs[1] = (struct ptx_fused_leg){type, 3, -1, -1};
    s->nodes[1] = (struct ptx_fused_node){.kind = FUSED_SUM, .a = 1, .param = -1, .other = -1, .store = -1};
    s->nodes[2] = (struct ptx_fused_node){.kind = FUSED_ELEMENT, .b = 1, .param = -1, .other = -1, .store = 7};
    s->nodes[s->n_nodes++].element = (struct ptx_elements){.op = PTX_GLU, .act = act};
    return f;
}

// A choice of experts by the logits of one column each.
static void choose(struct ptx_fused *f, bool scored)
{
    f->n_routes = 1;
    f->arrivals = 9;
    f->routes[0].route = (struct ptx_route){.experts = f->sections[0].n_out,
                                            .used = 8,
                                            .kind = scored ? ROUTE_SIGMOID : ROUTE_SOFTMAX,
                                            .normalise = true,
                                            .scale = 1,
                                            .bias = scored,
                                            .groups = scored ? 8 : 0,
                                            .groups_used = scored ? 4 : 0};
    f->routes[0].logits = 7;
    f->routes[0].bias = scored ? 8 : -1;
    f->routes[0].y = 10;
}

// A router of 256 experts: in units of few columns if its type is F32.
static struct ptx_fused router(enum dtype type, bool scored)
{
    struct ptx_fused f = qkv(type, type, DT_F16, false);
    struct ptx_fused_section *s = &f.sections[0];
    f.n_sections = 1;
    s->n_out = 256;
    s->unit = type == DT_F32 ? FUSED_NARROW : 32;
    s->n_nodes = 1;
    s->nodes[0].store = 7;
    choose(&f, scored);
    return f;
}

static struct ptx_fused_experts experts_of(bool summed)
{
    return (struct ptx_fused_experts){.n_used = 8, .n_experts = 128, .apart = summed, .summed = summed, .route = 10};
}

// Gate and up of 8 experts of 128, and the sum of what goes down from them.
static struct ptx_fused gates_of_experts(enum dtype type)
{
    struct ptx_fused f = gated(type, ACT_SILU);
    f.sections[0].experts = experts_of(false);
    f.sections[0].legs[1].scale = 9;
    return f;
}

static struct ptx_fused sum_of_experts(enum dtype type)
{
    struct ptx_fused f = {
        .n_in = 768, .parts = 8, .q8 = ptx_takes_q8(type), .n_prologue = 1, .n_sections = 1, .n_params = 12};
    struct ptx_fused_section *s = &f.sections[0];
    f.prologue[0] = (struct ptx_fused_node){.kind = FUSED_LOAD, .param = 0, .other = -1, .store = -1};
    if (!f.q8)
        f.n_in = 256; // that has room in shared memory
    *s = (struct ptx_fused_section){.n_out = 2048, .unit = 32, .n_legs = 1, .n_nodes = 3, .experts = experts_of(true)};
    s->legs[0] = (struct ptx_fused_leg){type, 2, 4, 5};
    s->nodes[0] = (struct ptx_fused_node){.kind = FUSED_SUM, .param = -1, .other = -1, .store = -1};
    s->nodes[1] = (struct ptx_fused_node){.kind = FUSED_LOAD, .param = 6, .other = -1, .store = -1};
    s->nodes[2] = (struct ptx_fused_node){.kind = FUSED_ELEMENT, .b = 1, .param = -1, .other = -1, .store = 7};
    s->nodes[2].element.op = PTX_ADD;
    return f;
}

// The same for activations of 16 bits, whose row takes less room.
static struct ptx_fused halved(struct ptx_fused f)
{
    f.q8 = false;
    f.halves = true;
    f.n_in = f.prologue[1].norm.group = 4096;
    return f;
}

Test(ptx_fused, kernels_assemble_without_spills)
{
    char folder[] = "/tmp/quern-ptx-XXXXXX", path[64];
    if (system("command -v ptxas > /dev/null 2>&1") != 0)
        cr_skip_test("ptxas is not found: kernels are not assembled");
    cr_assert_not_null(mkdtemp(folder));
    for (int t = 0; t < DT_COUNT; t++) {
        size_t bytes;
        if (ptx_tiles_bytes(t, 4096, 32, &bytes, &(struct error){0}))
            continue;
#ifndef EVERY_ARCH
        if (t != DT_Q4_K && t != DT_Q6_K && t != DT_F16 && t != DT_IQ3_XXS)
            continue;
#endif
        struct ptx_fused f = qkv(t, t, DT_F16, false);
        assemble_spec(folder, &f, dtype_info[t].name);
        f = qkv(t, t, t % 2 ? DT_Q8_0 : DT_Q4_0, true);
        f.dependent = true;
        assemble_spec(folder, &f, dtype_info[t].name);
        f = gated(t, ACT_SILU);
        assemble_spec(folder, &f, dtype_info[t].name);
        f = gates_of_experts(t);
        assemble_spec(folder, &f, dtype_info[t].name);
        f = sum_of_experts(t);
        f.dependent = true;
        assemble_spec(folder, &f, dtype_info[t].name);
        f = router(t, true);
        assemble_spec(folder, &f, dtype_info[t].name);
        f = down(t);
        if (f.q8)
            assemble_spec(folder, &f, dtype_info[t].name);
    }
    for (int t = 0; t < 2; t++) {
        const enum dtype type = t ? DT_BF16 : DT_F16;
        struct ptx_fused f = halved(qkv(type, type, DT_F16, true));
        assemble_spec(folder, &f, "QKV in 16 bits");
        f = halved(gated(type, ACT_SILU));
        f.dependent = true;
        assemble_spec(folder, &f, "a gate in 16 bits");
        f = halved(gates_of_experts(type));
        assemble_spec(folder, &f, "gates of experts in 16 bits");
        f = sum_of_experts(type);
        f.n_in = 768;
        f.halves = true;
        assemble_spec(folder, &f, "a sum of experts in 16 bits");
    }
    for (uint32_t unit = 2; unit <= FUSED_NARROW; unit *= 2) {
        struct ptx_fused f = router(DT_F32, unit == 4);
        f.dependent = unit == 4;
        f.sections[0].unit = unit;
        assemble_spec(folder, &f, "a router");
    }
    assemble_chains(folder);
    struct ptx_fused f = gated(DT_Q4_K, ACT_GELU_ERF);
    f.sections[0].legs[1].type = DT_Q6_K;
    assemble_spec(folder, &f, "two types");
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i ? "cubin" : "ptx");
        remove(path);
    }
    remove(folder);
}

// ---- refusals

Test(ptx_fused, refuses_what_it_does_not_serve)
{
    static char text[1 << 20];
    struct ptx p;
    struct ptx_launch launch;
    struct error err;
    for (int i = 0; i < 6; i++) {
        struct ptx_fused f = qkv(DT_Q4_K, DT_Q4_K, DT_F16, true);
        struct ptx_fused_section *s = &f.sections[0];
        *(i == 0   ? &s->unit
          : i == 1 ? &s->nodes[1].norm.group
          : i == 2 ? &s->nodes[2].rope.head_dim
          : i == 3 ? &f.n_in
          : i == 4 ? &s->n_out
                   : &f.prologue[1].norm.group) = i == 3 ? 1u << 18 : 96;
        ptx_start(&p, text, sizeof text);
        cr_expect(ptx_emit_fused(&p, &f, &launch, &err) < 0, "case %d", i);
    }
    for (int i = 0; i < 8; i++) {
        struct ptx_fused f = i < 5 ? sum_of_experts(DT_Q4_K) : router(DT_F32, i == 7);
        struct ptx_fused_section *s = &f.sections[0];
        *(i == 0   ? &s->experts.n_used // not as many as parts
          : i == 1 ? &s->experts.n_experts
          : i == 2 ? &f.parts
          : i == 3 ? &f.n_in
          : i == 4 ? &s->n_out
          : i == 5 ? &f.routes[0].route.experts
          : i == 6 ? &f.routes[0].route.used
                   : &f.routes[0].route.groups) = i == 3   ? 1u << 16
                                                  : i == 4 ? 1u << 22
                                                  : i == 6 ? 300
                                                           : 7;
        if (i == 5)
            f.routes[0].route.kind = ROUTE_EACH;
        ptx_start(&p, text, sizeof text);
        cr_expect(ptx_emit_fused(&p, &f, &launch, &err) < 0, "case %d of experts", i);
    }
    for (int i = 0; i < 6; i++) {
        struct ptx_row r = chain(NORM_RMS, ROPE_NORM, DT_F16);
        *(i == 0   ? &r.nodes[0].width
          : i == 1 ? &r.nodes[1].norm.group
          : i == 2 ? &r.nodes[2].rope.pairs
          : i == 3 ? &r.nodes[0].slice.n
          : i == 4 ? &r.nodes[6].kv.dim
                   : &r.nodes[6].kv.row_dim) = i == 0 ? PTX_ROW_WIDTH + 1 : 99;
        ptx_start(&p, text, sizeof text);
        cr_expect(ptx_emit_row(&p, &r, &launch, &err) < 0, "case %d of chains", i);
    }
    struct ptx_fused f = router(DT_F32, false);
    f.sections[0].legs[0].type = DT_F16; // units of 8 columns are those of F32
    ptx_start(&p, text, sizeof text);
    cr_expect(ptx_emit_fused(&p, &f, &launch, &err) < 0);
}
