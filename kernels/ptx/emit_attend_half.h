// Attention on tensor cores: what its two kernels share. emit_attend_parts.h defines what they compute and the order of
// their sums; emit_attend_half_rows.c has the forms ROWS and LONE, emit_attend_half_tiles.c the form TILES.
//
// A warp multiplies 16 queries (rows of A of mma.sync m16n8k16) with the 64 keys of a page, and their weights with the
// page's values. Lane 4 g + t holds of each product rows g and g + 8 and, of each tile of 8 columns, columns 2t and 2t
// + 1. These are the places that A has in the next product, so that weights never leave their registers. Keys and
// values are in shared memory as rows of f16, from where ldmatrix loads them as they are, and ldmatrix.trans as
// columns.
//
// Registers that the parts below use, besides those that each one names:
//   %lane, %g, %col  the lane, lane / 4, lane % 4
//   %copier          the number of the thread among those that copy together
//   %q               fragments of queries, [16 elements of a head][first or last 8 of them][rows g or g + 8]
//   %s               scores, and weights in their place, [8 keys][row g or g + 8][column 2t or 2t + 1]
//   %p               weights in f16, [8 keys][row g or g + 8]
//
// Ownership: none. Threads: no shared state.
#ifndef QUERN_EMIT_ATTEND_HALF_H
#define QUERN_EMIT_ATTEND_HALF_H

#include "kernels/ptx/emit_attend_parts.h"
#include "kernels/ptx/emit_nibble.h"

enum { HALF_UNIT = 16, HALF_UNITS = KV_PAGE / HALF_UNIT }; // keys of a matrix instruction; those of a page
enum { HALF_SHARED = 99 << 10 };                           // bytes that a CTA gets on every card from sm_80 on
enum { HALF_ONE = 32768 };                                 // the weight of the largest score: 2^15

// The keys or the values of a head.
struct half_part {
    enum dtype type;
    uint32_t dim;
    uint32_t row; // bytes of a row in the cache
    uint32_t
        stride; // bytes of a row of f16 in shared memory: 16 more than it has, so that 8 rows are in different banks
    bool converted; // rows are copied as they are first, and become f16 in shared memory
};
struct half_shape {
    struct half_part k, v;
    uint32_t group, heads, blocks; // query heads of a KV head, those of a CTA, and CTAs of a group
    uint32_t copiers;              // threads that copy together: a warp, or all of a CTA
    uint32_t rows;                 // rows that a lane has of 16 queries: 2, or 1 if rows g + 8 are empty
};
struct half_part half_part_of(const struct ptx_kv *kv);

#define HALF_REGS                                                                                                      \
    "    .reg .pred %in, %narrow, %whole, %sees<2>, %odd, %less;\n"                                                    \
    "    .reg .u32 %lane, %warp, %g, %col, %copier, %copy_row, %copy_col, %to, %dst, %used, %work, %raw, %take;\n"     \
    "    .reg .u32 %lane_k, %lane_v, %i, %j, %n, %base, %bits, %largest;\n"                                            \
    "    .reg .s32 %valid, %fits, %lo<2>, %hi<2>;\n"                                                                   \
    "    .reg .u64 %from, %src, %at;\n"                                                                                \
    "    .reg .b32 %b<4>, %p<16>, %w<10>, %h<16>, %pick, %pick_d, %d, %bias_h, %zero;\n"                               \
    "    .reg .f32 %s<32>, %top<2>, %before<2>, %new<2>, %keep<2>, %part<2>, %times<2>, %factor<2>, %sum<2>;\n"        \
    "    .reg .f32 %score, %t, %u, %keep, %most, %other, %use, %bias, %nil;\n"

// Sets what depends on the thread: all of the registers above but %q, %s and %p, and %copy_row, %copy_col, %lane_k and
// %lane_v. `copier` is the thread's number in the CTA, %thread, or that in its warp.
void half_places(struct ptx *p, const struct half_shape *s);
// Begins to copy `rows` keys or values from slot `first` of the page on to %to. %from is the address of the page's slot
// 0. Slots behind %valid become zeros: nothing has written them. The caller commits.
void half_copy(struct ptx *p, const struct half_shape *s, const struct half_part *part, uint32_t first, uint32_t rows);
// Converts `rows` rows of blocks at %raw to f16 at %work. `label` makes labels unique.
void half_convert(struct ptx *p, const struct half_shape *s, const struct half_part *part, uint32_t rows,
                  uint32_t label);
// Sets the fragments of query r of the lane, and %factor<r>, by which its scores are multiplied. %pq<r> is the address
// of the head's element 2t. If `guarded`, heads for which %has_row<r> is false are zeros.
void half_query(struct ptx *p, const struct ptx_attend *a, uint32_t r, bool guarded);
// Adds to the scores of keys 16 u to 16 u + 15, or to zeros if `begins`, the products of 16 elements of a head: of the
// queries in %q<q> to + 3 with keys at [%take + at].
void half_score(struct ptx *p, uint32_t q, uint32_t u, uint32_t at, bool begins);
// Makes scores of products: the soft cap, and -inf for keys outside of %lo<r> to %hi<r>, which count from key 2t of the
// page on, unless %whole is set. Then sets %part<r> to the largest score of each row times its factor.
void half_tops(struct ptx *p, const struct ptx_attend *a, const struct half_shape *s, uint32_t label);
// Makes weights of scores: relative to %new<r>, which is no less than any score. Sets %keep<r> to what the sums with
// the largest score %before<r> are multiplied by, and %part<r> to the sum of the page's weights.
void half_weights(struct ptx *p, const struct half_shape *s);
// One matrix instruction for each half of 16 columns: to the sums %c<c> to + 7 of these columns, or to zeros if
// `begins`, adds the products of the weights of keys 16 u to 16 u + 15 with the values at [%take + at].
void half_values(struct ptx *p, uint32_t c, uint32_t u, uint32_t at, bool begins);

// The kernel of the forms ROWS and LONE (emit_attend_half_rows.c), and that of TILES (emit_attend_half_tiles.c).
void half_attend_rows(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch);
void half_attend_tiles(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch);
// What emit_attend.c and emit_attend_tiles.c have for the other arithmetic.
uint32_t half_attend_tile(const struct ptx_attend *a);
size_t half_attend_partials(const struct ptx_attend *a, uint32_t rows);
size_t half_attend_counters(const struct ptx_attend *a, uint32_t rows);

#endif
