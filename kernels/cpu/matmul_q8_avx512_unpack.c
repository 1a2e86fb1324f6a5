// From blocks to panels: 16 rows at a time, a lane a row, 16 bytes of each row turned into four registers of words.
//
// And what each type needs of a column: the sums of its activations, times what the offset of the weights makes of them.
#include "kernels/cpu/matmul_q8_avx512.h"

// ---- pieces

// Elements k .. k+3 of 16 rows.
INLINE void put_words(struct panel *p, int lane, int k, __m512i w)
{
    _mm512_store_si512(p->w[k / 4][lane], w);
}

// Sums of 32 activations.
INLINE __m256i sums_of_32(const int16_t *sums)
{
    return _mm256_madd_epi16(load_256(sums), _mm256_set1_epi16(1));
}

INLINE void put_pairs_of_32(struct columns *c, int j, __m256i sums)
{
    __m128i packed = _mm_packs_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    _mm_storeu_si128((__m128i *)c->pairs[j], packed);
}

INLINE void put_start_of_32(struct columns *c, int j, __m256i sums, int offset)
{
    _mm256_storeu_si256((__m256i *)c->start[j], _mm256_mullo_epi32(sums, _mm256_set1_epi32(-offset)));
}

INLINE void put_start_of_16(struct columns *c, int j, const int16_t *sums, int offset)
{
    __m512i s = _mm512_cvtepi16_epi32(load_256(sums));
    _mm512_storeu_si512(c->start[j], _mm512_mullo_epi32(s, _mm512_set1_epi32(-offset)));
}

// ---- Q4_K and Q5_K

INLINE void put_header_k4(struct panel *p, int lane, const struct header_k4 *h, int offset)
{
    for (int j = 0; j < 8; j++)
        _mm512_store_si512(&p->scale[j][lane], byte_to_word(h->scale[j / 4], j % 4));
    for (int j = 0; j < 4; j++) {
        __m512i pair = bytes_to_pair(h->scale[j / 2], j % 2 * 2, j % 2 * 2 + 1);
        _mm512_store_si512(&p->back[j][lane], _mm512_mullo_epi16(pair, _mm512_set1_epi16((short)offset)));
        _mm512_store_si512(&p->min[j][lane], bytes_to_pair(h->min[j / 2], j % 2 * 2, j % 2 * 2 + 1));
    }
    _mm512_store_ps(&p->d[0][lane], h->d);
    _mm512_store_ps(&p->m[0][lane], h->m);
}

static void unpack_q4_k(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    (void)n_blocks;
    struct header_k4 h = load_header_k4(g, at);
    put_header_k4(p, lane, &h, 8);
    for (int c = 0; c < 4; c++) {  // 32 bytes: an even and an odd sub-block
        __m512i t[8];
        load_words_32(g, at + 16 + 32 * (size_t)c, t);
        for (int i = 0; i < 8; i++) {
            put_words(p, lane, 64 * c + 4 * i, low_nibbles(t[i]));
            put_words(p, lane, 64 * c + 32 + 4 * i, high_nibbles(t[i]));
        }
    }
}

// Runs of 32: |sum| <= 32 * 8 * 127 = 32512.
static void prepare_q4_k(struct columns *c)
{
    for (int j = 0; j < c->n; j++) {
        __m256i s = sums_of_32(c->q_sums[j]);
        put_pairs_of_32(c, j, s);
        put_start_of_32(c, j, s, 8);
    }
}

static void unpack_q5_k(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    (void)n_blocks;
    struct header_k4 h = load_header_k4(g, at);
    put_header_k4(p, lane, &h, 16);
    __m512i fifth[8];
    load_words_32(g, at + 16, fifth);
    for (int s = 0; s < 8; s += 2) {
        __m512i t[8];
        load_words_32(g, at + 48 + 16 * (size_t)s, t);
        for (int i = 0; i < 8; i++) {
            __m512i even = move_bits(fifth[i], 1, s, s, 4), odd = move_bits(fifth[i], 1, s + 1, s + 1, 4);
            put_words(p, lane, 32 * s + 4 * i, masked_or(t[i], 15, even));
            put_words(p, lane, 32 * s + 32 + 4 * i, _mm512_or_si512(high_nibbles(t[i]), odd));
        }
    }
}

// Runs of 16: |sum| <= 16 * 16 * 127 = 32512.
static void prepare_q5_k(struct columns *c)
{
    for (int j = 0; j < c->n; j++) {
        put_pairs_of_32(c, j, sums_of_32(c->q_sums[j]));
        put_start_of_16(c, j, c->q_sums[j], 16);
    }
}

// ---- Q6_K

static void unpack_q6_k(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    (void)n_blocks;
    _mm512_store_ps(&p->d[0][lane], load_halves(g, at + 208));
    __m512i scales[4];
    load_words_16(g, at + 192, scales);
    for (int s = 0; s < 16; s++) {  // a signed byte, up to the top and down again
        __m512i word = _mm512_slli_epi32(scales[s / 4], 24 - s % 4 * 8);
        _mm512_store_si512(&p->scale[s][lane], _mm512_srli_epi32(_mm512_srai_epi16(word, 8), 16));
    }
    for (int half = 0; half < 2; half++) {  // of 128 elements: four quarters of 32
        __m512i upper[8];
        load_words_32(g, at + 128 + 32 * (size_t)half, upper);
        for (int quarter = 0; quarter < 2; quarter++) {  // low nibbles; high ones are two quarters on
            __m512i t[8];
            load_words_32(g, at + (size_t)(64 * half + 32 * quarter), t);
            for (int i = 0; i < 8; i++) {
                int k = 128 * half + 32 * quarter + 4 * i;
                __m512i low = move_bits(upper[i], 2, 2 * quarter, 2 * quarter, 4);
                __m512i high = move_bits(upper[i], 2, 2 * quarter + 4, 2 * quarter + 4, 4);
                put_words(p, lane, k, masked_or(t[i], 15, low));
                put_words(p, lane, k + 64, _mm512_or_si512(high_nibbles(t[i]), high));
            }
        }
    }
}

// Runs of 8: |sum| <= 8 * 32 * 127 = 32512. Their activations are summed here, 4 of them by vpdpbusd, then two such sums.
static void prepare_q6_k(struct columns *c)
{
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1)), offset = _mm512_set1_epi8(32);
    const __m512i zero = _mm512_setzero_si512();
    for (int j = 0; j < c->n; j++)
        for (int i = 0; i < 2; i++) {
            __m512i a = _mm512_dpbusd_epi32(zero, offset, load_512(c->q[j] + 128 * i));
            __m512i b = _mm512_dpbusd_epi32(zero, offset, load_512(c->q[j] + 128 * i + 64));
            __m512i sum = _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b));
            _mm512_storeu_si512(&c->start[j][16 * i], _mm512_sub_epi32(zero, sum));
        }
}

// ---- types with blocks of 32

INLINE void put_starts_of_32(struct columns *c, int offset)
{
    for (int j = 0; j < c->n; j++)
        put_start_of_32(c, j, sums_of_32(c->q_sums[j]), offset);
}

INLINE void put_scales_32(const struct rows16 *g, size_t at, int n_blocks, size_t bytes, heads_fn *heads, struct panel *p,
                          int lane)
{
    __m512 scale[8];
    size_t offset[8];
    for (int b = 0; b < n_blocks; b++)
        offset[b] = at + (size_t)b * bytes;
    load_scales(g, heads, offset, n_blocks, scale);
    for (int b = 0; b < n_blocks; b++)
        _mm512_store_ps(&p->d[b][lane], scale[b]);
}

static void unpack_q8_0(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    put_scales_32(g, at, n_blocks, 34, heads_34, p, lane);
    for (int b = 0; b < n_blocks; b++) {
        __m512i t[8];
        load_words_32(g, at + 34 * (size_t)b + 2, t);
        for (int i = 0; i < 8; i++)
            put_words(p, lane, 32 * b + 4 * i, _mm512_xor_si512(t[i], _mm512_set1_epi8((char)0x80)));
    }
}

static void prepare_q8_0(struct columns *c)
{
    put_starts_of_32(c, 128);
}

static void unpack_q4_0(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    put_scales_32(g, at, n_blocks, 18, heads_18, p, lane);
    for (int b = 0; b < n_blocks; b++) {
        __m512i t[4];
        load_words_16(g, at + 18 * (size_t)b + 2, t);
        for (int i = 0; i < 4; i++) {
            put_words(p, lane, 32 * b + 4 * i, low_nibbles(t[i]));
            put_words(p, lane, 32 * b + 16 + 4 * i, high_nibbles(t[i]));
        }
    }
}

static void prepare_q4_0(struct columns *c)
{
    put_starts_of_32(c, 8);
}

const struct unpacker ISA_FN(matmul_q8_unpacker)[DT_COUNT] = {
    [DT_Q4_0] = {unpack_q4_0, prepare_q4_0}, [DT_Q8_0] = {unpack_q8_0, prepare_q8_0},
    [DT_Q4_K] = {unpack_q4_k, prepare_q4_k}, [DT_Q5_K] = {unpack_q5_k, prepare_q5_k},
    [DT_Q6_K] = {unpack_q6_k, prepare_q6_k},
};
