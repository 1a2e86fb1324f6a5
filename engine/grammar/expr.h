// What a grammar says, before it becomes an automaton: expressions over bytes, and rules that may call one another.
//
// GBNF, regular expressions and JSON Schemas all become this. Equal expressions are one and the same number, so that
// what a schema says twice is built once. Expressions are simplified as they are made: EXPR_NEVER, which matches
// nothing, swallows sequences and leaves choices. Characters are spelled as UTF-8.
//
// Ownership: a zeroed struct exprs is empty; exprs_free takes it all back. Threads: one at a time.
#ifndef QUERN_EXPR_H
#define QUERN_EXPR_H

#include "gguf/base.h"

enum expr_op {
    X_NEVER,  // nothing
    X_EMPTY,  // the empty text
    X_BYTES,  // one byte of set a
    X_CAT,    // a, then b; a is no X_CAT
    X_ALT,    // a or b; a is no X_ALT
    X_REPEAT, // a, at least min and at most max times (REPEAT_ANY: any number)
    X_RULE,   // rule a
    X_TOKEN,  // the token a; with b set: any other than it
    X_AND,    // a and b, both without rules and tokens
    X_NOT,    // any text but a, which is without rules and tokens
    X_DFA,    // automaton a (struct dfa)
};
enum { EXPR_NEVER = 0, EXPR_EMPTY = 1 };
#define REPEAT_ANY UINT32_MAX

typedef uint32_t expr_id;

struct expr {
    enum expr_op op;
    uint32_t a, b, min, max;
    bool regular; // no rules, no tokens within
    bool logic;   // an X_AND or X_NOT within
};

struct byte_set {
    uint64_t bits[4];
};

struct rule {
    const char *name;
    expr_id body;
    bool defined;
    int line, column; // where it was first spoken of
};

struct dfa;

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
    uint64_t work;  // that automata and sets of characters have taken, in looks at a transition
    bool failed;    // memory was short: everything since is EXPR_NEVER
    bool overgrown; // more expressions than EXPRS_MAX
};
enum { EXPRS_MAX = 1 << 21 };

void exprs_free(struct exprs *x);
// E_MEMORY or E_USAGE when something since the beginning did not fit.
int exprs_check(struct exprs *x, struct error *err);

expr_id expr_bytes(struct exprs *x, const struct byte_set *set);
expr_id expr_byte_range(struct exprs *x, uint8_t from, uint8_t to);
expr_id expr_text(struct exprs *x, struct str text);
expr_id expr_text_z(struct exprs *x, const char *text);
expr_id expr_cat(struct exprs *x, expr_id a, expr_id b);
expr_id expr_alt(struct exprs *x, expr_id a, expr_id b);
expr_id expr_cat_n(struct exprs *x, const expr_id *list, size_t n);
// Of many: nested to the right.
expr_id expr_alt_n(struct exprs *x, const expr_id *list, size_t n);
expr_id expr_repeat(struct exprs *x, expr_id a, uint32_t min, uint32_t max);
expr_id expr_optional(struct exprs *x, expr_id a);
expr_id expr_star(struct exprs *x, expr_id a);
expr_id expr_rule(struct exprs *x, uint32_t rule);
expr_id expr_token(struct exprs *x, int32_t token, bool negated);
expr_id expr_and(struct exprs *x, expr_id a, expr_id b);
expr_id expr_not(struct exprs *x, expr_id a);
expr_id expr_dfa(struct exprs *x, struct dfa *dfa); // takes it over

// A new rule, without a body yet; UINT32_MAX when memory is short. The name is copied.
uint32_t exprs_rule(struct exprs *x, struct str name);
// Whether the expression matches the empty text; rules count as not doing so, unless `rules` says otherwise.
bool expr_nullable(const struct exprs *x, expr_id e);

// --- sets of characters ---

struct char_range {
    uint32_t from, to;
};
// Ranges in any order; zero-initialise.
struct char_set {
    struct char_range *at;
    size_t n, cap;
    bool failed;
};
enum { CHAR_MAX_CODE = 0x10FFFF };

void char_set_add(struct char_set *s, uint32_t from, uint32_t to);
void char_set_add_set(struct char_set *s, const struct char_set *more);
// Sorts and joins; the others want it done.
void char_set_normalize(struct char_set *s);
// All other characters; surrogates are no characters.
void char_set_negate(struct char_set *s);
void char_set_free(struct char_set *s);
// One character of the set, as UTF-8.
expr_id expr_chars(struct exprs *x, struct char_set *s);
// Any character at all.
expr_id expr_any_char(struct exprs *x);

static inline bool byte_set_has(const struct byte_set *s, unsigned byte)
{
    return s->bits[byte >> 6] >> (byte & 63) & 1;
}
static inline void byte_set_add(struct byte_set *s, unsigned byte)
{
    s->bits[byte >> 6] |= UINT64_C(1) << (byte & 63);
}

#endif
