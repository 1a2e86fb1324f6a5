// The syntax tree of a template, the lexer and the parser. Only the interpreter includes this file.
//
// Ownership: nodes, names and texts live in the template's arena. Threads: read-only once parsed.
#ifndef QUERN_JINJA_AST_H
#define QUERN_JINJA_AST_H

#include "engine/chat/jinja.h"

// The members that each kind of node uses: a, b, c are expressions; list and other are chains linked by `next`.
enum node_kind {
    // expressions
    N_CONST, // value
    N_NAME,  // name
    N_LIST,  // list
    N_TUPLE, // list
    N_DICT,  // list of N_PAIR (a: b)
    N_PAIR,
    N_GETATTR, // a.name
    N_GETITEM, // a[b]
    N_SLICE,   // a:b:c, each may be NULL
    N_CALL,    // a(list of N_ARG)
    N_FILTER,  // a|name(list); a is NULL at the beginning of a filter block
    N_TEST,    // a is name(list)
    N_ARG,     // op: enum arg_kind; name, if a keyword; a
    N_NEG,
    N_POS,
    N_NOT,
    N_BINARY, // op: enum binary_op; a, b
    N_AND,
    N_OR,
    N_COMPARE, // a, then a list of N_OPERAND (op, a)
    N_OPERAND,
    N_CONCAT,  // list
    N_IF_ELSE, // a if b else c; c may be NULL
    N_NSREF,   // name.text, as the target of set
    // statements
    N_TEXT,      // value
    N_PRINT,     // a
    N_FOR,       // for a in b if c: list, else: other; op: recursive
    N_IF,        // if a: list, elif: c, else: other
    N_SET,       // a = b
    N_SET_BLOCK, // a = list, passed through the filters b
    N_MACRO,     // name, parameters list (of N_PARAM: name, default a), body other
    N_PARAM,
    N_CALL_BLOCK,   // call a with a caller: parameters list, body other
    N_FILTER_BLOCK, // list, passed through the filters a
    N_WITH,         // list of N_SET, body other
    N_AUTOESCAPE,   // a, body list
    N_SCOPE,        // body list, with its own names
    N_BREAK,
    N_CONTINUE,
    N_UNSUPPORTED, // name: a statement that would need other files
};

enum arg_kind { ARG_PLAIN, ARG_KEYWORD, ARG_STAR, ARG_DOUBLE_STAR };

enum binary_op {
    // clang-format off
    OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW,
    OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN, OP_NOT_IN,
    // clang-format on
};

struct node {
    uint8_t kind; // enum node_kind
    uint8_t op;
    uint16_t flags;        // for macros and call blocks: enum macro_uses
    uint32_t depth;        // height of the tree below
    uint32_t line, column; // from 1
    struct str name;       // names of variables are interned: equal names are the same pointer
    union {
        struct value value;
        struct {
            struct node *a, *b, *c, *list;
        };
    };
    struct node *other, *next;
};

// Special names used in the body of a macro; they determine which extra arguments it accepts.
enum macro_uses { USES_CALLER = 1, USES_KWARGS = 2, USES_VARARGS = 4 };

struct name_table; // interned names

struct jinja_template {
    struct arena arena;
    struct str source; // newlines are \n, the last one is removed
    struct node *body; // statements
    struct name_table *names;
    // names with a special meaning
    struct str n_loop, n_caller, n_varargs, n_kwargs, n_self;
};

// --- tokens ---

enum token_kind {
    // clang-format off
    T_END, T_TEXT, T_PRINT_BEGIN, T_PRINT_END, T_BLOCK_BEGIN, T_BLOCK_END,
    T_NAME, T_STRING, T_INTEGER, T_FLOAT,
    T_ADD, T_SUB, T_MUL, T_DIV, T_FLOORDIV, T_MOD, T_POW, T_TILDE,
    T_EQ, T_NE, T_LT, T_LE, T_GT, T_GE, T_ASSIGN,
    T_DOT, T_COLON, T_PIPE, T_COMMA, T_SEMICOLON,
    T_LPAREN, T_RPAREN, T_LBRACKET, T_RBRACKET, T_LBRACE, T_RBRACE,
    // clang-format on
};

struct token {
    enum token_kind kind;
    uint32_t at, line, column; // offset in the source; line and column count from 1
    struct str text;           // of names and texts; of other tokens as written
    struct value value;        // of strings and numbers
};

struct token_array {
    struct token *at;
    size_t n, cap;
};

// Fails with the line and the column of a byte of the source.
int jinja_fail_at(const struct jinja_template *t, struct error *err, size_t at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define jinja_fail_at(...) minus_one(jinja_fail_at(__VA_ARGS__))

// Splits the source of the template into tokens; the last one is T_END. The array lives in the arena. E_MODEL,
// E_MEMORY.
int jinja_lex(struct jinja_template *t, struct token_array *out, struct error *err);
const char *jinja_token_name(enum token_kind kind);

// --- the parser ---

struct parser {
    struct jinja_template *t;
    struct token *token; // the current one
    struct error *err;
    int nesting;
    int loops;     // loops around the current statement, within its macro
    uint16_t uses; // enum macro_uses of the current macro
};

// These return NULL, or -1, when p->err is set.
struct node *parser_node(struct parser *p, enum node_kind kind, const struct token *at);
int parser_fail(struct parser *p, const struct token *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#define parser_fail(...) minus_one(parser_fail(__VA_ARGS__))
bool parser_is_name(const struct parser *p, const char *word);
bool parser_take_name(struct parser *p, const char *word);
bool parser_take(struct parser *p, enum token_kind kind);
int parser_expect(struct parser *p, enum token_kind kind);
struct str parser_intern(struct parser *p, struct str name);
int parser_enter(struct parser *p); // increases the nesting; -1 beyond JINJA_NESTING_MAX
// Sets the node's depth from those of its parts; -1 if the tree is too deep.
int parser_deepen(struct parser *p, struct node *n);

enum tuple_flags {
    TUPLE_SIMPLE = 1,
    TUPLE_NO_IF = 2,
    TUPLE_IN = 4,
    TUPLE_RECURSIVE = 8,
    TUPLE_PARENS = 16,
    TUPLE_NSREF = 32
};
struct node *parser_expression(struct parser *p);
struct node *parser_tuple(struct parser *p, unsigned flags);
struct node *parser_filter(struct parser *p, struct node *input, bool start_inline);
// The target of an assignment: a name, a tuple of names, or, with TUPLE_NSREF, an attribute of a namespace.
struct node *parser_target(struct parser *p, unsigned flags);

#endif
