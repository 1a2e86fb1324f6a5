// Attention over the cache's pages: what its two kernels share, and with it the order of every sum.
//
//   score    Strips of 8 elements of a key, the even ones and the odd ones each by themselves in their order, by fma
//   from
//            0; the two sums are added, then scaled, then capped.
//   page     The greatest score and the weights 2^((score - top) log2 e) of the page's seen keys, top being the
//   greatest so
//            far in the split. What came before is multiplied by what it is worth now. The weights are added as a tree
//            over the bits of the slot, the lowest first, and a value's elements by fma in the order of positions.
//   split    2^n pages that begin at a multiple of as many. n depends on the row's position alone: the least with which
//            the pages that it sees fill `splits` of them.
//   row      The splits, folded one after the other from (top, sum, values) = (-inf, 0, 0), each by an fma.
//
// No order depends on how many threads, CTAs or rows there are, so a row has the same bits in a tile of rows, alone,
// and with its splits on as many CTAs as there are. All sums and products here are rounded as written (.rn): without
// it, ptxas makes an fma of a product and a sum in one kernel and not in the other.
//
// Ownership: none. Threads: none shared.
#ifndef QUERN_EMIT_ATTEND_PARTS_H
#define QUERN_EMIT_ATTEND_PARTS_H

#include "kernels/ptx/emit_kv.h"

#define LOG2_E 1.44269504088896340736

// The number n of a row at `position`: 2^n pages a split. $8 is the window or 2^31, $9 the splits, a power of two whose
// logarithm is $7.
#define ATTEND_SPLIT(out, position)                                                                                    \
    "    min.u32 " out ", " position ", $8;\n"                                                                         \
    "    shr.u32 " out ", " out ", 6;\n"                                                                               \
    "    add.u32 " out ", " out ", $9;\n"                                                                              \
    "    shr.u32 " out ", " out ", $7;\n"                                                                              \
    "    sub.u32 " out ", " out ", 1;\n"                                                                               \
    "    clz.b32 " out ", " out ";\n"                                                                                  \
    "    sub.u32 " out ", 32, " out ";\n"
#define ATTEND_SPLIT_VALUES(a) attend_log2((a)->splits), (a)->window ? (a)->window : 1u << 31, (a)->splits

static inline uint32_t attend_log2(uint32_t power)
{
    return (uint32_t)__builtin_ctz(power);
}

// %score becomes cap tanh(%score / cap); uses %t, %u, %keep and the predicate %less.
void attend_softcap(struct ptx *p, float cap);
// %low or %last_low: the first position that the run's first or last row sees.
void attend_low_of(struct ptx *p, const struct ptx_attend *a, bool last);
void attend_one_row(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch);
void attend_tiles(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch);

#endif
