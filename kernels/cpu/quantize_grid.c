// Types whose elements are points of a grid, four or eight at a time: IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S,
// IQ1_M.
//
// The naive search tries for each scale every point of the grid: sum w (s g - x)^2 = s^2 A - 2 s B + const, where A =
// sum w g^2 and B = sum w x g do not depend on the scale. So A and B of all points are computed once a group, points
// side by side in the lanes, and a scale costs one pass over them. The best scale for the points that were chosen is
// sum B / sum A over the groups of a sub-block, and leaves what is left by -(sum B)^2 / sum A.
// A scale is then rounded to a multiple of d, points are chosen once more, and d is fitted to them by least squares.
#include "gguf/dtype_iq.h"
#include "kernels/cpu/quantize_search.h"

enum { SUPER = 256, POINTS_MAX = 2048, WIDTH_MAX = 8, GROUPS_MAX = 8, SUBS_MAX = 16, GUESSES = 8 };

// A grid with its points side by side: value i of point k at [i][k].
struct grid {
    int n, width;
    float top; // the largest value
    _Alignas(64) float value[WIDTH_MAX][POINTS_MAX], square[WIDTH_MAX][POINTS_MAX];
};

struct grid_type {
    int groups, subs;     // groups a sub-block, sub-blocks a super-block
    int scale_hi;         // scales are 0 .. scale_hi
    float first, step;    // a sub-block's scale is d (first + step * scale)
    bool even;            // the number of negative elements of each eight must be even
    bool shifted;         // values are moved by +-1/8 (IQ1); no signs are kept apart
    bool shift_alike;     // by the same in a whole sub-block
    float guess[GUESSES]; // of the scale, times largest element / largest value
};

// What was found of a super-block.
struct found {
    float d;
    int scale[SUBS_MAX];
    uint16_t point[64]; // of each group
    uint8_t signs[32];  // of each eight elements
    bool down[32];      // shifted by -1/8; of each group
};

// The products of one group with all points. For IQ1 also V = sum w g, to move all values by a shift.
struct products {
    _Alignas(64) float a[POINTS_MAX], b[POINTS_MAX], v[POINTS_MAX];
    float w, wx; // sum w, sum w x
};

struct choice {
    float a, b; // of the chosen point
    int point;
    bool down;
};

INLINE void products(const struct grid *g, const float *x, const float *w, bool shifted, struct products *p)
{
    p->w = p->wx = 0;
    for (int i = 0; i < g->width; i++) {
        p->w += w[i];
        p->wx += w[i] * x[i];
    }
    for (int k = 0; k < g->n; k += VEC) {
        vec a = {0}, b = {0}, v = {0};
        for (int i = 0; i < g->width; i++) {
            vec value = vec_load(&g->value[i][k]);
            a += w[i] * vec_load(&g->square[i][k]);
            b += w[i] * x[i] * value;
            if (shifted)
                v += w[i] * value;
        }
        vec_store(p->a + k, a);
        vec_store(p->b + k, b);
        if (shifted)
            vec_store(p->v + k, v);
    }
}

// The point with the least s A - 2 B, the first of equals. With a shift t the values g + t have A + 2 t V + t^2 W and
// B + t WX.
INLINE struct choice nearest_point(const struct products *p, int n, float s, float shift)
{
    vec best = vec_all(INFINITY);
    veci at = {0}, index, step = veci_all(VEC);
    for (int i = 0; i < VEC; i++)
        index[i] = i;
    for (int k = 0; k < n; k += VEC, index += step) {
        vec a = vec_load(p->a + k);
        if (shift != 0)
            a = a + 2 * shift * vec_load(p->v + k);
        vec left = s * a - 2.0f * vec_load(p->b + k);
        veci better = left < best;
        best = vec_select(better, left, best);
        at = (better & index) | (~better & at);
    }
    int lane = 0;
    for (int i = 1; i < VEC; i++)
        if (best[i] < best[lane] || (best[i] == best[lane] && at[i] < at[lane]))
            lane = i;
    int point = at[lane];
    float v = shift != 0 ? p->v[point] : 0;
    return (struct choice){p->a[point] + 2 * shift * v + shift * shift * p->w, p->b[point] + shift * p->wx, point,
                           shift < 0};
}

INLINE float left_by(struct choice c, float s)
{
    return s * c.a - 2 * c.b;
}

// The best points for a scale in all groups of a sub-block; *a and *b become the sums.
INLINE void choose_points(const struct grid_type *t, const struct grid *g, const struct products *p, float s,
                          struct choice *c, float *a, float *b)
{
    float up = 0, down = 0;
    struct choice lower[GROUPS_MAX];
    for (int i = 0; i < t->groups; i++) {
        c[i] = nearest_point(&p[i], g->n, s, t->shifted ? 0.125f : 0);
        if (!t->shifted)
            continue;
        lower[i] = nearest_point(&p[i], g->n, s, -0.125f);
        up += left_by(c[i], s);
        down += left_by(lower[i], s);
    }
    *a = *b = 0;
    for (int i = 0; i < t->groups; i++) {
        if (t->shifted && (t->shift_alike ? down < up : left_by(lower[i], s) < left_by(c[i], s)))
            c[i] = lower[i];
        *a += c[i].a;
        *b += c[i].b;
    }
}

// Of the guesses and one refinement, the scale that leaves least.
INLINE float fit_sub_block(const struct grid_type *t, const struct grid *g, const struct products *p, float top)
{
    struct choice c[GROUPS_MAX];
    float best = 0, most = 0, a, b;
    for (int k = 0; k <= GUESSES && top > 0; k++) {
        float s = k < GUESSES ? top / g->top * t->guess[k] : best;
        if (s <= 0)
            continue;
        choose_points(t, g, p, s, c, &a, &b);
        if (a > 0 && b > 0 && b * b > most * a) {
            most = b * b / a;
            best = b / a;
        }
    }
    return best;
}

// --- a super-block ---

// Signs apart, magnitudes in y. Where only an even number of signs can be kept, the element that matters least changes
// its own: its magnitude is then negative.
INLINE void split_signs(const struct grid_type *t, const float *x, const float *w, float *y, uint8_t signs[32])
{
    for (int e = 0; e < SUPER / 8; e++) {
        int least = 0;
        signs[e] = 0;
        for (int i = 0; i < 8; i++) {
            const float v = x[8 * e + i];
            y[8 * e + i] = t->shifted ? v : fabsf(v);
            signs[e] |= (uint8_t)((v < 0) << i);
            float cost = w[8 * e + i] * v * v, before = w[8 * e + least] * x[8 * e + least] * x[8 * e + least];
            least = cost < before ? i : least;
        }
        if (t->even && __builtin_parity(signs[e])) {
            signs[e] ^= (uint8_t)(1 << least);
            y[8 * e + least] = -y[8 * e + least];
        }
    }
}

INLINE float scale_of(const struct grid_type *t, int scale)
{
    return t->first + t->step * (float)scale;
}

INLINE int nearest_scale(const struct grid_type *t, float scale, float d)
{
    float q = d > 0 ? rintf((scale / d - t->first) / t->step) : 0;
    return (int)(q < 0 ? 0 : q > (float)t->scale_hi ? (float)t->scale_hi : q);
}

INLINE void sub_products(const struct grid_type *t, const struct grid *g, const float *y, const float *w, int sub,
                         struct products *p)
{
    for (int i = 0; i < t->groups; i++) {
        int at = (sub * t->groups + i) * g->width;
        products(g, y + at, w + at, t->shifted, &p[i]);
    }
}

// The points for each of the scales around the nearest, and what that leaves: the best stays in f.
INLINE void settle_sub_block(const struct grid_type *t, const struct grid *g, const struct products *p, int sub,
                             float scale, struct found *f, double *num, double *den)
{
    struct choice c[GROUPS_MAX];
    int nearest = nearest_scale(t, scale, f->d), last = -1;
    float least = INFINITY, kept_a = 0, kept_b = 0;
    for (int step = -1; step <= 1; step++) {
        int tried = MAX(0, MIN(t->scale_hi, nearest + step));
        float a, b, s = f->d * scale_of(t, tried);
        if (tried == last)
            continue;
        last = tried;
        choose_points(t, g, p, s, c, &a, &b);
        float left = s * (s * a - 2 * b);
        if (left >= least)
            continue;
        least = left;
        kept_a = a;
        kept_b = b;
        f->scale[sub] = tried;
        for (int i = 0; i < t->groups; i++) {
            f->point[sub * t->groups + i] = (uint16_t)c[i].point;
            if (t->shifted)
                f->down[sub * t->groups + i] = c[i].down;
        }
    }
    double s = scale_of(t, f->scale[sub]);
    *num += s * kept_b;
    *den += s * s * kept_a;
}

INLINE void search(const struct grid_type *t, const struct grid *g, const float *source, const float *importance,
                   struct found *f)
{
    struct products p[GROUPS_MAX];
    float x[SUPER], y[SUPER], w[SUPER], scale[SUBS_MAX], most = 0;
    float unit = unit_of(largest_of(source, SUPER)), heaviest = importance ? largest_of(importance, SUPER) : 0;
    for (int i = 0; i < SUPER; i++) {
        x[i] = source[i] / unit;
        w[i] = heaviest > 0 ? importance[i] / heaviest : 1;
    }
    int n = SUPER / t->subs;
    split_signs(t, x, w, y, f->signs);
    for (int s = 0; s < t->subs; s++) {
        sub_products(t, g, y, w, s, p);
        scale[s] = fit_sub_block(t, g, p, largest_of(x + s * n, n));
        most = MAX(most, scale[s]);
    }
    f->d = f16_to_f32(half_of(most / scale_of(t, t->scale_hi) * unit)) / unit;
    double num = 0, den = 0;
    for (int s = 0; s < t->subs; s++) {
        sub_products(t, g, y, w, s, p);
        settle_sub_block(t, g, p, s, scale[s], f, &num, &den);
    }
    f->d = f16_to_f32(half_of((den > 0 ? (float)MAX(num / den, 0.0) : 0) * unit));
}

// --- grids ---

INLINE void load_grid8(struct grid *g, const uint64_t *points, int n, bool is_signed)
{
    g->n = n;
    g->width = 8;
    g->top = 0;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 8; i++) {
            uint8_t byte = (uint8_t)(points[k] >> 8 * i);
            float v = is_signed ? (float)(int8_t)byte : (float)byte;
            g->value[i][k] = v;
            g->square[i][k] = v * v;
            g->top = MAX(g->top, v);
        }
}

INLINE void load_grid4(struct grid *g, const uint32_t *points, int n)
{
    g->n = n;
    g->width = 4;
    g->top = 0;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 4; i++) {
            float v = (float)(points[k] >> 8 * i & 255);
            g->value[i][k] = v;
            g->square[i][k] = v * v;
            g->top = MAX(g->top, v);
        }
}

// --- the blocks; dtype_iq.c describes their bits ---

typedef void store_fn(const struct found *f, uint8_t *b);

INLINE void by_supers(const struct grid_type *t, const struct grid *g, const float *x, const float *importance,
                      uint8_t *b, int64_t n, int bytes, store_fn *store)
{
    struct found f = {0};
    for (int64_t at = 0; at < n; at += SUPER, b += bytes) {
        search(t, g, x + at, importance ? importance + at : NULL, &f);
        memset(b, 0, (size_t)bytes);
        store(&f, b);
    }
}

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

// Four times seven signs and a scale of four bits.
INLINE void store_word(uint8_t *p, const struct found *f, int sub)
{
    uint32_t word = (uint32_t)f->scale[sub] << 28;
    for (int k = 0; k < 4; k++)
        word |= (uint32_t)(f->signs[4 * sub + k] & 127) << 7 * k;
    memcpy(p, &word, sizeof(word));
}

static const struct grid_type iq2_xxs = {4, 8, 15, 0.125f, 0.25f, true, false, false, GUESS_2};
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

static const struct grid_type iq3_xxs = {8, 8, 15, 0.25f, 0.5f, true, false, false, GUESS_3};
INLINE void store_iq3_xxs(const struct found *f, uint8_t *b)
{
    half_store(b, half_of(f->d));
    for (int k = 0; k < 64; k++)
        b[2 + k] = (uint8_t)f->point[k];
    for (int s = 0; s < 8; s++)
        store_word(b + 66 + 4 * s, f, s);
}

static const struct grid_type iq3_s = {8, 8, 15, 1, 2, false, false, false, GUESS_3};
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

static const struct grid_type iq1_s = {4, 8, 7, 1, 2, false, true, true, GUESS_1};
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

#define QUANTIZE(name, bytes, load)                                                                                    \
    static void quantize_##name(const float *x, const float *importance, void *blocks, int64_t n)                      \
    {                                                                                                                  \
        struct grid g;                                                                                                 \
        load;                                                                                                          \
        by_supers(&name, &g, x, importance, blocks, n, bytes, store_##name);                                           \
    }
QUANTIZE(iq2_xxs, 66, load_grid8(&g, iq2_xxs_grid, 256, false))
QUANTIZE(iq2_xs, 74, load_grid8(&g, iq2_xs_grid, 512, false))
QUANTIZE(iq2_s, 82, load_grid8(&g, iq2_s_grid, 1024, false))
QUANTIZE(iq3_xxs, 98, load_grid4(&g, iq3_xxs_grid, 256))
QUANTIZE(iq3_s, 110, load_grid4(&g, iq3_s_grid, 512))
QUANTIZE(iq1_s, 50, load_grid8(&g, iq1_grid, 2048, true))
QUANTIZE(iq1_m, 56, load_grid8(&g, iq1_grid, 2048, true))

quantize_fn *const ISA_FN(quantize_grid)[DT_COUNT] = {
    [DT_IQ2_XXS] = quantize_iq2_xxs, [DT_IQ2_XS] = quantize_iq2_xs, [DT_IQ2_S] = quantize_iq2_s,
    [DT_IQ3_XXS] = quantize_iq3_xxs, [DT_IQ3_S] = quantize_iq3_s,   [DT_IQ1_S] = quantize_iq1_s,
    [DT_IQ1_M] = quantize_iq1_m,
};
