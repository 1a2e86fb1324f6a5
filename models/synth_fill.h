// Random weights with a given standard deviation, as blocks of any tensor type, made about as fast as memory is
// written.
//
// Blocks are not encoded numbers but random bytes whose scales are then set. Kernels therefore meet every bit pattern
// of the elements. Nothing here owns memory. Threads: a struct rng belongs to one thread; a struct fill is read-only
// once it is made.
#ifndef QUERN_SYNTH_FILL_H
#define QUERN_SYNTH_FILL_H

#include "gguf/dtype.h"

// xoshiro256++ of Blackman and Vigna, seeded through splitmix64.
struct rng {
    uint64_t s[4];
};
struct rng rng_seed(uint64_t seed);
uint64_t rng_next(struct rng *r);

// How to fill a tensor: its type, and the scale that gives its elements the wanted standard deviation.
struct fill {
    enum dtype type;
    float mean, std;
    uint16_t d, min; // scale and min of blocks whose scale is a half
    uint8_t code;    // scale of blocks whose scale is a byte
};

// Prepares elements of mean 0 and the given standard deviation. E_USAGE for a type that holds no weights.
int fill_init(struct fill *f, enum dtype type, double std, struct error *err);
// Float32 elements with this mean, for norms.
struct fill fill_f32(double mean, double std);
// Writes n blocks.
void fill_blocks(const struct fill *f, struct rng *r, void *blocks, size_t n);

#endif
