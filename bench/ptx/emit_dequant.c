// Emits products with weights in Q4_K blocks, which are dequantised to f32 on their way to shared memory.
//
// The naive loop: for each m, n: c[m][n] = sum over k of a[m][k] * decode(w[n])[k].
//
// A block is 144 bytes for 256 weights: d and dmin (f16), 12 bytes of 6-bit scales and minima for 8 runs of 32, and
// 128 bytes of quants, in which each 32 bytes hold one run in the low nibbles and the next one in the high ones.
// A weight is d * scale * quant - dmin * minimum.
//
// A CTA of 128 threads has 32 x 32 of c, a thread 2 x 4. A step is 64 of k, that is two runs. Shared memory holds 32
// rows of a and 32 rows of w, 64 floats each, 17408 bytes in all. Rows are 272 bytes apart, so that 8 rows are read
// without bank conflicts. A weight is decoded once for 32 rows of a.
#include "bench/ptx/emitters.h"

enum { Q4_K_SIDE = 32, Q4_K_WEIGHTS = 256, Q4_K_BYTES = 144 };

static void q4_k_head(struct ptx *p, const struct ptx_gemm *g)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: gemm, f32 by Q4_K: c[$1][$2] = a[$1][$3] * w[$2][$3]'\n"
             ".visible .entry gemm_q4_k_$0(\n"
             "    .param .u64 a,\n"
             "    .param .u64 w,\n"
             "    .param .u64 c)\n"
             ".maxntid 128, 1, 1\n"
             "{\n"
             "    .reg .pred %more, %low, %in, %row_in;\n"
             "    .reg .u32 %thread, %row, %col, %near, %index, %part, %blocks, %pair, %shift;\n"
             "    .reg .u32 %fill_a, %fill_w, %read_a, %read_w, %from_a, %from_w, %end;\n"
             "    .reg .u32 %dd, %scales0, %scales1, %scales2, %scale_lo, %scale_hi, %min_lo, %min_hi;\n"
             "    .reg .u64 %pa<4>, %pw, %pq, %pc, %offset;\n"
             "    .reg .f32 %d, %dmin;\n"
             "    .reg .f32 %c00, %c01, %c02, %c03, %c10, %c11, %c12, %c13;\n"
             "    .shared .align 16 .b8 tile_a[8704];\n"
             "    .shared .align 16 .b8 tile_w[8704];\n",
             g->node, g->m, g->n, g->k);
}

// Sets the addresses. Thread t copies 16 bytes of row t / 16 of a and of every 8th row after it, and decodes 8 bytes
// of quants of row t / 4 of w.
static void q4_k_sources(struct ptx *p, const struct ptx_gemm *g)
{
    PTX_LINES(p, "    mov.u32 %thread, %tid.x;\n"
                 "    // a: rows past the end read the last\n"
                 "    and.b32 %index, %thread, 15;\n"
                 "    shl.b32 %index, %index, 4;\n"
                 "    shr.u32 %row, %thread, 4;\n"
                 "    mov.u32 %fill_a, tile_a;\n"
                 "    mad.lo.u32 %fill_a, %row, 272, %fill_a;\n"
                 "    add.u32 %fill_a, %fill_a, %index;\n"
                 "    ld.param.u64 %pc, [a];\n"
                 "    cvta.to.global.u64 %pc, %pc;\n"
                 "    cvt.u64.u32 %offset, %index;\n"
                 "    add.u64 %pc, %pc, %offset;\n"
                 "    mov.u32 %near, %ctaid.y;\n"
                 "    mad.lo.u32 %row, %near, 32, %row;\n");
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    add.u32 %near, %row, $0;\n"
                 "    min.u32 %near, %near, $1;\n"
                 "    mul.wide.u32 %offset, %near, $2;\n"
                 "    add.u64 %pa$3, %pc, %offset;\n",
                 8 * i, g->m - 1, 4 * g->k, i);
    PTX_FILL(p,
             "    // w: rows past the end read the last\n"
             "    and.b32 %part, %thread, 3;\n"
             "    shr.u32 %row, %thread, 2;\n"
             "    mov.u32 %fill_w, tile_w;\n"
             "    mad.lo.u32 %fill_w, %row, 272, %fill_w;\n"
             "    mad.lo.u32 %fill_w, %part, 32, %fill_w;\n"
             "    mov.u32 %near, %ctaid.x;\n"
             "    mad.lo.u32 %near, %near, 32, %row;\n"
             "    min.u32 %near, %near, $0;\n"
             "    mul.wide.u32 %offset, %near, $1;\n"
             "    ld.param.u64 %pw, [w];\n"
             "    cvta.to.global.u64 %pw, %pw;\n"
             "    add.u64 %pw, %pw, %offset;\n",
             g->n - 1, g->k / Q4_K_WEIGHTS * Q4_K_BYTES);
    PTX_LINES(p, "    // a thread sums rows 2 * (t / 8) and the next, columns t % 8 and every 8th after it\n"
                 "    shr.u32 %row, %thread, 3;\n"
                 "    and.b32 %col, %thread, 7;\n"
                 "    mov.u32 %read_a, tile_a;\n"
                 "    mad.lo.u32 %read_a, %row, 544, %read_a;\n"
                 "    mov.u32 %read_w, tile_w;\n"
                 "    mad.lo.u32 %read_w, %col, 272, %read_w;\n"
                 "    add.u32 %end, %read_a, 256;\n"
                 "    mov.f32 %c00, 0f00000000;\n"
                 "    mov.f32 %c01, 0f00000000;\n"
                 "    mov.f32 %c02, 0f00000000;\n"
                 "    mov.f32 %c03, 0f00000000;\n"
                 "    mov.f32 %c10, 0f00000000;\n"
                 "    mov.f32 %c11, 0f00000000;\n"
                 "    mov.f32 %c12, 0f00000000;\n"
                 "    mov.f32 %c13, 0f00000000;\n");
}

// Unpacks the scales and minima of a block, four to a word: runs 0 to 3 in _lo, 4 to 7 in _hi.
static void q4_k_scales(struct ptx *p)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .b16 %half0, %half1;\n"
                 "    ld.global.v4.u32 {%dd, %scales0, %scales1, %scales2}, [%pw];\n"
                 "    mov.b32 {%half0, %half1}, %dd;\n"
                 "    cvt.f32.f16 %d, %half0;\n"
                 "    cvt.f32.f16 %dmin, %half1;\n"
                 "    }\n"
                 "    and.b32 %scale_lo, %scales0, 0x3f3f3f3f;\n"
                 "    and.b32 %min_lo, %scales1, 0x3f3f3f3f;\n"
                 "    // of the last four, bits 4 and 5 lie above the first four\n"
                 "    shr.u32 %index, %scales0, 2;\n"
                 "    and.b32 %index, %index, 0x30303030;\n"
                 "    and.b32 %scale_hi, %scales2, 0x0f0f0f0f;\n"
                 "    or.b32 %scale_hi, %scale_hi, %index;\n"
                 "    shr.u32 %index, %scales1, 2;\n"
                 "    and.b32 %index, %index, 0x30303030;\n"
                 "    shr.u32 %min_hi, %scales2, 4;\n"
                 "    and.b32 %min_hi, %min_hi, 0x0f0f0f0f;\n"
                 "    or.b32 %min_hi, %min_hi, %index;\n"
                 "    mul.wide.u32 %offset, %part, 8;\n"
                 "    add.u64 %pq, %pw, %offset;\n"
                 "    mov.u32 %pair, 0;\n");
}

// Decode four weights from the low or high nibbles of a word.
//   word   the register of quants, or of scales
//   bit    first bit of a nibble (b0 to b3: of the four nibbles)
//   i      number of the weight's register
//   scale  d * scale of the run
//   less   -dmin * minimum of the run
//   at     offset of the four weights in shared memory
//   into   the register that receives a scale or a minimum
//   factor d or dmin
#define QUANT(word, bit, i, scale, less)                                                                               \
    "    bfe.u32 %quant, " word ", " bit ", 4;\n"                                                                      \
    "    cvt.rn.f32.u32 %w" i ", %quant;\n"                                                                            \
    "    fma.rn.f32 %w" i ", %w" i ", " scale ", " less ";\n"
#define QUANTS(word, b0, b1, b2, b3, scale, less, at)                                                                  \
    QUANT(word, b0, "0", scale, less)                                                                                  \
    QUANT(word, b1, "1", scale, less)                                                                                  \
    QUANT(word, b2, "2", scale, less)                                                                                  \
    QUANT(word, b3, "3", scale, less)                                                                                  \
    "    st.shared.v4.f32 [%fill_w+" at "], {%w0, %w1, %w2, %w3};\n"
#define LOW(word, at) QUANTS(word, "0", "8", "16", "24", "%scale0", "%less0", at)
#define HIGH(word, at) QUANTS(word, "4", "12", "20", "28", "%scale1", "%less1", at)
#define SCALE(word, into, factor)                                                                                      \
    "    bfe.u32 %quant, " word ", %shift, 8;\n"                                                                       \
    "    cvt.rn.f32.u32 " into ", %quant;\n"                                                                           \
    "    mul.rn.f32 " into ", " into ", " factor ";\n"

static void q4_k_weights(struct ptx *p)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .u32 %scales, %mins, %q0, %q1, %quant;\n"
                 "    .reg .f32 %scale0, %scale1, %less0, %less1, %w0, %w1, %w2, %w3;\n"
                 "    ld.global.v2.u32 {%q0, %q1}, [%pq+16];\n"
                 "    // the runs 2 * pair and 2 * pair + 1\n"
                 "    setp.lt.u32 %low, %pair, 2;\n"
                 "    selp.b32 %scales, %scale_lo, %scale_hi, %low;\n"
                 "    selp.b32 %mins, %min_lo, %min_hi, %low;\n"
                 "    and.b32 %shift, %pair, 1;\n"
                 "    shl.b32 %shift, %shift, 4;\n"
                 SCALE("%scales", "%scale0", "%d")
                 SCALE("%mins", "%less0", "%dmin")
                 "    add.u32 %shift, %shift, 8;\n"
                 SCALE("%scales", "%scale1", "%d")
                 SCALE("%mins", "%less1", "%dmin")
                 "    neg.f32 %less0, %less0;\n"
                 "    neg.f32 %less1, %less1;\n");
    PTX_LINES(p, LOW("%q0", "0") LOW("%q1", "16") HIGH("%q0", "128") HIGH("%q1", "144") "    }\n");
}

static void q4_k_rows(struct ptx *p)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .f32 %x0, %x1, %x2, %x3;\n");
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    ld.global.v4.f32 {%x0, %x1, %x2, %x3}, [%pa$0];\n"
                 "    st.shared.v4.f32 [%fill_a+$1], {%x0, %x1, %x2, %x3};\n"
                 "    add.u64 %pa$0, %pa$0, 256;\n",
                 i, 2176 * i);
    PTX_LINES(p, "    }\n"
                 "    bar.sync 0;\n");
}

// Adds the products of 4 k: the thread's 2 rows of a with its column i, whose weights are at offset `from`.
#define COLUMN(i, from)                                                                                                \
    "    ld.shared.v4.f32 {%w0, %w1, %w2, %w3}, [%from_w+" from "];\n"                                                 \
    "    fma.rn.f32 %c0" i ", %x0, %w0, %c0" i ";\n"                                                                   \
    "    fma.rn.f32 %c1" i ", %y0, %w0, %c1" i ";\n"                                                                   \
    "    fma.rn.f32 %c0" i ", %x1, %w1, %c0" i ";\n"                                                                   \
    "    fma.rn.f32 %c1" i ", %y1, %w1, %c1" i ";\n"                                                                   \
    "    fma.rn.f32 %c0" i ", %x2, %w2, %c0" i ";\n"                                                                   \
    "    fma.rn.f32 %c1" i ", %y2, %w2, %c1" i ";\n"                                                                   \
    "    fma.rn.f32 %c0" i ", %x3, %w3, %c0" i ";\n"                                                                   \
    "    fma.rn.f32 %c1" i ", %y3, %w3, %c1" i ";\n"

static void q4_k_product(struct ptx *p)
{
    PTX_LINES(p, "    mov.u32 %from_a, %read_a;\n"
                 "    mov.u32 %from_w, %read_w;\n"
                 "SUM:\n"
                 "    {\n"
                 "    .reg .f32 %x0, %x1, %x2, %x3, %y0, %y1, %y2, %y3, %w0, %w1, %w2, %w3;\n"
                 "    ld.shared.v4.f32 {%x0, %x1, %x2, %x3}, [%from_a];\n"
                 "    ld.shared.v4.f32 {%y0, %y1, %y2, %y3}, [%from_a+272];\n"
                 COLUMN("0", "0")
                 COLUMN("1", "2176")
                 COLUMN("2", "4352")
                 COLUMN("3", "6528")
                 "    }\n"
                 "    add.u32 %from_a, %from_a, 16;\n"
                 "    add.u32 %from_w, %from_w, 16;\n"
                 "    setp.lt.u32 %more, %from_a, %end;\n"
                 "    @%more bra SUM;\n"
                 "    bar.sync 0;\n");
}

static void q4_k_store(struct ptx *p, const struct ptx_gemm *g)
{
    PTX_FILL(p,
             "    shl.b32 %row, %row, 1;\n"
             "    mov.u32 %index, %ctaid.y;\n"
             "    mad.lo.u32 %row, %index, 32, %row;\n"
             "    mov.u32 %index, %ctaid.x;\n"
             "    mad.lo.u32 %col, %index, 32, %col;\n"
             "    ld.param.u64 %pc, [c];\n"
             "    cvta.to.global.u64 %pc, %pc;\n"
             "    mul.wide.u32 %offset, %row, $0;\n"
             "    add.u64 %pc, %pc, %offset;\n"
             "    mul.wide.u32 %offset, %col, 4;\n"
             "    add.u64 %pc, %pc, %offset;\n",
             4 * g->n);
    bool cut = g->m % Q4_K_SIDE || g->n % Q4_K_SIDE;
    for (uint32_t i = 0; i < 2; i++) {
        if (cut)
            PTX_FILL(p,
                     "    add.u32 %index, %row, $0;\n"
                     "    setp.lt.u32 %row_in, %index, $1;\n",
                     i, g->m);
        for (uint32_t j = 0; j < 4; j++) {
            if (cut)
                PTX_FILL(p,
                         "    add.u32 %index, %col, $0;\n"
                         "    setp.lt.u32 %in, %index, $1;\n"
                         "    and.pred %in, %in, %row_in;\n"
                         "    @%in st.global.f32 [%pc+$2], %c$3$4;\n",
                         8 * j, g->n, 4 * g->n * i + 32 * j, i, j);
            else
                PTX_FILL(p, "    st.global.f32 [%pc+$0], %c$1$2;\n", 4 * g->n * i + 32 * j, i, j);
        }
    }
}

int ptx_emit_gemm_q4_k(struct ptx *p, const struct ptx_gemm *g, struct ptx_launch *launch, struct error *err)
{
    if (ptx_check_gemm(g, err))
        return -1;
    if (g->k % Q4_K_WEIGHTS)
        return fail(err, E_GPU, "gemm: rows of Q4_K have a multiple of 256 weights, not %u", g->k);
    q4_k_head(p, g);
    q4_k_sources(p, g);
    PTX_FILL(p,
             "    mov.u32 %blocks, $0;\n"
             "BLOCK:\n",
             g->k / Q4_K_WEIGHTS);
    q4_k_scales(p);
    PTX_LINES(p, "PAIR:\n");
    q4_k_weights(p);
    q4_k_rows(p);
    q4_k_product(p);
    PTX_FILL(p,
             "    add.u64 %pq, %pq, 32;\n"
             "    add.u32 %pair, %pair, 1;\n"
             "    setp.lt.u32 %more, %pair, 4;\n"
             "    @%more bra PAIR;\n"
             "    add.u64 %pw, %pw, $0;\n"
             "    sub.u32 %blocks, %blocks, 1;\n"
             "    setp.ne.u32 %more, %blocks, 0;\n"
             "    @%more bra BLOCK;\n",
             Q4_K_BYTES);
    q4_k_store(p, g);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){.entry = "gemm_q4_k",
                                  .grid = {ptx_tiles(g->n, Q4_K_SIDE), ptx_tiles(g->m, Q4_K_SIDE), 1},
                                  .block = {128, 1, 1}};
    return ptx_finish(p, err);
}
