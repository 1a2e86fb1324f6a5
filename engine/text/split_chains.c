// Stages that isolate one kind of text, such as numbers, punctuation or a script, and pass the rest on. The comment
// above each stage is its regular expression, as in split_words.c.
#include <limits.h>

#include "engine/text/split_stage.h"

// --- stages by category ---

// Isolates pieces of 1 to `max` characters that have one of the bits.
INLINE int split_class(struct split *s, int level, const char *p, const char *end, unsigned bits, int max)
{
    while (p < end) {
        const char *start = skip_others(p, end, bits);
        int rc = pass(s, level, p, start);
        const char *q = start;
        for (int n = 0; n < max; n++) {
            struct unicode_char c = unicode_char_at(q, end);
            if ((c.bits & bits) == 0) {
                break;
            }
            q += c.len;
        }
        if (rc == 0) {
            rc = pass(s, level, start, q);
        }
        if (rc != 0) {
            return rc;
        }
        p = q;
    }
    return 0;
}

// \p{N}
int split_by_number(struct split *s, int level, const char *p, const char *end)
{
    return split_class(s, level, p, end, UNI_NUMBER, 1);
}

// \p{N}{1,3}
int split_by_numbers3(struct split *s, int level, const char *p, const char *end)
{
    return split_class(s, level, p, end, UNI_NUMBER, 3);
}

// \p{N}+
int split_by_numbers(struct split *s, int level, const char *p, const char *end)
{
    return split_class(s, level, p, end, UNI_NUMBER, INT_MAX);
}

static bool is_ascii_digit(char c)
{
    return c >= '0' && c <= '9';
}

// [0-9][0-9][0-9]
static size_t match_digits3(const char *p, const char *end)
{
    return end - p >= 3 && is_ascii_digit(p[0]) && is_ascii_digit(p[1]) && is_ascii_digit(p[2]) ? 3 : 0;
}
STAGE_OF(digits3)

// [\r\n]
static size_t match_newline(const char *p, const char *end)
{
    (void)end;
    return is_newline((unsigned char)*p);
}
STAGE_OF(newline)

// [^\n]+|[\n]+
static size_t match_lines(const char *p, const char *end)
{
    const char *q = p;
    if (*p != '\n') {
        q = memchr(p, '\n', (size_t)(end - p));
        return (size_t)((q != NULL ? q : end) - p);
    }
    while (q < end && *q == '\n') {
        q++;
    }
    return (size_t)(q - p);
}
STAGE_OF(lines)

// [\p{P}\$\+<=>\^~\|`]+; only Falcon's version includes the backquote.
INLINE size_t match_signs(const char *p, const char *end, const char *symbols)
{
    const char *q = p;
    for (struct unicode_char c = unicode_char_at(q, end); c.len > 0; c = unicode_char_at(q, end)) {
        bool symbol = (c.bits & UNI_SYMBOL) != 0 && c.cp < 0x80 && strchr(symbols, (int)c.cp) != NULL;
        if ((c.bits & UNI_PUNCT) == 0 && !symbol) {
            break;
        }
        q += c.len;
    }
    return (size_t)(q - p);
}

static size_t match_signs_default(const char *p, const char *end)
{
    return match_signs(p, end, "$+<=>^~|");
}
STAGE_OF(signs_default)

static size_t match_signs_falcon(const char *p, const char *end)
{
    return match_signs(p, end, "$+<=>^~|`");
}
STAGE_OF(signs_falcon)

// --- ranges ---

struct range {
    uint32_t first, last;
};

// Binary search in sorted ranges.
static bool in_ranges(uint32_t cp, const struct range *ranges, size_t n)
{
    size_t lo = 0;
    while (n > 0) {
        size_t half = n / 2;
        if (cp > ranges[lo + half].last) {
            lo += half + 1;
            n -= half + 1;
        } else if (cp < ranges[lo + half].first) {
            n = half;
        } else {
            return true;
        }
    }
    return false;
}

typedef bool in_set_fn(struct unicode_char c);

// SET+
INLINE size_t match_set(const char *p, const char *end, in_set_fn *in_set)
{
    const char *q = p;
    for (struct unicode_char c = unicode_char_at(q, end); c.len > 0 && in_set(c); c = unicode_char_at(q, end)) {
        q += c.len;
    }
    return (size_t)(q - p);
}

// \s?SET+; white space does not count as a member of the set.
INLINE size_t match_space_set(const char *p, const char *end, in_set_fn *in_set)
{
    struct unicode_char c = unicode_char_at(p, end);
    const char *q = c.bits & UNI_SPACE ? p + c.len : p;
    size_t n = q < end ? match_set(q, end, in_set) : 0;
    return n > 0 ? (size_t)(q - p) + n : 0;
}

#define SET_STAGES(name)                                                                                               \
    static size_t match_##name(const char *p, const char *end)                                                         \
    {                                                                                                                  \
        return match_set(p, end, is_##name);                                                                           \
    }                                                                                                                  \
    STAGE_OF(name)
#define SPACE_SET_STAGES(name)                                                                                         \
    static size_t match_##name(const char *p, const char *end)                                                         \
    {                                                                                                                  \
        return match_space_set(p, end, is_##name);                                                                     \
    }                                                                                                                  \
    STAGE_OF(name)

// --- DeepSeek ---

// The cased letters that the expression of DeepSeek LLM lists.
static bool is_deepseek_letter(struct unicode_char c)
{
    // clang-format off
    static const struct range letters[] = {
        {0xB5, 0xB5}, {0xC0, 0xD6}, {0xD8, 0xF6}, {0xF8, 0x1BA}, {0x1BC, 0x1BF}, {0x1C4, 0x293}, {0x295, 0x2AF},
        {0x370, 0x373}, {0x376, 0x377}, {0x37B, 0x37D}, {0x37F, 0x37F}, {0x386, 0x386}, {0x388, 0x38A}, {0x38C, 0x38C},
        {0x38E, 0x3A1}, {0x3A3, 0x3F5}, {0x3F7, 0x481}, {0x48A, 0x52F}, {0x531, 0x556}, {0x10A0, 0x10C5},
        {0x13A0, 0x13F5}, {0x13F8, 0x13FD}, {0x1C90, 0x1CBA}, {0x1CBD, 0x1CBF}, {0x1D00, 0x1D2B}, {0x1D6B, 0x1D77},
        {0x1D79, 0x1D9A}, {0x1E00, 0x1F15}, {0x1F18, 0x1F1D}, {0x1F20, 0x1F45}, {0x1F48, 0x1F4D}, {0x1F50, 0x1F57},
        {0x1F59, 0x1F59}, {0x1F5B, 0x1F5B}, {0x1F5D, 0x1F5D}, {0x1F5F, 0x1F7D}, {0x1F80, 0x1FB4}, {0x1FB6, 0x1FBC},
        {0x1FBE, 0x1FBE}, {0x1FC2, 0x1FC4}, {0x1FC6, 0x1FCC}, {0x1FD0, 0x1FD3}, {0x1FD6, 0x1FDB}, {0x1FE0, 0x1FEC},
        {0x1FF2, 0x1FF4}, {0x1FF6, 0x1FFC}, {0x2102, 0x2102}, {0x2107, 0x2107}, {0x210A, 0x2113}, {0x2115, 0x2115},
        {0x2119, 0x211D}, {0x2124, 0x2124}, {0x2126, 0x2126}, {0x2128, 0x2128}, {0x212A, 0x212D}, {0x212F, 0x2134},
        {0x2139, 0x2139}, {0x213C, 0x213F}, {0x2145, 0x2149}, {0x214E, 0x214E}, {0x2183, 0x2184}, {0x2C00, 0x2C7B},
        {0x2C7E, 0x2CE4}, {0x2CEB, 0x2CEE}, {0x2CF2, 0x2CF3}, {0xA640, 0xA66D}, {0xA680, 0xA69B}, {0xA722, 0xA76F},
        {0xA771, 0xA787}, {0xA78B, 0xA78E}, {0xAB70, 0xABBF}, {0xFB00, 0xFB06}, {0xFB13, 0xFB17}, {0xFF21, 0xFF3A},
        {0xFF41, 0xFF5A}, {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2},
        {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
    };
    // clang-format on
    if (c.cp < 0x80) {
        return (c.bits & UNI_LETTER) != 0;
    }
    return in_ranges(c.cp, letters, COUNT_OF(letters));
}
SPACE_SET_STAGES(deepseek_letter)

// [!-/:-~！-／：-～‘-‟　-。]; the second range includes the letters of ASCII.
static bool is_deepseek_sign(struct unicode_char c)
{
    static const struct range signs[] = {{0x2018, 0x201F}, {0x3001, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E}};
    if (c.cp < 0x80) {
        return c.cp >= 0x21 && c.cp <= 0x7E && (c.bits & UNI_NUMBER) == 0;
    }
    return in_ranges(c.cp, signs, COUNT_OF(signs));
}
SPACE_SET_STAGES(deepseek_sign)

// [一-龥ࠀ-一가-퟿]
static bool is_deepseek_cjk(struct unicode_char c)
{
    return ((c.cp >= 0x800 && c.cp <= 0x9FA5) || (c.cp >= 0xAC00 && c.cp <= 0xD7FF)) && (c.bits & UNI_SPACE) == 0;
}
SET_STAGES(deepseek_cjk)

// \s?\p{L}+ and \s?\p{P}+, the latter below.
static bool is_letter(struct unicode_char c)
{
    return (c.bits & UNI_LETTER) != 0;
}
SPACE_SET_STAGES(letter)

static bool is_punct(struct unicode_char c)
{
    return (c.bits & UNI_PUNCT) != 0;
}
SPACE_SET_STAGES(punct)

// \s+$
int split_by_trailing_spaces(struct split *s, int level, const char *p, const char *end)
{
    const char *start = end;
    while (start > p) {
        const char *q = start - 1;
        while (q > p && ((unsigned char)*q & 0xC0) == 0x80 && start - q < 4) {
            q--;
        }
        struct unicode_char c = unicode_char_at(q, end);
        if (q + c.len != start || (c.bits & UNI_SPACE) == 0) {
            break;
        }
        start = q;
    }
    int rc = pass(s, level, p, start);
    return rc != 0 ? rc : pass(s, level, start, end);
}

// [一-龥぀-ゟ゠-ヿ]
static bool is_cjk_kana(struct unicode_char c)
{
    return (c.cp >= 0x4E00 && c.cp <= 0x9FA5) || (c.cp >= 0x3040 && c.cp <= 0x30FF);
}
SET_STAGES(cjk_kana)

// --- other models ---

// [가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+
static bool is_hangul(struct unicode_char c)
{
    return (c.cp >= 0xAC00 && c.cp <= 0xD7A3) || (c.cp >= 0x3131 && c.cp <= 0x318E);
}

static bool is_east_sign(struct unicode_char c)
{
    static const struct range signs[] = {{0x2014, 0x2014}, {0x2018, 0x2019}, {0x201C, 0x201D},
                                         {0x2026, 0x2026}, {0x3001, 0x303F}, {0xFE30, 0xFE4F},
                                         {0xFF01, 0xFF01}, {0xFF0C, 0xFF0C}, {0xFF1A, 0xFF1B}};
    return in_ranges(c.cp, signs, COUNT_OF(signs));
}

static bool is_bopomofo(struct unicode_char c)
{
    return c.cp >= 0x3105 && c.cp <= 0x312F;
}

static size_t match_east(const char *p, const char *end)
{
    size_t n = match_set(p, end, is_hangul);
    n = n > 0 ? n : match_set(p, end, is_east_sign);
    n = n > 0 ? n : match_set(p, end, is_bopomofo);
    return n > 0 ? n : match_set(p, end, is_cjk_kana);
}
STAGE_OF(east)

// Scripts that are written without spaces, as AFMoE lists them.
static bool is_unspaced(struct unicode_char c)
{
    static const struct range scripts[] = {{0xE40, 0xE7F},   {0xE80, 0xEFF},   {0x1000, 0x109F}, {0x1100, 0x11FF},
                                           {0x1780, 0x17FF}, {0x2F00, 0x2FDF}, {0x3040, 0x30FF}, {0x3400, 0x4DBF},
                                           {0x4E00, 0x9FFF}, {0xA9E0, 0xA9FF}, {0xAA60, 0xAA7F}, {0xAC00, 0xD7AF},
                                           {0xF900, 0xFAFF}, {0xFF65, 0xFF9F}};
    return in_ranges(c.cp, scripts, COUNT_OF(scripts));
}
SET_STAGES(unspaced)

// \s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s
// Runs after Llama 3's expression. There, a piece that ends with white space other than a newline consists of white
// space only.
int split_by_powers_of_spaces(struct split *s, int level, const char *p, const char *end)
{
    const char *last = end - 1;
    while (last > p && ((unsigned char)*last & 0xC0) == 0x80) {
        last--;
    }
    struct unicode_char tail = unicode_char_at(last, end);
    if ((tail.bits & UNI_SPACE) == 0 || is_newline(tail.cp)) {
        return pass(s, level, p, end);
    }
    size_t left = 0;
    for (const char *q = p; q < end; q += unicode_char_at(q, end).len) {
        left++;
    }
    while (left > 0) {
        size_t take = 512;
        while (take > left) {
            take /= 2;
        }
        left -= take;
        const char *q = p;
        for (; take > 0; take--) {
            q += unicode_char_at(q, end).len;
        }
        int rc = pass(s, level, p, q);
        if (rc != 0) {
            return rc;
        }
        p = q;
    }
    return 0;
}

// Cuts runs of characters with one of the bits into groups of three, counted from the right: 1234567 -> 1 234 567.
// `isolated`: the ends of a run are cuts, too. A run that is followed by a character with one of the bits `unless`,
// or then also by _, is left whole.
INLINE int split_thirds(struct split *s, int level, const char *p, const char *end, unsigned bits, bool isolated,
                        unsigned unless)
{
    const char *piece = p;
    int rc = 0;
    while (p < end && rc == 0) {
        const char *start = skip_others(p, end, bits);
        struct unicode_char c;
        size_t left = 0;
        for (p = start; c = unicode_char_at(p, end), (c.bits & bits) != 0; p += c.len) {
            left++;
        }
        if ((c.bits & unless) != 0 || (unless != 0 && c.cp == '_')) {
            continue;
        }
        for (const char *q = start; q < p && rc == 0; q += unicode_char_at(q, end).len, left--) {
            if (left % 3 == 0 || (isolated && q == start)) {
                rc = pass(s, level, piece, q);
                piece = q;
            }
        }
        if (isolated && rc == 0) {
            rc = pass(s, level, piece, p);
            piece = p;
        }
    }
    return rc != 0 ? rc : pass(s, level, piece, end);
}

// The grouping of digits in AFMoE.
int split_by_number_thirds(struct split *s, int level, const char *p, const char *end)
{
    return split_thirds(s, level, p, end, UNI_NUMBER, true, 0);
}

// (?=(\d{3})+(?!\d))
int split_by_digit_thirds(struct split *s, int level, const char *p, const char *end)
{
    return split_thirds(s, level, p, end, UNI_DIGIT, false, 0);
}

// \d{1,3}(?=(?:\d{3})*\b)
int split_by_bounded_thirds(struct split *s, int level, const char *p, const char *end)
{
    return split_thirds(s, level, p, end, UNI_DIGIT, true, UNI_LETTER | UNI_MARK);
}

// <sentinel:[0-9]+>|IMGIMG[A-I]{1,4}Z
static size_t match_chameleon_image(const char *p, const char *end)
{
    static const char sentinel[] = "<sentinel:", image[] = "IMGIMG";
    const char *q = p;
    if ((size_t)(end - p) > sizeof sentinel && memcmp(p, sentinel, sizeof sentinel - 1) == 0) {
        const char *digits = q = p + sizeof sentinel - 1;
        while (q < end && is_ascii_digit(*q)) {
            q++;
        }
        return q > digits && q < end && *q == '>' ? (size_t)(q + 1 - p) : 0;
    }
    if ((size_t)(end - p) > sizeof image && memcmp(p, image, sizeof image - 1) == 0) {
        const char *letters = q = p + sizeof image - 1;
        while (q < end && q - letters < 4 && *q >= 'A' && *q <= 'I') {
            q++;
        }
        return q > letters && q < end && *q == 'Z' ? (size_t)(q + 1 - p) : 0;
    }
    return 0;
}
STAGE_OF(chameleon_image)

// [\t\n], four spaces, or two spaces.
static size_t match_chameleon_space(const char *p, const char *end)
{
    if (*p == '\t' || *p == '\n') {
        return 1;
    }
    size_t n = 0;
    while (n < 4 && p + n < end && p[n] == ' ') {
        n++;
    }
    return n == 4 ? 4 : n >= 2 ? 2 : 0;
}
STAGE_OF(chameleon_space)

// [\p{P}!-/:-@\[-`{-~]
static size_t match_sign(const char *p, const char *end)
{
    struct unicode_char c = unicode_char_at(p, end);
    return (c.bits & UNI_PUNCT) != 0 || (c.cp < 0x80 && (c.bits & UNI_SYMBOL) != 0) ? (size_t)c.len : 0;
}
STAGE_OF(sign)
