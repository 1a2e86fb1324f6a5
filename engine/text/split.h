// Pre-tokenizers: they cut text into words. BPE merges never cross the boundaries of words.
//
// Models define their pre-tokenizer by a regular expression. Here each one is a hand-written matcher that looks at
// every character a bounded number of times, so no text is slow. The key tokenizer.ggml.pre names the pre-tokenizer
// of a model. All functions are pure; any thread may call them.
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
    SPLIT_LINES, // runs of newlines, and the text between them; the text is escaped like SPM text, not byte-encoded
    SPLIT_FAMILY_COUNT
};

// Settings that follow from the name of a pre-tokenizer unless the file states them.
enum pre_flags {
    PRE_IGNORE_MERGES = 1, // a word that is a token becomes that token, whatever the merges give
    PRE_ADD_BOS = 2,
    PRE_FORCE_BOS = 4, // adds a bos even if the file says not to
    PRE_CLEAN_SPACES = 8,
    PRE_ESCAPE = 16, // spaces are spelled U+2581, and bytes <0xNN>, as in SPM
};

struct pretokenizer {
    const char *name; // the value of tokenizer.ggml.pre
    enum split_family family;
    unsigned flags;
};

// NULL if the name is unknown.
const struct pretokenizer *pretokenizer_find(struct str name);

// Calls emit(ctx, word, len) for each word of the text from left to right. Words are not empty; concatenated they are
// the text. Stops at the first call that does not return 0, and returns its result.
typedef int split_word_fn(void *ctx, const char *word, size_t len);
int split_text(enum split_family family, struct str text, split_word_fn *emit, void *ctx);

#endif
