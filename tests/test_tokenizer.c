// Tests tokenizers of BPE and SentencePiece on made-up vocabularies: against the naive algorithm, for the way back to the
// text, on many threads, and on texts that make a quadratic algorithm slow. test_tokenizer_golden.c tests real
// vocabularies.
#include "engine/text/token_map.h"
#include "tests/token_expect.h"
#include "tests/stopwatch.h"

#include <pthread.h>

// --- byte-level vocabularies ---

// The character that a byte is spelled as.
static size_t put_letter(unsigned char byte, char out[4])
{
    uint32_t others = 0x100;
    for (int b = 0; b < 256; b++) {
        bool prints = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
        if (b == byte)
            return (size_t)utf8_encode(prints ? (uint32_t)b : others, out);
        others += !prints;
    }
    abort();
}

enum { MAX_TOKENS = 900, MAX_SPELLING = 80 };

// A vocabulary of all bytes and of what random merges make of the first `letters` ones from 'a' and the space.
struct byte_level {
    char token[MAX_TOKENS][MAX_SPELLING]; // in the file's spelling
    int left[MAX_TOKENS], right[MAX_TOKENS], n;
};

static int find_token(const struct byte_level *v, const char *spelled)
{
    for (int i = 0; i < v->n; i++)
        if (strcmp(v->token[i], spelled) == 0)
            return i;
    return -1;
}

static void make_byte_level(struct byte_level *v, int n_merges, int letters, uint64_t *seed)
{
    v->n = 256;
    for (int b = 0; b < 256; b++) {
        size_t len = put_letter((unsigned char)b, v->token[b]);
        v->token[b][len] = '\0';
        v->left[b] = v->right[b] = -1;
    }
    for (int tries = 0; v->n < 256 + n_merges && tries < 100000; tries++) {
        int parts[2];
        for (int k = 0; k < 2; k++) {
            size_t pick = random_below(seed, (size_t)(letters + 1 + v->n - 256));
            parts[k] = pick < (size_t)letters    ? 'a' + (int)pick
                       : pick == (size_t)letters ? ' '
                                                 : 256 + (int)pick - letters - 1;
        }
        char joined[2 * MAX_SPELLING];
        snprintf(joined, sizeof joined, "%s%s", v->token[parts[0]], v->token[parts[1]]);
        if (strlen(joined) >= MAX_SPELLING || find_token(v, joined) >= 0)
            continue;
        snprintf(v->token[v->n], MAX_SPELLING, "%s", joined);
        v->left[v->n] = parts[0];
        v->right[v->n++] = parts[1];
    }
}

static struct tokenizer *load_byte_level(const struct byte_level *v, const char *pre, const char *more)
{
    struct vocab_file f;
    vocab_begin(&f);
    vocab_key_str(&f, "model", "gpt2");
    vocab_key_str(&f, "pre", pre);
    vocab_key_array(&f, "tokens", GGUF_STRING, (uint64_t)v->n);
    for (int i = 0; i < v->n; i++)
        vocab_put_string(&f, v->token[i], strlen(v->token[i]));
    vocab_key_array(&f, "merges", GGUF_STRING, (uint64_t)v->n - 256);
    for (int i = 256; i < v->n; i++) {
        char line[2 * MAX_SPELLING];
        snprintf(line, sizeof line, "%s %s", v->token[v->left[i]], v->token[v->right[i]]);
        vocab_put_string(&f, line, strlen(line));
    }
    vocab_put_recipe(&f, more);
    struct tokenizer *t;
    struct error err = {0};
    cr_assert_eq(vocab_load(&f, 0, &t, &err), 0, "%s", err.text);
    return t;
}

// The naive algorithm: merges the pair of least rank, the leftmost, until there is none. Ranks are the order of the
// tokens.
static size_t merge_naively(const struct byte_level *v, int *ids, size_t n)
{
    for (;;) {
        int best = -1;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (int m = 256; m < (best < 0 ? v->n : best); m++)
                if (v->left[m] == ids[i] && v->right[m] == ids[i + 1]) {
                    best = m;
                    at = i;
                }
        if (best < 0)
            return n;
        ids[at] = best;
        memmove(ids + at + 1, ids + at + 2, (--n - at - 1) * sizeof *ids);
    }
}

Test(bpe, merges_as_the_naive_algorithm_does_words_short_and_long)
{
    uint64_t seed = 7;
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    struct byte_level *v = malloc(sizeof *v);
    for (int round = 0; round < 12; round++) {
        int letters = 1 + (int)random_below(&seed, 4);
        make_byte_level(v, 10 << (round % 5), letters, &seed);
        struct tokenizer *t = load_byte_level(v, "gpt-2", "general.name str test");
        for (int k = 0; k < 60; k++) {
            // one word of letters, with or without a space before it
            char text[400];
            int ids[400];
            size_t n = 1 + random_below(&seed, k % 3 == 0 ? 300 : 40), space = random_below(&seed, 2);
            for (size_t i = 0; i < n; i++)
                text[i] = i < space ? ' ' : (char)('a' + random_below(&seed, (size_t)letters));
            if (n == space)
                continue;
            for (size_t i = 0; i < n; i++)
                ids[i] = (unsigned char)text[i];
            size_t n_ids = merge_naively(v, ids, n);
            struct token_list got = {0};
            struct error err = {0};
            cr_assert_eq(tokenizer_encode(t, (struct str){text, n}, 0, &got, &err), 0, "%s", err.text);
            cr_expect(got.n == n_ids && memcmp(got.ids, ids, n_ids * sizeof *ids) == 0, "'%.*s'", (int)n, text);
            token_list_free(&got);
        }
        tokenizer_free(t);
    }
    free(v);
}

Test(bpe, any_bytes_come_back)
{
    static const char *const pres[] = {"gpt-2",        "llama-bpe", "qwen2",       "qwen35",    "gpt-4o",
                                       "tekken",       "kimi-k2",   "deepseek-v3", "starcoder", "falcon",
                                       "deepseek-llm", "default",   "superbpe",    "jais-2",    "viking"};
    uint64_t seed = 11;
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    struct byte_level *v = malloc(sizeof *v);
    make_byte_level(v, 300, 5, &seed);
    for (size_t p = 0; p < COUNT_OF(pres); p++) {
        struct tokenizer *t = load_byte_level(v, pres[p], "general.name str test");
        for (int round = 0; round < 100; round++) {
            char text[1200];
            size_t n = random_below(&seed, 600), len = 0;
            for (size_t i = 0; i < n; i++) {
                uint64_t kind = random_below(&seed, 4);
                if (kind == 0)
                    text[len++] = (char)random_next(&seed);
                else if (kind == 1)
                    text[len++] = "abcde  \n1"[random_below(&seed, 9)];
                else
                    len += (size_t)utf8_encode((uint32_t)random_below(&seed, kind == 2 ? 0x250 : 0xD800), text + len);
                if (len + 8 > sizeof text)
                    break;
            }
            expect_text(t, (struct str){text, len}, 0, (struct str){text, len});
        }
        tokenizer_free(t);
    }
    free(v);
}

Test(bpe, a_word_met_again_has_the_tokens_it_had)
{
    uint64_t seed = 13;
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    struct byte_level *v = malloc(sizeof *v);
    make_byte_level(v, 200, 4, &seed);
    struct tokenizer *t = load_byte_level(v, "gpt-2", "general.name str test");
    // few words many times, more than the cache has room for: the list must be that of the words one by one
    struct token_list all = {0}, one = {0};
    struct error err = {0};
    size_t len = 0, words = 30000;
    char *text = malloc(words * 16);
    for (size_t i = 0; i < words; i++) {
        size_t start = len;
        text[len++] = ' ';
        for (size_t n = 1 + random_below(&seed, 7); n > 0; n--)
            text[len++] = (char)('a' + random_below(&seed, 5));
        cr_assert_eq(tokenizer_encode(t, (struct str){text + start, len - start}, 0, &one, &err), 0);
    }
    cr_assert_eq(tokenizer_encode(t, (struct str){text, len}, 0, &all, &err), 0);
    cr_expect(all.n == one.n && memcmp(all.ids, one.ids, all.n * sizeof *all.ids) == 0);
    token_list_free(&all);
    token_list_free(&one);
    free(text);
    tokenizer_free(t);
    free(v);
}

// Word i of `len` bytes: a space and letters.
static void make_word(uint32_t i, size_t len, char *word)
{
    memset(word, 'a', len);
    word[0] = ' ';
    for (int k = 1; k <= 5; k++, i /= 32)
        word[k] = "abcdefghijklmnopqrstuvwxyzABCDEF"[i % 32];
}

// Finds two words with one tag (32 bits of the hash) and one place in a table of 64: of some 700,000 words two have both.
static void find_collision(size_t len, char *a, char *b)
{
    enum { SEEN = 1 << 20, TRIES = 1 << 25 };
    struct seen {
        uint64_t key;
        uint32_t i;
    } *seen = calloc(SEEN, sizeof *seen);
    cr_assert_not_null(seen);
    for (uint32_t i = 1; i < TRIES; i++) {
        make_word(i, len, a);
        uint64_t hash = token_hash(a, len, token_hash_seed()), key = hash >> 32 << 6 | (hash & 63);
        struct seen *s = &seen[key % SEEN];
        if (s->i > 0 && s->key == key) {
            make_word(s->i, len, b);
            free(seen);
            return;
        }
        *s = (struct seen){key, i};
    }
    cr_assert_fail("no collision among %d words", TRIES);
}

// A table of tokens knows the first word alone.
static void find_in_map(char *known, const char *other, size_t len)
{
    struct spellings s = {known, (uint32_t[]){0, (uint32_t)len}, 1};
    struct token_map map;
    struct arena arena = {0};
    cr_assert_eq(token_map_new(&map, &s, &arena, NULL), 0);
    cr_assert_eq(token_map_add(&map, 0), -1);
    cr_expect_eq(token_map_find(&map, known, len), 0);
    cr_expect_eq(token_map_find(&map, other, len), -1, "'%.*s' is not '%.*s'", (int)len, other, (int)len, known);
    arena_free(&arena);
}

Test(bpe, words_of_equal_hash_are_told_apart)
{
    static const size_t lengths[] = {6, 8, 12};
    uint64_t seed = 15;
    struct byte_level *v = malloc(sizeof *v);
    make_byte_level(v, 200, 4, &seed);
    struct tokenizer *t = load_byte_level(v, "gpt-2", "general.name str test");
    for (size_t k = 0; k < COUNT_OF(lengths); k++) {
        char words[2][12], text[512];
        struct token_list all = {0}, one = {0};
        struct error err = {0};
        size_t len = 0;
        find_collision(lengths[k], words[0], words[1]);
        find_in_map(words[0], words[1], lengths[k]);
        for (int i = 0; len < 300; i++) { // long enough for a cache, which has 64 places
            memcpy(text + len, words[i % 2], lengths[k]);
            len += lengths[k];
            cr_assert_eq(tokenizer_encode(t, (struct str){words[i % 2], lengths[k]}, 0, &one, &err), 0);
        }
        cr_assert_eq(tokenizer_encode(t, (struct str){text, len}, 0, &all, &err), 0);
        cr_expect(all.n == one.n && memcmp(all.ids, one.ids, all.n * sizeof *all.ids) == 0, "'%.*s' and '%.*s'",
                  (int)lengths[k], words[0], (int)lengths[k], words[1]);
        token_list_free(&all);
        token_list_free(&one);
    }
    tokenizer_free(t);
    free(v);
}

static const char letters_recipe[] = "model str gpt2\npre str %s\ntokens strs a b c ab bc abc <x> \\xC4\\xA0\n"
                                     "token_type i32s 1 1 1 1 1 1 3 1\nmerges strs b\\sc a\\sb";

static struct tokenizer *letters_vocab(const char *pre)
{
    char recipe[400];
    snprintf(recipe, sizeof recipe, letters_recipe, pre);
    return vocab_from(recipe);
}

Test(bpe, ranks_decide_unless_the_whole_word_is_a_token_and_merges_are_ignored)
{
    struct tokenizer *t = letters_vocab("gpt-2");
    expect_ids(t, "abc", 0, "0 4"); // b c merge first, and then nothing makes abc
    tokenizer_free(t);
    t = letters_vocab("llama-bpe");
    expect_ids(t, "abc", 0, "5");
    expect_ids(t, "abcb", 0, "0 4 1");
    tokenizer_free(t);
}

Test(bpe, control_tokens_are_not_made_of_text)
{
    // <x> is one word, and llama-bpe takes whole words for tokens
    struct tokenizer *t =
        vocab_from("model str gpt2\npre str llama-bpe\ntokens strs < > <> !\ntoken_type i32s 1 1 3 1\n"
                   "merges strs <\\s>");
    expect_ids(t, "<>", 0, "0 1");
    expect_ids(t, "<>", TOKENIZE_SPECIAL, "2");
    tokenizer_free(t);
    // nor is one of a single byte, in any kind of spelling
    static const char *const models[] = {"gpt2\npre str gpt-2", "gpt2\npre str llama-bpe", "gemma4"};
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        char recipe[200];
        snprintf(recipe, sizeof recipe,
                 "model str %s\ntokens strs a < b <unk>\ntoken_type i32s 1 3 1 2\nmerges strs\n"
                 "bos_token_id u32 1\nunknown_token_id u32 3",
                 models[i]);
        t = vocab_from(recipe);
        expect_ids(t, "a<b", 0, "0 3 2");
        expect_ids(t, "a<b", TOKENIZE_SPECIAL, "0 1 2");
        tokenizer_free(t);
    }
}

Test(bpe, a_byte_that_has_no_token_is_unknown_or_an_error)
{
    struct tokenizer *t = letters_vocab("gpt-2");
    expect_ids(t, "axb", 0, "error: the vocabulary cannot spell the byte 0x78 and has no unknown token");
    tokenizer_free(t);
    t = vocab_from("model str gpt2\npre str gpt-2\ntokens strs a b <unk>\nmerges strs\nunknown_token_id u32 2");
    expect_ids(t, "axb", 0, "0 2 1");
    tokenizer_free(t);
}

Test(bpe, of_equal_merges_the_first_counts)
{
    struct tokenizer *t =
        vocab_from("model str gpt2\npre str gpt-2\ntokens strs a b c ab bc\nmerges strs a\\sb b\\sc a\\sb");
    expect_ids(t, "abc", 0, "3 2"); // by the last one it would be 0 4
    tokenizer_free(t);
}

Test(bpe, merges_that_make_control_tokens_are_left_out)
{
    struct tokenizer *t = vocab_from("model str gpt2\npre str gpt-2\ntokens strs a b c ab bc <unk> u\n"
                                     "token_type i32s 1 1 1 3 2 2 1\nmerges strs a\\sb b\\sc");
    expect_ids(t, "abc", 0, "0 1 2");
    tokenizer_free(t);
}

// More than 64 bytes, which are spelled on the heap.
Test(bpe, a_long_word_that_is_a_token_is_taken_as_a_whole)
{
    char word[101], recipe[400];
    memset(word, 'a', 100);
    word[100] = '\0';
    snprintf(recipe, sizeof recipe, "model str gpt2\npre str llama-bpe\ntokens strs a %s\nmerges strs", word);
    struct tokenizer *t = vocab_from(recipe);
    cr_expect_str_eq(ids_of(t, str_from(word), 0), "1");
    cr_expect_str_eq(ids_of(t, (struct str){word, 3}, 0), "0 0 0");
    tokenizer_free(t);
}

Test(bpe, an_error_leaves_the_list_as_it_was)
{
    struct tokenizer *t = letters_vocab("gpt-2");
    struct token_list ids = {0};
    struct error err = {0};
    cr_assert_eq(tokenizer_encode(t, STR_LIT("ab"), 0, &ids, &err), 0);
    cr_expect_eq(tokenizer_encode(t, STR_LIT("cab?"), 0, &ids, &err), -1);
    cr_expect_eq(err.code, E_MODEL);
    cr_expect_eq(ids.n, 1);
    cr_expect_eq(ids.ids[0], 3);
    token_list_free(&ids);
    tokenizer_free(t);
}

Test(bpe, kimi_files_without_merges_merge_what_makes_a_token)
{
    struct tokenizer *t = vocab_from("model str gpt2\npre str kimi-k2\ntokens strs a b c ab bc abc");
    expect_ids(t, "abc", 0, "5"); // ab has the lowest id, then ab c makes abc
    expect_ids(t, "bcab", 0, "4 3");
    tokenizer_free(t);
    t = vocab_from("model str gpt2\npre str kimi-k2\ntokens strs a b c ab abc\ntoken_type i32s 1 1 1 1 3");
    expect_ids(t, "abc", 0, "3 2"); // a control token is not merged
    tokenizer_free(t);
}

Test(bpe, escaped_kind_spells_spaces_and_bytes_as_sentencepiece_does)
{
    struct tokenizer *t =
        vocab_from("model str gemma4\ntokens strs <0x0A> <0xC3> <0xA9> a b " MARK " " MARK "a \\x0A\\x0A ab\n"
                   "token_type i32s 6 6 6 1 1 1 1 1 1\nmerges strs " MARK "\\sa a\\sb\n"
                   "bos_token_id u32 3");
    expect_ids(t, "ab ab", 0, "8 6 4"); // the merge with the space comes first
    expect_ids(t, "\xC3\xA9", 0, "1 2");
    expect_ids(t, "a\nb", 0, "3 0 4");
    expect_ids(t, "a\n\nb", 0, "3 7 4");       // a run of newlines that is a token
    expect_ids(t, "a\n\n\nb", 0, "3 0 0 0 4"); // and one that is not
    expect_ids(t, "a", TOKENIZE_BOS, "3 3");
    expect_ids(t, "a\xFF", 0, "error: the vocabulary cannot spell the byte 0xFF and has no unknown token");
    expect_text(t, STR_LIT("ab  \n a\xC3\xA9"), 0, STR_LIT("ab  \n a\xC3\xA9"));
    tokenizer_free(t);
}

// No buffer is as long as the text, so its length is checked before anything is read.
Test(bpe, a_text_longer_than_memory_is_refused)
{
    struct tokenizer *t = letters_vocab("gpt-2");
    struct token_list ids = {0};
    struct error err = {0};
    cr_expect_eq(tokenizer_encode(t, (struct str){"a", SIZE_MAX}, 0, &ids, &err), -1);
    cr_expect_eq(err.code, E_MEMORY);
    cr_expect_str_eq(err.text, "a text of 18446744073709551615 bytes is too long");
    tokenizer_free(t);
}

Test(lists, of_more_tokens_than_can_be_are_refused)
{
    struct token_list ids = {0};
    struct error err = {0};
    cr_assert_eq(token_list_push(&ids, 5, &err), 0);
    cr_expect_eq(token_list_reserve(&ids, SIZE_MAX, &err), -1); // the number overflows
    cr_expect_str_eq(err.text, "too many tokens");
    cr_expect_eq(token_list_reserve(&ids, SIZE_MAX / 4, &err), -1); // the bytes do
    cr_expect_eq(err.code, E_MEMORY);
    cr_expect_str_eq(err.text, "too many tokens");
    cr_expect(ids.n == 1 && ids.ids[0] == 5);
    token_list_free(&ids);
}

// --- SentencePiece ---

Test(spm, the_highest_score_merges_first_and_the_leftmost_of_equals)
{
    struct tokenizer *t = vocab_from(SPM_RECIPE);
    expect_ids(t, "abc", 0, "11 9");    // _abc: bc, then _a
    expect_ids(t, "aaa", 0, "10 12 5"); // _aaa: the left aa of two
    expect_ids(t, "b", 0, "10 6");
    expect_ids(t, "", 0, "");
    tokenizer_free(t);
}

Test(spm, unknown_characters_are_bytes_then_unknown)
{
    struct tokenizer *t = vocab_from(SPM_RECIPE);
    expect_ids(t, "!\n", 0, "10 3 4");
    expect_ids(t, "\xC3\xA9", 0, "10 0 0");
    expect_ids(t, "\xFF", 0, "10 0");
    tokenizer_free(t);
}

Test(spm, scores_may_be_integers)
{
    struct tokenizer *t = vocab_from("model str llama\ntokens strs <unk> <s> </s> a b ab ba\n"
                                     "scores i32s 0 0 0 -9 -9 -2 -1\nadd_space_prefix bool 0");
    expect_ids(t, "aba", 0, "3 6");
    tokenizer_free(t);
}

// Without tokens such as <0xC3>, or beside them.
Test(spm, bytes_may_be_spelled_as_themselves)
{
    struct tokenizer *t =
        vocab_from("model str llama\ntokens strs <unk> <s> </s> a \\xC3 \\xA9 <0xC3> \\xAA\n"
                   "token_type i32s 2 3 3 1 1 1 6 1\nscores f32s 0 0 0 0 0 0 0 0\nadd_space_prefix bool 0");
    expect_ids(t, "\xC3\xA9", 0, "6 5");
    expect_ids(t, "a\xC3\xAA\xC3\xAB", 0, "3 6 7 6 0");
    tokenizer_free(t);
    t = vocab_from("model str gemma4\ntokens strs a <unk> \\xC3 \\xA9\ntoken_type i32s 1 2 1 1\nmerges strs\n"
                   "bos_token_id u32 0\nunknown_token_id u32 1");
    expect_ids(t, "a\xC3\xA9\xFF", 0, "0 2 3 1");
    tokenizer_free(t);
}

// What a piece before it has left behind does not complete a character.
Test(spm, half_a_character_at_the_end_is_its_bytes)
{
    struct tokenizer *t =
        vocab_from("model str llama\ntokens strs <unk> <s> </s> \\xE2\\x96\\x81 <0xE2> <0x82> \\xE2\\x82\\x81\n"
                   "token_type i32s 2 3 3 1 6 6 1\nscores f32s 0 0 0 0 0 0 0\nadd_space_prefix bool 0");
    expect_ids(t, "\xE2\x82\x81", 0, "6");
    expect_ids(t, " </s>\xE2\x82", TOKENIZE_SPECIAL, "3 2 4 5");
    tokenizer_free(t);
}

Test(spm, a_character_that_spells_a_control_token_is_unknown)
{
    struct tokenizer *t = vocab_from("model str llama\ntokens strs <unk> <s> </s> a b\ntoken_type i32s 2 3 3 1 3\n"
                                     "scores f32s 0 0 0 0 0\nadd_space_prefix bool 0");
    expect_ids(t, "ab", 0, "3 0");
    tokenizer_free(t);
}

// Spaces without a token are three bytes each: a word of 60,000 has more tokens than the cache of words can count. Longer
// words are not cached either.
Test(spm, words_too_long_for_the_cache_have_the_tokens_of_short_ones)
{
    enum { LONG = 70000 };
    struct tokenizer *t =
        vocab_from("model str llama\ntokens strs <unk> <s> </s> a <0xE2> <0x96> <0x81>\n"
                   "token_type i32s 2 3 3 1 6 6 6\nscores f32s 0 0 0 0 0 0 0\nadd_space_prefix bool 0");
    static char text[2 * LONG + 2];
    for (size_t n = 30000; n <= LONG; n += LONG - 30000) {
        struct token_list ids = {0};
        struct error err = {0};
        memset(text, ' ', sizeof text);
        text[n] = text[2 * n + 1] = 'a';
        cr_assert_eq(tokenizer_encode(t, (struct str){text, 2 * n + 2}, 0, &ids, &err), 0, "%s", err.text);
        cr_assert_eq(ids.n, 2 * (3 * n + 1));
        for (size_t i = 0; i < ids.n; i++) {
            size_t at = i % (3 * n + 1);
            cr_assert_eq(ids.ids[i], at == 3 * n ? 3 : 4 + (int)(at % 3), "token %zu", i);
        }
        token_list_free(&ids);
    }
    tokenizer_free(t);
}

Test(spm, a_space_comes_before_the_text_and_behind_special_tokens)
{
    struct tokenizer *t = vocab_from(SPM_RECIPE);
    expect_ids(t, "b", TOKENIZE_BOS, "1 10 6");
    expect_ids(t, " b", 0, "10 10 6");
    expect_ids(t, "b</s>b", TOKENIZE_SPECIAL, "10 6 2 10 6");
    expect_ids(t, "", TOKENIZE_BOS, "1");
    expect_text(t, STR_LIT("b a</s>b"), TOKENIZE_SPECIAL, STR_LIT("b a</s>b"));
    expect_text(t, STR_LIT("  b a"), 0, STR_LIT("  b a"));
    tokenizer_free(t);
    char recipe[1000];
    snprintf(recipe, sizeof recipe, "%s\nadd_space_prefix bool 0\nadd_bos_token bool 0\nadd_eos_token bool 1",
             SPM_RECIPE);
    t = vocab_from(recipe);
    expect_ids(t, "b", TOKENIZE_BOS, "6 2");
    tokenizer_free(t);
}

Test(spm, control_and_byte_tokens_are_not_made_of_text)
{
    struct tokenizer *t = vocab_from("model str llama\ntokens strs <unk> <s> </s> < s > <s s> <0x21> 0x21> <0\n"
                                     "token_type i32s 2 3 3 1 1 1 1 1 6 1 1\nscores f32s 0 9 9 0 0 0 1 1 9 1 1\n"
                                     "add_space_prefix bool 0");
    expect_ids(t, "<s>", 0, "6 5");
    expect_ids(t, "<s>", TOKENIZE_SPECIAL, "1");
    tokenizer_free(t);
}

struct scored {
    char text[40];
    float score;
};

// The naive algorithm on a spelled text: at[i] is where symbol i starts, at[n] the end.
static size_t merge_spm_naively(const struct scored *tokens, size_t n_tokens, const char *text, size_t *at, size_t n)
{
    for (;;) {
        double best = -1e9;
        size_t left = n;
        for (size_t i = 0; i + 1 < n; i++)
            for (size_t k = 0; k < n_tokens; k++) {
                size_t len = at[i + 2] - at[i];
                bool same = strlen(tokens[k].text) == len && memcmp(tokens[k].text, text + at[i], len) == 0;
                if (same && (double)tokens[k].score > best) {
                    best = (double)tokens[k].score;
                    left = i;
                }
            }
        if (left == n)
            return n;
        memmove(at + left + 1, at + left + 2, (n - left - 1) * sizeof *at);
        n--;
    }
}

// Random tokens of a, b, spaces and newlines, some reaching over spaces, so that texts are cut in pieces in some
// vocabularies and not in others.
static size_t make_scored(struct scored *tokens, size_t max, bool glued, uint64_t *seed)
{
    static const char *const letters[] = {"a", "b", "\n", SPACE};
    size_t n = 0;
    for (; n < 4; n++) {
        snprintf(tokens[n].text, sizeof tokens[n].text, "%s", letters[n]);
        tokens[n].score = -100;
    }
    for (size_t tries = 0; tries < 1000 && n < max; tries++) {
        char joined[80];
        const char *a = tokens[random_below(seed, n)].text, *b = tokens[random_below(seed, n)].text;
        snprintf(joined, sizeof joined, "%s%s", a, b);
        bool space_inside =
            strlen(joined) > 3 && strstr(joined + 1, SPACE) != NULL && strncmp(joined, SPACE SPACE, 6) != 0;
        bool line_inside = strchr(joined, '\n') != NULL && strspn(joined, "\n") != strlen(joined);
        bool known = false;
        for (size_t i = 0; i < n; i++)
            known |= strcmp(tokens[i].text, joined) == 0;
        if (known || strlen(joined) >= sizeof tokens[n].text || (!glued && (space_inside || line_inside)))
            continue;
        snprintf(tokens[n].text, sizeof tokens[n].text, "%s", joined);
        tokens[n++].score = (float)random_below(seed, 20);
    }
    return n;
}

static struct tokenizer *load_scored(const struct scored *tokens, size_t n)
{
    struct vocab_file f;
    struct tokenizer *t;
    struct error err = {0};
    vocab_begin(&f);
    vocab_put_recipe(&f, "model str llama\nadd_space_prefix bool 0\nbos_token_id u32 0\neos_token_id u32 0");
    vocab_key_array(&f, "tokens", GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        vocab_put_string(&f, tokens[i].text, strlen(tokens[i].text));
    vocab_key_array(&f, "scores", GGUF_F32, n);
    for (size_t i = 0; i < n; i++)
        vocab_put(&f, &tokens[i].score, 4);
    cr_assert_eq(vocab_load(&f, 0, &t, &err), 0, "%s", err.text);
    return t;
}

Test(spm, merges_as_the_naive_algorithm_does_on_the_whole_text)
{
    uint64_t seed = 17;
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    struct scored tokens[60];
    for (int round = 0; round < 20; round++) {
        size_t n_tokens = make_scored(tokens, 8 + random_below(&seed, 50), round % 2 == 0, &seed);
        struct tokenizer *t = load_scored(tokens, n_tokens);
        for (int k = 0; k < 30; k++) {
            char text[400], spelled[1300];
            size_t at[401], n = random_below(&seed, k % 4 == 0 ? 390 : 50), len = 0;
            for (size_t i = 0; i < n; i++) {
                text[i] = "aabb  \n"[random_below(&seed, 7)];
                at[i] = len;
                len += (size_t)snprintf(spelled + len, sizeof spelled - len, text[i] == ' ' ? SPACE : "%c", text[i]);
            }
            at[n] = len;
            size_t n_left = merge_spm_naively(tokens, n_tokens, spelled, at, n);
            struct token_list got = {0};
            struct error err = {0};
            cr_assert_eq(tokenizer_encode(t, (struct str){text, n}, 0, &got, &err), 0, "%s", err.text);
            bool same = got.n == n_left;
            for (size_t i = 0; i < n_left && same; i++) {
                struct str s = tokenizer_text(t, got.ids[i]);
                same = s.len == at[i + 1] - at[i] && memcmp(s.data, spelled + at[i], s.len) == 0;
            }
            cr_expect(same, "round %d: '%.*s'", round, (int)n, text);
            token_list_free(&got);
        }
        tokenizer_free(t);
    }
}

// --- threads ---

struct job {
    const struct tokenizer *t;
    const char *text;
    size_t len;
    struct token_list ids;
    int failures;
};

static void *encode_often(void *arg)
{
    struct job *job = arg;
    struct token_list again = {0};
    for (int i = 0; i < 50; i++) {
        again.n = 0;
        job->failures += tokenizer_encode(job->t, (struct str){job->text, job->len}, TOKENIZE_BOS, &again, NULL) != 0;
        job->failures += again.n != job->ids.n || memcmp(again.ids, job->ids.ids, again.n * sizeof *again.ids) != 0;
    }
    token_list_free(&again);
    return NULL;
}

Test(threads, many_encode_at_once_and_get_the_same)
{
    enum { THREADS = 4 };
    uint64_t seed = 19;
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    struct byte_level *v = malloc(sizeof *v);
    make_byte_level(v, 200, 6, &seed);
    struct tokenizer *t = load_byte_level(v, "llama-bpe", "bos_token_id u32 3");
    char text[5000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "abcdef  \n"[random_below(&seed, 9)];
    struct job jobs[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){.t = t, .text = text + 100 * i, .len = sizeof text - 100 * (size_t)i};
        cr_assert_eq(tokenizer_encode(t, (struct str){jobs[i].text, jobs[i].len}, TOKENIZE_BOS, &jobs[i].ids, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, encode_often, &jobs[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(jobs[i].failures, 0);
        token_list_free(&jobs[i].ids);
    }
    tokenizer_free(t);
    free(v);
}

// --- time ---

// Repeats a part up to a number of bytes and encodes it within a time limit. A quadratic algorithm would take minutes.
static void expect_quick(const struct tokenizer *t, const char *part, size_t size, unsigned flags)
{
    size_t n = strlen(part);
    char *text = malloc(size);
    for (size_t i = 0; i < size; i++)
        text[i] = part[i % n];
    struct token_list ids = {0};
    struct error err = {0};
    double start = seconds();
    cr_assert_eq(tokenizer_encode(t, (struct str){text, size}, flags, &ids, &err), 0, "%s", err.text);
    double took = seconds() - start;
    cr_expect_lt(took, 5 * patience(), "%.1f s for %zu bytes of '%s'", took, size, part);
    fprintf(stderr, "%zu bytes of '%s': %.0f ms\n", size, part, took * 1e3);
    token_list_free(&ids);
    free(text);
}

Test(speed, one_word_of_a_megabyte_is_not_quadratic, .timeout = 120)
{
    uint64_t seed = 23;
    struct byte_level *v = malloc(sizeof *v);
    make_byte_level(v, 400, 2, &seed);
    struct tokenizer *t = load_byte_level(v, "gpt-2", "general.name str test");
    expect_quick(t, "a", 1 << 20, 0);
    expect_quick(t, "ab", 1 << 20, 0);
    expect_quick(t, "aab", 1 << 20, 0);
    expect_quick(t, " ", 1 << 20, 0);
    tokenizer_free(t);
    free(v);
    struct scored tokens[60];
    size_t n = make_scored(tokens, 60, true, &seed);
    t = load_scored(tokens, n);
    expect_quick(t, "a", 1 << 20, 0);
    expect_quick(t, "ab ", 1 << 20, 0);
    expect_quick(t, "a\nb", 1 << 20, 0);
    tokenizer_free(t);
    t = vocab_from(WPM_RECIPE);
    expect_quick(t, "hello", 1 << 20, 0);
    expect_quick(t, "able", 1 << 20, 0);
    expect_quick(t, "\xCC\x81", 1 << 20, 0);
    tokenizer_free(t);
}

Test(speed, near_misses_of_special_tokens_are_not_quadratic, .timeout = 120)
{
    char recipe[3000];
    int n = snprintf(recipe, sizeof recipe, "model str gpt2\npre str gpt-2\ntokens strs < a b ");
    for (int i = 0; i < 500; i++)
        recipe[n++] = '<';
    snprintf(recipe + n, sizeof recipe - (size_t)n, "a\ntoken_type i32s 1 1 1 4\nmerges strs");
    struct tokenizer *t = vocab_from(recipe);
    expect_quick(t, "<", 1 << 18, TOKENIZE_SPECIAL);
    expect_quick(t, "<<<<<<<<<b", 1 << 18, TOKENIZE_SPECIAL);
    tokenizer_free(t);
}
