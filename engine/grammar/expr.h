// The expressions of a grammar before it becomes an automaton: expressions over bytes, and rules that may call each
// other.
//
// GBNF, regular expressions and JSON Schemas are all translated to this form. Equal expressions have the same id
// (hash consing), so a part that a schema repeats is built only once. Expressions are simplified when they are made:
// EXPR_NEVER, which matches nothing, absorbs sequences and disappears from choices. Characters are encoded as UTF-8.
//
// Ownership: a zero-initialised struct exprs is empty; exprs_free frees everything. Threads: one at a time.
#ifndef QUERN_EXPR_H
#define QUERN_EXPR_H

#include "engine/grammar/dfa.h"

enum expr_op {
    X_NEVER,  // nothing
    X_EMPTY,  // the empty text
    X_BYTES,  // one byte of set a
    X_CAT,    // a, then b; a is not X_CAT itself
    X_ALT,    // a or b; a is not X_ALT itself
    X_REPEAT, // a repeated min to max times; max REPEAT_ANY: no limit
    X_RULE,   // rule number a
    X_TOKEN,  // token a, or, if b is set, any token except a
    X_AND,    // texts that match both a and b; neither contains rules or tokens
    X_NOT,    // all texts that do not match a; a contains no rules or tokens
    X_DFA,    // automaton number a (struct dfa)
};
enum { EXPR_NEVER = 0, EXPR_EMPTY = 1 };
#define REPEAT_ANY UINT32_MAX

typedef uint32_t expr_id;

struct expr {
    enum expr_op op;
    uint32_t a, b, min, max;
    bool regular; // contains no rules and no tokens
    bool logic;   // contains X_AND or X_NOT
};

struct rule {
    const char *name;
    expr_id body;
    bool defined;
    int line, column; // where it is first mentioned
};

struct exprs {
    struct arena arena;
    struct expr *at;
    uint32_t n, cap;
    uint32_t *table; // hash -> id + 1
    uint32_t table_size;
    struct byte_set *sets;
    uint32_t n_sets, cap_sets;
    uint32_t *set_table; // hash -> number of a set + 1
    uint32_t set_table_size;
    struct rule *rules;
    uint32_t n_rules, cap_rules;
    struct dfa **dfas;
    uint32_t n_dfas, cap_dfas;
    expr_id any_char; // see expr_any_char; EXPR_NEVER until it is made
    int nested;       // automata that are being built for others
    uint64_t made;    // expressions asked for so far, those that existed already included
    uint64_t work;    // work on automata and character sets so far, in visited transitions
    bool failed;      // out of memory: every expression made since is EXPR_NEVER
    bool overgrown;   // more expressions than EXPRS_MAX
};
enum { EXPRS_MAX = 1 << 21 };

void exprs_free(struct exprs *x);
// Reports E_MEMORY or E_USAGE if any expression since the beginning could not be made.
int exprs_check(struct exprs *x, struct error *err);

expr_id expr_bytes(struct exprs *x, const struct byte_set *set);
expr_id expr_byte_range(struct exprs *x, uint8_t from, uint8_t to);
expr_id expr_text(struct exprs *x, struct str text);
expr_id expr_text_z(struct exprs *x, const char *text);
expr_id expr_cat(struct exprs *x, expr_id a, expr_id b);
expr_id expr_alt(struct exprs *x, expr_id a, expr_id b);
expr_id expr_cat_n(struct exprs *x, const expr_id *list, size_t n);
// A choice of n expressions, nested to the right.
expr_id expr_alt_n(struct exprs *x, const expr_id *list, size_t n);
expr_id expr_repeat(struct exprs *x, expr_id a, uint32_t min, uint32_t max);
expr_id expr_optional(struct exprs *x, expr_id a);
expr_id expr_star(struct exprs *x, expr_id a);
expr_id expr_rule(struct exprs *x, uint32_t rule);
expr_id expr_token(struct exprs *x, int32_t token, bool negated);
expr_id expr_and(struct exprs *x, expr_id a, expr_id b);
expr_id expr_not(struct exprs *x, expr_id a);
expr_id expr_dfa(struct exprs *x, struct dfa *dfa); // takes ownership

// Adds a rule without a body; UINT32_MAX if memory runs out. The name is copied.
uint32_t exprs_rule(struct exprs *x, struct str name);
// Whether the expression matches the empty text. Calls of rules count as not matching it.
bool expr_nullable(const struct exprs *x, expr_id e);

// --- sets of characters ---

struct char_range {
    uint32_t from, to;
};
// Ranges in any order. Zero-initialise it before use.
struct char_set {
    struct char_range *at;
    size_t n, cap;
    bool failed;
};
enum { CHAR_MAX_CODE = 0x10FFFF };

void char_set_add(struct char_set *s, uint32_t from, uint32_t to);
void char_set_add_set(struct char_set *s, const struct char_set *more);
// Sorts the ranges and joins those that touch.
void char_set_normalize(struct char_set *s);
// Replaces the set by all other characters. Surrogates are not characters.
void char_set_negate(struct char_set *s);
void char_set_free(struct char_set *s);
// One character of the set, as UTF-8. Normalizes the set.
expr_id expr_chars(struct exprs *x, struct char_set *s);
// Any one character.
expr_id expr_any_char(struct exprs *x);

#endif
