// Builds deterministic automata from expressions, and lowers expressions: intersection and complement are replaced by
// automata, because nets cannot express them. Threads: one at a time.
#ifndef QUERN_DFA_BUILD_H
#define QUERN_DFA_BUILD_H

#include "engine/grammar/expr.h"

// DFA_WORK_MAX: the limit of construction work for all automata of one grammar, counted in visited transitions; about
// 0.08 s on one core. The format `regex` takes 9 million, every other format at most 0.4 million.
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
enum { DFA_WORK_MAX = 1 << 20 }; // a sanitizer takes 30 to 60 times as long
#else
enum { DFA_WORK_MAX = 1 << 25 };
#endif

// E_USAGE if the automaton would have more than DFA_STATES_MAX states; E_MEMORY.
int dfa_from_expr(struct dfa **out, struct exprs *x, expr_id e, struct error *err);
// Adds to the work of this grammar. Returns false if the sum exceeds DFA_WORK_MAX; dfa_too_much reports that error.
bool dfa_spend(struct exprs *x, uint64_t looks);
int dfa_too_much(struct error *err);
// Replaces every expression in the rules that contains X_AND or X_NOT by an automaton.
int exprs_lower(struct exprs *x, struct error *err);
// The same for one expression that is not itself X_AND or X_NOT. On failure it returns -1.
int expr_lower(struct exprs *x, expr_id e, expr_id *out, struct error *err);

#endif
