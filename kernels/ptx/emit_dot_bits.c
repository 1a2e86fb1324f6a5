// Emits the products of a unit for one or two rows with weights of one and two bits, of three values and of 4-bit floats with a
// scale for each 16: see emit_dot.c, whose order of operations and registers these have, and emit_bits.c.
#include "kernels/ptx/emit_bits.h"
#include "kernels/ptx/emit_dot_parts.h"

// ---- three values: isum = the sum of step * (q . x) - the sum of x with its steps, S = isum * d

// Sets %isum<r> to minus the sum of the block's activations, as the bytes that are multiplied are weights plus 1.
static void take_off_sums(const struct ptx_dot *dot)
{
    ptx_dot_sums_at(dot);
    for (uint32_t r = 0; r < dot->rows; r++) {
        ptx_dot_load_sums(dot, r);
        PTX_FILL(dot->p, "    dp2a.lo.s32.s32 %isum$0, %x0, 0xffff, 0;\n", r);
        for (uint32_t i = 1; i < 8; i++)
            PTX_FILL(dot->p, "    dp2a.lo.s32.s32 %isum$0, %x$1, 0xffff, %isum$0;\n", r, i);
    }
}

// Adds step * (the products of %q0 to %q7) / 2^shift to the %isum of all rows, for part `sub`.
static void add_part(const struct ptx_dot *dot, uint32_t sub, uint32_t shift)
{
    struct ptx *p = dot->p;
    for (uint32_t r = 0; r < dot->rows; r++) {
        ptx_dot_load_x(dot, r, sub);
        PTX_LINES(p, "    dp4a.u32.s32 %dot, %q0, %x0, 0;\n");
        for (uint32_t i = 1; i < 8; i++)
            PTX_FILL(p, "    dp4a.u32.s32 %dot, %q$0, %x$0, %dot;\n", i);
        if (shift)
            PTX_FILL(p, "    shr.s32 %dot, %dot, $0;\n", shift);
        ptx_dot_step(dot, r, sub);
        PTX_FILL(p, "    mad.lo.s32 %isum$0, %dot, %step, %isum$0;\n", r);
    }
}

static void end_block(const struct ptx_dot *dot)
{
    for (uint32_t r = 0; r < dot->rows; r++)
        PTX_FILL(dot->p,
                 "    cvt.rn.f32.s32 %f, %isum$0;\n"
                 "    mul.rn.f32 %bs$0, %f, %d;\n",
                 r);
}

// The bits of a weight are multiplied where they are in their byte; the sum is a multiple of what that makes them larger.
void ptx_dot_unit_tq2_0(const struct ptx_dot *dot)
{
    PTX_LINES(dot->p, "    .reg .b32 %q<8>;\n");
    ptx_dot_chunks(dot, 0, 0, 4);
    ptx_dot_half_piece(dot);
    ptx_dot_end_loads(dot);
    take_off_sums(dot);
    for (uint32_t sub = 0; sub < 8; sub++) {
        const uint32_t shift = sub % 4 * 2;
        for (uint32_t i = 0; i < 8; i++)
            PTX_FILL(dot->p, "    and.b32 %q$0, %w$1, 0x$x2;\n", i, sub / 4 * 8 + i, 0x03030303u << shift);
        add_part(dot, sub, shift);
    }
    end_block(dot);
}

// Divides the bytes of %w<word> into two pairs in 16 bits each: %even<i> and %odd<i>.
static void begin_digits(struct ptx *p, uint32_t word, uint32_t i)
{
    PTX_FILL(p,
             "    and.b32 %even$0, %w$1, 0x00ff00ff;\n"
             "    shr.u32 %odd$0, %w$1, 8;\n"
             "    and.b32 %odd$0, %odd$0, 0x00ff00ff;\n",
             i, word);
}

// Sets %q<to> to the next digits of four bytes: what a multiplication by 3 carries out of them.
static void next_digits(struct ptx *p, uint32_t i, uint32_t to, bool last)
{
    PTX_FILL(p,
             "    mul.lo.u32 %even$0, %even$0, 3;\n"
             "    mul.lo.u32 %odd$0, %odd$0, 3;\n"
             "    prmt.b32 %q$1, %even$0, %odd$0, 0x7351;\n",
             i, to);
    if (!last)
        PTX_FILL(p,
                 "    and.b32 %even$0, %even$0, 0x00ff00ff;\n"
                 "    and.b32 %odd$0, %odd$0, 0x00ff00ff;\n",
                 i);
}

// Parts 0 to 4 are the digits of words 0 to 7; parts 5, 6 and the first half of 7 those of words 8 to 11, four words each, and
// the other half those of word 12.
void ptx_dot_unit_tq1_0(const struct ptx_dot *dot)
{
    struct ptx *p = dot->p;
    PTX_LINES(p, "    .reg .b32 %q<8>, %even<8>, %odd<8>;\n");
    ptx_dot_chunks(dot, 0, 0, 3);
    ptx_dot_piece(dot, 4);
    ptx_dot_load(dot);
    PTX_LINES(p, ".u32 %w12, [%at];\n");
    ptx_dot_half_piece(dot);
    ptx_dot_end_loads(dot);
    take_off_sums(dot);
    for (uint32_t i = 0; i < 8; i++)
        begin_digits(p, i, i);
    for (uint32_t sub = 0; sub < 5; sub++) {
        for (uint32_t i = 0; i < 8; i++)
            next_digits(p, i, i, sub == 4);
        add_part(dot, sub, 0);
    }
    for (uint32_t i = 0; i < 5; i++)
        begin_digits(p, 8 + i, i);
    for (uint32_t sub = 5; sub < 8; sub++) {
        for (uint32_t i = 0; i < 8; i++) {
            const bool qh = sub == 7 && i >= 4;
            next_digits(p, qh ? 4 : i % 4, i, sub == 7 && (i < 4 || i == 7));
        }
        add_part(dot, sub, 0);
    }
    end_block(dot);
}

// ---- one bit, two bits: S = fma(step * (q . x) - the sum of x, d, S) for each part

// Sets %d to the scale of part `sub`: blocks have 4 parts of Q1_0, 2 of Q2_0, and their halves follow each other in words from
// %w<word> on.
static void block_scale(struct ptx *p, uint32_t word, uint32_t block)
{
    PTX_FILL(p, "    mov.b32 {%h, %h1}, %w$0;\n", word + block / 2);
    if (block % 2)
        PTX_LINES(p, "    cvt.f32.f16 %d, %h1;\n");
    else
        PTX_LINES(p, "    cvt.f32.f16 %d, %h;\n");
}

static void add_bits(const struct ptx_dot *dot, uint32_t r, uint32_t sub)
{
    struct ptx *p = dot->p;
    ptx_dot_load_x(dot, r, sub);
    ptx_word(p, dot->shared ? "    ld.shared" : "    ld.global");
    PTX_FILL(p,
             ".u32 %t0, [%ps$0+$1];\n"
             "    dp4a.u32.s32 %dot, %q0, %x0, 0;\n",
             r, 4 * sub);
    for (uint32_t i = 1; i < 8; i++)
        PTX_FILL(p, "    dp4a.u32.s32 %dot, %q$0, %x$0, %dot;\n", i);
    ptx_dot_step(dot, r, sub);
    PTX_FILL(p,
             "    mul.lo.s32 %dot, %dot, %step;\n"
             "    dp2a.lo.s32.s32 %dot, %t0, 0xffff, %dot;\n"
             "    cvt.rn.f32.s32 %f, %dot;\n"
             "    fma.rn.f32 %bs$0, %f, %d, %bs$0;\n",
             r);
}

void ptx_dot_unit_bits(const struct ptx_dot *dot)
{
    struct ptx *p = dot->p;
    const bool one = dot->type == DT_Q1_0;
    const uint32_t words = one ? 1 : 2;
    PTX_LINES(p, "    .reg .b32 %q<8>;\n");
    ptx_dot_chunks(dot, 0, 0, 2 * words);
    ptx_dot_piece(dot, 4 * words);
    ptx_dot_load(dot);
    if (one)
        PTX_LINES(p, ".u32 %w8, [%at];\n");
    else
        PTX_LINES(p, ".v2.u32 {%w16, %w17}, [%at];\n");
    ptx_dot_end_loads(dot);
    ptx_dot_sums_at(dot);
    for (uint32_t r = 0; r < dot->rows; r++)
        PTX_FILL(p, "    mov.f32 %bs$0, 0f00000000;\n", r);
    for (uint32_t sub = 0; sub < 8; sub++) {
        if (sub % (one ? 4 : 2) == 0)
            block_scale(p, 8 * words, sub / (one ? 4 : 2));
        ptx_bits_weights(p, dot->type, words * sub);
        for (uint32_t r = 0; r < dot->rows; r++)
            add_bits(dot, r, sub);
    }
}

// ---- NVFP4: S = fma(step * (q . x) - 12 * the sum of x, d, S) for each run of 16

static void add_runs(const struct ptx_dot *dot, uint32_t r, uint32_t sub)
{
    struct ptx *p = dot->p;
    ptx_dot_load_x(dot, r, sub);
    ptx_dot_step(dot, r, sub);
    ptx_word(p, dot->shared ? "    ld.shared" : "    ld.global");
    PTX_FILL(p, ".u32 %t0, [%ps$0+$1];\n", r, 4 * sub);
    for (uint32_t run = 0; run < 2; run++) {
        PTX_FILL(p, "    dp4a.u32.s32 %dot, %q$0, %x$0, 0;\n", 4 * run);
        for (uint32_t i = 4 * run + 1; i < 4 * run + 4; i++)
            PTX_FILL(p, "    dp4a.u32.s32 %dot, %q$0, %x$0, %dot;\n", i);
        PTX_FILL(p,
                 "    mul.lo.s32 %dot, %dot, %step;\n"
                 "    dp2a.lo.s32.s32 %dot, %t0, 0x$x0, %dot;\n"
                 "    cvt.rn.f32.s32 %f, %dot;\n",
                 (256u - PTX_FP4_LESS) << 8 * run);
        if (run)
            PTX_FILL(p, "    fma.rn.f32 %bs$0, %f, %m, %bs$0;\n", r);
        else
            PTX_FILL(p, "    fma.rn.f32 %bs$0, %f, %d, %bs$0;\n", r);
    }
}

void ptx_dot_unit_nvfp4(const struct ptx_dot *dot)
{
    struct ptx *p = dot->p;
    PTX_LINES(p, "    .reg .b32 %q<8>;\n");
    ptx_dot_chunks(dot, 0, 0, 9);
    ptx_dot_end_loads(dot);
    ptx_dot_sums_at(dot);
    for (uint32_t r = 0; r < dot->rows; r++)
        PTX_FILL(p, "    mov.f32 %bs$0, 0f00000000;\n", r);
    for (uint32_t sub = 0; sub < 8; sub++) {
        ptx_bits_nvfp4_scales(p, 32 + sub / 2, sub % 2 * 16);
        ptx_bits_weights(p, DT_NVFP4, 4 * sub);
        for (uint32_t r = 0; r < dot->rows; r++)
            add_runs(dot, r, sub);
    }
}
