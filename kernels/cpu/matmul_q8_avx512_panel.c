// Many columns: a panel of 32 rows by 256 elements is unpacked once, and all columns sweep over it.
//
// The naive loop: for each row, column and block of 256, isum = sum of scale[j] * (w . q)[j]; D = fma(isum, d * da, D).
// Now lane r of a register belongs to row r, so that nothing has to be added up across lanes:
//   - Weights are unpacked to unsigned bytes [k / 4][32 rows][4]. vpdpbusd multiplies 16 rows' four bytes with four bytes of
//     one column, broadcast. A tile of 32 rows and 6 columns keeps 12 sums going with 2 loads and 6 broadcasts a step.
//   - The sum of a run of elements starts at minus the offset of the weights times the sum of the run's activations. So the
//     offset costs nothing, and the runs are so short that their sums fit 16 bits: then vpdpwssd with the pair
//     (scale, 0) multiplies and adds in one operation what vpmulld and vpaddd take three for.
//   - Two panels, 64 rows, are unpacked at a time: they stay in the L1 cache while the columns pass, and what is prepared
//     for the columns serves both. The float sums D of 64 rows wait in scratch for the next block.
#include "kernels/cpu/matmul_q8_avx512.h"

enum {
    SPAN = 256,          // elements of k at a time
    PANEL = 32,          // rows of a tile: two registers
    PANELS = 2,          // panels at a time
    TILE_COLUMNS = 6,
    COLUMNS_MAX = 516,   // columns at a time, whole tiles
    AHEAD = 2,           // spans between the request for bytes and their use
};

// Lane r of each row of numbers belongs to row r of the panel.
struct panel {
    uint8_t w[SPAN / 4][PANEL][4];   // w + offset
    int32_t scale[16][PANEL];        // int16 pairs (scale, 0)
    int32_t back[4][PANEL];          // int16 pairs, of sub-blocks of 32: what the offset took away too much, over sum(q)
    int32_t min[8][PANEL];           // int16 pairs
    float d[8][PANEL], m[8][PANEL];  // of the block of 256, or of its blocks of 32
};

// What a tile wants to know of its columns, in this span.
struct columns {
    const int8_t *q[TILE_COLUMNS];
    int32_t start[TILE_COLUMNS][32];  // of each run: - offset * sum(q)
    int32_t pairs[TILE_COLUMNS][8];   // int16 pairs of sums of 16 or 32 activations
    float sums[TILE_COLUMNS][8];      // of 32 activations
    float da[TILE_COLUMNS];
    int n;
};

// D of a column.
struct partial {
    _Alignas(64) float d[PANELS][PANEL];
};

// ---- unpacking: 16 rows into the lanes from `lane` on

static void put_words(struct panel *p, int lane, int k, __m512i w)
{
    _mm512_store_si512(p->w[k / 4][lane], w);
}

INLINE __m512i low_nibbles(__m512i v)
{
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}

INLINE __m512i high_nibbles(__m512i v)
{
    return low_nibbles(_mm512_srli_epi16(v, 4));
}

INLINE void put_header_k4(struct panel *p, int lane, const struct header_k4 *h, int offset)
{
    for (int j = 0; j < 8; j++)
        _mm512_store_si512(&p->scale[j][lane], byte_to_word(h->scale[j / 4], j % 4));
    for (int j = 0; j < 4; j++) {
        __m512i pair = bytes_to_pair(h->scale[j / 2], j % 2 * 2, j % 2 * 2 + 1);
        _mm512_store_si512(&p->back[j][lane], _mm512_mullo_epi16(pair, _mm512_set1_epi16((short)offset)));
        _mm512_store_si512(&p->min[j][lane], bytes_to_pair(h->min[j / 2], j % 2 * 2, j % 2 * 2 + 1));
    }
    _mm512_store_ps(&p->d[0][lane], h->d);
    _mm512_store_ps(&p->m[0][lane], h->m);
}

static void unpack_q4_k(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane)
{
    (void)n_blocks;
    struct header_k4 h = load_header_k4(g, at);
    put_header_k4(p, lane, &h, 8);
    for (int c = 0; c < 8; c++) {  // 16 bytes: 16 elements of an even and an odd sub-block
        __m512i t[4];
        load_words(g, at + 16 + 16 * (size_t)c, t);
        int k = c / 2 * 64 + c % 2 * 16;
        for (int i = 0; i < 4; i++) {
            put_words(p, lane, k + 4 * i, low_nibbles(t[i]));
            put_words(p, lane, k + 32 + 4 * i, high_nibbles(t[i]));
        }
    }
}

// ---- preparing a column

// Sums of 32 activations, as int32 and as int16 pairs.
INLINE __m256i sums_of_32(const int16_t *sums)
{
    return _mm256_madd_epi16(load_256(sums), _mm256_set1_epi16(1));
}

INLINE void put_pairs_of_32(struct columns *c, int j, __m256i sums)
{
    __m128i packed = _mm_packs_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    _mm_storeu_si128((__m128i *)c->pairs[j], packed);
}

static void prepare_q4_k(struct columns *c, int j, const int16_t *sums)
{
    __m256i s = sums_of_32(sums);
    put_pairs_of_32(c, j, s);
    _mm256_storeu_si256((__m256i *)c->start[j], _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(s, 3)));
}

// ---- tiles

// One step of 4 elements for n columns: acc[j][i] += w[i] . q[j].
INLINE void step(__m512i acc[][2], const uint8_t *w, const int8_t *const *q, int at, int n)
{
    const __m512i w0 = _mm512_load_si512(w + at * PANEL), w1 = _mm512_load_si512(w + at * PANEL + 64);
#pragma GCC unroll 6
    for (int j = 0; j < n; j++) {
        const __m512i b = broadcast_32(q[j] + at);
        acc[j][0] = _mm512_dpbusd_epi32(acc[j][0], w0, b);
        acc[j][1] = _mm512_dpbusd_epi32(acc[j][1], w1, b);
    }
}

// sum[j][i] += the dot of n int16 pairs of the rows with those of column j.
INLINE void add_pairs(__m512i sum[][2], const int32_t pairs[][PANEL], const int32_t (*columns)[8], int s, int n)
{
    const __m512i p0 = _mm512_load_si512(&pairs[s][0]), p1 = _mm512_load_si512(&pairs[s][16]);
#pragma GCC unroll 6
    for (int j = 0; j < n; j++) {
        const __m512i x = _mm512_set1_epi32(columns[j][s]);
        sum[j][0] = _mm512_dpwssd_epi32(sum[j][0], p0, x);
        sum[j][1] = _mm512_dpwssd_epi32(sum[j][1], p1, x);
    }
}

// Runs of `run` elements, whose sums fit 16 bits; a scale for every `per_scale`.
INLINE void tile_scaled(const struct panel *p, const struct columns *c, int n, int run, int per_scale, bool back,
                        int min_pairs, struct partial *out, int which)
{
    __m512i sum[TILE_COLUMNS][2];
    const int8_t *q[TILE_COLUMNS];
#pragma GCC unroll 6
    for (int j = 0; j < n; j++) {
        sum[j][0] = sum[j][1] = _mm512_setzero_si512();
        q[j] = c->q[j];
    }
    const uint8_t *w = p->w[0][0];
    const int32_t *scale = p->scale[0], *start = c->start[0];
#pragma GCC unroll 1
    for (int k = 0; k < SPAN; k += per_scale) {
        __m512i s0 = _mm512_load_si512(scale), s1 = _mm512_load_si512(scale + 16);
#pragma GCC unroll 2
        for (int r = 0; r < per_scale / run; r++) {
            __m512i acc[TILE_COLUMNS][2];
#pragma GCC unroll 6
            for (int j = 0; j < n; j++)
                acc[j][0] = acc[j][1] = _mm512_set1_epi32(start[32 * j + r]);
#pragma GCC unroll 8
            for (int at = r * run; at < r * run + run; at += 4)
                step(acc, w, q, at, n);
#pragma GCC unroll 6
            for (int j = 0; j < n; j++) {
                sum[j][0] = _mm512_dpwssd_epi32(sum[j][0], acc[j][0], s0);
                sum[j][1] = _mm512_dpwssd_epi32(sum[j][1], acc[j][1], s1);
            }
        }
#pragma GCC unroll 6
        for (int j = 0; j < n; j++)
            q[j] += per_scale;
        w += per_scale * PANEL;
        scale += PANEL;
        start += per_scale / run;
    }
    __m512i min[TILE_COLUMNS][2];
#pragma GCC unroll 6
    for (int j = 0; j < n; j++)
        min[j][0] = min[j][1] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int s = 0; s < min_pairs; s++) {
        if (back)
            add_pairs(sum, p->back, c->pairs, s, n);
        add_pairs(min, p->min, c->pairs, s, n);
    }
#pragma GCC unroll 6
    for (int j = 0; j < n; j++) {
        const __m512 da = _mm512_set1_ps(c->da[j]);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[j][i]), _mm512_load_ps(&p->d[0][16 * i]));
            if (min_pairs)
                s = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(min[j][i]), _mm512_load_ps(&p->m[0][16 * i]), s);
            float *total = out[j].d[which] + 16 * i;
            _mm512_store_ps(total, _mm512_fmadd_ps(s, da, _mm512_load_ps(total)));
        }
    }
}

typedef void tile_fn(const struct panel *p, const struct columns *c, int n_blocks, struct partial *out, int which);

#define TILES(name, TILE)                                                                                              \
    static void tile_##name##_1(const struct panel *p, const struct columns *c, int n_blocks, struct partial *out, int which) { enum { N = 1 }; TILE; } \
    static void tile_##name##_2(const struct panel *p, const struct columns *c, int n_blocks, struct partial *out, int which) { enum { N = 2 }; TILE; } \
    static void tile_##name##_3(const struct panel *p, const struct columns *c, int n_blocks, struct partial *out, int which) { enum { N = 3 }; TILE; } \
    static void tile_##name##_4(const struct panel *p, const struct columns *c, int n_blocks, struct partial *out, int which) { enum { N = 4 }; TILE; } \
    static void tile_##name##_5(const struct panel *p, const struct columns *c, int n_blocks, struct partial *out, int which) { enum { N = 5 }; TILE; } \
    static void tile_##name##_6(const struct panel *p, const struct columns *c, int n_blocks, struct partial *out, int which) { enum { N = 6 }; TILE; }

TILES(q4_k, ((void)n_blocks, tile_scaled(p, c, N, 32, 32, true, 4, out, which)))

struct kind {
    size_t bytes;  // of a span
    void (*unpack)(const struct rows16 *g, size_t at, int n_blocks, struct panel *p, int lane);
    void (*prepare)(struct columns *c, int j, const int16_t *sums);
    tile_fn *tile[TILE_COLUMNS + 1];
};
#define TILE_TABLE(name) {NULL, tile_##name##_1, tile_##name##_2, tile_##name##_3, tile_##name##_4, tile_##name##_5, tile_##name##_6}

struct work {
    struct panel panel[PANELS];
    struct columns columns[COLUMNS_MAX / TILE_COLUMNS];
    struct partial partial[COLUMNS_MAX];
};
_Static_assert(sizeof(struct work) <= SCRATCH_BYTES, "the panel's memory");

static void prepare_columns(const struct matmul_args *a, const struct kind *kind, int first, int n, int64_t span,
                            struct work *work)
{
    int tiles = (n + TILE_COLUMNS - 1) / TILE_COLUMNS;
    for (int t = 0, j = 0; t < tiles; t++) {
        struct columns *c = &work->columns[t];
        c->n = n / tiles + (t < n % tiles);
        for (int i = 0; i < c->n; i++, j++) {
            const void *x = a->x[first + j];
            c->q[i] = q8_quants(x) + span * SPAN;
            c->da[i] = q8_scales(x, a->k)[span];
            kind->prepare(c, i, q8_sums(x, a->k) + span * (SPAN / Q8_SUMS));
        }
    }
}

static void unpack_panels(const struct matmul_args *a, const struct kind *kind, int row, int64_t span, struct work *work)
{
    int n_blocks = (int)MIN((a->k - span * SPAN) / 32, 8);
    for (int r = row; r < MIN(row + PANELS * PANEL, a->n_rows); r += GROUP) {
        struct rows16 g = rows_from(a, r);
        for (int i = 0; i < GROUP; i++)
            for (size_t b = 0; b < kind->bytes; b += 64)
                _mm_prefetch((const char *)g.at[i] + (size_t)(span + AHEAD) * kind->bytes + b, _MM_HINT_T1);
        kind->unpack(&g, (size_t)span * kind->bytes, n_blocks, &work->panel[(r - row) / PANEL], (r - row) % PANEL);
    }
}

static void store_columns(const struct matmul_args *a, int first, int n, int row, const struct work *work)
{
    for (int j = 0; j < n; j++)
        for (int r = row; r < MIN(row + PANELS * PANEL, a->n_rows); r += GROUP) {
            const struct partial *p = &work->partial[j];
            __m512 d = _mm512_loadu_ps(&p->d[0][r - row]);
            _mm512_mask_storeu_ps(a->y[first + j] + r, rows_mask(a, r), d);
        }
}

static void multiply_panels(const struct matmul_args *a, const struct kind *kind, int first, int n, int row)
{
    struct work *work = a->scratch;
    int panels = MIN((a->n_rows - row + PANEL - 1) / PANEL, (int)PANELS);
    memset(work->partial, 0, (size_t)n * sizeof(work->partial[0]));
    for (int64_t span = 0; span < q8_blocks(a->k); span++) {
        int n_blocks = (int)MIN((a->k - span * SPAN) / 32, 8);
        prepare_columns(a, kind, first, n, span, work);
        unpack_panels(a, kind, row, span, work);
        for (int t = 0, j = 0; j < n; j += work->columns[t++].n)
            for (int p = 0; p < panels; p++)
                kind->tile[work->columns[t].n](&work->panel[p], &work->columns[t], n_blocks, &work->partial[j], p);
    }
    store_columns(a, first, n, row, work);
}

static void multiply(const struct matmul_args *a, const struct kind *kind)
{
    int parts = (a->n_x + COLUMNS_MAX - 1) / COLUMNS_MAX;
    for (int row = 0; row < a->n_rows; row += PANELS * PANEL)
        for (int i = 0, first = 0; i < parts; i++) {
            int n = a->n_x / parts + (i < a->n_x % parts);
            multiply_panels(a, kind, first, n, row);
            first += n;
        }
}

static void panel_q4_k(const struct matmul_args *a)
{
    static const struct kind kind = {144, unpack_q4_k, prepare_q4_k, TILE_TABLE(q4_k)};
    multiply(a, &kind);
}

matmul_fn *const ISA_FN(matmul_q8_panel)[DT_COUNT] = {
    [DT_Q4_K] = panel_q4_k,
};
