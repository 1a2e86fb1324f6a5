// Expressions that cut text into words in one stage: GPT-2's, the descendants of cl100k, DeepSeek V3's and BLOOM's.
//
// The comment above each matcher is the regular expression that it implements, in the syntax of the models' own
// files. \p{L} and similar categories are the bits of unicode.h.
#include <limits.h>

#include "engine/text/split_stage.h"

// --- shared parts ---

// 's|'t|'re|'ve|'m|'ll|'d, case-insensitive if `fold`. The long s (U+017F) then counts as an s.
static size_t match_contraction(const char *p, const char *end, bool fold)
{
    if (p == end || *p != '\'' || end - p < 2) {
        return 0;
    }
    int bit = fold ? 0x20 : 0;
    int a = p[1] | bit, b = end - p > 2 ? p[2] | bit : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return 2;
    }
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) {
        return 3;
    }
    return fold && end - p > 2 && memcmp(p + 1, "\xC5\xBF", 2) == 0 ? 3 : 0;
}

// With `newlines`: \s*[\r\n]+|\s+(?!\S)|\s+, otherwise \s+(?!\S)|\s+. There is white space at p.
INLINE size_t match_spaces(const char *p, const char *end, bool newlines)
{
    const char *q = p, *last = p, *line_end = NULL;
    for (;;) {
        struct unicode_char c = unicode_char_at(q, end);
        if ((c.bits & UNI_SPACE) == 0) {
            break;
        }
        last = q;
        q += c.len;
        if (newlines && is_newline(c.cp)) {
            line_end = q;
        }
    }
    if (line_end != NULL) {
        return (size_t)(line_end - p);
    }
    // The last space stays with the word that follows, unless it is the only one.
    return (size_t)((q < end && last > p ? last : q) - p);
}

// --- one-stage expressions ---

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
static size_t match_gpt2(const char *p, const char *end)
{
    size_t n = match_contraction(p, end, false);
    if (n > 0) {
        return n;
    }
    const char *q = p + (*p == ' ' && end - p > 1);
    unsigned bits = unicode_char_at(q, end).bits;
    if (bits & UNI_SPACE) {
        return match_spaces(p, end, false);
    }
    if (bits & UNI_LETTER) {
        return (size_t)(skip_bits(q, end, UNI_LETTER) - p);
    }
    if (bits & UNI_NUMBER) {
        return (size_t)(skip_bits(q, end, UNI_NUMBER) - p);
    }
    return (size_t)(skip_others(q, end, UNI_SPACE | UNI_LETTER | UNI_NUMBER) - p);
}

// The differences between the descendants of cl100k.
struct word_rules {
    unsigned letters; // bits of the characters of words
    bool cased;       // words end where lower case changes to upper case: [upper, other]*[lower, other]+
    bool no_han;      // words contain no Han characters
    bool phrases;     // words continue after single spaces
    bool contractions;
    int digits;       // maximum length of a number
    const char *tail; // characters that may follow punctuation
    bool one_tail;    // at most one of them, instead of any number
};

// Matches [upper, titled, other]*[lower, other]+, or else [upper, titled, other]+, at p. Returns p if neither
// matches. "Other" letters and marks belong to both sets. If no lower-case letter follows, the regular expression
// would backtrack to the last of these; so does this.
INLINE const char *skip_cased(const char *p, const char *end, unsigned excluded)
{
    const char *last_other = NULL, *q = p;
    struct unicode_char c = unicode_char_at(q, end);
    while ((c.bits & (UNI_LETTER | UNI_MARK)) != 0 && (c.bits & (UNI_LOWER | excluded)) == 0) {
        q += c.len;
        if ((c.bits & UNI_UPPER) == 0) {
            last_other = q;
        }
        c = unicode_char_at(q, end);
    }
    if ((c.bits & UNI_LOWER) == 0) {
        return last_other != NULL ? last_other : q;
    }
    while ((c.bits & (UNI_LETTER | UNI_MARK)) != 0 && (c.bits & (UNI_UPPER | excluded)) == 0) {
        q += c.len;
        c = unicode_char_at(q, end);
    }
    return q;
}

// \p{L}\p{M}*(?: ?\p{L}\p{M}*)*
INLINE const char *skip_phrase(const char *p, const char *end)
{
    const char *q = p;
    while (unicode_char_at(q, end).bits & UNI_LETTER) {
        p = skip_bits(skip_bits(q, end, UNI_LETTER), end, UNI_MARK);
        q = p + (p < end && *p == ' ');
    }
    return p;
}

INLINE const char *skip_word(const char *p, const char *end, struct word_rules r)
{
    if (r.cased) {
        return skip_cased(p, end, r.no_han ? UNI_HAN : 0);
    }
    return r.phrases ? skip_phrase(p, end) : skip_bits(p, end, r.letters);
}

// The word at p, with at most one punctuation character or space before it: [^\r\n\p{L}\p{N}]?WORD.
INLINE size_t match_lead_word(const char *p, const char *end, struct unicode_char c, struct word_rules r)
{
    if (c.bits & UNI_NUMBER || is_newline(c.cp)) {
        return 0;
    }
    const char *word = c.bits & UNI_LETTER ? p : p + c.len;
    const char *q = skip_word(word, end, r);
    if (q == word && (c.bits & UNI_MARK) != 0) {
        q = skip_word(p, end, r); // a mark that precedes no word may be a word itself
        word = p;
    }
    if (q == word) {
        return 0;
    }
    if (r.cased && (c.bits & UNI_MARK) != 0 && word > p) {
        // A mark before only capitals: the expression matches the mark alone, as [lower, other]+.
        bool capitals = true;
        for (const char *u = word; u < q && capitals;) {
            struct unicode_char d = unicode_char_at(u, end);
            capitals = (d.bits & UNI_UPPER) != 0;
            u += d.len;
        }
        if (capitals) {
            return (size_t)(word - p);
        }
    }
    if (r.cased && r.contractions) {
        q += match_contraction(q, end, true);
    }
    return (size_t)(q - p);
}

// CONTRACTION|[^\r\n\p{L}\p{N}]?WORD|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[tail]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// Contractions match on their own, or, with `cased`, at the end of a word. The compiler makes one instance per set of
// rules.
INLINE size_t match_rules(const char *p, const char *end, struct word_rules r)
{
    struct unicode_char c = unicode_char_at(p, end);
    if (r.no_han && (c.bits & UNI_HAN) != 0) {
        return (size_t)(skip_bits(p, end, UNI_HAN) - p);
    }
    size_t n = r.contractions && !r.cased ? match_contraction(p, end, true) : 0;
    if (n == 0) {
        n = match_lead_word(p, end, c, r);
    }
    if (n > 0) {
        return n;
    }
    if (c.bits & UNI_NUMBER) {
        return (size_t)(skip_numbers(p, end, r.digits) - p);
    }
    unsigned not_sign = UNI_SPACE | UNI_LETTER | UNI_NUMBER | (r.cased ? 0 : r.letters);
    const char *q = c.cp == ' ' ? p + 1 : p;
    const char *signs_end = skip_others(q, end, not_sign);
    if (signs_end == q) {
        return match_spaces(p, end, true);
    }
    if (r.one_tail) {
        // what follows signs is no NUL, which is one itself
        bool tail = signs_end < end && strchr(r.tail, *signs_end) != NULL;
        return (size_t)(signs_end + tail - p);
    }
    return (size_t)(skip_ascii(signs_end, end, r.tail) - p);
}

#define RULES(name, ...)                                                                                               \
    static size_t match_##name(const char *p, const char *end)                                                         \
    {                                                                                                                  \
        return match_rules(p, end, (struct word_rules){__VA_ARGS__});                                                  \
    }                                                                                                                  \
    STAGE_OF(name)

// clang-format off
RULES(llama3,     .letters = UNI_LETTER, .contractions = true, .digits = 3, .tail = "\r\n")
RULES(qwen2,      .letters = UNI_LETTER, .contractions = true, .digits = 1, .tail = "\r\n")
RULES(qwen35,     .letters = UNI_LETTER | UNI_MARK, .contractions = true, .digits = 1, .tail = "\r\n")
RULES(minicpm5,   .letters = UNI_LETTER, .contractions = true, .digits = INT_MAX, .tail = "\r\n")
RULES(seed_coder, .letters = UNI_LETTER, .contractions = true, .digits = 1, .tail = "")
RULES(exaone_moe, .letters = UNI_LETTER, .contractions = true, .digits = 1, .tail = "\r\n/", .phrases = true,
      .one_tail = true)
RULES(gpt4o,      .cased = true, .contractions = true, .digits = 3, .tail = "\r\n/")
RULES(tekken,     .cased = true, .digits = 1, .tail = "\r\n/")
RULES(youtu,      .cased = true, .contractions = true, .digits = 1, .tail = "\r\n/")
RULES(kimi_k2,    .cased = true, .no_han = true, .contractions = true, .digits = 3, .tail = "\r\n")
// clang-format on
STAGE_OF(gpt2)

// [!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
static size_t match_deepseek_v3(const char *p, const char *end)
{
    struct unicode_char c = unicode_char_at(p, end);
    const char *q = p + c.len;
    if (c.cp < 0x80 && (c.bits & (UNI_PUNCT | UNI_SYMBOL)) != 0) {
        while (q < end && (unsigned char)*q < 0x80 && (unicode_ascii[(unsigned char)*q] & UNI_LETTER) != 0) {
            q++;
        }
        if (q > p + 1) {
            return (size_t)(q - p);
        }
    }
    bool leads = (c.bits & (UNI_PUNCT | UNI_SYMBOL)) == 0 && !is_newline(c.cp);
    const char *word_end = leads ? skip_bits(p + c.len, end, UNI_LETTER | UNI_MARK) : p;
    if (word_end > p + c.len || (c.bits & (UNI_LETTER | UNI_MARK)) != 0) {
        return (size_t)(word_end - p);
    }
    q = c.cp == ' ' ? p + 1 : p;
    const char *signs_end = skip_bits(q, end, UNI_PUNCT | UNI_SYMBOL);
    if (signs_end > q) {
        return (size_t)(skip_ascii(signs_end, end, "\r\n") - p);
    }
    return c.bits & UNI_SPACE ? match_spaces(p, end, true) : 0;
}
STAGE_OF(deepseek_v3)

//  ?[^(\s|.,!?...]+
// The set includes the parentheses and the bar, because the original expression writes a group inside a set.
static bool is_bloom_stop(struct unicode_char c)
{
    static const uint32_t stops[] = {'(',    '|',    ')',    '.',    ',',   '!',   '?',
                                     0x2026, 0x3002, 0xFF0C, 0x3001, 0x964, 0x6D4, 0x60C};
    for (size_t i = 0; i < COUNT_OF(stops); i++) {
        if (c.cp == stops[i]) {
            return true;
        }
    }
    return (c.bits & UNI_SPACE) != 0;
}

static size_t match_bloom(const char *p, const char *end)
{
    const char *start = p + (*p == ' '), *q = start;
    for (struct unicode_char c = unicode_char_at(q, end); c.len > 0 && !is_bloom_stop(c); c = unicode_char_at(q, end)) {
        q += c.len;
    }
    return q == start ? 0 : (size_t)(q - p);
}
STAGE_OF(bloom)
