// Random blocks. A table has one row for each type: where its scales are, and how its elements are centred.
#include "models/synth_fill.h"

#include <math.h>

struct rng rng_seed(uint64_t seed)
{
    struct rng r;
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        r.s[i] = z ^ z >> 31;
    }
    return r;
}

static uint64_t rotate_left(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

uint64_t rng_next(struct rng *r)
{
    uint64_t *s = r->s, result = rotate_left(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

static void random_bytes(struct rng *r, uint8_t *out, size_t n)
{
    for (; n >= 8; n -= 8, out += 8) {
        uint64_t z = rng_next(r);
        memcpy(out, &z, 8);
    }
    uint64_t z = rng_next(r);
    memcpy(out, &z, n);
}

// A random number that is approximately normal: the sum of four numbers of 16 bits minus its mean, from one draw. A
// uniform number of 2^16 values has the variance (2^32 - 1) / 12; the sum is within 3.46 standard deviations.
static float random_normal(struct rng *r)
{
    uint64_t z = rng_next(r);
    int sum = (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) + (int)(z >> 48);
    return (float)(sum - 2 * 65535) * (1.7320508f / 65536);
}

// Makes the scale and the min of each sub-block equal, so that dmin = centre * d centres the sub-block. They have six
// bits each, in the layout of Q4_K. Bit 4 of each scale is set, so that no scale is small: 0x50 sets it for the first
// four scales and, in the top bits, for the others.
static void even_q4_k(uint8_t *block)
{
    uint8_t *p = block + 4;
    for (int i = 0; i < 4; i++) {
        p[i] |= 0x50;
        p[i + 4] = p[i];
        p[i + 8] = (uint8_t)((p[i + 8] & 15) * 17);
    }
}

// The same for the nibbles of Q2_K.
static void even_q2_k(uint8_t *block)
{
    for (int i = 0; i < 16; i++)
        block[i] = (uint8_t)(((block[i] & 15) | 8) * 17);
}

// Stores the scale of IQ1_M, a half whose nibbles are the top nibbles of four words.
static void put_iq1_m(uint8_t *block, uint16_t d)
{
    for (int i = 0; i < 4; i++) {
        uint8_t *high = block + 48 + 2 * i + 1;
        *high = (uint8_t)((*high & 15) | (d >> 4 * i & 15) << 4);
    }
}

enum scale_form {
    SCALE_NONE,  // no scale: plain floats
    SCALE_HALF,  // a half d at `at`, and the half centre * d at min_at unless min_at is 0
    SCALE_IQ1_M, // see put_iq1_m
    SCALE_CODES, // min_at bytes at `at`, each of which is a small float
};

// The rule for a type. `even`, unless NULL, changes the scales of the sub-blocks of a random block.
static const struct rule {
    enum scale_form form;
    int at, min_at;
    float centre;
    void (*even)(uint8_t *block);
} rules[DT_COUNT] = {
    // clang-format off
    [DT_Q4_0]    = {SCALE_HALF, 0, 0, 0, NULL},
    [DT_Q4_1]    = {SCALE_HALF, 0, 2, -7.5f, NULL},
    [DT_Q5_0]    = {SCALE_HALF, 0, 0, 0, NULL},
    [DT_Q5_1]    = {SCALE_HALF, 0, 2, -15.5f, NULL},
    [DT_Q8_0]    = {SCALE_HALF, 0, 0, 0, NULL},
    [DT_Q2_K]    = {SCALE_HALF, 80, 82, 1.5f, even_q2_k},
    [DT_Q3_K]    = {SCALE_HALF, 108, 0, 0, NULL},
    [DT_Q4_K]    = {SCALE_HALF, 0, 2, 7.5f, even_q4_k},
    [DT_Q5_K]    = {SCALE_HALF, 0, 2, 15.5f, even_q4_k},
    [DT_Q6_K]    = {SCALE_HALF, 208, 0, 0, NULL},
    [DT_IQ2_XXS] = {SCALE_HALF, 0, 0, 0, NULL},
    [DT_IQ2_XS]  = {SCALE_HALF, 0, 0, 0, NULL},
    [DT_IQ2_S]   = {SCALE_HALF, 0, 0, 0, NULL},
    [DT_IQ3_XXS] = {SCALE_HALF, 0, 0, 0, NULL},
    [DT_IQ3_S]   = {SCALE_HALF, 0, 0, 0, NULL},
    [DT_IQ1_S]   = {SCALE_HALF, 0, 0, 0, NULL},
    [DT_IQ1_M]   = {SCALE_IQ1_M, 0, 0, 0, NULL},
    [DT_IQ4_NL]  = {SCALE_HALF, 0, 0, 0, NULL},
    [DT_IQ4_XS]  = {SCALE_HALF, 0, 0, 0, NULL},
    [DT_TQ1_0]   = {SCALE_HALF, 52, 0, 0, NULL},
    [DT_TQ2_0]   = {SCALE_HALF, 64, 0, 0, NULL},
    [DT_MXFP4]   = {SCALE_CODES, 0, 1, 0, NULL},
    [DT_NVFP4]   = {SCALE_CODES, 0, 4, 0, NULL},
    [DT_Q1_0]    = {SCALE_HALF, 0, 0, 0, NULL},
    [DT_Q2_0]    = {SCALE_HALF, 0, 0, 0, NULL},
    // clang-format on
};

static void set_half(struct fill *f, double d)
{
    f->d = f32_to_f16((float)d);
    f->min = f32_to_f16(f16_to_f32(f->d) * rules[f->type].centre);
}

// Sets the scale of a block of random bytes.
static void set_scale(const struct fill *f, uint8_t *block)
{
    const struct rule *rule = &rules[f->type];
    if (rule->even)
        rule->even(block);
    if (rule->form == SCALE_CODES) {
        memset(block + rule->at, f->code, (size_t)rule->min_at);
    } else if (rule->form == SCALE_IQ1_M) {
        put_iq1_m(block, f->d);
    } else if (rule->min_at) {
        memcpy(block + rule->at, &f->d, sizeof(f->d));
        memcpy(block + rule->min_at, &f->min, sizeof(f->min));
    } else { // the sign of the scale stays random, which centres types with asymmetric values, such as -8 .. 7
        block[rule->at] = (uint8_t)f->d;
        block[rule->at + 1] = (uint8_t)((block[rule->at + 1] & 0x80) | f->d >> 8);
    }
}

// The root mean square of the elements of such blocks, by decoding some of them.
static double measured_rms(const struct fill *f)
{
    enum { BLOCKS = 64 };
    struct rng r = rng_seed(1);
    uint8_t block[256];
    float x[256];
    double sum = 0;
    int n = dtype_info[f->type].block;
    for (int b = 0; b < BLOCKS; b++) {
        random_bytes(&r, block, (size_t)dtype_info[f->type].bytes);
        set_scale(f, block);
        dtype_decode[f->type](block, x, n);
        for (int i = 0; i < n; i++)
            sum += (double)x[i] * x[i];
    }
    return sqrt(sum / (BLOCKS * n));
}

// The scale byte whose blocks have the standard deviation nearest to std, by ratio. Codes above 126 are not tried: they
// are no values of an e4m3, and as an e8m0 they are scales of 1 or more.
static uint8_t nearest_code(struct fill f, double std)
{
    uint8_t best = 0;
    double best_ratio = INFINITY;
    for (int code = 1; code <= 126; code++) {
        f.code = (uint8_t)code;
        double ratio = fabs(log(measured_rms(&f) / std));
        if (ratio < best_ratio) {
            best_ratio = ratio;
            best = (uint8_t)code;
        }
    }
    return best;
}

int fill_init(struct fill *f, enum dtype type, double std, struct error *err)
{
    *f = (struct fill){.type = type, .std = (float)std};
    enum scale_form form = rules[type].form;
    if (form == SCALE_NONE && dtype_info[type].kind != DTYPE_KIND_FLOAT)
        return fail(err, E_USAGE, "no random weights of type %s", dtype_info[type].name);
    if (form == SCALE_CODES) {
        f->code = nearest_code(*f, std);
    } else if (form != SCALE_NONE) {
        set_half(f, 1);
        set_half(f, std / measured_rms(f));
    }
    return 0;
}

struct fill fill_f32(double mean, double std)
{
    return (struct fill){.type = DT_F32, .mean = (float)mean, .std = (float)std};
}

static void fill_floats(const struct fill *f, struct rng *r, uint8_t *out, size_t n)
{
    enum { PIECE = 512 };
    float x[PIECE];
    size_t bytes = (size_t)dtype_info[f->type].bytes;
    for (size_t at = 0; at < n; at += PIECE) {
        size_t m = MIN(n - at, (size_t)PIECE);
        for (size_t i = 0; i < m; i++)
            x[i] = f->mean + f->std * random_normal(r);
        dtype_encode[f->type](x, out + at * bytes, (int64_t)m);
    }
}

void fill_blocks(const struct fill *f, struct rng *r, void *blocks, size_t n)
{
    uint8_t *out = blocks;
    if (rules[f->type].form == SCALE_NONE) {
        fill_floats(f, r, out, n);
        return;
    }
    size_t bytes = (size_t)dtype_info[f->type].bytes;
    random_bytes(r, out, n * bytes);
    for (size_t i = 0; i < n; i++)
        set_scale(f, out + i * bytes);
}
