// PTX for kernels that read or write the pages of the KV cache: it finds the page of a position, loads elements of a
// cached row as floats, and stores floats in the type of the cache.
//
// A page has KV_PAGE slots. Within the part of a layer (offset in struct ptx_kv), rows are stored as [KV head][slot].
//
// Ownership: none. Threads: no shared state.
#ifndef QUERN_EMIT_KV_H
#define QUERN_EMIT_KV_H

#include "kernels/graph.h"
#include "kernels/ptx/emit_ops.h"

// Returns -1 if the type is not one of a cache, or the layer's part does not lie within a page of at most 2^31 - 1
// bytes. `what` names the kernel in the error.
int ptx_check_kv(const char *what, const struct ptx_kv *kv, uint32_t heads, struct error *err);

// ptx_kv_strip loads a strip, 8 consecutive elements of a cached row, to %e0 to %e7 as floats with the bits that
// gguf/dtype.c gives.
//   F32, F16, BF16  The elements are at [%sa + at], in global memory.
//   Q8_0, Q4_0      The block's scale is at [%sa + at], the strip's quants at [%sq + quants_at], and %sl is the shift
//   (0
//                   or 4) of Q4_0. With `shared` the addresses are in shared memory. There is no guard.
// The caller declares %sa and %sq, with 64 bits for global memory, 32 for shared memory.
enum ptx_strip_guard {
    PTX_STRIP_WHOLE,    // the strip exists
    PTX_STRIP_IF,       // the strip exists if %in is true; otherwise it is zeros
    PTX_STRIP_ELEMENTS, // the first %left (signed) elements exist; the others are zeros
};
// Returns PTX_STRIP_ELEMENTS if a dimension is not a multiple of 8: rows then are not aligned to 16 bytes and end
// within a strip. Otherwise returns `whole`.
enum ptx_strip_guard ptx_kv_guard(const struct ptx_kv *kv, enum ptx_strip_guard whole);
void ptx_kv_strip(struct ptx *p, enum dtype type, enum ptx_strip_guard guard, bool shared, uint32_t at,
                  uint32_t quants_at);
// Sets %sq, and %sl of Q4_0, for strip %strip % 4 of the quantised block at %sa, in global memory. Overwrites %j.
void ptx_kv_strip_in_block(struct ptx *p, enum dtype type);
#define PTX_STRIP_REGS                                                                                                 \
    "    .reg .pred %in;\n"                                                                                            \
    "    .reg .s32 %left, %sn;\n"                                                                                      \
    "    .reg .u32 %sl, %sm;\n"                                                                                        \
    "    .reg .b32 %sw<4>;\n"                                                                                          \
    "    .reg .b16 %sh, %sx;\n"                                                                                        \
    "    .reg .f16 %sf;\n"                                                                                             \
    "    .reg .f32 %sd, %e<8>;\n"

// Converts the value in %v to `type` and stores it at %py, the address of the element. For quantised types %py is the
// address of the block, and a warp stores it: lane %lane has the value of column %lane, all 32 lanes take part.
// Declares registers, so the caller opens a scope.
void ptx_kv_put(struct ptx *p, enum dtype type);

// In kernels of one row, with the parameters step, positions and pages (emit_fused.h): sets %to<j> to the address in the
// cache of column %column, or of its block for quantised types. The parameter p<offset> has the offset of the layer's part
// in a page. Changes %c0 and %c1 (.u32).
void ptx_kv_place(struct ptx *p, const struct ptx_kv *kv, int offset, uint32_t j);

#define PTX_KV_REGS                                                                                                    \
    "    .reg .u32 %position, %stride, %entry, %page, %slot;\n"                                                        \
    "    .reg .u64 %kv, %table, %place;\n"
// Sets %position of row %row, %table (the address of its sequence's page table) and %kv (the address of page 0).
// Reads the parameters positions, tables and pages, and the step's header at %step.
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
// Finds the page of entry %entry of the page table. $2: bytes from one page to the next.
//   reg  string literal: a 64-bit register, which receives the page's address
#define PTX_KV_PAGE(reg)                                                                                               \
    "    mad.wide.u32 %place, %entry, 4, %table;\n"                                                                    \
    "    ld.global.u32 %page, [%place];\n"                                                                             \
    "    mad.wide.u32 " reg ", %page, $2, %kv;\n"

#endif
