// Kinds of characters: a partition of all characters into classes that most grammars treat alike.
//
// The kinds of a text's characters are computed once. A state of a grammar reads a kind alike if every character of the
// kind leads from it to the same next state; masks.c computes that for a state when it is first needed. If the states
// that a text would pass read all of the text's kinds alike, the text is accepted without reading its bytes.
//
// The digits are one kind. The ASCII letters are four kinds (a-f, g-z, A-F, G-Z, for hexadecimal numbers). Every
// other printable ASCII character, tab, newline and carriage return are one kind each. All characters that take 2, 3
// or 4 bytes in UTF-8 form one kind per length. All other bytes, including malformed UTF-8, have no kind. Threads:
// constants.
#ifndef QUERN_KINDS_H
#define QUERN_KINDS_H

#include "gguf/base.h"

enum { KIND_LETTERS = 0, KIND_DIGITS = 4, KIND_COUNT = 44, KIND_NONE = 63 }; // bit numbers in a set of kinds
#define KINDS_NONE (UINT64_C(1) << KIND_NONE)

struct kind_range {
    uint8_t from, to;
};
// One spelling of a kind: one byte from each of the ranges, in order.
struct kind_form {
    uint8_t kind, len;
    struct kind_range at[4];
};
enum { KIND_FORMS = 49 };
extern const struct kind_form kind_forms[KIND_FORMS]; // in ascending order of kinds

// Fills `of` with the form that each byte begins, or NULL.
void kinds_by_byte(const struct kind_form *of[256]);
// Fills out[0 .. text.len]: out[i] is the set of kinds of the characters from byte i to the end. A truncated
// character has no kind (KINDS_NONE).
void kinds_of_text(const struct kind_form *const of[256], struct str text, uint64_t *out);

#endif
