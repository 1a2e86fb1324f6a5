// Emits the kernel of the delta rule.
//
// delta_rule, the naive loop that it equals: see ref_ops.c. Rows of a sequence depend on each other, so a CTA takes a
// block of 32 columns of a head's state through all rows of a sequence in the step: grid (rows, heads * blocks, 1), of
// which only the CTA of a sequence's first row has work. Four neighbouring lanes share a column: lane g of them keeps the
// elements i = g, g + 4, .. of the column in registers, so that the state is read and written in memory once a step. Keys
// and queries of a row are published in shared memory, in two buffers that take turns, so that a row costs one barrier;
// those of the next row are loaded while this one is computed. A row costs about 3 * dim_k / 4 fused multiply-adds a
// thread and ten shuffles; the rows of a sequence follow each other, so this latency is the time of a long prompt.
#include "kernels/ptx/emit_scan.h"

#include <math.h>

// Elements of a column that a lane keeps, the last of them perhaps beyond the column.
static uint32_t elements_of(const struct ptx_delta *d)
{
    return ptx_tiles(d->dim_k, LANES_A_COLUMN);
}

// Bytes of a key in shared memory, with zeros up to a multiple of LANES_A_COLUMN elements.
static uint32_t key_bytes(const struct ptx_delta *d)
{
    return 4 * LANES_A_COLUMN * elements_of(d);
}

static uint32_t row_width(const struct ptx_delta *d)
{
    return 2 * d->n_head_k * d->dim_k + d->n_head * d->dim_v;
}

// Bytes of what a row publishes: its key, its query and, where each channel has a decay of its own, these.
static uint32_t published_bytes(const struct ptx_delta *d)
{
    return (d->by_channel ? 3 : 2) * key_bytes(d);
}

// Columns of the value from which decays are made.
static uint32_t decay_width(const struct ptx_delta *d)
{
    return d->by_channel ? d->n_head * d->dim_k : d->n_head;
}

static void delta_head(struct ptx *p, const struct ptx_delta *d)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: a delta rule of $1 heads of $2 by $3\n"
             ".visible .entry delta_rule_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 from,\n"
             "    .param .u64 to,\n"
             "    .param .u64 qkv,\n"
             "    .param .u64 alpha,\n"
             "    .param .u64 beta,\n"
             "    .param .u64 rate,\n",
             d->node, d->n_head, d->dim_k, d->dim_v);
    if (!d->by_channel)
        PTX_LINES(p, "    .param .u64 bias,\n");
    PTX_LINES(p, "    .param .u64 y)\n"
                 ".maxntid 128, 1, 1\n"
                 "{\n"
                 PTX_ROW_REGS
                 "    .reg .pred %none, %inside, %more, %stores, %tail, %within<2>;\n"
                 "    .reg .u32 %thread, %head, %block, %key_head, %j, %g, %publish, %both, %mine, %i;\n"
                 "    .reg .s32 %mark, %slot;\n"
                 "    .reg .u64 %states, %pfrom, %pto, %px, %pk, %pv, %pa, %pb, %py, %at;\n"
                 "    .reg .f32 %rate, %bias, %k<2>, %q<2>, %v, %alpha, %beta, %soft, %decay, %t;\n");
    PTX_FILL(p,
             "    .reg .f32 %sk<2>, %sq<2>, %kk, %qq, %of_k, %of_q, %other, %change, %key, %query, %s<$0>;\n"
             "    .shared .align 16 .b8 rows[$1];\n",
             elements_of(d), 2 * published_bytes(d));
    if (d->by_channel)
        PTX_LINES(p, "    .reg .f32 %d<2>;\n");
}

// Sets the column, the lane's share of it, and the addresses of what the first row reads.
static void delta_place(struct ptx *p, const struct ptx_delta *d)
{
    PTX_FILL(p,
             PTX_ROW
             PTX_ADDRESS("%pfrom", "from")
             SCAN_PLACE("%head")
             "    setp.eq.u32 %stores, %g, 0;\n"
             "    and.pred %stores, %stores, %inside;\n",
             0, ptx_count_at(ROWS_TOKENS), (uint32_t)PTX_STATE_GOES_ON, ptx_tiles(d->dim_v, SCAN_COLUMNS), d->dim_v);
    if (d->grouped)
        PTX_FILL(p, "    div.u32 %key_head, %head, $0;\n", d->n_head / d->n_head_k);
    else
        PTX_FILL(p, "    rem.u32 %key_head, %head, $0;\n", d->n_head_k);
}

static void delta_addresses(struct ptx *p, const struct ptx_delta *d)
{
    const uint32_t keys = d->n_head_k * d->dim_k;
    PTX_FILL(p,
             PTX_ADDRESS("%px", "qkv")
             "    mad.wide.u32 %px, %row, $0, %px;\n"
             "    mul.lo.u32 %i, %head, $1;\n" // the value's column
             "    add.u32 %i, %i, %j;\n"
             "    mad.wide.u32 %pv, %i, 4, %px;\n"
             "    add.u64 %pv, %pv, $2;\n"
             PTX_ADDRESS("%py", "y")
             "    mad.wide.u32 %py, %row, $3, %py;\n"
             "    mad.wide.u32 %py, %i, 4, %py;\n"
             "    mad.lo.u32 %i, %key_head, $4, %thread;\n"
             "    mad.wide.u32 %px, %i, 4, %px;\n"
             "    add.u64 %pk, %px, $5;\n",
             4 * row_width(d), d->dim_v, 8 * keys, 4 * d->n_head * d->dim_v, d->dim_k, 4 * keys);
    PTX_FILL(p,
             PTX_ADDRESS("%pa", "alpha")
             "    mad.wide.u32 %pa, %row, $2, %pa;\n"
             PTX_ADDRESS("%pb", "beta")
             "    mad.wide.u32 %pb, %row, $0, %pb;\n"
             "    mad.wide.u32 %pb, %head, 4, %pb;\n"
             PTX_ADDRESS("%pto", "to")
             "    mad.wide.u32 %pto, %row, 4, %pto;\n"
             PTX_ADDRESS("%at", "rate")
             "    mad.wide.u32 %at, %head, 4, %at;\n"
             "    ld.global.f32 %rate, [%at];\n"
             "    setp.lt.u32 %within0, %thread, $1;\n"
             "    add.u32 %i, %thread, 128;\n"
             "    setp.lt.u32 %within1, %i, $1;\n",
             4 * d->n_head, d->dim_k, 4 * decay_width(d));
    if (d->by_channel)
        PTX_FILL(p,
                 "    mad.lo.u32 %i, %head, $0, %thread;\n"
                 "    mad.wide.u32 %pa, %i, 4, %pa;\n",
                 d->dim_k);
    else
        PTX_LINES(p, "    mad.wide.u32 %pa, %head, 4, %pa;\n"
                     PTX_ADDRESS("%at", "bias")
                     "    mad.wide.u32 %at, %head, 4, %at;\n"
                     "    ld.global.f32 %bias, [%at];\n");
}

// Sets %at to the lane's first element of the column in the slot %slot, and %tail to whether its last one is in the
// column.
static void state_at(struct ptx *p, const struct ptx_delta *d)
{
    PTX_FILL(p,
             SLOT("%at", "%slot")
             "    mad.lo.u32 %i, %head, $1, %g;\n"
             "    mad.lo.u32 %i, %i, $2, %j;\n"
             "    mad.wide.u32 %at, %i, 4, %at;\n"
             "    setp.lt.u32 %tail, %g, $3;\n"
             "    and.pred %tail, %tail, %inside;\n",
             d->state.slot, d->dim_k, d->dim_v, d->dim_k - LANES_A_COLUMN * (elements_of(d) - 1));
}

static void state_load(struct ptx *p, const struct ptx_delta *d)
{
    for (uint32_t m = 0; m < elements_of(d); m++)
        PTX_FILL(p, "    mov.f32 %s$0, 0f00000000;\n", m);
    PTX_LINES(p, "    setp.lt.s32 %none, %mark, 0;\n"
                 "    @%none bra FRESH;\n"
                 "    mov.b32 %slot, %mark;\n");
    state_at(p, d);
    for (uint32_t m = 0; m + 1 < elements_of(d); m++)
        PTX_FILL(p, "    @%inside ld.global.f32 %s$0, [%at+$1];\n", m,
                 4 * (d->state.at + m * LANES_A_COLUMN * d->dim_v));
    PTX_FILL(p, "    @%tail ld.global.f32 %s$0, [%at+$1];\n", elements_of(d) - 1,
             4 * (d->state.at + (elements_of(d) - 1) * LANES_A_COLUMN * d->dim_v));
    PTX_LINES(p, "FRESH:\n");
}

static void no_values(struct ptx *p, const struct ptx_delta *d)
{
    PTX_LINES(p, "    mov.f32 %k0, 0f00000000;\n"
                 "    mov.f32 %q0, 0f00000000;\n"
                 "    mov.f32 %k1, 0f00000000;\n"
                 "    mov.f32 %q1, 0f00000000;\n"
                 "    mov.f32 %v, 0f00000000;\n");
    if (d->by_channel)
        PTX_LINES(p, "    mov.f32 %d0, 0f00000000;\n"
                     "    mov.f32 %d1, 0f00000000;\n");
}

// Loads what a row needs from memory: %k and %q, of which each thread publishes one or two elements, %v, %beta, and %alpha
// or the steps %d of as many channels. They are 0 beyond the head.
static void load_values(struct ptx *p, const struct ptx_delta *d)
{
    PTX_LINES(p, "    @%within0 ld.global.f32 %q0, [%px];\n"
                 "    @%within0 ld.global.f32 %k0, [%pk];\n"
                 "    @%within1 ld.global.f32 %q1, [%px+512];\n"
                 "    @%within1 ld.global.f32 %k1, [%pk+512];\n"
                 "    @%inside ld.global.f32 %v, [%pv];\n");
    if (d->by_channel)
        PTX_LINES(p, "    @%within0 ld.global.f32 %d0, [%pa];\n"
                     "    @%within1 ld.global.f32 %d1, [%pa+512];\n");
    else
        PTX_LINES(p, "    ld.global.f32 %alpha, [%pa];\n");
    PTX_LINES(p, "    ld.global.f32 %beta, [%pb];\n");
}

// %d<i> = e^(rate * %d<i>) of the thread's channels, stored behind the key and the query; 1 beyond the head.
static void publish_decays(struct ptx *p, const struct ptx_delta *d)
{
    for (uint32_t i = 0; i < 2; i++)
        PTX_FILL(p,
                 "    mul.rn.f32 %d$0, %d$0, %rate;\n"
                 "    mul.rn.f32 %d$0, %d$0, 0f$x1;\n"
                 "    ex2.approx.ftz.f32 %d$0, %d$0;\n"
                 "    setp.lt.u32 %more, %thread, $2;\n"
                 "    @%more st.shared.f32 [%i+$3], %d$0;\n"
                 "    mov.f32 %d$0, 0f00000000;\n",
                 i, ptx_float_bits((float)LOG2_E),
                 i == 0                           ? key_bytes(d) / 4
                 : key_bytes(d) / 4 > SCAN_THREADS ? key_bytes(d) / 4 - SCAN_THREADS
                                                   : 0,
                 2 * key_bytes(d) + 512 * i);
}

// Stores the thread's elements of the key and the query in the buffer at %publish, and sets %mine to the lane's elements
// there. The buffers take turns. Threads beyond the padded key have nothing to store.
static void publish(struct ptx *p, const struct ptx_delta *d)
{
    PTX_FILL(p,
             "    mad.lo.u32 %i, %thread, 4, %publish;\n"
             "    setp.lt.u32 %more, %thread, $0;\n"
             "    @%more st.shared.f32 [%i], %k0;\n"
             "    @%more st.shared.f32 [%i+$1], %q0;\n"
             "    setp.lt.u32 %more, %thread, $2;\n"
             "    @%more st.shared.f32 [%i+512], %k1;\n"
             "    @%more st.shared.f32 [%i+$3], %q1;\n",
             key_bytes(d) / 4, key_bytes(d), key_bytes(d) / 4 > SCAN_THREADS ? key_bytes(d) / 4 - SCAN_THREADS : 0,
             key_bytes(d) + 512);
    if (d->by_channel)
        publish_decays(p, d);
    PTX_LINES(p, "    mad.lo.u32 %mine, %g, 4, %publish;\n"
                 "    bar.sync 0;\n");
}

// %decay = e^(rate * log(1 + e^(alpha + bias))), unless channels have their own; %beta = 1 / (1 + e^-beta).
static void gates(struct ptx *p, const struct ptx_delta *d)
{
    if (!d->by_channel)
        PTX_FILL(p,
                 "    add.rn.f32 %alpha, %alpha, %bias;\n"
                 "    abs.f32 %t, %alpha;\n"
                 "    mul.rn.f32 %t, %t, 0f$x0;\n"
                 "    ex2.approx.ftz.f32 %t, %t;\n"
                 "    add.rn.f32 %t, %t, 0f3F800000;\n"
                 "    lg2.approx.ftz.f32 %t, %t;\n"
                 "    mul.rn.f32 %t, %t, 0f$x1;\n"
                 "    max.f32 %soft, %alpha, 0f00000000;\n"
                 "    add.rn.f32 %soft, %soft, %t;\n"
                 "    mul.rn.f32 %decay, %rate, %soft;\n"
                 "    mul.rn.f32 %decay, %decay, 0f$x2;\n"
                 "    ex2.approx.ftz.f32 %decay, %decay;\n",
                 ptx_float_bits((float)-LOG2_E), ptx_float_bits((float)M_LN2), ptx_float_bits((float)LOG2_E));
    PTX_FILL(p,
             "    mul.rn.f32 %t, %beta, 0f$x0;\n"
             "    ex2.approx.ftz.f32 %t, %t;\n"
             "    add.rn.f32 %t, %t, 0f3F800000;\n"
             "    rcp.rn.f32 %beta, %t;\n",
             ptx_float_bits((float)-LOG2_E));
}

// The sums of S k, k k and q q over the column, and from them %change, the factor of the key in the new state.
static void look_up(struct ptx *p, const struct ptx_delta *d)
{
    PTX_LINES(p, "    mov.f32 %sk0, 0f00000000;\n"
                 "    mov.f32 %sk1, 0f00000000;\n"
                 "    mov.f32 %kk, 0f00000000;\n"
                 "    mov.f32 %qq, 0f00000000;\n");
    for (uint32_t m = 0; m < elements_of(d); m++) {
        PTX_FILL(p,
                 "    ld.shared.f32 %key, [%mine+$0];\n"
                 "    ld.shared.f32 %query, [%mine+$1];\n"
                 "    fma.rn.f32 %kk, %key, %key, %kk;\n"
                 "    fma.rn.f32 %qq, %query, %query, %qq;\n",
                 4 * LANES_A_COLUMN * m, 4 * LANES_A_COLUMN * m + key_bytes(d));
        if (d->by_channel)
            PTX_FILL(p,
                     "    ld.shared.f32 %decay, [%mine+$0];\n"
                     "    mul.rn.f32 %key, %key, %decay;\n",
                     4 * LANES_A_COLUMN * m + 2 * key_bytes(d));
        PTX_FILL(p, "    fma.rn.f32 %sk$0, %s$1, %key, %sk$0;\n", m % 2, m);
    }
    PTX_FILL(p,
             "    add.rn.f32 %sk0, %sk0, %sk1;\n"
             ADD_LANES("%sk0") ADD_LANES("%kk") ADD_LANES("%qq")
             "    sqrt.rn.f32 %of_k, %kk;\n"
             "    max.f32 %of_k, %of_k, 0f$x0;\n"
             "    rcp.rn.f32 %of_k, %of_k;\n"
             "    sqrt.rn.f32 %of_q, %qq;\n"
             "    max.f32 %of_q, %of_q, 0f$x0;\n"
             "    rcp.rn.f32 %of_q, %of_q;\n"
             "    mul.rn.f32 %of_q, %of_q, 0f$x1;\n",
             ptx_float_bits(d->eps), ptx_float_bits((float)(1 / sqrt(d->dim_k))));
    if (d->by_channel)
        PTX_LINES(p, "    mul.rn.f32 %sk0, %sk0, %of_k;\n");
    else
        PTX_LINES(p, "    mul.rn.f32 %t, %of_k, %decay;\n"
                     "    mul.rn.f32 %sk0, %sk0, %t;\n");
    PTX_LINES(p, "    sub.rn.f32 %change, %old, %sk0;\n"
                 "    mul.rn.f32 %t, %gate, %of_k;\n"
                 "    mul.rn.f32 %change, %change, %t;\n");
}

// S = decay S + k change^T, and the product of the new column with the query.
static void change_state(struct ptx *p, const struct ptx_delta *d)
{
    PTX_LINES(p, "    mov.f32 %sq0, 0f00000000;\n"
                 "    mov.f32 %sq1, 0f00000000;\n");
    for (uint32_t m = 0; m < elements_of(d); m++) {
        PTX_FILL(p,
                 "    ld.shared.f32 %key, [%mine+$0];\n"
                 "    ld.shared.f32 %query, [%mine+$1];\n",
                 4 * LANES_A_COLUMN * m, 4 * LANES_A_COLUMN * m + key_bytes(d));
        if (d->by_channel)
            PTX_FILL(p, "    ld.shared.f32 %decay, [%mine+$0];\n", 4 * LANES_A_COLUMN * m + 2 * key_bytes(d));
        PTX_FILL(p,
                 "    mul.rn.f32 %s$1, %s$1, %decay;\n"
                 "    fma.rn.f32 %s$1, %key, %change, %s$1;\n"
                 "    fma.rn.f32 %sq$0, %s$1, %query, %sq$0;\n",
                 m % 2, m);
    }
    PTX_LINES(p, "    add.rn.f32 %sq0, %sq0, %sq1;\n" ADD_LANES("%sq0")
                 "    mul.rn.f32 %sq0, %sq0, %of_q;\n"
                 "    @%stores st.global.f32 [%py], %sq0;\n");
}

static void state_save(struct ptx *p, const struct ptx_delta *d)
{
    PTX_LINES(p, "    ld.global.s32 %slot, [%pto];\n"
                 "    setp.lt.s32 %none, %slot, 0;\n"
                 "    @%none bra SAVED;\n");
    state_at(p, d);
    for (uint32_t m = 0; m + 1 < elements_of(d); m++)
        PTX_FILL(p, "    @%inside st.global.f32 [%at+$1], %s$0;\n", m,
                 4 * (d->state.at + m * LANES_A_COLUMN * d->dim_v));
    PTX_FILL(p,
             "    @%tail st.global.f32 [%at+$1], %s$0;\n"
             "SAVED:\n",
             elements_of(d) - 1, 4 * (d->state.at + (elements_of(d) - 1) * LANES_A_COLUMN * d->dim_v));
}

// Goes to the next row; %goes says whether it belongs to the sequence, and then its values are loaded.
static void next_row(struct ptx *p, const struct ptx_delta *d)
{
    PTX_FILL(p,
             "    add.u32 %row, %row, 1;\n"
             "    add.u64 %px, %px, $0;\n"
             "    add.u64 %pk, %pk, $0;\n"
             "    add.u64 %pv, %pv, $0;\n"
             "    add.u64 %pa, %pa, $3;\n"
             "    add.u64 %pb, %pb, $1;\n"
             "    mov.f32 %old, %v;\n"
             "    mov.f32 %gate, %beta;\n"
             "    setp.lt.u32 %goes, %row, %n_rows;\n"
             "    @!%goes bra LAST;\n"
             "    add.u64 %pfrom, %pfrom, 4;\n"
             "    ld.global.s32 %mark, [%pfrom];\n"
             "    setp.eq.s32 %goes, %mark, $2;\n"
             "    @!%goes bra LAST;\n",
             4 * row_width(d), 4 * d->n_head, (uint32_t)PTX_STATE_GOES_ON, 4 * decay_width(d));
    load_values(p, d);
    PTX_LINES(p, "LAST:\n");
}

static int check_delta(const struct ptx_delta *d, struct error *err)
{
    const uint64_t floats = (uint64_t)d->n_head * d->dim_k * d->dim_v;
    if (!d->n_head_k || d->n_head % d->n_head_k || !d->dim_k || !d->dim_v || d->dim_k > DELTA_DIM_MAX ||
        d->dim_v > DELTA_DIM_MAX || d->n_head > UINT16_MAX / ptx_tiles(d->dim_v, SCAN_COLUMNS))
        return fail(err, E_GPU, "delta_rule: %u heads of %u by %u, of %u keys", d->n_head, d->dim_k, d->dim_v,
                    d->n_head_k);
    if (4 * ((uint64_t)d->state.at + (uint64_t)d->dim_k * d->dim_v) > INT32_MAX)
        return fail(err, E_GPU, "delta_rule: its state lies at %u of a slot", d->state.at);
    return ptx_check_width("delta_rule", row_width(d), err) || ptx_check_state("delta_rule", &d->state, floats, err)
               ? -1
               : 0;
}

int ptx_emit_delta(struct ptx *p, const struct ptx_delta *d, struct ptx_launch *launch, struct error *err)
{
    if (check_delta(d, err))
        return -1;
    delta_head(p, d);
    PTX_LINES(p, "    .reg .pred %goes;\n"
                 "    .reg .f32 %old, %gate;\n");
    delta_place(p, d);
    delta_addresses(p, d);
    state_load(p, d);
    // The addresses of the two buffers have the sum %both, so that each is %both minus the other.
    no_values(p, d);
    load_values(p, d);
    PTX_FILL(p,
             "    mov.u32 %publish, rows;\n"
             "    add.u32 %both, %publish, %publish;\n"
             "    add.u32 %both, %both, $0;\n"
             "ROW:\n",
             published_bytes(d));
    publish(p, d);
    gates(p, d);
    next_row(p, d);
    look_up(p, d);
    change_state(p, d);
    state_save(p, d);
    PTX_FILL(p,
             "    add.u64 %py, %py, $0;\n"
             "    add.u64 %pto, %pto, 4;\n"
             "    sub.u32 %publish, %both, %publish;\n"
             "    @%goes bra ROW;\n"
             "    ret;\n"
             "}\n",
             4 * d->n_head * d->dim_v);
    *launch = (struct ptx_launch){.entry = "delta_rule",
                                  .grid = {1, d->n_head * ptx_tiles(d->dim_v, SCAN_COLUMNS), 1},
                                  .block = {SCAN_THREADS, 1, 1}};
    return ptx_finish(p, err);
}
