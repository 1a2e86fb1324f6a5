// Strings that record the origin of each byte, and the memory of a rendering.
#include "engine/chat/jinja_run.h"

#include <stdio.h>

// ---- Errors, steps, memory ----

int(run_fail)(struct run *r, const char *fmt, ...)
{
    char what[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (!r->node)
        return fail(r->err, E_MODEL, "%s", what);
    return fail(r->err, E_MODEL, "line %u, column %u: %s", r->node->line, r->node->column, what);
}

int run_no_memory(struct run *r)
{
    return fail(r->err, E_MEMORY, "no memory for the values of a chat template, which take %zu bytes", r->arena.total);
}

int run_step(struct run *r, size_t n)
{
    r->steps += (int64_t)MIN(n, (size_t)JINJA_STEPS_MAX);
    return r->steps <= r->max_steps ? 0
                                    : run_fail(r, "the template takes more than %lld steps", (long long)r->max_steps);
}

int run_step_text(struct run *r, size_t bytes)
{
    return run_step(r, bytes / 16);
}

void *run_alloc(struct run *r, size_t count, size_t size)
{
    size_t bytes;
    if (size_mul(count, size, &bytes) || bytes > JINJA_MEMORY_MAX || r->arena.total + bytes > JINJA_MEMORY_MAX) {
        run_fail(r, "the template's values take more than %d MiB", JINJA_MEMORY_MAX >> 20);
        return NULL;
    }
    void *p = arena_alloc(&r->arena, bytes, bytes >= 8 ? 8 : 1);
    if (!p)
        run_no_memory(r);
    return p;
}

struct value value_of_object(void *object)
{
    return (struct value){.kind = VALUE_OBJECT, .object = object};
}

// ---- Containers ----

// Errors of the arena lack line and column, and value.h does not know its limit.
static int checked(struct run *r, int status)
{
    if (status && r->err->code != E_MEMORY)
        return run_fail(r, "%s", r->err->text);
    if (!status && r->arena.total > JINJA_MEMORY_MAX)
        return run_fail(r, "the template's values take more than %d MiB", JINJA_MEMORY_MAX >> 20);
    return status;
}

int run_list_new(struct run *r, struct value *out)
{
    return checked(r, value_list_new(out, &r->arena, r->err));
}

int run_list_push(struct run *r, struct value *list, struct value item)
{
    return run_step(r, 1) ? -1 : checked(r, value_list_push(&r->arena, list, item, r->err));
}

int run_tuple(struct run *r, struct value *out, struct value a, struct value b)
{
    if (run_list_new(r, out) || run_list_push(r, out, a) || run_list_push(r, out, b))
        return -1;
    out->kind = VALUE_TUPLE;
    return 0;
}

int run_dict_new(struct run *r, struct value *out)
{
    return checked(r, value_dict_new(out, &r->arena, r->err));
}

int run_dict_put(struct run *r, struct value *dict, struct value key, struct value v)
{
    if (key.kind == VALUE_LIST || key.kind == VALUE_DICT)
        return run_fail(r, "unhashable type: '%s'", value_type_name(&key));
    int64_t before = r->max_steps - r->steps, left = before;
    int status = value_dict_put_within(&r->arena, dict, key, v, &left, r->err);
    return run_step(r, (size_t)(before - left)) ? -1 : checked(r, status);
}

int run_iterator(struct run *r, struct value *out, struct value list, const char *name)
{
    struct iterator *i = RUN_NEW(r, struct iterator);
    if (!i)
        return -1;
    *i = (struct iterator){{OBJ_ITERATOR}, list, 0, name};
    *out = value_of_object(i);
    return 0;
}

int run_undefined(struct run *r, struct value *out, enum undefined_kind kind, const struct value *of, struct str name,
                  const struct value *item)
{
    struct undefined *u = RUN_NEW(r, struct undefined);
    if (!u)
        return -1;
    *u = (struct undefined){kind, name, of ? *of : value_none(), item ? *item : value_none()};
    *out = (struct value){.kind = VALUE_UNDEFINED, .object = u};
    return 0;
}

int run_undefined_hint(struct run *r, struct value *out, const char *hint)
{
    return run_undefined(r, out, UNDEF_HINT, NULL, str_from(hint), NULL);
}

// ---- Building ----

static void *regrow(struct run *r, const void *old, size_t n, size_t cap)
{
    void *p = run_alloc(r, cap, 1);
    if (p && n)
        memcpy(p, old, n);
    return p;
}

static int reserve(struct run *r, struct build *b, size_t more)
{
    size_t need;
    if (size_add(b->n, more, &need) || need > JINJA_OUTPUT_MAX)
        return run_fail(r, "a text grows over %d MiB", JINJA_OUTPUT_MAX >> 20);
    if (need <= b->cap)
        return 0;
    size_t cap = MAX(need, MAX(2 * b->cap, (size_t)64));
    char *data = regrow(r, b->data, b->n, cap);
    uint8_t *marks = data && b->marks ? regrow(r, b->marks, b->n, cap) : NULL;
    if (!data || (b->marks && !marks))
        return -1;
    b->data = data;
    b->marks = marks;
    b->cap = cap;
    return 0;
}

// From now on each byte has its own mark.
static int use_marks(struct run *r, struct build *b)
{
    if (b->marks)
        return 0;
    b->marks = run_alloc(r, b->cap, 1);
    if (!b->marks)
        return -1;
    memset(b->marks, b->origin == ORIGIN_INPUT, b->n);
    b->origin = ORIGIN_MIXED;
    return 0;
}

int build_text(struct run *r, struct build *b, struct str s, uint8_t origin, const uint8_t *marks)
{
    if (s.len == 0)
        return 0;
    if (run_step_text(r, s.len) || reserve(r, b, s.len))
        return -1;
    if (b->n == 0 && !b->marks)
        b->origin = origin == ORIGIN_MIXED ? ORIGIN_OWN : origin;
    if (b->origin != origin && use_marks(r, b))
        return -1;
    memcpy(b->data + b->n, s.data, s.len);
    if (b->marks && marks && origin == ORIGIN_MIXED)
        memcpy(b->marks + b->n, marks, s.len);
    else if (b->marks)
        memset(b->marks + b->n, origin == ORIGIN_INPUT, s.len);
    b->n += s.len;
    return 0;
}

int build_string(struct run *r, struct build *b, const struct value *s)
{
    return build_text(r, b, s->text, s->origin, s->marks);
}

int build_slice(struct run *r, struct build *b, const struct value *s, size_t from, size_t to)
{
    struct value part = string_slice(s, from, to);
    return build_string(r, b, &part);
}

int build_fill(struct run *r, struct build *b, char c, size_t n, uint8_t origin)
{
    char some[64];
    memset(some, c, sizeof some);
    for (size_t part; n > 0; n -= part) {
        part = MIN(n, sizeof some);
        if (build_text(r, b, (struct str){some, part}, origin, NULL))
            return -1;
    }
    return 0;
}

struct value build_value(const struct build *b)
{
    struct value v = value_string((struct str){b->data ? b->data : "", b->n});
    v.origin = b->origin;
    v.markup = b->markup;
    if (b->marks)
        v.marks = b->marks;
    return v;
}

// ---- Parts of strings ----

struct value string_slice(const struct value *s, size_t from, size_t to)
{
    struct value part = *s;
    part.text = (struct str){s->text.data + from, to - from};
    if (s->origin == ORIGIN_MIXED)
        part.marks = s->marks + from;
    return part;
}

uint8_t string_origin(const struct value *s, size_t at)
{
    if (s->origin != ORIGIN_MIXED)
        return s->origin;
    return at < s->text.len && s->marks[at] ? ORIGIN_INPUT : ORIGIN_OWN;
}

size_t text_char_len(const char *p, const char *end)
{
    if ((unsigned char)*p < 0x80)
        return 1;
    int len = utf8_decode(p, (size_t)(end - p), NULL);
    return len ? (size_t)len : 1;
}

size_t string_chars(struct str s)
{
    size_t n = 0;
    for (const char *p = s.data, *end = p + s.len; p < end; n++)
        p += text_char_len(p, end);
    return n;
}

size_t string_char_at(struct str s, size_t i)
{
    const char *p = s.data, *end = p + s.len;
    for (; i > 0 && p < end; i--)
        p += text_char_len(p, end);
    return (size_t)(p - s.data);
}

// ---- Concatenation ----

// The buffer that ends with `a` and has room for n more bytes; NULL if there is none.
static struct grown *grown_at(struct run *r, const struct value *a, size_t n)
{
    for (size_t i = 0; i < COUNT_OF(r->grown); i++) {
        struct grown *g = &r->grown[i];
        bool at_end = g->data && a->text.data >= g->data && a->text.data + a->text.len == g->data + g->n;
        bool inside = at_end && a->text.data < g->data + g->n;
        if (inside && g->cap - g->n >= n)
            return g;
    }
    return NULL;
}

static void put_grown(struct grown *g, const struct value *s)
{
    memcpy(g->data + g->n, s->text.data, s->text.len);
    if (g->marks && s->origin == ORIGIN_MIXED)
        memcpy(g->marks + g->n, s->marks, s->text.len);
    else if (g->marks)
        memset(g->marks + g->n, s->origin == ORIGIN_INPUT, s->text.len);
    g->n += s->text.len;
}

static struct value joined(const struct grown *g, size_t from, uint8_t origin)
{
    struct value v = value_string((struct str){g->data + from, g->n - from});
    v.origin = origin;
    if (origin == ORIGIN_MIXED)
        v.marks = g->marks + from;
    return v;
}

// a + b. Templates often append to the same string. If possible, b is appended to the buffer of `a` in place, so that
// this takes linear time in total.
int string_concat(struct run *r, const struct value *a, const struct value *b, struct value *out)
{
    size_t n;
    if (b->text.len == 0 || a->text.len == 0) {
        *out = b->text.len ? *b : *a;
        out->markup = false;
        return 0;
    }
    if (size_add(a->text.len, b->text.len, &n) || n > JINJA_OUTPUT_MAX)
        return run_fail(r, "a text grows over %d MiB", JINJA_OUTPUT_MAX >> 20);
    uint8_t origin = a->origin == b->origin ? a->origin : ORIGIN_MIXED;
    struct grown *g = grown_at(r, a, b->text.len);
    if (g && (g->marks || origin != ORIGIN_MIXED)) {
        if (run_step_text(r, b->text.len))
            return -1;
        size_t from = (size_t)(a->text.data - g->data);
        put_grown(g, b);
        *out = joined(g, from, origin);
        return 0;
    }
    bool small = n < 256;
    struct grown fresh = {.cap = small ? n : 2 * n};
    fresh.data = run_step_text(r, n) ? NULL : run_alloc(r, fresh.cap, 1);
    // a string that grows will probably contain both origins eventually
    fresh.marks = fresh.data && (origin == ORIGIN_MIXED || !small) ? run_alloc(r, fresh.cap, 1) : NULL;
    if (!fresh.data || (!fresh.marks && (origin == ORIGIN_MIXED || !small)))
        return -1;
    put_grown(&fresh, a);
    put_grown(&fresh, b);
    *out = joined(&fresh, 0, origin);
    if (!small)
        r->grown[r->next_grown++ % COUNT_OF(r->grown)] = fresh;
    return 0;
}
