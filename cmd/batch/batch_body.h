// The body of a row: what it asks for, checked without the model.
//
// Ownership: the row views the body, which must live in the row's arena. Threads: one at a time.
#ifndef QUERN_BATCH_BODY_H
#define QUERN_BATCH_BODY_H

#include "cmd/batch/batch_row.h"

// Sets all that comes from the body in a row whose kind is known. E_USAGE names the field at fault.
int batch_body_take(struct batch_row *row, const struct value *body, struct error *err);

#endif
