// The vector types of an ISA level, with which the float kernels are written once for all levels.
//
// `vec` is one register of VEC floats (16 in AVX-512, 8 in AVX2, 4 in NEON and in plain C). `veci` is the same with
// int32. The operators of C work on both. The functions below do what C has no operator for, and each returns the same
// bits on every level. `struct lanes` has the LANES sums with which all levels add up floats, in PARTS registers.
// All functions are pure and inlined. Loads and stores need no alignment and touch exactly the elements that they name.
#ifndef QUERN_VEC_H
#define QUERN_VEC_H

#include <math.h>

#include "kernels/cpu/level.h"

// PLAIN: the level uses only what every CPU of the architecture has. The other levels are told apart by the compiler's
// macros for their instructions.
#define PLAIN_scalar 1
#define PLAIN_neon 0
#define PLAIN_dotprod 0
#define PLAIN_i8mm 0
#define PLAIN_avx2 0
#define PLAIN_avxvnni 0
#define PLAIN_avx512 0
#if ISA_FN(PLAIN)
#define VEC_PLAIN 1
#ifdef __SSE2__
#include <emmintrin.h>
#endif
enum { VEC = 4 };
#elif defined(__AVX512F__)
#include <immintrin.h>
#define VEC_AVX512 1
enum { VEC = 16 };
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define VEC_AVX2 1
enum { VEC = 8 };
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#define VEC_NEON 1
enum { VEC = 4 };
#else
#error "this level's instructions are not switched on: see kernels/cpu/meson.build"
#endif

typedef float vec __attribute__((vector_size(VEC * 4)));
typedef int32_t veci __attribute__((vector_size(VEC * 4)));
typedef uint32_t vecu __attribute__((vector_size(VEC * 4)));
typedef double vecd __attribute__((vector_size(VEC * 4))); // VEC / 2 doubles
typedef float quad __attribute__((vector_size(16)));
typedef int32_t quadi __attribute__((vector_size(16)));

enum { PARTS = LANES / VEC };
struct lanes {
    vec part[PARTS]; // lane i is element i % VEC of part i / VEC
};

// Elements of two quads by index: 0-3 from a, 4-7 from b.
#ifdef __clang__
#define QUAD_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define QUAD_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (quadi){__VA_ARGS__})
#endif

// ---- loads, stores, constants

INLINE vec vec_load(const void *p)
{
    vec v;
    memcpy(&v, p, sizeof(v));
    return v;
}

// Keeps v in a register, so that the compiler does not load it again for each product that uses it.
INLINE vec vec_held(vec v)
{
#if defined(VEC_AVX512) || defined(VEC_AVX2)
    __asm__("" : "+v"(v));
#elif defined(VEC_NEON)
    __asm__("" : "+w"(v));
#endif
    return v;
}

INLINE void vec_store(void *p, vec v)
{
    memcpy(p, &v, sizeof(v));
}

// Loads the first n elements, 0 < n <= VEC. The others are zero.
INLINE vec vec_load_n(const void *p, int64_t n)
{
    if (n == VEC)
        return vec_load(p);
    vec v = {0};
    memcpy(&v, p, (size_t)n * sizeof(float));
    return v;
}

// Stores the first n elements, 0 < n <= VEC.
INLINE void vec_store_n(void *p, vec v, int64_t n)
{
    if (n == VEC)
        vec_store(p, v);
    else
        memcpy(p, &v, (size_t)n * sizeof(float));
}

INLINE vec vec_all(float x)
{
    return x - (vec){0};
}

// Loads one float from any address.
INLINE float float_load(const void *p)
{
    float f;
    memcpy(&f, p, sizeof(f));
    return f;
}

INLINE veci veci_all(int32_t x)
{
    return x - (veci){0};
}

// ---- choice

// `yes` where the mask is all ones, `no` where it is 0.
INLINE vec vec_select(veci mask, vec yes, vec no)
{
    return (vec)((mask & (veci)yes) | (~mask & (veci)no));
}

// max(bound, x). A NaN in x is returned; `bound` must not be NaN.
INLINE vec vec_at_least(vec bound, vec x)
{
#if defined(VEC_AVX512)
    return (vec)_mm512_max_ps((__m512)bound, (__m512)x);
#elif defined(VEC_AVX2)
    return (vec)_mm256_max_ps((__m256)bound, (__m256)x);
#else
    return vec_select(x < bound, bound, x);
#endif
}

// min(bound, x), with the same rules.
INLINE vec vec_at_most(vec bound, vec x)
{
#if defined(VEC_AVX512)
    return (vec)_mm512_min_ps((__m512)bound, (__m512)x);
#elif defined(VEC_AVX2)
    return (vec)_mm256_min_ps((__m256)bound, (__m256)x);
#else
    return vec_select(x > bound, bound, x);
#endif
}

INLINE veci veci_max(veci a, veci b)
{
#if defined(VEC_AVX512)
    return (veci)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(VEC_AVX2)
    return (veci)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    veci greater = a > b;
    return (greater & a) | (~greater & b);
#endif
}

// The greatest element.
INLINE int32_t veci_greatest(veci x)
{
#if defined(VEC_AVX512)
    return _mm512_reduce_max_epi32((__m512i)x);
#else
    int32_t most = x[0];
    for (int i = 1; i < VEC; i++)
        most = MAX(most, x[i]);
    return most;
#endif
}

INLINE vec vec_abs(vec x)
{
    return (vec)((veci)x & 0x7fffffff);
}

// ---- a * b + c, rounded once

#if defined(VEC_PLAIN) && defined(__SSE2__)
// fma without the instruction, for two doubles that were floats; it is much faster than the library's function. The
// product p of two floats is exact in double. The exact sum p + c is s + e, with s the rounded sum and e its error. s
// is then rounded to odd: its last bit is set if e is not 0. A double has more than two bits more than a float, so
// rounding this to float gives the same as rounding the exact sum (Boldo and Melquiond, 2008).
// It is written in intrinsics because gcc 12 generates wrong code for the same operators of C.
INLINE __m128d pair_fma_to_odd(__m128d a, __m128d b, __m128d c)
{
    __m128d p = _mm_mul_pd(a, b), s = _mm_add_pd(p, c), t = _mm_sub_pd(s, p);
    __m128d e = _mm_add_pd(_mm_sub_pd(p, _mm_sub_pd(s, t)), _mm_sub_pd(c, t));
    __m128d is_lost =
        _mm_and_pd(_mm_cmpneq_pd(e, _mm_setzero_pd()), _mm_cmpord_pd(e, e)); // e is NaN where s is not finite
    __m128i lost = _mm_and_si128(_mm_castpd_si128(is_lost), _mm_set1_epi64x(1));
    __m128i away = _mm_srli_epi64(_mm_castpd_si128(_mm_xor_pd(e, s)), 63); // s was rounded away from zero
    __m128i bits = _mm_sub_epi64(_mm_castpd_si128(s), _mm_and_si128(lost, away));
    return _mm_castsi128_pd(_mm_or_si128(bits, lost));
}

INLINE vec vec_fma(vec a, vec b, vec c)
{
    __m128 x = (__m128)a, y = (__m128)b, z = (__m128)c;
    __m128d lo = pair_fma_to_odd(_mm_cvtps_pd(x), _mm_cvtps_pd(y), _mm_cvtps_pd(z));
    __m128d hi = pair_fma_to_odd(_mm_cvtps_pd(_mm_movehl_ps(x, x)), _mm_cvtps_pd(_mm_movehl_ps(y, y)),
                                 _mm_cvtps_pd(_mm_movehl_ps(z, z)));
    return (vec)_mm_movelh_ps(_mm_cvtpd_ps(lo), _mm_cvtpd_ps(hi));
}
#else
INLINE vec vec_fma(vec a, vec b, vec c)
{
#if defined(VEC_AVX512)
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(VEC_AVX2)
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(VEC_NEON)
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    for (int i = 0; i < VEC; i++)
        c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#endif
}
#endif

// ---- conversions

// Rounds to the nearest integer, ties to even, for |x| < 2^22: the sum of x and 1.5 * 2^23 has no bits for a fraction.
#define ROUND_MAGIC 12582912.0f
INLINE veci vec_nearest(vec x)
{
    return (veci)(x + ROUND_MAGIC) - (veci)vec_all(ROUND_MAGIC);
}

INLINE vec veci_to_vec(veci x)
{
    return __builtin_convertvector(x, vec);
}

// Converts the lower (half = 0) or the upper half of the elements.
INLINE vecd vec_to_double(vec x, int half)
{
#if defined(VEC_AVX512)
    return (vecd)_mm512_cvtps_pd(half ? _mm512_extractf32x8_ps((__m512)x, 1) : _mm512_castps512_ps256((__m512)x));
#elif defined(VEC_AVX2)
    return (vecd)_mm256_cvtps_pd(half ? _mm256_extractf128_ps((__m256)x, 1) : _mm256_castps256_ps128((__m256)x));
#else
    return half ? (vecd){x[2], x[3]} : (vecd){x[0], x[1]};
#endif
}

// Loads VEC / 2 floats and converts them.
INLINE vecd vecd_from_floats(const float *p)
{
#if defined(VEC_AVX512)
    return (vecd)_mm512_cvtps_pd(_mm256_loadu_ps(p));
#elif defined(VEC_AVX2)
    return (vecd)_mm256_cvtps_pd(_mm_loadu_ps(p));
#else
    return (vecd){float_load(p), float_load(p + 1)};
#endif
}

INLINE vec vec_from_doubles(vecd lo, vecd hi)
{
#if defined(VEC_AVX512)
    return (vec)_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)lo)), _mm512_cvtpd_ps((__m512d)hi),
                                   1);
#elif defined(VEC_AVX2)
    return (vec)_mm256_set_m128(_mm256_cvtpd_ps((__m256d)hi), _mm256_cvtpd_ps((__m256d)lo));
#else
    return (vec){(float)lo[0], (float)lo[1], (float)hi[0], (float)hi[1]};
#endif
}

// sum + x * x, where x was a float. The square is exact, so the bits are the same whether it is fused or not.
INLINE vecd vecd_add_square(vecd sum, vecd x)
{
#if defined(VEC_AVX512)
    return (vecd)_mm512_fmadd_pd((__m512d)x, (__m512d)x, (__m512d)sum);
#elif defined(VEC_AVX2)
    return (vecd)_mm256_fmadd_pd((__m256d)x, (__m256d)x, (__m256d)sum);
#else
    return sum + x * x;
#endif
}

// Loads VEC unsigned 16-bit integers.
INLINE veci veci_from_u16(const void *p)
{
#if defined(VEC_AVX512)
    return (veci)_mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
#elif defined(VEC_AVX2)
    return (veci)_mm256_cvtepu16_epi32(_mm_loadu_si128(p));
#elif defined(VEC_NEON)
    return (veci)vmovl_u16(vld1_u16(p));
#elif defined(__SSE2__)
    return (veci)_mm_unpacklo_epi16(_mm_loadl_epi64(p), _mm_setzero_si128());
#else
    uint16_t h[VEC];
    memcpy(h, p, sizeof(h));
    return (veci){h[0], h[1], h[2], h[3]};
#endif
}

// Loads VEC signed bytes.
INLINE vec vec_from_i8(const void *p)
{
#if defined(VEC_AVX512)
    return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
#elif defined(VEC_AVX2)
    return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
#elif defined(VEC_PLAIN) && defined(__SSE2__)
    int32_t four;
    memcpy(&four, p, sizeof(four));
    __m128i x = _mm_cvtsi32_si128(four);
    x = _mm_unpacklo_epi8(x, x);
    return (vec)_mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpacklo_epi16(x, x), 24));
#else
    int8_t b[VEC];
    memcpy(b, p, sizeof(b));
    return (vec){b[0], b[1], b[2], b[3]};
#endif
}

// Loads VEC bfloat16.
INLINE vec vec_from_bf16(const void *p)
{
    return (vec)(veci_from_u16(p) << 16);
}

#if defined(VEC_PLAIN)
// Loads VEC halves. Exponent and mantissa, shifted to their places, give a float that is too small by 2^112; this holds
// for subnormals, too. Infinity and NaN get an exponent of all ones, and a NaN becomes quiet.
INLINE vec vec_from_f16(const void *p)
{
    veci h = veci_from_u16(p), magnitude = h & 0x7fff;
    veci finite = (veci)((vec)(magnitude << 13) * 0x1p112f);
    veci infinite = 0x7f800000 | magnitude << 13 | ((magnitude > 0x7c00) & 0x400000);
    veci is_finite = magnitude < 0x7c00;
    return (vec)((h & 0x8000) << 16 | (is_finite & finite) | (~is_finite & infinite));
}
#else
INLINE vec vec_from_f16(const void *p)
{
#if defined(VEC_AVX512)
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256(p));
#elif defined(VEC_AVX2)
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128(p));
#else
    return (vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#endif
}
#endif

// Stores VEC halves, rounded to the nearest, ties to even.
INLINE void vec_to_f16(void *p, vec x)
{
#if defined(VEC_AVX512)
    _mm256_storeu_si256(p, _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT));
#elif defined(VEC_AVX2)
    _mm_storeu_si128(p, _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT));
#elif defined(VEC_NEON)
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x)));
#else
    for (int i = 0; i < VEC; i++) {
        uint16_t h = f32_to_f16(x[i]);
        memcpy((char *)p + 2 * i, &h, 2);
    }
#endif
}

// Stores the low 16 bits of each element.
INLINE void veci_to_u16(void *p, veci x)
{
#if defined(VEC_AVX512)
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16((__m512i)x));
#else
    uint16_t h[VEC];
    for (int i = 0; i < VEC; i++)
        h[i] = (uint16_t)x[i];
    memcpy(p, h, sizeof(h));
#endif
}

// Stores the low 8 bits of each element.
INLINE void veci_to_i8(void *p, veci x)
{
#if defined(VEC_AVX512)
    _mm_storeu_si128(p, _mm512_cvtepi32_epi8((__m512i)x));
#elif defined(VEC_AVX2)
    __m256i low = _mm256_shuffle_epi8((__m256i)x, _mm256_set1_epi32(0x0c080400));
    int32_t halves[2] = {_mm256_cvtsi256_si32(low), _mm256_extract_epi32(low, 4)};
    memcpy(p, halves, sizeof(halves));
#elif defined(VEC_NEON)
    uint16x4_t low = vmovn_u32((uint32x4_t)x);
    uint32_t four = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(low, low))), 0);
    memcpy(p, &four, sizeof(four));
#else
    int8_t b[VEC];
    for (int i = 0; i < VEC; i++)
        b[i] = (int8_t)x[i];
    memcpy(p, b, sizeof(b));
#endif
}

// Stores VEC bfloat16, rounded to the nearest, ties to even.
INLINE void vec_to_bf16(void *p, vec x)
{
    veci bits = (veci)x;
    veci is_nan = (bits & 0x7fffffff) > 0x7f800000;
    veci rounded = bits + 0x7fff + (bits >> 16 & 1);
    veci_to_u16(p, ((is_nan & (bits | 0x400000)) | (~is_nan & rounded)) >> 16);
}

// Loads one half from any address.
INLINE float half_load(const void *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof(h));
#if defined(VEC_AVX512) || defined(VEC_AVX2)
    return _cvtsh_ss(h);
#elif defined(VEC_NEON)
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
#else
    return f16_to_f32(h);
#endif
}

// ---- tables

// table[index], for a table of 32-bit words.
INLINE veci veci_gather(const void *table, veci index)
{
#if defined(VEC_AVX512)
    return (veci)_mm512_i32gather_epi32((__m512i)index, table, 4);
#elif defined(VEC_AVX2)
    return (veci)_mm256_i32gather_epi32(table, (__m256i)index, 4);
#else
    veci x;
    for (int i = 0; i < VEC; i++)
        memcpy((char *)&x + 4 * i, (const char *)table + (size_t)index[i] * 4, 4);
    return x;
#endif
}

// table[index & 7]
INLINE vec vec_of_8(const float table[8], veci index)
{
#if defined(VEC_AVX512)
    return (vec)_mm512_permutexvar_ps((__m512i)index, _mm512_broadcast_f32x8(_mm256_loadu_ps(table)));
#elif defined(VEC_AVX2)
    return (vec)_mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)index);
#else
    vec x;
    for (int i = 0; i < VEC; i++)
        x[i] = table[index[i] & 7];
    return x;
#endif
}

// ---- sums by halves

// The first two halvings of the sum: adds lane i + 8 to lane i, then lane i + 4 to lane i. Four lanes are left.
INLINE quad lanes_to_quad(struct lanes x)
{
#if defined(VEC_AVX512)
    __m512 v = (__m512)x.part[0];
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return (quad)_mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
#elif defined(VEC_AVX2)
    __m256 h = (__m256)(x.part[0] + x.part[1]);
    return (quad)_mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
#else
    return (x.part[0] + x.part[2]) + (x.part[1] + x.part[3]);
#endif
}

// The sum of all lanes, added by halves.
INLINE float lanes_sum(struct lanes x)
{
    quad q = lanes_to_quad(x);
    return (q[0] + q[2]) + (q[1] + q[3]);
}

// The sums of a, b, c and d, in this order.
INLINE quad lanes_sum4(struct lanes a, struct lanes b, struct lanes c, struct lanes d)
{
    quad qa = lanes_to_quad(a), qb = lanes_to_quad(b), qc = lanes_to_quad(c), qd = lanes_to_quad(d);
    quad ab = QUAD_SHUFFLE(qa, qb, 0, 1, 4, 5) + QUAD_SHUFFLE(qa, qb, 2, 3, 6, 7);
    quad cd = QUAD_SHUFFLE(qc, qd, 0, 1, 4, 5) + QUAD_SHUFFLE(qc, qd, 2, 3, 6, 7);
    return QUAD_SHUFFLE(ab, cd, 0, 2, 4, 6) + QUAD_SHUFFLE(ab, cd, 1, 3, 5, 7);
}

#if defined(VEC_AVX512)
// The four quads that lanes_to_quad makes of a, b, c and d, one after another.
INLINE __m512 quads_of(vec a, vec b, vec c, vec d)
{
    __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0x44),
                              _mm512_shuffle_f32x4((__m512)a, (__m512)b, 0xee));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4((__m512)c, (__m512)d, 0x44),
                              _mm512_shuffle_f32x4((__m512)c, (__m512)d, 0xee));
    return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}

// Element j of sums[i] is the sum of x[i][j].
INLINE void lanes_sum4x4(struct lanes x[4][4], quad sums[4])
{
    __m512 q[4];
    UNROLL_FOR (int i = 0; i < 4; i++)
        q[i] = quads_of(x[i][0].part[0], x[i][1].part[0], x[i][2].part[0], x[i][3].part[0]);
    __m512 lo = _mm512_add_ps(_mm512_shuffle_ps(q[0], q[1], 0x44), _mm512_shuffle_ps(q[0], q[1], 0xee));
    __m512 hi = _mm512_add_ps(_mm512_shuffle_ps(q[2], q[3], 0x44), _mm512_shuffle_ps(q[2], q[3], 0xee));
    __m512 all = _mm512_add_ps(_mm512_shuffle_ps(lo, hi, 0x88), _mm512_shuffle_ps(lo, hi, 0xdd));
    memcpy(sums, &all, sizeof(all));
}
#endif

// ---- pairs of neighbours

// Loads VEC / 2 floats and repeats each: element 2i and element 2i + 1 are p[i].
INLINE vec vec_load_twice(const float *p)
{
#if defined(VEC_AVX512)
    const __m512i index = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return (vec)_mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
#elif defined(VEC_AVX2)
    const __m256i index = _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0);
    return (vec)_mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), index);
#else
    float a = float_load(p), b = float_load(p + 1);
    return (vec){a, a, b, b};
#endif
}

// Swaps elements 2i and 2i + 1.
INLINE vec vec_swap_pairs(vec x)
{
#if defined(VEC_AVX512)
    return (vec)_mm512_permute_ps((__m512)x, 0xb1);
#elif defined(VEC_AVX2)
    return (vec)_mm256_permute_ps((__m256)x, 0xb1);
#else
    return (vec)QUAD_SHUFFLE(x, x, 1, 0, 3, 2);
#endif
}

// Negates elements 2i.
INLINE vec vec_negate_firsts(vec x)
{
    veci signs;
    for (int i = 0; i < VEC; i++)
        signs[i] = i % 2 ? 0 : INT32_MIN;
    return (vec)((veci)x ^ signs);
}

// Transposes the 4 x 4 matrix of the four vectors, within each four elements.
INLINE void vec_transpose4(vec r[4])
{
#if defined(VEC_AVX512)
    __m512 a = _mm512_unpacklo_ps((__m512)r[0], (__m512)r[1]), b = _mm512_unpackhi_ps((__m512)r[0], (__m512)r[1]);
    __m512 c = _mm512_unpacklo_ps((__m512)r[2], (__m512)r[3]), d = _mm512_unpackhi_ps((__m512)r[2], (__m512)r[3]);
    r[0] = (vec)_mm512_shuffle_ps(a, c, 0x44);
    r[1] = (vec)_mm512_shuffle_ps(a, c, 0xee);
    r[2] = (vec)_mm512_shuffle_ps(b, d, 0x44);
    r[3] = (vec)_mm512_shuffle_ps(b, d, 0xee);
#elif defined(VEC_AVX2)
    __m256 a = _mm256_unpacklo_ps((__m256)r[0], (__m256)r[1]), b = _mm256_unpackhi_ps((__m256)r[0], (__m256)r[1]);
    __m256 c = _mm256_unpacklo_ps((__m256)r[2], (__m256)r[3]), d = _mm256_unpackhi_ps((__m256)r[2], (__m256)r[3]);
    r[0] = (vec)_mm256_shuffle_ps(a, c, 0x44);
    r[1] = (vec)_mm256_shuffle_ps(a, c, 0xee);
    r[2] = (vec)_mm256_shuffle_ps(b, d, 0x44);
    r[3] = (vec)_mm256_shuffle_ps(b, d, 0xee);
#else
    quad a = QUAD_SHUFFLE(r[0], r[1], 0, 4, 1, 5), b = QUAD_SHUFFLE(r[0], r[1], 2, 6, 3, 7);
    quad c = QUAD_SHUFFLE(r[2], r[3], 0, 4, 1, 5), d = QUAD_SHUFFLE(r[2], r[3], 2, 6, 3, 7);
    r[0] = QUAD_SHUFFLE(a, c, 0, 1, 4, 5);
    r[1] = QUAD_SHUFFLE(a, c, 2, 3, 6, 7);
    r[2] = QUAD_SHUFFLE(b, d, 0, 1, 4, 5);
    r[3] = QUAD_SHUFFLE(b, d, 2, 3, 6, 7);
#endif
}

// Transposes a VEC x VEC matrix.
INLINE void vec_transpose(vec r[VEC])
{
    UNROLL_FOR (int i = 0; i < VEC; i += 4)
        vec_transpose4(r + i);
#if defined(VEC_AVX512)
    UNROLL_FOR (int i = 0; i < 4; i++) { // the same of quads
        __m512 a = _mm512_shuffle_f32x4((__m512)r[i], (__m512)r[i + 4], 0x44);
        __m512 b = _mm512_shuffle_f32x4((__m512)r[i], (__m512)r[i + 4], 0xee);
        __m512 c = _mm512_shuffle_f32x4((__m512)r[i + 8], (__m512)r[i + 12], 0x44);
        __m512 d = _mm512_shuffle_f32x4((__m512)r[i + 8], (__m512)r[i + 12], 0xee);
        r[i] = (vec)_mm512_shuffle_f32x4(a, c, 0x88);
        r[i + 4] = (vec)_mm512_shuffle_f32x4(a, c, 0xdd);
        r[i + 8] = (vec)_mm512_shuffle_f32x4(b, d, 0x88);
        r[i + 12] = (vec)_mm512_shuffle_f32x4(b, d, 0xdd);
    }
#elif defined(VEC_AVX2)
    UNROLL_FOR (int i = 0; i < 4; i++) {
        __m256 a = (__m256)r[i], b = (__m256)r[i + 4];
        r[i] = (vec)_mm256_permute2f128_ps(a, b, 0x20);
        r[i + 4] = (vec)_mm256_permute2f128_ps(a, b, 0x31);
    }
#endif
}

// ---- functions

// p * 2^n for integers n of -252 .. 254 and p near 1. It multiplies by two factors, so that the result may be subnormal
// or infinite.
INLINE vec vec_scale_2(vec p, vec n)
{
#if defined(VEC_AVX512)
    return (vec)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    veci whole = vec_nearest(n), half = whole >> 1;
    return p * (vec)((half + 127) << 23) * (vec)((whole - half + 127) << 23);
#endif
}

// Splits e^x into 2^n * p. Returns p; n is `shifted` - ROUND_MAGIC. x = n ln 2 + r with |r| <= ln 2 / 2, and
// p = e^r = 1 + r + r^2 P(r), with P a polynomial.
INLINE vec vec_exp_parts(vec x, vec *shifted)
{
    *shifted = vec_fma(x, vec_all(1.442695041f), vec_all(ROUND_MAGIC));
    vec n = *shifted - ROUND_MAGIC;
    vec r = vec_fma(n, vec_all(-0x1.62e4p-1f), x); // the first 16 bits of ln 2, so that the product is exact
    r = vec_fma(n, vec_all(-0x1.7f7d1cp-20f), r);  // the rest of ln 2
    vec p = vec_all(0.0013814467f);
    p = vec_fma(p, r, vec_all(0.008368781f));
    p = vec_fma(p, r, vec_all(0.041668393f));
    p = vec_fma(p, r, vec_all(0.1666652f));
    p = vec_fma(p, r, vec_all(0.49999994f));
    return vec_fma(p * r, r, r) + 1.0f;
}

// e^x within 1.03 ulp. The result is 0 below -104 and infinity above 89.
INLINE vec vec_exp(vec x)
{
    vec shifted, p = vec_exp_parts(vec_at_least(vec_all(-104.0f), vec_at_most(vec_all(89.0f), x)), &shifted);
    return vec_scale_2(p, shifted - ROUND_MAGIC);
}

// e^x for x <= 0. The result is 0 below -87, because operations that meet a subnormal number take hundreds of cycles.
INLINE vec vec_exp_down(vec x)
{
    vec shifted, p = vec_exp_parts(x, &shifted);
#if defined(VEC_AVX512)
    __mmask16 counts = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ); // true for NaN, too
    return (vec)_mm512_maskz_scalef_ps(counts, (__m512)p, (__m512)(shifted - ROUND_MAGIC));
#else
    vec factor = (vec)(((vecu)shifted << 23) + 0x3f800000u); // n is in the lowest bits of `shifted`
    return (vec)(~(x < -87.0f) & (veci)(p * factor));
#endif
}

INLINE vec vec_sigmoid(vec x)
{
    return 1.0f / (1.0f + vec_exp(-x));
}

// tanh within 2 ulp: x + x^3 P(x^2) for |x| < 0.625, else 1 - 2 / (e^(2|x|) + 1) with the sign of x.
INLINE vec vec_tanh(vec x)
{
    vec size = vec_abs(x), x2 = x * x;
    vec p = vec_all(-0.0057049883f);
    p = vec_fma(p, x2, vec_all(0.020639088f));
    p = vec_fma(p, x2, vec_all(-0.053739715f));
    p = vec_fma(p, x2, vec_all(0.13331442f));
    p = vec_fma(p, x2, vec_all(-0.3333328f));
    vec near = vec_fma(p * x2, x, x);
    vec far = 1.0f - 2.0f / (vec_exp(size + size) + 1.0f);
    far = (vec)((veci)far | ((veci)x & INT32_MIN));
    return vec_select(size < 0.625f, near, far);
}

// The distribution function of the normal distribution, (1 + erf(x / sqrt 2)) / 2, with a relative error below 1e-6 on
// both sides. For x < 0 it is e^(-x^2/2) t Q(t) with t = 1 / (1 + 0.31 |x|), for others 1 minus that of -x. The
// rounding error of x^2 (`lost`) is added to the exponent by a first-order term.
INLINE vec vec_normal_cdf(vec x)
{
    vec size = vec_at_most(vec_all(15.0f), vec_abs(x));
    vec x2 = size * size, lost = vec_fma(size, size, -x2);
    vec e = vec_exp(x2 * -0.5f);
    e = vec_fma(e * -0.5f, lost, e);
    vec t = 1.0f / vec_fma(size, vec_all(0.31f), vec_all(1.0f));
    vec q = vec_all(0.03588283f);
    q = vec_fma(q, t, vec_all(-0.1417851f));
    q = vec_fma(q, t, vec_all(0.15539722f));
    q = vec_fma(q, t, vec_all(-0.015225956f));
    q = vec_fma(q, t, vec_all(0.110292546f));
    q = vec_fma(q, t, vec_all(0.10771177f));
    q = vec_fma(q, t, vec_all(0.12407057f));
    q = vec_fma(q, t, vec_all(0.12365619f));
    vec tail = e * t * q;
    return vec_select(x < 0.0f, tail, 1.0f - tail);
}

#endif
