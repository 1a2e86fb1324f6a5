// Numbers as JSON writes them, as languages: those above, below, equal to or multiples of another.
//
// All speak of texts without exponents, -?int(.frac)?. A decimal is written the same way, or with an exponent, which
// is worked out. Texts of up to NUMBER_DIGITS digits name different numbers also to readers that know doubles alone.
// Threads: one at a time.
#ifndef QUERN_NUMBERS_H
#define QUERN_NUMBERS_H

#include "engine/grammar/expr.h"

enum { NUMBER_DIGITS = 15, NUMBER_TEXT_MAX = 400 };
enum number_order { NUMBER_BELOW = 1, NUMBER_EQUAL = 2, NUMBER_ABOVE = 4 };

// Those that stand in one of the orders (a set of bits) to the decimal. E_USAGE: not a decimal, or one of more than
// NUMBER_TEXT_MAX digits.
int number_compare(expr_id *out, struct exprs *x, struct str decimal, unsigned orders, struct error *err);
// Multiples of the decimal, which is above 0. E_USAGE when it would take too many states.
int number_multiple(expr_id *out, struct exprs *x, struct str decimal, struct error *err);
// Numbers that are whole, whether written with zeros behind a point or without.
expr_id number_whole(struct exprs *x);
// Texts of whole numbers that have no point, and all texts: `digits` digits at most. -0 is none of the whole ones.
expr_id number_integer_texts(struct exprs *x, uint32_t digits);
expr_id number_texts(struct exprs *x, uint32_t digits);
// The digits before the point of a decimal; 0 for those below 1.
uint32_t number_int_digits(struct str decimal);

#endif
