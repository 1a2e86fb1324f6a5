// Emits `top`, which finds the `keep` largest logits of each row, sorted. Chosen when a step asks for its top_k
// instead of all logits, which saves the copy of the whole rows to the host. Naively: sort the row by logit (the
// lower id first if equal) and take the first ones.
//
// Each CTA reduces a chunk of a row to its first `keep` keys; further launches reduce the keys of the previous launch
// (gpu_top.c). A key is 64 bits, and the larger key comes first, as in kernels/top_k.h: the high half has the logit's
// bits, mapped so that unsigned order is the order of the values; the low half has the complement of the id. All keys
// of finite logits differ, so the result does not depend on the order of comparisons.
//
// A chunk is reduced in shared memory by bitonic sorting. First runs of `keep` keys are sorted, descending in the
// first half of the chunk, ascending in the second. Then the two halves are merged elementwise by maximum: the maxima
// of a descending and an ascending run are the `keep` largest of both, and they are a bitonic sequence, which
// log2(keep) passes sort. This halves the chunk, and is repeated until one run is left. With keep = 1 it is a search
// for the maximum.
//
// Grid: x the row, y the chunk, of 64 to 4096 items (1024 for small `keep`). The block has a quarter as many threads,
// but 32 to 512. Shared memory: 8 bytes per item, at most 32 KB. Cost: logits are read once; sorting the runs takes
// log2(keep) * (log2(keep) + 1) / 2 passes over the chunk.
#include "kernels/ptx/emit_ops.h"

// The largest chunk is CHUNK_FEW items if keep <= FEW, else CHUNK_MOST. BUFFER_KEY is the bytes of a key.
enum { CHUNK_MOST = 4096, CHUNK_FEW = 1024, FEW = 4, THREADS_MOST = 512, BUFFER_KEY = 8 };

uint32_t ptx_top_chunk(uint32_t n, uint32_t keep)
{
    uint32_t most = keep <= FEW ? CHUNK_FEW : CHUNK_MOST, chunk = MAX(64u, 4 * keep);
    while (chunk < most && chunk < n)
        chunk *= 2;
    return chunk;
}

static uint32_t threads_of(uint32_t chunk)
{
    return MIN((uint32_t)THREADS_MOST, MAX(32u, chunk / 4));
}

static void top_head(struct ptx *p, const struct ptx_top *o, uint32_t chunk)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: the $1 first of $2 a row, $3 a CTA\n"
             ".visible .entry top_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 x,\n"
             "    .param .u64 y)\n",
             o->node, o->keep, o->n, chunk);
    PTX_FILL(p,
             ".maxntid $0, 1, 1\n"
             "{\n" PTX_ROW_REGS "    .reg .pred %end, %more, %last, %falls, %odd;\n"
             "    .reg .u32 %t, %part, %i, %j, %item, %keys, %at, %bits, %sign, %high, %low;\n"
             "    .reg .u32 %size, %stride, %width, %pairs, %mask, %k;\n"
             "    .reg .u64 %px, %py, %from, %a, %b, %less, %greater;\n"
             "    .reg .f32 %v;\n"
             "    .shared .align 8 .b8 buffer[$1];\n",
             threads_of(chunk), BUFFER_KEY * chunk);
    PTX_FILL(p,
             PTX_ROW "    mov.u32 %t, %tid.x;\n"
                     "    mov.u32 %part, %ctaid.y;\n"
                     "    mov.u32 %keys, buffer;\n" PTX_ADDRESS(
                         "%px", "x") "    mad.wide.u32 %px, %row, $0, %px;\n" PTX_ADDRESS("%py", "y"),
             o->n * (o->keys ? 8 : 4), ptx_count_at(ROWS_OUTPUTS));
}

// Sets %a to the key of logit %item. A logit that is not finite gets the largest key, whose id is -1.
static void top_read_logit(struct ptx *p)
{
    PTX_FILL(p,
             "    mad.wide.u32 %from, %item, 4, %px;\n"
             "    ld.global.f32 %v, [%from];\n"
             "    add.rn.f32 %v, %v, 0f00000000;\n"
             "    mov.b32 %bits, %v;\n"
             "    shr.s32 %sign, %bits, 31;\n"
             "    or.b32 %sign, %sign, $0;\n"
             "    xor.b32 %high, %bits, %sign;\n"
             "    not.b32 %low, %item;\n"
             "    and.b32 %bits, %bits, $1;\n"
             "    setp.eq.u32 %odd, %bits, $1;\n"
             "    selp.b32 %high, $2, %high, %odd;\n"
             "    selp.b32 %low, 0, %low, %odd;\n"
             "    mov.b64 %a, {%low, %high};\n",
             0x80000000u, 0x7f800000u, 0xffffffffu);
}

// Loads the chunk's keys to shared memory; keys beyond the end of the row are 0. Runs of the previous launch are
// sorted in descending order and are reversed in the second half of the chunk.
static void top_load(struct ptx *p, const struct ptx_top *o, uint32_t chunk)
{
    PTX_LINES(p, "    mov.u32 %i, %t;\n"
                 "LOAD:\n"
                 "    mov.u32 %item, %i;\n");
    if (o->keys && o->keep > 1)
        PTX_FILL(p,
                 "    setp.ge.u32 %more, %i, $0;\n"
                 "    @%more xor.b32 %item, %item, $1;\n",
                 chunk / 2, o->keep - 1);
    PTX_FILL(p,
             "    mad.lo.u32 %item, %part, $0, %item;\n"
             "    mov.u64 %a, 0;\n"
             "    setp.ge.u32 %end, %item, $1;\n"
             "    @%end bra PUT;\n",
             chunk, o->n);
    if (o->keys)
        PTX_LINES(p, "    mad.wide.u32 %from, %item, 8, %px;\n"
                     "    ld.global.u64 %a, [%from];\n");
    else
        top_read_logit(p);
    PTX_FILL(p,
             "PUT:\n"
             "    mad.lo.u32 %at, %i, 8, %keys;\n"
             "    st.shared.u64 [%at], %a;\n"
             "    add.u32 %i, %i, $0;\n"
             "    setp.lt.u32 %more, %i, $1;\n"
             "    @%more bra LOAD;\n"
             "    bar.sync 0;\n",
             threads_of(chunk), chunk);
}

// Compare-exchange passes over the first %width keys, with strides from %stride down to 1. Of each pair of keys, the
// larger one goes first where the index of the first key has no bit of %mask, otherwise last. $0 is the number of
// threads.
//   label  string literal: a name that the labels of the loops begin with
#define PASSES(label)                                                                                                  \
    "    shr.u32 %pairs, %width, 1;\n" label "_STRIDE:\n"                                                              \
    "    mov.u32 %i, %t;\n" label "_PAIR:\n"                                                                           \
    "    setp.ge.u32 %end, %i, %pairs;\n"                                                                              \
    "    @%end bra " label "_DONE;\n"                                                                                  \
    "    sub.u32 %j, %stride, 1;\n"                                                                                    \
    "    and.b32 %j, %i, %j;\n"                                                                                        \
    "    shl.b32 %at, %i, 1;\n"                                                                                        \
    "    sub.u32 %j, %at, %j;\n"                                                                                       \
    "    mad.lo.u32 %at, %j, 8, %keys;\n"                                                                              \
    "    and.b32 %j, %j, %mask;\n"                                                                                     \
    "    setp.eq.u32 %falls, %j, 0;\n"                                                                                 \
    "    mad.lo.u32 %j, %stride, 8, %at;\n"                                                                            \
    "    ld.shared.u64 %a, [%at];\n"                                                                                   \
    "    ld.shared.u64 %b, [%j];\n"                                                                                    \
    "    min.u64 %less, %a, %b;\n"                                                                                     \
    "    max.u64 %greater, %a, %b;\n"                                                                                  \
    "    selp.b64 %a, %greater, %less, %falls;\n"                                                                      \
    "    selp.b64 %b, %less, %greater, %falls;\n"                                                                      \
    "    st.shared.u64 [%at], %a;\n"                                                                                   \
    "    st.shared.u64 [%j], %b;\n"                                                                                    \
    "    add.u32 %i, %i, $0;\n"                                                                                        \
    "    bra " label "_PAIR;\n" label "_DONE:\n"                                                                       \
    "    bar.sync 0;\n"                                                                                                \
    "    shr.u32 %stride, %stride, 1;\n"                                                                               \
    "    setp.ne.u32 %more, %stride, 0;\n"                                                                             \
    "    @%more bra " label "_STRIDE;\n"

// Sorts runs of `keep` keys by runs of 2, 4, and so on. Runs that the next size joins are descending and ascending in
// turn; in the last size, the first half of the chunk is descending, the second ascending.
static void top_sort(struct ptx *p, const struct ptx_top *o, uint32_t chunk)
{
    PTX_FILL(p,
             "    mov.u32 %width, $1;\n"
             "    mov.u32 %size, 2;\n"
             "SIZE:\n"
             "    setp.eq.u32 %last, %size, $2;\n"
             "    selp.b32 %mask, $3, %size, %last;\n"
             "    shr.u32 %stride, %size, 1;\n" PASSES("SORT") "    shl.b32 %size, %size, 1;\n"
                                                               "    setp.le.u32 %more, %size, $2;\n"
                                                               "    @%more bra SIZE;\n",
             threads_of(chunk), chunk, o->keep, chunk / 2);
}

// Halves the chunk by maxima, sorting the runs after each step, until one run is left.
static void top_halve(struct ptx *p, const struct ptx_top *o, uint32_t chunk)
{
    PTX_FILL(p,
             "    mov.u32 %width, $1;\n"
             "HALVE:\n"
             "    mov.u32 %i, %t;\n"
             "TAKE:\n"
             "    setp.ge.u32 %end, %i, %width;\n"
             "    @%end bra TAKEN;\n"
             "    mad.lo.u32 %at, %i, 8, %keys;\n"
             "    mad.lo.u32 %j, %width, 8, %at;\n"
             "    ld.shared.u64 %a, [%at];\n"
             "    ld.shared.u64 %b, [%j];\n"
             "    max.u64 %a, %a, %b;\n"
             "    st.shared.u64 [%at], %a;\n"
             "    add.u32 %i, %i, $0;\n"
             "    bra TAKE;\n"
             "TAKEN:\n"
             "    bar.sync 0;\n",
             threads_of(chunk), chunk / 2);
    if (o->keep > 1)
        PTX_FILL(p,
                 "    setp.eq.u32 %last, %width, $1;\n" // the only run is descending
                 "    shr.u32 %mask, %width, 1;\n"
                 "    selp.b32 %mask, 0, %mask, %last;\n"
                 "    mov.u32 %stride, $2;\n" PASSES("MERGE"),
                 threads_of(chunk), o->keep, o->keep / 2);
    PTX_FILL(p,
             "    shr.u32 %width, %width, 1;\n"
             "    setp.ge.u32 %more, %width, $0;\n"
             "    @%more bra HALVE;\n",
             o->keep);
}

// Stores the run: as keys if the row has several chunks, else as candidates (logit, id), the step's top_k of them.
static void top_write(struct ptx *p, const struct ptx_top *o, uint32_t parts)
{
    PTX_LINES(p, "    mad.lo.u32 %at, %t, 8, %keys;\n");
    if (parts > 1) {
        PTX_FILL(p,
                 "    setp.ge.u32 %end, %t, $0;\n"
                 "    @%end ret;\n"
                 "    ld.shared.u64 %a, [%at];\n"
                 "    mad.lo.u32 %item, %row, $1, %part;\n"
                 "    mad.lo.u32 %item, %item, $0, %t;\n"
                 "    mad.wide.u32 %py, %item, 8, %py;\n"
                 "    st.global.u64 [%py], %a;\n"
                 "    ret;\n"
                 "}\n",
                 o->keep, parts);
        return;
    }
    PTX_FILL(p,
             "    ld.global.u32 %k, [%step+$1];\n"
             "    min.u32 %k, %k, $0;\n"
             "    setp.ge.u32 %end, %t, %k;\n"
             "    @%end ret;\n"
             "    ld.shared.u64 %a, [%at];\n"
             "    mov.b64 {%low, %high}, %a;\n"
             "    shr.s32 %sign, %high, 31;\n"
             "    not.b32 %sign, %sign;\n"
             "    or.b32 %sign, %sign, $2;\n"
             "    xor.b32 %bits, %high, %sign;\n"
             "    not.b32 %low, %low;\n"
             "    mad.lo.u32 %item, %row, %k, %t;\n"
             "    mad.wide.u32 %py, %item, 8, %py;\n"
             "    st.global.v2.u32 [%py], {%bits, %low};\n"
             "    ret;\n"
             "}\n",
             o->keep, (uint32_t)offsetof(struct ptx_step, top_k), 0x80000000u);
}

int ptx_emit_top(struct ptx *p, const struct ptx_top *o, struct ptx_launch *launch, struct error *err)
{
    bool power = o->keep && !(o->keep & (o->keep - 1));
    if (ptx_check_width("top", o->n, err))
        return -1;
    if (!power || o->keep > PTX_TOP_MAX || (o->keys && o->n % o->keep != 0))
        return fail(err, E_GPU, "top: the %u first of %u", o->keep, o->n);
    uint32_t chunk = ptx_top_chunk(o->n, o->keep), parts = ptx_tiles(o->n, chunk);
    top_head(p, o, chunk);
    top_load(p, o, chunk);
    if (!o->keys && o->keep > 1)
        top_sort(p, o, chunk);
    top_halve(p, o, chunk);
    top_write(p, o, parts);
    *launch = (struct ptx_launch){.entry = "top", .grid = {1, parts, 1}, .block = {threads_of(chunk), 1, 1}};
    return ptx_finish(p, err);
}
