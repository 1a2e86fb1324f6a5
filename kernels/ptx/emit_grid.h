// Emits code that unpacks weights of the types with codebooks of more than 16 values (IQ1, IQ2, IQ3) to signed bytes,
// for products with 8-bit activations. emit_type_grid.c converts the same types to floats.
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_GRID_H
#define QUERN_EMIT_GRID_H

#include "kernels/ptx/emit_type.h"

// Where the fields of a part of 32 weights are: numbers of registers %w<number> and bits in them. Which fields there are
// depends on the type:
//   IQ2_XXS, IQ3_XXS  indices of 8 bits, a word of four times 7 signs with the scale above them
//   IQ2_XS            four halves: an index of 9 bits and 7 signs
//   IQ2_S, IQ3_S      indices of 8 bits, bytes of 8 signs, the ninth and tenth bits of the indices
//   IQ1_S, IQ1_M      indices of 8 bits, their three high bits; the shift is with these
struct ptx_grid_place {
    uint32_t index;          // the first of one or two words
    uint32_t signs;          // a word
    uint32_t high, high_at;  // the word with the high bits of the indices, and the first of these bits
    uint32_t scale;          // the word with the scale of each run
    uint32_t scale_at, bits; // the first bit of the first scale, and the bits of each
};

// Whether the type is one of these.
bool ptx_is_grid(enum dtype type);
// What the half that a unit stores is multiplied by: the scales of runs are 2 s + 1, the weights are whole numbers.
float ptx_grid_factor(enum dtype type);
// Emits the module's table of the type, if it has one, named by the type. A text needs it once, before the entry.
void ptx_grid_table(struct ptx *p, enum dtype type);
// Sets %q0 to %q7 to the part's 32 weights.
void ptx_grid_weights(struct ptx *p, enum dtype type, const struct ptx_grid_place *at);
// Sets <to><first> to the scale of run `run` of the part, 2 s + 1.
void ptx_grid_scale(struct ptx *p, const struct ptx_grid_place *at, uint32_t run, const char *to, uint32_t first);
// Sets %d to what a block of IQ1_M is multiplied by, which the top bits of the four halves in words `first` and + 1 are.
// Changes %t0, %t1 and %h.
void ptx_grid_iq1_m_d(struct ptx *p, uint32_t first);
// ptx_type_bytes for these types.
void ptx_grid_bytes(const struct ptx_part *part);

#endif
