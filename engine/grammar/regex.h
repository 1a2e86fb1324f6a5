// Regular expressions as JSON Schema uses them (ECMA-262 with the flag u), translated to expressions over UTF-8.
//
// Supported are literals, classes, escapes, groups, greedy and lazy repeats, anchors, \p{..} of general categories,
// and lookaheads outside of groups. A pattern without anchors may match anywhere in the text, as in a search. Back
// references, lookbehinds, \b and \B are errors that name them.
// Threads: one at a time.
#ifndef QUERN_REGEX_H
#define QUERN_REGEX_H

#include "engine/grammar/expr.h"

// The texts in which the pattern is found. Errors: E_USAGE "pattern: column C: ...", E_MEMORY.
int regex_compile(expr_id *out, struct exprs *x, struct str pattern, struct error *err);
// The texts that the pattern matches as a whole, with or without anchors.
int regex_compile_whole(expr_id *out, struct exprs *x, struct str pattern, struct error *err);

#endif
