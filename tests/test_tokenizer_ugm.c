// Unigram vocabularies: normalization, the table of replacements, the best way to cut a text beside a search through all
// ways, and files that no converter would write.
#include "tests/token_expect.h"

#include <math.h>

// Tokens 0 to 3 have roles; scores are logarithms.
#define HEAD "model str t5\nremove_extra_whitespaces bool 1\nadd_space_prefix bool 1\nadd_eos_token bool 0\n"
#define LETTERS                                                                                                        \
    "tokens strs <pad> </s> <unk> <u> \xE2\x96\x81 a b ab \xE2\x96\x81"                                                \
    "a ba\n"                                                                                                           \
    "scores f32s 0 0 0 0 -2 -3 -3.5 -4 -4.5 -7\ntoken_type i32s 3 3 2 4 1 1 1 1 1 1\n"

Test(ugm, the_best_sum_of_scores_wins_and_spaces_are_merged)
{
    struct tokenizer *t = vocab_from(HEAD LETTERS);
    expect_ids(t, "ab", 0, "4 7"); // -6, not -8 as 8 6
    expect_ids(t, "  a   ab ", 0, "8 4 7");
    expect_ids(t, "aba", 0, "4 7 5"); // -9; 8 9 is -11.5
    expect_ids(t, "", 0, "");
    expect_ids(t, "   ", 0, "");
    tokenizer_free(t);
}

Test(ugm, characters_without_a_token_are_one_unknown_token_in_a_row)
{
    struct tokenizer *t = vocab_from(HEAD LETTERS);
    expect_ids(t, "axyza", 0, "8 2 5");
    expect_ids(t, "\xC3\xA9\xF0\x9F\x99\x82", 0, "4 2");
    expect_ids(t, "\xFF", 0, "4 2");       // a byte that is no character
    expect_ids(t, "a\xC3", 0, "8 2");      // one cut by the end
    expect_ids(t, "a\xE4\xB8z", 0, "8 2"); // or by another
    expect_ids(t, "a<u>b", 0, "8 3 4 6");
    tokenizer_free(t);
}

Test(ugm, an_end_is_added_unless_the_file_says_otherwise)
{
    struct tokenizer *t = vocab_from("model str t5\nremove_extra_whitespaces bool 1\n" LETTERS);
    expect_ids(t, "a", TOKENIZE_BOS, "8 1");
    tokenizer_free(t);
    t = vocab_from("model str t5\n" LETTERS); // spaces stay as they are
    expect_ids(t, "a  a", 0, "5 4 8");
    tokenizer_free(t);
}

Test(ugm, one_space_comes_before_a_text_whose_spaces_stay)
{
    struct tokenizer *t = vocab_from("model str t5\nadd_space_prefix bool 1\nadd_eos_token bool 0\n" LETTERS);
    expect_ids(t, "b  a", 0, "4 6 4 8");
    expect_ids(t, "b b", 0, "4 6 4 6");
    expect_ids(t, " b", 0, "4 4 6");
    tokenizer_free(t);
}

Test(ugm, what_cannot_be_spelled_is_an_error_where_nothing_is_unknown)
{
    struct tokenizer *t = vocab_from(HEAD LETTERS "unknown_token_id u32 4294967295");
    expect_ids(t, "ab", 0, "4 7");
    expect_ids(t, "axb", 0, "error: the vocabulary cannot spell the text and has no unknown token");
    tokenizer_free(t);
}

// A table that knows "x" (becomes "a") and "xy" (becomes "b", "a space" and "a"): the units of a double-array trie. The
// root's children are at 256 ^ byte, those of "x" at 512 ^ byte, and a value at the base of its unit.
static void put_table(struct vocab_file *f, enum gguf_type type, const char texts[], size_t n_texts)
{
    enum { UNITS = 1024, X = 256 ^ 'x', XY = 512 ^ 'y' };
    static uint32_t units[UNITS];
    memset(units, 0, sizeof units);
    units[0] = 256u << 10;                                  // the root, whose base is 256
    units[X] = ((uint32_t)(X ^ 512) << 10) | 1u << 8 | 'x'; // a leaf, whose base is 512: its value is there
    units[512] = 1u << 31 | 0;
    units[XY] = ((uint32_t)(XY ^ 768) << 10) | 1u << 8 | 'y';
    units[768] = 1u << 31 | 2;
    vocab_key_array(f, "precompiled_charsmap", type, 4 + sizeof units + n_texts);
    vocab_put_u32(f, sizeof units);
    vocab_put(f, units, sizeof units);
    vocab_put(f, texts, n_texts);
}

static int load_with_table(const char texts[], size_t n_texts, struct tokenizer **t, struct error *err)
{
    struct vocab_file f;
    vocab_begin(&f);
    vocab_put_recipe(&f, HEAD LETTERS);
    put_table(&f, GGUF_U8, texts, n_texts);
    return vocab_load(&f, 0, t, err);
}

Test(ugm, the_longest_prefix_is_replaced)
{
    struct tokenizer *t;
    struct error err = {0};
    cr_assert_eq(load_with_table("a\0b a", 6, &t, &err), 0, "%s", err.text);
    expect_ids(t, "x", 0, "8");
    expect_ids(t, "xx", 0, "8 5");
    expect_ids(t, "xy", 0, "4 6 8");
    expect_ids(t, "xyx", 0, "4 6 8 5");
    tokenizer_free(t);
}

// Some converters write the bytes with a sign.
Test(ugm, a_table_may_be_of_signed_bytes_or_empty)
{
    struct tokenizer *t;
    struct error err = {0};
    struct vocab_file f;
    vocab_begin(&f);
    vocab_put_recipe(&f, HEAD LETTERS);
    put_table(&f, GGUF_I8, "a\0b a", 6);
    cr_assert_eq(vocab_load(&f, 0, &t, &err), 0, "%s", err.text);
    expect_ids(t, "xyx", 0, "4 6 8 5");
    tokenizer_free(t);
    t = vocab_from(HEAD LETTERS "precompiled_charsmap u8s");
    expect_ids(t, "ab", 0, "4 7");
    tokenizer_free(t);
    t = vocab_from(HEAD LETTERS "precompiled_charsmap u8s 4 0 0 0 0 0 0 0"); // a unit, and no text
    expect_ids(t, "ab", 0, "4 7");
    tokenizer_free(t);
}

// A user-defined token in a text is found before the text is normalized; in a replacement it costs nothing.
Test(ugm, a_user_defined_token_that_a_replacement_spells_costs_nothing)
{
    struct vocab_file f;
    struct tokenizer *t;
    struct error err = {0};
    vocab_begin(&f);
    vocab_put_recipe(&f, HEAD "tokens strs <pad> </s> <unk> <u> \xE2\x96\x81 a\n"
                              "scores f32s 0 0 0 -999 -2 -3\ntoken_type i32s 3 3 2 4 1 1");
    put_table(&f, GGUF_U8, "<u>", 4);
    cr_assert_eq(vocab_load(&f, 0, &t, &err), 0, "%s", err.text);
    expect_ids(t, "x", 0, "4 3");
    expect_ids(t, "<u>", 0, "3");
    tokenizer_free(t);
}

// The table of put_table with one unit changed: what it leads to is found, or no replacement is, and nothing outside the
// table is read.
Test(ugm, units_that_lead_nowhere_replace_nothing)
{
    enum { X = 256 ^ 'x', XY = 512 ^ 'y', LEAF = 1 << 8 };
    static const struct {
        uint32_t at, unit;
        const char *x, *xy; // what the texts become
    } cases[] = {
        {0, 5u << 10, "4 2", "4 2"},                               // the root's children are elsewhere
        {0, 1u << 20 << 10, "4 2", "4 2"},                         // or behind the table
        {X, (uint32_t)(X ^ 512) << 10 | LEAF | 'z', "4 2", "4 2"}, // the unit is of another byte
        {X, 1u << 31 | LEAF | 'x', "4 2", "4 2"},                  // or is a value
        {X, 1u << 20 << 10 | LEAF | 'x', "4 2", "4 2"},            // its children are behind the table
        {X, (uint32_t)(X ^ 512) << 10 | 'x', "4 2", "4 6 8"},      // nothing ends here, but goes on
        {512, 1u << 31 | 6, "4 2", "4 6 8"},                       // the value is behind the texts
        {XY, (uint32_t)(XY ^ 768) << 10 | LEAF | 'z', "8", "8 2"}, // only the shorter prefix is left
        {0, 1u << 10 | 1 << 9, "8", "4 6 8"},                      // the same base, told in 256s
        {XY, 4095u << 10 | 1 << 9 | LEAF | 'y', "8", "8 2"},       // a far base, which counts in 256s
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct vocab_file f;
        struct tokenizer *t;
        struct error err = {0};
        vocab_begin(&f);
        vocab_put_recipe(&f, HEAD LETTERS);
        put_table(&f, GGUF_U8, "a\0b a", 6);
        memcpy(f.data + f.size - 6 - 4096 + 4 * cases[i].at, &cases[i].unit, 4);
        cr_assert_eq(vocab_load(&f, 0, &t, &err), 0, "%s", err.text);
        const char *x = ids_of(t, STR_LIT("x"), 0), *xy = ids_of(t, STR_LIT("xy"), 0);
        cr_expect_str_eq(x, cases[i].x, "case %zu: %s", i, x);
        cr_expect_str_eq(xy, cases[i].xy, "case %zu: %s", i, xy);
        tokenizer_free(t);
    }
}

Test(ugm, a_table_whose_last_text_does_not_end_is_refused)
{
    struct tokenizer *t;
    struct error err = {0};
    cr_assert_eq(load_with_table("a\0b", 3, &t, &err), -1);
    cr_expect(err.code == E_MODEL && strstr(err.text, "precompiled_charsmap"), "%s", err.text);
}

Test(ugm, tables_of_any_bytes_do_no_harm)
{
    uint64_t state = 41;
    for (int i = 0; i < 300; i++) {
        struct vocab_file f;
        struct tokenizer *t;
        struct error err = {0};
        uint8_t bytes[400];
        const uint32_t units = 4 * (uint32_t)random_below(&state, 90);
        for (size_t j = 0; j < sizeof bytes; j++)
            bytes[j] = (uint8_t)random_next(&state);
        memcpy(bytes, &units, sizeof units);
        bytes[sizeof bytes - 1] = 0;
        vocab_begin(&f);
        vocab_put_recipe(&f, HEAD LETTERS);
        vocab_key_array(&f, "precompiled_charsmap", GGUF_U8, sizeof bytes);
        vocab_put(&f, bytes, sizeof bytes);
        cr_assert_eq(vocab_load(&f, 0, &t, &err), 0, "%s", err.text);
        struct token_list ids = {0};
        cr_assert_eq(tokenizer_encode(t, (struct str){(char *)bytes, sizeof bytes}, 0, &ids, &err), 0, "%s", err.text);
        token_list_free(&ids);
        tokenizer_free(t);
    }
}

// ---- A search through all ways

enum { WORDS = 12, TEXT = 9 };
static char words[WORDS][8];
static float scores[WORDS];

// The best score of a text of a, b and c by any way, where each letter alone is a word.
static double best_of(const char *text)
{
    double best = *text ? -INFINITY : 0;
    for (int i = 0; i < WORDS; i++) {
        const size_t n = strlen(words[i]);
        if (*text && !strncmp(text, words[i], n))
            best = fmax(best, (double)scores[i] + best_of(text + n));
    }
    return best;
}

// Three letters, and other words of two to four, with scores that are multiples of 1/8, whose sums are exact.
static struct tokenizer *random_vocab(uint64_t *state)
{
    char recipe[2048];
    int at = snprintf(recipe, sizeof recipe, "model str t5\nadd_eos_token bool 0\ntokens strs <pad> </s> <unk>");
    for (int i = 0; i < WORDS; i++) {
        const size_t n = i < 3 ? 1 : 2 + random_below(state, 3);
        bool again = true;
        while (again) {
            for (size_t j = 0; j < n; j++)
                words[i][j] = (char)('a' + (i < 3 ? (size_t)i : random_below(state, 3)));
            words[i][n] = '\0';
            again = false;
            for (int j = 0; j < i; j++)
                again |= !strcmp(words[i], words[j]);
        }
        scores[i] = -(float)(8 + random_below(state, 64)) / 8;
        at += snprintf(recipe + at, sizeof recipe - (size_t)at, " %s", words[i]);
    }
    at += snprintf(recipe + at, sizeof recipe - (size_t)at, "\nscores f32s 0 0 0");
    for (int i = 0; i < WORDS; i++)
        at += snprintf(recipe + at, sizeof recipe - (size_t)at, " %g", (double)scores[i]);
    at += snprintf(recipe + at, sizeof recipe - (size_t)at, "\ntoken_type i32s 3 3 2");
    for (int i = 0; i < WORDS; i++)
        at += snprintf(recipe + at, sizeof recipe - (size_t)at, " 1");
    return vocab_from(recipe);
}

Test(ugm, no_other_way_has_a_greater_sum)
{
    uint64_t state = 17;
    for (int i = 0; i < 60; i++) {
        struct tokenizer *t = random_vocab(&state);
        for (int k = 0; k < 50; k++) {
            char text[TEXT + 1] = "", spelled[64] = "";
            struct token_list ids = {0};
            struct error err = {0};
            double sum = 0;
            for (size_t j = 0, n = 1 + random_below(&state, TEXT); j < n; j++)
                text[j] = (char)('a' + random_below(&state, 3));
            cr_assert_eq(tokenizer_encode(t, str_from(text), 0, &ids, &err), 0, "%s", err.text);
            for (size_t j = 0; j < ids.n; j++) {
                cr_assert_geq(ids.ids[j], 3);
                sum += (double)scores[ids.ids[j] - 3];
                strcat(spelled, words[ids.ids[j] - 3]);
            }
            cr_expect_str_eq(spelled, text);
            cr_expect_eq(sum, best_of(text), "%s: %g, best %g", text, sum, best_of(text));
            token_list_free(&ids);
        }
        tokenizer_free(t);
    }
}
