// Llama and similar families: RMS norms before each half of a block, grouped queries, rope, SwiGLU or a mixture of
// experts.
#include "models/families.h"

static void describe_block(struct decoder *d, struct hparams *h)
{
    d->norm = NORM_RMS;
    d->norm_eps = hparam_positive(h, "attention.layer_norm_rms_epsilon");
    d->norm_before = true;
    d->rotary = true;
    d->rope = rope_read(h, d->dim_k, d->n_ctx_train);
    d->gate = GATE_SEPARATE;
    d->act = ACT_SILU;
    d->ffn_scaled = SCALED_RESULT;
}

void describe_llama(struct decoder *d, struct hparams *h)
{
    describe_block(d, h);
    d->rope_layout = ROPE_NORM;
    d->rope_factors = d->rope.scaling == ROPE_SCALING_LONGROPE ? FACTORS_BY_CONTEXT : FACTORS_FREQS;
    decoder_read_experts(d, h);
}

void describe_qwen2(struct decoder *d, struct hparams *h)
{
    describe_block(d, h);
    d->rope_layout = ROPE_NEOX;
    d->ffn_scaled = SCALED_NOT;
}

void describe_qwen3(struct decoder *d, struct hparams *h)
{
    describe_block(d, h);
    d->rope_layout = ROPE_NEOX;
    d->qk_norm = true;
}

void describe_qwen3moe(struct decoder *d, struct hparams *h)
{
    describe_qwen3(d, h);
    decoder_read_experts(d, h);
    if (!d->expert.n)
        hparam_refuse(h, "expert_count", "this family has experts, wanted 1 or more");
    decoder_read_expert_width(d, h);
}
