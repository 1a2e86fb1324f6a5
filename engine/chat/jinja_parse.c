// The parser of statements, and the functions that both parsers share.
#include "engine/chat/jinja_ast.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/text/token_map.h"

enum { TREE_DEPTH_MAX = 1000 }; // limits the recursion of evaluation, e.g. for a chain of operators

// ---- Nodes, names and tokens ----

int(parser_fail)(struct parser *p, const struct token *at, const char *fmt, ...)
{
    char what[320];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return jinja_fail_at(p->t, p->err, at->at, "%s", what);
}

struct node *parser_node(struct parser *p, enum node_kind kind, const struct token *at)
{
    struct node *n = ARENA_NEW(&p->t->arena, struct node);
    if (!n) {
        fail(p->err, E_MEMORY, "no memory for a template");
        return NULL;
    }
    n->kind = (uint8_t)kind;
    n->depth = 1;
    n->line = at->line;
    n->column = at->column;
    return n;
}

int parser_deepen(struct parser *p, struct node *n)
{
    uint32_t depth = 0;
    const struct node *parts[] = {n->a, n->b, n->c};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        depth = parts[i] ? MAX(depth, parts[i]->depth) : depth;
    for (const struct node *i = n->list; i; i = i->next)
        depth = MAX(depth, i->depth);
    for (const struct node *i = n->other; i; i = i->next)
        depth = MAX(depth, i->depth);
    n->depth = depth + 1;
    if (n->depth <= TREE_DEPTH_MAX)
        return 0;
    return fail(p->err, E_MODEL, "line %u, column %u: more than %d operators build on each other", n->line, n->column,
                TREE_DEPTH_MAX);
}

int parser_enter(struct parser *p)
{
    if (p->nesting == 3 * JINJA_NESTING_MAX) // a bracket or operator counts in up to three functions
        return parser_fail(p, p->token, "nested deeper than %d", JINJA_NESTING_MAX);
    p->nesting++;
    return 0;
}

bool parser_is_name(const struct parser *p, const char *word)
{
    return p->token->kind == T_NAME && str_equal_z(p->token->text, word);
}

bool parser_take_name(struct parser *p, const char *word)
{
    bool is = parser_is_name(p, word);
    p->token += is;
    return is;
}

bool parser_take(struct parser *p, enum token_kind kind)
{
    bool is = p->token->kind == kind;
    p->token += is;
    return is;
}

int parser_expect(struct parser *p, enum token_kind kind)
{
    if (parser_take(p, kind))
        return 0;
    const struct token *k = p->token;
    if (k->kind == T_NAME)
        return parser_fail(p, k, "%s is expected, not '%.*s'", jinja_token_name(kind), STR_ARG(k->text));
    return parser_fail(p, k, "%s is expected, not %s", jinja_token_name(kind), jinja_token_name(k->kind));
}

struct name_table {
    struct str *names; // open addressing; data NULL: empty
    size_t n, n_slots; // at most half of the slots are used
    uint64_t seed;
};

static struct str *name_slot(const struct name_table *table, struct str name)
{
    size_t at = token_hash(name.data, name.len, table->seed) & (table->n_slots - 1);
    while (table->names[at].data && !str_equal(table->names[at], name))
        at = (at + 1) & (table->n_slots - 1);
    return &table->names[at];
}

static int grow_names(struct arena *arena, struct name_table *table)
{
    struct name_table more = *table;
    more.n_slots = MAX(2 * table->n_slots, (size_t)64);
    more.names = ARENA_ARRAY(arena, struct str, more.n_slots);
    if (!more.names)
        return -1;
    for (size_t i = 0; i < table->n_slots; i++)
        if (table->names[i].data)
            *name_slot(&more, table->names[i]) = table->names[i];
    *table = more;
    return 0;
}

struct str parser_intern(struct parser *p, struct str name)
{
    struct name_table *table = p->t->names;
    if (2 * (table->n + 1) > table->n_slots && grow_names(&p->t->arena, table)) {
        fail(p->err, E_MEMORY, "no memory for the names of a template");
        return (struct str){NULL, 0};
    }
    struct str *slot = name_slot(table, name);
    if (!slot->data) {
        *slot = name; // refers to the source or a literal
        table->n++;
    }
    return *slot;
}

// ---- Statements ----

static int statements(struct parser *p, const char *const *ends, struct node **out);

// Reads the statements of a block after its tag, up to one of the tags `ends` (NULL-terminated). The name of that tag
// becomes the current token.
static int body(struct parser *p, const char *const *ends, struct node **out)
{
    parser_take(p, T_COLON);
    if (parser_expect(p, T_BLOCK_END) || parser_enter(p))
        return -1;
    p->nesting += 2; // see parser_enter; between statements it is a multiple of three
    const int status = statements(p, ends, out);
    p->nesting -= 3;
    return status;
}

static int body_to(struct parser *p, const char *end, struct node **out)
{
    const char *const ends[] = {end, NULL};
    if (body(p, ends, out))
        return -1;
    p->token++;
    return 0;
}

static const char *const for_ends[] = {"endfor", "else", NULL};
static const char *const if_ends[] = {"elif", "else", "endif", NULL};

static int parse_for(struct parser *p, struct node *n)
{
    n->a = parser_target(p, TUPLE_IN);
    if (!n->a)
        return -1;
    if (!parser_take_name(p, "in"))
        return parser_fail(p, p->token, "'in' is expected");
    n->b = parser_tuple(p, TUPLE_NO_IF | TUPLE_RECURSIVE);
    if (!n->b)
        return -1;
    if (parser_take_name(p, "if")) {
        n->c = parser_expression(p);
        if (!n->c)
            return -1;
    }
    n->op = parser_take_name(p, "recursive");
    p->loops++;
    int status = body(p, for_ends, &n->list);
    p->loops--;
    if (status)
        return -1;
    if (parser_take_name(p, "endfor"))
        return 0;
    p->token++;
    return body_to(p, "endfor", &n->other);
}

// Each elif is member c of the one before: a chain, so that its length is no recursion.
static int parse_if(struct parser *p, struct node *n)
{
    for (;;) {
        n->a = parser_tuple(p, TUPLE_NO_IF);
        if (!n->a || body(p, if_ends, &n->list))
            return -1;
        if (parser_take_name(p, "endif"))
            return parser_deepen(p, n);
        if (parser_take_name(p, "else"))
            return body_to(p, "endif", &n->other) ? -1 : parser_deepen(p, n);
        struct node *next = parser_deepen(p, n) ? NULL : parser_node(p, N_IF, p->token++);
        if (!next)
            return -1;
        n->c = next;
        n = next;
    }
}

static int parse_set(struct parser *p, struct node *n)
{
    n->a = parser_target(p, TUPLE_NSREF);
    if (!n->a)
        return -1;
    if (parser_take(p, T_ASSIGN)) {
        n->b = parser_tuple(p, 0);
        return n->b ? 0 : -1;
    }
    n->kind = N_SET_BLOCK;
    if (p->token->kind == T_PIPE && !(n->b = parser_filter(p, NULL, false)))
        return -1;
    return body_to(p, "endset", &n->list);
}

// Reads the parameters of a macro or a caller: (a, b=1).
static int signature(struct parser *p, struct node **out)
{
    if (parser_expect(p, T_LPAREN))
        return -1;
    struct node *last = NULL;
    for (struct node **tail = out; !parser_take(p, T_RPAREN);) {
        if (last && parser_expect(p, T_COMMA))
            return -1;
        struct node *n = parser_node(p, N_PARAM, p->token);
        if (!n)
            return -1;
        n->name = parser_intern(p, p->token->text);
        if (!n->name.data || parser_expect(p, T_NAME))
            return -1;
        if (parser_take(p, T_ASSIGN)) {
            n->a = parser_expression(p);
            if (!n->a || parser_deepen(p, n))
                return -1;
        } else if (last && last->a) {
            return parser_fail(p, p->token, "a parameter without a default stands behind one that has one");
        }
        *tail = last = n;
        tail = &n->next;
    }
    return 0;
}

// Reads the body of a macro or a caller. It is a function of its own, so break and the names that it uses do not
// affect the outside.
static int function_body(struct parser *p, const char *end, struct node *n)
{
    int loops = p->loops;
    uint16_t uses = p->uses;
    p->loops = 0;
    p->uses = 0;
    int status = body_to(p, end, &n->other);
    n->flags = p->uses;
    p->loops = loops;
    p->uses |= uses; // names used by a macro within this one count for both
    return status;
}

static int parse_macro(struct parser *p, struct node *n)
{
    n->name = parser_intern(p, p->token->text);
    if (!n->name.data || parser_expect(p, T_NAME) || signature(p, &n->list))
        return -1;
    return function_body(p, "endmacro", n);
}

static int parse_call(struct parser *p, struct node *n)
{
    if (p->token->kind == T_LPAREN && signature(p, &n->list))
        return -1;
    const struct token *at = p->token;
    n->a = parser_expression(p);
    if (!n->a)
        return -1;
    if (n->a->kind != N_CALL)
        return parser_fail(p, at, "a call is expected");
    return function_body(p, "endcall", n);
}

static int parse_filter(struct parser *p, struct node *n)
{
    n->a = parser_filter(p, NULL, true);
    return n->a ? body_to(p, "endfilter", &n->list) : -1;
}

static int parse_with(struct parser *p, struct node *n)
{
    for (struct node **tail = &n->list; p->token->kind != T_BLOCK_END;) {
        if (tail != &n->list && parser_expect(p, T_COMMA))
            return -1;
        struct node *set = parser_node(p, N_SET, p->token);
        if (!set || !(set->a = parser_target(p, 0)) || parser_expect(p, T_ASSIGN) || !(set->b = parser_expression(p)) ||
            parser_deepen(p, set))
            return -1;
        *tail = set;
        tail = &set->next;
    }
    return body_to(p, "endwith", &n->other);
}

static int parse_autoescape(struct parser *p, struct node *n)
{
    n->a = parser_expression(p);
    return n->a ? body_to(p, "endautoescape", &n->list) : -1;
}

static int parse_generation(struct parser *p, struct node *n)
{
    n->kind = N_SCOPE;
    int loops = p->loops;
    p->loops = 0;
    int status = body_to(p, "endgeneration", &n->list);
    p->loops = loops;
    return status;
}

static int parse_block(struct parser *p, struct node *n)
{
    n->kind = N_SCOPE;
    const struct token *at = p->token;
    if (parser_expect(p, T_NAME))
        return -1;
    parser_take_name(p, "scoped");
    parser_take_name(p, "required");
    int loops = p->loops;
    p->loops = 0;
    if (body_to(p, "endblock", &n->list))
        return -1;
    p->loops = loops;
    if (p->token->kind == T_NAME && str_equal(p->token->text, at->text))
        p->token++;
    return 0;
}

static int parse_print(struct parser *p, struct node *n)
{
    n->kind = N_SCOPE;
    for (struct node **tail = &n->list; p->token->kind != T_BLOCK_END;) {
        if (tail != &n->list && parser_expect(p, T_COMMA))
            return -1;
        struct node *print = parser_node(p, N_PRINT, p->token);
        if (!print || !(print->a = parser_expression(p)) || parser_deepen(p, print))
            return -1;
        *tail = print;
        tail = &print->next;
    }
    return 0;
}

static int parse_jump(struct parser *p, struct node *n)
{
    if (p->loops > 0)
        return 0;
    return parser_fail(p, p->token - 1, "'%s' stands outside of a loop", n->kind == N_BREAK ? "break" : "continue");
}

// Statements that refer to other templates are skipped here, and fail when they are executed.
static int parse_unsupported(struct parser *p, struct node *n)
{
    n->name = p->token[-1].text;
    while (p->token->kind != T_BLOCK_END && p->token->kind != T_END)
        p->token++;
    return 0;
}

static const struct {
    const char *word;
    enum node_kind kind;
    int (*parse)(struct parser *p, struct node *n);
} tags[] = {
    {"if", N_IF, parse_if},
    {"for", N_FOR, parse_for},
    {"set", N_SET, parse_set},
    {"macro", N_MACRO, parse_macro},
    {"call", N_CALL_BLOCK, parse_call},
    {"filter", N_FILTER_BLOCK, parse_filter},
    {"with", N_WITH, parse_with},
    {"break", N_BREAK, parse_jump},
    {"continue", N_CONTINUE, parse_jump},
    {"generation", N_SCOPE, parse_generation},
    {"autoescape", N_AUTOESCAPE, parse_autoescape},
    {"block", N_SCOPE, parse_block},
    {"print", N_SCOPE, parse_print},
    {"include", N_UNSUPPORTED, parse_unsupported},
    {"import", N_UNSUPPORTED, parse_unsupported},
    {"from", N_UNSUPPORTED, parse_unsupported},
    {"extends", N_UNSUPPORTED, parse_unsupported},
};

static struct node *statement(struct parser *p)
{
    const struct token *at = p->token;
    if (at->kind != T_NAME) {
        parser_fail(p, at, "the name of a statement is expected, not %s", jinja_token_name(at->kind));
        return NULL;
    }
    for (size_t i = 0; i < COUNT_OF(tags); i++) {
        if (!str_equal_z(at->text, tags[i].word))
            continue;
        p->token++;
        struct node *n = parser_node(p, tags[i].kind, at);
        if (!n || tags[i].parse(p, n) || parser_expect(p, T_BLOCK_END) || parser_deepen(p, n))
            return NULL;
        return n;
    }
    parser_fail(p, at, "unknown statement '%.*s', or one that ends nothing", STR_ARG(at->text));
    return NULL;
}

static bool at_end_tag(const struct parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (parser_is_name(p, *ends))
            return true;
    return false;
}

static struct node *text_or_print(struct parser *p)
{
    const struct token *at = p->token++;
    struct node *n = parser_node(p, at->kind == T_TEXT ? N_TEXT : N_PRINT, at);
    if (!n)
        return NULL;
    if (at->kind == T_TEXT) {
        n->value = at->value;
        return n;
    }
    n->a = parser_tuple(p, 0);
    return n->a && !parser_expect(p, T_PRINT_END) && !parser_deepen(p, n) ? n : NULL;
}

static int missing_end(struct parser *p, const char *const *ends)
{
    char all[64] = "";
    for (; *ends; ends++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s'%s'", *all ? " or " : "", *ends);
    return parser_fail(p, p->token, "the template ends where %s is expected", all);
}

static int statements(struct parser *p, const char *const *ends, struct node **out)
{
    for (struct node **tail = out; p->token->kind != T_END; tail = &(*tail)->next) {
        if (p->token->kind == T_BLOCK_BEGIN) {
            p->token++;
            if (at_end_tag(p, ends))
                return 0;
            *tail = statement(p);
        } else {
            *tail = text_or_print(p);
        }
        if (!*tail)
            return -1;
    }
    return ends ? missing_end(p, ends) : 0;
}

// ---- The template ----

// Copies the source with \n for all kinds of line ends, and without the last one.
static int copy_source(struct jinja_template *t, struct str source, struct error *err)
{
    char *s = arena_alloc(&t->arena, source.len, 1);
    if (!s)
        return fail(err, E_MEMORY, "no memory for a template of %zu bytes", source.len);
    size_t n = 0;
    for (size_t i = 0; i < source.len; i++) {
        bool crlf = source.data[i] == '\r' && i + 1 < source.len && source.data[i + 1] == '\n';
        if (!crlf)
            s[n++] = source.data[i] == '\r' ? '\n' : source.data[i];
    }
    t->source = (struct str){s, n - (n > 0 && s[n - 1] == '\n')};
    return 0;
}

static int parse(struct jinja_template *t, struct token_array *tokens, struct error *err)
{
    struct parser p = {.t = t, .err = err};
    t->names = ARENA_NEW(&t->arena, struct name_table);
    if (!t->names)
        return fail(err, E_MEMORY, "no memory for a template");
    t->names->seed = token_hash_seed();
    t->n_loop = parser_intern(&p, STR_LIT("loop"));
    t->n_caller = parser_intern(&p, STR_LIT("caller"));
    t->n_varargs = parser_intern(&p, STR_LIT("varargs"));
    t->n_kwargs = parser_intern(&p, STR_LIT("kwargs"));
    t->n_self = parser_intern(&p, STR_LIT("self"));
    if (err->code || jinja_lex(t, tokens, err)) // a name was not interned
        return -1;
    p.token = tokens->at;
    return statements(&p, NULL, &t->body);
}

int jinja_parse(struct jinja_template **out, struct str source, struct error *err)
{
    struct error local;
    err = err ? err : &local;
    *err = (struct error){0};
    *out = NULL;
    if (source.len > JINJA_SOURCE_MAX)
        return fail(err, E_MODEL, "a template of %zu bytes, limit %d", source.len, JINJA_SOURCE_MAX);
    struct jinja_template *t = calloc(1, sizeof *t);
    struct token_array tokens = {0};
    int status = t ? copy_source(t, source, err) : fail(err, E_MEMORY, "no memory for a template");
    if (!status)
        status = parse(t, &tokens, err);
    free(tokens.at);
    if (status) {
        jinja_free(t);
        return -1;
    }
    *out = t;
    return 0;
}

void jinja_free(struct jinja_template *t)
{
    if (t) {
        arena_free(&t->arena);
        free(t);
    }
}
