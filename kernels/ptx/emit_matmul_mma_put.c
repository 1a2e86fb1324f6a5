// Emits the code that fills shared memory for products of many rows of 8-bit activations: see emit_matmul_mma.h for the
// layout, and emit_matmul_mma.c for the kernel.
//
// Of the weights, warp w unpacks two of the four parts of the 32 rows of tile w / 2: a lane unpacks those of one row.
// Of x, a thread copies 32 k of a row. Addresses that only this code needs are computed again for each half block, so
// that no registers hold them while the products are formed.
#include "kernels/ptx/emit_bytes.h"
#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/emit_matmul_mma.h"

enum mma_form ptx_mma_form(const struct ptx_matmul *m)
{
    // A scale of 4 bits times 0 to 3, or one of -32 to 31 times -4 to 3. The latter are negated, so 128 becomes -128. TQ1_0 and
    // TQ2_0 have no such scale.
    if (m->type == DT_Q2_K || m->type == DT_Q3_K || m->type == DT_TQ1_0 || m->type == DT_TQ2_0)
        return MMA_SCALED;
    if (ptx_scales_are_floats(m))
        return MMA_FLOATS;
    // The matrix instructions of these GPUs are so fast that more of them cost less than multiplications.
    return m->target == 80 || m->target == 90 || m->target == 100 ? MMA_PRODUCTS : MMA_INTEGERS;
}

uint32_t ptx_mma_runs(const struct ptx_matmul *m)
{
    return ptx_mma_form(m) == MMA_SCALED ? 1 : ptx_scale_runs(m);
}

// Clears the bytes between the steps, and those behind the scales, with which they are multiplied.
void ptx_mma_clear(struct ptx *p, const struct ptx_matmul *m)
{
    if (ptx_mma_form(m) != MMA_PRODUCTS)
        return;
    PTX_FILL(p,
             "    {\n"
             "    .reg .b32 %to, %zero;\n"
             "    mov.u32 %to, staged;\n"
             "    mov.u32 %zero, %tid.x;\n"
             "    mad.lo.u32 %to, %zero, 16, %to;\n"
             "    mov.u32 %zero, 0;\n"
             "    st.shared.v4.b32 [%to+$0], {%zero, %zero, %zero, %zero};\n",
             MMA_SCALES);
    for (uint32_t at = ptx_mma_steps(m); at < MMA_DA; at += 16 * 32 * MMA_WARPS)
        PTX_FILL(p, "    st.shared.v4.b32 [%to+$0], {%zero, %zero, %zero, %zero};\n", at);
    PTX_LINES(p, "    }\n"
                 "    bar.sync 0;\n");
}

void ptx_mma_put_at(struct ptx *p, const struct ptx_matmul *m)
{
    bool floats = ptx_mma_form(m) == MMA_FLOATS;
    PTX_FILL(p,
             "    mad.lo.u32 %row, %wm, 32, %lane;\n"
             "    mov.u32 %put_w, staged;\n"
             "    mad.lo.u32 %put_scale, %row, $0, %put_w;\n"
             "    mad.lo.u32 %put_w, %row, $1, %put_w;\n"
             "    mad.lo.u32 %put_w, %wn, 64, %put_w;\n",
             floats ? 4 : 16, MMA_STRIDE);
    if (floats)
        PTX_LINES(p, "    mad.lo.u32 %put_scale, %wn, 1024, %put_scale;\n");
}

// ---- weights

// Subtracts `less` from each byte of the part's words, which become signed. A sum of 128 - less and such a byte is below 256,
// so nothing carries to the next.
void ptx_mma_take_off(struct ptx *p, uint32_t less)
{
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    add.u32 %q$0, %q$0, 0x$x1;\n"
                 "    xor.b32 %q$0, %q$0, 0x80808080;\n",
                 i, (128 - less) * 0x01010101);
}

// Multiplies the bytes of the part with their scales. Those of a type with an offset become scale * (less - q). With
// 128 added this is 0 to 255, so the four bytes of a word can be multiplied together.
static void multiply_scales(struct ptx *p, uint32_t less)
{
    for (uint32_t i = 0; i < 8; i++) {
        if (!less) {
            PTX_FILL(p, "    mul.lo.u32 %q$0, %q$0, %s$1;\n", i, i / 4);
            continue;
        }
        if (i % 4 == 0)
            PTX_FILL(p,
                     "    neg.s32 %t0, %s$0;\n"
                     "    mad.lo.u32 %t1, %s$0, 0x$x1, 0x80808080;\n",
                     i / 4, less * 0x01010101);
        PTX_FILL(p,
                 "    mad.lo.u32 %q$0, %q$0, %t0, %t1;\n"
                 "    xor.b32 %q$0, %q$0, 0x80808080;\n",
                 i);
    }
}

static void put_scales(struct ptx *p, const struct ptx_matmul *m, uint32_t i)
{
    const struct ptx_bytes *b = ptx_bytes_of(m->type);
    switch (ptx_mma_form(m)) {
    case MMA_FLOATS:
        PTX_FILL(p, "    st.shared.f32 [%put_scale+$0], %d;\n", MMA_SCALES_F + 512 * i);
        if (b->min || ptx_mma_runs(m) == 2)
            PTX_FILL(p, "    st.shared.f32 [%put_scale+$0], %m;\n", MMA_SCALES_F + 2048 + 512 * i);
        return;
    case MMA_SCALED:
        break;
    case MMA_INTEGERS:
    case MMA_PRODUCTS:
        PTX_FILL(p,
                 "    mad.lo.u32 %t0, %first_part, $0, %put_scale;\n"
                 "    st.shared.u8 [%t0+$1], %s0;\n",
                 ptx_mma_runs(m), MMA_SCALES + ptx_mma_runs(m) * i);
        if (ptx_mma_runs(m) == 2)
            PTX_FILL(p, "    st.shared.u8 [%t0+$0], %s1;\n", MMA_SCALES + 2 * i + 1);
        break;
    }
    if (b->min)
        PTX_FILL(p,
                 "    mad.lo.u32 %t0, %part, 2, %put_scale;\n"
                 "    st.shared.u8 [%t0+$0], %n0;\n",
                 MMA_MINIMA);
    if (b->min && b->scales == PTX_SCALE_16)
        PTX_FILL(p, "    st.shared.u8 [%t0+$0], %n1;\n", MMA_MINIMA + 1);
    else if (b->min)
        PTX_FILL(p, "    st.shared.u8 [%t0+$0], %n0;\n", MMA_MINIMA + 1);
    if (i)
        return;
    // done by one of the two warps that share the unit
    PTX_FILL(p,
             "    setp.eq.u32 %pred, %first_part, 0;\n"
             "    @%pred st.shared.f32 [%put_scale+$0], %d;\n",
             MMA_UNITS);
    if (b->min)
        PTX_FILL(p, "    @%pred st.shared.f32 [%put_scale+$0], %m;\n", MMA_UNITS + 4);
}

static void put_weights(struct ptx *p, const struct ptx_matmul *m)
{
    const struct ptx_bytes *b = ptx_bytes_of(m->type);
    const struct ptx_part part = {.p = p, .node = m->node, .type = m->type};
    PTX_FILL(p,
             "    {\n"
             "    .reg .b32 %first_part;\n"
             "    shr.u32 %part, %half, 1;\n"
             "    mad.wide.u32 %unit, %part, $0, %w_tile;\n"
             "    mad.wide.u32 %chunk, %lane, 16, %unit;\n"
             "    // 2 * (warp % 2)\n"
             "    mov.u32 %first_part, %tid.x;\n"
             "    bfe.u32 %first_part, %first_part, 5, 1;\n"
             "    shl.b32 %first_part, %first_part, 1;\n"
             "    and.b32 %part, %half, 1;\n"
             "    mad.lo.u32 %part, %part, 4, %first_part;\n",
             32 * tile_unit_bytes(m->type));
    for (uint32_t i = 0; i < 2; i++) {
        PTX_LINES(p, "    {\n" PTX_PART_REGS);
        ptx_type_bytes(&part);
        if (ptx_mma_form(m) == MMA_SCALED && b->scales == PTX_SCALE_16)
            multiply_scales(p, b->less);
        else if (b->less)
            ptx_mma_take_off(p, b->less);
        PTX_FILL(p,
                 "    st.shared.v4.b32 [%put_w+$0], {%q0, %q1, %q2, %q3};\n"
                 "    st.shared.v4.b32 [%put_w+$1], {%q4, %q5, %q6, %q7};\n",
                 MMA_WEIGHTS + 32 * i, MMA_WEIGHTS + 32 * i + 16);
        put_scales(p, m, i);
        PTX_LINES(p, "    }\n");
        if (i == 0)
            PTX_LINES(p, "    add.u32 %part, %part, 1;\n");
    }
    PTX_LINES(p, "    }\n");
}

// The thread's step, at its place between zeros if it is multiplied with integer scales; times 1 and times -M for float
// scales; negative if the bytes are scaled and negated.
static void put_step(struct ptx *p, const struct ptx_matmul *m, uint32_t blocks)
{
    PTX_FILL(p,
             "    mad.wide.u32 %from, %half, 4, %px0;\n"
             "    mad.wide.u32 %from, %quarter, 1, %from;\n"
             "    ld.global.u8 %x0, [%from+$0];\n",
             blocks * PTX_Q8_STEPS);
    if (ptx_mma_form(m) == MMA_FLOATS) {
        PTX_FILL(p,
                 "    cvt.rn.f32.u32 %f, %x0;\n"
                 "    st.shared.f32 [%put_pair+$0], %f;\n"
                 "    mul.rn.f32 %f, %f, 0f$x1;\n"
                 "    st.shared.f32 [%put_pair+$2], %f;\n",
                 MMA_STEPS_F, MMA_M_BITS | 1u << 31, MMA_STEPS_F + 8);
    } else if (ptx_mma_form(m) != MMA_PRODUCTS) {
        if (ptx_mma_form(m) == MMA_SCALED && ptx_bytes_of(m->type)->less)
            PTX_LINES(p, "    neg.s32 %x0, %x0;\n");
        PTX_FILL(p, "    st.shared.b32 [%put_pair+$0], %x0;\n", MMA_STEPS);
    } else {
        const uint32_t runs = ptx_mma_runs(m);
        PTX_FILL(p,
                 "    shr.u32 %x1, %i, 2;\n"
                 "    mov.u32 %x2, staged;\n"
                 "    mad.lo.u32 %x1, %x1, 16, %x2;\n"
                 "    mad.lo.u32 %x1, %quarter, $0, %x1;\n",
                 1025 * runs);
        for (uint32_t run = 0; run < runs; run++)
            PTX_FILL(p, "    st.shared.u8 [%x1+$0], %x0;\n", ptx_mma_steps(m) + 1025 * run);
    }
}

// Four threads a row: thread i has quarter i % 4 of row i / 4.
static void put_x(struct ptx *p, const struct ptx_matmul *m)
{
    const struct ptx_bytes *b = ptx_bytes_of(m->type);
    uint32_t blocks = tile_units(m->type, m->n_in);
    PTX_LINES(p, "    {\n"
                 "    .reg .pred %quarter0;\n"
                 "    .reg .b32 %x<4>, %i, %quarter, %put_x, %put_pair, %block;\n"
                 "    .reg .f32 %f;\n"
                 "    mov.u32 %i, %tid.x;\n"
                 "    and.b32 %quarter, %i, 3;\n"
                 "    setp.eq.u32 %quarter0, %quarter, 0;\n"
                 "    mov.u32 %x1, staged;\n"
                 "    // 16 * (i / 8) + 4 * (i / 4 % 2) + 512 * quarter\n"
                 "    and.b32 %put_pair, %i, 4;\n"
                 "    shr.u32 %x0, %i, 3;\n"
                 "    mad.lo.u32 %put_pair, %x0, 16, %put_pair;\n"
                 "    mad.lo.u32 %put_pair, %quarter, 512, %put_pair;\n"
                 "    add.u32 %put_pair, %put_pair, %x1;\n"
                 "    shr.u32 %x0, %i, 2;\n");
    PTX_FILL(p,
             "    mad.lo.u32 %put_x, %x0, $2, %x1;\n"
             "    mad.lo.u32 %put_x, %quarter, 32, %put_x;\n"
             "    mad.wide.u32 %from, %half, 128, %px0;\n"
             "    mad.wide.u32 %from, %quarter, 32, %from;\n"
             "    ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%from];\n"
             "    st.shared.v4.b32 [%put_x+$0], {%x0, %x1, %x2, %x3};\n"
             "    ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%from+16];\n"
             "    st.shared.v4.b32 [%put_x+$1], {%x0, %x1, %x2, %x3};\n",
             MMA_ACTS, MMA_ACTS + 16, MMA_STRIDE);
    PTX_FILL(p,
             "    shr.u32 %block, %half, 1;\n"
             "    mad.wide.u32 %from, %block, 4, %px0;\n"
             "    ld.global.f32 %f, [%from+$0];\n"
             "    @%quarter0 st.shared.f32 [%put_pair+$1], %f;\n",
             blocks * PTX_Q8_SCALES, MMA_DA);
    put_step(p, m, blocks);
    if (b->min && b->scales == PTX_SCALE_FLOAT)
        PTX_FILL(p,
                 "    mad.wide.u32 %from, %half, 16, %px0;\n"
                 "    mad.wide.u32 %from, %quarter, 4, %from;\n"
                 "    ld.global.b32 %x0, [%from+$0];\n"
                 "    dp2a.lo.s32.s32 %x1, %x0, 0x01010101, 0;\n"
                 "    cvt.rn.f32.s32 %f, %x1;\n"
                 "    st.shared.f32 [%put_pair+$1], %f;\n",
                 blocks * PTX_Q8_SUMS, MMA_SUMS_F);
    else if (b->min)
        PTX_FILL(p,
                 "    mad.wide.u32 %from, %block, 32, %px0;\n"
                 "    mad.wide.u32 %from, %quarter, 8, %from;\n"
                 "    ld.global.v2.b32 {%x0, %x1}, [%from+$0];\n"
                 "    // 32 * (i / 4) + 4 * (i % 4)\n"
                 "    mov.u32 %x3, staged;\n"
                 "    mad.lo.u32 %x3, %i, 8, %x3;\n"
                 "    mad.lo.u32 %x3, %quarter, -4, %x3;\n"
                 "    prmt.b32 %x2, %x0, %x1, 0x6420;\n"
                 "    st.shared.b32 [%x3+$1], %x2;\n"
                 "    prmt.b32 %x2, %x0, %x1, 0x7531;\n"
                 "    st.shared.b32 [%x3+$2], %x2;\n",
                 blocks * PTX_Q8_SUMS, MMA_SUMS, MMA_SUMS + 16);
    PTX_LINES(p, "    }\n");
}

void ptx_mma_put(struct ptx *p, const struct ptx_matmul *m)
{
    put_weights(p, m);
    put_x(p, m);
}
