// Kinds of characters: parts of all characters that grammars seldom tell apart within.
//
// Of a text it is known once and for all of which kinds its characters are; of a state, once it is asked, which kinds
// it reads all in the same way. Where the second has all of the first, the text need not be read byte by byte. The
// digits are a kind, the letters four (a-f, g-z and their capitals, for numbers to the base 16), other printable ASCII
// characters one each, and all characters that UTF-8 spells with 2, 3 or 4 bytes one for each length. Anything else,
// and what is no UTF-8, is of no kind. Threads: constants.
#ifndef QUERN_KINDS_H
#define QUERN_KINDS_H

#include "gguf/base.h"

enum { KIND_LETTERS = 0, KIND_DIGITS = 4, KIND_COUNT = 44, KIND_NONE = 63 }; // bits of a set
#define KINDS_NONE (UINT64_C(1) << KIND_NONE)

struct kind_range {
    uint8_t from, to;
};
// One way of spelling a kind: a byte of each range in turn.
struct kind_form {
    uint8_t kind, len;
    struct kind_range at[4];
};
enum { KIND_FORMS = 49 };
extern const struct kind_form kind_forms[KIND_FORMS]; // in rising order of kinds

// The form that each byte begins, NULL: none.
void kinds_by_byte(const struct kind_form *of[256]);
// The kinds of the characters of text from each byte on: out[0 .. text.len], where a character cut in two is of no
// kind.
void kinds_of_text(const struct kind_form *const of[256], struct str text, uint64_t *out);

#endif
