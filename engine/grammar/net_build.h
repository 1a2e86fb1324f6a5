// Builds the nets of a grammar from its expressions.
//
// Ownership: net_free frees what a net holds. Threads: one at a time.
#ifndef QUERN_NET_BUILD_H
#define QUERN_NET_BUILD_H

#include "engine/grammar/net.h"

// Adds the rule `lead`: up to 4 characters of white space, then the root. UINT32_MAX if memory runs out.
uint32_t net_add_lead(struct exprs *x, uint32_t root);
// Builds the nets of the rules that `lead` needs, which include those that `root` needs. The expressions must be
// lowered (dfa_build.h). E_USAGE: a rule is not defined or is left-recursive, or the grammar matches no text or is too
// large. E_MEMORY.
int net_build(struct net *net, struct exprs *x, uint32_t root, uint32_t lead, const struct byte_set *available,
              struct error *err);
// Builds the net of one regular expression, as rule 0.
int net_build_regular(struct net *net, struct exprs *x, expr_id e, struct error *err);
void net_free(struct net *net);

#endif
