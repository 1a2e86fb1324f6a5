// Filters of sequences: selecting, mapping, sorting and grouping items; and the table of all filters.
#include "engine/chat/jinja_filters.h"

#include <stdlib.h>

#include "engine/chat/jinja_text.h"

#define FILTER(name)                                                                                                   \
    int filter_##name(struct run *r, const struct value *in, const struct call_args *args, struct value *out)

// ---- Attributes of items ----

// One step of a path: "a" is an item or an attribute, "0" an index.
static int path_step(struct run *r, const struct value *of, struct str step, struct value *out)
{
    int64_t n = 0;
    bool digits = step.len > 0 && step.len < 18;
    for (size_t i = 0; i < step.len && digits; i++) {
        digits = step.data[i] >= '0' && step.data[i] <= '9';
        n = digits ? 10 * n + (step.data[i] - '0') : 0;
    }
    struct value index = digits ? value_int(n) : value_string(step);
    if (run_step(r, 1))
        return -1;
    return run_get_item(r, of, &index, out);
}

// Follows a path such as "a.b.0" from the item; a number is an index. If something is missing, the result is
// *missing, unless that is NULL.
static int path_get(struct run *r, const struct value *item, const struct value *path, const struct value *missing,
                    struct value *out)
{
    *out = *item;
    if (path->kind == VALUE_NONE)
        return 0;
    if (!is_string(path)) {
        struct value of = *out;
        return run_get_item(r, &of, path, out);
    }
    struct str rest = path->text;
    for (bool more = true; more;) {
        const char *dot = rest.len ? memchr(rest.data, '.', rest.len) : NULL;
        struct str step = {rest.data, dot ? (size_t)(dot - rest.data) : rest.len};
        struct value of = *out;
        if (path_step(r, &of, step, out))
            return -1;
        if (missing && is_undefined(out))
            *out = *missing;
        more = dot != NULL;
        rest = more ? (struct str){dot + 1, rest.len - step.len - 1} : rest;
    }
    return 0;
}

// Strings are compared in lower case, unless case_sensitive.
static int fold(struct run *r, struct value *key, bool case_sensitive)
{
    struct value s = *key;
    return is_string(&s) && !case_sensitive ? text_case(r, &s, CASE_LOWER, key) : 0;
}

// The arguments after the first n positional ones.
static struct call_args rest_args(const struct call_args *args, size_t n)
{
    struct call_args rest = *args;
    n = MIN(n, args->n);
    rest.at = n ? rest.at + n : rest.at; // with n = 0, `at` may be NULL, and adding 0 to NULL is undefined
    rest.n -= n;
    return rest;
}

// ---- Selecting ----

static bool empty(const struct value *in)
{
    return !value_truth(in);
}

static int choose(struct run *r, const struct value *in, const struct call_args *args, bool want, bool by_attribute,
                  struct value *out)
{
    struct value items, list;
    size_t off = by_attribute;
    if (run_list_new(r, &list))
        return -1;
    if (empty(in))
        return run_iterator(r, out, list, "generator");
    if (args->n < off)
        return run_fail(r, "the name of an attribute is missing");
    if (args->n > off && !is_string(&args->at[off]))
        return run_fail(r, "the name of a test is expected, not %s", value_type_name(&args->at[off]));
    struct call_args rest = rest_args(args, off + 1);
    if (run_items(r, in, &items))
        return -1;
    for (size_t i = 0; i < items.list->n; i++) {
        struct value item = items.list->items[i], tested = item;
        bool yes;
        if (by_attribute && path_get(r, &item, &args->at[0], NULL, &tested))
            return -1;
        if (args->n <= off)
            yes = value_truth(&tested);
        else if (run_test(r, args->at[off].text, &tested, &rest, &yes))
            return -1;
        if (yes == want && run_list_push(r, &list, item))
            return -1;
    }
    return run_iterator(r, out, list, "generator");
}

FILTER(select)
{
    return choose(r, in, args, true, false, out);
}

FILTER(reject)
{
    return choose(r, in, args, false, false, out);
}

FILTER(selectattr)
{
    return choose(r, in, args, true, true, out);
}

FILTER(rejectattr)
{
    return choose(r, in, args, false, true, out);
}

// The value of a keyword argument; NULL if it was not given.
static const struct value *keyword(const struct call_args *args, const char *name)
{
    for (size_t i = 0; i < args->n_named; i++)
        if (str_equal_z(args->names[i], name))
            return &args->at[args->n + i];
    return NULL;
}

FILTER(map)
{
    struct value items, list;
    const struct value *attribute = args->n ? NULL : keyword(args, "attribute"), *missing = keyword(args, "default");
    if (run_list_new(r, &list))
        return -1;
    if (empty(in))
        return run_iterator(r, out, list, "generator");
    if (!attribute && args->n == 0)
        return run_fail(r, "map requires a filter argument");
    if (attribute && args->n_named != 1u + (missing != NULL))
        return run_fail(r, "map() got an unexpected keyword argument");
    if (!attribute && !is_string(&args->at[0]))
        return run_fail(r, "the name of a filter is expected, not %s", value_type_name(&args->at[0]));
    struct call_args rest = rest_args(args, 1);
    if (missing && missing->kind == VALUE_NONE)
        missing = NULL;
    if (run_items(r, in, &items))
        return -1;
    for (size_t i = 0; i < items.list->n; i++) {
        struct value item;
        if (attribute ? path_get(r, &items.list->items[i], attribute, missing, &item)
                      : run_filter(r, args->at[0].text, &items.list->items[i], &rest, &item))
            return -1;
        if (run_list_push(r, &list, item))
            return -1;
    }
    return run_iterator(r, out, list, "generator");
}

FILTER(first)
{
    struct value items;
    if (args_bind(r, args, "first", "", 0, NULL))
        return -1;
    if (is_object(in, OBJ_ITERATOR)) { // takes one item and leaves the rest
        struct iterator *it = in->object;
        if (it->at == it->list.list->n)
            return run_undefined_hint(r, out, "No first item, sequence was empty.");
        *out = it->list.list->items[it->at++];
        return 0;
    }
    if (run_sequence(r, in, &items))
        return -1;
    if (items.list->n == 0)
        return run_undefined_hint(r, out, "No first item, sequence was empty.");
    *out = items.list->items[0];
    return 0;
}

FILTER(last)
{
    struct value items;
    if (args_bind(r, args, "last", "", 0, NULL))
        return -1;
    if (is_object(in, OBJ_ITERATOR))
        return run_fail(r, "'%s' object is not reversible", value_type_name(in));
    if (run_sequence(r, in, &items))
        return -1;
    if (items.list->n == 0)
        return run_undefined_hint(r, out, "No last item, sequence was empty.");
    *out = items.list->items[items.list->n - 1];
    return 0;
}

FILTER(attr)
{
    struct value name;
    if (args_bind(r, args, "attr", "name", 1, &name))
        return -1;
    if (!is_string(&name))
        return run_fail(r, "attribute name must be string, not '%s'", value_type_name(&name));
    if (in->kind != VALUE_DICT)
        return run_get_attribute(r, in, name.text, out);
    struct value without = {.kind = VALUE_DICT}, none; // the items of a dict are not attributes
    if (run_dict_new(r, &without) || run_get_attribute(r, &without, name.text, &none))
        return -1;
    return is_undefined(&none) ? run_undefined(r, out, UNDEF_ATTRIBUTE, in, name.text, NULL)
                               : run_get_attribute(r, in, name.text, out);
}

FILTER(default)
{
    struct value v[2] = {VALUE_LIT(""), value_bool(false)};
    if (args_bind(r, args, "default", "default_value boolean", 0, v))
        return -1;
    *out = is_undefined(in) || (value_truth(&v[1]) && !value_truth(in)) ? v[0] : *in;
    return 0;
}

// ---- Lists ----

FILTER(length)
{
    int64_t n;
    if (args_bind(r, args, "length", "", 0, NULL) || run_length(r, in, &n))
        return -1;
    *out = value_int(n);
    return 0;
}

FILTER(list)
{
    struct value items;
    if (args_bind(r, args, "list", "", 0, NULL) || run_items(r, in, &items))
        return -1;
    *out = items;
    out->kind = VALUE_LIST;
    out->markup = false;
    return 0;
}

FILTER(items)
{
    struct view view = {{OBJ_VIEW}, VIEW_ITEMS, *in};
    struct value v = value_of_object(&view), list;
    if (args_bind(r, args, "items", "", 0, NULL))
        return -1;
    if (in->kind != VALUE_DICT && !is_undefined(in))
        return run_fail(r, "Can only get item pairs from a mapping.");
    if (is_undefined(in) ? run_list_new(r, &list) : run_items(r, &v, &list))
        return -1;
    return run_iterator(r, out, list, "generator");
}

FILTER(reverse)
{
    struct value items, list, minus = value_int(-1), none = value_none();
    if (args_bind(r, args, "reverse", "", 0, NULL))
        return -1;
    if (is_string(in))
        return run_get_slice(r, in, &none, &none, &minus, out);
    bool iterator = is_object(in, OBJ_ITERATOR);
    if (run_items(r, in, &items) || run_get_slice(r, &items, &none, &none, &minus, &list))
        return -1;
    list.kind = VALUE_LIST;
    *out = list;
    return iterator ? 0 : run_iterator(r, out, list, "reversed");
}

FILTER(join)
{
    struct value v[2] = {VALUE_LIT(""), value_none()}, items, d;
    struct build b = {0};
    if (args_bind(r, args, "join", "d attribute", 0, v) || run_str(r, &v[0], &d) || run_items(r, in, &items))
        return -1;
    for (size_t i = 0; i < items.list->n; i++) {
        struct value item;
        if (path_get(r, &items.list->items[i], &v[1], NULL, &item) || (i && build_string(r, &b, &d)) ||
            build_str(r, &b, &item))
            return -1;
    }
    *out = build_value(&b);
    return 0;
}

FILTER(sum)
{
    struct value v[2] = {value_none(), value_int(0)}, items;
    if (args_bind(r, args, "sum", "attribute start", 0, v) || run_items(r, in, &items))
        return -1;
    if (is_string(&v[1]))
        return run_fail(r, "sum() can't sum strings");
    *out = v[1];
    for (size_t i = 0; i < items.list->n; i++) {
        struct value item, sum = *out;
        if (path_get(r, &items.list->items[i], &v[0], NULL, &item) || run_binary(r, OP_ADD, &sum, &item, out))
            return -1;
    }
    return 0;
}

FILTER(batch)
{
    struct value v[2] = {value_none(), value_none()}, items, list, row = value_none();
    int64_t n;
    if (args_bind(r, args, "batch", "linecount fill_with", 1, v) || run_int_arg(r, &v[0], &n) ||
        run_items(r, in, &items) || run_list_new(r, &list))
        return -1;
    // as in Python, a row takes everything if n <= 0; for n = 0 an empty row comes first
    for (size_t i = 0; i < items.list->n; i++) {
        if (row.kind == VALUE_NONE || (int64_t)row.list->n == n) {
            bool first = row.kind == VALUE_NONE;
            if (first && n == 0 && run_list_new(r, &row))
                return -1;
            if ((!first || n == 0) && run_list_push(r, &list, row))
                return -1;
            if (run_list_new(r, &row))
                return -1;
        }
        if (run_list_push(r, &row, items.list->items[i]))
            return -1;
    }
    for (int64_t k = row.kind == VALUE_NONE ? n : (int64_t)row.list->n; k < n && v[1].kind != VALUE_NONE; k++)
        if (run_list_push(r, &row, v[1]))
            return -1;
    return (row.kind != VALUE_NONE && run_list_push(r, &list, row)) || run_iterator(r, out, list, "generator") ? -1 : 0;
}

FILTER(slice)
{
    struct value v[2] = {value_none(), value_none()}, items, list, row;
    int64_t slices;
    if (args_bind(r, args, "slice", "slices fill_with", 1, v) || run_int_arg(r, &v[0], &slices) ||
        run_items(r, in, &items) || run_list_new(r, &list))
        return -1;
    if (slices == 0)
        return run_fail(r, "integer division or modulo by zero");
    int64_t n = (int64_t)items.list->n, at = 0;
    for (int64_t i = 0; i < slices; i++) {
        bool extra = i < n % slices;
        if (run_list_new(r, &row))
            return -1;
        for (int64_t k = n / slices + extra; k > 0; k--)
            if (run_list_push(r, &row, items.list->items[at++]))
                return -1;
        if ((v[1].kind != VALUE_NONE && !extra && run_list_push(r, &row, v[1])) || run_list_push(r, &list, row))
            return -1;
    }
    return run_iterator(r, out, list, "generator");
}

// ---- Sorting ----

struct sortable {
    struct value key, item;
};

// Merges two sorted halves. The sort is stable. `reverse` puts larger keys first.
static int merge(struct run *r, struct sortable *a, size_t n, size_t middle, bool reverse, struct sortable *spare)
{
    size_t i = 0, k = middle;
    for (size_t at = 0; at < n; at++) {
        bool right = i == middle;
        if (i < middle && k < n) {
            const struct value *x = reverse ? &a[i].key : &a[k].key, *y = reverse ? &a[k].key : &a[i].key;
            if (run_order(r, x, y, &right))
                return -1;
        }
        spare[at] = right ? a[k++] : a[i++];
    }
    memcpy(a, spare, n * sizeof *a);
    return 0;
}

static int merge_sort(struct run *r, struct sortable *a, size_t n, bool reverse, struct sortable *spare)
{
    if (n < 2)
        return 0;
    size_t middle = n / 2;
    if (merge_sort(r, a, middle, reverse, spare) || merge_sort(r, a + middle, n - middle, reverse, spare))
        return -1;
    return merge(r, a, n, middle, reverse, spare);
}

static int sort_list(struct run *r, struct sortable *a, size_t n, bool reverse, struct value *out)
{
    struct sortable *spare = run_alloc(r, n, sizeof *spare);
    if (!spare || merge_sort(r, a, n, reverse, spare) || run_list_new(r, out))
        return -1;
    for (size_t i = 0; i < n; i++)
        if (run_list_push(r, out, a[i].item))
            return -1;
    return 0;
}

// The sort key of an item: a list of the values of its attributes, which are separated by commas. Lists are compared
// item by item; items that are equal, including undefined ones, are not ordered.
static int sort_key(struct run *r, const struct value *item, const struct value *attribute, bool case_sensitive,
                    struct value *key)
{
    struct str rest = is_string(attribute) ? attribute->text : STR_LIT("");
    if (run_list_new(r, key))
        return -1;
    for (bool more = true; more;) {
        const char *comma = rest.len ? memchr(rest.data, ',', rest.len) : NULL;
        struct value path = value_string((struct str){rest.data, comma ? (size_t)(comma - rest.data) : rest.len}), part;
        if (path_get(r, item, is_string(attribute) ? &path : attribute, NULL, &part) ||
            fold(r, &part, case_sensitive) || run_list_push(r, key, part))
            return -1;
        more = comma != NULL;
        rest = more ? (struct str){comma + 1, rest.len - path.text.len - 1} : rest;
    }
    return 0;
}

// Makes an array of items with one attribute as the key of each. NULL if r->err is set.
static struct sortable *keyed(struct run *r, const struct value *items, const struct value *attribute,
                              const struct value *missing, bool case_sensitive)
{
    struct sortable *a = run_alloc(r, items->list->n, sizeof *a);
    for (size_t i = 0; a && i < items->list->n; i++) {
        a[i].item = items->list->items[i];
        if (path_get(r, &a[i].item, attribute, missing, &a[i].key) || fold(r, &a[i].key, case_sensitive))
            return NULL;
    }
    return a;
}

FILTER(sort)
{
    struct value v[3] = {value_bool(false), value_bool(false), value_none()}, items;
    if (args_bind(r, args, "sort", "reverse case_sensitive attribute", 0, v) || run_items(r, in, &items))
        return -1;
    struct sortable *a = run_alloc(r, items.list->n, sizeof *a);
    for (size_t i = 0; a && i < items.list->n; i++) {
        a[i].item = items.list->items[i];
        if (sort_key(r, &a[i].item, &v[2], value_truth(&v[1]), &a[i].key))
            return -1;
    }
    return a ? sort_list(r, a, items.list->n, value_truth(&v[0]), out) : -1;
}

FILTER(dictsort)
{
    struct value v[3] = {value_bool(false), VALUE_LIT("key"), value_bool(false)}, items, index;
    if (args_bind(r, args, "dictsort", "case_sensitive by reverse", 0, v))
        return -1;
    bool by_value = is_string(&v[1]) && str_equal_z(v[1].text, "value");
    if (!by_value && !(is_string(&v[1]) && str_equal_z(v[1].text, "key")))
        return run_fail(r, "You can only sort by either \"key\" or \"value\"");
    if (in->kind != VALUE_DICT)
        return is_undefined(in) ? run_use_undefined(r, in)
                                : run_fail(r, "dictsort wants a mapping, not %s", value_type_name(in));
    struct view view = {{OBJ_VIEW}, VIEW_ITEMS, *in};
    struct value all = value_of_object(&view);
    index = value_int(by_value);
    if (run_items(r, &all, &items))
        return -1;
    struct sortable *a = keyed(r, &items, &index, NULL, value_truth(&v[0]));
    return a ? sort_list(r, a, items.list->n, value_truth(&v[2]), out) : -1;
}

static int extreme(struct run *r, const struct value *in, const struct call_args *args, bool largest, struct value *out)
{
    struct value v[2] = {value_bool(false), value_none()}, items;
    if (args_bind(r, args, largest ? "max" : "min", "case_sensitive attribute", 0, v) || run_items(r, in, &items))
        return -1;
    if (items.list->n == 0)
        return run_undefined_hint(r, out, "No aggregated item, sequence was empty.");
    size_t best = 0;
    struct value key, best_key = value_none();
    for (size_t i = 0; i < items.list->n; i++) {
        bool better = i == 0;
        if (path_get(r, &items.list->items[i], &v[1], NULL, &key) || fold(r, &key, value_truth(&v[0])) ||
            (i && run_order(r, largest ? &best_key : &key, largest ? &key : &best_key, &better)))
            return -1;
        best = better ? i : best;
        best_key = better ? key : best_key;
    }
    *out = items.list->items[best];
    return 0;
}

FILTER(max)
{
    return extreme(r, in, args, true, out);
}

FILTER(min)
{
    return extreme(r, in, args, false, out);
}

FILTER(unique)
{
    struct value v[2] = {value_bool(false), value_none()}, items, list, seen;
    if (args_bind(r, args, "unique", "case_sensitive attribute", 0, v) || run_items(r, in, &items) ||
        run_list_new(r, &list) || run_dict_new(r, &seen))
        return -1;
    for (size_t i = 0; i < items.list->n; i++) {
        struct value key;
        if (path_get(r, &items.list->items[i], &v[1], NULL, &key) || fold(r, &key, value_truth(&v[0])))
            return -1;
        size_t before = seen.dict->n;
        if (run_dict_put(r, &seen, key, value_none()))
            return -1;
        if (seen.dict->n > before && run_list_push(r, &list, items.list->items[i]))
            return -1;
    }
    return run_iterator(r, out, list, "generator");
}

// Makes a tuple whose items are also the attributes `grouper` and `list`.
static int new_group(struct run *r, struct value *groups, const struct value *key, struct value *members)
{
    struct value group;
    if (run_tuple(r, &group, *key, value_none()) || run_list_new(r, members))
        return -1;
    group.markup = true;
    group.list->items[1] = *members;
    return run_list_push(r, groups, group);
}

FILTER(groupby)
{
    struct value v[3] = {value_none(), value_none(), value_bool(false)}, items, sorted, members = value_none(),
                 last = value_none();
    if (args_bind(r, args, "groupby", "attribute default case_sensitive", 1, v) || run_items(r, in, &items))
        return -1;
    const struct value *missing = v[1].kind == VALUE_NONE ? NULL : &v[1];
    struct sortable *a = keyed(r, &items, &v[0], missing, value_truth(&v[2]));
    if (!a || sort_list(r, a, items.list->n, false, &sorted) || run_list_new(r, out))
        return -1;
    for (size_t i = 0; i < sorted.list->n; i++) {
        struct value key, shown;
        bool same = false;
        if (path_get(r, &sorted.list->items[i], &v[0], missing, &shown))
            return -1;
        key = shown;
        if (fold(r, &key, value_truth(&v[2])) || (i > 0 && run_same(r, &key, &last, &same)) ||
            (!same && new_group(r, out, &shown, &members)) || run_list_push(r, &members, sorted.list->items[i]))
            return -1;
        last = key;
    }
    return 0;
}

// ---- Table of filters ----

static const struct {
    const char *name;
    native_fn *filter;
} filters[] = {
#undef FILTER
#define FILTER(name) {#name, filter_##name},
    JINJA_FILTERS(FILTER){"d", filter_default},
    {"e", filter_escape},
    {"count", filter_length},
    {"fromjson", filter_from_json},
};

native_fn *filter_find(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(filters); i++)
        if (str_equal_z(name, filters[i].name))
            return filters[i].filter;
    return NULL;
}

int run_filter(struct run *r, struct str name, const struct value *in, const struct call_args *args, struct value *out)
{
    native_fn *filter = filter_find(name);
    return filter ? filter(r, in, args, out) : run_fail(r, "there is no filter '%.*s'", STR_ARG(name));
}
