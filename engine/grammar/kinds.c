// The table of kinds, with one row for each form of UTF-8 sequence. The kinds of a text are computed from its end to
// its start, so that each position takes the kinds of the rest and adds its own.
#include "engine/grammar/kinds.h"

// clang-format off
#define ONE(kind, c) {kind, 1, {{c, c}}}
const struct kind_form kind_forms[KIND_FORMS] = {
    {0, 1, {{'a', 'f'}}}, {1, 1, {{'g', 'z'}}}, {2, 1, {{'A', 'F'}}}, {3, 1, {{'G', 'Z'}}}, {KIND_DIGITS, 1, {{'0', '9'}}},
    ONE(5, ' '),   ONE(6, '\t'),  ONE(7, '\n'),  ONE(8, '\r'),
    ONE(9, '!'),   ONE(10, '"'),  ONE(11, '#'),  ONE(12, '$'),  ONE(13, '%'),  ONE(14, '&'),  ONE(15, '\''), ONE(16, '('),
    ONE(17, ')'),  ONE(18, '*'),  ONE(19, '+'),  ONE(20, ','),  ONE(21, '-'),  ONE(22, '.'),  ONE(23, '/'),  ONE(24, ':'),
    ONE(25, ';'),  ONE(26, '<'),  ONE(27, '='),  ONE(28, '>'),  ONE(29, '?'),  ONE(30, '@'),  ONE(31, '['),  ONE(32, '\\'),
    ONE(33, ']'),  ONE(34, '^'),  ONE(35, '_'),  ONE(36, '`'),  ONE(37, '{'),  ONE(38, '|'),  ONE(39, '}'),  ONE(40, '~'),
    // well-formed sequences only: no overlong forms, no surrogates, nothing above U+10FFFF
    {41, 2, {{0xC2, 0xDF}, {0x80, 0xBF}}},
    {42, 3, {{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}}},
    {42, 3, {{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {42, 3, {{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}}},
    {42, 3, {{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {43, 4, {{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {43, 4, {{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {43, 4, {{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}}},
};
// clang-format on

void kinds_by_byte(const struct kind_form *of[256])
{
    memset(of, 0, 256 * sizeof *of);
    for (size_t i = 0; i < KIND_FORMS; i++)
        for (unsigned byte = kind_forms[i].at[0].from; byte <= kind_forms[i].at[0].to; byte++)
            of[byte] = &kind_forms[i];
}

static bool is_spelled(const struct kind_form *form, const char *text, size_t n)
{
    if (!form || form->len > n)
        return false;
    for (size_t i = 1; i < form->len; i++)
        if ((uint8_t)text[i] < form->at[i].from || (uint8_t)text[i] > form->at[i].to)
            return false;
    return true;
}

void kinds_of_text(const struct kind_form *const of[256], struct str text, uint64_t *out)
{
    out[text.len] = 0;
    for (size_t i = text.len; i-- > 0;) {
        const struct kind_form *form = of[(uint8_t)text.data[i]];
        out[i] =
            is_spelled(form, text.data + i, text.len - i) ? out[i + form->len] | UINT64_C(1) << form->kind : KINDS_NONE;
    }
}
