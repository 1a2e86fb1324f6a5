// JSON: a reader with bounded depth and memory that makes values, and a writer that prints like Python's json.dumps.
//
// Ownership: the values that are read live in the caller's arena, including their texts, so the source may be freed.
// Threads: any.
#ifndef QUERN_JSON_H
#define QUERN_JSON_H

#include "engine/value.h"
#include "kernels/text.h"

enum { JSON_DEPTH = 200 }; // default limit for the nesting of lists and objects

enum json_flags {
    JSON_NAN = 1,    // NaN, Infinity and -Infinity are numbers, as in Python
    JSON_INPUT = 2,  // marks all values with ORIGIN_INPUT
    JSON_PREFIX = 4, // allows more text after the value; `used` says where that text begins
};

struct json_reader {
    struct arena *arena;
    unsigned flags;
    int max_depth;      // 0: JSON_DEPTH
    enum err_code code; // code of syntax errors; 0: E_USAGE
    size_t used;        // after json_read: bytes up to the end of the value
};

// Reads one value and accepts exactly RFC 8259: only UTF-8 (a byte order mark is skipped), no lone surrogates, no
// control characters in strings. Whole numbers become VALUE_INT or, outside 64 bits, VALUE_BIGINT (at most 4300
// digits); numbers with a fraction or an exponent become VALUE_FLOAT, rounded as strtod does, and infinite when too
// large. When a key is repeated, its last value counts, in the position of the first. Errors say "line L, column C:
// ..." (columns count characters, from 1) and hold the offset in bytes. The memory used is at most about 80 bytes per
// byte of source.
int json_read(struct value *out, struct json_reader *r, struct str text, struct error *err);

// The arguments of json.dumps. Zero-initialised, they mean json.dumps(v, ensure_ascii=False).
struct json_style {
    bool ascii;                     // escape all characters outside ASCII
    bool sort_keys;                 // by code points
    bool indented;                  // write each item on a line of its own
    struct str indent;              // the indentation per level, with `indented`; may be empty
    const char *item_sep, *key_sep; // NULL: ", " (with `indented` ",") and ": "
    bool strict;                    // refuse NaN and infinities, which JSON cannot represent
};

// Receives the output piece by piece. `from` is the value that the piece belongs to: a string, a number, or a
// container for its punctuation. For a string, `at` is the byte offset in its text at which the piece begins: the
// piece is the text from there, or an escape of the character there. A return value other than 0 ends the writing and
// is returned by it.
typedef int json_emit_fn(void *arg, struct str piece, const struct value *from, size_t at);

// Writes a value. Keys that are numbers, bools or none are written as Python does; tuples are written as lists; bytes
// of strings that are not UTF-8 become U+FFFD. E_USAGE when a part of the value has no JSON form.
int json_write(const struct value *v, const struct json_style *style, json_emit_fn *emit, void *arg, struct error *err);
// Appends the JSON of a value to a text. style NULL: the default. E_MEMORY when the text cannot grow.
int json_write_text(const struct value *v, const struct json_style *style, struct text *out, struct error *err);

// Writes a float like Python's repr: the fewest digits that read back as the same number. Returns the length.
enum { FLOAT_TEXT = 32 };
int float_repr(double f, char out[FLOAT_TEXT]);
// Appends a finite float32 with the fewest digits, from 6 on, that read back as the same float32.
void text_print_float32(struct text *out, float f);

#endif
