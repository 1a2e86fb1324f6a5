// WordPiece vocabularies: the longest tokens of each word, folding of text, words of one ideograph, and words that cannot
// be spelled.
#include "tests/token_expect.h"

Test(wpm, words_are_cut_into_the_longest_tokens_or_are_unknown)
{
    struct tokenizer *t = vocab_from(WPM_RECIPE);
    expect_ids(t, "hello", 0, "4");
    expect_ids(t, "Unable  HELLO", 0, "5 6 4");
    expect_ids(t, "hello,hello", 0, "4 9 4");
    expect_ids(t, "hellox", 0, "1"); // the rest is nothing, so all of it is nothing
    expect_ids(t, "xhello hello", 0, "1 4");
    expect_ids(t, "hellolo", 0, "4 8");
    expect_ids(t, "", TOKENIZE_BOS, "2 3");
    expect_ids(t, "hello", TOKENIZE_BOS, "2 4 3");
    expect_ids(t, "[SEP]hello", TOKENIZE_SPECIAL, "3 4");
    tokenizer_free(t);
}

// A file that does not state its special tokens has those of BERT, from 100 on.
Test(wpm, special_tokens_that_are_not_stated_are_those_of_bert)
{
    char recipe[2000] = "model str bert\ntokens strs [PAD]";
    size_t n = strlen(recipe);
    for (int i = 1; i < 100; i++)
        n += (size_t)snprintf(recipe + n, sizeof recipe - n, " u%d", i);
    snprintf(recipe + n, sizeof recipe - n, " [UNK] [CLS] [SEP] [MASK] " MARK "hello");
    struct tokenizer *t = vocab_from(recipe);
    expect_ids(t, "hello other", TOKENIZE_BOS, "101 104 100 102");
    cr_expect_eq(tokenizer_role(t, TOKEN_PAD), 0);
    cr_expect_eq(tokenizer_role(t, TOKEN_MASK), 103);
    tokenizer_free(t);
}

Test(wpm, text_is_folded_before_it_is_cut)
{
    struct tokenizer *t = vocab_from(WPM_RECIPE);
    expect_ids(t, "\xC3\xA9", 0, "7");  // the accent goes
    expect_ids(t, "e\xCC\x81", 0, "7"); // also when it stands by itself
    expect_ids(t, "\xC4\xB0", 0, "14"); // I with a dot: i
    expect_ids(t,
               "\xE4\xB8\xAD\xE4\xB8\xAD"
               "a",
               0, "10 10 13");                         // ideographs are words
    expect_ids(t, "hel\x01lo", 0, "4");                // control characters are nothing
    expect_ids(t, "hel\xFFlo", 0, "4");                // nor are bytes that are no UTF-8
    expect_ids(t, "hello\xE3\x80\x80hello", 0, "4 4"); // any white space divides
    tokenizer_free(t);
    char recipe[1000];
    snprintf(recipe, sizeof recipe, "%s\nnormalizer.lowercase bool 0", WPM_RECIPE);
    t = vocab_from(recipe);
    expect_ids(t, "\xC3\x89", 0, "11");
    expect_ids(t, "Hello hello", 0, "1 4");
    tokenizer_free(t);
}

// Two characters that are words each are unknown twice, and others are one word. The blocks are those of BERT.
Test(wpm, ideographs_are_words_and_their_neighbours_are_not)
{
    static const struct {
        uint32_t cp;
        const char *twice;
    } cases[] = {
        {0x4E00, "1 1"},  {0x9FFF, "1 1"},  {0x4DFF, "1"},    {0xA000, "1"},    {0x3400, "1 1"},  {0x4DBF, "1 1"},
        {0x33FF, "1"},    {0x4DC0, "1"},    {0x20000, "1 1"}, {0x2A6DF, "1 1"}, {0x1FFFE, "1"},   {0x2A6E0, "1"},
        {0x2A700, "1 1"}, {0x2B81F, "1 1"}, {0x2B820, "1"},   {0x2B920, "1 1"}, {0x2CEAF, "1 1"}, {0x2B91F, "1"},
        {0x2CEB0, "1"},   {0xF900, "1 1"},  {0xFAFF, "1 1"},  {0xFB00, "1"},    {0x2F800, "1 1"}, {0x2FA1F, "1 1"},
        {0x2F7FF, "1"},   {0x2FA20, "1"},   {0xE9, "1"},      {0x3002, "1 1"},
    };
    char recipe[1000];
    snprintf(recipe, sizeof recipe, "%s\nnormalizer.strip_accents bool 0", WPM_RECIPE);
    struct tokenizer *t = vocab_from(recipe);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[9] = "";
        int len = utf8_encode(cases[i].cp, text);
        memcpy(text + len, text, (size_t)len);
        const char *got = ids_of(t, (struct str){text, 2 * (size_t)len}, 0);
        cr_expect_str_eq(got, cases[i].twice, "U+%04X: %s", cases[i].cp, got);
    }
    tokenizer_free(t);
}

// Before punctuation, before white space, at the end, and longer than a message.
Test(wpm, a_word_that_cannot_be_spelled_is_an_error_where_nothing_is_unknown)
{
    static const char *const cases[][2] = {{"x\xE3\x80\x82y", SPACE "x"},
                                           {"x\xE3\x80\x80y", SPACE "x"},
                                           {"hello\xE3\x80\x82", SPACE "\xE3\x80\x82"},
                                           {"yx", SPACE "yx"}};
    struct tokenizer *t = vocab_from("model str bert\ntokens strs [CLS] [SEP] " MARK "hello\ntoken_type i32s 3 3 1");
    char want[200], longest[100];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(want, sizeof want, "error: the vocabulary cannot spell '%s' and has no unknown token", cases[i][1]);
        cr_expect_str_eq(ids_of(t, str_from(cases[i][0]), 0), want);
    }
    memset(longest, 'x', sizeof longest);
    snprintf(want, sizeof want, "error: the vocabulary cannot spell '" SPACE "%.61s' and has no unknown token",
             longest);
    cr_expect_str_eq(ids_of(t, (struct str){longest, sizeof longest}, 0), want);
    tokenizer_free(t);
}
