// Attention on tensor cores: copies of keys and values to shared memory, fragments of queries, scores, weights and
// products with values. emit_attend_half.h has the layout that its functions agree on.
#include "kernels/ptx/emit_attend_half.h"

// Bits of a pair of f16: 1024 + 128, and 1024 + 8. A byte u behind the byte 0x64 is 1024 + u.
enum { PAIR_OF_1152 = 0x64806480, PAIR_OF_1032 = 0x64086408 };

static bool part_fits(const struct ptx_kv *kv)
{
    bool known = kv->type == DT_F16 || kv->type == DT_Q8_0 || kv->type == DT_Q4_0;
    bool rows = !kv->row_dim || (kv->type == DT_F16 && kv->row_dim % 8 == 0);
    return known && rows && kv->dim % 16 == 0 && kv->dim <= (kv->type == DT_F16 ? 256 : 128);
}

bool ptx_attend_takes_halves(const struct ptx_attend *a, uint32_t target)
{
    const bool halved = a->v.dim <= 128 || a->v.dim % 32 == 0; // two warps share longer values
    return target >= 80 && part_fits(&a->k) && part_fits(&a->v) && halved && a->scale > 0 && !a->slopes;
}

struct half_part half_part_of(const struct ptx_kv *kv)
{
    return (struct half_part){.type = kv->type,
                              .dim = kv->dim,
                              .row = ptx_kv_row_bytes(kv),
                              .stride = 2 * kv->dim + 16,
                              .converted = kv->type != DT_F16};
}

void half_places(struct ptx *p, const struct half_shape *s)
{
    PTX_FILL(p,
             "    mov.b32 %zero, 0;\n"
             "    mov.f32 %nil, 0f00000000;\n"
             "    and.b32 %lane, %thread, 31;\n"
             "    shr.u32 %warp, %thread, 5;\n"
             "    shr.u32 %g, %lane, 2;\n"
             "    and.b32 %col, %lane, 3;\n"
             "    and.b32 %copier, %thread, $0;\n"
             "    shr.u32 %copy_row, %copier, 3;\n"
             "    and.b32 %copy_col, %copier, 7;\n"
             "    and.b32 %i, %lane, 7;\n"
             "    shr.u32 %j, %lane, 4;\n"
             "    bfe.u32 %n, %lane, 3, 1;\n"
             "    mad.lo.u32 %lane_k, %j, 8, %i;\n"
             "    mul.lo.u32 %lane_k, %lane_k, $1;\n"
             "    mad.lo.u32 %lane_k, %n, 16, %lane_k;\n"
             "    mad.lo.u32 %lane_v, %n, 8, %i;\n"
             "    mul.lo.u32 %lane_v, %lane_v, $2;\n"
             "    mad.lo.u32 %lane_v, %j, 16, %lane_v;\n",
             s->copiers - 1, s->k.stride, s->v.stride);
}

// ---- copies

// Rows of f16: 8 threads copy 128 bytes of a row.
static void copy_rows(struct ptx *p, const struct half_shape *s, const struct half_part *part, uint32_t first,
                      uint32_t rows)
{
    const uint32_t chunks = part->dim / 8, per = s->copiers / 8;
    PTX_FILL(p,
             "    mad.wide.u32 %src, %copy_row, $0, %from;\n"
             "    mad.wide.u32 %src, %copy_col, 16, %src;\n"
             "    mad.lo.u32 %dst, %copy_row, $1, %to;\n"
             "    mad.lo.u32 %dst, %copy_col, 16, %dst;\n"
             "    sub.s32 %fits, %valid, %copy_row;\n",
             part->row, part->stride);
    if (chunks % 8)
        PTX_FILL(p, "    setp.lt.u32 %narrow, %copy_col, $0;\n", chunks % 8);
    for (uint32_t j = 0; j < rows; j += per) {
        PTX_FILL(p,
                 "    setp.ge.s32 %in, %fits, $0;\n"
                 "    selp.u32 %used, 16, 0, %in;\n",
                 first + j);
        for (uint32_t i = 0; i < chunks; i += 8) {
            if (i + 8 > chunks)
                PTX_LINES(p, "    @%narrow ");
            PTX_FILL(p, "    cp.async.cg.shared.global [%dst+$0], [%src+$1], 16, %used;\n", j * part->stride + 16 * i,
                     (first + j) * part->row + 16 * i);
        }
    }
}

// Rows of blocks: they follow each other without space between them, and are copied so.
static void copy_blocks(struct ptx *p, const struct half_shape *s, const struct half_part *part, uint32_t first,
                        uint32_t rows)
{
    const uint32_t chunks = rows * part->row / 16;
    PTX_FILL(p,
             "    mad.wide.u32 %src, %copier, 16, %from;\n"
             "    mad.lo.u32 %dst, %copier, 16, %to;\n"
             "    min.s32 %fits, %valid, 63;\n"
             "    sub.s32 %fits, %fits, $0;\n"
             "    mul.lo.s32 %fits, %fits, $1;\n"
             "    mul.lo.u32 %used, %copier, 16;\n"
             "    sub.s32 %fits, %fits, %used;\n"
             "    add.s32 %fits, %fits, $1;\n",
             first, part->row);
    for (uint32_t i = 0; i < chunks; i += s->copiers) {
        PTX_FILL(p,
                 "    sub.s32 %used, %fits, $0;\n"
                 "    max.s32 %used, %used, 0;\n"
                 "    min.s32 %used, %used, 16;\n",
                 16 * i);
        if (i + s->copiers > chunks)
            PTX_FILL(p,
                     "    setp.lt.u32 %narrow, %copier, $0;\n"
                     "    @%narrow ",
                     chunks - i);
        PTX_FILL(p, "    cp.async.cg.shared.global [%dst+$0], [%src+$1], 16, %used;\n", 16 * i,
                 first * part->row + 16 * i);
    }
}

void half_copy(struct ptx *p, const struct half_shape *s, const struct half_part *part, uint32_t first, uint32_t rows)
{
    if (part->converted)
        copy_blocks(p, s, part, first, rows);
    else
        copy_rows(p, s, part, first, rows);
}

// ---- conversion

// Turns the four bytes of %w<word> into f16 in %h<h> and %h<h + 1>: the difference of two whole numbers, which is
// exact, times the scale, which is rounded once.
static void bytes_to_halves(struct ptx *p, uint32_t word, uint32_t h)
{
    PTX_FILL(p,
             "    prmt.b32 %h$1, %w$0, %bits, 0x4140;\n"
             "    prmt.b32 %h$2, %w$0, %bits, 0x4342;\n",
             word, h, h + 1);
    for (uint32_t i = h; i < h + 2; i++)
        PTX_FILL(p,
                 "    sub.rn.f16x2 %h$0, %h$0, %bias_h;\n"
                 "    mul.rn.f16x2 %h$0, %h$0, %d;\n",
                 i);
}

static uint32_t block_bytes(const struct half_part *part)
{
    return (uint32_t)dtype_info[part->type].bytes;
}

// Sets %i to the word in which the thread's first block begins, at byte 18 or 34 times %copier of %raw: in its middle,
// if %copier is odd. The number of threads is even, so that all blocks of a thread lie alike.
static void find_block(struct ptx *p, const struct half_part *part)
{
    PTX_FILL(p,
             "    mul.lo.u32 %i, %copier, $0;\n"
             "    and.b32 %i, %i, 0xfffffffc;\n"
             "    add.u32 %i, %i, %raw;\n"
             "    and.b32 %j, %copier, 1;\n"
             "    setp.ne.u32 %odd, %j, 0;\n"
             "    selp.b32 %pick, 0x7654, 0x5432, %odd;\n"
             "    selp.b32 %pick_d, 0x3232, 0x1010, %odd;\n",
             block_bytes(part));
}

// Loads the block that is `blocks` blocks behind the thread's first: %d is a pair of its scale, %w0 on its quants.
static void load_block(struct ptx *p, const struct half_part *part, uint32_t blocks)
{
    const uint32_t words = block_bytes(part) / 4;
    for (uint32_t i = 0; i <= words; i++)
        PTX_FILL(p, "    ld.shared.u32 %w$0, [%i+$1];\n", i, 4 * i + blocks * block_bytes(part));
    PTX_LINES(p, "    prmt.b32 %d, %w0, %w0, %pick_d;\n");
    for (uint32_t i = 0; i < words; i++)
        PTX_FILL(p, "    prmt.b32 %w$0, %w$0, %w$1, %pick;\n", i, i + 1);
}

// Sets %h0 to %h15 to the block's 32 elements.
static void block_to_halves(struct ptx *p, const struct half_part *part)
{
    PTX_FILL(p,
             "    mov.b32 %bits, 0x64646464;\n"
             "    mov.b32 %bias_h, $0;\n",
             part->type == DT_Q8_0 ? PAIR_OF_1152 : PAIR_OF_1032);
    for (uint32_t i = 0; i < 8 && part->type == DT_Q8_0; i++) {
        PTX_FILL(p, "    xor.b32 %w$0, %w$0, 0x80808080;\n", i);
        bytes_to_halves(p, i, 2 * i);
    }
    for (uint32_t i = 0; i < 4 && part->type == DT_Q4_0; i++) {
        PTX_FILL(p,
                 "    shr.u32 %w$1, %w$0, 4;\n"
                 "    and.b32 %w$0, %w$0, 0x0f0f0f0f;\n"
                 "    and.b32 %w$1, %w$1, 0x0f0f0f0f;\n",
                 i, 4 + i);
        bytes_to_halves(p, i, 2 * i);
        bytes_to_halves(p, 4 + i, 8 + 2 * i);
    }
}

// Sets %dst to the place of the block that is `blocks` blocks behind the thread's first, and returns what is to be
// added to it. Where the blocks of a thread are in the same columns of their rows, %dst is the place of the first one.
static uint32_t find_halves(struct ptx *p, const struct half_shape *s, const struct half_part *part, uint32_t blocks)
{
    const uint32_t per_row = part->dim / 32;
    const bool alike = s->copiers % per_row == 0;
    if (!alike || !blocks)
        PTX_FILL(p,
                 "    add.u32 %n, %copier, $2;\n"
                 "    div.u32 %dst, %n, $0;\n"
                 "    mul.lo.u32 %j, %dst, $0;\n"
                 "    sub.u32 %j, %n, %j;\n"
                 "    mad.lo.u32 %dst, %dst, $1, %work;\n"
                 "    mad.lo.u32 %dst, %j, 64, %dst;\n",
                 per_row, part->stride, blocks);
    return alike ? blocks / per_row * part->stride : 0;
}

void half_convert(struct ptx *p, const struct half_shape *s, const struct half_part *part, uint32_t rows,
                  uint32_t label)
{
    const uint32_t blocks = rows * (part->dim / 32);
    find_block(p, part);
    for (uint32_t at = 0; at < blocks; at += s->copiers) {
        if (at + s->copiers > blocks)
            PTX_FILL(p,
                     "    setp.ge.u32 %in, %copier, $0;\n"
                     "    @%in bra CONVERTED$1;\n",
                     blocks - at, label);
        load_block(p, part, at);
        const uint32_t to = find_halves(p, s, part, at);
        block_to_halves(p, part);
        for (uint32_t i = 0; i < 4; i++)
            PTX_FILL(p, "    st.shared.v4.b32 [%dst+$0], {%h$1, %h$2, %h$3, %h$4};\n", to + 16 * i, 4 * i, 4 * i + 1,
                     4 * i + 2, 4 * i + 3);
    }
    if (blocks % s->copiers)
        PTX_FILL(p, "CONVERTED$0:\n", label);
}

// ---- queries

// Loads the lane's elements of query r, a quarter of the head, and finds the largest magnitude of the head. As the bits
// of a float: they are in the order of the numbers, and those of what is no number are the largest.
static void load_query(struct ptx *p, const struct ptx_attend *a, uint32_t r, bool guarded)
{
    PTX_LINES(p, "    mov.u32 %largest, 0;\n");
    for (uint32_t i = 0; i < a->k.dim / 4; i += 2) {
        if (guarded)
            PTX_FILL(p,
                     "    mov.f32 %x$0, %nil;\n"
                     "    mov.f32 %x$1, %nil;\n"
                     "    @%has_row$2 ",
                     i, i + 1, r);
        PTX_FILL(p, "    ld.global.v2.f32 {%x$0, %x$1}, [%pq$2+$3];\n", i, i + 1, r, 16 * i);
    }
    for (uint32_t i = 0; i < a->k.dim / 4; i++)
        PTX_FILL(p,
                 "    mov.b32 %bits, %x$0;\n"
                 "    and.b32 %bits, %bits, 0x7fffffff;\n"
                 "    max.u32 %largest, %largest, %bits;\n",
                 i);
    for (uint32_t by = 1; by < 4; by *= 2)
        PTX_FILL(p,
                 "    shfl.sync.bfly.b32 %bits, %largest, $0, 31, 0xffffffff;\n"
                 "    max.u32 %largest, %largest, %bits;\n",
                 by);
}

// For a largest magnitude of 2^(e - 127) to twice that the scale is 2^(141 - e), which makes it 2^14 to 2^15. Heads
// below 2^-112 are scaled as if they reached that. The factor undoes it, and makes a score with a soft cap what it is,
// and a score without a multiple of log2 e. It is never zero, with which an infinite score would be no number.
void half_query(struct ptx *p, const struct ptx_attend *a, uint32_t r, bool guarded)
{
    const double unit = a->softcap > 0 ? 1 : LOG2_E;
    load_query(p, a, r, guarded);
    PTX_FILL(p,
             "    shr.u32 %largest, %largest, 23;\n"
             "    max.u32 %largest, %largest, 15;\n"
             "    sub.u32 %bits, 268, %largest;\n"
             "    shl.b32 %bits, %bits, 23;\n"
             "    mov.b32 %other, %bits;\n"
             "    sub.u32 %bits, %largest, 14;\n"
             "    shl.b32 %bits, %bits, 23;\n"
             "    mov.b32 %factor$0, %bits;\n"
             "    mul.rn.f32 %factor$0, %factor$0, 0f$x1;\n"
             "    max.f32 %factor$0, %factor$0, 0f00800000;\n"
             "    mov.f32 %times$0, %factor$0;\n",
             r, ptx_float_bits((float)((double)a->scale * unit)));
    if (a->softcap > 0)
        PTX_FILL(p, "    mov.f32 %times$0, 0f$x1;\n", r, ptx_float_bits((float)LOG2_E));
    for (uint32_t i = 0; i < a->k.dim / 4; i++)
        PTX_FILL(p, "    mul.rn.f32 %x$0, %x$0, %other;\n", i);
    for (uint32_t i = 0; i < a->k.dim / 8; i++)
        PTX_FILL(p, "    cvt.rn.f16x2.f32 %q$0, %x$2, %x$1;\n", 2 * i + r, 2 * i, 2 * i + 1);
}

// ---- scores

// One matrix instruction: d = a b + c, with the sums in s (reg 's') or c.
#define MMA(reg)                                                                                                       \
    "    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%" reg "$0, %" reg "$1, %" reg "$2, %" reg "$3}, "

void half_score(struct ptx *p, uint32_t q, uint32_t u, uint32_t at, bool begins)
{
    PTX_FILL(p, "    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%b0, %b1, %b2, %b3}, [%take+$0];\n", at);
    for (uint32_t n = 0; n < 2; n++) {
        const uint32_t s = 8 * u + 4 * n;
        PTX_FILL(p, MMA("s") "{%q$4, %q$5, %q$6, %q$7}, {%b$8, %b$9}, ", s, s + 1, s + 2, s + 3, q, q + 1, q + 2, q + 3,
                 2 * n, 2 * n + 1);
        if (begins)
            PTX_LINES(p, "{%nil, %nil, %nil, %nil};\n");
        else
            PTX_FILL(p, "{%s$0, %s$1, %s$2, %s$3};\n", s, s + 1, s + 2, s + 3);
    }
}

static void cap_scores(struct ptx *p, const struct ptx_attend *a, const struct half_shape *s)
{
    for (uint32_t i = 0; i < 32; i++) {
        if (i / 2 % 2 >= s->rows)
            continue;
        PTX_FILL(p, "    mul.rn.f32 %score, %s$0, %factor$1;\n", i, i / 2 % 2);
        attend_softcap(p, a->softcap);
        PTX_FILL(p, "    mov.f32 %s$0, %score;\n", i);
    }
}

static void mask_scores(struct ptx *p, const struct ptx_attend *a, const struct half_shape *s)
{
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t r = i / 2 % 2, key = i / 4 * 8 + i % 2;
        if (r >= s->rows)
            continue;
        PTX_FILL(p, "    setp.ge.s32 %in, %hi$1, $0;\n", key, r);
        if (a->window)
            PTX_FILL(p, "    setp.le.and.s32 %in, %lo$1, $0, %in;\n", key, r);
        PTX_FILL(p, "    selp.f32 %s$0, %s$0, 0fFF800000, %in;\n", i);
    }
}

void half_tops(struct ptx *p, const struct ptx_attend *a, const struct half_shape *s, uint32_t label)
{
    if (a->softcap > 0)
        cap_scores(p, a, s);
    PTX_FILL(p, "    @%whole bra.uni SEEN$0;\n", label);
    mask_scores(p, a, s);
    PTX_FILL(p, "SEEN$0:\n", label);
    for (uint32_t r = 0; r < s->rows; r++) {
        PTX_FILL(p,
                 "    mov.f32 %most, %s$0;\n"
                 "    mov.f32 %other, %s$1;\n",
                 2 * r, 2 * r + 1);
        for (uint32_t n = 1; n < 8; n++)
            PTX_FILL(p,
                     "    max.f32 %most, %most, %s$0;\n"
                     "    max.f32 %other, %other, %s$1;\n",
                     4 * n + 2 * r, 4 * n + 2 * r + 1);
        PTX_LINES(p, "    max.f32 %most, %most, %other;\n");
        for (uint32_t by = 1; by < 4; by *= 2)
            PTX_FILL(p,
                     "    shfl.sync.bfly.b32 %other, %most, $0, 31, 0xffffffff;\n"
                     "    max.f32 %most, %most, %other;\n",
                     by);
        PTX_FILL(p, "    mul.rn.f32 %part$0, %most, %times$0;\n", r);
    }
}

// ---- weights

// A row that has seen nothing yet has -inf as its largest score, and 0 in its place keeps its weights 0.
void half_weights(struct ptx *p, const struct half_shape *s)
{
    for (uint32_t r = 0; r < s->rows; r++) {
        PTX_FILL(p,
                 "    setp.eq.f32 %in, %new$0, 0fFF800000;\n"
                 "    selp.f32 %use, 0f00000000, %new$0, %in;\n"
                 "    sub.rn.f32 %keep$0, %before$0, %use;\n"
                 "    ex2.approx.ftz.f32 %keep$0, %keep$0;\n"
                 "    sub.rn.f32 %bias, 0f41700000, %use;\n",
                 r);
        for (uint32_t i = 0; i < 16; i++)
            PTX_FILL(p,
                     "    fma.rn.f32 %s$0, %s$0, %times$1, %bias;\n"
                     "    ex2.approx.ftz.f32 %s$0, %s$0;\n",
                     i / 2 * 4 + 2 * r + i % 2, r);
        PTX_FILL(p,
                 "    mov.f32 %part$0, %s$1;\n"
                 "    mov.f32 %other, %s$2;\n",
                 r, 2 * r, 2 * r + 1);
        for (uint32_t n = 1; n < 8; n++)
            PTX_FILL(p,
                     "    add.rn.f32 %part$0, %part$0, %s$1;\n"
                     "    add.rn.f32 %other, %other, %s$2;\n",
                     r, 4 * n + 2 * r, 4 * n + 2 * r + 1);
        PTX_FILL(p, "    add.rn.f32 %part$0, %part$0, %other;\n", r);
        for (uint32_t by = 1; by < 4; by *= 2)
            PTX_FILL(p,
                     "    shfl.sync.bfly.b32 %other, %part$0, $1, 31, 0xffffffff;\n"
                     "    add.rn.f32 %part$0, %part$0, %other;\n",
                     r, by);
    }
    for (uint32_t i = 0; i < 16; i++)
        if (i % 2 < s->rows)
            PTX_FILL(p, "    cvt.rn.f16x2.f32 %p$0, %s$2, %s$1;\n", i, 2 * i, 2 * i + 1);
        else
            PTX_FILL(p, "    mov.b32 %p$0, %zero;\n", i);
}

void half_values(struct ptx *p, uint32_t c, uint32_t u, uint32_t at, bool begins)
{
    PTX_FILL(p, "    ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%b0, %b1, %b2, %b3}, [%take+$0];\n", at);
    for (uint32_t n = 0; n < 2; n++, c += 4) {
        PTX_FILL(p, MMA("c") "{%p$4, %p$5, %p$6, %p$7}, {%b$8, %b$9}, ", c, c + 1, c + 2, c + 3, 4 * u, 4 * u + 1,
                 4 * u + 2, 4 * u + 3, 2 * n, 2 * n + 1);
        if (begins)
            PTX_LINES(p, "{%nil, %nil, %nil, %nil};\n");
        else
            PTX_FILL(p, "{%c$0, %c$1, %c$2, %c$3};\n", c, c + 1, c + 2, c + 3);
    }
}
