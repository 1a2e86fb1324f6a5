// The kernels of a graph's operations that are no products: sizes in, text and the shape of a launch out.
//
// As in emitters.h, sizes are immediates of the text and are checked here. How many rows a step has is not: every kernel
// takes the address of the step's header (struct ptx_step) first, its CTAs of one row have the row in %ctaid.x, and those
// of rows that the step has not return at once. A launch comes with grid[0] = 1, to be multiplied with the rows that there
// may be. So one text serves a step of any number of rows, and what a row becomes depends on nothing but itself.
// Values are float32, (rows, width) without gaps. Addresses are aligned to 16 bytes.
//
// PTX 6.3, sm_75. Ownership: none. Threads: none shared; emitters keep nothing.
#ifndef QUERN_EMIT_OPS_H
#define QUERN_EMIT_OPS_H

#include "kernels/ptx/emit.h"
#include "kernels/tensor.h"

// What a step brings, first in the memory that its kernels read.
struct ptx_step {
    uint32_t rows[2];      // [enum rows]: tokens, outputs
    uint32_t pages_stride; // entries of a page table
    uint32_t top_k;        // first logits of a row that are wanted, 0: all
    uint64_t kv;           // address of page 0
    uint64_t unused2;
};

enum ptx_element { PTX_ADD, PTX_ACT, PTX_GLU, PTX_SCALE, PTX_SOFTCAP };
// y = f(a), or f(a, b). Parameters step, a, [b,] y.
struct ptx_elements {
    uint32_t node;
    enum rows rows;
    uint32_t width;
    enum ptx_element op;
    enum act_kind act; // ACT and GLU
    float factor;      // SCALE; SOFTCAP: the cap
};
int ptx_emit_elements(struct ptx *p, const struct ptx_elements *e, struct ptx_launch *launch, struct error *err);
// %a<i> = f(%a<i>), or f(%a<i>, %b<i>), i < 4.
#define PTX_ELEMENT_REGS                                                                                               \
    "    .reg .pred %less;\n"                                                                                          \
    "    .reg .f32 %a<4>, %b<4>, %s, %t, %u;\n"
void ptx_element(struct ptx *p, const struct ptx_elements *e, uint32_t i);

// y[i] = x[outputs[i]]. Parameters step, outputs, x, y.
struct ptx_pick {
    uint32_t node, width;
};
int ptx_emit_pick(struct ptx *p, const struct ptx_pick *k, struct ptx_launch *launch, struct error *err);

// Each `group` columns by themselves, a CTA each. Parameters step, x, [gain,] [bias,] y.
struct ptx_norm {
    uint32_t node;
    enum rows rows;
    uint32_t width, group; // group divides width
    enum norm_kind kind;
    float eps;
    bool gain, bias;
};
uint32_t ptx_norm_threads(uint32_t group); // that sum a group's elements, each every so many
int ptx_emit_norm(struct ptx *p, const struct ptx_norm *n, struct ptx_launch *launch, struct error *err);

// cos.. and sin.. of position * frequency, times mscale; all in double. Parameters step, positions, frequencies (f64), y.
struct ptx_rope_table {
    uint32_t node, pairs;
    float mscale;
};
int ptx_emit_rope_table(struct ptx *p, const struct ptx_rope_table *r, struct ptx_launch *launch, struct error *err);
// Parameters step, x, table, y.
struct ptx_rope {
    uint32_t node;
    enum rows rows;
    uint32_t width, head_dim, pairs;
    enum rope_layout layout;
};
int ptx_emit_rope(struct ptx *p, const struct ptx_rope *r, struct ptx_launch *launch, struct error *err);

// Rows to the pages of the cache, as bytes equal to dtype_encode's. Parameters step, positions, tables, pages, x: row t
// writes to slot positions[t] % KV_PAGE of page pages[tables[t] * stride + positions[t] / KV_PAGE].
struct ptx_kv {
    uint32_t page_bytes; // from page to page
    uint32_t offset;     // of this layer's part within a page
    uint32_t dim;        // of a head, whole blocks
    enum dtype type;     // F32, F16, BF16, Q8_0, Q4_0
};
struct ptx_kv_write {
    uint32_t node, heads;
    struct ptx_kv kv;
};
int ptx_emit_kv_write(struct ptx *p, const struct ptx_kv_write *w, struct ptx_launch *launch, struct error *err);

// Attention over pages, in three forms that give a row the same bits; their order of sums stands in emit_attend_parts.h.
//   ROWS   A CTA is a row, a KV head and, by grid z, every z-th split of the positions: those of a row that have a split
//          leave their parts in memory, and the last one to come adds them up. It reads each key and value once for all
//          query heads of the KV head, or for up to 8 of them. Parameters step, positions, tables, pages, q, partials,
//          counters, y: of as many bytes as ptx_attend_partials and ptx_attend_counters say, counters zero before and after.
//          In grid z may stand any number from 1 to the splits.
//   LONE   The same, but rows that TILES serves are left alone.
//   TILES  A CTA is ptx_attend_tile rows of the step and a KV head: it serves runs of two or more rows at neighbouring
//          positions of one sequence, and reads each key and value once for the run and its query heads. Rows stand in
//          grid x in tiles. Parameters step, positions, tables, pages, q, y.
enum ptx_attend_form { PTX_ATTEND_ROWS, PTX_ATTEND_LONE, PTX_ATTEND_TILES };
struct ptx_attend {
    uint32_t node;
    enum rows rows; // tokens
    uint32_t heads, heads_kv;
    struct ptx_kv k, v;
    float scale, softcap; // softcap: 0 is none
    uint32_t window;      // 0: all
    enum ptx_attend_form form;
    uint32_t splits; // of a row's positions, about: a power of two, the same in all forms; ptx_attend_splits
};
int ptx_emit_attend(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch, struct error *err);
// Splits that fill a card at one row.
uint32_t ptx_attend_splits(uint32_t heads_kv);
// Grid z for that many rows: `splits` for one row, 1 from PTX_ATTEND_MANY rows on, which need no partials then.
enum { PTX_ATTEND_MANY = 16 };
uint32_t ptx_attend_lanes(uint32_t splits, uint32_t rows);
uint32_t ptx_attend_tile(const struct ptx_attend *a);
// Bytes for steps of up to so many rows in which grid z is more than 1.
size_t ptx_attend_partials(const struct ptx_attend *a, uint32_t rows);
size_t ptx_attend_counters(const struct ptx_attend *a, uint32_t rows);

// The choice of experts, a warp a row: n_used weights, then n_used ids. Parameters step, logits, y.
struct ptx_route {
    uint32_t node;
    enum rows rows;
    uint32_t experts, used;
    enum route_kind kind;
    bool normalise;
    float scale;
};
int ptx_emit_route(struct ptx *p, const struct ptx_route *r, struct ptx_launch *launch, struct error *err);
// The sum over a row's choices of weight times part, in order. Parameters step, x, route, y.
struct ptx_combine {
    uint32_t node;
    enum rows rows;
    uint32_t width, used;
};
int ptx_emit_combine(struct ptx *p, const struct ptx_combine *c, struct ptx_launch *launch, struct error *err);

// The first logits of a row, as struct candidate (kernels/top_k.h): the step's top_k of them, and no more than `keep`.
// One launch looks at chunks of a row, grid[1] of them, and gives `keep` keys of each; another one at those keys, until a
// launch has one chunk a row, which gives the candidates. Where a logit is not finite, the first id is -1. Parameters
// step, x, y: x floats, or the keys of the launch before.
enum { PTX_TOP_MAX = 256 };
struct ptx_top {
    uint32_t node;
    uint32_t n;    // of a row: floats, or keys, whole runs of `keep`
    uint32_t keep; // a power of two, up to PTX_TOP_MAX; no more than there are logits
    bool keys;
};
uint32_t ptx_top_chunk(uint32_t n, uint32_t keep);
int ptx_emit_top(struct ptx *p, const struct ptx_top *o, struct ptx_launch *launch, struct error *err);

// ---- what these kernels begin with

// The row of a CTA, or an end where the step has no such row. $1 is where the header counts them.
#define PTX_ROW_REGS                                                                                                   \
    "    .reg .pred %no_row;\n"                                                                                        \
    "    .reg .u32 %row, %n_rows;\n"                                                                                   \
    "    .reg .u64 %step;\n"
#define PTX_ROW                                                                                                        \
    "    mov.u32 %row, %ctaid.x;\n"                                                                                    \
    "    ld.param.u64 %step, [step];\n"                                                                                \
    "    cvta.to.global.u64 %step, %step;\n"                                                                           \
    "    ld.global.u32 %n_rows, [%step+$1];\n"                                                                         \
    "    setp.ge.u32 %no_row, %row, %n_rows;\n"                                                                        \
    "    @%no_row ret;\n"
#define PTX_ADDRESS(reg, name)                                                                                         \
    "    ld.param.u64 " reg ", [" name "];\n"                                                                          \
    "    cvta.to.global.u64 " reg ", " reg ";\n"

static inline uint32_t ptx_count_at(enum rows rows)
{
    return (uint32_t)(sizeof(uint32_t) * (size_t)rows);
}

// A mark for a double is two: 0d$x0$x1.
static inline uint32_t ptx_double_high(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof(bits));
    return (uint32_t)(bits >> 32);
}
static inline uint32_t ptx_double_low(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof(bits));
    return (uint32_t)bits;
}

// Widths that a kernel's 32-bit arithmetic on rows takes.
enum { PTX_WIDTH_MAX = 1 << 24 };
static inline int ptx_check_width(const char *what, uint32_t width, struct error *err)
{
    if (width < 1 || width > PTX_WIDTH_MAX)
        return fail(err, E_GPU, "%s: rows of %u", what, width);
    return 0;
}

#endif
