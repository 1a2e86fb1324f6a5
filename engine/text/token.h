// The words of all tokenizers: kinds of vocabularies, attributes and roles of tokens, and lists of token ids.
//
// Ownership: token_list_free frees a list. Threads: a list is used by one thread at a time.
#ifndef QUERN_TOKEN_H
#define QUERN_TOKEN_H

#include "gguf/base.h"

enum tokenizer_kind {
    TOKENIZER_NONE,
    TOKENIZER_BPE,
    TOKENIZER_SPM,
    TOKENIZER_WPM,
    TOKENIZER_UGM,
    TOKENIZER_PLAMO2,
    TOKENIZER_RWKV
};

enum token_attr { TOKEN_NORMAL, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE };

enum token_role {
    // clang-format off
    TOKEN_BOS, TOKEN_EOS, TOKEN_EOT, TOKEN_EOM, TOKEN_UNK, TOKEN_SEP, TOKEN_PAD, TOKEN_MASK, TOKEN_FIM_PRE,
    TOKEN_FIM_SUF, TOKEN_FIM_MID, TOKEN_FIM_PAD, TOKEN_FIM_REP, TOKEN_FIM_SEP,
    // clang-format on
    TOKEN_ROLE_COUNT
};

// A growing list of token ids. Zero-initialise it.
struct token_list {
    int32_t *ids;
    size_t n, cap;
};
// Makes room for n more ids in the list. E_MEMORY.
int token_list_reserve(struct token_list *list, size_t n, struct error *err);
int token_list_push(struct token_list *list, int32_t id, struct error *err);
void token_list_free(struct token_list *list);

#endif
