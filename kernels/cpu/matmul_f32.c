// Float activations times a weight of any type.
//
// The naive loop: for each row r and column j of the outputs, for each k: sum[k % LANES] += w[r][k] * x[j][k]; then the
// LANES sums by halves. Two steps lead from there to what stands below, and neither touches the order of one output's
// sums:
//   - A register tile of TILE_ROWS x TILE_COLS outputs goes through k together: see matmul_f32_tile.h.
//   - Few columns read plain floats where they lie. Many columns, and all types that must be decoded, go by panels:
//     PANEL_ROWS rows are decoded to float32 for PANEL_K of k, which all columns then share while they lie in the
//     cache; the sums wait in scratch from one piece of k to the next.
//   - On AVX2, whose tile goes once for each half of the lanes, panels are packed (matmul_f32_tile.h): rows a page apart, of whose
//     lines half is used at a time, take half as long again. 16-bit floats are packed as they are; these on AVX-512, too,
//     where the CPU widens them beside its multiplications (Zen 4: 1.13 to 1.27 times as fast as decoded rows), and
//     floats of 32 bits for very many columns (there 1.02 to 1.2 times as fast as rows where they lie).
#include "kernels/cpu/matmul_f32_tile.h"

#ifdef VEC_AVX2
enum { PACKS_ALL = 1, PANEL_ROWS = 64, PANEL_COLS = 48, PACKED_K = 1024 };
#else
enum { PACKS_ALL = 0, PANEL_ROWS = 48, PANEL_COLS = 72, PACKED_K = 2048 };
#endif
enum { PANEL_K = 1024 }; // a multiple of every block. A tile's piece of x and of w is 40 KB at most: the first cache
// PACKED_K: so much of k a packed panel of 32-bit floats holds, and where that is more than PANEL_K the fewer rows. On Zen 4
// rows of 2048, which so keep no sums, are 1.2 times as fast, longer ones about even; on AVX2 0.66 to 0.94 times.

struct panel {
    const char *rows[PANEL_ROWS]; // in w, or in the weight itself; packed, where those of its tile begin
    float w[PANEL_ROWS / TILE_ROWS][TILE_ROWS * PANEL_K];
    float row[PACKED_K]; // decoded, before it is packed
    struct lanes sums[PANEL_COLS / TILE_COLS * (PANEL_ROWS / TILE_ROWS)]
                     [TILE_ROWS * TILE_COLS]; // columns' tiles in turn
    struct lanes done[TILE_ROWS * TILE_COLS]; // of a tile, on their way to the outputs
};
_Static_assert(sizeof(struct panel) <= SCRATCH_BYTES, "a panel fits into a thread's scratch");
_Static_assert(PANEL_ROWS % TILE_ROWS == 0 && PANEL_COLS % TILE_COLS == 0, "panels are whole tiles");
_Static_assert(PANEL_ROWS *PANEL_K / PACKED_K % TILE_ROWS == 0, "and so are packed ones");

// ---- few columns of plain floats

// Where the hardware reads ahead by itself, memory is read as four long streams. Of four neighbours one row ends in the page
// in which the next begins, and which of the two to follow the hardware cannot tell.
static void rows_of_tile(const struct row_cut *cut, int tile, const void *w, size_t stride, int n, const char *rows[])
{
    for (int i = 0; i < n; i++)
        rows[i] = (const char *)w + (size_t)row_of_cut(cut, tile, i) * stride;
}

// What is read after a tile of n rows, behind the last of them what the caller reads next, whose rows are cut alike: these
// begin where no row so far has led the hardware. Where that is not known, rows that are in the cache.
static void rows_ahead(const struct matmul_args *a, const struct row_cut *cut, int tile, int n, const char *rows[])
{
    if (tile + 1 < cut->groups || !a->next)
        rows_of_tile(cut, tile + 1, a->w, a->w_stride, n, rows);
    else
        rows_of_tile(cut, 0, a->next, a->next_stride, n, rows);
}

// Column c of a tile's sums, to its output.
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

// ---- one column of plain floats, where a register holds all lanes of a sum
//
// On Zen 4, where memory is fast. Of 16 bits four streams in which the hardware reads on by itself are read at 1.04 to 1.07 of
// plain reading, eight by requests at 0.9 (probably as requests wait for a core's own few open misses). A longer row's
// activations fill the first-level cache; eight rows share a load of them (0.92 to 0.97). F32 by requests: 1.08.

enum { STREAMS = 8, STREAMS_SHORT = 4, SHORT_K = 2048 };

// Steps through n rows from element `from` to `end`, which are whole lines, while as much of what lies at `ahead` is fetched
// into L2. NULL: nothing is.
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

// Whole rows; beside their end the start of those that come after them is fetched.
INLINE void stream_rows_asked(enum dtype type, int n, const char *const w[STREAMS], const char *const next[STREAMS],
                              const float *x, int64_t k, vec sums[STREAMS])
{
    const int64_t turn = MAX(k - FETCH_STREAM / (int64_t)weight_bytes(type), 0);
    const char *ahead[STREAMS];
    for (int r = 0; r < n; r++)
        ahead[r] = w[r] + FETCH_STREAM;
    stream_lines(type, n, w, ahead, x, 0, turn, sums);
    stream_lines(type, n, w, next, x, turn, k, sums);
}

static void fetch_starts(const char *const next[STREAMS], int n)
{
    for (int at = 0; at < FETCH_START; at += FETCH_LINE)
        for (int r = 0; r < n; r++)
            __builtin_prefetch(next[r] + at, 0, 2);
}

// Whether a product goes this way: rows that end within a line are left to the tiles.
INLINE bool goes_by_streams(const struct matmul_args *a, enum dtype type)
{
    return PARTS == 1 && a->n_x == 1 && a->reading == READING_PREFETCHED &&
           a->k * (int64_t)weight_bytes(type) % FETCH_LINE == 0;
}

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
            stream_rows_asked(type, n, w, next, a->x[0], a->k, sums);
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

// The part of the outputs that a panel makes: rows [row, row + rows), columns [col, col + cols).
struct part {
    int row, rows, col, cols;
};

static bool is_16_bits(enum dtype type)
{
    return type == DT_F16 || type == DT_BF16;
}

// What differs on Zen 4 with AVX-512 below was timed there alone; its way of reading stands for it.
static bool is_zen4(const struct matmul_args *a)
{
    return !PACKS_ALL && !ALWAYS_BY_ROW && reads_streams(a->reading);
}

// A copy of what need not be decoded is too dear for few columns; on AVX-512 any of 32 bits is.
enum { COPY_COLS = PACKS_ALL ? 8 * TILE_COLS : 16 * TILE_COLS };

static bool is_packed(const struct matmul_args *a)
{
    if (PACKS_ALL)
        return a->type != DT_F32 || a->n_x > COPY_COLS;
    return is_zen4(a) && (is_16_bits(a->type) || a->n_x > COPY_COLS);
}

// The shape of a panel: so much of k (of 16 bits twice as many fit), and so many rows.
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

// Elements [at, at + n) of the rows, as floats: F32 where it lies. A tile that hangs over takes the last row again.
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

// The same, packed. Of rows that a tile hangs over by nobody takes the sums.
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

// What is packed after this: the bytes of some rows, asked for a few lines at a time.
struct ahead {
    const char *row;
    size_t stride, bytes, at; // of a row
    int rows, lines;          // that are left; for each tile
};

// After the piece of k at `at`: the next one of the same rows, or the first of the rows behind them, or of the next item's.
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

// While a tile of columns goes over the rows, the next one's piece of x is fetched, for each tile of rows its share.
static void prefetch_share(const struct matmul_args *a, int col, int cols, int64_t at, int64_t n, int row, int rows)
{
    int64_t from = n * row / rows / LANES * LANES, to = n * (row + TILE_ROWS) / rows;
    for (int c = 0; c < cols; c++)
        for (int64_t i = from; i < to; i += LANES)
            __builtin_prefetch((const float *)a->x[col + c] + at + i, 0, 2);
}

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

// A tile of columns over a tile of rows. Sums stay in the panel (`kept`) from one piece of k to the next; the last one's go
// to the outputs.
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

// Where one piece is all of k, no sums have to wait, and all columns share a packed panel.
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

// Up to so many columns decoding anew for each tile costs less than a panel. Where 16 bits are widened beside multiplications it
// does for longer: on Zen 4, where a panel does not hold all of k, 1.05 to 1.15 times as fast as long as the columns stay in
// the last cache, else up to 96 columns 1.0 to 1.1 times. So it is with 32 bits (8 to 64 sequences of a model 1.08 to 1.16).
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
