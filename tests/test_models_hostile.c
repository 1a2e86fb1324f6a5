// Tests model files that are well formed but invalid: each is a good model with one change, and is refused with the
// exact message, the key or tensor and its byte. Then sweeps: with any value, the result is a graph that runs or an
// error.
#include "tests/edited_file.h"
#include "tests/golden.h"

#include <criterion/criterion.h>

static char dir[64];

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "%s/quern-models-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    cr_assert_not_null(mkdtemp(dir));
}

static void remove_dir(void)
{
    rmdir(dir);
}

static struct gguf *open_base(const char *name)
{
    char path[512], file[64];
    struct gguf *g;
    struct error err = {0};
    snprintf(file, sizeof file, "arch/%s.gguf", name);
    if (!golden_path(file, path)) {
        snprintf(file, sizeof file, "more/%s.gguf", name);
        cr_assert(golden_path(file, path), "%s", file);
    }
    cr_assert_eq(gguf_open(&g, path, 0, &err), 0, "%s", err.text);
    return g;
}

// The file `base` with edits, opened; NULL with the error of the writer or of the reader.
static struct gguf *open_edited(const struct gguf *base, const char *text, struct error *err)
{
    char path[80];
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    struct edits edits = parse_edits(text);
    struct gguf *g = NULL;
    if (write_file(path, base, &edits, err) == 0)
        gguf_open(&g, path, 0, err);
    unlink(path);
    return g;
}

// ---- Refusals

struct refusal {
    const char *base, *edits;
    const char *text; // what comes after "FILE: " or "FILE: byte N: "
};

// Returns the offset in the file of the key or tensor that a message names; ERR_NO_OFFSET if it is not in the file.
static uint64_t offset_of(const struct gguf *g, const char *text)
{
    char name[96];
    if (sscanf(text, "key '%95[^']'", name) == 1) {
        const struct gguf_kv *kv = gguf_find(g, name);
        return kv ? kv->offset : ERR_NO_OFFSET;
    }
    cr_assert_eq(sscanf(text, "tensor '%95[^']'", name), 1, "%s", text);
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    return t ? t->info_offset : ERR_NO_OFFSET;
}

static void check_refusal(const struct refusal *c)
{
    struct gguf *base = open_base(c->base);
    struct error err = {0};
    struct gguf *g = open_edited(base, c->edits, &err);
    cr_assert_not_null(g, "%s: %s: %s", c->base, c->edits, err.text);
    struct graph *graph;
    struct arch_info info;
    cr_expect_eq(arch_build(g, &(struct arch_options){0}, &graph, &info, &err), -1, "%s: %s: must be refused", c->base,
                 c->edits);
    uint64_t offset = offset_of(g, c->text);
    char want[ERR_TEXT], byte[48] = "";
    if (offset != ERR_NO_OFFSET)
        snprintf(byte, sizeof byte, "byte %llu: ", (unsigned long long)offset);
    snprintf(want, sizeof want, "%s: %s%s", gguf_path(g, 0), byte, c->text);
    cr_expect_null(graph);
    cr_expect_eq(err.code, E_MODEL, "%s: %s", c->base, c->edits);
    cr_expect_eq(err.offset, offset, "%s: %s", c->base, c->edits);
    cr_expect_str_eq(err.text, want, "%s: %s: said\n  %s\nnot\n  %s", c->base, c->edits, err.text, want);
    graph_free(graph);
    gguf_close(g);
    gguf_close(base);
}

static void check_refusals(const struct refusal *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_refusal(&cases[i]);
}

#define KNOWN "`quern help` lists those that are known"

// clang-format off
static const struct refusal whole_cases[] = {
    {"tiny-llama", "no:general.architecture", "key 'general.architecture': is missing; " KNOWN},
    {"tiny-llama", "str:general.architecture,clip", "key 'general.architecture': 'clip' is not known; " KNOWN},
    {"tiny-llama", "str:general.architecture,llam", "key 'general.architecture': 'llam' is not known; " KNOWN},
    {"tiny-llama", "u32:general.architecture,1", "key 'general.architecture': has type u32, wanted a string"},
    {"tiny-llama", "str:general.architecture,qwen2", "key 'qwen2.block_count': is missing"},
    {"tiny-llama", "no:llama.block_count", "key 'llama.block_count': is missing"},
    {"tiny-llama", "f32:llama.block_count,2", "key 'llama.block_count': has type f32, wanted an integer"},
    {"tiny-llama", "u32:llama.block_count,0", "key 'llama.block_count': 0 is out of range, wanted 1 to 4294967295"},
    {"tiny-llama", "i32:llama.block_count,-2", "key 'llama.block_count': -2 is out of range, wanted 1 to 4294967295"},
    {"tiny-llama", "u32:llama.block_count,4294967295", "key 'llama.block_count': 4294967295 layers, but the tensors are of 2"},
    {"tiny-llama", "u32:llama.block_count,1", "key 'llama.block_count': 1 layers, but the tensors are of 2"},
    {"tiny-llama", "u32:llama.block_count,3", "key 'llama.block_count': 3 layers, but the tensors are of 2"},
    {"tiny-llama", "name:blk.1.ffn_up.weight,blk.7.ffn_up.weight", "key 'llama.block_count': 2 layers, but the tensors are of 8"},
    {"tiny-llama", "name:blk.1.ffn_up.weight,blk.99999999.a u32:llama.block_count,100000000",
     "key 'llama.block_count': 100000000 layers of 22 tensors"},
    {"tiny-llama", "no:llama.embedding_length", "key 'llama.embedding_length': is missing"},
    {"tiny-llama", "u32:llama.embedding_length,0", "key 'llama.embedding_length': 0 is out of range, wanted 1 to 1048576"},
    {"tiny-llama", "u64:llama.embedding_length,4294967328", "key 'llama.embedding_length': 4294967328 is out of range, wanted 1 to 1048576"},
    {"tiny-llama", "u32:llama.embedding_length,64", "tensor 'token_embd.weight': its shape is 32 x 64, wanted 64 x 64"},
    {"tiny-llama", "no:llama.context_length", "key 'llama.context_length': is missing"},
    {"tiny-llama", "str:llama.context_length,many", "key 'llama.context_length': has type string, wanted an integer"},
    {"tiny-llama", "u32:llama.context_length,0", "key 'llama.context_length': 0 is out of range, wanted 1 to 4294967295"},
};

static const struct refusal head_cases[] = {
    {"tiny-llama", "no:llama.attention.head_count", "key 'llama.attention.head_count': is missing"},
    {"tiny-llama", "u32:llama.attention.head_count,0", "key 'llama.attention.head_count': 0 is out of range, wanted 1 to 16384"},
    {"tiny-llama", "u32:llama.attention.head_count_kv,0", "key 'llama.attention.head_count_kv': 0 is out of range, wanted 1 to 16384"},
    {"tiny-llama", "u32:llama.attention.head_count_kv,3", "key 'llama.attention.head_count': 4 heads are no multiple of 3 KV heads"},
    {"tiny-llama", "u32:llama.attention.head_count_kv,8", "key 'llama.attention.head_count': 4 heads are no multiple of 8 KV heads"},
    {"tiny-llama", "u32:llama.attention.head_count,6", "key 'llama.attention.head_count': 6 heads do not share out 32 columns"},
    {"tiny-llama", "u32:llama.attention.head_count,64", "key 'llama.attention.head_count': 64 heads do not share out 32 columns"},
    {"tiny-llama", "u32s:llama.attention.head_count,4,4,4", "key 'llama.attention.head_count': is an array of 3, wanted one of 2, the number of layers"},
    {"tiny-llama", "u32s:llama.attention.head_count_kv,2", "key 'llama.attention.head_count_kv': is an array of 1, wanted one of 2, the number of layers"},
    {"tiny-llama", "u32s:llama.attention.head_count_kv,2,3", "key 'llama.attention.head_count': 4 heads are no multiple of 3 KV heads"},
    {"tiny-llama", "u32s:llama.attention.head_count_kv,2,0", "key 'llama.attention.head_count_kv': 0 is out of range, wanted 1 to 16384"},
    {"tiny-llama", "u32s:llama.attention.head_count_kv,2,1", "tensor 'blk.1.attn_k.weight': its shape is 32 x 16, wanted 32 x 8"},
    {"tiny-llama", "strs:llama.attention.head_count,2", "key 'llama.attention.head_count': is an array of string, wanted an array of i32"},
    {"tiny-qwen3", "u32:qwen3.attention.key_length,0", "key 'qwen3.attention.key_length': 0 is out of range, wanted 1 to 1024"},
    {"tiny-qwen3", "u32:qwen3.attention.key_length,4294967295", "key 'qwen3.attention.key_length': 4294967295 is out of range, wanted 1 to 1024"},
    {"tiny-qwen3", "u32:qwen3.attention.value_length,1025", "key 'qwen3.attention.value_length': 1025 is out of range, wanted 1 to 1024"},
    {"tiny-llama", "u32:llama.embedding_length,1025 u32:llama.attention.head_count,1 u32:llama.attention.head_count_kv,1",
     "key 'llama.attention.head_count': heads of 1025 columns; up to 1024 are served"},
    {"tiny-qwen3", "u32:qwen3.attention.key_length,32", "tensor 'blk.0.attn_q.weight': its shape is 32 x 64, wanted 32 x 128"},
    {"tiny-qwen3", "u32:qwen3.attention.value_length,8", "tensor 'blk.0.attn_v.weight': its shape is 32 x 32, wanted 32 x 16"},
    {"tiny-llama", "no:llama.feed_forward_length", "key 'llama.feed_forward_length': layer 0 has none"},
    {"tiny-llama", "u32:llama.feed_forward_length,0", "key 'llama.feed_forward_length': layer 0 has none"},
    {"tiny-llama", "u32s:llama.feed_forward_length,48,0", "key 'llama.feed_forward_length': layer 1 has none"},
    {"tiny-llama", "u32s:llama.feed_forward_length,48,48,48", "key 'llama.feed_forward_length': is an array of 3, wanted one of 2, the number of layers"},
    {"tiny-llama", "u32:llama.feed_forward_length,40", "tensor 'blk.0.ffn_up.weight': its shape is 32 x 48, wanted 32 x 40"},
};

#define ABOVE_0 " is out of range, wanted a finite number above 0"
static const struct refusal number_cases[] = {
    {"tiny-llama", "no:llama.attention.layer_norm_rms_epsilon", "key 'llama.attention.layer_norm_rms_epsilon': is missing"},
    {"tiny-llama", "str:llama.attention.layer_norm_rms_epsilon,x", "key 'llama.attention.layer_norm_rms_epsilon': has type string, wanted a number"},
    {"tiny-llama", "f32:llama.attention.layer_norm_rms_epsilon,-1", "key 'llama.attention.layer_norm_rms_epsilon': -1" ABOVE_0},
    {"tiny-llama", "f32:llama.attention.layer_norm_rms_epsilon,nan", "key 'llama.attention.layer_norm_rms_epsilon': nan" ABOVE_0},
    {"tiny-llama", "f32:llama.attention.layer_norm_rms_epsilon,inf", "key 'llama.attention.layer_norm_rms_epsilon': inf" ABOVE_0},
    {"tiny-gpt2", "f32:gpt2.attention.layer_norm_epsilon,nan", "key 'gpt2.attention.layer_norm_epsilon': nan" ABOVE_0},
    {"tiny-gpt2", "no:gpt2.attention.layer_norm_epsilon", "key 'gpt2.attention.layer_norm_epsilon': is missing"},
    {"tiny-llama", "f32:llama.rope.freq_base,0", "key 'llama.rope.freq_base': 0" ABOVE_0},
    {"tiny-llama", "f32:llama.rope.freq_base,nan", "key 'llama.rope.freq_base': nan" ABOVE_0},
    {"tiny-llama", "f32:llama.rope.freq_base,-10000", "key 'llama.rope.freq_base': -10000" ABOVE_0},
    {"tiny-llama", "f32:llama.rope.freq_base,inf", "key 'llama.rope.freq_base': inf" ABOVE_0},
    {"tiny-llama", "u32:llama.rope.dimension_count,7", "key 'llama.rope.dimension_count': 7 columns turn, which is odd: they turn in pairs"},
    {"tiny-llama", "u32:llama.rope.dimension_count,10", "key 'llama.rope.dimension_count': 10 columns turn, but a head has 8"},
    {"tiny-llama", "u32:llama.rope.dimension_count,0", "key 'llama.rope.dimension_count': 0 is out of range, wanted 1 to 2147483647"},
    {"tiny-llama", "u32:llama.rope.dimension_count,4", "tensor 'rope_freqs.weight': its shape is 4, wanted 2"},
    {"tiny-llama", "str:llama.rope.scaling.type,dynamic", "key 'llama.rope.scaling.type': 'dynamic' is not known, wanted one of: none, linear, yarn, longrope"},
    {"tiny-llama", "u32:llama.rope.scaling.type,1", "key 'llama.rope.scaling.type': has type u32, wanted a string"},
    {"tiny-llama-linear", "f32:llama.rope.scaling.factor,-4", "key 'llama.rope.scaling.factor': -4" ABOVE_0},
    {"tiny-llama-linear", "f32:llama.rope.scaling.factor,nan", "key 'llama.rope.scaling.factor': nan" ABOVE_0},
    {"tiny-llama-yarn", "f32:llama.rope.scaling.factor,inf", "key 'llama.rope.scaling.factor': inf" ABOVE_0},
    {"tiny-llama-yarn", "f32:llama.rope.scaling.yarn_beta_fast,nan", "key 'llama.rope.scaling.yarn_beta_fast': nan" ABOVE_0},
    {"tiny-llama-yarn", "f32:llama.rope.scaling.yarn_beta_slow,0", "key 'llama.rope.scaling.yarn_beta_slow': 0" ABOVE_0},
    {"tiny-llama-yarn", "i32:llama.rope.scaling.original_context_length,-1", "key 'llama.rope.scaling.original_context_length': -1 is out of range, wanted 0 to 4294967295"},
    {"tiny-phi3-long", "f32:phi3.rope.scaling.attn_factor,0", "key 'phi3.rope.scaling.attn_factor': 0" ABOVE_0},
    {"tiny-phi3-long", "i32:phi3.attention.sliding_window,-1", "key 'phi3.attention.sliding_window': -1 is out of range, wanted 0 to 2147483647"},
    {"tiny-gemma2", "u32:gemma2.attention.sliding_window,0", "key 'gemma2.attention.sliding_window': 0 is out of range, wanted 1 to 2147483647"},
    {"tiny-gemma2", "u32:gemma2.attention.sliding_window_pattern,0", "key 'gemma2.attention.sliding_window_pattern': 0 is out of range, wanted 1 to 2147483647"},
    {"tiny-gemma2", "f32:gemma2.attn_logit_softcapping,nan", "key 'gemma2.attn_logit_softcapping': nan" ABOVE_0},
    {"tiny-gemma2", "f32:gemma2.final_logit_softcapping,0", "key 'gemma2.final_logit_softcapping': 0" ABOVE_0},
    {"tiny-gemma2", "f32:gemma2.rope.freq_base_swa,nan", "key 'gemma2.rope.freq_base_swa': nan" ABOVE_0},
};

static const struct refusal expert_cases[] = {
    {"tiny-llama-moe", "u32:llama.expert_used_count,7", "key 'llama.expert_used_count': 7 experts are used of 6"},
    {"tiny-llama-moe", "u32:llama.expert_used_count,0", "key 'llama.expert_used_count': 0 experts are used of 6"},
    {"tiny-llama-moe", "no:llama.expert_used_count", "key 'llama.expert_used_count': 0 experts are used of 6"},
    {"tiny-llama-moe", "no:llama.expert_count", "key 'llama.expert_used_count': 2 experts are used of 0"},
    {"tiny-llama-moe", "u32:llama.expert_count,4294967295", "key 'llama.expert_count': 4294967295 is out of range, wanted 0 to 16384"},
    {"tiny-llama-moe", "u32:llama.expert_count,5", "tensor 'blk.0.ffn_gate_inp.weight': its shape is 32 x 6, wanted 32 x 5"},
    {"tiny-llama-moe", "f32:llama.expert_weights_scale,-1", "key 'llama.expert_weights_scale': -1" ABOVE_0},
    {"tiny-llama-moe", "f32:llama.expert_weights_scale,nan", "key 'llama.expert_weights_scale': nan" ABOVE_0},
    {"tiny-llama-moe", "shape:blk.1.ffn_up_exps.weight,32,24,5", "tensor 'blk.1.ffn_up_exps.weight': its shape is 32 x 24 x 5, wanted 32 x 24 x 6"},
    {"tiny-llama-moe", "shape:blk.1.ffn_up_exps.weight,32,144", "tensor 'blk.1.ffn_up_exps.weight': its shape is 32 x 144, wanted 32 x 24 x 6"},
    {"tiny-llama-moe", "drop:blk.1.ffn_gate_exps.weight", "tensor 'blk.1.ffn_gate_exps.weight': is missing"},
    {"tiny-qwen3moe", "u32:qwen3moe.expert_count,0 u32:qwen3moe.expert_used_count,0", "key 'qwen3moe.expert_count': this family has experts, wanted 1 or more"},
    {"tiny-qwen3moe", "u32:qwen3moe.expert_feed_forward_length,17", "tensor 'blk.0.ffn_gate_exps.weight': its shape is 32 x 16 x 6, wanted 32 x 17 x 6"},
    {"llama-moe", "fill:blk.0.ffn_up_exps.scale,nan", "tensor 'blk.0.ffn_up_exps.scale': element 0 is nan"},
    {"llama-moe", "shape:blk.0.ffn_up_exps.scale,7", "tensor 'blk.0.ffn_up_exps.scale': its shape is 7, wanted 8"},
};

static const struct refusal family_cases[] = {
    {"tiny-gemma4", "u32:gemma4.attention.shared_kv_layers,2",
     "key 'gemma4.attention.shared_kv_layers': layer 2 has a window where the layer whose keys it takes has none, or the reverse"},
    {"tiny-gemma4", "u32:gemma4.attention.shared_kv_layers,4", "key 'gemma4.attention.shared_kv_layers': 4 is out of range, wanted 0 to 3"},
    {"tiny-gemma4", "no:gemma4.attention.sliding_window_pattern", "key 'gemma4.attention.sliding_window_pattern': is missing"},
    {"tiny-gemma4", "no:gemma4.attention.sliding_window", "key 'gemma4.attention.sliding_window': is missing"},
    {"tiny-gemma4", "u32:gemma4.attention.value_length,8", "key 'gemma4.attention.value_length': 8, wanted 16 as for keys"},
    {"tiny-gemma4", "u32:gemma4.attention.value_length_swa,16", "key 'gemma4.attention.value_length_swa': 16, wanted 8 as for keys"},
    {"tiny-gemma4", "u32:gemma4.rope.dimension_count_swa,7",
     "key 'gemma4.rope.dimension_count_swa': 7 columns turn, wanted an even number up to 8"},
    {"tiny-gemma4", "no:gemma4.rope.dimension_count_swa",
     "key 'gemma4.rope.dimension_count_swa': 16 columns turn, wanted an even number up to 8"},
    {"tiny-gemma4", "u32:gemma4.nextn_predict_layers,1",
     "key 'gemma4.nextn_predict_layers': layers that predict further tokens are not supported"},
    {"tiny-gemma4", "u32:gemma4.expert_count,4 u32:gemma4.expert_used_count,2", "key 'gemma4.expert_feed_forward_length': is missing"},
    {"tiny-gemma4-extra", "u32:gemma4.embedding_length_per_layer_input,0",
     "tensor 'blk.0.inp_gate.weight': is no part of a model of the family gemma4, and would go unused"},
    {"tiny-gemma4-moe", "u32:gemma4.expert_feed_forward_length,8",
     "tensor 'blk.0.ffn_gate_up_exps.weight': its shape is 32 x 32 x 6, wanted 32 x 16 x 6"},
    {"tiny-gemma4-moe", "drop:blk.0.ffn_gate_inp.scale", "tensor 'blk.0.ffn_gate_inp.scale': is missing"},
    {"tiny-gptneox", "no:gptneox.use_parallel_residual", "key 'gptneox.use_parallel_residual': is missing"},
    {"tiny-gptneox", "u32:gptneox.use_parallel_residual,1", "key 'gptneox.use_parallel_residual': has type u32, wanted a bool"},
    {"tiny-stablelm", "name:blk.1.ffn_norm.bias,blk.0.attn_q_norm.weight", "tensor 'blk.0.attn_q_norm.weight': its shape is 32, wanted 8 x 4"},
    {"qwen3vl-dense", "u32s:qwen3vl.rope.dimension_sections,2,2,2,2", "key 'qwen3vl.rope.dimension_sections': some pairs turn by a fourth position, which text does not have"},
    {"qwen3vl-dense", "u32s:qwen3vl.rope.dimension_sections,2,2,2,0,0", "key 'qwen3vl.rope.dimension_sections': is an array of 5, wanted one of 4 or fewer"},
    {"mistral3-dense", "f32:mistral3.attention.temperature_scale,0.1 u32:mistral3.rope.dimension_count,8 drop:rope_freqs.weight",
     "key 'mistral3.attention.temperature_scale': heads that do not rotate whole are not supported"},
    {"glm4-dense", "u32:glm4.nextn_predict_layers,1", "key 'glm4.nextn_predict_layers': layers that predict further tokens are not supported"},
    {"hunyuan-dense-dense", "u32:hunyuan-dense.expert_count,2", "key 'hunyuan-dense.expert_count': this family has no experts"},
    {"glm4moe-moe", "u32:glm4moe.nextn_predict_layers,2", "key 'glm4moe.nextn_predict_layers': 2 layers predict further tokens, of 2 layers"},
    {"glm4moe-moe", "u32:glm4moe.expert_gating_func,3", "key 'glm4moe.expert_gating_func': 3; 1 (softmax) and 2 (sigmoid) are supported"},
    {"glm4moe-moe", "shape:blk.1.exp_probs_b.bias,7", "tensor 'blk.1.exp_probs_b.bias': its shape is 7, wanted 8"},
    {"glm4moe-moe", "u32:glm4moe.expert_group_count,3 u32:glm4moe.expert_group_used_count,1", "key 'glm4moe.expert_group_count': 8 experts in 3 groups, wanted are groups of one size of 2 or more"},
    {"tiny-deepseek2", "no:deepseek2.attention.key_length_mla", "key 'deepseek2.attention.key_length_mla': is missing or 0, and the file has attn_k_b"},
    {"tiny-deepseek2", "no:deepseek2.attention.value_length_mla", "key 'deepseek2.attention.value_length_mla': is missing or 0, and the file has attn_k_b"},
    {"tiny-deepseek2", "no:deepseek2.attention.kv_lora_rank", "key 'deepseek2.attention.kv_lora_rank': is missing"},
    {"tiny-deepseek2", "u32:deepseek2.rope.dimension_count,64", "key 'deepseek2.rope.dimension_count': 64 columns of a head turn, and it has 64, of which some must not turn"},
    {"glm4moe-moe", "u32:glm4moe.expert_group_count,4 u32:glm4moe.expert_group_used_count,5", "key 'glm4moe.expert_group_used_count': 5 groups are used of 4"},
    {"glm4moe-moe", "no:glm4moe.expert_shared_count", "key 'glm4moe.expert_shared_count': is missing"},
    {"gpt-oss-moe", "drop:blk.1.attn_sinks.weight", "tensor 'blk.1.attn_sinks.weight': is missing"},
    {"gpt-oss-moe", "shape:blk.0.attn_sinks.weight,5", "tensor 'blk.0.attn_sinks.weight': its shape is 5, wanted 4"},
    {"gpt-oss-moe", "shape:blk.0.ffn_up_exps.bias,96,7", "tensor 'blk.0.ffn_up_exps.bias': its shape is 96 x 7, wanted 96 x 8"},
    {"gpt-oss-moe", "dtype:blk.0.ffn_up_exps.bias,F16", "tensor 'blk.0.ffn_up_exps.bias': is of type F16, wanted F32"},
    {"llama4-moe", "u32:llama4.attention.sliding_window,0", "key 'llama4.attention.sliding_window': layers without chunks are not supported"},
    {"ernie4_5-moe", "str:general.architecture,ernie4_5-moe", "key 'ernie4_5-moe.block_count': is missing"},
    {"olmo-dense", "f32:olmo.attention.clamp_kqv,-8", "key 'olmo.attention.clamp_kqv': -8" ABOVE_0},
    {"mpt-dense", "f32:mpt.attention.max_alibi_bias,inf", "key 'mpt.attention.max_alibi_bias': inf" ABOVE_0},
    {"mpt-dense", "fill:blk.1.ffn.act.scales,0", "tensor 'blk.1.ffn.act.scales': element 0 is 0"},
    {"mpt-dense", "shape:blk.1.ffn.act.scales,95", "tensor 'blk.1.ffn.act.scales': its shape is 95, wanted 96"},
    {"bloom-dense", "drop:token_embd_norm.bias", "tensor 'token_embd_norm.bias': is missing"},
    {"dbrx-moe", "no:dbrx.attention.clamp_kqv", "key 'dbrx.attention.clamp_kqv': is missing"},
    {"tiny-minicpm3", "no:minicpm3.attention.q_lora_rank", "key 'minicpm3.attention.q_lora_rank': is not of this family"},
    {"tiny-minicpm3", "u32:minicpm3.rope.dimension_count,18", "key 'minicpm3.rope.dimension_count': 18 columns turn, but a head has 16"},
    {"grok-moe", "f32:grok.rope.scaling.yarn_ext_factor,0.5", "key 'grok.rope.scaling.yarn_ext_factor': 0.5; only 1 is supported"},
    {"tiny-smallthinker", "no:smallthinker.expert_feed_forward_length", "key 'smallthinker.expert_feed_forward_length': is missing"},
    {"plamo2-dense", "u32:plamo2.ssm.time_step_rank,3", "key 'plamo2.ssm.time_step_rank': 128 columns of 3 heads"},
    {"plamo2-dense", "u32:plamo2.ssm.group_count,2", "key 'plamo2.ssm.group_count': this family has no groups"},
    {"plamo2-dense", "drop:blk.1.post_ffw_norm", "tensor 'blk.1.post_ffw_norm.weight': is missing"},
    {"tiny-hy-v3", "u32:hy_v3.nextn_predict_layers,2", "key 'hy_v3.nextn_predict_layers': 2 layers predict further tokens, of 2 layers"},
    {"tiny-grovemoe", "u32:grovemoe.experts_per_group,3", "key 'grovemoe.experts_per_group': 8 experts in groups of 3"},
    {"tiny-grovemoe", "no:grovemoe.expert_group_scale", "key 'grovemoe.expert_group_scale': is missing"},
    {"tiny-apertus", "no:xielu.beta", "key 'xielu.beta': is missing"},
    {"tiny-apertus", "f32:xielu.eps,nan", "key 'xielu.eps': nan is no finite number"},
    {"tiny-apertus", "u32s:xielu.alpha_p,1,2", "key 'xielu.alpha_p': is an array of u32, wanted an array of f32"},
    {"tiny-afmoe", "drop:blk.2.attn_gate.weight", "tensor 'blk.2.attn_gate.weight': is missing"},
    {"tiny-afmoe", "no:afmoe.expert_shared_count", "key 'afmoe.expert_shared_count': is missing"},
    {"tiny-exaone-moe", "no:exaone-moe.attention.sliding_window", "key 'exaone-moe.attention.sliding_window': is missing"},
    {"tiny-exaone-moe", "bools:exaone-moe.attention.sliding_window_pattern,1,0", "key 'exaone-moe.attention.sliding_window_pattern': is an array of 2, wanted one of 3, the number of layers"},
    {"tiny-cohere2moe", "no:cohere2moe.attention.sliding_window_pattern", "key 'cohere2moe.attention.sliding_window_pattern': is missing"},
    {"tiny-cohere2moe", "no:cohere2moe.leading_dense_block_count", "key 'cohere2moe.leading_dense_block_count': is missing"},
    {"minimax-m3-moe", "no:minimax-m3.attention.indexer.block_size", "key 'minimax-m3.attention.indexer.block_size': is missing"},
    {"minimax-m3-moe", "u32:minimax-m3.attention.indexer.key_length,32", "tensor 'blk.1.indexer.q_proj.weight': its shape is 128 x 128, wanted 128 x 64"},
    {"tiny-gemma3n", "u32:gemma3n.altup.active_idx,1", "key 'gemma3n.altup.active_idx': only the first stream can be the active one"},
    {"tiny-gemma3n", "u32:gemma3n.altup.num_inputs,5", "key 'gemma3n.altup.num_inputs': 5 is out of range, wanted 2 to 4"},
    {"tiny-gemma3n", "u32:gemma3n.embedding_length,16388", "key 'gemma3n.embedding_length': 16388 columns; up to 16384 are served"},
    {"tiny-gemma3n", "u32s:gemma3n.activation_sparsity_scale,1,2", "key 'gemma3n.activation_sparsity_scale': is an array of u32, wanted an array of f32"},
    {"tiny-gemma3n", "bools:gemma3n.attention.sliding_window_pattern,0,0,0,1,0", "key 'gemma3n.attention.shared_kv_layers': layer 3 has a window where the layer whose keys it takes has none, or the reverse"},
    {"tiny-plm", "u32:plm.attention.q_lora_rank,8", "key 'plm.attention.q_lora_rank': is not of this family"},
    {"tiny-mimo2", "u32:mimo2.attention.sliding_window_pattern,2", "key 'mimo2.attention.sliding_window_pattern': is wanted as an array"},
    {"tiny-mimo2", "no:mimo2.attention.sliding_window", "key 'mimo2.attention.sliding_window': is missing"},
    {"tiny-step35", "f32:step35.swiglu_clamp_exp,0.2", "key 'step35.swiglu_clamp_exp': layer 0 has a limit of 0.2; 0 or more than 0.2785 is served"},
    {"tiny-step35", "f32:step35.swiglu_clamp_shexp,-1", "key 'step35.swiglu_clamp_shexp': -1 is out of range, wanted a finite number above 0"},
    {"tiny-step35", "u32s:step35.swiglu_clamp_exp,0,0,7,7", "key 'step35.swiglu_clamp_exp': is an array of u32, wanted an array of f32"},
    {"tiny-step35", "u32:step35.attention.sliding_window_pattern,2", "key 'step35.attention.sliding_window_pattern': is wanted as an array"},
    {"tiny-step35", "u32:step35.rope.dimension_count,6 drop:rope_freqs.weight", "key 'step35.rope.dimension_count': half of these columns turn in pairs, which 3 do not"},
    {"tiny-laguna", "u32:laguna.rope.dimension_count_swa,7", "key 'laguna.rope.dimension_count_swa': 7 columns turn, which is odd: they turn in pairs"},
    {"tiny-laguna", "no:laguna.leading_dense_block_count", "key 'laguna.leading_dense_block_count': is missing"},
    {"tiny-kimi-linear", "no:kimi-linear.kda.head_dim", "key 'kimi-linear.kda.head_dim': is missing"},
    {"tiny-kimi-linear", "no:kimi-linear.attention.value_length_mla", "key 'kimi-linear.attention.value_length_mla': is missing"},
    {"tiny-kimi-linear", "u32:kimi-linear.ssm.conv_kernel,3", "tensor 'blk.0.ssm_conv1d_q.weight': its shape is 4 x 1 x 48, wanted 3 x 1 x 48"},
    {"refact-moe", "u32:refact.expert_count,7", "tensor 'blk.0.ffn_gate_inp.weight': its shape is 64 x 8, wanted 64 x 7"},
    {"olmoe-moe", "u32:olmoe.expert_count,0 u32:olmoe.expert_used_count,0", "key 'olmoe.expert_count': this family has experts, wanted 1 or more"},
    {"cohere2-dense", "no:cohere2.attention.sliding_window", "key 'cohere2.attention.sliding_window': is missing"},
    {"cohere2-dense", "bools:cohere2.attention.sliding_window_pattern,1,1,0", "key 'cohere2.attention.sliding_window_pattern': is an array of 3, wanted one of 2, the number of layers"},
    {"cohere2-dense", "u32s:cohere2.attention.sliding_window_pattern,1,0,1", "key 'cohere2.attention.sliding_window_pattern': is an array of 3, wanted one of 2, the number of layers"},
    {"granite-dense", "no:granite.logit_scale", "key 'granite.logit_scale': is missing"},
    {"granite-moe", "u32:granite.expert_shared_feed_forward_length,0", "tensor 'blk.0.ffn_gate_shexp.weight': is no part of a model of the family granite, and would go unused"},
};

static const struct refusal tensor_cases[] = {
    {"tiny-llama", "drop:token_embd.weight", "tensor 'token_embd.weight': is missing"},
    {"tiny-llama", "drop:output_norm.weight", "tensor 'output_norm.weight': is missing"},
    {"tiny-llama", "drop:blk.0.attn_q.weight", "tensor 'blk.0.attn_q.weight': is missing"},
    {"tiny-llama", "drop:blk.1.ffn_down.weight", "tensor 'blk.1.ffn_down.weight': is missing"},
    {"tiny-llama", "drop:blk.1.attn_norm.weight", "tensor 'blk.1.attn_norm.weight': is missing"},
    {"tiny-qwen3", "drop:blk.0.attn_k_norm.weight", "tensor 'blk.0.attn_k_norm.weight': is missing"},
    {"tiny-gemma2", "drop:blk.2.post_ffw_norm.weight", "tensor 'blk.2.post_ffw_norm.weight': is missing"},
    {"tiny-gpt2", "drop:blk.0.attn_qkv.weight", "tensor 'blk.0.attn_q.weight': is missing"},
    {"tiny-gpt2", "drop:blk.0.attn_qkv.bias", "tensor 'blk.0.attn_qkv.bias': is missing"},
    {"tiny-gpt2", "drop:blk.1.ffn_norm.bias", "tensor 'blk.1.ffn_norm.bias': is missing"},
    {"tiny-gpt2", "drop:position_embd.weight", "tensor 'position_embd.weight': is missing"},
    {"tiny-gpt2", "u32:gpt2.context_length,65", "tensor 'position_embd.weight': its shape is 32 x 64, wanted 32 x 65"},
    {"tiny-llama", "shape:blk.0.attn_q.weight,32,33", "tensor 'blk.0.attn_q.weight': its shape is 32 x 33, wanted 32 x 32"},
    {"tiny-llama", "shape:blk.0.attn_output.weight,64,32", "tensor 'blk.0.attn_output.weight': its shape is 64 x 32, wanted 32 x 32"},
    {"tiny-llama", "shape:blk.0.attn_q.weight,32,32,2", "tensor 'blk.0.attn_q.weight': its shape is 32 x 32 x 2, wanted 32 x 32"},
    {"tiny-llama", "shape:blk.0.attn_q.weight,32,32,1,2", "tensor 'blk.0.attn_q.weight': its shape is 32 x 32 x 1 x 2, wanted 32 x 32"},
    {"tiny-llama", "shape:blk.0.attn_norm.weight,16,2", "tensor 'blk.0.attn_norm.weight': its shape is 16 x 2, wanted 32"},
    {"tiny-llama", "shape:output.weight,32,63", "tensor 'output.weight': its shape is 32 x 63, wanted 32 x 64"},
    {"tiny-phi3-long", "shape:blk.0.attn_qkv.weight,32,60", "tensor 'blk.0.attn_qkv.weight': its shape is 32 x 60, wanted 32 x 64"},
    {"tiny-phi3-long", "shape:blk.0.ffn_up.weight,32,48", "tensor 'blk.0.ffn_up.weight': its shape is 32 x 48, wanted 32 x 96"},
    {"tiny-laguna", "shape:blk.0.attn_gate.weight,32,5", "tensor 'blk.0.attn_gate.weight': its shape is 32 x 5, wanted 32 x 4"},
    {"tiny-kimi-linear", "shape:blk.1.ssm_a,4,1", "tensor 'blk.1.ssm_a': its shape is 4 x 1, wanted 1 x 4"},
    {"tiny-kimi-linear", "drop:blk.0.ssm_f_b.weight", "tensor 'blk.0.ssm_f_b.weight': is missing"},
    {"tiny-kimi-linear", "dtype:blk.0.ssm_conv1d_v.weight,F16", "tensor 'blk.0.ssm_conv1d_v.weight': is of type F16, wanted F32"},
    {"tiny-llama", "dtype:blk.0.attn_q.weight,I32", "tensor 'blk.0.attn_q.weight': is of type I32, which holds no weights"},
    {"tiny-llama", "dtype:token_embd.weight,I8", "tensor 'token_embd.weight': is of type I8, which holds no weights"},
    {"tiny-llama", "dtype:blk.1.ffn_norm.weight,F16", "tensor 'blk.1.ffn_norm.weight': is of type F16, wanted F32"},
    {"tiny-llama", "dtype:rope_freqs.weight,I32", "tensor 'rope_freqs.weight': is of type I32, wanted F32"},
    {"tiny-qwen2", "dtype:blk.0.attn_q.bias,F16", "tensor 'blk.0.attn_q.bias': is of type F16, wanted F32"},
    {"tiny-qwen2", "shape:blk.0.attn_q.bias,31", "tensor 'blk.0.attn_q.bias': its shape is 31, wanted 32"},
    {"tiny-llama", "fill:rope_freqs.weight,nan", "tensor 'rope_freqs.weight': element 0 is nan"},
    {"tiny-llama", "fill:rope_freqs.weight,0", "tensor 'rope_freqs.weight': element 0 is 0"},
    {"tiny-phi3-long", "fill:rope_factors_long.weight,inf", "tensor 'rope_factors_long.weight': element 0 is inf"},
    {"tiny-phi3-long", "shape:rope_factors_long.weight,3", "tensor 'rope_factors_long.weight': its shape is 3, wanted 2"},
    {"llama-dense", "fill:blk.1.attn_q.scale,inf", "tensor 'blk.1.attn_q.scale': element 0 is inf"},
    {"llama-dense", "shape:blk.1.ffn_up.scale,2", "tensor 'blk.1.ffn_up.scale': its shape is 2, wanted 1"},
    {"tiny-qwen2", "name:blk.0.attn_q.bias,blk.0.attn_sinks.bias", "tensor 'blk.0.attn_sinks.bias': is no part of a model of the family qwen2, and would go unused"},
    {"tiny-qwen3", "str:general.architecture,llama u32:llama.block_count,2 u32:llama.embedding_length,32 u32:llama.context_length,9 "
     "u32:llama.attention.head_count,4 u32:llama.attention.head_count_kv,2 u32:llama.feed_forward_length,48 f32:llama.attention.layer_norm_rms_epsilon,1",
     "tensor 'blk.0.attn_q.weight': its shape is 32 x 64, wanted 32 x 32"},
};

static const struct refusal vocabulary_cases[] = {
    {"tiny-llama", "strs:tokenizer.ggml.tokens,63", "tensor 'token_embd.weight': has 64 rows, but the vocabulary has 63 tokens"},
    {"tiny-llama", "strs:tokenizer.ggml.tokens,65", "tensor 'token_embd.weight': has 64 rows, but the vocabulary has 65 tokens"},
    {"tiny-llama", "strs:tokenizer.ggml.tokens,0", "tensor 'token_embd.weight': has 64 rows, but the vocabulary has 0 tokens"},
    {"tiny-llama", "str:tokenizer.ggml.tokens,a", "key 'tokenizer.ggml.tokens': has type string, wanted an array of string"},
    {"tiny-llama", "u32s:tokenizer.ggml.tokens,1,2", "key 'tokenizer.ggml.tokens': is an array of u32, wanted an array of string"},
};
// clang-format on

TestSuite(models_hostile, .init = make_dir, .fini = remove_dir);

Test(models_hostile, refuses_what_the_whole_cannot_be)
{
    check_refusals(whole_cases, COUNT_OF(whole_cases));
}

Test(models_hostile, refuses_heads_and_widths_that_do_not_fit)
{
    check_refusals(head_cases, COUNT_OF(head_cases));
}

Test(models_hostile, refuses_numbers_out_of_range)
{
    check_refusals(number_cases, COUNT_OF(number_cases));
}

// Golden models that are not beside every checkout.
static bool has(const char *base)
{
    char path[512], file[64];
    snprintf(file, sizeof file, "arch/%s.gguf", base);
    if (golden_path(file, path))
        return true;
    snprintf(file, sizeof file, "more/%s.gguf", base);
    return golden_path(file, path);
}

static void check_refusals_of_those_here(const struct refusal *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (has(cases[i].base))
            check_refusal(&cases[i]);
        else
            fprintf(stderr, "skipped: %s is not here (QUERN_SHARED)\n", cases[i].base);
}

Test(models_hostile, refuses_experts_that_do_not_fit)
{
    check_refusals_of_those_here(expert_cases, COUNT_OF(expert_cases));
}

Test(models_hostile, refuses_what_a_family_does_not_do)
{
    check_refusals_of_those_here(family_cases, COUNT_OF(family_cases));
}

Test(models_hostile, refuses_tensors_that_do_not_fit)
{
    check_refusals(tensor_cases, COUNT_OF(tensor_cases));
}

Test(models_hostile, refuses_rows_unlike_the_vocabulary)
{
    check_refusals(vocabulary_cases, COUNT_OF(vocabulary_cases));
}

// ---- What must not be refused

enum { VOCAB = 64 };

// Builds, and runs two tokens on the plain-C machine; false with the error of what failed.
static bool builds_and_runs(const struct gguf *g, float logits[2 * VOCAB], struct error *err)
{
    struct graph *graph;
    struct arch_info info;
    if (arch_build(g, &(struct arch_options){0}, &graph, &info, err) != 0)
        return false;
    cr_assert_leq(info.n_vocab, VOCAB);
    cr_assert_leq(graph->arena.total, (size_t)1 << 20, "a graph of %d nodes took %zu bytes", graph->n_nodes,
                  graph->arena.total);
    struct machine *m;
    cr_assert_eq(machine_open_ref(&m, &(struct machine_options){.exact = true}, err), 0, "%s", err->text);
    int32_t ids[2] = {0, info.n_vocab - 1};
    struct logits two = {2, info.n_vocab, ids, NULL};
    bool good = golden_run(m, graph, &two, 2, logits, err) == 0;
    m->v->close(m);
    graph_free(graph);
    return good;
}

Test(models_hostile, accepts_what_is_odd_but_sound)
{
    static const struct {
        const char *base, *edits;
    } cases[] = {
        {"tiny-llama", "u32:llama.context_length,4294967295"}, // nothing is allocated by it
        {"tiny-llama", "strs:tokenizer.ggml.tokens,64"},
        {"tiny-llama", "u64:llama.embedding_length,32"},
        {"tiny-llama", "u32s:llama.attention.head_count,4,4"},
        {"tiny-llama", "no:llama.rope.freq_base"},
        {"tiny-llama", "drop:output.weight"},     // then it is tied
        {"tiny-llama", "drop:rope_freqs.weight"}, // then nothing is divided
        {"tiny-llama",
         "f32:llama.rope.scaling.factor,0 str:llama.rope.scaling.type,none"}, // 0: saved by writers for "none"
        {"tiny-llama", "u32:llama.attention.sliding_window,0 f32:llama.logit_scale,nan"}, // no keys of this family
        {"tiny-qwen2", "drop:blk.0.attn_q.bias"},
        {"tiny-phi3-long", "drop:rope_factors_long.weight"},
        {"tiny-llama-yarn", "f32:llama.rope.freq_base,1"}, // log(base) is 0
        {"tiny-llama-yarn", "u32:llama.rope.scaling.original_context_length,4294967295"},
        {"tiny-gemma2", "u32:gemma2.attention.sliding_window,2147483647"},
        {"tiny-gemma2", "no:gemma2.attention.sliding_window no:gemma2.attn_logit_softcapping"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct gguf *base = open_base(cases[i].base);
        struct error err = {0};
        struct gguf *g = open_edited(base, cases[i].edits, &err);
        cr_assert_not_null(g, "%s", err.text);
        float logits[2 * VOCAB];
        cr_expect(builds_and_runs(g, logits, &err), "%s: %s: %s", cases[i].base, cases[i].edits, err.text);
        gguf_close(g);
        gguf_close(base);
    }
}

// Golden files hold some keys and tensors that llama.cpp ignores and quern refuses or obeys, among them limits so far off
// that they limit nothing. Without these the logits must be the same. And a family that computes as another one does is
// given that one's model.
static void check_edited(struct machine *m, const struct gguf *g, const struct logits *want, double bound)
{
    struct graph *graph;
    struct arch_info info;
    struct error err = {0};
    const size_t n = (size_t)want->n_tokens * (size_t)want->n_vocab;
    float *got = malloc(n * sizeof *got);
    cr_assert_not_null(got);
    cr_assert_eq(arch_build(g, &(struct arch_options){0}, &graph, &info, &err), 0, "%s", err.text);
    cr_assert_eq(golden_run(m, graph, want, want->n_tokens, got, &err), 0, "%s", err.text);
    double error = nmse(got, want->values, n);
    cr_expect_leq(error, bound, "%s on %s: NMSE %.3g", info.name, m->v->name, error);
    graph_free(graph);
    free(got);
}

static void check_golden_edited(const char *base, const char *edits, double bound)
{
    char path[512];
    if (!golden_path(base, path)) {
        fprintf(stderr, "skipped: %s is not here (QUERN_SHARED)\n", base);
        return;
    }
    struct gguf *g;
    struct machine *ref, *cpu;
    const struct machine_options one = {.exact = true}, two = {.exact = true, .n_threads = 2};
    struct error err = {0};
    struct logits want = logits_read(path);
    cr_assert_eq(gguf_open(&g, path, 0, &err), 0, "%s", err.text);
    struct gguf *edited = open_edited(g, edits, &err);
    cr_assert_not_null(edited, "%s: %s: %s", base, edits, err.text);
    cr_assert_eq(machine_open_ref(&ref, &one, &err), 0, "%s", err.text);
    cr_assert_eq(machine_open_cpu(&cpu, &two, &err), 0, "%s", err.text);
    check_edited(ref, edited, &want, bound);
    check_edited(cpu, edited, &want, bound);
    ref->v->close(ref);
    cpu->v->close(cpu);
    gguf_close(edited);
    gguf_close(g);
    logits_free(&want);
}

Test(models_hostile, layers_that_predict_further_tokens_are_left_out)
{
    char path[512];
    if (!golden_path("arch/glm4moe-moe.gguf", path))
        cr_skip_test("no golden data: set QUERN_SHARED");
    struct gguf *base = open_base("glm4moe-moe");
    struct error err = {0};
    struct gguf *g = open_edited(base, "u32:glm4moe.nextn_predict_layers,1", &err);
    struct graph *graph;
    struct arch_info info;
    cr_assert_eq(arch_build(g, &(struct arch_options){0}, &graph, &info, &err), 0, "%s", err.text);
    cr_expect(info.n_layer == 1 && info.n_layer_unused == 1 && graph->n_kv == 1);
    graph_free(graph);
    gguf_close(g);
    gguf_close(base);
}

Test(models_hostile, golden_models_without_what_llama_cpp_ignores)
{
    check_golden_edited("arch/olmo-dense.gguf", "f32:olmo.attention.clamp_kqv,0", 1e-12);
    check_golden_edited("arch/cohere2-dense.gguf", "bools:cohere2.attention.sliding_window_pattern,1,0", 1e-12);
    check_golden_edited("arch/internlm2-dense.gguf",
                        "str:general.architecture,ernie4_5 u32:ernie4_5.block_count,2 "
                        "u32:ernie4_5.embedding_length,64 u32:ernie4_5.context_length,128 "
                        "u32:ernie4_5.attention.head_count,4 u32:ernie4_5.attention.head_count_kv,2 "
                        "u32:ernie4_5.feed_forward_length,96 f32:ernie4_5.attention.layer_norm_rms_epsilon,1e-5",
                        1e-12);
    check_golden_edited("arch/tiny-deepseek2-growth.gguf",
                        "str:general.architecture,mistral4 u32:mistral4.context_length,256 "
                        "u32:mistral4.embedding_length,32 u32:mistral4.block_count,3 "
                        "u32:mistral4.feed_forward_length,48 u32:mistral4.attention.head_count,3 "
                        "u32:mistral4.attention.head_count_kv,1 u32:mistral4.attention.kv_lora_rank,64 "
                        "u32:mistral4.rope.dimension_count,32 u32:mistral4.leading_dense_block_count,1 "
                        "u32:mistral4.expert_feed_forward_length,16 u32:mistral4.expert_count,8 "
                        "u32:mistral4.expert_used_count,3 u32:mistral4.expert_shared_count,2 "
                        "u32:mistral4.expert_gating_func,2 u32:mistral4.expert_group_count,4 "
                        "u32:mistral4.expert_group_used_count,2 u32:mistral4.attention.q_lora_rank,24 "
                        "u32:mistral4.attention.key_length,96 u32:mistral4.attention.value_length,64 "
                        "u32:mistral4.attention.key_length_mla,64 u32:mistral4.attention.value_length_mla,32 "
                        "u32:mistral4.attention.temperature_length,7 "
                        "f32:mistral4.attention.layer_norm_rms_epsilon,1e-3 f32:mistral4.rope.freq_base,500 "
                        "f32:mistral4.expert_weights_scale,2.5 f32:mistral4.attention.temperature_scale,0.3 "
                        "bool:mistral4.expert_weights_norm,1",
                        1e-12);
}

// Shapes can be had from a file whose tensors are not mapped; factors of rope cannot.
Test(models_hostile, needs_the_data_of_few_tensors_to_build_a_graph)
{
    static const struct {
        const char *base;
        bool builds;
    } cases[] = {{"arch/tiny-qwen3.gguf", true}, {"arch/tiny-llama.gguf", false}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char path[512];
        struct gguf *g;
        struct graph *graph;
        struct arch_info info;
        struct error err = {0};
        cr_assert(golden_path(cases[i].base, path));
        cr_assert_eq(gguf_open(&g, path, GGUF_METADATA_ONLY, &err), 0, "%s", err.text);
        int status = arch_build(g, &(struct arch_options){0}, &graph, &info, &err);
        cr_expect_eq(status == 0, cases[i].builds, "%s: %s", cases[i].base, err.text);
        if (status != 0)
            cr_expect(strstr(err.text, "tensor 'rope_freqs.weight': its values are needed, but the file was opened "
                                       "without them"),
                      "%s", err.text);
        graph_free(graph);
        gguf_close(g);
    }
}

// An alignment of 1 is legal: after a tensor of three bytes, all others lie anywhere.
Test(models_hostile, runs_a_file_without_alignment_to_the_same_bits)
{
    struct gguf *base = open_base("tiny-llama");
    struct error err = {0};
    struct gguf *even = open_edited(base, "drop:rope_freqs.weight", &err);
    struct gguf *odd = open_edited(base,
                                   "u32:general.alignment,1 dtype:rope_freqs.weight,I8 shape:rope_freqs.weight,3 "
                                   "name:rope_freqs.weight,three.bytes",
                                   &err);
    cr_assert(even && odd, "%s", err.text);
    cr_assert_neq((uintptr_t)gguf_find_tensor(odd, "output_norm.weight")->data % 4, 0u, "a vector must lie unaligned");
    float want[2 * VOCAB], got[2 * VOCAB];
    cr_assert(builds_and_runs(even, want, &err), "%s", err.text);
    cr_assert(builds_and_runs(odd, got, &err), "%s", err.text);
    cr_expect_eq(memcmp(want, got, sizeof want), 0);
    gguf_close(odd);
    gguf_close(even);
    gguf_close(base);
}

// ---- Sweeps

static void sweep(const struct gguf *base, const char *edits, int *built, int *refused)
{
    struct error err = {0};
    struct gguf *g = open_edited(base, edits, &err);
    float logits[2 * VOCAB];
    if (g && builds_and_runs(g, logits, &err)) {
        ++*built;
    } else {
        ++*refused;
        cr_expect(err.code == E_MODEL || err.code == E_USAGE || err.code == E_MEMORY, "%s: code %d: %s", edits,
                  (int)err.code, err.text);
        cr_expect(err.text[0], "%s: an error without words", edits);
    }
    gguf_close(g);
}

static const char *const bases[] = {
    "tiny-llama", "tiny-llama-moe",  "tiny-llama-yarn",   "tiny-qwen2",    "tiny-qwen3moe",   "tiny-gemma2",
    "tiny-gpt2",  "tiny-phi3-long",  "tiny-gptneox",      "tiny-stablelm", "tiny-gemma4-moe", "tiny-gemma4-extra",
    "tiny-mpt",   "tiny-minicpm3",   "tiny-smallthinker", "tiny-hy-v3",    "tiny-grovemoe",   "tiny-apertus",
    "tiny-afmoe", "tiny-exaone-moe", "tiny-cohere2moe",   "tiny-gemma3n",  "tiny-plm",        "tiny-plamo3",
    "tiny-mimo2", "tiny-mellum",     "tiny-step35",       "tiny-laguna",   "tiny-kimi-linear"};

Test(models_hostile, any_value_of_any_key_gives_a_model_or_an_error, .timeout = 240)
{
    static const char *const values[] = {"u32:%s,0",
                                         "u32:%s,1",
                                         "u32:%s,3",
                                         "i32:%s,-1",
                                         "u32:%s,2147483647",
                                         "u32:%s,4294967295",
                                         "f32:%s,nan",
                                         "f32:%s,inf",
                                         "f32:%s,-1",
                                         "f32:%s,1e-44",
                                         "f32:%s,3e38",
                                         "str:%s,yarn",
                                         "u32s:%s,1,2",
                                         "strs:%s,2",
                                         "no:%s",
                                         "bool:%s,1",
                                         "u64:%s,9223372036854775807"};
    int built = 0, refused = 0;
    for (size_t b = 0; b < COUNT_OF(bases); b++) {
        struct gguf *base = open_base(bases[b]);
        for (size_t k = 0; k < gguf_n_kv(base); k++)
            for (size_t v = 0; v < COUNT_OF(values); v++) {
                char key[128], edits[256], *at = strstr(values[v], "%s") - values[v] + edits;
                snprintf(key, sizeof key, "%.*s", STR_ARG(gguf_kv_at(base, k)->key));
                snprintf(edits, sizeof edits, "%s", values[v]);
                snprintf(at, sizeof edits - (size_t)(at - edits), "%s%s", key, strstr(values[v], "%s") + 2);
                sweep(base, edits, &built, &refused);
            }
        gguf_close(base);
    }
    cr_expect(built > 100 && refused > 500, "%d built, %d refused", built, refused);
}

Test(models_hostile, any_tensor_lost_or_changed_gives_a_model_or_an_error, .timeout = 240)
{
    static const char *const edits[] = {"drop:%s",         "dtype:%s,I64",   "dtype:%s,BF16",
                                        "shape:%s,32",     "shape:%s,32,32", "shape:%s,1,1,1,1",
                                        "name:%s,blk.0.x", "fill:%s,nan",    "fill:%s,1e38"};
    int built = 0, refused = 0;
    for (size_t b = 0; b < COUNT_OF(bases); b++) {
        struct gguf *base = open_base(bases[b]);
        for (size_t t = 0; t < gguf_n_tensors(base); t++)
            for (size_t v = 0; v < COUNT_OF(edits); v++) {
                char text[160];
                const char *hole = strstr(edits[v], "%s");
                snprintf(text, sizeof text, "%.*s%.*s%s", (int)(hole - edits[v]), edits[v],
                         STR_ARG(gguf_tensor_at(base, t)->name), hole + 2);
                sweep(base, text, &built, &refused);
            }
        gguf_close(base);
    }
    cr_expect(built > 100 && refused > 500, "%d built, %d refused", built, refused);
}
