// Jinja, the language of chat templates: parses a template, and renders it with a context of values.
//
// Implements Jinja2 3.1 in a sandbox with immutable values, set up as chat templates expect: trim_blocks and
// lstrip_blocks, break and continue, {% generation %}, tojson without ASCII escapes, from_json, raise_exception and
// strftime_now. Undefined values print as nothing and fail when used. Templates come from untrusted files: source,
// nesting, steps, memory and output are bounded, and a template can access only the context.
//
// Each byte of the output records whether the template wrote it or it came from a value marked as input
// (engine/value.h). The mark survives all string operations of a template. If one character becomes several (upper
// case, escapes), they keep its mark.
//
// Ownership: a template owns its tree, and copies the source. Outputs own their bytes. Threads: a template is
// read-only once parsed; any number of threads may render at once.
#ifndef QUERN_JINJA_H
#define QUERN_JINJA_H

#include "engine/value.h"

#include <time.h>

struct jinja_template;

enum {
    JINJA_SOURCE_MAX = 1 << 20,   // bytes of a template
    JINJA_NESTING_MAX = 100,      // depth of nested statements and brackets
    JINJA_STEPS_MAX = 10000000,   // work: nodes evaluated, plus a step for each item or 16 bytes visited
    JINJA_OUTPUT_MAX = 16 << 20,  // bytes of the output, and of any one string
    JINJA_MEMORY_MAX = 192 << 20, // bytes of all values made by a rendering
    JINJA_RANGE_MAX = 100000,     // items of range(), as in Jinja2's sandbox
    JINJA_CALLS_MAX = 100,        // depth of nested macros and recursive loops
};

// Parses a template. E_MODEL with "line L, column C: ..." and the offset of the byte; E_MEMORY.
int jinja_parse(struct jinja_template **out, struct str source, struct error *err);
void jinja_free(struct jinja_template *t); // NULL is fine

struct jinja_output {
    char *text;
    uint8_t *marks; // 1 for each byte that came from input
    size_t size;
};

struct jinja_options {
    struct tm now;     // the time that strftime_now formats
    int64_t max_steps; // 0: JINJA_STEPS_MAX
};

// Renders with the entries of a dict as variables. E_MODEL with line and column as above: an exception raised by the
// template, a fault in it, or a limit that it reached; E_MEMORY.
int jinja_render(const struct jinja_template *t, const struct value *context, const struct jinja_options *o,
                 struct jinja_output *out, struct error *err);
void jinja_output_free(struct jinja_output *out);

#endif
