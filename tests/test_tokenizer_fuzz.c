// Random texts through tokenizers of every kind: of words, code, digits, spaces, all scripts, and bytes that are no UTF-8. Ids
// are in range; decoding at once gives what decoding token by token gives; where a vocabulary promises it, the bytes come
// back; marking all of a text as untrusted changes nothing; and the time grows as the length does. Vocabularies of
// $QUERN_SHARED/vocab take part where they are. The long suite has -DTEXTS=100000.
#include "engine/model.h"
#include "tests/guarded.h"
#include "tests/stopwatch.h"
#include "tests/vocab_recipe.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>

#ifndef TEXTS
#define TEXTS 1500
#endif

enum { SEED = 61, TEXT_MAX = 512 };

// What of a text comes back: all bytes; all bytes unless it has a U+2581, which spells a space; all of valid UTF-8 without a
// byte order mark; or nothing for certain.
enum promise { BYTES, BYTES_WITHOUT_MARK, CHARACTERS, NOTHING };

struct vocabulary {
    char name[32];
    enum promise promise;
};
static struct vocabulary vocabularies[] = {
    {"built-in", BYTES},
    {"rwkv", BYTES},
    {"plamo2", CHARACTERS},
    {"spm", BYTES_WITHOUT_MARK},
    {"llama-bpe", BYTES},
    {"qwen2", BYTES},
    {"gpt-2", BYTES},
    {"starcoder", BYTES},
    {"deepseek-llm", BYTES},
    {"llama-spm", BYTES_WITHOUT_MARK},
    {"phi-3", BYTES_WITHOUT_MARK},
    {"bert-bge", NOTHING},
    {"t5", NOTHING}, // pieces by the best sum of scores, with spaces merged
};

// ---- The vocabularies

// Puts a word for each byte, spelled <0xNN>, or with an escape.
static size_t put_bytes(char *to, size_t room, bool escapes)
{
    size_t at = 0;
    for (unsigned i = 0; i < 256; i++)
        at += (size_t)snprintf(to + at, room - at, escapes ? " \\x5Cx%02x" : " <0x%02X>", i);
    return at;
}

// A vocabulary with a token for each byte, and some words; the last of them is the space of a vocabulary that spells it.
static struct tokenizer *from_bytes(const char *model)
{
    enum { WORDS = 9, FIRST = 260 };
    const bool escapes = !strcmp(model, "rwkv");
    static char recipe[1 << 14];
    size_t at = (size_t)snprintf(recipe, sizeof recipe, "model str %s\ntokens strs <unk> <s> </s> <pad>", model);
    at += put_bytes(recipe + at, sizeof recipe - at, escapes);
    at += (size_t)snprintf(recipe + at, sizeof recipe - at, " a b ab the int for 12 ing \\xE2\\x96\\x81\nscores f32s");
    for (int i = 0; i < FIRST + WORDS; i++)
        at += (size_t)snprintf(recipe + at, sizeof recipe - at, " %d", i < FIRST ? 0 : FIRST - 1 - i);
    at += (size_t)snprintf(recipe + at, sizeof recipe - at, "\ntoken_type i32s 2 3 3 3");
    for (int i = 4; i < FIRST + WORDS; i++)
        at += (size_t)snprintf(recipe + at, sizeof recipe - at, " %d", i < FIRST && !escapes ? 6 : 1);
    return vocab_from(recipe);
}

static struct tokenizer *open_file(const char *path)
{
    struct gguf *g;
    struct tokenizer *t;
    struct error err = {0};
    cr_assert_eq(model_file_open(&g, path, GGUF_METADATA_ONLY, &err), 0, "%s", err.text);
    cr_assert_eq(tokenizer_load(&t, g, 0, &err), 0, "%s", err.text);
    gguf_close(g);
    return t;
}

static struct tokenizer *open_vocabulary(const char *name)
{
    char path[512];
    const char *shared = getenv("QUERN_SHARED");
    if (!strcmp(name, "rwkv") || !strcmp(name, "plamo2") || !strcmp(name, "t5"))
        return from_bytes(name);
    if (!strcmp(name, "spm"))
        return from_bytes("llama");
    snprintf(path, sizeof path, "%s/vocab/%s.gguf", shared ? shared : "../shared", name);
    if (!strcmp(name, "built-in"))
        return model_has_builtin() ? open_file(MODEL_BUILTIN) : NULL;
    return access(path, R_OK) ? NULL : open_file(path);
}

// ---- The texts

static uint32_t next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

static size_t put_scalar(uint64_t *r, char *to)
{
    static const uint32_t from[] = {0x20,   0xA0,   0x370,  0x400,  0x590,  0x600,  0x900,   0xE00,
                                    0x1100, 0x2000, 0x3040, 0x4E00, 0xAC00, 0xFE00, 0x1F300, 0xE0100};
    uint32_t cp = from[next(r) % COUNT_OF(from)] + next(r) % 96;
    if (next(r) % 50 == 0)
        cp = next(r) % 0x110000;
    return (size_t)utf8_encode(cp >= 0xD800 && cp < 0xE000 ? 0xFFFD : cp, to);
}

static size_t put_word(uint64_t *r, char *to)
{
    static const char *const parts[] = {"the",        " the", "ing", "int ", "for(",         "_x",  "==",   "\t",
                                        "\n",         "  ",   "'s",  "12",   "3.14",         "->",  "</s>", "<s>",
                                        "<|im_end|>", "\r\n", "//",  "{}",   "\xE2\x96\x81", "I'LL"};
    const char *s = parts[next(r) % COUNT_OF(parts)];
    memcpy(to, s, strlen(s));
    return strlen(s);
}

// Up to `most` bytes of one kind, or of all in turns.
static struct str make_text(uint64_t *r, char *to, size_t most)
{
    const size_t want = next(r) % (most - 16);
    const uint32_t kind = next(r) % 6;
    size_t n = 0;
    while (n < want) {
        const uint32_t k = kind == 5 ? next(r) % 5 : kind;
        if (k == 0)
            n += put_scalar(r, to + n);
        else if (k == 1)
            n += put_word(r, to + n);
        else
            to[n] = k == 2   ? (char)next(r)
                    : k == 3 ? "0123456789 .,"[next(r) % 13]
                             : "aeiou bcdst\n "[next(r) % 14],
            n++;
    }
    return (struct str){to, n};
}

// ---- The properties

// Whether each byte by itself comes back. Some vocabularies have no token for bytes that UTF-8 has not, or spell a character as
// others spell a byte.
static void find_bytes(const struct tokenizer *t, bool alone[256])
{
    for (int i = 0; i < 256; i++) {
        struct token_list ids = {0};
        struct error err = {0};
        const char byte = (char)i;
        char *back;
        size_t len;
        alone[i] = tokenizer_encode(t, (struct str){&byte, 1}, 0, &ids, &err) == 0;
        cr_assert_eq(tokenizer_decode(t, ids.ids, ids.n, 0, &back, &len, &err), 0, "%s", err.text);
        alone[i] = alone[i] && len == 1 && *back == byte;
        free(back);
        token_list_free(&ids);
    }
}

static bool comes_back(enum promise promise, const bool alone[256], struct str text)
{
    static const char mark[] = "\xE2\x96\x81", order[] = "\xEF\xBB\xBF";
    for (size_t i = 0; promise != CHARACTERS && i < text.len; i++)
        if (!alone[(unsigned char)text.data[i]])
            return false;
    if (promise == BYTES_WITHOUT_MARK)
        return !memmem(text.data, text.len, mark, 3);
    if (promise == CHARACTERS)
        return utf8_valid(text) && !(text.len >= 3 && !memcmp(text.data, order, 3));
    return promise == BYTES;
}

static void check_decoding(const struct vocabulary *v, const struct tokenizer *t, const bool alone[256],
                           struct str text, const struct token_list *ids)
{
    struct error err = {0};
    char *whole, streamed[64 * TEXT_MAX];
    size_t len, n = 0;
    cr_assert_eq(tokenizer_decode(t, ids->ids, ids->n, 0, &whole, &len, &err), 0, "%s", err.text);
    struct detokenizer d = detokenizer_begin(t, false);
    for (size_t i = 0; i < ids->n; i++) {
        const struct str s = detokenizer_next(&d, ids->ids[i]);
        cr_assert_leq(n + s.len, sizeof streamed);
        memcpy(streamed + n, s.data, s.len);
        n += s.len;
    }
    cr_assert(n == len && !memcmp(whole, streamed, n), "%s: token by token '%.*s' is another text", v->name,
              STR_ARG(text));
    const bool same = len == text.len && !memcmp(whole, text.data, len);
    cr_assert(same || !comes_back(v->promise, alone, text), "%s: '%.*s' comes back as '%s'", v->name, STR_ARG(text),
              whole);
    free(whole);
}

static void check_text(const struct vocabulary *v, const struct tokenizer *t, const bool alone[256], struct str text)
{
    uint8_t all[TEXT_MAX];
    memset(all, 1, sizeof all);
    struct token_list ids = {0}, marked = {0};
    struct error err = {0};
    cr_assert_eq(tokenizer_encode(t, guarded(text), 0, &ids, &err), 0, "%s: %s", v->name, err.text);
    cr_assert_eq(tokenizer_encode_marked(t, text, all, 0, &marked, &err), 0, "%s: %s", v->name, err.text);
    for (size_t i = 0; i < ids.n; i++)
        cr_assert(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_n_vocab(t), "%s: id %d", v->name, ids.ids[i]);
    cr_assert(ids.n == marked.n && (!ids.n || !memcmp(ids.ids, marked.ids, ids.n * sizeof *ids.ids)),
              "%s: marks change '%.*s'", v->name, STR_ARG(text));
    check_decoding(v, t, alone, text, &ids);
    token_list_free(&ids);
    token_list_free(&marked);
}

#define EACH_VOCABULARY(test)                                                                                          \
    ParameterizedTestParameters(tokenizer_fuzz, test)                                                                  \
    {                                                                                                                  \
        return cr_make_param_array(struct vocabulary, vocabularies, COUNT_OF(vocabularies));                           \
    }                                                                                                                  \
    ParameterizedTest(struct vocabulary *v, tokenizer_fuzz, test)

EACH_VOCABULARY(random_texts_hold_what_is_promised)
{
    struct tokenizer *t = open_vocabulary(v->name);
    if (!t)
        cr_skip("%s is not here", v->name);
    uint64_t r = SEED;
    char text[TEXT_MAX];
    bool alone[256];
    find_bytes(t, alone);
    printf("%s: %d texts, seed %d\n", v->name, TEXTS, SEED);
    for (int i = 0; i < TEXTS; i++)
        check_text(v, t, alone, make_text(&r, text, i % 10 ? TEXT_MAX / 4 : TEXT_MAX));
    tokenizer_free(t);
}

// The shortest of three times, of this process alone.
static double seconds_for(const struct tokenizer *t, struct str text)
{
    double best = INFINITY;
    for (int i = 0; i < 3; i++) {
        struct token_list ids = {0};
        struct error err = {0};
        const double start = seconds();
        cr_assert_eq(tokenizer_encode(t, text, 0, &ids, &err), 0, "%s", err.text);
        best = fmin(best, seconds() - start);
        token_list_free(&ids);
    }
    return best;
}

// Sixteen times the text may take a hundred times as long, where a square would take 256 times: on a busy machine a measured
// time may be several times too long.
EACH_VOCABULARY(time_grows_as_the_length_does)
{
    enum { SHORT = 1 << 15, TIMES = 16 };
    static const char *const repeated[] = {"a", " ", "ab", "\n", "0", "\xE2\x96\x81", "\xFF", "the "};
    struct tokenizer *t = open_vocabulary(v->name);
    if (!t)
        cr_skip("%s is not here", v->name);
    char *text = malloc((size_t)SHORT * TIMES);
    cr_assert(text);
    for (size_t i = 0; i < COUNT_OF(repeated); i++) {
        const size_t n = strlen(repeated[i]);
        for (size_t at = 0; at < (size_t)SHORT * TIMES; at++)
            text[at] = repeated[i][at % n];
        const double few = fmax(seconds_for(t, (struct str){text, SHORT}), 2e-4);
        const double many = seconds_for(t, (struct str){text, (size_t)SHORT * TIMES});
        cr_expect_leq(many, 100 * few, "%s: '%s' takes %g s, and %g s for %d times as much", v->name, repeated[i], few,
                      many, (int)TIMES);
    }
    free(text);
    tokenizer_free(t);
}
