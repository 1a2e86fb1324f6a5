// Matmul of many columns for 64-bit ARM: a span of 256 elements of some rows is unpacked to panels of eight rows once,
// and all columns are multiplied with them.
//
// The naive loop: for each row, column and block of 256, isum = sum of scale[j] * (w . q)[j]; D = fma(isum * d, da,
// D). Here a tile of a few columns is multiplied with eight rows, and the float chain of kernels.h runs on four rows
// at once. What a tile computes from its columns alone, such as the sums of activations times their steps, serves all
// panels of a span. These (5 to 7 KiB each) stay in the L1 cache. The sums D of all columns are kept after them in the
// caller's scratch until the next span. While panels are multiplied, the rows below are prefetched. neon/matmul_q8.c
// chooses it for more than two columns.
#include "kernels/cpu/neon/panel_tile.h"

enum { PANELS = 4, ROWS = PANELS * PANEL_ROWS }; // the most panels of a span, and their rows

// D of the rows of a column, four in a vector.
struct chain {
    float32x4_t rows[ROWS / 4];
};

enum { COLUMNS_MAX = (SCRATCH_BYTES - PANELS * sizeof(struct panel)) / sizeof(struct chain) };

// The blocks of eight rows. Past the end of the matrix the last row is repeated; n rows are stored.
struct row_group {
    const uint8_t *at[PANEL_ROWS];
    int n;
};

static struct row_group rows_from(const struct matmul_args *a, int first)
{
    struct row_group rows = {.n = MIN(PANEL_ROWS, a->n_rows - first)};
    for (int r = 0; r < PANEL_ROWS; r++)
        rows.at[r] = (const uint8_t *)a->w + (size_t)(first + MIN(r, rows.n - 1)) * a->w_stride;
    return rows;
}

// ---- unpacking

// Vector i of a half of a block, with its offset or shift added.
INLINE int8x16_t with_offset(const struct type_256 *t, const struct block_256 *b, int half, int i)
{
    if (t->offset == SHIFTED)
        return with_shift(b->w[i], vdupq_n_s8((int8_t)(b->down[4 * half + i / 2] | 1)));
    return t->offset ? vaddq_s8(b->w[i], vdupq_n_s8((int8_t)t->offset)) : b->w[i];
}

// Unpacks the block of each row, and advances the rows.
INLINE void unpack_panel_256(struct row_group *rows, const struct type_256 *t, struct panel *p)
{
    int16x8_t scale[PANEL_ROWS][2], min[2][PANEL_ROWS];
    for (int h = 0; h < 2; h++) {
        struct block_256 b[4];
        for (int r = 0; r < 4; r++) {
            t->begin(rows->at[4 * h + r], &b[r]);
            for (int half = 0; half < t->groups / 8; half++) {
                scale[4 * h + r][half] = b[r].scale[half];
                if (t->m_at)
                    min[half][4 * h + r] = b[r].min[half];
            }
        }
        UNROLL_FOR (int half = 0; half < 2; half++) {
            for (int r = 0; r < 4; r++)
                t->half(rows->at[4 * h + r], half, &b[r]);
            for (int i = 0; i < 8; i++) {
                int8x16_t four[4];
                UNROLL_FOR (int r = 0; r < 4; r++)
                    four[r] = with_offset(t, &b[r], half, i);
                panel_put(p, h, 8 * half + i, four);
            }
        }
        struct factors f = factors_256(rows->at + 4 * h, t);
        p->d[0][h] = f.d;
        if (t->m_at)
            p->m[0][h] = f.m;
    }
    panel_put_scales(p, t->groups, scale);
    if (t->m_at)
        panel_put_mins(p, t->groups, min);
    for (int r = 0; r < PANEL_ROWS; r++)
        rows->at[r] += t->bytes;
}

// Unpacks n blocks of each row, and advances the rows.
INLINE void unpack_panel_32(struct row_group *rows, const struct type_32 *t, int n, struct panel *p)
{
    for (int j = 0; j < n; j++) {
        struct factors f[2];
        UNROLL_FOR (int h = 0; h < 2; h++) {
            int8x16_t w[4][2];
            UNROLL_FOR (int r = 0; r < 4; r++)
                t->unpack(rows->at[4 * h + r], w[r]);
            UNROLL_FOR (int i = 0; i < 2; i++) {
                int8x16_t four[4];
                UNROLL_FOR (int r = 0; r < 4; r++)
                    four[r] = t->offset ? vaddq_s8(w[r][i], vdupq_n_s8((int8_t)t->offset)) : w[r][i];
                panel_put(p, h, 2 * j + i, four);
            }
            f[h] = factors_32(rows->at + 4 * h, t);
        }
        to_sum_lanes(f[0].d, f[1].d, p->d[j]);
        if (t->m_at)
            to_sum_lanes(f[0].m, f[1].m, p->m[j]);
        for (int r = 0; r < PANEL_ROWS; r++)
            rows->at[r] += t->bytes;
    }
}

// ---- tiles

// What tiles read and write: the panels of a span, the columns, and D of their rows. A tile is compiled for each kind
// of type and number of columns.
struct sweep {
    const struct panel *panels; // [n_panels]
    int n_panels;
    const void *const *x;
    int n_x;
    int64_t k, span;
    int blocks;           // blocks of 32 in the span
    struct chain *chains; // [n_x]
};

// Fills a tile with columns first .. first + columns - 1. It does not depend on the type, but for float_sums.
static __attribute__((noinline)) void tile_fill(const struct sweep *s, int first, int columns, bool float_sums,
                                                struct tile *t)
{
    KEEP_LOOP_FOR (int c = 0; c < columns; c++) {
        struct column x = column_of(s->x[first + c], s->k);
        tile_put(t, c, &x, s->span);
    }
    KEEP_LOOP_FOR (int c = 0; c < COLUMN_VECTORS(columns); c++) {
        tile_spread(t, columns, c);
        if (float_sums)
            tile_spread_sums(t, columns, c);
    }
}

// Multiplies panel i with a tile, and adds the products to the chains of its columns.
INLINE void multiply_256(const struct panel *p, int i, const struct tile *t, int columns, int groups, bool wide,
                         bool mins, struct chain *chains)
{
    float32x4_t *rows[TILE_COLUMNS];
    tile_sums isum;
    min_sums msum;
    UNROLL_FOR (int c = 0; c < columns; c++)
        rows[c] = chains[c].rows + 2 * i;
    dot_256(p, groups, wide, columns, t, isum);
    if (mins)
        (groups == 16 ? dot_mins_16 : dot_mins_32)(p, columns, t, msum);
    UNROLL_FOR (int c = 0; c < columns; c++)
        UNROLL_FOR (int h = 0; h < 2; h++) {
            float32x4_t sum = vmulq_f32(vcvtq_f32_s32(rows_of_column(isum, c, h)), p->d[0][h]);
            if (mins)
                sum = vfmsq_f32(sum, vcvtq_f32_s32(msum[c][h]), p->m[0][h]);
            rows[c][h] = vfmaq_n_f32(rows[c][h], sum, t->da[c]);
        }
}

// The same for `blocks` blocks of 32.
INLINE void multiply_32(const struct panel *p, int i, const struct tile *t, int columns, int blocks, bool wide,
                        bool mins, struct chain *chains)
{
    tile_floats partial;
    EACH_SUM(v, c, columns)
    partial[v][c] = vdupq_n_f32(0);
    for (int half = 0; 4 * half < blocks; half++) {
        struct tile_half h = half_of_tile(t, columns, half);
        UNROLL_FOR (int run = 0; run < 4; run++) {
            int j = 4 * half + run;
            if (j >= blocks)
                break;
            tile_run x;
            load_run(&h, run, columns, x);
            tile_sums isum;
            UNROLL_FOR (int v = 0; v < ROW_VECTORS; v++)
                dot_32(p, j, v, wide, columns, x, isum[v]);
            EACH_SUM(v, c, columns)
            {
                int32x4_t product = vmulq_s32(isum[v][c], step_of_run(&h, c, run));
                partial[v][c] = vfmaq_f32(partial[v][c], vcvtq_f32_s32(product), p->d[j][v]);
                if (mins)
                    partial[v][c] = vfmaq_f32(partial[v][c], p->m[j][v], t->float_sums[c][j]);
            }
        }
    }
    UNROLL_FOR (int c = 0; c < columns; c++)
        UNROLL_FOR (int h = 0; h < 2; h++) {
            float32x4_t *chain = &chains[c].rows[2 * i + h];
            *chain = vfmaq_n_f32(*chain, float_rows_of_column(partial, c, h), t->da[c]);
        }
}

INLINE void tile_256(const struct sweep *s, int first, int columns, int groups, bool wide, bool mins)
{
    struct tile t;
    tile_fill(s, first, columns, false, &t);
    for (int i = 0; i < s->n_panels; i++)
        multiply_256(&s->panels[i], i, &t, columns, groups, wide, mins, s->chains + first);
}

INLINE void tile_32(const struct sweep *s, int first, int columns, bool wide, bool mins)
{
    struct tile t;
    tile_fill(s, first, columns, mins, &t);
    for (int i = 0; i < s->n_panels; i++)
        multiply_32(&s->panels[i], i, &t, columns, s->blocks, wide, mins, s->chains + first);
}

// SWEEP(name, TILE, ...) defines a function that multiplies all columns with the panels: full tiles, then one tile of
// the columns that are left. TILE is tile_256 or tile_32; its last parameters are those of the type.
#define SWEEP(name, TILE, ...)                                                                                         \
    static __attribute__((noinline)) void name(const struct sweep *sweep)                                              \
    {                                                                                                                  \
        const struct sweep copy = *sweep, *s = &copy; /* which stays in registers */                                   \
        int first = 0;                                                                                                 \
        for (; first + TILE_COLUMNS <= s->n_x; first += TILE_COLUMNS)                                                  \
            TILE(s, first, TILE_COLUMNS, __VA_ARGS__);                                                                 \
        if (s->n_x - first == 3)                                                                                       \
            TILE(s, first, MIN(3, TILE_COLUMNS), __VA_ARGS__);                                                         \
        else if (s->n_x - first == 2)                                                                                  \
            TILE(s, first, MIN(2, TILE_COLUMNS), __VA_ARGS__);                                                         \
        else if (s->n_x - first == 1)                                                                                  \
            TILE(s, first, 1, __VA_ARGS__);                                                                            \
    }
// clang-format off
//                               groups wide  mins
SWEEP(sweep_16_mins,   tile_256, 16,  false, true)
SWEEP(sweep_16,        tile_256, 16,  false, false)
SWEEP(sweep_8_mins,    tile_256, 8,   false, true)
SWEEP(sweep_8,         tile_256, 8,   false, false)
SWEEP(sweep_1,         tile_256, 1,   false, false)
SWEEP(sweep_8_wide,    tile_256, 8,   true,  false)
SWEEP(sweep_32_narrow, tile_32,       false, false)
SWEEP(sweep_32_mins,   tile_32,       false, true)
SWEEP(sweep_32_wide,   tile_32,       true,  false)
// clang-format on

// ---- all rows

// The rows of the panels of a span, and what is computed of them.
struct rows_work {
    struct row_group rows[PANELS];
    const uint8_t *ahead; // to be prefetched next
    struct sweep s;
};

static struct rows_work rows_begin(const struct matmul_args *a, int first_x, int n_x, int first)
{
    struct panel *panels = a->scratch;
    struct chain *chains = (struct chain *)(panels + PANELS);
    struct rows_work w = {.ahead = rows_to_prefetch(a, first, ROWS)};
    w.s = (struct sweep){.panels = panels, .x = a->x + first_x, .n_x = n_x, .k = a->k, .chains = chains};
    for (; w.s.n_panels < PANELS && first + w.s.n_panels * PANEL_ROWS < a->n_rows; w.s.n_panels++)
        w.rows[w.s.n_panels] = rows_from(a, first + w.s.n_panels * PANEL_ROWS);
    memset(chains, 0, (size_t)n_x * sizeof(*chains));
    return w;
}

static void rows_store(const struct matmul_args *a, const struct rows_work *w, int first_x, int first)
{
    for (int j = 0; j < w->s.n_x; j++)
        memcpy(a->y[first_x + j] + first, &w->s.chains[j], (size_t)MIN(ROWS, a->n_rows - first) * sizeof(float));
}

INLINE void prefetch_rows(struct rows_work *w, int bytes)
{
    prefetch_bytes(w->ahead, (size_t)(PANEL_ROWS * bytes));
    w->ahead += PANEL_ROWS * bytes;
}

INLINE void panel_256(const struct matmul_args *a, int first_x, int n_x, struct type_256 t)
{
    struct panel *panels = a->scratch;
    for (int first = 0; first < a->n_rows; first += ROWS) {
        struct rows_work w = rows_begin(a, first_x, n_x, first);
        for (; w.s.span < a->k / SPAN; w.s.span++) {
            for (int i = 0; i < w.s.n_panels; i++) {
                prefetch_rows(&w, t.bytes);
                struct row_group rows = w.rows[i]; // a copy in registers
                unpack_panel_256(&rows, &t, &panels[i]);
                w.rows[i] = rows;
            }
            if (t.groups == 16)
                t.m_at ? sweep_16_mins(&w.s) : sweep_16(&w.s);
            else if (t.groups == 1)
                sweep_1(&w.s);
            else
                (t.m_at ? sweep_8_mins : t.wide ? sweep_8_wide : sweep_8)(&w.s);
        }
        rows_store(a, &w, first_x, first);
    }
}

INLINE void panel_32(const struct matmul_args *a, int first_x, int n_x, struct type_32 t)
{
    struct panel *panels = a->scratch;
    for (int first = 0; first < a->n_rows; first += ROWS) {
        struct rows_work w = rows_begin(a, first_x, n_x, first);
        for (; w.s.span < q8_blocks(a->k); w.s.span++) {
            w.s.blocks = (int)MIN(8, a->k / 32 - 8 * w.s.span);
            for (int i = 0; i < w.s.n_panels; i++) {
                prefetch_rows(&w, 8 * t.bytes);
                struct row_group rows = w.rows[i];
                unpack_panel_32(&rows, &t, w.s.blocks, &panels[i]);
                w.rows[i] = rows;
            }
            (t.m_at ? sweep_32_mins : t.wide ? sweep_32_wide : sweep_32_narrow)(&w.s);
        }
        rows_store(a, &w, first_x, first);
    }
}

// ---- the entry points
//
// PANEL(name, CALL) defines the function panel_<name>. CALL is a statement that multiplies n columns from column `at`
// on: columns go in parts, as many at once as the scratch holds chains.

#define PANEL(name, CALL)                                                                                              \
    static void panel_##name(const struct matmul_args *a)                                                              \
    {                                                                                                                  \
        for (int at = 0; at < a->n_x; at += COLUMNS_MAX) {                                                             \
            int n = MIN(COLUMNS_MAX, a->n_x - at);                                                                     \
            CALL;                                                                                                      \
        }                                                                                                              \
    }
// clang-format off
#define PANEL_256(name, NAME, bytes, groups, offset, wide, d_at, m_at, unit) \
    PANEL(name, panel_256(a, at, n, ((struct type_256){DT_##NAME, bytes, groups, offset, wide, d_at, m_at, unit, \
                                                       begin_##name, half_##name})))
#define PANEL_32(name, NAME, bytes, offset, wide, power, m_at) \
    PANEL(name, panel_32(a, at, n, ((struct type_32){DT_##NAME, bytes, offset, wide, power, m_at, unpack_##name})))
// clang-format on
TYPES_256(PANEL_256)
TYPES_CODEBOOK(PANEL_256)
TYPES_32(PANEL_32)

#define ENTRY(name, NAME, ...) [DT_##NAME] = panel_##name,
matmul_fn *const ISA_FN(matmul_q8_panel)[DT_COUNT] = {TYPES_256(ENTRY) TYPES_CODEBOOK(ENTRY) TYPES_32(ENTRY)};
