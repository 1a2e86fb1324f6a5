// Emits the kernels that compute each column of a row by itself:
//   add, act, glu, scale, softcap, clamp, xielu
//                                    y[r][c] = f(a[r][c]), or f(a[r][c], b[r][c])
//   pick                             y[r][c] = x[outputs[r]][c]
//   combine                          y[r][c] = sum over j < used, in order, of weight[r][j] * x[r][j][c]
//   weigh                            y[r][j][c] = weight[r][j] * x[r][c] for each j < used
//
// The naive loop that each equals: for each row r, for each column c: the statement above.
//
// Grid: rows of the step by ptx_tiles(width, 512). A CTA has 128 threads, and a thread has 4 neighbouring columns of
// one row, which it loads and stores as one vector of 16 bytes. If the width is not a multiple of 4, a thread has one
// column, and a CTA 128. No shared memory is used.
//
// The kernels read each input once and write each output once, so the memory's bandwidth limits them; for a few rows
// the time is that of a launch. They are chosen for every such node of the graph, with these exceptions: if an input
// of an add is a product that nothing else reads, the product's kernel computes the sum (gpu_plan.c). In steps of one
// row pick needs no launch, and most element-wise functions are part of fused kernels (gpu_fuse.c), which use
// ptx_element.
#include "kernels/ptx/emit_ops.h"

#include <math.h>

enum { THREADS = 128 };

// Returns the columns of a thread: 4 if every row begins at a multiple of 16 bytes, otherwise 1.
static uint32_t vector_of(uint32_t width)
{
    return width % 4 ? 1 : 4;
}

static struct ptx_launch launch_of(const char *entry, uint32_t width, uint32_t vector)
{
    return (struct ptx_launch){
        .entry = entry, .grid = {1, ptx_tiles(width, THREADS * vector), 1}, .block = {THREADS, 1, 1}};
}

// Begins the kernel's body. Sets %row to the CTA's row, %i to the thread's first column, %column to the offset of
// that column in its row, and %at to its offset in a value of rows of `width`, both in bytes. Threads without a
// column return. rows_at: the offset of the number of rows in struct ptx_step.
static void place(struct ptx *p, uint32_t rows_at, uint32_t width, uint32_t vector)
{
    PTX_FILL(p,
             ".maxntid 128, 1, 1\n"
             "{\n"
             PTX_ROW_REGS
             "    .reg .pred %outside;\n"
             "    .reg .u32 %i, %chunk;\n"
             "    .reg .u64 %at, %from, %column;\n"
             PTX_ROW
             "    mov.u32 %chunk, %ctaid.y;\n"
             "    mov.u32 %i, %tid.x;\n"
             "    mad.lo.u32 %i, %chunk, 128, %i;\n"
             "    mul.lo.u32 %i, %i, $2;\n"
             "    setp.ge.u32 %outside, %i, $3;\n"
             "    @%outside ret;\n"
             "    mul.wide.u32 %at, %row, $4;\n"
             "    mul.wide.u32 %column, %i, 4;\n"
             "    add.u64 %at, %at, %column;\n",
             0, rows_at, vector, width, 4 * width);
}

// Loads the thread's columns from [%from] to %a0 .. or %b0 .. .
static void load(struct ptx *p, uint32_t vector, char register_name)
{
    if (vector == 4 && register_name == 'a')
        PTX_LINES(p, "    ld.global.v4.f32 {%a0, %a1, %a2, %a3}, [%from];\n");
    else if (vector == 4)
        PTX_LINES(p, "    ld.global.v4.f32 {%b0, %b1, %b2, %b3}, [%from];\n");
    else if (register_name == 'a')
        PTX_LINES(p, "    ld.global.f32 %a0, [%from];\n");
    else
        PTX_LINES(p, "    ld.global.f32 %b0, [%from];\n");
}

// Ends the kernel's body: stores %a0 .. at offset %at of y.
static void store(struct ptx *p, uint32_t vector)
{
    PTX_LINES(p, PTX_ADDRESS("%from", "y") "    add.u64 %from, %from, %at;\n");
    if (vector == 4)
        PTX_LINES(p, "    st.global.v4.f32 [%from], {%a0, %a1, %a2, %a3};\n");
    else
        PTX_LINES(p, "    st.global.f32 [%from], %a0;\n");
    PTX_LINES(p, "    ret;\n"
                 "}\n");
}

// ---- functions: each emits %a<i> = f(%a<i>), and changes %s, %t, %u and %less
//
// Every mul, add and sub has .rn. Without it ptxas may contract a mul and an add to an fma, and whether it does
// depends on the instructions around them, so a fused kernel could give other bits.

// Sets %t to 1 / (1 + 2^%t).
#define LOGISTIC                                                                                                       \
    "    ex2.approx.ftz.f32 %t, %t;\n"                                                                                 \
    "    add.rn.f32 %t, %t, 0f3F800000;\n"                                                                             \
    "    rcp.rn.f32 %t, %t;\n"

// Sets %t to 1 / (1 + e^(-%a<i>)); %a<i> is unchanged.
static void sigmoid(struct ptx *p, uint32_t i)
{
    PTX_FILL(p, "    mul.rn.f32 %t, %a$0, 0f$x1;\n" LOGISTIC, i, ptx_float_bits((float)-LOG2_E));
}

// 0.5 x erfc(-x / sqrt 2), with formula 7.1.26 of Abramowitz and Stegun, whose error is at most 1.5e-7: for z >= 0
// erfc z = (a1 s + .. + a5 s^5) e^(-z^2), where s = 1 / (1 + p z). %u is e^(-z^2) s, and %s is 0.5 erfc z, which a
// negative x takes as its factor; a positive x takes 1 - %s.
static void gelu_erf(struct ptx *p, uint32_t i)
{
    PTX_FILL(p,
             "    abs.f32 %u, %a$0;\n"
             "    mul.rn.f32 %u, %u, 0f$x1;\n"
             "    fma.rn.f32 %t, %u, 0f$x2, 0f3F800000;\n"
             "    rcp.rn.f32 %t, %t;\n"
             "    mul.rn.f32 %u, %u, %u;\n"
             "    mul.rn.f32 %u, %u, 0f$x3;\n"
             "    ex2.approx.ftz.f32 %u, %u;\n"
             "    mul.rn.f32 %u, %u, %t;\n",
             i, ptx_float_bits((float)M_SQRT1_2), ptx_float_bits(0.3275911f), ptx_float_bits((float)-LOG2_E));
    PTX_FILL(p,
             "    fma.rn.f32 %s, %t, 0f$x1, 0f$x2;\n"
             "    fma.rn.f32 %s, %s, %t, 0f$x3;\n"
             "    fma.rn.f32 %s, %s, %t, 0f$x4;\n"
             "    fma.rn.f32 %s, %s, %t, 0f$x5;\n"
             "    mul.rn.f32 %s, %s, %u;\n"
             "    mul.rn.f32 %s, %s, 0f3F000000;\n"
             "    sub.rn.f32 %u, 0f3F800000, %s;\n"
             "    setp.lt.f32 %less, %a$0, 0f00000000;\n"
             "    selp.f32 %s, %s, %u, %less;\n"
             "    mul.rn.f32 %a$0, %a$0, %s;\n",
             i, ptx_float_bits(1.061405429f), ptx_float_bits(-1.453152027f), ptx_float_bits(1.421413741f),
             ptx_float_bits(-0.284496736f), ptx_float_bits(0.254829592f));
}

// max(x, 0) + ln(1 + u) with u = e^-|x|: with z = u / (2 + u), which is at most 1/3, ln(1 + u) is 2 (z + z^3/3 + ..). %u is
// z^2, %s the series. Unlike max, selp keeps a NaN.
static void softplus(struct ptx *p, uint32_t i)
{
    static const float terms[] = {2.0f / 13, 2.0f / 11, 2.0f / 9, 2.0f / 7, 2.0f / 5, 2.0f / 3, 2.0f};
    PTX_FILL(p,
             "    abs.f32 %u, %a$0;\n"
             "    mul.rn.f32 %u, %u, 0f$x1;\n"
             "    ex2.approx.ftz.f32 %u, %u;\n"
             "    add.rn.f32 %t, %u, 0f40000000;\n"
             "    rcp.rn.f32 %t, %t;\n"
             "    mul.rn.f32 %t, %t, %u;\n"
             "    mul.rn.f32 %u, %t, %t;\n"
             "    mov.f32 %s, 0f$x2;\n",
             i, ptx_float_bits((float)-LOG2_E), ptx_float_bits(2.0f / 15));
    for (uint32_t k = 0; k < COUNT_OF(terms); k++)
        PTX_FILL(p, "    fma.rn.f32 %s, %s, %u, 0f$x0;\n", ptx_float_bits(terms[k]));
    PTX_FILL(p,
             "    setp.lt.f32 %less, %a$0, 0f00000000;\n"
             "    selp.f32 %a$0, 0f00000000, %a$0, %less;\n"
             "    fma.rn.f32 %a$0, %s, %t, %a$0;\n",
             i);
}

static void act(struct ptx *p, enum act_kind kind, uint32_t i)
{
    switch (kind) {
    case ACT_NONE:
        break;
    case ACT_SILU:
        sigmoid(p, i);
        PTX_FILL(p, "    mul.rn.f32 %a$0, %a$0, %t;\n", i);
        break;
    case ACT_GELU_TANH: // x / (1 + e^(-2 sqrt(2 / pi) (x + 0.044715 x^3)))
        PTX_FILL(p,
                 "    mul.rn.f32 %t, %a$0, %a$0;\n"
                 "    fma.rn.f32 %t, %t, 0f$x1, 0f$x2;\n"
                 "    mul.rn.f32 %t, %t, %a$0;\n"
                 LOGISTIC
                 "    mul.rn.f32 %a$0, %a$0, %t;\n",
                 i, ptx_float_bits((float)(-2 * LOG2_E * M_SQRT1_2 * M_2_SQRTPI * 0.044715)),
                 ptx_float_bits((float)(-2 * LOG2_E * M_SQRT1_2 * M_2_SQRTPI)));
        break;
    case ACT_GELU_ERF:
        gelu_erf(p, i);
        break;
    case ACT_RELU:
    case ACT_RELU2:
        PTX_FILL(p,
                 "    setp.lt.f32 %less, %a$0, 0f00000000;\n"
                 "    selp.f32 %a$0, 0f00000000, %a$0, %less;\n",
                 i);
        if (kind == ACT_RELU2)
            PTX_FILL(p, "    mul.rn.f32 %a$0, %a$0, %a$0;\n", i);
        break;
    case ACT_SIGMOID:
        sigmoid(p, i);
        PTX_FILL(p, "    mov.f32 %a$0, %t;\n", i);
        break;
    case ACT_SOFTPLUS:
        softplus(p, i);
        break;
    case ACT_SWIGLU_CLAMPED:
        break; // it has two sources
    }
}

// min(a, limit) sigmoid(alpha min(a, limit)) (clamp(b, +-limit) + 1). Unlike min and max, selp keeps a NaN.
static void swiglu_clamped(struct ptx *p, uint32_t i)
{
    PTX_FILL(p,
             "    setp.gt.f32 %less, %a$0, 0f$x1;\n"
             "    selp.f32 %a$0, 0f$x1, %a$0, %less;\n"
             "    setp.gt.f32 %less, %b$0, 0f$x1;\n"
             "    selp.f32 %u, 0f$x1, %b$0, %less;\n"
             "    setp.lt.f32 %less, %u, 0f$x2;\n"
             "    selp.f32 %u, 0f$x2, %u, %less;\n"
             "    add.rn.f32 %u, %u, 0f3F800000;\n"
             "    mul.rn.f32 %t, %a$0, 0f$x3;\n" LOGISTIC
             "    mul.rn.f32 %a$0, %a$0, %t;\n"
             "    mul.rn.f32 %a$0, %a$0, %u;\n",
             i, ptx_float_bits((float)SWIGLU_LIMIT), ptx_float_bits((float)-SWIGLU_LIMIT),
             ptx_float_bits((float)(-LOG2_E * SWIGLU_ALPHA)));
}

// cap tanh(x / cap). With u = |x| / cap, tanh u = 1 - 2 / (e^2u + 1) from u = 0.25 on. Below, where this difference
// would lose digits, it is the series u - u^3 / 3 + 2 u^5 / 15 - 17 u^7 / 315 + 62 u^9 / 2835.
static void softcap(struct ptx *p, float cap, uint32_t i)
{
    PTX_FILL(p,
             "    abs.f32 %u, %a$0;\n"
             "    mul.rn.f32 %u, %u, 0f$x1;\n"
             "    mul.rn.f32 %t, %u, 0f$x2;\n"
             "    ex2.approx.ftz.f32 %t, %t;\n"
             "    add.rn.f32 %t, %t, 0f3F800000;\n"
             "    rcp.rn.f32 %t, %t;\n"
             "    fma.rn.f32 %t, %t, 0fC0000000, 0f3F800000;\n"
             "    setp.lt.f32 %less, %u, 0f3E800000;\n"
             "    mul.rn.f32 %s, %u, %u;\n",
             i, ptx_float_bits((float)(1 / (double)cap)), ptx_float_bits((float)(2 * LOG2_E)));
    PTX_FILL(p,
             "    @%less fma.rn.f32 %t, %s, 0f$x1, 0f$x2;\n"
             "    @%less fma.rn.f32 %t, %t, %s, 0f$x3;\n"
             "    @%less fma.rn.f32 %t, %t, %s, 0f$x4;\n"
             "    @%less mul.rn.f32 %t, %t, %s;\n"
             "    @%less fma.rn.f32 %t, %t, %u, %u;\n"
             "    mul.rn.f32 %t, %t, 0f$x5;\n"
             "    copysign.f32 %a$0, %a$0, %t;\n",
             i, ptx_float_bits((float)(62 / 2835.0)), ptx_float_bits((float)(-17 / 315.0)),
             ptx_float_bits((float)(2 / 15.0)), ptx_float_bits((float)(-1 / 3.0)), ptx_float_bits(cap));
}

// Unlike min and max, selp keeps a NaN.
static void clamp(struct ptx *p, float limit, uint32_t i)
{
    PTX_FILL(p,
             "    setp.gt.f32 %less, %a$0, 0f$x1;\n"
             "    selp.f32 %a$0, 0f$x1, %a$0, %less;\n"
             "    setp.lt.f32 %less, %a$0, 0f$x2;\n"
             "    selp.f32 %a$0, 0f$x2, %a$0, %less;\n",
             i, ptx_float_bits(limit), ptx_float_bits(-limit));
}

// With t = min(x, eps), e^t - 1 - t is 2^(t log2 e) - 1 - t, or from t = -0.5 on, where this difference would lose digits,
// its series t^2 (1/2! + t/3! + ..). %t is t, %u its power, %s the series.
static void xielu(struct ptx *p, const struct xielu_params *x, uint32_t i)
{
    static const float terms[] = {1 / 5040.0f, 1 / 720.0f, 1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f};
    PTX_FILL(p,
             "    setp.lt.f32 %less, %a$0, 0f$x1;\n"
             "    selp.f32 %t, %a$0, 0f$x1, %less;\n"
             "    mul.rn.f32 %u, %t, 0f$x2;\n"
             "    ex2.approx.ftz.f32 %u, %u;\n"
             "    sub.rn.f32 %u, %u, 0f3F800000;\n"
             "    sub.rn.f32 %u, %u, %t;\n"
             "    mov.f32 %s, 0f$x3;\n",
             i, ptx_float_bits(x->eps), ptx_float_bits((float)LOG2_E), ptx_float_bits(1 / 40320.0f));
    for (uint32_t k = 0; k < COUNT_OF(terms); k++)
        PTX_FILL(p, "    fma.rn.f32 %s, %s, %t, 0f$x0;\n", ptx_float_bits(terms[k]));
    PTX_FILL(p,
             "    mul.rn.f32 %s, %s, %t;\n"
             "    mul.rn.f32 %s, %s, %t;\n"
             "    setp.gt.f32 %less, %t, 0fBF000000;\n"
             "    selp.f32 %u, %s, %u, %less;\n"
             "    sub.rn.f32 %t, %t, %a$0;\n"
             "    add.rn.f32 %u, %u, %t;\n"
             "    mul.rn.f32 %u, %u, 0f$x1;\n"
             "    mul.rn.f32 %s, %a$0, %a$0;\n"
             "    mul.rn.f32 %s, %s, 0f$x2;\n"
             "    setp.gt.f32 %less, %a$0, 0f00000000;\n"
             "    selp.f32 %u, %s, %u, %less;\n"
             "    fma.rn.f32 %a$0, %a$0, 0f$x3, %u;\n",
             i, ptx_float_bits(x->alpha_n), ptx_float_bits(x->alpha_p), ptx_float_bits(x->beta));
}

// ---- kernels

static const char *const element_entry[] = {
    [PTX_ADD] = "add",         [PTX_ACT] = "act",     [PTX_GLU] = "glu",    [PTX_SCALE] = "scale",
    [PTX_SOFTCAP] = "softcap", [PTX_CLAMP] = "clamp", [PTX_XIELU] = "xielu"};

static void element_head(struct ptx *p, const struct ptx_elements *e)
{
    static const char *const said[] = {
        [ACT_NONE] = "none",       [ACT_SILU] = "silu",         [ACT_GELU_TANH] = "gelu by tanh",
        [ACT_GELU_ERF] = "gelu",   [ACT_RELU] = "relu",         [ACT_RELU2] = "relu squared",
        [ACT_SIGMOID] = "sigmoid", [ACT_SOFTPLUS] = "softplus", [ACT_SWIGLU_CLAMPED] = "clamped swiglu"};
    bool acts = e->op == PTX_ACT || e->op == PTX_GLU;
    ptx_header(p, 63, 75);
    PTX_FILL(p, "\n// node $0: rows of $1, f32, element by element", e->node, e->width);
    if (acts) {
        PTX_LINES(p, ": ");
        ptx_copy(p, said[e->act], strlen(said[e->act]));
    }
    PTX_LINES(p, "\n.visible .entry ");
    ptx_copy(p, element_entry[e->op], strlen(element_entry[e->op]));
    PTX_FILL(p,
             "_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 a,\n",
             e->node);
    if (e->op == PTX_ADD || e->op == PTX_GLU)
        PTX_LINES(p, "    .param .u64 b,\n");
    PTX_LINES(p, "    .param .u64 y)\n");
}

void ptx_element(struct ptx *p, const struct ptx_elements *e, uint32_t i)
{
    switch (e->op) {
    case PTX_ADD:
        PTX_FILL(p, "    add.rn.f32 %a$0, %a$0, %b$0;\n", i);
        break;
    case PTX_GLU:
        if (e->act == ACT_SWIGLU_CLAMPED) {
            swiglu_clamped(p, i);
            break;
        }
        act(p, e->act, i);
        PTX_FILL(p, "    mul.rn.f32 %a$0, %a$0, %b$0;\n", i);
        break;
    case PTX_ACT:
        act(p, e->act, i);
        break;
    case PTX_SCALE:
        PTX_FILL(p, "    mul.rn.f32 %a$0, %a$0, 0f$x1;\n", i, ptx_float_bits(e->factor));
        break;
    case PTX_SOFTCAP:
        softcap(p, e->factor, i);
        break;
    case PTX_CLAMP:
        clamp(p, e->factor, i);
        break;
    case PTX_XIELU:
        xielu(p, &e->xielu, i);
        break;
    }
}

// Loads the number that the thread's columns share to %a0 .. .
static void load_shared(struct ptx *p, const struct ptx_elements *e, uint32_t vector)
{
    PTX_FILL(p,
             PTX_ADDRESS("%from", "a")
             "    mad.wide.u32 %from, %row, $0, %from;\n"
             "    div.u32 %chunk, %i, $1;\n"
             "    mad.wide.u32 %from, %chunk, 4, %from;\n"
             "    ld.global.f32 %a0, [%from];\n",
             4 * (e->width / e->a_share), e->a_share);
    for (uint32_t i = 1; i < vector; i++)
        PTX_FILL(p, "    mov.f32 %a$0, %a0;\n", i);
}

int ptx_emit_elements(struct ptx *p, const struct ptx_elements *e, struct ptx_launch *launch, struct error *err)
{
    bool two = e->op == PTX_ADD || e->op == PTX_GLU;
    uint32_t b_width = e->b_width ? e->b_width : e->width;
    uint32_t vector = e->b_loose || b_width % 4 || e->a_share % 4 ? 1 : vector_of(e->width);
    if (e->a_share && e->width % e->a_share)
        return fail(err, E_GPU, "%s: %u columns in heads of %u", element_entry[e->op], e->width, e->a_share);
    if (ptx_check_width(element_entry[e->op], e->width, err) || ptx_check_width(element_entry[e->op], b_width, err))
        return -1;
    if (e->op == PTX_ACT && e->act == ACT_SWIGLU_CLAMPED)
        return fail(err, E_GPU, "act: a clamped SwiGLU has two sources");
    if (!isfinite(e->factor) || ((e->op == PTX_SOFTCAP || e->op == PTX_CLAMP) && e->factor <= 0))
        return fail(err, E_GPU, "%s: a factor of %g", element_entry[e->op], (double)e->factor);
    element_head(p, e);
    place(p, ptx_count_at(e->rows), e->width, vector);
    PTX_LINES(p, PTX_ELEMENT_REGS);
    if (e->a_share) {
        load_shared(p, e, vector);
    } else {
        PTX_LINES(p, PTX_ADDRESS("%from", "a") "    add.u64 %from, %from, %at;\n");
        load(p, vector, 'a');
    }
    if (two) {
        if (e->b_one_row)
            PTX_LINES(p, PTX_ADDRESS("%from", "b") "    add.u64 %from, %from, %column;\n");
        else if (b_width == e->width)
            PTX_LINES(p, PTX_ADDRESS("%from", "b") "    add.u64 %from, %from, %at;\n");
        else
            PTX_FILL(p,
                     PTX_ADDRESS("%from", "b")
                     "    mad.wide.u32 %from, %row, $0, %from;\n"
                     "    add.u64 %from, %from, %column;\n",
                     4 * b_width);
        load(p, vector, 'b');
    }
    for (uint32_t i = 0; i < vector; i++)
        ptx_element(p, e, i);
    store(p, vector);
    *launch = launch_of(element_entry[e->op], e->width, vector);
    return ptx_finish(p, err);
}

int ptx_emit_pick(struct ptx *p, const struct ptx_pick *k, struct ptx_launch *launch, struct error *err)
{
    uint32_t vector = vector_of(k->width);
    if (ptx_check_width("pick", k->width, err))
        return -1;
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: the rows of $1 that want logits\n"
             ".visible .entry pick_$0(\n"
             "    .param .u64 step,\n"
             "    .param .u64 outputs,\n"
             "    .param .u64 x,\n"
             "    .param .u64 y)\n",
             k->node, k->width);
    place(p, ptx_count_at(ROWS_OUTPUTS), k->width, vector);
    PTX_FILL(p,
             "    .reg .f32 %a<4>;\n"
             "    .reg .u32 %source;\n"
             PTX_ADDRESS("%from", "outputs")
             "    mad.wide.u32 %from, %row, 4, %from;\n"
             "    ld.global.u32 %source, [%from];\n"
             PTX_ADDRESS("%from", "x")
             "    mad.wide.u32 %from, %source, $0, %from;\n"
             "    add.u64 %from, %from, %column;\n",
             4 * k->width);
    load(p, vector, 'a');
    store(p, vector);
    *launch = launch_of("pick", k->width, vector);
    return ptx_finish(p, err);
}

static int check_parts(const char *kernel, const struct ptx_combine *c, struct error *err)
{
    if (ptx_check_width(kernel, c->width, err))
        return -1;
    if (c->used < 1 || c->used > 1024 || (uint64_t)c->used * c->width > PTX_WIDTH_MAX)
        return fail(err, E_GPU, "%s: %u parts of %u", kernel, c->used, c->width);
    return 0;
}

// The parameters of a kernel that weighs parts, and where its row's weights begin and end; %from is the address of x.
static void open_parts(struct ptx *p, const struct ptx_combine *c, uint32_t vector)
{
    PTX_LINES(p, "    .param .u64 step,\n"
                 "    .param .u64 x,\n"
                 "    .param .u64 route,\n"
                 "    .param .u64 y)\n");
    place(p, ptx_count_at(c->rows), c->width, vector);
    PTX_FILL(p,
             "    .reg .pred %more;\n"
             "    .reg .u64 %weights, %end;\n"
             "    .reg .f32 %a<4>, %b<4>, %w;\n"
             PTX_ADDRESS("%weights", "route")
             "    mad.wide.u32 %weights, %row, $0, %weights;\n"
             "    add.u64 %end, %weights, $1;\n"
             PTX_ADDRESS("%from", "x"),
             8 * c->used, 4 * c->used);
}

int ptx_emit_combine(struct ptx *p, const struct ptx_combine *c, struct ptx_launch *launch, struct error *err)
{
    uint32_t vector = vector_of(c->width);
    if (check_parts("combine", c, err))
        return -1;
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: the sum of $1 weighed parts of $2\n"
             ".visible .entry combine_$0(\n",
             c->node, c->used, c->width);
    open_parts(p, c, vector);
    PTX_FILL(p,
             "    mad.wide.u32 %from, %row, $0, %from;\n"
             "    add.u64 %from, %from, %column;\n",
             4 * c->used * c->width);
    for (uint32_t i = 0; i < vector; i++)
        PTX_FILL(p, "    mov.f32 %a$0, 0f00000000;\n", i);
    PTX_LINES(p, "PART:\n");
    if (c->plain)
        PTX_LINES(p, "    mov.f32 %w, 0f3F800000;\n");
    else
        PTX_LINES(p, "    ld.global.f32 %w, [%weights];\n");
    load(p, vector, 'b');
    for (uint32_t i = 0; i < vector; i++)
        PTX_FILL(p, "    fma.rn.f32 %a$0, %w, %b$0, %a$0;\n", i);
    PTX_FILL(p,
             "    add.u64 %weights, %weights, 4;\n"
             "    add.u64 %from, %from, $0;\n"
             "    setp.lt.u64 %more, %weights, %end;\n"
             "    @%more bra PART;\n",
             4 * c->width);
    store(p, vector);
    *launch = launch_of("combine", c->width, vector);
    return ptx_finish(p, err);
}

int ptx_emit_weigh(struct ptx *p, const struct ptx_combine *c, struct ptx_launch *launch, struct error *err)
{
    uint32_t vector = vector_of(c->width);
    if (check_parts("weigh", c, err))
        return -1;
    ptx_header(p, 63, 75);
    PTX_FILL(p,
             "\n"
             "// node $0: rows of $2 times each of $1 weights\n"
             ".visible .entry weigh_$0(\n",
             c->node, c->used, c->width);
    open_parts(p, c, vector);
    PTX_LINES(p, "    add.u64 %from, %from, %at;\n");
    load(p, vector, 'b');
    PTX_FILL(p,
             PTX_ADDRESS("%from", "y")
             "    mad.wide.u32 %from, %row, $0, %from;\n"
             "    add.u64 %from, %from, %column;\n"
             "PART:\n"
             "    ld.global.f32 %w, [%weights];\n",
             4 * c->used * c->width);
    for (uint32_t i = 0; i < vector; i++)
        PTX_FILL(p, "    mul.rn.f32 %a$0, %w, %b$0;\n", i);
    if (vector == 4)
        PTX_LINES(p, "    st.global.v4.f32 [%from], {%a0, %a1, %a2, %a3};\n");
    else
        PTX_LINES(p, "    st.global.f32 [%from], %a0;\n");
    PTX_FILL(p,
             "    add.u64 %weights, %weights, 4;\n"
             "    add.u64 %from, %from, $0;\n"
             "    setp.lt.u64 %more, %weights, %end;\n"
             "    @%more bra PART;\n"
             "    ret;\n"
             "}\n",
             4 * c->width);
    *launch = launch_of("weigh", c->width, vector);
    return ptx_finish(p, err);
}
