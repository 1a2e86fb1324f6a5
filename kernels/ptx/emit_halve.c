// Emits the rounding of activations to 16 bits, for the products of emit_matmul_half.c. A CTA has one row of k floats,
// which it reads twice when it looks for the largest magnitude first: a row of 16 KB is still in the caches then.
#include "kernels/ptx/emit_matmul_parts.h"

enum { THREADS = 256, UNIT = 32, MAX_K = 1 << 20 };

static void head(struct ptx *p, const struct ptx_halve *h)
{
    ptx_header(p, 70, 80);
    PTX_FILL(p, "\n// node $0: $1 rows of $2 floats in 16 bits for ", h->node, h->parts, h->k);
    ptx_word(p, dtype_info[h->type].name);
    PTX_FILL(p,
             " weights\n"
             ".visible .entry halve_$0(\n"
             "    .param .u64 x,\n"
             "    .param .u64 y,\n"
             "    .param .u32 n_rows)\n"
             ".maxntid 256, 1, 1\n"
             "{\n"
             "    .reg .pred %in, %more;\n"
             "    .reg .u32 %thread, %row, %part, %i, %top, %other, %bits, %t0, %t1;\n"
             "    .reg .b32 %h0, %h1, %l0, %l1;\n"
             "    .reg .u64 %px, %py, %at;\n"
             "    .reg .f32 %x<4>, %r<4>, %scale;\n"
             "    .shared .align 16 .b8 tops[32];\n"
             "    mov.u32 %thread, %tid.x;\n"
             "    mov.u32 %part, %ctaid.x;\n"
             "    mov.u32 %row, %ctaid.y;\n"
             "    ld.param.u32 %i, [n_rows];\n"
             "    setp.ge.u32 %in, %row, %i;\n"
             "    @%in ret;\n"
             "    ld.param.u64 %px, [x];\n"
             "    cvta.to.global.u64 %px, %px;\n"
             "    mad.wide.u32 %px, %row, $1, %px;\n"
             "    mad.wide.u32 %px, %part, $2, %px;\n"
             "    ld.param.u64 %py, [y];\n"
             "    cvta.to.global.u64 %py, %py;\n"
             "    mad.wide.u32 %py, %row, $3, %py;\n"
             "    mad.wide.u32 %py, %part, $4, %py;\n",
             h->node, h->x_stride, 4 * h->k, h->y_stride, ptx_half_row_bytes(h->type, h->k));
}

// A loop over the row's groups of four floats, which the thread has in %x0 to %x3: number %i, at %at.
static void begin_loop(struct ptx *p, const struct ptx_halve *h, uint32_t n)
{
    PTX_FILL(p,
             "    mov.u32 %i, %thread;\n"
             "    setp.ge.u32 %in, %i, $1;\n"
             "    @%in bra DONE$0;\n"
             "LOOP$0:\n"
             "    mad.wide.u32 %at, %i, 16, %px;\n"
             "    ld.global.v4.f32 {%x0, %x1, %x2, %x3}, [%at];\n",
             n, h->k / 4);
}

static void end_loop(struct ptx *p, const struct ptx_halve *h, uint32_t n)
{
    PTX_FILL(p,
             "    add.u32 %i, %i, $2;\n"
             "    setp.lt.u32 %more, %i, $1;\n"
             "    @%more bra LOOP$0;\n"
             "DONE$0:\n",
             n, h->k / 4, THREADS);
}

// Sets %top to the largest magnitude of the row, as the bits of a float: they are in the order of the numbers, and those
// of what is no number are the largest.
static void find_top(struct ptx *p, const struct ptx_halve *h)
{
    PTX_LINES(p, "    mov.u32 %top, 0;\n");
    begin_loop(p, h, 0);
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    mov.b32 %other, %x$0;\n"
                 "    and.b32 %other, %other, 0x7fffffff;\n"
                 "    max.u32 %top, %top, %other;\n",
                 i);
    end_loop(p, h, 0);
    PTX_LINES(p, "    redux.sync.max.u32 %top, %top, 0xffffffff;\n"
                 "    shr.u32 %t0, %thread, 5;\n"
                 "    mov.u32 %t1, tops;\n"
                 "    mad.lo.u32 %t0, %t0, 4, %t1;\n"
                 "    and.b32 %other, %thread, 31;\n"
                 "    setp.eq.u32 %in, %other, 0;\n"
                 "    @%in st.shared.u32 [%t0], %top;\n"
                 "    bar.sync 0;\n");
    for (uint32_t i = 0; i < THREADS / 32; i++)
        PTX_FILL(p,
                 "    ld.shared.u32 %other, [%t1+$0];\n"
                 "    max.u32 %top, %top, %other;\n",
                 4 * i);
}

// For a largest magnitude of 2^(e - 127) to twice that the scale is 2^(141 - e), which makes it 2^14 to 2^15. Rows below
// 2^-112 are scaled as if they reached that.
void ptx_half_scale(struct ptx *p)
{
    PTX_LINES(p, "    shr.u32 %top, %top, 23;\n"
                 "    max.u32 %top, %top, 15;\n"
                 "    sub.u32 %bits, 268, %top;\n"
                 "    shl.b32 %bits, %bits, 23;\n"
                 "    mov.b32 %scale, %bits;\n"
                 "    sub.u32 %bits, %top, 14;\n"
                 "    shl.b32 %bits, %bits, 23;\n");
}

// Sets %scale, and stores the factor that undoes it.
static void set_scale(struct ptx *p, const struct ptx_halve *h)
{
    ptx_half_scale(p);
    PTX_FILL(p,
             "    setp.eq.u32 %in, %thread, 0;\n"
             "    @%in st.global.u32 [%py+$0], %bits;\n",
             2 * h->k);
}

static void store_f16(struct ptx *p)
{
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p, "    mul.rn.f32 %x$0, %x$0, %scale;\n", i);
    PTX_LINES(p, "    cvt.rn.f16x2.f32 %h0, %x1, %x0;\n"
                 "    cvt.rn.f16x2.f32 %h1, %x3, %x2;\n"
                 "    mad.wide.u32 %at, %i, 8, %py;\n"
                 "    st.global.v2.u32 [%at], {%h0, %h1};\n");
}

static void store_bf16(struct ptx *p, const struct ptx_halve *h)
{
    for (uint32_t i = 0; i < 2; i++)
        PTX_FILL(p,
                 "    cvt.rn.bf16x2.f32 %h$0, %x$2, %x$1;\n"
                 "    shl.b32 %t0, %h$0, 16;\n"
                 "    and.b32 %t1, %h$0, 0xffff0000;\n"
                 "    mov.b32 %r0, %t0;\n"
                 "    mov.b32 %r1, %t1;\n"
                 "    sub.rn.f32 %r0, %x$1, %r0;\n"
                 "    sub.rn.f32 %r1, %x$2, %r1;\n"
                 "    cvt.rn.bf16x2.f32 %l$0, %r1, %r0;\n",
                 i, 2 * i, 2 * i + 1);
    PTX_FILL(p,
             "    mad.wide.u32 %at, %i, 8, %py;\n"
             "    st.global.v2.u32 [%at], {%h0, %h1};\n"
             "    st.global.v2.u32 [%at+$0], {%l0, %l1};\n",
             2 * h->k);
}

int ptx_emit_halve(struct ptx *p, const struct ptx_halve *h, struct ptx_launch *launch, struct error *err)
{
    if ((h->type != DT_F16 && h->type != DT_BF16) || !h->k || h->k % UNIT || h->k > MAX_K || !h->parts ||
        h->parts > MAX_K / h->k || h->x_stride % 16 || h->y_stride % 16)
        return fail(err, E_GPU, "halve: %u x %u floats a row for %s weights, strides %u and %u", h->parts, h->k,
                    dtype_info[h->type].name, h->x_stride, h->y_stride);
    head(p, h);
    if (h->type == DT_F16) {
        find_top(p, h);
        set_scale(p, h);
    }
    begin_loop(p, h, 1);
    if (h->type == DT_F16)
        store_f16(p);
    else
        store_bf16(p, h);
    end_loop(p, h, 1);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){.entry = "halve", .grid = {h->parts, 1, 1}, .block = {THREADS, 1, 1}};
    return ptx_finish(p, err);
}
