// Products of float32 activations with weights of any type. Compiled for every ISA level.
//
// The naive loop, for each row r of the weight and each column j of activations:
//   for k in 0 .. K-1: sum[k % LANES] = fma(w[r][k], x[j][k], sum[k % LANES]);  y[j][r] = lanes_sum(sum)
// The steps from there keep the order of the sums of each output:
//   - A register tile of TILE_ROWS x TILE_COLS outputs goes through k together (matmul_f32_tile.h).
//   - For few columns, float weights are read in place (matmul_few). On Zen 4, one column has a loop of its own
//     (matmul_streams).
//   - For many columns, and for all types that must be decoded, the product goes by panels (matmul_panels). A panel is
//     PANEL_ROWS rows, decoded to float32 for PANEL_K of k; all columns use it while it is in the cache. The sums are
//     kept in scratch from one piece of k to the next.
//   - Panels are packed (copied into the order in which the tile reads them) where that is faster:
//       AVX2   A sum has more lanes than a register, so the tile runs once for each half of the lanes. If it read rows
//              in their own order, they would be a memory page apart, and each run would use half of every cache line.
//              That takes 1.5 times as long. 16-bit floats are packed as they are, without being widened.
//       Zen 4 with AVX-512   16-bit floats are packed as they are, because the CPU can widen them while it multiplies
//              (1.13 to 1.27 times as fast as decoded rows), and 32-bit floats for very many columns (1.02 to 1.2 times
//              as fast as rows read in place).
//     is_packed has the exact rule.
#include "kernels/cpu/matmul_f32_tile.h"

#ifdef VEC_AVX2
enum { PACKS_ALL = 1, PANEL_ROWS = 64, PANEL_COLS = 48, PACKED_K = 1024 };
#else
enum { PACKS_ALL = 0, PANEL_ROWS = 48, PANEL_COLS = 72, PACKED_K = 2048 };
#endif
// PANEL_K: the elements of k in a panel, a multiple of every type's block. A tile's pieces of x and w have 40 KB at
// most, about as much as the L1 cache holds.
//
// PACKED_K: the elements of k in a packed panel of 32-bit floats; if it is more than PANEL_K, the panel has fewer rows.
// With 2048 on Zen 4, rows of up to 2048 keep no sums in scratch and are 1.2 times as fast, and longer rows are about
// even. On AVX2, 2048 would be 0.66 to 0.94 times as fast as 1024.
enum { PANEL_K = 1024 };

// The scratch of a product by panels.
struct panel {
    const char *rows[PANEL_ROWS]; // each row in w or in place in the weight; in a packed panel, the start of its tile
    float w[PANEL_ROWS / TILE_ROWS][TILE_ROWS * PANEL_K];
    float row[PACKED_K]; // a decoded row that is about to be packed
    // Sums kept between pieces of k: [tile of columns][tile of rows].
    struct lanes sums[PANEL_COLS / TILE_COLS * (PANEL_ROWS / TILE_ROWS)][TILE_ROWS * TILE_COLS];
    struct lanes done[TILE_ROWS * TILE_COLS]; // finished sums of a tile, before their lanes are added
};
_Static_assert(sizeof(struct panel) <= SCRATCH_BYTES, "a panel fits into a thread's scratch");
_Static_assert(PANEL_ROWS % TILE_ROWS == 0 && PANEL_COLS % TILE_COLS == 0, "panels are whole tiles");
_Static_assert(PANEL_ROWS *PANEL_K / PACKED_K % TILE_ROWS == 0, "and so are packed ones");

// ---- few columns of floats
//
// On CPUs whose hardware prefetcher is to follow the reads, the four rows of a tile are far apart, so that memory is
// read as four long streams. If they were neighbours, one row would end in the memory page in which the next one
// begins, and the prefetcher could not tell which of the two to follow.

// Sets rows[i] to the address of row i of a tile, for n rows.
static void rows_of_tile(const struct row_cut *cut, int tile, const void *w, size_t stride, int n, const char *rows[])
{
    for (int i = 0; i < n; i++)
        rows[i] = (const char *)w + (size_t)row_of_cut(cut, tile, i) * stride;
}

// Sets rows[i] to the rows that are read after a tile of n rows: those of the next tile, or after the last tile those
// that the thread reads next, divided in the same way. The hardware prefetcher cannot know where these begin. If the
// next rows are unknown, they are rows that are in the cache already.
static void rows_ahead(const struct matmul_args *a, const struct row_cut *cut, int tile, int n, const char *rows[])
{
    if (tile + 1 < cut->groups || !a->next)
        rows_of_tile(cut, tile + 1, a->w, a->w_stride, n, rows);
    else
        rows_of_tile(cut, 0, a->next, a->next_stride, n, rows);
}

// Adds up the lanes of column c of a tile's sums, and stores the results in y.
static void put_column(const struct lanes *sums, int c, const struct row_cut *cut, int tile, float *y)
{
    float four[TILE_ROWS];
    tile_put(sums, c, TILE_ROWS, four);
    for (int i = 0; i < TILE_ROWS; i++)
        y[row_of_cut(cut, tile, i)] = four[i];
}

INLINE void matmul_few(const struct matmul_args *a, void (*run)(int cols, const struct tile *t))
{
    const int quarter = (a->n_rows + TILE_ROWS - 1) / TILE_ROWS;
    const struct row_cut cut =
        reads_streams(a->reading) ? row_cut_apart(a->n_rows, quarter) : row_cut_neighbours(a->n_rows, TILE_ROWS);
    for (int tile = 0; tile < cut.groups; tile++) {
        struct lanes sums[TILE_ROWS * TILE_COLS];
        struct tile t = {.reading = a->reading, .k = a->k, .to = sums};
        rows_of_tile(&cut, tile, a->w, a->w_stride, TILE_ROWS, t.w);
        rows_ahead(a, &cut, tile, TILE_ROWS, t.next);
        for (int i = 0, col; (col = tile_cut(i, a->n_x, TILE_COLS)) < a->n_x; i++) {
            int cols = tile_cut(i + 1, a->n_x, TILE_COLS) - col;
            for (int c = 0; c < cols; c++)
                t.x[c] = a->x[col + c];
            run(cols, &t);
            for (int c = 0; c < cols; c++)
                put_column(sums, c, &cut, tile, a->y[col + c]);
            t.next[0] = NULL; // the other columns find the rows in the cache
        }
    }
}

// ---- one column of floats, on AVX-512, where a register holds all lanes of a sum
//
// This is for Zen 4, whose memory is fast. With 16-bit weights, four streams that the hardware prefetcher follows are
// read at 1.04 to 1.07 of the speed of plain reading, eight streams with software prefetching at 0.9, probably
// because prefetches wait for the few misses that a core can have in flight. The activations of a row longer than
// SHORT_K fill the L1 cache; then eight rows share each load of them (0.92 to 0.97). F32 is read with software
// prefetching (1.08).

enum { STREAMS = 8, STREAMS_SHORT = 4, SHORT_K = 2048 };

// Adds the products of n rows with x from element `from` to `end`, which are whole cache lines. Meanwhile as many
// bytes at ahead[r] are prefetched into L2, unless `ahead` is NULL.
INLINE void stream_lines(enum dtype type, int n, const char *const w[STREAMS], const char *const ahead[STREAMS],
                         const float *x, int64_t from, int64_t end, vec sums[STREAMS])
{
    const int64_t line = FETCH_LINE / (int64_t)weight_bytes(type);
    for (int64_t at = from; at < end; at += line) {
        UNROLL_FOR (int r = 0; r < n; r++) {
            if (ahead)
                __builtin_prefetch(ahead[r] + (size_t)(at - from) * weight_bytes(type), 0, 2);
            UNROLL_FOR (int64_t i = at; i < at + line; i += VEC)
                sums[r] = vec_fma(weight_load(type, w[r] + (size_t)i * weight_bytes(type)), vec_load(x + i), sums[r]);
        }
    }
}

// Adds the products of whole rows. Prefetches FETCH_STREAM bytes ahead, and near the end the start of the next rows.
INLINE void stream_rows_prefetched(enum dtype type, int n, const char *const w[STREAMS],
                                   const char *const next[STREAMS], const float *x, int64_t k, vec sums[STREAMS])
{
    const int64_t turn = MAX(k - FETCH_STREAM / (int64_t)weight_bytes(type), 0);
    const char *ahead[STREAMS];
    for (int r = 0; r < n; r++)
        ahead[r] = w[r] + FETCH_STREAM;
    stream_lines(type, n, w, ahead, x, 0, turn, sums);
    stream_lines(type, n, w, next, x, turn, k, sums);
}

// Prefetches the first FETCH_START bytes of n rows.
static void fetch_starts(const char *const next[STREAMS], int n)
{
    for (int at = 0; at < FETCH_START; at += FETCH_LINE)
        for (int r = 0; r < n; r++)
            __builtin_prefetch(next[r] + at, 0, 2);
}

// Returns whether matmul_streams serves the product. Rows that end within a cache line are left to the tiles.
INLINE bool goes_by_streams(const struct matmul_args *a, enum dtype type)
{
    return PARTS == 1 && a->n_x == 1 && a->reading == READING_PREFETCHED &&
           a->k * (int64_t)weight_bytes(type) % FETCH_LINE == 0;
}

// Computes one column with n rows at a time, which are n streams far apart.
INLINE void matmul_n_streams(const struct matmul_args *a, enum dtype type, int n)
{
    const struct row_cut cut = row_cut_apart(a->n_rows, (a->n_rows + n - 1) / n);
    for (int group = 0; group < cut.groups; group++) {
        const char *w[STREAMS], *next[STREAMS];
        vec sums[STREAMS] = {{0}};
        rows_of_tile(&cut, group, a->w, a->w_stride, n, w);
        rows_ahead(a, &cut, group, n, next);
        if (type != DT_F32 && group + 1 == cut.groups)
            fetch_starts(next, n);
        if (type == DT_F32)
            stream_rows_prefetched(type, n, w, next, a->x[0], a->k, sums);
        else
            stream_lines(type, n, w, NULL, a->x[0], 0, a->k, sums);
        for (int r = 0; r < n; r++)
            a->y[0][row_of_cut(&cut, group, r)] = lanes_sum((struct lanes){{sums[r]}});
    }
}

INLINE void matmul_streams(const struct matmul_args *a, enum dtype type)
{
    if (type != DT_F32 && a->k <= SHORT_K)
        matmul_n_streams(a, type, STREAMS_SHORT);
    else
        matmul_n_streams(a, type, STREAMS);
}

// ---- panels

// The part of the outputs that is computed together: rows [row, row + rows), columns [col, col + cols).
struct part {
    int row, rows, col, cols;
};

static bool is_16_bits(enum dtype type)
{
    return type == DT_F16 || type == DT_BF16;
}

// Returns whether the settings measured on Zen 4 with AVX-512 apply. Reading as streams at the AVX-512 level is taken
// as the sign of this CPU.
static bool is_zen4(const struct matmul_args *a)
{
    return !PACKS_ALL && !ALWAYS_BY_ROW && reads_streams(a->reading);
}

// Copying weights that need no decoding is too expensive for up to that many columns.
enum { COPY_COLS = PACKS_ALL ? 8 * TILE_COLS : 16 * TILE_COLS };

// Returns whether panels are packed. AVX2 packs all types, but F32 only for more than COPY_COLS columns. AVX-512 on Zen
// 4 packs 16-bit floats; F32 and types that must be decoded only for more than COPY_COLS columns. Other CPUs never do.
static bool is_packed(const struct matmul_args *a)
{
    if (PACKS_ALL)
        return a->type != DT_F32 || a->n_x > COPY_COLS;
    return is_zen4(a) && (is_16_bits(a->type) || a->n_x > COPY_COLS);
}

// Returns the elements of k in a panel. Twice as many fit if they have 16 bits.
static int64_t panel_k(const struct matmul_args *a)
{
    if (!is_packed(a))
        return PANEL_K;
    return is_16_bits(a->type) ? 2 * PANEL_K : PACKED_K;
}

static int panel_rows(const struct matmul_args *a)
{
    return is_packed(a) && !is_16_bits(a->type) ? PANEL_ROWS * PANEL_K / PACKED_K : PANEL_ROWS;
}

// Decodes elements [at, at + n) of the rows to float32; F32 is used in place. If the last tile has too few rows, it
// repeats the last row.
static void panel_decode(const struct matmul_args *a, struct part part, int64_t at, int64_t n, struct panel *panel)
{
    size_t offset = dtype_row_bytes(a->type, at);
    for (int r = 0; r < PANEL_ROWS; r++) {
        int there = MIN(r, part.rows - 1);
        const char *row = (const char *)a->w + (size_t)(part.row + there) * a->w_stride + offset;
        float *decoded = panel->w[there / TILE_ROWS] + there % TILE_ROWS * PANEL_K;
        panel->rows[r] = a->type == DT_F32 ? row : (const char *)decoded;
        if (a->type != DT_F32 && r < part.rows)
            ISA_FN(decode_table)[a->type](row, decoded, n);
    }
}

// Packs elements [at, at + n) of the rows. If the last tile has too few rows, the rest of it is not initialised; the
// sums of these rows are not used.
static void panel_pack(const struct matmul_args *a, struct part part, int64_t at, int64_t n, struct panel *panel)
{
    const size_t offset = dtype_row_bytes(a->type, at);
    const size_t tile_bytes = TILE_ROWS * (size_t)panel_k(a) * (is_16_bits(a->type) ? 2 : sizeof(float));
    for (int r = 0; r < part.rows; r++) {
        const char *row = (const char *)a->w + (size_t)(part.row + r) * a->w_stride + offset;
        char *tile = (char *)panel->w + (size_t)(r / TILE_ROWS) * tile_bytes;
        panel->rows[r] = tile;
        if (is_16_bits(a->type)) {
            pack_row(2, row, n, tile + r % TILE_ROWS * VEC * 2);
            continue;
        }
        if (a->type != DT_F32)
            ISA_FN(decode_table)[a->type](row, panel->row, n);
        pack_row(4, a->type == DT_F32 ? row : (const char *)panel->row, n, tile + r % TILE_ROWS * VEC * 4);
    }
}

// The weights that are packed next. They are prefetched a few lines at a time while the tiles of this panel are
// computed.
struct ahead {
    const char *row;
    size_t stride, bytes, at; // from row to row; of a row; prefetched of the current row
    int rows;                 // rows that are left
    int lines;                // cache lines to prefetch with each tile
};

// Returns what is packed after the piece of k at `at`: the next piece of the same rows, or the first piece of the
// rows after them, or rows that the thread probably reads next.
static struct ahead ahead_of(const struct matmul_args *a, struct part part, int64_t at, int64_t piece)
{
    int64_t from = at + piece < a->k ? at + piece : 0;
    int first = from ? part.row : part.row + part.rows;
    struct ahead next = {.row = (const char *)a->w + (size_t)first * a->w_stride + dtype_row_bytes(a->type, from),
                         .stride = a->w_stride,
                         .bytes = dtype_row_bytes(a->type, MIN(piece, a->k - from)),
                         .rows = MIN(panel_rows(a), a->n_rows - first)};
    if (!next.rows && a->next) {
        next.row = a->next;
        next.stride = a->next_stride;
        next.rows = TILE_ROWS;
    }
    int tiles = (part.cols + TILE_COLS - 1) / TILE_COLS * ((part.rows + TILE_ROWS - 1) / TILE_ROWS);
    next.lines = next.rows * (int)(next.bytes / FETCH_LINE + 1) / tiles + 1;
    return next;
}

// Prefetches one tile's share into L2.
static void fetch(struct ahead *next)
{
    for (int i = 0; i < next->lines && next->rows; i++) {
        __builtin_prefetch(next->row + next->at, 0, 2);
        next->at += FETCH_LINE;
        if (next->at >= next->bytes) {
            next->at = 0;
            next->row += next->stride;
            next->rows--;
        }
    }
}

// Prefetches elements [at, at + n) of x for the next tile of columns, into L2. Each tile of rows prefetches an equal
// share; this is the share of the tile that begins at `row`, of `rows` rows in all.
static void prefetch_share(const struct matmul_args *a, int col, int cols, int64_t at, int64_t n, int row, int rows)
{
    int64_t from = n * row / rows / LANES * LANES, to = n * (row + TILE_ROWS) / rows;
    for (int c = 0; c < cols; c++)
        for (int64_t i = from; i < to; i += LANES)
            __builtin_prefetch((const float *)a->x[col + c] + at + i, 0, 2);
}

// Runs the register tile for the panel's layout.
static void panel_tile(const struct matmul_args *a, int cols, const struct tile *t)
{
    if (!is_packed(a))
        tile_f32(cols, t);
    else if (a->type == DT_F16)
        packed_f16(cols, t);
    else if (a->type == DT_BF16)
        packed_bf16(cols, t);
    else
        packed_f32(cols, t);
}

// Computes a tile of rows times a tile of columns for elements [at, at + n) of k. The sums are kept in `kept` from
// one piece of k to the next. After the last piece, they go to the outputs.
static void panel_products(const struct matmul_args *a, struct part tile, int64_t at, int64_t n,
                           const char *const w[TILE_ROWS], struct lanes *kept)
{
    struct lanes *const done = ((struct panel *)a->scratch)->done;
    const bool last = at + n == a->k;
    struct tile t = {.k = n, .from = at ? kept : NULL, .to = last ? done : kept};
    memcpy(t.w, w, sizeof(t.w));
    for (int c = 0; c < tile.cols; c++)
        t.x[c] = (const float *)a->x[tile.col + c] + at;
    panel_tile(a, tile.cols, &t);
    for (int c = 0; last && c < tile.cols; c++)
        tile_put(done, c, tile.rows, a->y[tile.col + c] + tile.row);
}

// Multiplies a panel with all columns of the part.
static void panel_multiply(const struct matmul_args *a, struct part part, int64_t at, int64_t n, struct ahead next)
{
    struct panel *panel = a->scratch;
    const int row_tiles = panel_rows(a) / TILE_ROWS;
    for (int i = 0, col; (col = tile_cut(i, part.cols, TILE_COLS)) < part.cols; i++) {
        const int cols = tile_cut(i + 1, part.cols, TILE_COLS) - col;
        for (int row = 0; row < part.rows; row += TILE_ROWS) {
            if (is_packed(a))
                fetch(&next);
            else if (col + cols < part.cols)
                prefetch_share(a, part.col + col + cols, MIN(cols, part.cols - col - cols), at, n, row, part.rows);
            panel_products(a, (struct part){part.row + row, part.rows - row, part.col + col, cols}, at, n,
                           panel->rows + row, n < a->k ? panel->sums[i * row_tiles + row / TILE_ROWS] : NULL);
        }
    }
}

static void panel_run(const struct matmul_args *a, struct part part, int64_t piece)
{
    for (int64_t at = 0; at < a->k; at += piece) {
        int64_t n = MIN(a->k - at, piece);
        (is_packed(a) ? panel_pack : panel_decode)(a, part, at, n, a->scratch);
        panel_multiply(a, part, at, n, ahead_of(a, part, at, piece));
    }
}

// The number of columns of a part is limited by the room for kept sums. If a packed panel holds all of k, no sums are
// kept, and all columns share it.
static void matmul_panels(const struct matmul_args *a)
{
    const int64_t piece = panel_k(a);
    const int rows = panel_rows(a), most = is_packed(a) && a->k <= piece ? a->n_x : PANEL_ROWS / rows * PANEL_COLS;
    for (int i = 0, col; (col = tile_cut(i, a->n_x, most)) < a->n_x; i++)
        for (int row = 0; row < a->n_rows; row += rows)
            panel_run(a, (struct part){row, MIN(rows, a->n_rows - row), col, tile_cut(i + 1, a->n_x, most) - col},
                      piece);
}

// ---- the table

// Returns the most columns for which reading weights in place, once for each tile of columns, costs less than a
// panel. On Zen 4, which widens 16-bit floats while it multiplies, these are more columns: if a panel does not hold
// all of k, as many as stay in the last-level cache (1.05 to 1.15 times as fast), otherwise 96 columns (1.0 to 1.1
// times as fast). The same 96 columns hold for 32-bit floats (1.08 to 1.16 times as fast for 8 to 64 sequences of a
// model).
static int few_columns(const struct matmul_args *a)
{
    enum { COLUMN_BYTES = 8 << 20 };
    const int fewest = is_16_bits(a->type) ? 4 * TILE_COLS : TILE_COLS;
    if (!is_zen4(a))
        return fewest;
    if (is_16_bits(a->type) && a->k > 2 * PANEL_K)
        return (int)MAX(COLUMN_BYTES / (a->k * (int64_t)sizeof(float)), fewest);
    return COPY_COLS;
}

// FLOATS(name, NAME): defines matmul_name, which chooses the loop by the number of columns.
//   name   f32, f16 or bf16
//   NAME   the type, DT_NAME
#define FLOATS(name, NAME)                                                                                             \
    static void matmul_##name(const struct matmul_args *a)                                                             \
    {                                                                                                                  \
        if (goes_by_streams(a, DT_##NAME))                                                                             \
            matmul_streams(a, DT_##NAME);                                                                              \
        else if (a->n_x <= few_columns(a))                                                                             \
            matmul_few(a, tile_##name);                                                                                \
        else                                                                                                           \
            matmul_panels(a);                                                                                          \
    }
FLOATS(f32, F32)
FLOATS(f16, F16)
FLOATS(bf16, BF16)

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
