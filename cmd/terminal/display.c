// Looks widths up in sorted tables of code point ranges by binary search; code points below U+0300 need no table. A
// cluster is found by one pass forward that asks for each pair of neighbours whether they join. To go backward, the
// search starts at the nearest ASCII byte before the position and passes over whole clusters from there, so its cost
// is that of the non-ASCII text in between.
#include "cmd/terminal/display.h"
#include "cmd/terminal/display_tables.h"

static bool is_among(const uint32_t (*ranges)[2], size_t n, uint32_t cp)
{
    size_t low = 0;
    while (n > 0) {
        size_t half = n / 2;
        if (cp > ranges[low + half][1]) {
            low += half + 1;
            n -= half + 1;
        } else if (cp < ranges[low + half][0]) {
            n = half;
        } else {
            return true;
        }
    }
    return false;
}

int display_width(uint32_t cp)
{
    if (cp < 0x300 || !utf8_printable(cp))
        return 1;
    if (is_among(no_cell, COUNT_OF(no_cell), cp))
        return 0;
    return is_among(two_cells, COUNT_OF(two_cells), cp) ? 2 : 1;
}

// --- clusters ---

enum { ZWJ = 0x200d };

static bool is_skin_tone(uint32_t cp)
{
    return cp >= 0x1f3fb && cp <= 0x1f3ff;
}

static bool is_regional(uint32_t cp)
{
    return cp >= 0x1f1e6 && cp <= 0x1f1ff;
}

// Whether the code point can follow a U+200D within one picture.
static bool is_pictographic(uint32_t cp)
{
    return cp == 0xa9 || cp == 0xae || (cp >= 0x2190 && cp <= 0x2bff) || cp == 0x3030 || cp == 0x303d || cp == 0x3297 ||
           cp == 0x3299 || (cp >= 0x1f000 && cp <= 0x1faff);
}

static bool is_extending(uint32_t cp)
{
    return cp >= 0x300 &&
           (is_skin_tone(cp) || display_width(cp) == 0 || is_among(spacing_marks, COUNT_OF(spacing_marks), cp));
}

static bool joins(uint32_t before, uint32_t cp, int n_regional)
{
    if (cp < 0x300 || !utf8_printable(before) || !utf8_printable(cp))
        return false;
    return is_extending(cp) || (before == ZWJ && is_pictographic(cp)) ||
           (is_regional(before) && is_regional(cp) && n_regional == 1);
}

size_t display_next(struct str text, size_t at, int *width)
{
    uint32_t cp;
    int n = utf8_decode(text.data + at, text.len - at, &cp), cells = 1, n_regional = 0;
    at += (size_t)MAX(n, 1);
    if (n)
        cells = display_width(cp);
    for (uint32_t next; n && at < text.len; cp = next) {
        n_regional += is_regional(cp);
        n = utf8_decode(text.data + at, text.len - at, &next);
        if (!n || !joins(cp, next, n_regional))
            break;
        at += (size_t)n;
        cells += display_width(next);
    }
    if (width)
        *width = cells;
    return at;
}

size_t display_previous(struct str text, size_t at)
{
    // goes back to a certain beginning of a cluster (nothing joins what stands before ASCII), and forward again from
    // there
    size_t from = at - 1;
    while (from > 0 && (uint8_t)text.data[from] >= 0x80)
        from--;
    for (;;) {
        size_t next = display_next(text, from, NULL);
        if (next >= at)
            return from;
        from = next;
    }
}

size_t display_text_width(struct str text)
{
    size_t cells = 0;
    for (size_t at = 0; at < text.len;) {
        int width;
        at = display_next(text, at, &width);
        cells += (size_t)width;
    }
    return cells;
}

void display_print_lines(struct text *out, int column, int indent, int columns, struct str text)
{
    bool begun = false; // this line has a word of the text
    for (size_t at = 0, n; at < text.len; at += n + 1) {
        const char *blank = memchr(text.data + at, ' ', text.len - at);
        n = blank ? (size_t)(blank - text.data) - at : text.len - at;
        const struct str word = {text.data + at, n};
        const int cells = (int)display_text_width(word);
        if (begun && column + 1 + cells > columns) {
            text_print(out, "\n%*s", indent, "");
            column = indent;
            begun = false;
        }
        text_print(out, "%s%.*s", begun ? " " : "", STR_ARG(word));
        column += cells + begun;
        begun = true;
    }
    text_print(out, "\n");
}
