// Parser of GBNF, the grammar language of llama.cpp: recursive descent that builds expressions.
#include "engine/grammar/compiled.h"
#include "engine/grammar/dfa_build.h"

#include <assert.h>
#include <stdlib.h>

enum { GBNF_NEST_MAX = 200, GBNF_BYTES_MAX = 4 << 20, REPEAT_MAX = 1000000000 };

struct parser {
    struct exprs *x;
    const struct tokenizer *t;
    const char *begin, *at, *end;
    uint32_t *names; // hash -> rule + 1
    size_t n_slots;
    int nested;
    const char *mark; // the place that was last asked for: see find_place
    int line, column;
    struct error *err;
};

// --- positions ---

// Line and column of a byte; columns count characters, from 1. The text is gone through once, because places are asked
// for in the order of the text.
static void find_place(struct parser *p, const char *at, int *line, int *column)
{
    if (!p->mark || at < p->mark) {
        p->mark = p->begin;
        p->line = p->column = 1;
    }
    for (; p->mark < at; p->mark++) {
        p->line += *p->mark == '\n';
        p->column = *p->mark == '\n' ? 1 : p->column + (((unsigned char)*p->mark & 0xC0) != 0x80);
    }
    *line = p->line;
    *column = p->column;
}

static int refuse(struct parser *p, const char *at, const char *what)
{
    int line, column;
    find_place(p, at, &line, &column);
    return fail_at(p->err, E_USAGE, (uint64_t)(at - p->begin), "grammar: line %d, column %d: %s", line, column, what);
}

// --- spaces and names ---

static bool is_at(const struct parser *p, char c)
{
    return p->at < p->end && *p->at == c;
}

static void skip_space(struct parser *p, bool lines)
{
    while (p->at < p->end) {
        if (*p->at == '#')
            while (p->at < p->end && *p->at != '\n' && *p->at != '\r')
                p->at++;
        else if (*p->at == ' ' || *p->at == '\t' || (lines && (*p->at == '\n' || *p->at == '\r')))
            p->at++;
        else
            return;
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static struct str take_name(struct parser *p)
{
    const char *begin = p->at;
    while (p->at < p->end && is_name(*p->at))
        p->at++;
    return (struct str){begin, (size_t)(p->at - begin)};
}

static uint64_t name_hash(struct str s)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (uint8_t)s.data[i]) * 1099511628211u;
    return h ^ h >> 32;
}

static int grow_names(struct parser *p)
{
    if (p->x->n_rules * 2 + 2 <= p->n_slots)
        return 0;
    size_t n = p->n_slots ? 2 * p->n_slots : 64;
    uint32_t *names = calloc(n, sizeof *names);
    if (!names)
        return fail(p->err, E_MEMORY, "no memory for %u rules", p->x->n_rules);
    for (uint32_t r = 0; r < p->x->n_rules; r++) {
        size_t slot = name_hash(str_from(p->x->rules[r].name)) & (n - 1);
        while (names[slot])
            slot = (slot + 1) & (n - 1);
        names[slot] = r + 1;
    }
    free(p->names);
    p->names = names;
    p->n_slots = n;
    return 0;
}

// Finds the rule of that name; adds it, not yet defined, at its first mention.
static int find_rule(struct parser *p, struct str name, uint32_t *rule)
{
    if (grow_names(p))
        return -1;
    size_t slot = name_hash(name) & (p->n_slots - 1);
    for (; p->names[slot]; slot = (slot + 1) & (p->n_slots - 1))
        if (str_equal_z(name, p->x->rules[p->names[slot] - 1].name)) {
            *rule = p->names[slot] - 1;
            return 0;
        }
    *rule = exprs_rule(p->x, name);
    if (*rule == UINT32_MAX)
        return fail(p->err, E_MEMORY, "no memory for %u rules", p->x->n_rules);
    find_place(p, name.data, &p->x->rules[*rule].line, &p->x->rules[*rule].column);
    p->names[slot] = *rule + 1;
    return 0;
}

// --- characters ---

static int take_hex(struct parser *p, int digits, uint32_t *cp)
{
    const char *begin = p->at;
    *cp = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        int c = p->at < p->end ? *p->at : 0;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return refuse(p, p->at, "a hexadecimal digit is missing");
        *cp = *cp << 4 | (uint32_t)digit;
    }
    if (*cp > CHAR_MAX_CODE || (*cp >= 0xD800 && *cp <= 0xDFFF))
        return refuse(p, begin, "this is no character of Unicode");
    return 0;
}

static int take_escape(struct parser *p, uint32_t *cp)
{
    static const char from[] = "nrt\\\"[]-^'./", to[] = "\n\r\t\\\"[]-^'./";
    const char *begin = p->at++;
    char c = p->at < p->end ? *p->at++ : '\0';
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        *cp = (unsigned char)to[known - from];
        return 0;
    }
    if (c == 'x' || c == 'u' || c == 'U')
        return take_hex(p, c == 'x' ? 2 : c == 'u' ? 4 : 8, cp);
    return refuse(p, begin, "an escape that is not known; \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH are");
}

static int take_char(struct parser *p, uint32_t *cp)
{
    if (*p->at == '\\')
        return take_escape(p, cp);
    int n = utf8_decode(p->at, (size_t)(p->end - p->at), cp);
    if (!n)
        return refuse(p, p->at, "bytes that are no UTF-8");
    p->at += n;
    return 0;
}

static int take_literal(struct parser *p, expr_id *out)
{
    const char *begin = p->at++;
    char *text = malloc((size_t)(p->end - p->at) + 4); // an escape is never shorter than what it stands for
    size_t n = 0;
    int status = text ? 0 : fail(p->err, E_MEMORY, "no memory for a grammar");
    while (!status && p->at < p->end && *p->at != '"') {
        uint32_t cp;
        status = take_char(p, &cp);
        if (!status)
            n += (size_t)utf8_encode(cp, text + n);
    }
    if (!status && p->at == p->end)
        status = refuse(p, begin, "this text has no closing \"");
    if (!status) {
        p->at++;
        *out = expr_text(p->x, (struct str){text, n});
    }
    free(text);
    return status;
}

static int take_class(struct parser *p, expr_id *out)
{
    const char *begin = p->at++;
    struct char_set set = {0};
    bool negated = is_at(p, '^');
    p->at += negated;
    int status = 0;
    while (!status && p->at < p->end && *p->at != ']') {
        const char *range = p->at;
        uint32_t from = 0, to = 0;
        status = take_char(p, &from);
        to = from;
        if (!status && p->end - p->at > 1 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            status = take_char(p, &to);
            if (!status && to < from)
                status = refuse(p, range, "this range ends before it begins");
        }
        char_set_add(&set, from, to);
    }
    if (!status && p->at == p->end)
        status = refuse(p, begin, "this class has no closing ]");
    if (!status) {
        p->at++;
        if (negated)
            char_set_negate(&set);
        *out = expr_chars(p->x, &set);
    }
    char_set_free(&set);
    return status || dfa_spend(p->x, 0) ? status : dfa_too_much(p->err);
}

// --- tokens: <[id]>, <text> ---

static int take_token_id(struct parser *p, int32_t *token)
{
    int64_t id = 0;
    const char *begin = p->at;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        id = MIN(id * 10 + (*p->at - '0'), INT32_MAX);
    if (p->at == begin || p->end - p->at < 2 || p->at[0] != ']' || p->at[1] != '>')
        return refuse(p, begin, "a token is written <[123]> or <text>");
    if (id >= tokenizer_n_vocab(p->t))
        return refuse(p, begin, "the vocabulary has no token of that number");
    p->at += 2;
    *token = (int32_t)id;
    return 0;
}

// The token may be in the vocabulary with its brackets, as control tokens are, or the text with its brackets must
// encode to a single token.
static int take_token_name(struct parser *p, const char *begin, int32_t *token)
{
    const char *close = p->at < p->end ? memchr(p->at, '>', (size_t)(p->end - p->at)) : NULL;
    if (!close || memchr(p->at, '\n', (size_t)(close - p->at)))
        return refuse(p, begin, "this token has no closing >");
    struct str name = {begin, (size_t)(close + 1 - begin)};
    p->at = close + 1;
    *token = tokenizer_find(p->t, name);
    if (*token >= 0)
        return 0;
    struct token_list list = {0};
    int status = tokenizer_encode(p->t, name, TOKENIZE_SPECIAL, &list, p->err);
    if (!status && list.n != 1)
        status = refuse(p, begin, "this is not one token of the vocabulary");
    else if (!status)
        *token = list.ids[0];
    token_list_free(&list);
    return status;
}

static int take_token(struct parser *p, expr_id *out)
{
    bool negated = is_at(p, '!');
    p->at += negated;
    const char *begin = p->at;
    if (!is_at(p, '<'))
        return refuse(p, begin, "a token is expected behind the !");
    p->at++;
    int32_t token = -1;
    int status;
    if (is_at(p, '[')) {
        p->at++;
        status = take_token_id(p, &token);
    } else {
        status = take_token_name(p, begin, &token);
    }
    if (status)
        return -1;
    if (!negated && tokenizer_is_end(p->t, token))
        return refuse(p, begin, "this token ends the answer; a grammar ends by itself");
    *out = expr_token(p->x, token, negated);
    return 0;
}

// --- repeats, sequences, choices ---

static bool take_number(struct parser *p, uint32_t *n)
{
    uint64_t value = 0;
    const char *begin = p->at;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        value = MIN(value * 10 + (uint64_t)(*p->at - '0'), (uint64_t)REPEAT_MAX);
    *n = (uint32_t)value;
    return p->at > begin;
}

static int take_bounds(struct parser *p, uint32_t *min, uint32_t *max)
{
    const char *begin = p->at++;
    skip_space(p, false);
    bool has_min = take_number(p, min), has_max = has_min;
    *min = has_min ? *min : 0;
    *max = *min;
    skip_space(p, false);
    if (is_at(p, ',')) {
        p->at++;
        skip_space(p, false);
        has_max = take_number(p, max);
        *max = has_max ? *max : REPEAT_ANY;
        skip_space(p, false);
        has_max = has_max || has_min;
    }
    if (!is_at(p, '}') || !has_max)
        return refuse(p, begin, "a repeat is written {3}, {3,} or {3,5}");
    if (*min > *max)
        return refuse(p, begin, "this repeat has a minimum above its maximum");
    p->at++;
    return 0;
}

static int take_repeats(struct parser *p, expr_id *e)
{
    for (;;) {
        uint32_t min = 0, max = REPEAT_ANY;
        skip_space(p, p->nested > 0);
        if (is_at(p, '*') || is_at(p, '+') || is_at(p, '?')) {
            min = *p->at == '+';
            max = *p->at == '?' ? 1 : REPEAT_ANY;
            p->at++;
        } else if (is_at(p, '{')) {
            if (take_bounds(p, &min, &max))
                return -1;
        } else {
            return 0;
        }
        *e = expr_repeat(p->x, *e, min, max);
    }
}

static int take_choice(struct parser *p, expr_id *out);

static int take_group(struct parser *p, expr_id *out)
{
    const char *begin = p->at++;
    if (++p->nested > GBNF_NEST_MAX)
        return refuse(p, begin, "groups are nested too deeply");
    skip_space(p, true);
    if (take_choice(p, out))
        return -1;
    if (!is_at(p, ')'))
        return refuse(p, p->at, "a ) is expected, or something that a rule is made of");
    p->at++;
    p->nested--;
    return 0;
}

// *found: false if no item begins here.
static int take_item(struct parser *p, expr_id *out, bool *found)
{
    *found = p->at < p->end;
    if (!*found)
        return 0;
    if (is_name(*p->at)) {
        uint32_t rule;
        if (find_rule(p, take_name(p), &rule))
            return -1;
        *out = expr_rule(p->x, rule);
        return 0;
    }
    switch (*p->at) {
    case '"':
        return take_literal(p, out);
    case '[':
        return take_class(p, out);
    case '(':
        return take_group(p, out);
    case '.':
        p->at++;
        *out = expr_any_char(p->x);
        return 0;
    case '<':
    case '!':
        return take_token(p, out);
    default:
        *found = false;
        return 0;
    }
}

struct expr_list {
    expr_id *at;
    size_t n, cap;
};

static int list_push(struct parser *p, struct expr_list *list, expr_id e)
{
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 8;
        expr_id *at = realloc(list->at, cap * sizeof *at);
        if (!at)
            return fail(p->err, E_MEMORY, "no memory for a rule of %zu parts", cap);
        list->at = at;
        list->cap = cap;
    }
    list->at[list->n++] = e;
    return 0;
}

static int take_sequence(struct parser *p, expr_id *out)
{
    struct expr_list list = {0};
    bool found = true;
    int status = 0;
    while (!status && found) {
        expr_id item = EXPR_EMPTY;
        status = take_item(p, &item, &found);
        if (!status && found)
            status = take_repeats(p, &item);
        if (!status && found)
            status = list_push(p, &list, item);
    }
    if (!status)
        *out = expr_cat_n(p->x, list.at, list.n);
    free(list.at);
    return status;
}

// A choice continues after a |. More leniently than in llama.cpp, the | may also begin the next line.
static bool at_bar(struct parser *p)
{
    const char *before = p->at;
    skip_space(p, true);
    if (is_at(p, '|'))
        return true;
    p->at = before;
    return false;
}

static int take_choice(struct parser *p, expr_id *out)
{
    struct expr_list list = {0};
    expr_id item = EXPR_EMPTY;
    int status = take_sequence(p, &item);
    if (!status)
        status = list_push(p, &list, item);
    while (!status && at_bar(p)) {
        p->at++;
        skip_space(p, true);
        status = take_sequence(p, &item);
        if (!status)
            status = list_push(p, &list, item);
    }
    if (!status)
        *out = expr_alt_n(p->x, list.at, list.n);
    free(list.at);
    return status;
}

// --- rules ---

static int take_rule(struct parser *p)
{
    const char *begin = p->at;
    struct str name = take_name(p);
    uint32_t rule;
    expr_id body;
    if (!name.len)
        return refuse(p, begin, "the name of a rule is expected");
    if (find_rule(p, name, &rule))
        return -1;
    assert(rule < p->x->n_rules && p->x->rules);
    if (p->x->rules[rule].defined)
        return refuse(p, begin, "this rule is defined before");
    skip_space(p, false);
    if (p->end - p->at < 3 || memcmp(p->at, "::=", 3))
        return refuse(p, p->at, "::= is expected behind the name of a rule");
    p->at += 3;
    skip_space(p, true);
    if (take_choice(p, &body))
        return -1;
    skip_space(p, false);
    if (p->at < p->end && *p->at != '\n' && *p->at != '\r')
        return refuse(p, p->at, "this is nothing that a rule is made of");
    p->x->rules[rule].body = body;
    p->x->rules[rule].defined = true;
    skip_space(p, true);
    return 0;
}

static int parse(struct parser *p, uint32_t *root)
{
    skip_space(p, true);
    while (p->at < p->end)
        if (take_rule(p))
            return -1;
    for (*root = 0; *root < p->x->n_rules; ++*root)
        if (!strcmp(p->x->rules[*root].name, "root"))
            break;
    if (*root == p->x->n_rules || !p->x->rules[*root].defined)
        return fail(p->err, E_USAGE, "grammar: there is no rule named root, which says what an answer is");
    return 0;
}

int grammar_from_gbnf(struct grammar **out, const struct grammar_vocab *v, struct str text, struct error *err)
{
    *out = NULL;
    if (text.len > GBNF_BYTES_MAX)
        return fail(err, E_USAGE, "grammar: %zu bytes of text; %d at most", text.len, GBNF_BYTES_MAX);
    struct exprs x = {0};
    struct parser p = {
        .x = &x, .t = v->t, .begin = text.data, .at = text.data, .end = text.data + text.len, .err = err};
    uint32_t root = 0;
    int status = parse(&p, &root);
    free(p.names);
    if (status) {
        exprs_free(&x);
        return -1;
    }
    return grammar_compile(out, v, &x, root, err);
}
