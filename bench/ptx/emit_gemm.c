// Emits two products of f32 matrices without tensor cores.
//
// Both equal: for each m, n: c[m][n] = sum over k of a[m][k] * b[k][n], one fma after another in the order of k.
//
// gemm_naive_NODE: a thread has one element of c and reads its row of a and its column of b from global memory. A CTA
// has 16 x 16 threads. There is no shared memory. Each fma costs two loads.
//
// gemm_tiled_NODE: a CTA has tile x tile threads (tile 8, 16 or 32), one for each element of a square of c. It goes
// through k in steps of `tile`: every thread loads one element of a and one of b to shared memory (2 * tile^2 floats),
// then adds `tile` products from there. Each element is loaded from global memory once per CTA instead of `tile` times.
// Where k is not a multiple of the tile, the last step is padded with zeros.
#include "bench/ptx/emitters.h"

enum {
    MAX_DIM = 1 << 20,
    NAIVE_SIDE = 16,  // threads of a CTA in x and in y
    NAIVE_UNROLL = 4, // steps of k in one iteration of the loop
};

int ptx_check_gemm(const struct ptx_gemm *g, struct error *err)
{
    uint64_t m = g->m, n = g->n, k = g->k;
    if (!m || !n || !k || m > MAX_DIM || n > MAX_DIM || k > MAX_DIM)
        return fail(err, E_GPU, "gemm: %u x %u x %u: each size is 1 to %d", g->m, g->n, g->k, MAX_DIM);
    if (m * k >> 31 || k * n >> 31 || m * n >> 31)
        return fail(err, E_GPU, "gemm: %u x %u x %u: a matrix has 2^31 elements or more", g->m, g->n, g->k);
    // The grid's second dimension is at most 65535; the smallest tile has 8 rows.
    if (m > 65535u * 8)
        return fail(err, E_GPU, "gemm: %u rows: more than a grid has", g->m);
    return 0;
}

// ---- one thread per element

static void naive_head(struct ptx *p, const struct ptx_gemm *g)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: gemm, f32: c[$1][$2] = a[$1][$3] * b[$3][$2]; a thread an element\n"
             ".visible .entry gemm_naive_$0(\n"
             "    .param .u64 a,\n"
             "    .param .u64 b,\n"
             "    .param .u64 c)\n"
             ".maxntid 16, 16, 1\n"
             "{\n"
             "    .reg .pred %outside, %more;\n"
             "    .reg .u32 %row, %col, %cta, %left, %index;\n"
             "    .reg .u64 %pa, %pb, %pc, %offset;\n"
             "    .reg .f32 %sum;\n"
             "    mov.u32 %cta, %ctaid.y;\n"
             "    mov.u32 %row, %tid.y;\n"
             "    mad.lo.u32 %row, %cta, 16, %row;\n"
             "    mov.u32 %cta, %ctaid.x;\n"
             "    mov.u32 %col, %tid.x;\n"
             "    mad.lo.u32 %col, %cta, 16, %col;\n"
             "    setp.ge.u32 %outside, %row, $1;\n"
             "    @%outside ret;\n"
             "    setp.ge.u32 %outside, %col, $2;\n"
             "    @%outside ret;\n"
             "    // the row of a, the column of b, the element of c\n"
             "    ld.param.u64 %pa, [a];\n"
             "    cvta.to.global.u64 %pa, %pa;\n"
             "    mul.lo.u32 %index, %row, $3;\n"
             "    mul.wide.u32 %offset, %index, 4;\n"
             "    add.u64 %pa, %pa, %offset;\n"
             "    ld.param.u64 %pb, [b];\n"
             "    cvta.to.global.u64 %pb, %pb;\n"
             "    mul.wide.u32 %offset, %col, 4;\n"
             "    add.u64 %pb, %pb, %offset;\n"
             "    ld.param.u64 %pc, [c];\n"
             "    cvta.to.global.u64 %pc, %pc;\n"
             "    mad.lo.u32 %index, %row, $2, %col;\n"
             "    mul.wide.u32 %offset, %index, 4;\n"
             "    add.u64 %pc, %pc, %offset;\n"
             "    mov.f32 %sum, 0f00000000;\n",
             g->node, g->m, g->n, g->k);
}

// Adds `steps` products, from the addresses %pa and %pb on, which it does not advance.
static void naive_steps(struct ptx *p, uint32_t steps, uint32_t row_bytes)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .f32 %va, %vb;\n");
    for (uint32_t i = 0; i < steps; i++)
        PTX_FILL(p,
                 "    ld.global.f32 %va, [%pa+$0];\n"
                 "    ld.global.f32 %vb, [%pb+$1];\n"
                 "    fma.rn.f32 %sum, %va, %vb, %sum;\n",
                 4 * i, row_bytes * i);
    PTX_LINES(p, "    }\n");
}

int ptx_emit_gemm_naive(struct ptx *p, const struct ptx_gemm *g, struct ptx_launch *launch, struct error *err)
{
    if (ptx_check_gemm(g, err))
        return -1;
    uint32_t turns = g->k / NAIVE_UNROLL, row_bytes = 4 * g->n;
    naive_head(p, g);
    if (turns) {
        PTX_FILL(p,
                 "    mov.u32 %left, $0;\n"
                 "NEXT:\n",
                 turns);
        naive_steps(p, NAIVE_UNROLL, row_bytes);
        PTX_FILL(p,
                 "    add.u64 %pa, %pa, $0;\n"
                 "    add.u64 %pb, %pb, $1;\n"
                 "    sub.u32 %left, %left, 1;\n"
                 "    setp.ne.u32 %more, %left, 0;\n"
                 "    @%more bra NEXT;\n",
                 4 * NAIVE_UNROLL, row_bytes * NAIVE_UNROLL);
    }
    if (g->k % NAIVE_UNROLL)
        naive_steps(p, g->k % NAIVE_UNROLL, row_bytes);
    PTX_LINES(p, "    st.global.f32 [%pc], %sum;\n"
                 "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){.entry = "gemm_naive",
                                  .grid = {ptx_tiles(g->n, NAIVE_SIDE), ptx_tiles(g->m, NAIVE_SIDE), 1},
                                  .block = {NAIVE_SIDE, NAIVE_SIDE, 1}};
    return ptx_finish(p, err);
}

// ---- tiles in shared memory

static void tiled_head(struct ptx *p, const struct ptx_gemm *g)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: gemm, f32: c[$1][$2] = a[$1][$3] * b[$3][$2]; tiles of $4 x $4\n"
             ".visible .entry gemm_tiled_$0(\n"
             "    .param .u64 a,\n"
             "    .param .u64 b,\n"
             "    .param .u64 c)\n"
             ".maxntid $4, $4, 1\n"
             "{\n"
             "    .reg .pred %outside, %more;\n"
             "    .reg .u32 %tx, %ty, %row, %col, %near, %index, %k0;\n"
             "    .reg .u32 %slot_a, %slot_b, %row_a, %col_b;\n"
             "    .reg .u64 %pa, %pb, %pc, %offset;\n"
             "    .reg .f32 %sum;\n"
             "    .shared .align 16 .b8 tile_a[$5];\n"
             "    .shared .align 16 .b8 tile_b[$5];\n",
             g->node, g->m, g->n, g->k, g->tile, 4 * g->tile * g->tile);
}

// Sets the addresses. Rows and columns beyond the matrix read the last one; their results are not stored.
static void tiled_addresses(struct ptx *p, const struct ptx_gemm *g)
{
    PTX_FILL(p,
             "    mov.u32 %tx, %tid.x;\n"
             "    mov.u32 %ty, %tid.y;\n"
             "    mov.u32 %row, %ctaid.y;\n"
             "    mad.lo.u32 %row, %row, $0, %ty;\n"
             "    mov.u32 %col, %ctaid.x;\n"
             "    mad.lo.u32 %col, %col, $0, %tx;\n"
             "    // a[row][tx], b[ty][col]; rows and columns past the end read the last\n"
             "    ld.param.u64 %pa, [a];\n"
             "    cvta.to.global.u64 %pa, %pa;\n"
             "    min.u32 %near, %row, $1;\n"
             "    mad.lo.u32 %index, %near, $3, %tx;\n"
             "    mul.wide.u32 %offset, %index, 4;\n"
             "    add.u64 %pa, %pa, %offset;\n"
             "    ld.param.u64 %pb, [b];\n"
             "    cvta.to.global.u64 %pb, %pb;\n"
             "    min.u32 %near, %col, $2;\n"
             "    mad.lo.u32 %index, %ty, $4, %near;\n"
             "    mul.wide.u32 %offset, %index, 4;\n"
             "    add.u64 %pb, %pb, %offset;\n"
             "    // where this thread writes, and the row and the column that it reads\n"
             "    mad.lo.u32 %index, %ty, $0, %tx;\n"
             "    shl.b32 %index, %index, 2;\n"
             "    mov.u32 %slot_a, tile_a;\n"
             "    mad.lo.u32 %row_a, %ty, $5, %slot_a;\n"
             "    add.u32 %slot_a, %slot_a, %index;\n"
             "    mov.u32 %slot_b, tile_b;\n"
             "    mad.lo.u32 %col_b, %tx, 4, %slot_b;\n"
             "    add.u32 %slot_b, %slot_b, %index;\n"
             "    mov.f32 %sum, 0f00000000;\n"
             "    mov.u32 %k0, 0;\n",
             g->tile, g->m - 1, g->n - 1, g->k, g->n, 4 * g->tile);
}

// Loads both tiles to shared memory. The part of the last tiles that is beyond k becomes zeros.
static void tiled_load(struct ptx *p, const struct ptx_gemm *g)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .f32 %va, %vb;\n");
    if (g->k % g->tile)
        PTX_FILL(p,
                 "    .reg .pred %in;\n"
                 "    mov.f32 %va, 0f00000000;\n"
                 "    add.u32 %index, %k0, %tx;\n"
                 "    setp.lt.u32 %in, %index, $0;\n"
                 "    @%in ld.global.f32 %va, [%pa];\n"
                 "    mov.f32 %vb, 0f00000000;\n"
                 "    add.u32 %index, %k0, %ty;\n"
                 "    setp.lt.u32 %in, %index, $0;\n"
                 "    @%in ld.global.f32 %vb, [%pb];\n",
                 g->k);
    else
        PTX_LINES(p, "    ld.global.f32 %va, [%pa];\n"
                     "    ld.global.f32 %vb, [%pb];\n");
    PTX_LINES(p, "    st.shared.f32 [%slot_a], %va;\n"
                 "    st.shared.f32 [%slot_b], %vb;\n"
                 "    }\n"
                 "    bar.sync 0;\n");
}

static void tiled_product(struct ptx *p, uint32_t tile)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .f32 %a0, %a1, %a2, %a3, %b0, %b1, %b2, %b3;\n");
    for (uint32_t k = 0; k < tile; k += 4)
        PTX_FILL(p,
                 "    ld.shared.v4.f32 {%a0, %a1, %a2, %a3}, [%row_a+$0];\n"
                 "    ld.shared.f32 %b0, [%col_b+$1];\n"
                 "    ld.shared.f32 %b1, [%col_b+$2];\n"
                 "    ld.shared.f32 %b2, [%col_b+$3];\n"
                 "    ld.shared.f32 %b3, [%col_b+$4];\n"
                 "    fma.rn.f32 %sum, %a0, %b0, %sum;\n"
                 "    fma.rn.f32 %sum, %a1, %b1, %sum;\n"
                 "    fma.rn.f32 %sum, %a2, %b2, %sum;\n"
                 "    fma.rn.f32 %sum, %a3, %b3, %sum;\n",
                 4 * k, 4 * tile * k, 4 * tile * (k + 1), 4 * tile * (k + 2), 4 * tile * (k + 3));
    PTX_LINES(p, "    }\n");
}

int ptx_emit_gemm_tiled(struct ptx *p, const struct ptx_gemm *g, struct ptx_launch *launch, struct error *err)
{
    if (ptx_check_gemm(g, err))
        return -1;
    if (g->tile != 8 && g->tile != 16 && g->tile != 32)
        return fail(err, E_GPU, "gemm: tiles of %u: 8, 16 and 32 exist", g->tile);
    tiled_head(p, g);
    tiled_addresses(p, g);
    PTX_LINES(p, "NEXT:\n");
    tiled_load(p, g);
    tiled_product(p, g->tile);
    PTX_FILL(p,
             "    bar.sync 0;\n"
             "    add.u64 %pa, %pa, $0;\n"
             "    add.u64 %pb, %pb, $1;\n"
             "    add.u32 %k0, %k0, $2;\n"
             "    setp.lt.u32 %more, %k0, $3;\n"
             "    @%more bra NEXT;\n"
             "    setp.ge.u32 %outside, %row, $4;\n"
             "    @%outside ret;\n"
             "    setp.ge.u32 %outside, %col, $5;\n"
             "    @%outside ret;\n"
             "    ld.param.u64 %pc, [c];\n"
             "    cvta.to.global.u64 %pc, %pc;\n"
             "    mad.lo.u32 %index, %row, $5, %col;\n"
             "    mul.wide.u32 %offset, %index, 4;\n"
             "    add.u64 %pc, %pc, %offset;\n"
             "    st.global.f32 [%pc], %sum;\n"
             "    ret;\n"
             "}\n",
             4 * g->tile, 4 * g->tile * g->n, g->tile, g->k, g->m, g->n);
    *launch = (struct ptx_launch){.entry = "gemm_tiled",
                                  .grid = {ptx_tiles(g->n, g->tile), ptx_tiles(g->m, g->tile), 1},
                                  .block = {g->tile, g->tile, 1}};
    return ptx_finish(p, err);
}
