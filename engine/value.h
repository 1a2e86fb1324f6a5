// Values as Python and JSON know them: none, bool, int, float, string, list and dict, with Python's equality and order.
//
// What JSON files, requests and chat templates are made of. A value is 32 bytes, copied freely; what it points to
// (text, items, entries) lives in an arena or wherever its maker says, and is not changed once others have seen it.
// Lists and dicts are built by value_list_push and value_dict_set, then shared. Threads: read-only values may be read
// by any.
//
// Where text came from is a property of every byte: `origin` says whether a value was written by us (a template, the
// program) or came from outside (a message, a tool). Strings that mix both carry a mark a byte. See engine/chat/chat.h
// for what it is for; who does not care leaves it zero.
#ifndef QUERN_VALUE_H
#define QUERN_VALUE_H

#include "gguf/base.h"

enum value_kind {
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_BIGINT, // a whole number outside 64 bits: its decimal digits, in .text; nothing computes with it
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_DICT,
    // Only chat templates make the following.
    VALUE_TUPLE, // a list that cannot be changed
    VALUE_UNDEFINED,
    VALUE_OBJECT,
};

enum value_origin {
    ORIGIN_OWN,   // all of it written by us
    ORIGIN_INPUT, // all of it from outside
    ORIGIN_MIXED, // strings only: marks[i] is 1 where byte i is from outside, else 0
};

struct value_list;
struct value_dict;

struct value {
    uint8_t kind;   // enum value_kind
    uint8_t origin; // enum value_origin
    uint8_t markup; // strings in templates: safe from escaping
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct {
            struct str text;      // of a string: UTF-8, any bytes where its maker allows them; not NUL-terminated
            const uint8_t *marks; // ORIGIN_MIXED: text.len of them
        };
        struct value_list *list; // of lists and tuples
        struct value_dict *dict;
        void *object; // VALUE_UNDEFINED, VALUE_OBJECT: the interpreter's
    };
};

// `depth` counts the containers within each other, this one included: VALUE_DEPTH at most, so that whoever walks a
// value may recurse.
enum { VALUE_DEPTH = 512 };
struct value_list {
    struct value *items;
    size_t n, cap;
    int depth;
};

// Entries in the order in which keys were first set.
struct value_entry {
    struct value key, value;
};
struct value_dict {
    struct value_entry *entries;
    size_t n, cap;
    int depth;
    uint32_t *slots; // open addressing, entry + 1; NULL while there are few
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
// A view: the bytes stay the caller's.
static inline struct value value_string(struct str s)
{
    return (struct value){.kind = VALUE_STRING, .text = s};
}
#define VALUE_LIT(lit) value_string(STR_LIT(lit))

// A string with bytes of its own in the arena. E_MEMORY, as all of the following.
int value_string_copy(struct value *out, struct arena *arena, struct str s, struct error *err);
int value_list_new(struct value *out, struct arena *arena, struct error *err);
// Containers are nested VALUE_DEPTH deep at most: E_USAGE. What is put into one must be complete.
int value_list_push(struct arena *arena, struct value *list, struct value item, struct error *err);
int value_dict_new(struct value *out, struct arena *arena, struct error *err);
// Sets a key, which keeps its place when it was there. The key is a string, number, bool, none, or a tuple of such.
int value_dict_put(struct arena *arena, struct value *dict, struct value key, struct value v, struct error *err);
// The same for a key that outlives the dict, such as a literal.
int value_dict_set(struct arena *arena, struct value *dict, const char *key, struct value v, struct error *err);

// --- reading ---

// The value of a key; NULL when it is absent, or `dict` is no dict (NULL included).
const struct value *value_get(const struct value *dict, const char *key);
const struct value *value_get_str(const struct value *dict, struct str key);
// Any key: 1, 1.0 and true are the same one. NULL also when the key is a list or a dict, which cannot be keys.
const struct value *value_find(const struct value *dict, const struct value *key);

static inline bool value_is(const struct value *v, enum value_kind kind)
{
    return v != NULL && v->kind == kind;
}
static inline bool value_is_true(const struct value *v)
{
    return value_is(v, VALUE_BOOL) && v->boolean;
}
// Items of a list or tuple, entries of a dict; 0 of all else.
size_t value_count(const struct value *v);
// "null", "boolean", "integer", "number", "string", "array", "object": JSON's names, for messages.
const char *value_kind_name(const struct value *v);

// Python's ==: numbers by their value whatever their kind, bools as 0 and 1, strings by bytes, lists item by item,
// dicts whatever their order.
bool value_equal(const struct value *a, const struct value *b);
// The number as a double; false when it is none (bools are not).
bool value_number(const struct value *v, double *out);

// The same value, all of it marked as from outside: containers and what they hold are copied into the arena.
int value_mark_input(struct value *out, struct arena *arena, const struct value *v, struct error *err);

#endif
