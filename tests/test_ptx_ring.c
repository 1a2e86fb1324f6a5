// Tests the variants of fused kernels of one row by themselves (emit_fused_ring.c): that all of them give the bits of the
// first one, for every type of weights that takes activations of 8 or 16 bits and every kind of card, and that changes of the
// kernels with a ring are detected.
#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/emit_early.h"
#include "kernels/ptx/emit_fused.h"
#include "kernels/ptx/emit_fused_ring.h"
#include "tests/ptx_mutate.h"
#include "tests/ptx_products.h"

#ifndef MUTATIONS
#define MUTATIONS 120
#endif
enum { N_OUT = 96, N_MORE = 128, OUTPUTS = N_OUT + N_MORE, N_PARAMS = 9, MOST_IN = 4096 };

// A kernel with two sections: a gate of weights of two types, in units of 32 columns, with a bias, and a product in units of
// 64. Its row is normed, stored and rounded to 8 bits in the prologue, or comes from memory.
struct subject {
    enum dtype types[2];
    uint32_t n_in, target;
    bool prologue;
};

static struct ptx_fused_node node_of(enum ptx_fused_kind kind, int a, int param, int store)
{
    return (struct ptx_fused_node){.kind = kind, .a = a, .param = param, .other = -1, .store = store};
}

static struct ptx_fused describe(const struct subject *s, enum ptx_fused_variant variant)
{
    struct ptx_fused f = {.node = 7,
                          .variant = variant,
                          .target = s->target,
                          .n_in = s->n_in,
                          .q8 = ptx_takes_q8(s->types[0]),
                          .halves = !ptx_takes_q8(s->types[0]),
                          .dependent = s->target >= 90,
                          .n_prologue = s->prologue ? 2 : 0,
                          .n_sections = 2,
                          .n_params = N_PARAMS};
    f.prologue[0] = node_of(FUSED_LOAD, 0, 0, -1);
    f.prologue[1] = node_of(FUSED_NORM, 0, 1, 8);
    f.prologue[1].norm.group = s->n_in;
    f.prologue[1].norm.eps = 1e-5f;
    struct ptx_fused_section *gate = &f.sections[0], *plain = &f.sections[1];
    *gate = (struct ptx_fused_section){.n_out = N_OUT, .unit = 32, .n_legs = 2, .n_nodes = 3};
    gate->legs[0] = (struct ptx_fused_leg){.type = s->types[0], .w = 2, .bias = 7, .scale = -1};
    gate->legs[1] = (struct ptx_fused_leg){.type = s->types[1], .w = 3, .bias = -1, .scale = -1};
    gate->nodes[0] = node_of(FUSED_SUM, 0, -1, -1);
    gate->nodes[1] = node_of(FUSED_SUM, 1, -1, -1);
    gate->nodes[2] = node_of(FUSED_ELEMENT, 0, -1, 5);
    gate->nodes[2].b = 1;
    gate->nodes[2].element = (struct ptx_elements){.op = PTX_GLU, .act = ACT_SILU};
    *plain = (struct ptx_fused_section){.n_out = N_MORE, .unit = 64, .n_legs = 1, .n_nodes = 1};
    plain->legs[0] = (struct ptx_fused_leg){.type = s->types[1], .w = 4, .bias = -1, .scale = -1};
    plain->nodes[0] = node_of(FUSED_SUM, 0, -1, 6);
    return f;
}

// What a kernel reads. The weights are tiles, and a kernel that ran before writes the row.
struct inputs {
    struct gpu *g;
    uint64_t row_from, params[3 + N_PARAMS]; // the first three are not used
    size_t row_bytes, stored;                // stored: bytes of the row that the kernel stores
    bool dependent;
};

struct outputs {
    float gate[N_OUT], more[N_MORE], row[MOST_IN]; // of row n_in elements, if the kernel has a prologue
};

static const char copy_text[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
                                ".visible .entry copy(.param .u64 from, .param .u64 to)\n{\n"
                                "    .reg .u32 %i, %n, %v;\n    .reg .u64 %from, %to;\n"
                                "    mov.u32 %i, %ctaid.x;\n    mov.u32 %n, %tid.x;\n    mad.lo.u32 %i, %i, 16, %n;\n"
                                "    ld.param.u64 %from, [from];\n    ld.param.u64 %to, [to];\n"
                                "    mad.wide.u32 %from, %i, 4, %from;\n    mad.wide.u32 %to, %i, 4, %to;\n"
                                "    ld.global.u32 %v, [%from];\n    st.global.u32 [%to], %v;\n    ret;\n}\n";

static size_t row_bytes_of(const struct subject *s)
{
    return s->prologue                 ? 4 * (size_t)s->n_in
           : ptx_takes_q8(s->types[0]) ? ptx_q8_row_bytes(s->n_in)
                                       : align_up(ptx_half_row_bytes(s->types[0], s->n_in), 64);
}

// A row in 16 bits: numbers between 2^-9 and 2^-5, and a factor behind them, all of which are one in F16 and in BF16.
static void *random_halves_row(const struct subject *s, uint64_t *state)
{
    uint8_t *row = allocate(row_bytes_of(s));
    for (size_t i = 0; i + 2 <= row_bytes_of(s); i += 2)
        put_u16(row + i, moderate_half(state) | 0x3000);
    return row;
}

// A row in 8 bits: any bytes, and scales of moderate size.
static void *random_row(uint32_t n_in, uint64_t *state)
{
    size_t bytes = ptx_q8_row_bytes(n_in), blocks = (n_in + 255) / 256;
    uint8_t *row = allocate(bytes);
    for (size_t i = 0; i < bytes; i++)
        row[i] = (uint8_t)random_u64(state);
    for (size_t i = 0; i < blocks; i++) {
        float scale = (float)(1 + random_u64(state) % 100) / 1000;
        memcpy(row + blocks * PTX_Q8_SCALES + 4 * i, &scale, 4);
    }
    return row;
}

static uint64_t upload_matrix(struct gpu *g, enum dtype t, uint32_t n_in, uint32_t n_out, uint64_t *state)
{
    uint8_t *w = make_weights(t, n_out, n_in, false, state);
    uint64_t at = upload_weights(g, t, n_in, n_out, 1, w);
    free(w);
    return at;
}

static struct inputs make_inputs(const struct subject *s)
{
    uint64_t state = SEED;
    struct inputs in = {.g = gpu_open(), .stored = s->prologue ? 4 * (size_t)s->n_in : 0, .dependent = s->target >= 90};
    in.row_bytes = row_bytes_of(s);
    void *row = s->prologue                 ? (void *)random_floats(s->n_in, &state)
                : ptx_takes_q8(s->types[0]) ? random_row(s->n_in, &state)
                                            : random_halves_row(s, &state);
    float *gain = random_floats(MOST_IN, &state);
    if (s->prologue && s->n_in > 512) // a block of zeros has no scale
        memset((float *)row + 256, 0, 256 * sizeof(float));
    in.row_from = upload(in.g, row, in.row_bytes);
    in.params[3] = simt_alloc(in.g->s, in.row_bytes);
    in.params[4] = upload(in.g, gain, 4 * (size_t)s->n_in);
    in.params[5] = upload_matrix(in.g, s->types[0], s->n_in, N_OUT, &state);
    in.params[6] = upload_matrix(in.g, s->types[1], s->n_in, N_OUT, &state);
    in.params[7] = upload_matrix(in.g, s->types[1], s->n_in, N_MORE, &state);
    in.params[8] = simt_alloc(in.g->s, 4 * N_OUT);
    in.params[9] = simt_alloc(in.g->s, 4 * N_MORE);
    in.params[10] = upload(in.g, gain, 4 * N_OUT);
    in.params[11] = simt_alloc(in.g->s, 4 * MOST_IN);
    cr_assert_eq(simt_load(in.g->s, str_from(copy_text), &in.g->err), 0, "%s", in.g->err.text);
    free(row);
    free(gain);
    return in;
}

// Runs a text after the kernel that writes the row. Returns -1 after a fault.
static int run(const struct inputs *in, struct str text, const struct ptx_launch *l, uint32_t ctas, struct outputs *out,
               struct error *err)
{
    struct simt *s = in->g->s;
    const uint64_t copied[2] = {in->row_from, in->params[3]};
    const struct simt_dim block = {l->block[0], 1, 1}, grid = {ctas, 1, 1};
    memset(out, 0, sizeof *out);
    if (simt_load(s, text, err) || simt_forget(s, in->params[3], in->row_bytes, err) ||
        simt_forget(s, in->params[8], sizeof out->gate, err) || simt_forget(s, in->params[9], sizeof out->more, err) ||
        simt_forget(s, in->params[11], sizeof out->row, err) ||
        simt_launch(s, simt_find(s, "copy"), (struct simt_dim){(uint32_t)in->row_bytes / 64, 1, 1},
                    (struct simt_dim){16, 1, 1}, 0, copied, sizeof copied, err))
        return -1;
    if (in->dependent)
        simt_set_dependent(s);
    return simt_launch(s, simt_find(s, "fused_7"), grid, block, l->shared, in->params, sizeof in->params, err) ||
                   simt_get(s, in->params[8], out->gate, sizeof out->gate, err) ||
                   simt_get(s, in->params[9], out->more, sizeof out->more, err) ||
                   simt_get(s, in->params[11], out->row, in->stored, err)
               ? -1
               : 0;
}

static struct ptx emit(const struct ptx_fused *f, char *text, struct ptx_launch *l)
{
    struct ptx p;
    struct error err = {0};
    ptx_start(&p, text, TEXT);
    cr_assert_eq(ptx_emit_fused(&p, f, l, &err), 0, "%s", err.text);
    return p;
}

// ---- bits

// Whether kernels of the target can be loaded: by the interpreter always, by a card if it is no older.
static bool serves(struct simt *s, uint32_t target)
{
    char text[160];
    struct error err;
    snprintf(text, sizeof text,
             ".version %s\n.target sm_%u\n.address_size 64\n.visible .entry nothing()\n{\n    ret;\n}\n",
             target >= 90 ? "8.0" : "7.0", MIN(target, 90u));
    return !simt_load(s, str_from(text), &err);
}

static void check_variants(const struct subject *s)
{
    static char text[TEXT];
    struct inputs in = make_inputs(s);
    struct outputs want, got;
    struct ptx_launch l;
    struct error err = {0};
    if (!serves(in.g->s, s->target)) {
        printf("no kernels for sm_%u on this card\n", s->target);
        gpu_close(in.g);
        return;
    }
    for (int v = 0; v < FUSED_VARIANTS; v++) {
        struct ptx_fused f = describe(s, v);
        const char *what = dtype_info[s->types[0]].name;
        cr_assert_eq(ptx_fused_variants(&f), s->target < 80 ? FUSED_RING : FUSED_VARIANTS, "%s", what);
        if (s->target < 80 && v >= FUSED_RING)
            break;
        struct ptx p = emit(&f, text, &l);
        const char *copies = v < FUSED_RING ? NULL : s->target < 90 ? "cp.async.cg" : "cp.async.bulk";
        cr_expect(copies ? strstr(text, copies) != NULL : !strstr(text, "cp.async"), "%s: variant %d", what, v);
        cr_expect(!v || l.block[0] <= 256);
        for (uint32_t ctas = 1; ctas <= l.grid[0]; ctas += 2) {
            int rc = run(&in, (struct str){p.data, p.size}, &l, ctas, &got, &err);
            cr_assert_eq(rc, 0, "%s, sm_%u, variant %d: %s", what, s->target, v, err.text);
            if (!v && ctas == 1)
                want = got;
            cr_expect(!memcmp(&want, &got, sizeof want), "%s, sm_%u, variant %d, %u CTAs: other bits", what, s->target,
                      v, ctas);
        }
    }
    gpu_close(in.g);
}

// The types that take 8-bit activations, each with the next one as its partner.
static enum dtype next_type(int t)
{
    do
        t = (t + 1) % DT_COUNT;
    while (!ptx_takes_q8(t));
    return t;
}

Test(ptx_ring, all_variants_give_the_same_bits)
{
    static const uint32_t targets[] = {75, 80, 86, 90, 120};
    for (int t = next_type(-1), i = 0; i == 0 || t != (int)next_type(-1); t = (int)next_type(t), i++)
        for (uint32_t k = 0; k < 2; k++) {
            struct subject s = {{t, next_type(t)}, k ? 768 : 1280, targets[(uint32_t)(2 * i + (int)k) % 5], k == 0};
            check_variants(&s);
        }
    for (size_t i = 0; i < COUNT_OF(targets); i++)
        check_variants(&(struct subject){{DT_Q4_K, DT_Q6_K}, 2048, targets[i], true});
    check_variants(&(struct subject){{DT_Q4_0, DT_Q8_0}, 544, 90, true});
    check_variants(&(struct subject){{DT_Q8_0, DT_Q8_0}, 32, 90, true});
    check_variants(&(struct subject){{DT_Q5_0, DT_Q4_1}, 96, 80, true});
}

// Of 16 bits, rows whose chains are whole stages have a ring.
Test(ptx_ring, all_variants_of_16_bits_give_the_same_bits)
{
    for (int t = 0; t < 2; t++) {
        const enum dtype type = t ? DT_BF16 : DT_F16;
        check_variants(&(struct subject){{type, type}, 512, t ? 80 : 90, true});
        check_variants(&(struct subject){{type, type}, 1536, t ? 90 : 80, false});
        check_variants(&(struct subject){{type, type}, 2048, t ? 120 : 86, true});
        check_variants(&(struct subject){{type, type}, 2560, t ? 80 : 90, true});
    }
    struct ptx_fused f = describe(&(struct subject){{DT_F16, DT_F16}, 768, 90, true}, FUSED_WIDE);
    cr_expect_eq(ptx_fused_variants(&f), FUSED_RING);
}

// ---- other kernels that let the next launch begin

Test(ptx_ring, any_kernel_can_begin_early)
{
    char text[2048] = "";
    struct ptx p = {.data = text, .size = sizeof copy_text - 1, .cap = sizeof text - 1}, full = p;
    struct error err = {0};
    struct subject s = {{DT_Q4_0, DT_Q4_0}, 256, 90, true};
    memcpy(text, copy_text, sizeof copy_text);
    cr_assert_eq(ptx_begin_early(&p, &err), 0, "%s", err.text);
    cr_expect_eq(p.size, strlen(text));
    cr_expect(!strncmp(text, ".version 7.8\n.target sm_90\n", 27), "%s", text);
    cr_expect(strstr(text, "{\n    griddepcontrol.launch_dependents;\n    griddepcontrol.wait;\n    .reg"), "%s", text);
    struct inputs in = make_inputs(&s); // it does what it did before
    const uint64_t params[] = {in.row_from, in.params[3]};
    cr_assert_eq(simt_load(in.g->s, (struct str){p.data, p.size}, &err), 0, "%s", err.text);
    simt_set_dependent(in.g->s);
    cr_expect_eq(simt_launch(in.g->s, simt_find(in.g->s, "copy"), (struct simt_dim){16, 1, 1},
                             (struct simt_dim){16, 1, 1}, 0, params, sizeof params, &err),
                 0, "%s", err.text);
    gpu_close(in.g);
    full.cap = full.size;
    cr_expect_eq(ptx_begin_early(&full, &err), -1);
    memcpy(text, ".version 8.8\n.target sm_120\n", 28);
    p.size = strlen(text);
    cr_expect_eq(ptx_begin_early(&p, &err), 0);
    cr_expect(!strncmp(text, ".version 8.8\n.target sm_120\n", 28), "%s", text);
}

// ---- changes of a kernel with a ring. A card would not survive them.
#ifndef ON_A_CARD

// Runs a text on memory of its own: in one CTA that has all units, in three, and in more than there are units. Returns
// whether it parses. *wrong: after a fault, or if two grids give other bits.
static bool run_alone(const struct subject *s, struct str text, const struct ptx_launch *l, uint64_t limit,
                      struct outputs *out, bool *wrong, uint64_t *instructions)
{
    const uint32_t grids[] = {1, 3, l->grid[0] + 2};
    struct outputs again;
    struct error err = {0};
    struct inputs in = make_inputs(s);
    uint64_t before = simt_count(in.g->s).instructions;
    simt_set_limit(in.g->s, limit);
    bool parsed = !simt_load(in.g->s, text, &err) && simt_find(in.g->s, "fused_7");
    *wrong = parsed && run(&in, text, l, 1, out, &err) != 0;
    for (size_t i = 1; parsed && !*wrong && i < COUNT_OF(grids); i++)
        *wrong = run(&in, text, l, grids[i], &again, &err) || memcmp(&again, out, sizeof again);
    *instructions = simt_count(in.g->s).instructions - before;
    gpu_close(in.g);
    return parsed;
}

// Keeps the places in what the ring adds to a kernel: copies, waits for them, and the way of a warp through its items.
static void keep_ring(const char *text, struct mutate_sites *s)
{
    static const char *const words[] = {"%fetch_", "%stage", "%full", "%phase", "%lead", "cp.async",
                                        "%unit8",  "%w8",    "bar.",  "grid",   "%unit", "%item"};
    size_t kept = 0;
    for (size_t i = 0; i < s->n_lines; i++) {
        bool has = false;
        for (size_t w = 0; w < COUNT_OF(words); w++)
            has = has || memmem(text + s->lines[i].at, s->lines[i].len, words[w], strlen(words[w]));
        if (has)
            s->lines[kept++] = s->lines[i];
    }
    s->n_lines = kept;
}

// Makes changes until `n` of them parse. Returns how many of these are detected, as a fault or by other bits.
static int caught_of(const struct subject *s, int n, bool ring, uint64_t *state)
{
    static char text[TEXT], changed[TEXT];
    static struct mutate_sites sites;
    struct outputs want, got;
    struct ptx_launch l;
    struct ptx_fused f = describe(s, FUSED_RING);
    struct ptx p = emit(&f, text, &l);
    bool wrong;
    uint64_t instructions, none;
    int counted = 0, caught = 0;
    mutate_find_sites(p.data, p.size, &sites);
    if (ring)
        keep_ring(p.data, &sites);
    cr_assert(run_alone(s, (struct str){p.data, p.size}, &l, 1 << 28, &want, &wrong, &instructions) && !wrong);
    while (counted < n) {
        const char *what;
        size_t where;
        memcpy(changed, p.data, p.size);
        size_t size = mutate(changed, p.size, sizeof changed, &sites, 0, state, &what, &where);
        if (!size || !run_alone(s, (struct str){changed, size}, &l, 4 * instructions, &got, &wrong, &none))
            continue;
        bool found = wrong || memcmp(&got, &want, sizeof want);
        counted++;
        caught += found;
        if (!found)
            printf("  not found: %.*s -> %.*s\n", (int)strcspn(p.data + where, "\n"), p.data + where,
                   (int)strcspn(changed + where, "\n"), changed + where);
    }
    printf("sm_%u: %d of %d\n", s->target, caught, n);
    return caught;
}

static void change_kernels(bool ring, int percent)
{
    static const struct subject subjects[] = {
        {{DT_Q4_K, DT_Q6_K}, 2304, 90, true},
        {{DT_Q4_0, DT_Q3_K}, 2304, 80, true},
        {{DT_Q8_0, DT_Q8_0}, 2304, 90, false},
        {{DT_F16, DT_F16}, 512, 90, true},
    };
    uint64_t state = SEED;
    int caught = 0, n = MUTATIONS / (int)COUNT_OF(subjects), all = n * (int)COUNT_OF(subjects);
    printf("seed %d\n", SEED);
    for (size_t i = 0; i < COUNT_OF(subjects); i++)
        caught += caught_of(&subjects[i], n, ring, &state);
    printf("%d of %d changes were found\n", caught, all);
    cr_assert_geq(caught, (all * percent + 99) / 100);
}

Test(ptx_ring, most_changes_of_a_ring_are_found, .timeout = 1000)
{
    change_kernels(true, 95);
}

// The products and the rounding to 8 bits have more places where a change has no effect, such as the length of a field of
// bits that ends where its word ends, and there are addresses of hints.
Test(ptx_ring, most_changes_of_a_kernel_with_a_ring_are_found, .timeout = 1000)
{
    change_kernels(false, 85);
}
#endif
