// Deterministic finite automata of regular expressions, for intersection and complement, which nets cannot express.
//
// State DFA_DEAD is a sink: no text leads out of it. Ownership: dfa_free. Threads: read-only once built.
#ifndef QUERN_DFA_H
#define QUERN_DFA_H

#include "engine/grammar/expr.h"

// DFA_WORK_MAX: the limit of construction work for all automata of one grammar, counted in visited transitions; about
// 0.08 s on one core. The format `regex` takes 9 million, every other format at most 0.4 million.
enum { DFA_DEAD = 0, DFA_STATES_MAX = 1 << 16, DFA_WORK_MAX = 1 << 25 };

struct dfa {
    uint32_t n, start;
    uint32_t n_classes;
    uint8_t class_of[256];
    uint32_t *next; // [n][n_classes]
    bool *accept;   // [n]
};

// E_USAGE if the automaton would have more than DFA_STATES_MAX states; E_MEMORY.
int dfa_from_expr(struct dfa **out, struct exprs *x, expr_id e, struct error *err);
// Adds to the work of this grammar. Returns false if the sum exceeds DFA_WORK_MAX; dfa_too_much reports that error.
bool dfa_spend(struct exprs *x, uint64_t looks);
int dfa_too_much(struct error *err);
void dfa_free(struct dfa *d); // NULL is fine
bool dfa_accepts_empty(const struct dfa *d);
bool dfa_accepts(const struct dfa *d, struct str text);
bool dfa_is_empty(const struct dfa *d);
uint32_t dfa_size(const struct dfa *d); // the number of ops that it takes in a net
// Replaces every expression in the rules that contains X_AND or X_NOT by an automaton.
int exprs_lower(struct exprs *x, struct error *err);
// The same for one expression that is not itself X_AND or X_NOT. On failure it returns -1.
int expr_lower(struct exprs *x, expr_id e, expr_id *out, struct error *err);

// The outgoing edges of a state: one set of bytes for each target state. Edges to DFA_DEAD are left out.
struct dfa_edges {
    struct byte_set *sets;
    uint32_t *to, n;
};
bool dfa_edges(struct dfa_edges *out, const struct dfa *d, uint32_t state);
void dfa_edges_free(struct dfa_edges *edges);

#endif
