// Unpacks blocks to panels (avx512/panel.c), 16 rows at a time with one lane per row: 16 bytes of each row are
// transposed to four registers of words.
//
// Also prepares columns: computes the sums of activations times the offset of the weights, which each type's products
// start with, and the weighted sums (times their steps) that minima are multiplied with. avx512/panel.c uses both by
// type, through matmul_q8_unpacker.
#include "kernels/cpu/avx512/matmul_q8.h"
#include "kernels/cpu/avx512/rows.h"

// ---- pieces

// Minus the offset times the sums of 32 activations, and of 16.
INLINE void put_start_of_32(struct columns *c, int j, const int16_t *sums, int offset)
{
    __m256i start = _mm256_madd_epi16(load_256(sums), _mm256_set1_epi16((short)-offset));
    _mm256_storeu_si256((__m256i *)c->start[j], start);
}

INLINE void put_start_of_16(struct columns *c, int j, const int16_t *sums, int offset)
{
    __m512i low = _mm512_cvtepu16_epi32(load_256(sums)); // the upper half is 0
    _mm512_storeu_si512(c->start[j], _mm512_madd_epi16(low, _mm512_set1_epi16((short)-offset)));
}

// The offset times the sums of 32 activations, or of 16, to restore it. They must fit 16 bits.
INLINE void put_restore_of_32(struct columns *c, int j, const int16_t *sums, int offset)
{
    __m256i restore = _mm256_madd_epi16(load_256(sums), _mm256_set1_epi16((short)offset));
    _mm_storeu_si128((__m128i *)c->restore[j], _mm256_cvtepi32_epi16(restore));
}

INLINE void put_restore_of_16(struct columns *c, int j, const int16_t *sums, int offset)
{
    __m256i restore = _mm256_mullo_epi16(load_256(sums), _mm256_set1_epi16((short)offset));
    _mm256_storeu_si256((__m256i *)c->restore[j], restore);
}

// The sums of 16 activations times their steps, at most 16 * 127 * 16.
INLINE __m256i weighted_sums(const struct columns *c, int j, const int16_t *sums)
{
    __m256i steps = _mm256_cvtepu16_epi32(load_128(c->steps[j]));
    return _mm256_mullo_epi16(load_256(sums), _mm256_or_si256(steps, _mm256_slli_epi32(steps, 16)));
}

INLINE void put_mins_of_16(struct columns *c, int j, const int16_t *sums)
{
    _mm256_storeu_si256((__m256i *)c->mins[j], weighted_sums(c, j, sums));
}

// The weighted sums of 32 activations, where they fit 16 bits.
INLINE void put_mins_of_32(struct columns *c, int j, const int16_t *sums)
{
    __m256i of_32 = _mm256_madd_epi16(weighted_sums(c, j, sums), _mm256_set1_epi16(1));
    _mm_storeu_si128((__m128i *)c->mins[j], _mm256_cvtepi32_epi16(of_32));
}

// Copies the lowest byte of each word to all four.
INLINE __m512i byte_to_all(__m512i words)
{
    return _mm512_shuffle_epi8(words, _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
}

// ---- Q4_K and Q5_K

INLINE void put_header_k4(struct panel *p, int lane, const struct header_k4 *h)
{
    for (int j = 0; j < 4; j++) {
        _mm512_store_si512(&p->scale[j][lane], bytes_to_pair(h->scale[j / 2], j % 2 * 2, j % 2 * 2 + 1));
        _mm512_store_si512(&p->min[j][lane], bytes_to_pair(h->min[j / 2], j % 2 * 2, j % 2 * 2 + 1));
    }
    _mm512_store_ps(&p->d[0][lane], h->d);
    _mm512_store_ps(&p->m[0][lane], h->m);
}

static void unpack_q4_k(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    (void)n_blocks;
    struct header_k4 h = load_header_k4(g, at);
    put_header_k4(p, lane, &h);
    for (int c = 0; c < 4; c++) { // 32 bytes have an even and an odd sub-block
        __m512i t[8];
        load_words_32(g, at + 16 + 32 * (size_t)c, t);
        for (int i = 0; i < 8; i++) {
            put_words(p, lane, 64 * c + 4 * i, low_nibbles(t[i]));
            put_words(p, lane, 64 * c + 32 + 4 * i, high_nibbles(t[i]));
        }
    }
}

// Runs of 32: |sum| <= 32 * 8 * 127 = 32512. Mild runs need no offset: |sum| <= 15 * 2047. Mild columns' weighted sums
// over 32 elements are at most 16 * 2047 = 32752, so they fit 16 bits.
enum { MILD_OF_32 = 2047 };
static void prepare_q4_k(const int16_t *const *sums, struct columns *c)
{
    for (int j = 0; j < c->n; j++) {
        put_start_of_32(c, j, sums[j], 8);
        put_restore_of_32(c, j, sums[j], 8);
        put_mins_of_16(c, j, sums[j]);
    }
}

static void prepare_mild_q4_k(const int16_t *const *sums, struct columns *c)
{
    for (int j = 0; j < c->n; j++)
        put_mins_of_32(c, j, sums[j]);
}

static void unpack_q5_k(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    (void)n_blocks;
    struct header_k4 h = load_header_k4(g, at);
    put_header_k4(p, lane, &h);
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

// Runs of 16: |sum| <= 16 * 16 * 127 = 32512. Mild runs of 32: |sum| <= 16 * 2047 = 32752.
static void prepare_q5_k(const int16_t *const *sums, struct columns *c)
{
    for (int j = 0; j < c->n; j++) {
        put_start_of_16(c, j, sums[j], 16);
        put_restore_of_16(c, j, sums[j], 16);
        put_mins_of_16(c, j, sums[j]);
    }
}

static void prepare_mild_q5_k(const int16_t *const *sums, struct columns *c)
{
    for (int j = 0; j < c->n; j++) {
        put_start_of_32(c, j, sums[j], 16);
        put_restore_of_32(c, j, sums[j], 16);
        put_mins_of_32(c, j, sums[j]);
    }
}

// ---- types with sixteen signed scales

INLINE void put_signed_scales(struct panel *p, int lane, const __m512i scales[4])
{
    for (int s = 0; s < 8; s++) {
        const __m512i four = scales[s / 2];
        _mm512_store_si512(&p->scale[s][lane], signed_pair(four, s % 2 * 2, four, s % 2 * 2 + 1));
    }
}

static void unpack_q6_k(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    (void)n_blocks;
    _mm512_store_ps(&p->d[0][lane], load_halves(g, at + 208));
    __m512i scales[4];
    load_words_16(g, at + 192, scales);
    put_signed_scales(p, lane, scales);
    for (int half = 0; half < 2; half++) { // of 128 elements, four quarters of 32
        __m512i upper[8];
        load_words_32(g, at + 128 + 32 * (size_t)half, upper);
        for (int quarter = 0; quarter < 2; quarter++) { // low nibbles; the high ones are two quarters further on
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

// Runs of 8: |sum| <= 8 * 32 * 127 = 32512. Their activations are summed up here, four at a time by vpdpbusd, then
// two such sums.
static void prepare_q6_k(const int16_t *const *sums, struct columns *c)
{
    (void)sums;
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1)), offset = _mm512_set1_epi8(32);
    const __m512i zero = _mm512_setzero_si512();
    for (int j = 0; j < c->n; j++)
        for (int i = 0; i < 2; i++) {
            const int8_t *q = c->q[j] + 2 * c->piece * (size_t)i;
            __m512i a = _mm512_dpbusd_epi32(zero, offset, load_512(q));
            __m512i b = _mm512_dpbusd_epi32(zero, offset, load_512(q + c->piece));
            __m512i sum = _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b));
            _mm512_storeu_si512(&c->start[j][16 * i], _mm512_sub_epi32(zero, sum));
        }
}

// Mild runs of 16: |sum| <= 32 * 1023 = 32736.
enum { MILD_Q6_K = 1023 };
static void prepare_mild_q6_k(const int16_t *const *sums, struct columns *c)
{
    for (int j = 0; j < c->n; j++)
        put_start_of_16(c, j, sums[j], 32);
}

// Unpacks words of two-bit elements: pair p of the bits is elements 32p .. 32p + 31 of a half. `third` has the bits
// above them, or is NULL.
INLINE void put_pairs_of_bits(struct panel *p, int lane, int half, const __m512i pairs[8], const __m512i *third)
{
    for (int bits = 0; bits < 4; bits++)
        for (int i = 0; i < 8; i++) {
            __m512i w = move_bits(pairs[i], 2, 2 * bits, 2 * bits, 0);
            if (third)
                w = _mm512_or_si512(w, move_bits(third[i], 1, 4 * half + bits, 4 * half + bits, 2));
            put_words(p, lane, 128 * half + 32 * bits + 4 * i, w);
        }
}

static void unpack_q3_k(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    (void)n_blocks;
    __m512i scales[4], third[8], pairs[8];
    _mm512_store_ps(&p->d[0][lane], load_halves(g, at + 108));
    load_scales_q3_k(g, at, scales);
    put_signed_scales(p, lane, scales);
    load_words_32(g, at, third);
    for (int half = 0; half < 2; half++) {
        load_words_32(g, at + 32 + 32 * (size_t)half, pairs);
        put_pairs_of_bits(p, lane, half, pairs, third);
    }
}

static void prepare_q3_k(const int16_t *const *sums, struct columns *c)
{
    for (int j = 0; j < c->n; j++)
        put_start_of_16(c, j, sums[j], 4);
}

// (w - 4) * scale is -124 .. 128, which plus 127 is an unsigned byte. The products of even bytes are computed, then
// those of odd bytes, which are moved above them.
static void fold_scales_q3_k(struct panel *p)
{
    const __m512i offset = _mm512_set1_epi32(127);
    for (int k = 0; k < SPAN; k += 16)
        for (int lane = 0; lane < PANEL; lane += GROUP) {
            // The scale in the lowest byte; those above are not used.
            __m512i scale = _mm512_srli_epi32(_mm512_load_si512(&p->scale[k / 32][lane]), k % 32);
            __m512i add = byte_to_all(_mm512_sub_epi32(offset, _mm512_slli_epi32(scale, 2)));
            __m512i all = byte_to_all(scale);
            __m512i even = _mm512_and_si512(all, _mm512_set1_epi16(0x00ff)), odd = _mm512_xor_si512(all, even);
            for (int i = k / 4; i < k / 4 + 4; i++) {
                __m512i w = _mm512_load_si512(p->w[i][lane]);
                __m512i above = _mm512_slli_epi16(_mm512_maddubs_epi16(w, odd), 8);
                w = _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, _mm512_maddubs_epi16(w, even), above);
                _mm512_store_si512(p->w[i][lane], _mm512_add_epi8(w, add));
            }
        }
}

static void prepare_folded_q3_k(const int16_t *const *sums, struct columns *c)
{
    for (int j = 0; j < c->n; j++)
        put_start_of_32(c, j, sums[j], 127);
}

static void unpack_q2_k(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    (void)n_blocks;
    __m512i t[4], pairs[8];
    load_words_16(g, at, t);
    for (int s = 0; s < 8; s++) {
        const int first = s % 2 * 2;
        _mm512_store_si512(&p->scale[s][lane], bytes_to_pair(low_nibbles(t[s / 2]), first, first + 1));
        _mm512_store_si512(&p->min[s][lane], bytes_to_pair(high_nibbles(t[s / 2]), first, first + 1));
    }
    load_words_16(g, at + 68, t); // the last 16 bytes are quants, d and dmin
    _mm512_store_ps(&p->d[0][lane], low_halves(t[3]));
    _mm512_store_ps(&p->m[0][lane], high_halves(t[3]));
    for (int half = 0; half < 2; half++) {
        load_words_32(g, at + 16 + 32 * (size_t)half, pairs);
        put_pairs_of_bits(p, lane, half, pairs, NULL);
    }
}

// w * scale is at most 45, so one 16-bit product computes two of them.
static void fold_scales_q2_k(struct panel *p)
{
    for (int k = 0; k < SPAN; k += 16)
        for (int lane = 0; lane < PANEL; lane += GROUP) {
            const __m512i scale = one_of_pair(_mm512_load_si512(&p->scale[k / 32][lane]), k / 16 % 2);
            for (int i = k / 4; i < k / 4 + 4; i++)
                _mm512_store_si512(p->w[i][lane], _mm512_mullo_epi16(_mm512_load_si512(p->w[i][lane]), scale));
        }
}

static void prepare_q2_k(const int16_t *const *sums, struct columns *c)
{
    for (int j = 0; j < c->n; j++)
        put_mins_of_16(c, j, sums[j]);
}

// ---- IQ4_XS: the scales are words

static void unpack_iq4_xs(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    (void)n_blocks;
    __m512i scales[2], t[4];
    _mm512_store_ps(&p->d[0][lane], load_scales_iq4_xs(g, at, scales));
    const __m512i values = values_of(&shape_iq4_nl);
    for (int s = 0; s < 8; s++) {
        __m512i word = _mm512_slli_epi32(scales[s / 4], 24 - s % 4 * 8);
        _mm512_store_si512(&p->scale[s][lane], _mm512_srai_epi32(word, 24));
    }
    for (int s = 0; s < 8; s++) {
        load_words_16(g, at + 8 + 16 * (size_t)s, t);
        for (int i = 0; i < 4; i++) {
            put_words(p, lane, 32 * s + 4 * i, look_up(&shape_iq4_nl, values, low_nibbles(t[i])));
            put_words(p, lane, 32 * s + 16 + 4 * i, look_up(&shape_iq4_nl, values, high_nibbles(t[i])));
        }
    }
}

// ---- types with blocks of 32

// The sums of 32 activations, for an offset or a minimum.
INLINE void put_starts_and_sums(const int16_t *const *sums, struct columns *c, int offset, bool mins)
{
    for (int j = 0; j < c->n; j++) {
        put_start_of_32(c, j, sums[j], offset);
        if (mins) {
            __m256i of_32 = _mm256_madd_epi16(weighted_sums(c, j, sums[j]), _mm256_set1_epi16(1));
            _mm256_storeu_ps(c->sums[j], _mm256_cvtepi32_ps(of_32));
        }
    }
}

INLINE void block_offsets(size_t at, int n, size_t bytes, size_t offset[8])
{
    for (int b = 0; b < n; b++)
        offset[b] = at + (size_t)b * bytes;
}

static void unpack_q8_0(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    size_t offset[8];
    __m512 d[8];
    block_offsets(at, n_blocks, 34, offset);
    load_heads(g, offset, n_blocks, 34, 0, d);
    for (int b = 0; b < n_blocks; b++) {
        __m512i t[8];
        _mm512_store_ps(&p->d[b][lane], d[b]);
        load_words_32(g, offset[b] + 2, t);
        for (int i = 0; i < 8; i++)
            put_words(p, lane, 32 * b + 4 * i, _mm512_xor_si512(t[i], _mm512_set1_epi8((char)0x80)));
    }
}

INLINE void unpack_nibbles(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane,
                           const struct shape *s)
{
    size_t offset[8];
    __m512 d[8], m[8];
    const __m512i values = values_of(s);
    block_offsets(at, n_blocks, (size_t)s->bytes, offset);
    load_scales(g, s, offset, n_blocks, d, m);
    for (int b = 0; b < n_blocks; b++) {
        __m512i t[4], fifth[4] = {_mm512_setzero_si512()};
        _mm512_store_ps(&p->d[b][lane], d[b]);
        if (s->m >= 0)
            _mm512_store_ps(&p->m[b][lane], m[b]);
        if (s->fifth >= 0)
            load_words_16(g, offset[b] + (size_t)s->fifth, fifth);
        load_words_16(g, offset[b] + (size_t)s->quants, t);
        for (int i = 0; i < 4; i++) {
            __m512i low = look_up(s, values, low_nibbles(t[i])), high = look_up(s, values, high_nibbles(t[i]));
            if (s->fifth >= 0) {
                low = _mm512_or_si512(low, spread_fifth_bits(fifth[0], i));
                high = _mm512_or_si512(high, spread_fifth_bits(fifth[0], 4 + i));
            }
            put_words(p, lane, 32 * b + 4 * i, low);
            put_words(p, lane, 32 * b + 16 + 4 * i, high);
        }
    }
}

#define UNPACK_NIBBLES(name)                                                                                           \
    static void unpack_##name(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)              \
    {                                                                                                                  \
        unpack_nibbles(g, at, n_blocks, p, lane, &shape_##name);                                                       \
    }
// Defines prepare_<name>. offset: of the unsigned weights. mins: whether the type has minima.
#define PREPARE(name, offset, mins)                                                                                    \
    static void prepare_##name(const int16_t *const *sums, struct columns *c)                                          \
    {                                                                                                                  \
        put_starts_and_sums(sums, c, offset, mins);                                                                    \
    }

// clang-format off
UNPACK_NIBBLES(q4_0)
UNPACK_NIBBLES(q4_1)
UNPACK_NIBBLES(q5_0)
UNPACK_NIBBLES(q5_1)
UNPACK_NIBBLES(iq4_nl)
UNPACK_NIBBLES(mxfp4)
PREPARE(offset_8, 8, false)
PREPARE(offset_12, 12, false)
PREPARE(offset_16, 16, false)
PREPARE(offset_128, 128, false)
PREPARE(mins, 0, true)

const struct unpacker ISA_FN(matmul_q8_unpacker)[DT_COUNT] = {
    [DT_Q4_0] = {.unpack = unpack_q4_0, .prepare = prepare_offset_8},
    [DT_Q4_1] = {.unpack = unpack_q4_1, .prepare = prepare_mins},
    [DT_Q5_0] = {.unpack = unpack_q5_0, .prepare = prepare_offset_16},
    [DT_Q5_1] = {.unpack = unpack_q5_1, .prepare = prepare_mins},
    [DT_Q8_0] = {.unpack = unpack_q8_0, .prepare = prepare_offset_128},
    [DT_IQ4_NL] = {.unpack = unpack_iq4_nl, .prepare = prepare_offset_128},
    [DT_IQ4_XS] = {.unpack = unpack_iq4_xs, .prepare = prepare_offset_128},
    [DT_MXFP4] = {.unpack = unpack_mxfp4, .prepare = prepare_offset_12},
    [DT_Q2_K] = {.unpack = unpack_q2_k, .prepare = prepare_q2_k, .fold_scales = fold_scales_q2_k, .prepare_folded = prepare_q2_k},
    [DT_Q3_K] = {.unpack = unpack_q3_k, .prepare = prepare_q3_k, .fold_scales = fold_scales_q3_k, .prepare_folded = prepare_folded_q3_k},
    [DT_Q4_K] = {.unpack = unpack_q4_k, .prepare = prepare_q4_k, .prepare_mild = prepare_mild_q4_k, .mild_run = 32, .mild_most = MILD_OF_32},
    [DT_Q5_K] = {.unpack = unpack_q5_k, .prepare = prepare_q5_k, .prepare_mild = prepare_mild_q5_k, .mild_run = 32, .mild_most = MILD_OF_32},
    [DT_Q6_K] = {.unpack = unpack_q6_k, .prepare = prepare_q6_k, .prepare_mild = prepare_mild_q6_k, .mild_run = 16, .mild_most = MILD_Q6_K},
    [DT_IQ1_S] = {.unpack = ISA_FN(matmul_q8_unpack_iq1_s), .prepare = ISA_FN(matmul_q8_prepare_iq1)},
    [DT_IQ1_M] = {.unpack = ISA_FN(matmul_q8_unpack_iq1_m), .prepare = ISA_FN(matmul_q8_prepare_iq1)},
    [DT_IQ2_XXS] = {.unpack = ISA_FN(matmul_q8_unpack_iq2_xxs), .prepare = ISA_FN(matmul_q8_prepare_signed_32)},
    [DT_IQ2_XS] = {.unpack = ISA_FN(matmul_q8_unpack_iq2_xs), .prepare = ISA_FN(matmul_q8_prepare_signed_16)},
    [DT_IQ2_S] = {.unpack = ISA_FN(matmul_q8_unpack_iq2_s), .prepare = ISA_FN(matmul_q8_prepare_signed_16)},
    [DT_IQ3_XXS] = {.unpack = ISA_FN(matmul_q8_unpack_iq3_xxs), .prepare = ISA_FN(matmul_q8_prepare_signed_32)},
    [DT_IQ3_S] = {.unpack = ISA_FN(matmul_q8_unpack_iq3_s), .prepare = ISA_FN(matmul_q8_prepare_signed_16)},
    [DT_TQ1_0] = {.unpack = ISA_FN(matmul_q8_unpack_tq1_0), .prepare = ISA_FN(matmul_q8_prepare_ternary)},
    [DT_TQ2_0] = {.unpack = ISA_FN(matmul_q8_unpack_tq2_0), .prepare = ISA_FN(matmul_q8_prepare_ternary)},
    [DT_Q1_0] = {.unpack = ISA_FN(matmul_q8_unpack_q1_0), .prepare = ISA_FN(matmul_q8_prepare_ternary)},
    [DT_Q2_0] = {.unpack = ISA_FN(matmul_q8_unpack_q2_0), .prepare = ISA_FN(matmul_q8_prepare_ternary)},
    [DT_NVFP4] = {.unpack = ISA_FN(matmul_q8_unpack_nvfp4), .prepare = ISA_FN(matmul_q8_prepare_nvfp4)},
};
// clang-format on

// ---- panels

// Distances of prefetches in spans, for panels of 64 rows and of 16.
enum { PREFETCH_SPANS = 2, PREFETCH_SPANS_NARROW = 3 };

// Prefetches the bytes some spans further on, or the first bytes of the rows that come next.
static void prefetch_rows(const struct matmul_args *a, const struct rows16 *g, int first, int height, int64_t span,
                          size_t bytes)
{
    int64_t spans = q8_blocks(a->k), to = span + (height == GROUP ? PREFETCH_SPANS_NARROW : PREFETCH_SPANS);
    struct rows16 after;
    if (to >= spans) {
        to = MIN(to - spans, spans - 1);
        after = rows_to_prefetch(a, first + height, height);
        g = &after;
    }
    for (int r = 0; r < GROUP; r++)
        for (size_t i = 0; i < bytes; i += 64)
            _mm_prefetch((const char *)g->at[r] + (size_t)to * bytes + i, _MM_HINT_T1);
}

void ISA_FN(matmul_q8_unpack_panel)(const struct matmul_args *a, int row, int rows, int height, int64_t span,
                                    struct panel *p)
{
    size_t bytes = dtype_row_bytes(a->type, SPAN);
    for (int r = 0; r < rows; r += GROUP) {
        struct rows16 g = rows_from(a, row + r);
        if (height > GROUP || a->reading == READING_BY_ROW)
            prefetch_rows(a, &g, row + r, height, span, bytes);
        ISA_FN(matmul_q8_unpacker)[a->type].unpack(&g, (size_t)span * bytes, blocks_in_span(a, span), p, r);
    }
}
