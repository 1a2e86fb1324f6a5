// Unpacks weights to bytes, for the types in which a weight is a small integer times a scale (the table `kinds`). It is
// used where such weights are converted to floats (emit_type.c), in the 8-bit matmul by matrix instructions
// (emit_matmul_mma.c), and in the 8-bit products of three rows or more (emit_dot_loop.c; emit_dot.c unpacks types in its
// own way for one or two rows). A thread unpacks 32 weights at a time, to eight registers of four bytes. Types with codebooks
// are in emit_grid.c, others of few bits in emit_bits.c. See emit_bytes.h for
// the interface, gguf/dtype.c and gguf/dtype_iq.c for the file's layouts, and weight_tile.def for the layout of a unit.
#include "kernels/ptx/emit_bytes.h"

#include "gguf/dtype_iq.h"
#include "kernels/ptx/emit_bits.h"
#include "kernels/ptx/emit_grid.h"
#include "kernels/ptx/emit_nibble.h"

static const struct ptx_bytes kinds[DT_COUNT] = {
    [DT_Q4_0] = {.scales = PTX_SCALE_FLOAT, .less = 8},
    [DT_Q4_1] = {.scales = PTX_SCALE_FLOAT, .min = true},
    [DT_Q5_0] = {.scales = PTX_SCALE_FLOAT, .less = 16},
    [DT_Q5_1] = {.scales = PTX_SCALE_FLOAT, .min = true},
    [DT_Q8_0] = {.scales = PTX_SCALE_FLOAT, .is_signed = true},
    [DT_IQ4_NL] = {.scales = PTX_SCALE_FLOAT, .is_signed = true},
    [DT_MXFP4] = {.scales = PTX_SCALE_FLOAT, .less = PTX_FP4_LESS},
    [DT_Q2_K] = {.scales = PTX_SCALE_16, .min = true},
    [DT_Q3_K] = {.scales = PTX_SCALE_16, .less = 4},
    [DT_Q4_K] = {.scales = PTX_SCALE_32, .min = true},
    [DT_Q5_K] = {.scales = PTX_SCALE_32, .min = true},
    [DT_Q6_K] = {.scales = PTX_SCALE_16, .less = 32},
    [DT_IQ4_XS] = {.scales = PTX_SCALE_32, .is_signed = true},
    [DT_IQ2_XXS] = {.scales = PTX_SCALE_32, .is_signed = true},
    [DT_IQ2_XS] = {.scales = PTX_SCALE_16, .is_signed = true},
    [DT_IQ2_S] = {.scales = PTX_SCALE_16, .is_signed = true},
    [DT_IQ3_XXS] = {.scales = PTX_SCALE_32, .is_signed = true},
    [DT_IQ3_S] = {.scales = PTX_SCALE_32, .is_signed = true},
    [DT_IQ1_S] = {.scales = PTX_SCALE_32, .is_signed = true},
    [DT_IQ1_M] = {.scales = PTX_SCALE_16, .is_signed = true},
    [DT_TQ1_0] = {.scales = PTX_SCALE_32, .is_signed = true},
    [DT_TQ2_0] = {.scales = PTX_SCALE_32, .is_signed = true},
    [DT_Q1_0] = {.scales = PTX_SCALE_FLOAT, .less = 1},
    [DT_Q2_0] = {.scales = PTX_SCALE_FLOAT, .less = 1},
    [DT_NVFP4] = {.scales = PTX_SCALE_FLOAT_16, .less = PTX_FP4_LESS},
};

const struct ptx_bytes *ptx_bytes_of(enum dtype type)
{
    return type < DT_COUNT && kinds[type].scales ? &kinds[type] : NULL;
}

// ---- loads

void ptx_type_chunk(struct ptx *p, uint32_t times, uint32_t first)
{
    PTX_FILL(p, "    mad.wide.u32 %at, %part, $0, %chunk;\n", 512 * times);
    if (first)
        PTX_FILL(p, "    add.u64 %at, %at, $0;\n", 512 * first);
}

// Loads chunk `chunk` after %at to %q<word> and the three registers after it.
static void load_chunk(struct ptx *p, uint32_t word, uint32_t chunk)
{
    PTX_FILL(p, "    ld.global.nc.v4.u32 {%q$0, %q$1, %q$2, %q$3}, [%at+$4];\n", word, word + 1, word + 2, word + 3,
             512 * chunk);
}

// Sets %at to %chunk plus the offset of byte %part * n of the array that starts with chunk `first`; n is a power of two
// below 16. The array of one or two bytes for each of 8 parts is within one chunk.
void ptx_type_array(struct ptx *p, uint32_t first, uint32_t n)
{
    if (n <= 2)
        PTX_FILL(p, "    mad.wide.u32 %at, %part, $0, %chunk;\n", n);
    else
        PTX_FILL(p,
                 "    mul.lo.u32 %t0, %part, $0;\n"
                 "    shr.u32 %t1, %t0, 4;\n"
                 "    and.b32 %t0, %t0, 15;\n"
                 "    mad.lo.u32 %t0, %t1, 512, %t0;\n"
                 "    cvt.u64.u32 %at, %t0;\n"
                 "    add.u64 %at, %at, %chunk;\n",
                 n);
    if (first)
        PTX_FILL(p, "    add.u64 %at, %at, $0;\n", 512 * first);
}

// Sets %d from the half at byte part * 2 of the array that starts with chunk `first`.
static void half_of_part(struct ptx *p, uint32_t first)
{
    ptx_type_array(p, first, 2);
    PTX_LINES(p, "    ld.global.nc.b16 %h, [%at];\n"
                 "    cvt.f32.f16 %d, %h;\n");
}

// Sets %d and %m from the two halves of %t2.
static void two_halves(struct ptx *p)
{
    PTX_LINES(p, "    mov.b32 {%h, %h1}, %t2;\n"
                 "    cvt.f32.f16 %d, %h;\n"
                 "    cvt.f32.f16 %m, %h1;\n");
}

// Sets %d and %m from the word at byte part * 4 of the array that starts with chunk `first`.
static void halves_of_part(struct ptx *p, uint32_t first)
{
    ptx_type_array(p, first, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %t2, [%at];\n");
    two_halves(p);
}

// Sets %piece to the lane's address in the piece of `size` bytes.
void ptx_type_piece(const struct ptx_part *part, uint32_t size)
{
    PTX_FILL(part->p,
             "    mad.wide.u32 %piece, %lane, $0, %unit;\n"
             "    add.u64 %piece, %piece, $1;\n",
             size, tile_piece(part->type, size));
}

void ptx_type_half_piece(const struct ptx_part *part)
{
    ptx_type_piece(part, 2);
    PTX_LINES(part->p, "    ld.global.nc.b16 %h, [%piece];\n"
                       "    cvt.f32.f16 %d, %h;\n");
}

// Shifts %q0 to %q7 right by %t1 bits, and masks them with `mask`.
static void shift_words(struct ptx *p, uint32_t mask)
{
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    shr.u32 %q$0, %q$0, %t1;\n"
                 "    and.b32 %q$0, %q$0, 0x$x1;\n",
                 i, mask);
}

// Moves bit %part of each byte of %x0 to %x7 to bit `at` of the bytes of %q0 to %q7.
static void high_bits(struct ptx *p, uint32_t at)
{
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    shr.u32 %t0, %x$0, %part;\n"
                 "    and.b32 %t0, %t0, 0x01010101;\n"
                 "    shl.b32 %t0, %t0, $1;\n"
                 "    or.b32 %q$0, %q$0, %t0;\n",
                 i, at);
}

// ---- blocks of 32

static void small_scales(const struct ptx_part *part)
{
    switch (part->type) {
    case DT_Q4_1:
        halves_of_part(part->p, 8);
        break;
    case DT_Q5_1:
        halves_of_part(part->p, 10);
        break;
    case DT_Q5_0:
        half_of_part(part->p, 10);
        break;
    case DT_Q8_0:
        half_of_part(part->p, 16);
        break;
    case DT_MXFP4:
        ptx_type_piece(part, 8);
        PTX_LINES(part->p, "    mad.wide.u32 %piece, %part, 1, %piece;\n"
                           "    ld.global.nc.u8 %t1, [%piece];\n");
        ptx_e8m0_half(part->p, "%d", "%t1", "%t0", "%pred");
        break;
    default:
        half_of_part(part->p, 8);
        break;
    }
}

// Adds the fifth bits: bits 4 i to 4 i + 3 of qh (%t2) go above the nibbles of word i. The multiplication moves bit b
// to bit 8 * b + 4.
static void fifth_bits(struct ptx *p)
{
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    bfe.u32 %t0, %t2, $1, 4;\n"
                 "    mul.lo.u32 %t0, %t0, 0x02040810;\n"
                 "    and.b32 %t0, %t0, 0x10101010;\n"
                 "    or.b32 %q$0, %q$0, %t0;\n",
                 i, 4 * i);
}

// The types with blocks of 32. The qs of a part are one chunk, low nibbles first; its qh is a word of the array that
// starts with chunk 8.
static void bytes_small(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    enum dtype t = part->type;
    small_scales(part);
    ptx_type_chunk(p, t == DT_Q8_0 ? 2 : 1, 0);
    load_chunk(p, 0, 0);
    if (t == DT_Q8_0) {
        load_chunk(p, 4, 1);
        return;
    }
    for (uint32_t i = 0; i < 4; i++) {
        if (t == DT_MXFP4)
            ptx_fp4_bytes(p, "%q", i, "%q", i, i + 4);
        else if (t == DT_IQ4_NL)
            ptx_nibble_values(p, iq4_values, "%q", i, "%q", i, i + 4);
        else
            PTX_FILL(p,
                     "    shr.u32 %q$1, %q$0, 4;\n"
                     "    and.b32 %q$1, %q$1, 0x0f0f0f0f;\n"
                     "    and.b32 %q$0, %q$0, 0x0f0f0f0f;\n",
                     i, i + 4);
    }
    if (t == DT_Q5_0 || t == DT_Q5_1) {
        ptx_type_array(p, 8, 4);
        PTX_LINES(p, "    ld.global.nc.u32 %t2, [%at];\n");
        fifth_bits(p);
    }
}

// ---- K-quants, and IQ4_XS

// Unpacks the two bits of each weight of the part to the low bits of the bytes of %q0 to %q7. Q2_K and Q3_K store
// them in two chunks for each half of the block, from chunk `first` on.
static void two_bits(struct ptx *p, uint32_t first)
{
    PTX_LINES(p, "    shr.u32 %t0, %part, 2;\n"
                 "    mad.wide.u32 %at, %t0, 1024, %chunk;\n");
    load_chunk(p, 0, first);
    load_chunk(p, 4, first + 1);
    PTX_LINES(p, "    and.b32 %t1, %part, 3;\n"
                 "    shl.b32 %t1, %t1, 1;\n");
    shift_words(p, 0x03030303);
}

static void bytes_q2_k(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_piece(part, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %t2, [%piece];\n");
    two_halves(p);
    ptx_type_array(p, 0, 2);
    PTX_LINES(p, "    ld.global.nc.u16 %t2, [%at];\n"
                 "    and.b32 %s0, %t2, 15;\n"
                 "    bfe.u32 %n0, %t2, 4, 4;\n"
                 "    bfe.u32 %s1, %t2, 8, 4;\n"
                 "    bfe.u32 %n1, %t2, 12, 4;\n");
    two_bits(p, 1);
}

// Sets %t2 to the six-bit scales of the part's two runs of 16, one byte each.
static void q3_k_scales(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_piece(part, 8);
    PTX_LINES(p, "    and.b32 %t0, %part, 3;\n"
                 "    mad.wide.u32 %piece, %t0, 2, %piece;\n"
                 "    ld.global.nc.u16 %t2, [%piece];\n"
                 "    shr.u32 %t0, %part, 2;\n"
                 "    shl.b32 %t0, %t0, 2;\n"
                 "    shr.u32 %t2, %t2, %t0;\n"
                 "    and.b32 %t2, %t2, 0x0f0f;\n");
    ptx_type_piece(part, 4);
    PTX_LINES(p, "    and.b32 %t0, %part, 1;\n"
                 "    mad.wide.u32 %piece, %t0, 2, %piece;\n"
                 "    ld.global.nc.u16 %t1, [%piece];\n"
                 "    shr.u32 %t0, %part, 1;\n"
                 "    shl.b32 %t0, %t0, 1;\n"
                 "    shr.u32 %t1, %t1, %t0;\n"
                 "    and.b32 %t1, %t1, 0x0303;\n"
                 "    shl.b32 %t1, %t1, 4;\n"
                 "    or.b32 %t2, %t2, %t1;\n");
}

static void bytes_q3_k(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_half_piece(part);
    q3_k_scales(part);
    PTX_LINES(p, "    and.b32 %s0, %t2, 255;\n"
                 "    sub.u32 %s0, %s0, 32;\n"
                 "    shr.u32 %s1, %t2, 8;\n"
                 "    sub.u32 %s1, %s1, 32;\n");
    two_bits(p, 2);
    PTX_LINES(p, "    ld.global.nc.v4.u32 {%x0, %x1, %x2, %x3}, [%chunk];\n"
                 "    ld.global.nc.v4.u32 {%x4, %x5, %x6, %x7}, [%chunk+512];\n");
    high_bits(p, 2);
}

// Sets the scale and the minimum of the part's run of 32 in Q4_K and Q5_K. Their head is chunk 0.
static void k4_scales(struct ptx *p)
{
    PTX_LINES(p, "    ld.global.nc.v4.u32 {%t2, %x0, %x1, %x2}, [%chunk];\n");
    two_halves(p);
    PTX_LINES(p, "    setp.lt.u32 %pred, %part, 4;\n"
                 "    and.b32 %t0, %part, 3;\n"
                 "    shl.b32 %t0, %t0, 3;\n"
                 "    shr.u32 %x0, %x0, %t0;\n"
                 "    shr.u32 %x1, %x1, %t0;\n"
                 "    shr.u32 %x2, %x2, %t0;\n"
                 "    // of the last four, bits 4 and 5 lie above the first four\n"
                 "    and.b32 %x3, %x2, 15;\n"
                 "    shr.u32 %x4, %x0, 2;\n"
                 "    and.b32 %x4, %x4, 48;\n"
                 "    or.b32 %x3, %x3, %x4;\n"
                 "    and.b32 %x0, %x0, 63;\n"
                 "    selp.b32 %s0, %x0, %x3, %pred;\n"
                 "    bfe.u32 %x3, %x2, 4, 4;\n"
                 "    shr.u32 %x4, %x1, 2;\n"
                 "    and.b32 %x4, %x4, 48;\n"
                 "    or.b32 %x3, %x3, %x4;\n"
                 "    and.b32 %x1, %x1, 63;\n"
                 "    selp.b32 %n0, %x1, %x3, %pred;\n");
}

// Unpacks the part's nibbles: two chunks hold two parts. They follow the head and, in Q5_K, qh (chunks 1 and 2).
static void bytes_k4(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    bool five = part->type == DT_Q5_K;
    k4_scales(p);
    PTX_LINES(p, "    shr.u32 %t0, %part, 1;\n"
                 "    mad.wide.u32 %at, %t0, 1024, %chunk;\n");
    load_chunk(p, 0, five ? 3 : 1);
    load_chunk(p, 4, five ? 4 : 2);
    PTX_LINES(p, "    and.b32 %t1, %part, 1;\n"
                 "    shl.b32 %t1, %t1, 2;\n");
    shift_words(p, 0x0f0f0f0f);
    if (!five)
        return;
    PTX_LINES(p, "    ld.global.nc.v4.u32 {%x0, %x1, %x2, %x3}, [%chunk+512];\n"
                 "    ld.global.nc.v4.u32 {%x4, %x5, %x6, %x7}, [%chunk+1024];\n");
    high_bits(p, 4);
}

// Unpacks Q6_K. With half h = part / 4 and quarter k = part % 4, ql is in chunk 4h + 2 (k % 2) and the next one, qh
// in chunk 8 + 2h and the next one.
static void bytes_q6_k(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_half_piece(part);
    ptx_type_array(p, 12, 2);
    PTX_LINES(p, "    ld.global.nc.s8 %s0, [%at];\n"
                 "    ld.global.nc.s8 %s1, [%at+1];\n"
                 "    shr.u32 %t2, %part, 2;\n"
                 "    mad.wide.u32 %at, %t2, 1024, %chunk;\n"
                 "    ld.global.nc.v4.u32 {%x0, %x1, %x2, %x3}, [%at+4096];\n"
                 "    ld.global.nc.v4.u32 {%x4, %x5, %x6, %x7}, [%at+4608];\n"
                 "    and.b32 %t0, %part, 1;\n"
                 "    shl.b32 %t1, %t2, 1;\n"
                 "    add.u32 %t0, %t0, %t1;\n"
                 "    mad.wide.u32 %at, %t0, 1024, %chunk;\n");
    load_chunk(p, 0, 0);
    load_chunk(p, 4, 1);
    PTX_LINES(p, "    and.b32 %t1, %part, 2;\n"
                 "    shl.b32 %t1, %t1, 1;\n");
    shift_words(p, 0x0f0f0f0f);
    PTX_LINES(p, "    and.b32 %t1, %part, 3;\n"
                 "    shl.b32 %t1, %t1, 1;\n");
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    shr.u32 %t0, %x$0, %t1;\n"
                 "    and.b32 %t0, %t0, 0x03030303;\n"
                 "    shl.b32 %t0, %t0, 4;\n"
                 "    or.b32 %q$0, %q$0, %t0;\n",
                 i);
}

// Unpacks IQ4_XS. Its head, d | scales_h | scales_l, is the piece of 8 bytes.
static void bytes_iq4_xs(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_piece(part, 8);
    PTX_LINES(p, "    ld.global.nc.v2.u32 {%x0, %x1}, [%piece];\n"
                 "    mov.b32 {%h, %h1}, %x0;\n"
                 "    cvt.f32.f16 %d, %h;\n"
                 "    shl.b32 %t0, %part, 2;\n"
                 "    bfe.u32 %t1, %x1, %t0, 4;\n"
                 "    shl.b32 %t0, %part, 1;\n"
                 "    add.u32 %t0, %t0, 16;\n"
                 "    bfe.u32 %t0, %x0, %t0, 2;\n"
                 "    mad.lo.u32 %s0, %t0, 16, %t1;\n"
                 "    sub.u32 %s0, %s0, 32;\n");
    ptx_type_chunk(p, 1, 0);
    load_chunk(p, 0, 0);
    for (uint32_t i = 0; i < 4; i++)
        ptx_nibble_values(p, iq4_values, "%q", i, "%q", i, i + 4);
}

void ptx_type_bytes(const struct ptx_part *part)
{
    switch (part->type) {
    case DT_IQ2_XXS:
    case DT_IQ2_XS:
    case DT_IQ2_S:
    case DT_IQ3_XXS:
    case DT_IQ3_S:
    case DT_IQ1_S:
    case DT_IQ1_M:
        ptx_grid_bytes(part);
        break;
    case DT_TQ1_0:
    case DT_TQ2_0:
    case DT_Q1_0:
    case DT_Q2_0:
    case DT_NVFP4:
        ptx_bits_bytes(part);
        break;
    case DT_Q2_K:
        bytes_q2_k(part);
        break;
    case DT_Q3_K:
        bytes_q3_k(part);
        break;
    case DT_Q4_K:
    case DT_Q5_K:
        bytes_k4(part);
        break;
    case DT_Q6_K:
        bytes_q6_k(part);
        break;
    case DT_IQ4_XS:
        bytes_iq4_xs(part);
        break;
    default:
        bytes_small(part);
        break;
    }
}
