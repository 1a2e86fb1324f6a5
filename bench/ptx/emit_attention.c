// Emits attention of f32 heads with an online softmax, as in FlashAttention: the matrix of scores is never stored.
//
// The naive loop: for each query, s[j] = q . k[j] * scale, w = softmax(s), out = sum over j of w[j] * v[j]. Here the
// keys are processed in tiles of 32. A running maximum and a running sum of weights are kept for each query; when the
// maximum grows, the earlier sums are multiplied by exp(old maximum - new maximum).
//
// A CTA has 4 warps and 16 queries of one head; a warp has 4 of them. grid x covers the queries, grid y the heads. For
// a tile a lane first has one key (its scores with the warp's 4 queries), and then dimensions lane, lane + 32, and so
// on (their sums of values). Shared memory holds the 16 queries, a tile of keys, a tile of values, and the weights: up
// to 43520 bytes for heads of 128. Rows of keys are padded by 16 bytes, so that the lanes read 32 of them without bank
// conflicts. Each key and value is loaded from global memory once for 16 queries.
#include "bench/ptx/emitters.h"

#include <math.h>

enum { QUERIES = 16, KEYS = 32 };

// How rows are copied to shared memory: a group of lanes copies a row, each lane 16 bytes of it.
struct row_copy {
    uint32_t chunks;      // of 16 bytes in a row
    uint32_t group_shift; // log2 of the lanes of a group: 3 to 5
    uint32_t rows;        // rows that the CTA copies at once: 4 to 16
};

static struct row_copy row_copy_of(uint32_t dim)
{
    uint32_t chunks = dim / 4, shift = chunks <= 8 ? 3 : chunks <= 16 ? 4 : 5;
    return (struct row_copy){chunks, shift, 4 * (32u >> shift)};
}

static void attention_head(struct ptx *p, const struct ptx_attention *a, uint32_t parts)
{
    ptx_header(p, 63, 75);
    PTX_FILL(p, "\n// node $0: attention, f32: $1 heads, $2 positions of $3", a->node, a->heads, a->positions, a->dim);
    if (a->causal)
        PTX_LINES(p, ", causal");
    PTX_FILL(p,
             "\n"
             ".visible .entry attention_$0(\n"
             "    .param .u64 q,\n"
             "    .param .u64 k,\n"
             "    .param .u64 v,\n"
             "    .param .u64 out)\n"
             ".maxntid 128, 1, 1\n"
             "{\n"
             "    .reg .pred %more, %in, %masked;\n"
             "    .reg .u32 %thread, %lane, %warp, %query, %key, %key0, %end, %row, %chunk, %near, %index;\n"
             "    .reg .u32 %place_q, %place_k, %place_v, %read_q, %read_k, %write_p, %read_p, %dim<$1>;\n"
             "    .reg .u64 %head, %pq, %pk, %pv, %po, %offset;\n"
             "    .reg .f32 %s<4>, %m<4>, %l<4>, %t<4>, %f<4>;\n"
             "    .reg .f32 %o0_<$1>, %o1_<$1>, %o2_<$1>, %o3_<$1>;\n"
             "    .shared .align 16 .b8 tile_q[$2];\n"
             "    .shared .align 16 .b8 tile_k[$3];\n"
             "    .shared .align 16 .b8 tile_v[$4];\n"
             "    .shared .align 16 .b8 weights[2048];\n",
             a->node, parts, 4 * QUERIES * a->dim, 4 * KEYS * (a->dim + 4), 4 * KEYS * a->dim);
}

// Sets the addresses of the head, of the chunks that a thread copies, and of the weights that its warp exchanges.
static void attention_places(struct ptx *p, const struct ptx_attention *a, const struct row_copy *c)
{
    PTX_FILL(p,
             "    mov.u32 %thread, %tid.x;\n"
             "    and.b32 %lane, %thread, 31;\n"
             "    shr.u32 %warp, %thread, 5;\n"
             "    mov.u32 %index, %ctaid.y;\n"
             "    mul.wide.u32 %head, %index, $0;\n"
             "    ld.param.u64 %pq, [q];\n"
             "    cvta.to.global.u64 %pq, %pq;\n"
             "    add.u64 %pq, %pq, %head;\n"
             "    ld.param.u64 %pk, [k];\n"
             "    cvta.to.global.u64 %pk, %pk;\n"
             "    add.u64 %pk, %pk, %head;\n"
             "    ld.param.u64 %pv, [v];\n"
             "    cvta.to.global.u64 %pv, %pv;\n"
             "    add.u64 %pv, %pv, %head;\n"
             "    ld.param.u64 %po, [out];\n"
             "    cvta.to.global.u64 %po, %po;\n"
             "    add.u64 %po, %po, %head;\n",
             4 * a->positions * a->dim);
    PTX_FILL(p,
             "    // copying: 16 bytes of row t >> $0 of a tile\n"
             "    shr.u32 %row, %thread, $0;\n"
             "    and.b32 %chunk, %thread, $1;\n"
             "    setp.lt.u32 %in, %chunk, $2;\n"
             "    shl.b32 %chunk, %chunk, 4;\n"
             "    mov.u32 %place_q, tile_q;\n"
             "    mad.lo.u32 %place_q, %row, $3, %place_q;\n"
             "    add.u32 %place_q, %place_q, %chunk;\n"
             "    mov.u32 %place_k, tile_k;\n"
             "    mad.lo.u32 %place_k, %row, $4, %place_k;\n"
             "    add.u32 %place_k, %place_k, %chunk;\n"
             "    mov.u32 %place_v, tile_v;\n"
             "    mad.lo.u32 %place_v, %row, $3, %place_v;\n"
             "    add.u32 %place_v, %place_v, %chunk;\n"
             "    // the weights of this warp's 4 queries with 32 keys\n"
             "    mov.u32 %read_p, weights;\n"
             "    mad.lo.u32 %read_p, %warp, 512, %read_p;\n"
             "    mad.lo.u32 %write_p, %lane, 4, %read_p;\n"
             "    mov.u32 %query, %ctaid.x;\n"
             "    shl.b32 %query, %query, 4;\n",
             c->group_shift, (1u << c->group_shift) - 1, c->chunks, 4 * a->dim, 4 * a->dim + 16);
}

// Copies the queries to shared memory. Rows past the end read the last one; their results are not stored.
static void attention_queries(struct ptx *p, const struct ptx_attention *a, const struct row_copy *c)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .f32 %x0, %x1, %x2, %x3;\n");
    for (uint32_t r = 0; r < QUERIES; r += c->rows)
        PTX_FILL(p,
                 "    add.u32 %near, %row, %query;\n"
                 "    add.u32 %near, %near, $0;\n"
                 "    min.u32 %near, %near, $1;\n"
                 "    mad.lo.u32 %near, %near, $2, %chunk;\n"
                 "    cvt.u64.u32 %offset, %near;\n"
                 "    add.u64 %offset, %pq, %offset;\n"
                 "    @%in ld.global.v4.f32 {%x0, %x1, %x2, %x3}, [%offset];\n"
                 "    @%in st.shared.v4.f32 [%place_q+$3], {%x0, %x1, %x2, %x3};\n",
                 r, a->positions - 1, 4 * a->dim, 4 * a->dim * r);
    PTX_LINES(p, "    }\n");
}

static void attention_begin(struct ptx *p, const struct ptx_attention *a, uint32_t parts)
{
    if (a->causal)
        PTX_FILL(p,
                 "    // the last query's position ends the keys\n"
                 "    add.u32 %end, %query, 16;\n"
                 "    min.u32 %end, %end, $0;\n",
                 a->positions);
    else
        PTX_FILL(p, "    mov.u32 %end, $0;\n", a->positions);
    PTX_LINES(p, "    mad.lo.u32 %query, %warp, 4, %query;\n"
                 "    mov.u32 %key0, 0;\n"
                 "    mov.f32 %m0, 0fFF800000;\n"
                 "    mov.f32 %m1, 0fFF800000;\n"
                 "    mov.f32 %m2, 0fFF800000;\n"
                 "    mov.f32 %m3, 0fFF800000;\n"
                 "    mov.f32 %l0, 0f00000000;\n"
                 "    mov.f32 %l1, 0f00000000;\n"
                 "    mov.f32 %l2, 0f00000000;\n"
                 "    mov.f32 %l3, 0f00000000;\n");
    for (uint32_t j = 0; j < parts; j++)
        PTX_FILL(p,
                 "    mov.f32 %o0_$0, 0f00000000;\n"
                 "    mov.f32 %o1_$0, 0f00000000;\n"
                 "    mov.f32 %o2_$0, 0f00000000;\n"
                 "    mov.f32 %o3_$0, 0f00000000;\n",
                 j);
}

// Copies a tile of keys and values to shared memory. Rows past the end read the last one; their scores are masked.
static void attention_load(struct ptx *p, const struct ptx_attention *a, const struct row_copy *c)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .f32 %x0, %x1, %x2, %x3, %y0, %y1, %y2, %y3;\n"
                 "    .reg .u64 %from;\n"
                 "    add.u32 %index, %key0, %row;\n");
    for (uint32_t r = 0; r < KEYS; r += c->rows)
        PTX_FILL(p,
                 "    add.u32 %near, %index, $0;\n"
                 "    min.u32 %near, %near, $1;\n"
                 "    mad.lo.u32 %near, %near, $2, %chunk;\n"
                 "    cvt.u64.u32 %offset, %near;\n"
                 "    add.u64 %from, %pk, %offset;\n"
                 "    @%in ld.global.v4.f32 {%x0, %x1, %x2, %x3}, [%from];\n"
                 "    add.u64 %from, %pv, %offset;\n"
                 "    @%in ld.global.v4.f32 {%y0, %y1, %y2, %y3}, [%from];\n"
                 "    @%in st.shared.v4.f32 [%place_k+$3], {%x0, %x1, %x2, %x3};\n"
                 "    @%in st.shared.v4.f32 [%place_v+$4], {%y0, %y1, %y2, %y3};\n",
                 r, a->positions - 1, 4 * a->dim, (4 * a->dim + 16) * r, 4 * a->dim * r);
    PTX_LINES(p, "    }\n"
                 "    bar.sync 0;\n");
}

// Sets %s0 to %s3 to the scores of the lane's key with the warp's queries, times scale * log2(e).
static void attention_scores(struct ptx *p, const struct ptx_attention *a)
{
    PTX_FILL(p,
             "    mov.u32 %read_k, tile_k;\n"
             "    mad.lo.u32 %read_k, %lane, $0, %read_k;\n"
             "    mov.u32 %read_q, tile_q;\n"
             "    mad.lo.u32 %read_q, %warp, $1, %read_q;\n"
             "    add.u32 %index, %read_k, $2;\n"
             "    mov.f32 %s0, 0f00000000;\n"
             "    mov.f32 %s1, 0f00000000;\n"
             "    mov.f32 %s2, 0f00000000;\n"
             "    mov.f32 %s3, 0f00000000;\n"
             "SCORE:\n",
             4 * a->dim + 16, 16 * a->dim, 4 * a->dim);
    PTX_LINES(p, "    {\n"
                 "    .reg .f32 %k0, %k1, %k2, %k3, %q0, %q1, %q2, %q3;\n"
                 "    ld.shared.v4.f32 {%k0, %k1, %k2, %k3}, [%read_k];\n");
    for (uint32_t i = 0; i < 4; i++)
        PTX_FILL(p,
                 "    ld.shared.v4.f32 {%q0, %q1, %q2, %q3}, [%read_q+$1];\n"
                 "    fma.rn.f32 %s$0, %k0, %q0, %s$0;\n"
                 "    fma.rn.f32 %s$0, %k1, %q1, %s$0;\n"
                 "    fma.rn.f32 %s$0, %k2, %q2, %s$0;\n"
                 "    fma.rn.f32 %s$0, %k3, %q3, %s$0;\n",
                 i, 4 * a->dim * i);
    PTX_FILL(p,
             "    }\n"
             "    add.u32 %read_k, %read_k, 16;\n"
             "    add.u32 %read_q, %read_q, 16;\n"
             "    setp.ne.u32 %more, %read_k, %index;\n"
             "    @%more bra SCORE;\n"
             "    mul.rn.f32 %s0, %s0, 0f$x0;\n"
             "    mul.rn.f32 %s1, %s1, 0f$x0;\n"
             "    mul.rn.f32 %s2, %s2, 0f$x0;\n"
             "    mul.rn.f32 %s3, %s3, 0f$x0;\n",
             ptx_float_bits(a->scale * 1.44269504f));
}

static void attention_mask(struct ptx *p, const struct ptx_attention *a)
{
    if (a->causal) {
        PTX_LINES(p, "    // a query sees no key after its own\n"
                     "    add.u32 %key, %key0, %lane;\n");
        for (uint32_t i = 0; i < 4; i++)
            PTX_FILL(p,
                     "    add.u32 %index, %query, $0;\n"
                     "    setp.gt.u32 %masked, %key, %index;\n"
                     "    selp.f32 %s$0, 0fFF800000, %s$0, %masked;\n",
                     i);
    } else if (a->positions % KEYS) {
        PTX_FILL(p,
                 "    add.u32 %key, %key0, %lane;\n"
                 "    setp.ge.u32 %masked, %key, $0;\n"
                 "    selp.f32 %s0, 0fFF800000, %s0, %masked;\n"
                 "    selp.f32 %s1, 0fFF800000, %s1, %masked;\n"
                 "    selp.f32 %s2, 0fFF800000, %s2, %masked;\n"
                 "    selp.f32 %s3, 0fFF800000, %s3, %masked;\n",
                 a->positions);
    }
}

// One step of four butterflies at once, which hide each other's latency. Changes %t0 to %t3.
//   op  max or add
//   v   name of the four registers without % and number
//   by  distance in lanes
#define FOUR(op, v, by)                                                                                                \
    "    shfl.sync.bfly.b32 %t0, %" v "0, " by ", 31, 0xffffffff;\n"                                                   \
    "    shfl.sync.bfly.b32 %t1, %" v "1, " by ", 31, 0xffffffff;\n"                                                   \
    "    shfl.sync.bfly.b32 %t2, %" v "2, " by ", 31, 0xffffffff;\n"                                                   \
    "    shfl.sync.bfly.b32 %t3, %" v "3, " by ", 31, 0xffffffff;\n"                                                   \
    "    " op ".f32 %" v "0, %" v "0, %t0;\n"                                                                          \
    "    " op ".f32 %" v "1, %" v "1, %t1;\n"                                                                          \
    "    " op ".f32 %" v "2, %" v "2, %t2;\n"                                                                          \
    "    " op ".f32 %" v "3, %" v "3, %t3;\n"
#define BUTTERFLIES(op, v) FOUR(op, v, "16") FOUR(op, v, "8") FOUR(op, v, "4") FOUR(op, v, "2") FOUR(op, v, "1")

// The update of query i: %f<i> is the tile's largest score. The new maximum %m<i> is the same in all lanes. %s<i>
// becomes the weight of the lane's key, %t<i> the factor for earlier sums. The sum of weights %l<i> stays separate in
// each lane until the end.
#define ONE_UPDATE(i)                                                                                                  \
    "    max.f32 %f" i ", %f" i ", %m" i ";\n"                                                                         \
    "    sub.rn.f32 %s" i ", %s" i ", %f" i ";\n"                                                                      \
    "    sub.rn.f32 %m" i ", %m" i ", %f" i ";\n"                                                                      \
    "    ex2.approx.ftz.f32 %s" i ", %s" i ";\n"                                                                       \
    "    ex2.approx.ftz.f32 %t" i ", %m" i ";\n"                                                                       \
    "    mov.f32 %m" i ", %f" i ";\n"                                                                                  \
    "    fma.rn.f32 %l" i ", %l" i ", %t" i ", %s" i ";\n"
#define KEEP(i) "    mov.f32 %f" i ", %s" i ";\n"

static void attention_update(struct ptx *p, uint32_t parts)
{
    PTX_LINES(p, "    // the largest score of the tile and before, the weights, and what earlier sums are worth\n"
                 KEEP("0")
                 KEEP("1")
                 KEEP("2")
                 KEEP("3"));
    PTX_LINES(p, BUTTERFLIES("max", "f"));
    PTX_LINES(p, ONE_UPDATE("0") ONE_UPDATE("1") ONE_UPDATE("2") ONE_UPDATE("3"));
    for (uint32_t j = 0; j < parts; j++)
        PTX_FILL(p,
                 "    mul.rn.f32 %o0_$0, %o0_$0, %t0;\n"
                 "    mul.rn.f32 %o1_$0, %o1_$0, %t1;\n"
                 "    mul.rn.f32 %o2_$0, %o2_$0, %t2;\n"
                 "    mul.rn.f32 %o3_$0, %o3_$0, %t3;\n",
                 j);
    PTX_LINES(p, "    st.shared.f32 [%write_p], %s0;\n"
                 "    st.shared.f32 [%write_p+128], %s1;\n"
                 "    st.shared.f32 [%write_p+256], %s2;\n"
                 "    st.shared.f32 [%write_p+384], %s3;\n"
                 "    bar.warp.sync 0xffffffff;\n");
}

// Adds the values of four keys to the sums of dimension part j.
//   j     part of the dimensions: the lane has dimension 32 * j + lane
//   key   0 to 3
//   mark  mark with the offset of that key's row in the tile
#define VALUE(j, key, mark)                                                                                            \
    "    ld.shared.f32 %value, [%dim" j "+" mark "];\n"                                                                \
    "    fma.rn.f32 %o0_" j ", %w0" key ", %value, %o0_" j ";\n"                                                       \
    "    fma.rn.f32 %o1_" j ", %w1" key ", %value, %o1_" j ";\n"                                                       \
    "    fma.rn.f32 %o2_" j ", %w2" key ", %value, %o2_" j ";\n"                                                       \
    "    fma.rn.f32 %o3_" j ", %w3" key ", %value, %o3_" j ";\n"
#define VALUES(j)                                                                                                      \
    VALUE(j, "0", "$0")                                                                                                \
    VALUE(j, "1", "$1") VALUE(j, "2", "$2") VALUE(j, "3", "$3") "    add.u32 %dim" j ", %dim" j ", $4;\n"

static void attention_values(struct ptx *p, const struct ptx_attention *a, uint32_t parts)
{
    uint32_t row = 4 * a->dim;
    PTX_LINES(p, "    // a lane is a dimension now; past the last one it reads the last, which is not stored\n");
    for (uint32_t j = 0; j < parts; j++) {
        PTX_FILL(p, "    add.u32 %index, %lane, $0;\n", 32 * j);
        if (32 * (j + 1) > a->dim)
            PTX_FILL(p, "    min.u32 %index, %index, $0;\n", a->dim - 1);
        PTX_FILL(p,
                 "    mov.u32 %dim$0, tile_v;\n"
                 "    mad.lo.u32 %dim$0, %index, 4, %dim$0;\n",
                 j);
    }
    PTX_LINES(p, "    mov.u32 %index, 0;\n"
                 "VALUE:\n"
                 "    {\n"
                 "    .reg .f32 %w00, %w01, %w02, %w03, %w10, %w11, %w12, %w13;\n"
                 "    .reg .f32 %w20, %w21, %w22, %w23, %w30, %w31, %w32, %w33, %value;\n"
                 "    add.u32 %near, %read_p, %index;\n"
                 "    ld.shared.v4.f32 {%w00, %w01, %w02, %w03}, [%near];\n"
                 "    ld.shared.v4.f32 {%w10, %w11, %w12, %w13}, [%near+128];\n"
                 "    ld.shared.v4.f32 {%w20, %w21, %w22, %w23}, [%near+256];\n"
                 "    ld.shared.v4.f32 {%w30, %w31, %w32, %w33}, [%near+384];\n");
    PTX_FILL(p, VALUES("0"), 0, row, 2 * row, 3 * row, 4 * row);
    if (parts > 1)
        PTX_FILL(p, VALUES("1"), 0, row, 2 * row, 3 * row, 4 * row);
    if (parts > 2)
        PTX_FILL(p, VALUES("2"), 0, row, 2 * row, 3 * row, 4 * row);
    if (parts > 3)
        PTX_FILL(p, VALUES("3"), 0, row, 2 * row, 3 * row, 4 * row);
    PTX_LINES(p, "    }\n"
                 "    add.u32 %index, %index, 16;\n"
                 "    setp.lt.u32 %more, %index, 128;\n"
                 "    @%more bra VALUE;\n"
                 "    bar.sync 0;\n"
                 "    add.u32 %key0, %key0, 32;\n"
                 "    setp.lt.u32 %more, %key0, %end;\n"
                 "    @%more bra TILE;\n");
}

static void attention_store(struct ptx *p, const struct ptx_attention *a, uint32_t parts)
{
    PTX_LINES(p, "    // the sums of weights, over the lanes\n" BUTTERFLIES("add", "l"));
    PTX_FILL(p,
             "    rcp.approx.ftz.f32 %l0, %l0;\n"
             "    rcp.approx.ftz.f32 %l1, %l1;\n"
             "    rcp.approx.ftz.f32 %l2, %l2;\n"
             "    rcp.approx.ftz.f32 %l3, %l3;\n"
             "    mul.wide.u32 %offset, %query, $0;\n"
             "    add.u64 %po, %po, %offset;\n"
             "    mul.wide.u32 %offset, %lane, 4;\n"
             "    add.u64 %po, %po, %offset;\n",
             4 * a->dim);
    uint32_t last = a->dim - 32 * (parts - 1); // lanes that have a dimension in the last part
    if (last < 32)
        PTX_FILL(p, "    setp.lt.u32 %in, %lane, $0;\n", last);
    for (uint32_t i = 0; i < 4; i++) {
        if (a->positions % QUERIES)
            PTX_FILL(p,
                     "    add.u32 %index, %query, $0;\n"
                     "    setp.ge.u32 %masked, %index, $1;\n"
                     "    @%masked ret;\n",
                     i, a->positions);
        for (uint32_t j = 0; j < parts; j++) {
            PTX_FILL(p, "    mul.rn.f32 %o$0_$1, %o$0_$1, %l$0;\n", i, j);
            if (j == parts - 1 && last < 32)
                PTX_FILL(p, "    @%in st.global.f32 [%po+$2], %o$0_$1;\n", i, j, 4 * a->dim * i + 128 * j);
            else
                PTX_FILL(p, "    st.global.f32 [%po+$2], %o$0_$1;\n", i, j, 4 * a->dim * i + 128 * j);
        }
    }
}

static int attention_check(const struct ptx_attention *a, struct error *err)
{
    if (a->dim < 32 || a->dim > 128 || a->dim % 4)
        return fail(err, E_GPU, "attention: heads of %u: 32 to 128 in steps of 4", a->dim);
    if (!a->heads || !a->positions || a->heads > 65535 || a->positions > (1u << 22))
        return fail(err, E_GPU, "attention: %u heads of %u positions", a->heads, a->positions);
    if (!isfinite(a->scale))
        return fail(err, E_GPU, "attention: the scale is not finite");
    return 0;
}

int ptx_emit_attention(struct ptx *p, const struct ptx_attention *a, struct ptx_launch *launch, struct error *err)
{
    if (attention_check(a, err))
        return -1;
    const struct row_copy copy = row_copy_of(a->dim);
    uint32_t parts = ptx_tiles(a->dim, 32);
    attention_head(p, a, parts);
    attention_places(p, a, &copy);
    attention_queries(p, a, &copy);
    attention_begin(p, a, parts);
    PTX_LINES(p, "TILE:\n");
    attention_load(p, a, &copy);
    attention_scores(p, a);
    attention_mask(p, a);
    attention_update(p, parts);
    attention_values(p, a, parts);
    attention_store(p, a, parts);
    PTX_LINES(p, "    ret;\n"
                 "}\n");
    *launch = (struct ptx_launch){
        .entry = "attention", .grid = {ptx_tiles(a->positions, QUERIES), a->heads, 1}, .block = {128, 1, 1}};
    return ptx_finish(p, err);
}
