// Dequantises the types with codebooks (IQ), with three values (TQ) and of 4-bit floats. See emit_type.h for the
// interface, and gguf/dtype_iq.c for the layout and formula of each type. Codebooks of more than 16 values are
// constant arrays of the module; tables of 16 values are permuted from words.
#include "kernels/ptx/emit_type.h"

#include "gguf/dtype_iq.h"
#include "kernels/ptx/emit_nibble.h"

// ---- the module's tables

struct book {
    enum dtype type;
    const uint64_t *pairs; // entries of 8 bytes, or
    const uint32_t *words; // entries of 4 bytes
    uint32_t n;
};
static const struct book books[] = {
    {DT_IQ2_XXS, iq2_xxs_grid, NULL, 256}, {DT_IQ2_XS, iq2_xs_grid, NULL, 512}, {DT_IQ2_S, iq2_s_grid, NULL, 1024},
    {DT_IQ3_XXS, NULL, iq3_xxs_grid, 256}, {DT_IQ3_S, NULL, iq3_s_grid, 512},   {DT_IQ1_S, iq1_grid, NULL, 2048},
    {DT_IQ1_M, iq1_grid, NULL, 2048},
};

static uint32_t book_word(const struct book *b, uint32_t i)
{
    return b->words ? b->words[i] : (uint32_t)(b->pairs[i / 2] >> i % 2 * 32);
}

void ptx_type_tables(struct ptx *p, enum dtype type, uint32_t node)
{
    const struct book *b = books;
    while (b < books + COUNT_OF(books) && b->type != type)
        b++;
    if (b == books + COUNT_OF(books))
        return;
    uint32_t n = b->n * (b->words ? 1 : 2);
    PTX_FILL(p, "\n.global .align 8 .b32 book_$0[$1] = {\n", node, n);
    for (uint32_t i = 0; i < n; i++)
        PTX_FILL(p, "    0x$x0", book_word(b, i)), i + 1 < n ? PTX_LINES(p, ",\n") : PTX_LINES(p, "};\n");
}

// ---- entries of a codebook

// Loads the entry of 8 bytes with the index in %t0 to %x0 and %x1.
static void entry_8(const struct ptx_part *part)
{
    PTX_FILL(part->p,
             "    mov.u64 %piece, book_$0;\n"
             "    mad.wide.u32 %piece, %t0, 8, %piece;\n"
             "    ld.global.nc.v2.u32 {%x0, %x1}, [%piece];\n",
             part->node);
}

// Loads the entry of 4 bytes with the index in %t0 to %x<i>.
static void entry_4(const struct ptx_part *part, uint32_t i)
{
    PTX_FILL(part->p,
             "    mov.u64 %piece, book_$0;\n"
             "    mad.wide.u32 %piece, %t0, 4, %piece;\n"
             "    ld.global.nc.u32 %x$1, [%piece];\n",
             part->node, i);
}

// Completes the seven signs in %t1 to eight: the eighth makes the number of signs even.
static void signs_of_seven(struct ptx *p)
{
    PTX_LINES(p, "    popc.b32 %t0, %t1;\n"
                 "    and.b32 %t0, %t0, 1;\n"
                 "    shl.b32 %t0, %t0, 7;\n"
                 "    or.b32 %t1, %t1, %t0;\n");
}

// Puts 8 weights: the magnitudes in %x0 and %x1 times %d, with the signs in the low 8 bits of %t1.
static void put_grid_8(const struct ptx_part *part, uint32_t first)
{
    for (uint32_t i = 0; i < 8; i++) {
        PTX_FILL(part->p,
                 "    bfe.u32 %t0, %x$0, $1, 8;\n"
                 "    cvt.rn.f32.u32 %v$2, %t0;\n"
                 "    mul.rn.f32 %v$2, %d, %v$2;\n"
                 "    shl.b32 %t0, %t1, $3;\n"
                 "    and.b32 %t0, %t0, 0x80000000;\n"
                 "    xor.b32 %v$2, %v$2, %t0;\n",
                 i / 4, i % 4 * 8, i % 4, 31 - i);
        if (i % 4 == 3)
            part->put(part, first + i - 3);
    }
}

// Sets %d = %d1 * (0.5 + %t0) * factor.
static void scale_half_up(struct ptx *p, float factor)
{
    PTX_FILL(p,
             "    cvt.rn.f32.u32 %d, %t0;\n"
             "    add.rn.f32 %d, %d, 0f3F000000;\n"
             "    mul.rn.f32 %d, %d1, %d;\n"
             "    mul.rn.f32 %d, %d, 0f$x0;\n",
             ptx_float_bits(factor));
}

// Sets %d = %d1 * (2 * %t0 + 1).
static void scale_odd(struct ptx *p)
{
    PTX_LINES(p, "    shl.b32 %t0, %t0, 1;\n"
                 "    add.u32 %t0, %t0, 1;\n"
                 "    cvt.rn.f32.u32 %d, %t0;\n"
                 "    mul.rn.f32 %d, %d1, %d;\n");
}

static void half_piece(const struct ptx_part *part)
{
    ptx_type_half_piece(part);
    PTX_LINES(part->p, "    mov.f32 %d1, %d;\n");
}

// Sets %at to the lane's address in the piece of `size` bytes, plus %part * step.
static void piece_of_part(const struct ptx_part *part, uint32_t size, uint32_t step)
{
    PTX_FILL(part->p,
             "    mad.wide.u32 %at, %lane, $0, %unit;\n"
             "    mad.wide.u32 %at, %part, $1, %at;\n"
             "    add.u64 %at, %at, $2;\n",
             size, step, tile_piece(part->type, size));
}

// ---- IQ2, IQ3

// A part has eight bytes: four indices, then the word of signs and scale.
static void part_iq2_xxs(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    half_piece(part);
    ptx_type_array(p, 0, 8);
    PTX_LINES(p, "    ld.global.nc.v2.u32 {%q0, %q1}, [%at];\n"
                 "    shr.u32 %t0, %q1, 28;\n");
    scale_half_up(p, 0.25f);
    for (uint32_t k = 0; k < 4; k++) {
        PTX_FILL(p, "    bfe.u32 %t0, %q0, $0, 8;\n", 8 * k);
        entry_8(part);
        PTX_FILL(p, "    bfe.u32 %t1, %q1, $0, 7;\n", 7 * k);
        signs_of_seven(p);
        put_grid_8(part, 8 * k);
    }
}

static void part_iq2_xs(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    half_piece(part);
    piece_of_part(part, 8, 1);
    PTX_LINES(p, "    ld.global.nc.u8 %t2, [%at];\n");
    ptx_type_array(p, 0, 8);
    PTX_LINES(p, "    ld.global.nc.v2.u32 {%q0, %q1}, [%at];\n");
    for (uint32_t k = 0; k < 4; k++) {
        if (k % 2 == 0) {
            PTX_FILL(p, "    bfe.u32 %t0, %t2, $0, 4;\n", 2 * k);
            scale_half_up(p, 0.25f);
        }
        PTX_FILL(p, "    bfe.u32 %t0, %q$0, $1, 9;\n", k / 2, k % 2 * 16);
        entry_8(part);
        PTX_FILL(p, "    bfe.u32 %t1, %q$0, $1, 7;\n", k / 2, k % 2 * 16 + 9);
        signs_of_seven(p);
        put_grid_8(part, 8 * k);
    }
}

// Indices are in chunks 0 and 1, signs in 2 and 3, qh and scales in chunk 4.
static void part_iq2_s(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    half_piece(part);
    ptx_type_array(p, 0, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %q0, [%at];\n"
                 "    ld.global.nc.u32 %q1, [%at+1024];\n"
                 "    cvt.u64.u32 %at, %part;\n"
                 "    add.u64 %at, %at, %chunk;\n"
                 "    ld.global.nc.u8 %q2, [%at+2048];\n"
                 "    ld.global.nc.u8 %t2, [%at+2056];\n");
    for (uint32_t k = 0; k < 4; k++) {
        if (k % 2 == 0) {
            PTX_FILL(p, "    bfe.u32 %t0, %t2, $0, 4;\n", 2 * k);
            scale_half_up(p, 0.25f);
        }
        PTX_FILL(p,
                 "    bfe.u32 %t0, %q0, $0, 8;\n"
                 "    bfe.u32 %t1, %q2, $1, 2;\n"
                 "    mad.lo.u32 %t0, %t1, 256, %t0;\n",
                 8 * k, 2 * k);
        entry_8(part);
        PTX_FILL(p, "    shr.u32 %t1, %q1, $0;\n", 8 * k);
        put_grid_8(part, 8 * k);
    }
}

// Indices are in chunks 0 to 3, the words of signs and scales in 4 and 5.
static void part_iq3_xxs(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    half_piece(part);
    ptx_type_array(p, 4, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %q2, [%at];\n");
    ptx_type_array(p, 0, 8);
    PTX_LINES(p, "    ld.global.nc.v2.u32 {%q0, %q1}, [%at];\n"
                 "    shr.u32 %t0, %q2, 28;\n");
    scale_half_up(p, 0.5f);
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t i = 0; i < 2; i++) {
            PTX_FILL(p, "    bfe.u32 %t0, %q$0, $1, 8;\n", k / 2, k % 2 * 16 + 8 * i);
            entry_4(part, i);
        }
        PTX_FILL(p, "    bfe.u32 %t1, %q2, $0, 7;\n", 7 * k);
        signs_of_seven(p);
        put_grid_8(part, 8 * k);
    }
}

// Indices are in chunks 0 to 3, signs in 4 and 5, qh in the piece of 8 bytes, scales in that of 4.
static void part_iq3_s(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    half_piece(part);
    piece_of_part(part, 8, 1);
    PTX_FILL(p,
             "    ld.global.nc.u8 %q3, [%at];\n"
             "    shr.u32 %t0, %part, 1;\n"
             "    mad.wide.u32 %at, %lane, 4, %unit;\n"
             "    mad.wide.u32 %at, %t0, 1, %at;\n"
             "    ld.global.nc.u8 %t1, [%at+$0];\n"
             "    and.b32 %t0, %part, 1;\n"
             "    shl.b32 %t0, %t0, 2;\n"
             "    bfe.u32 %t0, %t1, %t0, 4;\n",
             tile_piece(part->type, 4));
    scale_odd(p);
    ptx_type_array(p, 4, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %q2, [%at];\n");
    ptx_type_array(p, 0, 8);
    PTX_LINES(p, "    ld.global.nc.v2.u32 {%q0, %q1}, [%at];\n");
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t i = 0; i < 2; i++) {
            PTX_FILL(p,
                     "    bfe.u32 %t0, %q$0, $1, 8;\n"
                     "    bfe.u32 %t1, %q3, $2, 1;\n"
                     "    mad.lo.u32 %t0, %t1, 256, %t0;\n",
                     k / 2, k % 2 * 16 + 8 * i, 2 * k + i);
            entry_4(part, i);
        }
        PTX_FILL(p, "    shr.u32 %t1, %q2, $0;\n", 8 * k);
        put_grid_8(part, 8 * k);
    }
}

// ---- IQ1

// Puts 8 weights: %d * (the values in %x0 and %x1 + or - 1/8). The shift is negative if bit `down` of %t2 is set.
static void put_iq1_8(const struct ptx_part *part, uint32_t first, uint32_t down)
{
    PTX_FILL(part->p,
             "    and.b32 %t0, %t2, $0;\n"
             "    setp.ne.u32 %pred, %t0, 0;\n"
             "    selp.f32 %m, 0fBE000000, 0f3E000000, %pred;\n",
             1u << down);
    for (uint32_t i = 0; i < 8; i++) {
        PTX_FILL(part->p,
                 "    mov.b32 %s0, %x$0;\n"
                 "    bfe.s32 %s0, %s0, $1, 8;\n"
                 "    cvt.rn.f32.s32 %v$2, %s0;\n"
                 "    add.rn.f32 %v$2, %v$2, %m;\n"
                 "    mul.rn.f32 %v$2, %d, %v$2;\n",
                 i / 4, i % 4 * 8, i % 4);
        if (i % 4 == 3)
            part->put(part, first + i - 3);
    }
}

static void part_iq1_s(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    half_piece(part);
    ptx_type_array(p, 2, 2);
    PTX_LINES(p, "    ld.global.nc.u16 %t2, [%at];\n");
    ptx_type_array(p, 0, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %q0, [%at];\n"
                 "    bfe.u32 %t0, %t2, 12, 3;\n");
    scale_odd(p);
    for (uint32_t k = 0; k < 4; k++) {
        PTX_FILL(p,
                 "    bfe.u32 %t0, %q0, $0, 8;\n"
                 "    bfe.u32 %t1, %t2, $1, 3;\n"
                 "    mad.lo.u32 %t0, %t1, 256, %t0;\n",
                 8 * k, 3 * k);
        entry_8(part);
        put_iq1_8(part, 8 * k, 15);
    }
}

// The four halves of scales are in the piece of 8 bytes: d is assembled from the top bits of all four, and one of
// them holds the two scales of the part.
static void part_iq1_m(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    piece_of_part(part, 8, 0);
    PTX_LINES(p, "    ld.global.nc.v2.u32 {%x0, %x1}, [%at];\n"
                 "    bfe.u32 %t0, %x0, 12, 4;\n"
                 "    shr.u32 %t1, %x0, 28;\n"
                 "    mad.lo.u32 %t0, %t1, 16, %t0;\n"
                 "    bfe.u32 %t1, %x1, 12, 4;\n"
                 "    mad.lo.u32 %t0, %t1, 256, %t0;\n"
                 "    shr.u32 %t1, %x1, 28;\n"
                 "    mad.lo.u32 %t0, %t1, 4096, %t0;\n"
                 "    cvt.u16.u32 %h, %t0;\n"
                 "    cvt.f32.f16 %d1, %h;\n"
                 "    // the scales of the part: 6 bits at 16 * (part / 2 % 2) + 6 * (part % 2)\n"
                 "    setp.lt.u32 %pred, %part, 4;\n"
                 "    selp.b32 %t3, %x0, %x1, %pred;\n"
                 "    and.b32 %t0, %part, 2;\n"
                 "    shl.b32 %t0, %t0, 3;\n"
                 "    and.b32 %t1, %part, 1;\n"
                 "    mad.lo.u32 %t0, %t1, 6, %t0;\n"
                 "    shr.u32 %t3, %t3, %t0;\n");
    ptx_type_array(p, 2, 2);
    PTX_LINES(p, "    ld.global.nc.u16 %t2, [%at];\n");
    ptx_type_array(p, 0, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %q0, [%at];\n");
    for (uint32_t k = 0; k < 4; k++) {
        if (k % 2 == 0) {
            PTX_FILL(p, "    bfe.u32 %t0, %t3, $0, 3;\n", 3 * (k / 2));
            scale_odd(p);
        }
        PTX_FILL(p,
                 "    bfe.u32 %t0, %q0, $0, 8;\n"
                 "    bfe.u32 %t1, %t2, $1, 3;\n"
                 "    mad.lo.u32 %t0, %t1, 256, %t0;\n",
                 8 * k, 4 * k);
        entry_8(part);
        put_iq1_8(part, 8 * k, 4 * k + 3);
    }
}

// ---- sixteen values

// Puts 4 weights: the signed bytes of %x<word> times %d.
static void put_bytes(const struct ptx_part *part, uint32_t word, uint32_t first)
{
    PTX_FILL(part->p, "    mov.b32 %s0, %x$0;\n", word);
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(part->p,
                 "    bfe.s32 %s1, %s0, $0, 8;\n"
                 "    cvt.rn.f32.s32 %v$1, %s1;\n"
                 "    mul.rn.f32 %v$1, %d, %v$1;\n",
                 8 * i, i);
    part->put(part, first);
}

// Sets %d to half of the unsigned e4m3 number in %t1.
static void ue4m3_half(struct ptx *p)
{
    PTX_LINES(p, "    and.b32 %t0, %t1, 7;\n"
                 "    cvt.rn.f32.u32 %d, %t0;\n"
                 "    mul.rn.f32 %d, %d, 0f3A800000;\n"
                 "    // the fields of a normal number, 119 above its exponent\n"
                 "    and.b32 %t3, %t1, 127;\n"
                 "    shl.b32 %t0, %t3, 20;\n"
                 "    add.u32 %t0, %t0, 0x3B800000;\n"
                 "    mov.b32 %m, %t0;\n"
                 "    setp.lt.u32 %pred, %t3, 8;\n"
                 "    selp.f32 %d, %d, %m, %pred;\n"
                 "    setp.eq.u32 %pred, %t1, 127;\n"
                 "    selp.f32 %d, 0f00000000, %d, %pred;\n");
}

// A chunk has two runs of 16 weights, 8 bytes each; their scales are two bytes of chunk 8.
static void part_nvfp4(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_array(p, 8, 2);
    PTX_LINES(p, "    ld.global.nc.u16 %t2, [%at];\n");
    ptx_type_chunk(p, 1, 0);
    PTX_LINES(p, "    ld.global.nc.v4.u32 {%q0, %q1, %q2, %q3}, [%at];\n");
    for (uint32_t i = 0; i < 4; i++) {
        if (i % 2 == 0) {
            PTX_FILL(p, "    bfe.u32 %t1, %t2, $0, 8;\n", 4 * i);
            ue4m3_half(p);
        }
        ptx_nibble_values(p, fp4_values, "%q", i, "%x", 0, 1);
        put_bytes(part, 0, i / 2 * 16 + i % 2 * 4);
        put_bytes(part, 1, i / 2 * 16 + i % 2 * 4 + 8);
    }
}

// ---- three values

// Parts 0 to 4 are digit `part` of bytes 0 to 31. Parts 5 and 6 are digits 2 (part - 5) and the next one of bytes 32 to 47.
// Part 7 is digit 4 of those, then digits 0 to 3 of qh.
void ptx_type_digits(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    piece_of_part(part, 4, 0);
    PTX_LINES(p, "    ld.global.nc.u32 %t2, [%at];\n"
                 "    ld.global.nc.v4.u32 {%q0, %q1, %q2, %q3}, [%chunk];\n"
                 "    ld.global.nc.v4.u32 {%q4, %q5, %q6, %q7}, [%chunk+512];\n"
                 "    ld.global.nc.v4.u32 {%x0, %x1, %x2, %x3}, [%chunk+1024];\n"
                 "    setp.lt.u32 %pred, %part, 5;\n");
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p, "    selp.b32 %q$0, %q$0, %x$1, %pred;\n", i, i % 4);
    PTX_LINES(p, "    // powers of 3 for the first 16 weights and for the others\n"
                 "    prmt.b32 %x0, 0x1b090301, 0x51090151, %part;\n"
                 "    and.b32 %x0, %x0, 255;\n"
                 "    prmt.b32 %x4, 0x1b090301, 0x001b0351, %part;\n"
                 "    and.b32 %x4, %x4, 255;\n"
                 "    setp.eq.u32 %pred, %part, 7;\n");
    for (uint32_t i = 0, power = 1; i < 4; i++, power *= 3) {
        PTX_FILL(p, "    selp.b32 %q$0, %t2, %q$0, %pred;\n", 4 + i);
        if (i < 3)
            PTX_FILL(p,
                     "    mov.u32 %x$0, %x0;\n"
                     "    selp.b32 %x$1, $2, %x4, %pred;\n",
                     1 + i, 5 + i, 3 * power);
    }
    PTX_LINES(p, "    selp.b32 %x4, 1, %x4, %pred;\n");
}

static void part_tq1_0(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    half_piece(part);
    ptx_type_digits(part);
    for (uint32_t i = 0; i < 8; i++) {
        for (uint32_t b = 0; b < 4; b++)
            PTX_FILL(p,
                     "    bfe.u32 %t0, %q$0, $1, 8;\n"
                     "    mul.lo.u32 %t0, %t0, %x$0;\n"
                     "    and.b32 %t0, %t0, 255;\n"
                     "    mul.lo.u32 %t0, %t0, 3;\n"
                     "    shr.u32 %t0, %t0, 8;\n"
                     "    cvt.rn.f32.u32 %v$2, %t0;\n"
                     "    sub.rn.f32 %v$2, %v$2, 0f3F800000;\n"
                     "    mul.rn.f32 %v$2, %v$2, %d;\n",
                     i, 8 * b, b);
        part->put(part, 4 * i);
    }
}

// Two chunks hold half a block; the part uses bit pair part % 4.
static void part_tq2_0(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    half_piece(part);
    PTX_LINES(p, "    shr.u32 %t0, %part, 2;\n"
                 "    mad.wide.u32 %at, %t0, 1024, %chunk;\n"
                 "    ld.global.nc.v4.u32 {%q0, %q1, %q2, %q3}, [%at];\n"
                 "    ld.global.nc.v4.u32 {%q4, %q5, %q6, %q7}, [%at+512];\n"
                 "    and.b32 %t1, %part, 3;\n"
                 "    shl.b32 %t1, %t1, 1;\n");
    for (uint32_t i = 0; i < 8; i++) {
        PTX_FILL(p,
                 "    shr.u32 %q$0, %q$0, %t1;\n"
                 "    and.b32 %q$0, %q$0, 0x03030303;\n",
                 i);
        for (uint32_t b = 0; b < 4; b++)
            PTX_FILL(p,
                     "    bfe.u32 %t0, %q$1, $2, 8;\n"
                     "    cvt.rn.f32.u32 %v$0, %t0;\n"
                     "    sub.rn.f32 %v$0, %v$0, 0f3F800000;\n"
                     "    mul.rn.f32 %v$0, %v$0, %d;\n",
                     b, i, 8 * b);
        part->put(part, 4 * i);
    }
}

void ptx_type_grid_part(const struct ptx_part *part)
{
    switch (part->type) {
    case DT_IQ2_XXS:
        part_iq2_xxs(part);
        break;
    case DT_IQ2_XS:
        part_iq2_xs(part);
        break;
    case DT_IQ2_S:
        part_iq2_s(part);
        break;
    case DT_IQ3_XXS:
        part_iq3_xxs(part);
        break;
    case DT_IQ3_S:
        part_iq3_s(part);
        break;
    case DT_IQ1_S:
        part_iq1_s(part);
        break;
    case DT_IQ1_M:
        part_iq1_m(part);
        break;
    case DT_NVFP4:
        part_nvfp4(part);
        break;
    case DT_TQ1_0:
        part_tq1_0(part);
        break;
    default:
        part_tq2_0(part);
        break;
    }
}
