// Tests eight real vocabularies against reference ids: short texts, 2,000 random ones, and a novel. The files are not
// part of the source; they are in $QUERN_SHARED/vocab. Without them each test reports that it was skipped.
#include "tests/guarded.h"
#include "tests/sha256.h"
#include "tests/vocab_recipe.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

static void skip(const char *path)
{
    fprintf(stderr, "skipped: %s is not here\n", path);
    cr_skip();
}

static char *read_shared(const char *name, const char *suffix, size_t *size)
{
    char path[512];
    const char *shared = getenv("QUERN_SHARED");
    snprintf(path, sizeof path, "%s/vocab/%s%s", shared ? shared : "../shared", name, suffix);
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        skip(path);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size + 1);
    cr_assert(data != NULL && fread(data, 1, *size, f) == *size);
    data[*size] = '\0';
    fclose(f);
    return data;
}

static struct tokenizer *load_shared(const char *name)
{
    char path[512];
    const char *shared = getenv("QUERN_SHARED");
    snprintf(path, sizeof path, "%s/vocab/%s.gguf", shared ? shared : "../shared", name);
    if (access(path, R_OK) != 0)
        skip(path);
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct error err = {0};
    cr_assert_eq(gguf_open(&g, path, GGUF_METADATA_ONLY, &err), 0, "%s", err.text);
    cr_assert_eq(tokenizer_load(&t, g, 0, &err), 0, "%s", err.text);
    gguf_close(g);
    return t;
}

// Whether a text has the ids that are written on the line at *line; moves to the next line.
static bool ids_match(const struct tokenizer *t, const char *text, size_t len, char **line)
{
    struct token_list ids = {0};
    struct error err = {0};
    cr_assert_eq(tokenizer_encode(t, guarded((struct str){text, len}), 0, &ids, &err), 0, "%s", err.text);
    size_t n = 0;
    bool same = true;
    char *s = *line, *end = strchr(s, '\n');
    cr_assert_not_null(end);
    for (char *after; s < end; n++, s = after) {
        long want = strtol(s, &after, 10);
        same &= n < ids.n && ids.ids[n] == want;
        after += strspn(after, " ");
    }
    same &= n == ids.n;
    *line = end + 1;
    token_list_free(&ids);
    return same;
}

// The name of a vocabulary, in memory that the test's process can read.
struct vocabulary {
    char name[32];
};
static struct vocabulary vocabularies[] = {{"llama-spm"}, {"phi-3"},     {"llama-bpe"},    {"qwen2"},
                                           {"gpt-2"},     {"starcoder"}, {"deepseek-llm"}, {"bert-bge"}};

#define EACH_VOCABULARY(test)                                                                                          \
    ParameterizedTestParameters(tokenizer_golden, test)                                                                \
    {                                                                                                                  \
        return cr_make_param_array(struct vocabulary, vocabularies, COUNT_OF(vocabularies));                           \
    }                                                                                                                  \
    ParameterizedTest(struct vocabulary *v, tokenizer_golden, test)

EACH_VOCABULARY(short_texts)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    size_t size, count = 0;
    struct tokenizer *t = load_shared(v->name);
    char *texts = read_shared(v->name, ".inp", &size), *ids = read_shared(v->name, ".out", &size), *line = ids;
    for (char *s = texts, *end; (end = strstr(s, separator)) != NULL; s = end + sizeof separator - 1, count++)
        cr_expect(ids_match(t, s, (size_t)(end - s), &line), "%s, text %zu: '%.*s'", v->name, count, (int)(end - s), s);
    cr_expect_geq(count, 45, "%zu texts", count);
    free(texts);
    free(ids);
    tokenizer_free(t);
}

EACH_VOCABULARY(random_texts)
{
    size_t size, id_size, count = 0;
    struct tokenizer *t = load_shared(v->name);
    char *texts = read_shared("fuzz", ".txt", &size), *ids = read_shared(v->name, ".fuzz", &id_size), *line = ids;
    for (char *s = texts, *end = NULL; count == 0 || *line != '\0'; s = end + 1, count++) {
        end = memchr(s, '\0', (size_t)(texts + size + 1 - s)); // the last one ends at the NUL behind the file
        cr_assert_not_null(end);
        cr_expect(ids_match(t, s, (size_t)(end - s), &line), "%s, text %zu: '%s'", v->name, count, s);
    }
    cr_expect_eq(count, 2000, "%zu texts", count);
    free(texts);
    free(ids);
    tokenizer_free(t);
}

EACH_VOCABULARY(a_novel)
{
    size_t size, sums_size;
    struct tokenizer *t = load_shared(v->name);
    char *text = read_shared("war-and-peace", ".txt", &size),
         *sums = read_shared("war-and-peace", ".sha256", &sums_size);
    char want[128], got[65];
    size_t count = 0;
    for (char *s = sums; s != NULL; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL) {
        char name[32], sum[65];
        if (sscanf(s, "%31s %zu %64s", name, &count, sum) == 3 && strcmp(name, v->name) == 0) {
            snprintf(want, sizeof want, "%s", sum);
            break;
        }
    }
    struct token_list ids = {0};
    struct error err = {0};
    cr_assert_eq(tokenizer_encode(t, (struct str){text, size}, 0, &ids, &err), 0, "%s", err.text);
    sha256_hex(ids.ids, ids.n * sizeof *ids.ids, got);
    cr_expect_eq(ids.n, count, "%s: %zu ids, not %zu", v->name, ids.n, count);
    cr_expect_str_eq(got, want, "%s", v->name);

    // and back
    char *back;
    size_t len;
    cr_assert_eq(tokenizer_decode(t, ids.ids, ids.n, 0, &back, &len, &err), 0);
    if (tokenizer_kind(t) != TOKENIZER_WPM)
        cr_expect(len == size && memcmp(back, text, len) == 0, "%s: the text does not come back", v->name);
    free(back);
    token_list_free(&ids);
    free(text);
    free(sums);
    tokenizer_free(t);
}
