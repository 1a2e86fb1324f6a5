// Emits products of f16 and bf16 matrices on tensor cores, with sums in f32. Both kernels equal: for each m, n:
// c[m][n] = sum over k of a[m][k] * b[k][n]. gemm_mma_NODE uses mma.sync and copies tiles with cp.async (sm_80).
// gemm_wmma_NODE uses wmma and ordinary loads, takes any size and runs from sm_75 on.
#include "bench/ptx/emitters.h"

// ---- mma.sync
//
// A CTA of 4 warps has 64 x 64 of c, a warp 32 x 32 of it as 2 x 4 products of 16 x 8. A step is 32 of k. Shared memory
// is double-buffered: a stage holds 64 rows of 32 elements of a, then 32 rows of 64 elements of b. Rows are padded by
// 16 bytes, to 80 bytes for a and 144 for b, so that the 8 rows of an ldmatrix are in different banks. A stage is
// 64 * 80 + 32 * 144 = 9728 bytes; b begins at byte 5120 of it.

enum { MMA_SIDE = 64, MMA_K = 32 };

static void mma_head(struct ptx *p, const struct ptx_gemm *g)
{
    ptx_header(p, 70, 80);
    PTX_FILL(p, "\n// node $0: gemm, ", g->node);
    if (g->bf16)
        PTX_LINES(p, "bf16");
    else
        PTX_LINES(p, "f16");
    PTX_FILL(p,
             " on tensor cores: c[$1][$2] = a[$1][$3] * b[$3][$2], c f32\n"
             ".visible .entry gemm_mma_$0(\n"
             "    .param .u64 a,\n"
             "    .param .u64 b,\n"
             "    .param .u64 c)\n"
             ".maxntid 128, 1, 1\n"
             "{\n"
             "    .reg .pred %more, %in;\n"
             "    .reg .u32 %thread, %lane, %warp_m, %warp_n, %row0, %col0;\n"
             "    .reg .u32 %row, %col, %index, %ahead, %size;\n"
             "    .reg .u32 %fill_a, %fill_b, %read_a, %read_b, %stage, %to, %k_a, %k_b;\n"
             "    .reg .u64 %pa<2>, %pb<2>, %pc, %offset;\n"
             "    .reg .f32 %c<32>;\n"
             "    .shared .align 16 .b8 stages[19456];\n",
             g->node, g->m, g->n, g->k);
}

// Sets the addresses of the thread's copies. Thread t copies 16 bytes of rows t / 4 and t / 4 + 32 of a, and of rows
// t / 8 and t / 8 + 16 of b.
static void mma_sources(struct ptx *p, const struct ptx_gemm *g)
{
    PTX_FILL(p,
             "    mov.u32 %thread, %tid.x;\n"
             "    and.b32 %lane, %thread, 31;\n"
             "    mov.u32 %row0, %ctaid.y;\n"
             "    shl.b32 %row0, %row0, 6;\n"
             "    mov.u32 %col0, %ctaid.x;\n"
             "    shl.b32 %col0, %col0, 6;\n"
             "    // chunks of a: k_a is the first of k that this thread brings; rows past the end read the last\n"
             "    and.b32 %k_a, %thread, 3;\n"
             "    shl.b32 %k_a, %k_a, 3;\n"
             "    shr.u32 %row, %thread, 2;\n"
             "    mov.u32 %to, stages;\n"
             "    mad.lo.u32 %fill_a, %row, 80, %to;\n"
             "    mad.lo.u32 %fill_a, %k_a, 2, %fill_a;\n"
             "    ld.param.u64 %pa0, [a];\n"
             "    cvta.to.global.u64 %pa0, %pa0;\n"
             "    add.u32 %row, %row, %row0;\n"
             "    add.u32 %index, %row, 32;\n"
             "    min.u32 %index, %index, $0;\n"
             "    mad.lo.u32 %index, %index, $1, %k_a;\n"
             "    mul.wide.u32 %offset, %index, 2;\n"
             "    add.u64 %pa1, %pa0, %offset;\n"
             "    min.u32 %index, %row, $0;\n"
             "    mad.lo.u32 %index, %index, $1, %k_a;\n"
             "    mul.wide.u32 %offset, %index, 2;\n"
             "    add.u64 %pa0, %pa0, %offset;\n",
             g->m - 1, g->k);
    PTX_FILL(p,
             "    // chunks of b: columns past the end read the last 8\n"
             "    and.b32 %col, %thread, 7;\n"
             "    shl.b32 %col, %col, 3;\n"
             "    shr.u32 %k_b, %thread, 3;\n"
             "    mad.lo.u32 %fill_b, %k_b, 144, %to;\n"
             "    mad.lo.u32 %fill_b, %col, 2, %fill_b;\n"
             "    ld.param.u64 %pb0, [b];\n"
             "    cvta.to.global.u64 %pb0, %pb0;\n"
             "    add.u32 %col, %col, %col0;\n"
             "    min.u32 %col, %col, $0;\n"
             "    mad.lo.u32 %index, %k_b, $1, %col;\n"
             "    mul.wide.u32 %offset, %index, 2;\n"
             "    add.u64 %pb0, %pb0, %offset;\n"
             "    add.u64 %pb1, %pb0, $2;\n",
             g->n - 8, g->n, 32 * g->n);
}

// Sets the addresses of the lane's rows for ldmatrix, and c to 0.
static void mma_reads(struct ptx *p)
{
    PTX_LINES(p, "    // warp w has rows 32 * (w / 2) and columns 32 * (w % 2) of the tile\n"
                 "    shr.u32 %warp_m, %thread, 6;\n"
                 "    shl.b32 %warp_m, %warp_m, 5;\n"
                 "    shr.u32 %warp_n, %thread, 5;\n"
                 "    and.b32 %warp_n, %warp_n, 1;\n"
                 "    shl.b32 %warp_n, %warp_n, 5;\n"
                 "    // a lane names row l % 16, and the second 8 of the columns where l > 15\n"
                 "    and.b32 %index, %lane, 15;\n"
                 "    shr.u32 %size, %lane, 4;\n"
                 "    shl.b32 %size, %size, 4;\n"
                 "    add.u32 %row, %warp_m, %index;\n"
                 "    mad.lo.u32 %read_a, %row, 80, %to;\n"
                 "    add.u32 %read_a, %read_a, %size;\n"
                 "    mad.lo.u32 %read_b, %index, 144, %to;\n"
                 "    mad.lo.u32 %read_b, %warp_n, 2, %read_b;\n"
                 "    add.u32 %read_b, %read_b, %size;\n"
                 "    mov.u32 %stage, 0;\n");
#define ZERO(i) "    mov.f32 %c" #i ", 0f00000000;\n"
    PTX_LINES(p, ZERO(0) ZERO(1) ZERO(2) ZERO(3) ZERO(4) ZERO(5) ZERO(6) ZERO(7) ZERO(8) ZERO(9) ZERO(10) ZERO(11)
                     ZERO(12) ZERO(13) ZERO(14) ZERO(15) ZERO(16) ZERO(17) ZERO(18) ZERO(19) ZERO(20) ZERO(21) ZERO(22)
                         ZERO(23) ZERO(24) ZERO(25) ZERO(26) ZERO(27) ZERO(28) ZERO(29) ZERO(30) ZERO(31));
#undef ZERO
}

// Starts the copy of the next step to stage %to. Chunks beyond k are copied with a size of 0, which stores zeros.
static void mma_copy(struct ptx *p, const struct ptx_gemm *g)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .u32 %into_a, %into_b;\n"
                 "    add.u32 %into_a, %fill_a, %to;\n"
                 "    add.u32 %into_b, %fill_b, %to;\n");
    if (g->k % MMA_K == 0)
        PTX_LINES(p, "    cp.async.cg.shared.global [%into_a], [%pa0], 16;\n"
                     "    cp.async.cg.shared.global [%into_a+2560], [%pa1], 16;\n"
                     "    cp.async.cg.shared.global [%into_b+5120], [%pb0], 16;\n"
                     "    cp.async.cg.shared.global [%into_b+7424], [%pb1], 16;\n");
    else
        PTX_FILL(p,
                 "    setp.lt.u32 %in, %k_a, $0;\n"
                 "    selp.u32 %size, 16, 0, %in;\n"
                 "    cp.async.cg.shared.global [%into_a], [%pa0], 16, %size;\n"
                 "    cp.async.cg.shared.global [%into_a+2560], [%pa1], 16, %size;\n"
                 "    setp.lt.u32 %in, %k_b, $0;\n"
                 "    selp.u32 %size, 16, 0, %in;\n"
                 "    cp.async.cg.shared.global [%into_b+5120], [%pb0], 16, %size;\n"
                 "    add.u32 %index, %k_b, 16;\n"
                 "    setp.lt.u32 %in, %index, $0;\n"
                 "    selp.u32 %size, 16, 0, %in;\n"
                 "    cp.async.cg.shared.global [%into_b+7424], [%pb1], 16, %size;\n"
                 "    add.u32 %k_a, %k_a, 32;\n"
                 "    add.u32 %k_b, %k_b, 32;\n",
                 g->k);
    PTX_FILL(p,
             "    add.u64 %pa0, %pa0, 64;\n"
             "    add.u64 %pa1, %pa1, 64;\n"
             "    add.u64 %pb0, %pb0, $0;\n"
             "    add.u64 %pb1, %pb1, $0;\n"
             "    }\n",
             64 * g->n);
}

// 16 of k: four ldmatrix and eight products.
//   type    f16 or bf16
//   a0, a1  offsets in the stage of the first and second 16 rows of a
//   b0, b1  offsets in the stage of the first and second 16 columns of b
//   c0..c3  numbers of the sums of one product
#define MMA(type, a, b, c0, c1, c2, c3)                                                                                \
    "    mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%c" c0 ", %c" c1 ", %c" c2 ", %c" c3 "}, " a     \
    ", " b ", {%c" c0 ", %c" c1 ", %c" c2 ", %c" c3 "};\n"
#define A0 "{%a0, %a1, %a2, %a3}"
#define A1 "{%a4, %a5, %a6, %a7}"
#define LDMATRIX(trans, into, from) "    ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 " into ", [" from "];\n"
#define MMA_STEP(type, a0, a1, b0, b1)                                                                                 \
    LDMATRIX("", A0, "%from_a+" a0)                                                                                    \
    LDMATRIX("", A1, "%from_a+" a1)                                                                                    \
    LDMATRIX(".trans", "{%b0, %b1, %b2, %b3}", "%from_b+" b0)                                                          \
    LDMATRIX(".trans", "{%b4, %b5, %b6, %b7}", "%from_b+" b1)                                                          \
    MMA(type, A0, "{%b0, %b1}", "0", "1", "2", "3")                                                                    \
    MMA(type, A0, "{%b2, %b3}", "4", "5", "6", "7")                                                                    \
    MMA(type, A0, "{%b4, %b5}", "8", "9", "10", "11")                                                                  \
    MMA(type, A0, "{%b6, %b7}", "12", "13", "14", "15")                                                                \
    MMA(type, A1, "{%b0, %b1}", "16", "17", "18", "19")                                                                \
    MMA(type, A1, "{%b2, %b3}", "20", "21", "22", "23")                                                                \
    MMA(type, A1, "{%b4, %b5}", "24", "25", "26", "27")                                                                \
    MMA(type, A1, "{%b6, %b7}", "28", "29", "30", "31")

static void mma_product(struct ptx *p, bool bf16)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .b32 %a<8>, %b<8>;\n"
                 "    .reg .u32 %from_a, %from_b;\n"
                 "    add.u32 %from_a, %read_a, %stage;\n"
                 "    add.u32 %from_b, %read_b, %stage;\n");
    if (bf16) {
        PTX_LINES(p, MMA_STEP("bf16", "0", "1280", "5120", "5152"));
        PTX_LINES(p, MMA_STEP("bf16", "32", "1312", "7424", "7456"));
    } else {
        PTX_LINES(p, MMA_STEP("f16", "0", "1280", "5120", "5152"));
        PTX_LINES(p, MMA_STEP("f16", "32", "1312", "7424", "7456"));
    }
    PTX_LINES(p, "    }\n");
}

// The loop over k: while one stage is multiplied, the next one is copied.
static void mma_loop(struct ptx *p, const struct ptx_gemm *g)
{
    PTX_FILL(p,
             "    mov.u32 %to, 0;\n"
             "    mov.u32 %ahead, $0;\n",
             ptx_tiles(g->k, MMA_K));
    mma_copy(p, g);
    PTX_LINES(p, "    cp.async.commit_group;\n"
                 "NEXT:\n"
                 "    sub.u32 %ahead, %ahead, 1;\n"
                 "    setp.eq.u32 %more, %ahead, 0;\n"
                 "    @%more bra LAST;\n"
                 "    xor.b32 %to, %stage, 9728;\n");
    mma_copy(p, g);
    PTX_LINES(p, "LAST:\n"
                 "    cp.async.commit_group;\n"
                 "    cp.async.wait_group 1;\n"
                 "    bar.sync 0;\n");
    mma_product(p, g->bf16);
    PTX_LINES(p, "    bar.sync 0;\n"
                 "    xor.b32 %stage, %stage, 9728;\n"
                 "    setp.ne.u32 %more, %ahead, 0;\n"
                 "    @%more bra NEXT;\n");
}

// Stores c. Of each product, lane l holds columns 2 * (l % 4) and the next of rows l / 4 and l / 4 + 8.
static void mma_store(struct ptx *p, const struct ptx_gemm *g)
{
    PTX_FILL(p,
             "    shr.u32 %index, %lane, 2;\n"
             "    add.u32 %row, %row0, %warp_m;\n"
             "    add.u32 %row, %row, %index;\n"
             "    and.b32 %index, %lane, 3;\n"
             "    shl.b32 %index, %index, 1;\n"
             "    add.u32 %col, %col0, %warp_n;\n"
             "    add.u32 %col, %col, %index;\n"
             "    ld.param.u64 %pc, [c];\n"
             "    cvta.to.global.u64 %pc, %pc;\n"
             "    mul.wide.u32 %offset, %row, $0;\n"
             "    add.u64 %pc, %pc, %offset;\n"
             "    mul.wide.u32 %offset, %col, 4;\n"
             "    add.u64 %pc, %pc, %offset;\n",
             4 * g->n);
    bool cut = g->m % MMA_SIDE || g->n % MMA_SIDE;
    if (cut)
        PTX_LINES(p, "    .reg .pred %row_in, %both;\n");
    for (uint32_t r = 0; r < 4; r++) { // rows 0, 8, 16, 24 of the warp's
        if (cut)
            PTX_FILL(p,
                     "    add.u32 %index, %row, $0;\n"
                     "    setp.lt.u32 %row_in, %index, $1;\n",
                     8 * r, g->m);
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t c = 16 * (r / 2) + 4 * j + 2 * (r % 2);
            if (cut)
                PTX_FILL(p,
                         "    add.u32 %index, %col, $0;\n"
                         "    setp.lt.u32 %in, %index, $1;\n"
                         "    and.pred %both, %in, %row_in;\n"
                         "    @%both st.global.v2.f32 [%pc+$2], {%c$3, %c$4};\n",
                         8 * j, g->n, 32 * j, c, c + 1);
            else
                PTX_FILL(p, "    st.global.v2.f32 [%pc+$0], {%c$1, %c$2};\n", 32 * j, c, c + 1);
        }
        if (r < 3)
            PTX_FILL(p, "    add.u64 %pc, %pc, $0;\n", 32 * g->n);
    }
}

int ptx_emit_gemm_mma(struct ptx *p, const struct ptx_gemm *g, struct ptx_launch *launch, struct error *err)
{
    if (ptx_check_gemm(g, err))
        return -1;
    if (g->n % 8 || g->k % 8)
        return fail(err, E_GPU, "gemm: tensor cores need sizes that are multiples of 8, not %u and %u", g->n, g->k);
    mma_head(p, g);
    mma_sources(p, g);
    mma_reads(p);
    mma_loop(p, g);
    mma_store(p, g);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){
        .entry = "gemm_mma", .grid = {ptx_tiles(g->n, MMA_SIDE), ptx_tiles(g->m, MMA_SIDE), 1}, .block = {128, 1, 1}};
    return ptx_finish(p, err);
}

// ---- wmma
//
// A CTA of 4 warps has 32 x 32 of c, a warp 16 x 16. A step is 16 of k: shared memory holds 32 rows of 16 elements of
// a, 48 bytes each, and 16 rows of 32 elements of b, 80 bytes each. The results go through shared memory too, 32 rows
// of 32 floats, 144 bytes each, because PTX does not define which lane holds which element of a wmma fragment.

enum { WMMA_SIDE = 32, WMMA_K = 16 };

static void wmma_head(struct ptx *p, const struct ptx_gemm *g)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: gemm, f16 by wmma: c[$1][$2] = a[$1][$3] * b[$3][$2], c f32\n"
             ".visible .entry gemm_wmma_$0(\n"
             "    .param .u64 a,\n"
             "    .param .u64 b,\n"
             "    .param .u64 c)\n"
             ".maxntid 128, 1, 1\n"
             "{\n"
             "    .reg .pred %more, %in, %col_in;\n"
             "    .reg .u32 %thread, %row, %col, %row_c, %index, %last, %k_a, %k_b;\n"
             "    .reg .u32 %fill_a, %fill_b, %read_a, %read_b, %place_c, %read_c, %tiles;\n"
             "    .reg .u64 %pa<4>, %pb, %pc, %offset;\n"
             "    .reg .f32 %c<8>;\n"
             "    .shared .align 32 .b8 tile_a[1536];\n"
             "    .shared .align 32 .b8 tile_b[1280];\n"
             "    .shared .align 32 .b8 tile_c[4608];\n",
             g->node, g->m, g->n, g->k);
}

static void wmma_sources(struct ptx *p, const struct ptx_gemm *g)
{
    PTX_LINES(p, "    mov.u32 %thread, %tid.x;\n"
                 "    // a: k_a of rows t / 16 and every 8th after it; rows past the end read the last\n"
                 "    and.b32 %k_a, %thread, 15;\n"
                 "    shr.u32 %row, %thread, 4;\n"
                 "    mov.u32 %fill_a, tile_a;\n"
                 "    mad.lo.u32 %fill_a, %row, 48, %fill_a;\n"
                 "    mad.lo.u32 %fill_a, %k_a, 2, %fill_a;\n"
                 "    mov.u32 %index, %ctaid.y;\n"
                 "    mad.lo.u32 %row, %index, 32, %row;\n"
                 "    ld.param.u64 %pc, [a];\n"
                 "    cvta.to.global.u64 %pc, %pc;\n");
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    add.u32 %index, %row, $0;\n"
                 "    min.u32 %index, %index, $1;\n"
                 "    mad.lo.u32 %index, %index, $2, %k_a;\n"
                 "    mul.wide.u32 %offset, %index, 2;\n"
                 "    add.u64 %pa$3, %pc, %offset;\n",
                 8 * i, g->m - 1, g->k, i);
    PTX_FILL(p,
             "    // b: column t % 32 of rows t / 32 and every 4th after it; columns past the end read the last\n"
             "    and.b32 %col, %thread, 31;\n"
             "    shr.u32 %k_b, %thread, 5;\n"
             "    mov.u32 %fill_b, tile_b;\n"
             "    mad.lo.u32 %fill_b, %k_b, 80, %fill_b;\n"
             "    mad.lo.u32 %fill_b, %col, 2, %fill_b;\n"
             "    // c: the same column of the same rows of this CTA's part\n"
             "    mov.u32 %read_c, tile_c;\n"
             "    mad.lo.u32 %read_c, %k_b, 144, %read_c;\n"
             "    mad.lo.u32 %read_c, %col, 4, %read_c;\n"
             "    mov.u32 %index, %ctaid.y;\n"
             "    mad.lo.u32 %row_c, %index, 32, %k_b;\n"
             "    mov.u32 %index, %ctaid.x;\n"
             "    mad.lo.u32 %col, %index, 32, %col;\n"
             "    min.u32 %last, %col, $0;\n"
             "    mad.lo.u32 %index, %k_b, $1, %last;\n"
             "    mul.wide.u32 %offset, %index, 2;\n"
             "    ld.param.u64 %pb, [b];\n"
             "    cvta.to.global.u64 %pb, %pb;\n"
             "    add.u64 %pb, %pb, %offset;\n",
             g->n - 1, g->n);
    PTX_LINES(p, "    // warp w has rows 16 * (w / 2) and columns 16 * (w % 2)\n"
                 "    shr.u32 %row, %thread, 6;\n"
                 "    shr.u32 %index, %thread, 5;\n"
                 "    and.b32 %index, %index, 1;\n"
                 "    mov.u32 %read_a, tile_a;\n"
                 "    mad.lo.u32 %read_a, %row, 768, %read_a;\n"
                 "    mov.u32 %read_b, tile_b;\n"
                 "    mad.lo.u32 %read_b, %index, 32, %read_b;\n"
                 "    mov.u32 %place_c, tile_c;\n"
                 "    mad.lo.u32 %place_c, %row, 2304, %place_c;\n"
                 "    mad.lo.u32 %place_c, %index, 64, %place_c;\n"
                 "    mov.f32 %c0, 0f00000000;\n"
                 "    mov.f32 %c1, 0f00000000;\n"
                 "    mov.f32 %c2, 0f00000000;\n"
                 "    mov.f32 %c3, 0f00000000;\n"
                 "    mov.f32 %c4, 0f00000000;\n"
                 "    mov.f32 %c5, 0f00000000;\n"
                 "    mov.f32 %c6, 0f00000000;\n"
                 "    mov.f32 %c7, 0f00000000;\n");
}

static void wmma_load(struct ptx *p, const struct ptx_gemm *g)
{
    bool cut = g->k % WMMA_K;
    PTX_LINES(p, "    {\n"
                 "    .reg .b16 %a0, %a1, %a2, %a3, %b0, %b1, %b2, %b3;\n");
    if (cut)
        PTX_FILL(p, "    setp.lt.u32 %in, %k_a, $0;\n", g->k);
    for (uint32_t i = 0; i < 4; i++) {
        if (cut)
            PTX_FILL(p,
                     "    mov.b16 %a$0, 0;\n"
                     "    @%in ld.global.b16 %a$0, [%pa$0];\n",
                     i);
        else
            PTX_FILL(p, "    ld.global.b16 %a$0, [%pa$0];\n", i);
    }
    for (uint32_t i = 0; i < 4; i++) {
        if (cut)
            PTX_FILL(p,
                     "    add.u32 %index, %k_b, $1;\n"
                     "    setp.lt.u32 %in, %index, $2;\n"
                     "    mov.b16 %b$0, 0;\n"
                     "    @%in ld.global.b16 %b$0, [%pb+$3];\n",
                     i, 4 * i, g->k, 8 * g->n * i);
        else
            PTX_FILL(p, "    ld.global.b16 %b$0, [%pb+$1];\n", i, 8 * g->n * i);
    }
    PTX_LINES(p, "    st.shared.b16 [%fill_a], %a0;\n"
                 "    st.shared.b16 [%fill_a+384], %a1;\n"
                 "    st.shared.b16 [%fill_a+768], %a2;\n"
                 "    st.shared.b16 [%fill_a+1152], %a3;\n"
                 "    st.shared.b16 [%fill_b], %b0;\n"
                 "    st.shared.b16 [%fill_b+320], %b1;\n"
                 "    st.shared.b16 [%fill_b+640], %b2;\n"
                 "    st.shared.b16 [%fill_b+960], %b3;\n"
                 "    }\n"
                 "    bar.sync 0;\n");
}

#define FRAGMENT(v) "{%" v "0, %" v "1, %" v "2, %" v "3, %" v "4, %" v "5, %" v "6, %" v "7}"

static void wmma_product(struct ptx *p)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .b32 %a<8>, %b<8>;\n"
                 "    wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 " FRAGMENT("a") ", [%read_a], 24;\n"
                 "    wmma.load.b.sync.aligned.row.m16n16k16.shared.f16 " FRAGMENT("b") ", [%read_b], 40;\n"
                 "    wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 " FRAGMENT("c") ", "
                 FRAGMENT("a") ", " FRAGMENT("b") ", " FRAGMENT("c") ";\n"
                 "    }\n"
                 "    bar.sync 0;\n");
}

static void wmma_store(struct ptx *p, const struct ptx_gemm *g)
{
    PTX_FILL(p,
             "    wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%place_c], " FRAGMENT("c") ", 36;\n"
             "    bar.sync 0;\n"
             "    ld.param.u64 %pc, [c];\n"
             "    cvta.to.global.u64 %pc, %pc;\n"
             "    mul.wide.u32 %offset, %row_c, $0;\n"
             "    add.u64 %pc, %pc, %offset;\n"
             "    mul.wide.u32 %offset, %col, 4;\n"
             "    add.u64 %pc, %pc, %offset;\n",
             4 * g->n);
    bool cut = g->m % WMMA_SIDE || g->n % WMMA_SIDE;
    if (cut)
        PTX_FILL(p, "    setp.lt.u32 %col_in, %col, $0;\n", g->n);
    for (uint32_t i = 0; i < 8; i++) {
        PTX_FILL(p, "    ld.shared.f32 %c$0, [%read_c+$1];\n", i, 576 * i);
        if (cut)
            PTX_FILL(p,
                     "    add.u32 %index, %row_c, $0;\n"
                     "    setp.lt.u32 %in, %index, $1;\n"
                     "    and.pred %in, %in, %col_in;\n"
                     "    @%in st.global.f32 [%pc+$2], %c$3;\n",
                     4 * i, g->m, 16 * g->n * i, i);
        else
            PTX_FILL(p, "    st.global.f32 [%pc+$0], %c$1;\n", 16 * g->n * i, i);
    }
}

int ptx_emit_gemm_wmma(struct ptx *p, const struct ptx_gemm *g, struct ptx_launch *launch, struct error *err)
{
    if (ptx_check_gemm(g, err))
        return -1;
    wmma_head(p, g);
    wmma_sources(p, g);
    PTX_FILL(p,
             "    mov.u32 %tiles, $0;\n"
             "NEXT:\n",
             ptx_tiles(g->k, WMMA_K));
    wmma_load(p, g);
    wmma_product(p);
    PTX_FILL(p,
             "    add.u64 %pa0, %pa0, 32;\n"
             "    add.u64 %pa1, %pa1, 32;\n"
             "    add.u64 %pa2, %pa2, 32;\n"
             "    add.u64 %pa3, %pa3, 32;\n"
             "    add.u64 %pb, %pb, $0;\n"
             "    add.u32 %k_a, %k_a, 16;\n"
             "    add.u32 %k_b, %k_b, 16;\n"
             "    sub.u32 %tiles, %tiles, 1;\n"
             "    setp.ne.u32 %more, %tiles, 0;\n"
             "    @%more bra NEXT;\n",
             32 * g->n);
    wmma_store(p, g);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){.entry = "gemm_wmma",
                                  .grid = {ptx_tiles(g->n, WMMA_SIDE), ptx_tiles(g->m, WMMA_SIDE), 1},
                                  .block = {128, 1, 1}};
    return ptx_finish(p, err);
}
