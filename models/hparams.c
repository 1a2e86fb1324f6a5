// Each read builds the name of its key from the family's name, looks it up in the file and checks its range. After
// the first error no key is looked up any more; later reads return their fallback, so that a family need not check in
// between.
#include "models/hparams.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

struct key {
    char text[160];
};

static struct key key_of(const struct hparams *h, const char *name)
{
    struct key key;
    snprintf(key.text, sizeof key.text, "%s.%s", h->arch, name);
    return key;
}

void hparam_refuse(struct hparams *h, const char *name, const char *fmt, ...)
{
    if (h->fault->code != E_OK)
        return;
    char text[ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    struct key key = key_of(h, name);
    const struct gguf_kv *kv = gguf_find(h->file, key.text);
    gguf_fail(h->file, kv ? kv->shard : 0, kv ? kv->offset : ERR_NO_OFFSET, h->fault, "key '%s': %s", key.text, text);
}

// Whether the key exists; false after an error.
static bool present(const struct hparams *h, const char *name)
{
    return h->fault->code == E_OK && gguf_find(h->file, key_of(h, name).text);
}

static void need(struct hparams *h, const char *name)
{
    if (!present(h, name))
        hparam_refuse(h, name, "is missing");
}

static bool in_range(struct hparams *h, const char *name, int64_t v, int64_t lo, int64_t hi)
{
    if (lo <= v && v <= hi)
        return true;
    hparam_refuse(h, name, "%" PRId64 " is out of range, wanted %" PRId64 " to %" PRId64, v, lo, hi);
    return false;
}

int64_t hparam_int_or(struct hparams *h, const char *name, int64_t lo, int64_t hi, int64_t fallback)
{
    int64_t v;
    if (!present(h, name) || gguf_get_i64(h->file, key_of(h, name).text, &v, h->fault) != 1)
        return fallback;
    return in_range(h, name, v, lo, hi) ? v : fallback;
}

int64_t hparam_int(struct hparams *h, const char *name, int64_t lo, int64_t hi)
{
    need(h, name);
    return hparam_int_or(h, name, lo, hi, lo);
}

bool hparam_flag_or(struct hparams *h, const char *name, bool fallback)
{
    bool v;
    return present(h, name) && gguf_get_bool(h->file, key_of(h, name).text, &v, h->fault) == 1 ? v : fallback;
}

bool hparam_flag(struct hparams *h, const char *name)
{
    need(h, name);
    return hparam_flag_or(h, name, false);
}

static void read_elements(struct hparams *h, const char *name, const struct gguf_kv *array, int64_t lo, int64_t hi,
                          int *out)
{
    for (uint64_t i = 0; i < array->count; i++) {
        int64_t v = gguf_array_i64(array, i);
        if (!in_range(h, name, v, lo, hi))
            return;
        out[i] = (int)v;
    }
}

bool hparam_is_array(struct hparams *h, const char *name)
{
    return present(h, name) && gguf_find(h->file, key_of(h, name).text)->type == GGUF_ARRAY;
}

// An array of one element for each of n layers; NULL after an error.
static const struct gguf_kv *layer_array(struct hparams *h, const char *name, enum gguf_type element, int n)
{
    const struct gguf_kv *array;
    if (gguf_get_array(h->file, key_of(h, name).text, element, &array, h->fault) != 1)
        return NULL;
    if (array->count == (uint64_t)n)
        return array;
    hparam_refuse(h, name, "is an array of %" PRIu64 ", wanted one of %d, the number of layers", array->count, n);
    return NULL;
}

bool hparam_layer_flag(struct hparams *h, const char *name, int layer, int n)
{
    if (!hparam_is_array(h, name))
        return false;
    // Some writers save flags as integers.
    const bool flags = gguf_find(h->file, key_of(h, name).text)->element == GGUF_BOOL;
    const struct gguf_kv *array = layer_array(h, name, flags ? GGUF_BOOL : GGUF_I32, n);
    return array && gguf_array_i64(array, (uint64_t)layer);
}

void hparam_array_or(struct hparams *h, const char *name, int max, int64_t lo, int64_t hi, int *out)
{
    const struct gguf_kv *array;
    if (!present(h, name) || gguf_get_array(h->file, key_of(h, name).text, GGUF_I32, &array, h->fault) != 1)
        return;
    if (array->count <= (uint64_t)max)
        read_elements(h, name, array, lo, hi, out);
    else
        hparam_refuse(h, name, "is an array of %" PRIu64 ", wanted one of %d or fewer", array->count, max);
}

void hparam_layers_or(struct hparams *h, const char *name, int n, int64_t lo, int64_t hi, int *out)
{
    if (!present(h, name))
        return;
    if (hparam_is_array(h, name)) {
        const struct gguf_kv *array = layer_array(h, name, GGUF_I32, n);
        if (array)
            read_elements(h, name, array, lo, hi, out);
        return;
    }
    int all = (int)hparam_int_or(h, name, lo, hi, lo);
    for (int i = 0; i < n; i++)
        out[i] = all;
}

void hparam_layers(struct hparams *h, const char *name, int n, int64_t lo, int64_t hi, int *out)
{
    for (int i = 0; i < n; i++)
        out[i] = (int)lo; // the values are in range after an error, too
    need(h, name);
    hparam_layers_or(h, name, n, lo, hi, out);
}

static float read_number(struct hparams *h, const char *name, float fallback, bool zero_is_absent)
{
    float v;
    if (!present(h, name) || gguf_get_f32(h->file, key_of(h, name).text, &v, h->fault) != 1)
        return fallback;
    if (isfinite(v) && v > 0)
        return v;
    if (v != 0 || !zero_is_absent)
        hparam_refuse(h, name, "%g is out of range, wanted a finite number above 0", (double)v);
    return fallback;
}

float hparam_positive_or(struct hparams *h, const char *name, float fallback)
{
    return read_number(h, name, fallback, false);
}

float hparam_positive(struct hparams *h, const char *name)
{
    need(h, name);
    return read_number(h, name, 1, false);
}

float hparam_not_negative(struct hparams *h, const char *name)
{
    need(h, name);
    return read_number(h, name, 0, true);
}

float hparam_factor_or(struct hparams *h, const char *name, float fallback)
{
    return read_number(h, name, fallback, true);
}

float hparam_layer_number_or(struct hparams *h, const char *name, int layer, int n, float fallback)
{
    const struct gguf_kv *array;
    if (!hparam_is_array(h, name))
        return hparam_factor_or(h, name, fallback);
    if (gguf_get_array(h->file, key_of(h, name).text, GGUF_F32, &array, h->fault) != 1)
        return fallback;
    const float v = array->count >= (uint64_t)n ? gguf_array_f32(array, (uint64_t)layer) : 0;
    if (array->count < (uint64_t)n)
        hparam_refuse(h, name, "is an array of %" PRIu64 ", wanted one of %d or more", array->count, n);
    else if (!isfinite(v) || v < 0)
        hparam_refuse(h, name, "element %d is %g, wanted is a finite number that is not negative", layer, (double)v);
    return h->fault->code == E_OK ? v : fallback;
}

int hparam_word_or(struct hparams *h, const char *name, const char *const *words, int fallback)
{
    struct str s;
    if (!present(h, name) || gguf_get_str(h->file, key_of(h, name).text, &s, h->fault) != 1)
        return fallback;
    char known[160] = "";
    for (int i = 0; words[i]; i++) {
        if (str_equal_z(s, words[i]))
            return i;
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", words[i]);
    }
    hparam_refuse(h, name, "'%.*s' is not known, wanted one of: %s", (int)MIN(s.len, (size_t)64), s.data, known);
    return fallback;
}
