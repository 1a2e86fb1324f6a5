// Tests the PTX interpreter: instructions against values computed by hand, and each fault that it must detect.
#include "bench/ptx/emitters.h"
#include "tests/ptx/interpreter.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define HEAD                                                                                                           \
    ".version 8.0\n.target sm_90\n.address_size 64\n"                                                                  \
    ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"                                                          \
    ".reg .pred %p<4>;\n.reg .b16 %h<8>;\n.reg .b32 %r<24>;\n.reg .b64 %d<16>;\n.reg .f32 %f<16>;\n"                   \
    ".shared .align 128 .b8 tile[4096];\n"                                                                             \
    "ld.param.u64 %d0, [in];\nld.param.u64 %d1, [out];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d2, %r0, 4;\n"             \
    "add.u64 %d3, %d1, %d2;\nadd.u64 %d2, %d0, %d2;\n"
enum { HEAD_LINES = 13, WORDS = 256 };

// %d2: this thread's word of `in`; %d3: of `out`; %r0: the thread.
static int run_words(const char *body, uint32_t ctas, uint32_t threads, const uint32_t *in, uint32_t *out,
                     struct error *err)
{
    char text[16384];
    struct simt *s = simt_new();
    uint64_t params[2] = {simt_alloc(s, 4 * WORDS), simt_alloc(s, 4 * WORDS)};
    snprintf(text, sizeof(text), "%s%s\nret;\n}\n", HEAD, body);
    uint32_t zeros[WORDS] = {0};
    int rc = simt_load(s, str_from(text), err);
    if (!rc)
        rc = simt_put(s, params[0], in ? in : zeros, 4 * WORDS, err);
    if (!rc && out)
        rc = simt_put(s, params[1], zeros, 4 * WORDS, err);
    if (!rc)
        rc = simt_launch(s, simt_find(s, "k"), (struct simt_dim){ctas, 1, 1}, (struct simt_dim){threads, 1, 1}, 0,
                         params, sizeof(params), err);
    if (!rc && out)
        rc = simt_get(s, params[1], out, 4 * WORDS, err);
    simt_free(s);
    return rc;
}

static void expect_fault(const char *body, uint32_t ctas, uint32_t threads, const char *words)
{
    struct error err = {0};
    uint32_t out[WORDS];
    cr_expect_eq(run_words(body, ctas, threads, NULL, out, &err), -1, "no fault: %s", body);
    cr_expect(strstr(err.text, words), "'%s' does not say '%s'", err.text, words);
}

// ---- one instruction at a time: `what` computes %r9 of %r1, %r2, %r3

struct case32 {
    const char *what;
    uint32_t a, b, c, want;
};

static void check_case(const struct case32 *t)
{
    struct error err = {0};
    char body[1024];
    uint32_t out[WORDS];
    snprintf(body, sizeof(body),
             "mov.b32 %%r1, %u;\nmov.b32 %%r2, %u;\nmov.b32 %%r3, %u;\n%s\nst.global.b32 [%%d3], %%r9;", t->a, t->b,
             t->c, t->what);
    int rc = run_words(body, 1, 32, NULL, out, &err);
    cr_expect_eq(rc, 0, "%s: %s", t->what, err.text);
    if (!rc)
        cr_expect_eq(out[31], t->want, "%s of %x %x %x is %x, not %x", t->what, t->a, t->b, t->c, out[31], t->want);
}

Test(ptx_interpreter, integers)
{
    static const struct case32 cases[] = {
        {"add.u32 %r9, %r1, %r2;", UINT32_MAX, 2, 0, 1},
        {"add.sat.s32 %r9, %r1, %r2;", INT32_MAX, 1, 0, INT32_MAX},
        {"sub.sat.s32 %r9, %r1, %r2;", 0x80000000, 1, 0, 0x80000000},
        {"mul.lo.s32 %r9, %r1, %r2;", 0x10001, 0x10001, 0, 0x20001},
        {"mul.hi.u32 %r9, %r1, %r2;", UINT32_MAX, UINT32_MAX, 0, 0xfffffffe},
        {"mul.hi.s32 %r9, %r1, %r2;", UINT32_MAX, 5, 0, UINT32_MAX},
        {"mul.wide.s32 %d5, %r1, %r2;\nshr.u64 %d5, %d5, 32;\ncvt.u32.u64 %r9, %d5;", UINT32_MAX, 5, 0, UINT32_MAX},
        {"mul.wide.u32 %d5, %r1, %r2;\nshr.u64 %d5, %d5, 32;\ncvt.u32.u64 %r9, %d5;", UINT32_MAX, 5, 0, 4},
        {"mad.lo.u32 %r9, %r1, %r2, %r3;", 3, 5, 7, 22},
        {"div.s32 %r9, %r1, %r2;", 0xfffffff9, 2, 0, 0xfffffffd},
        {"rem.s32 %r9, %r1, %r2;", 0xfffffff9, 2, 0, UINT32_MAX},
        {"div.s32 %r9, %r1, %r2;", 0x80000000, UINT32_MAX, 0, 0x80000000},
        {"min.s32 %r9, %r1, %r2;", UINT32_MAX, 1, 0, UINT32_MAX},
        {"min.u32 %r9, %r1, %r2;", UINT32_MAX, 1, 0, 1},
        {"max.s32 %r9, %r1, %r2;", UINT32_MAX, 1, 0, 1},
        {"abs.s32 %r9, %r1;", UINT32_MAX, 0, 0, 1},
        {"neg.s32 %r9, %r1;", 5, 0, 0, 0xfffffffb},
        {"not.b32 %r9, %r1;", 5, 0, 0, 0xfffffffa},
        {"shl.b32 %r9, %r1, %r2;", 1, 31, 0, 0x80000000},
        {"shl.b32 %r9, %r1, %r2;", 1, 32, 0, 0},
        {"shr.u32 %r9, %r1, %r2;", 0x80000000, 40, 0, 0},
        {"shr.s32 %r9, %r1, %r2;", 0x80000000, 40, 0, UINT32_MAX},
        {"shf.l.wrap.b32 %r9, %r1, %r2, %r3;", 0x80000000, 1, 33, 3},
        {"shf.r.clamp.b32 %r9, %r1, %r2, %r3;", 5, 7, 40, 7},
        {"bfe.u32 %r9, %r1, %r2, %r3;", 0x12345678, 8, 8, 0x56},
        {"bfe.s32 %r9, %r1, %r2, %r3;", 0x0000f000, 12, 4, UINT32_MAX},
        {"bfe.u32 %r9, %r1, %r2, %r3;", 0x12345678, 28, 8, 1},
        {"bfi.b32 %r9, %r1, %r2, %r3, 8;", 0xab, 0, 4, 0xab0},
        {"brev.b32 %r9, %r1;", 1, 0, 0, 0x80000000},
        {"popc.b32 %r9, %r1;", 0xf0f0, 0, 0, 8},
        {"clz.b32 %r9, %r1;", 1, 0, 0, 31},
        {"clz.b32 %r9, %r1;", 0, 0, 0, 32},
        {"prmt.b32 %r9, %r1, %r2, %r3;", 0x33221100, 0x77665584, 0xc470, 0xff847700},
        {"lop3.b32 %r9, %r1, %r2, %r3, 0xe8;", 12, 10, 6, 14},
        {"lop3.b32 %r9, %r1, %r2, %r3, 0x96;", 12, 10, 7, 1},
        {"dp4a.s32.s32 %r9, %r1, %r2, %r3;", 0xff02ff80, 0x01010180, 10, 16394},
        {"dp4a.u32.s32 %r9, %r1, %r2, %r3;", 0xff000000, 0xff000000, 0, 0xffffff01},
        {"dp2a.lo.s32.s32 %r9, %r1, %r2, %r3;", 0xffff0002, 0x00000203, 1, 5},
        {"cvt.sat.s8.s32 %r9, %r1;", 300, 0, 0, 127},
        {"cvt.sat.u8.s32 %r9, %r1;", 0xfffffff0, 0, 0, 0},
        {"cvt.s8.s32 %r9, %r1;", 0x80, 0, 0, 0xffffff80},
        {"setp.lt.s32 %p1, %r1, %r2;\nselp.u32 %r9, 1, 2, %p1;", UINT32_MAX, 0, 0, 1},
        {"setp.lt.u32 %p1, %r1, %r2;\nselp.u32 %r9, 1, 2, %p1;", UINT32_MAX, 0, 0, 2},
        {"mov.b32 {%h0, %h1}, %r1;\nmov.b32 %r9, {%h1, %h0};", 0x12345678, 0, 0, 0x56781234},
        {"mov.pred %p1, 1;\nnot.pred %p2, %p1;\nselp.b32 %r9, %r1, %r2, %p2;", 4, 5, 0, 5},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_case(&cases[i]);
}

#define F2 "mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nmov.b32 %f3, %r3;\n"
#define FR "\nmov.b32 %r9, %f9;"

Test(ptx_interpreter, floats)
{
    static const struct case32 cases[] = {
        {F2 "fma.rn.f32 %f9, %f1, %f2, %f3;" FR, 0x3f800001, 0x3f7fffff, 0xbf800000, 0x337ffffe},
        {F2 "mul.f32 %f9, %f1, %f2;" FR, 0x00800000, 0x3f000000, 0, 0x00400000},
        {F2 "mul.ftz.f32 %f9, %f1, %f2;" FR, 0x00800000, 0x3f000000, 0, 0},
        {F2 "add.ftz.f32 %f9, %f1, %f2;" FR, 0x80000001, 0x80000000, 0, 0x80000000},
        {F2 "add.rz.f32 %f9, %f1, %f2;" FR, 0x3f800000, 0x33c00000, 0, 0x3f800000},
        {F2 "add.rp.f32 %f9, %f1, %f2;" FR, 0x3f800000, 0x30000000, 0, 0x3f800001},
        {F2 "add.sat.f32 %f9, %f1, %f2;" FR, 0x3f800000, 0x3f800000, 0, 0x3f800000},
        {F2 "max.f32 %f9, %f1, %f2;" FR, 0x7fc00000, 0x3f800000, 0, 0x3f800000},
        {F2 "max.NaN.f32 %f9, %f1, %f2;" FR, 0x7fc00000, 0x3f800000, 0, 0x7fffffff},
        {F2 "min.f32 %f9, %f1, %f2;" FR, 0, 0x80000000, 0, 0x80000000},
        {F2 "div.rn.f32 %f9, %f1, %f2;" FR, 0x3f800000, 0x40400000, 0, 0x3eaaaaab},
        {F2 "sqrt.rn.f32 %f9, %f1;" FR, 0x40000000, 0, 0, 0x3fb504f3},
        {F2 "ex2.approx.ftz.f32 %f9, %f1;" FR, 0x40400000, 0, 0, 0x41000000},
        {F2 "lg2.approx.f32 %f9, %f1;" FR, 0x41000000, 0, 0, 0x40400000},
        {F2 "rcp.approx.ftz.f32 %f9, %f1;" FR, 0x40800000, 0, 0, 0x3e800000},
        {F2 "rsqrt.approx.f32 %f9, %f1;" FR, 0x40800000, 0, 0, 0x3f000000},
        {F2 "cvt.rni.s32.f32 %r9, %f1;", 0x40200000, 0, 0, 2},
        {F2 "cvt.rzi.s32.f32 %r9, %f1;", 0xc0200000, 0, 0, 0xfffffffe},
        {F2 "cvt.rni.s32.f32 %r9, %f1;", 0x7fc00000, 0, 0, 0},
        {F2 "cvt.rzi.u32.f32 %r9, %f1;", 0xbf800000, 0, 0, 0},
        {F2 "cvt.rni.s32.f32 %r9, %f1;", 0x7f800000, 0, 0, INT32_MAX},
        {"cvt.rn.f32.s32 %f9, %r1;" FR, 0x01000001, 0, 0, 0x4b800000},
        {"cvt.rn.f32.u32 %f9, %r1;" FR, UINT32_MAX, 0, 0, 0x4f800000},
        {F2 "cvt.rn.f16.f32 %h0, %f1;\nmov.b16 %h1, 0;\nmov.b32 %r9, {%h0, %h1};", 0x477ff000, 0, 0, 0x7c00},
        {F2 "cvt.rn.f16.f32 %h0, %f1;\nmov.b16 %h1, 0;\nmov.b32 %r9, {%h0, %h1};", 0x33000001, 0, 0, 1},
        {F2 "cvt.rn.f16x2.f32 %r9, %f1, %f2;", 0x3f800000, 0xc0000000, 0, 0x3c00c000},
        {F2 "cvt.rn.bf16x2.f32 %r9, %f1, %f2;", 0x3f808000, 0x3f818000, 0, 0x3f803f82},
        {"cvt.u16.u32 %h0, %r1;\ncvt.f32.f16 %f9, %h0;" FR, 0x0001, 0, 0, 0x33800000},
        {"fma.rn.f16x2 %r9, %r1, %r2, %r3;", 0x3c013c00, 0x3c013c00, 0x80003c00, 0x3c024000},
        {F2 "setp.ltu.f32 %p1, %f1, %f2;\nselp.u32 %r9, 1, 2, %p1;", 0x7fc00000, 0, 0, 1},
        {F2 "setp.ne.f32 %p1, %f1, %f2;\nselp.u32 %r9, 1, 2, %p1;", 0x7fc00000, 0, 0, 2},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_case(&cases[i]);
}

// ---- control

Test(ptx_interpreter, lanes_part_and_meet_again)
{
    // thread t sums 0 .. t - 1 in a loop of its own length, then adds what all lanes have by a shuffle
    struct error err = {0};
    uint32_t out[WORDS];
    int rc = run_words("mov.u32 %r1, 0;\nmov.u32 %r2, 0;\nL: setp.ge.u32 %p0, %r2, %r0;\n@%p0 bra E;\n"
                       "add.u32 %r1, %r1, %r2;\nadd.u32 %r2, %r2, 1;\nbra L;\n"
                       "E: shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;\nadd.u32 %r1, %r1, %r3;\nst.global.u32 [%d3], %r1;",
                       1, 64, NULL, out, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    for (uint32_t t = 0; t < 64; t++)
        cr_expect_eq(out[t], t * (t - 1) / 2 + (t ^ 1) * ((t ^ 1) - 1) / 2, "thread %u", t);
}

Test(ptx_interpreter, warps_talk_through_shared_memory)
{
    struct error err = {0};
    uint32_t out[WORDS];
    int rc = run_words("mov.u32 %r1, tile;\nmad.lo.u32 %r2, %r0, 4, %r1;\nst.shared.u32 [%r2], %r0;\nbar.sync 0;\n"
                       "sub.u32 %r3, 63, %r0;\nmad.lo.u32 %r3, %r3, 4, %r1;\nld.shared.u32 %r4, [%r3];\n"
                       "st.global.u32 [%d3], %r4;",
                       1, 64, NULL, out, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    for (uint32_t t = 0; t < 64; t++)
        cr_expect_eq(out[t], 63 - t);
}

Test(ptx_interpreter, atomics_add_up)
{
    struct error err = {0};
    uint32_t out[WORDS];
    int rc = run_words("atom.global.add.u32 %r1, [%d1], 1;\nred.global.max.s32 [%d1+4], %r0;\n"
                       "atom.global.cas.b32 %r2, [%d1+8], 0, 7;",
                       3, 64, NULL, out, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_expect_eq(out[0], 192);
    cr_expect_eq(out[1], 63);
    cr_expect_eq(out[2], 7);
}

Test(ptx_interpreter, votes_and_masks)
{
    struct error err = {0};
    uint32_t out[WORDS];
    int rc =
        run_words("setp.lt.u32 %p0, %r0, 5;\nvote.sync.ballot.b32 %r1, %p0, -1;\nredux.sync.add.s32 %r2, %r0, -1;\n"
                  "add.u32 %r1, %r1, %r2;\nst.global.u32 [%d3], %r1;",
                  1, 32, NULL, out, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_expect_eq(out[9], 31 + 496);
}

Test(ptx_interpreter, copies_come_when_waited_for)
{
    struct error err = {0};
    uint32_t out[WORDS], in[WORDS];
    for (uint32_t i = 0; i < WORDS; i++)
        in[i] = i * 3;
    int rc = run_words("mov.u32 %r1, tile;\nmad.lo.u32 %r2, %r0, 4, %r1;\n"
                       "cp.async.ca.shared.global [%r2], [%d2], 4;\ncp.async.commit_group;\ncp.async.wait_group 0;\n"
                       "ld.shared.u32 %r4, [%r2];\nst.global.u32 [%d3], %r4;",
                       1, 64, in, out, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_expect_eq(out[63], 189);
}

// a: rows of ones and twos, b: column n has n + 1 in its row 0 only
Test(ptx_interpreter, matrices_multiply)
{
    struct error err = {0};
    uint32_t out[WORDS];
    // a[i][k] = 1, b[k][n] = k == 0 ? 1 : 0 in f16: c = 1 everywhere
    int rc = run_words("and.b32 %r1, %r0, 3;\nsetp.eq.u32 %p0, %r1, 0;\nselp.b32 %r2, 0x3c00, 0, %p0;\n"
                       "mov.b32 %r3, 0x3c003c00;\nmov.b32 %r4, 0;\nmov.f32 %f0, 0f40000000;\n"
                       "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r3, %r3, %r3, %r3}, "
                       "{%r2, %r4}, {%f0, %f0, %f0, %f0};\nst.global.f32 [%d3], %f4;",
                       1, 32, NULL, out, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    for (int i = 0; i < 32; i++)
        cr_expect_eq(out[i], 0x40400000, "%x", out[i]);
    // s8: -1 * 2 over 32 places, and 5
    rc = run_words("mov.b32 %r1, -1;\nmov.b32 %r2, 0x02020202;\nmov.b32 %r3, 5;\n"
                   "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r4, %r5, %r6, %r7}, {%r1, %r1, %r1, %r1}, "
                   "{%r2, %r2}, {%r3, %r3, %r3, %r3};\nst.global.u32 [%d3], %r6;",
                   1, 32, NULL, out, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_expect_eq((int32_t)out[7], -59);
}

Test(ptx_interpreter, ldmatrix_spreads_rows)
{
    struct error err = {0};
    uint32_t out[WORDS];
    int rc =
        run_words("mov.u32 %r1, tile;\nmad.lo.u32 %r2, %r0, 4, %r1;\nst.shared.u32 [%r2], %r0;\nbar.warp.sync -1;\n"
                  "and.b32 %r3, %r0, 7;\nmad.lo.u32 %r3, %r3, 16, %r1;\n"
                  "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];\nst.global.u32 [%d3], %r4;",
                  1, 32, NULL, out, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    for (uint32_t t = 0; t < 32; t++)
        cr_expect_eq(out[t], t);
}

// ---- faults

Test(ptx_interpreter, what_is_not_known_is_refused)
{
    struct error err;
    static const struct {
        const char *line, *words;
    } cases[] = {
        {"frob.u32 %r1, %r2;", "unknown opcode"},
        {"add.frob.u32 %r1, %r1, %r1;", ".frob"},
        {"add.pred %p0, %p0, %p0;", ".pred"},
        {"add.f32 %r1, %f1;", ""},
        {"add.u32 %r1, %f1, %r1;", "%f1"},
        {"add.u32 %r1, %r1;", "','"},
        {"add.u32 %r1, %r99, %r1;", "%r99"},
        {"bra NOWHERE;", "NOWHERE"},
        {"mul.u32 %r1, %r1, %r1;", "lacks"},
        {"add.u64 %d1, %r1, %d1;", "%r1"},
        {"fma.f32 %f1, %f1, %f1, %f1;", "lacks"},
        {"ld.global.v2.u32 %r1, [%d0];", "number of operands"},
        {"mov.u32 %r1, 0f3F800000;", "a float"},
        {"add.f32 %f1, %f1, 1;", "an integer"},
        {"mov.b32 {%h0, %h1, %h2}, %r1;", "number of operands"},
        {"mov.b32 %r1, {%h0};", "number of operands"},
        {".shared .b8 more[232448];", "more than 232448 bytes"},
        {".local .b8 own[524289];", "more than 524288 bytes"},
        {".reg .b32 %many<70000>;", "registers"},
        {".reg .u32 %tid;", "special register"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char line[32];
        snprintf(line, sizeof(line), "line %d:", HEAD_LINES + 2);
        memset(&err, 0, sizeof(err));
        char body[256];
        snprintf(body, sizeof(body), "\n%s", cases[i].line);
        cr_expect_eq(run_words(body, 1, 32, NULL, NULL, &err), -1, "%s", cases[i].line);
        cr_expect(strstr(err.text, cases[i].words), "%s: %s", cases[i].line, err.text);
        if (!strstr(cases[i].line, "NOWHERE"))
            cr_expect(strstr(err.text, "line "), "%s: %s", cases[i].line, err.text);
    }
}

// Nothing may be read past the end of a text.
Test(ptx_interpreter, texts_that_no_kernel_comes_of_are_refused)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "begins with .version"},
        {".version 0d7FF8000000000000\n", "unsupported version"},
        {".version 8.0\n.target sm_9", "unknown target"},
        {".version 8.0\n.target sm_90", ".address_size"},
        {".version 8.0\n.target sm_9x\n", "unknown target"},
        {".version 8.0\n.target sm_90\n.address_size 64\n.global .b8 a[268435456];", "more than"},
        {".version 8.0\n.target sm_90\n.address_size 64\n.entry", "name"},
        {".version 8.0\n.target sm_90\n.address_size 64\n.entry k(.param .b8 a[32765])", "more than 32764"},
        {".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { bra L; ret; L: }", "nothing stands at label L"},
        {".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { .reg .b64 %d; L: bra", "a label"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct simt *s = simt_new();
        struct error err = {0};
        size_t n = strlen(cases[i].text);
        char *text = malloc(n + 1);
        cr_assert(s && text);
        memcpy(text, cases[i].text, n);
        text = realloc(text, n ? n : 1);
        cr_expect(simt_load(s, (struct str){text, n}, &err) < 0, "%s", cases[i].text);
        cr_expect(strstr(err.text, cases[i].words), "%s: %s", cases[i].text, err.text);
        cr_expect(!simt_newest(s));
        free(text);
        simt_free(s);
    }
}

Test(ptx_interpreter, faults_are_found)
{
    static const struct {
        const char *body;
        uint32_t ctas, threads;
        const char *words;
    } cases[] = {
        {"add.u32 %r1, %r2, 1;", 1, 32, "%r2, which nothing has written"},
        {"ld.global.u32 %r1, [%d2+1024];", 1, 32, "out of bounds"},
        {"st.global.u32 [%d3-4], %r0;", 1, 32, "thread (0,0,0): 4 bytes"},
        {"ld.global.u32 %r1, [%d2+2];", 1, 32, "not aligned"},
        {"ld.shared.u32 %r1, [tile];", 1, 32, "which nothing has written"},
        {"ld.shared.u32 %r1, [tile+4096];", 1, 32, "out of bounds"},
        {"st.shared.u32 [tile], %r0;", 1, 32, "race"},
        {"mov.u32 %r1, tile;\nmad.lo.u32 %r2, %r0, 4, %r1;\nst.shared.u32 [%r2], %r0;\nxor.b32 %r3, %r0, 32;\n"
         "mad.lo.u32 %r3, %r3, 4, %r1;\nbar.warp.sync -1;\nld.shared.u32 %r4, [%r3];",
         1, 64, "written"},
        {"setp.lt.u32 %p0, %r0, 16;\n@%p0 bar.sync 0;", 1, 32, "divergent barrier"},
        {"setp.lt.u32 %p0, %r0, 32;\n@%p0 bra S;\nbar.sync 0;\nS:", 1, 64, "divergent barrier"},
        {"setp.lt.u32 %p0, %r0, 16;\n@%p0 ret;\nbar.warp.sync -1;", 1, 32, "divergent"},
        {"st.global.u32 [%d1], %r0;", 2, 1, "race"},
        {"trap;", 1, 1, "trap"},
        {"mov.u32 %r1, tile;\nmad.lo.u32 %r2, %r0, 4, %r1;\ncp.async.ca.shared.global [%r2], [%d2], 4;\n"
         "cp.async.commit_group;\nld.shared.u32 %r4, [%r2];",
         1, 32, "not waited for"},
        {"setp.lt.u32 %p0, %r0, 16;\n@%p0 shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;", 1, 32, "divergent"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect_fault(cases[i].body, cases[i].ctas, cases[i].threads, cases[i].words);
}

// %d4: the address of this thread's byte of `out`; %d5: that of the word that contains the byte of the thread 32
// further or back; %p0: whether the thread is one of the first 16.
#define BYTES                                                                                                          \
    "cvt.u64.u32 %d4, %r0;\nadd.u64 %d4, %d1, %d4;\nxor.b32 %r1, %r0, 32;\nand.b32 %r1, %r1, 60;\n"                    \
    "cvt.u64.u32 %d5, %r1;\nadd.u64 %d5, %d1, %d5;\nsetp.lt.u32 %p0, %r0, 16;\n"

// A word and its bytes are the same memory, whatever accessed them before.
Test(ptx_interpreter, races_are_found_between_words_and_their_bytes)
{
    expect_fault(BYTES "st.global.u8 [%d1], %r0;", 1, 2, "race");
    expect_fault(BYTES "st.global.u8 [%d4], %r0;\nld.global.u32 %r2, [%d5];", 1, 64, "race");
    expect_fault(BYTES "ld.global.u32 %r2, [%d5];\nst.global.u8 [%d4], %r0;", 1, 64, "race");
    expect_fault(BYTES "@%p0 st.global.u32 [%d3], %r0;\nld.global.u8 %r2, [%d4];", 1, 64, "race");
    expect_fault(BYTES "st.global.u8 [%d4], %r0;\n@%p0 st.global.u32 [%d3], %r0;", 1, 64, "race");
    // taken apart, put together again by a word that is written, and read too early by other lanes of that warp
    expect_fault(BYTES "st.global.u8 [%d4], %r0;\nbar.sync 0;\n@%p0 st.global.u32 [%d3], %r0;\n"
                       "@%p0 ld.global.u32 %r2, [%d5];",
                 1, 64, "race");
    // a word that is read keeps who read its bytes
    expect_fault("setp.eq.u32 %p0, %r0, 0;\nsetp.eq.u32 %p1, %r0, 1;\n@%p1 ld.global.u8 %r2, [%d1+1];\n"
                 "@%p0 ld.global.u32 %r2, [%d1];\n@%p0 st.global.u8 [%d1+1], %r0;",
                 1, 2, "race");
}

Test(ptx_interpreter, bytes_of_a_word_may_be_different_threads)
{
    struct error err = {0};
    uint32_t out[WORDS];
    int rc = run_words(BYTES "st.global.u8 [%d4], %r0;\nbar.sync 0;\nld.global.u32 %r2, [%d5];\nbar.sync 0;\n"
                             "@%p0 st.global.u32 [%d3], %r0;\nbar.sync 0;\nld.global.u8 %r3, [%d4];\nbar.sync 0;\n"
                             "st.global.u32 [%d3+256], %r2;",
                       1, 64, NULL, out, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_expect_eq(out[15], 15);
    cr_expect_eq(out[64], 0x23222120);
    rc = run_words("mov.u32 %r1, %ctaid.x;\ncvt.u64.u32 %d4, %r1;\nadd.u64 %d4, %d1, %d4;\nst.global.u8 [%d4], %r1;", 4,
                   1, NULL, out, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_expect_eq(out[0], 0x03020100);
}

Test(ptx_interpreter, a_fault_names_its_place)
{
    expect_fault("setp.ne.u32 %p0, %r0, 37;\n@%p0 bra S;\nld.shared.u32 %r1, [tile];\nS:", 1, 64, "thread (37,0,0)");
    expect_fault("trap;", 1, 1, "kernel k, line ");
}

Test(ptx_interpreter, what_runs_for_ever_is_stopped)
{
    struct error err = {0};
    struct simt *s = simt_new();
    uint64_t params[2] = {0};
    cr_assert_eq(simt_load(s, STR_LIT(HEAD "L: bra L;\n}\n"), &err), 0, "%s", err.text);
    simt_set_limit(s, 1000);
    cr_expect_eq(simt_launch(s, simt_find(s, "k"), (struct simt_dim){1, 1, 1}, (struct simt_dim){32, 1, 1}, 0, params,
                             sizeof(params), &err),
                 -1);
    cr_expect(strstr(err.text, "for ever"), "%s", err.text);
    simt_free(s);
}

// ---- the kernels that quern writes, run

struct rig {
    struct simt *s;
    uint64_t params[4];
    size_t n_params;
};

static uint64_t push(struct rig *r, const void *data, size_t size)
{
    uint64_t at = simt_alloc(r->s, size);
    cr_assert(at);
    if (data)
        cr_assert_eq(simt_put(r->s, at, data, size, NULL), 0);
    return r->params[r->n_params++] = at;
}

static void run_text(struct rig *r, const struct ptx *p, const struct ptx_launch *l)
{
    struct error err = {0};
    char name[64];
    snprintf(name, sizeof(name), "%s_0", l->entry);
    cr_assert_eq(simt_load(r->s, (struct str){p->data, p->size}, &err), 0, "%s", err.text);
    cr_assert(simt_find(r->s, name), "%s", name);
    int rc = simt_launch(r->s, simt_find(r->s, name), (struct simt_dim){l->grid[0], l->grid[1], l->grid[2]},
                         (struct simt_dim){l->block[0], l->block[1], l->block[2]}, 0, r->params,
                         r->n_params * sizeof(uint64_t), &err);
    cr_assert_eq(rc, 0, "%s", err.text);
}

static float number_at(uint32_t i)
{
    return (float)((int)(i * 2654435761u >> 20) - 2048) / 2048;
}

// Values with few significant bits.
static uint16_t half_of(float f, bool bf16)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (bf16)
        return (uint16_t)(bits >> 16);
    return f == 0 ? 0 : (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023));
}

static char text_buffer[1 << 18];

typedef int emit_gemm(struct ptx *, const struct ptx_gemm *, struct ptx_launch *, struct error *);

static void check_gemm(emit_gemm *emit, struct ptx_gemm g, bool halves)
{
    struct error err = {0};
    struct ptx p;
    struct ptx_launch l;
    uint32_t na = g.m * g.k, nb = g.k * g.n, nc = g.m * g.n;
    float *a = calloc(na, 4), *b = calloc(nb, 4), *c = calloc(nc, 4);
    uint16_t *ha = calloc(na, 2), *hb = calloc(nb, 2);
    struct rig r = {.s = simt_new()};
    // small whole numbers over 16: exact in f16 and bf16, and so are the sums
    for (uint32_t i = 0; i < na; i++)
        a[i] = (float)((int)(i * 2654435761u >> 28) - 8) / 16,
        ha[i] = g.bf16 ? half_of(a[i], true) : half_of(a[i], false);
    for (uint32_t i = 0; i < nb; i++)
        b[i] = (float)((int)(i * 2246822519u >> 28) - 8) / 16,
        hb[i] = g.bf16 ? half_of(b[i], true) : half_of(b[i], false);
    push(&r, halves ? (void *)ha : a, na * (halves ? 2 : 4));
    push(&r, halves ? (void *)hb : b, nb * (halves ? 2 : 4));
    uint64_t out = push(&r, NULL, nc * 4);
    ptx_start(&p, text_buffer, sizeof(text_buffer));
    cr_assert_eq(emit(&p, &g, &l, &err), 0, "%s", err.text);
    run_text(&r, &p, &l);
    cr_assert_eq(simt_get(r.s, out, c, nc * 4, &err), 0, "%s", err.text);
    for (uint32_t i = 0; i < nc; i++) {
        float want = 0;
        for (uint32_t k = 0; k < g.k; k++)
            want += a[i / g.n * g.k + k] * b[k * g.n + i % g.n];
        cr_assert_float_eq(c[i], want, 1e-6, "element %u is %g, not %g", i, (double)c[i], (double)want);
    }
    simt_free(r.s);
    free(a), free(b), free(c), free(ha), free(hb);
}

Test(ptx_interpreter, products_by_emitted_kernels)
{
    check_gemm(ptx_emit_gemm_naive, (struct ptx_gemm){.m = 20, .n = 24, .k = 18}, false);
    check_gemm(ptx_emit_gemm_tiled, (struct ptx_gemm){.m = 20, .n = 24, .k = 18, .tile = 16}, false);
    check_gemm(ptx_emit_gemm_tiled, (struct ptx_gemm){.m = 64, .n = 64, .k = 64, .tile = 32}, false);
    check_gemm(ptx_emit_gemm_wmma, (struct ptx_gemm){.m = 64, .n = 64, .k = 64}, true);
    check_gemm(ptx_emit_gemm_wmma, (struct ptx_gemm){.m = 40, .n = 24, .k = 24}, true);
    check_gemm(ptx_emit_gemm_mma, (struct ptx_gemm){.m = 64, .n = 64, .k = 64}, true);
    check_gemm(ptx_emit_gemm_mma, (struct ptx_gemm){.m = 40, .n = 72, .k = 56, .bf16 = true}, true);
}

Test(ptx_interpreter, softmax_by_the_emitted_kernel)
{
    enum { ROWS = 3, WIDTH = 1000 };
    struct error err = {0};
    struct ptx p;
    struct ptx_launch l;
    struct rig r = {.s = simt_new()};
    static float x[ROWS * WIDTH], y[ROWS * WIDTH];
    for (uint32_t i = 0; i < ROWS * WIDTH; i++)
        x[i] = 4 * number_at(i);
    push(&r, x, sizeof(x));
    uint64_t out = push(&r, NULL, sizeof(y));
    ptx_start(&p, text_buffer, sizeof(text_buffer));
    struct ptx_rows rows = {.rows = ROWS, .width = WIDTH};
    cr_assert_eq(ptx_emit_softmax(&p, &rows, &l, &err), 0, "%s", err.text);
    run_text(&r, &p, &l);
    cr_assert_eq(simt_get(r.s, out, y, sizeof(y), &err), 0, "%s", err.text);
    for (uint32_t row = 0; row < ROWS; row++) {
        double sum = 0;
        for (uint32_t i = 0; i < WIDTH; i++)
            sum += exp((double)x[row * WIDTH + i]);
        for (uint32_t i = 0; i < WIDTH; i++) {
            double want = exp((double)x[row * WIDTH + i]) / sum;
            cr_assert(fabs((double)y[row * WIDTH + i] - want) <= 1e-5 * want, "row %u, %u", row, i);
        }
    }
    simt_free(r.s);
}

Test(ptx_interpreter, attention_by_the_emitted_kernel)
{
    enum { HEADS = 2, POSITIONS = 40, DIM = 64, ALL = HEADS * POSITIONS * DIM };
    struct error err = {0};
    struct ptx p;
    struct ptx_launch l;
    struct rig r = {.s = simt_new()};
    static float q[ALL], k[ALL], v[ALL], y[ALL];
    for (uint32_t i = 0; i < ALL; i++)
        q[i] = number_at(i), k[i] = number_at(i + ALL), v[i] = number_at(i + 2 * ALL);
    push(&r, q, sizeof(q));
    push(&r, k, sizeof(k));
    push(&r, v, sizeof(v));
    uint64_t out = push(&r, NULL, sizeof(y));
    ptx_start(&p, text_buffer, sizeof(text_buffer));
    struct ptx_attention at = {.heads = HEADS, .positions = POSITIONS, .dim = DIM, .scale = 0.125f, .causal = true};
    cr_assert_eq(ptx_emit_attention(&p, &at, &l, &err), 0, "%s", err.text);
    run_text(&r, &p, &l);
    cr_assert_eq(simt_get(r.s, out, y, sizeof(y), &err), 0, "%s", err.text);
    for (uint32_t h = 0; h < HEADS; h++)
        for (uint32_t i = 0; i < POSITIONS; i++) {
            const float *qi = q + (h * POSITIONS + i) * DIM;
            double sum = 0, want[DIM] = {0};
            for (uint32_t j = 0; j <= i; j++) {
                double s = 0;
                for (uint32_t d = 0; d < DIM; d++)
                    s += (double)qi[d] * (double)k[(h * POSITIONS + j) * DIM + d];
                double e = exp(s * 0.125);
                sum += e;
                for (uint32_t d = 0; d < DIM; d++)
                    want[d] += e * (double)v[(h * POSITIONS + j) * DIM + d];
            }
            for (uint32_t d = 0; d < DIM; d++)
                cr_assert(fabs((double)y[(h * POSITIONS + i) * DIM + d] - want[d] / sum) < 1e-5, "%u %u %u", h, i, d);
        }
    simt_free(r.s);
}

// ---- emitted kernels with a fault put in

static int run_mutated(const char *from, const char *to, struct error *err)
{
    struct ptx p;
    struct ptx_launch l;
    struct rig r = {.s = simt_new()};
    static float data[64 * 64];
    for (int i = 0; i < 3; i++)
        push(&r, i < 2 ? data : NULL, sizeof(data));
    struct ptx_gemm g = {.m = 64, .n = 64, .k = 64, .tile = 16};
    ptx_start(&p, text_buffer, sizeof(text_buffer));
    cr_assert_eq(ptx_emit_gemm_tiled(&p, &g, &l, err), 0, "%s", err->text);
    char *at = memmem(p.data, p.size, from, strlen(from));
    cr_assert(at, "no '%s' in the text", from);
    memcpy(at, to, strlen(to));
    int rc = simt_load(r.s, (struct str){p.data, p.size}, err);
    if (!rc)
        rc = simt_launch(r.s, simt_find(r.s, "gemm_tiled_0"), (struct simt_dim){l.grid[0], l.grid[1], l.grid[2]},
                         (struct simt_dim){l.block[0], l.block[1], l.block[2]}, 0, r.params, sizeof(uint64_t) * 3, err);
    simt_free(r.s);
    return rc;
}

Test(ptx_interpreter, faults_put_into_an_emitted_kernel_are_found)
{
    static const char *const cases[][3] = {
        {"bar.sync 0;", "           ", "0x"}, // a barrier dropped: a read of nothing, or a race
        {"bar.sync 0;\n    add", "           \n    add", "race"},
        {"fma.rn.f32", "fma.rx.f32", "unknown modifier"},
        {"mov.f32 %sum, 0f00000000;", "                         ", "%sum, which nothing has written"},
        {"mul.wide.u32 %offset, %index, 4;", "mul.wide.u32 %offset, %index, 3;", "not aligned"},
        {"mul.wide.u32 %offset, %index, 4;", "mul.wide.u32 %offset, %index, 8;", "out of bounds"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct error err = {0};
        cr_expect_eq(run_mutated(cases[i][0], cases[i][1], &err), -1, "case %zu passes", i);
        cr_expect(strstr(err.text, cases[i][2]), "case %zu: %s", i, err.text);
    }
}

Test(ptx_interpreter, layernorm_by_the_emitted_kernel)
{
    enum { ROWS = 2, WIDTH = 520 };
    struct error err = {0};
    struct ptx p;
    struct ptx_launch l;
    struct rig r = {.s = simt_new()};
    static float x[ROWS * WIDTH], weight[WIDTH], bias[WIDTH], y[ROWS * WIDTH];
    for (uint32_t i = 0; i < ROWS * WIDTH; i++)
        x[i] = 3 * number_at(i) + 1;
    for (uint32_t i = 0; i < WIDTH; i++)
        weight[i] = number_at(i + 5000), bias[i] = number_at(i + 9000);
    push(&r, x, sizeof(x));
    push(&r, weight, sizeof(weight));
    push(&r, bias, sizeof(bias));
    uint64_t out = push(&r, NULL, sizeof(y));
    ptx_start(&p, text_buffer, sizeof(text_buffer));
    struct ptx_rows rows = {.rows = ROWS, .width = WIDTH, .eps = 1e-5f};
    cr_assert_eq(ptx_emit_layernorm(&p, &rows, &l, &err), 0, "%s", err.text);
    run_text(&r, &p, &l);
    cr_assert_eq(simt_get(r.s, out, y, sizeof(y), &err), 0, "%s", err.text);
    for (uint32_t row = 0; row < ROWS; row++) {
        const float *in = x + row * WIDTH;
        double mean = 0, var = 0;
        for (uint32_t i = 0; i < WIDTH; i++)
            mean += (double)in[i] / WIDTH;
        for (uint32_t i = 0; i < WIDTH; i++)
            var += ((double)in[i] - mean) * ((double)in[i] - mean) / WIDTH;
        for (uint32_t i = 0; i < WIDTH; i++) {
            double want = ((double)in[i] - mean) / sqrt(var + 1e-5) * (double)weight[i] + (double)bias[i];
            cr_assert(fabs((double)y[row * WIDTH + i] - want) < 1e-5, "row %u, %u", row, i);
        }
    }
    simt_free(r.s);
}
