// Looks a character up by binary search: first among those that map to several characters or have a title case of
// their own, then among those that map to one. ASCII needs no table.
#include "engine/chat/case.h"

#include "engine/text/unicode.h"

#include "engine/chat/case_tables.h"

// Returns the row of a sorted table whose first column is cp; NULL if there is none.
static const uint32_t *row_of(const uint32_t *table, size_t n, size_t width, uint32_t cp)
{
    size_t lo = 0;
    while (n > 0) {
        size_t half = n / 2;
        const uint32_t *row = table + (lo + half) * width;
        if (row[0] == cp) // NOLINT(clang-analyzer-core.UndefinedBinaryOperatorResult): all rows of a table are set
            return row;
        if (row[0] < cp) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return NULL;
}
#define ROW_OF(table, cp) row_of(&(table)[0][0], COUNT_OF(table), COUNT_OF((table)[0]), cp)

static int from_row(const uint32_t *row, uint32_t out[3])
{
    int n = 0;
    for (; n < 3 && row[1 + n]; n++)
        out[n] = row[1 + n];
    return n;
}

static int from_ascii(enum letter_case to, uint32_t cp, uint32_t out[3])
{
    bool change = to == CASE_LOWER ? cp >= 'A' && cp <= 'Z' : cp >= 'a' && cp <= 'z';
    out[0] = change ? cp ^ 0x20 : cp;
    return 1;
}

int case_map(enum letter_case to, uint32_t cp, uint32_t out[3])
{
    if (cp < 0x80)
        return from_ascii(to, cp, out);
    const uint32_t *row = to == CASE_TITLE ? ROW_OF(title_odd, cp) : NULL;
    if (!row)
        row = to == CASE_LOWER ? ROW_OF(lower_several, cp) : ROW_OF(upper_several, cp);
    if (row)
        return from_row(row, out);
    row = to == CASE_LOWER ? ROW_OF(lower_single, cp) : ROW_OF(upper_single, cp);
    out[0] = row ? row[1] : cp;
    return 1;
}

static bool changed_by(enum letter_case to, uint32_t cp)
{
    uint32_t out[3];
    return case_map(to, cp, out) != 1 || out[0] != cp;
}

bool case_is_upper(uint32_t cp)
{
    if (cp < 0x80)
        return cp >= 'A' && cp <= 'Z';
    // title case letters are neither upper nor lower case; marks and numbers such as Roman numerals can have case
    return (unicode_bits(cp) & UNI_UPPER || changed_by(CASE_LOWER, cp)) && !changed_by(CASE_UPPER, cp);
}

bool case_is_lower(uint32_t cp)
{
    if (cp < 0x80)
        return cp >= 'a' && cp <= 'z';
    return unicode_bits(cp) & UNI_LOWER || (changed_by(CASE_UPPER, cp) && !changed_by(CASE_LOWER, cp));
}

bool case_is_cased(uint32_t cp)
{
    return case_is_upper(cp) || case_is_lower(cp) || (unicode_bits(cp) & UNI_UPPER) != 0;
}
