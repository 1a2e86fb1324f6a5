// Emits `attend_tiles`, attention with a tile of rows per CTA (form TILES). emit_attend_parts.h has the loop that it
// equals and the order of its sums. Chosen, with `attend_lone`, for steps of PTX_ATTEND_MANY rows or more (prompts).
// The CTA processes the runs of its tile in turn: two or more rows at consecutive positions of one sequence.
//
// Grid: x the tile of rows, y the KV head (times the blocks of its query heads). The block is 256 threads. The
// columns of a CTA are pairs of a row and a query head: 64, or fewer for values of more than 128 elements. For each
// page that a row of the run sees there are two matrix products:
//   scores  keys times queries, 64 x pairs. 32 elements of both at a time are in shared memory, transposed, and a
//           thread accumulates 4 keys by up to 4 pairs.
//   values  weights times values, pairs x dimension. The values of some keys at a time are in shared memory, as
//           floats, and a thread accumulates 4 pairs by 8 elements (of 128).
//
// Shared memory, at most 48 KB: keys and queries, or values (17 KB), weights (17 KB), maxima and sums of the pairs.
//
// Cost: a page is read once for up to 64 pairs, and a float loaded from shared memory serves 2 to 4 fma of a thread.
// The products are float32, 128 fma per clock and multiprocessor. Tensor cores do more than a thousand: unless results
// are to be exact, emit_attend_half_tiles.c serves the heads that suit them.
#include "kernels/ptx/emit_attend_parts.h"

enum { THREADS = 256, CHUNK = 32, KEY_STRIDE = KV_PAGE + 4, STAGE_BYTES = 16 << 10 };

// The floats of each pair in shared memory. Of the threads that have a pair, one writes them.
//   KEEP                  factor of the split's values before the page: exp(old top - new top)
//   KEEP_TOTAL, WORTH     factors of the totals and of a split that is folded; WORTH -1: the pair sees none of it
//   TOTAL_TOP, TOTAL_SUM  largest score and sum of weights of the totals
//   TOP, SUM              the same of the split so far
enum stat { KEEP, KEEP_TOTAL, WORTH, TOTAL_TOP, TOTAL_SUM, TOP, SUM, STATS };

struct tile {
    uint32_t pairs;                      // pairs of a row and a query head that a CTA has
    uint32_t group;                      // query heads of a KV head
    uint32_t heads, blocks;              // query heads of a CTA; CTAs of a group
    uint32_t rows;                       // rows of a tile
    uint32_t tk, tq;                     // keys and pairs of a thread in the product for scores
    uint32_t key_threads;                // threads with the same pairs in that product
    uint32_t dim_threads;                // threads with the same 4 pairs in the product for values
    uint32_t vectors;                    // groups of 4 elements of a thread, `dim_threads` groups apart
    uint32_t pair_stride;                // floats from one row of pairs to the next: weights of a key, queries' element
    uint32_t values;                     // keys whose values are in shared memory at the same time
    uint32_t value_strips, value_stride; // strips of 8 elements of a value row; its floats in shared memory
    uint32_t k_row, v_row;               // bytes of a row of keys, of values
    uint32_t stage;                      // bytes
};

static struct tile tile_of(const struct ptx_attend *a)
{
    struct tile t = {.pairs = 64, .group = a->heads / a->heads_kv, .tk = 4};
    while (t.pairs * a->v.dim > 64 * 128 && t.pairs > 8)
        t.pairs /= 2;
    t.blocks = ptx_tiles(t.group, t.pairs / 2);
    t.heads = ptx_tiles(t.group, t.blocks);
    t.rows = t.pairs / t.heads;
    if (t.pairs == 8)
        t.tk = 2;
    t.tq = KV_PAGE * t.pairs / THREADS / t.tk;
    t.key_threads = KV_PAGE / t.tk;
    t.dim_threads = THREADS / (t.pairs / 4);
    t.vectors = ptx_tiles(ptx_tiles(a->v.dim, 4), t.dim_threads);
    t.pair_stride = t.pairs + 4;
    t.value_strips = ptx_tiles(a->v.dim, 8);
    t.value_stride = 8 * t.value_strips;
    t.stage = MAX((uint32_t)STAGE_BYTES, 4 * CHUNK * (KEY_STRIDE + t.pair_stride));
    for (t.values = CHUNK; 4 * t.values * t.value_stride > t.stage;)
        t.values /= 2;
    t.k_row = ptx_kv_row_bytes(&a->k);
    t.v_row = ptx_kv_row_bytes(&a->v);
    return t;
}

uint32_t attend_tile(const struct ptx_attend *a)
{
    return tile_of(a).rows;
}

static uint32_t stat_at(const struct tile *t, enum stat stat, uint32_t pair)
{
    return 4 * ((uint32_t)stat * t->pairs + pair);
}

static void declare(struct ptx *p, const struct ptx_attend *a, const struct tile *t)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: attention of $1 heads, $2 of keys of $3 and values of $4; a CTA has $5 rows of $6 heads\n"
             ".visible .entry attend_tiles_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 positions,\n"
             "    .param .u64 tables,\n"
             "    .param .u64 pages,\n"
             "    .param .u64 q,\n",
             a->node, a->heads, a->heads_kv, a->k.dim, a->v.dim, t->rows, t->heads);
    if (a->sinks)
        PTX_LINES(p, "    .param .u64 sinks,\n");
    if (a->slopes)
        PTX_LINES(p, "    .param .u64 slopes,\n");
    PTX_FILL(p,
             "    .param .u64 y)\n"
             ".maxntid 256, 1, 1\n"
             ".minnctapersm $0\n" // with two CTAs ptxas would spill if there is a cap, a chunk or a slope, or for heads of 80 and 96
             "{\n" PTX_ROW_REGS PTX_KV_REGS PTX_STRIP_REGS,
             a->softcap > 0 || a->chunked || a->slopes || a->v.dim & (a->v.dim - 1) ? 1 : 2);
    PTX_FILL(p,
             "    .reg .pred %more, %here, %there, %ends, %whole, %none, %less, %writes, %fold, %late;\n"
             "    .reg .u32 %thread, %head_kv, %block, %i, %j, %first_row, %end_row, %run, %length, %zero;\n"
             "    .reg .u32 %low, %last_low, %shift, %last_position, %last_page, %base, %top_of_page, %split_base;\n"
             "    .reg .u32 %strip, %pair, %kx, %dx, %px, %chunk, %slots, %n, %there_n;\n"
             "    .reg .u32 %write_k, %write_q, %read_k, %read_q, %write_w, %read_w, %read_v<2>, %stats;\n"
             "    .reg .u64 %positions, %tables, %at, %pq, %py, %page_at, %pv, %sa, %sq;\n"
             "    .reg .f32 %score, %t, %u, %keep, %other, %most, %new, %part, %worth;\n"
             "    .reg .u32 %position_of, %low_of;\n"
             "    .reg .f32 %top, %top<$0>, %sum, %ttop, %tsum;\n"
             "    .reg .f32 %a<$1>, %b<$1>, %k<$2>, %q<$0>, %w<4>, %g<4>, %v<4>, %o<$3>, %t<$3>;\n",
             t->tq, t->tq * t->tk, t->tk, 16 * t->vectors);
    if (a->slopes)
        PTX_LINES(p, "    .reg .f32 %slope, %away;\n");
    PTX_FILL(p,
             "    .shared .align 16 .b8 stage[$0];\n"
             "    .shared .align 16 .b8 weights[$1];\n"
             "    .shared .align 16 .b8 stats[$2];\n"
             "    .shared .align 16 .b8 joined[$3];\n"
             "    .shared .align 16 .b8 the_run[32];\n",
             t->stage, 4 * KV_PAGE * t->pair_stride, 4 * STATS * t->pairs, 4 * (t->rows + 1));
}

// Sets the first key, %kx, and pair, %px, of the thread's scores. %writes: the thread writes the stats of its pairs.
static void find_tile(struct ptx *p, const struct tile *t)
{
    PTX_FILL(p,
             "    and.b32 %kx, %thread, $0;\n"
             "    div.u32 %px, %thread, $1;\n"
             "    mul.lo.u32 %px, %px, $2;\n"
             "    setp.eq.u32 %writes, %kx, 0;\n"
             "    mul.lo.u32 %kx, %kx, $3;\n",
             t->key_threads - 1, t->key_threads, t->tq, t->tk);
}

// Sets %i to the query head of pair i. A pair beyond the heads of the group has the last one, and is not written.
static void find_head(struct ptx *p, const struct tile *t, uint32_t i)
{
    PTX_FILL(p,
             "    add.u32 %i, %px, $0;\n"
             "    rem.u32 %i, %i, $1;\n"
             "    add.u32 %i, %i, %block;\n"
             "    min.u32 %i, %i, $2;\n"
             "    mad.lo.u32 %i, %head_kv, $3, %i;\n",
             i, t->heads, t->group - 1, t->group);
}

// Sets the totals of the thread's pairs to the sinks of their heads.
static void begin_at_sinks(struct ptx *p, const struct tile *t)
{
    for (uint32_t i = 0; i < t->tq; i++) {
        find_head(p, t, i);
        PTX_LINES(p, PTX_ADDRESS("%at", "sinks") "    mad.wide.u32 %at, %i, 4, %at;\n"
                                                 "    ld.global.f32 %t, [%at];\n");
        PTX_FILL(p,
                 "    @%writes st.shared.f32 [%stats+$0], %t;\n"
                 "    @%writes st.shared.f32 [%stats+$1], 0f3F800000;\n",
                 stat_at(t, TOTAL_TOP, i), stat_at(t, TOTAL_SUM, i));
    }
}

// Begins the next run of two rows or more: %length rows from %row on, at %position to %last_position.
static void begin_run(struct ptx *p, const struct ptx_attend *a, const struct tile *t)
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
             "    setp.lt.u32 %more, %length, 2;\n"
             "    @%more bra.uni RUN_END;\n"
             "    mov.u32 %row, %ctaid.x;\n"
             "    mad.lo.u32 %row, %row, $0, %run;\n" PTX_KV_TABLE "    add.u32 %last_position, %position, %length;\n"
             "    sub.u32 %last_position, %last_position, 1;\n",
             t->rows);
    attend_low_of(p, a, ATTEND_LOW_FIRST);
    ATTEND_SPLIT(p, a, "%shift", "%position");
    find_tile(p, t);
    PTX_LINES(p, "    mov.u32 %stats, stats;\n"
                 "    mad.lo.u32 %stats, %px, 4, %stats;\n");
    for (uint32_t i = 0; i < t->tq; i++)
        PTX_FILL(p,
                 "    @%writes st.shared.f32 [%stats+$0], 0fFF800000;\n"
                 "    @%writes st.shared.f32 [%stats+$1], 0f00000000;\n"
                 "    @%writes st.shared.f32 [%stats+$2], 0fFF800000;\n"
                 "    @%writes st.shared.f32 [%stats+$3], 0f00000000;\n",
                 stat_at(t, TOTAL_TOP, i), stat_at(t, TOTAL_SUM, i), stat_at(t, TOP, i), stat_at(t, SUM, i));
    if (a->sinks)
        begin_at_sinks(p, t);
    for (uint32_t i = 0; i < 16 * t->vectors; i++)
        PTX_FILL(p,
                 "    mov.f32 %o$0, 0f00000000;\n"
                 "    mov.f32 %t$0, 0f00000000;\n",
                 i);
}

// Sets %pq to the query of the pair whose strips the thread stages, at its first strip. Stores the run's registers to
// shared memory, from where later code loads them: the product for scores needs the registers.
static void find_query(struct ptx *p, const struct ptx_attend *a, const struct tile *t)
{
    PTX_FILL(p,
             "    and.b32 %pair, %thread, $1;\n"
             "    div.u32 %i, %pair, $0;\n"
             "    mul.lo.u32 %n, %i, $0;\n"
             "    sub.u32 %n, %pair, %n;\n"
             "    sub.u32 %slot, %length, 1;\n"
             "    min.u32 %i, %i, %slot;\n"
             "    add.u32 %i, %i, %row;\n"
             "    add.u32 %n, %n, %block;\n"
             "    min.u32 %n, %n, $2;\n"
             PTX_ADDRESS("%pq", "q")
             "    mad.wide.u32 %pq, %i, $3, %pq;\n"
             "    mad.lo.u32 %n, %head_kv, $4, %n;\n",
             t->heads, t->pairs - 1, t->group - 1, 4 * a->heads * a->k.dim, t->group);
    PTX_FILL(p,
             "    mad.wide.u32 %pq, %n, $0, %pq;\n"
             "    div.u32 %j, %thread, $1;\n"
             "    mad.wide.u32 %pq, %j, 32, %pq;\n"
             "    shr.u32 %entry, %low, 6;\n"
             "    setp.ne.u32 %more, %thread, 0;\n"
             "    @%more bra NOTED;\n"
             "    mov.u32 %i, the_run;\n"
             "    st.shared.u64 [%i], %table;\n"
             "    st.shared.u64 [%i+8], %kv;\n"
             "    st.shared.u32 [%i+16], %position;\n"
             "    st.shared.u32 [%i+20], %last_position;\n"
             "    st.shared.u32 [%i+24], %shift;\n"
             "    st.shared.u32 [%i+28], 0;\n"
             "NOTED:\n"
             "    bar.sync 0;\n",
             4 * a->k.dim, t->pairs);
}

// Stores the strip %e0 to %e7 to a column of the stage, `stride` floats apart.
static void store_column(struct ptx *p, bool key, uint32_t stride)
{
    for (uint32_t e = 0; e < 8; e++)
        if (key)
            PTX_FILL(p, "    st.shared.f32 [%write_k+$1], %e$0;\n", e, 4 * e * stride);
        else
            PTX_FILL(p, "    st.shared.f32 [%write_q+$1], %e$0;\n", e, 4 * e * stride);
}

// Copies elements %chunk to %chunk + 31 of keys and queries to the stage, transposed. Zeros follow the last element.
static void stage_chunk(struct ptx *p, const struct ptx_attend *a, const struct tile *t)
{
    uint32_t size = a->k.type == DT_F32 ? 4 : 2, block = a->k.type == DT_Q8_0 ? 34 : 18;
    enum ptx_strip_guard guard = ptx_kv_guard(&a->k, a->k.dim % CHUNK ? PTX_STRIP_IF : PTX_STRIP_WHOLE);
    PTX_FILL(p,
             "    bar.sync 0;\n"
             "    shr.u32 %strip, %thread, 6;\n"
             "    and.b32 %i, %thread, 63;\n"
             "    mov.u32 %write_k, stage;\n"
             "    mad.lo.u32 %write_k, %strip, $0, %write_k;\n"
             "    mad.lo.u32 %write_k, %i, 4, %write_k;\n"
             "    mad.lo.u32 %i, %head_kv, 64, %i;\n"
             "    mad.wide.u32 %sa, %i, $1, %page_at;\n"
             "    add.u64 %sa, %sa, $2;\n",
             32 * KEY_STRIDE, t->k_row, a->k.offset);
    if (dtype_info[a->k.type].block > 1) {
        PTX_FILL(p,
                 "    shr.u32 %i, %chunk, 5;\n"
                 "    mad.wide.u32 %sa, %i, $0, %sa;\n",
                 block);
        ptx_kv_strip_in_block(p, a->k.type);
    } else {
        PTX_FILL(p,
                 "    mad.lo.u32 %i, %strip, 8, %chunk;\n"
                 "    mad.wide.u32 %sa, %i, $0, %sa;\n"
                 "    sub.s32 %left, $1, %i;\n"
                 "    setp.gt.s32 %in, %left, 0;\n",
                 size, a->k.dim);
    }
    ptx_kv_strip(p, a->k.type, guard, false, 0, 0);
    store_column(p, true, KEY_STRIDE);
    PTX_FILL(p,
             "    div.u32 %j, %thread, $0;\n"
             "    setp.ge.u32 %late, %j, $1;\n"
             "    @%late bra STAGED;\n"
             "    and.b32 %i, %thread, $2;\n"
             "    mov.u32 %write_q, stage;\n"
             "    add.u32 %write_q, %write_q, $3;\n"
             "    mad.lo.u32 %write_q, %j, $4, %write_q;\n"
             "    mad.lo.u32 %write_q, %i, 4, %write_q;\n",
             t->pairs, CHUNK / 8, t->pairs - 1, 4 * CHUNK * KEY_STRIDE, 32 * t->pair_stride);
    PTX_FILL(p,
             "    mad.wide.u32 %sa, %chunk, 4, %pq;\n"
             "    mad.lo.u32 %i, %j, 8, %chunk;\n"
             "    sub.s32 %left, $0, %i;\n"
             "    setp.gt.s32 %in, %left, 0;\n",
             a->k.dim);
    ptx_kv_strip(p, DT_F32, a->k.dim % 8 ? PTX_STRIP_ELEMENTS : guard, false, 0, 0);
    store_column(p, false, t->pair_stride);
    PTX_LINES(p, "STAGED:\n"
                 "    bar.sync 0;\n");
}

// Loads n floats at offset `at` of the keys (reg 'k') or queries (reg 'q') of the thread's tile.
static void load_tile(struct ptx *p, char reg, uint32_t n, uint32_t at)
{
    if (reg == 'k' && n == 4)
        PTX_FILL(p, "    ld.shared.v4.f32 {%k0, %k1, %k2, %k3}, [%read_k+$0];\n", at);
    else if (reg == 'k')
        PTX_FILL(p, "    ld.shared.v2.f32 {%k0, %k1}, [%read_k+$0];\n", at);
    else if (n == 4)
        PTX_FILL(p, "    ld.shared.v4.f32 {%q0, %q1, %q2, %q3}, [%read_q+$0];\n", at);
    else if (n == 2)
        PTX_FILL(p, "    ld.shared.v2.f32 {%q0, %q1}, [%read_q+$0];\n", at);
    else
        PTX_FILL(p, "    ld.shared.f32 %q0, [%read_q+$0];\n", at);
}

// The product for scores, in %a. %a accumulates the even strips, %b the odd ones, one of each per iteration.
static void make_scores(struct ptx *p, const struct ptx_attend *a, const struct tile *t)
{
    PTX_FILL(p,
             "    mov.u32 %i, the_run;\n"
             "    ld.shared.u64 %table, [%i];\n"
             "    ld.shared.u64 %kv, [%i+8];\n" PTX_KV_PAGE("%page_at") "    shl.b32 %base, %entry, 6;\n",
             0, 0, a->k.page_bytes);
    for (uint32_t i = 0; i < t->tq * t->tk; i++)
        PTX_FILL(p,
                 "    mov.f32 %a$0, 0f00000000;\n"
                 "    mov.f32 %b$0, 0f00000000;\n",
                 i);
    PTX_LINES(p, "    mov.u32 %chunk, 0;\n"
                 "CHUNK:\n");
    stage_chunk(p, a, t);
    find_tile(p, t);
    PTX_FILL(p,
             "    mov.u32 %read_k, stage;\n"
             "    add.u32 %read_q, %read_k, $0;\n"
             "    mad.lo.u32 %read_k, %kx, 4, %read_k;\n"
             "    mad.lo.u32 %read_q, %px, 4, %read_q;\n"
             "    mov.u32 %i, 0;\n"
             "STRIPS:\n",
             4 * CHUNK * KEY_STRIDE);
    for (uint32_t e = 0; e < 16; e++) {
        load_tile(p, 'k', t->tk, 4 * KEY_STRIDE * e);
        load_tile(p, 'q', t->tq, 4 * t->pair_stride * e);
        for (uint32_t n = 0; n < t->tq * t->tk; n++)
            if (e < 8)
                PTX_FILL(p, "    fma.rn.f32 %a$0, %k$1, %q$2, %a$0;\n", n, n % t->tk, n / t->tk);
            else
                PTX_FILL(p, "    fma.rn.f32 %b$0, %k$1, %q$2, %b$0;\n", n, n % t->tk, n / t->tk);
    }
    PTX_FILL(p,
             "    add.u32 %read_k, %read_k, $0;\n"
             "    add.u32 %read_q, %read_q, $1;\n"
             "    add.u32 %i, %i, 16;\n"
             "    setp.lt.u32 %more, %i, 32;\n"
             "    @%more bra.uni STRIPS;\n"
             "    add.u32 %chunk, %chunk, 32;\n"
             "    setp.lt.u32 %more, %chunk, $2;\n"
             "    @%more bra.uni CHUNK;\n",
             64 * KEY_STRIDE, 64 * t->pair_stride, a->k.dim);
    for (uint32_t i = 0; i < t->tq * t->tk; i++)
        PTX_FILL(p, "    add.rn.f32 %a$0, %a$0, %b$0;\n", i);
}

// Sets %position_of and %low_of, the last and first position that pair i sees. Pairs beyond the run copy its last
// row.
static void pair_range(struct ptx *p, const struct ptx_attend *a, const struct tile *t, uint32_t i)
{
    PTX_FILL(p,
             "    add.u32 %i, %px, $0;\n"
             "    div.u32 %i, %i, $1;\n"
             "    add.u32 %i, %i, %position;\n"
             "    min.u32 %position_of, %i, %last_position;\n",
             i, t->heads);
    attend_low_of(p, a, ATTEND_LOW_PAIR);
}

// Sets %here to whether the pair sees the thread's j-th key.
static void seen(struct ptx *p, uint32_t j)
{
    PTX_FILL(p,
             "    add.u32 %i, %slot, $0;\n"
             "    setp.le.u32 %here, %i, %position_of;\n"
             "    setp.ge.and.u32 %here, %i, %low_of, %here;\n",
             j);
}

// Reduces %part over the threads with the same pairs: to the maximum if `most`, else to the sum.
static void reduce(struct ptx *p, const struct tile *t, bool most)
{
    for (uint32_t by = 1; by < t->key_threads; by *= 2) {
        PTX_FILL(p, "    shfl.sync.bfly.b32 %other, %part, $0, 31, 0xffffffff;\n", by);
        if (most)
            PTX_LINES(p, "    max.f32 %part, %part, %other;\n");
        else
            PTX_LINES(p, "    add.rn.f32 %part, %part, %other;\n");
    }
}

// Adds the slope times the distance to the score of the thread's j-th key.
static void add_slope(struct ptx *p, uint32_t j)
{
    PTX_FILL(p,
             "    add.u32 %i, %slot, $0;\n"
             "    sub.s32 %i, %i, %position_of;\n"
             "    cvt.rn.f32.s32 %away, %i;\n"
             "    fma.rn.f32 %score, %slope, %away, %score;\n",
             j);
}

// Computes the scores of pair i, their maximum, the weights (in %a) and the sum of these. A weight of -1, which no
// weight can be, marks a key that the pair does not see.
static void pair_weights(struct ptx *p, const struct ptx_attend *a, const struct tile *t, uint32_t i)
{
    pair_range(p, a, t, i);
    if (a->slopes) {
        find_head(p, t, i);
        PTX_LINES(p, PTX_ADDRESS("%at", "slopes") "    mad.wide.u32 %at, %i, 4, %at;\n"
                                                  "    ld.global.f32 %slope, [%at];\n");
    }
    PTX_LINES(p, "    mov.f32 %part, 0fFF800000;\n");
    for (uint32_t j = 0; j < t->tk; j++) {
        uint32_t n = i * t->tk + j;
        PTX_FILL(p, "    mul.rn.f32 %score, %a$0, 0f$x1;\n", n, ptx_float_bits(a->scale));
        if (a->softcap > 0)
            attend_softcap(p, a->softcap);
        if (a->slopes)
            add_slope(p, j);
        seen(p, j);
        PTX_FILL(p,
                 "    selp.f32 %a$0, %score, 0fFF800000, %here;\n"
                 "    max.f32 %part, %part, %a$0;\n",
                 n);
    }
    reduce(p, t, true);
    PTX_FILL(p,
             "    max.f32 %new, %top$0, %part;\n"
             "    sub.rn.f32 %keep, %top$0, %new;\n"
             "    mul.rn.f32 %keep, %keep, 0f$x1;\n"
             "    ex2.approx.ftz.f32 %keep, %keep;\n"
             "    setp.gt.u32 %none, %base, %position_of;\n"
             "    setp.lt.or.u32 %none, %top_of_page, %low_of, %none;\n"
             "    selp.f32 %keep, 0f3F800000, %keep, %none;\n"
             "    @%writes st.shared.f32 [%stats+$2], %new;\n"
             "    @%writes st.shared.f32 [%stats+$3], %keep;\n",
             i, ptx_float_bits((float)LOG2_E), stat_at(t, TOP, i), stat_at(t, KEEP, i));
    for (uint32_t j = 0; j < t->tk; j++) {
        uint32_t n = i * t->tk + j;
        seen(p, j);
        PTX_FILL(p,
                 "    sub.rn.f32 %a$0, %a$0, %new;\n"
                 "    mul.rn.f32 %a$0, %a$0, 0f$x1;\n"
                 "    ex2.approx.ftz.f32 %a$0, %a$0;\n"
                 "    selp.f32 %b$0, %a$0, 0f00000000, %here;\n"
                 "    selp.f32 %a$0, %a$0, 0fBF800000, %here;\n",
                 n, ptx_float_bits((float)LOG2_E));
    }
    for (uint32_t by = 1; by < t->tk; by *= 2) // the tree over the low bits of the slot
        for (uint32_t j = 0; j < t->tk; j += 2 * by)
            PTX_FILL(p, "    add.rn.f32 %b$0, %b$0, %b$1;\n", i * t->tk + j, i * t->tk + j + by);
    PTX_FILL(p, "    mov.f32 %part, %b$0;\n", i * t->tk);
    reduce(p, t, false);
    PTX_FILL(p,
             "    mov.f32 %sum, 0f00000000;\n"
             "    @%writes ld.shared.f32 %sum, [%stats+$0];\n"
             "    fma.rn.f32 %sum, %sum, %keep, %part;\n"
             "    @%writes st.shared.f32 [%stats+$0], %sum;\n",
             stat_at(t, SUM, i));
}

// At the end of a split, computes the factors KEEP_TOTAL and WORTH and folds the split into the totals' maximum and
// sum. A pair that sees none of the split gets WORTH = -1. Then clears TOP and SUM for the next split.
static void fold_stats(struct ptx *p, const struct ptx_attend *a, const struct tile *t)
{
    PTX_LINES(p, "    @!%ends bra.uni WEIGHED;\n"
                 "    @!%writes bra WEIGHED;\n");
    for (uint32_t i = 0; i < t->tq; i++) {
        pair_range(p, a, t, i);
        PTX_FILL(p,
                 "    ld.shared.f32 %ttop, [%stats+$1];\n"
                 "    ld.shared.f32 %tsum, [%stats+$2];\n"
                 "    ld.shared.f32 %top, [%stats+$3];\n"
                 "    ld.shared.f32 %sum, [%stats+$4];\n"
                 "    setp.le.u32 %fold, %split_base, %position_of;\n"
                 "    setp.ge.and.u32 %fold, %top_of_page, %low_of, %fold;\n"
                 "    max.f32 %new, %ttop, %top;\n"
                 "    sub.rn.f32 %keep, %ttop, %new;\n"
                 "    mul.rn.f32 %keep, %keep, 0f$x0;\n"
                 "    ex2.approx.ftz.f32 %keep, %keep;\n"
                 "    sub.rn.f32 %worth, %top, %new;\n"
                 "    mul.rn.f32 %worth, %worth, 0f$x0;\n"
                 "    ex2.approx.ftz.f32 %worth, %worth;\n"
                 "    mul.rn.f32 %tsum, %tsum, %keep;\n"
                 "    fma.rn.f32 %tsum, %sum, %worth, %tsum;\n"
                 "    @%fold st.shared.f32 [%stats+$1], %new;\n"
                 "    @%fold st.shared.f32 [%stats+$2], %tsum;\n"
                 "    @!%fold mov.f32 %worth, 0fBF800000;\n"
                 "    st.shared.f32 [%stats+$5], %keep;\n"
                 "    st.shared.f32 [%stats+$6], %worth;\n"
                 "    st.shared.f32 [%stats+$3], 0fFF800000;\n"
                 "    st.shared.f32 [%stats+$4], 0f00000000;\n",
                 ptx_float_bits((float)LOG2_E), stat_at(t, TOTAL_TOP, i), stat_at(t, TOTAL_SUM, i), stat_at(t, TOP, i),
                 stat_at(t, SUM, i), stat_at(t, KEEP_TOTAL, i), stat_at(t, WORTH, i));
    }
    PTX_LINES(p, "WEIGHED:\n");
}

// Turns the scores in %a into weights in shared memory, [key][pair], and updates the stats. Sets %whole (all rows of
// the run see the whole page) and %ends (the page is the last one of a split or of the run).
static void make_weights(struct ptx *p, const struct ptx_attend *a, const struct tile *t)
{
    PTX_LINES(p, "    mov.u32 %i, the_run;\n"
                 "    ld.shared.u32 %position, [%i+16];\n"
                 "    ld.shared.u32 %last_position, [%i+20];\n"
                 "    ld.shared.u32 %shift, [%i+24];\n"
                 "    ld.shared.u32 %zero, [%i+28];\n" // 0, unknown to ptxas, which so cannot compute early and spill
                 "    mov.u32 %thread, %tid.x;\n"
                 "    add.u32 %thread, %thread, %zero;\n");
    attend_low_of(p, a, ATTEND_LOW_LAST);
    find_tile(p, t);
    PTX_FILL(p,
             "    shr.u32 %last_page, %last_position, 6;\n"
             "    add.u32 %slot, %base, %kx;\n"
             "    add.u32 %top_of_page, %base, 63;\n"
             "    setp.ge.u32 %whole, %base, %last_low;\n"
             "    setp.le.and.u32 %whole, %top_of_page, %position, %whole;\n"
             "    add.u32 %i, %entry, 1;\n"
             "    shr.u32 %j, %i, %shift;\n"
             "    shl.b32 %j, %j, %shift;\n"
             "    setp.eq.u32 %ends, %i, %j;\n"
             "    setp.eq.or.u32 %ends, %entry, %last_page, %ends;\n"
             "    shr.u32 %split_base, %entry, %shift;\n"
             "    shl.b32 %split_base, %split_base, %shift;\n"
             "    shl.b32 %split_base, %split_base, 6;\n"
             "    mov.u32 %stats, stats;\n"
             "    mad.lo.u32 %stats, %px, 4, %stats;\n"
             "    mov.u32 %write_w, weights;\n"
             "    mad.lo.u32 %write_w, %kx, $0, %write_w;\n"
             "    mad.lo.u32 %write_w, %px, 4, %write_w;\n",
             4 * t->pair_stride);
    for (uint32_t i = 0; i < t->tq; i++)
        PTX_FILL(p, "    ld.shared.f32 %top$0, [%stats+$1];\n", i, stat_at(t, TOP, i));
    PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n"); // all threads have read TOP before one of them writes it
    for (uint32_t i = 0; i < t->tq; i++)
        pair_weights(p, a, t, i);
    for (uint32_t j = 0; j < t->tk; j++) {
        uint32_t at = 4 * t->pair_stride * j;
        if (t->tq == 4)
            PTX_FILL(p, "    st.shared.v4.f32 [%write_w+$0], {%a$1, %a$2, %a$3, %a$4};\n", at, j, t->tk + j,
                     2 * t->tk + j, 3 * t->tk + j);
        else if (t->tq == 2)
            PTX_FILL(p, "    st.shared.v2.f32 [%write_w+$0], {%a$1, %a$2};\n", at, j, t->tk + j);
        else
            PTX_FILL(p, "    st.shared.f32 [%write_w+$0], %a$1;\n", at, j);
    }
    fold_stats(p, a, t);
}

// Copies the values of `values` keys from slot %chunk on to the stage, as floats.
static void stage_values(struct ptx *p, const struct ptx_attend *a, const struct tile *t)
{
    uint32_t units = t->values * t->value_strips, size = a->v.type == DT_F32 ? 4 : 2;
    enum ptx_strip_guard guard = ptx_kv_guard(&a->v, PTX_STRIP_WHOLE);
    PTX_FILL(p,
             "    mad.wide.u32 %pv, %head_kv, $0, %page_at;\n"
             "    add.u64 %pv, %pv, $1;\n",
             KV_PAGE * t->v_row, a->v.offset);
    for (uint32_t at = 0; at < units; at += THREADS) {
        PTX_FILL(p,
                 "    add.u32 %n, %thread, $0;\n"
                 "    setp.ge.u32 %more, %n, $1;\n",
                 at, units);
        if (at + THREADS > units)
            PTX_FILL(p, "    @%more bra VALUES$0;\n", at);
        PTX_FILL(p,
                 "    div.u32 %i, %n, $0;\n"
                 "    mul.lo.u32 %j, %i, $0;\n"
                 "    sub.u32 %strip, %n, %j;\n"
                 "    mov.u32 %read_w, stage;\n"
                 "    mad.lo.u32 %read_w, %i, $1, %read_w;\n"
                 "    mad.lo.u32 %read_w, %strip, 32, %read_w;\n"
                 "    add.u32 %i, %i, %chunk;\n"
                 "    mad.wide.u32 %sa, %i, $2, %pv;\n",
                 t->value_strips, 4 * t->value_stride, t->v_row);
        if (dtype_info[a->v.type].block > 1) {
            PTX_FILL(p,
                     "    shr.u32 %i, %strip, 2;\n"
                     "    mad.wide.u32 %sa, %i, $0, %sa;\n",
                     a->v.type == DT_Q8_0 ? 34 : 18);
            ptx_kv_strip_in_block(p, a->v.type);
        } else {
            PTX_FILL(p,
                     "    mad.wide.u32 %sa, %strip, $0, %sa;\n"
                     "    shl.b32 %i, %strip, 3;\n"
                     "    sub.s32 %left, $1, %i;\n",
                     8 * size, a->v.dim);
        }
        ptx_kv_strip(p, a->v.type, guard, false, 0, 0);
        PTX_FILL(p,
                 "    st.shared.v4.f32 [%read_w], {%e0, %e1, %e2, %e3};\n"
                 "    st.shared.v4.f32 [%read_w+16], {%e4, %e5, %e6, %e7};\n"
                 "VALUES$0:\n",
                 at);
    }
}

// One iteration of the product for values, over `keys` keys. If `masked`, pairs whose weight is -1 skip the key.
static void multiply_values(struct ptx *p, const struct tile *t, uint32_t keys, bool masked)
{
    for (uint32_t key = 0; key < keys; key++) {
        PTX_FILL(p, "    ld.shared.v4.f32 {%w0, %w1, %w2, %w3}, [%read_w+$0];\n", 4 * key * t->pair_stride);
        for (uint32_t v = 0; v < t->vectors; v++) {
            PTX_FILL(p, "    ld.shared.v4.f32 {%v0, %v1, %v2, %v3}, [%read_v$1+$0];\n", 4 * key * t->value_stride, v);
            for (uint32_t i = 0; i < 4; i++) {
                if (masked)
                    PTX_FILL(p, "    setp.neu.f32 %here, %w$0, 0fBF800000;\n", i);
                for (uint32_t e = 0; e < 4; e++) {
                    if (masked)
                        PTX_LINES(p, "    @%here ");
                    PTX_FILL(p, "    fma.rn.f32 %o$0, %w$1, %v$2, %o$0;\n", (i * t->vectors + v) * 4 + e, i, e);
                }
            }
        }
    }
    for (uint32_t v = 0; v < t->vectors; v++)
        PTX_FILL(p, "    add.u32 %read_v$0, %read_v$0, $1;\n", v, 4 * keys * t->value_stride);
    PTX_FILL(p,
             "    add.u32 %read_w, %read_w, $0;\n"
             "    add.u32 %i, %i, $1;\n"
             "    setp.lt.u32 %more, %i, $2;\n",
             4 * keys * t->pair_stride, keys, t->values);
}

// The product for values, after the accumulators are multiplied by KEEP. Pages that all rows see need no mask.
static void add_values(struct ptx *p, const struct ptx_attend *a, const struct tile *t)
{
    PTX_FILL(p,
             "    bar.sync 0;\n"
             "    and.b32 %dx, %thread, $0;\n"
             "    div.u32 %pair, %thread, $1;\n"
             "    shl.b32 %pair, %pair, 2;\n"
             "    mov.u32 %stats, stats;\n"
             "    mad.lo.u32 %stats, %pair, 4, %stats;\n"
             "    ld.shared.v4.f32 {%w0, %w1, %w2, %w3}, [%stats];\n",
             t->dim_threads - 1, t->dim_threads);
    for (uint32_t i = 0; i < 16 * t->vectors; i++)
        PTX_FILL(p, "    mul.rn.f32 %o$0, %o$0, %w$1;\n", i, i / (4 * t->vectors));
    attend_low_of(p, a, ATTEND_LOW_FIRST);
    PTX_FILL(p,
             "    max.u32 %chunk, %low, %base;\n"
             "    sub.u32 %chunk, %chunk, %base;\n"
             "    and.b32 %chunk, %chunk, $0;\n"
             "    sub.u32 %slots, %last_position, %base;\n"
             "    min.u32 %slots, %slots, 63;\n"
             "VALUES:\n",
             64 - t->values);
    stage_values(p, a, t);
    PTX_FILL(p,
             "    bar.sync 0;\n"
             "    mov.u32 %read_w, weights;\n"
             "    mad.lo.u32 %read_w, %chunk, $0, %read_w;\n"
             "    mad.lo.u32 %read_w, %pair, 4, %read_w;\n"
             "    mov.u32 %j, stage;\n",
             4 * t->pair_stride);
    for (uint32_t v = 0; v < t->vectors; v++) // threads beyond the last vector read the last one and store nothing
        PTX_FILL(p,
                 "    add.u32 %i, %dx, $1;\n"
                 "    min.u32 %i, %i, $2;\n"
                 "    mad.lo.u32 %read_v$0, %i, 16, %j;\n",
                 v, v * t->dim_threads, t->value_stride / 4 - 1);
    PTX_LINES(p, "    mov.u32 %i, 0;\n"
                 "    @!%whole bra.uni MASKED;\n"
                 "WHOLE:\n");
    multiply_values(p, t, 4, false);
    PTX_LINES(p, "    @%more bra.uni WHOLE;\n"
                 "    bra.uni ADDED;\n"
                 "MASKED:\n");
    multiply_values(p, t, 1, true);
    PTX_FILL(p,
             "    @%more bra.uni MASKED;\n"
             "ADDED:\n"
             "    bar.sync 0;\n"
             "    add.u32 %chunk, %chunk, $0;\n"
             "    setp.le.u32 %more, %chunk, %slots;\n"
             "    @%more bra.uni VALUES;\n",
             t->values);
}

// At the end of a split, folds its values into the totals. Then goes on with the next page of the run.
static void fold_values(struct ptx *p, const struct tile *t)
{
    PTX_FILL(p,
             "    @!%ends bra.uni FOLDED;\n"
             "    ld.shared.v4.f32 {%w0, %w1, %w2, %w3}, [%stats+$0];\n"
             "    ld.shared.v4.f32 {%g0, %g1, %g2, %g3}, [%stats+$1];\n",
             stat_at(t, KEEP_TOTAL, 0), stat_at(t, WORTH, 0));
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p, "    setp.neu.f32 %here, %g$0, 0fBF800000;\n", i);
        for (uint32_t e = 4 * t->vectors * i; e < 4 * t->vectors * (i + 1); e++)
            PTX_FILL(p,
                     "    @%here mul.rn.f32 %t$0, %t$0, %w$1;\n"
                     "    @%here fma.rn.f32 %t$0, %o$0, %g$1, %t$0;\n"
                     "    mov.f32 %o$0, 0f00000000;\n",
                     e, i);
    }
    PTX_LINES(p, "FOLDED:\n"
                 "    add.u32 %entry, %entry, 1;\n"
                 "    shr.u32 %last_page, %last_position, 6;\n"
                 "    setp.le.u32 %more, %entry, %last_page;\n"
                 "    @%more bra.uni PAGE;\n");
}

// Stores the rows of the run, the totals divided by the sums of weights, and goes on with the next run.
static void write_rows(struct ptx *p, const struct ptx_attend *a, const struct tile *t)
{
    find_tile(p, t);
    PTX_LINES(p, "    mov.u32 %i, stats;\n"
                 "    mad.lo.u32 %i, %px, 4, %i;\n"
                 "    bar.sync 0;\n"
                 "    sub.u32 %length, %last_position, %position;\n"
                 "    add.u32 %length, %length, 1;\n");
    for (uint32_t i = 0; i < t->tq; i++)
        PTX_FILL(p,
                 "    mov.f32 %part, 0f3F800000;\n"
                 "    @%writes ld.shared.f32 %part, [%i+$1];\n"
                 "    rcp.rn.f32 %part, %part;\n"
                 "    @%writes st.shared.f32 [%i+$0], %part;\n",
                 stat_at(t, KEEP, i), stat_at(t, TOTAL_SUM, i));
    PTX_FILL(p,
             "    bar.sync 0;\n"
             "    ld.shared.v4.f32 {%w0, %w1, %w2, %w3}, [%stats];\n"
             "    mov.u32 %row, %ctaid.x;\n"
             "    mad.lo.u32 %row, %row, $0, %run;\n",
             t->rows);
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p,
                 "    add.u32 %i, %pair, $0;\n"
                 "    div.u32 %n, %i, $1;\n"
                 "    mul.lo.u32 %j, %n, $1;\n"
                 "    sub.u32 %j, %i, %j;\n"
                 "    add.u32 %j, %j, %block;\n"
                 "    setp.lt.u32 %there, %n, %length;\n"
                 "    setp.lt.and.u32 %there, %i, $2, %there;\n"
                 "    setp.lt.and.u32 %there, %j, $3, %there;\n"
                 "    add.u32 %n, %n, %row;\n"
                 "    mad.lo.u32 %j, %head_kv, $3, %j;\n",
                 i, t->heads, t->heads * t->rows, t->group);
        PTX_FILL(p,
                 PTX_ADDRESS("%py", "y") "    mad.wide.u32 %py, %n, $0, %py;\n"
                                         "    mad.wide.u32 %py, %j, $1, %py;\n"
                                         "    mad.wide.u32 %py, %dx, 16, %py;\n",
                 4 * a->heads * a->v.dim, 4 * a->v.dim);
        for (uint32_t v = 0; v < t->vectors; v++)
            for (uint32_t e = 0; e < 4; e++)
                PTX_FILL(p,
                         "    shl.b32 %i, %dx, 2;\n"
                         "    add.u32 %i, %i, $0;\n"
                         "    setp.lt.and.u32 %here, %i, $1, %there;\n"
                         "    mul.rn.f32 %part, %t$2, %w$3;\n"
                         "    @%here st.global.f32 [%py+$4], %part;\n",
                         4 * v * t->dim_threads + e, a->v.dim, (i * t->vectors + v) * 4 + e, i,
                         4 * (4 * v * t->dim_threads + e));
    }
    PTX_FILL(p,
             "    bar.sync 0;\n"
             "RUN_END:\n"
             "    add.u32 %run, %run, %length;\n"
             "    setp.lt.u32 %more, %run, $0;\n" // rows beyond the step's last one are single rows, which are skipped
             "    @%more bra.uni RUN;\n"
             "    ret;\n"
             "}\n",
             t->rows);
}

void attend_tiles(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch)
{
    const struct tile t = tile_of(a);
    declare(p, a, &t);
    attend_find_runs(p, a, t.rows, t.blocks, t.heads);
    begin_run(p, a, &t);
    find_query(p, a, &t);
    PTX_LINES(p, "PAGE:\n");
    make_scores(p, a, &t);
    make_weights(p, a, &t);
    add_values(p, a, &t);
    fold_values(p, &t);
    write_rows(p, a, &t);
    *launch =
        (struct ptx_launch){.entry = "attend_tiles", .grid = {1, a->heads_kv * t.blocks, 1}, .block = {THREADS, 1, 1}};
}
