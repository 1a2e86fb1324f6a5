// Makes fragments of weights in shared memory. See emit_fragment.h for the interface, emit_bytes.c for what the same
// types become in a thread that has a whole row, and weight_tile.def for the layout of a unit.
//
// Chunk c of row r lies at 512 c + 16 r of the unit. With %raw, word t of chunk c of row g + 8 i lies at 512 c + 128 i.
#include "kernels/ptx/emit_fragment.h"

#include "gguf/dtype_iq.h"
#include "kernels/ptx/emit_nibble.h"

enum { CHUNK = 512, EIGHT_ROWS = 128 };

// The register of the fragments that holds row g + 8 i, first (half 0) or second 16 k.
static uint32_t fragment(uint32_t i, uint32_t half)
{
    return 4 * (i / 2) + i % 2 + 2 * half;
}

// Types in which one chunk has the nibbles of a part: the low ones are the first 16 k.
static bool by_nibbles(enum dtype t)
{
    return t == DT_Q4_0 || t == DT_Q4_1 || t == DT_Q5_0 || t == DT_Q5_1 || t == DT_IQ4_NL || t == DT_IQ4_XS ||
           t == DT_MXFP4;
}

bool ptx_fragment_takes(enum dtype t)
{
    return by_nibbles(t) || t == DT_Q8_0 || t == DT_Q2_K || t == DT_Q3_K || t == DT_Q4_K || t == DT_Q5_K ||
           t == DT_Q6_K;
}

// Subtracts `less` from each byte of %a0 to %a7, which become signed. A sum of 128 - less and a weight of an offset type
// is below 256, so nothing carries to the next byte.
static void take_off(struct ptx *p, uint32_t less)
{
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    add.u32 %a$0, %a$0, 0x$x1;\n"
                 "    xor.b32 %a$0, %a$0, 0x80808080;\n",
                 i, (128 - less) * 0x01010101);
}

// ---- pairs of parts

// Loads the words of two chunks from `chunk` on, of the lane's four rows, behind %by_pair.
static void load_pair(struct ptx *p, uint32_t chunk)
{
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t half = 0; half < 2; half++)
            PTX_FILL(p, "    ld.shared.b32 %w$0, [%by_pair+$1];\n", fragment(i, half),
                     CHUNK * (chunk + half) + EIGHT_ROWS * i);
}

// Sets %by_pair to %raw plus `bytes` for each half of the unit, and %shift to the first bit of the pair's two-bit fields.
static void half_of_unit(struct ptx *p, uint32_t bytes)
{
    PTX_FILL(p,
             "    shr.u32 %v0, %pair, 1;\n"
             "    mad.lo.u32 %by_pair, %v0, $0, %raw;\n"
             "    and.b32 %shift, %pair, 1;\n"
             "    shl.b32 %shift, %shift, 2;\n",
             bytes);
}

// Sets %turn to how far a word is turned left so that bit 2 %pair of each byte becomes bit `to`.
static void turn_of_pair(struct ptx *p, uint32_t to)
{
    PTX_FILL(p,
             "    shl.b32 %turn, %pair, 1;\n"
             "    sub.u32 %turn, $0, %turn;\n",
             to);
}

void ptx_fragment_pair(struct ptx *p, enum dtype type)
{
    switch (type) {
    case DT_Q2_K:
    case DT_Q3_K:
        half_of_unit(p, 2 * CHUNK);
        load_pair(p, type == DT_Q2_K ? 1 : 2);
        turn_of_pair(p, 2);
        return;
    case DT_Q6_K:
        half_of_unit(p, 4 * CHUNK);
        PTX_FILL(p,
                 "    mad.lo.u32 %high_at, %v0, $0, %raw;\n"
                 "    sub.u32 %turn, 4, %shift;\n",
                 2 * CHUNK);
        return;
    default:
        PTX_FILL(p, "    mad.lo.u32 %by_pair, %pair, $0, %raw;\n", type == DT_Q8_0 ? 4 * CHUNK : 2 * CHUNK);
    }
    if (type == DT_Q4_K || type == DT_Q5_K)
        load_pair(p, type == DT_Q5_K ? 3 : 1);
    if (type == DT_Q5_K)
        turn_of_pair(p, 4);
}

// ---- parts

// Sets the fragments to the low or the high nibbles of the pair's words.
static void nibbles_of_pair(struct ptx *p, uint32_t part)
{
    for (uint32_t i = 0; i < 8; i++)
        if (part)
            PTX_FILL(p,
                     "    shr.u32 %a$0, %w$0, 4;\n"
                     "    and.b32 %a$0, %a$0, 0x0f0f0f0f;\n",
                     i);
        else
            PTX_FILL(p, "    and.b32 %a$0, %w$0, 0x0f0f0f0f;\n", i);
}

// Sets the fragments to the part's two-bit fields in the pair's words.
static void two_bits_of_pair(struct ptx *p, uint32_t part)
{
    PTX_FILL(p, "    add.u32 %v0, %shift, $0;\n", 2 * part);
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    shr.u32 %a$0, %w$0, %v0;\n"
                 "    and.b32 %a$0, %a$0, 0x03030303;\n",
                 i);
}

// Adds bits of the words of two chunks from `chunk` on, at <at>: the words are turned left by %turn - less, and what
// `mask` leaves of them is added. Such a bit comes from the same byte.
static void high_bits(struct ptx *p, const char *at, uint32_t chunk, uint32_t less, uint32_t mask)
{
    PTX_FILL(p, "    sub.u32 %v0, %turn, $0;\n", less);
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t half = 0; half < 2; half++) {
            PTX_LINES(p, "    ld.shared.b32 %v1, [");
            ptx_word(p, at);
            PTX_FILL(p,
                     "+$1];\n"
                     "    shf.l.wrap.b32 %v1, %v1, %v1, %v0;\n"
                     "    and.b32 %v1, %v1, 0x$x2;\n"
                     "    or.b32 %a$0, %a$0, %v1;\n",
                     fragment(i, half), CHUNK * (chunk + half) + EIGHT_ROWS * i, mask);
        }
}

// Q6_K: the low bits of a part are a nibble of chunks 4 h + 2 part and the next one, for half h of the unit; the high bits
// are in chunks 8 + 2 h and the next one.
static void six_bits(struct ptx *p, uint32_t part)
{
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t half = 0; half < 2; half++)
            PTX_FILL(p,
                     "    ld.shared.b32 %v0, [%by_pair+$1];\n"
                     "    shr.u32 %v0, %v0, %shift;\n"
                     "    and.b32 %a$0, %v0, 0x0f0f0f0f;\n",
                     fragment(i, half), CHUNK * (2 * part + half) + EIGHT_ROWS * i);
    high_bits(p, "%high_at", 8, 2 * part, 0x30303030);
}

// Adds the fifth bits of Q5_0 and Q5_1, of which each row has a word for the part: bits 4 t to 4 t + 3 belong to the
// lane's first word, those 16 further to its second. The product moves bit b to bit 8 b + 4.
static void fifth_bits(struct ptx *p, uint32_t part)
{
    PTX_FILL(p,
             "    mad.lo.u32 %v2, %pair, 2, $0;\n"
             "    shr.u32 %v0, %v2, 2;\n"
             "    and.b32 %v2, %v2, 3;\n"
             "    shl.b32 %v2, %v2, 2;\n"
             "    mad.lo.u32 %v2, %v0, $1, %v2;\n"
             "    mad.lo.u32 %v0, %g, 16, %unit_at;\n"
             "    add.u32 %v2, %v2, %v0;\n"
             "    shl.b32 %turn, %t, 2;\n",
             part, CHUNK);
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p,
                 "    ld.shared.b32 %v1, [%v2+$0];\n"
                 "    shr.u32 %v1, %v1, %turn;\n",
                 CHUNK * 8 + EIGHT_ROWS * i);
        for (uint32_t half = 0; half < 2; half++)
            PTX_FILL(p,
                     "    bfe.u32 %v0, %v1, $1, 4;\n"
                     "    mul.lo.u32 %v0, %v0, 0x02040810;\n"
                     "    and.b32 %v0, %v0, 0x10101010;\n"
                     "    or.b32 %a$0, %a$0, %v0;\n",
                     fragment(i, half), 16 * half);
    }
}

static void nibbles_of_part(struct ptx *p, enum dtype type, uint32_t part)
{
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t low = fragment(i, 0), high = fragment(i, 1);
        PTX_FILL(p, "    ld.shared.b32 %a$0, [%by_pair+$1];\n", low, CHUNK * part + EIGHT_ROWS * i);
        if (type == DT_MXFP4)
            ptx_fp4_bytes(p, "%a", low, "%a", low, high);
        else if (type == DT_IQ4_NL || type == DT_IQ4_XS)
            ptx_nibble_values(p, iq4_values, "%a", low, "%a", low, high);
        else
            PTX_FILL(p,
                     "    shr.u32 %a$1, %a$0, 4;\n"
                     "    and.b32 %a$1, %a$1, 0x0f0f0f0f;\n"
                     "    and.b32 %a$0, %a$0, 0x0f0f0f0f;\n",
                     low, high);
    }
    if (type == DT_Q5_0 || type == DT_Q5_1)
        fifth_bits(p, part);
}

static void eight_bits(struct ptx *p, uint32_t part)
{
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t half = 0; half < 2; half++)
            PTX_FILL(p, "    ld.shared.b32 %a$0, [%by_pair+$1];\n", fragment(i, half),
                     CHUNK * (2 * part + half) + EIGHT_ROWS * i);
}

void ptx_fragment_part(struct ptx *p, enum dtype type, uint32_t part)
{
    if (by_nibbles(type))
        nibbles_of_part(p, type, part);
    else if (type == DT_Q8_0)
        eight_bits(p, part);
    else if (type == DT_Q6_K)
        six_bits(p, part);
    else if (type == DT_Q2_K || type == DT_Q3_K)
        two_bits_of_pair(p, part);
    else
        nibbles_of_pair(p, part);
    if (type == DT_Q5_K)
        high_bits(p, "%raw", 1, part, 0x10101010);
    if (type == DT_Q3_K)
        high_bits(p, "%raw", 0, part, 0x04040404);
    if (ptx_bytes_of(type)->less)
        take_off(p, ptx_bytes_of(type)->less);
}

// ---- floats

// Sets %piece_at to the address of row g in the unit's piece of `size` bytes. Row g + 8 i follows 8 i size bytes later.
static void find_piece(struct ptx *p, enum dtype type, uint32_t size)
{
    PTX_FILL(p,
             "    mad.lo.u32 %piece_at, %g, $0, %unit_at;\n"
             "    add.u32 %piece_at, %piece_at, $1;\n",
             size, tile_piece(type, size));
}

// Sets %piece_at to the address of row g's item of a part in an array of items of `size` bytes, 2 or 4, which begins with
// chunk `chunk`. Row g + 8 i follows EIGHT_ROWS i later.
static void find_item(struct ptx *p, uint32_t part, uint32_t chunk, uint32_t size)
{
    PTX_FILL(p,
             "    mad.lo.u32 %v0, %pair, $0, $1;\n"
             "    shr.u32 %v1, %v0, 4;\n"
             "    and.b32 %v0, %v0, 15;\n"
             "    mad.lo.u32 %v0, %v1, $2, %v0;\n"
             "    mad.lo.u32 %piece_at, %g, 16, %unit_at;\n"
             "    add.u32 %piece_at, %piece_at, %v0;\n"
             "    add.u32 %piece_at, %piece_at, $3;\n",
             2 * size, part * size, CHUNK, CHUNK * chunk);
}

// Sets %d<i> to the half at %piece_at + stride i.
static void halves(struct ptx *p, uint32_t stride)
{
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    ld.shared.b16 %h, [%piece_at+$1];\n"
                 "    cvt.f32.f16 %d$0, %h;\n",
                 i, stride * i);
}

// Sets %d<i> and %m<i> to the two halves at %piece_at + stride i.
static void pairs_of_halves(struct ptx *p, uint32_t stride)
{
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    ld.shared.b32 %v0, [%piece_at+$1];\n"
                 "    mov.b32 {%h, %h1}, %v0;\n"
                 "    cvt.f32.f16 %d$0, %h;\n"
                 "    cvt.f32.f16 %m$0, %h1;\n",
                 i, stride * i);
}

static void exponents(struct ptx *p, uint32_t part)
{
    static const char *const d[] = {"%d0", "%d1", "%d2", "%d3"};
    find_piece(p, DT_MXFP4, 8);
    PTX_LINES(p, "    mad.lo.u32 %piece_at, %pair, 2, %piece_at;\n");
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p, "    ld.shared.u8 %v1, [%piece_at+$0];\n", 64 * i + part);
        ptx_e8m0_half(p, d[i], "%v1", "%v0", "%is_small");
    }
}

void ptx_fragment_floats(struct ptx *p, enum dtype type, uint32_t part)
{
    if (type == DT_MXFP4) {
        exponents(p, part);
        return;
    }
    if (ptx_bytes_of(type)->min) {
        find_item(p, part, type == DT_Q5_1 ? 10 : 8, 4);
        pairs_of_halves(p, EIGHT_ROWS);
        return;
    }
    find_item(p, part, type == DT_Q5_0 ? 10 : type == DT_Q8_0 ? 16 : 8, 2);
    halves(p, EIGHT_ROWS);
}

void ptx_fragment_units(struct ptx *p, enum dtype type)
{
    switch (type) {
    case DT_Q4_K:
    case DT_Q5_K: // at the beginning of chunk 0
        PTX_LINES(p, "    mad.lo.u32 %piece_at, %g, 16, %unit_at;\n");
        pairs_of_halves(p, EIGHT_ROWS);
        return;
    case DT_Q2_K:
        find_piece(p, type, 4);
        pairs_of_halves(p, 32);
        return;
    case DT_IQ4_XS: // at the beginning of the piece of 8 bytes
        find_piece(p, type, 8);
        halves(p, 64);
        return;
    default:
        find_piece(p, type, 2);
        halves(p, 16);
    }
}

// ---- integer scales

static void to_word(struct ptx *p, const char *to, uint32_t i)
{
    ptx_word(p, to);
    PTX_FILL(p, "$0", i);
}

// Q4_K and Q5_K: words 1 to 3 of chunk 0 hold 8 scales and 8 minima of 6 bits: the first four scales, the first four
// minima, and the low bits of the others, whose high bits lie above those of the first four. Sets %v0 to four values, the
// first ones (`low`) or the others, of scales or minima.
static void six_bit_word(struct ptx *p, uint32_t i, bool minima, bool low)
{
    PTX_FILL(p, "    ld.shared.b32 %v0, [%piece_at+$0];\n", EIGHT_ROWS * i + 4 + 4 * minima);
    if (low) {
        PTX_LINES(p, "    and.b32 %v0, %v0, 0x3f3f3f3f;\n");
        return;
    }
    PTX_FILL(p, "    ld.shared.b32 %v1, [%piece_at+$0];\n", EIGHT_ROWS * i + 12);
    if (minima)
        PTX_LINES(p, "    shr.u32 %v1, %v1, 4;\n");
    PTX_LINES(p, "    and.b32 %v1, %v1, 0x0f0f0f0f;\n"
                 "    shr.u32 %v0, %v0, 2;\n"
                 "    and.b32 %v0, %v0, 0x30303030;\n"
                 "    or.b32 %v0, %v0, %v1;\n");
}

static void k4_scales(struct ptx *p, const char *to)
{
    PTX_LINES(p, "    mad.lo.u32 %piece_at, %g, 16, %unit_at;\n"
                 "    setp.eq.u32 %first_word, %t, 0;\n");
    for (uint32_t i = 0; i < 4; i++) {
        six_bit_word(p, i, false, true);
        PTX_LINES(p, "    mov.b32 %v2, %v0;\n");
        six_bit_word(p, i, false, false);
        PTX_LINES(p, "    selp.b32 ");
        to_word(p, to, i);
        PTX_LINES(p, ", %v2, %v0, %first_word;\n");
    }
}

// Q3_K: 16 scales of 6 bits, whose low bits are the nibbles of 8 bytes, the high nibbles being those of runs 8 to 15, and
// whose high bits are the fields of 4 bytes. They are minus 32.
static void q3_k_scales(struct ptx *p, const char *to)
{
    find_piece(p, DT_Q3_K, 8);
    PTX_LINES(p, "    and.b32 %v0, %t, 1;\n"
                 "    mad.lo.u32 %piece_at, %v0, 4, %piece_at;\n"
                 "    shr.u32 %v2, %t, 1;\n"
                 "    shl.b32 %v2, %v2, 2;\n");
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p,
                 "    ld.shared.b32 %v0, [%piece_at+$0];\n"
                 "    shr.u32 %v0, %v0, %v2;\n"
                 "    and.b32 ",
                 64 * i);
        to_word(p, to, i);
        PTX_LINES(p, ", %v0, 0x0f0f0f0f;\n");
    }
    find_piece(p, DT_Q3_K, 4);
    PTX_LINES(p, "    shl.b32 %v2, %t, 1;\n");
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p,
                 "    ld.shared.b32 %v0, [%piece_at+$0];\n"
                 "    shr.u32 %v0, %v0, %v2;\n"
                 "    and.b32 %v0, %v0, 0x03030303;\n"
                 "    shl.b32 %v0, %v0, 4;\n"
                 "    or.b32 %v0, %v0, ",
                 32 * i);
        to_word(p, to, i);
        PTX_LINES(p, ";\n"
                     "    add.u32 %v0, %v0, 0x60606060;\n"
                     "    xor.b32 ");
        to_word(p, to, i);
        PTX_LINES(p, ", %v0, 0x80808080;\n");
    }
}

// Spreads the lowest four fields of `bits` bits of %v<from> over its bytes, where they begin at bit `at`. Changes %w0 and
// %w1.
static void spread(struct ptx *p, uint32_t from, uint32_t bits, uint32_t at)
{
    PTX_LINES(p, "    mov.b32 %w0, 0;\n");
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    bfe.u32 %w1, %v$0, $1, $2;\n"
                 "    bfi.b32 %w0, %w1, %w0, $3, $2;\n",
                 from, bits * i, bits, 8 * i + at);
    PTX_FILL(p, "    mov.b32 %v$0, %w0;\n", from);
}

// IQ4_XS: d, 8 times two high bits, and 8 nibbles. The scales are minus 32.
static void iq4_xs_scales(struct ptx *p, const char *to)
{
    find_piece(p, DT_IQ4_XS, 8);
    PTX_LINES(p, "    and.b32 %v2, %t, 1;\n");
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p,
                 "    ld.shared.v2.b32 {%v0, %v1}, [%piece_at+$0];\n"
                 "    shr.u32 %v0, %v0, 16;\n"
                 "    shl.b32 %turn, %v2, 3;\n"
                 "    shr.u32 %v0, %v0, %turn;\n"
                 "    shl.b32 %turn, %v2, 4;\n"
                 "    shr.u32 %v1, %v1, %turn;\n",
                 64 * i);
        spread(p, 0, 2, 4);
        spread(p, 1, 4, 0);
        PTX_LINES(p, "    or.b32 %v0, %v0, %v1;\n"
                     "    add.u32 %v0, %v0, 0x60606060;\n"
                     "    xor.b32 ");
        to_word(p, to, i);
        PTX_LINES(p, ", %v0, 0x80808080;\n");
    }
}

void ptx_fragment_scales(struct ptx *p, enum dtype type, const char *to)
{
    switch (type) {
    case DT_Q3_K:
        q3_k_scales(p, to);
        return;
    case DT_Q4_K:
    case DT_Q5_K:
        k4_scales(p, to);
        return;
    case DT_IQ4_XS:
        iq4_xs_scales(p, to);
        return;
    default: // Q2_K: the low nibbles of chunk 0; Q6_K: chunk 12
        for (uint32_t i = 0; i < 4; i++) {
            PTX_FILL(p, "    ld.shared.b32 %v0, [%raw+$0];\n", (type == DT_Q6_K ? CHUNK * 12 : 0) + EIGHT_ROWS * i);
            PTX_LINES(p, "    and.b32 ");
            to_word(p, to, i);
            PTX_FILL(p, ", %v0, 0x$x0;\n", type == DT_Q6_K ? 0xffffffff : 0x0f0f0f0f);
        }
    }
}

void ptx_fragment_minima(struct ptx *p, enum dtype type)
{
    if (type == DT_Q2_K) { // the high nibbles of chunk 0
        for (uint32_t i = 0; i < 4; i++)
            PTX_FILL(p,
                     "    ld.shared.b32 %a$0, [%raw+$1];\n"
                     "    shr.u32 %a$0, %a$0, 4;\n"
                     "    and.b32 %a$0, %a$0, 0x0f0f0f0f;\n",
                     i, EIGHT_ROWS * i);
        return;
    }
    PTX_LINES(p, "    mad.lo.u32 %piece_at, %g, 16, %unit_at;\n"
                 "    setp.lt.u32 %first_word, %t, 2;\n"
                 "    // runs 4 t to 4 t + 3 are parts 2 t and 2 t + 1\n"
                 "    and.b32 %turn, %t, 1;\n"
                 "    mad.lo.u32 %turn, %turn, 0x2222, 0x1100;\n");
    for (uint32_t i = 0; i < 4; i++) {
        six_bit_word(p, i, true, true);
        PTX_LINES(p, "    mov.b32 %v2, %v0;\n");
        six_bit_word(p, i, true, false);
        PTX_FILL(p,
                 "    selp.b32 %v0, %v2, %v0, %first_word;\n"
                 "    prmt.b32 %a$0, %v0, %v0, %turn;\n",
                 i);
    }
}
