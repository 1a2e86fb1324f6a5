// Values as in Python and JSON: none, bool, int, float, string, list and dict, with Python's equality and order.
//
// JSON files, requests and chat templates use them. A value has 32 bytes and is copied freely. What it points to (text,
// items, entries) lives in an arena, or where its creator says, and is not changed once the value is shared. Lists and
// dicts are built with value_list_push and value_dict_set, and shared afterwards. Threads: any thread may read a value
// that nobody changes.
//
// The origin of text is tracked for each byte: `origin` says whether a value was written by the program or a
// template, or came from outside (a message, a tool). A string that mixes both has one mark per byte.
// engine/chat/chat.h explains its use; code that does not need it leaves it zero.
#ifndef QUERN_VALUE_H
#define QUERN_VALUE_H

#include "gguf/base.h"

enum value_kind {
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_BIGINT, // a whole number outside 64 bits, as decimal digits in .text; there is no arithmetic with it
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_DICT,
    // The following occur only in chat templates.
    VALUE_TUPLE, // a list that cannot be changed
    VALUE_UNDEFINED,
    VALUE_OBJECT,
};

enum value_origin {
    ORIGIN_OWN,   // all of it is from the program or a template
    ORIGIN_INPUT, // all of it is from outside
    ORIGIN_MIXED, // only for strings: marks[i] is 1 when byte i is from outside, else 0
};

struct value_list;
struct value_dict;

struct value {
    uint8_t kind;   // enum value_kind
    uint8_t origin; // enum value_origin
    uint8_t markup; // for strings in templates: 1 when the text is not escaped again
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct {
            struct str text;      // of a string: UTF-8, or any bytes if its creator allows them; not NUL-terminated
            const uint8_t *marks; // [text.len] with ORIGIN_MIXED
        };
        struct value_list *list; // of lists and tuples
        struct value_dict *dict;
        void *object; // of VALUE_UNDEFINED and VALUE_OBJECT; belongs to the interpreter of templates
    };
};

// `depth` is the number of nested levels of containers, including this one. It is at most VALUE_DEPTH, so that
// recursion over a value is safe.
enum { VALUE_DEPTH = 512 };
struct value_list {
    struct value *items;
    size_t n, cap;
    int depth;
};

// Entries are kept in the order in which their keys were first set.
struct value_entry {
    struct value key, value;
};
struct value_dict {
    struct value_entry *entries;
    size_t n, cap;
    int depth;
    uint32_t *slots; // a hash table with open addressing: the entry's index + 1, 0: free. NULL while there are few
    size_t n_slots;
};

// --- making ---

static inline struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE};
}
static inline struct value value_bool(bool b)
{
    return (struct value){.kind = VALUE_BOOL, .boolean = b};
}
static inline struct value value_int(int64_t i)
{
    return (struct value){.kind = VALUE_INT, .integer = i};
}
static inline struct value value_float(double f)
{
    return (struct value){.kind = VALUE_FLOAT, .real = f};
}
// A view of the bytes, which stay with the caller.
static inline struct value value_string(struct str s)
{
    return (struct value){.kind = VALUE_STRING, .text = s};
}
#define VALUE_LIT(lit) value_string(STR_LIT(lit))

// Copies the bytes of a string into the arena. This and all of the following fail with E_MEMORY.
int value_string_copy(struct value *out, struct arena *arena, struct str s, struct error *err);
int value_list_new(struct value *out, struct arena *arena, struct error *err);
// E_USAGE when containers would be nested deeper than VALUE_DEPTH. A container must be complete before it is put into
// another one.
int value_list_push(struct arena *arena, struct value *list, struct value item, struct error *err);
int value_dict_new(struct value *out, struct arena *arena, struct error *err);
// Sets the value of a key. A key that exists keeps its position. The key is a string, number, bool, none, or a tuple of
// these.
int value_dict_put(struct arena *arena, struct value *dict, struct value key, struct value v, struct error *err);
// The same for a key that outlives the dict, such as a literal.
int value_dict_set(struct arena *arena, struct value *dict, const char *key, struct value v, struct error *err);

// --- reading ---

// The value of a key; NULL when it is absent or when `dict` is not a dict (which includes NULL).
const struct value *value_get(const struct value *dict, const char *key);
const struct value *value_get_str(const struct value *dict, struct str key);
// The value of any key: 1, 1.0 and true are the same key. Also NULL when the key is a list or a dict, which cannot be
// keys.
const struct value *value_find(const struct value *dict, const struct value *key);

static inline bool value_is(const struct value *v, enum value_kind kind)
{
    return v != NULL && v->kind == kind;
}
static inline bool value_is_true(const struct value *v)
{
    return value_is(v, VALUE_BOOL) && v->boolean;
}
// The number of items of a list or tuple, or of entries of a dict; 0 for other values.
static inline size_t value_count(const struct value *v)
{
    if (value_is(v, VALUE_LIST) || value_is(v, VALUE_TUPLE))
        return v->list->n;
    return value_is(v, VALUE_DICT) ? v->dict->n : 0;
}
// The name of the kind in JSON, for messages: "null", "boolean", "integer", "number", "string", "array", "object".
const char *value_kind_name(const struct value *v);

// Compares like Python's ==: numbers by value, whatever their kind, with bools as 0 and 1; strings by bytes; lists item
// by item; dicts without regard to order.
bool value_equal(const struct value *a, const struct value *b);
// Converts a number to a double. False when the value is not a number; a bool is not one.
bool value_number(const struct value *v, double *out);

// The same within a bound of work. Values that share their parts can be small in memory and have more parts than can ever
// be compared, so whoever takes values from a program of unknown origin bounds the work: each comparison of two values,
// each part of a key and each 16 bytes of text take one from *left. When *left is negative afterwards, the answer means
// nothing, and value_dict_put_within has failed or left a dict that must not be used.
bool value_equal_within(const struct value *a, const struct value *b, int64_t *left);
const struct value *value_find_within(const struct value *dict, const struct value *key, int64_t *left);
int value_dict_put_within(struct arena *arena, struct value *dict, struct value key, struct value v, int64_t *left,
                          struct error *err);

// Makes a copy of the value that is marked as from outside in all its parts. Containers are copied into the arena.
int value_mark_input(struct value *out, struct arena *arena, const struct value *v, struct error *err);

#endif
