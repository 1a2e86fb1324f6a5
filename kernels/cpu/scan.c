// Operations with state, of one sequence: each takes the state of some columns through the rows of a step.
//
// The same bits come out one row at a time and in any chunks, because a row computes with the state alone: every sum
// has one order. Columns are independent of each other, so a register holds VEC of them.
#include "kernels/cpu/vec.h"

// ---- Short convolution

// Columns i .. i + m - 1, m <= VEC. As a loop over rows and columns:
//   y[t][c] = bias[c] + w[c][0] x[t - kernel + 1][c] + .. + w[c][kernel - 1] x[t][c]
// The last kernel - 1 rows of x stay in registers, and with a constant `kernel` the loops over them are unrolled.
INLINE void convolve(const struct conv_args *a, int64_t i, int64_t m, int kernel)
{
    const struct scan_rows *r = &a->rows;
    vec w[CONV_KERNEL_MAX] = {0}, x[CONV_KERNEL_MAX] = {0}, bias = {0};
    for (int k = 0; k < kernel; k++) {
        float column[VEC] = {0};
        for (int64_t c = 0; c < m; c++)
            column[c] = float_load((const float *)a->w + (i + c) * kernel + k);
        w[k] = vec_load(column);
    }
    if (a->bias)
        bias = vec_load_n((const float *)a->bias + i, m);
    for (int k = 0; r->from && k < kernel - 1; k++)
        x[k] = vec_load_n(r->from + k * a->width + i, m);
    for (int t = 0; t < r->n; t++) {
        x[kernel - 1] = vec_load_n(r->x + (size_t)t * r->x_stride + i, m);
        vec y = bias;
        for (int k = 0; k < kernel; k++)
            y = vec_fma(w[k], x[k], y);
        vec_store_n(r->y + (size_t)t * r->y_stride + i, y, m);
        for (int k = 0; k < kernel - 1; k++)
            x[k] = x[k + 1];
        if (r->to[t] < 0)
            continue;
        float *to = r->states + (size_t)r->to[t] * r->slot + i;
        for (int k = 0; k < kernel - 1; k++)
            vec_store_n(to + k * a->width, x[k], m);
    }
}

void ISA_FN(short_conv)(const struct conv_args *a)
{
    for (int64_t i = 0, m; i < a->n; i += m) {
        m = MIN(a->n - i, (int64_t)VEC);
        if (a->kernel == 4 && m == VEC)
            convolve(a, i, VEC, 4);
        else if (a->kernel == 3 && m == VEC)
            convolve(a, i, VEC, 3);
        else
            convolve(a, i, m, a->kernel);
    }
}

// ---- Delta rule

// What a row does to all columns of a head: S is multiplied by decay; `of_k` and `of_q` are the factors of the key and
// of the query.
struct gate {
    float decay, beta, of_k, of_q;
};

static float sum_of_squares(const float *x, int n)
{
    struct lanes sum = {0};
    for (int i = 0; i < n; i += LANES)
        for (int p = 0; p < PARTS && i + p * VEC < n; p++) {
            const vec v = vec_load_n(x + i + p * VEC, MIN(n - i - p * VEC, VEC));
            sum.part[p] = vec_fma(v, v, sum.part[p]);
        }
    return lanes_sum(sum);
}

static struct gate gate_of(const struct delta_args *a, int t)
{
    const float *row = a->rows.x + (size_t)t * a->rows.x_stride;
    const float beta = a->beta[(size_t)t * a->beta_stride];
    struct gate g = {
        .beta = 1 / (1 + expf(-beta)),
        .of_k = 1 / fmaxf(sqrtf(sum_of_squares(row + a->k, a->dim_k)), a->eps),
        .of_q = 1 / fmaxf(sqrtf(sum_of_squares(row + a->q, a->dim_k)), a->eps) / sqrtf((float)a->dim_k),
    };
    if (a->by_channel)
        return g;
    const float alpha = a->alpha[(size_t)t * a->alpha_stride] + a->bias;
    const float soft = alpha > 0 ? alpha + log1pf(expf(-alpha)) : log1pf(expf(alpha)); // log(1 + e^alpha)
    g.decay = expf(a->rate * soft);
    return g;
}

// The decays of a row's channels.
static void decays_of(const struct delta_args *a, int t, float *to)
{
    const float *steps = a->alpha + (size_t)t * a->alpha_stride;
    for (int i = 0; i < a->dim_k; i += VEC) {
        const int n = MIN(a->dim_k - i, VEC);
        vec_store_n(to + i, vec_exp(vec_load_n(steps + i, n) * a->rate), n);
    }
}

enum { BLOCK_VECS = DELTA_COLUMNS / VEC, SUMS = 2 };

// What a row reads: its query and key, its gate, and the decays of its channels (NULL: the gate has one for all).
struct delta_in {
    const float *q, *k, *decays;
    struct gate gate;
};

// One row on a block of the state: m columns of vectors, the last of which has `last` columns. As a loop:
//   known[j] = of_k * sum over i of decay[i] S[i][j] k[i]
//   change[j] = beta * (v[j] - known[j])
//   S[i][j] = decay[i] * S[i][j] + k[i] * (of_k * change[j])
//   y[j] = of_q * sum over i of S[i][j] q[i]
// Each sum over i is made in SUMS sums, of even and odd i, so that no addition waits for the one before it. A decay that all
// i have is multiplied with the sum. by_channel is a constant where this is inlined.
INLINE void delta_row(float *s, const struct delta_in *in, const float *v, float *y, int dim_k, int m, int last,
                      bool by_channel)
{
    const float *q = in->q, *k = in->k;
    const struct gate *g = &in->gate;
    const int width = (m - 1) * VEC + last;
    vec sum[SUMS][BLOCK_VECS] = {0}, change[BLOCK_VECS];
    for (int i = 0; i < dim_k; i++)
        for (int j = 0; j < m; j++)
            sum[i % SUMS][j] = vec_fma(vec_load_n(s + i * width + j * VEC, j + 1 < m ? VEC : last),
                                       vec_all(by_channel ? in->decays[i] * k[i] : k[i]), sum[i % SUMS][j]);
    for (int j = 0; j < m; j++) {
        const vec known = (sum[0][j] + sum[1][j]) * (by_channel ? g->of_k : g->of_k * g->decay);
        change[j] = (vec_load_n(v + j * VEC, j + 1 < m ? VEC : last) - known) * (g->beta * g->of_k);
        sum[0][j] = sum[1][j] = (vec){0};
    }
    for (int i = 0; i < dim_k; i++)
        for (int j = 0; j < m; j++) {
            float *at = s + i * width + j * VEC;
            const int n = j + 1 < m ? VEC : last;
            const vec now =
                vec_fma(vec_all(k[i]), change[j], vec_load_n(at, n) * (by_channel ? in->decays[i] : g->decay));
            vec_store_n(at, now, n);
            sum[i % SUMS][j] = vec_fma(now, vec_all(q[i]), sum[i % SUMS][j]);
        }
    for (int j = 0; j < m; j++)
        vec_store_n(y + j * VEC, (sum[0][j] + sum[1][j]) * g->of_q, j + 1 < m ? VEC : last);
}

static void delta_whole(float *s, const struct delta_in *in, const float *v, float *y, int dim_k)
{
    delta_row(s, in, v, y, dim_k, BLOCK_VECS, VEC, false);
}

static void delta_whole_by_channel(float *s, const struct delta_in *in, const float *v, float *y, int dim_k)
{
    delta_row(s, in, v, y, dim_k, BLOCK_VECS, VEC, true);
}

static void delta_part(float *s, const struct delta_in *in, const float *v, float *y, int dim_k, int width)
{
    const int m = (width + VEC - 1) / VEC;
    delta_row(s, in, v, y, dim_k, m, width - (m - 1) * VEC, in->decays);
}

// Takes the block that begins at column `col` through rows first .. first + n - 1. Its state is in `s`, which lies in
// the first-level cache. decays: dim_k for each of these rows, or NULL.
static void delta_block(const struct delta_args *a, const struct gate *gates, const float *decays, int first, int n,
                        int col, float *s)
{
    const struct scan_rows *r = &a->rows;
    const int width = MIN(DELTA_COLUMNS, a->dim_v - col);
    const size_t bytes = (size_t)width * (size_t)a->dim_k * sizeof(float);
    for (int t = first; t < first + n; t++) {
        const float *row = r->x + (size_t)t * r->x_stride, *v = row + a->v + col;
        const struct delta_in in = {row + a->q, row + a->k, decays ? decays + (t - first) * a->dim_k : NULL,
                                    gates[t - first]};
        float *y = r->y + (size_t)t * r->y_stride + (col - a->col0);
        if (width == DELTA_COLUMNS)
            (decays ? delta_whole_by_channel : delta_whole)(s, &in, v, y, a->dim_k);
        else
            delta_part(s, &in, v, y, a->dim_k, width);
        if (r->to[t] >= 0)
            memcpy(r->states + (size_t)r->to[t] * r->slot + (size_t)col * (size_t)a->dim_k, s, bytes);
    }
}

// Rows are taken in pieces whose gates and decays fit the scratch. Between two pieces the state of a block waits in the
// scratch.
void ISA_FN(delta_rule)(const struct delta_args *a)
{
    enum { PIECE = 256 };
    const struct scan_rows *r = &a->rows;
    struct gate *gates = r->scratch;
    float *state = (float *)(gates + PIECE), *decays = state + DELTA_DIM_MAX * DELTA_DIM_MAX;
    const size_t columns = (size_t)(a->col1 - a->col0), dim_k = (size_t)a->dim_k;
    _Static_assert(sizeof(struct gate[PIECE]) + sizeof(float[DELTA_DIM_MAX + PIECE][DELTA_DIM_MAX]) <= SCRATCH_BYTES,
                   "gates, decays and the state of a head fit a thread's scratch");
    if (r->from)
        memcpy(state, r->from + (size_t)a->col0 * dim_k, columns * dim_k * sizeof(float));
    else
        memset(state, 0, columns * dim_k * sizeof(float));
    for (int first = 0, n; first < r->n; first += n) {
        n = MIN(r->n - first, (int)PIECE);
        for (int t = 0; t < n; t++) {
            gates[t] = gate_of(a, first + t);
            if (a->by_channel)
                decays_of(a, first + t, decays + (size_t)t * dim_k);
        }
        for (int col = a->col0; col < a->col1; col += DELTA_COLUMNS)
            delta_block(a, gates, a->by_channel ? decays : NULL, first, n, col,
                        state + (size_t)(col - a->col0) * dim_k);
    }
}

// ---- Selective scan

// What a row does to the columns of a block: the softplus of dt, the decay exp(d rate), which is not used where each state
// has a rate of its own, d * x, and skip * x.
struct inputs {
    float d[DELTA_COLUMNS], decay[DELTA_COLUMNS], x[DELTA_COLUMNS], skip[DELTA_COLUMNS];
};

static void read_inputs(const struct scan_args *a, int t, int64_t col, int width, struct inputs *in)
{
    const float *x = a->rows.x + (size_t)t * a->rows.x_stride, *dt = a->dt + (size_t)t * a->dt_stride;
    *in = (struct inputs){0};
    for (int j = 0; j < width; j++) {
        const int64_t h = (col + j) / a->dim;
        if (j > 0 && h == (col + j - 1) / a->dim)
            in->d[j] = in->d[j - 1], in->decay[j] = in->decay[j - 1];
        else
            in->d[j] = dt[h] > 0 ? dt[h] + log1pf(expf(-dt[h])) : log1pf(expf(dt[h])); // log(1 + e^dt)
        if (!a->rates && (j == 0 || h != (col + j - 1) / a->dim))
            in->decay[j] = expf(in->d[j] * float_load((const float *)a->rate + h));
        in->skip[j] = a->skip ? float_load((const float *)a->skip + h) * x[col + j] : 0;
        in->x[j] = in->d[j] * x[col + j];
    }
}

// One row on a block of the state, of m vectors of columns. s has n_state rows of m * VEC floats, and so has `rate`, which
// is NULL where a head has one rate. Each sum over states is made in SUMS sums, of even and odd states. As a loop:
//   S[n][j] = decay[j] S[n][j] + x[j] B[n];   y[j] = sum over n of S[n][j] C[n], plus skip[j]
INLINE void scan_row(float *s, const float *rate, const struct inputs *in, const float *b, const float *c, int n_state,
                     int m, float *y)
{
    vec sum[SUMS][BLOCK_VECS] = {0};
    for (int n = 0; n < n_state; n++)
        for (int j = 0; j < m; j++) {
            float *at = s + (n * m + j) * VEC;
            const vec d = vec_load(in->d + j * VEC), x = vec_load(in->x + j * VEC);
            const vec decay = rate ? vec_exp(d * vec_load(rate + (n * m + j) * VEC)) : vec_load(in->decay + j * VEC);
            const vec now = vec_fma(vec_load(at), decay, x * b[n]);
            vec_store(at, now);
            sum[n % SUMS][j] = vec_fma(now, vec_all(c[n]), sum[n % SUMS][j]);
        }
    for (int j = 0; j < m; j++)
        vec_store(y + j * VEC, sum[0][j] + sum[1][j] + vec_load(in->skip + j * VEC));
}

static void scan_by_head(float *s, const struct inputs *in, const float *b, const float *c, int n_state, int m,
                         float *y)
{
    if (m == BLOCK_VECS)
        scan_row(s, NULL, in, b, c, n_state, BLOCK_VECS, y);
    else
        scan_row(s, NULL, in, b, c, n_state, m, y);
}

static void scan_by_state(float *s, const float *rate, const struct inputs *in, const float *b, const float *c,
                          int n_state, int m, float *y)
{
    scan_row(s, rate, in, b, c, n_state, m, y);
}

// Copies n rows of `width` floats between a slot, where they follow each other, and the scratch, where a row has whole
// vectors.
static void scan_copy(float *to, size_t to_stride, const float *from, size_t from_stride, int n, int width)
{
    for (int i = 0; i < n; i++)
        memcpy(to + (size_t)i * to_stride, from + (size_t)i * from_stride, (size_t)width * sizeof(float));
}

// Takes the block of `width` columns from `col` on through all rows. The rates of its columns are transposed first, so that
// those of a vector of columns lie together.
static void scan_block(const struct scan_args *a, int64_t col, int width)
{
    const struct scan_rows *r = &a->rows;
    const int m = (width + VEC - 1) / VEC, n_state = a->n_state, stride = m * VEC;
    const size_t in_slot = (size_t)col * (size_t)n_state, block = (size_t)n_state * (size_t)stride;
    float *s = r->scratch, *rate = s + block, y[DELTA_COLUMNS];
    memset(s, 0, 2 * block * sizeof(float));
    if (r->from)
        scan_copy(s, (size_t)stride, r->from + in_slot, (size_t)width, n_state, width);
    for (int j = 0; a->rates && j < width; j++)
        for (int n = 0; n < n_state; n++)
            rate[n * stride + j] = float_load((const float *)a->rate + (col + j) * n_state + n);
    for (int t = 0; t < r->n; t++) {
        const float *b = a->b + (size_t)t * a->b_stride, *c = a->c + (size_t)t * a->c_stride;
        struct inputs in;
        read_inputs(a, t, col, width, &in);
        if (a->rates)
            scan_by_state(s, rate, &in, b, c, n_state, m, y);
        else
            scan_by_head(s, &in, b, c, n_state, m, y);
        memcpy(r->y + (size_t)t * r->y_stride + (col - a->col0), y, (size_t)width * sizeof(float));
        if (r->to[t] >= 0)
            scan_copy(r->states + (size_t)r->to[t] * r->slot + in_slot, (size_t)width, s, (size_t)stride, n_state,
                      width);
    }
}

void ISA_FN(selective_scan)(const struct scan_args *a)
{
    _Static_assert(2 * sizeof(float[SCAN_STATE_MAX][DELTA_COLUMNS]) <= SCRATCH_BYTES, "a block and its rates fit");
    for (int64_t col = a->col0; col < a->col1; col += DELTA_COLUMNS)
        scan_block(a, col, (int)MIN(a->col1 - col, (int64_t)DELTA_COLUMNS));
}
