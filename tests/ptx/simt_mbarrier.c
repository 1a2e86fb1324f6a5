// Executes mbarriers and the copies that they complete, cp.async.bulk.
//
// An mbarrier counts arrivals of threads and bytes of copies. A phase is complete when all its arrivals have come and
// its copies have brought as many bytes as were expected. Here the copies of a phase come late: when threads test the phase
// a second time and nothing else is missing. Until then a read of their bytes is a fault; after that it is a race for all
// threads but those that found the phase completed, and those that a barrier orders after them.
//
// What an arrival releases: if all live lanes of a warp arrive together, everything that the warp did before; if some
// do, only what the warp did before its last bar.warp.sync or bar.sync. So a lane that arrives for its warp must come
// behind such a barrier.
//
// Threads that find a phase not completed let other warps run. Where all warps wait, the launch ends with a fault that
// says what the phase lacks.
#include "tests/ptx/simt_machine.h"

#include <stdlib.h>

enum { MOST_ARRIVALS = (1 << 20) - 1, MBARRIER_BYTES = 8, PIECE = 16 };

// ---- the table of mbarriers

// Sets *at to the offset in shared memory of the mbarrier that operand o addresses.
static int offset_of(struct warp *w, const struct simt_insn *in, unsigned o, int lane, uint32_t *at)
{
    uint64_t address = simt_address(w, in, o, lane);
    if (address >= SHARED_WINDOW)
        address -= SHARED_WINDOW;
    if (address % MBARRIER_BYTES)
        return simt_fault(w, in, lane, "an mbarrier at 0x%llx is not aligned to 8", (unsigned long long)address);
    if (address + MBARRIER_BYTES > w->cta->shared.size)
        return simt_fault(w, in, lane, "an mbarrier at 0x%llx is out of bounds", (unsigned long long)address);
    *at = (uint32_t)address;
    return 0;
}

static struct mbarrier *find(struct cta *cta, uint32_t at)
{
    for (uint32_t i = 0; i < cta->n_mbarriers; i++)
        if (cta->mbarriers[i].at == at && cta->mbarriers[i].expected)
            return &cta->mbarriers[i];
    return NULL;
}

// Returns the mbarrier that operand o addresses, whose initialisation must come before; NULL after a fault.
static struct mbarrier *mbarrier_of(struct warp *w, const struct simt_insn *in, unsigned o, int lane)
{
    uint32_t at;
    if (offset_of(w, in, o, lane, &at))
        return NULL;
    struct mbarrier *b = find(w->cta, at);
    if (!b)
        return simt_fault(w, in, lane, "no mbarrier is initialised at 0x%x", at), NULL;
    if (!simt_ordered(w, w->index * LANES + (unsigned)lane, &b->init, false))
        return simt_fault(w, in, lane, "race: the mbarrier at 0x%x, initialised by thread %u with nothing between", at,
                          b->init.thread),
               NULL;
    return b;
}

// An mbarrier that is not in use: one that was invalidated, whose part of the vector clocks goes on, or a new one; NULL if
// there are too many.
static struct mbarrier *unused(struct cta *cta)
{
    for (uint32_t i = 0; i < cta->n_mbarriers; i++)
        if (!cta->mbarriers[i].expected)
            return &cta->mbarriers[i];
    if (cta->n_mbarriers == MBARRIERS)
        return NULL;
    cta->mbarriers[cta->n_mbarriers] = (struct mbarrier){0};
    return &cta->mbarriers[cta->n_mbarriers++];
}

static int init(struct warp *w, const struct simt_insn *in, int lane)
{
    struct cta *cta = w->cta;
    uint64_t count = simt_source(w, in, 1, 0)[lane];
    uint32_t at;
    if (offset_of(w, in, 0, lane, &at))
        return -1;
    if (!count || count > MOST_ARRIVALS)
        return simt_fault(w, in, lane, "an mbarrier of %llu arrivals", (unsigned long long)count);
    struct mbarrier *b = unused(cta);
    if (!b)
        return simt_fault(w, in, lane, "more than %d mbarriers", MBARRIERS);
    if (!simt_touch(w, in, lane, SHARED_WINDOW + at, MBARRIER_BYTES, WRITE))
        return -1;
    memset(cta->shared.state + at, OPAQUE, MBARRIER_BYTES);
    *b = (struct mbarrier){.at = at,
                           .before = b->before + b->phases,
                           .expected = (uint32_t)count,
                           .pending = (uint32_t)count,
                           .init = {.cta = cta->serial,
                                    .clock = w->clock[w->index],
                                    .thread = (uint16_t)(w->index * LANES + (unsigned)lane)}};
    return 0;
}

static int forget(struct warp *w, const struct simt_insn *in, int lane)
{
    struct mbarrier *b = mbarrier_of(w, in, 0, lane);
    if (!b)
        return -1;
    if (b->in_flight)
        return simt_fault(w, in, lane, "an mbarrier is invalidated with %lld bytes in flight", (long long)b->in_flight);
    memset(w->cta->shared.state + b->at, NOT_WRITTEN, MBARRIER_BYTES);
    b->expected = 0;
    return 0;
}

void simt_mbarriers_reset(struct cta *cta)
{
    for (size_t i = 0; i < cta->n_bulks; i++)
        free(cta->bulks[i].data);
    cta->n_bulks = cta->n_mbarriers = 0;
}

// ---- phases

// Delivers the bytes of a copy: from here on they count as written by its mbarrier in the phase that it completes.
static void deliver(struct cta *cta, const struct bulk *c)
{
    const struct mbarrier *b = &cta->mbarriers[c->mbarrier];
    struct region *r = &cta->shared;
    const struct cell written = {.w = {.cta = cta->serial,
                                       .clock = b->before + b->phases + 1,
                                       .thread = (uint16_t)((MAX_WARPS + c->mbarrier) * LANES)}};
    memcpy(r->data + c->to, c->data, c->size);
    memset(r->state + c->to, WRITTEN, c->size);
    for (uint32_t word = c->to / 4; word < (c->to + c->size) / 4; word++) {
        r->words[word] = written;
        r->split[word] = 0;
    }
}

// Completes the current phase if it lacks nothing but copies that have begun.
static void complete(struct cta *cta, struct mbarrier *b)
{
    uint32_t index = (uint32_t)(b - cta->mbarriers);
    size_t kept = 0;
    if (b->pending || b->bytes != b->in_flight)
        return;
    for (size_t i = 0; i < cta->n_bulks; i++) {
        if (cta->bulks[i].mbarrier != index) {
            cta->bulks[kept++] = cta->bulks[i];
            continue;
        }
        deliver(cta, &cta->bulks[i]);
        free(cta->bulks[i].data);
    }
    cta->n_bulks = kept;
    for (unsigned i = 0; i < CLOCKS; i++)
        b->clock[i] = MAX(b->clock[i], b->arrived[i]);
    memset(b->arrived, 0, sizeof(b->arrived));
    b->pending = b->expected;
    b->bytes = b->in_flight = 0;
    b->tested = 0;
    b->clock[MAX_WARPS + index] = b->before + ++b->phases;
    cta->progress++;
}

// Notes what the lanes release that arrive together.
static void release(const struct warp *w, struct mbarrier *b, uint32_t lanes)
{
    for (unsigned i = 0; i < CLOCKS; i++) {
        uint32_t clock = i == w->index && lanes != w->live ? w->together - 1 : w->clock[i];
        b->arrived[i] = MAX(b->arrived[i], clock);
    }
    for (int lane = 0; lane < LANES && w->learned; lane++)
        for (unsigned i = 0; i < CLOCKS && (lanes >> lane & 1); i++)
            b->arrived[i] = MAX(b->arrived[i], w->seen[lane][i]);
}

// Returns 0 after an arrival of `count` threads that expects `bytes` more bytes; *token becomes the current phase.
static int arrive(struct warp *w, const struct simt_insn *in, int lane, uint32_t lanes, uint64_t *token)
{
    struct mbarrier *b = mbarrier_of(w, in, 1, lane);
    uint64_t more = in->n_operands > 2 ? simt_source(w, in, 2, 0)[lane] : 0;
    bool tx = in->op == OP_MBAR_ARRIVE_TX;
    uint64_t count = tx || in->n_operands < 3 ? 1 : more;
    if (!b)
        return -1;
    if (!count || count > b->pending)
        return simt_fault(w, in, lane, "%llu arrivals at a phase of an mbarrier that lacks %u",
                          (unsigned long long)count, b->pending);
    *token = b->phases;
    b->bytes += tx ? (int64_t)more : 0;
    b->pending -= (uint32_t)count;
    release(w, b, lanes);
    w->cta->progress++;
    // copies are completed by those who wait for them
    if (!b->bytes && !b->in_flight)
        complete(w->cta, b);
    return 0;
}

static int arrive_all(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    uint64_t tokens[LANES] = {0};
    for (int lane = 0; lane < LANES; lane++)
        if ((lanes >> lane & 1) && arrive(w, in, lane, lanes, &tokens[lane]))
            return -1;
    simt_commit(w, in, 0, 0, tokens, lanes);
    if (lanes == w->live)
        w->clock[w->index]++; // what follows was not released
    return 0;
}

static int expect(struct warp *w, const struct simt_insn *in, int lane)
{
    struct mbarrier *b = mbarrier_of(w, in, 0, lane);
    if (!b)
        return -1;
    b->bytes += (int64_t)simt_source(w, in, 1, 0)[lane];
    w->cta->progress++;
    return 0;
}

// Lanes that found a phase completed know what it released.
static void learn(struct warp *w, const struct mbarrier *b, uint32_t lanes)
{
    for (unsigned i = 0; i < CLOCKS && lanes == w->live; i++)
        w->clock[i] = i == w->index ? w->clock[i] : MAX(w->clock[i], b->clock[i]);
    for (int lane = 0; lane < LANES; lane++)
        for (unsigned i = 0; i < CLOCKS && (lanes >> lane & 1); i++)
            w->seen[lane][i] = MAX(w->seen[lane][i], b->clock[i]);
    w->learned = true;
}

void simt_together(struct warp *w)
{
    for (int lane = 0; lane < LANES && w->learned; lane++)
        for (unsigned i = 0; i < CLOCKS; i++) {
            if (i != w->index)
                w->clock[i] = MAX(w->clock[i], w->seen[lane][i]);
            w->seen[lane][i] = 0;
        }
    w->learned = false;
}

// Completes the current phase where a thread tests it, but not when its copies are in flight and it is the first test.
static void test(struct cta *cta, struct mbarrier *b)
{
    uint64_t now = cta->steps + 1;
    if (!b->in_flight || (b->tested && b->tested != now))
        complete(cta, b);
    else if (!b->tested)
        b->tested = now, cta->progress++;
}

static int wait(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    const uint64_t *of = simt_source(w, in, 2, 0);
    uint64_t done[LANES] = {0};
    for (int lane = 0; lane < LANES; lane++) {
        struct mbarrier *b = lanes >> lane & 1 ? mbarrier_of(w, in, 1, lane) : NULL;
        if (!(lanes >> lane & 1))
            continue;
        if (!b)
            return -1;
        if (in->op == OP_MBAR_PARITY && of[lane] > 1)
            return simt_fault(w, in, lane, "a parity of %llu", (unsigned long long)of[lane]);
        if (in->op == OP_MBAR_PARITY ? (b->phases & 1) == of[lane] : b->phases == of[lane])
            test(w->cta, b);
        done[lane] = in->op == OP_MBAR_PARITY ? (b->phases & 1) != of[lane] : b->phases > of[lane];
        w->polls = w->polls || !done[lane];
    }
    // Lanes that test the same mbarrier are taken together.
    for (uint32_t left = lanes; left;) {
        int first = __builtin_ctz(left);
        struct mbarrier *b = mbarrier_of(w, in, 1, first);
        uint32_t same = 0;
        for (int lane = first; lane < LANES; lane++)
            if ((left >> lane & 1) && simt_address(w, in, 1, lane) == simt_address(w, in, 1, first))
                same |= 1u << lane;
        left &= ~same;
        for (int lane = first; lane < LANES; lane++)
            same &= ~((uint32_t)!done[lane] << lane);
        if (same)
            learn(w, b, same);
    }
    simt_commit(w, in, 0, 0, done, lanes);
    return 0;
}

// ---- copies

static struct bulk *new_bulk(struct cta *cta, uint32_t size)
{
    if (cta->n_bulks == cta->cap_bulks) {
        size_t cap = cta->cap_bulks * 2 + 64;
        struct bulk *more = realloc(cta->bulks, cap * sizeof(*more));
        if (!more)
            return NULL;
        cta->bulks = more;
        cta->cap_bulks = cap;
    }
    struct bulk *c = &cta->bulks[cta->n_bulks];
    *c = (struct bulk){.data = malloc(size), .size = size};
    return c->data ? c : NULL;
}

// Reads the bytes of the copy, and marks its target as in flight. Both are accesses of the thread that begins it.
static int begin(struct warp *w, const struct simt_insn *in, int lane, struct bulk *c, uint64_t to, uint64_t from)
{
    struct region *r = &w->cta->shared;
    for (uint32_t i = 0; i < c->size; i += PIECE) {
        const uint8_t *p = simt_touch(w, in, lane, from + i, PIECE, READ);
        if (!p)
            return -1;
        memcpy(c->data + i, p, PIECE);
        uint8_t *q = simt_touch(w, in, lane, to + i, PIECE, WRITE);
        if (!q)
            return -1;
        memset(r->state + (q - r->data), IN_FLIGHT, PIECE);
    }
    return 0;
}

static int bulk(struct warp *w, const struct simt_insn *in, int lane)
{
    struct cta *cta = w->cta;
    uint64_t to = simt_address(w, in, 0, lane), from = simt_address(w, in, 1, lane);
    uint64_t size = simt_source(w, in, 2, 0)[lane];
    struct mbarrier *b = mbarrier_of(w, in, 3, lane);
    if (!b)
        return -1;
    to += to < SHARED_WINDOW ? SHARED_WINDOW : 0;
    if (!size || size % PIECE || to % PIECE || from % PIECE || size > cta->shared.size)
        return simt_fault(w, in, lane, "cp.async.bulk of %llu bytes from 0x%llx to 0x%llx: not aligned to 16",
                          (unsigned long long)size, (unsigned long long)from, (unsigned long long)to);
    if (to >= LOCAL_WINDOW || from < GLOBAL_WINDOW)
        return simt_fault(w, in, lane, "cp.async.bulk copies from global to shared memory only");
    if (!b->fenced)
        return simt_fault(w, in, lane, "a copy with an mbarrier whose initialisation no fence.proxy.async follows");
    struct bulk *c = new_bulk(cta, (uint32_t)size);
    if (!c)
        return simt_fault(w, in, lane, "no memory");
    c->to = (uint32_t)(to - SHARED_WINDOW);
    c->mbarrier = (uint32_t)(b - cta->mbarriers);
    cta->n_bulks++;
    b->in_flight += (int64_t)size;
    cta->progress++;
    return begin(w, in, lane, c, to, from);
}

// A fence makes visible to copies what its thread knows to be initialised.
static void fence(struct warp *w, int lane)
{
    for (uint32_t i = 0; i < w->cta->n_mbarriers; i++) {
        struct mbarrier *b = &w->cta->mbarriers[i];
        b->fenced = b->fenced || simt_ordered(w, w->index * LANES + (unsigned)lane, &b->init, false);
    }
}

static int of_lane(struct warp *w, const struct simt_insn *in, int lane)
{
    switch (in->op) {
    case OP_MBAR_INIT:
        return init(w, in, lane);
    case OP_MBAR_INVAL:
        return forget(w, in, lane);
    case OP_MBAR_EXPECT:
        return expect(w, in, lane);
    case OP_PROXY_FENCE:
        fence(w, lane);
        return 0;
    default:
        return bulk(w, in, lane);
    }
}

int simt_mbarrier(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    if (in->op == OP_MBAR_ARRIVE || in->op == OP_MBAR_ARRIVE_TX)
        return arrive_all(w, in, lanes);
    if (in->op == OP_MBAR_TEST || in->op == OP_MBAR_PARITY)
        return wait(w, in, lanes);
    for (int lane = 0; lane < LANES; lane++)
        if ((lanes >> lane & 1) && of_lane(w, in, lane))
            return -1;
    return 0;
}

// ---- ends

int simt_mbarriers_end(struct warp *w, const struct simt_insn *in)
{
    for (uint32_t i = 0; i < w->cta->n_mbarriers; i++) {
        const struct mbarrier *b = &w->cta->mbarriers[i];
        if (b->in_flight)
            return simt_fault(w, in, 0, "it ends with %lld bytes of copies in flight", (long long)b->in_flight);
        if (b->bytes)
            return simt_fault(w, in, 0, "it ends with an mbarrier that expects %lld bytes", (long long)b->bytes);
    }
    return 0;
}

int simt_mbarriers_stuck(struct warp *w, const struct simt_insn *in)
{
    for (uint32_t i = 0; i < w->cta->n_mbarriers; i++) {
        const struct mbarrier *b = &w->cta->mbarriers[i];
        if (b->pending != b->expected || b->bytes || b->in_flight)
            return simt_fault(w, in, __builtin_ctz(w->live),
                              "it waits for ever: the mbarrier at 0x%x lacks %u arrivals, expects %lld bytes, and "
                              "copies bring %lld",
                              b->at, b->pending, (long long)b->bytes, (long long)b->in_flight);
    }
    return simt_fault(w, in, __builtin_ctz(w->live), "it waits for ever for an mbarrier at which nobody arrives");
}
