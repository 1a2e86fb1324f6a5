// Phi 3: the block of Llama with fused projections and rope on a part of each head; longer contexts use one of two
// tables of rope factors.
#include "models/families.h"

void describe_phi3(struct decoder *d, struct hparams *h)
{
    d->norm = NORM_RMS;
    d->norm_eps = hparam_positive(h, "attention.layer_norm_rms_epsilon");
    d->norm_before = true;
    d->rotary = true;
    d->rope = rope_read(h, d->dim_k, d->n_ctx_train);
    d->rope_layout = ROPE_NEOX;
    d->rope_factors = FACTORS_BY_CONTEXT;
    d->gate = GATE_FUSED;
    d->act = ACT_SILU;
    d->ffn_scaled = SCALED_NOT;
    int window = (int)hparam_int_or(h, "attention.sliding_window", 0, INT32_MAX, 0);
    for (int i = 0; i < d->n_layer; i++)
        d->layers[i].window = window;
}
