// Emits products of few rows (1, 2 and 4; 8 before compute capability 7.5) of 8-bit activations with the weight types that
// take them.
//
// The naive loop: for each block of 256 of k, S = an exact integer sum times the block's scale or scales, and D =
// fma(S, da, D), one block after another; da is the scale of the activations (kernels/cpu/kernels.h). A CTA computes
// the 32 outputs of a tile for up to 8 rows of x; lane i of each warp computes output i. The blocks are distributed
// over the warps: each warp computes the complete S of its blocks and stores them in shared memory. Then warp r
// accumulates the S of row r in the order of the blocks. Thus k is spread over up to 16 warps, and the sum has the
// bits of the CPU.
//
// The weights of a warp are loaded in coalesced chunks of 16 bytes a lane. The activations are the same for all lanes
// of a warp, so each of their loads has one address.
#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/emit_grid.h"
#include "kernels/ptx/emit_matmul_parts.h"

enum { SHARED = 32768 };

// The most warps for which each has enough registers for its rows.
static uint32_t max_warps(uint32_t rows)
{
    return rows == 1 ? 16 : rows == 2 ? 12 : 8;
}

// How blocks are distributed. A round is as many blocks as shared memory can hold the S of.
struct rounds {
    uint32_t blocks; // of 256 k in a row
    uint32_t warps;  // warps that compute S
    uint32_t all;    // warps of the CTA: at the end each row needs one
    uint32_t round;  // blocks of a round, a multiple of `warps`
};

static struct rounds deal(const struct ptx_matmul *m)
{
    struct rounds r = {.blocks = tile_units(m->type, m->n_in)};
    uint32_t turns = ptx_tiles(r.blocks, max_warps(m->rows));
    r.warps = ptx_tiles(r.blocks, turns);
    r.all = MAX(r.warps, m->rows);
    r.round = SHARED / (128 * m->rows) / r.warps * r.warps;
    r.round = MIN(r.round, turns * r.warps);
    return r;
}

static bool several(const struct rounds *r)
{
    return r->round < r->blocks;
}

static void head(struct ptx *p, const struct ptx_matmul *m, const struct rounds *r)
{
    ptx_header(p, 63, 75);
    ptx_grid_table(p, m->type);
    ptx_matmul_entry(p, m, r->all);
    PTX_FILL(p,
             "    .reg .u32 %block, %put, %take, %first, %count;\n"
             "    .reg .u64 %unit, %chunk, %pr<$0>;\n"
             "    .reg .f32 %bs<$0>, %total, %da;\n"
             "    .shared .align 16 .b8 sums[$1];\n",
             m->rows, 128 * m->rows * r->round);
    ptx_matmul_sources(p, m);
    PTX_LINES(p, "    mov.u32 %put, sums;\n"
                 "    mad.lo.u32 %put, %lane, 4, %put;\n"
                 "    mov.u32 %first, 0;\n");
    if (several(r))
        PTX_LINES(p, "    mov.f32 %total, 0f00000000;\n");
}

// Computes the S of block %block for all rows, in %bs<r>, and stores them in slot %block - %first.
static void block(struct ptx *p, const struct ptx_matmul *m, const struct rounds *r)
{
    PTX_FILL(p,
             "    mad.wide.u32 %unit, %block, $0, %w_tile;\n"
             "    mad.wide.u32 %chunk, %lane, 16, %unit;\n",
             32 * tile_unit_bytes(m->type));
    for (uint32_t i = 0; i < m->rows; i++)
        PTX_FILL(p, "    mad.wide.u32 %pr$0, %block, 256, %px$0;\n", i);
    const struct ptx_dot dot = {.p = p, .type = m->type, .rows = m->rows, .blocks = r->blocks};
    ptx_dot_unit(&dot);
    PTX_FILL(p,
             "    sub.u32 %index, %block, %first;\n"
             "    mad.lo.u32 %take, %index, $0, %put;\n",
             128 * m->rows);
    for (uint32_t i = 0; i < m->rows; i++)
        PTX_FILL(p, "    st.shared.f32 [%take+$0], %bs$1;\n", 128 * i, i);
}

// Loops over this round's blocks %first + warp, %first + warp + warps, and so on.
static void blocks_of_round(struct ptx *p, const struct ptx_matmul *m, const struct rounds *r)
{
    PTX_FILL(p,
             "    add.u32 %block, %first, %warp;\n"
             "    add.u32 %count, %first, $0;\n"
             "    min.u32 %count, %count, $1;\n"
             "    setp.ge.u32 %in, %block, %count;\n",
             r->round, r->blocks);
    if (r->all > r->warps)
        PTX_FILL(p,
                 "    @%in bra FORMED;\n"
                 "    setp.ge.u32 %in, %warp, $0;\n",
                 r->warps);
    PTX_FILL(p,
             "    @%in bra FORMED;\n"
             "BLOCK: // $0 products a turn\n",
             256 * m->rows);
    block(p, m, r);
    PTX_FILL(p,
             "    add.u32 %block, %block, $0;\n"
             "    setp.lt.u32 %more, %block, %count;\n"
             "    @%more bra BLOCK;\n"
             "FORMED:\n"
             "    bar.sync 0;\n",
             r->warps);
}

// Warp w adds the S of row w of this round to %total; a warp without a row does nothing. %pr0 is the address of that
// row's scale of block %first.
static void add_round(struct ptx *p, const struct ptx_matmul *m, const struct rounds *r)
{
    PTX_FILL(p,
             "    setp.ge.u32 %in, %warp, $0;\n"
             "    @%in bra ADDED;\n"
             "    mad.lo.u32 %take, %warp, 128, %put;\n"
             "    mov.u64 %pr0, %px0;\n",
             m->rows);
    if (!several(r))
        PTX_LINES(p, "    // only here, so that no register holds it in the loop\n"
                     "    mov.f32 %total, 0f00000000;\n");
    for (uint32_t i = 1; i < m->rows; i++)
        PTX_FILL(p,
                 "    setp.eq.u32 %in, %warp, $0;\n"
                 "    selp.b64 %pr0, %px$0, %pr0, %in;\n",
                 i);
    PTX_FILL(p,
             "    mad.wide.u32 %pr0, %first, 4, %pr0;\n"
             "    sub.u32 %index, %count, %first;\n"
             "ADD:\n"
             "    ld.shared.f32 %bs0, [%take];\n"
             "    ld.global.f32 %da, [%pr0+$0];\n"
             "    fma.rn.f32 %total, %bs0, %da, %total;\n"
             "    add.u32 %take, %take, $1;\n"
             "    add.u64 %pr0, %pr0, 4;\n"
             "    sub.u32 %index, %index, 1;\n"
             "    setp.ne.u32 %more, %index, 0;\n"
             "    @%more bra ADD;\n"
             "ADDED:\n",
             r->blocks * PTX_Q8_SCALES, 128 * m->rows);
}

static void sum(struct ptx *p, const struct ptx_matmul *m)
{
    (void)m;
    PTX_LINES(p, "    mov.f32 %sum, %total;\n");
}

uint32_t ptx_matmul_q8(struct ptx *p, const struct ptx_matmul *m)
{
    struct rounds r = deal(m);
    head(p, m, &r);
    if (several(&r))
        PTX_LINES(p, "ROUND:\n");
    blocks_of_round(p, m, &r);
    add_round(p, m, &r);
    if (several(&r))
        PTX_FILL(p,
                 "    bar.sync 0;\n"
                 "    add.u32 %first, %first, $0;\n"
                 "    setp.lt.u32 %more, %first, $1;\n"
                 "    @%more bra ROUND;\n",
                 r.round, r.blocks);
    ptx_matmul_end(p, m, sum);
    return r.all;
}
