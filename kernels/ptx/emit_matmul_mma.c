// Emits products of many rows of 8-bit activations on tensor cores (mma.sync), with the same bits as the kernels for
// few rows. ptx_matmul_rows chooses them (class PTX_MANY_ROWS, compute capability 7.5 or later).
//
// The integer sums of kernels/cpu/kernels.h are exact in any order, so mma.sync may compute them. The float
// operations between them are those of the other kernels, one fma after another. Decoding a token and processing a
// prompt therefore agree to the last bit.
//
// A CTA of 8 warps computes 128 outputs by 64 rows of x; a warp computes 32 by 32, as 2 x 4 mma tiles of 16 x 8. A turn
// takes 128 of k, half a block: the weights are unpacked to bytes in shared memory and the activations are copied
// (emit_matmul_mma_put.c), and each part of 32 is a product of k = 32 whose sums are multiplied by the part's scales
// and steps at once. Rows in shared memory are 144 bytes apart, so that the 8 rows of a fragment are in 8 different
// groups of banks.
//
// Each output has a scale and each row of x has a step, so the factor of a sum is a product of two numbers (enum
// mma_form). Done one by one, that is two multiplications for each sum. It takes only one:
//   - With float scales dw, S = fma(step * sum, dw, S). The sums start from the bits of the float M = 1.5 * 2^23, so
//     that in the end they are the bits of M + sum. Then step * sum = fma(M + sum, step, -M * step), which is exact. It
//     takes the place of the conversion to float.
//   - In Q2_K and Q3_K a scale times a weight fits 8 bits. So the weights are unpacked with their scales, and the sums
//     are multiplied by the steps only.
//   - Other integer scales: on some GPUs a matrix instruction forms the factors of 16 x 8 outputs, as a product of k =
//     16. Of the 16 steps of a row of x all but that of the part are 0. Other GPUs do both multiplications.
//
// The minima of Q2_K, Q4_K and Q5_K: the sum over 16 runs of minimum times sum of activations is also an integer
// product, of k = 16, with the sums of activations split into their low and high bytes. These sums have their steps
// already.
#include "kernels/ptx/emit_bytes.h"
#include "kernels/ptx/emit_grid.h"
#include "kernels/ptx/emit_matmul_mma.h"

enum { OUTPUTS = 128 };

// Fragments of 8 rows by 16 bytes, four or two of them.
#define LOAD_4 "    ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
#define LOAD_2 "    ldmatrix.sync.aligned.m8n8.x2.shared.b16 "

// ---- addresses

static void head(struct ptx *p, const struct ptx_matmul *m)
{
    if (m->target >= 80)
        ptx_header(p, 70, 80);
    else
        ptx_header(p, 65, 75);
    ptx_grid_table(p, m->type);
    ptx_matmul_entry(p, m, MMA_WARPS);
    PTX_FILL(p,
             PTX_MANY_REGS
                 "    .reg .u32 %half, %part, %wm, %wn, %g, %t, %base;\n"
                 "    .reg .u32 %put_w, %put_scale;\n"
                 "    .reg .u32 %take_a, %take_b, %take_scale, %take_x;\n"
                 "    .reg .u64 %unit, %chunk, %from;\n"
                 "    .reg .f32 %y<32>, %s<32>;\n"
                 "    .reg .b32 %isum<32>;\n"
                 "    .shared .align 16 .b8 staged[$0];\n",
             MMA_BYTES);
}

// Sets the places of the warp and the lane, and the addresses of what the thread copies: of the weights a row of tile
// warp / 2, of x a quarter of a row. Tiles and rows past the end are the last.
static void sources(struct ptx *p, const struct ptx_matmul *m)
{
    ptx_mma_clear(p, m);
    ptx_matmul_many_group(p, m);
    ptx_matmul_many_weights(p, m);
    PTX_FILL(p,
             "    mov.u32 %base, $0;\n"
             "    shr.u32 %wm, %warp, 1;\n"
             "    and.b32 %wn, %warp, 1;\n"
             "    shr.u32 %g, %lane, 2;\n"
             "    and.b32 %t, %lane, 3;\n"
             "    mad.lo.u32 %index, %tile, 4, %wm;\n"
             "    min.u32 %index, %index, ",
             ptx_mma_form(m) == MMA_FLOATS ? MMA_M_BITS : 0);
    ptx_matmul_put_last_tile(p, m);
    PTX_FILL(p,
             ";\n"
             "    mad.wide.u32 %w_tile, %index, $0, %w_tile;\n",
             (uint32_t)tile_bytes(m->type, m->n_in));
    ptx_mma_put_at(p, m);
    PTX_LINES(p, "    mad.lo.u32 %index, %warp, 32, %lane;\n"
                 "    shr.u32 %part, %index, 2;\n");
    ptx_matmul_many_row(p, m, "%part");
}

// Sets %take_x to the address of what there is for the lane's pairs of rows of x: 32 * wn + 2t and the next one, and
// those 8, 16 and 24 further.
static void find_x(struct ptx *p)
{
    PTX_LINES(p, "    mov.u32 %index, %tid.x;\n"
                 "    and.b32 %take_x, %index, 3;\n"
                 "    shl.b32 %take_x, %take_x, 4;\n"
                 "    and.b32 %index, %index, 32;\n"
                 "    mad.lo.u32 %take_x, %index, 8, %take_x;\n"
                 "    mov.u32 %index, staged;\n"
                 "    add.u32 %take_x, %take_x, %index;\n");
}

// Addresses of a lane's fragments: rows g and g + 8 of every 16, columns 2t and 2t + 1 of every 8. Of the weights and
// of x each lane names 16 bytes, which ldmatrix distributes (see load_weights and load_x).
static void fragments(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_FILL(p,
             "    mov.u32 %index, staged;\n"
             "    // outputs 32 * wm + lane % 16, k 16 * (lane / 16)\n"
             "    and.b32 %take_a, %lane, 15;\n"
             "    mad.lo.u32 %take_a, %wm, 32, %take_a;\n"
             "    mad.lo.u32 %take_a, %take_a, $0, %index;\n"
             "    and.b32 %row, %lane, 16;\n"
             "    add.u32 %take_a, %take_a, %row;\n"
             "    // rows of x 32 * wn + 8 * (lane / 16) + lane % 8, k 16 * (lane / 8 % 2)\n"
             "    shr.u32 %row, %row, 1;\n"
             "    and.b32 %take_b, %lane, 7;\n"
             "    add.u32 %take_b, %take_b, %row;\n"
             "    mad.lo.u32 %take_b, %wn, 32, %take_b;\n"
             "    mad.lo.u32 %take_b, %take_b, $0, %index;\n"
             "    and.b32 %row, %lane, 8;\n"
             "    mad.lo.u32 %take_b, %row, 2, %take_b;\n",
             MMA_STRIDE);
    if (ptx_mma_form(m) == MMA_FLOATS)
        PTX_LINES(p, "    // outputs 32 * wm + g\n"
                     "    mad.lo.u32 %row, %wm, 32, %g;\n"
                     "    mov.u32 %take_scale, staged;\n"
                     "    mad.lo.u32 %take_scale, %row, 4, %take_scale;\n");
    // With MMA_PRODUCTS it is needed only at the end of a block.
    if (ptx_mma_form(m) != MMA_PRODUCTS)
        find_x(p);
    for (uint32_t i = 0; i < 32; i++)
        PTX_FILL(p, "    mov.f32 %y$0, 0f00000000;\n", i);
}

// ---- products

// Loads a part of the warp's 32 outputs: of outputs 16 mt to 16 mt + 15 the fragments %a<4 mt> (run 0 of outputs g), +
// 1 (run 0 of outputs g + 8), + 2 and + 3 (run 1).
static void load_weights(struct ptx *p)
{
    for (uint32_t i = 0; i < 8; i += 4)
        PTX_FILL(p, LOAD_4 "{%a$0, %a$1, %a$2, %a$3}, [%take_a+$4];\n", i, i + 1,
                 i + 2, i + 3, MMA_WEIGHTS + 4 * i * MMA_STRIDE);
}

// Loads a part of 16 of the warp's rows of x: of rows 8 nt to 8 nt + 7 the fragments %b<2 nt> (run 0) and %b<2 nt + 1>,
// for nt = 2 i and 2 i + 1.
static void load_x(struct ptx *p, uint32_t i)
{
    PTX_FILL(p, LOAD_4 "{%b$0, %b$1, %b$2, %b$3}, [%take_b+$4];\n", 4 * i, 4 * i + 1,
             4 * i + 2, 4 * i + 3, MMA_ACTS + 16 * i * MMA_STRIDE);
}

// The same, the second half behind a barrier. This keeps ptxas from loading it too early and from unrolling the loop of
// the parts; there are not enough registers for either.
static void load_x_late(struct ptx *p, uint32_t i)
{
    if (i)
        PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n");
    load_x(p, i);
}

// Sets %c0 to %c3 to the product of outputs 16 mt to 16 mt + 15 with rows of x 8 nt to 8 nt + 7: over 32 k, or over
// run `run` of 16. Before sm_80 there is only the 8 x 8 x 16 product, whose fragments are the halves and quarters of
// the larger ones.
void ptx_mma_product_32(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt)
{
    for (uint32_t i = 0; i < 2 && m->target < 80; i++)
        PTX_FILL(p,
                 "    mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%c$0, %c$1}, {%a$2}, {%b$3}, {%base, %base};\n"
                 "    mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%c$0, %c$1}, {%a$4}, {%b$5}, {%c$0, %c$1};\n",
                 2 * i, 2 * i + 1, 4 * mt + i, 2 * nt, 4 * mt + 2 + i, 2 * nt + 1);
    if (m->target < 80)
        return;
    PTX_FILL(p,
             "    mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%c0, %c1, %c2, %c3}, "
             "{%a$0, %a$1, %a$2, %a$3}, {%b$4, %b$5}, {%base, %base, %base, %base};\n",
             4 * mt, 4 * mt + 1, 4 * mt + 2, 4 * mt + 3, 2 * nt, 2 * nt + 1);
}

void ptx_mma_product_16(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt, uint32_t run)
{
    for (uint32_t i = 0; i < 2 && m->target < 80; i++)
        PTX_FILL(p,
                 "    mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%c$0, %c$1}, {%a$2}, {%b$3}, {%base, %base};\n",
                 2 * i, 2 * i + 1, 4 * mt + 2 * run + i, 2 * nt + run);
    if (m->target < 80)
        return;
    PTX_FILL(p,
             "    mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%c0, %c1, %c2, %c3}, "
             "{%a$0, %a$1}, {%b$2}, {%base, %base, %base, %base};\n",
             4 * mt + 2 * run, 4 * mt + 2 * run + 1, 2 * nt + run);
}

// Adds the sums of the product, each times its scale and its step, to %isum. A matrix instruction multiplies the scales
// with the steps.
static void add_products(struct ptx *p, uint32_t mt, uint32_t nt)
{
    PTX_FILL(p,
             "    mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%by0, %by1, %by2, %by3}, "
             "{%scale$0, %scale$1}, {%step$2}, {%base, %base, %base, %base};\n",
             2 * mt, 2 * mt + 1, nt);
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    mad.lo.s32 %isum$0, %c$1, %by$1, %isum$0;\n", 16 * mt + 4 * nt + i, i);
}

// Computes %s = fma(step * sum, d, %s) for one run after the other.
static void add_float_runs(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt)
{
    for (uint32_t run = 0; run < 2; run++) {
        ptx_mma_product_16(p, m, mt, nt, run);
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t at = 16 * mt + 4 * nt + i, output = 2 * mt + i / 2;
            PTX_FILL(p, "    fma.rn.f32 %f, %c$0, %times$1, %less$1;\n", i, i % 2);
            if (run)
                PTX_FILL(p, "    fma.rn.f32 %s$0, %f, %m$1, %s$0;\n", at, output);
            else
                PTX_FILL(p, "    fma.rn.f32 %s$0, %f, %d$1, %s$0;\n", at, output);
        }
    }
}

// Computes %s = fma(step * sum, d, %s), and with a minimum %s = fma(sum of x, m, %s).
static void add_floats(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt)
{
    const bool min = ptx_bytes_of(m->type)->min;
    ptx_mma_product_32(p, m, mt, nt);
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p,
                 "    fma.rn.f32 %f, %c$1, %times$3, %less$3;\n"
                 "    fma.rn.f32 %s$0, %f, %d$2, %s$0;\n",
                 16 * mt + 4 * nt + i, i, 2 * mt + i / 2, i % 2);
        if (min)
            PTX_FILL(p, "    fma.rn.f32 %s$0, %sum$1, %m$2, %s$0;\n", 16 * mt + 4 * nt + i, i % 2, 2 * mt + i / 2);
    }
}

static void part_floats(struct ptx *p, const struct ptx_matmul *m)
{
    const bool min = ptx_bytes_of(m->type)->min, runs = ptx_mma_runs(m) == 2;
    load_weights(p);
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p, "    ld.shared.f32 %d$0, [%take_scale+$1];\n", i, MMA_SCALES_F + 32 * i);
        if (min || runs)
            PTX_FILL(p, "    ld.shared.f32 %m$0, [%take_scale+$1];\n", i, MMA_SCALES_F + 2048 + 32 * i);
    }
    load_x(p, 0);
    load_x(p, 1);
    for (uint32_t nt = 0; nt < 4; nt++) {
        PTX_FILL(p, "    ld.shared.v4.f32 {%times0, %times1, %less0, %less1}, [%take_x+$0];\n", MMA_STEPS_F + 64 * nt);
        if (min)
            PTX_FILL(p, "    ld.shared.v2.f32 {%sum0, %sum1}, [%take_x+$0];\n", MMA_SUMS_F + 64 * nt);
        for (uint32_t mt = 0; mt < 2; mt++)
            (runs ? add_float_runs : add_floats)(p, m, mt, nt);
    }
    PTX_LINES(p, "    add.u32 %take_x, %take_x, 512;\n"
                 "    add.u32 %take_scale, %take_scale, 512;\n");
}

static void part_scaled(struct ptx *p, const struct ptx_matmul *m)
{
    load_weights(p);
    for (uint32_t nt = 0; nt < 4; nt++) {
        if (nt % 2 == 0)
            load_x_late(p, nt / 2);
        PTX_FILL(p, "    ld.shared.v2.b32 {%step0, %step1}, [%take_x+$0];\n", MMA_STEPS + 64 * nt);
        for (uint32_t mt = 0; mt < 2; mt++) {
            ptx_mma_product_32(p, m, mt, nt);
            for (uint32_t i = 0; i < 4; i++)
                PTX_FILL(p, "    mad.lo.s32 %isum$0, %c$1, %step$2, %isum$0;\n", 16 * mt + 4 * nt + i, i, i % 2);
        }
    }
    PTX_LINES(p, "    add.u32 %take_x, %take_x, 512;\n");
}

// Sets %by<i> to the part's sums times their scales.
static void scale_part(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt)
{
    if (ptx_mma_runs(m) == 1)
        ptx_mma_product_32(p, m, mt, nt);
    else
        ptx_mma_product_16(p, m, mt, nt, 0);
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    mul.lo.s32 %by$0, %c$0, %scale$1;\n", i, 2 * mt + i / 2);
    if (ptx_mma_runs(m) == 1)
        return;
    ptx_mma_product_16(p, m, mt, nt, 1);
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    mad.lo.s32 %by$0, %c$0, %scale$1, %by$0;\n", i, 4 + 2 * mt + i / 2);
}

static void part_integers(struct ptx *p, const struct ptx_matmul *m)
{
    load_weights(p);
    for (uint32_t i = 0; i < 4 * ptx_mma_runs(m); i++)
        PTX_FILL(p, "    ld.shared.s8 %scale$0, [%take_scale+$1];\n", i, MMA_SCALES + i % 4 * 128 + i / 4);
    for (uint32_t nt = 0; nt < 4; nt++) {
        if (nt % 2 == 0)
            load_x_late(p, nt / 2);
        PTX_FILL(p, "    ld.shared.v2.b32 {%step0, %step1}, [%take_x+$0];\n", MMA_STEPS + 64 * nt);
        for (uint32_t mt = 0; mt < 2; mt++) {
            scale_part(p, m, mt, nt);
            for (uint32_t i = 0; i < 4; i++)
                PTX_FILL(p, "    mad.lo.s32 %isum$0, %by$1, %step$2, %isum$0;\n", 16 * mt + 4 * nt + i, i, i % 2);
        }
    }
    PTX_FILL(p,
             "    add.u32 %take_x, %take_x, 512;\n"
             "    add.u32 %take_scale, %take_scale, $0;\n",
             ptx_mma_runs(m));
}

static void part_products(struct ptx *p, const struct ptx_matmul *m)
{
    const uint32_t runs = ptx_mma_runs(m);
    PTX_FILL(p, LOAD_4 "{%scale0, %scale1, %scale2, %scale3}, [%take_scale+$0];\n", MMA_SCALES);
    load_weights(p);
    for (uint32_t i = 0; i < 2; i++) {
        load_x_late(p, i);
        for (uint32_t run = 0; run < runs; run++) {
            PTX_FILL(p, LOAD_2 "{%step$0, %step$1}, [%take_steps+$2];\n", 2 * i,
                     2 * i + 1, 1024 * run + 256 * i);
            for (uint32_t t = 0; t < 4; t++) {
                if (runs == 2)
                    ptx_mma_product_16(p, m, t % 2, 2 * i + t / 2, run);
                else
                    ptx_mma_product_32(p, m, t % 2, 2 * i + t / 2);
                add_products(p, t % 2, 2 * i + t / 2);
            }
        }
    }
    PTX_FILL(p, "    add.u32 %take_steps, %take_steps, $0;\n", 1024 * runs);
}

// Sets %take_scale and %take_steps to the addresses from which the lane loads scales and steps.
static void find_scales(struct ptx *p, const struct ptx_matmul *m)
{
    if (ptx_mma_form(m) == MMA_INTEGERS) {
        PTX_LINES(p, "    // outputs 32 * wm + g\n"
                     "    mov.u32 %index, %tid.x;\n"
                     "    bfe.u32 %take_steps, %index, 2, 3;\n"
                     "    shr.u32 %index, %index, 6;\n"
                     "    mad.lo.u32 %index, %index, 32, %take_steps;\n"
                     "    mov.u32 %take_scale, staged;\n"
                     "    mad.lo.u32 %take_scale, %index, 16, %take_scale;\n");
        return;
    }
    PTX_FILL(p,
             "    mov.u32 %index, %tid.x;\n"
             "    and.b32 %take_steps, %index, 31;\n"
             "    shr.u32 %index, %index, 6;\n"
             "    mad.lo.u32 %index, %index, 32, %take_steps;\n"
             "    mov.u32 %take_steps, staged;\n"
             "    mad.lo.u32 %take_scale, %index, 16, %take_steps;\n"
             "    // row of x 32 * wn + lane\n"
             "    mov.u32 %index, %tid.x;\n"
             "    and.b32 %index, %index, 63;\n"
             "    mad.lo.u32 %take_steps, %index, 16, %take_steps;\n"
             "    add.u32 %take_steps, %take_steps, $0;\n",
             ptx_mma_steps(m));
}

// The four parts of a turn, as a loop: only the fragments of one part occupy registers, and the code stays short. The
// number of the part is kept above the 16 bits of %half, which saves a register.
static void products(struct ptx *p, const struct ptx_matmul *m)
{
    const enum mma_form form = ptx_mma_form(m);
    PTX_LINES(p, "    {\n"
                 "    .reg .b32 %a<8>, %b<8>, %c<4>, %scale<8>, %by<4>, %step<4>, %take_steps;\n"
                 "    .reg .f32 %d<4>, %m<4>, %f, %sum0, %sum1, %times0, %times1, %less0, %less1;\n");
    if (form >= MMA_INTEGERS)
        find_scales(p, m);
    PTX_LINES(p, "SUB: // 4 turns\n"
                 "    .pragma \"nounroll\";\n");
    if (form == MMA_FLOATS)
        part_floats(p, m);
    else if (form == MMA_SCALED)
        part_scaled(p, m);
    else if (form == MMA_INTEGERS)
        part_integers(p, m);
    else
        part_products(p, m);
    PTX_LINES(p,
             "    add.u32 %take_a, %take_a, 32;\n"
             "    add.u32 %take_b, %take_b, 32;\n"
             "    add.u32 %half, %half, 0x10000;\n"
             "    setp.lt.u32 %more, %half, 0x40000;\n"
             "    @%more bra SUB;\n"
             "    sub.u32 %half, %half, 0x40000;\n"
             "    sub.u32 %take_a, %take_a, 128;\n"
             "    sub.u32 %take_b, %take_b, 128;\n");
    if (form == MMA_FLOATS)
        PTX_LINES(p, "    sub.u32 %take_scale, %take_scale, 2048;\n");
    if (form != MMA_PRODUCTS)
        PTX_LINES(p, "    sub.u32 %take_x, %take_x, 2048;\n");
    PTX_LINES(p, "    }\n");
}

// ---- the end of a block: y = fma(S, da, y)

// Sets %c to the sums of minimum times sum of x for 16 x 8 outputs: the product with the low bytes of the sums, plus
// 256 times the product with their high bytes.
void ptx_mma_minima(struct ptx *p, const struct ptx_matmul *m, uint32_t mt)
{
    for (uint32_t i = 0; i < 2 && m->target < 80; i++)
        PTX_FILL(p,
                 "    mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%c$0, %c$1}, {%a$2}, {%low}, {%base, %base};\n"
                 "    mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%e$0, %e$1}, {%a$2}, {%high}, {%base, %base};\n",
                 2 * i, 2 * i + 1, 2 * mt + i);
    if (m->target >= 80)
        PTX_FILL(p,
                 "    mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%c0, %c1, %c2, %c3}, "
                 "{%a$0, %a$1}, {%low}, {%base, %base, %base, %base};\n"
                 "    mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%e0, %e1, %e2, %e3}, "
                 "{%a$0, %a$1}, {%high}, {%base, %base, %base, %base};\n",
                 2 * mt, 2 * mt + 1);
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    mad.lo.s32 %c$0, %e$0, 256, %c$0;\n", i);
}

void ptx_mma_scale_integers(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t at)
{
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p,
                 "    cvt.rn.f32.s32 %f, %isum$0;\n"
                 "    mul.rn.f32 %s$0, %f, %d$1;\n",
                 at + i, 2 * mt + i / 2);
        if (ptx_bytes_of(m->type)->min)
            PTX_FILL(p,
                     "    cvt.rn.f32.s32 %f, %c$0;\n"
                     "    neg.f32 %f, %f;\n"
                     "    fma.rn.f32 %s$1, %f, %m$2, %s$1;\n",
                     i, at + i, 2 * mt + i / 2);
    }
}

void ptx_mma_next_scales(struct ptx *p)
{
    PTX_LINES(p, "    shl.b32 %mask, 255, %select;\n"
                 "    add.u32 %select, %select, 8;\n");
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    and.b32 %now$0, %scale$0, %mask;\n", i);
}

void ptx_mma_add_scaled(struct ptx *p, uint32_t mt, uint32_t nt, uint32_t at)
{
    PTX_FILL(p,
             "    mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%by0, %by1, %by2, %by3}, {%now$0, %now$1}, "
             "{%step$2}, {%base, %base, %base, %base};\n",
             2 * mt, 2 * mt + 1, nt);
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    mad.lo.s32 %isum$0, %c$1, %by$1, %isum$0;\n", at + i, i);
}

static void block_integers(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt)
{
    const struct ptx_bytes *b = ptx_bytes_of(m->type);
    if (b->min) {
        // without this barrier between the tiles ptxas would hold the products of all tiles at once, which spills
        // registers
        PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n");
        ptx_mma_minima(p, m, mt);
    }
    ptx_mma_scale_integers(p, m, mt, 16 * mt + 4 * nt);
}

// Loads what the block's integers are multiplied with: %d<i> and %m<i> of outputs g + 8 i, and the fragments %a<i> of
// their minima. Sets %take_sums to the address of the lane's fragments of sums of x.
static void load_units(struct ptx *p, bool min)
{
    PTX_LINES(p, "    .reg .u32 %take_unit, %take_sums, %row1, %t1;\n"
                 "    mov.u32 %index, %tid.x;\n"
                 "    bfe.u32 %row1, %index, 2, 3;\n"
                 "    mov.u32 %t1, staged;\n"
                 "    shr.u32 %take_unit, %index, 6;\n"
                 "    mad.lo.u32 %take_unit, %take_unit, 32, %row1;\n"
                 "    mad.lo.u32 %take_unit, %take_unit, 16, %t1;\n");
    for (uint32_t i = 0; i < 4; i++) {
        if (min)
            PTX_FILL(p, "    ld.shared.v2.f32 {%d$0, %m$0}, [%take_unit+$1];\n", i, MMA_UNITS + 128 * i);
        else
            PTX_FILL(p, "    ld.shared.f32 %d$0, [%take_unit+$1];\n", i, MMA_UNITS + 128 * i);
    }
    if (!min)
        return;
    PTX_LINES(p, "    and.b32 %take_sums, %index, 32;\n"
                 "    add.u32 %take_sums, %take_sums, %row1;\n"
                 "    mad.lo.u32 %take_sums, %take_sums, 32, %t1;\n"
                 "    and.b32 %t1, %index, 3;\n"
                 "    mad.lo.u32 %take_sums, %t1, 4, %take_sums;\n"
                 "    mad.lo.u32 %take_unit, %t1, 4, %take_unit;\n");
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    ld.shared.b32 %a$0, [%take_unit+$1];\n", i, MMA_MINIMA + 128 * i);
}

static void end_block(struct ptx *p, const struct ptx_matmul *m)
{
    const struct ptx_bytes *b = ptx_bytes_of(m->type);
    const bool floats = ptx_scales_are_floats(m);
    PTX_LINES(p, "    {\n"
                 "    .reg .b32 %a<4>, %c<4>, %e<4>, %low, %high;\n"
                 "    .reg .f32 %d<4>, %m<4>, %f, %da0, %da1;\n");
    if (!floats)
        load_units(p, b->min);
    if (ptx_mma_form(m) == MMA_PRODUCTS)
        find_x(p);
    for (uint32_t nt = 0; nt < 4; nt++) {
        PTX_FILL(p, "    ld.shared.v2.f32 {%da0, %da1}, [%take_x+$0];\n", MMA_DA + 64 * nt);
        if (!floats && b->min)
            PTX_FILL(p,
                     "    ld.shared.b32 %low, [%take_sums+$0];\n"
                     "    ld.shared.b32 %high, [%take_sums+$1];\n",
                     MMA_SUMS + 256 * nt, MMA_SUMS + 256 * nt + 16);
        for (uint32_t mt = 0; mt < 2; mt++) {
            if (!floats)
                block_integers(p, m, mt, nt);
            for (uint32_t i = 0; i < 4; i++)
                PTX_FILL(p, "    fma.rn.f32 %y$0, %s$0, %da$1, %y$0;\n", 16 * mt + 4 * nt + i, i % 2);
        }
    }
    PTX_LINES(p, "    }\n");
}

// Clears the sums at the start of a block.
static void begin_block(struct ptx *p, bool floats)
{
    for (uint32_t i = 0; i < 32; i++) {
        if (floats)
            PTX_FILL(p, "    mov.f32 %s$0, 0f00000000;\n", i);
        else
            PTX_FILL(p, "    mov.b32 %isum$0, 0;\n", i);
    }
}

// ---- stores

// Stores output %output of the lane's row i of 8, if both are within the matrix.
static void store_one(struct ptx *p, const struct ptx_matmul *m, uint32_t i, uint32_t at)
{
    if (m->scale)
        PTX_FILL(p, "    mul.rn.f32 %y$0, %y$0, %factor;\n", at);
    if (m->bias)
        PTX_FILL(p, "    add.rn.f32 %y$0, %y$0, %bias;\n", at);
    if (m->residual)
        PTX_FILL(p,
                 "    mad.wide.u32 %at, %row$1, $2, %residual;\n"
                 "    @%whole$1 ld.global.f32 %term, [%at];\n"
                 "    @%whole$1 add.rn.f32 %y$0, %y$0, %term;\n",
                 at, i, m->residual_stride);
    PTX_FILL(p, "    mad.wide.u32 %at, %row$0, ", i);
    ptx_matmul_put_stride(p, m, m->n_used ? 4 * m->n_out : m->y_stride);
    PTX_FILL(p,
             ", %y_out;\n"
             "    @%whole$1 st.global.f32 [%at], %y$0;\n",
             at, i);
}

// Sets the numbers of the lane's rows, of which each tile of 8 rows has two, %row0 and so on: half of the CTA's rows times
// wn + 2t and the next one, and those 8, 16 and so on further.
static void store_rows(struct ptx *p, const struct ptx_matmul *m)
{
    const uint32_t n = m->rows / 8;
    PTX_FILL(p,
             "    .reg .pred %whole<$0>;\n"
                 "    .reg .u32 %row<$0>;\n"
                 "    .reg .f32 %bias, %factor, %term;\n"
                 "    .reg .u64 %y_out, %residual, %at;\n"
                 "    // found again, so that no registers hold them in the loop\n"
                 "    mov.u32 %index, %tid.x;\n"
                 "    and.b32 %t, %index, 3;\n"
                 "    bfe.u32 %g, %index, 2, 3;\n"
                 "    bfe.u32 %wn, %index, 5, 1;\n"
                 "    shr.u32 %wm, %index, 6;\n"
                 "    mul.lo.u32 %place, %wn, $1;\n"
                 "    mad.lo.u32 %place, %t, 2, %place;\n",
             n, 4 * n);
    ptx_matmul_find_section(p, m);
    ptx_matmul_many_group(p, m);
    for (uint32_t i = 0; i < n; i++) {
        PTX_FILL(p, "    add.u32 %index, %place, $0;\n", i / 2 * 8 + i % 2);
        ptx_matmul_many_output(p, m, i);
    }
}

// The lane's results are four outputs, 8 apart, for an eighth of the CTA's rows of x each.
void ptx_mma_store(struct ptx *p, const struct ptx_matmul *m)
{
    store_rows(p, m);
    if (m->scale)
        PTX_LINES(p, PTX_ADDRESS_OF("%pointer", "scale")
                     "    mad.wide.u32 %pointer, %expert, 4, %pointer;\n"
                     "    ld.global.f32 %factor, [%pointer];\n");
    PTX_FILL(p,
             "    mad.lo.u32 %output, %tile, $0, %g;\n"
             "    mad.lo.u32 %output, %wm, 32, %output;\n",
             OUTPUTS);
    for (uint32_t o = 0; o < 4; o++) {
        ptx_matmul_end_past(p, m);
        ptx_matmul_address(p, m, "%y_out", "y");
        PTX_LINES(p, "    mad.wide.u32 %y_out, %output, 4, %y_out;\n");
        if (m->bias) {
            ptx_matmul_address(p, m, "%pointer", "bias");
            PTX_LINES(p, "    mad.wide.u32 %pointer, %output, 4, %pointer;\n");
            ptx_matmul_expert_bias(p, m);
            PTX_LINES(p, "    ld.global.f32 %bias, [%pointer];\n");
        }
        if (m->residual)
            PTX_LINES(p, PTX_ADDRESS_OF("%residual", "residual")
                         "    mad.wide.u32 %residual, %output, 4, %residual;\n");
        for (uint32_t i = 0; i < m->rows / 8; i++)
            store_one(p, m, i, o / 2 * m->rows / 4 + i / 2 * 4 + o % 2 * 2 + i % 2);
        if (o < 3)
            PTX_LINES(p, "    add.u32 %output, %output, 8;\n");
    }
    PTX_LINES(p, "    ret;\n"
                 "}\n");
}

void ptx_matmul_mma(struct ptx *p, const struct ptx_matmul *m)
{
    head(p, m);
    sources(p, m);
    fragments(p, m);
    PTX_FILL(p,
             "    mov.u32 %half, 0;\n"
             "BLOCK: // $0 products a turn\n",
             256 * OUTPUTS * PTX_MANY_ROWS / (32 * MMA_WARPS));
    begin_block(p, ptx_scales_are_floats(m));
    PTX_LINES(p, "HALF: // 2 turns\n"
                 "    .pragma \"nounroll\";\n");
    ptx_mma_put(p, m);
    PTX_LINES(p, "    bar.sync 0;\n");
    products(p, m);
    PTX_LINES(p, "    and.b32 %index, %half, 1;\n"
                 "    setp.eq.u32 %more, %index, 0;\n"
                 "    @%more bra UNFINISHED; // 1 of 2 times\n");
    end_block(p, m);
    PTX_FILL(p,
             "UNFINISHED:\n"
             "    bar.sync 0;\n"
             "    add.u32 %half, %half, 1;\n"
             "    @%more bra HALF;\n"
             "    setp.lt.u32 %more, %half, $0;\n"
             "    @%more bra BLOCK;\n",
             2 * tile_units(m->type, m->n_in));
    ptx_mma_store(p, m);
}
