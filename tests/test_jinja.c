// Tests the template language rule by rule, as in a sandbox of Jinja2 3.1.6 with trim_blocks and lstrip_blocks.
#include "tests/jinja_expect.h"

Test(jinja, white_space_around_tags)
{
    GIVES("a\n  {% if 1 %}\nb\n  {% endif %}\nc\n", "a\nb\nc");
    GIVES("a  {%- if 1 -%}  b  {%- endif -%}  c", "abc");
    GIVES("  {%+ if 1 %}x{% endif +%}\ny", "  x\ny");
    GIVES("a {{- 1 -}} b\n{{ 2 }}\nc", "a1b\n2\nc");
    GIVES("  {# c #}\nx{#- d -#} y", "xy");
    GIVES("{% raw %}\n{{ x }}{% endraw %}", "\n{{ x }}");
    GIVES("a\r\nb\rc\n\n", "a\nb\nc\n");
}

Test(jinja, scopes)
{
    GIVES("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "21");
    GIVES("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 2 %}{% endfor %}", "11");
    GIVES("{% if 1 %}{% set x = 3 %}{% endif %}{{ x }}", "3");
    GIVES("{% set n = namespace(x=1) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}", "4");
    GIVES("{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% for x in [5] %}{{ m() }}{% endfor %}", "11");
    GIVES("{% with x = 1 %}{{ x }}{% endwith %}[{{ x }}]", "1[]");
    GIVES("{% set y %}{% set z = 1 %}{% endset %}[{{ z }}]", "[]");
    GIVES("{% generation %}{% set z = 1 %}{{ z }}{% endgeneration %}[{{ z }}]", "1[]");
}

Test(jinja, loops)
{
    GIVES("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ loop.index }}{{ k }}{{ v }}{{ ',' if not loop.last }}{% endfor "
          "%}",
          "1a1,2b2");
    GIVES("{% for x in [1, 2, 3] if x != 2 %}{{ x }}/{{ loop.length }} {% endfor %}", "1/2 3/2 ");
    GIVES("{% for x in [] %}{% else %}none{% endfor %}", "none");
    GIVES("{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% elif x == 4 %}{% break %}{% endif %}{{ x }}{% "
          "endfor %}",
          "13");
    GIVES("{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{{ loop.depth }}{% endfor %}",
          "11223321");
    GIVES("{% for x in [1, 2] %}{{ loop.previtem }}|{{ loop.nextitem }};{% endfor %}", "|2;1|;");
    GIVES("{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }}{% endfor %}", "TrueaFalsebTruea");
}

Test(jinja, macros_and_callers)
{
    GIVES("{% macro m(a, b=a) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1, 2, 3, k=4) }}",
          "11(){}12(3,){'k': 4}");
    GIVES("{% macro m(t) %}<{{ caller(t) }}>{% endmacro %}{% call(x) m('q') %}[{{ x }}]{% endcall %}", "<[q]>");
    FAILS("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
          "line 1, column 35: macro 'm' takes not more than 1 argument(s)");
    FAILS("{% macro m(a) %}{% endmacro %}{{ m(q=2) }}", "line 1, column 35: macro 'm' takes no keyword argument 'q'");
}

Test(jinja, operators_are_python)
{
    GIVES("{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2 ** -1 }}", "-4 2 3.5 64 4 0.5");
    GIVES("{{ 1 < 2 < 3 }} {{ 1 == 1.0 == true }} {{ 'a' in 'cat' }} {{ 3 not in [1] }}", "True True True True");
    GIVES("{{ 'ab' * 2 ~ 1 ~ none }} {{ [1] + [2] }} {{ (1,) }} {{ not 1 or 2 and 3 }}", "abab1None [1, 2] (1,) 3");
    GIVES("{{ 'abcdef'[1:-1:2] }} {{ 'abc'[::-1] }} {{ [1, 2, 3][-2:] }}", "bd cba [2, 3]");
    GIVES("{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 5 // 2.0 }} {{ 1_000 }} {{ 0x1F }}", "0.30000000000000004 1e+16 2.0 1000 31");
    GIVES("{{ {'a': [1, none, 'x\\'y']} }}", "{'a': [1, None, \"x'y\"]}");
    FAILS("{{ 1 + 'a' }}", "line 1, column 6: unsupported operand type(s) for +: 'int' and 'str'");
    FAILS("{{ 'a' + 1 }}", "line 1, column 8: can only concatenate str (not \"int\") to str");
    FAILS("{{ 1 // 0 }}", "line 1, column 6: integer division or modulo by zero");
    FAILS("{{ 1 < 'a' }}", "line 1, column 6: '<' not supported between instances of 'int' and 'str'");
}

Test(jinja, undefined_values_print_as_nothing_and_fail_when_used)
{
    GIVES("[{{ x }}{{ x|default('d') }}{{ x is defined }}{{ not x }}{{ x == y }}{{ x|length }}]", "[dFalseTrueTrue0]");
    FAILS("{{ x.y }}", "line 1, column 5: 'x' is undefined");
    FAILS("{{ {}.a.b }}", "line 1, column 8: 'dict object' has no attribute 'a'");
    FAILS("{{ [][0].b }}", "line 1, column 9: list object has no element 0");
    FAILS("{{ x + 1 }}", "line 1, column 6: 'x' is undefined");
    FAILS("{{ [].append(1) }}",
          "line 1, column 13: 'append' of a list cannot be used: values do not change within a template");
    GIVES("{{ [].append is defined }}", "False");
}

Test(jinja, attributes_and_items_of_dicts)
{
    static const char context[] = "{\"d\": {\"items\": 5, \"x\": 1}}";
    jinja_expect("{{ d.x }}{{ d['items'] }}{{ d.items()|list }}{{ d.get('q', 7) }}", context,
                 "15[('items', 5), ('x', 1)]7");
}

Test(jinja, json_is_that_of_python)
{
    GIVES("{{ {'a': [1, 2.0, true, none], 'ü': '<\\n>'}|tojson }}", "{\"a\": [1, 2.0, true, null], \"ü\": \"<\\n>\"}");
    GIVES("{{ {'b': 1, 'a': []}|tojson(indent=2, sort_keys=true) }}", "{\n  \"a\": [],\n  \"b\": 1\n}");
    GIVES("{{ '{\"a\": [1]}'|from_json }}", "{'a': [1]}");
}

Test(jinja, text_is_made_of_characters)
{
    GIVES("{{ 'Zürich'|length }}{{ 'üx'[0] }}{{ 'straße'.upper() }}{{ 'ΑΣ'|lower }}{{ 'ǆ'.title() }}", "6üSTRASSEαςǅ");
    GIVES("{{ ' \xC2\xA0x '.strip() }}{{ 'a\\u2028b'.splitlines() }}", "x['a', 'b']");
}

Test(jinja, markup_escapes_what_it_meets)
{
    GIVES("{{ ('<b>'|safe) + '&' }} {{ '<'|e }} {{ '<b>'|safe ~ '&' }}", "<b>&amp; &lt; <b>&");
    GIVES("{% autoescape true %}{{ '<' }}{{ '<'|safe }}{% endautoescape %}{{ '<' }}", "&lt;<<");
}

Test(jinja, the_clock_is_the_one_that_was_given)
{
    GIVES("{{ strftime_now('%d %b %Y %H:%M %A') }}", "15 Jan 2026 12:00 Thursday");
}
