// The 8-bit matmul of AMX: many columns of blocks of 256 by matrix tiles; the rest as AVX-512 does it.
//
// A tile product forms 16 columns x 16 rows x 64 elements, eight times what vpdpbusd does in that time, but it knows no
// scales: what a scale must multiply has to leave the tile first. So the scales go in beforehand. A panel (unpacked as
// for AVX-512) is turned into two planes of bytes, high and low, of the weights times their integer scales: w * scale =
// high * 2^shift + low.
//   Q2_K, Q4_K, Q5_K  scale = 8 s1 + s0, high = w * s1, low = w * s0: unsigned, at most 31 * 7 = 217 (shift 3)
//   Q3_K, Q6_K, IQ4_XS  |w * scale| <= 4096 with its sign: high = (product + 32) >> 6, |high| <= 64, and low is what is
//                     left, -32 .. 31 (shift 6)
// Then a whole block is summed up in the tiles, and isum = (sum of high << shift) + sum of low, exact as ever. Types
// with blocks of 32 have floats for scales: their sums would leave the tiles after every 32 elements, which gains
// nothing.
//
// What comes out of the tiles (a register a column, a lane a row) goes through the floats of kernels.h while the next
// tiles are multiplied: it waits as the `job`. The tiles are the CPU's own state: set up and given back in each call.
#include "kernels/cpu/matmul_q8_avx512.h"

enum {
    TILE_COLS = 16,          // columns of activations a tile: its rows, as the instructions have it
    COLUMNS = 2 * TILE_COLS, // that go together
    ROWS = GROUP,            // rows of weights a tile
    PANELS = 2,              // that are unpacked before the columns come: those are far away, and come once for both
    HEIGHT = PANELS * PANEL, // rows of them
    SWEEP_ROWS = 32,         // rows whose bytes stay in the L1 cache while all columns pass
    COLUMNS_MIN = 48,        // fewer are served better without tiles
    COLUMNS_MAX = 512,       // that they serve
};

// ---- tiles. The compiler is told that memory is read and written; the order of volatile statements stays.

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

// All of 16 rows of 64 bytes. Tiles 0-3 hold sums, 4 and 5 the 64 elements of 16 columns each, 6 and 7 those of 16 rows
// of weights, in words of four.
static void configure_tiles(void)
{
    _Alignas(64) struct tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++)
        c.rows[t] = 16, c.row_bytes[t] = 64;
    __asm__ volatile("ldtilecfg %0" ::"m"(c) : "memory");
}

static void release_tiles(void)
{
    __asm__ volatile("tilerelease" ::: "memory");
}

#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::)
#define TILE_LOAD(t, from, stride)                                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(from), "r"((long)(stride)) : "memory")
#define TILE_STORE(t, to, stride)                                                                                      \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(to), "r"((long)(stride)) : "memory")
// sums t += columns a (signed) . rows b
#define TILE_DOT_UNSIGNED(t, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #t ::)
#define TILE_DOT_SIGNED(t, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #t ::)
#define TILE_DOT(is_signed, t, a, b)                                                                                   \
    do {                                                                                                               \
        if (is_signed)                                                                                                 \
            TILE_DOT_SIGNED(t, a, b);                                                                                  \
        else                                                                                                           \
            TILE_DOT_UNSIGNED(t, a, b);                                                                                \
    } while (0)

// ---- what lies in scratch

// Bytes of weights as the tiles want them: for each 16 rows 4 KB, a tile a KB.
typedef uint8_t plane[PANEL / ROWS][SPAN / 4][ROWS][4];

// D of a column, while it waits for the next span.
struct sums {
    _Alignas(64) float d[HEIGHT];
};

// Up to 32 columns in a span: a view of their q8 rows, or of a copy where fewer are left or they do not lie evenly.
struct tokens {
    const int8_t *q;
    size_t stride;
    int first, n;
};

// Sums that have left the tiles and wait for the floats.
struct job {
    struct tokens tokens; // n = 0: nothing waits
    int row;              // first of the 16, of all panels'
    _Alignas(64) int32_t high[COLUMNS][ROWS], low[COLUMNS][ROWS];
};

struct work {
    _Alignas(64) plane high[PANELS], low[PANELS];
    struct job job;
    float da[COLUMNS_MAX];         // of all columns in the span, and so
    int32_t pairs[COLUMNS_MAX][8]; // the int16 pairs of sums that their types' mins want
    struct sums sums[COLUMNS_MAX];
    _Alignas(64) int8_t copy[2][COLUMNS][SPAN];
    struct panel panel[PANELS];
};
_Static_assert(sizeof(struct work) <= SCRATCH_BYTES, "the panels and their sums fit the scratch");

// ---- weights times scales

enum fold { FOLD_UNSIGNED, FOLD_SIGNED };

struct kind {
    enum fold fold;
    int offset; // of the panel's weights
    int run;    // elements a scale
    bool mins;
};

static const struct kind kinds[DT_COUNT] = {
    [DT_Q2_K] = {FOLD_UNSIGNED, 0, 16, true}, [DT_Q4_K] = {FOLD_UNSIGNED, 0, 32, true},
    [DT_Q5_K] = {FOLD_UNSIGNED, 0, 32, true}, [DT_Q3_K] = {FOLD_SIGNED, 4, 16, false},
    [DT_Q6_K] = {FOLD_SIGNED, 32, 16, false}, [DT_IQ4_XS] = {FOLD_SIGNED, 128, 32, false},
};

// A word of each row holds four weights, bytes up to 31. Times a scale up to 7 they stay bytes: so 16-bit products
// serve two.
static void fold_unsigned(const struct panel *p, plane high, plane low, int run)
{
    const __m512i seven = _mm512_set1_epi32(7);
    for (int k = 0; k < SPAN; k += run)
        for (int lane = 0; lane < PANEL; lane += GROUP) {
            __m512i scale = _mm512_load_si512(&p->scale[k / run][lane]);
            __m512i s1 = _mm512_srli_epi32(scale, 3), s0 = _mm512_and_si512(scale, seven);
            s1 = _mm512_or_si512(s1, _mm512_slli_epi32(s1, 16));
            s0 = _mm512_or_si512(s0, _mm512_slli_epi32(s0, 16));
            for (int i = k / 4; i < (k + run) / 4; i++) {
                __m512i w = _mm512_load_si512(p->w[i][lane]);
                _mm512_store_si512(high[lane / ROWS][i], _mm512_mullo_epi16(w, s1));
                _mm512_store_si512(low[lane / ROWS][i], _mm512_mullo_epi16(w, s0));
            }
        }
}

// The bytes of two registers of 16-bit numbers: those of `even`, and those of `odd` above them.
INLINE __m512i interleave_bytes(__m512i even, __m512i odd)
{
    return _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, even, _mm512_slli_epi16(odd, 8));
}

// Products plus 32 are w * scale + (32 - offset * scale), in 16 bits.
static void fold_signed(const struct panel *p, plane high, plane low, int run, int offset)
{
    const __m512i half = _mm512_set1_epi16(32), rest = _mm512_set1_epi8(63), back = _mm512_set1_epi8(32);
    for (int k = 0; k < SPAN; k += run)
        for (int lane = 0; lane < PANEL; lane += GROUP) {
            __m512i scale = _mm512_load_si512(&p->scale[k / run][lane]);
            scale = _mm512_mask_blend_epi16(0xaaaaaaaa, scale, _mm512_slli_epi32(scale, 16));
            __m512i add = _mm512_sub_epi16(half, _mm512_mullo_epi16(scale, _mm512_set1_epi16((short)offset)));
            for (int i = k / 4; i < (k + run) / 4; i++) {
                __m512i w = _mm512_load_si512(p->w[i][lane]);
                __m512i even = _mm512_and_si512(w, _mm512_set1_epi16(255)), odd = _mm512_srli_epi16(w, 8);
                even = _mm512_add_epi16(_mm512_mullo_epi16(even, scale), add);
                odd = _mm512_add_epi16(_mm512_mullo_epi16(odd, scale), add);
                __m512i left = _mm512_and_si512(interleave_bytes(even, odd), rest);
                even = _mm512_srai_epi16(even, 6), odd = _mm512_srai_epi16(odd, 6);
                _mm512_store_si512(high[lane / ROWS][i], interleave_bytes(even, odd));
                _mm512_store_si512(low[lane / ROWS][i], _mm512_sub_epi8(left, back));
            }
        }
}

static void fold_scales(struct work *w, const struct kind *kind, int i)
{
    if (kind->fold == FOLD_UNSIGNED)
        fold_unsigned(&w->panel[i], w->high[i], w->low[i], kind->run);
    else
        fold_signed(&w->panel[i], w->high[i], w->low[i], kind->run, kind->offset);
}

// ---- columns

// Some of the columns: all, but for COLUMNS_MAX. Their q8 rows lie `stride` apart, 0: not evenly.
struct part {
    int first, n;
    size_t stride;
};

static struct part part_from(const struct matmul_args *a, int first)
{
    struct part p = {.first = first, .n = MIN(a->n_x - first, (int)COLUMNS_MAX)};
    const void *const *x = a->x + first;
    p.stride = p.n > 1 ? (size_t)((const char *)x[1] - (const char *)x[0]) : 0;
    for (int j = 2; j < p.n; j++)
        if ((size_t)((const char *)x[j] - (const char *)x[j - 1]) != p.stride)
            p.stride = 0;
    return p;
}

static void copy_columns(const void *const *x, int n, int64_t span, int8_t copy[COLUMNS][SPAN])
{
    for (int j = 0; j < COLUMNS; j++)
        for (int i = 0; i < SPAN; i += 64) {
            __m512i v = _mm512_setzero_si512();
            if (j < n)
                v = load_512(q8_quants(x[j]) + span * SPAN + i);
            _mm512_store_si512(&copy[j][i], v);
        }
}

// The columns from first on. What waits may still use one copy: the other is taken.
static struct tokens take_columns(const struct matmul_args *a, const struct part *part, int first, int64_t span)
{
    struct work *w = a->scratch;
    const void *const *x = a->x + part->first + first;
    struct tokens t = {.first = first, .n = MIN(part->n - first, (int)COLUMNS), .stride = part->stride};
    t.q = q8_quants(x[0]) + span * SPAN;
    if (t.n < COLUMNS || !t.stride) {
        int8_t(*copy)[SPAN] = w->copy[first / COLUMNS % 2];
        copy_columns(x, t.n, span, copy);
        t.q = copy[0];
        t.stride = SPAN;
    }
    return t;
}

INLINE const int16_t *sums_in_span(const struct matmul_args *a, const struct part *part, int j, int64_t span)
{
    return q8_sums(a->x[part->first + j], a->k) + span * (SPAN / Q8_SUMS);
}

// Scales and sums of all columns, as their types' mins want them.
static void take_sums(const struct matmul_args *a, const struct part *part, int64_t span)
{
    struct work *w = a->scratch;
    const struct kind *kind = &kinds[a->type];
    const __m256i ones = _mm256_set1_epi16(1);
    for (int j = 0; j < part->n; j++)
        w->da[j] = q8_scales(a->x[part->first + j], a->k)[span];
    if (!kind->mins)
        return;
    for (int j = 0; j < part->n; j++) {
        __m256i sums = load_256(sums_in_span(a, part, j, span)), of_32 = _mm256_madd_epi16(sums, ones);
        if (kind->run == 16)
            _mm256_storeu_si256((__m256i *)w->pairs[j], sums);
        else
            _mm_storeu_si128((__m128i *)w->pairs[j], _mm256_cvtepi32_epi16(of_32));
    }
}

// ---- the floats of what has left the tiles, columns from .. to - 1

// `seen` is 0 in the first span, where there is no D to go on with.
INLINE void finish(struct work *w, __mmask16 seen, int from, int to, int shift, int min_pairs)
{
    to = MIN(to, w->job.tokens.n);
    if (from >= to)
        return;
    const int row = w->job.row, lane = row % PANEL, first = w->job.tokens.first;
    const struct panel *panel = &w->panel[row / PANEL];
    const __m512 d = _mm512_load_ps(panel->d[0] + lane), m = _mm512_load_ps(panel->m[0] + lane);
    __m512i min_of[8];
    UNROLL
    for (int s = 0; s < min_pairs; s++)
        min_of[s] = _mm512_load_si512(panel->min[s] + lane);
    for (int j = from; j < to; j++) {
        __m512i high = _mm512_load_si512(w->job.high[j]), low = _mm512_load_si512(w->job.low[j]);
        __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high, (unsigned)shift), low), min = _mm512_setzero_si512();
        __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), d);
        UNROLL
        for (int i = 0; i < min_pairs; i++)
            min = _mm512_dpwssd_epi32(min, min_of[i], _mm512_set1_epi32(w->pairs[first + j][i]));
        if (min_pairs)
            s = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(min), m, s);
        float *total = w->sums[first + j].d + row;
        s = _mm512_fmadd_ps(s, _mm512_set1_ps(w->da[first + j]), _mm512_maskz_load_ps(seen, total));
        _mm512_store_ps(total, s);
    }
}

// ---- the tiles

// 16 rows from `row` on with all columns, over 256 elements. The job before this one is finished meanwhile.
INLINE void multiply_tiles(struct work *w, const struct tokens *t, int row, __mmask16 seen, bool is_signed, int shift,
                           int min_pairs)
{
    const bool both = t->n > TILE_COLS;
    const int panel = row / PANEL, group = row % PANEL / ROWS;
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int k = 0; k < SPAN; k += 64) {
        TILE_LOAD(4, t->q + k, t->stride);
        TILE_LOAD(6, w->high[panel][group][k / 4], 64);
        TILE_DOT(is_signed, 0, 4, 6);
        TILE_LOAD(7, w->low[panel][group][k / 4], 64);
        TILE_DOT(is_signed, 1, 4, 7);
        if (both) {
            TILE_LOAD(5, t->q + TILE_COLS * t->stride + k, t->stride);
            TILE_DOT(is_signed, 2, 5, 6);
            TILE_DOT(is_signed, 3, 5, 7);
        }
        finish(w, seen, k / 8, k / 8 + 8, shift, min_pairs);
    }
    TILE_STORE(0, w->job.high[0], 64);
    TILE_STORE(1, w->job.low[0], 64);
    TILE_STORE(2, w->job.high[TILE_COLS], 64);
    TILE_STORE(3, w->job.low[TILE_COLS], 64);
    w->job.tokens = *t;
    w->job.row = row;
}

// What waits is finished, and nothing waits any more.
INLINE void finish_job(struct work *w, __mmask16 seen, int shift, int min_pairs)
{
    finish(w, seen, 0, COLUMNS, shift, min_pairs);
    w->job.tokens.n = 0;
}

// ---- all rows and columns

struct runner {
    void (*run)(struct work *w, const struct tokens *t, int row, __mmask16 seen);
    void (*drain)(struct work *w, __mmask16 seen);
};

#define RUNNER(name, is_signed, shift, min_pairs)                                                                      \
    static void run_##name(struct work *w, const struct tokens *t, int row, __mmask16 seen)                            \
    {                                                                                                                  \
        multiply_tiles(w, t, row, seen, is_signed, shift, min_pairs);                                                  \
    }                                                                                                                  \
    static void drain_##name(struct work *w, __mmask16 seen)                                                           \
    {                                                                                                                  \
        finish_job(w, seen, shift, min_pairs);                                                                         \
    }                                                                                                                  \
    static const struct runner name = {run_##name, drain_##name};

RUNNER(unsigned_mins_of_32, false, 3, 4)
RUNNER(unsigned_mins_of_16, false, 3, 8)
RUNNER(signed_no_mins, true, 6, 0)

static const struct runner *runner_of(enum dtype type)
{
    if (kinds[type].fold == FOLD_SIGNED)
        return &signed_no_mins;
    return kinds[type].run == 16 ? &unsigned_mins_of_16 : &unsigned_mins_of_32;
}

// Asks for the places of rows `from` .. `to`, which will be stored soon.
static void prefetch_outputs(const struct matmul_args *a, const struct part *part, const struct tokens *t, int from,
                             int to)
{
    for (int j = 0; j < t->n; j++)
        for (int r = from; r < to; r += 16)
            _mm_prefetch((const char *)(a->y[part->first + t->first + j] + r), _MM_HINT_T0);
}

// The finished rows `from` .. `to` - 1 of those at `row`, of some columns of the part.
static void store(const struct matmul_args *a, const struct part *part, const struct tokens *t, int row, int from,
                  int to)
{
    const struct work *w = a->scratch;
    for (int j = t->first; j < t->first + t->n; j++)
        for (int r = from; r < to; r += GROUP)
            _mm512_mask_storeu_ps(a->y[part->first + j] + row + r, rows_mask(a, row + r),
                                  _mm512_load_ps(w->sums[j].d + r));
}

// A span of rows `from` .. `to` of those at `row` with all columns of the part. In the last span they are stored.
static void sweep(const struct matmul_args *a, const struct part *part, int row, int from, int to, int64_t span)
{
    struct work *w = a->scratch;
    const struct runner *runner = runner_of(a->type);
    const __mmask16 seen = span ? 0xffff : 0;
    const bool last = span == q8_blocks(a->k) - 1;
    for (int j = 0; j < part->n; j += COLUMNS) {
        struct tokens t = take_columns(a, part, j, span);
        if (last)
            prefetch_outputs(a, part, &t, row + from, row + to);
        for (int r = from; r < to; r += ROWS)
            runner->run(w, &t, r, seen);
        if (last) {
            runner->drain(w, seen);
            store(a, part, &t, row, from, to);
        }
    }
    runner->drain(w, seen);
}

static void multiply_panels(const struct matmul_args *a, const struct part *part, int row)
{
    struct work *w = a->scratch;
    int rows = MIN(a->n_rows - row, (int)HEIGHT);
    for (int64_t span = 0; span < q8_blocks(a->k); span++) {
        for (int i = 0; i * PANEL < rows; i++) {
            int at = i * PANEL;
            ISA_FN(matmul_q8_unpack_panel)(a, row + at, MIN(rows - at, (int)PANEL), PANEL, span, &w->panel[i]);
            fold_scales(w, &kinds[a->type], i);
        }
        take_sums(a, part, span);
        for (int at = 0; at < rows; at += SWEEP_ROWS)
            sweep(a, part, row, at, MIN(at + SWEEP_ROWS, rows), span);
    }
}

static void multiply(const struct matmul_args *a)
{
    struct work *w = a->scratch;
    w->job.tokens.n = 0;
    configure_tiles();
    for (int row = 0; row < a->n_rows; row += HEIGHT)
        for (int first = 0; first < a->n_x; first += COLUMNS_MAX) {
            struct part part = part_from(a, first);
            multiply_panels(a, &part, row);
        }
    release_tiles();
}

bool matmul_q8_in_tiles_amx(enum dtype type, int64_t n)
{
    return n >= COLUMNS_MIN && kinds[type].run;
}

static void matmul(const struct matmul_args *a)
{
    if (a->n_x <= 2)
        ISA_FN(matmul_q8_decode)[a->type](a);
    else if (!matmul_q8_in_tiles_amx(a->type, a->n_x))
        ISA_FN(matmul_q8_panel)[a->type](a);
    else
        multiply(a);
}

matmul_fn *const matmul_q8_table_amx[DT_COUNT] = {
    [DT_Q4_0] = matmul,   [DT_Q4_1] = matmul,   [DT_Q5_0] = matmul,  [DT_Q5_1] = matmul, [DT_Q8_0] = matmul,
    [DT_Q2_K] = matmul,   [DT_Q3_K] = matmul,   [DT_Q4_K] = matmul,  [DT_Q5_K] = matmul, [DT_Q6_K] = matmul,
    [DT_IQ4_NL] = matmul, [DT_IQ4_XS] = matmul, [DT_MXFP4] = matmul,
};
