// Tests chat templates of real models: they render byte for byte as in Jinja2, and where Jinja2 fails they fail too. Messages
// of unusual forms reach the template in the form that it takes, or are refused.
#include "engine/chat/chat.h"
#include "tests/jinja_expect.h"
#include "tests/token_expect.h"
#include "gguf/writer.h"

#include <time.h>
#include <unistd.h>

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

// --- Messages in the form that the template takes ---

static const char vocabulary[] =
    "model str gpt2\npre str gpt-2\nadd_bos_token bool 1\nbos_token_id u32 0\neos_token_id u32 1\n"
    "unknown_token_id u32 4\ntokens strs <s> </s> a b <unk>\ntoken_type i32s 3 3 1 1 2\nmerges strs";

#define EACH(body) "{% for m in messages %}" body "{% endfor %}"
#define PLAIN EACH("[{{ m.role }}:{{ m.content }}]")
#define PARTS EACH("[{{ m.role }}:{% for p in m.content %}<{{ p.text }}>{% endfor %}]")
#define NO_SYSTEM                                                                                                      \
    EACH("{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}[{{ m.role }}:{{ m.content }}]")
#define NO_SYSTEM_PARTS                                                                                                \
    EACH("{% if m.role == 'system' or m.content is string %}{{ raise_exception('no') }}{% endif %}"                    \
         "[{% for p in m.content %}<{{ p.text }}>{% endfor %}]")
#define CALLS                                                                                                          \
    EACH(                                                                                                              \
        "[{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}]")
#define TEXT_CALLS                                                                                                     \
    EACH("[{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor %}]")
#define AS_IS EACH("[{{ m|tojson }}]")

struct odd {
    const char *source, *messages, *gives; // `gives`: the text of the prompt, or that of the error
    const char *kwargs;
    bool continued;
};

static void check_odd(const struct tokenizer *t, const struct odd *o)
{
    struct arena arena = {0};
    struct json_reader reader = {.arena = &arena, .flags = JSON_NAN};
    struct value messages, kwargs;
    struct token_list ids = {0};
    struct text plain = {0};
    struct error err = {0};
    struct chat_template *c;
    struct chat_choice choice = {.source = str_from(o->source)};
    cr_assert_eq(chat_open(&c, NULL, t, &choice, &err), 0, "%s", err.text);
    cr_assert_eq(json_read(&messages, &reader, str_from(o->messages), &err), 0, "%s", err.text);
    cr_assert_eq(json_read(&kwargs, &reader, str_from(o->kwargs ? o->kwargs : "{}"), &err), 0, "%s", err.text);
    struct chat_request r = {.messages = &messages, .kwargs = &kwargs, .continue_final = o->continued, .now = 1};
    const int status = chat_render(c, &r, &ids, &plain, &err);
    text_append(&plain, (struct str){"", 1});
    const char *got = status ? err.text : plain.data;
    cr_expect_str_eq(got, o->gives, "%s:\n%s, not\n%s", o->messages, got, o->gives);
    cr_expect_eq(err.code, !status ? E_OK : strstr(got, "line 1") ? E_MODEL : E_USAGE);
    chat_close(c);
    token_list_free(&ids);
    text_free(&plain);
    arena_free(&arena);
}

#define CALLED(call) "[{\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": " call "}]"
static const struct odd odd[] = {
    // contents
    {PLAIN,
     "[{\"role\": \"user\", \"content\": [\"a\", {\"text\": \"b\"}, {\"type\": \"input_text\", \"text\": \"c\"}]}]",
     "[user:abc]", NULL, false},
    {PLAIN, "[{\"role\": \"user\", \"content\": [{\"type\": \"refusal\", \"refusal\": \"no\"}]}]", "[user:no]", NULL,
     false},
    {PLAIN, "[{\"role\": \"user\", \"content\": []}]", "[user:]", NULL, false},
    {PLAIN, "[{\"role\": \"user\", \"content\": 5}]", "[user:5]", NULL, false},
    {PLAIN, "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]",
     "content: part 0 is no text but image_url; quern passes text alone to a model", NULL, false},
    {PARTS, "[{\"role\": \"user\", \"content\": [\"a\", {\"type\": 5, \"text\": \"b\"}]}]",
     "content: part 1 is no text but an unknown type; quern passes text alone to a model", NULL, false},
    {PARTS, "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": 5}]}]",
     "content: part 0 is no text but text; quern passes text alone to a model", NULL, false},
    {PARTS, "[{\"role\": \"user\", \"content\": [{\"type\": \"output_text\", \"text\": \"a\"}, \"b\"]}]",
     "[user:<a><b>]", NULL, false},
    {PARTS, "[{\"role\": \"user\", \"content\": null}, {\"role\": \"user\"}]", "[user:][user:]", NULL, false},
    {PARTS, "[{\"role\": \"user\", \"content\": \"\"}]", "[user:]", NULL, false},
    // roles
    {PLAIN, "5", "messages: a list of {role, content} is wanted", NULL, false},
    {PLAIN, "[5]", "messages: number 0 is no object with a role", NULL, false},
    {PLAIN, "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": 5}]", "messages: number 1 is no object with a role",
     NULL, false},
    {NO_SYSTEM,
     "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"u\"}, "
     "{\"role\": \"user\", \"content\": \"v\"}]",
     "[assistant:a][user:s\n\nu][user:v]", NULL, false},
    {NO_SYSTEM, "[{\"role\": \"system\", \"content\": [\"s\", \"t\"]}, {\"role\": \"user\", \"content\": \"u\"}]",
     "[user:st\n\nu]", NULL, false},
    {NO_SYSTEM, "[{\"role\": \"system\", \"content\": [5]}, {\"role\": \"user\", \"content\": \"u\"}]",
     "content: part 0 is no text but an unknown type; quern passes text alone to a model", NULL, false},
    {NO_SYSTEM, "[{\"role\": \"system\", \"content\": \"\"}]", "chat template: line 1, column 69: no", NULL, false},
    {NO_SYSTEM, "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\"}]", "[user:s\n\n]", NULL, false},
    {NO_SYSTEM_PARTS,
     "[{\"role\": \"system\", \"content\": [\"s\"]}, {\"role\": \"user\", \"content\": [\"u\", \"v\"]}]",
     "[<s\n\n><u><v>]", NULL, false},
    // calls
    {CALLS, CALLED("5"), "chat template: line 1, column 66: 'int' object is not iterable", NULL, false},
    {CALLS, CALLED("[]"), "[assistant:x]", NULL, false},
    {CALLS, CALLED("null"), "[assistant:x]", NULL, false},
    {CALLS, CALLED("[{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"k\\\": NaN}\"}}]"),
     "[assistant:xf{\"k\": NaN}]", NULL, false},
    {CALLS, CALLED("[{\"function\": {\"name\": \"f\", \"arguments\": \"[1]\"}}]"), "[assistant:xf\"[1]\"]", NULL,
     false},
    {CALLS, CALLED("[{\"function\": {\"name\": \"f\", \"arguments\": \"{\"}}]"), "[assistant:xf\"{\"]", NULL, false},
    {CALLS, CALLED("[{\"function\": {\"name\": \"f\", \"arguments\": \" null \"}}]"), "[assistant:xf{}]", NULL, false},
    {CALLS, CALLED("[{\"function\": {\"name\": \"f\", \"arguments\": 5}}]"), "[assistant:xf5]", NULL, false},
    {CALLS, CALLED("[{\"function\": {\"name\": \"f\"}}]"), "[assistant:xf{}]", NULL, false},
    {TEXT_CALLS, CALLED("[{\"function\": {\"name\": \"f\", \"arguments\": {\"k\": [1]}}}]"), "[xf{\"k\": [1]}]", NULL,
     false},
    {TEXT_CALLS, CALLED("[{\"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]"), "[xf{}]", NULL, false},
    {AS_IS,
     "[{\"role\": \"user\", \"content\": \"a\", \"tool_calls\": [{\"function\": {\"name\": \"f\"}}], \"more\": [{}]}]",
     "[{\"role\": \"user\", \"content\": \"a\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {}}}], \"more\": [{}]}]",
     NULL, false},
    {AS_IS, "[{\"role\": \"user\", \"content\": \"a\", \"tool_calls\": [5, {\"function\": 5}]}]",
     "messages: the tool calls of number 0 would not reach the model: the chat template leaves them out", NULL, false},
    {PLAIN, CALLED("[{\"function\": {\"name\": \"f\"}}]"),
     "messages: the tool calls of number 0 would not reach the model: the chat template leaves them out", NULL, false},
    {EACH("{{ m.role }}"), "[{\"role\": \"user\", \"content\": [\"\", \"b\"]}]",
     "messages: what number 0, role user, says would not reach the model: the chat template leaves it out", NULL,
     false},
    // variables
    {"{{ a }}{{ b }}", "[]", "1[2]", "{\"a\": 1, \"b\": [2]}", false},
    {"{{ a }}", "[]", "the variables for a chat template are no object", "5", false},
    // messages that the answer continues
    {PLAIN, "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b \"}]",
     "[user:a][assistant:b ", NULL, true},
    {PLAIN, "[{\"role\": \"assistant\", \"content\": \" b \"}]", "[assistant: b", NULL, true},
    {EACH("[{{ m.content|trim }}]"),
     "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \" b \"}]", "[a][b", NULL,
     true},
    {PLAIN, "[{\"role\": \"assistant\", \"content\": [\"a\", \"b\"]}]", "[assistant:ab", NULL, true},
    {PLAIN, "[{\"role\": \"assistant\", \"content\": \" \"}]",
     "messages: the last one has no text that could be continued", NULL, true},
    {PLAIN, "[{\"role\": \"assistant\"}]", "messages: the last one has no text that could be continued", NULL, true},
    {EACH("{{ m.content if m.content[0] == 'x' else m.content|upper }}"),
     "[{\"role\": \"assistant\", \"content\": \"abc\"}]",
     "messages: the last one cannot be continued: the chat template does not write it as it is", NULL, true},
};

Test(chat_template, messages_of_any_form_reach_the_template_or_are_refused)
{
    struct tokenizer *t = vocab_from(vocabulary);
    for (size_t i = 0; i < COUNT_OF(odd); i++)
        check_odd(t, &odd[i]);
    tokenizer_free(t);
}

// --- The templates of a file ---

// Opens a file with templates of these names, of which "" is the default one. Each renders its name.
static struct gguf *file_with(const char *const *names, size_t n)
{
    char path[] = "/tmp/quern-chat-template-XXXXXX";
    struct gguf_writer *w;
    struct gguf *file;
    struct error err = {0};
    close(mkstemp(path));
    cr_assert_eq(gguf_writer_open(&w, path, &err), 0, "%s", err.text);
    gguf_write_str(w, "general.architecture", STR_LIT("llama"));
    for (size_t i = 0; i < n; i++) {
        char key[100];
        snprintf(key, sizeof key, "tokenizer.chat_template%s%s", *names[i] ? "." : "", names[i]);
        gguf_write_str(w, key, str_from(*names[i] ? names[i] : "default"));
    }
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
    cr_assert_eq(gguf_open(&file, path, 0, &err), 0, "%s", err.text);
    unlink(path);
    return file;
}

Test(chat_template, a_file_has_the_template_or_names_those_it_has)
{
    static const char *const three[] = {"", "tool_use", "rag"};
    static const struct {
        size_t from, n; // of the three
        const char *name, *gives;
    } cases[] = {
        {0, 3, NULL, "default"},
        {0, 3, "rag", "rag"},
        {0, 3, "none", "the model has no chat template named 'none'; it has tool_use, rag"},
        {1, 2, NULL, "the model has no chat template (tokenizer.chat_template); it has some with names: tool_use, rag"},
        {0, 1, "rag", "the model has no chat template named 'rag'"},
        {0, 0, NULL, "the model has no chat template (tokenizer.chat_template)"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct gguf *file = file_with(three + cases[i].from, cases[i].n);
        const struct chat_choice choice = {.name = cases[i].name};
        struct chat_template *t;
        struct error err = {0};
        const int status = chat_open(&t, file, NULL, &choice, &err);
        const struct str got = status ? str_from(err.text) : chat_source(t);
        cr_expect(str_equal_z(got, cases[i].gives), "row %zu: %.*s", i, STR_ARG(got));
        cr_expect_eq(chat_template_exists(file, cases[i].name), status == 0);
        chat_close(t);
        gguf_close(file);
    }
    struct chat_template *t;
    struct error err;
    cr_expect(!chat_template_exists(NULL, NULL));
    cr_expect_eq(chat_open(&t, NULL, NULL, &(struct chat_choice){.name = "x"}, &err), -1);
    cr_expect_str_eq(err.text, "the model has no chat template named 'x'");
}
