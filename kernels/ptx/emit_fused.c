// Emits the frame of a fused kernel, the 8-bit row and the products of 8-bit and float32 activations. See emit_fused.h for the interface and the naive
// loop; emit_fused_row.c computes the nodes.
//
// The kernel: prefetch the first weights; compute the row (make_row); loop over units (sections): load the inputs of
// the nodes, compute the products of all legs, compute the nodes. With 8-bit activations a CTA has up to 16 warps, or
// up to 12 if a type's unit needs more registers, or up to 8 in the variants after the first; with float32 activations it
// has 8.
//
// Products of 8-bit activations are computed as in emit_matmul_q8.c: lane i of a warp has output i of a tile of 32, a
// warp computes the complete S of a block of 256 (an item), and the S are added in the order of the blocks. The items
// of all tiles and all legs of a unit are distributed over the warps together, so a unit of 32 columns with one leg
// and n_in = 4096 has 16 items. If shared memory suffices, the S are double-buffered: the warps without columns
// continue with the next unit while the others add.
//
// Products of float32 activations are computed tile after tile by 8 warps, as in emit_matmul.c.
//
// Shared memory: the S or the decoded weights, the row, and two small areas (see emit_fused.h).
#include "kernels/ptx/emit_fused.h"

#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/emit_fused_ring.h"
#include "kernels/ptx/emit_type.h"
#include "kernels/ptx/emit_matmul_parts.h"

#include <math.h>

enum {
    MAX_WARPS = 16,
    NARROW_WARPS = 8,
    LARGE_WARPS = 12,
    LARGE_UNIT = 256,
    SHARED_MAX = 48 << 10,
    MAX_SIZE = 1 << 20
};

// The shape of a kernel and its use of shared memory. The fields ending in _bytes are sizes in shared memory.
struct frame {
    uint32_t warps;      // of a CTA
    uint32_t units;      // of all sections
    uint32_t blocks;     // blocks of 256 in the row
    uint32_t row_bytes;  // the row, if there is a prologue
    uint32_t sums_bytes; // one buffer of S; without q8 the buffer of decoded weights
    uint32_t buffers;    // of S: 1 or 2
    uint32_t exchange_bytes, partials_bytes;
    struct ptx_ring ring; // depth 0: there is none
};

static uint32_t tiles_of(const struct ptx_fused_section *s)
{
    return s->unit / PTX_TILE_ROWS;
}

// The number of S (one for each leg, tile and block) that a unit computes.
static uint32_t items_of(const struct ptx_fused_section *s, uint32_t blocks)
{
    return (uint32_t)s->n_legs * tiles_of(s) * blocks;
}

// The most warps for which a lane has enough registers for a unit of every type used.
static uint32_t most_warps(const struct ptx_fused *f)
{
    if (f->variant != FUSED_WIDE)
        return NARROW_WARPS;
    for (int i = 0; i < f->n_sections; i++)
        for (int l = 0; l < f->sections[i].n_legs; l++)
            if (tile_unit_bytes(f->sections[i].legs[l].type) > LARGE_UNIT)
                return LARGE_WARPS;
    return MAX_WARPS;
}

// The bytes of static shared memory.
static uint64_t static_bytes(const struct frame *r)
{
    return (uint64_t)r->buffers * r->sums_bytes + r->row_bytes + r->exchange_bytes + r->partials_bytes;
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

// The warps that compute S.
static uint32_t workers_of(const struct frame *r)
{
    return r->ring.depth ? r->ring.warps : r->warps;
}

static struct frame frame_of(const struct ptx_fused *f)
{
    struct frame r = {.blocks = ptx_tiles(f->n_in, 256), .warps = f->q8 ? 1 : PTX_MATMUL_F32_WARPS, .buffers = 1};
    for (int i = 0; i < f->n_sections; i++) {
        const struct ptx_fused_section *s = &f->sections[i];
        uint32_t items = items_of(s, r.blocks);
        r.units += ptx_tiles(s->n_out, s->unit);
        r.exchange_bytes = MAX(r.exchange_bytes, ptx_fused_exchange_bytes(s));
        r.warps = MAX(r.warps, tiles_of(s));
        if (f->q8) {
            r.warps = MAX(r.warps, ptx_tiles(items, ptx_tiles(items, most_warps(f))));
            r.sums_bytes = MAX(r.sums_bytes, 128 * items);
        }
        if (f->halves)
            r.sums_bytes = MAX(r.sums_bytes, ptx_fused_half_sums_bytes(s));
    }
    for (int i = 0; i < f->n_prologue; i++)
        if (f->prologue[i].kind == FUSED_NORM)
            r.warps = MAX(r.warps, ptx_norm_threads(f->n_in) / 32);
    if (!f->q8 && !f->halves)
        r.sums_bytes = PTX_MATMUL_F32_BYTES;
    if (f->n_prologue)
        r.row_bytes = f->q8       ? r.blocks * PTX_Q8_BLOCK
                      : f->halves ? ptx_half_row_bytes(f->sections[0].legs[0].type, f->n_in)
                                  : 4 * f->n_in;
    r.row_bytes = (r.row_bytes + 15) & ~15u;
    r.partials_bytes = ptx_fused_partials_bytes(f);
    if (f->q8 && r.row_bytes + 2 * r.sums_bytes + r.exchange_bytes + r.partials_bytes <= SHARED_MAX)
        r.buffers = 2;
    if (ptx_ring_asked(f))
        add_ring(f, &r);
    return r;
}

static bool frame_fits(const struct ptx_fused *f, const struct frame *r)
{
    return static_bytes(r) <= SHARED_MAX && r->warps <= (f->variant == FUSED_WIDE ? MAX_WARPS : NARROW_WARPS) &&
           (!ptx_ring_asked(f) || r->ring.depth);
}

bool ptx_fused_fits(const struct ptx_fused *f)
{
    struct frame r = frame_of(f);
    return frame_fits(f, &r);
}

uint32_t ptx_fused_variants(const struct ptx_fused *f)
{
    struct ptx_fused g = *f;
    uint32_t n = 1;
    for (; (f->q8 || f->halves) && n < FUSED_VARIANTS; n++) {
        g.variant = (enum ptx_fused_variant)n;
        if (!ptx_fused_fits(&g))
            break;
    }
    return n;
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
    if (!s->n_out || s->n_out > MAX_SIZE || !s->unit || s->unit % 32 || s->unit > FUSED_UNIT ||
        (s->unit > 32 && s->n_out % s->unit) || s->n_legs < 1 || s->n_legs > FUSED_LEGS || s->n_nodes < 1 ||
        s->n_nodes > FUSED_NODES)
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
    return 0;
}

static int check(const struct ptx_fused *f, const struct frame *r, struct error *err)
{
    if (f->n_sections < 1 || f->n_sections > FUSED_SECTIONS || f->n_prologue < 0 || f->n_prologue > FUSED_NODES ||
        f->n_params < 1 || f->n_params > FUSED_PARAMS || !f->n_in || f->n_in > MAX_SIZE)
        return fail(err, E_GPU, "fused: %d sections of %u", f->n_sections, f->n_in);
    for (int i = 0; i < f->n_prologue; i++)
        if (check_node(&f->prologue[i], i, f->n_in, 0, err))
            return -1;
    for (int i = 0; i < f->n_sections; i++)
        if (check_section(f, &f->sections[i], err))
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
    for (int i = 0; i < f->n_sections && !f->q8; i++)
        for (int l = 0; l < f->sections[i].n_legs; l++) {
            enum dtype t = f->sections[i].legs[l].type;
            if (!there[t])
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
    PTX_LINES(p,
             "{\n"
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

// Prefetches `bytes` bytes at %w8 to L2. A thread takes one line of 128 bytes at a time.
static void prefetch(struct ptx *p, uint32_t bytes, uint32_t threads, uint32_t label)
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

// Prefetches the weights of the CTA's first unit. A dependent kernel then waits for the launches ahead of it.
static void prefetch_first(struct ptx *p, const struct ptx_fused *f, const struct frame *r)
{
    uint32_t first = 0;
    PTX_LINES(p, "    {\n"
                 "    .reg .u32 %unit8, %line;\n"
                 "    .reg .u64 %w8;\n");
    for (uint32_t i = 0; i < (uint32_t)f->n_sections; i++) {
        const struct ptx_fused_section *s = &f->sections[i];
        uint32_t end = first + ptx_tiles(s->n_out, s->unit);
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %job, $0;\n"
                 "    @%in bra BEHIND_$1;\n"
                 "    sub.u32 %unit8, %job, $2;\n",
                 end, i, first);
        for (uint32_t l = 0; l < (uint32_t)s->n_legs; l++) {
            uint32_t bytes = tiles_of(s) * (uint32_t)tile_bytes(s->legs[l].type, f->n_in);
            PTX_FILL(p,
                     "    ld.param.u64 %w8, [p$0];\n"
                     "    cvta.to.global.u64 %w8, %w8;\n"
                     "    mad.wide.u32 %w8, %unit8, $1, %w8;\n",
                     (uint32_t)s->legs[l].w, bytes);
            prefetch(p, bytes, 32 * r->warps, i * FUSED_LEGS + l);
        }
        PTX_FILL(p, "    bra AHEAD;\nBEHIND_$0:\n", i);
        first = end;
    }
    PTX_LINES(p, "AHEAD:\n"
                 "    }\n");
    if (f->dependent)
        PTX_LINES(p, "    griddepcontrol.wait;\n"
                     "    griddepcontrol.launch_dependents;\n");
}

// ---- the row

// Computes and quantises block %block of the row with one warp: each lane has 8 elements, from %i on. The bytes, sums,
// steps and scale go to shared memory in the layout of emit_dot.h. Where n_in is not a multiple of 8, a lane computes
// its elements one at a time; elements beyond the row are zeros.
static void quantize_block(struct ptx *p, const struct ptx_fused *f, const struct frame *r)
{
    uint32_t last = 8 * (uint32_t)(f->n_prologue - 1);
    PTX_LINES(p, "    {\n"
                 PTX_QUANTIZE_REGS
                 "    .reg .u32 %place;\n"
                 "    mul.lo.u32 %i, %block, 256;\n"
                 "    mad.lo.u32 %i, %lane, 8, %i;\n");
    if (f->n_in % 256)
        for (uint32_t u = 0; u < 8; u++)
            PTX_FILL(p, "    mov.f32 %x$0, 0f00000000;\n", u);
    for (uint32_t u = 0; u < 8; u += f->n_in % 8 ? 1 : 8) {
        uint32_t count = f->n_in % 8 ? 1 : 8;
        if (f->n_in % 256)
            PTX_FILL(p,
                     "    setp.ge.u32 %in, %i, $0;\n"
                     "    @%in bra BEYOND_$1;\n",
                     f->n_in, u);
        ptx_fused_row_elements(p, f, count);
        ptx_fused_row_stores(p, f, count);
        for (uint32_t k = 0; k < count; k++)
            PTX_FILL(p, "    mov.f32 %x$0, %e$1;\n", u + k, last + k);
        PTX_LINES(p, "    }\n");
        if (f->n_in % 256)
            PTX_FILL(p, "BEYOND_$0:\n", u);
        if (count == 1)
            PTX_LINES(p, "    add.u32 %i, %i, 1;\n");
    }
    ptx_quantize_lanes(p);
    PTX_FILL(p,
             "    cvt.u32.u64 %i, %row;\n"
             "    mad.lo.u32 %place, %block, 256, %i;\n"
             "    mad.lo.u32 %place, %lane, 8, %place;\n"
             "    st.shared.v2.u32 [%place], {%low, %high};\n"
             "    mad.lo.u32 %place, %block, 32, %i;\n"
             "    add.u32 %place, %place, %lane;\n"
             "    and.b32 %index8, %lane, 1;\n"
             "    setp.eq.u32 %in, %index8, 0;\n"
             "    @%in st.shared.u16 [%place+$0], %sum8;\n"
             "    shr.u32 %index8, %lane, 2;\n"
             "    mad.lo.u32 %place, %block, 8, %i;\n"
             "    add.u32 %place, %place, %index8;\n"
             "    and.b32 %index8, %lane, 3;\n"
             "    setp.eq.u32 %in, %index8, 0;\n"
             "    @%in st.shared.u8 [%place+$1], %step8;\n"
             "    setp.eq.u32 %in, %lane, 0;\n"
             "    mad.lo.u32 %place, %block, 4, %i;\n"
             "    @%in st.shared.f32 [%place+$2], %d;\n"
             "    }\n",
             r->blocks * PTX_Q8_SUMS, r->blocks * PTX_Q8_STEPS, r->blocks * PTX_Q8_SCALES);
}

static void make_q8_row(struct ptx *p, const struct ptx_fused *f, const struct frame *r)
{
    PTX_FILL(p,
             "    // the row's 8 bits, a warp a block of 256\n"
             "    .reg .u32 %block;\n"
             "    mov.u32 %block, %warp;\n"
             "    setp.ge.u32 %in, %block, $0;\n"
             "    @%in bra QUANTIZED;\n"
             "QUANTIZE:\n",
             r->blocks);
    quantize_block(p, f, r);
    PTX_FILL(p,
             "    add.u32 %block, %block, $0;\n"
             "    setp.lt.u32 %more, %block, $1;\n"
             "    @%more bra QUANTIZE;\n"
             "QUANTIZED:\n",
             r->warps, r->blocks);
}

static void make_float_row(struct ptx *p, const struct ptx_fused *f, const struct frame *r)
{
    PTX_FILL(p,
             "    mov.u32 %i, %index;\n"
             "    setp.ge.u32 %in, %i, $0;\n"
             "    @%in bra ROW_END;\n"
             "ROW:\n",
             f->n_in);
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
             8 * (uint32_t)(f->n_prologue - 1), 32 * r->warps, f->n_in);
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
        make_q8_row(p, f, r);
    else if (f->halves)
        ptx_fused_half_row(p, f, r->warps);
    else
        make_float_row(p, f, r);
    PTX_LINES(p, "    bar.sync 0;\n");
}

// ---- products of 8-bit activations

// From the warp's item %item, sets %w_base to the matrix of its leg, %j to its tile and %block to its block.
static void locate_item(struct ptx *p, const struct ptx_fused_section *s, const struct ptx_fused_run *run,
                        const struct frame *r)
{
    uint32_t tiles = tiles_of(s);
    PTX_FILL(p,
             "    div.u32 %part, %item, $0;\n"
             "    mul.lo.u32 %block, %part, $0;\n"
             "    sub.u32 %block, %item, %block;\n"
             "    mov.u64 %w_base, %w$1;\n",
             r->blocks, (uint32_t)run->first);
    for (uint32_t l = 1; l < (uint32_t)run->n; l++)
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %part, $0;\n"
                 "    selp.b64 %w_base, %w$1, %w_base, %in;\n",
                 l * tiles, (uint32_t)run->first + l);
    if (tiles > 1)
        PTX_FILL(p,
                 "    rem.u32 %j, %part, $0;\n"
                 "    add.u32 %j, %j, %tile;\n",
                 tiles);
    else
        PTX_LINES(p, "    mov.u32 %j, %tile;\n");
}

// Computes %bs0, the S of item %item.
static void compute_item(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                         const struct ptx_fused_run *run, const struct frame *r)
{
    enum dtype type = s->legs[run->first].type;
    const struct ptx_dot dot = {.p = p, .type = type, .rows = 1, .blocks = r->blocks, .shared = f->n_prologue > 0};
    locate_item(p, s, run, r);
    PTX_FILL(p,
             "    mad.wide.u32 %unit, %j, $0, %w_base;\n"
             "    mad.wide.u32 %unit, %block, $1, %unit;\n"
             "    mad.wide.u32 %chunk, %lane, 16, %unit;\n"
             "    mad.wide.u32 %pr0, %block, 256, %row;\n"
             "    mov.u64 %px0, %row;\n",
             (uint32_t)tile_bytes(type, f->n_in), 32 * tile_unit_bytes(type));
    ptx_dot_unit(&dot);
}

// Loops over the warp's items of a run, every warps-th one, and stores each S in its slot of shared memory. Item 0
// belongs to the warp that follows the last one of the previous run, so that all warps have about as many items.
static void compute_items(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                          const struct ptx_fused_run *run, const struct frame *r)
{
    uint32_t items = (uint32_t)run->n * tiles_of(s) * r->blocks, workers = workers_of(r), ahead = run->slot % workers;
    if (workers < r->warps)
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %warp, $0;\n"
                 "    @%in bra FORMED_$1;\n",
                 workers, (uint32_t)run->first);
    PTX_LINES(p, "    // the warp that has the fewest begins\n");
    if (r->ring.depth && !ahead)
        PTX_LINES(p, "    mov.u32 %item, %warp;\n");
    else
        PTX_FILL(p,
                 "    add.u32 %item, %warp, $0;\n"
                 "    setp.ge.u32 %in, %item, $1;\n"
                 "    @%in sub.u32 %item, %item, $1;\n",
                 workers - ahead, workers);
    if (!r->ring.depth || items < workers)
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %item, $0;\n"
                 "    @%in bra FORMED_$1;\n",
                 items, (uint32_t)run->first);
    PTX_FILL(p, "FORM_$0: // 256 products a turn\n", (uint32_t)run->first);
    if (r->ring.depth)
        ptx_ring_item(p, f, s, run, &r->ring);
    else
        compute_item(p, f, s, run, r);
    PTX_FILL(p,
             "    add.u32 %part, %item, $0;\n"
             "    mad.lo.u32 %part, %part, 128, %sums;\n"
             "    mad.lo.u32 %part, %lane, 4, %part;\n"
             "    st.shared.f32 [%part], %bs0;\n"
             "    add.u32 %item, %item, $1;\n"
             "    setp.lt.u32 %more, %item, $2;\n"
             "    @%more bra FORM_$3;\n"
             "FORMED_$3:\n",
             run->slot, workers, items, (uint32_t)run->first);
}

// Adds the S of the next n blocks of each leg, times the scales of the activations, to %y<leg>. %from8 is the address
// of the first S, %scales that of the first scale; both are advanced.
static void add_blocks(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                       const struct frame *r, uint32_t n)
{
    for (uint32_t b = 0; b < n; b++) {
        ptx_word(p, f->n_prologue ? "    ld.shared" : "    ld.global");
        PTX_FILL(p, ".f32 %da$0, [%scales+$1];\n", b, 4 * b);
    }
    for (uint32_t l = 0; l < (uint32_t)s->n_legs; l++) {
        uint32_t leg = 128 * l * tiles_of(s) * r->blocks;
        for (uint32_t b = 0; b < n; b++)
            PTX_FILL(p, "    ld.shared.f32 %bs$0, [%from8+$1];\n", b, leg + 128 * b);
        for (uint32_t b = 0; b < n; b++)
            PTX_FILL(p, "    fma.rn.f32 %y$0, %bs$1, %da$1, %y$0;\n", l, b);
    }
    PTX_FILL(p,
             "    add.u32 %from8, %from8, $0;\n"
             "    add.u64 %scales, %scales, $1;\n",
             128 * n, 4 * n);
}

// Warp w of the first tiles_of(s) warps adds the S of tile w of each leg to %y<leg>, in the order of the blocks.
static void add_up(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s, const struct frame *r)
{
    enum { AT_ONCE = 8 };
    uint32_t turns = r->blocks / AT_ONCE, rest = r->blocks % AT_ONCE;
    PTX_FILL(p,
             "    {\n"
             "    .reg .u32 %from8, %turn8;\n"
             "    .reg .u64 %scales;\n"
             "    .reg .f32 %da<8>, %bs<8>;\n"
             "    mad.lo.u32 %from8, %warp, $0, %sums;\n"
             "    mad.lo.u32 %from8, %lane, 4, %from8;\n"
             "    add.u64 %scales, %row, $1;\n",
             128 * r->blocks, r->blocks * PTX_Q8_SCALES);
    for (uint32_t l = 0; l < (uint32_t)s->n_legs; l++)
        PTX_FILL(p, "    mov.f32 %y$0, 0f00000000;\n", l);
    if (turns > 1)
        PTX_FILL(p, "    mov.u32 %turn8, $0;\nADD:\n", turns);
    if (turns)
        add_blocks(p, f, s, r, AT_ONCE);
    if (turns > 1)
        PTX_LINES(p, "    sub.u32 %turn8, %turn8, 1;\n"
                     "    setp.ne.u32 %more, %turn8, 0;\n"
                     "    @%more bra ADD;\n");
    if (rest)
        add_blocks(p, f, s, r, rest);
    PTX_LINES(p, "    }\n");
}

static void q8_products(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                        const struct frame *r)
{
    PTX_LINES(p, "    .reg .u32 %item, %part, %block, %j;\n"
                 "    .reg .u64 %w_base, %unit, %chunk, %pr0, %px0;\n"
                 "    .reg .f32 %bs0;\n");
    for (struct ptx_fused_run run = {0}; ptx_fused_next_run(s, tiles_of(s) * r->blocks, &run);)
        compute_items(p, f, s, &run, r);
    PTX_FILL(p,
             "    bar.sync 0;\n"
             "    setp.ge.u32 %in, %warp, $0;\n"
             "    @%in bra MADE;\n",
             tiles_of(s));
    add_up(p, f, s, r);
}

// ---- products of float32 activations

// Computes each tile of each leg with all 8 warps. The sums of tile j end in %y<leg> of warp j.
static void f32_products(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    for (uint32_t l = 0; l < (uint32_t)s->n_legs; l++)
        for (uint32_t j = 0; j < tiles_of(s); j++) {
            enum dtype type = s->legs[l].type;
            const struct ptx_matmul m = {.node = type,
                                         .type = type,
                                         .n_in = f->n_in,
                                         .n_out = s->n_out,
                                         .rows = 1,
                                         .x_stride = 16,
                                         .x_shared = f->n_prologue > 0};
            PTX_FILL(p,
                     "    {\n"
                     "    .reg .u32 %index;\n"
                     "    .reg .u64 %w_tile, %px0;\n"
                     "    .reg .f32 %sum;\n"
                     "    add.u32 %index, %tile, $0;\n"
                     "    mad.wide.u32 %w_tile, %index, $1, %w$2;\n"
                     "    mov.u64 %px0, %row;\n",
                     j, (uint32_t)tile_bytes(type, f->n_in), l);
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
    PTX_FILL(p,
             "    setp.ge.u32 %in, %warp, $0;\n"
             "    @%in bra MADE;\n",
             tiles_of(s));
}

// ---- sections

// Sets %tile to the first tile of the unit, and %w<leg> to the matrices.
static void section_weights(struct ptx *p, const struct ptx_fused_section *s)
{
    PTX_FILL(p, "    mul.lo.u32 %tile, %tile, $0;\n", tiles_of(s));
    for (uint32_t l = 0; l < (uint32_t)s->n_legs; l++)
        PTX_FILL(p,
                 "    ld.param.u64 %w$0, [p$1];\n"
                 "    cvta.to.global.u64 %w$0, %w$0;\n",
                 l, (uint32_t)s->legs[l].w);
}

// Processes unit number %job - first of a section. Warps beyond the unit's columns skip the nodes (label MADE).
static void section(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s, const struct frame *r,
                    uint32_t first)
{
    PTX_FILL(p,
             "    {\n"
             "    .reg .u64 %w<$0>;\n"
             "    sub.u32 %tile, %job, $1;\n"
             "    mad.lo.u32 %column, %tile, $2, %index;\n",
             (uint32_t)s->n_legs, first, s->unit);
    if (!r->ring.depth)
        section_weights(p, s);
    ptx_fused_columns_load(p, s);
    if (f->q8)
        q8_products(p, f, s, r);
    else if (f->halves)
        ptx_fused_half_products(p, f, s, &r->ring);
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
        uint32_t end = first + ptx_tiles(f->sections[i].n_out, f->sections[i].unit);
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
             "    @%more bra UNIT;\n"
             "    ret;\n"
             "}\n",
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
        prefetch_first(p, f, &r);
    make_row(p, f, &r);
    sections(p, f, &r);
    *launch = (struct ptx_launch){
        .entry = "fused", .grid = {r.units, 1, 1}, .block = {32 * r.warps, 1, 1}, .shared = ptx_ring_bytes(&r.ring)};
    return ptx_finish(p, err);
}
