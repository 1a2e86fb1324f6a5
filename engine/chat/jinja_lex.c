// The lexer: separates text from tags, drops white space around tags, and reads strings and numbers.
#include "engine/chat/jinja_ast.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/text/unicode.h"

struct lexer {
    struct jinja_template *t;
    struct str s;
    size_t at;
    bool line_starting; // at the beginning of a line, apart from tags that consumed the newline
    struct token_array *out;
    struct error *err;
    size_t counted;        // line and column
    uint32_t line, column; // of this offset
    size_t n_open;
    char open[JINJA_NESTING_MAX]; // closing brackets that the current tag still needs
};

int(jinja_fail_at)(const struct jinja_template *t, struct error *err, size_t at, const char *fmt, ...)
{
    char what[ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    size_t line = 1, column = 1;
    for (size_t i = 0; i < MIN(at, t->source.len); i++) {
        bool newline = t->source.data[i] == '\n';
        line += newline;
        column = newline ? 1 : column + ((t->source.data[i] & 0xC0) != 0x80);
    }
    return fail_at(err, E_MODEL, at, "line %zu, column %zu: %s", line, column, what);
}

static int push(struct lexer *x, enum token_kind kind, size_t from, size_t to, struct value value)
{
    struct token_array *a = x->out;
    if (a->n == a->cap) {
        size_t cap = MAX(2 * a->cap, (size_t)64);
        struct token *more = realloc(a->at, cap * sizeof *more);
        if (!more)
            return fail(x->err, E_MEMORY, "no memory for %zu words of a template", cap);
        a->at = more;
        a->cap = cap;
    }
    for (; x->counted < from; x->counted++) {
        bool newline = x->s.data[x->counted] == '\n';
        x->line += newline;
        x->column = newline ? 1 : x->column + ((x->s.data[x->counted] & 0xC0) != 0x80);
    }
    a->at[a->n++] = (struct token){kind, (uint32_t)from, x->line, x->column, {x->s.data + from, to - from}, value};
    return 0;
}

static bool starts(const struct lexer *x, size_t at, const char *word)
{
    size_t n = strlen(word);
    return x->s.len - at >= n && !memcmp(x->s.data + at, word, n);
}

static char char_at(const struct lexer *x, size_t at)
{
    return at < x->s.len ? x->s.data[at] : '\0';
}

// Bytes of the white space character at `at`, or 0. As in Python, \x1c to \x1f are white space.
static size_t space_at(const struct lexer *x, size_t at)
{
    struct unicode_char c = unicode_char_at(x->s.data + at, x->s.data + x->s.len);
    bool space = c.len > 0 && ((c.bits & UNI_SPACE) != 0 || (c.cp >= 0x1C && c.cp <= 0x1F));
    return space ? (size_t)c.len : 0;
}

static size_t skip_space(const struct lexer *x, size_t at)
{
    for (size_t n; (n = space_at(x, at)) > 0;)
        at += n;
    return at;
}

// ---- Text up to the next tag ----

// Returns the end of [from, to) without trailing white space.
static size_t strip_right(const struct lexer *x, size_t from, size_t to)
{
    while (to > from) {
        size_t start = to - 1;
        while (start > from && (x->s.data[start] & 0xC0) == 0x80)
            start--;
        if (space_at(x, start) != to - start)
            break;
        to = start;
    }
    return to;
}

// Returns the end of [from, to) without the indentation before a tag, if the tag is the first thing on its line.
static size_t strip_indent(const struct lexer *x, size_t from, size_t to)
{
    size_t line = to;
    while (line > from && x->s.data[line - 1] != '\n')
        line--;
    if (line == to || (line == from && !x->line_starting))
        return to;
    return skip_space(x, line) >= to ? line : to;
}

// Adds the text before a tag with that sign ('-', '+' or another character); `print`: the tag is {{.
static int push_text(struct lexer *x, size_t from, size_t to, char sign, bool print)
{
    if (sign == '-')
        to = strip_right(x, from, to);
    else if (sign != '+' && !print)
        to = strip_indent(x, from, to);
    if (to == from)
        return 0;
    struct str text = {x->s.data + from, to - from};
    return push(x, T_TEXT, from, to, value_string(text));
}

static void move_to(struct lexer *x, size_t at)
{
    if (at > x->at)
        x->line_starting = x->s.data[at - 1] == '\n';
    x->at = at;
}

// If a tag ends at `at` with %} or #}, possibly after a sign: returns where text continues, otherwise 0. One newline
// is skipped, or, after a '-', all white space.
static size_t tag_end(const struct lexer *x, size_t at, const char *end, bool newline)
{
    if (starts(x, at, end)) {
        at += 2;
        return newline && char_at(x, at) == '\n' ? at + 1 : at;
    }
    char sign = char_at(x, at);
    if (sign == '-' && starts(x, at + 1, end))
        return skip_space(x, at + 3);
    return sign == '+' && newline && starts(x, at + 1, end) ? at + 3 : 0;
}

static int comment(struct lexer *x, size_t from)
{
    for (size_t at = x->at; at < x->s.len; at++) {
        const char *next = memchr(x->s.data + at, '#', x->s.len - at);
        if (!next)
            break;
        at = (size_t)(next - x->s.data);
        bool signed_end = at > x->at && (x->s.data[at - 1] == '-' || x->s.data[at - 1] == '+');
        size_t end = tag_end(x, at - signed_end, "#}", true);
        if (!end)
            end = tag_end(x, at, "#}", true);
        if (end) {
            move_to(x, end);
            return 0;
        }
    }
    return jinja_fail_at(x->t, x->err, from, "this comment has no end");
}

// After {% and its sign: returns where the text of a raw block begins; 0 if this is not a raw tag.
static size_t raw_begin(const struct lexer *x, size_t at)
{
    at = skip_space(x, at);
    if (!starts(x, at, "raw"))
        return 0;
    at = skip_space(x, at + 3);
    return starts(x, at, "%}") ? at + 2 : starts(x, at, "-%}") ? skip_space(x, at + 3) : 0;
}

// At {%: returns the end of an endraw tag, and its sign; 0 if this is not one.
static size_t raw_end(const struct lexer *x, size_t at, char *sign)
{
    if (!starts(x, at, "{%"))
        return 0;
    at += 2;
    *sign = char_at(x, at);
    if (*sign == '-' || *sign == '+')
        at++;
    at = skip_space(x, at);
    return starts(x, at, "endraw") ? tag_end(x, skip_space(x, at + 6), "%}", true) : 0;
}

static int raw(struct lexer *x, size_t from)
{
    for (size_t at = x->at; at + 1 < x->s.len; at++) {
        char sign;
        size_t end = raw_end(x, at, &sign);
        if (!end)
            continue;
        int status = push_text(x, x->at, at, sign, false);
        move_to(x, end);
        return status;
    }
    return jinja_fail_at(x->t, x->err, from, "this raw block has no end");
}

static size_t next_tag(const struct lexer *x, size_t at)
{
    while (at < x->s.len) {
        const char *brace = memchr(x->s.data + at, '{', x->s.len - at);
        if (!brace)
            break;
        at = (size_t)(brace - x->s.data);
        char c = char_at(x, at + 1);
        if (c == '{' || c == '%' || c == '#')
            return at;
        at++;
    }
    return x->s.len;
}

static int inside_tag(struct lexer *x, size_t from, bool print);

// Reads text and the tag after it.
static int text_and_tag(struct lexer *x)
{
    size_t from = x->at, tag = next_tag(x, from);
    if (tag == x->s.len) {
        x->at = tag;
        return push_text(x, from, tag, '+', false);
    }
    char kind = x->s.data[tag + 1], sign = char_at(x, tag + 2);
    size_t inside = tag + 2 + (sign == '-' || sign == '+');
    if (push_text(x, from, tag, sign, kind == '{'))
        return -1;
    size_t raw_at = kind == '%' ? raw_begin(x, inside) : 0;
    move_to(x, raw_at ? raw_at : inside);
    if (raw_at)
        return raw(x, tag);
    return kind == '#' ? comment(x, tag) : inside_tag(x, tag, kind == '{');
}

// ---- Strings and numbers ----

static int append_cp(struct lexer *x, size_t at, uint32_t cp, char *out, size_t *n)
{
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF))
        return jinja_fail_at(x->t, x->err, at, "an escape that is no character");
    *n += (size_t)utf8_encode(cp, out + *n);
    return 0;
}

static int digit_of(char c, int base)
{
    int d = c >= '0' && c <= '9'   ? c - '0'
            : c >= 'a' && c <= 'f' ? c - 'a' + 10
            : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                   : 99;
    return d < base ? d : -1;
}

// \xHH, \uHHHH and \UHHHHHHHH have exactly n digits; octal escapes have up to 3.
static int numeric_escape(struct lexer *x, size_t *at, int n, int base, char *out, size_t *len)
{
    size_t start = *at;
    uint32_t cp = 0;
    int got = 0;
    for (; got < n && digit_of(char_at(x, *at), base) >= 0; got++, (*at)++)
        cp = MIN(cp * (uint32_t)base + (uint32_t)digit_of(char_at(x, *at), base), UINT32_C(0x110000));
    if (base == 16 && got < n)
        return jinja_fail_at(x->t, x->err, start - 2, "an escape of %d hexadecimal digits is cut short", n);
    return append_cp(x, start, cp, out, len);
}

// Reads the escape after a backslash at *at.
static int escape(struct lexer *x, size_t *at, char *out, size_t *len)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = char_at(x, *at);
    const char *found = c ? strchr(from, c) : NULL;
    if (found) {
        out[(*len)++] = to[found - from];
        ++*at;
        return 0;
    }
    if (c >= '0' && c <= '7')
        return numeric_escape(x, at, 3, 8, out, len);
    ++*at;
    switch (c) {
    case '\n':
        return 0;
    case 'x':
        return numeric_escape(x, at, 2, 16, out, len);
    case 'u':
        return numeric_escape(x, at, 4, 16, out, len);
    case 'U':
        return numeric_escape(x, at, 8, 16, out, len);
    case 'N':
        return jinja_fail_at(x->t, x->err, *at - 2, "characters by name are not supported");
    default:
        out[(*len)++] = '\\';
        --*at;
        return 0;
    }
}

static int string(struct lexer *x)
{
    size_t from = x->at, at = from + 1, n = 0;
    char quote = x->s.data[from];
    while (at < x->s.len && x->s.data[at] != quote)
        at += x->s.data[at] == '\\' ? 2 : 1;
    if (at >= x->s.len)
        return jinja_fail_at(x->t, x->err, from, "this string has no end");
    char *out = arena_alloc(&x->t->arena, at - from, 1); // an escape is never shorter than its character
    if (!out)
        return fail(x->err, E_MEMORY, "no memory for a string of a template");
    size_t end = at;
    for (at = from + 1; at < end;) {
        if (x->s.data[at] != '\\') {
            out[n++] = x->s.data[at++];
            continue;
        }
        at++;
        if (escape(x, &at, out, &n))
            return -1;
    }
    x->at = end + 1;
    return push(x, T_STRING, from, end + 1, value_string((struct str){out, n}));
}

// The end of digits, with single underscores between them, and before them if `leading`.
static size_t digits_end(const struct lexer *x, size_t at, int base, bool leading)
{
    for (size_t start = at;; at++) {
        bool underscore = char_at(x, at) == '_' && (at > start || leading) && digit_of(char_at(x, at + 1), base) >= 0;
        if (digit_of(char_at(x, at), base) < 0 && !underscore)
            return at;
    }
}

// The end of a fraction or an exponent after the digits; `at` if there is neither.
static size_t float_end(const struct lexer *x, size_t at)
{
    size_t end = at;
    if (char_at(x, at) == '.' && digit_of(char_at(x, at + 1), 10) >= 0)
        end = digits_end(x, at + 1, 10, false);
    char e = char_at(x, end);
    if (e == 'e' || e == 'E') {
        size_t exponent = end + 1 + (char_at(x, end + 1) == '+' || char_at(x, end + 1) == '-');
        if (digit_of(char_at(x, exponent), 10) >= 0)
            end = digits_end(x, exponent, 10, false);
    }
    return end;
}

// Copies the text of a number without underscores.
static int number_text(struct lexer *x, size_t from, size_t to, char *out, size_t room)
{
    size_t n = 0;
    for (size_t i = from; i < to; i++) {
        if (x->s.data[i] == '_')
            continue;
        if (n + 1 >= room)
            return jinja_fail_at(x->t, x->err, from, "a number of over %zu digits", room - 1);
        out[n++] = x->s.data[i];
    }
    out[n] = '\0';
    return 0;
}

static int integer(struct lexer *x, size_t from, size_t to, int base)
{
    int64_t v = 0;
    for (size_t i = from + (base == 10 ? 0 : 2); i < to; i++) {
        if (x->s.data[i] == '_')
            continue;
        int d = digit_of(x->s.data[i], base);
        if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, d, &v))
            return jinja_fail_at(x->t, x->err, from, "a whole number that needs more than 64 bits");
    }
    x->at = to;
    return push(x, T_INTEGER, from, to, value_int(v));
}

static int number(struct lexer *x)
{
    size_t from = x->at;
    bool behind_dot = from > 0 && x->s.data[from - 1] == '.';
    size_t digits = digits_end(x, from, 10, false);
    size_t end = behind_dot ? digits : float_end(x, digits);
    if (end > digits) {
        char text[128];
        if (number_text(x, from, end, text, sizeof text))
            return -1;
        x->at = end;
        return push(x, T_FLOAT, from, end, value_float(strtod(text, NULL)));
    }
    char kind = char_at(x, from + 1) | 0x20;
    int base = x->s.data[from] != '0' ? 10 : kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    if (base != 10) {
        end = digits_end(x, from + 2, base, true);
        if (end > from + 2)
            return integer(x, from, end, base);
    }
    if (x->s.data[from] == '0') // a run of zeros is one number; digits after it are another
        for (digits = from; char_at(x, digits) == '0' || (char_at(x, digits) == '_' && char_at(x, digits + 1) == '0');)
            digits++;
    return integer(x, from, digits, 10);
}

// ---- Names and operators ----

static size_t name_end(const struct lexer *x, size_t at)
{
    for (;;) {
        struct unicode_char c = unicode_char_at(x->s.data + at, x->s.data + x->s.len);
        if (c.len == 0 || (c.cp != '_' && !(c.bits & (UNI_LETTER | UNI_NUMBER))))
            return at;
        at += (size_t)c.len;
    }
}

static const struct {
    char text[3];
    enum token_kind kind;
} signs[] = {
    {"//", T_FLOORDIV}, {"**", T_POW},      {"==", T_EQ},    {"!=", T_NE},    {"<=", T_LE},      {">=", T_GE},
    {"+", T_ADD},       {"-", T_SUB},       {"*", T_MUL},    {"/", T_DIV},    {"%", T_MOD},      {"~", T_TILDE},
    {"<", T_LT},        {">", T_GT},        {"=", T_ASSIGN}, {".", T_DOT},    {":", T_COLON},    {"|", T_PIPE},
    {",", T_COMMA},     {";", T_SEMICOLON}, {"(", T_LPAREN}, {")", T_RPAREN}, {"[", T_LBRACKET}, {"]", T_RBRACKET},
    {"{", T_LBRACE},    {"}", T_RBRACE},
};

const char *jinja_token_name(enum token_kind kind)
{
    static const char *const names[] = {
        [T_END] = "the end of the template",
        [T_TEXT] = "text",
        [T_PRINT_BEGIN] = "'{{'",
        [T_PRINT_END] = "'}}'",
        [T_BLOCK_BEGIN] = "'{%'",
        [T_BLOCK_END] = "'%}'",
        [T_NAME] = "a name",
        [T_STRING] = "a string",
        [T_INTEGER] = "a whole number",
        [T_FLOAT] = "a number",
        [T_ADD] = "'+'",
        [T_SUB] = "'-'",
        [T_MUL] = "'*'",
        [T_DIV] = "'/'",
        [T_FLOORDIV] = "'//'",
        [T_MOD] = "'%'",
        [T_POW] = "'**'",
        [T_TILDE] = "'~'",
        [T_EQ] = "'=='",
        [T_NE] = "'!='",
        [T_LT] = "'<'",
        [T_LE] = "'<='",
        [T_GT] = "'>'",
        [T_GE] = "'>='",
        [T_ASSIGN] = "'='",
        [T_DOT] = "'.'",
        [T_COLON] = "':'",
        [T_PIPE] = "'|'",
        [T_COMMA] = "','",
        [T_SEMICOLON] = "';'",
        [T_LPAREN] = "'('",
        [T_RPAREN] = "')'",
        [T_LBRACKET] = "'['",
        [T_RBRACKET] = "']'",
        [T_LBRACE] = "'{'",
        [T_RBRACE] = "'}'",
    };
    return names[kind];
}

// Matches brackets in pairs: inside them, }} does not end a tag.
static int balance(struct lexer *x, char c)
{
    static const char opening[] = "([{", closing[] = ")]}";
    const char *open = strchr(opening, c), *close = strchr(closing, c);
    if (open) {
        if (x->n_open == sizeof x->open)
            return jinja_fail_at(x->t, x->err, x->at, "brackets are nested deeper than %d", JINJA_NESTING_MAX);
        x->open[x->n_open++] = closing[open - opening];
    }
    if (!close)
        return 0;
    if (x->n_open == 0)
        return jinja_fail_at(x->t, x->err, x->at, "'%c' closes nothing", c);
    char want = x->open[--x->n_open];
    return want == c ? 0 : jinja_fail_at(x->t, x->err, x->at, "'%c' where '%c' is expected", c, want);
}

static int sign(struct lexer *x)
{
    for (size_t i = 0; i < COUNT_OF(signs); i++) {
        size_t n = strlen(signs[i].text), from = x->at;
        if (!starts(x, from, signs[i].text))
            continue;
        if (balance(x, signs[i].text[0]))
            return -1;
        x->at += n;
        return push(x, signs[i].kind, from, from + n, value_none());
    }
    struct unicode_char c = unicode_char_at(x->s.data + x->at, x->s.data + x->s.len);
    return jinja_fail_at(x->t, x->err, x->at, "unexpected '%.*s'", c.len, x->s.data + x->at);
}

static int word(struct lexer *x)
{
    char c = x->s.data[x->at];
    if (c >= '0' && c <= '9')
        return number(x);
    if (c == '"' || c == '\'')
        return string(x);
    size_t from = x->at, end = name_end(x, from);
    if (end == from)
        return sign(x);
    x->at = end;
    return push(x, T_NAME, from, end, value_none());
}

// Reads the tokens of a tag that begins at `from`, up to its end.
static int inside_tag(struct lexer *x, size_t from, bool print)
{
    if (push(x, print ? T_PRINT_BEGIN : T_BLOCK_BEGIN, from, x->at, value_none()))
        return -1;
    x->n_open = 0;
    for (;;) {
        size_t end = x->n_open ? 0 : tag_end(x, x->at, print ? "}}" : "%}", !print);
        if (end) {
            int status = push(x, print ? T_PRINT_END : T_BLOCK_END, x->at, end, value_none());
            move_to(x, end);
            return status;
        }
        size_t space = skip_space(x, x->at);
        if (space > x->at) {
            move_to(x, space);
            continue;
        }
        if (x->at >= x->s.len)
            return jinja_fail_at(x->t, x->err, from, "this tag has no end");
        if (word(x))
            return -1;
    }
}

int jinja_lex(struct jinja_template *t, struct token_array *out, struct error *err)
{
    struct lexer x = {.t = t, .s = t->source, .line_starting = true, .line = 1, .column = 1, .out = out, .err = err};
    while (x.at < x.s.len)
        if (text_and_tag(&x))
            return -1;
    return push(&x, T_END, x.s.len, x.s.len, value_none());
}
