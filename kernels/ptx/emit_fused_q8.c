// Emits what a fused kernel needs for activations of 8 bits: the row in that form, and the products. See emit_fused.h for
// the interface.
//
// Products are computed as in emit_matmul_q8.c: lane i of a warp has output i of a tile of 32, a warp computes the
// complete S of a block of 256 (an item), and the S are added in the order of the blocks. The items of all tiles and all
// legs of a unit are distributed over the warps together, so a unit of 32 columns with one leg and n_in = 4096 has 16
// items. Where a section sums the products of several experts, so are the items of all of them: with 8 experts and
// n_in = 768 a unit has 24.
#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/emit_fused_ring.h"
#include "kernels/ptx/emit_nibble.h"

static uint32_t blocks_of(const struct ptx_fused *f)
{
    return ptx_tiles(f->n_in, 256);
}

uint32_t ptx_fused_q8_items(const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    return (uint32_t)s->n_legs * ptx_fused_unit_tiles(s) * blocks_of(f);
}

// ---- the row

// Sets %part to the part of the row that block %block belongs to, %inner to the number of the block in it, and %k to the
// lane's first element of the part.
static void locate_block(struct ptx *p, const struct ptx_fused *f)
{
    if (ptx_fused_parts(f) > 1)
        PTX_FILL(p,
                 "    div.u32 %part, %block, $0;\n"
                 "    mul.lo.u32 %inner, %part, $0;\n"
                 "    sub.u32 %inner, %block, %inner;\n",
                 blocks_of(f));
    else
        PTX_LINES(p, "    mov.u32 %part, 0;\n"
                     "    mov.u32 %inner, %block;\n");
    PTX_FILL(p,
             "    mul.lo.u32 %k, %inner, 256;\n"
             "    mad.lo.u32 %k, %lane, 8, %k;\n"
             "    mad.lo.u32 %i, %part, $0, %k;\n",
             f->n_in);
}

// Computes the lane's 8 elements of the block, from %i on, to %x0 to %x7. Where n_in is not a multiple of 8, it computes
// them one at a time; elements beyond the part are zeros.
static void block_elements(struct ptx *p, const struct ptx_fused *f)
{
    uint32_t last = 8 * (uint32_t)(f->n_prologue - 1);
    if (f->n_in % 256)
        for (uint32_t u = 0; u < 8; u++)
            PTX_FILL(p, "    mov.f32 %x$0, 0f00000000;\n", u);
    for (uint32_t u = 0; u < 8; u += f->n_in % 8 ? 1 : 8) {
        uint32_t count = f->n_in % 8 ? 1 : 8;
        if (f->n_in % 256)
            PTX_FILL(p,
                     "    setp.ge.u32 %in, %k, $0;\n"
                     "    @%in bra BEYOND_$1;\n",
                     f->n_in, u);
        ptx_fused_row_elements(p, f, count);
        ptx_fused_row_stores(p, f, count);
        for (uint32_t k = 0; k < count; k++)
            PTX_FILL(p, "    mov.f32 %x$0, %e$1;\n", u + k, last + k);
        PTX_LINES(p, "    }\n");
        if (f->n_in % 256)
            PTX_FILL(p, "BEYOND_$0:\n", u);
        if (count == 1)
            PTX_LINES(p, "    add.u32 %i, %i, 1;\n"
                         "    add.u32 %k, %k, 1;\n");
    }
}

// Computes and quantises block %block of the row with one warp. The bytes, sums, steps and scale go to shared memory in
// the layout of emit_dot.h.
static void quantize_block(struct ptx *p, const struct ptx_fused *f)
{
    const uint32_t blocks = blocks_of(f);
    PTX_LINES(p, "    {\n"
                 PTX_QUANTIZE_REGS
                 "    .reg .u32 %place, %part, %inner, %k;\n");
    locate_block(p, f);
    block_elements(p, f);
    ptx_quantize_lanes(p);
    PTX_FILL(p,
             "    cvt.u32.u64 %i, %row;\n"
             "    mad.lo.u32 %i, %part, $0, %i;\n",
             ptx_fused_part_bytes(f));
    PTX_FILL(p,
             "    mad.lo.u32 %place, %inner, 256, %i;\n"
             "    mad.lo.u32 %place, %lane, 8, %place;\n"
             "    st.shared.v2.u32 [%place], {%low, %high};\n"
             "    mad.lo.u32 %place, %inner, 32, %i;\n"
             "    add.u32 %place, %place, %lane;\n"
             "    and.b32 %index8, %lane, 1;\n"
             "    setp.eq.u32 %in, %index8, 0;\n"
             "    @%in st.shared.u16 [%place+$0], %sum8;\n"
             "    shr.u32 %index8, %lane, 2;\n"
             "    mad.lo.u32 %place, %inner, 8, %i;\n"
             "    add.u32 %place, %place, %index8;\n"
             "    and.b32 %index8, %lane, 3;\n"
             "    setp.eq.u32 %in, %index8, 0;\n"
             "    @%in st.shared.u8 [%place+$1], %step8;\n"
             "    setp.eq.u32 %in, %lane, 0;\n"
             "    mad.lo.u32 %place, %inner, 4, %i;\n"
             "    @%in st.shared.f32 [%place+$2], %d;\n"
             "    }\n",
             blocks * PTX_Q8_SUMS, blocks * PTX_Q8_STEPS, blocks * PTX_Q8_SCALES);
}

void ptx_fused_q8_row(struct ptx *p, const struct ptx_fused *f, uint32_t warps)
{
    const uint32_t blocks = ptx_fused_parts(f) * blocks_of(f);
    PTX_FILL(p,
             "    // the row's 8 bits, a warp a block of 256\n"
             "    .reg .u32 %block;\n"
             "    mov.u32 %block, %warp;\n"
             "    setp.ge.u32 %in, %block, $0;\n"
             "    @%in bra QUANTIZED;\n"
             "QUANTIZE:\n",
             blocks);
    quantize_block(p, f);
    PTX_FILL(p,
             "    add.u32 %block, %block, $0;\n"
             "    setp.lt.u32 %more, %block, $1;\n"
             "    @%more bra QUANTIZE;\n"
             "QUANTIZED:\n",
             warps, blocks);
}

// ---- products

// From the number %part of a tile among those of all places, sets %w_base to the matrix of its expert, %x_row to its part
// of the row, and %j to the tile.
static void locate_place(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    uint32_t tiles = ptx_fused_tiles(s);
    PTX_FILL(p,
             "    div.u32 %place, %part, $0;\n"
             "    mul.lo.u32 %j, %place, $0;\n"
             "    sub.u32 %j, %part, %j;\n"
             "    add.u32 %j, %j, %tile;\n",
             tiles);
    ptx_fused_experts_place(p, f, s);
    PTX_LINES(p, "    mov.u64 %w_base, %w_place;\n");
}

// From the number %part of a tile among those of all legs, sets %w_base to the matrix of its leg and %j to the tile.
static void locate_leg(struct ptx *p, const struct ptx_fused_section *s, const struct ptx_fused_run *run)
{
    uint32_t tiles = ptx_fused_tiles(s);
    PTX_FILL(p, "    mov.u64 %w_base, %w$0;\n", (uint32_t)run->first);
    for (uint32_t l = 1; l < (uint32_t)run->n; l++)
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %part, $0;\n"
                 "    selp.b64 %w_base, %w$1, %w_base, %in;\n",
                 l * tiles, (uint32_t)run->first + l);
    if (tiles > 1)
        PTX_FILL(p,
                 "    rem.u32 %j, %part, $0;\n"
                 "    add.u32 %j, %j, %tile;\n",
                 tiles);
    else
        PTX_LINES(p, "    mov.u32 %j, %tile;\n");
}

// From the warp's item %item, sets %w_base to its matrix, %j to its tile and %block to its block.
static void locate_item(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                        const struct ptx_fused_run *run)
{
    PTX_FILL(p,
             "    div.u32 %part, %item, $0;\n"
             "    mul.lo.u32 %block, %part, $0;\n"
             "    sub.u32 %block, %item, %block;\n",
             blocks_of(f));
    if (s->experts.summed)
        locate_place(p, f, s);
    else
        locate_leg(p, s, run);
}

// Computes %bs0, the S of item %item.
static void compute_item(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                         const struct ptx_fused_run *run)
{
    enum dtype type = s->legs[run->first].type;
    const struct ptx_dot dot = {.p = p, .type = type, .rows = 1, .blocks = blocks_of(f), .shared = f->n_prologue > 0};
    locate_item(p, f, s, run);
    PTX_FILL(p,
             "    mad.wide.u32 %unit, %j, $0, %w_base;\n"
             "    mad.wide.u32 %unit, %block, $1, %unit;\n"
             "    mad.wide.u32 %chunk, %lane, 16, %unit;\n"
             "    mad.wide.u32 %pr0, %block, 256, %x_row;\n"
             "    mov.u64 %px0, %x_row;\n",
             (uint32_t)tile_bytes(type, f->n_in), 32 * tile_unit_bytes(type));
    ptx_dot_unit(&dot);
}

// Sets %item to the warp's first item of a run. Item 0 belongs to the warp that follows the last one of the previous run,
// so that all of the `workers` warps that compute items have about as many. Other warps skip the run.
static void first_item(struct ptx *p, const struct ptx_fused_run *run, uint32_t warps, uint32_t workers, bool zero)
{
    uint32_t ahead = run->slot % workers;
    if (workers < warps)
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %warp, $0;\n"
                 "    @%in bra FORMED_$1;\n",
                 workers, (uint32_t)run->first);
    PTX_LINES(p, "    // the warp that has the fewest begins\n");
    if (zero && !ahead)
        PTX_LINES(p, "    mov.u32 %item, %warp;\n");
    else
        PTX_FILL(p,
                 "    add.u32 %item, %warp, $0;\n"
                 "    setp.ge.u32 %in, %item, $1;\n"
                 "    @%in sub.u32 %item, %item, $1;\n",
                 workers - ahead, workers);
}

// Loops over the warp's items of a run, and stores each S in its slot of shared memory. With a ring its warps compute them.
static void compute_items(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                          const struct ptx_fused_run *run, uint32_t warps, const struct ptx_ring *ring)
{
    const uint32_t items = (uint32_t)run->n * ptx_fused_unit_tiles(s) * blocks_of(f);
    const uint32_t workers = ring->depth ? ring->warps : warps;
    first_item(p, run, warps, workers, ring->depth > 0);
    if (!ring->depth || items < workers)
        PTX_FILL(p,
                 "    setp.ge.u32 %in, %item, $0;\n"
                 "    @%in bra FORMED_$1;\n",
                 items, (uint32_t)run->first);
    PTX_FILL(p, "FORM_$0: // 256 products a turn\n", (uint32_t)run->first);
    if (ring->depth)
        ptx_ring_item(p, f, s, run, ring);
    else
        compute_item(p, f, s, run);
    PTX_FILL(p,
             "    add.u32 %part, %item, $0;\n"
             "    mad.lo.u32 %part, %part, 128, %sums;\n"
             "    mad.lo.u32 %part, %lane, 4, %part;\n"
             "    st.shared.f32 [%part], %bs0;\n"
             "    add.u32 %item, %item, $1;\n"
             "    setp.lt.u32 %more, %item, $2;\n"
             "    @%more bra FORM_$3;\n"
             "FORMED_$3:\n",
             run->slot, workers, items, (uint32_t)run->first);
}

// Adds the S of the next n blocks of each leg, times the scales of the activations, to %y<leg>. %from8 is the address
// of the first S, %scales8 that of the first scale; both are advanced.
static void add_blocks(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s, uint32_t n)
{
    for (uint32_t b = 0; b < n; b++) {
        ptx_word(p, f->n_prologue ? "    ld.shared" : "    ld.global");
        PTX_FILL(p, ".f32 %da$0, [%scales8+$1];\n", b, 4 * b);
    }
    for (uint32_t l = 0; l < (uint32_t)s->n_legs; l++) {
        uint32_t leg = 128 * l * ptx_fused_tiles(s) * blocks_of(f);
        for (uint32_t b = 0; b < n; b++)
            PTX_FILL(p, "    ld.shared.f32 %bs$0, [%from8+$1];\n", b, leg + 128 * b);
        for (uint32_t b = 0; b < n; b++)
            PTX_FILL(p, "    fma.rn.f32 %y$0, %bs$1, %da$1, %y$0;\n", l, b);
    }
    PTX_FILL(p,
             "    add.u32 %from8, %from8, $0;\n"
             "    add.u64 %scales8, %scales8, $1;\n",
             128 * n, 4 * n);
}

// Adds the S of all blocks of each leg to %y<leg>, from %from8 and %scales8 on.
static void add_row(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    enum { AT_ONCE = 8 };
    uint32_t turns = blocks_of(f) / AT_ONCE, rest = blocks_of(f) % AT_ONCE;
    PTX_LINES(p, "    {\n");
    for (uint32_t l = 0; l < (uint32_t)s->n_legs; l++)
        PTX_FILL(p, "    mov.f32 %y$0, 0f00000000;\n", l);
    if (turns > 1)
        PTX_FILL(p, "    mov.u32 %turn8, $0;\nADD:\n", turns);
    if (turns)
        add_blocks(p, f, s, AT_ONCE);
    if (turns > 1)
        PTX_LINES(p, "    sub.u32 %turn8, %turn8, 1;\n"
                     "    setp.ne.u32 %more, %turn8, 0;\n"
                     "    @%more bra ADD;\n");
    if (rest)
        add_blocks(p, f, s, rest);
    PTX_LINES(p, "    }\n");
}

// Adds the products of one place after another, each of which has its S behind those of the place before.
static void add_places(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    const uint32_t blocks = blocks_of(f), apart = s->experts.apart ? ptx_fused_part_bytes(f) : 0;
    PTX_LINES(p, "    mov.f32 %total, 0f00000000;\n");
    for (uint32_t place = 0; place < s->experts.n_used; place++) {
        PTX_FILL(p,
                 "    mov.u32 %place, $0;\n"
                 "    mad.lo.u32 %from8, %warp, $1, %sums;\n"
                 "    mad.lo.u32 %from8, %lane, 4, %from8;\n"
                 "    add.u32 %from8, %from8, $2;\n"
                 "    add.u64 %scales8, %row, $3;\n",
                 place, 128 * blocks, 128 * place * ptx_fused_tiles(s) * blocks,
                 place * apart + blocks * PTX_Q8_SCALES);
        add_row(p, f, s);
        ptx_fused_experts_add(p, s, place);
    }
    PTX_LINES(p, "    mov.f32 %y0, %total;\n");
}

// Warp w of the unit's first warps adds the S of tile w of each leg to %y<leg>, in the order of the blocks.
static void add_up(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .u32 %from8, %turn8;\n"
                 "    .reg .u64 %scales8;\n"
                 "    .reg .f32 %da<8>, %bs<8>;\n");
    if (s->experts.summed) {
        add_places(p, f, s);
    } else {
        PTX_FILL(p,
                 "    mad.lo.u32 %from8, %warp, $0, %sums;\n"
                 "    mad.lo.u32 %from8, %lane, 4, %from8;\n"
                 "    add.u64 %scales8, %x_row, $1;\n",
                 128 * blocks_of(f), blocks_of(f) * PTX_Q8_SCALES);
        add_row(p, f, s);
    }
    PTX_LINES(p, "    }\n");
}

// The threads of the unit's columns load the biases of all places, before anything waits for them.
static void load_biases(struct ptx *p, const struct ptx_fused_section *s)
{
    PTX_FILL(p,
             "    setp.ge.u32 %in, %warp, $0;\n"
             "    @%in bra BIASED;\n",
             ptx_fused_tiles(s));
    for (uint32_t place = 0; place < s->experts.n_used && s->legs[0].bias >= 0; place++) {
        PTX_FILL(p, "    mov.u32 %place, $0;\n", place);
        ptx_fused_experts_bias(p, s, place);
    }
    PTX_LINES(p, "BIASED:\n");
}

void ptx_fused_q8_products(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s, uint32_t warps,
                           const struct ptx_ring *ring)
{
    PTX_LINES(p, "    .reg .u32 %item, %part, %block, %j;\n"
                 "    .reg .u64 %w_base, %unit, %chunk, %pr0, %px0;\n"
                 "    .reg .f32 %bs0;\n");
    if (s->experts.summed)
        load_biases(p, s);
    for (struct ptx_fused_run run = {0}; ptx_fused_next_run(s, ptx_fused_unit_tiles(s) * blocks_of(f), &run);)
        compute_items(p, f, s, &run, warps, ring);
    PTX_FILL(p,
             "    bar.sync 0;\n"
             "    setp.ge.u32 %in, %warp, $0;\n"
             "    @%in bra MADE;\n",
             ptx_fused_tiles(s));
    add_up(p, f, s);
}
