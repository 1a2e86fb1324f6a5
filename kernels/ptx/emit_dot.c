// Emits the sums of products of a unit's weights with 8-bit activations: see emit_dot.h for the interface and
// weight_tile.def for the byte order of a unit.
//
// The weights of 32 k are unpacked to 8 words of 4 bytes, %b0 to %b7, as they are stored, without subtracting the
// type's offset (8 in Q4_0, 32 in Q6_K). It is cheaper to subtract the offset times the sum of the activations, which
// the q8 row contains, at the end. Each word is multiplied with the words of every row by dp4a, and the sum of 32
// products with the step of the row's 32 activations. The sums in the q8 row have their steps already.
//
// Here are the units of one or two rows, of types with nibbles or more bits. Codebooks are in emit_dot_grid.c, other types of
// few bits in emit_dot_bits.c, more rows in emit_dot_loop.c.
#include "kernels/ptx/emit_dot.h"

#include "gguf/dtype_iq.h"
#include "kernels/ptx/emit_bytes.h"
#include "kernels/ptx/emit_dot_parts.h"
#include "kernels/ptx/emit_nibble.h"

enum { HALF = 4 }; // sub-blocks of 32 weights in half of a unit

// ---- loads

void ptx_dot_load(const struct ptx_dot *dot)
{
    ptx_word(dot->p, dot->loaded ? "    ld.shared" : "    ld.global.nc");
}

void ptx_dot_end_loads(const struct ptx_dot *dot)
{
    if (dot->loaded)
        dot->loaded(dot->p, dot->of);
}

void ptx_dot_chunks(const struct ptx_dot *dot, uint32_t first, uint32_t from, uint32_t chunks)
{
    for (uint32_t i = 0; i < chunks; i++) {
        ptx_dot_load(dot);
        PTX_FILL(dot->p, ".v4.u32 {%w$0, %w$1, %w$2, %w$3}, [%chunk+$4];\n", first + 4 * i, first + 4 * i + 1,
                 first + 4 * i + 2, first + 4 * i + 3, 512 * (from + i));
    }
}

// Loads the last chunks of a unit in the ring behind the products of the first ones, as registers do not suffice for all.
static void load_later(const struct ptx_dot *dot, uint32_t first, uint32_t from, uint32_t chunks)
{
    PTX_LINES(dot->p, "    bar.warp.sync 0xffffffff;\n"); // ptxas would load them at once
    ptx_dot_chunks(dot, first, from, chunks);
    ptx_dot_end_loads(dot);
}

void ptx_dot_piece(const struct ptx_dot *dot, uint32_t size)
{
    PTX_FILL(dot->p,
             "    mad.wide.u32 %at, %lane, $0, %unit;\n"
             "    add.u64 %at, %at, $1;\n",
             size, tile_piece(dot->type, size));
}

void ptx_dot_half_piece(const struct ptx_dot *dot)
{
    ptx_dot_piece(dot, 2);
    ptx_dot_load(dot);
    PTX_LINES(dot->p, ".b16 %h, [%at];\n"
                      "    cvt.f32.f16 %d, %h;\n");
}

// Sets %d and %m from the two halves of %w<word>.
static void halves(struct ptx *p, uint32_t word)
{
    PTX_FILL(p,
             "    mov.b32 {%h, %h1}, %w$0;\n"
             "    cvt.f32.f16 %d, %h;\n"
             "    cvt.f32.f16 %m, %h1;\n",
             word);
}

// Sets %d from half i % 2 of %w<word + i / 2>.
static void half_of(struct ptx *p, uint32_t word, uint32_t i)
{
    PTX_FILL(p, "    mov.b32 {%h, %h1}, %w$0;\n", word + i / 2);
    if (i % 2)
        PTX_LINES(p, "    cvt.f32.f16 %d, %h1;\n");
    else
        PTX_LINES(p, "    cvt.f32.f16 %d, %h;\n");
}

void ptx_dot_sums_at(const struct ptx_dot *dot)
{
    for (uint32_t r = 0; r < dot->rows; r++)
        PTX_FILL(dot->p,
                 "    mad.wide.u32 %ps$0, %block, 32, %px$0;\n"
                 "    add.u64 %ps$0, %ps$0, $1;\n",
                 r, dot->blocks * PTX_Q8_SUMS);
}

// Loads the 8 steps of the block's activations in row r to the bytes of %steps<2 r> and %steps<2 r + 1>, for all rows.
static void load_steps(const struct ptx_dot *dot)
{
    for (uint32_t r = 0; r < dot->rows; r++) {
        PTX_FILL(dot->p, "    mad.wide.u32 %at, %block, 8, %px$0;\n", r);
        ptx_word(dot->p, dot->shared ? "    ld.shared" : "    ld.global");
        PTX_FILL(dot->p, ".v2.u32 {%steps$0, %steps$1}, [%at+$2];\n", 2 * r, 2 * r + 1, dot->blocks * PTX_Q8_STEPS);
    }
}

void ptx_dot_step(const struct ptx_dot *dot, uint32_t r, uint32_t sub)
{
    PTX_FILL(dot->p, "    bfe.u32 %step, %steps$0, $1, 8;\n", 2 * r + sub / 4, sub % 4 * 8);
}

// ---- products

void ptx_dot_load_x(const struct ptx_dot *dot, uint32_t r, uint32_t sub)
{
    for (uint32_t i = 0; i < 2; i++) {
        ptx_word(dot->p, dot->shared ? "    ld.shared" : "    ld.global");
        PTX_FILL(dot->p, ".v4.u32 {%x$0, %x$1, %x$2, %x$3}, [%pr$4+$5];\n", 4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3, r,
                 32 * sub + 16 * i);
    }
}

void ptx_dot_load_sums(const struct ptx_dot *dot, uint32_t r)
{
    for (uint32_t i = 0; i < 2; i++) {
        ptx_word(dot->p, dot->shared ? "    ld.shared" : "    ld.global");
        PTX_FILL(dot->p, ".v4.u32 {%x$0, %x$1, %x$2, %x$3}, [%ps$4+$5];\n", 4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3, r,
                 16 * i);
    }
}

// Adds the products of words first to first + n - 1 to %dot. is_signed: whether the weights' bytes are signed.
static void products(struct ptx *p, uint32_t first, uint32_t n, bool is_signed)
{
    for (uint32_t i = first; i < first + n; i++) {
        if (is_signed)
            PTX_FILL(p, "    dp4a.s32.s32 %dot, %b$0, %x$0, %dot;\n", i);
        else
            PTX_FILL(p, "    dp4a.u32.s32 %dot, %b$0, %x$0, %dot;\n", i);
    }
}

// Sets %b<i> to the nibbles of %w<word + i>, from bit 0 or bit 4 of each byte.
static void nibbles(struct ptx *p, uint32_t i, uint32_t word, uint32_t at)
{
    if (at)
        PTX_FILL(p,
                 "    shr.u32 %b$0, %w$1, 4;\n"
                 "    and.b32 %b$0, %b$0, 0x0f0f0f0f;\n",
                 i, word);
    else
        PTX_FILL(p, "    and.b32 %b$0, %w$1, 0x0f0f0f0f;\n", i, word);
}

// Sets %t0 to bits of %w<word>, moved from bit `from` of each byte to bit `to`. `mask` selects them in their new
// position.
static void moved(struct ptx *p, uint32_t word, uint32_t from, uint32_t to, uint32_t mask)
{
    if (from > to)
        PTX_FILL(p, "    shr.u32 %t0, %w$0, $1;\n", word, from - to);
    else
        PTX_FILL(p, "    shl.b32 %t0, %w$0, $1;\n", word, to - from);
    PTX_FILL(p, "    and.b32 %t0, %t0, 0x$x0;\n", mask);
}

// ---- types with blocks of 32: S = fma(step * isum, d, S) for each, with a minimum then S = fma(step * sum(q), m, S)

// Unpacks the weights of sub-block `sub` to %b0 to %b7.
static void weights_32(const struct ptx_dot *dot, uint32_t sub)
{
    struct ptx *p = dot->p;
    enum dtype t = dot->type;
    if (t == DT_Q8_0) {
        for (uint32_t i = 0; i < 8; i++)
            PTX_FILL(p, "    mov.u32 %b$0, %w$1;\n", i, 8 * sub + i);
        return;
    }
    for (uint32_t i = 0; i < 8; i++) {
        if (t == DT_MXFP4 && i < 4) {
            ptx_fp4_bytes(p, "%w", 4 * sub + i, "%b", i, i + 4);
        } else if (t == DT_IQ4_NL && i < 4) {
            ptx_nibble_values(p, iq4_values, "%w", 4 * sub + i, "%b", i, i + 4);
        } else if (t != DT_IQ4_NL && t != DT_MXFP4) {
            nibbles(p, i, 4 * sub + i % 4, i / 4 * 4);
            if (t == DT_Q5_0 || t == DT_Q5_1)
                // multiplying by a constant moves bit b of four to bit 8 * b + 4
                PTX_FILL(p,
                         "    bfe.u32 %t0, %w$1, $2, 4;\n"
                         "    mul.lo.u32 %t0, %t0, 0x02040810;\n"
                         "    and.b32 %t0, %t0, 0x10101010;\n"
                         "    or.b32 %b$0, %b$0, %t0;\n",
                         i, 32 + sub, 4 * i);
        }
    }
}

// Sets %d to the scale of sub-block `sub`, and %m to its minimum. They are stored behind the chunks of qs (and of
// qh).
static void scales_32(const struct ptx_dot *dot, uint32_t sub)
{
    switch (dot->type) {
    case DT_Q4_1:
        halves(dot->p, 32 + sub);
        break;
    case DT_Q5_1:
        halves(dot->p, 40 + sub);
        break;
    case DT_Q5_0:
        half_of(dot->p, 40, sub);
        break;
    case DT_Q8_0:
        half_of(dot->p, 64, sub);
        break;
    case DT_MXFP4:
        PTX_FILL(dot->p, "    bfe.u32 %t1, %w$0, $1, 8;\n", 32 + sub / 4, sub % 4 * 8);
        ptx_e8m0_half(dot->p, "%d", "%t1", "%t0", "%pred");
        break;
    default:
        half_of(dot->p, 32, sub);
        break;
    }
}

static void unit_32(const struct ptx_dot *dot)
{
    struct ptx *p = dot->p;
    enum dtype t = dot->type;
    const struct ptx_bytes *b = ptx_bytes_of(t);
    bool min = b->min;
    uint32_t less = b->less ? (256u - b->less) * 0x01010101 : 0;
    uint32_t qs = t == DT_Q8_0 ? 2 : 1;
    ptx_dot_chunks(dot, 32 * qs, 8 * qs, tile_unit_bytes(t) / 16 - 8 * qs);
    if (t == DT_MXFP4) {
        ptx_dot_piece(dot, 8);
        ptx_dot_load(dot);
        PTX_LINES(p, ".v2.u32 {%w32, %w33}, [%at];\n");
    }
    uint32_t ahead = !dot->loaded ? 0 : t == DT_Q8_0 ? HALF : 8; // sub-blocks that are loaded before the first product
    for (uint32_t sub = 0; sub < ahead; sub++)
        ptx_dot_chunks(dot, 4 * qs * sub, qs * sub, qs);
    if (ahead == 8)
        ptx_dot_end_loads(dot);
    if (min || less)
        ptx_dot_sums_at(dot);
    for (uint32_t r = 0; r < dot->rows; r++)
        PTX_FILL(p, "    mov.f32 %bs$0, 0f00000000;\n", r);
    for (uint32_t sub = 0; sub < 8; sub++) {
        if (!dot->loaded)
            ptx_dot_chunks(dot, 4 * qs * sub, qs * sub, qs);
        if (ahead == HALF && sub == HALF)
            load_later(dot, 4 * qs * HALF, qs * HALF, qs * HALF);
        if (t == DT_Q8_0 && dot->rows == 1 && sub == 7 && !dot->loaded)
            // ptxas loads everything at once, for which registers do not quite suffice: the last part comes later
            PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n");
        scales_32(dot, sub);
        weights_32(dot, sub);
        for (uint32_t r = 0; r < dot->rows; r++) {
            ptx_dot_load_x(dot, r, sub);
            PTX_LINES(p, "    mov.u32 %dot, 0;\n");
            if (min || less) {
                ptx_word(p, dot->shared ? "    ld.shared" : "    ld.global");
                PTX_FILL(p, ".u32 %t0, [%ps$0+$1];\n", r, 4 * sub);
            }
            products(p, 0, 8, b->is_signed);
            ptx_dot_step(dot, r, sub);
            PTX_LINES(p, "    mul.lo.s32 %dot, %dot, %step;\n");
            if (less)
                PTX_FILL(p, "    dp2a.lo.s32.s32 %dot, %t0, 0x$x0, %dot;\n", less);
            PTX_FILL(p,
                     "    cvt.rn.f32.s32 %f, %dot;\n"
                     "    fma.rn.f32 %bs$0, %f, %d, %bs$0;\n",
                     r);
            if (min)
                PTX_FILL(p,
                         "    mov.u32 %dot, 0;\n"
                         "    dp2a.lo.s32.s32 %dot, %t0, 0x01010101, %dot;\n"
                         "    cvt.rn.f32.s32 %f, %dot;\n"
                         "    fma.rn.f32 %bs$0, %f, %m, %bs$0;\n",
                         r);
        }
    }
}

// ---- types with blocks of 256: %isum<r> in integers, then S = isum * d, with minima S = fma(-msum, m, S)

// Adds the step times both runs' scale * sum of products to %isum<r>, for 32 weights with a scale for each 16.
static void scaled_runs(const struct ptx_dot *dot, uint32_t r, uint32_t sub)
{
    for (uint32_t run = 0; run < 2; run++) {
        PTX_LINES(dot->p, "    mov.u32 %dot, 0;\n");
        products(dot->p, 4 * run, 4, false);
        if (run)
            PTX_FILL(dot->p, "    mad.lo.s32 %sum, %dot, %scale$0, %sum;\n", 2 * sub + 1);
        else
            PTX_FILL(dot->p, "    mul.lo.s32 %sum, %dot, %scale$0;\n", 2 * sub);
    }
    ptx_dot_step(dot, r, sub);
    PTX_FILL(dot->p, "    mad.lo.s32 %isum$0, %sum, %step, %isum$0;\n", r);
}

// Sets %scale<i> to byte i of the words from %w<word> on, as a signed number.
static void signed_scales(struct ptx *p, uint32_t word)
{
    for (uint32_t i = 0; i < 16; i++)
        PTX_FILL(p,
                 "    mov.b32 %dot, %w$1;\n"
                 "    bfe.s32 %scale$0, %dot, $2, 8;\n",
                 i, word + i / 4, i % 4 * 8);
}

// Sets %isum<r> to -less * the sum over 16 runs of scale * sum of activations. The scales are the signed bytes from
// %w<word> on.
static void offsets(const struct ptx_dot *dot, uint32_t word, uint32_t less)
{
    struct ptx *p = dot->p;
    for (uint32_t r = 0; r < dot->rows; r++) {
        ptx_dot_load_sums(dot, r);
        PTX_FILL(p, "    mov.u32 %isum$0, 0;\n", r);
        for (uint32_t i = 0; i < 4; i++)
            PTX_FILL(p,
                     "    dp2a.lo.s32.s32 %isum$0, %x$1, %w$2, %isum$0;\n"
                     "    dp2a.hi.s32.s32 %isum$0, %x$3, %w$2, %isum$0;\n",
                     r, 2 * i, word + i, 2 * i + 1);
        PTX_FILL(p, "    mul.lo.s32 %isum$0, %isum$0, -$1;\n", r, less);
    }
}

// Q6_K: words ql 0 to 31, qh 32 to 47, scales 48 to 51.
static void unit_q6_k(const struct ptx_dot *dot)
{
    struct ptx *p = dot->p;
    ptx_dot_chunks(dot, 0, 0, 13);
    ptx_dot_half_piece(dot);
    ptx_dot_end_loads(dot);
    ptx_dot_sums_at(dot);
    signed_scales(p, 48);
    offsets(dot, 48, 32);
    for (uint32_t sub = 0; sub < 8; sub++) {
        uint32_t half = sub / 4, k = sub % 4;
        for (uint32_t i = 0; i < 8; i++) {
            nibbles(p, i, 16 * half + 8 * (k % 2) + i, k / 2 * 4);
            moved(p, 32 + 8 * half + i, 2 * k, 4, 0x30303030);
            PTX_FILL(p, "    or.b32 %b$0, %b$0, %t0;\n", i);
        }
        for (uint32_t r = 0; r < dot->rows; r++) {
            ptx_dot_load_x(dot, r, sub);
            scaled_runs(dot, r, sub);
        }
    }
    for (uint32_t r = 0; r < dot->rows; r++)
        PTX_FILL(p,
                 "    cvt.rn.f32.s32 %f, %isum$0;\n"
                 "    mul.rn.f32 %bs$0, %f, %d;\n",
                 r);
}

// Unpacks Q3_K's 16 scales of 6 bits from the 12 bytes in %w24 to %w26, to signed bytes in %w24 to %w27, with 32
// subtracted.
static void q3_k_scales(struct ptx *p)
{
    PTX_LINES(p, "    mov.u32 %t0, %w24;\n"
                 "    mov.u32 %t1, %w25;\n"
                 "    mov.u32 %t2, %w26;\n");
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p,
                 "    shr.u32 %w$0, %t$1, $2;\n"
                 "    and.b32 %w$0, %w$0, 0x0f0f0f0f;\n"
                 "    shr.u32 %x0, %t2, $3;\n"
                 "    and.b32 %x0, %x0, 0x03030303;\n"
                 "    shl.b32 %x0, %x0, 4;\n"
                 "    or.b32 %w$0, %w$0, %x0;\n",
                 24 + i, i % 2, i / 2 * 4, 2 * i);
        // subtracts 32 from a byte below 64: bit 5 is inverted, and if it is set then, so are the bits above it
        PTX_FILL(p,
                 "    xor.b32 %w$0, %w$0, 0x20202020;\n"
                 "    and.b32 %x0, %w$0, 0x20202020;\n"
                 "    mul.lo.u32 %x0, %x0, 6;\n"
                 "    or.b32 %w$0, %w$0, %x0;\n",
                 24 + i);
    }
}

// Q3_K: words hmask 0 to 7, qs 8 to 23.
static void unit_q3_k(const struct ptx_dot *dot)
{
    struct ptx *p = dot->p;
    ptx_dot_chunks(dot, 0, 0, 6);
    ptx_dot_piece(dot, 8);
    ptx_dot_load(dot);
    PTX_LINES(p, ".v2.u32 {%w24, %w25}, [%at];\n");
    ptx_dot_piece(dot, 4);
    ptx_dot_load(dot);
    PTX_LINES(p, ".u32 %w26, [%at];\n");
    ptx_dot_half_piece(dot);
    ptx_dot_end_loads(dot);
    ptx_dot_sums_at(dot);
    q3_k_scales(p);
    signed_scales(p, 24);
    offsets(dot, 24, 4);
    for (uint32_t sub = 0; sub < 8; sub++) {
        for (uint32_t i = 0; i < 8; i++) {
            moved(p, 8 + sub / 4 * 8 + i, sub % 4 * 2, 0, 0x03030303);
            PTX_FILL(p, "    mov.u32 %b$0, %t0;\n", i);
            moved(p, i, sub, 2, 0x04040404);
            PTX_FILL(p, "    or.b32 %b$0, %b$0, %t0;\n", i);
        }
        for (uint32_t r = 0; r < dot->rows; r++) {
            ptx_dot_load_x(dot, r, sub);
            scaled_runs(dot, r, sub);
        }
    }
    for (uint32_t r = 0; r < dot->rows; r++)
        PTX_FILL(p,
                 "    cvt.rn.f32.s32 %f, %isum$0;\n"
                 "    mul.rn.f32 %bs$0, %f, %d;\n",
                 r);
}

// Sets %bs<r> to isum * d - msum * m, with each operation rounded once. The minima are 16 bytes, for 16 runs of 16,
// in four words from %w<word> on.
static void end_with_minima(const struct ptx_dot *dot, uint32_t word)
{
    struct ptx *p = dot->p;
    for (uint32_t r = 0; r < dot->rows; r++) {
        ptx_dot_load_sums(dot, r);
        PTX_LINES(p, "    mov.u32 %dot, 0;\n");
        for (uint32_t i = 0; i < 4; i++)
            PTX_FILL(p,
                     "    dp2a.lo.s32.u32 %dot, %x$0, %w$2, %dot;\n"
                     "    dp2a.hi.s32.u32 %dot, %x$1, %w$2, %dot;\n",
                     2 * i, 2 * i + 1, word + i);
        PTX_FILL(p,
                 "    cvt.rn.f32.s32 %f, %isum$0;\n"
                 "    mul.rn.f32 %bs$0, %f, %d;\n"
                 "    cvt.rn.f32.s32 %f, %dot;\n"
                 "    neg.f32 %f, %f;\n"
                 "    fma.rn.f32 %bs$0, %f, %m, %bs$0;\n",
                 r);
    }
}

// Q2_K: words scales and minima 0 to 3, qs 4 to 19, d and dmin 20.
static void unit_q2_k(const struct ptx_dot *dot)
{
    struct ptx *p = dot->p;
    ptx_dot_chunks(dot, 0, 0, 5);
    ptx_dot_piece(dot, 4);
    ptx_dot_load(dot);
    PTX_LINES(p, ".u32 %w20, [%at];\n");
    ptx_dot_end_loads(dot);
    halves(p, 20);
    ptx_dot_sums_at(dot);
    for (uint32_t i = 0; i < 16; i++)
        PTX_FILL(p,
                 "    mov.b32 %dot, %w$1;\n"
                 "    bfe.s32 %scale$0, %dot, $2, 4;\n"
                 "    and.b32 %scale$0, %scale$0, 15;\n",
                 i, i / 4, i % 4 * 8);
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    shr.u32 %w$0, %w$0, 4;\n"
                 "    and.b32 %w$0, %w$0, 0x0f0f0f0f;\n",
                 i);
    for (uint32_t r = 0; r < dot->rows; r++)
        PTX_FILL(p, "    mov.u32 %isum$0, 0;\n", r);
    for (uint32_t sub = 0; sub < 8; sub++) {
        for (uint32_t i = 0; i < 8; i++) {
            moved(p, 4 + sub / 4 * 8 + i, sub % 4 * 2, 0, 0x03030303);
            PTX_FILL(p, "    mov.u32 %b$0, %t0;\n", i);
        }
        for (uint32_t r = 0; r < dot->rows; r++) {
            ptx_dot_load_x(dot, r, sub);
            scaled_runs(dot, r, sub);
        }
    }
    end_with_minima(dot, 0);
}

// Unpacks the six-bit scales and minima of Q4_K and Q5_K from the head in %w0 to %w3: the scales to the bytes of
// %scale0 and %scale1, the minima, each twice, to %w0 to %w3.
static void k4_scales(struct ptx *p)
{
    halves(p, 0);
    PTX_LINES(p, "    // of the last four, bits 4 and 5 lie above the first four\n"
                 "    and.b32 %scale0, %w1, 0x3f3f3f3f;\n"
                 "    shr.u32 %t1, %w1, 2;\n"
                 "    and.b32 %t1, %t1, 0x30303030;\n"
                 "    and.b32 %t2, %w3, 0x0f0f0f0f;\n"
                 "    or.b32 %scale1, %t1, %t2;\n");
    PTX_LINES(p, "    and.b32 %t0, %w2, 0x3f3f3f3f;\n"
                 "    shr.u32 %t1, %w2, 2;\n"
                 "    and.b32 %t1, %t1, 0x30303030;\n"
                 "    shr.u32 %t2, %w3, 4;\n"
                 "    and.b32 %t2, %t2, 0x0f0f0f0f;\n"
                 "    or.b32 %t1, %t1, %t2;\n"
                 "    prmt.b32 %w0, %t0, 0, 0x1100;\n"
                 "    prmt.b32 %w1, %t0, 0, 0x3322;\n"
                 "    prmt.b32 %w2, %t1, 0, 0x1100;\n"
                 "    prmt.b32 %w3, %t1, 0, 0x3322;\n");
}

// Adds step * scale * (the products of words 0 to 7) / 2^shift to %isum<r>. A dp4a of the scales with a word that
// contains only this one step multiplies the two.
static void scaled_k4(const struct ptx_dot *dot, uint32_t r, uint32_t sub, uint32_t shift)
{
    PTX_LINES(dot->p, "    mov.u32 %dot, 0;\n");
    products(dot->p, 0, 8, false);
    if (shift)
        PTX_FILL(dot->p, "    shr.s32 %dot, %dot, $0;\n", shift);
    PTX_FILL(dot->p,
             "    and.b32 %step, %steps$1, 0x$x2;\n"
             "    dp4a.u32.u32 %step, %scale$3, %step, 0;\n"
             "    mad.lo.s32 %isum$0, %dot, %step, %isum$0;\n",
             r, 2 * r + sub / 4, 255u << sub % 4 * 8, sub / 4);
}

// The high nibbles are multiplied where they are; then their sum, which is a multiple of 16, is shifted down.
static void unit_q4_k(const struct ptx_dot *dot)
{
    struct ptx *p = dot->p;
    for (uint32_t sub = 0; sub < 8; sub++) {
        for (uint32_t i = 0; i < 8; i++)
            PTX_FILL(p, "    and.b32 %b$0, %w$1, 0x$x2;\n", i, 4 + sub / 2 * 8 + i, sub % 2 ? 0xf0f0f0f0 : 0x0f0f0f0f);
        for (uint32_t r = 0; r < dot->rows; r++) {
            ptx_dot_load_x(dot, r, sub);
            scaled_k4(dot, r, sub, sub % 2 * 4);
        }
    }
}

static void unit_q5_k(const struct ptx_dot *dot)
{
    struct ptx *p = dot->p;
    for (uint32_t sub = 0; sub < 8; sub++) {
        if (dot->loaded && sub == HALF)
            load_later(dot, 28, 7, 4);
        for (uint32_t i = 0; i < 8; i++) {
            nibbles(p, i, 12 + sub / 2 * 8 + i, sub % 2 * 4);
            moved(p, 4 + i, sub, 4, 0x10101010);
            PTX_FILL(p, "    or.b32 %b$0, %b$0, %t0;\n", i);
        }
        for (uint32_t r = 0; r < dot->rows; r++) {
            ptx_dot_load_x(dot, r, sub);
            scaled_k4(dot, r, sub, 0);
        }
    }
}

// Q4_K: words head 0 to 3, qs 4 to 35. Q5_K: words head 0 to 3, qh 4 to 11, qs 12 to 43.
static void unit_k4(const struct ptx_dot *dot)
{
    struct ptx *p = dot->p;
    bool five = dot->type == DT_Q5_K;
    ptx_dot_chunks(dot, 0, 0, !five ? 9 : dot->loaded ? 7 : 11);
    if (!five)
        ptx_dot_end_loads(dot);
    ptx_dot_sums_at(dot);
    k4_scales(p);
    for (uint32_t r = 0; r < dot->rows; r++)
        PTX_FILL(p, "    mov.u32 %isum$0, 0;\n", r);
    if (five)
        unit_q5_k(dot);
    else
        unit_q4_k(dot);
    end_with_minima(dot, 0);
}

// IQ4_XS: words qs 0 to 31, head 32 and 33.
static void unit_iq4_xs(const struct ptx_dot *dot)
{
    struct ptx *p = dot->p;
    ptx_dot_chunks(dot, 0, 0, 8);
    ptx_dot_piece(dot, 8);
    ptx_dot_load(dot);
    PTX_LINES(p, ".v2.u32 {%w32, %w33}, [%at];\n");
    ptx_dot_end_loads(dot);
    PTX_LINES(p, "    mov.b32 {%h, %h1}, %w32;\n"
                 "    cvt.f32.f16 %d, %h;\n");
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    bfe.u32 %t0, %w33, $1, 4;\n"
                 "    bfe.u32 %t1, %w32, $2, 2;\n"
                 "    mad.lo.u32 %t0, %t1, 16, %t0;\n"
                 "    mov.b32 %dot, %t0;\n"
                 "    sub.s32 %scale$0, %dot, 32;\n",
                 i, 4 * i, 16 + 2 * i);
    for (uint32_t r = 0; r < dot->rows; r++)
        PTX_FILL(p, "    mov.u32 %isum$0, 0;\n", r);
    for (uint32_t sub = 0; sub < 8; sub++) {
        for (uint32_t i = 0; i < 4; i++)
            ptx_nibble_values(p, iq4_values, "%w", 4 * sub + i, "%b", i, i + 4);
        for (uint32_t r = 0; r < dot->rows; r++) {
            ptx_dot_load_x(dot, r, sub);
            PTX_LINES(p, "    mov.u32 %dot, 0;\n");
            products(p, 0, 8, true);
            ptx_dot_step(dot, r, sub);
            PTX_FILL(p,
                     "    mul.lo.s32 %step, %step, %scale$1;\n"
                     "    mad.lo.s32 %isum$0, %dot, %step, %isum$0;\n",
                     r, sub);
        }
    }
    for (uint32_t r = 0; r < dot->rows; r++)
        PTX_FILL(p,
                 "    cvt.rn.f32.s32 %f, %isum$0;\n"
                 "    mul.rn.f32 %bs$0, %f, %d;\n",
                 r);
}

// ---- all types

typedef void unit_fn(const struct ptx_dot *);
static unit_fn *const units[DT_COUNT] = {
    [DT_Q4_0] = unit_32,
    [DT_Q4_1] = unit_32,
    [DT_Q5_0] = unit_32,
    [DT_Q5_1] = unit_32,
    [DT_Q8_0] = unit_32,
    [DT_IQ4_NL] = unit_32,
    [DT_MXFP4] = unit_32,
    [DT_Q2_K] = unit_q2_k,
    [DT_Q3_K] = unit_q3_k,
    [DT_Q4_K] = unit_k4,
    [DT_Q5_K] = unit_k4,
    [DT_Q6_K] = unit_q6_k,
    [DT_IQ4_XS] = unit_iq4_xs,
    [DT_IQ2_XXS] = ptx_dot_unit_grid,
    [DT_IQ2_XS] = ptx_dot_unit_grid,
    [DT_IQ2_S] = ptx_dot_unit_grid,
    [DT_IQ3_XXS] = ptx_dot_unit_grid,
    [DT_IQ3_S] = ptx_dot_unit_grid,
    [DT_IQ1_S] = ptx_dot_unit_grid,
    [DT_IQ1_M] = ptx_dot_unit_grid,
    [DT_TQ1_0] = ptx_dot_unit_tq1_0,
    [DT_TQ2_0] = ptx_dot_unit_tq2_0,
    [DT_Q1_0] = ptx_dot_unit_bits,
    [DT_Q2_0] = ptx_dot_unit_bits,
    [DT_NVFP4] = ptx_dot_unit_nvfp4,
};

bool ptx_takes_q8(enum dtype type)
{
    return ptx_bytes_of(type);
}

void ptx_dot_unit(const struct ptx_dot *dot)
{
    if (dot->rows > 2) {
        PTX_FILL(dot->p,
                 "    {\n"
                 "    .reg .b32 %part, %dot, %sum, %minima, %a<8>, %isum<$0>, %msum<$0>;\n"
                 "    .reg .b32 %step, %select, %steps<$1>;\n"
                 "    .reg .u64 %ps<$0>;\n"
                 "    .reg .f32 %f;\n" PTX_PART_REGS,
                 dot->rows, 2 * dot->rows);
        load_steps(dot);
        ptx_dot_unit_loop(dot);
    } else {
        PTX_FILL(dot->p,
                 "    {\n"
                 "    .reg .pred %pred;\n"
                 "    .reg .b16 %h, %h1;\n"
                 "    .reg .b32 %w<68>, %b<8>, %x<8>, %t<3>;\n"
                 "    .reg .b32 %dot, %sum, %step, %steps<$1>, %isum<$0>, %scale<16>;\n"
                 "    .reg .u64 %at, %ps<$0>;\n"
                 "    .reg .f32 %d, %m, %f;\n",
                 dot->rows, 2 * dot->rows);
        load_steps(dot);
        units[dot->type](dot);
    }
    PTX_LINES(dot->p, "    }\n");
}
