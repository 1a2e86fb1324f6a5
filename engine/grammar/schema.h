// The inside of the compiler of JSON Schemas.
//
// A *claim* is a set of literals, each a schema of the document or its negation, that one value must meet together:
// what allOf, references and properties that several schemas speak of come to. Every claim becomes one rule. To build
// it, its literals are taken apart (schema_expand.c) until only *branches* are left: a set of types and a list of
// demands on each, with all anyOf, oneOf, if and not decided. Each branch is then written down as an expression, type
// by type (schema_emit.c). A document has finitely many claims, so that recursion ends.
//
// Ownership: everything lives in the arena of struct schema. Threads: one at a time.
#ifndef QUERN_SCHEMA_H
#define QUERN_SCHEMA_H

#include "engine/grammar/compiled.h"
#include "engine/json.h"

enum schema_type {
    TYPE_NULL = 1,
    TYPE_FALSE = 2,
    TYPE_TRUE = 4,
    TYPE_NUMBER = 8,
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ALL = 127
};

struct literal {
    const struct value *node;
    bool negated;
};

enum demand_kind {
    D_INTEGER, // a whole number
    D_NOT_INTEGER,
    D_COMPARE,  // in the orders n to the number v
    D_MULTIPLE, // of the number v
    D_NOT_MULTIPLE,
    D_MIN_LENGTH, // n characters
    D_MAX_LENGTH,
    D_PATTERN, // v
    D_NOT_PATTERN,
    D_FORMAT,    // v
    D_MIN_ITEMS, // n
    D_MAX_ITEMS,
    D_UNIQUE,
    D_ITEMS,    // what the schema v says of items by their places
    D_EACH,     // every item from the n-th on meets the literal
    D_AT,       // the n-th item is there and meets the literal
    D_CONTAINS, // from n to m items meet the literal; m -1: any number
    D_MIN_PROPERTIES,
    D_MAX_PROPERTIES,
    D_PROPERTIES, // what the schema v says of properties by their names
    D_REQUIRE,    // the property `key` is there
    D_FORBID,     // it is not
    D_KEY,        // if it is there, it meets the literal
    D_NAMES,      // names meet the literal
    D_VALUES,     // one of the list v, or v itself where n is 1
    D_NOT_VALUE,  // not v
};

struct demand {
    enum demand_kind kind;
    const struct value *v;
    const struct value *at; // the schema that says so, for messages
    struct literal lit;
    struct str key;
    int64_t n, m;
};

struct branch {
    unsigned types;
    struct demand *demands;
    size_t n;
};

struct claim {
    struct literal *at;
    size_t n;
    uint32_t rule;
};

struct schema {
    struct exprs x;
    struct arena arena;
    struct value root;
    struct schema_options options;
    bool ref_alone; // draft 7 and before: what stands beside a $ref is not looked at
    struct claim *claims;
    uint32_t n_claims, cap_claims, n_built;
    uint32_t *table, table_size;                     // hash -> claim + 1
    size_t n_branches, n_steps;                      // of all claims
    uint32_t string_rule, number_rule, integer_rule; // of the simplest, UINT32_MAX until used
    struct {
        const struct value *v;
        expr_id e;
    } * patterns; // compiled before
    size_t n_patterns, cap_patterns;
    struct error *err;
};
enum { CLAIMS_MAX = 50000, BRANCHES_MAX = 100000, SCHEMA_BYTES_MAX = 4 << 20, SCHEMA_DEPTH_MAX = 100 };

// "schema: /properties/age: MESSAGE", with the JSON pointer of a value of the document.
int schema_refuse(struct schema *s, const struct value *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int schema_no_memory(struct schema *s);

// The expression of a value that meets all literals: EXPR_NEVER where they contradict each other at first sight.
int schema_claim(struct schema *s, const struct literal *list, size_t n, expr_id *out);

// --- taking apart ---

typedef int schema_branch_fn(void *arg, struct schema *s, const struct branch *b);
// Calls `fn` for every branch of the literals; anything but 0 stops and is returned.
int schema_expand(struct schema *s, const struct literal *list, size_t n, unsigned types, schema_branch_fn *fn,
                  void *arg);
// Whether no value meets the literals, as far as is seen without going deep: false when in doubt. -1 on errors.
int schema_is_empty(struct schema *s, const struct literal *list, size_t n, int depth);
// What a $ref of that text names.
int schema_resolve(struct schema *s, const struct value *ref, const struct value **target);
// Refuses keywords that are not supported.
int schema_check_keywords(struct schema *s, const struct value *node);

// --- putting together ---

// The JSON texts of a branch; `claim` is what it is a branch of.
int schema_emit(struct schema *s, const struct branch *b, const struct literal *claim, size_t n, expr_id *out);
int schema_emit_array(struct schema *s, const struct branch *b, expr_id *out);
int schema_emit_object(struct schema *s, const struct branch *b, expr_id *out);
expr_id schema_space(struct schema *s);                 // at most one line end and what indents the next
expr_id schema_text(struct schema *s, struct str text); // a JSON string of that content
int schema_emit_value(struct schema *s, const struct value *v, expr_id *out);

// --- strings and numbers ---

// The contents of strings that meet the demands; *any: there are none.
int schema_string_contents(struct schema *s, const struct branch *b, expr_id *out, bool *any);
// The JSON string of any of these contents.
int schema_quote(struct schema *s, expr_id contents, expr_id *out);
int schema_emit_string(struct schema *s, const struct branch *b, expr_id *out);
int schema_emit_number(struct schema *s, const struct branch *b, expr_id *out);
int schema_pattern(struct schema *s, const struct value *v, expr_id *out);
int schema_format(struct schema *s, const struct value *v, expr_id *out, bool *any);
// A number as a decimal without exponent; false when it is too large for it.
bool schema_decimal(const struct value *v, struct text *out);
expr_id schema_any_string(struct schema *s);

// --- values ---

// Whether a value meets a literal: 1, 0, -1 on errors.
int schema_matches(struct schema *s, struct literal lit, const struct value *v);
bool schema_equal(const struct value *a, const struct value *b);
unsigned schema_type_of(const struct value *v);
// The bits of a type's name, and whether it is "integer"; 0 when there is none of that name.
unsigned schema_type_named(const struct value *name, bool *integer);

#endif
