// Plain floats, the plain blocks and the K-quants: see emit_type.h; gguf/dtype.c has the layout and the formula of
// each.
//
// The places of bytes are those of a unit, weight_tile.def: most formulas below have a chunk's number for the qs of a part.
#include "kernels/ptx/emit_type.h"

// ---- loads

void ptx_type_chunk(struct ptx *p, uint32_t times, uint32_t first)
{
    PTX_FILL(p,
             "    mad.wide.u32 %at, %part, $0, %chunk;\n"
             "    add.u64 %at, %at, $1;\n",
             512 * times, 512 * first);
}

// %q<word> and the three after it, from chunk `chunk` behind %at.
static void load_chunk(struct ptx *p, uint32_t word, uint32_t chunk)
{
    PTX_FILL(p, "    ld.global.nc.v4.u32 {%q$0, %q$1, %q$2, %q$3}, [%at+$4];\n", word, word + 1, word + 2, word + 3,
             512 * chunk);
}

// %at = %chunk + the bytes [%part * n, ..) of the array that begins with chunk `first`, n a power of two below 16.
static void array_at(struct ptx *p, uint32_t first, uint32_t n)
{
    PTX_FILL(p,
             "    mul.lo.u32 %t0, %part, $0;\n"
             "    shr.u32 %t1, %t0, 4;\n"
             "    and.b32 %t0, %t0, 15;\n"
             "    mad.lo.u32 %t0, %t1, 512, %t0;\n"
             "    cvt.u64.u32 %at, %t0;\n"
             "    add.u64 %at, %at, %chunk;\n"
             "    add.u64 %at, %at, $1;\n",
             n, 512 * first);
}

// %d from the half at part * 2 of the array from chunk `first` on.
static void half_of_part(struct ptx *p, uint32_t first)
{
    array_at(p, first, 2);
    PTX_LINES(p, "    ld.global.nc.b16 %h, [%at];\n"
                 "    cvt.f32.f16 %d, %h;\n");
}

// %d and %m from the two halves of %t2.
static void two_halves(struct ptx *p)
{
    PTX_LINES(p, "    mov.b32 {%h, %h1}, %t2;\n"
                 "    cvt.f32.f16 %d, %h;\n"
                 "    cvt.f32.f16 %m, %h1;\n");
}

// %d and %m from the word at part * 4 of the array from chunk `first` on.
static void halves_of_part(struct ptx *p, uint32_t first)
{
    array_at(p, first, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %t2, [%at];\n");
    two_halves(p);
}

// %piece = the lane's place in the piece of `size` bytes.
static void piece_at(const struct ptx_part *part, uint32_t size)
{
    PTX_FILL(part->p,
             "    mad.wide.u32 %piece, %lane, $0, %unit;\n"
             "    add.u64 %piece, %piece, $1;\n",
             size, tile_piece(part->type, size));
}

void ptx_type_half_piece(const struct ptx_part *part)
{
    piece_at(part, 2);
    PTX_LINES(part->p, "    ld.global.nc.b16 %h, [%piece];\n"
                       "    cvt.f32.f16 %d, %h;\n");
}

// ---- values

void ptx_type_fields(struct ptx *p, uint32_t word, uint32_t at, uint32_t len)
{
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    bfe.u32 %t0, %q$0, $1, $2;\n"
                 "    cvt.rn.f32.u32 %v$3, %t0;\n",
                 word, at + 8 * i, len, i);
}

// %v = (%v - less) * %d
static void less_times_d(struct ptx *p, float less)
{
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    sub.rn.f32 %v$0, %v$0, 0f$x1;\n"
                 "    mul.rn.f32 %v$0, %v$0, %d;\n",
                 i, ptx_float_bits(less));
}

// %v = %v * %d + %m
static void times_d_plus_m(struct ptx *p)
{
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    mul.rn.f32 %v$0, %v$0, %d;\n"
                 "    add.rn.f32 %v$0, %v$0, %m;\n",
                 i);
}

// ---- plain floats: a unit is a part

static void part_f32(const struct ptx_part *part)
{
    for (uint32_t i = 0; i < 8; i++) {
        PTX_FILL(part->p, "    ld.global.nc.v4.f32 {%v0, %v1, %v2, %v3}, [%chunk+$0];\n", 512 * i);
        part->put(part, 4 * i);
    }
}

static void part_f16(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p, "    ld.global.nc.v4.u32 {%q0, %q1, %q2, %q3}, [%chunk+$0];\n", 512 * i);
        for (uint32_t half = 0; half < 2; half++) {
            for (uint32_t w = 0; w < 2; w++)
                PTX_FILL(p,
                         "    mov.b32 {%h, %h1}, %q$0;\n"
                         "    cvt.f32.f16 %v$1, %h;\n"
                         "    cvt.f32.f16 %v$2, %h1;\n",
                         2 * half + w, 2 * w, 2 * w + 1);
            part->put(part, 8 * i + 4 * half);
        }
    }
}

static void part_bf16(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p, "    ld.global.nc.v4.u32 {%q0, %q1, %q2, %q3}, [%chunk+$0];\n", 512 * i);
        for (uint32_t half = 0; half < 2; half++) {
            for (uint32_t w = 0; w < 2; w++)
                PTX_FILL(p,
                         "    shl.b32 %t0, %q$0, 16;\n"
                         "    mov.b32 %v$1, %t0;\n"
                         "    and.b32 %t0, %q$0, 0xffff0000;\n"
                         "    mov.b32 %v$2, %t0;\n",
                         2 * half + w, 2 * w, 2 * w + 1);
            part->put(part, 8 * i + 4 * half);
        }
    }
}

// ---- blocks of 32: qs of a part are a chunk, low nibbles first

static void part_q4_0(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    half_of_part(p, 8);
    ptx_type_chunk(p, 1, 0);
    load_chunk(p, 0, 0);
    for (uint32_t i = 0; i < 8; i++) {
        ptx_type_fields(p, i % 4, i / 4 * 4, 4);
        less_times_d(p, 8);
        part->put(part, 4 * i);
    }
}

static void part_q4_1(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    halves_of_part(p, 8);
    ptx_type_chunk(p, 1, 0);
    load_chunk(p, 0, 0);
    for (uint32_t i = 0; i < 8; i++) {
        ptx_type_fields(p, i % 4, i / 4 * 4, 4);
        times_d_plus_m(p);
        part->put(part, 4 * i);
    }
}

// %q4 = word i of the 32 weights of Q5_0 and Q5_1, a byte a weight: its nibbles, and above them four bits of qh, %t2.
// The product puts bit b of four at bit 8 * b + 4.
static void five_bits(struct ptx *p, uint32_t i)
{
    PTX_FILL(p,
             "    shr.u32 %q4, %q$0, $1;\n"
             "    and.b32 %q4, %q4, 0x0f0f0f0f;\n"
             "    bfe.u32 %t0, %t2, $2, 4;\n"
             "    mul.lo.u32 %t0, %t0, 0x02040810;\n"
             "    and.b32 %t0, %t0, 0x10101010;\n"
             "    or.b32 %q4, %q4, %t0;\n",
             i % 4, i / 4 * 4, 4 * i);
}

static void part_q5(const struct ptx_part *part, bool min)
{
    struct ptx *p = part->p;
    if (min)
        halves_of_part(p, 10);
    else
        half_of_part(p, 10);
    array_at(p, 8, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %t2, [%at];\n");
    ptx_type_chunk(p, 1, 0);
    load_chunk(p, 0, 0);
    for (uint32_t i = 0; i < 8; i++) {
        five_bits(p, i);
        ptx_type_fields(p, 4, 0, 8);
        if (min)
            times_d_plus_m(p);
        else
            less_times_d(p, 16);
        part->put(part, 4 * i);
    }
}

static void part_q5_0(const struct ptx_part *part)
{
    part_q5(part, false);
}

static void part_q5_1(const struct ptx_part *part)
{
    part_q5(part, true);
}

static void part_q8_0(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    half_of_part(p, 16);
    ptx_type_chunk(p, 2, 0);
    load_chunk(p, 0, 0);
    load_chunk(p, 4, 1);
    for (uint32_t i = 0; i < 8; i++) {
        for (uint32_t b = 0; b < 4; b++)
            PTX_FILL(p,
                     "    bfe.s32 %s0, %q$0, $1, 8;\n"
                     "    cvt.rn.f32.s32 %v$2, %s0;\n"
                     "    mul.rn.f32 %v$2, %v$2, %d;\n",
                     i, 8 * b, b);
        part->put(part, 4 * i);
    }
}

// Two blocks of 128: %t2 has the part's bits.
static void part_q1_0(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    piece_at(part, 4);
    PTX_LINES(p, "    shr.u32 %t0, %part, 2;\n"
                 "    mad.wide.u32 %piece, %t0, 2, %piece;\n"
                 "    ld.global.nc.b16 %h, [%piece];\n"
                 "    cvt.f32.f16 %d, %h;\n"
                 "    neg.f32 %m, %d;\n");
    array_at(p, 0, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %t2, [%at];\n");
    for (uint32_t i = 0; i < 8; i++) {
        for (uint32_t b = 0; b < 4; b++)
            PTX_FILL(p,
                     "    and.b32 %t0, %t2, $0;\n"
                     "    setp.ne.u32 %pred, %t0, 0;\n"
                     "    selp.f32 %v$1, %d, %m, %pred;\n",
                     1u << (4 * i + b), b);
        part->put(part, 4 * i);
    }
}

// Four blocks of 64; the four weights of a byte are neighbours.
static void part_q2_0(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    piece_at(part, 8);
    PTX_LINES(p, "    shr.u32 %t0, %part, 1;\n"
                 "    mad.wide.u32 %piece, %t0, 2, %piece;\n"
                 "    ld.global.nc.b16 %h, [%piece];\n"
                 "    cvt.f32.f16 %d, %h;\n");
    array_at(p, 0, 8);
    PTX_LINES(p, "    ld.global.nc.v2.u32 {%q0, %q1}, [%at];\n");
    for (uint32_t i = 0; i < 8; i++) {
        for (uint32_t b = 0; b < 4; b++)
            PTX_FILL(p,
                     "    bfe.u32 %t0, %q$0, $1, 2;\n"
                     "    cvt.rn.f32.u32 %v$2, %t0;\n",
                     i / 4, i % 4 * 8 + 2 * b, b);
        less_times_d(p, 1);
        part->put(part, 4 * i);
    }
}

// ---- K-quants

// The two bits of each weight of the part, from the low end of the bytes of %q0 to %q7: Q2_K and Q3_K have them in two
// chunks of each half, from chunk `first` on.
static void two_bits(struct ptx *p, uint32_t first)
{
    PTX_LINES(p, "    shr.u32 %t0, %part, 2;\n"
                 "    mad.wide.u32 %at, %t0, 1024, %chunk;\n");
    load_chunk(p, 0, first);
    load_chunk(p, 4, first + 1);
    PTX_LINES(p, "    and.b32 %t1, %part, 3;\n"
                 "    shl.b32 %t1, %t1, 1;\n");
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    shr.u32 %q$0, %q$0, %t1;\n"
                 "    and.b32 %q$0, %q$0, 0x03030303;\n",
                 i);
}

// %v = %d * %v - %m
static void d_times_less_m(struct ptx *p)
{
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    mul.rn.f32 %v$0, %d, %v$0;\n"
                 "    sub.rn.f32 %v$0, %v$0, %m;\n",
                 i);
}

static void part_q2_k(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    piece_at(part, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %t2, [%piece];\n");
    two_halves(p);
    PTX_LINES(p, "    mov.f32 %d1, %d;\n"
                 "    mov.f32 %m1, %m;\n");
    array_at(p, 0, 2);
    PTX_LINES(p, "    ld.global.nc.u16 %t2, [%at];\n");
    two_bits(p, 1);
    for (uint32_t i = 0; i < 8; i++) {
        if (i % 4 == 0)
            PTX_FILL(p,
                     "    bfe.u32 %t0, %t2, $0, 4;\n"
                     "    cvt.rn.f32.u32 %d, %t0;\n"
                     "    mul.rn.f32 %d, %d1, %d;\n"
                     "    bfe.u32 %t0, %t2, $1, 4;\n"
                     "    cvt.rn.f32.u32 %m, %t0;\n"
                     "    mul.rn.f32 %m, %m1, %m;\n",
                     2 * i, 2 * i + 4);
        ptx_type_fields(p, i, 0, 8);
        d_times_less_m(p);
        part->put(part, 4 * i);
    }
}

// %t2 = the six bits of the scales of the part's two runs of 16, a byte each.
static void q3_k_scales(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    piece_at(part, 8);
    PTX_LINES(p, "    and.b32 %t0, %part, 3;\n"
                 "    mad.wide.u32 %piece, %t0, 2, %piece;\n"
                 "    ld.global.nc.u16 %t2, [%piece];\n"
                 "    shr.u32 %t0, %part, 2;\n"
                 "    shl.b32 %t0, %t0, 2;\n"
                 "    shr.u32 %t2, %t2, %t0;\n"
                 "    and.b32 %t2, %t2, 0x0f0f;\n");
    piece_at(part, 4);
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

// %d = %d1 * (the field of %t2 - less), of a run of 16
static void scale_of_run(struct ptx *p, uint32_t at, uint32_t less)
{
    PTX_FILL(p,
             "    bfe.u32 %t0, %t2, $0, 8;\n"
             "    sub.u32 %t0, %t0, $1;\n"
             "    mov.b32 %s0, %t0;\n"
             "    cvt.rn.f32.s32 %d, %s0;\n"
             "    mul.rn.f32 %d, %d1, %d;\n",
             at, less);
}

// %v = %d * (%v - less)
static void d_times_less(struct ptx *p, float less)
{
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    sub.rn.f32 %v$0, %v$0, 0f$x1;\n"
                 "    mul.rn.f32 %v$0, %d, %v$0;\n",
                 i, ptx_float_bits(less));
}

static void part_q3_k(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_half_piece(part);
    PTX_LINES(p, "    mov.f32 %d1, %d;\n");
    q3_k_scales(part);
    two_bits(p, 2);
    PTX_LINES(p, "    ld.global.nc.v4.u32 {%x0, %x1, %x2, %x3}, [%chunk];\n"
                 "    ld.global.nc.v4.u32 {%x4, %x5, %x6, %x7}, [%chunk+512];\n");
    for (uint32_t i = 0; i < 8; i++) {
        PTX_FILL(p,
                 "    shr.u32 %t0, %x$0, %part;\n"
                 "    and.b32 %t0, %t0, 0x01010101;\n"
                 "    shl.b32 %t0, %t0, 2;\n"
                 "    or.b32 %q$0, %q$0, %t0;\n",
                 i);
        if (i % 4 == 0)
            scale_of_run(p, 2 * i, 32);
        ptx_type_fields(p, i, 0, 8);
        d_times_less(p, 4);
        part->put(part, 4 * i);
    }
}

// %d and %m of the part's run of 32 in Q4_K and Q5_K; their head is chunk 0.
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
                 "    selp.b32 %x0, %x0, %x3, %pred;\n"
                 "    bfe.u32 %x3, %x2, 4, 4;\n"
                 "    shr.u32 %x4, %x1, 2;\n"
                 "    and.b32 %x4, %x4, 48;\n"
                 "    or.b32 %x3, %x3, %x4;\n"
                 "    and.b32 %x1, %x1, 63;\n"
                 "    selp.b32 %x1, %x1, %x3, %pred;\n"
                 "    cvt.rn.f32.u32 %d1, %x0;\n"
                 "    mul.rn.f32 %d, %d, %d1;\n"
                 "    cvt.rn.f32.u32 %m1, %x1;\n"
                 "    mul.rn.f32 %m, %m, %m1;\n");
}

// The part's nibbles to the low end of the bytes of %q0 to %q7: two chunks for two parts, from chunk `first` on.
static void k4_nibbles(struct ptx *p, uint32_t first)
{
    PTX_LINES(p, "    shr.u32 %t0, %part, 1;\n"
                 "    mad.wide.u32 %at, %t0, 1024, %chunk;\n");
    load_chunk(p, 0, first);
    load_chunk(p, 4, first + 1);
    PTX_LINES(p, "    and.b32 %t1, %part, 1;\n"
                 "    shl.b32 %t1, %t1, 2;\n");
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    shr.u32 %q$0, %q$0, %t1;\n"
                 "    and.b32 %q$0, %q$0, 0x0f0f0f0f;\n",
                 i);
}

static void part_q4_k(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    k4_scales(p);
    k4_nibbles(p, 1);
    for (uint32_t i = 0; i < 8; i++) {
        ptx_type_fields(p, i, 0, 8);
        d_times_less_m(p);
        part->put(part, 4 * i);
    }
}

static void part_q5_k(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    k4_scales(p);
    k4_nibbles(p, 3);
    PTX_LINES(p, "    ld.global.nc.v4.u32 {%x0, %x1, %x2, %x3}, [%chunk+512];\n"
                 "    ld.global.nc.v4.u32 {%x4, %x5, %x6, %x7}, [%chunk+1024];\n");
    for (uint32_t i = 0; i < 8; i++) {
        PTX_FILL(p,
                 "    shr.u32 %t0, %x$0, %part;\n"
                 "    and.b32 %t0, %t0, 0x01010101;\n"
                 "    shl.b32 %t0, %t0, 4;\n"
                 "    or.b32 %q$0, %q$0, %t0;\n",
                 i);
        ptx_type_fields(p, i, 0, 8);
        d_times_less_m(p);
        part->put(part, 4 * i);
    }
}

// Half h = part / 4, quarter k = part % 4: ql has chunks 4h + 2 (k % 2) and the next, qh 8 + 2h and the next.
static void part_q6_k(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_half_piece(part);
    PTX_LINES(p, "    mov.f32 %d1, %d;\n");
    array_at(p, 12, 2);
    PTX_LINES(p, "    ld.global.nc.s8 %s1, [%at];\n"
                 "    ld.global.nc.s8 %s2, [%at+1];\n"
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
    PTX_LINES(p, "    and.b32 %t2, %part, 3;\n"
                 "    shl.b32 %t1, %t2, 1;\n"
                 "    and.b32 %t2, %t2, 2;\n"
                 "    shl.b32 %t2, %t2, 1;\n");
    for (uint32_t i = 0; i < 8; i++) {
        PTX_FILL(p,
                 "    shr.u32 %q$0, %q$0, %t2;\n"
                 "    and.b32 %q$0, %q$0, 0x0f0f0f0f;\n"
                 "    shr.u32 %t0, %x$0, %t1;\n"
                 "    and.b32 %t0, %t0, 0x03030303;\n"
                 "    shl.b32 %t0, %t0, 4;\n"
                 "    or.b32 %q$0, %q$0, %t0;\n",
                 i);
        if (i % 4 == 0)
            PTX_FILL(p,
                     "    cvt.rn.f32.s32 %d, %s$0;\n"
                     "    mul.rn.f32 %d, %d1, %d;\n",
                     1 + i / 4);
        ptx_type_fields(p, i, 0, 8);
        d_times_less(p, 32);
        part->put(part, 4 * i);
    }
}

// ---- all types

#define part_iq2_xxs ptx_type_grid_part
#define part_iq2_xs ptx_type_grid_part
#define part_iq2_s ptx_type_grid_part
#define part_iq3_xxs ptx_type_grid_part
#define part_iq3_s ptx_type_grid_part
#define part_iq1_s ptx_type_grid_part
#define part_iq1_m ptx_type_grid_part
#define part_iq4_nl ptx_type_grid_part
#define part_iq4_xs ptx_type_grid_part
#define part_tq1_0 ptx_type_grid_part
#define part_tq2_0 ptx_type_grid_part
#define part_mxfp4 ptx_type_grid_part
#define part_nvfp4 ptx_type_grid_part
#define part_i8 NULL
#define part_i16 NULL
#define part_i32 NULL
#define part_i64 NULL
#define part_f64 NULL
static void (*const parts[DT_COUNT])(const struct ptx_part *) = {
#define DTYPE(NAME, name, id, elements, bytes, kind) [DT_##NAME] = part_##name,
#include "gguf/dtype.def"
#undef DTYPE
};

void ptx_type_part(const struct ptx_part *part)
{
    PTX_LINES(part->p, "    {\n"
                       "    .reg .pred %pred;\n"
                       "    .reg .b16 %h, %h1;\n"
                       "    .reg .u32 %q<8>, %x<8>, %t<4>;\n"
                       "    .reg .s32 %s<3>;\n"
                       "    .reg .u64 %at, %piece;\n"
                       "    .reg .f32 %v<4>, %d, %m, %d1, %m1;\n");
    parts[part->type](part);
    PTX_LINES(part->p, "    }\n");
}
