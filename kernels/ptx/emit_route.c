// Emits route_NODE, which chooses the experts of each row and computes their weights. It is chosen for every such
// node of the graph, in steps of any number of rows.
//
// The naive loop that it equals:
//     for each row:
//         order the experts by descending logit, the lower id first if logits are equal
//         for each n < used:
//             id[n] = expert n in this order
//             weight[n] = softmax(logits)[id[n]], or sigmoid(logit[id[n]])
//         sum = max(weight[0] + .. + weight[used-1], 2^-14)
//         for each n < used:
//             weight[n] = weight[n] / sum (if `normalise`) * scale
// The experts are not sorted. Choice n + 1 is the first expert in the order that comes after choice n, so one more
// pass over the logits finds it, and nothing records which experts are taken.
//
// A CTA is one warp and has one row: grid (rows, 1, 1). Lane i reads the logits of experts i, i + 32, and so on. A
// butterfly of shuffles combines the lanes, so no shared memory is used. Lane 0 writes the results.
//
// The cost is one pass over the logits for each choice, and two more for a softmax. A pass loads experts / 32 floats
// a lane, from cache after the first pass, and ends with 5 rounds of shuffles. The passes depend on each other, so
// the time is their latency, and hardly changes with the number of rows as long as all CTAs run at once.
#include "kernels/ptx/emit_ops.h"

#include <math.h>

static void route_head(struct ptx *p, const struct ptx_route *r)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: $1 of $2 experts\n"
             ".visible .entry route_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 logits,\n"
             "    .param .u64 y)\n"
             ".maxntid 32, 1, 1\n"
             "{\n"
             PTX_ROW_REGS
             "    .reg .pred %end, %better, %same, %lower, %behind, %leads, %odd;\n"
             "    .reg .u32 %lane, %e, %id, %other_id, %last_id, %n;\n"
             "    .reg .u64 %px, %py, %from;\n"
             "    .reg .f32 %v, %best, %other, %last, %most, %all, %sum, %weight;\n",
             r->node, r->used, r->experts);
    PTX_FILL(p,
             PTX_ROW
             "    mov.u32 %lane, %tid.x;\n"
             "    setp.eq.u32 %leads, %lane, 0;\n"
             PTX_ADDRESS("%px", "logits")
             "    mad.wide.u32 %px, %row, $2, %px;\n"
             PTX_ADDRESS("%py", "y")
             "    mad.wide.u32 %py, %row, $3, %py;\n"
             "    mov.f32 %last, 0f7F800000;\n"
             "    mov.u32 %last_id, 0;\n"
             "    mov.f32 %sum, 0f00000000;\n"
             "    mov.u32 %n, 0;\n",
             0, ptx_count_at(r->rows), 4 * r->experts, 8 * r->used);
}

// EACH_BEGIN and EACH_END enclose the body of a loop over the lane's experts: %e is the expert, %v its logit.
//   label   string literal: the same in both, unique in the kernel
//   $0      number of experts
#define EACH_BEGIN(label)                                                                                              \
    "    mov.u32 %e, %lane;\n"                                                                                         \
    "    mad.wide.u32 %from, %lane, 4, %px;\n" label ":\n"                                                             \
    "    setp.ge.u32 %end, %e, $0;\n"                                                                                  \
    "    @%end bra " label "_END;\n"                                                                                   \
    "    ld.global.f32 %v, [%from];\n"
#define EACH_END(label)                                                                                                \
    "    add.u32 %e, %e, 32;\n"                                                                                        \
    "    add.u64 %from, %from, 128;\n"                                                                                 \
    "    bra " label ";\n" label "_END:\n"

// Sets %most to the greatest logit, and %all to the sum of e^(logit - %most) over all experts, in all lanes.
static void route_softmax(struct ptx *p, const struct ptx_route *r)
{
    PTX_FILL(p,
             "    mov.f32 %most, 0fFF800000;\n"
             EACH_BEGIN("MOST")
             "    max.f32 %most, %most, %v;\n"
             EACH_END("MOST"),
             r->experts);
    for (uint32_t by = 16; by; by /= 2)
        PTX_FILL(p,
                 "    shfl.sync.bfly.b32 %other, %most, $0, 31, 0xffffffff;\n"
                 "    max.f32 %most, %most, %other;\n",
                 by);
    PTX_FILL(p,
             "    mov.f32 %all, 0f00000000;\n"
             EACH_BEGIN("ALL")
             "    sub.rn.f32 %v, %v, %most;\n"
             "    mul.rn.f32 %v, %v, 0f$x1;\n"
             "    ex2.approx.ftz.f32 %v, %v;\n"
             "    add.rn.f32 %all, %all, %v;\n"
             EACH_END("ALL"),
             r->experts, ptx_float_bits((float)LOG2_E));
    for (uint32_t by = 16; by; by /= 2)
        PTX_FILL(p,
                 "    shfl.sync.bfly.b32 %other, %all, $0, 31, 0xffffffff;\n"
                 "    add.rn.f32 %all, %all, %other;\n",
                 by);
}

// Replaces (%best, %id) with (%other, %other_id) if that comes first in the order. Sets %better to whether it does.
#define COMPARE                                                                                                        \
    "    setp.eq.f32 %same, %other, %best;\n"                                                                          \
    "    setp.lt.and.u32 %same, %other_id, %id, %same;\n"                                                              \
    "    setp.gt.or.f32 %better, %other, %best, %same;\n"                                                              \
    "    selp.f32 %best, %other, %best, %better;\n"                                                                    \
    "    selp.b32 %id, %other_id, %id, %better;\n"

// Begins the loop over the choices. Sets %id to the next expert in the order and %best to its logit, in all lanes.
// Only experts after the choice before are candidates: those of a logit below %last, and from %last_id on those of an
// equal logit. A lane without candidates has -infinity and the number of experts as the id. If no lane has one, as
// with NaN logits, %id becomes the last expert, so that it is always valid.
static void route_choose(struct ptx *p, const struct ptx_route *r)
{
    PTX_FILL(p,
             "CHOICE:\n"
             "    mov.f32 %best, 0fFF800000;\n"
             "    mov.u32 %id, $0;\n"
             EACH_BEGIN("FIND")
             "    setp.eq.f32 %same, %v, %last;\n"
             "    setp.ge.and.u32 %same, %e, %last_id, %same;\n"
             "    setp.lt.or.f32 %behind, %v, %last, %same;\n"
             "    @!%behind bra FOUND;\n"
             "    mov.f32 %other, %v;\n"
             "    mov.u32 %other_id, %e;\n"
             COMPARE
             "FOUND:\n"
             EACH_END("FIND"),
             r->experts);
    for (uint32_t by = 16; by; by /= 2)
        PTX_FILL(p,
                 "    shfl.sync.bfly.b32 %other, %best, $0, 31, 0xffffffff;\n"
                 "    shfl.sync.bfly.b32 %other_id, %id, $0, 31, 0xffffffff;\n"
                 COMPARE,
                 by);
    PTX_FILL(p,
             "    mov.f32 %last, %best;\n"
             "    add.u32 %last_id, %id, 1;\n"
             "    min.u32 %id, %id, $0;\n",
             r->experts - 1);
}

// Computes the weight of the choice, before normalisation and scale, adds it to %sum, and stores weight and id. Ends
// the loop over the choices. With a softmax, a NaN among the logits makes all weights NaN.
static void route_weigh(struct ptx *p, const struct ptx_route *r)
{
    uint32_t factor = ptx_float_bits((float)LOG2_E);
    if (r->kind == ROUTE_SOFTMAX)
        PTX_FILL(p,
                 "    sub.rn.f32 %weight, %best, %most;\n"
                 "    mul.rn.f32 %weight, %weight, 0f$x0;\n"
                 "    ex2.approx.ftz.f32 %weight, %weight;\n"
                 "    div.rn.f32 %weight, %weight, %all;\n",
                 factor);
    else
        PTX_FILL(p,
                 "    mul.rn.f32 %weight, %best, 0f$x0;\n"
                 "    neg.f32 %weight, %weight;\n"
                 "    ex2.approx.ftz.f32 %weight, %weight;\n"
                 "    add.rn.f32 %weight, %weight, 0f3F800000;\n"
                 "    rcp.rn.f32 %weight, %weight;\n",
                 factor);
    PTX_FILL(p,
             "    add.rn.f32 %sum, %sum, %weight;\n"
             "    mad.wide.u32 %from, %n, 4, %py;\n"
             "    @%leads st.global.f32 [%from], %weight;\n"
             "    @%leads st.global.u32 [%from+$0], %id;\n"
             "    add.u32 %n, %n, 1;\n"
             "    setp.lt.u32 %better, %n, $1;\n"
             "    @%better bra CHOICE;\n",
             4 * r->used, r->used);
}

int ptx_emit_route(struct ptx *p, const struct ptx_route *r, struct ptx_launch *launch, struct error *err)
{
    if (r->experts < 1 || r->experts > 65536 || r->used < 1 || r->used > r->experts)
        return fail(err, E_GPU, "route: %u of %u experts", r->used, r->experts);
    if (!isfinite(r->scale))
        return fail(err, E_GPU, "route: a scale of %g", (double)r->scale);
    route_head(p, r);
    if (r->kind == ROUTE_SOFTMAX)
        route_softmax(p, r);
    route_choose(p, r);
    route_weigh(p, r);
    // 2^-14, the smallest normal number of float16, is a lower bound of the divisor
    PTX_FILL(p,
             "    @!%leads ret;\n"
             "    max.f32 %sum, %sum, 0f$x0;\n"
             "    mov.u64 %from, %py;\n"
             "    mov.u32 %n, 0;\n"
             "SCALE:\n"
             "    ld.global.f32 %weight, [%from];\n",
             ptx_float_bits(0x1p-14f));
    if (r->normalise)
        PTX_LINES(p, "    div.rn.f32 %weight, %weight, %sum;\n");
    PTX_FILL(p,
             "    mul.rn.f32 %weight, %weight, 0f$x0;\n"
             "    st.global.f32 [%from], %weight;\n"
             "    add.u64 %from, %from, 4;\n"
             "    add.u32 %n, %n, 1;\n"
             "    setp.lt.u32 %better, %n, $1;\n"
             "    @%better bra SCALE;\n"
             "    ret;\n"
             "}\n",
             ptx_float_bits(r->scale), r->used);
    *launch = (struct ptx_launch){.entry = "route", .grid = {1, 1, 1}, .block = {32, 1, 1}};
    return ptx_finish(p, err);
}
