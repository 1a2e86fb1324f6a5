// Predicts from counts alone how long a launch takes on a card, so that kernels can be compared where there is no card.
//
// The card is an H200 (compute capability 9.0). A launch lasts for a start that is the same for all, and then for the
// longer of two times:
//   memory: its bytes at the bandwidth that it reaches. That is REACHED of what the card copies, or less if too few bytes
//           are in flight: by Little's law a multiprocessor gets at most its bytes in flight in each latency.
//   issue:  its instructions at 4 a clock and multiprocessor, times w / (w + 4) with w warps on a scheduler: few warps
//           leave a scheduler idle while they wait.
// A kernel whose copies keep a ring in shared memory in flight has so many bytes in flight whatever its threads do, and a
// multiprocessor with more pieces of work than others catches up as far as its bytes in flight allow. If a kernel begins
// beside the launch ahead, and has room there, what a launch costs is hidden, and the bytes of its ring come during the rest
// of the start.
//
// A step of a kernel that stays on the card from step to step (stays) lasts for a barrier of all its CTAs instead of a start.
// The bytes of its ring come during the barrier.
//
// The two add up where a thread block (CTA) reads and computes by turns, unless others are on the multiprocessor that
// can use the time. CTAs that do not fill the last round of the card add to both. Caches, the banks of shared memory, the
// tensor cores' own rate and other launches that overlap are left out. Room is judged by two CTAs of the kernel itself, not
// by what the launch ahead takes.
//
// Sources: limits of a multiprocessor from NVIDIA's occupancy tables; bandwidth, latency, clock and start as measured on
// an H200 (bench/results/gpu_h200.md); REACHED and the 4 of w + 4 fitted to the launches that bench/results/ptx.md lists,
// with how far the predictions are off. The time of a barrier is what others have reported; it was not measured here.
//
// Ownership: none. Threads: any; the functions are pure.
#ifndef QUERN_CARD_TIME_H
#define QUERN_CARD_TIME_H

#include "gguf/base.h"

// How a kernel uses a multiprocessor, as the assembler tells.
struct card_use {
    int threads;   // of a CTA; 1 or more
    int registers; // of a thread
    int shared;    // bytes of a CTA
};
// The CTAs of a kernel that are on a multiprocessor at the same time; 0: it has no room for one.
int card_resident(const struct card_use *use);

struct card_work {
    struct card_use use;
    double ctas;         // pieces of work of one CTA each; 1 or more
    double most_ctas;    // the launch has at most so many CTAs, which take the pieces in turn; 0: one for each piece
    double bytes;        // of weights that it reads
    double ahead;        // bytes that a thread requests at once, as far as registers allow; 0: not known
    bool turns;          // a CTA reads and computes by turns
    double ring;         // bytes that the copies of a CTA keep in flight; 0: it has none
    bool early;          // it may begin beside the launch ahead
    bool stays;          // it is a step of a kernel whose CTAs are there already, and begins with a barrier of them
    double instructions; // of all threads
};
struct card_time {
    double multiprocessors; // that have work
    double in_flight;       // bytes that a multiprocessor has in flight; 0: not known
    double memory, issue;   // seconds
    double whole;           // seconds, with the start
};
// Fails with E_GPU if a multiprocessor has no room for a CTA.
int card_predict(const struct card_work *w, struct card_time *out, struct error *err);

#endif
