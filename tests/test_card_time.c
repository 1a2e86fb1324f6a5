// Tests what fits on a multiprocessor against what an H200 reported, the predicted times against their limits, and how
// loads are counted in a text.
#include <criterion/criterion.h>

#include "kernels/card_time.h"
#include "kernels/ptx/loads_ahead.h"

static int resident(int threads, int registers, int shared)
{
    return card_resident(&(struct card_use){.threads = threads, .registers = registers, .shared = shared});
}

// The profiler of an H200 named these limits by registers for kernels of quern.
Test(card_time, registers_limit_blocks_as_a_card_reported)
{
    cr_expect_eq(resident(512, 96, 0), 1);
    cr_expect_eq(resident(448, 90, 0), 1);
    cr_expect_eq(resident(128, 149, 0), 3);
    cr_expect_eq(resident(256, 126, 0), 2);
    cr_expect_eq(resident(1024, 65, 0), 0);
}

Test(card_time, threads_blocks_and_shared_memory_limit_too)
{
    cr_expect_eq(resident(1024, 16, 0), 2);
    cr_expect_eq(resident(33, 16, 0), 32);
    cr_expect_eq(resident(32, 16, 0), 32);
    cr_expect_eq(resident(256, 16, 56 << 10), 4);
    cr_expect_eq(resident(256, 16, 227 << 10), 1);
    cr_expect_eq(resident(256, 16, 228 << 10), 0);
}

static struct card_time predict(struct card_work w)
{
    struct card_time t;
    struct error err;
    cr_assert_eq(card_predict(&w, &t, &err), 0, "%s", err.text);
    return t;
}

// A launch that fills the card and reads much: no more than a card copies, no less than half of it.
static const struct card_work reading = {
    .use = {.threads = 512, .registers = 64}, .ctas = 264, .bytes = 1e9, .ahead = 64, .instructions = 1e9};

Test(card_time, much_data_goes_at_the_bandwidth)
{
    struct card_time t = predict(reading);
    cr_expect(t.memory > 1e9 / 4.14e12 && t.memory < 2e9 / 4.14e12, "%g", t.memory);
    cr_expect(t.whole > t.memory && t.whole < t.memory + 5e-6, "%g", t.whole);
    cr_expect_eq(t.multiprocessors, 132);
    cr_expect_eq(t.in_flight, 2 * 512 * 64);
}

// A step of a kernel that stays has a barrier of 1.2 us instead of a start of 4.3 us; a ring of its bytes, which are read in
// less time than that, hides the rest.
Test(card_time, a_kernel_that_stays_has_no_start)
{
    struct card_work stays = reading, small = reading;
    stays.stays = true;
    double less = predict(reading).whole - predict(stays).whole;
    cr_expect(less > 3.0e-6 && less < 3.2e-6, "%g", less);
    small.bytes = 1e6;
    small.ctas = small.most_ctas = 132;
    small.ring = 1 << 14;
    small.instructions = 0;
    small.stays = true;
    cr_expect(predict(small).whole > 1.1e-6 && predict(small).whole < 1.3e-6, "%g", predict(small).whole);
}

// 2 CTAs of 512 threads with 4 bytes each are 4 KiB of the 29 KB that the bandwidth takes.
Test(card_time, few_bytes_in_flight_are_slow)
{
    struct card_work few = reading, unknown = reading;
    few.ahead = 4;
    unknown.ahead = 0;
    double ratio = predict(few).memory / predict(reading).memory;
    cr_expect(ratio > 4 && ratio < 8, "%g", ratio);
    cr_expect_eq(predict(unknown).memory, predict(reading).memory);
    cr_expect_eq(predict(unknown).in_flight, 0);
}

Test(card_time, a_last_round_that_is_not_full_prolongs_the_work)
{
    struct card_work more = reading, limited = reading;
    more.ctas = 265;
    limited.most_ctas = 132;
    cr_expect_float_eq(predict(more).memory / predict(reading).memory, 2 * 264 / 265.0, 1e-9);
    cr_expect_eq(predict(limited).in_flight, 512 * 64);
    cr_expect_eq(predict(limited).memory, predict(reading).memory);
}

// Half of the multiprocessors, with half of the warps on each, issue less than half of the instructions.
Test(card_time, instructions_take_multiprocessors_and_warps)
{
    struct card_work all = reading, half = reading;
    all.instructions = half.instructions = 1e12;
    half.ctas = 66;
    double ratio = predict(half).issue / predict(all).issue;
    cr_expect(ratio > 2 && ratio < 4, "%g", ratio);
    cr_expect_eq(predict(half).multiprocessors, 66);
    cr_expect(predict(all).issue > 1e12 / 32 / (132 * 4 * 1.755e9));
}

Test(card_time, turns_add_up_where_a_block_is_alone)
{
    struct card_work alone = reading, two = reading;
    alone.turns = two.turns = true;
    alone.ctas = 132;
    alone.instructions = two.instructions = 1e11;
    struct card_time a = predict(alone), t = predict(two);
    cr_expect(a.whole > a.memory + a.issue);
    cr_expect(t.whole < t.memory + t.issue);
}

// A ring keeps its bytes in flight whatever the threads do. A multiprocessor with two pieces of work where others have one
// catches up, as long as its own bytes in flight suffice for that.
Test(card_time, rings_keep_their_bytes_in_flight)
{
    struct card_work ring = reading, more, small;
    ring.ring = 64 << 10;
    ring.ctas = ring.most_ctas = 132;
    more = small = ring;
    more.ctas = 133;
    small.ctas = 133;
    small.ring = 16 << 10;
    cr_expect_eq(predict(ring).in_flight, 64 << 10);
    cr_expect(predict(more).memory < 1.01 * predict(ring).memory);
    cr_expect(predict(small).memory > 1.5 * predict(ring).memory);
}

// Beside the launch ahead a kernel starts earlier, and with a ring it has read its first bytes by then. Two that fill a
// multiprocessor are never beside each other.
Test(card_time, launches_that_begin_early_end_early)
{
    struct card_work late = reading, early, full, ring;
    late.ctas = late.most_ctas = 132;
    early = ring = late;
    early.early = ring.early = true;
    ring.ring = 16 << 10;
    full = early;
    full.use.registers = 96;
    cr_expect(predict(early).whole < predict(late).whole - 0.5e-6);
    cr_expect(predict(ring).whole - predict(ring).memory < predict(early).whole - predict(early).memory);
    full.early = false;
    double apart = predict(full).whole;
    full.early = true;
    cr_expect_eq(predict(full).whole, apart);
    ring.ring = 1 << 30; // no more than all of its bytes
    cr_expect(predict(ring).whole > 0);
}

Test(card_time, what_does_not_fit_is_refused)
{
    struct card_work w = reading;
    struct card_time t;
    struct error err;
    w.use.registers = 255;
    cr_expect_eq(card_predict(&w, &t, &err), -1);
    cr_expect_eq(err.code, E_GPU);
}

#define LOOP "STEP: // 64 products a turn\n"
#define LOADS                                                                                                          \
    "    ld.global.nc.v4.u32 {%w0, %w1, %w2, %w3}, [%chunk+0];\n"                                                      \
    "    mov.u32 %b0, %w0;\n"                                                                                          \
    "    ld.global.nc.b16 %h, [%at];\n"                                                                                \
    "    @%in ld.global.nc.v2.f32 {%f0, %f1}, [%at];\n"
#define PRODUCTS "    dp4a.s32.s32 %dot, %b0, %x0, %dot;\n"
#define BACK "    @%more bra STEP;\n"

static struct ptx_loads loads(const char *text)
{
    return ptx_loads_ahead((struct str){text, strlen(text)});
}

Test(loads_ahead, loads_of_the_first_stretch_count)
{
    struct ptx_loads l =
        loads("    ld.global.u32 %n, [%p];\n" LOOP LOADS PRODUCTS BACK "    ld.global.u64 %p, [%p];\n");
    cr_expect_eq(l.ahead, 16 + 2 + 8);
    cr_expect_not(l.turns);
    cr_expect_eq(loads(LOOP LOADS "    bar.warp.sync 0xffffffff;\n" PRODUCTS BACK).ahead, 26);
    cr_expect_eq(loads("    ld.global.u32 %n, [%p];\n").ahead, 0);
    cr_expect_eq(loads("").ahead, 0);
}

Test(loads_ahead, barriers_make_turns)
{
    struct ptx_loads l = loads(LOOP LOADS "    bar.sync 0;\n" PRODUCTS "    bar.sync 0;\n" BACK);
    cr_expect_eq(l.ahead, 26);
    cr_expect(l.turns);
}

Test(loads_ahead, other_loads_and_copies_leave_it_unknown)
{
    struct ptx_loads later = loads(LOOP LOADS "PART: // 8 turns\n" LOADS BACK);
    struct ptx_loads copied = loads(LOOP LOADS "    cp.async.cg.shared.global [%s], [%p], 16;\n    bar.sync 0;\n" BACK);
    cr_expect_eq(later.ahead, 0);
    cr_expect_eq(copied.ahead, 0);
    cr_expect_not(copied.turns);
}

Test(loads_ahead, rings_and_early_launches_are_told)
{
    struct ptx_loads l = loads("    // a ring of 73728 bytes\n    griddepcontrol.launch_dependents;\n" LOOP LOADS BACK);
    cr_expect_eq(l.ring, 73728);
    cr_expect_eq(l.ahead, 0);
    cr_expect(l.early);
    cr_expect_not(loads(LOOP LOADS BACK).early);
    cr_expect_eq(loads(LOOP LOADS BACK).ring, 0);
}

Test(loads_ahead, the_loop_that_requests_least_counts)
{
    cr_expect_eq(loads(LOOP LOADS BACK LOOP "    ld.global.nc.u8 %q, [%p];\n" BACK).ahead, 1);
}
