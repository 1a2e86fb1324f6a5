// Matmul by AMX (amx/panel.h) of Q4_K, Q5_K and Q6_K: weights are multiplied by their scales while they are unpacked.
// Also transposes the columns where the caller has not, and stores the sums.
#include "kernels/cpu/amx/panel.h"
#include "kernels/cpu/avx512/rows.h"

// ---- columns, and outputs

// Transposes the columns from `first` on, in the spans from .. to - 1, into scratch. Where fewer are left, the last
// one is repeated.
void matmul_q8_transpose_columns_amx(const struct matmul_args *a, int first, int groups, int64_t from, int64_t to)
{
    struct q8_words *c = ((struct rows_work *)a->scratch)->transposed;
    for (int64_t span = from; span < to; span++)
        for (int g = 0; g < groups; g++, c++) {
            int column = first + g * Q8_TILE_COLUMNS;
            struct rows16 quants;
            for (int j = 0; j < Q8_TILE_COLUMNS; j++) {
                const void *x = a->x[MIN(column + j, a->n_x - 1)];
                quants.at[j] = (const uint8_t *)q8_quants(x);
                q8_words_put_sums(c, j, q8_sums(x, a->k) + span * Q8_SUMS, q8_steps(x, a->k) + span * Q8_RUNS,
                                  q8_scales(x, a->k)[span]);
            }
            store_words(&quants, (size_t)span * SPAN, 0xffff, c);
        }
}

static void store_group(const struct matmul_args *a, sums16 *sums, int row, int first)
{
    struct rows16 g;
    for (int r = 0; r < ROWS; r++)
        g.at[r] = (const uint8_t *)(*sums)[r];
    for (int j = 0; j < Q8_TILE_COLUMNS && first + j < a->n_x; j += 4) {
        __m512i v[4];
        load_words_16(&g, (size_t)j * sizeof(float), v);
        for (int i = 0; i < 4 && first + j + i < a->n_x; i++)
            _mm512_mask_storeu_epi32(a->y[first + j + i] + row, rows_mask(a, row), v[i]);
    }
}

void matmul_q8_store_rows_amx(const struct matmul_args *a, int row, int end, int first, int groups)
{
    struct rows_work *w = a->scratch;
    for (int r = row; r < end; r += ROWS)
        for (int g = 0; g < groups; g++)
            store_group(a, &w->sums[(r - row) / ROWS][g], r, first + g * Q8_TILE_COLUMNS);
}

// ---- Q4_K and Q5_K: w * scale <= 1953

// Stores bytes 0 .. 3 and 4 .. 7 of each row, from words with one lane per row.
INLINE void store_bytes_of_rows(__m512i first, __m512i second, uint8_t to[ROWS][8])
{
    const __m512i low = _mm512_unpacklo_epi32(first, second), high = _mm512_unpackhi_epi32(first, second);
    const __m512i order = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0); // each 128 bits have two of four rows
    _mm512_store_si512(to[0], _mm512_permutex2var_epi64(low, order, high));
    _mm512_store_si512(to[8], _mm512_permutex2var_epi64(low, _mm512_add_epi64(order, _mm512_set1_epi64(4)), high));
}

INLINE void read_heads_k4(const struct rows16 *g, size_t at, struct heads *h)
{
    struct header_k4 k = load_header_k4(g, at);
    _mm512_store_ps(h->d, k.d);
    _mm512_store_ps(h->m, k.m);
    for (int j = 0; j < Q8_RUNS; j++)
        _mm512_store_si512(h->min[j], bytes_to_pair(k.min[j / 4], j % 4, j % 4));
    store_bytes_of_rows(k.scale[0], k.scale[1], h->factor);
}

// In 16-bit words with an upper byte of 0: byte `a` of 16, and in the upper half of the register byte `b`.
INLINE __m512i pick_of_32(__m512i bytes, int a, int b)
{
    __m512i at = _mm512_mask_set1_epi16(_mm512_set1_epi16((short)(0x8000 | a)), 0xffff0000, (short)(0x8000 | b));
    return _mm512_shuffle_epi8(bytes, at);
}

// Unpacks a row of Q4_K or Q5_K. Each tile has the low nibbles of 32 bytes and their high ones, in Q5_K with a fifth
// bit (`five`, a compile-time constant).
INLINE void unpack_k4(bool five, const uint8_t *b, const struct heads *h, int row, piece *p)
{
    const __m512i scales = broadcast_64(h->factor[row]);
    const __m512i fifth = five ? _mm512_broadcast_i64x4(load_256(b + 16)) : scales;
    UNROLL_FOR (int t = 0; t < TILES; t++) {
        __m512i w = move_bits(_mm512_broadcast_i64x4(load_256(b + (five ? 48 : 16) + 32 * t)), 4, 0, 4, 0);
        if (five)
            w = _mm512_or_si512(w, move_bits(fifth, 1, 2 * t, 2 * t + 1, 4));
        const __m512i even = pick_of_32(scales, 2 * t, 2 * t + 1), odd = _mm512_bslli_epi128(even, 1);
        put_planes(split_products(_mm512_maddubs_epi16(w, even), _mm512_maddubs_epi16(w, odd)), t, row, p);
    }
}

INLINE void unpack_q4_k(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    unpack_k4(false, b, h, row, p);
}

INLINE void unpack_q5_k(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    unpack_k4(true, b, h, row, p);
}

ROWS_KERNEL(q4_k, {.bytes = 144, .planes = 3, .mins = true}, read_heads_k4, unpack_q4_k)
ROWS_KERNEL(q5_k, {.bytes = 176, .planes = 3, .mins = true}, read_heads_k4, unpack_q5_k)

// ---- Q6_K: |w * scale| <= 4096

INLINE void read_heads_q6_k(const struct rows16 *g, size_t at, struct heads *h)
{
    _mm512_store_ps(h->d, load_halves(g, at + 208));
}

// Indices of the 16 scales for tile t, in which each lane of 16 elements has one: as bytes with 0 above, with 0
// below, and as 16-bit words.
struct picks {
    __m512i low, high, word;
};

INLINE struct picks picks_of(int t)
{
    __m512i lane = _mm512_set_epi64(0x0003000300030003, 0x0003000300030003, 0x0002000200020002, 0x0002000200020002,
                                    0x0001000100010001, 0x0001000100010001, 0, 0);
    __m512i low = _mm512_add_epi16(lane, _mm512_set1_epi16((short)(0x8000 | 4 * t)));
    return (struct picks){low, _mm512_rol_epi32(low, 8), _mm512_add_epi16(lane, _mm512_set1_epi16((short)(4 * t)))};
}

INLINE void unpack_q6_k(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    (void)h;
    const __m128i bytes = load_128(b + 192);
    const __m512i scales = _mm512_broadcast_i32x4(bytes);
    const __m512i offsets = _mm512_castsi256_si512(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 5));
    UNROLL_FOR (int t = 0; t < TILES; t++) {
        const struct picks pick = picks_of(t);
        __m512i nibbles = load_512(b + 64 * (t / 2)), upper = _mm512_broadcast_i64x4(load_256(b + 128 + 32 * (t / 2)));
        __m512i two = move_bits(upper, 2, t % 2 * 4, t % 2 * 4 + 2, 4);
        __m512i w = t % 2 ? _mm512_or_si512(high_nibbles(nibbles), two) : masked_or(nibbles, 15, two);
        __m512i offset = _mm512_permutexvar_epi16(pick.word, offsets);
        __m512i even = _mm512_maddubs_epi16(w, _mm512_shuffle_epi8(scales, pick.low));
        __m512i odd = _mm512_maddubs_epi16(w, _mm512_shuffle_epi8(scales, pick.high));
        put_planes(split_products(_mm512_sub_epi16(even, offset), _mm512_sub_epi16(odd, offset)), t, row, p);
    }
}

ROWS_KERNEL(q6_k, {.bytes = 210, .planes = 3}, read_heads_q6_k, unpack_q6_k)
