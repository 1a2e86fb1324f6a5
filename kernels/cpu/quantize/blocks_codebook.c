// Quantises to types whose elements are points of a grid (a codebook), four or eight elements at a time: IQ2_XXS,
// IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M.
//
// The naive search tries every point of the grid for each scale. Here the elements are rounded to levels one by one,
// and only the points near that pattern are tried (codebook_neighbours.h), in as many sub-blocks at once as a tile
// has lanes. The error is sum w (s g - x)^2 = s^2 A - 2 s B + const, where A = sum w g^2 and B = sum w x g. The best
// scale for the chosen points is sum B / sum A over the groups of a sub-block, and reduces the error by (sum B)^2 /
// sum A. Then the scales are rounded to multiples of d, points are chosen once more, and d is fitted to them by least
// squares.
#include "kernels/cpu.h"
#include "kernels/cpu/quantize/codebook_neighbours.h"
#include "kernels/cpu/quantize/scale_search.h"

enum { SUPER = 256, GROUPS_MAX = 8, GUESSES = 8 };

struct grid_type {
    int groups, n;        // groups and elements of a sub-block
    int scale_hi;         // scales are 0 .. scale_hi
    float first, step;    // the factor of a sub-block is d (first + step * scale)
    bool even;            // the number of negative elements in each eight must be even
    bool shifted;         // values are shifted by +-1/8 (IQ1), and there are no separate signs
    bool shift_alike;     // all groups of a sub-block are shifted in the same direction
    float guess[GUESSES]; // guesses of the scale, in units of largest element / largest value
};

// A tile to be encoded. For types with separate signs, its elements are replaced by their magnitudes.
struct grid_tile {
    struct tile t;
    int32_t signs[TILE_N / 8][TILE]; // of each eight elements
};

// The encoding of a super-block.
struct found {
    float d;
    int scale[16];      // of each sub-block
    uint16_t point[64]; // of each group
    uint8_t signs[32];  // of each eight elements
    bool down[32];      // of each group: it is shifted by -1/8
};

// ---- the points of one group in all lanes

struct choice {
    vec a, b;  // A and B of the chosen point
    veci near; // index of the point in the table of neighbours
    veci down; // all ones: it is shifted by -1/8
};

// The values of the levels, which may be shifted by 1/8.
struct values {
    float of[LEVELS_MAX];
};

INLINE struct values values_of(const struct grid_neighbours *g, float shift)
{
    struct values v = {{0}};
    for (int i = 0; i < LEVELS_MAX; i++)
        v.of[i] = g->level[i] + shift;
    return v;
}

// The pattern of the elements y / s, as an index into the table of neighbours.
INLINE veci rounded_pattern(const struct grid_neighbours *g, const struct values *v, const vec *y, int width,
                            vec inverse)
{
    float top = (float)(g->n_levels - 1), step = (g->level[g->n_levels - 1] - g->level[0]) / top;
    vec pattern = {0}, per_step = inverse * (1 / step), from = vec_all(v->of[0] / step);
    UNROLL_FOR (int i = 0; i < width; i++) {
        vec level = (y[i] * per_step - from + ROUND_MAGIC) - ROUND_MAGIC;
        pattern = pattern * (float)g->n_levels + vec_at_least(vec_all(0), vec_at_most(vec_all(top), level));
    }
    return vec_nearest(pattern) * NEAR;
}

// The point with the smallest s A - 2 B among those near the elements y; of equals, the first in the list.
INLINE struct choice nearest_point(const struct grid_neighbours *g, const struct values *v, const vec *y, const vec *w,
                                   int width, vec s, vec inverse)
{
    veci index = rounded_pattern(g, v, y, width, inverse), word = {0};
    struct choice c = {.near = index};
    vec ws[8], wy[8], least = vec_all(INFINITY);
    UNROLL_FOR (int i = 0; i < width; i++) {
        wy[i] = w[i] * y[i];
        ws[i] = w[i] * s;
        wy[i] += wy[i];
    }
    for (int k = 0; k < NEAR; k++) {
        veci point = veci_gather(g->near[0] + k, index);
        vec left = {0};
        UNROLL_FOR (int i = 0; i < width; i++) {
            vec value = vec_of_8(v->of, point >> 4 * i);
            left += value * (value * ws[i] - wy[i]);
        }
        veci better = left < least;
        least = vec_select(better, left, least);
        word = (better & point) | (~better & word);
        c.near = (better & (index + k)) | (~better & c.near);
    }
    c.a = c.b = vec_all(0);
    UNROLL_FOR (int i = 0; i < width; i++) {
        vec value = vec_of_8(v->of, word >> 4 * i);
        c.a += w[i] * value * value;
        c.b += wy[i] * value;
    }
    c.b *= 0.5f;
    return c;
}

INLINE void load_group(const struct tile *t, int first, int width, int at, vec *y, vec *w)
{
    UNROLL_FOR (int i = 0; i < width; i++) {
        y[i] = vec_load(&t->x[first + i][at]);
        w[i] = vec_load(&t->w[first + i][at]);
    }
}

static void choose_8(const struct grid_neighbours *g, const struct values *v, const struct tile *t, int first, int at,
                     const float *scale, struct choice *c)
{
    vec y[8], w[8], s = vec_load(scale);
    load_group(t, first, 8, at, y, w);
    *c = nearest_point(g, v, y, w, 8, s, inverse_or_0(s));
}

static void choose_4(const struct grid_neighbours *g, const struct values *v, const struct tile *t, int first, int at,
                     const float *scale, struct choice *c)
{
    vec y[8], w[8], s = vec_load(scale);
    load_group(t, first, 4, at, y, w);
    *c = nearest_point(g, v, y, w, 4, s, inverse_or_0(s));
}

// ---- the points of a sub-block in all lanes

struct points {
    vec a, b; // sums over the groups
    struct choice of[GROUPS_MAX];
};

static void choose(const struct grid_type *k, const struct grid_neighbours *g, float shift, const struct tile *t,
                   int at, const float *scale, struct choice *c)
{
    struct values v = values_of(g, shift);
    for (int i = 0; i < k->groups; i++)
        if (g->width == 8)
            choose_8(g, &v, t, i * 8, at, scale, &c[i]);
        else
            choose_4(g, &v, t, i * 4, at, scale, &c[i]);
}

// The error of a choice divided by s, without its constant term.
INLINE vec left_by(struct choice c, vec s)
{
    return s * c.a - 2.0f * c.b;
}

// Replaces a by b in the lanes where b is better.
INLINE void keep_lower(struct choice *a, struct choice b, veci better)
{
    a->a = vec_select(better, b.a, a->a);
    a->b = vec_select(better, b.b, a->b);
    a->near = (better & b.near) | (~better & a->near);
    a->down = better;
}

// For IQ1, whose values are all shifted up or down by 1/8: chooses points for both and keeps the better.
static void choose_shifted(const struct grid_type *k, const struct grid_neighbours *g, const struct tile *t, int at,
                           const float *scale, struct choice *c)
{
    struct choice lower[GROUPS_MAX];
    vec s = vec_load(scale), up = {0}, down = {0};
    choose(k, g, 0.125f, t, at, scale, c);
    choose(k, g, -0.125f, t, at, scale, lower);
    for (int i = 0; i < k->groups; i++) {
        up += left_by(c[i], s);
        down += left_by(lower[i], s);
    }
    for (int i = 0; i < k->groups; i++)
        keep_lower(&c[i], lower[i], k->shift_alike ? down < up : left_by(lower[i], s) < left_by(c[i], s));
}

INLINE void choose_points(const struct grid_type *k, const struct grid_neighbours *g, const struct tile *t, int at,
                          vec s, struct points *p)
{
    _Alignas(64) float scale[VEC];
    vec_store(scale, s);
    if (k->shifted)
        choose_shifted(k, g, t, at, scale, p->of);
    else
        choose(k, g, 0, t, at, scale, p->of);
    p->a = p->b = vec_all(0);
    for (int i = 0; i < k->groups; i++) {
        p->a += p->of[i].a;
        p->b += p->of[i].b;
    }
}

// The scale with the smallest error among the guesses and one refinement.
INLINE vec fit_sub_blocks(const struct grid_type *k, const struct grid_neighbours *g, const struct tile *t, int at)
{
    struct points p;
    vec top = {0}, best = {0}, most = {0};
    for (int i = 0; i < k->n; i++)
        top = vec_at_least(top, vec_abs(vec_load(&t->x[i][at])));
    top *= 1 / g->level[g->n_levels - 1];
    for (int guess = 0; guess <= GUESSES; guess++) {
        choose_points(k, g, t, at, guess < GUESSES ? top * k->guess[guess] : best, &p);
        veci better = (p.a > 0.0f) & (p.b > 0.0f) & (p.b * p.b > most * p.a);
        vec scale = p.b * inverse_or_0(p.a);
        most = vec_select(better, p.b * scale, most);
        best = vec_select(better, scale, best);
    }
    return best;
}

// ---- signs

// Moves the signs of eight elements to `signs` and leaves magnitudes. Where only an even number of signs can be
// stored, the sign of the element that matters least is flipped; its magnitude is then negative.
INLINE void split_eight(struct tile *t, int first, int at, bool even, int32_t *signs)
{
    vec x, least = vec_all(INFINITY);
    veci bits = {0}, odd = {0}, weakest = {0};
    for (int i = 0; i < 8; i++) {
        x = vec_load(&t->x[first + i][at]);
        veci negative = x < 0.0f;
        vec cost = vec_load(&t->w[first + i][at]) * x * x;
        bits |= negative & 1 << i;
        odd ^= negative;
        veci lower = cost < least;
        weakest = (lower & 1 << i) | (~lower & weakest);
        least = vec_select(lower, cost, least);
        vec_store(&t->x[first + i][at], vec_abs(x));
    }
    odd = even ? odd : veci_all(0);
    bits ^= odd & weakest;
    memcpy(signs, &bits, sizeof(bits));
    for (int i = 0; i < 8; i++) {
        x = vec_load(&t->x[first + i][at]);
        vec_store(&t->x[first + i][at], vec_select(odd & ((weakest & 1 << i) != 0), -x, x));
    }
}

INLINE void split_signs(const struct grid_type *k, struct grid_tile *t)
{
    for (int e = 0; e < k->n / 8; e++)
        for (int at = 0; at < TILE; at += VEC)
            split_eight(&t->t, 8 * e, at, k->even, &t->signs[e][at]);
}

// ---- super-blocks

// The choice for each sub-block of a tile, by lane.
struct settled {
    _Alignas(64) float a[TILE], b[TILE], scale[TILE]; // sums A and B; the scale as an integer
    int32_t near[GROUPS_MAX][TILE], down[GROUPS_MAX][TILE];
};

// Chooses points for each of the three scales around the fitted one, and keeps the scale with the smallest error.
INLINE void settle(const struct grid_type *k, const struct grid_neighbours *g, const struct tile *t, int at, vec fitted,
                   vec d, struct settled *f)
{
    struct points p, best = {.a = {0}};
    vec least = vec_all(INFINITY), scale = {0};
    vec nearest = (fitted * inverse_or_0(d) - k->first) * (1 / k->step);
    nearest = nearest_step(nearest, k->scale_hi);
    for (int step = -1; step <= 1; step++) {
        vec tried = nearest_step(nearest + (float)step, k->scale_hi), s = d * (k->first + k->step * tried);
        choose_points(k, g, t, at, s, &p);
        vec left = s * (s * p.a - 2.0f * p.b);
        veci better = left < least;
        least = vec_select(better, left, least);
        scale = vec_select(better, tried, scale);
        best.a = vec_select(better, p.a, best.a);
        best.b = vec_select(better, p.b, best.b);
        for (int i = 0; i < k->groups; i++) {
            best.of[i].near = (better & p.of[i].near) | (~better & best.of[i].near);
            best.of[i].down = (better & p.of[i].down) | (~better & best.of[i].down);
        }
    }
    vec_store(f->a + at, best.a);
    vec_store(f->b + at, best.b);
    vec_store(f->scale + at, scale);
    for (int i = 0; i < k->groups; i++) {
        memcpy(&f->near[i][at], &best.of[i].near, sizeof(veci));
        memcpy(&f->down[i][at], &best.of[i].down, sizeof(veci));
    }
}

// Collects the super-block whose sub-blocks are the lanes from `from` on, and fits its d.
INLINE void gather_found(const struct grid_type *k, const struct grid_neighbours *g, const struct grid_tile *t,
                         const struct settled *s, int from, struct found *f)
{
    int subs = SUPER / k->n, octets = k->n / 8;
    double num = 0, den = 0;
    for (int l = 0; l < subs; l++) {
        double scale = (double)k->first + (double)k->step * s->scale[from + l];
        num += scale * s->b[from + l];
        den += scale * scale * s->a[from + l];
        f->scale[l] = (int)s->scale[from + l];
        for (int i = 0; i < k->groups; i++) {
            f->point[l * k->groups + i] = g->number[s->near[i][from + l] / NEAR][s->near[i][from + l] % NEAR];
            if (k->shifted)
                f->down[l * k->groups + i] = s->down[i][from + l];
        }
        for (int e = 0; !k->shifted && e < octets; e++)
            f->signs[l * octets + e] = (uint8_t)t->signs[e][from + l];
    }
    f->d = f16_to_f32(half_of((den > 0 ? (float)MAX(num / den, 0.0) : 0) * t->t.unit));
}

// Sets d of each super-block such that its largest scale becomes scale_hi.
INLINE void first_d(const struct grid_type *k, float unit, const float scale[TILE], float d[TILE])
{
    int subs = SUPER / k->n;
    for (int from = 0; from < TILE; from += subs) {
        float most = 0;
        for (int l = from; l < from + subs; l++)
            most = MAX(most, scale[l]);
        most = f16_to_f32(half_of(most / (k->first + k->step * (float)k->scale_hi) * unit)) / unit;
        for (int l = from; l < from + subs; l++)
            d[l] = most;
    }
}

INLINE void search(const struct grid_type *k, const struct grid_neighbours *g, struct grid_tile *t, struct settled *s)
{
    _Alignas(64) float scale[TILE], d[TILE];
    if (!k->shifted)
        split_signs(k, t);
    for (int at = 0; at < TILE; at += VEC)
        vec_store(scale + at, fit_sub_blocks(k, g, &t->t, at));
    first_d(k, t->t.unit, scale, d);
    for (int at = 0; at < TILE; at += VEC)
        settle(k, g, &t->t, at, vec_load(scale + at), vec_load(d + at), s);
}

typedef void store_fn(const struct found *f, uint8_t *b);

static void encode_grid(const struct grid_type *k, const struct grid_neighbours *g, const float *x,
                        const float *importance, uint8_t *b, int64_t n, int bytes, store_fn *store)
{
    struct grid_tile t;
    struct settled s;
    struct found f = {0};
    int subs = SUPER / k->n;
    for (int64_t at = 0; at < n; at += TILE * k->n) {
        int lanes = (int)MIN((n - at) / k->n, TILE);
        tile_load(&t.t, x + at, importance ? importance + at : NULL, lanes, k->n);
        for (int i = 0; !t.t.weighted && i < k->n; i++)
            for (int l = 0; l < TILE; l++)
                t.t.w[i][l] = 1;
        search(k, g, &t, &s);
        for (int from = 0; from < lanes; from += subs, b += bytes) {
            gather_found(k, g, &t, &s, from, &f);
            memset(b, 0, (size_t)bytes);
            store(&f, b);
        }
    }
}

// ---- the blocks, whose bits are described in dtype_iq.c

#define GUESS_2                                                                                                        \
    {                                                                                                                  \
        0.5f, 0.6f, 0.68f, 0.76f, 0.84f, 0.92f, 1.0f, 1.12f                                                            \
    }
#define GUESS_3                                                                                                        \
    {                                                                                                                  \
        0.7f, 0.78f, 0.84f, 0.9f, 0.95f, 1.0f, 1.06f, 1.15f                                                            \
    }
#define GUESS_1                                                                                                        \
    {                                                                                                                  \
        0.3f, 0.38f, 0.46f, 0.54f, 0.62f, 0.72f, 0.84f, 1.0f                                                           \
    }

// Stores a word of four times seven signs and a scale of four bits.
INLINE void store_word(uint8_t *p, const struct found *f, int sub)
{
    uint32_t word = (uint32_t)f->scale[sub] << 28;
    for (int k = 0; k < 4; k++)
        word |= (uint32_t)(f->signs[4 * sub + k] & 127) << 7 * k;
    memcpy(p, &word, sizeof(word));
}

static const struct grid_type iq2_xxs = {4, 32, 15, 0.125f, 0.25f, true, false, false, GUESS_2};
INLINE void store_iq2_xxs(const struct found *f, uint8_t *b)
{
    half_store(b, half_of(f->d));
    for (int s = 0; s < 8; s++) {
        for (int k = 0; k < 4; k++)
            b[2 + 8 * s + k] = (uint8_t)f->point[4 * s + k];
        store_word(b + 2 + 8 * s + 4, f, s);
    }
}

INLINE void store_scale_nibbles(uint8_t *p, const struct found *f, int subs)
{
    for (int s = 0; s < subs; s++)
        p[s / 2] |= (uint8_t)(f->scale[s] << s % 2 * 4);
}

static const struct grid_type iq2_xs = {2, 16, 15, 0.125f, 0.25f, true, false, false, GUESS_2};
INLINE void store_iq2_xs(const struct found *f, uint8_t *b)
{
    half_store(b, half_of(f->d));
    for (int k = 0; k < 32; k++)
        half_store(b + 2 + 2 * k, (uint16_t)(f->point[k] | (f->signs[k] & 127) << 9));
    store_scale_nibbles(b + 66, f, 16);
}

static const struct grid_type iq2_s = {2, 16, 15, 0.125f, 0.25f, false, false, false, GUESS_2};
INLINE void store_iq2_s(const struct found *f, uint8_t *b)
{
    half_store(b, half_of(f->d));
    for (int k = 0; k < 32; k++) {
        b[2 + k] = (uint8_t)f->point[k];
        b[34 + k] = f->signs[k];
        b[66 + k / 4] |= (uint8_t)(f->point[k] >> 8 << k % 4 * 2);
    }
    store_scale_nibbles(b + 74, f, 16);
}

static const struct grid_type iq3_xxs = {8, 32, 15, 0.25f, 0.5f, true, false, false, GUESS_3};
INLINE void store_iq3_xxs(const struct found *f, uint8_t *b)
{
    half_store(b, half_of(f->d));
    for (int k = 0; k < 64; k++)
        b[2 + k] = (uint8_t)f->point[k];
    for (int s = 0; s < 8; s++)
        store_word(b + 66 + 4 * s, f, s);
}

static const struct grid_type iq3_s = {8, 32, 15, 1, 2, false, false, false, GUESS_3};
INLINE void store_iq3_s(const struct found *f, uint8_t *b)
{
    half_store(b, half_of(f->d));
    for (int k = 0; k < 64; k++) {
        b[2 + k] = (uint8_t)f->point[k];
        b[66 + k / 8] |= (uint8_t)(f->point[k] >> 8 << k % 8);
    }
    memcpy(b + 74, f->signs, 32);
    store_scale_nibbles(b + 106, f, 8);
}

static const struct grid_type iq1_s = {4, 32, 7, 1, 2, false, true, true, GUESS_1};
INLINE void store_iq1_s(const struct found *f, uint8_t *b)
{
    half_store(b, half_of(f->d));
    for (int s = 0; s < 8; s++) {
        uint16_t high = (uint16_t)(f->scale[s] << 12 | f->down[4 * s] << 15);
        for (int k = 0; k < 4; k++) {
            b[2 + 4 * s + k] = (uint8_t)f->point[4 * s + k];
            high |= (uint16_t)(f->point[4 * s + k] >> 8 << 3 * k);
        }
        half_store(b + 34 + 2 * s, high);
    }
}

static const struct grid_type iq1_m = {2, 16, 7, 1, 2, false, true, false, GUESS_1};
INLINE void store_iq1_m(const struct found *f, uint8_t *b)
{
    uint16_t d = half_of(f->d);
    for (int k = 0; k < 32; k++) {
        b[k] = (uint8_t)f->point[k];
        b[32 + k / 2] |= (uint8_t)((f->point[k] >> 8 | f->down[k] << 3) << k % 2 * 4);
    }
    for (int q = 0; q < 4; q++) {
        uint16_t scales = (uint16_t)((d >> 4 * q & 15) << 12);
        for (int k = 0; k < 4; k++)
            scales |= (uint16_t)(f->scale[4 * q + k] << 3 * k);
        half_store(b + 48 + 2 * q, scales);
    }
}

#define QUANTIZE(name, bytes, grid)                                                                                    \
    static void quantize_##name(const float *x, const float *importance, void *blocks, int64_t n)                      \
    {                                                                                                                  \
        encode_grid(&name, neighbours_##grid(), x, importance, blocks, n, bytes, store_##name);                        \
    }
QUANTIZE(iq2_xxs, 66, iq2_xxs)
QUANTIZE(iq2_xs, 74, iq2_xs)
QUANTIZE(iq2_s, 82, iq2_s)
QUANTIZE(iq3_xxs, 98, iq3_xxs)
QUANTIZE(iq3_s, 110, iq3_s)
QUANTIZE(iq1_s, 50, iq1)
QUANTIZE(iq1_m, 56, iq1)

quantize_fn *const ISA_FN(quantize_grid)[DT_COUNT] = {
    [DT_IQ2_XXS] = quantize_iq2_xxs, [DT_IQ2_XS] = quantize_iq2_xs, [DT_IQ2_S] = quantize_iq2_s,
    [DT_IQ3_XXS] = quantize_iq3_xxs, [DT_IQ3_S] = quantize_iq3_s,   [DT_IQ1_S] = quantize_iq1_s,
    [DT_IQ1_M] = quantize_iq1_m,
};
