// Unpacks weights of the types with codebooks to signed bytes. See emit_grid.h for the interface, and gguf/dtype_iq.c for
// the layout of each type.
//
// The naive loop, for each 8 weights of IQ2 (4 of IQ3):
//     entry = book[index]                      // 8 (4) magnitudes of one byte each
//     for each i: w[i] = sign i is set ? -entry[i] : entry[i]
// A look-up is the dearest step: 32 lanes read 32 words of a table wherever they lie, and those that share a bank of the
// cache wait for each other, so that a look-up of a word takes about as long as a dozen instructions. Therefore signs come
// from arithmetic and entries are one word each:
//   - A magnitude of IQ2 is 8, 25 or 43, and a value of IQ1 is -1, 0 or 1. The table has their numbers, 0 to 2, in the eight
//     nibbles of a word, which take half of the book's bytes. prmt turns four nibbles into four bytes. In IQ2 bit 2 of a
//     nibble is the sign, which selects from four bytes of negative values. In IQ1 the weights are 8 g + 1 or 8 g - 1, and
//     the bit selects between the two.
//   - IQ3 has eight magnitudes, so that nibbles have no room for signs. The table is the book. The negatives of the four bytes
//     of an entry are 0x01010100 - entry, as no byte is 0: each borrows from the next.
// Signs are spread over a word by a product with a constant, which adds up shifted copies; a mask keeps some bits of each.
#include "kernels/ptx/emit_grid.h"

#include "gguf/dtype_iq.h"
#include "kernels/ptx/emit_nibble.h"

// ---- the types

struct grid {
    const uint64_t *pairs; // entries of 8 bytes, which the table has as nibbles, or
    const uint32_t *words; // entries of 4 bytes
    uint32_t n;
    uint8_t levels[3]; // the values of the nibbles
    uint8_t runs;      // of a part, with a scale each
    float factor;
};
static const struct grid grids[DT_COUNT] = {
    [DT_IQ2_XXS] = {iq2_xxs_grid, NULL, 256, {8, 25, 43}, 1, 0.125f},
    [DT_IQ2_XS] = {iq2_xs_grid, NULL, 512, {8, 25, 43}, 2, 0.125f},
    [DT_IQ2_S] = {iq2_s_grid, NULL, 1024, {8, 25, 43}, 2, 0.125f},
    [DT_IQ3_XXS] = {NULL, iq3_xxs_grid, 256, {0}, 1, 0.25f},
    [DT_IQ3_S] = {NULL, iq3_s_grid, 512, {0}, 1, 1},
    [DT_IQ1_S] = {iq1_grid, NULL, 2048, {255, 0, 1}, 1, 0.125f},
    [DT_IQ1_M] = {iq1_grid, NULL, 2048, {255, 0, 1}, 2, 0.125f},
};

// The bytes that nibbles 0 to 3 and 4 to 7 select: 8, 25, 43 and their negatives; 8 g + 1 and 8 g - 1.
enum { IQ2_PLUS = 0x002b1908, IQ2_MINUS = 0x00d5e7f8, IQ1_UP = 0x000901f9, IQ1_DOWN = 0x0007fff7 };

static bool is_iq1(enum dtype t)
{
    return t == DT_IQ1_S || t == DT_IQ1_M;
}

bool ptx_is_grid(enum dtype type)
{
    return type < DT_COUNT && grids[type].n;
}

float ptx_grid_factor(enum dtype type)
{
    return grids[type].factor;
}

// ---- the module's table

// The numbers of the levels of an entry's bytes, as nibbles. In IQ2 nibbles 2 i and 2 i + 1 are bytes i and 4 + i, which is the
// order in which signs come.
static uint32_t nibbles_of(const struct grid *g, uint64_t entry, bool in_order)
{
    uint32_t word = 0;
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t level = 0;
        while (level < 2 && g->levels[level] != (uint8_t)(entry >> 8 * i))
            level++;
        word |= level << 4 * (in_order ? i : 2 * (i % 4) + i / 4);
    }
    return word;
}

// The table is one line, as emit_whole.c compares tables by lines.
void ptx_grid_table(struct ptx *p, enum dtype type)
{
    if (!ptx_is_grid(type))
        return;
    const struct grid *g = &grids[type];
    PTX_FILL(p, "\n.global .align 4 .b32 grid_$0[$1] = {", (uint32_t)type, g->n);
    for (uint32_t i = 0; i < g->n; i++) {
        if (i)
            PTX_LINES(p, ",");
        PTX_FILL(p, "0x$x0", g->words ? g->words[i] : nibbles_of(g, g->pairs[i], is_iq1(type)));
    }
    PTX_LINES(p, "};\n");
}

// ---- weights

// Sets %e<to> to bits of %w<word>.
static void bits_of(struct ptx *p, uint32_t to, uint32_t word, uint32_t at, uint32_t n)
{
    if (at + n == 32)
        PTX_FILL(p, "    shr.u32 %e$0, %w$1, $2;\n", to, word, at);
    else if (!at)
        PTX_FILL(p, "    and.b32 %e$0, %w$1, $2;\n", to, word, (1u << n) - 1);
    else
        PTX_FILL(p, "    bfe.u32 %e$0, %w$1, $2, $3;\n", to, word, at, n);
}

// Puts three bits of %w<word> above the eight bits of %e0. Changes %e1.
static void high_bits(struct ptx *p, uint32_t word, uint32_t at)
{
    if (at > 8)
        PTX_FILL(p, "    shr.u32 %e1, %w$0, $1;\n", word, at - 8);
    else
        PTX_FILL(p, "    shl.b32 %e1, %w$0, $1;\n", word, 8 - at);
    PTX_LINES(p, "    lop3.b32 %e0, %e1, 0x700, %e0, 0xea;\n"); // (%e1 & mask) | %e0
}

// IQ2_S and IQ3_S: sets %e0 to index k, whose high bits are byte k % 4 of %e4. Every fourth time it sets %e4: a product adds up
// shifted copies of the bits of four indices, and a mask keeps those of each in a byte.
static void long_index(struct ptx *p, enum dtype t, const struct ptx_grid_place *at, uint32_t k)
{
    if (k % 4 == 0 && t == DT_IQ3_S) {
        bits_of(p, 4, at->high, at->high_at + k, 4);
        PTX_LINES(p, "    mul.lo.u32 %e4, %e4, 0x00204081;\n"
                     "    and.b32 %e4, %e4, 0x01010101;\n");
    } else if (k % 4 == 0) {
        bits_of(p, 4, at->high, at->high_at, 8);
        PTX_LINES(p, "    mul.lo.u32 %e4, %e4, 0x1001;\n"
                     "    and.b32 %e4, %e4, 0x000f000f;\n"
                     "    mul.lo.u32 %e4, %e4, 0x41;\n"
                     "    and.b32 %e4, %e4, 0x03030303;\n");
    }
    // the two upper bytes repeat the sign of the second, which is 0
    PTX_FILL(p, "    prmt.b32 %e0, %w$0, %e4, 0x$x1;\n", at->index + k / 4, 0xcc40 + 0x1111 * (k % 4));
}

// Sets %e0 to entry number k of the part, of 8 weights, or of 4 in IQ3. Changes %e1, and %e4 in IQ2_S and IQ3_S.
static void entry_of(struct ptx *p, enum dtype t, const struct ptx_grid_place *at, uint32_t k)
{
    if (t == DT_IQ2_S || t == DT_IQ3_S)
        long_index(p, t, at, k);
    else if (t == DT_IQ2_XS)
        bits_of(p, 0, at->index + k / 2, k % 2 * 16, 9);
    else
        bits_of(p, 0, at->index + k / 4, k % 4 * 8, 8);
    if (is_iq1(t))
        high_bits(p, at->high, at->high_at + (t == DT_IQ1_S ? 3 : 4) * k);
    PTX_LINES(p, "    mad.wide.u32 %entry, %e0, 4, %grid;\n"
                 "    ld.global.nc.u32 %e0, [%entry];\n");
}

// Spreads the 7 signs in %e2 over the nibbles, to bit 2 of each: sign i < 4 goes to nibble 2 i, sign 4 + i to nibble 2 i + 1.
// The product is a sum of four copies 7 bits apart, which do not overlap; copy i has both where they belong.
static void nibble_signs(struct ptx *p)
{
    PTX_LINES(p, "    mul.lo.u32 %e2, %e2, 0x00810204;\n"
                 "    and.b32 %e2, %e2, 0x44444444;\n");
}

// Adds the eighth sign, which has bit 30. It is bit 8 k + 7 of the signs in IQ2_S. Otherwise it makes the number of set bits
// even: the product with 0x11111111 has the sum of all nibbles in the highest one. Changes %e1.
static void eighth_sign(struct ptx *p, enum dtype t, const struct ptx_grid_place *at, uint32_t k)
{
    if (t != DT_IQ2_S)
        PTX_LINES(p, "    mul.lo.u32 %e1, %e2, 0x11111111;\n");
    else if (k < 3)
        PTX_FILL(p, "    shl.b32 %e1, %w$0, $1;\n", at->signs, 23 - 8 * k);
    else
        PTX_FILL(p, "    shr.u32 %e1, %w$0, 1;\n", at->signs);
    PTX_LINES(p, "    lop3.b32 %e2, %e1, 0x40000000, %e2, 0x6a;\n"); // (%e1 & mask) ^ %e2
}

// Eight weights, number k of four times eight. The bytes that the nibbles select come in the order of the signs.
static void weights_iq2(struct ptx *p, enum dtype t, const struct ptx_grid_place *at, uint32_t k)
{
    if (t == DT_IQ2_XS)
        bits_of(p, 2, at->index + k / 2, k % 2 * 16 + 9, 7);
    else
        bits_of(p, 2, at->signs, (t == DT_IQ2_S ? 8 : 7) * k, 7);
    nibble_signs(p);
    eighth_sign(p, t, at, k);
    entry_of(p, t, at, k);
    PTX_FILL(p,
             "    xor.b32 %e0, %e0, %e2;\n"
             "    prmt.b32 %e1, 0x$x2, 0x$x3, %e0;\n"
             "    shr.u32 %e0, %e0, 16;\n"
             "    prmt.b32 %e0, 0x$x2, 0x$x3, %e0;\n"
             "    prmt.b32 %q$0, %e1, %e0, 0x6420;\n"
             "    prmt.b32 %q$1, %e1, %e0, 0x7531;\n",
             2 * k, 2 * k + 1, IQ2_PLUS, IQ2_MINUS);
}

// The shift is of the part in IQ1_S, and of eight weights in IQ1_M.
static void weights_iq1(struct ptx *p, enum dtype t, const struct ptx_grid_place *at, uint32_t k)
{
    if (t == DT_IQ1_M || !k) {
        bits_of(p, 2, at->high, at->high_at + (t == DT_IQ1_M ? 4 * k + 3 : 15), 1);
        PTX_LINES(p, "    mul.lo.u32 %e2, %e2, 0x44444444;\n");
    }
    entry_of(p, t, at, k);
    PTX_FILL(p,
             "    xor.b32 %e0, %e0, %e2;\n"
             "    prmt.b32 %q$0, 0x$x2, 0x$x3, %e0;\n"
             "    shr.u32 %e0, %e0, 16;\n"
             "    prmt.b32 %q$1, 0x$x2, 0x$x3, %e0;\n",
             2 * k, 2 * k + 1, IQ1_UP, IQ1_DOWN);
}

// Sets %q<i> to entry i with four signs, of which %e2 times `product` has sign b in bit 8 b + 7. prmt spreads these bits over
// their bytes, which then select between the entry and its bytes' negatives. `seven`: the last sign makes the number of set
// bits of %e2 even.
static void signed_entry(struct ptx *p, enum dtype t, const struct ptx_grid_place *at, uint32_t i, uint32_t product,
                         bool seven)
{
    entry_of(p, t, at, i);
    PTX_FILL(p, "    mul.lo.u32 %e1, %e2, 0x$x0;\n", product);
    if (seven)
        PTX_LINES(p, "    popc.b32 %e3, %e2;\n"
                     "    mad.lo.u32 %e1, %e3, 0x80000000, %e1;\n");
    PTX_FILL(p,
             "    prmt.b32 %e1, %e1, %e1, 0xfe98;\n"
             "    sub.u32 %e3, 0x01010100, %e0;\n"
             "    lop3.b32 %q$0, %e1, %e3, %e0, 0xca;\n", // %e1 ? %e3 : %e0
             i);
}

// The products move bits b and 4 + b to bit 8 b + 7.
static void weights_iq3(struct ptx *p, enum dtype t, const struct ptx_grid_place *at, uint32_t k)
{
    enum { LOW = 0x10204080, HIGH = 0x01020408 };
    if (t == DT_IQ3_S) {
        for (uint32_t i = 0; i < 2; i++) {
            bits_of(p, 2, at->signs, 8 * k + 4 * i, 4);
            signed_entry(p, t, at, 2 * k + i, LOW, false);
        }
        return;
    }
    bits_of(p, 2, at->signs, 7 * k, 7);
    signed_entry(p, t, at, 2 * k, LOW, false);
    signed_entry(p, t, at, 2 * k + 1, HIGH, true);
}

void ptx_grid_weights(struct ptx *p, enum dtype type, const struct ptx_grid_place *at)
{
    PTX_FILL(p,
             "    {\n"
             "    .reg .b32 %e<5>;\n"
             "    .reg .u64 %entry, %grid;\n"
             "    mov.u64 %grid, grid_$0;\n",
             (uint32_t)type);
    for (uint32_t k = 0; k < 4; k++)
        (is_iq1(type) ? weights_iq1 : grids[type].words ? weights_iq3 : weights_iq2)(p, type, at, k);
    PTX_LINES(p, "    }\n");
}

// ---- scales

void ptx_grid_scale(struct ptx *p, const struct ptx_grid_place *at, uint32_t run, const char *to, uint32_t first)
{
    PTX_LINES(p, "    bfe.u32 ");
    ptx_word(p, to);
    PTX_FILL(p, "$0, %w$1, $2, $3;\n    mad.lo.u32 ", first, at->scale, at->scale_at + at->bits * run, at->bits);
    ptx_word(p, to);
    PTX_FILL(p, "$0, ", first);
    ptx_word(p, to);
    PTX_FILL(p, "$0, 2, 1;\n", first);
}

void ptx_grid_iq1_m_d(struct ptx *p, uint32_t first)
{
    PTX_FILL(p,
             "    bfe.u32 %t0, %w$0, 12, 4;\n"
             "    shr.u32 %t1, %w$0, 28;\n"
             "    bfi.b32 %t0, %t1, %t0, 4, 4;\n"
             "    bfe.u32 %t1, %w$1, 12, 4;\n"
             "    bfi.b32 %t0, %t1, %t0, 8, 4;\n"
             "    shr.u32 %t1, %w$1, 28;\n"
             "    bfi.b32 %t0, %t1, %t0, 12, 4;\n"
             "    cvt.u16.u32 %h, %t0;\n"
             "    cvt.f32.f16 %d, %h;\n",
             first, first + 1);
}

// ---- a part with the number %part

// Sets %at to the lane's address in the piece of `size` bytes, plus %part * step.
static void piece_of_part(const struct ptx_part *part, uint32_t size, uint32_t step)
{
    PTX_FILL(part->p,
             "    mad.wide.u32 %at, %lane, $0, %unit;\n"
             "    mad.wide.u32 %at, %part, $1, %at;\n"
             "    add.u64 %at, %at, $2;\n",
             size, step, tile_piece(part->type, size));
}

// IQ2_XXS and IQ2_XS have two words for a part in chunks 0 to 3, IQ2_XS a byte of scales in the piece of 8 bytes.
static struct ptx_grid_place load_two_words(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_array(p, 0, 8);
    PTX_LINES(p, "    ld.global.nc.v2.u32 {%w0, %w1}, [%at];\n");
    if (part->type == DT_IQ2_XXS)
        return (struct ptx_grid_place){.signs = 1, .scale = 1, .scale_at = 28, .bits = 4};
    piece_of_part(part, 8, 1);
    PTX_LINES(p, "    ld.global.nc.u8 %w2, [%at];\n");
    return (struct ptx_grid_place){.scale = 2, .bits = 4};
}

// IQ2_S: indices in chunks 0 and 1, signs in 2 and 3, high bits and scales in chunk 4.
static struct ptx_grid_place load_iq2_s(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_array(p, 0, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %w0, [%at];\n"
                 "    ld.global.nc.u32 %w1, [%at+1024];\n"
                 "    cvt.u64.u32 %at, %part;\n"
                 "    add.u64 %at, %at, %chunk;\n"
                 "    ld.global.nc.u8 %w2, [%at+2048];\n"
                 "    ld.global.nc.u8 %w3, [%at+2056];\n");
    return (struct ptx_grid_place){.signs = 1, .high = 2, .scale = 3, .bits = 4};
}

// IQ3: indices in chunks 0 to 3, signs in 4 and 5; in IQ3_S high bits in the piece of 8 bytes, scales in that of 4.
static struct ptx_grid_place load_iq3(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_array(p, 0, 8);
    PTX_LINES(p, "    ld.global.nc.v2.u32 {%w0, %w1}, [%at];\n");
    ptx_type_array(p, 4, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %w2, [%at];\n");
    if (part->type == DT_IQ3_XXS)
        return (struct ptx_grid_place){.signs = 2, .scale = 2, .scale_at = 28, .bits = 4};
    piece_of_part(part, 8, 1);
    PTX_LINES(p, "    ld.global.nc.u8 %w3, [%at];\n");
    piece_of_part(part, 4, 0);
    PTX_LINES(p, "    ld.global.nc.u32 %w4, [%at];\n"
                 "    shl.b32 %t0, %part, 2;\n"
                 "    shr.u32 %w4, %w4, %t0;\n");
    return (struct ptx_grid_place){.signs = 2, .high = 3, .scale = 4, .bits = 4};
}

// IQ1: indices in chunks 0 and 1, two bytes a part in chunk 2: high bits and shifts, in IQ1_S with the scale.
static struct ptx_grid_place load_iq1(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_array(p, 0, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %w0, [%at];\n");
    ptx_type_array(p, 2, 2);
    PTX_LINES(p, "    ld.global.nc.u16 %w1, [%at];\n");
    if (part->type == DT_IQ1_S)
        return (struct ptx_grid_place){.high = 1, .scale = 1, .scale_at = 12, .bits = 3};
    piece_of_part(part, 8, 0);
    PTX_LINES(p, "    ld.global.nc.v2.u32 {%w2, %w3}, [%at];\n");
    ptx_grid_iq1_m_d(p, 2);
    PTX_LINES(p, "    // 6 bits of two scales at 16 (part / 2 % 2) + 6 (part % 2) of one of the words\n"
                 "    setp.lt.u32 %pred, %part, 4;\n"
                 "    selp.b32 %w2, %w2, %w3, %pred;\n"
                 "    and.b32 %t0, %part, 2;\n"
                 "    shl.b32 %t0, %t0, 3;\n"
                 "    and.b32 %t1, %part, 1;\n"
                 "    mad.lo.u32 %t0, %t1, 6, %t0;\n"
                 "    shr.u32 %w2, %w2, %t0;\n");
    return (struct ptx_grid_place){.high = 1, .scale = 2, .bits = 3};
}

void ptx_grid_bytes(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    const struct grid *g = &grids[part->type];
    const enum dtype t = part->type;
    PTX_LINES(p, "    {\n"
                 "    .reg .b32 %w<5>;\n");
    const struct ptx_grid_place at = is_iq1(t)       ? load_iq1(part)
                                     : g->words      ? load_iq3(part)
                                     : t == DT_IQ2_S ? load_iq2_s(part)
                                                     : load_two_words(part);
    if (t != DT_IQ1_M)
        ptx_type_half_piece(part);
    if (g->factor < 1)
        PTX_FILL(p, "    mul.rn.f32 %d, %d, 0f$x0;\n", ptx_float_bits(g->factor));
    for (uint32_t run = 0; run < g->runs; run++)
        ptx_grid_scale(p, &at, run, "%s", run);
    ptx_grid_weights(p, t, &at);
    PTX_LINES(p, "    }\n");
}
