// The fields of a body by their kinds: each function takes one field, whose name goes into its errors.
//
// A field that is absent or null leaves *out as it is, except where a function says otherwise. Errors: E_USAGE.
// Ownership: what is taken belongs to the body. Threads: any.
#ifndef QUERN_BATCH_VALUES_H
#define QUERN_BATCH_VALUES_H

#include "engine/value.h"

// NULL: the field is absent or null.
const struct value *body_get(const struct value *body, const char *key);
// Fails with "KEY: KIND where WANTED is wanted".
int body_wrong_kind(const char *key, const struct value *v, const char *wanted, struct error *err);
// A number from least to most.
int body_take_real(const struct value *body, const char *key, double least, double most, double *out,
                   struct error *err);
int body_take_integer(const struct value *body, const char *key, int64_t least, int64_t most, int64_t *out,
                      struct error *err);
int body_take_bool(const struct value *body, const char *key, bool *out, struct error *err);
// A value of one kind; *out is NULL without it.
int body_take_kind(const struct value *body, const char *key, enum value_kind kind, const char *wanted,
                   const struct value **out, struct error *err);

#endif
