// Emits products of float32 activations with weights of any type, for few rows (classes of 1, 2, 4 and 8), and the
// code that all products share: checks of sizes, experts, the epilogue.
//
// The naive loop: y[r][o] = sum over k of w[o][k] * x[r][k]. The order of the sum is that of the CPU
// (kernels/cpu/kernels.h): 16 partial sums, of which number k % 16 accumulates k by one fma after another, added by
// halves at the end. A CTA of 8 warps computes the 32 outputs of a tile for up to 8 rows of x; lane i of each warp
// computes output i. In each step of 256 of k,
//   - warp w decodes part w, 32 weights of each output, to shared memory as [k][output];
//   - warp w accumulates partial sums 2w and 2w + 1: k = 16 s + 2w and 16 s + 2w + 1, for each s.
// Thus no two threads accumulate into the same sum, no shuffles are needed, and shared memory has no bank conflicts.
//
// ptx_matmul_rows chooses the class. 8-bit activations of 5 to 64 rows (SOME_UP_TO) go to classes of 8, 16 and 32 rows on
// tensor cores, emit_matmul_rows.c: up to there the kernel for many rows has too few CTAs for a card. From 24 rows of
// floats on (MANY_FROM), and for experts with at least 4 rows each on average (GROUP_FROM), it chooses PTX_MANY_ROWS on
// GPUs of compute capability 7.5 or later: emit_matmul_tiled.c, with the same order of sums, or emit_matmul_mma.c for
// 8-bit activations. Float32 activations do not use tensor cores, because these do not sum in this order, and a prompt
// must have the bits of its tokens one by one. Weights of 16 bits take activations of 16 bits instead
// (emit_matmul_half.c), for one row and for many, from compute capability 8.0 on; they come here where the options ask for
// exact results.
#include "kernels/ptx/emit_fragment.h"
#include "kernels/ptx/emit_matmul_parts.h"

enum {
    STEP = 256,
    WARPS = 8,
    LANES_K = 16,
    MANY_FROM = 24,
    HALVES_FROM = 9,
    SOME_UP_TO = 64,
    GROUP_FROM = 4,
    MANY_OUTPUTS = 128, // of a CTA on tensor cores
};

// Classes of experts with activations of 8 bits, by the average number of places of an expert, in quarters of a place; a
// class serves up to `quarters`. With less than three quarters few experts have a second place, and a place has a CTA. The
// classes of 8, 16 and 64 execute 3.6, 4.6 and 9.1 instructions for a weight of Q4_K, that of 8 with twice as many warps
// at a time as the others. That of 32 has half as many, and is never the best. The numbers of places of experts vary about
// their average; on paper these bounds have the least instructions at full occupancy.
static const struct {
    uint32_t quarters, rows;
} groups_of_8_bits[] = {{2, 1}, {43, 8}, {95, 16}, {UINT32_MAX, PTX_MANY_ROWS}};

// ---- sizes

// Floats in tiles are copied in chunks of 16 bytes and multiplied in steps of 32.
static bool in_tiles(const struct ptx_matmul *m)
{
    return m->q8 || m->halves || (m->n_in % 32 == 0 && (m->x_stride | m->x_part) % 16 == 0);
}

// Whether classes of 8, 16 and 32 rows run on tensor cores.
static bool on_tensor_cores(const struct ptx_matmul *m)
{
    return m->q8 && m->target >= 75;
}

// Whether the class PTX_WIDE_ROWS serves the product, if there is enough shared memory. Q2_K and Q3_K have cheaper products
// in the class PTX_MANY_ROWS, where scales are multiplied into their bytes. From sm_101 on ptxas spills registers with
// Q6_K and MXFP4, and for sm_103 it makes several instructions of each product.
static bool can_be_wide(const struct ptx_matmul *m)
{
    const bool cheaper = m->type == DT_Q2_K || m->type == DT_Q3_K,
               spills = (m->type == DT_Q6_K || m->type == DT_MXFP4) && m->target > 100;
    return m->q8 && ptx_fragment_takes(m->type) && !m->n_used && m->target >= 80 && m->target != 103 && !cheaper &&
           !spills;
}

bool ptx_has_class(const struct ptx_matmul *m, uint32_t rows, uint32_t shared)
{
    switch (rows) {
    case 1:
        return true;
    case 2:
    case 4:
        return !m->n_used;
    case 8:
        return !m->n_used || on_tensor_cores(m);
    case 16:
    case 32:
        return on_tensor_cores(m);
    case PTX_MANY_ROWS:
        return in_tiles(m) && m->target >= 75;
    case PTX_WIDE_ROWS:
        return can_be_wide(m) && ptx_matmul_wide_bytes(m) <= shared;
    default:
        return false;
    }
}

// Whether the classes of 8, 16 and 32 rows take their weights by a ring. From sm_101 on ptxas spills registers with Q2_K.
static bool by_ring(const struct ptx_matmul *m)
{
    return on_tensor_cores(m) && ptx_fragment_takes(m->type) && !m->n_used && m->rows >= 8 && m->rows <= 32 &&
           m->target >= 80 && ptx_bytes_of(m->type)->scales != PTX_SCALE_FLOAT &&
           !(m->type == DT_Q2_K && m->target > 100) &&
           ptx_matmul_ring_bytes(m) + PTX_SHARED_RESERVED <= ptx_shared_of(m->target);
}

static int check(const struct ptx_matmul *m, struct error *err)
{
    if (tile_check("matmul", m->type, m->n_in, err))
        return -1;
    if (!m->n_out || m->n_out > PTX_OUTPUTS_MAX)
        return fail(err, E_GPU, "matmul: %u outputs: 1 to %d are possible", m->n_out, PTX_OUTPUTS_MAX);
    bool few = m->rows == 1 || m->rows == 2 || m->rows == 4 || m->rows == 8, some = m->rows == 16 || m->rows == 32;
    bool wide = m->rows == PTX_WIDE_ROWS && can_be_wide(m);
    if (!few && m->rows != PTX_MANY_ROWS && !(some && on_tensor_cores(m)) && !wide)
        return fail(err, E_GPU, "matmul: a class of %u rows does not exist here", m->rows);
    if (!few && !in_tiles(m))
        return fail(err, E_GPU, "matmul: %d rows of %u floats, %u bytes apart", PTX_MANY_ROWS, m->n_in, m->x_stride);
    if (m->rows == PTX_MANY_ROWS && m->target < 75)
        return fail(err, E_GPU, "matmul: many rows for compute capability %u: 75 is the least", m->target);
    if (m->q8 && !ptx_takes_q8(m->type))
        return fail(err, E_GPU, "matmul: %s weights take no activations in 8 bits", dtype_info[m->type].name);
    if (m->halves && (m->q8 || m->x_shared || !ptx_takes_halves(m->type, m->n_in, m->target)))
        return fail(err, E_GPU, "matmul: %s weights by %u, no activations in 16 bits for compute capability %u",
                    dtype_info[m->type].name, m->n_in, m->target);
    uint32_t strides = m->x_stride | m->x_part;
    if ((strides | m->y_stride | m->residual_stride | m->ids_stride) % 4 || ((m->q8 || m->halves) && strides % 16))
        return fail(err, E_GPU, "matmul: rows that are not aligned");
    bool grouped = (m->rows == PTX_MANY_ROWS || (m->rows >= PTX_GROUP_LEAST && on_tensor_cores(m))) &&
                   m->n_experts <= PTX_GROUP_EXPERTS;
    if (m->n_used && (!(m->rows == 1 || grouped) || !m->n_experts || m->residual))
        return fail(err, E_GPU, "matmul: experts take rows one by one or in groups, without residual");
    if (m->n_used && grouped &&
        (m->y_stride != 4 * m->n_used * m->n_out || (m->x_part && m->x_stride != m->n_used * m->x_part)))
        return fail(err, E_GPU, "matmul: groups of places that have gaps between them");
    if (m->scale && !m->n_used)
        return fail(err, E_GPU, "matmul: scales belong to experts");
    return ptx_matmul_check_sections(m, err);
}

// The class of experts: that of groups if they have enough rows each, on average, that sorting the rows into groups pays.
static uint32_t experts_class(const struct ptx_matmul *m, uint32_t n_rows, uint32_t target)
{
    const uint64_t places = (uint64_t)n_rows * m->n_used;
    if (!in_tiles(m) || target < 75 || m->n_experts > PTX_GROUP_EXPERTS)
        return 1;
    if (!m->q8)
        return places >= (uint64_t)GROUP_FROM * m->n_experts ? PTX_MANY_ROWS : 1;
    uint32_t i = 0;
    while (4 * places > (uint64_t)groups_of_8_bits[i].quarters * m->n_experts)
        i++;
    return groups_of_8_bits[i].rows;
}

uint32_t ptx_matmul_rows(const struct ptx_matmul *m, uint32_t n_rows, uint32_t target)
{
    if (m->n_used)
        return experts_class(m, n_rows, target);
    if (n_rows <= 1)
        return 1;
    if (m->q8 && target >= 75 && n_rows > 4 && n_rows <= SOME_UP_TO)
        return n_rows <= 8 ? 8 : n_rows <= 16 ? 16 : 32;
    if (in_tiles(m) && target >= 75 && n_rows >= (m->halves ? HALVES_FROM : MANY_FROM))
        return PTX_MANY_ROWS;
    return n_rows <= 2 ? 2 : n_rows <= 4 ? 4 : 8;
}

// ---- the beginning and the end of every kernel

// CTAs that should fit on a multiprocessor: two in the class PTX_MANY_ROWS, which hide each other's loads. With types whose
// runs of 16 have scales some registers would spill from sm_100 on, with floats before sm_80 as well; the K-quants of 2 and 3
// bits have their scales in the bytes.
static uint32_t ctas_of(const struct ptx_matmul *m)
{
    if (m->rows != PTX_MANY_ROWS || (!m->q8 && !m->halves))
        return 1;
    const enum ptx_scale s = m->q8 ? ptx_bytes_of(m->type)->scales : PTX_SCALE_NONE;
    const bool integers = s == PTX_SCALE_16 && m->type != DT_Q2_K && m->type != DT_Q3_K;
    return (integers && m->target >= 100) || (s == PTX_SCALE_FLOAT_16 && (m->target < 80 || m->target >= 100)) ? 1 : 2;
}

uint32_t ptx_matmul_outputs(const struct ptx_matmul *m)
{
    const bool many = m->rows >= PTX_MANY_ROWS && (m->q8 || m->halves);
    return many ? MANY_OUTPUTS : PTX_TILE_ROWS;
}

void ptx_matmul_entry(struct ptx *p, const struct ptx_matmul *m, uint32_t warps)
{
    PTX_FILL(p, "\n// node $0: ", m->node);
    ptx_word(p, dtype_info[m->type].name);
    PTX_FILL(p, " weights: y[.][$0] = x[.][$1] * w[$0][$1]', $2 rows a CTA, x in ", m->n_out, m->n_in, m->rows);
    ptx_word(p, m->q8 ? "8 bits" : m->halves ? "16 bits" : "f32");
    for (uint32_t i = 0; i < m->n_sections; i++)
        PTX_FILL(p, "; y$0 of $1", i, m->sections[i].n_out);
    PTX_FILL(p,
             "\n"
             ".visible .entry matmul_$0(\n"
             "    .param .u64 x,\n"
             "    .param .u64 w,\n"
             "    .param .u64 y,\n"
             "    .param .u64 bias,\n"
             "    .param .u64 residual,\n"
             "    .param .u64 ids,\n"
             "    .param .u64 scale,\n"
             "    .param .u32 n_rows",
             m->node);
    ptx_matmul_section_params(p, m);
    PTX_FILL(p,
             ")\n"
             ".maxntid $0, 1, 1\n"
             ".minnctapersm $2\n"
             "{\n"
             "    .reg .pred %in, %row_in, %more;\n"
             "    .reg .u32 %lane, %warp, %tile, %group, %rows, %row, %place, %expert, %index, %output;\n"
             "    .reg .u64 %w_tile, %offset, %pointer;\n"
             "    .reg .u64 %px<$1>;\n",
             32 * warps, MIN(m->rows, 8u), ctas_of(m));
    ptx_matmul_section_regs(p, m);
    PTX_LINES(p, "    mov.u32 %index, %tid.x;\n"
                 "    and.b32 %lane, %index, 31;\n"
                 "    shr.u32 %warp, %index, 5;\n");
    ptx_matmul_find_section(p, m);
    PTX_LINES(p, "    mov.u32 %group, %ctaid.y;\n"
                 "    ld.param.u32 %rows, [n_rows];\n");
    ptx_matmul_address(p, m, "%w_tile", "w");
    PTX_LINES(p, PTX_ADDRESS_OF("%px0", "x"));
}

// Adds %expert times the bytes of a matrix to %w_tile. The product may exceed 32 bits.
static void expert_matrix(struct ptx *p, const struct ptx_matmul *m)
{
    uint64_t matrix = tile_bytes(m->type, m->n_in) * ptx_tiles(m->n_out, PTX_TILE_ROWS);
    PTX_FILL(p,
             "    mad.wide.u32 %w_tile, %expert, $0, %w_tile;\n"
             "    mul.wide.u32 %offset, %expert, $1;\n"
             "    shl.b64 %offset, %offset, 32;\n"
             "    add.u64 %w_tile, %w_tile, %offset;\n",
             (uint32_t)matrix, (uint32_t)(matrix >> 32));
}

// Sets the CTA's row and place, its expert, and the address of the expert's matrix. A CTA without an expert ends
// here.
static void expert_sources(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_FILL(p,
             "    // a place of a row, and the expert that it names\n"
             "    div.u32 %row, %group, $0;\n"
             "    mul.lo.u32 %place, %row, $0;\n"
             "    sub.u32 %place, %group, %place;\n"
             "    setp.ge.u32 %in, %row, %rows;\n"
             "    @%in ret;\n"
             "    ld.param.u64 %pointer, [ids];\n"
             "    cvta.to.global.u64 %pointer, %pointer;\n"
             "    mad.wide.u32 %pointer, %row, $1, %pointer;\n"
             "    mad.wide.u32 %pointer, %place, 4, %pointer;\n"
             "    ld.global.u32 %expert, [%pointer];\n"
             "    setp.ge.u32 %in, %expert, $2;\n"
             "    @%in ret;\n"
             "    mad.wide.u32 %px0, %row, $3, %px0;\n"
             "    mad.wide.u32 %px0, %place, $4, %px0;\n",
             m->n_used, m->ids_stride, m->n_experts, m->x_stride, m->x_part);
    expert_matrix(p, m);
}

void ptx_matmul_sources(struct ptx *p, const struct ptx_matmul *m)
{
    if (m->n_used) {
        expert_sources(p, m);
    } else {
        PTX_FILL(p,
                 "    // rows past the end read the last\n"
                 "    sub.u32 %rows, %rows, 1;\n"
                 "    mul.lo.u32 %row, %group, $0;\n",
                 m->rows);
        for (uint32_t r = m->rows; r--;)
            PTX_FILL(p,
                     "    add.u32 %index, %row, $0;\n"
                     "    min.u32 %index, %index, %rows;\n"
                     "    mad.wide.u32 %px$0, %index, $1, %px0;\n",
                     r, m->x_stride);
        PTX_LINES(p, "    add.u32 %rows, %rows, 1;\n");
    }
    uint64_t tile = tile_bytes(m->type, m->n_in);
    PTX_FILL(p, "    mad.wide.u32 %w_tile, %tile, $0, %w_tile;\n", (uint32_t)tile);
}

void ptx_matmul_many_group(struct ptx *p, const struct ptx_matmul *m)
{
    if (!m->n_used) {
        PTX_FILL(p,
                 "    mov.u32 %group, %ctaid.y;\n"
                 "    mul.lo.u32 %first, %group, $0;\n"
                 "    ld.param.u32 %rows, [n_rows];\n",
                 m->rows);
        return;
    }
    PTX_LINES(p, "    // the group, if there are so many\n"
                 "    mov.u32 %group, %ctaid.y;\n" PTX_ADDRESS_OF("%list", "ids") //
              "    ld.global.u32 %rows, [%list];\n"
              "    setp.ge.u32 %in, %group, %rows;\n"
              "    @%in ret;\n"
              "    mad.wide.u32 %pointer, %group, 16, %list;\n"
              "    ld.global.v4.u32 {%expert, %first, %rows, %index}, [%pointer+16];\n"
              "    mad.wide.u32 %list, %first, 4, %list;\n"
              "    mov.u32 %first, 0;\n");
}

void ptx_matmul_many_weights(struct ptx *p, const struct ptx_matmul *m)
{
    if (m->n_used)
        expert_matrix(p, m);
}

void ptx_matmul_many_row(struct ptx *p, const struct ptx_matmul *m, const char *at)
{
    PTX_LINES(p, "    add.u32 %index, %first, ");
    ptx_word(p, at);
    PTX_LINES(p, ";\n"
                 "    sub.u32 %row, %rows, 1;\n"
                 "    min.u32 %index, %index, %row;\n");
    if (m->n_used)
        PTX_LINES(p, "    mad.wide.u32 %pointer, %index, 4, %list;\n"
                     "    ld.global.u32 %index, [%pointer];\n");
    if (m->n_used && !m->x_part)
        PTX_FILL(p, "    div.u32 %index, %index, $0;\n", m->n_used);
    PTX_FILL(p, "    mad.wide.u32 %px0, %index, $0, %px0;\n", m->n_used && m->x_part ? m->x_part : m->x_stride);
}

void ptx_matmul_many_output(struct ptx *p, const struct ptx_matmul *m, uint32_t i)
{
    PTX_FILL(p,
             "    add.u32 %row$0, %first, %index;\n"
             "    setp.lt.u32 %whole$0, %row$0, %rows;\n",
             i);
    if (m->n_used)
        PTX_FILL(p,
                 "    mad.wide.u32 %pointer, %row$0, 4, %list;\n"
                 "    @%whole$0 ld.global.u32 %row$0, [%pointer];\n",
                 i);
}

void ptx_matmul_expert_bias(struct ptx *p, const struct ptx_matmul *m)
{
    if (m->n_used)
        PTX_FILL(p, "    mad.wide.u32 %pointer, %expert, $0, %pointer;\n", 4 * m->n_out);
}

void ptx_matmul_store(struct ptx *p, const struct ptx_matmul *m)
{
    if (m->scale)
        PTX_LINES(p, "    ld.param.u64 %pointer, [scale];\n"
                     "    cvta.to.global.u64 %pointer, %pointer;\n"
                     "    mad.wide.u32 %pointer, %expert, 4, %pointer;\n"
                     "    ld.global.f32 %term, [%pointer];\n"
                     "    mul.rn.f32 %sum, %sum, %term;\n");
    if (m->bias) {
        ptx_matmul_address(p, m, "%pointer", "bias");
        PTX_LINES(p, "    mad.wide.u32 %pointer, %output, 4, %pointer;\n");
        ptx_matmul_expert_bias(p, m);
        PTX_LINES(p, "    ld.global.f32 %term, [%pointer];\n"
                     "    add.rn.f32 %sum, %sum, %term;\n");
    }
    if (m->residual)
        PTX_FILL(p,
                 "    ld.param.u64 %pointer, [residual];\n"
                 "    cvta.to.global.u64 %pointer, %pointer;\n"
                 "    mad.wide.u32 %pointer, %row, $0, %pointer;\n"
                 "    mad.wide.u32 %pointer, %output, 4, %pointer;\n"
                 "    ld.global.f32 %term, [%pointer];\n"
                 "    add.rn.f32 %sum, %sum, %term;\n",
                 m->residual_stride);
    ptx_matmul_address(p, m, "%pointer", "y");
    PTX_LINES(p, "    mad.wide.u32 %pointer, %row, ");
    ptx_matmul_put_stride(p, m, m->y_stride);
    PTX_LINES(p, ", %pointer;\n");
    if (m->n_used)
        PTX_FILL(p, "    mad.wide.u32 %pointer, %place, $0, %pointer;\n", 4 * m->n_out);
    PTX_LINES(p, "    mad.wide.u32 %pointer, %output, 4, %pointer;\n"
                 "    st.global.f32 [%pointer], %sum;\n");
}

// Warp r ends row r of the CTA: it computes %sum and stores it.
void ptx_matmul_end(struct ptx *p, const struct ptx_matmul *m,
                    void (*make_sum)(struct ptx *, const struct ptx_matmul *))
{
    PTX_FILL(p,
             "    // warp r has row r, a lane an output\n"
             "    .reg .f32 %sum, %term;\n"
             "    setp.ge.u32 %in, %warp, $0;\n"
             "    @%in ret;\n",
             m->rows);
    if (m->n_sections)
        ptx_matmul_find_section(p, m);
    PTX_LINES(p, "    mad.lo.u32 %output, %tile, 32, %lane;\n");
    if (!m->n_used)
        PTX_FILL(p,
                 "    mad.lo.u32 %row, %group, $0, %warp;\n"
                 "    setp.ge.u32 %in, %row, %rows;\n"
                 "    @%in ret;\n",
                 m->rows);
    make_sum(p, m);
    ptx_matmul_end_past(p, m);
    ptx_matmul_store(p, m);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
}

// ---- float32 activations

// Stores dequantised weights in shared memory, with 128 bytes from one k to the next.
static void put_shared(const struct ptx_part *part, uint32_t first)
{
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(part->p, "    st.shared.f32 [%put+$0], %v$1;\n", 128 * (first + i), i);
}

static void f32_head(struct ptx *p, const struct ptx_matmul *m)
{
    ptx_header(p, 63, 75);
    ptx_type_tables(p, m->type, m->node);
    ptx_matmul_entry(p, m, WARPS);
    PTX_LINES(p, "    .shared .align 16 .b8 weights[32768];\n");
    ptx_matmul_sources(p, m);
}

void ptx_matmul_first_unit(struct ptx *p, const struct ptx_matmul *m)
{
    if (tile_unit_weights(m->type) == TILE_PART)
        PTX_FILL(p,
                 "    mov.u32 %part, 0;\n"
                 "    mad.wide.u32 %unit, %warp, $0, %w_tile;\n",
                 32 * tile_unit_bytes(m->type));
    else
        PTX_LINES(p, "    mov.u32 %part, %warp;\n"
                     "    mov.u64 %unit, %w_tile;\n");
}

// Sets the addresses in shared memory that this thread writes and reads, its first unit, and its first two elements
// of x.
static void f32_addresses(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_FILL(p,
             "    .reg .u32 %put, %take, %left, %part;\n"
             "    .reg .u64 %unit, %chunk;\n"
             "    .reg .f32 %even<$0>, %odd<$0>;\n",
             m->rows);
    PTX_LINES(p, "    mov.u32 %put, weights;\n"
                 "    mad.lo.u32 %put, %lane, 4, %put;\n"
                 "    mad.lo.u32 %take, %warp, 256, %put;\n"
                 "    mad.lo.u32 %put, %warp, 4096, %put;\n");
    ptx_matmul_first_unit(p, m);
    for (uint32_t r = 0; r < m->rows; r++)
        PTX_FILL(p,
                 "    mad.wide.u32 %px$0, %warp, 8, %px$0;\n"
                 "    mov.f32 %even$0, 0f00000000;\n"
                 "    mov.f32 %odd$0, 0f00000000;\n",
                 r);
    PTX_FILL(p, "    mov.u32 %left, $0;\n", m->n_in);
}

// Warp w dequantises part w, if the row has that many parts.
static void f32_decode(struct ptx *p, const struct ptx_matmul *m)
{
    const struct ptx_part part = {.p = p, .node = m->node, .type = m->type, .put = put_shared};
    bool cut = m->n_in % STEP != 0;
    if (cut)
        PTX_LINES(p, "    mul.lo.u32 %index, %warp, 32;\n"
                     "    setp.ge.u32 %in, %index, %left;\n"
                     "    @%in bra DECODED;\n");
    PTX_LINES(p, "    mad.wide.u32 %chunk, %lane, 16, %unit;\n");
    ptx_type_part(&part);
    if (cut)
        PTX_LINES(p, "DECODED:\n");
    PTX_LINES(p, "    bar.sync 0;\n");
}

// One step of 16 k: the s-th from the present addresses. `elements` of the thread's two exist.
static void f32_products(struct ptx *p, const struct ptx_matmul *m, uint32_t s)
{
    bool pairs = (m->x_stride | m->x_part) % 8 == 0;
    PTX_FILL(p,
             "    ld.shared.f32 %w0, [%take+$0];\n"
             "    ld.shared.f32 %w1, [%take+$1];\n",
             2048 * s, 2048 * s + 128);
    for (uint32_t r = 0; r < m->rows; r++) {
        if (m->x_shared)
            PTX_FILL(p, "    ld.shared.v2.f32 {%x0, %x1}, [%px$0+$1];\n", r, 64 * s);
        else if (pairs)
            PTX_FILL(p, "    ld.global.v2.f32 {%x0, %x1}, [%px$0+$1];\n", r, 64 * s);
        else
            PTX_FILL(p,
                     "    ld.global.f32 %x0, [%px$0+$1];\n"
                     "    ld.global.f32 %x1, [%px$0+$2];\n",
                     r, 64 * s, 64 * s + 4);
        PTX_FILL(p,
                 "    fma.rn.f32 %even$0, %w0, %x0, %even$0;\n"
                 "    fma.rn.f32 %odd$0, %w1, %x1, %odd$0;\n",
                 r);
    }
}

// The last step, in which only `n` of 16 elements exist.
static void f32_cut_products(struct ptx *p, const struct ptx_matmul *m, uint32_t s, uint32_t n)
{
    for (uint32_t odd = 0; odd < 2; odd++) {
        PTX_FILL(p,
                 "    mad.lo.u32 %index, %warp, 2, $0;\n"
                 "    setp.lt.u32 %in, %index, $1;\n"
                 "    @%in ld.shared.f32 %w0, [%take+$2];\n",
                 odd, n, 2048 * s + 128 * odd);
        for (uint32_t r = 0; r < m->rows; r++) {
            ptx_word(p, m->x_shared ? "    @%in ld.shared" : "    @%in ld.global");
            PTX_FILL(p, ".f32 %x0, [%px$0+$1];\n", r, 64 * s + 4 * odd);
            if (odd)
                PTX_FILL(p, "    @%in fma.rn.f32 %odd$0, %w0, %x0, %odd$0;\n", r);
            else
                PTX_FILL(p, "    @%in fma.rn.f32 %even$0, %w0, %x0, %even$0;\n", r);
        }
    }
}

#define PRODUCT_SCOPE                                                                                                  \
    "    {\n"                                                                                                          \
    "    .reg .f32 %w0, %w1, %x0, %x1;\n"

// Sixteen steps: partly unrolled, as far as the code stays short, and looped.
static void f32_whole_step(struct ptx *p, const struct ptx_matmul *m)
{
    uint32_t unroll = m->rows > 2 ? 4 : 16, turns = LANES_K / unroll;
    if (turns > 1)
        PTX_FILL(p, "    mov.u32 %index, $0;\nPRODUCTS: // $0 turns\n", turns);
    PTX_LINES(p, PRODUCT_SCOPE);
    for (uint32_t s = 0; s < unroll; s++)
        f32_products(p, m, s);
    PTX_LINES(p, "    }\n");
    for (uint32_t r = 0; r < m->rows; r++)
        PTX_FILL(p, "    add.u64 %px$0, %px$0, $1;\n", r, 64 * unroll);
    if (turns == 1)
        return;
    PTX_FILL(p,
             "    add.u32 %take, %take, $0;\n"
             "    sub.u32 %index, %index, 1;\n"
             "    setp.ne.u32 %more, %index, 0;\n"
             "    @%more bra PRODUCTS;\n"
             "    sub.u32 %take, %take, 32768;\n",
             2048 * unroll);
}

static void f32_last_step(struct ptx *p, const struct ptx_matmul *m)
{
    uint32_t left = m->n_in % STEP;
    PTX_LINES(p, "LAST:\n" PRODUCT_SCOPE);
    for (uint32_t s = 0; s < left / LANES_K; s++)
        f32_products(p, m, s);
    if (left % LANES_K)
        f32_cut_products(p, m, left / LANES_K, left % LANES_K);
    PTX_LINES(p, "    }\n");
}

static void f32_loop(struct ptx *p, const struct ptx_matmul *m)
{
    uint32_t units = STEP / tile_unit_weights(m->type), next = units * 32 * tile_unit_bytes(m->type);
    PTX_LINES(p, "STEP:");
    if (m->n_in >= STEP)
        PTX_FILL(p, " // $0 products a turn", STEP * PTX_TILE_ROWS * m->rows / (32 * WARPS));
    PTX_LINES(p, "\n");
    f32_decode(p, m);
    if (m->n_in % STEP)
        PTX_FILL(p,
                 "    setp.lt.u32 %in, %left, $0;\n"
                 "    @%in bra LAST;\n",
                 STEP);
    if (m->n_in >= STEP) {
        f32_whole_step(p, m);
        PTX_FILL(p,
                 "    bar.sync 0;\n"
                 "    add.u64 %unit, %unit, $0;\n"
                 "    sub.u32 %left, %left, $1;\n"
                 "    setp.ne.u32 %more, %left, 0;\n"
                 "    @%more bra STEP;\n",
                 next, STEP);
    }
    if (m->n_in % STEP) {
        f32_last_step(p, m);
        PTX_LINES(p, "    bar.sync 0;\n");
    }
}

// Stores the 16 partial sums as [row][partial sum][output] in the shared memory that held the weights.
static void f32_share_sums(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_LINES(p, "    mov.u32 %put, weights;\n"
                 "    mad.lo.u32 %put, %lane, 4, %put;\n"
                 "    mad.lo.u32 %take, %warp, 2048, %put;\n"
                 "    mad.lo.u32 %put, %warp, 256, %put;\n");
    for (uint32_t r = 0; r < m->rows; r++)
        PTX_FILL(p,
                 "    st.shared.f32 [%put+$1], %even$0;\n"
                 "    st.shared.f32 [%put+$2], %odd$0;\n",
                 r, 2048 * r, 2048 * r + 128);
    PTX_LINES(p, "    bar.sync 0;\n");
}

void ptx_matmul_f32_sum(struct ptx *p, const struct ptx_matmul *m)
{
    (void)m;
    PTX_LINES(p, "    .reg .f32 %l<16>;\n");
    for (uint32_t i = 0; i < LANES_K; i++)
        PTX_FILL(p, "    ld.shared.f32 %l$0, [%take+$1];\n", i, 128 * i);
    for (uint32_t half = LANES_K / 2; half; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            PTX_FILL(p, "    add.rn.f32 %l$0, %l$0, %l$1;\n", i, i + half);
    PTX_LINES(p, "    mov.f32 %sum, %l0;\n");
}

void ptx_matmul_f32_tile(struct ptx *p, const struct ptx_matmul *m)
{
    f32_addresses(p, m);
    f32_loop(p, m);
    f32_share_sums(p, m);
}

static void emit_f32(struct ptx *p, const struct ptx_matmul *m)
{
    f32_head(p, m);
    ptx_matmul_f32_tile(p, m);
    ptx_matmul_end(p, m, ptx_matmul_f32_sum);
}

int ptx_emit_matmul(struct ptx *p, const struct ptx_matmul *m, struct ptx_launch *launch, struct error *err)
{
    if (check(m, err))
        return -1;
    uint32_t warps = WARPS;
    const bool wide = m->rows == PTX_WIDE_ROWS, ring = by_ring(m);
    if (wide)
        ptx_matmul_wide(p, m);
    else if (m->halves && m->rows == PTX_MANY_ROWS)
        ptx_matmul_half_many(p, m);
    else if (m->halves)
        ptx_matmul_half_few(p, m);
    else if (m->rows == PTX_MANY_ROWS && m->q8)
        ptx_matmul_mma(p, m);
    else if (m->rows == PTX_MANY_ROWS)
        ptx_matmul_tiled(p, m);
    else if (ring)
        ptx_matmul_ring(p, m);
    else if (m->rows >= 8 && on_tensor_cores(m))
        warps = ptx_matmul_rows_mma(p, m);
    else if (m->q8)
        warps = ptx_matmul_q8(p, m);
    else
        emit_f32(p, m);
    *launch = (struct ptx_launch){.entry = "matmul",
                                  .grid = {ptx_matmul_ctas(m), 1, 1},
                                  .block = {32 * warps, 1, 1},
                                  .shared = wide   ? ptx_matmul_wide_bytes(m)
                                            : ring ? ptx_matmul_ring_bytes(m)
                                                   : 0};
    return ptx_finish(p, err);
}
