// Matmul of many columns for 64-bit ARM: a span of 256 elements of eight rows is unpacked to a panel once, and all
// columns are multiplied with it.
//
// The naive loop: for each row, column and block of 256, isum = sum of scale[j] * (w . q)[j]; D = fma(isum * d, da,
// D). Here a tile of a few columns is multiplied with eight rows, and the float chain of kernels.h runs on four rows
// at once. The panel (4 KiB) stays in the L1 cache. The sums D of all columns are kept after it in the caller's
// scratch until the next span. While a panel is multiplied, the rows below are prefetched. neon/matmul_q8.c chooses
// it for more than two columns.
#include "kernels/cpu/neon/panel_tile.h"

// D of eight rows of a column.
struct chain {
    float32x4_t rows[2];
};

enum { COLUMNS_MAX = (SCRATCH_BYTES - sizeof(struct panel)) / sizeof(struct chain) };

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
    for (int half = 0; t->m_at && half < t->groups / 8; half++)
        transpose_8(min[half], p->min + 8 * half);
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

// What tiles read and write. A tile is compiled for each kind of type and number of columns.
struct sweep {
    const struct panel *p;
    const void *const *x;
    int n_x;
    int64_t k, span;
    int blocks;           // blocks of 32 in the span
    struct chain *chains; // [n_x]
};

INLINE struct tile tile_at(const struct sweep *s, int first, int columns)
{
    struct tile t;
    UNROLL_FOR (int c = 0; c < columns; c++) {
        struct column x = column_of(s->x[first + c], s->k);
        t.q[c] = x.q + SPAN * s->span;
        t.sums[c] = sums_of(&x, s->span);
        t.da[c] = x.da[s->span];
    }
    return t;
}

// sum += min * sums, for eight rows
INLINE int32x4x2_t add_mins(int32x4x2_t sum, const int16x8_t *min, int16x8_t sums)
{
    UNROLL_FOR (int j = 0; j < 8; j++) {
        sum.val[0] = vmlal_n_s16(sum.val[0], vget_low_s16(min[j]), sums[j]);
        sum.val[1] = vmlal_high_n_s16(sum.val[1], min[j], sums[j]);
    }
    return sum;
}

// The sums of the minima of eight rows times a column's sums.
INLINE int32x4x2_t dot_mins(const struct panel *p, int groups, const struct sums *s)
{
    int32x4x2_t sum = {{vdupq_n_s32(0), vdupq_n_s32(0)}};
    return groups == 8 ? add_mins(sum, p->min, s->of32)
                       : add_mins(add_mins(sum, p->min, s->of16[0]), p->min + 8, s->of16[1]);
}

INLINE void tile_256(const struct sweep *s, int first, int columns, int groups, bool wide, bool mins)
{
    const struct panel *p = s->p;
    struct tile t = tile_at(s, first, columns);
    tile_sums isum;
    dot_256(p, groups, wide, columns, &t, isum);
    UNROLL_FOR (int c = 0; c < columns; c++) {
        struct chain *chain = &s->chains[first + c];
        int32x4x2_t msum = {{vdupq_n_s32(0), vdupq_n_s32(0)}};
        if (mins)
            msum = dot_mins(p, groups, &t.sums[c]);
        UNROLL_FOR (int h = 0; h < 2; h++) {
            float32x4_t sum = vmulq_f32(vcvtq_f32_s32(rows_of_column(isum, c, h)), p->d[0][h]);
            if (mins)
                sum = vfmsq_f32(sum, vcvtq_f32_s32(msum.val[h]), p->m[0][h]);
            chain->rows[h] = vfmaq_n_f32(chain->rows[h], sum, t.da[c]);
        }
    }
}

INLINE void tile_32(const struct sweep *s, int first, int columns, bool wide, bool mins)
{
    const struct panel *p = s->p;
    struct tile t = tile_at(s, first, columns);
    float32x4_t sums[COLUMN_VECTORS_MAX][8];
    tile_floats partial;
    EACH_SUM(v, c, columns)
    partial[v][c] = vdupq_n_f32(0);
    for (int c = 0; mins && c < COLUMN_VECTORS(columns); c++)
        floats_of_sums(&t, columns, c, sums[c]);
    for (int j = 0; j < s->blocks; j++) {
        tile_sums isum;
        dot_32(p, j, wide, columns, &t, isum);
        EACH_SUM(v, c, columns)
        {
            partial[v][c] = vfmaq_f32(partial[v][c], vcvtq_f32_s32(isum[v][c]), p->d[j][v]);
            if (mins)
                partial[v][c] = vfmaq_f32(partial[v][c], p->m[j][v], sums[c][j]);
        }
    }
    UNROLL_FOR (int c = 0; c < columns; c++) {
        struct chain *chain = &s->chains[first + c];
        UNROLL_FOR (int h = 0; h < 2; h++)
            chain->rows[h] = vfmaq_n_f32(chain->rows[h], float_rows_of_column(partial, c, h), t.da[c]);
    }
}

// SWEEP(name, TILE, ...) defines a function that multiplies all columns with the panel: full tiles, then one tile of
// the columns that are left. TILE is tile_256 or tile_32; its last parameters are those of the type.
#define SWEEP(name, TILE, ...)                                                                                         \
    static __attribute__((noinline)) void name(const struct sweep *s)                                                  \
    {                                                                                                                  \
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

static struct chain *chains_begin(const struct matmul_args *a, int n_x)
{
    struct chain *chains = (struct chain *)((struct panel *)a->scratch + 1);
    memset(chains, 0, (size_t)n_x * sizeof(*chains));
    return chains;
}

static void chains_store(const struct chain *chains, float *const *y, int n_x, int first, int n_rows)
{
    for (int j = 0; j < n_x; j++)
        memcpy(y[j] + first, &chains[j], (size_t)n_rows * sizeof(float));
}

INLINE void panel_256(const struct matmul_args *a, int first_x, int n_x, struct type_256 t)
{
    struct panel *p = a->scratch;
    for (int first = 0; first < a->n_rows; first += PANEL_ROWS) {
        struct row_group rows = rows_from(a, first);
        const uint8_t *ahead = rows_to_prefetch(a, first, PANEL_ROWS);
        struct sweep s = {.p = p, .x = a->x + first_x, .n_x = n_x, .k = a->k, .chains = chains_begin(a, n_x)};
        for (; s.span < a->k / SPAN; s.span++, ahead += PANEL_ROWS * t.bytes) {
            prefetch_bytes(ahead, (size_t)(PANEL_ROWS * t.bytes));
            unpack_panel_256(&rows, &t, p);
            if (t.groups == 16)
                t.m_at ? sweep_16_mins(&s) : sweep_16(&s);
            else if (t.groups == 1)
                sweep_1(&s);
            else
                (t.m_at ? sweep_8_mins : t.wide ? sweep_8_wide : sweep_8)(&s);
        }
        chains_store(s.chains, a->y + first_x, n_x, first, rows.n);
    }
}

INLINE void panel_32(const struct matmul_args *a, int first_x, int n_x, struct type_32 t)
{
    struct panel *p = a->scratch;
    for (int first = 0; first < a->n_rows; first += PANEL_ROWS) {
        struct row_group rows = rows_from(a, first);
        const uint8_t *ahead = rows_to_prefetch(a, first, PANEL_ROWS);
        struct sweep s = {.p = p, .x = a->x + first_x, .n_x = n_x, .k = a->k, .chains = chains_begin(a, n_x)};
        for (; s.span < q8_blocks(a->k); s.span++, ahead += PANEL_ROWS * 8 * t.bytes) {
            s.blocks = (int)MIN(8, a->k / 32 - 8 * s.span);
            prefetch_bytes(ahead, (size_t)(PANEL_ROWS * 8 * t.bytes));
            unpack_panel_32(&rows, &t, s.blocks, p);
            (t.m_at ? sweep_32_mins : t.wide ? sweep_32_wide : sweep_32_narrow)(&s);
        }
        chains_store(s.chains, a->y + first_x, n_x, first, rows.n);
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
