// A mutator that knows the layout of a GGUF file: it changes counts, lengths, types, dimensions and offsets as such, and
// repeats or removes whole keys and entries of tensors, so that the changes reach what lies behind the first checks. The
// data keep their alignment.
//
// Each fuzz target links its own copy. Threads: one at a time.
#ifndef QUERN_MUTATE_GGUF_H
#define QUERN_MUTATE_GGUF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"
#include "tests/fuzz/mutate.h"

enum { MUTATE_FIELDS_MAX = 4096, MUTATE_SPANS_MAX = 1024, MUTATE_ALIGN = 32 };

// What a file consists of, as far as it can be read.
struct layout {
    struct {
        size_t at;
        uint8_t width; // bytes of a number
    } fields[MUTATE_FIELDS_MAX];
    struct {
        size_t from, to;
        bool tensor; // else a key
    } spans[MUTATE_SPANS_MAX];
    size_t n_fields, n_spans, end; // end: of the metadata
};

struct layout_reader {
    const uint8_t *data;
    size_t size, at;
    struct layout *l;
    bool broken;
};

// Reads a number of `width` bytes, and notes it as a field.
static inline uint64_t layout_number(struct layout_reader *r, uint8_t width)
{
    uint64_t v = 0;
    if (r->broken || r->size - r->at < width) {
        r->broken = true;
        return 0;
    }
    memcpy(&v, r->data + r->at, width);
    if (r->l->n_fields < MUTATE_FIELDS_MAX) {
        r->l->fields[r->l->n_fields].at = r->at;
        r->l->fields[r->l->n_fields++].width = width;
    }
    r->at += width;
    return v;
}

static inline void layout_skip(struct layout_reader *r, uint64_t n)
{
    r->broken = r->broken || n > r->size - r->at;
    r->at += r->broken ? 0 : (size_t)n;
}

static inline void layout_value(struct layout_reader *r, uint32_t type)
{
    static const uint8_t widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}; // by enum gguf_type
    if (type == GGUF_STRING) {
        layout_skip(r, layout_number(r, 8));
    } else if (type < sizeof widths && widths[type]) {
        layout_number(r, widths[type]);
    } else {
        r->broken = true;
    }
}

static inline void layout_key(struct layout_reader *r)
{
    layout_skip(r, layout_number(r, 8));
    uint32_t type = (uint32_t)layout_number(r, 4);
    if (type != GGUF_ARRAY) {
        layout_value(r, type);
        return;
    }
    type = (uint32_t)layout_number(r, 4);
    uint64_t n = layout_number(r, 8);
    for (uint64_t i = 0; i < n && !r->broken; i++)
        layout_value(r, type);
}

static inline void layout_tensor(struct layout_reader *r)
{
    layout_skip(r, layout_number(r, 8));
    uint32_t n_dims = (uint32_t)layout_number(r, 4);
    for (uint32_t i = 0; i < n_dims && !r->broken; i++)
        layout_number(r, 8);
    layout_number(r, 4);
    layout_number(r, 8);
}

static inline void layout_read(struct layout *l, const uint8_t *data, size_t size)
{
    struct layout_reader r = {.data = data, .size = size, .l = l};
    l->n_fields = l->n_spans = 0;
    layout_skip(&r, 4);
    layout_number(&r, 4);
    uint64_t n_tensors = layout_number(&r, 8), n_keys = layout_number(&r, 8);
    for (uint64_t i = 0; !r.broken && i < n_keys + n_tensors && l->n_spans < MUTATE_SPANS_MAX; i++) {
        size_t from = r.at;
        if (i < n_keys)
            layout_key(&r);
        else
            layout_tensor(&r);
        if (r.broken)
            break;
        l->spans[l->n_spans].from = from;
        l->spans[l->n_spans].to = r.at;
        l->spans[l->n_spans++].tensor = i >= n_keys;
    }
    l->end = r.at;
}

// A value near the old one, or near a limit.
static inline uint64_t mutate_value(uint64_t old, size_t size, uint32_t *state)
{
    const uint64_t limits[] = {
        0,
        1,
        2,
        4,
        8,
        31,
        32,
        63,
        64,
        256,
        65535,
        65536,
        INT32_MAX,
        UINT32_MAX,
        INT64_MAX,
        size,
        UINT64_MAX,
        old + 1,
        old - 1,
        2 * old,
        old / 2,
        old ^ 1,
        0 - old,
        old + 32,
        size / 2,
        size + 1,
        UINT64_MAX / 2 + 1,
        UINT32_MAX + UINT64_C(1),
        mutate_random(state) % 48,
    };
    return limits[mutate_random(state) % (sizeof limits / sizeof *limits)];
}

static inline void mutate_field(uint8_t *data, size_t size, const struct layout *l, uint32_t *state)
{
    size_t i = mutate_random(state) % l->n_fields, width = l->fields[i].width;
    uint64_t v = 0;
    memcpy(&v, data + l->fields[i].at, width);
    v = mutate_value(v, size, state);
    memcpy(data + l->fields[i].at, &v, width);
}

static inline size_t mutate_aligned(size_t n)
{
    return (n + MUTATE_ALIGN - 1) / MUTATE_ALIGN * MUTATE_ALIGN;
}

// Removes a span of the metadata, or repeats it at its end, and counts it. Returns the new size; 0 if there is no room.
static inline size_t mutate_span(uint8_t *data, size_t size, size_t max, const struct layout *l, uint32_t *state)
{
    size_t i = mutate_random(state) % l->n_spans, from = l->spans[i].from, to = l->spans[i].to, n = to - from;
    bool again = mutate_random(state) % 2;
    size_t end = again ? l->end + n : l->end - n, body = mutate_aligned(l->end), bodies = size > body ? size - body : 0;
    size_t whole = mutate_aligned(end) + bodies;
    uint8_t *copy = whole <= max ? calloc(1, whole) : NULL;
    uint64_t count;
    if (!copy)
        return 0;
    memcpy(copy, data, again ? to : from);
    memcpy(copy + (again ? to : from), data + (again ? from : to), l->end - (again ? from : to));
    if (bodies)
        memcpy(copy + mutate_aligned(end), data + body, bodies);
    memcpy(&count, copy + (l->spans[i].tensor ? 8 : 16), sizeof count);
    count += again ? 1 : -1;
    memcpy(copy + (l->spans[i].tensor ? 8 : 16), &count, sizeof count);
    memcpy(data, copy, whole);
    free(copy);
    return whole;
}

static inline size_t mutate_gguf(uint8_t *data, size_t size, size_t max, unsigned seed,
                                 size_t (*otherwise)(uint8_t *, size_t, size_t))
{
    static struct layout l;
    uint32_t state = seed;
    layout_read(&l, data, size);
    unsigned how = mutate_random(&state) % 8;
    if (how == 0 || size < 24 || !l.n_fields)
        return otherwise(data, size, max);
    if (how < 3 && l.n_spans) {
        size_t n = mutate_span(data, size, max, &l, &state);
        if (n)
            return n;
    }
    for (unsigned i = mutate_random(&state) % 3 + 1; i > 0; i--)
        mutate_field(data, size, &l, &state);
    return size;
}

#endif
