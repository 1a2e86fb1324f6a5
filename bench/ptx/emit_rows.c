// Emits softmax and layer norm of rows of f32.
//
// softmax_NODE: m = max x; y[i] = exp(x[i] - m) / sum of exp(x[j] - m). layernorm_NODE: y[i] = (x[i] - mean) /
// sqrt(variance + eps) * weight[i] + bias[i].
//
// A CTA of 1 to 32 warps has one row, which it reads once and keeps in registers for all passes, up to 32 elements per
// thread. Each reduction is a butterfly over the warp; with several warps their results then go through shared memory
// (4 bytes per warp), and every warp repeats the butterfly over them.
#include "bench/ptx/emitters.h"

#include <math.h>

enum { MAX_WARPS = 32, MAX_GROUPS = 8 };

// How a row is distributed: for each group g, thread t holds `vec` elements from number vec * (t + threads * g) on.
struct spread {
    uint32_t vec;    // 4 if rows are aligned to 16 bytes, else 1
    uint32_t units;  // runs of `vec` elements in a row
    uint32_t groups; // 1 to MAX_GROUPS
    uint32_t warps;  // 1 to MAX_WARPS
    bool cut;        // the last group has threads without elements
};

static int spread_row(const struct ptx_rows *r, const char *what, struct spread *s, struct error *err)
{
    if (!r->rows || !r->width || r->rows > INT32_MAX)
        return fail(err, E_GPU, "%s: %u rows of %u", what, r->rows, r->width);
    s->vec = r->width % 4 ? 1 : 4;
    s->units = r->width / s->vec;
    s->warps = MIN(ptx_tiles(s->units, 32), (uint32_t)MAX_WARPS);
    s->groups = ptx_tiles(s->units, 32 * s->warps);
    s->cut = s->units != s->groups * 32 * s->warps;
    if (s->groups > MAX_GROUPS)
        return fail(err, E_GPU, "%s: rows of %u are too long", what, r->width);
    return 0;
}

// Declares the registers that the passes share, and sets the addresses of the thread's first element.
static void row_begin(struct ptx *p, const struct ptx_rows *r, const struct spread *s)
{
    PTX_FILL(p,
             ".maxntid $0, 1, 1\n"
             "{\n"
             "    .reg .pred %in<$1>;\n"
             "    .reg .pred %first, %partial;\n"
             "    .reg .u32 %thread, %lane, %slot, %scratch, %row;\n"
             "    .reg .u64 %px, %py, %offset, %at;\n"
             "    .reg .f32 %x<$2>;\n"
             "    .reg .f32 %other;\n",
             32 * s->warps, s->groups, s->groups * s->vec);
    if (s->warps > 1)
        PTX_FILL(p, "    .shared .align 16 .b8 partials[$0];\n", 4 * s->warps);
    PTX_FILL(p,
             "    mov.u32 %thread, %tid.x;\n"
             "    and.b32 %lane, %thread, 31;\n"
             "    mov.u32 %row, %ctaid.x;\n"
             "    mul.wide.u32 %offset, %row, $0;\n"
             "    mul.wide.u32 %at, %thread, $1;\n"
             "    add.u64 %at, %at, %offset;\n"
             "    ld.param.u64 %px, [x];\n"
             "    cvta.to.global.u64 %px, %px;\n"
             "    add.u64 %px, %px, %at;\n"
             "    ld.param.u64 %py, [y];\n"
             "    cvta.to.global.u64 %py, %py;\n"
             "    add.u64 %py, %py, %at;\n",
             4 * r->width, 4 * s->vec);
    if (s->warps > 1)
        PTX_LINES(p, "    // where the warp leaves its part, and where a lane finds another's\n"
                     "    mov.u32 %scratch, partials;\n"
                     "    shr.u32 %slot, %thread, 5;\n"
                     "    mad.lo.u32 %slot, %slot, 4, %scratch;\n"
                     "    mad.lo.u32 %scratch, %lane, 4, %scratch;\n"
                     "    setp.eq.u32 %first, %lane, 0;\n");
    if (s->warps > 1 && s->warps < 32)
        PTX_FILL(p, "    setp.lt.u32 %partial, %lane, $0;\n", s->warps);
}

// Loads the row; elements beyond it get the value with the bits `empty`.
static void row_load(struct ptx *p, const struct spread *s, uint32_t empty)
{
    for (uint32_t g = 0; g < s->groups; g++) {
        uint32_t at = 128 * s->warps * s->vec * g, first = 32 * s->warps * g, x = s->vec * g;
        if (s->cut) {
            PTX_FILL(p, "    setp.lt.u32 %in$0, %thread, $1;\n", g, s->units > first ? s->units - first : 0);
            for (uint32_t i = 0; i < s->vec; i++)
                PTX_FILL(p, "    mov.f32 %x$0, 0f$x1;\n", x + i, empty);
            PTX_FILL(p, "    @%in$0", g);
        } else {
            PTX_LINES(p, "   ");
        }
        if (s->vec == 4)
            PTX_FILL(p, " ld.global.v4.f32 {%x$0, %x$1, %x$2, %x$3}, [%px+$4];\n", x, x + 1, x + 2, x + 3, at);
        else
            PTX_FILL(p, " ld.global.f32 %x$0, [%px+$1];\n", x, at);
    }
}

static void row_store(struct ptx *p, const struct spread *s)
{
    for (uint32_t g = 0; g < s->groups; g++) {
        uint32_t at = 128 * s->warps * s->vec * g, x = s->vec * g;
        if (s->cut)
            PTX_FILL(p, "    @%in$0", g);
        else
            PTX_LINES(p, "   ");
        if (s->vec == 4)
            PTX_FILL(p, " st.global.v4.f32 [%py+$4], {%x$0, %x$1, %x$2, %x$3};\n", x, x + 1, x + 2, x + 3, at);
        else
            PTX_FILL(p, " st.global.f32 [%py+$1], %x$0;\n", x, at);
    }
}

// ---- reductions: a butterfly over the warp, then over the results of the warps. All threads get the same bits.
//
// Parameters of the macros:
//   op     max or add
//   v      the register that is reduced
//   by     the distance in lanes of a butterfly step
//   empty  the neutral value, for lanes without a warp's result
//   warps  warps of the CTA
//   again  whether another reduction follows, so that the results must be read before it writes its own

#define SHUFFLE(op, v, by)                                                                                             \
    "    shfl.sync.bfly.b32 %other, " v ", " by ", 31, 0xffffffff;\n"                                                  \
    "    " op ".f32 " v ", " v ", %other;\n"
#define BUTTERFLY(op, v)                                                                                               \
    SHUFFLE(op, v, "16") SHUFFLE(op, v, "8") SHUFFLE(op, v, "4") SHUFFLE(op, v, "2") SHUFFLE(op, v, "1")
#define PART_OUT(v)                                                                                                    \
    "    @%first st.shared.f32 [%slot], " v ";\n"                                                                      \
    "    bar.sync 0;\n"
#define PART_IN(v, empty)                                                                                              \
    "    mov.f32 " v ", " empty ";\n"                                                                                  \
    "    @%partial ld.shared.f32 " v ", [%scratch];\n"
#define PART_IN_ALL(v) "    ld.shared.f32 " v ", [%scratch];\n"

#define REDUCE(p, op, v, empty, warps, again)                                                                          \
    do {                                                                                                               \
        PTX_LINES(p, BUTTERFLY(op, v));                                                                                \
        if ((warps) == 1)                                                                                              \
            break;                                                                                                     \
        if ((warps) < 32)                                                                                              \
            PTX_LINES(p, PART_OUT(v) PART_IN(v, empty));                                                               \
        else                                                                                                           \
            PTX_LINES(p, PART_OUT(v) PART_IN_ALL(v));                                                                  \
        if (again)                                                                                                     \
            PTX_LINES(p, "    bar.sync 0;\n");                                                                         \
        PTX_LINES(p, BUTTERFLY(op, v));                                                                                \
    } while (0)

// ---- softmax

static void softmax_passes(struct ptx *p, const struct spread *s)
{
    uint32_t n = s->groups * s->vec;
    PTX_LINES(p, "    // the largest of the row\n"
                 "    .reg .f32 %largest, %sum;\n"
                 "    mov.f32 %largest, %x0;\n");
    for (uint32_t i = 1; i < n; i++)
        PTX_FILL(p, "    max.f32 %largest, %largest, %x$0;\n", i);
    REDUCE(p, "max", "%largest", "0fFF800000", s->warps, true);
    PTX_LINES(p, "    // 2^((x - largest) * log2(e)), and the sum\n"
                 "    mov.f32 %sum, 0f00000000;\n");
    for (uint32_t i = 0; i < n; i++)
        PTX_FILL(p,
                 "    sub.rn.f32 %x$0, %x$0, %largest;\n"
                 "    mul.rn.f32 %x$0, %x$0, 0f3FB8AA3B;\n"
                 "    ex2.approx.ftz.f32 %x$0, %x$0;\n"
                 "    add.rn.f32 %sum, %sum, %x$0;\n",
                 i);
    REDUCE(p, "add", "%sum", "0f00000000", s->warps, false);
    PTX_LINES(p, "    rcp.approx.ftz.f32 %sum, %sum;\n");
    for (uint32_t i = 0; i < n; i++)
        PTX_FILL(p, "    mul.rn.f32 %x$0, %x$0, %sum;\n", i);
}

int ptx_emit_softmax(struct ptx *p, const struct ptx_rows *r, struct ptx_launch *launch, struct error *err)
{
    struct spread s;
    if (spread_row(r, "softmax", &s, err))
        return -1;
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: softmax of $1 rows of $2, f32; a CTA a row\n"
             ".visible .entry softmax_$0(\n"
             "    .param .u64 x,\n"
             "    .param .u64 y)\n",
             r->node, r->rows, r->width);
    row_begin(p, r, &s);
    row_load(p, &s, 0xff800000);
    softmax_passes(p, &s);
    row_store(p, &s);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){.entry = "softmax", .grid = {r->rows, 1, 1}, .block = {32 * s.warps, 1, 1}};
    return ptx_finish(p, err);
}

// ---- layer normalisation

// Computes %mean and %scale = 1 / sqrt(variance + eps). The variance is the mean of (x - mean)^2, because E[x^2] -
// mean^2 cancels if the mean is large.
static void layernorm_moments(struct ptx *p, const struct ptx_rows *r, const struct spread *s)
{
    uint32_t n = s->groups * s->vec;
    PTX_LINES(p, "    // the mean\n"
                 "    .reg .f32 %mean, %square, %scale;\n"
                 "    mov.f32 %mean, %x0;\n");
    for (uint32_t i = 1; i < n; i++)
        PTX_FILL(p, "    add.rn.f32 %mean, %mean, %x$0;\n", i);
    REDUCE(p, "add", "%mean", "0f00000000", s->warps, true);
    PTX_FILL(p,
             "    mul.rn.f32 %mean, %mean, 0f$x0;\n"
             "    // the differences, and the sum of their squares\n"
             "    mov.f32 %square, 0f00000000;\n",
             ptx_float_bits(1.0f / (float)r->width));
    for (uint32_t g = 0; g < s->groups; g++)
        for (uint32_t i = s->vec * g; i < s->vec * (g + 1); i++) {
            PTX_FILL(p, "    sub.rn.f32 %x$0, %x$0, %mean;\n", i);
            if (s->cut)
                PTX_FILL(p, "    @%in$1 fma.rn.f32 %square, %x$0, %x$0, %square;\n", i, g);
            else
                PTX_FILL(p, "    fma.rn.f32 %square, %x$0, %x$0, %square;\n", i);
        }
    REDUCE(p, "add", "%square", "0f00000000", s->warps, false);
    PTX_FILL(p,
             "    fma.rn.f32 %scale, %square, 0f$x0, 0f$x1;\n"
             "    rsqrt.approx.ftz.f32 %scale, %scale;\n",
             ptx_float_bits(1.0f / (float)r->width), ptx_float_bits(r->eps));
}

static void layernorm_apply(struct ptx *p, const struct spread *s)
{
    PTX_FILL(p,
             "    // the weights and biases of the same columns\n"
             "    .reg .u64 %pw, %pb;\n"
             "    .reg .f32 %w0, %w1, %w2, %w3, %b0, %b1, %b2, %b3;\n"
             "    mul.wide.u32 %offset, %thread, $0;\n"
             "    ld.param.u64 %pw, [weight];\n"
             "    cvta.to.global.u64 %pw, %pw;\n"
             "    add.u64 %pw, %pw, %offset;\n"
             "    ld.param.u64 %pb, [bias];\n"
             "    cvta.to.global.u64 %pb, %pb;\n"
             "    add.u64 %pb, %pb, %offset;\n",
             4 * s->vec);
    for (uint32_t g = 0; g < s->groups; g++) {
        uint32_t at = 128 * s->warps * s->vec * g;
        if (s->cut)
            PTX_FILL(p, "    @!%in$0 bra STORE;\n", g);
        if (s->vec == 4)
            PTX_FILL(p,
                     "    ld.global.v4.f32 {%w0, %w1, %w2, %w3}, [%pw+$0];\n"
                     "    ld.global.v4.f32 {%b0, %b1, %b2, %b3}, [%pb+$0];\n",
                     at);
        else
            PTX_FILL(p,
                     "    ld.global.f32 %w0, [%pw+$0];\n"
                     "    ld.global.f32 %b0, [%pb+$0];\n",
                     at);
        for (uint32_t i = 0; i < s->vec; i++)
            PTX_FILL(p,
                     "    mul.rn.f32 %x$0, %x$0, %scale;\n"
                     "    fma.rn.f32 %x$0, %x$0, %w$1, %b$1;\n",
                     s->vec * g + i, i);
    }
    if (s->cut)
        PTX_LINES(p, "STORE:\n");
}

int ptx_emit_layernorm(struct ptx *p, const struct ptx_rows *r, struct ptx_launch *launch, struct error *err)
{
    struct spread s;
    if (spread_row(r, "layernorm", &s, err))
        return -1;
    if (!isfinite(r->eps) || r->eps < 0)
        return fail(err, E_GPU, "layernorm: eps of %g", (double)r->eps);
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: layernorm of $1 rows of $2, f32; a CTA a row\n"
             ".visible .entry layernorm_$0(\n"
             "    .param .u64 x,\n"
             "    .param .u64 weight,\n"
             "    .param .u64 bias,\n"
             "    .param .u64 y)\n",
             r->node, r->rows, r->width);
    row_begin(p, r, &s);
    row_load(p, &s, 0);
    layernorm_moments(p, r, &s);
    layernorm_apply(p, &s);
    row_store(p, &s);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){.entry = "layernorm", .grid = {r->rows, 1, 1}, .block = {32 * s.warps, 1, 1}};
    return ptx_finish(p, err);
}
