// Finds the tokens that begin, end and separate texts: by the ids in the file, by defaults of the algorithm, and by
// name.
#include <inttypes.h>

#include "engine/text/vocab.h"

#define BAR "\xEF\xBD\x9C" // U+FF5C, used in DeepSeek's tokens
#define DEEPSEEK_END "<" BAR "end" WORD_MARK "of" WORD_MARK "sentence" BAR ">"

// Keys in the file. Of several keys for one role, the later ones are older names; they count only if the first is
// missing.
static const struct {
    const char *key;
    enum token_role role;
} role_keys[] = {
    // clang-format off
    {"tokenizer.ggml.bos_token_id", TOKEN_BOS},         {"tokenizer.ggml.cls_token_id", TOKEN_BOS},
    {"tokenizer.ggml.eos_token_id", TOKEN_EOS},         {"tokenizer.ggml.eot_token_id", TOKEN_EOT},
    {"tokenizer.ggml.eom_token_id", TOKEN_EOM},         {"tokenizer.ggml.unknown_token_id", TOKEN_UNK},
    {"tokenizer.ggml.seperator_token_id", TOKEN_SEP},   {"tokenizer.ggml.separator_token_id", TOKEN_SEP},
    {"tokenizer.ggml.padding_token_id", TOKEN_PAD},     {"tokenizer.ggml.mask_token_id", TOKEN_MASK},
    {"tokenizer.ggml.fim_pre_token_id", TOKEN_FIM_PRE}, {"tokenizer.ggml.prefix_token_id", TOKEN_FIM_PRE},
    {"tokenizer.ggml.fim_suf_token_id", TOKEN_FIM_SUF}, {"tokenizer.ggml.suffix_token_id", TOKEN_FIM_SUF},
    {"tokenizer.ggml.fim_mid_token_id", TOKEN_FIM_MID}, {"tokenizer.ggml.middle_token_id", TOKEN_FIM_MID},
    {"tokenizer.ggml.fim_pad_token_id", TOKEN_FIM_PAD}, {"tokenizer.ggml.fim_rep_token_id", TOKEN_FIM_REP},
    {"tokenizer.ggml.fim_sep_token_id", TOKEN_FIM_SEP},
    // clang-format on
};

// Names of tokens that determine a role for which the file gives no id. The first name that exists counts.
static const struct {
    const char *text;
    enum token_role role;
} role_names[] = {
    // clang-format off
    {"<|eot_id|>", TOKEN_EOT}, {"<|im_end|>", TOKEN_EOT}, {"<|end|>", TOKEN_EOT}, {"<end_of_turn>", TOKEN_EOT},
    {"<|endoftext|>", TOKEN_EOT}, {"<|end_of_text|>", TOKEN_EOT}, {"<EOT>", TOKEN_EOT}, {"_<EOT>", TOKEN_EOT},
    {"[EOT]", TOKEN_EOT}, {DEEPSEEK_END, TOKEN_EOT},
    {"<end_of_utterance>", TOKEN_EOT},
    {"<|eom_id|>", TOKEN_EOM},
    {"<|fim_prefix|>", TOKEN_FIM_PRE}, {"<fim-prefix>", TOKEN_FIM_PRE}, {"<fim_prefix>", TOKEN_FIM_PRE},
    {"<" BAR "fim" WORD_MARK "begin" BAR ">", TOKEN_FIM_PRE}, {"<PRE>", TOKEN_FIM_PRE},
    {WORD_MARK "<PRE>", TOKEN_FIM_PRE}, {"<|code_prefix|>", TOKEN_FIM_PRE}, {"<|prefix|>", TOKEN_FIM_PRE},
    {"<|fim_suffix|>", TOKEN_FIM_SUF}, {"<fim-suffix>", TOKEN_FIM_SUF}, {"<fim_suffix>", TOKEN_FIM_SUF},
    {"<" BAR "fim" WORD_MARK "hole" BAR ">", TOKEN_FIM_SUF}, {"<SUF>", TOKEN_FIM_SUF},
    {WORD_MARK "<SUF>", TOKEN_FIM_SUF}, {"<|code_suffix|>", TOKEN_FIM_SUF}, {"<|suffix|>", TOKEN_FIM_SUF},
    {"<|fim_middle|>", TOKEN_FIM_MID}, {"<fim-middle>", TOKEN_FIM_MID}, {"<fim_middle>", TOKEN_FIM_MID},
    {"<" BAR "fim" WORD_MARK "end" BAR ">", TOKEN_FIM_MID}, {"<MID>", TOKEN_FIM_MID},
    {WORD_MARK "<MID>", TOKEN_FIM_MID}, {"<|code_middle|>", TOKEN_FIM_MID}, {"<|middle|>", TOKEN_FIM_MID},
    {"<|fim_pad|>", TOKEN_FIM_PAD}, {"<fim-pad>", TOKEN_FIM_PAD}, {"<fim_pad>", TOKEN_FIM_PAD},
    {"<PAD>", TOKEN_FIM_PAD}, {"[PAD]", TOKEN_FIM_PAD},
    {"<|fim_repo|>", TOKEN_FIM_REP}, {"<|repo_name|>", TOKEN_FIM_REP}, {"<fim-repo>", TOKEN_FIM_REP},
    {"<REPO>", TOKEN_FIM_REP}, {"<reponame>", TOKEN_FIM_REP},
    {"<|file_sep|>", TOKEN_FIM_SEP},
    // clang-format on
};

// Names of tokens that end an answer.
static const char *const end_names[] = {
    // clang-format off
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    DEEPSEEK_END, "[e~[",
    // clang-format on
};

static int32_t find(const struct tokenizer *t, const char *text)
{
    return token_map_find(&t->map, text, strlen(text));
}

// The roles of SPM, WPM and UGM files that do not state them.
static void default_roles(struct tokenizer *t)
{
    for (int r = 0; r < TOKEN_ROLE_COUNT; r++) {
        t->role[r] = -1;
    }
    if (t->kind == TOKENIZER_SPM) {
        t->role[TOKEN_UNK] = 0;
        t->role[TOKEN_BOS] = 1;
        t->role[TOKEN_EOS] = 2;
    } else if (t->kind == TOKENIZER_WPM) {
        t->role[TOKEN_PAD] = 0;
        t->role[TOKEN_UNK] = 100;
        t->role[TOKEN_BOS] = 101;
        t->role[TOKEN_SEP] = 102;
        t->role[TOKEN_MASK] = 103;
    } else if (t->kind == TOKENIZER_PLAMO2) {
        t->role[TOKEN_UNK] = 0;
        t->role[TOKEN_BOS] = 1;
        t->role[TOKEN_EOS] = 2;
        t->role[TOKEN_PAD] = 3;
    } else if (t->kind == TOKENIZER_UGM) {
        t->role[TOKEN_PAD] = 0;
        t->role[TOKEN_EOS] = 1;
        t->role[TOKEN_UNK] = 2;
    }
    for (int r = 0; r < TOKEN_ROLE_COUNT; r++) {
        t->role[r] = t->role[r] < t->text.n ? t->role[r] : -1;
    }
}

// A value with all bits set means "none"; converters write -1 in that way.
static int read_role(const struct tokenizer *t, const struct gguf *g, const char *key, int32_t *id, struct error *err)
{
    int64_t v = 0;
    int found = gguf_get_i64(g, key, &v, err);
    if (found != 1) {
        return found;
    }
    if (v == -1 || v == UINT32_MAX) {
        *id = -1;
        return 0;
    }
    if (v < 0 || v >= t->text.n) {
        return vocab_fail(g, key, err, "%" PRId64 " is not one of %d tokens", v, t->text.n);
    }
    *id = (int32_t)v;
    return 1;
}

static int read_roles(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    bool set[TOKEN_ROLE_COUNT] = {false};
    for (size_t i = 0; i < COUNT_OF(role_keys); i++) {
        enum token_role role = role_keys[i].role;
        int32_t id = t->role[role];
        int found = read_role(t, g, role_keys[i].key, &id, err);
        if (found < 0) {
            return -1;
        }
        if (!set[role]) {
            t->role[role] = id;
            set[role] = found == 1;
        }
    }
    return 0;
}

// A token that gets a role by its name becomes a control token, whatever the file says.
static void name_roles(struct tokenizer *t)
{
    for (size_t i = 0; i < COUNT_OF(role_names); i++) {
        int32_t *role = &t->role[role_names[i].role];
        int32_t id = *role < 0 ? find(t, role_names[i].text) : -1;
        if (id >= 0) {
            *role = id;
            t->attr[id] = TOKEN_CONTROL;
        }
    }
}

static int32_t unmark_end(struct tokenizer *t, const char *text)
{
    int32_t id = find(t, text);
    if (id >= 0) {
        t->flags[id] &= (uint8_t)~TOKEN_IS_END;
    }
    return id;
}

static void mark_ends(struct tokenizer *t)
{
    static const enum token_role ends[] = {TOKEN_EOS,     TOKEN_EOT,     TOKEN_EOM,
                                           TOKEN_FIM_PAD, TOKEN_FIM_REP, TOKEN_FIM_SEP};
    for (size_t i = 0; i < COUNT_OF(end_names); i++) {
        int32_t id = find(t, end_names[i]);
        if (id >= 0) {
            t->flags[id] |= TOKEN_IS_END;
            t->attr[id] = TOKEN_CONTROL;
        }
    }
    for (size_t i = 0; i < COUNT_OF(ends); i++) {
        if (t->role[ends[i]] >= 0) {
            t->flags[t->role[ends[i]]] |= TOKEN_IS_END;
        }
    }
    // In gpt-oss <|end|> ends a message but not the turn, and in Gemma 4 </s> is a word of HTML like others.
    bool call = find(t, "<|call|>") >= 0 || find(t, "<|calls|>") >= 0;
    if (call && (find(t, "<|return|>") >= 0 || find(t, "<|flush|>") >= 0)) {
        unmark_end(t, "<|end|>");
    }
    if (find(t, "<|tool_response>") >= 0) {
        int32_t id = unmark_end(t, "</s>");
        if (id >= 0) {
            t->attr[id] = TOKEN_NORMAL;
        }
    }
}

// Reads which tokens and spaces are added around a text, and how text is normalized.
static int load_adds(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    unsigned pre = t->kind == TOKENIZER_BPE ? t->pre->flags : 0;
    t->add_bos = t->kind == TOKENIZER_SPM || t->kind == TOKENIZER_WPM || (pre & PRE_ADD_BOS) != 0;
    t->add_eos = t->kind == TOKENIZER_UGM;
    t->add_space_prefix = t->kind == TOKENIZER_SPM;
    t->clean_spaces = t->kind == TOKENIZER_WPM || (pre & PRE_CLEAN_SPACES) != 0;
    t->lowercase = true;
    if (gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->add_bos, err) < 0 ||
        gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &t->add_eos, err) < 0 ||
        gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &t->add_space_prefix, err) < 0 ||
        gguf_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &t->merge_spaces, err) < 0 ||
        gguf_get_bool(g, "tokenizer.ggml.normalizer.lowercase", &t->lowercase, err) < 0) {
        return -1;
    }
    t->strip_accents = t->lowercase;
    if (gguf_get_bool(g, "tokenizer.ggml.normalizer.strip_accents", &t->strip_accents, err) < 0) {
        return -1;
    }
    t->add_bos |= (pre & PRE_FORCE_BOS) != 0 || t->kind == TOKENIZER_WPM; // BERT texts always have both
    t->add_eos |= t->kind == TOKENIZER_WPM;
    t->add_space_prefix &= t->kind == TOKENIZER_SPM || t->kind == TOKENIZER_UGM;
    return 0;
}

int vocab_load_roles(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    default_roles(t);
    if (read_roles(t, g, err) != 0 || load_adds(t, g, err) != 0) {
        return -1;
    }
    name_roles(t);
    mark_ends(t);
    return 0;
}
