// The model that card_time.h describes, with its constants.
#include "kernels/card_time.h"

#include <math.h>

// Limits of a multiprocessor of compute capability 9.0. Registers are handed out to warps, in each of 4 parts that have
// a scheduler each.
enum {
    N_SM = 132,
    SCHEDULERS = 4,
    WARP = 32,
    CTAS = 32,
    WARPS = 64,
    REGISTERS_A_SCHEDULER = 16384,
    REGISTER_UNIT = 256, // a warp gets a multiple of so many
    SHARED = 228 << 10,
    SHARED_RESERVED = 1 << 10, // of each CTA
    SHARED_UNIT = 128,
};

static const double copied = 4.14e12;    // bytes a second that an H200 copies
static const double REACHED = 0.81;      // of these, by a kernel that reads and computes by turns
static const double pins = 4.8e12;       // bytes a second of its memory by datasheet
static const double latency = 0.8e-6;    // seconds from a request to its data under load
static const double clock_hz = 1.755e9;  // of an H200 under load
static const double start = 4.3e-6;      // 1.3 us of a launch in a graph, and 3 us until memory is up to speed
static const double hidden = 1.0e-6;     // of the start, where the launch begins beside the one ahead
static const double barrier = 1.2e-6;    // of the CTAs of all 132 multiprocessors: as others report, not measured here
static const double waiting_warps = 4.0; // fitted

int card_resident(const struct card_use *use)
{
    int warps = (use->threads + WARP - 1) / WARP;
    int registers = MAX((int)align_up((size_t)use->registers * WARP, REGISTER_UNIT), REGISTER_UNIT);
    int shared = (int)align_up((size_t)use->shared + SHARED_RESERVED, SHARED_UNIT);
    int by_registers = REGISTERS_A_SCHEDULER / registers * SCHEDULERS / warps;
    return MIN(MIN(CTAS, WARPS / warps), MIN(by_registers, SHARED / shared));
}

// By how much the last round of CTAs, which is not full, prolongs the work of `places` places.
static double rounds(double ctas, double places)
{
    return ceil(ctas / places) * places / ctas;
}

// Bytes a second that the launch reads.
static double bandwidth(const struct card_time *t)
{
    double reached = REACHED * copied;
    double needed = pins * latency / N_SM; // 29 KB a multiprocessor
    double all = pins * fmin(1, t->in_flight / needed) * t->multiprocessors / N_SM;
    return t->in_flight > 0 ? fmin(reached, all) : reached;
}

// Instructions a second that a multiprocessor's warps issue, each counted for its 32 threads.
static double issued(double warps)
{
    double waiting = warps / SCHEDULERS;
    return WARP * SCHEDULERS * clock_hz * waiting / (waiting + waiting_warps);
}

// The CTAs that run at the same time on the whole card.
static double places_of(const struct card_work *w, int resident)
{
    double places = (double)resident * N_SM;
    return w->most_ctas > 0 ? fmin(places, w->most_ctas) : places;
}

// Seconds in which the multiprocessor with the most pieces reads them, with a ring.
static double busiest(const struct card_work *w, const struct card_time *t, double places)
{
    double pieces = ceil(w->ctas / places) * places / t->multiprocessors;
    return fmin(pieces, w->ctas) * w->bytes / w->ctas * latency / t->in_flight;
}

// How much earlier a launch ends that begins beside the one ahead, and reads its first bytes during its start.
static double gained(const struct card_work *w, const struct card_time *t, double running)
{
    double filled = fmin(w->ring * running, w->bytes) / bandwidth(t);
    return hidden + fmin(fmin(filled, start - hidden), t->memory);
}

// How much earlier a step ends because its ring fills during the barrier.
static double filled(const struct card_work *w, const struct card_time *t, double running)
{
    double ahead = fmin(w->ring * running, w->bytes) / bandwidth(t);
    return fmin(fmin(ahead, barrier), t->memory);
}

static struct card_time times_of(const struct card_work *w, double places, int resident)
{
    double running = fmin(w->ctas, places), warps = (w->use.threads + WARP - 1) / WARP;
    struct card_time t = {.multiprocessors = fmin(running, N_SM)};
    double each = running / t.multiprocessors; // CTAs of a multiprocessor
    t.in_flight = w->ring > 0 ? w->ring * each : fmin(w->ahead, 4.0 * w->use.registers) * w->use.threads * each;
    t.memory = w->bytes / bandwidth(&t);
    if (w->ring > 0)
        t.memory = fmax(t.memory, busiest(w, &t, places));
    else if (w->ctas > places)
        t.memory *= rounds(w->ctas, places);
    double spread = rounds(w->ctas, w->ctas > places ? places : t.multiprocessors);
    t.issue = w->instructions / (issued(warps * each) * t.multiprocessors) * spread;
    double by_turns = w->turns ? (t.memory + t.issue) / each : 0;
    t.whole = (w->stays ? barrier : start) + fmax(by_turns, fmax(t.memory, t.issue));
    if (w->stays)
        t.whole -= fmin(filled(w, &t, running), t.whole - barrier - t.issue);
    else if (w->early && resident >= 2 * each)
        t.whole -= gained(w, &t, running);
    return t;
}

int card_predict(const struct card_work *w, struct card_time *out, struct error *err)
{
    int resident = card_resident(&w->use);
    if (!resident)
        return fail(err, E_GPU, "a kernel of %d threads, %d registers and %d bytes of shared memory does not fit",
                    w->use.threads, w->use.registers, w->use.shared);
    *out = times_of(w, places_of(w, resident), resident);
    return 0;
}
