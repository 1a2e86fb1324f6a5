// Emits the products of a unit for one or two rows with the types that have codebooks (IQ1, IQ2, IQ3): see emit_dot.c, whose
// order of operations and registers these have, and emit_grid.c, which unpacks the weights.
//
// A unit is a block of 256. All of its words are loaded first, to %w0 and the following registers. Each part of 32 weights is
// then unpacked to signed bytes, %q0 to %q7, for all rows.
#include "kernels/ptx/emit_bytes.h"
#include "kernels/ptx/emit_dot_parts.h"
#include "kernels/ptx/emit_grid.h"

// ---- loads

// Loads the piece of 8 or of 4 bytes to %w<first> and the next register.
static void load_piece(const struct ptx_dot *dot, uint32_t size, uint32_t first)
{
    ptx_dot_piece(dot, size);
    ptx_dot_load(dot);
    if (size == 8)
        PTX_FILL(dot->p, ".v2.u32 {%w$0, %w$1}, [%at];\n", first, first + 1);
    else
        PTX_FILL(dot->p, ".u32 %w$0, [%at];\n", first);
}

// Loads the unit: its chunks to %w0 and the following registers, the pieces of 8 and 4 bytes behind them, and %d.
static void load_unit(const struct ptx_dot *dot)
{
    const uint32_t bytes = tile_unit_bytes(dot->type), chunks = bytes / 16;
    uint32_t next = 4 * chunks;
    ptx_dot_chunks(dot, 0, 0, chunks);
    for (uint32_t size = 8; size >= 4; size /= 2)
        if (bytes & size) {
            load_piece(dot, size, next);
            next += size / 4;
        }
    if (bytes & 2)
        ptx_dot_half_piece(dot);
    ptx_dot_end_loads(dot);
    if (dot->type == DT_IQ1_M)
        ptx_grid_iq1_m_d(dot->p, 12);
    if (ptx_grid_factor(dot->type) < 1)
        PTX_FILL(dot->p, "    mul.rn.f32 %d, %d, 0f$x0;\n", ptx_float_bits(ptx_grid_factor(dot->type)));
}

// Where the registers of load_unit have the fields of part `sub`.
static struct ptx_grid_place place_of(enum dtype t, uint32_t sub)
{
    const uint32_t fourth = sub / 4, byte = sub % 4 * 8, half = sub % 2 * 16;
    switch (t) {
    case DT_IQ2_XXS:
        return (struct ptx_grid_place){
            .index = 2 * sub, .signs = 2 * sub + 1, .scale = 2 * sub + 1, .scale_at = 28, .bits = 4};
    case DT_IQ2_XS:
        return (struct ptx_grid_place){.index = 2 * sub, .scale = 16 + fourth, .scale_at = byte, .bits = 4};
    case DT_IQ2_S:
        return (struct ptx_grid_place){sub, 8 + sub, 16 + fourth, byte, 18 + fourth, byte, 4};
    case DT_IQ3_XXS:
        return (struct ptx_grid_place){
            .index = 2 * sub, .signs = 16 + sub, .scale = 16 + sub, .scale_at = 28, .bits = 4};
    case DT_IQ3_S:
        return (struct ptx_grid_place){2 * sub, 16 + sub, 24 + fourth, byte, 26, 4 * sub, 4};
    case DT_IQ1_S:
        return (struct ptx_grid_place){
            .index = sub, .high = 8 + sub / 2, .high_at = half, .scale = 8 + sub / 2, .scale_at = half + 12, .bits = 3};
    default: // IQ1_M
        return (struct ptx_grid_place){.index = sub,
                                       .high = 8 + sub / 2,
                                       .high_at = half,
                                       .scale = 12 + fourth,
                                       .scale_at = sub / 2 % 2 * 16 + 6 * (sub % 2),
                                       .bits = 3};
    }
}

// ---- products

// Sets %dot to the products of words `first` to first + n - 1.
static void products(struct ptx *p, uint32_t first, uint32_t n)
{
    PTX_FILL(p, "    dp4a.s32.s32 %dot, %q$0, %x$0, 0;\n", first);
    for (uint32_t i = first + 1; i < first + n; i++)
        PTX_FILL(p, "    dp4a.s32.s32 %dot, %q$0, %x$0, %dot;\n", i);
}

// Adds step * scale * sum of products to %isum<r>, with a scale for the part or for each 16.
static void scaled_part(const struct ptx_dot *dot, uint32_t r, uint32_t sub, uint32_t runs)
{
    struct ptx *p = dot->p;
    ptx_dot_load_x(dot, r, sub);
    ptx_dot_step(dot, r, sub);
    if (runs == 1) {
        products(p, 0, 8);
        PTX_LINES(p, "    mul.lo.s32 %step, %step, %scale0;\n");
    } else {
        products(p, 0, 4);
        PTX_LINES(p, "    mul.lo.s32 %sum, %dot, %scale0;\n");
        products(p, 4, 4);
        PTX_LINES(p, "    mad.lo.s32 %dot, %dot, %scale1, %sum;\n");
    }
    if (sub)
        PTX_FILL(p, "    mad.lo.s32 %isum$0, %dot, %step, %isum$0;\n", r);
    else
        PTX_FILL(p, "    mul.lo.s32 %isum$0, %dot, %step;\n", r);
}

void ptx_dot_unit_grid(const struct ptx_dot *dot)
{
    struct ptx *p = dot->p;
    const uint32_t runs = ptx_bytes_of(dot->type)->scales == PTX_SCALE_16 ? 2 : 1;
    PTX_LINES(p, "    .reg .b32 %q<8>;\n");
    load_unit(dot);
    for (uint32_t sub = 0; sub < 8; sub++) {
        const struct ptx_grid_place at = place_of(dot->type, sub);
        ptx_grid_weights(p, dot->type, &at);
        for (uint32_t run = 0; run < runs; run++)
            ptx_grid_scale(p, &at, run, "%scale", run);
        for (uint32_t r = 0; r < dot->rows; r++)
            scaled_part(dot, r, sub, runs);
    }
    for (uint32_t r = 0; r < dot->rows; r++)
        PTX_FILL(p,
                 "    cvt.rn.f32.s32 %f, %isum$0;\n"
                 "    mul.rn.f32 %bs$0, %f, %d;\n",
                 r);
}
