// Tests failing allocations: each allocation while loading, encoding and decoding fails once, the N-th one for every N,
// and so does each place for a token. The error must be E_MEMORY, or the result unchanged, and nothing may leak.
#include "engine/text/encoder.h"
#include "tests/arena_faults.h"
#include "tests/vocab_recipe.h"

#include <criterion/criterion.h>

// --- places for tokens and words, which are mostly there already ---

static struct fault place_fault = {.after = -1};

static bool no_place(struct error *err)
{
    return fault_hits(&place_fault, ENOMEM) && fail(err, E_MEMORY, "no place") != 0;
}

WRAP(int, token_list_push, (struct token_list * list, int32_t id, struct error *err))
{
    return no_place(err) ? -1 : __real_token_list_push(list, id, err);
}

WRAP(int, token_list_reserve, (struct token_list * list, size_t n, struct error *err))
{
    return no_place(err) ? -1 : __real_token_list_reserve(list, n, err);
}

WRAP(int, scratch_reserve, (struct scratch * scratch, size_t n, struct error *err))
{
    return no_place(err) ? -1 : __real_scratch_reserve(scratch, n, err);
}

// --- every allocation in turn ---

// A vocabulary of each kind. <x> is a special token, and what they cannot spell is unknown.
static const char *const recipes[] = {
    "model str gpt2\npre str llama-bpe\ntokens strs a b ab <x> \\xC4\\xA0 <unk> ba\ntoken_type i32s 1 1 1 4 1 2 1\n"
    "merges strs a\\sb\nbos_token_id u32 3\nunknown_token_id u32 5\neos_token_id u32 3\nadd_eos_token bool 1",
    "model str llama\ntokens strs <unk> <x> </s> a b ab \\xE2\\x96\\x81\ntoken_type i32s 2 3 3 1 1 1 1\n"
    "scores f32s 0 0 0 0 0 1 0",
    "model str bert\ntokens strs [UNK] <x> [SEP] \\xE2\\x96\\x81a b\ntoken_type i32s 2 3 3 1 1\nunknown_token_id u32 0\n"
    "cls_token_id u32 1\nseperator_token_id u32 2",
    "model str gemma4\ntokens strs a b ab <x> <0x0A> \\xE2\\x96\\x81 \\x0A\\x0A <unk>\ntoken_type i32s 1 1 1 4 6 1 1 2\n"
    "merges strs a\\sb\nbos_token_id u32 3\nunknown_token_id u32 7",
    "model str gpt2\npre str kimi-k2\ntokens strs a b ab <x> \\xC4\\xA0 <unk>\ntoken_type i32s 1 1 1 4 1 2\n"
    "unknown_token_id u32 5",
    "model str t5\ntokens strs <pad> </s> <unk> <x> a b ab \\xE2\\x96\\x81\ntoken_type i32s 3 3 2 4 1 1 1 1\n"
    "scores f32s 0 0 0 0 -1 -1 -1 -1\nprecompiled_charsmap u8s 4 0 0 0 0 0 0 0 97 0",
    "model str rwkv\ntokens strs <unk> <x> a b ab \\s z\ntoken_type i32s 2 4 1 1 1 1 1\nunknown_token_id u32 0",
    NULL, // PLaMo 2
};

static const char *recipe_of(size_t r)
{
    static char plamo2[8192];
    if (recipes[r] != NULL)
        return recipes[r];
    int at = snprintf(plamo2, sizeof plamo2, "model str plamo2\nbos_token_id u32 0\ntokens strs <x> a ab");
    for (int i = 0; i < 256; i++)
        at += snprintf(plamo2 + at, sizeof plamo2 - (size_t)at, " <0x%02X>", (unsigned)i);
    at += snprintf(plamo2 + at, sizeof plamo2 - (size_t)at, "\ntoken_type i32s 4 1 1");
    for (int i = 0; i < 256; i++)
        at += snprintf(plamo2 + at, sizeof plamo2 - (size_t)at, " 6");
    at += snprintf(plamo2 + at, sizeof plamo2 - (size_t)at, "\nscores f32s");
    for (int i = 0; i < 259; i++)
        at += snprintf(plamo2 + at, sizeof plamo2 - (size_t)at, " -1");
    return plamo2;
}

// Letters and spaces, with one word of a thousand.
static void make_text(char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        text[i] = i >= 1000 && i < 2000 ? "ab"[i % 2] : "ab a"[i % 4];
}

Test(tokenizer_faults, loading_without_memory_says_so_and_leaks_nothing)
{
    for (size_t r = 0; r < COUNT_OF(recipes); r++) {
        long n = 0;
        do {
            struct vocab_file f;
            struct tokenizer *t;
            struct error err = {0};
            vocab_begin(&f);
            vocab_put_recipe(&f, recipe_of(r));
            struct gguf *g = NULL;
            char path[32];
            int fd = vocab_memory_file(&f, path);
            cr_assert_eq(gguf_open(&g, path, GGUF_METADATA_ONLY, &err), 0, "%s", err.text);
            long live = heap_live;
            fault_arm(&memory_fault, n++);
            int status = tokenizer_load(&t, g, 0, &err);
            fault_disarm(&memory_fault);
            cr_assert_eq(status, memory_fault.fired ? -1 : 0, "allocation %ld", n);
            cr_assert(!memory_fault.fired || err.code == E_MEMORY, "allocation %ld: %s", n, err.text);
            tokenizer_free(t);
            cr_assert_eq(heap_live, live, "allocation %ld: %ld blocks leaked", n, heap_live - live);
            gguf_close(g);
            close(fd);
        } while (memory_fault.fired);
        cr_expect_gt(n, 2);
    }
}

Test(tokenizer_faults, encoding_without_memory_says_so_or_goes_on_and_leaks_nothing)
{
    static char text[4000];
    make_text(text, sizeof text);
    for (size_t r = 0; r < COUNT_OF(recipes); r++) {
        struct tokenizer *t = vocab_from(recipe_of(r));
        struct token_list want = {0};
        struct error err = {0};
        cr_assert_eq(tokenizer_encode(t, (struct str){text, sizeof text}, TOKENIZE_BOS, &want, &err), 0, "%s",
                     err.text);
        long n = 0;
        int refusals = 0;
        do {
            struct token_list ids = {0};
            cr_assert_eq(token_list_push(&ids, 7, &err), 0);
            long live = heap_live;
            fault_arm(&memory_fault, n++);
            int status = tokenizer_encode(t, (struct str){text, sizeof text}, TOKENIZE_BOS, &ids, &err);
            fault_disarm(&memory_fault);
            refusals += status != 0;
            if (status != 0)
                cr_assert(memory_fault.fired && err.code == E_MEMORY && ids.n == 1, "allocation %ld: %s", n, err.text);
            else
                cr_assert(ids.n == want.n + 1 && memcmp(ids.ids + 1, want.ids, want.n * sizeof *want.ids) == 0,
                          "allocation %ld", n);
            cr_assert_eq(ids.ids[0], 7);
            cr_assert_eq(heap_live, live, "allocation %ld: %ld blocks leaked", n, heap_live - live);
            token_list_free(&ids);
        } while (memory_fault.fired);
        cr_expect_gt(refusals, 0);

        char *back;
        size_t len;
        fault_arm(&memory_fault, 0);
        cr_expect_eq(tokenizer_decode(t, want.ids, want.n, 0, &back, &len, &err), -1);
        fault_disarm(&memory_fault);
        cr_expect_eq(err.code, E_MEMORY);
        token_list_free(&want);
        tokenizer_free(t);
    }
}

// Words short and long, of which some occur again, special tokens, and characters that are unknown.
static const char places_text[] =
    "ab a b <x> abab zab\n\nab <x>  ab"
    "abababababababababababababababababababababababababababababababababababababababababab ab a b "
    "abababababababababababababababababababababababababababababababababababababababababab ab a b "
    "<x>baab ab a bab  z ab <x> ab  abab ab a b";

Test(tokenizer_faults, encoding_without_a_place_for_a_token_says_so_and_changes_nothing)
{
    cr_assert_gt(sizeof places_text, 256u, "long enough for the cache of words");
    for (size_t r = 0; r < COUNT_OF(recipes); r++) {
        struct tokenizer *t = vocab_from(recipe_of(r));
        struct error err = {0};
        long n = 0;
        do {
            struct token_list ids = {0};
            cr_assert_eq(__real_token_list_push(&ids, 7, &err), 0);
            long live = heap_live;
            fault_arm(&place_fault, n++);
            int status = tokenizer_encode(t, STR_LIT(places_text), TOKENIZE_BOS | TOKENIZE_SPECIAL, &ids, &err);
            fault_disarm(&place_fault);
            cr_assert_eq(status, place_fault.fired ? -1 : 0, "kind %zu, place %ld: %s", r, n, err.text);
            cr_assert(!place_fault.fired || (err.code == E_MEMORY && ids.n == 1), "kind %zu, place %ld", r, n);
            cr_assert_eq(ids.ids[0], 7);
            cr_assert_leq(heap_live, live + 1, "kind %zu, place %ld", r, n);
            token_list_free(&ids);
        } while (place_fault.fired);
        cr_expect_gt(n, 50, "kind %zu: %ld places", r, n);
        tokenizer_free(t);
    }
}

// A word of more than 64 bytes that is a token must not become others for lack of memory.
Test(tokenizer_faults, a_long_word_that_is_a_token_is_not_encoded_as_another_without_memory)
{
    char word[101], recipe[400];
    memset(word, 'a', 100);
    word[100] = '\0';
    snprintf(recipe, sizeof recipe, "model str gpt2\npre str llama-bpe\ntokens strs a %s\nmerges strs", word);
    struct tokenizer *t = vocab_from(recipe);
    long n = 0;
    do {
        struct token_list ids = {0};
        struct error err = {0};
        fault_arm(&memory_fault, n++);
        int status = tokenizer_encode(t, (struct str){word, 100}, 0, &ids, &err);
        fault_disarm(&memory_fault);
        cr_assert(status == 0 ? ids.n == 1 && ids.ids[0] == 1 : err.code == E_MEMORY, "allocation %ld: %zu ids", n,
                  ids.n);
        token_list_free(&ids);
    } while (memory_fault.fired);
    cr_expect_geq(n, 3); // of the list, and of the word
    tokenizer_free(t);
}
