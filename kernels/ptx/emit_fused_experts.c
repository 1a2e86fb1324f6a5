// Emits what a fused kernel does about experts: it finds their matrices by the ids in memory, adds up their weighed
// products, and chooses them at its end. See emit_fused.h for the interface.
//
// A unit of a section that is not summed belongs to one place of the row, so all its weights are of one expert, and the
// products are those of a plain matrix that begins elsewhere. A unit of a summed section has the tiles of its columns in
// the matrices of all places. There lane j keeps what belongs to place j, its id, weight and scale, and a shuffle brings
// it to all lanes. The sum over the places is that of emit_combine, in the same order.
//
// No weights can be prefetched before the ids are known. They are read as soon as the launches ahead have ended, and then
// the weights come to L2 while the CTA computes the row.
#include "kernels/ptx/emit_fused.h"
#include "kernels/ptx/emit_nibble.h"
#include "kernels/ptx/weight_tile.h"

uint32_t ptx_fused_units(const struct ptx_fused_section *s)
{
    uint32_t units = ptx_tiles(s->n_out, s->unit);
    return s->experts.n_used && !s->experts.summed ? s->experts.n_used * units : units;
}

// ---- checks

int ptx_fused_check_experts(const struct ptx_fused *f, const struct ptx_fused_section *s, struct error *err)
{
    const struct ptx_fused_experts *e = &s->experts;
    if (!e->n_used)
        return ptx_fused_parts(f) == 1 ? 0 : fail(err, E_GPU, "fused: plain products with a part of a row");
    if (e->n_used > e->n_experts || e->n_experts > 65536 || (uint64_t)e->n_used * s->n_out > PTX_WIDTH_MAX)
        return fail(err, E_GPU, "fused: %u of %u experts of %u columns", e->n_used, e->n_experts, s->n_out);
    if (ptx_fused_parts(f) != (e->apart ? e->n_used : 1))
        return fail(err, E_GPU, "fused: %u places and %u parts of a row", e->n_used, ptx_fused_parts(f));
    if ((!e->each || (e->summed && !e->plain)) && (e->route < 0 || e->route >= FUSED_PARAMS))
        return fail(err, E_GPU, "fused: experts whose ids or weights are nowhere");
    if (e->summed && (e->n_used > FUSED_SUMMED || s->n_legs != 1))
        return fail(err, E_GPU, "fused: the sum of %u places of %d products", e->n_used, s->n_legs);
    return 0;
}

int ptx_fused_check_routes(const struct ptx_fused *f, struct error *err)
{
    int with_scores = 0;
    if (f->n_routes < 0 || f->n_routes > FUSED_ROUTES)
        return fail(err, E_GPU, "fused: %d choices of experts", f->n_routes);
    for (int i = 0; i < f->n_routes; i++) {
        const struct ptx_route *r = &f->routes[i].route;
        with_scores += ptx_route_bytes(r) > 0;
        if (ptx_route_check(r, err))
            return -1;
        if (r->kind == ROUTE_EACH || with_scores > 1)
            return fail(err, E_GPU, "fused: a choice of experts that has no room at the end");
    }
    return 0;
}

// ---- finding matrices

// Sets <at> to the address in parameter `param`.
static void address(struct ptx *p, const char *at, int param)
{
    ptx_word(p, "    ld.param.u64 ");
    ptx_word(p, at);
    PTX_FILL(p, ", [p$0];\n    cvta.to.global.u64 ", (uint32_t)param);
    ptx_word(p, at);
    ptx_word(p, ", ");
    ptx_word(p, at);
    ptx_word(p, ";\n");
}

// Adds the bytes of <expert> matrices of leg l to <w>. The product may exceed 32 bits.
static void add_matrices(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s, uint32_t l,
                         const char *w, const char *expert)
{
    uint64_t matrix = tile_bytes(s->legs[l].type, f->n_in) * ptx_tiles(s->n_out, PTX_TILE_ROWS);
    const uint32_t halves[] = {(uint32_t)matrix, (uint32_t)(matrix >> 32)};
    ptx_word(p, "    mad.wide.u32 ");
    ptx_word(p, w);
    ptx_word(p, ", ");
    ptx_word(p, expert);
    PTX_FILL(p, ", $0, ", halves[0]);
    ptx_word(p, w);
    ptx_word(p, ";\n");
    if (!halves[1])
        return;
    ptx_word(p, "    mul.wide.u32 %matrix, ");
    ptx_word(p, expert);
    PTX_FILL(p, ", $0;\n    shl.b64 %matrix, %matrix, 32;\n    add.u64 ", halves[1]);
    ptx_word(p, w);
    ptx_word(p, ", ");
    ptx_word(p, w);
    PTX_LINES(p, ", %matrix;\n");
}

// Sets %expert to the expert of place %place. Ids come from ptx_route_row and the kernel route, which store no others;
// the bound keeps addresses in the matrices whatever memory holds.
static void find_expert(struct ptx *p, const struct ptx_fused_section *s)
{
    const struct ptx_fused_experts *e = &s->experts;
    if (e->each) {
        PTX_LINES(p, "    mov.u32 %expert, %place;\n");
        return;
    }
    address(p, "%route_at", e->route);
    PTX_FILL(p,
             "    mad.wide.u32 %route_at, %place, 4, %route_at;\n"
             "    ld.global.u32 %expert, [%route_at+$0];\n"
             "    min.u32 %expert, %expert, $1;\n",
             4 * e->n_used, e->n_experts - 1);
}

// Sets %place to the place of unit <unit>, and <unit> to the number of the unit in it.
static void find_place(struct ptx *p, const struct ptx_fused_section *s, const char *unit)
{
    const uint32_t units = ptx_tiles(s->n_out, s->unit);
    ptx_word(p, "    div.u32 %place, ");
    ptx_word(p, unit);
    PTX_FILL(p, ", $0;\n    mul.lo.u32 %expert, %place, $0;\n    sub.u32 ", units);
    ptx_word(p, unit);
    ptx_word(p, ", ");
    ptx_word(p, unit);
    PTX_LINES(p, ", %expert;\n");
}

// Sets %x_row to the part of the row that place %place multiplies.
static void find_part(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    PTX_LINES(p, "    mov.u64 %x_row, %row;\n");
    if (s->experts.apart)
        PTX_FILL(p, "    mad.wide.u32 %x_row, %place, $0, %x_row;\n", ptx_fused_part_bytes(f));
}

// Lane j of each warp loads the id, the weight and the scale of place j.
static void load_places(struct ptx *p, const struct ptx_fused_section *s)
{
    const struct ptx_fused_experts *e = &s->experts;
    PTX_FILL(p,
             "    .reg .pred %has;\n"
             "    .reg .u32 %ids;\n"
             "    .reg .u64 %w_place;\n"
             "    .reg .f32 %weights, %scales, %total, %bias<$0>;\n"
             "    setp.lt.u32 %has, %lane, $0;\n"
             "    mov.u32 %ids, 0;\n"
             "    mov.f32 %weights, 0f3F800000;\n"
             "    mov.f32 %scales, 0f3F800000;\n",
             e->n_used);
    if (!e->each || !e->plain) {
        address(p, "%route_at", e->route);
        PTX_LINES(p, "    mad.wide.u32 %route_at, %lane, 4, %route_at;\n");
    }
    if (e->each)
        PTX_LINES(p, "    @%has mov.u32 %ids, %lane;\n");
    else
        PTX_FILL(p,
                 "    @%has ld.global.u32 %ids, [%route_at+$0];\n"
                 "    min.u32 %ids, %ids, $1;\n",
                 4 * e->n_used, e->n_experts - 1);
    if (!e->plain)
        PTX_LINES(p, "    @%has ld.global.f32 %weights, [%route_at];\n");
    if (s->legs[0].scale < 0)
        return;
    address(p, "%route_at", s->legs[0].scale);
    PTX_LINES(p, "    mad.wide.u32 %route_at, %ids, 4, %route_at;\n"
                 "    @%has ld.global.f32 %scales, [%route_at];\n");
}

void ptx_fused_experts_find(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    PTX_LINES(p, "    .reg .u32 %place, %expert;\n"
                 "    .reg .u64 %route_at, %matrix;\n");
    if (s->experts.summed) {
        load_places(p, s);
        return;
    }
    static const char *const w[FUSED_LEGS] = {"%w0", "%w1", "%w2"};
    find_place(p, s, "%tile");
    find_expert(p, s);
    find_part(p, f, s);
    for (uint32_t l = 0; l < (uint32_t)s->n_legs; l++)
        add_matrices(p, f, s, l, w[l], "%expert");
}

void ptx_fused_experts_place(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    PTX_LINES(p, "    shfl.sync.idx.b32 %expert, %ids, %place, 31, 0xffffffff;\n"
                 "    mov.u64 %w_place, %w0;\n");
    add_matrices(p, f, s, 0, "%w_place", "%expert");
    find_part(p, f, s);
}

// ---- prefetching

// The lines of 128 bytes of the unit's tiles in the matrices of all places, one after another.
static void prefetch_places(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                            uint32_t threads, uint32_t label)
{
    uint32_t bytes = ptx_fused_tiles(s) * (uint32_t)tile_bytes(s->legs[0].type, f->n_in), lines = ptx_tiles(bytes, 128);
    PTX_FILL(p,
             "    .reg .u64 %w_all;\n"
             "    ld.param.u64 %w_all, [p$0];\n"
             "    cvta.to.global.u64 %w_all, %w_all;\n"
             "    mad.wide.u32 %w_all, %unit8, $1, %w_all;\n"
             "    mov.u32 %line, %index;\n"
             "FETCH_$2:\n"
             "    setp.ge.u32 %in, %line, $3;\n"
             "    @%in bra FETCHED_$2;\n"
             "    div.u32 %place, %line, $4;\n",
             (uint32_t)s->legs[0].w, bytes, label, s->experts.n_used * lines, lines);
    find_expert(p, s);
    PTX_LINES(p, "    mov.u64 %w8, %w_all;\n");
    add_matrices(p, f, s, 0, "%w8", "%expert");
    PTX_FILL(p,
             "    mul.lo.u32 %place, %place, $0;\n"
             "    sub.u32 %place, %line, %place;\n"
             "    mad.wide.u32 %w8, %place, 128, %w8;\n"
             "    prefetch.global.L2 [%w8];\n"
             "    add.u32 %line, %line, $1;\n"
             "    bra FETCH_$2;\n"
             "FETCHED_$2:\n",
             lines, threads, label);
}

void ptx_fused_experts_prefetch(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                                uint32_t threads, uint32_t labels)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .u32 %place, %expert;\n"
                 "    .reg .u64 %route_at, %matrix;\n");
    if (s->experts.summed) {
        prefetch_places(p, f, s, threads, labels);
    } else {
        find_place(p, s, "%unit8");
        find_expert(p, s);
    }
    for (uint32_t l = 0; l < (uint32_t)s->n_legs && !s->experts.summed; l++) {
        uint32_t bytes = ptx_fused_tiles(s) * (uint32_t)tile_bytes(s->legs[l].type, f->n_in);
        address(p, "%w8", s->legs[l].w);
        add_matrices(p, f, s, l, "%w8", "%expert");
        PTX_FILL(p, "    mad.wide.u32 %w8, %unit8, $0, %w8;\n", bytes);
        ptx_fused_prefetch(p, bytes, threads, labels + l);
    }
    PTX_LINES(p, "    }\n");
}

// ---- the sum over the places

void ptx_fused_experts_bias(struct ptx *p, const struct ptx_fused_section *s, uint32_t number)
{
    if (s->legs[0].bias < 0)
        return;
    address(p, "%route_at", s->legs[0].bias);
    PTX_FILL(p,
             "    shfl.sync.idx.b32 %expert, %ids, %place, 31, 0xffffffff;\n"
             "    mad.wide.u32 %route_at, %expert, $0, %route_at;\n"
             "    mad.wide.u32 %route_at, %local, 4, %route_at;\n"
             "    mov.f32 %bias$1, 0f00000000;\n"
             "    @%in_row ld.global.f32 %bias$1, [%route_at];\n",
             4 * s->n_out, number);
}

void ptx_fused_experts_add(struct ptx *p, const struct ptx_fused_section *s, uint32_t number)
{
    if (s->legs[0].scale >= 0)
        PTX_LINES(p, "    shfl.sync.idx.b32 %other, %scales, %place, 31, 0xffffffff;\n"
                     "    mul.rn.f32 %y0, %y0, %other;\n");
    if (s->legs[0].bias >= 0)
        PTX_FILL(p, "    add.rn.f32 %y0, %y0, %bias$0;\n", number);
    PTX_LINES(p, "    shfl.sync.idx.b32 %other, %weights, %place, 31, 0xffffffff;\n"
                 "    fma.rn.f32 %total, %other, %y0, %total;\n");
}

// ---- the choice at the end

uint32_t ptx_fused_route_bytes(const struct ptx_fused *f)
{
    uint32_t bytes = f->n_routes ? 16 : 0; // the number of the CTA among those that have ended
    for (int i = 0; i < f->n_routes; i++)
        bytes += ptx_route_bytes(&f->routes[i].route);
    return bytes;
}

// The CTAs that are not the last to end return here. atom.inc wraps to 0 at the last one, which resets the counter for
// the next launch.
static void wait_for_all(struct ptx *p, const struct ptx_fused *f)
{
    PTX_FILL(p,
             "    // the last CTA to finish chooses experts\n"
             "    .shared .align 4 .b8 arrived[4];\n"
             "    .reg .u64 %px, %py, %bias;\n"
             "    bar.sync 0;\n"
             "    setp.ne.u32 %in, %index, 0;\n"
             "    @%in bra ARRIVED;\n"
             "    ld.param.u64 %px, [p$0];\n"
             "    cvta.to.global.u64 %px, %px;\n"
             "    sub.u32 %tile, %jobs, 1;\n"
             "    atom.acq_rel.gpu.global.inc.u32 %column, [%px], %tile;\n"
             "    st.shared.u32 [arrived], %column;\n"
             "ARRIVED:\n"
             "    bar.sync 0;\n"
             "    ld.shared.u32 %column, [arrived];\n"
             "    add.u32 %column, %column, 1;\n"
             "    setp.ne.u32 %in, %column, %jobs;\n"
             "    @%in ret;\n",
             (uint32_t)f->arrivals);
}

// A warp makes each choice.
void ptx_fused_choose(struct ptx *p, const struct ptx_fused *f)
{
    if (!f->n_routes)
        return;
    wait_for_all(p, f);
    for (uint32_t i = 0; i < (uint32_t)f->n_routes; i++) {
        PTX_FILL(p,
                 "    setp.ne.u32 %in, %warp, $0;\n"
                 "    @%in bra CHOSEN_$0;\n",
                 i);
        address(p, "%px", f->routes[i].logits);
        address(p, "%py", f->routes[i].y);
        if (f->routes[i].bias >= 0)
            address(p, "%bias", f->routes[i].bias);
        struct ptx_route r = f->routes[i].route;
        r.target = f->dependent || f->halves ? 80 : 75;
        ptx_route_row(p, &r);
        PTX_FILL(p, "CHOSEN_$0:\n", i);
    }
}
