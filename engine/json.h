// JSON in both directions: a bounded reader into values, and a writer that prints as Python's json.dumps does.
//
// Ownership: what is read lives in the caller's arena, texts included: the source may be freed. Threads: any.
#ifndef QUERN_JSON_H
#define QUERN_JSON_H

#include "engine/value.h"
#include "kernels/text.h"

enum { JSON_DEPTH = 200 }; // of lists and objects within each other, unless asked for otherwise

enum json_flags {
    JSON_NAN = 1,    // NaN, Infinity and -Infinity are numbers, as in Python
    JSON_INPUT = 2,  // everything is marked as from outside
    JSON_PREFIX = 4, // what follows the value is left alone; *used says where it begins
};

struct json_reader {
    struct arena *arena;
    unsigned flags;
    int max_depth;      // 0: JSON_DEPTH
    enum err_code code; // of the errors; 0: E_USAGE
    size_t used;        // after json_read: bytes up to the end of the value
};

// Reads one value, RFC 8259 to the letter: UTF-8 alone (a byte order mark is skipped), no lone surrogates, no control
// characters in strings. Whole numbers are VALUE_INT or, outside 64 bits, VALUE_BIGINT (4300 digits at most); numbers
// with a fraction or exponent are VALUE_FLOAT, rounded as by strtod, infinite when too large. Of equal keys the last
// value wins, in the place of the first. Errors say "line L, column C: ..." (columns count characters, from 1) and have
// the offset in bytes. Memory is at most about 80 bytes for each of the source.
int json_read(struct value *out, struct json_reader *r, struct str text, struct error *err);

// How json.dumps would be called. Zero-initialised, it means json.dumps(v, ensure_ascii=False).
struct json_style {
    bool ascii;     // escape what is not ASCII
    bool sort_keys; // by code points
    bool indented;
    struct str indent;              // of a level, where indented; may be empty
    const char *item_sep, *key_sep; // NULL: ", " (or "," where indented) and ": "
    bool strict;                    // refuse NaN and infinities, which JSON has not
};

// Takes pieces of output. `from` is the value whose text they are a part of: a string (with `at` the byte of it that
// the piece begins with: its data is text.data + at, or an escape of what is there), a number, or a container, for its
// signs. Anything but 0 ends the writing, and is returned.
typedef int json_emit_fn(void *arg, struct str piece, const struct value *from, size_t at);

// Writes a value. Keys that are numbers, bools or none are written as Python does; tuples are lists; bytes of strings
// that are no UTF-8 become U+FFFD. E_USAGE when something in it has no JSON form.
int json_write(const struct value *v, const struct json_style *style, json_emit_fn *emit, void *arg, struct error *err);
// The same into text; NULL as style is the default. A failed text is E_MEMORY.
int json_write_text(const struct value *v, const struct json_style *style, struct text *out, struct error *err);

// A float as Python's repr: the shortest digits that read back as the same number. At most 32 bytes with the NUL.
enum { FLOAT_TEXT = 32 };
int float_repr(double f, char out[FLOAT_TEXT]);

#endif
