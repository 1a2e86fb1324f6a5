// The tokenizer of RWKV: the longest token at each place, spellings with escapes, and vocabularies that lack a part. More
// texts are compared with another matcher by check_rwkv.py.
#include "tests/token_expect.h"

// 1: a tab, 2: a newline, 3: a backslash, 4: the byte 0xE9, 5 .. 9: plain texts, 10: 0xC3, 11: the character of 0xC3 0xA9
#define RECIPE                                                                                                         \
    "model str rwkv\n"                                                                                                 \
    "tokens strs <s> \\t \\n \\\\ \\x5Cxe9 a ab abcd c \\sa \\x5Cxc3 \\x5CxC3\\x5Cxa9 [PAD12]\n"                       \
    "token_type i32s 3 1 1 1 1 1 1 1 1 1 1 1 5"

Test(rwkv, the_longest_token_wins_and_escapes_are_bytes)
{
    struct tokenizer *t = vocab_from(RECIPE);
    expect_ids(t, "abcd", 0, "7");
    expect_ids(t, "abca", 0, "6 8 5"); // abc begins a token, and is none
    expect_ids(t, "aab a", 0, "5 6 9");
    expect_ids(t, "\t\n\\", 0, "1 2 3");
    expect_ids(t, "\xE9\xC3\xA9\xC3", 0, "4 11 10");
    expect_ids(t, "", 0, "");
    expect_text(t, STR_LIT("ab\t\xC3\xA9\\"), 0, STR_LIT("ab\t\xC3\xA9\\"));
    cr_expect_eq(tokenizer_role(t, TOKEN_BOS), -1);
    cr_expect_not(tokenizer_adds_bos(t));
    tokenizer_free(t);
}

Test(rwkv, control_tokens_are_made_of_text_only_if_wanted)
{
    struct tokenizer *t = vocab_from(RECIPE);
    expect_ids(t, "<s>a", TOKENIZE_SPECIAL, "0 5");
    cr_expect(strstr(ids_of(t, STR_LIT("<s>"), 0), "cannot spell the byte 0x3C"));
    cr_expect(strstr(ids_of(t, STR_LIT("[PAD12]"), 0), "cannot spell the byte 0x5B"));
    tokenizer_free(t);
}

Test(rwkv, what_no_token_spells_is_unknown)
{
    struct tokenizer *t = vocab_from(RECIPE "\nunknown_token_id u32 0");
    expect_ids(t, "azab", 0, "5 0 6");
    tokenizer_free(t);
}

// Letters of a byte in either case, a carriage return, and a backslash before any other character.
Test(rwkv, each_escape_is_one_byte)
{
    struct tokenizer *t =
        vocab_from("model str rwkv\ntokens strs <s> \\x5CxAF \\x5Cxfa \\x5Cr \\x5Cq \\x5C' \\x5Cx09 \\x5Cx90\n"
                   "token_type i32s 3 1 1 1 1 1 1 1");
    expect_ids(t, "\xFA\xAF\rq'\t\x90", 0, "2 1 3 4 5 6 7");
    tokenizer_free(t);
}

Test(rwkv, broken_escapes_are_refused)
{
    static const char *const broken[] = {"\\x5C",    "a\\x5C",   "\\x5Cx",   "\\x5Cx4",  "\\x5Cx4g", "\\x5Cxg4",
                                         "\\x5Cx4:", "\\x5Cx4`", "\\x5Cx4@", "\\x5Cx4G", "\\x5Cx4/"};
    for (size_t i = 0; i < COUNT_OF(broken); i++) {
        char recipe[256];
        struct vocab_file f;
        struct tokenizer *t;
        struct error err = {0};
        snprintf(recipe, sizeof recipe, "model str rwkv\ntokens strs <s> a %s\ntoken_type i32s 3 1 1", broken[i]);
        vocab_begin(&f);
        vocab_put_recipe(&f, recipe);
        cr_expect_eq(vocab_load(&f, 0, &t, &err), -1, "%s", broken[i]);
        cr_expect(strstr(err.text, "element 2: an escape is broken"), "%s: %s", broken[i], err.text);
    }
}
