// Emits the two kernels of rotary positions.
//
// rope_table_NODE computes the cosines and sines of a step, once for all nodes that share the table. It equals this
// loop, in double:
//     for each row t, for each pair i:
//         angle = positions[t] * frequencies[i]
//         y[t][i] = cos(angle) * mscale
//         y[t][pairs + i] = sin(angle) * mscale
// Grid: rows by ptx_tiles(pairs, 64). A CTA has 64 threads, and a thread has one pair. A pair costs about 25
// instructions in double, which are slow on consumer GPUs, but the table is small: 8 bytes for each pair of a row.
// Floats would not do, because an angle can be many turns and its error in float grows with the position.
//
// rope_NODE rotates the pairs of each head by these angles. It equals this loop:
//     for each row t, for each head x[0 .. head_dim-1] of the row:
//         for each pair i, with c = table[t][i] and s = table[t][pairs + i]:
//             (a, b) = (2i, 2i + 1) with ROPE_NORM, (i, i + pairs) with ROPE_NEOX
//             y[a] = x[a] * c - x[b] * s
//             y[b] = x[a] * s + x[b] * c
//         for each i from 2 * pairs on: y[i] = x[i]
// A head has head_dim - pairs items: its pairs, then its other elements. Grid: rows by ptx_tiles(items of a row,
// 128). A CTA has 128 threads, and a thread has one item. The cost is one read and one write of each element; the
// table's row is read by all heads and comes from cache.
//
// Neither kernel uses shared memory. The table's kernel is chosen for every table of the graph. rope_NODE is chosen
// for every rotation of the graph, except those that are part of fused kernels in steps of one row (gpu_fuse.c).
#include "kernels/ptx/emit_ops.h"

#include <math.h>

enum { TABLE_THREADS = 64, ROPE_THREADS = 128 };

// Pi / 2 is the sum of these two doubles to within 1e-32: the nearest double, and the rest.
#define HALF_PI 1.5707963267948966
#define HALF_PI_REST 6.123233995736766e-17

static void table_head(struct ptx *p, const struct ptx_rope_table *r)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: cosines and sines of the angles of $1 pairs, in double\n"
             ".visible .entry rope_table_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 positions,\n"
             "    .param .u64 frequencies,\n"
             "    .param .u64 y)\n"
             ".maxntid 64, 1, 1\n"
             "{\n"
             PTX_ROW_REGS
             "    .reg .pred %outside, %odd, %minus;\n"
             "    .reg .u32 %pair, %chunk, %position, %quarter;\n"
             "    .reg .u64 %from;\n"
             "    .reg .s64 %n;\n"
             "    .reg .f64 %angle, %f, %turns, %square, %sine, %cosine, %swap;\n"
             "    .reg .f32 %out;\n",
             r->node, r->pairs);
    PTX_FILL(p,
             PTX_ROW
             "    mov.u32 %chunk, %ctaid.y;\n"
             "    mov.u32 %pair, %tid.x;\n"
             "    mad.lo.u32 %pair, %chunk, 64, %pair;\n"
             "    setp.ge.u32 %outside, %pair, $0;\n"
             "    @%outside ret;\n"
             PTX_ADDRESS("%from", "positions")
             "    mad.wide.u32 %from, %row, 4, %from;\n"
             "    ld.global.u32 %position, [%from];\n"
             "    cvt.rn.f64.u32 %angle, %position;\n"
             PTX_ADDRESS("%from", "frequencies")
             "    mad.wide.u32 %from, %pair, 8, %from;\n"
             "    ld.global.f64 %f, [%from];\n"
             "    mul.rn.f64 %angle, %angle, %f;\n",
             r->pairs, ptx_count_at(ROWS_TOKENS));
}

// Emits the sum c[0] + c[1] * %square + c[2] * %square^2 + .., from the last coefficient down.
//   p     struct ptx *
//   reg   string literal: a double register, which receives the sum
//   c     array of double: the coefficients
#define SERIES(p, reg, c)                                                                                              \
    do {                                                                                                               \
        int last = (int)COUNT_OF(c) - 1;                                                                               \
        PTX_FILL(p, "    mov.f64 " reg ", 0d$x0$x1;\n", ptx_double_high((c)[last]), ptx_double_low((c)[last]));        \
        while (last-- > 0)                                                                                             \
            PTX_FILL(p, "    fma.rn.f64 " reg ", " reg ", %square, 0d$x0$x1;\n", ptx_double_high((c)[last]),           \
                     ptx_double_low((c)[last]));                                           \
    } while (0)

// Sets %sine and %cosine of %angle. Whole quarters of a turn, %n of them, are subtracted from the angle first. At
// most pi / 4 remains, for which power series are used; the first omitted term is below 1e-16. Then %n % 4 selects
// which of the two is the sine and the signs.
static void table_angles(struct ptx *p)
{
    static const double sine[] = {
        1, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
    static const double cosine[] = {1,
                                    -1.0 / 2,
                                    1.0 / 24,
                                    -1.0 / 720,
                                    1.0 / 40320,
                                    -1.0 / 3628800,
                                    1.0 / 479001600.0,
                                    -1.0 / 87178291200.0,
                                    1.0 / 20922789888000.0};
    PTX_FILL(p,
             "    mul.rn.f64 %turns, %angle, 0d$x0$x1;\n"
             "    cvt.rni.s64.f64 %n, %turns;\n"
             "    cvt.rn.f64.s64 %turns, %n;\n"
             "    fma.rn.f64 %angle, %turns, 0d$x2$x3, %angle;\n"
             "    fma.rn.f64 %angle, %turns, 0d$x4$x5, %angle;\n"
             "    mul.rn.f64 %square, %angle, %angle;\n",
             ptx_double_high(1 / HALF_PI), ptx_double_low(1 / HALF_PI), ptx_double_high(-HALF_PI),
             ptx_double_low(-HALF_PI), ptx_double_high(-HALF_PI_REST), ptx_double_low(-HALF_PI_REST));
    SERIES(p, "%sine", sine);
    PTX_LINES(p, "    mul.rn.f64 %sine, %sine, %angle;\n");
    SERIES(p, "%cosine", cosine);
    PTX_LINES(p, "    // the quarter: odd ones change places, and two of four have a minus each\n"
                 "    cvt.u32.s64 %quarter, %n;\n"
                 "    and.b32 %chunk, %quarter, 1;\n"
                 "    setp.ne.u32 %odd, %chunk, 0;\n"
                 "    mov.f64 %swap, %sine;\n"
                 "    selp.f64 %sine, %cosine, %sine, %odd;\n"
                 "    selp.f64 %cosine, %swap, %cosine, %odd;\n"
                 "    and.b32 %chunk, %quarter, 2;\n"
                 "    setp.ne.u32 %minus, %chunk, 0;\n"
                 "    @%minus neg.f64 %sine, %sine;\n"
                 "    add.u32 %quarter, %quarter, 1;\n"
                 "    and.b32 %chunk, %quarter, 2;\n"
                 "    setp.ne.u32 %minus, %chunk, 0;\n"
                 "    @%minus neg.f64 %cosine, %cosine;\n");
}

// Multiplies %sine and %cosine by 1 + growth ln(1 + (position + offset) / period), with the logarithm in float.
static void grow(struct ptx *p, const struct ptx_rope_table *r)
{
    PTX_FILL(p,
             "    add.u32 %quarter, %position, $0;\n"
             "    div.u32 %quarter, %quarter, $1;\n"
             "    add.u32 %quarter, %quarter, 1;\n"
             "    cvt.rn.f32.u32 %out, %quarter;\n"
             "    lg2.approx.f32 %out, %out;\n"
             "    cvt.f64.f32 %f, %out;\n"
             "    fma.rn.f64 %f, %f, 0d$x2$x3, 0d3FF0000000000000;\n"
             "    mul.rn.f64 %cosine, %cosine, %f;\n"
             "    mul.rn.f64 %sine, %sine, %f;\n",
             r->offset, r->period, ptx_double_high((double)r->growth * M_LN2),
             ptx_double_low((double)r->growth * M_LN2));
}

int ptx_emit_rope_table(struct ptx *p, const struct ptx_rope_table *r, struct ptx_launch *launch, struct error *err)
{
    if (ptx_check_width("rope table", r->pairs, err))
        return -1;
    if (!isfinite(r->mscale))
        return fail(err, E_GPU, "rope table: a scale of %g", (double)r->mscale);
    if (r->growth != 0 && (!isfinite(r->growth) || !r->period))
        return fail(err, E_GPU, "rope table: a growth of %g in %u positions", (double)r->growth, r->period);
    table_head(p, r);
    table_angles(p);
    if (r->growth != 0)
        grow(p, r);
    PTX_FILL(p,
             "    mul.rn.f64 %cosine, %cosine, 0d$x0$x1;\n"
             "    mul.rn.f64 %sine, %sine, 0d$x0$x1;\n"
             PTX_ADDRESS("%from", "y")
             "    mad.wide.u32 %from, %row, $2, %from;\n"
             "    mad.wide.u32 %from, %pair, 4, %from;\n"
             "    cvt.rn.f32.f64 %out, %cosine;\n"
             "    st.global.f32 [%from], %out;\n"
             "    cvt.rn.f32.f64 %out, %sine;\n"
             "    st.global.f32 [%from+$3], %out;\n"
             "    ret;\n"
             "}\n",
             ptx_double_high((double)r->mscale), ptx_double_low((double)r->mscale), 8 * r->pairs, 4 * r->pairs);
    *launch = (struct ptx_launch){
        .entry = "rope_table", .grid = {1, ptx_tiles(r->pairs, TABLE_THREADS), 1}, .block = {TABLE_THREADS, 1, 1}};
    return ptx_finish(p, err);
}

// Emits the beginning of rope_NODE. Sets %in to the thread's item within its head, %a to the first element of its
// pair, and %px and %py to the addresses of that element in x and y. A thread whose item is no pair copies its
// element and returns. items: items of a head.
static void rope_head(struct ptx *p, const struct ptx_rope *r, uint32_t items)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: the first $1 pairs of heads of $2 turn, in rows of $3\n"
             ".visible .entry rope_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 x,\n"
             "    .param .u64 table,\n"
             "    .param .u64 y)\n"
             ".maxntid 128, 1, 1\n"
             "{\n"
             PTX_ROW_REGS
             "    .reg .pred %outside, %turns;\n"
             "    .reg .u32 %item, %chunk, %head, %in, %column;\n"
             "    .reg .u64 %at, %px, %py, %table;\n"
             "    .reg .f32 %a, %b, %c, %s, %u, %v;\n",
             r->node, r->pairs, r->head_dim, r->width);
    PTX_FILL(p,
             PTX_ROW
             "    mov.u32 %chunk, %ctaid.y;\n"
             "    mov.u32 %item, %tid.x;\n"
             "    mad.lo.u32 %item, %chunk, 128, %item;\n"
             "    setp.ge.u32 %outside, %item, $0;\n"
             "    @%outside ret;\n"
             "    div.u32 %head, %item, $2;\n"
             "    mul.lo.u32 %in, %head, $2;\n"
             "    sub.u32 %in, %item, %in;\n"
             "    setp.lt.u32 %turns, %in, $3;\n",
             items * (r->width / r->head_dim), ptx_count_at(r->rows), items, r->pairs);
    // %column: the first element of the pair, or the element that is copied
    PTX_FILL(p,
             "    add.u32 %column, %in, $0;\n"
             "    @%turns mul.lo.u32 %column, %in, $1;\n"
             "    mad.lo.u32 %column, %head, $2, %column;\n"
             "    mul.wide.u32 %at, %row, $3;\n"
             "    mad.wide.u32 %at, %column, 4, %at;\n"
             PTX_ADDRESS("%px", "x")
             "    add.u64 %px, %px, %at;\n"
             PTX_ADDRESS("%py", "y")
             "    add.u64 %py, %py, %at;\n"
             "    ld.global.f32 %a, [%px];\n"
             "    @%turns bra TURN;\n"
             "    st.global.f32 [%py], %a;\n"
             "    ret;\n"
             "TURN:\n",
             r->pairs, r->layout == ROPE_NORM ? 2 : 1, r->head_dim, 4 * r->width);
}

int ptx_emit_rope(struct ptx *p, const struct ptx_rope *r, struct ptx_launch *launch, struct error *err)
{
    if (ptx_check_width("rope", r->width, err))
        return -1;
    if (r->pairs < 1 || 2 * (uint64_t)r->pairs > r->head_dim || r->width % r->head_dim)
        return fail(err, E_GPU, "rope: %u pairs in heads of %u in rows of %u", r->pairs, r->head_dim, r->width);
    uint32_t items = r->head_dim - r->pairs;
    rope_head(p, r, items);
    PTX_FILL(p,
             "    ld.global.f32 %b, [%px+$0];\n"
             PTX_ADDRESS("%table", "table")
             "    mad.wide.u32 %table, %row, $1, %table;\n"
             "    mad.wide.u32 %table, %in, 4, %table;\n"
             "    ld.global.f32 %c, [%table];\n"
             "    ld.global.f32 %s, [%table+$2];\n"
             "    mul.rn.f32 %u, %b, %s;\n"
             "    neg.f32 %u, %u;\n"
             "    fma.rn.f32 %u, %a, %c, %u;\n"
             "    mul.rn.f32 %v, %b, %c;\n"
             "    fma.rn.f32 %v, %a, %s, %v;\n"
             "    st.global.f32 [%py], %u;\n"
             "    st.global.f32 [%py+$0], %v;\n"
             "    ret;\n"
             "}\n",
             r->layout == ROPE_NORM ? 4 : 4 * r->pairs, 8 * r->pairs, 4 * r->pairs);
    *launch = (struct ptx_launch){.entry = "rope",
                                  .grid = {1, ptx_tiles(items * (r->width / r->head_dim), ROPE_THREADS), 1},
                                  .block = {ROPE_THREADS, 1, 1}};
    return ptx_finish(p, err);
}
