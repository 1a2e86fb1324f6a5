// Emits the kernels of emit_row.h. A CTA of 1024 threads has the row; thread i computes the columns i, i + 1024, and so on
// of each node, and loads AT_ONCE of them before it computes the first, so that their latencies overlap.
//
// A norm has the order of emit_norm.c: thread i of ptx_norm_threads(group) adds elements i, i + threads, and so on of a
// group; a butterfly adds the threads of a warp; the warps are added in order. A CTA has room for 4 to 32 such teams, which
// take a group each.
#include "kernels/ptx/emit_row.h"
#include "kernels/ptx/emit_kv.h"
#include "kernels/ptx/emit_nibble.h"

#include <math.h>

enum { THREADS = 1024, AT_ONCE = 4 };

static int check(const struct ptx_row *r, struct error *err)
{
    if (r->n_nodes < 1 || r->n_nodes > PTX_ROW_NODES || r->n_params < 1 || r->n_params > PTX_ROW_PARAMS)
        return fail(err, E_GPU, "row: %d nodes of %d parameters", r->n_nodes, r->n_params);
    for (int i = 0; i < r->n_nodes; i++) {
        const struct ptx_row_node *n = &r->nodes[i];
        if (!n->width || n->width > PTX_ROW_WIDTH || n->a >= i || n->b >= i)
            return fail(err, E_GPU, "row: node %d of %u columns", i, n->width);
        if (n->kind == PTX_ROW_NORM && (!n->norm.group || n->norm.group > PTX_ROW_GROUP || n->width % n->norm.group ||
                                        !isfinite(n->norm.eps) || n->norm.eps < 0))
            return fail(err, E_GPU, "row: a norm of groups of %u in rows of %u", n->norm.group, n->width);
        if (n->kind == PTX_ROW_SLICE && (!n->slice.n || n->slice.from + n->slice.n > n->slice.group))
            return fail(err, E_GPU, "row: columns %u to %u of %u", n->slice.from, n->slice.from + n->slice.n,
                        n->slice.group);
        if (n->kind == PTX_ROW_JOIN && n->join.first + n->join.second < 1)
            return fail(err, E_GPU, "row: nothing is joined");
        if (n->kind == PTX_ROW_ROPE &&
            (!n->rope.pairs || 2 * n->rope.pairs > n->rope.head_dim || n->width % n->rope.head_dim))
            return fail(err, E_GPU, "row: %u pairs of heads of %u", n->rope.pairs, n->rope.head_dim);
        if (n->kind == PTX_ROW_KV && (n->width % n->kv.dim || n->kv.row_dim))
            return fail(err, E_GPU, "row: heads of %u to the cache", n->kv.dim);
    }
    return 0;
}

static void head(struct ptx *p, const struct ptx_row *r)
{
    ptx_header(p, r->dependent ? 78 : 63, r->dependent ? 90 : 75);
    PTX_FILL(p,
             "\n"
             "// node $0: the last of $1 that one CTA computes for one row\n"
             ".visible .entry row_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 positions,\n"
             "    .param .u64 pages",
             r->node, (uint32_t)r->n_nodes);
    for (int i = 0; i < r->n_params; i++)
        PTX_FILL(p, ",\n    .param .u64 p$0", (uint32_t)i);
    PTX_FILL(p,
             ")\n"
             ".maxntid $0, 1, 1\n"
             "{\n"
             "    .reg .pred %in;\n"
             "    .reg .u32 %index, %lane, %warp;\n"
             "    .shared .align 4 .b8 sums[128];\n"
             "    mov.u32 %index, %tid.x;\n"
             "    and.b32 %lane, %index, 31;\n"
             "    shr.u32 %warp, %index, 5;\n",
             THREADS);
    if (r->dependent)
        PTX_LINES(p, "    griddepcontrol.wait;\n"
                     "    griddepcontrol.launch_dependents;\n");
}

// Sets the 64-bit register <to> to the address in parameter `param`.
static void address(struct ptx *p, const char *to, int param)
{
    ptx_word(p, "    ld.param.u64 ");
    ptx_word(p, to);
    PTX_FILL(p, ", [p$0];\n    cvta.to.global.u64 ", (uint32_t)param);
    ptx_word(p, to);
    ptx_word(p, ", ");
    ptx_word(p, to);
    ptx_word(p, ";\n");
}

// ---- nodes whose columns are computed by themselves. Each has its number u among those at once: column %c<u>, which
// exists if %in<u>; its inputs are loaded to %v<u> and others, and its value becomes %v<u>.

// Loads the float at index %i of <base> to <to><u>, if %in<u>.
static void gather(struct ptx *p, const char *to, const char *base, uint32_t u)
{
    ptx_word(p, "    mad.wide.u32 %at, %i, 4, ");
    ptx_word(p, base);
    PTX_FILL(p, ";\n    @%in$0 ld.global.f32 ", u);
    ptx_word(p, to);
    PTX_FILL(p, "$0, [%at];\n", u);
}

static void load_slice(struct ptx *p, const struct ptx_row_node *n, uint32_t u)
{
    PTX_FILL(p,
             "    div.u32 %i, %c$0, $1;\n"
             "    rem.u32 %j, %c$0, $1;\n"
             "    mad.lo.u32 %i, %i, $2, %j;\n"
             "    add.u32 %i, %i, $3;\n",
             u, n->slice.n, n->slice.group, n->slice.from);
    gather(p, "%v", "%x", u);
}

static void load_join(struct ptx *p, const struct ptx_row_node *n, uint32_t u)
{
    const struct ptx_join *j = &n->join;
    PTX_FILL(p,
             "    div.u32 %part, %c$0, $1;\n"
             "    rem.u32 %j, %c$0, $1;\n"
             "    mad.lo.u32 %i, %part, $2, %j;\n"
             "    mad.wide.u32 %at, %i, 4, %x;\n"
             "    sub.u32 %j, %j, $2;\n"
             "    mad.lo.u32 %i, %part, $3, %j;\n"
             "    mad.wide.u32 %other, %i, 4, %z;\n"
             "    setp.ge.s32 %second, %j, 0;\n"
             "    selp.b64 %at, %other, %at, %second;\n"
             "    @%in$0 ld.global.f32 %v$0, [%at];\n",
             u, j->first + j->second, j->first, j->same ? 0 : j->second);
}

// Loads the column to %v<u>, its partner to %w<u>, the cosine to %s<u> and the sine to %t<u>. %turns<u> is whether it
// rotates, %second<u> whether it is the second of its pair.
static void load_rope(struct ptx *p, const struct ptx_row_node *n, uint32_t u)
{
    const struct ptx_rope *r = &n->rope;
    PTX_FILL(p,
             "    mov.u32 %i, %c$0;\n"
             "    rem.u32 %j, %c$0, $1;\n"
             "    setp.lt.u32 %turns$0, %j, $2;\n"
             "    and.pred %turns$0, %turns$0, %in$0;\n",
             u, r->head_dim, 2 * r->pairs);
    gather(p, "%v", "%x", u);
    if (r->layout == ROPE_NORM)
        PTX_FILL(p,
                 "    xor.b32 %i, %c$0, 1;\n"
                 "    and.b32 %part, %j, 1;\n"
                 "    setp.ne.u32 %second$0, %part, 0;\n"
                 "    shr.u32 %j, %j, 1;\n",
                 u);
    else
        PTX_FILL(p,
                 "    setp.ge.u32 %second$0, %j, $1;\n"
                 "    add.u32 %i, %c$0, $1;\n"
                 "    @%second$0 sub.u32 %i, %c$0, $1;\n"
                 "    @%second$0 sub.u32 %j, %j, $1;\n",
                 u, r->pairs);
    PTX_FILL(p,
             "    mad.wide.u32 %at, %i, 4, %x;\n"
             "    mad.wide.u32 %other, %j, 4, %z;\n"
             "    @%turns$0 ld.global.f32 %w$0, [%at];\n"
             "    @%turns$0 ld.global.f32 %s$0, [%other];\n"
             "    @%turns$0 ld.global.f32 %t$0, [%other+$1];\n",
             u, 4 * r->pairs);
}

// Rounded as in emit_rope.c: of a pair (a, b) the first becomes a c - b s, the second b c + a s.
static void compute_rope(struct ptx *p, uint32_t u)
{
    PTX_FILL(p,
             "    mul.rn.f32 %one, %w$0, %t$0;\n"
             "    neg.f32 %one, %one;\n"
             "    fma.rn.f32 %one, %v$0, %s$0, %one;\n"
             "    mul.rn.f32 %two, %v$0, %s$0;\n"
             "    fma.rn.f32 %two, %w$0, %t$0, %two;\n"
             "    selp.f32 %one, %two, %one, %second$0;\n"
             "    selp.f32 %v$0, %one, %v$0, %turns$0;\n",
             u);
}

static bool has_second(const struct ptx_row_node *n)
{
    return n->kind == PTX_ROW_ELEMENT && (n->element.op == PTX_ADD || n->element.op == PTX_GLU);
}

static void load_column(struct ptx *p, const struct ptx_row_node *n, uint32_t u)
{
    if (n->kind == PTX_ROW_SLICE) {
        load_slice(p, n, u);
    } else if (n->kind == PTX_ROW_JOIN) {
        load_join(p, n, u);
    } else if (n->kind == PTX_ROW_ROPE) {
        load_rope(p, n, u);
    } else {
        PTX_FILL(p, "    mov.u32 %i, %c$0;\n", u);
        gather(p, "%v", "%x", u);
        if (has_second(n))
            gather(p, "%w", "%z", u);
    }
}

static void compute_column(struct ptx *p, const struct ptx_row_node *n, uint32_t u)
{
    if (n->kind == PTX_ROW_ROPE)
        compute_rope(p, u);
    if (n->kind != PTX_ROW_ELEMENT)
        return;
    PTX_FILL(p,
             "    {\n" PTX_ELEMENT_REGS
             "    mov.f32 %a0, %v$0;\n"
             "    mov.f32 %b0, %w$0;\n",
             u);
    ptx_element(p, &n->element, 0);
    PTX_FILL(p,
             "    mov.f32 %v$0, %a0;\n"
             "    }\n",
             u);
}

// Loads and computes the thread's columns %base + %index and up to AT_ONCE - 1 more, 1024 apart.
static void columns_at_once(struct ptx *p, const struct ptx_row_node *n)
{
    const uint32_t count = MIN((uint32_t)AT_ONCE, ptx_tiles(n->width, THREADS));
    for (uint32_t u = 0; u < count; u++) {
        PTX_FILL(p,
                 "    add.u32 %c$0, %base, $1;\n"
                 "    add.u32 %c$0, %c$0, %index;\n"
                 "    setp.lt.u32 %in$0, %c$0, $2;\n"
                 "    mov.f32 %v$0, 0f00000000;\n"
                 "    mov.f32 %w$0, 0f00000000;\n"
                 "    mov.f32 %s$0, 0f00000000;\n"
                 "    mov.f32 %t$0, 0f00000000;\n",
                 u, u * THREADS, n->width);
        load_column(p, n, u);
    }
    for (uint32_t u = 0; u < count; u++) {
        compute_column(p, n, u);
        PTX_FILL(p,
                 "    mad.wide.u32 %at, %c$0, 4, %y;\n"
                 "    @%in$0 st.global.f32 [%at], %v$0;\n",
                 u);
    }
}

static void columns(struct ptx *p, const struct ptx_row_node *n)
{
    PTX_FILL(p,
             "    .reg .pred %in<$0>, %turns<$0>, %second<$0>, %second;\n"
             "    .reg .u32 %c<$0>, %i, %j, %part, %base;\n"
             "    .reg .u64 %at, %other;\n"
             "    .reg .f32 %v<$0>, %w<$0>, %s<$0>, %t<$0>, %one, %two;\n"
             "    mov.u32 %base, 0;\n"
             "COLUMNS:\n"
             "    .pragma \"nounroll\";\n",
             AT_ONCE);
    columns_at_once(p, n);
    PTX_FILL(p,
             "    add.u32 %base, %base, $0;\n"
             "    setp.lt.u32 %in, %base, $1;\n"
             "    @%in bra COLUMNS;\n",
             AT_ONCE * THREADS, n->width);
}

// ---- norms

// A team of threads for a group at a time.
struct teams {
    uint32_t threads, n, groups, turns; // threads of a team; teams; groups; groups of a team, one after another
    uint32_t each, rest;                // elements of a thread; threads that have one more
};

static struct teams teams_of(const struct ptx_row_node *n)
{
    struct teams t = {.threads = ptx_norm_threads(n->norm.group), .groups = n->width / n->norm.group};
    t.n = THREADS / t.threads;
    t.turns = ptx_tiles(t.groups, t.n);
    t.each = n->norm.group / t.threads;
    t.rest = n->norm.group % t.threads;
    return t;
}

// Adds the elements, or with the mean the squares of what they are off, to %sum: of the thread, the warp and the team.
static void team_sum(struct ptx *p, const struct ptx_row_node *n, const struct teams *t, bool mean)
{
    PTX_LINES(p, "    mov.f32 %sum, 0f00000000;\n");
    for (uint32_t e = 0; e < t->each + (t->rest > 0); e++) {
        if (!mean && n->norm.kind == NORM_LAYER)
            PTX_FILL(p, "    sub.rn.f32 %term, %e$0, %mean;\n", e);
        else
            PTX_FILL(p, "    mov.f32 %term, %e$0;\n", e);
        ptx_word(p, e == t->each ? "    @%rest " : "    ");
        if (mean)
            PTX_LINES(p, "add.rn.f32 %sum, %sum, %term;\n");
        else
            PTX_LINES(p, "fma.rn.f32 %sum, %term, %term, %sum;\n");
    }
    for (uint32_t by = 16; by; by /= 2)
        PTX_FILL(p,
                 "    shfl.sync.bfly.b32 %other, %sum, $0, 31, 0xffffffff;\n"
                 "    add.rn.f32 %sum, %sum, %other;\n",
                 by);
    if (t->threads == 32)
        return;
    PTX_FILL(p,
             "    setp.eq.u32 %in, %lane, 0;\n"
             "    mov.u32 %i, sums;\n"
             "    mad.lo.u32 %j, %warp, 4, %i;\n"
             "    @%in st.shared.f32 [%j], %sum;\n"
             "    bar.sync 0;\n"
             "    mad.lo.u32 %i, %team, $0, %i;\n"
             "    ld.shared.f32 %sum, [%i];\n",
             t->threads / 8);
    for (uint32_t warp = 1; warp < t->threads / 32; warp++)
        PTX_FILL(p,
                 "    ld.shared.f32 %other, [%i+$0];\n"
                 "    add.rn.f32 %sum, %sum, %other;\n",
                 4 * warp);
    PTX_LINES(p, "    bar.sync 0;\n");
}

static void store_group(struct ptx *p, const struct ptx_row_node *n, const struct teams *t, uint32_t e)
{
    PTX_FILL(p,
             "    add.u32 %i, %first, $0;\n"
             "    mad.wide.u32 %at, %i, 4, %y;\n",
             e * t->threads);
    if (!n->norm.by_column)
        PTX_FILL(p, "    rem.u32 %i, %i, $0;\n", n->norm.group);
    if (n->norm.kind == NORM_LAYER)
        PTX_FILL(p, "    sub.rn.f32 %e$0, %e$0, %mean;\n", e);
    PTX_FILL(p, "    mul.rn.f32 %e$0, %e$0, %root;\n", e);
    if (n->gain >= 0)
        PTX_FILL(p,
                 "    mad.wide.u32 %from, %i, 4, %gain;\n"
                 "    @%in ld.global.f32 %term, [%from];\n"
                 "    mul.rn.f32 %e$0, %e$0, %term;\n",
                 e);
    if (n->bias >= 0)
        PTX_FILL(p,
                 "    mad.wide.u32 %from, %i, 4, %bias;\n"
                 "    @%in ld.global.f32 %term, [%from];\n"
                 "    add.rn.f32 %e$0, %e$0, %term;\n",
                 e);
    PTX_FILL(p, "    @%in st.global.f32 [%at], %e$0;\n", e);
}

// One group of each team: group %team + turn * teams.
static void norm_turn(struct ptx *p, const struct ptx_row_node *n, const struct teams *t, uint32_t turn)
{
    const uint32_t count = t->each + (t->rest > 0);
    PTX_FILL(p,
             "    add.u32 %i, %team, $0;\n"
             "    setp.lt.u32 %there, %i, $1;\n"
             "    mad.lo.u32 %first, %i, $2, %member;\n"
             "    setp.lt.u32 %rest, %member, $3;\n"
             "    mov.f32 %term, 0f00000000;\n",
             turn * t->n, t->groups, n->norm.group, t->rest);
    for (uint32_t e = 0; e < count; e++) {
        if (e == t->each)
            PTX_LINES(p, "    and.pred %in, %there, %rest;\n");
        else
            PTX_LINES(p, "    and.pred %in, %there, %there;\n");
        PTX_FILL(p,
                 "    add.u32 %i, %first, $1;\n"
                 "    mad.wide.u32 %at, %i, 4, %x;\n"
                 "    mov.f32 %e$0, 0f00000000;\n"
                 "    @%in ld.global.f32 %e$0, [%at];\n",
                 e, e * t->threads);
    }
    if (n->norm.kind == NORM_LAYER) {
        team_sum(p, n, t, true);
        PTX_FILL(p, "    mul.rn.f32 %mean, %sum, 0f$x0;\n", ptx_float_bits((float)(1.0 / n->norm.group)));
    }
    team_sum(p, n, t, false);
    PTX_FILL(p,
             "    fma.rn.f32 %root, %sum, 0f$x0, 0f$x1;\n"
             "    sqrt.rn.f32 %root, %root;\n"
             "    rcp.rn.f32 %root, %root;\n",
             ptx_float_bits((float)(1.0 / n->norm.group)), ptx_float_bits(n->norm.eps));
    for (uint32_t e = 0; e < count; e++) {
        if (e == t->each)
            PTX_LINES(p, "    and.pred %in, %there, %rest;\n");
        else
            PTX_LINES(p, "    and.pred %in, %there, %there;\n");
        store_group(p, n, t, e);
    }
}

static void norm(struct ptx *p, const struct ptx_row_node *n)
{
    const struct teams t = teams_of(n);
    PTX_FILL(p,
             "    .reg .pred %there, %rest;\n"
             "    .reg .u32 %team, %member, %first, %i, %j;\n"
             "    .reg .u64 %at, %from, %gain, %bias;\n"
             "    .reg .f32 %e<$0>, %sum, %other, %term, %mean, %root;\n"
             "    div.u32 %team, %index, $1;\n"
             "    rem.u32 %member, %index, $1;\n",
             t.each + 1, t.threads);
    if (n->gain >= 0)
        address(p, "%gain", n->gain);
    if (n->bias >= 0)
        address(p, "%bias", n->bias);
    for (uint32_t turn = 0; turn < t.turns; turn++) {
        PTX_LINES(p, "    {\n");
        norm_turn(p, n, &t, turn);
        PTX_LINES(p, "    }\n");
    }
}

// ---- writes to the cache

static void kv_write(struct ptx *p, const struct ptx_row_node *n)
{
    PTX_LINES(p, "    .reg .pred %in_row;\n"
                 "    .reg .u32 %column, %c<2>;\n"
                 "    .reg .u64 %to0, %at;\n"
                 "    .reg .f32 %v0;\n");
    for (uint32_t first = 0; first < n->width; first += THREADS) {
        PTX_FILL(p,
                 "    {\n"
                 "    add.u32 %column, %index, $0;\n"
                 "    setp.lt.u32 %in_row, %column, $1;\n"
                 "    @!%in_row bra KEPT;\n"
                 "    mad.wide.u32 %at, %column, 4, %x;\n"
                 "    ld.global.f32 %v0, [%at];\n",
                 first, n->width);
        ptx_kv_place(p, &n->kv, n->y, 0);
        PTX_LINES(p, "    {\n"
                     "    .reg .f32 %v;\n"
                     "    .reg .u64 %py;\n"
                     "    mov.f32 %v, %v0;\n"
                     "    mov.u64 %py, %to0;\n");
        ptx_kv_put(p, n->kv.type);
        PTX_LINES(p, "    }\n"
                     "KEPT:\n"
                     "    }\n");
    }
}

// ---- the kernel

static void emit_node(struct ptx *p, const struct ptx_row_node *n)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .u64 %x, %z, %y;\n");
    address(p, "%x", n->x);
    if (n->z >= 0)
        address(p, "%z", n->z);
    if (n->kind != PTX_ROW_KV)
        address(p, "%y", n->y);
    if (n->kind == PTX_ROW_NORM)
        norm(p, n);
    else if (n->kind == PTX_ROW_KV)
        kv_write(p, n);
    else
        columns(p, n);
    PTX_LINES(p, "    }\n");
}

int ptx_emit_row(struct ptx *p, const struct ptx_row *r, struct ptx_launch *launch, struct error *err)
{
    int synced = 0; // nodes before this one are behind a barrier
    if (check(r, err))
        return -1;
    head(p, r);
    for (int i = 0; i < r->n_nodes; i++) {
        if (r->nodes[i].a >= synced || r->nodes[i].b >= synced) {
            PTX_LINES(p, "    bar.sync 0;\n");
            synced = i;
        }
        emit_node(p, &r->nodes[i]);
    }
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){.entry = "row", .grid = {1, 1, 1}, .block = {THREADS, 1, 1}};
    return ptx_finish(p, err);
}
