// A mutator of fuzz targets that read JSON: it takes whole values, which random bytes seldom do, and leaves them out,
// repeats them, puts another value of the text in their place, or one that readers like to forget.
#ifndef QUERN_MUTATE_JSON_H
#define QUERN_MUTATE_JSON_H

#include "tests/fuzz/mutate.h"

#include <stdlib.h>
#include <string.h>

static const char *const mutate_json_odd[] = {
    "null",
    "true",
    "0",
    "-1",
    "-0",
    "1e999",
    "9223372036854775808",
    "0.5",
    "\"\"",
    "[]",
    "{}",
    "[[[[]]]]",
    "1E-400",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\ud83d\\ude00\"",
    "\"\\u202e\\n\"",
    "\"\xff\xfe\"",
    "{\"\":1}",
    "[null]",
    "nan",
    "\"a\",\"a\":\"b\"",
    "2147483648",
    "\"system\"",
};

// The first byte at or behind `at` with which a value begins; `size` if there is none.
static inline size_t mutate_json_start(const uint8_t *data, size_t size, size_t at)
{
    while (at < size && !strchr("\"[{-0123456789tfn", data[at]))
        at++;
    return at;
}

// The end of the string that begins at `at`.
static inline size_t mutate_json_string_end(const uint8_t *data, size_t size, size_t at)
{
    for (at++; at < size && data[at] != '"'; at++)
        if (data[at] == '\\')
            at++;
    return at < size ? at + 1 : size;
}

// The end of the value that begins at `at`.
static inline size_t mutate_json_end(const uint8_t *data, size_t size, size_t at)
{
    size_t depth = 0;
    if (at >= size || data[at] == '"')
        return mutate_json_string_end(data, size, at);
    if (!strchr("[{", data[at])) {
        while (at < size && !strchr(",:]} \r\n\t", data[at]))
            at++;
        return at;
    }
    while (at < size) {
        if (data[at] == '"') {
            at = mutate_json_string_end(data, size, at);
            continue;
        }
        depth += strchr("[{", data[at]) != NULL;
        depth -= strchr("]}", data[at]) != NULL;
        at++;
        if (!depth)
            break;
    }
    return at;
}

// Puts n bytes in the place of those from `from` to `to`. Returns the new size; the old one if there is no room.
static inline size_t mutate_json_put(uint8_t *data, size_t size, size_t max, size_t from, size_t to, const void *bytes,
                                     size_t n)
{
    if (size - (to - from) + n > max)
        return size;
    memmove(data + from + n, data + to, size - to);
    memcpy(data + from, bytes, n);
    return size - (to - from) + n;
}

// Puts a copy of a value behind it, or in the place of another one.
static inline size_t mutate_json_copy(uint8_t *data, size_t size, size_t max, size_t from, size_t to, size_t at)
{
    size_t n = to - from, other = mutate_json_start(data, size, at);
    uint8_t *copy = malloc(n + 1);
    if (!copy)
        return size;
    copy[0] = ',';
    memcpy(copy + 1, data + from, n);
    if (at % 2 || other >= size)
        size = mutate_json_put(data, size, max, to, to, copy, n + 1);
    else
        size = mutate_json_put(data, size, max, other, mutate_json_end(data, size, other), copy + 1, n);
    free(copy);
    return size;
}

// `head` bytes in front are not part of the text. Returns the new size.
static inline size_t mutate_json(uint8_t *data, size_t size, size_t max, size_t head, unsigned seed,
                                 size_t (*otherwise)(uint8_t *, size_t, size_t))
{
    uint32_t state = seed;
    for (unsigned i = mutate_random(&state) % 3 + 1; i > 0; i--) {
        unsigned how = mutate_random(&state) % 8;
        if (how < 3 || size <= head)
            return otherwise(data, size, max);
        size_t from = mutate_json_start(data, size, head + mutate_random(&state) % (size - head));
        size_t to = mutate_json_end(data, size, from);
        const char *odd = mutate_json_odd[mutate_random(&state) % (sizeof mutate_json_odd / sizeof *mutate_json_odd)];
        if (from >= size)
            continue;
        if (how == 3) // the comma goes, too
            size = mutate_json_put(data, size, max, from, to + (to < size && data[to] == ','), "", 0);
        else if (how < 6)
            size = mutate_json_put(data, size, max, from, to, odd, strlen(odd));
        else
            size = mutate_json_copy(data, size, max, from, to, head + mutate_random(&state) % (size - head));
    }
    return size;
}

#endif
