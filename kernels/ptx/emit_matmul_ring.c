// Emits products of 5 to 64 rows of 8-bit activations with weights that have integer scales, on tensor cores, for the
// classes of 8, 16 and 32 rows and compute capability 8.0 and later. The bits are those of the other kernels.
//
// As in emit_matmul_rows.c a CTA computes the 32 outputs of a tile, and each of its 8 warps every eighth block of 256; the S of a block is complete, and the S are added in the order of the blocks, eight at a time. There, a lane loads the weights
// of its row when it needs them, unpacks them, and exchanges them and their scales with the other lanes: for 8 rows
// 0.46 instructions for each product of Q4_K, most of them for the exchange. Here
//   - the units of a warp's next two blocks are on their way to shared memory (cp.async) while it multiplies one, so that
//     the bytes in flight do not depend on registers;
//   - a lane unpacks weights from there straight to its fragments (emit_fragment.c), and a matrix instruction multiplies
//     integer scales with steps, as in emit_matmul_wide.c.
//
// Shared memory: the sums of the outputs, for which there are no registers by 32 rows, and for each warp two stages. When a block is multiplied, its S, as [row][output], take the place of its
// weights; when they are added, the unit after next does.
#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/emit_fragment.h"
#include "kernels/ptx/emit_matmul_mma.h"

enum { WARPS = 8 };

static bool has_minimum(const struct ptx_matmul *m)
{
    return ptx_bytes_of(m->type)->min;
}

static uint32_t tiles_of(const struct ptx_matmul *m)
{
    return m->rows / 8;
}

static uint32_t blocks_of(const struct ptx_matmul *m)
{
    return tile_units(m->type, m->n_in);
}

static uint32_t unit_bytes(const struct ptx_matmul *m)
{
    return PTX_TILE_ROWS * tile_unit_bytes(m->type);
}

static uint32_t stage_bytes(const struct ptx_matmul *m)
{
    return MAX(unit_bytes(m), 4 * PTX_TILE_ROWS * m->rows);
}

// Where the sums of the outputs are, as [row][output], which only their threads touch.
static uint32_t totals_at(const struct ptx_matmul *m)
{
    return WARPS * 2 * stage_bytes(m);
}

uint32_t ptx_matmul_ring_bytes(const struct ptx_matmul *m)
{
    return totals_at(m) + 4 * PTX_TILE_ROWS * m->rows;
}

// ---- the beginning

static void head(struct ptx *p, const struct ptx_matmul *m)
{
    ptx_header(p, 70, 80);
    PTX_LINES(p, "\n.extern .shared .align 16 .b8 staged[];\n");
    ptx_matmul_entry(p, m, WARPS);
    PTX_FILL(p,
             PTX_FRAGMENT_REGS
             "    .reg .u32 %g, %t, %first, %last, %block, %round, %pair, %region, %stage, %unit_at, %raw, %base, %select;\n"
             "    .reg .u32 %put, %take;\n"
             "    .reg .u64 %from, %at_x, %pb<$0>;\n"
             "    .reg .b32 %b<4>, %c<4>, %e<4>, %scale<4>, %now<4>, %step<$0>, %by<4>, %mask, %low, %high, %x<$2>;\n"
             "    .reg .f32 %f, %total<$0>;\n"
             "    .reg .b32 %isum<$1>;\n"
             "    .reg .f32 %s<$1>;\n",
             tiles_of(m), m->rows, 8 * tiles_of(m));
}

// The places of a thread: %lane and %warp, the row %g and the column %t of its fragments, and the address of its warp's
// stages %region. Each section finds those that it needs, and no registers hold them between the sections.
enum { LANE = 1, FRAGMENT = 2, REGION = 4 };
static void places(struct ptx *p, const struct ptx_matmul *m, uint32_t which)
{
    PTX_LINES(p, "    mov.u32 %index, %tid.x;\n"
                 "    shr.u32 %warp, %index, 5;\n");
    if (which & LANE)
        PTX_LINES(p, "    and.b32 %lane, %index, 31;\n");
    if (which & FRAGMENT)
        PTX_LINES(p, "    bfe.u32 %g, %index, 2, 3;\n"
                     "    and.b32 %t, %index, 3;\n");
    if (which & REGION)
        PTX_FILL(p,
                 "    mov.u32 %region, staged;\n"
                 "    mad.lo.u32 %region, %warp, $0, %region;\n",
                 2 * stage_bytes(m));
}

// Sets %put to the address of the thread's sums, of rows rows / 8 * warp + i and output %lane.
static void find_totals(struct ptx *p, const struct ptx_matmul *m)
{
    places(p, m, LANE);
    PTX_FILL(p,
             "    mov.u32 %put, staged;\n"
             "    mad.lo.u32 %put, %warp, $0, %put;\n"
             "    mad.lo.u32 %put, %lane, 4, %put;\n"
             "    add.u32 %put, %put, $1;\n",
             128 * tiles_of(m), totals_at(m));
}

static void start(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_FILL(p,
             "    mad.wide.u32 %w_tile, %tile, $0, %w_tile;\n"
             "    mul.lo.u32 %first, %group, $1;\n"
             "    sub.u32 %last, %rows, 1;\n"
             "    mov.u32 %base, 0;\n"
             "    mov.u32 %stage, 0;\n"
             "    mov.u32 %round, 0;\n",
             (uint32_t)tile_bytes(m->type, m->n_in), m->rows);
    find_totals(p, m);
    PTX_LINES(p, "    mov.f32 %f, 0f00000000;\n");
    for (uint32_t i = 0; i < tiles_of(m); i++)
        PTX_FILL(p, "    st.shared.f32 [%put+$0], %f;\n", 128 * i);
}

// Copies the unit of the warp's block %block, if there is one, to the warp's stage at offset %stage.
static void copy(struct ptx *p, const struct ptx_matmul *m)
{
    const uint32_t chunks = unit_bytes(m) / 16;
    places(p, m, LANE | REGION);
    PTX_FILL(p,
             "    setp.lt.u32 %more, %block, $0;\n"
             "    mad.wide.u32 %from, %block, $1, %w_tile;\n"
             "    mad.wide.u32 %from, %lane, 16, %from;\n"
             "    add.u32 %put, %region, %stage;\n"
             "    mad.lo.u32 %put, %lane, 16, %put;\n",
             blocks_of(m), unit_bytes(m));
    if (chunks % 32)
        PTX_FILL(p,
                 "    setp.lt.u32 %in, %lane, $0;\n"
                 "    and.pred %in, %in, %more;\n",
                 chunks % 32);
    for (uint32_t i = 0; i < chunks; i += 32) {
        ptx_word(p, i + 32 > chunks ? "    @%in" : "    @%more");
        PTX_FILL(p, " cp.async.cg.shared.global [%put+$0], [%from+$0], 16;\n", 16 * i);
    }
    PTX_LINES(p, "    cp.async.commit_group;\n");
}

// ---- a block

// Sets %pb<nt> to the address of row 8 nt + g of the class; rows past the end are the last.
static void row_addresses(struct ptx *p, const struct ptx_matmul *m)
{
    for (uint32_t nt = 0; nt < tiles_of(m); nt++)
        PTX_FILL(p,
                 "    add.u32 %index, %first, $0;\n"
                 "    add.u32 %index, %index, %g;\n"
                 "    min.u32 %index, %index, %last;\n"
                 "    mad.wide.u32 %pb$1, %index, $2, %px0;\n",
                 8 * nt, nt, m->x_stride);
}

// Sets %unit_at and %raw to the places of the unit that is in the present stage.
static void find_unit(struct ptx *p)
{
    PTX_LINES(p, "    add.u32 %unit_at, %region, %stage;\n"
                 "    mad.lo.u32 %raw, %g, 16, %unit_at;\n"
                 "    mad.lo.u32 %raw, %t, 4, %raw;\n");
}

// Begins block %block, whose unit has arrived: loads the steps of the rows and the scales, and clears the sums.
static void begin_block(struct ptx *p, const struct ptx_matmul *m)
{
    const bool by_16 = ptx_scale_runs(m) == 2;
    places(p, m, FRAGMENT | REGION);
    find_unit(p);
    row_addresses(p, m);
    PTX_FILL(p, "    and.b32 %index, %t, $0;\n", by_16 ? 3 : 1);
    for (uint32_t nt = 0; nt < tiles_of(m); nt++) {
        PTX_FILL(p,
                 "    mad.wide.u32 %at_x, %block, 8, %pb$0;\n"
                 "    mad.wide.u32 %at_x, %index, $1, %at_x;\n",
                 nt, by_16 ? 2 : 4);
        if (by_16)
            PTX_FILL(p,
                     "    ld.global.u16 %step$0, [%at_x+$1];\n"
                     "    prmt.b32 %step$0, %step$0, 0, 0x1100;\n",
                     nt, blocks_of(m) * PTX_Q8_STEPS);
        else
            PTX_FILL(p, "    ld.global.b32 %step$0, [%at_x+$1];\n", nt, blocks_of(m) * PTX_Q8_STEPS);
        PTX_FILL(p,
                 "    mad.wide.u32 %pb$0, %block, 256, %pb$0;\n"
                 "    mad.wide.u32 %pb$0, %t, 4, %pb$0;\n",
                 nt);
    }
    ptx_fragment_scales(p, m->type, "%scale");
    for (uint32_t i = 0; i < m->rows; i++)
        PTX_FILL(p, "    mov.b32 %isum$0, 0;\n", i);
    PTX_LINES(p, "    mul.lo.u32 %select, %t, -32;\n"
                 "    mov.u32 %pair, 0;\n");
}

// Loads the activations of the pair of parts: for each tile of 8 rows the fragments of the first and of the other 16 k of
// both parts.
static void load_x(struct ptx *p, const struct ptx_matmul *m)
{
    for (uint32_t nt = 0; nt < tiles_of(m); nt++) {
        for (uint32_t i = 0; i < 4; i++)
            PTX_FILL(p, "    ld.global.b32 %x$0, [%pb$1+$2];\n", 4 * nt + i, nt, 16 * i);
        PTX_FILL(p, "    add.u64 %pb$0, %pb$0, 64;\n", nt);
    }
}

// Adds the product of tile mt of 16 outputs and tile nt of 8 rows, over a part or over run `run` of it.
static void add_product(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt, uint32_t run)
{
    if (ptx_scale_runs(m) == 2)
        ptx_mma_product_16(p, m, mt, 0, run);
    else
        ptx_mma_product_32(p, m, mt, 0);
    ptx_mma_add_scaled(p, mt, nt, 8 * nt + 4 * mt);
}

static void multiply_part(struct ptx *p, const struct ptx_matmul *m, uint32_t part)
{
    ptx_fragment_part(p, m->type, part);
    for (uint32_t run = 0; run < ptx_scale_runs(m); run++) {
        ptx_mma_next_scales(p);
        for (uint32_t nt = 0; nt < tiles_of(m); nt++) {
            PTX_FILL(p,
                     "    mov.b32 %b0, %x$0;\n"
                     "    mov.b32 %b1, %x$1;\n",
                     4 * nt + 2 * part, 4 * nt + 2 * part + 1);
            for (uint32_t mt = 0; mt < 2; mt++)
                add_product(p, m, mt, nt, run);
        }
    }
}

// Makes the S of the block, and stores them as [row][output] where its weights were.
static void end_block(struct ptx *p, const struct ptx_matmul *m)
{
    places(p, m, FRAGMENT | REGION);
    if (m->type == DT_Q2_K) // its minima are words of %raw
        find_unit(p);
    else
        PTX_LINES(p, "    add.u32 %unit_at, %region, %stage;\n");
    ptx_fragment_units(p, m->type);
    if (has_minimum(m)) {
        ptx_fragment_minima(p, m->type);
        row_addresses(p, m);
    }
    for (uint32_t nt = 0; nt < tiles_of(m); nt++) {
        if (has_minimum(m))
            PTX_FILL(p,
                     "    mad.wide.u32 %at_x, %block, 32, %pb$0;\n"
                     "    mad.wide.u32 %at_x, %t, 8, %at_x;\n"
                     "    ld.global.v2.b32 {%b0, %b1}, [%at_x+$1];\n"
                     "    prmt.b32 %low, %b0, %b1, 0x6420;\n"
                     "    prmt.b32 %high, %b0, %b1, 0x7531;\n",
                     nt, blocks_of(m) * PTX_Q8_SUMS);
        for (uint32_t mt = 0; mt < 2; mt++) {
            if (has_minimum(m))
                ptx_mma_minima(p, m, mt);
            ptx_mma_scale_integers(p, m, mt, 8 * nt + 4 * mt);
        }
    }
    PTX_LINES(p, "    mad.lo.u32 %put, %t, 256, %unit_at;\n"
                 "    mad.lo.u32 %put, %g, 4, %put;\n"
                 "    bar.warp.sync 0xffffffff;\n");
    for (uint32_t at = 0; at < m->rows; at++) {
        const uint32_t nt = at / 8, output = 2 * (at / 4 % 2) + at / 2 % 2;
        PTX_FILL(p, "    st.shared.f32 [%put+$0], %s$1;\n", 128 * (8 * nt + at % 2) + 32 * output, at);
    }
}

static void block(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_LINES(p, "    cp.async.wait_group 1;\n"
                 "    bar.warp.sync 0xffffffff;\n");
    begin_block(p, m);
    PTX_LINES(p, "PAIR: // 4 turns\n"
                 "    .pragma \"nounroll\";\n");
    load_x(p, m);
    ptx_fragment_pair(p, m->type);
    for (uint32_t part = 0; part < 2; part++)
        multiply_part(p, m, part);
    PTX_LINES(p, "    add.u32 %pair, %pair, 1;\n"
                 "    setp.lt.u32 %more, %pair, 4;\n"
                 "    @%more bra PAIR;\n");
    end_block(p, m);
}

// ---- rounds

// Adds the S of the round's blocks to the sums of the thread, of rows rows / 8 * warp + i and output %lane, in their order.
static void add_round(struct ptx *p, const struct ptx_matmul *m)
{
    places(p, m, LANE);
    PTX_FILL(p,
             "    mov.u32 %take, staged;\n"
             "    add.u32 %take, %take, %stage;\n"
             "    mad.lo.u32 %take, %lane, 4, %take;\n"
             "    mad.lo.u32 %take, %warp, $0, %take;\n"
             "    sub.u32 %pair, $1, %round;\n"
             "    min.u32 %pair, %pair, $2;\n",
             128 * tiles_of(m), blocks_of(m), WARPS);
    for (uint32_t i = 0; i < tiles_of(m); i++)
        PTX_FILL(p,
                 "    mad.lo.u32 %index, %warp, $0, $1;\n"
                 "    add.u32 %index, %index, %first;\n"
                 "    min.u32 %index, %index, %last;\n"
                 "    mad.wide.u32 %pb$1, %index, $2, %px0;\n"
                 "    mad.wide.u32 %pb$1, %round, 4, %pb$1;\n",
                 tiles_of(m), i, m->x_stride);
    find_totals(p, m);
    for (uint32_t i = 0; i < tiles_of(m); i++)
        PTX_FILL(p, "    ld.shared.f32 %total$0, [%put+$1];\n", i, 128 * i);
    PTX_FILL(p, "ADD: // $0 turns\n", MIN(blocks_of(m), (uint32_t)WARPS));
    for (uint32_t i = 0; i < tiles_of(m); i++)
        PTX_FILL(p,
                 "    ld.shared.f32 %s$0, [%take+$1];\n"
                 "    ld.global.f32 %f, [%pb$0+$2];\n"
                 "    fma.rn.f32 %total$0, %s$0, %f, %total$0;\n"
                 "    add.u64 %pb$0, %pb$0, 4;\n",
                 i, 128 * i, blocks_of(m) * PTX_Q8_SCALES);
    PTX_FILL(p,
             "    add.u32 %take, %take, $0;\n"
             "    sub.u32 %pair, %pair, 1;\n"
             "    setp.ne.u32 %more, %pair, 0;\n"
             "    @%more bra ADD;\n",
             2 * stage_bytes(m));
    for (uint32_t i = 0; i < tiles_of(m); i++)
        PTX_FILL(p, "    st.shared.f32 [%put+$1], %total$0;\n", i, 128 * i);
}

static void rounds(struct ptx *p, const struct ptx_matmul *m)
{
    const uint32_t blocks = blocks_of(m);
    PTX_LINES(p, "    mov.u32 %block, %warp;\n");
    copy(p, m);
    PTX_FILL(p,
             "    mov.u32 %stage, $0;\n"
             "    add.u32 %block, %block, $1;\n",
             stage_bytes(m), WARPS);
    copy(p, m);
    PTX_FILL(p,
             "    mov.u32 %stage, 0;\n"
             "ROUND: // $1 products a turn\n"
             "    mov.u32 %warp, %tid.x;\n"
             "    shr.u32 %warp, %warp, 5;\n"
             "    add.u32 %block, %round, %warp;\n"
             "    setp.ge.u32 %in, %block, $0;\n"
             "    @%in bra FORMED;\n",
             blocks, 256 * m->rows * blocks / (WARPS * ptx_tiles(blocks, WARPS)));
    block(p, m);
    PTX_LINES(p, "FORMED:\n"
                 "    bar.sync 0;\n");
    add_round(p, m);
    PTX_FILL(p,
             "    bar.sync 0;\n"
             "    add.u32 %block, %block, $0;\n",
             2 * WARPS);
    copy(p, m);
    PTX_FILL(p,
             "    sub.u32 %stage, $2, %stage;\n"
             "    add.u32 %round, %round, $0;\n"
             "    setp.lt.u32 %more, %round, $1;\n"
             "    @%more bra ROUND;\n",
             WARPS, blocks, stage_bytes(m));
}

// ---- the end

static void end(struct ptx *p, const struct ptx_matmul *m)
{
    find_totals(p, m);
    ptx_matmul_find_section(p, m);
    PTX_LINES(p, "    .reg .f32 %term;\n"
                 "    ld.param.u32 %rows, [n_rows];\n"
                 "    mad.lo.u32 %output, %tile, 32, %lane;\n");
    ptx_matmul_end_past(p, m);
    for (uint32_t i = 0; i < tiles_of(m); i++) {
        PTX_FILL(p,
                 "    {\n"
                 "    .reg .f32 %sum;\n"
                 "    mad.lo.u32 %row, %warp, $0, $1;\n"
                 "    add.u32 %row, %row, %first;\n"
                 "    setp.ge.u32 %in, %row, %rows;\n"
                 "    @%in ret;\n"
                 "    ld.shared.f32 %sum, [%put+$2];\n",
                 tiles_of(m), i, 128 * i);
        ptx_matmul_store(p, m);
        PTX_LINES(p, "    }\n");
    }
    PTX_LINES(p, "    ret;\n"
                 "}\n");
}

void ptx_matmul_ring(struct ptx *p, const struct ptx_matmul *m)
{
    head(p, m);
    start(p, m);
    rounds(p, m);
    end(p, m);
}
