// The decoder: a description, as data, of the blocks of attention and feed-forward of which most families consist.
//
// A family describes itself by filling a struct decoder from the keys that it defines (llama.c, gemma.c, ...); a part
// that it does not set is absent. decoder.c then looks up the weights for the description and runs the forward pass,
// which is the same for all families: a part that a model does not have is the identity. Ownership: everything is in
// the arena of the graph, or is a view of the open file. Threads: one at a time.
#ifndef QUERN_DECODER_H
#define QUERN_DECODER_H

#include "kernels/graph.h"
#include "models/arch.h"
#include "models/rope.h"
#include "models/weights.h"

// The gate of the feed-forward: there is none, it is ffn_gate, or it is the first half of ffn_up.
enum ffn_gate { GATE_NONE, GATE_SEPARATE, GATE_FUSED };
// Tensors of divisors for the frequencies of rope: none, one for all contexts, or one for short and one for long
// contexts.
enum rope_factors { FACTORS_NONE, FACTORS_FREQS, FACTORS_BY_CONTEXT };

struct layer {
    int n_head, n_head_kv;
    int n_ff;
    int window; // attention sees keys at a distance below this; 0: all keys

    struct norm attn_norm;                                // (n_embd)
    struct linear q;                                      // (n_head * dim_k, n_embd)
    struct linear k, v;                                   // (n_head_kv * dim_k, n_embd), (n_head_kv * dim_v, n_embd)
    struct norm q_norm, k_norm;                           // (dim_k), applied to each head separately
    struct linear o;                                      // (n_embd, n_head * dim_v)
    struct norm attn_post_norm;                           // (n_embd)
    struct norm ffn_norm;                                 // (n_embd)
    struct linear gate, up, down;                         // (n_ff, n_embd) twice, (n_embd, n_ff)
    struct linear router;                                 // (n_expert, n_embd)
    const struct weight *gate_exps, *up_exps, *down_exps; // the same for each expert
    struct norm ffn_post_norm;                            // (n_embd)
};

struct decoder {
    // Read for every family before it describes itself.
    int n_layer, n_embd, n_ctx_train;
    int n_ctx;        // most positions that will be used
    int dim_k, dim_v; // columns of keys and of values per head
    struct layer *layers;

    // The description. decoder.c presets the scales to 1, attn_scale to 1/sqrt(dim_k), and everything else to absent.
    enum norm_kind norm;
    float norm_eps;
    bool norm_before, norm_after; // norms before each half of a block, and after it, before the result is added
    bool qk_norm;
    bool biased;            // all norms and matrices must have biases; false: those in the file are used
    bool fused_qkv;         // attn_qkv must be there; false: it is used if the file has it
    bool learned_positions; // there is a table of positions with n_ctx_train rows
    bool rotary;
    struct rope rope;
    enum rope_layout rope_layout;
    enum rope_factors rope_factors;
    double window_rope_base;                                    // for layers with a window; 0: the same as for all
    float embed_scale, attn_scale, attn_softcap, logit_softcap; // a softcap of 0: none
    enum ffn_gate gate;
    enum act_kind act;
    enum scaled ffn_scaled;
    struct {
        int n, n_used; // number of experts, and of those used per token; 0: the feed-forward is dense
        int n_ff;      // width of an expert; 0: n_ff of the layer
        bool normalise;
        float scale;
    } expert;

    // The weights outside of the layers.
    int n_vocab;
    const struct weight *tok_embd, *pos_embd; // (n_vocab, n_embd), (n_ctx_train, n_embd)
    const double *inv_freq, *window_inv_freq; // [n_rot / 2]; the second is NULL without a window_rope_base of its own
    struct norm output_norm;                  // (n_embd)
    struct linear output;                     // (n_vocab, n_embd)
};

// Reads the keys of a family and fills the description.
typedef void decoder_describe_fn(struct decoder *d, struct hparams *h);

// Builds the graph of the model in the file. `arch` is the name of the family and the first part of its keys.
int decoder_build(const struct gguf *file, const char *arch, decoder_describe_fn *describe,
                  const struct arch_options *o, struct graph *g, struct arch_info *info, struct error *err);

// For families with experts. decoder_read_experts reads their number, the number used, and the scale of their weights.
// decoder_read_expert_width reads the width of an expert; without that key, the width of the feed-forward is divided by
// the number of experts used.
void decoder_read_experts(struct decoder *d, struct hparams *h);
void decoder_read_expert_width(struct decoder *d, struct hparams *h);

// In decoder_load.c: looks up all weights. An error stays in ws->fault.
void decoder_load(struct decoder *d, struct weights *ws);

#endif
