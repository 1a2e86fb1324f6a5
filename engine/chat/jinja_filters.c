// Filters that take one value and return text or a number.
#include "engine/chat/jinja_filters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/chat/jinja_text.h"
#include "engine/json.h"
#include "engine/text/unicode.h"

#define FILTER(name)                                                                                                   \
    int filter_##name(struct run *r, const struct value *in, const struct call_args *args, struct value *out)

// ---- Case, white space, width ----

FILTER(upper)
{
    struct value s;
    return args_bind(r, args, "upper", "", 0, NULL) || run_soft_str(r, in, &s) ? -1 : text_case(r, &s, CASE_UPPER, out);
}

FILTER(lower)
{
    struct value s;
    return args_bind(r, args, "lower", "", 0, NULL) || run_soft_str(r, in, &s) ? -1 : text_case(r, &s, CASE_LOWER, out);
}

FILTER(capitalize)
{
    struct value s;
    return args_bind(r, args, "capitalize", "", 0, NULL) || run_soft_str(r, in, &s) ? -1 : text_capitalize(r, &s, out);
}

// Words begin after white space, hyphens and opening brackets.
FILTER(title)
{
    struct value s, part;
    if (args_bind(r, args, "title", "", 0, NULL) || run_soft_str(r, in, &s))
        return -1;
    struct build b = {.markup = s.markup};
    bool begins = true;
    for (size_t at = 0, len; at < s.text.len; at += len) {
        uint32_t cp = text_char(s.text, at, &len);
        struct value c = string_slice(&s, at, at + len);
        bool sign = text_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp));
        // the first character of a word becomes upper case, not title case
        if (run_step(r, 1) || text_case(r, &c, begins && !sign ? CASE_UPPER : CASE_LOWER, &part) ||
            build_string(r, &b, &part))
            return -1;
        begins = sign;
    }
    b.markup = false;
    *out = build_value(&b);
    return 0;
}

FILTER(trim)
{
    struct value s, chars = value_none();
    if (args_bind(r, args, "trim", "chars", 0, &chars) || run_soft_str(r, in, &s))
        return -1;
    if (chars.kind != VALUE_NONE && !is_string(&chars))
        return run_fail(r, "trim() wants a string, not %s", value_type_name(&chars));
    return text_strip(r, &s, is_string(&chars) ? &chars : NULL, true, true, out);
}

FILTER(center)
{
    struct value s, width = value_int(80);
    int64_t n;
    if (args_bind(r, args, "center", "width", 0, &width) || run_int_arg(r, &width, &n) || run_soft_str(r, in, &s))
        return -1;
    return text_pad(r, &s, n, 0, NULL, out);
}

FILTER(replace)
{
    struct value v[3] = {value_none(), value_none(), value_none()}, s, old, new;
    int64_t count = -1;
    if (args_bind(r, args, "replace", "old new count", 2, v) || run_str(r, in, &s) || run_str(r, &v[0], &old) ||
        run_str(r, &v[1], &new) || (v[2].kind != VALUE_NONE && run_int_arg(r, &v[2], &count)))
        return -1;
    return text_replace(r, &s, &old, &new, count, out);
}

static int indention(struct run *r, const struct value *width, struct value *out)
{
    struct build b = {0};
    int64_t n;
    if (is_string(width)) {
        *out = *width;
        return 0;
    }
    if (run_int_arg(r, width, &n) || build_fill(r, &b, ' ', n > 0 ? (size_t)n : 0, ORIGIN_OWN))
        return -1;
    *out = build_value(&b);
    return 0;
}

FILTER(indent)
{
    struct value v[3] = {value_int(4), value_bool(false), value_bool(false)}, s, indent, lines,
                 newline = VALUE_LIT("\n");
    struct build b = {.markup = in->markup && is_string(in)};
    if (args_bind(r, args, "indent", "width first blank", 0, v) || indention(r, &v[0], &indent))
        return -1;
    if (!is_string(in))
        return is_undefined(in) ? run_use_undefined(r, in)
                                : run_fail(r, "indent wants a string, not %s", value_type_name(in));
    // another newline is appended, so that an empty last line counts as a line
    if (string_concat(r, in, &newline, &s) || text_lines(r, &s, false, &lines) ||
        (value_truth(&v[1]) && build_string(r, &b, &indent)))
        return -1;
    for (size_t i = 0; i < lines.list->n; i++) {
        const struct value *line = &lines.list->items[i];
        bool indented = i > 0 && (value_truth(&v[2]) || line->text.len > 0);
        if ((i > 0 && build_string(r, &b, &newline)) || (indented && build_string(r, &b, &indent)) ||
            build_string(r, &b, line))
            return -1;
    }
    *out = build_value(&b);
    return 0;
}

FILTER(truncate)
{
    struct value v[4] = {value_int(255), value_bool(false), VALUE_LIT("..."), value_none()}, head, s;
    int64_t most, leeway = 5, n, end;
    if (args_bind(r, args, "truncate", "length killwords end leeway", 0, v) || run_int_arg(r, &v[0], &most) ||
        (v[3].kind != VALUE_NONE && run_int_arg(r, &v[3], &leeway)) || run_length(r, in, &n) ||
        run_length(r, &v[2], &end))
        return -1;
    if (most < end || leeway < 0)
        return run_fail(r, "truncate() wants a length of at least %lld and a leeway of at least 0", (long long)end);
    s = *in;
    if (n - most <= leeway) {
        *out = s;
        return 0;
    }
    if (!is_string(&s))
        return run_fail(r, "truncate() wants a string, not %s", value_type_name(&s));
    head = string_slice(&s, 0, string_char_at(s.text, (size_t)(most - end)));
    size_t space = value_truth(&v[1]) ? SIZE_MAX : text_find(head.text, STR_LIT(" "), 0, head.text.len, true);
    if (space != SIZE_MAX)
        head = string_slice(&head, 0, space);
    return run_binary(r, OP_ADD, &head, &v[2], out);
}

FILTER(wordcount)
{
    struct value s;
    bool within = false;
    int64_t n = 0;
    if (args_bind(r, args, "wordcount", "", 0, NULL) || run_soft_str(r, in, &s) || run_step(r, s.text.len / 8))
        return -1;
    for (size_t at = 0, len; at < s.text.len; at += len) {
        uint32_t cp = text_char(s.text, at, &len);
        bool word = cp == '_' || unicode_bits(cp) & (UNI_LETTER | UNI_NUMBER);
        n += word && !within;
        within = word;
    }
    *out = value_int(n);
    return 0;
}

// ---- Wrapping ----

struct wrap {
    struct run *r;
    const struct value *s;
    struct value newline;
    struct build b;
    size_t width, column; // characters
    bool break_words, on_hyphens;
    bool line_begun; // the current line is not empty
};

// The end of the chunk at `at`: white space, or a word up to white space or, if allowed, up to and including a
// hyphen.
static size_t chunk_end(const struct wrap *w, size_t at, size_t to, bool *space)
{
    size_t len, start = at;
    *space = text_is_space(text_char(w->s->text, at, &len));
    for (; at < to; at += len) {
        uint32_t cp = text_char(w->s->text, at, &len);
        if (text_is_space(cp) != *space)
            break;
        bool letters = cp == '-' && at > start && at + len < to;
        if (letters && w->on_hyphens) {
            size_t next_len, before_len;
            uint32_t next = text_char(w->s->text, at + len, &next_len),
                     before = text_char_before(w->s->text, at, &before_len);
            if (unicode_bits(next) & UNI_LETTER && unicode_bits(before) & UNI_LETTER)
                return at + len;
        }
    }
    return at;
}

static int new_line(struct wrap *w)
{
    w->column = 0;
    w->line_begun = false;
    return build_string(w->r, &w->b, &w->newline);
}

// Splits a word that is longer than a line.
static int put_long(struct wrap *w, size_t from, size_t to)
{
    while (from < to) {
        struct str rest = {w->s->text.data + from, to - from};
        size_t fits = w->width > w->column ? w->width - w->column : 0;
        size_t n = w->break_words ? string_char_at(rest, MAX(fits, w->line_begun ? fits : (size_t)1)) : rest.len;
        n = MIN(n, rest.len);
        if (run_step(w->r, 1 + n / 16))
            return -1;
        if (n > 0 && build_slice(w->r, &w->b, w->s, from, from + n))
            return -1;
        w->column += string_chars((struct str){rest.data, n});
        w->line_begun = w->line_begun || n > 0;
        from += n;
        if (from < to && new_line(w))
            return -1;
    }
    return 0;
}

static int wrap_line(struct wrap *w, size_t from, size_t to)
{
    size_t space_from = from;
    bool pending = false; // white space that is written only if a word follows on the same line
    w->column = 0;
    w->line_begun = false;
    bool any = false;
    for (size_t at = from, end; at < to; at = end) {
        bool space;
        end = chunk_end(w, at, to, &space);
        if (run_step(w->r, 1))
            return -1;
        if (space) {
            space_from = at;
            pending = w->line_begun || !any;
            continue;
        }
        size_t blank = pending ? string_chars((struct str){w->s->text.data + space_from, at - space_from}) : 0;
        size_t word = string_chars((struct str){w->s->text.data + at, end - at});
        any = true;
        bool is_long = word > w->width;
        bool fits = w->column + blank + word <= w->width;
        // a word that fits in no line is split here, if a part of it fits; any other begins a line
        if (!fits && !(is_long && w->break_words && w->column + blank < w->width)) {
            if (w->line_begun && new_line(w))
                return -1;
            blank = 0;
        }
        if (blank) {
            if (build_slice(w->r, &w->b, w->s, space_from, at))
                return -1;
            w->column += blank;
            w->line_begun = true;
        }
        pending = false;
        if (put_long(w, at, end))
            return -1;
    }
    return 0;
}

FILTER(wordwrap)
{
    struct value v[4] = {value_int(79), value_bool(true), value_none(), value_bool(true)}, lines;
    int64_t width;
    if (args_bind(r, args, "wordwrap", "width break_long_words wrapstring break_on_hyphens", 0, v) ||
        run_int_arg(r, &v[0], &width))
        return -1;
    if (!is_string(in))
        return is_undefined(in) ? run_use_undefined(r, in)
                                : run_fail(r, "wordwrap() wants a string, not %s", value_type_name(in));
    if (width <= 0)
        return run_fail(r, "invalid width %lld (must be > 0)", (long long)width);
    struct wrap w = {
        .r = r, .s = in, .width = (size_t)width, .break_words = value_truth(&v[1]), .on_hyphens = value_truth(&v[3])};
    w.newline = is_string(&v[2]) ? v[2] : VALUE_LIT("\n");
    if (text_lines(r, in, false, &lines))
        return -1;
    for (size_t i = 0; i < lines.list->n; i++) {
        size_t from = (size_t)(lines.list->items[i].text.data - in->text.data);
        if ((i && build_string(r, &w.b, &w.newline)) || wrap_line(&w, from, from + lines.list->items[i].text.len))
            return -1;
    }
    *out = build_value(&w.b);
    return 0;
}

// ---- HTML and URLs ----

FILTER(escape)
{
    return args_bind(r, args, "escape", "", 0, NULL) ? -1 : run_escape_html(r, in, out);
}

FILTER(forceescape)
{
    struct value s;
    return args_bind(r, args, "forceescape", "", 0, NULL) || run_str(r, in, &s) ? -1 : run_escape_html(r, &s, out);
}

FILTER(safe)
{
    if (args_bind(r, args, "safe", "", 0, NULL) || run_str(r, in, out))
        return -1;
    out->markup = true;
    return 0;
}

FILTER(string)
{
    return args_bind(r, args, "string", "", 0, NULL) ? -1 : run_soft_str(r, in, out);
}

// Removes everything between two marks, repeatedly.
static int drop_between(struct run *r, const struct value *s, struct str from, struct str to, struct value *out)
{
    struct build b = {0};
    size_t at = 0, start, end;
    if (run_step(r, s->text.len / 8))
        return -1;
    while ((start = text_find(s->text, from, at, s->text.len, false)) != SIZE_MAX &&
           (end = text_find(s->text, to, start, s->text.len, false)) != SIZE_MAX) {
        if (run_step(r, 1) || build_slice(r, &b, s, at, start))
            return -1;
        at = end + to.len;
    }
    if (build_slice(r, &b, s, at, s->text.len))
        return -1;
    *out = build_value(&b);
    return 0;
}

static int unescape(struct run *r, const struct value *s, struct value *out)
{
    static const char *const named[][2] = {{"&lt;", "<"},   {"&gt;", ">"},   {"&quot;", "\""},       {"&#39;", "'"},
                                           {"&#34;", "\""}, {"&apos;", "'"}, {"&nbsp;", "\xC2\xA0"}, {"&amp;", "&"}};
    struct value v = *s;
    for (size_t i = 0; i < COUNT_OF(named); i++) {
        struct value old = value_string(str_from(named[i][0])), new = value_string(str_from(named[i][1])), next;
        new.origin = s->origin == ORIGIN_OWN ? ORIGIN_OWN : ORIGIN_INPUT;
        if (text_replace(r, &v, &old, &new, -1, &next))
            return -1;
        v = next;
    }
    *out = v;
    return 0;
}

FILTER(striptags)
{
    struct value s, without, words;
    struct value space = VALUE_LIT(" ");
    struct build b = {0};
    if (args_bind(r, args, "striptags", "", 0, NULL) || run_str(r, in, &s) ||
        drop_between(r, &s, STR_LIT("<!--"), STR_LIT("-->"), &without) ||
        drop_between(r, &without, STR_LIT("<"), STR_LIT(">"), &s))
        return -1;
    struct call_args none = {0};
    const char *name;
    if (text_method(STR_LIT("split"), &name)(r, &s, &none, &words))
        return -1;
    for (size_t i = 0; i < words.list->n; i++)
        if ((i && build_string(r, &b, &space)) || build_string(r, &b, &words.list->items[i]))
            return -1;
    s = build_value(&b);
    return unescape(r, &s, out);
}

static int quote_url(struct run *r, struct build *b, const struct value *s, bool query)
{
    if (run_step(r, s->text.len))
        return -1;
    for (size_t i = 0; i < s->text.len; i++) {
        unsigned char c = (unsigned char)s->text.data[i];
        char out[4] = {(char)c, 0};
        bool safe = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c && strchr("_.-~", c)) ||
                    (c == '/' && !query);
        if (query && c == ' ')
            out[0] = '+';
        else if (!safe)
            snprintf(out, sizeof out, "%%%02X", c);
        if (build_text(r, b, str_from(out), string_origin(s, i), NULL))
            return -1;
    }
    return 0;
}

static int quote_pairs(struct run *r, struct build *b, const struct value *pairs)
{
    struct value items, equals = VALUE_LIT("="), and = VALUE_LIT("&");
    if (run_items(r, pairs, &items))
        return -1;
    for (size_t i = 0; i < items.list->n; i++) {
        struct value pair, s;
        if (run_items(r, &items.list->items[i], &pair))
            return -1;
        if (value_count(&pair) != 2)
            return run_fail(r, "urlencode() wants pairs");
        if ((i && build_string(r, b, &and)) || run_str(r, &pair.list->items[0], &s) || quote_url(r, b, &s, true) ||
            build_string(r, b, &equals) || run_str(r, &pair.list->items[1], &s) || quote_url(r, b, &s, true))
            return -1;
    }
    return 0;
}

FILTER(urlencode)
{
    struct build b = {0};
    struct value s, items = *in;
    int status = args_bind(r, args, "urlencode", "", 0, NULL);
    if (!status && (is_string(in) || !value_is_iterable(in)))
        status = run_str(r, in, &s) ? -1 : quote_url(r, &b, &s, false);
    else if (!status && in->kind == VALUE_DICT) {
        struct view view = {{OBJ_VIEW}, VIEW_ITEMS, *in};
        struct value v = value_of_object(&view);
        status = run_items(r, &v, &items) ? -1 : quote_pairs(r, &b, &items);
    } else if (!status)
        status = quote_pairs(r, &b, &items);
    *out = build_value(&b);
    return status;
}

FILTER(xmlattr)
{
    struct value space = value_bool(true), key, v, quote = VALUE_LIT("\""), blank = VALUE_LIT(" "),
                 equals = VALUE_LIT("=\"");
    struct build b = {0};
    if (args_bind(r, args, "xmlattr", "autospace", 0, &space))
        return -1;
    if (in->kind != VALUE_DICT)
        return is_undefined(in) ? run_use_undefined(r, in)
                                : run_fail(r, "xmlattr wants a mapping, not %s", value_type_name(in));
    for (size_t i = 0; i < in->dict->n; i++) {
        const struct value_entry *e = &in->dict->entries[i];
        bool bad = !is_string(&e->key);
        if (run_step(r, 1 + (bad ? 0 : e->key.text.len / 4)))
            return -1;
        if (e->value.kind == VALUE_NONE || is_undefined(&e->value))
            continue;
        for (size_t k = 0; !bad && k < e->key.text.len; k++)
            bad = e->key.text.data[k] == '\0' ? false : strchr(" \t\n\r\f\v/>=", e->key.text.data[k]) != NULL;
        if (bad)
            return run_fail(r, "invalid character in attribute name");
        if (((b.n || value_truth(&space)) && build_string(r, &b, &blank)) || run_escape_html(r, &e->key, &key) ||
            build_string(r, &b, &key) || build_string(r, &b, &equals) || run_escape_html(r, &e->value, &v) ||
            build_string(r, &b, &v) || build_string(r, &b, &quote))
            return -1;
    }
    b.markup = r->autoescape;
    *out = build_value(&b);
    return 0;
}

// ---- JSON ----

struct json_sink {
    struct run *r;
    struct build *b;
};

// A piece gets the marks of the bytes that it was made from.
static int emit_json(void *arg, struct str piece, const struct value *from, size_t at)
{
    struct json_sink *sink = arg;
    if (run_step(sink->r, from->kind == VALUE_FLOAT ? FLOAT_REPR_STEPS : 1))
        return -1;
    if (from->origin != ORIGIN_MIXED)
        return build_text(sink->r, sink->b, piece, from->origin, NULL);
    if (from->kind == VALUE_STRING && piece.data == from->text.data + at)
        return build_text(sink->r, sink->b, piece, ORIGIN_MIXED, from->marks + at);
    return build_text(sink->r, sink->b, piece, string_origin(from, at), NULL);
}

static int json_separators(struct run *r, const struct value *v, struct json_style *style, char text[2][16])
{
    struct value items;
    if (v->kind == VALUE_NONE)
        return 0;
    if (!value_is_iterable(v) || run_items(r, v, &items) || value_count(&items) != 2)
        return r->err->code ? -1 : run_fail(r, "separators are a pair of strings");
    for (int i = 0; i < 2; i++) {
        const struct value *s = &items.list->items[i];
        if (!is_string(s) || s->text.len >= 16)
            return run_fail(r, "separators are a pair of short strings");
        memcpy(text[i], s->text.data, s->text.len);
        text[i][s->text.len] = '\0';
    }
    style->item_sep = text[0];
    style->key_sep = text[1];
    return 0;
}

FILTER(tojson)
{
    struct value v[4] = {value_bool(false), value_none(), value_none(), value_bool(false)}, indent;
    struct json_style style = {0};
    char separators[2][16];
    struct build b = {0};
    struct json_sink sink = {r, &b};
    if (args_bind(r, args, "tojson", "ensure_ascii indent separators sort_keys", 0, v) ||
        json_separators(r, &v[2], &style, separators))
        return -1;
    style.ascii = value_truth(&v[0]);
    style.sort_keys = value_truth(&v[3]);
    style.indented = v[1].kind != VALUE_NONE;
    if (style.indented) {
        if (indention(r, &v[1], &indent))
            return -1;
        style.indent = indent.text;
    }
    if (json_write(in, &style, emit_json, &sink, r->err))
        return r->err->code == E_USAGE ? run_fail(r, "tojson: %s", r->err->text) : -1;
    *out = build_value(&b);
    return 0;
}

FILTER(from_json)
{
    struct json_reader reader = {.arena = &r->arena, .flags = JSON_NAN, .max_depth = VALUE_DEPTH};
    if (args_bind(r, args, "from_json", "", 0, NULL))
        return -1;
    if (!is_string(in))
        return is_undefined(in) ? run_use_undefined(r, in)
                                : run_fail(r, "from_json wants a string, not %s", value_type_name(in));
    if (in->text.len > JINJA_MEMORY_MAX / 80 || run_step(r, in->text.len))
        return r->err->code ? -1 : run_fail(r, "from_json: a text of more than %d bytes", JINJA_MEMORY_MAX / 80);
    if (r->arena.total + 80 * in->text.len > JINJA_MEMORY_MAX)
        return run_fail(r, "the template's values take more than %d MiB", JINJA_MEMORY_MAX >> 20);
    if (in->origin != ORIGIN_OWN) // if any byte is input, everything counts as input
        reader.flags |= JSON_INPUT;
    if (json_read(out, &reader, in->text, r->err))
        return r->err->code == E_USAGE ? run_fail(r, "from_json: %s", r->err->text) : -1;
    return 0;
}

// ---- Numbers ----

// Copies the text of a number, which has no white space around it, without underscores; false if it is too long or
// malformed.
static bool number_text(const struct value *v, char *out, size_t room)
{
    size_t n = 0;
    for (size_t i = 0; i < v->text.len; i++) {
        char c = v->text.data[i];
        bool between = c == '_' && i > 0 && i + 1 < v->text.len && v->text.data[i + 1] != '_';
        if (n + 1 >= room || (c == '_' && !between) || c == '\0')
            return false;
        if (c != '_')
            out[n++] = c;
    }
    out[n] = '\0';
    return n > 0;
}

static bool parse_int(const struct value *s, int64_t base, int64_t *out)
{
    char text[128], *p = text;
    if (base < 0 || base == 1 || base > 36 || !number_text(s, text, sizeof text))
        return false;
    bool minus = *p == '-';
    p += *p == '-' || *p == '+';
    int prefix = p[0] != '0' ? 0 : (p[1] | 0x20) == 'x' ? 16 : (p[1] | 0x20) == 'o' ? 8 : (p[1] | 0x20) == 'b' ? 2 : 0;
    if (prefix && (base == 0 || base == prefix)) {
        base = prefix;
        p += 2;
    }
    base = base == 0 ? 10 : base;
    int64_t v = 0;
    if (!*p)
        return false;
    for (; *p; p++) {
        int d = *p >= '0' && *p <= '9'                     ? *p - '0'
                : (*p | 0x20) >= 'a' && (*p | 0x20) <= 'z' ? (*p | 0x20) - 'a' + 10
                                                           : 99;
        if (d >= base || __builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, minus ? -d : d, &v))
            return false;
    }
    *out = v;
    return true;
}

static bool parse_float(const struct value *s, double *out)
{
    char text[512], *end;
    if (!number_text(s, text, sizeof text))
        return false;
    if (strpbrk(text, "xXpP(")) // accepted by strtod but not by Python
        return false;
    *out = strtod(text, &end);
    return *end == '\0';
}

static bool to_float(const struct value *v, double *out)
{
    if (is_string(v))
        return parse_float(v, out);
    if (v->kind == VALUE_BOOL) {
        *out = v->boolean;
        return true;
    }
    return value_number(v, out);
}

// A number, or the text of one without the white space around it. Up to 512 characters are converted.
static int number_input(struct run *r, const struct value *in, struct value *out)
{
    *out = *in;
    if (!is_string(in))
        return run_step(r, in->kind == VALUE_BIGINT ? in->text.len / 4 : 0);
    if (text_strip(r, in, NULL, true, true, out))
        return -1;
    return run_step(r, MIN(out->text.len, (size_t)512) / 4);
}

FILTER(int)
{
    struct value v[2] = {value_int(0), value_int(10)};
    struct value number;
    int64_t base, i;
    double f;
    if (args_bind(r, args, "int", "default base", 0, v) || run_int_arg(r, &v[1], &base) || number_input(r, in, &number))
        return -1;
    if (is_undefined(in))
        return run_use_undefined(r, in);
    if (in->kind == VALUE_INT || in->kind == VALUE_BIGINT)
        *out = *in;
    else if (is_string(in) && parse_int(&number, base, &i))
        *out = value_int(i);
    else if (to_float(&number, &f) && isfinite(f)) {
        if (fabs(f) >= 0x1p63)
            return run_fail(r, "the whole number needs more than 64 bits");
        *out = value_int((int64_t)f);
    } else if (in->kind == VALUE_FLOAT && isinf(in->real))
        return run_fail(r, "cannot convert float infinity to integer");
    else {
        *out = v[0];
        return 0;
    }
    out->origin = in->origin == ORIGIN_OWN ? ORIGIN_OWN : ORIGIN_INPUT;
    return 0;
}

FILTER(float)
{
    struct value v = value_float(0), number;
    double f;
    if (args_bind(r, args, "float", "default", 0, &v) || number_input(r, in, &number))
        return -1;
    if (is_undefined(in))
        return run_use_undefined(r, in);
    *out = to_float(&number, &f) ? value_float(f) : v;
    return 0;
}

FILTER(abs)
{
    struct value zero = value_int(0);
    bool less;
    if (args_bind(r, args, "abs", "", 0, NULL))
        return -1;
    if (is_undefined(in) || in->kind < VALUE_BOOL || in->kind > VALUE_FLOAT)
        return run_fail(r, "bad operand type for abs(): '%s'", value_type_name(in));
    *out = in->kind == VALUE_BOOL ? value_int(in->boolean) : *in;
    if (in->kind == VALUE_FLOAT) {
        *out = value_float(fabs(in->real));
        return 0;
    }
    return run_order(r, in, &zero, &less) ? -1 : less ? run_negate(r, in, out) : 0;
}

// Python's round: half to even, based on the exact decimal value of the float.
static double round_half_even(double f, int64_t precision)
{
    char text[512];
    if (!isfinite(f) || precision > 300)
        return f;
    if (precision >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)precision, f);
        return strtod(text, NULL);
    }
    if (precision < -310)
        return copysign(0.0, f);
    double unit = pow(10, (double)-precision);
    return nearbyint(f / unit) * unit;
}

static int round_int(struct run *r, int64_t i, int64_t precision, struct value *out)
{
    int64_t unit = 1;
    for (; precision < 0 && unit < INT64_MAX / 10; precision++)
        unit *= 10;
    if (precision < 0)
        i = 0; // less than half of 10^19
    int64_t rounded = i / unit * unit, rest = i - rounded, half = unit / 2;
    const bool up = llabs(rest) > half || (llabs(rest) == half && (i / unit) % 2 != 0);
    if (unit > 1 && up && __builtin_add_overflow(rounded, rest < 0 ? -unit : unit, &rounded))
        return run_fail(r, "the whole number needs more than 64 bits");
    *out = value_int(rounded);
    return 0;
}

FILTER(round)
{
    struct value v[2] = {value_int(0), VALUE_LIT("common")};
    int64_t precision;
    double f;
    if (args_bind(r, args, "round", "precision method", 0, v))
        return -1;
    bool common = is_string(&v[1]) && str_equal_z(v[1].text, "common");
    bool ceiling = is_string(&v[1]) && str_equal_z(v[1].text, "ceil");
    if (!common && !ceiling && !(is_string(&v[1]) && str_equal_z(v[1].text, "floor")))
        return run_fail(r, "method must be common, ceil or floor");
    if (is_undefined(in))
        return run_use_undefined(r, in);
    if (run_int_arg(r, &v[0], &precision))
        return -1;
    if (is_string(in) || !to_float(in, &f))
        return run_fail(r, "type %s doesn't define __round__ method", value_type_name(in));
    if (run_step_float(r, f, precision > 300 ? 0 : 2 * MAX(precision, 0))) // it is written, and read again
        return -1;
    if (common && in->kind == VALUE_BIGINT)
        return run_fail(r, "'round' with a whole number that needs more than 64 bits");
    if (common && in->kind != VALUE_FLOAT)
        return round_int(r, in->kind == VALUE_BOOL ? in->boolean : in->integer, precision, out);
    if (!common && !isfinite(f))
        return run_fail(r, "cannot convert float %s to integer", isnan(f) ? "NaN" : "infinity");
    double unit = pow(10, (double)precision);
    *out = value_float(common ? round_half_even(f, precision) : (ceiling ? ceil(f * unit) : floor(f * unit)) / unit);
    return 0;
}

FILTER(filesizeformat)
{
    static const char *const decimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}, *const binary_names[] = {
                                                                                               "KiB", "MiB", "GiB",
                                                                                               "TiB", "PiB", "EiB",
                                                                                               "ZiB", "YiB"};
    struct value v = value_bool(false), number;
    double f;
    char text[64];
    if (args_bind(r, args, "filesizeformat", "binary", 0, &v) || number_input(r, in, &number) || run_step(r, 8))
        return -1;
    if (is_undefined(in))
        return run_use_undefined(r, in);
    if (!to_float(&number, &f))
        return run_fail(r, "filesizeformat wants a number, not %s", value_type_name(in));
    double base = value_truth(&v) ? 1024 : 1000, unit = base * base;
    size_t i = 0;
    for (; i < 7 && f >= unit; i++)
        unit *= base;
    if (f == 1)
        snprintf(text, sizeof text, "1 Byte");
    else if (f < base)
        snprintf(text, sizeof text, "%lld Bytes", (long long)f);
    else
        snprintf(text, sizeof text, "%.1f %s", base * f / unit, value_truth(&v) ? binary_names[i] : decimal[i]);
    struct build b = {0};
    if (build_text(r, &b, str_from(text), in->origin == ORIGIN_OWN ? ORIGIN_OWN : ORIGIN_INPUT, NULL))
        return -1;
    *out = build_value(&b);
    return 0;
}

// Arguments like those of a % operator: several in a tuple, or named ones in a dict.
FILTER(format)
{
    struct value s, values;
    if (run_soft_str(r, in, &s))
        return -1;
    if (args->n && args->n_named)
        return run_fail(r, "can't handle positional and keyword arguments at the same time");
    if (args->n_named ? run_dict_new(r, &values) : run_list_new(r, &values))
        return -1;
    for (size_t i = 0; i < args->n; i++)
        if (run_list_push(r, &values, args->at[i]))
            return -1;
    for (size_t i = 0; i < args->n_named; i++)
        if (run_dict_put(r, &values, value_string(args->names[i]), args->at[i]))
            return -1;
    values.kind = args->n_named ? VALUE_DICT : VALUE_TUPLE;
    return run_percent_format(r, &s, &values, out);
}
