// Upper, lower and title case of characters, as in Python's str.
//
// All functions are pure; any thread may call them.
#ifndef QUERN_CASE_H
#define QUERN_CASE_H

#include <stdbool.h>
#include <stdint.h>

enum letter_case { CASE_UPPER, CASE_LOWER, CASE_TITLE };

// Writes the mapping of cp, 1 to 3 code points, and returns their number.
int case_map(enum letter_case to, uint32_t cp, uint32_t out[3]);
bool case_is_upper(uint32_t cp);
bool case_is_lower(uint32_t cp);
bool case_is_cased(uint32_t cp); // upper, lower or title case

#endif
