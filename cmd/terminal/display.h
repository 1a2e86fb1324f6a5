// How wide text is on a terminal, and where what a reader takes for one character begins and ends.
//
// A cluster is a base with what joins it: accents, variation selectors, emoji joined by U+200D, flags of two letters,
// Hangul of parts. It is a subset of UAX 29. A cluster's width is the sum over its code points, as most terminals count
// it. Bytes that are no UTF-8 are clusters of their own, one cell wide. Constant tables and pure functions: any thread.
#ifndef QUERN_DISPLAY_H
#define QUERN_DISPLAY_H

#include "gguf/base.h"

// Cells of a code point: 0, 1 or 2. What a terminal would obey counts as one: it is drawn as U+FFFD.
int display_width(uint32_t cp);

// Where the cluster that begins at `at` < text.len ends; its cells go to *width, when not NULL.
size_t display_next(struct str text, size_t at, int *width);
// Where the cluster that ends at `at` > 0 begins.
size_t display_previous(struct str text, size_t at);

// Cells of a text without line ends and tabs.
size_t display_text_width(struct str text);

#endif
