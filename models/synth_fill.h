// Random weights of a wanted size, as blocks of any tensor type, at the speed of the memory they go to.
//
// Blocks are random bytes whose scales are then set, not encoded numbers: every bit pattern of the elements occurs,
// which is what a kernel should meet. Nothing here owns memory. Threads: a struct rng belongs to one thread; a struct
// fill is read-only once made.
#ifndef QUERN_SYNTH_FILL_H
#define QUERN_SYNTH_FILL_H

#include "gguf/dtype.h"

// xoshiro256++ of Blackman and Vigna, seeded through splitmix64.
struct rng {
    uint64_t s[4];
};
struct rng rng_seed(uint64_t seed);
uint64_t rng_next(struct rng *r);

// How to fill a tensor: its type and the scale that gives its elements the wanted standard deviation.
struct fill {
    enum dtype type;
    float mean, std;
    uint16_t d, min; // of blocks whose scale is a half
    uint8_t code;    // of blocks whose scale is a byte
};

// Elements of mean 0 and the given standard deviation. E_USAGE for a type that holds no weights.
int fill_init(struct fill *f, enum dtype type, double std, struct error *err);
// Plain float32 around a mean, for norms.
struct fill fill_f32(double mean, double std);
// Writes n blocks.
void fill_blocks(const struct fill *f, struct rng *r, void *blocks, size_t n);

#endif
