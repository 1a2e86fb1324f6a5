// Tests special tokens in a text, the roles of tokens, decoding to text, and files without a vocabulary.
#include "tests/token_expect.h"

// --- special tokens in a text ---

Test(special, user_defined_tokens_are_always_taken_control_tokens_on_demand)
{
    struct tokenizer *t = vocab_from("model str gpt2\npre str gpt-2\ntokens strs a b <u> <c> < > u c <u>b\n"
                                     "token_type i32s 1 1 4 3 1 1 1 1 4\nmerges strs");
    expect_ids(t, "a<u>a", 0, "0 2 0");
    expect_ids(t, "a<c>a", 0, "0 4 7 5 0");
    expect_ids(t, "a<c>a", TOKENIZE_SPECIAL, "0 3 0");
    expect_ids(t, "<u><u>b<u", 0, "2 8 4 6"); // the longest of those that start there
    expect_text(t, STR_LIT("a<c><u>b"), TOKENIZE_SPECIAL, STR_LIT("a<c><u>b"));
    tokenizer_free(t);
}

// The ids of a text in which the bytes under an x are marked.
static void expect_marked(const struct tokenizer *t, const char *text, const char *shape, const char *want)
{
    uint8_t marks[64];
    struct token_list ids = {0};
    struct error err = {0};
    char got[256] = "";
    cr_assert_eq(strlen(text), strlen(shape));
    for (size_t i = 0; text[i]; i++)
        marks[i] = shape[i] == 'x';
    cr_assert_eq(tokenizer_encode_marked(t, str_from(text), marks, 0, &ids, &err), 0, "%s", err.text);
    for (size_t i = 0; i < ids.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "", ids.ids[i]);
    cr_expect_str_eq(got, want, "%s / %s: %s, not %s", text, shape, got, want);
    token_list_free(&ids);
}

Test(special, no_control_token_is_made_of_marked_bytes_but_words_reach_over_the_border)
{
    // 5, 6 and 8 are control tokens, 7 and 9 user-defined; 9 ends a turn by its name, and is control for that
    struct tokenizer *t =
        vocab_from("model str gpt2\npre str gpt-2\ntokens strs < > a b ab <a> <a>b <b> <b>a <|im_end|> | i "
                   "m _ e n d\ntoken_type i32s 1 1 1 1 1 3 3 4 3 4 1 1 1 1 1 1 1\nmerges strs a\\sb");
    expect_marked(t, "<a>ab", "     ", "5 4");
    expect_marked(t, "<a>ab", "   xx", "5 4");
    expect_marked(t, "<a>ab", "xxxxx", "0 2 1 4");
    expect_marked(t, "<a>ab", "x    ", "0 2 1 4");
    expect_marked(t, "<a>ab", "  x  ", "0 2 1 4");
    expect_marked(t, "<a>b", "    ", "6");
    expect_marked(t, "<a>b", "   x", "5 3"); // the longer one would take a marked byte
    expect_marked(t, "<a>b", "  xx", "0 2 1 3");
    expect_marked(t, "<b>a", "    ", "8");
    expect_marked(t, "<b>a", "   x", "7 2");
    expect_marked(t, "<b>a", "xxxx", "7 2"); // user-defined tokens are text
    expect_marked(t, "ab", "x ", "4");
    expect_marked(t, "ab", " x", "4");
    expect_marked(t, "<|im_end|>", "          ", "9");
    expect_marked(t, "<|im_end|>", "         x", "0 10 11 12 13 14 15 16 10 1");
    tokenizer_free(t);
    // a user-defined token that ends an answer by the file's word
    t = vocab_from("model str gpt2\npre str gpt-2\ntokens strs < > a b <b> <b>a\ntoken_type i32s 1 1 1 1 4 4\n"
                   "merges strs\neos_token_id u32 4");
    expect_marked(t, "<b>", "   ", "4");
    expect_marked(t, "<b>", "xxx", "0 3 1");
    expect_marked(t, "<b>a", "xxxx", "5");
    expect_marked(t, "a<", " x", "2 0");
    tokenizer_free(t);
}

Test(special, the_first_token_of_a_vocabulary_may_be_special_too)
{
    struct tokenizer *t = vocab_from(
        "model str gpt2\npre str gpt-2\ntokens strs <a>b < > a b <a>\ntoken_type i32s 4 1 1 1 1 3\nmerges strs");
    expect_marked(t, "<a>b", "    ", "0");
    expect_marked(t, "<a>b", "   x", "0"); // user-defined, and longer than the control token before the mark
    expect_marked(t, "<a>a", "   x", "5 3");
    tokenizer_free(t);
}

Test(special, some_models_drop_the_white_space_beside_special_tokens)
{
    struct tokenizer *t = vocab_from("general.name str Phi-3-mini\nmodel str llama\ntokens strs <unk> <s> </s> a " MARK
                                     " <|user|> " MARK "a\ntoken_type i32s 2 3 3 1 1 4 1\nscores f32s 0 0 0 0 0 0 1");
    expect_ids(t, "a<|user|> \n\ta", 0, "6 5 6");
    expect_ids(t, "</s>  a", TOKENIZE_SPECIAL, "2 6");
    expect_ids(t, "<s> a", TOKENIZE_SPECIAL, "1 4 6");
    expect_ids(t, "a</s> \t", TOKENIZE_SPECIAL, "6 2");
    tokenizer_free(t);
    t = vocab_from(
        "model str gpt2\npre str jina-v2-de\ntokens strs a <mask> \\xC4\\xA0\ntoken_type i32s 1 3 1\nmerges strs");
    expect_ids(t, "a  <mask> a", TOKENIZE_SPECIAL, "0 1 2 0");
    expect_ids(t, "  <mask>", TOKENIZE_SPECIAL, "1");
    tokenizer_free(t);
}

// Of white space, and of nothing else: the bytes beside it, by their letters, are U+0101 to U+010F.
Test(special, of_the_bytes_before_a_mask_only_white_space_is_dropped)
{
    struct tokenizer *t = vocab_from("model str gpt2\npre str jina-v2-de\ntokens strs a <mask> \\xC4\\xA0 \\xC4\\x88 "
                                     "\\xC4\\x8E \\xC4\\x9F\ntoken_type i32s 1 3 1 1 1 1\nmerges strs");
    expect_ids(t, "a\t\n\v\f\r <mask>", TOKENIZE_SPECIAL, "0 1");
    expect_ids(t, "\x08<mask>", TOKENIZE_SPECIAL, "3 1");
    expect_ids(t, "\x0E<mask>", TOKENIZE_SPECIAL, "4 1");
    expect_ids(t, "\x1F<mask>", TOKENIZE_SPECIAL, "5 1");
    tokenizer_free(t);
}

Test(special, names_of_models_decide_which_mask_drops_white_space)
{
    static const struct {
        const char *keys, *mask, *want;
    } cases[] = {
        {"pre str jina-v2-de", "<mask>", "0 1"},
        {"pre str jina-v2-es", "<mask>", "0 1"},
        {"pre str jina-v2-code", "<mask>", "0 1"},
        {"pre str gpt-2\ngeneral.architecture str nomic-bert-moe", "<mask>", "0 1"},
        {"pre str gpt-2\ngeneral.architecture str jina-bert-v3", "<mask>", "0 1"},
        {"pre str gpt-2\ngeneral.architecture str jina-bert-v2", "<mask>", "0 2 1"},
        {"pre str gpt-2\ngeneral.name str Modern-BERT\\slarge", "[MASK]", "0 1"},
        {"pre str gpt-2\ngeneral.name str Modern-BERT\\slarge", "<mask>", "0 2 1"},
        {"pre str gpt-2\ngeneral.name str PHI3", "<mask>", "0 2 1"}, // drops it behind
        {"pre str gpt-2\ngeneral.name str BERT", "[MASK]", "0 2 1"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char recipe[300], text[32];
        snprintf(recipe, sizeof recipe,
                 "model str gpt2\n%s\ntokens strs a %s \\xC4\\xA0\ntoken_type i32s 1 3 1\nmerges strs", cases[i].keys,
                 cases[i].mask);
        snprintf(text, sizeof text, "a %s", cases[i].mask);
        struct tokenizer *t = vocab_from(recipe);
        const char *got = ids_of(t, str_from(text), TOKENIZE_SPECIAL);
        cr_expect_str_eq(got, cases[i].want, "case %zu: %s", i, got);
        tokenizer_free(t);
    }
}

// --- roles ---

Test(roles, ids_come_from_the_file_then_from_habit_then_from_names)
{
    struct tokenizer *t =
        vocab_from("model str gpt2\npre str gpt-2\ntokens strs a <s> </s> <|eot_id|> <|fim_prefix|> <unk>\n"
                   "merges strs\nbos_token_id u32 1\neos_token_id u32 2\nunknown_token_id u32 5\n"
                   "padding_token_id u32 4294967295\nmask_token_id i32 -1");
    cr_expect_eq(tokenizer_role(t, TOKEN_BOS), 1);
    cr_expect_eq(tokenizer_role(t, TOKEN_EOS), 2);
    cr_expect_eq(tokenizer_role(t, TOKEN_UNK), 5);
    cr_expect_eq(tokenizer_role(t, TOKEN_EOT), 3);
    cr_expect_eq(tokenizer_role(t, TOKEN_FIM_PRE), 4);
    cr_expect_eq(tokenizer_role(t, TOKEN_PAD), -1);
    cr_expect_eq(tokenizer_role(t, TOKEN_MASK), -1);
    cr_expect_eq(tokenizer_role(t, TOKEN_EOM), -1);
    cr_expect_eq(tokenizer_attr(t, 3), TOKEN_CONTROL, "a token with a role by its name is a control token");
    cr_expect_not(tokenizer_adds_bos(t));
    cr_expect_not(tokenizer_adds_eos(t));
    cr_expect(tokenizer_pre_is_known(t));
    tokenizer_free(t);
    t = vocab_from(SPM_RECIPE);
    cr_expect_eq(tokenizer_role(t, TOKEN_UNK), 0);
    cr_expect_eq(tokenizer_role(t, TOKEN_BOS), 1);
    cr_expect_eq(tokenizer_role(t, TOKEN_EOS), 2);
    cr_expect(tokenizer_adds_bos(t));
    tokenizer_free(t);
}

Test(roles, the_end_of_an_answer)
{
    struct tokenizer *t = vocab_from("model str gpt2\npre str gpt-2\ntokens strs a <|im_end|> </s> <|end|> <turn|> x\n"
                                     "merges strs\neos_token_id u32 5");
    for (int32_t id = 0; id < 6; id++)
        cr_expect_eq(tokenizer_is_end(t, id), id != 0, "token %d", id);
    cr_expect_not(tokenizer_is_end(t, -1));
    cr_expect_not(tokenizer_is_end(t, 6));
    tokenizer_free(t);
    // where a channel may end without the turn
    t = vocab_from("model str gpt2\npre str gpt-4o\ntokens strs a <|end|> <|return|> <|call|>\nmerges strs");
    cr_expect_not(tokenizer_is_end(t, 1));
    cr_expect(tokenizer_is_end(t, 2) && tokenizer_is_end(t, 3));
    tokenizer_free(t);
    // where </s> is a word like others
    t = vocab_from("model str gemma4\ntokens strs <bos> </s> <turn|> <|tool_response> < /s> /s\nmerges strs\n"
                   "bos_token_id u32 0\ntoken_type i32s 3 1 3 3 1 1 1");
    cr_expect(!tokenizer_is_end(t, 1) && tokenizer_is_end(t, 2) && tokenizer_is_end(t, 3));
    cr_expect_eq(tokenizer_attr(t, 1), TOKEN_NORMAL);
    tokenizer_free(t);
}

// In gpt-oss by any two names of each kind; one of them alone changes nothing.
Test(roles, a_message_ends_without_the_turn_where_both_kinds_of_ends_are_known)
{
    static const struct {
        const char *tokens;
        bool ends;
    } cases[] = {
        {"<|end|> <|return|> <|call|>", false},
        {"<|end|> <|return|> <|calls|>", false},
        {"<|end|> <|flush|> <|calls|>", false},
        {"<|end|> <|flush|> <|call|>", false},
        {"<|end|> <|call|>", true},
        {"<|end|> <|calls|>", true},
        {"<|end|> <|return|>", true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char recipe[200];
        snprintf(recipe, sizeof recipe, "model str gpt2\npre str gpt-4o\ntokens strs %s\nmerges strs", cases[i].tokens);
        struct tokenizer *t = vocab_from(recipe);
        cr_expect_eq(tokenizer_is_end(t, 0), cases[i].ends, "%s", cases[i].tokens);
        cr_expect(tokenizer_is_end(t, 1), "%s", cases[i].tokens);
        tokenizer_free(t);
    }
    // where there is none to unmark
    struct tokenizer *t =
        vocab_from("model str gpt2\npre str gpt-4o\ntokens strs <|return|> <|call|> <|tool_response>\nmerges strs");
    cr_expect(tokenizer_is_end(t, 0) && tokenizer_is_end(t, 1) && tokenizer_is_end(t, 2));
    tokenizer_free(t);
}

// Of two keys for one role the older name counts where the newer one is missing, or says that there is none.
Test(roles, older_names_of_keys_count_where_the_newer_ones_give_no_id)
{
    struct tokenizer *t = vocab_from("model str gpt2\npre str gpt-2\ntokens strs a b c d\nmerges strs\n"
                                     "fim_pre_token_id u32 1\nprefix_token_id u32 2\nsuffix_token_id u32 3\n"
                                     "fim_mid_token_id i32 -1\nmiddle_token_id u32 2");
    cr_expect_eq(tokenizer_role(t, TOKEN_FIM_PRE), 1);
    cr_expect_eq(tokenizer_role(t, TOKEN_FIM_SUF), 3);
    cr_expect_eq(tokenizer_role(t, TOKEN_FIM_MID), 2);
    tokenizer_free(t);
}

// Nothing can be added that the vocabulary does not have.
Test(roles, a_token_that_is_not_there_is_not_added)
{
    struct tokenizer *t =
        vocab_from("model str gpt2\npre str gpt-2\ntokens strs a b\nmerges strs\nadd_bos_token bool 1\n"
                   "add_eos_token bool 1");
    cr_expect_not(tokenizer_adds_bos(t) || tokenizer_adds_eos(t));
    expect_ids(t, "a", TOKENIZE_BOS, "0");
    tokenizer_free(t);
    t = vocab_from("model str bert\ntokens strs [UNK] [CLS] [SEP]\ncls_token_id u32 1");
    cr_expect(tokenizer_adds_bos(t) && !tokenizer_adds_eos(t));
    tokenizer_free(t);
    t = vocab_from("model str bert\ntokens strs [UNK] [CLS] [SEP]\nseperator_token_id u32 2");
    cr_expect(!tokenizer_adds_bos(t) && tokenizer_adds_eos(t));
    tokenizer_free(t);
}

Test(roles, what_is_put_around_a_text_follows_the_file)
{
    struct tokenizer *t =
        vocab_from("model str gpt2\npre str llama-bpe\ntokens strs a b c\nmerges strs\nbos_token_id u32 1\n"
                   "eos_token_id u32 2");
    expect_ids(t, "a", TOKENIZE_BOS, "1 0");
    tokenizer_free(t);
    t = vocab_from(
        "model str gpt2\npre str llama-bpe\ntokens strs a b c\nmerges strs\nbos_token_id u32 1\neos_token_id u32 2\n"
        "add_bos_token bool 0\nadd_eos_token bool 1");
    expect_ids(t, "a", TOKENIZE_BOS, "0 2");
    expect_ids(t, "a", 0, "0");
    cr_expect(!tokenizer_adds_bos(t) && tokenizer_adds_eos(t));
    tokenizer_free(t);
}

// --- tokens, and the way back ---

Test(decode, pieces_are_the_bytes_that_tokens_stand_for)
{
    struct tokenizer *t = vocab_from(SPM_RECIPE);
    cr_expect_eq(tokenizer_n_vocab(t), 14);
    cr_expect_eq(tokenizer_kind(t), TOKENIZER_SPM);
    cr_expect(str_equal_z(tokenizer_text(t, 11), SPACE "a"));
    cr_expect(str_equal_z(tokenizer_piece(t, 11, false), " a"));
    cr_expect(str_equal_z(tokenizer_piece(t, 3, false), "!"));
    cr_expect(str_equal_z(tokenizer_piece(t, 2, false), ""));
    cr_expect(str_equal_z(tokenizer_piece(t, 2, true), "</s>"));
    cr_expect(str_equal_z(tokenizer_piece(t, -1, true), "") && str_equal_z(tokenizer_piece(t, 14, true), ""));
    cr_expect_eq(tokenizer_find(t, STR_LIT(SPACE "a")), 11);
    cr_expect_eq(tokenizer_find(t, STR_LIT(" a")), -1);
    cr_expect_eq(tokenizer_find(t, STR_LIT("")), -1);
    cr_expect(tokenizer_text(t, -1).len == 0 && tokenizer_text(t, 14).len == 0);
    cr_expect(tokenizer_pre_is_known(t), "there is none that could be unknown");
    cr_expect_eq(tokenizer_attr(t, 0), TOKEN_UNKNOWN);
    cr_expect_eq(tokenizer_attr(t, 3), TOKEN_BYTE);
    cr_expect_eq(tokenizer_attr(t, 99), TOKEN_UNUSED);
    tokenizer_free(t);
}

Test(decode, a_stream_drops_the_space_that_encoding_put_in_front)
{
    struct tokenizer *t = vocab_from(SPM_RECIPE);
    struct detokenizer d = detokenizer_begin(t, false);
    cr_expect(str_equal_z(detokenizer_next(&d, 1), ""));
    cr_expect(str_equal_z(detokenizer_next(&d, 11), "a"));
    cr_expect(str_equal_z(detokenizer_next(&d, 11), " a"));
    d = detokenizer_begin(t, false);
    d.at_start = false; // a text that goes on
    cr_expect(str_equal_z(detokenizer_next(&d, 11), " a"));
    tokenizer_free(t);
}

Test(decode, control_tokens_are_written_on_demand)
{
    struct tokenizer *t = vocab_from(SPM_RECIPE);
    static const int32_t ids[] = {1, 11, 2, 0, 11};
    static const struct {
        unsigned flags;
        const char *text;
    } cases[] = {{0, "aa"}, {DETOKENIZE_CLEAN, "aa"}, {DETOKENIZE_SPECIAL, "<s>a</s><unk>a"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct error err = {0};
        char *text;
        size_t len;
        cr_assert_eq(tokenizer_decode(t, ids, COUNT_OF(ids), cases[i].flags, &text, &len, &err), 0, "%s", err.text);
        cr_expect_str_eq(text, cases[i].text, "flags %u: '%s'", cases[i].flags, text);
        cr_expect_eq(len, strlen(cases[i].text));
        free(text);
    }
    tokenizer_free(t);
}

// Unused tokens are nothing: the space behind them is still the first.
Test(decode, an_unused_token_is_no_beginning)
{
    struct tokenizer *t =
        vocab_from("model str llama\ntokens strs <unk> <s> </s> " MARK "a pad\ntoken_type i32s 2 3 3 1 5\n"
                   "scores f32s 0 0 0 0 0");
    struct detokenizer d = detokenizer_begin(t, true);
    cr_expect(str_equal_z(detokenizer_next(&d, 4), ""));
    cr_expect(str_equal_z(detokenizer_next(&d, 3), "a"));
    cr_expect(str_equal_z(detokenizer_next(&d, 4), ""));
    cr_expect(str_equal_z(detokenizer_next(&d, 3), " a"));
    tokenizer_free(t);
}

// Each way to be cleaned, and what is near it.
Test(decode, cleaning_removes_the_spaces_of_its_list_alone)
{
    static const char *const cases[][2] = {
        {"a ?", "a?"},      {"a !", "a!"},    {"a .", "a."},      {"a ,b", "a,b"},   {"a  .", "a ."},
        {" .", "."},        {".", "."},       {"a.b", "a.b"},     {"a ;", "a ;"},    {"a ' b", "a'b"},
        {"a ' ", "a'"},     {"' b", "' b"},   {"a' b", "a' b"},   {"a 'b", "a 'b"},  {"a '", "a '"},
        {"a 's", "a's"},    {"a 'm", "a'm"},  {"a 're", "a're"},  {"a 've", "a've"}, {"a 'rs", "a 'rs"},
        {"a 'vs", "a 'vs"}, {"a 'r", "a 'r"}, {"a 'be", "a 'be"}, {"'s", "'s"},      {"a's", "a's"},
    };
    struct tokenizer *t =
        vocab_from("model str gpt2\npre str gpt-2\ntokens strs a b e m r s v . , ! ? ; ' \\xC4\\xA0\nmerges strs");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct token_list ids = {0};
        struct error err = {0};
        char *text;
        size_t len;
        cr_assert_eq(tokenizer_encode(t, str_from(cases[i][0]), 0, &ids, &err), 0, "%s", err.text);
        cr_assert_eq(tokenizer_decode(t, ids.ids, ids.n, DETOKENIZE_CLEAN, &text, &len, &err), 0);
        cr_expect_str_eq(text, cases[i][1], "'%s' became '%s'", cases[i][0], text);
        cr_expect_eq(len, strlen(text));
        free(text);
        token_list_free(&ids);
    }
    tokenizer_free(t);
}

Test(decode, spaces_are_cleaned_where_file_and_caller_want_it)
{
    struct tokenizer *t =
        vocab_from("model str bert\ntokens strs [UNK] " MARK "it " MARK "' s " MARK "s " MARK ", " MARK "ve\n"
                   "token_type i32s 2 1 1 1 1 1 1");
    static const int32_t ids[] = {1, 2, 3, 5, 1, 2, 4, 5, 1, 2, 6};
    struct error err = {0};
    char *text;
    size_t len;
    cr_assert_eq(tokenizer_decode(t, ids, COUNT_OF(ids), 0, &text, &len, &err), 0);
    cr_expect_str_eq(text, " it 's , it ' s , it ' ve", "'%s'", text);
    free(text);
    cr_assert_eq(tokenizer_decode(t, ids, COUNT_OF(ids), DETOKENIZE_CLEAN, &text, &len, &err), 0);
    cr_expect_str_eq(text, " it's, it's, it've", "'%s'", text);
    cr_expect_eq(len, strlen(text));
    free(text);
    tokenizer_free(t);
}

// --- files without a vocabulary, and with one that is not known ---

Test(loading, a_file_without_a_vocabulary_loads_and_refuses_to_encode)
{
    static const char *const recipes[] = {"general.architecture str llama", "model str none",
                                          "model str no_vocab\ntokens strs a a"};
    for (size_t i = 0; i < COUNT_OF(recipes); i++) {
        struct tokenizer *t = vocab_from(recipes[i]);
        cr_expect_eq(tokenizer_kind(t), TOKENIZER_NONE);
        cr_expect_eq(tokenizer_n_vocab(t), 0);
        cr_expect_eq(tokenizer_role(t, TOKEN_BOS), -1);
        cr_expect_eq(tokenizer_find(t, STR_LIT("a")), -1);
        cr_expect_eq(tokenizer_piece(t, 0, true).len, 0);
        expect_ids(t, "a", 0, "error: the model has no tokenizer (tokenizer.ggml.model); it takes token ids only");
        tokenizer_free(t);
    }
    tokenizer_free(NULL);
}

Test(loading, an_unknown_pre_tokenizer_can_be_read_as_the_default_one)
{
    struct vocab_file f;
    struct tokenizer *t;
    struct error err = {0};
    vocab_begin(&f);
    vocab_put_recipe(&f, "model str gpt2\npre str newest\ntokens strs a b\nmerges strs");
    cr_assert_eq(vocab_load(&f, TOKENIZER_ANY_PRE, &t, &err), 0, "%s", err.text);
    cr_expect_not(tokenizer_pre_is_known(t));
    cr_expect(str_equal_z(tokenizer_pre(t), "newest"));
    expect_ids(t, "ab", 0, "0 1");
    tokenizer_free(t);
}
