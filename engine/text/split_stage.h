// The building blocks of pre-tokenizers: the stages, and the loops that they share. Only split*.c include this file.
//
// A pre-tokenizer is a chain of one to six stages. A stage cuts a piece of text into smaller pieces, matches as well
// as the gaps between them, and passes each to the next stage; the last stage passes words to the caller. Each stage
// reads the text once, so the time is linear. The only state is the struct split of one call.
#ifndef QUERN_SPLIT_STAGE_H
#define QUERN_SPLIT_STAGE_H

#include "engine/text/unicode.h"

struct split;
typedef int stage_fn(struct split *s, int level, const char *p, const char *end);

struct split {
    stage_fn *const *stages;                              // ends with NULL
    int (*emit)(void *ctx, const char *word, size_t len); // a split_word_fn of split.h
    void *ctx;
};

// Passes [p, end) to the stage after `level`.
INLINE int pass(struct split *s, int level, const char *p, const char *end)
{
    if (p == end) {
        return 0;
    }
    stage_fn *stage = s->stages[level + 1];
    return stage != NULL ? stage(s, level + 1, p, end) : s->emit(s->ctx, p, (size_t)(end - p));
}

// Returns the length of the match at p < end; 0 if there is none. May look only a bounded number of characters beyond
// the match.
typedef size_t match_fn(const char *p, const char *end);

// A stage made of one matcher. The gaps between matches are passed on as pieces, too.
INLINE int each_match(struct split *s, int level, const char *p, const char *end, match_fn *match)
{
    const char *gap = p;
    while (p < end) {
        size_t len = match(p, end);
        if (len == 0) {
            p += unicode_char_at(p, end).len;
            continue;
        }
        int rc = pass(s, level, gap, p);
        if (rc == 0) {
            rc = pass(s, level, p, p + len);
        }
        if (rc != 0) {
            return rc;
        }
        p += len;
        gap = p;
    }
    return pass(s, level, gap, end);
}

#define STAGE_OF(name)                                                                                                 \
    int split_by_##name(struct split *s, int level, const char *p, const char *end)                                    \
    {                                                                                                                  \
        return each_match(s, level, p, end, match_##name);                                                             \
    }

// --- runs ---

// Skips characters that have one of the bits.
INLINE const char *skip_bits(const char *p, const char *end, unsigned bits)
{
    while (p < end) {
        unsigned char c = (unsigned char)*p;
        if (c < 0x80) {
            if ((unicode_ascii[c] & bits) == 0) {
                break;
            }
            p++;
            continue;
        }
        struct unicode_char wide = unicode_char_wide(p, end);
        if ((wide.bits & bits) == 0) {
            break;
        }
        p += wide.len;
    }
    return p;
}

// Skips characters that have none of the bits.
INLINE const char *skip_others(const char *p, const char *end, unsigned bits)
{
    while (p < end) {
        struct unicode_char c = unicode_char_at(p, end);
        if ((c.bits & bits) != 0) {
            break;
        }
        p += c.len;
    }
    return p;
}

INLINE const char *skip_numbers(const char *p, const char *end, int max)
{
    for (; max > 0; max--) {
        struct unicode_char c = unicode_char_at(p, end);
        if ((c.bits & UNI_NUMBER) == 0) {
            break;
        }
        p += c.len;
    }
    return p;
}

// Skips ASCII characters that are in `set`.
INLINE const char *skip_ascii(const char *p, const char *end, const char *set)
{
    while (p < end && *p != '\0' && strchr(set, *p) != NULL) {
        p++;
    }
    return p;
}

INLINE bool is_newline(uint32_t cp)
{
    return cp == '\r' || cp == '\n';
}

// All stages.
stage_fn split_by_llama3, split_by_qwen2, split_by_qwen35, split_by_minicpm5, split_by_seed_coder, split_by_exaone_moe,
    split_by_gpt4o, split_by_tekken, split_by_youtu, split_by_kimi_k2, split_by_gpt2, split_by_deepseek_v3,
    split_by_bloom, split_by_digits3, split_by_newline, split_by_lines, split_by_signs_default, split_by_signs_falcon,
    split_by_deepseek_letter, split_by_deepseek_sign, split_by_deepseek_cjk, split_by_letter, split_by_punct,
    split_by_cjk_kana, split_by_east, split_by_unspaced, split_by_chameleon_image, split_by_chameleon_space,
    split_by_sign, split_by_number, split_by_numbers3, split_by_numbers, split_by_trailing_spaces,
    split_by_powers_of_spaces, split_by_number_thirds, split_by_digit_thirds, split_by_bounded_thirds;

#endif
