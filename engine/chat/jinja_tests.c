// The tests: the names that may follow `is`.
#include "engine/chat/jinja_text.h"

#include <stdio.h>

#define TEST(name, condition)                                                                                          \
    static int is_##name(struct run *r, const struct value *v, const struct call_args *args, struct value *out)        \
    {                                                                                                                  \
        *out = value_bool(condition);                                                                                  \
        return args_bind(r, args, #name, "", 0, NULL);                                                                 \
    }
TEST(defined, !is_undefined(v))
TEST(undefined_value, is_undefined(v))
TEST(none, v->kind == VALUE_NONE)
TEST(boolean, v->kind == VALUE_BOOL)
TEST(true_value, v->kind == VALUE_BOOL && v->boolean)
TEST(false_value, v->kind == VALUE_BOOL && !v->boolean)
TEST(integer, v->kind == VALUE_INT || v->kind == VALUE_BIGINT)
TEST(float_number, v->kind == VALUE_FLOAT)
TEST(number, v->kind >= VALUE_BOOL && v->kind <= VALUE_FLOAT)
TEST(string_value, is_string(v))
TEST(mapping, v->kind == VALUE_DICT)
TEST(iterable_value, value_is_iterable(v))
TEST(escaped, is_string(v) && v->markup)

static int is_known(struct run *r, const struct value *v, const struct call_args *args, const char *what,
                    native_fn *(*find)(struct str), struct value *out)
{
    if (v->kind == VALUE_LIST || v->kind == VALUE_DICT)
        return run_fail(r, "unhashable type: '%s'", value_type_name(v));
    *out = value_bool(is_string(v) && find(v->text));
    return args_bind(r, args, what, "", 0, NULL);
}

static int is_filter_name(struct run *r, const struct value *v, const struct call_args *args, struct value *out)
{
    return is_known(r, v, args, "filter", filter_find, out);
}

static int is_test_name(struct run *r, const struct value *v, const struct call_args *args, struct value *out)
{
    return is_known(r, v, args, "test", test_find, out);
}

// Values that have a length and items.
static int is_sequence(struct run *r, const struct value *v, const struct call_args *args, struct value *out)
{
    *out = value_bool(is_string(v) || v->kind == VALUE_LIST || v->kind == VALUE_TUPLE || v->kind == VALUE_DICT ||
                      is_undefined(v) || is_object(v, OBJ_RANGE));
    return args_bind(r, args, "sequence", "", 0, NULL);
}

static int is_callable(struct run *r, const struct value *v, const struct call_args *args, struct value *out)
{
    bool object = v->kind == VALUE_OBJECT;
    enum object_kind k = object ? object_kind(v) : OBJ_NAMESPACE;
    *out = value_bool(is_undefined(v) || (object && (k == OBJ_MACRO || k == OBJ_METHOD || k == OBJ_FUNCTION ||
                                                     k == OBJ_JOINER || k == OBJ_LOOP)));
    return args_bind(r, args, "callable", "", 0, NULL);
}

static int has_case(struct run *r, const struct value *v, const struct call_args *args, bool upper, struct value *out)
{
    struct value s;
    if (args_bind(r, args, upper ? "upper" : "lower", "", 0, NULL) || run_str(r, v, &s) || run_step(r, s.text.len / 8))
        return -1;
    *out = value_bool(text_has_case(s.text, upper));
    return 0;
}

static int is_upper(struct run *r, const struct value *v, const struct call_args *args, struct value *out)
{
    return has_case(r, v, args, true, out);
}

static int is_lower(struct run *r, const struct value *v, const struct call_args *args, struct value *out)
{
    return has_case(r, v, args, false, out);
}

// Computes v % by == rest.
static int leaves(struct run *r, const struct value *v, struct value by, int64_t rest, struct value *out)
{
    struct value left, want = value_int(rest);
    bool same;
    if (run_binary(r, OP_MOD, v, &by, &left) || run_same(r, &left, &want, &same))
        return -1;
    *out = value_bool(same);
    return 0;
}

static int is_odd(struct run *r, const struct value *v, const struct call_args *args, struct value *out)
{
    return args_bind(r, args, "odd", "", 0, NULL) ? -1 : leaves(r, v, value_int(2), 1, out);
}

static int is_even(struct run *r, const struct value *v, const struct call_args *args, struct value *out)
{
    return args_bind(r, args, "even", "", 0, NULL) ? -1 : leaves(r, v, value_int(2), 0, out);
}

static int is_divisibleby(struct run *r, const struct value *v, const struct call_args *args, struct value *out)
{
    struct value by;
    return args_bind(r, args, "divisibleby", "num", 1, &by) ? -1 : leaves(r, v, by, 0, out);
}

static int same_object(struct run *r, const struct value *a, const struct value *b, bool *same)
{
    *same = false;
    if (a->kind != b->kind || a->kind == VALUE_UNDEFINED)
        return 0;
    if (a->kind != VALUE_LIST && a->kind != VALUE_TUPLE && a->kind != VALUE_DICT && a->kind != VALUE_OBJECT)
        return run_same(r, a, b, same);
    *same = a->object == b->object;
    return 0;
}

static int is_sameas(struct run *r, const struct value *v, const struct call_args *args, struct value *out)
{
    struct value other;
    bool same;
    if (args_bind(r, args, "sameas", "other", 1, &other) || same_object(r, v, &other, &same))
        return -1;
    *out = value_bool(same);
    return 0;
}

static int relation(struct run *r, const struct value *v, const struct call_args *args, enum binary_op op,
                    struct value *out)
{
    struct value other;
    return args_bind(r, args, "the test", "other", 1, &other) ? -1 : run_binary(r, op, v, &other, out);
}

#define RELATION(name, op)                                                                                             \
    static int is_##name(struct run *r, const struct value *v, const struct call_args *args, struct value *out)        \
    {                                                                                                                  \
        return relation(r, v, args, op, out);                                                                          \
    }
RELATION(eq, OP_EQ)
RELATION(ne, OP_NE)
RELATION(lt, OP_LT)
RELATION(le, OP_LE)
RELATION(gt, OP_GT)
RELATION(ge, OP_GE)
RELATION(in, OP_IN)

static const struct {
    const char *name;
    native_fn *test;
} tests[] = {
    {"defined", is_defined},
    {"undefined", is_undefined_value},
    {"none", is_none},
    {"boolean", is_boolean},
    {"true", is_true_value},
    {"false", is_false_value},
    {"integer", is_integer},
    {"float", is_float_number},
    {"number", is_number},
    {"string", is_string_value},
    {"mapping", is_mapping},
    {"iterable", is_iterable_value},
    {"sequence", is_sequence},
    {"callable", is_callable},
    {"escaped", is_escaped},
    {"filter", is_filter_name},
    {"test", is_test_name},
    {"upper", is_upper},
    {"lower", is_lower},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisibleby},
    {"sameas", is_sameas},
    {"in", is_in},
    {"==", is_eq},
    {"eq", is_eq},
    {"equalto", is_eq},
    {"!=", is_ne},
    {"ne", is_ne},
    {"<", is_lt},
    {"lt", is_lt},
    {"lessthan", is_lt},
    {"<=", is_le},
    {"le", is_le},
    {">", is_gt},
    {"gt", is_gt},
    {"greaterthan", is_gt},
    {">=", is_ge},
    {"ge", is_ge},
};

native_fn *test_find(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(tests); i++)
        if (str_equal_z(name, tests[i].name))
            return tests[i].test;
    return NULL;
}

int run_test(struct run *r, struct str name, const struct value *in, const struct call_args *args, bool *out)
{
    native_fn *test = test_find(name);
    struct value v;
    if (!test)
        return run_fail(r, "there is no test '%.*s'", STR_ARG(name));
    if (test(r, in, args, &v))
        return -1;
    *out = value_truth(&v);
    return 0;
}
