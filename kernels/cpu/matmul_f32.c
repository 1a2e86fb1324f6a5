// Float activations times a weight of any type.
//
// The naive loop: for each row r and column j of the outputs, for each k: sum[k % LANES] += w[r][k] * x[j][k]; then the
// LANES sums by halves. Two steps lead from there to what stands below, and neither touches the order of one output's sums:
//   - A register tile of TILE_ROWS x TILE_COLS outputs goes through k together: see tile.h.
//   - Few columns read plain floats where they lie. Many columns, and all types that must be decoded, go by panels:
//     PANEL_ROWS rows are decoded to float32 for PANEL_K of k, which all columns then share while they lie in the cache;
//     the sums wait in scratch from one piece of k to the next.
#include "kernels/cpu/tile.h"

enum {
    PANEL_ROWS = 32,
    PANEL_COLS = 96,          // of which the sums are kept at once
    PANEL_K = 512,            // a multiple of every block
    FEW_COLS = 2 * TILE_COLS  // up to here, decoding anew for each tile costs less than a panel
};

struct panel {
    float w[PANEL_ROWS][PANEL_K];
    struct lanes sums[PANEL_ROWS][PANEL_COLS];
};
_Static_assert(sizeof(struct panel) <= SCRATCH_BYTES, "a panel fits into a thread's scratch");
_Static_assert(PANEL_ROWS % TILE_ROWS == 0 && PANEL_COLS % TILE_COLS == 0, "panels are whole tiles");

// ---- few columns of plain floats

// A tile that hangs over the last row computes that row again.
INLINE void matmul_few(const struct matmul_args *a, void (*tile)(int cols, const struct tile *t))
{
    for (int row = 0; row < a->n_rows; row += TILE_ROWS) {
        for (int col = 0; col < a->n_x; col += TILE_COLS) {
            struct lanes sums[TILE_ROWS * TILE_COLS] = {{{{0}}}};
            struct tile t = {.k = a->k, .sums = sums, .stride = TILE_COLS};
            int cols = MIN(TILE_COLS, a->n_x - col);
            for (int r = 0; r < TILE_ROWS; r++)
                t.w[r] = (const char *)a->w + (size_t)MIN(row + r, a->n_rows - 1) * a->w_stride;
            for (int c = 0; c < cols; c++)
                t.x[c] = a->x[col + c];
            tile(cols, &t);
            for (int c = 0; c < cols; c++)
                put_sums(sums + c, TILE_COLS, a->n_rows - row, a->y[col + c] + row);
        }
    }
}

// ---- panels

// The part of the outputs that a panel makes: rows [row, row + rows), columns [col, col + cols).
struct part {
    int row, rows, col, cols;
};

// Rows behind the last are left as they are: their sums are not used.
static void panel_decode(const struct matmul_args *a, struct part part, int64_t at, int64_t n, struct panel *panel)
{
    size_t offset = dtype_row_bytes(a->type, at);
    for (int r = 0; r < part.rows; r++) {
        const char *row = (const char *)a->w + (size_t)(part.row + r) * a->w_stride;
        ISA_FN(decode_table)[a->type](row + offset, panel->w[r], n);
    }
}

static void panel_multiply(const struct matmul_args *a, struct part part, int64_t at, int64_t n, struct panel *panel)
{
    for (int col = 0; col < part.cols; col += TILE_COLS) {
        struct tile t = {.k = n, .stride = PANEL_COLS};
        int cols = MIN(TILE_COLS, part.cols - col);
        for (int c = 0; c < cols; c++)
            t.x[c] = (const float *)a->x[part.col + col + c] + at;
        for (int row = 0; row < part.rows; row += TILE_ROWS) {
            for (int r = 0; r < TILE_ROWS; r++)
                t.w[r] = (const char *)panel->w[row + r];
            t.sums = &panel->sums[row][col];
            tile_f32(cols, &t);
        }
    }
}

static void panel_run(const struct matmul_args *a, struct part part)
{
    struct panel *panel = a->scratch;
    for (int r = 0; r < PANEL_ROWS; r++)
        memset(panel->sums[r], 0, (size_t)part.cols * sizeof(struct lanes));
    for (int64_t at = 0; at < a->k; at += PANEL_K) {
        int64_t n = MIN(a->k - at, PANEL_K);
        panel_decode(a, part, at, n, panel);
        panel_multiply(a, part, at, n, panel);
    }
    for (int col = 0; col < part.cols; col++)
        for (int row = 0; row < part.rows; row += TILE_ROWS)
            put_sums(&panel->sums[row][col], PANEL_COLS, part.rows - row, a->y[part.col + col] + part.row + row);
}

static void matmul_panels(const struct matmul_args *a)
{
    if (a->n_x <= 0)
        return;
    int n_blocks = (a->n_x + PANEL_COLS - 1) / PANEL_COLS;
    int cols = ((a->n_x + n_blocks - 1) / n_blocks + TILE_COLS - 1) / TILE_COLS * TILE_COLS;
    for (int col = 0; col < a->n_x; col += cols)
        for (int row = 0; row < a->n_rows; row += PANEL_ROWS)
            panel_run(a, (struct part){row, MIN(PANEL_ROWS, a->n_rows - row), col, MIN(cols, a->n_x - col)});
}

// ---- the table

#define FLOATS(NAME, name)                                                                                             \
    static void matmul_##name(const struct matmul_args *a)                                                             \
    {                                                                                                                  \
        if (a->n_x <= FEW_COLS)                                                                                        \
            matmul_few(a, tile_##name);                                                                                \
        else                                                                                                           \
            matmul_panels(a);                                                                                          \
    }
FLOATS(F32, f32)
FLOATS(F16, f16)
FLOATS(BF16, bf16)

#define matmul_i8 NULL
#define matmul_i16 NULL
#define matmul_i32 NULL
#define matmul_i64 NULL
#define matmul_f64 matmul_panels
matmul_fn *const ISA_FN(matmul_f32_table)[DT_COUNT] = {
#define ENTRY_FLOAT(name) matmul_##name
#define ENTRY_QUANT(name) matmul_panels
#define ENTRY_INT(name) matmul_##name
#define DTYPE(NAME, name, id, elements, bytes, kind) [DT_##NAME] = ENTRY_##kind(name),
#include "gguf/dtype.def"
#undef DTYPE
};
