// Emits the products of a unit for more than two rows of 8-bit activations, as a loop over the parts of 32 weights, which
// emit_bytes.c unpacks: see emit_dot.c, whose order of operations this has.
#include "kernels/ptx/emit_bytes.h"
#include "kernels/ptx/emit_dot_parts.h"

// Sets %dot to the products of words `first` to first + n - 1 of the part, %q, with those of the row, %a.
static void part_products(const struct ptx_dot *dot, uint32_t first, uint32_t n)
{
    struct ptx *p = dot->p;
    bool is_signed = ptx_bytes_of(dot->type)->is_signed;
    PTX_LINES(p, "    mov.b32 %dot, 0;\n");
    for (uint32_t i = first; i < first + n; i++) {
        if (is_signed)
            PTX_FILL(p, "    dp4a.s32.s32 %dot, %q$0, %a$0, %dot;\n", i);
        else
            PTX_FILL(p, "    dp4a.u32.s32 %dot, %q$0, %a$0, %dot;\n", i);
    }
}

// Row r of a part with a float scale. The type's offset is subtracted times the sums, which are in %t0.
static void part_floats(const struct ptx_dot *dot, uint32_t r)
{
    const struct ptx_bytes *b = ptx_bytes_of(dot->type);
    part_products(dot, 0, 8);
    PTX_LINES(dot->p, "    mul.lo.s32 %dot, %dot, %step;\n");
    if (b->less)
        PTX_FILL(dot->p, "    dp2a.lo.s32.s32 %dot, %t0, 0x$x0, %dot;\n", (256u - b->less) * 0x0101);
    PTX_FILL(dot->p,
             "    cvt.rn.f32.s32 %f, %dot;\n"
             "    fma.rn.f32 %bs$0, %f, %d, %bs$0;\n",
             r);
    if (b->min)
        PTX_FILL(dot->p,
                 "    mov.b32 %dot, 0;\n"
                 "    dp2a.lo.s32.s32 %dot, %t0, 0x01010101, %dot;\n"
                 "    cvt.rn.f32.s32 %f, %dot;\n"
                 "    fma.rn.f32 %bs$0, %f, %m, %bs$0;\n",
                 r);
}

// Row r of a part with a float scale for each run of 16: %d and %m. The product of the sums, of which each run has one in
// %t0, takes off the offset.
static void part_runs(const struct ptx_dot *dot, uint32_t r)
{
    for (uint32_t run = 0; run < 2; run++) {
        part_products(dot, 4 * run, 4);
        PTX_FILL(dot->p,
                 "    mul.lo.s32 %dot, %dot, %step;\n"
                 "    dp2a.lo.s32.s32 %dot, %t0, 0x$x0, %dot;\n"
                 "    cvt.rn.f32.s32 %f, %dot;\n",
                 (256u - ptx_bytes_of(dot->type)->less) << 8 * run);
        if (run)
            PTX_FILL(dot->p, "    fma.rn.f32 %bs$0, %f, %m, %bs$0;\n", r);
        else
            PTX_FILL(dot->p, "    fma.rn.f32 %bs$0, %f, %d, %bs$0;\n", r);
    }
}

// Row r of a part with integer scales: adds to %isum, and to %msum the minima times the sums of the activations. Types
// with an offset have scales times sums there instead.
static void part_integers(const struct ptx_dot *dot, uint32_t r)
{
    const struct ptx_bytes *b = ptx_bytes_of(dot->type);
    if (b->scales == PTX_SCALE_16) {
        part_products(dot, 0, 4);
        PTX_LINES(dot->p, "    mul.lo.s32 %sum, %dot, %s0;\n");
        part_products(dot, 4, 4);
        PTX_LINES(dot->p, "    mad.lo.s32 %sum, %dot, %s1, %sum;\n");
    } else {
        part_products(dot, 0, 8);
        PTX_LINES(dot->p, "    mul.lo.s32 %sum, %dot, %s0;\n");
    }
    PTX_FILL(dot->p, "    mad.lo.s32 %isum$0, %sum, %step, %isum$0;\n", r);
    if (b->min)
        PTX_FILL(dot->p, "    dp2a.lo.s32.u32 %msum$0, %t0, %minima, %msum$0;\n", r);
    else if (b->less)
        PTX_FILL(dot->p, "    dp2a.lo.s32.s32 %msum$0, %t0, %minima, %msum$0;\n", r);
}

static void part_end(const struct ptx_dot *dot, uint32_t r)
{
    const struct ptx_bytes *b = ptx_bytes_of(dot->type);
    if (b->less)
        PTX_FILL(dot->p, "    mad.lo.s32 %isum$0, %msum$0, -$1, %isum$0;\n", r, b->less);
    PTX_FILL(dot->p,
             "    cvt.rn.f32.s32 %f, %isum$0;\n"
             "    mul.rn.f32 %bs$0, %f, %d;\n",
             r);
    if (b->min)
        PTX_FILL(dot->p,
                 "    cvt.rn.f32.s32 %f, %msum$0;\n"
                 "    neg.f32 %f, %f;\n"
                 "    fma.rn.f32 %bs$0, %f, %m, %bs$0;\n",
                 r);
}

// Loads the part's 32 activations of row r to %a0 to %a7, and their two sums to %t0 if they are needed. Sets %step to
// their step, which is byte %part of the 8 steps.
static void part_row(const struct ptx_dot *dot, uint32_t r)
{
    const struct ptx_bytes *b = ptx_bytes_of(dot->type);
    PTX_FILL(dot->p,
             "    ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%pr$0];\n"
             "    ld.global.v4.u32 {%a4, %a5, %a6, %a7}, [%pr$0+16];\n"
             "    add.u64 %pr$0, %pr$0, 32;\n"
             "    prmt.b32 %step, %steps$1, %steps$2, %select;\n",
             r, 2 * r, 2 * r + 1);
    if (b->min || b->less)
        PTX_FILL(dot->p,
                 "    ld.global.u32 %t0, [%ps$0];\n"
                 "    add.u64 %ps$0, %ps$0, 4;\n",
                 r);
}

// Clears the sums of the block.
static void clear_sums(const struct ptx_dot *dot, bool floats)
{
    const struct ptx_bytes *b = ptx_bytes_of(dot->type);
    for (uint32_t r = 0; r < dot->rows; r++) {
        if (floats)
            PTX_FILL(dot->p, "    mov.f32 %bs$0, 0f00000000;\n", r);
        else
            PTX_FILL(dot->p, "    mov.b32 %isum$0, 0;\n", r);
        if (!floats && (b->min || b->less))
            PTX_FILL(dot->p, "    mov.b32 %msum$0, 0;\n", r);
    }
}

void ptx_dot_unit_loop(const struct ptx_dot *dot)
{
    struct ptx *p = dot->p;
    const struct ptx_bytes *b = ptx_bytes_of(dot->type);
    const struct ptx_part part = {.p = p, .type = dot->type};
    const bool runs = b->scales == PTX_SCALE_FLOAT_16, floats = b->scales == PTX_SCALE_FLOAT || runs;
    if (b->min || b->less)
        ptx_dot_sums_at(dot);
    clear_sums(dot, floats);
    PTX_LINES(p, "    mov.u32 %part, 0;\n"
                 "PART: // 8 turns\n"
                 "    .pragma \"nounroll\";\n");
    ptx_type_bytes(&part);
    PTX_LINES(p, "    // selects one byte of 8, and the sign of a step, 0, for the other three\n"
                 "    add.u32 %select, %part, 0x8880;\n");
    if (b->min && b->scales == PTX_SCALE_16)
        PTX_LINES(p, "    mad.lo.u32 %minima, %n1, 256, %n0;\n");
    if (b->less && b->scales == PTX_SCALE_16)
        PTX_LINES(p, "    prmt.b32 %minima, %s0, %s1, 0x0040;\n");
    if (b->min && b->scales == PTX_SCALE_32)
        PTX_LINES(p, "    mul.lo.u32 %minima, %n0, 0x0101;\n");
    for (uint32_t r = 0; r < dot->rows; r++) {
        part_row(dot, r);
        if (runs)
            part_runs(dot, r);
        else if (floats)
            part_floats(dot, r);
        else
            part_integers(dot, r);
    }
    PTX_LINES(p, "    add.u32 %part, %part, 1;\n"
                 "    setp.lt.u32 %pred, %part, 8;\n"
                 "    @%pred bra PART;\n");
    for (uint32_t r = 0; r < dot->rows && !floats; r++)
        part_end(dot, r);
}
