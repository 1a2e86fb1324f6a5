// Languages of JSON numbers: the texts of numbers that are below, above, equal to, or multiples of a given decimal.
//
// All expressions describe texts without exponents, -?int(.frac)?. The given decimal may have an exponent. Texts of
// up to NUMBER_DIGITS digits denote distinct numbers even for readers that parse them as doubles.
// Threads: one at a time.
#ifndef QUERN_NUMBERS_H
#define QUERN_NUMBERS_H

#include "engine/grammar/expr.h"

enum { NUMBER_DIGITS = 15, NUMBER_TEXT_MAX = 400 };
enum number_order { NUMBER_BELOW = 1, NUMBER_EQUAL = 2, NUMBER_ABOVE = 4 };

// Numbers whose order relative to the decimal is in `orders`, a set of enum number_order. E_USAGE if the text is not
// a decimal or has more than NUMBER_TEXT_MAX digits.
int number_compare(expr_id *out, struct exprs *x, struct str decimal, unsigned orders, struct error *err);
// Multiples of the decimal, which must be above 0. E_USAGE if the automaton would have too many states.
int number_multiple(expr_id *out, struct exprs *x, struct str decimal, struct error *err);
// Integers, with or without a fraction of zeros.
expr_id number_whole(struct exprs *x);
// The texts of integers without a point, and of all numbers; at most `digits` digits. The integers do not include -0.
expr_id number_integer_texts(struct exprs *x, uint32_t digits);
expr_id number_texts(struct exprs *x, uint32_t digits);
// The number of digits of a decimal before its point; 0 if it is below 1.
uint32_t number_int_digits(struct str decimal);

#endif
