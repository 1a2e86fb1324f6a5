// Emits products of many rows of 8-bit activations on tensor cores (mma.sync), with the same bits as the kernels for
// few rows. ptx_matmul_rows chooses them (class PTX_MANY_ROWS, compute capability 7.5 or later).
//
// The integer sums of kernels/cpu/kernels.h are exact in any order, so mma.sync may compute them. The float
// operations between them are those of the other kernels, one fma after another. Decoding a token and processing a
// prompt therefore agree to the last bit.
//
// A CTA of 8 warps computes 128 outputs by 64 rows of x; a warp computes 32 by 32, as 2 x 4 mma tiles of 16 x 8. A
// step is 128 of k, half a block: the weights are unpacked to bytes in shared memory (warp w unpacks two of the four
// parts of the 32 rows of tile w / 2), the activations are copied, and each part of 32 is a product of k = 32 whose
// sums are multiplied by the part's scales at once. Rows in shared memory are 144 bytes apart, so that the 8 rows of
// a fragment are in 8 different groups of banks.
//
// The minima of Q2_K, Q4_K and Q5_K: the sum over 16 runs of minimum times sum of activations is also an integer
// product, of k = 16, with the sums of activations split into their low and high bytes.
#include "kernels/ptx/emit_bytes.h"
#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/emit_matmul_parts.h"

enum { OUTPUTS = 128, WARPS = 8, STRIDE = 144 };

// The layout of shared memory, as byte offsets.
enum {
    WEIGHTS = 0,    // [output][144]
    ACTS = 18432,   // [row of x][144]
    SCALES = 27648, // [part or run][output]; for types with float scales d, and m from 2048 on
    UNITS = 31744,  // d, then m, [output]
    MINIMA = 32768, // [output][16 runs]
    SUMS = 34816,   // [row of x][16 low bytes, 16 high bytes]
    SUMF = 36864,   // [part][row of x]
    DA = 37888,     // [row of x]
};

// ---- addresses

static void head(struct ptx *p, const struct ptx_matmul *m)
{
    if (m->target >= 80)
        ptx_header(p, 70, 80);
    else
        ptx_header(p, 65, 75);
    ptx_matmul_entry(p, m, WARPS);
    PTX_LINES(p, PTX_MANY_REGS
                 "    .reg .pred %quarter0;\n"
                 "    .reg .u32 %block, %half, %part, %first_part, %token, %quarter, %wm, %wn, %g, %t, %zero;\n"
                 "    .reg .u32 %put_w, %put_scale, %put_x, %put_sumf;\n"
                 "    .reg .u32 %take_a, %take_b, %take_scale, %take_sumf;\n"
                 "    .reg .u64 %unit, %chunk, %from;\n"
                 "    .reg .f32 %y<32>, %s<32>;\n"
                 "    .reg .b32 %isum<32>;\n"
                 "    .shared .align 16 .b8 step[38144];\n");
}

// What a thread copies: of the weights, parts 2 (warp % 2) and the next one of row `lane` of tile warp / 2; of x, 32
// k of a row.
static void sources(struct ptx *p, const struct ptx_matmul *m)
{
    const struct ptx_bytes *b = ptx_bytes_of(m->type);
    ptx_matmul_many_group(p, m);
    ptx_matmul_many_weights(p, m);
    PTX_FILL(p,
             "    mov.u32 %zero, 0;\n"
             "    shr.u32 %wm, %warp, 1;\n"
             "    and.b32 %wn, %warp, 1;\n"
             "    shr.u32 %g, %lane, 2;\n"
             "    and.b32 %t, %lane, 3;\n"
             "    // tiles past the end read the last\n"
             "    mad.lo.u32 %index, %tile, 4, %wm;\n"
             "    min.u32 %index, %index, $0;\n"
             "    mad.wide.u32 %w_tile, %index, $1, %w_tile;\n"
             "    shl.b32 %first_part, %wn, 1;\n"
             "    mad.lo.u32 %row, %wm, 32, %lane;\n"
             "    mov.u32 %put_w, step;\n"
             "    mad.lo.u32 %put_w, %row, $2, %put_w;\n"
             "    mad.lo.u32 %put_w, %wn, 64, %put_w;\n"
             "    mov.u32 %put_scale, step;\n"
             "    mad.lo.u32 %put_scale, %row, 4, %put_scale;\n"
             "    mad.lo.u32 %put_scale, %wn, $3, %put_scale;\n",
             ptx_tiles(m->n_out, PTX_TILE_ROWS) - 1, (uint32_t)tile_bytes(m->type, m->n_in), STRIDE,
             b->scales == PTX_SCALE_16 ? 2048 : 1024);
    PTX_LINES(p, "    // x: four threads a row; rows past the end read the last\n"
                 "    mad.lo.u32 %index, %warp, 32, %lane;\n"
                 "    shr.u32 %token, %index, 2;\n"
                 "    and.b32 %quarter, %index, 3;\n"
                 "    setp.eq.u32 %quarter0, %quarter, 0;\n");
    ptx_matmul_many_row(p, m, "%token");
    PTX_FILL(p,
             "    mov.u32 %put_x, step;\n"
             "    mad.lo.u32 %put_x, %token, $0, %put_x;\n"
             "    mad.lo.u32 %put_x, %quarter, 32, %put_x;\n"
             "    mov.u32 %put_sumf, step;\n"
             "    mad.lo.u32 %put_sumf, %token, 4, %put_sumf;\n"
             "    mad.lo.u32 %put_sumf, %quarter, 256, %put_sumf;\n",
             STRIDE);
}

// Addresses of a lane's fragments: rows g and g + 8 of every 16, columns 2t and 2t + 1 of every 8.
static void fragments(struct ptx *p)
{
    PTX_FILL(p,
             "    // outputs 32 * wm + g, rows of x 32 * wn + g\n"
             "    mad.lo.u32 %row, %wm, 32, %g;\n"
             "    mov.u32 %take_a, step;\n"
             "    mad.lo.u32 %take_a, %row, $0, %take_a;\n"
             "    mad.lo.u32 %take_a, %t, 4, %take_a;\n"
             "    mov.u32 %take_scale, step;\n"
             "    mad.lo.u32 %take_scale, %row, 4, %take_scale;\n"
             "    mad.lo.u32 %row, %wn, 32, %g;\n"
             "    mov.u32 %take_b, step;\n"
             "    mad.lo.u32 %take_b, %row, $0, %take_b;\n"
             "    mad.lo.u32 %take_b, %t, 4, %take_b;\n"
             "    // rows of x 32 * wn + 2t\n"
             "    mul.lo.u32 %row, %wn, 128;\n"
             "    mad.lo.u32 %row, %t, 8, %row;\n"
             "    mov.u32 %take_sumf, step;\n"
             "    add.u32 %take_sumf, %take_sumf, %row;\n",
             STRIDE);
    for (uint32_t i = 0; i < 32; i++)
        PTX_FILL(p, "    mov.f32 %y$0, 0f00000000;\n", i);
}

// ---- to shared memory

// Subtracts `less` from each byte of the part's words. The top bit of each byte is set first, and takes the borrow.
static void take_off(struct ptx *p, uint32_t less)
{
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    or.b32 %q$0, %q$0, 0x80808080;\n"
                 "    sub.u32 %q$0, %q$0, 0x$x1;\n"
                 "    xor.b32 %q$0, %q$0, 0x80808080;\n",
                 i, less * 0x01010101);
}

static void put_scales(struct ptx *p, const struct ptx_bytes *b, uint32_t i)
{
    switch (b->scales) {
    case PTX_SCALE_FLOAT:
        PTX_FILL(p, "    st.shared.f32 [%put_scale+$0], %d;\n", SCALES + 512 * i);
        if (b->min)
            PTX_FILL(p, "    st.shared.f32 [%put_scale+$0], %m;\n", SCALES + 2048 + 512 * i);
        return;
    case PTX_SCALE_16:
        PTX_FILL(p,
                 "    st.shared.b32 [%put_scale+$0], %s0;\n"
                 "    st.shared.b32 [%put_scale+$1], %s1;\n",
                 SCALES + 1024 * i, SCALES + 1024 * i + 512);
        break;
    default:
        PTX_FILL(p, "    st.shared.b32 [%put_scale+$0], %s0;\n", SCALES + 512 * i);
    }
    if (b->min)
        PTX_FILL(p,
                 "    // found again, as in the end of a block, so that no registers hold it in the loop\n"
                 "    mov.u32 %t1, %tid.x;\n"
                 "    and.b32 %t0, %t1, 31;\n"
                 "    shr.u32 %t1, %t1, 6;\n"
                 "    mad.lo.u32 %t0, %t1, 32, %t0;\n"
                 "    mov.u32 %t1, step;\n"
                 "    mad.lo.u32 %t1, %t0, 16, %t1;\n"
                 "    mad.lo.u32 %t0, %part, 2, %t1;\n"
                 "    st.shared.u8 [%t0+$0], %n0;\n",
                 MINIMA);
    if (b->min && b->scales == PTX_SCALE_16)
        PTX_FILL(p, "    st.shared.u8 [%t0+$0], %n1;\n", MINIMA + 1);
    else if (b->min)
        PTX_FILL(p, "    st.shared.u8 [%t0+$0], %n0;\n", MINIMA + 1);
    if (i)
        return;
    // done by one of the two warps that share the unit
    PTX_FILL(p,
             "    setp.eq.u32 %pred, %first_part, 0;\n"
             "    @%pred st.shared.f32 [%put_scale+$0], %d;\n",
             UNITS);
    if (b->min)
        PTX_FILL(p, "    @%pred st.shared.f32 [%put_scale+$0], %m;\n", UNITS + 512);
}

static void put_weights(struct ptx *p, const struct ptx_matmul *m)
{
    const struct ptx_bytes *b = ptx_bytes_of(m->type);
    const struct ptx_part part = {.p = p, .node = m->node, .type = m->type};
    PTX_FILL(p,
             "    mad.wide.u32 %unit, %block, $0, %w_tile;\n"
             "    mad.wide.u32 %chunk, %lane, 16, %unit;\n"
             "    mad.lo.u32 %part, %half, 4, %first_part;\n",
             32 * tile_unit_bytes(m->type));
    for (uint32_t i = 0; i < 2; i++) {
        PTX_LINES(p, "    {\n" PTX_PART_REGS);
        ptx_type_bytes(&part);
        if (b->less)
            take_off(p, b->less);
        PTX_FILL(p,
                 "    st.shared.v4.b32 [%put_w+$0], {%q0, %q1, %q2, %q3};\n"
                 "    st.shared.v4.b32 [%put_w+$1], {%q4, %q5, %q6, %q7};\n",
                 WEIGHTS + 32 * i, WEIGHTS + 32 * i + 16);
        put_scales(p, b, i);
        PTX_LINES(p, "    }\n");
        if (i == 0)
            PTX_LINES(p, "    add.u32 %part, %part, 1;\n");
    }
}

static void put_x(struct ptx *p, const struct ptx_matmul *m)
{
    const struct ptx_bytes *b = ptx_bytes_of(m->type);
    uint32_t blocks = tile_units(m->type, m->n_in);
    PTX_FILL(p,
             "    {\n"
             "    .reg .b32 %x<4>;\n"
             "    .reg .f32 %f;\n"
             "    mad.wide.u32 %from, %block, 256, %px0;\n"
             "    mad.wide.u32 %from, %half, 128, %from;\n"
             "    mad.wide.u32 %from, %quarter, 32, %from;\n"
             "    ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%from];\n"
             "    st.shared.v4.b32 [%put_x+$0], {%x0, %x1, %x2, %x3};\n"
             "    ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%from+16];\n"
             "    st.shared.v4.b32 [%put_x+$1], {%x0, %x1, %x2, %x3};\n",
             ACTS, ACTS + 16);
    PTX_FILL(p,
             "    mad.wide.u32 %from, %block, 4, %px0;\n"
             "    @%quarter0 ld.global.f32 %f, [%from+$0];\n"
             "    @%quarter0 st.shared.f32 [%put_sumf+$1], %f;\n",
             blocks * PTX_Q8_SCALES, DA);
    if (b->min && b->scales == PTX_SCALE_FLOAT)
        PTX_FILL(p,
                 "    mad.wide.u32 %from, %block, 32, %px0;\n"
                 "    mad.wide.u32 %from, %half, 16, %from;\n"
                 "    mad.wide.u32 %from, %quarter, 4, %from;\n"
                 "    ld.global.b32 %x0, [%from+$0];\n"
                 "    dp2a.lo.s32.s32 %x1, %x0, 0x01010101, 0;\n"
                 "    cvt.rn.f32.s32 %f, %x1;\n"
                 "    st.shared.f32 [%put_sumf+$1], %f;\n",
                 blocks * PTX_Q8_SUMS, SUMF);
    else if (b->min)
        PTX_FILL(p,
                 "    mad.wide.u32 %from, %block, 32, %px0;\n"
                 "    mad.wide.u32 %from, %quarter, 8, %from;\n"
                 "    ld.global.v2.b32 {%x0, %x1}, [%from+$0];\n"
                 "    mov.u32 %x3, %tid.x;\n"
                 "    shl.b32 %x3, %x3, 3;\n"
                 "    mov.u32 %x2, step;\n"
                 "    add.u32 %x3, %x3, %x2;\n"
                 "    // 32 * (tid / 4) + 4 * (tid % 4)\n"
                 "    mad.lo.u32 %x3, %quarter, -4, %x3;\n"
                 "    prmt.b32 %x2, %x0, %x1, 0x6420;\n"
                 "    st.shared.b32 [%x3+$1], %x2;\n"
                 "    prmt.b32 %x2, %x0, %x1, 0x7531;\n"
                 "    st.shared.b32 [%x3+$2], %x2;\n",
                 blocks * PTX_Q8_SUMS, SUMS, SUMS + 16);
    PTX_LINES(p, "    }\n");
}

// ---- products

// Loads %a0 to %a7, a part of the warp's 32 outputs, and %b0 to %b7, a part of its 32 rows of x.
static void load_fragments(struct ptx *p)
{
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p, "    ld.shared.b32 %a$0, [%take_a+$1];\n", i,
                 WEIGHTS + i / 4 * 16 * STRIDE + i % 2 * 8 * STRIDE + i / 2 % 2 * 16);
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p, "    ld.shared.b32 %b$0, [%take_b+$1];\n", i, ACTS + i / 2 * 8 * STRIDE + i % 2 * 16);
}

// Loads %scale0 to %scale3 for outputs g, g + 8, g + 16, g + 24, from position `at` of an array with 128 entries per
// row.
static void load_scales(struct ptx *p, bool floats, uint32_t at)
{
    for (uint32_t i = 0; i < 4; i++) {
        if (floats)
            PTX_FILL(p, "    ld.shared.f32 %d$0, [%take_scale+$1];\n", i, SCALES + at + 32 * i);
        else
            PTX_FILL(p, "    ld.shared.b32 %scale$0, [%take_scale+$1];\n", i, SCALES + at + 32 * i);
    }
}

// Sets %c0 to %c3 to the product of outputs 16 mt to 16 mt + 15 with rows of x 8 nt to 8 nt + 7: over 32 k, or over
// run `run` of 16. Before sm_80 there is only the 8 x 8 x 16 product, whose fragments are the halves and quarters of
// the larger ones.
static void product_32(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt)
{
    for (uint32_t i = 0; i < 2 && m->target < 80; i++)
        PTX_FILL(p,
                 "    mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%c$0, %c$1}, {%a$2}, {%b$3}, {%zero, %zero};\n"
                 "    mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%c$0, %c$1}, {%a$4}, {%b$5}, {%c$0, %c$1};\n",
                 2 * i, 2 * i + 1, 4 * mt + i, 2 * nt, 4 * mt + 2 + i, 2 * nt + 1);
    if (m->target < 80)
        return;
    PTX_FILL(p,
             "    mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%c0, %c1, %c2, %c3}, "
             "{%a$0, %a$1, %a$2, %a$3}, {%b$4, %b$5}, {%zero, %zero, %zero, %zero};\n",
             4 * mt, 4 * mt + 1, 4 * mt + 2, 4 * mt + 3, 2 * nt, 2 * nt + 1);
}

static void product_16(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt, uint32_t run)
{
    for (uint32_t i = 0; i < 2 && m->target < 80; i++)
        PTX_FILL(p,
                 "    mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%c$0, %c$1}, {%a$2}, {%b$3}, {%zero, %zero};\n",
                 2 * i, 2 * i + 1, 4 * mt + 2 * run + i, 2 * nt + run);
    if (m->target < 80)
        return;
    PTX_FILL(p,
             "    mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%c0, %c1, %c2, %c3}, "
             "{%a$0, %a$1}, {%b$2}, {%zero, %zero, %zero, %zero};\n",
             4 * mt + 2 * run, 4 * mt + 2 * run + 1, 2 * nt + run);
}

// Adds the sums of the product times the scales to %isum.
static void add_integers(struct ptx *p, uint32_t mt, uint32_t nt)
{
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    mad.lo.s32 %isum$0, %c$1, %scale$2, %isum$0;\n", 16 * mt + 4 * nt + i, i, 2 * mt + i / 2);
}

// Computes %s = fma(sum, d, %s), and with a minimum %s = fma(sum of x, m, %s).
static void add_floats(struct ptx *p, bool min, uint32_t mt, uint32_t nt)
{
    if (min)
        PTX_FILL(p, "    ld.shared.v2.f32 {%sum0, %sum1}, [%take_sumf+$0];\n", SUMF + 32 * nt);
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p,
                 "    cvt.rn.f32.s32 %f, %c$1;\n"
                 "    fma.rn.f32 %s$0, %f, %d$2, %s$0;\n",
                 16 * mt + 4 * nt + i, i, 2 * mt + i / 2);
        if (min)
            PTX_FILL(p, "    fma.rn.f32 %s$0, %sum$1, %m$2, %s$0;\n", 16 * mt + 4 * nt + i, i % 2, 2 * mt + i / 2);
    }
}

// The four parts of a step, as a loop: only the fragments of one part occupy registers, and the code stays short.
static void products(struct ptx *p, const struct ptx_matmul *m)
{
    const struct ptx_bytes *b = ptx_bytes_of(m->type);
    bool floats = b->scales == PTX_SCALE_FLOAT;
    uint32_t runs = b->scales == PTX_SCALE_16 ? 2 : 1;
    PTX_LINES(p, "    {\n"
                 "    .reg .b32 %a<8>, %b<8>, %c<4>, %scale<4>;\n"
                 "    .reg .f32 %d<4>, %m<4>, %f, %sum0, %sum1;\n"
                 "    mov.u32 %part, 0;\n"
                 "SUB: // 4 turns\n"
                 "    .pragma \"nounroll\";\n");
    load_fragments(p);
    for (uint32_t i = 0; i < 4 && floats && b->min; i++)
        PTX_FILL(p, "    ld.shared.f32 %m$0, [%take_scale+$1];\n", i, SCALES + 2048 + 32 * i);
    for (uint32_t run = 0; run < runs; run++) {
        load_scales(p, floats, 512 * run);
        for (uint32_t i = 0; i < 8; i++) {
            if (runs == 2)
                product_16(p, m, i / 4, i % 4, run);
            else
                product_32(p, m, i / 4, i % 4);
            if (floats)
                add_floats(p, b->min, i / 4, i % 4);
            else
                add_integers(p, i / 4, i % 4);
        }
    }
    PTX_FILL(p,
             "    add.u32 %take_a, %take_a, 32;\n"
             "    add.u32 %take_b, %take_b, 32;\n"
             "    add.u32 %take_scale, %take_scale, $0;\n"
             "    add.u32 %take_sumf, %take_sumf, 256;\n"
             "    add.u32 %part, %part, 1;\n"
             "    setp.lt.u32 %more, %part, 4;\n"
             "    @%more bra SUB;\n"
             "    sub.u32 %take_a, %take_a, 128;\n"
             "    sub.u32 %take_b, %take_b, 128;\n"
             "    sub.u32 %take_scale, %take_scale, $1;\n"
             "    sub.u32 %take_sumf, %take_sumf, 1024;\n"
             "    }\n",
             512 * runs, 2048 * runs);
}

// ---- the end of a block: y = fma(S, da, y)

// Sets %c to the sums of minimum times sum of x for 16 x 8 outputs: the product with the low bytes of the sums, plus
// 256 times the product with their high bytes.
static void minima(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt)
{
    PTX_FILL(p,
             "    ld.shared.b32 %low, [%take_sums+$0];\n"
             "    ld.shared.b32 %high, [%take_sums+$1];\n",
             SUMS + 256 * nt, SUMS + 256 * nt + 16);
    for (uint32_t i = 0; i < 2 && m->target < 80; i++)
        PTX_FILL(p,
                 "    mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%c$0, %c$1}, {%a$2}, {%low}, {%zero, %zero};\n"
                 "    mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%e$0, %e$1}, {%a$2}, {%high}, {%zero, %zero};\n",
                 2 * i, 2 * i + 1, 2 * mt + i);
    if (m->target >= 80)
        PTX_FILL(p,
                 "    mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%c0, %c1, %c2, %c3}, "
                 "{%a$0, %a$1}, {%low}, {%zero, %zero, %zero, %zero};\n"
                 "    mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%e0, %e1, %e2, %e3}, "
                 "{%a$0, %a$1}, {%high}, {%zero, %zero, %zero, %zero};\n",
                 2 * mt, 2 * mt + 1);
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    mad.lo.s32 %c$0, %e$0, 256, %c$0;\n", i);
}

static void block_integers(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt)
{
    const struct ptx_bytes *b = ptx_bytes_of(m->type);
    if (b->min) {
        // without this barrier between the tiles ptxas would hold the products of all tiles at once, which spills
        // registers
        PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n");
        minima(p, m, mt, nt);
    }
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t at = 16 * mt + 4 * nt + i;
        PTX_FILL(p,
                 "    cvt.rn.f32.s32 %f, %isum$0;\n"
                 "    mul.rn.f32 %s$0, %f, %d$1;\n",
                 at, 2 * mt + i / 2);
        if (b->min)
            PTX_FILL(p,
                     "    cvt.rn.f32.s32 %f, %c$1;\n"
                     "    neg.f32 %f, %f;\n"
                     "    fma.rn.f32 %s$0, %f, %m$2, %s$0;\n",
                     at, i, 2 * mt + i / 2);
    }
}

// Sets %take_min and %take_sums to the addresses of the lane's fragments.
static void find_minima(struct ptx *p)
{
    PTX_LINES(p, "    .reg .u32 %take_min, %take_sums, %row1, %t1;\n"
                 "    mov.u32 %index, %tid.x;\n"
                 "    bfe.u32 %row1, %index, 2, 3;\n"
                 "    shl.b32 %t1, %index, 2;\n"
                 "    and.b32 %t1, %t1, 12;\n"
                 "    mov.u32 %take_min, step;\n"
                 "    add.u32 %t1, %t1, %take_min;\n"
                 "    shr.u32 %take_min, %index, 6;\n"
                 "    mad.lo.u32 %take_min, %take_min, 32, %row1;\n"
                 "    mad.lo.u32 %take_min, %take_min, 16, %t1;\n"
                 "    and.b32 %take_sums, %index, 32;\n"
                 "    add.u32 %take_sums, %take_sums, %row1;\n"
                 "    mad.lo.u32 %take_sums, %take_sums, 32, %t1;\n");
}

static void end_block(struct ptx *p, const struct ptx_matmul *m)
{
    const struct ptx_bytes *b = ptx_bytes_of(m->type);
    bool floats = b->scales == PTX_SCALE_FLOAT;
    PTX_LINES(p, "    {\n"
                 "    .reg .b32 %a<4>, %c<4>, %e<4>, %low, %high;\n"
                 "    .reg .f32 %d<4>, %m<4>, %f, %da0, %da1;\n");
    if (!floats && b->min)
        find_minima(p);
    for (uint32_t i = 0; i < 4 && !floats; i++) {
        PTX_FILL(p, "    ld.shared.f32 %d$0, [%take_scale+$1];\n", i, UNITS + 32 * i);
        if (b->min)
            PTX_FILL(p,
                     "    ld.shared.f32 %m$0, [%take_scale+$1];\n"
                     "    ld.shared.b32 %a$0, [%take_min+$2];\n",
                     i, UNITS + 512 + 32 * i, MINIMA + 128 * i);
    }
    for (uint32_t t = 0; t < 8; t++) {
        PTX_FILL(p, "    ld.shared.v2.f32 {%da0, %da1}, [%take_sumf+$0];\n", DA + t % 4 * 32);
        if (!floats)
            block_integers(p, m, t / 4, t % 4);
        for (uint32_t i = 0; i < 4; i++)
            PTX_FILL(p, "    fma.rn.f32 %y$0, %s$0, %da$1, %y$0;\n", 4 * t + i, i % 2);
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
        PTX_FILL(p, "    mul.rn.f32 %y$0, %y$0, %bias;\n", at);
    if (m->bias)
        PTX_FILL(p, "    add.rn.f32 %y$0, %y$0, %bias;\n", at);
    if (m->residual)
        PTX_FILL(p,
                 "    mad.wide.u32 %at, %row$1, $2, %residual;\n"
                 "    @%whole$1 ld.global.f32 %term, [%at];\n"
                 "    @%whole$1 add.rn.f32 %y$0, %y$0, %term;\n",
                 at, i, m->residual_stride);
    PTX_FILL(p,
             "    mad.wide.u32 %at, %row$1, $2, %y_out;\n"
             "    @%whole$1 st.global.f32 [%at], %y$0;\n",
             at, i, m->n_used ? 4 * m->n_out : m->y_stride);
}

// Sets the numbers of the lane's 8 rows, %row0 to %row7: 32 wn + 2t and the next one, and those 8, 16 and 24 further.
static void store_rows(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_LINES(p, "    .reg .pred %whole<8>;\n"
                 "    .reg .u32 %row<8>;\n"
                 "    .reg .f32 %bias, %term;\n"
                 "    .reg .u64 %y_out, %residual, %at;\n"
                 "    // found again, so that no registers hold them in the loop\n"
                 "    mov.u32 %index, %tid.x;\n"
                 "    and.b32 %t, %index, 3;\n"
                 "    bfe.u32 %g, %index, 2, 3;\n"
                 "    bfe.u32 %wn, %index, 5, 1;\n"
                 "    shr.u32 %wm, %index, 6;\n"
                 "    mov.u32 %tile, %ctaid.x;\n"
                 "    mul.lo.u32 %place, %wn, 32;\n"
                 "    mad.lo.u32 %place, %t, 2, %place;\n");
    ptx_matmul_many_group(p, m);
    for (uint32_t i = 0; i < 8; i++) {
        PTX_FILL(p, "    add.u32 %index, %place, $0;\n", i / 2 * 8 + i % 2);
        ptx_matmul_many_output(p, m, i);
    }
}

// Stores the lane's results: four outputs, 8 apart, for 8 rows of x each.
static void store(struct ptx *p, const struct ptx_matmul *m)
{
    store_rows(p, m);
    if (m->scale)
        PTX_LINES(p, PTX_ADDRESS_OF("%pointer", "scale")
                     "    mad.wide.u32 %pointer, %expert, 4, %pointer;\n"
                     "    ld.global.f32 %bias, [%pointer];\n");
    PTX_FILL(p,
             "    mad.lo.u32 %output, %tile, $0, %g;\n"
             "    mad.lo.u32 %output, %wm, 32, %output;\n",
             OUTPUTS);
    for (uint32_t o = 0; o < 4; o++) {
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %output, $0;\n"
                 "    @%in ret;\n"
                 PTX_ADDRESS_OF("%y_out", "y")
                 "    mad.wide.u32 %y_out, %output, 4, %y_out;\n",
                 m->n_out);
        if (m->bias)
            PTX_LINES(p, PTX_ADDRESS_OF("%pointer", "bias")
                         "    mad.wide.u32 %pointer, %output, 4, %pointer;\n"
                         "    ld.global.f32 %bias, [%pointer];\n");
        if (m->residual)
            PTX_LINES(p, PTX_ADDRESS_OF("%residual", "residual")
                         "    mad.wide.u32 %residual, %output, 4, %residual;\n");
        for (uint32_t i = 0; i < 8; i++)
            store_one(p, m, i, o / 2 * 16 + i / 2 * 4 + o % 2 * 2 + i % 2);
        PTX_LINES(p, "    add.u32 %output, %output, 8;\n");
    }
    PTX_LINES(p, "    ret;\n"
                 "}\n");
}

uint32_t ptx_matmul_mma(struct ptx *p, const struct ptx_matmul *m)
{
    const struct ptx_bytes *b = ptx_bytes_of(m->type);
    head(p, m);
    sources(p, m);
    fragments(p);
    PTX_FILL(p,
             "    mov.u32 %block, 0;\n"
             "BLOCK: // $0 products a turn\n",
             256 * OUTPUTS * PTX_MANY_ROWS / (32 * WARPS));
    begin_block(p, b->scales == PTX_SCALE_FLOAT);
    PTX_LINES(p, "    mov.u32 %half, 0;\n"
                 "HALF: // 2 turns\n"
                 "    .pragma \"nounroll\";\n");
    put_weights(p, m);
    put_x(p, m);
    PTX_LINES(p, "    bar.sync 0;\n");
    products(p, m);
    PTX_LINES(p, "    setp.eq.u32 %more, %half, 0;\n"
                 "    @%more bra UNFINISHED; // 1 of 2 times\n");
    end_block(p, m);
    PTX_FILL(p,
             "UNFINISHED:\n"
             "    bar.sync 0;\n"
             "    add.u32 %half, %half, 1;\n"
             "    @%more bra HALF;\n"
             "    add.u32 %block, %block, 1;\n"
             "    setp.lt.u32 %more, %block, $0;\n"
             "    @%more bra BLOCK;\n",
             tile_units(m->type, m->n_in));
    store(p, m);
    return OUTPUTS;
}
