// What the CPU machine offers in addition to the interface of all machines: its ISA levels, its choices, the peak rate
// of its multiplying units, its conversions between floats and quantised blocks, and its threads. An ISA level is a set
// of kernels that are compiled for one set of CPU instructions, such as "avx2".
//
// The rules of machine.h for ownership and threads apply, unless a comment says otherwise.
#ifndef QUERN_CPU_H
#define QUERN_CPU_H

#include "kernels/machine.h"

// The name of the i-th ISA level that this binary contains and this CPU can run, best first. NULL after the last one.
const char *machine_cpu_isa(int i);
// What an open CPU machine has chosen, and from what. The strings live as long as the machine.
struct machine_cpu_choice {
    const char *isa;               // name of the ISA level
    int n_threads, allowed, cores; // threads; CPUs in the affinity mask; physical cores among them
    double quota;                  // CPU time that a control group allows, in CPUs; 0: no limit
    const char *why;               // the reason for the number of threads
};
void machine_cpu_choice(const struct machine *m, struct machine_cpu_choice *out);
// The multiplying units: instructions for vectors of bytes, for tiles of bytes (AMX), or for vectors of floats.
enum cpu_unit { UNIT_BYTES, UNIT_TILES, UNIT_FLOATS, UNIT_COUNT };
// The unit that multiplies weights of a type by n columns of activations on this machine.
enum cpu_unit machine_cpu_unit(const struct machine *m, enum dtype type, int64_t n);
// The name of a unit's instructions, such as "AMX"; "" if the machine's ISA level has no such unit.
const char *machine_cpu_unit_name(const struct machine *m, enum cpu_unit unit);
// The peak rate of a unit: products of two numbers per second, of all threads together, when they do nothing else. This
// call measures it as the best of several tries, which takes about a quarter of a second. 0 if the machine's ISA level
// has no such unit.
double machine_cpu_peak(struct machine *m, enum cpu_unit unit);

// Quantises n float32 weights x to blocks. n is a multiple of the type's block, and all x are finite. The function
// searches for a small sum of w (x - x')^2, where x' is what the blocks decode to. w is the importance of the element
// (>= 0), or 1 for all elements if `importance` is NULL. The bits are the same on every ISA level. The functions keep
// no state. Any thread may call them.
typedef void quantize_fn(const float *x, const float *importance, void *blocks, int64_t n);
struct converters {
    quantize_fn *quantize[DT_COUNT];   // NULL for types that have none
    dtype_encode_fn *encode[DT_COUNT]; // F32, F16, BF16
    dtype_decode_fn *decode[DT_COUNT]; // all types that hold numbers
};
// The conversions of a CPU machine's ISA level.
void machine_cpu_converters(const struct machine *m, struct converters *out);
// Calls work(ctx, i) on every thread i of the machine at the same time. The caller is thread 0. Returns when all calls
// have returned.
void machine_cpu_share(struct machine *m, void (*work)(void *ctx, int thread), void *ctx);

#endif
