// A draft is a branch under construction: what is known of it, and the literals and choices that are still to be
// decided. Only schema_draft.c, schema_expand.c and schema_deny.c include this file.
//
// Ownership: everything lives in the arena of struct schema. Threads: one at a time.
#ifndef QUERN_SCHEMA_DRAFT_H
#define QUERN_SCHEMA_DRAFT_H

#include "engine/grammar/schema.h"

enum keyword {
    K_ANNOTATION, // demands nothing of a value
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
    K_UNSUPPORTED, // demands something that is not done
    K_UNKNOWN      // not in keywords.def
};

enum keyword schema_keyword(struct str name);

// --- drafts ---

// One alternative of a choice: more literals, demands, and the types that it allows.
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
    struct choice *next; // next undecided choice of the draft
};

// Copied where a choice branches. Lists grow in the arena.
struct draft {
    struct branch b;
    size_t cap;
    struct literal *todo;
    size_t n_todo, cap_todo;
    struct choice *choices;
};

// These return -1 if memory runs out; choice_new returns NULL.
int draft_demand(struct schema *s, struct draft *d, struct demand demand);
int draft_todo(struct schema *s, struct draft *d, const struct value *node, bool negated);
void draft_choose(struct draft *d, struct choice *c);
// A choice with room for n alternatives.
struct choice *choice_new(struct schema *s, size_t n);
bool alternative_literals(struct schema *s, struct alternative *a, size_t n);
// Appends an alternative of one literal, or of one demand on the given types.
int choice_literal(struct schema *s, struct choice *c, const struct value *node, bool negated);
int choice_demand(struct schema *s, struct choice *c, unsigned types, struct demand demand);

// --- keywords that are needed plain and negated ---

// The negation of oneOf; and `if` with its `then` and `else`, or their negation.
int draft_not_one_of(struct schema *s, struct draft *d, const struct value *v);
int draft_if(struct schema *s, struct draft *d, const struct value *node, bool negated);
// Adds a choice of all ways in which a value can fail the schema.
int draft_deny(struct schema *s, struct draft *d, const struct value *node);

// --- checks of a keyword's value: E_USAGE if it has the wrong form ---

int schema_want_list(struct schema *s, const struct value *v, const char *name);
int schema_want_schema(struct schema *s, const struct value *v, const char *name);
int schema_want_schemas(struct schema *s, const struct value *v, const char *name);
int schema_want_count(struct schema *s, const struct value *v, const char *name, int64_t *n);
int schema_want_dict(struct schema *s, const struct value *v, const char *name);
int schema_want_names(struct schema *s, const struct value *v, const char *name);
// Reads the value of `type`. *integer, *number: these names are in it.
int schema_read_types(struct schema *s, const struct value *v, unsigned *types, bool *integer, bool *number);

#endif
