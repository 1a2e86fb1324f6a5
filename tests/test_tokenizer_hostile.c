// Tests invalid vocabularies: one case for each check, with the exact message and the key that it names, so that no
// other check can have failed. Then mutations of valid files, and vocabularies made to be slow.
#include "tests/vocab_recipe.h"
#include "tests/stopwatch.h"

#include <criterion/criterion.h>

struct refusal {
    const char *recipe; // @ stands before the key in which the error lies
    const char *text;
};

#define BPE "model str gpt2\npre str gpt-2\n"
#define SPM "model str llama\n"
#define TOKENS "tokens strs a b ab\n"
#define MERGES "merges strs a\\sb\n"
#define UGM "model str t5\n"
#define PLAMO2 "model str plamo2\n"
#define X16 "xxxxxxxxxxxxxxxx"
#define X64 X16 X16 X16 X16

// clang-format off
static const struct refusal cases[] = {
    // the kind
    {"@model u32 1", "key 'tokenizer.ggml.model': has type u32, wanted a string"},
    {"@model str rwkv2\n" TOKENS, "key 'tokenizer.ggml.model': 'rwkv2' is not one of llama, gpt2, gemma4, bert, t5, plamo2, rwkv"},
    {"@model str \\e\n" TOKENS, "key 'tokenizer.ggml.model': '' is not one of llama, gpt2, gemma4, bert, t5, plamo2, rwkv"},
    {TOKENS MERGES, "key 'tokenizer.ggml.model': missing, as there are tokens"},
    {"model str gpt2\n@pre str new\\x1B[2J\n" TOKENS MERGES,
     "key 'tokenizer.ggml.pre': 'new\\x1B[2J' is not known; --any-pre reads it as 'default'"},
    {"model str gpt2\n@pre u32 7\n" TOKENS MERGES, "key 'tokenizer.ggml.pre': has type u32, wanted a string"},
    {"@model str " X64 "x\n" TOKENS,
     "key 'tokenizer.ggml.model': '" X64 "' is not one of llama, gpt2, gemma4, bert, t5, plamo2, rwkv"},
    {"model str gpt2\n@pre str " X64 "x\n" TOKENS MERGES,
     "key 'tokenizer.ggml.pre': '" X64 "' is not known; --any-pre reads it as 'default'"},
    // tokens
    {BPE MERGES, "key 'tokenizer.ggml.tokens': missing"},
    {BPE "@tokens str a\n" MERGES, "key 'tokenizer.ggml.tokens': has type string, wanted an array of string"},
    {BPE "@tokens u32s 1 2\n" MERGES, "key 'tokenizer.ggml.tokens': is an array of u32, wanted an array of string"},
    {BPE "@tokens strs\n" MERGES, "key 'tokenizer.ggml.tokens': no tokens"},
    {BPE "@tokens strs a b \\e\n" MERGES, "key 'tokenizer.ggml.tokens': element 2 is empty"},
    {BPE "@tokens strs a b ab b\n" MERGES, "key 'tokenizer.ggml.tokens': elements 1 and 3 are both 'b'"},
    // types
    {BPE TOKENS "@token_type i32s 1 1\n" MERGES, "key 'tokenizer.ggml.token_type': 2 elements for 3 tokens"},
    {BPE TOKENS "@token_type f32s 1 1 1\n" MERGES, "key 'tokenizer.ggml.token_type': is an array of f32, wanted an array of i32"},
    {BPE TOKENS "@token_type i32s 1 7 1\n" MERGES, "key 'tokenizer.ggml.token_type': element 1: no type has the number 7"},
    {BPE TOKENS "@token_type i32s 1 1 -1\n" MERGES, "key 'tokenizer.ggml.token_type': element 2: no type has the number -1"},
    {SPM "scores f32s 0 0\ntoken_type i32s 1 6\n@tokens strs a <0x4>",
     "key 'tokenizer.ggml.tokens': element 1: '<0x4>' is of type byte, but not from <0x00> to <0xFF>"},
    {SPM "scores f32s 0 0\ntoken_type i32s 1 6\n@tokens strs a <0x4g>",
     "key 'tokenizer.ggml.tokens': element 1: '<0x4g>' is of type byte, but not from <0x00> to <0xFF>"},
    {SPM "scores f32s 0 0\ntoken_type i32s 1 6\n@tokens strs a <0x4\\x01>",
     "key 'tokenizer.ggml.tokens': element 1: '<0x4\\x01>' is of type byte, but not from <0x00> to <0xFF>"},
    {SPM "scores f32s 0 0\ntoken_type i32s 1 6\n@tokens strs a <0x4f>",
     "key 'tokenizer.ggml.tokens': element 1: '<0x4f>' is of type byte, but not from <0x00> to <0xFF>"},
    {SPM "scores f32s 0 0\ntoken_type i32s 1 6\n@tokens strs a <0x\\x001>",
     "key 'tokenizer.ggml.tokens': element 1: '<0x' is of type byte, but not from <0x00> to <0xFF>"},
    {SPM "scores f32s 0 0\ntoken_type i32s 1 6\n@tokens strs a <0x4\\x00>",
     "key 'tokenizer.ggml.tokens': element 1: '<0x4' is of type byte, but not from <0x00> to <0xFF>"},
    {SPM "scores f32s 0 0\ntoken_type i32s 1 6\n@tokens strs a <0x41]",
     "key 'tokenizer.ggml.tokens': element 1: '<0x41]' is of type byte, but not from <0x00> to <0xFF>"},
    {SPM "scores f32s 0 0\ntoken_type i32s 1 6\n@tokens strs a [0x41>",
     "key 'tokenizer.ggml.tokens': element 1: '[0x41>' is of type byte, but not from <0x00> to <0xFF>"},
    {SPM "scores f32s 0 0\ntoken_type i32s 1 6\n@tokens strs a " X64 "x",
     "key 'tokenizer.ggml.tokens': element 1: '" X64 "' is of type byte, but not from <0x00> to <0xFF>"},
    // scores
    {SPM TOKENS, "key 'tokenizer.ggml.scores': missing, as the model is SentencePiece"},
    {SPM TOKENS "@scores f32s 0 0", "key 'tokenizer.ggml.scores': 2 elements for 3 tokens"},
    {SPM TOKENS "@scores f32s 0 nan 0", "key 'tokenizer.ggml.scores': element 1 is not a number"},
    {SPM TOKENS "@scores strs 0 0 0", "key 'tokenizer.ggml.scores': is an array of string, wanted an array of f32"},
    // merges
    {BPE TOKENS, "key 'tokenizer.ggml.merges': missing, as the model is BPE"},
    {BPE TOKENS "@merges str a\\sb", "key 'tokenizer.ggml.merges': has type string, wanted an array of string"},
    {BPE TOKENS "@merges strs ab", "key 'tokenizer.ggml.merges': element 0: 'ab' is not two tokens with a space between"},
    {BPE TOKENS "@merges strs a\\sb \\e", "key 'tokenizer.ggml.merges': element 1: '' is not two tokens with a space between"},
    {BPE TOKENS "@merges strs \\sb", "key 'tokenizer.ggml.merges': element 0: ' b' is not two tokens with a space between"},
    {BPE TOKENS "@merges strs a\\s", "key 'tokenizer.ggml.merges': element 0: 'a ' is not two tokens with a space between"},
    {BPE TOKENS "@merges strs x\\sb", "key 'tokenizer.ggml.merges': element 0: 'x' is not in tokenizer.ggml.tokens"},
    {BPE TOKENS "@merges strs a\\sx", "key 'tokenizer.ggml.merges': element 0: 'x' is not in tokenizer.ggml.tokens"},
    {BPE TOKENS "@merges strs a\\sb b\\sa", "key 'tokenizer.ggml.merges': element 1: 'ba' is not in tokenizer.ggml.tokens"},
    {BPE TOKENS "@merges strs a\\sb\\sa", "key 'tokenizer.ggml.merges': element 0: 'b a' is not in tokenizer.ggml.tokens"},
    {BPE TOKENS "@merges strs " X64 "x",
     "key 'tokenizer.ggml.merges': element 0: '" X64 "' is not two tokens with a space between"},
    {BPE TOKENS "@merges strs a\\s" X64 "x",
     "key 'tokenizer.ggml.merges': element 0: '" X64 "' is not in tokenizer.ggml.tokens"},
    // Unigram: scores, and the table of replacements
    {UGM TOKENS, "key 'tokenizer.ggml.scores': missing, as the model is Unigram"},
    {UGM TOKENS "@scores i32s 0 0 0", "key 'tokenizer.ggml.scores': is an array of i32, wanted an array of f32"},
    {UGM TOKENS "@scores f32s 0 0", "key 'tokenizer.ggml.scores': 2 elements for 3 tokens"},
    {UGM TOKENS "@scores f32s 0 0 inf", "key 'tokenizer.ggml.scores': element 2 is not a finite number"},
    {UGM TOKENS "@scores f32s 0 -inf 0", "key 'tokenizer.ggml.scores': element 1 is not a finite number"},
    {UGM TOKENS "@scores f32s nan 0 0", "key 'tokenizer.ggml.scores': element 0 is not a finite number"},
    {UGM TOKENS "scores f32s 0 0 0\n@precompiled_charsmap f32s 0",
     "key 'tokenizer.ggml.precompiled_charsmap': is an array of f32, wanted an array of u8"},
    {UGM TOKENS "scores f32s 0 0 0\n@precompiled_charsmap u8s 0 0 0",
     "key 'tokenizer.ggml.precompiled_charsmap': units of 0 bytes in 3"},
    {UGM TOKENS "scores f32s 0 0 0\n@precompiled_charsmap u8s 4 0 0 0 0 0 0",
     "key 'tokenizer.ggml.precompiled_charsmap': units of 4 bytes in 7"},
    {UGM TOKENS "scores f32s 0 0 0\n@precompiled_charsmap u8s 252 255 255 255 0 0 0 0",
     "key 'tokenizer.ggml.precompiled_charsmap': units of 4294967292 bytes in 8"},
    {UGM TOKENS "scores f32s 0 0 0\n@precompiled_charsmap u8s 2 0 0 0 0 0 0 0",
     "key 'tokenizer.ggml.precompiled_charsmap': units of 2 bytes in 8"},
    {UGM TOKENS "scores f32s 0 0 0\n@precompiled_charsmap u8s 4 0 0 0 0 0 0 0 97",
     "key 'tokenizer.ggml.precompiled_charsmap': the last text does not end"},
    // PLaMo 2
    {PLAMO2 TOKENS, "key 'tokenizer.ggml.scores': a score for each of 3 tokens is wanted"},
    {PLAMO2 TOKENS "@scores f32s 0 0", "key 'tokenizer.ggml.scores': a score for each of 3 tokens is wanted"},
    {PLAMO2 TOKENS "@scores i32s 0 0 0", "key 'tokenizer.ggml.scores': is an array of i32, wanted an array of f32"},
    {PLAMO2 "scores f32s 0 0 0\n@" TOKENS, "key 'tokenizer.ggml.tokens': there is no token <0x00>"},
    // special ids and flags
    {BPE TOKENS MERGES "@bos_token_id u32 3", "key 'tokenizer.ggml.bos_token_id': 3 is not one of 3 tokens"},
    {BPE TOKENS MERGES "@eos_token_id u32 4294967294", "key 'tokenizer.ggml.eos_token_id': 4294967294 is not one of 3 tokens"},
    {BPE TOKENS MERGES "@unknown_token_id i32 -2", "key 'tokenizer.ggml.unknown_token_id': -2 is not one of 3 tokens"},
    {BPE TOKENS MERGES "@padding_token_id u64 18446744073709551615",
     "key 'tokenizer.ggml.padding_token_id': 18446744073709551615 is out of range"},
    {BPE TOKENS MERGES "@fim_sep_token_id u32 99", "key 'tokenizer.ggml.fim_sep_token_id': 99 is not one of 3 tokens"},
    {BPE TOKENS MERGES "@mask_token_id str a", "key 'tokenizer.ggml.mask_token_id': has type string, wanted an integer"},
    {BPE TOKENS MERGES "@add_bos_token u32 1", "key 'tokenizer.ggml.add_bos_token': has type u32, wanted a bool"},
    {BPE TOKENS MERGES "@add_eos_token str yes", "key 'tokenizer.ggml.add_eos_token': has type string, wanted a bool"},
    {BPE TOKENS MERGES "@add_space_prefix u8 1", "key 'tokenizer.ggml.add_space_prefix': has type u8, wanted a bool"},
    {BPE TOKENS MERGES "@remove_extra_whitespaces i32 1",
     "key 'tokenizer.ggml.remove_extra_whitespaces': has type i32, wanted a bool"},
    {BPE TOKENS MERGES "@normalizer.lowercase u32 1", "key 'tokenizer.ggml.normalizer.lowercase': has type u32, wanted a bool"},
    {BPE TOKENS MERGES "@normalizer.strip_accents f32 1",
     "key 'tokenizer.ggml.normalizer.strip_accents': has type f32, wanted a bool"},
    {BPE TOKENS MERGES "@general.name u32 1", "key 'general.name': has type u32, wanted a string"},
    {BPE TOKENS MERGES "@general.architecture u32 1", "key 'general.architecture': has type u32, wanted a string"},
};
// clang-format on

// The message without the path, which is another one each time, and with the byte of the key where there is one.
static void check(const struct refusal *c)
{
    struct vocab_file f;
    struct tokenizer *t;
    struct error err = {0};
    char want[ERR_TEXT];
    vocab_begin(&f);
    vocab_put_recipe(&f, c->recipe);
    uint64_t mark = f.mark;
    if (mark == ERR_NO_OFFSET)
        snprintf(want, sizeof want, ": %s", c->text);
    else
        snprintf(want, sizeof want, ": byte %llu: %s", (unsigned long long)mark, c->text);
    cr_expect_eq(vocab_load(&f, 0, &t, &err), -1, "must be refused:\n%s", c->recipe);
    cr_expect_null(t);
    cr_expect_eq(err.code, E_MODEL, "code %d:\n%s", (int)err.code, c->recipe);
    cr_expect_eq(err.offset, mark, "%s: offset %llu, not %llu", c->text, (unsigned long long)err.offset,
                 (unsigned long long)mark);
    const char *said = err.text + strcspn(err.text, ":");
    cr_expect(strncmp(err.text, "/proc/self/fd/", 14) == 0 && strcmp(said, want) == 0, "said\n  %s\nnot\n  FILE%s",
              err.text, want);
}

Test(tokenizer_hostile, each_wrong_vocabulary_is_refused_by_its_own_check)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check(&cases[i]);
}

// --- limits that no recipe can reach ---

static void expect_refusal(struct vocab_file *f, const char *part)
{
    struct tokenizer *t;
    struct error err = {0};
    cr_expect_eq(vocab_load(f, 0, &t, &err), -1);
    cr_expect_eq(err.code, E_MODEL);
    cr_expect_not_null(strstr(err.text, part), "%s", err.text);
    tokenizer_free(t);
}

Test(tokenizer_hostile, a_special_token_longer_than_the_limit_is_refused)
{
    static char text[600];
    memset(text, 'x', sizeof text);
    for (size_t len = 512; len <= 513; len++) {
        struct vocab_file f;
        vocab_begin(&f);
        vocab_put_recipe(&f, BPE "merges strs\ntoken_type i32s 1 4");
        vocab_key_array(&f, "tokens", GGUF_STRING, 2);
        vocab_put_string(&f, "a", 1);
        vocab_put_string(&f, text, len);
        if (len == 513) {
            expect_refusal(&f, "element 1: 513 bytes for a special token, limit 512");
            continue;
        }
        struct tokenizer *t;
        struct error err = {0};
        cr_assert_eq(vocab_load(&f, 0, &t, &err), 0, "%s", err.text);
        struct token_list ids = {0};
        cr_assert_eq(tokenizer_encode(t, (struct str){text, len}, 0, &ids, &err), 0);
        cr_expect(ids.n == 1 && ids.ids[0] == 1);
        token_list_free(&ids);
        tokenizer_free(t);
    }
}

Test(tokenizer_hostile, a_piece_of_a_word_longer_than_the_limit_is_refused)
{
    static char text[1100];
    struct vocab_file f;
    memset(text, 'x', sizeof text);
    vocab_begin(&f);
    vocab_put_recipe(&f, "model str bert");
    vocab_key_array(&f, "tokens", GGUF_STRING, 1);
    vocab_put_string(&f, text, 1025);
    expect_refusal(&f, "element 0: 1025 bytes for a piece of a word, limit 1024");
    vocab_begin(&f);
    vocab_put_recipe(&f, "model str rwkv");
    vocab_key_array(&f, "token_type", GGUF_I32, 1);
    vocab_put_u32(&f, 1);
    vocab_key_array(&f, "tokens", GGUF_STRING, 1);
    vocab_put_string(&f, text, 1025);
    expect_refusal(&f, "element 0: 1025 bytes for a token, limit 1024");
}

// The nodes of a trie have numbers of 24 bits. The longest words of a vocabulary of 16 MB need more.
Test(tokenizer_hostile, more_strings_than_a_trie_holds_are_refused)
{
    enum { TOKENS_OF_1024 = 16385 };
    char text[1024];
    struct vocab_file f;
    memset(text, 'x', sizeof text);
    vocab_begin(&f);
    vocab_put_recipe(&f, "model str bert");
    vocab_key_array(&f, "tokens", GGUF_STRING, TOKENS_OF_1024);
    for (int i = 0; i < TOKENS_OF_1024; i++) {
        snprintf(text, 8, "%07d", i);
        text[7] = 'x';
        vocab_put_string(&f, text, sizeof text);
    }
    expect_refusal(&f, "key 'tokenizer.ggml.tokens': 16778240 bytes of strings, limit 16777215");
}

// Of a path too long for a message the end is shown, from the beginning of a character on.
Test(tokenizer_hostile, the_error_of_a_file_with_a_long_path_has_the_end_of_it)
{
    char path[400] = "/tmp/quern-vocab-XXXXXX", want[ERR_TEXT];
    cr_assert_not_null(mkdtemp(path));
    const size_t folder = strlen(path);
    strcat(path, "/");
    for (int i = 0; i < 70; i++)
        strcat(path, "\xE6\x97\xA5");
    struct vocab_file f;
    vocab_begin(&f);
    vocab_put_recipe(&f, BPE MERGES);
    memcpy(f.data + 16, &f.n_keys, 8);
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(f.data, 1, f.size, file) == f.size && fclose(file) == 0);
    free(f.data);
    struct gguf *g;
    struct tokenizer *t;
    struct error err = {0};
    cr_assert_eq(gguf_open(&g, path, GGUF_METADATA_ONLY, &err), 0, "%s", err.text);
    unlink(path);
    cr_expect_eq(tokenizer_load(&t, g, 0, &err), -1);
    // 160 bytes begin with the last byte of a character
    snprintf(want, sizeof want, "...%s: key 'tokenizer.ggml.tokens': missing", path + strlen(path) - 159);
    cr_expect_str_eq(err.text, want, "%s", err.text);
    gguf_close(g);
    path[folder] = '\0';
    rmdir(path);
}

Test(tokenizer_hostile, a_token_too_long_to_derive_merges_from_is_refused)
{
    static char text[600];
    struct vocab_file f;
    memset(text, 'x', sizeof text);
    vocab_begin(&f);
    vocab_put_recipe(&f, "model str gpt2\npre str kimi-k2");
    vocab_key_array(&f, "tokens", GGUF_STRING, 1);
    vocab_put_string(&f, text, 513);
    expect_refusal(&f, "element 0: 513 bytes, limit 512 where merges are derived");
}

// --- mutants: whatever the bytes, an error or a tokenizer that works ---

static void use(const struct tokenizer *t)
{
    static const char text[] = "ab <x> ab\xFF\n\xC3\xA9 a  b <0x41>";
    struct token_list ids = {0};
    for (unsigned flags = 0; flags < 4; flags++) {
        if (tokenizer_encode(t, STR_LIT(text), flags, &ids, NULL) != 0)
            continue;
        for (size_t i = 0; i < ids.n; i++)
            cr_assert(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_n_vocab(t), "id %d", ids.ids[i]);
    }
    char *back;
    size_t len;
    cr_assert_eq(tokenizer_decode(t, ids.ids, ids.n, DETOKENIZE_SPECIAL | DETOKENIZE_CLEAN, &back, &len, NULL), 0);
    free(back);
    token_list_free(&ids);
    for (int r = 0; r < TOKEN_ROLE_COUNT; r++) {
        int32_t id = tokenizer_role(t, (enum token_role)r);
        cr_assert(id >= -1 && id < MAX(tokenizer_n_vocab(t), 0));
    }
}

Test(tokenizer_hostile, mutants_are_refused_or_work, .timeout = 120)
{
    static const char *const sound[] = {
        BPE "tokens strs a b ab <x> \\xC4\\xA0\ntoken_type i32s 1 1 1 4 1\n" MERGES
            "bos_token_id u32 3\neos_token_id u32 1",
        SPM "tokens strs <unk> <s> </s> <0x41> a b ab\ntoken_type i32s 2 3 3 6 1 1 1\nscores f32s 0 0 0 0 -1 -2 -3",
        "model str bert\ntokens strs [UNK] [SEP] a b ab\ntoken_type i32s 3 3 1 1 1\nunknown_token_id u32 0",
        "model str gemma4\ntokens strs a b ab <0x0A>\ntoken_type i32s 1 1 1 6\n" MERGES "bos_token_id u32 0",
    };
    uint64_t seed = 29;
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    int loaded = 0, rounds = 6000;
    for (int round = 0; round < rounds; round++) {
        struct vocab_file f;
        struct tokenizer *t;
        vocab_begin(&f);
        vocab_put_recipe(&f, sound[(size_t)round % COUNT_OF(sound)]);
        for (size_t n = 1 + random_below(&seed, 3); n > 0; n--) {
            size_t at = 24 + random_below(&seed, f.size - 24);
            f.data[at] = random_below(&seed, 2) ? (uint8_t)(f.data[at] ^ 1u << random_below(&seed, 8))
                                                : (uint8_t)random_next(&seed);
        }
        if (vocab_load(&f, TOKENIZER_ANY_PRE, &t, NULL) == 0) {
            loaded++;
            use(t);
        }
        tokenizer_free(t);
    }
    fprintf(stderr, "%d of %d mutants loaded\n", loaded, rounds);
    cr_expect_gt(loaded, rounds / 100);
}

// --- files made to be slow ---

Test(tokenizer_hostile, a_megabyte_of_vocabulary_loads_within_a_second)
{
    // many tiny tokens, and few long ones, in each kind
    static const char *const kinds[] = {BPE "merges strs", SPM, "model str bert", "model str gpt2\npre str kimi-k2"};
    for (size_t k = 0; k < 2 * COUNT_OF(kinds); k++) {
        struct vocab_file f;
        struct tokenizer *t;
        struct error err = {0};
        bool many = k % 2 == 0;
        size_t longest = k / 2 == 3 ? 512 : 1000;
        uint64_t n = many ? 90000 : 1000000 / longest;
        vocab_begin(&f);
        vocab_put_recipe(&f, kinds[k / 2]);
        vocab_key_array(&f, "tokens", GGUF_STRING, n);
        for (uint64_t i = 0; i < n; i++) {
            char text[1000];
            size_t len = (size_t)snprintf(text, sizeof text, "%05llx", (unsigned long long)i);
            if (!many) {
                memset(text + len, 'a', longest - len);
                len = longest;
            }
            vocab_put_string(&f, text, len);
        }
        vocab_key_array(&f, "scores", GGUF_F32, n);
        for (uint64_t i = 0; i < n; i++)
            vocab_put_u32(&f, 0);
        double start = seconds();
        cr_assert_eq(vocab_load(&f, 0, &t, &err), 0, "%s", err.text);
        double took = seconds() - start;
        fprintf(stderr, "kind %zu, %llu tokens: %.0f ms\n", k / 2, (unsigned long long)n, took * 1e3);
        cr_expect_lt(took, 3 * patience(), "kind %zu: %.2f s", k / 2, took);
        use(t);
        tokenizer_free(t);
    }
}
