// The tokenizer of PLaMo 2: the least cost beside a search through all ways, longest tokens first where costs are equal,
// bytes for what no token spells, and vocabularies that lack a part.
#include "tests/token_expect.h"

#include <math.h>

enum { FIRST = 260, ROOM = 1 << 14 }; // 4 tokens with roles and 256 bytes are before the words

// A vocabulary of these words with these scores, up to NULL.
static char *recipe_of(const char *const *words, const double *scores)
{
    static char recipe[ROOM];
    int n = 0, at = snprintf(recipe, ROOM, "model str plamo2\ntokens strs <unk> <bos> <eos> <pad>");
    for (int i = 0; i < 256; i++)
        at += snprintf(recipe + at, ROOM - (size_t)at, " <0x%02X>", (unsigned)i);
    for (; words[n]; n++)
        at += snprintf(recipe + at, ROOM - (size_t)at, " %s", words[n]);
    at += snprintf(recipe + at, ROOM - (size_t)at, "\nscores f32s");
    for (int i = 0; i < FIRST + n; i++)
        at += snprintf(recipe + at, ROOM - (size_t)at, " %g", i < FIRST ? 0 : scores[i - FIRST]);
    at += snprintf(recipe + at, ROOM - (size_t)at, "\ntoken_type i32s 2 3 3 3");
    for (int i = 4; i < FIRST + n; i++)
        at += snprintf(recipe + at, ROOM - (size_t)at, i < FIRST ? " 6" : " 1");
    return recipe;
}

Test(plamo2, the_least_cost_wins_and_of_equal_ones_the_longest_token)
{
    static const char *const words[] = {"a", "b", "ab", "\\sa", "ba", NULL};
    static const double scores[] = {-1, -1, -2, -1.5, -2.5};
    struct tokenizer *t = vocab_from(recipe_of(words, scores));
    expect_ids(t, "ab", 0, "262"); // as cheap as a, b
    expect_ids(t, "aba", 0, "262 260");
    expect_ids(t, "b a", 0, "261 263"); // spaces are part of tokens
    expect_ids(t, "bab", 0, "261 262"); // 3, not 3.5 as ba, b
    expect_ids(t,
               "\xEF\xBB\xBF"
               "a",
               0, "260"); // a byte order mark is nothing
    tokenizer_free(t);
}

Test(plamo2, what_no_token_spells_becomes_bytes)
{
    static const char *const words[] = {"a", NULL};
    static const double scores[] = {-1};
    struct tokenizer *t = vocab_from(recipe_of(words, scores));
    expect_ids(t, "a\xC3\xA9", 0, "260 199 173"); // 4 + 0xC3, 4 + 0xA9
    expect_ids(t, "\xFF", 0, "243 195 193");      // U+FFFD
    expect_text(t, STR_LIT("a\xC3\xA9 x"), 0, STR_LIT("a\xC3\xA9 x"));
    expect_ids(t, "<bos>", 0, "64 102 115 119 66"); // control tokens are not made of text
    tokenizer_free(t);
}

Test(plamo2, a_vocabulary_needs_scores_and_all_bytes)
{
    static const char *const words[] = {"a", NULL};
    static const double scores[] = {-1};
    struct vocab_file f;
    struct tokenizer *t;
    struct error err = {0};
    char *recipe = recipe_of(words, scores), *byte = strstr(recipe, "<0x41>");
    byte[4] = 'x'; // <0x4x>, which is no byte
    vocab_begin(&f);
    vocab_put_recipe(&f, recipe);
    cr_expect_eq(vocab_load(&f, 0, &t, &err), -1);
    cr_expect(strstr(err.text, "element 69: '<0x4x>' is of type byte, but not from <0x00> to <0xFF>"), "%s", err.text);
    memcpy(strstr(recipe, "token_type"), "zoken_type", 10); // then all tokens are ordinary ones
    vocab_begin(&f);
    vocab_put_recipe(&f, recipe);
    cr_expect_eq(vocab_load(&f, 0, &t, &err), -1);
    cr_expect(strstr(err.text, "key 'tokenizer.ggml.tokens': there is no token <0x41>"), "%s", err.text);
    recipe = recipe_of(words, scores);
    memcpy(strstr(recipe, "scores"), "zcores", 6);
    vocab_begin(&f);
    vocab_put_recipe(&f, recipe);
    cr_expect_eq(vocab_load(&f, 0, &t, &err), -1);
    cr_expect(strstr(err.text, "scores"), "%s", err.text);
}

// A score of 2,000 or more, or one that is no number, is no cost; control tokens have none either.
Test(plamo2, tokens_without_a_cost_are_not_taken)
{
    static const char *const words[] = {"ab", "bc", "cd", "de", "a", "b", "c", "d", "e", NULL};
    const double scores[] = {2000, -2000, (double)NAN, -1999, -1, -1, -1, -1, -1};
    struct tokenizer *t = vocab_from(recipe_of(words, scores));
    expect_ids(t, "ab", 0, "264 265");
    expect_ids(t, "bc", 0, "265 266");
    expect_ids(t, "cd", 0, "266 267");
    expect_ids(t, "de", 0, "267 268");
    tokenizer_free(t);
}

// ---- A search through all ways

enum { WORDS = 14, TEXT = 9 };
static char texts[WORDS][8];
static const char *words[WORDS + 1];
static double scores[WORDS];

static double best_of(const char *text)
{
    double best = *text ? 1000 + best_of(text + 1) : 0; // a character without a token costs 1,000
    for (int i = 0; *text && i < WORDS; i++)
        if (!strncmp(text, words[i], strlen(words[i])))
            best = fmin(best, -scores[i] + best_of(text + strlen(words[i])));
    return best;
}

static struct tokenizer *random_vocab(uint64_t *state)
{
    for (int i = 0; i < WORDS; i++) {
        bool again = true;
        while (again) {
            const size_t n = 1 + random_below(state, 4);
            again = false;
            for (size_t j = 0; j < n; j++)
                texts[i][j] = (char)('a' + random_below(state, 4));
            texts[i][n] = '\0';
            for (int j = 0; j < i; j++)
                again |= !strcmp(texts[i], texts[j]);
        }
        words[i] = texts[i];
        scores[i] = -(double)(8 + random_below(state, 64)) / 8;
    }
    return vocab_from(recipe_of(words, scores));
}

Test(plamo2, no_other_way_costs_less)
{
    uint64_t state = 23;
    for (int i = 0; i < 20; i++) {
        struct tokenizer *t = random_vocab(&state);
        for (int k = 0; k < 50; k++) {
            char text[TEXT + 1] = "", spelled[64] = "";
            struct token_list ids = {0};
            struct error err = {0};
            double cost = 0;
            for (size_t j = 0, n = 1 + random_below(&state, TEXT); j < n; j++)
                text[j] = (char)('a' + random_below(&state, 4));
            cr_assert_eq(tokenizer_encode(t, str_from(text), 0, &ids, &err), 0, "%s", err.text);
            for (size_t j = 0; j < ids.n; j++) {
                const bool byte = ids.ids[j] < FIRST;
                cost += byte ? 1000 : -scores[ids.ids[j] - FIRST];
                strcat(spelled, byte ? (char[]){(char)(ids.ids[j] - 4), '\0'} : words[ids.ids[j] - FIRST]);
            }
            cr_expect_str_eq(spelled, text);
            cr_expect_float_eq(cost, best_of(text), 1e-9, "%s: %g, best %g", text, cost, best_of(text));
            token_list_free(&ids);
        }
        tokenizer_free(t);
    }
}
