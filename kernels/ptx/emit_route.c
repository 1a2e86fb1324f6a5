// Emits route_NODE, which chooses the experts of each row and computes their weights, for steps of any number of rows;
// and the same for one row inside of a fused kernel (emit_fused_route.c).
//
// The naive loop that it equals:
//     for each row:
//         order the experts by descending logit (or score), the lower id first if these are equal
//         for each n < used:
//             id[n] = expert n in this order
//             weight[n] = softmax(logits)[id[n]], or sigmoid(logit[id[n]])
//         (with `share` id[n] becomes id[n] / share after the choice, and the weight is that of this number)
//         sum = max(weight[0] + .. + weight[used-1], 2^-14)
//         for each n < used:
//             weight[n] = weight[n] / sum (if `normalise`) * scale
// With a bias or groups the order is that of the scores, softmax(logits)[e] + bias[e] or sigmoid(logit[e]) + bias[e],
// which are computed first and kept in shared memory. Where there are groups, the sum of the two greatest scores of
// each is kept there, too, and the scores of experts in groups that are not used become -infinity.
//
// A route of the kind EACH chooses all experts as they are; a lane stores those 32 apart.
//
// The experts are not sorted. Choice n + 1 is the first expert in the order that comes after choice n, so one more
// pass over the logits finds it, and nothing records which experts are taken.
//
// A CTA is one warp and has one row: grid (rows, 1, 1). Lane i reads the logits of experts i, i + 32, and so on. A
// butterfly of shuffles combines the lanes. Shared memory holds nothing but scores. Lane 0 writes the results.
//
// From compute capability 8.0 on, the lanes keep the logits (or scores) of up to KEYS_MOST
// experts in registers, as integers of the same order, and the greatest and its lowest id come from redux.sync: the
// choices follow each other, and nothing hides the time of one. It is then about a third.
//
// The cost is one pass over the logits for each choice, and two more for a softmax. A pass loads experts / 32 floats
// a lane, from cache after the first pass, and ends with 5 rounds of shuffles. The passes depend on each other, so
// the time is their latency, and hardly changes with the number of rows as long as all CTAs run at once.
#include "kernels/ptx/emit_ops.h"

#include <math.h>

enum { KEYS_MOST = 512 };
enum { SCORES_MAX = 4096 }; // experts whose scores, and sums of groups, fit the shared memory

static bool is_scored(const struct ptx_route *r)
{
    return r->bias || r->groups;
}

static bool takes_keys(const struct ptx_route *r)
{
    return r->target >= 80 && r->experts <= KEYS_MOST;
}

static void route_head(struct ptx *p, const struct ptx_route *r)
{
    if (takes_keys(r))
        ptx_header(p, 70, 80);
    else
        ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: $1 of $2 experts\n"
             ".visible .entry route_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 logits,\n",
             r->node, r->used, r->experts);
    if (r->bias)
        PTX_LINES(p, "    .param .u64 bias,\n");
    PTX_LINES(p,
             "    .param .u64 y)\n"
             ".maxntid 32, 1, 1\n"
             "{\n"
             PTX_ROW_REGS
             "    .reg .u32 %lane;\n"
             "    .reg .u64 %px, %py, %bias;\n");
    PTX_FILL(p,
             PTX_ROW
             "    mov.u32 %lane, %tid.x;\n"
             PTX_ADDRESS("%px", "logits")
             "    mad.wide.u32 %px, %row, $2, %px;\n"
             PTX_ADDRESS("%py", "y")
             "    mad.wide.u32 %py, %row, $3, %py;\n",
             0, ptx_count_at(r->rows), 4 * r->experts, 8 * r->used);
    if (r->bias)
        PTX_LINES(p, PTX_ADDRESS("%bias", "bias"));
}

// The registers of a row's choice, and what they are before the first one.
static void row_head(struct ptx *p)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .pred %end, %better, %same, %behind, %leads;\n"
                 "    .reg .u32 %e, %id, %other_id, %last_id, %n;\n"
                 "    .reg .u64 %from;\n"
                 "    .reg .f32 %v, %best, %other, %last, %most, %all, %sum, %weight;\n"
                 "    setp.eq.u32 %leads, %lane, 0;\n"
                 "    mov.f32 %last, 0f7F800000;\n"
                 "    mov.u32 %last_id, 0;\n"
                 "    mov.f32 %sum, 0f00000000;\n"
                 "    mov.u32 %n, 0;\n");
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

// Sets a register to the softmax of a logit, or to its sigmoid. Marks: $x0 is the bits of log2 e.
//   x   string literal: the register, which has the logit
#define SOFTMAX(x)                                                                                                     \
    "    sub.rn.f32 " x ", " x ", %most;\n"                                                                            \
    "    mul.rn.f32 " x ", " x ", 0f$x0;\n"                                                                            \
    "    ex2.approx.ftz.f32 " x ", " x ";\n"                                                                           \
    "    div.rn.f32 " x ", " x ", %all;\n"
#define SIGMOID(x)                                                                                                     \
    "    mul.rn.f32 " x ", " x ", 0f$x0;\n"                                                                            \
    "    neg.f32 " x ", " x ";\n"                                                                                      \
    "    ex2.approx.ftz.f32 " x ", " x ";\n"                                                                           \
    "    add.rn.f32 " x ", " x ", 0f3F800000;\n"                                                                       \
    "    rcp.rn.f32 " x ", " x ";\n"

// Replaces (%best, %id) with (%other, %other_id) if that comes first in the order. Sets %better to whether it does.
#define COMPARE                                                                                                        \
    "    setp.eq.f32 %same, %other, %best;\n"                                                                          \
    "    setp.lt.and.u32 %same, %other_id, %id, %same;\n"                                                              \
    "    setp.gt.or.f32 %better, %other, %best, %same;\n"                                                              \
    "    selp.f32 %best, %other, %best, %better;\n"                                                                    \
    "    selp.b32 %id, %other_id, %id, %better;\n"

// Within a loop over experts or groups: replaces (%best, %id) with (%v, %e) if that comes first among those behind the
// last choice, (%last, %last_id - 1).
//   label   string literal, unique in the kernel
#define CANDIDATE(label)                                                                                               \
    "    setp.eq.f32 %same, %v, %last;\n"                                                                              \
    "    setp.ge.and.u32 %same, %e, %last_id, %same;\n"                                                                \
    "    setp.lt.or.f32 %behind, %v, %last, %same;\n"                                                                  \
    "    @!%behind bra " label ";\n"                                                                                   \
    "    mov.f32 %other, %v;\n"                                                                                        \
    "    mov.u32 %other_id, %e;\n" COMPARE label ":\n"

// Enclose the body of a loop over the lane's numbers in shared memory: %e is the index of the number, %v the number.
//   label   string literal: the same in both, unique in the kernel
//   array   string literal: the name of the numbers
//   $0      how many there are
#define SHARED_BEGIN(label, array)                                                                                     \
    "    mov.u32 %e, %lane;\n"                                                                                         \
    "    mov.u32 %at, " array ";\n"                                                                                    \
    "    mad.lo.u32 %at, %lane, 4, %at;\n" label ":\n"                                                                 \
    "    setp.ge.u32 %end, %e, $0;\n"                                                                                  \
    "    @%end bra " label "_END;\n"                                                                                   \
    "    ld.shared.f32 %v, [%at];\n"
#define SHARED_END(label)                                                                                              \
    "    add.u32 %e, %e, 32;\n"                                                                                        \
    "    add.u32 %at, %at, 128;\n"                                                                                     \
    "    bra " label ";\n" label "_END:\n"

// Sets (%best, %id) of all lanes to the first of theirs in the order, and the last choice to that.
static void join_lanes(struct ptx *p)
{
    for (uint32_t by = 16; by; by /= 2)
        PTX_FILL(p,
                 "    shfl.sync.bfly.b32 %other, %best, $0, 31, 0xffffffff;\n"
                 "    shfl.sync.bfly.b32 %other_id, %id, $0, 31, 0xffffffff;\n"
                 COMPARE,
                 by);
    PTX_LINES(p, "    mov.f32 %last, %best;\n"
                 "    add.u32 %last_id, %id, 1;\n");
}

// Stores the scores of all experts to shared memory.
static void route_scores(struct ptx *p, const struct ptx_route *r)
{
    const uint32_t factor = ptx_float_bits((float)LOG2_E);
    PTX_FILL(p,
             "    .shared .align 4 .b8 scores[$0];\n"
             "    .reg .u32 %at, %of, %group;\n"
             "    .reg .u64 %bias_at;\n",
             4 * r->experts);
    if (r->bias)
        PTX_LINES(p, "    mad.wide.u32 %bias_at, %lane, 4, %bias;\n");
    PTX_FILL(p,
             "    mov.u32 %at, scores;\n"
             "    mad.lo.u32 %at, %lane, 4, %at;\n"
             EACH_BEGIN("SCORE"),
             r->experts);
    if (r->kind == ROUTE_SOFTMAX)
        PTX_FILL(p, SOFTMAX("%v"), factor);
    else
        PTX_FILL(p, SIGMOID("%v"), factor);
    if (r->bias)
        PTX_LINES(p, "    ld.global.f32 %other, [%bias_at];\n"
                     "    add.u64 %bias_at, %bias_at, 128;\n"
                     "    add.rn.f32 %v, %v, %other;\n");
    PTX_LINES(p, "    st.shared.f32 [%at], %v;\n"
                 "    add.u32 %at, %at, 128;\n"
                 EACH_END("SCORE")
                 "    bar.warp.sync 0xffffffff;\n");
}

// Stores the sum of the two greatest scores of each group to shared memory. A lane has groups 32 apart.
static void group_sums(struct ptx *p, const struct ptx_route *r)
{
    PTX_FILL(p,
             "    .shared .align 4 .b8 group_sums[$0];\n"
             "    mov.u32 %e, %lane;\n"
             "SUMS:\n"
             "    setp.ge.u32 %end, %e, $1;\n"
             "    @%end bra SUMS_END;\n"
             "    mov.u32 %at, scores;\n"
             "    mad.lo.u32 %at, %e, $2, %at;\n"
             "    add.u32 %of, %at, $2;\n"
             "    mov.f32 %best, 0fFF800000;\n"
             "    mov.f32 %other, 0fFF800000;\n"
             "MEMBER:\n"
             "    ld.shared.f32 %v, [%at];\n"
             "    min.f32 %sum, %best, %v;\n"
             "    max.f32 %other, %other, %sum;\n"
             "    max.f32 %best, %best, %v;\n"
             "    add.u32 %at, %at, 4;\n"
             "    setp.lt.u32 %better, %at, %of;\n"
             "    @%better bra MEMBER;\n",
             4 * r->groups, r->groups, 4 * (r->experts / r->groups));
    PTX_LINES(p, "    add.rn.f32 %v, %best, %other;\n"
                 "    mov.u32 %at, group_sums;\n"
                 "    mad.lo.u32 %at, %e, 4, %at;\n"
                 "    st.shared.f32 [%at], %v;\n"
                 "    add.u32 %e, %e, 32;\n"
                 "    bra SUMS;\n"
                 "SUMS_END:\n"
                 "    bar.warp.sync 0xffffffff;\n"
                 "    mov.f32 %sum, 0f00000000;\n");
}

// Finds the last group, in the order of their sums, that is used, and sets the scores of the experts of later groups to
// -infinity. If the sums are NaN, these are all.
static void route_groups(struct ptx *p, const struct ptx_route *r)
{
    group_sums(p, r);
    PTX_FILL(p,
             "BEST_GROUP:\n"
             "    mov.f32 %best, 0fFF800000;\n"
             "    mov.u32 %id, $0;\n"
             SHARED_BEGIN("GROUP", "group_sums") CANDIDATE("GROUP_FOUND") SHARED_END("GROUP"),
             r->groups);
    join_lanes(p);
    PTX_FILL(p,
             "    add.u32 %n, %n, 1;\n"
             "    setp.lt.u32 %better, %n, $1;\n"
             "    @%better bra BEST_GROUP;\n"
             SHARED_BEGIN("LEAVE", "scores")
             "    div.u32 %group, %e, $2;\n"
             "    mov.u32 %of, group_sums;\n"
             "    mad.lo.u32 %of, %group, 4, %of;\n"
             "    ld.shared.f32 %other, [%of];\n"
             "    setp.eq.f32 %same, %other, %last;\n"
             "    setp.lt.and.u32 %same, %group, %last_id, %same;\n"
             "    setp.gt.or.f32 %better, %other, %last, %same;\n"
             "    @!%better st.shared.f32 [%at], 0fFF800000;\n"
             SHARED_END("LEAVE")
             "    bar.warp.sync 0xffffffff;\n"
             "    mov.f32 %last, 0f7F800000;\n"
             "    mov.u32 %last_id, 0;\n"
             "    mov.u32 %n, 0;\n",
             r->experts, r->groups_used, r->experts / r->groups);
}

// Begins the loop over the choices. Sets %id to the next expert in the order and %best to its logit, in all lanes.
// Only experts after the choice before are candidates: those of a logit below %last, and from %last_id on those of an
// equal logit. A lane without candidates has -infinity and the number of experts as the id. If no lane has one, as
// with NaN logits, %id becomes the last expert, so that it is always valid.
static void route_choose(struct ptx *p, const struct ptx_route *r)
{
    PTX_FILL(p,
             "CHOICE:\n"
             "    mov.f32 %best, 0fFF800000;\n"
             "    mov.u32 %id, $0;\n",
             r->experts);
    if (is_scored(r))
        PTX_FILL(p, SHARED_BEGIN("FIND", "scores") CANDIDATE("FOUND") SHARED_END("FIND"), r->experts);
    else
        PTX_FILL(p, EACH_BEGIN("FIND") CANDIDATE("FOUND") EACH_END("FIND"), r->experts);
    join_lanes(p);
    PTX_FILL(p, "    min.u32 %id, %id, $0;\n", r->experts - 1);
    if (is_scored(r))
        PTX_LINES(p, "    mad.wide.u32 %from, %id, 4, %px;\n"
                     "    ld.global.f32 %best, [%from];\n");
}

// ---- choices of keys

static uint32_t keys_of(const struct ptx_route *r)
{
    return ptx_tiles(r->experts, 32);
}

// Sets %key<i> to an integer in the order of %v, at least 1: -0 counts as 0, and a NaN, which is never chosen, has 0.
static void make_key(struct ptx *p, uint32_t i)
{
    PTX_FILL(p,
             "    add.rn.f32 %v, %v, 0f00000000;\n"
             "    mov.b32 %id, %v;\n"
             "    shr.s32 %other_id, %id, 31;\n"
             "    or.b32 %other_id, %other_id, 0x80000000;\n"
             "    xor.b32 %key$0, %id, %other_id;\n"
             "    setp.neu.f32 %same, %v, %v;\n"
             "    @%same mov.u32 %key$0, 0;\n",
             i);
}

// Loads the logits or scores of experts %lane, %lane + 32, and so on.
static void load_keys(struct ptx *p, const struct ptx_route *r)
{
    PTX_FILL(p,
             "    .reg .u32 %key<$0>, %top, %mine;\n"
             "    mad.wide.u32 %from, %lane, 4, %px;\n",
             keys_of(r));
    if (is_scored(r))
        PTX_LINES(p, "    mov.u32 %at, scores;\n"
                     "    mad.lo.u32 %at, %lane, 4, %at;\n");
    for (uint32_t i = 0; i < keys_of(r); i++) {
        const bool cut = 32 * i + 32 > r->experts;
        if (cut)
            PTX_FILL(p,
                     "    mov.u32 %key$0, 0;\n"
                     "    setp.ge.u32 %end, %lane, $1;\n"
                     "    @%end bra KEYS;\n",
                     i, r->experts - 32 * i);
        if (is_scored(r))
            PTX_FILL(p, "    ld.shared.f32 %v, [%at+$0];\n", 128 * i);
        else
            PTX_FILL(p, "    ld.global.f32 %v, [%from+$0];\n", 128 * i);
        make_key(p, i);
        if (cut)
            PTX_LINES(p, "KEYS:\n"
                         "    bar.warp.sync 0xffffffff;\n");
    }
}

// Sets %best to the number of key %top, or to -infinity without one.
static void number_of_key(struct ptx *p)
{
    PTX_LINES(p, "    shr.s32 %mine, %top, 31;\n"
                 "    not.b32 %mine, %mine;\n"
                 "    or.b32 %mine, %mine, 0x80000000;\n"
                 "    xor.b32 %mine, %top, %mine;\n"
                 "    mov.b32 %best, %mine;\n"
                 "    selp.f32 %best, 0fFF800000, %best, %same;\n");
}

// As route_choose, with the keys in registers. An expert that is chosen has no key any more.
static void choose_key(struct ptx *p, const struct ptx_route *r)
{
    load_keys(p, r);
    PTX_LINES(p, "CHOICE:\n"
                 "    mov.u32 %mine, %key0;\n"
                 "    mov.u32 %e, %lane;\n");
    for (uint32_t i = 1; i < keys_of(r); i++)
        PTX_FILL(p,
                 "    setp.gt.u32 %better, %key$0, %mine;\n"
                 "    @%better mov.u32 %mine, %key$0;\n"
                 "    @%better add.u32 %e, %lane, $1;\n",
                 i, 32 * i);
    PTX_LINES(p, "    redux.sync.max.u32 %top, %mine, 0xffffffff;\n"
                 "    setp.eq.u32 %same, %mine, %top;\n"
                 "    selp.b32 %e, %e, 0xffffffff, %same;\n"
                 "    redux.sync.min.u32 %id, %e, 0xffffffff;\n");
    for (uint32_t i = 0; i < keys_of(r); i++)
        PTX_FILL(p,
                 "    add.u32 %e, %lane, $1;\n"
                 "    setp.eq.u32 %better, %e, %id;\n"
                 "    @%better mov.u32 %key$0, 0;\n",
                 i, 32 * i);
    PTX_FILL(p,
             "    setp.eq.u32 %same, %top, 0;\n"
             "    selp.b32 %id, $0, %id, %same;\n",
             r->experts - 1);
    if (is_scored(r))
        PTX_LINES(p, "    mad.wide.u32 %from, %id, 4, %px;\n"
                     "    ld.global.f32 %best, [%from];\n");
    else
        number_of_key(p);
}

// ---- weights

// Computes the weight of the choice, or of the expert that it shares with its neighbours, before normalisation and scale, adds it to %sum, and stores weight and id. Ends
// the loop over the choices. With a softmax, a NaN among the logits makes all weights NaN.
static void route_weigh(struct ptx *p, const struct ptx_route *r)
{
    uint32_t factor = ptx_float_bits((float)LOG2_E);
    if (r->share > 1)
        PTX_FILL(p,
                 "    div.u32 %e, %id, $0;\n"
                 "    mad.wide.u32 %from, %e, 4, %px;\n"
                 "    ld.global.f32 %weight, [%from];\n",
                 r->share);
    else
        PTX_LINES(p, "    mov.u32 %e, %id;\n"
                     "    mov.f32 %weight, %best;\n");
    if (r->kind == ROUTE_SOFTMAX)
        PTX_FILL(p, SOFTMAX("%weight"), factor);
    else
        PTX_FILL(p, SIGMOID("%weight"), factor);
    PTX_FILL(p,
             "    add.rn.f32 %sum, %sum, %weight;\n"
             "    mad.wide.u32 %from, %n, 4, %py;\n"
             "    @%leads st.global.f32 [%from], %weight;\n"
             "    @%leads st.global.u32 [%from+$0], %e;\n"
             "    add.u32 %n, %n, 1;\n"
             "    setp.lt.u32 %better, %n, $1;\n"
             "    @%better bra CHOICE;\n",
             4 * r->used, r->used);
}

// Chooses all experts of every row, in their order and with weights of 1. The logits are not read.
static int route_each(struct ptx *p, const struct ptx_route *r, struct ptx_launch *launch, struct error *err)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: all of $2 experts\n"
             ".visible .entry route_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 logits,\n"
             "    .param .u64 y)\n"
             ".maxntid 32, 1, 1\n"
             "{\n"
             PTX_ROW_REGS
             "    .reg .pred %more;\n"
             "    .reg .u32 %e;\n"
             "    .reg .u64 %py, %to;\n"
             PTX_ROW
             PTX_ADDRESS("%py", "y")
             "    mad.wide.u32 %py, %row, $3, %py;\n"
             "    mov.u32 %e, %tid.x;\n"
             "NEXT:\n"
             "    setp.lt.u32 %more, %e, $2;\n"
             "    @!%more ret;\n"
             "    mad.wide.u32 %to, %e, 4, %py;\n"
             "    st.global.f32 [%to], 0f3F800000;\n"
             "    st.global.u32 [%to+$4], %e;\n"
             "    add.u32 %e, %e, 32;\n"
             "    bra NEXT;\n"
             "}\n",
             r->node, ptx_count_at(r->rows), r->used, 8 * r->used, 4 * r->used);
    *launch = (struct ptx_launch){.entry = "route", .grid = {1, 1, 1}, .block = {32, 1, 1}};
    return ptx_finish(p, err);
}

int ptx_route_check(const struct ptx_route *r, struct error *err)
{
    if (r->experts < 1 || r->experts > 65536 || r->used < 1 || r->used > r->experts)
        return fail(err, E_GPU, "route: %u of %u experts", r->used, r->experts);
    if (r->kind == ROUTE_EACH)
        return 0;
    if (!isfinite(r->scale))
        return fail(err, E_GPU, "route: a scale of %g", (double)r->scale);
    if (is_scored(r) && r->experts > SCORES_MAX)
        return fail(err, E_GPU, "route: %u experts with biases or groups", r->experts);
    if (r->groups && (r->experts % r->groups || r->groups_used < 1 || r->groups_used > r->groups))
        return fail(err, E_GPU, "route: %u of %u groups of %u experts", r->groups_used, r->groups, r->experts);
    return 0;
}

uint32_t ptx_route_bytes(const struct ptx_route *r)
{
    return is_scored(r) ? 4 * (r->experts + r->groups) : 0;
}

// Divides the weights by their sum, if that is asked for, and multiplies them with the scale.
static void route_scale(struct ptx *p, const struct ptx_route *r)
{
    // 2^-14, the smallest normal number of float16, is a lower bound of the divisor
    PTX_FILL(p,
             "    @!%leads bra ROUTED;\n"
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
             "ROUTED:\n"
             "    }\n",
             ptx_float_bits(r->scale), r->used);
}

void ptx_route_row(struct ptx *p, const struct ptx_route *r)
{
    row_head(p);
    if (r->kind == ROUTE_SOFTMAX)
        route_softmax(p, r);
    if (is_scored(r))
        route_scores(p, r);
    if (r->groups)
        route_groups(p, r);
    if (takes_keys(r))
        choose_key(p, r);
    else
        route_choose(p, r);
    route_weigh(p, r);
    route_scale(p, r);
}

int ptx_emit_route(struct ptx *p, const struct ptx_route *r, struct ptx_launch *launch, struct error *err)
{
    if (ptx_route_check(r, err))
        return -1;
    if (r->kind == ROUTE_EACH)
        return route_each(p, r, launch, err);
    route_head(p, r);
    ptx_route_row(p, r);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){.entry = "route", .grid = {1, 1, 1}, .block = {32, 1, 1}};
    return ptx_finish(p, err);
}
