// Operations on one row: norms, activation functions, rope, expert routing, and adding, scaling and capping.
//
// Elements are independent of each other, with two exceptions. The norms sum in LANES lanes of doubles: the square of a
// float is exact in double and cannot overflow. The softmax of route sums in LANES lanes of floats. Most operations
// read a row once; an RMS norm reads it twice, a layer norm three times. A tail that is shorter than a vector is loaded
// and stored as a part of one.
#include "kernels/cpu/vec.h"

// ---- element by element

typedef vec unary_fn(vec x, float arg);
typedef vec binary_fn(vec a, vec b);

INLINE void map(unary_fn *f, const float *x, float arg, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(y + i, f(vec_load(x + i), arg));
    if (i < n)
        vec_store_n(y + i, f(vec_load_n(x + i, n - i), arg), n - i);
}

INLINE void map2(binary_fn *f, const float *a, const float *b, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(y + i, f(vec_load(a + i), vec_load(b + i)));
    if (i < n)
        vec_store_n(y + i, f(vec_load_n(a + i, n - i), vec_load_n(b + i, n - i)), n - i);
}

INLINE vec sum(vec a, vec b)
{
    return a + b;
}

INLINE vec product(vec x, float factor)
{
    return x * factor;
}

INLINE vec capped(vec x, float cap)
{
    return cap * vec_tanh(x / cap);
}

// Keeps a NaN.
INLINE vec clamped(vec x, float limit)
{
    x = vec_select(x > limit, (vec){0} + limit, x);
    return vec_select(x < -limit, (vec){0} - limit, x);
}

void ISA_FN(add)(const float *a, const float *b, float *y, int64_t n)
{
    map2(sum, a, b, y, n);
}

void ISA_FN(scale)(const float *x, float factor, float *y, int64_t n)
{
    map(product, x, factor, y, n);
}

void ISA_FN(softcap)(const float *x, float cap, float *y, int64_t n)
{
    map(capped, x, cap, y, n);
}

void ISA_FN(clamp)(const float *x, float limit, float *y, int64_t n)
{
    map(clamped, x, limit, y, n);
}

// e^x - 1 - x for x <= 0. Near 0, where the difference would lose digits, it is its series: x^2 (1/2! + x/3! + ..).
INLINE vec exp_rest(vec x)
{
    vec series = vec_all(1 / 40320.0f);
    static const float terms[] = {1 / 5040.0f, 1 / 720.0f, 1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f};
    UNROLL_FOR (int i = 0; i < 6; i++)
        series = vec_fma(series, x, vec_all(terms[i]));
    return vec_select(x > -0.5f, x * x * series, vec_exp(x) - 1.0f - x);
}

// Keeps a NaN.
INLINE vec xielu_of(vec x, const struct xielu_params *p)
{
    const vec nearest = vec_select(x < p->eps, x, (vec){0} + p->eps);
    const vec below = (exp_rest(nearest) + (nearest - x)) * p->alpha_n, above = x * x * p->alpha_p;
    return vec_fma(x, vec_all(p->beta), vec_select(x > 0.0f, above, below));
}

void ISA_FN(xielu)(const struct xielu_params *p, const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC) {
        const int64_t left = MIN(n - i, VEC);
        vec_store_n(y + i, xielu_of(vec_load_n(x + i, left), p), left);
    }
}

// ---- activations

INLINE vec same(vec x)
{
    return x;
}

INLINE vec silu(vec x)
{
    return x * vec_sigmoid(x);
}

// x (1 + tanh u) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3) is x sigmoid(2u), which keeps its digits for x << 0.
INLINE vec gelu_tanh(vec x)
{
    vec cubic = vec_fma(x * x * 0.044715f, x, x);
    return x * vec_sigmoid(cubic * 1.5957691f);
}

INLINE vec gelu_erf(vec x)
{
    return x * vec_normal_cdf(x);
}

// Keeps a NaN.
INLINE vec relu(vec x)
{
    return (vec)(~(x < 0.0f) & (veci)x);
}

INLINE vec relu2(vec x)
{
    return relu(x) * relu(x);
}

// ln(1 + e^x) = max(x, 0) + ln(1 + u) with u = e^-|x|. With z = u / (2 + u), which is at most 1/3, ln(1 + u) is
// 2 (z + z^3/3 + z^5/5 + ..). What the series leaves out is 1.5e-9 of it. Keeps a NaN.
INLINE vec softplus(vec x)
{
    const vec u = vec_exp(-vec_abs(x)), z = u / (u + 2.0f), z2 = z * z;
    vec p = vec_all(2.0f / 15);
    p = vec_fma(p, z2, vec_all(2.0f / 13));
    p = vec_fma(p, z2, vec_all(2.0f / 11));
    p = vec_fma(p, z2, vec_all(2.0f / 9));
    p = vec_fma(p, z2, vec_all(2.0f / 7));
    p = vec_fma(p, z2, vec_all(2.0f / 5));
    p = vec_fma(p, z2, vec_all(2.0f / 3));
    return relu(x) + vec_fma(p * z2, z, z + z);
}

// The activation functions: X(NAME, f)
//   NAME  of the enumerator ACT_NAME
//   f     the function, from vec to vec
#define ACTIVATIONS(X)                                                                                                 \
    X(NONE, same)                                                                                                      \
    X(SILU, silu)                                                                                                      \
    X(GELU_TANH, gelu_tanh)                                                                                            \
    X(GELU_ERF, gelu_erf)                                                                                              \
    X(RELU, relu)                                                                                                      \
    X(RELU2, relu2)                                                                                                    \
    X(SIGMOID, vec_sigmoid)                                                                                            \
    X(SOFTPLUS, softplus)

// Defines f as a unary_fn, and f(gate) * up as a binary_fn.
#define UNARY(NAME, f)                                                                                                 \
    INLINE vec unary_##f(vec x, float unused)                                                                          \
    {                                                                                                                  \
        (void)unused;                                                                                                  \
        return f(x);                                                                                                   \
    }                                                                                                                  \
    INLINE vec gated_##f(vec gate, vec up)                                                                             \
    {                                                                                                                  \
        return f(gate) * up;                                                                                           \
    }
ACTIVATIONS(UNARY)
#undef UNARY

// The vec_ functions with bounds keep a NaN.
INLINE vec swiglu_clamped(vec gate, vec up)
{
    const float limit = (float)SWIGLU_LIMIT;
    gate = vec_select(gate > limit, (vec){0} + limit, gate);
    up = vec_select(up > limit, (vec){0} + limit, up);
    up = vec_select(up < -limit, (vec){0} - limit, up);
    return gate * vec_sigmoid(gate * (float)SWIGLU_ALPHA) * (up + 1.0f);
}

void ISA_FN(act)(enum act_kind kind, const float *x, float *y, int64_t n)
{
    switch (kind) {
#define X(NAME, f)                                                                                                     \
    case ACT_##NAME:                                                                                                   \
        map(unary_##f, x, 0, y, n);                                                                                    \
        return;
        ACTIVATIONS(X)
#undef X
    case ACT_SWIGLU_CLAMPED: // it has two sources
        return;
    }
}

void ISA_FN(glu)(enum act_kind kind, const float *gate, const float *up, float *y, int64_t n)
{
    switch (kind) {
#define X(NAME, f)                                                                                                     \
    case ACT_##NAME:                                                                                                   \
        map2(gated_##f, gate, up, y, n);                                                                               \
        return;
        ACTIVATIONS(X)
#undef X
    case ACT_SWIGLU_CLAMPED:
        map2(swiglu_clamped, gate, up, y, n);
        return;
    }
}

// ---- norms

// The sum of the lanes, added by halves.
static double halves(double lane[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static double mean_of(const float *x, int64_t n)
{
    vecd sums[2 * PARTS] = {{0}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int p = 0; p < PARTS; p++) {
            vec v = vec_load(x + i + p * VEC);
            sums[2 * p] += vec_to_double(v, 0);
            sums[2 * p + 1] += vec_to_double(v, 1);
        }
    }
    double lane[LANES];
    memcpy(lane, sums, sizeof(lane));
    for (; i < n; i++)
        lane[i % LANES] += (double)float_load(x + i);
    return halves(lane) / (double)n;
}

// The mean of x^2.
static double mean_square(const float *x, int64_t n)
{
    vecd sums[2 * PARTS] = {{0}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        UNROLL_FOR (int h = 0; h < 2 * PARTS; h++)
            sums[h] = vecd_add_square(sums[h], vecd_from_floats(x + i + h * VEC / 2));
    }
    double lane[LANES];
    memcpy(lane, sums, sizeof(lane));
    for (; i < n; i++)
        lane[i % LANES] += (double)float_load(x + i) * (double)float_load(x + i);
    return halves(lane) / (double)n;
}

// The mean of (x - mean)^2.
static double variance(const float *x, int64_t n, double mean)
{
    vecd sums[2 * PARTS] = {{0}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int p = 0; p < PARTS; p++) {
            vec v = vec_load(x + i + p * VEC);
            vecd lo = vec_to_double(v, 0) - mean, hi = vec_to_double(v, 1) - mean;
            sums[2 * p] += lo * lo;
            sums[2 * p + 1] += hi * hi;
        }
    }
    double lane[LANES];
    memcpy(lane, sums, sizeof(lane));
    for (; i < n; i++) {
        double d = (double)float_load(x + i) - mean;
        lane[i % LANES] += d * d;
    }
    return halves(lane) / (double)n;
}

// (x - mean) * scale, rounded to float, then * gain + bias. The difference is taken in double, because the mean may be
// much larger than the spread.
INLINE vec normalised(vecd lo, vecd hi, double mean, double scale, vec gain, vec bias)
{
    return vec_fma(vec_from_doubles((lo - mean) * scale, (hi - mean) * scale), gain, bias);
}

INLINE void norm_row(const float *x, const float *gain, const float *bias, double mean, double scale, int64_t n,
                     float *y)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        vec g = gain ? vec_load(gain + i) : vec_all(1), b = bias ? vec_load(bias + i) : vec_all(0);
        vecd lo = vecd_from_floats(x + i), hi = vecd_from_floats(x + i + VEC / 2);
        vec_store(y + i, normalised(lo, hi, mean, scale, g, b));
    }
    if (i < n) {
        int64_t left = n - i;
        vec v = vec_load_n(x + i, left);
        vec g = gain ? vec_load_n(gain + i, left) : vec_all(1), b = bias ? vec_load_n(bias + i, left) : vec_all(0);
        vec_store_n(y + i, normalised(vec_to_double(v, 0), vec_to_double(v, 1), mean, scale, g, b), left);
    }
}

void ISA_FN(norm)(enum norm_kind kind, const float *x, const float *gain, const float *bias, float eps, int64_t n,
                  float *y)
{
    double mean = kind == NORM_LAYER ? mean_of(x, n) : 0;
    double spread = kind == NORM_LAYER ? variance(x, n, mean) : mean_square(x, n);
    double scale = 1.0 / sqrt(spread + (double)eps);
    if (kind == NORM_RMS && gain && !bias) // the usual norm: compiled with no mean, no bias and no tests in its loop
        norm_row(x, gain, NULL, 0, scale, n, y);
    else
        norm_row(x, gain, bias, mean, scale, n, y);
}

// ---- rope

// Rotates elements i and i + n_pairs of each head as a pair. VEC pairs are rotated in all heads before the next VEC
// pairs, so that their cosines and sines stay in registers.
static void rope_neox(const float *x, const float *cosine, const float *sine, int64_t n_pairs, int64_t head_dim,
                      int64_t n_heads, float *y)
{
    int64_t i = 0;
    for (; i + VEC <= n_pairs; i += VEC) {
        vec c = vec_load(cosine + i), s = vec_load(sine + i);
        for (int64_t at = i; at < n_heads * head_dim; at += head_dim) {
            vec a = vec_load(x + at), b = vec_load(x + at + n_pairs);
            vec_store(y + at, a * c - b * s);
            vec_store(y + at + n_pairs, a * s + b * c);
        }
    }
    if (i == n_pairs)
        return;
    int64_t n = n_pairs - i;
    vec c = vec_load_n(cosine + i, n), s = vec_load_n(sine + i, n);
    for (int64_t at = i; at < n_heads * head_dim; at += head_dim) {
        vec a = vec_load_n(x + at, n), b = vec_load_n(x + at + n_pairs, n);
        vec_store_n(y + at, a * c - b * s, n);
        vec_store_n(y + at + n_pairs, a * s + b * c, n);
    }
}

// Rotates pairs (a, b) to (a cos - b sin, b cos + a sin). In `sine`, the first of each pair has its sign changed, so
// that both are sums: gcc 12 makes a fused operation of alternating differences and sums, even with -ffp-contract=off.
INLINE vec rotate_pairs(vec x, vec cosine, vec sine)
{
    return x * cosine + vec_swap_pairs(x) * sine;
}

// Rotates elements 2i and 2i + 1 of each head as a pair, VEC / 2 pairs of all heads at a time.
static void rope_norm(const float *x, const float *cosine, const float *sine, int64_t n_pairs, int64_t head_dim,
                      int64_t n_heads, float *y)
{
    enum { PAIRS = VEC / 2 };
    int64_t i = 0;
    for (; i + PAIRS <= n_pairs; i += PAIRS) {
        vec c = vec_load_twice(cosine + i), s = vec_negate_firsts(vec_load_twice(sine + i));
        for (int64_t at = 2 * i; at < n_heads * head_dim; at += head_dim)
            vec_store(y + at, rotate_pairs(vec_load(x + at), c, s));
    }
    if (i == n_pairs)
        return;
    int64_t left = n_pairs - i;
    float few[2][PAIRS] = {{0}};
    memcpy(few[0], cosine + i, (size_t)left * sizeof(float));
    memcpy(few[1], sine + i, (size_t)left * sizeof(float));
    vec c = vec_load_twice(few[0]), s = vec_negate_firsts(vec_load_twice(few[1]));
    for (int64_t at = 2 * i; at < n_heads * head_dim; at += head_dim)
        vec_store_n(y + at, rotate_pairs(vec_load_n(x + at, 2 * left), c, s), 2 * left);
}

void ISA_FN(rope)(const float *x, const float *table, int64_t n_pairs, int64_t head_dim, int64_t n_heads,
                  enum rope_layout layout, float *y)
{
    (layout == ROPE_NEOX ? rope_neox : rope_norm)(x, table, table + n_pairs, n_pairs, head_dim, n_heads, y);
    if (y == x || head_dim == 2 * n_pairs)
        return;
    for (int64_t at = 2 * n_pairs; at < n_heads * head_dim; at += head_dim)
        memcpy(y + at, x + at, (size_t)(head_dim - 2 * n_pairs) * sizeof(float));
}

// ---- mixture of experts

// Stores the n_used greatest logits, or other scores, and their ids in descending order. On a tie the lower id is
// first. Logits have the same order as their softmax and sigmoid, and comparing them avoids ties that rounding would
// make. (A NaN compares as greater than nothing.)
static void choose_experts(const float *logits, int n_expert, int n_used, float *top, int32_t *ids)
{
    int n = 0;
    for (int id = 0; id < n_expert; id++) {
        float logit = logits[id];
        int at = n;
        while (at > 0 && logit > top[at - 1])
            at--;
        if (at == n_used)
            continue;
        n = MIN(n + 1, n_used);
        memmove(top + at + 1, top + at, (size_t)(n - 1 - at) * sizeof(*top));
        memmove(ids + at + 1, ids + at, (size_t)(n - 1 - at) * sizeof(*ids));
        top[at] = logit;
        ids[at] = id;
    }
}

// The sum of e^(x - top), summed in lanes.
static float exp_sum(const float *x, int n, float top)
{
    struct lanes sums = {{{0}}};
    for (int i = 0; i < n; i += LANES) {
        float part[LANES];
        for (int j = 0; j < LANES; j++)
            part[j] = i + j < n ? x[i + j] : -INFINITY;
        for (int p = 0; p < PARTS; p++)
            sums.part[p] += vec_exp(vec_load(part + p * VEC) - top);
    }
    return lanes_sum(sums);
}

static float greatest(const float *x, int n)
{
    float most = x[0];
    for (int i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

// The probabilities of n logits. For a softmax, `total` is the sum of e^(x - top) over all experts.
static void probabilities(enum route_kind kind, const float *x, int n, float top, float total, float *y)
{
    for (int i = 0; i < n; i += VEC) {
        int m = MIN(n - i, VEC);
        vec v = vec_load_n(x + i, m);
        vec_store_n(y + i, kind == ROUTE_SOFTMAX ? vec_exp(v - top) / total : vec_sigmoid(v), m);
    }
}

// Takes experts out of the choice whose group is none of the n_group_used with the greatest sums of their two greatest
// scores. sums: room for a float for each group.
static void leave_groups(const struct route_args *a, float *scores, float *sums)
{
    const int size = a->n_expert / a->n_group;
    for (int g = 0; g < a->n_group; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = g * size; i < (g + 1) * size; i++) {
            second = MAX(second, MIN(first, scores[i]));
            first = MAX(first, scores[i]);
        }
        sums[g] = first + second;
    }
    for (int g = 0; g < a->n_group; g++) {
        int before = 0;
        for (int o = 0; o < a->n_group; o++)
            before += sums[o] > sums[g] || (sums[o] == sums[g] && o < g);
        for (int i = g * size; before >= a->n_group_used && i < (g + 1) * size; i++)
            scores[i] = -INFINITY;
    }
}

// Chooses experts by their probabilities plus biases, and stores their logits and ids.
static void choose_scored(const struct route_args *a, const float *logits, float top, float total, float *chosen,
                          int32_t *ids)
{
    float *scores = a->scratch;
    probabilities(a->kind, logits, a->n_expert, top, total, scores);
    if (a->bias)
        ISA_FN(add)(scores, a->bias, scores, a->n_expert);
    if (a->n_group)
        leave_groups(a, scores, scores + a->n_expert);
    choose_experts(scores, a->n_expert, a->n_used, chosen, ids);
    for (int i = 0; i < a->n_used; i++)
        chosen[i] = logits[ids[i]];
}

void ISA_FN(route)(const struct route_args *a, const float *logits, float *weights, int32_t *ids)
{
    const bool scored = a->bias || a->n_group;
    if (!scored)
        choose_experts(logits, a->n_expert, a->n_used, weights, ids);
    float top = scored ? greatest(logits, a->n_expert) : weights[0], sum_used = 0;
    float total = a->kind == ROUTE_SOFTMAX ? exp_sum(logits, a->n_expert, top) : 0;
    if (scored)
        choose_scored(a, logits, top, total, weights, ids);
    for (int i = 0; i < a->n_used && a->share > 1; i++) {
        ids[i] /= a->share;
        weights[i] = logits[ids[i]];
    }
    probabilities(a->kind, weights, a->n_used, top, total, weights);
    for (int i = 0; i < a->n_used; i++)
        sum_used += weights[i];
    float divisor = a->normalise ? MAX(sum_used, 0x1p-14f) : 1.0f;
    for (int i = 0; i < a->n_used; i++)
        weights[i] = weights[i] / divisor * a->scale;
}

void ISA_FN(combine)(const float *x, const float *weights, int n_used, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i += VEC) {
        int64_t left = MIN(n - i, VEC);
        vec total = {0};
        for (int j = 0; j < n_used; j++) {
            vec part = vec_load_n(x + j * n + i, left);
            total = vec_fma(vec_all(weights ? weights[j] : 1.0f), part, total);
        }
        vec_store_n(y + i, total, left);
    }
}
