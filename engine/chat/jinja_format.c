// Python's two kinds of formatting: "%05.2f" % x, and "{:>8}".format(x).
#include "engine/chat/jinja_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/json.h"

enum { WIDTH_MAX = 1 << 20, PRECISION_MAX = 1000 };

// The format of one value, for both kinds.
struct spec {
    struct value fill;                                     // one character
    char align;                                            // '<', '>', '^', '='; '\0': default of the kind of value
    char sign;                                             // '-', '+', ' '
    bool alternate, grouped, underscores, zeros, has_sign; // zeros: a 0 before the width and no alignment
    int64_t width, precision;                              // precision -1: none
    char type;                                             // '\0': default of the kind of value
};

// The conversion s, r or a of a value to text: str, repr or ascii.
static int convert(struct run *r, char how, const struct value *v, struct value *out)
{
    return how == 's' ? run_str(r, v, out) : how == 'r' ? run_repr(r, v, out) : run_ascii(r, v, out);
}

// ---- Numbers to digits ----

static int put_z(struct run *r, struct build *b, const char *z, uint8_t origin)
{
    return build_text(r, b, str_from(z), origin == ORIGIN_OWN ? ORIGIN_OWN : ORIGIN_INPUT, NULL);
}

// Writes sign, prefix and digits, padded as the format says.
static int put_number(struct run *r, struct build *b, const struct spec *s, const char *sign, const char *prefix,
                      const char *digits, uint8_t origin)
{
    int64_t n = (int64_t)(strlen(sign) + strlen(prefix) + strlen(digits)), missing = MAX(s->width - n, (int64_t)0);
    char align = s->align ? s->align : '>';
    if (run_step(r, (size_t)missing))
        return -1;
    int64_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0, within = align == '=' ? missing : 0;
    for (int64_t i = 0; i < before; i++)
        if (build_string(r, b, &s->fill))
            return -1;
    if (put_z(r, b, sign, origin) || put_z(r, b, prefix, origin))
        return -1;
    for (int64_t i = 0; i < within; i++)
        if (build_string(r, b, &s->fill))
            return -1;
    if (put_z(r, b, digits, origin))
        return -1;
    for (int64_t i = before + within; i < missing; i++)
        if (build_string(r, b, &s->fill))
            return -1;
    return 0;
}

static const char *sign_text(const struct spec *s, bool negative)
{
    return negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
}

// Inserts separators between groups of digits of the integer part, for which there must be room: a float has at most 309
// digits before its point.
static void group_digits(char *text, char separator, size_t group)
{
    const char *const figures = group == 3 ? "0123456789" : "0123456789abcdefABCDEF";
    size_t n = strspn(text, figures), len = strlen(text);
    for (size_t i = n; i > group;) {
        i -= group;
        memmove(text + i + 1, text + i, len - i + 1);
        text[i] = separator;
        len++;
    }
}

static int put_int(struct run *r, struct build *b, const struct spec *s, int64_t v, char type, uint8_t origin)
{
    char digits[2 * 64 + 2], *p = digits + 66;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v, base = type == 'x' || type == 'X' ? 16
                                                               : type == 'o'              ? 8
                                                               : type == 'b'              ? 2
                                                                                          : 10;
    const char *figures = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    const char *prefix = !s->alternate ? ""
                         : type == 'x' ? "0x"
                         : type == 'X' ? "0X"
                         : type == 'o' ? "0o"
                         : type == 'b' ? "0b"
                                       : "";
    *p = '\0';
    do {
        *--p = figures[u % base];
        u /= base;
    } while (u > 0);
    char text[PRECISION_MAX + 200];
    size_t n = strlen(p), zeros = s->precision > (int64_t)n ? (size_t)s->precision - n : 0;
    memset(text, '0', zeros);
    memcpy(text + zeros, p, n + 1);
    if (s->grouped || s->underscores)
        group_digits(text, s->grouped ? ',' : '_', base == 10 ? 3 : 4);
    return put_number(r, b, s, sign_text(s, v < 0), prefix, text, origin);
}

// The exponent form without zeros at the end of its digits.
static void short_exponent(double f, int precision, char *text, size_t room)
{
    snprintf(text, room, "%.*e", precision - 1, f);
    char *e = strchr(text, 'e'), *end = e;
    if (precision > 1) {
        while (end[-1] == '0')
            end--;
        end -= end[-1] == '.';
    }
    memmove(end, e, strlen(e) + 1);
}

// The general format without a type: like repr, but with a precision it is C's g with at least one decimal.
static void general(double f, const struct spec *s, char *text, size_t room)
{
    if (s->precision < 0) {
        float_repr(f, text);
        return;
    }
    int precision = (int)MAX(s->precision, (int64_t)1);
    snprintf(text, room, "%.*g", precision, f);
    char *e = strchr(text, 'e');
    if (!e && !strchr(text, '.')) {
        // Python writes "1.0" if it has fewer digits than the precision, otherwise the exponent form
        if ((int)strlen(text) < precision)
            strcat(text, ".0");
        else
            short_exponent(f, precision, text, room);
    }
}

// Digits before the point take the square of their number, up to 8 us for 308 of them, those behind it 5 ns each.
int run_step_float(struct run *r, double f, int64_t precision)
{
    int exponent = 0;
    if (isfinite(f))
        frexp(f, &exponent);
    const size_t before = (size_t)MAX(exponent, 0) * 3 / 10, behind = (size_t)MIN(MAX(precision, 0), PRECISION_MAX);
    return run_step(r, 4 + before * before / 1100 + behind / 16);
}

static int put_float(struct run *r, struct build *b, const struct spec *s, double f, char type, uint8_t origin)
{
    char text[PRECISION_MAX + 800];
    bool percent = type == '%';
    if (run_step_float(r, f, s->precision))
        return -1;
    int precision = s->precision < 0 ? 6 : (int)s->precision;
    double v = fabs(percent ? f * 100 : f);
    if (!isfinite(v))
        snprintf(text, sizeof text, "%s", isnan(v) ? "nan" : "inf");
    else if (type == 'e' || type == 'E')
        snprintf(text, sizeof text, s->alternate ? "%#.*e" : "%.*e", precision, v);
    else if (type == 'g' || type == 'G' || type == 'n')
        snprintf(text, sizeof text, s->alternate ? "%#.*g" : "%.*g", precision, v);
    else if (type == 'f' || type == 'F' || percent)
        snprintf(text, sizeof text, s->alternate ? "%#.*f" : "%.*f", precision, v);
    else
        general(v, s, text, sizeof text);
    for (char *p = text; (type == 'E' || type == 'G' || type == 'F') && *p; p++)
        *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
    if (s->grouped || s->underscores)
        group_digits(text, s->grouped ? ',' : '_', 3);
    if (percent)
        strcat(text, "%");
    return put_number(r, b, s, sign_text(s, signbit(f) && !isnan(f)), "", text, origin);
}

// The character of a number, whose origin it has; text has room for its bytes.
static int char_of(struct run *r, int64_t i, const struct value *v, char text[4], struct value *out)
{
    if (i < 0 || i > 0x10FFFF || (i >= 0xD800 && i < 0xE000))
        return run_fail(r, "%%c arg not in range(0x110000)");
    *out = value_string((struct str){text, (size_t)utf8_encode((uint32_t)i, text)});
    out->origin = v->origin;
    return 0;
}

static int put_text(struct run *r, struct build *b, const struct spec *s, const struct value *text)
{
    struct value cut = *text, padded;
    if (run_step_text(r, s->precision >= 0 ? text->text.len : 0))
        return -1;
    if (s->precision >= 0)
        cut = string_slice(text, 0, string_char_at(text->text, (size_t)s->precision));
    if (s->align == '=')
        return run_fail(r, "'=' alignment not allowed in string format specifier");
    int align = s->align == '>' ? 1 : s->align == '^' ? 0 : -1;
    if (align == 0) { // unlike in str.center, an odd remainder goes to the right
        if (run_step_text(r, cut.text.len))
            return -1;
        int64_t n = (int64_t)string_chars(cut.text), left = s->width > n ? (s->width - n) / 2 : 0;
        if (text_pad(r, &cut, n + left, 1, &s->fill, &padded))
            return -1;
        cut = padded;
        align = -1;
    }
    return text_pad(r, &cut, s->width, align, &s->fill, &padded) ? -1 : build_string(r, b, &padded);
}

static bool whole(const struct value *v, int64_t *out)
{
    *out = v->kind == VALUE_BOOL ? v->boolean : v->integer;
    return v->kind == VALUE_INT || v->kind == VALUE_BOOL;
}

static bool real(const struct value *v, double *out)
{
    int64_t i;
    if (whole(v, &i)) {
        *out = (double)i;
        return true;
    }
    return value_number(v, out);
}

// ---- "..." % values ----

struct percent {
    struct run *r;
    const struct value *format, *args;
    struct build b;
    size_t at, next; // byte of the format; next item of a tuple
    bool named;
};

static int next_arg(struct percent *p, struct value *out)
{
    if (p->args->kind == VALUE_TUPLE) {
        if (p->next >= p->args->list->n)
            return run_fail(p->r, "not enough arguments for format string");
        *out = p->args->list->items[p->next++];
        return 0;
    }
    if (p->next++ > 0)
        return run_fail(p->r, "not enough arguments for format string");
    *out = *p->args;
    return 0;
}

static char format_char(const struct percent *p)
{
    return p->at < p->format->text.len ? p->format->text.data[p->at] : '\0';
}

// %(key): takes the item of a dict.
static int percent_key(struct percent *p, struct value *arg)
{
    size_t from = ++p->at;
    int open = 1;
    for (; p->at < p->format->text.len && open > 0; p->at++)
        open += (format_char(p) == '(') - (format_char(p) == ')');
    if (open)
        return run_fail(p->r, "incomplete format key");
    if (p->args->kind != VALUE_DICT)
        return run_fail(p->r, "format requires a mapping");
    struct str key = {p->format->text.data + from, p->at - 1 - from};
    const struct value *v;
    if (run_find_name(p->r, p->args, key, &v))
        return -1;
    if (!v)
        return run_fail(p->r, "the format's key '%.*s' is not in the dict", STR_ARG(key));
    *arg = *v;
    p->named = true;
    return 0;
}

// Reads a number, or * for the next argument.
static int percent_number(struct percent *p, int64_t most, int64_t *out)
{
    struct value v;
    if (format_char(p) == '*') {
        p->at++;
        if (next_arg(p, &v))
            return -1;
        if (v.kind != VALUE_INT)
            return run_fail(p->r, "* wants int");
        *out = v.integer;
    } else {
        for (*out = 0; format_char(p) >= '0' && format_char(p) <= '9' && *out <= most; p->at++)
            *out = 10 * *out + (format_char(p) - '0');
    }
    return *out > most ? run_fail(p->r, "a width or precision over %lld", (long long)most) : 0;
}

static int percent_spec(struct percent *p, struct spec *s)
{
    bool zero = false, left = false;
    *s = (struct spec){.fill = VALUE_LIT(" "), .sign = '-', .precision = -1};
    for (char c; (c = format_char(p)) && strchr("-+ #0", c); p->at++) {
        left = left || c == '-';
        zero = zero || c == '0';
        s->alternate = s->alternate || c == '#';
        if (c == '+' || (c == ' ' && s->sign != '+'))
            s->sign = c;
    }
    if (percent_number(p, WIDTH_MAX, &s->width))
        return -1;
    if (s->width < 0) {
        left = true;
        s->width = s->width > -WIDTH_MAX ? -s->width : WIDTH_MAX;
    }
    if (format_char(p) == '.') {
        p->at++;
        if (percent_number(p, PRECISION_MAX, &s->precision))
            return -1;
        s->precision = MAX(s->precision, (int64_t)0);
    }
    while (format_char(p) && strchr("hlL", format_char(p)))
        p->at++;
    s->align = left ? '<' : zero ? '=' : '>';
    if (s->align == '=')
        s->fill = VALUE_LIT("0");
    s->type = format_char(p);
    p->at += s->type != '\0';
    return 0;
}

static int percent_char(struct percent *p, struct spec *s, const struct value *v)
{
    char text[4];
    int64_t i;
    struct value c = *v;
    if (whole(v, &i)) {
        if (char_of(p->r, i, v, text, &c))
            return -1;
    } else if (!is_string(v) || v->text.len > 4 || string_chars(v->text) != 1) {
        return run_fail(p->r, "%%c requires int or char");
    }
    s->align = s->align == '=' ? '>' : s->align;
    s->fill = VALUE_LIT(" ");
    s->precision = -1;
    return put_text(p->r, &p->b, s, &c);
}

static int percent_text(struct percent *p, struct spec *s, const struct value *v)
{
    struct value text;
    if (convert(p->r, s->type, v, &text) || (p->b.markup && run_escape_html(p->r, s->type == 's' ? v : &text, &text)))
        return -1;
    s->align = s->align == '=' ? '>' : s->align;
    s->fill = VALUE_LIT(" ");
    return put_text(p->r, &p->b, s, &text);
}

static int percent_value(struct percent *p, struct spec *s, const struct value *v)
{
    int64_t i;
    double f;
    if (is_undefined(v) && s->type != 's' && s->type != 'r' && s->type != 'a')
        return run_use_undefined(p->r, v);
    switch (s->type) {
    case 's':
    case 'r':
    case 'a':
        return percent_text(p, s, v);
    case 'c':
        return percent_char(p, s, v);
    case 'd':
    case 'i':
    case 'u':
        if (!whole(v, &i)) {
            if (v->kind != VALUE_FLOAT || !(fabs(v->real) < 0x1p63))
                return run_fail(p->r, "%%%c format: a real number is required, not %s", s->type, value_type_name(v));
            i = (int64_t)v->real;
        }
        return put_int(p->r, &p->b, s, i, 'd', v->origin);
    case 'x':
    case 'X':
    case 'o':
        if (!whole(v, &i))
            return run_fail(p->r, "%%%c format: an integer is required, not %s", s->type, value_type_name(v));
        return put_int(p->r, &p->b, s, i, s->type, v->origin);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!real(v, &f))
            return run_fail(p->r, "must be real number, not %s", value_type_name(v));
        return put_float(p->r, &p->b, s, f, s->type, v->origin);
    case '\0':
        return run_fail(p->r, "incomplete format");
    default:
        return run_fail(p->r, "unsupported format character '%c'", s->type);
    }
}

static int percent_one(struct percent *p)
{
    struct value v = value_none();
    struct spec s;
    bool keyed = format_char(p) == '(';
    if ((keyed && percent_key(p, &v)) || percent_spec(p, &s))
        return -1;
    if (s.type == '%')
        return put_z(p->r, &p->b, "%", ORIGIN_OWN);
    if (!keyed && next_arg(p, &v))
        return -1;
    return percent_value(p, &s, &v);
}

int run_percent_format(struct run *r, const struct value *format, const struct value *args, struct value *out)
{
    struct percent p = {.r = r, .format = format, .args = args, .b = {.markup = format->markup}};
    struct str f = format->text;
    if (run_step_text(r, f.len))
        return -1;
    while (p.at < f.len) {
        const char *percent = memchr(f.data + p.at, '%', f.len - p.at);
        size_t to = percent ? (size_t)(percent - f.data) : f.len;
        if (run_step(r, 1) || build_slice(r, &p.b, format, p.at, to))
            return -1;
        p.at = to + 1;
        if (percent && percent_one(&p))
            return -1;
    }
    bool left = args->kind == VALUE_TUPLE
                    ? p.next < args->list->n
                    : p.next == 0 && !p.named && args->kind != VALUE_DICT && args->kind != VALUE_LIST &&
                          !is_undefined(args) && !is_object(args, OBJ_RANGE);
    if (left)
        return run_fail(r, "not all arguments converted during string formatting");
    *out = build_value(&p.b);
    return 0;
}

// ---- "...".format(values) ----

struct brace {
    struct run *r;
    const struct value *format;
    const struct call_args *args;
    size_t next; // index of the next field without a name
    enum { NUMBERING_OPEN, NUMBERING_AUTO, NUMBERING_GIVEN } numbering;
};

static int spec_number(struct run *r, struct str *s, int64_t most, int64_t *out)
{
    for (*out = 0; s->len && s->data[0] >= '0' && s->data[0] <= '9' && *out <= most; s->data++, s->len--)
        *out = 10 * *out + (s->data[0] - '0');
    return *out > most ? run_fail(r, "a width or precision over %lld", (long long)most) : 0;
}

static bool spec_take(struct str *s, const char *set, char *out)
{
    if (!s->len || !s->data[0] || !strchr(set, s->data[0]))
        return false;
    *out = s->data[0];
    s->data++;
    s->len--;
    return true;
}

// Parses [[fill]align][sign][#][0][width][,][.precision][type].
static int parse_spec(struct run *r, struct str s, struct spec *out)
{
    char c;
    bool filled = false;
    *out = (struct spec){.fill = VALUE_LIT(" "), .sign = '-', .precision = -1};
    size_t first = s.len ? text_char_len(s.data, s.data + s.len) : 0;
    if (s.len > first && strchr("<>^=", s.data[first]) && s.data[first]) {
        out->fill = value_string((struct str){s.data, first});
        out->align = s.data[first];
        filled = true;
        s = (struct str){s.data + first + 1, s.len - first - 1};
    } else {
        spec_take(&s, "<>^=", &out->align);
    }
    out->has_sign = spec_take(&s, "+- ", &out->sign);
    out->alternate = spec_take(&s, "#", &c);
    if (spec_take(&s, "0", &c) && !filled) {
        out->fill = VALUE_LIT("0");
        out->zeros = !out->align;
        out->align = out->align ? out->align : '=';
    }
    if (spec_number(r, &s, WIDTH_MAX, &out->width))
        return -1;
    out->grouped = spec_take(&s, ",", &c);
    out->underscores = !out->grouped && spec_take(&s, "_", &c);
    if (spec_take(&s, ".", &c)) {
        if (!s.len || s.data[0] < '0' || s.data[0] > '9')
            return run_fail(r, "Format specifier missing precision");
        if (spec_number(r, &s, PRECISION_MAX, &out->precision))
            return -1;
    }
    out->type = s.len ? s.data[0] : '\0';
    return s.len == (out->type != '\0') ? 0 : run_fail(r, "Invalid format specifier");
}

static int unknown_code(struct run *r, const struct spec *s, const struct value *v)
{
    return run_fail(r, "Unknown format code '%c' for object of type '%s'", s->type, value_type_name(v));
}

// What Python refuses beside a type of whole numbers.
static int check_int_spec(struct run *r, const struct spec *s)
{
    const bool separated = s->grouped || s->underscores;
    if (separated && s->type && strchr(s->grouped ? "bcnoxX" : "cn", s->type))
        return run_fail(r, "Cannot specify '%c' with '%c'.", s->grouped ? ',' : '_', s->type);
    if (s->type == 'c' && s->has_sign)
        return run_fail(r, "Sign not allowed with integer format specifier 'c'");
    if (s->type == 'c' && s->alternate)
        return run_fail(r, "Alternate form (#) not allowed with integer format specifier 'c'");
    return 0;
}

static int format_number(struct run *r, struct build *b, const struct spec *s, const struct value *v)
{
    int64_t i;
    double f = 0;
    bool is_whole = whole(v, &i);
    real(v, &f);
    if (is_whole && check_int_spec(r, s))
        return -1;
    if (s->type == 'c' && is_whole) {
        char text[4];
        struct value c;
        struct spec aligned = *s; // as a number is
        aligned.align = s->align && s->align != '=' ? s->align : '>';
        return char_of(r, i, v, text, &c) ? -1 : put_text(r, b, &aligned, &c);
    }
    if (is_whole && (!s->type || strchr("dboxXn", s->type))) {
        if (s->precision >= 0)
            return run_fail(r, "Precision not allowed in integer format specifier");
        return put_int(r, b, s, i, s->type ? s->type : 'd', v->origin);
    }
    if (s->type && !strchr("eEfFgGn%", s->type))
        return unknown_code(r, s, v);
    return put_float(r, b, s, f, s->type, v->origin);
}

static int format_with_spec(struct run *r, struct build *b, const struct value *v, struct str text)
{
    struct spec s;
    if (parse_spec(r, text, &s))
        return -1;
    if (v->kind == VALUE_INT || v->kind == VALUE_FLOAT || v->kind == VALUE_BOOL)
        return format_number(r, b, &s, v);
    if (!is_string(v))
        return run_fail(r, "unsupported format string passed to %s.__format__", value_type_name(v));
    if (s.type && s.type != 's')
        return unknown_code(r, &s, v);
    if (s.has_sign || s.alternate || s.grouped || s.underscores)
        return run_fail(r, "a string is formatted without sign, '#' and separators");
    s.align = s.zeros ? '<' : s.align;
    return put_text(r, b, &s, v);
}

// In markup, what is put in is escaped once it is formatted.
static int format_value(struct run *r, struct build *b, const struct value *v, struct str text)
{
    struct build plain = {.markup = is_string(v) && v->markup};
    struct value shown;
    if (!b->markup)
        return text.len ? format_with_spec(r, b, v, text) : build_str(r, b, v);
    if (text.len == 0)
        return run_escape_html(r, v, &shown) || build_string(r, b, &shown) ? -1 : 0;
    if (format_with_spec(r, &plain, v, text))
        return -1;
    const struct value made = build_value(&plain);
    return run_escape_html(r, &made, &shown) || build_string(r, b, &shown) ? -1 : 0;
}

// Whether a name is a number of at most 9 digits.
static bool number_of(struct str name, size_t *out)
{
    *out = 0;
    for (size_t i = 0; i < name.len; i++) {
        if (name.data[i] < '0' || name.data[i] > '9')
            return false;
        *out = 10 * *out + (size_t)(name.data[i] - '0');
    }
    return name.len > 0 && name.len < 10;
}

// The argument that a field names: "", "0", "name".
static int field_argument(struct brace *f, struct str name, struct value *out)
{
    size_t index = 0;
    bool digits = number_of(name, &index);
    if (name.len && !digits) {
        if (run_step(f->r, f->args->n_named / 8))
            return -1;
        for (size_t i = 0; i < f->args->n_named; i++)
            if (str_equal(f->args->names[i], name)) {
                *out = f->args->at[f->args->n + i];
                return 0;
            }
        return run_fail(f->r, "format() has no argument '%.*s'", STR_ARG(name));
    }
    if (f->numbering != NUMBERING_OPEN && (f->numbering == NUMBERING_GIVEN) != digits)
        return run_fail(f->r, "cannot switch between manual and automatic field numbering");
    f->numbering = digits ? NUMBERING_GIVEN : NUMBERING_AUTO;
    index = digits ? index : f->next++;
    if (index >= f->args->n)
        return run_fail(f->r, "Replacement index %zu out of range for positional args tuple", index);
    *out = f->args->at[index];
    return 0;
}

// Evaluates name.attribute[item]...
static int field_value(struct brace *f, struct str field, struct value *out)
{
    size_t n = 0;
    while (n < field.len && field.data[n] != '.' && field.data[n] != '[')
        n++;
    if (field_argument(f, (struct str){field.data, n}, out))
        return -1;
    while (n < field.len) {
        bool attribute = field.data[n++] == '.';
        size_t from = n;
        while (n < field.len && (attribute ? field.data[n] != '.' && field.data[n] != '[' : field.data[n] != ']'))
            n++;
        struct str name = {field.data + from, n - from};
        struct value of = *out, index = value_string(name);
        if (!attribute && n == field.len)
            return run_fail(f->r, "Missing ']' in format string");
        if (name.len == 0)
            return run_fail(f->r, "Empty attribute in format string");
        if (run_step(f->r, 1))
            return -1;
        size_t number;
        if (!attribute && number_of(name, &number))
            index = value_int((int64_t)number);
        if (attribute ? run_get_attribute(f->r, &of, name, out) : run_get_item(f->r, &of, &index, out))
            return -1;
        n += !attribute;
    }
    return 0;
}

static int expand(struct brace *f, const struct value *text, int depth, struct build *b);

// Writes a field given without its braces: value[!conversion][:spec]. The spec may contain fields.
static int expand_field(struct brace *f, const struct value *field, int depth, struct build *b)
{
    struct str s = field->text;
    size_t n = 0, bracket = 0;
    for (; n < s.len && (bracket || (s.data[n] != '!' && s.data[n] != ':')); n++)
        bracket = s.data[n] == '[' ? 1 : s.data[n] == ']' ? 0 : bracket;
    struct value v, shown, spec;
    if (field_value(f, (struct str){s.data, n}, &v))
        return -1;
    if (n < s.len && s.data[n] == '!') {
        char how = n + 1 < s.len ? s.data[n + 1] : '\0';
        if (how != 's' && how != 'r' && how != 'a')
            return run_fail(f->r, "Unknown conversion specifier");
        if (convert(f->r, how, &v, &shown))
            return -1;
        v = shown;
        n += 2;
        if (n < s.len && s.data[n] != ':')
            return run_fail(f->r, "expected ':' after conversion specifier");
    }
    struct value rest = string_slice(field, MIN(n + 1, s.len), s.len);
    struct build expanded = {0};
    if (expand(f, &rest, depth + 1, &expanded))
        return -1;
    spec = build_value(&expanded);
    return format_value(f->r, b, &v, spec.text);
}

// The end of a field; braces within it are in pairs.
static size_t field_end(struct str s, size_t at)
{
    int open = 1;
    for (; at < s.len; at++) {
        open += (s.data[at] == '{') - (s.data[at] == '}');
        if (open == 0)
            break;
    }
    return at;
}

static int expand(struct brace *f, const struct value *text, int depth, struct build *b)
{
    struct str s = text->text;
    if (depth > 2)
        return run_fail(f->r, "Max string recursion exceeded");
    if (run_step(f->r, s.len / 8)) // each byte is looked at for the end of a field, and then for what is in it
        return -1;
    for (size_t at = 0, from = 0;;) {
        while (at < s.len && s.data[at] != '{' && s.data[at] != '}')
            at++;
        if (run_step(f->r, 1) || build_slice(f->r, b, text, from, at))
            return -1;
        if (at >= s.len)
            return 0;
        if (at + 1 < s.len && s.data[at + 1] == s.data[at]) { // {{ and }}
            if (build_slice(f->r, b, text, at, at + 1))
                return -1;
            from = at += 2;
            continue;
        }
        if (s.data[at] == '}')
            return run_fail(f->r, "Single '}' encountered in format string");
        size_t end = field_end(s, at + 1);
        if (end == s.len)
            return run_fail(f->r, "Single '{' encountered in format string");
        struct value field = string_slice(text, at + 1, end);
        if (expand_field(f, &field, depth, b))
            return -1;
        from = at = end + 1;
    }
}

int run_brace_format(struct run *r, const struct value *format, const struct call_args *args, struct value *out)
{
    struct brace f = {.r = r, .format = format, .args = args};
    struct build b = {.markup = format->markup};
    if (expand(&f, format, 0, &b))
        return -1;
    *out = build_value(&b);
    return 0;
}
