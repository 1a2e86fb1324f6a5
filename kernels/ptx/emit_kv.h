// What kernels that go by the pages of the KV cache have in common: where a position of a row's sequence lies.
//
// Ownership and threads: as in emit_ops.h.
#ifndef QUERN_PTX_EMIT_KV_H
#define QUERN_PTX_EMIT_KV_H

#include "kernels/graph.h"
#include "kernels/ptx/emit_ops.h"

// Whether a layer's part lies within a page whose size fits 31 bits.
int ptx_check_kv(const char *what, const struct ptx_kv *kv, uint32_t heads, struct error *err);

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
