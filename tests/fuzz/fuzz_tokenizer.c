// Fuzz target: any vocabulary on any text. What loads must encode to ids that exist, the same each time, and decode;
// where every byte has a token, the text must come back.
//
//   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -D_GNU_SOURCE tests/fuzz/fuzz_tokenizer.c engine/text/*.c
//       gguf/base.c gguf/dtype*.c gguf/gguf*.c -lm -o fuzz_tokenizer        (one line)
//   ./fuzz_tokenizer -max_len=4096 -rss_limit_mb=512 -timeout=5 CORPUS
// With -DFUZZ_SEEDS it is a program that writes a few sound inputs into the directory that it is given, to start from.
//
// An input is: kind, pre-tokenizer and flags, a byte each; then tokens, merges (both divided by 0xFD), types, scores
// and special ids (a byte each), with 0xFE between these five; then with the flag MAP a table of replaced text, and 0xFE;
// then the text. So mutations stay within a file that
// opens, and reach the checks behind.
#include "tests/vocab_recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ALL_BYTES = 1, NO_TYPES = 2, NO_SCORES = 4, NO_PREFIX = 8, ANY_PRE = 16, MAP = 32 }; // flags

static const char *const models[] = {"gpt2", "llama", "bert", "gemma4", "t5", "rwkv", "plamo2"};
static const char *const pres[] = {
#define PRE(name, family, flags) name,
#include "engine/text/pretokenizers.def"
#undef PRE
    "unheard-of"};

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_tokenizer: %s\n", what);
    abort();
}

// Cuts off what stands before the first `mark`; all of it when there is none.
static struct bytes cut(struct bytes *rest, uint8_t mark)
{
    const uint8_t *end = rest->size > 0 ? memchr(rest->data, mark, rest->size) : NULL;
    struct bytes part = {rest->data, end != NULL ? (size_t)(end - rest->data) : rest->size};
    *rest =
        end != NULL ? (struct bytes){end + 1, rest->size - part.size - 1} : (struct bytes){rest->data + part.size, 0};
    return part;
}

// The spellings of the 256 bytes, which the vocabulary may begin with.
static void put_bytes(struct vocab_file *f)
{
    uint32_t others = 0x100;
    for (uint32_t b = 0; b < 256; b++) {
        bool prints = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        char letter[4];
        int len = utf8_encode(prints ? b : others, letter);
        others += !prints;
        vocab_put_string(f, letter, (size_t)len);
    }
}

static uint64_t put_strings(struct vocab_file *f, const char *key, struct bytes list, bool all_bytes)
{
    uint64_t n = all_bytes ? 256 : 0;
    for (struct bytes rest = list; rest.size > 0; n++)
        cut(&rest, 0xFD);
    vocab_key_array(f, key, GGUF_STRING, n);
    if (all_bytes)
        put_bytes(f);
    while (list.size > 0) {
        struct bytes s = cut(&list, 0xFD);
        vocab_put_string(f, (const char *)s.data, s.size);
    }
    return n;
}

static void put_numbers(struct vocab_file *f, const char *key, enum gguf_type type, struct bytes values, uint64_t n)
{
    vocab_key_array(f, key, type, n);
    for (uint64_t i = 0; i < n; i++) {
        int32_t number = type == GGUF_I32 ? 1 : 0;
        if (i < values.size)
            number = type == GGUF_I32 ? values.data[i] % 8 : (int8_t)values.data[i];
        float score = (float)number;
        vocab_put(f, type == GGUF_I32 ? (void *)&number : (void *)&score, 4);
    }
}

// A table of replaced text: two thirds of the bytes are the units of its trie, the rest the texts.
static void put_map(struct vocab_file *f, struct bytes map)
{
    const size_t units = map.size / 6 * 4, texts = map.size - units;
    vocab_key_array(f, "precompiled_charsmap", GGUF_U8, 4 + units + texts + 1);
    vocab_put_u32(f, (uint32_t)units);
    vocab_put(f, map.data, map.size);
    vocab_put(f, "", 1);
}

// Builds the vocabulary of an input; what is left of it is the text.
static struct tokenizer *make(struct bytes *rest, unsigned kind, unsigned pre, unsigned flags)
{
    static const char *const roles[] = {"bos_token_id", "eos_token_id", "unknown_token_id", "seperator_token_id"};
    struct bytes tokens = cut(rest, 0xFE), merges = cut(rest, 0xFE), types = cut(rest, 0xFE), scores = cut(rest, 0xFE),
                 ids = cut(rest, 0xFE), map = flags & MAP ? cut(rest, 0xFE) : (struct bytes){0};
    struct vocab_file f;
    struct tokenizer *t;
    struct error err = {0};
    vocab_begin(&f);
    vocab_key_str(&f, "model", models[kind % COUNT_OF(models)]);
    vocab_key_str(&f, "pre", pres[pre % COUNT_OF(pres)]);
    uint64_t n = put_strings(&f, "tokens", tokens, (flags & ALL_BYTES) != 0);
    put_strings(&f, "merges", merges, false);
    if (!(flags & NO_TYPES))
        put_numbers(&f, "token_type", GGUF_I32, types, n);
    if (!(flags & NO_SCORES))
        put_numbers(&f, "scores", GGUF_F32, scores, n);
    if (map.size)
        put_map(&f, map);
    if (flags & NO_PREFIX)
        vocab_put_recipe(&f, "add_space_prefix bool 0");
    for (size_t i = 0; i < MIN(ids.size, COUNT_OF(roles)); i++)
        vocab_key_u32(&f, roles[i], ids.data[i]);
    if (vocab_load(&f, flags & ANY_PRE ? TOKENIZER_ANY_PRE : 0, &t, &err) != 0) {
        check(err.code == E_MODEL && err.text[0] != '\0' && t == NULL, "a refusal without a reason");
        return NULL;
    }
    return t;
}

static void encode(const struct tokenizer *t, struct str text, unsigned flags, bool returns)
{
    struct token_list ids = {0}, again = {0};
    struct error err = {0};
    if (tokenizer_encode(t, text, flags, &ids, &err) != 0) {
        check(err.code == E_MODEL && ids.n == 0, "an error that is none of the vocabulary");
        check(!returns, "a byte that has a token was not spelled");
        token_list_free(&ids);
        return;
    }
    for (size_t i = 0; i < ids.n; i++)
        check(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_n_vocab(t), "an id that does not exist");
    check(tokenizer_encode(t, text, flags, &again, &err) == 0, "fails the second time");
    check(again.n == ids.n && (ids.n == 0 || memcmp(again.ids, ids.ids, ids.n * sizeof *ids.ids) == 0),
          "is not the same twice");
    char *back;
    size_t len;
    check(tokenizer_decode(t, ids.ids, ids.n, DETOKENIZE_SPECIAL | DETOKENIZE_CLEAN, &back, &len, &err) == 0,
          "no decoding");
    free(back);
    check(tokenizer_decode(t, ids.ids, ids.n, 0, &back, &len, &err) == 0, "no decoding");
    check(!returns || (len == text.len && memcmp(back, text.data, len) == 0), "the text does not come back");
    free(back);
    token_list_free(&ids);
    token_list_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    unsigned kind = data[0] % COUNT_OF(models), pre = data[1] % COUNT_OF(pres), flags = data[2];
    struct bytes rest = {data + 3, size - 3};
    struct tokenizer *t = make(&rest, kind, pre, flags);
    if (t == NULL)
        return 0;
    // Types may hide the bytes, special tokens may take white space along, and the LINES family spells otherwise.
    bool returns = kind == 0 && (flags & ALL_BYTES) && (flags & NO_TYPES) && !strstr(pres[pre], "jina") &&
                   !strstr(pres[pre], "gemma") && !strstr(pres[pre], "311m") && !strstr(pres[pre], "sarvam");
    struct str text = {(const char *)rest.data, rest.size};
    // The ends of answers are control tokens by their names, and not printed.
    for (int32_t id = 0; id < tokenizer_n_vocab(t); id++)
        returns &= tokenizer_attr(t, id) == TOKEN_NORMAL;
    for (unsigned f = 0; f < 4; f++)
        encode(t, text, f, returns && f == 0);
    tokenizer_free(t);
    return 0;
}

#ifdef FUZZ_SEEDS
int main(int argc, char **argv)
{
    static const struct {
        const char *data;
        size_t size;
    } seeds[] = {
#define SEED(s) {s, sizeof s - 1}
        SEED("\0\1\3th\xFDhe\xFDthe\xFE"
             "t h\xFDh e\xFE\xFE\xFE\xFEthe other the"),
        SEED("\0\x14\1ab\xFD<u>\xFE"
             "a b\xFE\xFE\xFE\1\2\3ab <u>abab 12345"),
        SEED("\1\0\0<unk>\xFD<s>\xFD</s>\xFD"
             "a\xFD"
             "b\xFD"
             "ab\xFE\xFE\2\3\3\1\1\1\xFE\0\0\0\1\1\2\xFE\1\2\0\xFE"
             "ab </s>b"),
        SEED("\2\0\0[UNK]\xFD\xE2\x96\x81"
             "a\xFD"
             "b\xFE\xFE\3\1\1\xFE\xFE\0\0\0\0\xFE"
             "ab, Ab"),
        SEED("\3\0\0"
             "a\xFD"
             "b\xFD"
             "ab\xFD<0x0A>\xFE"
             "a b\xFE\1\1\1\6\xFE\xFE\xFE"
             "ab\n\nab"),
        SEED("\4\0\0<unk>\xFD\xE2\x96\x81\xFD"
             "a\xFD"
             "b\xFD"
             "ab\xFE\xFE\2\1\1\1\1\xFE\0\xFE\xFF\xFE\xFE\2\0\xFE"
             "ab ba"),
        SEED("\4\0\x20<unk>\xFD\xE2\x96\x81\xFD"
             "a\xFE\xFE\2\1\1\xFE\0\xFE\xFF\xFE\2\0\xFE\0\4\0\0\x61\1\0\0\0\0\0\x80xy\xFE"
             "a xa"),
        SEED("\5\0\0'a'\xFD"
             "b'\\x00'\xFD"
             "\"ab\"\xFE\xFE\1\1\1\xFE\xFE\xFE"
             "aab"),
        SEED("\6\0\0<unk>\xFD"
             "a\xFD"
             "b\xFD"
             "ab\xFD<0x0A>\xFE\xFE\2\1\1\1\6\xFE\0\xFF\xFE\2\0\xFE\xFE"
             "ab\nba"),
#undef SEED
    };
    for (size_t i = 0; argc == 2 && i < COUNT_OF(seeds); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed%zu", argv[1], i);
        FILE *f = fopen(path, "wb");
        check(f != NULL && fwrite(seeds[i].data, 1, seeds[i].size, f) == seeds[i].size && fclose(f) == 0, path);
    }
    return argc == 2 ? 0 : 2;
}
#endif
