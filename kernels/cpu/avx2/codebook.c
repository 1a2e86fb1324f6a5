// Matmul of any number of columns by AVX2 of types with a codebook (IQ1, IQ2, IQ3).
//
// The naive loop (matmul_q8_scalar.c): for each row, column and block of 256, isum = sum of scale[j] * (w . q)[j]; D
// = fma(isum * d, da, D). An entry of a codebook is 4 or 8 elements of one row. So here, unlike
// in the kernels of other types, a register holds elements of one row in their order, and activations keep theirs.
// Most of the work is looking entries up:
//   - The indices of a block, brought to 16 bits where they are not bytes, are looked up one by one, and the bits of
//     signs are spread to bytes, 32 at a time.
//   - Up to four columns are multiplied while a block is unpacked, and the signs are applied to the activations. IQ1
//     has shifts of 8 or 32 elements instead of signs; these are multiplied by the sums of the activations.
//   - For more columns, a block of 16 rows is unpacked to bytes, and all columns are multiplied with them while they
//     are in the L1 cache. The bytes are w + offset, unsigned, and at most 124, so that the sum of two products fits
//     16 bits. 32 products take a vpmaddubsw, a vpmaddwd by the scales times the step, and an add; with AVX-VNNI the
//     last two are one operation. The scales of a block are multiplied by the steps of a column at once, and vpshufb
//     brings those of a run to its lanes. Sums start with minus the offset times the scales times the sums of the
//     activations, which is one vpmaddwd more per block.
//   - Four outputs, four columns of a row or four rows of one column, are added up across lanes together.
#include "gguf/dtype_iq.h"
#include "kernels/cpu/avx2/matmul_q8.h"

enum {
    RUNS = 8,           // runs of 32 elements in a block
    AT_ONCE = 4,        // outputs that are added up across lanes together
    COLUMNS_FEW = 4,    // up to so many columns, a block is multiplied while it is unpacked
    ROWS_FEW = AT_ONCE, // rows that are multiplied together then
    ROWS = 16,          // the same for more columns
    COLUMNS_MAX = 2048, // the most columns that unpacked rows are multiplied with
};
// The offsets are the largest magnitudes of the weights.
enum { OFFSET_IQ1 = 9, OFFSET_IQ2 = 43, OFFSET_IQ3_XXS = 62, OFFSET_IQ3_S = 15 };

// A block of a row, unpacked.
struct block {
    __m256i w[RUNS]; // bytes: w + offset
    __m256i scales;  // as scales_by_half returns them
    __m256i start;   // int16: -offset * scale, of each 16 elements
    float d;
};

// The fields of a block, before its entries are looked up. A type sets `byte` or `index`, and `scale` or `scales`.
struct codes {
    const uint8_t *byte;   // indices of 4 or 8 elements each, which are bytes of the block
    uint16_t index[64];    // indices of more bits
    uint32_t signs[RUNS];  // one bit per element, 1: negative; of IQ1 one byte per 8 elements, all ones: shifted down
    __m128i scale;         // bytes, of each 16 elements
    uint32_t scales[RUNS]; // of each 32 elements: the int16 twice
};

// A block of 256 of a column.
struct activations {
    const int8_t *q;
    __m256i steps;          // int16: of each run, once in each half
    __m256i sums;           // int16: of each 16 elements, times their steps
    const int16_t *eighths; // of each 8 elements, times their steps (IQ1_M)
};

typedef void codes_fn(const uint8_t *b, struct codes *out);
typedef __m256i entries_fn(const struct codes *c, int j); // the codebook's values of run j, unsigned
typedef __m256i start_fn(const struct codes *c, struct activations x);
typedef __m256i weights_fn(const struct codes *c, int j); // w + offset of run j
typedef uint16_t half_fn(const uint8_t *b);

// ---- indices, signs and scales

// Constants are loaded from memory. Otherwise the compiler makes them again in each turn of a loop, by three
// instructions.
static const uint64_t low_nibbles = 0x0f0f0f0f0f0f0f0f, seven_bits = 0x7f7f7f7f7f7f7f7f, ones = 0x0101010101010101;
static const uint64_t own_bits = 0x8040201008040201; // byte i: bit i
static const uint64_t to_128 = 0x01406070787c7e7f;   // the difference from own_bits to 128, and 1 where that is 0

INLINE __m256i repeated(const uint64_t *eight)
{
    __m256i v;
    __asm__("vpbroadcastq %1, %0" : "=x"(v) : "m"(*eight));
    return v;
}

// Restores the order of quarters after an operation that interleaves two registers within halves.
INLINE __m256i in_order(__m256i halves)
{
    return _mm256_permute4x64_epi64(halves, 0xd8);
}

// Indices are read from memory one by one. Without the empty instruction the compiler extracts them from registers.
INLINE void store_indices(__m256i v, uint16_t index[16])
{
    _mm256_storeu_si256((__m256i *)index, v);
    __asm__("" : "+m"(*(uint16_t(*)[16])index));
}

// Stores 32 indices from their low bytes and the bits above these, one byte each.
INLINE void put_indices(__m256i low, __m256i high, uint16_t index[32])
{
    const __m256i l = in_order(low), h = in_order(high);
    store_indices(_mm256_unpacklo_epi8(l, h), index);
    store_indices(_mm256_unpackhi_epi8(l, h), index + 16);
}

// Adds the eighth sign, which is not stored: bit 7 of each byte makes the number of its signs even.
INLINE __m256i with_eighth_sign(__m256i seven)
{
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i folded = _mm256_xor_si256(seven, _mm256_srli_epi16(seven, 4));
    const __m256i eighth = _mm256_shuffle_epi8(odd, _mm256_and_si256(folded, repeated(&low_nibbles)));
    return _mm256_or_si256(seven, eighth);
}

// Scales are 2s + 1. odd_bytes takes bytes s, of each 16 elements; put_scales takes words 2s, of each 32, whose lowest
// bit is ignored.
INLINE __m128i odd_bytes(__m128i s)
{
    return _mm_or_si128(_mm_add_epi8(s, s), _mm_set1_epi8(1));
}

INLINE void put_scales(__m256i twice, uint32_t scales[RUNS])
{
    const __m256i odd = _mm256_or_si256(twice, _mm256_set1_epi32(1));
    _mm256_storeu_si256((__m256i *)scales, _mm256_or_si256(odd, _mm256_slli_epi32(odd, 16)));
}

// Unpacks eight words, each of four times seven signs from the lowest bit on and, in the top four bits, the scale of 32
// elements.
INLINE void unpack_signs_and_scales(__m256i words, struct codes *out)
{
    __m256i bytes = words;
    UNROLL_FOR (int gap = 7; gap < 31; gap += 8) // moves all bits above the gap up by one
        bytes = _mm256_add_epi32(bytes, _mm256_and_si256(bytes, _mm256_set1_epi32((int)(~0u << gap))));
    bytes = _mm256_and_si256(bytes, repeated(&seven_bits));
    _mm256_storeu_si256((__m256i *)out->signs, with_eighth_sign(bytes));
    put_scales(_mm256_srli_epi32(words, 27), out->scales); // its lowest bit is a sign
}

// Sixteen nibbles as bytes, the low nibble of each byte first.
INLINE __m128i nibbles_16(const uint8_t *p)
{
    const __m128i v = _mm_loadl_epi64((const __m128i *)p), mask = _mm_set1_epi8(15);
    return _mm_unpacklo_epi8(_mm_and_si128(v, mask), _mm_and_si128(_mm_srli_epi16(v, 4), mask));
}

INLINE void codes_iq2_xxs(const uint8_t *b, struct codes *out)
{
    const __m256 first = _mm256_castsi256_ps(load_256(b + 2)), second = _mm256_castsi256_ps(load_256(b + 34));
    out->byte = b + 2;
    unpack_signs_and_scales(in_order(_mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xdd))), out);
}

INLINE void codes_iq2_xs(const uint8_t *b, struct codes *out)
{
    const __m256i first = load_256(b + 2), second = load_256(b + 34), mask = _mm256_set1_epi16(511);
    store_indices(_mm256_and_si256(first, mask), out->index);
    store_indices(_mm256_and_si256(second, mask), out->index + 16);
    const __m256i seven = in_order(_mm256_packus_epi16(_mm256_srli_epi16(first, 9), _mm256_srli_epi16(second, 9)));
    _mm256_storeu_si256((__m256i *)out->signs, with_eighth_sign(seven));
    out->scale = odd_bytes(nibbles_16(b + 66));
}

INLINE void codes_iq2_s(const uint8_t *b, struct codes *out)
{
    const __m256i bits = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(b + 66)));
    __m256i high = _mm256_or_si256(bits, _mm256_slli_epi32(bits, 6));
    high = _mm256_or_si256(high, _mm256_slli_epi32(high, 12));
    put_indices(load_256(b + 2), _mm256_and_si256(high, _mm256_set1_epi8(3)), out->index);
    memcpy(out->signs, b + 34, sizeof(out->signs));
    out->scale = odd_bytes(nibbles_16(b + 74));
}

INLINE void codes_iq3_xxs(const uint8_t *b, struct codes *out)
{
    out->byte = b + 2;
    unpack_signs_and_scales(load_256(b + 66), out);
}

// Byte i is all ones where bit i of the 32 bits is set.
INLINE __m256i mask_of(const void *bits)
{
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i own = repeated(&own_bits), v = _mm256_shuffle_epi8(broadcast_32(bits), byte);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, own), own);
}

INLINE void codes_iq3_s(const uint8_t *b, struct codes *out)
{
    const __m256i one = repeated(&ones);
    put_indices(load_256(b + 2), _mm256_and_si256(mask_of(b + 66), one), out->index);
    put_indices(load_256(b + 34), _mm256_and_si256(mask_of(b + 70), one), out->index + 32);
    memcpy(out->signs, b + 74, sizeof(out->signs));
    const __m128i four = _mm_loadu_si32(b + 106), mask = _mm_set1_epi8(15);
    const __m128i eight = _mm_unpacklo_epi8(_mm_and_si128(four, mask), _mm_and_si128(_mm_srli_epi16(four, 4), mask));
    put_scales(_mm256_cvtepu8_epi32(_mm_add_epi8(eight, eight)), out->scales);
}

// Spreads three bits of each word, four times from the lowest bit on, to one byte each.
INLINE __m256i spread_3(__m256i words)
{
    __m256i bytes = _mm256_and_si256(words, _mm256_set1_epi32(7));
    bytes = _mm256_or_si256(bytes, _mm256_and_si256(_mm256_slli_epi32(words, 5), _mm256_set1_epi32(7 << 8)));
    bytes = _mm256_or_si256(bytes, _mm256_and_si256(_mm256_slli_epi32(words, 10), _mm256_set1_epi32(7 << 16)));
    return _mm256_or_si256(bytes, _mm256_and_si256(_mm256_slli_epi32(words, 15), _mm256_set1_epi32(7 << 24)));
}

INLINE void codes_iq1_s(const uint8_t *b, struct codes *out)
{
    const __m256i words = _mm256_cvtepu16_epi32(load_128(b + 34)); // 4 x 3 bits of indices, a scale, and a sign
    put_indices(load_256(b + 2), spread_3(words), out->index);
    _mm256_storeu_si256((__m256i *)out->signs, _mm256_srai_epi32(_mm256_slli_epi32(words, 16), 31));
    put_scales(_mm256_and_si256(_mm256_srli_epi32(words, 11), _mm256_set1_epi32(14)), out->scales);
}

INLINE void codes_iq1_m(const uint8_t *b, struct codes *out)
{
    const __m256i high = _mm256_set_m128i(nibbles_16(b + 40), nibbles_16(b + 32)), sign = _mm256_set1_epi8(8);
    put_indices(load_256(b), _mm256_and_si256(high, _mm256_set1_epi8(7)), out->index);
    _mm256_storeu_si256((__m256i *)out->signs, _mm256_cmpeq_epi8(_mm256_and_si256(high, sign), sign));
    const __m128i words = _mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)(b + 48)));
    out->scale = odd_bytes(_mm256_castsi256_si128(spread_3(_mm256_castsi128_si256(words))));
}

// ---- the codebooks

// LOOK_UP(of, index_t) defines look-ups by indices of a type: two_<of> and four_<of> of entries of 8 bytes, pair_<of>,
// two_pairs_<of> and eight_<of> of entries of 4 bytes. The second entry of a pair is read by a load of 16 bytes, which
// takes an operation less; the codebooks have room after their last entry (gguf/dtype_iq.h).
#define LOOK_UP(of, index_t)                                                                                           \
    INLINE __m128i two_##of(const uint64_t *grid, const index_t *index)                                                \
    {                                                                                                                  \
        const __m128d low = _mm_load_sd((const double *)(grid + index[0]));                                            \
        return _mm_castpd_si128(_mm_loadh_pd(low, (const double *)(grid + index[1])));                                 \
    }                                                                                                                  \
    INLINE __m256i four_##of(const uint64_t *grid, const index_t *index)                                               \
    {                                                                                                                  \
        return _mm256_set_m128i(two_##of(grid, index + 2), two_##of(grid, index));                                     \
    }                                                                                                                  \
    INLINE __m128i pair_##of(const uint32_t *grid, const index_t *index)                                               \
    {                                                                                                                  \
        return _mm_unpacklo_epi32(_mm_loadu_si32(grid + index[0]), load_128(grid + index[1]));                         \
    }                                                                                                                  \
    INLINE __m128i two_pairs_##of(const uint32_t *grid, const index_t *index)                                          \
    {                                                                                                                  \
        return _mm_unpacklo_epi64(pair_##of(grid, index), pair_##of(grid, index + 2));                                 \
    }                                                                                                                  \
    INLINE __m256i eight_##of(const uint32_t *grid, const index_t *index)                                              \
    {                                                                                                                  \
        return _mm256_set_m128i(two_pairs_##of(grid, index + 4), two_pairs_##of(grid, index));                         \
    }
LOOK_UP(by_byte, uint8_t)
LOOK_UP(by_index, uint16_t)

// The weights plus the offset: magnitudes are negated where their signs are set.
INLINE __m256i with_signs(__m256i magnitudes, const uint32_t *signs, int offset)
{
    const __m256i negative = mask_of(signs);
    return _mm256_add_epi8(_mm256_xor_si256(magnitudes, negative),
                           _mm256_sub_epi8(_mm256_set1_epi8((char)offset), negative));
}

// The weights of IQ1 in eighths plus the offset 9: 8 (v - 1) + 9 - 1 or + 1, where v is 0, 1 or 2.
INLINE __m256i with_shifts(__m256i values, const uint32_t *down)
{
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i by = _mm256_shuffle_epi8(broadcast_32(down), byte);
    return _mm256_add_epi8(_mm256_slli_epi16(values, 3), _mm256_andnot_si256(by, _mm256_set1_epi8(2)));
}

// ENTRIES(name, grid, entries, at, per_run, offset) defines entries_<name> and weights_<name> of a type.
//   grid     the codebook
//   entries  the look-up of 32 elements
//   at       the member of struct codes with the indices, and per_run their distance from run to run
//   offset   added to the weights
#define ENTRIES(name, grid, entries, at, per_run, offset)                                                              \
    INLINE __m256i entries_##name(const struct codes *c, int j)                                                        \
    {                                                                                                                  \
        return entries(grid, c->at + (per_run)*j);                                                                     \
    }                                                                                                                  \
    INLINE __m256i weights_##name(const struct codes *c, int j)                                                        \
    {                                                                                                                  \
        return with_signs(entries_##name(c, j), &c->signs[j], offset);                                                 \
    }
ENTRIES(iq2_xxs, iq2_xxs_grid, four_by_byte, byte, 8, OFFSET_IQ2) // signs and a scale are between the indices
ENTRIES(iq2_xs, iq2_xs_grid, four_by_index, index, 4, OFFSET_IQ2)
ENTRIES(iq2_s, iq2_s_grid, four_by_index, index, 4, OFFSET_IQ2)
ENTRIES(iq3_xxs, iq3_xxs_grid, eight_by_byte, byte, 8, OFFSET_IQ3_XXS)
ENTRIES(iq3_s, iq3_s_grid, eight_by_index, index, 8, OFFSET_IQ3_S)

// 0, 1 or 2: the values -1, 0 or 1, plus 1.
INLINE __m256i entries_iq1(const struct codes *c, int j)
{
    return _mm256_add_epi8(four_by_index(iq1_grid, c->index + 4 * j), repeated(&ones));
}

INLINE __m256i weights_iq1(const struct codes *c, int j)
{
    return with_shifts(entries_iq1(c, j), &c->signs[j]);
}

// ---- a block's d

INLINE uint16_t half_at_front(const uint8_t *b)
{
    uint16_t half;
    memcpy(&half, b, sizeof(half));
    return half;
}

// Four bits of d are at the top of each of four words of scales.
INLINE uint16_t half_iq1_m(const uint8_t *b)
{
    uint64_t words;
    memcpy(&words, b + 48, sizeof(words));
    words = words >> 12 & 0x000f000f000f000f;
    words |= words >> 12;
    return (uint16_t)(words | words >> 24);
}

// ---- a block of a row

// A type. It is a compile-time constant of the functions below.
struct book {
    size_t bytes; // of a block
    int offset;
    bool wide;  // a scale serves 32 elements, else 16
    float unit; // the factor of a block is d * unit
    codes_fn *codes;
    half_fn *half; // d
    weights_fn *weights;
    // For few columns: the magnitudes, whose signs are applied to the activations (start is NULL); or (IQ1) the values
    // plus 1, and what is added to eight times their products.
    entries_fn *entries;
    start_fn *start;
};

// The scales of each 16 elements of a block, as int16.
INLINE __m256i scales_16(bool wide, const struct codes *c)
{
    return wide ? load_256(c->scales) : _mm256_cvtepu8_epi16(c->scale);
}

// The same, ordered by the halves of the runs: in the lower half of the register the scales of the first 16 elements of
// each run, in the upper half those of the last 16. Multiplied by the steps, in one operation for a block of a row and
// a column, they are the factors of the runs.
INLINE __m256i scales_by_half(bool wide, const struct codes *c)
{
    if (wide) { // pairs of equal scales
        const __m256i v = load_256(c->scales), low = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
        return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x88);
    }
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return _mm256_cvtepu8_epi16(_mm_shuffle_epi8(c->scale, order));
}

// The factor of run j in the lanes of its pairs of products.
INLINE __m256i factor_of_run_16(__m256i factors, int j)
{
    return _mm256_shuffle_epi8(factors, _mm256_set1_epi16((short)(2 * j | (2 * j + 1) << 8)));
}

// Looks up the entries of a block.
INLINE void unpack(const struct book *type, const struct codes *c, struct block *out)
{
    UNROLL_FOR (int j = 0; j < RUNS; j++)
        out->w[j] = type->weights(c, j);
    out->scales = scales_by_half(type->wide, c);
    out->start = _mm256_mullo_epi16(scales_16(type->wide, c), _mm256_set1_epi16((short)-type->offset));
}

INLINE struct activations activations_at(const struct matmul_args *a, int j, int64_t block)
{
    const void *x = a->x[j];
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(q8_steps(x, a->k) + block * Q8_RUNS));
    const __m256i by_16 = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(bytes, bytes));
    return (struct activations){
        .q = q8_quants(x) + block * SPAN,
        .steps = _mm256_broadcastsi128_si256(_mm_cvtepu8_epi16(bytes)),
        .sums = _mm256_mullo_epi16(load_256(q8_sums(x, a->k) + block * Q8_SUMS), by_16),
    };
}

INLINE void add_scaled(__m256i *sum, __m256i pairs, __m256i scale)
{
#ifdef __AVXVNNI__
    *sum = _mm256_dpwssd_avx_epi32(*sum, pairs, scale);
#else
    add_32(sum, _mm256_madd_epi16(pairs, scale));
#endif
}

// The sums of the products with n columns; their lanes are still to be added up.
INLINE void multiply(const struct block *b, const struct activations *c, int n, __m256i sum[])
{
    __m256i factors[AT_ONCE];
    UNROLL_FOR (int i = 0; i < n; i++) {
        sum[i] = _mm256_madd_epi16(b->start, c[i].sums);
        factors[i] = _mm256_mullo_epi16(b->scales, c[i].steps);
    }
    UNROLL_FOR (int j = 0; j < RUNS; j++) {
        const __m256i w = b->w[j];
        UNROLL_FOR (int i = 0; i < n; i++)
            add_scaled(&sum[i], _mm256_maddubs_epi16(w, load_256(c[i].q + 32 * j)), factor_of_run_16(factors[i], j));
    }
}

// Lane i is the sum of all lanes of v[i].
INLINE __m128i add_lanes(const __m256i v[AT_ONCE])
{
    const __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

// D = fma((float)isum * d, da, D)
INLINE __m128 step(__m128i isum, __m128 d, __m128 da, __m128 chain)
{
    return _mm_fmadd_ps(_mm_mul_ps(_mm_cvtepi32_ps(isum), d), da, chain);
}

INLINE const uint8_t *row_at(const struct matmul_args *a, int row)
{
    return (const uint8_t *)a->w + (size_t)MIN(row, a->n_rows - 1) * a->w_stride;
}

// Prefetches part i of n of some bytes.
INLINE void prefetch(const uint8_t *p, size_t bytes, int i, int n)
{
    const int lines = (int)((bytes + 63) / 64);
    for (int line = i * lines / n; line < (i + 1) * lines / n; line++)
        _mm_prefetch((const char *)p + 64 * line, _MM_HINT_T0);
}

// ---- few columns: four rows at a time, whose sums are lanes of one register

// Where the sums of each 8 elements of a column's block are kept, in the scratch.
INLINE int16_t *eighths_at(const struct matmul_args *a, int j, int64_t block)
{
    return (int16_t *)a->scratch + (j * (a->k / SPAN) + block) * (SPAN / 8);
}

// Whether the scratch holds the sums of each 8 elements. All types are asked, although only IQ1_M needs them: no
// model has rows that are too long.
static bool fits_eighths(const struct matmul_args *a)
{
    return (size_t)(a->n_x * a->k / 8) * sizeof(int16_t) <= SCRATCH_BYTES;
}

// The sums of each eight bytes, plus 8 * 128: vpsadbw adds up the distances of bytes from -128.
INLINE __m256i eighths_of(const int8_t *q)
{
    return _mm256_sad_epu8(_mm256_xor_si256(load_256(q), _mm256_set1_epi8(-128)), _mm256_setzero_si256());
}

// Computes the sums of each 8 elements of all columns, times their steps. They are at most 8 * 127 * 16.
static void put_eighths(const struct matmul_args *a)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int j = 0; j < a->n_x; j++)
        for (int64_t at = 0; at < a->k; at += SPAN / 2) {
            const int8_t *q = q8_quants(a->x[j]) + at;
            const __m256i first = _mm256_packus_epi32(eighths_of(q), eighths_of(q + 32));
            const __m256i last = _mm256_packus_epi32(eighths_of(q + 64), eighths_of(q + 96));
            const __m256i shifted = _mm256_permutevar8x32_epi32(_mm256_packus_epi32(first, last), order);
            const __m256i sums = _mm256_sub_epi16(shifted, _mm256_set1_epi16(8 * 128));
            const __m128i bytes = _mm_loadu_si32(q8_steps(a->x[j], a->k) + at / Q8_RUN);
            const __m128i twice = _mm_unpacklo_epi8(bytes, bytes);
            const __m256i steps = _mm256_cvtepu8_epi16(_mm_unpacklo_epi16(twice, twice)); // each four times
            _mm256_storeu_si256((__m256i *)(eighths_at(a, j, 0) + at / 8), _mm256_mullo_epi16(sums, steps));
        }
}

// IQ1: isum = sum of scale * (8 v + s) . q, where v is the codebook's value and s is -1 or 1 for 32 (IQ1_S) or 8
// elements (IQ1_M). The products are those of v + 1, times 8. This is what has to be added: the sum of scale * (s -
// 8) * sum(q).
INLINE __m256i start_iq1_s(const struct codes *c, struct activations x)
{
    const __m256i down = load_256(c->signs);
    const __m256i rest = _mm256_add_epi16(_mm256_add_epi16(down, down), _mm256_set1_epi16(1 - 8));
    return _mm256_madd_epi16(_mm256_mullo_epi16(scales_16(true, c), rest), x.sums);
}

// The sum of scale * s * sum(q) over a half of a block, 16 times 8 elements; s is negative where the byte of `down`
// is all ones.
INLINE __m256i start_of_eighths(__m128i scales, const uint32_t *down, const int16_t *sums)
{
    const __m128i sign = _mm_or_si128(load_128(down), _mm_set1_epi8(1));
    return _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_sign_epi8(scales, sign)), load_256(sums));
}

INLINE __m256i start_iq1_m(const struct codes *c, struct activations x)
{
    const __m256i eights = _mm256_mullo_epi16(scales_16(false, c), _mm256_set1_epi16(-8));
    const __m256i first = start_of_eighths(_mm_unpacklo_epi8(c->scale, c->scale), c->signs, x.eighths);
    const __m256i last = start_of_eighths(_mm_unpackhi_epi8(c->scale, c->scale), c->signs + 4, x.eighths + 16);
    return _mm256_add_epi32(_mm256_madd_epi16(eights, x.sums), _mm256_add_epi32(first, last));
}

// The signs of run j for vpsignb: byte i is negative where bit i is set, else positive. This takes no comparison, and
// four runs share a load.
INLINE __m256i sign_of(const struct codes *c, int j)
{
    const __m256i four = _mm256_broadcastsi128_si256(load_128(c->signs + (j & ~3)));
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i v = _mm256_shuffle_epi8(four, _mm256_add_epi8(byte, _mm256_set1_epi8((char)(4 * (j & 3)))));
    return _mm256_add_epi8(_mm256_and_si256(v, repeated(&own_bits)), repeated(&to_128));
}

// The sums of the products of a block with n columns, computed while it is unpacked. Signs are applied to the
// activations, so that weights have no offset that would have to be subtracted.
INLINE void dots(const struct book *type, const struct codes *c, const struct activations *x, int n, __m256i sum[])
{
    const __m256i scales = scales_by_half(type->wide, c);
    __m256i factors[COLUMNS_FEW];
    UNROLL_FOR (int i = 0; i < n; i++) {
        sum[i] = _mm256_setzero_si256();
        factors[i] = _mm256_mullo_epi16(scales, x[i].steps);
    }
    UNROLL_FOR (int j = 0; j < RUNS; j++) {
        const __m256i w = type->entries(c, j);
        UNROLL_FOR (int i = 0; i < n; i++) {
            const __m256i q = load_256(x[i].q + 32 * j);
            const __m256i pairs = _mm256_maddubs_epi16(w, type->start ? q : _mm256_sign_epi8(q, sign_of(c, j)));
            add_scaled(&sum[i], pairs, factor_of_run_16(factors[i], j));
        }
    }
    if (!type->start)
        return;
    UNROLL_FOR (int i = 0; i < n; i++)
        sum[i] = _mm256_add_epi32(_mm256_slli_epi32(sum[i], 3), type->start(c, x[i]));
}

// Multiplies block i of four rows with n columns, and prefetches as many bytes as the four blocks have, from `after`
// on.
INLINE void multiply_four(const struct matmul_args *a, const struct book *type, const uint8_t *const b[ROWS_FEW],
                          int64_t i, int n, const uint8_t *after, __m128 chain[])
{
    struct codes c[ROWS_FEW];
    __m256i sum[COLUMNS_FEW][ROWS_FEW], of_row[COLUMNS_FEW];
    struct activations x[COLUMNS_FEW];
    UNROLL_FOR (int j = 0; j < n; j++) {
        x[j] = activations_at(a, j, i);
        x[j].eighths = eighths_at(a, j, i);
    }
    UNROLL_FOR (int r = 0; r < ROWS_FEW; r++) {
        prefetch(after, ROWS_FEW * type->bytes, r, ROWS_FEW);
        type->codes(b[r], &c[r]);
    }
    for (int r = 0; r < ROWS_FEW; r++) {
        dots(type, &c[r], x, n, of_row);
        UNROLL_FOR (int j = 0; j < n; j++)
            sum[j][r] = of_row[j];
    }
    const __m128i halves = _mm_setr_epi16((short)type->half(b[0]), (short)type->half(b[1]), (short)type->half(b[2]),
                                          (short)type->half(b[3]), 0, 0, 0, 0);
    const __m128 d = _mm_mul_ps(_mm_cvtph_ps(halves), _mm_set1_ps(type->unit));
    UNROLL_FOR (int j = 0; j < n; j++)
        chain[j] = step(add_lanes(sum[j]), d, _mm_set1_ps(q8_scales(a->x[j], a->k)[i]), chain[j]);
}

INLINE void multiply_few(const struct matmul_args *a, const struct book *type, int n)
{
    if (type->start == start_iq1_m)
        put_eighths(a);
    for (int row = 0; row < a->n_rows; row += ROWS_FEW) {
        const uint8_t *after = matmul_rows_after(a, row, ROWS_FEW);
        const uint8_t *b[ROWS_FEW] = {row_at(a, row), row_at(a, row + 1), row_at(a, row + 2), row_at(a, row + 3)};
        __m128 chain[COLUMNS_FEW];
        UNROLL_FOR (int j = 0; j < n; j++)
            chain[j] = _mm_setzero_ps();
        for (int64_t i = 0; i < a->k / SPAN; i++, after += ROWS_FEW * type->bytes) {
            multiply_four(a, type, b, i, n, after, chain);
            for (int r = 0; r < ROWS_FEW; r++)
                b[r] += type->bytes;
        }
        for (int j = 0; j < n; j++) {
            float y[ROWS_FEW];
            _mm_storeu_ps(y, chain[j]);
            memcpy(a->y[j] + row, y, (size_t)MIN(ROWS_FEW, a->n_rows - row) * sizeof(*y));
        }
    }
}

// ---- many columns: a block of 16 rows is unpacked once for all of them

struct many {
    struct block block[ROWS];
    // Codes of all rows are read before the first row is unpacked: out-of-order execution reaches little more than a
    // block ahead.
    struct codes codes[ROWS];
    __m128 chain[COLUMNS_MAX / AT_ONCE][ROWS]; // D, one lane per column
};
_Static_assert(sizeof(struct many) <= SCRATCH_BYTES, "unpacked rows and partial sums fit the scratch");

// Multiplies columns first .. first + n - 1, n <= AT_ONCE, with the unpacked rows.
INLINE void multiply_tile(const struct matmul_args *a, int first, int n, int64_t block, const struct block *b, int rows,
                          __m128 *chain)
{
    struct activations c[AT_ONCE];
    float da[AT_ONCE] = {0};
    UNROLL_FOR (int j = 0; j < n; j++)
        c[j] = activations_at(a, first + j, block), da[j] = q8_scales(a->x[first + j], a->k)[block];
    const __m128 scales = _mm_loadu_ps(da);
    for (int r = 0; r < rows; r++) {
        __m256i sum[AT_ONCE] = {0};
        multiply(&b[r], c, n, sum);
        chain[r] = step(add_lanes(sum), _mm_set1_ps(b[r].d), scales, chain[r]);
    }
}

static void multiply_tiles(const struct matmul_args *a, int first, int n, int64_t block, struct many *m, int rows)
{
    int j = 0;
    for (; j + AT_ONCE <= n; j += AT_ONCE)
        multiply_tile(a, first + j, AT_ONCE, block, m->block, rows, m->chain[j / AT_ONCE]);
    if (n - j == 3)
        multiply_tile(a, first + j, 3, block, m->block, rows, m->chain[j / AT_ONCE]);
    if (n - j == 2)
        multiply_tile(a, first + j, 2, block, m->block, rows, m->chain[j / AT_ONCE]);
    if (n - j == 1)
        multiply_tile(a, first + j, 1, block, m->block, rows, m->chain[j / AT_ONCE]);
}

static void store_chains(const struct matmul_args *a, int first, int n, const struct many *m, int row, int rows)
{
    for (int j = 0; j < n; j++)
        for (int r = 0; r < rows; r++)
            memcpy(&a->y[first + j][row + r], (const float *)&m->chain[j / AT_ONCE][r] + j % AT_ONCE, sizeof(float));
}

INLINE void multiply_many(const struct matmul_args *a, const struct book *type, int row, int first, int n)
{
    struct many *m = a->scratch;
    const int rows = MIN(ROWS, a->n_rows - row);
    const uint8_t *after = matmul_rows_after(a, row, ROWS);
    memset(m->chain, 0, (size_t)(n + AT_ONCE - 1) / AT_ONCE * sizeof(m->chain[0]));
    for (int64_t i = 0; i < a->k / SPAN; i++, after += ROWS * type->bytes) {
        prefetch(after, ROWS * type->bytes, 0, 1);
        for (int r = 0; r < rows; r++) {
            const uint8_t *b = row_at(a, row + r) + (size_t)i * type->bytes;
            type->codes(b, &m->codes[r]);
            m->block[r].d = _cvtsh_ss(type->half(b)) * type->unit;
        }
        for (int r = 0; r < rows; r++)
            unpack(type, &m->codes[r], &m->block[r]);
        multiply_tiles(a, first, n, i, m, rows);
    }
    store_chains(a, first, n, m, row, rows);
}

INLINE void matmul_many(const struct matmul_args *a, const struct book *type)
{
    for (int row = 0; row < a->n_rows; row += ROWS)
        for (int first = 0; first < a->n_x; first += COLUMNS_MAX)
            multiply_many(a, type, row, first, MIN(COLUMNS_MAX, a->n_x - first));
}

INLINE void matmul(const struct matmul_args *a, const struct book *type)
{
    if (a->n_x > COLUMNS_FEW || !fits_eighths(a))
        matmul_many(a, type);
    else if (a->n_x == 1)
        multiply_few(a, type, 1);
    else if (a->n_x == 2)
        multiply_few(a, type, 2);
    else if (a->n_x == 3)
        multiply_few(a, type, 3);
    else
        multiply_few(a, type, COLUMNS_FEW);
}

// MATMUL(name, ...) defines the function matmul_q8_<name>; the parameters are the members of struct book.
#define MATMUL(name, bytes, offset, wide, unit, codes, half, weights, ...)                                             \
    void ISA_FN(matmul_q8_##name)(const struct matmul_args *a)                                                         \
    {                                                                                                                  \
        matmul(a, &(const struct book){bytes, offset, wide, unit, codes, half, weights, __VA_ARGS__});                 \
    }
MATMUL(iq1_s, 50, OFFSET_IQ1, true, 0.125f, codes_iq1_s, half_at_front, weights_iq1, entries_iq1, start_iq1_s)
MATMUL(iq1_m, 56, OFFSET_IQ1, false, 0.125f, codes_iq1_m, half_iq1_m, weights_iq1, entries_iq1, start_iq1_m)
MATMUL(iq2_xxs, 66, OFFSET_IQ2, true, 0.125f, codes_iq2_xxs, half_at_front, weights_iq2_xxs, entries_iq2_xxs, NULL)
MATMUL(iq2_xs, 74, OFFSET_IQ2, false, 0.125f, codes_iq2_xs, half_at_front, weights_iq2_xs, entries_iq2_xs, NULL)
MATMUL(iq2_s, 82, OFFSET_IQ2, false, 0.125f, codes_iq2_s, half_at_front, weights_iq2_s, entries_iq2_s, NULL)
MATMUL(iq3_xxs, 98, OFFSET_IQ3_XXS, true, 0.25f, codes_iq3_xxs, half_at_front, weights_iq3_xxs, entries_iq3_xxs, NULL)
MATMUL(iq3_s, 110, OFFSET_IQ3_S, true, 1.0f, codes_iq3_s, half_at_front, weights_iq3_s, entries_iq3_s, NULL)
