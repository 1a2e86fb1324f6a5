// Tests that the steps of a template bound its time: programs of random filters, tests, methods and operators, over
// values that share their parts, long texts, long lists and keys that are all alike, take at most a fixed time for each
// step, and a fixed memory.
#include "tests/jinja_expect.h"

#include <sys/resource.h>

#include "engine/chat/jinja_filters.h"
#include "tests/stopwatch.h"

enum { STEPS = 1000000 };
static const double step_seconds = 4e-7; // four times what a step should take at most
static const long memory_max = 640;      // MiB: the values, a text from them, and the output

// ---- Random programs ----

static uint64_t seed, state;

static unsigned below(unsigned n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(state >> 33) % n;
}
#define PICK(table) (table)[below(COUNT_OF(table))]

static const char *const filters[] = {
#define NAME(name) #name,
    JINJA_FILTERS(NAME)
#undef NAME
};

static const char *const tests[] = {
    "defined", "none",   "string", "mapping", "iterable", "sequence", "upper",       "lower",  "odd",    "even", "sameas",
    "in",      "eq",     "ne",     "lt",      "le",       "gt",       "divisibleby", "filter", "escaped", "callable",
};

static const char *const text_methods[] = {
    "capitalize", "casefold",  "center",      "count",      "endswith", "expandtabs",   "find",         "format",
    "index",      "isalnum",   "isalpha",     "isascii",    "isdigit",  "isidentifier", "islower",      "isprintable",
    "isspace",    "istitle",   "join",        "ljust",      "lower",    "lstrip",       "partition",    "removeprefix",
    "replace",    "rfind",     "rindex",      "rpartition", "rsplit",   "rstrip",       "removesuffix", "rjust",
    "split",      "splitlines", "startswith", "strip",      "swapcase", "title",        "upper",        "zfill",
};

static const char *const list_methods[] = {"count", "index", "copy"};
static const char *const dict_methods[] = {"get", "keys", "values", "items", "copy"};

static const char *const texts[] = {"big", "same", "ids", "n.s", "'a'", "same[1:]", "'%1000d{}'", "big[::-1]", "'b' ~ same"};
static const char *const lists[] = {"l", "n.a", "n.b", "n.t", "pairs", "words", "[n.a, n.b]", "[nan, nan]", "nans"};
static const char *const dicts[] = {"n.d", "n.e", "wide", "{n.t: 1}", "{'k': n.a}"};
static const char *const others[] = {"1",    "0",         "-3",       "5000",      "1e308", "3e-308",  "nan",
                                     "none", "undefined", "range(9)", "range(20000)", "n",   "'k'",     "'0.0'",
                                     "'lt'", "true",      "loop",     "'%.900f'",  "'eq'",  "'upper'", "'length'"};

static const char *operand(void)
{
    switch (below(5)) {
    case 0:
        return PICK(texts);
    case 1:
    case 2:
        return PICK(lists);
    case 3:
        return PICK(dicts);
    default:
        return PICK(others);
    }
}

static void put_args(struct text *t, unsigned most)
{
    static const char *const keywords[] = {"attribute", "default", "case_sensitive", "reverse", "sort_keys", "indent"};
    unsigned n = below(most + 1);
    text_print(t, "(");
    for (unsigned i = 0; i < n; i++)
        text_print(t, "%s%s", i ? ", " : "", operand());
    if (below(4) == 0)
        text_print(t, "%s%s=%s", n ? ", " : "", PICK(keywords), operand());
    text_print(t, ")");
}

static void put_method(struct text *t)
{
    switch (below(3)) {
    case 0:
        text_print(t, "%s.%s", PICK(lists), PICK(list_methods));
        break;
    case 1:
        text_print(t, "%s.%s", PICK(dicts), PICK(dict_methods));
        break;
    default:
        text_print(t, "%s.%s", PICK(texts), PICK(text_methods));
    }
    put_args(t, 3);
}

static void put_expression(struct text *t)
{
    static const char *const signs[] = {"==", "!=", "<",  "<=", ">",  ">=", "in", "not in",
                                        "+",  "-",  "*",  "/",  "//", "%",  "**", "~"};
    switch (below(4)) {
    case 0:
        text_print(t, "%s", operand());
        for (unsigned i = below(3) + 1; i > 0; i--) {
            text_print(t, "|%s", PICK(filters));
            put_args(t, 2);
        }
        break;
    case 1:
        text_print(t, "%s is %s", operand(), PICK(tests));
        put_args(t, 1);
        break;
    case 2:
        put_method(t);
        break;
    default: {
        const char *const *table = below(2) ? lists : texts;
        text_print(t, "%s %s %s", table[below(8)], PICK(signs), below(2) ? table[below(8)] : operand());
    }
    }
}

// Values that share their parts have few bytes, and more parts than a machine can visit.
static void put_values(struct text *t)
{
    text_print(t, "{%% set big = 'some words, <and> more. ' * 9000 %%}{%% set same = ('a' * 400) * 100 %%}{%% set l = "
                  "range(9000)|list %%}{%% set nan = 'nan'|float %%}{%% set ids = '\xC3\xA4\xCE\xA3_' * 9000 %%}"
                  "{%% set words = big.split(' ') %%}{%% set nans = [nan] * 3000 %%}{%% set pairs = [(nan, 1)] * 2000 %%}"
                  "{%% set wide = dict(words|batch(2, 1)|list) %%}"
                  "{%% set n = namespace(a=[1], b=[1], t=(1,), d={'k': 1}, e={'k': 1}, s='x') %%}"
                  "{%% for i in range(%u) %%}{%% set n.a = [n.a, n.a] %%}{%% set n.b = [n.b, n.b] %%}"
                  "{%% set n.t = (n.t, n.t) %%}{%% set n.d = {'k': n.d, 'j': n.d} %%}{%% set n.e = {'j': n.e, 'k': n.e} %%}"
                  "{%% if i < 16 %%}{%% set n.s = n.s + n.s %%}{%% endif %%}{%% endfor %%}",
               5 + below(60));
}

static void put_program(struct text *t)
{
    put_values(t);
    text_print(t, "{%% for q in range(100000) %%}");
    for (unsigned i = below(3) + 1; i > 0; i--) {
        static const char *const heads[] = {"{% set x = ", "{% if ", "{{ ", "{{ loop.changed(", "{% for y in "};
        static const char *const tails[] = {" %}", " %}{% endif %}", " }}", ") }}", " %}{% endfor %}"};
        unsigned k = below(COUNT_OF(heads));
        text_append(t, str_from(heads[k]));
        put_expression(t);
        text_append(t, str_from(tails[k]));
    }
    text_print(t, "{%% endfor %%}");
}

// ---- Their time ----

// Renders with few steps. Returns the seconds of it; *full: it took all its steps.
static double time_of(const struct text *source, bool *full)
{
    struct value context = {.kind = VALUE_DICT};
    struct arena arena = {0};
    struct jinja_template *t = NULL;
    struct jinja_options o = jinja_noon;
    struct jinja_output out = {0};
    struct error err = {0};
    o.max_steps = STEPS;
    cr_assert_eq(value_dict_new(&context, &arena, &err), 0);
    cr_assert_eq(jinja_parse(&t, (struct str){source->data, source->size}, &err), 0, "%.*s: %s", (int)source->size,
                 source->data, err.text);
    double start = seconds();
    int status = jinja_render(t, &context, &o, &out, &err);
    double took = seconds() - start;
    cr_assert(status == 0 || err.code == E_MODEL, "%.*s: %s", (int)source->size, source->data, err.text);
    *full = strstr(err.text, "more than 1000000 steps") != NULL;
    jinja_output_free(&out);
    jinja_free(t);
    arena_free(&arena);
    return took;
}

Test(jinja_work, steps_bound_the_time_and_the_memory_of_random_programs, .timeout = 600)
{
    const char *given = getenv("JINJA_WORK_SEED"), *count = getenv("JINJA_WORK_RUNS");
    int runs = count ? atoi(count) : sanitized ? 60 : 1000, filled = 0;
    double worst = 0;
    seed = state = given ? strtoull(given, NULL, 10) : 20260115;
    cr_log_info("seed %llu", (unsigned long long)seed);
    for (int i = 0; i < runs; i++) {
        struct text source = {0};
        bool full;
        put_program(&source);
        double took = time_of(&source, &full);
        cr_expect_lt(took, STEPS * step_seconds * patience(), "program %d of seed %llu takes %.2f s: %.*s", i,
                     (unsigned long long)seed, took, (int)source.size, source.data);
        worst = MAX(worst, took);
        filled += full;
        text_free(&source);
    }
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    cr_log_info("%d of %d took all their steps, the slowest %.0f ns a step; %ld MiB", filled, runs, worst / STEPS * 1e9,
                use.ru_maxrss >> 10);
    cr_expect_gt(filled, runs / 10);
    cr_expect(sanitized || use.ru_maxrss >> 10 < memory_max, "%ld MiB", use.ru_maxrss >> 10);
}

// ---- One by one ----

#define TWINS                                                                                                          \
    "{% set n = namespace(a=[1], b=[1], t=(1,), u=(1,), d={'k': 1}, e={'k': 1}) %}{% for i in range(60) %}"           \
    "{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% set n.t = (n.t, n.t) %}{% set n.u = (n.u, n.u) %}"        \
    "{% set n.d = {'k': n.d, 'j': n.d} %}{% set n.e = {'k': n.e, 'j': n.e} %}{% endfor %}"
#define LONG "{% set s = 'some words <b> ' * 60000 %}{% set l = range(50000)|list %}{% for i in range(100000) %}"

// Each of these took minutes, or would never have ended, before its work was counted.
static const char *const slow[] = {
    TWINS "{{ n.a == n.b }}",
    TWINS "{{ n.a != n.b }}",
    TWINS "{{ n.a < n.b }}",
    TWINS "{{ n.a in [n.b] }}",
    TWINS "{{ n.a is eq n.b }}",
    TWINS "{{ n.d == n.e }}",
    TWINS "{{ n.d is in [n.e] }}",
    TWINS "{{ {n.t: 1} }}",
    TWINS "{{ {n.t: 1}[n.u] }}",
    TWINS "{{ {1: 1}.get(n.t) }}",
    TWINS "{{ n.t in {1: 1} }}",
    TWINS "{{ [n.a, n.b].count(n.b) }}",
    TWINS "{{ [n.a, n.b].index(n.b, 0) }}",
    TWINS "{{ [n.a, n.b]|sort }}",
    TWINS "{{ [n.a, n.b]|max }}",
    TWINS "{{ [n.a, n.b]|min }}",
    TWINS "{{ [n.t, n.u]|unique|list }}",
    TWINS "{{ [{'k': n.a}, {'k': n.b}]|groupby('k') }}",
    TWINS "{{ [{'k': n.a}, {'k': n.b}]|selectattr('k', 'eq', n.b)|list }}",
    TWINS "{{ [{'k': n.a}, {'k': n.b}]|rejectattr('k', 'ne', n.b)|list }}",
    TWINS "{{ {'x': n.a, 'y': n.b}|dictsort(by='value') }}",
    TWINS "{% for x in [n.a, n.b] %}{{ loop.changed(x) }}{% endfor %}",
    TWINS "{{ n.a }}",
    TWINS "{{ n.d|string }}",
    TWINS "{{ n.a|tojson }}",
    TWINS "{{ n.d|tojson(sort_keys=true) }}",
    TWINS "{{ [n.a]|join }}",
    TWINS "{{ '%s' % [n.a] }}",
    TWINS "{{ '{}'.format(n.a) }}",
    TWINS "{{ n.a|replace('1', '2') }}",
    TWINS "{{ n.a|upper }}",
    "{% set nan = 'nan'|float %}{{ ([nan] * 100000)|unique|list|length }}",
    "{% set nan = 'nan'|float %}{{ dict([(nan, 1)] * 100000)|length }}",
    "{% set s = 'a' * 900000 %}{{ s.strip('b' * 900000 + 'a')|length }}",
    "{% set s = 'a' * 900000 %}{{ s|trim('b' * 900000 + 'a')|length }}",
    "{% set s = 'a' * 4000000 %}{{ s.rpartition('a' * 2000000 + 'b')|length }}",
    LONG "{% set x = l|reject %}{% endfor %}",
    LONG "{% set x = l|select|first %}{% endfor %}",
    LONG "{% set x = l|max %}{% endfor %}",
    LONG "{% set x = s|e|length %}{% endfor %}",
    LONG "{% set x = s.isidentifier() %}{% endfor %}",
    LONG "{% set x = s.istitle() %}{% endfor %}",
    LONG "{% set x = s == s ~ '' %}{% endfor %}",
    LONG "{% set x = s < s %}{% endfor %}",
    LONG "{% set x = {s: 1}[s] %}{% endfor %}",
    LONG "{% set x = s is sameas s %}{% endfor %}",
    LONG "{% set x = s|float %}{% endfor %}",
    LONG "{% set x = s[-1] %}{% endfor %}",
    LONG "{% set x = ''.strip(s) ~ s.strip('x') %}{% endfor %}",
    LONG "{% set x = s % () %}{% endfor %}",
    LONG "{% set x = s.format() %}{% endfor %}",
    "{% for i in range(100000) %}{% for k in range(20) %}{% set x = 1e308 % 3e-308 %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% set x = ('%.1000g' % 0.1)|length %}{% endfor %}",
    "{% for i in range(100000) %}{% set x = strftime_now('%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c') %}{% endfor %}",
};

Test(jinja_work, whatever_visits_the_inside_of_a_value_counts_it, .timeout = 600)
{
    for (size_t i = 0; i < COUNT_OF(slow); i++) {
        struct text source = {0};
        bool full;
        text_append(&source, str_from(slow[i]));
        double took = time_of(&source, &full);
        cr_expect_lt(took, STEPS * step_seconds * patience(), "%.2f s: %s", took, slow[i]);
        cr_expect(full, "%s", slow[i]);
        text_free(&source);
    }
}

// Names are found in a list of variables, so many of them would take the square of their number.
Test(jinja_work, many_variables_and_long_names_are_counted)
{
    struct text source = {0}, long_name = {0};
    bool full;
    for (int i = 0; i < 40000; i++)
        text_print(&source, "{%% set v%d=1 %%}", i);
    text_print(&source, "{%% for i in range(100000) %%}{{ v39999 }}{%% endfor %%}");
    cr_expect_lt(time_of(&source, &full), STEPS * step_seconds * patience());
    cr_expect(full);
    text_print(&long_name, "{%% for i in range(100000) %%}{{ ");
    for (int i = 0; i < 50000; i++)
        text_print(&long_name, "abcdefghij");
    text_print(&long_name, " }}{%% endfor %%}");
    cr_expect_lt(time_of(&long_name, &full), STEPS * step_seconds * patience());
    cr_expect(full);
    text_free(&source);
    text_free(&long_name);
}
