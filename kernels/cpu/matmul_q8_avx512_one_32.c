// One column by types with blocks of 32, in spans of eight blocks.
//
// A group is 16 spans, a lane each. Sums and scales are all that is made of it at first, scales by loads of two or four
// bytes; it is scaled after the next one is read, so that nothing waits for either.
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

// ---- nibbles

// 2^(e - 128) of each byte e, where scales are exponents.
struct powers {
    _Alignas(64) float of[256];
};

INLINE void make_powers(const struct shape *s, struct powers *p)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int e = 0; s->power_of_two && e < 256; e += 16)
        _mm512_store_ps(p->of + e, powers_of(_mm512_add_epi32(_mm512_set1_epi32(e), lane)));
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

INLINE void take_scale(const struct shape *s, const struct powers *powers, const uint8_t *block, struct spans *to, int b,
                       int lane)
{
    if (s->power_of_two)
        to->power[b][lane] = powers->of[*block];
    else if (s->m >= 0)
        to->word[b][lane] = load_word(block);
    else
        to->half[b][lane] = load_half(block);
}

// ---- 16 rows far apart

// A span of 16 rows, `at` bytes from where they begin; lines from `ahead` on are asked for while it is read.
struct span_32 {
    const struct rows16 *rows;
    size_t at;
    struct ahead ahead;
    const int8_t *q;
    int blocks;
};

// Of row r of a span of `bytes`, one of `parts` shares of its lines.
INLINE void ask_for_lines(const struct span_32 *g, int r, int bytes, int part, int parts)
{
    const char *at = (const char *)g->ahead.at + (size_t)r * g->ahead.row;
    __asm__ volatile("");
    for (int i = 64 * part; i < bytes; i += 64 * parts)
        _mm_prefetch(at + i, _MM_HINT_T1);
    __asm__ volatile("");
}

// What four blocks are multiplied with, and what their sums begin with.
struct activations_32 {
    struct nibbles q;
    __m512i start;
};

INLINE struct activations_32 load_activations_32(const int8_t *q, const struct shape *s)
{
    const struct nibbles n = load_4_activations(q);
    return (struct activations_32){n, _mm512_add_epi32(offset_start(n.low, s->offset), offset_start(n.high, s->offset))};
}

// Blocks 4p .. 4p + 3 of rows 4t ..
INLINE __m512i dots_four_blocks(const struct span_32 *g, const struct shape *s, int t, int p, int halves,
                                const struct activations_32 *x, const struct powers *powers, struct spans *to)
{
    const __m512i values = values_of(s);
    __m512i u[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        const uint8_t *four = g->rows->at[4 * t + i] + g->at + 4 * p * s->bytes;
        const struct nibbles w = weights_of_four(s, four, values);
        ask_for_lines(g, 4 * t + i, 4 * halves * s->bytes, p, halves);
        UNROLL
        for (int j = 0; j < 4; j++)
            take_scale(s, powers, four + j * s->bytes, to, 4 * p + j, 4 * t + i);
        u[i] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(x->start, w.low, x->q.low), w.high, x->q.high);
    }
    return reduce_quarters(u);
}

// The first `halves` groups of four blocks, known to the compiler.
INLINE void read_nibbles(const struct span_32 *g, const struct shape *s, int halves, const struct powers *powers,
                         struct spans *to)
{
    struct activations_32 x[2];
    __m512i v[2][4];
    UNROLL
    for (int p = 0; p < halves; p++)
        x[p] = load_activations_32(g->q + 128 * p, s);
    UNROLL
    for (int p = 0; p < halves; p++)
        KEEP_LOOP
        for (int t = 0; t < 4; t++)
            v[p][t] = dots_four_blocks(g, s, t, p, halves, &x[p], powers, to);
    UNROLL
    for (int p = 0; p < halves; p++)
        part_quarters(v[p], to->dot + 4 * p);
}

// What is behind a row's last blocks may be no memory of ours: if they are not four or eight they are read from copies. What
// lies behind these there is multiplied with zeros, and its scales are not used.
struct copies {
    uint8_t of[GROUP][8 * 24];
    struct rows16 rows;
};

INLINE void copy_blocks(struct span_32 *g, size_t bytes, struct copies *to)
{
    for (int r = 0; r < GROUP; r++)
        to->rows.at[r] = memcpy(to->of[r], g->rows->at[r] + g->at, bytes);
    g->rows = &to->rows;
    g->at = 0;
}

INLINE void read_span(struct span_32 *g, const struct shape *s, const struct powers *powers, struct copies *copies,
                      struct spans *to)
{
    if (g->blocks % 4)
        copy_blocks(g, (size_t)(g->blocks * s->bytes), copies);
    if (g->blocks > 4)
        read_nibbles(g, s, 2, powers, to);
    else
        read_nibbles(g, s, 1, powers, to);
}

INLINE __m512 scales_of(const struct shape *s, const struct spans *g, int b)
{
    if (s->power_of_two)
        return _mm512_load_ps(g->power[b]);
    if (s->m >= 0)
        return low_halves(load_512(g->word[b]));
    return _mm512_cvtph_ps(load_256(g->half[b]));
}

// The sums S of a group over its first n blocks, whose activations have these sums over 16.
INLINE __m512 scaled_spans(const struct shape *s, const struct spans *g, const int16_t *sums, int n)
{
    __m512 sum = _mm512_setzero_ps();
    UNROLL
    for (int b = 0; b < 8; b++) {
        if (b >= n)
            break;
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(g->dot[b]), scales_of(s, g, b), sum);
        if (s->m >= 0)
            sum = _mm512_fmadd_ps(_mm512_set1_ps((float)(sums[2 * b] + sums[2 * b + 1])), high_halves(load_512(g->word[b])),
                                  sum);
    }
    return sum;
}

// Rows' sums so far; the group and the span that comes next.
struct total {
    struct row_cut cut;
    int group;
    int64_t span;
    __m512 d;
};

INLINE void add_span(const struct matmul_args *a, const struct shape *s, struct total *t, const struct spans *g)
{
    const int16_t *sums = q8_sums(a->x[0], a->k) + Q8_SUMS * t->span;
    const int blocks = blocks_in_span(a, t->span);
    const __m512 sum = blocks == 8 ? scaled_spans(s, g, sums, 8) : scaled_spans(s, g, sums, blocks);
    t->d = _mm512_fmadd_ps(sum, _mm512_set1_ps(q8_scales(a->x[0], a->k)[t->span]), t->d);
    if (++t->span < q8_blocks(a->k))
        return;
    store_cut(&t->cut, t->group++, t->d, a->y[0]);
    t->span = 0;
    t->d = _mm512_setzero_ps();
}

INLINE void decode_apart(const struct matmul_args *a, const struct shape *s)
{
    struct total total = {.cut = row_cut_streams(a->n_rows, GROUP, a->w_stride), .d = _mm512_setzero_ps()};
    struct powers powers;
    struct copies copies;
    struct spans made[2];
    const struct spans *last = NULL;
    make_powers(s, &powers);
    for (int group = 0, turn = 0; group < total.cut.groups; group++) {
        const struct rows16 rows = rows_of_cut(a, &total.cut, group);
        for (int64_t span = 0; span < q8_blocks(a->k); span++, turn ^= 1) {
            const size_t at = (size_t)span * 8 * (size_t)s->bytes;
            struct span_32 g = {&rows, at, ahead_in_streams(a, &total.cut, group, at, AHEAD_STREAM),
                                q8_quants(a->x[0]) + 256 * span, blocks_in_span(a, span)};
            read_span(&g, s, &powers, &copies, &made[turn]);
            STAYS_IN_MEMORY(made);
            if (last)
                add_span(a, s, &total, last);
            last = &made[turn];
        }
    }
    if (last)
        add_span(a, s, &total, last);
}

// ---- four streams
//
// Lane 4t + i is the block t places on in stream i. A quarter of the lanes has the same activations.
enum { STREAMS = 4, QUARTERS = GROUP / STREAMS };

enum { RING_MORE = QUARTERS - 1 };
_Static_assert(ONE_Q8_0_MOST + RING_MORE <= SCRATCH_BYTES / (int)sizeof(float), "a row's scales fit the scratch");

// The scales of a row's spans of activations, and once more those of its first three: the four spans that a stream has at hand
// find theirs side by side, whether a row ends among them or not.
struct ring {
    int64_t spans; // of a row
    const float *scales;
};

// A row's first span follows its last.
INLINE int64_t span_after(int64_t span, int64_t spans)
{
    return span + 1 == spans ? 0 : span + 1;
}

INLINE struct ring ring_of(const struct matmul_args *a)
{
    const int64_t spans = q8_blocks(a->k);
    float *scales = a->scratch;
    for (int64_t i = 0, span = 0; i < spans + RING_MORE; i++, span = span_after(span, spans))
        scales[i] = q8_scales(a->x[0], a->k)[span];
    return (struct ring){spans, scales};
}

// Which four spans of each stream are at hand.
struct cursor {
    int64_t at, span; // the first of them: of the stream, of its row
};

// The streams are the quarters of all rows (where rows are not a multiple of four, the last two overlap). A stream's
// spans are taken as they follow each other, four at a time, whether a row ends among them or not. They may be added up some
// steps after they are read.
struct walk {
    const uint8_t *stream[STREAMS];
    int first[STREAMS]; // row
    struct ring x;
    int64_t all; // spans of a stream
    struct cursor read, added;
    int row;  // of a stream, that sums are added up for
    __m128 d; // its sums so far
};

// Where the spans at hand of each stream lie, but for how far it is read: n <= QUARTERS of them; past these the last one
// stands in.
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

// To the next four spans of each stream; false: there are none.
INLINE bool walk_step(struct walk *k)
{
    cursor_step(&k->read, k->x.spans);
    return k->read.at < k->all;
}

INLINE void walk_put(const struct matmul_args *a, struct walk *k)
{
    float four[STREAMS];
    _mm_storeu_ps(four, k->d);
    UNROLL
    for (int i = 0; i < STREAMS; i++)
        a->y[0][k->first[i] + k->row] = four[i];
    k->row++;
    k->d = _mm_setzero_ps();
}

// The sums S of the next four spans, a quarter after the other, and the rows that end with one.
INLINE void walk_add(const struct matmul_args *a, struct walk *k, __m512 sum)
{
    const float *scales = k->x.scales + k->added.span;
    const __m128 quarters[QUARTERS] = {_mm512_extractf32x4_ps(sum, 0), _mm512_extractf32x4_ps(sum, 1),
                                       _mm512_extractf32x4_ps(sum, 2), _mm512_extractf32x4_ps(sum, 3)};
    int64_t left = k->x.spans - k->added.span; // of the row
    UNROLL
    for (int i = 0; i < QUARTERS; i++) {
        k->d = _mm_fmadd_ps(quarters[i], _mm_set1_ps(scales[i]), k->d);
        if (--left == 0) {
            if (k->added.at + i < k->all)
                walk_put(a, k);
            left = k->x.spans;
        }
    }
    cursor_step(&k->added, k->x.spans);
}

// ---- Q8_0

enum { BLOCK_Q8_0 = 34, SPAN_Q8_0 = 8 * BLOCK_Q8_0 };

// Rows of whole spans that follow each other without a gap: all of a stream is evenly spaced.
INLINE bool is_even_q8_0(const struct matmul_args *a)
{
    return a->k % 256 == 0 && a->w_stride == (size_t)(a->k / 32 * BLOCK_Q8_0);
}

// A span of other rows, the same in each stream.
struct place {
    int64_t row, span;
    size_t at;  // bytes from where the stream begins
};

// Past the end of a stream its last row stands in.
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

// Two blocks are read at a time: what is behind an odd last one may be no memory of ours, so that it is read from a copy.
struct odd_spans {
    uint8_t of[GROUP][SPAN_Q8_0];
};

INLINE struct rows16 walk_uneven(const struct matmul_args *a, const struct walk *k, struct place *p, struct odd_spans *odd)
{
    struct rows16 w;
    UNROLL
    for (int t = 0; t < QUARTERS; t++, place_step(a, k, p)) {
        const int blocks = blocks_in_span(a, p->span);
        UNROLL
        for (int r = STREAMS * t; r < STREAMS * (t + 1); r++)
            w.at[r] = k->stream[r % STREAMS] + p->at;
        for (int r = STREAMS * t; blocks % 2 && r < STREAMS * (t + 1); r++)
            w.at[r] = memcpy(odd->of[r], w.at[r], (size_t)(blocks * BLOCK_Q8_0));
    }
    return w;
}

// Blocks 2p and 2p + 1 of the spans at `at`, as dots_rows_q8_0 has it of rows; the first goes to lane `lane`.
INLINE __m512i dots_two_blocks(const uint8_t *const at[STREAMS], int p, __m512i x, struct spans *to, int lane)
{
    const __m512i start = offset_start(x, 128);
    __m512i u[STREAMS];
    UNROLL
    for (int i = 0; i < STREAMS; i++) {
        const uint8_t *two = at[i] + 2 * BLOCK_Q8_0 * p;
        const __m512i w = _mm512_xor_si512(load_2x32(two + 2, two + 36), _mm512_set1_epi8((char)0x80));
        to->half[2 * p][lane + i] = load_half(two);
        to->half[2 * p + 1][lane + i] = load_half(two + BLOCK_Q8_0);
        u[i] = _mm512_dpbusd_epi32(start, w, x);
    }
    return reduce_quarters(u);
}

// The group at hand, whose spans lie at `at` of w. Each is read from its beginning to its end, then the next one, and
// nothing is asked for: what comes is left to the hardware. (That is too late where there is more to compute.)
INLINE void read_group_q8_0(const struct matmul_args *a, const struct walk *k, bool even, const struct rows16 *w, size_t at,
                            struct spans *to)
{
    const int8_t *q = q8_quants(a->x[0]);
    int64_t span = k->read.span;
    __m512i v[4][QUARTERS];
    UNROLL
    for (int t = 0; t < QUARTERS; t++, span = span_after(span, k->x.spans)) {
        const int blocks = even ? 8 : blocks_in_span(a, span);
        const uint8_t *four[STREAMS];
        UNROLL
        for (int i = 0; i < STREAMS; i++)
            four[i] = w->at[STREAMS * t + i] + at;
        UNROLL
        for (int p = 0; p < 4; p++)
            if (2 * p < blocks)
                v[p][t] = dots_two_blocks(four, p, load_512(q + 256 * span + 64 * p), to, STREAMS * t);
            else
                v[p][t] = _mm512_setzero_si512();
    }
    UNROLL
    for (int p = 0; p < 4; p++)
        add_halves(v[p], to->dot + 2 * p);
}

// Lanes of the group that is added next whose span has eight blocks.
INLINE __mmask16 whole_spans(const struct walk *k)
{
    int lanes = 0;
    for (int64_t t = 0, span = k->added.span; t < QUARTERS; t++, span = span_after(span, k->x.spans))
        lanes |= (span + 1 < k->x.spans ? 15 : 0) << STREAMS * t;
    return (__mmask16)lanes;
}

// Of the first `last` blocks of all lanes and the others of `whole`.
INLINE __m512 scaled_q8_0(const struct spans *g, int last, __mmask16 whole)
{
    __m512 sum = _mm512_setzero_ps();
    UNROLL
    for (int b = 0; b < 8; b++)
        sum = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(g->dot[b]), _mm512_cvtph_ps(load_256(g->half[b])), sum,
                                    b < last ? 0xffff : whole);
    return sum;
}

INLINE void add_group_q8_0(const struct matmul_args *a, struct walk *k, bool even, const struct spans *g)
{
    walk_add(a, k, even ? scaled_q8_0(g, 8, 0xffff) : scaled_q8_0(g, blocks_in_span(a, k->x.spans - 1), whole_spans(k)));
}

// `even`, known to the compiler: the other way in the same loop would cost a tenth.
INLINE void decode_streams_q8_0(const struct matmul_args *a, bool even)
{
    struct walk k = walk_of(a);
    struct rows16 w = walk_spans(&k, SPAN_Q8_0, QUARTERS);
    struct place place = {0, 0, 0};
    struct odd_spans odd;
    struct spans made[2];
    const struct spans *last = NULL;
    for (int turn = 0; walk_step(&k); turn ^= 1) {
        if (!even)
            w = walk_uneven(a, &k, &place, &odd);
        else if (k.read.at + QUARTERS > k.all)
            w = walk_spans(&k, SPAN_Q8_0, k.all - k.read.at);
        read_group_q8_0(a, &k, even, &w, even ? (size_t)k.read.at * SPAN_Q8_0 : 0, &made[turn]);
        STAYS_IN_MEMORY(made);
        if (last)
            add_group_q8_0(a, &k, even, last);
        last = &made[turn];
    }
    if (last)
        add_group_q8_0(a, &k, even, last);
}

INLINE void decode_q8_0(const struct matmul_args *a)
{
    if (is_even_q8_0(a))
        decode_streams_q8_0(a, true);
    else
        decode_streams_q8_0(a, false);
}

// ---- the functions

#define ONE_32(name, CALL)                                                                                             \
    void ISA_FN(matmul_q8_one_##name)(const struct matmul_args *a)                                                     \
    {                                                                                                                  \
        CALL;                                                                                                          \
    }

// clang-format off
ONE_32(q4_0, decode_apart(a, &shape_q4_0))
ONE_32(q4_1, decode_apart(a, &shape_q4_1))
ONE_32(q5_0, decode_apart(a, &shape_q5_0))
ONE_32(q5_1, decode_apart(a, &shape_q5_1))
ONE_32(q8_0, decode_q8_0(a))
ONE_32(iq4_nl, decode_apart(a, &shape_iq4_nl))
ONE_32(mxfp4, decode_apart(a, &shape_mxfp4))
// clang-format on
