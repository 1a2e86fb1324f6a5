// The internals of the compiler from JSON Schema to grammar expressions.
//
// A *claim* is a set of literals that one value must meet together; a literal is a schema of the document or its
// negation. Claims arise from allOf, from references, and from properties that several schemas describe. Every claim
// becomes one rule. To build a claim, its literals are expanded (schema_expand.c) into *branches*, as in a
// disjunctive normal form: a branch is a set of types and a list of demands, and all anyOf, oneOf, if and not are
// decided in it. Each branch is then emitted as an expression, type by type (schema_emit.c). A document has finitely
// many claims, so recursion ends.
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
    D_INTEGER, // an integer
    D_NOT_INTEGER,
    D_COMPARE,  // its order to the number v is in n, a set of enum number_order
    D_MULTIPLE, // a multiple of the number v
    D_NOT_MULTIPLE,
    D_MIN_LENGTH, // at least n characters
    D_MAX_LENGTH,
    D_PATTERN, // matches the pattern v
    D_NOT_PATTERN,
    D_FORMAT,    // matches the format v
    D_MIN_ITEMS, // at least n items
    D_MAX_ITEMS,
    D_UNIQUE,
    D_ITEMS,    // items meet the keywords of the schema v for items: items, prefixItems, additionalItems
    D_EACH,     // every item from index n on meets the literal
    D_AT,       // item n exists and meets the literal
    D_CONTAINS, // n to m items meet the literal; m -1: no maximum
    D_MIN_PROPERTIES,
    D_MAX_PROPERTIES,
    D_PROPERTIES, // properties meet the keywords of the schema v: properties, patternProperties, additionalProperties
    D_REQUIRE,    // the property `key` exists
    D_FORBID,     // the property `key` does not exist
    D_KEY,        // the property `key`, if it exists, meets the literal
    D_NAMES,      // all names of properties meet the literal
    D_VALUES,     // one of the values in the list v, or, if n is 1, the value v
    D_NOT_VALUE,  // not the value v
};

struct demand {
    enum demand_kind kind;
    const struct value *v;
    const struct value *at; // the schema that demands it, for messages
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
    bool ref_alone; // draft 7 and older: keywords next to a $ref are ignored
    struct claim *claims;
    uint32_t n_claims, cap_claims, n_built;
    uint32_t *table, table_size;                     // hash -> claim + 1
    size_t n_branches, n_steps;                      // sums over all claims
    int n_nested;                                    // expansions that are under way
    uint64_t work;                                   // see schema_spend
    expr_id written;                                 // a character as JSON may write it; EXPR_NEVER until it is made
    uint32_t string_rule, number_rule, integer_rule; // rules without demands; UINT32_MAX until used
    struct {
        const struct value *v;
        expr_id e;
    } * patterns; // cache of compiled patterns
    size_t n_patterns, cap_patterns;
    struct text passed_over; // what demands nothing and was not known, see grammar_passed_over
    size_t n_passed_over;
    struct error *err;
};
enum {
    CLAIMS_MAX = 50000,
    BRANCHES_MAX = 100000,
    SCHEMA_BYTES_MAX = 4 << 20,
    SCHEMA_DEPTH_MAX = 100,
    SCHEMA_WORK_MAX = 8000000
};

// Fails with "schema: /properties/age: MESSAGE", where the path is the JSON pointer of `at`.
int schema_refuse(struct schema *s, const struct value *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#define schema_refuse(...) minus_one(schema_refuse(__VA_ARGS__))
int schema_no_memory(struct schema *s);
// Counts work, of which a document may take SCHEMA_WORK_MAX units: each is some 50 ns, such as one comparison of values
// or one expression. E_USAGE beyond that. What loops over pairs of parts must call it.
int schema_spend(struct schema *s, size_t n);
// Notes the name of a keyword or format that demands nothing, once.
void schema_pass_over(struct schema *s, struct str name);

// The expression of the values that meet all literals; EXPR_NEVER if they contradict each other directly.
int schema_claim(struct schema *s, const struct literal *list, size_t n, expr_id *out);

// --- expansion into branches ---

typedef int schema_branch_fn(void *arg, struct schema *s, const struct branch *b);
// Calls `fn` for every branch of the literals. A result other than 0 stops the expansion and is returned.
int schema_expand(struct schema *s, const struct literal *list, size_t n, unsigned types, schema_branch_fn *fn,
                  void *arg);
// Returns 1 if no value can meet the literals as far as a shallow check shows, 0 otherwise or if in doubt, -1 on
// errors.
int schema_is_empty(struct schema *s, const struct literal *list, size_t n, int depth);
// Finds the schema that a $ref names.
int schema_resolve(struct schema *s, const struct value *ref, const struct value **target);
// Refuses keywords that are not supported.
int schema_check_keywords(struct schema *s, const struct value *node);

// --- emitting expressions ---

// The JSON texts of a branch.
int schema_emit(struct schema *s, const struct branch *b, expr_id *out);
int schema_emit_array(struct schema *s, const struct branch *b, expr_id *out);
int schema_emit_object(struct schema *s, const struct branch *b, expr_id *out);
expr_id schema_space(struct schema *s);                 // optional white space: a space, or a line end and
                                                        // indentation
expr_id schema_text(struct schema *s, struct str text); // a JSON string with that content
int schema_emit_value(struct schema *s, const struct value *v, expr_id *out);

// --- strings and numbers ---

// The contents of strings that meet the demands. *any: there are no demands on strings.
int schema_string_contents(struct schema *s, const struct branch *b, expr_id *out, bool *any);
// The JSON strings with these contents.
int schema_quote(struct schema *s, expr_id contents, expr_id *out);
int schema_emit_string(struct schema *s, const struct branch *b, expr_id *out);
int schema_emit_number(struct schema *s, const struct branch *b, expr_id *out);
int schema_pattern(struct schema *s, const struct value *v, expr_id *out);
int schema_format(struct schema *s, const struct value *v, expr_id *out, bool *any);
// Writes a number as a decimal, possibly with an exponent. False if that is not possible.
bool schema_decimal(const struct value *v, struct text *out);
expr_id schema_any_string(struct schema *s);

// --- values ---

// Whether the value is in the list of an enum, or is the const.
bool schema_lists(struct schema *s, const struct demand *values, const struct value *v);
// Whether the value meets the branch, or the literal: 1 or 0, -1 on errors.
int schema_meets(struct schema *s, const struct branch *b, const struct value *v);
int schema_matches(struct schema *s, struct literal lit, const struct value *v);
bool schema_equal(struct schema *s, const struct value *a, const struct value *b);
unsigned schema_type_of(const struct value *v);
// The type bits of a type's name; 0 if there is no such type. *integer: the name is "integer".
unsigned schema_type_named(const struct value *name, bool *integer);

#endif
