// Builds the list of launches for a step of one row: few launches, each of which computes many nodes.
//
// The products of one row of activations form one launch, a stage, together with the nodes that compute that row
// before them (the prologue) and the nodes that use only columns of their results after them (emit_fused.h). Nothing
// here depends on a particular model; what becomes part of a stage follows from the program:
//   - Products that share their source are sections of one stage, at the position of the first of them.
//   - After them, in order, comes every node that needs only columns of one unit and values that exist before the
//     stage: sums, gates, norms of heads, rotary positions, writes to the KV cache. A node that needs two sections
//     merges them.
//   - The prologue has norms of the whole row, element-wise functions and the rounding to 8 bits. Every CTA (thread
//     block) of the stage computes it for itself, so that these nodes need no launch. Other launches may read such a
//     value too. If all of them come after the first stage that computes it, a CTA of that stage stores it for them.
//     Otherwise, and always for 8-bit rows that several launches read, the node has a launch of its own.
// Every other node has a launch of its own. The row that OP_ROWS picks is the only row of the step, so that its value
// is the value of its source.
//
// A position is the number of a node in the program. Launches keep that order; a stage has the number of its first
// product.
#include "kernels/ptx/gpu.h"

enum { NEVER = INT32_MAX, VALUE_ALIGN = 256, SUMS_MAX = 256, THREADS_AN_SM = 640, EDGES_FROM = 12030 };

struct section {
    struct tensor *nodes[FUSED_NODES]; // in order of the program
    int n_nodes, n_legs;               // legs: products
    int room;                          // nodes of the kernel, those that load values included; at most FUSED_NODES
    int64_t width;                     // columns
    uint32_t unit;                     // columns that a CTA computes at a time
};
struct stage {
    int at; // its position
    enum rows rows;
    struct tensor *x; // the products' source, called the stage's row
    int params;       // an upper bound of its kernel's parameters, those of the prologue's nodes not counted
    bool plain;       // the row is read from memory, because the kernel has no room for a prologue that computes it
    int n_sections;
    struct section sections[FUSED_SECTIONS];
};

enum how {
    LAUNCHED, // by a launch of its own
    PICKED,   // by no launch: it is the same as its source
    MADE,     // in a section of a stage
    INLINED,  // only in the prologue of the one stage that needs it
    CARRIED,  // in the prologue of the first stage that needs it, which stores it for all later readers
};
// How and where a node is computed, and who reads it.
struct fate {
    enum how how;
    struct stage *stage;       // the stage that computes it: MADE, CARRIED
    int made;                  // position from which on its value is in memory
    int memory, last;          // first and last position at which it is read from memory; NEVER and -1: none
    int inlined, last_inlined; // positions of the first and last stage that could compute it in their prologue
    struct stage *first;       // the first of these stages
};
struct fusion {
    struct plan *p;
    struct stage **stages; // [program.n] the stage whose first product is this node; NULL: none
    struct fate *fates;    // [program.n]
};

// ---- nodes

static struct tensor *root_of(struct tensor *n)
{
    while (n->op == OP_ROWS)
        n = n->src[0];
    return n;
}

static struct fate *fate_of(const struct fusion *u, const struct tensor *n)
{
    return &u->fates[n->id];
}

static bool is_element(const struct tensor *n)
{
    return op_class(n->op) == CLASS_ELEMENT;
}

static bool norms_row(const struct tensor *n)
{
    return n->op == OP_NORM && (!n->p.norm.group || n->p.norm.group == n->width);
}

static bool is_row_work(const struct tensor *n)
{
    return (is_element(n) && !gpu_takes_part(n)) || norms_row(n) || n->op == OP_QUANTIZE;
}

// ---- stages

static int section_of(const struct stage *s, const struct tensor *n)
{
    for (int i = 0; i < s->n_sections; i++)
        for (int j = 0; j < s->sections[i].n_nodes; j++)
            if (s->sections[i].nodes[j] == n)
                return i;
    return -1;
}

static void put_node(struct fusion *u, struct stage *s, struct section *to, struct tensor *n, int room)
{
    int at = to->n_nodes++;
    for (; at && to->nodes[at - 1]->id > n->id; at--)
        to->nodes[at] = to->nodes[at - 1];
    to->nodes[at] = n;
    to->room += room;
    struct fate *f = fate_of(u, n);
    f->how = MADE;
    f->stage = s;
    f->made = s->at;
}

// Returns the unit that the section needs with n added to it, or 0 if n cannot be added. A unit holds whole groups of
// a norm, and whole heads if the pairs of a rotation lie half a head apart.
static uint32_t unit_with(const struct section *s, const struct tensor *n)
{
    uint32_t unit = s->unit;
    if (n->op == OP_NORM) {
        int64_t group = n->p.norm.group;
        if (!group || n->p.norm.by_column || group > FUSED_UNIT || (group % 32 && 32 % group))
            return 0;
        unit = (uint32_t)common_multiple(unit, group);
    } else if (n->op == OP_ROPE) {
        if (n->p.rope.head_dim > FUSED_UNIT || n->p.rope.head_dim % 2)
            return 0;
        if (n->p.rope.layout == ROPE_NEOX)
            unit = (uint32_t)common_multiple(unit, n->p.rope.head_dim);
    } else if (n->op != OP_KV_WRITE && !is_element(n)) {
        return 0;
    }
    return unit <= FUSED_UNIT && (unit == PTX_TILE_ROWS || s->width % unit == 0) ? unit : 0;
}

// Returns whether the partial sums of a unit fit in shared memory. With 8-bit activations there is a set of 32 floats
// for each block of 256 elements of the row, each leg and each tile of 32 columns; SUMS_MAX sets take 32 KB.
static bool sums_fit(const struct stage *s, int n_legs, uint32_t unit)
{
    int64_t blocks = (s->x->width + 255) / 256;
    return s->x->op != OP_QUANTIZE || s->x->p.quantize.form != ACT_Q8 ||
           blocks * n_legs * (unit / PTX_TILE_ROWS) <= SUMS_MAX;
}

static void merge(struct fusion *u, struct stage *s, int to, int from)
{
    struct section *a = &s->sections[to], *b = &s->sections[from];
    for (int i = 0; i < b->n_nodes; i++)
        put_node(u, s, a, b->nodes[i], 0);
    a->room += b->room;
    a->n_legs += b->n_legs;
    a->unit = (uint32_t)common_multiple(a->unit, b->unit);
    for (int i = from; i + 1 < s->n_sections; i++)
        s->sections[i] = s->sections[i + 1];
    s->n_sections--;
}

static bool can_merge(const struct section *a, const struct section *b)
{
    uint32_t unit = (uint32_t)common_multiple(a->unit, b->unit);
    return a->width == b->width && a->n_legs + b->n_legs <= FUSED_LEGS && unit <= FUSED_UNIT &&
           (unit == PTX_TILE_ROWS || a->width % unit == 0);
}

// Finds the sections that compute n's sources, and counts the sources that n would load from memory instead. in[1] is
// a section; in[0] is -1 or an earlier section. Returns false if no source is in a section, or if another source is not
// in memory before the stage begins. A source of which n takes a part must be in memory.
static bool find_sources(const struct fusion *u, const struct stage *s, const struct tensor *n, int in[2], int *loads)
{
    in[0] = in[1] = -1;
    *loads = 0;
    for (int i = 0; i < 2 && n->src[i]; i++) {
        struct tensor *src = root_of(n->src[i]);
        in[i] = section_of(s, src);
        *loads += in[i] < 0;
        if (in[i] < 0 ? fate_of(u, src)->made >= s->at : src->op == OP_KV_WRITE || (i && gpu_takes_part(n)))
            return false;
    }
    if (in[0] > in[1] || in[0] == in[1]) {
        int more = in[0];
        in[0] = in[0] == in[1] ? -1 : in[1];
        in[1] = more;
    }
    return in[1] >= 0;
}

// Adds n to the section that computes its source, if it is possible. If two sections compute its sources, they are
// merged.
static void absorb(struct fusion *u, struct stage *s, struct tensor *n)
{
    int in[2], loads;
    if (n->rows != s->rows || fate_of(u, n)->how != LAUNCHED || !find_sources(u, s, n, in, &loads) ||
        (n->op == OP_ROPE && section_of(s, root_of(n->src[0])) < 0))
        return;
    struct section *to = &s->sections[in[1]], *other = in[0] < 0 ? NULL : &s->sections[in[0]];
    int room = to->room + (other ? other->room : 0) + 1 + loads;
    int params = s->params + loads + 1 + (n->op == OP_NORM ? 2 : 0);
    uint32_t unit = unit_with(to, n);
    if (room > FUSED_NODES || params > FUSED_PARAMS || !unit || (n->op != OP_KV_WRITE && n->width != to->width) ||
        (other && !can_merge(to, other)))
        return;
    if (other)
        unit = (uint32_t)common_multiple(unit, other->unit);
    if (!sums_fit(s, to->n_legs + (other ? other->n_legs : 0), unit))
        return;
    if (other)
        merge(u, s, in[0], in[1]);
    to = other ? other : to;
    to->unit = unit;
    s->params = params;
    put_node(u, s, to, n, 1 + loads);
}

// Forms the stage whose first product is `first`. *out becomes NULL if the sums do not fit in shared memory; the
// product then has a launch of its own.
static int stage_new(struct fusion *u, struct tensor *first, struct stage **out, struct error *err)
{
    struct plan *p = u->p;
    struct stage *s = *out = ARENA_NEW(&p->arena, struct stage);
    if (!s)
        return fail(err, E_MEMORY, "no memory for a plan");
    *s = (struct stage){.at = first->id, .rows = first->rows, .x = root_of(first->src[0]), .params = 1};
    if (!sums_fit(s, 1, PTX_TILE_ROWS)) {
        *out = NULL;
        return 0;
    }
    for (int i = first->id; i < p->program.n && s->n_sections < FUSED_SECTIONS; i++) {
        struct tensor *n = p->program.nodes[i];
        if (n->op != OP_MATMUL || n->rows != s->rows || root_of(n->src[0]) != s->x ||
            n->w[0]->ne[0] != first->w[0]->ne[0] || fate_of(u, n)->how != LAUNCHED)
            continue;
        struct section *to = &s->sections[s->n_sections++];
        *to = (struct section){.n_legs = 1, .width = n->width, .unit = PTX_TILE_ROWS};
        put_node(u, s, to, n, 1);
        s->params += 3; // weights, bias, and the address at which the sum is stored
    }
    for (int i = first->id; i < p->program.n; i++)
        absorb(u, s, p->program.nodes[i]);
    return 0;
}

static int form_stages(struct fusion *u, struct error *err)
{
    for (int i = 0; i < u->p->program.n; i++) {
        struct tensor *n = u->p->program.nodes[i];
        if (n->op == OP_MATMUL && fate_of(u, n)->how == LAUNCHED && stage_new(u, n, &u->stages[i], err))
            return -1;
    }
    return 0;
}

// ---- the description of a stage's kernel, built from the fates of nodes. With a launch, its arguments are added as
// well; without one, only the description is built, to find out whether it fits.

struct builder {
    struct fusion *u;
    const struct stage *stage;
    struct gpu_launch *l; // NULL: only the description
    struct ptx_fused *f;
    struct tensor *rows[FUSED_NODES]; // the node that each entry of f->prologue computes or loads
    bool full;                        // there are too many nodes or parameters
};

// Counts a parameter and returns its number. Sets `full` if there are too many.
static int added(struct builder *b)
{
    b->full = b->full || b->f->n_params == FUSED_PARAMS;
    return b->full ? 0 : b->f->n_params++;
}

static int address_param(struct builder *b, uint64_t address)
{
    if (b->l && b->f->n_params < FUSED_PARAMS)
        gpu_add_arg(b->l, ARG_ADDRESS, address);
    return added(b);
}

static int value_param(struct builder *b, const struct tensor *n)
{
    return address_param(b, gpu_value(b->u->p, n));
}

static int floats_param(struct builder *b, const struct weight *w, int64_t n, int *param, struct error *err)
{
    *param = -1;
    if (!w)
        return 0;
    if (b->l && b->f->n_params < FUSED_PARAMS && gpu_add_floats(b->u->p, b->l, w->data, n, err))
        return -1;
    *param = added(b);
    return 0;
}

static int tiles_param(struct builder *b, const struct weight *w, int *param, struct error *err)
{
    if (b->l && b->f->n_params < FUSED_PARAMS && gpu_add_tiles(b->u->p, b->l, w, err))
        return -1;
    *param = added(b);
    return 0;
}

static int norm_params(struct builder *b, const struct tensor *n, struct ptx_fused_node *to, struct error *err)
{
    int64_t group = n->p.norm.group ? n->p.norm.group : n->width;
    to->kind = FUSED_NORM;
    to->norm.kind = n->p.norm.kind;
    to->norm.group = (uint32_t)group;
    to->norm.eps = n->p.norm.eps;
    return floats_param(b, n->w[0], group, &to->param, err) || floats_param(b, n->w[1], group, &to->other, err) ? -1
                                                                                                                : 0;
}

static bool in_prologue(const struct builder *b, const struct tensor *n)
{
    const struct fate *f = fate_of(b->u, n);
    return f->how == INLINED || (f->how == CARRIED && f->stage == b->stage);
}

// Sets *at to the index of n in the prologue. Adds n and everything that it needs, unless they are there already;
// values that other launches compute are loaded from memory.
static int row_node(struct builder *b, struct tensor *n, int *at, struct error *err)
{
    struct ptx_fused_node to = {.param = -1, .other = -1, .store = -1};
    n = root_of(n);
    for (*at = 0; *at < b->f->n_prologue; ++*at)
        if (b->rows[*at] == n)
            return 0;
    if (!in_prologue(b, n)) {
        to.kind = FUSED_LOAD;
        to.param = value_param(b, n);
    } else {
        if (row_node(b, n->src[0], &to.a, err) || (n->src[1] && row_node(b, n->src[1], &to.b, err)))
            return -1;
        if (n->op == OP_NORM) {
            if (norm_params(b, n, &to, err))
                return -1;
        } else {
            to.kind = FUSED_ELEMENT;
            to.element = gpu_elements_of(n);
        }
        if (fate_of(b->u, n)->how == CARRIED)
            to.store = value_param(b, n);
    }
    b->full = b->full || b->f->n_prologue == FUSED_NODES;
    *at = b->full ? 0 : b->f->n_prologue++;
    b->rows[*at] = n;
    b->f->prologue[*at] = to;
    return 0;
}

static int build_prologue(struct builder *b, struct error *err)
{
    struct tensor *x = b->stage->x;
    int at;
    b->f->q8 = x->op == OP_QUANTIZE && x->p.quantize.form == ACT_Q8;
    b->f->halves = x->op == OP_QUANTIZE && !b->f->q8;
    if (!in_prologue(b, x)) {
        b->f->source = value_param(b, x);
        return 0;
    }
    return row_node(b, x->op == OP_QUANTIZE ? x->src[0] : x, &at, err);
}

// ---- the description of a section

static int add_leg(struct builder *b, struct ptx_fused_section *to, const struct tensor *n, struct ptx_fused_node *node,
                   struct error *err)
{
    struct ptx_fused_leg *leg = &to->legs[to->n_legs];
    leg->type = n->w[0]->type;
    node->kind = FUSED_SUM;
    node->a = to->n_legs++;
    return tiles_param(b, n->w[0], &leg->w, err) || floats_param(b, n->w[1], n->width, &leg->bias, err) ? -1 : 0;
}

// Adds a node that loads a value from memory to the section. made: the node of the program that each node of the section
// computes or loads whole.
static int column_load(struct builder *b, struct ptx_fused_section *to, struct tensor **made, struct tensor *whole,
                       uint64_t address)
{
    if (to->n_nodes == FUSED_NODES) {
        b->full = true;
        return 0;
    }
    made[to->n_nodes] = whole;
    to->nodes[to->n_nodes] = (struct ptx_fused_node){.kind = FUSED_LOAD, .other = -1, .store = -1};
    to->nodes[to->n_nodes].param = address_param(b, address);
    return to->n_nodes++;
}

// Returns the index of source i of n among the section's nodes; it is loaded if it is not there.
static int column_source(struct builder *b, struct ptx_fused_section *to, struct tensor **made, const struct tensor *n,
                         int i)
{
    struct tensor *src = root_of(n->src[i]);
    if (i && gpu_takes_part(n))
        return column_load(b, to, made, NULL, gpu_second(b->u->p, n));
    for (int j = 0; j < to->n_nodes; j++)
        if (made[j] == src)
            return j;
    return column_load(b, to, made, src, gpu_value(b->u->p, src));
}

// The layer's offset in a page is a parameter of the kernel, so that equal layers share a kernel.
static int kv_param(struct builder *b, const struct tensor *n, struct ptx_fused_node *to, struct error *err)
{
    if (gpu_kv_of(b->u->p, n, n->p.kv.layer, n->p.kv.part, (int)n->p.kv.head_dim, &to->kv, err))
        return -1;
    if (b->l && b->f->n_params < FUSED_PARAMS)
        gpu_add_arg(b->l, ARG_ADDRESS, to->kv.offset);
    to->kv.offset = 0;
    to->param = added(b);
    return 0;
}

static int column_params(struct builder *b, const struct tensor *n, struct ptx_fused_node *to, struct error *err)
{
    switch (n->op) {
    case OP_NORM:
        return norm_params(b, n, to, err);
    case OP_ROPE:
        to->kind = FUSED_ROPE;
        to->rope.head_dim = (uint32_t)n->p.rope.head_dim;
        to->rope.pairs = (uint32_t)n->src[1]->p.rope_table.n_pairs;
        to->rope.layout = n->p.rope.layout;
        to->param = value_param(b, n->src[1]);
        return 0;
    case OP_KV_WRITE:
        to->kind = FUSED_KV;
        return kv_param(b, n, to, err);
    default:
        to->kind = FUSED_ELEMENT;
        to->element = gpu_elements_of(n);
        return 0;
    }
}

static int build_section(struct builder *b, const struct section *s, struct ptx_fused_section *to, struct error *err)
{
    struct tensor *made[FUSED_NODES];
    to->n_out = (uint32_t)s->width;
    to->unit = s->unit;
    for (int i = 0; i < s->n_nodes; i++) {
        struct tensor *n = s->nodes[i];
        struct ptx_fused_node node = {.param = -1, .other = -1, .store = -1};
        if (n->op == OP_MATMUL) {
            if (add_leg(b, to, n, &node, err))
                return -1;
        } else {
            node.a = column_source(b, to, made, n, 0);
            if (n->src[1] && n->op != OP_ROPE)
                node.b = column_source(b, to, made, n, 1);
            if (column_params(b, n, &node, err))
                return -1;
        }
        if (n->op != OP_KV_WRITE && fate_of(b->u, n)->last >= 0)
            node.store = value_param(b, n);
        b->full = b->full || to->n_nodes == FUSED_NODES;
        if (b->full)
            return 0;
        made[to->n_nodes] = n;
        to->nodes[to->n_nodes++] = node;
    }
    return 0;
}

static int build(struct builder *b, struct error *err)
{
    const struct stage *s = b->stage;
    *b->f = (struct ptx_fused){.n_in = (uint32_t)s->sections[0].nodes[0]->w[0]->ne[0]};
    if (build_prologue(b, err))
        return -1;
    for (int i = 0; i < s->n_sections; i++)
        if (build_section(b, &s->sections[i], &b->f->sections[b->f->n_sections++], err))
            return -1;
    return 0;
}

// ---- fates. They are settled from the last node to the first, so that all readers of a node are known before its own
// fate is.

// Notes that n is read from memory, between the positions `first` and `last`.

static void read_memory(struct fusion *u, struct tensor *n, int first, int last)
{
    struct fate *f = fate_of(u, root_of(n));
    f->memory = MIN(f->memory, first);
    f->last = MAX(f->last, last);
}

// Notes that the prologues of stages from `first` to position `last` need n. They could compute it themselves if it is
// work on the whole row that no section does.
static void read_inline(struct fusion *u, struct tensor *n, struct stage *first, int last)
{
    n = root_of(n);
    struct fate *f = fate_of(u, n);
    if (!is_row_work(n) || f->how == MADE) {
        read_memory(u, n, first->at, last);
        return;
    }
    if (first->at < f->inlined) {
        f->inlined = first->at;
        f->first = first;
    }
    f->last_inlined = MAX(f->last_inlined, last);
}

// Notes what a node of a section reads. A product reads the stage's row: in the prologue, or from memory in a plain
// stage. Any other node reads from memory what its stage does not compute.
static void read_made(struct fusion *u, struct tensor *n)
{
    struct stage *s = fate_of(u, n)->stage;
    if (n->op == OP_MATMUL) {
        if (s->plain)
            read_memory(u, s->x, s->at, s->at);
        else
            read_inline(u, s->x, s, s->at);
        return;
    }
    for (int i = 0; i < SRC_MAX; i++)
        if (n->src[i] && section_of(s, root_of(n->src[i])) < 0)
            read_memory(u, n->src[i], s->at, s->at);
}

// Decides where n is computed, and notes what it reads. A value that one prologue alone needs is INLINED. A value that
// others read as well is CARRIED by the first stage, if that comes before all other readers. The 8-bit rows of
// OP_QUANTIZE are never stored by a prologue.
static void settle(struct fusion *u, struct tensor *n)
{
    struct fate *f = fate_of(u, n);
    if (n->op == OP_ROWS) {
        f->how = PICKED;
        return;
    }
    if (f->how == MADE) {
        read_made(u, n);
        return;
    }
    bool inlined = f->inlined != NEVER, once = f->inlined == f->last_inlined;
    bool first = f->inlined < f->memory && f->first && f->first->rows == n->rows;
    if (inlined && once && f->memory == NEVER)
        f->how = INLINED;
    else if (inlined && first && n->op != OP_QUANTIZE)
        f->how = CARRIED;
    int last = f->last_inlined;
    if (f->how == CARRIED) {
        f->stage = f->first;
        f->made = last = f->first->at;
    }
    if (f->how != INLINED)
        f->last = MAX(f->last, f->last_inlined);
    for (int i = 0; i < SRC_MAX; i++) {
        if (!n->src[i])
            continue;
        if (f->how == LAUNCHED)
            read_memory(u, n->src[i], n->id, n->id);
        else
            read_inline(u, n->src[i], f->first, last);
    }
}

static void settle_all(struct fusion *u)
{
    int n = u->p->program.n;
    for (int i = 0; i < n; i++) {
        struct fate *f = &u->fates[i], fresh = {.made = i};
        if (f->how == MADE)
            fresh = (struct fate){.how = MADE, .stage = f->stage, .made = f->made};
        fresh.memory = fresh.inlined = NEVER;
        fresh.last = fresh.last_inlined = -1;
        *f = fresh;
    }
    read_memory(u, u->p->program.logits, n, n);
    for (int i = n - 1; i >= 0; i--)
        settle(u, u->p->program.nodes[i]);
}

// Makes the stage plain and returns true if its kernel has no room for the prologue. What the prologue would have
// computed may then go to another stage, and be too much for it.
static bool overflows(struct fusion *u, struct stage *s)
{
    struct ptx_fused f;
    struct builder b = {.u = u, .stage = s, .f = &f};
    struct error none = {0};
    if (s->plain || build(&b, &none)) // launch_stage reports the error
        return false;
    s->plain = b.full || !ptx_fused_fits(&f);
    return s->plain;
}

// Settles all fates anew until no further stage becomes plain.
static void settle_stages(struct fusion *u)
{
    bool again = true;
    while (again) {
        settle_all(u);
        again = false;
        for (int i = 0; i < u->p->program.n; i++)
            again = (u->stages[i] && overflows(u, u->stages[i])) || again;
    }
}

// ---- values

static size_t value_bytes(const struct fusion *u, const struct tensor *n)
{
    const struct fate *f = fate_of(u, n);
    if (n->op == OP_KV_WRITE || f->how == PICKED || f->how == INLINED || f->last < 0)
        return 0;
    return align_up(program_row_bytes(&u->p->program, n), VALUE_ALIGN);
}

// Returns the lowest offset at which n's value overlaps no value of an earlier node that is live at the same time. A
// value is live from position `made` to position `last`, both included.
static size_t find_offset(const struct fusion *u, const struct tensor *n)
{
    const struct fate *f = fate_of(u, n);
    const size_t *offsets = u->p->list->offsets;
    size_t at = 0, size = value_bytes(u, n);
    for (int i = 0; size && i < n->id; i++) {
        const struct tensor *m = u->p->program.nodes[i];
        const struct fate *g = fate_of(u, m);
        size_t bytes = value_bytes(u, m);
        if (!bytes || g->last < f->made || f->last < g->made || offsets[i] + bytes <= at || at + size <= offsets[i])
            continue;
        at = offsets[i] + bytes;
        i = -1;
    }
    return at;
}

static void place_values(struct fusion *u)
{
    struct plan *p = u->p;
    for (int i = 0; i < p->program.n; i++) {
        const struct tensor *n = p->program.nodes[i];
        if (n->op == OP_ROWS)
            p->list->offsets[i] = p->list->offsets[root_of(n->src[0])->id];
        else
            p->list->offsets[i] = find_offset(u, n);
        p->values_bytes = MAX(p->values_bytes, p->list->offsets[i] + value_bytes(u, n));
    }
}

int gpu_fuse(struct plan *p, struct error *err)
{
    size_t n = (size_t)p->program.n;
    struct fusion *u = p->fusion = ARENA_NEW(&p->arena, struct fusion);
    struct gpu_list *list = &p->lists[GPU_ONE_ROW];
    list->offsets = ARENA_ARRAY(&p->arena, size_t, n);
    if (!u || !list->offsets || !(u->stages = ARENA_ARRAY(&p->arena, struct stage *, n)) ||
        !(u->fates = ARENA_ARRAY(&p->arena, struct fate, n)))
        return fail(err, E_MEMORY, "no memory for a plan of %zu nodes", n);
    u->p = p;
    for (int i = 0; i < (int)n; i++)
        u->fates[i] = (struct fate){.made = i};
    if (form_stages(u, err))
        return -1;
    settle_stages(u);
    p->list = list;
    place_values(u);
    p->list = &p->lists[GPU_ANY_ROWS];
    return 0;
}

// ---- launches

// Returns how many CTAs the GPU runs at once: at 96 registers a thread, 640 threads a multiprocessor. More of them
// would not help, because each CTA computes the row anew. Beside a CTA with a ring there is room for one of the next
// launch.
static uint32_t most_ctas(const struct plan *p, const struct gpu_kernel *k, const struct ptx_fused *f)
{
    uint32_t n_sm = (uint32_t)MAX(driver_facts(p->gpu->driver)->n_sm, 1);
    if (f->variant == FUSED_RING && f->dependent)
        return n_sm;
    return n_sm * MAX(1u, THREADS_AN_SM / k->launch.block[0]);
}

// Chooses the variant: the one that the machine's options name, or the last one that the kernel has.
static void choose_variant(const struct plan *p, struct ptx_fused *f)
{
    const struct driver_card *card = driver_facts(p->gpu->driver);
    f->target = (uint32_t)(10 * card->major + card->minor);
    f->variant = (enum ptx_fused_variant)MIN((uint32_t)MAX(p->gpu->variant, 0), ptx_fused_variants(f) - 1);
}

bool gpu_starts_early(const struct plan *p)
{
    const struct driver_card *card = driver_facts(p->gpu->driver);
    return card->major >= 9 && card->version >= EDGES_FROM;
}

static int launch_stage(struct fusion *u, const struct stage *s, struct error *err)
{
    struct plan *p = u->p;
    const struct section *last = &s->sections[s->n_sections - 1];
    struct gpu_spec spec = {.kind = GPU_FUSED};
    struct gpu_launch *l = gpu_launch_new(p, last->nodes[last->n_nodes - 1], err);
    if (!l)
        return -1;
    struct builder b = {.u = u, .stage = s, .l = l, .f = &spec.fused};
    l->rows = s->rows;
    gpu_add_arg(l, ARG_STEP, 0);
    gpu_add_arg(l, ARG_POSITIONS, 0);
    gpu_add_arg(l, ARG_PAGES, 0);
    if (build(&b, err))
        return -1;
    spec.fused.dependent = l->dependent = gpu_starts_early(p);
    choose_variant(p, &spec.fused);
    if (gpu_add_kernel(p, l, &spec, 1, err))
        return -1;
    l->most_ctas = most_ctas(p, l->kernels[0], &spec.fused);
    return b.full ? fail(err, E_GPU, "%s: more values than a kernel has room for", l->node->name) : 0;
}

// Nodes with a launch of their own are built by gpu_node as for a plan of one row, in which no product adds a residual
// (p->into is empty).
int gpu_fuse_launches(struct plan *p, struct error *err)
{
    struct fusion *u = p->fusion;
    struct tensor **into = p->into;
    const int most[ROWS_KINDS] = {p->max_rows[ROWS_TOKENS], p->max_rows[ROWS_OUTPUTS]};
    int status = 0;
    p->list = &p->lists[GPU_ONE_ROW];
    p->max_rows[ROWS_TOKENS] = p->max_rows[ROWS_OUTPUTS] = 1;
    if (!(p->into = ARENA_ARRAY(&p->arena, struct tensor *, (size_t)p->program.n)))
        status = fail(err, E_MEMORY, "no memory for a plan");
    for (int i = 0; i < p->program.n && !status; i++) {
        if (u->stages[i])
            status = launch_stage(u, u->stages[i], err);
        else if (u->fates[i].how == LAUNCHED)
            status = gpu_node(p, p->program.nodes[i], err);
    }
    // The first launch has none ahead of it.
    for (int i = 1; i < p->list->n_launches; i++)
        p->list->launches[i].dependent |= p->list->launches[i].early;
    p->into = into;
    p->list = &p->lists[GPU_ANY_ROWS];
    memcpy(p->max_rows, most, sizeof most);
    return status;
}
