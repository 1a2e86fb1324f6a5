// One call of tokenizer_encode: its scratch memory, its cache of words, and the algorithms that turn a word into
// tokens.
//
// Ownership: an encoder borrows the tokenizer and the caller's list, and owns its buffers. Threads: one at a time.
#ifndef QUERN_ENCODER_H
#define QUERN_ENCODER_H

#include "engine/text/vocab.h"

struct scratch {
    void *data;
    size_t cap;
};
// At least n bytes at scratch->data; what was there is lost. E_MEMORY.
int scratch_reserve(struct scratch *scratch, size_t n, struct error *err);

// A word that was met before in this text: where, and where its tokens are in the list.
struct cached_word {
    uint32_t tag; // of its hash; 0 is an empty entry
    uint32_t text_at, ids_at;
    uint16_t len, n_ids;
};

struct encoder {
    const struct tokenizer *t;
    struct str text;      // all of it: the cache points into it
    const uint8_t *marks; // of each byte, whether it can be no part of a control token; NULL: none is marked
    struct token_list *out;
    struct error *err;
    struct cached_word *cache;
    uint64_t cache_mask;
    struct scratch spelled; // the word as the vocabulary spells it
    struct scratch merging; // symbols while they are merged
};

// Room for n more ids in the list. E_MEMORY.
int token_list_reserve(struct token_list *list, size_t n, struct error *err);

// Appends the tokens of a word that is part of e->text, from the cache where it can. A split_word_fn.
int encoder_word(void *encoder, const char *word, size_t len);

// Append the tokens of one word; `prefix` puts a space before it.
int bpe_encode_word(struct encoder *e, const char *word, size_t len);
int spm_encode_word(struct encoder *e, const char *word, size_t len, bool prefix);
int wpm_encode_word(struct encoder *e, const char *word, size_t len);

// The length of the piece at p < end that WPM can encode by itself: up to white space or a sign of ASCII, or one of
// those.
size_t wpm_word_len(const char *p, const char *end);

// Appends the token of a byte that nothing longer could spell: its own, or the unknown token. E_MODEL when there is
// neither.
int encoder_byte(struct encoder *e, unsigned char byte);

// Copies text with its spaces as WORD_MARK, one in front where `prefix`; returns the length, at most 3 (n + 1).
size_t spell_escaped(const char *p, size_t n, bool prefix, char *out);

#endif
