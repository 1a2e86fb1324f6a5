// Matmul of one column of Q8_0 by AVX-512, whose rows are read as four long streams from end to end, without
// prefetching. More than for any other type this is bound by reading, so all other work is kept small.
// avx512/in_place_32.c chooses it where rows are read by streams and a row's steps fit the scratch.
//
// The naive loop is that of in_place_32.c. A group is 16 spans of eight blocks, one lane each. At first only its
// integer sums and its scales are stored, the scales by loads of two bytes. It is scaled after the next group is
// read, so that nothing waits for either. The steps of a block are then multiplied into its scales, for all 16 spans.
#include "kernels/cpu/avx512/in_place.h"

// A group that is not scaled yet: the sums and the scales of block b, one lane per span.
struct spans {
    __m512i dot[8];
    uint16_t half[8][GROUP];
};

// ---- four streams
//
// Lane 4t + i is the span t places further on in stream i. The four lanes of a quarter have the same activations.
enum { STREAMS = FOUR, QUARTERS = GROUP / STREAMS, RING_MORE = QUARTERS - 1 };
_Static_assert(ONE_Q8_0_MOST + RING_MORE <= SCRATCH_BYTES / (int)sizeof(float[1 + Q8_RUNS]),
               "a row's scales and steps fit the scratch");

// The activations' scales and steps of a row's spans, and a copy of the first three at the end. So the four spans that
// a stream reads at once find these next to each other even if a row ends among them.
struct ring {
    int64_t spans; // of a row
    const float *scales, *steps;
};

// The span after this one; a row's first span follows its last.
INLINE int64_t span_after(int64_t span, int64_t spans)
{
    return span + 1 == spans ? 0 : span + 1;
}

// The steps of a span as floats. If the last span of a row has an odd number of blocks, the sums of its last block are
// one place further on (see behind_zeros), and so is its step.
INLINE void put_steps(const struct matmul_args *a, int64_t span, float steps[Q8_RUNS])
{
    const int blocks = blocks_in_span(a, span);
    const struct view x = view_of(a, 0, span);
    _mm256_storeu_ps(steps, _mm256_cvtepi32_ps(words_of_steps(&x)));
    if (blocks % 2)
        steps[blocks] = steps[blocks - 1];
}

INLINE struct ring ring_of(const struct matmul_args *a)
{
    const int64_t spans = q8_blocks(a->k);
    float *steps = a->scratch, *scales = steps + Q8_RUNS * (spans + RING_MORE);
    for (int64_t i = 0, span = 0; i < spans + RING_MORE; i++, span = span_after(span, spans)) {
        scales[i] = q8_scales(a->x[0], a->k)[span];
        put_steps(a, span, steps + Q8_RUNS * i);
    }
    return (struct ring){spans, scales, steps};
}

// The four spans of each stream that are read.
struct cursor {
    int64_t at, span; // index of the first of them in the stream, and in its row
};

// The state of the four streams, which are the quarters of all rows. (Where the number of rows is not a multiple of
// four, the last two overlap.) A stream's spans are read in order, four at a time, even if a row ends among them.
// They may be added up some steps after they are read.
struct walk {
    const uint8_t *stream[STREAMS];
    int first[STREAMS]; // first row of each stream
    struct ring x;
    int64_t all; // spans of a stream
    struct cursor read, added;
    int row;  // row of a stream whose sums are being added up
    __m128 d; // its sums so far, one lane per stream
};

// The addresses of the spans that each stream reads next, as offsets from the position of the stream: the first n <=
// QUARTERS of them are valid, the others repeat the last one.
INLINE struct rows16 walk_spans(const struct walk *k, size_t bytes, int64_t n)
{
    struct rows16 w;
    for (int r = 0; r < GROUP; r++)
        w.at[r] = k->stream[r % STREAMS] + (size_t)MIN(r / STREAMS, n - 1) * bytes;
    return w;
}

INLINE struct walk walk_of(const struct matmul_args *a)
{
    const int rows = (a->n_rows + STREAMS - 1) / STREAMS;
    struct walk k = {.x = ring_of(a), .read = {-QUARTERS, -QUARTERS}, .d = _mm_setzero_ps()};
    k.all = rows * k.x.spans;
    for (int i = 0; i < STREAMS; i++) {
        k.first[i] = MIN(i * rows, a->n_rows - rows);
        k.stream[i] = (const uint8_t *)a->w + (size_t)k.first[i] * a->w_stride;
    }
    return k;
}

INLINE void cursor_step(struct cursor *c, int64_t spans)
{
    c->at += QUARTERS;
    c->span += QUARTERS;
    if (c->span >= spans)
        c->span = spans >= QUARTERS ? c->span - spans : c->span % spans;
}

// Advances to the next four spans of each stream. Returns false at the end.
INLINE bool walk_step(struct walk *k)
{
    cursor_step(&k->read, k->x.spans);
    return k->read.at < k->all;
}

INLINE void walk_put(const struct matmul_args *a, struct walk *k)
{
    float four[STREAMS];
    _mm_storeu_ps(four, k->d);
    UNROLL_FOR (int i = 0; i < STREAMS; i++)
        a->y[0][k->first[i] + k->row] = four[i];
    k->row++;
    k->d = _mm_setzero_ps();
}

// Adds the sums S of the next four spans to D, one quarter after another, and stores the rows that end with one of
// them.
INLINE void walk_add(const struct matmul_args *a, struct walk *k, __m512 sum)
{
    const float *scales = k->x.scales + k->added.span;
    const __m128 quarters[QUARTERS] = {_mm512_extractf32x4_ps(sum, 0), _mm512_extractf32x4_ps(sum, 1),
                                       _mm512_extractf32x4_ps(sum, 2), _mm512_extractf32x4_ps(sum, 3)};
    int64_t left = k->x.spans - k->added.span; // spans left in the row
    UNROLL_FOR (int i = 0; i < QUARTERS; i++) {
        k->d = _mm_fmadd_ps(quarters[i], _mm_set1_ps(scales[i]), k->d);
        if (--left == 0) {
            if (k->added.at + i < k->all)
                walk_put(a, k);
            left = k->x.spans;
        }
    }
    cursor_step(&k->added, k->x.spans);
}

// ---- spans

enum { SPAN_Q8_0 = 8 * BYTES_Q8_0 };

// Whether rows consist of whole spans and have no gaps between them, so that a stream is evenly spaced.
INLINE bool is_even_q8_0(const struct matmul_args *a)
{
    return a->k % 256 == 0 && a->w_stride == (size_t)(a->k / 32 * BYTES_Q8_0);
}

// The position of a span where rows are not even; it is the same in each stream.
struct place {
    int64_t row, span;
    size_t at; // bytes from the start of the stream
};

// Advances by a span. Past the end of a stream its last row is repeated.
INLINE void place_step(const struct matmul_args *a, const struct walk *k, struct place *p)
{
    p->span++;
    p->at += SPAN_Q8_0;
    if (p->span < k->x.spans)
        return;
    p->row += (p->row + 1) * k->x.spans < k->all;
    p->span = 0;
    p->at = (size_t)p->row * a->w_stride;
}

INLINE struct rows16 walk_uneven(const struct matmul_args *a, const struct walk *k, struct place *p)
{
    struct rows16 w;
    UNROLL_FOR (int t = 0; t < QUARTERS; t++, place_step(a, k, p)) {
        UNROLL_FOR (int i = 0; i < STREAMS; i++)
            w.at[STREAMS * t + i] = k->stream[i] + p->at;
    }
    return w;
}

// The sums of the block `first` and the next one of the four spans at `at`, two blocks per register; they are stored
// as blocks 2p and 2p + 1 of lanes `lane` .. `lane` + 3. The weights + 128 are unsigned; a lane's sum is at most 4 *
// 128 * 127 in magnitude.
INLINE __m512i dots_two_blocks(const uint8_t *const at[STREAMS], int first, __m512i x, int p, struct spans *to,
                               int lane)
{
    const __m512i start = offset_start(x, 128);
    __m512i u[STREAMS];
    UNROLL_FOR (int i = 0; i < STREAMS; i++) {
        const uint8_t *two = at[i] + BYTES_Q8_0 * first;
        const __m512i w = _mm512_xor_si512(load_2x32(two + 2, two + 36), _mm512_set1_epi8((char)0x80));
        to->half[2 * p][lane + i] = load_half(two);
        to->half[2 * p + 1][lane + i] = load_half(two + BYTES_Q8_0);
        u[i] = _mm512_dpbusd_epi32(start, w, x);
    }
    return reduce_quarters(u);
}

// The memory after a row may not be readable. So an odd last block is loaded together with the block before it, which
// is multiplied with zeros; the last block's sums are in the second place.
INLINE __m512i behind_zeros(const int8_t *x)
{
    return _mm512_inserti64x4(_mm512_setzero_si512(), load_256(x), 1);
}

// Quarters 0 and 1 of v[t] are four sums each of one block, quarters 2 and 3 of another block, of the spans of
// quarter t. Adds the two quarters of each.
INLINE void add_halves(const __m512i v[QUARTERS], __m512i dot[2])
{
    __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x88), _mm512_shuffle_i32x4(v[0], v[1], 0xdd));
    __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x88), _mm512_shuffle_i32x4(v[2], v[3], 0xdd));
    dot[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    dot[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
}

// Reads the next group, whose spans are at byte `at` of w. Each span is read from its beginning to its end, then the
// next one, without prefetching: that is left to the hardware. (With more computation per byte the hardware would be
// too late.)
INLINE void read_group_q8_0(const struct matmul_args *a, const struct walk *k, bool even, const struct rows16 *w,
                            size_t at, struct spans *to)
{
    const int8_t *q = q8_quants(a->x[0]);
    int64_t span = k->read.span;
    __m512i v[4][QUARTERS];
    UNROLL_FOR (int t = 0; t < QUARTERS; t++, span = span_after(span, k->x.spans)) {
        const int blocks = even ? 8 : blocks_in_span(a, span);
        const uint8_t *four[STREAMS];
        UNROLL_FOR (int i = 0; i < STREAMS; i++)
            four[i] = w->at[STREAMS * t + i] + at;
        UNROLL_FOR (int p = 0; p < 4; p++) {
            const int8_t *x = q + 256 * span + 64 * p;
            if (2 * p + 1 < blocks)
                v[p][t] = dots_two_blocks(four, 2 * p, load_512(x), p, to, STREAMS * t);
            else if (2 * p < blocks)
                v[p][t] = dots_two_blocks(four, 2 * p - 1, behind_zeros(x), p, to, STREAMS * t);
            else
                v[p][t] = _mm512_setzero_si512();
        }
    }
    UNROLL_FOR (int p = 0; p < 4; p++)
        add_halves(v[p], to->dot + 2 * p);
}

// The lanes of the next group to be added whose span has eight blocks.
INLINE __mmask16 whole_spans(const struct walk *k)
{
    int lanes = 0;
    for (int64_t t = 0, span = k->added.span; t < QUARTERS; t++, span = span_after(span, k->x.spans))
        lanes |= (span + 1 < k->x.spans ? 15 : 0) << STREAMS * t;
    return (__mmask16)lanes;
}

// The steps of block b of the four spans whose steps follow each other: quarter t is that of span t.
INLINE __m512 steps_of_block(const float *steps, int b)
{
    const __m512i of_quarter = _mm512_setr_epi32(0, 0, 0, 0, 8, 8, 8, 8, 16, 16, 16, 16, 24, 24, 24, 24);
    return _mm512_permutex2var_ps(_mm512_loadu_ps(steps), _mm512_add_epi32(of_quarter, _mm512_set1_epi32(b)),
                                  _mm512_loadu_ps(steps + 2 * Q8_RUNS));
}

// S of a group. The lanes of `whole` have eight blocks, the others `blocks`.
INLINE __m512 scaled_q8_0(const struct spans *g, const float *steps, int blocks, __mmask16 whole)
{
    const int odd = blocks % 2 ? blocks - 1 : 8, end = (blocks + 1) / 2 * 2;
    __m512 sum = _mm512_setzero_ps();
    UNROLL_FOR (int b = 0; b < 8; b++) {
        const __m512 d = _mm512_mul_ps(_mm512_cvtph_ps(load_256(g->half[b])), steps_of_block(steps, b));
        sum = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(g->dot[b]), d, sum, b < end && b != odd ? 0xffff : whole);
    }
    return sum;
}

INLINE void add_group_q8_0(const struct matmul_args *a, struct walk *k, bool even, const struct spans *g)
{
    const float *steps = k->x.steps + Q8_RUNS * k->added.span;
    walk_add(a, k,
             even ? scaled_q8_0(g, steps, 8, 0xffff)
                  : scaled_q8_0(g, steps, blocks_in_span(a, k->x.spans - 1), whole_spans(k)));
}

// `even` is a compile-time constant: handling both cases in one loop would cost a tenth.
INLINE void multiply_streams_q8_0(const struct matmul_args *a, bool even)
{
    struct walk k = walk_of(a);
    struct rows16 w = walk_spans(&k, SPAN_Q8_0, QUARTERS);
    struct place place = {0, 0, 0};
    struct spans pending[2];
    const struct spans *last = NULL;
    for (int parity = 0; walk_step(&k); parity ^= 1) {
        if (!even)
            w = walk_uneven(a, &k, &place);
        else if (k.read.at + QUARTERS > k.all)
            w = walk_spans(&k, SPAN_Q8_0, k.all - k.read.at);
        read_group_q8_0(a, &k, even, &w, even ? (size_t)k.read.at * SPAN_Q8_0 : 0, &pending[parity]);
        STAYS_IN_MEMORY(pending);
        if (last)
            add_group_q8_0(a, &k, even, last);
        last = &pending[parity];
    }
    if (last)
        add_group_q8_0(a, &k, even, last);
}

void ISA_FN(matmul_q8_one_q8_0)(const struct matmul_args *a)
{
    if (is_even_q8_0(a))
        multiply_streams_q8_0(a, true);
    else
        multiply_streams_q8_0(a, false);
}
