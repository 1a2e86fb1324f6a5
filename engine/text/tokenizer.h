// Text to tokens and back, as the vocabulary of a GGUF file defines it: byte-pair encoding (BPE), SentencePiece (SPM)
// and WordPiece (WPM), and the texts of single tokens.
//
// Ownership: a tokenizer copies what it needs; the file may be closed after tokenizer_load. Views that it hands out
// live until tokenizer_free. Token lists belong to the caller. Threads: read-only after tokenizer_load; any number of
// threads may encode and decode at once, each with its own list.
#ifndef QUERN_TOKENIZER_H
#define QUERN_TOKENIZER_H

#include "gguf/gguf.h"

struct tokenizer;

enum tokenizer_kind { TOKENIZER_NONE, TOKENIZER_BPE, TOKENIZER_SPM, TOKENIZER_WPM };

enum tokenizer_load_flags {
    TOKENIZER_ANY_PRE = 1, // an unknown tokenizer.ggml.pre is read as "default" instead of being refused
};

// Loads the vocabulary of a model. A file that has none (tokenizer.ggml.model is "none" or "no_vocab", or is missing
// along with the tokens) loads as TOKENIZER_NONE, which refuses to encode. E_MODEL names the key and, where it has one,
// the index; E_MEMORY.
int tokenizer_load(struct tokenizer **out, const struct gguf *g, unsigned flags, struct error *err);
void tokenizer_free(struct tokenizer *t); // NULL is fine

enum tokenizer_kind tokenizer_kind(const struct tokenizer *t);
int32_t tokenizer_n_vocab(const struct tokenizer *t);
struct str tokenizer_pre(const struct tokenizer *t);    // the pre-tokenizer's name in the file; empty for SPM and WPM
bool tokenizer_pre_is_known(const struct tokenizer *t); // false when TOKENIZER_ANY_PRE had to be used

// --- encoding ---

// A growing list of token ids. Zero-initialise it.
struct token_list {
    int32_t *ids;
    size_t n, cap;
};
int token_list_push(struct token_list *list, int32_t id, struct error *err);
void token_list_free(struct token_list *list);

enum tokenize_flags {
    TOKENIZE_SPECIAL = 1, // control tokens written in the text are taken as such; user-defined ones always are
    TOKENIZE_BOS = 2,     // what the file asks for around a text: bos or cls before it, eos or sep after it
};

// Appends the tokens of `text` to *list. Text that is not UTF-8 is legal: byte-level and byte-fallback vocabularies
// keep its bytes, WPM drops them. Time is linear in the text but for a logarithm on very long words. On an error
// (E_MEMORY, E_MODEL when there is no vocabulary, or it cannot spell the text) *list is as it was.
int tokenizer_encode(const struct tokenizer *t, struct str text, unsigned flags, struct token_list *list,
                     struct error *err);

// The same for text of two kinds, side by side: control tokens written in our own are taken as such, while bytes with
// marks[i] != 0 come from outside and can be no part of one, nor of a token that ends a turn. All else is as if the text
// were of one kind: words, merges and user-defined tokens reach over the border. With marks, TOKENIZE_SPECIAL is implied.
int tokenizer_encode_marked(const struct tokenizer *t, struct str text, const uint8_t *marks, unsigned flags,
                            struct token_list *list, struct error *err);

// --- single tokens ---

enum token_attr { TOKEN_NORMAL, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE };

// clang-format off
enum token_role {
    // clang-format off
    TOKEN_BOS, TOKEN_EOS, TOKEN_EOT, TOKEN_EOM, TOKEN_UNK, TOKEN_SEP, TOKEN_PAD, TOKEN_MASK, TOKEN_FIM_PRE,
    TOKEN_FIM_SUF, TOKEN_FIM_MID, TOKEN_FIM_PAD, TOKEN_FIM_REP, TOKEN_FIM_SEP,
    // clang-format on
    TOKEN_ROLE_COUNT
};
// clang-format on

// The id that has that role, -1 when there is none.
int32_t tokenizer_role(const struct tokenizer *t, enum token_role role);
// Whether TOKENIZE_BOS puts a bos (cls) before a text, an eos (sep) after it.
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_adds_eos(const struct tokenizer *t);
// Whether a model means "I am done" by this token: eos, eot, eom, and well-known names of an end of turn.
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);
enum token_attr tokenizer_attr(const struct tokenizer *t, int32_t id); // any id; out of range is TOKEN_UNUSED
// The token as it is written in the vocabulary, e.g. "Ġthe" or "▁the"; empty when id is out of range.
struct str tokenizer_text(const struct tokenizer *t, int32_t id);
// The token that is written so, -1 when there is none.
int32_t tokenizer_find(const struct tokenizer *t, struct str text);

// --- decoding ---

// The bytes that a token stands for; control and unknown tokens are empty unless `special`. They may end within a UTF-8
// sequence: only the pieces of a whole answer make valid text.
struct str tokenizer_piece(const struct tokenizer *t, int32_t id, bool special);

// The stream of pieces of one text: drops the space that encoding put in front (SPM). detokenizer_next returns a view
// like tokenizer_piece's.
struct detokenizer {
    const struct tokenizer *t;
    bool special, at_start;
};
struct detokenizer detokenizer_begin(const struct tokenizer *t, bool special);
struct str detokenizer_next(struct detokenizer *d, int32_t id);

enum detokenize_flags {
    DETOKENIZE_SPECIAL = 1, // control tokens are written out
    DETOKENIZE_CLEAN = 2,   // where the file asks for clean_spaces: " ," becomes "," and so on; loses information
};
// The text of n tokens, in a new buffer that the caller frees: *text (NUL-terminated) and *len. E_MEMORY.
int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, unsigned flags, char **text, size_t *len,
                     struct error *err);

#endif
