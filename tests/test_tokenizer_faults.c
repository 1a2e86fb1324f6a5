// Tests failing allocations: each allocation while loading, encoding and decoding fails once, the N-th one for every N.
// The error must be E_MEMORY, or the result unchanged, and nothing may leak.
#include "tests/memory_faults.h"
#include "tests/vocab_recipe.h"

#include <criterion/criterion.h>

// --- every allocation in turn ---

static const char *const recipes[] = {
    "model str gpt2\npre str llama-bpe\ntokens strs a b ab <x> \\xC4\\xA0\ntoken_type i32s 1 1 1 4 1\nmerges strs "
    "a\\sb\n"
    "bos_token_id u32 3",
    "model str llama\ntokens strs <unk> <s> </s> a b ab \\xE2\\x96\\x81\ntoken_type i32s 2 3 3 1 1 1 1\n"
    "scores f32s 0 0 0 0 0 1 0",
    "model str bert\ntokens strs [UNK] [CLS] [SEP] \\xE2\\x96\\x81a b\ntoken_type i32s 2 3 3 1 1\nunknown_token_id u32 "
    "0",
    "model str gemma4\ntokens strs a b ab <0x0A> \\xE2\\x96\\x81\ntoken_type i32s 1 1 1 6 1\nmerges strs a\\sb\n"
    "bos_token_id u32 0",
};

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
            vocab_put_recipe(&f, recipes[r]);
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
        struct tokenizer *t = vocab_from(recipes[r]);
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
