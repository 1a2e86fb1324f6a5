// Builds the list of launches for a step of one row: few launches, each of which computes many nodes.
//
// The products of one row of activations form one launch, a stage, together with the nodes that compute that row
// before them (the prologue) and the nodes that use only columns of their results after them (emit_fused.h). Nothing
// here depends on a particular model; what becomes part of a stage follows from the program:
//   - Products that share their source are sections of one stage, at the position of the first of them: those with
//     plain matrices, and those with the matrices of experts that were chosen before.
//   - After them, in order, comes every node that needs only columns of one unit and values that exist before the
//     stage: sums, gates, norms of heads, rotary positions, writes to the KV cache. A node that needs two sections
//     merges them. The sum of the weighed products of experts takes the place of the products, if nothing else reads
//     those.
//   - Last comes the choice of experts by values of a section, which the last CTA makes.
//   - The prologue has norms of the whole row, element-wise functions and the rounding to 8 bits. Every CTA (thread
//     block) of the stage computes it for itself, so that these nodes need no launch. Other launches may read such a
//     value too. If all of them come after the first stage that computes it, a CTA of that stage stores it for them.
//     Otherwise the node has a launch of its own. A rounded row is never stored: each stage rounds it for itself, unless
//     other launches read it.
// Every other node has a launch of its own, unless it is one of several that follow each other and are no products: one CTA
// computes these (gpu_fuse_rows.c). The row that OP_ROWS picks is the only row of the step, so that its value
// is the value of its source.
//
// A position is the number of a node in the program. Launches keep that order; a stage has the number of its first
// product.
#include "kernels/ptx/gpu_fuse.h"

enum { NEVER = INT32_MAX, VALUE_ALIGN = 256, SUMS_MAX = 256, THREADS_AN_SM = 640, EDGES_FROM = 12030 };

// ---- nodes

struct tensor *fuse_root(struct tensor *n)
{
    while (n->op == OP_ROWS)
        n = n->src[0];
    return n;
}

static bool is_element(const struct tensor *n)
{
    return op_class(n->op) == CLASS_ELEMENT;
}

static bool norms_row(const struct tensor *n)
{
    return n->op == OP_NORM && (!n->p.norm.group || n->p.norm.group == n->width);
}

static bool is_product(const struct tensor *n)
{
    return n->op == OP_MATMUL || n->op == OP_EXPERT_MATMUL;
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

// Notes that the stage computes n.
static void make(struct fusion *u, struct stage *s, const struct tensor *n)
{
    struct fate *f = fuse_fate(u, n);
    f->how = MADE;
    f->stage = s;
    f->made = s->at;
}

static void put_node(struct fusion *u, struct stage *s, struct section *to, struct tensor *n, int room)
{
    int at = to->n_nodes++;
    for (; at && to->nodes[at - 1]->id > n->id; at--)
        to->nodes[at] = to->nodes[at - 1];
    to->nodes[at] = n;
    to->room += room;
    make(u, s, n);
}

// Returns the places whose products a unit of the section adds.
static int64_t places_of(const struct section *s)
{
    return s->combine ? s->expert->p.expert.n_used : 1;
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
    } else if (n->op != OP_KV_WRITE && n->op != OP_EXPERT_COMBINE && !is_element(n)) {
        return 0;
    }
    return unit <= FUSED_UNIT && (unit == PTX_TILE_ROWS || s->n_out % unit == 0) ? unit : 0;
}

// Returns whether the partial sums of a unit fit in shared memory: SUMS_MAX sets of 32 floats take 32 KB. With 8-bit
// activations there is a set for each block of 256 elements of a part of the row, with 16 bits one for each of 8 chains,
// of each leg and each tile of 32 columns. tiles: those of all places that a unit sums.
static bool sums_fit(const struct stage *s, int n_legs, int64_t tiles)
{
    if (s->x->op != OP_QUANTIZE)
        return true;
    int64_t sets = s->x->p.quantize.form == ACT_Q8 ? (s->x->p.quantize.k + 255) / 256 : 8;
    return sets * n_legs * tiles <= SUMS_MAX;
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

// Whether the legs of both are plain matrices, or those of experts that one choice names.
static bool same_experts(const struct section *a, const struct section *b)
{
    if (!a->expert || !b->expert)
        return !a->expert && !b->expert;
    return a->expert->src[1] == b->expert->src[1] && a->expert->w[0]->ne[2] == b->expert->w[0]->ne[2] && !a->combine &&
           !b->combine;
}

static bool can_merge(const struct section *a, const struct section *b)
{
    uint32_t unit = (uint32_t)common_multiple(a->unit, b->unit);
    return a->width == b->width && a->n_out == b->n_out && same_experts(a, b) && a->n_legs + b->n_legs <= FUSED_LEGS &&
           unit <= FUSED_UNIT && (unit == PTX_TILE_ROWS || a->n_out % unit == 0);
}

// Finds the sections that compute n's sources, and counts the sources that n would load from memory instead. in[1] is
// a section; in[0] is -1 or an earlier section. Returns false if no source is in a section, or if another source is not
// in memory before the stage begins. A source of which n takes a part must be in memory.
static bool find_sources(const struct fusion *u, const struct stage *s, const struct tensor *n, int in[2], int *loads)
{
    in[0] = in[1] = -1;
    *loads = 0;
    for (int i = 0; i < 2 && n->src[i]; i++) {
        struct tensor *src = fuse_root(n->src[i]);
        in[i] = section_of(s, src);
        *loads += in[i] < 0;
        if (in[i] < 0 ? fuse_fate(u, src)->made >= s->at : src->op == OP_KV_WRITE || (i && gpu_takes_part(n)))
            return false;
    }
    if (in[0] > in[1] || in[0] == in[1]) {
        int more = in[0];
        in[0] = in[0] == in[1] ? -1 : in[1];
        in[1] = more;
    }
    return in[1] >= 0;
}

// Whether n is the sum of the weighed products of experts that are the only leg and node of the section, which nothing
// else reads. A bias of each place takes a register.
static bool sums_places(const struct fusion *u, const struct stage *s, const struct section *to, const struct tensor *n)
{
    enum { BIASES = 16 };
    const struct tensor *e = to->expert;
    return e && n->src[0] == e && to->n_nodes == 1 && !to->combine && u->readers[e->id] == 1 &&
           n->src[1] == e->src[1] && n->p.expert.n_used == e->p.expert.n_used &&
           e->p.expert.n_used <= (e->w[1] ? BIASES : FUSED_SUMMED) &&
           sums_fit(s, 1, (int64_t)e->p.expert.n_used * (to->unit / PTX_TILE_ROWS));
}

// Makes the sum n of the places the value of the section's leg.
static void sum_places(struct fusion *u, struct stage *s, struct section *to, struct tensor *n)
{
    to->combine = n;
    to->width = n->width;
    put_node(u, s, to, n, 0);
}

// Whether n multiplies the columns with one weight.
static bool weighs_columns(const struct tensor *n)
{
    return n->op == OP_EXPERT_COMBINE && n->p.expert.n_used == 1 && !n->p.expert.plain;
}

// Adds n to the section that computes its source, if it is possible. If two sections compute its sources, they are
// merged.
static void absorb(struct fusion *u, struct stage *s, struct tensor *n)
{
    int in[2], loads;
    if (n->rows != s->rows || fuse_fate(u, n)->how != LAUNCHED || !find_sources(u, s, n, in, &loads) ||
        (n->op == OP_ROPE && section_of(s, fuse_root(n->src[0])) < 0))
        return;
    struct section *to = &s->sections[in[1]], *other = in[0] < 0 ? NULL : &s->sections[in[0]];
    if (n->op == OP_EXPERT_COMBINE && sums_places(u, s, to, n)) {
        sum_places(u, s, to, n);
        return;
    }
    if (n->op == OP_EXPERT_COMBINE && (!weighs_columns(n) || section_of(s, fuse_root(n->src[0])) < 0))
        return;
    int room = to->room + (other ? other->room : 0) + 1 + loads;
    int params = s->params + loads + 1 + (n->op == OP_NORM ? 2 : 0);
    uint32_t unit = unit_with(to, n);
    if (room > FUSED_NODES || params > FUSED_PARAMS || !unit || (n->op != OP_KV_WRITE && n->width != to->width) ||
        (other && !can_merge(to, other)))
        return;
    if (other)
        unit = (uint32_t)common_multiple(unit, other->unit);
    if (!sums_fit(s, to->n_legs + (other ? other->n_legs : 0), places_of(to) * (unit / PTX_TILE_ROWS)))
        return;
    if (other)
        merge(u, s, in[0], in[1]);
    to = other ? other : to;
    to->unit = unit;
    s->params = params;
    put_node(u, s, to, n, 1 + loads);
}

// Adds the choice of experts n to the end of the stage, if it computes the logits.
static void absorb_route(struct fusion *u, struct stage *s, struct tensor *n)
{
    enum { SCORES_BYTES = 4096 }; // of shared memory, which the stage has left in any case
    const struct ptx_route r = gpu_route_of(n);
    bool scored = ptx_route_bytes(&r) > 0, room = ptx_route_bytes(&r) <= SCORES_BYTES;
    for (int i = 0; i < s->n_routes; i++) {
        const struct ptx_route before = gpu_route_of(s->routes[i]);
        room = room && !(scored && ptx_route_bytes(&before));
    }
    if (n->rows != s->rows || fuse_fate(u, n)->how != LAUNCHED || r.kind == ROUTE_EACH || !room ||
        s->n_routes == FUSED_ROUTES || s->params + 4 > FUSED_PARAMS || section_of(s, fuse_root(n->src[0])) < 0)
        return;
    s->params += 4;
    s->routes[s->n_routes++] = n;
    make(u, s, n);
}

// Columns of a row that the products of n multiply: parts of it, if the experts of a row multiply different ones.
static int64_t parts_of(const struct tensor *n)
{
    return n->op == OP_EXPERT_MATMUL && !n->p.expert.shared ? n->p.expert.n_used : 1;
}

// Whether n is a product of the stage's row with matrices that are known when it begins.
static bool joins(const struct fusion *u, const struct stage *s, const struct tensor *n)
{
    return is_product(n) && n->rows == s->rows && fuse_root(n->src[0]) == s->x && parts_of(n) == s->parts &&
           n->w[0]->ne[0] * s->parts == s->x->width && fuse_fate(u, n)->how == LAUNCHED &&
           (n->op == OP_MATMUL || fuse_fate(u, n->src[1])->made < s->at);
}

// Returns the columns of a unit if the stage has few columns, of float32 weights and activations, each of which is computed
// by itself: few enough for a CTA to load its weights in a round or two. 0: larger units.
static uint32_t narrow_unit(const struct stage *s)
{
    enum { COLUMNS = 1024, OF_4 = 256, OF_2 = 64 };
    int64_t columns = 0;
    bool narrow = s->x->op != OP_QUANTIZE && s->x->width % 16 == 0;
    for (int i = 0; i < s->n_sections; i++) {
        const struct section *to = &s->sections[i];
        columns += to->n_out;
        narrow = narrow && to->n_legs == 1 && !to->expert;
        for (int j = 0; j < to->n_nodes; j++) {
            const struct tensor *n = to->nodes[j];
            narrow = narrow && (n->op == OP_MATMUL ? n->w[0]->type == DT_F32 : is_element(n) || weighs_columns(n));
        }
    }
    if (!narrow || columns > COLUMNS)
        return 0;
    return columns <= OF_2 ? 2 : columns <= OF_4 ? 4 : FUSED_NARROW;
}

// Forms the stage whose first product is `first`. *out becomes NULL if the sums do not fit in shared memory; the
// product then has a launch of its own.
static int stage_new(struct fusion *u, struct tensor *first, struct stage **out, struct error *err)
{
    struct plan *p = u->p;
    struct stage *s = *out = ARENA_NEW(&p->arena, struct stage);
    if (!s)
        return fail(err, E_MEMORY, "no memory for a plan");
    *s = (struct stage){
        .at = first->id, .rows = first->rows, .x = fuse_root(first->src[0]), .parts = parts_of(first), .params = 1};
    if (!joins(u, s, first) || !sums_fit(s, 1, 1)) {
        *out = NULL;
        return 0;
    }
    for (int i = first->id; i < p->program.n && s->n_sections < FUSED_SECTIONS; i++) {
        struct tensor *n = p->program.nodes[i];
        if (!joins(u, s, n))
            continue;
        struct section *to = &s->sections[s->n_sections++];
        *to = (struct section){.n_legs = 1,
                               .width = n->width,
                               .n_out = n->w[0]->ne[1],
                               .unit = PTX_TILE_ROWS,
                               .expert = n->op == OP_EXPERT_MATMUL ? n : NULL};
        put_node(u, s, to, n, 1);
        s->params += to->expert ? 5 : 3; // weights, bias, the address at which the sum is stored; scales, choice
    }
    for (int i = first->id; i < p->program.n; i++)
        if (p->program.nodes[i]->op == OP_ROUTE)
            absorb_route(u, s, p->program.nodes[i]);
        else
            absorb(u, s, p->program.nodes[i]);
    uint32_t narrow = narrow_unit(s);
    for (int i = 0; i < s->n_sections && narrow; i++)
        s->sections[i].unit = narrow;
    return 0;
}

static int form_stages(struct fusion *u, struct error *err)
{
    for (int i = 0; i < u->p->program.n; i++) {
        struct tensor *n = u->p->program.nodes[i];
        if (is_product(n) && fuse_fate(u, n)->how == LAUNCHED && stage_new(u, n, &u->stages[i], err))
            return -1;
    }
    return 0;
}

// ---- fates. They are settled from the last node to the first, so that all readers of a node are known before its own
// fate is.

// Notes that n is read from memory, between the positions `first` and `last`.

static void read_memory(struct fusion *u, struct tensor *n, int first, int last)
{
    struct fate *f = fuse_fate(u, fuse_root(n));
    f->memory = MIN(f->memory, first);
    f->last = MAX(f->last, last);
}

// Notes that the prologues of stages from `first` to position `last` need n. They could compute it themselves if it is
// work on the whole row that no section does.
static void read_inline(struct fusion *u, struct tensor *n, struct stage *first, int last)
{
    n = fuse_root(n);
    struct fate *f = fuse_fate(u, n);
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
// stage. The choice of experts, and a choice at the end of the stage the logits, are in memory. Any other node reads from
// memory what its stage does not compute.
static void read_made(struct fusion *u, struct tensor *n)
{
    struct stage *s = fuse_fate(u, n)->stage;
    if (is_product(n)) {
        if (s->plain)
            read_memory(u, s->x, s->at, s->at);
        else
            read_inline(u, s->x, s, s->at);
        if (n->op == OP_EXPERT_MATMUL && n->src[1]->p.route.kind != ROUTE_EACH)
            read_memory(u, n->src[1], s->at, s->at);
        return;
    }
    if (n->op == OP_ROUTE) {
        read_memory(u, n->src[0], s->at, s->at);
        return;
    }
    for (int i = 0; i < SRC_MAX; i++)
        if (n->src[i] && section_of(s, fuse_root(n->src[i])) < 0)
            read_memory(u, n->src[i], s->at, s->at);
}

// Decides where n is computed, and notes what it reads. A value that one prologue alone needs is INLINED, and so are rows
// of OP_QUANTIZE that only prologues need: no prologue stores these. A value that others read as well is CARRIED by the
// first stage, if that comes before all other readers.
static void settle(struct fusion *u, struct tensor *n)
{
    struct fate *f = fuse_fate(u, n);
    if (n->op == OP_ROWS) {
        f->how = PICKED;
        return;
    }
    if (f->how == MADE) {
        read_made(u, n);
        return;
    }
    if (n->op == OP_ROUTE && f->last < 0) { // each expert has its place, so that nothing reads the ids
        f->how = UNUSED;
        return;
    }
    bool inlined = f->inlined != NEVER, once = f->inlined == f->last_inlined;
    bool first = f->inlined < f->memory && f->first && f->first->rows == n->rows;
    if (inlined && f->memory == NEVER && (once || n->op == OP_QUANTIZE))
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
    if (s->plain || fuse_build(&b, &none)) // launch_stage reports the error
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
    const struct fate *f = fuse_fate(u, n);
    if (n->op == OP_KV_WRITE || f->how == PICKED || f->how == UNUSED || f->how == INLINED || f->last < 0)
        return 0;
    return align_up(program_row_bytes(&u->p->program, n), VALUE_ALIGN);
}

// Returns the lowest offset at which n's value overlaps no value of an earlier node that is live at the same time. A
// value is live from position `made` to position `last`, both included.
static size_t find_offset(const struct fusion *u, const struct tensor *n)
{
    const struct fate *f = fuse_fate(u, n);
    const size_t *offsets = u->p->list->offsets;
    size_t at = 0, size = value_bytes(u, n);
    for (int i = 0; size && i < n->id; i++) {
        const struct tensor *m = u->p->program.nodes[i];
        const struct fate *g = fuse_fate(u, m);
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
            p->list->offsets[i] = p->list->offsets[fuse_root(n->src[0])->id];
        else
            p->list->offsets[i] = find_offset(u, n);
        p->values_bytes = MAX(p->values_bytes, p->list->offsets[i] + value_bytes(u, n));
    }
}

static void count_readers(struct fusion *u)
{
    const struct program *g = &u->p->program;
    memset(u->readers, 0, (size_t)g->n * sizeof *u->readers);
    for (int i = 0; i < g->n; i++)
        for (int j = 0; j < SRC_MAX; j++)
            if (g->nodes[i]->src[j])
                u->readers[g->nodes[i]->src[j]->id]++;
    u->readers[g->logits->id]++;
}

int gpu_fuse(struct plan *p, struct error *err)
{
    size_t n = (size_t)p->program.n;
    struct fusion *u = p->fusion = ARENA_NEW(&p->arena, struct fusion);
    struct gpu_list *list = &p->lists[GPU_ONE_ROW];
    list->offsets = ARENA_ARRAY(&p->arena, size_t, n);
    if (!u || !list->offsets || !(u->stages = ARENA_ARRAY(&p->arena, struct stage *, n)) ||
        !(u->fates = ARENA_ARRAY(&p->arena, struct fate, n)) || !(u->readers = ARENA_ARRAY(&p->arena, int, n)) ||
        !(u->chains = ARENA_ARRAY(&p->arena, struct chain *, n)))
        return fail(err, E_MEMORY, "no memory for a plan of %zu nodes", n);
    u->p = p;
    for (int i = 0; i < (int)n; i++)
        u->fates[i] = (struct fate){.made = i};
    count_readers(u);
    if (form_stages(u, err))
        return -1;
    settle_stages(u);
    if (fuse_chains(u, err))
        return -1;
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

// Chooses the variant: that of the plan, or the last one that the kernel has.
static void choose_variant(const struct plan *p, struct ptx_fused *f)
{
    const struct driver_card *card = driver_facts(p->gpu->driver);
    f->target = (uint32_t)(10 * card->major + card->minor);
    if (p->variant == GPU_WHOLE_STEP)
        f->variant = ptx_fused_part(f);
    else
        f->variant = (enum ptx_fused_variant)MIN((uint32_t)MAX(p->variant, 0), ptx_fused_variants(f) - 1);
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
    if (fuse_build(&b, err))
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
int gpu_fuse_list(struct plan *p, struct error *err)
{
    struct fusion *u = p->fusion;
    struct tensor **into = p->into;
    const int most[ROWS_KINDS] = {p->max_rows[ROWS_TOKENS], p->max_rows[ROWS_OUTPUTS]};
    int status = 0;
    p->list = &p->lists[GPU_ONE_ROW];
    p->list->n_launches = 0;
    p->list->routed = NULL;
    p->max_rows[ROWS_TOKENS] = p->max_rows[ROWS_OUTPUTS] = 1;
    if (!(p->into = ARENA_ARRAY(&p->arena, struct tensor *, (size_t)p->program.n)))
        status = fail(err, E_MEMORY, "no memory for a plan");
    else
        status = gpu_own(p, NULL, sizeof(uint32_t), &p->arrivals, err);
    for (int i = 0; i < p->program.n && !status; i++) {
        if (u->stages[i])
            status = launch_stage(u, u->stages[i], err);
        else if (u->chains[i])
            status = fuse_launch_chain(u, u->chains[i], err);
        else if (u->fates[i].how == LAUNCHED)
            status = gpu_node(p, p->program.nodes[i], err);
    }
    // The first launch has none ahead of it.
    for (int i = 1; i < p->list->n_launches; i++)
        p->list->launches[i].dependent |= p->list->launches[i].early;
    p->into = into;
    p->list = &p->lists[GPU_ANY_ROWS];
    memcpy(p->max_rows, most, sizeof most);
    return status ? status : gpu_whole_make(p, err);
}

int gpu_fuse_launches(struct plan *p, struct error *err)
{
    p->variant = p->gpu->variant;
    return gpu_fuse_list(p, err) || gpu_tune_step(p, err) ? -1 : 0;
}
