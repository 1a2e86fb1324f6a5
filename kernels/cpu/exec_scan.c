// Operations with state on an item: some columns in all rows of the step. The rows of each sequence follow each other
// (struct step); the kernels take the state of the columns through them.
#include "kernels/cpu/host.h"
#include "kernels/cpu/item_access.h"

// The rows of one sequence, of which `row` is the first: its values in columns of src and n, and its slots.
static struct scan_rows rows_from(const struct item *it, const struct tensor *n, int row, int64_t src_col,
                                  int64_t state)
{
    const struct run *r = it->run;
    const struct step *s = r->step;
    float *states = (float *)buffer_data(s->states) + state;
    const size_t slot = state_bytes(r->plan->graph) / sizeof(float);
    struct scan_rows rows = {
        .x = at(it, n->src[0], row, src_col),
        .x_stride = value_of(r, n->src[0])->row_bytes / sizeof(float),
        .y = at(it, n, row, it->col0),
        .y_stride = value_of(r, n)->row_bytes / sizeof(float),
        .states = states,
        .slot = slot,
        .from = s->state_from[row] < 0 ? NULL : states + (size_t)s->state_from[row] * slot,
        .to = s->state_to + row,
        .scratch = it->local,
    };
    do
        rows.n++;
    while (!step_ends(s, row++));
    return rows;
}

void do_short_conv(const struct item *it, const struct tensor *n)
{
    const struct weight *w = n->w[0];
    for (int row = 0, m; row < it->row1; row += m) {
        struct conv_args a = {
            .rows = rows_from(it, n, row, it->col0, n->p.conv.state + it->col0),
            .w = (const uint8_t *)w->data + (size_t)it->col0 * w->row_bytes,
            .bias = n->w[1] ? (const uint8_t *)n->w[1]->data + (size_t)it->col0 * sizeof(float) : NULL,
            .kernel = n->p.conv.kernel,
            .width = n->width,
            .n = it->col1 - it->col0,
        };
        it->run->k->short_conv(&a);
        m = a.rows.n;
    }
}

// Columns col0 .. col1 - 1 of one head's values.
static int delta_head(const struct item *it, const struct tensor *n, int row, int h, int64_t col0, int64_t col1)
{
    const struct run *r = it->run;
    const int64_t dim_k = n->p.delta.dim_k, dim_v = n->p.delta.dim_v, keys = n->p.delta.n_head_k * dim_k;
    const int64_t state = n->p.delta.state + h * dim_k * dim_v, from = key_head_of(n, h) * dim_k;
    struct delta_args a = {
        .rows = rows_from(it, n, row, 0, state),
        .q = from,
        .k = keys + from,
        .v = 2 * keys + h * dim_v,
        .alpha = at(it, n->src[1], row, n->p.delta.by_channel ? h * dim_k : h),
        .alpha_stride = value_of(r, n->src[1])->row_bytes / sizeof(float),
        .beta = at(it, n->src[2], row, h),
        .beta_stride = value_of(r, n->src[2])->row_bytes / sizeof(float),
        .dim_k = (int)dim_k,
        .dim_v = (int)dim_v,
        .col0 = (int)(col0 - h * dim_v),
        .col1 = (int)(col1 - h * dim_v),
        .eps = n->p.delta.eps,
        .by_channel = n->p.delta.by_channel,
    };
    memcpy(&a.rate, (const uint8_t *)n->w[0]->data + (size_t)h * sizeof(float), sizeof(float));
    if (n->w[1])
        memcpy(&a.bias, (const uint8_t *)n->w[1]->data + (size_t)h * sizeof(float), sizeof(float));
    a.rows.y += col0 - it->col0;
    r->k->delta_rule(&a);
    return a.rows.n;
}

void do_delta_rule(const struct item *it, const struct tensor *n)
{
    const int64_t dim_v = n->p.delta.dim_v;
    for (int64_t c = it->col0, end; c < it->col1; c = end) {
        end = MIN(it->col1, (c / dim_v + 1) * dim_v);
        for (int row = 0; row < it->row1;)
            row += delta_head(it, n, row, (int)(c / dim_v), c, end);
    }
}

// Columns col0 .. col1 - 1, which belong to one group.
static int scan_group(const struct item *it, const struct tensor *n, int row, int64_t group, int64_t col0, int64_t col1)
{
    const struct run *r = it->run;
    const int64_t n_state = n->p.scan.n_state;
    struct scan_args a = {
        .rows = rows_from(it, n, row, 0, n->p.scan.state),
        .dt = at(it, n->src[1], row, 0),
        .dt_stride = value_of(r, n->src[1])->row_bytes / sizeof(float),
        .b = at(it, n->src[2], row, n->p.scan.b_at + group * n_state),
        .b_stride = value_of(r, n->src[2])->row_bytes / sizeof(float),
        .c = at(it, n->src[3], row, n->p.scan.c_at + group * n_state),
        .c_stride = value_of(r, n->src[3])->row_bytes / sizeof(float),
        .rate = n->w[0]->data,
        .skip = n->w[1] ? n->w[1]->data : NULL,
        .rates = n->p.scan.rates,
        .dim = n->p.scan.dim,
        .n_state = n->p.scan.n_state,
        .col0 = col0,
        .col1 = col1,
    };
    a.rows.y += col0 - it->col0;
    r->k->selective_scan(&a);
    return a.rows.n;
}

void do_selective_scan(const struct item *it, const struct tensor *n)
{
    const int64_t columns = n->width / n->p.scan.n_group; // of a group
    for (int64_t c = it->col0, end; c < it->col1; c = end) {
        end = MIN(it->col1, (c / columns + 1) * columns);
        for (int row = 0; row < it->row1;)
            row += scan_group(it, n, row, c / columns, c, end);
    }
}
