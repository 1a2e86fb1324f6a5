// Recursive descent over the pattern. A pattern ^...$ without other anchors or lookaheads is translated directly. Any
// other pattern becomes an expression over texts between two marker bytes, which the anchors match. That expression
// is turned into a deterministic automaton, and the markers are then removed from it.
#include "engine/grammar/regex.h"

#include "engine/grammar/dfa_build.h"
#include "engine/text/unicode.h"

#include <stdlib.h>

enum { REGEX_NEST_MAX = 100, REGEX_REPEAT_MAX = 1000000000, REGEX_PARTS_MAX = 1 << 16 };
enum { PROPERTY_LOOKS = 1 << 14 }; // work of listing all characters of a category

// Anchors match marker bytes that never occur in UTF-8: one before the text and one after it.
enum { MARK_BEGIN = 0xFE, MARK_END = 0xFF };

struct regex {
    struct exprs *x;
    const char *begin, *at, *end;
    int nested;
    bool has_anchors;
    expr_id rest;   // what may follow the pattern
    expr_id behind; // what may follow a lookahead
    struct error *err;
};

static int refuse(struct regex *r, const char *at, const char *what)
{
    int column = 1;
    for (const char *c = r->begin; c < at; c++)
        column += ((unsigned char)*c & 0xC0) != 0x80;
    return fail(r->err, E_USAGE, "pattern: column %d: %s", column, what);
}

static bool is_at(const struct regex *r, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(r->end - r->at) >= n && !memcmp(r->at, text, n);
}

static bool take(struct regex *r, const char *text)
{
    bool is = is_at(r, text);
    r->at += is ? strlen(text) : 0;
    return is;
}

// --- character sets ---

static void add_digits(struct char_set *s)
{
    char_set_add(s, '0', '9');
}

static void add_words(struct char_set *s)
{
    char_set_add(s, '0', '9');
    char_set_add(s, 'A', 'Z');
    char_set_add(s, '_', '_');
    char_set_add(s, 'a', 'z');
}

static void add_spaces(struct char_set *s)
{
    static const struct char_range spaces[] = {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680},
                                               {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                               {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    for (size_t i = 0; i < COUNT_OF(spaces); i++)
        char_set_add(s, spaces[i].from, spaces[i].to);
}

// Adds a set or its complement, and frees it.
static void add_set(struct char_set *to, struct char_set *set, bool negated)
{
    if (negated)
        char_set_negate(set);
    char_set_add_set(to, set);
    char_set_free(set);
}

// Adds all characters with one of the property bits. The tables have blocks of 128 characters, and most blocks repeat
// the one before (CJK, private use, unassigned). If that block was uniform, nothing changes within this one.
static void add_property(struct char_set *s, unsigned bits)
{
    bool in = false, alike = false;
    uint32_t from = 0;
    for (uint32_t first = 0; first <= CHAR_MAX_CODE; first += 128) {
        if (alike && unicode_first[first >> 7] == unicode_first[(first >> 7) - 1])
            continue;
        alike = true;
        for (uint32_t cp = first; cp < first + 128; cp++) {
            if (((unicode_bits(cp) & bits) != 0) == in)
                continue;
            alike = alike && cp == first;
            if (in)
                char_set_add(s, from, cp - 1);
            from = cp;
            in = !in;
        }
    }
    if (in)
        char_set_add(s, from, CHAR_MAX_CODE);
}

// \p{Name}: a general category.
static int take_property(struct regex *r, struct char_set *to, bool negated)
{
    static const struct {
        const char *name;
        unsigned bits;
    } names[] = {{"L", UNI_LETTER},
                 {"Letter", UNI_LETTER},
                 {"Lu", UNI_UPPER},
                 {"Ll", UNI_LOWER},
                 {"M", UNI_MARK},
                 {"Mark", UNI_MARK},
                 {"N", UNI_NUMBER},
                 {"Number", UNI_NUMBER},
                 {"Nd", UNI_DIGIT},
                 {"digit", UNI_DIGIT},
                 {"P", UNI_PUNCT},
                 {"Punctuation", UNI_PUNCT},
                 {"S", UNI_SYMBOL},
                 {"Symbol", UNI_SYMBOL},
                 {"Z", UNI_SEPARATOR},
                 {"Separator", UNI_SEPARATOR},
                 {"White_Space", UNI_SPACE},
                 {"Script=Han", UNI_HAN},
                 {"sc=Han", UNI_HAN},
                 {"Mn", UNI_NONSPACING}};
    const char *begin = r->at, *close = r->at < r->end ? memchr(r->at, '}', (size_t)(r->end - r->at)) : NULL;
    if (!take(r, "{") || !close)
        return refuse(r, begin, "\\p is written \\p{L}");
    struct str name = {r->at, (size_t)(close - r->at)};
    r->at = close + 1;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (!str_equal_z(name, names[i].name))
            continue;
        struct char_set set = {0};
        if (!dfa_spend(r->x, PROPERTY_LOOKS))
            return dfa_too_much(r->err);
        add_property(&set, names[i].bits);
        add_set(to, &set, negated);
        return 0;
    }
    return refuse(r, begin, "this property of characters is not known; general categories are");
}

// Adds the class \d, \D, \w, \W, \s or \S; false if c is none of these letters.
static bool add_class(struct char_set *to, char c)
{
    struct char_set set = {0};
    switch (c) {
    case 'd':
    case 'D':
        add_digits(&set);
        break;
    case 'w':
    case 'W':
        add_words(&set);
        break;
    case 's':
    case 'S':
        add_spaces(&set);
        break;
    default:
        return false;
    }
    add_set(to, &set, c < 'a');
    return true;
}

// --- single characters ---

static bool take_hex(struct regex *r, int least, int most, uint32_t *cp)
{
    int n = 0;
    *cp = 0;
    for (; n < most && r->at < r->end; n++, r->at++) {
        char c = *r->at;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            break;
        *cp = *cp << 4 | (uint32_t)digit;
    }
    return n >= least;
}

// After \u: four digits, a pair of surrogates, or a number in braces.
static bool take_unicode(struct regex *r, uint32_t *cp)
{
    if (take(r, "{"))
        return take_hex(r, 1, 6, cp) && take(r, "}") && *cp <= CHAR_MAX_CODE;
    if (!take_hex(r, 4, 4, cp))
        return false;
    uint32_t low;
    if (*cp >= 0xD800 && *cp <= 0xDBFF && take(r, "\\u") && take_hex(r, 4, 4, &low) && low >= 0xDC00 && low <= 0xDFFF)
        *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
    return *cp < 0xD800 || *cp > 0xDFFF;
}

// After a backslash: an escape that stands for one character.
static int take_escape(struct regex *r, bool in_class, uint32_t *cp)
{
    static const char from[] = "tnvfr0", to[] = "\t\n\v\f\r";
    const char *begin = r->at - 1;
    if (r->at == r->end)
        return refuse(r, begin, "nothing comes behind this backslash");
    char c = *r->at++;
    const char *known = strchr(from, c);
    if (c == '0' && r->at < r->end && *r->at >= '0' && *r->at <= '9')
        return refuse(r, begin, "octal escapes are none of the flag u");
    if (known && c) {
        *cp = (unsigned char)to[known - from];
        return 0;
    }
    if (c == 'b' && in_class) {
        *cp = '\b';
        return 0;
    }
    if (c == 'c' && r->at < r->end && ((*r->at | 32) >= 'a' && (*r->at | 32) <= 'z')) {
        *cp = (uint32_t)*r->at++ & 31;
        return 0;
    }
    if (c == 'x' || c == 'u')
        return (c == 'x' ? take_hex(r, 2, 2, cp) : take_unicode(r, cp)) ? 0 : refuse(r, begin, "this is no character");
    if (c == 'b' || c == 'B')
        return refuse(r, begin, "\\b and \\B are not supported");
    if (c == 'k' || (c >= '1' && c <= '9'))
        return refuse(r, begin, "back references are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return refuse(r, begin, "an escape that is not known");
    r->at--;
    int n = utf8_decode(r->at, (size_t)(r->end - r->at), cp);
    r->at += n;
    return n ? 0 : refuse(r, begin, "bytes that are no UTF-8");
}

// Reads one character of a class (*cp), or a set of characters (*is_set), which it adds.
static int take_class_char(struct regex *r, struct char_set *set, uint32_t *cp, bool *is_set)
{
    *is_set = false;
    if (!take(r, "\\")) {
        int n = utf8_decode(r->at, (size_t)(r->end - r->at), cp);
        r->at += n;
        return n ? 0 : refuse(r, r->at, "bytes that are no UTF-8");
    }
    if (r->at < r->end && add_class(set, *r->at)) {
        r->at++;
        *is_set = true;
        return 0;
    }
    if (is_at(r, "p") || is_at(r, "P")) {
        *is_set = true;
        return take_property(r, set, *r->at++ == 'P');
    }
    return take_escape(r, true, cp);
}

static int take_class(struct regex *r, struct char_set *set)
{
    const char *begin = r->at - 1;
    bool negated = take(r, "^");
    while (r->at < r->end && *r->at != ']') {
        uint32_t from = 0, to;
        bool is_set, to_is_set = false;
        const char *range = r->at;
        if (take_class_char(r, set, &from, &is_set))
            return -1;
        to = from;
        if (r->end - r->at > 1 && r->at[0] == '-' && r->at[1] != ']') {
            r->at++;
            if (take_class_char(r, set, &to, &to_is_set))
                return -1;
            if (is_set || to_is_set)
                return refuse(r, range, "a range from or to a set");
            if (to < from)
                return refuse(r, range, "this range ends before it begins");
        }
        if (!is_set)
            char_set_add(set, from, to);
    }
    if (!take(r, "]"))
        return refuse(r, begin, "this class has no closing ]");
    if (negated)
        char_set_negate(set);
    return 0;
}

// --- atoms ---

static int take_choice(struct regex *r, expr_id *out);

static int take_group(struct regex *r, expr_id *out)
{
    const char *begin = r->at - 1;
    if (take(r, "?")) {
        if (is_at(r, "<=") || is_at(r, "<!"))
            return refuse(r, begin, "lookbehinds are not supported");
        if (is_at(r, "=") || is_at(r, "!"))
            return refuse(r, begin, "a lookahead within a group, or that is repeated, is not supported");
        const char *close = is_at(r, "<") ? memchr(r->at, '>', (size_t)(r->end - r->at)) : NULL;
        if (close)
            r->at = close + 1;
        else if (!take(r, ":"))
            return refuse(r, begin, "this kind of group is not known");
    }
    if (++r->nested > REGEX_NEST_MAX)
        return refuse(r, begin, "groups are nested too deeply");
    if (take_choice(r, out))
        return -1;
    r->nested--;
    return take(r, ")") ? 0 : refuse(r, begin, "this group has no closing )");
}

static int take_set(struct regex *r, expr_id *out)
{
    struct char_set set = {0};
    char c = *r->at++;
    int status = 0;
    uint32_t cp = 0;
    if (c == '[') {
        status = take_class(r, &set);
    } else if (c == '.') {
        char_set_add(&set, '\n', '\n');
        char_set_add(&set, '\r', '\r');
        char_set_add(&set, 0x2028, 0x2029);
        char_set_negate(&set);
    } else if (c == '\\' && r->at < r->end && add_class(&set, *r->at)) {
        r->at++;
    } else if (c == '\\' && (is_at(r, "p") || is_at(r, "P"))) {
        status = take_property(r, &set, *r->at++ == 'P');
    } else if (c == '\\') {
        status = take_escape(r, false, &cp);
        if (!status)
            char_set_add(&set, cp, cp);
    } else {
        r->at--;
        int n = utf8_decode(r->at, (size_t)(r->end - r->at), &cp);
        status = n ? 0 : refuse(r, r->at, "bytes that are no UTF-8");
        r->at += n;
        char_set_add(&set, cp, cp);
    }
    if (!status)
        *out = expr_chars(r->x, &set);
    char_set_free(&set);
    return status || dfa_spend(r->x, 0) ? status : dfa_too_much(r->err);
}

static bool take_number(struct regex *r, uint32_t *n)
{
    uint64_t value = 0;
    const char *begin = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        value = MIN(value * 10 + (uint64_t)(*r->at - '0'), (uint64_t)REGEX_REPEAT_MAX);
    *n = (uint32_t)value;
    return r->at > begin;
}

// Reads {3}, {3,} or {3,5}. If something else follows, it returns false and consumes nothing.
static bool take_bounds(struct regex *r, uint32_t *min, uint32_t *max)
{
    const char *begin = r->at++;
    bool good = take_number(r, min);
    *max = *min;
    if (good && take(r, ",") && !take_number(r, max))
        *max = REPEAT_ANY;
    if (good && take(r, "}"))
        return true;
    r->at = begin;
    return false;
}

static int take_repeat(struct regex *r, bool repeatable, expr_id *e)
{
    const char *begin = r->at;
    uint32_t min = 0, max = REPEAT_ANY;
    if (take(r, "*"))
        min = 0;
    else if (take(r, "+"))
        min = 1;
    else if (take(r, "?"))
        max = 1;
    else if (!is_at(r, "{"))
        return 0;
    else if (!take_bounds(r, &min, &max))
        return refuse(r, begin, "a repeat is written {3}, {3,} or {3,5}; the character itself is \\{");
    if (!repeatable)
        return refuse(r, begin, "there is nothing to repeat");
    if (min > max)
        return refuse(r, begin, "this repeat has a minimum above its maximum");
    take(r, "?"); // a lazy repeat matches the same texts
    if (is_at(r, "*") || is_at(r, "+") || is_at(r, "?"))
        return refuse(r, r->at, "there is nothing to repeat");
    *e = expr_repeat(r->x, *e, min, max);
    return 0;
}

// --- sequences and choices ---

struct part {
    expr_id e;
    enum { PART_PLAIN, PART_AHEAD, PART_NOT_AHEAD } kind;
};
struct parts {
    struct part *at;
    size_t n, cap;
};

static int push(struct regex *r, struct parts *parts, struct part part)
{
    if (parts->n == parts->cap) {
        size_t cap = parts->cap ? 2 * parts->cap : 16;
        if (cap > REGEX_PARTS_MAX)
            return fail(r->err, E_USAGE, "a pattern of more than %d parts in a row", REGEX_PARTS_MAX);
        struct part *at = realloc(parts->at, cap * sizeof *at);
        if (!at)
            return fail(r->err, E_MEMORY, "no memory for a pattern of %zu parts", cap);
        parts->at = at;
        parts->cap = cap;
    }
    parts->at[parts->n++] = part;
    return 0;
}

static int take_ahead(struct regex *r, struct part *part)
{
    part->kind = take(r, "(?=") ? PART_AHEAD : PART_NOT_AHEAD;
    if (part->kind == PART_NOT_AHEAD)
        r->at += 3;
    const char *begin = r->at - 3;
    r->nested++;
    int status = take_choice(r, &part->e);
    r->nested--;
    if (!status && !take(r, ")"))
        status = refuse(r, begin, "this lookahead has no closing )");
    return status;
}

static int take_part(struct regex *r, struct part *part)
{
    *part = (struct part){.kind = PART_PLAIN};
    if (!r->nested && (is_at(r, "(?=") || is_at(r, "(?!")))
        return take_ahead(r, part);
    bool repeatable = true;
    int status = 0;
    if (take(r, "^") || is_at(r, "$")) {
        bool end = take(r, "$");
        part->e = expr_byte_range(r->x, end ? MARK_END : MARK_BEGIN, end ? MARK_END : MARK_BEGIN);
        r->has_anchors = true;
        repeatable = false;
    } else if (is_at(r, "*") || is_at(r, "+") || is_at(r, "?") || is_at(r, "{")) {
        status = refuse(r, r->at, "there is nothing to repeat");
    } else if (is_at(r, "]") || is_at(r, "}")) {
        status = refuse(r, r->at, "a bracket that was not opened; the character itself is written with a backslash");
    } else if (take(r, "(")) {
        status = take_group(r, &part->e);
    } else {
        status = take_set(r, &part->e);
    }
    return status ? status : take_repeat(r, repeatable, &part->e);
}

// Reads a sequence. Outside of groups it includes everything that may follow, because lookaheads refer to that.
static int take_sequence(struct regex *r, expr_id *out)
{
    struct parts parts = {0};
    int status = 0;
    while (!status && r->at < r->end && *r->at != '|' && *r->at != ')') {
        struct part part;
        status = take_part(r, &part);
        if (!status)
            status = push(r, &parts, part);
    }
    expr_id e = r->nested ? EXPR_EMPTY : r->rest;
    for (size_t i = parts.n; i-- > 0;) {
        struct part part = parts.at[i];
        expr_id ahead = part.kind == PART_PLAIN ? EXPR_EMPTY : expr_cat(r->x, part.e, r->behind);
        if (part.kind == PART_PLAIN)
            e = expr_cat(r->x, part.e, e);
        else
            e = expr_and(r->x, part.kind == PART_AHEAD ? ahead : expr_not(r->x, ahead), e);
    }
    free(parts.at);
    *out = e;
    return status;
}

static int take_choice(struct regex *r, expr_id *out)
{
    *out = EXPR_NEVER;
    do {
        expr_id e;
        if (take_sequence(r, &e))
            return -1;
        *out = expr_alt(r->x, e, *out);
    } while (take(r, "|"));
    return 0;
}

// --- the whole ---

// Removes the marker bytes from the automaton of marked texts: it starts after the first, and accepts where the last
// could follow.
static int strip_marks(expr_id *out, struct exprs *x, expr_id marked, struct error *err)
{
    struct dfa *d;
    if (dfa_from_expr(&d, x, marked, err))
        return -1;
    uint8_t begin = d->class_of[MARK_BEGIN], end = d->class_of[MARK_END];
    bool *accept = calloc(d->n, sizeof *accept);
    if (!accept) {
        dfa_free(d);
        return fail(err, E_MEMORY, "no memory for an automaton of %u states", d->n);
    }
    for (uint32_t s = 0; s < d->n; s++)
        accept[s] = d->accept[d->next[(size_t)s * d->n_classes + end]];
    free(d->accept);
    d->accept = accept;
    d->start = d->next[(size_t)d->start * d->n_classes + begin];
    for (uint32_t s = 0; s < d->n; s++)
        d->next[(size_t)s * d->n_classes + begin] = d->next[(size_t)s * d->n_classes + end] = DFA_DEAD;
    *out = expr_dfa(x, d);
    return 0;
}

// Whether a pattern has no anchors and no lookaheads; without `choices` also no choice outside of groups.
static bool is_plain(struct str inner, bool choices)
{
    bool in_class = false;
    int depth = 0;
    for (size_t i = 0; i < inner.len; i++) {
        char c = inner.data[i];
        if (c == '\\') {
            i++;
        } else if (in_class) {
            in_class = c != ']';
        } else {
            in_class = c == '[';
            depth += c == '(' ? 1 : c == ')' ? -1 : 0;
            bool ahead = c == '(' && inner.len - i > 2 && inner.data[i + 1] == '?' && inner.data[i + 2] != ':';
            if (c == '^' || c == '$' || (c == '|' && depth == 0 && !choices) || ahead || depth < 0)
                return false;
        }
    }
    return !in_class;
}

// A pattern ^...$ without other anchors needs no markers. *inner is what lies between them.
static bool is_whole(const struct regex *r, struct str *inner)
{
    size_t n = (size_t)(r->end - r->begin);
    if (n < 2 || r->begin[0] != '^' || r->end[-1] != '$')
        return false;
    size_t backslashes = 0;
    while (backslashes < n - 2 && r->end[-2 - (ptrdiff_t)backslashes] == '\\')
        backslashes++;
    *inner = (struct str){r->begin + 1, n - 2};
    return backslashes % 2 == 0 && is_plain(*inner, false);
}

static int compile_whole(expr_id *out, struct regex *r, struct str inner)
{
    r->at = inner.data;
    r->end = inner.data + inner.len;
    r->rest = EXPR_EMPTY;
    if (take_choice(r, out))
        return -1;
    return r->at < r->end ? refuse(r, r->at, "a ) that was not opened") : 0;
}

// Compiles a pattern over marked texts. lead and rest: what may stand before it and behind it.
static int compile_marked(expr_id *out, struct regex *r, expr_id lead, expr_id rest)
{
    struct exprs *x = r->x;
    expr_id any = expr_any_char(x), begin = expr_byte_range(x, MARK_BEGIN, MARK_BEGIN), found;
    expr_id end = expr_byte_range(x, MARK_END, MARK_END);
    r->rest = rest;
    if (take_choice(r, &found))
        return -1;
    if (r->at < r->end)
        return refuse(r, r->at, "a ) that was not opened");
    expr_id marked = expr_cat(x, begin, expr_cat(x, expr_star(x, any), end));
    return strip_marks(out, x, expr_and(x, marked, expr_cat(x, lead, found)), r->err);
}

static expr_id anything(struct exprs *x)
{
    return expr_star(x, expr_alt(x, expr_byte_range(x, MARK_BEGIN, MARK_END), expr_any_char(x)));
}

int regex_compile(expr_id *out, struct exprs *x, struct str pattern, struct error *err)
{
    struct regex r = {.x = x, .begin = pattern.data, .at = pattern.data, .end = pattern.data + pattern.len, .err = err};
    struct str inner;
    if (is_whole(&r, &inner))
        return compile_whole(out, &r, inner);
    r.behind = anything(x);
    return compile_marked(out, &r, r.behind, r.behind);
}

int regex_compile_whole(expr_id *out, struct exprs *x, struct str pattern, struct error *err)
{
    struct regex r = {.x = x, .begin = pattern.data, .at = pattern.data, .end = pattern.data + pattern.len, .err = err};
    struct str inner = pattern;
    if (is_plain(pattern, true) || is_whole(&r, &inner))
        return compile_whole(out, &r, inner);
    // the pattern may match the marks itself, by its anchors
    r.behind = anything(x);
    return compile_marked(out, &r, expr_optional(x, expr_byte_range(x, MARK_BEGIN, MARK_BEGIN)),
                          expr_optional(x, expr_byte_range(x, MARK_END, MARK_END)));
}
