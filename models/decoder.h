// The decoder: the block of attention and feed-forward that most families are made of, as data.
//
// A family describes itself by filling a struct decoder from the keys that it defines (llama.c, gemma.c, ...); what it does
// not mention is absent. decoder.c then looks up the weights that the description asks for, and runs the one forward: a
// part that a model does not have is the identity there.
// Ownership: all lies in the graph's arena, or views the open file. Threads: one builder.
#ifndef QUERN_DECODER_H
#define QUERN_DECODER_H

#include "kernels/graph.h"
#include "models/arch.h"
#include "models/rope.h"
#include "models/weights.h"

// Where the feed-forward's gate lies: nowhere, in ffn_gate, or in the first half of ffn_up.
enum ffn_gate { GATE_NONE, GATE_APART, GATE_FUSED };
// Tensors that divide the frequencies of rope: none, one for all contexts, or one for short and one for long ones.
enum rope_factors { FACTORS_NONE, FACTORS_FREQS, FACTORS_BY_CONTEXT };

struct layer {
    int n_head, n_head_kv;
    int n_ff;
    int window; // keys at distance < window are seen, 0: all

    struct norm attn_norm;                                // (n_embd)
    struct linear q;                                      // (n_head * dim_k, n_embd)
    struct linear k, v;                                   // (n_head_kv * dim_k, n_embd), (n_head_kv * dim_v, n_embd)
    struct norm q_norm, k_norm;                           // (dim_k), for each head by itself
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
    int n_ctx;        // positions that will be used, at most
    int dim_k, dim_v; // of a head
    struct layer *layers;

    // The description. decoder.c presets the scales to 1, attn_scale to 1/sqrt(dim_k), and all else to absent.
    enum norm_kind norm;
    float norm_eps;
    bool norm_before, norm_after; // each half of the block: its input, its result before it is added
    bool qk_norm;
    bool biased;            // norms and matrices all have biases; where not set, those that are there are used
    bool fused_qkv;         // must be fused; where not set, it is where the file has it so
    bool learned_positions; // a table of n_ctx_train rows
    bool rotary;
    struct rope rope;
    enum rope_layout rope_layout;
    enum rope_factors rope_factors;
    double window_rope_base;                                    // of the layers with a window; 0: that of all
    float embed_scale, attn_scale, attn_softcap, logit_softcap; // caps of 0: none
    enum ffn_gate gate;
    enum act_kind act;
    enum scaled ffn_scaled;
    struct {
        int n, n_used; // 0: the feed-forward is dense
        int n_ff;      // 0: as the layers have it
        bool normalise;
        float scale;
    } expert;

    // The weights outside of the layers.
    int n_vocab;
    const struct weight *tok_embd, *pos_embd; // (n_vocab, n_embd), (n_ctx_train, n_embd)
    const double *inv_freq, *window_inv_freq; // [n_rot / 2]; the second NULL where windows have no base of their own
    struct norm output_norm;                  // (n_embd)
    struct linear output;                     // (n_vocab, n_embd)
};

// What a family does: reads its keys, fills the description.
typedef void decoder_describe_fn(struct decoder *d, struct hparams *h);

// Builds the graph of the file's model; `arch` is the family's name and the first part of its keys.
int decoder_build(const struct gguf *file, const char *arch, decoder_describe_fn *describe,
                  const struct arch_options *o, struct graph *g, struct arch_info *info, struct error *err);

// For families with experts: how many there are and are used, and the scale of the chosen. The second, where they may be of
// another width than the feed-forward: what is not said is shared out among the experts used.
void decoder_read_experts(struct decoder *d, struct hparams *h);
void decoder_read_expert_width(struct decoder *d, struct hparams *h);

// decoder_load.c. Looks up all weights; the fault, if any, stays in ws.
void decoder_load(struct decoder *d, struct weights *ws);

#endif
