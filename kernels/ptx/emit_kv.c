// Emits `kv_write`, which stores the keys or values of a step to the pages of the cache, and the PTX of emit_kv.h. It
// equals, with the bytes of gguf/dtype_encode.c:
//
//   for (t = 0; t < rows; t++)
//       for (h = 0; h < heads; h++)
//           encode(type, x[t][h], &page_of(t)[offset + (h * KV_PAGE + positions[t] % KV_PAGE) * row_bytes]);
//
// Grid: x the row, y blocks of 64 units. The block is 64 threads. A thread has a unit: an element, or a block of 32
// elements for quantised types. No shared memory. Chosen for keys and for values of every layer, unless a fused kernel
// stores them (ptx_kv_put in emit_fused_row.c). Cost: x is read once, or twice for quantised types (the maximum of a
// block, then its quants), and the encoded rows are written once.
#include "kernels/ptx/emit_kv.h"

enum { THREADS = 64 };

int ptx_check_kv(const char *what, const struct ptx_kv *kv, uint32_t heads, struct error *err)
{
    bool known =
        kv->type == DT_F32 || kv->type == DT_F16 || kv->type == DT_BF16 || kv->type == DT_Q8_0 || kv->type == DT_Q4_0;
    if (!known)
        return fail(err, E_GPU, "%s: no cache of that type", what);
    uint64_t head = (uint64_t)KV_PAGE * ptx_kv_row_bytes(kv);
    const uint32_t block = (uint32_t)dtype_info[kv->type].block;
    if ((kv->row_dim && (kv->row_dim < kv->dim || kv->row_dim % block)) || kv->dim < 1 || kv->dim > 1024 ||
        kv->dim % block || heads < 1 || kv->page_bytes > INT32_MAX || kv->offset + heads * head > kv->page_bytes)
        return fail(err, E_GPU, "%s: %u heads of %u of %s in a page of %u bytes", what, heads, kv->dim,
                    dtype_info[kv->type].name, kv->page_bytes);
    return 0;
}

// ---- strips

enum ptx_strip_guard ptx_kv_guard(const struct ptx_kv *kv, enum ptx_strip_guard whole)
{
    return kv->dim % 8 || kv->row_dim % 8 ? PTX_STRIP_ELEMENTS : whole;
}

static void strip_f32(struct ptx *p, enum ptx_strip_guard guard, uint32_t at)
{
    for (uint32_t i = 0; guard != PTX_STRIP_WHOLE && i < 8; i++)
        PTX_FILL(p, "    mov.f32 %e$0, 0f00000000;\n", i);
    for (uint32_t i = 0; guard == PTX_STRIP_ELEMENTS && i < 8; i++)
        PTX_FILL(p,
                 "    setp.gt.s32 %in, %left, $0;\n"
                 "    @%in ld.global.f32 %e$0, [%sa+$1];\n",
                 i, at + 4 * i);
    for (uint32_t i = 0; guard != PTX_STRIP_ELEMENTS && i < 8; i += 4) {
        if (guard == PTX_STRIP_IF)
            PTX_LINES(p, "    @%in ");
        PTX_FILL(p, "    ld.global.v4.f32 {%e$1, %e$2, %e$3, %e$4}, [%sa+$0];\n", at + 4 * i, i, i + 1, i + 2, i + 3);
    }
}

// Sets %e<element> to the 16-bit float in %sh.
static void widen(struct ptx *p, bool bf16, uint32_t element)
{
    if (bf16)
        PTX_FILL(p,
                 "    cvt.u32.u16 %sm, %sh;\n"
                 "    shl.b32 %sm, %sm, 16;\n"
                 "    mov.b32 %e$0, %sm;\n",
                 element);
    else
        PTX_FILL(p,
                 "    mov.b16 %sf, %sh;\n"
                 "    cvt.f32.f16 %e$0, %sf;\n",
                 element);
}

static void strip_16(struct ptx *p, bool bf16, enum ptx_strip_guard guard, uint32_t at)
{
    for (uint32_t i = 0; guard == PTX_STRIP_ELEMENTS && i < 8; i++) {
        PTX_FILL(p,
                 "    mov.b16 %sh, 0;\n"
                 "    setp.gt.s32 %in, %left, $0;\n"
                 "    @%in ld.global.b16 %sh, [%sa+$1];\n",
                 i, at + 2 * i);
        widen(p, bf16, i);
    }
    if (guard == PTX_STRIP_ELEMENTS)
        return;
    for (uint32_t i = 0; guard == PTX_STRIP_IF && i < 4; i++)
        PTX_FILL(p, "    mov.b32 %sw$0, 0;\n", i);
    if (guard == PTX_STRIP_IF)
        PTX_LINES(p, "    @%in ");
    PTX_FILL(p, "    ld.global.v4.b32 {%sw0, %sw1, %sw2, %sw3}, [%sa+$0];\n", at);
    for (uint32_t i = 0; i < 4; i++)
        if (bf16) {
            PTX_FILL(p,
                     "    shl.b32 %sm, %sw$0, 16;\n"
                     "    mov.b32 %e$1, %sm;\n"
                     "    and.b32 %sm, %sw$0, 0xffff0000;\n"
                     "    mov.b32 %e$2, %sm;\n",
                     i, 2 * i, 2 * i + 1);
        } else {
            PTX_FILL(p, "    mov.b32 {%sh, %sx}, %sw$0;\n", i);
            widen(p, false, 2 * i);
            PTX_LINES(p, "    mov.b16 %sh, %sx;\n");
            widen(p, false, 2 * i + 1);
        }
}

static void strip_block(struct ptx *p, bool nibbles, bool shared, uint32_t at, uint32_t quants_at)
{
    if (shared)
        PTX_FILL(p, "    ld.shared.b16 %sh, [%sa+$0];\n", at);
    else
        PTX_FILL(p, "    ld.global.b16 %sh, [%sa+$0];\n", at);
    PTX_LINES(p, "    mov.b16 %sf, %sh;\n"
                 "    cvt.f32.f16 %sd, %sf;\n");
    for (uint32_t i = 0; i < 8; i++) {
        if (i % 2 == 0 && shared)
            PTX_FILL(p, "    ld.shared.u16 %sw0, [%sq+$0];\n", quants_at + i);
        else if (i % 2 == 0)
            PTX_FILL(p, "    ld.global.u16 %sw0, [%sq+$0];\n", quants_at + i);
        if (i % 2 == 0 && nibbles)
            PTX_LINES(p, "    shr.u32 %sw0, %sw0, %sl;\n");
        if (nibbles)
            PTX_FILL(p,
                     "    bfe.u32 %sn, %sw0, $0, 4;\n"
                     "    sub.s32 %sn, %sn, 8;\n",
                     i % 2 * 8);
        else
            PTX_FILL(p, "    bfe.s32 %sn, %sw0, $0, 8;\n", i % 2 * 8);
        PTX_FILL(p,
                 "    cvt.rn.f32.s32 %e$0, %sn;\n"
                 "    mul.rn.f32 %e$0, %e$0, %sd;\n",
                 i);
    }
}

void ptx_kv_strip(struct ptx *p, enum dtype type, enum ptx_strip_guard guard, bool shared, uint32_t at,
                  uint32_t quants_at)
{
    if (type == DT_F32)
        strip_f32(p, guard, at);
    else if (type == DT_F16 || type == DT_BF16)
        strip_16(p, type == DT_BF16, guard, at);
    else
        strip_block(p, type == DT_Q4_0, shared, at, quants_at);
}

void ptx_kv_strip_in_block(struct ptx *p, enum dtype type)
{
    if (type == DT_Q8_0)
        PTX_LINES(p, "    and.b32 %j, %strip, 3;\n"
                     "    mad.wide.u32 %sq, %j, 8, %sa;\n"
                     "    add.u64 %sq, %sq, 2;\n");
    else
        PTX_LINES(p, "    and.b32 %j, %strip, 1;\n"
                     "    mad.wide.u32 %sq, %j, 8, %sa;\n"
                     "    add.u64 %sq, %sq, 2;\n"
                     "    and.b32 %sl, %strip, 2;\n"
                     "    shl.b32 %sl, %sl, 1;\n");
}

// ---- writing

// Begins the kernel and sets the addresses of the thread's unit (an element, or a block of 32): %px in x, %py in the
// page.
static void write_head(struct ptx *p, const struct ptx_kv_write *w, uint32_t units)
{
    const struct ptx_kv *kv = &w->kv;
    uint32_t block = (uint32_t)dtype_info[kv->type].block, block_bytes = (uint32_t)dtype_info[kv->type].bytes;
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: $1 heads of $2 to their pages\n"
             ".visible .entry kv_write_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 positions,\n"
             "    .param .u64 tables,\n"
             "    .param .u64 pages,\n"
             "    .param .u64 x)\n"
             ".maxntid 64, 1, 1\n"
             "{\n"
             PTX_ROW_REGS
             PTX_KV_REGS
             "    .reg .pred %outside;\n"
             "    .reg .u32 %unit, %chunk, %head, %in;\n"
             "    .reg .u64 %px, %py;\n",
             w->node, w->heads, kv->dim);
    PTX_FILL(p,
             PTX_ROW
             "    mov.u32 %chunk, %ctaid.y;\n"
             "    mov.u32 %unit, %tid.x;\n"
             "    mad.lo.u32 %unit, %chunk, 64, %unit;\n"
             "    setp.ge.u32 %outside, %unit, $0;\n"
             "    @%outside ret;\n"
             PTX_KV_TABLE
             "    shr.u32 %entry, %position, 6;\n"
             PTX_KV_PAGE("%py"),
             w->heads * units, ptx_count_at(ROWS_TOKENS), kv->page_bytes);
    PTX_FILL(p,
             "    div.u32 %head, %unit, $0;\n"
             "    mul.lo.u32 %in, %head, $0;\n"
             "    sub.u32 %in, %unit, %in;\n"
             "    and.b32 %slot, %position, 63;\n"
             "    mad.lo.u32 %slot, %head, 64, %slot;\n"
             "    mad.wide.u32 %py, %slot, $1, %py;\n"
             "    mad.wide.u32 %py, %in, $2, %py;\n"
             "    add.u64 %py, %py, $3;\n"
             PTX_ADDRESS("%px", "x")
             "    mad.wide.u32 %px, %row, $4, %px;\n"
             "    mad.wide.u32 %px, %unit, $5, %px;\n",
             units, (uint32_t)dtype_row_bytes(kv->type, kv->dim), block_bytes, kv->offset, 4 * w->heads * kv->dim,
             4 * block);
}

// Stores %v to [%py].
static void put_element(struct ptx *p, enum dtype type)
{
    if (type == DT_F32)
        PTX_LINES(p, "    st.global.f32 [%py], %v;\n");
    else if (type == DT_F16)
        PTX_LINES(p, "    .reg .f16 %h;\n"
                     "    .reg .b16 %bits;\n"
                     "    cvt.rn.f16.f32 %h, %v;\n"
                     "    mov.b16 %bits, %h;\n"
                     "    st.global.b16 [%py], %bits;\n");
    else
        PTX_LINES(p, "    // the upper half, rounded to even; a NaN stays one\n"
                     "    .reg .pred %nan;\n"
                     "    .reg .b32 %bits, %round, %quiet;\n"
                     "    .reg .b16 %low, %high;\n"
                     "    mov.b32 %bits, %v;\n"
                     "    setp.nan.f32 %nan, %v, %v;\n"
                     "    or.b32 %quiet, %bits, 0x400000;\n"
                     "    bfe.u32 %round, %bits, 16, 1;\n"
                     "    add.u32 %round, %round, 0x7fff;\n"
                     "    add.u32 %bits, %bits, %round;\n"
                     "    selp.b32 %bits, %quiet, %bits, %nan;\n"
                     "    mov.b32 {%low, %high}, %bits;\n"
                     "    st.global.b16 [%py], %high;\n");
}

static void write_element(struct ptx *p, enum dtype type)
{
    PTX_LINES(p, "    .reg .f32 %v;\n"
                 "    ld.global.f32 %v, [%px];\n");
    put_element(p, type);
}

// Sets %top to the largest magnitude of the block at %px, %peak to the first element that has it, and %sound to
// whether all elements are finite.
#define BLOCK_TOP                                                                                                      \
    "    .reg .pred %more, %sound, %larger, %zero, %big;\n"                                                            \
    "    .reg .u64 %from, %end;\n"                                                                                     \
    "    .reg .u32 %q, %q2, %half;\n"                                                                                  \
    "    .reg .b16 %bits;\n"                                                                                           \
    "    .reg .f16 %h;\n"                                                                                              \
    "    .reg .f32 %v, %size, %top, %peak, %d, %reach, %per;\n"                                                        \
    "    mov.u64 %from, %px;\n"                                                                                        \
    "    add.u64 %end, %px, 128;\n"                                                                                    \
    "    mov.f32 %top, 0f00000000;\n"                                                                                  \
    "    mov.f32 %peak, 0f00000000;\n"                                                                                 \
    "    mov.u32 %half, 0;\n"                                                                                          \
    "TOP:\n"                                                                                                           \
    "    ld.global.f32 %v, [%from];\n"                                                                                 \
    "    abs.f32 %size, %v;\n"                                                                                         \
    "    mov.b32 %q, %size;\n"                                                                                         \
    "    max.u32 %half, %half, %q;\n"                                                                                  \
    "    setp.gt.f32 %larger, %size, %top;\n"                                                                          \
    "    selp.f32 %peak, %v, %peak, %larger;\n"                                                                        \
    "    max.f32 %top, %top, %size;\n"                                                                                 \
    "    add.u64 %from, %from, 4;\n"                                                                                   \
    "    setp.lt.u64 %more, %from, %end;\n"                                                                            \
    "    @%more bra TOP;\n"                                                                                            \
    "    setp.lt.u32 %sound, %half, 0x7f800000;\n"

// The scale of a block. BLOCK_STEP sets %half to the bits of the half nearest to %top / steps, or of the next larger
// half if steps + 0.5 times that is below %top. BLOCK_PER sets %bits to the bits that are stored, %d to their value,
// and %per to 1 / %d (0 if %d is 0). A block that is not finite gets the scale NaN and quants of 0. BLOCK_SCALE also
// stores the scale. $0: the float steps, 127 or 8. $1: steps + 0.5.
#define BLOCK_STEP                                                                                                     \
    "    div.rn.f32 %d, %top, 0f$x0;\n"                                                                                \
    "    cvt.rn.f16.f32 %h, %d;\n"                                                                                     \
    "    mov.b16 %bits, %h;\n"                                                                                         \
    "    cvt.u32.u16 %half, %bits;\n"                                                                                  \
    "    cvt.f32.f16 %d, %h;\n"                                                                                        \
    "    mul.rn.f32 %reach, %d, 0f$x1;\n"                                                                              \
    "    setp.lt.f32 %big, %reach, %top;\n"                                                                            \
    "    @%big add.u32 %half, %half, 1;\n"                                                                             \
    "    min.u32 %half, %half, 0x7bff;\n"
#define BLOCK_PER                                                                                                      \
    "    @!%sound mov.u32 %half, 0x7e00;\n"                                                                            \
    "    cvt.u16.u32 %bits, %half;\n"                                                                                  \
    "    mov.b16 %h, %bits;\n"                                                                                         \
    "    cvt.f32.f16 %d, %h;\n"                                                                                        \
    "    setp.eq.f32 %zero, %d, 0f00000000;\n"                                                                         \
    "    rcp.rn.f32 %per, %d;\n"                                                                                       \
    "    @%zero mov.f32 %per, 0f00000000;\n"
#define BLOCK_SCALE                                                                                                    \
    BLOCK_PER                                                                                                          \
    "    st.global.b16 [%py], %bits;\n"                                                                                \
    "    mov.u64 %from, %px;\n"                                                                                        \
    "    add.u64 %py, %py, 2;\n"

static void write_q8_0(struct ptx *p)
{
    PTX_FILL(p, BLOCK_TOP BLOCK_STEP BLOCK_SCALE, ptx_float_bits(127.0f), ptx_float_bits(127.5f));
    PTX_LINES(p, "    .reg .s32 %n;\n"
                 "QUANT:\n"
                 "    ld.global.f32 %v, [%from];\n"
                 "    mul.rn.f32 %v, %v, %per;\n"
                 "    max.f32 %v, %v, 0fC2FE0000;\n"
                 "    min.f32 %v, %v, 0f42FE0000;\n"
                 "    cvt.rni.s32.f32 %n, %v;\n"
                 "    @!%sound mov.s32 %n, 0;\n"
                 "    st.global.s8 [%py], %n;\n"
                 "    add.u64 %from, %from, 4;\n"
                 "    add.u64 %py, %py, 1;\n"
                 "    setp.lt.u64 %more, %from, %end;\n"
                 "    @%more bra QUANT;\n");
}

// Quantises an element to a number from 0 to 15.
//   at  string literal: the offset of the element from %from
//   q   string literal: a 32-bit register, which receives the number
#define NIBBLE(at, q)                                                                                                  \
    "    ld.global.f32 %v, [%from+" at "];\n"                                                                          \
    "    mul.rn.f32 %v, %v, %per;\n"                                                                                   \
    "    max.f32 %v, %v, 0fC1000000;\n"                                                                                \
    "    min.f32 %v, %v, 0f40E00000;\n"                                                                                \
    "    cvt.rni.s32.f32 %n, %v;\n"                                                                                    \
    "    add.s32 %n, %n, 8;\n"                                                                                         \
    "    mov.b32 " q ", %n;\n"

static void write_q4_0(struct ptx *p)
{
    PTX_FILL(p,
             BLOCK_TOP
             BLOCK_STEP
             "    setp.gt.f32 %larger, %peak, 0f00000000;\n"
             "    @%larger or.b32 %half, %half, 0x8000;\n"
             BLOCK_SCALE,
             ptx_float_bits(8.0f), ptx_float_bits(8.5f));
    PTX_LINES(p, "    .reg .s32 %n;\n"
                 "    add.u64 %end, %px, 64;\n"
                 "QUANT:\n"
                 NIBBLE("0", "%q")
                 NIBBLE("64", "%q2")
                 "    shl.b32 %q2, %q2, 4;\n"
                 "    or.b32 %q, %q, %q2;\n"
                 "    @!%sound mov.u32 %q, 0;\n"
                 "    st.global.u8 [%py], %q;\n"
                 "    add.u64 %from, %from, 4;\n"
                 "    add.u64 %py, %py, 1;\n"
                 "    setp.lt.u64 %more, %from, %end;\n"
                 "    @%more bra QUANT;\n");
}

// ---- a block whose 32 elements are in the lanes of a warp

// LANES_TOP, five steps of LANES_MAX and LANES_PEAK set %top, %peak and %sound of the warp's values %v as BLOCK_TOP
// does.
#define LANES_TOP                                                                                                      \
    "    .reg .pred %sound, %larger, %zero, %big, %first;\n"                                                           \
    "    .reg .u32 %q, %q2, %half, %mine;\n"                                                                           \
    "    .reg .s32 %n;\n"                                                                                              \
    "    .reg .u64 %slot_at;\n"                                                                                        \
    "    .reg .b16 %bits;\n"                                                                                           \
    "    .reg .f16 %h;\n"                                                                                              \
    "    .reg .f32 %size, %top, %peak, %d, %reach, %per;\n"                                                            \
    "    setp.eq.u32 %first, %lane, 0;\n"                                                                              \
    "    abs.f32 %size, %v;\n"                                                                                         \
    "    mov.b32 %mine, %size;\n"                                                                                      \
    "    mov.u32 %half, %mine;\n"
#define LANES_MAX(by)                                                                                                  \
    "    shfl.sync.bfly.b32 %q, %half, " by ", 31, 0xffffffff;\n"                                                      \
    "    max.u32 %half, %half, %q;\n"
#define LANES_PEAK                                                                                                     \
    "    setp.eq.u32 %larger, %mine, %half;\n"                                                                         \
    "    vote.sync.ballot.b32 %q, %larger, 0xffffffff;\n"                                                              \
    "    brev.b32 %q, %q;\n"                                                                                           \
    "    clz.b32 %q, %q;\n"                                                                                            \
    "    shfl.sync.idx.b32 %peak, %v, %q, 31, 0xffffffff;\n"                                                           \
    "    mov.b32 %top, %half;\n"                                                                                       \
    "    setp.lt.u32 %sound, %half, 0x7f800000;\n"

static void put_q8_0(struct ptx *p)
{
    PTX_FILL(p, BLOCK_STEP BLOCK_PER, ptx_float_bits(127.0f), ptx_float_bits(127.5f));
    PTX_LINES(p, "    @%first st.global.b16 [%py], %bits;\n"
                 "    mul.rn.f32 %size, %v, %per;\n"
                 "    max.f32 %size, %size, 0fC2FE0000;\n"
                 "    min.f32 %size, %size, 0f42FE0000;\n"
                 "    cvt.rni.s32.f32 %n, %size;\n"
                 "    @!%sound mov.s32 %n, 0;\n"
                 "    mad.wide.u32 %slot_at, %lane, 1, %py;\n"
                 "    st.global.s8 [%slot_at+2], %n;\n");
}

static void put_q4_0(struct ptx *p)
{
    PTX_FILL(p,
             BLOCK_STEP
             "    setp.gt.f32 %larger, %peak, 0f00000000;\n"
             "    @%larger or.b32 %half, %half, 0x8000;\n"
             BLOCK_PER,
             ptx_float_bits(8.0f), ptx_float_bits(8.5f));
    PTX_LINES(p, "    @%first st.global.b16 [%py], %bits;\n"
                 "    mul.rn.f32 %size, %v, %per;\n"
                 "    max.f32 %size, %size, 0fC1000000;\n"
                 "    min.f32 %size, %size, 0f40E00000;\n"
                 "    cvt.rni.s32.f32 %n, %size;\n"
                 "    add.s32 %n, %n, 8;\n"
                 "    mov.b32 %q, %n;\n"
                 "    shfl.sync.down.b32 %q2, %q, 16, 31, 0xffffffff;\n"
                 "    shl.b32 %q2, %q2, 4;\n"
                 "    or.b32 %q, %q, %q2;\n"
                 "    @!%sound mov.u32 %q, 0;\n"
                 "    mad.wide.u32 %slot_at, %lane, 1, %py;\n"
                 "    setp.lt.u32 %first, %lane, 16;\n"
                 "    @%first st.global.u8 [%slot_at+2], %q;\n");
}

void ptx_kv_put(struct ptx *p, enum dtype type)
{
    if (dtype_info[type].block == 1) {
        put_element(p, type);
        return;
    }
    PTX_LINES(p, LANES_TOP LANES_MAX("16") LANES_MAX("8") LANES_MAX("4") LANES_MAX("2") LANES_MAX("1") LANES_PEAK);
    if (type == DT_Q8_0)
        put_q8_0(p);
    else
        put_q4_0(p);
}

int ptx_emit_kv_write(struct ptx *p, const struct ptx_kv_write *w, struct ptx_launch *launch, struct error *err)
{
    if (ptx_check_kv("kv_write", &w->kv, w->heads, err) || ptx_check_width("kv_write", w->heads * w->kv.dim, err))
        return -1;
    uint32_t units = w->kv.dim / (uint32_t)dtype_info[w->kv.type].block;
    write_head(p, w, units);
    if (w->kv.type == DT_Q8_0)
        write_q8_0(p);
    else if (w->kv.type == DT_Q4_0)
        write_q4_0(p);
    else
        write_element(p, w->kv.type);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){
        .entry = "kv_write", .grid = {1, ptx_tiles(w->heads * units, THREADS), 1}, .block = {THREADS, 1, 1}};
    return ptx_finish(p, err);
}
