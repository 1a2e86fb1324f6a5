// Evaluates expressions by walking the tree, with one function per kind of node.
#include "engine/chat/jinja_text.h"

// ---- Names ----

// The variable of that name in the scope or in those around it; *out is NULL if there is none.
static int variable_find(struct run *r, struct str name, const struct variable **out)
{
    size_t visited = 0;
    for (const struct scope *s = r->scope; s; s = s->parent) {
        for (uint32_t i = 0; i < s->n; i++)
            if (s->vars[i].name.data == name.data) {
                *out = &s->vars[i];
                return run_step(r, (visited + i) / 16);
            }
        visited += s->n;
    }
    *out = NULL;
    return run_step(r, visited / 16);
}

int scope_find(struct run *r, struct str name, struct value *out, bool *found)
{
    const struct variable *variable;
    const struct value *v;
    if (variable_find(r, name, &variable))
        return -1;
    *found = variable != NULL;
    if (variable) {
        *out = variable->value;
        return 0;
    }
    if (run_find_name(r, r->context, name, &v))
        return -1;
    *found = v != NULL;
    if (v)
        *out = *v;
    else
        *found = global_find(name, out);
    return 0;
}

static int eval_name(struct run *r, const struct node *n, struct value *out)
{
    bool found;
    if (scope_find(r, n->name, out, &found))
        return -1;
    return found ? 0 : run_undefined(r, out, UNDEF_NAME, NULL, n->name, NULL);
}

// ---- Literals ----

static int eval_list(struct run *r, const struct node *n, struct value *out)
{
    if (run_list_new(r, out))
        return -1;
    for (const struct node *i = n->list; i; i = i->next) {
        struct value item = value_none();
        if (run_eval(r, i, &item) || run_list_push(r, out, item))
            return -1;
    }
    out->kind = n->kind == N_TUPLE ? VALUE_TUPLE : VALUE_LIST;
    return 0;
}

static int eval_dict(struct run *r, const struct node *n, struct value *out)
{
    if (run_dict_new(r, out))
        return -1;
    for (const struct node *i = n->list; i; i = i->next) {
        struct value key, item;
        if (run_eval(r, i->a, &key) || run_eval(r, i->b, &item) || run_dict_put(r, out, key, item))
            return -1;
    }
    return 0;
}

// ---- Attributes, items, slices ----

static int as_method(struct run *r, const struct value *of, struct str name, struct value *out, bool *found)
{
    const char *canonical = NULL;
    bool unsafe = false;
    native_fn *call = method_find(of, name, &canonical, &unsafe);
    *found = call || unsafe;
    if (unsafe)
        return run_undefined(r, out, UNDEF_UNSAFE, of, name, NULL);
    if (!call)
        return 0;
    struct method *m = RUN_NEW(r, struct method);
    if (!m)
        return -1;
    *m = (struct method){{OBJ_METHOD}, *of, canonical, call};
    *out = value_of_object(m);
    return 0;
}

static int object_attribute(struct run *r, const struct value *of, struct str name, struct value *out, bool *found)
{
    const struct value *v = NULL;
    switch (object_kind(of)) {
    case OBJ_NAMESPACE:
        if (run_find_name(r, &((const struct namespace *)of->object)->dict, name, &v))
            return -1;
        if (v && name.len && name.data[0] == '_') {
            *found = true;
            return run_undefined(r, out, UNDEF_UNSAFE, of, name, NULL);
        }
        break;
    case OBJ_LOOP:
        return loop_attribute(r, of, name, out, found);
    case OBJ_CYCLER:
        return cycler_attribute(r, of, name, out, found);
    case OBJ_MACRO:
        if (str_equal_z(name, "name")) {
            *out = value_string(((const struct macro *)of->object)->node->name);
            *found = true;
        }
        return 0;
    default:
        break;
    }
    if (v)
        *out = *v;
    *found = v != NULL;
    return 0;
}

// Finds what Python's getattr would find: methods, and attributes of objects.
static int own_attribute(struct run *r, const struct value *of, struct str name, struct value *out, bool *found)
{
    *found = false;
    if (of->kind == VALUE_TUPLE && of->markup && (str_equal_z(name, "grouper") || str_equal_z(name, "list"))) {
        *out = of->list->items[name.len == 4];
        *found = true;
        return 0;
    }
    if (of->kind == VALUE_OBJECT && object_attribute(r, of, name, out, found))
        return -1;
    return *found ? 0 : as_method(r, of, name, out, found);
}

int run_get_attribute(struct run *r, const struct value *of, struct str name, struct value *out)
{
    const struct value *v;
    bool found;
    if (is_undefined(of))
        return run_use_undefined(r, of);
    if (own_attribute(r, of, name, out, &found))
        return -1;
    if (found)
        return 0;
    if (run_find_name(r, of, name, &v))
        return -1;
    if (!v)
        return run_undefined(r, out, UNDEF_ATTRIBUTE, of, name, NULL);
    *out = *v;
    return 0;
}

// The item of a list, string or range by its index; false if there is none.
static bool numbered_item(const struct value *of, const struct value *index, struct value *out)
{
    int64_t i, n;
    if (index->kind != VALUE_INT && index->kind != VALUE_BOOL)
        return false;
    i = index->kind == VALUE_BOOL ? index->boolean : index->integer;
    if (is_object(of, OBJ_RANGE)) {
        const struct range *g = of->object;
        i += i < 0 ? g->n : 0;
        if (i < 0 || i >= g->n)
            return false;
        *out = value_int(range_item(g, i));
        return true;
    }
    if (!is_string(of) && of->kind != VALUE_LIST && of->kind != VALUE_TUPLE)
        return false;
    n = (int64_t)(is_string(of) ? string_chars(of->text) : value_count(of));
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n)
        return false;
    if (!is_string(of)) {
        *out = of->list->items[i];
        return true;
    }
    size_t at = string_char_at(of->text, (size_t)i);
    *out = string_slice(of, at, at + text_char_len(of->text.data + at, of->text.data + of->text.len));
    return true;
}

int run_get_item(struct run *r, const struct value *of, const struct value *index, struct value *out)
{
    const struct value *v;
    bool found;
    if (is_undefined(of))
        return run_use_undefined(r, of);
    if (run_find(r, of, index, &v))
        return -1;
    if (v) {
        *out = *v;
        return 0;
    }
    if (is_string(of) && run_step(r, of->text.len / 8)) // its characters are counted, and then gone through
        return -1;
    if (numbered_item(of, index, out))
        return 0;
    if (!is_string(index))
        return run_undefined(r, out, UNDEF_ITEM, of, STR_LIT(""), index);
    if (own_attribute(r, of, index->text, out, &found))
        return -1;
    return found ? 0 : run_undefined(r, out, UNDEF_ATTRIBUTE, of, index->text, NULL);
}

static int slice_bound(struct run *r, const struct value *v, int64_t none, int64_t n, int64_t low, int64_t high,
                       int64_t *out)
{
    *out = none;
    if (!v || v->kind == VALUE_NONE)
        return 0;
    if (v->kind != VALUE_INT && v->kind != VALUE_BOOL)
        return is_undefined(v) ? run_use_undefined(r, v)
                               : run_fail(r, "slice indices must be integers or None, not %s", value_type_name(v));
    int64_t i = v->kind == VALUE_BOOL ? v->boolean : v->integer;
    i = i < 0 ? MAX(i, -n - 1) + n : i;
    *out = MIN(MAX(i, low), high);
    return 0;
}

static int slice_string(struct run *r, const struct value *s, int64_t from, int64_t count, int64_t step,
                        struct value *out)
{
    if (run_step(r, s->text.len / 8))
        return -1;
    size_t at = string_char_at(s->text, (size_t)from);
    if (step == 1) {
        struct str rest = {s->text.data + at, s->text.len - at};
        *out = string_slice(s, at, at + string_char_at(rest, (size_t)count));
        return 0;
    }
    const char *end = s->text.data + s->text.len;
    struct build b = {.markup = s->markup};
    for (; count > 0; count--) {
        if (run_step(r, 1) || build_slice(r, &b, s, at, at + text_char_len(s->text.data + at, end)))
            return -1;
        for (int64_t k = 0; k < step && at < s->text.len; k++)
            at += text_char_len(s->text.data + at, end);
        for (int64_t k = 0; k > step && at > 0; k--) {
            size_t len;
            text_char_before(s->text, at, &len);
            at -= len;
        }
    }
    *out = build_value(&b);
    return 0;
}

int run_get_slice(struct run *r, const struct value *of, const struct value *from, const struct value *to,
                  const struct value *step, struct value *out)
{
    int64_t n, k = 1, a, b;
    if (is_undefined(of))
        return run_use_undefined(r, of);
    struct value list = *of;
    if (is_object(of, OBJ_RANGE) && run_items(r, of, &list))
        return -1;
    if (!is_string(&list) && list.kind != VALUE_LIST && list.kind != VALUE_TUPLE)
        return run_fail(r, "'%s' object cannot be sliced", value_type_name(of));
    if (step && step->kind != VALUE_NONE && run_int_arg(r, step, &k))
        return -1;
    if (k == 0)
        return run_fail(r, "slice step cannot be zero");
    if (run_length(r, &list, &n))
        return -1;
    k = MAX(MIN(k, n + 1), -n - 1);
    if (slice_bound(r, from, k > 0 ? 0 : n - 1, n, k > 0 ? 0 : -1, k > 0 ? n : n - 1, &a) ||
        slice_bound(r, to, k > 0 ? n : -1, n, k > 0 ? 0 : -1, k > 0 ? n : n - 1, &b))
        return -1;
    int64_t count = k > 0 ? (b > a ? (b - a + k - 1) / k : 0) : (a > b ? (a - b - k - 1) / -k : 0);
    if (is_string(&list))
        return slice_string(r, &list, count ? a : 0, count, k, out);
    if (run_list_new(r, out))
        return -1;
    for (int64_t i = 0; i < count; i++)
        if (run_list_push(r, out, list.list->items[a + i * k]))
            return -1;
    out->kind = list.kind;
    out->origin = list.origin;
    return 0;
}

static int eval_item(struct run *r, const struct node *n, struct value *out)
{
    struct value of, at[3] = {{0}};
    if (run_eval(r, n->a, &of))
        return -1;
    const struct node *parts[3] = {n->b, NULL, NULL};
    if (n->b->kind == N_SLICE) {
        parts[0] = n->b->a;
        parts[1] = n->b->b;
        parts[2] = n->b->c;
    }
    for (int i = 0; i < 3; i++)
        if (parts[i] && run_eval(r, parts[i], &at[i]))
            return -1;
    r->node = n;
    return n->b->kind == N_SLICE ? run_get_slice(r, &of, &at[0], &at[1], &at[2], out)
                                 : run_get_item(r, &of, &at[0], out);
}

// ---- Calls ----

static int count_args(struct run *r, const struct node *list, struct call_args *out, struct value *star,
                      struct value *stars)
{
    for (const struct node *i = list; i; i = i->next) {
        if (i->op == ARG_PLAIN)
            out->n++;
        else if (i->op == ARG_KEYWORD)
            out->n_named++;
        else if (run_eval(r, i->a, i->op == ARG_STAR ? star : stars))
            return -1;
    }
    struct value items;
    if (star->kind != VALUE_NONE) {
        if (run_items(r, star, &items))
            return -1;
        *star = items;
        out->n += value_count(star);
    }
    if (stars->kind != VALUE_NONE && stars->kind != VALUE_DICT)
        return is_undefined(stars) ? run_use_undefined(r, stars)
                                   : run_fail(r, "argument after ** must be a mapping, not %s", value_type_name(stars));
    out->n_named += value_count(stars);
    return 0;
}

static int take_named(struct run *r, struct call_args *args, size_t *k, struct str name, const struct value *v)
{
    for (size_t i = 0; i < *k; i++) {
        bool long_name = args->names[i].len == name.len && name.len >= 16;
        if (run_step(r, 1) || (long_name && run_step_text(r, name.len)))
            return -1;
        if (str_equal(args->names[i], name))
            return run_fail(r, "got multiple values for keyword argument '%.*s'", STR_ARG(name));
    }
    args->names[*k] = name;
    args->at[args->n + (*k)++] = *v;
    return 0;
}

int run_eval_args(struct run *r, const struct node *list, struct call_args *out)
{
    *out = (struct call_args){0};
    if (!list)
        return 0;
    struct value star = value_none(), stars = value_none();
    if (count_args(r, list, out, &star, &stars))
        return -1;
    out->at = run_alloc(r, out->n + out->n_named, sizeof *out->at);
    out->names = out->at ? run_alloc(r, out->n_named, sizeof *out->names) : NULL;
    if (!out->names)
        return -1;
    size_t i = 0, k = 0;
    for (const struct node *a = list; a; a = a->next) {
        struct value v;
        if (a->op >= ARG_STAR)
            continue;
        if (run_eval(r, a->a, &v))
            return -1;
        if (a->op == ARG_PLAIN)
            out->at[i++] = v;
        else if (take_named(r, out, &k, a->name, &v))
            return -1;
    }
    for (size_t s = 0; s < value_count(&star); s++)
        out->at[i++] = star.list->items[s];
    for (size_t s = 0; s < value_count(&stars); s++) {
        const struct value_entry *e = &stars.dict->entries[s];
        if (!is_string(&e->key))
            return run_fail(r, "keywords must be strings");
        if (take_named(r, out, &k, e->key.text, &e->value))
            return -1;
    }
    return 0;
}

int run_call(struct run *r, const struct value *f, const struct call_args *args, struct value *out)
{
    if (is_undefined(f))
        return run_use_undefined(r, f);
    if (f->kind != VALUE_OBJECT)
        return run_fail(r, "'%s' object is not callable", value_type_name(f));
    switch (object_kind(f)) {
    case OBJ_METHOD: {
        const struct method *m = f->object;
        return m->call(r, &m->self, args, out);
    }
    case OBJ_FUNCTION:
        return ((const struct function *)f->object)->call(r, NULL, args, out);
    case OBJ_MACRO:
        return run_call_macro(r, f->object, args, out);
    case OBJ_LOOP:
        return loop_recurse(r, f->object, args, out);
    case OBJ_JOINER: {
        struct joiner *j = f->object;
        *out = j->used ? j->separator : VALUE_LIT("");
        j->used = true;
        return 0;
    }
    default:
        return run_fail(r, "'%s' object is not callable", value_type_name(f));
    }
}

static int eval_call(struct run *r, const struct node *n, struct value *out)
{
    struct value f;
    struct call_args args;
    if (run_eval(r, n->a, &f) || run_eval_args(r, n->list, &args))
        return -1;
    r->node = n;
    return run_call(r, &f, &args, out);
}

static int eval_filter(struct run *r, const struct node *n, struct value *out)
{
    struct value in;
    struct call_args args;
    if (run_eval(r, n->a, &in) || run_eval_args(r, n->list, &args))
        return -1;
    r->node = n;
    return run_filter(r, n->name, &in, &args, out);
}

static int eval_test(struct run *r, const struct node *n, struct value *out)
{
    struct value in;
    struct call_args args;
    bool yes = false;
    if (run_eval(r, n->a, &in) || run_eval_args(r, n->list, &args))
        return -1;
    r->node = n;
    int status = run_test(r, n->name, &in, &args, &yes);
    *out = value_bool(yes);
    return status;
}

// ---- Operators ----

static int eval_binary(struct run *r, const struct node *n, struct value *out)
{
    struct value a, b;
    if (run_eval(r, n->a, &a) || run_eval(r, n->b, &b))
        return -1;
    r->node = n;
    return run_binary(r, n->op, &a, &b, out);
}

static int eval_unary(struct run *r, const struct node *n, struct value *out)
{
    struct value a, minus;
    if (run_eval(r, n->a, &a))
        return -1;
    r->node = n;
    if (n->kind == N_NOT) {
        *out = value_bool(!value_truth(&a));
        return 0;
    }
    if (n->kind == N_NEG)
        return run_negate(r, &a, out);
    *out = a.kind == VALUE_BOOL ? value_int(a.boolean) : a;
    return run_negate(r, &a, &minus); // fails like the operator +
}

static int eval_compare(struct run *r, const struct node *n, struct value *out)
{
    struct value left, right;
    bool result = true;
    if (run_eval(r, n->a, &left))
        return -1;
    for (const struct node *i = n->list; i && result; i = i->next) {
        if (run_eval(r, i->a, &right))
            return -1;
        r->node = i;
        if (run_compare(r, i->op, &left, &right, &result))
            return -1;
        left = right;
    }
    *out = value_bool(result);
    return 0;
}

static int eval_concat(struct run *r, const struct node *n, struct value *out)
{
    *out = VALUE_LIT("");
    for (const struct node *i = n->list; i; i = i->next) {
        struct value v, s;
        if (run_eval(r, i, &v))
            return -1;
        // where the output is escaped, texts that are joined with markup are, too
        if (r->autoescape ? run_soft_str(r, &v, &s) || run_binary(r, OP_ADD, out, &s, out)
                          : run_str(r, &v, &s) || string_concat(r, out, &s, out))
            return -1;
    }
    return 0;
}

static int eval_if_else(struct run *r, const struct node *n, struct value *out)
{
    struct value cond;
    if (run_eval(r, n->b, &cond))
        return -1;
    if (value_truth(&cond))
        return run_eval(r, n->a, out);
    return n->c ? run_eval(r, n->c, out)
                : run_undefined_hint(r, out, "the condition of an inline if is false, and it has no else");
}

static int eval_logic(struct run *r, const struct node *n, struct value *out)
{
    if (run_eval(r, n->a, out))
        return -1;
    return value_truth(out) == (n->kind == N_AND) ? run_eval(r, n->b, out) : 0;
}

static int eval_attribute(struct run *r, const struct node *n, struct value *out)
{
    struct value of;
    if (run_eval(r, n->a, &of))
        return -1;
    r->node = n;
    return run_get_attribute(r, &of, n->name, out);
}

static int eval_kind(struct run *r, const struct node *n, struct value *out)
{
    switch ((enum node_kind)n->kind) {
    case N_CONST:
        *out = n->value;
        return 0;
    case N_NAME:
        return eval_name(r, n, out);
    case N_LIST:
    case N_TUPLE:
        return eval_list(r, n, out);
    case N_DICT:
        return eval_dict(r, n, out);
    case N_GETATTR:
        return eval_attribute(r, n, out);
    case N_GETITEM:
        return eval_item(r, n, out);
    case N_CALL:
        return eval_call(r, n, out);
    case N_FILTER:
        return eval_filter(r, n, out);
    case N_TEST:
        return eval_test(r, n, out);
    case N_NEG:
    case N_POS:
    case N_NOT:
        return eval_unary(r, n, out);
    case N_BINARY:
        return eval_binary(r, n, out);
    case N_AND:
    case N_OR:
        return eval_logic(r, n, out);
    case N_COMPARE:
        return eval_compare(r, n, out);
    case N_CONCAT:
        return eval_concat(r, n, out);
    case N_IF_ELSE:
        return eval_if_else(r, n, out);
    default:
        return run_fail(r, "this cannot be evaluated");
    }
}

int run_eval(struct run *r, const struct node *n, struct value *out)
{
    r->node = n;
    if (run_step(r, 1))
        return -1;
    if (r->depth >= RUN_DEPTH_MAX)
        return run_fail(r, "statements, calls and operators are nested deeper than %d", RUN_DEPTH_MAX);
    r->depth++;
    int status = eval_kind(r, n, out);
    r->depth--;
    r->node = n;
    return status;
}
