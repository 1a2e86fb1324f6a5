// One column: it waits for memory, so that what counts is how few instructions a byte takes, and that bytes are asked
// for in time.
//
// Eight rows go together, a lane a row. Each word is multiplied as soon as it is unpacked (the sink of
// matmul_q8_avx2_unpack.h): no weight is stored. Meanwhile the eight rows behind are fetched: of the caller's next rows
// where there are none.
#include "kernels/cpu/matmul_q8_avx2_unpack.h"

// The end of a block of 256, from its sums of integers: D = fma(S, da, D).
INLINE __m256 finish_256(const struct sink *s, struct form f, const struct column *c, __m256 chain)
{
    __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(s->sum), s->p->d[0]);
    if (f.mins) {
        __m256i min = _mm256_setzero_si256();
        UNROLL
        for (int i = 0; i < 32 / f.mins; i++)
            min = _mm256_add_epi32(min, _mm256_madd_epi16(s->p->min[i], broadcast_32(&c->pairs[i])));
        v = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(min), s->p->m[0], v);
    }
    return _mm256_fmadd_ps(v, _mm256_set1_ps(c->da), chain);
}

// The end of a block of 32: S = fma(isum, d, S), with a minimum then S = fma(sum(q), m, S).
INLINE __m256 finish_32(const struct sink *s, struct form f, const struct column *c, int b, __m256 v)
{
    v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s->sum), s->p->d[0], v);
    return f.mins ? _mm256_fmadd_ps(_mm256_set1_ps(c->sums[b]), s->p->m[0], v) : v;
}

// Eight rows by a column, from their first span to their last.
struct lone {
    struct rows8 rows;
    const struct column *columns; // by span
    int64_t spans;
    int last; // blocks of 32 in the last span
};
typedef __m256 lone_fn(const struct lone *l);

INLINE void advance(struct rows8 *g, size_t bytes)
{
    UNROLL
    for (int r = 0; r < GROUP; r++)
        g->at[r] += bytes;
}

// (That bytes ahead are fetched is said in each function, for the compiler to know.)
#define LONE_256(name, NAME, ...)                                                                                      \
    static __m256 lone_##name(const struct lone *l)                                                                    \
    {                                                                                                                  \
        struct rows8 g = l->rows;                                                                                      \
        g.fetches = true;                                                                                              \
        __m256 d = _mm256_setzero_ps();                                                                                \
        for (int64_t i = 0; i < l->spans; i++, advance(&g, BYTES_##NAME)) {                                            \
            const struct column *c = &l->columns[i];                                                                   \
            struct panel p;                                                                                            \
            struct sink s = {.p = &p, .q = c->q, .start = c->start};                                                   \
            const uint8_t *end = g.ahead + GROUP * (size_t)BYTES_##NAME;                                               \
            unpack_##name(&g, &p, &s);                                                                                 \
            fetch_until(&g, end);                                                                                      \
            d = finish_256(&s, form_of(FORM_##NAME), c, d);                                                            \
        }                                                                                                              \
        return d;                                                                                                      \
    }
#define LONE_32(name, NAME, ...)                                                                                       \
    static __m256 lone_##name(const struct lone *l)                                                                    \
    {                                                                                                                  \
        struct rows8 g = l->rows;                                                                                      \
        g.fetches = true;                                                                                              \
        __m256 d = _mm256_setzero_ps();                                                                                \
        size_t at = 0;                                                                                                 \
        for (int64_t i = 0; i < l->spans; i++) {                                                                       \
            const struct column *c = &l->columns[i];                                                                   \
            __m256 v = _mm256_setzero_ps();                                                                            \
            const int blocks = i + 1 < l->spans ? BLOCKS : l->last;                                                    \
            const uint8_t *end = g.ahead + (size_t)(GROUP * BYTES_##NAME * blocks);                                    \
            for (int b = 0; b < blocks; b++, at += BYTES_##NAME) {                                                     \
                struct panel p;                                                                                        \
                struct sink s = {.p = &p, .q = c->q + 32 * b, .start = c->start + b};                                  \
                unpack_##name(&g, at, &p.d[0], &p.m[0], &s);                                                           \
                v = finish_32(&s, form_of(FORM_##NAME), c, b, v);                                                      \
            }                                                                                                          \
            fetch_until(&g, end);                                                                                      \
            d = _mm256_fmadd_ps(v, _mm256_set1_ps(c->da), d);                                                          \
        }                                                                                                              \
        return d;                                                                                                      \
    }
EACH_TYPE_256(LONE_256)
EACH_TYPE_32(LONE_32)

#define ENTRY(name, NAME, ...) [DT_##NAME] = lone_##name,
static lone_fn *const lone_of[DT_COUNT] = {EACH_TYPE_256(ENTRY) EACH_TYPE_32(ENTRY)};

void ISA_FN(matmul_q8_lone)(const struct matmul_args *a)
{
    struct column *c = a->scratch;
    struct lone l = {.columns = c, .spans = q8_blocks(a->k), .last = blocks_in_span(a, q8_blocks(a->k) - 1)};
    for (int64_t i = 0; i < l.spans; i++)
        ISA_FN(matmul_q8_prepare)(a, 0, i, &c[i]);
    for (int row = 0; row < a->n_rows; row += GROUP) {
        l.rows = rows_from(a, row);
        l.rows.ahead = matmul_rows_after(a, row, GROUP);
        float lanes[GROUP];
        _mm256_storeu_ps(lanes, lone_of[a->type](&l));
        store_rows(a->y[0] + row, lanes, a->n_rows - row);
    }
}
