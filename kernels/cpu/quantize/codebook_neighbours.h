// Nearest neighbours in the grids of IQ1, IQ2 and IQ3, for their encoders: for each combination of four or eight
// rounded elements, the nearest points of the grid.
//
// A pattern is any combination of levels, in the grid or not. Its number has the levels of the elements as digits, with
// the number of levels as base and the first element as the highest digit. There are 3^8 or 8^4 patterns. For each of
// them the table lists the NEAR nearest points of the grid, the nearest first, and of equally near points the one with
// the lower index first. A point is stored as the levels of its elements in nibbles, the first element in the lowest.
// A table is made on the first call for it (about 10 ms); it belongs to the program and never changes. Threads: any.
#ifndef QUERN_CODEBOOK_NEIGHBOURS_H
#define QUERN_CODEBOOK_NEIGHBOURS_H

#include <stdint.h>

enum { NEAR = 16, PATTERNS_MAX = 6561, LEVELS_MAX = 8 };

struct grid_neighbours {
    int width, n_levels;
    float level[LEVELS_MAX];             // values of the levels, ascending
    uint32_t near[PATTERNS_MAX][NEAR];   // the nearest points of each pattern
    uint16_t number[PATTERNS_MAX][NEAR]; // indices of these points in the grid
};

const struct grid_neighbours *neighbours_iq2_xxs(void);
const struct grid_neighbours *neighbours_iq2_xs(void);
const struct grid_neighbours *neighbours_iq2_s(void);
const struct grid_neighbours *neighbours_iq3_xxs(void);
const struct grid_neighbours *neighbours_iq3_s(void);
const struct grid_neighbours *neighbours_iq1(void);

#endif
