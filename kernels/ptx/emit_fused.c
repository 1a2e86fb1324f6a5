// Emits the frame of a fused kernel, and the products of float32 activations. See emit_fused.h for the interface and the
// naive loop; emit_fused_row.c computes the nodes, emit_fused_experts.c finds the matrices of experts.
//
// The kernel: prefetch the first weights; compute the row (make_row); loop over units (sections): load the inputs of
// the nodes, compute the products of all legs, compute the nodes. With 8-bit activations a CTA has up to 16 warps, or
// up to 12 if a type's unit needs more registers, or up to 8 in the variants after the first; with float32 activations it
// has 8.
//
// Products of 8-bit activations: emit_fused_q8.c; of 16-bit activations: emit_fused_half.c. With 8 bits, if shared memory
// suffices, the S are double-buffered: the warps without columns continue with the next unit while the others add.
//
// Products of float32 activations are computed tile after tile by 8 warps, as in emit_matmul.c.
//
// Shared memory: the S or the decoded weights, the row, and two small areas (see emit_fused.h).
#include "kernels/ptx/emit_fused.h"

#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/emit_early.h"
#include "kernels/ptx/emit_fused_ring.h"
#include "kernels/ptx/emit_grid.h"
#include "kernels/ptx/emit_type.h"
#include "kernels/ptx/emit_matmul_parts.h"

#include <math.h>

enum {
    MAX_WARPS = 16,
    SMALL_WARPS = 8,
    LARGE_WARPS = 12,
    LARGE_UNIT = 256,
    UNITS_AT_ONCE = 132,
    SHARED_MAX = 48 << 10,
    MAX_SIZE = 1 << 20
};

// The shape of a kernel and its use of shared memory. The fields ending in _bytes are sizes in shared memory.
struct frame {
    uint32_t warps;      // of a CTA
    uint32_t units;      // of all sections
    uint32_t row_bytes;  // the row, if there is a prologue
    uint32_t sums_bytes; // one buffer of S; without q8 the buffer of decoded weights
    uint32_t buffers;    // of S: 1 or 2
    uint32_t loads;      // of a thread in a round, for units of few float32 columns; 0: other units
    uint32_t exchange_bytes, partials_bytes, route_bytes;
    struct ptx_ring ring; // depth 0: there is none
};

uint32_t ptx_fused_part_bytes(const struct ptx_fused *f)
{
    if (f->q8)
        return (uint32_t)ptx_q8_row_bytes(f->n_in);
    return f->halves ? ptx_half_row_bytes(f->sections[0].legs[0].type, f->n_in) : 4 * f->n_in;
}

// The most warps for which a lane has enough registers for a unit of every type used. Where the places of experts have
// more units than a card has multiprocessors, but not twice as many, two CTAs of half as many warps share one, and no unit
// has to wait for another.
static uint32_t most_warps(const struct ptx_fused *f)
{
    uint32_t units = 0;
    if (f->variant != FUSED_WIDE)
        return SMALL_WARPS;
    for (int i = 0; i < f->n_sections; i++)
        units += f->sections[i].experts.n_used && !f->sections[i].experts.summed ? ptx_fused_units(&f->sections[i]) : 0;
    if (units > UNITS_AT_ONCE && units <= 2 * UNITS_AT_ONCE)
        return MAX_WARPS / 2;
    for (int i = 0; i < f->n_sections; i++)
        for (int l = 0; l < f->sections[i].n_legs; l++)
            if (tile_unit_bytes(f->sections[i].legs[l].type) > LARGE_UNIT)
                return LARGE_WARPS;
    return MAX_WARPS;
}

// The bytes of static shared memory.
static uint64_t static_bytes(const struct frame *r)
{
    return (uint64_t)r->buffers * r->sums_bytes + r->row_bytes + r->exchange_bytes + r->partials_bytes + r->route_bytes;
}

// Adds the ring: for all warps, or if there is no room for that, with one buffer of S and for as many warps as have room.
static void add_ring(const struct ptx_fused *f, struct frame *r)
{
    r->ring = ptx_ring_of(f, r->warps, r->units, (uint32_t)static_bytes(r));
    if (r->ring.depth)
        return;
    r->buffers = 1;
    for (uint32_t warps = r->warps; warps && !r->ring.depth; warps--)
        r->ring = ptx_ring_of(f, warps, r->units, (uint32_t)static_bytes(r));
}

static struct frame frame_of(const struct ptx_fused *f)
{
    struct frame r = {.warps = f->q8 ? 1 : PTX_MATMUL_F32_WARPS, .buffers = 1};
    for (int i = 0; i < f->n_sections; i++) {
        const struct ptx_fused_section *s = &f->sections[i];
        uint32_t items = f->q8 ? ptx_fused_q8_items(f, s) : 0;
        r.units += ptx_fused_units(s);
        r.exchange_bytes = MAX(r.exchange_bytes, ptx_fused_exchange_bytes(s));
        r.warps = MAX(r.warps, ptx_fused_tiles(s));
        if (f->q8) {
            r.warps = MAX(r.warps, ptx_tiles(items, ptx_tiles(items, most_warps(f))));
            r.sums_bytes = MAX(r.sums_bytes, 128 * items);
        }
        if (f->halves)
            r.sums_bytes = MAX(r.sums_bytes, ptx_fused_half_sums_bytes(s));
    }
    for (int i = 0; i < f->n_prologue; i++)
        if (f->prologue[i].kind == FUSED_NORM)
            r.warps = MAX(r.warps, ptx_norm_threads(ptx_fused_width(f)) / 32);
    if (!f->q8 && !f->halves)
        r.sums_bytes = PTX_MATMUL_F32_BYTES;
    if (f->n_prologue)
        r.row_bytes = ptx_fused_parts(f) * ptx_fused_part_bytes(f);
    r.row_bytes = (r.row_bytes + 15) & ~15u;
    r.partials_bytes = ptx_fused_partials_bytes(f);
    r.route_bytes = ptx_fused_route_bytes(f);
    if (ptx_fused_narrow(f)) {
        uint64_t others = (uint64_t)r.row_bytes + r.exchange_bytes + r.partials_bytes + r.route_bytes;
        r.loads = ptx_fused_narrow_loads(f, others + ptx_fused_narrow_bytes(8) <= SHARED_MAX ? 8 : 4);
        r.sums_bytes = ptx_fused_narrow_bytes(r.loads);
    }
    if (f->q8 && r.row_bytes + 2 * r.sums_bytes + r.exchange_bytes + r.partials_bytes + r.route_bytes <= SHARED_MAX)
        r.buffers = 2;
    if (ptx_ring_asked(f))
        add_ring(f, &r);
    return r;
}

static bool frame_fits(const struct ptx_fused *f, const struct frame *r)
{
    return static_bytes(r) <= SHARED_MAX && r->warps <= (f->variant == FUSED_WIDE ? MAX_WARPS : SMALL_WARPS) &&
           (!ptx_ring_asked(f) || r->ring.depth);
}

bool ptx_fused_fits(const struct ptx_fused *f)
{
    struct frame r = frame_of(f);
    return frame_fits(f, &r);
}

// Whether the kernel multiplies one row by whole matrices and does no more than that.
static bool is_plain(const struct ptx_fused *f)
{
    bool plain = (f->q8 || f->halves) && !f->n_routes && ptx_fused_parts(f) == 1 && !ptx_fused_narrow(f);
    for (int i = 0; i < f->n_sections; i++)
        plain = plain && !f->sections[i].experts.n_used;
    return plain;
}

uint32_t ptx_fused_variants(const struct ptx_fused *f)
{
    struct ptx_fused g = *f;
    uint32_t n = 1;
    for (; is_plain(f) && n < FUSED_VARIANTS; n++) {
        g.variant = (enum ptx_fused_variant)n;
        if (!ptx_fused_fits(&g))
            break;
    }
    return n;
}

enum ptx_fused_variant ptx_fused_part(const struct ptx_fused *f)
{
    struct ptx_fused g = *f;
    if (ptx_fused_variants(f) > FUSED_RING)
        return FUSED_RING;
    g.variant = FUSED_SMALL;
    return ptx_fused_fits(&g) ? FUSED_SMALL : FUSED_WIDE;
}

// ---- checks

static int check_node(const struct ptx_fused_node *n, int at, uint32_t width, uint32_t unit, struct error *err)
{
    bool norm = n->kind == FUSED_NORM, rope = n->kind == FUSED_ROPE;
    if ((n->kind != FUSED_LOAD && n->kind != FUSED_SUM && n->a >= at) || n->a < 0 || n->b < 0 ||
        (n->kind == FUSED_ELEMENT && n->b >= at) || n->param >= FUSED_PARAMS || n->store >= FUSED_PARAMS)
        return fail(err, E_GPU, "fused: node %d is made of what comes later", at);
    if (norm && (!isfinite(n->norm.eps) || n->norm.eps < 0 || !n->norm.group || width % n->norm.group))
        return fail(err, E_GPU, "fused: a norm of groups of %u in rows of %u", n->norm.group, width);
    if (norm && unit && (unit % n->norm.group || (n->norm.group % 32 && 32 % n->norm.group)))
        return fail(err, E_GPU, "fused: a norm of groups of %u in units of %u", n->norm.group, unit);
    if (norm && !unit && n->norm.group != width)
        return fail(err, E_GPU, "fused: a norm of a part of the row before products");
    if (rope && (!unit || !n->rope.pairs || 2 * n->rope.pairs > n->rope.head_dim || width % n->rope.head_dim))
        return fail(err, E_GPU, "fused: %u pairs of heads of %u", n->rope.pairs, n->rope.head_dim);
    if (rope && n->rope.layout == ROPE_NEOX && unit % n->rope.head_dim)
        return fail(err, E_GPU, "fused: heads of %u in units of %u", n->rope.head_dim, unit);
    if (n->kind == FUSED_KV && (!unit || width % n->kv.dim))
        return fail(err, E_GPU, "fused: heads of %u to the cache", n->kv.dim);
    return 0;
}

static int check_section(const struct ptx_fused *f, const struct ptx_fused_section *s, struct error *err)
{
    if (!s->n_out || s->n_out > MAX_SIZE || !s->unit || (s->unit % 32 && !ptx_fused_narrow(f)) ||
        s->unit > FUSED_UNIT || (s->unit > 32 && s->n_out % s->unit) || s->n_legs < 1 || s->n_legs > FUSED_LEGS ||
        s->n_nodes < 1 || s->n_nodes > FUSED_NODES)
        return fail(err, E_GPU, "fused: %u columns in units of %u", s->n_out, s->unit);
    for (int i = 0; i < s->n_legs; i++) {
        if (tile_check("fused", s->legs[i].type, f->n_in, err))
            return -1;
        if (f->q8 && !ptx_takes_q8(s->legs[i].type))
            return fail(err, E_GPU, "fused: %s weights take no activations in 8 bits",
                        dtype_info[s->legs[i].type].name);
        if (f->halves &&
            (s->legs[i].type != f->sections[0].legs[0].type || !ptx_takes_halves(s->legs[i].type, f->n_in, 80)))
            return fail(err, E_GPU, "fused: %s weights by %u take no activations in 16 bits",
                        dtype_info[s->legs[i].type].name, f->n_in);
    }
    for (int i = 0; i < s->n_nodes; i++)
        if (check_node(&s->nodes[i], i, s->n_out, s->unit, err))
            return -1;
    return ptx_fused_check_experts(f, s, err);
}

static int check(const struct ptx_fused *f, const struct frame *r, struct error *err)
{
    if (f->n_sections < 1 || f->n_sections > FUSED_SECTIONS || f->n_prologue < 0 || f->n_prologue > FUSED_NODES ||
        f->n_params < 1 || f->n_params > FUSED_PARAMS || !f->n_in || f->n_in > MAX_SIZE ||
        ptx_fused_parts(f) > MAX_SIZE / f->n_in)
        return fail(err, E_GPU, "fused: %d sections of %u", f->n_sections, f->n_in);
    for (int i = 0; i < f->n_prologue; i++)
        if (check_node(&f->prologue[i], i, ptx_fused_width(f), 0, err))
            return -1;
    for (int i = 0; i < f->n_sections; i++)
        if (check_section(f, &f->sections[i], err))
            return -1;
    if (ptx_fused_check_routes(f, err))
        return -1;
    if (!frame_fits(f, r))
        return fail(err, E_GPU, "fused: a row of %u takes more shared memory than %d", f->n_in, SHARED_MAX);
    return 0;
}

// ---- the head

// Emits the tables that the types need, once for each type. They are named by the number of the type.
static void tables(struct ptx *p, const struct ptx_fused *f)
{
    bool there[DT_COUNT] = {false};
    for (int i = 0; i < f->n_sections; i++)
        for (int l = 0; l < f->sections[i].n_legs; l++) {
            enum dtype t = f->sections[i].legs[l].type;
            if (!there[t] && f->q8)
                ptx_grid_table(p, t);
            else if (!there[t])
                ptx_type_tables(p, t, t);
            there[t] = true;
        }
}

static void describe(struct ptx *p, const struct ptx_fused *f)
{
    PTX_FILL(p, "\n// node $0: one row of $1, ", f->node, f->n_in);
    ptx_word(p, f->q8 ? "in 8 bits, times" : f->halves ? "in 16 bits, times" : "f32, times");
    for (int i = 0; i < f->n_sections; i++)
        for (int l = 0; l < f->sections[i].n_legs; l++) {
            PTX_FILL(p, " $0 of ", f->sections[i].n_out);
            ptx_word(p, dtype_info[f->sections[i].legs[l].type].name);
            ptx_word(p, l + 1 < f->sections[i].n_legs ? " and" : i + 1 < f->n_sections ? "," : "\n");
        }
}

static void head(struct ptx *p, const struct ptx_fused *f, const struct frame *r)
{
    if (r->ring.depth)
        ptx_header(p, r->ring.bulk ? 80 : 70, r->ring.bulk ? 90 : 80);
    else if (f->dependent)
        ptx_header(p, 78, 90);
    else
        ptx_header(p, f->halves ? 70 : 63, f->halves ? 80 : 75);
    tables(p, f);
    if (r->ring.depth)
        ptx_ring_module(p);
    describe(p, f);
    PTX_FILL(p,
             ".visible .entry fused_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 positions,\n"
             "    .param .u64 pages",
             f->node);
    for (int i = 0; i < f->n_params; i++)
        PTX_FILL(p, ",\n    .param .u64 p$0", (uint32_t)i);
    PTX_FILL(p,
             ")\n"
             ".maxntid $0, 1, 1\n",
             32 * r->warps);
    if (r->ring.depth)
        PTX_FILL(p, ".maxnreg $0\n", ptx_ring_registers(f));
    else
        PTX_FILL(p, ".minnctapersm $0\n", f->variant == FUSED_WIDE || f->halves ? 1 : 2);
    PTX_LINES(p, "{\n"
                 "    .reg .pred %in, %more, %first_cta;\n"
                 "    .reg .u32 %lane, %warp, %index, %job, %jobs, %tile, %column, %sums;\n"
                 "    .reg .u64 %row;\n");
    if (r->ring.depth)
        ptx_ring_declare(p, &r->ring);
    if (f->q8 || f->halves)
        PTX_FILL(p, "    .shared .align 16 .b8 sums[$0];\n", r->buffers * r->sums_bytes);
    else
        PTX_FILL(p, "    .shared .align 16 .b8 weights[$0];\n", r->sums_bytes);
    if (r->row_bytes)
        PTX_FILL(p, "    .shared .align 16 .b8 row[$0];\n", r->row_bytes);
    if (r->exchange_bytes)
        PTX_FILL(p, "    .shared .align 16 .b8 exchange[$0];\n", r->exchange_bytes);
    if (r->partials_bytes)
        PTX_FILL(p, "    .shared .align 16 .b8 partials[$0];\n", r->partials_bytes);
    PTX_LINES(p, "    mov.u32 %index, %tid.x;\n"
                 "    and.b32 %lane, %index, 31;\n"
                 "    shr.u32 %warp, %index, 5;\n"
                 "    mov.u32 %job, %ctaid.x;\n"
                 "    mov.u32 %jobs, %nctaid.x;\n"
                 "    setp.eq.u32 %first_cta, %job, 0;\n");
    if (f->q8)
        PTX_LINES(p, "    mov.u32 %sums, sums;\n");
}

// ---- prefetch of weights

void ptx_fused_prefetch(struct ptx *p, uint32_t bytes, uint32_t threads, uint32_t label)
{
    PTX_FILL(p,
             "    mad.wide.u32 %w8, %index, 128, %w8;\n"
             "    mul.lo.u32 %line, %index, 128;\n"
             "    setp.ge.u32 %in, %line, $0;\n"
             "    @%in bra FETCHED_$2;\n"
             "FETCH_$2:\n"
             "    prefetch.global.L2 [%w8];\n"
             "    add.u64 %w8, %w8, $1;\n"
             "    add.u32 %line, %line, $1;\n"
             "    setp.lt.u32 %in, %line, $0;\n"
             "    @%in bra FETCH_$2;\n"
             "FETCHED_$2:\n",
             bytes, 128 * threads, label);
}

// Prefetches the weights of the CTA's first unit, if it belongs to a section of experts (experts: true), or to another
// section (false).
static void prefetch_first(struct ptx *p, const struct ptx_fused *f, const struct frame *r, bool experts)
{
    uint32_t first = 0;
    PTX_LINES(p, "    {\n"
                 "    .reg .u32 %unit8, %line;\n"
                 "    .reg .u64 %w8;\n");
    for (uint32_t i = 0; i < (uint32_t)f->n_sections; i++) {
        const struct ptx_fused_section *s = &f->sections[i];
        uint32_t end = first + ptx_fused_units(s);
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %job, $0;\n"
                 "    @%in bra BEHIND_$1;\n"
                 "    sub.u32 %unit8, %job, $2;\n",
                 end, i, first);
        if (!experts && r->loads)
            ptx_fused_narrow_prefetch(p, f, s, 32 * r->warps, i * FUSED_LEGS);
        if (experts && s->experts.n_used)
            ptx_fused_experts_prefetch(p, f, s, 32 * r->warps, i * FUSED_LEGS);
        for (uint32_t l = 0; l < (uint32_t)s->n_legs && !experts && !s->experts.n_used && !r->loads; l++) {
            uint32_t bytes = ptx_fused_tiles(s) * (uint32_t)tile_bytes(s->legs[l].type, f->n_in);
            PTX_FILL(p,
                     "    ld.param.u64 %w8, [p$0];\n"
                     "    cvta.to.global.u64 %w8, %w8;\n"
                     "    mad.wide.u32 %w8, %unit8, $1, %w8;\n",
                     (uint32_t)s->legs[l].w, bytes);
            ptx_fused_prefetch(p, bytes, 32 * r->warps, i * FUSED_LEGS + l);
        }
        PTX_FILL(p, "    bra AHEAD;\nBEHIND_$0:\n", i);
        first = end;
    }
    PTX_LINES(p, "AHEAD:\n"
                 "    }\n");
}

// Prefetches the weights of the CTA's first unit. A dependent kernel waits for the launches ahead of it, before that
// where they choose the experts.
static void prefetch_all(struct ptx *p, const struct ptx_fused *f, const struct frame *r)
{
    bool plain = false, experts = false;
    for (int i = 0; i < f->n_sections; i++) {
        plain = plain || !f->sections[i].experts.n_used;
        experts = experts || f->sections[i].experts.n_used;
    }
    if (plain)
        prefetch_first(p, f, r, false);
    if (f->dependent)
        PTX_LINES(p, "    griddepcontrol.wait;\n"
                     "    griddepcontrol.launch_dependents;\n");
    else
        PTX_LINES(p, PTX_READS_FROM_HERE "\n");
    if (experts)
        prefetch_first(p, f, r, true);
}

// ---- the row

static void make_float_row(struct ptx *p, const struct ptx_fused *f, const struct frame *r)
{
    PTX_FILL(p,
             "    mov.u32 %i, %index;\n"
             "    setp.ge.u32 %in, %i, $0;\n"
             "    @%in bra ROW_END;\n"
             "ROW:\n",
             ptx_fused_width(f));
    ptx_fused_row_elements(p, f, 1);
    ptx_fused_row_stores(p, f, 1);
    PTX_FILL(p,
             "    mov.u32 %turn, row;\n"
             "    mad.lo.u32 %turn, %i, 4, %turn;\n"
             "    st.shared.f32 [%turn], %e$0;\n"
             "    }\n"
             "    add.u32 %i, %i, $1;\n"
             "    setp.lt.u32 %more, %i, $2;\n"
             "    @%more bra ROW;\n"
             "ROW_END:\n",
             8 * (uint32_t)(f->n_prologue - 1), 32 * r->warps, ptx_fused_width(f));
}

// Sets %row to the address of the row in the products' format: in shared memory if there is a prologue, which is
// computed here, else in global memory.
static void make_row(struct ptx *p, const struct ptx_fused *f, const struct frame *r)
{
    if (!f->n_prologue) {
        PTX_FILL(p,
                 "    ld.param.u64 %row, [p$0];\n"
                 "    cvta.to.global.u64 %row, %row;\n",
                 (uint32_t)f->source);
        return;
    }
    PTX_LINES(p, "    mov.u32 %sums, row;\n"
                 "    cvt.u64.u32 %row, %sums;\n");
    if (f->q8)
        PTX_LINES(p, "    mov.u32 %sums, sums;\n");
    ptx_fused_row_head(p, f);
    ptx_fused_row_norms(p, f, r->warps);
    if (f->q8)
        ptx_fused_q8_row(p, f, r->warps);
    else if (f->halves)
        ptx_fused_half_row(p, f, r->warps);
    else
        make_float_row(p, f, r);
    PTX_LINES(p, "    bar.sync 0;\n");
}

// ---- products of float32 activations

// Computes tile j of the unit, of a matrix of leg l at the address in <w>, with all 8 warps. The sums end in %y<leg> of
// warp j.
static void f32_tile(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s, uint32_t l,
                     uint32_t j, const char *w)
{
    enum dtype type = s->legs[l].type;
    const struct ptx_matmul m = {.node = type,
                                 .type = type,
                                 .n_in = f->n_in,
                                 .n_out = s->n_out,
                                 .rows = 1,
                                 .x_stride = ptx_fused_parts(f) > 1 ? ptx_fused_part_bytes(f) : 16,
                                 .x_shared = f->n_prologue > 0};
    PTX_FILL(p,
             "    {\n"
             "    .reg .u32 %index;\n"
             "    .reg .u64 %w_tile, %px0;\n"
             "    .reg .f32 %sum;\n"
             "    add.u32 %index, %tile, $0;\n"
             "    mad.wide.u32 %w_tile, %index, $1, ",
             j, (uint32_t)tile_bytes(type, f->n_in));
    ptx_word(p, w);
    PTX_LINES(p, ";\n"
                 "    mov.u64 %px0, %x_row;\n");
    ptx_matmul_f32_tile(p, &m);
    PTX_FILL(p,
             "    setp.ne.u32 %in, %warp, $0;\n"
             "    @%in bra SUM_END;\n"
             "    mov.u32 %take, weights;\n"
             "    mad.lo.u32 %take, %lane, 4, %take;\n",
             j);
    ptx_matmul_f32_sum(p, &m);
    PTX_FILL(p,
             "    mov.f32 %y$0, %sum;\n"
             "SUM_END:\n"
             "    }\n"
             "    bar.sync 0;\n",
             l);
}

// Computes the products of one place after another, and adds them up.
static void f32_places(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    PTX_LINES(p, "    mov.f32 %y0, 0f00000000;\n"
                 "    mov.f32 %total, 0f00000000;\n"
                 "    mov.u32 %place, 0;\n"
                 "PLACE:\n");
    ptx_fused_experts_place(p, f, s);
    for (uint32_t j = 0; j < ptx_fused_tiles(s); j++)
        f32_tile(p, f, s, 0, j, "%w_place");
    ptx_fused_experts_bias(p, s, 0);
    ptx_fused_experts_add(p, s, 0);
    PTX_FILL(p,
             "    add.u32 %place, %place, 1;\n"
             "    setp.lt.u32 %more, %place, $0;\n"
             "    @%more bra PLACE;\n"
             "    mov.f32 %y0, %total;\n",
             s->experts.n_used);
}

static void f32_products(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    static const char *const w[FUSED_LEGS] = {"%w0", "%w1", "%w2"};
    if (s->experts.summed)
        f32_places(p, f, s);
    for (uint32_t l = 0; l < (uint32_t)s->n_legs && !s->experts.summed; l++)
        for (uint32_t j = 0; j < ptx_fused_tiles(s); j++)
            f32_tile(p, f, s, l, j, w[l]);
    PTX_FILL(p,
             "    setp.ge.u32 %in, %warp, $0;\n"
             "    @%in bra MADE;\n",
             ptx_fused_tiles(s));
}

// ---- sections

// Processes unit number %job - first of a section. Warps beyond the unit's columns skip the nodes (label MADE).
static void section(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s, const struct frame *r,
                    uint32_t first)
{
    PTX_FILL(p,
             "    {\n"
             "    .reg .u32 %local;\n"
             "    .reg .u64 %w<$0>, %x_row;\n"
             "    mov.u64 %x_row, %row;\n"
             "    sub.u32 %tile, %job, $1;\n",
             (uint32_t)s->n_legs, first);
    for (uint32_t l = 0; l < (uint32_t)s->n_legs && !r->ring.depth; l++)
        PTX_FILL(p,
                 "    ld.param.u64 %w$0, [p$1];\n"
                 "    cvta.to.global.u64 %w$0, %w$0;\n",
                 l, (uint32_t)s->legs[l].w);
    if (s->experts.n_used)
        ptx_fused_experts_find(p, f, s);
    PTX_FILL(p,
             "    mad.lo.u32 %local, %tile, $0, %index;\n"
             "    mov.u32 %column, %local;\n",
             s->unit);
    if (!r->ring.depth)
        PTX_FILL(p, "    mul.lo.u32 %tile, %tile, $0;\n", MAX(ptx_fused_tiles(s), 1u));
    if (s->experts.n_used && !s->experts.summed)
        PTX_FILL(p, "    mad.lo.u32 %column, %place, $0, %column;\n", s->n_out);
    ptx_fused_columns_load(p, s);
    if (f->q8)
        ptx_fused_q8_products(p, f, s, r->warps, &r->ring);
    else if (f->halves)
        ptx_fused_half_products(p, f, s, &r->ring);
    else if (r->loads)
        ptx_fused_narrow_products(p, f, s, r->loads);
    else
        f32_products(p, f, s);
    ptx_fused_columns(p, s);
    PTX_LINES(p, "MADE:\n");
    if (f->halves || (f->q8 && r->buffers == 1))
        PTX_LINES(p, "    bar.sync 0;\n");
    PTX_LINES(p, "    }\n");
}

static void sections(struct ptx *p, const struct ptx_fused *f, const struct frame *r)
{
    uint32_t first = 0;
    PTX_FILL(p,
             "    setp.ge.u32 %in, %job, $0;\n"
             "    @%in ret;\n"
             "UNIT:\n",
             r->units);
    for (int i = 0; i < f->n_sections; i++) {
        uint32_t end = first + ptx_fused_units(&f->sections[i]);
        if (i + 1 < f->n_sections)
            PTX_FILL(p,
                     "    setp.ge.u32 %in, %job, $0;\n"
                     "    @%in bra SECTION_$1;\n",
                     end, (uint32_t)i + 1);
        section(p, f, &f->sections[i], r, first);
        if (i + 1 < f->n_sections)
            PTX_FILL(p,
                     "    bra NEXT;\n"
                     "SECTION_$0:\n",
                     (uint32_t)i + 1);
        first = end;
    }
    PTX_LINES(p, "NEXT:\n");
    if (r->buffers == 2)
        PTX_FILL(p,
                 "    // the other half of the sums\n"
                 "    mov.u32 %tile, sums;\n"
                 "    sub.u32 %sums, %sums, %tile;\n"
                 "    xor.b32 %sums, %sums, $0;\n"
                 "    add.u32 %sums, %sums, %tile;\n",
                 r->sums_bytes);
    PTX_FILL(p,
             "    add.u32 %job, %job, %jobs;\n"
             "    setp.lt.u32 %more, %job, $0;\n"
             "    @%more bra UNIT;\n",
             r->units);
}

int ptx_emit_fused(struct ptx *p, const struct ptx_fused *f, struct ptx_launch *launch, struct error *err)
{
    struct frame r = frame_of(f);
    if (check(f, &r, err))
        return -1;
    head(p, f, &r);
    if (r.ring.depth)
        ptx_ring_fill(p, f, &r.ring, r.warps);
    else
        prefetch_all(p, f, &r);
    make_row(p, f, &r);
    sections(p, f, &r);
    ptx_fused_choose(p, f);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){
        .entry = "fused", .grid = {r.units, 1, 1}, .block = {32 * r.warps, 1, 1}, .shared = ptx_ring_bytes(&r.ring)};
    return ptx_finish(p, err);
}
