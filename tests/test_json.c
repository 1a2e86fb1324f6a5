// Tests that JSON is read and written as in Python: what is refused and where, numbers to the last digit, keys, depth
// and marks.
#include "engine/json.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct fixture {
    struct arena arena;
    struct error err;
};

static int read_flags(struct fixture *f, struct value *v, struct str text, unsigned flags)
{
    struct json_reader r = {.arena = &f->arena, .flags = flags};
    return json_read(v, &r, text, &f->err);
}

// The text of what `in` is read as.
static void expect_style(const char *in, const struct json_style *style, const char *want)
{
    struct fixture f = {0};
    struct value v;
    struct text out = {0};
    cr_assert_eq(read_flags(&f, &v, str_from(in), JSON_NAN), 0, "%s: %s", in, f.err.text);
    cr_assert_eq(json_write_text(&v, style, &out, &f.err), 0, "%s: %s", in, f.err.text);
    cr_expect_str_eq(out.data, want, "%s: %s, not %s", in, out.data, want);
    text_free(&out);
    arena_free(&f.arena);
}

static void expect(const char *in, const char *want)
{
    expect_style(in, NULL, want);
}

static void expect_error(struct str in, unsigned flags, const char *want)
{
    struct fixture f = {0};
    struct value v;
    cr_assert_eq(read_flags(&f, &v, in, flags), -1, "%.*s", STR_ARG(in));
    cr_expect_str_eq(f.err.text, want, "%s, not %s", f.err.text, want);
    cr_expect_eq(f.err.code, E_USAGE);
    arena_free(&f.arena);
}
#define REFUSED(in, want) expect_error(STR_LIT(in), 0, want)

Test(json, scalars_come_back_as_written)
{
    static const char *const same[] = {"null",
                                       "true",
                                       "false",
                                       "0",
                                       "-1",
                                       "9223372036854775807",
                                       "-9223372036854775808",
                                       "9223372036854775808",
                                       "-123456789012345678901234567890",
                                       "\"\"",
                                       "[]",
                                       "{}",
                                       "1.5",
                                       "NaN",
                                       "Infinity",
                                       "-Infinity",
                                       "[1, 2]",
                                       "{\"a\": {\"b\": [null]}}",
                                       "\"Zürich 🦜 \x7f\""};
    for (size_t i = 0; i < COUNT_OF(same); i++)
        expect(same[i], same[i]);
    expect(" \t\r\n[ 1 ,\n2 ] ", "[1, 2]");
    expect("\xEF\xBB\xBF{}", "{}");
    expect("-0", "0");
}

Test(json, floats_are_printed_with_the_fewest_digits)
{
    static const char *const cases[][2] = {{"1.0", "1.0"},
                                           {"-0.0", "-0.0"},
                                           {"1e16", "1e+16"},
                                           {"1e15", "1000000000000000.0"},
                                           {"123456789012345680.0", "1.2345678901234568e+17"},
                                           {"0.0001", "0.0001"},
                                           {"0.00001", "1e-05"},
                                           {"0.1", "0.1"},
                                           {"0.30000000000000004", "0.30000000000000004"},
                                           {"5e-324", "5e-324"},
                                           {"1.7976931348623157e308", "1.7976931348623157e+308"},
                                           {"1e400", "Infinity"},
                                           {"-1E+2", "-100.0"},
                                           {"2.5e-3", "0.0025"},
                                           {"9007199254740993.0", "9007199254740992.0"},
                                           {"1e22", "1e+22"},
                                           {"1.25e-7", "1.25e-07"},
                                           {"5.960464477539063e-08", "5.960464477539063e-08"},
                                           {"-5.225680706521042e-200", "-5.225680706521042e-200"},
                                           {"5e-324", "5e-324"},
                                           {"1.7976931348623157e308", "1.7976931348623157e+308"},
                                           {"123.456", "123.456"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect(cases[i][0], cases[i][1]);
}

Test(json, every_float_reads_back_as_itself)
{
    uint64_t seed = 20260115, bits = seed;
    cr_log_info("seed %llu", (unsigned long long)seed);
    for (int i = 0; i < 20000; i++) {
        bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double f;
        uint64_t mixed = bits ^ bits >> 29;
        memcpy(&f, &mixed, sizeof f);
        char text[FLOAT_TEXT];
        float_repr(f, text);
        cr_assert(isnan(f) || strtod(text, NULL) == f, "%a printed as %s", f, text);
    }
}

Test(json, strings_are_unescaped_and_escaped)
{
    expect("\"\\u0041\\n\\t\\\"\\\\\\/\\b\\f\\r\"", "\"A\\n\\t\\\"\\\\/\\b\\f\\r\"");
    expect("\"a\\u00e9\\ud83e\\udd9cb\"", "\"aé🦜b\"");
    expect("\"\\u0000\\u001f\"", "\"\\u0000\\u001f\"");
    struct json_style ascii = {.ascii = true};
    expect_style("\"aé🦜\\u2028\x7f\"", &ascii, "\"a\\u00e9\\ud83e\\udd9c\\u2028\x7f\"");
}

Test(json, styles_are_those_of_json_dumps)
{
    const char *in = "{\"b\":[1,{\"x\":[]}],\"a\":{},\"\":[]}";
    struct json_style two = {.indented = true, .indent = STR_LIT("  ")}, none = {.indented = true},
                      tight = {.item_sep = ",", .key_sep = ":"}, sorted = {.sort_keys = true};
    expect_style(in, &two, "{\n  \"b\": [\n    1,\n    {\n      \"x\": []\n    }\n  ],\n  \"a\": {},\n  \"\": []\n}");
    expect_style("[1,[2]]", &none, "[\n1,\n[\n2\n]\n]");
    expect_style(in, &tight, "{\"b\":[1,{\"x\":[]}],\"a\":{},\"\":[]}");
    expect_style(in, &sorted, "{\"\": [], \"a\": {}, \"b\": [1, {\"x\": []}]}");
}

Test(json, of_equal_keys_the_last_value_wins_in_the_first_place)
{
    expect("{\"a\":1,\"b\":2,\"a\":3}", "{\"a\": 3, \"b\": 2}");
}

Test(json, many_keys_are_found_and_keep_their_order)
{
    struct fixture f = {0};
    struct text in = {0}, out = {0};
    text_print(&in, "{");
    for (int i = 0; i < 5000; i++)
        text_print(&in, "%s\"k%d\": %d", i ? ", " : "", i * 7919 % 5000, i);
    text_print(&in, "}");
    struct value v;
    cr_assert_eq(read_flags(&f, &v, (struct str){in.data, in.size}, 0), 0, "%s", f.err.text);
    for (int i = 0; i < 5000; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i * 7919 % 5000);
        const struct value *found = value_get(&v, key);
        cr_assert(value_is(found, VALUE_INT) && found->integer == i, "%s", key);
    }
    cr_expect_null(value_get(&v, "k5000"));
    json_write_text(&v, NULL, &out, &f.err);
    cr_expect_str_eq(out.data, in.data);
    text_free(&in);
    text_free(&out);
    arena_free(&f.arena);
}

Test(json, what_is_no_json_is_refused_with_its_place)
{
    REFUSED("", "line 1, column 1: a value expected, but the text ends");
    REFUSED("{\n \"é\": x}", "line 2, column 7: a value expected, not 'x'");
    REFUSED("[1,]", "line 1, column 4: a value expected, not ']'");
    REFUSED("[1 2]", "line 1, column 4: ',' or ']' expected, not '2'");
    REFUSED("{\"a\" 1}", "line 1, column 6: ':' expected, not '1'");
    REFUSED("{a: 1}", "line 1, column 2: a key in quotes expected, not 'a'");
    REFUSED("{\"a\": 1,}", "line 1, column 9: a key in quotes expected, not '}'");
    REFUSED("1 1", "line 1, column 3: the end of the text expected, not '1'");
    REFUSED("01", "line 1, column 1: a number starts with 0");
    REFUSED("-", "line 1, column 2: a digit expected, but the text ends");
    REFUSED("1.", "line 1, column 3: a digit expected, but the text ends");
    REFUSED("1e+", "line 1, column 4: a digit expected, but the text ends");
    REFUSED("+1", "line 1, column 1: a value expected, not '+'");
    REFUSED("NaN", "line 1, column 1: a value expected, not 'N'");
    REFUSED("-Infinity", "line 1, column 2: a digit expected, not 'I'");
    REFUSED("nul", "line 1, column 1: a value expected, not 'n'");
    REFUSED("'a'", "line 1, column 1: a value expected, not '''");
}

Test(json, strings_that_are_no_text_are_refused)
{
    REFUSED("\"a", "line 1, column 3: the text ends within a string");
    REFUSED("\"a\nb\"", "line 1, column 3: a control character (0x0A) in a string; it is written as an escape");
    REFUSED("\"\0\"", "line 1, column 2: a control character (0x00) in a string; it is written as an escape");
    REFUSED("\"\\x\"", "line 1, column 3: one of \"\\/bfnrtu expected, not 'x'");
    REFUSED("\"\\u12g4\"", "line 1, column 6: a hexadecimal digit expected, not 'g'");
    REFUSED("\"\\ud800\"", "line 1, column 2: half of a surrogate pair");
    REFUSED("\"\\udc00\"", "line 1, column 2: half of a surrogate pair");
    REFUSED("\"\\ud800\\u0041\"", "line 1, column 2: half of a surrogate pair");
    REFUSED("\"\xff\"", "line 1, column 2: invalid UTF-8");
    REFUSED("\"\xC0\x80\"", "line 1, column 2: invalid UTF-8");
    REFUSED("\"\xED\xA0\x80\"", "line 1, column 2: invalid UTF-8");
    REFUSED("\xff", "line 1, column 1: invalid UTF-8");
}

static struct str brackets(struct text *t, int n)
{
    for (int i = 0; i < n; i++)
        text_print(t, "[");
    for (int i = 0; i < n; i++)
        text_print(t, "]");
    return (struct str){t->data, t->size};
}

Test(json, depth_has_a_limit)
{
    struct fixture f = {0};
    struct text fits = {0}, deep = {0};
    struct value v;
    cr_expect_eq(read_flags(&f, &v, brackets(&fits, JSON_DEPTH), 0), 0);
    expect_error(brackets(&deep, JSON_DEPTH + 1), 0, "line 1, column 201: nested deeper than 200");
    text_free(&fits);
    text_free(&deep);
    arena_free(&f.arena);
}

Test(json, whole_numbers_have_4300_digits_at_most)
{
    char digits[4302];
    memset(digits, '7', sizeof digits);
    expect_error((struct str){digits, 4301}, 0, "line 1, column 1: a whole number of 4301 digits, limit 4300");
    struct fixture f = {0};
    struct value v;
    cr_expect_eq(read_flags(&f, &v, (struct str){digits, 4300}, 0), 0);
    cr_expect_eq(v.kind, VALUE_BIGINT);
    arena_free(&f.arena);
}

Test(json, a_prefix_ends_where_the_value_does)
{
    struct fixture f = {0};
    struct value v;
    struct json_reader r = {.arena = &f.arena, .flags = JSON_PREFIX};
    cr_assert_eq(json_read(&v, &r, STR_LIT(" {\"a\": 1} tail"), &f.err), 0);
    cr_expect_eq(r.used, 9u);
    arena_free(&f.arena);
}

Test(json, errors_have_the_code_that_was_asked_for)
{
    struct fixture f = {0};
    struct value v;
    struct json_reader r = {.arena = &f.arena, .code = E_MODEL};
    cr_expect_eq(json_read(&v, &r, STR_LIT("[\n1,,"), &f.err), -1);
    cr_expect_eq(f.err.code, E_MODEL);
    cr_expect_eq(f.err.offset, 4u);
    arena_free(&f.arena);
}

Test(json, input_is_marked_all_through)
{
    struct fixture f = {0};
    struct value v, own, marked;
    cr_assert_eq(read_flags(&f, &v, STR_LIT("{\"a\": [\"x\", 1]}"), JSON_INPUT), 0);
    cr_assert_eq(read_flags(&f, &own, STR_LIT("{\"a\": [\"x\", 1]}"), 0), 0);
    cr_assert_eq(value_mark_input(&marked, &f.arena, &own, &f.err), 0);
    const struct value *both[] = {&v, &marked};
    for (int i = 0; i < 2; i++) {
        const struct value *list = value_get(both[i], "a");
        cr_expect_eq(both[i]->origin, ORIGIN_INPUT);
        cr_expect_eq(both[i]->dict->entries[0].key.origin, ORIGIN_INPUT);
        cr_expect_eq(list->origin, ORIGIN_INPUT);
        cr_expect_eq(list->list->items[0].origin, ORIGIN_INPUT);
        cr_expect_eq(list->list->items[1].origin, ORIGIN_INPUT);
    }
    cr_expect_eq(value_get(&own, "a")->origin, ORIGIN_OWN);
    cr_expect(value_equal(&own, &marked));
    arena_free(&f.arena);
}

Test(json, truncated_text_is_refused_at_every_byte)
{
    static const char whole[] = "{\"k\": [1.5e3, \"a\\u00e9\\ud83e\\udd9c\", true, null, {\"\": -7}]}";
    for (size_t n = 0; n + 1 < sizeof whole; n++) {
        struct fixture f = {0};
        struct value v;
        char *copy = malloc(n + 1); // of the exact size, so that a read behind it is found
        cr_assert_not_null(copy);
        memcpy(copy, whole, n);
        cr_expect_eq(read_flags(&f, &v, (struct str){copy, n}, 0), -1, "%zu bytes", n);
        free(copy);
        arena_free(&f.arena);
    }
}

Test(value, numbers_are_equal_by_value_and_one_key)
{
    struct fixture f = {0};
    struct value d, one = value_int(1), one_f = value_float(1), yes = value_bool(true), text = VALUE_LIT("1");
    cr_expect(value_equal(&one, &one_f) && value_equal(&one, &yes) && !value_equal(&one, &text));
    cr_assert_eq(value_dict_new(&d, &f.arena, &f.err), 0);
    for (int i = 0; i < 100; i++)
        cr_assert_eq(value_dict_put(&f.arena, &d, value_int(i), value_int(i), &f.err), 0);
    cr_expect_eq(value_find(&d, &one_f)->integer, 1);
    cr_expect_eq(value_find(&d, &yes)->integer, 1);
    cr_expect_null(value_find(&d, &text));
    cr_expect_eq(value_dict_put(&f.arena, &d, d, one, &f.err), -1);
    cr_expect_str_eq(f.err.text, "a value of this kind (object) cannot be a key");
    arena_free(&f.arena);
}

Test(value, containers_are_nested_to_a_limit)
{
    struct fixture f = {0};
    struct value inner, outer;
    cr_assert_eq(value_list_new(&inner, &f.arena, &f.err), 0);
    for (int i = 1; i < VALUE_DEPTH; i++) {
        cr_assert_eq(value_list_new(&outer, &f.arena, &f.err), 0);
        cr_assert_eq(value_list_push(&f.arena, &outer, inner, &f.err), 0);
        inner = outer;
    }
    cr_assert_eq(value_list_new(&outer, &f.arena, &f.err), 0);
    cr_expect_eq(value_list_push(&f.arena, &outer, inner, &f.err), -1);
    cr_expect_str_eq(f.err.text, "lists and objects are nested deeper than 512");
    arena_free(&f.arena);
}

Test(json, digits_of_every_kind_are_read)
{
    expect("\"\\u00AF\\u00af\\uABCD\"", "\"\xC2\xAF\xC2\xAF\xEA\xAF\x8D\"");
    expect("\"\\uD7FF\\uE000\\uDBFF\\uDFFF\"", "\"\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\"");
    expect("0.0000000000000000000000000000000000000000000000000000000000000000000001", "1e-70");
    expect("[1e400, -1e400]", "[Infinity, -Infinity]");
    REFUSED("\"\\u00g0\"", "line 1, column 6: a hexadecimal digit expected, not 'g'");
    REFUSED("\"\\u00/0\"", "line 1, column 6: a hexadecimal digit expected, not '/'");
    REFUSED("\"\\u00:0\"", "line 1, column 6: a hexadecimal digit expected, not ':'");
    REFUSED("\"\\u00@0\"", "line 1, column 6: a hexadecimal digit expected, not '@'");
    REFUSED("\"\\u00G0\"", "line 1, column 6: a hexadecimal digit expected, not 'G'");
    REFUSED("\"\\u00`0\"", "line 1, column 6: a hexadecimal digit expected, not '`'");
    REFUSED("\"\\uDC00\"", "line 1, column 2: half of a surrogate pair");
    REFUSED("\"\\uD800\\uDBFF\"", "line 1, column 2: half of a surrogate pair");
    REFUSED("\"\\uD800\\uE000\"", "line 1, column 2: half of a surrogate pair");
    REFUSED("\"\\uD800x\"", "line 1, column 2: half of a surrogate pair");
}
