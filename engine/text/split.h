// Pre-tokenizers: cutting text into the words that BPE merges never cross.
//
// Models were trained behind regular expressions. Here each is a hand-written matcher that looks at a character a
// bounded number of times, so that no text makes it slow. Which one a model wants is said by tokenizer.ggml.pre. All
// functions are pure; any thread may call them.
#ifndef QUERN_SPLIT_H
#define QUERN_SPLIT_H

#include "gguf/base.h"

enum split_family {
    SPLIT_DEFAULT,
    SPLIT_GPT2,
    SPLIT_LLAMA3,
    SPLIT_QWEN2,
    SPLIT_QWEN35,
    SPLIT_GPT4O,
    SPLIT_TEKKEN,
    SPLIT_KIMI_K2,
    SPLIT_DEEPSEEK_V3,
    SPLIT_DEEPSEEK_LLM,
    SPLIT_DEEPSEEK_CODER,
    SPLIT_STARCODER,
    SPLIT_FALCON,
    SPLIT_BLOOM,
    SPLIT_VIKING,
    SPLIT_SEED_CODER,
    SPLIT_EXAONE_MOE,
    SPLIT_MINICPM5,
    SPLIT_JAIS2,
    SPLIT_LAGUNA,
    SPLIT_CHAMELEON,
    SPLIT_SUPERBPE,
    SPLIT_TINY_AYA,
    SPLIT_AFMOE,
    SPLIT_YOUTU,
    SPLIT_LINES, // runs of newlines, and what is between them; the text is not byte-encoded but escaped like SPM's
    SPLIT_FAMILY_COUNT
};

// What else the name of a pre-tokenizer decides, where the file does not say it.
enum pre_flags {
    PRE_IGNORE_MERGES = 1, // a word that is a token is that token, whatever the merges say
    PRE_ADD_BOS = 2,
    PRE_FORCE_BOS = 4, // a bos is added even where the file denies it
    PRE_CLEAN_SPACES = 8,
    PRE_ESCAPE = 16, // spaces become U+2581 and bytes are <0xNN>, as in SPM
};

struct pretokenizer {
    const char *name; // as in tokenizer.ggml.pre
    enum split_family family;
    unsigned flags;
};

// NULL when the name is unknown.
const struct pretokenizer *pretokenizer_find(struct str name);

// Calls emit(ctx, word, len) for each word of the text, from left to right; the words are not empty and together are
// the text. Stops at the first call that does not return 0, and returns what it returned.
typedef int split_word_fn(void *ctx, const char *word, size_t len);
int split_text(enum split_family family, struct str text, split_word_fn *emit, void *ctx);

#endif
