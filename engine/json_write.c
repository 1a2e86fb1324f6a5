// The writer: a recursion over the value that passes each piece of text to a callback. The characters of a string
// that need no escape are passed on in runs, without a copy. The keys of a dict are sorted in a temporary array of
// pointers.
#include "engine/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct writer {
    struct json_style style;
    json_emit_fn *emit;
    void *arg;
    struct error *err;
    size_t level;
};

static int put(struct writer *w, const char *text, const struct value *from)
{
    return w->emit(w->arg, str_from(text), from, 0);
}

// ---- Strings ----

// Writes the escape of a character. Returns its length, or 0 when the character is written as it is. valid false: the
// source is a byte that is not UTF-8, and cp is U+FFFD.
static int escape(const struct writer *w, uint32_t cp, bool valid, char out[16])
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *found = cp > 0 && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    if (found)
        return snprintf(out, 16, "\\%c", to[found - from]);
    if (cp < 0x20 || (w->style.ascii && cp >= 0x80 && cp < 0x10000))
        return snprintf(out, 16, "\\u%04x", cp);
    if (w->style.ascii && cp >= 0x10000)
        return snprintf(out, 16, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + ((cp - 0x10000) & 0x3FF));
    return valid ? 0 : utf8_encode(cp, out);
}

static int write_string(struct writer *w, const struct value *v)
{
    int status = put(w, "\"", v);
    size_t start = 0, i = 0;
    struct str s = v->text;
    while (!status && i < s.len) {
        char out[16];
        uint32_t cp;
        int len = utf8_decode(s.data + i, s.len - i, &cp);
        int n = escape(w, len ? cp : 0xFFFD, len > 0, out);
        size_t eat = len ? (size_t)len : 1;
        if (n > 0) {
            if (i > start)
                status = w->emit(w->arg, (struct str){s.data + start, i - start}, v, start);
            if (!status)
                status = w->emit(w->arg, (struct str){out, (size_t)n}, v, i);
            start = i + eat;
        }
        i += eat;
    }
    if (!status && i > start)
        status = w->emit(w->arg, (struct str){s.data + start, i - start}, v, start);
    return status ? status : w->emit(w->arg, STR_LIT("\""), v, s.len);
}

// ---- Numbers and other scalars ----

static int write_float(struct writer *w, const struct value *v)
{
    char text[FLOAT_TEXT];
    if (isfinite(v->real)) {
        float_repr(v->real, text);
        return put(w, text, v);
    }
    if (w->style.strict)
        return fail(w->err, E_USAGE, "JSON has no number that is infinite or not a number");
    return put(w, isnan(v->real) ? "NaN" : v->real > 0 ? "Infinity" : "-Infinity", v);
}

static int write_scalar(struct writer *w, const struct value *v)
{
    char text[32];
    switch ((enum value_kind)v->kind) {
    case VALUE_NONE:
        return put(w, "null", v);
    case VALUE_BOOL:
        return put(w, v->boolean ? "true" : "false", v);
    case VALUE_INT:
        snprintf(text, sizeof text, "%lld", (long long)v->integer);
        return put(w, text, v);
    case VALUE_BIGINT:
        return w->emit(w->arg, v->text, v, 0);
    case VALUE_FLOAT:
        return write_float(w, v);
    case VALUE_STRING:
        return write_string(w, v);
    default:
        return fail(w->err, E_USAGE, "a value of this kind (%s) has no JSON form", value_kind_name(v));
    }
}

// ---- Containers ----

static int write_value(struct writer *w, const struct value *v);

static int newline(struct writer *w, const struct value *v)
{
    if (!w->style.indented)
        return 0;
    int status = put(w, "\n", v);
    for (size_t i = 0; i < w->level && !status && w->style.indent.len; i++)
        status = w->emit(w->arg, w->style.indent, v, 0);
    return status;
}

// Writes the separator and the line break before item i of a container.
static int separate(struct writer *w, size_t i, const struct value *v)
{
    const char *sep = w->style.item_sep ? w->style.item_sep : w->style.indented ? "," : ", ";
    int status = i > 0 ? put(w, sep, v) : 0;
    return status ? status : newline(w, v);
}

static int write_list(struct writer *w, const struct value *v)
{
    if (v->list->n == 0)
        return put(w, "[]", v);
    int status = put(w, "[", v);
    w->level++;
    for (size_t i = 0; i < v->list->n && !status; i++) {
        status = separate(w, i, v);
        if (!status)
            status = write_value(w, &v->list->items[i]);
    }
    w->level--;
    if (!status)
        status = newline(w, v);
    return status ? status : put(w, "]", v);
}

static int write_key(struct writer *w, const struct value *key)
{
    if (key->kind == VALUE_STRING)
        return write_string(w, key);
    if (key->kind > VALUE_STRING)
        return fail(w->err, E_USAGE, "keys must be str, int, float, bool or None");
    int status = put(w, "\"", key);
    if (!status)
        status = write_scalar(w, key);
    return status ? status : put(w, "\"", key);
}

static int by_key(const void *x, const void *y)
{
    const struct value *a = &(*(const struct value_entry *const *)x)->key,
                       *b = &(*(const struct value_entry *const *)y)->key;
    if (a->kind == VALUE_STRING) {
        size_t n = MIN(a->text.len, b->text.len);
        int c = n ? memcmp(a->text.data, b->text.data, n) : 0;
        return c ? c : (a->text.len > b->text.len) - (a->text.len < b->text.len);
    }
    double f = 0, g = 0;
    value_number(a, &f);
    value_number(b, &g);
    return (f > g) - (f < g);
}

// Returns the entries in the order in which they are written, in an array that the caller frees.
static const struct value_entry **ordered(struct writer *w, const struct value_dict *d)
{
    const struct value_entry **order = malloc(d->n * sizeof(*order));
    if (!order) {
        fail(w->err, E_MEMORY, "no memory for %zu keys", d->n);
        return NULL;
    }
    bool strings = d->entries[0].key.kind == VALUE_STRING, alike = true;
    for (size_t i = 0; i < d->n; i++) {
        double f;
        order[i] = &d->entries[i];
        alike = alike && (strings ? order[i]->key.kind == VALUE_STRING : value_number(&order[i]->key, &f));
    }
    if (!w->style.sort_keys)
        return order;
    if (!alike) {
        fail(w->err, E_USAGE, "keys of different kinds cannot be sorted");
        free(order);
        return NULL;
    }
    qsort(order, d->n, sizeof(*order), by_key);
    return order;
}

static int write_entries(struct writer *w, const struct value *v, const struct value_entry *const *order)
{
    int status = 0;
    for (size_t i = 0; i < v->dict->n && !status; i++) {
        status = separate(w, i, v);
        if (!status)
            status = write_key(w, &order[i]->key); // NOLINT(clang-analyzer-core.CallAndMessage): all of order is set
        if (!status)
            status = put(w, w->style.key_sep ? w->style.key_sep : ": ", v);
        if (!status)
            status = write_value(w, &order[i]->value);
    }
    return status;
}

static int write_dict(struct writer *w, const struct value *v)
{
    if (v->dict->n == 0)
        return put(w, "{}", v);
    const struct value_entry **order = ordered(w, v->dict);
    int status = order ? put(w, "{", v) : -1;
    w->level++;
    if (!status)
        status = write_entries(w, v, order);
    w->level--;
    free(order);
    if (!status)
        status = newline(w, v);
    return status ? status : put(w, "}", v);
}

static int write_value(struct writer *w, const struct value *v)
{
    if (v->kind == VALUE_LIST || v->kind == VALUE_TUPLE)
        return write_list(w, v);
    return v->kind == VALUE_DICT ? write_dict(w, v) : write_scalar(w, v);
}

int json_write(const struct value *v, const struct json_style *style, json_emit_fn *emit, void *arg, struct error *err)
{
    struct writer w = {.style = *style, .emit = emit, .arg = arg, .err = err};
    return write_value(&w, v);
}

static int emit_text(void *arg, struct str piece, const struct value *from, size_t at)
{
    (void)from, (void)at;
    text_append(arg, piece);
    return 0;
}

int json_write_text(const struct value *v, const struct json_style *style, struct text *out, struct error *err)
{
    static const struct json_style plain = {0};
    if (json_write(v, style ? style : &plain, emit_text, out, err))
        return -1;
    return out->failed ? fail(err, E_MEMORY, "no memory for a JSON text") : 0;
}

void text_print_float32(struct text *out, float f)
{
    char digits[FLOAT_TEXT];
    for (int n = 6; n <= 9; n++) {
        snprintf(digits, sizeof digits, "%.*g", n, (double)f);
        if (strtof(digits, NULL) == f)
            break;
    }
    text_print(out, "%s", digits);
}
