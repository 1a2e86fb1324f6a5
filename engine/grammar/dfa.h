// Deterministic automata of regular expressions, for what an expression alone cannot say: both of two, and not this.
//
// State DFA_DEAD leads nowhere else. Ownership: dfa_free. Threads: read-only once built.
#ifndef QUERN_DFA_H
#define QUERN_DFA_H

#include "engine/grammar/expr.h"

// DFA_WORK_MAX: looks at a transition that the automata of one grammar take together, and all that is counted like
// them: some 0.08 s of a core's time. The format `regex` takes 9 million of them, other formats 0.4 million at most.
enum { DFA_DEAD = 0, DFA_STATES_MAX = 1 << 16, DFA_WORK_MAX = 1 << 25 };

struct dfa {
    uint32_t n, start;
    uint32_t n_classes;
    uint8_t class_of[256];
    uint32_t *next; // [n][n_classes]
    bool *accept;   // [n]
};

// E_USAGE when it would have more than DFA_STATES_MAX states; E_MEMORY.
int dfa_from_expr(struct dfa **out, struct exprs *x, expr_id e, struct error *err);
// Counts work; false when it is more than a grammar may take: then dfa_too_much says so.
bool dfa_spend(struct exprs *x, uint64_t looks);
int dfa_too_much(struct error *err);
void dfa_free(struct dfa *d); // NULL is fine
bool dfa_accepts_empty(const struct dfa *d);
bool dfa_accepts(const struct dfa *d, struct str text);
bool dfa_is_empty(const struct dfa *d);
uint32_t dfa_size(const struct dfa *d); // ops of a net that holds it
// Replaces, in every rule, what only an automaton can say by that automaton.
int exprs_lower(struct exprs *x, struct error *err);
// The same of one expression: EXPR_NEVER and an error in *err.
int expr_lower(struct exprs *x, expr_id e, expr_id *out, struct error *err);

// The ways out of a state, a set of bytes for each state that they lead to; those to the dead state left out.
struct dfa_edges {
    struct byte_set *sets;
    uint32_t *to, n;
};
bool dfa_edges(struct dfa_edges *out, const struct dfa *d, uint32_t state);
void dfa_edges_free(struct dfa_edges *edges);

#endif
