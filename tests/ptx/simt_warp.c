// Control flow: divergence of the lanes of a warp, barriers, and the run of a CTA.
//
// Each lane has a position in the kernel. The lanes at the lowest position run until they reach a position where others
// wait. Code is normally laid out in the order of execution, so lanes reconverge at the first common instruction, and
// lanes in a loop run before those that have left it. Only speed depends on where they reconverge: an instruction that
// needs several lanes names them (shfl.sync and the like park the early ones), or reports a fault if they are apart.
#include "tests/ptx/simt_machine.h"
#include "tests/ptx/simt_exec.h"

#include <stdio.h>
#include <stdlib.h>

int simt_fault(const struct warp *w, const struct simt_insn *in, int lane, const char *fmt, ...)
{
    char what[240];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    const struct launch *l = w->cta->launch;
    uint32_t t = w->index * LANES + (uint32_t)lane, x = l->block.x, y = l->block.y;
    return fail(l->err, E_GPU, "kernel %s, line %u, CTA (%u,%u,%u), thread (%u,%u,%u): %s", l->k->name, in->line,
                w->cta->id.x, w->cta->id.y, w->cta->id.z, t % x, t / x % y, t / x / y, what);
}

// ---- lanes apart

static void park_place(struct warp *w, uint32_t lanes, uint32_t pc)
{
    for (int i = 0; i < LANES; i++)
        if (lanes >> i & 1)
            w->lane_pc[i] = pc;
}

// Chooses the lanes that run next, from the positions in lane_pc. Returns false if none can run.
static bool choose(struct warp *w)
{
    uint32_t low = UINT32_MAX, ready = w->live & ~w->parked;
    w->active = 0;
    w->others = UINT32_MAX;
    for (int i = 0; i < LANES; i++)
        if (ready >> i & 1)
            low = MIN(low, w->lane_pc[i]);
    for (int i = 0; i < LANES; i++) {
        if (!(ready >> i & 1))
            continue;
        if (w->lane_pc[i] == low)
            w->active |= 1u << i;
        else
            w->others = MIN(w->others, w->lane_pc[i]);
    }
    w->pc = low;
    return w->active != 0;
}

static void branch(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    uint32_t stay = w->active & ~lanes;
    if (!stay) {
        w->pc = in->o[0].first;
    } else if (!lanes) {
        w->pc++;
    } else {
        park_place(w, lanes, in->o[0].first);
        park_place(w, stay, w->pc + 1);
        choose(w);
    }
}

static void leave(struct warp *w, uint32_t lanes)
{
    park_place(w, w->active & ~lanes, w->pc + 1);
    w->live &= ~lanes;
    choose(w);
}

// Brings the lanes together that a .sync instruction names. Returns 0 with *lanes = the whole group, 1 if the lanes
// wait for others, -1 after a fault.
static int meet(struct warp *w, const struct simt_insn *in, uint32_t *lanes)
{
    if (!*lanes)
        return 0;
    const uint64_t *mask = simt_source(w, in, in->n_operands - 1u, 0);
    uint32_t here = *lanes, first = (uint32_t)__builtin_ctz(here), want = (uint32_t)mask[first];
    for (int i = 0; i < LANES; i++)
        if (w->parked >> i & 1 && w->lane_pc[i] == w->pc)
            here |= 1u << i;
    for (int i = 0; i < LANES; i++)
        if ((here >> i & 1) && (uint32_t)mask[i] != want)
            return simt_fault(w, in, i, "lanes name different members");
    if ((want | here) != want)
        return simt_fault(w, in, __builtin_ctz(here & ~want), "a lane takes part that is not among the members 0x%x",
                          want);
    if (want & ~w->live)
        return simt_fault(w, in, (int)first, "divergent: lanes 0x%x are members and have ended", want & ~w->live);
    if (here == want) {
        w->parked &= ~here;
        w->active |= here;
        *lanes = here;
        return 0;
    }
    park_place(w, *lanes, w->pc);
    park_place(w, w->active & ~*lanes, w->pc + 1);
    w->parked |= *lanes;
    if (!choose(w))
        return simt_fault(w, in, (int)first, "divergent: lanes 0x%x never come", want & ~here);
    return 1;
}

// ---- barriers

static int barrier(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    struct cta *cta = w->cta;
    uint64_t id = simt_source(w, in, 0, 0)[0], count = cta->launch->n_warps * LANES;
    if (lanes != w->live || lanes != w->active)
        return simt_fault(w, in, lanes ? __builtin_ctz(lanes) : 0, "divergent barrier: lanes 0x%x of 0x%x", lanes,
                          w->live);
    if (in->n_operands > 1)
        count = simt_source(w, in, 1, 0)[0];
    if (id >= BARRIERS || count % LANES || !count || count > cta->launch->n_warps * LANES)
        return simt_fault(w, in, __builtin_ctz(lanes), "barrier %llu of %llu threads", (unsigned long long)id,
                          (unsigned long long)count);
    struct barrier *b = &cta->bars[id];
    if (b->arrived && b->expected != count)
        return simt_fault(w, in, __builtin_ctz(lanes), "divergent barrier: %llu threads where %u were said",
                          (unsigned long long)count, b->expected);
    b->expected = (uint32_t)count;
    b->arrived += LANES;
    simt_together(w);
    for (unsigned i = 0; i < CLOCKS; i++)
        b->clock[i] = MAX(b->clock[i], w->clock[i]);
    simt_learn(b->known, w->known, cta->launch->n_known);
    w->together = ++w->clock[w->index];
    if (in->op == OP_BAR_SYNC)
        w->waits = (int)id;
    if (b->arrived < b->expected)
        return 0;
    for (uint32_t i = 0; i < cta->launch->n_warps; i++) {
        struct warp *v = &cta->warps[i];
        if (v->waits != (int)id)
            continue;
        v->waits = -1;
        for (unsigned c = 0; c < CLOCKS; c++)
            v->clock[c] = MAX(v->clock[c], b->clock[c]);
        simt_learn(v->known, b->known, cta->launch->n_known);
    }
    *b = (struct barrier){.known = b->known};
    for (size_t i = 0; i < cta->launch->n_known; i++)
        b->known[i] = 0;
    cta->launch->s->count.barriers++;
    return 0;
}

// ---- instructions

static int check_reads(const struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    const struct simt_kernel *k = w->cta->launch->k;
    bool store = in->op == OP_ST || in->op == OP_RED || in->op == OP_WMMA_STORE || in->op == OP_PREFETCH ||
                 in->op == OP_BAR_SYNC || in->op == OP_BAR_ARRIVE || in->op == OP_WARP_SYNC || in->op == OP_NOP ||
                 in->op == OP_CP_ASYNC || in->op == OP_CP_WAIT || in->op == OP_BULK || in->op == OP_MBAR_INIT ||
                 in->op == OP_MBAR_INVAL || in->op == OP_MBAR_EXPECT;
    for (unsigned o = store ? 0 : 1; o < in->n_operands; o++)
        for (unsigned i = 0; i < in->o[o].count; i++) {
            uint32_t slot = k->regs[in->o[o].first + i], missing = lanes & ~w->written[slot];
            if (missing)
                return simt_fault(w, in, __builtin_ctz(missing), "a read of %s, which nothing has written",
                                  k->slots[slot].name);
        }
    return 0;
}

static void read_clock(struct warp *w)
{
    const struct simt_kernel *k = w->cta->launch->k;
    for (size_t s = 1; s < k->n_slots; s++)
        if (k->slots[s].special == SP_CLOCK + 1 || k->slots[s].special == SP_CLOCK64 + 1 ||
            k->slots[s].special == SP_TIMER + 1)
            for (int i = 0; i < LANES; i++)
                w->r[s][i] = k->slots[s].special == SP_CLOCK + 1 ? (uint32_t)w->cta->steps : w->cta->steps;
}

static int whole_warp(const struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    if (lanes != UINT32_MAX)
        return simt_fault(w, in, lanes ? __builtin_ctz(lanes) : 0,
                          "divergent: lanes 0x%x where the whole warp is needed", lanes);
    return 0;
}

static int execute(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    switch (in->op) {
    case OP_LD:
    case OP_ST:
        return simt_load_store(w, in, lanes);
    case OP_ATOM:
    case OP_RED:
        return simt_atomic(w, in, lanes);
    case OP_CP_ASYNC:
    case OP_CP_COMMIT:
    case OP_CP_WAIT:
    case OP_CP_WAIT_ALL:
        return simt_copy(w, in, lanes);
    case OP_SHFL:
    case OP_VOTE:
    case OP_REDUX:
    case OP_ACTIVEMASK:
    case OP_ELECT:
        return simt_gather(w, in, lanes);
    case OP_WARP_SYNC:
        simt_together(w);
        w->together = ++w->clock[w->index];
        return 0;
    case OP_MBAR_INIT:
    case OP_MBAR_INVAL:
    case OP_MBAR_ARRIVE:
    case OP_MBAR_ARRIVE_TX:
    case OP_MBAR_EXPECT:
    case OP_MBAR_TEST:
    case OP_MBAR_PARITY:
    case OP_PROXY_FENCE:
    case OP_BULK:
        return simt_mbarrier(w, in, lanes);
    case OP_LDMATRIX:
    case OP_MMA:
    case OP_WMMA_LOAD:
    case OP_WMMA_STORE:
    case OP_WMMA_MMA:
        return whole_warp(w, in, lanes) ? -1 : simt_matrix(w, in);
    case OP_FENCE:
        w->cta->fenced = true;
        return 0;
    case OP_GRID_WAIT:
        w->waited |= lanes;
        return 0;
    case OP_SLEEP:
        w->polls = true;
        return 0;
    case OP_NOP:
    case OP_PREFETCH:
        return 0;
    case OP_TRAP:
        return simt_fault(w, in, __builtin_ctz(lanes), "trap");
    default:
        return simt_alu(w, in, lanes);
    }
}

static bool gathers(const struct simt_insn *in)
{
    return in->op == OP_SHFL || in->op == OP_VOTE || in->op == OP_REDUX || in->op == OP_WARP_SYNC || in->op == OP_ELECT;
}

static int guarded(const struct warp *w, const struct simt_insn *in, uint32_t *lanes)
{
    const uint64_t *p = w->r[in->guard];
    uint32_t missing = w->active & ~w->written[in->guard];
    if (missing)
        return simt_fault(w, in, __builtin_ctz(missing), "a read of %s, which nothing has written",
                          w->cta->launch->k->slots[in->guard].name);
    uint32_t bits = 0;
    for (int i = 0; i < LANES; i++)
        bits |= (uint32_t)((p[i] & 1) ^ in->guard_negated) << i;
    *lanes = w->active & bits;
    return 0;
}

static int step(struct warp *w)
{
    const struct simt_insn *in = &w->cta->launch->k->insns[w->pc];
    uint32_t lanes = w->active;
    if (in->guard && guarded(w, in, &lanes))
        return -1;
    if (in->op == OP_BRA)
        return branch(w, in, lanes), 0;
    if (in->op == OP_RET)
        return leave(w, lanes), 0;
    if (in->op == OP_BAR_SYNC || in->op == OP_BAR_ARRIVE) {
        if (check_reads(w, in, lanes) || barrier(w, in, lanes))
            return -1;
    } else if (lanes) {
        if (check_reads(w, in, lanes))
            return -1;
        int waits = gathers(in) ? meet(w, in, &lanes) : 0;
        if (waits)
            return MIN(waits, 0);
        if (in->reads_clock)
            read_clock(w);
        if (execute(w, in, lanes))
            return -1;
    }
    w->pc++;
    return 0;
}

// Runs a warp until it waits at a barrier, finds a phase of an mbarrier not completed, sleeps, or has ended.
static int run_warp(struct warp *w)
{
    struct launch *l = w->cta->launch;
    w->polls = false;
    while (w->live && w->waits < 0 && !w->polls) {
        if (w->pc >= w->others) {
            park_place(w, w->active, w->pc);
            choose(w);
        }
        if (!w->active)
            return simt_fault(w, &l->k->insns[w->lane_pc[__builtin_ctz(w->live)]], __builtin_ctz(w->live),
                              "divergent: lanes 0x%x wait for lanes that have ended", w->parked);
        const struct simt_insn *in = &l->k->insns[w->pc];
        l->s->count.instructions++;
        if (step(w))
            return -1;
        if (++w->cta->steps > l->s->limit)
            return simt_fault(w, in, 0, "it runs for ever: %llu instructions", (unsigned long long)l->s->limit);
    }
    return 0;
}

// Runs each warp that can run once. Returns 1 if one of them came further than to poll an mbarrier or memory in vain, 0 if
// none did, -1 after a fault.
static int run_warps(struct cta *cta)
{
    uint64_t before = cta->progress;
    bool moved = false;
    for (uint32_t i = 0; i < cta->launch->n_warps; i++) {
        struct warp *w = &cta->warps[i];
        if (!w->live || w->waits >= 0)
            continue;
        if (run_warp(w))
            return -1;
        moved = moved || !w->polls;
    }
    return moved || cta->progress != before;
}

// A warp that sleeps between its looks at memory.
static int check_sleeper(struct warp *w)
{
    const struct launch *l = w->cta->launch;
    return simt_fault(w, &l->k->insns[w->pc - 1], __builtin_ctz(w->active),
                      l->cooperative ? "deadlock: it waits for memory that no CTA writes"
                                     : "it waits for memory that no warp of its CTA writes, and other CTAs of a launch "
                                       "that is not cooperative need not be there");
}

int simt_check_end(struct cta *cta)
{
    struct launch *l = cta->launch;
    const struct simt_insn *last = &l->k->insns[l->k->n_insns - 1];
    for (uint32_t i = 0; i < l->n_warps; i++) {
        struct warp *w = &cta->warps[i];
        if (w->live && w->waits < 0 && w->active && l->k->insns[w->pc - 1].op == OP_SLEEP)
            return check_sleeper(w);
        if (w->live && w->waits < 0)
            return simt_mbarriers_stuck(w, &l->k->insns[w->pc]);
        if (w->live)
            return simt_fault(w, &l->k->insns[w->pc - 1], __builtin_ctz(w->live),
                              "divergent barrier: %u of %u threads come to barrier %d", cta->bars[w->waits].arrived,
                              cta->bars[w->waits].expected, w->waits);
        if (w->n_copies)
            return simt_fault(w, last, 0, "it ends with copies that nobody waited for");
    }
    for (int b = 0; b < BARRIERS; b++)
        if (cta->bars[b].arrived)
            return simt_fault(&cta->warps[0], last, 0, "it ends with %u threads arrived at barrier %d",
                              cta->bars[b].arrived, b);
    return simt_mbarriers_end(&cta->warps[0], last);
}

int simt_run_on(struct cta *cta)
{
    int moved, status = 0;
    while ((moved = run_warps(cta)) > 0)
        status = 1;
    return moved ? moved : status;
}

int simt_run_cta(struct cta *cta)
{
    return simt_run_on(cta) < 0 || simt_check_end(cta) ? -1 : 0;
}
