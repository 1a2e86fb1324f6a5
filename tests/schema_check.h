// A simple validator of JSON Schemas for tests, on cJSON. It supports the keywords that the random schemas of the tests
// use, and shares no code with the compiler that it checks.
//
// Patterns are POSIX extended expressions here, so tests use only patterns that both dialects read alike. Threads: no
// shared state.
#ifndef QUERN_SCHEMA_CHECK_H
#define QUERN_SCHEMA_CHECK_H

#include <assert.h>
#include <cjson/cJSON.h>
#include <math.h>
#include <regex.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static inline bool check_value(const cJSON *root, const cJSON *s, const cJSON *v);

static inline int check_chars(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static inline bool check_type(const char *type, const cJSON *v)
{
    if (!strcmp(type, "integer"))
        return cJSON_IsNumber(v) && v->valuedouble == floor(v->valuedouble);
    return (!strcmp(type, "null") && cJSON_IsNull(v)) || (!strcmp(type, "boolean") && cJSON_IsBool(v)) ||
           (!strcmp(type, "number") && cJSON_IsNumber(v)) || (!strcmp(type, "string") && cJSON_IsString(v)) ||
           (!strcmp(type, "array") && cJSON_IsArray(v)) || (!strcmp(type, "object") && cJSON_IsObject(v));
}

static inline bool check_pattern(const char *pattern, const char *text)
{
    regex_t r;
    bool compiled = regcomp(&r, pattern, REG_EXTENDED | REG_NOSUB) == 0;
    assert(compiled);
    bool found = regexec(&r, text, 0, NULL, 0) == 0;
    regfree(&r);
    return found;
}

static inline bool check_scalar(const cJSON *s, const cJSON *v)
{
    const cJSON *k;
    double d = v->valuedouble;
    if (cJSON_IsNumber(v)) {
        if ((k = cJSON_GetObjectItem(s, "minimum")) && d < k->valuedouble)
            return false;
        if ((k = cJSON_GetObjectItem(s, "maximum")) && d > k->valuedouble)
            return false;
        if ((k = cJSON_GetObjectItem(s, "exclusiveMinimum")) && d <= k->valuedouble)
            return false;
        if ((k = cJSON_GetObjectItem(s, "exclusiveMaximum")) && d >= k->valuedouble)
            return false;
        if ((k = cJSON_GetObjectItem(s, "multipleOf")) && fmod(d, k->valuedouble) != 0)
            return false;
    }
    if (cJSON_IsString(v)) {
        if ((k = cJSON_GetObjectItem(s, "minLength")) && check_chars(v->valuestring) < k->valueint)
            return false;
        if ((k = cJSON_GetObjectItem(s, "maxLength")) && check_chars(v->valuestring) > k->valueint)
            return false;
        if ((k = cJSON_GetObjectItem(s, "pattern")) && !check_pattern(k->valuestring, v->valuestring))
            return false;
    }
    return true;
}

static inline bool check_array(const cJSON *root, const cJSON *s, const cJSON *v)
{
    const cJSON *k, *item, *prefix = cJSON_GetObjectItem(s, "prefixItems"), *items = cJSON_GetObjectItem(s, "items");
    int i = 0, matches = 0, n_prefix = cJSON_GetArraySize(prefix);
    const cJSON *contains = cJSON_GetObjectItem(s, "contains");
    cJSON_ArrayForEach(item, v)
    {
        const cJSON *rule = i < n_prefix ? cJSON_GetArrayItem(prefix, i) : items;
        if (rule && !check_value(root, rule, item))
            return false;
        matches += contains && check_value(root, contains, item);
        for (int k2 = 0; cJSON_IsTrue(cJSON_GetObjectItem(s, "uniqueItems")) && k2 < i; k2++)
            if (cJSON_Compare(item, cJSON_GetArrayItem(v, k2), true))
                return false;
        i++;
    }
    if (((k = cJSON_GetObjectItem(s, "minItems")) && i < k->valueint) ||
        ((k = cJSON_GetObjectItem(s, "maxItems")) && i > k->valueint))
        return false;
    return !contains || matches > 0;
}

static inline bool check_object(const cJSON *root, const cJSON *s, const cJSON *v)
{
    const cJSON *k, *at, *props = cJSON_GetObjectItemCaseSensitive(s, "properties");
    const cJSON *more = cJSON_GetObjectItemCaseSensitive(s, "additionalProperties");
    int n = 0;
    cJSON_ArrayForEach(at, v)
    {
        const cJSON *rule = cJSON_GetObjectItemCaseSensitive(props, at->string);
        if ((rule || more) && !check_value(root, rule ? rule : more, at))
            return false;
        bool first = true; // a name that comes twice is one property
        for (const cJSON *before = v->child; before != at; before = before->next)
            first = first && strcmp(before->string, at->string) != 0;
        n += first;
    }
    cJSON_ArrayForEach(
        k, cJSON_GetObjectItem(s, "required")) if (!cJSON_GetObjectItemCaseSensitive(v, k->valuestring)) return false;
    return (!(k = cJSON_GetObjectItem(s, "minProperties")) || n >= k->valueint) &&
           (!(k = cJSON_GetObjectItem(s, "maxProperties")) || n <= k->valueint);
}

static inline bool check_combined(const cJSON *root, const cJSON *s, const cJSON *v)
{
    const cJSON *k, *part;
    int n = 0, held = 0;
    cJSON_ArrayForEach(part, cJSON_GetObjectItem(s, "allOf")) if (!check_value(root, part, v)) return false;
    cJSON_ArrayForEach(part, cJSON_GetObjectItem(s, "anyOf")) n++, held += check_value(root, part, v);
    if (n && !held)
        return false;
    n = held = 0;
    cJSON_ArrayForEach(part, cJSON_GetObjectItem(s, "oneOf")) n++, held += check_value(root, part, v);
    if (n && held != 1)
        return false;
    if ((k = cJSON_GetObjectItem(s, "not")) && check_value(root, k, v))
        return false;
    if ((k = cJSON_GetObjectItem(s, "if"))) {
        k = cJSON_GetObjectItem(s, check_value(root, k, v) ? "then" : "else");
        if (k && !check_value(root, k, v))
            return false;
    }
    k = cJSON_GetObjectItem(s, "$ref"); // "#/$defs/NAME" alone
    return !k || check_value(root, cJSON_GetObjectItem(cJSON_GetObjectItem(root, "$defs"), k->valuestring + 8), v);
}

static inline bool check_value(const cJSON *root, const cJSON *s, const cJSON *v)
{
    const cJSON *k, *one;
    if (cJSON_IsBool(s))
        return cJSON_IsTrue(s);
    if ((k = cJSON_GetObjectItem(s, "type"))) {
        bool is = cJSON_IsString(k) && check_type(k->valuestring, v);
        cJSON_ArrayForEach(one, k) is = is || check_type(one->valuestring, v);
        if (!is)
            return false;
    }
    if ((k = cJSON_GetObjectItem(s, "const")) && !cJSON_Compare(k, v, true))
        return false;
    if ((k = cJSON_GetObjectItem(s, "enum"))) {
        bool is = false;
        cJSON_ArrayForEach(one, k) is = is || cJSON_Compare(one, v, true);
        if (!is)
            return false;
    }
    return check_scalar(s, v) && (!cJSON_IsArray(v) || check_array(root, s, v)) &&
           (!cJSON_IsObject(v) || check_object(root, s, v)) && check_combined(root, s, v);
}

#endif
