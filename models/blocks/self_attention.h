// Attention over the keys and values of a sequence: projections, optional norms of heads and rotary positions, the KV
// cache. Families call attention(), or its steps where something stands between them.
#ifndef QUERN_BLOCKS_SELF_ATTENTION_H
#define QUERN_BLOCKS_SELF_ATTENTION_H

#include "models/build.h"

struct attention {
    int n_head, n_head_kv, dim_k, dim_v;
    bool head_norms;         // attn_q_norm and attn_k_norm, for each head by itself
    bool own_gains;          // with gains of its own for each head
    struct tensor *angles;   // of rotary positions: the table of build_rope; NULL: there is no rotation
    struct tensor *q_angles; // the same for queries alone; NULL: as for keys
    enum rope_layout layout;
    float scale, softcap; // of the scores; a softcap of 0: none
    int window;           // attention sees keys at a distance below this; 0: all keys
    bool chunked;         // attention sees the keys from the last multiple of the window on
    bool sinks;           // attn_sinks, a score for each head
    bool both_ways; // attention sees the keys behind a row, too, and of those the window leaves half on either side
    float clamp;    // queries, keys and values are within -clamp .. clamp after their projection; 0: no limit
    const struct weight *slopes; // of the scores by distance; NULL: none
};

// Queries, keys and values: (n_tok, n_head * dim_k), (n_tok, n_head_kv * dim_k), (n_tok, n_head_kv * dim_v).
struct qkv {
    struct tensor *q, *k, *v;
};

// The attention of a layer as the family's keys describe it: the model's widths, a scale of 1/sqrt(dim_k), no norms, no
// rotation, no window.
struct attention attention_of(const struct build *b, int layer);

// A slope for each head by which scores fall with the distance (ALiBi: Press et al. 2021, arXiv 2108.12409): powers of
// 2^(-max_bias / n), where n is n_head rounded down to a power of two; heads from n on have the odd powers of its root.
// NULL if max_bias is 0.
const struct weight *attention_slopes(struct build *b, int n_head, float max_bias);

// The products of x with attn_q, attn_k and attn_v, or with the rows of attn_qkv if the file has that.
struct qkv attention_project(struct build *b, struct tensor *x, const struct attention *a);
// The products with parts of attn_qkv, which has so many rows; those behind the values are for nothing.
struct qkv attention_project_fused(struct build *b, struct tensor *x, const struct attention *a, int64_t rows,
                                   enum scaled scaled);
// The norms attn_q_norm and attn_k_norm: of each head by itself, or of the whole row.
struct qkv attention_norm_heads(struct build *b, struct qkv x, const struct attention *a);
struct qkv attention_norm_rows(struct build *b, struct qkv x);
// Sets head_norms and own_gains if the layer has such norms.
void attention_find_own_gains(struct build *b, struct attention *a);
// The rotation, if there is one.
struct qkv attention_rotate(struct build *b, struct qkv x, const struct attention *a);
// Stores keys and values in a layer of the KV cache; in the result they are those of the cache.
struct qkv attention_store(struct build *b, struct qkv x, const struct attention *a);
// Attends to the keys and values of a layer of the cache: (n_tok, n_head * dim_v).
struct tensor *attention_look(struct build *b, struct qkv x, const struct attention *a);
// Both.
struct tensor *attention_attend(struct build *b, struct qkv x, const struct attention *a);
// Projections, norms of heads if there are some, rotation, attention.
struct tensor *attention(struct build *b, struct tensor *x, const struct attention *a);
// The same with norms of all queries and of all keys of a row; the scales of the matrices are ignored.
struct tensor *attention_of_rows(struct build *b, struct tensor *x, const struct attention *a);
// x plus the product of y, the result of attention, with attn_output: (n, n_embd). In the last layer only the rows that
// want logits are left.
struct tensor *attention_residual(struct build *b, struct tensor *x, struct tensor *y);
// The same with another rule for the bias of attn_output.
struct tensor *attention_residual_by(struct build *b, struct tensor *x, struct tensor *y, enum presence bias);

#endif
