// Emits products of 5 to 64 rows of 8-bit activations on tensor cores (mma.sync), for the classes of 8, 16 and 32 rows:
// sequences at once, drafts, and short prompts. The bits are those of the other kernels.
//
// A CTA of up to 8 warps computes the 32 outputs of a tile for 8, 16 or 32 rows, and so an output of 4,096 gives work to 128
// multiprocessors, where the kernel for many rows, with 128 outputs a CTA, gives it to 32. The weights are read and
// unpacked once for all rows of the class.
//
// As in emit_matmul_q8.c the blocks of 256 are distributed over the warps, a warp computes the complete S of a block for
// all rows, and the S are added in the order of the blocks. A round is a block for each warp; there are as many warps as
// have work in every round, if possible, so that with n_in = 768 a multiprocessor has room for more CTAs. For each part of 32 k a lane unpacks the
// weights of its own row, the warp exchanges the bytes by way of shared memory to the fragments of two tiles of 16
// outputs, and each 8 rows of activations are multiplied with both. An activation is loaded straight to its fragment.
//
// Which k a fragment holds is free as long as both factors agree: where the part has one scale, lane t of four has k 8 t
// to 8 t + 7, which one load brings. Where it has a scale for each 16 k, a product of k = 16 must hold one run, and two
// loads bring k 4 t to + 3 of both runs.
//
// Shared memory: for each warp a region that holds the part's bytes, in rows of 48, and the steps and sums of the block's
// activations; at the end of the block the S, as [row][output], take their place.
//
// With experts a CTA has the places of a group (emit_group.c) instead of neighbouring rows: their rows of x and of y are
// found in the list of places.
#include "kernels/ptx/emit_bytes.h"
#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/emit_grid.h"
#include "kernels/ptx/emit_matmul_mma.h"

enum { MOST_WARPS = 8, BYTES_STRIDE = 48, BYTES = 32 * BYTES_STRIDE };

// Where the region of a warp has the steps of the activations, the sums of them and the minima of the weights, and its size.
static uint32_t steps_at(void)
{
    return BYTES;
}

static uint32_t sums_at(const struct ptx_matmul *m)
{
    return BYTES + 8 * m->rows;
}

static uint32_t minima_at(const struct ptx_matmul *m)
{
    return sums_at(m) + 32 * m->rows;
}

static uint32_t region_bytes(const struct ptx_matmul *m)
{
    return MAX(128 * m->rows, minima_at(m) + 16 * PTX_TILE_ROWS);
}

// Whether a matrix instruction multiplies scales with steps, where these are so fast that more of them cost less than
// multiplications.
static bool multiplies_scales(const struct ptx_matmul *m)
{
    return !ptx_scales_are_floats(m) && (m->target == 80 || m->target == 90 || m->target == 100);
}

// Whether each part multiplies sums of the activations by a float minimum.
static bool float_sums(const struct ptx_matmul *m)
{
    return ptx_scales_are_floats(m) && ptx_bytes_of(m->type)->min;
}

static uint32_t blocks_of(const struct ptx_matmul *m)
{
    return tile_units(m->type, m->n_in);
}

// The warps of a CTA. At the end a warp has at most 8 rows.
static uint32_t warps_of(const struct ptx_matmul *m)
{
    const uint32_t rounds = ptx_tiles(blocks_of(m), MOST_WARPS);
    return MAX(ptx_tiles(blocks_of(m), rounds), ptx_tiles(m->rows, 8));
}

// The rows of a warp at the end.
static uint32_t rows_of_warp(const struct ptx_matmul *m)
{
    return ptx_tiles(m->rows, warps_of(m));
}

// Whether the last warps have fewer rows of their own, or none.
static bool rows_overlap(const struct ptx_matmul *m)
{
    return warps_of(m) * rows_of_warp(m) != m->rows;
}

// Sets %at_row to the first row of the warp at the end. Where the last warps have fewer rows of their own, they begin with
// rows of the warp before, which they add as well and do not store.
static void first_row(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_FILL(p, "    mul.lo.u32 %at_row, %warp, $0;\n", rows_of_warp(m));
    if (rows_overlap(m))
        PTX_FILL(p, "    min.u32 %at_row, %at_row, $0;\n", m->rows - rows_of_warp(m));
}

// ---- the beginning

static void head(struct ptx *p, const struct ptx_matmul *m)
{
    const uint32_t tiles = m->rows / 8, each = MAX(tiles, rows_of_warp(m));
    if (m->target >= 80)
        ptx_header(p, 70, 80);
    else
        ptx_header(p, 65, 75);
    ptx_grid_table(p, m->type);
    ptx_matmul_entry(p, m, warps_of(m));
    PTX_FILL(p,
             "    .reg .pred %has;\n"
             PTX_MANY_REGS
             "    .reg .u32 %g, %t, %block, %part, %region, %put, %take, %take_steps, %take_sums, %at_row;\n"
             "    .reg .u32 %from0, %from1, %from2, %from3, %base;\n"
             "    .reg .u64 %unit, %chunk, %px_row, %px_all, %at_x, %pb<$3>;\n"
             "    .reg .b32 %a<8>, %b<2>, %c<4>, %e<4>, %scale<8>, %step<2>, %sum<2>, %by<4>, %low, %high;\n"
             "    .reg .f32 %d<4>, %m<4>, %f, %own_d, %own_m, %times<2>, %less<2>, %fsum<2>, %total<$3>;\n"
             "    .reg .pred %first_of_4;\n"
             "    .reg .b32 %isum<$1>;\n"
             "    .reg .f32 %s<$1>;\n"
             "    .shared .align 16 .b8 regions[$2];\n",
             tiles, 8 * tiles, warps_of(m) * region_bytes(m), each);
}

// Sets %px_row to the lane's row of the class, and the lane's places. Rows past the end are the last.
static void places(struct ptx *p, const struct ptx_matmul *m)
{
    ptx_matmul_many_group(p, m);
    ptx_matmul_many_weights(p, m);
    PTX_FILL(p,
             "    mad.wide.u32 %w_tile, %tile, $0, %w_tile;\n"
             "    shr.u32 %g, %lane, 2;\n"
             "    and.b32 %t, %lane, 3;\n"
             "    mov.u64 %px_all, %px0;\n",
             (uint32_t)tile_bytes(m->type, m->n_in));
    ptx_matmul_many_row(p, m, "%lane");
    PTX_FILL(p,
             "    mov.u64 %px_row, %px0;\n"
             "    setp.lt.u32 %has, %lane, $0;\n"
             "    setp.eq.u32 %first_of_4, %t, 0;\n"
             "    mov.u32 %base, $1;\n"
             "    mov.u32 %region, regions;\n"
             "    mad.lo.u32 %region, %warp, $2, %region;\n"
             "    // the lane's bytes, and what it names for ldmatrix\n"
             "    mad.lo.u32 %put, %lane, $3, %region;\n"
             "    and.b32 %take, %lane, 15;\n"
             "    mad.lo.u32 %take, %take, $3, %region;\n"
             "    and.b32 %index, %lane, 16;\n"
             "    add.u32 %take, %take, %index;\n",
             m->rows, ptx_scales_are_floats(m) ? MMA_M_BITS : 0, region_bytes(m), BYTES_STRIDE);
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    add.u32 %from$0, %g, $1;\n", i, 8 * i);
    for (uint32_t nt = 0; nt < rows_of_warp(m); nt++)
        PTX_FILL(p, "    mov.f32 %total$0, 0f00000000;\n", nt);
}

// ---- a block

// Sets %px0 to the row of x that belongs to the CTA's row number %at_row.
static void find_row(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_LINES(p, "    mov.u64 %px0, %px_all;\n");
    ptx_matmul_many_row(p, m, "%at_row");
}

// Begins block %block: clears its sums, copies the steps and sums of the activations, and sets %pb<nt> to the lane's
// activations of row 8 nt + g.
static void begin_block(struct ptx *p, const struct ptx_matmul *m)
{
    const uint32_t blocks = blocks_of(m);
    PTX_FILL(p,
             "    mad.wide.u32 %unit, %block, $0, %w_tile;\n"
             "    mad.wide.u32 %chunk, %lane, 16, %unit;\n"
             "    mad.wide.u32 %at_x, %block, 8, %px_row;\n"
             "    @%has ld.global.v2.b32 {%a0, %a1}, [%at_x+$1];\n"
             "    mad.lo.u32 %index, %lane, 8, %region;\n"
             "    @%has st.shared.v2.b32 [%index+$2], {%a0, %a1};\n",
             32 * tile_unit_bytes(m->type), blocks * PTX_Q8_STEPS, steps_at());
    if (ptx_bytes_of(m->type)->min)
        PTX_FILL(p,
                 "    mad.wide.u32 %at_x, %block, 32, %px_row;\n"
                 "    @%has ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%at_x+$0];\n"
                 "    @%has ld.global.v4.b32 {%a4, %a5, %a6, %a7}, [%at_x+$1];\n"
                 "    mad.lo.u32 %index, %lane, 32, %region;\n"
                 "    @%has st.shared.v4.b32 [%index+$2], {%a0, %a1, %a2, %a3};\n"
                 "    @%has st.shared.v4.b32 [%index+$3], {%a4, %a5, %a6, %a7};\n",
                 blocks * PTX_Q8_SUMS, blocks * PTX_Q8_SUMS + 16, sums_at(m), sums_at(m) + 16);
    for (uint32_t nt = 0; nt < m->rows / 8; nt++) {
        PTX_FILL(p, "    add.u32 %at_row, %g, $0;\n", 8 * nt);
        find_row(p, m);
        PTX_FILL(p,
                 "    mad.wide.u32 %pb$0, %block, 256, %px0;\n"
                 "    mad.wide.u32 %pb$0, %t, $1, %pb$0;\n",
                 nt, ptx_scale_runs(m) == 1 ? 8 : 4);
    }
    for (uint32_t i = 0; i < m->rows; i++)
        if (ptx_scales_are_floats(m))
            PTX_FILL(p, "    mov.f32 %s$0, 0f00000000;\n", i);
        else
            PTX_FILL(p, "    mov.b32 %isum$0, 0;\n", i);
    if (multiplies_scales(m))
        PTX_LINES(p, "    // column g of each 8\n"
                     "    mad.lo.u32 %take_steps, %g, 8, %region;\n");
    else
        PTX_LINES(p, "    // columns 2 t and 2 t + 1 of each 8\n"
                     "    mad.lo.u32 %take_steps, %t, 16, %region;\n");
    if (float_sums(m))
        PTX_LINES(p, "    mad.lo.u32 %take_sums, %t, 64, %region;\n");
    PTX_LINES(p, "    mov.u32 %part, 0;\n");
}

// Gives the lane what lanes g, g + 8, g + 16 and g + 24 have in <reg><number>: to <to><i>.
static void fetch(struct ptx *p, const char *to, uint32_t first, const char *reg)
{
    for (uint32_t i = 0; i < 4; i++) {
        ptx_word(p, "    shfl.sync.idx.b32 ");
        ptx_word(p, to);
        PTX_FILL(p, "$0, ", first + i);
        ptx_word(p, reg);
        PTX_FILL(p, ", %from$0, 31, 0xffffffff;\n", i);
    }
}

// Fetches the scales of the part for the lane's outputs: integers, or floats. The lane keeps the floats of a block, and
// stores the minima of the part's runs.
static void fetch_scales(struct ptx *p, const struct ptx_matmul *m)
{
    const struct ptx_bytes *b = ptx_bytes_of(m->type);
    if (ptx_scales_are_floats(m)) {
        fetch(p, "%d", 0, "%d");
        if (b->min || ptx_scale_runs(m) == 2)
            fetch(p, "%m", 0, "%m");
        return;
    }
    PTX_LINES(p, "    mov.f32 %own_d, %d;\n");
    fetch(p, "%scale", 0, "%s0");
    if (ptx_scale_runs(m) == 2)
        fetch(p, "%scale", 4, "%s1");
    if (!b->min)
        return;
    if (ptx_scale_runs(m) == 2)
        PTX_LINES(p, "    mad.lo.u32 %by0, %n1, 256, %n0;\n");
    else
        PTX_LINES(p, "    mul.lo.u32 %by0, %n0, 0x0101;\n");
    PTX_FILL(p,
             "    mov.f32 %own_m, %m;\n"
             "    mad.lo.u32 %by1, %lane, 16, %region;\n"
             "    mad.lo.u32 %by1, %part, 2, %by1;\n"
             "    st.shared.u16 [%by1+$0], %by0;\n",
             minima_at(m));
}

// Makes fragments of the scales: the first of 16 k has the scale, the others are zeros.
static void scale_fragments(struct ptx *p, const struct ptx_matmul *m)
{
    for (uint32_t i = 0; i < 4 * ptx_scale_runs(m); i++)
        PTX_FILL(p,
                 "    and.b32 %scale$0, %scale$0, 255;\n"
                 "    selp.b32 %scale$0, %scale$0, 0, %first_of_4;\n",
                 i);
}

// Unpacks part %part of the lane's row, and sets %a0 to %a7 to the warp's fragments of it.
static void unpack(struct ptx *p, const struct ptx_matmul *m)
{
    const struct ptx_part part = {.p = p, .node = m->node, .type = m->type};
    const uint32_t order = ptx_scale_runs(m) == 1 ? 2 : 1; // 0, 2, 4, 6 and 1, 3, 5, 7; or 0 to 3 and 4 to 7
    PTX_LINES(p, "    {\n" PTX_PART_REGS);
    ptx_type_bytes(&part);
    if (ptx_bytes_of(m->type)->less)
        ptx_mma_take_off(p, ptx_bytes_of(m->type)->less);
    PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n");
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t q = order == 2 ? i : 4 * i;
        PTX_FILL(p, "    st.shared.v4.b32 [%put+$0], {%q$1, %q$2, %q$3, %q$4};\n", 16 * i, q, q + order, q + 2 * order,
                 q + 3 * order);
    }
    fetch_scales(p, m);
    PTX_LINES(p, "    }\n"
                 "    bar.warp.sync 0xffffffff;\n");
    if (multiplies_scales(m))
        scale_fragments(p, m);
    for (uint32_t mt = 0; mt < 2; mt++)
        PTX_FILL(p,
                 "    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%a$0, %a$1, %a$2, %a$3}, [%take+$4];\n",
                 4 * mt, 4 * mt + 1, 4 * mt + 2, 4 * mt + 3, 16 * BYTES_STRIDE * mt);
}

// Loads the steps and, for float scales with a minimum, the sums of the lane's two columns of rows 8 nt to 8 nt + 7; or the
// fragment of the steps, where a matrix instruction multiplies them.
static void load_steps(struct ptx *p, const struct ptx_matmul *m, uint32_t nt)
{
    const bool sums = float_sums(m);
    if (multiplies_scales(m)) {
        PTX_FILL(p,
                 "    mov.b32 %step0, 0;\n"
                 "    @%first_of_4 ld.shared.u8 %step0, [%take_steps+$0];\n",
                 steps_at() + 64 * nt);
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        PTX_FILL(p, "    ld.shared.u8 %step$0, [%take_steps+$1];\n", i, steps_at() + 64 * nt + 8 * i);
        if (ptx_scales_are_floats(m))
            PTX_FILL(p,
                     "    cvt.rn.f32.u32 %times$0, %step$0;\n"
                     "    mul.rn.f32 %less$0, %times$0, 0f$x1;\n",
                     i, MMA_M_BITS | 1u << 31);
        if (sums)
            PTX_FILL(p,
                     "    ld.shared.b32 %sum$0, [%take_sums+$1];\n"
                     "    dp2a.lo.s32.s32 %sum$0, %sum$0, 0x01010101, 0;\n"
                     "    cvt.rn.f32.s32 %fsum$0, %sum$0;\n",
                     i, sums_at(m) + 256 * nt + 32 * i);
    }
}

// Loads the fragments of rows 8 nt to 8 nt + 7.
static void load_columns(struct ptx *p, const struct ptx_matmul *m, uint32_t nt)
{
    if (ptx_scale_runs(m) == 1)
        PTX_FILL(p, "    ld.global.v2.b32 {%b0, %b1}, [%pb$0];\n", nt);
    else
        PTX_FILL(p,
                 "    ld.global.b32 %b0, [%pb$0];\n"
                 "    ld.global.b32 %b1, [%pb$0+16];\n",
                 nt);
    PTX_FILL(p, "    add.u64 %pb$0, %pb$0, 32;\n", nt);
    load_steps(p, m, nt);
}

// With a scale for each run.
static void add_float_runs(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt)
{
    for (uint32_t run = 0; run < 2; run++) {
        ptx_mma_product_16(p, m, mt, 0, run);
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t at = 8 * nt + 4 * mt + i, output = 2 * mt + i / 2;
            PTX_FILL(p, "    fma.rn.f32 %f, %c$0, %times$1, %less$1;\n", i, i % 2);
            if (run)
                PTX_FILL(p, "    fma.rn.f32 %s$0, %f, %m$1, %s$0;\n", at, output);
            else
                PTX_FILL(p, "    fma.rn.f32 %s$0, %f, %d$1, %s$0;\n", at, output);
        }
    }
}

static void add_floats(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt)
{
    if (ptx_scale_runs(m) == 2) {
        add_float_runs(p, m, mt, nt);
        return;
    }
    ptx_mma_product_32(p, m, mt, 0);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t at = 8 * nt + 4 * mt + i, output = 2 * mt + i / 2;
        PTX_FILL(p,
                 "    fma.rn.f32 %f, %c$0, %times$1, %less$1;\n"
                 "    fma.rn.f32 %s$2, %f, %d$3, %s$2;\n",
                 i, i % 2, at, output);
        if (ptx_bytes_of(m->type)->min)
            PTX_FILL(p, "    fma.rn.f32 %s$0, %fsum$1, %m$2, %s$0;\n", at, i % 2, output);
    }
}

// Adds %c, the products of a run, times their scales and steps. The products of these are signed bytes times bytes.
static void add_run(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt, uint32_t run)
{
    if (multiplies_scales(m))
        PTX_FILL(p,
                 "    mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%by0, %by1, %by2, %by3}, {%scale$0, %scale$1}, "
                 "{%step0}, {%base, %base, %base, %base};\n",
                 4 * run + 2 * mt, 4 * run + 2 * mt + 1);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t at = 8 * nt + 4 * mt + i;
        if (multiplies_scales(m))
            PTX_FILL(p, "    mad.lo.s32 %isum$0, %c$1, %by$1, %isum$0;\n", at, i);
        else
            PTX_FILL(p,
                     "    mul.lo.s32 %by0, %c$0, %scale$1;\n"
                     "    mad.lo.s32 %isum$2, %by0, %step$3, %isum$2;\n",
                     i, 4 * run + 2 * mt + i / 2, at, i % 2);
    }
}

static void add_integers(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt)
{
    for (uint32_t run = 0; run < ptx_scale_runs(m); run++) {
        if (ptx_scale_runs(m) == 1)
            ptx_mma_product_32(p, m, mt, 0);
        else
            ptx_mma_product_16(p, m, mt, 0, run);
        add_run(p, m, mt, nt, run);
    }
}

// Makes the S of a block of integers.
static void make_s(struct ptx *p, const struct ptx_matmul *m)
{
    const bool min = ptx_bytes_of(m->type)->min;
    fetch(p, "%d", 0, "%own_d");
    if (min) {
        fetch(p, "%m", 0, "%own_m");
        PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n"
                     "    // minima 4 t to + 3 of outputs g, g + 8, g + 16 and g + 24; sums 4 t to + 3 of rows 8 nt + g\n"
                     "    mad.lo.u32 %index, %g, 16, %region;\n"
                     "    mad.lo.u32 %index, %t, 4, %index;\n"
                     "    mad.lo.u32 %take_sums, %g, 32, %region;\n"
                     "    mad.lo.u32 %take_sums, %t, 8, %take_sums;\n");
        for (uint32_t i = 0; i < 4; i++)
            PTX_FILL(p, "    ld.shared.b32 %a$0, [%index+$1];\n", i, minima_at(m) + 128 * i);
    }
    for (uint32_t nt = 0; nt < m->rows / 8; nt++) {
        if (min)
            PTX_FILL(p,
                     "    ld.shared.v2.b32 {%sum0, %sum1}, [%take_sums+$0];\n"
                     "    prmt.b32 %low, %sum0, %sum1, 0x6420;\n"
                     "    prmt.b32 %high, %sum0, %sum1, 0x7531;\n",
                     sums_at(m) + 256 * nt);
        for (uint32_t mt = 0; mt < 2; mt++) {
            if (min)
                ptx_mma_minima(p, m, mt);
            ptx_mma_scale_integers(p, m, mt, 8 * nt + 4 * mt);
        }
    }
}

// Makes the S of the block, and stores them as [row][output].
static void end_block(struct ptx *p, const struct ptx_matmul *m)
{
    if (!ptx_scales_are_floats(m))
        make_s(p, m);
    PTX_LINES(p, "    mad.lo.u32 %index, %t, 256, %region;\n"
                 "    mad.lo.u32 %index, %g, 4, %index;\n"
                 "    bar.warp.sync 0xffffffff;\n");
    for (uint32_t at = 0; at < m->rows; at++) {
        const uint32_t nt = at / 8, output = 2 * (at / 4 % 2) + at / 2 % 2;
        PTX_FILL(p, "    st.shared.f32 [%index+$0], %s$1;\n", 128 * (8 * nt + at % 2) + 32 * output, at);
    }
}

static void block(struct ptx *p, const struct ptx_matmul *m)
{
    begin_block(p, m);
    PTX_LINES(p, "PART: // 8 turns\n"
                 "    .pragma \"nounroll\";\n");
    unpack(p, m);
    for (uint32_t nt = 0; nt < m->rows / 8; nt++) {
        load_columns(p, m, nt);
        for (uint32_t mt = 0; mt < 2; mt++)
            (ptx_scales_are_floats(m) ? add_floats : add_integers)(p, m, mt, nt);
    }
    if (float_sums(m))
        PTX_LINES(p, "    add.u32 %take_sums, %take_sums, 4;\n");
    PTX_LINES(p, "    add.u32 %take_steps, %take_steps, 1;\n"
                 "    add.u32 %part, %part, 1;\n"
                 "    setp.lt.u32 %more, %part, 8;\n"
                 "    @%more bra PART;\n");
    end_block(p, m);
}

// ---- rounds

// Adds the S of the round's blocks to the sums of the thread, and output %lane, in their order.
// %take: the first block of the round; %block: how many there are.
static void add_round(struct ptx *p, const struct ptx_matmul *m)
{
    const uint32_t each = rows_of_warp(m);
    first_row(p, m);
    PTX_FILL(p,
             "    mov.u32 %put, regions;\n"
             "    mad.lo.u32 %put, %lane, 4, %put;\n"
             "    mad.lo.u32 %put, %at_row, $0, %put;\n",
             128);
    for (uint32_t i = 0; i < each; i++) {
        find_row(p, m);
        PTX_FILL(p,
                 "    mad.wide.u32 %pb$0, %take, 4, %px0;\n"
                 "    add.u32 %at_row, %at_row, 1;\n",
                 i);
    }
    PTX_FILL(p, "ADD: // $0 turns\n", warps_of(m));
    for (uint32_t i = 0; i < each; i++)
        PTX_FILL(p,
                 "    ld.shared.f32 %s$0, [%put+$1];\n"
                 "    ld.global.f32 %f, [%pb$0+$2];\n"
                 "    fma.rn.f32 %total$0, %s$0, %f, %total$0;\n"
                 "    add.u64 %pb$0, %pb$0, 4;\n",
                 i, 128 * i, blocks_of(m) * PTX_Q8_SCALES);
    PTX_FILL(p,
             "    add.u32 %put, %put, $0;\n"
             "    sub.u32 %block, %block, 1;\n"
             "    setp.ne.u32 %more, %block, 0;\n"
             "    @%more bra ADD;\n",
             region_bytes(m));
}

static void rounds(struct ptx *p, const struct ptx_matmul *m)
{
    const uint32_t blocks = blocks_of(m);
    PTX_FILL(p,
             "    .reg .u32 %round, %put_bytes, %take_bytes;\n"
             "    mov.u32 %put_bytes, %put;\n"
             "    mov.u32 %take_bytes, %take;\n"
             "    mov.u32 %round, 0;\n"
             "ROUND: // $1 products a turn\n"
             "    mov.u32 %put, %put_bytes;\n"
             "    mov.u32 %take, %take_bytes;\n"
             "    add.u32 %block, %round, %warp;\n"
             "    setp.ge.u32 %in, %block, $0;\n"
             "    @%in bra FORMED;\n",
             blocks, 256 * m->rows * blocks / (warps_of(m) * ptx_tiles(blocks, warps_of(m))));
    block(p, m);
    PTX_FILL(p,
             "FORMED:\n"
             "    bar.sync 0;\n"
             "    mov.u32 %take, %round;\n"
             "    sub.u32 %block, $0, %round;\n"
             "    min.u32 %block, %block, $1;\n",
             blocks, warps_of(m));
    add_round(p, m);
    PTX_FILL(p,
             "    add.u32 %round, %round, $0;\n"
             "    bar.sync 0;\n"
             "    setp.lt.u32 %more, %round, $1;\n"
             "    @%more bra ROUND;\n",
             warps_of(m), blocks);
}

// ---- the end

static void end(struct ptx *p, const struct ptx_matmul *m)
{
    const uint32_t each = rows_of_warp(m);
    // The places of experts follow each other in y.
    struct ptx_matmul places = *m;
    places.n_used = m->n_used ? 1 : 0;
    places.y_stride = m->n_used ? 4 * m->n_out : m->y_stride;
    if (m->n_sections)
        ptx_matmul_find_section(p, m);
    PTX_LINES(p, "    .reg .f32 %term;\n"
                 "    mad.lo.u32 %output, %tile, 32, %lane;\n");
    ptx_matmul_end_past(p, m);
    PTX_LINES(p, "    mov.u32 %place, 0;\n");
    first_row(p, m);
    for (uint32_t i = 0; i < each; i++) {
        PTX_FILL(p,
                 "    {\n"
                 "    .reg .pred %whole0;\n"
                 "    .reg .u32 %row0;\n"
                 "    .reg .f32 %sum;\n"
                 "    add.u32 %index, %at_row, $0;\n",
                 i);
        if (rows_overlap(m))
            PTX_FILL(p,
                     "    mul.lo.u32 %row, %warp, $0;\n"
                     "    setp.lt.u32 %in, %index, %row;\n"
                     "    @%in bra STORED;\n",
                     each);
        ptx_matmul_many_output(p, m, 0);
        PTX_FILL(p,
                 "    @!%whole0 ret;\n"
                 "    mov.u32 %row, %row0;\n"
                 "    mov.f32 %sum, %total$0;\n",
                 i);
        ptx_matmul_store(p, &places);
        PTX_LINES(p, "STORED:\n"
                     "    }\n");
    }
    PTX_LINES(p, "    ret;\n"
                 "}\n");
}

uint32_t ptx_matmul_rows_mma(struct ptx *p, const struct ptx_matmul *m)
{
    head(p, m);
    places(p, m);
    rounds(p, m);
    end(p, m);
    return warps_of(m);
}
