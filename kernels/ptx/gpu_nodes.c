// Translates a node of a program to its launches: chooses the kernels, their sizes and their arguments.
#include "kernels/ptx/gpu.h"
#include "kernels/ptx/gpu_buckets.h"

struct gpu_launch *gpu_launch_new(struct plan *p, const struct tensor *n, struct error *err)
{
    struct gpu_list *list = p->list;
    struct gpu_launch *grown = gpu_grow(list->launches, list->n_launches, &list->cap_launches, sizeof *grown);
    if (!grown) {
        fail(err, E_MEMORY, "no memory for a plan");
        return NULL;
    }
    list->launches = grown;
    grown += list->n_launches++;
    *grown = (struct gpu_launch){.node = n, .rows = n->rows};
    return grown;
}

void gpu_add_arg(struct gpu_launch *l, enum gpu_arg_kind kind, uint64_t at)
{
    l->args[l->n_args++] = (struct gpu_arg){kind, at};
}

// Appends a launch of a kernel of emit_ops.h. The first argument of these kernels is the step.
static struct gpu_launch *begin(struct plan *p, const struct tensor *n, struct error *err)
{
    struct gpu_launch *l = gpu_launch_new(p, n, err);
    if (l)
        gpu_add_arg(l, ARG_STEP, 0);
    return l;
}

static void add_value(struct plan *p, struct gpu_launch *l, const struct tensor *n)
{
    gpu_add_arg(l, ARG_ADDRESS, gpu_value(p, n));
}

// Whether kernels of a kind run between the fused ones of a step of one row. Both lists of a plan share them.
static bool may_be_early(enum gpu_kind kind)
{
    return kind != GPU_FUSED && kind != GPU_ROW && kind != GPU_MATMUL && kind != GPU_GROUP && kind != GPU_REPACK &&
           kind != GPU_TOP;
}

int gpu_add_kernel(struct plan *p, struct gpu_launch *l, struct gpu_spec *spec, uint32_t rows, struct error *err)
{
    if (l->n_kernels == GPU_CLASSES)
        return fail(err, E_GPU, "%s: more classes of rows than a plan has room for", l->node->name);
    spec->node = (uint32_t)l->node->id;
    spec->early = l->early = rows == 1 && may_be_early(spec->kind) && gpu_starts_early(p);
    if (gpu_kernel_get(p->gpu, spec, &l->kernels[l->n_kernels], err))
        return -1;
    l->classes[l->n_kernels++] = rows;
    return 0;
}

int gpu_add_floats(struct plan *p, struct gpu_launch *l, const void *data, int64_t n, struct error *err)
{
    uint64_t *grown = gpu_grow(p->weights, p->n_weights, &p->cap_weights, sizeof *grown), at;
    if (!grown)
        return fail(err, E_MEMORY, "no memory for a plan");
    p->weights = grown;
    if (gpu_weight_floats(p->gpu, data, (size_t)n, &at, err))
        return -1;
    p->weights[p->n_weights++] = at;
    gpu_add_arg(l, ARG_ADDRESS, at);
    return 0;
}

int gpu_add_tiles(struct plan *p, struct gpu_launch *l, const struct weight *w, struct error *err)
{
    uint64_t *grown = gpu_grow(p->weights, p->n_weights, &p->cap_weights, sizeof *grown), at;
    if (!grown)
        return fail(err, E_MEMORY, "no memory for a plan");
    p->weights = grown;
    if (gpu_weight_tiles(p->gpu, w, &at, err))
        return -1;
    p->weights[p->n_weights++] = at;
    gpu_add_arg(l, ARG_ADDRESS, at);
    return 0;
}

// ---- operations

static int do_embed(struct plan *p, struct tensor *n, struct error *err)
{
    const struct weight *w = n->w[0];
    struct gpu_spec s = {.kind = GPU_GET_ROWS};
    s.get_rows = (struct ptx_get_rows){.type = w->type,
                                       .n_in = (uint32_t)w->ne[0],
                                       .n_out = (uint32_t)w->ne[1],
                                       .y_stride = (uint32_t)(4 * n->width),
                                       .scale = n->p.embed.scale};
    struct gpu_launch *l = gpu_launch_new(p, n, err);
    if (!l || gpu_add_tiles(p, l, w, err) || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    l->rows_in_y = true;
    p->reads_zeros = p->reads_zeros || n->p.embed.input == INPUT_ZERO;
    static const enum gpu_arg_kind ids[] = {ARG_TOKENS, ARG_POSITIONS, ARG_ZEROS};
    gpu_add_arg(l, ids[n->p.embed.input], 0);
    add_value(p, l, n);
    gpu_add_arg(l, ARG_N_ROWS, 0);
    return 0;
}

static int do_rows(struct plan *p, struct tensor *n, struct error *err)
{
    struct gpu_spec s = {.kind = GPU_PICK, .pick = {0, (uint32_t)n->width}};
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    gpu_add_arg(l, ARG_OUTPUTS, 0);
    add_value(p, l, n->src[0]);
    add_value(p, l, n);
    return 0;
}

static int do_rope_table(struct plan *p, struct tensor *n, struct error *err)
{
    size_t pairs = (size_t)n->p.rope_table.n_pairs;
    struct gpu_spec s = {.kind = GPU_ROPE_TABLE};
    s.rope_table.pairs = (uint32_t)pairs;
    s.rope_table.mscale = n->p.rope_table.mscale;
    s.rope_table.growth = n->p.rope_table.growth;
    s.rope_table.period = (uint32_t)n->p.rope_table.period;
    s.rope_table.offset = (uint32_t)n->p.rope_table.offset;
    struct gpu_launch *l = begin(p, n, err);
    uint64_t frequencies;
    if (!l || gpu_add_kernel(p, l, &s, 1, err) ||
        gpu_own(p, n->p.rope_table.inv_freq, pairs * sizeof(double), &frequencies, err))
        return -1;
    gpu_add_arg(l, ARG_POSITIONS, 0);
    gpu_add_arg(l, ARG_ADDRESS, frequencies);
    add_value(p, l, n);
    return 0;
}

static int do_norm(struct plan *p, struct tensor *n, struct error *err)
{
    int64_t group = n->p.norm.group ? n->p.norm.group : n->width;
    struct gpu_spec s = {.kind = GPU_NORM};
    s.norm = (struct ptx_norm){.rows = n->rows,
                               .width = (uint32_t)n->width,
                               .group = (uint32_t)group,
                               .kind = n->p.norm.kind,
                               .eps = n->p.norm.eps,
                               .gain = n->w[0],
                               .bias = n->w[1],
                               .by_column = n->p.norm.by_column};
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    add_value(p, l, n->src[0]);
    for (int i = 0; i < 2; i++)
        if (n->w[i] && gpu_add_floats(p, l, n->w[i]->data, n->p.norm.by_column ? n->width : group, err))
            return -1;
    add_value(p, l, n);
    return 0;
}

static int do_rope(struct plan *p, struct tensor *n, struct error *err)
{
    struct gpu_spec s = {.kind = GPU_ROPE};
    s.rope = (struct ptx_rope){.rows = n->rows,
                               .width = (uint32_t)n->width,
                               .head_dim = (uint32_t)n->p.rope.head_dim,
                               .pairs = (uint32_t)n->src[1]->p.rope_table.n_pairs,
                               .layout = n->p.rope.layout};
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    add_value(p, l, n->src[0]);
    add_value(p, l, n->src[1]);
    add_value(p, l, n);
    return 0;
}

int gpu_kv_of(const struct plan *p, const struct tensor *n, int layer, enum kv_part part, int dim, struct ptx_kv *out,
              struct error *err)
{
    size_t offset = kv_layer_offset(p->graph, p->options.kv_type, layer, part);
    if (p->page_bytes > INT32_MAX)
        return fail(err, E_GPU, "%s: pages of %zu bytes are too large for the card's kernels", n->name, p->page_bytes);
    const int stored = kv_dim_stored(&p->graph->kv[layer], part);
    *out = (struct ptx_kv){.page_bytes = (uint32_t)p->page_bytes,
                           .offset = (uint32_t)offset,
                           .dim = (uint32_t)dim,
                           .type = p->options.kv_type[kv_part_stored(&p->graph->kv[layer], part)],
                           .row_dim = stored == dim ? 0 : (uint32_t)stored};
    return 0;
}

static void add_pages(struct gpu_launch *l, enum gpu_arg_kind positions)
{
    gpu_add_arg(l, positions, 0);
    gpu_add_arg(l, ARG_TABLES, 0);
    gpu_add_arg(l, ARG_PAGES, 0);
}

static int do_kv_write(struct plan *p, struct tensor *n, struct error *err)
{
    int dim = (int)n->p.kv.head_dim;
    struct gpu_spec s = {.kind = GPU_KV_WRITE, .kv_write = {.heads = (uint32_t)(n->src[0]->width / dim)}};
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_kv_of(p, n, n->p.kv.layer, n->p.kv.part, dim, &s.kv_write.kv, err) ||
        gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    add_pages(l, ARG_POSITIONS);
    add_value(p, l, n->src[0]);
    return 0;
}

// Makes a buffer that all layers share at least `size` bytes large. A smaller one stays allocated until the plan is
// freed, because earlier launches use it.
static int make_room(struct plan *p, size_t size, struct buffer *b, struct error *err)
{
    if (size <= b->size)
        return 0;
    b->size = size;
    return gpu_own(p, NULL, size, &b->at, err);
}

// The sinks and the slopes of attention, if it has some.
static int add_vectors(struct plan *p, struct gpu_launch *l, const struct tensor *n, struct error *err)
{
    for (int i = 0; i < 2; i++)
        if (n->w[i] && gpu_add_floats(p, l, n->w[i]->data, n->p.attn.n_head, err))
            return -1;
    return 0;
}

// Appends attention row by row. With fewer than PTX_ATTEND_MANY rows, the splits of a row's positions are computed by
// several CTAs, which exchange partial results in memory. With more rows, the kernel only computes the rows that the
// kernel for tiles leaves out. With attention both ways it computes all rows, each up to the last position that it sees.
static int attend_rows(struct plan *p, struct tensor *n, struct gpu_spec *s, int rows, struct error *err)
{
    uint32_t few = (uint32_t)MIN(rows, PTX_ATTEND_MANY - 1);
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, s, 1, err) || make_room(p, ptx_attend_partials(&s->attend, few), &p->parts, err) ||
        make_room(p, ptx_attend_counters(&s->attend, few), &p->counters, err))
        return -1;
    const bool both_ways = n->p.attn.both_ways;
    s->attend.form = PTX_ATTEND_LONE;
    if (rows >= PTX_ATTEND_MANY && !both_ways && gpu_add_kernel(p, l, s, PTX_ATTEND_MANY, err))
        return -1;
    l->splits = s->attend.splits;
    add_pages(l, !both_ways ? ARG_POSITIONS : n->p.attn.window ? ARG_LAST_NEAR : ARG_LAST);
    add_value(p, l, n->src[0]);
    if (add_vectors(p, l, n, err))
        return -1;
    gpu_add_arg(l, ARG_ADDRESS, p->parts.at);
    gpu_add_arg(l, ARG_ADDRESS, p->counters.at);
    add_value(p, l, n);
    return 0;
}

// A plan for PTX_ATTEND_MANY rows or more has two launches: row by row, and by tiles. With attention both ways it has the
// first alone.
static int do_attention(struct plan *p, struct tensor *n, struct error *err)
{
    int layer = n->p.attn.layer, rows = p->list == &p->lists[GPU_ONE_ROW] ? 1 : p->max_rows[n->rows];
    struct gpu_spec s = {.kind = GPU_ATTEND};
    s.attend = (struct ptx_attend){.rows = n->rows,
                                   .heads = (uint32_t)n->p.attn.n_head,
                                   .heads_kv = (uint32_t)n->p.attn.n_head_kv,
                                   .scale = n->p.attn.scale,
                                   .softcap = n->p.attn.softcap,
                                   .window = (uint32_t)n->p.attn.window,
                                   .chunked = n->p.attn.chunked,
                                   .firsts = n->p.attn.both_ways ? 4 * (uint32_t)p->max_rows[ROWS_TOKENS] : 0,
                                   .sinks = n->w[0],
                                   .slopes = n->w[1],
                                   .splits = ptx_attend_splits((uint32_t)n->p.attn.n_head_kv)};
    if (gpu_kv_of(p, n, layer, KV_KEY, n->p.attn.dim_k, &s.attend.k, err) ||
        gpu_kv_of(p, n, layer, KV_VALUE, n->p.attn.dim_v, &s.attend.v, err))
        return -1;
    s.attend.halves = !p->gpu->options.exact && ptx_attend_takes_halves(&s.attend, gpu_target(p->gpu));
    if (attend_rows(p, n, &s, rows, err))
        return -1;
    if (rows < PTX_ATTEND_MANY || n->p.attn.both_ways)
        return 0;
    s.attend.form = PTX_ATTEND_TILES;
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    l->tile = ptx_attend_tile(&s.attend);
    add_pages(l, ARG_POSITIONS);
    add_value(p, l, n->src[0]);
    if (add_vectors(p, l, n, err))
        return -1;
    add_value(p, l, n);
    return 0;
}

bool gpu_takes_part(const struct tensor *n)
{
    return n->op == OP_GLU && n->src[1]->width > n->width;
}

struct ptx_elements gpu_elements_of(const struct tensor *n)
{
    static const enum ptx_element element[OP_COUNT] = {
        [OP_ACT] = PTX_ACT,         [OP_GLU] = PTX_GLU,     [OP_ADD] = PTX_ADD,    [OP_SCALE] = PTX_SCALE,
        [OP_SOFTCAP] = PTX_SOFTCAP, [OP_CLAMP] = PTX_CLAMP, [OP_XIELU] = PTX_XIELU};
    bool acts = n->op == OP_ACT || n->op == OP_GLU;
    bool scales = n->op == OP_SCALE || n->op == OP_SOFTCAP || n->op == OP_CLAMP;
    return (struct ptx_elements){.rows = n->rows,
                                 .width = (uint32_t)n->width,
                                 .op = element[n->op],
                                 .act = acts ? n->p.act.kind : 0,
                                 .factor = scales ? n->p.scale.factor : 0,
                                 .xielu = n->op == OP_XIELU ? n->p.xielu : (struct xielu_params){0},
                                 .b_width = gpu_takes_part(n) ? (uint32_t)n->src[1]->width : 0,
                                 .b_loose = gpu_takes_part(n) && n->p.act.first % 4};
}

uint64_t gpu_second(const struct plan *p, const struct tensor *n)
{
    return gpu_value(p, n->src[1]) + (gpu_takes_part(n) ? sizeof(float) * (uint64_t)n->p.act.first : 0);
}

static int do_elements(struct plan *p, struct tensor *n, struct error *err)
{
    struct gpu_spec s = {.kind = GPU_ELEMENTS, .elements = gpu_elements_of(n)};
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    add_value(p, l, n->src[0]);
    if (n->src[1])
        gpu_add_arg(l, ARG_ADDRESS, gpu_second(p, n));
    add_value(p, l, n);
    return 0;
}

// The product with a row that belongs to all rows.
static int do_gain(struct plan *p, struct tensor *n, struct error *err)
{
    struct gpu_spec s = {.kind = GPU_ELEMENTS};
    s.elements = (struct ptx_elements){
        .rows = n->rows, .width = (uint32_t)n->width, .op = PTX_GLU, .act = ACT_NONE, .b_one_row = true};
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    add_value(p, l, n->src[0]);
    if (gpu_add_floats(p, l, n->w[0]->data, n->width, err))
        return -1;
    add_value(p, l, n);
    return 0;
}

// The product of heads with a gate each.
static int do_head_glu(struct plan *p, struct tensor *n, struct error *err)
{
    struct gpu_spec s = {.kind = GPU_ELEMENTS};
    s.elements = (struct ptx_elements){.rows = n->rows,
                                       .width = (uint32_t)n->width,
                                       .op = PTX_GLU,
                                       .act = n->p.act.kind,
                                       .a_share = (uint32_t)(n->width / n->src[0]->width)};
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    add_value(p, l, n->src[0]);
    add_value(p, l, n->src[1]);
    add_value(p, l, n);
    return 0;
}

struct ptx_route gpu_route_of(const struct tensor *n)
{
    return (struct ptx_route){.rows = n->rows,
                              .experts = (uint32_t)route_choices(n),
                              .used = (uint32_t)n->p.route.n_used,
                              .kind = n->p.route.kind,
                              .normalise = n->p.route.normalise,
                              .scale = n->p.route.scale,
                              .bias = n->w[0],
                              .groups = (uint32_t)n->p.route.n_group,
                              .groups_used = (uint32_t)n->p.route.n_group_used,
                              .share = (uint32_t)n->p.route.share};
}

static int do_route(struct plan *p, struct tensor *n, struct error *err)
{
    struct gpu_spec s = {.kind = GPU_ROUTE, .route = gpu_route_of(n)};
    s.route.target = gpu_target(p->gpu);
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    add_value(p, l, n->src[0]);
    if (n->w[0] && gpu_add_floats(p, l, n->w[0]->data, n->src[0]->width, err))
        return -1;
    add_value(p, l, n);
    return 0;
}

static int do_combine(struct plan *p, struct tensor *n, struct error *err)
{
    const bool weighs = n->op == OP_EXPERT_WEIGH;
    struct gpu_spec s = {.kind = weighs ? GPU_WEIGH : GPU_COMBINE};
    s.combine = (struct ptx_combine){.rows = n->rows,
                                     .width = (uint32_t)(weighs ? n->src[0]->width : n->width),
                                     .used = (uint32_t)n->p.expert.n_used,
                                     .plain = n->p.expert.plain};
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    add_value(p, l, n->src[0]);
    add_value(p, l, n->src[1]);
    add_value(p, l, n);
    return 0;
}

static int do_quantize(struct plan *p, struct tensor *n, struct error *err)
{
    struct gpu_spec s = {.kind = n->p.quantize.form == ACT_Q8 ? GPU_QUANTIZE : GPU_HALVE};
    const uint32_t k = (uint32_t)n->p.quantize.k, parts = (uint32_t)(n->width / n->p.quantize.k);
    const uint32_t x_stride = (uint32_t)(4 * n->width), y_stride = (uint32_t)program_row_bytes(&p->program, n);
    if (s.kind == GPU_HALVE)
        s.halve = (struct ptx_halve){.type = n->p.quantize.form == ACT_BF16 ? DT_BF16 : DT_F16,
                                     .k = k,
                                     .parts = parts,
                                     .x_stride = x_stride,
                                     .y_stride = y_stride};
    else
        s.quantize = (struct ptx_quantize){.k = k, .parts = parts, .x_stride = x_stride, .y_stride = y_stride};
    struct gpu_launch *l = gpu_launch_new(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    l->rows_in_y = true;
    add_value(p, l, n->src[0]);
    add_value(p, l, n);
    gpu_add_arg(l, ARG_N_ROWS, 0);
    return 0;
}

// ---- slices and operations with state

struct ptx_slice gpu_slice_of(const struct tensor *n)
{
    const uint32_t group = (uint32_t)n->p.slice.group, from_width = (uint32_t)n->src[0]->width;
    return (struct ptx_slice){.rows = n->rows,
                              .from_width = from_width,
                              .width = (uint32_t)n->width,
                              .group = group,
                              .from = (uint32_t)n->p.slice.from,
                              .n = (uint32_t)n->width / (from_width / group)};
}

static int do_slice(struct plan *p, struct tensor *n, struct error *err)
{
    struct gpu_spec s = {.kind = GPU_SLICE, .slice = gpu_slice_of(n)};
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    add_value(p, l, n->src[0]);
    add_value(p, l, n);
    return 0;
}

struct ptx_join gpu_join_of(const struct tensor *n)
{
    return (struct ptx_join){.rows = n->rows,
                             .width = (uint32_t)n->width,
                             .first = (uint32_t)n->p.join.first,
                             .second = (uint32_t)n->p.join.second,
                             .same = n->src[1]->width == n->p.join.second};
}

static int do_join(struct plan *p, struct tensor *n, struct error *err)
{
    struct gpu_spec s = {.kind = GPU_JOIN, .join = gpu_join_of(n)};
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    add_value(p, l, n->src[0]);
    add_value(p, l, n->src[1]);
    add_value(p, l, n);
    return 0;
}

static struct ptx_state state_of(const struct plan *p, int64_t at)
{
    return (struct ptx_state){(uint32_t)at, (uint32_t)(state_bytes(p->graph) / sizeof(float))};
}

static int do_short_conv(struct plan *p, struct tensor *n, struct error *err)
{
    struct gpu_spec s = {.kind = GPU_CONV};
    s.conv = (struct ptx_conv){.width = (uint32_t)n->width,
                               .kernel = (uint32_t)n->p.conv.kernel,
                               .bias = n->w[1],
                               .state = state_of(p, n->p.conv.state)};
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    gpu_add_arg(l, ARG_STATE_FROM, 0);
    gpu_add_arg(l, ARG_STATE_TO, 0);
    add_value(p, l, n->src[0]);
    if (gpu_add_floats(p, l, n->w[0]->data, n->width * n->p.conv.kernel, err) ||
        (n->w[1] && gpu_add_floats(p, l, n->w[1]->data, n->width, err)))
        return -1;
    add_value(p, l, n);
    return 0;
}

static int do_delta_rule(struct plan *p, struct tensor *n, struct error *err)
{
    struct gpu_spec s = {.kind = GPU_DELTA};
    s.delta = (struct ptx_delta){.n_head_k = (uint32_t)n->p.delta.n_head_k,
                                 .n_head = (uint32_t)n->p.delta.n_head,
                                 .dim_k = (uint32_t)n->p.delta.dim_k,
                                 .dim_v = (uint32_t)n->p.delta.dim_v,
                                 .grouped = n->p.delta.grouped,
                                 .by_channel = n->p.delta.by_channel,
                                 .eps = n->p.delta.eps,
                                 .state = state_of(p, n->p.delta.state)};
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    gpu_add_arg(l, ARG_STATE_FROM, 0);
    gpu_add_arg(l, ARG_STATE_TO, 0);
    for (int i = 0; i < 3; i++)
        add_value(p, l, n->src[i]);
    for (int i = 0; i < 2; i++)
        if (n->w[i] && gpu_add_floats(p, l, n->w[i]->data, n->p.delta.n_head, err))
            return -1;
    add_value(p, l, n);
    return 0;
}

static int do_selective_scan(struct plan *p, struct tensor *n, struct error *err)
{
    struct gpu_spec s = {.kind = GPU_SCAN};
    s.scan = (struct ptx_scan){.n_head = (uint32_t)n->p.scan.n_head,
                               .n_group = (uint32_t)n->p.scan.n_group,
                               .dim = (uint32_t)n->p.scan.dim,
                               .n_state = (uint32_t)n->p.scan.n_state,
                               .x_width = (uint32_t)n->src[0]->width,
                               .b_width = (uint32_t)n->src[2]->width,
                               .c_width = (uint32_t)n->src[3]->width,
                               .b_at = (uint32_t)n->p.scan.b_at,
                               .c_at = (uint32_t)n->p.scan.c_at,
                               .rates = n->p.scan.rates,
                               .skip = n->w[1],
                               .state = state_of(p, n->p.scan.state)};
    struct gpu_launch *l = begin(p, n, err);
    if (!l || gpu_add_kernel(p, l, &s, 1, err))
        return -1;
    gpu_add_arg(l, ARG_STATE_FROM, 0);
    gpu_add_arg(l, ARG_STATE_TO, 0);
    for (int i = 0; i < 4; i++)
        add_value(p, l, n->src[i]);
    for (int i = 0; i < 2; i++)
        if (n->w[i] && gpu_add_floats(p, l, n->w[i]->data, n->w[i]->ne[0] * n->w[i]->ne[1], err))
            return -1;
    add_value(p, l, n);
    return 0;
}

// ---- products

uint32_t gpu_target(const struct gpu *g)
{
    const struct driver_card *card = driver_facts(g->driver);
    return (uint32_t)(10 * card->major + card->minor);
}

static uint32_t matmul_class(const struct plan *p, const struct ptx_matmul *m, uint32_t n_rows)
{
    return gpu_class_of(p->gpu, m, n_rows);
}

// Returns the bytes that the groups of any product with experts need (ptx_emit_group), for the most rows of a step.
static size_t groups_bytes(const struct plan *p)
{
    size_t bytes = 0;
    for (int i = 0; i < p->program.n; i++) {
        const struct tensor *n = p->program.nodes[i];
        uint32_t used = n->op == OP_EXPERT_MATMUL ? (uint32_t)n->p.expert.n_used : 0;
        if (used)
            bytes = MAX(bytes, ptx_group_bytes(used, (uint32_t)n->w[0]->ne[2], (uint32_t)p->max_rows[n->rows]));
    }
    return bytes;
}

static bool has_class(const struct gpu_launch *l, uint32_t class)
{
    for (int i = 0; i < l->n_kernels; i++)
        if (l->classes[i] == class)
            return true;
    return false;
}

// Adds a kernel for each class of rows of the product m that one of the plan's buckets uses: of the product itself, or of
// the launch that groups rows for it, for which a class of 1 needs none.
static int add_classes(struct plan *p, struct gpu_launch *l, const struct ptx_matmul *m, struct gpu_spec *s,
                       struct error *err)
{
    const int most = p->max_rows[l->rows]; // the last bucket, even if it is none of a plan for more rows
    l->matmul = *m;
    for (int rows = 1, before = 0; before < most; before = rows, rows = gpu_bucket_of(rows + 1, INT32_MAX)) {
        const uint32_t class = matmul_class(p, m, (uint32_t)MIN(rows, most));
        if (has_class(l, class) || (l->groups && class == 1))
            continue;
        if (l->groups)
            s->group.size = class;
        else
            s->matmul.rows = class;
        if (gpu_add_kernel(p, l, s, class, err))
            return -1;
    }
    return 0;
}

// Appends a launch that groups the rows by the experts that `route` chose, for the product m. It is not needed if
// plan.groups holds the groups of `route` already, or if no step of the plan has enough rows to use groups.
static int group_places(struct plan *p, const struct tensor *route, const struct tensor *to, const struct ptx_matmul *m,
                        struct error *err)
{
    uint32_t most = (uint32_t)p->max_rows[to->rows];
    if ((p->list->routed == route && p->list->routed_q8 == m->q8) || matmul_class(p, m, most) == 1)
        return 0;
    if (!p->groups && gpu_scratch(p, groups_bytes(p), &p->groups, err))
        return -1;
    struct gpu_spec s = {.kind = GPU_GROUP, .group = {0, to->rows, m->n_used, m->n_experts, m->ids_stride, 0}};
    struct gpu_launch *l = gpu_launch_new(p, to, err);
    if (!l)
        return -1;
    l->groups = true;
    if (add_classes(p, l, m, &s, err))
        return -1;
    gpu_add_arg(l, ARG_STEP, 0);
    gpu_add_arg(l, ARG_ADDRESS, gpu_value(p, route) + 4 * m->n_used);
    gpu_add_arg(l, ARG_ADDRESS, p->groups);
    gpu_add_arg(l, ARG_N_ROWS, 0);
    p->list->routed = route;
    p->list->routed_q8 = m->q8;
    return 0;
}

// Appends the product n. Its result, plus `residual` unless that is NULL, is stored as the value of `to`.
static int product(struct plan *p, struct tensor *n, const struct tensor *residual, const struct tensor *to,
                   struct error *err)
{
    const struct weight *w = n->w[0];
    const struct tensor *x = n->src[0], *route = n->op == OP_EXPERT_MATMUL ? n->src[1] : NULL;
    uint32_t used = route ? (uint32_t)n->p.expert.n_used : 0;
    const bool rounded = x->op == OP_QUANTIZE, q8 = rounded && x->p.quantize.form == ACT_Q8;
    size_t x_row = rounded ? program_row_bytes(&p->program, x) : 4 * (size_t)x->width;
    struct gpu_spec s = {.kind = GPU_MATMUL};
    s.matmul = (struct ptx_matmul){.type = w->type,
                                   .n_in = (uint32_t)w->ne[0],
                                   .n_out = (uint32_t)w->ne[1],
                                   .rows = 1,
                                   .target = gpu_target(p->gpu),
                                   .q8 = q8,
                                   .halves = rounded && !q8,
                                   .bias = n->w[1],
                                   .residual = residual,
                                   .scale = route && w->scale,
                                   .x_stride = (uint32_t)x_row,
                                   .y_stride = (uint32_t)(4 * n->width),
                                   .residual_stride = residual ? (uint32_t)(4 * n->width) : 0,
                                   .n_used = used,
                                   .n_experts = used ? (uint32_t)w->ne[2] : 0,
                                   .x_part = used && !n->p.expert.shared ? (uint32_t)(x_row / used) : 0,
                                   .ids_stride = used ? 8 * used : 0};
    if (route && group_places(p, route, to, &s.matmul, err))
        return -1;
    struct gpu_launch *l = gpu_launch_new(p, to, err);
    if (!l)
        return -1;
    l->rows_in_y = true;
    add_value(p, l, x);
    if (gpu_add_tiles(p, l, w, err))
        return -1;
    add_value(p, l, to);
    if (n->w[1] ? gpu_add_floats(p, l, n->w[1]->data, w->ne[1] * w->ne[2], err) : (gpu_add_arg(l, ARG_ADDRESS, 0), 0))
        return -1;
    gpu_add_arg(l, ARG_ADDRESS, residual ? gpu_value(p, residual) : 0);
    gpu_add_arg(l, ARG_PLACES, route ? gpu_value(p, route) + 4 * used : 0);
    if (s.matmul.scale ? gpu_add_floats(p, l, w->scale, w->ne[2], err) : (gpu_add_arg(l, ARG_ADDRESS, 0), 0))
        return -1;
    gpu_add_arg(l, ARG_N_ROWS, 0);
    if (gpu_join_sections(p, l, n, &s.matmul, err))
        return -1;
    const struct ptx_matmul m = s.matmul;
    return add_classes(p, l, &m, &s, err);
}

static int do_matmul(struct plan *p, struct tensor *n, struct error *err)
{
    const bool joined = p->list == &p->lists[GPU_ANY_ROWS] && p->first[n->id] && p->first[n->id] != n;
    return p->into[n->id] || joined ? 0 : product(p, n, NULL, n, err);
}

// If one term of the sum is a product that nothing else reads, the product's kernel adds the other term.
static int do_add(struct plan *p, struct tensor *n, struct error *err)
{
    for (int i = 0; i < 2; i++)
        if (p->into[n->src[i]->id] == n)
            return product(p, n->src[i], n->src[1 - i], n, err);
    return do_elements(p, n, err);
}

// Measures the classes of a product for each bucket, and adds the kernels of those that were chosen.
static int tune_launch(struct plan *p, struct gpu_launch *l, struct error *err)
{
    const int most = p->max_rows[l->rows];
    uint64_t tiles[PTX_SECTIONS];
    gpu_tiles_of(l, tiles);
    for (int rows = 1, before = 0; before < most; before = rows, rows = gpu_bucket_of(rows + 1, INT32_MAX)) {
        const uint32_t bucket = (uint32_t)MIN(rows, most);
        struct gpu_spec s = {.kind = GPU_MATMUL, .matmul = l->matmul};
        if (gpu_tune(p->gpu, &l->matmul, tiles, bucket, err))
            return -1;
        s.matmul.rows = matmul_class(p, &l->matmul, bucket);
        if (!has_class(l, s.matmul.rows) && gpu_add_kernel(p, l, &s, s.matmul.rows, err))
            return -1;
    }
    return 0;
}

int gpu_tune_products(struct plan *p, struct error *err)
{
    const struct gpu_list *list = &p->lists[GPU_ANY_ROWS];
    for (int i = 0; i < list->n_launches; i++) {
        struct gpu_launch *l = &list->launches[i];
        if (l->matmul.n_in && !l->matmul.n_used && tune_launch(p, l, err))
            return -1;
    }
    return 0;
}

int gpu_node(struct plan *p, struct tensor *n, struct error *err)
{
    typedef int do_fn(struct plan * p, struct tensor * n, struct error * err);
    static do_fn *const table[OP_COUNT] = {
        [OP_EMBED] = do_embed,
        [OP_ROWS] = do_rows,
        [OP_ROPE_TABLE] = do_rope_table,
        [OP_NORM] = do_norm,
        [OP_MATMUL] = do_matmul,
        [OP_ROPE] = do_rope,
        [OP_KV_WRITE] = do_kv_write,
        [OP_ATTENTION] = do_attention,
        [OP_ACT] = do_elements,
        [OP_GLU] = do_elements,
        [OP_ADD] = do_add,
        [OP_SCALE] = do_elements,
        [OP_SOFTCAP] = do_elements,
        [OP_CLAMP] = do_elements,
        [OP_XIELU] = do_elements,
        [OP_GAIN] = do_gain,
        [OP_HEAD_GLU] = do_head_glu,
        [OP_ROUTE] = do_route,
        [OP_EXPERT_MATMUL] = do_matmul,
        [OP_EXPERT_COMBINE] = do_combine,
        [OP_EXPERT_WEIGH] = do_combine,
        [OP_QUANTIZE] = do_quantize,
        [OP_SLICE] = do_slice,
        [OP_JOIN] = do_join,
        [OP_SHORT_CONV] = do_short_conv,
        [OP_DELTA_RULE] = do_delta_rule,
        [OP_SELECTIVE_SCAN] = do_selective_scan,
    };
    struct error why = {0};
    if (!table[n->op])
        return fail(err, E_GPU, "%s: the GPU machine has no kernel for %s", n->name, op_name(n->op));
    if (table[n->op](p, n, &why))
        return fail(err, why.code, "%s: %s on the GPU: %s", n->name, op_name(n->op), why.text);
    return 0;
}
