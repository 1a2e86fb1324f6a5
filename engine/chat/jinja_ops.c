// Python's operators for the values of templates.
#include "engine/chat/jinja_run.h"

#include <math.h>
#include <stdlib.h>

const char *value_type_name(const struct value *v)
{
    static const char *const kinds[] = {
        [VALUE_NONE] = "NoneType", [VALUE_BOOL] = "bool",          [VALUE_INT] = "int",   [VALUE_BIGINT] = "int",
        [VALUE_FLOAT] = "float",   [VALUE_STRING] = "str",         [VALUE_LIST] = "list", [VALUE_DICT] = "dict",
        [VALUE_TUPLE] = "tuple",   [VALUE_UNDEFINED] = "Undefined"};
    static const char *const objects[] = {
        [OBJ_NAMESPACE] = "Namespace", [OBJ_LOOP] = "LoopContext",  [OBJ_MACRO] = "Macro",
        [OBJ_METHOD] = "method",       [OBJ_FUNCTION] = "function", [OBJ_RANGE] = "range",
        [OBJ_VIEW] = "dict view",      [OBJ_CYCLER] = "Cycler",     [OBJ_JOINER] = "Joiner"};
    if (v->kind == VALUE_OBJECT)
        return object_kind(v) == OBJ_ITERATOR ? ((const struct iterator *)v->object)->name : objects[object_kind(v)];
    return v->kind == VALUE_STRING && v->markup ? "Markup" : kinds[v->kind];
}

bool value_truth(const struct value *v)
{
    switch ((enum value_kind)v->kind) {
    case VALUE_BOOL:
        return v->boolean;
    case VALUE_INT:
        return v->integer != 0;
    case VALUE_FLOAT:
        return v->real != 0;
    case VALUE_STRING:
        return v->text.len > 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
        return value_count(v) > 0;
    case VALUE_NONE:
    case VALUE_UNDEFINED:
        return false;
    case VALUE_BIGINT:
        return true;
    case VALUE_OBJECT:
        break;
    }
    if (object_kind(v) == OBJ_RANGE)
        return ((const struct range *)v->object)->n > 0;
    return object_kind(v) == OBJ_VIEW ? value_count(&((const struct view *)v->object)->dict) > 0 : true;
}

int run_use_undefined(struct run *r, const struct value *v)
{
    const struct undefined *u = v->object;
    if (!u || u->kind == UNDEF_HINT)
        return run_fail(r, "%.*s", u ? (int)MIN(u->name.len, (size_t)200) : 9, u ? u->name.data : "undefined");
    int n = (int)MIN(u->name.len, (size_t)100);
    if (u->kind == UNDEF_NAME)
        return run_fail(r, "'%.*s' is undefined", n, u->name.data);
    if (u->kind == UNDEF_UNSAFE)
        return run_fail(r, "'%.*s' of a %s cannot be used: values do not change within a template", n, u->name.data,
                        value_type_name(&u->of));
    const char *type = u->of.kind == VALUE_NONE ? "None" : value_type_name(&u->of),
               *object = u->of.kind == VALUE_NONE ? "" : " object";
    if (u->kind == UNDEF_ATTRIBUTE)
        return run_fail(r, "'%s%s' has no attribute '%.*s'", type, object, n, u->name.data);
    struct value shown;
    struct error *err = r->err, ignored = {0};
    r->err = &ignored;
    int status = run_repr(r, &u->item, &shown);
    r->err = err;
    return run_fail(r, "%s%s has no element %.*s", type, object, status ? 1 : (int)MIN(shown.text.len, (size_t)100),
                    status ? "?" : shown.text.data);
}

// ---- Numbers ----

static bool as_int(const struct value *v, int64_t *out)
{
    *out = v->kind == VALUE_BOOL ? v->boolean : v->integer;
    return v->kind == VALUE_INT || v->kind == VALUE_BOOL;
}

int run_int_arg(struct run *r, const struct value *v, int64_t *out)
{
    if (as_int(v, out))
        return 0;
    if (is_undefined(v))
        return run_use_undefined(r, v);
    return run_fail(r, "'%s' object cannot be interpreted as an integer", value_type_name(v));
}

static bool as_real(const struct value *v, double *out)
{
    int64_t i;
    if (!as_int(v, &i))
        return value_number(v, out);
    *out = (double)i;
    return true;
}

static const char *sign_of(enum binary_op op)
{
    static const char *const signs[] = {
        "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
    return signs[op];
}

static int unsupported(struct run *r, enum binary_op op, const struct value *a, const struct value *b)
{
    if (is_undefined(a))
        return run_use_undefined(r, a);
    if (is_undefined(b))
        return run_use_undefined(r, b);
    return run_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", sign_of(op), value_type_name(a),
                    value_type_name(b));
}

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

// Computes base ** exponent; true if the result does not fit 64 bits.
static bool int_power(int64_t base, int64_t exponent, int64_t *out)
{
    *out = 1;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1 && __builtin_mul_overflow(*out, base, out))
            return true;
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
            return true;
    }
    return false;
}

static int int_binary(struct run *r, enum binary_op op, int64_t a, int64_t b, struct value *out)
{
    int64_t v = 0;
    bool over = false;
    if ((op == OP_FLOORDIV || op == OP_MOD || op == OP_DIV) && b == 0)
        return run_fail(r, op == OP_DIV ? "division by zero" : "integer division or modulo by zero");
    switch (op) {
    case OP_ADD:
        over = __builtin_add_overflow(a, b, &v);
        break;
    case OP_SUB:
        over = __builtin_sub_overflow(a, b, &v);
        break;
    case OP_MUL:
        over = __builtin_mul_overflow(a, b, &v);
        break;
    case OP_FLOORDIV:
        over = a == INT64_MIN && b == -1;
        v = over ? 0 : floor_div(a, b);
        break;
    case OP_MOD:
        v = b == -1 ? 0 : a - b * floor_div(a, b);
        break;
    default:
        over = int_power(a, b, &v);
    }
    *out = value_int(v);
    return over ? run_fail(r, "the result of '%s' needs more than 64 bits", sign_of(op)) : 0;
}

// Python's division of floats: the remainder has the sign of the divisor.
static void float_divmod(double a, double b, double *quotient, double *rest)
{
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) {
        mod += b;
        div -= 1;
    }
    *rest = mod != 0 ? mod : copysign(0.0, b);
    *quotient = div != 0 ? floor(div) + (div - floor(div) > 0.5) : copysign(0.0, a / b);
}

static int float_power(struct run *r, double a, double b, struct value *out)
{
    if (a == 0 && b < 0)
        return run_fail(r, "0.0 cannot be raised to a negative power");
    if (a < 0 && b != floor(b) && isfinite(a) && isfinite(b))
        return run_fail(r, "a negative number to a fractional power is a complex number, which templates do not have");
    double v = pow(a, b);
    if (isinf(v) && isfinite(a) && isfinite(b))
        return run_fail(r, "numerical result out of range");
    *out = value_float(v);
    return 0;
}

enum { FMOD_STEPS = 32 }; // a remainder takes a turn for each bit of the quotient, and that may have 2,000

static int float_binary(struct run *r, enum binary_op op, double a, double b, struct value *out)
{
    double quotient = 0, rest = 0;
    if (run_step(r, op == OP_FLOORDIV || op == OP_MOD ? FMOD_STEPS : 0))
        return -1;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return run_fail(r, "float division by zero");
    switch (op) {
    case OP_ADD:
        *out = value_float(a + b);
        return 0;
    case OP_SUB:
        *out = value_float(a - b);
        return 0;
    case OP_MUL:
        *out = value_float(a * b);
        return 0;
    case OP_DIV:
        *out = value_float(a / b);
        return 0;
    case OP_POW:
        return float_power(r, a, b, out);
    default:
        float_divmod(a, b, &quotient, &rest);
        *out = value_float(op == OP_MOD ? rest : quotient);
        return 0;
    }
}

static int number_binary(struct run *r, enum binary_op op, const struct value *a, const struct value *b,
                         struct value *out)
{
    int64_t i = 0, k = 0;
    double x, y;
    int status;
    if (a->kind == VALUE_BIGINT || b->kind == VALUE_BIGINT)
        return run_fail(r, "'%s' with a whole number that needs more than 64 bits", sign_of(op));
    bool ints = as_int(a, &i) && as_int(b, &k);
    if (ints && op != OP_DIV && !(op == OP_POW && k < 0))
        status = int_binary(r, op, i, k, out);
    else if (as_real(a, &x) && as_real(b, &y))
        status = ints && y == 0 ? int_binary(r, op, i, k, out) : float_binary(r, op, x, y, out);
    else
        return unsupported(r, op, a, b);
    out->origin = a->origin | b->origin;
    return status;
}

int run_negate(struct run *r, const struct value *a, struct value *out)
{
    struct value zero = value_int(0);
    if (a->kind == VALUE_FLOAT)
        *out = value_float(-a->real);
    else if (a->kind == VALUE_INT || a->kind == VALUE_BOOL)
        return number_binary(r, OP_SUB, &zero, a, out);
    else
        return is_undefined(a) ? run_use_undefined(r, a)
                               : run_fail(r, "bad operand type for unary -: '%s'", value_type_name(a));
    out->origin = a->origin;
    return 0;
}

// ---- Strings and lists ----

static int add_lists(struct run *r, const struct value *a, const struct value *b, struct value *out)
{
    const struct value *parts[] = {a, b};
    if (run_list_new(r, out))
        return -1;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < parts[k]->list->n; i++)
            if (run_list_push(r, out, parts[k]->list->items[i]))
                return -1;
    out->kind = a->kind;
    out->origin = a->origin & b->origin;
    return 0;
}

static int add_strings(struct run *r, const struct value *a, const struct value *b, struct value *out)
{
    if (!a->markup && !b->markup)
        return string_concat(r, a, b, out);
    struct value left = *a, right = *b; // if only one operand is markup, the other one is escaped
    if ((!a->markup && run_escape_html(r, a, &left)) || (!b->markup && run_escape_html(r, b, &right)) ||
        string_concat(r, &left, &right, out))
        return -1;
    out->markup = true;
    return 0;
}

static bool is_list(const struct value *v)
{
    return v->kind == VALUE_LIST || v->kind == VALUE_TUPLE;
}

static int add(struct run *r, const struct value *a, const struct value *b, struct value *out)
{
    if (is_string(a) && is_string(b))
        return add_strings(r, a, b, out);
    if (is_list(a) && a->kind == b->kind)
        return add_lists(r, a, b, out);
    if (is_undefined(a) || is_undefined(b))
        return run_use_undefined(r, is_undefined(a) ? a : b);
    if (is_string(a) || is_list(a)) {
        const char *type = is_string(a) ? "str" : value_type_name(a);
        return run_fail(r, "can only concatenate %s (not \"%s\") to %s", type, value_type_name(b), type);
    }
    return number_binary(r, OP_ADD, a, b, out);
}

static int repeat_string(struct run *r, const struct value *s, int64_t n, struct value *out)
{
    struct build b = {.markup = s->markup};
    size_t bytes;
    if (n < 0 || s->text.len == 0)
        n = 0;
    if (size_mul(s->text.len, (size_t)n, &bytes) || bytes > JINJA_OUTPUT_MAX)
        return run_fail(r, "a text grows over %d MiB", JINJA_OUTPUT_MAX >> 20);
    for (int64_t i = 0; i < n; i++)
        if (run_step(r, 1) || build_string(r, &b, s))
            return -1;
    *out = build_value(&b);
    return 0;
}

static int repeat_list(struct run *r, const struct value *list, int64_t n, struct value *out)
{
    if (run_list_new(r, out))
        return -1;
    if (list->list->n == 0)
        n = 0;
    for (int64_t k = 0; k < n; k++)
        for (size_t i = 0; i < list->list->n; i++)
            if (run_list_push(r, out, list->list->items[i]))
                return -1;
    out->kind = list->kind;
    return 0;
}

static int multiply(struct run *r, const struct value *a, const struct value *b, struct value *out)
{
    const struct value *seq = is_string(a) || is_list(a) ? a : is_string(b) || is_list(b) ? b : NULL;
    const struct value *times = seq == a ? b : a;
    int64_t n;
    if (!seq)
        return number_binary(r, OP_MUL, a, b, out);
    if (is_undefined(times))
        return run_use_undefined(r, times);
    if (!as_int(times, &n))
        return run_fail(r, "can't multiply sequence by non-int of type '%s'", value_type_name(times));
    return is_string(seq) ? repeat_string(r, seq, n, out) : repeat_list(r, seq, n, out);
}

int run_binary(struct run *r, enum binary_op op, const struct value *a, const struct value *b, struct value *out)
{
    bool result = false;
    if (op >= OP_EQ) {
        int status = run_compare(r, op, a, b, &result);
        *out = value_bool(result);
        return status;
    }
    if (op == OP_ADD)
        return add(r, a, b, out);
    if (op == OP_MUL)
        return multiply(r, a, b, out);
    if (op == OP_MOD && is_string(a))
        return run_percent_format(r, a, b, out);
    return number_binary(r, op, a, b, out);
}

// ---- Comparison ----

static bool same_range(const struct range *x, const struct range *y)
{
    return x->n == y->n && (x->n == 0 || (x->start == y->start && (x->n == 1 || x->step == y->step)));
}

int run_same(struct run *r, const struct value *a, const struct value *b, bool *same)
{
    if (is_object(a, OBJ_RANGE) && is_object(b, OBJ_RANGE)) {
        *same = same_range(a->object, b->object);
        return run_step(r, 1);
    }
    int64_t before = r->max_steps - r->steps, left = before;
    *same = value_equal_within(a, b, &left);
    return run_step(r, (size_t)(before - left));
}

int run_find(struct run *r, const struct value *dict, const struct value *key, const struct value **found)
{
    int64_t before = r->max_steps - r->steps, left = before;
    *found = value_find_within(dict, key, &left);
    return run_step(r, (size_t)(before - left));
}

int run_find_name(struct run *r, const struct value *dict, struct str key, const struct value **found)
{
    struct value name = value_string(key);
    return run_find(r, dict, &name, found);
}

static int order_text(struct str a, struct str b)
{
    size_t n = MIN(a.len, b.len);
    int c = n ? memcmp(a.data, b.data, n) : 0;
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

static int not_ordered(struct run *r, enum binary_op op, const struct value *a, const struct value *b)
{
    if (is_undefined(a) || is_undefined(b))
        return run_use_undefined(r, is_undefined(a) ? a : b);
    return run_fail(r, "'%s' not supported between instances of '%s' and '%s'", sign_of(op), value_type_name(a),
                    value_type_name(b));
}

static int ordered(struct run *r, enum binary_op op, const struct value *a, const struct value *b, bool *out);

// The first items that differ decide the order of two lists.
static int ordered_lists(struct run *r, enum binary_op op, const struct value *a, const struct value *b, bool *out)
{
    size_t n = MIN(a->list->n, b->list->n), i = 0;
    for (bool same = true; i < n; i += same) {
        if (run_same(r, &a->list->items[i], &b->list->items[i], &same))
            return -1;
        if (!same)
            break;
    }
    if (i < n)
        return ordered(r, op, &a->list->items[i], &b->list->items[i], out);
    struct value x = value_int((int64_t)a->list->n), y = value_int((int64_t)b->list->n);
    return ordered(r, op, &x, &y, out);
}

// -1, 0 or 1; 2 if one operand is not a number.
static int order_numbers(const struct value *a, const struct value *b)
{
    int64_t i = 0, k = 0;
    double x, y;
    if (as_int(a, &i) && as_int(b, &k))
        return (i > k) - (i < k);
    if (!as_real(a, &x) || !as_real(b, &y) || isnan(x) || isnan(y))
        return 2;
    return (x > y) - (x < y);
}

static int ordered(struct run *r, enum binary_op op, const struct value *a, const struct value *b, bool *out)
{
    if (is_list(a) && a->kind == b->kind)
        return ordered_lists(r, op, a, b, out);
    double unused;
    bool numbers = as_real(a, &unused) && as_real(b, &unused);
    if (!numbers && !(is_string(a) && is_string(b)))
        return not_ordered(r, op, a, b);
    if (run_step_text(r, numbers ? 0 : MIN(a->text.len, b->text.len)))
        return -1;
    int c = numbers ? order_numbers(a, b) : order_text(a->text, b->text);
    *out = c != 2 && (op == OP_LT ? c < 0 : op == OP_LE ? c <= 0 : op == OP_GT ? c > 0 : c >= 0);
    return 0;
}

int run_order(struct run *r, const struct value *a, const struct value *b, bool *less)
{
    return run_step(r, 1) ? -1 : ordered(r, OP_LT, a, b, less);
}

int run_compare(struct run *r, enum binary_op op, const struct value *a, const struct value *b, bool *out)
{
    int status = 0;
    if (op == OP_EQ || op == OP_NE) {
        status = run_same(r, a, b, out);
        *out = *out == (op == OP_EQ);
    } else if (op == OP_IN || op == OP_NOT_IN) {
        status = run_contains(r, b, a, out);
        *out = *out == (op == OP_IN);
    } else {
        status = ordered(r, op, a, b, out);
    }
    return status;
}

// ---- Sequences ----

static bool range_has(const struct range *g, const struct value *item)
{
    int64_t i;
    double f;
    if (!as_int(item, &i)) {
        if (!as_real(item, &f) || f != floor(f) || fabs(f) > 0x1p62)
            return false;
        i = (int64_t)f;
    }
    const int64_t first = range_item(g, 0), last = range_item(g, g->n - 1);
    if (g->n == 0 || i < MIN(first, last) || i > MAX(first, last))
        return false;
    const bool up = g->step > 0;
    const uint64_t step = up ? (uint64_t)g->step : 0 - (uint64_t)g->step;
    return (up ? (uint64_t)i - (uint64_t)first : (uint64_t)first - (uint64_t)i) % step == 0;
}

int run_contains(struct run *r, const struct value *in, const struct value *item, bool *out)
{
    *out = false;
    const struct value *found;
    if (is_string(in)) {
        if (is_undefined(item) || !is_string(item))
            return run_fail(r, "'in <string>' requires string as left operand, not %s", value_type_name(item));
        *out = item->text.len == 0;
        if (*out || in->text.len < item->text.len)
            return 0;
        if (run_step_text(r, in->text.len))
            return -1;
        *out = memmem(in->text.data, in->text.len, item->text.data, item->text.len) != NULL;
        return 0;
    }
    if (in->kind == VALUE_DICT || (is_object(in, OBJ_VIEW) && ((const struct view *)in->object)->kind == VIEW_KEYS)) {
        if (item->kind == VALUE_LIST || item->kind == VALUE_DICT)
            return run_fail(r, "unhashable type: '%s'", value_type_name(item));
        if (run_find(r, in->kind == VALUE_DICT ? in : &((const struct view *)in->object)->dict, item, &found))
            return -1;
        *out = found != NULL;
        return 0;
    }
    if (is_object(in, OBJ_RANGE)) {
        *out = range_has(in->object, item);
        return 0;
    }
    struct value list;
    if (!is_undefined(in) && !value_is_iterable(in))
        return run_fail(r, "argument of type '%s' is not iterable", value_type_name(in));
    if (run_sequence(r, in, &list))
        return -1;
    for (size_t i = 0; i < list.list->n && !*out; i++)
        if (run_same(r, &list.list->items[i], item, out))
            return -1;
    return 0;
}

bool value_is_iterable(const struct value *v)
{
    if (v->kind == VALUE_OBJECT) {
        enum object_kind k = object_kind(v);
        return k == OBJ_RANGE || k == OBJ_ITERATOR || k == OBJ_VIEW || k == OBJ_LOOP;
    }
    return is_list(v) || is_string(v) || v->kind == VALUE_DICT || is_undefined(v);
}

static int chars_of(struct run *r, const struct value *s, struct value *list)
{
    for (size_t at = 0, n; at < s->text.len; at += n) {
        n = text_char_len(s->text.data + at, s->text.data + s->text.len);
        struct value c = string_slice(s, at, at + n);
        c.markup = false;
        if (run_list_push(r, list, c))
            return -1;
    }
    return 0;
}

static int entries_of(struct run *r, const struct value *dict, enum view_kind kind, struct value *list)
{
    for (size_t i = 0; i < dict->dict->n; i++) {
        const struct value_entry *e = &dict->dict->entries[i];
        struct value item = kind == VIEW_KEYS ? e->key : e->value;
        if ((kind == VIEW_ITEMS && run_tuple(r, &item, e->key, e->value)) || run_list_push(r, list, item))
            return -1;
    }
    return 0;
}

static int object_items(struct run *r, const struct value *v, struct value *list)
{
    switch (object_kind(v)) {
    case OBJ_RANGE: {
        const struct range *g = v->object;
        for (int64_t i = 0; i < g->n; i++)
            if (run_list_push(r, list, value_int(range_item(g, i))))
                return -1;
        return 0;
    }
    case OBJ_VIEW: {
        const struct view *view = v->object;
        return entries_of(r, &view->dict, view->kind, list);
    }
    case OBJ_ITERATOR: {
        struct iterator *it = v->object;
        for (; it->at < it->list.list->n; it->at++)
            if (run_list_push(r, list, it->list.list->items[it->at]))
                return -1;
        return 0;
    }
    default:
        return run_fail(r, "'%s' object is not iterable", value_type_name(v));
    }
}

int run_items(struct run *r, const struct value *v, struct value *list)
{
    return run_sequence(r, v, list) || run_step(r, list->list->n) ? -1 : 0;
}

int run_sequence(struct run *r, const struct value *v, struct value *list)
{
    if (is_list(v)) {
        *list = *v;
        return 0;
    }
    if (run_list_new(r, list) || is_undefined(v))
        return r->err->code ? -1 : 0;
    if (is_string(v))
        return chars_of(r, v, list);
    if (v->kind == VALUE_DICT)
        return entries_of(r, v, VIEW_KEYS, list);
    if (v->kind == VALUE_OBJECT)
        return object_items(r, v, list);
    return run_fail(r, "'%s' object is not iterable", value_type_name(v));
}

int run_length(struct run *r, const struct value *v, int64_t *n)
{
    *n = 0;
    if (is_string(v)) {
        if (run_step_text(r, v->text.len))
            return -1;
        *n = (int64_t)string_chars(v->text);
        return 0;
    }
    if (is_list(v) || v->kind == VALUE_DICT)
        *n = (int64_t)value_count(v);
    else if (is_object(v, OBJ_RANGE))
        *n = ((const struct range *)v->object)->n;
    else if (is_object(v, OBJ_VIEW))
        *n = (int64_t)value_count(&((const struct view *)v->object)->dict);
    else if (is_object(v, OBJ_LOOP))
        return run_loop_length(r, v->object, n);
    else if (!is_undefined(v))
        return run_fail(r, "object of type '%s' has no len()", value_type_name(v));
    return 0;
}
