// Emits code that makes the fragments of a tensor-core product straight from weights in shared memory: no thread
// unpacks weights for another, and nothing is written back.
//
// A unit of a tile (weight_tile.h) lies in shared memory as it does in GPU memory. A warp multiplies its 32 rows as two
// fragments of mma.m16n8k32 for each part, which is 32 k. Lane 4 g + t holds of rows g, g + 8, g + 16 and g + 24 the
// bytes 4 t to 4 t + 3 of the first 16 k and of the other 16. In every type these are one word of a chunk of 16 bytes and
// the same word of another chunk, or the two nibbles of one word, so that a lane loads words and shifts them, and the
// loads of a warp fall into different banks.
//
// The code reads these registers, all .u32: %unit_at (the address of the unit in shared memory), %raw (%unit_at + 16 g +
// 4 t), %g, %t, and %pair, the number of a pair of parts in its unit (0 to 3). It changes the registers of
// PTX_FRAGMENT_REGS.
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_FRAGMENT_H
#define QUERN_EMIT_FRAGMENT_H

#include "kernels/ptx/emit_bytes.h"

#define PTX_FRAGMENT_REGS                                                                                              \
    "    .reg .pred %first_word, %is_small;\n"                                                                         \
    "    .reg .b16 %h, %h1;\n"                                                                                         \
    "    .reg .b32 %a<8>, %w<8>, %v<3>, %shift, %turn, %by_pair, %high_at, %piece_at;\n"                               \
    "    .reg .f32 %d<4>, %m<4>;\n"

// Whether there are fragments of this type. Others are unpacked by a thread that has a whole row (emit_bytes.h).
bool ptx_fragment_takes(enum dtype type);

// What both parts of pair %pair share: addresses, shifts and words. It must come before ptx_fragment_part.
void ptx_fragment_pair(struct ptx *p, enum dtype type);
// Sets %a0 to %a7 to the fragments of part 2 %pair + `part`: %a<4 mt + i> is register i of rows 16 mt to 16 mt + 15. The
// bytes are signed, the type's offset is subtracted.
void ptx_fragment_part(struct ptx *p, enum dtype type, uint32_t part);
// For types with a float scale for each part: sets %d<i>, and %m<i> if there is a minimum, to those of row g + 8 i in part
// 2 %pair + `part`.
void ptx_fragment_floats(struct ptx *p, enum dtype type, uint32_t part);

// For types with integer scales. Sets %<to><i> for row g + 8 i to four scales: of parts 4 t to 4 t + 3 (t below 2), or, if
// each run of 16 has its scale, of runs 4 t to 4 t + 3. The bytes are signed.
void ptx_fragment_scales(struct ptx *p, enum dtype type, const char *to);
// Sets %a<i> for row g + 8 i to the minima of runs 4 t to 4 t + 3; the two runs of a part that has one minimum have the
// same.
void ptx_fragment_minima(struct ptx *p, enum dtype type);
// Sets %d<i>, and %m<i> if there are minima, to the floats of the unit that belong to row g + 8 i.
void ptx_fragment_units(struct ptx *p, enum dtype type);

#endif
