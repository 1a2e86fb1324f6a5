// The grids of IQ1, IQ2 and IQ3 from the encoder's side: for any four or eight rounded elements, the points of the grid
// that lie nearest.
//
// A pattern is a point of all that whole levels could form: the number whose digits, in the base of the number of
// levels, are the elements' levels, the first element's the highest. There are 3^8 or 8^4. Of each the NEAR nearest
// points of the grid are listed, the nearest first, of equals the one with the lower number; a point is its elements'
// levels as nibbles, the first element's the lowest.
// A table is made by whoever asks for it first (some 10 ms), belongs to the program, and never changes. Any thread may
// ask.
#ifndef QUERN_CODEBOOK_NEIGHBOURS_H
#define QUERN_CODEBOOK_NEIGHBOURS_H

#include <stdint.h>

enum { NEAR = 16, PATTERNS_MAX = 6561, LEVELS_MAX = 8 };

struct grid_neighbours {
    int width, n_levels;
    float level[LEVELS_MAX];             // their values, ascending
    uint32_t near[PATTERNS_MAX][NEAR];   // [pattern]
    uint16_t number[PATTERNS_MAX][NEAR]; // those points' places in the grid
};

const struct grid_neighbours *neighbours_iq2_xxs(void);
const struct grid_neighbours *neighbours_iq2_xs(void);
const struct grid_neighbours *neighbours_iq2_s(void);
const struct grid_neighbours *neighbours_iq3_xxs(void);
const struct grid_neighbours *neighbours_iq3_s(void);
const struct grid_neighbours *neighbours_iq1(void);

#endif
