// The width of text on a terminal, and where the clusters of characters that a reader sees as one begin and end.
//
// A cluster is a base character with everything that joins it: accents, variation selectors, emoji joined by U+200D,
// flags of two letters, Hangul of several parts. The rules are a subset of UAX 29. The width of a cluster is the sum
// over its code points, as most terminals compute it. Bytes that are not UTF-8 are clusters of their own, one cell
// wide. Constant tables and pure functions: any thread.
#ifndef QUERN_DISPLAY_H
#define QUERN_DISPLAY_H

#include "kernels/text.h"

// Cells of a code point: 0, 1 or 2. A control character counts as one cell, because it is drawn as U+FFFD.
int display_width(uint32_t cp);

// The end of the cluster that begins at `at` < text.len. *width, if not NULL, becomes its cells.
size_t display_next(struct str text, size_t at, int *width);
// The beginning of the cluster that ends at `at` > 0.
size_t display_previous(struct str text, size_t at);

// Cells of a text without newlines and tabs.
size_t display_text_width(struct str text);

// Appends a text to `out`, broken between words into lines of at most so many cells; the further ones are indented.
// `column` is where the text begins in the line that `out` ends with. A newline is added.
void display_print_lines(struct text *out, int column, int indent, int columns, struct str text);

#endif
