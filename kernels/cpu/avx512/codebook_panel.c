// Unpacks blocks to panels (see avx512/panel.c) for many columns: of types with a codebook (IQ1, IQ2, IQ3), of three
// values (TQ1_0, TQ2_0), and of few bits with a factor for a run of elements (Q1_0, Q2_0, NVFP4).
//
// Blocks are unpacked one row at a time (avx512/codebook_unpack.h). Then 16 rows of bytes are transposed, so that
// there is one lane per row. avx512/unpack.c has these functions in its table matmul_q8_unpacker.
#include "kernels/cpu/avx512/codebook_unpack.h"

// The weights of 16 rows, a byte each, and their scales, before they are transposed. 16 consecutive bytes are the
// elements of a run of 16; the order of the runs is up to the type.
struct spread {
    _Alignas(64) uint8_t w[GROUP][SPAN];
    _Alignas(64) int32_t scale[GROUP][16];
};

// The position of each run of 16 elements, in units of 16 bytes.
static const uint8_t runs_in_order[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const uint8_t runs_of_quads[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
static const uint8_t runs_of_eights[16] = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};

INLINE void put_spread(const struct spread *s, struct panel *p, int lane, const uint8_t run_at[16])
{
    struct rows16 rows;
    __m512i t[4];
    for (int r = 0; r < GROUP; r++)
        rows.at[r] = s->w[r];
    for (int c = 0; c < 16; c++) {
        load_words_16(&rows, (size_t)run_at[c] * 16, t);
        for (int i = 0; i < 4; i++)
            put_words(p, lane, 16 * c + 4 * i, t[i]);
    }
}

// How the scales, which are positive, are stored: each of 16; each of 32 elements; or as int16 pairs of two of 16.
enum spacing { EACH_OF_16, EACH_OF_32, PAIRS_OF_16 };

INLINE void put_spread_scales(const struct spread *s, struct panel *p, int lane, enum spacing spacing)
{
    const int apart = spacing == EACH_OF_16 ? 1 : 2;
    struct rows16 rows;
    __m512i t[4];
    for (int r = 0; r < GROUP; r++)
        rows.at[r] = (const uint8_t *)s->scale[r];
    for (int i = 0; i < 4; i++) {
        load_words_16(&rows, (size_t)i * 16, t);
        for (int l = 0; l < 4; l += apart) {
            if (spacing == PAIRS_OF_16)
                t[l] = _mm512_or_si512(t[l], _mm512_slli_epi32(t[l + 1], 16));
            _mm512_store_si512(&p->scale[(4 * i + l) / apart][lane], t[l]);
        }
    }
}

// Interleaves four registers of quads to 16 runs: run c is at byte 64 (c % 4) + 16 (c / 4).
INLINE void store_quads(const __m512i w[4], uint8_t *to)
{
    const __m512i a = _mm512_unpacklo_epi8(w[0], w[1]), b = _mm512_unpackhi_epi8(w[0], w[1]);
    const __m512i c = _mm512_unpacklo_epi8(w[2], w[3]), d = _mm512_unpackhi_epi8(w[2], w[3]);
    _mm512_store_si512(to, _mm512_unpacklo_epi16(a, c));
    _mm512_store_si512(to + 64, _mm512_unpackhi_epi16(a, c));
    _mm512_store_si512(to + 128, _mm512_unpacklo_epi16(b, d));
    _mm512_store_si512(to + 192, _mm512_unpackhi_epi16(b, d));
}

INLINE void unpack_quads(const struct rows16 *g, size_t at, struct panel *p, int lane, quads_fn *quads,
                         unsigned_fn *make_unsigned, factor_fn *factor, enum spacing spacing)
{
    struct spread s;
#pragma GCC unroll 1
    for (int r = 0; r < GROUP; r += 2) {
        struct quads rows[2];
        __m512i w[4];
        quads(g->at[r] + at, g->at[r + 1] + at, rows);
        UNROLL_FOR (int i = 0; i < 2; i++) {
            make_unsigned(&rows[i], w);
            store_quads(w, s.w[r + i]);
            _mm512_store_si512(s.scale[r + i], rows[i].scale);
        }
    }
    put_spread_scales(&s, p, lane, spacing);
    put_spread(&s, p, lane, runs_of_quads);
    _mm512_store_ps(&p->d[0][lane], factor(g, at));
}

// Defines matmul_q8_unpack_<name>. kind: unsigned_<kind>. factor: factor_<factor>.
#define UNPACK(name, kind, factor, spacing)                                                                            \
    void ISA_FN(matmul_q8_unpack_##name)(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)   \
    {                                                                                                                  \
        (void)n_blocks;                                                                                                \
        unpack_quads(g, at, p, lane, quads_##name, unsigned_##kind, factor_##factor, spacing);                         \
    }

// clang-format off
UNPACK(iq2_xxs, signed, eighth, EACH_OF_32)
UNPACK(iq2_xs, signed, eighth, EACH_OF_16)
UNPACK(iq2_s, signed, eighth, EACH_OF_16)
UNPACK(iq3_xxs, signed, quarter, EACH_OF_32)
UNPACK(iq3_s, signed, one, PAIRS_OF_16)
UNPACK(iq1_s, iq1, eighth, PAIRS_OF_16)
UNPACK(iq1_m, iq1, iq1_m, PAIRS_OF_16)
// clang-format on

// For types without scales.
INLINE void put_ternary(const struct spread *s, struct panel *p, int lane, __m512 d)
{
    put_spread(s, p, lane, runs_in_order);
    _mm512_store_ps(&p->d[0][lane], d);
}

void ISA_FN(matmul_q8_unpack_tq2_0)(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    (void)n_blocks;
    struct spread s;
    for (int r = 0; r < GROUP; r++) {
        __m512i w[4];
        digits_tq2_0(g->at[r] + at, w);
        for (int i = 0; i < 4; i++) {
            _mm256_store_si256((__m256i *)&s.w[r][32 * i], _mm512_castsi512_si256(w[i]));
            _mm256_store_si256((__m256i *)&s.w[r][128 + 32 * i], _mm512_extracti64x4_epi64(w[i], 1));
        }
    }
    put_ternary(&s, p, lane, factor_tq2_0(g, at));
}

void ISA_FN(matmul_q8_unpack_tq1_0)(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    (void)n_blocks;
    struct spread s;
    for (int r = 0; r < GROUP; r++) {
        __m512i w[5];
        digits_tq1_0(g->at[r] + at, w);
        for (int i = 0; i < 5; i++) {
            __m256i high = _mm512_extracti64x4_epi64(w[i], 1);
            _mm256_store_si256((__m256i *)&s.w[r][32 * i], _mm512_castsi512_si256(w[i]));
            _mm_store_si128((__m128i *)&s.w[r][160 + 16 * i], _mm256_castsi256_si128(high));
            if (i < 4)
                _mm_storeu_si32(&s.w[r][240 + 4 * i], _mm256_extracti128_si256(high, 1));
        }
    }
    put_ternary(&s, p, lane, factor_tq1_0(g, at));
}

INLINE void put_starts(const int16_t *const *sums, struct columns *c, int run, int offset)
{
    for (int j = 0; j < c->n; j++)
        starts_of_runs(sums[j], run, offset, c->start[j]);
}

// Defines matmul_q8_prepare_<name>. run: elements of a run. offset: of the unsigned weights.
#define PREPARE(name, run, offset)                                                                                     \
    void ISA_FN(matmul_q8_prepare_##name)(const int16_t *const *sums, struct columns *c)                               \
    {                                                                                                                  \
        put_starts(sums, c, run, offset);                                                                              \
    }

// clang-format off
PREPARE(signed_16, 16, SIGN_OFFSET)
PREPARE(signed_32, 32, SIGN_OFFSET)
PREPARE(iq1, 16, SHIFT_OFFSET)
PREPARE(ternary, 32, TERNARY_OFFSET)
// clang-format on

// ---- Q1_0, Q2_0, NVFP4: a span is 2, 4 or 4 blocks, or as many of them as are left in a row

// The offsets of the blocks of `size` elements in a span. For blocks past the end of the row, the last block is used
// again.
INLINE void blocks_of(size_t at, int n_blocks, int size, size_t bytes, size_t offset[])
{
    for (int j = 0; j < SPAN / size; j++)
        offset[j] = at + (size_t)MIN(j, n_blocks * 32 / size - 1) * bytes;
}

// Stores the factor of each `size` elements for each 32 of them.
INLINE void put_shared_factors(const struct rows16 *g, struct panel *p, int lane, int size, const size_t offset[])
{
    for (int i = 0; i < SPAN / 32; i++)
        _mm512_store_ps(&p->d[i][lane], load_halves(g, offset[i * 32 / size]));
}

// Weights are 1 or -1, stored plus 1.
void ISA_FN(matmul_q8_unpack_q1_0)(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    struct spread s;
    size_t offset[2];
    blocks_of(at, n_blocks, 128, 18, offset);
    for (int r = 0; r < GROUP; r++)
        for (int i = 0; i < 4; i++) {
            uint64_t bits;
            memcpy(&bits, g->at[r] + offset[i / 2] + 2 + i % 2 * 8, sizeof(bits));
            _mm512_store_si512(&s.w[r][64 * i], _mm512_maskz_set1_epi8(bits, 2));
        }
    put_spread(&s, p, lane, runs_in_order);
    put_shared_factors(g, p, lane, 128, offset);
}

// A byte has four consecutive weights, -1 to 2, stored plus 1.
void ISA_FN(matmul_q8_unpack_q2_0)(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    struct spread s;
    size_t offset[4];
    blocks_of(at, n_blocks, 64, 18, offset);
    for (int r = 0; r < GROUP; r++) {
        const uint8_t *b = g->at[r] + 2;
        const __m512i code = load_4x16(b + offset[0], b + offset[1], b + offset[2], b + offset[3]);
        __m512i w[4];
        UNROLL_FOR (int e = 0; e < 4; e++)
            w[e] = move_bits(code, 2, 2 * e, 2 * e, 0);
        store_quads(w, s.w[r]);
    }
    put_spread(&s, p, lane, runs_of_quads);
    put_shared_factors(g, p, lane, 64, offset);
}

// Eight bytes of nibbles are 16 elements, the low nibbles first. Their factors are stored where other types have
// scales.
void ISA_FN(matmul_q8_unpack_nvfp4)(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    struct spread s;
    size_t offset[4];
    blocks_of(at, n_blocks, 64, 36, offset);
    const __m512i values = values_of(&shape_mxfp4);
    for (int r = 0; r < GROUP; r++)
        for (int i = 0; i < 2; i++) {
            const uint8_t *b = g->at[r] + 4;
            const __m512i v = load_2x32(b + offset[2 * i], b + offset[2 * i + 1]);
            const __m512i low = _mm512_shuffle_epi8(values, low_nibbles(v));
            const __m512i high = _mm512_shuffle_epi8(values, high_nibbles(v));
            _mm512_store_si512(&s.w[r][128 * i], _mm512_unpacklo_epi64(low, high));
            _mm512_store_si512(&s.w[r][128 * i + 64], _mm512_unpackhi_epi64(low, high));
        }
    put_spread(&s, p, lane, runs_of_eights);
    for (int j = 0; j < 4; j++) {
        const __m512i words = gather_words(g, offset[j]);
        for (int i = 0; i < 4; i++)
            _mm512_store_ps(p->scale[4 * j + i] + lane, factors_nvfp4(byte_to_word(words, i)));
    }
}

PREPARE(nvfp4, 16, FP4_OFFSET)
