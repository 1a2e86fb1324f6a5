// WordPiece, as in BERT: text is normalized and cut into words, and each word is cut from the left into the longest
// tokens. A word that cannot be cut completely becomes the unknown token.
#include "engine/text/encoder.h"
#include "engine/text/unicode.h"

// The blocks of ideographs that are words of one character each in BERT.
static bool is_ideograph(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x20000 && cp <= 0x2A6DF) ||
           (cp >= 0x2A700 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) || (cp >= 0xF900 && cp <= 0xFAFF) ||
           (cp >= 0x2F800 && cp <= 0x2FA1F);
}

enum { ALONE_OR_SPACE = UNI_PUNCT | UNI_SYMBOL | UNI_SPACE };

// Whether the character is a word by itself: punctuation, ASCII symbols and ideographs.
static bool is_alone(uint32_t cp, unsigned bits)
{
    return (bits & UNI_PUNCT) != 0 || (cp < 0x7F && (bits & UNI_SYMBOL) != 0) || is_ideograph(cp);
}

// Appends the longest tokens of one word, which begins with WORD_MARK.
static int emit_word(struct encoder *e, const char *word, size_t len)
{
    size_t before = e->out->n;
    for (const char *p = word, *end = word + len; p < end;) {
        size_t n;
        int32_t id = trie_longest(&e->t->words, p, end, &n);
        if (id < 0) {
            e->out->n = before;
            break;
        }
        if (token_list_push(e->out, id, e->err) != 0) {
            return -1;
        }
        p += n;
    }
    if (e->out->n > before) {
        return 0;
    }
    int32_t unknown = e->t->role[TOKEN_UNK];
    return unknown >= 0 ? token_list_push(e->out, unknown, e->err)
                        : fail(e->err, E_MODEL, "the vocabulary cannot spell '%.*s' and has no unknown token",
                               (int)MIN(len, (size_t)64), word);
}

// Ends the current word: appends its tokens if it has any characters.
static int flush(struct encoder *e, size_t *n)
{
    size_t len = *n;
    *n = WORD_MARK_LEN;
    return len > WORD_MARK_LEN ? emit_word(e, e->spelled.data, len) : 0;
}

size_t wpm_word_len(const char *p, const char *end)
{
    const char *q = p;
    while (q < end && ((unsigned char)*q >= 0x80 || (unicode_ascii[(unsigned char)*q] & ALONE_OR_SPACE) == 0)) {
        q++;
    }
    return q == p ? 1 : (size_t)(q - p);
}

int wpm_encode_word(struct encoder *e, const char *word, size_t len)
{
    const struct tokenizer *t = e->t;
    // lower-casing makes at most three bytes of two (U+023A)
    if (scratch_reserve(&e->spelled, 2 * len + WORD_MARK_LEN + 4, e->err) != 0) {
        return -1;
    }
    char *out = e->spelled.data;
    memcpy(out, WORD_MARK, WORD_MARK_LEN);
    size_t n = WORD_MARK_LEN;
    int rc = 0;
    for (const char *p = word, *end = word + len; p < end && rc == 0;) {
        struct unicode_char c = unicode_char_at(p, end);
        p += c.len;
        uint32_t cp = t->strip_accents ? unicode_base(c.cp) : c.cp;
        unsigned bits = unicode_bits(cp);
        if (bits & UNI_SPACE) {
            rc = flush(e, &n);
            continue;
        }
        if (cp == UNI_REPLACEMENT || (bits & UNI_CONTROL) != 0 || (t->strip_accents && (bits & UNI_MARK) != 0)) {
            continue;
        }
        bool alone = is_alone(cp, bits);
        if (alone) {
            rc = flush(e, &n);
        }
        n += (size_t)utf8_encode(t->lowercase ? unicode_lower(cp) : cp, out + n);
        if (alone && rc == 0) {
            rc = flush(e, &n);
        }
    }
    return rc == 0 ? flush(e, &n) : rc;
}
