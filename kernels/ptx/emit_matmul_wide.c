// Emits products of many rows of 8-bit activations on tensor cores for long prompts: a CTA computes 128 outputs by 128 rows
// of x. The bits are those of the other kernels; emit_matmul_mma.c explains the arithmetic. For compute capability 8.0 and
// later.
//
// emit_matmul_mma.c unpacks weights to shared memory for 64 rows of x, waits, multiplies, and waits again. It executes
// 17 instructions for a matrix instruction of Q4_K, of which 6 are the product itself, and while it copies it does not
// multiply. Here a warp multiplies 32 outputs by 64 rows, and
//   - weights and activations are copied to shared memory as they are, by cp.async, while what was copied before is
//     multiplied. There are two stages of each, and one barrier for each 128 of k, half a block;
//   - a lane unpacks weights from shared memory straight to its fragments (emit_fragment.c), which serve 64 rows;
//   - integer scales are multiplied with steps by a matrix instruction of k = 16, in which element k is the k-th part of
//     the block, or the k-th run of 16. Of the fragment of scales all but the present part is masked out. So the fragment
//     of the steps of 8 rows is the same for the whole block.
//
// 64 by 32 results a warp are 64 sums of a block and 64 of the output in each lane, so that one CTA with 8 warps is on a
// multiprocessor at a time. ptx_has_class tells whether the shared memory of a thread block is large enough.
#include "kernels/ptx/emit_fragment.h"
#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/emit_matmul_mma.h"

enum { OUTPUTS = 128, ROWS = PTX_WIDE_ROWS, WARPS = 8, TILES = ROWS / 16, SUMS = 8 * TILES };
enum { HALF_STAGE = ROWS * MMA_STRIDE, RAW = 2 * HALF_STAGE };
// In a stage of what there is for the rows of a block: [row][8 steps], [row] scales, [row][16 sums].
enum { STEPS = 0, SCALES = 8 * ROWS, ROW_SUMS = 12 * ROWS };
// Of the floats made of steps and sums, see floats_at.
enum { STEPS_OF_PART = 8 * ROWS, SUMS_OF_PART = 4 * ROWS };

static uint32_t tile_unit(const struct ptx_matmul *m)
{
    return PTX_TILE_ROWS * tile_unit_bytes(m->type);
}

static uint32_t raw_stage(const struct ptx_matmul *m)
{
    return OUTPUTS * tile_unit_bytes(m->type);
}

static uint32_t rows_stage(const struct ptx_matmul *m)
{
    return (ptx_bytes_of(m->type)->min ? 44 : 12) * ROWS;
}

static uint32_t rows_at(const struct ptx_matmul *m)
{
    return RAW + 2 * raw_stage(m);
}

// With float scales: [part][pair of rows][both steps, both times -M], and with a minimum [part][pair of rows][both sums].
static uint32_t floats_at(const struct ptx_matmul *m)
{
    return rows_at(m) + 2 * rows_stage(m);
}

static uint32_t float_sums_at(const struct ptx_matmul *m)
{
    return floats_at(m) + 8 * STEPS_OF_PART;
}

uint32_t ptx_matmul_wide_bytes(const struct ptx_matmul *m)
{
    const uint32_t sums = ptx_bytes_of(m->type)->min ? 8 * SUMS_OF_PART : 0;
    return ptx_scales_are_floats(m) ? float_sums_at(m) + sums : floats_at(m);
}

// ---- the beginning

static void head(struct ptx *p, const struct ptx_matmul *m)
{
    ptx_header(p, 70, 80);
    PTX_LINES(p, "\n.extern .shared .align 16 .b8 staged[];\n");
    ptx_matmul_entry(p, m, WARPS);
    PTX_FILL(p,
             PTX_MANY_REGS PTX_FRAGMENT_REGS
             "    .reg .pred %odd, %brings;\n"
             "    .reg .u32 %half, %wm, %wn, %g, %t, %base, %select, %pair, %unit_at, %raw, %staged, %stage, %take_b, %to;\n"
             "    .reg .u64 %from, %from_raw;\n"
             "    .reg .b32 %b<4>, %c<4>, %by<4>, %scale<4>, %now<4>, %step<$1>, %mask;\n"
             "    .reg .f32 %f, %times<2>, %less<2>, %fsum<2>, %y<$0>, %s<$0>;\n"
             "    .reg .b32 %isum<$0>;\n",
             SUMS, TILES);
}

// The places of a thread: %place, its number; %staged, the address of shared memory; the warp's quarter of the outputs %wm
// and half of the rows %wn; the row %g and the column %t of its fragments. Each section of a turn finds those that it
// needs, and no registers hold them between the sections.
enum { PLACE = 1, STAGED = 2, WM = 4, WN = 8, G = 16, T = 32 };
static void places(struct ptx *p, uint32_t which)
{
    PTX_LINES(p, "    mov.u32 %place, %tid.x;\n");
    if (which & STAGED)
        PTX_LINES(p, "    mov.u32 %staged, staged;\n");
    if (which & WM)
        PTX_LINES(p, "    shr.u32 %wm, %place, 6;\n");
    if (which & WN)
        PTX_LINES(p, "    bfe.u32 %wn, %place, 5, 1;\n");
    if (which & G)
        PTX_LINES(p, "    bfe.u32 %g, %place, 2, 3;\n");
    if (which & T)
        PTX_LINES(p, "    and.b32 %t, %place, 3;\n");
}

// Sets <to> to the offset in the CTA's shared memory of stage `number` % 2 of stages of `bytes`, the first at `at`.
static void stage_of(struct ptx *p, const char *to, const char *number, uint32_t bytes, uint32_t at)
{
    const char *const words[] = {"    and.b32 ", to, ", ", number, ", 1;\n    mad.lo.u32 ", to, ", ", to};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        ptx_word(p, words[i]);
    PTX_FILL(p, ", $0, $1;\n", bytes, at);
}

// Sets what the thread copies: %px0 is row place / 2 of x, of which it copies a half, and %from_raw begins every 64th chunk
// of tile place / 64 of the weights. Tiles and rows past the end are the last.
static void sources(struct ptx *p, const struct ptx_matmul *m)
{
    ptx_matmul_many_group(p, m);
    places(p, PLACE | WM);
    PTX_FILL(p,
             "    mov.u32 %base, $0;\n"
             "    mad.lo.u32 %index, %tile, 4, %wm;\n"
             "    min.u32 %index, %index, ",
             ptx_scales_are_floats(m) ? MMA_M_BITS : 0);
    ptx_matmul_put_last_tile(p, m);
    PTX_FILL(p,
             ";\n"
             "    mad.wide.u32 %w_tile, %index, $0, %w_tile;\n"
             "    and.b32 %index, %place, 63;\n"
             "    mad.wide.u32 %from_raw, %index, 16, %w_tile;\n"
             "    shr.u32 %pair, %place, 1;\n",
             (uint32_t)tile_bytes(m->type, m->n_in));
    ptx_matmul_many_row(p, m, "%pair");
}

// Sets the address of the lane's fragments of x as ldmatrix wants it, and clears the sums.
static void fragments(struct ptx *p)
{
    places(p, STAGED | WN);
    PTX_FILL(p,
             "    // rows of x 64 * wn + 8 * (place / 16 % 2) + place % 8, k 16 * (place / 8 % 2)\n"
             "    and.b32 %row, %place, 16;\n"
             "    shr.u32 %row, %row, 1;\n"
             "    and.b32 %take_b, %place, 7;\n"
             "    add.u32 %take_b, %take_b, %row;\n"
             "    mad.lo.u32 %take_b, %wn, $0, %take_b;\n"
             "    mad.lo.u32 %take_b, %take_b, $1, %staged;\n"
             "    and.b32 %row, %place, 8;\n"
             "    mad.lo.u32 %take_b, %row, 2, %take_b;\n"
             "    mov.u32 %half, -1;\n",
             ROWS / 2, MMA_STRIDE);
    for (uint32_t i = 0; i < SUMS; i++)
        PTX_FILL(p, "    mov.f32 %y$0, 0f00000000;\n", i);
}

// ---- copies

// Copies the thread's part of half block %index of activations, each line with the guard `when`.
static void copy_x(struct ptx *p, const char *when)
{
    stage_of(p, "%to", "%index", HALF_STAGE, 0);
    PTX_FILL(p,
             "    add.u32 %to, %to, %staged;\n"
             "    shr.u32 %row, %place, 1;\n"
             "    mad.lo.u32 %to, %row, $0, %to;\n"
             "    and.b32 %row, %place, 1;\n"
             "    mad.lo.u32 %to, %row, 64, %to;\n"
             "    mad.wide.u32 %from, %row, 64, %px0;\n"
             "    mad.wide.u32 %from, %index, 128, %from;\n",
             MMA_STRIDE);
    for (uint32_t i = 0; i < 64; i += 16) {
        ptx_word(p, when);
        PTX_FILL(p, " cp.async.cg.shared.global [%to+$0], [%from+$0], 16;\n", i);
    }
}

// Copies what there is for the rows of x of block %index: the steps and the scale by one of a row's two threads each, and
// half of the sums.
static void copy_rows(struct ptx *p, const struct ptx_matmul *m)
{
    const uint32_t blocks = tile_units(m->type, m->n_in);
    stage_of(p, "%to", "%index", rows_stage(m), rows_at(m));
    PTX_FILL(p,
             "    add.u32 %to, %to, %staged;\n"
             "    and.b32 %row, %place, 1;\n"
             "    setp.eq.u32 %in, %row, 0;\n"
             "    shr.u32 %g, %place, 1;\n"
             "    mad.wide.u32 %from, %index, 8, %px0;\n"
             "    mad.lo.u32 %t, %g, 8, %to;\n"
             "    @%in cp.async.ca.shared.global [%t+$0], [%from+$1], 8;\n"
             "    mad.wide.u32 %from, %index, 4, %px0;\n"
             "    mad.lo.u32 %t, %g, 4, %to;\n"
             "    @!%in cp.async.ca.shared.global [%t+$2], [%from+$3], 4;\n",
             STEPS, blocks * PTX_Q8_STEPS, SCALES, blocks * PTX_Q8_SCALES);
    if (ptx_bytes_of(m->type)->min)
        PTX_FILL(p,
                 "    mad.wide.u32 %from, %index, 32, %px0;\n"
                 "    mad.wide.u32 %from, %row, 16, %from;\n"
                 "    mad.lo.u32 %t, %place, 16, %to;\n"
                 "    cp.async.cg.shared.global [%t+$0], [%from+$1], 16;\n",
                 ROW_SUMS, blocks * PTX_Q8_SUMS);
}

// Copies the thread's chunks of the unit of weights of block %index, which is the next.
static void copy_raw(struct ptx *p, const struct ptx_matmul *m)
{
    const uint32_t chunks = tile_unit(m) / 16;
    stage_of(p, "%to", "%index", raw_stage(m), RAW);
    PTX_FILL(p,
             "    add.u32 %to, %to, %staged;\n"
             "    mad.lo.u32 %to, %wm, $0, %to;\n"
             "    and.b32 %row, %place, 63;\n"
             "    mad.lo.u32 %to, %row, 16, %to;\n",
             tile_unit(m));
    if (chunks % 64)
        PTX_FILL(p, "    setp.lt.u32 %in, %row, $0;\n", chunks % 64);
    for (uint32_t i = 0; i < chunks; i += 64) {
        ptx_word(p, i + 64 > chunks ? "    @%in" : "   ");
        PTX_FILL(p, " cp.async.cg.shared.global [%to+$0], [%from_raw+$0], 16;\n", 16 * i);
    }
    PTX_FILL(p, "    add.u64 %from_raw, %from_raw, $0;\n", tile_unit(m));
}

// Copies what comes after half %half, which is -1 at first, while that is multiplied. Its stages are those that the barrier
// has freed.
static void copy_next(struct ptx *p, const struct ptx_matmul *m)
{
    places(p, STAGED | WM);
    PTX_FILL(p,
             "    add.u32 %index, %half, 1;\n"
             "    setp.lt.u32 %brings, %index, $0;\n",
             2 * tile_units(m->type, m->n_in));
    copy_x(p, "    @%brings");
    PTX_LINES(p, "    and.b32 %row, %half, 1;\n"
                 "    setp.eq.u32 %odd, %row, 1;\n"
                 "    and.pred %brings, %brings, %odd;\n"
                 "    @!%brings bra COPIED; // 1 of 2 times\n"
                 "    shr.u32 %index, %index, 1;\n");
    copy_rows(p, m);
    copy_raw(p, m);
    PTX_LINES(p, "COPIED:\n");
}

// ---- products

// Makes floats of the steps of a block, and with a minimum of its sums: thread i those of four parts of row i / 2.
static void make_floats(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_FILL(p,
             "    and.b32 %index, %place, 1;\n"
             "    mad.lo.u32 %row, %place, 4, %to;\n"
             "    ld.shared.b32 %by0, [%row+$0];\n"
             "    // of each part, pair place / 4, row place / 2 % 2\n"
             "    shr.u32 %by2, %place, 2;\n"
             "    bfe.u32 %by3, %place, 1, 1;\n"
             "    mad.lo.u32 %by3, %by3, 4, %staged;\n",
             STEPS);
    if (ptx_bytes_of(m->type)->min)
        PTX_FILL(p,
                 "    mad.lo.u32 %row, %place, 16, %to;\n"
                 "    mad.lo.u32 %mask, %by2, 8, %by3;\n"
                 "    mad.lo.u32 %mask, %index, $0, %mask;\n",
                 4 * SUMS_OF_PART);
    PTX_FILL(p,
             "    mad.lo.u32 %by3, %by2, 16, %by3;\n"
             "    mad.lo.u32 %by3, %index, $0, %by3;\n",
             4 * STEPS_OF_PART);
    for (uint32_t part = 0; part < 4; part++) {
        PTX_FILL(p,
                 "    bfe.u32 %by1, %by0, $0, 8;\n"
                 "    cvt.rn.f32.u32 %f, %by1;\n"
                 "    st.shared.f32 [%by3+$1], %f;\n"
                 "    mul.rn.f32 %f, %f, 0f$x2;\n"
                 "    st.shared.f32 [%by3+$3], %f;\n",
                 8 * part, floats_at(m) + STEPS_OF_PART * part, MMA_M_BITS | 1u << 31,
                 floats_at(m) + STEPS_OF_PART * part + 8);
        if (ptx_bytes_of(m->type)->min)
            PTX_FILL(p,
                     "    ld.shared.b32 %by1, [%row+$0];\n"
                     "    dp2a.lo.s32.s32 %by1, %by1, 0x01010101, 0;\n"
                     "    cvt.rn.f32.s32 %f, %by1;\n"
                     "    st.shared.f32 [%mask+$1], %f;\n",
                     ROW_SUMS + 4 * part, float_sums_at(m) + SUMS_OF_PART * part);
    }
    PTX_LINES(p, "    bar.sync 0;\n");
}

// Sets %to to the address of what there is for the rows of x of block %half / 2.
static void find_rows(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_LINES(p, "    shr.u32 %index, %half, 1;\n");
    stage_of(p, "%to", "%index", rows_stage(m), rows_at(m));
    PTX_LINES(p, "    add.u32 %to, %to, %staged;\n");
}

// Sets %unit_at and %raw to the places of the weights of block %half / 2.
static void find_unit(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_LINES(p, "    shr.u32 %index, %half, 1;\n");
    stage_of(p, "%unit_at", "%index", raw_stage(m), RAW);
    PTX_FILL(p,
             "    mad.lo.u32 %unit_at, %wm, $0, %unit_at;\n"
             "    add.u32 %unit_at, %unit_at, %staged;\n"
             "    mad.lo.u32 %raw, %g, 16, %unit_at;\n"
             "    mad.lo.u32 %raw, %t, 4, %raw;\n",
             tile_unit(m));
}

// Begins a block: loads scales and steps, and clears the sums.
static void begin_block(struct ptx *p, const struct ptx_matmul *m)
{
    places(p, ptx_scales_are_floats(m) ? STAGED | WM | G | T : STAGED | WM | WN | G | T);
    find_unit(p, m);
    find_rows(p, m);
    for (uint32_t i = 0; i < SUMS; i++) {
        if (ptx_scales_are_floats(m))
            PTX_FILL(p, "    mov.f32 %s$0, 0f00000000;\n", i);
        else
            PTX_FILL(p, "    mov.b32 %isum$0, 0;\n", i);
    }
    PTX_LINES(p, "    mov.u32 %pair, 0;\n");
    if (ptx_scales_are_floats(m)) {
        make_floats(p, m);
        return;
    }
    ptx_fragment_scales(p, m->type, "%scale");
    PTX_FILL(p,
             "    mul.lo.u32 %select, %t, -32;\n"
             "    // steps of row 64 * wn + 8 * nt + g\n"
             "    mad.lo.u32 %row, %wn, $2, %g;\n"
             "    mad.lo.u32 %row, %row, 8, %to;\n"
             "    and.b32 %place, %t, $0;\n"
             "    mad.lo.u32 %row, %place, $1, %row;\n",
             ptx_scale_runs(m) == 2 ? 3 : 1, ptx_scale_runs(m) == 2 ? 2 : 4, ROWS / 2);
    for (uint32_t nt = 0; nt < TILES; nt++)
        if (ptx_scale_runs(m) == 2)
            PTX_FILL(p,
                     "    ld.shared.u16 %step$0, [%row+$1];\n"
                     "    prmt.b32 %step$0, %step$0, 0, 0x1100;\n",
                     nt, STEPS + 64 * nt);
        else
            PTX_FILL(p, "    ld.shared.b32 %step$0, [%row+$1];\n", nt, STEPS + 64 * nt);
}

// Loads 16 rows of x of part `part` of the pair: the fragments of tiles 2 i and 2 i + 1. For some targets ptxas would move
// so many loads ahead that registers spill; it moves nothing across a barrier.
static void load_x(struct ptx *p, const struct ptx_matmul *m, uint32_t part, uint32_t i)
{
    if (m->target >= 100 && (ptx_scales_are_floats(m) || ptx_scale_runs(m) == 2))
        PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n");
    PTX_FILL(p, "    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%b0, %b1, %b2, %b3}, [%stage+$0];\n",
             32 * part + 16 * MMA_STRIDE * i);
}

static void part_integers(struct ptx *p, const struct ptx_matmul *m, uint32_t part)
{
    for (uint32_t run = 0; run < ptx_scale_runs(m); run++) {
        ptx_mma_next_scales(p);
        for (uint32_t nt = 0; nt < TILES; nt++) {
            if (nt % 2 == 0)
                load_x(p, m, part, nt / 2);
            for (uint32_t mt = 0; mt < 2; mt++) {
                if (ptx_scale_runs(m) == 2)
                    ptx_mma_product_16(p, m, mt, nt % 2, run);
                else
                    ptx_mma_product_32(p, m, mt, nt % 2);
                ptx_mma_add_scaled(p, mt, nt, 4 * TILES * mt + 4 * nt);
            }
        }
    }
}

static void part_floats(struct ptx *p, const struct ptx_matmul *m, uint32_t part)
{
    ptx_fragment_floats(p, m->type, part);
    for (uint32_t nt = 0; nt < TILES; nt++) {
        if (nt % 2 == 0)
            load_x(p, m, part, nt / 2);
        PTX_FILL(p, "    ld.shared.v4.f32 {%times0, %times1, %less0, %less1}, [%row+$0];\n",
                 floats_at(m) + STEPS_OF_PART * part + 64 * nt);
        if (ptx_bytes_of(m->type)->min)
            PTX_FILL(p, "    ld.shared.v2.f32 {%fsum0, %fsum1}, [%place+$0];\n",
                     float_sums_at(m) + SUMS_OF_PART * part + 32 * nt);
        for (uint32_t mt = 0; mt < 2; mt++) {
            ptx_mma_product_32(p, m, mt, nt % 2);
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t at = 4 * TILES * mt + 4 * nt + i, output = 2 * mt + i / 2;
                PTX_FILL(p,
                         "    fma.rn.f32 %f, %c$0, %times$1, %less$1;\n"
                         "    fma.rn.f32 %s$2, %f, %d$3, %s$2;\n",
                         i, i % 2, at, output);
                if (ptx_bytes_of(m->type)->min)
                    PTX_FILL(p, "    fma.rn.f32 %s$0, %fsum$1, %m$2, %s$0;\n", at, i % 2, output);
            }
        }
    }
}

// Multiplies half a block: two pairs of parts.
static void half_block(struct ptx *p, const struct ptx_matmul *m)
{
    stage_of(p, "%stage", "%half", HALF_STAGE, 0);
    PTX_LINES(p, "    add.u32 %stage, %stage, %take_b;\n"
                 "PAIR: // 2 turns\n"
                 "    .pragma \"nounroll\";\n");
    if (ptx_scales_are_floats(m)) { // rows 64 wn + 2 t of steps and of sums
        places(p, STAGED | WN | G | T);
        PTX_FILL(p,
                 "    mul.lo.u32 %place, %wn, $2;\n"
                 "    mad.lo.u32 %place, %t, 2, %place;\n"
                 "    mad.lo.u32 %row, %place, 8, %staged;\n"
                 "    mad.lo.u32 %row, %pair, $0, %row;\n"
                 "    mad.lo.u32 %place, %place, 4, %staged;\n"
                 "    mad.lo.u32 %place, %pair, $1, %place;\n",
                 2 * STEPS_OF_PART, 2 * SUMS_OF_PART, ROWS / 2);
    }
    ptx_fragment_pair(p, m->type);
    for (uint32_t part = 0; part < 2; part++) {
        ptx_fragment_part(p, m->type, part);
        (ptx_scales_are_floats(m) ? part_floats : part_integers)(p, m, part);
    }
    PTX_LINES(p, "    add.u32 %stage, %stage, 64;\n"
                 "    add.u32 %pair, %pair, 1;\n"
                 "    and.b32 %index, %pair, 1;\n"
                 "    setp.ne.u32 %more, %index, 0;\n"
                 "    @%more bra PAIR;\n");
}

// ---- the end of a block: y = fma(S, da, y)

static void end_block(struct ptx *p, const struct ptx_matmul *m)
{
    const bool min = !ptx_scales_are_floats(m) && ptx_bytes_of(m->type)->min;
    PTX_LINES(p, "    {\n"
                 "    .reg .b32 %e<4>, %low, %high;\n"
                 "    .reg .f32 %da0, %da1;\n");
    places(p, ptx_scales_are_floats(m) ? STAGED | WN | T : STAGED | WM | WN | G | T);
    if (!ptx_scales_are_floats(m)) {
        find_unit(p, m);
        ptx_fragment_units(p, m->type);
    }
    if (min)
        ptx_fragment_minima(p, m->type);
    find_rows(p, m);
    if (min)
        PTX_FILL(p,
                 "    // sums 4 t to + 3 of row 64 wn + g\n"
                 "    mad.lo.u32 %row, %wn, $0, %g;\n"
                 "    mad.lo.u32 %row, %row, 32, %to;\n"
                 "    mad.lo.u32 %row, %t, 8, %row;\n",
                 ROWS / 2);
    PTX_FILL(p,
             "    // the scales of rows 64 wn + 2 t\n"
             "    mul.lo.u32 %place, %wn, $0;\n"
             "    mad.lo.u32 %place, %t, 2, %place;\n"
             "    mad.lo.u32 %place, %place, 4, %to;\n",
             ROWS / 2);
    for (uint32_t nt = 0; nt < TILES; nt++) {
        // This keeps ptxas from loading what all tiles need at once, for which there are no registers.
        PTX_FILL(p,
                 "    bar.warp.sync 0xffffffff;\n"
                 "    ld.shared.v2.f32 {%da0, %da1}, [%place+$0];\n", SCALES + 32 * nt);
        if (min)
            PTX_FILL(p,
                     "    ld.shared.v2.b32 {%low, %high}, [%row+$0];\n"
                     "    prmt.b32 %mask, %low, %high, 0x6420;\n"
                     "    prmt.b32 %high, %low, %high, 0x7531;\n"
                     "    mov.b32 %low, %mask;\n",
                     ROW_SUMS + 256 * nt);
        for (uint32_t mt = 0; mt < 2; mt++) {
            const uint32_t at = 4 * TILES * mt + 4 * nt;
            if (min)
                ptx_mma_minima(p, m, mt);
            if (!ptx_scales_are_floats(m))
                ptx_mma_scale_integers(p, m, mt, at);
            for (uint32_t i = 0; i < 4; i++)
                PTX_FILL(p, "    fma.rn.f32 %y$0, %s$0, %da$1, %y$0;\n", at + i, i % 2);
        }
    }
    PTX_LINES(p, "    }\n");
}

void ptx_matmul_wide(struct ptx *p, const struct ptx_matmul *m)
{
    head(p, m);
    sources(p, m);
    fragments(p);
    PTX_FILL(p,
             "HALF: // $0 products a turn\n"
             "    .pragma \"nounroll\";\n"
             "    cp.async.wait_all;\n"
             "    bar.sync 0;\n",
             128 * OUTPUTS * ROWS / (32 * WARPS));
    copy_next(p, m);
    PTX_LINES(p, "    setp.lt.s32 %odd, %half, 0;\n"
                 "    @%odd bra NEXT;\n"
                 "    and.b32 %index, %half, 1;\n"
                 "    setp.ne.u32 %odd, %index, 0;\n"
                 "    @%odd bra BEGUN; // 1 of 2 times\n");
    begin_block(p, m);
    PTX_LINES(p, "BEGUN:\n");
    half_block(p, m);
    PTX_LINES(p, "    and.b32 %index, %half, 1;\n"
                 "    setp.eq.u32 %more, %index, 0;\n"
                 "    @%more bra NEXT; // 1 of 2 times\n");
    end_block(p, m);
    PTX_FILL(p,
             "NEXT:\n"
             "    add.u32 %half, %half, 1;\n"
             "    setp.lt.u32 %more, %half, $0;\n"
             "    @%more bra HALF;\n",
             2 * tile_units(m->type, m->n_in));
    ptx_mma_store(p, m);
}
