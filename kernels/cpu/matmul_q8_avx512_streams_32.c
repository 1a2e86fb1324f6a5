// One column by types with blocks of 32, in spans of eight blocks, by four streams.
//
// A group is four spans that follow each other in each of the streams. A span is read from its beginning to its end, then the
// next one, and nothing is asked for: what comes is left to the hardware. (Were a part of each span read at a time, it would
// have to be asked for, which costs more.) Sums and scales are all that is made of it at first; a group is scaled after the
// next one is read, so that nothing waits for either.
#include "kernels/cpu/matmul_q8_avx512_decode_32.h"

// A group until it is scaled: of block b the sums and the scales, a lane a span, in one of three forms.
struct spans {
    __m512i dot[8];
    union {
        uint16_t half[8][GROUP];
        uint32_t word[8][GROUP];  // with the minimum in the upper half
        float power[8][GROUP];
    };
};

// ---- where spans lie

struct extent {
    int64_t rows, spans;   // of a stream; of a row
    size_t bytes, stride;  // of a span of eight blocks; from row to row
    int last;              // blocks of a row's last span
    size_t length;         // bytes of a stream
};

INLINE struct extent extent_of(const struct matmul_args *a, size_t block)
{
    const int64_t rows = (a->n_rows + STREAMS - 1) / STREAMS, spans = q8_blocks(a->k);
    const size_t length = (size_t)(rows - 1) * a->w_stride + (size_t)(a->k / 32) * block;
    return (struct extent){rows, spans, 8 * block, a->w_stride, blocks_in_span(a, spans - 1), length};
}

// The same in each stream.
struct place {
    int64_t row, span;
    size_t offset;  // bytes from the beginning of the stream
};

// Past the last span of a stream it stands in.
INLINE void place_step(const struct extent *e, struct place *p)
{
    if (p->span + 1 < e->spans)
        *p = (struct place){p->row, p->span + 1, p->offset + e->bytes};
    else if (p->row + 1 < e->rows)
        *p = (struct place){p->row + 1, 0, (size_t)(p->row + 1) * e->stride};
}

// Spans at hand, as rows of GROUP, from `at` on, which of their rows they are, and blocks of them.
struct group_32 {
    struct rows16 w;
    size_t at;
    int64_t span[QUARTERS];
    int blocks[QUARTERS];
};

// Rows that follow each other without a gap, of whole spans: all of a stream is evenly spaced.
INLINE bool is_even(const struct extent *e)
{
    return e->last == 8 && e->stride == (size_t)e->spans * e->bytes;
}

INLINE void next_group_even(const struct walk *k, const struct extent *e, struct group_32 *g)
{
    if (k->read.at == 0 || k->read.at + QUARTERS > k->all)
        g->w = walk_blocks(k, e->bytes, MIN(QUARTERS, k->all - k->read.at));
    g->at = (size_t)k->read.at * e->bytes;
    for (int64_t t = 0, span = k->read.block; t < QUARTERS; t++, span = block_after(span, e->spans))
        g->span[t] = span;
}

// What comes behind a short span may be no memory of ours: if that is past its stream's end it is read from a copy.
struct copies {
    uint8_t of[GROUP][8 * 34];
};

INLINE const uint8_t *copy_span(const struct extent *e, const uint8_t *span, uint8_t to[8 * 34])
{
    return memcpy(to, span, e->bytes / 8 * (size_t)e->last);
}

// Of all others; p goes on to what comes after it.
INLINE void next_group_uneven(const struct walk *k, const struct extent *e, struct place *p, struct copies *copies,
                              struct group_32 *g)
{
    UNROLL
    for (int t = 0; t < QUARTERS; t++, place_step(e, p)) {
        g->span[t] = p->span;
        g->blocks[t] = p->span + 1 < e->spans ? 8 : e->last;
        UNROLL
        for (int r = STREAMS * t; r < STREAMS * (t + 1); r++)
            g->w.at[r] = k->stream[r % STREAMS] + p->offset;
        for (int r = STREAMS * t; p->offset + e->bytes > e->length && r < STREAMS * (t + 1); r++)
            g->w.at[r] = copy_span(e, g->w.at[r], copies->of[r]);
    }
}

// Lanes of the group that is added next whose span has eight blocks.
INLINE __mmask16 whole_spans(const struct walk *k, const struct extent *e)
{
    int lanes = 0;
    for (int64_t t = 0, span = k->added.block; t < QUARTERS; t++, span = block_after(span, e->spans))
        lanes |= (span + 1 < e->spans ? 15 : 0) << STREAMS * t;
    return (__mmask16)lanes;
}

// ---- what they are multiplied with

// Q8_0 takes activations as they are, the others in `x`, a span each; minima are multiplied with `sums`. The scale of an
// exponent is looked up, to which all four belong.
struct column {
    const int8_t *q;
    const struct activations_32 *x;
    const struct sums_32 *sums;
    _Alignas(64) float powers[256];
};

INLINE struct activations_32 activations_of(const int8_t *q, const struct shape *s)
{
    struct activations_32 x;
    UNROLL
    for (int p = 0; p < 2; p++) {
        x.q[p] = load_4_activations(q + 128 * p);
        x.start[p] = _mm512_add_epi32(offset_start(x.q[p].low, s->offset), offset_start(x.q[p].high, s->offset));
    }
    return x;
}

INLINE void sum_blocks(const struct ring *r, int64_t first, struct sums_32 *to)
{
    for (int b = 0; b < 8; b++)
        for (int t = 0; t < QUARTERS; t++)
            to->of[b][t] = (float)(r->sums[first + t][2 * b] + r->sums[first + t][2 * b + 1]);
}

INLINE void load_column(const struct matmul_args *a, const struct ring *r, const struct shape *s, struct column *c)
{
    struct activations_32 *x = r->room;
    struct sums_32 *sums = (struct sums_32 *)(x + r->blocks);
    c->q = q8_quants(a->x[0]), c->x = x, c->sums = sums;
    for (int64_t i = 0; s && i < r->blocks; i++) {
        x[i] = activations_of(c->q + 256 * i, s);
        if (s->m >= 0)
            sum_blocks(r, i, &sums[i]);
    }
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int e = 0; s && s->power_of_two && e < 256; e += 16)
        _mm512_store_ps(c->powers + e, powers_of(_mm512_add_epi32(_mm512_set1_epi32(e), lane)));
}

// ---- sums of a group; `lane` is that of the first of four spans

// Blocks 2p and 2p + 1, as dots_rows_q8_0 has it of rows.
INLINE __m512i dots_two_blocks(const struct group_32 *g, int p, __m512i x, struct spans *to, int lane)
{
    const __m512i start = offset_start(x, 128);
    __m512i u[STREAMS];
    UNROLL
    for (int i = 0; i < STREAMS; i++) {
        const uint8_t *two = g->w.at[lane + i] + g->at + 68 * p;
        const __m512i w = _mm512_xor_si512(load_2x32(two + 2, two + 36), _mm512_set1_epi8((char)0x80));
        to->half[2 * p][lane + i] = load_half(two);
        to->half[2 * p + 1][lane + i] = load_half(two + 34);
        u[i] = _mm512_dpbusd_epi32(start, w, x);
    }
    return reduce_quarters(u);
}

INLINE void read_group_q8_0(const struct group_32 *g, bool even, const struct column *c, struct spans *to)
{
    __m512i v[4][QUARTERS];
    UNROLL
    for (int t = 0; t < QUARTERS; t++)
        UNROLL
        for (int p = 0; p < 4; p++)
            if (even || 2 * p < g->blocks[t])
                v[p][t] = dots_two_blocks(g, p, load_512(c->q + 256 * g->span[t] + 64 * p), to, STREAMS * t);
            else
                v[p][t] = _mm512_setzero_si512();
    UNROLL
    for (int p = 0; p < 4; p++)
        add_halves(v[p], to->dot + 2 * p);
}

// The quants of four blocks, a quarter each: of three they lie in one line of 64 bytes.
INLINE __m512i quants_of_four(const struct shape *s, const uint8_t *four)
{
    const long long all = 0x0101010101010101, step = s->bytes * all;
    const __m512i in_order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i pick = _mm512_add_epi8(in_order, _mm512_set_epi64(0, 0, 2 * step, 2 * step, step, step, 0, 0));
    const uint8_t *first = four + s->quants;
    return _mm512_inserti32x4(_mm512_permutexvar_epi8(pick, load_512(first)), load_128(first + 3 * s->bytes), 3);
}

// 16 more where one of the 16 bits at `bits` of a block is set.
INLINE __m512i add_fifth_bits(const struct shape *s, const uint8_t *four, int bits, __m512i w)
{
    __mmask64 set = 0;
    UNROLL
    for (int j = 0; j < 4; j++)
        set |= (__mmask64)load_half(four + j * s->bytes + bits) << 16 * j;
    return _mm512_mask_add_epi8(w, set, w, _mm512_set1_epi8(16));
}

INLINE struct nibbles weights_of_four(const struct shape *s, const uint8_t *four, __m512i values)
{
    struct nibbles w = split_nibbles(quants_of_four(s, four));
    w.low = look_up(s, values, w.low);
    w.high = look_up(s, values, w.high);
    if (s->fifth >= 0) {
        w.low = add_fifth_bits(s, four, s->fifth, w.low);
        w.high = add_fifth_bits(s, four, s->fifth + 2, w.high);
    }
    return w;
}

INLINE void take_scale(const struct shape *s, const float powers[256], const uint8_t *block, struct spans *to, int b, int lane)
{
    if (s->power_of_two)
        to->power[b][lane] = powers[*block];
    else if (s->m >= 0)
        to->word[b][lane] = load_word(block);
    else
        to->half[b][lane] = load_half(block);
}

// Blocks 4p .. 4p + 3.
INLINE __m512i dots_four_blocks(const struct shape *s, const struct group_32 *g, const struct activations_32 *x, int p,
                                const float powers[256], struct spans *to, int lane)
{
    const __m512i values = values_of(s);
    __m512i u[STREAMS];
    UNROLL
    for (int i = 0; i < STREAMS; i++) {
        const uint8_t *four = g->w.at[lane + i] + g->at + 4 * p * s->bytes;
        const struct nibbles w = weights_of_four(s, four, values);
        UNROLL
        for (int j = 0; j < 4; j++)
            take_scale(s, powers, four + j * s->bytes, to, 4 * p + j, lane + i);
        u[i] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(x->start[p], w.low, x->q[p].low), w.high, x->q[p].high);
    }
    return reduce_quarters(u);
}

INLINE void read_quarter(const struct shape *s, const struct group_32 *g, bool even, const struct column *c, int t,
                         __m512i v[2][QUARTERS], struct spans *to)
{
    UNROLL
    for (int p = 0; p < 2; p++)
        if (even || 4 * p < g->blocks[t])
            v[p][t] = dots_four_blocks(s, g, &c->x[g->span[t]], p, c->powers, to, STREAMS * t);
        else
            v[p][t] = _mm512_setzero_si512();
}

INLINE void read_group(const struct shape *s, const struct group_32 *g, bool even, const struct column *c, struct spans *to)
{
    __m512i v[2][QUARTERS];
    if (s->fifth >= 0) {  // long enough without being written out
        KEEP_LOOP
        for (int t = 0; t < QUARTERS; t++)
            read_quarter(s, g, even, c, t, v, to);
    } else {
        UNROLL
        for (int t = 0; t < QUARTERS; t++)
            read_quarter(s, g, even, c, t, v, to);
    }
    part_quarters(v[0], to->dot);
    part_quarters(v[1], to->dot + 4);
}

// ---- the sums S of a group

INLINE __m512 scales_of(const struct shape *s, const struct spans *g, int b)
{
    if (s && s->power_of_two)
        return _mm512_load_ps(g->power[b]);
    if (s && s->m >= 0)
        return low_halves(load_512(g->word[b]));
    return _mm512_cvtph_ps(load_256(g->half[b]));
}

// A quarter each for four floats.
INLINE __m512 spread_quarters(const float *four)
{
    const __m512i quarter = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_permutexvar_ps(quarter, _mm512_castps128_ps512(_mm_load_ps(four)));
}

// In the first `last` blocks all lanes, in the others those of `whole`.
INLINE __m512 scaled_blocks(const struct shape *s, const struct spans *g, const struct sums_32 *x, int last, __mmask16 whole)
{
    __m512 sum = _mm512_setzero_ps();
    UNROLL
    for (int b = 0; b < 8; b++) {
        const __mmask16 there = b < last ? 0xffff : whole;
        sum = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(g->dot[b]), scales_of(s, g, b), sum, there);
        if (s && s->m >= 0)
            sum = _mm512_mask3_fmadd_ps(spread_quarters(x->of[b]), high_halves(load_512(g->word[b])), sum, there);
    }
    return sum;
}

INLINE void add_group(const struct matmul_args *a, struct walk *k, const struct shape *s, const struct extent *e, bool even,
                      const struct column *c, const struct spans *g)
{
    const struct sums_32 *x = c->sums + k->added.block;
    walk_add(a, k, even ? scaled_blocks(s, g, x, 8, 0xffff) : scaled_blocks(s, g, x, e->last, whole_spans(k, e)));
}

// ---- all rows

// `s` as for neighbours: NULL is Q8_0. `even`, known to the compiler: the other way in the same loop would cost a tenth.
INLINE void decode_streams_32(const struct matmul_args *a, const struct shape *s, const struct extent *extent, bool even)
{
    const struct extent e = *extent;
    struct walk k = walk_of(a);
    struct place p = {0};
    struct copies copies = {{{0}}};
    struct group_32 g = {.at = 0};
    struct column c;
    load_column(a, &k.x, s, &c);
    struct spans made[2] = {{.dot = {{0}}}};  // scales of blocks that are not there stay as they are
    const struct spans *last = NULL;
    for (int turn = 0; walk_step(&k); turn ^= 1) {
        if (even)
            next_group_even(&k, &e, &g);
        else
            next_group_uneven(&k, &e, &p, &copies, &g);
        if (s)
            read_group(s, &g, even, &c, &made[turn]);
        else
            read_group_q8_0(&g, even, &c, &made[turn]);
        STAYS_IN_MEMORY(made);
        if (last)
            add_group(a, &k, s, &e, even, &c, last);
        last = &made[turn];
    }
    if (last)
        add_group(a, &k, s, &e, even, &c, last);
}

INLINE void decode_one(const struct matmul_args *a, const struct shape *s)
{
    const struct extent e = extent_of(a, s ? (size_t)s->bytes : 34);
    if (is_even(&e))
        decode_streams_32(a, s, &e, true);
    else
        decode_streams_32(a, s, &e, false);
}

// ---- the functions

#define STREAMS_32(name, shape)                                                                                        \
    void ISA_FN(matmul_q8_streams_##name)(const struct matmul_args *a)                                                 \
    {                                                                                                                  \
        decode_one(a, shape);                                                                                          \
    }

STREAMS_32(q4_0, &shape_q4_0)
STREAMS_32(q4_1, &shape_q4_1)
STREAMS_32(q5_0, &shape_q5_0)
STREAMS_32(q5_1, &shape_q5_1)
STREAMS_32(q8_0, NULL)
STREAMS_32(iq4_nl, &shape_iq4_nl)
STREAMS_32(mxfp4, &shape_mxfp4)
