// Tests that wide and deep schemas and grammars are compiled, or refused, within a second: each keyword and each form
// of GBNF, repeated up to the greatest text that is taken. A batch compiles a schema for each row that brings one, so a
// slow one would delay its neighbours.
#include "tests/grammar_rig.h"
#include "tests/stopwatch.h"

#include <criterion/criterion.h>

enum { TEXT_MAX = 4 << 20 };

// A text of n units: head, units with a separator between them, tail. In a unit, # stands for its number, and < for the
// number before it.
struct shape {
    const char *name, *head, *unit, *separator, *tail;
};

static const struct shape schemas[] = {
    {"properties", "{\"type\":\"object\",\"properties\":{", "\"p#\":{\"type\":\"integer\"}", ",", "}}"},
    {"properties, each with an enum of its own", "{\"properties\":{", "\"p#\":{\"enum\":[\"v#\"]}", ",", "}}"},
    {"properties that are objects", "{\"properties\":{", "\"p#\":{\"properties\":{\"a#\":{}}}", ",", "}}"},
    {"properties, open", "{\"additionalProperties\":{},\"type\":\"object\",\"properties\":{", "\"p#\":{}", ",", "}}"},
    {"properties and propertyNames", "{\"propertyNames\":{\"pattern\":\"^p\"},\"type\":\"object\",\"properties\":{",
     "\"p#\":{}", ",", "}}"},
    {"properties and a pattern", "{\"patternProperties\":{\"^x\":{}},\"type\":\"object\",\"properties\":{", "\"p#\":{}",
     ",", "}}"},
    {"properties of random names", "{\"type\":\"object\",\"properties\":{", "\"@\":{}", ",", "}}"},
    {"required", "{\"type\":\"object\",\"required\":[", "\"p#\"", ",", "]}"},
    {"required, twice each", "{\"type\":\"object\",\"required\":[", "\"p#\",\"p<\"", ",", "]}"},
    {"properties and minProperties", "{\"minProperties\":5,\"properties\":{", "\"p#\":{}", ",", "}}"},
    {"enum of texts", "{\"enum\":[", "\"value #\"", ",", "]}"},
    {"enum of numbers", "{\"enum\":[", "#", ",", "]}"},
    {"enum of random texts", "{\"enum\":[", "\"@\"", ",", "]}"},
    {"enum of lists", "{\"enum\":[", "[#,[1]]", ",", "]}"},
    {"enum of objects", "{\"enum\":[", "{\"a\":#}", ",", "]}"},
    {"enum and not enum", "{\"not\":{\"enum\":[1,\"value 7\"]},\"enum\":[", "\"value #\"", ",", "]}"},
    {"not enum", "{\"type\":\"string\",\"not\":{\"enum\":[", "\"value #\"", ",", "]}}"},
    {"const of a long list", "{\"const\":[", "#", ",", "]}"},
    {"const of a long text", "{\"const\":\"", "word # ", "", "\"}"},
    {"const of a wide object", "{\"const\":{", "\"p#\":#", ",", "}}"},
    {"anyOf", "{\"anyOf\":[", "{\"const\":#}", ",", "]}"},
    {"anyOf of types", "{\"anyOf\":[", "{\"type\":\"integer\",\"minimum\":#}", ",", "]}"},
    {"anyOf of objects", "{\"anyOf\":[", "{\"properties\":{\"p#\":{}},\"required\":[\"p#\"]}", ",", "]}"},
    {"oneOf", "{\"oneOf\":[", "{\"const\":#}", ",", "]}"},
    {"oneOf of objects", "{\"oneOf\":[", "{\"properties\":{\"k\":{\"const\":#}},\"required\":[\"k\"]}", ",", "]}"},
    {"oneOf of what overlaps", "{\"oneOf\":[", "{\"type\":\"integer\",\"minimum\":#}", ",", "]}"},
    {"not oneOf", "{\"not\":{\"oneOf\":[", "{\"const\":#}", ",", "]}}"},
    {"not anyOf", "{\"not\":{\"anyOf\":[", "{\"const\":#}", ",", "]}}"},
    {"not allOf", "{\"not\":{\"allOf\":[", "{\"minimum\":#}", ",", "]}}"},
    {"allOf", "{\"allOf\":[", "{\"properties\":{\"p#\":{}}}", ",", "]}"},
    {"allOf of minima", "{\"allOf\":[", "{\"minimum\":#}", ",", "]}"},
    {"allOf of anyOf", "{\"allOf\":[", "{\"anyOf\":[{\"minimum\":#},{\"maximum\":#}]}", ",", "]}"},
    {"allOf of patterns", "{\"type\":\"string\",\"allOf\":[", "{\"pattern\":\"a#b\"}", ",", "]}"},
    {"allOf of one property", "{\"allOf\":[", "{\"properties\":{\"p\":{\"minimum\":#}}}", ",", "]}"},
    {"allOf of enums", "{\"allOf\":[", "{\"enum\":[1,2,#]}", ",", "]}"},
    {"$defs that call each other", "{\"$ref\":\"#/$defs/d0\",\"$defs\":{",
     "\"d#\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/d>\"}}", ",", ",\"end\":{}}}"},
    {"$defs that nobody calls", "{\"type\":\"null\",\"$defs\":{", "\"d#\":{\"type\":\"array\"}", ",", "}}"},
    {"references in properties", "{\"$defs\":{\"d\":{\"type\":\"object\",\"properties\":{\"x\":{}}}},\"properties\":{",
     "\"p#\":{\"$ref\":\"#/$defs/d\"}", ",", "}}"},
    {"anchors", "{\"$defs\":{\"d\":{\"$anchor\":\"x\",\"type\":\"null\"}},\"properties\":{", "\"p#\":{\"$ref\":\"#x\"}",
     ",", "}}"},
    {"anchors at the end", "{\"properties\":{", "\"p#\":{\"$ref\":\"#x\"}", ",",
     "},\"$defs\":{\"d\":{\"$anchor\":\"x\",\"type\":\"null\"}}}"},
    {"references through allOf", "{\"$ref\":\"#/$defs/d1\",\"$defs\":{\"d0\":{}",
     ",\"d#\":{\"allOf\":[{\"$ref\":\"#/$defs/d<\"},{\"$ref\":\"#/$defs/d<\"}]}", "", "}}"},
    {"references that double", "{\"$ref\":\"#/$defs/end\",\"$defs\":{\"d0\":{\"type\":\"integer\"}",
     ",\"d#\":{\"allOf\":[{\"$ref\":\"#/$defs/d<\"},{\"$ref\":\"#/$defs/d<\"}]}", "",
     ",\"end\":{\"$ref\":\"#/$defs/d%\"}}}"},
    {"lists that double", "{\"$ref\":\"#/$defs/end\",\"$defs\":{\"d0\":{\"type\":\"integer\"}",
     ",\"d#\":{\"type\":\"array\",\"prefixItems\":[{\"$ref\":\"#/$defs/d<\"},{\"$ref\":\"#/$defs/d<\"}]}", "",
     ",\"end\":{\"$ref\":\"#/$defs/d%\"}}}"},
    {"objects that double", "{\"$ref\":\"#/$defs/end\",\"$defs\":{\"d0\":{\"type\":\"integer\"}",
     ",\"d#\":{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/d<\"},\"b\":{\"$ref\":\"#/$defs/d<\"}}}",
     "", ",\"end\":{\"$ref\":\"#/$defs/d%\"}}}"},
    {"choices that double", "{\"$ref\":\"#/$defs/end\",\"$defs\":{\"d0\":{\"type\":\"integer\"}",
     ",\"d#\":{\"anyOf\":[{\"$ref\":\"#/$defs/d<\"},{\"$ref\":\"#/$defs/d<\"}]}", "",
     ",\"end\":{\"$ref\":\"#/$defs/d%\"}}}"},
    {"negations that double", "{\"$ref\":\"#/$defs/end\",\"$defs\":{\"d0\":{\"type\":\"integer\"}",
     ",\"d#\":{\"not\":{\"allOf\":[{\"$ref\":\"#/$defs/d<\"},{\"$ref\":\"#/$defs/d<\"}]}}", "",
     ",\"end\":{\"$ref\":\"#/$defs/d%\"}}}"},
    {"oneOf that doubles", "{\"$ref\":\"#/$defs/end\",\"$defs\":{\"d0\":{\"type\":\"integer\"}",
     ",\"d#\":{\"oneOf\":[{\"$ref\":\"#/$defs/d<\"},{\"$ref\":\"#/$defs/d<\"}]}", "",
     ",\"end\":{\"$ref\":\"#/$defs/d%\"}}}"},
    {"if that doubles", "{\"$ref\":\"#/$defs/end\",\"$defs\":{\"d0\":{\"type\":\"integer\"}",
     ",\"d#\":{\"if\":{\"$ref\":\"#/$defs/d<\"},\"then\":{\"$ref\":\"#/$defs/d<\"},\"else\":{\"$ref\":\"#/$defs/d<\"}}",
     "", ",\"end\":{\"$ref\":\"#/$defs/d%\"}}}"},
    {"contains that doubles", "{\"$ref\":\"#/$defs/end\",\"$defs\":{\"d0\":{\"type\":\"integer\"}",
     ",\"d#\":{\"type\":\"array\",\"contains\":{\"$ref\":\"#/$defs/d<\"},\"items\":{\"$ref\":\"#/$defs/d<\"}}", "",
     ",\"end\":{\"$ref\":\"#/$defs/d%\"}}}"},
    {"an enum against what doubles", "{\"enum\":[1],\"$ref\":\"#/$defs/end\",\"$defs\":{\"d0\":{\"type\":\"integer\"}",
     ",\"d#\":{\"allOf\":[{\"$ref\":\"#/$defs/d<\"},{\"$ref\":\"#/$defs/d<\"}]}", "",
     ",\"end\":{\"$ref\":\"#/$defs/d%\"}}}"},
    {"patternProperties", "{\"type\":\"object\",\"patternProperties\":{", "\"^p#$\":{}", ",", "}}"},
    {"prefixItems", "{\"type\":\"array\",\"prefixItems\":[", "{\"const\":#}", ",", "]}"},
    {"prefixItems of objects", "{\"type\":\"array\",\"prefixItems\":[", "{\"properties\":{\"p#\":{}}}", ",", "]}"},
    {"allOf of prefixItems", "{\"type\":\"array\",\"allOf\":[", "{\"prefixItems\":[{},{},{\"const\":#}]}", ",", "]}"},
    {"dependentRequired", "{\"type\":\"object\",\"dependentRequired\":{", "\"p#\":[\"p<\"]", ",", "}}"},
    {"dependentSchemas", "{\"type\":\"object\",\"dependentSchemas\":{", "\"p#\":{\"minProperties\":2}", ",", "}}"},
    {"unknown keywords", "{", "\"x-#\":1", ",", "}"},
    {"types", "{\"type\":[", "\"integer\"", ",", "]}"},
    {"a long pattern", "{\"type\":\"string\",\"pattern\":\"", "a#", "", "\"}"},
    {"a long pattern, anchored", "{\"type\":\"string\",\"pattern\":\"^", "a#", "", "$\"}"},
    {"a pattern of choices", "{\"type\":\"string\",\"pattern\":\"^(x", "|a#", "", ")$\"}"},
    {"a pattern of groups", "{\"type\":\"string\",\"pattern\":\"^", "(a#)?", "", "$\"}"},
    {"a pattern of classes", "{\"type\":\"string\",\"pattern\":\"^", "[a-z#]*", "", "$\"}"},
    {"a pattern of looks ahead", "{\"type\":\"string\",\"pattern\":\"^", "(?=.*a#)", "", "\"}"},
    {"a pattern of nested groups", "{\"type\":\"string\",\"pattern\":\"^", "(a", "", "$\"}"},
    {"a pattern of nested stars", "{\"type\":\"string\",\"pattern\":\"^a", "{0,9}", "", "$\"}"},
    {"not, deep", "", "{\"not\":", "", "{\"const\":1}^"},
    {"items, deep", "", "{\"type\":\"array\",\"items\":", "", "{}^"},
    {"properties, deep", "", "{\"properties\":{\"p\":", "", "{}~"},
    {"anyOf, deep", "", "{\"anyOf\":[{\"const\":#},", "", "{}|"},
    {"oneOf, deep", "", "{\"oneOf\":[{\"const\":#},", "", "{}|"},
    {"allOf, deep", "", "{\"allOf\":[{\"minimum\":#},", "", "{}|"},
};

static void put_unit(struct text *t, const char *unit, int i, int n)
{
    for (; *unit; unit++)
        if (*unit == '#' && unit[1] != '/' && unit[1] != 'x')
            text_print(t, "%d", i + 1);
        else if (*unit == '<' || *unit == '>')
            text_print(t, "%d", *unit == '<' ? i : i + 2);
        else if (*unit == '%')
            text_print(t, "%d", n);
        else if (*unit == '@')
            text_print(t, "%llx", (unsigned long long)(i + 1) * UINT64_C(0x9E3779B97F4A7C15));
        else
            text_print(t, "%c", *unit);
}

static void put_text(struct text *t, const struct shape *s, int n)
{
    static const struct {
        char mark;
        const char *close;
    } deep[] = {{'^', "}"}, {'~', "}}"}, {'|', "]}"}};
    text_append(t, str_from(s->head));
    for (int i = 0; i < n; i++) {
        text_append(t, str_from(i ? s->separator : ""));
        put_unit(t, s->unit, i, n);
    }
    size_t len = strlen(s->tail);
    const char *close = NULL;
    for (size_t i = 0; i < COUNT_OF(deep); i++)
        close = !*s->head && len && s->tail[len - 1] == deep[i].mark ? deep[i].close : close;
    struct text tail = {0};
    text_append(&tail, (struct str){s->tail, len - (close != NULL)});
    text_append(&tail, (struct str){"", 1});
    put_unit(t, tail.data, 0, n);
    for (int i = 0; close && i < n; i++)
        text_append(t, str_from(close));
    text_append(t, (struct str){"", 1});
    text_free(&tail);
}

static const struct shape grammars[] = {
    {"rules that call each other", "root ::= r1\n", "r# ::= \"a\" r>\n", "", "r% ::= \"z\"\nr1000000 ::= \"y\"\n"},
    {"rules that nobody calls", "root ::= \"a\"\n", "r# ::= \"a#\"\n", "", ""},
    {"rules that double", "root ::= r%\nr0 ::= \"ab\"\n", "r# ::= r< r<\n", "", ""},
    {"choices that double", "root ::= r%\nr0 ::= \"ab\"\n", "r# ::= r< | r<\n", "", ""},
    {"a choice of texts", "root ::= \"x\"", " | \"text #\"", "", "\n"},
    {"a choice of rules", "r ::= \"y\"\nroot ::= \"x\"", " | \"#\" r", "", "\n"},
    {"a sequence of texts", "root ::= \"x\"", " \"#\"", "", "\n"},
    {"a sequence of options", "root ::= \"x\"", " \"#\"?", "", "\n"},
    {"a sequence of stars", "root ::= \"x\"", " [a-z]*", "", "\n"},
    {"options of one byte", "root ::= \"x\"", " \"a\"?", "", "\n"},
    {"classes", "root ::= \"x\"", " [^a-z#]", "", "\n"},
    {"classes of characters", "root ::= \"x\"", " [\xC3\xA4-\xE4\xB8\x80#]", "", "\n"},
    {"any characters", "root ::= \"x\"", " .", "", "\n"},
    {"a long class", "root ::= [", "\xC3\xA4-\xC3\xBC", "", "]\n"},
    {"a long text", "root ::= \"", "word ", "", "\"\n"},
    {"repeats in a row", "root ::= \"x\"", " \"a\"{0,#}", "", "\n"},
    {"repeats of repeats", "root ::= ", "(", "", "\"a\"{0,9}){0,9}){0,9}){0,9}){0,9}\n"},
    {"brackets, deep", "root ::= ", "(", "", "\"a\"\n"},
    {"tokens", "root ::= \"x\"", " | !<|im_end|> [#]", "", "\n"},
    {"comments", "root ::= \"x\"\n", "# note #\n", "", ""},
    {"left recursion", "root ::= r1\n", "r# ::= r> \"a\" | \"b\"\n", "", "r% ::= r1\n"},
};

// --- their time ---

#ifndef WIDTHS
#define WIDTHS 40, 20000
#endif
static const int widths[] = {WIDTHS};
enum { SANITIZED_WIDTH = 1000 }; // a sanitizer takes 30 to 60 times as long

// A second is the aim; a loaded machine may take three.
static const double seconds_max = 3;

static void compile_in_time(struct rig *r, const struct shape *s, bool schema, int n)
{
    struct text t = {0};
    put_text(&t, s, n);
    double start = seconds();
    bool made = t.size <= TEXT_MAX && (schema ? rig_schema(r, t.data, false) : rig_gbnf(r, t.data));
    made = made && constraint_mask(r->c, &r->err) != NULL;
    double took = seconds() - start;
    cr_expect_lt(took, seconds_max * patience(), "%s, %d of them: %.2f s", s->name, n, took);
    cr_log_info("%s, %d of them: %.3f s %s", s->name, n, took, made ? "" : r->err.text);
    cr_expect(made || t.size > TEXT_MAX || r->err.code == E_USAGE, "%s, %d of them: %s", s->name, n, r->err.text);
    text_free(&t);
}

static void compile_all(const struct shape *shapes, size_t n, bool schema)
{
    struct rig r;
    rig_begin(&r);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < COUNT_OF(widths); k++)
            compile_in_time(&r, &shapes[i], schema, sanitized ? MIN(widths[k], SANITIZED_WIDTH) : widths[k]);
    rig_end(&r);
}

Test(grammar_width, a_schema_is_compiled_or_refused_within_a_second, .timeout = 600)
{
    compile_all(schemas, COUNT_OF(schemas), true);
}

Test(grammar_width, a_grammar_is_compiled_or_refused_within_a_second, .timeout = 600)
{
    compile_all(grammars, COUNT_OF(grammars), false);
}

// What programs ask for in earnest is not refused: a wide object, a long enum, a choice between many kinds of objects.
Test(grammar_width, wide_schemas_are_compiled)
{
    static const struct {
        const char *name;
        int n;
    } wide[] = {{"properties", 10000},    {"required", 20000},
                {"enum of texts", 20000}, {"enum of numbers", 20000},
                {"anyOf", 10000},         {"properties that are objects", 3000},
                {"prefixItems", 3000},    {"references in properties", 3000}};
    struct rig r;
    rig_begin(&r);
    for (size_t i = 0; i < COUNT_OF(wide); i++) {
        const struct shape *s = schemas;
        while (strcmp(s->name, wide[i].name))
            s++;
        struct text t = {0};
        put_text(&t, s, sanitized ? MIN(wide[i].n, SANITIZED_WIDTH) : wide[i].n);
        cr_expect(rig_schema(&r, t.data, false), "%s, %d of them: %s", s->name, wide[i].n, r.err.text);
        text_free(&t);
    }
    rig_end(&r);
}
