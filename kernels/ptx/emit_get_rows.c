// Emits two kernels: the look-up of rows of a table of weights, and the rounding of activations to 8 bits.
//
// get_rows_NODE: y[i][k] = scale * w[ids[i]][k], for a table of any type in tiles (weight_tile.h). It is used for token
// embeddings. A CTA has 128 threads; grid x covers the row, grid y the rows. A thread dequantises a part, 32
// consecutive weights of one row, so a CTA has 4096 weights. Neighbouring threads read the same row of a tile, 512
// bytes apart, which is not coalesced; a step looks up few rows, so this costs little.
//
// quantize_NODE: for each block of 256 of a row, d = max |x| / 2032; for each 32 of these, step = ceil(max |x| / (127
// d)) and q[k] = round(x[k] / (d * step)); and the sum of each 16 q times the step. d, steps and q have the bits of the
// CPU (kernels/cpu/kernels.h; emit_dot.h has the layout). It is used before products of 8-bit activations. A warp has
// one block and a lane 8 elements of it, so a CTA of 128 threads has 4 blocks; grid x covers the blocks of a row, grid
// y the rows. Each element is read once. There is no shared memory: a butterfly finds the maximum of 32 elements over
// their four lanes, then that of the block over the warp.
#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/emit_nibble.h"
#include "kernels/ptx/emit_type.h"

#include <math.h>

enum { THREADS = 128, MAX_K = 1 << 20 };

// ---- look-up

// Scales and stores weights first to first + 3 of the thread's part. Elements beyond the row are not stored.
static void put_row(const struct ptx_part *part, uint32_t first)
{
    const struct ptx_get_rows *g = part->arg;
    struct ptx *p = part->p;
    for (uint32_t i = 0; i < 4 && g->scale != 1; i++)
        PTX_FILL(p, "    mul.rn.f32 %v$0, %v$0, 0f$x1;\n", i, ptx_float_bits(g->scale));
    if (g->n_in % TILE_PART == 0 && g->y_stride % 16 == 0) {
        PTX_FILL(p, "    st.global.v4.f32 [%y+$0], {%v0, %v1, %v2, %v3};\n", 4 * first);
        return;
    }
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    setp.gt.u32 %in, %left, $0;\n"
                 "    @%in st.global.f32 [%y+$1], %v$2;\n",
                 first + i, 4 * (first + i), i);
}

static void rows_head(struct ptx *p, const struct ptx_get_rows *g)
{
    ptx_header(p, 63, 75);
    ptx_type_tables(p, g->type, g->node);
    PTX_FILL(p, "\n// node $0: rows of a table of $1 x $2 ", g->node, g->n_out, g->n_in);
    ptx_word(p, dtype_info[g->type].name);
    PTX_FILL(p,
             ", a thread 32 weights\n"
             ".visible .entry get_rows_$0(\n"
             "    .param .u64 w,\n"
             "    .param .u64 ids,\n"
             "    .param .u64 y,\n"
             "    .param .u32 n_rows)\n"
             ".maxntid 128, 1, 1\n"
             "{\n"
             "    .reg .pred %in;\n"
             "    .reg .u32 %lane, %row, %id, %rows, %place, %part, %index, %left;\n"
             "    .reg .u64 %unit, %chunk, %y, %pointer;\n",
             g->node);
}

// Sets %place to the number of the thread's part in its row, %y to the address where it is stored, %left to the number
// of elements of the row from there on, and %id to the row of the table. Threads without a part end.
static void rows_place(struct ptx *p, const struct ptx_get_rows *g)
{
    PTX_FILL(p,
             "    mov.u32 %index, %tid.x;\n"
             "    mov.u32 %place, %ctaid.x;\n"
             "    mad.lo.u32 %place, %place, 128, %index;\n"
             "    setp.ge.u32 %in, %place, $0;\n"
             "    @%in ret;\n"
             "    mov.u32 %row, %ctaid.y;\n"
             "    ld.param.u32 %rows, [n_rows];\n"
             "    setp.ge.u32 %in, %row, %rows;\n"
             "    @%in ret;\n"
             "    ld.param.u64 %y, [y];\n"
             "    cvta.to.global.u64 %y, %y;\n"
             "    mad.wide.u32 %y, %row, $1, %y;\n"
             "    mad.wide.u32 %y, %place, 128, %y;\n"
             "    mul.lo.u32 %index, %place, 32;\n"
             "    sub.u32 %left, $2, %index;\n"
             "    ld.param.u64 %pointer, [ids];\n"
             "    cvta.to.global.u64 %pointer, %pointer;\n"
             "    mad.wide.u32 %pointer, %row, 4, %pointer;\n"
             "    ld.global.u32 %id, [%pointer];\n"
             "    setp.ge.u32 %in, %id, $3;\n"
             "    @%in bra ZEROS;\n",
             ptx_tiles(g->n_in, TILE_PART), g->y_stride, g->n_in, g->n_out);
}

// Sets %unit, %chunk, %lane and %part as ptx_type_part reads them.
static void rows_unit(struct ptx *p, const struct ptx_get_rows *g)
{
    uint32_t parts = tile_unit_weights(g->type) / TILE_PART;
    PTX_FILL(p,
             "    // row id % 32 of tile id / 32\n"
             "    ld.param.u64 %unit, [w];\n"
             "    cvta.to.global.u64 %unit, %unit;\n"
             "    shr.u32 %index, %id, 5;\n"
             "    mad.wide.u32 %unit, %index, $0, %unit;\n"
             "    and.b32 %lane, %id, 31;\n"
             "    and.b32 %part, %place, $1;\n"
             "    div.u32 %index, %place, $2;\n"
             "    mad.wide.u32 %unit, %index, $3, %unit;\n"
             "    mad.wide.u32 %chunk, %lane, 16, %unit;\n",
             (uint32_t)tile_bytes(g->type, g->n_in), parts - 1, parts, 32 * tile_unit_bytes(g->type));
}

int ptx_emit_get_rows(struct ptx *p, const struct ptx_get_rows *g, struct ptx_launch *launch, struct error *err)
{
    if (tile_check("get_rows", g->type, g->n_in, err))
        return -1;
    if (!g->n_out || g->n_out > INT32_MAX || g->y_stride % 4 || !isfinite(g->scale))
        return fail(err, E_GPU, "get_rows: %u rows, a stride of %u, a scale of %g", g->n_out, g->y_stride,
                    (double)g->scale);
    const struct ptx_part part = {.p = p, .node = g->node, .type = g->type, .put = put_row, .arg = g};
    rows_head(p, g);
    rows_place(p, g);
    rows_unit(p, g);
    ptx_type_part(&part);
    PTX_LINES(p, "    ret;\n"
                 "ZEROS:\n");
    for (uint32_t i = 0; i < TILE_PART; i++)
        PTX_FILL(p,
                 "    setp.gt.u32 %in, %left, $0;\n"
                 "    @%in st.global.f32 [%y+$1], 0f00000000;\n",
                 i, 4 * i);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){.entry = "get_rows",
                                  .grid = {ptx_tiles(ptx_tiles(g->n_in, TILE_PART), THREADS), 1, 1},
                                  .block = {THREADS, 1, 1}};
    return ptx_finish(p, err);
}

// ---- 8-bit activations

static void quantize_head(struct ptx *p, const struct ptx_quantize *q, uint32_t blocks)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: $1 x $2 floats a row to 8 bits, a warp a block of 256\n"
             ".visible .entry quantize_$0(\n"
             "    .param .u64 x,\n"
             "    .param .u64 q8,\n"
             "    .param .u32 n_rows)\n"
             ".maxntid 128, 1, 1\n"
             "{\n"
             "    .reg .pred %in;\n"
             "    .reg .u32 %lane, %block, %row, %rows, %part, %index, %left;\n"
             "    .reg .u64 %px, %pq, %pointer;\n"
             PTX_QUANTIZE_REGS
             "    mov.u32 %index, %tid.x;\n"
             "    and.b32 %lane, %index, 31;\n"
             "    shr.u32 %block, %index, 5;\n"
             "    mov.u32 %index, %ctaid.x;\n"
             "    mad.lo.u32 %block, %index, 4, %block;\n"
             "    setp.ge.u32 %in, %block, $3;\n"
             "    @%in ret;\n"
             "    mov.u32 %row, %ctaid.y;\n"
             "    ld.param.u32 %rows, [n_rows];\n"
             "    setp.ge.u32 %in, %row, %rows;\n"
             "    @%in ret;\n",
             q->node, q->parts, q->k, blocks * q->parts);
    PTX_FILL(p,
             "    // the part, and the block in it\n"
             "    div.u32 %part, %block, $0;\n"
             "    mul.lo.u32 %index, %part, $0;\n"
             "    sub.u32 %block, %block, %index;\n",
             blocks);
}

// Loads the lane's 8 elements to %x0 to %x7; elements beyond the row are 0.
static void quantize_load(struct ptx *p, const struct ptx_quantize *q)
{
    bool wide = q->k % 8 == 0 && q->x_stride % 16 == 0;
    PTX_FILL(p,
             "    ld.param.u64 %px, [x];\n"
             "    cvta.to.global.u64 %px, %px;\n"
             "    mad.wide.u32 %px, %row, $0, %px;\n"
             "    mad.wide.u32 %px, %part, $1, %px;\n"
             "    mad.wide.u32 %px, %block, 1024, %px;\n"
             "    mad.wide.u32 %px, %lane, 32, %px;\n"
             "    mul.lo.u32 %left, %block, 256;\n"
             "    mad.lo.u32 %left, %lane, 8, %left;\n",
             q->x_stride, 4 * q->k);
    if (q->k % 256)
        for (uint32_t i = 0; i < 8; i++)
            PTX_FILL(p, "    mov.f32 %x$0, 0f00000000;\n", i);
    if (q->k % 256 && wide)
        PTX_FILL(p, "    setp.lt.u32 %in, %left, $0;\n", q->k);
    for (uint32_t i = 0; i < 8; i += wide ? 4 : 1) {
        if (q->k % 256 && !wide)
            PTX_FILL(p,
                     "    add.u32 %index, %left, $0;\n"
                     "    setp.lt.u32 %in, %index, $1;\n",
                     i, q->k);
        if (q->k % 256)
            PTX_LINES(p, "    @%in ");
        else
            PTX_LINES(p, "    ");
        if (wide)
            PTX_FILL(p, "ld.global.v4.f32 {%x$0, %x$1, %x$2, %x$3}, [%px+$4];\n", i, i + 1, i + 2, i + 3, 4 * i);
        else
            PTX_FILL(p, "ld.global.f32 %x$0, [%px+$1];\n", i, 4 * i);
    }
}

// Sets %run8 to the bits of the largest magnitude of the lane's run of 32, and %bits8 to those of the block's. As
// integers they have the order of the magnitudes, with infinity and NaNs above all numbers.
static void quantize_top(struct ptx *p)
{
    PTX_LINES(p, "    mov.u32 %bits8, 0;\n");
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    mov.b32 %index8, %x$0;\n"
                 "    and.b32 %index8, %index8, 0x7fffffff;\n"
                 "    max.u32 %bits8, %bits8, %index8;\n",
                 i);
    for (uint32_t by = 1; by < 32; by *= 2) {
        if (by == 4)
            PTX_LINES(p, "    mov.u32 %run8, %bits8;\n");
        PTX_FILL(p,
                 "    shfl.sync.bfly.b32 %other8, %bits8, $0, 31, 0xffffffff;\n"
                 "    max.u32 %bits8, %bits8, %other8;\n",
                 by);
    }
}

// Sets %d to the scale, %step8 to the step of the lane's run, and %q<i> to the rounded quotients. The scale is at least
// 2^-126, so that its reciprocal %per is finite. A block of zeros gets the scale 0, one with an element that is not
// finite gets NaN; their %q<i> are 0 and their steps 1.
static void quantize_scale(struct ptx *p)
{
    PTX_LINES(p, "    mov.b32 %top, %bits8;\n"
                 "    // 2032 = 127 * 16\n"
                 "    div.rn.f32 %d, %top, 0f44FE0000;\n"
                 "    max.f32 %d, %d, 0f00800000;\n"
                 "    rcp.rn.f32 %per, %d;\n"
                 "    sub.u32 %index8, %bits8, 1;\n"
                 "    setp.lt.u32 %whole, %index8, 0x7f7fffff;\n"
                 "    // m * (1 / d) * (1 / 127), rounded up to 1 .. 16\n"
                 "    mov.b32 %top, %run8;\n"
                 "    mul.rn.f32 %top, %top, %per;\n"
                 "    mul.rn.f32 %top, %top, 0f3C010204;\n"
                 "    cvt.rpi.s32.f32 %step8, %top;\n"
                 "    max.s32 %step8, %step8, 1;\n"
                 "    min.s32 %step8, %step8, 16;\n"
                 "    selp.b32 %step8, %step8, 1, %whole;\n"
                 "    cvt.rn.f32.s32 %top, %step8;\n"
                 "    div.rn.f32 %per, %per, %top;\n"
                 "    setp.eq.u32 %in8, %bits8, 0;\n"
                 "    selp.f32 %top, 0f00000000, 0f7FC00000, %in8;\n"
                 "    selp.f32 %d, %d, %top, %whole;\n");
    for (uint32_t i = 0; i < 8; i++)
        PTX_FILL(p,
                 "    mul.rn.f32 %x$0, %x$0, %per;\n"
                 "    cvt.rni.s32.f32 %q$0, %x$0;\n"
                 "    selp.b32 %q$0, %q$0, 0, %whole;\n",
                 i);
}

// Packs the lane's 8 bytes to %low and %high, and sets %sum8 to the sum of the 16 elements of the lane and its
// neighbour, times their step.
static void quantize_pack(struct ptx *p)
{
    PTX_LINES(p, "    mov.s32 %sum8, %q0;\n");
    for (uint32_t i = 1; i < 8; i++)
        PTX_FILL(p, "    add.s32 %sum8, %sum8, %q$0;\n", i);
    PTX_LINES(p, "    shfl.sync.bfly.b32 %near, %sum8, 1, 31, 0xffffffff;\n"
                 "    add.s32 %sum8, %sum8, %near;\n"
                 "    mul.lo.s32 %sum8, %sum8, %step8;\n");
    for (uint32_t w = 0; w < 2; w++) {
        PTX_FILL(p, "    and.b32 %bits8, %q$0, 255;\n", 4 * w);
        for (uint32_t i = 1; i < 4; i++)
            PTX_FILL(p, "    bfi.b32 %bits8, %q$0, %bits8, $1, 8;\n", 4 * w + i, 8 * i);
        if (w)
            PTX_LINES(p, "    mov.u32 %high, %bits8;\n");
        else
            PTX_LINES(p, "    mov.u32 %low, %bits8;\n");
    }
}

void ptx_quantize_lanes(struct ptx *p)
{
    quantize_top(p);
    quantize_scale(p);
    quantize_pack(p);
}

// Stores the block. The even lane of each pair stores their sum, the first lane of each four their step, lane 0 the
// scale.
static void quantize_store(struct ptx *p, const struct ptx_quantize *q, uint32_t blocks)
{
    PTX_FILL(p,
             "    ld.param.u64 %pq, [q8];\n"
             "    cvta.to.global.u64 %pq, %pq;\n"
             "    mad.wide.u32 %pq, %row, $0, %pq;\n"
             "    mad.wide.u32 %pq, %part, $1, %pq;\n"
             "    mad.wide.u32 %pointer, %block, 256, %pq;\n"
             "    mad.wide.u32 %pointer, %lane, 8, %pointer;\n"
             "    st.global.v2.u32 [%pointer], {%low, %high};\n"
             "    mad.wide.u32 %pointer, %block, 32, %pq;\n"
             "    mad.wide.u32 %pointer, %lane, 1, %pointer;\n"
             "    and.b32 %index, %lane, 1;\n"
             "    setp.eq.u32 %in, %index, 0;\n"
             "    @%in st.global.u16 [%pointer+$2], %sum8;\n",
             q->y_stride, (uint32_t)ptx_q8_row_bytes(q->k), blocks * PTX_Q8_SUMS);
    PTX_FILL(p,
             "    shr.u32 %index, %lane, 2;\n"
             "    mad.wide.u32 %pointer, %block, 8, %pq;\n"
             "    mad.wide.u32 %pointer, %index, 1, %pointer;\n"
             "    and.b32 %index, %lane, 3;\n"
             "    setp.eq.u32 %in, %index, 0;\n"
             "    @%in st.global.u8 [%pointer+$0], %step8;\n"
             "    setp.eq.u32 %in, %lane, 0;\n"
             "    mad.wide.u32 %pointer, %block, 4, %pq;\n"
             "    @%in st.global.f32 [%pointer+$1], %d;\n",
             blocks * PTX_Q8_STEPS, blocks * PTX_Q8_SCALES);
}

int ptx_emit_quantize(struct ptx *p, const struct ptx_quantize *q, struct ptx_launch *launch, struct error *err)
{
    if (!q->k || q->k > MAX_K || !q->parts || q->parts > MAX_K / q->k || q->x_stride % 4 || q->y_stride % 16)
        return fail(err, E_GPU, "quantize: %u x %u floats a row, strides %u and %u", q->parts, q->k, q->x_stride,
                    q->y_stride);
    uint32_t blocks = ptx_tiles(q->k, 256);
    quantize_head(p, q, blocks);
    quantize_load(p, q);
    ptx_quantize_lanes(p);
    quantize_store(p, q, blocks);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){
        .entry = "quantize", .grid = {ptx_tiles(blocks * q->parts, THREADS / 32), 1, 1}, .block = {THREADS, 1, 1}};
    return ptx_finish(p, err);
}
