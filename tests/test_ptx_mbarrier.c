// Tests the mbarriers of the PTX interpreter and the copies that they complete (cp.async.bulk): that right kernels run,
// and that each fault of a wrong one is found.
#include "tests/ptx/interpreter.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define HEAD                                                                                                           \
    ".version 8.0\n.target sm_90\n.address_size 64\n"                                                                  \
    ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"                                                          \
    ".reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %d<8>;\n.shared .align 128 .b8 tile[4096];\n"                      \
    "ld.param.u64 %d0, [in];\nld.param.u64 %d1, [out];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d3, %r0, 4;\n"             \
    "add.u64 %d3, %d1, %d3;\nsetp.eq.u32 %p0, %r0, 0;\nmov.u32 %r1, tile;\nmad.lo.u32 %r2, %r0, 4, %r1;\n"
enum { WORDS = 256 };

// Runs a kernel in one CTA. %d0: the address of `in`; %d3: this thread's word of `out`; %p0: whether the thread is thread
// 0; %r2: this thread's word of `tile`.
static int run_words(const char *body, uint32_t threads, uint32_t *out, struct error *err)
{
    char text[8192];
    struct simt *s = simt_new();
    uint64_t params[2] = {simt_alloc(s, 4 * WORDS), simt_alloc(s, 4 * WORDS)};
    uint32_t in[WORDS], zeros[WORDS] = {0};
    for (uint32_t i = 0; i < WORDS; i++)
        in[i] = i * 3;
    snprintf(text, sizeof(text), "%s%s\nret;\n}\n", HEAD, body);
    int rc = simt_load(s, str_from(text), err) || simt_put(s, params[0], in, sizeof(in), err) ||
             simt_put(s, params[1], zeros, sizeof(zeros), err) ||
             simt_launch(s, simt_find(s, "k"), (struct simt_dim){1, 1, 1}, (struct simt_dim){threads, 1, 1}, 0, params,
                         sizeof(params), err) ||
             simt_get(s, params[1], out, 4 * WORDS, err);
    simt_free(s);
    return rc;
}

// Thread 0 initialises mbarriers for a number of arrivals, and fills the first 256 bytes of `tile` by a copy that the
// mbarrier FULL completes. A thread waits for a phase in a loop with the given label.
#define FULL "[tile+2048]"
#define EMPTY "[tile+2056]"
#define MAKE(mbarrier, arrivals) "@%p0 mbarrier.init.shared::cta.b64 " mbarrier ", " arrivals ";\n"
#define READY "@%p0 fence.proxy.async;\nbar.sync 0;\n"
#define INIT MAKE(FULL, "1") READY
#define EXPECT "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, " FULL ", 256;\n"
#define BULK(to, from, size)                                                                                           \
    "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile+" to "], [%d0+" from "], " size      \
    ", " FULL ";\n"
#define FILL EXPECT BULK("0", "0", "256") "bar.sync 0;\n"
#define REFILL EXPECT BULK("0", "256", "256")
#define WAIT(label, mbarrier, parity)                                                                                  \
    label ": mbarrier.try_wait.parity.shared::cta.b64 %p1, " mbarrier ", " parity ";\n@!%p1 bra " label ";\n"
#define LOAD "ld.shared.u32 %r4, [%r2];\n"
#define STORE "st.global.u32 [%d3], %r4;\n"
#define ARRIVE "mbarrier.arrive.shared::cta.b64 _, " EMPTY ";\n"
#define OTHERS_SKIP(label) "@!%p0 bra " label ";\n"
#define TEST "mbarrier.try_wait.parity.shared::cta.b64 %p1, " EMPTY ", 0;\n"
#define TWO MAKE(EMPTY, "64") INIT

static void check_copy(const char *body, uint32_t plus)
{
    struct error err = {0};
    uint32_t out[WORDS];
    cr_assert_eq(run_words(body, 64, out, &err), 0, "%s", err.text);
    for (uint32_t t = 0; t < 64; t++)
        cr_expect_eq(out[t], t * 3 + plus, "thread %u: %u", t, out[t]);
}

Test(ptx_mbarrier, completes_copies)
{
    check_copy(INIT FILL WAIT("W", FULL, "0") LOAD STORE, 0);
    // thread 0 waits for all
    check_copy(INIT FILL OTHERS_SKIP("S") WAIT("W", FULL, "0") "S: bar.sync 0;\n" LOAD STORE, 0);
    // an arrival and its bytes apart, and a phase by its token
    check_copy(INIT "mov.u64 %d5, 0;\n@%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 " FULL ", 256;\n" BULK(
                   "0", "0", "256") "@%p0 mbarrier.arrive.release.cta.shared::cta.b64 %d5, " FULL ", 1;\n"
                                    "W: mbarrier.test_wait.acquire.cta.shared::cta.b64 %p1, " FULL ", %d5;\n"
                                    "@!%p1 bra W;\n" LOAD STORE,
               0);
}

// The bytes are filled again when a barrier, or an mbarrier at which their readers arrive, orders that after the reads.
Test(ptx_mbarrier, lets_bytes_be_reused)
{
    check_copy(INIT FILL WAIT("W", FULL, "0") LOAD "bar.sync 0;\n" EXPECT BULK("0", "256", "128")
                   BULK("128", "384", "128") WAIT("V", FULL, "1") LOAD STORE,
               192);
    check_copy(TWO FILL WAIT("W", FULL, "0") LOAD ARRIVE OTHERS_SKIP("S") WAIT("E", EMPTY, "0") REFILL
               "S:\n" WAIT("V", FULL, "1") LOAD STORE,
               192);
    check_copy(MAKE(EMPTY, "2") INIT FILL WAIT("W", FULL, "0") LOAD
               "bar.warp.sync -1;\nand.b32 %r5, %r0, 31;\n"
               "setp.eq.u32 %p2, %r5, 0;\n@%p2 " ARRIVE OTHERS_SKIP("S") WAIT("E", EMPTY, "0") REFILL
               "S:\n" WAIT("V", FULL, "1") LOAD STORE,
               192);
}

static void expect_faults(const char *const cases[][2], size_t n, uint32_t threads)
{
    for (size_t i = 0; i < n; i++) {
        struct error err = {0};
        uint32_t out[WORDS];
        cr_expect_neq(run_words(cases[i][0], threads, out, &err), 0, "no fault: %s", cases[i][0]);
        cr_expect(strstr(err.text, cases[i][1]), "'%s' does not say '%s': %s", err.text, cases[i][1], cases[i][0]);
    }
}

Test(ptx_mbarrier, reads_of_what_was_not_waited_for_are_found)
{
    static const char *const of_64[][2] = {
        {INIT FILL LOAD, "not waited for"},
        {INIT FILL WAIT("W", FULL, "1") LOAD, "not waited for"},
        // one test is not enough
        {INIT FILL "mbarrier.try_wait.parity.shared::cta.b64 %p1, " FULL ", 0;\n" LOAD, "not waited for"},
        // only the first warp waits; the second one reads when the copy has come, after two tests of another mbarrier
        {TWO FILL "setp.ge.u32 %p2, %r0, 32;\n@%p2 bra S;\n" WAIT("W", FULL, "0") "S:\n@%p2 " TEST "@%p2 " TEST LOAD,
         "race: a read"},
        {INIT FILL, "256 bytes of copies in flight"},
        {INIT FILL "@%p0 mbarrier.inval.shared::cta.b64 " FULL ";\n", "invalidated with 256 bytes"},
    };
    // only one lane of the warp waits
    static const char *const of_32[][2] = {
        {INIT FILL OTHERS_SKIP("S") WAIT("W", FULL, "0") "S:\n" LOAD, "race: a read"}};
    expect_faults(of_64, COUNT_OF(of_64), 64);
    expect_faults(of_32, COUNT_OF(of_32), 32);
}

Test(ptx_mbarrier, copies_into_what_is_still_read_are_found)
{
    static const char *const cases[][2] = {
        {INIT FILL WAIT("W", FULL, "0") LOAD REFILL WAIT("V", FULL, "1"), "race: a write"},
        {INIT FILL BULK("128", "0", "256"), "not waited for"},
        // an arrival before the read
        {TWO FILL WAIT("W", FULL, "0") ARRIVE LOAD OTHERS_SKIP("S") WAIT("E", EMPTY, "0") REFILL
         "S:\n" WAIT("V", FULL, "1"),
         "race: a write"},
        // one lane arrives for its warp, with no barrier of the warp before
        {MAKE(EMPTY, "2") INIT FILL WAIT("W", FULL, "0") LOAD
         "and.b32 %r5, %r0, 31;\nsetp.eq.u32 %p2, %r5, 0;\n@%p2 " ARRIVE OTHERS_SKIP("S") WAIT("E", EMPTY, "0") REFILL
         "S:\n" WAIT("V", FULL, "1"),
         "race: a write"},
    };
    expect_faults(cases, COUNT_OF(cases), 64);
}

Test(ptx_mbarrier, phases_that_are_never_complete_are_found)
{
    static const char *const cases[][2] = {
        {INIT FILL WAIT("W", FULL, "0") WAIT("V", FULL, "1"), "waits for ever"},
        {INIT EXPECT BULK("0", "0", "240") WAIT("W", FULL, "0"), "expects 256 bytes, and copies bring 240"},
        {INIT FILL BULK("256", "0", "16") WAIT("W", FULL, "0"), "expects 256 bytes, and copies bring 272"},
        {INIT EXPECT WAIT("W", FULL, "0"), "copies bring 0"},
        {INIT EXPECT, "expects 256 bytes"},
        {INIT BULK("0", "0", "256") WAIT("W", FULL, "0"), "lacks 1 arrivals"},
        {INIT EXPECT EXPECT, "1 arrivals at a phase of an mbarrier that lacks 0"},
    };
    expect_faults(cases, COUNT_OF(cases), 64);
}

Test(ptx_mbarrier, wrong_places_and_sizes_are_found)
{
    static const char *const cases[][2] = {
        {INIT EXPECT BULK("0", "0", "250"), "not aligned to 16"},
        {INIT EXPECT BULK("8", "0", "256"), "not aligned to 16"},
        {INIT EXPECT BULK("0", "8", "256"), "not aligned to 16"},
        {INIT EXPECT BULK("3904", "0", "256"), "out of bounds"},
        {INIT EXPECT BULK("0", "896", "256"), "out of bounds"},
        {INIT EXPECT BULK("1920", "0", "256"), "belongs to an mbarrier"},
        {INIT "ld.shared.u32 %r4, " FULL ";\n", "belongs to an mbarrier"},
        {MAKE(FULL, "1") EXPECT BULK("0", "0", "256"), "fence.proxy.async"},
        {MAKE(FULL, "1") "@%p0 fence.proxy.async;\n" WAIT("W", FULL, "0"),
         "initialised by thread 0 with nothing between"},
        {EXPECT, "no mbarrier is initialised"},
        {"mbarrier.init.shared::cta.b64 " FULL ", 1;\n", "belongs to an mbarrier"},
        {MAKE("[tile+2052]", "1"), "not aligned to 8"},
        {MAKE("[tile+4096]", "1"), "out of bounds"},
        {MAKE(FULL, "0"), "0 arrivals"},
    };
    expect_faults(cases, COUNT_OF(cases), 64);
}

Test(ptx_mbarrier, one_lane_is_elected)
{
    struct error err = {0};
    uint32_t out[WORDS];
    int rc = run_words("elect.sync %r1|%p1, -1;\nselp.u32 %r4, 100, 0, %p1;\nadd.u32 %r4, %r4, %r1;\n" STORE
                       "elect.sync _|%p2, -1;",
                       64, out, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    for (uint32_t t = 0; t < 64; t++)
        cr_expect_eq(out[t], t % 32 ? 0 : 100, "thread %u: %u", t, out[t]);
    static const char *const cases[][2] = {{"setp.lt.u32 %p1, %r0, 16;\n@%p1 elect.sync %r1|%p2, -1;", "divergent"}};
    expect_faults(cases, 1, 32);
}

Test(ptx_mbarrier, instructions_need_their_version_and_target)
{
    static const struct {
        const char *version, *target, *line, *words;
    } cases[] = {
        {"6.5", "sm_80", "mbarrier.init.shared.b64 [s], 1;", "needs PTX 7.0"},
        {"7.8", "sm_90", "mbarrier.arrive.expect_tx.shared.b64 _, [s], 16;", "needs PTX 8.0"},
        {"8.0", "sm_89", "fence.proxy.async;", "sm_90"},
        {"7.4", "sm_75", "cp.async.wait_all;", "sm_80"},
        {"8.0", "sm_80", "mbarrier.try_wait.parity.shared.b64 %p, [s], 0;", "sm_90"},
        {"7.4", "sm_90", "griddepcontrol.wait;", "needs PTX 7.8"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[512];
        struct error err = {0};
        struct simt *s = simt_new();
        snprintf(text, sizeof(text),
                 ".version %s\n.target %s\n.address_size 64\n.entry k()\n{\n.reg .pred %%p;\n.shared .b64 s;\n%s\n"
                 "ret;\n}\n",
                 cases[i].version, cases[i].target, cases[i].line);
        cr_expect(simt_load(s, str_from(text), &err) < 0, "%s", cases[i].line);
        cr_expect(strstr(err.text, cases[i].words), "%s: %s", cases[i].line, err.text);
        simt_free(s);
    }
}
