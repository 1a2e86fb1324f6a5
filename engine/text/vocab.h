// The inside of a tokenizer: what is known of each token, and the tables of its algorithm. For engine/text alone.
//
// Ownership: everything lives in the tokenizer's arena. Threads: read-only after tokenizer_load.
#ifndef QUERN_VOCAB_H
#define QUERN_VOCAB_H

#include "engine/text/split.h"
#include "engine/text/token_map.h"
#include "engine/text/tokenizer.h"
#include "engine/text/trie.h"

// U+2581, which stands for a space in the spellings of SPM and its kin, and starts a word in WPM's.
#define WORD_MARK "\xE2\x96\x81"
enum { WORD_MARK_LEN = 3 };

enum token_flags {
    TOKEN_IS_END = 1,
    TOKEN_LSTRIP = 2, // white space before it, in a text, is dropped
    TOKEN_RSTRIP = 4, // and after it
};

// A merge of BPE: `left` and `right` become `merged`; lower ranks come first.
struct merge {
    uint32_t left, right, rank, merged;
};
#define MERGE_NONE UINT32_MAX // as a rank, and as `left` of an empty slot

// A symbol that is no token: a byte, in the low bits, that the vocabulary lacks.
#define SYMBOL_NO_TOKEN (UINT32_C(1) << 30)

struct merge_table {
    struct merge *slots;
    uint64_t mask, seed;
};

// Tokens that are found in a text before anything else, in two sets: those that always are, and all that may be.
struct special_tokens {
    struct trie always, all;
    bool any_always, any;
};

struct tokenizer {
    struct arena arena;
    enum tokenizer_kind kind;
    const struct pretokenizer *pre; // BPE
    struct str pre_name;
    bool pre_known;

    struct spellings text;  // as written in the file
    struct spellings piece; // as printed
    uint8_t *attr;          // enum token_attr
    uint8_t *flags;         // enum token_flags
    uint32_t *order;        // SPM: what is merged first, by falling score
    struct token_map map;
    size_t max_len; // of a spelling
    int32_t role[TOKEN_ROLE_COUNT];
    int32_t byte_token[256]; // -1 where there is none

    bool add_bos, add_eos, add_space_prefix, clean_spaces;
    bool lowercase, strip_accents; // WPM
    bool glued[256];               // escaped spellings: bytes behind which a space may belong to the same token
    bool lines_glued;              // and whether a newline may belong to the same token as something else

    // Byte-level BPE: which byte (bit) stands behind which in some token. Between others nothing merges.
    uint8_t joined[256][256 / 8];

    struct special_tokens special;
    struct merge_table merges; // BPE
    struct trie words;         // WPM
};

// Whether spaces are written as WORD_MARK and unknown bytes as <0xNN>.
static inline bool tokenizer_escapes(const struct tokenizer *t)
{
    return t->kind == TOKENIZER_SPM || (t->kind == TOKENIZER_BPE && (t->pre->flags & PRE_ESCAPE) != 0);
}

// Whether text can become this token without being marked as special.
static inline bool token_is_plain(const struct tokenizer *t, int32_t id)
{
    return t->attr[id] != TOKEN_CONTROL && t->attr[id] != TOKEN_UNKNOWN && t->attr[id] != TOKEN_BYTE;
}

// Fails with E_MODEL: "FILE: byte N: key 'K': MESSAGE", as the readers of keys do; without the byte where there is no
// such key.
int vocab_fail(const struct gguf *g, const char *key, struct error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

// --- loading, in the order of the calls ---

int vocab_load_tokens(struct tokenizer *t, const struct gguf *g, struct error *err); // spellings, attributes, scores
int vocab_load_roles(struct tokenizer *t, const struct gguf *g, struct error *err);  // special ids, add_bos and so on
int vocab_load_pieces(struct tokenizer *t, struct error *err);
int vocab_load_special(struct tokenizer *t, const struct gguf *g, struct error *err); // tokens to find in texts
void vocab_load_bytes(struct tokenizer *t);                                           // byte_token, glued, joined
int vocab_load_merges(struct tokenizer *t, const struct gguf *g, struct error *err);  // BPE
int vocab_load_words(struct tokenizer *t, const struct gguf *g, struct error *err);   // WPM

// The merge of two symbols, or NULL.
const struct merge *merge_find(const struct merge_table *table, uint32_t left, uint32_t right);

// --- byte-level spelling: each byte is one printable character, as in GPT-2 ---

// The code point that a byte is spelled as: itself where it prints, else from U+0100 on.
uint32_t byte_to_letter(unsigned char byte);
// Its inverse, -1 for other code points.
int letter_to_byte(uint32_t cp);

#endif
