// The parser of expressions: recursive descent from conditional expressions down to names and literals, one function
// per precedence.
#include "engine/chat/jinja_ast.h"

static struct node *unary(struct parser *p, bool with_filter);
static struct node *postfix(struct parser *p, struct node *n);

static struct node *pair_of(struct parser *p, enum node_kind kind, int op, const struct token *at, struct node *a,
                            struct node *b)
{
    struct node *n = a && b ? parser_node(p, kind, at) : NULL;
    if (!n)
        return NULL;
    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    return parser_deepen(p, n) ? NULL : n;
}

// Returns the binary operator from..to of the current token; -1 if it is none of them.
static int binary_op(const struct parser *p, enum binary_op from, enum binary_op to)
{
    static const struct {
        enum token_kind token;
        enum binary_op op;
    } ops[] = {{T_ADD, OP_ADD}, {T_SUB, OP_SUB}, {T_MUL, OP_MUL}, {T_DIV, OP_DIV}, {T_FLOORDIV, OP_FLOORDIV},
               {T_MOD, OP_MOD}, {T_POW, OP_POW}, {T_EQ, OP_EQ},   {T_NE, OP_NE},   {T_LT, OP_LT},
               {T_LE, OP_LE},   {T_GT, OP_GT},   {T_GE, OP_GE}};
    for (size_t i = 0; i < COUNT_OF(ops); i++)
        if (ops[i].token == p->token->kind && ops[i].op >= from && ops[i].op <= to)
            return (int)ops[i].op;
    return -1;
}

// ---- Literals ----

// Appends to a chain; *tail is the place for the next node.
static void chain(struct node ***tail, struct node *n)
{
    **tail = n;
    *tail = &n->next;
}

static struct node *literal(struct parser *p, struct value v, const struct token *at)
{
    struct node *n = parser_node(p, N_CONST, at);
    if (n)
        n->value = v;
    return n;
}

// Adjacent strings are concatenated.
static struct node *string(struct parser *p)
{
    const struct token *first = p->token;
    size_t n = 0;
    for (const struct token *k = first; k->kind == T_STRING; k++)
        n += k->value.text.len;
    if (first[1].kind != T_STRING) {
        p->token++;
        return literal(p, first->value, first);
    }
    char *joined = arena_alloc(&p->t->arena, n, 1);
    if (!joined) {
        fail(p->err, E_MEMORY, "no memory for a string of a template");
        return NULL;
    }
    for (n = 0; p->token->kind == T_STRING; p->token++) {
        struct str s = p->token->value.text;
        if (s.len)
            memcpy(joined + n, s.data, s.len);
        n += s.len;
    }
    return literal(p, value_string((struct str){joined, n}), first);
}

static struct node *name(struct parser *p)
{
    const struct token *at = p->token++;
    if (str_equal_z(at->text, "true") || str_equal_z(at->text, "True"))
        return literal(p, value_bool(true), at);
    if (str_equal_z(at->text, "false") || str_equal_z(at->text, "False"))
        return literal(p, value_bool(false), at);
    if (str_equal_z(at->text, "none") || str_equal_z(at->text, "None"))
        return literal(p, value_none(), at);
    struct node *n = parser_node(p, N_NAME, at);
    if (!n)
        return NULL;
    n->name = parser_intern(p, at->text);
    p->uses |= (uint16_t)(n->name.data == p->t->n_caller.data    ? USES_CALLER
                          : n->name.data == p->t->n_kwargs.data  ? USES_KWARGS
                          : n->name.data == p->t->n_varargs.data ? USES_VARARGS
                                                                 : 0);
    return n->name.data ? n : NULL;
}

static struct node *list(struct parser *p)
{
    struct node *n = parser_node(p, N_LIST, p->token++), *item;
    struct node **tail = n ? &n->list : NULL;
    while (n && !parser_take(p, T_RBRACKET)) {
        if (n->list && parser_expect(p, T_COMMA))
            return NULL;
        if (parser_take(p, T_RBRACKET))
            break;
        item = parser_expression(p);
        if (!item)
            return NULL;
        chain(&tail, item);
    }
    return n && !parser_deepen(p, n) ? n : NULL;
}

static struct node *dict(struct parser *p)
{
    struct node *n = parser_node(p, N_DICT, p->token++);
    struct node **tail = n ? &n->list : NULL;
    while (n && !parser_take(p, T_RBRACE)) {
        if (n->list && parser_expect(p, T_COMMA))
            return NULL;
        if (parser_take(p, T_RBRACE))
            break;
        const struct token *at = p->token;
        struct node *key = parser_expression(p);
        if (!key || parser_expect(p, T_COLON))
            return NULL;
        struct node *pair = pair_of(p, N_PAIR, 0, at, key, parser_expression(p));
        if (!pair)
            return NULL;
        chain(&tail, pair);
    }
    return n && !parser_deepen(p, n) ? n : NULL;
}

static struct node *namespace_attribute(struct parser *p)
{
    const struct token *at = p->token;
    struct node *n = parser_node(p, N_NSREF, at);
    if (!n)
        return NULL;
    n->name = parser_intern(p, at->text);
    p->token += 2;
    if (p->token->kind != T_NAME) {
        parser_fail(p, p->token, "the name of an attribute is expected, not %s", jinja_token_name(p->token->kind));
        return NULL;
    }
    n->value = value_string(parser_intern(p, p->token++->text));
    return n->name.data && n->value.text.data ? n : NULL;
}

static struct node *primary_inner(struct parser *p, bool nsref)
{
    const struct token *at = p->token;
    switch (at->kind) {
    case T_NAME:
        return nsref && at[1].kind == T_DOT ? namespace_attribute(p) : name(p);
    case T_STRING:
        return string(p);
    case T_INTEGER:
    case T_FLOAT:
        p->token++;
        return literal(p, at->value, at);
    case T_LPAREN: {
        p->token++;
        struct node *n = parser_tuple(p, TUPLE_PARENS);
        return n && !parser_expect(p, T_RPAREN) ? n : NULL;
    }
    case T_LBRACKET:
        return list(p);
    case T_LBRACE:
        return dict(p);
    default:
        parser_fail(p, at, "an expression is expected, not %s", jinja_token_name(at->kind));
        return NULL;
    }
}

static struct node *primary(struct parser *p, bool nsref)
{
    if (parser_enter(p))
        return NULL;
    struct node *n = primary_inner(p, nsref);
    p->nesting--;
    return n;
}

// ---- Subscripts, calls, filters and tests ----

static struct node *slice_part(struct parser *p, bool *failed)
{
    enum token_kind k = p->token->kind;
    if (k == T_COLON || k == T_RBRACKET || k == T_COMMA)
        return NULL;
    struct node *n = parser_expression(p);
    *failed = *failed || !n;
    return n;
}

// Reads the contents of square brackets: an expression or a slice.
static struct node *subscribed(struct parser *p)
{
    const struct token *at = p->token;
    bool failed = false;
    struct node *from = NULL;
    if (at->kind != T_COLON) {
        from = parser_expression(p);
        if (!from || p->token->kind != T_COLON)
            return from;
    }
    p->token++;
    struct node *n = parser_node(p, N_SLICE, at);
    if (!n)
        return NULL;
    n->a = from;
    n->b = slice_part(p, &failed);
    if (!failed && parser_take(p, T_COLON))
        n->c = slice_part(p, &failed);
    return failed || parser_deepen(p, n) ? NULL : n;
}

static struct node *item(struct parser *p, struct node *of)
{
    const struct token *at = p->token++;
    struct node *index = subscribed(p);
    if (index && p->token->kind == T_COMMA) { // several form a tuple
        struct node *all = parser_node(p, N_TUPLE, at), **tail = all ? &all->list : NULL;
        for (struct node *n = index; all && n; n = subscribed(p)) {
            chain(&tail, n);
            if (!parser_take(p, T_COMMA) || p->token->kind == T_RBRACKET)
                break;
        }
        index = all && !p->err->code && !parser_deepen(p, all) ? all : NULL;
    }
    if (!index || parser_expect(p, T_RBRACKET))
        return NULL;
    return pair_of(p, N_GETITEM, 0, at, of, index);
}

static struct node *attribute(struct parser *p, struct node *of)
{
    const struct token *dot = p->token++, *at = p->token++;
    if (at->kind == T_INTEGER)
        return pair_of(p, N_GETITEM, 0, dot, of, literal(p, at->value, at));
    if (at->kind != T_NAME) {
        p->token--;
        parser_fail(p, at, "a name or a number is expected behind '.', not %s", jinja_token_name(at->kind));
        return NULL;
    }
    struct node *n = parser_node(p, N_GETATTR, dot);
    if (!n)
        return NULL;
    n->name = parser_intern(p, at->text);
    n->a = of;
    return n->name.data && !parser_deepen(p, n) ? n : NULL;
}

static struct node *argument(struct parser *p)
{
    const struct token *at = p->token;
    struct node *n = parser_node(p, N_ARG, at);
    if (!n)
        return NULL;
    if (at->kind == T_MUL || at->kind == T_POW) {
        n->op = at->kind == T_MUL ? ARG_STAR : ARG_DOUBLE_STAR;
        p->token++;
    } else if (at->kind == T_NAME && at[1].kind == T_ASSIGN) {
        n->op = ARG_KEYWORD;
        n->name = parser_intern(p, at->text);
        p->token += 2;
    }
    n->a = parser_expression(p);
    return n->a && !parser_deepen(p, n) ? n : NULL;
}

// Reads arguments in parentheses as a chain; *failed: p->err is set. The order is Python's: positional, keywords,
// *more, **more.
static struct node *arguments(struct parser *p, bool *failed)
{
    struct node *first = NULL, **tail = &first;
    int last = ARG_PLAIN;
    *failed = true;
    p->token++;
    while (!parser_take(p, T_RPAREN)) {
        if (first && parser_expect(p, T_COMMA))
            return NULL;
        if (first && parser_take(p, T_RPAREN))
            break;
        const struct token *at = p->token;
        struct node *n = argument(p);
        if (!n)
            return NULL;
        bool twice = n->op == last && last >= ARG_STAR;
        if (n->op < last || twice) {
            parser_fail(p, at, "this argument may not stand behind the one before it");
            return NULL;
        }
        last = n->op;
        chain(&tail, n);
    }
    *failed = false;
    return first;
}

static struct node *call(struct parser *p, struct node *of)
{
    bool failed;
    struct node *n = parser_node(p, N_CALL, p->token);
    if (!n)
        return NULL;
    n->a = of;
    n->list = arguments(p, &failed);
    return failed || parser_deepen(p, n) ? NULL : n;
}

static struct node *postfix(struct parser *p, struct node *n)
{
    while (n) {
        enum token_kind k = p->token->kind;
        if (k == T_DOT)
            n = attribute(p, n);
        else if (k == T_LBRACKET)
            n = item(p, n);
        else if (k == T_LPAREN)
            n = call(p, n);
        else
            break;
    }
    return n;
}

// Reads a name that may contain dots.
static struct str dotted_name(struct parser *p)
{
    const struct token *at = p->token;
    struct str whole = at->text;
    if (parser_expect(p, T_NAME))
        return (struct str){NULL, 0};
    while (p->token->kind == T_DOT && p->token[1].kind == T_NAME) {
        whole.len = (size_t)(p->token[1].text.data + p->token[1].text.len - whole.data);
        p->token += 2;
    }
    return whole;
}

struct node *parser_filter(struct parser *p, struct node *input, bool start_inline)
{
    while (start_inline || p->token->kind == T_PIPE) {
        bool failed = false;
        p->token += !start_inline;
        struct node *n = parser_node(p, N_FILTER, p->token);
        if (!n)
            return NULL;
        n->a = input;
        n->name = dotted_name(p);
        if (n->name.data && p->token->kind == T_LPAREN)
            n->list = arguments(p, &failed);
        if (!n->name.data || failed || parser_deepen(p, n))
            return NULL;
        input = n;
        start_inline = false;
    }
    return input;
}

static bool starts_test_argument(const struct parser *p)
{
    enum token_kind k = p->token->kind;
    bool literal_or_name =
        k == T_NAME || k == T_STRING || k == T_INTEGER || k == T_FLOAT || k == T_LBRACKET || k == T_LBRACE;
    return literal_or_name && !parser_is_name(p, "else") && !parser_is_name(p, "or") && !parser_is_name(p, "and");
}

// Reads one argument without parentheses, as in "x is divisibleby 3".
static struct node *bare_argument(struct parser *p)
{
    if (parser_is_name(p, "is")) {
        parser_fail(p, p->token, "tests cannot be chained with 'is'");
        return NULL;
    }
    struct node *n = parser_node(p, N_ARG, p->token);
    if (!n)
        return NULL;
    n->a = postfix(p, primary(p, false));
    return n->a && !parser_deepen(p, n) ? n : NULL;
}

static struct node *test(struct parser *p, struct node *of)
{
    const struct token *at = p->token++;
    bool negated = parser_take_name(p, "not"), failed = false;
    struct node *n = parser_node(p, N_TEST, at);
    if (!n)
        return NULL;
    n->a = of;
    n->name = dotted_name(p);
    if (!n->name.data)
        return NULL;
    if (p->token->kind == T_LPAREN)
        n->list = arguments(p, &failed);
    else if (starts_test_argument(p))
        failed = (n->list = bare_argument(p)) == NULL;
    if (failed || parser_deepen(p, n))
        return NULL;
    if (!negated)
        return n;
    struct node *not = parser_node(p, N_NOT, at);
    if (!not )
        return NULL;
    not ->a = n;
    return parser_deepen(p, not ) ? NULL : not ;
}

static struct node *filters_and_tests(struct parser *p, struct node *n)
{
    while (n) {
        if (p->token->kind == T_PIPE)
            n = parser_filter(p, n, false);
        else if (parser_is_name(p, "is"))
            n = test(p, n);
        else if (p->token->kind == T_LPAREN)
            n = call(p, n);
        else
            break;
    }
    return n;
}

// ---- Operators ----

static struct node *negated(struct parser *p, enum node_kind kind, struct node *(*operand)(struct parser *))
{
    struct node *n = parser_node(p, kind, p->token++);
    if (!n || parser_enter(p))
        return NULL;
    n->a = operand(p);
    p->nesting--;
    return n->a && !parser_deepen(p, n) ? n : NULL;
}

static struct node *unary_operand(struct parser *p)
{
    return unary(p, false);
}

static struct node *unary(struct parser *p, bool with_filter)
{
    enum token_kind k = p->token->kind;
    struct node *n = k == T_SUB   ? negated(p, N_NEG, unary_operand)
                     : k == T_ADD ? negated(p, N_POS, unary_operand)
                                  : primary(p, false);
    n = postfix(p, n);
    return with_filter ? filters_and_tests(p, n) : n;
}

// Reads left-associative operators of one precedence.
static struct node *left_to_right(struct parser *p, struct node *(*operand)(struct parser *), enum binary_op from,
                                  enum binary_op to)
{
    struct node *left = operand(p);
    for (int op; left && (op = binary_op(p, from, to)) >= 0;) {
        const struct token *at = p->token++;
        left = pair_of(p, N_BINARY, op, at, left, operand(p));
    }
    return left;
}

static struct node *power_operand(struct parser *p)
{
    return unary(p, true);
}

static struct node *power(struct parser *p)
{
    return left_to_right(p, power_operand, OP_POW, OP_POW);
}

static struct node *product(struct parser *p)
{
    return left_to_right(p, power, OP_MUL, OP_MOD);
}

static struct node *concat(struct parser *p)
{
    const struct token *at = p->token;
    struct node *first = product(p);
    if (!first || p->token->kind != T_TILDE)
        return first;
    struct node *n = parser_node(p, N_CONCAT, at);
    if (!n)
        return NULL;
    n->list = first;
    for (struct node **tail = &first->next; parser_take(p, T_TILDE);) {
        struct node *part = product(p);
        if (!part)
            return NULL;
        chain(&tail, part);
    }
    return parser_deepen(p, n) ? NULL : n;
}

static struct node *sum(struct parser *p)
{
    return left_to_right(p, concat, OP_ADD, OP_SUB);
}

// Reads a comparison operator; -1 if there is none.
static int take_comparison(struct parser *p)
{
    int op = binary_op(p, OP_EQ, OP_GE);
    if (op >= 0) {
        p->token++;
        return op;
    }
    if (parser_take_name(p, "in"))
        return OP_IN;
    if (parser_is_name(p, "not") && p->token[1].kind == T_NAME && str_equal_z(p->token[1].text, "in")) {
        p->token += 2;
        return OP_NOT_IN;
    }
    return -1;
}

static struct node *comparison(struct parser *p)
{
    const struct token *at = p->token;
    struct node *first = sum(p), *n = NULL, **tail = NULL;
    for (int op; first;) {
        const struct token *sign = p->token;
        op = take_comparison(p);
        if (op < 0)
            break;
        if (!n) {
            n = parser_node(p, N_COMPARE, at);
            if (!n)
                return NULL;
            n->a = first;
            tail = &n->list;
        }
        struct node *operand = parser_node(p, N_OPERAND, sign);
        if (!operand)
            return NULL;
        operand->op = (uint8_t)op;
        operand->a = sum(p);
        if (!operand->a || parser_deepen(p, operand))
            return NULL;
        chain(&tail, operand);
    }
    return n && !parser_deepen(p, n) ? n : n ? NULL : first;
}

static struct node *negation(struct parser *p)
{
    return parser_is_name(p, "not") ? negated(p, N_NOT, negation) : comparison(p);
}

static struct node *conjunction(struct parser *p)
{
    struct node *left = negation(p);
    for (const struct token *at = p->token; left && parser_take_name(p, "and"); at = p->token)
        left = pair_of(p, N_AND, 0, at, left, negation(p));
    return left;
}

static struct node *disjunction(struct parser *p)
{
    struct node *left = conjunction(p);
    for (const struct token *at = p->token; left && parser_take_name(p, "or"); at = p->token)
        left = pair_of(p, N_OR, 0, at, left, conjunction(p));
    return left;
}

struct node *parser_expression(struct parser *p)
{
    if (parser_enter(p))
        return NULL;
    const struct token *at = p->token;
    struct node *n = disjunction(p);
    while (n && parser_take_name(p, "if")) {
        struct node *choice = parser_node(p, N_IF_ELSE, at);
        if (!choice)
            return NULL;
        choice->a = n;
        choice->b = disjunction(p);
        bool otherwise = choice->b && parser_take_name(p, "else");
        choice->c = otherwise ? parser_expression(p) : NULL;
        n = choice->b && (choice->c || !otherwise) && !parser_deepen(p, choice) ? choice : NULL;
    }
    p->nesting--;
    return n;
}

// ---- Tuples and targets ----

static bool tuple_ends(const struct parser *p, unsigned flags)
{
    enum token_kind k = p->token->kind;
    return k == T_PRINT_END || k == T_BLOCK_END || k == T_RPAREN || (flags & TUPLE_IN && parser_is_name(p, "in")) ||
           (flags & TUPLE_RECURSIVE && parser_is_name(p, "recursive"));
}

static struct node *tuple_item(struct parser *p, unsigned flags)
{
    if (flags & TUPLE_SIMPLE)
        return primary(p, (flags & TUPLE_NSREF) != 0);
    return flags & TUPLE_NO_IF ? disjunction(p) : parser_expression(p);
}

// Reads one expression, or several with commas, which form a tuple.
struct node *parser_tuple(struct parser *p, unsigned flags)
{
    const struct token *at = p->token;
    struct node *first = NULL, **tail = &first;
    bool tuple = false;
    while (!tuple_ends(p, flags)) {
        struct node *n = tuple_item(p, flags);
        if (!n)
            return NULL;
        chain(&tail, n);
        if (!parser_take(p, T_COMMA))
            break;
        tuple = true;
    }
    if (!tuple && first)
        return first;
    if (!tuple && !(flags & TUPLE_PARENS)) {
        parser_fail(p, at, "an expression is expected, not %s", jinja_token_name(at->kind));
        return NULL;
    }
    struct node *n = parser_node(p, N_TUPLE, at);
    if (!n)
        return NULL;
    n->list = first;
    return parser_deepen(p, n) ? NULL : n;
}

static bool assignable(const struct node *n)
{
    if (n->kind != N_TUPLE)
        return n->kind == N_NAME || n->kind == N_NSREF;
    for (const struct node *i = n->list; i; i = i->next)
        if (!assignable(i))
            return false;
    return true;
}

struct node *parser_target(struct parser *p, unsigned flags)
{
    const struct token *at = p->token;
    struct node *n = parser_tuple(p, flags | TUPLE_SIMPLE);
    if (n && !assignable(n)) {
        parser_fail(p, at, "nothing can be assigned to this");
        return NULL;
    }
    return n;
}
