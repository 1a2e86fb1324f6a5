// Tests templates and contexts with excessive demands: each is refused at once by its own limit, and none crashes the
// program.
#include "tests/jinja_expect.h"

// `head`, then `unit` n times, then `tail`.
static void refuse_long(const char *head, const char *unit, int n, const char *tail, const char *want)
{
    struct text source = {0};
    text_print(&source, "%s", head);
    for (int i = 0; i < n; i++)
        text_append(&source, str_from(unit));
    text_print(&source, "%s", tail);
    struct jinja_output out;
    struct error err = {0};
    int status = jinja_try((struct str){source.data, source.size}, STR_LIT("{}"), &out, &err);
    cr_expect_eq(status, -1, "%s x %d", unit, n);
    cr_expect(strstr(err.text, want), "%s x %d: %s, not %s", unit, n, err.text, want);
    cr_expect_eq(err.code, E_MODEL);
    jinja_output_free(&out);
    text_free(&source);
}

Test(jinja_hostile, a_source_of_over_a_megabyte_is_refused)
{
    refuse_long("", "0123456789abcdef", (JINJA_SOURCE_MAX >> 4) + 1, "", "a template of 1048592 bytes, limit 1048576");
}

Test(jinja_hostile, nesting_has_a_limit)
{
    refuse_long("{{ ", "(", 101, "1", "brackets are nested deeper than 100");
    refuse_long("{{ ", "[", 5000, "", "brackets are nested deeper than 100");
    refuse_long("{{ ", "not ", 5000, "1 }}", "nested deeper than 100");
    refuse_long("{{ ", "- ", 5000, "1 }}", "nested deeper than 100");
    refuse_long("{{ ", "1 if 1 else ", 5000, "1 }}", "nested deeper than 100");
    refuse_long("", "{% if 1 %}", 101, "", "nested deeper than 100");
    refuse_long("", "{% for x in y %}", 5000, "", "nested deeper than 100");
    refuse_long("{{ 1", "+1", 5000, " }}", "more than 1000 operators build on each other");
    refuse_long("{{ a", ".b", 5000, " }}", "more than 1000 operators build on each other");
    refuse_long("{{ a", "|e", 5000, " }}", "more than 1000 operators build on each other");
}

Test(jinja_hostile, what_is_long_but_flat_is_fine)
{
    struct text source = {0};
    struct jinja_output out;
    struct error err = {0};
    text_print(&source, "{%% if 0 %%}");
    for (int i = 0; i < 3000; i++)
        text_print(&source, "{%% elif 0 %%}x");
    text_print(&source, "{%% else %%}{{ 'a'");
    for (int i = 0; i < 3000; i++)
        text_print(&source, " ~ 'b'");
    text_print(&source, " }}{%% endif %%}{{ [");
    for (int i = 0; i < 3000; i++)
        text_print(&source, "1,");
    text_print(&source, "]|length }}");
    cr_expect_eq(jinja_try((struct str){source.data, source.size}, STR_LIT("{}"), &out, &err), 0, "%s", err.text);
    cr_expect_eq(out.size, 3005u, "%zu", out.size);
    jinja_output_free(&out);
    text_free(&source);
}

Test(jinja_hostile, steps_sizes_and_recursion_are_bounded)
{
    FAILS("{{ range(10**9) }}", "line 1, column 9: a range of more than 100000 items");
    FAILS("{{ range(-9223372036854775807, 9223372036854775807) }}",
          "line 1, column 9: a range of more than 100000 items");
    FAILS("{{ 'x' * 10**9 }}", "line 1, column 8: a text grows over 16 MiB");
    FAILS("{{ 'x'.center(10**9) }}", "line 1, column 14: a text grows over 16 MiB");
    FAILS("{{ '%1000000000d' % 1 }}", "line 1, column 19: a width or precision over 1048576");
    FAILS("{{ '{:1000000000}'.format(1) }}", "line 1, column 26: a width or precision over 1048576");
    FAILS("{{ ('a' * 4000000).replace('a', 'bbbbbbbb') }}", "line 1, column 27: a text grows over 16 MiB");
    FAILS("{% set l = range(1000)|list %}{% for a in range(100000) %}{% for b in l %}{% endfor %}{% endfor %}",
          "line 1, column 71: the template takes more than 10000000 steps");
    FAILS("{% for a in range(100000) %}{% set l = range(100000)|list %}{% endfor %}",
          "line 1, column 54: the template's values take more than 192 MiB");
    FAILS("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
          "line 1, column 20: macros call each other deeper than 100");
    FAILS("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
          "line 1, column 36: macros call each other deeper than 100");
    FAILS("{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = [n.l] %}{% endfor %}",
          "line 1, column 59: lists and objects are nested deeper than 512");
    FAILS("{% set n = namespace() %}{% set n.x = n %}{{ n }}",
          "line 1, column 46: a value is nested too deep to be printed");
    FAILS("{{ 2 ** 64 }}", "line 1, column 6: the result of '**' needs more than 64 bits");
    FAILS("{{ -9223372036854775807 - 2 }}", "line 1, column 25: the result of '-' needs more than 64 bits");
    FAILS("{{ '99999999999999999999' | int }}", "line 1, column 29: the whole number needs more than 64 bits");
    FAILS("{{ 1e30 | int }}", "line 1, column 11: the whole number needs more than 64 bits");
    FAILS("{{ 99999999999999999999 }}", "line 1, column 4: a whole number that needs more than 64 bits");
}

// A construct around, or below, so many levels of another one.
struct nested {
    const char *head, *unit, *inner, *close, *tail;
};

// Tries all depths around a limit: up to it a source is fine, and beyond it is refused with these words.
static void try_depths(const struct nested *f, int from, int to, const char *says)
{
    int fine = 0, refused = 0;
    for (int n = from; n <= to; n++) {
        struct text source = {0};
        struct jinja_template *t;
        struct error err = {0};
        text_print(&source, "%s", f->head);
        for (int i = 0; i < n; i++)
            text_append(&source, str_from(f->unit));
        text_append(&source, str_from(f->inner));
        for (int i = 0; i < n; i++)
            text_append(&source, str_from(f->close));
        text_print(&source, "%s", f->tail);
        const int status = jinja_parse(&t, (struct str){source.data, source.size}, &err);
        cr_expect(!status || strstr(err.text, says), "%s%s x %d%s: %s", f->head, f->unit, n, f->inner, err.text);
        cr_expect(!status || fine > 0, "%s%s%s is refused at once", f->head, f->unit, f->inner);
        fine += status == 0;
        refused += status != 0;
        jinja_free(t);
        text_free(&source);
    }
    cr_expect(fine > 0 && refused > 0, "%s%s%s: %d fine, %d refused", f->head, f->unit, f->inner, fine, refused);
}

Test(jinja_hostile, every_construct_keeps_the_limit_of_operators)
{
    static const char *const forms[][2] = {
        {"{{ 1", " }}"},
        {"{{ [1", "] }}"},
        {"{{ (1", ",) }}"},
        {"{{ (1", ", 2) }}"},
        {"{{ {1", ": 2} }}"},
        {"{{ {1: 1", "} }}"},
        {"{{ f(1", ") }}"},
        {"{{ f(a=1", ") }}"},
        {"{{ f(*1", ") }}"},
        {"{{ f(**1", ") }}"},
        {"{{ (1", ")[0] }}"},
        {"{{ (1", ").x }}"},
        {"{{ (1", ").0 }}"},
        {"{{ a[1", "] }}"},
        {"{{ a[1", ":] }}"},
        {"{{ a[:1", "] }}"},
        {"{{ a[::1", "] }}"},
        {"{{ a[1", ", 2] }}"},
        {"{{ (1", ")|e }}"},
        {"{{ 1|e(1", ") }}"},
        {"{{ (1", ") is none }}"},
        {"{{ (1", ") is not none }}"},
        {"{{ 1 is eq(1", ") }}"},
        {"{{ not 1", " }}"},
        {"{{ -(1", ") }}"},
        {"{{ 2 ** (1", ") }}"},
        {"{{ 1 < 1", " }}"},
        {"{{ 1", " < 2 < 3 }}"},
        {"{{ 1", " ~ 2 }}"},
        {"{{ 2 ~ (1", ") }}"},
        {"{{ 1", " and 2 }}"},
        {"{{ 2 or 1", " }}"},
        {"{{ 1", " if 2 }}"},
        {"{{ 2 if 1", " else 3 }}"},
        {"{{ 2 if 3 else 1", " }}"},
        {"{{ 2 in (1", ") }}"},
        {"{{ 2 * (1", ") }}"},
        {"{{ (1", ")() }}"},
        {"{% if 1", " %}{% endif %}"},
        {"{% if 1 %}{% elif 1", " %}{% endif %}"},
        {"{% for a in [1", "] %}{% endfor %}"},
        {"{% for a in b if 1", " %}{% endfor %}"},
        {"{% set a = 1", " %}"},
        {"{% set a | e(1", ") %}{% endset %}"},
        {"{% with a = 1", " %}{% endwith %}"},
        {"{% print 1", " %}"},
        {"{% print 2, 1", " %}"},
        {"{% filter e(1", ") %}{% endfilter %}"},
        {"{% macro m(a=1", ") %}{% endmacro %}"},
        {"{% call f(1", ") %}{% endcall %}"},
        {"{% autoescape 1", " %}{% endautoescape %}"},
    };
    for (size_t i = 0; i < COUNT_OF(forms); i++)
        try_depths(&(struct nested){forms[i][0], "+1", "", "", forms[i][1]}, 985, 1004,
                   "more than 1000 operators build on each other");
}

Test(jinja_hostile, every_construct_keeps_the_limit_of_nesting)
{
    static const char *const statements[] = {
        "{% set a %}b{% endset %}",
        "{% filter e %}{% endfilter %}",
        "{% with %}{% endwith %}",
        "{% macro m() %}{% endmacro %}",
        "{% call m() %}{% endcall %}",
        "{% for a in b %}{% else %}{% endfor %}",
        "{% if 1 %}{% elif 2 %}{% else %}{% endif %}",
        "{% autoescape true %}{% endautoescape %}",
        "{% block b %}{% endblock %}",
        "{% generation %}{% endgeneration %}",
        "{{ (1) }}",
        "{{ not 1 }}",
        "{{ 1 if 2 else 3 }}",
        "{{ f(1) }}",
    };
    static const char *const expressions[] = {
        "1",    "not 1",  "-1",      "- - 1",  "1 if 2 else 3", "[1]",           "{1: 2}",
        "f(1)", "a[1:2]", "a[1, 2]", "a|e(1)", "1 is eq(1)",    "1 is not eq 1", "(1, 2)"};
    static const char says[] = "nested deeper than 100";
    for (size_t i = 0; i < COUNT_OF(statements); i++) {
        try_depths(&(struct nested){"", "{% if 1 %}", statements[i], "{% endif %}", ""}, 90, 104, says);
        try_depths(&(struct nested){"", "{% for a in b %}", statements[i], "{% endfor %}", ""}, 90, 104, says);
    }
    for (size_t i = 0; i < COUNT_OF(expressions); i++) {
        try_depths(&(struct nested){"{{ ", "(", expressions[i], ")", " }}"}, 90, 104, says);
        try_depths(&(struct nested){"{{ ", "not ", expressions[i], "", " }}"}, 90, 304, says);
        try_depths(&(struct nested){"{{ ", "1 if 2 else ", expressions[i], "", " }}"}, 90, 304, says);
    }
}

// Each of these asks for more than a rendering may have, in its own way.
Test(jinja_hostile, memory_numbers_and_depth_are_bounded)
{
    FAILS("{{ ('1' * 2600000)|from_json }}", "line 1, column 20: from_json: a text of more than 2516582 bytes");
    FAILS(
        "{% set n = namespace(l='') %}{% set n.l = ('1' * 1000) * 2000 %}{% for i in range(3) %}{% set k = n.l * 8 %}{% endfor %}"
        "{{ n.l|from_json }}",
        "line 1, column 128: the template's values take more than 192 MiB");
    FAILS("{% set l = ('x' * 1000) * 8000 %}{% for i in range(8) %}{% set k = l ~ 'y' %}{% endfor %}",
          "line 1, column 72: the template's values take more than 192 MiB");
    refuse_long("{{ ", "1", 600, " }}", "line 1, column 4: a whole number that needs more than 64 bits");
    refuse_long("{{ 1.", "1", 126, " }}", "line 1, column 4: a number of over 127 digits");
}

// A macro that calls itself below so many statements.
static void recurse_below(const char *open, const char *close, int n)
{
    struct text source = {0};
    struct jinja_output out;
    struct error err = {0};
    text_print(&source, "{%% macro m() %%}");
    for (int i = 0; i < n; i++)
        text_append(&source, str_from(open));
    text_print(&source, "{{ m() }}");
    for (int i = 0; i < n; i++)
        text_append(&source, str_from(close));
    text_print(&source, "{%% endmacro %%}{{ m() }}");
    cr_expect_eq(jinja_try((struct str){source.data, source.size}, STR_LIT("{}"), &out, &err), -1);
    cr_expect(strstr(err.text, "nested deeper than 2000") || (n < 20 && strstr(err.text, "deeper than 100")),
              "%s x %d: %s", open, n, err.text);
    jinja_output_free(&out);
    text_free(&source);
}

// The limit is reached in an expression, or in a statement that has none.
Test(jinja_hostile, statements_and_calls_together_keep_the_limit_of_depth)
{
    for (int n = 17; n < 26; n++) {
        recurse_below("{% if 1 %}", "{% endif %}", n);
        recurse_below("{% with %}", "{% endwith %}", n);
    }
}

Test(jinja_hostile, bytes_that_are_no_utf8_stay_what_they_are)
{
    GIVES("{{ 'a\xFF\xC3'|upper }}", "A\xFF\xC3");
    GIVES("{{ ['a\xFF'] }}", "['a\\xff']");
    GIVES("{{ '%a' % 'a\xFF' }}", "'a\\xff'");
    GIVES("{{ 'a\xFF\x80'|length }}{{ 'a\xFF'[-1] }}", "3\xFF");
    GIVES("{{ ' \xFF '.strip() }}{{ 'b \xFF'.rsplit() }}", "\xFF['b', '\\xff']");
    GIVES("{{ '\xFF' is upper }}{{ '\xFF'.isalpha() }}{{ '\xCE\xB1\xFF\xCE\xA3'.lower() }}",
          "FalseFalse\xCE\xB1\xFF\xCF\x83");
    FAILS("{{ \xFF }}", "line 1, column 4: unexpected '\\xFF'");
}

Test(jinja_hostile, nobody_needs_to_take_the_error)
{
    struct jinja_template *t;
    struct jinja_output out;
    const struct value none = {.kind = VALUE_DICT};
    cr_expect_eq(jinja_parse(&t, STR_LIT("{{"), NULL), -1);
    cr_expect_null(t);
    cr_assert_eq(jinja_parse(&t, STR_LIT("{{ 1 / 0 }}"), NULL), 0);
    cr_expect_eq(jinja_render(t, &none, &jinja_noon, &out, NULL), -1);
    cr_expect_null(out.text);
    jinja_free(t);
}

// A value that is doubled repeatedly must reach a limit before it takes the machine's memory.
Test(jinja_hostile, doubling_is_stopped)
{
    struct jinja_output out;
    struct error err = {0};
    static const char *const sources[] = {
        "{% set n = namespace(s='x') %}{% for i in range(64) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% set n = namespace(s=[1]) %}{% for i in range(64) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% for i in range(100000) %}{{ 'x' * 10000 }}{% endfor %}",
        "{% for i in range(100000) %}{% set x = ('y' * 10000).upper() %}{% endfor %}",
        "{% set n = namespace(s='xy') %}{% for i in range(64) %}{% set n.s = n.s|replace('x', 'xx') %}{% endfor %}",
    };
    for (size_t i = 0; i < COUNT_OF(sources); i++) {
        cr_expect_eq(jinja_try(str_from(sources[i]), STR_LIT("{}"), &out, &err), -1, "%s", sources[i]);
        cr_expect_eq(err.code, E_MODEL, "%s: %s", sources[i], err.text);
        jinja_output_free(&out);
    }
}

Test(jinja_hostile, a_string_that_grows_bit_by_bit_takes_linear_memory)
{
    jinja_expect("{% set n = namespace(s='') %}{% for i in range(20000) %}{% set n.s = n.s + 'some more words ' ~ x "
                 "%}{% endfor %}"
                 "{{ n.s|length }}",
                 "{\"x\": \"and input\"}", "500000");
}

Test(jinja_hostile, broken_templates_say_where)
{
    FAILS("{{", "line 1, column 1: this tag has no end");
    FAILS("a\n{% if", "line 2, column 1: this tag has no end");
    FAILS("{# x", "line 1, column 1: this comment has no end");
    FAILS("{% raw %} x", "line 1, column 1: this raw block has no end");
    FAILS("{{ 'x }}", "line 1, column 4: this string has no end");
    FAILS("{% if 1 %}", "line 1, column 11: the template ends where 'elif' or 'else' or 'endif' is expected");
    FAILS("{% endif %}", "line 1, column 4: unknown statement 'endif', or one that ends nothing");
    FAILS("{% nonsense %}", "line 1, column 4: unknown statement 'nonsense', or one that ends nothing");
    FAILS("{{ 1 + }}", "line 1, column 8: an expression is expected, not '}}'");
    FAILS("{{ }}", "line 1, column 4: an expression is expected, not '}}'");
    FAILS("{{ a b }}", "line 1, column 6: '}}' is expected, not 'b'");
    FAILS("{{ (1] }}", "line 1, column 6: ']' where ')' is expected");
    FAILS("{{ ) }}", "line 1, column 4: ')' closes nothing");
    FAILS("{{ a.+ }}", "line 1, column 6: a name or a number is expected behind '.', not '+'");
    FAILS("{% for x y %}", "line 1, column 10: 'in' is expected");
    FAILS("{% set 1 = 2 %}", "line 1, column 8: nothing can be assigned to this");
    FAILS("{% break %}", "line 1, column 4: 'break' stands outside of a loop");
    FAILS("{% macro m(a=1, b) %}{% endmacro %}",
          "line 1, column 18: a parameter without a default stands behind one that has one");
    FAILS("{{ f(a=1, 2) }}", "line 1, column 11: this argument may not stand behind the one before it");
    FAILS("{{ ? }}", "line 1, column 4: unexpected '?'");
    FAILS("{{ '\\ud800' }}", "line 1, column 7: an escape that is no character");
    FAILS("\xC3\xBC{{ x.y.z }}", "line 1, column 6: 'x' is undefined");
    FAILS("{% include 'x' %}", "line 1, column 4: 'include' needs another template, and a chat template stands alone");
    FAILS("{{ 1|nope }}", "line 1, column 6: there is no filter 'nope'");
    FAILS("{{ 1 is nope }}", "line 1, column 6: there is no test 'nope'");
    FAILS("{{ raise_exception('no\x1b[2Jgo') }}", "line 1, column 19: no\\x1B[2Jgo");
}

// Cut anywhere, changed anywhere: an error or a text, never more.
Test(jinja_hostile, mutants_are_refused_or_rendered, .timeout = 120)
{
    static const char source[] = "{%- set ns = namespace(a=0, b='x') -%}{# note #}{% macro m(p, q=2) %}<{{ p ~ q }}{{ "
                                 "caller() if caller }}>{% endmacro %}"
                                 "{% for x in msgs if x.role != 'tool' recursive %}{{ loop.index }}{{ "
                                 "x['content'][::-1]|upper|replace('A', \"b\") }}"
                                 "{% if loop.last and not x is none %}{% set ns.a = ns.a + 1 %}{{ loop([]) }}{% elif 1 "
                                 "< 2 <= 3 %}{% break %}{% else %}y"
                                 "{% endif %}{% else %}none{% endfor %}{% call m(1) %}in{% endcall %}{% filter trim %} "
                                 "{{ [1, 2.5, {'k': (1,)}]|tojson(indent=2) }} "
                                 "{% endfilter %}{% raw %}{{ }}{% endraw %}{% set y %}{{ '%5.2f|%s' % (1.5, 'a') }}{{ "
                                 "'{:>5}'.format(3) }}{% endset %}{{ y[1:-1:2] }}"
                                 "{{ msgs|selectattr('role', 'eq', 'user')|map(attribute='content')|join(', ') }}{% "
                                 "generation %}{{ ns.b * 3 }}{% endgeneration %}";
    static const char context[] =
        "{\"msgs\": [{\"role\": \"user\", \"content\": \"a<|b|>\xC3\xBC\"}, {\"role\": \"tool\", \"content\": \"c\"}]}";
    static const char *const words[] = {"{%",    "%}", "{{", "}}", "(", ")",    "|", "'", "\\", "for",
                                        "endif", "-",  "[",  ":",  "*", "\xC3", "0", "e", "\n", "#}"};
    uint64_t seed = 20260115, state = seed;
    cr_log_info("seed %llu", (unsigned long long)seed);
    size_t n = sizeof source - 1, rendered = 0;
    for (int i = 0; i < 4000; i++) {
        char mutant[sizeof source + 64];
        memcpy(mutant, source, sizeof source);
        size_t len = n;
        for (int k = 0; k < 1 + i % 3; k++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            size_t at = (size_t)(state >> 33) % len, w = (size_t)(state >> 20) % COUNT_OF(words), wl = strlen(words[w]);
            if (state & 1) {
                memmove(mutant + at, mutant + at + 1, len - at);
                len--;
            } else {
                memmove(mutant + at + wl, mutant + at, len - at + 1);
                memcpy(mutant + at, words[w], wl);
                len += wl;
            }
        }
        struct jinja_output out;
        struct error err = {0};
        char *exact = malloc(len); // so that a read behind the end is found
        cr_assert_not_null(exact);
        memcpy(exact, mutant, len);
        int status = jinja_try((struct str){exact, len}, STR_LIT(context), &out, &err);
        cr_assert(status == 0 || err.code == E_MODEL, "%s: %s", mutant, err.text);
        rendered += status == 0;
        jinja_output_free(&out);
        free(exact);
    }
    cr_expect_gt(rendered, 100u, "%zu", rendered);
}
