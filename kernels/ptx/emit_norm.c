// Emits norm_NODE, which normalises each group of a row: the whole row, or each head of it.
//
// The naive loop that it equals:
//     for each row, for each group x[0 .. n-1] of the row:
//         mean = sum of x[i] / n                                // layer norm; 0 for RMS norm
//         root = 1 / sqrt(sum of (x[i] - mean)^2 / n + eps)
//         y[i] = (x[i] - mean) * root * gain[i] + bias[i]       // gain and bias only if the node has them
//
// A CTA has one group: grid (rows, groups of a row, 1). Its threads are the least power of two from 32 to 256 that
// gives each of them at most 4 elements, and 256 for groups of more than 1024. Thread t has elements t, t + threads,
// and so on, so that a warp loads 128 contiguous bytes. A sum is added in this order: the elements of a thread, then
// a butterfly over the threads of a warp, then the warps in order. Fused kernels use the same order and get the same
// bits. Shared memory holds one float a warp; a CTA of one warp uses none.
//
// The cost is three passes over the group for a layer norm and two for an RMS norm, of which only the first reads x
// from memory; the others find it in cache. The kernel is chosen for every norm of the graph, except those that are
// part of fused kernels in steps of one row (gpu_fuse.c).
#include "kernels/ptx/emit_ops.h"

#include <math.h>

enum { MAX_THREADS = 256 };

uint32_t ptx_norm_threads(uint32_t group)
{
    uint32_t threads = 32;
    while (threads < MAX_THREADS && threads * 4 < group)
        threads *= 2;
    return threads;
}

static void norm_head(struct ptx *p, const struct ptx_norm *n, uint32_t threads)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p, "\n// node $0: ", n->node);
    if (n->kind == NORM_LAYER)
        PTX_LINES(p, "layer norm");
    else
        PTX_LINES(p, "norm by the root of the mean square");
    PTX_FILL(p,
             " of groups of $1 in rows of $2\n"
             ".visible .entry norm_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 x,\n",
             n->node, n->group, n->width);
    if (n->gain)
        PTX_LINES(p, "    .param .u64 gain,\n");
    if (n->bias)
        PTX_LINES(p, "    .param .u64 bias,\n");
    PTX_FILL(p,
             "    .param .u64 y)\n"
             ".maxntid $0, 1, 1\n"
             "{\n"
             PTX_ROW_REGS
             "    .reg .pred %more, %first;\n"
             "    .reg .u32 %thread, %lane, %place, %i, %group;\n"
             "    .reg .u64 %at, %px, %py, %pw, %pb, %from;\n"
             "    .reg .f32 %v, %w, %mean, %sum, %other, %root;\n",
             threads);
    if (threads > 32)
        PTX_FILL(p, "    .shared .align 16 .b8 partials[$0];\n", threads / 8);
}

// Sets %at to the offset in bytes of the thread's first element in a value, and %px to its address in x.
static void norm_places(struct ptx *p, const struct ptx_norm *n)
{
    PTX_FILL(p,
             PTX_ROW
             "    mov.u32 %thread, %tid.x;\n"
             "    mov.u32 %group, %ctaid.y;\n"
             "    mul.wide.u32 %at, %row, $2;\n"
             "    mad.wide.u32 %at, %group, $3, %at;\n"
             "    mad.wide.u32 %at, %thread, 4, %at;\n"
             PTX_ADDRESS("%px", "x")
             "    add.u64 %px, %px, %at;\n",
             0, ptx_count_at(n->rows), 4 * n->width, 4 * n->group);
}

// Sets %sum to its sum over the CTA, with the same bits in all threads: a butterfly over each warp, then the warps in
// order. The first barrier waits until all threads have read the partial sums of the reduction before.
static void reduce(struct ptx *p, uint32_t threads)
{
    for (uint32_t by = 16; by; by /= 2)
        PTX_FILL(p,
                 "    shfl.sync.bfly.b32 %other, %sum, $0, 31, 0xffffffff;\n"
                 "    add.rn.f32 %sum, %sum, %other;\n",
                 by);
    if (threads == 32)
        return;
    PTX_LINES(p, "    and.b32 %lane, %thread, 31;\n"
                 "    setp.eq.u32 %first, %lane, 0;\n"
                 "    shr.u32 %lane, %thread, 5;\n"
                 "    mov.u32 %place, partials;\n"
                 "    mad.lo.u32 %lane, %lane, 4, %place;\n"
                 "    bar.sync 0;\n"
                 "    @%first st.shared.f32 [%lane], %sum;\n"
                 "    bar.sync 0;\n"
                 "    ld.shared.f32 %sum, [%place];\n");
    for (uint32_t warp = 1; warp < threads / 32; warp++)
        PTX_FILL(p,
                 "    ld.shared.f32 %other, [%place+$0];\n"
                 "    add.rn.f32 %sum, %sum, %other;\n",
                 4 * warp);
}

// EACH_BEGIN and EACH_END enclose the body of a loop over the thread's elements; %v is the element of x.
//   label   string literal: the same in both, unique in the kernel
//   $0      elements of the group
//   $1      threads of the CTA
//   $2      4 * threads: the distance in bytes between elements of a thread
#define EACH_BEGIN(label)                                                                                              \
    "    mov.u32 %i, %thread;\n"                                                                                       \
    "    mov.u64 %from, %px;\n" label ":\n"                                                                            \
    "    setp.ge.u32 %more, %i, $0;\n"                                                                                 \
    "    @%more bra " label "_END;\n"                                                                                  \
    "    ld.global.f32 %v, [%from];\n"
#define EACH_END(label)                                                                                                \
    "    add.u32 %i, %i, $1;\n"                                                                                        \
    "    add.u64 %from, %from, $2;\n"                                                                                  \
    "    bra " label ";\n" label "_END:\n"

// Sets %mean, which is 0 for an RMS norm, and %root.
static void norm_sums(struct ptx *p, const struct ptx_norm *n, uint32_t threads)
{
    PTX_LINES(p, "    mov.f32 %mean, 0f00000000;\n"
                 "    mov.f32 %sum, 0f00000000;\n");
    if (n->kind == NORM_LAYER) {
        PTX_FILL(p, EACH_BEGIN("MEAN") "    add.rn.f32 %sum, %sum, %v;\n" EACH_END("MEAN"), n->group, threads,
                 4 * threads);
        reduce(p, threads);
        PTX_FILL(p,
                 "    mul.rn.f32 %mean, %sum, 0f$x0;\n"
                 "    mov.f32 %sum, 0f00000000;\n",
                 ptx_float_bits((float)(1.0 / n->group)));
    }
    PTX_FILL(p,
             EACH_BEGIN("SQUARE")
             "    sub.rn.f32 %v, %v, %mean;\n"
             "    fma.rn.f32 %sum, %v, %v, %sum;\n"
             EACH_END("SQUARE"),
             n->group, threads, 4 * threads);
    reduce(p, threads);
    PTX_FILL(p,
             "    fma.rn.f32 %root, %sum, 0f$x0, 0f$x1;\n"
             "    sqrt.rn.f32 %root, %root;\n"
             "    rcp.rn.f32 %root, %root;\n",
             ptx_float_bits((float)(1.0 / n->group)), ptx_float_bits(n->eps));
}

static void norm_apply(struct ptx *p, const struct ptx_norm *n, uint32_t threads)
{
    PTX_LINES(p, PTX_ADDRESS("%py", "y") "    add.u64 %py, %py, %at;\n");
    if (n->gain)
        PTX_FILL(p,
                 PTX_ADDRESS("%pw", "gain")
                 "    mad.wide.u32 %pw, %group, $0, %pw;\n"
                 "    mad.wide.u32 %pw, %thread, 4, %pw;\n",
                 n->by_column ? 4 * n->group : 0);
    if (n->bias)
        PTX_FILL(p,
                 PTX_ADDRESS("%pb", "bias")
                 "    mad.wide.u32 %pb, %group, $0, %pb;\n"
                 "    mad.wide.u32 %pb, %thread, 4, %pb;\n",
                 n->by_column ? 4 * n->group : 0);
    PTX_FILL(p,
             EACH_BEGIN("APPLY")
             "    sub.rn.f32 %v, %v, %mean;\n"
             "    mul.rn.f32 %v, %v, %root;\n",
             n->group);
    if (n->gain)
        PTX_FILL(p,
                 "    ld.global.f32 %w, [%pw];\n"
                 "    mul.rn.f32 %v, %v, %w;\n"
                 "    add.u64 %pw, %pw, $0;\n",
                 4 * threads);
    if (n->bias)
        PTX_FILL(p,
                 "    ld.global.f32 %w, [%pb];\n"
                 "    add.rn.f32 %v, %v, %w;\n"
                 "    add.u64 %pb, %pb, $0;\n",
                 4 * threads);
    PTX_FILL(p,
             "    st.global.f32 [%py], %v;\n"
             "    add.u64 %py, %py, $2;\n"
             EACH_END("APPLY")
             "    ret;\n"
             "}\n",
             n->group, threads, 4 * threads);
}

int ptx_emit_norm(struct ptx *p, const struct ptx_norm *n, struct ptx_launch *launch, struct error *err)
{
    if (ptx_check_width("norm", n->width, err))
        return -1;
    if (n->group < 1 || n->width % n->group || n->width / n->group > UINT16_MAX)
        return fail(err, E_GPU, "norm: groups of %u in rows of %u", n->group, n->width);
    if (!isfinite(n->eps) || n->eps < 0)
        return fail(err, E_GPU, "norm: eps of %g", (double)n->eps);
    uint32_t threads = ptx_norm_threads(n->group);
    norm_head(p, n, threads);
    norm_places(p, n);
    norm_sums(p, n, threads);
    norm_apply(p, n, threads);
    *launch = (struct ptx_launch){.entry = "norm", .grid = {1, n->width / n->group, 1}, .block = {threads, 1, 1}};
    return ptx_finish(p, err);
}
