// Synthetic models: presets, the tensors of each family, the types that a mix gives them, and the writing of the file.
#include "models/synth_model.h"
#include "models/synth_fill.h"
#include "models/synth_vocab.h"
#include "gguf/writer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

// Properties of a preset, which are combined.
enum family {
    F_QKV = 1, // attn_q, attn_k, attn_v
    F_QKV_BIAS = 2,
    F_QK_NORM = 4,
    F_FUSED_QKV = 8,
    F_GATED = 16,    // ffn_gate, ffn_up, ffn_down
    F_FUSED_UP = 32, // gate and up in one tensor
    F_EXPERTS = 64,
    F_OUTPUT = 128, // output.weight, not tied to token_embd
    F_POST_NORM = 256,
    F_LAYER_NORM = 512, // with biases everywhere
    F_ROPE = 1024,
    F_DELTA = 2048,   // all but every fourth layer are delta nets; queries have gates
    F_SHARED = 4096,  // an expert that is always used, with a gate
    F_SINKS = 8192,   // gpt-oss: sinks of heads, and biases everywhere
    F_LATENT = 16384, // DeepSeek 2: latent attention, and an expert that is always used
    F_LLAMA = F_QKV | F_GATED | F_OUTPUT | F_ROPE,
    F_QWEN35 = F_GATED | F_ROPE | F_DELTA,
    F_GEMMA = F_QKV | F_GATED | F_POST_NORM | F_ROPE,
};

static const struct preset {
    const char *name, *arch;
    unsigned family;
    int layers, embd, ffn, heads, heads_kv, head_dim;
    float rope_base;
    int ctx, n_vocab, experts, experts_used;
    int ssm_heads_k, ssm_heads, ssm_dim; // of delta nets
    int window;                          // positions; 0: none. The family decides which layers have it
    int rank_q, rank_kv, rot;            // of latent attention: columns of the latents, and of a head that rotate
} presets[] = {
    // clang-format off
    {"llama-15m",      "llama",  F_LLAMA,              6,  288,   768,   6,  6,  48,  1e4f, 256,  32000,  0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"llama-tiny",     "llama",  F_LLAMA,              4,  256,   768,   8,  4,  32,  1e4f, 2048, 2048,   0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"llama-135m",     "llama",  F_QKV | F_GATED | F_ROPE,
                                                       30, 576,   1536,  9,  3,  64,  1e5f, 8192, 49152,  0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"llama-360m",     "llama",  F_QKV | F_GATED | F_ROPE,
                                                       32, 960,   2560,  15, 5,  64,  1e5f, 8192, 49152,  0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"llama-160m",     "llama",  F_LLAMA,              12, 768,   3072,  12, 12, 64,  1e4f, 2048, 32000,  0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"llama-1b",       "llama",  F_LLAMA,              22, 2048,  5632,  32, 4,  64,  1e4f, 2048, 32000,  0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"llama3-1b",      "llama",  F_LLAMA,              16, 2048,  8192,  32, 8,  64,  5e5f, 8192, 128256, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"llama3-3b",      "llama",  F_LLAMA,              28, 3072,  8192,  24, 8,  128, 5e5f, 8192, 128256, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"llama3-8b",      "llama",  F_LLAMA,              32, 4096,  14336, 32, 8,  128, 5e5f, 8192, 128256, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"qwen2-0.5b",     "qwen2",  F_LLAMA | F_QKV_BIAS, 24, 896,   4864,  14, 2,  64,  1e6f, 8192, 151936, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"qwen3-0.6b",     "qwen3",  F_LLAMA | F_QK_NORM,  28, 1024,  3072,  16, 8,  128, 1e6f, 8192, 151936, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"qwen3-a3b-8l",   "qwen3moe", (F_LLAMA & ~(unsigned)F_GATED) | F_QK_NORM | F_EXPERTS, // 8 of its 48 layers
                                                       8,  2048,  768,   32, 4,  128, 1e6f, 8192, 151936, 128, 8, 0, 0, 0, 0, 0, 0, 0},
    {"mixtral-3l",     "llama",  (F_LLAMA & ~(unsigned)F_GATED) | F_EXPERTS, // 3 of its 32 layers
                                                       3,  4096,  14336, 32, 8,  128, 1e6f, 32768, 32000, 8, 2, 0, 0, 0, 0, 0, 0, 0},
    {"gemma2-2b",      "gemma2", F_GEMMA,
                                                       26, 2304,  9216,  8,  4,  256, 1e4f, 8192, 256000, 0, 0, 0, 0, 0, 128, 0, 0, 0},
    {"phi3-mini",      "phi3",   F_FUSED_QKV | F_FUSED_UP | F_OUTPUT | F_ROPE,
                                                       32, 3072,  8192,  32, 32, 96,  1e4f, 4096, 32064,  0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"gpt2-124m",      "gpt2",   F_FUSED_QKV | F_LAYER_NORM,
                                                       12, 768,   3072,  12, 12, 64,  0,    1024, 50257,  0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"qwen2-tiny",     "qwen2",  F_LLAMA | F_QKV_BIAS, 4,  256,   768,   4,  2,  64,  1e6f, 2048, 2048,   0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"qwen3-tiny",     "qwen3",  F_LLAMA | F_QK_NORM,  4,  256,   768,   4,  2,  64,  1e6f, 2048, 2048,   0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"llama-moe-tiny", "llama",  (F_LLAMA & ~(unsigned)F_GATED) | F_EXPERTS,
                                                       4,  256,   512,   8,  4,  32,  1e4f, 2048, 2048,   8, 2, 0, 0, 0, 0, 0, 0, 0},
    {"gemma2-tiny",    "gemma2", F_GEMMA,
                                                       4,  256,   768,   4,  2,  64,  1e4f, 2048, 2048,   0, 0, 0, 0, 0, 128, 0, 0, 0},
    {"phi3-tiny",      "phi3",   F_FUSED_QKV | F_FUSED_UP | F_OUTPUT | F_ROPE,
                                                       4,  256,   768,   8,  4,  32,  1e4f, 2048, 2048,   0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"phi3-window-tiny", "phi3", F_FUSED_QKV | F_FUSED_UP | F_OUTPUT | F_ROPE,
                                                       4,  256,   768,   8,  4,  32,  1e4f, 2048, 2048,   0, 0, 0, 0, 0, 128, 0, 0, 0},
    {"gpt2-tiny",      "gpt2",   F_FUSED_QKV | F_LAYER_NORM,
                                                       4,  256,   1024,  8,  8,  32,  0,    1024, 2048,   0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"qwen35-0.8b",    "qwen35", F_QWEN35,             24, 1024,  3584,  8,  2,  256, 1e7f, 8192, 248320, 0, 0, 16, 16, 128, 0, 0, 0, 0},
    {"qwen35-4b",      "qwen35", F_QWEN35 | F_OUTPUT,  32, 2560,  9216,  16, 4,  256, 1e7f, 8192, 248320, 0, 0, 16, 32, 128, 0, 0, 0, 0},
    {"qwen35-tiny",    "qwen35", F_QWEN35 | F_OUTPUT,  4,  256,   768,   4,  2,  64,  1e7f, 2048, 2048,   0, 0, 2,  4,  32, 0, 0, 0, 0},
    {"qwen35-a3b-8l",  "qwen35moe", F_ROPE | F_DELTA | F_EXPERTS | F_SHARED | F_OUTPUT, // 8 of its 40 layers
                                                       8,  2048,  512,   16, 2,  256, 1e7f, 8192, 248320, 256, 8, 16, 32, 128, 0, 0, 0, 0},
    {"gemma3-1b",      "gemma3", F_GEMMA | F_QK_NORM,  26, 1152,  6912,  4,  1,  256, 1e6f, 8192, 262144, 0, 0, 0, 0, 0, 512, 0, 0, 0},
    {"gemma3-4b",      "gemma3", F_GEMMA | F_QK_NORM,  34, 2560,  10240, 8,  4,  256, 1e6f, 8192, 262144, 0, 0, 0, 0, 0, 1024, 0, 0, 0},
    {"gpt-oss-8l",     "gpt-oss", F_QKV | F_QKV_BIAS | F_EXPERTS | F_OUTPUT | F_ROPE | F_SINKS, // 8 of its 24 layers
                                                       8,  2880,  2880,  64, 8,  64,  1.5e5f, 8192, 201088, 32, 4, 0, 0, 0, 128, 0, 0, 0},
    {"qwen35-moe-tiny", "qwen35moe", F_ROPE | F_DELTA | F_EXPERTS | F_SHARED | F_OUTPUT,
                                                       4,  256,   256,   4,  2,  64,  1e7f, 2048, 2048,   8, 2, 2,  4,  32, 0, 0, 0, 0},
    {"qwen3-moe-tiny", "qwen3moe", (F_LLAMA & ~(unsigned)F_GATED) | F_QK_NORM | F_EXPERTS,
                                                       4,  256,   256,   4,  2,  64,  1e6f, 2048, 2048,   40, 4, 0, 0, 0, 0, 0, 0, 0},
    {"gemma3-tiny",    "gemma3", F_GEMMA | F_QK_NORM,  6,  256,   768,   4,  2,  64,  1e6f, 2048, 2048,   0, 0, 0, 0, 0, 128, 0, 0, 0},
    {"gpt-oss-tiny",   "gpt-oss", F_QKV | F_QKV_BIAS | F_EXPERTS | F_OUTPUT | F_ROPE | F_SINKS,
                                                       4,  256,   256,   8,  4,  32,  1e5f, 2048, 2048,   8, 2, 0, 0, 0, 128, 0, 0, 0},
    {"glm-flash-8l",   "deepseek2", F_EXPERTS | F_OUTPUT | F_ROPE | F_LATENT, // 8 of the 47 layers of GLM 4.7 Flash
                                                       8,  2048,  1536,  20, 1,  256, 1e6f, 8192, 154880, 64, 4, 0, 0, 0, 0, 768, 512, 64},
    {"deepseek2-tiny", "deepseek2", F_EXPERTS | F_OUTPUT | F_ROPE | F_LATENT,
                                                       4,  256,   256,   4,  1,  64,  1e4f, 2048, 2048,   8, 2, 0, 0, 0, 0, 256, 128, 32},
    // clang-format on
};

const char *synth_preset_name(size_t i)
{
    return i < COUNT_OF(presets) ? presets[i].name : NULL;
}

enum dim {
    ONE,
    EMBD,
    FFN,
    FFN_2,
    HEAD,
    HEADS,
    Q,
    Q_2,
    KV,
    QKV,
    EXPERTS,
    VOCAB,
    CTX,
    KERNEL,
    CONV,
    INNER,
    SSM_HEADS,
    SSM_DIM,
    RANK_Q,
    RANK_KV,
    LATENT_KEY, // what the cache keeps: the latent, and the columns that rotate
    REST        // columns of a head that do not rotate
};
enum { CONV_KERNEL = 4 };

// The purpose of a tensor, which decides its type and the size of its numbers.
enum part {
    NORM,  // float32, near 1
    BIAS,  // float32, small
    DECAY, // float32, near -1
    PLAIN, // float32, rows of about unit length: position_embd, the router
    EMBED,
    OUTPUT,
    WEIGHT,
    WEIGHT_MORE, // the _M mixes use more bits for these in some layers
};

struct row {
    unsigned family; // the tensor is in presets with all of these properties
    const char *name;
    enum part part;
    enum dim cols, rows, count;
    enum { EVERY, ATTENDS, RECURS } layers; // which layers have it, where some are delta nets
    unsigned unless;                        // it is not in presets with one of these properties
};

static const struct row model_rows[] = {
    {0, "token_embd.weight", EMBED, EMBD, VOCAB, ONE, EVERY, 0},
    {F_LAYER_NORM, "position_embd.weight", PLAIN, EMBD, CTX, ONE, EVERY, 0},
    {0, "output_norm.weight", NORM, EMBD, ONE, ONE, EVERY, 0},
    {F_LAYER_NORM, "output_norm.bias", BIAS, EMBD, ONE, ONE, EVERY, 0},
    {F_OUTPUT, "output.weight", OUTPUT, EMBD, VOCAB, ONE, EVERY, 0},
};

// The names follow "blk.N."
static const struct row layer_rows[] = {
    {0, "attn_norm.weight", NORM, EMBD, ONE, ONE, EVERY, 0},
    {F_LAYER_NORM, "attn_norm.bias", BIAS, EMBD, ONE, ONE, EVERY, 0},
    {0, "ffn_norm.weight", NORM, EMBD, ONE, ONE, EVERY, F_DELTA | F_SINKS},
    {F_DELTA, "post_attention_norm.weight", NORM, EMBD, ONE, ONE, EVERY, 0},
    {F_SINKS, "post_attention_norm.weight", NORM, EMBD, ONE, ONE, EVERY, 0},
    {F_LAYER_NORM, "ffn_norm.bias", BIAS, EMBD, ONE, ONE, EVERY, 0},
    {F_POST_NORM, "post_attention_norm.weight", NORM, EMBD, ONE, ONE, EVERY, 0},
    {F_POST_NORM, "post_ffw_norm.weight", NORM, EMBD, ONE, ONE, EVERY, 0},
    {F_QKV, "attn_q.weight", WEIGHT, EMBD, Q, ONE, EVERY, 0},
    {F_QKV, "attn_k.weight", WEIGHT, EMBD, KV, ONE, EVERY, 0},
    {F_QKV, "attn_v.weight", WEIGHT_MORE, EMBD, KV, ONE, EVERY, 0},
    {F_FUSED_QKV, "attn_qkv.weight", WEIGHT, EMBD, QKV, ONE, EVERY, 0},
    {F_FUSED_QKV | F_LAYER_NORM, "attn_qkv.bias", BIAS, QKV, ONE, ONE, EVERY, 0},
    {0, "attn_output.weight", WEIGHT, Q, EMBD, ONE, ATTENDS, 0},
    {F_LAYER_NORM, "attn_output.bias", BIAS, EMBD, ONE, ONE, EVERY, 0},
    {F_GATED, "ffn_gate.weight", WEIGHT, EMBD, FFN, ONE, EVERY, 0},
    {F_GATED, "ffn_up.weight", WEIGHT, EMBD, FFN, ONE, EVERY, 0},
    {F_GATED, "ffn_down.weight", WEIGHT_MORE, FFN, EMBD, ONE, EVERY, 0},
    {F_FUSED_UP, "ffn_up.weight", WEIGHT, EMBD, FFN_2, ONE, EVERY, 0},
    {F_FUSED_UP, "ffn_down.weight", WEIGHT_MORE, FFN, EMBD, ONE, EVERY, 0},
    {F_LAYER_NORM, "ffn_up.weight", WEIGHT, EMBD, FFN, ONE, EVERY, 0},
    {F_LAYER_NORM, "ffn_up.bias", BIAS, FFN, ONE, ONE, EVERY, 0},
    {F_LAYER_NORM, "ffn_down.weight", WEIGHT_MORE, FFN, EMBD, ONE, EVERY, 0},
    {F_LAYER_NORM, "ffn_down.bias", BIAS, EMBD, ONE, ONE, EVERY, 0},
    {F_EXPERTS, "ffn_gate_inp.weight", PLAIN, EMBD, EXPERTS, ONE, EVERY, 0},
    {F_EXPERTS, "ffn_gate_exps.weight", WEIGHT, EMBD, FFN, EXPERTS, EVERY, 0},
    {F_EXPERTS, "ffn_up_exps.weight", WEIGHT, EMBD, FFN, EXPERTS, EVERY, 0},
    {F_EXPERTS, "ffn_down_exps.weight", WEIGHT_MORE, FFN, EMBD, EXPERTS, EVERY, 0},
    {F_SINKS, "ffn_gate_inp.bias", BIAS, EXPERTS, ONE, ONE, EVERY, 0},
    {F_SINKS, "ffn_gate_exps.bias", BIAS, FFN, EXPERTS, ONE, EVERY, 0},
    {F_SINKS, "ffn_up_exps.bias", BIAS, FFN, EXPERTS, ONE, EVERY, 0},
    {F_SINKS, "ffn_down_exps.bias", BIAS, EMBD, EXPERTS, ONE, EVERY, 0},
    {F_SINKS, "attn_sinks.weight", BIAS, HEADS, ONE, ONE, EVERY, 0},
    {F_SINKS, "attn_output.bias", BIAS, EMBD, ONE, ONE, EVERY, 0},
    {F_SHARED, "ffn_gate_inp_shexp.weight", PLAIN, EMBD, ONE, ONE, EVERY, 0},
    {F_SHARED, "ffn_gate_shexp.weight", WEIGHT, EMBD, FFN, ONE, EVERY, 0},
    {F_SHARED, "ffn_up_shexp.weight", WEIGHT, EMBD, FFN, ONE, EVERY, 0},
    {F_SHARED, "ffn_down_shexp.weight", WEIGHT_MORE, FFN, EMBD, ONE, EVERY, 0},
    {F_QKV_BIAS, "attn_q.bias", BIAS, Q, ONE, ONE, EVERY, 0},
    {F_QKV_BIAS, "attn_k.bias", BIAS, KV, ONE, ONE, EVERY, 0},
    {F_QKV_BIAS, "attn_v.bias", BIAS, KV, ONE, ONE, EVERY, 0},
    {F_QK_NORM, "attn_q_norm.weight", NORM, HEAD, ONE, ONE, EVERY, 0},
    {F_QK_NORM, "attn_k_norm.weight", NORM, HEAD, ONE, ONE, EVERY, 0},
    {F_DELTA, "attn_q.weight", WEIGHT, EMBD, Q_2, ONE, ATTENDS, 0},
    {F_DELTA, "attn_k.weight", WEIGHT, EMBD, KV, ONE, ATTENDS, 0},
    {F_DELTA, "attn_v.weight", WEIGHT_MORE, EMBD, KV, ONE, ATTENDS, 0},
    {F_DELTA, "attn_q_norm.weight", NORM, HEAD, ONE, ONE, ATTENDS, 0},
    {F_DELTA, "attn_k_norm.weight", NORM, HEAD, ONE, ONE, ATTENDS, 0},
    {F_DELTA, "attn_qkv.weight", WEIGHT, EMBD, CONV, ONE, RECURS, 0},
    {F_DELTA, "attn_gate.weight", WEIGHT, EMBD, INNER, ONE, RECURS, 0},
    {F_DELTA, "ssm_conv1d.weight", PLAIN, KERNEL, CONV, ONE, RECURS, 0},
    {F_DELTA, "ssm_alpha.weight", PLAIN, EMBD, SSM_HEADS, ONE, RECURS, 0},
    {F_DELTA, "ssm_beta.weight", PLAIN, EMBD, SSM_HEADS, ONE, RECURS, 0},
    {F_DELTA, "ssm_a", DECAY, SSM_HEADS, ONE, ONE, RECURS, 0},
    {F_DELTA, "ssm_dt.bias", BIAS, SSM_HEADS, ONE, ONE, RECURS, 0},
    {F_DELTA, "ssm_norm.weight", NORM, SSM_DIM, ONE, ONE, RECURS, 0},
    {F_DELTA, "ssm_out.weight", WEIGHT, INNER, EMBD, ONE, RECURS, 0},
    {F_LATENT, "attn_q_a.weight", WEIGHT, EMBD, RANK_Q, ONE, EVERY, 0},
    {F_LATENT, "attn_q_a_norm.weight", NORM, RANK_Q, ONE, ONE, EVERY, 0},
    {F_LATENT, "attn_q_b.weight", WEIGHT, RANK_Q, Q, ONE, EVERY, 0},
    {F_LATENT, "attn_kv_a_mqa.weight", WEIGHT, EMBD, LATENT_KEY, ONE, EVERY, 0},
    {F_LATENT, "attn_kv_a_norm.weight", NORM, RANK_KV, ONE, ONE, EVERY, 0},
    {F_LATENT, "attn_k_b.weight", WEIGHT, REST, RANK_KV, HEADS, EVERY, 0},
    {F_LATENT, "attn_v_b.weight", WEIGHT, RANK_KV, HEAD, HEADS, EVERY, 0},
    {F_LATENT, "exp_probs_b.bias", BIAS, EXPERTS, ONE, ONE, EVERY, 0},
    {F_LATENT, "ffn_gate_shexp.weight", WEIGHT, EMBD, FFN, ONE, EVERY, 0},
    {F_LATENT, "ffn_up_shexp.weight", WEIGHT, EMBD, FFN, ONE, EVERY, 0},
    {F_LATENT, "ffn_down_shexp.weight", WEIGHT_MORE, FFN, EMBD, ONE, EVERY, 0},
};

// The type of most weights, of WEIGHT_MORE in some layers, and of the output.
struct mix {
    enum dtype base, more, output;
};

struct model {
    const struct preset *preset;
    struct mix mix;
    int64_t n_vocab;
    struct gguf *vocab; // NULL: the vocabulary is generated
    struct gguf_writer *w;
    struct rng rng;
};

static int64_t dim_size(const struct model *m, enum dim dim)
{
    const struct preset *p = m->preset;
    switch (dim) {
    case ONE:
        return 1;
    case EMBD:
        return p->embd;
    case FFN:
        return p->ffn;
    case FFN_2:
        return 2 * p->ffn;
    case HEAD:
        return p->head_dim;
    case HEADS:
        return p->heads;
    case Q:
        return p->heads * p->head_dim;
    case Q_2:
        return 2 * p->heads * p->head_dim;
    case KV:
        return p->heads_kv * p->head_dim;
    case KERNEL:
        return CONV_KERNEL;
    case CONV:
        return (2 * p->ssm_heads_k + p->ssm_heads) * p->ssm_dim;
    case INNER:
        return p->ssm_heads * p->ssm_dim;
    case SSM_HEADS:
        return p->ssm_heads;
    case SSM_DIM:
        return p->ssm_dim;
    case RANK_Q:
        return p->rank_q;
    case RANK_KV:
        return p->rank_kv;
    case LATENT_KEY:
        return p->rank_kv + p->rot;
    case REST:
        return p->head_dim - p->rot;
    case QKV:
        return (p->heads + 2 * p->heads_kv) * p->head_dim;
    case EXPERTS:
        return p->experts;
    case VOCAB:
        return m->n_vocab;
    case CTX:
        return p->ctx;
    }
    return 0;
}

static int find_preset(const char *name, const struct preset **out, struct error *err)
{
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *out = &presets[i];
            return 0;
        }
    }
    return fail(err, E_USAGE, "no preset is called %s", name);
}

// Finds a mix by name. A tensor type is used for all weights, except that below 6 bits the output is Q6_K, as
// quantisers choose it. Q4_K_M and Q5_K_M combine that K-quant and Q6_K.
static int find_mix(const char *name, struct mix *out, struct error *err)
{
    enum dtype type;
    struct fill probe;
    if (strcasecmp(name, "Q4_K_M") == 0) {
        *out = (struct mix){DT_Q4_K, DT_Q6_K, DT_Q6_K};
        return 0;
    }
    if (strcasecmp(name, "Q5_K_M") == 0) {
        *out = (struct mix){DT_Q5_K, DT_Q6_K, DT_Q6_K};
        return 0;
    }
    if (dtype_from_name(str_from(name), &type) != 0)
        return fail(err, E_USAGE, "no mix is called %s; a tensor type, Q4_K_M or Q5_K_M is", name);
    if (fill_init(&probe, type, 1, err) != 0)
        return -1;
    bool coarse = dtype_info[type].bytes * 8 < dtype_info[type].block * 6;
    *out = (struct mix){type, type, coarse ? DT_Q6_K : type};
    return 0;
}

// Whether attn_v and ffn_down of a layer have more bits: in the first and the last eighth, and in every third layer
// between.
static bool layer_keeps_more(int layer, int layers)
{
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

static enum dtype tensor_type(const struct model *m, const struct row *row, int layer)
{
    enum dtype type = m->mix.base;
    if (row->part == NORM || row->part == BIAS || row->part == DECAY || row->part == PLAIN)
        return DT_F32;
    if (row->part == OUTPUT || (row->part == EMBED && !(m->preset->family & F_OUTPUT)))
        type = m->mix.output;
    else if (row->part == WEIGHT_MORE && layer_keeps_more(layer, m->preset->layers))
        type = m->mix.more;
    int64_t cols = dim_size(m, row->cols);
    if (cols % dtype_info[type].block == 0)
        return type;
    return cols % dtype_info[DT_Q8_0].block == 0 ? DT_Q8_0 : DT_F16;
}

// Chooses the size of the numbers so that activations keep their size from layer to layer: a sum has n products, so
// weights are about 1/sqrt(n). An embedding that is also the output is half of that; otherwise the last token would
// always be the most likely next one.
static int tensor_fill(const struct model *m, const struct row *row, enum dtype type, struct fill *out,
                       struct error *err)
{
    double unit = 1 / sqrt((double)dim_size(m, row->cols));
    switch (row->part) {
    case NORM:
        *out = fill_f32(1, 0.1);
        return 0;
    case BIAS:
        *out = fill_f32(0, 0.1);
        return 0;
    case DECAY:
        *out = fill_f32(-1, 0.1);
        return 0;
    case EMBED:
        return fill_init(out, type, m->preset->family & F_OUTPUT ? 1 : unit / 2, err);
    case PLAIN:
    case OUTPUT:
    case WEIGHT:
    case WEIGHT_MORE:
        break;
    }
    return fill_init(out, type, unit, err);
}

typedef int tensor_fn(struct model *m, const struct row *row, int layer, struct error *err);

static int announce_tensor(struct model *m, const struct row *row, int layer, struct error *err)
{
    char name[64];
    if (layer >= 0)
        snprintf(name, sizeof name, "blk.%d.%s", layer, row->name);
    else
        snprintf(name, sizeof name, "%s", row->name);
    int64_t ne[3] = {dim_size(m, row->cols), dim_size(m, row->rows), dim_size(m, row->count)};
    int n_dims = row->count != ONE ? 3 : row->rows != ONE ? 2 : 1;
    return gguf_write_tensor_info(m->w, name, tensor_type(m, row, layer), n_dims, ne, err);
}

enum { PIECE = 1 << 20 }; // bytes generated and written at a time

static int write_tensor(struct model *m, const struct row *row, int layer, struct error *err)
{
    enum dtype type = tensor_type(m, row, layer);
    struct fill fill;
    if (tensor_fill(m, row, type, &fill, err) != 0)
        return -1;
    uint8_t *piece = malloc(PIECE);
    if (!piece)
        return fail(err, E_MEMORY, "no memory for a buffer of %d bytes", PIECE);
    size_t bytes = (size_t)dtype_info[type].bytes, rc = 0;
    size_t elements = (size_t)(dim_size(m, row->cols) * dim_size(m, row->rows) * dim_size(m, row->count));
    size_t left = elements / (size_t)dtype_info[type].block;
    while (left > 0 && rc == 0) {
        size_t n = MIN(left, PIECE / bytes);
        fill_blocks(&fill, &m->rng, piece, n);
        rc = gguf_write_data(m->w, piece, n * bytes, err) != 0;
        left -= n;
    }
    free(piece);
    return rc ? -1 : 0;
}

// Whether a layer of the preset has the tensor; layer -1 is the model.
static bool has_row(const struct model *m, const struct row *row, int layer)
{
    const unsigned family = m->preset->family;
    const bool recurs = (family & F_DELTA) && layer % 4 != 3;
    return (row->family & family) == row->family && !(row->unless & family) &&
           (row->layers == EVERY || layer < 0 || (row->layers == RECURS) == recurs);
}

static int for_each_row(struct model *m, const struct row *rows, size_t n, int layer, tensor_fn *fn, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!has_row(m, &rows[i], layer))
            continue;
        if (fn(m, &rows[i], layer, err) != 0)
            return -1;
    }
    return 0;
}

static int for_each_tensor(struct model *m, tensor_fn *fn, struct error *err)
{
    if (for_each_row(m, model_rows, COUNT_OF(model_rows), -1, fn, err) != 0)
        return -1;
    for (int layer = 0; layer < m->preset->layers; layer++)
        if (for_each_row(m, layer_rows, COUNT_OF(layer_rows), layer, fn, err) != 0)
            return -1;
    return 0;
}

// Writes a key that begins with the name of the architecture.
static void put_u32(struct model *m, const char *key, int64_t value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", m->preset->arch, key);
    gguf_write_u32(m->w, full, (uint32_t)value);
}

static void put_f32(struct model *m, const char *key, float value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", m->preset->arch, key);
    gguf_write_f32(m->w, full, value);
}

static void write_delta_keys(struct model *m)
{
    const struct preset *p = m->preset;
    const int pairs = p->head_dim / 8; // that turn, by time, height and width
    const int32_t sections[4] = {pairs - 2 * (pairs / 3), pairs / 3, pairs / 3, 0};
    char full[96];
    snprintf(full, sizeof full, "%s.rope.dimension_sections", p->arch);
    gguf_write_array(m->w, full, GGUF_I32, sections, 4);
    put_u32(m, "full_attention_interval", 4);
    put_u32(m, "ssm.conv_kernel", CONV_KERNEL);
    put_u32(m, "ssm.state_size", p->ssm_dim);
    put_u32(m, "ssm.inner_size", (int64_t)p->ssm_heads * p->ssm_dim);
    put_u32(m, "ssm.time_step_rank", p->ssm_heads);
    put_u32(m, "ssm.group_count", p->ssm_heads_k);
}

// DeepSeek 2, as in GLM 4.7 Flash: experts are chosen by sigmoids.
static void write_latent_keys(struct model *m)
{
    const struct preset *p = m->preset;
    put_u32(m, "attention.q_lora_rank", p->rank_q);
    put_u32(m, "attention.kv_lora_rank", p->rank_kv);
    put_u32(m, "attention.key_length_mla", p->head_dim);
    put_u32(m, "attention.value_length_mla", p->head_dim);
    put_u32(m, "expert_shared_count", 1);
    put_u32(m, "expert_gating_func", 2);
    put_u32(m, "leading_dense_block_count", 0);
    put_f32(m, "expert_weights_scale", 1.8f);
    char full[96];
    snprintf(full, sizeof full, "%s.expert_weights_norm", p->arch);
    gguf_write_bool(m->w, full, true);
}

// How many columns of a head rotate.
static int turning(const struct preset *p)
{
    if (p->family & F_LATENT)
        return p->rot;
    return p->family & F_DELTA ? p->head_dim / 4 : p->head_dim;
}

static void write_keys(struct model *m, const struct synth_options *o)
{
    const struct preset *p = m->preset;
    char name[128], description[128];
    // Some engines search general.name for the name of a family and then want its special tokens, so the name of the
    // preset is in the description.
    snprintf(name, sizeof name, "random noise, %s, seed %" PRIu64, o->mix, o->seed);
    snprintf(description, sizeof description, "The shape of %s with random weights; what it says is noise", p->name);
    gguf_write_str(m->w, "general.architecture", str_from(p->arch));
    gguf_write_str(m->w, "general.name", str_from(name));
    gguf_write_str(m->w, "general.description", str_from(description));
    put_u32(m, "block_count", p->layers);
    put_u32(m, "context_length", p->ctx);
    put_u32(m, "embedding_length", p->embd);
    put_u32(m, "feed_forward_length", p->ffn);
    put_u32(m, "attention.head_count", p->heads);
    put_u32(m, "attention.head_count_kv", p->heads_kv);
    put_u32(m, "attention.key_length", p->family & F_LATENT ? p->rank_kv + p->rot : p->head_dim);
    put_u32(m, "attention.value_length", p->family & F_LATENT ? p->rank_kv : p->head_dim);
    put_u32(m, "vocab_size", m->n_vocab);
    put_f32(m, p->family & F_LAYER_NORM ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-5f);
    if (p->family & F_ROPE) {
        put_f32(m, "rope.freq_base", p->rope_base);
        put_u32(m, "rope.dimension_count", turning(p));
    }
    if (p->family & F_EXPERTS) {
        put_u32(m, "expert_count", p->experts);
        put_u32(m, "expert_used_count", p->experts_used);
        put_u32(m, "expert_feed_forward_length", p->ffn);
    }
    if (p->family & F_SHARED)
        put_u32(m, "expert_shared_feed_forward_length", p->ffn);
    if ((p->family & F_POST_NORM) && !(p->family & F_QK_NORM)) { // Gemma 2
        put_f32(m, "attn_logit_softcapping", 50);
        put_f32(m, "final_logit_softcapping", 30);
    }
    if (p->window)
        put_u32(m, "attention.sliding_window", p->window);
    if (p->family & F_DELTA)
        write_delta_keys(m);
    if (p->family & F_LATENT)
        write_latent_keys(m);
}

static int open_vocab(struct model *m, const struct synth_options *o, struct error *err)
{
    m->n_vocab = o->n_vocab ? o->n_vocab : m->preset->n_vocab;
    if (!o->vocab) {
        if (m->n_vocab < SYNTH_VOCAB_MIN || m->n_vocab > SYNTH_VOCAB_MAX)
            return fail(err, E_USAGE, "a made-up vocabulary has %d to %d tokens, not %" PRId64, SYNTH_VOCAB_MIN,
                        SYNTH_VOCAB_MAX, m->n_vocab);
        return 0;
    }
    if (o->n_vocab)
        return fail(err, E_USAGE, "the number of tokens is that of %s; it cannot be chosen as well", o->vocab);
    const struct gguf_kv *tokens;
    if (gguf_open(&m->vocab, o->vocab, GGUF_METADATA_ONLY, err) != 0)
        return -1;
    int found = gguf_get_array(m->vocab, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, err);
    if (found < 0)
        return -1;
    if (found == 0 || tokens->count == 0 || tokens->count > INT32_MAX)
        return fail(err, E_MODEL, "%s: holds no vocabulary (tokenizer.ggml.tokens)", o->vocab);
    m->n_vocab = (int64_t)tokens->count;
    return 0;
}

static int write_vocab(struct model *m, const struct synth_options *o, struct error *err)
{
    static const char prefix[] = "tokenizer.";
    if (!m->vocab)
        return synth_vocab_write(m->w, (size_t)m->n_vocab, o->seed, err);
    for (size_t i = 0; i < gguf_n_kv(m->vocab); i++) {
        const struct gguf_kv *kv = gguf_kv_at(m->vocab, i);
        if (kv->key.len > strlen(prefix) && memcmp(kv->key.data, prefix, strlen(prefix)) == 0)
            gguf_write_kv(m->w, kv);
    }
    return 0;
}

static int write_model(struct model *m, const struct synth_options *o, struct error *err)
{
    write_keys(m, o);
    if (write_vocab(m, o, err) != 0 || for_each_tensor(m, announce_tensor, err) != 0)
        return -1;
    return for_each_tensor(m, write_tensor, err);
}

// Writes the model to a writer's file. fd -1: a new file at `path`.
static int write_to(const struct synth_options *o, int fd, const char *path, struct error *err)
{
    struct model m = {.rng = rng_seed(o->seed)};
    int rc = -1;
    if (find_preset(o->preset, &m.preset, err) != 0 || find_mix(o->mix, &m.mix, err) != 0)
        return -1;
    if (open_vocab(&m, o, err) != 0)
        goto done;
    if ((fd < 0 ? gguf_writer_open(&m.w, path, err) : gguf_writer_open_fd(&m.w, fd, path, err)) != 0)
        goto done;
    if (write_model(&m, o, err) != 0) {
        gguf_writer_abort(m.w);
        goto done;
    }
    rc = gguf_writer_close(m.w, err);
done:
    gguf_close(m.vocab);
    return rc;
}

int synth_model_write(const struct synth_options *o, const char *path, struct error *err)
{
    return write_to(o, -1, path, err);
}

int synth_model_write_fd(const struct synth_options *o, int fd, const char *name, struct error *err)
{
    return write_to(o, fd, name, err);
}
