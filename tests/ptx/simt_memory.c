// Executes loads, stores, atomics and copies, and checks them with shadow memory: whether a byte was written, and its
// last accesses. Two accesses are a race if one of them is a write, not both are strong, and nothing orders them.
// Accesses are ordered by a barrier of the CTA between warps, by a barrier of the warp between its lanes, by mbarriers
// between threads (simt_mbarrier.c), and by release and acquire between CTAs: what a CTA did before, if CTAs run one after
// another, and what the releasing warp knows, if they are cooperative and take turns.
#include "tests/ptx/simt_machine.h"

#include <math.h>
#include <stdlib.h>

struct region *simt_region(struct simt *s, uint64_t address, size_t size)
{
    struct region *r = s->last;
    if (r && address >= r->base && address - r->base <= r->size && size <= r->size - (address - r->base))
        return r;
    for (r = s->regions; r; r = r->next)
        if (address >= r->base && address - r->base <= r->size && size <= r->size - (address - r->base))
            return s->last = r;
    return NULL;
}

uint64_t simt_address(const struct warp *w, const struct simt_insn *in, unsigned o, int lane)
{
    return simt_source(w, in, o, 0)[lane] + (uint64_t)in->o[o].offset;
}

// ---- races

bool simt_ordered(const struct warp *w, unsigned thread, const struct access *a, bool strong)
{
    const struct cta *cta = w->cta;
    if (a->cta < cta->launch->first_cta || (strong && a->strong))
        return true;
    if (a->cta != cta->serial && cta->launch->cooperative)
        return a->clock <= w->known[(a->cta - cta->launch->first_cta) * cta->launch->n_warps + a->thread / LANES];
    if (a->cta != cta->serial)
        return cta->launch->known[a->cta - cta->launch->first_cta] != 0;
    if (a->thread == thread)
        return true;
    unsigned other = a->thread / LANES;
    if (w->learned && a->clock <= w->seen[thread % LANES][other])
        return true;
    return other == w->index ? a->clock < w->together : a->clock <= w->clock[other];
}

static void note(struct cell *c, const struct access *me, enum touch how)
{
    if (how != READ) {
        *c = (struct cell){.w = *me};
        return;
    }
    if (c->r.thread != me->thread || c->r.cta != me->cta)
        c->r2 = c->r;
    c->r = *me;
}

static int check_race(const struct warp *w, const struct simt_insn *in, int lane, const struct cell *c, bool strong,
                      enum touch how, uint64_t address)
{
    unsigned thread = w->index * LANES + (unsigned)lane;
    const struct access *bad = NULL;
    if (!simt_ordered(w, thread, &c->w, strong))
        bad = &c->w;
    else if (how != READ && !simt_ordered(w, thread, &c->r, strong))
        bad = &c->r;
    else if (how != READ && !simt_ordered(w, thread, &c->r2, strong))
        bad = &c->r2;
    if (!bad)
        return 0;
    const char *what = how == READ ? "a read" : "a write";
    if (bad->thread >= MAX_WARPS * LANES)
        return simt_fault(w, in, lane, "race: %s at 0x%llx, written by a cp.async.bulk that was not waited for", what,
                          (unsigned long long)address);
    return simt_fault(w, in, lane, "race: %s at 0x%llx, %s by thread %u of CTA number %u with nothing between", what,
                      (unsigned long long)address, bad == &c->w ? "written" : "read", bad->thread,
                      bad->cta - w->cta->launch->first_cta);
}

// ---- one access

// Splits a word: from now on each of its bytes has a cell of its own.
static void split_word(struct region *r, uint64_t word)
{
    for (int i = 0; !r->split[word] && i < 4; i++)
        r->bytes[word * 4 + i] = r->words[word];
    r->split[word] = 1;
}

// Checks and records an access to cell c, which covers the bytes from `at` on.
static int touch_cell(const struct warp *w, const struct simt_insn *in, int lane, const struct region *r, uint64_t at,
                      struct cell *c, const struct access *me, enum touch how)
{
    if (r->state[at] == NOT_WRITTEN && r == &w->cta->shared)
        *c = (struct cell){0}; // clears the accesses of the previous CTA
    if (check_race(w, in, lane, c, me->strong, how, r->base + at))
        return -1;
    note(c, me, how);
    return 0;
}

static int check_cells(const struct warp *w, const struct simt_insn *in, int lane, struct region *r, uint64_t at,
                       unsigned size, const struct access *me, enum touch how)
{
    for (uint64_t word = at / 4; word * 4 < at + size; word++) {
        uint64_t from = MAX(at, word * 4), end = MIN(at + size, word * 4 + 4);
        if (end - from == 4 && !r->split[word]) {
            if (touch_cell(w, in, lane, r, from, &r->words[word], me, how))
                return -1;
            continue;
        }
        split_word(r, word);
        for (uint64_t i = from; i < end; i++)
            if (touch_cell(w, in, lane, r, i, &r->bytes[i], me, how))
                return -1;
        if (end - from == 4 && how != READ) { // its bytes have one history again
            r->words[word] = r->bytes[from];
            r->split[word] = 0;
        }
    }
    return 0;
}

static uint8_t *check_bytes(struct warp *w, const struct simt_insn *in, int lane, struct region *r, uint64_t at,
                            unsigned size, enum touch how)
{
    bool strong =
        in->op == OP_ATOM || in->op == OP_RED || (in->mods & (B(VOLATILE) | B(RELAXED) | B(ACQUIRE) | B(RELEASE)));
    struct access me = {.cta = w->cta->serial,
                        .clock = w->clock[w->index],
                        .thread = (uint16_t)(w->index * LANES + (unsigned)lane),
                        .strong = strong};
    for (uint64_t i = at; i < at + size; i++) {
        unsigned long long address = r->base + i;
        if (r->state[i] == IN_FLIGHT)
            return simt_fault(w, in, lane, "0x%llx is the target of a cp.async that was not waited for", address), NULL;
        if (r->state[i] == OPAQUE)
            return simt_fault(w, in, lane, "0x%llx belongs to an mbarrier", address), NULL;
        if (how != WRITE && r->state[i] == NOT_WRITTEN)
            return simt_fault(w, in, lane, "a read of 0x%llx, which nothing has written", address), NULL;
    }
    if (r->words && check_cells(w, in, lane, r, at, size, &me, how))
        return NULL;
    if (how != READ)
        memset(r->state + at, WRITTEN, size);
    return r->data + at;
}

// Checks an access that a dependent launch makes before griddepcontrol.wait.
static int check_early(struct warp *w, const struct simt_insn *in, int lane, const struct region *r, uint64_t address,
                       unsigned size, enum touch how)
{
    if (how != READ)
        return simt_fault(w, in, lane, "a write of 0x%llx before griddepcontrol.wait", (unsigned long long)address);
    for (uint64_t i = address - r->base; i < address - r->base + size; i++)
        if ((r->split[i / 4] ? &r->bytes[i] : &r->words[i / 4])->w.cta >= w->cta->launch->s->chain)
            return simt_fault(w, in, lane, "a read of 0x%llx before griddepcontrol.wait: a kernel before writes it",
                              (unsigned long long)address);
    return 0;
}

// Checks a load through the cache of constants, ld.global.nc: nothing may write what it reads while its launch runs, nor one
// that may overlap with it.
static int check_constant(struct warp *w, const struct simt_insn *in, int lane, const struct region *r, uint64_t at,
                          unsigned size)
{
    const struct launch *l = w->cta->launch;
    const uint32_t first = l->dependent ? l->s->chain : l->first_cta;
    for (uint64_t i = at; i < at + size; i++)
        if ((r->split[i / 4] ? &r->bytes[i] : &r->words[i / 4])->w.cta >= first)
            return simt_fault(w, in, lane,
                              "0x%llx is loaded as a constant and is none: this launch or one beside it writes it",
                              (unsigned long long)(r->base + i));
    return 0;
}

uint8_t *simt_touch(struct warp *w, const struct simt_insn *in, int lane, uint64_t address, unsigned size,
                    enum touch how)
{
    struct cta *cta = w->cta;
    uint64_t mods = in->op == OP_CP_ASYNC ? 0 : in->mods;
    if (address % size)
        return simt_fault(w, in, lane, "0x%llx is not aligned to %u", (unsigned long long)address, size), NULL;
    if (mods & B(SHARED) && address < SHARED_WINDOW)
        address += SHARED_WINDOW;
    if (mods & B(LOCAL) && address < SHARED_WINDOW)
        address += LOCAL_WINDOW;
    struct region local = {.base = LOCAL_WINDOW, .size = cta->launch->k->local_size}, *r;
    if (address >= GLOBAL_WINDOW) {
        r = mods & (B(SHARED) | B(LOCAL)) ? NULL : simt_region(cta->launch->s, address, size);
    } else {
        bool in_local = address >= LOCAL_WINDOW;
        local.data = w->local + (size_t)lane * local.size;
        local.state = w->local_state + (size_t)lane * local.size;
        r = mods & (B(GLOBAL) | B(CONST) | (in_local ? B(SHARED) : B(LOCAL))) ? NULL : in_local ? &local : &cta->shared;
        if (r && (address < r->base || address - r->base > r->size || size > r->size - (address - r->base)))
            r = NULL;
    }
    if (!r)
        return simt_fault(w, in, lane, "%u bytes at 0x%llx are out of bounds", size, (unsigned long long)address), NULL;
    if (address >= GLOBAL_WINDOW && cta->launch->dependent && !(w->waited >> lane & 1) &&
        check_early(w, in, lane, r, address, size, how))
        return NULL;
    if (address >= GLOBAL_WINDOW && in->op == OP_LD && (mods & B(NC)) &&
        check_constant(w, in, lane, r, address - r->base, size))
        return NULL;
    if (address >= GLOBAL_WINDOW)
        *(how == READ ? &cta->launch->s->count.global_read : &cta->launch->s->count.global_written) += size;
    return check_bytes(w, in, lane, r, address - r->base, size, how);
}

// ---- between CTAs

void simt_learn(uint32_t *known, const uint32_t *more, size_t n)
{
    for (size_t i = 0; i < n; i++)
        known[i] = MAX(known[i], more[i]);
}

void simt_releases_free(struct launch *l)
{
    for (size_t i = 0; i < l->n_releases; i++)
        free(l->releases[i].clocks);
    free(l->releases);
}

// Releases what the warp knows of all CTAs, its own among them. What it does from now on is not part of it.
static void release_clocks(struct warp *w, uint32_t *clocks)
{
    const struct launch *l = w->cta->launch;
    uint32_t *own = clocks + (size_t)(w->cta->serial - l->first_cta) * l->n_warps;
    simt_learn(clocks, w->known, l->n_known);
    simt_learn(own, w->clock, l->n_warps);
    w->clock[w->index]++;
}

void simt_release_at(struct warp *w, uint64_t address)
{
    struct launch *l = w->cta->launch;
    uint32_t *clocks = NULL;
    for (size_t i = 0; i < l->n_releases; i++)
        if (l->releases[i].address == address && (l->cooperative || l->releases[i].cta == w->cta->serial)) {
            if (l->cooperative)
                release_clocks(w, l->releases[i].clocks);
            return;
        }
    if (l->cooperative && !(clocks = calloc(l->n_known, sizeof(*clocks))))
        return;
    if (l->n_releases == l->cap_releases) {
        size_t cap = l->cap_releases * 2 + 64;
        struct release *more = realloc(l->releases, cap * sizeof(*more));
        if (!more) {
            free(clocks);
            return; // a race may then be reported that is none, never the other way
        }
        l->releases = more;
        l->cap_releases = cap;
    }
    if (clocks)
        release_clocks(w, clocks);
    l->releases[l->n_releases++] = (struct release){address, w->cta->serial, clocks};
}

void simt_acquire(struct warp *w, uint64_t address)
{
    struct launch *l = w->cta->launch;
    for (size_t i = 0; i < l->n_releases; i++) {
        if (l->releases[i].address != address)
            continue;
        if (l->cooperative)
            simt_learn(w->known, l->releases[i].clocks, l->n_known);
        else
            l->known[l->releases[i].cta - l->first_cta] = 1;
    }
}

static void synchronise(struct warp *w, const struct simt_insn *in, uint64_t address, bool reads, bool writes)
{
    bool weak =
        !(in->mods & (B(VOLATILE) | B(RELAXED) | B(ACQUIRE) | B(RELEASE))) && in->op != OP_ATOM && in->op != OP_RED;
    bool fenced = w->cta->fenced && !weak;
    if (reads && (fenced || (in->mods & (B(ACQUIRE) | B(ACQ_REL)))))
        simt_acquire(w, address);
    if (writes && (fenced || (in->mods & (B(RELEASE) | B(ACQ_REL)))))
        simt_release_at(w, address);
}

// ---- ld, st

static int load_param(struct warp *w, const struct simt_insn *in, uint32_t lanes, unsigned width, unsigned n)
{
    const struct launch *l = w->cta->launch;
    bool sign = simt_types[in->type[0]].kind == C_SIGNED;
    for (unsigned i = 0; i < n; i++) {
        uint64_t d[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            uint64_t v = 0, at = simt_address(w, in, 1, lane) + (uint64_t)i * width;
            if (!(lanes >> lane & 1))
                continue;
            if (at % width || at > l->k->params_size || width > l->k->params_size - at)
                return simt_fault(w, in, lane, "a read outside of the parameters");
            memcpy(&v, l->params + at, width);
            d[lane] = sign ? (uint64_t)simt_signed(v, 8 * width) : v;
        }
        simt_commit(w, in, 0, i, d, lanes);
    }
    return 0;
}

int simt_load_store(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    bool store = in->op == OP_ST, sign = simt_types[in->type[0]].kind == C_SIGNED;
    unsigned mem = store ? 0 : 1, data = store ? 1 : 0, n = in->o[data].count, width = simt_types[in->type[0]].bits / 8;
    uint64_t d[4][LANES];
    if (in->mods & B(PARAM))
        return load_param(w, in, lanes, width, n);
    for (int lane = 0; lane < LANES; lane++) {
        if (!(lanes >> lane & 1))
            continue;
        uint64_t address = simt_address(w, in, mem, lane);
        if (!store)
            synchronise(w, in, address, true, false);
        uint8_t *p = simt_touch(w, in, lane, address, width * n, store ? WRITE : READ);
        if (!p)
            return -1;
        if (store)
            synchronise(w, in, address, false, true);
        for (unsigned i = 0; i < n; i++) {
            uint64_t v = store ? simt_source(w, in, 1, i)[lane] : 0;
            if (store) {
                memcpy(p + i * width, &v, width);
                continue;
            }
            memcpy(&v, p + i * width, width);
            d[i][lane] = sign ? (uint64_t)simt_signed(v, 8 * width) : v;
        }
    }
    for (unsigned i = 0; !store && i < n; i++)
        simt_commit(w, in, 0, i, d[i], lanes);
    return 0;
}

// ---- atom, red

static uint64_t combined(const struct simt_insn *in, uint64_t old, uint64_t v, uint64_t with)
{
    const struct simt_type_info *t = &simt_types[in->type[0]];
    bool less = t->kind == C_SIGNED ? simt_signed(v, t->bits) < simt_signed(old, t->bits) : v < old;
    switch (in->combine) {
    case DO_ADD:
        if (in->type[0] == T_F32)
            return simt_f32_bits(simt_f32(old) + simt_f32(v));
        if (in->type[0] == T_F64) {
            double a, b;
            memcpy(&a, &old, 8);
            memcpy(&b, &v, 8);
            a += b;
            memcpy(&old, &a, 8);
            return old;
        }
        return old + v;
    // clang-format off
    case DO_AND: return old & v;
    case DO_OR: return old | v;
    case DO_XOR: return old ^ v;
    case DO_MIN: return less ? v : old;
    case DO_MAX: return less ? old : v;
    case DO_INC: return old >= v ? 0 : old + 1;
    case DO_DEC: return !old || old > v ? v : old - 1;
    case DO_CAS: return old == v ? with : old;
    default: return v;
        // clang-format on
    }
}

int simt_atomic(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    bool red = in->op == OP_RED;
    unsigned mem = red ? 0 : 1, width = simt_types[in->type[0]].bits / 8;
    uint64_t d[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        if (!(lanes >> lane & 1))
            continue;
        uint64_t address = simt_address(w, in, mem, lane), old = 0;
        synchronise(w, in, address, true, true);
        uint8_t *p = simt_touch(w, in, lane, address, width, READ_WRITE);
        if (!p)
            return -1;
        memcpy(&old, p, width);
        uint64_t with = in->combine == DO_CAS ? simt_source(w, in, mem + 2, 0)[lane] : 0;
        uint64_t v = combined(in, old, simt_source(w, in, mem + 1, 0)[lane], with);
        memcpy(p, &v, width);
        d[lane] = old;
    }
    if (!red)
        simt_commit(w, in, 0, 0, d, lanes);
    return 0;
}

// ---- cp.async: the bytes are read where the copy begins and seen where its thread has waited for it

static int begin_copies(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    for (int lane = 0; lane < LANES; lane++) {
        if (!(lanes >> lane & 1))
            continue;
        uint64_t to = simt_address(w, in, 0, lane), from = simt_address(w, in, 1, lane);
        uint64_t size = simt_source(w, in, 2, 0)[lane];
        uint64_t used = in->n_operands > 3 ? simt_source(w, in, 3, 0)[lane] : size;
        if ((size != 4 && size != 8 && size != 16) || used > size)
            return simt_fault(w, in, lane, "cp.async of %llu of %llu bytes", (unsigned long long)used,
                              (unsigned long long)size);
        if (w->n_copies == w->cap_copies) {
            size_t cap = w->cap_copies * 2 + 64;
            struct copy *more = realloc(w->copies, cap * sizeof(*more));
            if (!more)
                return simt_fault(w, in, lane, "no memory");
            w->copies = more;
            w->cap_copies = cap;
        }
        if (from % size)
            return simt_fault(w, in, lane, "0x%llx is not aligned to %llu", (unsigned long long)from,
                              (unsigned long long)size);
        struct copy *c = &w->copies[w->n_copies];
        *c = (struct copy){
            .size = (uint32_t)size, .group = w->groups, .thread = (uint16_t)(w->index * LANES + (unsigned)lane)};
        unsigned step = used == size ? (unsigned)size : 1;
        for (uint64_t i = 0; i < used; i += step) {
            const uint8_t *p = simt_touch(w, in, lane, from + i, step, READ);
            if (!p)
                return -1;
            memcpy(c->data + i, p, step);
        }
        uint8_t *p = simt_touch(w, in, lane, to < SHARED_WINDOW ? to + SHARED_WINDOW : to, (unsigned)size, WRITE);
        if (!p)
            return -1;
        struct region *r = &w->cta->shared;
        if (p < r->data || p >= r->data + r->size)
            return simt_fault(w, in, lane, "cp.async writes to shared memory only");
        c->to = p;
        c->state = r->state + (p - r->data);
        c->words = r->words + (p - r->data) / 4;
        memset(c->state, IN_FLIGHT, size);
        w->n_copies++;
    }
    return 0;
}

// Completes all copies of groups before `groups`.
static void finish_copies(struct warp *w, uint32_t groups)
{
    size_t kept = 0;
    for (size_t i = 0; i < w->n_copies; i++) {
        struct copy *c = &w->copies[i];
        if (c->group >= groups) {
            w->copies[kept++] = *c;
            continue;
        }
        memcpy(c->to, c->data, c->size);
        memset(c->state, WRITTEN, c->size);
        for (uint32_t word = 0; word < c->size / 4; word++)
            c->words[word].w.clock = w->clock[w->index];
    }
    w->n_copies = kept;
}

int simt_copy(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    if (in->op == OP_CP_ASYNC)
        return begin_copies(w, in, lanes);
    if (lanes != w->live)
        return simt_fault(w, in, __builtin_ctz(lanes), "groups of copies diverge within a warp");
    if (in->op == OP_CP_COMMIT) {
        w->groups++;
    } else if (in->op == OP_CP_WAIT_ALL) {
        finish_copies(w, UINT32_MAX);
    } else {
        uint64_t left = simt_source(w, in, 0, 0)[0];
        finish_copies(w, w->groups > left ? w->groups - (uint32_t)left : 0);
    }
    return 0;
}
