// Emits top_NODE, which finds the `keep` largest logits of each row; emit_ops.h describes the launches. It is chosen
// for a step that wants only its top_k largest logits. `keep` is then top_k rounded up to a power of two; greedy
// sampling without banned tokens gets keep = 1.
//
// The naive loop that the launches equal together:
//     for each row:
//         keys = for each id: a 64-bit key of (logit, id), as candidate_key in kernels/top_k.h
//         sort keys in descending order
//         y[row][0 .. top_k-1] = (logit, id) of the first keys
// The keys of finite logits all differ, so the result does not depend on the order in which keys are compared.
//
// CTA (row, c) reduces chunk c of the row, ptx_top_chunk items, to its `keep` largest keys in descending order:
//   1. It loads the chunk as keys to shared memory (8 bytes an item, at most 32 KB). Places beyond the end of the row
//      get key 0, which is less than any logit's key.
//   2. It sorts each run of `keep` keys by a bitonic sort: descending in the first half of the chunk, ascending in the
//      second half. If the items are keys of the launch before, they are sorted already, and step 1 reverses the runs
//      of the second half.
//   3. It halves the chunk until one run is left: key[i] = max(key[i], key[i + half]). The maxima of a descending and
//      an ascending run are the `keep` largest keys of both, in bitonic order, which log2(keep) passes sort again.
// With keep = 1 nothing is sorted, and step 3 is the reduction to the maximum.
//
// A CTA has a fourth as many threads as items, but at least 32 and at most 512. A thread handles one pair of keys at
// a time. The cost is one read of the row from global memory, then log2(keep) * (log2(keep) + 1) / 2 passes over the
// chunk in shared memory to sort it, then 1 + log2(keep) passes for each halving, over half as many keys each time.
// Every pass ends with a barrier. With keep = 64 one launch covers 4096 logits, and two launches 262144.
#include "kernels/ptx/emit_ops.h"

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
             "{\n"
             PTX_ROW_REGS
             "    .reg .pred %end, %more, %last, %falls, %odd;\n"
             "    .reg .u32 %t, %part, %i, %j, %item, %keys, %at, %bits, %sign, %high, %low;\n"
             "    .reg .u32 %size, %stride, %width, %pairs, %mask, %k;\n"
             "    .reg .u64 %px, %py, %from, %a, %b, %less, %greater;\n"
             "    .reg .f32 %v;\n"
             "    .shared .align 8 .b8 buffer[$1];\n",
             threads_of(chunk), BUFFER_KEY * chunk);
    PTX_FILL(p,
             PTX_ROW
             "    mov.u32 %t, %tid.x;\n"
             "    mov.u32 %part, %ctaid.y;\n"
             "    mov.u32 %keys, buffer;\n"
             PTX_ADDRESS("%px", "x")
             "    mad.wide.u32 %px, %row, $0, %px;\n"
             PTX_ADDRESS("%py", "y"),
             o->n * (o->keys ? 8 : 4), ptx_count_at(ROWS_OUTPUTS));
}

// Sets %a to the key of logit %item. The key of a logit that is not finite (an infinity or NaN) is greater than all
// others and has the id -1. Adding 0 makes 0 of -0.
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

// Step 1: loads the chunk's items to shared memory as keys. Keys of the launch before lie in descending runs; the xor
// of %item reverses the runs of the second half.
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

// The passes of a bitonic merge over the first %width keys in shared memory, with strides %stride, %stride / 2, .. 1. A
// pass compares each key i with key i + stride, where i has the bit `stride` clear, and puts the greater key first if
// i & %mask is 0, otherwise the lesser one. A barrier follows each pass.
//   label       string literal: a prefix that makes the labels unique
//   %width      register: number of keys, a power of two; unchanged
//   %stride     register: the first stride, a power of two; 0 afterwards
//   %mask       register: the bits of i that select ascending order; unchanged
//   $0          threads of the CTA
// Changes %a, %b, %i, %j, %at, %pairs, %less, %greater, %falls, %end and %more.
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

// Step 2: sorts the runs of `keep` keys; the length of sorted runs grows from 2 over 4 to `keep`. Descending and
// ascending runs alternate, because the next length merges one of each. At the last length the runs of the chunk's
// first half are sorted descending, those of the second half ascending.
static void top_sort(struct ptx *p, const struct ptx_top *o, uint32_t chunk)
{
    PTX_FILL(p,
             "    mov.u32 %width, $1;\n"
             "    mov.u32 %size, 2;\n"
             "SIZE:\n"
             "    setp.eq.u32 %last, %size, $2;\n"
             "    selp.b32 %mask, $3, %size, %last;\n"
             "    shr.u32 %stride, %size, 1;\n"
             PASSES("SORT")
             "    shl.b32 %size, %size, 1;\n"
             "    setp.le.u32 %more, %size, $2;\n"
             "    @%more bra SIZE;\n",
             threads_of(chunk), chunk, o->keep, chunk / 2);
}

// Step 3: halves the keys until one run is left. After each halving the runs of the first half are sorted descending,
// those of the second half ascending; the last run is sorted descending.
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
                 "    setp.eq.u32 %last, %width, $1;\n" // the last run is sorted descending
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

// Stores the first keys, one a thread. If a row has several chunks, these are `keep` keys at y[row][chunk], which the
// next launch reads. Otherwise these are min(top_k, keep) candidates at y[row], each a logit and an id.
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
