// The parser of PTX: makes kernels of a text, and checks each instruction against the tables.
#ifndef QUERN_SIMT_PARSE_H
#define QUERN_SIMT_PARSE_H

#include "tests/ptx/simt_isa.h"

enum token_kind { TOK_END, TOK_WORD, TOK_INT, TOK_FLOAT, TOK_STRING, TOK_SIGN };
struct token {
    enum token_kind kind;
    struct str text;
    uint64_t value; // of an integer, or a float's bits
    bool wide;      // the float has 64 bits
    uint32_t line;
    char sign;
};

struct symbol {
    struct str name;
    enum { SYM_REG, SYM_LABEL, SYM_SHARED, SYM_LOCAL, SYM_GLOBAL, SYM_PARAM } kind;
    uint64_t value; // slot, instruction, or address
    uint32_t size;  // bytes of a variable
    uint32_t scope;
    uint32_t next; // of its bucket: 1 + index, 0: none
};
enum { SYMBOL_BUCKETS = 1 << 12 };
struct scope {
    uint32_t parent;
};
struct pending_jump {
    struct str name;
    size_t insn;
    uint32_t scope, line;
};

struct simt_parser {
    const char *at, *end;
    uint32_t line;
    struct token tok;
    struct simt_kernel *kernel; // being read, or NULL
    struct symbol *symbols;
    struct scope *scopes;
    struct pending_jump *jumps;
    size_t n_symbols, cap_symbols, n_scopes, cap_scopes, n_jumps, cap_jumps, globals;
    uint32_t scope, version, target;
    uint32_t placed;                  // bytes of the module's variables in device memory
    uint32_t buckets[SYMBOL_BUCKETS]; // the newest symbol of each: 1 + index
    // Allocates device memory for a variable of the module; returns 0 if memory is short.
    uint64_t (*place)(void *ctx, const void *init, size_t size);
    void *ctx;
    struct error *err;
};

void simt_kernel_free(struct simt_kernel *k);
// The kernels of a text, as a list with the newest first.
int simt_parse(struct simt_parser *p, struct str text, struct simt_kernel **kernels);

// ---- shared by the parts of the parser
int parse_fail(struct simt_parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int parse_next(struct simt_parser *p);
bool parse_sign(struct simt_parser *p, char c); // whether the token is this one
int parse_expect(struct simt_parser *p, char c);
int parse_instruction(struct simt_parser *p);
bool parse_grow(void *array, size_t *cap, size_t need, size_t size);
int64_t parse_slot(struct simt_parser *p, struct str name, enum simt_type type); // adds a register
struct symbol *parse_symbol(struct simt_parser *p, struct str name, uint32_t scope);
enum simt_type parse_type(struct str name);

#endif
