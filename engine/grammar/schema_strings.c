// Strings and numbers of a schema: the contents that their demands allow, and their JSON spelling.
#include "engine/grammar/dfa_build.h"
#include "engine/grammar/numbers.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>

// --- patterns and formats ---

static int remember(struct schema *s, const struct value *v, expr_id e)
{
    if (s->n_patterns == s->cap_patterns) {
        size_t cap = s->cap_patterns ? 2 * s->cap_patterns : 16;
        void *more = realloc(s->patterns, cap * sizeof *s->patterns);
        if (!more)
            return schema_no_memory(s);
        s->patterns = more;
        s->cap_patterns = cap;
    }
    s->patterns[s->n_patterns].v = v;
    s->patterns[s->n_patterns++].e = e;
    return 0;
}

static bool recall(const struct schema *s, const struct value *v, expr_id *out)
{
    for (size_t i = 0; i < s->n_patterns; i++)
        if (s->patterns[i].v == v) {
            *out = s->patterns[i].e;
            return true;
        }
    return false;
}

static int compile_pattern(struct schema *s, const struct value *v, struct str pattern, expr_id *out)
{
    struct error why = {0};
    if (regex_compile(out, &s->x, pattern, &why))
        return why.code == E_MEMORY ? schema_no_memory(s) : schema_refuse(s, v, "%s", why.text);
    return remember(s, v, *out);
}

int schema_pattern(struct schema *s, const struct value *v, expr_id *out)
{
    return recall(s, v, out) ? 0 : compile_pattern(s, v, v->text, out);
}

// *any: the format does not restrict strings, or only says how they are displayed.
int schema_format(struct schema *s, const struct value *v, expr_id *out, bool *any)
{
    static const struct {
        const char *name, *pattern;
    } formats[] = {
#define FORMAT(name, pattern) {name, "^(?:" pattern ")$"},
#include "engine/grammar/formats.def"
#undef FORMAT
    };
    static const char *const others[] = {"int32", "int64", "float", "double", "password", "binary"};
    *any = false;
    for (size_t i = 0; i < COUNT_OF(others); i++)
        *any = *any || str_equal_z(v->text, others[i]);
    if (*any || recall(s, v, out))
        return 0;
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (str_equal_z(v->text, formats[i].name))
            return compile_pattern(s, v, str_from(formats[i].pattern), out);
    schema_pass_over(s, v->text);
    *any = true;
    return 0;
}

// --- contents ---

struct contents {
    int64_t min, max; // number of characters; max -1: no maximum
    expr_id both;     // intersection of all demands; valid only if `made`
    bool made;
};

static void also(struct schema *s, struct contents *c, expr_id e)
{
    c->both = c->made ? expr_and(&s->x, c->both, e) : e;
    c->made = true;
}

static int take_demand(struct schema *s, struct contents *c, const struct demand *d)
{
    expr_id e = EXPR_EMPTY;
    bool any = false;
    switch (d->kind) {
    case D_MIN_LENGTH:
        c->min = MAX(c->min, d->n);
        return 0;
    case D_MAX_LENGTH:
        c->max = c->max < 0 ? d->n : MIN(c->max, d->n);
        return 0;
    case D_PATTERN:
    case D_NOT_PATTERN:
        if (schema_pattern(s, d->v, &e))
            return -1;
        also(s, c, d->kind == D_PATTERN ? e : expr_not(&s->x, e));
        return 0;
    case D_FORMAT:
        if (schema_format(s, d->v, &e, &any))
            return -1;
        if (!any)
            also(s, c, e);
        return 0;
    case D_NOT_VALUE:
        if (d->v->kind == VALUE_STRING)
            also(s, c, expr_not(&s->x, expr_text(&s->x, d->v->text)));
        return 0;
    default:
        return 0;
    }
}

static expr_id any_content(struct schema *s, const struct contents *c)
{
    return expr_repeat(&s->x, expr_any_char(&s->x), (uint32_t)c->min, c->max < 0 ? REPEAT_ANY : (uint32_t)c->max);
}

static int take_demands(struct schema *s, const struct branch *b, struct contents *c)
{
    *c = (struct contents){.max = -1};
    for (size_t i = 0; i < b->n; i++)
        if (take_demand(s, c, &b->demands[i]))
            return -1;
    return 0;
}

int schema_string_contents(struct schema *s, const struct branch *b, expr_id *out, bool *any)
{
    struct contents c;
    if (take_demands(s, b, &c))
        return -1;
    *any = !c.made && c.min == 0 && c.max < 0;
    if (c.max >= 0 && c.max < c.min)
        *out = EXPR_NEVER;
    else
        *out = c.made ? expr_and(&s->x, c.both, any_content(s, &c)) : any_content(s, &c);
    return 0;
}

// --- JSON strings ---

// One character as JSON may write it: itself, or an escape. Above U+FFFF the escape is a pair of surrogates.
static expr_id any_written(struct schema *s)
{
    struct exprs *x = &s->x;
    if (s->written != EXPR_NEVER)
        return s->written;
    struct char_set plain = {0};
    char_set_add(&plain, 0, 0x1F);
    char_set_add(&plain, '"', '"');
    char_set_add(&plain, '\\', '\\');
    char_set_negate(&plain);
    expr_id as_is = expr_chars(x, &plain);
    char_set_free(&plain);
    struct byte_set shorts = {0}, hex = {0}, not_d = {0}, low_d = {0}, high = {0}, low = {0}, d = {0};
    for (const char *c = "\"\\/bfnrt"; *c; c++)
        byte_set_add(&shorts, (unsigned char)*c);
    for (const char *c = "0123456789abcdefABCDEF"; *c; c++) {
        byte_set_add(&hex, (unsigned char)*c);
        byte_set_add((*c | 32) == 'd' ? &d : &not_d, (unsigned char)*c);
        if (*c >= '0' && *c <= '7')
            byte_set_add(&low_d, (unsigned char)*c);
        if (strchr("89abAB", *c))
            byte_set_add(&high, (unsigned char)*c);
        if (strchr("cdefCDEF", *c))
            byte_set_add(&low, (unsigned char)*c);
    }
    expr_id h = expr_bytes(x, &hex), hh = expr_cat(x, h, h);
    expr_id ordinary =
        expr_alt(x, expr_cat(x, expr_bytes(x, &not_d), h), expr_cat(x, expr_bytes(x, &d), expr_bytes(x, &low_d)));
    expr_id first = expr_cat(x, expr_bytes(x, &d), expr_bytes(x, &high)),
            second = expr_cat(x, expr_bytes(x, &d), expr_bytes(x, &low));
    expr_id pair[] = {first, hh, expr_text_z(x, "\\u"), second, hh};
    expr_id code = expr_alt(x, expr_cat(x, ordinary, hh), expr_cat_n(x, pair, COUNT_OF(pair)));
    expr_id escape = expr_alt(x, expr_bytes(x, &shorts), expr_cat(x, expr_text_z(x, "u"), code));
    s->written = expr_alt(x, as_is, expr_cat(x, expr_text_z(x, "\\"), escape));
    return s->written;
}

static expr_id quoted(struct schema *s, expr_id inner)
{
    expr_id quote = expr_text_z(&s->x, "\"");
    return expr_cat(&s->x, quote, expr_cat(&s->x, inner, quote));
}

expr_id schema_any_string(struct schema *s)
{
    if (s->string_rule == UINT32_MAX) {
        s->string_rule = exprs_rule(&s->x, STR_LIT("string"));
        if (s->string_rule == UINT32_MAX)
            return EXPR_NEVER;
        s->x.rules[s->string_rule].body = quoted(s, expr_star(&s->x, any_written(s)));
        s->x.rules[s->string_rule].defined = true;
    }
    return expr_rule(&s->x, s->string_rule);
}

// The letter of a short escape; 0 if the byte has none.
static char short_escape(unsigned byte)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *at = byte ? strchr(from, (int)byte) : NULL;
    return at ? to[at - from] : 0;
}

// Writes the escape of a byte that may not occur unescaped in a JSON string, and returns its length; 0 for all other
// bytes.
static size_t escape_of(unsigned byte, char out[8])
{
    char letter = short_escape(byte);
    if (!letter && byte >= 0x20)
        return 0;
    return (size_t)(letter ? snprintf(out, 8, "\\%c", letter) : snprintf(out, 8, "\\u%04x", byte));
}

// Turns the automaton of contents into the automaton of their JSON spelling. A transition by a byte that must be
// escaped becomes a path through new states, one for each byte inside the escape.
struct quoting {
    struct schema *s;
    const struct dfa *d;
    struct dfa *out;
    uint32_t n; // states of `out` in use
};

static uint32_t lead(struct quoting *q, uint32_t from, unsigned byte, uint32_t to)
{
    uint32_t *cell = &q->out->next[(size_t)from * 256 + byte];
    if (*cell == DFA_DEAD)
        *cell = to == UINT32_MAX ? q->n++ : to;
    return *cell;
}

static void quote_state(struct quoting *q, uint32_t state)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t to = q->d->next[(size_t)state * q->d->n_classes + q->d->class_of[byte]];
        char text[8];
        size_t n = to == DFA_DEAD ? 0 : escape_of(byte, text);
        uint32_t at = state;
        if (to != DFA_DEAD && !n)
            lead(q, state, byte, to);
        for (size_t i = 0; i < n; i++)
            at = lead(q, at, (unsigned char)text[i], i + 1 < n ? UINT32_MAX : to);
    }
}

// Upper bound of the new states per state: escapes from the same state share prefixes. The paths pass through the
// backslash, u, 0, 0, and 0 or 1.
enum { ESCAPE_STATES = 6 };

static bool has_escapes(const struct dfa *d, uint32_t state)
{
    char text[8];
    for (unsigned byte = 0; byte < 128; byte++)
        if (escape_of(byte, text) && d->next[(size_t)state * d->n_classes + d->class_of[byte]] != DFA_DEAD)
            return true;
    return false;
}

static struct dfa *escaped(struct schema *s, const struct dfa *d)
{
    uint32_t n = d->n;
    for (uint32_t state = 0; state < d->n; state++)
        n += has_escapes(d, state) ? ESCAPE_STATES : 0;
    struct dfa *out = calloc(1, sizeof *out);
    if (!out)
        return NULL;
    *out = (struct dfa){.n = n,
                        .start = d->start,
                        .n_classes = 256,
                        .next = calloc((size_t)n * 256, sizeof *out->next),
                        .accept = calloc(n, sizeof *out->accept)};
    for (unsigned i = 0; i < 256; i++)
        out->class_of[i] = (uint8_t)i;
    if (!out->next || !out->accept) {
        dfa_free(out);
        return NULL;
    }
    memcpy(out->accept, d->accept, d->n * sizeof *d->accept);
    struct quoting q = {.s = s, .d = d, .out = out, .n = d->n};
    for (uint32_t state = 1; state < d->n; state++)
        quote_state(&q, state);
    return out;
}

int schema_quote(struct schema *s, expr_id contents, expr_id *out)
{
    struct dfa *d;
    *out = EXPR_NEVER;
    if (contents == EXPR_NEVER)
        return 0;
    // restricts the contents to valid UTF-8
    expr_id text = expr_and(&s->x, contents, expr_star(&s->x, expr_any_char(&s->x)));
    if (dfa_from_expr(&d, &s->x, text, s->err))
        return -1;
    struct dfa *e = dfa_is_empty(d) ? NULL : escaped(s, d);
    bool empty = dfa_is_empty(d);
    dfa_free(d);
    if (empty)
        return 0;
    if (!e)
        return schema_no_memory(s);
    *out = quoted(s, expr_dfa(&s->x, e));
    return 0;
}

int schema_emit_string(struct schema *s, const struct branch *b, expr_id *out)
{
    struct contents c;
    expr_id contents;
    bool any;
    if (take_demands(s, b, &c) || schema_string_contents(s, b, &contents, &any))
        return -1;
    *out = EXPR_NEVER;
    if (any) {
        *out = schema_any_string(s);
        return 0;
    }
    if (contents == EXPR_NEVER)
        return 0;
    if (c.made)
        return schema_quote(s, contents, out);
    uint32_t max = c.max < 0 ? REPEAT_ANY : (uint32_t)c.max;
    *out = quoted(s, expr_repeat(&s->x, any_written(s), (uint32_t)c.min, max));
    return 0;
}

expr_id schema_text(struct schema *s, struct str text)
{
    expr_id e = expr_text_z(&s->x, "\"");
    for (size_t i = text.len; i-- > 0;) {
        char out[8];
        size_t n = escape_of((unsigned char)text.data[i], out);
        e = expr_cat(&s->x,
                     n ? expr_text(&s->x, (struct str){out, n}) : expr_text(&s->x, (struct str){text.data + i, 1}), e);
    }
    return expr_cat(&s->x, expr_text_z(&s->x, "\""), e);
}

// --- numbers ---

// The number of digits that a text needs so that numbers beyond this bound (farther from 0) can be written; 0 if it
// needs none beyond the default.
static uint32_t digits_for(struct str decimal, int64_t orders)
{
    bool negative = decimal.len && decimal.data[0] == '-';
    bool outwards = orders & (negative ? NUMBER_BELOW : NUMBER_ABOVE);
    uint32_t n = number_int_digits(decimal);
    return outwards || orders == NUMBER_EQUAL ? n + 1 : 0;
}

bool schema_decimal(const struct value *v, struct text *out)
{
    char text[FLOAT_TEXT];
    out->size = 0;
    if (v->kind == VALUE_INT)
        text_print(out, "%lld", (long long)v->integer);
    else if (v->kind == VALUE_BIGINT)
        text_append(out, v->text);
    else if (v->kind == VALUE_FLOAT && float_repr(v->real, text) > 0)
        text_print(out, "%s", text);
    return out->size > 0 && !out->failed;
}

struct figures {
    expr_id both;
    bool made, integer;
    uint32_t digits;
};

static int take_figure(struct schema *s, struct figures *f, const struct demand *d, struct str decimal)
{
    struct error why = {0};
    expr_id e = EXPR_NEVER;
    int status;
    if (d->kind == D_COMPARE || d->kind == D_NOT_VALUE) {
        unsigned orders = d->kind == D_COMPARE ? (unsigned)d->n : NUMBER_BELOW | NUMBER_ABOVE;
        status = number_compare(&e, &s->x, decimal, orders, &why);
        f->digits = d->kind == D_COMPARE ? MAX(f->digits, digits_for(decimal, d->n)) : f->digits;
    } else {
        status = number_multiple(&e, &s->x, decimal, &why);
        f->digits = MAX(f->digits, number_int_digits(decimal) + 1);
        if (d->kind == D_NOT_MULTIPLE)
            e = expr_not(&s->x, e);
    }
    if (status)
        return why.code == E_MEMORY ? schema_no_memory(s) : schema_refuse(s, d->at, "%s", why.text);
    f->both = f->made ? expr_and(&s->x, f->both, e) : e;
    f->made = true;
    return 0;
}

static int take_figures(struct schema *s, const struct branch *b, struct figures *f)
{
    struct text decimal = {0};
    int status = 0;
    for (size_t i = 0; i < b->n && !status; i++) {
        const struct demand *d = &b->demands[i];
        if (d->kind == D_INTEGER) {
            f->integer = true;
        } else if (d->kind == D_NOT_INTEGER) {
            expr_id e = expr_not(&s->x, number_whole(&s->x));
            f->both = f->made ? expr_and(&s->x, f->both, e) : e;
            f->made = true;
        } else if (d->kind == D_COMPARE || d->kind == D_MULTIPLE || d->kind == D_NOT_MULTIPLE ||
                   (d->kind == D_NOT_VALUE && schema_type_of(d->v) == TYPE_NUMBER)) {
            if (!schema_decimal(d->v, &decimal))
                status = decimal.failed ? schema_no_memory(s) : schema_refuse(s, d->at, "this number is too large");
            else
                status = take_figure(s, f, d, (struct str){decimal.data, decimal.size});
        }
    }
    text_free(&decimal);
    return status;
}

// Any number, or any integer, with at most as many digits as a double distinguishes.
static expr_id plain_number(struct schema *s, bool integer)
{
    uint32_t *rule = integer ? &s->integer_rule : &s->number_rule;
    struct exprs *x = &s->x;
    if (*rule == UINT32_MAX) {
        *rule = exprs_rule(x, integer ? STR_LIT("integer") : STR_LIT("number"));
        if (*rule == UINT32_MAX)
            return EXPR_NEVER;
        expr_id digit = expr_byte_range(x, '0', '9'), sign = expr_optional(x, expr_text_z(x, "-"));
        expr_id whole =
            expr_alt(x, expr_text_z(x, "0"),
                     expr_cat(x, expr_byte_range(x, '1', '9'), expr_repeat(x, digit, 0, NUMBER_DIGITS - 1)));
        expr_id fraction = expr_cat(x, expr_text_z(x, "."), expr_repeat(x, digit, 1, NUMBER_DIGITS));
        struct byte_set e = {0}, signs = {0};
        byte_set_add(&e, 'e');
        byte_set_add(&e, 'E');
        byte_set_add(&signs, '+');
        byte_set_add(&signs, '-');
        expr_id exponent[] = {expr_bytes(x, &e), expr_optional(x, expr_bytes(x, &signs)), expr_repeat(x, digit, 1, 2)};
        expr_id parts[] = {sign, whole, expr_optional(x, fraction), expr_optional(x, expr_cat_n(x, exponent, 3))};
        x->rules[*rule].body = integer ? number_integer_texts(x, NUMBER_DIGITS) : expr_cat_n(x, parts, COUNT_OF(parts));
        x->rules[*rule].defined = true;
    }
    return expr_rule(x, *rule);
}

int schema_emit_number(struct schema *s, const struct branch *b, expr_id *out)
{
    struct figures f = {.digits = NUMBER_DIGITS};
    struct dfa *d;
    if (take_figures(s, b, &f))
        return -1;
    if (!f.made) {
        *out = plain_number(s, f.integer);
        return 0;
    }
    expr_id texts = f.integer ? number_integer_texts(&s->x, f.digits) : number_texts(&s->x, MIN(f.digits, 60u));
    if (dfa_from_expr(&d, &s->x, expr_and(&s->x, f.both, texts), s->err))
        return -1;
    *out = dfa_is_empty(d) ? EXPR_NEVER : expr_dfa(&s->x, d);
    if (dfa_is_empty(d))
        dfa_free(d);
    return 0;
}
