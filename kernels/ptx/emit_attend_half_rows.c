// Emits attention on tensor cores with one row per CTA: `attend_half` (form ROWS) and `attend_half_lone` (form LONE,
// which skips rows that emit_attend_half_tiles.c serves). emit_attend_parts.h has the loop that it equals and the order
// of its sums; emit_attend_fold.c emits the end of the kernel. Chosen for generation, where a step has few rows, and
// for single rows of larger steps.
//
// Grid: x the row, y the KV head (times the blocks of up to 16 query heads that share it), z the first split; a CTA
// processes every gridDim.z-th split of the row's positions. The block is 4 warps, and the query heads are the rows of
// the matrix instructions. A round is the next four pages of the split, one for each warp:
//   scores   A warp multiplies the keys of its page with all queries and publishes the largest score of each head.
//   weights  With the largest scores of the pages before it, each warp knows the one that its weights are relative to.
//   values   The products of weights and values go to shared memory; all threads add those of the four pages in order.
//
// Keys and values come by cp.async, 16 rows at a time, to a ring of several such units for each warp, so that a warp
// waits for nobody but memory and needs no registers for what is in flight. The first keys of the next round are on
// their way while the values of this one are multiplied.
//
// Shared memory, at most 99 KB, dynamic: the products of the four pages (up to 16 KB) and the rings; and 1 KB of
// numbers of heads.
//
// Cost: a page of keys and values is read once for up to 16 query heads of a row; rows do not share reads. Of the 16
// rows of a matrix instruction those without a query head are zeros: memory is the limit, and tensor cores have time.
#include "kernels/ptx/emit_attend_half.h"
#include "kernels/ptx/emit_attend_rows.h"

enum { WARPS = 4, THREADS = 32 * WARPS, PRODUCTS_MOST = 1024, RING_MOST = 8 };

// The numbers of heads in shared memory, [warp][16 heads] each: of its page the largest score, what the sums before it
// are multiplied by, the sum of its weights; and the largest score of the split up to it.
enum number { PAGE_TOP, PAGE_KEEP, PAGE_SUM, SPLIT_TOP, NUMBERS };
enum { NUMBER_BYTES = 64 * WARPS };

struct half_rows {
    struct half_shape h;
    struct attend_shape fold;       // for emit_attend_fold.c
    uint32_t products;              // bytes of the products of a page: [head][dim and 8 more]
    uint32_t unit, ring, converted; // bytes of a unit of the ring, units of a ring, bytes of a unit that became f16
    uint32_t slabs, slab;           // parts of the values that follow each other; elements of one
    uint32_t steps;                 // units of a page: of keys, then of each part of the values
    bool recalls;                   // long heads: places are computed again and again
    uint32_t query;                 // bytes of the fragments of queries in shared memory; 0: they are in registers
};

static uint32_t unit_bytes(const struct half_part *part)
{
    return HALF_UNIT * (part->converted ? part->row : part->stride);
}

static struct half_rows shape_of(const struct ptx_attend *a)
{
    struct half_rows s = {.h = {.k = half_part_of(&a->k), .v = half_part_of(&a->v), .copiers = 32}};
    struct attend_shape *f = &s.fold;
    const uint32_t group = a->heads / a->heads_kv, most = MIN(16u, PRODUCTS_MOST / a->v.dim);
    s.h.group = f->group = group;
    s.h.blocks = f->blocks = ptx_tiles(group, most);
    s.h.heads = f->heads = ptx_tiles(group, f->blocks);
    s.h.rows = s.h.heads > 8 ? 2 : 1;
    s.slabs = a->v.dim > 128 ? 2 : 1;
    s.slab = a->v.dim / s.slabs;
    s.steps = HALF_UNITS * (1 + s.slabs);
    for (f->wide = 32; f->wide < THREADS && f->wide < a->v.dim;)
        f->wide *= 2;
    f->groups = THREADS / f->wide;
    f->each = ptx_tiles(a->v.dim, f->wide);
    f->per_group = ptx_tiles(f->heads, f->groups);
    f->places = a->splits + (a->window != 0);
    f->partial = (uint32_t)align_up(a->v.dim + 2, 4);
    f->base_2 = true;
    s.products = 4 * s.h.heads * (a->v.dim + 8);
    s.unit = MAX(unit_bytes(&s.h.k), unit_bytes(&s.h.v));
    s.converted = HALF_UNIT * MAX(s.h.k.converted ? s.h.k.stride : 0, s.h.v.converted ? s.h.v.stride : 0);
    s.recalls = MAX(a->k.dim, a->v.dim) > 128;
    s.query = a->k.dim > 128 ? 32 * a->k.dim : 0;
    s.ring = (HALF_SHARED - 2048 - s.query) / WARPS - s.products - s.converted;
    s.ring = MIN(s.ring / s.unit, (uint32_t)RING_MOST);
    return s;
}

static uint32_t shared_bytes(const struct half_rows *s)
{
    return WARPS * (s->products + s->ring * s->unit + s->converted) + s->query;
}

static uint32_t number_at(enum number number)
{
    return NUMBER_BYTES * (uint32_t)number;
}

static void declare(struct ptx *p, const struct ptx_attend *a, const struct half_rows *s)
{
    ptx_header(p, 70, 80);
    PTX_FILL(p,
             "\n"
             "// node $0: attention of $1 heads, $2 of keys of $3 and values of $4; a CTA has a row and $5 heads\n"
             ".extern .shared .align 16 .b8 pages_of_warps[];\n",
             a->node, a->heads, a->heads_kv, a->k.dim, a->v.dim, s->h.heads);
    if (a->form == PTX_ATTEND_LONE)
        PTX_FILL(p, ".visible .entry attend_half_lone_$0(\n", a->node);
    else
        PTX_FILL(p, ".visible .entry attend_half_$0(\n", a->node);
    PTX_LINES(p, "    .param .u64 step,\n"
                 "    .param .u64 positions,\n"
                 "    .param .u64 tables,\n"
                 "    .param .u64 pages,\n"
                 "    .param .u64 q,\n");
    if (a->sinks)
        PTX_LINES(p, "    .param .u64 sinks,\n");
    PTX_LINES(p, "    .param .u64 partials,\n"
                 "    .param .u64 counters,\n"
                 "    .param .u64 y)\n"
                 ".maxntid 128, 1, 1\n"
                 ".minnctapersm 2\n"
                 "{\n" PTX_ROW_REGS PTX_KV_REGS HALF_REGS);
    PTX_FILL(p,
             "    .reg .pred %more, %alone, %live, %has_page, %has_next, %writes;\n"
             "    .reg .u32 %thread, %head, %block, %head_kv, %column, %group, %low, %low_page, %last_page, %end_page;\n"
             "    .reg .u32 %shift, %split, %first_split, %splits, %z, %lanes, %near, %reds, %mine, %pages, %ring;\n"
             "    .reg .u32 %ring_end, %put, %get, %products, %queries, %nothing;\n"
             "    .reg .s32 %next_valid;\n"
             "    .reg .u64 %pq, %py, %pk, %pv, %next_k, %next_v, %page_at, %part;\n"
             "    .reg .f32 %new, %worth, %value, %pt0, %pt1, %pt2, %pt3;\n"
             "    .reg .b32 %q<$0>;\n"
             "    .reg .f32 %vtop<$1>, %vsum<$1>, %ttop<$1>, %tsum<$1>, %o<$2>, %t<$2>;\n"
             "    .reg .f32 %c<$3>;\n"
             "    .reg .pred %has<$1>, %column_live<$4>, %has_row<2>;\n"
             "    .shared .align 16 .b8 numbers[$5];\n",
             s->query ? 4 : a->k.dim / 4, s->fold.per_group, s->fold.per_group * s->fold.each, s->slab / 2, s->fold.each,
             NUMBER_BYTES * NUMBERS + 16);
}

// ---- places

// Sets the CTA's heads, the thread's heads and columns of the sums, and its addresses in shared memory. All follow from
// %thread and %block, the CTA's y.
static void find_places(struct ptx *p, const struct ptx_attend *a, const struct half_rows *s)
{
    const struct attend_shape *f = &s->fold;
    half_places(p, &s->h);
    PTX_FILL(p,
             "    div.u32 %head_kv, %block, $0;\n"
             "    mul.lo.u32 %i, %head_kv, $0;\n"
             "    sub.u32 %block, %block, %i;\n"
             "    mul.lo.u32 %block, %block, $1;\n" // the first head of the CTA within the group
             "    and.b32 %column, %thread, $2;\n"
             "    div.u32 %group, %thread, $3;\n"
             "    mul.lo.u32 %group, %group, $4;\n" // the first head of the thread's set within the block
             "    mov.u32 %reds, numbers;\n"
             "    mad.lo.u32 %mine, %warp, 64, %reds;\n"
             "    mad.lo.u32 %mine, %g, 4, %mine;\n"
             "    setp.eq.u32 %writes, %col, 0;\n",
             f->blocks, f->heads, f->wide - 1, f->wide, f->per_group);
    PTX_FILL(p,
             "    mov.u32 %pages, pages_of_warps;\n"
             "    mad.lo.u32 %products, %warp, $0, %pages;\n"
             "    add.u32 %ring, %pages, $1;\n"
             "    mad.lo.u32 %ring, %warp, $2, %ring;\n"
             "    add.u32 %work, %ring, $3;\n"
             "    mov.u32 %ring_end, %work;\n"
             "    add.u32 %queries, %pages, $4;\n"
             "    mad.lo.u32 %queries, %lane, 16, %queries;\n",
             s->products, WARPS * s->products, s->ring * s->unit + s->converted, s->ring * s->unit,
             shared_bytes(s) - s->query);
    for (uint32_t i = 0; i < f->per_group; i++)
        PTX_FILL(p,
                 "    add.u32 %i, %group, $0;\n"
                 "    setp.lt.u32 %has$0, %i, $1;\n"
                 "    add.u32 %i, %i, %block;\n"
                 "    setp.lt.and.u32 %has$0, %i, $2, %has$0;\n",
                 i, f->heads, f->group);
    for (uint32_t j = 0; j < f->each; j++)
        PTX_FILL(p,
                 "    add.u32 %i, %column, $1;\n"
                 "    setp.lt.u32 %column_live$0, %i, $2;\n",
                 j, j * f->wide, a->v.dim);
}

// Computes the places again, from numbers that ptxas does not know: so registers that products need do not keep them.
static void recall_places(struct ptx *p, const struct ptx_attend *a, const struct half_rows *s)
{
    if (!s->recalls)
        return;
    PTX_FILL(p,
             "    mov.u32 %i, numbers;\n"
             "    ld.shared.u32 %nothing, [%i+$0];\n" // 0
             "    mov.u32 %thread, %tid.x;\n"
             "    add.u32 %thread, %thread, %nothing;\n"
             "    mov.u32 %block, %ctaid.y;\n"
             "    add.u32 %block, %block, %nothing;\n",
             NUMBER_BYTES * NUMBERS);
    find_places(p, a, s);
}

// Sets the totals to what they are before the first split.
static void begin_totals(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *f)
{
    for (uint32_t i = 0; i < f->per_group; i++)
        PTX_FILL(p,
                 "    mov.f32 %ttop$0, 0fFF800000;\n"
                 "    mov.f32 %tsum$0, 0f$x1;\n",
                 i, ptx_float_bits(a->sinks ? HALF_ONE : 0));
    for (uint32_t i = 0; i < f->per_group * f->each; i++)
        PTX_FILL(p, "    mov.f32 %t$0, 0f00000000;\n", i);
    if (!a->sinks)
        return;
    PTX_FILL(p,
             PTX_ADDRESS("%at", "sinks")
             "    mul.lo.u32 %i, %head_kv, $0;\n"
             "    add.u32 %i, %i, %block;\n"
             "    add.u32 %i, %i, %group;\n"
             "    mad.wide.u32 %at, %i, 4, %at;\n",
             f->group);
    for (uint32_t i = 0; i < f->per_group; i++)
        PTX_FILL(p,
                 "    @%has$0 ld.global.f32 %ttop$0, [%at+$1];\n"
                 "    mul.rn.f32 %ttop$0, %ttop$0, 0f$x2;\n",
                 i, 4 * i, ptx_float_bits((float)LOG2_E));
}

// The fragments of the queries, which are the same in each warp. Heads that the CTA does not have are zeros. Those of
// more than 128 elements go to shared memory, as otherwise registers would not do.
static void load_queries(struct ptx *p, const struct ptx_attend *a, const struct half_rows *s)
{
    PTX_FILL(p,
             "    {\n"
             "    .reg .f32 %x<$0>;\n"
             "    .reg .u64 %pq<2>;\n"
             PTX_ADDRESS("%pq", "q")
             "    mad.wide.u32 %pq, %row, $1, %pq;\n"
             "    mad.wide.u32 %pq, %col, 8, %pq;\n"
             "    mul.lo.u32 %head, %head_kv, $2;\n"
             "    add.u32 %head, %head, %block;\n"
             "    add.u32 %head, %head, %g;\n"
             "    mad.wide.u32 %pq0, %head, $3, %pq;\n"
             "    add.u64 %pq1, %pq0, $4;\n",
             a->k.dim / 4, 4 * a->heads * a->k.dim, s->h.group, 4 * a->k.dim, 32 * a->k.dim);
    if (s->query)
        PTX_FILL(p, "    .reg .b32 %q<$0>;\n", a->k.dim / 4);
    for (uint32_t i = s->h.rows == 1; i < a->k.dim / 4; i += 2)
        PTX_FILL(p, "    mov.b32 %q$0, 0;\n", i);
    for (uint32_t r = 0; r < s->h.rows; r++) {
        PTX_FILL(p,
                 "    add.u32 %i, %g, $1;\n"
                 "    setp.lt.u32 %has_row$0, %i, $2;\n"
                 "    add.u32 %i, %i, %block;\n"
                 "    setp.lt.and.u32 %has_row$0, %i, $3, %has_row$0;\n",
                 r, 8 * r, s->h.heads, s->h.group);
        half_query(p, a, r, true);
    }
    PTX_LINES(p, "    setp.eq.u32 %in, %thread, %lane;\n"); // warp 0
    for (uint32_t step = 0; s->query && step < a->k.dim / 16; step++)
        PTX_FILL(p,
                 "    @%in st.shared.v4.b32 [%queries+$0], {%q$1, %q$2, %q$3, %q$4};\n",
                 512 * step, 4 * step, 4 * step + 1, 4 * step + 2, 4 * step + 3);
    PTX_LINES(p, "    }\n");
    if (s->recalls)
        PTX_FILL(p,
                 "    mov.u32 %nothing, 0;\n"
                 "    setp.eq.u32 %in, %thread, 0;\n"
                 "    @%in st.shared.u32 [%reds+$0], %nothing;\n"
                 "    bar.sync 0;\n",
                 NUMBER_BYTES * NUMBERS);
}

// ---- the ring

// Begins to copy step `step` of a page: units 0 to 3 of its keys, then those of its values, once for each part; and
// then those of the next page of the warp. Then goes on to the next place of the ring.
static void bring(struct ptx *p, const struct half_rows *s, uint32_t step, uint32_t label)
{
    const bool next = step >= s->steps;
    const uint32_t unit = step % HALF_UNITS;
    const bool values = step % s->steps >= HALF_UNITS;
    PTX_LINES(p, "    mov.u32 %to, %put;\n");
    if (next)
        PTX_FILL(p, "    @!%has_next bra.uni BROUGHT$0;\n", label);
    if (values)
        ptx_word(p, next ? "    mov.u64 %from, %next_v;\n" : "    mov.u64 %from, %pv;\n");
    else
        ptx_word(p, next ? "    mov.u64 %from, %next_k;\n" : "    mov.u64 %from, %pk;\n");
    if (next)
        PTX_LINES(p, "    sub.s32 %valid, %next_valid, 256;\n");
    else
        PTX_LINES(p, "    mov.s32 %valid, %next_valid;\n");
    half_copy(p, &s->h, values ? &s->h.v : &s->h.k, unit * HALF_UNIT, HALF_UNIT);
    if (next)
        PTX_FILL(p, "BROUGHT$0:\n", label);
    PTX_FILL(p,
             "    cp.async.commit_group;\n"
             "    add.u32 %put, %put, $0;\n"
             "    setp.ge.u32 %in, %put, %ring_end;\n"
             "    selp.u32 %put, %ring, %put, %in;\n",
             s->unit);
}

// Waits for a unit and sets %take to the lane's place in it, as f16. The place of the unit before it becomes free, and
// the unit that follows the ones in flight is begun.
static void take(struct ptx *p, const struct half_rows *s, uint32_t step)
{
    const bool values = step >= HALF_UNITS;
    const struct half_part *part = values ? &s->h.v : &s->h.k;
    PTX_FILL(p,
             "    cp.async.wait_group $0;\n"
             "    bar.warp.sync 0xffffffff;\n",
             s->ring - 2);
    bring(p, s, step + s->ring - 1, step);
    if (part->converted) {
        PTX_LINES(p, "    mov.u32 %raw, %get;\n");
        half_convert(p, &s->h, part, HALF_UNIT, step);
        PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n"
                     "    mov.u32 %take, %work;\n");
    } else {
        PTX_LINES(p, "    mov.u32 %take, %get;\n");
    }
    ptx_word(p, values ? "    add.u32 %take, %take, %lane_v;\n" : "    add.u32 %take, %take, %lane_k;\n");
    PTX_FILL(p,
             "    add.u32 %get, %get, $0;\n"
             "    setp.ge.u32 %in, %get, %ring_end;\n"
             "    selp.u32 %get, %ring, %get, %in;\n",
             s->unit);
}

// Sets `k` and `v` to the keys and values of the KV head in page %entry + %warp + `ahead`.
#define PAGE_OF_WARP(k, v, ahead)                                                                                      \
    "    add.u32 %i, %entry, %warp;\n"                                                                                 \
    "    mad.wide.u32 %place, %i, 4, %table;\n"                                                                        \
    "    ld.global.u32 %page, [%place+" ahead "];\n"                                                                   \
    "    mad.wide.u32 %page_at, %page, $0, %kv;\n"                                                                     \
    "    mad.wide.u32 " k ", %head_kv, $1, %page_at;\n"                                                                \
    "    add.u64 " k ", " k ", $2;\n"                                                                                  \
    "    mad.wide.u32 " v ", %head_kv, $3, %page_at;\n"                                                                \
    "    add.u64 " v ", " v ", $4;\n"

// Sets the first and last page of the split, clears its sums, and begins with the copies of the warp's first page.
static void begin_split(struct ptx *p, const struct ptx_attend *a, const struct half_rows *s)
{
    PTX_LINES(p, "    add.u32 %split, %first_split, %z;\n"
                 "SPLIT:\n"
                 "    shl.b32 %entry, %split, %shift;\n"
                 "    add.u32 %end_page, %split, 1;\n"
                 "    shl.b32 %end_page, %end_page, %shift;\n"
                 "    sub.u32 %end_page, %end_page, 1;\n"
                 "    min.u32 %end_page, %end_page, %last_page;\n"
                 "    max.u32 %entry, %entry, %low_page;\n"
                 "    mov.f32 %top0, 0fFF800000;\n"
                 "    mov.f32 %top1, 0fFF800000;\n"
                 "    mov.u32 %put, %ring;\n"
                 "    mov.u32 %get, %ring;\n");
    for (uint32_t i = 0; i < s->fold.per_group; i++)
        PTX_FILL(p,
                 "    mov.f32 %vtop$0, 0fFF800000;\n"
                 "    mov.f32 %vsum$0, 0f00000000;\n",
                 i);
    for (uint32_t i = 0; i < s->fold.per_group * s->fold.each; i++)
        PTX_FILL(p, "    mov.f32 %o$0, 0f00000000;\n", i);
    PTX_LINES(p, "    add.u32 %i, %entry, %warp;\n"
                 "    setp.le.u32 %has_page, %i, %end_page;\n"
                 "    shl.b32 %base, %i, 6;\n"
                 "    sub.s32 %next_valid, %position, %base;\n"
                 "    @!%has_page bra.uni ROUND;\n");
    PTX_FILL(p, PAGE_OF_WARP("%pk", "%pv", "0"), a->k.page_bytes, KV_PAGE * s->h.k.row, a->k.offset,
             KV_PAGE * s->h.v.row, a->v.offset);
    PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n"); // the ring was read by all lanes
    for (uint32_t step = 0; step < s->ring - 1; step++)
        bring(p, s, step, 0);
}

// ---- a round

// Begins a round. Registers of scores get a value where the warp has no page: otherwise ptxas keeps them for what they
// never hold from the beginning of the kernel on.
static void begin_round(struct ptx *p)
{
    PTX_LINES(p, "ROUND:\n"
                 "    mov.f32 %part0, 0fFF800000;\n"
                 "    mov.f32 %part1, 0fFF800000;\n"
                 "    @%has_page bra.uni SCORES;\n");
    for (uint32_t i = 0; i < 32; i++)
        PTX_FILL(p, "    mov.f32 %s$0, %nil;\n", i);
    PTX_LINES(p, "    bra.uni SCORED;\n"
                 "SCORES:\n");
}

// The scores of the warp's page, and the largest one of each head. %next_valid is the last slot of the page that the
// row sees, and may be behind its end.
static void page_scores(struct ptx *p, const struct ptx_attend *a, const struct half_rows *s)
{
    begin_round(p);
    PTX_FILL(p,
             "    add.u32 %i, %entry, %warp;\n"
             "    shl.b32 %base, %i, 6;\n"
             "    add.u32 %i, %i, $0;\n"
             "    setp.le.u32 %has_next, %i, %end_page;\n"
             "    mov.u64 %next_k, %pk;\n"
             "    mov.u64 %next_v, %pv;\n"
             "    @!%has_next bra.uni PAGE;\n",
             WARPS);
    PTX_FILL(p, PAGE_OF_WARP("%next_k", "%next_v", "16"), a->k.page_bytes, KV_PAGE * s->h.k.row, a->k.offset,
             KV_PAGE * s->h.v.row, a->v.offset);
    PTX_LINES(p, "PAGE:\n");
    recall_places(p, a, s);
    for (uint32_t u = 0; u < HALF_UNITS; u++) {
        take(p, s, u);
        for (uint32_t step = 0; step < a->k.dim / 16; step++) {
            if (s->query)
                PTX_FILL(p, "    ld.shared.v4.b32 {%q0, %q1, %q2, %q3}, [%queries+$0];\n", 512 * step);
            half_score(p, s->query ? 0 : 4 * step, u, 32 * step, !step);
        }
    }
    PTX_LINES(p, "    shl.b32 %i, %col, 1;\n"
                 "    sub.s32 %hi0, %next_valid, %i;\n"
                 "    sub.s32 %lo0, %low, %base;\n"
                 "    setp.ge.s32 %whole, %next_valid, 63;\n"
                 "    setp.le.and.s32 %whole, %lo0, 0, %whole;\n"
                 "    sub.s32 %lo0, %lo0, %i;\n"
                 "    mov.s32 %hi1, %hi0;\n"
                 "    mov.s32 %lo1, %lo0;\n");
    half_tops(p, a, &s->h, 0);
    PTX_LINES(p, "SCORED:\n");
    for (uint32_t r = 0; r < s->h.rows; r++)
        PTX_FILL(p, "    @%writes st.shared.f32 [%mine+$1], %part$0;\n", r, number_at(PAGE_TOP) + 32 * r);
    PTX_LINES(p, "    bar.sync 0;\n");
}

// Sets %before<r> and %new<r> to the largest score of the split before and with the warp's page, and %top<r> to that
// with all pages of the round.
static void round_tops(struct ptx *p, const struct half_rows *s)
{
    for (uint32_t r = 0; r < s->h.rows; r++) {
        PTX_LINES(p, "    mad.lo.u32 %i, %g, 4, %reds;\n");
        for (uint32_t w = 0; w < WARPS; w++)
            PTX_FILL(p, "    ld.shared.f32 %pt$0, [%i+$1];\n", w, number_at(PAGE_TOP) + 64 * w + 32 * r);
        PTX_FILL(p, "    mov.f32 %before$0, %top$0;\n", r);
        for (uint32_t w = 0; w < WARPS - 1; w++)
            PTX_FILL(p,
                     "    setp.gt.u32 %in, %warp, $1;\n"
                     "    @%in max.f32 %before$0, %before$0, %pt$1;\n",
                     r, w);
        for (uint32_t w = 0; w < WARPS; w++)
            PTX_FILL(p, "    max.f32 %top$0, %top$0, %pt$1;\n", r, w);
        PTX_FILL(p, "    max.f32 %new$0, %before$0, %part$0;\n", r);
    }
}

// The products of the page's weights with one part of the values, which go to shared memory.
static void slab_values(struct ptx *p, const struct ptx_attend *a, const struct half_rows *s, uint32_t slab)
{
    for (uint32_t u = 0; u < HALF_UNITS; u++) {
        take(p, s, HALF_UNITS * (1 + slab) + u);
        for (uint32_t n = 0; n < s->slab / 16; n++)
            half_values(p, 8 * n, u, 32 * n + 2 * s->slab * slab, !u);
    }
    PTX_FILL(p,
             "    mad.lo.u32 %dst, %g, $0, %products;\n"
             "    mad.lo.u32 %dst, %col, 8, %dst;\n",
             4 * (a->v.dim + 8));
    for (uint32_t r = 0; r < s->h.rows; r++) {
        PTX_FILL(p,
                 "    add.u32 %i, %g, $0;\n"
                 "    setp.lt.u32 %in, %i, $1;\n",
                 8 * r, s->h.heads);
        for (uint32_t n = 0; n < s->slab / 8; n++)
            PTX_FILL(p, "    @%in st.shared.v2.f32 [%dst+$0], {%c$1, %c$2};\n",
                     32 * r * (a->v.dim + 8) + 32 * n + 4 * s->slab * slab, 4 * n + 2 * r, 4 * n + 2 * r + 1);
    }
}

// The weights of the page, whose numbers go to shared memory, and their products with the values.
static void page_values(struct ptx *p, const struct ptx_attend *a, const struct half_rows *s)
{
    recall_places(p, a, s);
    round_tops(p, s);
    PTX_LINES(p, "    @!%has_page bra.uni MULTIPLIED;\n");
    half_weights(p, &s->h);
    for (uint32_t r = 0; r < s->h.rows; r++)
        PTX_FILL(p,
                 "    @%writes st.shared.f32 [%mine+$1], %keep$0;\n"
                 "    @%writes st.shared.f32 [%mine+$2], %part$0;\n"
                 "    @%writes st.shared.f32 [%mine+$3], %new$0;\n",
                 r, number_at(PAGE_KEEP) + 32 * r, number_at(PAGE_SUM) + 32 * r, number_at(SPLIT_TOP) + 32 * r);
    for (uint32_t slab = 0; slab < s->slabs; slab++)
        slab_values(p, a, s, slab);
    PTX_LINES(p, "MULTIPLIED:\n"
                 "    bar.sync 0;\n");
}

// Adds the products of one page of the round to the sums of the thread's heads and columns.
static void add_page(struct ptx *p, const struct ptx_attend *a, const struct half_rows *s, uint32_t warp)
{
    const struct attend_shape *f = &s->fold;
    PTX_LINES(p, "    mad.lo.u32 %i, %group, 4, %reds;\n");
    PTX_FILL(p,
             "    mad.lo.u32 %j, %group, $0, %pages;\n"
             "    mad.lo.u32 %j, %column, 4, %j;\n",
             4 * (a->v.dim + 8));
    for (uint32_t i = 0; i < f->per_group; i++) {
        PTX_FILL(p,
                 "    mov.f32 %keep, %nil;\n"
                 "    mov.f32 %other, %nil;\n"
                 "    @%has$0 ld.shared.f32 %keep, [%i+$1];\n"
                 "    @%has$0 ld.shared.f32 %other, [%i+$2];\n"
                 "    @%has$0 ld.shared.f32 %vtop$0, [%i+$3];\n"
                 "    fma.rn.f32 %vsum$0, %vsum$0, %keep, %other;\n",
                 i, number_at(PAGE_KEEP) + 64 * warp + 4 * i, number_at(PAGE_SUM) + 64 * warp + 4 * i,
                 number_at(SPLIT_TOP) + 64 * warp + 4 * i);
        for (uint32_t j = 0; j < f->each; j++)
            PTX_FILL(p,
                     "    and.pred %live, %has$0, %column_live$1;\n"
                     "    mov.f32 %value, %nil;\n"
                     "    @%live ld.shared.f32 %value, [%j+$3];\n"
                     "    fma.rn.f32 %o$2, %o$2, %keep, %value;\n",
                     i, j, i * f->each + j, warp * s->products + 4 * i * (a->v.dim + 8) + 4 * j * f->wide);
    }
}

// Adds the pages of the round in order, and goes on with the next round of the split.
static void end_round(struct ptx *p, const struct ptx_attend *a, const struct half_rows *s)
{
    recall_places(p, a, s);
    for (uint32_t warp = 0; warp < WARPS; warp++) {
        PTX_FILL(p,
                 "    add.u32 %i, %entry, $0;\n"
                 "    setp.gt.u32 %more, %i, %end_page;\n"
                 "    @%more bra.uni ADDED;\n",
                 warp);
        add_page(p, a, s, warp);
    }
    PTX_FILL(p,
             "ADDED:\n"
             "    add.u32 %entry, %entry, $0;\n"
             "    mov.u64 %pk, %next_k;\n"
             "    mov.u64 %pv, %next_v;\n"
             "    sub.s32 %next_valid, %next_valid, $1;\n"
             "    and.pred %has_page, %has_page, %has_next;\n"
             "    setp.le.u32 %more, %entry, %end_page;\n"
             "    @%more bra.uni ROUND;\n",
             WARPS, WARPS * KV_PAGE);
}

void half_attend_rows(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch)
{
    const struct half_rows s = shape_of(a);
    declare(p, a, &s);
    PTX_FILL(p, PTX_ROW PTX_KV_TABLE, 0, ptx_count_at(a->rows));
    if (a->form == PTX_ATTEND_LONE)
        attend_leave_runs(p, a);
    attend_find_splits(p, a);
    PTX_LINES(p, "    mov.u32 %thread, %tid.x;\n"
                 "    mov.u32 %block, %ctaid.y;\n");
    find_places(p, a, &s);
    load_queries(p, a, &s);
    begin_totals(p, a, &s.fold);
    PTX_LINES(p, "    mov.u64 %next_k, 0;\n"
                 "    mov.u64 %next_v, 0;\n"
                 "    mov.u64 %pk, 0;\n"
                 "    mov.u64 %pv, 0;\n"
                 "    setp.ne.u32 %has_next, %z, %z;\n");
    begin_split(p, a, &s);
    page_scores(p, a, &s);
    page_values(p, a, &s);
    end_round(p, a, &s);
    attend_end_split(p, a, &s.fold);
    attend_wait_for_parts(p);
    attend_add_parts(p, a, &s.fold);
    attend_write_row(p, a, &s.fold);
    *launch = (struct ptx_launch){.entry = a->form == PTX_ATTEND_LONE ? "attend_half_lone" : "attend_half",
                                  .grid = {1, a->heads_kv * s.h.blocks, 1},
                                  .block = {THREADS, 1, 1},
                                  .shared = shared_bytes(&s)};
}

size_t half_attend_partials(const struct ptx_attend *a, uint32_t rows)
{
    const struct half_rows s = shape_of(a);
    return sizeof(float) * rows * a->heads * s.fold.places * s.fold.partial;
}

size_t half_attend_counters(const struct ptx_attend *a, uint32_t rows)
{
    return sizeof(uint32_t) * rows * a->heads_kv * shape_of(a).fold.blocks;
}
