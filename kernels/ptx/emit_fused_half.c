// Emits what a fused kernel needs for activations of 16 bits: the row in that form, and the products, with the bits of
// emit_halve.c and emit_matmul_half.c. See emit_fused.h for the interface.
//
// Warp c of the first 8 computes chain c of every tile of every leg of the unit, one after the other, and leaves its 32
// sums in shared memory; warp j then adds those of tile j of each leg in the order of the chains. Of a section that sums
// the products of experts, it does so for the tiles of all places.
#include "kernels/ptx/emit_fused_ring.h"
#include "kernels/ptx/emit_matmul_parts.h"

enum { CHAINS = 8, TILE_SUMS = 1024 };

static enum dtype type_of(const struct ptx_fused *f)
{
    return f->sections[0].legs[0].type;
}

uint32_t ptx_fused_half_sums_bytes(const struct ptx_fused_section *s)
{
    return TILE_SUMS * (uint32_t)s->n_legs * ptx_fused_unit_tiles(s);
}

// ---- the row

// A loop in which each thread computes 8 elements of part %part of the row, from %i on; the caller emits what becomes of
// them.
static void begin_pass(struct ptx *p, const struct ptx_fused *f, uint32_t number)
{
    PTX_FILL(p,
             "    mul.lo.u32 %i, %part, $0;\n"
             "    add.u32 %end, %i, $0;\n"
             "    mad.lo.u32 %i, %index, 8, %i;\n"
             "    setp.ge.u32 %in, %i, %end;\n"
             "    @%in bra PASSED_$1;\n"
             "PASS_$1:\n",
             f->n_in, number);
    ptx_fused_row_elements(p, f, 8);
}

static void end_pass(struct ptx *p, uint32_t number, uint32_t warps)
{
    PTX_FILL(p,
             "    }\n"
             "    add.u32 %i, %i, $0;\n"
             "    setp.lt.u32 %more, %i, %end;\n"
             "    @%more bra PASS_$1;\n"
             "PASSED_$1:\n",
             256 * warps, number);
}

// Sets %to to where the 16 bits of the elements from %i on go.
static void place_elements(struct ptx *p, const struct ptx_fused *f)
{
    PTX_FILL(p,
             "    mov.u32 %to, row;\n"
             "    mad.lo.u32 %to, %part, $0, %to;\n"
             "    mad.lo.u32 %to, %i, 2, %to;\n",
             ptx_fused_part_bytes(f) - 2 * f->n_in);
}

// Sets %scale to the scale of the part, and stores the factor that undoes it behind the part.
static void find_scale(struct ptx *p, const struct ptx_fused *f, uint32_t warps)
{
    const uint32_t last = 8 * (uint32_t)(f->n_prologue - 1);
    PTX_LINES(p, "    mov.u32 %top, 0;\n");
    begin_pass(p, f, 0);
    for (uint32_t k = 0; k < 8; k++)
        PTX_FILL(p,
                 "    mov.b32 %bits, %e$0;\n"
                 "    and.b32 %bits, %bits, 0x7fffffff;\n"
                 "    max.u32 %top, %top, %bits;\n",
                 last + k);
    end_pass(p, 0, warps);
    PTX_LINES(p, "    redux.sync.max.u32 %top, %top, 0xffffffff;\n"
                 "    mov.u32 %to, sums;\n"
                 "    mad.lo.u32 %bits, %warp, 4, %to;\n"
                 "    setp.eq.u32 %in, %lane, 0;\n"
                 "    @%in st.shared.u32 [%bits], %top;\n"
                 "    bar.sync 0;\n");
    for (uint32_t w = 0; w < warps; w++)
        PTX_FILL(p,
                 "    ld.shared.u32 %bits, [%to+$0];\n"
                 "    max.u32 %top, %top, %bits;\n",
                 4 * w);
    ptx_half_scale(p);
    PTX_FILL(p,
             "    mov.u32 %to, row;\n"
             "    mad.lo.u32 %to, %part, $1, %to;\n"
             "    setp.eq.u32 %in, %index, 0;\n"
             "    @%in st.shared.u32 [%to+$0], %bits;\n",
             2 * f->n_in, ptx_fused_part_bytes(f));
}

static void put_f16(struct ptx *p, const struct ptx_fused *f, uint32_t last)
{
    for (uint32_t k = 0; k < 8; k += 2)
        PTX_FILL(p,
                 "    mul.rn.f32 %h$1, %e$3, %scale;\n"
                 "    mul.rn.f32 %h$2, %e$4, %scale;\n"
                 "    cvt.rn.f16x2.f32 %w$0h, %h$2, %h$1;\n",
                 k / 2, k, k + 1, last + k, last + k + 1);
    place_elements(p, f);
    PTX_LINES(p, "    st.shared.v4.b32 [%to], {%w0h, %w1h, %w2h, %w3h};\n");
}

static void put_bf16(struct ptx *p, const struct ptx_fused *f, uint32_t last)
{
    for (uint32_t k = 0; k < 8; k += 2)
        PTX_FILL(p,
                 "    cvt.rn.bf16x2.f32 %w$0h, %e$4, %e$3;\n"
                 "    shl.b32 %bits, %w$0h, 16;\n"
                 "    mov.b32 %h$1, %bits;\n"
                 "    and.b32 %bits, %w$0h, 0xffff0000;\n"
                 "    mov.b32 %h$2, %bits;\n"
                 "    sub.rn.f32 %h$1, %e$3, %h$1;\n"
                 "    sub.rn.f32 %h$2, %e$4, %h$2;\n"
                 "    cvt.rn.bf16x2.f32 %w$0l, %h$2, %h$1;\n",
                 k / 2, k, k + 1, last + k, last + k + 1);
    place_elements(p, f);
    PTX_FILL(p,
             "    st.shared.v4.b32 [%to], {%w0h, %w1h, %w2h, %w3h};\n"
             "    st.shared.v4.b32 [%to+$0], {%w0l, %w1l, %w2l, %w3l};\n",
             2 * f->n_in);
}

void ptx_fused_half_row(struct ptx *p, const struct ptx_fused *f, uint32_t warps)
{
    const uint32_t last = 8 * (uint32_t)(f->n_prologue - 1);
    const bool parts = ptx_fused_parts(f) > 1;
    PTX_LINES(p, "    .reg .u32 %top, %to, %bits, %part, %end;\n"
                 "    .reg .f32 %scale, %h<8>;\n"
                 "    .reg .b32 %w0h, %w1h, %w2h, %w3h, %w0l, %w1l, %w2l, %w3l;\n"
                 "    mov.u32 %part, 0;\n");
    if (parts)
        PTX_LINES(p, "PART:\n");
    if (type_of(f) == DT_F16)
        find_scale(p, f, warps);
    begin_pass(p, f, 1);
    ptx_fused_row_stores(p, f, 8);
    if (type_of(f) == DT_F16)
        put_f16(p, f, last);
    else
        put_bf16(p, f, last);
    end_pass(p, 1, warps);
    if (parts)
        PTX_FILL(p,
                 "    bar.sync 0;\n"
                 "    add.u32 %part, %part, 1;\n"
                 "    setp.lt.u32 %more, %part, $0;\n"
                 "    @%more bra PART;\n",
                 ptx_fused_parts(f));
}

// ---- the products

static struct ptx_matmul product_of(const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    return (struct ptx_matmul){
        .type = type_of(f), .n_in = f->n_in, .n_out = s->n_out, .rows = 1, .x_shared = f->n_prologue > 0};
}

// Stores the sums of a chain, at %put8 behind %put_at.
static void put_sums(struct ptx *p)
{
    PTX_LINES(p, "    add.u32 %put8, %put8, %put_at;\n"
                 "    mad.lo.u32 %put8, %g, 4, %put8;\n"
                 "    setp.eq.u32 %in, %t, 0;\n");
    for (uint32_t i = 0; i < 8; i += 2)
        PTX_FILL(p, "    @%in st.shared.f32 [%put8+$0], %acc$1;\n", 16 * i, i);
}

// The chain of the warp for tile j of the matrix at the address in <w>. Its sums go to the place of tile number `at` from
// %put_at on.
static void tile_chain(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s, const char *w,
                       uint32_t j, uint32_t at)
{
    const struct ptx_matmul m = product_of(f, s);
    PTX_FILL(p,
             "    {\n"
             "    .reg .u32 %put8;\n"
             "    .reg .u64 %w_tile, %pb;\n"
             "    add.u32 %put8, %tile, $0;\n"
             "    mad.wide.u32 %w_tile, %put8, $1, ",
             j, (uint32_t)tile_bytes(m.type, f->n_in));
    ptx_word(p, w);
    PTX_LINES(p, ";\n"
                 "    mov.u64 %pb, %x_row;\n");
    ptx_half_chain(p, &m);
    PTX_FILL(p, "    mad.lo.u32 %put8, %warp, 128, $0;\n", TILE_SUMS * at);
    put_sums(p);
    PTX_LINES(p, "    }\n");
}

// The chains of all places, one after another.
static void place_chains(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    PTX_LINES(p, "    mov.u32 %place, 0;\n"
                 "PLACE:\n");
    ptx_fused_experts_place(p, f, s);
    for (uint32_t j = 0; j < ptx_fused_tiles(s); j++)
        tile_chain(p, f, s, "%w_place", j, j);
    PTX_FILL(p,
             "    add.u32 %put_at, %put_at, $0;\n"
             "    add.u32 %place, %place, 1;\n"
             "    setp.lt.u32 %more, %place, $1;\n"
             "    @%more bra PLACE;\n",
             TILE_SUMS * ptx_fused_tiles(s), s->experts.n_used);
}

// The chains of the warp for all tiles of all legs, whose weights come from the ring one after the other.
static void ring_chains(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                        const struct ptx_ring *ring)
{
    const struct ptx_matmul m = product_of(f, s);
    PTX_LINES(p, "    {\n"
                 "    .reg .u32 %put8, %at8;\n"
                 "    .reg .u64 %pb;\n"
                 "    mov.u32 %at8, 0;\n"
                 "CHAIN:\n"
                 "    mov.u64 %pb, %x_row;\n"
                 "    {\n");
    ptx_ring_chain(p, f, s, &m, ring);
    PTX_FILL(p,
             "    }\n"
             "    mul.lo.u32 %put8, %warp, 128;\n"
             "    mad.lo.u32 %put8, %at8, $0, %put8;\n",
             TILE_SUMS);
    put_sums(p);
    PTX_FILL(p,
             "    add.u32 %at8, %at8, 1;\n"
             "    setp.lt.u32 %more, %at8, $0;\n"
             "    @%more bra CHAIN;\n"
             "    }\n",
             (uint32_t)s->n_legs * ptx_fused_tiles(s));
}

// Warp j adds the sums of tile j of each leg to %y<leg>, from those at %take8 on.
static void add_chains(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .f32 %part8, %scale8;\n");
    if (type_of(f) == DT_F16) {
        ptx_word(p, f->n_prologue ? "    ld.shared.f32 %scale8, " : "    ld.global.f32 %scale8, ");
        PTX_FILL(p, "[%x_row+$0];\n", 2 * f->n_in);
    }
    for (uint32_t l = 0; l < (uint32_t)s->n_legs; l++) {
        PTX_FILL(p, "    mov.f32 %y$0, 0f00000000;\n", l);
        for (uint32_t c = 0; c < CHAINS; c++)
            PTX_FILL(p,
                     "    ld.shared.f32 %part8, [%take8+$1];\n"
                     "    add.rn.f32 %y$0, %y$0, %part8;\n",
                     l, TILE_SUMS * l * ptx_fused_tiles(s) + 128 * c);
        if (type_of(f) == DT_F16)
            PTX_FILL(p, "    mul.rn.f32 %y$0, %y$0, %scale8;\n", l);
    }
    PTX_LINES(p, "    }\n");
}

// Adds the sums of one place after another, and these to each other.
static void add_places(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    PTX_LINES(p, "    mov.f32 %total, 0f00000000;\n"
                 "    mov.u32 %place, 0;\n"
                 "PLACE:\n");
    ptx_fused_experts_place(p, f, s);
    add_chains(p, f, s);
    ptx_fused_experts_bias(p, s, 0);
    ptx_fused_experts_add(p, s, 0);
    PTX_FILL(p,
             "    add.u32 %take8, %take8, $0;\n"
             "    add.u32 %place, %place, 1;\n"
             "    setp.lt.u32 %more, %place, $1;\n"
             "    @%more bra PLACE;\n"
             "    mov.f32 %y0, %total;\n",
             TILE_SUMS * ptx_fused_tiles(s), s->experts.n_used);
}

static void all_chains(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                       const struct ptx_ring *ring)
{
    static const char *const w[FUSED_LEGS] = {"%w0", "%w1", "%w2"};
    PTX_FILL(p,
             "    {\n" PTX_HALF_REGS
             "    .reg .u32 %put_at;\n"
             "    mov.u32 %put_at, sums;\n"
             "    shr.u32 %g, %lane, 2;\n"
             "    and.b32 %t, %lane, 3;\n"
             "    setp.lt.u32 %has, %g, 1;\n"
             "    setp.ge.u32 %in, %warp, $0;\n"
             "    @%in bra CHAINED;\n",
             CHAINS);
    if (s->experts.summed)
        place_chains(p, f, s);
    if (ring->depth)
        ring_chains(p, f, s, ring);
    for (uint32_t l = 0; l < (uint32_t)s->n_legs && !s->experts.summed && !ring->depth; l++)
        for (uint32_t j = 0; j < ptx_fused_tiles(s); j++)
            tile_chain(p, f, s, w[l], j, l * ptx_fused_tiles(s) + j);
    PTX_LINES(p, "CHAINED:\n"
                 "    }\n");
}

void ptx_fused_half_products(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                             const struct ptx_ring *ring)
{
    all_chains(p, f, s, ring);
    PTX_FILL(p,
             "    bar.sync 0;\n"
             "    setp.ge.u32 %in, %warp, $0;\n"
             "    @%in bra MADE;\n"
             "    {\n"
             "    .reg .u32 %take8;\n"
             "    mov.u32 %take8, sums;\n"
             "    mad.lo.u32 %take8, %lane, 4, %take8;\n"
             "    mad.lo.u32 %take8, %warp, $1, %take8;\n",
             ptx_fused_tiles(s), TILE_SUMS);
    if (s->experts.summed)
        add_places(p, f, s);
    else
        add_chains(p, f, s);
    PTX_LINES(p, "    }\n");
}
