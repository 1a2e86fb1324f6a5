// Gemma: scaled embeddings, norms before and after each half of a block, GeGLU.
#include "models/families.h"

#include <math.h>

// The last layer of each period has full attention; the others have a window.
static void describe_windows(struct decoder *d, int window, int period)
{
    for (int i = 0; i < d->n_layer; i++)
        d->layers[i].window = i % period == period - 1 ? 0 : window;
}

void describe_gemma2(struct decoder *d, struct hparams *h)
{
    d->norm = NORM_RMS;
    d->norm_eps = hparam_positive(h, "attention.layer_norm_rms_epsilon");
    d->norm_before = d->norm_after = true;
    d->rotary = true;
    d->rope = rope_read(h, d->dim_k, d->n_ctx_train);
    d->rope_layout = ROPE_NEOX;
    d->window_rope_base = (double)hparam_positive_or(h, "rope.freq_base_swa", (float)d->rope.base);
    d->gate = GATE_SEPARATE;
    d->act = ACT_GELU_TANH;
    d->ffn_scaled = SCALED_NOT;
    d->embed_scale = sqrtf((float)d->n_embd);
    d->attn_softcap = hparam_positive_or(h, "attn_logit_softcapping", 50);
    d->logit_softcap = hparam_positive_or(h, "final_logit_softcapping", 30);
    int window = (int)hparam_int_or(h, "attention.sliding_window", 1, INT32_MAX, 4096);
    describe_windows(d, window, (int)hparam_int_or(h, "attention.sliding_window_pattern", 1, INT32_MAX, 2));
    if (d->n_layer == 46) // the 27B model scales queries by n_embd / n_head, which is not the width of its heads
        d->attn_scale = 1 / sqrtf((float)(d->n_embd / d->layers[0].n_head));
}
