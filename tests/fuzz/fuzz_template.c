// Fuzz target: any template with any context. What parses must render or fail with an error, twice the same; marks are
// as many as bytes; and any answer can be split, and its calls read, as the template's family writes them.
//
// An input is a template, then the byte 0xFE, then a context in JSON; without the byte, or when the context is none, a
// small dialogue stands in for it. The template's text serves as an answer, too.
#include "engine/chat/chat.h"
#include "engine/chat/jinja.h"
#include "engine/json.h"
#include "tests/fuzz/mutate.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char dialogue[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi <b>\"}, {\"role\": "
                               "\"assistant\", \"content\": null, \"tool_calls\": "
                               "[{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, true]}}}]}], "
                               "\"tools\": [{\"k\": {}}], \"n\": -3, \"s\": \"a\\u00fc\"}";

static void check(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static void render_twice(const struct jinja_template *t, const struct value *context)
{
    struct jinja_options o = {.max_steps = 200000};
    struct jinja_output a, b;
    struct error err = {0}, again = {0};
    int status = jinja_render(t, context, &o, &a, &err);
    check(jinja_render(t, context, &o, &b, &again) == status && !strcmp(err.text, again.text), "not the same twice");
    check(status == 0 || err.code == E_MODEL, err.text);
    check(a.size == b.size && (a.size == 0 || !memcmp(a.text, b.text, a.size)), "not the same text twice");
    for (size_t i = 0; i < a.size; i++)
        check(a.marks[i] <= 1, "a mark that is none");
    jinja_output_free(&a);
    jinja_output_free(&b);
}

static int count(void *arg, enum answer_part part, struct str text)
{
    (void)part;
    *(size_t *)arg += text.len;
    return 0;
}

// No byte of an answer is made up: what comes out is at most what went in.
static void split_answer(struct str source)
{
    struct chat_template *t;
    struct chat_choice choice = {.source = source};
    struct error err = {0};
    struct arena arena = {0};
    struct value calls;
    struct answer a;
    size_t out = 0;
    if (chat_open(&t, NULL, NULL, &choice, &err) != 0)
        return;
    struct answer_style style = chat_answer_style(t, source, true);
    answer_begin(&a, &style, count, &out);
    for (size_t i = 0; i < source.len; i += 5)
        check(answer_push(&a, (struct str){source.data + i, MIN((size_t)5, source.len - i)}, &err) == 0, err.text);
    check(answer_end(&a, &err) == 0, err.text);
    check(out <= source.len, "more came out than went in");
    check(answer_tool_calls(&a, &arena, &calls, NULL, &err) == 0 || err.code == E_USAGE, err.text);
    answer_free(&a);
    arena_free(&arena);
    chat_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size ? memchr(data, 0xFE, size) : NULL;
    struct str source = {(const char *)data, cut ? (size_t)(cut - data) : size};
    struct str json = cut ? (struct str){(const char *)cut + 1, size - source.len - 1} : STR_LIT(dialogue);
    struct arena arena = {0};
    struct json_reader reader = {.arena = &arena, .flags = JSON_NAN | JSON_INPUT};
    struct value context;
    struct error err = {0};
    struct jinja_template *t;
    if (json_read(&context, &reader, json, &err) != 0 || context.kind != VALUE_DICT)
        check(json_read(&context, &reader, STR_LIT(dialogue), &err) == 0, err.text);
    if (jinja_parse(&t, source, &err) == 0) {
        render_twice(t, &context);
        jinja_free(t);
        split_answer(source);
    } else {
        check(err.code == E_MODEL && strstr(err.text, "line "), err.text);
    }
    arena_free(&arena);
    return 0;
}

// ---- A mutator that knows the language ----

#ifndef FUZZ_SEEDS
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

// Whole pieces of the language: tokens, statements, filters, tests, methods.
static const char *const pieces[] = {
    "{{ ",
    " }}",
    "{%- ",
    " -%}",
    "{% for x in ",
    " %}",
    "{% endfor %}",
    "{% if ",
    "{% elif ",
    "{% else %}",
    "{% endif %}",
    "{% set x = ",
    "{% set ns.a = ",
    "{% set x %}",
    "{% endset %}",
    "{% set ns = namespace(a=1, l=[1], s='x') %}",
    "{% macro m(p, q=2) %}",
    "{% endmacro %}",
    "{% call m(1) %}",
    "{% endcall %}",
    "{% filter upper %}",
    "{% endfilter %}",
    "{% with y = 1 %}",
    "{% endwith %}",
    "{% break %}",
    "{% continue %}",
    "{% raw %}",
    "{% endraw %}",
    "{% generation %}",
    "{% endgeneration %}",
    "{# ",
    " #}",
    " recursive ",
    " if ",
    " else ",
    " in ",
    " not ",
    " is ",
    " and ",
    " or ",
    "|",
    ".",
    ", ",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ":",
    " ~ ",
    " + ",
    " - ",
    " * ",
    " / ",
    " // ",
    " % ",
    " ** ",
    " == ",
    " != ",
    " < ",
    " >= ",
    " = ",
    "'a'",
    "\"b\"",
    "'%s'",
    "'{}'",
    "0",
    "1",
    "-1",
    "2.5",
    "1e308",
    "none",
    "true",
    "false",
    "[1, 2]",
    "{'a': 1}",
    "(1, )",
    "x",
    "y",
    "n",
    "s",
    "ns",
    "ns.a",
    "m",
    "loop",
    "loop.index",
    "loop.last",
    "loop.previtem",
    "loop.changed(x)",
    "loop.cycle(1, 2)",
    "messages",
    "messages[0]",
    "tools",
    "caller()",
    "varargs",
    "kwargs",
    "range(9)",
    "dict(a=1)",
    "cycler(1, 2)",
    "joiner(', ')",
    "raise_exception('x')",
    "strftime_now('%Y')",
    "[::-1]",
    "[1:]",
    "[:n]",
    ".items()",
    ".get('a')",
    ".split(',')",
    ".strip()",
    ".replace('a', 'b')",
    ".format(1)",
    ".join(['a'])",
    ".upper()",
    ".startswith('a')",
    ".count(1)",
    ".index('a')",
    ".keys()",
    "|tojson",
    "|tojson(indent=2)",
    "|from_json",
    "|length",
    "|join(',')",
    "|map('upper')",
    "|map(attribute='role')",
    "|selectattr('role', 'eq', 'user')",
    "|rejectattr('role')",
    "|select('odd')",
    "|reject('none')",
    "|sort",
    "|unique",
    "|groupby('role')",
    "|list",
    "|first",
    "|last",
    "|min",
    "|max",
    "|sum",
    "|batch(2)",
    "|slice(2)",
    "|dictsort",
    "|items",
    "|default('x')",
    "|trim",
    "|replace('a', 'b')",
    "|indent(2)",
    "|wordwrap(3)",
    "|truncate(5)",
    "|center(9)",
    "|title",
    "|striptags",
    "|urlencode",
    "|xmlattr",
    "|escape",
    "|safe",
    "|int",
    "|float",
    "|round",
    "|abs",
    "|string",
    "|reverse",
    "|format(1)",
    "|attr('a')",
    " is defined",
    " is none",
    " is mapping",
    " is iterable",
    " is string",
    " is divisibleby(2)",
    " is sameas(x)",
    "*[1]",
    "**{'a': 1}",
};

// Where the token at a byte ends: a word, a row of signs, or a space.
static size_t token_end(const uint8_t *data, size_t size, size_t at)
{
    bool word = false;
    size_t end = at;
    for (; end < size; end++) {
        bool letter = data[end] >= 0x80 || data[end] == '_' || (data[end] >= '0' && data[end] <= '9') ||
                      ((data[end] | 0x20) >= 'a' && (data[end] | 0x20) <= 'z');
        if (end > at && (!letter || !word))
            break;
        word = letter;
    }
    return end > at + 1 || end == size ? end : MIN(end + (end + 1 < size && data[at] == '{'), size);
}

// A random place between two tokens.
static size_t some_place(const uint8_t *data, size_t size, uint32_t random)
{
    size_t want = size ? random % (size + 1) : 0, at = 0;
    while (at < want)
        at = token_end(data, size, at);
    return at;
}

// Replaces the bytes [from, to) by n others; the old size if there is no room.
static size_t put_piece(uint8_t *data, size_t size, size_t max, size_t from, size_t to, const char *piece, size_t n)
{
    if (size - (to - from) + n > max)
        return size;
    memmove(data + from + n, data + to, size - to);
    memcpy(data + from, piece, n);
    return size - (to - from) + n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    uint32_t state = seed;
    char copy[64];
    for (unsigned i = mutate_random(&state) % 4 + 1; i > 0; i--) {
        const char *piece = pieces[mutate_random(&state) % COUNT_OF(pieces)];
        size_t at = some_place(data, size, mutate_random(&state)), end = token_end(data, size, at);
        size_t n = MIN(end - at, sizeof copy);
        switch (mutate_random(&state) % 8) {
        case 0:
            return LLVMFuzzerMutate(data, size, max);
        case 1:
            size = put_piece(data, size, max, at, end, "", 0);
            break;
        case 2:
            size = put_piece(data, size, max, at, end, piece, strlen(piece));
            break;
        case 3: // repeats a token somewhere else
            memcpy(copy, data + at, n);
            at = some_place(data, size, mutate_random(&state));
            size = put_piece(data, size, max, at, at, copy, n);
            break;
        default:
            size = put_piece(data, size, max, at, at, piece, strlen(piece));
        }
    }
    return size;
}
#endif

#ifdef FUZZ_SEEDS
int main(int argc, char **argv)
{
    static const char *const seeds[] = {
        "{%- for m in messages if m.role != 'x' -%}{{ loop.index ~ m['role'][::-1]|upper }}{% else %}none{% endfor %}",
        "{% macro m(p, q=2) %}<{{ p ~ q }}{{ caller() }}>{% endmacro %}{% call(x) m(1) %}{{ x }}{% endcall %}{{ "
        "varargs }}",
        "{% set ns = namespace(a=0) %}{% for k, v in tools[0].items() recursive %}{% set ns.a = ns.a + 1 %}{{ loop(v) "
        "}}{% break %}{% endfor %}",
        "{{ '%5.2f|%-6s|%x' % (n, s, 10) }}{{ '{:>8,}|{!r}'.format(n, s) }}{{ messages|tojson(indent=2) }}{{ "
        "'[1]'|from_json }}",
        "{{ messages|selectattr('role', 'eq', 'user')|map(attribute='content')|join(', ') }}{{ "
        "s.split('a')|sort|first|title }}",
        "{% filter indent(2) %}{# c #}{% raw %}{{ x }}{% endraw %}{% endfilter %}{% set y %}z{% endset %}{{ y is "
        "defined and not 1 }}",
        "<think>a</think><tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>\xFE{\"messages\": []}",
        "<tool_call><function=f><parameter=a>\n1\n</parameter></function></tool_call>",
        "[TOOL_CALLS]f[ARGS]{\"a\": 1}{{ raise_exception('x') }}",
        "<|tool_call_start|>[f(a='x', b=[1, {2: None}])]<|tool_call_end|>",
        "{{ {'a': 1, 2: (3,)}|dictsort }}{{ [3, 1]|sort(reverse=true)|batch(2)|list }}{{ range(9)[1:7:2]|sum }}{{ 7 // "
        "-2 ** 2 }}",
    };
    for (size_t i = 0; argc > 1 && i < COUNT_OF(seeds); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed%zu", argv[1], i);
        FILE *f = fopen(path, "wb");
        check(f && fputs(seeds[i], f) >= 0 && fclose(f) == 0, "a seed cannot be written");
    }
    return 0;
}
#endif
