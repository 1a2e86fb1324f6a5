// The stages of each family, and the family that each name stands for.
#include "engine/text/split.h"

#include "engine/text/split_stage.h"

enum { MAX_STAGES = 6 };

// clang-format off
static stage_fn *const families[SPLIT_FAMILY_COUNT][MAX_STAGES + 1] = {
    [SPLIT_DEFAULT]        = {split_by_signs_default, split_by_gpt2, split_by_numbers, split_by_digits3},
    [SPLIT_GPT2]           = {split_by_gpt2},
    [SPLIT_LLAMA3]         = {split_by_llama3},
    [SPLIT_QWEN2]          = {split_by_qwen2},
    [SPLIT_QWEN35]         = {split_by_qwen35},
    [SPLIT_GPT4O]          = {split_by_gpt4o},
    [SPLIT_TEKKEN]         = {split_by_tekken},
    [SPLIT_KIMI_K2]        = {split_by_kimi_k2},
    [SPLIT_DEEPSEEK_V3]    = {split_by_numbers3, split_by_cjk_kana, split_by_deepseek_v3},
    [SPLIT_DEEPSEEK_LLM]   = {split_by_newline, split_by_deepseek_letter, split_by_deepseek_sign,
                              split_by_trailing_spaces, split_by_deepseek_cjk, split_by_numbers},
    [SPLIT_DEEPSEEK_CODER] = {split_by_newline, split_by_letter, split_by_punct, split_by_deepseek_cjk,
                              split_by_number},
    [SPLIT_STARCODER]      = {split_by_number, split_by_gpt2},
    [SPLIT_FALCON]         = {split_by_signs_falcon, split_by_gpt2, split_by_digits3},
    [SPLIT_BLOOM]          = {split_by_bloom},
    [SPLIT_VIKING]         = {split_by_bloom, split_by_number},
    [SPLIT_SEED_CODER]     = {split_by_seed_coder},
    [SPLIT_EXAONE_MOE]     = {split_by_exaone_moe},
    [SPLIT_MINICPM5]       = {split_by_numbers3, split_by_minicpm5},
    [SPLIT_JAIS2]          = {split_by_llama3, split_by_powers_of_spaces},
    [SPLIT_LAGUNA]         = {split_by_lines, split_by_qwen2},
    [SPLIT_CHAMELEON]      = {split_by_chameleon_image, split_by_chameleon_space, split_by_number, split_by_sign,
                              split_by_gpt2},
    [SPLIT_SUPERBPE]       = {split_by_numbers, split_by_digit_thirds},
    [SPLIT_TINY_AYA]       = {split_by_bounded_thirds, split_by_gpt4o},
    [SPLIT_AFMOE]          = {split_by_number_thirds, split_by_unspaced, split_by_deepseek_v3},
    [SPLIT_YOUTU]          = {split_by_east, split_by_youtu},
    [SPLIT_LINES]          = {split_by_lines},
};
// clang-format on

int split_text(enum split_family family, struct str text, split_word_fn *emit, void *ctx)
{
    struct split s = {families[family], emit, ctx};
    return text.len == 0 ? 0 : families[family][0](&s, 0, text.data, text.data + text.len);
}

const struct pretokenizer *pretokenizer_find(struct str name)
{
#define PRE(name, family, flags) {name, SPLIT_##family, flags},
    static const struct pretokenizer table[] = {
#include "engine/text/pretokenizers.def"
    };
#undef PRE
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        if (str_equal_z(name, table[i].name)) {
            return &table[i];
        }
    }
    return NULL;
}
