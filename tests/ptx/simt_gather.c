// Executes the exchanges between the lanes of a warp: shfl, vote, redux, elect, activemask.
#include "tests/ptx/simt_machine.h"

static int shuffle(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    const uint64_t *a = simt_source(w, in, 1, 0), *b = simt_source(w, in, 2, 0), *c = simt_source(w, in, 3, 0);
    uint64_t d[LANES] = {0}, in_range[LANES] = {0};
    for (int lane = 0; lane < LANES; lane++) {
        if (!(lanes >> lane & 1))
            continue;
        int by = (int)(b[lane] & 31), clamp = (int)(c[lane] & 31), seg = (int)(c[lane] >> 8 & 31), from;
        int top = (lane & seg) | (clamp & ~seg), bottom = lane & seg;
        if (in->mods & B(UP))
            from = lane - by, in_range[lane] = from >= top;
        else if (in->mods & B(DOWN))
            from = lane + by, in_range[lane] = from <= top;
        else if (in->mods & B(BFLY))
            from = lane ^ by, in_range[lane] = from <= top;
        else
            from = bottom | (by & ~seg), in_range[lane] = from <= top;
        if (!in_range[lane] && in->mods & B(BFLY) && in->o[0].count < 2)
            return simt_fault(w, in, lane, "shfl.bfly with lane %d, which is out of range, and nothing asks for it",
                              from);
        if (!in_range[lane])
            from = lane;
        if (!(lanes >> from & 1))
            return simt_fault(w, in, lane, "shfl reads lane %d, which does not take part", from);
        d[lane] = a[from];
    }
    simt_commit(w, in, 0, 0, d, lanes);
    if (in->o[0].count == 2)
        simt_commit(w, in, 0, 1, in_range, lanes);
    return 0;
}

static void vote(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    const uint64_t *p = simt_source(w, in, 1, 0);
    uint64_t d[LANES], ballot = 0;
    for (int lane = 0; lane < LANES; lane++)
        if ((lanes >> lane & 1) && ((p[lane] & 1) ^ in->o[1].negated))
            ballot |= 1ull << lane;
    uint64_t v = in->mods & B(BALLOT) ? ballot
                 : in->mods & B(ALL)  ? ballot == lanes
                 : in->mods & B(ANY)  ? ballot != 0
                                      : ballot == lanes || !ballot;
    for (int lane = 0; lane < LANES; lane++)
        d[lane] = v;
    simt_commit(w, in, 0, 0, d, lanes);
}

static void reduce(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    const uint64_t *a = simt_source(w, in, 1, 0);
    bool sign = in->type[0] == T_S32, first = true;
    int64_t v = 0;
    uint64_t d[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        if (!(lanes >> lane & 1))
            continue;
        int64_t x = sign ? simt_signed(a[lane], 32) : (int64_t)a[lane];
        v = first                   ? x
            : in->combine == DO_ADD ? v + x
            : in->combine == DO_MIN ? MIN(v, x)
            : in->combine == DO_MAX ? MAX(v, x)
            : in->combine == DO_AND ? (v & x)
            : in->combine == DO_OR  ? (v | x)
                                    : (v ^ x);
        first = false;
    }
    for (int lane = 0; lane < LANES; lane++)
        d[lane] = (uint64_t)v;
    simt_commit(w, in, 0, 0, d, lanes);
}

// Elects the lowest lane.
static void elect(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    uint64_t d[LANES], elected[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        d[lane] = (uint64_t)__builtin_ctz(lanes);
        elected[lane] = d[lane] == (uint64_t)lane;
    }
    simt_commit(w, in, 0, 0, d, lanes);
    if (in->o[0].count == 2)
        simt_commit(w, in, 0, 1, elected, lanes);
}

int simt_gather(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    uint64_t d[LANES];
    switch (in->op) {
    case OP_SHFL:
        return shuffle(w, in, lanes);
    case OP_VOTE:
        vote(w, in, lanes);
        return 0;
    case OP_REDUX:
        reduce(w, in, lanes);
        return 0;
    case OP_ELECT:
        elect(w, in, lanes);
        return 0;
    default:
        for (int i = 0; i < LANES; i++)
            d[i] = lanes;
        simt_commit(w, in, 0, 0, d, lanes);
        return 0;
    }
}
