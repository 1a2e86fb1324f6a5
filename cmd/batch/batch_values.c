// Numbers, flags and containers among the fields of a body.
#include "cmd/batch/batch_values.h"

#include <math.h>

const struct value *body_get(const struct value *body, const char *key)
{
    const struct value *v = value_get(body, key);
    return value_is(v, VALUE_NONE) ? NULL : v; // null means that the field is not set
}

int body_wrong_kind(const char *key, const struct value *v, const char *wanted, struct error *err)
{
    return fail(err, E_USAGE, "%s: %s where %s is wanted", key, value_kind_name(v), wanted);
}

int body_take_real(const struct value *body, const char *key, double least, double most, double *out, struct error *err)
{
    const struct value *v = body_get(body, key);
    double number;
    if (!v)
        return 0;
    if (!value_number(v, &number))
        return body_wrong_kind(key, v, "a number", err);
    if (!(number >= least && number <= most))
        return fail(err, E_USAGE, "%s: %.9g: from %.9g to %.9g", key, number, least, most);
    *out = number;
    return 0;
}

int body_take_integer(const struct value *body, const char *key, int64_t least, int64_t most, int64_t *out,
                      struct error *err)
{
    double number;
    const struct value *v = body_get(body, key);
    if (!v)
        return 0;
    if (!value_number(v, &number))
        return body_wrong_kind(key, v, "a whole number", err);
    if (!(number >= (double)least && number <= (double)most))
        return fail(err, E_USAGE, "%s: %.0f: from %lld to %lld", key, number, (long long)least, (long long)most);
    if (number != nearbyint(number))
        return fail(err, E_USAGE, "%s: %.17g is no whole number", key, number);
    *out = (int64_t)number;
    return 0;
}

int body_take_bool(const struct value *body, const char *key, bool *out, struct error *err)
{
    const struct value *v = body_get(body, key);
    if (v && v->kind != VALUE_BOOL)
        return body_wrong_kind(key, v, "true or false", err);
    if (v)
        *out = v->boolean;
    return 0;
}

int body_take_kind(const struct value *body, const char *key, enum value_kind kind, const char *wanted,
                   const struct value **out, struct error *err)
{
    const struct value *v = body_get(body, key);
    if (v && v->kind != kind)
        return body_wrong_kind(key, v, wanted, err);
    *out = v;
    return 0;
}
