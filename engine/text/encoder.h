// The state of one call of tokenizer_encode: its scratch memory, its word cache, and the algorithms that turn a word
// into tokens.
//
// Ownership: an encoder borrows the tokenizer and the caller's list, and owns its buffers. Threads: one at a time.
#ifndef QUERN_ENCODER_H
#define QUERN_ENCODER_H

#include "engine/text/vocab.h"

// Bytes of a text at most: more than an address space holds, and so few that a small multiple of them never overflows.
#define TEXT_MAX (SIZE_MAX / 256)

struct scratch {
    void *data;
    size_t cap;
};
// Provides at least n bytes at scratch->data; the old contents are lost. E_MEMORY.
int scratch_reserve(struct scratch *scratch, size_t n, struct error *err);

// A word that occurred before in this text: its place in the text, and the place of its tokens in the list.
struct cached_word {
    uint32_t tag; // high bits of its hash, | 1; 0 marks an empty entry
    uint32_t text_at, ids_at;
    uint16_t len, n_ids;
};

struct encoder {
    const struct tokenizer *t;
    struct str text;      // the whole text; the cache refers to it
    const uint8_t *marks; // per byte: 1 if it cannot be part of a control token; NULL: no byte is marked
    struct token_list *out;
    struct error *err;
    struct cached_word *cache;
    uint64_t cache_mask;
    struct scratch spelled; // the word in the spelling of the vocabulary
    struct scratch merging; // state of merge_long
};

// Appends the tokens of a word in e->text, from the cache if possible. A split_word_fn.
int encoder_word(void *encoder, const char *word, size_t len);

// These append the tokens of one word; `prefix` adds a space before it.
int bpe_encode_word(struct encoder *e, const char *word, size_t len);
int spm_encode_word(struct encoder *e, const char *word, size_t len, bool prefix);
int wpm_encode_word(struct encoder *e, const char *word, size_t len);

// Append the tokens of a text between special tokens.
int ugm_encode(struct encoder *e, const char *p, const char *end);
int least_cost_encode(struct encoder *e, const char *p, const char *end);
int greedy_encode(struct encoder *e, const char *p, const char *end);

// The length of the part at p < end that WPM can encode independently: one ASCII space or punctuation character, or
// everything up to the next one.
size_t wpm_word_len(const char *p, const char *end);

// Appends the token of a single byte, or else the unknown token. E_MODEL if there is neither.
int encoder_byte(struct encoder *e, unsigned char byte);

// Copies text with its spaces replaced by WORD_MARK, and adds one in front if `prefix`. Returns the length, at most 3
// (n + 1).
size_t spell_escaped(const char *p, size_t n, bool prefix, char *out);

#endif
