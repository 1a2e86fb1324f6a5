// Compares each pattern with every point of its grid, at most 6561 patterns and 2048 points. Both are split into two
// halves of which few differ, so that a distance is the sum of two table entries. An insertion sort keeps the nearest
// points. Each grid has its own table, which is made once, under pthread_once.
#include "kernels/cpu/quantize/codebook_neighbours.h"

#include "gguf/dtype_iq.h"

#include <pthread.h>
#include <string.h>

enum { POINTS_MAX = 2048, HALVES_MAX = 81 };

// A grid while its table is made. Patterns and points are split into two halves with the same number of elements. There
// are only 81 or 64 different halves, and the squared distance of two points is the sum of those of their halves.
struct making {
    int n_points, n_halves;
    int level[LEVELS_MAX];
    uint32_t word[POINTS_MAX];              // levels of each point, as nibbles
    uint8_t half[2][POINTS_MAX];            // the number of each half of a point, with levels as digits
    int32_t square[HALVES_MAX][HALVES_MAX]; // squared distance between two halves
};

static int level_of(const struct making *m, int n_levels, int value)
{
    int l = 0;
    while (l < n_levels && m->level[l] < value)
        l++;
    return l;
}

static void find_levels(struct grid_neighbours *g, struct making *m, const int8_t *values)
{
    for (int i = 0; i < m->n_points * g->width; i++) {
        int at = level_of(m, g->n_levels, values[i]);
        if (at < g->n_levels && m->level[at] == values[i])
            continue;
        memmove(m->level + at + 1, m->level + at, (size_t)(g->n_levels - at) * sizeof *m->level);
        m->level[at] = values[i];
        g->n_levels++;
    }
    for (int l = 0; l < g->n_levels; l++)
        g->level[l] = (float)m->level[l];
}

static void read_points(const struct grid_neighbours *g, struct making *m, const int8_t *values)
{
    for (int k = 0; k < m->n_points; k++)
        for (int i = 0; i < g->width; i++) {
            int level = level_of(m, g->n_levels, values[k * g->width + i]);
            uint8_t *half = &m->half[i * 2 / g->width][k];
            m->word[k] |= (uint32_t)level << 4 * i;
            *half = (uint8_t)(*half * g->n_levels + level);
        }
}

static void measure_halves(const struct grid_neighbours *g, struct making *m)
{
    m->n_halves = 1;
    for (int i = 0; i < g->width / 2; i++)
        m->n_halves *= g->n_levels;
    for (int a = 0; a < m->n_halves; a++)
        for (int b = 0; b < m->n_halves; b++)
            for (int x = a, y = b, i = 0; i < g->width / 2; i++, x /= g->n_levels, y /= g->n_levels) {
                int d = m->level[x % g->n_levels] - m->level[y % g->n_levels];
                m->square[a][b] += d * d;
            }
}

// Lists the nearest points of a pattern. Points are inserted in the order of their indices, so that of equally near
// ones the first stays first.
static void list_nearest(struct grid_neighbours *g, const struct making *m, int pattern)
{
    const int32_t *first = m->square[pattern / m->n_halves], *second = m->square[pattern % m->n_halves];
    int32_t square[NEAR];
    uint16_t *number = g->number[pattern];
    int n = 0;
    for (int k = 0; k < m->n_points; k++) {
        int32_t d = first[m->half[0][k]] + second[m->half[1][k]];
        if (n == NEAR && d >= square[NEAR - 1])
            continue;
        int at = n < NEAR ? n++ : NEAR - 1;
        for (; at > 0 && square[at - 1] > d; at--) {
            square[at] = square[at - 1];
            number[at] = number[at - 1];
        }
        square[at] = d;
        number[at] = (uint16_t)k;
    }
    for (int i = 0; i < NEAR; i++)
        g->near[pattern][i] = m->word[number[i]];
}

// Makes the table. `values` are the elements of the points, one point after the other.
static void make(struct grid_neighbours *g, const void *values, int n_points, int width)
{
    struct making m = {.n_points = n_points};
    g->width = width;
    find_levels(g, &m, values);
    read_points(g, &m, values);
    measure_halves(g, &m);
    for (int pattern = 0; pattern < m.n_halves * m.n_halves; pattern++)
        list_nearest(g, &m, pattern);
}

#define NEIGHBOURS(name, n_points)                                                                                     \
    static struct grid_neighbours table_##name;                                                                        \
    static void make_##name(void)                                                                                      \
    {                                                                                                                  \
        make(&table_##name, name##_grid, n_points, (int)sizeof name##_grid[0]);                                        \
    }                                                                                                                  \
    const struct grid_neighbours *neighbours_##name(void)                                                              \
    {                                                                                                                  \
        static pthread_once_t once = PTHREAD_ONCE_INIT;                                                                \
        pthread_once(&once, make_##name);                                                                              \
        return &table_##name;                                                                                          \
    }
NEIGHBOURS(iq2_xxs, 256)
NEIGHBOURS(iq2_xs, 512)
NEIGHBOURS(iq2_s, 1024)
NEIGHBOURS(iq3_xxs, 256)
NEIGHBOURS(iq3_s, 512)
NEIGHBOURS(iq1, 2048)
