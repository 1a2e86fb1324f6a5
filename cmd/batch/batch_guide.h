// The form that a body asks of its answer: response_format, and what other engines have beside it.
//
// Ownership: what is made of the body lives in the row's arena. Threads: one at a time.
#ifndef QUERN_BATCH_GUIDE_H
#define QUERN_BATCH_GUIDE_H

#include "cmd/batch/batch_row.h"

// Sets the form in the row. E_USAGE names the field at fault, or the second one that asks for a form.
int batch_guide_take(struct batch_row *row, const struct value *body, struct error *err);
// Sets the form that the field `name` asks for; E_USAGE when another one did so before.
int batch_guide_set(struct batch_row *row, const char *name, enum row_guide guide, const struct value *v,
                    struct error *err);

#endif
