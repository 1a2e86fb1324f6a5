// Emits `attend_half_tiles`, attention on tensor cores with a tile of rows per CTA (form TILES). emit_attend_parts.h
// has the loop that it equals and the order of its sums. Chosen, with `attend_half_lone`, for steps of PTX_ATTEND_MANY
// rows or more (prompts). The CTA processes the runs of its tile in turn: two or more rows at consecutive positions of
// one sequence.
//
// Grid: x the tile of rows, y the KV head (times the blocks of its query heads). A CTA has 128 pairs of a row and a
// query head, 16 of them for each of its 8 warps. With values of more than 128 elements it has 64 pairs, and two warps
// have the same 16: both compute all scores, and each multiplies half of the elements of the values, as the sums of all
// of them would take all registers. For each page that a row of the run sees, each warp multiplies its queries with all
// keys, makes weights of the scores in registers, and multiplies them with all values. Pages go to shared memory once
// for all warps, by cp.async: the values while the scores are computed, the keys of the next page while the values are
// multiplied. Rows of blocks are copied as they are, and all threads convert them to f16 before they are multiplied.
//
// The sums of the split are in registers. At its end they are added to the totals, which are in y itself: a thread
// writes and reads its own elements there, once in four pages or more, and the registers serve occupancy. The last
// split divides by the sum of the weights.
//
// Shared memory, at most 99 KB, dynamic: a page of keys and one of values (34 KB for heads of 128); or, of a part whose
// rows are blocks, one page of blocks and one of f16 for both; and the queries, where heads of more than 128 elements
// leave no registers for them, or where they would keep a second CTA from a multiprocessor (heads of up to 64
// elements).
//
// Cost: a page is read once for 128 pairs. Each warp reads the whole page from shared memory for 16 pairs: 128 bytes
// for each 1,024 products, the rate at which a multiprocessor's shared memory and the tensor cores of sm_80 are equally
// busy.
#include "kernels/ptx/emit_attend_half.h"

struct half_tile {
    struct half_shape h;
    uint32_t pairs, rows;                  // pairs of a row and a query head of a CTA; rows of a tile
    uint32_t slabs, slab;                  // parts of the values, of different warps; elements of one
    bool two;                              // two CTAs fit on a multiprocessor: their threads have 128 registers
    bool queries_shared;                   // the fragments of queries are in shared memory
    uint32_t k_at, v_at, raw, work, query; // byte offsets in shared memory; k_at and v_at: where copies go
    uint32_t shared;                       // bytes
};

// Gives a part of shared memory its place. Parts of blocks have the same two pages: their blocks, and as f16.
static void place(struct half_tile *t, const struct half_part *part, uint32_t *at)
{
    const struct half_part *k = &t->h.k, *v = &t->h.v;
    if (!part->converted) {
        *at = t->shared;
        t->shared += KV_PAGE * part->stride;
        return;
    }
    if (part == k || !k->converted) {
        t->raw = t->shared;
        t->work = t->raw + KV_PAGE * MAX(k->converted ? k->row : 0, v->converted ? v->row : 0);
        t->shared = t->work + KV_PAGE * MAX(k->converted ? k->stride : 0, v->converted ? v->stride : 0);
    }
    *at = t->raw;
}

// The tile of `pairs` pairs.
static struct half_tile tile_with(const struct ptx_attend *a, uint32_t pairs)
{
    struct half_tile t = {.h = {.k = half_part_of(&a->k), .v = half_part_of(&a->v), .rows = 2}, .pairs = pairs};
    t.slabs = a->v.dim > 128 ? 2 : 1;
    t.slab = a->v.dim / t.slabs;
    t.h.copiers = 2 * t.pairs * t.slabs;
    t.h.group = a->heads / a->heads_kv;
    t.h.blocks = ptx_tiles(t.h.group, t.pairs / 2);
    t.h.heads = ptx_tiles(t.h.group, t.h.blocks);
    t.rows = t.pairs / t.h.heads;
    t.two = MAX(a->k.dim, a->v.dim) <= 64 && !(a->softcap > 0) && !a->chunked; // which would spill
    t.queries_shared = a->k.dim > 128 || t.two;
    place(&t, &t.h.k, &t.k_at);
    place(&t, &t.h.v, &t.v_at);
    t.query = t.shared;
    t.shared += t.queries_shared ? 2 * t.pairs * a->k.dim : 0;
    return t;
}

static struct half_tile tile_of(const struct ptx_attend *a)
{
    const struct half_tile t = tile_with(a, a->v.dim > 128 ? 64 : 128);
    return t.shared > HALF_SHARED - 1024 ? tile_with(a, 64) : t;
}

uint32_t half_attend_tile(const struct ptx_attend *a)
{
    return tile_of(a).rows;
}

static void declare(struct ptx *p, const struct ptx_attend *a, const struct half_tile *t)
{
    ptx_header(p, 70, 80);
    PTX_FILL(p,
             "\n"
             "// node $0: attention of $1 heads, $2 of keys of $3 and values of $4; a CTA has $5 rows of $6 heads\n"
             ".extern .shared .align 16 .b8 stage[];\n"
             ".visible .entry attend_half_tiles_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 positions,\n"
             "    .param .u64 tables,\n"
             "    .param .u64 pages,\n"
             "    .param .u64 q,\n",
             a->node, a->heads, a->heads_kv, a->k.dim, a->v.dim, t->rows, t->h.heads);
    if (a->sinks)
        PTX_LINES(p, "    .param .u64 sinks,\n");
    PTX_FILL(p,
             "    .param .u64 y)\n"
             ".maxntid $0, 1, 1\n"
             ".minnctapersm $1\n"
             "{\n" PTX_ROW_REGS PTX_KV_REGS HALF_REGS,
             t->h.copiers, t->two ? 2 : 1);
    PTX_FILL(p,
             "    .reg .pred %more, %writes, %here, %ends, %begins, %final, %fold<2>, %there<2>;\n"
             "    .reg .u32 %thread, %head_kv, %block, %first_row, %end_row, %run, %length, %there_n;\n"
             "    .reg .u32 %low, %last_low, %shift, %last_position, %last_page, %split_base, %top_of_page;\n"
             "    .reg .u32 %pair, %pair_row<2>, %pair_head<2>, %position_of, %low_of, %at_position<2>;\n"
             "    .reg .u32 %stage, %queries, %next_page, %team, %slab, %nothing;\n"
             "    .reg .u64 %positions, %tables, %py<2>, %page_at;\n"
             "    .reg .f32 %ttop<2>, %tsum<2>, %keep_total<2>, %worth<2>, %e0, %e1;\n"
             "    .reg .f32 %o<$0>, %c<16>;\n"
             "    .reg .b32 %q<$1>;\n"
             "    .shared .align 16 .b8 joined[$2];\n"
             "    .shared .align 16 .b8 the_run[32];\n",
             t->slab / 2, t->queries_shared ? 4 : a->k.dim / 4, 4 * (t->rows + 1));
    if (t->two)
        PTX_FILL(p, "    .shared .align 16 .b8 totals[$0];\n", 8 * t->pairs);
}

// ---- a run

// Loads what begin_run stored, and the last page of the run, so that registers need not keep it while products use
// them.
static void recall_run(struct ptx *p)
{
    PTX_LINES(p, "    mov.u32 %i, the_run;\n"
                 "    ld.shared.v4.u32 {%position, %last_position, %shift, %run}, [%i];\n"
                 "    shr.u32 %last_page, %last_position, 6;\n");
}

// Begins the next run of two rows or more: %length rows from %row on, at %position to %last_position.
static void begin_run(struct ptx *p, const struct ptx_attend *a, const struct half_tile *t)
{
    PTX_FILL(p,
             "RUN:\n"
             "    mov.u32 %length, 0;\n"
             "    mov.u32 %i, joined;\n"
             "    mad.lo.u32 %i, %run, 4, %i;\n"
             "NEIGHBOUR:\n"
             "    add.u32 %length, %length, 1;\n"
             "    add.u32 %i, %i, 4;\n"
             "    ld.shared.u32 %j, [%i];\n"
             "    setp.ne.u32 %more, %j, 0;\n"
             "    @%more bra.uni NEIGHBOUR;\n"
             "    mov.u32 %row, %ctaid.x;\n"
             "    mad.lo.u32 %row, %row, $0, %run;\n"
             "    add.u32 %run, %run, %length;\n"
             "    setp.lt.u32 %more, %length, 2;\n"
             "    @%more bra.uni RUN_END;\n"
             PTX_ADDRESS("%step", "step") PTX_KV_TABLE
             "    add.u32 %last_position, %position, %length;\n"
             "    sub.u32 %last_position, %last_position, 1;\n",
             t->rows);
    attend_low_of(p, a, ATTEND_LOW_FIRST);
    ATTEND_SPLIT(p, a, "%shift", "%position");
    PTX_LINES(p, "    shr.u32 %entry, %low, 6;\n"
                 "    setp.eq.u32 %begins, %run, %run;\n"
                 "    mov.u32 %thread, %tid.x;\n"
                 "    setp.eq.u32 %more, %thread, 0;\n"
                 "    mov.u32 %i, the_run;\n"
                 "    mov.u32 %n, 0;\n"
                 "    @%more st.shared.v4.u32 [%i], {%position, %last_position, %shift, %run};\n"
                 "    @%more st.shared.v4.u32 [%i+16], {%row, %length, %n, %n};\n");
}

// Sets the places of the thread from %thread, and of the CTA from %block, its y.
static void find_places(struct ptx *p, const struct ptx_attend *a, const struct half_tile *t)
{
    half_places(p, &t->h);
    PTX_FILL(p,
             "    and.b32 %team, %warp, $2;\n"
             "    div.u32 %slab, %warp, $3;\n"
             "    mad.lo.u32 %lane_v, %slab, $4, %lane_v;\n"
             "    mov.u32 %stage, stage;\n"
             "    mad.lo.u32 %queries, %team, $0, %stage;\n"
             "    mad.lo.u32 %queries, %lane, 16, %queries;\n"
             "    add.u32 %queries, %queries, $1;\n",
             32 * a->k.dim, t->query, t->pairs / 16 - 1, t->pairs / 16, 2 * t->slab);
    PTX_FILL(p,
             "    div.u32 %head_kv, %block, $0;\n"
             "    mul.lo.u32 %i, %head_kv, $0;\n"
             "    sub.u32 %block, %block, %i;\n"
             "    mul.lo.u32 %block, %block, $1;\n",
             t->h.blocks, t->h.heads);
}

// Computes the places again, from numbers that ptxas does not know, so that registers need not keep them.
static void recall_places(struct ptx *p, const struct ptx_attend *a, const struct half_tile *t)
{
    PTX_LINES(p, "    mov.u32 %i, the_run;\n"
                 "    ld.shared.v4.u32 {%row, %length, %nothing, %nothing}, [%i+16];\n"
                 "    mov.u32 %thread, %tid.x;\n"
                 "    add.u32 %thread, %thread, %nothing;\n"
                 "    mov.u32 %block, %ctaid.y;\n"
                 "    add.u32 %block, %block, %nothing;\n");
    find_places(p, a, t);
}

// Sets what the lane's pair r is: %pair_row<r> of the step, %pair_head<r>, whether it is there, and its position. A
// pair that is not there is computed like the nearest one that is, and not stored.
static void find_pair(struct ptx *p, const struct half_tile *t, uint32_t r)
{
    PTX_FILL(p,
             "    mad.lo.u32 %pair, %team, 16, %g;\n"
             "    add.u32 %pair, %pair, $1;\n"
             "    div.u32 %i, %pair, $2;\n"
             "    mul.lo.u32 %j, %i, $2;\n"
             "    sub.u32 %j, %pair, %j;\n"
             "    add.u32 %j, %j, %block;\n"
             "    setp.lt.u32 %there$0, %i, %length;\n"
             "    setp.lt.and.u32 %there$0, %pair, $3, %there$0;\n"
             "    setp.lt.and.u32 %there$0, %j, $4, %there$0;\n",
             r, 8 * r, t->h.heads, t->h.heads * t->rows, t->h.group);
    PTX_FILL(p,
             "    sub.u32 %n, %length, 1;\n"
             "    min.u32 %pair_row$0, %i, %n;\n"
             "    min.u32 %j, %j, $1;\n"
             "    mad.lo.u32 %pair_head$0, %head_kv, $2, %j;\n"
             "    add.u32 %at_position$0, %position, %pair_row$0;\n"
             "    add.u32 %pair_row$0, %pair_row$0, %row;\n",
             r, t->h.group - 1, t->h.group);
}

// Sets %low_of to the first position that the lane's pair r sees.
static void low_of_pair(struct ptx *p, const struct ptx_attend *a, uint32_t r)
{
    PTX_FILL(p, "    mov.u32 %position_of, %at_position$0;\n", r);
    attend_low_of(p, a, ATTEND_LOW_PAIR);
}

// Sets %i to the place of the totals of the lane's pair 0 in shared memory; pair 1 is 64 bytes behind. One lane of four
// %writes them.
#define TOTALS_OF_PAIR                                                                                                 \
    "    mov.u32 %i, totals;\n"                                                                                        \
    "    mad.lo.u32 %i, %warp, 128, %i;\n"                                                                             \
    "    mad.lo.u32 %i, %g, 8, %i;\n"                                                                                  \
    "    setp.eq.u32 %writes, %col, 0;\n"

// Clears the sums of the lane's pair r, and sets its totals to what they are before the first split.
static void begin_pair(struct ptx *p, const struct ptx_attend *a, const struct half_tile *t, uint32_t r)
{
    PTX_FILL(p,
             "    mov.f32 %top$0, 0fFF800000;\n"
             "    mov.f32 %sum$0, 0f00000000;\n"
             "    mov.f32 %ttop$0, 0fFF800000;\n"
             "    mov.f32 %tsum$0, 0f00000000;\n",
             r);
    if (a->sinks)
        PTX_FILL(p,
                 PTX_ADDRESS("%at", "sinks")
                 "    mad.wide.u32 %at, %pair_head$0, 4, %at;\n"
                 "    ld.global.f32 %ttop$0, [%at];\n"
                 "    mul.rn.f32 %ttop$0, %ttop$0, 0f$x1;\n"
                 "    mov.f32 %tsum$0, 0f$x2;\n",
                 r, ptx_float_bits((float)LOG2_E), ptx_float_bits(HALF_ONE));
    if (t->two)
        PTX_FILL(p,
                 TOTALS_OF_PAIR
                 "    @%writes st.shared.v2.f32 [%i+$1], {%ttop$0, %tsum$0};\n",
                 r, 64 * r);
}

static void load_queries(struct ptx *p, const struct ptx_attend *a, const struct half_tile *t)
{
    const uint32_t steps = a->k.dim / 16;
    PTX_FILL(p,
             "    {\n"
             "    .reg .f32 %x<$0>;\n"
             "    .reg .u64 %pq<2>;\n",
             a->k.dim / 4);
    if (t->queries_shared)
        PTX_FILL(p, "    .reg .b32 %q<$0>;\n", a->k.dim / 4);
    for (uint32_t r = 0; r < 2; r++) {
        PTX_FILL(p,
                 PTX_ADDRESS("%pq$0", "q")
                 "    mad.wide.u32 %pq$0, %pair_row$0, $1, %pq$0;\n"
                 "    mad.wide.u32 %pq$0, %pair_head$0, $2, %pq$0;\n"
                 "    mad.wide.u32 %pq$0, %col, 8, %pq$0;\n",
                 r, 4 * a->heads * a->k.dim, 4 * a->k.dim);
        half_query(p, a, r, false);
    }
    if (t->queries_shared)
        PTX_LINES(p, "    setp.eq.u32 %in, %slab, 0;\n");
    for (uint32_t step = 0; t->queries_shared && step < steps; step++)
        PTX_FILL(p, "    @%in st.shared.v4.b32 [%queries+$0], {%q$1, %q$2, %q$3, %q$4};\n", 512 * step, 4 * step,
                 4 * step + 1, 4 * step + 2, 4 * step + 3);
    PTX_LINES(p, "    }\n");
    PTX_LINES(p, "    bar.sync 0;\n");         // the_run is stored
    for (uint32_t i = 0; i < t->slab / 2; i++) // behind the queries, which need these registers
        PTX_FILL(p, "    mov.f32 %o$0, 0f00000000;\n", i);
}

// ---- a page

// Begins to copy the keys of page %entry, or the values of the page before, whose address %page_at is.
static void copy_page(struct ptx *p, const struct ptx_attend *a, const struct half_tile *t, bool values)
{
    const struct half_part *part = values ? &t->h.v : &t->h.k;
    const struct ptx_kv *kv = values ? &a->v : &a->k;
    PTX_FILL(p,
             "    mad.wide.u32 %from, %head_kv, $0, %page_at;\n"
             "    add.u64 %from, %from, $1;\n"
             "    add.u32 %to, %stage, $2;\n"
             "    sub.s32 %valid, %last_position, %base;\n",
             KV_PAGE * part->row, kv->offset, values ? t->v_at : t->k_at);
    half_copy(p, &t->h, part, 0, KV_PAGE);
}

// Waits for the keys or values of a page and sets %take to the lane's place in them. After the barrier all warps are
// done with what the next copy, or the conversion, writes over.
static void take_page(struct ptx *p, const struct half_tile *t, bool values)
{
    const struct half_part *part = values ? &t->h.v : &t->h.k;
    uint32_t at = values ? t->v_at : t->k_at;
    PTX_LINES(p, "    cp.async.wait_all;\n"
                 "    bar.sync 0;\n");
    if (part->converted) {
        PTX_FILL(p,
                 "    add.u32 %raw, %stage, $0;\n"
                 "    add.u32 %work, %stage, $1;\n",
                 t->raw, t->work);
        half_convert(p, &t->h, part, KV_PAGE, values);
        PTX_LINES(p, "    bar.sync 0;\n");
        at = t->work;
    }
    PTX_FILL(p, "    add.u32 %take, %stage, $0;\n", at);
    ptx_word(p, values ? "    add.u32 %take, %take, %lane_v;\n" : "    add.u32 %take, %take, %lane_k;\n");
}

static void begin_pages(struct ptx *p, const struct ptx_attend *a, const struct half_tile *t)
{
    PTX_FILL(p, PTX_KV_PAGE("%page_at") "    shl.b32 %base, %entry, 6;\n", 0, 0, a->k.page_bytes);
    copy_page(p, a, t, false);
}

// The scores of the page and the largest of each pair.
static void page_scores(struct ptx *p, const struct ptx_attend *a, const struct half_tile *t)
{
    PTX_LINES(p, "PAGE:\n"
                 "    .pragma \"nounroll\";\n");
    recall_places(p, a, t);
    take_page(p, t, false);
    recall_run(p);
    copy_page(p, a, t, true);
    PTX_LINES(p, "    add.u32 %i, %entry, 1;\n"
                 "    min.u32 %i, %i, %last_page;\n"
                 "    mad.wide.u32 %place, %i, 4, %table;\n"
                 "    ld.global.u32 %next_page, [%place];\n");
    for (uint32_t step = 0; step < a->k.dim / 16; step++) {
        if (t->queries_shared)
            PTX_FILL(p, "    ld.shared.v4.b32 {%q0, %q1, %q2, %q3}, [%queries+$0];\n", 512 * step);
        for (uint32_t u = 0; u < HALF_UNITS; u++)
            half_score(p, t->queries_shared ? 0 : 4 * step, u, HALF_UNIT * u * t->h.k.stride + 32 * step, !step);
    }
    recall_run(p);
    attend_low_of(p, a, ATTEND_LOW_LAST);
    PTX_LINES(p, "    add.u32 %top_of_page, %base, 63;\n"
                 "    setp.ge.u32 %whole, %base, %last_low;\n"
                 "    setp.le.and.u32 %whole, %top_of_page, %position, %whole;\n"
                 "    shl.b32 %i, %col, 1;\n"
                 "    add.u32 %i, %i, %base;\n");
    for (uint32_t r = 0; r < 2; r++) {
        low_of_pair(p, a, r);
        PTX_FILL(p,
                 "    setp.le.u32 %sees$0, %base, %at_position$0;\n"
                 "    setp.ge.and.u32 %sees$0, %top_of_page, %low_of, %sees$0;\n"
                 "    sub.s32 %hi$0, %at_position$0, %i;\n"
                 "    sub.s32 %lo$0, %low_of, %i;\n",
                 r);
    }
    half_tops(p, a, &t->h, 0);
}

static void page_weights(struct ptx *p, const struct half_tile *t)
{
    for (uint32_t r = 0; r < 2; r++)
        PTX_FILL(p,
                 "    mov.f32 %before$0, %top$0;\n"
                 "    max.f32 %top$0, %top$0, %part$0;\n"
                 "    mov.f32 %new$0, %top$0;\n",
                 r);
    half_weights(p, &t->h);
    for (uint32_t r = 0; r < 2; r++)
        PTX_FILL(p, "    @%sees$0 fma.rn.f32 %sum$0, %sum$0, %keep$0, %part$0;\n", r);
}

// Adds the page to the sums, while the keys of the next page are copied. Pairs that see nothing of it keep theirs.
static void page_values(struct ptx *p, const struct ptx_attend *a, const struct half_tile *t)
{
    recall_places(p, a, t);
    take_page(p, t, true);
    recall_run(p);
    PTX_FILL(p,
             "    setp.eq.u32 %more, %entry, %last_page;\n"
             "    @%more bra.uni LAST;\n"
             "    mad.wide.u32 %page_at, %next_page, $0, %kv;\n"
             "    add.u32 %base, %base, 64;\n",
             a->k.page_bytes);
    copy_page(p, a, t, false);
    PTX_LINES(p, "LAST:\n");
    for (uint32_t n = 0; n < t->slab / 16; n++) {
        const uint32_t c = n % 2 * 8;
        if (n && t->queries_shared) // lest ptxas begin so many products at once that it has no registers for them
            PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n");
        for (uint32_t u = 0; u < HALF_UNITS; u++)
            half_values(p, c, u, HALF_UNIT * u * t->h.v.stride + 32 * n, !u);
        for (uint32_t i = 0; i < 8; i++)
            PTX_FILL(p, "    @%sees$2 fma.rn.f32 %o$0, %o$0, %keep$2, %c$1;\n", 8 * n + i, c + i, i / 2 % 2);
    }
}

// ---- the end of a split

// The factors of totals and split, of pairs that see some of it.
static void fold_pair(struct ptx *p, const struct ptx_attend *a, const struct half_tile *t, uint32_t r)
{
    low_of_pair(p, a, r);
    if (t->two)
        PTX_FILL(p,
                 TOTALS_OF_PAIR
                 "    ld.shared.v2.f32 {%ttop$0, %tsum$0}, [%i+$1];\n",
                 r, 64 * r);
    PTX_FILL(p,
             "    setp.le.u32 %fold$0, %split_base, %at_position$0;\n"
             "    setp.ge.and.u32 %fold$0, %top_of_page, %low_of, %fold$0;\n"
             "    max.f32 %other, %ttop$0, %top$0;\n"
             "    sub.rn.f32 %keep_total$0, %ttop$0, %other;\n"
             "    ex2.approx.ftz.f32 %keep_total$0, %keep_total$0;\n"
             "    sub.rn.f32 %worth$0, %top$0, %other;\n"
             "    ex2.approx.ftz.f32 %worth$0, %worth$0;\n"
             "    mul.rn.f32 %use, %tsum$0, %keep_total$0;\n"
             "    @%fold$0 fma.rn.f32 %tsum$0, %sum$0, %worth$0, %use;\n"
             "    @%fold$0 mov.f32 %ttop$0, %other;\n"
             "    mov.f32 %top$0, 0fFF800000;\n"
             "    mov.f32 %sum$0, 0f00000000;\n"
             "    rcp.rn.f32 %factor_y$0, %tsum$0;\n",
             r);
    if (t->two)
        PTX_FILL(p,
                 "    bar.warp.sync 0xffffffff;\n" // the lanes have read what one of them writes
                 TOTALS_OF_PAIR
                 "    @%writes st.shared.v2.f32 [%i+$1], {%ttop$0, %tsum$0};\n",
                 r, 64 * r);
}

// Adds the split to the totals in y, which are zero before the first split and become the result with the last.
static void fold_values(struct ptx *p, const struct half_tile *t)
{
    for (uint32_t n = 0; n < t->slab / 8; n++)
        for (uint32_t r = 0; r < 2; r++) {
            const uint32_t o = 4 * n + 2 * r;
            PTX_FILL(p,
                     "    mov.f32 %e0, %nil;\n"
                     "    mov.f32 %e1, %nil;\n"
                     "    @%goes_on$0 ld.global.v2.f32 {%e0, %e1}, [%py$0+$1];\n",
                     r, 32 * n);
            for (uint32_t i = 0; i < 2; i++)
                PTX_FILL(p,
                         "    @%fold$0 mul.rn.f32 %e$2, %e$2, %keep_total$0;\n"
                         "    @%fold$0 fma.rn.f32 %e$2, %o$1, %worth$0, %e$2;\n"
                         "    @%final mul.rn.f32 %e$2, %e$2, %factor_y$0;\n"
                         "    mov.f32 %o$1, %nil;\n",
                         r, o + i, i);
            PTX_FILL(p, "    @%there$0 st.global.v2.f32 [%py$0+$1], {%e0, %e1};\n", r, 32 * n);
        }
}

static void end_page(struct ptx *p, const struct ptx_attend *a, const struct half_tile *t)
{
    recall_run(p);
    PTX_LINES(p, "    shl.b32 %top_of_page, %entry, 6;\n"
                 "    add.u32 %top_of_page, %top_of_page, 63;\n"
                 "    add.u32 %i, %entry, 1;\n"
                 "    shr.u32 %j, %i, %shift;\n"
                 "    shl.b32 %j, %j, %shift;\n"
                 "    setp.eq.u32 %ends, %i, %j;\n"
                 "    setp.eq.u32 %final, %entry, %last_page;\n"
                 "    or.pred %ends, %ends, %final;\n"
                 "    @!%ends bra.uni FOLDED;\n"
                 "    {\n"
                 "    .reg .pred %goes_on<2>;\n"
                 "    .reg .f32 %factor_y<2>;\n"
                 "    shr.u32 %split_base, %entry, %shift;\n"
                 "    shl.b32 %split_base, %split_base, %shift;\n"
                 "    shl.b32 %split_base, %split_base, 6;\n");
    recall_places(p, a, t);
    for (uint32_t r = 0; r < 2; r++) {
        find_pair(p, t, r);
        PTX_FILL(p,
                 PTX_ADDRESS("%py$0", "y")
                 "    mad.wide.u32 %py$0, %pair_row$0, $1, %py$0;\n"
                 "    mad.wide.u32 %py$0, %pair_head$0, $2, %py$0;\n"
                 "    mad.wide.u32 %py$0, %col, 8, %py$0;\n"
                 "    mad.wide.u32 %py$0, %slab, $3, %py$0;\n",
                 r, 4 * a->heads * a->v.dim, 4 * a->v.dim, 4 * t->slab);
        fold_pair(p, a, t, r);
        PTX_FILL(p,
                 "    mov.pred %goes_on$0, %there$0;\n"
                 "    @%begins setp.ne.u32 %goes_on$0, %run, %run;\n",
                 r);
    }
    fold_values(p, t);
    PTX_LINES(p, "    setp.ne.u32 %begins, %run, %run;\n"
                 "    }\n"
                 "FOLDED:\n"
                 "    add.u32 %entry, %entry, 1;\n"
                 "    setp.le.u32 %more, %entry, %last_page;\n"
                 "    @%more bra.uni PAGE;\n"
                 "    bar.sync 0;\n");
}

void half_attend_tiles(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch)
{
    const struct half_tile t = tile_of(a);
    declare(p, a, &t);
    attend_find_runs(p, a, t.rows, t.h.blocks, t.h.heads);
    begin_run(p, a, &t);
    PTX_LINES(p, "    mov.u32 %block, %ctaid.y;\n");
    find_places(p, a, &t);
    begin_pages(p, a, &t);
    for (uint32_t r = 0; r < 2; r++) {
        find_pair(p, &t, r);
        begin_pair(p, a, &t, r);
    }
    load_queries(p, a, &t);
    page_scores(p, a, &t);
    page_weights(p, &t);
    page_values(p, a, &t);
    end_page(p, a, &t);
    PTX_FILL(p,
             "RUN_END:\n"
             "    setp.lt.u32 %more, %run, $0;\n" // rows beyond the step's last one are single rows, which are skipped
             "    @%more bra.uni RUN;\n"
             "    ret;\n"
             "}\n",
             t.rows);
    *launch = (struct ptx_launch){.entry = "attend_half_tiles",
                                  .grid = {1, a->heads_kv * t.h.blocks, 1},
                                  .block = {t.h.copiers, 1, 1},
                                  .shared = t.shared};
}
