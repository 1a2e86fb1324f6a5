// The reference operations (ref_ops.h). The comment at each of them gives its formula and the paper that defines it.
#include "kernels/cpu/ref_ops.h"

#include <assert.h>
#include <math.h>

static int n_rows(const struct ref_run *r, const struct tensor *n)
{
    return n->rows == ROWS_TOKENS ? r->step->n_tokens : r->step->n_outputs;
}

static float *row_of(const struct ref_run *r, const struct tensor *n, int row)
{
    return r->values[n->id] + (size_t)row * (size_t)n->width;
}

// Decodes row `row` of matrix `matrix` of a weight. The result is valid until the next call.
static const float *weight_row(const struct ref_run *r, const struct weight *w, int64_t matrix, int64_t row)
{
    const uint8_t *data = w->data;
    dtype_decode[w->type](data + (size_t)weight_row_number(w, matrix, row) * w->row_bytes, r->decoded, w->ne[0]);
    return r->decoded;
}

// Returns element i of a vector, or `otherwise` if there is no vector.
static double element_or(const struct weight *w, int64_t i, double otherwise)
{
    float v;
    if (!w)
        return otherwise;
    memcpy(&v, (const uint8_t *)w->data + (size_t)i * sizeof(v), sizeof(v)); // F32, of any alignment
    return (double)v;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

// ---- Rows selected by an input

// y = scale * table[token, position or 0]
static void do_embed(const struct ref_run *r, const struct tensor *n)
{
    const int32_t *const inputs[] = {r->step->tokens, r->step->positions, NULL}, *index = inputs[n->p.embed.input];
    for (int row = 0; row < n_rows(r, n); row++) {
        const float *x = weight_row(r, n->w[0], 0, index ? index[row] : 0);
        float *y = row_of(r, n, row);
        for (int64_t i = 0; i < n->width; i++)
            y[i] = (float)((double)x[i] * (double)n->p.embed.scale);
    }
}

// y[i] = x[outputs[i]]
static void do_rows(const struct ref_run *r, const struct tensor *n)
{
    for (int i = 0; i < r->step->n_outputs; i++)
        memcpy(row_of(r, n, i), row_of(r, n->src[0], r->step->outputs[i]), (size_t)n->width * sizeof(float));
}

// ---- Norms

// Layer norm (Ba et al. 2016, arXiv 1607.06450): (x - mean) / sqrt(mean((x - mean)^2) + eps).
// RMS norm (Zhang and Sennrich 2019, arXiv 1910.07467): x / sqrt(mean(x^2) + eps). The result is multiplied by the
// gain, and the bias is added; `first` is the element of these that belongs to x[0].
static void norm(const struct tensor *n, const float *x, float *y, int64_t length, int64_t first)
{
    double mean = 0, squares = 0;
    if (n->p.norm.kind == NORM_LAYER) {
        for (int64_t i = 0; i < length; i++)
            mean += (double)x[i];
        mean /= (double)length;
    }
    for (int64_t i = 0; i < length; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    double root = sqrt(squares / (double)length + (double)n->p.norm.eps);
    for (int64_t i = 0; i < length; i++)
        y[i] = (float)(((double)x[i] - mean) / root * element_or(n->w[0], first + i, 1) +
                       element_or(n->w[1], first + i, 0));
}

static void do_norm(const struct ref_run *r, const struct tensor *n)
{
    int64_t length = n->p.norm.group ? n->p.norm.group : n->width;
    for (int row = 0; row < n_rows(r, n); row++)
        for (int64_t i = 0; i < n->width; i += length)
            norm(n, row_of(r, n->src[0], row) + i, row_of(r, n, row) + i, length, n->p.norm.by_column ? i : 0);
}

// ---- Products with weights

// y = x W^T + bias. A row of W is decoded once for all rows of x.
static void do_matmul(const struct ref_run *r, const struct tensor *n)
{
    const struct weight *w = n->w[0];
    for (int64_t c = 0; c < w->ne[1]; c++) {
        const float *weights = weight_row(r, w, 0, c);
        for (int row = 0; row < n_rows(r, n); row++)
            row_of(r, n, row)[c] =
                (float)(dot(weights, row_of(r, n->src[0], row), w->ne[0]) + element_or(n->w[1], c, 0));
    }
}

// ---- Rotary positions

// A row of the table holds factor * cos(position * inv_freq[i]) for all i, then factor * sin(position * inv_freq[i])
// (Su et al. 2021, arXiv 2104.09864). The angle is computed in double, because a float32 angle at position 131071 is
// off by milliradians.
static void do_rope_table(const struct ref_run *r, const struct tensor *n)
{
    int64_t pairs = n->p.rope_table.n_pairs;
    for (int row = 0; row < n_rows(r, n); row++) {
        float *y = row_of(r, n, row);
        double factor = rope_table_factor(n, r->step->positions[row]);
        for (int64_t i = 0; i < pairs; i++) {
            double angle = (double)r->step->positions[row] * n->p.rope_table.inv_freq[i];
            y[i] = (float)(cos(angle) * factor);
            y[pairs + i] = (float)(sin(angle) * factor);
        }
    }
}

// Rotates each pair (a, b) of a head to (a cos - b sin, a sin + b cos). The two columns of a pair are neighbours
// (ROPE_NORM, the paper's layout), or half of the rotated columns apart (ROPE_NEOX, arXiv 2204.06745). Columns that
// belong to no pair are copied.
static void rope_head(const float *x, const float *table, int64_t pairs, int64_t head_dim, enum rope_layout layout,
                      float *y)
{
    for (int64_t i = 0; i < pairs; i++) {
        int64_t ia = layout == ROPE_NORM ? 2 * i : i, ib = layout == ROPE_NORM ? 2 * i + 1 : i + pairs;
        double a = (double)x[ia], b = (double)x[ib], c = (double)table[i], s = (double)table[pairs + i];
        y[ia] = (float)(a * c - b * s);
        y[ib] = (float)(a * s + b * c);
    }
    for (int64_t i = 2 * pairs; i < head_dim; i++)
        y[i] = x[i];
}

static void do_rope(const struct ref_run *r, const struct tensor *n)
{
    int64_t head_dim = n->p.rope.head_dim, pairs = n->src[1]->p.rope_table.n_pairs;
    for (int row = 0; row < n_rows(r, n); row++)
        for (int64_t at = 0; at < n->width; at += head_dim)
            rope_head(row_of(r, n->src[0], row) + at, row_of(r, n->src[1], row), pairs, head_dim, n->p.rope.layout,
                      row_of(r, n, row) + at);
}

// ---- Attention

// Returns the address of the key or value of one KV head at one position of a sequence.
static uint8_t *kv_at(const struct ref_run *r, int layer, enum kv_part part, int seq, int position, int head)
{
    const enum dtype type = r->kv_type[kv_part_stored(&r->kv_layers[layer], part)];
    size_t slot = (size_t)seq * (size_t)r->step->pages_stride + (size_t)(position / KV_PAGE);
    size_t row = (size_t)head * KV_PAGE + (size_t)(position % KV_PAGE);
    return r->kv + (size_t)r->step->pages[slot] * r->page_bytes + r->kv_offset[layer][part] +
           row * dtype_row_bytes(type, kv_dim_stored(&r->kv_layers[layer], part));
}

static void do_kv_write(const struct ref_run *r, const struct tensor *n)
{
    enum kv_part part = n->p.kv.part;
    int dim = (int)n->p.kv.head_dim, heads = (int)(n->src[0]->width / dim);
    for (int row = 0; row < n_rows(r, n); row++)
        for (int h = 0; h < heads; h++) {
            void *to = kv_at(r, n->p.kv.layer, part, r->step->seqs[row], r->step->positions[row], h);
            dtype_encode[r->kv_type[part]](row_of(r, n->src[0], row) + (size_t)h * (size_t)dim, to, dim);
        }
}

// One query head of one row, and the positions that it sees.
struct query {
    const struct tensor *n;
    const float *q;
    int seq, position, head_kv;
    struct seen_positions seen;
    double sink; // -INFINITY: none
    double slope;
};

// s = scale q.k, then softcap tanh(s / softcap) (Gemma 2, arXiv 2408.00118), then s - slope |j - position| (ALiBi: Press
// et al. 2021, arXiv 2108.12409).
static double score(const struct ref_run *r, const struct query *q, int position)
{
    int dim = q->n->p.attn.dim_k;
    const uint8_t *key = kv_at(r, q->n->p.attn.layer, KV_KEY, q->seq, position, q->head_kv);
    dtype_decode[r->kv_type[KV_KEY]](key, r->decoded, dim);
    double s = dot(q->q, r->decoded, dim) * (double)q->n->p.attn.scale, cap = (double)q->n->p.attn.softcap;
    return (cap > 0 ? cap * tanh(s / cap) : s) + q->slope * -fabs((double)(position - q->position));
}

// softmax(s) v (Vaswani et al. 2017, arXiv 1706.03762). The scores are computed twice, for their maximum and for the
// sums, because a row may see any number of positions and a run allocates no memory for them. A sink is one more score,
// whose value is 0 (gpt-oss, arXiv 2508.10925).
static void attend(const struct ref_run *r, const struct query *q, float *out)
{
    const int dim = q->n->p.attn.dim_v, layer = q->n->p.attn.layer;
    const enum dtype type = r->kv_type[kv_part_stored(&r->kv_layers[layer], KV_VALUE)];
    double greatest = q->sink, total = 0;
    for (int j = q->seen.lo; j < q->seen.hi; j++)
        greatest = fmax(greatest, score(r, q, j));
    memset(r->sums, 0, (size_t)dim * sizeof(double));
    for (int j = q->seen.lo; j < q->seen.hi; j++) {
        double p = exp(score(r, q, j) - greatest);
        dtype_decode[type](kv_at(r, layer, KV_VALUE, q->seq, j, q->head_kv), r->decoded, dim);
        total += p;
        for (int i = 0; i < dim; i++)
            r->sums[i] += p * (double)r->decoded[i];
    }
    total += exp(q->sink - greatest);
    for (int i = 0; i < dim; i++)
        out[i] = (float)(r->sums[i] / total);
}

// Causal attention. With a window, a row sees only positions less than `window` before its own (Beltagy et al. 2020,
// arXiv 2004.05150), or with chunks those since the last multiple of it (Llama 4). An encoder's rows see those behind
// them, too (Devlin et al. 2018, arXiv 1810.04805). Neighbouring query heads share a KV head (Ainslie et al. 2023, arXiv
// 2305.13245).
static void do_attention(const struct ref_run *r, const struct tensor *n)
{
    int group = n->p.attn.n_head / n->p.attn.n_head_kv;
    for (int row = 0; row < n_rows(r, n); row++) {
        struct seen_positions seen = attention_sees(r->step->positions[row], step_end(r->step, row), n->p.attn.window,
                                                    n->p.attn.chunked, n->p.attn.both_ways);
        for (int h = 0; h < n->p.attn.n_head; h++) {
            struct query q = {.n = n,
                              .q = row_of(r, n->src[0], row) + (size_t)h * (size_t)n->p.attn.dim_k,
                              .seq = r->step->seqs[row],
                              .head_kv = h / group,
                              .seen = seen,
                              .position = r->step->positions[row],
                              .sink = element_or(n->w[0], h, -INFINITY),
                              .slope = element_or(n->w[1], h, 0)};
            attend(r, &q, row_of(r, n, row) + (size_t)h * (size_t)n->p.attn.dim_v);
        }
    }
}

// ---- Element by element

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

// ln(1 + e^x)
static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

// SiLU is x sigmoid(x), and GELU is x Phi(x), exact or approximated with tanh (Hendrycks and Gimpel 2016, arXiv
// 1606.08415). Squared ReLU: So et al. 2021, arXiv 2109.08668. (1 + tanh u) / 2 is written as sigmoid(2u), and Phi(x)
// as erfc(-x / sqrt 2) / 2, because these forms have no cancellation. A NaN stays a NaN.
static double act(enum act_kind kind, double x)
{
    switch (kind) {
    case ACT_NONE:
        return x;
    case ACT_SILU:
        return x * sigmoid(x);
    case ACT_GELU_TANH:
        return x * sigmoid(2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    case ACT_GELU_ERF:
        return x * 0.5 * erfc(-x * M_SQRT1_2);
    case ACT_RELU:
        return x < 0 ? 0 : x;
    case ACT_RELU2:
        return x < 0 ? 0 : x * x;
    case ACT_SIGMOID:
        return sigmoid(x);
    case ACT_SOFTPLUS:
        return softplus(x);
    case ACT_SWIGLU_CLAMPED:
        break;
    }
    return NAN;
}

// The gated unit of gpt-oss (arXiv 2508.10925), with a limit on both factors. A NaN stays a NaN.
static double swiglu_clamped(double gate, double up)
{
    gate = gate > SWIGLU_LIMIT ? SWIGLU_LIMIT : gate;
    up = up > SWIGLU_LIMIT ? SWIGLU_LIMIT : up < -SWIGLU_LIMIT ? -SWIGLU_LIMIT : up;
    return gate * sigmoid(SWIGLU_ALPHA * gate) * (up + 1);
}

// A NaN stays a NaN.
static double clamped(double x, double limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

// xIELU (Huang et al. 2024, arXiv 2411.13010). A NaN stays a NaN.
static double xielu(const struct xielu_params *p, double x)
{
    const double beta = (double)p->beta;
    if (x > 0)
        return (double)p->alpha_p * x * x + beta * x;
    return (double)p->alpha_n * (expm1(x < (double)p->eps ? x : (double)p->eps) - x) + beta * x;
}

// The gated unit act(gate) * up: Shazeer 2020, arXiv 2002.05202.
static double element(const struct tensor *n, double a, double b)
{
    switch (n->op) {
    case OP_ACT:
        return act(n->p.act.kind, a);
    case OP_GLU:
        return n->p.act.kind == ACT_SWIGLU_CLAMPED ? swiglu_clamped(a, b) : act(n->p.act.kind, a) * b;
    case OP_ADD:
        return a + b;
    case OP_SCALE:
        return a * (double)n->p.scale.factor;
    case OP_SOFTCAP:
        return (double)n->p.scale.factor * tanh(a / (double)n->p.scale.factor);
    case OP_XIELU:
        return xielu(&n->p.xielu, a);
    case OP_CLAMP:
        return clamped(a, (double)n->p.scale.factor);
    default:
        assert(!"no operation on elements");
        return NAN;
    }
}

static void do_elements(const struct ref_run *r, const struct tensor *n)
{
    for (int row = 0; row < n_rows(r, n); row++) {
        const float *a = row_of(r, n->src[0], row), *b = n->src[1] ? row_of(r, n->src[1], row) : NULL;
        b = n->op == OP_GLU ? b + n->p.act.first : b;
        float *y = row_of(r, n, row);
        for (int64_t i = 0; i < n->width; i++)
            y[i] = (float)element(n, (double)a[i], b ? (double)b[i] : 0);
    }
}

// y[i] = x[i] gain[i]
static void do_gain(const struct ref_run *r, const struct tensor *n)
{
    for (int row = 0; row < n_rows(r, n); row++)
        for (int64_t i = 0; i < n->width; i++)
            row_of(r, n, row)[i] = (float)((double)row_of(r, n->src[0], row)[i] * element_or(n->w[0], i, 1));
}

// y[i] = act(gate of the head of column i) x[i]
static void do_head_glu(const struct ref_run *r, const struct tensor *n)
{
    const int64_t dim = n->width / n->src[0]->width;
    for (int row = 0; row < n_rows(r, n); row++)
        for (int64_t i = 0; i < n->width; i++)
            row_of(r, n, row)[i] = (float)(act(n->p.act.kind, (double)row_of(r, n->src[0], row)[i / dim]) *
                                           (double)row_of(r, n->src[1], row)[i]);
}

// ---- Mixture of experts

// The expert and the weight of the j-th choice in a row of a route: n_used weights are followed by n_used ids.
static int32_t route_id(const struct ref_run *r, const struct tensor *route, int row, int j)
{
    const int32_t *ids = (const int32_t *)(row_of(r, route, row) + route->p.route.n_used);
    return ids[j];
}
static double route_weight(const struct ref_run *r, const struct tensor *route, int row, int j)
{
    return (double)row_of(r, route, row)[j];
}

// Returns the expert with the greatest score among those not chosen yet, the lower id on a tie.
static int32_t choose(const double *scores, int64_t n_expert, const int32_t *chosen, int n)
{
    int32_t best = -1;
    for (int32_t e = 0; e < n_expert; e++) {
        bool taken = false;
        for (int j = 0; j < n; j++)
            taken = taken || chosen[j] == e;
        if (!taken && (best < 0 || scores[e] > scores[best]))
            best = e;
    }
    return best;
}

// The probability of an expert is exp(l - max) / sum over all experts of exp(l - max) (Shazeer et al. 2017, arXiv
// 1701.06538), or sigmoid(l) (DeepSeek-V3, arXiv 2412.19437).
static void probabilities(enum route_kind kind, const float *logits, int64_t n, double *out)
{
    double greatest = -INFINITY, total = 0;
    for (int64_t e = 0; e < n; e++)
        greatest = fmax(greatest, (double)logits[e]);
    for (int64_t e = 0; e < n; e++) {
        out[e] = kind == ROUTE_SOFTMAX ? exp((double)logits[e] - greatest) : sigmoid((double)logits[e]);
        total += out[e];
    }
    if (kind == ROUTE_SOFTMAX)
        for (int64_t e = 0; e < n; e++)
            out[e] /= total;
}

// The sum of the two greatest scores of a group of experts.
static double group_score(const double *scores, int64_t size)
{
    double first = -INFINITY, second = -INFINITY;
    for (int64_t e = 0; e < size; e++) {
        second = fmax(second, fmin(first, scores[e]));
        first = fmax(first, scores[e]);
    }
    return first + second;
}

// Takes experts out of the choice whose group is none of the best (DeepSeek-V3, arXiv 2412.19437). A group is among the
// best if fewer than that many others come before it: those of a greater score, and on a tie those of a lower number.
static void leave_groups(const struct tensor *n, int64_t n_expert, double *scores, double *of_group)
{
    const int n_group = n->p.route.n_group;
    const int64_t size = n_expert / n_group;
    for (int i = 0; i < n_group; i++)
        of_group[i] = group_score(scores + i * size, size);
    for (int i = 0; i < n_group; i++) {
        int before = 0;
        for (int j = 0; j < n_group; j++)
            before += of_group[j] > of_group[i] || (of_group[j] == of_group[i] && j < i);
        for (int64_t e = i * size; before >= n->p.route.n_group_used && e < (i + 1) * size; e++)
            scores[e] = -INFINITY;
    }
}

// The numbers by which experts are chosen: their probabilities plus a bias, where there are biases or groups, else the
// logits, which have the same order, but do not saturate. of_group: room for as many numbers as there are groups.
static void route_scores(const struct tensor *n, const float *logits, const double *p, double *scores, double *of_group)
{
    const int64_t n_expert = n->src[0]->width;
    const bool scored = n->w[0] || n->p.route.n_group;
    for (int64_t e = 0; e < n_expert; e++)
        scores[e] = scored ? p[e] + element_or(n->w[0], e, 0) : (double)logits[e];
    if (n->p.route.n_group)
        leave_groups(n, n_expert, scores, of_group);
}

// The least sum by which weights are divided: the smallest normal half-precision number, as in llama.cpp.
#define ROUTE_SUM_MIN 0x1p-14

static void route_each(int n, float *weights, int32_t *ids)
{
    for (int j = 0; j < n; j++)
        weights[j] = 1, ids[j] = j;
}

// A row of the result holds the weights of the n_used chosen experts, then their ids as int32. Experts that share one take
// its number after the choice.
static void do_route(const struct ref_run *r, const struct tensor *n)
{
    int n_used = n->p.route.n_used;
    int64_t n_expert = route_choices(n);
    double *p = r->sums, *scores = p + n_expert, *of_group = scores + n_expert;
    for (int row = 0; row < n_rows(r, n); row++) {
        const float *logits = row_of(r, n->src[0], row);
        float *weights = row_of(r, n, row);
        int32_t *ids = (int32_t *)(weights + n_used);
        double total = 0;
        if (n->p.route.kind == ROUTE_EACH) {
            route_each(n_used, weights, ids);
            continue;
        }
        probabilities(n->p.route.kind, logits, n_expert, p);
        route_scores(n, logits, p, scores, of_group);
        for (int j = 0; j < n_used; j++)
            ids[j] = choose(scores, n_expert, ids, j);
        for (int j = 0; j < n_used; j++) {
            ids[j] /= MAX(n->p.route.share, 1);
            total += p[ids[j]];
        }
        double divisor = n->p.route.normalise ? fmax(total, ROUTE_SUM_MIN) : 1;
        for (int j = 0; j < n_used; j++)
            weights[j] = (float)(p[ids[j]] / divisor * (double)n->p.route.scale);
    }
}

// y_j = scale_id(j) x W_id(j)^T + bias_id(j) for each choice j; the scale is 1 if the weight has none. All choices of a row share
// one x if p.expert.shared is set; otherwise each has its own.
static void do_expert_matmul(const struct ref_run *r, const struct tensor *n)
{
    const struct weight *w = n->w[0];
    int64_t k = w->ne[0], width = w->ne[1];
    for (int row = 0; row < n_rows(r, n); row++)
        for (int j = 0; j < n->p.expert.n_used; j++) {
            const float *x = row_of(r, n->src[0], row) + (n->p.expert.shared ? 0 : j * k);
            float *y = row_of(r, n, row) + j * width;
            int32_t id = route_id(r, n->src[1], row, j);
            double scale = w->scale ? (double)w->scale[id] : 1.0;
            for (int64_t c = 0; c < width; c++)
                y[c] = (float)(scale * dot(weight_row(r, w, id, c), x, k) + element_or(n->w[1], id * width + c, 0));
        }
}

// y = sum over j of weight_j x_j, or of x_j
static void do_expert_combine(const struct ref_run *r, const struct tensor *n)
{
    for (int row = 0; row < n_rows(r, n); row++)
        for (int64_t i = 0; i < n->width; i++) {
            double sum = 0;
            for (int j = 0; j < n->p.expert.n_used; j++)
                sum += (n->p.expert.plain ? 1 : route_weight(r, n->src[1], row, j)) *
                       (double)row_of(r, n->src[0], row)[j * n->width + i];
            row_of(r, n, row)[i] = (float)sum;
        }
}

// Columns from .. from + n - 1 of each group of columns.
static void do_join(const struct ref_run *r, const struct tensor *n)
{
    const int64_t first = n->p.join.first, second = n->p.join.second, parts = n->src[0]->width / first;
    const bool same = n->src[1]->width == second;
    for (int row = 0; row < n_rows(r, n); row++)
        for (int64_t i = 0; i < parts; i++) {
            float *y = row_of(r, n, row) + i * (first + second);
            memcpy(y, row_of(r, n->src[0], row) + i * first, (size_t)first * sizeof(float));
            memcpy(y + first, row_of(r, n->src[1], row) + (same ? 0 : i * second), (size_t)second * sizeof(float));
        }
}

static void do_slice(const struct ref_run *r, const struct tensor *n)
{
    const int64_t group = n->p.slice.group, groups = n->src[0]->width / group, width = n->width / groups;
    for (int row = 0; row < n_rows(r, n); row++)
        for (int64_t i = 0; i < groups; i++)
            memcpy(row_of(r, n, row) + i * width, row_of(r, n->src[0], row) + i * group + n->p.slice.from,
                   (size_t)width * sizeof(float));
}

// ---- Operations with state: each part of a state is taken through all rows of a sequence in the step

// Stores n floats at `at` of the state in the slot, or loads them; slot -1: stores nothing, or loads zeros.
static void put_state(const struct ref_run *r, int32_t slot, int64_t at, const float *state, int64_t n)
{
    if (slot >= 0)
        memcpy(r->states + (size_t)slot * r->state_floats + at, state, (size_t)n * sizeof(float));
}
static void get_state(const struct ref_run *r, int32_t slot, int64_t at, float *state, int64_t n)
{
    memset(state, 0, (size_t)n * sizeof(float));
    if (slot >= 0)
        memcpy(state, r->states + (size_t)slot * r->state_floats + at, (size_t)n * sizeof(float));
}

// y[t] = sum over i of w[i] x[t - kernel + 1 + i], plus the bias. The state of a column is its last kernel - 1 values,
// the oldest first.
static void conv_row(const struct ref_run *r, const struct tensor *n, int row, int64_t column)
{
    const int last = n->p.conv.kernel - 1;
    const float *w = weight_row(r, n->w[0], 0, column);
    const float x = row_of(r, n->src[0], row)[column];
    const double sum = dot(w, r->state, last) + (double)w[last] * (double)x + element_or(n->w[1], column, 0);
    memmove(r->state, r->state + 1, (size_t)(last - 1) * sizeof(float));
    r->state[last - 1] = x;
    row_of(r, n, row)[column] = (float)sum;
}

static void do_short_conv(const struct ref_run *r, const struct tensor *n)
{
    const int64_t kept = n->p.conv.kernel - 1;
    for (int64_t c = 0; c < n->width; c++)
        for (int row = 0; row < n_rows(r, n); row++) {
            const int64_t at = n->p.conv.state + c * kept;
            if (step_begins(r->step, row))
                get_state(r, r->step->state_from[row], at, r->state, kept);
            conv_row(r, n, row, c);
            put_state(r, r->step->state_to[row], at, r->state, kept);
        }
}

// 1 / |x|, of a norm that is at least eps.
static double inverse_norm(const float *x, int n, float eps)
{
    return 1 / fmax(sqrt(dot(x, x, n)), (double)eps);
}

// By what row i of the state of head h is multiplied.
static double delta_decay(const struct ref_run *r, const struct tensor *n, int row, int h, int i)
{
    const float *alpha = row_of(r, n->src[1], row);
    if (n->p.delta.by_channel)
        return exp(element_or(n->w[0], h, 0) * (double)alpha[h * n->p.delta.dim_k + i]);
    return exp(element_or(n->w[0], h, 0) * softplus((double)alpha[h] + element_or(n->w[1], h, 0)));
}

// The gated delta rule (Yang et al. 2024, arXiv 2412.06464), of head h in one row. The state is a matrix (dim_k, dim_v)
// and is rounded to float32 after each row.
static void delta_row(const struct ref_run *r, const struct tensor *n, int row, int h)
{
    const int dim_k = n->p.delta.dim_k, dim_v = n->p.delta.dim_v, keys = n->p.delta.n_head_k * dim_k;
    const float *q = row_of(r, n->src[0], row) + key_head_of(n, h) * dim_k, *k = q + keys;
    const float *v = row_of(r, n->src[0], row) + 2 * keys + h * dim_v;
    const double beta = sigmoid((double)row_of(r, n->src[2], row)[h]);
    const double of_k = inverse_norm(k, dim_k, n->p.delta.eps);
    const double of_q = inverse_norm(q, dim_k, n->p.delta.eps) / sqrt(dim_k);
    float *y = row_of(r, n, row) + h * dim_v;
    for (int j = 0; j < dim_v; j++) {
        double known = 0, sum = 0;
        for (int i = 0; i < dim_k; i++)
            known += delta_decay(r, n, row, h, i) * (double)r->state[i * dim_v + j] * (double)k[i] * of_k;
        const double change = beta * ((double)v[j] - known);
        for (int i = 0; i < dim_k; i++) {
            float *s = &r->state[i * dim_v + j];
            *s = (float)(delta_decay(r, n, row, h, i) * (double)*s + (double)k[i] * of_k * change);
            sum += (double)*s * (double)q[i] * of_q;
        }
        y[j] = (float)sum;
    }
}

static void do_delta_rule(const struct ref_run *r, const struct tensor *n)
{
    const int64_t floats = (int64_t)n->p.delta.dim_k * n->p.delta.dim_v;
    for (int h = 0; h < n->p.delta.n_head; h++)
        for (int row = 0; row < n_rows(r, n); row++) {
            const int64_t at = n->p.delta.state + h * floats;
            if (step_begins(r->step, row))
                get_state(r, r->step->state_from[row], at, r->state, floats);
            delta_row(r, n, row, h);
            put_state(r, r->step->state_to[row], at, r->state, floats);
        }
}

// The selective scan (Gu and Dao 2023, arXiv 2312.00752; with a rate a head: Dao and Gu 2024, arXiv 2405.21060), of column
// i in one row. Its state is rounded to float32 after each row.
static void scan_row(const struct ref_run *r, const struct tensor *n, int row, int i)
{
    const int h = i / n->p.scan.dim, n_state = n->p.scan.n_state;
    const int64_t group = (int64_t)(h / (n->p.scan.n_head / n->p.scan.n_group)) * n_state;
    const float *b = row_of(r, n->src[2], row) + n->p.scan.b_at + group;
    const float *c = row_of(r, n->src[3], row) + n->p.scan.c_at + group;
    const double x = (double)row_of(r, n->src[0], row)[i], d = softplus((double)row_of(r, n->src[1], row)[h]);
    double sum = 0;
    for (int k = 0; k < n_state; k++) {
        const double rate = element_or(n->w[0], n->p.scan.rates ? (int64_t)h * n_state + k : h, 0);
        r->state[k] = (float)(exp(d * rate) * (double)r->state[k] + d * x * (double)b[k]);
        sum += (double)r->state[k] * (double)c[k];
    }
    row_of(r, n, row)[i] = (float)(sum + element_or(n->w[1], h, 0) * x);
}

static void do_selective_scan(const struct ref_run *r, const struct tensor *n)
{
    const int n_state = n->p.scan.n_state;
    for (int i = 0; i < (int)n->width; i++)
        for (int row = 0; row < n_rows(r, n); row++) {
            const int64_t at = n->p.scan.state + (int64_t)i * n_state;
            if (step_begins(r->step, row))
                get_state(r, r->step->state_from[row], at, r->state, n_state);
            scan_row(r, n, row, i);
            put_state(r, r->step->state_to[row], at, r->state, n_state);
        }
}

// y_j = weight_j x
static void do_expert_weigh(const struct ref_run *r, const struct tensor *n)
{
    const int64_t width = n->src[0]->width;
    for (int row = 0; row < n_rows(r, n); row++)
        for (int j = 0; j < n->p.expert.n_used; j++)
            for (int64_t i = 0; i < width; i++)
                row_of(r, n, row)[j * width + i] =
                    (float)(route_weight(r, n->src[1], row, j) * (double)row_of(r, n->src[0], row)[i]);
}

void ref_node(const struct ref_run *r, const struct tensor *n)
{
    typedef void do_fn(const struct ref_run *r, const struct tensor *n);
    static do_fn *const table[OP_COUNT] = {
        [OP_EMBED] = do_embed,
        [OP_ROWS] = do_rows,
        [OP_ROPE_TABLE] = do_rope_table,
        [OP_NORM] = do_norm,
        [OP_MATMUL] = do_matmul,
        [OP_ROPE] = do_rope,
        [OP_KV_WRITE] = do_kv_write,
        [OP_ATTENTION] = do_attention,
        [OP_ACT] = do_elements,
        [OP_GLU] = do_elements,
        [OP_ADD] = do_elements,
        [OP_SCALE] = do_elements,
        [OP_SOFTCAP] = do_elements,
        [OP_CLAMP] = do_elements,
        [OP_XIELU] = do_elements,
        [OP_GAIN] = do_gain,
        [OP_HEAD_GLU] = do_head_glu,
        [OP_ROUTE] = do_route,
        [OP_EXPERT_MATMUL] = do_expert_matmul,
        [OP_EXPERT_COMBINE] = do_expert_combine,
        [OP_SLICE] = do_slice,
        [OP_JOIN] = do_join,
        [OP_SHORT_CONV] = do_short_conv,
        [OP_DELTA_RULE] = do_delta_rule,
        [OP_SELECTIVE_SCAN] = do_selective_scan,
        [OP_EXPERT_WEIGH] = do_expert_weigh,
    };
    assert(table[n->op]);
    table[n->op](r, n);
}
