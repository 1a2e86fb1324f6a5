// Emits products of weights of 16 bits with activations of 16 bits on tensor cores (mma.sync m16n8k16, sums in float32),
// for one row and for many, and the kernel that rounds activations to 16 bits. For compute capability 8.0 and later.
//
// Activations that meet F16 weights are scaled by a power of two for each row, which is exact, so that the largest of
// them lies between 2^14 and 2^15, and then rounded to f16: an error of 2^-12 of each, a sixteenth of that of 8 bits.
// Those that meet BF16 weights become two bf16 numbers, the rounded one and the rounded rest: an error of 2^-17.
//
// The order of the sum is the same in both kernels, and so a row has the same bits in both, whatever stands beside it:
// what a matrix instruction gives for an output depends on its row, its column and where the sum began. The units of 32
// of k are cut into 8 chains of units that follow each other. A chain begins with zero and adds, unit by unit, four or
// eight matrix instructions: of the first 16 k of its fragments those with the activations and with their rest, then of
// the other 16. The sums of the chains are added in their order.
//
// Which elements of k a fragment holds is free as long as both factors agree. A lane loads 16 bytes of a row, which are 8
// neighbouring elements: two words for the first instruction of k = 16, two for the second. So weights go from memory to
// the instruction as they are, without shared memory and without ldmatrix: lane 4 g + t reads chunk t of rows g, g + 8,
// g + 16 and g + 24 of a tile (weight_tile.h), and of the activations chunk t of row g.
//
// Few rows: a CTA of 8 warps computes the 32 outputs of a tile for up to 8 rows, and a warp a chain. With one row, seven
// of the eight columns are zeros: the weights come at the speed of memory, and the tensor cores wait for them.
// Many rows: a CTA computes 128 outputs for 64 rows, a warp 32 by 32. Activations go through shared memory, 64 of k at a
// time, three stages of it by cp.async. The weights of the next unit are loaded while those of this one are multiplied.
#include "kernels/ptx/emit_matmul_mma.h"

enum { WARPS = 8, CHAINS = 8, UNIT = 32, UNIT_BYTES = 2048, UNROLL = 4 };
enum { STEP_UNITS = 2, STAGES = 3, PLANE = 8192, OUTPUTS = 128 };

bool ptx_takes_halves(enum dtype type, uint32_t n_in, uint32_t target)
{
    return (type == DT_F16 || type == DT_BF16) && n_in % UNIT == 0 && target >= 80;
}

static uint32_t pieces(enum dtype type)
{
    return type == DT_BF16 ? 2 : 1;
}

uint32_t ptx_half_row_bytes(enum dtype type, uint32_t n_in)
{
    return type == DT_BF16 ? 4 * n_in : 2 * n_in + 16;
}

static uint32_t chain_units(const struct ptx_matmul *m)
{
    return ptx_tiles(m->n_in / UNIT, CHAINS);
}

// ---- one unit

// One matrix instruction: adds to the sums %acc<first> to + 3 the product of rows 16 mt to 16 mt + 15 of the weights in
// %a<a> to + 15 with the columns in %b<b> and %b<b + 1>; half: the first 16 k of the unit, or the others.
static void product(struct ptx *p, const struct ptx_matmul *m, uint32_t a, uint32_t b, uint32_t acc, uint32_t mt,
                    uint32_t half)
{
    a += 8 * mt + 2 * half;
    ptx_word(p, m->type == DT_BF16 ? "    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                                   : "    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 ");
    PTX_FILL(p,
             "{%acc$0, %acc$1, %acc$2, %acc$3}, {%a$4, %a$5, %a$6, %a$7}, {%b$8, %b$9}, "
             "{%acc$0, %acc$1, %acc$2, %acc$3};\n",
             acc, acc + 1, acc + 2, acc + 3, a, a + 4, a + 1, a + 5, b, b + 1);
}

// The products of a unit for 8 columns, whose pieces are in %b<b> to + 3 and, with two, in the next four.
static void unit_products(struct ptx *p, const struct ptx_matmul *m, uint32_t a, uint32_t b, uint32_t acc,
                          uint32_t acc_of_mt)
{
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t piece = 0; piece < pieces(m->type); piece++)
            for (uint32_t mt = 0; mt < 2; mt++)
                product(p, m, a, b + 4 * piece + 2 * half, acc + mt * acc_of_mt, mt, half);
}

// Loads the lane's chunks of unit `unit` from %pa on to %a<a> to + 15.
static void load_weights(struct ptx *p, bool shared, uint32_t a, uint32_t unit)
{
    for (uint32_t i = 0; i < 4; i++) {
        ptx_word(p, shared ? "    ld.shared" : "    ld.global.nc");
        PTX_FILL(p, ".v4.b32 {%a$0, %a$1, %a$2, %a$3}, [%pa+$4];\n", a + 4 * i, a + 4 * i + 1, a + 4 * i + 2,
                 a + 4 * i + 3, UNIT_BYTES * unit + 128 * i);
    }
}

// ---- few rows

// Loads the lane's parts of `units` units that follow each other, and of the row.
static void load_units(struct ptx *p, const struct ptx_matmul *m, bool shared, uint32_t units)
{
    const uint32_t n = pieces(m->type);
    for (uint32_t u = 0; u < units; u++) {
        load_weights(p, shared, 16 * u, u);
        for (uint32_t piece = 0; piece < n; piece++) {
            const uint32_t b = 4 * (n * u + piece);
            ptx_word(p, m->x_shared ? "    @%has ld.shared" : "    @%has ld.global");
            PTX_FILL(p, ".v4.b32 {%b$0, %b$1, %b$2, %b$3}, [%pb+$4];\n", b, b + 1, b + 2, b + 3,
                     64 * u + 2 * m->n_in * piece);
        }
    }
}

// Multiplies `units` units that follow each other: first all loads, then the products.
static void few_units(struct ptx *p, const struct ptx_matmul *m, uint32_t units)
{
    load_units(p, m, false, units);
    for (uint32_t u = 0; u < units; u++)
        unit_products(p, m, 16 * u, 4 * pieces(m->type) * u, 0, 4);
    PTX_FILL(p,
             "    add.u64 %pa, %pa, $0;\n"
             "    add.u64 %pb, %pb, $1;\n"
             "    sub.s32 %left, %left, $2;\n",
             UNIT_BYTES * units, 64 * units, units);
}

// Sets %pb to the lane's chunk of the row at the first unit of its chain, and clears the sums and the columns without a
// row.
static void begin_sums(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_LINES(p, "    mad.wide.u32 %pb, %first, 64, %pb;\n"
                 "    mad.wide.u32 %pb, %t, 16, %pb;\n");
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p, "    mov.f32 %acc$0, 0f00000000;\n", i);
    for (uint32_t i = 0; i < 4 * UNROLL * pieces(m->type); i++)
        PTX_FILL(p, "    mov.b32 %b$0, 0;\n", i);
}

// The warp's place in its chain: %pa and %pb at the lane's chunks of its first unit, %left the number of its units.
static void find_chain(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_FILL(p,
             "    mul.lo.u32 %first, %warp, $0;\n"
             "    sub.u32 %left, $1, %first;\n"
             "    min.s32 %left, %left, $0;\n"
             "    mad.wide.u32 %pa, %first, $2, %w_tile;\n"
             "    mad.wide.u32 %pa, %t, 512, %pa;\n"
             "    mad.wide.u32 %pa, %g, 16, %pa;\n",
             chain_units(m), m->n_in / UNIT, UNIT_BYTES);
    begin_sums(p, m);
}

uint32_t ptx_half_stages(uint32_t n_in)
{
    const uint32_t units = CHAINS * PTX_HALF_STAGE_BYTES / UNIT_BYTES * UNIT;
    return n_in % units ? 0 : n_in / units;
}

void ptx_half_staged_chain(struct ptx *p, const struct ptx_matmul *m, const struct ptx_half_stage *stage)
{
    const uint32_t units = PTX_HALF_STAGE_BYTES / UNIT_BYTES;
    PTX_FILL(p, "    mul.lo.u32 %first, %warp, $0;\n", chain_units(m));
    begin_sums(p, m);
    PTX_FILL(p,
             "    mov.u32 %left, $0;\n"
             "STEP: // $1 products a turn\n",
             ptx_half_stages(m->n_in), units * UNIT * m->rows);
    stage->take(p, stage->of);
    PTX_LINES(p, "    mad.wide.u32 %pa, %t, 512, %pa;\n"
                 "    mad.wide.u32 %pa, %g, 16, %pa;\n");
    load_units(p, m, true, units);
    stage->loaded(p, stage->of);
    for (uint32_t u = 0; u < units; u++)
        unit_products(p, m, 16 * u, 4 * pieces(m->type) * u, 0, 4);
    PTX_FILL(p,
             "    add.u64 %pb, %pb, $0;\n"
             "    sub.u32 %left, %left, 1;\n"
             "    setp.ne.u32 %more, %left, 0;\n"
             "    @%more bra STEP;\n",
             64 * units);
}

void ptx_half_chain(struct ptx *p, const struct ptx_matmul *m)
{
    find_chain(p, m);
    PTX_FILL(p,
             "    setp.lt.s32 %more, %left, $0;\n"
             "    @%more bra REST;\n"
             "STEP: // $1 products a turn\n"
             "    .pragma \"nounroll\";\n",
             UNROLL, UNROLL * UNIT * m->rows);
    few_units(p, m, UNROLL);
    PTX_FILL(p,
             "    setp.ge.s32 %more, %left, $0;\n"
             "    @%more bra STEP;\n"
             "REST:\n"
             "    setp.lt.s32 %more, %left, 1;\n"
             "    @%more bra SUMMED;\n",
             UNROLL);
    few_units(p, m, 1);
    PTX_LINES(p, "    bra.uni REST;\n"
                 "SUMMED:\n");
}

static void few_places(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_LINES(p, PTX_HALF_REGS
                 "    .reg .u32 %put, %take;\n"
                 "    .reg .u64 %pb, %px_row;\n"
                 "    .shared .align 16 .b8 parts[8192];\n"
                 "    shr.u32 %g, %lane, 2;\n"
                 "    and.b32 %t, %lane, 3;\n"
                 "    mov.u64 %pb, %px0;\n"
                 "    mov.u64 %px_row, %px0;\n");
    for (uint32_t r = 1; r < m->rows; r++)
        PTX_FILL(p,
                 "    setp.eq.u32 %in, %g, $0;\n"
                 "    selp.b64 %pb, %px$0, %pb, %in;\n"
                 "    setp.eq.u32 %in, %warp, $0;\n"
                 "    selp.b64 %px_row, %px$0, %px_row, %in;\n",
                 r);
    PTX_FILL(p, "    setp.lt.u32 %has, %g, $0;\n", m->rows);
}

// Stores the sums of the chain as [chain][row][output].
static void share_parts(struct ptx *p)
{
    PTX_LINES(p, "    mov.u32 %take, parts;\n"
                 "    mad.lo.u32 %put, %warp, 1024, %take;\n"
                 "    mad.lo.u32 %put, %t, 256, %put;\n"
                 "    mad.lo.u32 %put, %g, 4, %put;\n"
                 "    mad.lo.u32 %take, %warp, 128, %take;\n"
                 "    mad.lo.u32 %take, %lane, 4, %take;\n");
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p, "    st.shared.f32 [%put+$0], %acc$1;\n", i / 4 * 64 + i / 2 % 2 * 32 + i % 2 * 128, i);
    PTX_LINES(p, "    bar.sync 0;\n");
}

static void add_chains(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_LINES(p, "    .reg .f32 %l<8>;\n"
                 "    mov.f32 %sum, 0f00000000;\n");
    for (uint32_t i = 0; i < CHAINS; i++)
        PTX_FILL(p, "    ld.shared.f32 %l$0, [%take+$1];\n", i, 1024 * i);
    for (uint32_t i = 0; i < CHAINS; i++)
        PTX_FILL(p, "    add.rn.f32 %sum, %sum, %l$0;\n", i);
    if (m->type == DT_F16)
        PTX_FILL(p,
                 "    ld.global.f32 %l0, [%px_row+$0];\n"
                 "    mul.rn.f32 %sum, %sum, %l0;\n",
                 2 * m->n_in);
}

void ptx_matmul_half_few(struct ptx *p, const struct ptx_matmul *m)
{
    ptx_header(p, 70, 80);
    ptx_matmul_entry(p, m, WARPS);
    ptx_matmul_sources(p, m);
    few_places(p, m);
    ptx_half_chain(p, m);
    share_parts(p);
    ptx_matmul_end(p, m, add_chains);
}

// ---- many rows

static void many_head(struct ptx *p, const struct ptx_matmul *m)
{
    ptx_header(p, 70, 80);
    ptx_matmul_entry(p, m, WARPS);
    PTX_FILL(p,
             PTX_MANY_REGS
             "    .reg .pred %second, %brings, %ends;\n"
             "    .reg .u32 %part, %wm, %wn, %g, %t, %step, %left, %slot, %take, %take0, %take1, %put0, %put1, %to;\n"
             "    .reg .u64 %pa, %from;\n"
             "    .reg .b32 %a<32>, %b<$0>;\n"
             "    .reg .f32 %acc<32>, %y<32>, %s;\n"
             "    .shared .align 128 .b8 stages[$1];\n",
             4 * pieces(m->type), STAGES * PLANE * pieces(m->type));
    if (m->type == DT_F16)
        PTX_LINES(p, "    .shared .align 16 .b8 scales[256];\n");
}

// Sets what the thread copies, chunks tid % 4 and that + 4 of row tid / 4, and to where. Rows in shared memory have 128
// bytes; of odd rows the halves of 64 bytes are exchanged, so that the lanes of two rows read from different banks.
static void many_sources(struct ptx *p, const struct ptx_matmul *m)
{
    ptx_matmul_many_group(p, m);
    ptx_matmul_many_weights(p, m);
    PTX_LINES(p, "    mov.u32 %index, %tid.x;\n"
                 "    shr.u32 %part, %index, 2;\n");
    ptx_matmul_many_row(p, m, "%part");
    PTX_LINES(p, "    and.b32 %t, %lane, 3;\n"
                 "    shr.u32 %g, %lane, 2;\n"
                 "    mad.wide.u32 %from, %t, 16, %px0;\n"
                 "    mov.u32 %index, stages;\n"
                 "    mad.lo.u32 %put0, %part, 128, %index;\n"
                 "    mad.lo.u32 %put0, %t, 16, %put0;\n"
                 "    and.b32 %row, %part, 1;\n"
                 "    shl.b32 %row, %row, 6;\n"
                 "    xor.b32 %put0, %put0, %row;\n"
                 "    xor.b32 %put1, %put0, 64;\n");
    if (m->type == DT_F16)
        PTX_FILL(p,
                 "    ld.global.f32 %s, [%px0+$0];\n"
                 "    mov.u32 %index, scales;\n"
                 "    mad.lo.u32 %index, %part, 4, %index;\n"
                 "    setp.eq.u32 %in, %t, 0;\n"
                 "    @%in st.shared.f32 [%index], %s;\n",
                 2 * m->n_in);
}

// Sets the addresses of the lane's fragments: of tile 4 * ctaid.x + warp / 2 of the weights (past the end: of the last),
// and of rows 32 * (warp % 2) + g of the activations.
static void many_fragments(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_LINES(p,
             "    shr.u32 %wm, %warp, 1;\n"
             "    and.b32 %wn, %warp, 1;\n"
             "    mad.lo.u32 %index, %tile, 4, %wm;\n"
             "    min.u32 %index, %index, ");
    ptx_matmul_put_last_tile(p, m);
    PTX_FILL(p,
             ";\n"
             "    mad.wide.u32 %pa, %index, $0, %w_tile;\n"
             "    mad.wide.u32 %pa, %t, 512, %pa;\n"
             "    mad.wide.u32 %pa, %g, 16, %pa;\n"
             "    mov.u32 %index, stages;\n"
             "    mad.lo.u32 %row, %wn, 32, %g;\n"
             "    mad.lo.u32 %take0, %row, 128, %index;\n"
             "    mad.lo.u32 %take0, %t, 16, %take0;\n"
             "    and.b32 %row, %row, 1;\n"
             "    shl.b32 %row, %row, 6;\n"
             "    xor.b32 %take0, %take0, %row;\n"
             "    xor.b32 %take1, %take0, 64;\n",
             (uint32_t)tile_bytes(m->type, m->n_in));
    for (uint32_t i = 0; i < 32; i++)
        PTX_FILL(p,
                 "    mov.f32 %acc$0, 0f00000000;\n"
                 "    mov.f32 %y$0, 0f00000000;\n",
                 i);
}

// Begins to copy the activations of the next step to the stage at offset %slot, and goes on to the one after it. The
// last step may have one unit alone.
static void bring(struct ptx *p, const struct ptx_matmul *m)
{
    const uint32_t units = m->n_in / UNIT, n = pieces(m->type);
    PTX_FILL(p,
             "    setp.lt.u32 %brings, %part, $0;\n"
             "    setp.lt.u32 %second, %part, $1;\n",
             ptx_tiles(units, STEP_UNITS), units / STEP_UNITS);
    for (uint32_t piece = 0; piece < n; piece++)
        PTX_FILL(p,
                 "    add.u32 %to, %put0, %slot;\n"
                 "    @%brings cp.async.cg.shared.global [%to+$0], [%from+$1], 16;\n"
                 "    add.u32 %to, %put1, %slot;\n"
                 "    @%second cp.async.cg.shared.global [%to+$0], [%from+$2], 16;\n",
                 PLANE * piece, 2 * m->n_in * piece, 2 * m->n_in * piece + 64);
    PTX_FILL(p,
             "    cp.async.commit_group;\n"
             "    add.u64 %from, %from, 128;\n"
             "    add.u32 %part, %part, 1;\n"
             "    add.u32 %slot, %slot, $0;\n"
             "    setp.eq.u32 %in, %slot, $1;\n"
             "    selp.b32 %slot, 0, %slot, %in;\n",
             PLANE * n, STAGES * PLANE * n);
}

// Adds the sums of a chain to those of the chains before it.
static void end_chain(struct ptx *p)
{
    for (uint32_t i = 0; i < 32; i++)
        PTX_FILL(p,
                 "    add.rn.f32 %y$0, %y$0, %acc$0;\n"
                 "    mov.f32 %acc$0, 0f00000000;\n",
                 i);
}

// The products of unit `u` of the step, whose weights are in %a<16 u> to + 15, while those of the next are loaded. Past
// the last unit of a tile the unit after it is not loaded.
static void many_unit(struct ptx *p, const struct ptx_matmul *m, uint32_t u)
{
    const uint32_t n = pieces(m->type), units = m->n_in / UNIT;
    PTX_FILL(p, "    setp.ge.u32 %ends, %step, $0;\n", units - 1);
    PTX_LINES(p, "    @%ends bra ");
    PTX_FILL(p, "LOADED$0;\n", u);
    load_weights(p, false, 16 * (1 - u), 1);
    PTX_FILL(p,
             "LOADED$0:\n"
             "    add.u64 %pa, %pa, $1;\n"
             "    add.u32 %step, %step, 1;\n",
             u, UNIT_BYTES);
    for (uint32_t nt = 0; nt < 4; nt++) {
        for (uint32_t piece = 0; piece < n; piece++)
            PTX_FILL(p, "    ld.shared.v4.b32 {%b$0, %b$1, %b$2, %b$3}, [%take+$4];\n", 4 * piece, 4 * piece + 1,
                     4 * piece + 2, 4 * piece + 3, PLANE * piece + 1024 * nt);
        unit_products(p, m, 16 * u, 0, 4 * nt, 16);
    }
    PTX_FILL(p,
             "    sub.u32 %left, %left, 1;\n"
             "    setp.ne.u32 %in, %left, 0;\n"
             "    @%in bra GOES_ON$0;\n",
             u);
    end_chain(p);
    PTX_FILL(p,
             "    mov.u32 %left, $1;\n"
             "GOES_ON$0:\n",
             u, chain_units(m));
}

static void many_steps(struct ptx *p, const struct ptx_matmul *m)
{
    const uint32_t units = m->n_in / UNIT, n = pieces(m->type);
    PTX_LINES(p, "    mov.u32 %part, 0;\n"
                 "    mov.u32 %slot, 0;\n");
    bring(p, m);
    bring(p, m);
    load_weights(p, false, 0, 0);
    PTX_FILL(p,
             "    mov.u32 %step, 0;\n"
             "    mov.u32 %to, 0;\n"
             "    mov.u32 %left, $0;\n"
             "    .reg .u32 %stage;\n"
             "    mov.u32 %stage, 0;\n"
             "STEP: // $1 products a turn\n"
             "    .pragma \"nounroll\";\n"
             "    cp.async.wait_group 1;\n"
             "    bar.sync 0;\n",
             chain_units(m), STEP_UNITS * UNIT * OUTPUTS * PTX_MANY_ROWS / (32 * WARPS));
    bring(p, m);
    PTX_LINES(p, "    add.u32 %take, %take0, %stage;\n");
    many_unit(p, m, 0);
    if (units % STEP_UNITS)
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %step, $0;\n"
                 "    @%in bra MULTIPLIED;\n",
                 units);
    PTX_LINES(p, "    add.u32 %take, %take1, %stage;\n");
    many_unit(p, m, 1);
    PTX_FILL(p,
             "    add.u32 %stage, %stage, $0;\n"
             "    setp.eq.u32 %in, %stage, $1;\n"
             "    selp.b32 %stage, 0, %stage, %in;\n"
             "    setp.lt.u32 %more, %step, $2;\n"
             "    @%more bra STEP;\n"
             "MULTIPLIED:\n",
             PLANE * n, STAGES * PLANE * n, units);
    if (units % chain_units(m))
        end_chain(p);
}

// Multiplies the sums by the scales of their rows of activations.
static void scale_rows(struct ptx *p)
{
    PTX_LINES(p, "    .reg .f32 %sc<2>;\n"
                 "    mov.u32 %take, scales;\n"
                 "    mad.lo.u32 %take, %wn, 128, %take;\n"
                 "    mad.lo.u32 %take, %t, 8, %take;\n");
    for (uint32_t nt = 0; nt < 4; nt++) {
        PTX_FILL(p, "    ld.shared.v2.f32 {%sc0, %sc1}, [%take+$0];\n", 32 * nt);
        for (uint32_t i = 0; i < 8; i++)
            PTX_FILL(p, "    mul.rn.f32 %y$0, %y$0, %sc$1;\n", i / 4 * 16 + 4 * nt + i % 4, i % 2);
    }
}

void ptx_matmul_half_many(struct ptx *p, const struct ptx_matmul *m)
{
    many_head(p, m);
    many_sources(p, m);
    many_fragments(p, m);
    many_steps(p, m);
    if (m->type == DT_F16)
        scale_rows(p);
    ptx_mma_store(p, m);
}
