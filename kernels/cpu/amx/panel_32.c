// Matmul by AMX (amx/panel.h) of types with blocks of 32 (Q4_0 to Q8_0, IQ4_NL, MXFP4): the tiles' bytes are signed
// weights, and each block's sums leave the tiles to be scaled.
#include "kernels/cpu/amx/panel.h"
#include "kernels/cpu/avx512/rows.h"

// ---- scales

INLINE void read_shape_heads(const struct shape *s, const struct rows16 *g, size_t at, int n, struct block_heads *h)
{
    size_t offset[BLOCKS];
    __m512 d[BLOCKS], m[BLOCKS];
    for (int j = 0; j < BLOCKS; j++)
        offset[j] = at + (size_t)(j * s->bytes);
    load_scales(g, s, offset, n, d, m);
    for (int j = 0; j < n; j++) {
        _mm512_store_ps(h->d[j], d[j]);
        if (s->m >= 0)
            _mm512_store_ps(h->m[j], m[j]);
    }
}

// ---- bytes

// Loads the bytes of two blocks, each twice: once for the low nibbles and once for the high ones.
INLINE __m512i load_nibbles_twice(const uint8_t *first, const uint8_t *second)
{
    return _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load_128(first)), 0xff00, load_128(second));
}

// Applies one bit matrix (see move_bits) for the low nibbles and one for the high nibbles. `flip` inverts the upper
// five bits.
INLINE __m512i nibbles_by(__m512i v, uint64_t of_low, uint64_t of_high, bool flip)
{
    const __m512i rows = _mm512_mask_set1_epi64(_mm512_set1_epi64((long long)of_low), 0xcc, (long long)of_high);
    return flip ? _mm512_gf2p8affine_epi64_epi8(v, rows, 0xf8) : _mm512_gf2p8affine_epi64_epi8(v, rows, 0);
}

// The low nibbles in the first 16 bytes of each 32, the high ones in the others.
INLINE __m512i split_nibbles(__m512i v)
{
    return nibbles_by(v, 0x0102040800000000, 0x1020408000000000, false);
}

// The same less 8: bits 7 to 3 are the inverse of a nibble's bit 3.
INLINE __m512i split_nibbles_less_8(__m512i v)
{
    return nibbles_by(v, 0x0102040808080808, 0x1020408080808080, true);
}

// The fifth bits of two blocks as a mask with a bit for each byte.
INLINE __mmask64 fifth_bits(const uint8_t *first, const uint8_t *second)
{
    uint32_t low, high;
    memcpy(&low, first, sizeof(low));
    memcpy(&high, second, sizeof(high));
    return (uint64_t)high << 32 | low;
}

// The signed weights of two blocks of a type that consists of nibbles.
INLINE __m512i two_blocks(const struct shape *s, const uint8_t *first, const uint8_t *second)
{
    __m512i v = load_nibbles_twice(first + s->quants, second + s->quants);
    if (s->values)
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_128(s->values)), split_nibbles(v));
    if (s->offset == 8)
        return split_nibbles_less_8(v);
    v = split_nibbles(v);
    if (s->fifth < 0)
        return v;
    const __mmask64 fifth = fifth_bits(first + s->fifth, second + s->fifth);
    const __m512i sixteen = _mm512_set1_epi8(16);
    return s->offset ? _mm512_mask_sub_epi8(v, ~fifth, v, sixteen) : _mm512_mask_add_epi8(v, fifth, v, sixteen);
}

// Unpacks n blocks. If n is odd, the last block is loaded twice and its copy is masked, so that the bytes past the
// end of the row stay 0.
INLINE void unpack_shape(const struct shape *s, const uint8_t *b, int n, int row, block_piece *p)
{
    if (n == BLOCKS) {
        UNROLL_FOR (int t = 0; t < TILES; t++)
            _mm512_store_si512((*p)[t][row], two_blocks(s, b + 2 * t * s->bytes, b + (2 * t + 1) * s->bytes));
        return;
    }
    for (int j = 0; j < n; j += 2) {
        const bool both = j + 1 < n;
        const uint8_t *first = b + j * s->bytes;
        _mm512_mask_storeu_epi64((*p)[j / 2][row], both ? 0xff : 0x0f,
                                 two_blocks(s, first, both ? first + s->bytes : first));
    }
}

static const struct shape shape_q8_0 = {.bytes = 34, .m = -1, .fifth = -1};

INLINE void unpack_q8_0(const uint8_t *b, int n, int row, block_piece *p)
{
    UNROLL_FOR (int j = 0; j < BLOCKS; j++)
        if (j < n)
            _mm256_store_si256((__m256i *)((*p)[j / 2][row] + j % 2 * 32), load_256(b + 34 * j + 2));
}

#define BLOCKS_HEADS(name)                                                                                             \
    INLINE void heads_##name(const struct rows16 *g, size_t at, int n, struct block_heads *h)                          \
    {                                                                                                                  \
        read_shape_heads(&shape_##name, g, at, n, h);                                                                  \
    }

// Defines the kernel of a type of nibbles, whose layout is shape_<name>. n_bytes: of a block. has_mins: whether it has
// a minimum.
#define BLOCKS_KERNEL(name, n_bytes, has_mins)                                                                         \
    BLOCKS_HEADS(name)                                                                                                 \
    INLINE void unpack_##name(const uint8_t *b, int n, int row, block_piece *p)                                        \
    {                                                                                                                  \
        unpack_shape(&shape_##name, b, n, row, p);                                                                     \
    }                                                                                                                  \
    ROWS_FUNCTION(name, {.bytes = BLOCKS * n_bytes, .mins = has_mins}, NULL, NULL, heads_##name, unpack_##name)

BLOCKS_HEADS(q8_0)
ROWS_FUNCTION(q8_0, {.bytes = BLOCKS * 34}, NULL, NULL, heads_q8_0, unpack_q8_0)
BLOCKS_KERNEL(q4_0, 18, false)
BLOCKS_KERNEL(q5_0, 22, false)
BLOCKS_KERNEL(iq4_nl, 18, false)
BLOCKS_KERNEL(mxfp4, 17, false)
BLOCKS_KERNEL(q4_1, 20, true)
BLOCKS_KERNEL(q5_1, 24, true)
