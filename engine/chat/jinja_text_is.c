// Methods of strings that classify their contents, and the table of all methods of strings.
#include "engine/chat/jinja_text.h"

#include "engine/text/unicode.h"

static int plain(struct run *r, const char *what, const struct call_args *args)
{
    return args_bind(r, args, what, "", 0, NULL);
}

// ---- Classes of characters ----

static bool is_decimal(uint32_t cp)
{
    return (unicode_bits(cp) & UNI_DIGIT) != 0;
}

// Decimal digits, and characters such as superscripts that have a digit's value.
static bool is_digit(uint32_t cp)
{
    return is_decimal(cp) || cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || cp == 0x2070 || (cp >= 0x2074 && cp <= 0x2079) ||
           (cp >= 0x2080 && cp <= 0x2089) || (cp >= 0x1369 && cp <= 0x1371) || cp == 0x19DA ||
           (cp >= 0x2460 && cp <= 0x2468) || (cp >= 0x2474 && cp <= 0x247C) || (cp >= 0x2488 && cp <= 0x2490) ||
           cp == 0x24EA || (cp >= 0x24F5 && cp <= 0x24FD) || cp == 0x24FF || (cp >= 0x2776 && cp <= 0x277E) ||
           (cp >= 0x2780 && cp <= 0x2788) || (cp >= 0x278A && cp <= 0x2792) || (cp >= 0x10A40 && cp <= 0x10A43) ||
           (cp >= 0x10E60 && cp <= 0x10E68) || (cp >= 0x11052 && cp <= 0x1105A) || (cp >= 0x1F100 && cp <= 0x1F10A);
}

static bool is_alpha(uint32_t cp)
{
    return (unicode_bits(cp) & UNI_LETTER) != 0;
}

static bool is_numeric(uint32_t cp)
{
    return (unicode_bits(cp) & UNI_NUMBER) != 0;
}

static bool is_alnum(uint32_t cp)
{
    return is_alpha(cp) || is_numeric(cp);
}

static bool is_ascii(uint32_t cp)
{
    return cp < 0x80;
}

static bool is_printable(uint32_t cp)
{
    unsigned bits = unicode_bits(cp);
    return cp == ' ' || ((bits & 0x7F) != 0 && !(bits & (UNI_CONTROL | UNI_SEPARATOR)));
}

static int all_are(struct run *r, const struct value *s, const struct call_args *args, const char *what,
                   bool (*is)(uint32_t), bool when_empty, struct value *out)
{
    bool all = s->text.len > 0 || when_empty;
    if (plain(r, what, args) || run_step(r, s->text.len / 8))
        return -1;
    for (size_t at = 0, len; at < s->text.len && all; at += len)
        all = is(text_char(s->text, at, &len));
    *out = value_bool(all);
    return 0;
}

#define STR_IS(name, is, when_empty)                                                                                   \
    static int str_##name(struct run *r, const struct value *s, const struct call_args *args, struct value *out)       \
    {                                                                                                                  \
        return all_are(r, s, args, #name, is, when_empty, out);                                                        \
    }
STR_IS(isdecimal, is_decimal, false)
STR_IS(isdigit, is_digit, false)
STR_IS(isalpha, is_alpha, false)
STR_IS(isnumeric, is_numeric, false)
STR_IS(isalnum, is_alnum, false)
STR_IS(isascii, is_ascii, true)
STR_IS(isspace, text_is_space, false)
STR_IS(isprintable, is_printable, true)

// At least one character has case, and all that have case are of this one.
bool text_has_case(struct str s, bool upper)
{
    bool some = false;
    for (size_t at = 0, len; at < s.len; at += len) {
        uint32_t cp = text_char(s, at, &len);
        bool is = upper ? case_is_upper(cp) : case_is_lower(cp);
        if (!is && case_is_cased(cp))
            return false;
        some = some || is;
    }
    return some;
}

static int str_isupper(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    if (plain(r, "isupper", args) || run_step(r, s->text.len / 8))
        return -1;
    *out = value_bool(text_has_case(s->text, true));
    return 0;
}

static int str_islower(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    if (plain(r, "islower", args) || run_step(r, s->text.len / 8))
        return -1;
    *out = value_bool(text_has_case(s->text, false));
    return 0;
}

static int str_istitle(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    bool within = false, some = false, all = true;
    if (plain(r, "istitle", args) || run_step(r, s->text.len / 8))
        return -1;
    for (size_t at = 0, len; at < s->text.len && all; at += len) {
        uint32_t cp = text_char(s->text, at, &len);
        bool lower = case_is_lower(cp), cased = case_is_cased(cp);
        all = !cased || lower == within;
        some = some || cased;
        within = cased;
    }
    *out = value_bool(all && some);
    return 0;
}

static int str_isidentifier(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    bool all = s->text.len > 0;
    if (plain(r, "isidentifier", args) || run_step(r, s->text.len / 8))
        return -1;
    for (size_t at = 0, len; at < s->text.len && all; at += len) {
        uint32_t cp = text_char(s->text, at, &len);
        unsigned bits = unicode_bits(cp);
        all = cp == '_' || bits & UNI_LETTER || (at > 0 && bits & (UNI_DIGIT | UNI_MARK));
    }
    *out = value_bool(all);
    return 0;
}

static int str_format(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return run_brace_format(r, s, args, out);
}

static const struct method_row {
    const char *name;
    native_fn *call;
} string_methods[] = {
    {"capitalize", str_capitalize},
    {"casefold", str_lower},
    {"center", str_center},
    {"count", str_count},
    {"endswith", str_endswith},
    {"expandtabs", str_expandtabs},
    {"find", str_find},
    {"format", str_format},
    {"index", str_index},
    {"isalnum", str_isalnum},
    {"isalpha", str_isalpha},
    {"isascii", str_isascii},
    {"isdecimal", str_isdecimal},
    {"isdigit", str_isdigit},
    {"isidentifier", str_isidentifier},
    {"islower", str_islower},
    {"isnumeric", str_isnumeric},
    {"isprintable", str_isprintable},
    {"isspace", str_isspace},
    {"istitle", str_istitle},
    {"isupper", str_isupper},
    {"join", str_join},
    {"ljust", str_ljust},
    {"lower", str_lower},
    {"lstrip", str_lstrip},
    {"partition", str_partition},
    {"removeprefix", str_removeprefix},
    {"removesuffix", str_removesuffix},
    {"replace", str_replace},
    {"rfind", str_rfind},
    {"rindex", str_rindex},
    {"rjust", str_rjust},
    {"rpartition", str_rpartition},
    {"rsplit", str_rsplit},
    {"rstrip", str_rstrip},
    {"split", str_split},
    {"splitlines", str_splitlines},
    {"startswith", str_startswith},
    {"strip", str_strip},
    {"swapcase", str_swapcase},
    {"title", str_title},
    {"upper", str_upper},
    {"zfill", str_zfill},
};

native_fn *text_method(struct str name, const char **canonical)
{
    for (size_t i = 0; i < COUNT_OF(string_methods); i++)
        if (str_equal_z(name, string_methods[i].name)) {
            *canonical = string_methods[i].name;
            return string_methods[i].call;
        }
    return NULL;
}
