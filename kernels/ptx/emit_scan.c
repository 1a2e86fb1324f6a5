// Emits the kernels of operations with state, and of slices.
//
// short_conv, the naive loop that it equals: for each row t, for each column c:
//     y[t][c] = bias[c] + w[c][0] x[t - kernel + 1][c] + .. + w[c][kernel - 1] x[t][c]
// where rows before the first one of a sequence in the step come from its state, which is the last kernel - 1 rows of x
// before the step, the oldest first, or zeros. Rows do not depend on each other, so each has a CTA of its own: grid (rows,
// ptx_tiles(width, 128), 1), a thread has one column.
//
// selective_scan, the naive loop that it equals: see ref_ops.c. As in emit_delta.c, a CTA has 32 columns of a group, four lanes
// share the states of a column, and B and C of a row are published in shared memory. grid (rows, groups * blocks, 1).
//
// slice: y[r][g * n + c] = x[r][g * group + from + c]; a thread has one column.
//
// join: y[r][i * (first + second) + c] = x[r][i * first + c], or behind these columns z[r][i * second + c - first], where all
// parts i of a row may share z; a thread has one column.
#include "kernels/ptx/emit_scan.h"

#include <math.h>

// ---- slices

int ptx_emit_slice(struct ptx *p, const struct ptx_slice *s, struct ptx_launch *launch, struct error *err)
{
    if (ptx_check_width("slice", s->from_width, err) || ptx_check_width("slice", s->width, err))
        return -1;
    if (!s->group || !s->n || s->from > s->group || s->n > s->group - s->from || s->from_width % s->group ||
        (uint64_t)s->from_width / s->group * s->n != s->width)
        return fail(err, E_GPU, "slice: columns %u and %u more of each %u of %u", s->from, s->n, s->group,
                    s->from_width);
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: $2 columns of each $3 of rows of $4, from column $5 on\n"
             ".visible .entry slice_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 x,\n"
             "    .param .u64 y)\n"
             ".maxntid 128, 1, 1\n"
             "{\n"
             PTX_ROW_REGS
             "    .reg .pred %outside;\n"
             "    .reg .u32 %i, %chunk, %run, %in;\n"
             "    .reg .u64 %px, %py;\n"
             "    .reg .f32 %a;\n"
             PTX_ROW
             "    mov.u32 %chunk, %ctaid.y;\n"
             "    mov.u32 %i, %tid.x;\n"
             "    mad.lo.u32 %i, %chunk, 128, %i;\n"
             "    setp.ge.u32 %outside, %i, $6;\n"
             "    @%outside ret;\n"
             "    div.u32 %run, %i, $2;\n"
             "    rem.u32 %in, %i, $2;\n"
             "    mad.lo.u32 %in, %run, $3, %in;\n"
             PTX_ADDRESS("%px", "x")
             "    mad.wide.u32 %px, %row, $7, %px;\n"
             "    mad.wide.u32 %px, %in, 4, %px;\n"
             "    ld.global.f32 %a, [%px+$8];\n"
             PTX_ADDRESS("%py", "y")
             "    mad.wide.u32 %py, %row, $9, %py;\n"
             "    mad.wide.u32 %py, %i, 4, %py;\n"
             "    st.global.f32 [%py], %a;\n"
             "    ret;\n"
             "}\n",
             s->node, ptx_count_at(s->rows), s->n, s->group, s->from_width, s->from, s->width, 4 * s->from_width,
             4 * s->from, 4 * s->width);
    *launch = (struct ptx_launch){
        .entry = "slice", .grid = {1, ptx_tiles(s->width, SCAN_THREADS), 1}, .block = {SCAN_THREADS, 1, 1}};
    return ptx_finish(p, err);
}

// ---- joined columns

int ptx_emit_join(struct ptx *p, const struct ptx_join *j, struct ptx_launch *launch, struct error *err)
{
    const uint32_t both = j->first + j->second;
    if (ptx_check_width("join", j->width, err))
        return -1;
    if (!j->first || !j->second || j->first > j->width || j->second > j->width || j->width % both)
        return fail(err, E_GPU, "join: %u and %u columns in turns of %u", j->first, j->second, j->width);
    const uint32_t parts = j->width / both, z_width = j->same ? j->second : parts * j->second;
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: $2 columns of one value and $3 of another in turns\n"
             ".visible .entry join_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 x,\n"
             "    .param .u64 z,\n"
             "    .param .u64 y)\n"
             ".maxntid 128, 1, 1\n"
             "{\n"
             PTX_ROW_REGS
             "    .reg .pred %outside, %behind;\n"
             "    .reg .u32 %i, %chunk, %part, %in, %at;\n"
             "    .reg .u64 %px, %pz, %py;\n"
             "    .reg .f32 %a;\n"
             PTX_ROW
             "    mov.u32 %chunk, %ctaid.y;\n"
             "    mov.u32 %i, %tid.x;\n"
             "    mad.lo.u32 %i, %chunk, 128, %i;\n"
             "    setp.ge.u32 %outside, %i, $4;\n"
             "    @%outside ret;\n"
             "    div.u32 %part, %i, $5;\n"
             "    rem.u32 %in, %i, $5;\n"
             "    setp.ge.u32 %behind, %in, $2;\n",
             j->node, ptx_count_at(j->rows), j->first, j->second, j->width, both);
    PTX_FILL(p,
             PTX_ADDRESS("%px", "x")
             "    mad.wide.u32 %px, %row, $0, %px;\n"
             "    mad.lo.u32 %at, %part, $1, %in;\n"
             "    mad.wide.u32 %px, %at, 4, %px;\n"
             PTX_ADDRESS("%pz", "z")
             "    mad.wide.u32 %pz, %row, $2, %pz;\n"
             "    sub.u32 %at, %in, $1;\n"
             "    mad.lo.u32 %at, %part, $3, %at;\n"
             "    mad.wide.u32 %pz, %at, 4, %pz;\n"
             "    @!%behind ld.global.f32 %a, [%px];\n"
             "    @%behind ld.global.f32 %a, [%pz];\n"
             PTX_ADDRESS("%py", "y")
             "    mad.wide.u32 %py, %row, $4, %py;\n"
             "    mad.wide.u32 %py, %i, 4, %py;\n"
             "    st.global.f32 [%py], %a;\n"
             "    ret;\n"
             "}\n",
             4 * parts * j->first, j->first, 4 * z_width, j->same ? 0 : j->second, 4 * j->width);
    *launch = (struct ptx_launch){
        .entry = "join", .grid = {1, ptx_tiles(j->width, SCAN_THREADS), 1}, .block = {SCAN_THREADS, 1, 1}};
    return ptx_finish(p, err);
}

// ---- short convolution

static void conv_head(struct ptx *p, const struct ptx_conv *c)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: a convolution over $1 rows of $2\n"
             ".visible .entry short_conv_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 from,\n"
             "    .param .u64 to,\n"
             "    .param .u64 x,\n"
             "    .param .u64 w,\n",
             c->node, c->kernel, c->width);
    if (c->bias)
        PTX_LINES(p, "    .param .u64 bias,\n");
    PTX_FILL(p,
             "    .param .u64 y)\n"
             ".maxntid 128, 1, 1\n"
             "{\n"
             PTX_ROW_REGS
             "    .reg .pred %outside, %begun, %none;\n"
             "    .reg .u32 %i, %chunk, %back, %k;\n"
             "    .reg .s32 %slot, %mark;\n"
             "    .reg .u64 %states, %px, %py, %pw, %pfrom, %at;\n"
             "    .reg .f32 %v<$0>, %w, %y;\n",
             c->kernel);
}

static void conv_place(struct ptx *p, const struct ptx_conv *c)
{
    PTX_FILL(p,
             PTX_ROW
             "    mov.u32 %chunk, %ctaid.y;\n"
             "    mov.u32 %i, %tid.x;\n"
             "    mad.lo.u32 %i, %chunk, 128, %i;\n"
             "    setp.ge.u32 %outside, %i, $2;\n"
             "    @%outside ret;\n"
             "    ld.global.u64 %states, [%step+24];\n"
             "    cvta.to.global.u64 %states, %states;\n"
             PTX_ADDRESS("%pfrom", "from")
             "    mad.wide.u32 %pfrom, %row, 4, %pfrom;\n"
             "    ld.global.s32 %mark, [%pfrom];\n"
             PTX_ADDRESS("%px", "x")
             "    mad.wide.u32 %px, %row, $3, %px;\n"
             "    mad.wide.u32 %px, %i, 4, %px;\n"
             PTX_ADDRESS("%pw", "w")
             "    mad.wide.u32 %pw, %i, $4, %pw;\n"
             PTX_ADDRESS("%py", "y")
             "    mad.wide.u32 %py, %row, $3, %py;\n"
             "    mad.wide.u32 %py, %i, 4, %py;\n"
             "    mov.u32 %back, 0;\n"
             "    ld.global.f32 %v$5, [%px];\n",
             0, ptx_count_at(ROWS_TOKENS), c->width, 4 * c->width, 4 * c->kernel, c->kernel - 1);
}

// Loads the value that lies `back` rows before the row: from x as long as the sequence has such a row in this step, and
// else from the state. %back rows were gone back in x, to a row whose mark is %mark.
static void conv_load(struct ptx *p, const struct ptx_conv *c, uint32_t back)
{
    const uint32_t last = c->kernel - 1;
    PTX_FILL(p,
             "    setp.ne.s32 %begun, %mark, $1;\n"
             "    @%begun bra STATE$0;\n"
             "    sub.u64 %px, %px, $2;\n"
             "    ld.global.f32 %v$3, [%px];\n"
             "    sub.u64 %pfrom, %pfrom, 4;\n"
             "    ld.global.s32 %mark, [%pfrom];\n"
             "    add.u32 %back, %back, 1;\n"
             "    bra LOADED$0;\n"
             "STATE$0:\n"
             "    mov.f32 %v$3, 0f00000000;\n"
             "    setp.lt.s32 %none, %mark, 0;\n"
             "    @%none bra LOADED$0;\n",
             back, (uint32_t)PTX_STATE_GOES_ON, 4 * c->width, last - back);
    PTX_FILL(p,
             "    mov.b32 %slot, %mark;\n"
             SLOT("%at", "%slot")
             "    add.u32 %k, %back, $1;\n" // the row of the state
             "    mad.lo.u32 %k, %k, $2, %i;\n"
             "    mad.wide.u32 %at, %k, 4, %at;\n"
             "    ld.global.f32 %v$1, [%at+$3];\n"
             "LOADED$4:\n",
             c->state.slot, last - back, c->width, 4 * c->state.at, back);
}

static void conv_sum(struct ptx *p, const struct ptx_conv *c)
{
    if (c->bias)
        PTX_LINES(p, PTX_ADDRESS("%at", "bias") "    mad.wide.u32 %at, %i, 4, %at;\n"
                                                "    ld.global.f32 %y, [%at];\n");
    else
        PTX_LINES(p, "    mov.f32 %y, 0f00000000;\n");
    for (uint32_t k = 0; k < c->kernel; k++)
        PTX_FILL(p,
                 "    ld.global.f32 %w, [%pw+$0];\n"
                 "    fma.rn.f32 %y, %w, %v$1, %y;\n",
                 4 * k, k);
    PTX_LINES(p, "    st.global.f32 [%py], %y;\n");
}

static void conv_save(struct ptx *p, const struct ptx_conv *c)
{
    PTX_FILL(p,
             PTX_ADDRESS("%at", "to")
             "    mad.wide.u32 %at, %row, 4, %at;\n"
             "    ld.global.s32 %slot, [%at];\n"
             "    setp.lt.s32 %none, %slot, 0;\n"
             "    @%none ret;\n"
             SLOT("%at", "%slot")
             "    mad.wide.u32 %at, %i, 4, %at;\n",
             c->state.slot);
    for (uint32_t k = 0; k + 1 < c->kernel; k++)
        PTX_FILL(p, "    st.global.f32 [%at+$0], %v$1;\n", 4 * c->state.at + 4 * k * c->width, k + 1);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
}

int ptx_emit_conv(struct ptx *p, const struct ptx_conv *c, struct ptx_launch *launch, struct error *err)
{
    if (ptx_check_width("short_conv", c->width, err) ||
        ptx_check_state("short_conv", &c->state, (uint64_t)(c->kernel - 1) * c->width, err))
        return -1;
    if (c->kernel < 2 || c->kernel > CONV_KERNEL_MAX || 4 * (c->state.at + (uint64_t)c->kernel * c->width) > INT32_MAX)
        return fail(err, E_GPU, "short_conv: %u rows of %u", c->kernel, c->width);
    conv_head(p, c);
    conv_place(p, c);
    for (uint32_t back = 1; back < c->kernel; back++)
        conv_load(p, c, back);
    conv_sum(p, c);
    conv_save(p, c);
    *launch = (struct ptx_launch){
        .entry = "short_conv", .grid = {1, ptx_tiles(c->width, SCAN_THREADS), 1}, .block = {SCAN_THREADS, 1, 1}};
    return ptx_finish(p, err);
}

// ---- selective scan

static uint32_t states_of(const struct ptx_scan *s)
{
    return ptx_tiles(s->n_state, LANES_A_COLUMN); // of a lane, the last of them perhaps beyond the column's
}

static uint32_t state_row_bytes(const struct ptx_scan *s)
{
    return 4 * LANES_A_COLUMN * states_of(s);
}

static uint32_t group_columns(const struct ptx_scan *s)
{
    return s->n_head / s->n_group * s->dim;
}

static void scan_head(struct ptx *p, const struct ptx_scan *s)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: a selective scan of $1 heads of $2 columns with $3 states\n"
             ".visible .entry selective_scan_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 from,\n"
             "    .param .u64 to,\n"
             "    .param .u64 x,\n"
             "    .param .u64 dt,\n"
             "    .param .u64 b,\n"
             "    .param .u64 c,\n"
             "    .param .u64 rate,\n",
             s->node, s->n_head, s->dim, s->n_state);
    if (s->skip)
        PTX_LINES(p, "    .param .u64 skip,\n");
    PTX_FILL(p,
             "    .param .u64 y)\n"
             ".maxntid 128, 1, 1\n"
             "{\n"
             PTX_ROW_REGS
             "    .reg .pred %none, %inside, %more, %stores, %tail, %goes, %within<2>;\n"
             "    .reg .u32 %thread, %head, %group, %block, %j, %g, %publish, %both, %mine, %i;\n"
             "    .reg .s32 %mark, %slot;\n"
             "    .reg .u64 %states, %pfrom, %pto, %px, %pd, %pb, %pc, %py, %at;\n"
             "    .reg .f32 %skip, %b<2>, %c<2>, %x, %d, %in, %t, %soft, %decay, %sum<2>, %other, %bn, %cn;\n"
             "    .reg .f32 %s<$0>, %r<$0>;\n"
             "    .shared .align 16 .b8 rows[$1];\n",
             states_of(s), 4 * state_row_bytes(s));
}

static void scan_place(struct ptx *p, const struct ptx_scan *s)
{
    PTX_FILL(p,
             PTX_ROW
             PTX_ADDRESS("%pfrom", "from")
             SCAN_PLACE("%group")
             "    mad.lo.u32 %j, %group, $4, %j;\n" // the column
             "    setp.eq.u32 %stores, %g, 0;\n"
             "    and.pred %stores, %stores, %inside;\n"
             "    @!%inside mov.u32 %j, 0;\n"
             "    div.u32 %head, %j, $5;\n"
             "    setp.lt.u32 %tail, %g, $6;\n"
             "    and.pred %tail, %tail, %inside;\n",
             0, ptx_count_at(ROWS_TOKENS), (uint32_t)PTX_STATE_GOES_ON, ptx_tiles(group_columns(s), SCAN_COLUMNS),
             group_columns(s), s->dim, s->n_state - LANES_A_COLUMN * (states_of(s) - 1));
}

static void scan_addresses(struct ptx *p, const struct ptx_scan *s)
{
    PTX_FILL(p,
             PTX_ADDRESS("%px", "x")
             "    mad.wide.u32 %px, %row, $0, %px;\n"
             "    mad.wide.u32 %px, %j, 4, %px;\n"
             PTX_ADDRESS("%py", "y")
             "    mad.wide.u32 %py, %row, $1, %py;\n"
             "    mad.wide.u32 %py, %j, 4, %py;\n"
             PTX_ADDRESS("%pd", "dt")
             "    mad.wide.u32 %pd, %row, $2, %pd;\n"
             "    mad.wide.u32 %pd, %head, 4, %pd;\n"
             "    mad.lo.u32 %i, %group, $3, %thread;\n"
             PTX_ADDRESS("%pb", "b")
             "    mad.wide.u32 %pb, %row, $4, %pb;\n"
             "    mad.wide.u32 %pb, %i, 4, %pb;\n"
             "    add.u64 %pb, %pb, $5;\n",
             4 * s->x_width, 4 * s->n_head * s->dim, 4 * s->n_head, s->n_state, 4 * s->b_width, 4 * s->b_at);
    PTX_FILL(p,
             PTX_ADDRESS("%pc", "c")
             "    mad.wide.u32 %pc, %row, $0, %pc;\n"
             "    mad.wide.u32 %pc, %i, 4, %pc;\n"
             "    add.u64 %pc, %pc, $1;\n"
             PTX_ADDRESS("%pto", "to")
             "    mad.wide.u32 %pto, %row, 4, %pto;\n"
             "    setp.lt.u32 %within0, %thread, $2;\n"
             "    add.u32 %i, %thread, 128;\n"
             "    setp.lt.u32 %within1, %i, $2;\n"
             "    mov.f32 %skip, 0f00000000;\n",
             4 * s->c_width, 4 * s->c_at, s->n_state);
    if (s->skip)
        PTX_LINES(p, PTX_ADDRESS("%at", "skip")
                  "    mad.wide.u32 %at, %head, 4, %at;\n"
                  "    ld.global.f32 %skip, [%at];\n");
}

// Loads the rates to %r0 .. : one for all states, or one for each state of the lane. They are multiplied by log2 e.
static void scan_rates(struct ptx *p, const struct ptx_scan *s)
{
    const uint32_t n = s->rates ? states_of(s) : 1;
    PTX_FILL(p,
             PTX_ADDRESS("%at", "rate")
             "    mul.lo.u32 %i, %head, $0;\n",
             s->rates ? s->n_state : 1);
    if (s->rates)
        PTX_LINES(p, "    add.u32 %i, %i, %g;\n");
    PTX_LINES(p, "    mad.wide.u32 %at, %i, 4, %at;\n");
    for (uint32_t m = 0; m < n; m++) {
        PTX_FILL(p, "    mov.f32 %r$0, 0f00000000;\n", m);
        if (s->rates && m + 1 == n)
            PTX_FILL(p, "    @%tail ld.global.f32 %r$0, [%at+$1];\n", m, 4 * LANES_A_COLUMN * m);
        else
            PTX_FILL(p, "    ld.global.f32 %r$0, [%at+$1];\n", m, 4 * LANES_A_COLUMN * m);
        PTX_FILL(p, "    mul.rn.f32 %r$0, %r$0, 0f$x1;\n", m, ptx_float_bits((float)LOG2_E));
    }
}

// Sets %at to the lane's first state of the column in the slot %slot.
static void scan_state_at(struct ptx *p, const struct ptx_scan *s)
{
    PTX_FILL(p,
             SLOT("%at", "%slot")
             "    mad.lo.u32 %i, %j, $1, %g;\n"
             "    mad.wide.u32 %at, %i, 4, %at;\n",
             s->state.slot, s->n_state);
}

static void scan_state_load(struct ptx *p, const struct ptx_scan *s)
{
    for (uint32_t m = 0; m < states_of(s); m++)
        PTX_FILL(p, "    mov.f32 %s$0, 0f00000000;\n", m);
    PTX_LINES(p, "    setp.lt.s32 %none, %mark, 0;\n"
                 "    @%none bra FRESH;\n"
                 "    mov.b32 %slot, %mark;\n");
    scan_state_at(p, s);
    for (uint32_t m = 0; m + 1 < states_of(s); m++)
        PTX_FILL(p, "    @%inside ld.global.f32 %s$0, [%at+$1];\n", m, 4 * (s->state.at + LANES_A_COLUMN * m));
    PTX_FILL(p,
             "    @%tail ld.global.f32 %s$0, [%at+$1];\n"
             "FRESH:\n",
             states_of(s) - 1, 4 * (s->state.at + LANES_A_COLUMN * (states_of(s) - 1)));
}

#define SCAN_LOAD                                                                                                      \
    "    @%within0 ld.global.f32 %b0, [%pb];\n"                                                                        \
    "    @%within0 ld.global.f32 %c0, [%pc];\n"                                                                        \
    "    @%within1 ld.global.f32 %b1, [%pb+512];\n"                                                                    \
    "    @%within1 ld.global.f32 %c1, [%pc+512];\n"                                                                    \
    "    ld.global.f32 %x, [%px];\n"                                                                                   \
    "    ld.global.f32 %d, [%pd];\n"

static void scan_publish(struct ptx *p, const struct ptx_scan *s)
{
    const uint32_t bytes = state_row_bytes(s), n = bytes / 4;
    PTX_FILL(p,
             "    mad.lo.u32 %i, %thread, 4, %publish;\n"
             "    setp.lt.u32 %more, %thread, $0;\n"
             "    @%more st.shared.f32 [%i], %b0;\n"
             "    @%more st.shared.f32 [%i+$1], %c0;\n"
             "    setp.lt.u32 %more, %thread, $2;\n"
             "    @%more st.shared.f32 [%i+512], %b1;\n"
             "    @%more st.shared.f32 [%i+$3], %c1;\n"
             "    mad.lo.u32 %mine, %g, 4, %publish;\n"
             "    bar.sync 0;\n",
             n, bytes, n > SCAN_THREADS ? n - SCAN_THREADS : 0, bytes + 512);
}

// %soft = log(1 + e^dt), %in = %soft * x, %sum0 = skip * x for the lane that stores.
static void scan_inputs(struct ptx *p, const struct ptx_scan *s)
{
    PTX_FILL(p,
             "    abs.f32 %t, %d;\n"
             "    mul.rn.f32 %t, %t, 0f$x0;\n"
             "    ex2.approx.ftz.f32 %t, %t;\n"
             "    add.rn.f32 %t, %t, 0f3F800000;\n"
             "    lg2.approx.ftz.f32 %t, %t;\n"
             "    mul.rn.f32 %t, %t, 0f$x1;\n"
             "    max.f32 %soft, %d, 0f00000000;\n"
             "    add.rn.f32 %soft, %soft, %t;\n"
             "    mul.rn.f32 %in, %soft, %x;\n"
             "    mul.rn.f32 %t, %skip, %x;\n"
             "    selp.f32 %sum0, %t, 0f00000000, %stores;\n"
             "    mov.f32 %sum1, 0f00000000;\n",
             ptx_float_bits((float)-LOG2_E), ptx_float_bits((float)M_LN2));
    if (!s->rates)
        PTX_LINES(p, "    mul.rn.f32 %decay, %soft, %r0;\n"
                     "    ex2.approx.ftz.f32 %decay, %decay;\n");
}

static void scan_next_row(struct ptx *p, const struct ptx_scan *s)
{
    PTX_FILL(p,
             "    add.u32 %row, %row, 1;\n"
             "    add.u64 %px, %px, $0;\n"
             "    add.u64 %pd, %pd, $1;\n"
             "    add.u64 %pb, %pb, $2;\n"
             "    add.u64 %pc, %pc, $3;\n"
             "    setp.lt.u32 %goes, %row, %n_rows;\n"
             "    @!%goes bra LAST;\n"
             "    add.u64 %pfrom, %pfrom, 4;\n"
             "    ld.global.s32 %mark, [%pfrom];\n"
             "    setp.eq.s32 %goes, %mark, $4;\n"
             "    @!%goes bra LAST;\n" SCAN_LOAD
             "LAST:\n",
             4 * s->x_width, 4 * s->n_head, 4 * s->b_width, 4 * s->c_width, (uint32_t)PTX_STATE_GOES_ON);
}

static void scan_change(struct ptx *p, const struct ptx_scan *s)
{
    for (uint32_t m = 0; m < states_of(s); m++) {
        if (s->rates)
            PTX_FILL(p,
                     "    mul.rn.f32 %decay, %soft, %r$0;\n"
                     "    ex2.approx.ftz.f32 %decay, %decay;\n",
                     m);
        PTX_FILL(p,
                 "    ld.shared.f32 %bn, [%mine+$0];\n"
                 "    ld.shared.f32 %cn, [%mine+$1];\n"
                 "    mul.rn.f32 %bn, %bn, %in;\n"
                 "    fma.rn.f32 %s$3, %s$3, %decay, %bn;\n"
                 "    fma.rn.f32 %sum$2, %s$3, %cn, %sum$2;\n",
                 4 * LANES_A_COLUMN * m, 4 * LANES_A_COLUMN * m + state_row_bytes(s), m % 2, m);
    }
    PTX_LINES(p, "    add.rn.f32 %sum0, %sum0, %sum1;\n" ADD_LANES("%sum0")
                 "    @%stores st.global.f32 [%py], %sum0;\n");
}

static void scan_state_save(struct ptx *p, const struct ptx_scan *s)
{
    PTX_LINES(p, "    ld.global.s32 %slot, [%pto];\n"
                 "    setp.lt.s32 %none, %slot, 0;\n"
                 "    @%none bra SAVED;\n");
    scan_state_at(p, s);
    for (uint32_t m = 0; m + 1 < states_of(s); m++)
        PTX_FILL(p, "    @%inside st.global.f32 [%at+$1], %s$0;\n", m, 4 * (s->state.at + LANES_A_COLUMN * m));
    PTX_FILL(p,
             "    @%tail st.global.f32 [%at+$1], %s$0;\n"
             "SAVED:\n",
             states_of(s) - 1, 4 * (s->state.at + LANES_A_COLUMN * (states_of(s) - 1)));
}

static int check_scan(const struct ptx_scan *s, struct error *err)
{
    if (!s->n_group || !s->n_head || s->n_head % s->n_group || !s->dim || !s->n_state || s->n_state > SCAN_STATE_MAX ||
        (s->rates && s->dim != 1) || (uint64_t)s->n_group * ptx_tiles(group_columns(s), SCAN_COLUMNS) > UINT16_MAX)
        return fail(err, E_GPU, "selective_scan: %u heads of %u columns with %u states, in %u groups", s->n_head,
                    s->dim, s->n_state, s->n_group);
    if (4 * (uint64_t)s->state.at > INT32_MAX - 4 * SCAN_STATE_MAX)
        return fail(err, E_GPU, "selective_scan: its state lies at %u of a slot", s->state.at);
    const uint64_t floats = (uint64_t)s->n_head * s->dim * s->n_state;
    return ptx_check_width("selective_scan", s->x_width, err) || ptx_check_width("selective_scan", s->b_width, err) ||
                   ptx_check_width("selective_scan", s->c_width, err) ||
                   ptx_check_state("selective_scan", &s->state, floats, err)
               ? -1
               : 0;
}

int ptx_emit_scan(struct ptx *p, const struct ptx_scan *s, struct ptx_launch *launch, struct error *err)
{
    if (check_scan(s, err))
        return -1;
    scan_head(p, s);
    scan_place(p, s);
    scan_addresses(p, s);
    scan_rates(p, s);
    scan_state_load(p, s);
    PTX_FILL(p,
             "    mov.f32 %b0, 0f00000000;\n"
             "    mov.f32 %c0, 0f00000000;\n"
             "    mov.f32 %b1, 0f00000000;\n"
             "    mov.f32 %c1, 0f00000000;\n" SCAN_LOAD
             "    mov.u32 %publish, rows;\n"
             "    add.u32 %both, %publish, %publish;\n"
             "    add.u32 %both, %both, $0;\n"
             "ROW:\n",
             2 * state_row_bytes(s));
    scan_publish(p, s);
    scan_inputs(p, s);
    scan_next_row(p, s);
    scan_change(p, s);
    scan_state_save(p, s);
    PTX_FILL(p,
             "    add.u64 %py, %py, $0;\n"
             "    add.u64 %pto, %pto, 4;\n"
             "    sub.u32 %publish, %both, %publish;\n"
             "    @%goes bra ROW;\n"
             "    ret;\n"
             "}\n",
             4 * s->n_head * s->dim);
    *launch = (struct ptx_launch){.entry = "selective_scan",
                                  .grid = {1, s->n_group * ptx_tiles(group_columns(s), SCAN_COLUMNS), 1},
                                  .block = {SCAN_THREADS, 1, 1}};
    return ptx_finish(p, err);
}
