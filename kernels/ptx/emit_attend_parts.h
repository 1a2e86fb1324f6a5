// Attention over the pages of the KV cache: the parts that its kernels share, and the definition of the order of their
// sums. For a row at position t and a query head h with KV head g, all kernels equal this loop:
//
//   for (j = low; j <= t; j++) // low is 0, or max(0, t - window + 1) with a window, or t - t % window with chunks
//       s[j] = cap(scale * dot(q[h], k[g][j])) + slope[h] * (j - t);
//   top = max over j of s[j];
//   y[h] = (sum over j of exp(s[j] - top) * v[g][j]) / (sum over j of exp(s[j] - top));
//
// They compute it in one pass over the pages (online softmax): the maximum so far, the sum of the weights and the sum
// of the weighted values are kept, and the two sums are multiplied by exp(old top - new top) when the maximum grows.
// There are two arithmetics, each with an order of its own. With floats:
//
//   score    The key is cut into strips of 8 elements. The even strips and the odd strips have an accumulator each,
//            which starts at 0 and adds elements in order by fma. The two are added, then scaled, then capped. With slopes,
//            the slope times the distance is added by an fma; with halves there are none.
//   page     A page has 64 keys. top becomes the largest score so far in the split. The visible keys get weights
//            2^((score - top) log2 e). The weights of a page are added as a binary tree over the bits of the slot,
//            the lowest bit first; values are added by fma in order of position.
//   split    A split is 2^n pages and begins at a multiple of 2^n pages. n depends only on the row's position (and
//            the window): it is the least n for which the visible pages fit in `splits` splits.
//   row      The splits are folded in order into totals, which start as (top, sum, values) = (-inf, 0, 0), or with
//            sinks as (the sink of the head, 1, 0).
//
// With halves, on tensor cores (mma.sync m16n8k16, sums in float32; compute capability 8.0 and later):
//
//   query    A head's query is multiplied by the power of two that makes its largest element 2^14 to 2^15, and rounded
//            to f16: an error of 2^-12 of each element, and no sum that is too large. Keys and values are f16: those
//            of blocks become (quant * scale), rounded once, of which f16 has the range, as it has of an F16 cache.
//   score    Products of 16 elements of the head follow each other, the first one added to 0. A score counts powers of
//            2: it is the sum times a factor (scale, log2 e, and the power of two undone); with a soft cap the factor
//            has no log2 e, and the capped score is multiplied by it.
//   page     top becomes the largest score so far in the split, and a visible key has the weight 2^(score - top + 15):
//            the fma of the sum with its factor and (15 - top), and ex2. The largest weight is 2^15 instead of 1, so
//            that f16, in which weights meet values, keeps 11 bits of all down to 2^-29 of it. In the sum of the
//            weights, in float32, keys 8i + c of a page follow each other by i; the sums of c = 0, 2, 4, 6 and of c =
//            1, 3, 5, 7 are added in pairs (c, c + 1), then 0 with 2, 4 with 6, and both. The products of weights and
//            values are summed from 0 on, 16 keys after 16 keys; the keys that the row does not see have the weight 0.
//            Then sum = fma(sum, keep, sum of the page), with keep = 2^(old top - new top), for the weights and for
//            each element of the values.
//   split    As with floats, but n is at least 2: the four pages of a split occupy the four warps of a CTA.
//   row      As with floats, with tops that count powers of 2, and a sink's sum of 2^15.
//
// What a matrix instruction gives for an element depends on its row, its column and what it is added to alone. So a row
// of queries may be any of the 16 rows of an instruction, beside any others. A slot that nothing has written is read as
// 0. (An infinite value of a later row of the same page does reach a row that does not see it, as 0 times infinity.
// With floats it does not.)
//
// No order depends on the number of threads, CTAs or rows. A row therefore has the same bits in a tile of rows,
// alone, and with its splits divided among any number of CTAs. All sums and products have an explicit rounding (.rn):
// without it, ptxas could contract a product and a sum to an fma in one kernel and not in the other.
//
// Ownership: none. Threads: no shared state.
#ifndef QUERN_EMIT_ATTEND_PARTS_H
#define QUERN_EMIT_ATTEND_PARTS_H

#include "kernels/ptx/emit_kv.h"

// Computes n for a row: a split has 2^n pages.
//   p         struct ptx *
//   a         const struct ptx_attend *
//   out       string literal: a 32-bit register, which receives n
//   position  string literal: the register with the row's position
#define ATTEND_SPLIT(p, a, out, position)                                                                              \
    do {                                                                                                               \
        PTX_FILL(p,                                                                                                    \
                 "    min.u32 " out ", " position ", $1;\n"                                                            \
                 "    shr.u32 " out ", " out ", 6;\n"                                                                  \
                 "    add.u32 " out ", " out ", $2;\n"                                                                 \
                 "    shr.u32 " out ", " out ", $0;\n"                                                                 \
                 "    sub.u32 " out ", " out ", 1;\n"                                                                  \
                 "    clz.b32 " out ", " out ";\n"                                                                     \
                 "    sub.u32 " out ", 32, " out ";\n",                                                                \
                 attend_log2((a)->splits), (a)->window ? (a)->window : 1u << 31, (a)->splits);                         \
        if ((a)->halves)                                                                                               \
            PTX_FILL(p, "    max.u32 " out ", " out ", $0;\n", ATTEND_HALF_SPLIT);                                     \
    } while (0)
// With halves, n is at least this.
enum { ATTEND_HALF_SPLIT = 2 };

static inline uint32_t attend_log2(uint32_t power)
{
    return (uint32_t)__builtin_ctz(power);
}

// Sets %score to cap tanh(%score / cap). Overwrites %t, %u, %keep and the predicate %less.
void attend_softcap(struct ptx *p, float cap);
// Sets %low, %last_low or %low_of to the first position that a row at %position, %last_position or %position_of sees.
enum attend_low { ATTEND_LOW_FIRST, ATTEND_LOW_LAST, ATTEND_LOW_PAIR };
void attend_low_of(struct ptx *p, const struct ptx_attend *a, enum attend_low which);
// For a CTA with a tile of `rows` rows and `heads` query heads: sets the CTA's rows, %first_row to %end_row - 1, and
// its heads. joined[i] becomes 1 if row i of the tile continues the run of row i - 1 (same sequence, next position,
// splits of the same size), else 0. joined[rows] is 0.
void attend_find_runs(struct ptx *p, const struct ptx_attend *a, uint32_t rows, uint32_t blocks, uint32_t heads);
// Returns if the row belongs to a run: if the row before or after it, within its tile, is of the same sequence, is at
// the position before or after, and has splits of the same size. Uses %at for the positions, %page_at for the tables.
void attend_leave_runs(struct ptx *p, const struct ptx_attend *a);
// Sets %low and %low_page to %last_page (the visible positions and pages), %first_split, %splits (the number of the
// row's splits), %lanes (the number of CTAs that have some of them) and %alone (this CTA has all). Returns if the CTA
// has no split.
void attend_find_splits(struct ptx *p, const struct ptx_attend *a);
// The kernel of the forms ROWS and LONE (emit_attend.c), and that of TILES (emit_attend_tiles.c).
void attend_one_row(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch);
void attend_tiles(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch);
// Their parts of ptx_attend_tile, ptx_attend_partials and ptx_attend_counters.
uint32_t attend_tile(const struct ptx_attend *a);
size_t attend_partials(const struct ptx_attend *a, uint32_t rows);
size_t attend_counters(const struct ptx_attend *a, uint32_t rows);

#endif
