// Emits the kernel repack_NODE, which makes tiles of the rows of a file; and the table of the tiles' byte orders. It
// runs once for each matrix or piece of a matrix when the weights are loaded.
//
// The naive loop: for each row, for each unit of it, for each byte `at` of the unit: tile[place(row % 32, at)] =
// row[source_of(at)], where weight_tile.h defines the places and weight_tile.def the sources. No byte is changed.
//
// A thread copies one unit of one row; lane i of a warp has row i of a tile. A CTA has 128 threads: 4 units of the 32
// rows of a tile. grid x covers the units of a row, grid y the tiles. There is no shared memory. A thread loads 4, 2 or
// 1 bytes at a time, the most that are aligned in every block of the type, combines them to words and stores 16 bytes
// at a time. The stores of a warp are coalesced; its loads are a row apart, and rely on the L1 and L2 caches.
#include "kernels/ptx/weight_tile.h"

enum { UNITS = 4, MAX_IN = 1 << 20 }; // units of a CTA; the most weights of a row

const struct ptx_tile_type ptx_tile_type[DT_COUNT] = {
#define TILE(NAME, n, ...) [DT_##NAME] = {.blocks = n, .fields = {__VA_ARGS__}},
#include "kernels/ptx/weight_tile.def"
#undef TILE
};

int tile_check(const char *what, enum dtype t, uint32_t n_in, struct error *err)
{
    if (t < 0 || t >= DT_COUNT || !ptx_tile_type[t].blocks)
        return fail(err, E_GPU, "%s: weights of type %d have no form on a GPU", what, (int)t);
    if (!n_in || n_in > MAX_IN || n_in % (uint32_t)dtype_info[t].block)
        return fail(err, E_GPU, "%s: rows of %u %s weights", what, n_in, dtype_info[t].name);
    return 0;
}

int ptx_tiles_bytes(enum dtype type, uint32_t n_in, uint32_t n_out, size_t *bytes, struct error *err)
{
    if (tile_check("tiles", type, n_in, err))
        return -1;
    if (size_mul((size_t)tile_bytes(type, n_in), ptx_tiles(n_out, PTX_TILE_ROWS), bytes))
        return fail(err, E_MEMORY, "tiles: %u rows of %u do not fit", n_out, n_in);
    return 0;
}

// The parameters of a thread's code.
struct repack {
    struct ptx *p;
    enum dtype type;
    uint32_t step; // bytes of a load
    bool cut;      // the last unit of a row has fewer blocks
};

// Returns the offset in the file, from the start of a unit, of the byte that becomes byte `at` of the unit in the tile.
// Sets *block to the number of the block that contains it.
static uint32_t source_of(enum dtype t, uint32_t at, uint32_t *block)
{
    const struct ptx_tile_type *tile = &ptx_tile_type[t];
    for (const struct ptx_field *f = tile->fields;; f++) {
        if (at < f->size * tile->blocks) {
            *block = at / f->size;
            return *block * (uint32_t)dtype_info[t].bytes + f->at + at % f->size;
        }
        at -= f->size * tile->blocks;
    }
}

// Returns the size in bytes of the widest load (4, 2 or 1) that is aligned in every block and within one field.
static uint32_t load_step(enum dtype t)
{
    uint32_t all = (uint32_t)dtype_info[t].bytes | 4;
    for (const struct ptx_field *f = ptx_tile_type[t].fields; f < ptx_tile_type[t].fields + TILE_FIELDS; f++)
        all |= f->at | f->size;
    return all & (0 - all);
}

// Loads `step` bytes to %piece: those that become bytes `at` and the following of the unit. A block that a cut unit
// does not have is not read.
static void load_bytes(const struct repack *r, uint32_t at)
{
    uint32_t block, from = source_of(r->type, at, &block);
    if (r->cut)
        PTX_FILL(r->p,
                 "    setp.gt.u32 %in, %left, $0;\n"
                 "    @%in ld.global.u$1 %piece, [%from+$2];\n",
                 block, 8 * r->step, from);
    else
        PTX_FILL(r->p, "    ld.global.u$0 %piece, [%from+$1];\n", 8 * r->step, from);
}

// Sets %w<index> to bytes at to at + n - 1 of the unit; n is 1, 2 or 4.
static void load_word(const struct repack *r, uint32_t index, uint32_t at, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += r->step) {
        if (r->cut)
            PTX_LINES(r->p, "    mov.u32 %piece, 0;\n");
        load_bytes(r, at + i);
        if (i == 0)
            PTX_FILL(r->p, "    mov.u32 %w$0, %piece;\n", index);
        else
            PTX_FILL(r->p, "    bfi.b32 %w$0, %piece, %w$0, $1, $2;\n", index, 8 * i, 8 * r->step);
    }
}

// Copies the unit: its chunks of 16 bytes, then its pieces of 8, 4, 2 and 1 bytes.
static void repack_unit(const struct repack *r)
{
    uint32_t bytes = tile_unit_bytes(r->type), at = 0;
    for (; at + 16 <= bytes; at += 16) {
        for (uint32_t i = 0; i < 4; i++)
            load_word(r, i, at + 4 * i, 4);
        PTX_FILL(r->p, "    st.global.v4.u32 [%to+$0], {%w0, %w1, %w2, %w3};\n", at * PTX_TILE_ROWS);
    }
    for (uint32_t size = 8; size; size /= 2) {
        if (!(bytes & size))
            continue;
        PTX_FILL(r->p, "    mad.wide.u32 %piece_to, %lane, $0, %tile;\n", size);
        for (uint32_t i = 0; i < size; i += 4)
            load_word(r, i / 4, at + i, MIN(size, 4u));
        if (size == 8)
            PTX_FILL(r->p, "    st.global.v2.u32 [%piece_to+$0], {%w0, %w1};\n", at * PTX_TILE_ROWS);
        else
            PTX_FILL(r->p, "    st.global.u$1 [%piece_to+$0], %w0;\n", at * PTX_TILE_ROWS, 8 * size);
        at += size;
    }
}

static void repack_head(struct ptx *p, const struct ptx_repack *r, uint32_t units)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p, "\n// node $0: tiles of ", r->node);
    ptx_copy(p, dtype_info[r->type].name, strlen(dtype_info[r->type].name));
    PTX_FILL(p,
             " from rows of $1\n"
             ".visible .entry repack_$0(\n"
             "    .param .u64 raw,\n"
             "    .param .u64 tiles,\n"
             "    .param .u32 n_rows)\n"
             ".maxntid 128, 1, 1\n"
             "{\n"
             "    .reg .pred %in;\n"
             "    .reg .u32 %lane, %unit, %row, %rows, %left, %index, %piece;\n"
             "    .reg .u32 %w<4>;\n"
             "    .reg .u64 %from, %to, %tile, %piece_to, %offset;\n"
             "    mov.u32 %index, %tid.x;\n"
             "    and.b32 %lane, %index, 31;\n"
             "    shr.u32 %unit, %index, 5;\n"
             "    mov.u32 %index, %ctaid.x;\n"
             "    mad.lo.u32 %unit, %index, 4, %unit;\n"
             "    setp.ge.u32 %in, %unit, $2;\n"
             "    @%in ret;\n",
             r->node, r->n_in, units);
}

// Sets %from to the unit in the file, %left to the number of blocks of the row from there on, %tile to the unit in the
// tile, and %to to the lane's 16 bytes of its chunk 0.
static void repack_addresses(struct ptx *p, const struct ptx_repack *r)
{
    const struct ptx_tile_type *tile = &ptx_tile_type[r->type];
    uint32_t bytes = tile_unit_bytes(r->type), blocks = r->n_in / (uint32_t)dtype_info[r->type].block;
    PTX_FILL(p,
             "    ld.param.u64 %tile, [tiles];\n"
             "    cvta.to.global.u64 %tile, %tile;\n"
             "    mov.u32 %index, %ctaid.y;\n"
             "    mul.wide.u32 %offset, %index, $0;\n"
             "    mad.lo.u64 %tile, %offset, 32, %tile;\n"
             "    mul.wide.u32 %offset, %unit, $1;\n"
             "    add.u64 %tile, %tile, %offset;\n"
             "    mad.wide.u32 %to, %lane, 16, %tile;\n"
             "    // rows past the end become zeros\n"
             "    mad.lo.u32 %row, %index, 32, %lane;\n"
             "    ld.param.u32 %rows, [n_rows];\n"
             "    setp.ge.u32 %in, %row, %rows;\n"
             "    @%in bra ZEROS;\n"
             "    ld.param.u64 %from, [raw];\n"
             "    cvta.to.global.u64 %from, %from;\n"
             "    mul.wide.u32 %offset, %row, $2;\n"
             "    add.u64 %from, %from, %offset;\n"
             "    mad.wide.u32 %from, %unit, $3, %from;\n"
             "    mul.lo.u32 %index, %unit, $4;\n"
             "    sub.u32 %left, $5, %index;\n",
             bytes * tile_units(r->type, r->n_in), 32 * bytes, blocks * (uint32_t)dtype_info[r->type].bytes, bytes,
             tile->blocks, blocks);
}

// The unit of a lane whose row is beyond the end: zeros.
static void repack_zeros(struct ptx *p, enum dtype type)
{
    uint32_t bytes = tile_unit_bytes(type), at = 0;
    PTX_LINES(p, "    ret;\n"
                 "ZEROS:\n"
                 "    mov.u32 %w0, 0;\n");
    for (; at + 16 <= bytes; at += 16)
        PTX_FILL(p, "    st.global.v4.u32 [%to+$0], {%w0, %w0, %w0, %w0};\n", at * PTX_TILE_ROWS);
    for (uint32_t size = 8; size; size /= 2) {
        if (!(bytes & size))
            continue;
        PTX_FILL(p, "    mad.wide.u32 %piece_to, %lane, $0, %tile;\n", size);
        if (size == 8)
            PTX_FILL(p, "    st.global.v2.u32 [%piece_to+$0], {%w0, %w0};\n", at * PTX_TILE_ROWS);
        else
            PTX_FILL(p, "    st.global.u$1 [%piece_to+$0], %w0;\n", at * PTX_TILE_ROWS, 8 * size);
        at += size;
    }
}

int ptx_emit_repack(struct ptx *p, const struct ptx_repack *r, struct ptx_launch *launch, struct error *err)
{
    if (tile_check("repack", r->type, r->n_in, err))
        return -1;
    uint32_t units = tile_units(r->type, r->n_in);
    const struct repack of = {p, r->type, load_step(r->type), r->n_in % tile_unit_weights(r->type) != 0};
    repack_head(p, r, units);
    repack_addresses(p, r);
    repack_unit(&of);
    repack_zeros(p, r->type);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){.entry = "repack", .grid = {ptx_tiles(units, UNITS), 1, 1}, .block = {128, 1, 1}};
    return ptx_finish(p, err);
}
