// GPT-2: LayerNorm, learned positions, an MLP without a gate, and biases in all norms and matrices.
#include "models/families.h"

void describe_gpt2(struct decoder *d, struct hparams *h)
{
    d->norm = NORM_LAYER;
    d->norm_eps = hparam_positive(h, "attention.layer_norm_epsilon");
    d->norm_before = true;
    d->learned_positions = true;
    d->biased = true;
    d->fused_qkv = true;
    d->gate = GATE_NONE;
    d->act = ACT_GELU_TANH;
    d->ffn_scaled = SCALED_NOT;
}
