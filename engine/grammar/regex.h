// Regular expressions as JSON Schemas use them (ECMA-262 with the flag u), as expressions over UTF-8.
//
// Literals, classes, escapes, groups, greedy and lazy repeats, anchors, \p{..} of general categories, and lookaheads
// that stand in no group. What a search for the pattern would find is what matches, so that without anchors the
// pattern may lie anywhere. Back references, lookbehinds, \b and \B are refused by name.
// Threads: one at a time.
#ifndef QUERN_REGEX_H
#define QUERN_REGEX_H

#include "engine/grammar/expr.h"

// The texts in which the pattern is found. E_USAGE: "pattern: column C: ..."; E_MEMORY.
int regex_compile(expr_id *out, struct exprs *x, struct str pattern, struct error *err);

#endif
