// The search for scales that all quantising encoders share. 16 sub-blocks are searched at once, one per lane.
//
// The naive loop takes a sub-block, guesses a scale, rounds the elements to it, finds the best scale for these
// rounded values by least squares, and tries the next guess. Here each lane of a vector is a sub-block: element i of
// all of them is rounded at once. No sum crosses lanes, so every level of the instruction set gives the same bits.
// What is minimised is sum w (x - x')^2; w is the importance of a column, or 1.
//
// tile_load makes a tile of up to 16 sub-blocks of n elements each; lanes without a sub-block hold zeros. Numbers far
// from 1 are scaled near it by a power of two, `unit`, so that no square overflows. Scales are found in units of it.
// Included by the blocks_*.c of a level; all functions are inlined.
#ifndef QUERN_SCALE_SEARCH_H
#define QUERN_SCALE_SEARCH_H

#include "kernels/cpu/vec.h"

enum { TILE = 16, TILE_N = 64 };
struct tile {
    _Alignas(64) float x[TILE_N][TILE], w[TILE_N][TILE];
    int n;         // elements of a sub-block: 16, 32 or 64
    bool weighted; // false: all w are 1, and w is not read
    float unit;    // the power of two that x was divided by
};

// ---- loading

// The largest magnitude; n is a multiple of 16.
INLINE float largest_of(const float *x, int64_t n)
{
    struct lanes top = {{{0}}};
    for (int64_t i = 0; i < n; i += LANES)
        UNROLL_FOR (int p = 0; p < PARTS; p++)
            top.part[p] = vec_at_least(top.part[p], vec_abs(vec_load(x + i + p * VEC)));
    float most = 0;
    for (int p = 0; p < PARTS; p++)
        for (int i = 0; i < VEC; i++)
            most = MAX(most, top.part[p][i]);
    return most;
}

// A power of two near top; 1 if top has a usual size.
INLINE float unit_of(float top)
{
    if ((top >= 1e-9f && top <= 1e9f) || top == 0)
        return 1;
    int exponent;
    frexpf(top, &exponent);
    return ldexpf(1, MAX(exponent, -125));
}

INLINE quad quad_load(const float *p)
{
    quad q;
    memcpy(&q, p, sizeof(q));
    return q;
}

// Transposes the 4 x 4 matrix at `from`, whose rows are `stride` apart, and stores it to four rows of `to`, from
// `column` on.
INLINE void transpose_quads(const float *from, int stride, float factor, float (*to)[TILE], int column)
{
    quad a = quad_load(from) * factor, b = quad_load(from + stride) * factor;
    quad c = quad_load(from + 2 * stride) * factor, d = quad_load(from + 3 * stride) * factor;
    quad ab = QUAD_SHUFFLE(a, b, 0, 4, 1, 5), ab2 = QUAD_SHUFFLE(a, b, 2, 6, 3, 7);
    quad cd = QUAD_SHUFFLE(c, d, 0, 4, 1, 5), cd2 = QUAD_SHUFFLE(c, d, 2, 6, 3, 7);
    const quad rows[4] = {QUAD_SHUFFLE(ab, cd, 0, 1, 4, 5), QUAD_SHUFFLE(ab, cd, 2, 3, 6, 7),
                          QUAD_SHUFFLE(ab2, cd2, 0, 1, 4, 5), QUAD_SHUFFLE(ab2, cd2, 2, 3, 6, 7)};
    UNROLL_FOR (int i = 0; i < 4; i++)
        memcpy(&to[i][column], &rows[i], sizeof(rows[i]));
}

// Transposes `lanes` sub-blocks of n elements each, which follow each other in x, to columns; n is a multiple of 16.
INLINE void transpose(const float *x, int lanes, int n, float factor, float out[TILE_N][TILE])
{
    int whole = lanes / 4 * 4;
    for (int l = 0; l < whole; l += 4)
        for (int i = 0; i < n; i += 4)
            transpose_quads(x + l * n + i, n, factor, out + i, l);
    for (int l = whole; l < TILE; l++)
        for (int i = 0; i < n; i++)
            out[i][l] = l < lanes ? x[l * n + i] * factor : 0;
}

INLINE void tile_load(struct tile *t, const float *x, const float *importance, int lanes, int n)
{
    t->n = n;
    t->unit = unit_of(largest_of(x, (int64_t)lanes * n));
    transpose(x, lanes, n, 1 / t->unit, t->x);
    float top = importance ? largest_of(importance, (int64_t)lanes * n) : 0;
    t->weighted = top > 0;
    if (t->weighted)
        transpose(importance, lanes, n, 1 / top, t->w);
}

// ---- the values that a type has

struct codec {
    int lo, hi;           // the values are the integers from lo to hi ...
    const int8_t *values; // ... or these 16, ascending, if not NULL
    const float *guesses; // [n_guesses] of 1 / scale, times the largest element (with its sign)
    int n_guesses;
    int n_refine; // how often the best scale is refined by rounding with it and fitting again
};

// The value of the codec that is nearest to v. |v| < 2^22.
INLINE vec nearest_value(const struct codec *c, vec v)
{
    if (!c->values)
        return vec_at_least(vec_all((float)c->lo), vec_at_most(vec_all((float)c->hi), (v + ROUND_MAGIC) - ROUND_MAGIC));
    vec best = vec_all(c->values[0]);
    UNROLL_FOR (int k = 1; k < 16; k++) {
        veci above = v > 0.5f * (float)(c->values[k - 1] + c->values[k]);
        best = vec_select(above, vec_all(c->values[k]), best);
    }
    return best;
}

INLINE vec inverse_or_0(vec x)
{
    return vec_select(x == 0.0f, vec_all(0), 1.0f / x);
}

// ---- x = scale * value

// Of elements x that are rounded to values l: the best scale is xl / ll.
struct fit_sums {
    vec xl, ll; // sum w x l, sum w l l
};

INLINE struct fit_sums fit_sums(const struct tile *t, int at, const struct codec *c, vec inverse, bool weighted)
{
    struct fit_sums s = {{0}, {0}};
    for (int i = 0; i < t->n; i++) {
        vec x = vec_load(&t->x[i][at]), l = nearest_value(c, x * inverse);
        vec wl = weighted ? vec_load(&t->w[i][at]) * l : l;
        s.xl = s.xl + wl * x;
        s.ll = s.ll + wl * l;
    }
    return s;
}

// Keeps the better of two: the one whose best scale has the smaller error, which is the one with the larger xl^2 / ll.
INLINE void keep_better(struct fit_sums *best, struct fit_sums s)
{
    veci better = s.xl * s.xl * best->ll > best->xl * best->xl * s.ll;
    better = better | (best->ll == 0.0f);
    best->xl = vec_select(better, s.xl, best->xl);
    best->ll = vec_select(better, s.ll, best->ll);
}

// The element of largest magnitude, with its sign.
INLINE vec largest_signed(const struct tile *t, int at)
{
    vec top = {0};
    for (int i = 0; i < t->n; i++) {
        vec x = vec_load(&t->x[i][at]);
        top = vec_select(vec_abs(x) > vec_abs(top), x, top);
    }
    return top;
}

INLINE vec fit_scale(const struct tile *t, int at, const struct codec *c, bool weighted)
{
    vec inverse_top = inverse_or_0(largest_signed(t, at));
    struct fit_sums best = {{0}, {0}};
    for (int k = 0; k < c->n_guesses; k++)
        keep_better(&best, fit_sums(t, at, c, inverse_top * c->guesses[k], weighted));
    for (int pass = 0; pass < c->n_refine; pass++)
        keep_better(&best, fit_sums(t, at, c, inverse_or_0(best.xl * inverse_or_0(best.ll)), weighted));
    return best.xl * inverse_or_0(best.ll);
}

// ---- x = scale * q - min

struct affine {
    vec scale, min;
};
struct affine_codec {
    int top;           // q from 0 to top
    bool free;         // min may be negative
    float first, step; // guess k of 1 / scale is (top + first + k step) / range
    int n_guesses, n_refine;
};

struct affine_sums {
    vec l, ll, yl; // sum w l, sum w l l, sum w y l
};

INLINE vec nearest_step(vec v, int top)
{
    return vec_at_least(vec_all(0), vec_at_most(vec_all((float)top), (v + ROUND_MAGIC) - ROUND_MAGIC));
}

// The sums of y = x - lo, where l is (y - shift) * inverse, rounded.
INLINE struct affine_sums affine_sums(const struct tile *t, int at, vec lo, vec shift, vec inverse, int top,
                                      bool weighted)
{
    struct affine_sums s = {{0}, {0}, {0}};
    vec from = lo + shift;
    for (int i = 0; i < t->n; i++) {
        vec x = vec_load(&t->x[i][at]), l = nearest_step((x - from) * inverse, top);
        vec wl = weighted ? vec_load(&t->w[i][at]) * l : l;
        s.l = s.l + wl;
        s.ll = s.ll + wl * l;
        s.yl = s.yl + wl * (x - lo);
    }
    return s;
}

struct affine_best {
    vec error, scale, shift; // y = scale l + shift
};

// Finds scale and shift for the l of the sums by least squares, and keeps them if their error is smaller. w, y and yy
// are the sums of w, w y and w y y. `most` is the largest shift that is allowed; min is -(lo + shift).
INLINE void keep_better_affine(struct affine_best *best, struct affine_sums s, vec w, vec y, vec yy, vec most)
{
    vec det = w * s.ll - s.l * s.l, inverse = inverse_or_0(det);
    vec scale = (w * s.yl - y * s.l) * inverse, shift = (s.ll * y - s.l * s.yl) * inverse;
    veci over = shift > most;
    shift = vec_select(over, most, shift);
    scale = vec_select(over, (s.yl - most * s.l) * inverse_or_0(s.ll), scale);
    vec error = yy - 2.0f * (scale * s.yl + shift * y) + scale * scale * s.ll + 2.0f * (scale * shift * s.l) +
                shift * shift * w;
    veci better = (error < best->error) & (det > 0.0f) & (scale > 0.0f);
    best->error = vec_select(better, error, best->error);
    best->scale = vec_select(better, scale, best->scale);
    best->shift = vec_select(better, shift, best->shift);
}

INLINE struct affine fit_affine(const struct tile *t, int at, const struct affine_codec *c, bool weighted)
{
    vec lo = vec_load(&t->x[0][at]), hi = lo, w = {0}, y = {0}, yy = {0};
    for (int i = 1; i < t->n; i++) {
        vec x = vec_load(&t->x[i][at]);
        lo = vec_at_most(lo, x);
        hi = vec_at_least(hi, x);
    }
    if (!c->free)
        lo = vec_at_most(vec_all(0), lo);
    for (int i = 0; i < t->n; i++) {
        vec d = vec_load(&t->x[i][at]) - lo, wi = weighted ? vec_load(&t->w[i][at]) : vec_all(1);
        w = w + wi;
        y = y + wi * d;
        yy = yy + wi * d * d;
    }
    vec inverse = inverse_or_0(hi - lo), most = c->free ? vec_all(INFINITY) : -lo;
    struct affine_best best = {vec_all(INFINITY), (hi - lo) * (1.0f / (float)c->top), {0}};
    for (int k = 0; k < c->n_guesses; k++) {
        vec guess = inverse * ((float)c->top + c->first + (float)k * c->step);
        keep_better_affine(&best, affine_sums(t, at, lo, vec_all(0), guess, c->top, weighted), w, y, yy, most);
    }
    for (int pass = 0; pass < c->n_refine; pass++)
        keep_better_affine(&best, affine_sums(t, at, lo, best.shift, inverse_or_0(best.scale), c->top, weighted), w, y,
                           yy, most);
    return (struct affine){best.scale, -(lo + best.shift)};
}

// ---- rounded elements as bytes, 0 for the lowest value

// What a round_fn reads; each uses some members.
struct rounding {
    const struct codec *codec;
    int top;
    const float *inverse, *min; // [TILE]
};
// Rounds element i of the sub-blocks from lane `at` on.
typedef veci round_fn(const struct rounding *r, const struct tile *t, int i, int at);

INLINE veci round_symmetric(const struct rounding *r, const struct tile *t, int i, int at)
{
    return vec_nearest(nearest_value(r->codec, vec_load(&t->x[i][at]) * vec_load(r->inverse + at)) -
                       (float)r->codec->lo);
}

INLINE veci round_affine(const struct rounding *r, const struct tile *t, int i, int at)
{
    vec x = vec_load(&t->x[i][at]) + vec_load(r->min + at);
    return vec_nearest(nearest_step(x * vec_load(r->inverse + at), r->top));
}

// The index of the value nearest to x / scale among the codec's 16.
INLINE veci round_to_index(const struct rounding *r, const struct tile *t, int i, int at)
{
    const int8_t *values = r->codec->values;
    vec v = vec_load(&t->x[i][at]) * vec_load(r->inverse + at);
    veci index = {0};
    UNROLL_FOR (int k = 1; k < 16; k++)
        index -= v > 0.5f * (float)(values[k - 1] + values[k]);
    return index;
}

// Rounds a tile: element i of sub-block l is stored to q[l * stride + i]. Four elements are stored together, as a word.
INLINE void round_tile(const struct tile *t, round_fn *round, struct rounding r, const float scale[TILE], uint8_t *q,
                       int stride)
{
    _Alignas(64) float inverse[TILE];
    _Alignas(64) int32_t words[TILE];
    for (int at = 0; at < TILE; at += VEC)
        vec_store(inverse + at, inverse_or_0(vec_load(scale + at)));
    r.inverse = inverse;
    for (int i = 0; i < t->n; i += 4) {
        for (int at = 0; at < TILE; at += VEC) {
            veci four = round(&r, t, i, at) | round(&r, t, i + 1, at) << 8 | round(&r, t, i + 2, at) << 16 |
                        round(&r, t, i + 3, at) << 24;
            memcpy(words + at, &four, sizeof(four));
        }
        for (int l = 0; l < TILE; l++)
            memcpy(q + l * stride + i, &words[l], 4);
    }
}

// ---- float16

// The float16 nearest to x, among the finite ones.
INLINE uint16_t half_of(float x)
{
    uint16_t h = f32_to_f16(x);
    return (h & 0x7fff) >= 0x7c00 ? (uint16_t)((h & 0x8000) | 0x7bff) : h;
}

INLINE void half_store(uint8_t *p, uint16_t h)
{
    memcpy(p, &h, sizeof(h));
}

#endif
