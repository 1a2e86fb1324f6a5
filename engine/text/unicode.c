// The rarer part of the Unicode lookups: lower case and base characters by binary search in sorted tables of pairs.
// ASCII and Hangul syllables are computed without a table.
#include "engine/text/unicode.h"

#include "engine/text/unicode_tables.h"

// Returns the value of cp in a sorted table of n pairs, or cp itself if it is not in the table.
static uint32_t mapped(const uint32_t (*pairs)[2], size_t n, uint32_t cp)
{
    size_t lo = 0;
    while (n > 0) {
        size_t half = n / 2;
        if (pairs[lo + half][0] < cp) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return pairs[lo][0] == cp ? pairs[lo][1] : cp;
}

uint32_t unicode_lower(uint32_t cp)
{
    if (cp < 0x80) {
        return cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
    }
    // the comparison with the last pair keeps the search within the table
    return cp > lower_pairs[COUNT_OF(lower_pairs) - 1][0] ? cp : mapped(lower_pairs, COUNT_OF(lower_pairs), cp);
}

uint32_t unicode_base(uint32_t cp)
{
    enum { HANGUL = 0xAC00, HANGUL_END = 0xD7A4, LEADING = 0x1100, SYLLABLES_A_LEADING = 588 };
    if (cp < 0xC0 || cp > base_pairs[COUNT_OF(base_pairs) - 1][0]) {
        return cp;
    }
    if (cp >= HANGUL && cp < HANGUL_END) {
        return LEADING + (cp - HANGUL) / SYLLABLES_A_LEADING;
    }
    return mapped(base_pairs, COUNT_OF(base_pairs), cp);
}

struct unicode_char unicode_char_wide(const char *p, const char *end)
{
    uint32_t cp;
    int len = utf8_decode(p, (size_t)(end - p), &cp);
    if (len == 0) {
        cp = UNI_REPLACEMENT;
        len = 1;
    }
    return (struct unicode_char){cp, unicode_bits(cp), len};
}
