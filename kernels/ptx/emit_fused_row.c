// Emits the nodes of a fused kernel: the prologue, which computes the row before the products, and the columns after
// them. See emit_fused.h for the interface.
//
// The prologue equals these loops over the row, which every CTA executes for itself:
//     for each norm, in order:
//         sum = 0
//         for each element i: sum += the input of the norm at i, or the square of it    // 2 loops for a layer norm
//         root = 1 / sqrt(sum / n + eps)
//     for each element i: row[i] = all nodes at i
// No values of the row are kept between the loops: each loop computes the nodes before its norm again, from global
// memory. That costs no shared memory and few registers, and one more read from L2 for each norm. A sum has the order
// of emit_norm.c: thread i of ptx_norm_threads(n) adds elements i, i + threads, and so on; a butterfly adds the
// threads of a warp; the warps are added in order.
//
// After the products thread i of a unit has column i in registers. Rotary positions and norms need other columns of
// the unit; they exchange them by way of shared memory, 4 bytes a column for each such node.
#include "kernels/ptx/emit_fused.h"
#include "kernels/ptx/emit_kv.h"
#include "kernels/ptx/emit_nibble.h"

// ---- nodes of both the prologue and the columns

// Sets <reg><number> to the address that parameter `param` holds.
static void address(struct ptx *p, const char *reg, uint32_t number, int param)
{
    for (int i = 0; i < 2; i++) {
        ptx_word(p, i ? "    cvta.to.global.u64 " : "    ld.param.u64 ");
        ptx_word(p, reg);
        PTX_FILL(p, "$0, ", number);
        if (!i) {
            PTX_FILL(p, "[p$0];\n", (uint32_t)param);
        } else {
            ptx_word(p, reg);
            PTX_FILL(p, "$0;\n", number);
        }
    }
}

// Sets <reg><at> to the function of <reg><a>, or of <reg><a> and <reg><b>. Changes %a0 and %b0.
static void element(struct ptx *p, const struct ptx_fused_node *n, const char *reg, uint32_t at, uint32_t a, uint32_t b)
{
    ptx_word(p, "    mov.f32 %a0, ");
    ptx_word(p, reg);
    PTX_FILL(p, "$0;\n", a);
    if (n->element.op == PTX_ADD || n->element.op == PTX_GLU) {
        ptx_word(p, "    mov.f32 %b0, ");
        ptx_word(p, reg);
        PTX_FILL(p, "$0;\n", b);
    }
    ptx_element(p, &n->element, 0);
    ptx_word(p, "    mov.f32 ");
    ptx_word(p, reg);
    PTX_FILL(p, "$0, %a0;\n", at);
}

// Sets %sum to its sum over the warp, in all lanes and in the order of emit_norm.c.
static void butterfly(struct ptx *p)
{
    for (uint32_t by = 16; by; by /= 2)
        PTX_FILL(p,
                 "    shfl.sync.bfly.b32 %other, %sum, $0, 31, 0xffffffff;\n"
                 "    add.rn.f32 %sum, %sum, %other;\n",
                 by);
}

// Adds the term of one value, <v><at>, to %sum. mean: the value itself; otherwise its square, of a layer norm less
// %mean<mean_of>.
static void add_term(struct ptx *p, const struct ptx_fused_node *n, bool mean, const char *v, uint32_t at,
                     uint32_t mean_of)
{
    if (mean) {
        ptx_word(p, "    add.rn.f32 %sum, %sum, ");
        ptx_word(p, v);
        PTX_FILL(p, "$0;\n", at);
        return;
    }
    ptx_word(p, n->norm.kind == NORM_LAYER ? "    sub.rn.f32 %term, " : "    mov.f32 %term, ");
    ptx_word(p, v);
    if (n->norm.kind == NORM_LAYER)
        PTX_FILL(p, "$0, %mean$1;\n", at, mean_of);
    else
        PTX_FILL(p, "$0;\n", at);
    PTX_LINES(p, "    fma.rn.f32 %sum, %term, %term, %sum;\n");
}

// From the sum of a whole group, sets %mean<at>, or %root<at> to 1 / sqrt(sum / group + eps).
static void end_sum(struct ptx *p, const struct ptx_fused_node *n, bool mean, uint32_t at)
{
    if (mean)
        PTX_FILL(p, "    mul.rn.f32 %mean$0, %sum, 0f$x1;\n", at, ptx_float_bits((float)(1.0 / n->norm.group)));
    else
        PTX_FILL(p,
                 "    fma.rn.f32 %root$0, %sum, 0f$x1, 0f$x2;\n"
                 "    sqrt.rn.f32 %root$0, %root$0;\n"
                 "    rcp.rn.f32 %root$0, %root$0;\n",
                 at, ptx_float_bits((float)(1.0 / n->norm.group)), ptx_float_bits(n->norm.eps));
}

// ---- the prologue

void ptx_fused_row_head(struct ptx *p, const struct ptx_fused *f)
{
    if (!f->n_prologue)
        return;
    PTX_FILL(p,
             "    .reg .u32 %i, %turn;\n"
             "    .reg .u64 %from, %base<$0>, %gain<$0>, %shift<$0>;\n"
             "    .reg .f32 %mean<$0>, %root<$0>, %sum, %other, %term;\n",
             (uint32_t)f->n_prologue);
    for (int j = 0; j < f->n_prologue; j++) {
        const struct ptx_fused_node *n = &f->prologue[j];
        if (n->kind == FUSED_LOAD)
            address(p, "%base", (uint32_t)j, n->param);
        if (n->kind == FUSED_NORM && n->param >= 0)
            address(p, "%gain", (uint32_t)j, n->param);
        if (n->kind == FUSED_NORM && n->other >= 0)
            address(p, "%shift", (uint32_t)j, n->other);
    }
}

// Loads elements %i to %i + count - 1 of the array at <base><j> to <reg><first> and the following registers. count is
// 1 or a multiple of 4.
static void load(struct ptx *p, const char *base, uint32_t j, const char *reg, uint32_t first, uint32_t count)
{
    ptx_word(p, "    mad.wide.u32 %from, %i, 4, ");
    ptx_word(p, base);
    PTX_FILL(p, "$0;\n", j);
    if (count == 1) {
        ptx_word(p, "    ld.global.f32 ");
        ptx_word(p, reg);
        PTX_FILL(p, "$0, [%from];\n", first);
        return;
    }
    for (uint32_t u = 0; u < count; u += 4) {
        ptx_word(p, "    ld.global.v4.f32 {");
        for (uint32_t k = 0; k < 4; k++) {
            ptx_word(p, k ? ", " : "");
            ptx_word(p, reg);
            PTX_FILL(p, "$0", first + u + k);
        }
        PTX_FILL(p, "}, [%from+$0];\n", 4 * u);
    }
}

// Emits norm node j: sets %e<8 * j + u> to the normalised elements, with gain and bias.
static void row_norm(struct ptx *p, const struct ptx_fused_node *n, uint32_t j, uint32_t count)
{
    for (uint32_t u = 0; u < count; u++) {
        uint32_t e = 8 * j + u, a = 8 * (uint32_t)n->a + u;
        if (n->norm.kind == NORM_LAYER)
            PTX_FILL(p, "    sub.rn.f32 %e$0, %e$1, %mean$2;\n", e, a, j);
        else
            PTX_FILL(p, "    mov.f32 %e$0, %e$1;\n", e, a);
        PTX_FILL(p, "    mul.rn.f32 %e$0, %e$0, %root$1;\n", e, j);
    }
    if (n->param >= 0) {
        load(p, "%gain", j, "%w", 0, count);
        for (uint32_t u = 0; u < count; u++)
            PTX_FILL(p, "    mul.rn.f32 %e$0, %e$0, %w$1;\n", 8 * j + u, u);
    }
    if (n->other >= 0) {
        load(p, "%shift", j, "%w", 0, count);
        for (uint32_t u = 0; u < count; u++)
            PTX_FILL(p, "    add.rn.f32 %e$0, %e$0, %w$1;\n", 8 * j + u, u);
    }
}

// As ptx_fused_row_elements, but only for nodes 0 to `last`.
static void row_elements(struct ptx *p, const struct ptx_fused *f, uint32_t count, int last)
{
    PTX_FILL(p, "    {\n" PTX_ELEMENT_REGS "    .reg .f32 %e<$0>, %w<8>;\n", 8 * (uint32_t)(last + 1));
    for (uint32_t j = 0; j <= (uint32_t)last; j++) {
        const struct ptx_fused_node *n = &f->prologue[j];
        if (n->kind == FUSED_LOAD)
            load(p, "%base", j, "%e", 8 * j, count);
        else if (n->kind == FUSED_NORM)
            row_norm(p, n, j, count);
        else
            for (uint32_t u = 0; u < count; u++)
                element(p, n, "%e", 8 * j + u, 8 * (uint32_t)n->a + u, 8 * (uint32_t)n->b + u);
    }
}

void ptx_fused_row_elements(struct ptx *p, const struct ptx_fused *f, uint32_t count)
{
    row_elements(p, f, count, f->n_prologue - 1);
}

void ptx_fused_row_stores(struct ptx *p, const struct ptx_fused *f, uint32_t count)
{
    for (int j = 0; j < f->n_prologue; j++) {
        if (f->prologue[j].store < 0)
            continue;
        PTX_FILL(p,
                 "    ld.param.u64 %from, [p$0];\n"
                 "    cvta.to.global.u64 %from, %from;\n"
                 "    mad.wide.u32 %from, %i, 4, %from;\n",
                 (uint32_t)f->prologue[j].store);
        for (uint32_t u = 0; u < count; u++)
            PTX_FILL(p, "    @%first_cta st.global.f32 [%from+$0], %e$1;\n", 4 * u, 8 * (uint32_t)j + u);
    }
}

// Computes one sum of norm node j over the row: %mean<j> if `mean`, else %root<j>, in all threads. slot: the offset in
// bytes of the sums of the warps in `partials`.
static void row_sum(struct ptx *p, const struct ptx_fused *f, uint32_t j, bool mean, uint32_t warps, uint32_t slot)
{
    enum { AT_ONCE = 8 };
    const struct ptx_fused_node *n = &f->prologue[j];
    uint32_t threads = ptx_norm_threads(n->norm.group), whole = ptx_fused_width(f) / threads,
             rest = ptx_fused_width(f) % threads;
    PTX_LINES(p, "    {\n"
                 "    mov.f32 %sum, 0f00000000;\n"
                 "    mov.u32 %i, %index;\n");
    if (32 * warps > threads)
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %index, $0;\n"
                 "    @%in bra SUMMED;\n",
                 threads);
    if (whole > AT_ONCE)
        PTX_FILL(p, "    mov.u32 %turn, $0;\nEACH:\n", whole / AT_ONCE);
    for (uint32_t k = 0; k < (whole > AT_ONCE ? AT_ONCE + whole % AT_ONCE : whole); k++) {
        row_elements(p, f, 1, n->a);
        add_term(p, n, mean, "%e", 8 * (uint32_t)n->a, j);
        PTX_FILL(p, "    }\n    add.u32 %i, %i, $0;\n", threads);
        if (whole > AT_ONCE && k == AT_ONCE - 1)
            PTX_LINES(p, "    sub.u32 %turn, %turn, 1;\n"
                         "    setp.ne.u32 %in, %turn, 0;\n"
                         "    @%in bra EACH;\n");
    }
    if (rest) {
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %index, $0;\n"
                 "    @%in bra REST;\n",
                 rest);
        row_elements(p, f, 1, n->a);
        add_term(p, n, mean, "%e", 8 * (uint32_t)n->a, j);
        PTX_LINES(p, "    }\nREST:\n");
    }
    butterfly(p);
    PTX_FILL(p,
             "    setp.eq.u32 %in, %lane, 0;\n"
             "    mov.u32 %turn, partials;\n"
             "    mad.lo.u32 %turn, %warp, 4, %turn;\n"
             "    @%in st.shared.f32 [%turn+$0], %sum;\n"
             "SUMMED:\n"
             "    bar.sync 0;\n"
             "    ld.shared.f32 %sum, [partials+$0];\n",
             slot);
    for (uint32_t warp = 1; warp < threads / 32; warp++)
        PTX_FILL(p,
                 "    ld.shared.f32 %other, [partials+$0];\n"
                 "    add.rn.f32 %sum, %sum, %other;\n",
                 slot + 4 * warp);
    end_sum(p, n, mean, j);
    PTX_LINES(p, "    }\n");
}

uint32_t ptx_fused_partials_bytes(const struct ptx_fused *f)
{
    uint32_t bytes = 0;
    for (int j = 0; j < f->n_prologue; j++)
        if (f->prologue[j].kind == FUSED_NORM)
            bytes += f->prologue[j].norm.kind == NORM_LAYER ? 64 : 32;
    return bytes;
}

void ptx_fused_row_norms(struct ptx *p, const struct ptx_fused *f, uint32_t warps)
{
    uint32_t slot = 0;
    for (uint32_t j = 0; j < (uint32_t)f->n_prologue; j++) {
        if (f->prologue[j].kind != FUSED_NORM)
            continue;
        if (f->prologue[j].norm.kind == NORM_LAYER) {
            row_sum(p, f, j, true, warps, slot);
            slot += 32;
        }
        row_sum(p, f, j, false, warps, slot);
        slot += 32;
    }
}

// ---- columns

// Whether a node needs other columns of the unit.
static bool exchanges(const struct ptx_fused_node *n)
{
    return n->kind == FUSED_ROPE || n->kind == FUSED_NORM;
}

uint32_t ptx_fused_exchange_bytes(const struct ptx_fused_section *s)
{
    uint32_t bytes = 0;
    for (int j = 0; j < s->n_nodes; j++)
        bytes += exchanges(&s->nodes[j]) ? 4 * s->unit : 0;
    return bytes;
}

// The loads before the products. Node j keeps its inputs in registers of its own: %v, %z, %zz, %gain, %shift, %to.

// Loads the thread's column of the array in parameter `param` to <reg><j>; 0 beyond the row.
static void load_column(struct ptx *p, const char *reg, uint32_t j, int param)
{
    address(p, "%column_at", 0, param);
    PTX_LINES(p, "    mad.wide.u32 %column_at0, %column, 4, %column_at0;\n    mov.f32 ");
    ptx_word(p, reg);
    PTX_FILL(p, "$0, 0f00000000;\n    @%in_row ld.global.f32 ", j);
    ptx_word(p, reg);
    PTX_FILL(p, "$0, [%column_at0];\n", j);
}

// Loads the number in parameter `param` to %z<j>.
static void load_number(struct ptx *p, uint32_t j, int param)
{
    address(p, "%column_at", 0, param);
    PTX_FILL(p, "    ld.global.f32 %z$0, [%column_at0];\n", j);
}

// Loads the bias of the column to %z<j>. Of an expert, its scale to %gain<j> as well. The sum over experts has both inside.
static void load_sum(struct ptx *p, const struct ptx_fused_section *s, const struct ptx_fused_node *n, uint32_t j)
{
    const struct ptx_fused_leg *leg = &s->legs[n->a];
    if (s->experts.summed)
        return;
    if (leg->bias >= 0 && !s->experts.n_used)
        load_column(p, "%z", j, leg->bias);
    if (!s->experts.n_used)
        return;
    if (leg->bias >= 0) {
        address(p, "%column_at", 0, leg->bias);
        PTX_FILL(p,
                 "    mad.wide.u32 %column_at0, %expert, $1, %column_at0;\n"
                 "    mad.wide.u32 %column_at0, %local, 4, %column_at0;\n"
                 "    mov.f32 %z$0, 0f00000000;\n"
                 "    @%in_row ld.global.f32 %z$0, [%column_at0];\n",
                 j, 4 * s->n_out);
    }
    if (leg->scale >= 0) {
        address(p, "%column_at", 0, leg->scale);
        PTX_FILL(p,
                 "    mad.wide.u32 %column_at0, %expert, 4, %column_at0;\n"
                 "    ld.global.f32 %gain$0, [%column_at0];\n",
                 j);
    }
}

// Loads %gain<j> and %shift<j> for the column's index in its group.
static void load_gain(struct ptx *p, const struct ptx_fused_node *n, uint32_t j)
{
    if (n->param < 0 && n->other < 0)
        return;
    PTX_FILL(p, "    rem.u32 %c0, %column, $0;\n", n->norm.group);
    if (n->param >= 0) {
        address(p, "%column_at", 0, n->param);
        PTX_FILL(p,
                 "    mad.wide.u32 %column_at0, %c0, 4, %column_at0;\n"
                 "    ld.global.f32 %gain$0, [%column_at0];\n",
                 j);
    }
    if (n->other >= 0) {
        address(p, "%column_at", 0, n->other);
        PTX_FILL(p,
                 "    mad.wide.u32 %column_at0, %c0, 4, %column_at0;\n"
                 "    ld.global.f32 %shift$0, [%column_at0];\n",
                 j);
    }
}

// Sets %turns<j> to whether the column is rotated, and %second<j> to whether it is the second of its pair. Loads the
// cosine to %z<j> and the sine to %zz<j>.
static void load_rope(struct ptx *p, const struct ptx_fused_node *n, uint32_t j)
{
    bool neighbours = n->rope.layout == ROPE_NORM;
    PTX_FILL(p,
             "    rem.u32 %c0, %column, $1;\n"
             "    setp.lt.u32 %turns$0, %c0, $2;\n"
             "    and.pred %turns$0, %turns$0, %in_row;\n",
             j, n->rope.head_dim, 2 * n->rope.pairs);
    if (neighbours)
        PTX_FILL(p,
                 "    and.b32 %c1, %c0, 1;\n"
                 "    setp.ne.u32 %second$0, %c1, 0;\n"
                 "    shr.u32 %c0, %c0, 1;\n",
                 j);
    else
        PTX_FILL(p,
                 "    setp.ge.u32 %second$0, %c0, $1;\n"
                 "    @%second$0 sub.u32 %c0, %c0, $1;\n",
                 j, n->rope.pairs);
    address(p, "%column_at", 0, n->param);
    PTX_FILL(p,
             "    mad.wide.u32 %column_at0, %c0, 4, %column_at0;\n"
             "    mov.f32 %z$0, 0f00000000;\n"
             "    mov.f32 %zz$0, 0f00000000;\n"
             "    @%turns$0 ld.global.f32 %z$0, [%column_at0];\n"
             "    @%turns$0 ld.global.f32 %zz$0, [%column_at0+$1];\n",
             j, 4 * n->rope.pairs);
}

void ptx_kv_place(struct ptx *p, const struct ptx_kv *kv, int offset, uint32_t j)
{
    uint32_t block = (uint32_t)dtype_info[kv->type].block;
    PTX_FILL(p,
             "    {\n"
             PTX_KV_REGS
             "    .reg .u64 %head_step;\n"
             PTX_ADDRESS("%head_step", "step")
             PTX_ADDRESS("%table", "positions")
             "    ld.global.u32 %position, [%table];\n"
             PTX_ADDRESS("%table", "pages")
             "    ld.global.u64 %kv, [%head_step+16];\n"
             "    shr.u32 %entry, %position, 6;\n"
             PTX_KV_PAGE("%to$0"),
             j, 0, kv->page_bytes);
    PTX_FILL(p,
             "    div.u32 %c0, %column, $1;\n"
             "    mul.lo.u32 %c1, %c0, $1;\n"
             "    sub.u32 %c1, %column, %c1;\n"
             "    and.b32 %slot, %position, 63;\n"
             "    mad.lo.u32 %slot, %c0, 64, %slot;\n"
             "    mad.wide.u32 %to$0, %slot, $2, %to$0;\n",
             j, kv->dim, (uint32_t)dtype_row_bytes(kv->type, kv->dim));
    if (block > 1)
        PTX_FILL(p, "    div.u32 %c1, %c1, $0;\n", block);
    PTX_FILL(p,
             "    mad.wide.u32 %to$0, %c1, $1, %to$0;\n"
             "    ld.param.u64 %place, [p$2];\n"
             "    add.u64 %to$0, %to$0, %place;\n"
             "    }\n",
             j, (uint32_t)dtype_info[kv->type].bytes, (uint32_t)offset);
}

void ptx_fused_columns_load(struct ptx *p, const struct ptx_fused_section *s)
{
    PTX_FILL(p,
             PTX_ELEMENT_REGS
             "    .reg .pred %in_row, %turns<$0>, %second<$0>;\n"
             "    .reg .u32 %c<4>;\n"
             "    .reg .u64 %column_at<1>, %to<$0>;\n"
             "    .reg .f32 %v<$0>, %z<$0>, %zz<$0>, %y<$1>, %mean<$0>, %root<$0>, %gain<$0>, %shift<$0>;\n"
             "    .reg .f32 %sum, %other, %term, %near<1>;\n"
             "    setp.lt.u32 %in_row, %local, $2;\n",
             (uint32_t)s->n_nodes, (uint32_t)s->n_legs, s->n_out);
    PTX_FILL(p,
             "    setp.ge.u32 %in, %index, $0;\n"
             "    @%in bra LOADED;\n",
             s->unit);
    for (uint32_t j = 0; j < (uint32_t)s->n_nodes; j++) {
        const struct ptx_fused_node *n = &s->nodes[j];
        if (n->kind == FUSED_LOAD)
            load_column(p, "%v", j, n->param);
        if (n->kind == FUSED_SUM)
            load_sum(p, s, n, j);
        if (n->kind == FUSED_WEIGH)
            load_number(p, j, n->param);
        if (n->kind == FUSED_NORM)
            load_gain(p, n, j);
        if (n->kind == FUSED_ROPE)
            load_rope(p, n, j);
        if (n->kind == FUSED_KV)
            ptx_kv_place(p, &n->kv, n->param, j);
    }
    PTX_LINES(p, "LOADED:\n");
}

// A barrier for the threads of the unit.
static void unit_barrier(struct ptx *p, const struct ptx_fused_section *s)
{
    if (s->unit == 32)
        PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n");
    else
        PTX_FILL(p, "    bar.sync 1, $0;\n", s->unit);
}

// Stores the columns of node n->a to the exchange area from byte `at` on, for all threads of the unit. Sets %c0 to the
// address of that byte.
static void share_columns(struct ptx *p, const struct ptx_fused_section *s, const struct ptx_fused_node *n, uint32_t at)
{
    PTX_FILL(p,
             "    mov.u32 %c0, exchange;\n"
             "    add.u32 %c0, %c0, $0;\n"
             "    mad.lo.u32 %c1, %index, 4, %c0;\n"
             "    st.shared.f32 [%c1], %v$1;\n",
             at, (uint32_t)n->a);
    unit_barrier(p, s);
}

// Rotates a pair (a, b) by its cosine c and sine s: the first column becomes a c - b s, the second b c + a s, rounded
// as in emit_rope.c. Other columns are copied.
static void column_rope(struct ptx *p, const struct ptx_fused_section *s, uint32_t j, uint32_t at)
{
    const struct ptx_fused_node *n = &s->nodes[j];
    share_columns(p, s, n, at);
    if (n->rope.layout == ROPE_NORM)
        PTX_LINES(p, "    xor.b32 %c2, %index, 1;\n");
    else
        PTX_FILL(p,
                 "    add.u32 %c2, %index, $1;\n"
                 "    @%second$0 sub.u32 %c2, %index, $1;\n",
                 j, n->rope.pairs);
    PTX_FILL(p,
             "    selp.b32 %c2, %c2, %index, %turns$0;\n"
             "    mad.lo.u32 %c2, %c2, 4, %c0;\n"
             "    ld.shared.f32 %other, [%c2];\n"
             "    mul.rn.f32 %s, %other, %zz$0;\n"
             "    neg.f32 %s, %s;\n"
             "    fma.rn.f32 %s, %v$1, %z$0, %s;\n"
             "    mul.rn.f32 %t, %v$1, %z$0;\n"
             "    fma.rn.f32 %t, %other, %zz$0, %t;\n"
             "    selp.f32 %s, %t, %s, %second$0;\n"
             "    selp.f32 %v$2, %s, %v$1, %turns$0;\n",
             j, (uint32_t)n->a, j);
}

// Sets %sum to the sum of the group at address %c1, in all lanes. To get the order of emit_norm.c, one warp adds what
// each warp of that kernel's CTA would add, one after another.
static void group_sum(struct ptx *p, const struct ptx_fused_node *n, uint32_t j, bool mean)
{
    uint32_t group = n->norm.group, threads = ptx_norm_threads(group);
    PTX_LINES(p, "    {\n"
                 "    mad.lo.u32 %c2, %lane, 4, %c1;\n");
    for (uint32_t first = 0; first < threads; first += 32) {
        PTX_LINES(p, "    mov.f32 %sum, 0f00000000;\n");
        for (uint32_t i = first; i < group; i += threads) {
            if (i + 32 > group)
                PTX_FILL(p,
                         "    setp.ge.u32 %in, %lane, $0;\n"
                         "    @%in bra GROUP_$1_$2_$3;\n",
                         group - i, j, mean, i);
            PTX_FILL(p, "    ld.shared.f32 %near0, [%c2+$0];\n", 4 * i);
            add_term(p, n, mean, "%near", 0, j);
            if (i + 32 > group)
                PTX_FILL(p, "GROUP_$0_$1_$2:\n", j, mean, i);
        }
        butterfly(p);
        if (first)
            PTX_LINES(p, "    add.rn.f32 %u, %u, %sum;\n");
        else
            PTX_LINES(p, "    mov.f32 %u, %sum;\n");
    }
    PTX_LINES(p, "    mov.f32 %sum, %u;\n"
                 "    }\n");
}

// Emits norm node j. Its input goes through the exchange area at byte `at`. Each warp computes the root (%z<j>) and the
// mean (%zz<j>) of the group that its columns belong to; with groups of less than 32 columns it computes those of all
// its groups, one after another, and each lane keeps its own.
static void column_norm(struct ptx *p, const struct ptx_fused_section *s, uint32_t j, uint32_t at)
{
    const struct ptx_fused_node *n = &s->nodes[j];
    uint32_t group = n->norm.group, groups = group < 32 ? 32 / group : 1;
    share_columns(p, s, n, at);
    for (uint32_t q = 0; q < groups; q++) {
        if (group < 32)
            PTX_FILL(p,
                     "    and.b32 %c1, %index, 0xffffffe0;\n"
                     "    add.u32 %c1, %c1, $0;\n"
                     "    mad.lo.u32 %c1, %c1, 4, %c0;\n",
                     q * group);
        else
            PTX_FILL(p,
                     "    div.u32 %c1, %index, $0;\n"
                     "    mad.lo.u32 %c1, %c1, $1, %c0;\n",
                     group, 4 * group);
        for (int mean = n->norm.kind == NORM_LAYER; mean >= 0; mean--) {
            group_sum(p, n, j, mean);
            end_sum(p, n, mean, j);
        }
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %lane, $1;\n"
                 "    @%in mov.f32 %z$0, %root$0;\n",
                 j, q * group);
        if (n->norm.kind == NORM_LAYER)
            PTX_FILL(p, "    @%in mov.f32 %zz$0, %mean$0;\n", j);
    }
    if (n->norm.kind == NORM_LAYER)
        PTX_FILL(p, "    sub.rn.f32 %v$0, %v$1, %zz$0;\n", j, (uint32_t)n->a);
    else
        PTX_FILL(p, "    mov.f32 %v$0, %v$1;\n", j, (uint32_t)n->a);
    PTX_FILL(p, "    mul.rn.f32 %v$0, %v$0, %z$0;\n", j);
    if (n->param >= 0)
        PTX_FILL(p, "    mul.rn.f32 %v$0, %v$0, %gain$0;\n", j);
    if (n->other >= 0)
        PTX_FILL(p, "    add.rn.f32 %v$0, %v$0, %shift$0;\n", j);
}

static void column_kv(struct ptx *p, const struct ptx_fused_node *n, uint32_t j)
{
    PTX_FILL(p,
             "    @!%in_row bra KEPT_$0;\n"
             "    {\n"
             "    .reg .f32 %v;\n"
             "    .reg .u64 %py;\n"
             "    mov.f32 %v, %v$1;\n"
             "    mov.u64 %py, %to$0;\n",
             j, (uint32_t)n->a);
    ptx_kv_put(p, n->kv.type);
    PTX_FILL(p, "    }\nKEPT_$0:\n", j);
}

static void column_sum(struct ptx *p, const struct ptx_fused_section *s, uint32_t j)
{
    uint32_t leg = (uint32_t)s->nodes[j].a;
    PTX_FILL(p, "    mov.f32 %v$0, %y$1;\n", j, leg);
    if (s->experts.n_used && !s->experts.summed && s->legs[leg].scale >= 0)
        PTX_FILL(p, "    mul.rn.f32 %v$0, %v$0, %gain$0;\n", j);
    if (!s->experts.summed && s->legs[leg].bias >= 0)
        PTX_FILL(p, "    add.rn.f32 %v$0, %v$0, %z$0;\n", j);
}

void ptx_fused_columns(struct ptx *p, const struct ptx_fused_section *s)
{
    uint32_t at = 0;
    for (uint32_t j = 0; j < (uint32_t)s->n_nodes; j++) {
        const struct ptx_fused_node *n = &s->nodes[j];
        if (n->kind == FUSED_SUM)
            column_sum(p, s, j);
        else if (n->kind == FUSED_ELEMENT)
            element(p, n, "%v", j, (uint32_t)n->a, (uint32_t)n->b);
        else if (n->kind == FUSED_WEIGH)
            PTX_FILL(p, "    fma.rn.f32 %v$0, %z$0, %v$1, 0f00000000;\n", j, (uint32_t)n->a);
        else if (n->kind == FUSED_NORM)
            column_norm(p, s, j, at);
        else if (n->kind == FUSED_ROPE)
            column_rope(p, s, j, at);
        else if (n->kind == FUSED_KV)
            column_kv(p, n, j);
        at += exchanges(n) ? 4 * s->unit : 0;
        if (n->store < 0)
            continue;
        address(p, "%column_at", 0, n->store);
        PTX_FILL(p,
                 "    mad.wide.u32 %column_at0, %column, 4, %column_at0;\n"
                 "    @%in_row st.global.f32 [%column_at0], %v$0;\n",
                 j);
    }
}
