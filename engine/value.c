// Dicts keep their entries in an array in order of insertion. Up to eight entries are searched linearly; larger dicts
// also have a hash table of indices with linear probing, at most half full. Arrays and tables grow by doubling, and
// the old ones stay in the arena. A float is compared with a 64-bit int exactly: the int is never rounded.
#include "engine/value.h"

#include <math.h>
#include <stdlib.h>

#include "engine/text/token_map.h"

// ---- Making ----

int value_string_copy(struct value *out, struct arena *arena, struct str s, struct error *err)
{
    const char *copy = arena_strdup(arena, s);
    if (!copy)
        return fail(err, E_MEMORY, "no memory for a text of %zu bytes", s.len);
    *out = value_string((struct str){copy, s.len});
    return 0;
}

int value_list_new(struct value *out, struct arena *arena, struct error *err)
{
    struct value_list *list = ARENA_NEW(arena, struct value_list);
    if (!list)
        return fail(err, E_MEMORY, "no memory for a list");
    list->depth = 1;
    *out = (struct value){.kind = VALUE_LIST, .list = list};
    return 0;
}

static int depth_of(const struct value *v)
{
    switch (v->kind) {
    case VALUE_LIST:
    case VALUE_TUPLE:
        return v->list->depth;
    case VALUE_DICT:
        return v->dict->depth;
    default:
        return 0;
    }
}

static int nest(int *depth, const struct value *inner, struct error *err)
{
    int d = depth_of(inner) + 1;
    if (d > VALUE_DEPTH)
        return fail(err, E_USAGE, "lists and objects are nested deeper than %d", VALUE_DEPTH);
    *depth = MAX(*depth, d);
    return 0;
}

// Copies an array of n objects to one with twice the room. The old array stays in the arena until that is freed.
static void *grow(struct arena *arena, const void *old, size_t n, size_t *cap, size_t size, struct error *err)
{
    size_t want = MAX(2 * n, (size_t)4);
    void *data = arena_array(arena, want, size, _Alignof(struct value));
    if (!data) {
        fail(err, E_MEMORY, "no memory for %zu items", want);
        return NULL;
    }
    if (n > 0)
        memcpy(data, old, n * size);
    *cap = want;
    return data;
}

int value_list_push(struct arena *arena, struct value *list, struct value item, struct error *err)
{
    struct value_list *l = list->list;
    if (nest(&l->depth, &item, err))
        return -1;
    if (l->n == l->cap) {
        struct value *items = grow(arena, l->items, l->n, &l->cap, sizeof *items, err);
        if (!items)
            return -1;
        l->items = items;
    }
    l->items[l->n++] = item;
    return 0;
}

int value_dict_new(struct value *out, struct arena *arena, struct error *err)
{
    struct value_dict *dict = ARENA_NEW(arena, struct value_dict);
    if (!dict)
        return fail(err, E_MEMORY, "no memory for a dict");
    dict->depth = 1;
    *out = (struct value){.kind = VALUE_DICT, .dict = dict};
    return 0;
}

// ---- Work ----

// Takes n from the work that is left; false when that is used up. left NULL: there is no bound.
static bool spend(int64_t *left, size_t n)
{
    if (!left)
        return true;
    *left -= (int64_t)MIN(n, (size_t)INT32_MAX);
    return *left >= 0;
}

static bool spend_text(int64_t *left, size_t bytes)
{
    return spend(left, bytes / 16);
}

// ---- Keys ----

static uint64_t mix(uint64_t h)
{
    h ^= h >> 32;
    h *= UINT64_C(0xD6E8FEB86659FD93);
    h ^= h >> 32;
    h *= UINT64_C(0xD6E8FEB86659FD93);
    return h ^ h >> 32;
}

static bool int_of_float(double f, int64_t *out)
{
    if (!(f >= -0x1p63 && f < 0x1p63) || f != floor(f))
        return false;
    *out = (int64_t)f;
    return true;
}

static uint64_t hash_float(double f, uint64_t seed)
{
    int64_t i;
    if (int_of_float(f, &i))
        return mix((uint64_t)i ^ seed);
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return mix(bits ^ seed);
}

static double bigint_real(const struct value *v)
{
    char digits[400]; // a longer number is outside the range of double
    if (v->text.len >= sizeof digits)
        return v->text.data[0] == '-' ? -INFINITY : INFINITY;
    memcpy(digits, v->text.data, v->text.len);
    digits[v->text.len] = '\0';
    return strtod(digits, NULL);
}

// Hashes a key. Equal keys have equal hashes, even if their kinds differ. False when the value cannot be a key. When no
// work is left, the hash is 0.
static bool hash_key(const struct value *key, int64_t *left, uint64_t *hash)
{
    uint64_t seed = token_hash_seed();
    *hash = 0;
    if (!spend(left, 1))
        return true;
    switch ((enum value_kind)key->kind) {
    case VALUE_STRING:
        if (spend_text(left, key->text.len))
            *hash = token_hash(key->text.data, key->text.len, seed);
        return true;
    case VALUE_NONE:
        *hash = mix(seed + 1);
        return true;
    case VALUE_BOOL:
        *hash = mix((uint64_t)key->boolean ^ seed);
        return true;
    case VALUE_INT:
        *hash = mix((uint64_t)key->integer ^ seed);
        return true;
    case VALUE_FLOAT:
        *hash = hash_float(key->real, seed);
        return true;
    case VALUE_BIGINT:
        if (spend_text(left, key->text.len))
            *hash = hash_float(bigint_real(key), seed);
        return true;
    case VALUE_TUPLE:
        *hash = seed;
        for (size_t i = 0; i < key->list->n; i++) {
            uint64_t h;
            if (!hash_key(&key->list->items[i], left, &h))
                return false;
            *hash = mix(*hash * 31 + h);
        }
        return true;
    case VALUE_UNDEFINED:
    case VALUE_OBJECT:
        *hash = mix((uintptr_t)key->object ^ seed);
        return true;
    case VALUE_LIST:
    case VALUE_DICT:
        break;
    }
    return false;
}

enum { FEW = 8 }; // a dict with so many entries is searched linearly, without a hash table

// The index of the entry with this key; dict->n when there is none.
static size_t entry_of(const struct value_dict *d, const struct value *key, uint64_t hash, int64_t *left)
{
    if (!d->slots) {
        for (size_t i = 0; i < d->n; i++)
            if (value_equal_within(&d->entries[i].key, key, left))
                return i;
        return d->n;
    }
    size_t at = hash & (d->n_slots - 1);
    for (; d->slots[at] && spend(left, 0); at = (at + 1) & (d->n_slots - 1))
        if (value_equal_within(&d->entries[d->slots[at] - 1].key, key, left))
            return d->slots[at] - 1;
    return d->n;
}

static void put_slot(struct value_dict *d, size_t entry, int64_t *left)
{
    uint64_t hash;
    hash_key(&d->entries[entry].key, left, &hash);
    size_t at = hash & (d->n_slots - 1);
    for (; d->slots[at] && spend(left, 1); at = (at + 1) & (d->n_slots - 1))
        continue;
    d->slots[at] = (uint32_t)entry + 1;
}

// Makes room for one more entry in the array and in the hash table, which is at most half full.
static int reserve_entry(struct arena *arena, struct value_dict *d, int64_t *left, struct error *err)
{
    if (d->n == d->cap) {
        struct value_entry *entries = grow(arena, d->entries, d->n, &d->cap, sizeof *entries, err);
        if (!entries)
            return -1;
        d->entries = entries;
    }
    if (d->n < FEW || 2 * (d->n + 1) <= d->n_slots)
        return 0;
    if (d->n >= UINT32_MAX / 4)
        return fail(err, E_MEMORY, "a dict of more than %zu entries", d->n);
    size_t n_slots = MAX(2 * d->n_slots, (size_t)4 * FEW);
    uint32_t *slots = ARENA_ARRAY(arena, uint32_t, n_slots);
    if (!slots)
        return fail(err, E_MEMORY, "no memory for a dict of %zu entries", d->n);
    d->slots = slots;
    d->n_slots = n_slots;
    for (size_t i = 0; i < d->n; i++)
        put_slot(d, i, left);
    return 0;
}

int value_dict_put_within(struct arena *arena, struct value *dict, struct value key, struct value v, int64_t *left,
                          struct error *err)
{
    struct value_dict *d = dict->dict;
    uint64_t hash;
    if (!hash_key(&key, left, &hash))
        return fail(err, E_USAGE, "a value of this kind (%s) cannot be a key", value_kind_name(&key));
    if (nest(&d->depth, &v, err) || nest(&d->depth, &key, err))
        return -1;
    size_t i = entry_of(d, &key, hash, left);
    if (left && *left < 0)
        return fail(err, E_USAGE, "comparing the keys of a dict takes too many steps");
    if (i < d->n) {
        d->entries[i].value = v;
        return 0;
    }
    if (reserve_entry(arena, d, left, err))
        return -1;
    d->entries[d->n++] = (struct value_entry){key, v};
    if (d->slots)
        put_slot(d, d->n - 1, left);
    return 0;
}

int value_dict_put(struct arena *arena, struct value *dict, struct value key, struct value v, struct error *err)
{
    return value_dict_put_within(arena, dict, key, v, NULL, err);
}

int value_dict_set(struct arena *arena, struct value *dict, const char *key, struct value v, struct error *err)
{
    return value_dict_put(arena, dict, value_string(str_from(key)), v, err);
}

// ---- Reading ----

const struct value *value_find_within(const struct value *dict, const struct value *key, int64_t *left)
{
    uint64_t hash;
    if (!value_is(dict, VALUE_DICT) || !hash_key(key, left, &hash))
        return NULL;
    size_t i = entry_of(dict->dict, key, hash, left);
    return i < dict->dict->n ? &dict->dict->entries[i].value : NULL;
}

const struct value *value_find(const struct value *dict, const struct value *key)
{
    return value_find_within(dict, key, NULL);
}

const struct value *value_get_str(const struct value *dict, struct str key)
{
    struct value k = value_string(key);
    return value_find(dict, &k);
}

const struct value *value_get(const struct value *dict, const char *key)
{
    return value_get_str(dict, str_from(key));
}

const char *value_kind_name(const struct value *v)
{
    static const char *const names[] = {
        [VALUE_NONE] = "null",       [VALUE_BOOL] = "boolean",
        [VALUE_INT] = "integer",     [VALUE_BIGINT] = "integer",
        [VALUE_FLOAT] = "number",    [VALUE_STRING] = "string",
        [VALUE_LIST] = "array",      [VALUE_DICT] = "object",
        [VALUE_TUPLE] = "tuple",     [VALUE_UNDEFINED] = "undefined value",
        [VALUE_OBJECT] = "function",
    };
    return names[v->kind];
}

bool value_number(const struct value *v, double *out)
{
    if (v->kind == VALUE_INT)
        *out = (double)v->integer;
    else if (v->kind == VALUE_FLOAT)
        *out = v->real;
    else if (v->kind == VALUE_BIGINT)
        *out = bigint_real(v);
    else
        return false;
    return true;
}

// ---- Equality ----

static bool lists_equal(const struct value_list *a, const struct value_list *b, int64_t *left)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!value_equal_within(&a->items[i], &b->items[i], left))
            return false;
    return true;
}

static bool dicts_equal(const struct value *a, const struct value *b, int64_t *left)
{
    if (a->dict->n != b->dict->n)
        return false;
    for (size_t i = 0; i < a->dict->n; i++) {
        const struct value *other = value_find_within(b, &a->dict->entries[i].key, left);
        if (!other || !value_equal_within(&a->dict->entries[i].value, other, left))
            return false;
    }
    return true;
}

// Turns a bool into an int, because Python compares it as one.
static struct value as_number(const struct value *v)
{
    return v->kind == VALUE_BOOL ? value_int(v->boolean) : *v;
}

static bool numbers_equal(const struct value *x, const struct value *y)
{
    struct value a = as_number(x), b = as_number(y);
    if (a.kind == VALUE_INT && b.kind == VALUE_INT)
        return a.integer == b.integer;
    if (a.kind == VALUE_BIGINT && b.kind == VALUE_BIGINT)
        return str_equal(a.text, b.text);
    if (a.kind != VALUE_FLOAT && b.kind != VALUE_FLOAT)
        return false; // a VALUE_BIGINT is never equal to a VALUE_INT
    int64_t i;
    if (a.kind == VALUE_INT)
        return int_of_float(b.real, &i) && i == a.integer;
    if (b.kind == VALUE_INT)
        return int_of_float(a.real, &i) && i == b.integer;
    double f = 0, g = 1;
    return value_number(&a, &f) && value_number(&b, &g) && f == g;
}

static bool is_number(const struct value *v)
{
    return v->kind >= VALUE_BOOL && v->kind <= VALUE_FLOAT;
}

bool value_equal_within(const struct value *a, const struct value *b, int64_t *left)
{
    if (!spend(left, 1))
        return false;
    bool texts = a->kind == VALUE_STRING && b->kind == VALUE_STRING && a->text.len == b->text.len;
    if ((texts || a->kind == VALUE_BIGINT) && !spend_text(left, a->text.len))
        return false;
    if (b->kind == VALUE_BIGINT && !spend_text(left, b->text.len))
        return false;
    if (is_number(a) && is_number(b))
        return numbers_equal(a, b);
    if (a->kind != b->kind)
        return false;
    switch ((enum value_kind)a->kind) {
    case VALUE_STRING:
        return str_equal(a->text, b->text);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return a->list == b->list || lists_equal(a->list, b->list, left);
    case VALUE_DICT:
        return a->dict == b->dict || dicts_equal(a, b, left);
    case VALUE_OBJECT:
        return a->object == b->object;
    case VALUE_NONE:
    case VALUE_UNDEFINED: // all undefined values are equal
    default:
        return true;
    }
}

bool value_equal(const struct value *a, const struct value *b)
{
    return value_equal_within(a, b, NULL);
}

// ---- Marks ----

static int mark_items(struct value *out, struct arena *arena, const struct value *v, struct error *err)
{
    uint8_t kind = v->kind;
    if (value_list_new(out, arena, err))
        return -1;
    out->kind = kind;
    for (size_t i = 0; i < v->list->n; i++) {
        struct value item;
        if (value_mark_input(&item, arena, &v->list->items[i], err) || value_list_push(arena, out, item, err))
            return -1;
    }
    return 0;
}

static int mark_entries(struct value *out, struct arena *arena, const struct value *v, struct error *err)
{
    if (value_dict_new(out, arena, err))
        return -1;
    for (size_t i = 0; i < v->dict->n; i++) {
        const struct value_entry *e = &v->dict->entries[i];
        struct value key, item;
        if (value_mark_input(&key, arena, &e->key, err) || value_mark_input(&item, arena, &e->value, err) ||
            value_dict_put(arena, out, key, item, err))
            return -1;
    }
    return 0;
}

int value_mark_input(struct value *out, struct arena *arena, const struct value *v, struct error *err)
{
    int status = 0;
    if (v->kind == VALUE_LIST || v->kind == VALUE_TUPLE)
        status = mark_items(out, arena, v, err);
    else if (v->kind == VALUE_DICT)
        status = mark_entries(out, arena, v, err);
    else
        *out = *v;
    out->origin = ORIGIN_INPUT;
    return status;
}
