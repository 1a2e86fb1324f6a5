// What the CPU machine offers beside the interface of all machines: its ISA levels, what it has chosen, how fast it
// multiplies, and its conversions between floats and quantised blocks.
//
// Ownership and threads: as machine.h says, but where a function says more.
#ifndef QUERN_CPU_H
#define QUERN_CPU_H

#include "kernels/machine.h"

// The i-th ISA level that this binary holds and this CPU runs, best first; NULL after the last. For `quern device`.
const char *machine_cpu_isa(int i);
// What an open CPU machine has chosen; `why` lives as long as the machine.
struct machine_cpu_choice {
    const char *isa;
    int n_threads, allowed, cores; // threads; CPUs in the affinity mask; physical cores among them
    double quota;                  // CPUs' worth of time that a control group allows, 0: no limit
    const char *why;               // so many threads
};
void machine_cpu_choice(const struct machine *m, struct machine_cpu_choice *out);
// What forms the products of matrices: vectors of 8-bit numbers, tiles of them (AMX), or vectors of floats.
enum cpu_unit { UNIT_BYTES, UNIT_TILES, UNIT_FLOATS, UNIT_COUNT };
// That which multiplies weights of a type by n columns on this machine, and the name of its instructions ("AMX"; "" when
// its ISA level has no such unit).
enum cpu_unit machine_cpu_unit(const struct machine *m, enum dtype type, int64_t n);
const char *machine_cpu_unit_name(const struct machine *m, enum cpu_unit unit);
// Products a second that the threads of an open CPU machine can form together in a unit when they do nothing else: the
// best of some tries, measured now (some 200 ms). 0: its ISA level has no such ceiling.
double machine_cpu_peak(struct machine *m, enum cpu_unit unit);

// From float32 to a type of quantised weights: n elements, a multiple of its block, all finite, so that sum w (x - x')^2
// is small, w the importance of each element (>= 0) or 1 everywhere when that is NULL. The bits are the same on every
// ISA level. Pure; any thread may call them.
typedef void quantize_fn(const float *x, const float *importance, void *blocks, int64_t n);
struct converters {
    quantize_fn *quantize[DT_COUNT];   // NULL for types that are not written so
    dtype_encode_fn *encode[DT_COUNT]; // F32, F16, BF16
    dtype_decode_fn *decode[DT_COUNT]; // of all types that hold numbers
};
// Those of a CPU machine's ISA level.
void machine_cpu_converters(const struct machine *m, struct converters *out);
// Runs work(ctx, i) on each of its threads at once, the caller as number 0; returns when all are done.
void machine_cpu_share(struct machine *m, void (*work)(void *ctx, int thread), void *ctx);

#endif
