// Unpacks weights of one to four bits without a codebook. See emit_bits.h for the interface, gguf/dtype.c and gguf/dtype_iq.c
// for the layouts, and weight_tile.def for the order of a unit.
#include "kernels/ptx/emit_bits.h"

#include "kernels/ptx/emit_nibble.h"

// ---- weights in %w

// The product moves bit b of four to bit 8 b + 1.
static void one_bit(struct ptx *p, uint32_t word, uint32_t i)
{
    PTX_FILL(p,
             "    bfe.u32 %t0, %w$1, $2, 4;\n"
             "    mul.lo.u32 %t0, %t0, 0x00408102;\n"
             "    and.b32 %q$0, %t0, 0x02020202;\n",
             i, word, 4 * i);
}

// The four weights of a byte: the two products move its halves 16 bits apart, then the halves of those 8 bits.
static void two_bits(struct ptx *p, uint32_t word, uint32_t i)
{
    PTX_FILL(p,
             "    bfe.u32 %t0, %w$1, $2, 8;\n"
             "    mul.lo.u32 %t0, %t0, 0x1001;\n"
             "    and.b32 %t0, %t0, 0x000f000f;\n"
             "    mul.lo.u32 %t0, %t0, 0x41;\n"
             "    and.b32 %q$0, %t0, 0x03030303;\n",
             i, word + i / 4, i % 4 * 8);
}

void ptx_bits_weights(struct ptx *p, enum dtype type, uint32_t word)
{
    if (type == DT_NVFP4) { // the first eight weights of 16 are the low nibbles of two words
        for (uint32_t i = 0; i < 4; i++)
            ptx_fp4_bytes(p, "%w", word + i, "%q", i / 2 * 4 + i % 2, i / 2 * 4 + i % 2 + 2);
        return;
    }
    for (uint32_t i = 0; i < 8; i++)
        (type == DT_Q1_0 ? one_bit : two_bits)(p, word, i);
}

// ---- scales

// An e4m3 number has the bits of a half that is 2^8 times smaller, one bit further right, subnormal ones too. The code 0x7f
// is 0.
void ptx_bits_nvfp4_scales(struct ptx *p, uint32_t word, uint32_t at)
{
    PTX_FILL(p,
             "    bfe.u32 %t0, %w$0, $1, 16;\n"
             "    prmt.b32 %t0, %t0, 0, 0x4140;\n"
             "    and.b32 %t1, %t0, 0x007f007f;\n"
             "    shl.b32 %t1, %t1, 7;\n"
             "    mov.b32 {%h, %h1}, %t1;\n"
             "    cvt.f32.f16 %d, %h;\n"
             "    mul.rn.f32 %d, %d, 0f43000000;\n"
             "    and.b32 %t1, %t0, 255;\n"
             "    setp.eq.u32 %pred, %t1, 127;\n"
             "    selp.f32 %d, 0f00000000, %d, %pred;\n"
             "    cvt.f32.f16 %m, %h1;\n"
             "    mul.rn.f32 %m, %m, 0f43000000;\n"
             "    shr.u32 %t1, %t0, 16;\n"
             "    setp.eq.u32 %pred, %t1, 127;\n"
             "    selp.f32 %m, 0f00000000, %m, %pred;\n",
             word, at);
}

// ---- a part with the number %part

// The half of the part's block, of which there is one for 2^shift parts, in the piece of `size` bytes.
static void half_of_block(const struct ptx_part *part, uint32_t size, uint32_t shift)
{
    ptx_type_piece(part, size);
    PTX_FILL(part->p,
             "    shr.u32 %t0, %part, $0;\n"
             "    mad.wide.u32 %piece, %t0, 2, %piece;\n"
             "    ld.global.nc.b16 %h, [%piece];\n"
             "    cvt.f32.f16 %d, %h;\n",
             shift);
}

static void bytes_q1_0(const struct ptx_part *part)
{
    half_of_block(part, 4, 2);
    ptx_type_array(part->p, 0, 4);
    PTX_LINES(part->p, "    ld.global.nc.u32 %w0, [%at];\n");
    ptx_bits_weights(part->p, DT_Q1_0, 0);
}

static void bytes_q2_0(const struct ptx_part *part)
{
    half_of_block(part, 8, 1);
    ptx_type_array(part->p, 0, 8);
    PTX_LINES(part->p, "    ld.global.nc.v2.u32 {%w0, %w1}, [%at];\n");
    ptx_bits_weights(part->p, DT_Q2_0, 0);
}

static void bytes_nvfp4(const struct ptx_part *part)
{
    ptx_type_array(part->p, 8, 2);
    PTX_LINES(part->p, "    ld.global.nc.u16 %w0, [%at];\n");
    ptx_bits_nvfp4_scales(part->p, 0, 0);
    ptx_type_chunk(part->p, 1, 0);
    PTX_LINES(part->p, "    ld.global.nc.v4.u32 {%w0, %w1, %w2, %w3}, [%at];\n");
    ptx_bits_weights(part->p, DT_NVFP4, 0);
}

// Subtracts 1 from the bytes of a type of three values, which are 0 to 2: a sum of 127 and one of them does not carry, and
// its top bit is that of a number that is not negative. The block's scale is the only one.
static void end_ternary(struct ptx *p)
{
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    add.u32 %q$0, %q$0, 0x7f7f7f7f;\n"
                 "    xor.b32 %q$0, %q$0, 0x80808080;\n",
                 i);
    PTX_LINES(p, "    mov.b32 %s0, 1;\n");
}

// Two chunks hold half a block; the part uses bit pair part % 4.
static void bytes_tq2_0(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_half_piece(part);
    PTX_LINES(p, "    shr.u32 %t0, %part, 2;\n"
                 "    mad.wide.u32 %at, %t0, 1024, %chunk;\n"
                 "    ld.global.nc.v4.u32 {%q0, %q1, %q2, %q3}, [%at];\n"
                 "    ld.global.nc.v4.u32 {%q4, %q5, %q6, %q7}, [%at+512];\n"
                 "    and.b32 %t1, %part, 3;\n"
                 "    shl.b32 %t1, %t1, 1;\n");
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    shr.u32 %q$0, %q$0, %t1;\n"
                 "    and.b32 %q$0, %q$0, 0x03030303;\n",
                 i);
    end_ternary(p);
}

// A byte times a power of 3, without what is carried, begins with the digit, which is carried when it is multiplied by 3. The
// bytes of a word are multiplied as two pairs in 16 bits each.
static void bytes_tq1_0(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_half_piece(part);
    ptx_type_digits(part);
    for (uint32_t i = 0; i < 8; i++) {
        PTX_FILL(p,
                 "    and.b32 %w0, %q$0, 0x00ff00ff;\n"
                 "    shr.u32 %w1, %q$0, 8;\n"
                 "    and.b32 %w1, %w1, 0x00ff00ff;\n",
                 i);
        for (uint32_t half = 0; half < 2; half++)
            PTX_FILL(p,
                     "    mul.lo.u32 %w$0, %w$0, %x$1;\n"
                     "    and.b32 %w$0, %w$0, 0x00ff00ff;\n"
                     "    mul.lo.u32 %w$0, %w$0, 3;\n",
                     half, i);
        PTX_FILL(p, "    prmt.b32 %q$0, %w0, %w1, 0x7351;\n", i);
    }
    end_ternary(p);
}

void ptx_bits_bytes(const struct ptx_part *part)
{
    PTX_LINES(part->p, "    {\n"
                       "    .reg .b32 %w<4>;\n");
    switch (part->type) {
    case DT_Q1_0:
        bytes_q1_0(part);
        break;
    case DT_Q2_0:
        bytes_q2_0(part);
        break;
    case DT_NVFP4:
        bytes_nvfp4(part);
        break;
    case DT_TQ1_0:
        bytes_tq1_0(part);
        break;
    default:
        bytes_tq2_0(part);
        break;
    }
    PTX_LINES(part->p, "    }\n");
}
