// The interpreter's machine: its memory, its modules and launches.
#include "tests/ptx/simt_exec.h"
#include "tests/ptx/simt_parse.h"

#include <stdlib.h>

// COOPERATIVE_WARPS: of a cooperative launch, whose registers are all there at the same time.
enum { SHARED_LIMIT = 227 * 1024, COOPERATIVE_WARPS = 256 };

struct simt *simt_new(void)
{
    struct simt *s = calloc(1, sizeof(*s));
    if (s) {
        s->next_address = GLOBAL_WINDOW + 4096;
        s->limit = 1ull << 28;
        s->next_cta = 1;
    }
    return s;
}

static void region_free(struct region *r)
{
    free(r->data);
    free(r->state);
    free(r->split);
    free(r->words);
    free(r->bytes);
    r->data = r->state = r->split = NULL;
    r->words = r->bytes = NULL;
}

void simt_free(struct simt *s)
{
    if (!s)
        return;
    while (s->regions) {
        struct region *next = s->regions->next;
        region_free(s->regions);
        free(s->regions);
        s->regions = next;
    }
    while (s->kernels) {
        struct simt_kernel *older = s->kernels->older;
        simt_kernel_free(s->kernels);
        s->kernels = older;
    }
    free(s);
}

void simt_set_limit(struct simt *s, uint64_t instructions)
{
    s->limit = instructions;
}

void simt_set_dependent(struct simt *s)
{
    s->dependent = true;
}

void simt_set_cooperative(struct simt *s)
{
    s->cooperative = true;
}

struct simt_counters simt_count(const struct simt *s)
{
    return s->count;
}

// ---- memory

static bool region_init(struct region *r, size_t size)
{
    r->size = size;
    r->data = aligned_alloc(256, align_up(size + 1, 256));
    r->state = calloc(size + 1, 1);
    size_t n_words = size / 4 + 1;
    r->split = calloc(n_words, 1);
    r->words = calloc(n_words, sizeof(*r->words));
    r->bytes = calloc(n_words * 4, sizeof(*r->bytes));
    if (r->data && r->state && r->split && r->words && r->bytes)
        return true;
    region_free(r);
    return false;
}

// Between two allocations there are 4096 unallocated bytes, so that an overrun does not reach the next one.
uint64_t simt_alloc(struct simt *s, size_t size)
{
    struct region *r = size && size < 1ull << 36 ? calloc(1, sizeof(*r)) : NULL;
    if (!r || !region_init(r, size)) {
        free(r);
        return 0;
    }
    r->base = s->next_address;
    s->next_address += align_up(size, 256) + 4096;
    r->next = s->regions;
    s->regions = r;
    return r->base;
}

int simt_release(struct simt *s, uint64_t address, struct error *err)
{
    for (struct region **at = &s->regions; *at; at = &(*at)->next) {
        struct region *r = *at;
        if (r->base != address)
            continue;
        *at = r->next;
        s->last = NULL;
        region_free(r);
        free(r);
        return 0;
    }
    return fail(err, E_GPU, "0x%llx is no allocation", (unsigned long long)address);
}

int simt_put(struct simt *s, uint64_t address, const void *data, size_t size, struct error *err)
{
    struct region *r = simt_region(s, address, size);
    if (!r)
        return fail(err, E_GPU, "%zu bytes to 0x%llx: out of bounds", size, (unsigned long long)address);
    memcpy(r->data + (address - r->base), data, size);
    memset(r->state + (address - r->base), WRITTEN, size);
    return 0;
}

int simt_forget(struct simt *s, uint64_t address, size_t size, struct error *err)
{
    struct region *r = simt_region(s, address, size);
    if (!r)
        return fail(err, E_GPU, "%zu bytes at 0x%llx: out of bounds", size, (unsigned long long)address);
    memset(r->state + (address - r->base), NOT_WRITTEN, size);
    return 0;
}

int simt_get(struct simt *s, uint64_t address, void *data, size_t size, struct error *err)
{
    struct region *r = simt_region(s, address, size);
    if (!r)
        return fail(err, E_GPU, "%zu bytes from 0x%llx: out of bounds", size, (unsigned long long)address);
    const uint8_t *hole = memchr(r->state + (address - r->base), NOT_WRITTEN, size);
    if (hole)
        return fail(err, E_GPU, "a copy of byte %zu of 0x%llx, which nothing has written", (size_t)(hole - r->state),
                    (unsigned long long)r->base);
    memcpy(data, r->data + (address - r->base), size);
    return 0;
}

// ---- modules

static uint64_t place(void *ctx, const void *init, size_t size)
{
    uint64_t at = simt_alloc(ctx, size);
    return at && !simt_put(ctx, at, init, size, NULL) ? at : 0;
}

int simt_load(struct simt *s, struct str text, struct error *err)
{
    struct simt_parser p = {.place = place, .ctx = s, .err = err};
    struct simt_kernel *list;
    int rc = simt_parse(&p, text, &list);
    if (rc) {
        while (list) {
            struct simt_kernel *older = list->older;
            simt_kernel_free(list);
            list = older;
        }
        return -1;
    }
    struct simt_kernel **end = &list;
    while (*end)
        end = &(*end)->older;
    *end = s->kernels;
    s->kernels = list;
    return 0;
}

const struct simt_kernel *simt_find(const struct simt *s, const char *name)
{
    for (const struct simt_kernel *k = s->kernels; k; k = k->older)
        if (!strcmp(k->name, name))
            return k;
    return NULL;
}

const struct simt_kernel *simt_newest(const struct simt *s)
{
    return s->kernels;
}

// ---- launches

static uint32_t special(const struct launch *l, const struct warp *w, enum simt_special what, uint32_t lane)
{
    const struct simt_dim *b = &l->block, *g = &l->grid, *c = &w->cta->id;
    uint32_t t = w->index * LANES + lane, one = 1u << lane;
    switch (what) {
    // clang-format off
    case SP_TID_X: return t % b->x;
    case SP_TID_Y: return t / b->x % b->y;
    case SP_TID_Z: return t / b->x / b->y;
    case SP_NTID_X: return b->x;
    case SP_NTID_Y: return b->y;
    case SP_NTID_Z: return b->z;
    case SP_CTAID_X: return c->x;
    case SP_CTAID_Y: return c->y;
    case SP_CTAID_Z: return c->z;
    case SP_NCTAID_X: return g->x;
    case SP_NCTAID_Y: return g->y;
    case SP_NCTAID_Z: return g->z;
    case SP_LANEID: return lane;
    case SP_WARPID: return w->index;
    case SP_NWARPID: return l->n_warps;
    case SP_NSMID: return 1;
    case SP_LT: return one - 1;
    case SP_LE: return one | (one - 1);
    case SP_GT: return ~(one | (one - 1));
    case SP_GE: return ~(one - 1);
    case SP_EQ: return one;
    case SP_DYNAMIC: return l->dynamic;
    default: return 0;
        // clang-format on
    }
}

static void start_warp(struct warp *w)
{
    const struct launch *l = w->cta->launch;
    const struct simt_kernel *k = l->k;
    uint32_t first = w->index * LANES, n = MIN(l->threads - first, (uint32_t)LANES);
    w->live = w->active = n == LANES ? UINT32_MAX : (1u << n) - 1;
    w->parked = w->pc = w->groups = w->waited = 0;
    w->others = UINT32_MAX;
    w->waits = -1;
    w->n_copies = 0;
    w->polls = false;
    for (size_t i = 0; i < l->n_known; i++)
        w->known[i] = 0;
    memset(w->clock, 0, sizeof(w->clock));
    if (w->learned)
        memset(w->seen, 0, LANES * sizeof(*w->seen));
    w->learned = false;
    w->together = w->clock[w->index] = 1;
    memset(w->local_state, NOT_WRITTEN, (size_t)k->local_size * LANES);
    for (size_t s = 0; s < k->n_slots; s++) {
        const struct simt_slot *slot = &k->slots[s];
        w->written[s] = slot->constant ? UINT32_MAX : 0;
        for (uint32_t i = 0; slot->constant && i < LANES; i++)
            w->r[s][i] = slot->special ? special(l, w, slot->special - 1, i) : slot->value;
    }
}

// Brings the warps of CTA number i to the kernel's first instruction.
static void start_cta(struct cta *cta, uint64_t i)
{
    struct launch *l = cta->launch;
    cta->id = (struct simt_dim){(uint32_t)(i % l->grid.x), (uint32_t)(i / l->grid.x % l->grid.y),
                                (uint32_t)(i / l->grid.x / l->grid.y)};
    cta->serial = l->first_cta + (uint32_t)i;
    cta->fenced = cta->ended = false;
    cta->steps = cta->progress = 0;
    simt_mbarriers_reset(cta);
    for (int b = 0; b < BARRIERS; b++)
        cta->bars[b] = (struct barrier){.known = cta->bars[b].known};
    memset(cta->shared.state, NOT_WRITTEN, cta->shared.size);
    for (uint32_t w = 0; w < l->n_warps; w++)
        start_warp(&cta->warps[w]);
    l->s->count.ctas++;
}

// Runs all CTAs of a grid one after another, each of which may find the others not begun or at their end.
static int run_in_order(struct launch *l, struct cta *cta)
{
    uint64_t n = (uint64_t)l->grid.x * l->grid.y * l->grid.z;
    for (uint64_t i = 0; i < n; i++) {
        memset(l->known, 0, n);
        start_cta(cta, i);
        if (simt_run_cta(cta))
            return -1;
    }
    return 0;
}

// Runs the CTAs of a cooperative launch in turns, each until all its warps wait or have ended. If none of them comes
// further, those that have not ended wait for ever.
static int run_in_turns(struct launch *l, struct cta *ctas)
{
    uint32_t n = l->grid.x * l->grid.y * l->grid.z;
    bool moved = true;
    for (uint32_t i = 0; i < n; i++)
        start_cta(&ctas[i], i);
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < n; i++) {
            int status = simt_run_on(&ctas[i]);
            if (status < 0)
                return -1;
            moved = moved || status;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        if (simt_check_end(&ctas[i]))
            return -1;
    return 0;
}

static int check_launch(const struct launch *l, uint32_t shared, size_t params_size)
{
    const struct simt_kernel *k = l->k;
    const struct simt_dim *g = &l->grid, *b = &l->block;
    uint64_t threads = (uint64_t)b->x * b->y * b->z, ctas = (uint64_t)g->x * g->y;
    if (!threads || threads > 1024 || b->x > 1024 || b->y > 1024 || b->z > 64 ||
        (k->max_threads && threads > k->max_threads) ||
        (k->req[0] && (b->x != k->req[0] || b->y != k->req[1] || b->z != k->req[2])))
        return fail(l->err, E_GPU, "kernel %s: a block of %u x %u x %u", k->name, b->x, b->y, b->z);
    if (!ctas || !g->z || g->x > INT32_MAX || g->y > 65535 || g->z > 65535 || ctas * g->z > 1u << 24)
        return fail(l->err, E_GPU, "kernel %s: a grid of %u x %u x %u", k->name, g->x, g->y, g->z);
    if (params_size != k->params_size)
        return fail(l->err, E_GPU, "kernel %s: %zu bytes of parameters where it has %u", k->name, params_size,
                    k->params_size);
    if (l->cooperative && ctas * g->z * ((threads + LANES - 1) / LANES) > COOPERATIVE_WARPS)
        return fail(l->err, E_GPU, "kernel %s: a cooperative launch of %u x %u x %u CTAs", k->name, g->x, g->y, g->z);
    if ((uint64_t)l->dynamic + shared > SHARED_LIMIT)
        return fail(l->err, E_GPU, "kernel %s: %u bytes of shared memory", k->name, l->dynamic + shared);
    return 0;
}

static bool warp_init(struct warp *w, struct cta *cta, uint32_t index)
{
    const struct simt_kernel *k = cta->launch->k;
    w->cta = cta;
    w->index = index;
    w->r = calloc(k->n_slots, sizeof(*w->r));
    w->written = calloc(k->n_slots, sizeof(*w->written));
    w->local = calloc((size_t)k->local_size * LANES + 1, 1);
    w->local_state = calloc((size_t)k->local_size * LANES + 1, 1);
    w->seen = calloc(LANES, sizeof(*w->seen));
    w->known = calloc(cta->launch->n_known + 1, sizeof(*w->known));
    return w->r && w->written && w->local && w->local_state && w->seen && w->known;
}

static void warp_free(struct warp *w)
{
    free(w->r);
    free(w->written);
    free(w->local);
    free(w->local_state);
    free(w->copies);
    free(w->seen);
    free(w->known);
}

static bool cta_init(struct cta *cta, struct launch *l, uint32_t shared)
{
    cta->launch = l;
    cta->shared.base = SHARED_WINDOW;
    cta->warps = calloc(l->n_warps, sizeof(*cta->warps));
    bool whole = cta->warps && region_init(&cta->shared, shared);
    for (uint32_t i = 0; whole && i < l->n_warps; i++)
        whole = warp_init(&cta->warps[i], cta, i);
    for (int b = 0; whole && l->n_known && b < BARRIERS; b++)
        whole = (cta->bars[b].known = calloc(l->n_known, sizeof(*cta->bars[b].known)));
    return whole;
}

static void cta_free(struct cta *cta)
{
    for (uint32_t i = 0; cta->warps && i < cta->launch->n_warps; i++)
        warp_free(&cta->warps[i]);
    free(cta->warps);
    for (int b = 0; b < BARRIERS; b++)
        free(cta->bars[b].known);
    simt_mbarriers_reset(cta);
    free(cta->bulks);
    if (cta->shared.size || cta->shared.data)
        region_free(&cta->shared);
}

// Gives the launch its place among the launches so far.
static void begin(struct launch *l, uint32_t n_ctas)
{
    struct simt *s = l->s;
    l->first_cta = s->next_cta;
    if (!l->dependent)
        s->chain = s->next_cta;
    s->next_cta += n_ctas;
    s->count.launches++;
}

static int run_grid(struct launch *l, uint32_t shared)
{
    uint32_t n = l->grid.x * l->grid.y * l->grid.z, at_once = l->cooperative ? n : 1;
    struct cta *ctas = calloc(at_once, sizeof(*ctas));
    l->known = calloc(n, 1);
    bool whole = l->known && ctas;
    for (uint32_t i = 0; whole && i < at_once; i++)
        whole = cta_init(&ctas[i], l, l->dynamic + shared);
    int rc;
    if (!whole) {
        rc = fail(l->err, E_MEMORY, "no memory for a launch");
    } else {
        begin(l, n);
        rc = l->cooperative ? run_in_turns(l, ctas) : run_in_order(l, ctas);
    }
    for (uint32_t i = 0; ctas && i < at_once && ctas[i].launch; i++)
        cta_free(&ctas[i]);
    free(ctas);
    free(l->known);
    simt_releases_free(l);
    return rc;
}

int simt_launch(struct simt *s, const struct simt_kernel *kernel, struct simt_dim grid, struct simt_dim block,
                uint32_t shared, const void *params, size_t params_size, struct error *err)
{
    struct launch l = {.s = s, .k = kernel, .grid = grid, .block = block, .params = params, .err = err};
    l.dependent = s->dependent;
    l.cooperative = s->cooperative;
    s->dependent = s->cooperative = false;
    l.dynamic = (uint32_t)align_up(kernel->shared_size, 16);
    if (check_launch(&l, shared, params_size))
        return -1;
    l.threads = block.x * block.y * block.z;
    l.n_warps = (l.threads + LANES - 1) / LANES;
    l.n_known = l.cooperative ? (size_t)grid.x * grid.y * grid.z * l.n_warps : 0;
    return run_grid(&l, shared);
}
