// Jinja, the language of chat templates: parses a template, and renders it with a context of values.
//
// What Jinja2 3.1 does in a sandbox whose values cannot be changed, set up as chat templates expect it: trim_blocks and
// lstrip_blocks, break and continue, {% generation %}, tojson without ASCII escapes, from_json, raise_exception and
// strftime_now; undefined values print as nothing and fail when they are used. Templates come from files of unknown
// origin: source, nesting, steps, memory and output are bounded, and nothing reaches beyond the context.
//
// Every byte of output knows whether the template wrote it or it came from a value marked as input (engine/value.h);
// the mark survives all that a template can do with a string. Where one character is made of several (upper case,
// escapes), it has the mark of the one that it was made of.
//
// Ownership: a template owns its tree; the source is copied. Outputs own their bytes. Threads: a template is read-only
// once parsed; any number of threads may render at once.
#ifndef QUERN_JINJA_H
#define QUERN_JINJA_H

#include "engine/value.h"

#include <time.h>

struct jinja_template;

enum {
    JINJA_SOURCE_MAX = 1 << 20,   // bytes of a template
    JINJA_NESTING_MAX = 100,      // statements and brackets within each other
    JINJA_STEPS_MAX = 10000000,   // of work: nodes evaluated, and a step for each 16 bytes or item that is looked at
    JINJA_OUTPUT_MAX = 16 << 20,  // bytes of the output, and of any string
    JINJA_MEMORY_MAX = 192 << 20, // bytes of all values that a rendering makes
    JINJA_RANGE_MAX = 100000,     // items of range(), as in Jinja2's sandbox
    JINJA_CALLS_MAX = 100,        // macros and recursive loops within each other
};

// Parses. E_MODEL with "line L, column C: ..." and the byte's offset; E_MEMORY.
int jinja_parse(struct jinja_template **out, struct str source, struct error *err);
void jinja_free(struct jinja_template *t); // NULL is fine

struct jinja_output {
    char *text;
    uint8_t *marks; // 1 for each byte that came from input
    size_t size;
};

struct jinja_options {
    struct tm now;     // what strftime_now tells
    int64_t max_steps; // 0: JINJA_STEPS_MAX
};

// Renders with the entries of a dict as variables. E_MODEL as above: what the template raised itself, what it did
// wrong, or the limit that it met; E_MEMORY.
int jinja_render(const struct jinja_template *t, const struct value *context, const struct jinja_options *o,
                 struct jinja_output *out, struct error *err);
void jinja_output_free(struct jinja_output *out);

#endif
