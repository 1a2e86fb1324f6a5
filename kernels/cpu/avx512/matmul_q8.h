// What the files of the AVX-512 8-bit matmul share: the kernels' entry points, the panel that many columns are
// multiplied with, and loads of blocks of 16 rows at once, in which lane r of a register belongs to row r.
//
// Private to kernels/cpu/avx512/ and kernels/cpu/amx/. A panel is part of the caller's scratch (one per thread). The
// functions keep no state. Nothing is read outside of the blocks that are passed.
#ifndef QUERN_AVX512_MATMUL_Q8_H
#define QUERN_AVX512_MATMUL_Q8_H

#include <immintrin.h>

#include "gguf/dtype_iq.h"
#include "kernels/cpu/level.h"

enum { GROUP = 16 }; // rows that share a register, one lane per row

// The kernels by type, NULL where there is none: in place for up to matmul_q8_in_place_columns columns (by type and
// reads_streams()), panels for three columns or more.
extern matmul_fn *const ISA_FN(matmul_q8_in_place)[DT_COUNT];
extern matmul_fn *const ISA_FN(matmul_q8_panel)[DT_COUNT];
extern const uint8_t ISA_FN(matmul_q8_in_place_columns)[DT_COUNT][2];

// The kernel that takes precedence over both on CPUs with spare_adders, and whether it serves a call with so many
// columns. It needs at least GROUP rows.
bool ISA_FN(matmul_q8_is_transposed)(enum dtype type, int64_t k, int64_t n);
void ISA_FN(matmul_q8_transposed)(const struct matmul_args *a);

// The least number of columns that are read from q8_tiles, if the caller has made these.
enum { PANEL_TILES_MIN = 32 };

enum {
    SPAN = 256,       // elements of k in a panel
    PANEL = 64,       // rows of a panel
    TILE_COLUMNS = 8, // the most columns of a panel's tile
    TILE_MOST = 9,    // the most columns of any tile
};

// A span of 64 rows, unpacked. Index r of each array belongs to row r. A type fills the arrays that its tiles read.
struct panel {
    uint8_t w[SPAN / 4][PANEL][4]; // w + offset, unsigned
    // Of each two adjacent sub-blocks an int16 pair; or, where sums need 32 bits, of each sub-block an int32.
    int32_t scale[16][PANEL];
    int32_t min[8][PANEL];          // int16 pairs for two adjacent sub-blocks
    float d[8][PANEL], m[8][PANEL]; // of the block of 256, or of its blocks of 32
    // The cache lines of the rows below that a tile of 16 rows prefetches while it multiplies; used where streams are
    // read.
    const uint8_t *prefetch;
    int prefetch_count;
};

// Stores elements k .. k + 3 of 16 rows.
INLINE void put_words(struct panel *p, int lane, int k, __m512i w)
{
    _mm512_store_si512(p->w[k / 4][lane], w);
}

// Which runs of products are summed up before they are scaled:
//   RUNS_ANY     runs that no activations overflow
//   RUNS_MILD    longer runs, for columns whose sums of magnitudes are small enough
//   RUNS_FOLDED  runs of 32, whose sums need 32 bits: the panel's weights have been multiplied by their scales
enum run_form { RUNS_ANY, RUNS_MILD, RUNS_FOLDED, RUNS_COUNT };

// What tiles read of some columns in a span. Index j of the arrays is column j of the tile.
struct columns {
    int n;
    enum run_form run_form;
    const int8_t *q[TILE_MOST]; // in pieces of 64 elements, `piece` bytes from one piece to the next
    size_t piece;
    const float *da;
    float own_da[TILE_MOST]; // used where the columns are not in tiles; da points here
    // The steps of the activations: at first eight int16, then as arrange_steps (avx512/tile.h) leaves them, eight
    // words or floats.
    union {
        int32_t steps[TILE_MOST][8];
        float step_floats[TILE_MOST][8];
    };
    // Computed by the type's `prepare`. Weighted sums are sums of q times their steps.
    int32_t start[TILE_MOST][32]; // of each run of elements: -offset * sum(q)
    union {
        struct {
            int32_t mins[TILE_MOST][8];    // pairs of weighted sums over 16 elements, or over 32, as minima need them
            int32_t restore[TILE_MOST][8]; // pairs of adjacent runs: offset * sum(q)
        };
        struct {                      // of types with blocks of 32
            float sums[TILE_MOST][8]; // weighted, over 32 elements
            float lift[TILE_MOST][8]; // see STEPS_FLOAT in avx512/tile.h
        };
    };
};

struct rows16;
// Computes what tiles of a type read of columns, from `sums` (by column, over 16 elements) and the steps.
typedef void prepare_columns_fn(const int16_t *const *sums, struct columns *c);

// How a type fills its panel and prepares columns, by type. Functions are NULL where the type has none.
struct unpacker {
    // Unpacks 16 rows' bytes from `at` on into the panel's rows from `lane` on. Of types with blocks of 32, n_blocks
    // are valid.
    void (*unpack)(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane);
    prepare_columns_fn *prepare; // NULL: there is nothing to compute
    // The same for RUNS_MILD: for columns whose magnitudes, summed up over each run of mild_run elements (16 or 32;
    // 0: the type has no such runs), are at most mild_most.
    prepare_columns_fn *prepare_mild;
    int mild_run, mild_most;
    // For RUNS_FOLDED: fold_scales multiplies the weights of a panel by their scales (NULL: the products do not fit
    // bytes, so the type has no such runs), prepare_folded prepares the columns.
    void (*fold_scales)(struct panel *p);
    prepare_columns_fn *prepare_folded;
};
extern const struct unpacker ISA_FN(matmul_q8_unpacker)[DT_COUNT];

// How types with codebooks, of three values, and with factors of runs prepare columns: avx512/codebook_panel.c.
extern prepare_columns_fn ISA_FN(matmul_q8_prepare_signed_16), ISA_FN(matmul_q8_prepare_signed_32),
    ISA_FN(matmul_q8_prepare_iq1), ISA_FN(matmul_q8_prepare_ternary), ISA_FN(matmul_q8_prepare_nvfp4);

// Up to seven columns in place: avx512/in_place_256.c and avx512/in_place_32.c.
#define IN_PLACE(name) void ISA_FN(matmul_q8_in_place_##name)(const struct matmul_args *a);
// clang-format off
IN_PLACE(q4_0) IN_PLACE(q4_1) IN_PLACE(q5_0) IN_PLACE(q5_1) IN_PLACE(q8_0) IN_PLACE(iq4_nl) IN_PLACE(mxfp4)
IN_PLACE(q2_k) IN_PLACE(q3_k) IN_PLACE(q4_k) IN_PLACE(q5_k) IN_PLACE(q6_k) IN_PLACE(iq4_xs)
// clang-format on
#undef IN_PLACE

// Types with codebooks, of three values, and with factors of runs: avx512/codebook.c, avx512/codebook_panel.c,
// avx512/runs.c.
// clang-format off
#define CODEBOOK(name)                                                                                                 \
    void ISA_FN(matmul_q8_in_place_##name)(const struct matmul_args *a);                                               \
    void ISA_FN(matmul_q8_unpack_##name)(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
CODEBOOK(iq1_s); CODEBOOK(iq1_m); CODEBOOK(iq2_xxs); CODEBOOK(iq2_xs); CODEBOOK(iq2_s); CODEBOOK(iq3_xxs);
CODEBOOK(iq3_s); CODEBOOK(tq1_0); CODEBOOK(tq2_0); CODEBOOK(q1_0); CODEBOOK(q2_0); CODEBOOK(nvfp4);
// clang-format on
#undef CODEBOOK

// Prepares columns first .. first + n - 1 of this span for a tile of `width` columns, except that their steps are still
// to be arranged (arrange_steps). If width is more than n, the columns that follow in the buffer are prepared too, and
// their results are not used.
void ISA_FN(matmul_q8_prepare_columns)(const struct matmul_args *a, int first, int n, int width, int64_t span,
                                       bool folded, struct columns *c);

// Unpacks rows row .. row + rows - 1 of this span, 16 at a time. It also prefetches bytes of later spans, or at a
// row's end those of the rows `height` further down, unless the tiles prefetch.
void ISA_FN(matmul_q8_unpack_panel)(const struct matmul_args *a, int row, int rows, int height, int64_t span,
                                    struct panel *p);

// The blocks of 16 rows. Where a matrix ends within a group, the last row is repeated, and what is computed for the
// repetitions is not stored.
struct rows16 {
    const uint8_t *at[GROUP];
};

INLINE struct rows16 rows_from(const struct matmul_args *a, int first)
{
    struct rows16 g;
    for (int r = 0; r < GROUP; r++)
        g.at[r] = (const uint8_t *)a->w + (size_t)MIN(first + r, a->n_rows - 1) * a->w_stride;
    return g;
}

// The rows from `first` on, only to prefetch them. Past the last panel of `height` rows these are the caller's next
// rows, or, where those are not known, rows that are in the cache already.
INLINE struct rows16 rows_to_prefetch(const struct matmul_args *a, int first, int height)
{
    int end = (a->n_rows + height - 1) / height * height;
    if (first < end || !a->next)
        return rows_from(a, MIN(first, a->n_rows - 1));
    struct rows16 g;
    for (int r = 0; r < GROUP; r++)
        g.at[r] = (const uint8_t *)a->next + (size_t)(first - end + r) * a->next_stride;
    return g;
}

INLINE __mmask16 rows_mask(const struct matmul_args *a, int first)
{
    return a->n_rows - first >= GROUP ? 0xffff : (__mmask16)((1u << (a->n_rows - first)) - 1);
}

// The number of blocks of 32 that a row has in this span.
INLINE int blocks_in_span(const struct matmul_args *a, int64_t span)
{
    return (int)MIN((a->k - span * SPAN) / 32, SPAN / 32);
}

INLINE __m512i load_512(const void *p)
{
    return _mm512_loadu_si512(p);
}

INLINE __m256i load_256(const void *p)
{
    return _mm256_loadu_si256(p);
}

INLINE __m128i load_128(const void *p)
{
    return _mm_loadu_si128(p);
}

// Two runs of 32 bytes in one register, and four of 16 bytes. (A masked broadcast from memory runs on any port; an
// insert would need the shuffle port.)
INLINE __m512i load_2x32(const void *low, const void *high)
{
    return _mm512_mask_broadcast_i64x4(_mm512_castsi256_si512(load_256(low)), 0xf0, load_256(high));
}

INLINE __m512i load_4x16(const void *p0, const void *p1, const void *p2, const void *p3)
{
    __m512i v = _mm512_castsi128_si512(load_128(p0));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load_128(p1));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load_128(p2));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, load_128(p3));
}

// The matrix with which _mm512_gf2p8affine_epi64_epi8 moves n bits from bit `from` of a byte to bit `to` and clears
// the others: one instruction for a shift and a mask. Row 7 - i of the matrix makes bit i.
INLINE long long bit_matrix(int n, int from, int to)
{
    uint64_t matrix = 0;
    for (int i = 0; i < n; i++)
        matrix |= (UINT64_C(1) << (from + i)) << 8 * (7 - to - i);
    return (long long)matrix;
}

// Moves n bits of each byte to bit `to`. They start at bit `low`, in the upper half of the register at bit `high`.
INLINE __m512i move_bits(__m512i v, int n, int low, int high, int to)
{
    __m512i rows = _mm512_set1_epi64(bit_matrix(n, low, to));
    if (low != high)
        rows = _mm512_mask_set1_epi64(rows, 0xf0, bit_matrix(n, high, to));
    return _mm512_gf2p8affine_epi64_epi8(v, rows, 0);
}

// The same with a start bit for each eight bytes: hexadecimal digit i of `from` is that of bytes 8i .. 8i + 7.
INLINE __m512i move_bits_of_8(__m512i v, int n, uint32_t from, int to)
{
// clang-format off
#define ROWS(i) bit_matrix(n, (int)(from >> 4 * (i) & 15), to)
    // clang-format on
    const __m512i rows = _mm512_setr_epi64(ROWS(0), ROWS(1), ROWS(2), ROWS(3), ROWS(4), ROWS(5), ROWS(6), ROWS(7));
#undef ROWS
    return _mm512_gf2p8affine_epi64_epi8(v, rows, 0);
}

// (a & mask) | b
INLINE __m512i masked_or(__m512i a, int mask, __m512i b)
{
    return _mm512_ternarylogic_epi64(a, _mm512_set1_epi8((char)mask), b, 0xea);
}

INLINE __m512i low_nibbles(__m512i v)
{
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}

INLINE __m512i high_nibbles(__m512i v)
{
    return move_bits(v, 4, 4, 4, 0);
}

// Broadcasts a four-byte word to all lanes.
INLINE __m512i broadcast_32(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof(v));
    return _mm512_set1_epi32(v);
}

// Broadcasts eight bytes to all lanes of 64 bits.
INLINE __m512i broadcast_64(const void *p)
{
    int64_t v;
    memcpy(&v, p, sizeof(v));
    return _mm512_set1_epi64(v);
}

// Transposes 4 x 4 words in each quarter: word i of quarter j of t[k] is word k of quarter j of v[i].
INLINE void transpose_words_16(const __m512i v[4], __m512i t[4])
{
    const __m512i u[4] = {_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]),
                          _mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3])};
    t[0] = _mm512_unpacklo_epi64(u[0], u[2]);
    t[1] = _mm512_unpackhi_epi64(u[0], u[2]);
    t[2] = _mm512_unpacklo_epi64(u[1], u[3]);
    t[3] = _mm512_unpackhi_epi64(u[1], u[3]);
}

// Lane r of t[j] is word j of the 16 bytes at `at` in row r.
INLINE void load_words_16(const struct rows16 *g, size_t at, __m512i t[4])
{
    __m512i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = load_4x16(g->at[i] + at, g->at[4 + i] + at, g->at[8 + i] + at, g->at[12 + i] + at);
    transpose_words_16(v, t);
}

// Lane r of t[j] is word j of the 32 bytes at `at` in row r.
INLINE void load_words_32(const struct rows16 *g, size_t at, __m512i t[8])
{
    __m512i v[8], u[8];
    for (int i = 0; i < 8; i++) { // rows 0-3 with 4-7, then 8-11 with 12-15
        int row = i / 4 * 8 + i % 4;
        v[i] = load_2x32(g->at[row] + at, g->at[row + 4] + at);
    }
    for (int i = 0; i < 8; i += 4) {
        __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]), b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
        __m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]), d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
        u[i] = _mm512_unpacklo_epi64(a, c);
        u[i + 1] = _mm512_unpackhi_epi64(a, c);
        u[i + 2] = _mm512_unpacklo_epi64(b, d);
        u[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int j = 0; j < 4; j++) {
        t[j] = _mm512_shuffle_i32x4(u[j], u[4 + j], 0x88);
        t[4 + j] = _mm512_shuffle_i32x4(u[j], u[4 + j], 0xdd);
    }
}

// Products of 64 bytes in planes of bytes (see amx/panel.h): product = 64 * high + low, 0 <= low < 64.
struct planes {
    __m512i high, low;
};

// Splits products of 16 bits, -4096 .. 4096. even: those of the even bytes; odd: those of the odd ones.
INLINE struct planes split_products(__m512i even, __m512i odd)
{
    const __mmask64 odd_bytes = 0xaaaaaaaaaaaaaaaa;
    const __m512i both = _mm512_mask_blend_epi8(odd_bytes, even, _mm512_bslli_epi128(odd, 1));
    return (struct planes){
        _mm512_mask_blend_epi8(odd_bytes, _mm512_srai_epi16(even, 6), _mm512_slli_epi16(odd, 2)),
        _mm512_and_si512(both, _mm512_set1_epi8(63)),
    };
}

// Stores the eight words of run `run` of those of the 16 columns that are in `lanes`: the quants, and the planes of
// their products with the steps, which are in w already.
INLINE void store_run(const __m512i v[8], int run, __mmask16 lanes, struct q8_words *w)
{
    const __m512i step = _mm512_cvtps_epi32(_mm512_load_ps(w->steps[run]));
    const __m512i even = _mm512_or_si512(step, _mm512_slli_epi32(step, 16)), odd = _mm512_slli_epi16(even, 8);
    UNROLL_FOR (int i = 0; i < 8; i++) {
        const int t = run / 2, word = run % 2 * 8 + i;
        const struct planes p = split_products(_mm512_maddubs_epi16(even, v[i]), _mm512_maddubs_epi16(odd, v[i]));
        _mm512_mask_store_epi32(w->words[t][word], lanes, v[i]);
        _mm512_mask_store_epi32(w->planes[PLANE_HIGH][t][word], lanes, p.high);
        _mm512_mask_store_epi32(w->planes[PLANE_LOW][t][word], lanes, p.low);
        _mm512_mask_store_epi32(w->planes[PLANE_DIFFERENCE][t][word], lanes, _mm512_sub_epi8(p.low, p.high));
    }
}

// Stores the quants of 16 columns in a span, each column's 256 bytes from `at` on, as interleaved words, and their
// planes: those of the columns in `lanes`. Their steps are in w already.
INLINE void store_words(const struct rows16 *columns, size_t at, __mmask16 lanes, struct q8_words *w)
{
    for (int run = 0; run < Q8_RUNS; run++) {
        __m512i v[8];
        load_words_32(columns, at + Q8_RUN * (size_t)run, v);
        store_run(v, run, lanes, w);
    }
}

// Bytes `low` and `high` of each word, as two int16.
INLINE __m512i bytes_to_pair(__m512i words, int low, int high)
{
    __m512i base = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    __m512i pick = _mm512_set1_epi32((int)(0x80008000u | (unsigned)high << 16 | (unsigned)low));
    return _mm512_shuffle_epi8(words, _mm512_add_epi8(base, pick));
}

// Byte `low` of each word and byte `high` of the word of the other register, as two signed int16.
INLINE __m512i signed_pair(__m512i words, int low, __m512i others, int high)
{
    const __m512i of_low = _mm512_slli_epi32(words, 24 - 8 * low), of_high = _mm512_slli_epi32(others, 24 - 8 * high);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(_mm512_srai_epi16(of_low, 8), 16),
                                   _mm512_srai_epi16(of_high, 8));
}

// Copies int16 i of each pair to both.
INLINE __m512i one_of_pair(__m512i pairs, int i)
{
    __m512i base = _mm512_set4_epi32(0x0d0c0d0c, 0x09080908, 0x05040504, 0x01000100);
    return _mm512_shuffle_epi8(pairs, _mm512_add_epi8(base, _mm512_set1_epi8((char)(2 * i))));
}

// Byte i of each word, as an unsigned number.
INLINE __m512i byte_to_word(__m512i words, int i)
{
    __m512i base = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    return _mm512_shuffle_epi8(words, _mm512_add_epi8(base, _mm512_set1_epi32((int)(0x80808000u | (unsigned)i))));
}

#endif
