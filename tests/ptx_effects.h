// Tells that a change of a kernel's text cannot have an effect, so that tests which must detect changes do not count it:
//   - an instruction that only writes registers which nothing reads before they are written again (places of threads are
//     computed again and again, and not all of them are used each time);
//   - a product with 1 that is left out, or 0 that is subtracted and not added;
//   - an instruction that writes what its register has already: a constant, or what follows from the thread's number, by
//     the only line that ever writes that register.
// All are told from the text alone: the first of them by the liveness of registers along all branches.
//
// Ownership: texts belong to the caller. Threads: one.
#ifndef QUERN_PTX_EFFECTS_H
#define QUERN_PTX_EFFECTS_H

#include "gguf/base.h"

// Whether the line at `where`, in which the two texts differ, has no effect in either. Texts have at most 8,192 lines and
// 512 names of registers; of larger ones it says nothing.
bool effects_are_none(struct str text, struct str changed, size_t where);

#endif
