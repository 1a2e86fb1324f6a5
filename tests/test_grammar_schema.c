// Tests JSON Schemas: what each keyword accepts, which keywords are refused by name, and random schemas whose answers
// are checked by an independent validator (schema_check.h). check_schemas.py runs the standard's test suite and another
// validator.
#include "engine/grammar/dfa_build.h"
#include "engine/grammar/regex.h"
#include "engine/text/unicode.h"
#include "tests/grammar_rig.h"
#include "tests/schema_check.h"

#include <criterion/criterion.h>

// --- keywords ---

// Texts are separated by ~.
static void check_texts(struct rig *r, const char *schema, const char *list, bool accepted)
{
    char *copy = strdup(list), *rest = copy;
    for (char *text; *list && (text = strsep(&rest, "~")) != NULL;)
        cr_expect_eq(rig_accepts(r, text), accepted, "%s: %s must%s be accepted", schema, text, accepted ? "" : " not");
    free(copy);
}

struct schema_case {
    const char *schema, *yes, *no;
    bool open;
};

static void run_cases(const struct schema_case *cases, size_t n)
{
    struct rig r;
    rig_begin(&r);
    for (size_t i = 0; i < n; i++) {
        bool made = rig_schema(&r, cases[i].schema, cases[i].open);
        cr_expect(made, "%s: %s", cases[i].schema, r.err.text);
        if (made) {
            check_texts(&r, cases[i].schema, cases[i].yes, true);
            check_texts(&r, cases[i].schema, cases[i].no, false);
        }
    }
    rig_end(&r);
}

Test(schema, any_value_is_json)
{
    static const struct schema_case cases[] = {
        {"{}",
         "null~true~0~-1.5e3~\"\"~[]~{}~[1,[2,{\"a\":null}]]~{\"a\":{\"b\":[]},\"c\":\"d\"}~\"\\u00e9\\ud83d\\ude00\"",
         "~nul~01~1.~+1~[1,]~{a:1}~{\"a\"}~\"\\x\"~\"\\ud83d\"~\"\\ude00\"~\"\t\"~[1 2]~1 ~NaN~'a'~\"\xff\"", false},
        {"true", "1~{\"a\":1}", "", false},
        {"{\"type\":\"null\"}", "null", "false~0~\"null\"", false},
        {"{\"type\":[\"boolean\",\"string\"]}", "true~false~\"x\"", "null~1", false},
        {"{}", "{ \"a\": 1, \"b\": [ 1,\n  2 ] }~[]~[ ]", "{  \"a\":1}~[1\t]", false},
    };
    run_cases(cases, COUNT_OF(cases));
}

Test(schema, numbers)
{
    static const struct schema_case cases[] = {
        {"{\"type\":\"integer\"}", "0~7~-12~123456789012345", "1.5~-0~01~1e3~\"1\"", false},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":120}", "3~9~10~99~100~119~120", "2~0~-5~121~1000", false},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":-3,\"exclusiveMaximum\":3}", "-2~-1~0~2", "-3~3~4", false},
        {"{\"type\":\"number\",\"minimum\":0.5,\"exclusiveMaximum\":2}", "0.5~0.50~1~1.999", "0.49~0~2~2.0~-1", false},
        {"{\"type\":\"number\",\"maximum\":-0.25}", "-0.25~-0.3~-10", "-0.2~0~0.25", false},
        {"{\"type\":\"number\",\"minimum\":1e3}", "1000~1000.5~25000", "999~999.99~-2000", false},
        {"{\"type\":\"integer\",\"multipleOf\":7}", "0~7~-14~700", "1~8", false},
        {"{\"type\":\"number\",\"multipleOf\":0.25}", "0.25~1~-0.5~0.750", "0.2~0.33", false},
        {"{\"type\":\"integer\",\"minimum\":10,\"multipleOf\":5,\"not\":{\"const\":15}}", "10~20", "5~15~12", false},
        {"{\"type\":\"integer\",\"minimum\":12345678901234567}", "12345678901234567~22345678901234567",
         "12345678901234566~5", false},
        {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", "0.5", "1~2.0", false},
    };
    run_cases(cases, COUNT_OF(cases));
}

Test(schema, strings)
{
    static const struct schema_case cases[] = {
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         "\"ab\"~\"é€\"~\"😀😀😀\"~\"\\n\\\"\"~\"\\u00e9a\"~\"\\ud83d\\ude00a\"", "\"a\"~\"abcd\"~\"😀\"", false},
        {"{\"type\":\"string\",\"pattern\":\"^a+b?$\"}", "\"a\"~\"aab\"", "\"\"~\"b\"~\"abb\"", false},
        {"{\"type\":\"string\",\"pattern\":\"b.d\"}", "\"bcd\"~\"xxb\\\"dyy\"~\"bédz\"", "\"bd\"~\"b\\nd\"", false},
        {"{\"type\":\"string\",\"pattern\":\"^(?=.*\\\\d)[a-z\\\\d]{3,}$\"}", "\"ab1\"~\"12345\"", "\"abc\"~\"a1\"",
         false},
        {"{\"type\":\"string\",\"pattern\":\"^x\",\"not\":{\"pattern\":\"y$\"},\"maxLength\":3}", "\"x\"~\"xyz\"",
         "\"xy\"~\"xabc\"~\"y\"", false},
        {"{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-29\"~\"1999-12-31\"",
         "\"2023-02-29\"~\"2024-13-01\"~\"2024-1-1\"~\"0000-01-01\"", false},
        {"{\"type\":\"string\",\"format\":\"date-time\"}", "\"2024-05-06T07:08:09Z\"~\"2024-05-06T07:08:09.5+02:00\"",
         "\"2024-05-06 07:08:09Z\"~\"2024-05-06T25:00:00Z\"", false},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", "\"127.0.0.1\"", "\"256.0.0.1\"~\"1.2.3\"~\"01.2.3.4\"", false},
        {"{\"type\":\"string\",\"format\":\"ipv6\"}", "\"::1\"~\"1:2:3:4:5:6:7:8\"~\"::ffff:1.2.3.4\"",
         "\"1::2::3\"~\"12345::\"~\"1:2:3\"", false},
        {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"123e4567-e89b-12d3-a456-426614174000\"", "\"123e4567\"",
         false},
        {"{\"type\":\"string\",\"format\":\"email\"}", "\"a.b@example.org\"", "\"a@\"~\"@b\"~\"a b@c.d\"", false},
        {"{\"type\":\"string\",\"format\":\"uri\"}", "\"http://a.b/c?d=e#f\"~\"urn:x:y\"", "\"a b\"~\"//x\"~\"nope\"",
         false},
        {"{\"enum\":[\"a\\\"b\",1,null,[1,{\"x\":2}]]}", "\"a\\\"b\"~1~null~[1,{\"x\":2}]", "\"a\"~2~[1]", false},
        {"{\"const\":\"yes\"}", "\"yes\"", "\"no\"", false},
        {"{\"enum\":[\"abc\",\"de\",5],\"maxLength\":2}", "\"de\"~5", "\"abc\"", false},
    };
    run_cases(cases, COUNT_OF(cases));
}

Test(schema, arrays)
{
    static const struct schema_case cases[] = {
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}", "[1]~[1,2,3]~[ 1, 2 ]",
         "[]~[1,2,3,4]~[\"a\"]", false},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"type\":\"string\"}],\"items\":false}",
         "[]~[1]~[1,\"a\"]", "[2]~[1,2]~[1,\"a\",3]", false},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":2},\"minItems\":3}",
         "[1,2,2]~[1,2,2,2]", "[1,2]~[2,2,2]", false},
        {"{\"type\":\"array\",\"items\":[{\"const\":1}],\"additionalItems\":{\"const\":2}}", "[]~[1]~[1,2,2]",
         "[2]~[1,3]", false},
        {"{\"type\":\"array\",\"contains\":{\"const\":5},\"items\":{\"type\":\"integer\"}}", "[5]~[1,5]~[5,5,2]",
         "[]~[1,2]", false},
        {"{\"type\":\"array\",\"contains\":{\"const\":5},\"minContains\":2,\"maxContains\":2}", "[5,5]~[1,5,2,5]",
         "[5]~[5,5,5]", false},
        {"{\"type\":\"array\",\"items\":{\"enum\":[1,2,3]},\"uniqueItems\":true,\"minItems\":2}", "[1,2]~[3,1,2]",
         "[1]~[1,1]~[1,2,1]", false},
        {"{\"type\":\"array\",\"not\":{\"minItems\":2}}", "[]~[1]", "[1,2]", false},
        {"{\"type\":\"array\",\"maxItems\":0}", "[]", "[1]", false},
    };
    run_cases(cases, COUNT_OF(cases));
}

Test(schema, objects)
{
    static const struct schema_case cases[] = {
        {"{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"required\":[\"b\"],\"type\":\"object\"}",
         "{\"b\":2}~{\"a\":1,\"b\":2}~{ \"a\": 1, \"b\": 2 }", "{}~{\"a\":1}~{\"b\":1}~{\"b\":2,\"c\":3}", false},
        {"{\"properties\":{\"a\":{\"const\":1}},\"type\":\"object\"}", "{}~{\"a\":1}~{\"a\":1,\"b\":2}~{\"z\":null}",
         "{\"a\":2}", true},
        {"{\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":\"null\"},\"type\":\"object\"}",
         "{}~{\"a\":1}~{\"b\":null}~{\"a\":1,\"b\":null,\"c\":null}", "{\"b\":1}", false},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}", "{}~{\"x\":1,\"y\":2}",
         "{\"x\":\"\"}", false},
        {"{\"type\":\"object\",\"patternProperties\":{\"^n\":{\"type\":\"number\"},\"s$\":{\"type\":\"string\"}},\"additionalProperties\":false}",
         "{\"n\":1,\"s\":\"\"}~{\"name\":2}", "{\"n\":\"\"}~{\"ns\":1}~{\"ns\":\"\"}~{\"x\":1}", false},
        {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2},\"additionalProperties\":true}", "{}~{\"ab\":1}",
         "{\"abc\":1}", false},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"minProperties\":2,\"additionalProperties\":false}",
         "{\"a\":1,\"b\":1}~{\"a\":1,\"c\":1}~{\"a\":1,\"b\":2,\"c\":3}", "{}~{\"a\":1}~{\"c\":1}", false},
        {"{\"type\":\"object\",\"maxProperties\":1}", "{}~{\"x\":1}", "{\"x\":1,\"y\":2}", false},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependentRequired\":{\"a\":[\"b\"]}}",
         "{}~{\"b\":1}~{\"a\":1,\"b\":2}", "{\"a\":1}", false},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependencies\":{\"a\":[\"b\"]}}", "{}~{\"b\":1}",
         "{\"a\":1}", false},
        {"{\"type\":\"object\",\"properties\":{\"a\\\"b\":{\"const\":1}},\"required\":[\"a\\\"b\"]}", "{\"a\\\"b\":1}",
         "{}", false},
        {"{\"type\":\"object\",\"required\":[\"x\"]}", "{\"x\":{}}", "{}~{\"y\":1}", false},
    };
    run_cases(cases, COUNT_OF(cases));
}

Test(schema, combinations_and_references)
{
    static const struct schema_case cases[] = {
        {"{\"anyOf\":[{\"type\":\"null\"},{\"const\":5}]}", "null~5", "4", false},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2,\"type\":\"number\"}]}", "1~2.5", "3~1.5", false},
        {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}}}",
         "{\"a\":1}~{\"b\":1}", "{}~{\"a\":1,\"b\":1}", false},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"x\"},\"v\":{\"type\":\"integer\"}},\"required\":[\"k\",\"v\"]},"
         "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"y\"},\"w\":{\"type\":\"string\"}},\"required\":[\"k\",\"w\"]}]}",
         "{\"k\":\"x\",\"v\":1}~{\"k\":\"y\",\"w\":\"\"}", "{\"k\":\"x\",\"w\":\"\"}~{\"k\":\"z\"}", false},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{\"properties\":{\"a\":{\"minimum\":5},\"b\":{}}}],\"type\":\"object\"}",
         "{\"a\":5}~{\"a\":7,\"b\":1}", "{}~{\"a\":4}~{\"a\":5.5}", false},
        {"{\"allOf\":[{\"type\":\"string\",\"pattern\":\"^a\"},{\"pattern\":\"b$\"},{\"maxLength\":3}]}",
         "\"ab\"~\"axb\"", "\"a\"~\"axxb\"", false},
        {"{\"not\":{\"type\":[\"object\",\"array\",\"number\",\"boolean\"]}}", "null~\"a\"", "1~{}~[]~true", false},
        {"{\"if\":{\"type\":\"integer\"},\"then\":{\"minimum\":10},\"else\":{\"type\":\"string\"}}", "10~\"a\"",
         "9~null~1.5", false},
        {"{\"type\":\"object\",\"properties\":{\"t\":{\"enum\":[1,2]},\"v\":{}},\"required\":[\"t\",\"v\"],\"if\":{\"properties\":{\"t\":{\"const\":1}}},"
         "\"then\":{\"properties\":{\"v\":{\"type\":\"null\"}}}}",
         "{\"t\":1,\"v\":null}~{\"t\":2,\"v\":3}", "{\"t\":1,\"v\":3}", false},
        {"{\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"c\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}},"
         "\"required\":[\"v\"]}},\"$ref\":\"#/$defs/t\"}",
         "{\"v\":1}~{\"v\":1,\"c\":[{\"v\":2,\"c\":[]},{\"v\":3}]}", "{}~{\"v\":1,\"c\":[{}]}", false},
        {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", "[]~[[],[[]]]", "[1]", false},
        {"{\"definitions\":{\"a/b\":{\"const\":1}},\"$ref\":\"#/definitions/a~1b\"}", "1", "2", false},
        {"{\"$defs\":{\"x\":{\"$anchor\":\"here\",\"const\":1}},\"$ref\":\"#here\"}", "1", "2", false},
        {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"definitions\":{\"n\":{\"type\":\"null\"}},\"$ref\":\"#/definitions/n\",\"minimum\":5}",
         "null", "5", false},
        {"{\"$ref\":\"#/$defs/n\",\"maximum\":5,\"$defs\":{\"n\":{\"type\":\"integer\",\"minimum\":3}}}", "3~5", "2~6",
         false},
    };
    run_cases(cases, COUNT_OF(cases));
}

Test(schema, what_is_not_supported_is_refused_by_name_and_place)
{
    static const char *const cases[][2] = {
        {"{\"properties\":{\"a\":{\"unevaluatedProperties\":false}}}",
         "schema: /properties/a/unevaluatedProperties: the keyword 'unevaluatedProperties' is not supported"},
        {"{\"unevaluatedItems\":false}", "schema: /unevaluatedItems: the keyword 'unevaluatedItems' is not supported"},
        {"{\"$dynamicRef\":\"#x\"}", "/$dynamicRef: the keyword '$dynamicRef'"},
        {"{\"$ref\":\"https://example.org/x\"}", "/$ref: $ref 'https://example.org/x' leads out of the schema"},
        {"{\"$ref\":\"#/$defs/x\"}", "/$ref: $ref '#/$defs/x' names no schema"},
        {"{\"$ref\":\"#\"}", "leads back to itself"},
        {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "leads back to itself"},
        {"{\"type\":\"text\"}", "/type: this is none of the types"},
        {"{\"type\":\"string\",\"pattern\":\"(a\"}", "/pattern: pattern: column 1: this group has no closing )"},
        {"{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}",
         "/pattern: pattern: column 4: back references are not supported"},
        {"{\"type\":\"string\",\"pattern\":\"\\\\bx\"}", "\\b and \\B are not supported"},
        {"{\"type\":\"string\",\"pattern\":\"^(                                                               ?=.*\\\\d)(?!x)[a-z\\\\d_-]{2,8}(foo~|b.r^)(.?)d\\\\:*(?!x)[a-z\\\\d_-]{2,8}(foo) |b?$\"}",
         "/pattern: patterns are too complex: their automata take more than"},
        {"{\"type\":\"array\",\"uniqueItems\":true}", "/uniqueItems: uniqueItems is supported for items from a list"},
        {"{\"type\":\"object\",\"minProperties\":3}", "minProperties 3 is not supported"},
        {"{\"properties\":{\"a~b/c\":{\"type\":5}}}", "schema: /properties/a~0b~1c/type: "},
        {"{\"minimum\":\"5\"}", "/minimum: minimum is a number"},
        {"{\"multipleOf\":0}", "/multipleOf: multipleOf is a number above 0"},
        {"{\"multipleOf\":0.000000001234567}", "take more than"},
        {"{\"type\":\"string\",\"maxLength\":-1}", "/maxLength: maxLength is a whole number"},
        {"{\"type\":\"string\",\"maxLength\":100000000}", "too large"},
        {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no value meets it"},
        {"false", "no value meets it"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no value meets it"},
        {"[]", "a schema is an object, true or false"},
        {"{\"a\"", "schema: line 1"},
        {"", "schema: "},
        {"{\"allOf\":5}", "/allOf: allOf is a list"},
        {"{\"items\":5}", "/items: a schema is an object"},
    };
    struct rig r;
    rig_begin(&r);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cr_expect(!rig_schema(&r, cases[i][0], false), "%s", cases[i][0]);
        cr_expect_eq(r.err.code, E_USAGE, "%s", cases[i][0]);
        cr_expect(strstr(r.err.text, cases[i][1]), "%s:\n  is:      %s\n  must be: %s", cases[i][0], r.err.text,
                  cases[i][1]);
    }
    rig_end(&r);
}

// --- sets of characters in automata ---

static uint64_t pattern_dfa(struct dfa **d, const char *pattern)
{
    struct exprs x = {0};
    struct error err = {0};
    expr_id e;
    cr_assert_eq(regex_compile(&e, &x, str_from(pattern), &err), 0, "%s: %s", pattern, err.text);
    cr_assert_eq(dfa_from_expr(d, &x, e, &err), 0, "%s: %s", pattern, err.text);
    uint64_t work = x.work;
    exprs_free(&x);
    return work;
}

// A choice of its ranges had hundreds of ops alive in every state.
Test(patterns, a_category_of_hundreds_of_ranges_costs_what_a_tree_of_bytes_costs)
{
    struct dfa *d;
    uint64_t work = pattern_dfa(&d, "\\p{Lu}\\u00e9[^\\w\\s]+(?:a|b)*?$|^c");
    cr_expect_lt(work, 6000000, "%llu looks", (unsigned long long)work);
    dfa_free(d);
    work = pattern_dfa(&d, "^\\p{L}+$");
    cr_expect_lt(work, 3000000, "%llu looks", (unsigned long long)work);
    dfa_free(d);
}

Test(patterns, a_category_is_exactly_its_characters)
{
    static const char *const patterns[] = {"^\\p{Lu}$", "^\\P{L}$", "^[\\u{800}-\\u{10ffff}]$",
                                           "^[^\\u00ff-\\u{12345}]$"};
    for (size_t i = 0; i < COUNT_OF(patterns); i++) {
        struct dfa *d;
        pattern_dfa(&d, patterns[i]);
        for (uint32_t cp = 0; cp <= CHAR_MAX_CODE; cp++) {
            bool in = i == 0   ? unicode_bits(cp) & UNI_UPPER
                      : i == 1 ? !(unicode_bits(cp) & UNI_LETTER)
                      : i == 2 ? cp >= 0x800
                               : cp < 0xFF || cp > 0x12345;
            char text[4];
            size_t n = (size_t)utf8_encode(cp, text);
            bool is = cp >= 0xD800 && cp <= 0xDFFF;
            cr_assert_eq(dfa_accepts(d, (struct str){text, n}), in && !is, "%s: U+%04X", patterns[i], cp);
        }
        static const char *const wrong[] = {"\xC0\x80",         "\xC1\xBF",         "\xE0\x9F\xBF",
                                            "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xED\xA0\x80"};
        for (size_t k = 0; k < COUNT_OF(wrong); k++)
            cr_expect(!dfa_accepts(d, str_from(wrong[k])), "%s: wrong bytes %zu", patterns[i], k);
        dfa_free(d);
    }
}

// --- random schemas ---

struct maker {
    uint64_t seed;
    char text[1 << 16];
    size_t n;
};

static size_t pick(struct maker *m, size_t n)
{
    return random_below(&m->seed, n);
}

static void put(struct maker *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(struct maker *m, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(m->text + m->n, sizeof m->text - m->n, fmt, args);
    va_end(args);
    cr_assert(n >= 0 && m->n + (size_t)n < sizeof m->text);
    m->n += (size_t)n;
}

static const char *const scalars[] = {"null", "true", "0", "-3", "2.5", "\"\"", "\"foo\"", "\"é\\\"\""};
static const char *const patterns[] = {"^a+$", "foo", "^[a-z]{2,4}$", "^(a|bc)*$", "[^a-f]$", "^x[0-9]{2}"};
static const char *const names[] = {"a", "b", "name", "x y", "é"};

static void put_scalar(struct maker *m)
{
    int low = (int)pick(m, 300) - 150;
    switch (pick(m, 7)) {
    case 0:
        put(m, "{\"const\":%s}", scalars[pick(m, COUNT_OF(scalars))]);
        break;
    case 1:
        put(m, "{\"enum\":[%s,%s]}", scalars[pick(m, COUNT_OF(scalars))], scalars[pick(m, COUNT_OF(scalars))]);
        break;
    case 2:
        put(m, "{\"type\":\"%s\",\"%s\":%d,\"%s\":%d}", pick(m, 2) ? "integer" : "number",
            pick(m, 2) ? "minimum" : "exclusiveMinimum", low, pick(m, 2) ? "maximum" : "exclusiveMaximum",
            low + 2 + (int)pick(m, 300));
        break;
    case 3:
        put(m, "{\"type\":\"integer\",\"multipleOf\":%d}", 1 + (int)pick(m, 12));
        break;
    case 4:
        put(m, "{\"type\":\"string\",\"minLength\":%d,\"maxLength\":%d}", (int)pick(m, 3), 3 + (int)pick(m, 60));
        break;
    case 5:
        put(m, "{\"type\":\"string\",\"pattern\":\"%s\"}", patterns[pick(m, COUNT_OF(patterns))]);
        break;
    default:
        put(m, "{\"type\":[\"boolean\",\"%s\"]}", pick(m, 2) ? "null" : "string");
    }
}

static void put_schema(struct maker *m, int depth);

static void put_object(struct maker *m, int depth)
{
    size_t n = 1 + pick(m, 3);
    put(m, "{\"type\":\"object\",\"properties\":{");
    for (size_t i = 0; i < n; i++) {
        put(m, "%s\"%s\":", i ? "," : "", names[i]);
        put_schema(m, depth - 1);
    }
    put(m, "},\"required\":[");
    for (size_t i = 0, any = 0; i < n; i++)
        if (pick(m, 2))
            put(m, "%s\"%s\"", any++ ? "," : "", names[i]);
    put(m, "]");
    if (pick(m, 2)) {
        put(m, ",\"additionalProperties\":");
        if (pick(m, 2))
            put(m, "false");
        else
            put_schema(m, depth - 1);
    }
    if (pick(m, 5) == 0)
        put(m, ",\"minProperties\":1,\"maxProperties\":%d", 2 + (int)pick(m, 3));
    put(m, "}");
}

static void put_array(struct maker *m, int depth)
{
    int least = (int)pick(m, 3);
    put(m, "{\"type\":\"array\",\"items\":");
    put_schema(m, depth - 1);
    if (pick(m, 3) == 0) {
        put(m, ",\"prefixItems\":[");
        put_schema(m, depth - 1);
        put(m, "]");
    }
    if (pick(m, 6) == 0) {
        put(m, ",\"contains\":");
        put_scalar(m);
    }
    put(m, ",\"minItems\":%d,\"maxItems\":%d}", least, least + (int)pick(m, 4));
}

static void put_combined(struct maker *m, int depth)
{
    static const char *const kinds[] = {"anyOf", "oneOf", "allOf"};
    size_t kind = pick(m, 6);
    if (kind == 3) {
        put(m, "{\"not\":");
        put_scalar(m);
    } else if (kind == 4) {
        put(m, "{\"$ref\":\"#/$defs/tree\"");
    } else if (kind == 5) {
        put(m, "{\"if\":");
        put_scalar(m);
        put(m, ",\"then\":");
        put_schema(m, depth - 1);
        put(m, ",\"else\":");
        put_schema(m, depth - 1);
    } else {
        put(m, "{\"%s\":[", kinds[kind]);
        for (int i = 0; i < 2; i++) {
            put(m, i ? "," : "");
            if (kind == 2)
                put_object(m, depth - 1);
            else
                put_schema(m, depth - 1);
        }
        put(m, "]");
    }
    put(m, "}");
}

static void put_schema(struct maker *m, int depth)
{
    size_t kind = depth <= 0 ? 0 : pick(m, 5);
    if (kind <= 1)
        put_scalar(m);
    else if (kind == 2)
        put_object(m, depth);
    else if (kind == 3)
        put_array(m, depth);
    else
        put_combined(m, depth);
}

static void make_document(struct maker *m, uint64_t seed)
{
    m->seed = seed;
    m->n = 0;
    put(m, "{\"allOf\":[");
    put_schema(m, 3);
    put(m, "],\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"v\":");
    put_scalar(m);
    put(m, ",\"c\":{\"type\":\"array\",\"maxItems\":3,\"items\":{\"$ref\":\"#/$defs/tree\"}}},\"required\":[\"v\"]}}}");
}

// Random answers of a random schema; returns how many there were.
static int check_random(struct rig *r, struct maker *m, uint64_t seed, int *n_refused)
{
    static char out[1 << 16];
    make_document(m, seed);
    if (!rig_schema(r, m->text, seed & 1)) {
        cr_expect_eq(r->err.code, E_USAGE, "seed %llu: %s", (unsigned long long)seed, r->err.text);
        ++*n_refused;
        return 0;
    }
    cJSON *schema = cJSON_Parse(m->text);
    cr_assert_not_null(schema);
    int n_answers = 0;
    for (int i = 0; i < 3; i++) {
        int n = rig_answer(r, &seed, 2000, out, sizeof out - 1);
        out[MAX(n, 0)] = '\0';
        if (n < 0 || strstr(out, "\\u0000")) // cJSON ends a string there
            continue;
        const char *end;
        cJSON *v = cJSON_ParseWithOpts(out, &end, true);
        cr_assert(v && end == out + n, "%s\nis no JSON: %s", m->text, out);
        cr_assert(check_value(schema, schema, v), "%s\nis not met by: %s", m->text, out);
        cJSON_Delete(v);
        n_answers++;
    }
    cJSON_Delete(schema);
    return n_answers;
}

Test(schema, every_answer_of_random_schemas_is_valid)
{
    enum { SCHEMAS = 200 };
    uint64_t first = 20250;
    fprintf(stderr, "seeds from %llu\n", (unsigned long long)first);
    struct rig r;
    struct maker *m = malloc(sizeof *m);
    int n_answers = 0, n_refused = 0;
    rig_begin(&r);
    for (uint64_t i = 0; i < SCHEMAS; i++)
        n_answers += check_random(&r, m, first + i, &n_refused);
    // schemas that contradict themselves are refused, but most do not
    cr_expect_lt(n_refused, SCHEMAS / 4, "%d refused", n_refused);
    cr_expect_gt(n_answers, 2 * SCHEMAS, "%d answers", n_answers);
    free(m);
    rig_end(&r);
}

Test(schema, masks_of_random_schemas_hold_exactly_what_is_accepted)
{
    struct rig r;
    struct maker *m = malloc(sizeof *m);
    rig_begin(&r);
    for (uint64_t seed = 777; seed < 797; seed++) {
        uint64_t state = seed;
        make_document(m, seed);
        if (!rig_schema(&r, m->text, false))
            continue;
        for (int step = 0; step < 30; step++) {
            int32_t bad, token;
            cr_assert(rig_mask_is_right(&r, &bad), "%s: token %d at step %d", m->text, bad, step);
            token = rig_choose(&r, &state, 1);
            cr_assert_geq(token, 0);
            if (token == RIG_END)
                break;
            cr_assert_eq(constraint_accept(r.c, token, &r.err), 0);
        }
    }
    free(m);
    rig_end(&r);
}

// Annotations of pydantic and zod, OpenAPI's words, misspelt words and unknown formats demand nothing, and are named.
Test(schema, what_demands_nothing_is_passed_over_and_named)
{
    struct rig r;
    rig_begin(&r);
    static const char *const cases[][2] = {
        {"{\"oneOf\":[{\"const\":1},{\"const\":2}],\"discriminator\":{\"propertyName\":\"kind\"}}", "'discriminator'"},
        {"{\"type\":\"string\",\"nullable\":true,\"markdownDescription\":\"x\",\"format\":\"isbn\"}",
         "'nullable', 'markdownDescription', 'isbn'"},
        {"{\"items\":{\"nullable\":true},\"additionalProperties\":{\"nullable\":false}}", "'nullable'"},
        {"{\"minlength\":3}", "'minlength'"},
        {"{\"title\":\"T\",\"x-order\":1,\"default\":2}", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cr_assert(rig_schema(&r, cases[i][0], false), "%s: %s", cases[i][0], r.err.text);
        const char *got = grammar_passed_over(r.g);
        cr_expect(got == cases[i][1] || (got && cases[i][1] && !strcmp(got, cases[i][1])), "%s: %s", cases[i][0],
                  got ? got : "none");
    }
    rig_end(&r);
}
