// Look-ups of sixteen values by nibbles, and scales that are powers of two. See emit_nibble.h for the interface.
#include "kernels/ptx/emit_nibble.h"

#include "gguf/dtype_iq.h"

static uint32_t four_values(const int8_t *v)
{
    return (uint32_t)(uint8_t)v[0] | (uint32_t)(uint8_t)v[1] << 8 | (uint32_t)(uint8_t)v[2] << 16 |
           (uint32_t)(uint8_t)v[3] << 24;
}

// Begins a look-up: a scope with %n0, the word.
static void begin(struct ptx *p, const char *from, uint32_t word)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .u32 %n<6>;\n"
                 "    mov.b32 %n0, ");
    ptx_word(p, from);
    PTX_FILL(p, "$0;\n", word);
}

// Ends it: %n4 and %n5 have the values of the nibbles in order, those of the two nibbles of a byte next to each other. A pair
// of prmt separates them.
static void separate(struct ptx *p, const char *to, uint32_t low, uint32_t high)
{
    PTX_LINES(p, "    prmt.b32 ");
    ptx_word(p, to);
    PTX_FILL(p, "$0, %n4, %n5, 0x6420;\n    prmt.b32 ", low);
    ptx_word(p, to);
    PTX_FILL(p, "$0, %n4, %n5, 0x7531;\n    }\n", high);
}

// prmt selects one of eight bytes by three bits, for four nibbles at once; a third prmt selects between the lower and
// the upper eight values by the fourth bit.
void ptx_nibble_values(struct ptx *p, const int8_t values[16], const char *from, uint32_t word, const char *to,
                       uint32_t low, uint32_t high)
{
    begin(p, from, word);
    PTX_LINES(p, "    shr.u32 %n1, %n0, 1;\n"
                 "    lop3.b32 %n1, %n1, 0x44444444, 0x32103210, 0xea;\n" // (%n1 & mask) | 0x32103210
                 "    and.b32 %n0, %n0, 0x77777777;\n");
    for (uint32_t half = 0; half < 2; half++) {
        if (half)
            PTX_LINES(p, "    shr.u32 %n0, %n0, 16;\n"
                         "    shr.u32 %n1, %n1, 16;\n");
        PTX_FILL(p,
                 "    prmt.b32 %n2, 0x$x0, 0x$x1, %n0;\n"
                 "    prmt.b32 %n3, 0x$x2, 0x$x3, %n0;\n"
                 "    prmt.b32 %n$4, %n2, %n3, %n1;\n",
                 four_values(values), four_values(values + 4), four_values(values + 8), four_values(values + 12),
                 4 + half);
    }
    separate(p, to, low, high);
}

// With the fourth bit set prmt repeats the top bit of the byte that the others select, which is 0 in all values plus 12. So
// the nibbles select those of the positive numbers and zeros for the negative ones, and the nibbles with their fourth bit
// inverted the others.
void ptx_fp4_bytes(struct ptx *p, const char *from, uint32_t word, const char *to, uint32_t low, uint32_t high)
{
    int8_t plus[16];
    for (int i = 0; i < 16; i++)
        plus[i] = (int8_t)(fp4_values[i] + PTX_FP4_LESS);
    begin(p, from, word);
    PTX_LINES(p, "    xor.b32 %n1, %n0, 0x88888888;\n");
    for (uint32_t half = 0; half < 2; half++) {
        if (half)
            PTX_LINES(p, "    shr.u32 %n0, %n0, 16;\n"
                         "    shr.u32 %n1, %n1, 16;\n");
        PTX_FILL(p,
                 "    prmt.b32 %n2, 0x$x0, 0x$x1, %n0;\n"
                 "    prmt.b32 %n3, 0x$x2, 0x$x3, %n1;\n"
                 "    or.b32 %n$4, %n2, %n3;\n",
                 four_values(plus), four_values(plus + 4), four_values(plus + 8), four_values(plus + 12), 4 + half);
    }
    separate(p, to, low, high);
}

// Computes the bits of the float: (e - 1) << 23; from 2^-126 down, where the number is subnormal, 0x200000 << e.
void ptx_e8m0_half(struct ptx *p, const char *d, const char *e, const char *spare, const char *pred)
{
    const char *const words[] = {"    setp.lt.u32 ",
                                 pred,
                                 ", ",
                                 e,
                                 ", 2;\n    shl.b32 ",
                                 spare,
                                 ", 0x200000, ",
                                 e,
                                 ";\n    sub.u32 ",
                                 e,
                                 ", ",
                                 e,
                                 ", 1;\n    shl.b32 ",
                                 e,
                                 ", ",
                                 e,
                                 ", 23;\n    selp.b32 ",
                                 spare,
                                 ", ",
                                 spare,
                                 ", ",
                                 e,
                                 ", ",
                                 pred,
                                 ";\n    mov.b32 ",
                                 d,
                                 ", ",
                                 spare,
                                 ";\n"};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        ptx_word(p, words[i]);
}
