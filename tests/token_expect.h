// Shared by the tests of tokenizers: compares ids, written as a line of text, and decoded texts.
//
// Each test links its own copy. Threads: one.
#ifndef QUERN_TOKEN_EXPECT_H
#define QUERN_TOKEN_EXPECT_H

#include "tests/guarded.h"
#include "tests/vocab_recipe.h"

#include <criterion/criterion.h>

#define MARK "\\xE2\\x96\\x81" // U+2581 in a recipe
#define SPACE "\xE2\x96\x81"   // and in C

// The ids of a text as "1 2 3", or "error: ..."; in a buffer that the next calls but three overwrite.
static inline const char *ids_of(const struct tokenizer *t, struct str text, unsigned flags)
{
    static char buffers[4][4096];
    static int turn;
    char *out = buffers[turn++ % 4];
    struct token_list ids = {0};
    struct error err = {0};
    size_t n = 0;
    out[0] = '\0';
    if (tokenizer_encode(t, guarded(text), flags, &ids, &err) != 0)
        snprintf(out, sizeof buffers[0], "error: %s", err.text);
    for (size_t i = 0; i < ids.n && n + 16 < sizeof buffers[0]; i++)
        n += (size_t)snprintf(out + n, sizeof buffers[0] - n, "%s%d", i ? " " : "", ids.ids[i]);
    token_list_free(&ids);
    return out;
}

#define expect_ids(t, text, flags, want)                                                                               \
    cr_expect_str_eq(ids_of(t, STR_LIT(text), flags), want, "'%s': %s, not %s", text, ids_of(t, STR_LIT(text), flags), \
                     want)

static inline void expect_text(const struct tokenizer *t, struct str text, unsigned flags, struct str want)
{
    struct token_list ids = {0};
    struct error err = {0};
    char *back = NULL;
    size_t len = 0;
    cr_assert_eq(tokenizer_encode(t, text, flags, &ids, &err), 0, "%s", err.text);
    cr_assert_eq(
        tokenizer_decode(t, ids.ids, ids.n, flags & TOKENIZE_SPECIAL ? DETOKENIZE_SPECIAL : 0, &back, &len, &err), 0);
    cr_expect(len == want.len && memcmp(back, want.data, len) == 0, "'%.*s' came back as '%s'", STR_ARG(text), back);
    free(back);
    token_list_free(&ids);
}

// A small vocabulary of SentencePiece.
#define SPM_RECIPE                                                                                                     \
    "model str llama\n"                                                                                                \
    "tokens strs <unk> <s> </s> <0x21> <0x0A> a b c ab bc " MARK " " MARK "a aa aab\n"                                 \
    "token_type i32s 2 3 3 6 6 1 1 1 1 1 1 1 1 1\n"                                                                    \
    "scores f32s 0 0 0 0 0 -9 -9 -9 -2 -1 -9 -3 -1 -4"

// A small vocabulary of WordPiece.
#define WPM_RECIPE                                                                                                     \
    "model str bert\ntokens strs [PAD] [UNK] [CLS] [SEP] " MARK "hello " MARK "un able " MARK "e lo " MARK ", " MARK   \
    "\\xE4\\xB8\\xAD " MARK "\\xC3\\x89 " MARK "hel " MARK "a " MARK "i\n"                                             \
    "token_type i32s 3 3 3 3 1 1 1 1 1 1 1 1 1 1 1\n"                                                                  \
    "unknown_token_id u32 1\ncls_token_id u32 2\nseperator_token_id u32 3\npadding_token_id u32 0"

#endif
