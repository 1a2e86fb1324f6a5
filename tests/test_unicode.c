// Tests the categories, case and bases of code points against facts of the Unicode standard, and checksums over all of
// them, so that no row of the tables can change unnoticed.
#include "engine/text/unicode.h"

#include <criterion/criterion.h>

struct fact {
    uint32_t cp;
    unsigned bits;
};

Test(unicode, categories_are_those_of_the_standard)
{
    static const struct fact facts[] = {
        {0x00, UNI_CONTROL},
        {'\n', UNI_CONTROL | UNI_SPACE},
        {' ', UNI_SEPARATOR | UNI_SPACE},
        {'0', UNI_NUMBER | UNI_DIGIT},
        {'A', UNI_LETTER | UNI_UPPER},
        {'z', UNI_LETTER | UNI_LOWER},
        {'_', UNI_PUNCT},
        {'$', UNI_SYMBOL},
        {0x7F, UNI_CONTROL},
        {0x85, UNI_CONTROL | UNI_SPACE},
        {0xA0, UNI_SEPARATOR | UNI_SPACE},
        {0xAA, UNI_LETTER},                 // feminine ordinal, Lo
        {0xAD, UNI_CONTROL},                // soft hyphen, Cf
        {0xBD, UNI_NUMBER},                 // one half, No
        {0x1C5, UNI_LETTER | UNI_UPPER},    // Lt
        {0x2B0, UNI_LETTER},                // Lm
        {0x301, UNI_MARK | UNI_NONSPACING}, // combining acute
        {0x378, 0},                         // unassigned
        {0x903, UNI_MARK},                  // Mc
        {0x663, UNI_NUMBER | UNI_DIGIT},    // Arabic three
        {0x2028, UNI_SEPARATOR | UNI_SPACE},
        {0x200B, UNI_CONTROL}, // zero width space is no white space
        {0x2167, UNI_NUMBER},  // Roman eight
        {0x2E80, UNI_SYMBOL | UNI_HAN},
        {0x3000, UNI_SEPARATOR | UNI_SPACE},
        {0x3005, UNI_LETTER | UNI_HAN},
        {0x3007, UNI_NUMBER | UNI_HAN},
        {0x4E2D, UNI_LETTER | UNI_HAN},
        {0xD800, UNI_CONTROL}, // surrogate
        {0xE000, UNI_CONTROL}, // private use
        {0xFFFD, UNI_SYMBOL},
        {0x1F600, UNI_SYMBOL},
        {0x2EBF0, UNI_LETTER | UNI_HAN}, // new in 15.1
        {0x10FFFF, 0},
    };
    for (size_t i = 0; i < COUNT_OF(facts); i++)
        cr_expect_eq(unicode_bits(facts[i].cp), facts[i].bits, "U+%04X: 0x%x, not 0x%x", facts[i].cp,
                     unicode_bits(facts[i].cp), facts[i].bits);
}

Test(unicode, each_category_has_as_many_members_as_in_version_15_1)
{
    static const struct {
        unsigned bit;
        int count;
    } sums[] = {{UNI_LETTER, 136726}, {UNI_MARK, 2450},    {UNI_NUMBER, 1831}, {UNI_PUNCT, 842},
                {UNI_SYMBOL, 7775},   {UNI_SEPARATOR, 19}, {UNI_SPACE, 25},    {UNI_DIGIT, 680},
                {UNI_LOWER, 2233},    {UNI_UPPER, 1862},   {UNI_HAN, 99030},   {UNI_NONSPACING, 1985}};
    int count[COUNT_OF(sums)] = {0};
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++)
        for (size_t i = 0; i < COUNT_OF(sums); i++)
            count[i] += (unicode_bits(cp) & sums[i].bit) != 0;
    for (size_t i = 0; i < COUNT_OF(sums); i++)
        cr_expect_eq(count[i], sums[i].count, "bit 0x%x: %d, not %d", sums[i].bit, count[i], sums[i].count);
}

Test(unicode, a_code_point_has_one_category_at_most)
{
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        unsigned category = unicode_bits(cp) & 127;
        cr_assert_eq(category & (category - 1), 0, "U+%04X: 0x%x", cp, category);
    }
}

Test(unicode, ascii_is_the_beginning_of_the_whole)
{
    for (uint32_t cp = 0; cp < 128; cp++)
        cr_expect_eq(unicode_ascii[cp], unicode_bits(cp));
}

Test(unicode, lower_case)
{
    static const uint32_t pairs[][2] = {
        {'A', 'a'},         {'Z', 'z'},         {'[', '['},           {'@', '@'},      {0xC9, 0xE9},
        {0xDF, 0xDF},       {0x130, 'i'},       {0x17F, 0x17F},       {0x1C5, 0x1C6},  {0x416, 0x436},
        {0x3A3, 0x3C3},     {0x1E9E, 0xDF},     {0x212A, 'k'},        {0x23A, 0x2C65}, {0x10400, 0x10428},
        {0x1E921, 0x1E943}, {0x1E922, 0x1E922}, {0x10FFFF, 0x10FFFF},
    };
    for (size_t i = 0; i < COUNT_OF(pairs); i++)
        cr_expect_eq(unicode_lower(pairs[i][0]), pairs[i][1], "U+%04X: U+%04X", pairs[i][0],
                     unicode_lower(pairs[i][0]));
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++)
        cr_assert_eq(unicode_lower(unicode_lower(cp)), unicode_lower(cp), "U+%04X", cp);
}

Test(unicode, bases)
{
    static const uint32_t pairs[][2] = {
        {'a', 'a'},       {0xBF, 0xBF},     {0xC0, 'A'},        {0xE9, 'e'},        {0x1EC7, 'e'},
        {0x212B, 'A'},    {0x3060, 0x305F}, {0xAC00, 0x1100},   {0xD7A3, 0x1112},   {0xD7A4, 0xD7A4},
        {0xF900, 0x8C48}, {0xFB01, 0xFB01}, {0x2FA1D, 0x2A600}, {0x2FA1E, 0x2FA1E}, {0x10FFFF, 0x10FFFF},
    };
    for (size_t i = 0; i < COUNT_OF(pairs); i++)
        cr_expect_eq(unicode_base(pairs[i][0]), pairs[i][1], "U+%04X: U+%04X", pairs[i][0], unicode_base(pairs[i][0]));
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++)
        cr_assert_eq(unicode_base(unicode_base(cp)), unicode_base(cp), "U+%04X", cp);
}

Test(unicode, bytes_that_are_no_utf8_count_as_a_replacement_each)
{
    static const char text[] = "\x80"         // a continuation
                               "\xC3"         // cut short
                               "\xC0\xAF"     // overlong
                               "\xED\xA0\x80" // a surrogate
                               "\xF5\xE2\x82";
    const char *end = text + sizeof text - 1;
    for (const char *p = text; p < end; p++) {
        struct unicode_char c = unicode_char_at(p, end);
        cr_expect_eq(c.len, 1);
        cr_expect_eq(c.cp, (uint32_t)UNI_REPLACEMENT);
        cr_expect_eq(c.bits, (unsigned)UNI_SYMBOL);
    }
    struct unicode_char none = unicode_char_at(end, end);
    cr_expect(none.len == 0 && none.bits == 0);
}
