// What kernels that go by the pages of the KV cache have in common: where a position of a row's sequence lies.
//
// Ownership and threads: as in emit_ops.h.
#ifndef QUERN_EMIT_KV_H
#define QUERN_EMIT_KV_H

#include "kernels/graph.h"
#include "kernels/ptx/emit_ops.h"

// Whether a layer's part lies within a page whose size fits 31 bits.
int ptx_check_kv(const char *what, const struct ptx_kv *kv, uint32_t heads, struct error *err);

// Eight neighbouring elements of a row of the cache as floats, %e0 to %e7, with the bits of gguf/dtype.c: a strip. Elements
// lie at [%sa + at]; a block's scale too, and then its strip's quants at [%sq + quants_at], nibbles shifted by %sl.
// %sa and %sq are the caller's, of 64 bits in global memory, of 32 in shared memory.
enum ptx_strip_guard {
    PTX_STRIP_WHOLE,    // it is there
    PTX_STRIP_IF,       // where %in; else zeros
    PTX_STRIP_ELEMENTS, // %left of its elements are there, if that is not negative; the others are zeros
};
// What strips of rows need that are, if need be, not multiples of 8 elements. All others are aligned to 16 bytes.
enum ptx_strip_guard ptx_kv_guard(const struct ptx_kv *kv, enum ptx_strip_guard whole);
void ptx_kv_strip(struct ptx *p, enum dtype type, enum ptx_strip_guard guard, bool shared, uint32_t at,
                  uint32_t quants_at);
#define PTX_STRIP_REGS                                                                                                 \
    "    .reg .pred %in;\n"                                                                                            \
    "    .reg .s32 %left, %sn;\n"                                                                                      \
    "    .reg .u32 %sl, %sm;\n"                                                                                        \
    "    .reg .b32 %sw<4>;\n"                                                                                          \
    "    .reg .b16 %sh, %sx;\n"                                                                                        \
    "    .reg .f16 %sf;\n"                                                                                             \
    "    .reg .f32 %sd, %e<8>;\n"

// A value in %v goes to its place in the cache, %py: of the element, or of its block, whose 32 columns are the lanes of
// a warp, %lane. In a scope of its own, for it declares registers.
void ptx_kv_put(struct ptx *p, enum dtype type);

#define PTX_KV_REGS                                                                                                    \
    "    .reg .u32 %position, %stride, %entry, %page, %slot;\n"                                                        \
    "    .reg .u64 %kv, %table, %place;\n"
// %position of the row, %table: the entries of its sequence, %kv: page 0.
#define PTX_KV_TABLE                                                                                                   \
    "    ld.param.u64 %table, [positions];\n"                                                                          \
    "    cvta.to.global.u64 %table, %table;\n"                                                                         \
    "    mad.wide.u32 %table, %row, 4, %table;\n"                                                                      \
    "    ld.global.u32 %position, [%table];\n"                                                                         \
    "    ld.param.u64 %table, [tables];\n"                                                                             \
    "    cvta.to.global.u64 %table, %table;\n"                                                                         \
    "    mad.wide.u32 %table, %row, 4, %table;\n"                                                                      \
    "    ld.global.u32 %entry, [%table];\n"                                                                            \
    "    ld.global.u32 %stride, [%step+8];\n"                                                                          \
    "    mul.lo.u32 %entry, %entry, %stride;\n"                                                                        \
    "    ld.param.u64 %table, [pages];\n"                                                                              \
    "    cvta.to.global.u64 %table, %table;\n"                                                                         \
    "    mad.wide.u32 %table, %entry, 4, %table;\n"                                                                    \
    "    ld.global.u64 %kv, [%step+16];\n"
// The page of entry %entry; $2 is the bytes from page to page.
#define PTX_KV_PAGE(reg)                                                                                               \
    "    mad.wide.u32 %place, %entry, 4, %table;\n"                                                                    \
    "    ld.global.u32 %page, [%place];\n"                                                                             \
    "    mad.wide.u32 " reg ", %page, $2, %kv;\n"

#endif
