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

// Every filter, test, method and operator. In a form, $T stands for a text, $L for a list, $D for a dict, $I for a number,
// $N for the name of a test, and $A for anything.
static const char *const forms[] = {
    "$I|abs",
    "$D|attr($T)",
    "$L|batch($I, $A)|list",
    "$T|capitalize",
    "$T|center($I)",
    "$A|default($A, true)",
    "$D|dictsort(by='value')",
    "$D|dictsort(true, reverse=true)",
    "$T|escape",
    "$A|escape",
    "$I|filesizeformat",
    "$L|first",
    "$T|float",
    "$A|forceescape",
    "$T|format($A)",
    "$T|from_json",
    "($A|tojson|from_json)",
    "$L|groupby($I)|list",
    "$L|groupby(attribute='0')",
    "$T|indent($I, true, true)",
    "$T|indent($T)",
    "$T|int(0, $I)",
    "$D|items|list",
    "$L|join($T)",
    "$L|join(',', attribute=0)",
    "$L|last",
    "$L|length",
    "$A|list",
    "$T|lower",
    "$L|map('upper')|list",
    "$L|map('length')|list",
    "$L|map(attribute='0.0.0.0')|list",
    "$L|max",
    "$L|min",
    "$L|max(attribute=0)",
    "$L|min(true)",
    "$L|reject($N, $A)|list",
    "$L|rejectattr(0, $N, $A)|list",
    "$L|reject|list",
    "$T|replace($T, $T)",
    "$T|replace($T, $T, $I)",
    "$L|reverse|list",
    "$T|reverse",
    "$I|round($I)",
    "$T|safe",
    "$L|select($N, $A)|list",
    "$L|select|list",
    "$L|selectattr(0, $N, $A)|list",
    "$L|slice($I, $A)|list",
    "$L|sort",
    "$L|sort(true, true)",
    "$L|sort(attribute='0,0')",
    "$A|string",
    "$T|striptags",
    "$L|sum(start=$L)",
    "$L|sum(attribute=0)",
    "$T|title",
    "$A|tojson",
    "$A|tojson(indent=$I, sort_keys=true)",
    "$T|trim",
    "$T|trim($T)",
    "$T|truncate($I, true)",
    "$T|truncate($I)",
    "$L|unique|list",
    "$L|unique(true, 0)|list",
    "$T|upper",
    "$A|urlencode",
    "$T|wordcount",
    "$T|wordwrap($I)",
    "$T|wordwrap(1, true, $T)",
    "$D|xmlattr",
    "$A is defined",
    "$T is upper",
    "$T is lower",
    "$I is odd",
    "$A is sameas $A",
    "$A is in $L",
    "$A is eq $A",
    "$A is lt $A",
    "$A is ne $A",
    "$A is divisibleby $I",
    "$T is filter",
    "$A is iterable",
    "$T.capitalize()",
    "$T.casefold()",
    "$T.center($I, 'x')",
    "$T.count($T)",
    "$T.endswith($T)",
    "$T.startswith(($T, $T))",
    "$T.expandtabs($I)",
    "$T.find($T)",
    "$T.format($A, $A)",
    "$T.index($T, $I)",
    "$T.isalnum()",
    "$T.isalpha()",
    "$T.isascii()",
    "$T.isdigit()",
    "$T.isidentifier()",
    "$T.islower()",
    "$T.isprintable()",
    "$T.isspace()",
    "$T.istitle()",
    "$T.join($L)",
    "$T.join(words)",
    "$T.ljust($I)",
    "$T.lower()",
    "$T.lstrip($T)",
    "$T.partition($T)",
    "$T.removeprefix($T)",
    "$T.removesuffix($T)",
    "$T.replace($T, $T)",
    "$T.rfind($T)",
    "$T.rindex($T)",
    "$T.rpartition($T)",
    "$T.rsplit($T)",
    "$T.rstrip()",
    "$T.strip($T)",
    "$T.split()",
    "$T.split($T, $I)",
    "$T.splitlines(true)",
    "$T.swapcase()",
    "$T.title()",
    "$T.upper()",
    "$T.zfill($I)",
    "$L.count($A)",
    "$L.index($A)",
    "$L.copy()",
    "$D.get($A, $A)",
    "$D.keys()",
    "$D.values()|list",
    "$D.items()|list",
    "$A == $A",
    "$L != $L",
    "$L < $L",
    "$L <= $L",
    "$D == $D",
    "$T >= $T",
    "$T > $T",
    "$A in $L",
    "$T not in $T",
    "$A in $D",
    "$L + $L",
    "$T + $T",
    "$L * $I",
    "$T * $I",
    "$I / $I",
    "$I // $I",
    "$I % $I",
    "$T % $A",
    "$T % ($A, $A)",
    "$I ** $I",
    "$A ~ $A",
    "$I - $I",
    "-$I",
    "not $A",
    "$T[$I]",
    "$L[$I]",
    "$T[::$I]",
    "$L[$I:$I]",
    "$D[$A]",
    "dict($D)",
    "dict($L)",
    "{$A: $A}",
    "[$A, $A]",
    "($A, $A)",
    "namespace($D)",
    "range($I)|list",
    "cycler($A, $A)",
    "joiner($T)()",
    "strftime_now($T)",
    "'%.900f|%1000d' % ($I, $I)",
    "'{:>900}{:e}'.format($T, $I)",
    "loop.cycle($A)",
    "loop.changed($A)",
    "($A if $A else $A)",
    "$A and $A",
    "$A or $A",
    "n.$W",
    "loop.length",
};

static const char *const texts[] = {"big", "same", "ids", "n.s", "'a'", "same[1:]", "'%s{}'", "' '", "'b'", "''"};
static const char *const lists[] = {"l",     "n.a",        "n.b",  "n.t",        "pairs",
                                    "words", "[n.a, n.b]", "nans", "[n.t, n.u]", "[]"};
static const char *const dicts[] = {"n.d", "n.e", "wide", "{n.t: 1}", "{'k': n.a}", "{}"};
static const char *const numbers[] = {"0", "1", "-3", "5000", "1e308", "3e-308", "nan", "q", "true", "70", "2"};
static const char *const names[] = {"'lt'", "'eq'", "'in'", "'ne'", "'defined'", "'sameas'", "'ge'", "'string'"};
static const char *const others[] = {"none", "undefined", "range(9)", "range(9000)", "n", "loop", "'k'", "big|safe"};
static const char *const words[] = {"a", "d", "s", "keys"};

enum { ANY = 5 }; // $A is one of the first ANY kinds
static const struct kind {
    char letter;
    const char *const *table;
    unsigned n;
} kinds[] = {{'T', texts, COUNT_OF(texts)},     {'L', lists, COUNT_OF(lists)},   {'D', dicts, COUNT_OF(dicts)},
             {'I', numbers, COUNT_OF(numbers)}, {'A', others, COUNT_OF(others)}, {'N', names, COUNT_OF(names)},
             {'W', words, COUNT_OF(words)}};

static void put_form(struct text *t, int depth);

static void put_operand(struct text *t, char letter, int depth)
{
    const struct kind *k = letter == 'A' ? &kinds[below(ANY)] : kinds;
    while (letter != 'A' && k->letter != letter)
        k++;
    if (depth > 0 && letter != 'N' && letter != 'W' && below(8) == 0) {
        text_print(t, "(");
        put_form(t, depth - 1);
        text_print(t, ")");
    } else {
        text_print(t, "%s", k->table[below(k->n)]);
    }
}

static void put_form(struct text *t, int depth)
{
    for (const char *p = PICK(forms); *p; p++)
        if (*p == '$')
            put_operand(t, *++p, depth);
        else
            text_print(t, "%c", *p);
}

// Values that share their parts have few bytes, and more parts than a machine can visit.
static void put_values(struct text *t)
{
    text_print(
        t,
        "{%% set big = 'some words, <and> more. ' * 9000 %%}{%% set same = ('a' * 400) * 100 %%}{%% set l = "
        "range(9000)|list %%}{%% set nan = 'nan'|float %%}{%% set ids = '\xC3\xA4\xCE\xA3_' * 9000 %%}"
        "{%% set words = big.split(' ') %%}{%% set nans = [nan] * 3000 %%}{%% set pairs = [(nan, 1)] * 2000 %%}"
        "{%% set wide = dict(words|batch(2, 1)|list) %%}"
        "{%% set n = namespace(a=[1], b=[1], t=(1,), u=(1,), d={'k': 1}, e={'k': 1}, s='x') %%}"
        "{%% for i in range(%u) %%}{%% set n.a = [n.a, n.a] %%}{%% set n.b = [n.b, n.b] %%}"
        "{%% set n.t = (n.t, n.t) %%}{%% set n.u = (n.u, n.u) %%}{%% set n.d = {'k': n.d, 'j': n.d} %%}{%% set n.e = {'j': n.e, 'k': n.e} %%}"
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
        put_form(t, 2);
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
    int runs = count ? atoi(count) : sanitized ? 20 : 150, filled = 0;
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

Test(jinja_work, every_filter_stands_in_a_form)
{
    static const char *const filters[] = {
#define NAME(name) "|" #name,
        JINJA_FILTERS(NAME)
#undef NAME
    };
    for (size_t i = 0; i < COUNT_OF(filters); i++) {
        bool found = false;
        for (size_t k = 0; k < COUNT_OF(forms) && !found; k++)
            found = strstr(forms[k], filters[i]) != NULL;
        cr_expect(found, "%s", filters[i]);
    }
}

// ---- One by one ----

#define TWINS                                                                                                          \
    "{% set n = namespace(a=[1], b=[1], t=(1,), u=(1,), d={'k': 1}, e={'k': 1}) %}{% for i in range(60) %}"            \
    "{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% set n.t = (n.t, n.t) %}{% set n.u = (n.u, n.u) %}"         \
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
    LONG "{% set x = 'x'.strip(s) %}{% endfor %}",
    LONG "{% set x = s % () %}{% endfor %}",
    LONG "{% set x = s.format() %}{% endfor %}",
    "{% for i in range(100000) %}{% for k in range(20) %}{% set x = 1e308 % 3e-308 %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% for k in range(20) %}{% set x = 1e308|round(300) %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% for k in range(20) %}{% set x = ('%f' % 1e308)|length %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% for k in range(20) %}{% set x = '{:f}'.format(1e308)|length %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% for k in range(20) %}{% set x = 1.7976931348623157e308|string|length %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% for k in range(20) %}{% set x = [1.7976931348623157e308]|tojson|length %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% for k in range(20) %}{% set x = 5e-324|string|length %}{% endfor %}{% endfor %}",
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
