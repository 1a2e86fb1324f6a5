// What the CPU machine offers in addition to the interface of all machines: its ISA levels, what it has chosen, how
// fast it multiplies, its conversions between floats and quantised blocks, and its threads.
//
// The rules of machine.h for ownership and threads apply, unless a comment says otherwise.
#ifndef QUERN_CPU_H
#define QUERN_CPU_H

#include "kernels/machine.h"

// The name of the i-th ISA level that this binary holds and this CPU runs, best first. NULL after the last one.
const char *machine_cpu_isa(int i);
// What an open CPU machine has chosen. `why` lives as long as the machine.
struct machine_cpu_choice {
    const char *isa;
    int n_threads, allowed, cores; // threads; CPUs in the affinity mask; physical cores among them
    double quota;                  // CPU time that a control group allows, in CPUs; 0: no limit
    const char *why;               // the reason for the number of threads
};
void machine_cpu_choice(const struct machine *m, struct machine_cpu_choice *out);
// What multiplies in a matmul: vectors of bytes, tiles of bytes (AMX), or vectors of floats.
enum cpu_unit { UNIT_BYTES, UNIT_TILES, UNIT_FLOATS, UNIT_COUNT };
// The unit that multiplies weights of a type by n columns of activations on this machine.
enum cpu_unit machine_cpu_unit(const struct machine *m, enum dtype type, int64_t n);
// The name of a unit's instructions, such as "AMX"; "" if the machine's ISA level has no such unit.
const char *machine_cpu_unit_name(const struct machine *m, enum cpu_unit unit);
// The peak rate of a unit: products per second of all threads together when they do nothing else. It is measured by
// this call, which takes about 200 ms, as the best of several tries. 0 if the machine's ISA level has no such unit.
double machine_cpu_peak(struct machine *m, enum cpu_unit unit);

// Quantises n float32 weights, a multiple of the type's block and all finite, so that the sum of w (x - x')^2 is small.
// w is the importance of an element (>= 0), or 1 for all elements if `importance` is NULL. The bits are the same on
// every ISA level. The functions are pure; any thread may call them.
typedef void quantize_fn(const float *x, const float *importance, void *blocks, int64_t n);
struct converters {
    quantize_fn *quantize[DT_COUNT];   // NULL for types that have none
    dtype_encode_fn *encode[DT_COUNT]; // F32, F16, BF16
    dtype_decode_fn *decode[DT_COUNT]; // all types that hold numbers
};
// The conversions of a CPU machine's ISA level.
void machine_cpu_converters(const struct machine *m, struct converters *out);
// Runs work(ctx, i) on each of the machine's threads at the same time; the caller is thread 0. Returns when all are
// done.
void machine_cpu_share(struct machine *m, void (*work)(void *ctx, int thread), void *ctx);

#endif
