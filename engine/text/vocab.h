// The internals of a tokenizer: the data of each token, and the tables of its algorithm. Only engine/text includes
// this file.
//
// Ownership: everything lives in the tokenizer's arena. Threads: read-only after tokenizer_load.
#ifndef QUERN_VOCAB_H
#define QUERN_VOCAB_H

#include "engine/text/split.h"
#include "engine/text/token.h"
#include "engine/text/token_map.h"
#include "engine/text/trie.h"
#include "gguf/gguf.h"

// U+2581. It stands for a space in SPM-like spellings, and begins a word in WPM spellings.
#define WORD_MARK "\xE2\x96\x81"
enum { WORD_MARK_LEN = 3 };

enum token_flags {
    TOKEN_IS_END = 1,
    TOKEN_LSTRIP = 2, // white space before it in a text is dropped
    TOKEN_RSTRIP = 4, // white space after it in a text is dropped
};

// A merge of BPE: `left` and `right` become `merged`. Merges with lower ranks are applied first.
struct merge {
    uint32_t left, right, rank, merged;
};
#define MERGE_NONE UINT32_MAX // as a rank: no merge; as `left`: an empty slot

// Flag of a symbol that is not a token: a byte, in the low bits, for which the vocabulary has no token.
#define SYMBOL_NO_TOKEN (UINT32_C(1) << 30)

struct merge_table {
    struct merge *slots;
    uint64_t mask, seed;
};

// Tokens that are searched for in a text before anything else: those that always are, and all.
struct special_tokens {
    struct trie always, all;
    bool any_always, any;
};

// UGM: replacements of prefixes of a text, in a double-array trie.
struct charsmap {
    const uint32_t *units;
    size_t n;
    struct str texts; // they end with NUL
};

struct tokenizer {
    struct arena arena;
    enum tokenizer_kind kind;
    const struct pretokenizer *pre; // BPE
    struct str pre_name;
    bool pre_known;

    struct spellings text;  // as written in the file
    struct spellings piece; // as decoded
    uint8_t *attr;          // enum token_attr
    uint8_t *flags;         // enum token_flags
    uint32_t *order;        // SPM: order of merges; a higher score gives a lower number
    struct token_map map;
    size_t max_len; // bytes of the longest spelling
    int32_t role[TOKEN_ROLE_COUNT];
    int32_t byte_token[256]; // token of each byte; -1 if there is none

    bool add_bos, add_eos, add_space_prefix, clean_spaces;
    bool lowercase, strip_accents; // WPM
    bool merge_spaces;             // UGM
    bool glued[256];               // escaped spellings: bytes after which a space may belong to the same token
    bool lines_glued;              // a newline and another byte may be adjacent in a token

    // Byte-level BPE: bit b of joined[a] is set if byte b follows byte a in some token. Other pairs of bytes never
    // merge.
    uint8_t joined[256][256 / 8];

    struct special_tokens special;
    struct merge_table merges; // BPE
    struct trie words;         // WPM, UGM, PLaMo 2, RWKV
    struct charsmap charsmap;  // UGM
    float *score;              // UGM: of each token
    float unknown_score;       // UGM: of a character that no token spells
    int32_t *cost;             // PLaMo 2: of each token
};

// Whether spaces are spelled WORD_MARK and bytes without a token <0xNN>.
static inline bool tokenizer_escapes(const struct tokenizer *t)
{
    return t->kind == TOKENIZER_SPM || (t->kind == TOKENIZER_BPE && (t->pre->flags & PRE_ESCAPE) != 0);
}

// Whether ordinary text can become this token, without being recognized as special.
static inline bool token_is_plain(const struct tokenizer *t, int32_t id)
{
    return t->attr[id] != TOKEN_CONTROL && t->attr[id] != TOKEN_UNKNOWN && t->attr[id] != TOKEN_BYTE;
}

// Fails with E_MODEL and "FILE: byte N: key 'K': MESSAGE", as the readers of keys do; without "byte N" if the key
// does not exist.
int vocab_fail(const struct gguf *g, const char *key, struct error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define vocab_fail(...) minus_one(vocab_fail(__VA_ARGS__))

// --- loading, in the order of the calls ---

int vocab_load_tokens(struct tokenizer *t, const struct gguf *g, struct error *err); // spellings, attributes, scores
int vocab_load_roles(struct tokenizer *t, const struct gguf *g, struct error *err);  // special ids, add_bos and so on
int vocab_load_pieces(struct tokenizer *t, struct error *err);
int vocab_load_special(struct tokenizer *t, const struct gguf *g, struct error *err); // the tries `special`
void vocab_load_bytes(struct tokenizer *t);                                           // byte_token, glued, joined
int vocab_load_merges(struct tokenizer *t, const struct gguf *g, struct error *err);  // BPE
int vocab_load_words(struct tokenizer *t, const struct gguf *g, struct error *err);   // WPM
int vocab_load_costs(struct tokenizer *t, const struct gguf *g, struct error *err);   // PLaMo 2
int vocab_load_greedy(struct tokenizer *t, const struct gguf *g, struct error *err);  // RWKV
int vocab_load_unigram(struct tokenizer *t, const struct gguf *g, struct error *err); // UGM

// The bytes that a spelling of RWKV stands for, at most s.len; 0: an escape in it is broken.
size_t unescape(struct str s, char *out);

// The merge of two symbols; NULL if there is none.
const struct merge *merge_find(const struct merge_table *table, uint32_t left, uint32_t right);

// --- byte-level spelling as in GPT-2: each byte is one printable character ---

// The code point that spells a byte: the byte itself if it is printable, otherwise one from U+0100 on.
uint32_t byte_to_letter(unsigned char byte);
// The inverse; -1 for other code points.
int letter_to_byte(uint32_t cp);

#endif
