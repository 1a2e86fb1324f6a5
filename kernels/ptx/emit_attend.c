// Attention over the pages of the KV cache: a CTA has a row and a query head, and passes over the keys that it sees in
// spans of 128 positions counted from position 0, the softmax online.
//
// In a span a thread is first a key: its score with the query, which lies in shared memory. Then it is a dimension of
// the values, in one of several groups of threads where heads are narrow: group g takes the keys g, g + groups, ... of
// each page, and the groups' sums are added in order at the end.
#include "kernels/ptx/emit_kv.h"

#include <math.h>

enum { THREADS = 128, WARPS = THREADS / 32, KEYS = THREADS, SPAN_PAGES = KEYS / KV_PAGE };

#define LOG2_E 1.44269504088896340736

// How the threads share the dimensions of a value.
struct columns {
    uint32_t wide;   // threads side by side: a power of two, 32 to THREADS
    uint32_t groups; // of such threads
    uint32_t each;   // dimensions of a thread: d, d + wide, ..
};

static struct columns columns_of(uint32_t dim)
{
    struct columns c = {32, 0, 0};
    while (c.wide < THREADS && c.wide < dim)
        c.wide *= 2;
    c.groups = THREADS / c.wide;
    c.each = ptx_tiles(dim, c.wide);
    return c;
}

static void attend_head(struct ptx *p, const struct ptx_attend *a, const struct columns *c)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: attention of $1 heads, $2 of keys of $3 and values of $4\n"
             ".visible .entry attend_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 positions,\n"
             "    .param .u64 tables,\n"
             "    .param .u64 pages,\n"
             "    .param .u64 q,\n"
             "    .param .u64 y)\n"
             ".maxntid 128, 1, 1\n"
             ".minnctapersm 4\n" // without it ptxas aims at so many that it spills
             "{\n" PTX_ROW_REGS PTX_KV_REGS,
             a->node, a->heads, a->heads_kv, a->k.dim, a->v.dim);
    PTX_FILL(p,
             "    .reg .pred %more, %first, %seen, %outside, %live, %less;\n"
             "    .reg .u32 %thread, %lane, %warp, %head, %head_kv, %i, %low, %base, %key, %end, %group, %column;\n"
             "    .reg .u32 %read_q, %read_p, %parts, %write_p, %from_slot, %to_slot, %last;\n"
             "    .reg .u64 %pq, %py, %pk, %pv, %stop;\n"
             "    .reg .f32 %score, %top, %sum, %most, %part, %other, %keep, %weight, %value, %t, %u, %s;\n"
             "    .reg .f32 %dot<4>, %o<$0>;\n"
             "    .shared .align 16 .b8 query[$1];\n"
             "    .shared .align 16 .b8 weights[$2];\n"
             "    .shared .align 16 .b8 partials[64];\n",
             c->each, 4 * (uint32_t)align_up(a->k.dim, 4), 4 * KEYS);
    if (c->groups > 1)
        PTX_FILL(p, "    .shared .align 16 .b8 sums[$0];\n", 4 * THREADS * c->each);
}

// The row's range of keys, %low to %position; the query to shared memory; nothing seen yet.
static void attend_begin(struct ptx *p, const struct ptx_attend *a, const struct columns *c)
{
    PTX_FILL(p,
             PTX_ROW PTX_KV_TABLE "    mov.u32 %thread, %tid.x;\n"
                                  "    and.b32 %lane, %thread, 31;\n"
                                  "    shr.u32 %warp, %thread, 5;\n"
                                  "    setp.eq.u32 %first, %lane, 0;\n"
                                  "    and.b32 %column, %thread, $2;\n"
                                  "    div.u32 %group, %thread, $3;\n"
                                  "    mov.u32 %head, %ctaid.y;\n"
                                  "    div.u32 %head_kv, %head, $4;\n"
                                  "    mov.u32 %parts, partials;\n"
                                  "    mov.u32 %write_p, weights;\n"
                                  "    mad.lo.u32 %write_p, %thread, 4, %write_p;\n",
             0, ptx_count_at(a->rows), c->wide - 1, c->wide, a->heads / a->heads_kv);
    if (a->window)
        PTX_FILL(p,
                 "    max.u32 %low, %position, $0;\n"
                 "    sub.u32 %low, %low, $0;\n",
                 a->window - 1);
    else
        PTX_LINES(p, "    mov.u32 %low, 0;\n");
    PTX_FILL(p,
             PTX_ADDRESS("%pq", "q") "    mad.wide.u32 %pq, %row, $0, %pq;\n"
                                     "    mad.wide.u32 %pq, %head, $1, %pq;\n"
                                     "    mov.u32 %i, %thread;\n"
                                     "QUERY:\n"
                                     "    setp.ge.u32 %more, %i, $2;\n"
                                     "    @%more bra QUERY_END;\n"
                                     "    mad.wide.u32 %pk, %i, 4, %pq;\n"
                                     "    ld.global.f32 %value, [%pk];\n"
                                     "    mov.u32 %read_q, query;\n"
                                     "    mad.lo.u32 %read_q, %i, 4, %read_q;\n"
                                     "    st.shared.f32 [%read_q], %value;\n"
                                     "    add.u32 %i, %i, 128;\n"
                                     "    bra QUERY;\n"
                                     "QUERY_END:\n"
                                     "    mov.f32 %top, 0fFF800000;\n"
                                     "    mov.f32 %sum, 0f00000000;\n",
             4 * a->heads * a->k.dim, 4 * a->k.dim, a->k.dim);
    for (uint32_t j = 0; j < c->each; j++)
        PTX_FILL(p, "    mov.f32 %o$0, 0f00000000;\n", j);
    PTX_LINES(p, "    and.b32 %base, %low, 0xffffff80;\n"
                 "    bar.sync 0;\n");
}

// ---- keys. %pk is the key's row, %read_q the query's, %stop the row's end; what comes is the sum of %dot0 to %dot3.

static void dot_f32(struct ptx *p, uint32_t dim)
{
    if (dim % 4) {
        PTX_LINES(p, "    .reg .f32 %k0, %q0;\n"
                     "DOT:\n"
                     "    ld.global.f32 %k0, [%pk];\n"
                     "    ld.shared.f32 %q0, [%read_q];\n"
                     "    fma.rn.f32 %dot0, %k0, %q0, %dot0;\n"
                     "    add.u64 %pk, %pk, 4;\n"
                     "    add.u32 %read_q, %read_q, 4;\n");
        return;
    }
    PTX_LINES(p, "    .reg .f32 %k<4>, %q<4>;\n"
                 "DOT:\n"
                 "    ld.global.v4.f32 {%k0, %k1, %k2, %k3}, [%pk];\n"
                 "    ld.shared.v4.f32 {%q0, %q1, %q2, %q3}, [%read_q];\n");
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    fma.rn.f32 %dot$0, %k$0, %q$0, %dot$0;\n", i);
    PTX_LINES(p, "    add.u64 %pk, %pk, 16;\n"
                 "    add.u32 %read_q, %read_q, 16;\n");
}

// %k0 from 16 bits, %bits.
static void widen(struct ptx *p, bool bf16)
{
    if (bf16)
        PTX_LINES(p, "    cvt.u32.u16 %word, %bits;\n"
                     "    shl.b32 %word, %word, 16;\n"
                     "    mov.b32 %k0, %word;\n");
    else
        PTX_LINES(p, "    mov.b16 %h, %bits;\n"
                     "    cvt.f32.f16 %k0, %h;\n");
}

static void dot_16(struct ptx *p, bool bf16, uint32_t dim)
{
    PTX_LINES(p, "    .reg .b32 %w<4>, %word;\n"
                 "    .reg .b16 %bits, %high;\n"
                 "    .reg .f16 %h;\n"
                 "    .reg .f32 %k0, %q<4>;\n"
                 "DOT:\n");
    if (dim % 8) {
        PTX_LINES(p, "    ld.global.b16 %bits, [%pk];\n");
        widen(p, bf16);
        PTX_LINES(p, "    ld.shared.f32 %q0, [%read_q];\n"
                     "    fma.rn.f32 %dot0, %k0, %q0, %dot0;\n"
                     "    add.u64 %pk, %pk, 2;\n"
                     "    add.u32 %read_q, %read_q, 4;\n");
        return;
    }
    PTX_LINES(p, "    ld.global.v4.b32 {%w0, %w1, %w2, %w3}, [%pk];\n");
    for (uint32_t i = 0; i < 8; i++) {
        if (i % 4 == 0)
            PTX_FILL(p, "    ld.shared.v4.f32 {%q0, %q1, %q2, %q3}, [%read_q+$0];\n", 4 * i);
        if (i % 2 == 0)
            PTX_FILL(p, "    mov.b32 {%bits, %high}, %w$0;\n", i / 2);
        else
            PTX_LINES(p, "    mov.b16 %bits, %high;\n");
        widen(p, bf16);
        PTX_FILL(p, "    fma.rn.f32 %dot$0, %k0, %q$0, %dot$0;\n", i % 4);
    }
    PTX_LINES(p, "    add.u64 %pk, %pk, 16;\n"
                 "    add.u32 %read_q, %read_q, 32;\n");
}

// A block: its scale, then 32 quants, whose products are summed in a float each quarter and scaled.
#define BLOCK_HEAD                                                                                                     \
    "    .reg .b16 %bits;\n"                                                                                           \
    "    .reg .f16 %h;\n"                                                                                              \
    "    .reg .s32 %n;\n"                                                                                              \
    "    .reg .b32 %word;\n"                                                                                           \
    "    .reg .f32 %d, %k0, %q0, %b<4>;\n"                                                                             \
    "DOT:\n"                                                                                                           \
    "    ld.global.b16 %bits, [%pk];\n"                                                                                \
    "    mov.b16 %h, %bits;\n"                                                                                         \
    "    cvt.f32.f16 %d, %h;\n"                                                                                        \
    "    mov.f32 %b0, 0f00000000;\n"                                                                                   \
    "    mov.f32 %b1, 0f00000000;\n"                                                                                   \
    "    mov.f32 %b2, 0f00000000;\n"                                                                                   \
    "    mov.f32 %b3, 0f00000000;\n"

static void block_product(struct ptx *p, uint32_t element)
{
    PTX_FILL(p,
             "    cvt.rn.f32.s32 %k0, %n;\n"
             "    ld.shared.f32 %q0, [%read_q+$0];\n"
             "    fma.rn.f32 %b$1, %k0, %q0, %b$1;\n",
             4 * element, element % 4);
}

static void block_end(struct ptx *p, uint32_t bytes)
{
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    fma.rn.f32 %dot$0, %d, %b$0, %dot$0;\n", i);
    PTX_FILL(p,
             "    add.u64 %pk, %pk, $0;\n"
             "    add.u32 %read_q, %read_q, 128;\n",
             bytes);
}

static void dot_q8_0(struct ptx *p)
{
    PTX_LINES(p, BLOCK_HEAD);
    for (uint32_t i = 0; i < 16; i++) {
        PTX_FILL(p,
                 "    ld.global.u16 %word, [%pk+$0];\n"
                 "    bfe.s32 %n, %word, 0, 8;\n",
                 2 + 2 * i);
        block_product(p, 2 * i);
        PTX_LINES(p, "    bfe.s32 %n, %word, 8, 8;\n");
        block_product(p, 2 * i + 1);
    }
    block_end(p, 34);
}

static void dot_q4_0(struct ptx *p)
{
    PTX_LINES(p, BLOCK_HEAD);
    for (uint32_t i = 0; i < 8; i++) {
        PTX_FILL(p, "    ld.global.u16 %word, [%pk+$0];\n", 2 + 2 * i);
        for (uint32_t nibble = 0; nibble < 4; nibble++) {
            PTX_FILL(p,
                     "    bfe.u32 %n, %word, $0, 4;\n"
                     "    sub.s32 %n, %n, 8;\n",
                     4 * nibble);
            block_product(p, 2 * i + nibble / 2 + (nibble % 2 ? 16 : 0));
        }
    }
    block_end(p, 18);
}

// %score: of the thread's key, %key, with the query; minus infinity where the row does not see it.
static void attend_scores(struct ptx *p, const struct ptx_attend *a)
{
    uint32_t row_bytes = (uint32_t)dtype_row_bytes(a->k.type, a->k.dim);
    PTX_FILL(p,
             "SPAN:\n"
             "    add.u32 %key, %base, %thread;\n"
             "    mov.f32 %score, 0fFF800000;\n"
             "    setp.le.u32 %seen, %key, %position;\n"
             "    setp.ge.and.u32 %seen, %key, %low, %seen;\n"
             "    @!%seen bra SCORED;\n"
             "    {\n"
             "    shr.u32 %entry, %key, 6;\n" PTX_KV_PAGE("%pk") "    and.b32 %slot, %key, 63;\n"
                                                                 "    mad.lo.u32 %slot, %head_kv, 64, %slot;\n"
                                                                 "    mad.wide.u32 %pk, %slot, $0, %pk;\n"
                                                                 "    add.u64 %pk, %pk, $1;\n"
                                                                 "    add.u64 %stop, %pk, $0;\n"
                                                                 "    mov.u32 %read_q, query;\n"
                                                                 "    mov.f32 %dot0, 0f00000000;\n"
                                                                 "    mov.f32 %dot1, 0f00000000;\n"
                                                                 "    mov.f32 %dot2, 0f00000000;\n"
                                                                 "    mov.f32 %dot3, 0f00000000;\n",
             row_bytes, a->k.offset, a->k.page_bytes);
    if (a->k.type == DT_F32)
        dot_f32(p, a->k.dim);
    else if (a->k.type == DT_Q8_0)
        dot_q8_0(p);
    else if (a->k.type == DT_Q4_0)
        dot_q4_0(p);
    else
        dot_16(p, a->k.type == DT_BF16, a->k.dim);
    PTX_FILL(p,
             "    setp.lt.u64 %more, %pk, %stop;\n"
             "    @%more bra DOT;\n"
             "    add.f32 %dot0, %dot0, %dot1;\n"
             "    add.f32 %dot2, %dot2, %dot3;\n"
             "    add.f32 %score, %dot0, %dot2;\n"
             "    mul.f32 %score, %score, 0f$x0;\n",
             ptx_float_bits(a->scale));
}

// cap tanh(score / cap): by powers where 1 - 2 / (e^2u + 1) would cancel.
static void attend_softcap(struct ptx *p, float cap)
{
    PTX_FILL(p,
             "    abs.f32 %u, %score;\n"
             "    mul.f32 %u, %u, 0f$x0;\n"
             "    mul.f32 %t, %u, 0f$x1;\n"
             "    ex2.approx.ftz.f32 %t, %t;\n"
             "    add.f32 %t, %t, 0f3F800000;\n"
             "    rcp.rn.f32 %t, %t;\n"
             "    fma.rn.f32 %t, %t, 0fC0000000, 0f3F800000;\n"
             "    setp.lt.f32 %less, %u, 0f3E800000;\n"
             "    mul.f32 %s, %u, %u;\n"
             "    @%less fma.rn.f32 %t, %s, 0f$x2, 0f$x3;\n"
             "    @%less fma.rn.f32 %t, %t, %s, 0f$x4;\n"
             "    @%less fma.rn.f32 %t, %t, %s, 0f$x5;\n"
             "    @%less mul.f32 %t, %t, %s;\n"
             "    @%less fma.rn.f32 %t, %t, %u, %u;\n"
             "    mul.f32 %t, %t, 0f$x6;\n"
             "    copysign.f32 %score, %score, %t;\n",
             ptx_float_bits((float)(1 / (double)cap)), ptx_float_bits((float)(2 * LOG2_E)),
             ptx_float_bits((float)(62 / 2835.0)), ptx_float_bits((float)(-17 / 315.0)),
             ptx_float_bits((float)(2 / 15.0)), ptx_float_bits((float)(-1 / 3.0)), ptx_float_bits(cap));
}

// One number of the CTA from one a thread, %part: the same bits in all threads.
static void attend_reduce(struct ptx *p, bool most)
{
    for (uint32_t by = 16; by; by /= 2) {
        PTX_FILL(p, "    shfl.sync.bfly.b32 %other, %part, $0, 31, 0xffffffff;\n", by);
        if (most)
            PTX_LINES(p, "    max.f32 %part, %part, %other;\n");
        else
            PTX_LINES(p, "    add.f32 %part, %part, %other;\n");
    }
    PTX_FILL(p,
             "    mad.lo.u32 %i, %warp, 4, %parts;\n"
             "    @%first st.shared.f32 [%i+$0], %part;\n"
             "    bar.sync 0;\n"
             "    ld.shared.f32 %part, [%parts+$0];\n",
             most ? 0 : 16);
    for (uint32_t warp = 1; warp < WARPS; warp++) {
        PTX_FILL(p, "    ld.shared.f32 %other, [%parts+$0];\n", (most ? 0 : 16) + 4 * warp);
        if (most)
            PTX_LINES(p, "    max.f32 %part, %part, %other;\n");
        else
            PTX_LINES(p, "    add.f32 %part, %part, %other;\n");
    }
}

// The weights of the span's keys, what earlier sums are worth, %keep, and the new sum. A score that is a NaN is lost in
// the maximum, but not in the sums.
static void attend_weights(struct ptx *p, uint32_t each)
{
    PTX_LINES(p, "    }\n"
                 "SCORED:\n"
                 "    mov.f32 %part, %score;\n");
    attend_reduce(p, true);
    PTX_FILL(p,
             "    max.f32 %most, %top, %part;\n"
             "    sub.f32 %keep, %top, %most;\n"
             "    mul.f32 %keep, %keep, 0f$x0;\n"
             "    ex2.approx.ftz.f32 %keep, %keep;\n"
             "    mov.f32 %top, %most;\n"
             "    sub.f32 %part, %score, %most;\n"
             "    mul.f32 %part, %part, 0f$x0;\n"
             "    ex2.approx.ftz.f32 %part, %part;\n"
             "    @!%seen mov.f32 %part, 0f00000000;\n"
             "    st.shared.f32 [%write_p], %part;\n",
             ptx_float_bits((float)LOG2_E));
    attend_reduce(p, false);
    PTX_LINES(p, "    fma.rn.f32 %sum, %sum, %keep, %part;\n");
    for (uint32_t j = 0; j < each; j++)
        PTX_FILL(p, "    mul.f32 %o$0, %o$0, %keep;\n", j);
}

// ---- values. %value: element %column + $0 of the row, from %from on.

static void value_load(struct ptx *p, enum dtype type, uint32_t first)
{
    if (type == DT_F32) {
        PTX_FILL(p, "    ld.global.f32 %value, [%from+$0];\n", 4 * first);
    } else if (type == DT_F16) {
        PTX_FILL(p,
                 "    ld.global.b16 %bits, [%from+$0];\n"
                 "    mov.b16 %h, %bits;\n"
                 "    cvt.f32.f16 %value, %h;\n",
                 2 * first);
    } else if (type == DT_BF16) {
        PTX_FILL(p,
                 "    ld.global.u16 %word, [%from+$0];\n"
                 "    shl.b32 %word, %word, 16;\n"
                 "    mov.b32 %value, %word;\n",
                 2 * first);
    } else { // whole blocks: `first` is a multiple of 32
        uint32_t at = first / 32 * (type == DT_Q8_0 ? 34 : 18);
        PTX_FILL(p,
                 "    ld.global.b16 %bits, [%from+$0];\n"
                 "    mov.b16 %h, %bits;\n"
                 "    cvt.f32.f16 %d, %h;\n"
                 "    add.u64 %pb, %from, %quant;\n",
                 at);
        if (type == DT_Q8_0)
            PTX_FILL(p, "    ld.global.s8 %n, [%pb+$0];\n", at + 2);
        else
            PTX_FILL(p,
                     "    ld.global.u8 %word, [%pb+$0];\n"
                     "    shr.u32 %word, %word, %shift;\n"
                     "    and.b32 %word, %word, 15;\n"
                     "    sub.s32 %n, %word, 8;\n",
                     at + 2);
        PTX_LINES(p, "    cvt.rn.f32.s32 %value, %n;\n"
                     "    mul.f32 %value, %value, %d;\n");
    }
}

// Where the thread's column lies in a row, and for blocks in its block.
static void value_column(struct ptx *p, enum dtype type)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .b16 %bits;\n"
                 "    .reg .f16 %h;\n"
                 "    .reg .b32 %word;\n"
                 "    .reg .s32 %n;\n"
                 "    .reg .f32 %d;\n"
                 "    .reg .u32 %shift;\n"
                 "    .reg .u64 %pb, %quant, %column_at, %from;\n");
    if (type == DT_Q8_0)
        PTX_LINES(p, "    and.b32 %i, %column, 31;\n"
                     "    cvt.u64.u32 %quant, %i;\n"
                     "    shr.u32 %i, %column, 5;\n"
                     "    mul.wide.u32 %column_at, %i, 34;\n");
    else if (type == DT_Q4_0)
        PTX_LINES(p, "    and.b32 %i, %column, 15;\n"
                     "    cvt.u64.u32 %quant, %i;\n"
                     "    shr.u32 %i, %column, 4;\n"
                     "    and.b32 %i, %i, 1;\n"
                     "    shl.b32 %shift, %i, 2;\n"
                     "    shr.u32 %i, %column, 5;\n"
                     "    mul.wide.u32 %column_at, %i, 18;\n");
    else
        PTX_FILL(p, "    mul.wide.u32 %column_at, %column, $0;\n", type == DT_F32 ? 4 : 2);
}

// All threads of a warp have one group, so that these branches are uniform, which spares ptxas spills.
// The values of a page of the span: slots %from_slot to %to_slot, from the group's first on.
static void value_page(struct ptx *p, const struct ptx_attend *a, const struct columns *c, uint32_t page)
{
    uint32_t row_bytes = (uint32_t)dtype_row_bytes(a->v.type, a->v.dim);
    PTX_FILL(p,
             "    add.u32 %key, %base, $0;\n"
             "    add.u32 %last, %key, 64;\n"
             "    max.u32 %from_slot, %key, %low;\n"
             "    add.u32 %to_slot, %position, 1;\n"
             "    min.u32 %to_slot, %to_slot, %last;\n"
             "    setp.ge.u32 %outside, %from_slot, %to_slot;\n"
             "    @%outside bra.uni PAGE$1_END;\n"
             "    shr.u32 %entry, %key, 6;\n",
             KV_PAGE * page, page);
    PTX_FILL(p,
             PTX_KV_PAGE("%pv") "    and.b32 %slot, %from_slot, 63;\n"
                                "    add.u32 %slot, %slot, %group;\n"
                                "    add.u32 %from_slot, %from_slot, %group;\n"
                                "    mad.lo.u32 %slot, %head_kv, 64, %slot;\n"
                                "    mad.wide.u32 %pv, %slot, $0, %pv;\n"
                                "    add.u64 %pv, %pv, $1;\n"
                                "    add.u64 %pv, %pv, %column_at;\n"
                                "    sub.u32 %read_p, %from_slot, %base;\n"
                                "    mov.u32 %i, weights;\n"
                                "    mad.lo.u32 %read_p, %read_p, 4, %i;\n",
             row_bytes, a->v.offset, a->v.page_bytes);
    PTX_FILL(p,
             "PAGE$0:\n"
             "    setp.ge.u32 %outside, %from_slot, %to_slot;\n"
             "    @%outside bra.uni PAGE$0_END;\n"
             "    ld.shared.f32 %weight, [%read_p];\n",
             page);
    for (uint32_t j = 0; j < c->each; j++) {
        // threads beyond the last dimension read the first of theirs, and what comes of it is not stored
        if ((j + 1) * c->wide > a->v.dim)
            PTX_FILL(p,
                     "    setp.lt.u32 %live, %column, $0;\n"
                     "    sub.u64 %from, %pv, %column_at;\n"
                     "    selp.b64 %from, %pv, %from, %live;\n",
                     a->v.dim - j * c->wide);
        else
            PTX_LINES(p, "    mov.u64 %from, %pv;\n");
        value_load(p, a->v.type, j * c->wide);
        PTX_FILL(p, "    fma.rn.f32 %o$0, %weight, %value, %o$0;\n", j);
    }
    PTX_FILL(p,
             "    add.u32 %from_slot, %from_slot, $1;\n"
             "    add.u64 %pv, %pv, $2;\n"
             "    add.u32 %read_p, %read_p, $3;\n"
             "    bra.uni PAGE$0;\n"
             "PAGE$0_END:\n",
             page, c->groups, c->groups * row_bytes, 4 * c->groups);
}

// The groups' sums in order, to group 0.
static void add_groups(struct ptx *p, const struct columns *c)
{
    for (uint32_t j = 0; j < c->each; j++)
        PTX_FILL(p,
                 "    mov.u32 %i, sums;\n"
                 "    mad.lo.u32 %i, %thread, 4, %i;\n"
                 "    st.shared.f32 [%i+$0], %o$1;\n",
                 4 * THREADS * j, j);
    PTX_LINES(p, "    bar.sync 0;\n"
                 "    setp.ne.u32 %outside, %group, 0;\n"
                 "    @%outside ret;\n");
    for (uint32_t j = 0; j < c->each; j++)
        for (uint32_t group = 1; group < c->groups; group++)
            PTX_FILL(p,
                     "    ld.shared.f32 %other, [%i+$0];\n"
                     "    add.f32 %o$1, %o$1, %other;\n",
                     4 * (THREADS * j + c->wide * group), j);
}

static void attend_end(struct ptx *p, const struct ptx_attend *a, const struct columns *c)
{
    PTX_LINES(p, "    }\n"
                 "    bar.sync 0;\n"
                 "    add.u32 %base, %base, 128;\n"
                 "    setp.le.u32 %more, %base, %position;\n"
                 "    @%more bra.uni SPAN;\n");
    if (c->groups > 1)
        add_groups(p, c);
    PTX_FILL(p,
             "    rcp.rn.f32 %sum, %sum;\n" PTX_ADDRESS("%py", "y") "    mad.wide.u32 %py, %row, $0, %py;\n"
                                                                    "    mad.wide.u32 %py, %head, $1, %py;\n"
                                                                    "    mad.wide.u32 %py, %column, 4, %py;\n",
             4 * a->heads * a->v.dim, 4 * a->v.dim);
    for (uint32_t j = 0; j < c->each; j++)
        PTX_FILL(p,
                 "    setp.lt.u32 %live, %column, $0;\n"
                 "    mul.f32 %o$1, %o$1, %sum;\n"
                 "    @%live st.global.f32 [%py+$2], %o$1;\n",
                 a->v.dim - j * c->wide, j, 4 * j * c->wide);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
}

int ptx_emit_attend(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch, struct error *err)
{
    if (!a->heads || !a->heads_kv || a->heads % a->heads_kv || a->heads > UINT16_MAX)
        return fail(err, E_GPU, "attend: %u heads on %u", a->heads, a->heads_kv);
    if (ptx_check_kv("attend", &a->k, a->heads_kv, err) || ptx_check_kv("attend", &a->v, a->heads_kv, err) ||
        ptx_check_width("attend", a->heads * MAX(a->k.dim, a->v.dim), err))
        return -1;
    if (!isfinite(a->scale) || !isfinite(a->softcap) || a->softcap < 0)
        return fail(err, E_GPU, "attend: a scale of %g, a cap of %g", (double)a->scale, (double)a->softcap);
    struct columns c = columns_of(a->v.dim);
    attend_head(p, a, &c);
    attend_begin(p, a, &c);
    attend_scores(p, a);
    if (a->softcap > 0)
        attend_softcap(p, a->softcap);
    attend_weights(p, c.each);
    value_column(p, a->v.type);
    for (uint32_t page = 0; page < SPAN_PAGES; page++)
        value_page(p, a, &c, page);
    attend_end(p, a, &c);
    *launch = (struct ptx_launch){.entry = "attend", .grid = {1, a->heads, 1}, .block = {THREADS, 1, 1}};
    return ptx_finish(p, err);
}
