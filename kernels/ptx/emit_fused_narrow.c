// Emits products of float32 activations with float32 weights for sections of few columns, such as the logits of a router:
// units of 2, 4 or 8 columns. Their order is that of emit_matmul.c, which computes 32 columns a CTA and so gives work to 4
// multiprocessors where there are 128 columns.
//
// The naive loop: for each column, 16 partial sums, of which number k % 16 adds row[k] * w[k] by one fma after another;
// they are added by halves at the end. With units of U columns, lane U q + o of warp 0 has partial sums 4 q to 4 q + 3 of
// column o: it needs 16 bytes of the tile (weight_tile.h) and of the row for each 16 k, its step. All warps bring the
// weights of a round of steps to shared memory; while warp 0 multiplies them, the others load those of the next round. Two
// shuffles and two additions end the sum.
#include "kernels/ptx/emit_fused.h"
#include "kernels/ptx/emit_nibble.h"
#include "kernels/ptx/weight_tile.h"

enum { STEP_K = 16, STEP_BYTES = 2048, CHUNK_BYTES = 512, THREADS = 256 };

static uint32_t steps_of(const struct ptx_fused *f)
{
    return f->n_in / STEP_K;
}

// Steps that all threads together load at once, 16 bytes each.
static uint32_t steps_at_once(const struct ptx_fused_section *s)
{
    return THREADS / (4 * s->unit);
}

uint32_t ptx_fused_narrow_loads(const struct ptx_fused *f, uint32_t most)
{
    return MIN(most, ptx_tiles(steps_of(f), steps_at_once(&f->sections[0])));
}

bool ptx_fused_narrow(const struct ptx_fused *f)
{
    bool narrow = !f->q8 && !f->halves && ptx_fused_parts(f) == 1 && f->n_in % STEP_K == 0;
    for (int i = 0; i < f->n_sections; i++) {
        const struct ptx_fused_section *s = &f->sections[i];
        narrow = narrow && (s->unit == 2 || s->unit == 4 || s->unit == FUSED_NARROW) &&
                 s->unit == f->sections[0].unit && s->n_legs == 1 && s->legs[0].type == DT_F32 && !s->experts.n_used;
        for (int j = 0; j < s->n_nodes; j++)
            narrow = narrow && s->nodes[j].kind != FUSED_NORM && s->nodes[j].kind != FUSED_ROPE &&
                     s->nodes[j].kind != FUSED_KV;
    }
    return narrow;
}

uint32_t ptx_fused_narrow_bytes(uint32_t loads)
{
    return loads * THREADS * 16;
}

// A line of 128 bytes of a tile holds 4 k of the unit's columns, and maybe of others; the next one is a chunk of 32 rows
// ahead.
void ptx_fused_narrow_prefetch(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                               uint32_t threads, uint32_t label)
{
    PTX_FILL(p,
             "    ld.param.u64 %w8, [p$0];\n"
             "    cvta.to.global.u64 %w8, %w8;\n"
             "    div.u32 %line, %unit8, $4;\n"
             "    mad.wide.u32 %w8, %line, $1, %w8;\n"
             "    rem.u32 %line, %unit8, $4;\n"
             "    mad.wide.u32 %w8, %line, $2, %w8;\n"
             "    mad.wide.u32 %w8, %index, $3, %w8;\n"
             "    mov.u32 %line, %index;\n",
             (uint32_t)s->legs[0].w, (uint32_t)tile_bytes(DT_F32, f->n_in), 16 * s->unit, CHUNK_BYTES,
             PTX_TILE_ROWS / s->unit);
    PTX_FILL(p,
             "FETCH_$0:\n"
             "    setp.ge.u32 %in, %line, $1;\n"
             "    @%in bra FETCHED_$0;\n"
             "    prefetch.global.L2 [%w8];\n"
             "    add.u64 %w8, %w8, $2;\n"
             "    add.u32 %line, %line, $3;\n"
             "    bra FETCH_$0;\n"
             "FETCHED_$0:\n",
             label, 4 * steps_of(f), CHUNK_BYTES * threads, threads);
}

// Sets %from to the thread's first weights, %put to where it stores them, and %take and %x_at to what its lane multiplies
// in warp 0.
static void places(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s, uint32_t loads)
{
    PTX_FILL(p,
             "    .reg .pred %there;\n"
             "    .reg .u32 %put, %take, %step, %n;\n"
             "    .reg .u64 %from, %x_at;\n"
             "    .reg .b32 %loaded<$0>;\n"
             "    .reg .f32 %part<4>, %f<4>, %x<4>;\n"
             "    div.u32 %n, %tile, $3;\n"
             "    mad.wide.u32 %from, %n, $1, %w0;\n"
             "    rem.u32 %n, %tile, $3;\n"
             "    mad.wide.u32 %from, %n, $2, %from;\n",
             4 * loads, (uint32_t)tile_bytes(DT_F32, f->n_in), 16 * s->unit, PTX_TILE_ROWS / s->unit);
    PTX_FILL(p,
             "    div.u32 %step, %index, $3;\n"
             "    mad.wide.u32 %from, %step, $0, %from;\n"
             "    rem.u32 %n, %index, $3;\n"
             "    div.u32 %n, %n, $4;\n"
             "    mad.wide.u32 %from, %n, $1, %from;\n"
             "    mad.wide.u32 %x_at, %n, 16, %x_row;\n"
             "    rem.u32 %n, %index, $4;\n"
             "    mad.wide.u32 %from, %n, 16, %from;\n"
             "    mov.u32 %take, weights;\n"
             "    mad.lo.u32 %put, %index, 16, %take;\n"
             "    mov.u32 %left8, $2;\n",
             STEP_BYTES, CHUNK_BYTES, steps_of(f), 4 * s->unit, s->unit);
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    mov.f32 %part$0, 0f00000000;\n", i);
}

// Loads the thread's weights of a round. There may be fewer steps left.
static void load_round(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s, uint32_t loads)
{
    const uint32_t steps = steps_at_once(s);
    const bool whole = steps_of(f) % (steps * loads) == 0;
    for (uint32_t i = 0; i < loads; i++) {
        const uint32_t at = 4 * i;
        if (whole) {
            PTX_FILL(p, "    ld.global.nc.v4.b32 {%loaded$0, %loaded$1, %loaded$2, %loaded$3}, [%from+$4];\n", at,
                     at + 1, at + 2, at + 3, steps * STEP_BYTES * i);
            continue;
        }
        for (uint32_t k = 0; k < 4; k++)
            PTX_FILL(p, "    mov.b32 %loaded$0, 0;\n", at + k);
        PTX_FILL(p,
                 "    setp.lt.u32 %there, %step, $5;\n"
                 "    @%there ld.global.nc.v4.b32 {%loaded$0, %loaded$1, %loaded$2, %loaded$3}, [%from+$4];\n"
                 "    add.u32 %step, %step, $6;\n",
                 at, at + 1, at + 2, at + 3, steps * STEP_BYTES * i, steps_of(f), steps);
    }
    PTX_FILL(p, "    add.u64 %from, %from, $0;\n    bar.sync 0;\n", steps * STEP_BYTES * loads);
    for (uint32_t i = 0; i < loads; i++)
        PTX_FILL(p, "    st.shared.v4.b32 [%put+$4], {%loaded$0, %loaded$1, %loaded$2, %loaded$3};\n", 4 * i,
                 4 * i + 1, 4 * i + 2, 4 * i + 3, 16 * THREADS * i);
    PTX_LINES(p, "    bar.sync 0;\n");
}

// The lanes multiply the steps of the round, `unroll` at a time.
static void multiply_round(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s, uint32_t loads)
{
    const uint32_t unroll = steps_of(f) % 8 == 0 ? 8 : 1, steps = steps_at_once(s) * loads, step = 64 * s->unit;
    PTX_FILL(p,
             "    setp.ge.u32 %in, %index, $2;\n"
             "    @%in bra MULTIPLIED; // 7 of 8 times\n"
             "    min.u32 %n, %left8, $0;\n"
             "    mov.u32 %take, weights;\n"
             "    mad.lo.u32 %take, %lane, 16, %take;\n"
             "MULTIPLY: // $1 turns\n",
             steps, ptx_tiles(steps, unroll), 4 * s->unit);
    for (uint32_t u = 0; u < unroll; u++) {
        PTX_FILL(p, "    ld.shared.v4.f32 {%f0, %f1, %f2, %f3}, [%take+$0];\n", step * u);
        ptx_word(p, f->n_prologue ? "    ld.shared" : "    ld.global");
        PTX_FILL(p, ".v4.f32 {%x0, %x1, %x2, %x3}, [%x_at+$0];\n", 4 * STEP_K * u);
        for (uint32_t i = 0; i < 4; i++)
            PTX_FILL(p, "    fma.rn.f32 %part$0, %f$0, %x$0, %part$0;\n", i);
    }
    PTX_FILL(p,
             "    add.u32 %take, %take, $0;\n"
             "    add.u64 %x_at, %x_at, $1;\n"
             "    sub.u32 %n, %n, $2;\n"
             "    setp.ne.u32 %more, %n, 0;\n"
             "    @%more bra MULTIPLY;\n"
             "MULTIPLIED:\n",
             step * unroll, 4 * STEP_K * unroll, unroll);
}

// Adds the partial sums by halves: 8 apart, 4 apart, 2 apart, 1 apart.
static void add_up(struct ptx *p, const struct ptx_fused_section *s)
{
    for (uint32_t by = 2 * s->unit; by >= s->unit; by /= 2)
        for (uint32_t i = 0; i < 4; i++)
            PTX_FILL(p,
                     "    shfl.sync.bfly.b32 %f$0, %part$0, $1, 31, 0xffffffff;\n"
                     "    add.rn.f32 %part$0, %part$0, %f$0;\n",
                     i, by);
    PTX_FILL(p,
             "    add.rn.f32 %part0, %part0, %part2;\n"
             "    add.rn.f32 %part1, %part1, %part3;\n"
             "    add.rn.f32 %y0, %part0, %part1;\n"
             "    setp.ge.u32 %in, %lane, $0;\n"
             "    @%in bra MADE;\n",
             s->unit);
}

void ptx_fused_narrow_products(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                               uint32_t loads)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .u32 %left8;\n");
    places(p, f, s, loads);
    PTX_FILL(p, "ROUND: // $0 products a turn\n", 4 * loads);
    load_round(p, f, s, loads);
    multiply_round(p, f, s, loads);
    PTX_FILL(p,
             "    sub.u32 %left8, %left8, $0;\n"
             "    setp.gt.s32 %more, %left8, 0;\n"
             "    @%more bra ROUND;\n"
             "    bar.sync 0;\n"
             "    setp.ne.u32 %in, %warp, 0;\n"
             "    @%in bra MADE;\n",
             steps_at_once(s) * loads);
    add_up(p, s);
    PTX_LINES(p, "    }\n");
}
