// The grids (codebooks) of IQ1, IQ2 and IQ3 for encoders: for each pattern of four or eight rounded elements, the
// nearest points of the grid.
//
// A pattern is a combination of levels, whether or not the grid has it. It is the number whose digits, in the base of
// the number of levels, are the levels of the elements, the first element's digit being the highest. There are 3^8 or
// 8^4 patterns. For each, the NEAR nearest points of the grid are listed, nearest first; of points at the same
// distance, the one with the lower index is first. A point is given by the levels of its elements as nibbles, the
// first element's lowest.
//
// A table is made on first use (which takes some 10 ms), belongs to the program, and never changes. Any thread may
// call.
#ifndef QUERN_CODEBOOK_NEIGHBOURS_H
#define QUERN_CODEBOOK_NEIGHBOURS_H

#include <stdint.h>

enum { NEAR = 16, PATTERNS_MAX = 6561, LEVELS_MAX = 8 };

struct grid_neighbours {
    int width, n_levels;
    float level[LEVELS_MAX];             // values of the levels, ascending
    uint32_t near[PATTERNS_MAX][NEAR];   // [pattern]: the nearest points
    uint16_t number[PATTERNS_MAX][NEAR]; // their indices in the grid
};

const struct grid_neighbours *neighbours_iq2_xxs(void);
const struct grid_neighbours *neighbours_iq2_xs(void);
const struct grid_neighbours *neighbours_iq2_s(void);
const struct grid_neighbours *neighbours_iq3_xxs(void);
const struct grid_neighbours *neighbours_iq3_s(void);
const struct grid_neighbours *neighbours_iq1(void);

#endif
