// Emits products of many rows of float32 activations with weights of any type, as in a prompt, with the same bits as
// the kernel for few rows. ptx_matmul_rows chooses it (class PTX_MANY_ROWS, compute capability 7.5 or later).
//
// The order of the sum is that of emit_matmul.c: 16 partial sums by k % 16 for each output of each row. The registers
// of a multiprocessor hold 2^15 of them, which is 32 outputs by 64 rows of x: this is the work of one CTA. Warp w of
// it accumulates partial sums 2w and 2w + 1, and a thread has 8 outputs by 8 rows. For 16 of k a thread loads 12
// vectors of shared memory and executes 128 fma. A step is 64 of k, double-buffered: while one buffer is multiplied,
// x is copied to the other (by cp.async from sm_80 on), and two warps, different ones in turn, decode a part of the
// weights to it. A weight is decoded once for 64 rows.
//
// A CTA reads from L2 64 rows of floats and 32 rows of weights for 64 * 32 fma: for F16 12.8 operations a byte.
//
// A buffer in shared memory holds the weights as [k][output], then x as [row][k] in rows of 256 bytes. The 16-byte
// chunks of x are swizzled: chunk c of row r is stored at c ^ (r % 8), so that 8 rows are read without bank
// conflicts.
#include "kernels/ptx/emit_matmul_parts.h"
#include "kernels/ptx/emit_type.h"

enum { STEP = 64, WARPS = 8, LANES_K = 16, BUFFER = 24576, X = 8192, ROUNDS = 4 };

// ---- addresses

static void head(struct ptx *p, const struct ptx_matmul *m)
{
    if (m->target >= 80)
        ptx_header(p, 70, 80);
    else
        ptx_header(p, 63, 75);
    ptx_type_tables(p, m->type, m->node);
    ptx_matmul_entry(p, m, WARPS);
    PTX_LINES(p, PTX_MANY_REGS
                 "    .reg .pred %whole<1>, %there, %all, %bring;\n"
                 "    .reg .u32 %row<1>, %token, %quarter, %step, %turns, %part, %from_buffer, %to_buffer;\n"
                 "    .reg .u32 %put, %put_w, %put_x0, %put_x1, %to_x0, %to_x1;\n"
                 "    .reg .u32 %take, %take_w, %take_x0, %take_x1, %at_w, %at_x0, %at_x1;\n"
                 "    .reg .u64 %unit, %chunk, %from;\n"
                 "    .reg .f32 %even<64>, %odd<64>;\n"
                 "    .shared .align 16 .b8 step[49152];\n");
}

// What a thread copies: of x, chunks %quarter, %quarter + 4, + 8 and + 12 of row tid / 4; of the weights, parts warp,
// warp + 8, and so on.
static void sources(struct ptx *p, const struct ptx_matmul *m)
{
    ptx_matmul_many_group(p, m);
    ptx_matmul_many_weights(p, m);
    PTX_FILL(p,
             "    mad.wide.u32 %w_tile, %tile, $0, %w_tile;\n"
             "    mov.u32 %index, %tid.x;\n"
             "    shr.u32 %token, %index, 2;\n"
             "    and.b32 %quarter, %index, 3;\n",
             (uint32_t)tile_bytes(m->type, m->n_in));
    ptx_matmul_many_row(p, m, "%token");
    PTX_FILL(p,
             "    mad.wide.u32 %from, %quarter, 16, %px0;\n"
             "    mov.u32 %put, step;\n"
             "    mad.lo.u32 %put_x0, %token, 256, %put;\n"
             "    and.b32 %index, %token, 7;\n"
             "    xor.b32 %index, %index, %quarter;\n"
             "    xor.b32 %row, %index, 4;\n"
             "    mad.lo.u32 %put_x1, %row, 16, %put_x0;\n"
             "    mad.lo.u32 %put_x0, %index, 16, %put_x0;\n"
             "    mad.lo.u32 %put_w, %lane, 4, %put;\n"
             "    and.b32 %index, %warp, 1;\n"
             "    mad.lo.u32 %put_w, %index, $0, %put_w;\n",
             128 * TILE_PART);
    ptx_matmul_first_unit(p, m);
}

// What a thread multiplies: outputs 4 (lane % 4) to + 3 and the four 16 further; rows lane / 4, + 8, and so on; of k,
// 2 * warp and the next.
static void places(struct ptx *p)
{
    PTX_LINES(p, "    and.b32 %place, %lane, 3;\n"
                 "    shr.u32 %token, %lane, 2;\n"
                 "    mad.lo.u32 %take_w, %warp, 256, %put;\n"
                 "    mad.lo.u32 %take_w, %place, 16, %take_w;\n"
                 "    mad.lo.u32 %take_x0, %token, 256, %put;\n"
                 "    and.b32 %index, %warp, 1;\n"
                 "    mad.lo.u32 %take_x0, %index, 8, %take_x0;\n"
                 "    shr.u32 %index, %warp, 1;\n"
                 "    xor.b32 %index, %index, %token;\n"
                 "    xor.b32 %row, %index, 4;\n"
                 "    mad.lo.u32 %take_x1, %row, 16, %take_x0;\n"
                 "    mad.lo.u32 %take_x0, %index, 16, %take_x0;\n");
    for (uint32_t i = 0; i < 64; i++)
        PTX_FILL(p,
                 "    mov.f32 %even$0, 0f00000000;\n"
                 "    mov.f32 %odd$0, 0f00000000;\n",
                 i);
}

// ---- to shared memory

static void put_shared(const struct ptx_part *part, uint32_t first)
{
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(part->p, "    st.shared.f32 [%put+$0], %v$1;\n", 128 * (first + i), i);
}

// Copies chunk j of the thread's four: directly to shared memory, or to registers before sm_80. In a cut last step
// there are only two.
static void bring_chunk(struct ptx *p, const struct ptx_matmul *m, uint32_t j)
{
    if (m->n_in % STEP && j >= 2)
        PTX_LINES(p, "    @%all");
    else
        PTX_LINES(p, "   ");
    if (m->target >= 80)
        PTX_FILL(p, " cp.async.cg.shared.global [%to_x$0+$1], [%from+$2], 16;\n", j % 2, X + j / 2 * 128, 64 * j);
    else
        PTX_FILL(p, " ld.global.v4.b32 {%c$0, %c$1, %c$2, %c$3}, [%from+$4];\n", 4 * j, 4 * j + 1, 4 * j + 2, 4 * j + 3,
                 64 * j);
}

// Before sm_80, after the products: stores the chunks in registers to shared memory.
static void put_chunks(struct ptx *p, const struct ptx_matmul *m)
{
    if (m->n_in % STEP)
        PTX_LINES(p, "    and.pred %all, %all, %bring;\n");
    for (uint32_t j = 0; j < 4; j++) {
        if (m->n_in % STEP && j >= 2)
            PTX_LINES(p, "    @%all");
        else
            PTX_LINES(p, "    @%bring");
        PTX_FILL(p, " st.shared.v4.b32 [%to_x$0+$1], {%c$2, %c$3, %c$4, %c$5};\n", j % 2, X + j / 2 * 128, 4 * j,
                 4 * j + 1, 4 * j + 2, 4 * j + 3);
    }
}

// Dequantises parts 2 * %step and the next one, if the row has them, by the warps (of 8) that have these numbers.
static void bring_weights(struct ptx *p, const struct ptx_matmul *m)
{
    const struct ptx_part part = {.p = p, .node = m->node, .type = m->type, .put = put_shared};
    PTX_LINES(p, "    and.b32 %index, %step, 3;\n"
                 "    shr.u32 %row, %warp, 1;\n"
                 "    setp.ne.u32 %in, %index, %row;\n"
                 "    @%in bra BROUGHT; // 3 of 4 times\n");
    if (m->n_in % STEP)
        PTX_LINES(p, "    and.b32 %index, %warp, 1;\n"
                     "    setp.ne.u32 %in, %index, 0;\n"
                     "    not.pred %there, %all;\n"
                     "    and.pred %in, %in, %there;\n"
                     "    @%in bra BROUGHT;\n");
    PTX_LINES(p, "    add.u32 %put, %put_w, %to_buffer;\n"
                 "    mad.wide.u32 %chunk, %lane, 16, %unit;\n");
    ptx_type_part(&part);
    PTX_FILL(p, "    add.u64 %unit, %unit, $0;\n", 256 / tile_unit_weights(m->type) * 32 * tile_unit_bytes(m->type));
}

static void bring(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_FILL(p,
             "    // step %step of x and weights, if there is one, to the buffer that is not read\n"
             "    setp.lt.u32 %bring, %step, $0;\n"
             "    setp.lt.u32 %all, %step, $1;\n"
             "    add.u32 %to_x0, %put_x0, %to_buffer;\n"
             "    add.u32 %to_x1, %put_x1, %to_buffer;\n"
             "    @!%bring bra BROUGHT;\n",
             ptx_tiles(m->n_in, STEP), m->n_in / STEP);
    for (uint32_t j = 0; j < 4; j++)
        bring_chunk(p, m, j);
    PTX_FILL(p, "    add.u64 %from, %from, $0;\n", 4 * STEP);
    bring_weights(p, m);
    PTX_LINES(p, "BROUGHT:\n");
}

// ---- products

// The products of 16 k: of the two halves of 32 k, the s-th.
static void products_16(struct ptx *p, uint32_t s)
{
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    ld.shared.v4.f32 {%w$0, %w$1, %w$2, %w$3}, [%at_w+$4];\n", 4 * i, 4 * i + 1, 4 * i + 2,
                 4 * i + 3, 2048 * s + i / 2 * 128 + i % 2 * 64);
    for (uint32_t r = 0; r < 8; r++) {
        PTX_FILL(p, "    ld.shared.v2.f32 {%x0, %x1}, [%at_x$0+$1];\n", s, X + 2048 * r);
        for (uint32_t o = 0; o < 8; o++)
            PTX_FILL(p,
                     "    fma.rn.f32 %even$0, %w$1, %x0, %even$0;\n"
                     "    fma.rn.f32 %odd$0, %w$2, %x1, %odd$0;\n",
                     8 * r + o, o, 8 + o);
    }
}

// The products of the step before %step, from %from_buffer: two iterations of 32 k, or one in a cut last step.
static void products(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_LINES(p, "    setp.eq.u32 %in, %step, 0;\n"
                 "    @%in bra MULTIPLIED;\n"
                 "    mov.u32 %turns, 2;\n");
    if (m->n_in % STEP)
        PTX_FILL(p,
                 "    setp.gt.u32 %in, %step, $0;\n"
                 "    selp.b32 %turns, 1, %turns, %in;\n",
                 m->n_in / STEP);
    PTX_LINES(p, "    add.u32 %at_w, %take_w, %from_buffer;\n"
                 "    add.u32 %at_x0, %take_x0, %from_buffer;\n"
                 "    add.u32 %at_x1, %take_x1, %from_buffer;\n"
                 "    {\n"
                 "    .reg .f32 %w<16>, %x0, %x1;\n"
                 "PRODUCTS: // 2 turns\n"
                 "    .pragma \"nounroll\";\n");
    products_16(p, 0);
    products_16(p, 1);
    PTX_LINES(p, "    add.u32 %at_w, %at_w, 4096;\n"
                 "    add.u32 %at_x0, %at_x0, 128;\n"
                 "    add.u32 %at_x1, %at_x1, 128;\n"
                 "    sub.u32 %turns, %turns, 1;\n"
                 "    setp.ne.u32 %more, %turns, 0;\n"
                 "    @%more bra PRODUCTS;\n"
                 "    }\n"
                 "MULTIPLIED:\n");
}

static void steps(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_FILL(p,
             "    mov.u32 %step, 0;\n"
             "    mov.u32 %to_buffer, 0;\n"
             "    mov.u32 %from_buffer, $0;\n"
             "    {\n"
             "    .reg .b32 %c<16>;\n"
             "STEP: // $1 products a turn\n",
             BUFFER, STEP * PTX_TILE_ROWS * PTX_MANY_ROWS / (32 * WARPS));
    bring(p, m);
    products(p, m);
    if (m->target >= 80)
        PTX_LINES(p, "    cp.async.wait_all;\n");
    else
        put_chunks(p, m);
    PTX_FILL(p,
             "    bar.sync 0;\n"
             "    mov.u32 %from_buffer, %to_buffer;\n"
             "    sub.u32 %to_buffer, $0, %to_buffer;\n"
             "    add.u32 %step, %step, 1;\n"
             "    setp.le.u32 %more, %step, $1;\n"
             "    @%more bra STEP;\n"
             "    }\n",
             BUFFER, ptx_tiles(m->n_in, STEP));
}

// ---- the end: 16 rows at a time, as [partial sum][row][output] in shared memory

static void share_sums(struct ptx *p, uint32_t round)
{
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t row = i / 4, half = i % 2, at = 8 * (2 * round + row) + 4 * half;
        uint32_t to = i / 2 % 2 * 2048 + row * 1024 + half * 64;
        if (i / 2 % 2)
            PTX_FILL(p, "    st.shared.v4.f32 [%put+$0], {%odd$1, %odd$2, %odd$3, %odd$4};\n", to, at, at + 1, at + 2,
                     at + 3);
        else
            PTX_FILL(p, "    st.shared.v4.f32 [%put+$0], {%even$1, %even$2, %even$3, %even$4};\n", to, at, at + 1,
                     at + 2, at + 3);
    }
    PTX_LINES(p, "    bar.sync 0;\n");
}

// Adds the 16 partial sums of one output by halves, to %l0.
static void add_lanes(struct ptx *p, uint32_t at)
{
    for (uint32_t i = 0; i < LANES_K; i++)
        PTX_FILL(p, "    ld.shared.f32 %l$0, [%take+$1];\n", i, at + 2048 * i);
    for (uint32_t half = LANES_K / 2; half; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            PTX_FILL(p, "    add.rn.f32 %l$0, %l$0, %l$1;\n", i, i + half);
}

// Stores output %output of the CTA's row `at` + warp, if both are within the matrix.
static void store(struct ptx *p, const struct ptx_matmul *m, uint32_t at)
{
    PTX_FILL(p, "    add.u32 %index, %warp, $0;\n", at);
    ptx_matmul_many_output(p, m, 0);
    PTX_LINES(p, "    and.pred %whole0, %whole0, %there;\n");
    if (m->scale)
        PTX_LINES(p, "    mul.rn.f32 %l0, %l0, %factor;\n");
    if (m->bias)
        PTX_LINES(p, "    add.rn.f32 %l0, %l0, %bias;\n");
    if (m->residual)
        PTX_FILL(p,
                 "    mad.wide.u32 %pointer, %row0, $0, %residual;\n"
                 "    @%whole0 ld.global.f32 %l1, [%pointer];\n"
                 "    @%whole0 add.rn.f32 %l0, %l0, %l1;\n",
                 m->residual_stride);
    PTX_LINES(p, "    mad.wide.u32 %pointer, %row0, ");
    ptx_matmul_put_stride(p, m, m->n_used ? 4 * m->n_out : m->y_stride);
    PTX_LINES(p, ", %y_out;\n"
                 "    @%whole0 st.global.f32 [%pointer], %l0;\n");
}

// Sets the addresses at which sums are exchanged, and what the stores need. A lane beyond the outputs reads nothing.
static void end_places(struct ptx *p, const struct ptx_matmul *m)
{
    if (m->n_sections)
        ptx_matmul_find_section(p, m);
    PTX_LINES(p,
             "    .reg .f32 %l<16>, %bias, %factor;\n"
             "    .reg .u64 %y_out, %residual;\n"
             "    mov.u32 %take, step;\n"
             "    mad.lo.u32 %put, %warp, 4096, %take;\n"
             "    mad.lo.u32 %put, %token, 128, %put;\n"
             "    mad.lo.u32 %put, %place, 16, %put;\n"
             "    mad.lo.u32 %take, %warp, 128, %take;\n"
             "    mad.lo.u32 %take, %lane, 4, %take;\n"
             "    mad.lo.u32 %output, %tile, 32, %lane;\n"
             "    setp.lt.u32 %there, %output, ");
    ptx_matmul_put_n_out(p, m);
    PTX_LINES(p, ";\n");
    ptx_matmul_address(p, m, "%y_out", "y");
    PTX_LINES(p, "    mad.wide.u32 %y_out, %output, 4, %y_out;\n");
    if (m->scale)
        PTX_LINES(p, PTX_ADDRESS_OF("%pointer", "scale")
                     "    mad.wide.u32 %pointer, %expert, 4, %pointer;\n"
                     "    ld.global.f32 %factor, [%pointer];\n");
    if (m->bias) {
        PTX_LINES(p, "    mov.f32 %bias, 0f00000000;\n");
        ptx_matmul_address(p, m, "%pointer", "bias");
        PTX_LINES(p, "    mad.wide.u32 %pointer, %output, 4, %pointer;\n");
        ptx_matmul_expert_bias(p, m);
        PTX_LINES(p, "    @%there ld.global.f32 %bias, [%pointer];\n");
    }
    if (m->residual)
        PTX_LINES(p, PTX_ADDRESS_OF("%residual", "residual") "    mad.wide.u32 %residual, %output, 4, %residual;\n");
}

void ptx_matmul_tiled(struct ptx *p, const struct ptx_matmul *m)
{
    head(p, m);
    sources(p, m);
    places(p);
    steps(p, m);
    end_places(p, m);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (round)
            PTX_LINES(p, "    bar.sync 0;\n");
        share_sums(p, round);
        for (uint32_t half = 0; half < 2; half++) {
            add_lanes(p, 1024 * half);
            store(p, m, 16 * round + 8 * half);
        }
    }
    PTX_LINES(p, "    ret;\n"
                 "}\n");
}
