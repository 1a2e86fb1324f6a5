// Matmul of a few columns (TRANSPOSED_MIN to TRANSPOSED_MAX) by AVX-512 on CPUs with spare_adders: the words of 16
// rows are transposed in registers and multiplied at once.
//
// The naive loop, for each row and column: for each block of 256, isum = sum of step[j] * scale[j] * (w . q)[j]; D =
// fma(isum * d, da, D). The steps are those of the column, for 32 elements each (see kernels.h).
// As in a panel (avx512/panel.c), lane r of a register belongs to row r, and nothing is added up across lanes. But a
// panel is stored before it is read, 64 registers for 16 rows of a block. That does not pay for a few columns, and
// nothing is multiplied meanwhile. Here 32 bytes of 16 rows become eight registers of words (load_words_32), and each
// word is unpacked and multiplied with all columns at once:
//
//   register i:   | row 0: bytes 4i .. 4i+3 | row 1: bytes 4i .. 4i+3 | ... | row 15: bytes 4i .. 4i+3 |
//
// On a CPU with spare_adders the shuffles that transpose run in parallel with the products.
//   - A step multiplies two strips of 32 elements of each row. In blocks of 256 these are the low and the high bits
//     of the same bytes. A run is 8 to 32 neighbouring elements whose products are summed up before they are scaled.
//     The sums of two runs, one from each strip, fit 16 bits each. They are joined in a word, and one vpdpwssd
//     multiplies both by their scales and adds them to the sum of the block. Before that, the pair of scales is
//     multiplied by the pair of the column's steps, on a unit that is not used for other products.
//   - A tile has eight columns, or nine where one column would be left alone, because loading a word for a single
//     product costs twice. If there are several tiles, the first one also stores what it unpacks, which is hidden
//     behind its products, and the others load that.
//   - For the sum of a run to fit 16 bits, it may start with minus an offset (about the middle of the unsigned weights)
//     times the sum of the run's activations. Where the type's weights are really unsigned (Q4_K, Q5_K), this is
//     multiplied by the scales and steps and added again. A second set of tiles, mostly with longer runs, serves
//     columns whose activations are small enough (RUNS_MILD in avx512/matmul_q8.h).
//   - While a group of rows is multiplied, the bytes of the group below are prefetched into L2, some lines per step,
//     and those of the group's next blocks into L1, some rows per step.
// avx512/matmul_q8.c chooses this where matmul_q8_is_transposed says so.
#include "kernels/cpu/avx512/rows.h"
#include "kernels/cpu/avx512/tile.h"

enum {
    TRANSPOSED_MIN = 3, // columns
    TRANSPOSED_MAX = 64,
    STRIP = 32, // elements
    WORDS = STRIP / 4,
    STEPS = SPAN / (2 * STRIP), // of a block of 256, two strips at a time
    BLOCKS = SPAN / STRIP,
    MANY = 6,       // columns with which a tile is short of registers
    PREPARED = 128, // tiles of columns in a span that the scratch holds
};

// A tile that has all columns; the first of several, which stores what it unpacks; or a later one, which loads that.
enum tile_order { ALONE, FIRST, LATER };

// Columns prepared for a span, and a copy of their activations one behind the other, so that one address is enough
// for all of them.
struct prepared {
    struct columns c;
    _Alignas(64) int8_t q[TILE_MOST][SPAN];
};

// The unpacked headers of 16 rows' blocks. For strips, `scale` has pairs of int16: of a run in the first strip, and
// in the second.
struct factors {
    __m512i scale[STEPS][2];     // by step, and in it by runs of 16 elements; of IQ4_XS, by block of 32
    __m512i min[8];              // pairs for two consecutive sub-blocks
    __m512 d[BLOCKS], m[BLOCKS]; // of a block of 256 the first element, or of blocks of 32
};

// A span of 16 rows, unpacked by the first of several tiles.
struct unpacked {
    __m512i w[SPAN / 4]; // pairs of words of both strips, in the order of the steps
    struct factors f;
};

// The contents of a thread's scratch; d holds the sums of a group of rows.
struct work {
    struct prepared columns[PREPARED];
    struct unpacked unpacked;
    _Alignas(64) float d[TRANSPOSED_MAX][GROUP];
};
_Static_assert(sizeof(struct work) <= SCRATCH_BYTES, "columns and sums fit the scratch");

// The bytes of 16 consecutive rows. Loads are most of what a tile does beside its products, so addresses are computed
// where they are used and not kept in memory.
struct neighbours {
    const uint8_t *at;
    size_t stride;
};

// Only the first of each four rows has its address in a register; the others are addressed by it and the stride, or
// three times the stride. (The empty instructions keep the compiler from computing all sixteen addresses beforehand.)
INLINE struct rows16 rows_of(const struct neighbours *r, size_t at)
{
    const size_t stride = r->stride;
    size_t three = 3 * stride;
    const uint8_t *from = r->at + at;
    __asm__("" : "+r"(three));
    struct rows16 g;
    UNROLL_FOR (int i = 0; i < GROUP; i += 4) {
        __asm__("" : "+r"(from));
        g.at[i] = from;
        g.at[i + 1] = from + stride;
        g.at[i + 2] = from + 2 * stride;
        g.at[i + 3] = from + three;
        from += 4 * stride;
    }
    return g;
}

// What is prefetched while 16 rows' blocks are multiplied.
struct group_prefetch {
    struct line_prefetch below; // as many bytes of the group below as these blocks have, in the order of memory
    size_t next; // bytes from a row's blocks to its next ones, at its end to those of the row 16 below; 0: none
};

// Prefetches a step's share of the group below, and the next blocks of `n` rows from `row` on.
INLINE void prefetch_step(struct group_prefetch *prefetch, const struct neighbours *g, int row, int n, int bytes)
{
    const uint8_t *from = g->at + prefetch->next + (size_t)row * g->stride;
    prefetch_lines(&prefetch->below);
    if (!prefetch->next)
        return;
    UNROLL_FOR (int r = 0; r < n; r++)
        prefetch_near(from + (size_t)r * g->stride, bytes);
}

// ---- blocks of 256: two strips at once

// Transposed words, and the further bits that belong to them. A step uses their lowest bits; they are shifted between
// steps.
struct transposed {
    __m512i low[WORDS], upper[WORDS];
};

struct pair {
    __m512i first, second;
};

// How a type's headers are loaded, and how its transposed words become the words of two strips.
typedef void load_factors_fn(const struct rows16 *g, struct factors *f);
typedef struct pair word_fn(const struct transposed *t, int i); // unsigned elements 4i .. 4i + 3 of both strips

INLINE __m512i high_nibbles_shifted(__m512i v)
{
    return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}

// The bits of v under the mask, and those of w under `above`.
INLINE __m512i with_bits(__m512i v, int mask, __m512i w, int above)
{
    return masked_or(v, mask, _mm512_and_si512(w, _mm512_set1_epi8((char)above)));
}

// -- Q4_K, Q5_K: step p has sub-blocks 2p and 2p + 1

INLINE void load_factors_k4(const struct rows16 *g, struct factors *f)
{
    const struct header_k4 h = load_header_k4(g, 0);
    f->d[0] = h.d, f->m[0] = h.m;
    UNROLL_FOR (int p = 0; p < STEPS; p++) {
        f->scale[p][0] = bytes_to_pair(h.scale[p / 2], p % 2 * 2, p % 2 * 2 + 1);
        f->min[p] = bytes_to_pair(h.min[p / 2], p % 2 * 2, p % 2 * 2 + 1);
    }
}

// High nibbles are not shifted down; second_up accounts for that.
INLINE struct pair word_q4_k(const struct transposed *t, int i)
{
    return (struct pair){low_nibbles(t->low[i]), _mm512_and_si512(t->low[i], _mm512_set1_epi8((char)0xf0))};
}

INLINE struct pair word_q5_k(const struct transposed *t, int i)
{
    return (struct pair){with_bits(t->low[i], 15, _mm512_slli_epi16(t->upper[i], 4), 16),
                         with_bits(_mm512_srli_epi16(t->low[i], 4), 15, _mm512_slli_epi16(t->upper[i], 3), 16)};
}

// -- Q6_K: steps 2h and 2h + 1 have quarters 0, 2 and 1, 3 of half h

INLINE void load_factors_q6_k(const struct rows16 *g, struct factors *f)
{
    __m512i scales[4];
    load_words_16(g, 192, scales);
    f->d[0] = load_halves(g, 208);
    UNROLL_FOR (int p = 0; p < STEPS; p++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            f->scale[p][r] = signed_pair(scales[p / 2 * 2], p % 2 * 2 + r, scales[p / 2 * 2 + 1], p % 2 * 2 + r);
}

INLINE struct pair word_q6_k(const struct transposed *t, int i)
{
    return (struct pair){with_bits(t->low[i], 15, _mm512_slli_epi16(t->upper[i], 4), 0x30),
                         with_bits(_mm512_srli_epi16(t->low[i], 4), 15, t->upper[i], 0x30)};
}

// -- Q2_K, Q3_K: steps 2h and 2h + 1 have pairs 0, 1 and 2, 3 of the bits of half h

INLINE void load_factors_q2_k(const struct rows16 *g, struct factors *f)
{
    __m512i t[4];
    load_words_16(g, 0, t);
    UNROLL_FOR (int p = 0; p < STEPS; p++)
        UNROLL_FOR (int r = 0; r < 2; r++) {
            f->scale[p][r] = bytes_to_pair(low_nibbles(t[p]), r, 2 + r);
            f->min[2 * p + r] = bytes_to_pair(high_nibbles(t[p]), 2 * r, 2 * r + 1);
        }
    load_words_16(g, 68, t); // the last 16 bytes are quants, d and dmin
    f->d[0] = low_halves(t[3]), f->m[0] = high_halves(t[3]);
}

INLINE struct pair word_q2_k(const struct transposed *t, int i)
{
    const __m512i three = _mm512_set1_epi8(3);
    return (struct pair){_mm512_and_si512(t->low[i], three), _mm512_and_si512(_mm512_srli_epi16(t->low[i], 2), three)};
}

INLINE void load_factors_q3_k(const struct rows16 *g, struct factors *f)
{
    __m512i scales[4];
    load_scales_q3_k(g, 0, scales);
    f->d[0] = load_halves(g, 108);
    UNROLL_FOR (int p = 0; p < STEPS; p++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            f->scale[p][r] = signed_pair(scales[p], r, scales[p], 2 + r);
}

INLINE struct pair word_q3_k(const struct transposed *t, int i)
{
    return (struct pair){with_bits(t->low[i], 3, _mm512_slli_epi16(t->upper[i], 2), 4),
                         with_bits(_mm512_srli_epi16(t->low[i], 2), 3, _mm512_slli_epi16(t->upper[i], 1), 4)};
}

// -- a tile of n columns

// The 32 bytes of each row from which `steps` consecutive steps take their bits, `shift` bits each; the next 32 bytes
// serve the steps after these.
struct source {
    int at; // byte in a block; -1: there are none
    int steps, shift;
};

// The description of a type. It is a compile-time constant in each kernel.
struct strips {
    load_factors_fn *load;
    word_fn *word;
    struct source low, upper;
    int apart;      // elements from the first strip to the second
    bool one_scale; // the runs of 16 in a strip share a scale
    int second_up;  // bits by which the second strip's words are too high, which spares a shift
    int bytes;      // of a block
};

// What the sums of runs start with: 0; minus the offset of the weights times the sum of the activations; or the same,
// and it is added again, because the weights are meant to be unsigned.
enum starting { STARTS_FROM_ZERO, STARTS_CENTRED, STARTS_ARE_RESTORED };

// The element at which a step's first strip begins.
INLINE int strip_at(const struct strips *s, int step)
{
    return s->apart == STRIP ? 2 * STRIP * step : step / 2 * 4 * STRIP + step % 2 * STRIP;
}

// Transposes words from .. from + n - 1 of a step, or shifts them where they are transposed already. n is 4 or 8.
INLINE void transpose_strip_words(const struct neighbours *g, const struct source *s, int step, int from, int n,
                                  __m512i v[WORDS])
{
    if (s->at < 0)
        return;
    if (step % s->steps == 0) {
        const struct rows16 rows = rows_of(g, (size_t)(s->at + step / s->steps * STRIP + 4 * from));
        n == WORDS ? load_words_32(&rows, 0, v) : load_words_16(&rows, 0, v + from);
        return;
    }
    UNROLL_FOR (int i = from; i < from + n; i++)
        v[i] = _mm512_srli_epi16(v[i], (unsigned)s->shift);
}

// The value that a run's sum starts with, shifted up like its words. A NULL pointer means 0.
INLINE __m512i start_of(const int32_t *start, int i, int up)
{
    return start ? _mm512_set1_epi32(start[i] * (1 << up)) : _mm512_setzero_si512();
}

// (The empty instruction keeps gcc from loading a word again for each column.)
INLINE __m512i read_once(const __m512i *p)
{
    __m512i v = *p;
    __asm__("" : "+v"(v));
    return v;
}

// Words i of a step's two strips. With many columns they are transposed four at a time, so that the sums stay in
// registers.
INLINE struct pair next_words(const struct neighbours *g, const struct strips *s, int step, int i, struct transposed *t,
                              int n, enum tile_order order, struct unpacked *u)
{
    const int piece = n >= MANY ? 4 : WORDS;
    __m512i *kept = u->w + 2 * (WORDS * step + i);
    if (order == LATER)
        return (struct pair){read_once(kept), read_once(kept + 1)};
    if (i % piece == 0) {
        transpose_strip_words(g, &s->low, step, i, piece, t->low);
        transpose_strip_words(g, &s->upper, step, i, piece, t->upper);
    }
    const struct pair w = s->word(t, i);
    if (order == FIRST)
        kept[0] = w.first, kept[1] = w.second;
    return w;
}

// Multiplies a step's two strips, `run` elements of each at a time. The first strip of column j is at q + SPAN * j. All
// from n on are compile-time constants.
INLINE void add_strips(run_sums sum, const struct neighbours *g, const struct strips *s, int step, struct transposed *t,
                       const struct columns *c, const int8_t *q, const __m512i scale[2], int n, int run,
                       enum starting starting, enum tile_order order, struct unpacked *u)
{
    const int words = run / 4;
    const int32_t *start = starting == STARTS_FROM_ZERO ? NULL : c->start[0] + strip_at(s, step) / run;
    run_sums first, second;
    UNROLL_FOR (int i = 0; i < WORDS; i++) {
        const struct pair w = next_words(g, s, step, i, t, n, order, u);
        UNROLL_FOR (int j = 0; j < n; j++) {
            if (i % words == 0) {
                first[j] = start_of(start, 32 * j + i / words, 0);
                second[j] = start_of(start, 32 * j + i / words + s->apart / run, s->second_up);
            }
            first[j] = dot_all(first[j], w.first, q + SPAN * j + 4 * i);
            second[j] = dot_all(second[j], w.second, q + SPAN * j + s->apart + 4 * i);
            if (i % words < words - 1)
                continue;
            const __m512i both = join_sums(first[j], second[j], 16 - s->second_up);
            const __m512i factor =
                _mm512_mullo_epi16(scale[s->one_scale ? 0 : i / 4], broadcast_32(&c->steps[j][step]));
            sum[j] = _mm512_dpwssd_epi32(sum[j], both, factor);
            if (starting == STARTS_ARE_RESTORED)
                sum[j] =
                    _mm512_dpwssd_epi32(sum[j], factor, broadcast_32(&c->restore[j][step * (STRIP / run) + i / words]));
        }
    }
}

// Multiplies a block of 16 rows by n columns. All from n on are compile-time constants.
INLINE void multiply_strips(const struct neighbours *g, const struct prepared *x, struct group_prefetch *prefetch,
                            struct unpacked *u, float *out, int n, enum tile_order order, const struct strips *s,
                            int run, enum starting starting, enum mins mins)
{
    struct factors own, *f = order == ALONE ? &own : &u->f;
    struct transposed t = {.low[0] =
                               _mm512_setzero_si512()}; // step 0 sets all that is used, which the compiler does not see
    run_sums sum, min;
    const struct rows16 rows = rows_of(g, 0);
    if (order != LATER)
        s->load(&rows, f);
    UNROLL_FOR (int j = 0; j < n; j++)
        sum[j] = min[j] = _mm512_setzero_si512();
#pragma GCC unroll 1
    for (int step = 0; step < STEPS; step++) {
        if (order != LATER)
            prefetch_step(prefetch, g, step * (GROUP / STEPS), GROUP / STEPS, s->bytes);
        add_strips(sum, g, s, step, &t, &x->c, x->q[0] + strip_at(s, step), f->scale[step], n, run, starting, order, u);
    }
    UNROLL_FOR (int p = 0; p < pairs_of(mins); p++)
        UNROLL_FOR (int j = 0; j < n; j++)
            min[j] = _mm512_dpwssd_epi32(min[j], min_pair(f->min, 1, p, mins), broadcast_32(&x->c.mins[j][p]));
    UNROLL_FOR (int j = 0; j < n; j++) {
        __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[j]), f->d[0]);
        if (mins != NO_MINS)
            v = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(min[j]), f->m[0], v);
        add_to_partial(out, 0, v, &x->c, j);
    }
}

// clang-format off
static const struct strips
    strips_q2_k = {.load = load_factors_q2_k, .word = word_q2_k, .low = {16, 2, 4}, .upper = {-1, 1, 0}, .apart = 32,
                   .bytes = 84},
    strips_q3_k = {.load = load_factors_q3_k, .word = word_q3_k, .low = {32, 2, 4}, .upper = {0, 4, 2}, .apart = 32, .bytes = 110},
    strips_q4_k = {.load = load_factors_k4, .word = word_q4_k, .low = {16, 1, 0}, .upper = {-1, 1, 0}, .apart = 32,
                   .one_scale = true, .second_up = 4, .bytes = 144},
    strips_q5_k = {.load = load_factors_k4, .word = word_q5_k, .low = {48, 1, 0}, .upper = {16, 4, 2}, .apart = 32,
                   .one_scale = true, .bytes = 176},
    strips_q6_k = {.load = load_factors_q6_k, .word = word_q6_k, .low = {0, 1, 0}, .upper = {128, 2, 2}, .apart = 64, .bytes = 210};
// clang-format on

// ---- blocks of 32: a strip each

// The unsigned weights of a block of 32. For Q8_0, which has no nibbles, s is NULL.
INLINE void transpose_block(const struct neighbours *g, size_t at, const struct shape *s, __m512i values,
                            __m512i w[WORDS])
{
    __m512i t[4], fifth[4] = {_mm512_setzero_si512()};
    if (!s) {
        const struct rows16 rows = rows_of(g, at + 2);
        load_words_32(&rows, 0, w);
        UNROLL_FOR (int i = 0; i < WORDS; i++)
            w[i] = _mm512_xor_si512(w[i], _mm512_set1_epi8((char)0x80));
        return;
    }
    const struct rows16 rows = rows_of(g, at);
    if (s->fifth >= 0)
        load_words_16(&rows, (size_t)s->fifth, fifth);
    load_words_16(&rows, (size_t)s->quants, t);
    UNROLL_FOR (int i = 0; i < 4; i++) {
        w[i] = look_up(s, values, low_nibbles(t[i]));
        w[4 + i] = look_up(s, values, high_nibbles_shifted(t[i]));
        if (s->fifth >= 0) {
            w[i] = _mm512_or_si512(w[i], spread_fifth_bits(fifth[0], i));
            w[4 + i] = _mm512_or_si512(w[4 + i], spread_fifth_bits(fifth[0], 4 + i));
        }
    }
}

// Sums of 32 products in n columns. Column j is at q + SPAN * j.
INLINE void dot_block(run_sums acc, const __m512i w[WORDS], const int8_t *q, const int32_t *start, int n)
{
    UNROLL_FOR (int j = 0; j < n; j++)
        acc[j] = _mm512_set1_epi32(start[32 * j]);
    UNROLL_FOR (int i = 0; i < WORDS; i++)
        UNROLL_FOR (int j = 0; j < n; j++)
            acc[j] = dot_all(acc[j], w[i], q + SPAN * j + 4 * i);
}

// The weights of a block of 32: transposed here, or loaded as the first tile has stored them.
INLINE void block_words(const struct neighbours *g, size_t at, const struct shape *s, __m512i values, __m512i w[WORDS],
                        enum tile_order order, __m512i *kept)
{
    if (order != LATER)
        transpose_block(g, at, s, values, w);
    UNROLL_FOR (int i = 0; order != ALONE && i < WORDS; i++)
        if (order == FIRST)
            kept[i] = w[i];
        else
            w[i] = read_once(kept + i);
}

INLINE void multiply_blocks(const struct neighbours *g, const struct prepared *x, int n_blocks,
                            struct group_prefetch *prefetch, struct unpacked *u, float *out, int n,
                            enum tile_order order, const struct shape *s)
{
    const size_t bytes = s ? (size_t)s->bytes : 34;
    // With many columns Q8_0 is slower with this prefetch than without.
    const int next = s || n < MANY ? BLOCKS * (int)bytes : 0;
    const __m512i values = s ? values_of(s) : _mm512_setzero_si512();
    const struct rows16 rows = rows_of(g, 0);
    size_t offset[BLOCKS];
    __m512 sum[TILE_MOST];
    struct factors own, *f = order == ALONE ? &own : &u->f;
    for (int b = 0; b < n_blocks; b++)
        offset[b] = (size_t)b * bytes;
    if (s && order != LATER)
        load_scales(&rows, s, offset, n_blocks, f->d, f->m);
    else if (order != LATER)
        load_heads(&rows, offset, n_blocks, 34, 0, f->d);
    UNROLL_FOR (int j = 0; j < n; j++)
        sum[j] = _mm512_setzero_ps();
#pragma GCC unroll 1
    for (int b = 0; b < n_blocks; b++) {
        __m512i w[WORDS];
        run_sums acc;
        if (order != LATER)
            prefetch_step(prefetch, g, b * (GROUP / BLOCKS), GROUP / BLOCKS, next);
        block_words(g, offset[b], s, values, w, order, u->w + WORDS * b);
        dot_block(acc, w, x->q[0] + STRIP * b, x->c.start[0] + b, n);
        UNROLL_FOR (int j = 0; j < n; j++) {
            const __m512i weighted = _mm512_mullo_epi32(acc[j], broadcast_32(&x->c.steps[j][b]));
            sum[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(weighted), f->d[b], sum[j]);
            if (s && s->m >= 0)
                sum[j] = _mm512_fmadd_ps(_mm512_set1_ps(x->c.sums[j][b]), f->m[b], sum[j]);
        }
    }
    UNROLL_FOR (int j = 0; j < n; j++)
        add_to_partial(out, 0, sum[j], &x->c, j);
}

// ---- IQ4_XS: sums of 32 products need 32 bits, and so do their products with the scales

INLINE void load_factors_iq4_xs(const struct rows16 *g, struct factors *f)
{
    __m512i packed[2];
    f->d[0] = load_scales_iq4_xs(g, 0, packed);
    UNROLL_FOR (int b = 0; b < BLOCKS; b++)
        f->scale[b / 2][b % 2] = _mm512_srai_epi32(_mm512_slli_epi32(packed[b / 4], 24 - b % 4 * 8), 24);
}

INLINE void multiply_iq4_xs(const struct neighbours *g, const struct prepared *x, struct group_prefetch *prefetch,
                            struct unpacked *u, float *out, int n, enum tile_order order)
{
    run_sums sum;
    const __m512i values = values_of(&shape_iq4_nl);
    const struct rows16 rows = rows_of(g, 0);
    struct factors own, *f = order == ALONE ? &own : &u->f;
    if (order != LATER)
        load_factors_iq4_xs(&rows, f);
    UNROLL_FOR (int j = 0; j < n; j++)
        sum[j] = _mm512_setzero_si512();
#pragma GCC unroll 1
    for (int b = 0; b < BLOCKS; b++) {
        __m512i w[WORDS];
        run_sums acc;
        if (order != LATER)
            prefetch_step(prefetch, g, b * (GROUP / BLOCKS), GROUP / BLOCKS, 136);
        block_words(g, 8 + 16 * (size_t)b - (size_t)shape_iq4_nl.quants, &shape_iq4_nl, values, w, order,
                    u->w + WORDS * b);
        dot_block(acc, w, x->q[0] + STRIP * b, x->c.start[0] + b, n);
        UNROLL_FOR (int j = 0; j < n; j++) {
            // Of a scale the lower 16 bits are enough.
            const __m512i factor = _mm512_madd_epi16(f->scale[b / 2][b % 2], broadcast_32(&x->c.steps[j][b]));
            sum[j] = _mm512_add_epi32(sum[j], _mm512_mullo_epi32(acc[j], factor));
        }
    }
    UNROLL_FOR (int j = 0; j < n; j++)
        add_to_partial(out, 0, _mm512_mul_ps(_mm512_cvtepi32_ps(sum[j]), f->d[0]), &x->c, j);
}

// ---- the kernels: a function for each number of columns in a tile
//
// WIDTH(kind, ORDER, N, call): the function for N columns and a tile order.
// WIDTHS(kind, steps, restores_runs_of_16, call): all functions of a type, and their table `kind`.

typedef void transposed_fn(const struct neighbours *g, const struct prepared *x, int n_blocks,
                           struct group_prefetch *prefetch, struct unpacked *u, float *out);

// The kernels of a type by the columns of a tile.
struct widths {
    transposed_fn *of[3][TILE_MOST + 1]; // by enum tile_order
    enum step_form steps;                // of the columns
    bool restores_runs_of_16;
};

#define WIDTH(kind, ORDER, N, ...)                                                                                     \
    static void kind##_##ORDER##_##N(const struct neighbours *g, const struct prepared *x, int n_blocks,               \
                                     struct group_prefetch *prefetch, struct unpacked *u, float *out)                  \
    {                                                                                                                  \
        enum { n = N };                                                                                                \
        const enum tile_order order = ORDER;                                                                           \
        (void)n_blocks;                                                                                                \
        __VA_ARGS__;                                                                                                   \
    }
#define FROM_3(kind, ORDER, ...)                                                                                       \
    WIDTH(kind, ORDER, 3, __VA_ARGS__)                                                                                 \
    WIDTH(kind, ORDER, 4, __VA_ARGS__)                                                                                 \
    WIDTH(kind, ORDER, 5, __VA_ARGS__)                                                                                 \
    WIDTH(kind, ORDER, 6, __VA_ARGS__)                                                                                 \
    WIDTH(kind, ORDER, 7, __VA_ARGS__)                                                                                 \
    WIDTH(kind, ORDER, 8, __VA_ARGS__)
#define NAMES_3(kind, ORDER)                                                                                           \
    kind##_##ORDER##_3, kind##_##ORDER##_4, kind##_##ORDER##_5, kind##_##ORDER##_6, kind##_##ORDER##_7,                \
        kind##_##ORDER##_8
#define WIDTHS(kind, step_form, restores_16, ...)                                                                      \
    FROM_3(kind, ALONE, __VA_ARGS__)                                                                                   \
    WIDTH(kind, ALONE, 9, __VA_ARGS__)                                                                                 \
    WIDTH(kind, FIRST, 8, __VA_ARGS__)                                                                                 \
    WIDTH(kind, FIRST, 9, __VA_ARGS__)                                                                                 \
    WIDTH(kind, LATER, 2, __VA_ARGS__)                                                                                 \
    FROM_3(kind, LATER, __VA_ARGS__)                                                                                   \
    static const struct widths kind = {{[ALONE] = {[3] = NAMES_3(kind, ALONE), kind##_ALONE_9},                        \
                                        [FIRST] = {[8] = kind##_FIRST_8, kind##_FIRST_9},                              \
                                        [LATER] = {[2] = kind##_LATER_2, NAMES_3(kind, LATER)}},                       \
                                       step_form,                                                                      \
                                       restores_16};
#define STRIPS(kind, steps, strips, run, starting, mins)                                                               \
    WIDTHS(kind, steps, (run) == 16 && (starting) == STARTS_ARE_RESTORED,                                              \
           multiply_strips(g, x, prefetch, u, out, n, order, strips, run, starting, mins))
#define OF_32(kind, shape)                                                                                             \
    WIDTHS(kind, STEPS_WHOLE, false, multiply_blocks(g, x, n_blocks, prefetch, u, out, n, order, shape))

// clang-format off
STRIPS(transposed_q2_k, STEPS_OF_NEIGHBOURS, &strips_q2_k, 16, STARTS_FROM_ZERO, MINS_OF_16)
STRIPS(transposed_q3_k, STEPS_OF_NEIGHBOURS, &strips_q3_k, 16, STARTS_CENTRED, NO_MINS)
STRIPS(transposed_q4_k, STEPS_OF_NEIGHBOURS, &strips_q4_k, 32, STARTS_ARE_RESTORED, MINS_OF_32_TWICE)
STRIPS(transposed_q4_k_mild, STEPS_OF_NEIGHBOURS, &strips_q4_k, 32, STARTS_FROM_ZERO, MINS_OF_32)
STRIPS(transposed_q5_k, STEPS_OF_NEIGHBOURS, &strips_q5_k, 16, STARTS_ARE_RESTORED, MINS_OF_32_TWICE)
STRIPS(transposed_q5_k_mild, STEPS_OF_NEIGHBOURS, &strips_q5_k, 32, STARTS_ARE_RESTORED, MINS_OF_32)
STRIPS(transposed_q6_k, STEPS_TWO_APART, &strips_q6_k, 8, STARTS_CENTRED, NO_MINS)
STRIPS(transposed_q6_k_mild, STEPS_TWO_APART, &strips_q6_k, 16, STARTS_CENTRED, NO_MINS)
OF_32(transposed_q8_0, NULL)
OF_32(transposed_q4_0, &shape_q4_0)
OF_32(transposed_q4_1, &shape_q4_1)
OF_32(transposed_q5_0, &shape_q5_0)
OF_32(transposed_q5_1, &shape_q5_1)
OF_32(transposed_iq4_nl, &shape_iq4_nl)
OF_32(transposed_mxfp4, &shape_mxfp4)
WIDTHS(transposed_iq4_xs, STEPS_WHOLE, false, multiply_iq4_xs(g, x, prefetch, u, out, n, order))

// By type and run form; NULL where a type has no such form.
static const struct widths *const transposed_of[DT_COUNT][RUNS_COUNT] = {
    [DT_Q2_K] = {&transposed_q2_k}, [DT_Q3_K] = {&transposed_q3_k}, [DT_Q4_K] = {&transposed_q4_k, &transposed_q4_k_mild},
    [DT_Q5_K] = {&transposed_q5_k, &transposed_q5_k_mild}, [DT_Q6_K] = {&transposed_q6_k, &transposed_q6_k_mild},
    [DT_Q8_0] = {&transposed_q8_0}, [DT_Q4_0] = {&transposed_q4_0}, [DT_Q4_1] = {&transposed_q4_1}, [DT_Q5_0] = {&transposed_q5_0},
    [DT_Q5_1] = {&transposed_q5_1}, [DT_IQ4_NL] = {&transposed_iq4_nl}, [DT_MXFP4] = {&transposed_mxfp4}, [DT_IQ4_XS] = {&transposed_iq4_xs},
};
// clang-format on

static int64_t tiles_of(int64_t n)
{
    return (n + TILE_COLUMNS - 2) / TILE_COLUMNS;
}

// The width of the tile of n columns that begins with column `first`.
static int tile_width(int n, int first)
{
    return first == 0 && n % TILE_COLUMNS == 1 ? TILE_MOST : MIN(n - first, (int)TILE_COLUMNS);
}

// The least number of columns that this kernel serves, where rows in place are faster for more than TRANSPOSED_MIN -
// 1 columns.
static const uint8_t fewest_columns[DT_COUNT] = {
    [DT_Q4_0] = 5, [DT_Q4_1] = 4, [DT_Q5_0] = 6,   [DT_Q5_1] = 4,  [DT_Q3_K] = 4,
    [DT_Q5_K] = 4, [DT_Q6_K] = 6, [DT_IQ4_NL] = 6, [DT_MXFP4] = 5,
};

// More than one tile is served only if the scratch holds the prepared columns of all spans: to prepare them again for
// each group of rows would be slower than a panel.
bool ISA_FN(matmul_q8_is_transposed)(enum dtype type, int64_t k, int64_t n)
{
    return transposed_of[type][RUNS_ANY] && n >= MAX(TRANSPOSED_MIN, fewest_columns[type]) && n <= TRANSPOSED_MAX &&
           (n <= TILE_MOST || tiles_of(n) * q8_blocks(k) <= PREPARED);
}

// What the first tile of the group from `row` on prefetches. Later tiles find their words in the caches and prefetch
// nothing.
static struct group_prefetch prefetch_of_group(const struct matmul_args *a, int row, int64_t span)
{
    const size_t row_bytes = dtype_row_bytes(a->type, SPAN);
    const int lines = (int)(GROUP * row_bytes + 63) / 64;
    // IQ4_XS has prefetched everything after half of its eight steps.
    const int steps = dtype_info[a->type].block == SPAN ? STEPS : BLOCKS;
    const uint8_t *at = row_to_prefetch(a, row + GROUP) + (size_t)span * GROUP * row_bytes;
    const bool last = span + 1 == q8_blocks(a->k);
    return (struct group_prefetch){.below = {at, at + 64 * lines, (lines + steps - 1) / steps},
                                   .next = last ? GROUP * a->w_stride - (size_t)span * row_bytes : row_bytes};
}

// Runs of 16 are joined across strips, not with their neighbours: from pairs of runs 0 and 1, 2 and 3, makes pairs of
// runs 0 and 2, 1 and 3.
static void pair_across_strips(int32_t restore[8])
{
    const __m256i v = load_256(restore);
    _mm256_storeu_si256((__m256i *)restore, _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(v, 0xd8), 0xd8));
}

static void prepare(const struct matmul_args *a, int first, int n, int64_t span, struct prepared *x)
{
    struct columns *c = &x->c;
    ISA_FN(matmul_q8_prepare_columns)(a, first, n, n, span, false, c);
    const struct widths *widths = transposed_of[a->type][c->run_form];
    arrange_steps(c, widths->steps);
    for (int j = 0; j < n; j++) {
        memcpy(x->q[j], c->q[j], SPAN);
        if (widths->restores_runs_of_16)
            pair_across_strips(c->restore[j]);
    }
}

static transposed_fn *function_of(const struct matmul_args *a, enum run_form run_form, int first, int n)
{
    return transposed_of[a->type][run_form]->of[n == a->n_x ? ALONE : first == 0 ? FIRST : LATER][n];
}

// Multiplies a span of 16 rows with all columns. The first group prepares the columns where there is room to keep
// them.
static void multiply_span(const struct matmul_args *a, int row, int64_t span)
{
    struct work *w = a->scratch;
    const size_t at = (size_t)row * a->w_stride + (size_t)span * dtype_row_bytes(a->type, SPAN);
    const struct neighbours g = {(const uint8_t *)a->w + at, a->w_stride};
    int64_t place = span * tiles_of(a->n_x);
    for (int first = 0, n; first < a->n_x; first += n, place++) {
        struct prepared *x = &w->columns[MIN(place, PREPARED - 1)];
        n = tile_width(a->n_x, first);
        if (row == 0 || place >= PREPARED - 1)
            prepare(a, first, n, span, x);
        struct group_prefetch prefetch =
            first == 0 ? prefetch_of_group(a, row, span) : (struct group_prefetch){{NULL, NULL, 0}, 0};
        function_of(a, x->c.run_form, first, n)(&g, x, blocks_in_span(a, span), &prefetch, &w->unpacked, w->d[first]);
    }
}

static void multiply_group(const struct matmul_args *a, int row)
{
    struct work *w = a->scratch;
    set_partial(w->d[0], a->n_x, GROUP);
    for (int64_t span = 0; span < q8_blocks(a->k); span++)
        multiply_span(a, row, span);
    store_columns(a, 0, a->n_x, row, GROUP, w->d[0]);
}

// Where rows end within a group, the last group begins earlier and computes some rows twice.
void ISA_FN(matmul_q8_transposed)(const struct matmul_args *a)
{
    for (int row = 0; row < a->n_rows; row += GROUP)
        multiply_group(a, MIN(row, a->n_rows - GROUP));
}
