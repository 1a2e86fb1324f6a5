// One column: it waits for memory, so that what counts is how few instructions a byte takes, and that bytes are asked for
// in time.
//
// Eight rows go together, a lane a row. Each word is multiplied as soon as it is unpacked (the sink of
// matmul_q8_avx2_unpack.h): no weight is stored. Each row asks for its bytes some blocks ahead of their use, and near its
// end for those of the row eight further on: of the caller's next rows where there is none.
#include "kernels/cpu/matmul_q8_avx2_unpack.h"

enum { AHEAD = 4 }; // blocks of 256 between the request for bytes and their use

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
    v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s->sum), s->p->d[b], v);
    return f.mins ? _mm256_fmadd_ps(_mm256_set1_ps(c->sums[b]), s->p->m[b], v) : v;
}

// Some spans of eight rows: continues their chains.
typedef __m256 chain_fn(const struct rows8 *rows, const struct column *c, int n_blocks, __m256 chain);

#define CHAIN_256(name, NAME, ...)                                                                                     \
    static __m256 chain_##name(const struct rows8 *rows, const struct column *c, int n_blocks, __m256 chain)           \
    {                                                                                                                  \
        const struct rows8 g = *rows;                                                                                  \
        struct panel p;                                                                                                \
        struct sink s = {.p = &p, .q = c->q, .start = c->start};                           \
        (void)n_blocks;                                                                                                \
        unpack_##name(&g, &p, &s);                                                                                     \
        return finish_256(&s, form_of(FORM_##NAME), c, chain);                                                                                  \
    }
#define CHAIN_32(name, NAME, ...)                                                                                      \
    static __m256 chain_##name(const struct rows8 *rows, const struct column *c, int n_blocks, __m256 chain)           \
    {                                                                                                                  \
        const struct rows8 g = *rows;                                                                                  \
        struct panel p;                                                                                                \
        __m256 v = _mm256_setzero_ps();                                                                                \
        for (int b = 0; b < n_blocks; b++) {                                                                           \
            struct sink s = {.p = &p, .q = c->q + 32 * b, .start = c->start + b};          \
            unpack_##name(&g, b, &p, &s);                                                                              \
            v = finish_32(&s, form_of(FORM_##NAME), c, b, v);                                                                                \
        }                                                                                                              \
        return _mm256_fmadd_ps(v, _mm256_set1_ps(c->da), chain);                                                       \
    }
EACH_TYPE_256(CHAIN_256)
EACH_TYPE_32(CHAIN_32)

#define ENTRY(name, NAME, ...) [DT_##NAME] = chain_##name,
static chain_fn *const chain_of[DT_COUNT] = {EACH_TYPE_256(ENTRY) EACH_TYPE_32(ENTRY)};

void ISA_FN(matmul_q8_lone)(const struct matmul_args *a)
{
    struct column *c = a->scratch;
    chain_fn *const chain = chain_of[a->type];
    const size_t bytes = span_bytes(a->type);
    const int64_t spans = q8_blocks(a->k);
    for (int64_t i = 0; i < spans; i++)
        ISA_FN(matmul_q8_prepare)(a, 0, i, &c[i]);
    for (int row = 0; row < a->n_rows; row += GROUP) {
        struct rows8 rows = rows_from(a, row), next = rows_ahead(a, row + GROUP);
        __m256 d = _mm256_setzero_ps();
        for (int64_t i = 0; i < spans; i++) {
            struct rows8 here = rows_moved(&rows, (size_t)i * bytes);
            prefetch_rows(&rows, &next, (size_t)(i + AHEAD) * bytes, (size_t)spans * bytes, bytes);
            d = chain(&here, &c[i], blocks_in_span(a, i), d);
        }
        float lanes[GROUP];
        _mm256_storeu_ps(lanes, d);
        store_rows(a->y[0] + row, lanes, a->n_rows - row);
    }
}
