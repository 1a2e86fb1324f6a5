// Text to tokens and back, as the vocabulary of a GGUF file defines it: byte-pair encoding (BPE), SentencePiece (SPM)
// and WordPiece (WPM); also the texts of single tokens. Lists of tokens, attributes and roles are in token.h.
//
// Ownership: a tokenizer copies what it needs, so the file may be closed after tokenizer_load. Views that it returns
// are valid until tokenizer_free. Token lists belong to the caller.
// Threads: read-only after tokenizer_load. Any number of threads may encode and decode at once, each with its own
// list.
#ifndef QUERN_TOKENIZER_H
#define QUERN_TOKENIZER_H

#include "engine/text/token.h"
#include "gguf/gguf.h"

struct tokenizer;

enum tokenizer_load_flags {
    TOKENIZER_ANY_PRE = 1, // an unknown tokenizer.ggml.pre is treated as "default"; without this flag it is an error
};

// Loads the vocabulary of a model. A file without a vocabulary loads as TOKENIZER_NONE, which refuses to encode: its
// tokenizer.ggml.model is "none" or "no_vocab", or both that key and the tokens are missing. E_MODEL names the key
// and, if it has one, the index; E_MEMORY.
int tokenizer_load(struct tokenizer **out, const struct gguf *g, unsigned flags, struct error *err);
void tokenizer_free(struct tokenizer *t); // NULL is fine

enum tokenizer_kind tokenizer_kind(const struct tokenizer *t);
int32_t tokenizer_n_vocab(const struct tokenizer *t);
struct str tokenizer_pre(const struct tokenizer *t);    // the pre-tokenizer's name in the file; empty for SPM and WPM
bool tokenizer_pre_is_known(const struct tokenizer *t); // false if the name is unknown and TOKENIZER_ANY_PRE replaced
                                                        // it

// --- encoding ---

enum tokenize_flags {
    TOKENIZE_SPECIAL = 1, // recognizes control tokens written in the text; user-defined tokens always are
    TOKENIZE_BOS = 2,     // adds what the file prescribes around a text: bos or cls before it, eos or sep after it
};

// Appends the tokens of `text` to *list. Text that is not valid UTF-8 is allowed: byte-level and byte-fallback
// vocabularies keep its bytes, WPM drops them. The time is linear in the length of the text, times a logarithm for
// very long words. On an error (E_MEMORY; E_MODEL if there is no vocabulary or it cannot spell the text) *list is
// unchanged.
int tokenizer_encode(const struct tokenizer *t, struct str text, unsigned flags, struct token_list *list,
                     struct error *err);

// The same for text that mixes trusted and untrusted parts. Bytes with marks[i] != 0 come from outside: they cannot
// be part of a control token, nor of a token that ends a turn. Control tokens in unmarked text are recognized; with
// marks, TOKENIZE_SPECIAL is implied. Otherwise the marks change nothing: words, merges and user-defined tokens may
// cross a boundary between the parts.
int tokenizer_encode_marked(const struct tokenizer *t, struct str text, const uint8_t *marks, unsigned flags,
                            struct token_list *list, struct error *err);

// --- single tokens ---

// The id of the token with that role; -1 if there is none.
int32_t tokenizer_role(const struct tokenizer *t, enum token_role role);
// Whether TOKENIZE_BOS adds a bos (cls) before a text, and whether it adds an eos (sep) after it.
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_adds_eos(const struct tokenizer *t);
// Whether this token ends an answer: eos, eot, eom, and well-known names for the end of a turn.
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);
enum token_attr tokenizer_attr(const struct tokenizer *t, int32_t id); // any id; out of range is TOKEN_UNUSED
// The token as it is written in the vocabulary, e.g. "Ġthe" or "▁the"; empty if id is out of range.
struct str tokenizer_text(const struct tokenizer *t, int32_t id);
// The token with that spelling; -1 if there is none.
int32_t tokenizer_find(const struct tokenizer *t, struct str text);

// --- decoding ---

// The bytes that a token decodes to. Control and unknown tokens are empty unless `special`. A piece may end inside a
// UTF-8 sequence; only the pieces of a whole answer form valid text.
struct str tokenizer_piece(const struct tokenizer *t, int32_t id, bool special);

// Decodes one text token by token. Unlike tokenizer_piece it drops the space that encoding adds at the beginning
// (SPM). detokenizer_next returns a view that is valid like that of tokenizer_piece.
struct detokenizer {
    const struct tokenizer *t;
    bool special, at_start;
};
struct detokenizer detokenizer_begin(const struct tokenizer *t, bool special);
struct str detokenizer_next(struct detokenizer *d, int32_t id);

enum detokenize_flags {
    DETOKENIZE_SPECIAL = 1, // control tokens are written as text
    DETOKENIZE_CLEAN = 2,   // if the file sets clean_spaces: removes spaces before punctuation (" ," becomes ",");
                            // loses information
};
// Decodes n tokens into a new buffer that the caller frees: *text (NUL-terminated) and *len. E_MEMORY.
int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, unsigned flags, char **text, size_t *len,
                     struct error *err);

#endif
