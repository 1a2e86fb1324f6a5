// Emits attention with one row per CTA: `attend` (form ROWS) and `attend_lone` (form LONE, which skips rows that
// emit_attend_tiles.c serves). emit_attend_parts.h has the loop that it equals and the order of its sums;
// emit_attend_fold.c emits the end of the kernel. Chosen for generation, where a step has few rows, and for single
// rows of larger steps, where results are to be exact or heads do not suit tensor cores (emit_attend_half_rows.c).
//
// Grid: x the row, y the KV head (times the blocks of up to 8 query heads that share it), z the first split; a CTA
// processes every gridDim.z-th split of the row's positions. The block is 128 threads. For each page of 64 positions:
//   scores  Two threads have a key: one multiplies the even strips of 8 elements, the other the odd ones, for all
//           query heads of the CTA. They exchange their sums, and each then has the complete scores of half of the
//           heads.
//   values  A thread has one or more elements of the value row for all heads. Where a row has fewer elements than
//           there are threads, sets of threads divide the heads.
//
// Values are copied to shared memory without conversion. Their loads to registers are issued before the scores are
// computed and are in flight meanwhile. Quantised keys are copied too, because their blocks are not aligned to wide
// loads; other keys are read directly from global memory, 16 bytes at a time.
//
// Shared memory, at most 48 KB: queries (16 KB), weights of a page (2 KB), values (16 KB), quantised keys (12 KB),
// and maxima and sums of the warps.
//
// Cost: a page of keys and values is read once for up to 8 query heads of a row; rows do not share reads.
#include "kernels/ptx/emit_attend_rows.h"

#include <math.h>

enum {
    THREADS = 128,
    HEADS_MOST = 8,              // query heads of a CTA
    QUERY_FLOATS = 4096,         // query elements of a CTA, which are in shared memory
    ROUND_BYTES = THREADS * 128, // values in flight: a thread has 32 registers for them
    KEY_BYTES = 12 << 10,        // the largest page of quantised keys that is copied to shared memory
};

// Returns the strips per iteration of the score loop: a divisor of `strips`, at most 10. For quantised types it is
// even, because a block of 32 elements has two strips of each thread.
static uint32_t unroll_of(const struct ptx_kv *k, uint32_t strips)
{
    bool blocks = dtype_info[k->type].block > 1;
    uint32_t n = MIN(strips, 10u);
    while (strips % n || (blocks && n % 2))
        n--;
    return n;
}

static struct attend_shape shape_of(const struct ptx_attend *a)
{
    struct attend_shape s = {.group = a->heads / a->heads_kv, .wide = 32};
    uint32_t most = MAX(1u, MIN((uint32_t)HEADS_MOST, QUERY_FLOATS / a->k.dim));
    s.blocks = ptx_tiles(s.group, most);
    s.heads = ptx_tiles(s.group, s.blocks);
    s.half = ptx_tiles(s.heads, 2);
    s.strips = ptx_tiles(ptx_tiles(a->k.dim, 8), 2);
    s.unroll = unroll_of(&a->k, s.strips);
    s.query = 16 * s.strips;
    while (s.wide < THREADS && s.wide < a->v.dim)
        s.wide *= 2;
    s.groups = THREADS / s.wide;
    s.each = ptx_tiles(a->v.dim, s.wide);
    s.per_group = ptx_tiles(s.heads, s.groups);
    s.weights = (uint32_t)align_up(s.per_group * s.groups, 4);
    s.k_row = ptx_kv_row_bytes(&a->k);
    s.v_row = ptx_kv_row_bytes(&a->v);
    for (s.round = KV_PAGE; s.round * s.v_row > ROUND_BYTES;)
        s.round /= 2;
    s.places = a->splits + (a->window != 0);
    s.partial = (uint32_t)align_up(a->v.dim + 2, 4);
    s.keys_copied = dtype_info[a->k.type].block > 1 && KV_PAGE * s.k_row <= KEY_BYTES;
    return s;
}

static void declare(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: attention of $1 heads, $2 of keys of $3 and values of $4; a CTA has a row and $5 heads\n",
             a->node, a->heads, a->heads_kv, a->k.dim, a->v.dim, s->heads);
    if (a->form == PTX_ATTEND_LONE)
        PTX_FILL(p, ".visible .entry attend_lone_$0(\n", a->node);
    else
        PTX_FILL(p, ".visible .entry attend_$0(\n", a->node);
    PTX_LINES(p, "    .param .u64 step,\n"
                 "    .param .u64 positions,\n"
                 "    .param .u64 tables,\n"
                 "    .param .u64 pages,\n"
                 "    .param .u64 q,\n");
    if (a->sinks)
        PTX_LINES(p, "    .param .u64 sinks,\n");
    if (a->slopes)
        PTX_LINES(p, "    .param .u64 slopes,\n");
    PTX_LINES(p, "    .param .u64 partials,\n"
                 "    .param .u64 counters,\n"
                 "    .param .u64 y)\n"
                 ".maxntid 128, 1, 1\n"
                 ".minnctapersm 2\n" // without it ptxas saves registers by spills
                 "{\n" PTX_ROW_REGS PTX_KV_REGS PTX_STRIP_REGS);
    PTX_FILL(
        p,
        "    .reg .pred %more, %first, %odd, %second, %seen, %alone, %live, %less, %last;\n"
        "    .reg .u32 %thread, %lane, %warp, %half, %key, %head, %block, %head_kv, %column, %group, %i, %from, %to;\n"
        "    .reg .u32 %low, %low_page, %last_page, %end_page, %shift, %split, %first_split, %splits, %z, %lanes;\n"
        "    .reg .u32 %read_q, %base, %from_slot, %to_slot, %round, %near, %far;\n"
        "    .reg .u32 %write_w, %read_w, %read_v, %nibble, %slots, %copy, %reds, %my_red;\n"
        "    .reg .u64 %pq, %py, %pk, %pv, %page_at, %at, %part;\n"
        "    .reg .f32 %score, %other, %mine, %t, %u, %new, %keep, %worth, %m<4>, %w<8>, %value, %scale;\n"
        "    .reg .f32 %q<4>, %s<$0>, %top<$1>, %weight<$1>, %vtop<$2>, %vsum<$2>, %ttop<$2>, %tsum<$2>, %keep<$2>;\n"
        "    .reg .f32 %o<$3>, %t<$3>;\n"
        "    .reg .u32 %at_red<$2>, %at_value<$4>, %at_scale<$4>;\n"
        "    .reg .pred %has<$2>, %column_live<$4>;\n",
        s->heads, s->half, s->per_group, s->per_group * s->each, s->each);
    if (a->slopes)
        PTX_FILL(p, "    .reg .f32 %slope<$0>, %away;\n    .reg .u32 %own;\n", s->half);
    PTX_FILL(p,
             "    .shared .align 16 .b8 query[$0];\n"
             "    .shared .align 16 .b8 weights[$1];\n"
             "    .shared .align 16 .b8 reds[$2];\n" // for each head the maxima of the 4 warps; then likewise the sums
             "    .shared .align 16 .b8 values[$3];\n",
             4 * s->heads * s->query, 4 * KV_PAGE * s->weights, 32 * s->heads, s->round * s->v_row);
    if (s->keys_copied)
        PTX_FILL(p, "    .shared .align 16 .b8 keys[$0];\n", KV_PAGE * s->k_row);
}

// Sets the registers that stay constant: the thread's key and half for scores, its column and set for values, and its
// addresses in shared memory.
static void find_places(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s)
{
    PTX_FILL(p,
             "    mov.u32 %thread, %tid.x;\n"
             "    and.b32 %lane, %thread, 31;\n"
             "    shr.u32 %warp, %thread, 5;\n"
             "    and.b32 %half, %thread, 1;\n"
             "    setp.ne.u32 %odd, %half, 0;\n"
             "    shr.u32 %key, %thread, 1;\n"
             "    setp.lt.u32 %first, %lane, 2;\n"
             "    mov.u32 %block, %ctaid.y;\n"
             "    div.u32 %head_kv, %block, $0;\n"
             "    mul.lo.u32 %i, %head_kv, $0;\n"
             "    sub.u32 %block, %block, %i;\n"
             "    mul.lo.u32 %block, %block, $1;\n" // the first head of the CTA within the group
             "    and.b32 %column, %thread, $2;\n"
             "    div.u32 %group, %thread, $3;\n"
             "    mul.lo.u32 %group, %group, $4;\n" // the first head of the thread's set within the block
             "    mov.u32 %reds, reds;\n",
             s->blocks, s->heads, s->wide - 1, s->wide, s->per_group);
    // An even thread gets the scores of the first `half` heads, an odd thread those of the others.
    PTX_FILL(p,
             "    mul.lo.u32 %i, %half, $0;\n"
             "    mad.lo.u32 %my_red, %i, 16, %reds;\n"
             "    mov.u32 %write_w, weights;\n"
             "    mad.lo.u32 %write_w, %key, $1, %write_w;\n"
             "    mad.lo.u32 %write_w, %i, 4, %write_w;\n",
             s->half, 4 * s->weights);
    for (uint32_t i = 0; i < s->per_group; i++)
        PTX_FILL(p,
                 "    add.u32 %i, %group, $0;\n"
                 "    setp.lt.u32 %has$0, %i, $1;\n"
                 "    min.u32 %near, %i, $2;\n"
                 "    mad.lo.u32 %at_red$0, %near, 16, %reds;\n"
                 "    add.u32 %i, %i, %block;\n"
                 "    setp.lt.and.u32 %has$0, %i, $3, %has$0;\n",
                 i, s->heads, s->heads - 1, s->group);
    PTX_LINES(p, "    and.b32 %i, %column, 16;\n"
                 "    shr.u32 %nibble, %i, 2;\n"); // the shift of Q4_0: 0 or 4, equal for all elements of the thread
    for (uint32_t j = 0; j < s->each; j++) {
        PTX_FILL(p,
                 "    add.u32 %i, %column, $1;\n"
                 "    setp.lt.u32 %column_live$0, %i, $2;\n"
                 "    min.u32 %i, %i, $3;\n",
                 j, j * s->wide, a->v.dim, a->v.dim - 1);
        if (a->v.type == DT_Q8_0)
            PTX_FILL(p,
                     "    shr.u32 %near, %i, 5;\n"
                     "    mul.lo.u32 %at_scale$0, %near, 34;\n"
                     "    and.b32 %i, %i, 31;\n"
                     "    add.u32 %at_value$0, %at_scale$0, %i;\n",
                     j);
        else if (a->v.type == DT_Q4_0)
            PTX_FILL(p,
                     "    shr.u32 %near, %i, 5;\n"
                     "    mul.lo.u32 %at_scale$0, %near, 18;\n"
                     "    and.b32 %near, %i, 15;\n"
                     "    add.u32 %at_value$0, %at_scale$0, %near;\n",
                     j);
        else
            PTX_FILL(p, "    mul.lo.u32 %at_value$0, %i, $1;\n", j, a->v.type == DT_F32 ? 4 : 2);
    }
}

// Sets the totals to what they are before the first split.
static void begin_totals(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s)
{
    for (uint32_t i = 0; i < s->per_group; i++)
        PTX_FILL(p,
                 "    mov.f32 %ttop$0, 0fFF800000;\n"
                 "    mov.f32 %tsum$0, 0f$x1;\n",
                 i, ptx_float_bits(a->sinks ? 1 : 0));
    for (uint32_t i = 0; i < s->per_group * s->each; i++)
        PTX_FILL(p, "    mov.f32 %t$0, 0f00000000;\n", i);
    if (!a->sinks)
        return;
    PTX_FILL(p,
             PTX_ADDRESS("%at", "sinks")
             "    mul.lo.u32 %i, %head_kv, $0;\n"
             "    add.u32 %i, %i, %block;\n"
             "    add.u32 %i, %i, %group;\n"
             "    mad.wide.u32 %at, %i, 4, %at;\n",
             s->group);
    for (uint32_t i = 0; i < s->per_group; i++)
        PTX_FILL(p, "    @%has$0 ld.global.f32 %ttop$0, [%at+$1];\n", i, 4 * i);
}

// Loads the slopes of the heads whose scores the thread gets. A head that does not exist takes that of the last one. %own is
// the row's own position, from which distances are: with attention both ways it is not the last one that the row sees.
static void load_slopes(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s)
{
    if (a->firsts)
        PTX_FILL(p,
                 PTX_ADDRESS("%at", "positions")
                 "    mad.wide.u32 %at, %row, 4, %at;\n"
                 "    ld.global.u32 %own, [%at+$0];\n",
                 2 * a->firsts);
    else
        PTX_LINES(p, "    mov.u32 %own, %position;\n");
    for (uint32_t i = 0; i < s->half; i++)
        PTX_FILL(p,
                 "    mad.lo.u32 %i, %half, $1, $0;\n"
                 "    min.u32 %i, %i, $4;\n"
                 "    add.u32 %i, %i, %block;\n"
                 "    min.u32 %i, %i, $2;\n"
                 "    mad.lo.u32 %i, %head_kv, $3, %i;\n"
                 PTX_ADDRESS("%at", "slopes")
                 "    mad.wide.u32 %at, %i, 4, %at;\n"
                 "    ld.global.f32 %slope$0, [%at];\n",
                 i, s->half, s->group - 1, s->group, s->heads - 1);
}

// Copies the queries to shared memory, padded with zeros to whole strips. Clears the totals, and the weights if they
// have places for heads that do not exist.
static void load_queries(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s)
{
    PTX_FILL(p,
             PTX_ADDRESS("%pq", "q")
             "    mad.wide.u32 %pq, %row, $0, %pq;\n"
             "    mul.lo.u32 %head, %head_kv, $1;\n"
             "    mad.wide.u32 %pq, %head, $2, %pq;\n"
             "    mov.u32 %from, %thread;\n"
             "QUERY:\n"
             "    setp.ge.u32 %more, %from, $3;\n"
             "    @%more bra QUERY_END;\n"
             "    div.u32 %head, %from, $4;\n"
             "    mul.lo.u32 %i, %head, $4;\n"
             "    sub.u32 %i, %from, %i;\n"
             "    add.u32 %head, %head, %block;\n"
             "    min.u32 %head, %head, $5;\n",
             4 * a->heads * a->k.dim, s->group, 4 * a->k.dim, s->heads * s->query, s->query, s->group - 1);
    PTX_FILL(p,
             "    mad.wide.u32 %at, %head, $0, %pq;\n"
             "    mad.wide.u32 %at, %i, 4, %at;\n"
             "    setp.lt.u32 %more, %i, $1;\n"
             "    mov.f32 %value, 0f00000000;\n"
             "    @%more ld.global.f32 %value, [%at];\n"
             "    mov.u32 %read_q, query;\n"
             "    mad.lo.u32 %read_q, %from, 4, %read_q;\n"
             "    st.shared.f32 [%read_q], %value;\n"
             "    add.u32 %from, %from, 128;\n"
             "    bra QUERY;\n"
             "QUERY_END:\n",
             4 * a->k.dim, a->k.dim);
    if (s->weights > s->heads) {
        PTX_LINES(p, "    mov.u32 %i, weights;\n"
                     "    mad.lo.u32 %i, %thread, 4, %i;\n");
        for (uint32_t at = 0; at < KV_PAGE * s->weights; at += THREADS)
            PTX_FILL(p, "    st.shared.f32 [%i+$0], 0f00000000;\n", 4 * at);
    }
    begin_totals(p, a, s);
    PTX_LINES(p, "    bar.sync 0;\n");
}

// Sets the first and last page of the split, and clears its maxima, sums and values.
static void begin_split(struct ptx *p, const struct attend_shape *s)
{
    PTX_LINES(p, "    add.u32 %split, %first_split, %z;\n"
                 "SPLIT:\n"
                 "    shl.b32 %entry, %split, %shift;\n"
                 "    add.u32 %end_page, %split, 1;\n"
                 "    shl.b32 %end_page, %end_page, %shift;\n"
                 "    sub.u32 %end_page, %end_page, 1;\n"
                 "    min.u32 %end_page, %end_page, %last_page;\n"
                 "    max.u32 %entry, %entry, %low_page;\n");
    for (uint32_t i = 0; i < s->half; i++)
        PTX_FILL(p, "    mov.f32 %top$0, 0fFF800000;\n", i);
    for (uint32_t i = 0; i < s->per_group; i++)
        PTX_FILL(p,
                 "    mov.f32 %vtop$0, 0fFF800000;\n"
                 "    mov.f32 %vsum$0, 0f00000000;\n",
                 i);
    for (uint32_t i = 0; i < s->per_group * s->each; i++)
        PTX_FILL(p, "    mov.f32 %o$0, 0f00000000;\n", i);
}

// A copy of `bytes` bytes from %at to shared memory, in units of 16 bytes per thread: copy_load loads to registers,
// copy_store stores these. `name` is 'k' for keys, 'v' for values.
static void copy_load(struct ptx *p, uint32_t bytes, char name)
{
    uint32_t units = bytes / 16, n = ptx_tiles(units, THREADS);
    PTX_LINES(p, "    mad.wide.u32 %at, %thread, 16, %at;\n");
    for (uint32_t i = 0; i < n; i++) {
        if ((i + 1) * THREADS > units) {
            PTX_FILL(p, "    setp.lt.u32 %last, %thread, $0;\n", units - i * THREADS);
            PTX_LINES(p, "    @%last ");
        }
        if (name == 'v')
            PTX_FILL(p, "    ld.global.v4.b32 {%cv$0, %cv$1, %cv$2, %cv$3}, [%at+$4];\n", 4 * i, 4 * i + 1, 4 * i + 2,
                     4 * i + 3, 16 * THREADS * i);
        else
            PTX_FILL(p, "    ld.global.v4.b32 {%ck$0, %ck$1, %ck$2, %ck$3}, [%at+$4];\n", 4 * i, 4 * i + 1, 4 * i + 2,
                     4 * i + 3, 16 * THREADS * i);
    }
}

static void copy_store(struct ptx *p, uint32_t bytes, char name)
{
    uint32_t units = bytes / 16, n = ptx_tiles(units, THREADS);
    if (name == 'v')
        PTX_LINES(p, "    mov.u32 %copy, values;\n");
    else
        PTX_LINES(p, "    mov.u32 %copy, keys;\n");
    PTX_LINES(p, "    mad.lo.u32 %copy, %thread, 16, %copy;\n");
    for (uint32_t i = 0; i < n; i++) {
        if ((i + 1) * THREADS > units) {
            PTX_FILL(p, "    setp.lt.u32 %last, %thread, $0;\n", units - i * THREADS);
            PTX_LINES(p, "    @%last ");
        }
        if (name == 'v')
            PTX_FILL(p, "    st.shared.v4.b32 [%copy+$4], {%cv$0, %cv$1, %cv$2, %cv$3};\n", 4 * i, 4 * i + 1, 4 * i + 2,
                     4 * i + 3, 16 * THREADS * i);
        else
            PTX_FILL(p, "    st.shared.v4.b32 [%copy+$4], {%ck$0, %ck$1, %ck$2, %ck$3};\n", 4 * i, 4 * i + 1, 4 * i + 2,
                     4 * i + 3, 16 * THREADS * i);
    }
}

// Begins page %entry: sets the range of slots that the row sees, %from_slot to %to_slot - 1, issues the loads of the
// first values, and copies keys if they are quantised.
static void begin_page(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s)
{
    PTX_FILL(p,
             "PAGE:\n"
             PTX_KV_PAGE("%page_at")
             "    {\n"
             "    .reg .b32 %cv<$0>, %ck<$1>;\n"
             "    shl.b32 %base, %entry, 6;\n"
             "    max.u32 %from_slot, %low, %base;\n"
             "    sub.u32 %from_slot, %from_slot, %base;\n"
             "    sub.u32 %to_slot, %position, %base;\n"
             "    add.u32 %to_slot, %to_slot, 1;\n"
             "    min.u32 %to_slot, %to_slot, 64;\n"
             "    mad.wide.u32 %pv, %head_kv, $3, %page_at;\n"
             "    add.u64 %pv, %pv, $4;\n"
             "    mad.wide.u32 %pk, %head_kv, $5, %page_at;\n"
             "    add.u64 %pk, %pk, $6;\n",
             4 * ptx_tiles(s->round * s->v_row, 16 * THREADS),
             s->keys_copied ? 4 * ptx_tiles(KV_PAGE * s->k_row, 16 * THREADS) : 1, a->v.page_bytes,
             KV_PAGE * s->v_row, a->v.offset, KV_PAGE * s->k_row, a->k.offset);
    if (s->keys_copied) {
        PTX_LINES(p, "    mov.u64 %at, %pk;\n");
        copy_load(p, KV_PAGE * s->k_row, 'k');
    }
    PTX_FILL(p, "    and.b32 %round, %from_slot, $0;\n", 64 - s->round);
    PTX_FILL(p, "    mad.wide.u32 %at, %round, $0, %pv;\n", s->v_row);
    copy_load(p, s->round * s->v_row, 'v');
    if (s->keys_copied) {
        copy_store(p, KV_PAGE * s->k_row, 'k');
        PTX_LINES(p, "    bar.sync 0;\n");
    }
}

// Multiplies one strip of the key with all queries. The thread's i-th strip is strip 2i + half of the key; `i` counts
// within an iteration of the loop.
static void score_strip(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s, uint32_t i)
{
    uint32_t size = a->k.type == DT_F32 ? 4 : 2;
    enum ptx_strip_guard guard = ptx_kv_guard(&a->k, a->k.dim % 16 ? PTX_STRIP_IF : PTX_STRIP_WHOLE);
    if (dtype_info[a->k.type].block > 1) {
        uint32_t block = i / 2 * (a->k.type == DT_Q8_0 ? 34 : 18);
        if (a->k.type == DT_Q4_0)
            PTX_FILL(p, "    mov.u32 %sl, $0;\n", i % 2 * 4);
        ptx_kv_strip(p, a->k.type, guard, s->keys_copied, block, block + (a->k.type == DT_Q8_0 ? i % 2 * 16 : 0));
    } else {
        if (guard != PTX_STRIP_WHOLE)
            PTX_FILL(p, "    sub.s32 %left, %far, $0;\n", 16 * i);
        if (guard == PTX_STRIP_IF)
            PTX_LINES(p, "    setp.gt.s32 %in, %left, 0;\n");
        ptx_kv_strip(p, a->k.type, guard, false, 16 * i * size, 0);
    }
    for (uint32_t head = 0; head < s->heads; head++)
        for (uint32_t e = 0; e < 8; e += 4) {
            PTX_FILL(p, "    ld.shared.v4.f32 {%q0, %q1, %q2, %q3}, [%read_q+$0];\n",
                     4 * (head * s->query + 16 * i + e));
            for (uint32_t n = 0; n < 4; n++)
                PTX_FILL(p, "    fma.rn.f32 %s$0, %e$1, %q$2, %s$0;\n", head, e + n, n);
        }
}

// Sets %s to the thread's half of the scores of its key. A thread whose key is not visible computes the nearest
// visible key instead, so that all loads are of valid slots; %seen is false for it.
static void key_scores(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s)
{
    bool blocks = dtype_info[a->k.type].block > 1;
    uint32_t half_at = blocks ? 8 : 8 * (a->k.type == DT_F32 ? 4 : 2);
    PTX_LINES(p, "    max.u32 %near, %key, %from_slot;\n"
                 "    sub.u32 %far, %to_slot, 1;\n"
                 "    min.u32 %near, %near, %far;\n"
                 "    setp.eq.u32 %seen, %near, %key;\n"
                 "    mov.u32 %read_q, query;\n"
                 "    mad.lo.u32 %read_q, %half, 32, %read_q;\n"
                 "    {\n");
    if (s->keys_copied)
        PTX_FILL(p,
                 "    .reg .u32 %sa, %sq;\n"
                 "    mov.u32 %sa, keys;\n"
                 "    mad.lo.u32 %sa, %near, $0, %sa;\n"
                 "    mad.lo.u32 %sq, %half, $1, %sa;\n"
                 "    add.u32 %sq, %sq, 2;\n",
                 s->k_row, half_at);
    else
        PTX_FILL(p,
                 "    .reg .u64 %sa, %sq;\n"
                 "    mad.wide.u32 %sa, %near, $0, %pk;\n"
                 "    mad.wide.u32 %sq, %half, $1, %sa;\n",
                 s->k_row, half_at);
    if (blocks && !s->keys_copied)
        PTX_LINES(p, "    add.u64 %sq, %sq, 2;\n");
    else if (!blocks)
        PTX_FILL(p,
                 "    mov.u64 %sa, %sq;\n"
                 "    shl.b32 %far, %half, 3;\n"
                 "    sub.u32 %far, $0, %far;\n",
                 a->k.dim);
    for (uint32_t i = 0; i < s->heads; i++)
        PTX_FILL(p, "    mov.f32 %s$0, 0f00000000;\n", i);
    if (s->unroll < s->strips)
        PTX_LINES(p, "    mov.u32 %i, 0;\n"
                     "STRIPS:\n");
    for (uint32_t i = 0; i < s->unroll; i++)
        score_strip(p, a, s, i);
    if (s->unroll < s->strips) {
        uint32_t forth = blocks                ? s->unroll / 2 * (a->k.type == DT_Q8_0 ? 34 : 18)
                         : a->k.type == DT_F32 ? 64 * s->unroll
                                               : 32 * s->unroll;
        if (s->keys_copied)
            PTX_FILL(p,
                     "    add.u32 %sa, %sa, $0;\n"
                     "    add.u32 %sq, %sq, $0;\n",
                     forth);
        else
            PTX_FILL(p,
                     "    add.u64 %sa, %sa, $0;\n"
                     "    add.u64 %sq, %sq, $0;\n",
                     forth);
        if (!blocks)
            PTX_FILL(p, "    sub.u32 %far, %far, $0;\n", 16 * s->unroll);
        PTX_FILL(p,
                 "    add.u32 %read_q, %read_q, $0;\n"
                 "    add.u32 %i, %i, $1;\n"
                 "    setp.lt.u32 %more, %i, $2;\n"
                 "    @%more bra STRIPS;\n",
                 64 * s->unroll, s->unroll, s->strips);
    }
    PTX_LINES(p, "    }\n");
}

// The two threads of a key exchange their halves. Each then has the complete scores of half of the heads, %weight,
// and each warp stores its maxima of these to shared memory.
static void whole_scores(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s)
{
    if (a->slopes)
        PTX_LINES(p, "    add.u32 %i, %base, %key;\n"
                     "    sub.s32 %i, %i, %own;\n"
                     "    cvt.rn.f32.s32 %away, %i;\n");
    if (a->slopes && a->firsts)
        PTX_LINES(p, "    abs.f32 %away, %away;\n"
                     "    neg.f32 %away, %away;\n");
    for (uint32_t i = 0; i < s->half; i++) {
        uint32_t second = MIN(i + s->half, s->heads - 1);
        PTX_FILL(p,
                 "    selp.f32 %mine, %s$1, %s$0, %odd;\n"
                 "    selp.f32 %other, %s$0, %s$1, %odd;\n"
                 "    shfl.sync.bfly.b32 %other, %other, 1, 31, 0xffffffff;\n"
                 "    add.rn.f32 %score, %mine, %other;\n"
                 "    mul.rn.f32 %score, %score, 0f$x2;\n",
                 i, second, ptx_float_bits(a->scale));
        if (a->softcap > 0)
            attend_softcap(p, a->softcap);
        if (a->slopes)
            PTX_FILL(p, "    fma.rn.f32 %score, %slope$0, %away, %score;\n", i);
        PTX_FILL(p, "    selp.f32 %weight$0, %score, 0fFF800000, %seen;\n", i);
    }
    for (uint32_t i = 0; i < s->half; i++) {
        PTX_FILL(p, "    mov.f32 %mine, %weight$0;\n", i);
        for (uint32_t by = 2; by < 32; by *= 2)
            PTX_FILL(p,
                     "    shfl.sync.bfly.b32 %other, %mine, $0, 31, 0xffffffff;\n"
                     "    max.f32 %mine, %mine, %other;\n",
                     by);
        if (i + s->half < s->heads)
            PTX_LINES(p, "    mov.pred %second, %first;\n");
        else
            PTX_LINES(p, "    setp.eq.u32 %second, %lane, 0;\n");
        PTX_FILL(p,
                 "    mad.lo.u32 %i, %warp, 4, %my_red;\n"
                 "    @%second st.shared.f32 [%i+$0], %mine;\n",
                 16 * i);
    }
    PTX_LINES(p, "    bar.sync 0;\n");
}

// Sets %new to the largest of `top` and the four warps' maxima of a head.
//   reg  string literal: a register with an address in shared memory
//   at   string literal: the offset of the head's four maxima
//   top  string literal: the register with the largest score so far
#define NEW_TOP(reg, at, top)                                                                                          \
    "    ld.shared.v4.f32 {%m0, %m1, %m2, %m3}, [" reg "+" at "];\n"                                                   \
    "    max.f32 %m0, %m0, %m1;\n"                                                                                     \
    "    max.f32 %m2, %m2, %m3;\n"                                                                                     \
    "    max.f32 %m0, %m0, %m2;\n"                                                                                     \
    "    max.f32 %new, " top ", %m0;\n"

// Stores the weights and the warps' sums of them to shared memory. With an odd number of heads, odd threads have one
// head less: they compute the last one a second time and do not store it.
static void page_weights(struct ptx *p, const struct attend_shape *s)
{
    for (uint32_t i = 0; i < s->half; i++) {
        bool both = i + s->half < s->heads;
        if (both)
            PTX_FILL(p, NEW_TOP("%my_red", "$0", "%top$1"), 16 * i, i);
        else // odd threads read the maxima of the last head
            PTX_FILL(p,
                     "    selp.u32 %i, 16, 0, %odd;\n"
                     "    sub.u32 %i, %my_red, %i;\n"
                     NEW_TOP("%i", "$0", "%top$1"),
                     16 * i, i);
        PTX_FILL(p,
                 "    mov.f32 %top$0, %new;\n"
                 "    sub.rn.f32 %mine, %weight$0, %new;\n"
                 "    mul.rn.f32 %mine, %mine, 0f$x1;\n"
                 "    ex2.approx.ftz.f32 %mine, %mine;\n"
                 "    selp.f32 %mine, %mine, 0f00000000, %seen;\n",
                 i, ptx_float_bits((float)LOG2_E));
        if (both)
            PTX_FILL(p, "    st.shared.f32 [%write_w+$0], %mine;\n", 4 * i);
        else
            PTX_FILL(p, "    @!%odd st.shared.f32 [%write_w+$0], %mine;\n", 4 * i);
        for (uint32_t by = 2; by < 32; by *= 2)
            PTX_FILL(p,
                     "    shfl.sync.bfly.b32 %other, %mine, $0, 31, 0xffffffff;\n"
                     "    add.rn.f32 %mine, %mine, %other;\n",
                     by);
        if (both)
            PTX_LINES(p, "    mov.pred %second, %first;\n");
        else
            PTX_LINES(p, "    setp.eq.u32 %second, %lane, 0;\n");
        PTX_FILL(p,
                 "    mad.lo.u32 %i, %warp, 4, %my_red;\n"
                 "    @%second st.shared.f32 [%i+$0], %mine;\n",
                 16 * (s->heads + i));
    }
}

// Multiplies the values so far by exp(old top - new top). This reads the maxima before the barrier in page_values:
// after it, other warps may already store those of the next page.
static void page_worth(struct ptx *p, const struct attend_shape *s)
{
    for (uint32_t i = 0; i < s->per_group; i++) {
        PTX_FILL(p,
                 NEW_TOP("%at_red$0", "0", "%vtop$0")
                 "    sub.rn.f32 %keep$0, %vtop$0, %new;\n"
                 "    mul.rn.f32 %keep$0, %keep$0, 0f$x1;\n"
                 "    ex2.approx.ftz.f32 %keep$0, %keep$0;\n"
                 "    mov.f32 %vtop$0, %new;\n",
                 i, ptx_float_bits((float)LOG2_E));
        for (uint32_t j = 0; j < s->each; j++)
            PTX_FILL(p, "    mul.rn.f32 %o$0, %o$0, %keep$1;\n", i * s->each + j, i);
    }
}

// Adds the page's sums of weights to %vsum.
static void page_sums(struct ptx *p, const struct attend_shape *s)
{
    for (uint32_t i = 0; i < s->per_group; i++)
        PTX_FILL(p,
                 "    ld.shared.v4.f32 {%m0, %m1, %m2, %m3}, [%at_red$0+$1];\n"
                 "    add.rn.f32 %m0, %m0, %m1;\n"
                 "    add.rn.f32 %m2, %m2, %m3;\n"
                 "    add.rn.f32 %m0, %m0, %m2;\n"
                 "    fma.rn.f32 %vsum$0, %vsum$0, %keep$0, %m0;\n",
                 i, 16 * s->heads);
}

// Sets %value to the thread's element j of the key that is `ahead` keys after %read_v.
static void value_load(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s, uint32_t j,
                       uint32_t ahead)
{
    uint32_t at = ahead * s->v_row;
    PTX_FILL(p, "    add.u32 %i, %read_v, %at_value$0;\n", j);
    if (a->v.type == DT_F32) {
        PTX_FILL(p, "    ld.shared.f32 %value, [%i+$0];\n", at);
    } else if (a->v.type == DT_F16) {
        PTX_FILL(p,
                 "    ld.shared.b16 %sh, [%i+$0];\n"
                 "    mov.b16 %sf, %sh;\n"
                 "    cvt.f32.f16 %value, %sf;\n",
                 at);
    } else if (a->v.type == DT_BF16) {
        PTX_FILL(p,
                 "    ld.shared.u16 %sm, [%i+$0];\n"
                 "    shl.b32 %sm, %sm, 16;\n"
                 "    mov.b32 %value, %sm;\n",
                 at);
    } else {
        if (a->v.type == DT_Q8_0)
            PTX_FILL(p, "    ld.shared.s8 %sn, [%i+$0];\n", at + 2);
        else
            PTX_FILL(p,
                     "    ld.shared.u8 %sm, [%i+$0];\n"
                     "    shr.u32 %sm, %sm, %nibble;\n"
                     "    and.b32 %sm, %sm, 15;\n"
                     "    sub.s32 %sn, %sm, 8;\n",
                     at + 2);
        PTX_FILL(p,
                 "    add.u32 %i, %read_v, %at_scale$0;\n"
                 "    ld.shared.b16 %sh, [%i+$1];\n"
                 "    mov.b16 %sf, %sh;\n"
                 "    cvt.f32.f16 %sd, %sf;\n"
                 "    cvt.rn.f32.s32 %value, %sn;\n"
                 "    mul.rn.f32 %value, %value, %sd;\n",
                 j, at);
    }
}

// Loads the weights of that key for the heads of the thread's set, to %w.
static void weight_load(struct ptx *p, const struct attend_shape *s, uint32_t ahead)
{
    uint32_t at = 4 * ahead * s->weights, n = s->per_group, i = 0;
    uint32_t step = s->groups == 1 || n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1;
    for (; i < n; i += step)
        if (step == 4)
            PTX_FILL(p, "    ld.shared.v4.f32 {%w$0, %w$1, %w$2, %w$3}, [%read_w+$4];\n", i, i + 1, i + 2, i + 3,
                     at + 4 * i);
        else if (step == 2)
            PTX_FILL(p, "    ld.shared.v2.f32 {%w$0, %w$1}, [%read_w+$2];\n", i, i + 1, at + 4 * i);
        else
            PTX_FILL(p, "    ld.shared.f32 %w$0, [%read_w+$1];\n", i, at + 4 * i);
}

// Adds the values of the round's visible keys times their weights: four keys per iteration, then single keys.
static void add_values(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s)
{
    PTX_FILL(p,
             "    max.u32 %from, %from_slot, %round;\n"
             "    add.u32 %to, %round, $0;\n"
             "    min.u32 %to, %to, %to_slot;\n"
             "    sub.u32 %i, %from, %round;\n"
             "    mov.u32 %read_v, values;\n"
             "    mad.lo.u32 %read_v, %i, $1, %read_v;\n"
             "    mov.u32 %read_w, weights;\n"
             "    mad.lo.u32 %read_w, %from, $2, %read_w;\n"
             "    mad.lo.u32 %read_w, %group, 4, %read_w;\n",
             s->round, s->v_row, 4 * s->weights);
    for (uint32_t keys = 4; keys; keys -= keys == 4 ? 3 : 1) {
        PTX_FILL(p,
                 "VALUES$0:\n"
                 "    add.u32 %slots, %from, $0;\n"
                 "    setp.gt.u32 %more, %slots, %to;\n"
                 "    @%more bra.uni VALUES$0_END;\n",
                 keys);
        for (uint32_t key = 0; key < keys; key++) {
            weight_load(p, s, key);
            for (uint32_t j = 0; j < s->each; j++) {
                value_load(p, a, s, j, key);
                for (uint32_t i = 0; i < s->per_group; i++)
                    PTX_FILL(p, "    fma.rn.f32 %o$0, %w$1, %value, %o$0;\n", i * s->each + j, i);
            }
        }
        PTX_FILL(p,
                 "    mov.u32 %from, %slots;\n"
                 "    add.u32 %read_v, %read_v, $1;\n"
                 "    add.u32 %read_w, %read_w, $2;\n"
                 "    bra.uni VALUES$0;\n"
                 "VALUES$0_END:\n",
                 keys, keys * s->v_row, 4 * keys * s->weights);
    }
}

// Adds the values of the page, in one round or several: a round is as many values as the registers of a copy hold.
// While a later round is loaded, no arithmetic hides the latency.
static void page_values(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s)
{
    uint32_t bytes = s->round * s->v_row;
    page_worth(p, s);
    if (s->round == KV_PAGE) {
        copy_store(p, bytes, 'v');
        PTX_LINES(p, "    bar.sync 0;\n");
        page_sums(p, s);
        add_values(p, a, s);
    } else {
        PTX_LINES(p, "    bar.sync 0;\n");
        page_sums(p, s);
        PTX_LINES(p, "ROUND:\n");
        copy_store(p, bytes, 'v');
        PTX_LINES(p, "    bar.sync 0;\n");
        add_values(p, a, s);
        PTX_FILL(p,
                 "    add.u32 %round, %round, $0;\n"
                 "    setp.ge.u32 %more, %round, %to_slot;\n"
                 "    @%more bra.uni ROUND_END;\n"
                 "    mad.wide.u32 %at, %round, $1, %pv;\n",
                 s->round, s->v_row);
        copy_load(p, bytes, 'v');
        PTX_LINES(p, "    bar.sync 0;\n"
                     "    bra.uni ROUND;\n"
                     "ROUND_END:\n");
    }
    PTX_LINES(p, "    }\n"
                 "    add.u32 %entry, %entry, 1;\n"
                 "    setp.le.u32 %more, %entry, %end_page;\n"
                 "    @%more bra.uni PAGE;\n");
}

void attend_one_row(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch)
{
    const struct attend_shape s = shape_of(a);
    declare(p, a, &s);
    PTX_FILL(p, PTX_ROW PTX_KV_TABLE, 0, ptx_count_at(a->rows));
    if (a->form == PTX_ATTEND_LONE)
        attend_leave_runs(p, a);
    attend_find_splits(p, a);
    find_places(p, a, &s);
    if (a->slopes)
        load_slopes(p, a, &s);
    load_queries(p, a, &s);
    begin_split(p, &s);
    begin_page(p, a, &s);
    key_scores(p, a, &s);
    whole_scores(p, a, &s);
    page_weights(p, &s);
    page_values(p, a, &s);
    attend_end_split(p, a, &s);
    attend_wait_for_parts(p);
    attend_add_parts(p, a, &s);
    attend_write_row(p, a, &s);
    *launch = (struct ptx_launch){.entry = a->form == PTX_ATTEND_LONE ? "attend_lone" : "attend",
                                  .grid = {1, a->heads_kv * s.blocks, 1},
                                  .block = {THREADS, 1, 1}};
}

size_t attend_partials(const struct ptx_attend *a, uint32_t rows)
{
    const struct attend_shape s = shape_of(a);
    return sizeof(float) * rows * a->heads * s.places * s.partial;
}

size_t attend_counters(const struct ptx_attend *a, uint32_t rows)
{
    return sizeof(uint32_t) * rows * a->heads_kv * shape_of(a).blocks;
}
