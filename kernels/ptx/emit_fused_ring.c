// Emits the products of a fused kernel of one row whose weights pass through shared memory, for cards on which a launch
// begins beside the one before it. See emit_fused.h for the interface and emit_fused.c for the frame of the kernel.
//
// The kernel without a ring: a warp loads the weights of an item (256 products for each of 32 outputs) to registers and
// multiplies them, one item after the other:
//     for each unit of the CTA, for each item of the warp in it:
//         weights = load(item)          // 0.8 us until they come
//         S[item] = weights * row       // the row is there when the launch before has ended
// So a multiprocessor has as many bytes in flight as its threads have registers for, and none before the row is there.
//
// The step from there: the order of a warp's items over all units of its CTA is known from the start. A ring of `depth`
// stages in shared memory holds the next items of each warp:
//     for the first `depth` items: copy to a stage begins
//     the next launch may begin; wait for the launch before
//     for each unit of the CTA, for each item of the warp in it:
//         wait until the stage is filled
//         weights = the stage           // to registers
//         the stage's copy of the item `depth` further begins
//         S[item] = weights * row
// Copies need no registers and no threads, they go on while the row is made, and while a warp multiplies one item, the
// next ones are on their way. A CTA takes less than half of a multiprocessor, so that a CTA of the next launch fits beside
// it, whose ring fills in the meantime. Weights are constants: nothing else is read before the wait.
//
// Stages belong to one warp, so that a warp barrier is all that separates its reads from the copy that follows. With
// cp.async.bulk lane 0 copies a whole unit, and an mbarrier for each stage, with one arrival and the unit's bytes, tells
// when it has come; its phase alternates with each turn of the ring. With cp.async each lane copies 16 bytes at a time,
// and each item is a group.
//
// With activations of 16 bits an item is two units of 32 in the chain that a warp computes (emit_matmul_half.c). All sums are
// those of the kernel without a ring, in the same order.
#include "kernels/ptx/emit_fused_ring.h"

#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/emit_early.h"
#include "kernels/ptx/emit_nibble.h"

enum { MOST_STAGES = 6, RING_ALIGN = 128, CHAINS = 8, PIECE = 16, PIECES = 32 * PIECE };

// ---- the shape

bool ptx_ring_asked(const struct ptx_fused *f)
{
    return f->variant == FUSED_RING || f->variant == FUSED_RING_PAIR;
}

uint32_t ptx_ring_shared(uint32_t target)
{
    const uint32_t all = ptx_shared_of(target);
    return all ? all / 2 - PTX_SHARED_RESERVED : 0;
}

uint32_t ptx_ring_bytes(const struct ptx_ring *r)
{
    return r->warps * r->depth * r->stage_bytes;
}

// Two CTAs of 256 threads have room with 128 registers. With 112, one has room beside two CTAs of attention, where a
// launch begins early and no weights are looked up in a codebook, which takes more.
uint32_t ptx_ring_registers(const struct ptx_fused *f)
{
    bool few = f->target >= 90 && f->target < 120;
    for (int i = 0; i < f->n_sections; i++)
        for (int l = 0; l < f->sections[i].n_legs; l++) {
            enum dtype t = f->sections[i].legs[l].type;
            few = few && t != DT_IQ4_NL && t != DT_IQ4_XS && t != DT_MXFP4;
        }
    return few ? 112 : 128;
}

// The bytes of an item.
static uint32_t item_bytes(const struct ptx_ring *r, enum dtype type)
{
    return r->chains ? PTX_HALF_STAGE_BYTES : PTX_TILE_ROWS * tile_unit_bytes(type);
}

struct ptx_ring ptx_ring_of(const struct ptx_fused *f, uint32_t warps, uint32_t units, uint32_t other)
{
    struct ptx_ring r = {.bulk = f->target >= 90, .warps = warps, .units = units, .chains = f->halves};
    uint32_t room = ptx_ring_shared(f->target);
    bool serves = f->q8 || (f->halves && ptx_half_stages(f->n_in) && warps == CHAINS);
    r.parts = f->halves ? ptx_half_stages(f->n_in) : ptx_tiles(f->n_in, 256);
    other += RING_ALIGN; // of which the ring may leave some out
    for (int i = 0; i < f->n_sections; i++)
        for (int l = 0; l < f->sections[i].n_legs; l++)
            r.stage_bytes = MAX(r.stage_bytes, item_bytes(&r, f->sections[i].legs[l].type));
    if (serves && room > other)
        r.depth = MIN((room - other) / (warps * (r.stage_bytes + 8)), (uint32_t)MOST_STAGES);
    return r;
}

bool ptx_fused_next_run(const struct ptx_fused_section *s, uint32_t each, struct ptx_fused_run *run)
{
    run->slot += (uint32_t)run->n * each;
    run->first += run->n;
    run->n = run->first < s->n_legs;
    while (run->first + run->n < s->n_legs && s->legs[run->first + run->n].type == s->legs[run->first].type)
        run->n++;
    return run->n > 0;
}

// The items of each leg of a unit: of all warps, or with chains of each warp.
static uint32_t each_leg(const struct ptx_fused_section *s, const struct ptx_ring *r)
{
    return s->unit / PTX_TILE_ROWS * r->parts;
}

// ---- copies

// The copy of `bytes` bytes at %w8 to the stage.
static void copy_bulk(struct ptx *p, uint32_t bytes)
{
    PTX_FILL(p,
             "    @%lead mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], $0;\n"
             "    @%lead cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%stage], [%w8], $0, "
             "[%full];\n",
             bytes);
}

static void copy_pieces(struct ptx *p, uint32_t bytes)
{
    PTX_FILL(p,
             "    mad.wide.u32 %w8, %lane, $0, %w8;\n"
             "    mad.lo.u32 %from8, %lane, $0, %stage;\n",
             PIECE);
    for (uint32_t at = 0; at < bytes; at += PIECES) {
        if (at + PIECES > bytes)
            PTX_FILL(p,
                     "    setp.lt.u32 %in, %lane, $0;\n"
                     "    @%in",
                     (bytes - at) / PIECE);
        else
            PTX_LINES(p, "   ");
        PTX_FILL(p, " cp.async.cg.shared.global [%from8+$0], [%w8+$0], 16;\n", at);
    }
}

// From the number %from8 of an item among those of the warp's chains of a leg: sets %from8 to its number in the leg, where
// each tile has the stages of all chains.
static void place_in_chain(struct ptx *p, const struct ptx_fused_section *s, const struct ptx_ring *r)
{
    if (s->unit > PTX_TILE_ROWS)
        PTX_FILL(p,
                 "    div.u32 %tile8, %from8, $0;\n"
                 "    mad.lo.u32 %from8, %tile8, $1, %from8;\n",
                 r->parts, (CHAINS - 1) * r->parts);
    PTX_FILL(p, "    mad.lo.u32 %from8, %warp, $0, %from8;\n", r->parts);
}

// Begins the copy of item %fetch_item of a run, if it is one of the run's, and goes on at COPYING.
static void fetch_of_run(struct ptx *p, const struct ptx_fused_section *s, const struct ptx_fused_run *run,
                         const struct ptx_ring *r, uint32_t label)
{
    uint32_t each = each_leg(s, r), end = run->slot + (uint32_t)run->n * each;
    uint32_t bytes = item_bytes(r, s->legs[run->first].type);
    bool last = run->first + run->n == s->n_legs;
    if (!last)
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %fetch_item, $0;\n"
                 "    @%in bra OTHER_$1;\n",
                 end, label);
    for (uint32_t l = 0; l < (uint32_t)run->n; l++) {
        const char *guard = l ? "    @%in" : "   ";
        if (l)
            PTX_FILL(p, "    setp.ge.u32 %in, %fetch_item, $0;\n", run->slot + l * each);
        ptx_word(p, guard);
        PTX_FILL(p, " sub.u32 %from8, %fetch_item, $0;\n", run->slot + l * each);
        ptx_word(p, guard);
        PTX_FILL(p, " ld.param.u64 %w8, [p$0];\n", (uint32_t)s->legs[(uint32_t)run->first + l].w);
    }
    if (r->chains)
        place_in_chain(p, s, r);
    PTX_FILL(p,
             "    mad.lo.u32 %from8, %unit8, $0, %from8;\n"
             "    cvta.to.global.u64 %w8, %w8;\n"
             "    mad.wide.u32 %w8, %from8, $1, %w8;\n",
             r->chains ? CHAINS * each : each, bytes);
    if (r->bulk)
        copy_bulk(p, bytes);
    else
        copy_pieces(p, bytes);
    if (!last)
        PTX_FILL(p, "    bra COPYING;\nOTHER_$0:\n", label);
}

// Sets %fetch_item to the first item of the warp in a unit.
static void first_item(struct ptx *p, const struct ptx_ring *r)
{
    ptx_word(p, r->chains ? "    mov.u32 %fetch_item, 0;\n" : "    mov.u32 %fetch_item, %warp;\n");
}

// Begins the copy of the warp's next item, if there is one, to the stage. It is an item of section `from` or of a later
// one. Units without an item for the warp are passed over.
static void fetch(struct ptx *p, const struct ptx_fused *f, const struct ptx_ring *r, uint32_t from)
{
    uint32_t first = 0;
    PTX_FILL(p,
             "    {\n"
             "    .reg .u32 %unit8, %from8, %tile8;\n"
             "    .reg .u64 %w8;\n"
             "FETCH:\n"
             "    setp.ge.u32 %in, %fetch_job, $0;\n"
             "    @%in bra FETCHED;\n",
             r->units);
    for (uint32_t i = 0; i < (uint32_t)f->n_sections; i++) {
        const struct ptx_fused_section *s = &f->sections[i];
        uint32_t end = first + ptx_tiles(s->n_out, s->unit);
        struct ptx_fused_run run = {0};
        if (i < from) {
            first = end;
            continue;
        }
        if (i + 1 < (uint32_t)f->n_sections)
            PTX_FILL(p,
                     "    setp.ge.u32 %in, %fetch_job, $0;\n"
                     "    @%in bra BEHIND_$1;\n",
                     end, i);
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %fetch_item, $0;\n"
                 "    @%in bra PASS;\n"
                 "    sub.u32 %unit8, %fetch_job, $1;\n",
                 (uint32_t)s->n_legs * each_leg(s, r), first);
        for (uint32_t k = 0; ptx_fused_next_run(s, each_leg(s, r), &run); k++)
            fetch_of_run(p, s, &run, r, i * FUSED_LEGS + k);
        if (i + 1 < (uint32_t)f->n_sections)
            PTX_FILL(p, "    bra COPYING;\nBEHIND_$0:\n", i);
        first = end;
    }
    PTX_FILL(p,
             "COPYING:\n"
             "    add.u32 %fetch_item, %fetch_item, $0;\n"
             "    bra FETCHED;\n"
             "PASS:\n"
             "    add.u32 %fetch_job, %fetch_job, %jobs;\n",
             r->chains ? 1 : r->warps);
    first_item(p, r);
    PTX_LINES(p, "    bra FETCH;\n"
                 "FETCHED:\n");
    if (!r->bulk)
        PTX_LINES(p, "    cp.async.commit_group;\n");
    PTX_LINES(p, "    }\n");
}

// ---- stages

// Steps to the next stage of the warp, behind the last one to the first, where the phase of the mbarriers changes.
static void next_stage(struct ptx *p, const struct ptx_ring *r)
{
    if (r->depth > 1) {
        PTX_FILL(p, "    add.u32 %stage, %stage, $0;\n", r->stage_bytes);
        if (r->bulk)
            PTX_LINES(p, "    add.u32 %full, %full, 8;\n");
        PTX_FILL(p,
                 "    setp.eq.u32 %in, %stage, %stage_end;\n"
                 "    @%in sub.u32 %stage, %stage, $0;\n",
                 r->depth * r->stage_bytes);
        if (r->bulk)
            PTX_FILL(p,
                     "    @%in sub.u32 %full, %full, $0;\n"
                     "    @%in xor.b32 %phase, %phase, 1;\n",
                     8 * r->depth);
    } else if (r->bulk) {
        PTX_LINES(p, "    xor.b32 %phase, %phase, 1;\n");
    }
}

void ptx_ring_module(struct ptx *p)
{
    PTX_LINES(p, ".extern .shared .align 128 .b8 ring[];\n");
}

void ptx_ring_declare(struct ptx *p, const struct ptx_ring *r)
{
    PTX_FILL(p, "    // a ring of $0 bytes\n", ptx_ring_bytes(r));
    PTX_LINES(p, "    .reg .u32 %stage, %fetch_job, %fetch_item;\n");
    if (r->depth > 1)
        PTX_LINES(p, "    .reg .u32 %stage_end;\n");
    if (r->bulk)
        PTX_FILL(p,
                 "    .reg .pred %lead;\n"
                 "    .reg .u32 %full, %phase;\n"
                 "    .shared .align 8 .b8 full[$0];\n",
                 8 * r->warps * r->depth);
}

// Initialises the mbarriers of the warp's stages. The warp alone uses them.
static void make_mbarriers(struct ptx *p, const struct ptx_ring *r)
{
    PTX_FILL(p,
             "    setp.eq.u32 %lead, %lane, 0;\n"
             "    mov.u32 %phase, 0;\n"
             "    mov.u32 %full, full;\n"
             "    mad.lo.u32 %full, %warp, $0, %full;\n",
             8 * r->depth);
    for (uint32_t i = 0; i < r->depth; i++)
        PTX_FILL(p, "    @%lead mbarrier.init.shared::cta.b64 [%full+$0], 1;\n", 8 * i);
    PTX_LINES(p, "    @%lead fence.proxy.async.shared::cta;\n"
                 "    bar.warp.sync 0xffffffff;\n");
}

// Begins the copies to all stages of the warp, and returns to the first one.
static void fill_stages(struct ptx *p, const struct ptx_fused *f, const struct ptx_ring *r)
{
    if (r->depth > 1)
        PTX_FILL(p, "    add.u32 %stage_end, %stage, $0;\nFILL:\n", r->depth * r->stage_bytes);
    fetch(p, f, r, 0);
    if (r->depth == 1)
        return;
    PTX_FILL(p, "    add.u32 %stage, %stage, $0;\n", r->stage_bytes);
    if (r->bulk)
        PTX_LINES(p, "    add.u32 %full, %full, 8;\n");
    PTX_FILL(p,
             "    setp.lt.u32 %more, %stage, %stage_end;\n"
             "    @%more bra FILL;\n"
             "    sub.u32 %stage, %stage, $0;\n",
             r->depth * r->stage_bytes);
    if (r->bulk)
        PTX_FILL(p, "    sub.u32 %full, %full, $0;\n", 8 * r->depth);
}

// Prefetches the gain or bias of a norm of the row to L2, if it has one: 128 bytes a thread. Like weights it is constant,
// and has long left the cache since the last step.
static void prefetch_floats(struct ptx *p, int param, uint32_t n, uint32_t threads)
{
    const uint32_t lines = ptx_tiles(4 * n, 128);
    if (param < 0)
        return;
    PTX_FILL(p,
             "    ld.param.u64 %row, [p$0];\n"
             "    cvta.to.global.u64 %row, %row;\n"
             "    mad.wide.u32 %row, %index, 128, %row;\n",
             (uint32_t)param);
    for (uint32_t from = 0; from < lines; from += threads)
        PTX_FILL(p,
                 "    setp.lt.u32 %in, %index, $0;\n"
                 "    @%in prefetch.global.L2 [%row+$1];\n",
                 lines - from, 128 * from);
}

void ptx_ring_fill(struct ptx *p, const struct ptx_fused *f, const struct ptx_ring *r, uint32_t warps)
{
    if (r->warps < warps)
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %warp, $0;\n"
                 "    @%in bra FILLED;\n",
                 r->warps);
    if (r->bulk)
        make_mbarriers(p, r);
    first_item(p, r);
    PTX_FILL(p,
             "    mov.u32 %fetch_job, %job;\n"
             "    mov.u32 %stage, ring;\n"
             "    mad.lo.u32 %stage, %warp, $0, %stage;\n",
             r->depth * r->stage_bytes);
    fill_stages(p, f, r);
    if (r->warps < warps)
        PTX_LINES(p, "FILLED:\n");
    for (int i = 0; i < f->n_prologue; i++)
        if (f->prologue[i].kind == FUSED_NORM) {
            prefetch_floats(p, f->prologue[i].param, f->n_in, 32 * warps);
            prefetch_floats(p, f->prologue[i].other, f->n_in, 32 * warps);
        }
    if (f->dependent)
        PTX_LINES(p, "    griddepcontrol.launch_dependents;\n"
                     "    griddepcontrol.wait;\n");
    else
        PTX_LINES(p, PTX_READS_FROM_HERE "\n");
}

// What the emitters of products call when they are at a stage.
struct consumer {
    const struct ptx_fused *f;
    const struct ptx_ring *r;
    uint32_t section;
    enum dtype type;
};

// Whether each lane copies the bytes that it reads itself: with cp.async, of units of whole chunks.
static bool copies_own(const struct consumer *c)
{
    return !c->r->bulk && !c->r->chains && tile_unit_bytes(c->type) % PIECE == 0;
}

// Waits until the stage is filled.
static void take_stage(struct ptx *p, const struct consumer *c)
{
    if (c->r->bulk)
        PTX_LINES(p, "    {\n"
                     "COMING:\n"
                     "    mbarrier.try_wait.parity.shared::cta.b64 %in, [%full], %phase;\n"
                     "    @!%in bra COMING;\n"
                     "    }\n");
    else
        PTX_FILL(p, "    cp.async.wait_group $0;\n", c->r->depth - 1);
    if (!c->r->bulk && !copies_own(c))
        PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n");
}

// When all lanes have the weights in registers, the stage is filled again, and the next one is at hand.
static void leave_stage(struct ptx *p, const void *of)
{
    const struct consumer *c = of;
    if (!copies_own(c))
        PTX_LINES(p, "    bar.warp.sync 0xffffffff;\n");
    fetch(p, c->f, c->r, c->section);
    next_stage(p, c->r);
}

void ptx_ring_item(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                   const struct ptx_fused_run *run, const struct ptx_ring *r)
{
    const struct consumer of = {f, r, (uint32_t)(s - f->sections), s->legs[run->first].type};
    const struct ptx_dot dot = {.p = p,
                                .type = of.type,
                                .rows = 1,
                                .blocks = r->parts,
                                .shared = f->n_prologue > 0,
                                .loaded = leave_stage,
                                .of = &of};
    take_stage(p, &of);
    if ((uint32_t)run->n * each_leg(s, r) > r->parts)
        PTX_FILL(p, "    rem.u32 %block, %item, $0;\n", r->parts);
    else
        PTX_LINES(p, "    mov.u32 %block, %item;\n");
    PTX_LINES(p, "    cvt.u64.u32 %unit, %stage;\n"
                 "    mad.wide.u32 %chunk, %lane, 16, %unit;\n"
                 "    mad.wide.u32 %pr0, %block, 256, %row;\n"
                 "    mov.u64 %px0, %row;\n");
    ptx_dot_unit(&dot);
}

static void take_chain(struct ptx *p, const void *of)
{
    take_stage(p, of);
    PTX_LINES(p, "    cvt.u64.u32 %pa, %stage;\n");
}

void ptx_ring_chain(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                    const struct ptx_matmul *m, const struct ptx_ring *r)
{
    const struct consumer of = {f, r, (uint32_t)(s - f->sections), m->type};
    ptx_half_staged_chain(p, m, &(struct ptx_half_stage){take_chain, leave_stage, &of});
}
