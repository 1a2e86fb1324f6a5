// Emits `norm`: RMS norm or layer norm of rows, or of each head of a row. For each group of `group` columns it equals
//
//   mean = NORM_LAYER ? sum(x) / group : 0;
//   root = 1 / sqrt(sum((x - mean)^2) / group + eps);
//   y[i] = (x[i] - mean) * root * gain[i] + bias[i]; // gain and bias if the kernel has them
//
// Grid: x the row, y the group. The block is ptx_norm_threads(group) threads, 32 to 256; thread t has the elements t,
// t + threads, and so on. Shared memory: a float per warp, none for one warp. Cost: the group is read two times (RMS)
// or three times (layer norm) and written once; later reads hit the caches. In steps of one row a fused
// kernel usually takes its place (emit_fused_row.c), with the same order of sums.
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
             "{\n" PTX_ROW_REGS "    .reg .pred %more, %first;\n"
             "    .reg .u32 %thread, %lane, %place, %i, %group;\n"
             "    .reg .u64 %at, %px, %py, %pw, %pb, %from;\n"
             "    .reg .f32 %v, %w, %mean, %sum, %other, %root;\n",
             threads);
    if (threads > 32)
        PTX_FILL(p, "    .shared .align 16 .b8 partials[$0];\n", threads / 8);
}

// Sets %at, the offset of the thread's first element in x and y, and %px, its address in x.
static void norm_places(struct ptx *p, const struct ptx_norm *n)
{
    PTX_FILL(p,
             PTX_ROW "    mov.u32 %thread, %tid.x;\n"
                     "    mov.u32 %group, %ctaid.y;\n"
                     "    mul.wide.u32 %at, %row, $2;\n"
                     "    mad.wide.u32 %at, %group, $3, %at;\n"
                     "    mad.wide.u32 %at, %thread, 4, %at;\n" PTX_ADDRESS("%px", "x") "    add.u64 %px, %px, %at;\n",
             0, ptx_count_at(n->rows), 4 * n->width, 4 * n->group);
}

// Sums %sum over the CTA, with the same bits in all threads: a butterfly within each warp, then the warps in order.
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

// A loop over the thread's elements. The text between EACH_BEGIN and EACH_END finds the element in %v. Marks: $0 is
// the length of the group, $1 the number of threads, $2 four times that.
//   label  string literal: a name that the labels of the loop begin with
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

// Sets %mean and %root.
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
             EACH_BEGIN("SQUARE") "    sub.rn.f32 %v, %v, %mean;\n"
                                  "    fma.rn.f32 %sum, %v, %v, %sum;\n" EACH_END("SQUARE"),
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
        PTX_LINES(p, PTX_ADDRESS("%pw", "gain") "    mad.wide.u32 %pw, %thread, 4, %pw;\n");
    if (n->bias)
        PTX_LINES(p, PTX_ADDRESS("%pb", "bias") "    mad.wide.u32 %pb, %thread, 4, %pb;\n");
    PTX_FILL(p,
             EACH_BEGIN("APPLY") "    sub.rn.f32 %v, %v, %mean;\n"
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
             "    add.u64 %py, %py, $2;\n" EACH_END("APPLY") "    ret;\n"
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
