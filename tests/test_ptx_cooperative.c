// Tests cooperative launches on the interpreter: CTAs that wait for each other at a barrier of the grid run in turns, what
// the barrier orders is no race, and each way to get it wrong is found.
#include "tests/ptx/interpreter.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { CTAS = 3, THREADS = 64, ROUNDS = 4, VALUES = CTAS * THREADS, BUFFER = 1024 };

// Each thread writes its value, waits for all CTAs, and adds the value of its place in the next CTA to its own for the
// next round, in the other one of two buffers of 1024 bytes; the sums go behind them. The counter of arrivals only grows: a launch reads it before it arrives, and
// rounds down to a multiple of its CTAs, because no other CTA can have passed the first barrier.
static const char kernel[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
                             ".visible .entry turns(.param .u64 arrivals, .param .u64 values)\n{\n"
                             ".reg .pred %p, %first;\n.reg .u32 %t, %cta, %n, %i, %other, %round, %v, %w;\n"
                             ".reg .u64 %count, %target, %all, %at, %from, %buffer, %c;\n.reg .s64 %step;\n"
                             "ld.param.u64 %count, [arrivals];\n"
                             "ld.param.u64 %buffer, [values];\n"
                             "mov.u32 %t, %tid.x;\n"
                             "mov.u32 %cta, %ctaid.x;\n"
                             "mov.u32 %n, %nctaid.x;\n"
                             "cvt.u64.u32 %all, %n;\n"
                             "setp.eq.u32 %first, %t, 0;\n"
                             "ld.relaxed.gpu.global.u64 %target, [%count];\n"
                             "rem.u64 %c, %target, %all;\n"
                             "sub.u64 %target, %target, %c;\n"
                             "mad.lo.u32 %i, %cta, 64, %t;\n"
                             "add.u32 %other, %cta, 1;\n"
                             "rem.u32 %other, %other, %n;\n"
                             "mad.lo.u32 %other, %other, 64, %t;\n"
                             "xor.b32 %other, %other, 63;\n" // a value of another warp
                             "mov.u32 %v, %i;\n"
                             "mov.u32 %round, 0;\n"
                             "mov.s64 %step, 1024;\n"
                             "ROUND:\n"
                             "mad.wide.u32 %at, %i, 4, %buffer;\n"
                             "mad.wide.u32 %from, %other, 4, %buffer;\n"
                             "st.global.u32 [%at], %v;\n"
                             "bar.sync 0; // before the arrival\n"
                             "@%first red.release.gpu.global.add.u64 [%count], 1;\n"
                             "add.u64 %target, %target, %all;\n"
                             "@!%first bra CAME;\n"
                             "WAIT:\n"
                             "ld.acquire.gpu.global.u64 %c, [%count];\n"
                             "setp.ge.u64 %p, %c, %target;\n"
                             "@%p bra CAME;\n"
                             "nanosleep.u32 20;\n"
                             "bra WAIT;\n"
                             "CAME:\n"
                             "bar.sync 0; // behind the wait\n"
                             "ld.global.u32 %w, [%from];\n"
                             "add.u32 %v, %v, %w;\n"
                             "add.u64 %buffer, %buffer, %step;\n"
                             "neg.s64 %step, %step;\n"
                             "add.u32 %round, %round, 1;\n"
                             "setp.lt.u32 %p, %round, 4;\n"
                             "@%p bra ROUND;\n"
                             "mad.wide.u32 %at, %i, 4, %buffer;\n"
                             "add.u64 %at, %at, 2048;\n"
                             "st.global.u32 [%at], %v;\n"
                             "ret;\n}\n";

struct rig {
    struct simt *s;
    uint64_t params[2];
    char text[sizeof kernel + 256];
};

static void rig_open(struct rig *r, const char *from, const char *to)
{
    struct error err = {0};
    r->s = simt_new();
    const char *at = from ? strstr(kernel, from) : kernel;
    cr_assert(at, "no '%s' in the kernel", from);
    size_t head = (size_t)(at - kernel), skip = from ? strlen(from) : 0;
    snprintf(r->text, sizeof r->text, "%.*s%s%s", (int)head, kernel, from ? to : "", at + skip);
    cr_assert_eq(simt_load(r->s, str_from(r->text), &err), 0, "%s", err.text);
    static const char zeros[4 * BUFFER];
    r->params[0] = simt_alloc(r->s, sizeof(uint64_t));
    r->params[1] = simt_alloc(r->s, sizeof zeros);
    cr_assert_eq(simt_put(r->s, r->params[0], zeros, sizeof(uint64_t), &err), 0);
    cr_assert_eq(simt_put(r->s, r->params[1], zeros, sizeof zeros, &err), 0);
}

static int launch(struct rig *r, bool cooperative, uint32_t ctas, struct error *err)
{
    if (cooperative)
        simt_set_cooperative(r->s);
    return simt_launch(r->s, simt_find(r->s, "turns"), (struct simt_dim){ctas, 1, 1}, (struct simt_dim){THREADS, 1, 1},
                       0, r->params, sizeof r->params, err);
}

// The values after all rounds.
static void compute(uint32_t v[VALUES])
{
    uint32_t before[VALUES];
    for (uint32_t i = 0; i < VALUES; i++)
        v[i] = i;
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(before, v, sizeof before);
        for (uint32_t i = 0; i < VALUES; i++)
            v[i] += before[((i / THREADS + 1) % CTAS * THREADS + i % THREADS) ^ 63];
    }
}

// The second launch begins with the arrivals of the first.
Test(ptx_cooperative, a_barrier_of_the_grid_orders_what_ctas_do)
{
    struct rig r;
    struct error err = {0};
    uint32_t want[VALUES], got[VALUES];
    uint64_t arrivals;
    rig_open(&r, NULL, NULL);
    compute(want);
    for (uint64_t i = 1; i <= 2; i++) {
        cr_assert_eq(launch(&r, true, CTAS, &err), 0, "%s", err.text);
        cr_assert_eq(simt_get(r.s, r.params[1] + 2 * BUFFER, got, sizeof got, &err), 0, "%s", err.text);
        cr_expect_eq(memcmp(want, got, sizeof want), 0, "launch %d", (int)i);
        cr_assert_eq(simt_get(r.s, r.params[0], &arrivals, sizeof arrivals, &err), 0, "%s", err.text);
        cr_expect_eq(arrivals, i * CTAS * ROUNDS);
    }
    simt_free(r.s);
}

Test(ptx_cooperative, what_is_wrong_with_a_barrier_is_found)
{
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"@!%first bra CAME;", "bra CAME;", "race"}, // nobody waits
        {"red.release", "red.relaxed", "race"},
        {"ld.acquire", "ld.relaxed", "race"},
        {"bar.sync 0; // before the arrival", "", "race"},
        {"bar.sync 0; // behind the wait", "", "race"},
        {"ld.global.u32 %w", "ld.global.nc.u32 %w", "as a constant"},
        {"add.u64 %target, %target, %all;", "", "race"}, // it waits for one arrival too few, and so on
        {"@%first red.release.gpu.global.add.u64 [%count], 1;", "", "deadlock"},
        {"add.u64 %target, %target, %all;", "add.u64 %target, %target, 4;", "deadlock"},
        {"setp.lt.u32 %p, %round, 4;", "setp.lt.u32 %p, %round, %cta;", "deadlock"}, // CTAs that leave too early
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct rig r;
        struct error err = {0};
        rig_open(&r, cases[i].from, cases[i].to);
        cr_expect_eq(launch(&r, true, CTAS, &err), -1, "case %zu passes", i);
        cr_expect(strstr(err.text, cases[i].says), "case %zu: %s", i, err.text);
        simt_free(r.s);
    }
}

Test(ptx_cooperative, ctas_of_another_launch_must_not_wait_for_each_other)
{
    struct rig r;
    struct error err = {0};
    rig_open(&r, NULL, NULL);
    cr_expect_eq(launch(&r, false, CTAS, &err), -1);
    cr_expect(strstr(err.text, "not cooperative"), "%s", err.text);
    cr_expect_eq(launch(&r, true, 1000, &err), -1);
    cr_expect(strstr(err.text, "a cooperative launch of 1000"), "%s", err.text);
    simt_free(r.s);
}
