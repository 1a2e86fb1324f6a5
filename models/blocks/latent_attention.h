// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values of all heads are products of one short
// row, the latent, and all heads share a few columns of keys that rotate.
//
// Files come in two forms. With attn_k_b and attn_v_b the latent itself is cached: queries are multiplied by the matrix
// that would make keys of the latent, scores are taken against the latent, and the weighted sum of latents is multiplied
// by the matrix that makes values. Keys then are the latent and the columns that rotate, and values are the first
// columns of the keys. With attn_kv_b, in old files, keys and values of each head are made and cached.
#ifndef QUERN_BLOCKS_LATENT_ATTENTION_H
#define QUERN_BLOCKS_LATENT_ATTENTION_H

#include "models/build.h"

struct latent_attention {
    int n_head;
    int rank_q, rank_kv;       // columns of the latents of queries (0: they have none) and of keys and values
    int dim_k, dim_v, dim_rot; // columns of a head's keys, of which the last dim_rot rotate, and of its values
    bool absorbed;             // the latent is cached
    struct tensor *angles;     // of the columns that rotate; NULL: none do, in families where this is so
    struct tensor *growth;     // a table that turns by no angle, with the growth of queries by position; NULL: none
    enum rope_layout layout;   // preset to ROPE_NORM
    float scale;               // of the scores
    float factor;              // of what is added to x; preset to 1
};

// Reads the ranks and dimensions.
struct latent_attention latent_attention_read(struct build *b, int dim_rot);
// Attention of x, the normed input of the layer, and x plus its result: (n, n_embd). In the last layer only the rows
// that want logits are left.
struct tensor *latent_attention(struct build *b, struct tensor *x, struct tensor *normed,
                                const struct latent_attention *a);

#endif
