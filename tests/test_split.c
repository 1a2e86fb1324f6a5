// Tests every pre-tokenizer against the regular expressions that it replaces, on the cases of make_split_cases.py; on
// arbitrary bytes; and on texts that make backtracking engines slow.
#include "tests/vocab_recipe.h"
#include "tests/stopwatch.h"

#include "engine/text/split.h"

#include <criterion/criterion.h>

static const char *const names[] = {
#define PRE(name, family, flags) name,
#include "engine/text/pretokenizers.def"
#undef PRE
};

// --- the words of one text ---

struct words {
    const char *next; // where the next one must begin
    const char *want; // lengths in decimal, or NULL
    size_t count;
    bool wrong;
    int stop_at; // the count at which to stop, 0 never
};

static int take(void *ctx, const char *word, size_t len)
{
    struct words *w = ctx;
    w->wrong |= word != w->next || len == 0;
    w->next = word + len;
    w->count++;
    if (w->want) {
        char *end;
        w->wrong |= strtoul(w->want, &end, 10) != len;
        w->want = end;
    }
    return w->stop_at > 0 && w->count == (size_t)w->stop_at ? 7 : 0;
}

// Splits a text in memory of exactly its size, so that a sanitizer detects a read past its end.
static struct words split(const char *name, const char *text, size_t len, const char *want)
{
    char *exact = malloc(len + (len == 0));
    cr_assert_not_null(exact);
    memcpy(exact, text, len);
    struct words w = {.next = exact, .want = want};
    const struct pretokenizer *pre = pretokenizer_find(str_from(name));
    cr_assert_not_null(pre, "%s", name);
    cr_expect_eq(split_text(pre->family, (struct str){exact, len}, take, &w), 0);
    w.wrong |= w.next != exact + len;
    free(exact);
    return w;
}

// --- cases ---

enum { MAX_TEXTS = 200, MAX_LINE = 1 << 16 };

struct text {
    char *data;
    size_t len;
};

static struct text from_hex(const char *hex)
{
    struct text t = {malloc(strlen(hex) / 2 + 1), 0};
    unsigned byte;
    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2)
        t.data[t.len++] = (char)byte;
    return t;
}

Test(split, words_are_those_of_the_regular_expressions)
{
    char path[512], *line = malloc(MAX_LINE), name[64] = "";
    const char *tests = getenv("QUERN_TESTS");
    snprintf(path, sizeof path, "%s/data/split_cases.txt", tests ? tests : "tests");
    FILE *f = fopen(path, "r");
    cr_assert(f && line, "%s", path);
    struct text texts[MAX_TEXTS];
    size_t n_texts = 0, at = 0, n_families = 0;
    while (fgets(line, MAX_LINE, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "text ", 5) == 0) {
            cr_assert_lt(n_texts, (size_t)MAX_TEXTS);
            texts[n_texts++] = from_hex(line + 5);
        } else if (sscanf(line, "family %63s", name) == 1) {
            at = 0;
            n_families++;
        } else {
            struct words w = split(name, texts[at].data, texts[at].len, line);
            cr_expect(!w.wrong && w.want[strspn(w.want, " ")] == '\0', "%s, text %zu: '%.*s'", name, at,
                      (int)texts[at].len, texts[at].data);
            at++;
        }
    }
    cr_expect_eq(n_families, 26, "%zu families", n_families);
    for (size_t i = 0; i < n_texts; i++)
        free(texts[i].data);
    free(line);
    fclose(f);
}

Test(split, each_name_is_found_and_no_other)
{
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const struct pretokenizer *pre = pretokenizer_find(str_from(names[i]));
        cr_assert_not_null(pre);
        cr_expect_str_eq(pre->name, names[i]);
        // bpe.c knows no escaped words that are tokens whatever the merges
        cr_expect_neq(pre->flags & (PRE_IGNORE_MERGES | PRE_ESCAPE), PRE_IGNORE_MERGES | PRE_ESCAPE);
    }
    cr_expect_null(pretokenizer_find(STR_LIT("")));
    cr_expect_null(pretokenizer_find(STR_LIT("qwen")));
    cr_expect_null(pretokenizer_find(STR_LIT("qwen2x")));
    cr_expect_null(pretokenizer_find(STR_LIT("qwen2\0")));
}

// --- any bytes ---

Test(split, words_together_are_the_text_whatever_its_bytes)
{
    static const char *const parts[] = {
        "a",    "B",    " ",    "\n",           "\r",           "'s",           "1",          "\xC3\xA9",
        "\x80", "\xC3", "\xE4", "\xE4\xB8",     "\xE4\xB8\xAD", "\xF0\x9F\x98", "\xCC\x81",   ".",
        "\xFF", "/",    "\t",   "\xE3\x80\x80", "\xC2\x85",     "IMGIMG",       "<sentinel:", "_"};
    uint64_t seed = 42;
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < COUNT_OF(names); i++)
        for (int round = 0; round < 200; round++) {
            char text[256];
            size_t n = 0, want = random_below(&seed, 200);
            while (n < want) {
                const char *part = parts[random_below(&seed, COUNT_OF(parts))];
                memcpy(text + n, part, strlen(part));
                n += strlen(part);
            }
            cr_expect(!split(names[i], text, n, NULL).wrong, "%s: %.*s", names[i], (int)n, text);
        }
}

Test(split, the_empty_text_has_no_words)
{
    for (size_t i = 0; i < COUNT_OF(names); i++)
        cr_expect_eq(split(names[i], "", 0, NULL).count, 0);
}

Test(split, stops_where_it_is_told_and_says_what_it_was_told)
{
    const char text[] = "(one two 34567 six, seven \n eight         9";
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const size_t all = split(names[i], text, sizeof text - 1, NULL).count;
        for (size_t n = 1; n <= all; n++) {
            struct words w = {.next = text, .stop_at = (int)n};
            enum split_family family = pretokenizer_find(str_from(names[i]))->family;
            cr_expect_eq(split_text(family, STR_LIT(text), take, &w), 7, "%s", names[i]);
            cr_expect(w.count == n && !w.wrong, "%s", names[i]);
        }
    }
}

// --- time ---

// 1 MB that repeats one part, or one part with a second one at the end. A quadratic algorithm would take minutes.
Test(split, a_megabyte_of_anything_takes_no_longer_than_of_prose, .timeout = 250)
{
    static const char *const parts[] = {" ",
                                        "a",
                                        "A",
                                        "1",
                                        "\n",
                                        "\r\n",
                                        " \n",
                                        "\t",
                                        "'",
                                        "aA",
                                        "Aa",
                                        "!",
                                        " !",
                                        " a",
                                        "a ",
                                        "\xCC\x81",
                                        "\xCC\x81"
                                        "A",
                                        "\xE4\xB8\xAD",
                                        "\xE3\x80\x80",
                                        "\x80",
                                        "'s",
                                        "IMGIMG",
                                        "<sentinel:1",
                                        "\xC2\xBD",
                                        "\xC2\xAA"
                                        "AA",
                                        "1_",
                                        "    ",
                                        "/"};
    static const char *const ends[] = {"", "x", "\n", "1", " ", "_"};
    enum { SIZE = 1 << 20 };
    char *text = malloc(SIZE + 1);
    double slowest = 0;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        enum split_family family = pretokenizer_find(str_from(names[i]))->family;
        if (i > 0 && family == pretokenizer_find(str_from(names[i - 1]))->family)
            continue;
        for (size_t k = 0; k < COUNT_OF(parts); k++) {
            const char *part = parts[k], *end = ends[(i + k) % COUNT_OF(ends)];
            size_t n = strlen(part), len = 0;
            for (; len + n <= SIZE; len += n)
                memcpy(text + len, part, n);
            memcpy(text + len, end, strlen(end));
            len += strlen(end);
            struct words w = {.next = text};
            double start = seconds();
            split_text(family, (struct str){text, len}, take, &w);
            double took = seconds() - start;
            slowest = MAX(slowest, took);
            cr_assert_lt(took, 2 * patience(), "%s: %.1f s for '%s'... '%s'", names[i], took, part, end);
        }
    }
    fprintf(stderr, "slowest megabyte: %.0f ms\n", slowest * 1e3);
    free(text);
}
