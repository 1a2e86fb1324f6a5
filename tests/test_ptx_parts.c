// Tests the persistent form of a step (kernels/ptx/emit_whole.h) with kernels that are written here: CTAs of a launch that
// are groups of threads, that loop, or that take pieces of work in turn; kernels that differ in a number; launches one after
// another; and each mistake in the barrier and between the CTAs of a group, which the interpreter finds.
#include "kernels/ptx/emit_early.h"
#include "kernels/ptx/emit_whole.h"
#include "tests/ptx/interpreter.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { CTAS = 3, VALUES = 1024, TURN_THREADS = 64, SUM_THREADS = 128, STEPS = 5 };

// to[at + i] = from[at + (i + 33) % n] within 64 values turned round by shared memory; at is a number of the text, which
// differs between two kernels.
static const char turn[] = ".version 7.0\n"
                           ".target sm_80\n"
                           ".address_size 64\n"
                           "\n"
                           "// node 0: values change places\n"
                           ".visible .entry turn_0(\n"
                           "    .param .u64 from,\n"
                           "    .param .u64 to,\n"
                           "    .param .u32 n)\n"
                           ".maxntid 64, 1, 1\n"
                           "{\n"
                           "    .reg .pred %%in;\n"
                           "    .reg .u32 %%t, %%cta, %%i, %%n, %%v, %%at, %%many;\n"
                           "    .reg .u64 %%from, %%to, %%there;\n"
                           "    .shared .align 16 .b8 places[256];\n"
                           "    mov.u32 %%t, %%tid.x;\n"
                           "    mov.u32 %%cta, %%ctaid.y;\n"
                           "    mov.u32 %%many, %%nctaid.x;\n"
                           "    mad.lo.u32 %%cta, %%cta, %%many, 0;\n"
                           "    mov.u32 %%many, %%ctaid.x;\n"
                           "    add.u32 %%cta, %%cta, %%many;\n"
                           "    ld.param.u32 %%n, [n];\n"
                           "    ld.param.u64 %%from, [from];\n"
                           "    cvta.to.global.u64 %%from, %%from;\n"
                           "    add.u64 %%from, %%from, %u;\n"
                           "    mad.lo.u32 %%i, %%cta, 64, %%t;\n"
                           "    setp.ge.u32 %%in, %%i, %%n;\n"
                           "    @%%in ret;\n"
                           "    add.u32 %%v, %%i, 33;\n"
                           "    rem.u32 %%v, %%v, %%n;\n"
                           "    mad.wide.u32 %%there, %%v, 4, %%from;\n"
                           "    ld.global.u32 %%v, [%%there];\n"
                           "    mov.u32 %%at, places;\n"
                           "    mad.lo.u32 %%at, %%t, 4, %%at;\n"
                           "    st.shared.u32 [%%at], %%v;\n"
                           "    bar.sync 0;\n"
                           "    xor.b32 %%at, %%at, 252;\n"
                           "    ld.shared.u32 %%v, [%%at];\n"
                           "    ld.param.u64 %%to, [to];\n"
                           "    cvta.to.global.u64 %%to, %%to;\n"
                           "    add.u64 %%to, %%to, %u;\n"
                           "    mad.wide.u32 %%there, %%i, 4, %%to;\n"
                           "    st.global.u32 [%%there], %%v;\n"
                           "    ret;\n"
                           "}\n";

// to[i] = 3 from[n - 1 - i] + 1, in pieces of 128; what it prefetches is a constant.
static const char sum[] = ".version 6.3\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          "\n"
                          "// node 0: values are counted\n"
                          ".visible .entry sum_0(\n"
                          "    .param .u64 from,\n"
                          "    .param .u64 to)\n"
                          ".maxntid 128, 1, 1\n"
                          "{\n"
                          "    .reg .pred %in;\n"
                          "    .reg .u32 %job, %jobs, %t, %i, %v;\n"
                          "    .reg .u64 %from, %to, %there;\n"
                          "    ld.param.u64 %from, [from];\n"
                          "    cvta.to.global.u64 %from, %from;\n"
                          "    prefetch.global.L2 [%from];\n" PTX_READS_FROM_HERE "\n"
                          "    mov.u32 %t, %tid.x;\n"
                          "    mov.u32 %job, %ctaid.x;\n"
                          "    mov.u32 %jobs, %nctaid.x;\n"
                          "    ld.param.u64 %to, [to];\n"
                          "    cvta.to.global.u64 %to, %to;\n"
                          "PIECE:\n"
                          "    mad.lo.u32 %i, %job, 128, %t;\n"
                          "    sub.u32 %v, 1023, %i;\n"
                          "    mad.wide.u32 %there, %v, 4, %from;\n"
                          "    ld.global.u32 %v, [%there];\n"
                          "    mad.lo.u32 %v, %v, 3, 1;\n"
                          "    mad.wide.u32 %there, %i, 4, %to;\n"
                          "    st.global.u32 [%there], %v;\n"
                          "    add.u32 %job, %job, %jobs;\n"
                          "    setp.lt.u32 %in, %job, 8;\n"
                          "    @%in bra PIECE;\n"
                          "    ret;\n"
                          "}\n";

struct rig {
    struct simt *s;
    struct ptx_whole whole;
    char turns[2][sizeof turn + 64], text[1 << 16];
    struct ptx_launch launch;
    uint64_t arrivals, table, values[2];
};

// Both texts of `turn` are steps of one part.
static void describe(struct rig *r)
{
    struct ptx_whole *w = &r->whole;
    snprintf(r->turns[0], sizeof r->turns[0], turn, 0, 0);
    snprintf(r->turns[1], sizeof r->turns[1], turn, 2048, 2048);
    *w = (struct ptx_whole){.most_shared = 48 << 10, .n_parts = 2};
    w->parts[0] = (struct ptx_whole_part){.text = str_from(r->turns[0]), .threads = TURN_THREADS};
    w->parts[1] = (struct ptx_whole_part){.text = STR_LIT(sum), .threads = SUM_THREADS, .loops = true};
    cr_assert(ptx_whole_joins(&w->parts[0], str_from(r->turns[1])));
    cr_assert_eq(w->parts[0].n_numbers, 2);
    cr_assert(!ptx_whole_joins(&w->parts[0], STR_LIT(sum)));
    cr_assert(!ptx_whole_joins(&w->parts[1], str_from(r->turns[0])));
}

static void put_step(const struct rig *r, uint8_t *table, uint32_t i, uint32_t part, uint32_t x, uint32_t y, int text)
{
    struct ptx_whole_step step = {
        .part = part, .last = i + 1 == STEPS, .grid = {x, y, 1}, .ctas = x * y, .next = (i + 1) * PTX_WHOLE_STRIDE};
    uint64_t more[3 + PTX_WHOLE_NUMBERS] = {r->values[i % 2], r->values[(i + 1) % 2], VALUES / 2};
    if (part == 0)
        ptx_whole_numbers(&r->whole.parts[0], str_from(r->turns[text]), more + 3);
    memcpy(table + i * PTX_WHOLE_STRIDE, &step, sizeof step);
    memcpy(table + i * PTX_WHOLE_STRIDE + PTX_WHOLE_HEAD, more, sizeof more);
}

// Step 1 turns the first half of the values, and step 3 the second, by 8 CTAs of 64 threads each, which are more than there
// are groups.
static void put_table(struct rig *r)
{
    static uint8_t table[(STEPS + 1) * PTX_WHOLE_STRIDE];
    struct error err;
    memset(table, 0, sizeof table);
    put_step(r, table, 0, 1, CTAS, 1, 0);
    put_step(r, table, 1, 0, 8, 1, 0);
    put_step(r, table, 2, 1, 2, 1, 0); // fewer CTAs than there are
    put_step(r, table, 3, 0, 2, 4, 1);
    put_step(r, table, 4, 1, CTAS, 1, 0);
    cr_assert_eq(simt_put(r->s, r->table, table, sizeof table, &err), 0);
}

static void rig_open(struct rig *r, const char *from, const char *to)
{
    static uint32_t values[VALUES];
    const uint64_t zero = 0;
    struct ptx p;
    struct error err = {0};
    r->s = simt_new();
    describe(r);
    ptx_start(&p, r->text, sizeof r->text / 2);
    cr_assert_eq(ptx_emit_whole(&p, &r->whole, &r->launch, &err), 0, "%s", err.text);
    char *at = from ? strstr(r->text, from) : NULL;
    cr_assert(!from || at, "no '%s' in the text", from ? from : "");
    if (at) {
        memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
        memcpy(at, to, strlen(to));
    }
    cr_assert_eq(simt_load(r->s, str_from(r->text), &err), 0, "%s", err.text);
    for (uint32_t i = 0; i < VALUES; i++)
        values[i] = i;
    r->arrivals = simt_alloc(r->s, sizeof zero);
    r->table = simt_alloc(r->s, (STEPS + 1) * PTX_WHOLE_STRIDE);
    cr_assert_eq(simt_put(r->s, r->arrivals, &zero, sizeof zero, &err), 0);
    for (int i = 0; i < 2; i++) {
        r->values[i] = simt_alloc(r->s, sizeof values);
        cr_assert_eq(simt_put(r->s, r->values[i], values, sizeof values, &err), 0);
    }
    put_table(r);
}

static int launch(struct rig *r, struct error *err)
{
    const uint64_t params[] = {r->table, r->arrivals};
    simt_set_cooperative(r->s);
    return simt_launch(r->s, simt_find(r->s, "whole_0"), (struct simt_dim){CTAS, 1, 1},
                       (struct simt_dim){r->launch.block[0], 1, 1}, r->launch.shared, params, sizeof params, err);
}

// What the steps do, on the host.
static void compute(uint32_t v[2][VALUES])
{
    for (uint32_t s = 0; s < STEPS; s++) {
        const uint32_t *from = v[s % 2];
        uint32_t *to = v[(s + 1) % 2], n = VALUES / 2, at = s == 3 ? n : 0;
        for (uint32_t i = 0; i < VALUES && s % 2 == 0; i++)
            to[i] = 3 * from[VALUES - 1 - i] + 1;
        for (uint32_t i = 0; i < n && s % 2; i++)
            to[at + i] = from[at + ((i ^ 63) + 33) % n];
    }
}

Test(ptx_parts, a_whole_step_does_what_its_launches_do)
{
    static struct rig r;
    static uint32_t want[2][VALUES], got[VALUES];
    struct error err = {0};
    rig_open(&r, NULL, NULL);
    cr_expect(strstr(r.text, "shr.u32 %whole_group"), "no groups");
    for (uint32_t i = 0; i < 2 * VALUES; i++)
        want[i / VALUES][i % VALUES] = i % VALUES;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(launch(&r, &err), 0, "%s", err.text);
        compute(want);
        for (int b = 0; b < 2; b++) {
            cr_assert_eq(simt_get(r.s, r.values[b], got, sizeof got, &err), 0, "%s", err.text);
            cr_expect_eq(memcmp(got, want[b], sizeof got), 0, "launch %d, buffer %d", i, b);
        }
    }
    simt_free(r.s);
}

#ifndef ON_A_CARD // which would hang
Test(ptx_parts, mistakes_are_found)
{
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"red.release", "red.relaxed", "race"},
        {"ld.acquire", "ld.relaxed", "race"},
        {"@!%whole_first bra CAME_0;", "bra CAME_0;", "deadlock"},
        {"    bar.sync 14;\n", "", "race"},                                              // behind the wait
        {"    bar.sync 15;\n    setp.ne", "    setp.ne", "race"},                        // ahead of the arrival
        {"@%whole_first add.u64 %whole_target, %whole_target, %whole_all;", "", "race"}, // it waits for too few
        {"    bar.sync %whole_at, 64;\n", "", "nothing has written"},            // between the two warps of a group
        {"mad.lo.u32 %whole_base, %whole_group, 256, %whole_base;", "", "race"}, // and memory
        {"@%whole_first red.release.gpu.global.add.u64 [%whole_count], 1;", "", "deadlock"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        static struct rig r;
        struct error err = {0};
        rig_open(&r, cases[i].from, cases[i].to);
        cr_expect_eq(launch(&r, &err), -1, "case %zu passes", i);
        cr_expect(strstr(err.text, cases[i].says), "case %zu: %s", i, err.text);
        simt_free(r.s);
    }
}
#endif

static int emit(const char *text, uint32_t most_shared, struct error *err)
{
    static char out[1 << 15];
    struct ptx p;
    struct ptx_launch l;
    struct ptx_whole w = {.most_shared = most_shared, .n_parts = text != NULL};
    if (text)
        w.parts[0] = (struct ptx_whole_part){.text = str_from(text), .threads = TURN_THREADS};
    ptx_start(&p, out, sizeof out);
    return ptx_emit_whole(&p, &w, &l, err);
}

Test(ptx_parts, what_cannot_be_a_part_is_refused)
{
    struct error err = {0};
    char text[sizeof turn + 64];
    cr_expect_eq(emit(NULL, 1 << 15, &err), -1);
    cr_expect_eq(emit("", 1 << 15, &err), -1);
    snprintf(text, sizeof text, turn, 0, 0);
    cr_expect_eq(emit(text, 1 << 15, &err), 0, "%s", err.text);
    cr_expect_eq(emit(text, 128, &err), -1);
    cr_expect(strstr(err.text, "shared memory"), "%s", err.text);
    memcpy(strstr(text, "bar.sync 0"), "bar.red 0 ", 10);
    cr_expect_eq(emit(text, 1 << 15, &err), -1);
    cr_expect(strstr(err.text, "no part of another"), "%s", err.text);
    snprintf(text, sizeof text, turn, 0, 0);
    memcpy(strstr(text, "[n]"), "[m]", 3);
    cr_expect_eq(emit(text, 1 << 15, &err), -1);
    cr_expect(strstr(err.text, "a parameter that a kernel has not"), "%s", err.text);
}
