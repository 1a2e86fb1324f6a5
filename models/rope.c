// Reads the keys of rotary position embedding and computes the frequency of each pair of columns in double: plain,
// linear or YaRN, where YaRN blends the first two by the pair's index. Optional factors, one for each pair, divide
// the plain frequencies.
#include "models/rope.h"

#include <math.h>

#define PI 3.14159265358979323846

static const char *const scaling_names[] = {"none", "linear", "yarn", "longrope", NULL};

static int read_n_rot(struct hparams *h, int head_dim)
{
    int n_rot = (int)hparam_int_or(h, "rope.dimension_count", 1, INT32_MAX, head_dim);
    if (n_rot % 2 != 0)
        hparam_refuse(h, "rope.dimension_count", "%d columns turn, which is odd: they turn in pairs", n_rot);
    if (n_rot > head_dim)
        hparam_refuse(h, "rope.dimension_count", "%d columns turn, but a head has %d", n_rot, head_dim);
    return n_rot;
}

struct rope rope_read(struct hparams *h, int head_dim, int n_ctx_train)
{
    struct rope r;
    r.n_rot = read_n_rot(h, head_dim);
    r.base = (double)hparam_positive_or(h, "rope.freq_base", 10000);
    r.scaling = (enum rope_scaling)hparam_word_or(h, "rope.scaling.type", scaling_names, ROPE_SCALING_LINEAR);
    float old = hparam_factor_or(h, "rope.scale_linear", 1); // the name of the key in old files
    r.factor = (double)hparam_factor_or(h, "rope.scaling.factor", old);
    if (r.scaling == ROPE_SCALING_NONE)
        r.factor = 1;
    int64_t n_ctx_orig = hparam_int_or(h, "rope.scaling.original_context_length", 0, UINT32_MAX, 0);
    r.n_ctx_orig = n_ctx_orig ? (int)MIN(n_ctx_orig, INT32_MAX) : n_ctx_train;
    r.attn_factor = (double)hparam_positive_or(h, "rope.scaling.attn_factor", 1);
    r.beta_fast = (double)hparam_positive_or(h, "rope.scaling.yarn_beta_fast", 32);
    r.beta_slow = (double)hparam_positive_or(h, "rope.scaling.yarn_beta_slow", 1);
    r.log_multiplier = 0;
    r.growth = 0, r.period = 1;
    return r;
}

bool rope_read_sections(struct hparams *h, const struct rope *r)
{
    int n[4] = {0};
    hparam_array_or(h, "rope.dimension_sections", 4, 0, 1 << 16, n);
    if (n[3] && n[0] + n[1] + n[2] < r->n_rot / 2)
        hparam_refuse(h, "rope.dimension_sections", "some pairs turn by a fourth position, which text does not have");
    return n[0] && n[1];
}

// The index, as a real number, of the pair that makes `turns` full rotations over the original context; from Peng et
// al., YaRN (2023), section 3.2.
static double yarn_pair(const struct rope *r, double turns)
{
    return r->n_rot * log(r->n_ctx_orig / (turns * 2 * PI)) / (2 * log(r->base));
}

void rope_frequencies(const struct rope *r, const float *factors, double *inv_freq)
{
    double low = fmax(0, floor(yarn_pair(r, r->beta_fast)));
    double high = fmin(r->n_rot - 1, ceil(yarn_pair(r, r->beta_slow)));
    for (int i = 0; i < r->n_rot / 2; i++) {
        double plain = pow(r->base, -2.0 * i / r->n_rot) / (factors ? (double)factors[i] : 1.0);
        double keep = 0; // share of the plain frequency: 1 for fast pairs, 0 for slow ones, a linear ramp between
        if (r->scaling == ROPE_SCALING_YARN)
            keep = 1 - fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
        inv_freq[i] = plain * keep + plain / r->factor * (1 - keep);
    }
}

// The factor of cos and sin from YaRN, section 3.4: in a longer context queries and keys are scaled up.
static double yarn_growth(double factor, double multiplier)
{
    return factor > 1 ? 1 + 0.1 * multiplier * log(factor) : 1;
}

float rope_magnitude(const struct rope *r)
{
    if (r->scaling != ROPE_SCALING_YARN)
        return (float)r->attn_factor;
    return (float)(r->attn_factor * yarn_growth(r->factor, 1) / yarn_growth(r->factor, r->log_multiplier));
}

bool rope_is_long(const struct rope *r, int n_ctx)
{
    // n_ctx is rounded up to a multiple of 256 as in llama.cpp, so that the choice is the same.
    return align_up((size_t)n_ctx, 256) > (size_t)r->n_ctx_orig;
}
