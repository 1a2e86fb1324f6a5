// Blocks of 256 whose sub-blocks have small integer scales: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K and IQ4_XS.
//
// A block has one float16 d for all its sub-blocks (and dmin, in types with minima); the scale of a sub-block is d
// times a small integer. Three steps find them:
//   1. Each sub-block gets the scale that fits it best, independently of the others (scale_search.h).
//   2. d is derived from the largest of these scales, and each scale is rounded to a multiple of d. Three multiples are
//      tried, the nearest and its two neighbours; the one with the smallest error is kept.
//   3. With the elements rounded by these scales, d (and dmin) is fitted again by least squares. The elements are
//      rounded again with the new d, which is kept if that reduces the error.
#include "gguf/dtype_iq.h"
#include "kernels/cpu.h"
#include "kernels/cpu/quantize/scale_search.h"

enum { SUPER = 256 };

// The rounded elements of a tile, one byte each, one sub-block after the other.
typedef uint8_t quants[TILE * 32];

struct k_type {
    struct codec codec;         // for types without mins
    struct affine_codec affine; // for types with mins
    int scale_lo, scale_hi;     // range of the integer scales
    int min_hi;                 // the integer mins are 0 .. min_hi
    int n;                      // elements of a sub-block
};

// One super-block within a tile: lanes from .. to - 1.
struct super {
    int from, to;
    float d, dmin; // in units of the tile
};

// ---- x = d ls q

struct symmetric {
    _Alignas(64) float scale[TILE], ls[TILE]; // the fitted scales; the integer scales
};

struct left {
    vec error;
    struct fit_sums sums;
};

// The error and the sums when the elements are rounded to multiples of `scale`.
INLINE struct left left_over(const struct tile *t, int at, const struct codec *c, vec scale, bool weighted)
{
    struct left r = {{0}, {{0}, {0}}};
    vec inverse = inverse_or_0(scale);
    for (int i = 0; i < t->n; i++) {
        vec x = vec_load(&t->x[i][at]), l = nearest_value(c, x * inverse), d = scale * l - x;
        vec w = weighted ? vec_load(&t->w[i][at]) : vec_all(1);
        r.error = r.error + w * d * d;
        r.sums.xl = r.sums.xl + w * x * l;
        r.sums.ll = r.sums.ll + w * l * l;
    }
    return r;
}

INLINE void round_scales(const struct tile *t, const struct k_type *k, const float d[TILE], struct symmetric *s,
                         bool weighted)
{
    for (int at = 0; at < TILE; at += VEC) {
        vec unit = vec_load(d + at), nearest = vec_load(s->scale + at) * inverse_or_0(unit);
        vec best = {0}, error = vec_all(INFINITY);
        nearest = (nearest + ROUND_MAGIC) - ROUND_MAGIC;
        for (int step = -1; step <= 1; step++) {
            vec ls = nearest + (float)step;
            ls = vec_at_least(vec_all((float)k->scale_lo), vec_at_most(vec_all((float)k->scale_hi), ls));
            vec e = left_over(t, at, &k->codec, unit * ls, weighted).error;
            best = vec_select(e < error, ls, best);
            error = vec_select(e < error, e, error);
        }
        vec_store(s->ls + at, best);
    }
}

// Fits d to the rounded elements by least squares. The new d is kept when rounding again with it reduces the error.
INLINE void refit_d(const struct tile *t, const struct k_type *k, float d[TILE], const struct symmetric *s, int lanes,
                    bool weighted)
{
    _Alignas(64) float xl[TILE], ll[TILE], before[TILE], after[TILE], tried[TILE];
    for (int at = 0; at < TILE; at += VEC) {
        struct left r = left_over(t, at, &k->codec, vec_load(d + at) * vec_load(s->ls + at), weighted);
        vec_store(before + at, r.error);
        vec_store(xl + at, r.sums.xl);
        vec_store(ll + at, r.sums.ll);
    }
    for (int from = 0; from < TILE; from += lanes) {
        double num = 0, den = 0;
        for (int l = from; l < from + lanes; l++) {
            num += (double)s->ls[l] * xl[l];
            den += (double)s->ls[l] * s->ls[l] * ll[l];
        }
        float fitted = f16_to_f32(half_of(den > 0 ? (float)(num / den) * t->unit : 0)) / t->unit;
        for (int l = from; l < from + lanes; l++)
            tried[l] = fitted;
    }
    for (int at = 0; at < TILE; at += VEC)
        vec_store(after + at, left_over(t, at, &k->codec, vec_load(tried + at) * vec_load(s->ls + at), weighted).error);
    for (int from = 0; from < TILE; from += lanes) {
        double gain = 0;
        for (int l = from; l < from + lanes; l++)
            gain += (double)before[l] - after[l];
        for (int l = from; gain > 0 && l < from + lanes; l++)
            d[l] = tried[l];
    }
}

// The first d of each super-block of `lanes` sub-blocks. With it the scale of largest magnitude becomes scale_lo.
INLINE void first_d(const struct tile *t, const struct k_type *k, const struct symmetric *s, int lanes, float d[TILE])
{
    for (int from = 0; from < TILE; from += lanes) {
        float top = 0;
        for (int l = from; l < from + lanes; l++)
            top = fabsf(s->scale[l]) > fabsf(top) ? s->scale[l] : top;
        float fitted = f16_to_f32(half_of(top / (float)k->scale_lo * t->unit)) / t->unit;
        for (int l = from; l < from + lanes; l++)
            d[l] = fitted;
    }
}

INLINE void fit_symmetric_as(const struct tile *t, const struct k_type *k, int lanes, float d[TILE],
                             struct symmetric *s, bool weighted)
{
    for (int at = 0; at < TILE; at += VEC)
        vec_store(s->scale + at, fit_scale(t, at, &k->codec, weighted));
    first_d(t, k, s, lanes, d);
    round_scales(t, k, d, s, weighted);
    refit_d(t, k, d, s, lanes, weighted);
}

INLINE void fit_symmetric(const struct tile *t, const struct k_type *k, int lanes, float d[TILE], struct symmetric *s)
{
    if (t->weighted)
        fit_symmetric_as(t, k, lanes, d, s, true);
    else
        fit_symmetric_as(t, k, lanes, d, s, false);
}

// ---- x = d ls q - dmin lm

struct with_mins {
    _Alignas(64) float scale[TILE], min[TILE], ls[TILE], lm[TILE];
};

struct affine_left {
    vec error;
    struct affine_sums sums; // l, ll, xl
};

INLINE struct affine_left affine_left_over(const struct tile *t, int at, vec scale, vec min, int top, bool weighted)
{
    struct affine_left r = {{0}, {{0}, {0}, {0}}};
    vec inverse = inverse_or_0(scale);
    for (int i = 0; i < t->n; i++) {
        vec x = vec_load(&t->x[i][at]), l = nearest_step((x + min) * inverse, top), d = scale * l - min - x;
        vec w = weighted ? vec_load(&t->w[i][at]) : vec_all(1), wl = w * l;
        r.error = r.error + w * d * d;
        r.sums.l = r.sums.l + wl;
        r.sums.ll = r.sums.ll + wl * l;
        r.sums.yl = r.sums.yl + wl * x;
    }
    return r;
}

struct column_sums {
    vec w, x; // sum w, sum w x
};

INLINE struct column_sums column_sums(const struct tile *t, int at, bool weighted)
{
    struct column_sums s = {{0}, {0}};
    for (int i = 0; i < t->n; i++) {
        vec w = weighted ? vec_load(&t->w[i][at]) : vec_all(1);
        s.w = s.w + w;
        s.x = s.x + w * vec_load(&t->x[i][at]);
    }
    return s;
}

// Rounds the scales and the mins to integers: tries the nearest multiple of d and its two neighbours, each with the min
// that is best for it.
INLINE void round_scales_mins(const struct tile *t, const struct k_type *k, const float d[TILE], const float dmin[TILE],
                              struct with_mins *s, bool weighted)
{
    int top = k->affine.top;
    for (int at = 0; at < TILE; at += VEC) {
        struct column_sums all = column_sums(t, at, weighted);
        vec unit = vec_load(d + at), min_unit = vec_load(dmin + at), fitted = vec_load(s->min + at);
        vec nearest = vec_load(s->scale + at) * inverse_or_0(unit), per_min = inverse_or_0(min_unit);
        vec best = {0}, best_min = {0}, error = vec_all(INFINITY);
        nearest = (nearest + ROUND_MAGIC) - ROUND_MAGIC;
        for (int step = -1; step <= 1; step++) {
            vec ls = vec_at_least(vec_all(0), vec_at_most(vec_all((float)k->scale_hi), nearest + (float)step));
            vec scale = unit * ls;
            vec l = affine_left_over(t, at, scale, fitted, top, weighted).sums.l;
            vec min = (scale * l - all.x) * inverse_or_0(all.w);
            vec lm = nearest_step(vec_at_most(vec_all(1e6f), vec_at_least(vec_all(0), min * per_min)), k->min_hi);
            vec e = affine_left_over(t, at, scale, min_unit * lm, top, weighted).error;
            best = vec_select(e < error, ls, best);
            best_min = vec_select(e < error, lm, best_min);
            error = vec_select(e < error, e, error);
        }
        vec_store(s->ls + at, best);
        vec_store(s->lm + at, best_min);
    }
}

// Fits d and dmin together by least squares.
INLINE void solve_d_dmin(const struct tile *t, const struct with_mins *s, int from, int to, const float l[TILE],
                         const float ll[TILE], const float xl[TILE], const float w[TILE], const float x[TILE], float *d,
                         float *dmin)
{
    double a = 0, b = 0, c = 0, p = 0, q = 0;
    for (int i = from; i < to; i++) {
        a += (double)s->ls[i] * s->ls[i] * ll[i];
        b += (double)s->ls[i] * s->lm[i] * l[i];
        c += (double)s->lm[i] * s->lm[i] * w[i];
        p += (double)s->ls[i] * xl[i];
        q += (double)s->lm[i] * x[i];
    }
    double det = a * c - b * b;
    if (det > 1e-9 * a * c) {
        *d = (float)((p * c - q * b) / det);
        *dmin = (float)((p * b - q * a) / det);
    } else if (a > 0) {
        *d = (float)(p / a);
        *dmin = 0;
    }
    *d = f16_to_f32(half_of(MAX(*d, 0.0f) * t->unit)) / t->unit;
    *dmin = f16_to_f32(half_of(MAX(*dmin, 0.0f) * t->unit)) / t->unit;
}

INLINE void refit_d_dmin(const struct tile *t, const struct k_type *k, int lanes, float d[TILE], float dmin[TILE],
                         const struct with_mins *s, bool weighted)
{
    _Alignas(64) float l[TILE], ll[TILE], xl[TILE], w[TILE], x[TILE], before[TILE], after[TILE], td[TILE], tm[TILE];
    int top = k->affine.top;
    for (int at = 0; at < TILE; at += VEC) {
        struct column_sums all = column_sums(t, at, weighted);
        struct affine_left r = affine_left_over(t, at, vec_load(d + at) * vec_load(s->ls + at),
                                                vec_load(dmin + at) * vec_load(s->lm + at), top, weighted);
        vec_store(before + at, r.error);
        vec_store(l + at, r.sums.l);
        vec_store(ll + at, r.sums.ll);
        vec_store(xl + at, r.sums.yl);
        vec_store(w + at, all.w);
        vec_store(x + at, all.x);
    }
    for (int from = 0; from < TILE; from += lanes) {
        float fitted = d[from], fitted_min = dmin[from];
        solve_d_dmin(t, s, from, from + lanes, l, ll, xl, w, x, &fitted, &fitted_min);
        for (int i = from; i < from + lanes; i++) {
            td[i] = fitted;
            tm[i] = fitted_min;
        }
    }
    for (int at = 0; at < TILE; at += VEC)
        vec_store(after + at, affine_left_over(t, at, vec_load(td + at) * vec_load(s->ls + at),
                                               vec_load(tm + at) * vec_load(s->lm + at), top, weighted)
                                  .error);
    for (int from = 0; from < TILE; from += lanes) {
        double gain = 0;
        for (int i = from; i < from + lanes; i++)
            gain += (double)before[i] - after[i];
        for (int i = from; gain > 0 && i < from + lanes; i++) {
            d[i] = td[i];
            dmin[i] = tm[i];
        }
    }
}

INLINE void first_d_dmin(const struct tile *t, const struct k_type *k, const struct with_mins *s, int lanes,
                         float d[TILE], float dmin[TILE])
{
    for (int from = 0; from < TILE; from += lanes) {
        float scale = 0, min = 0;
        for (int l = from; l < from + lanes; l++) {
            scale = MAX(scale, s->scale[l]);
            min = MAX(min, s->min[l]);
        }
        scale = f16_to_f32(half_of(scale / (float)k->scale_hi * t->unit)) / t->unit;
        min = f16_to_f32(half_of(min / (float)k->min_hi * t->unit)) / t->unit;
        for (int l = from; l < from + lanes; l++) {
            d[l] = scale;
            dmin[l] = min;
        }
    }
}

INLINE void fit_with_mins_as(const struct tile *t, const struct k_type *k, int lanes, float d[TILE], float dmin[TILE],
                             struct with_mins *s, bool weighted)
{
    for (int at = 0; at < TILE; at += VEC) {
        struct affine f = fit_affine(t, at, &k->affine, weighted);
        vec_store(s->scale + at, f.scale);
        vec_store(s->min + at, f.min);
    }
    first_d_dmin(t, k, s, lanes, d, dmin);
    round_scales_mins(t, k, d, dmin, s, weighted);
    refit_d_dmin(t, k, lanes, d, dmin, s, weighted);
}

INLINE void fit_with_mins(const struct tile *t, const struct k_type *k, int lanes, float d[TILE], float dmin[TILE],
                          struct with_mins *s)
{
    if (t->weighted)
        fit_with_mins_as(t, k, lanes, d, dmin, s, true);
    else
        fit_with_mins_as(t, k, lanes, d, dmin, s, false);
}

INLINE void multiply(const float *a, const float *b, float product[TILE])
{
    for (int at = 0; at < TILE; at += VEC)
        vec_store(product + at, vec_load(a + at) * vec_load(b + at));
}

INLINE void round_symmetric_tile(const struct tile *t, const struct k_type *k, round_fn *round, const float *d,
                                 const struct symmetric *s, quants q)
{
    _Alignas(64) float scale[TILE];
    multiply(d, s->ls, scale);
    round_tile(t, round, (struct rounding){.codec = &k->codec}, scale, q, t->n);
}

INLINE void round_tile_with_mins(const struct tile *t, const struct k_type *k, const float *d, const float *dmin,
                                 const struct with_mins *s, quants q)
{
    _Alignas(64) float scale[TILE], min[TILE];
    multiply(d, s->ls, scale);
    multiply(dmin, s->lm, min);
    round_tile(t, round_affine, (struct rounding){.top = k->affine.top, .min = min}, scale, q, t->n);
}

// ---- the blocks; their layouts are described in dtype.c

// Encodes the one or two super-blocks of a tile to b.
typedef void tile_fn(const struct tile *t, int n_supers, uint8_t *b);

INLINE void by_tiles(const float *x, const float *importance, uint8_t *b, int64_t n, int sub, int bytes,
                     tile_fn *encode)
{
    struct tile t;
    int supers = TILE * sub / SUPER;
    for (int64_t at = 0; at < n; at += supers * SUPER, b += supers * bytes) {
        int here = (int)MIN((n - at) / SUPER, supers);
        tile_load(&t, x + at, importance ? importance + at : NULL, here * SUPER / sub, sub);
        encode(&t, here, b);
    }
}

INLINE void store_half(uint8_t *p, const struct tile *t, float d)
{
    half_store(p, half_of(d * t->unit));
}

// Stores the two low bits of 256 values, in the layout of Q2_K and Q3_K.
INLINE void store_2_bits(uint8_t *qs, const uint8_t *q)
{
    for (int i = 0; i < 64; i++) {
        const uint8_t *p = q + i / 32 * 128 + i % 32;
        qs[i] = (uint8_t)((p[0] & 3) | (p[32] & 3) << 2 | (p[64] & 3) << 4 | (p[96] & 3) << 6);
    }
}

INLINE void store_nibbles(uint8_t *qs, const uint8_t *q)
{
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < 32; i++)
            qs[32 * s + i] = (uint8_t)((q[64 * s + i] & 15) | (q[64 * s + 32 + i] & 15) << 4);
}

static const struct k_type q2_k = {.affine = {3, false, -0.95f, 0.15f, 10, 2}, .scale_hi = 15, .min_hi = 15, .n = 16};

INLINE void tile_q2_k(const struct tile *t, int n_supers, uint8_t *b)
{
    _Alignas(64) float d[TILE], dmin[TILE];
    struct with_mins s;
    quants q;
    fit_with_mins(t, &q2_k, 16, d, dmin, &s);
    round_tile_with_mins(t, &q2_k, d, dmin, &s, q);
    (void)n_supers;
    for (int l = 0; l < 16; l++)
        b[l] = (uint8_t)((int)s.ls[l] | (int)s.lm[l] << 4);
    store_2_bits(b + 16, q);
    store_half(b + 80, t, d[0]);
    store_half(b + 82, t, dmin[0]);
}

// Trial scales for eight values. With some of them the largest element is clipped by almost a third.
static const float guesses_3[] = {-4.6f, -4.2f, -3.9f, -3.6f, -3.3f, -3.0f, -2.7f, -2.4f,
                                  4.2f,  3.8f,  3.5f,  3.2f,  2.9f,  2.6f,  2.3f};
static const struct k_type q3_k = {
    .codec = {-4, 3, NULL, guesses_3, COUNT_OF(guesses_3), 2}, .scale_lo = -32, .scale_hi = 31, .n = 16};

INLINE void tile_q3_k(const struct tile *t, int n_supers, uint8_t *b)
{
    _Alignas(64) float d[TILE];
    struct symmetric s;
    quants q;
    fit_symmetric(t, &q3_k, 16, d, &s);
    round_symmetric_tile(t, &q3_k, round_symmetric, d, &s, q);
    (void)n_supers;
    for (int i = 0; i < 32; i++) {
        b[i] = 0;
        for (int k = 0; k < 8; k++)
            b[i] |= (uint8_t)(q[32 * k + i] >> 2 << k);
    }
    store_2_bits(b + 32, q);
    memset(b + 96, 0, 12);
    for (int l = 0; l < 16; l++) {
        int scale = (int)s.ls[l] + 32;
        b[96 + l % 8] |= (uint8_t)((scale & 15) << l / 8 * 4);
        b[104 + l % 4] |= (uint8_t)(scale >> 4 << l / 4 * 2);
    }
    store_half(b + 108, t, d[0]);
}

// Stores eight pairs of a scale and a min of six bits each, in the layout of Q4_K and Q5_K.
INLINE void store_scales_mins(uint8_t *p, const float *ls, const float *lm)
{
    memset(p, 0, 12);
    for (int s = 0; s < 8; s++) {
        int scale = (int)ls[s], min = (int)lm[s];
        if (s < 4) {
            p[s] |= (uint8_t)scale;
            p[s + 4] |= (uint8_t)min;
        } else {
            p[s + 4] |= (uint8_t)((scale & 15) | (min & 15) << 4);
            p[s - 4] |= (uint8_t)(scale >> 4 << 6);
            p[s] |= (uint8_t)(min >> 4 << 6);
        }
    }
}

INLINE void store_head(uint8_t *b, const struct tile *t, const float *d, const float *dmin, const struct with_mins *s,
                       int from)
{
    store_half(b, t, d[from]);
    store_half(b + 2, t, dmin[from]);
    store_scales_mins(b + 4, s->ls + from, s->lm + from);
}

static const struct k_type q4_k = {.affine = {15, false, -1.3f, 0.3f, 8, 2}, .scale_hi = 63, .min_hi = 63, .n = 32};

INLINE void tile_q4_k(const struct tile *t, int n_supers, uint8_t *b)
{
    _Alignas(64) float d[TILE], dmin[TILE];
    struct with_mins s;
    quants q;
    fit_with_mins(t, &q4_k, 8, d, dmin, &s);
    round_tile_with_mins(t, &q4_k, d, dmin, &s, q);
    for (int k = 0; k < n_supers; k++, b += 144) {
        store_head(b, t, d, dmin, &s, 8 * k);
        store_nibbles(b + 16, q + SUPER * k);
    }
}

static const struct k_type q5_k = {.affine = {31, false, -1.6f, 0.4f, 7, 2}, .scale_hi = 63, .min_hi = 63, .n = 32};

INLINE void tile_q5_k(const struct tile *t, int n_supers, uint8_t *b)
{
    _Alignas(64) float d[TILE], dmin[TILE];
    struct with_mins s;
    quants q;
    fit_with_mins(t, &q5_k, 8, d, dmin, &s);
    round_tile_with_mins(t, &q5_k, d, dmin, &s, q);
    for (int k = 0; k < n_supers; k++, b += 176) {
        const uint8_t *p = q + SUPER * k;
        store_head(b, t, d, dmin, &s, 8 * k);
        for (int i = 0; i < 32; i++) {
            b[16 + i] = 0;
            for (int bit = 0; bit < 8; bit++)
                b[16 + i] |= (uint8_t)(p[32 * bit + i] >> 4 << bit);
        }
        store_nibbles(b + 48, p);
    }
}

static const float guesses_6[] = {-32.6f, -32.2f, -31.8f, -31.4f, -31.0f, 31.4f, 31.0f, 30.6f};
static const struct k_type q6_k = {
    .codec = {-32, 31, NULL, guesses_6, COUNT_OF(guesses_6), 2}, .scale_lo = -128, .scale_hi = 127, .n = 16};

INLINE void tile_q6_k(const struct tile *t, int n_supers, uint8_t *b)
{
    _Alignas(64) float d[TILE];
    struct symmetric s;
    quants q;
    fit_symmetric(t, &q6_k, 16, d, &s);
    round_symmetric_tile(t, &q6_k, round_symmetric, d, &s, q);
    (void)n_supers;
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 32; i++) {
            const uint8_t *p = q + 128 * half + i;
            b[64 * half + i] = (uint8_t)((p[0] & 15) | (p[64] & 15) << 4);
            b[64 * half + 32 + i] = (uint8_t)((p[32] & 15) | (p[96] & 15) << 4);
            b[128 + 32 * half + i] = (uint8_t)(p[0] >> 4 | p[32] >> 4 << 2 | p[64] >> 4 << 4 | p[96] >> 4 << 6);
        }
    for (int l = 0; l < 16; l++)
        b[192 + l] = (uint8_t)(int8_t)s.ls[l];
    store_half(b + 208, t, d[0]);
}

static const float guesses_xs[] = {-133, -127, -122, -117, -112, -107, -102, 119, 113, 108, 103};
static const struct k_type iq4_xs = {
    .codec = {0, 0, iq4_values, guesses_xs, COUNT_OF(guesses_xs), 2}, .scale_lo = -32, .scale_hi = 31, .n = 32};

INLINE void tile_iq4_xs(const struct tile *t, int n_supers, uint8_t *b)
{
    _Alignas(64) float d[TILE];
    struct symmetric sym;
    quants q;
    fit_symmetric(t, &iq4_xs, 8, d, &sym);
    round_symmetric_tile(t, &iq4_xs, round_to_index, d, &sym, q);
    for (int k = 0; k < n_supers; k++, b += 136) {
        store_half(b, t, d[8 * k]);
        memset(b + 2, 0, 6);
        uint16_t high = 0;
        for (int s = 0; s < 8; s++) {
            int scale = (int)sym.ls[8 * k + s] + 32;
            b[4 + s / 2] |= (uint8_t)((scale & 15) << s % 2 * 4);
            high |= (uint16_t)(scale >> 4 << 2 * s);
        }
        memcpy(b + 2, &high, sizeof(high));
        for (int i = 0; i < 128; i++) {
            const uint8_t *p = q + SUPER * k + i / 16 * 32 + i % 16;
            b[8 + i] = (uint8_t)(p[0] | p[16] << 4);
        }
    }
}

#define QUANTIZE(name, sub, bytes)                                                                                     \
    static void quantize_##name(const float *x, const float *importance, void *blocks, int64_t n)                      \
    {                                                                                                                  \
        by_tiles(x, importance, blocks, n, sub, bytes, tile_##name);                                                   \
    }
QUANTIZE(q2_k, 16, 84)
QUANTIZE(q3_k, 16, 110)
QUANTIZE(q4_k, 32, 144)
QUANTIZE(q5_k, 32, 176)
QUANTIZE(q6_k, 16, 210)
QUANTIZE(iq4_xs, 32, 136)

quantize_fn *const ISA_FN(quantize_k)[DT_COUNT] = {
    [DT_Q2_K] = quantize_q2_k, [DT_Q3_K] = quantize_q3_k, [DT_Q4_K] = quantize_q4_k,
    [DT_Q5_K] = quantize_q5_k, [DT_Q6_K] = quantize_q6_k, [DT_IQ4_XS] = quantize_iq4_xs,
};
