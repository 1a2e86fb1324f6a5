// A branch in the making: what it is known to be, and what is yet to be decided. For the expansion of schemas alone.
//
// Ownership: everything lives in the arena of struct schema. Threads: one at a time.
#ifndef QUERN_SCHEMA_DRAFT_H
#define QUERN_SCHEMA_DRAFT_H

#include "engine/grammar/schema.h"

enum keyword {
    K_ANNOTATION, // says nothing that a value must meet
    K_REF,
    K_TYPE,
    K_ENUM,
    K_CONST,
    K_ALL_OF,
    K_ANY_OF,
    K_ONE_OF,
    K_NOT,
    K_IF,
    K_THEN,
    K_ELSE,
    K_MINIMUM,
    K_MAXIMUM,
    K_EXCLUSIVE_MINIMUM,
    K_EXCLUSIVE_MAXIMUM,
    K_MULTIPLE_OF,
    K_MIN_LENGTH,
    K_MAX_LENGTH,
    K_PATTERN,
    K_FORMAT,
    K_MIN_ITEMS,
    K_MAX_ITEMS,
    K_UNIQUE_ITEMS,
    K_ITEMS,
    K_PREFIX_ITEMS,
    K_ADDITIONAL_ITEMS,
    K_CONTAINS,
    K_MIN_CONTAINS,
    K_MAX_CONTAINS,
    K_MIN_PROPERTIES,
    K_MAX_PROPERTIES,
    K_REQUIRED,
    K_PROPERTIES,
    K_PATTERN_PROPERTIES,
    K_ADDITIONAL_PROPERTIES,
    K_PROPERTY_NAMES,
    K_DEPENDENT_REQUIRED,
    K_DEPENDENT_SCHEMAS,
    K_DEPENDENCIES,
    K_UNKNOWN
};

// K_UNKNOWN when it is not in keywords.def.
enum keyword schema_keyword(struct str name);

// --- drafts ---

// One way out of a choice: further literals, demands, and the types that it is for.
struct alternative {
    struct literal *lits;
    size_t n_lits;
    struct demand *demands;
    size_t n_demands;
    unsigned types;
};

struct choice {
    struct alternative *at;
    size_t n;
    struct choice *next; // yet to be made
};

// Copied where a choice splits it; lists grow in the arena.
struct draft {
    struct branch b;
    size_t cap;
    struct literal *todo;
    size_t n_todo, cap_todo;
    struct choice *choices;
};

// These return -1 when memory is short; choice_new NULL.
int draft_demand(struct schema *s, struct draft *d, struct demand demand);
int draft_todo(struct schema *s, struct draft *d, const struct value *node, bool negated);
void draft_choose(struct draft *d, struct choice *c);
// A choice with room for n ways.
struct choice *choice_new(struct schema *s, size_t n);
bool alternative_literals(struct schema *s, struct alternative *a, size_t n);
// A way of one literal, and one of one demand on one type.
int choice_literal(struct schema *s, struct choice *c, const struct value *node, bool negated);
int choice_demand(struct schema *s, struct choice *c, unsigned types, struct demand demand);

// --- keywords that both directions need ---

// Not exactly one of a list; `if` with its `then` and `else`, or that denied.
int draft_not_one_of(struct schema *s, struct draft *d, const struct value *v);
int draft_if(struct schema *s, struct draft *d, const struct value *node, bool negated);
// Every way in which a value can fail the schema.
int draft_deny(struct schema *s, struct draft *d, const struct value *node);

// --- what a keyword's value must be: E_USAGE when it is something else ---

int schema_want_list(struct schema *s, const struct value *v, const char *name);
int schema_want_schema(struct schema *s, const struct value *v, const char *name);
int schema_want_schemas(struct schema *s, const struct value *v, const char *name);
int schema_want_count(struct schema *s, const struct value *v, const char *name, int64_t *n);
int schema_want_dict(struct schema *s, const struct value *v, const char *name);
int schema_want_names(struct schema *s, const struct value *v, const char *name);
// The value of `type`; *integer and *number: those names are among them.
int schema_read_types(struct schema *s, const struct value *v, unsigned *types, bool *integer, bool *number);

#endif
