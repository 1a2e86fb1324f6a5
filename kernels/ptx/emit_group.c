// Emits the kernel group_NODE, which sorts the places of rows by their expert. ptx_emit_group in emit_matmul.h defines
// the output. It runs before the first product of a choice of experts whose class has groups.
//
// The naive loop, a counting sort:
//     for each place i: count[ids[i]]++
//     for each expert e: start[e] = the sum of the counts before e; write ceil(count[e] / 64) groups of e
//     for each place i: list[start[ids[i]]++] = i
//
// One CTA of 1024 threads does it. The counts are in shared memory, 4 bytes an expert; they become the starts. The
// first and the last loop use all threads and atomics on shared memory. The second loop is a prefix sum that warp 0
// computes for 32 experts at a time. The order of places within an expert varies from run to run; no result depends
// on it, because the product of a place depends only on its own row and matrix.
//
// Each id is read twice, and the whole is one short launch for all products of a choice.
#include "kernels/ptx/emit_matmul.h"
#include "kernels/ptx/emit_ops.h"

enum { THREADS = 1024 };

static void group_head(struct ptx *p, const struct ptx_group *g)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: $1 places a row, in groups of one of $2 experts\n"
             ".visible .entry group_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 ids,\n"
             "    .param .u64 groups,\n"
             "    .param .u32 n_rows)\n"
             ".maxntid $3, 1, 1\n"
             "{\n"
             "    .reg .pred %in, %more;\n"
             "    .reg .u32 %thread, %all, %i, %row, %place, %id, %at, %counts, %from;\n"
             "    .reg .u64 %ids, %groups, %pointer;\n"
             "    .shared .align 4 .b8 counts[$4];\n"
             "    mov.u32 %thread, %tid.x;\n"
             "    mov.u32 %counts, counts;\n"
             "    ld.param.u64 %ids, [ids];\n"
             "    cvta.to.global.u64 %ids, %ids;\n"
             "    ld.param.u64 %groups, [groups];\n"
             "    cvta.to.global.u64 %groups, %groups;\n"
             "    // rows that the step has, of those that its bucket has\n"
             "    ld.param.u64 %pointer, [step];\n"
             "    cvta.to.global.u64 %pointer, %pointer;\n"
             "    ld.global.u32 %i, [%pointer+$5];\n"
             "    ld.param.u32 %all, [n_rows];\n"
             "    min.u32 %all, %all, %i;\n"
             "    mul.lo.u32 %all, %all, $1;\n",
             g->node, g->n_used, g->n_experts, THREADS, 4 * g->n_experts, ptx_count_at(g->rows));
}

static void clear_counts(struct ptx *p, const struct ptx_group *g)
{
    PTX_FILL(p,
             "    mov.u32 %i, %thread;\n"
             "    mov.u32 %id, 0;\n"
             "CLEAR:\n"
             "    setp.ge.u32 %in, %i, $0;\n"
             "    @%in bra CLEARED;\n"
             "    mad.lo.u32 %at, %i, 4, %counts;\n"
             "    st.shared.u32 [%at], %id;\n"
             "    add.u32 %i, %i, $1;\n"
             "    bra CLEAR;\n"
             "CLEARED:\n"
             "    bar.sync 0;\n",
             g->n_experts, THREADS);
}

// A loop over the thread's places. The code between the two macros sees %i, the place, and %at, the address of its
// expert's count. Places whose id is not an expert are skipped.
//   label  prefix of the labels
//   $0     n_used
//   $1     ids_stride
//   $2     n_experts
//   $3     THREADS
#define PLACES_BEGIN(label)                                                                                            \
    "    mov.u32 %i, %thread;\n" label ":\n"                                                                           \
    "    setp.ge.u32 %in, %i, %all;\n"                                                                                 \
    "    @%in bra " label "_END;\n"                                                                                    \
    "    div.u32 %row, %i, $0;\n"                                                                                      \
    "    mul.lo.u32 %place, %row, $0;\n"                                                                               \
    "    sub.u32 %place, %i, %place;\n"                                                                                \
    "    mad.wide.u32 %pointer, %row, $1, %ids;\n"                                                                     \
    "    mad.wide.u32 %pointer, %place, 4, %pointer;\n"                                                                \
    "    ld.global.u32 %id, [%pointer];\n"                                                                             \
    "    setp.ge.u32 %in, %id, $2;\n"                                                                                  \
    "    @%in bra " label "_NEXT;\n"                                                                                   \
    "    mad.lo.u32 %at, %id, 4, %counts;\n"
#define PLACES_END(label)                                                                                              \
    label "_NEXT:\n"                                                                                                   \
          "    add.u32 %i, %i, $3;\n"                                                                                  \
          "    bra " label ";\n" label "_END:\n"

static void count(struct ptx *p, const struct ptx_group *g)
{
    PTX_FILL(p, PLACES_BEGIN("COUNT") "    red.shared.add.u32 [%at], 1;\n" PLACES_END("COUNT") "    bar.sync 0;\n",
             g->n_used, g->ids_stride, g->n_experts, THREADS);
}

// Replaces %groups_to (if groups) or %places_to by the sum of its values over lanes 0 to this one.
static void sum_of_lanes(struct ptx *p, bool groups)
{
    for (uint32_t by = 1; by < 32; by *= 2) {
        if (groups)
            PTX_FILL(p, "    shfl.sync.up.b32 %other, %groups_to, $0, 0, 0xffffffff;\n", by);
        else
            PTX_FILL(p, "    shfl.sync.up.b32 %other, %places_to, $0, 0, 0xffffffff;\n", by);
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %thread, $0;\n"
                 "    selp.b32 %other, %other, 0, %in;\n",
                 by);
        if (groups)
            PTX_LINES(p, "    add.u32 %groups_to, %groups_to, %other;\n");
        else
            PTX_LINES(p, "    add.u32 %places_to, %places_to, %other;\n");
    }
}

// Stores the start of the lane's expert %i, and writes the groups of its %n places, from group number %group on. The
// first place of a group is given as the index of its word in the output. Then goes on to the next 32 experts, with
// %places and %made, the numbers of places and groups so far.
static void write_groups(struct ptx *p, const struct ptx_group *g)
{
    PTX_FILL(p,
             "    sub.u32 %first, %places_to, %n;\n"
             "    add.u32 %first, %first, %places;\n"
             "    sub.u32 %group, %groups_to, %tall;\n"
             "    add.u32 %group, %group, %made;\n"
             "    @%real st.shared.u32 [%at], %first;\n"
             "    add.u32 %first, %first, %from;\n"
             "    mad.wide.u32 %pointer, %group, 16, %groups;\n"
             "GROUP:\n"
             "    setp.eq.u32 %in, %n, 0;\n"
             "    @%in bra GROUPED;\n"
             "    min.u32 %now, %n, $0;\n"
             "    st.global.v4.u32 [%pointer+16], {%i, %first, %now, %zero};\n"
             "    sub.u32 %n, %n, %now;\n"
             "    add.u32 %first, %first, %now;\n"
             "    add.u64 %pointer, %pointer, 16;\n"
             "    bra GROUP;\n"
             "GROUPED:\n"
             "    bar.warp.sync 0xffffffff;\n"
             "    shfl.sync.idx.b32 %other, %places_to, 31, 31, 0xffffffff;\n"
             "    add.u32 %places, %places, %other;\n"
             "    shfl.sync.idx.b32 %other, %groups_to, 31, 31, 0xffffffff;\n"
             "    add.u32 %made, %made, %other;\n"
             "    add.u32 %i, %i, 32;\n"
             "    sub.u32 %other, %i, %thread;\n"
             "    setp.lt.u32 %more, %other, $1;\n"
             "    @%more bra EXPERTS;\n",
             g->size, g->n_experts);
}

// The size of a group is a power of two.
static uint32_t shift_of(const struct ptx_group *g)
{
    uint32_t shift = 0;
    while (1u << shift < g->size)
        shift++;
    return shift;
}

// Turns the counts into starts and writes the groups: warp 0, a lane for each of 32 experts at a time. %from becomes
// the index of the word at which the list begins.
static void make_groups(struct ptx *p, const struct ptx_group *g)
{
    PTX_FILL(p,
             "    // the list begins behind the groups that there may be\n"
             "    shr.u32 %from, %all, $1;\n"
             "    add.u32 %from, %from, $2;\n"
             "    mul.lo.u32 %from, %from, 4;\n"
             "    setp.ge.u32 %in, %thread, 32;\n"
             "    @%in bra MADE;\n"
             "    {\n"
             "    .reg .pred %real;\n"
             "    .reg .u32 %n, %tall, %places_to, %groups_to, %places, %made, %first, %group, %now, %other, %zero;\n"
             "    mov.u32 %zero, 0;\n"
             "    mov.u32 %places, 0;\n"
             "    mov.u32 %made, 0;\n"
             "    mov.u32 %i, %thread;\n"
             "EXPERTS:\n"
             "    setp.lt.u32 %real, %i, $0;\n"
             "    mad.lo.u32 %at, %i, 4, %counts;\n"
             "    mov.u32 %n, 0;\n"
             "    @%real ld.shared.u32 %n, [%at];\n"
             "    add.u32 %tall, %n, $3;\n"
             "    shr.u32 %tall, %tall, $1;\n"
             "    mov.u32 %places_to, %n;\n"
             "    mov.u32 %groups_to, %tall;\n",
             g->n_experts, shift_of(g), g->n_experts + 1, g->size - 1);
    sum_of_lanes(p, false);
    sum_of_lanes(p, true);
    write_groups(p, g);
    PTX_LINES(p, "    setp.eq.u32 %in, %thread, 0;\n"
                 "    @%in st.global.u32 [%groups], %made;\n"
                 "    }\n"
                 "MADE:\n"
                 "    bar.sync 0;\n");
}

// Stores each place in the next entry of its expert.
static void write_list(struct ptx *p, const struct ptx_group *g)
{
    PTX_FILL(p,
             PLACES_BEGIN("LIST")
             "    atom.shared.add.u32 %at, [%at], 1;\n"
             "    add.u32 %at, %at, %from;\n"
             "    mad.wide.u32 %pointer, %at, 4, %groups;\n"
             "    st.global.u32 [%pointer], %i;\n"
             PLACES_END("LIST")
             "    ret;\n"
             "}\n",
             g->n_used, g->ids_stride, g->n_experts, THREADS);
}

int ptx_emit_group(struct ptx *p, const struct ptx_group *g, struct ptx_launch *launch, struct error *err)
{
    if (!g->n_experts || g->n_experts > PTX_GROUP_EXPERTS || !g->n_used || g->n_used > g->n_experts)
        return fail(err, E_GPU, "group: %u of %u experts", g->n_used, g->n_experts);
    if (g->ids_stride % 4)
        return fail(err, E_GPU, "group: rows that are not aligned");
    if (g->size < PTX_GROUP_LEAST || g->size > PTX_MANY_ROWS || (g->size & (g->size - 1)))
        return fail(err, E_GPU, "group: groups of %u", g->size);
    group_head(p, g);
    clear_counts(p, g);
    count(p, g);
    make_groups(p, g);
    write_list(p, g);
    *launch = (struct ptx_launch){.entry = "group", .grid = {1, 1, 1}, .block = {THREADS, 1, 1}};
    return ptx_finish(p, err);
}
