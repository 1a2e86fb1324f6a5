// The typed readers of keys.
#include "gguf/gguf_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

// clang-format off
static const struct { const char *name; uint8_t bytes; } types[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = {"u8", 1},         [GGUF_I8] = {"i8", 1},    [GGUF_U16] = {"u16", 2}, [GGUF_I16] = {"i16", 2},
    [GGUF_U32] = {"u32", 4},       [GGUF_I32] = {"i32", 4},  [GGUF_U64] = {"u64", 8}, [GGUF_I64] = {"i64", 8},
    [GGUF_F32] = {"f32", 4},       [GGUF_F64] = {"f64", 8},  [GGUF_BOOL] = {"bool", 1},
    [GGUF_STRING] = {"string", 0}, [GGUF_ARRAY] = {"array", 0},
};
// clang-format on

const char *gguf_type_name(enum gguf_type type)
{
    return (unsigned)type < GGUF_TYPE_COUNT ? types[type].name : "unknown";
}

size_t gguf_type_bytes(enum gguf_type type)
{
    return (unsigned)type < GGUF_TYPE_COUNT ? types[type].bytes : 0;
}

static bool is_integer(enum gguf_type type)
{
    return type != GGUF_F32 && type != GGUF_F64 && type != GGUF_BOOL && type != GGUF_STRING && type != GGUF_ARRAY;
}

// ---- Elements ----

#define LOAD(T)                                                                                                        \
    T v;                                                                                                               \
    memcpy(&v, array->data + i * sizeof v, sizeof v)

static int64_t int_from_double(double v)
{
    if (v != v)
        return 0;
    if (v >= 0x1p63)
        return INT64_MAX;
    return v < -0x1p63 ? INT64_MIN : (int64_t)v;
}

static double element_f64(const struct gguf_kv *array, uint64_t i)
{
    if (array->element == GGUF_F32) {
        LOAD(float);
        return v;
    }
    LOAD(double);
    return v;
}

static uint64_t element_u64(const struct gguf_kv *array, uint64_t i)
{
    LOAD(uint64_t);
    return v;
}

// An element of a bool or integer type other than U64.
static int64_t element_i64(const struct gguf_kv *array, uint64_t i)
{
    switch (array->element) {
    case GGUF_U8:
    case GGUF_BOOL:
        return array->data[i];
    case GGUF_I8:
        return (int8_t)array->data[i];
    case GGUF_U16: {
        LOAD(uint16_t);
        return v;
    }
    case GGUF_I16: {
        LOAD(int16_t);
        return v;
    }
    case GGUF_U32: {
        LOAD(uint32_t);
        return v;
    }
    case GGUF_I32: {
        LOAD(int32_t);
        return v;
    }
    default: {
        LOAD(int64_t);
        return v;
    }
    }
}

int64_t gguf_array_i64(const struct gguf_kv *array, uint64_t i)
{
    assert(array->data && i < array->count);
    if (array->element == GGUF_F32 || array->element == GGUF_F64)
        return int_from_double(element_f64(array, i));
    if (array->element == GGUF_U64)
        return (int64_t)MIN(element_u64(array, i), (uint64_t)INT64_MAX);
    return element_i64(array, i);
}

float gguf_array_f32(const struct gguf_kv *array, uint64_t i)
{
    assert(array->data && i < array->count);
    if (array->element == GGUF_F32 || array->element == GGUF_F64)
        return (float)element_f64(array, i);
    if (array->element == GGUF_U64)
        return (float)element_u64(array, i);
    return (float)element_i64(array, i);
}

// ---- Keys ----

__attribute__((format(printf, 4, 5))) static int refuse(const struct gguf *g, const struct gguf_kv *kv,
                                                        struct error *err, const char *fmt, ...)
{
    char text[ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return shard_fail(&g->shards[kv->shard], err, E_MODEL, kv->offset, "key '%.*s': %s", SHORT_ARG(kv->key), text);
}
// As with fail, analysers see the value.
#define refuse(...) minus_one(refuse(__VA_ARGS__))

static int refuse_type(const struct gguf *g, const struct gguf_kv *kv, const char *wanted, struct error *err)
{
    if (kv->type == GGUF_ARRAY)
        return refuse(g, kv, err, "is an array of %s, wanted %s", gguf_type_name(kv->element), wanted);
    return refuse(g, kv, err, "has type %s, wanted %s", gguf_type_name(kv->type), wanted);
}

int gguf_get_i64(const struct gguf *g, const char *key, int64_t *out, struct error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return 0;
    if (!is_integer(kv->type))
        return refuse_type(g, kv, "an integer", err);
    if (kv->type == GGUF_U64 && element_u64(kv, 0) > INT64_MAX)
        return refuse(g, kv, err, "%" PRIu64 " is out of range", element_u64(kv, 0));
    *out = gguf_array_i64(kv, 0);
    return 1;
}

int gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct error *err)
{
    int64_t v;
    int found = gguf_get_i64(g, key, &v, err);
    if (found != 1)
        return found;
    if (v < 0 || v > UINT32_MAX)
        return refuse(g, gguf_find(g, key), err, "%" PRId64 " is out of range, wanted 0 to %" PRIu32, v, UINT32_MAX);
    *out = (uint32_t)v;
    return 1;
}

int gguf_get_f32(const struct gguf *g, const char *key, float *out, struct error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return 0;
    if (!is_integer(kv->type) && kv->type != GGUF_F32 && kv->type != GGUF_F64)
        return refuse_type(g, kv, "a number", err);
    *out = gguf_array_f32(kv, 0);
    return 1;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return 0;
    if (kv->type != GGUF_BOOL)
        return refuse_type(g, kv, "a bool", err);
    *out = kv->data[0] != 0;
    return 1;
}

int gguf_get_str(const struct gguf *g, const char *key, struct str *out, struct error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return 0;
    if (kv->type != GGUF_STRING)
        return refuse_type(g, kv, "a string", err);
    *out = kv->strings[0];
    return 1;
}

static bool element_fits(enum gguf_type have, enum gguf_type want)
{
    bool words = (have == GGUF_I32 || have == GGUF_U32) && (want == GGUF_I32 || want == GGUF_U32);
    return have == want || words;
}

int gguf_get_array(const struct gguf *g, const char *key, enum gguf_type element, const struct gguf_kv **out,
                   struct error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return 0;
    char wanted[32];
    snprintf(wanted, sizeof wanted, "an array of %s", gguf_type_name(element));
    if (kv->type != GGUF_ARRAY || !element_fits(kv->element, element))
        return refuse_type(g, kv, wanted, err);
    *out = kv;
    return 1;
}
