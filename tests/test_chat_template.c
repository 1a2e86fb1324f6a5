// Tests chat templates of real models: they render byte for byte as in Jinja2, and where Jinja2 fails they fail too.
#include "tests/jinja_expect.h"

#include <time.h>

static char *read_shared(const char *name, size_t *size)
{
    char path[4096];
    const char *shared = getenv("QUERN_SHARED");
    snprintf(path, sizeof path, "%s/templates/%s", shared ? shared : "../shared", name);
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *text = calloc(*size + 1, 1);
    cr_assert(text && fread(text, 1, *size, f) == *size);
    fclose(f);
    return text;
}

static void check_case(const struct value *c)
{
    size_t size;
    struct str name = value_get(c, "template")->text, which = value_get(c, "case")->text;
    char file[256];
    snprintf(file, sizeof file, "%.*s", STR_ARG(name));
    char *source = read_shared(file, &size);
    cr_assert_not_null(source, "%s", file);
    struct jinja_template *t = NULL;
    struct jinja_output out = {0};
    struct error err = {0};
    int status = jinja_parse(&t, (struct str){source, size}, &err) ||
                 jinja_render(t, value_get(c, "context"), &jinja_noon, &out, &err);
    const struct value *want = value_get(c, "expected");
    if (want) {
        cr_expect(!status, "%s %.*s: %s", file, STR_ARG(which), err.text);
        struct str got = {out.text, out.size};
        cr_expect(status || str_equal(got, want->text), "%s %.*s:\n%s\n--- not\n%.*s", file, STR_ARG(which),
                  out.text ? out.text : "", STR_ARG(want->text));
    } else {
        cr_expect(status, "%s %.*s gives\n%s", file, STR_ARG(which), out.text ? out.text : "");
        cr_expect(err.code == E_MODEL && strstr(err.text, "line ") == err.text, "%s", err.text);
    }
    jinja_output_free(&out);
    jinja_free(t);
    free(source);
}

Test(chat_template, cases_come_out_as_jinja2_has_them, .timeout = 120)
{
    size_t size;
    char *lines = read_shared("cases.jsonl", &size);
    if (!lines)
        cr_skip_test("skipped: no golden templates");
    struct str rest = {lines, size};
    int n = 0;
    while (rest.len > 0) {
        const char *end = memchr(rest.data, '\n', rest.len);
        struct str line = {rest.data, end ? (size_t)(end - rest.data) : rest.len};
        struct arena arena = {0};
        struct json_reader reader = {.arena = &arena, .flags = JSON_INPUT};
        struct value c;
        struct error err = {0};
        cr_assert_eq(json_read(&c, &reader, line, &err), 0, "%s", err.text);
        check_case(&c);
        arena_free(&arena);
        n++;
        rest = (struct str){line.data + line.len + 1, rest.len - MIN(rest.len, line.len + 1)};
    }
    cr_expect_gt(n, 500);
    free(lines);
}

Test(chat_template, a_hundred_messages_take_a_few_milliseconds_at_most)
{
    static const char source[] = "{%- for message in messages %}{%- if message.role == 'user' or (message.role == "
                                 "'assistant' and not message.tool_calls) "
                                 "%}\n{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + "
                                 "'\\n' }}\n{%- endif %}{%- endfor %}"
                                 "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";
    struct text context = {0};
    text_print(&context, "{\"add_generation_prompt\": true, \"messages\": [");
    for (int i = 0; i < 100; i++)
        text_print(&context,
                   "%s{\"role\": \"%s\", \"content\": \"Some words, number %d, that are said in this dialogue.\"}",
                   i ? ", " : "", i % 2 ? "assistant" : "user", i);
    text_print(&context, "]}");
    struct arena arena = {0};
    struct json_reader reader = {.arena = &arena, .flags = JSON_INPUT};
    struct value v;
    struct error err = {0};
    struct jinja_template *t = NULL;
    cr_assert_eq(json_read(&v, &reader, (struct str){context.data, context.size}, &err), 0);
    cr_assert_eq(jinja_parse(&t, STR_LIT(source), &err), 0, "%s", err.text);
    double best = 1e9;
    for (int i = 0; i < 10; i++) {
        struct timespec a, b;
        struct jinja_output out;
        clock_gettime(CLOCK_MONOTONIC, &a);
        cr_assert_eq(jinja_render(t, &v, &jinja_noon, &out, &err), 0, "%s", err.text);
        clock_gettime(CLOCK_MONOTONIC, &b);
        best = MIN(best, (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) * 1e-6);
        jinja_output_free(&out);
    }
    fprintf(stderr, "100 messages: %.3f ms\n", best);
    // machines that are watched are slow, but not this slow
    cr_expect_lt(best, 50);
    jinja_free(t);
    arena_free(&arena);
    text_free(&context);
}
