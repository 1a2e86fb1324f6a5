// The reader, by recursive descent with a depth limit, and the shortest form of floats. A string without escapes is
// copied straight to the arena; one with escapes is decoded in a scratch buffer first. Lines and columns are counted
// only when an error is reported.
#include "engine/json.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DIGITS_MAX = 4300 }; // most digits of a whole number, as in Python

// ---- Reading ----

struct reader {
    struct json_reader *r;
    struct str text;
    size_t at;
    int depth, max_depth;
    struct error *err;
    // the string with escapes that is being decoded
    char *scratch;
    size_t scratch_cap;
};

// Fails with the line and the column of a byte. They are counted only here, so that reading does not pay for it.
__attribute__((format(printf, 3, 4))) static int bad(struct reader *p, size_t at, const char *fmt, ...)
{
    char what[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        bool newline = p->text.data[i] == '\n';
        line += newline;
        column = newline ? 1 : column + ((p->text.data[i] & 0xC0) != 0x80);
    }
    return fail_at(p->err, p->r->code ? p->r->code : E_USAGE, at, "line %zu, column %zu: %s", line, column, what);
}
// As with fail, analysers see the value.
#define bad(...) minus_one(bad(__VA_ARGS__))

static int no_memory(struct reader *p, size_t bytes)
{
    return fail(p->err, E_MEMORY, "no memory for a JSON text of %zu bytes", bytes);
}

static int peek(const struct reader *p)
{
    return p->at < p->text.len ? (unsigned char)p->text.data[p->at] : -1;
}

static void skip_space(struct reader *p)
{
    for (int c = peek(p); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = peek(p))
        p->at++;
}

static bool take(struct reader *p, const char *word)
{
    size_t n = strlen(word);
    if (p->text.len - p->at < n || memcmp(p->text.data + p->at, word, n))
        return false;
    p->at += n;
    return true;
}

// Fails with what was expected and the character that is there instead.
static int unexpected(struct reader *p, const char *wanted)
{
    if (p->at >= p->text.len)
        return bad(p, p->at, "%s expected, but the text ends", wanted);
    uint32_t cp;
    int len = utf8_decode(p->text.data + p->at, p->text.len - p->at, &cp);
    if (len == 0)
        return bad(p, p->at, "invalid UTF-8");
    return bad(p, p->at, "%s expected, not '%.*s'", wanted, len, p->text.data + p->at);
}

// --- strings ---

static int hex4(struct reader *p, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        int c = peek(p);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return unexpected(p, "a hexadecimal digit");
        *out = *out << 4 | (uint32_t)digit;
    }
    return 0;
}

// Reads the code point of \uXXXX or of a surrogate pair of them. The reader is after the first u.
static int unicode_escape(struct reader *p, uint32_t *cp)
{
    size_t start = p->at - 2;
    uint32_t low;
    if (hex4(p, cp))
        return -1;
    if (*cp < 0xD800 || *cp > 0xDFFF)
        return 0;
    if (*cp >= 0xDC00 || !take(p, "\\u"))
        return bad(p, start, "half of a surrogate pair");
    if (hex4(p, &low))
        return -1;
    if (low < 0xDC00 || low > 0xDFFF)
        return bad(p, start, "half of a surrogate pair");
    *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
    return 0;
}

// Decodes an escape, with the reader after its backslash, to UTF-8. Returns the number of bytes, or -1.
static int escape(struct reader *p, char out[4])
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = peek(p);
    const char *found = c > 0 ? strchr(from, c) : NULL;
    if (found) {
        p->at++;
        out[0] = to[found - from];
        return 1;
    }
    if (c != 'u')
        return unexpected(p, "one of \"\\/bfnrtu");
    p->at++;
    uint32_t cp;
    return unicode_escape(p, &cp) ? -1 : utf8_encode(cp, out);
}

// Reads the bytes up to the next quote or backslash and checks that they are allowed in a string.
static int plain_run(struct reader *p, struct str *run)
{
    size_t start = p->at;
    for (;;) {
        int c = peek(p);
        if (c < 0)
            return bad(p, p->at, "the text ends within a string");
        if (c == '"' || c == '\\')
            break;
        if (c < 0x20)
            return bad(p, p->at, "a control character (0x%02X) in a string; it is written as an escape", c);
        int len = c < 0x80 ? 1 : utf8_decode(p->text.data + p->at, p->text.len - p->at, NULL);
        if (len == 0)
            return bad(p, p->at, "invalid UTF-8");
        p->at += (size_t)len;
    }
    *run = (struct str){p->text.data + start, p->at - start};
    return 0;
}

static int scratch_add(struct reader *p, size_t *n, const char *data, size_t len)
{
    if (len > p->scratch_cap - *n) {
        size_t cap = MAX(2 * p->scratch_cap, *n + len + 64);
        char *more = realloc(p->scratch, cap);
        if (!more)
            return no_memory(p, cap);
        p->scratch = more;
        p->scratch_cap = cap;
    }
    if (len)
        memcpy(p->scratch + *n, data, len); // NOLINT(clang-analyzer-unix.Malloc): scratch is the new memory here
    *n += len;
    return 0;
}

// Reads a string, with the reader after its opening quote.
static int read_string(struct reader *p, struct value *out)
{
    struct str run;
    if (plain_run(p, &run))
        return -1;
    size_t n = 0;
    while (peek(p) == '\\') {
        if (scratch_add(p, &n, run.data, run.len))
            return -1;
        p->at++;
        char c[4];
        int len = escape(p, c);
        if (len < 0 || scratch_add(p, &n, c, (size_t)len) || plain_run(p, &run))
            return -1;
        if (peek(p) == '"' && scratch_add(p, &n, run.data, run.len))
            return -1;
        if (peek(p) == '"')
            run = (struct str){p->scratch, n};
    }
    p->at++;
    return value_string_copy(out, p->r->arena, run, p->err);
}

// --- numbers ---

static size_t digits(struct reader *p)
{
    size_t start = p->at;
    while (peek(p) >= '0' && peek(p) <= '9')
        p->at++;
    return p->at - start;
}

static int whole_number(struct reader *p, struct str digits_text, struct value *out)
{
    bool negative = digits_text.data[0] == '-';
    int64_t v = 0;
    bool over = false;
    for (size_t i = negative; i < digits_text.len && !over; i++) {
        int d = digits_text.data[i] - '0';
        over = __builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, negative ? -d : d, &v);
    }
    *out = value_int(v);
    if (!over)
        return 0;
    int status = value_string_copy(out, p->r->arena, digits_text, p->err);
    out->kind = VALUE_BIGINT;
    return status;
}

static int real_number(struct reader *p, struct str text, struct value *out)
{
    char local[64], *z = text.len < sizeof local ? local : malloc(text.len + 1);
    if (!z)
        return no_memory(p, text.len);
    memcpy(z, text.data, text.len);
    z[text.len] = '\0';
    *out = value_float(strtod(z, NULL));
    if (z != local)
        free(z);
    return 0;
}

static int read_number(struct reader *p, struct value *out)
{
    size_t start = p->at;
    p->at += peek(p) == '-';
    if (p->r->flags & JSON_NAN && take(p, "Infinity")) {
        *out = value_float(p->text.data[start] == '-' ? -INFINITY : INFINITY);
        return 0;
    }
    size_t first = p->at, n = digits(p);
    if (n == 0)
        return unexpected(p, "a digit");
    if (n > 1 && p->text.data[first] == '0')
        return bad(p, first, "a number starts with 0");
    bool whole = true;
    if (peek(p) == '.') {
        whole = false;
        p->at++;
        if (digits(p) == 0)
            return unexpected(p, "a digit");
    }
    if (peek(p) == 'e' || peek(p) == 'E') {
        whole = false;
        p->at++;
        p->at += peek(p) == '+' || peek(p) == '-';
        if (digits(p) == 0)
            return unexpected(p, "a digit");
    }
    if (whole && n > DIGITS_MAX)
        return bad(p, start, "a whole number of %zu digits, limit %d", n, DIGITS_MAX);
    struct str text = {p->text.data + start, p->at - start};
    return whole ? whole_number(p, text, out) : real_number(p, text, out);
}

// --- lists and objects ---

static int read_value(struct reader *p, struct value *out);

// Reads the comma or the end after an item. True when another item follows; *status becomes -1 when there is neither.
static bool another(struct reader *p, char end, int *status)
{
    skip_space(p);
    int c = peek(p);
    p->at += c == ',' || c == end;
    if (c == ',')
        return true;
    *status = c == end ? 0 : unexpected(p, end == ']' ? "',' or ']'" : "',' or '}'");
    return false;
}

static int read_list(struct reader *p, struct value *out)
{
    int status = value_list_new(out, p->r->arena, p->err);
    skip_space(p);
    if (status || take(p, "]"))
        return status;
    do {
        struct value item;
        if (read_value(p, &item) || value_list_push(p->r->arena, out, item, p->err))
            return -1;
    } while (another(p, ']', &status));
    return status;
}

static int read_entry(struct reader *p, struct value *dict)
{
    struct value key, item;
    skip_space(p);
    if (!take(p, "\""))
        return unexpected(p, "a key in quotes");
    if (read_string(p, &key))
        return -1;
    key.origin = p->r->flags & JSON_INPUT ? ORIGIN_INPUT : ORIGIN_OWN;
    skip_space(p);
    if (!take(p, ":"))
        return unexpected(p, "':'");
    return read_value(p, &item) ? -1 : value_dict_put(p->r->arena, dict, key, item, p->err);
}

static int read_object(struct reader *p, struct value *out)
{
    int status = value_dict_new(out, p->r->arena, p->err);
    skip_space(p);
    if (status || take(p, "}"))
        return status;
    do {
        if (read_entry(p, out))
            return -1;
    } while (another(p, '}', &status));
    return status;
}

static int read_word(struct reader *p, struct value *out)
{
    if (take(p, "null"))
        *out = value_none();
    else if (take(p, "true"))
        *out = value_bool(true);
    else if (take(p, "false"))
        *out = value_bool(false);
    else if (p->r->flags & JSON_NAN && take(p, "NaN"))
        *out = value_float((double)NAN);
    else if (p->r->flags & JSON_NAN && take(p, "Infinity"))
        *out = value_float((double)INFINITY);
    else
        return unexpected(p, "a value");
    return 0;
}

static int read_container(struct reader *p, struct value *out)
{
    if (p->depth == p->max_depth)
        return bad(p, p->at, "nested deeper than %d", p->max_depth);
    p->depth++;
    bool list = p->text.data[p->at++] == '[';
    int status = list ? read_list(p, out) : read_object(p, out);
    p->depth--;
    return status;
}

static int read_value(struct reader *p, struct value *out)
{
    int status;
    skip_space(p);
    int c = peek(p);
    if (c == '"') {
        p->at++;
        status = read_string(p, out);
    } else if (c == '{' || c == '[') {
        status = read_container(p, out);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        status = read_number(p, out);
    } else {
        status = read_word(p, out);
    }
    if (!status)
        out->origin = p->r->flags & JSON_INPUT ? ORIGIN_INPUT : ORIGIN_OWN;
    return status;
}

int json_read(struct value *out, struct json_reader *r, struct str text, struct error *err)
{
    struct reader p = {.r = r, .text = text, .err = err};
    p.max_depth = r->max_depth ? MIN(r->max_depth, VALUE_DEPTH) : JSON_DEPTH;
    take(&p, "\xEF\xBB\xBF");
    int status = read_value(&p, out);
    r->used = p.at;
    if (!status && !(r->flags & JSON_PREFIX)) {
        skip_space(&p);
        if (p.at < text.len)
            status = unexpected(&p, "the end of the text");
    }
    free(p.scratch);
    return status;
}

// ---- Floats ----

// The fewest digits d1 d2 ... and the exponent for which 0.d1d2... x 10^*point reads back as f. Returns the number of
// digits. A decimal of up to 15 digits is the nearest of its length to the float that it reads as, unless that is a subnormal
// one: so 15 digits of f end in zeros where fewer would do.
static int shortest_digits(double f, char out[FLOAT_TEXT], int *point)
{
    char text[40], *e = text;
    for (int precision = isnormal(f) ? DBL_DIG - 1 : 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, f);
        e = text + (precision ? precision + 2 : 1); // where the exponent begins
        if (strtod(text, NULL) == f)
            break;
        // below a power of two floats are denser, so that the decimal above may be nearer than the nearest one
        if (e[-1] < '9' && (++e[-1], strtod(text, NULL) == f))
            break;
    }
    *point = (int)strtol(e + 1, NULL, 10) + 1;
    int n = 0;
    for (const char *p = text; p < e; p++)
        if (*p != '.')
            out[n++] = *p;
    while (n > 1 && out[n - 1] == '0')
        n--;
    return n;
}

int float_repr(double f, char out[FLOAT_TEXT])
{
    if (isnan(f))
        return snprintf(out, FLOAT_TEXT, "nan");
    const char *sign = signbit(f) ? "-" : "";
    if (isinf(f))
        return snprintf(out, FLOAT_TEXT, "%sinf", sign);
    char d[FLOAT_TEXT] = "";
    int point, n = shortest_digits(fabs(f), d, &point);
    if (f == 0)
        return snprintf(out, FLOAT_TEXT, "%s0.0", sign);
    if (point > 16 || point < -3)
        return snprintf(out, FLOAT_TEXT, "%s%c%s%.*se%+03d", sign, d[0], n > 1 ? "." : "", n - 1, d + 1, point - 1);
    if (point <= 0)
        return snprintf(out, FLOAT_TEXT, "%s0.%.*s%.*s", sign, -point, "000", n, d);
    if (point >= n)
        return snprintf(out, FLOAT_TEXT, "%s%.*s%.*s.0", sign, n, d, point - n, "0000000000000000");
    return snprintf(out, FLOAT_TEXT, "%s%.*s.%.*s", sign, point, d, n - point, d + point);
}
