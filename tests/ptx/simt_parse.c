// Tokens and directives of PTX.
#include "tests/ptx/simt_parse.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

// Limits in bytes: shared memory of a CTA, local memory of a thread, parameters of a kernel, and device memory of a
// module's variables. The last one is a limit of this interpreter only, because each byte has shadow memory.
enum {
    SHARED_MOST = 227 << 10,
    LOCAL_MOST = 512 << 10,
    PARAMS_MOST = 32764,
    GLOBAL_MOST = 1 << 22,
    SLOTS_MOST = 1 << 16
};

int parse_fail(struct simt_parser *p, const char *fmt, ...)
{
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    return fail(p->err, E_GPU, "line %u: %s", p->tok.line, what);
}

bool parse_grow(void *array, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return true;
    size_t n = MAX(need, *cap * 2 + 16);
    void **a = array;
    void *more = realloc(*a, n * size);
    if (!more)
        return false;
    memset((char *)more + *cap * size, 0, (n - *cap) * size);
    *a = more;
    *cap = n;
    return true;
}

// ---- tokens

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static int skip_blank(struct simt_parser *p)
{
    while (p->at < p->end) {
        if (*p->at == '\n') {
            p->line++;
            p->at++;
        } else if (isspace((unsigned char)*p->at)) {
            p->at++;
        } else if (p->end - p->at > 1 && p->at[0] == '/' && p->at[1] == '/') {
            while (p->at < p->end && *p->at != '\n')
                p->at++;
        } else if (p->end - p->at > 1 && p->at[0] == '/' && p->at[1] == '*') {
            for (p->at += 2; p->end - p->at > 1 && !(p->at[0] == '*' && p->at[1] == '/'); p->at++)
                p->line += *p->at == '\n';
            if (p->end - p->at < 2)
                return parse_fail(p, "a comment without an end");
            p->at += 2;
        } else {
            break;
        }
    }
    return 0;
}

static int number(struct simt_parser *p)
{
    char text[64], *rest;
    size_t n = 0;
    while (p->at < p->end && n + 1 < sizeof(text) &&
           (isalnum((unsigned char)*p->at) || *p->at == '.' ||
            ((*p->at == '-' || *p->at == '+') && n && tolower((unsigned char)text[n - 1]) == 'e' && text[1] != 'x')))
        text[n++] = *p->at++;
    text[n] = 0;
    p->tok.text = (struct str){p->at - n, n};
    char second = (char)tolower((unsigned char)text[1]);
    if (text[0] == '0' && (second == 'f' || second == 'd')) {
        p->tok.kind = TOK_FLOAT;
        p->tok.wide = second == 'd';
        p->tok.value = strtoull(text + 2, &rest, 16);
        if (*rest || n != (p->tok.wide ? 18u : 10u))
            return parse_fail(p, "bad number %s", text);
        return 0;
    }
    p->tok.kind = TOK_INT;
    p->tok.value = text[0] == '0' && second == 'b' ? strtoull(text + 2, &rest, 2) : strtoull(text, &rest, 0);
    if (*rest == 'U')
        rest++;
    if (*rest == '.' || (tolower((unsigned char)*rest) == 'e' && second != 'x')) {
        double d = strtod(text, &rest);
        p->tok.kind = TOK_FLOAT;
        p->tok.wide = true;
        memcpy(&p->tok.value, &d, 8);
    }
    return *rest ? parse_fail(p, "bad number %s", text) : 0;
}

int parse_next(struct simt_parser *p)
{
    p->tok = (struct token){.line = p->line};
    if (skip_blank(p))
        return -1;
    p->tok.line = p->line;
    if (p->at >= p->end)
        return 0;
    char c = *p->at;
    if (isdigit((unsigned char)c))
        return number(p);
    const char *start = p->at;
    if (word_char(c)) {
        p->tok.kind = TOK_WORD;
        while (p->at < p->end && (word_char(*p->at) || (p->end - p->at > 2 && p->at[0] == ':' && p->at[1] == ':')))
            p->at += *p->at == ':' ? 2 : 1;
        p->tok.text = (struct str){start, (size_t)(p->at - start)};
        return 0;
    }
    if (c == '"') {
        p->tok.kind = TOK_STRING;
        for (p->at++; p->at < p->end && *p->at != '"'; p->at++)
            if (*p->at == '\n')
                return parse_fail(p, "a string without an end");
        p->tok.text = (struct str){start, (size_t)(p->at - start)};
        p->at += p->at < p->end;
        return 0;
    }
    p->tok.kind = TOK_SIGN;
    p->tok.sign = c;
    p->tok.text = (struct str){start, 1};
    p->at++;
    return 0;
}

bool parse_sign(struct simt_parser *p, char c)
{
    return p->tok.kind == TOK_SIGN && p->tok.sign == c;
}

int parse_expect(struct simt_parser *p, char c)
{
    if (!parse_sign(p, c))
        return parse_fail(p, "'%c' stands where '%.*s' does", c, STR_ARG(p->tok.text));
    return parse_next(p);
}

static int integer(struct simt_parser *p, uint64_t max, uint64_t *out)
{
    if (p->tok.kind != TOK_INT || p->tok.value > max)
        return parse_fail(p, "a number up to %llu is needed", (unsigned long long)max);
    *out = p->tok.value;
    return parse_next(p);
}

// ---- names

static uint32_t *bucket(struct simt_parser *p, struct str name)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < name.len; i++)
        hash = (hash ^ (uint8_t)name.data[i]) * 16777619u;
    return &p->buckets[hash % SYMBOL_BUCKETS];
}

static struct symbol *symbol_of(struct simt_parser *p, struct str name, uint32_t scope)
{
    for (uint32_t i = *bucket(p, name); i; i = p->symbols[i - 1].next)
        if (p->symbols[i - 1].scope == scope && str_equal(p->symbols[i - 1].name, name))
            return &p->symbols[i - 1];
    return NULL;
}

struct symbol *parse_symbol(struct simt_parser *p, struct str name, uint32_t scope)
{
    for (;; scope = p->scopes[scope].parent) {
        struct symbol *s = symbol_of(p, name, scope);
        if (s)
            return s;
        if (!scope)
            return NULL;
    }
}

static struct symbol *add_symbol(struct simt_parser *p, struct str name)
{
    if (symbol_of(p, name, p->scope)) {
        parse_fail(p, "%.*s is declared twice", STR_ARG(name));
        return NULL;
    }
    if (!parse_grow(&p->symbols, &p->cap_symbols, p->n_symbols + 1, sizeof(*p->symbols))) {
        fail(p->err, E_MEMORY, "no memory for a module");
        return NULL;
    }
    struct symbol *s = &p->symbols[p->n_symbols++];
    uint32_t *head = bucket(p, name);
    *s = (struct symbol){.name = name, .scope = p->scope, .next = *head};
    *head = (uint32_t)p->n_symbols;
    return s;
}

int64_t parse_slot(struct simt_parser *p, struct str name, enum simt_type type)
{
    struct simt_kernel *k = p->kernel;
    if (k->n_slots == SLOTS_MOST)
        return parse_fail(p, "a kernel of more than %d registers and constants", SLOTS_MOST);
    if (!parse_grow(&k->slots, &k->cap_slots, k->n_slots + 1, sizeof(*k->slots)))
        return fail(p->err, E_MEMORY, "no memory for a module");
    k->slots[k->n_slots] = (struct simt_slot){.name = strndup(name.data, name.len), .type = type};
    return (int64_t)k->n_slots++;
}

enum simt_type parse_type(struct str name)
{
    for (int t = 1; t < T_COUNT; t++)
        if (str_equal_z(name, simt_types[t].name))
            return t;
    return T_NONE;
}

// ---- declarations

static enum simt_type dotted_type(struct simt_parser *p)
{
    struct str t = p->tok.text;
    if (p->tok.kind != TOK_WORD || t.len < 2 || t.data[0] != '.')
        return T_NONE;
    return parse_type((struct str){t.data + 1, t.len - 1});
}

// Whether the name is that of a special register, of which ptxas takes no other meaning: mov.u32 %tid, %tid.x is an error.
static bool is_special(struct str name)
{
    static const char *const names[] = {"%tid",     "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid",
                                        "%nwarpid", "%smid", "%nsmid", "%gridid", "%clock",  "%clock64"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (str_equal_z(name, names[i]))
            return true;
    return false;
}

static int one_register(struct simt_parser *p, struct str name, enum simt_type type)
{
    if (is_special(name))
        return parse_fail(p, "%.*s is the name of a special register", STR_ARG(name));
    int64_t slot = parse_slot(p, name, type);
    struct symbol *s = slot < 0 ? NULL : add_symbol(p, name);
    if (!s)
        return -1;
    s->kind = SYM_REG;
    s->value = (uint64_t)slot;
    return 0;
}

// .reg .type name, name<count>, ...;
static int registers(struct simt_parser *p)
{
    enum simt_type type = dotted_type(p);
    if (!type || simt_types[type].bits == 8)
        return parse_fail(p, "'%.*s' is no type of a register", STR_ARG(p->tok.text));
    do {
        if (parse_next(p))
            return -1;
        struct str name = p->tok.text;
        if (p->tok.kind != TOK_WORD || parse_next(p))
            return parse_fail(p, "a register's name is missing");
        if (!parse_sign(p, '<')) {
            if (one_register(p, name, type))
                return -1;
            continue;
        }
        uint64_t n = 0;
        if (parse_next(p) || integer(p, 100000, &n) || parse_expect(p, '>'))
            return -1;
        for (uint64_t i = 0; i < n; i++) {
            // names must live as long as the parser, so the slot's copy is used
            char text[256];
            int len = snprintf(text, sizeof(text), "%.*s%u", STR_ARG(name), (unsigned)i);
            int64_t slot = parse_slot(p, (struct str){text, (size_t)len}, type);
            struct symbol *s = slot < 0 ? NULL : add_symbol(p, str_from(p->kernel->slots[slot].name));
            if (!s)
                return -1;
            s->kind = SYM_REG;
            s->value = (uint64_t)slot;
        }
    } while (parse_sign(p, ','));
    return parse_expect(p, ';');
}

static int initial(struct simt_parser *p, uint8_t *data, size_t size, size_t width, enum simt_type type)
{
    size_t at = 0;
    bool list = parse_sign(p, '{');
    if (list && parse_next(p))
        return -1;
    do {
        bool minus = parse_sign(p, '-');
        if ((minus || (at && parse_sign(p, ','))) && parse_next(p))
            return -1;
        if (!minus && parse_sign(p, '-')) {
            minus = true;
            if (parse_next(p))
                return -1;
        }
        if ((p->tok.kind != TOK_INT && p->tok.kind != TOK_FLOAT) || at + width > size)
            return parse_fail(p, "bad initial value of .%s", simt_types[type].name);
        uint64_t v = minus ? 0 - p->tok.value : p->tok.value;
        memcpy(data + at, &v, width);
        at += width;
        if (parse_next(p))
            return -1;
    } while (list && parse_sign(p, ','));
    return list ? parse_expect(p, '}') : 0;
}

// [.align n] .type name[[count]] [= ...]: the rest of a variable's declaration.
static int variable(struct simt_parser *p, struct symbol *out, uint32_t *align, uint8_t **init)
{
    uint64_t n = 0, count = 1;
    *align = 0;
    if (str_equal_z(p->tok.text, ".align")) {
        if (parse_next(p) || integer(p, 4096, &n))
            return -1;
        *align = (uint32_t)n;
    }
    enum simt_type type = dotted_type(p);
    if (!type || type == T_PRED)
        return parse_fail(p, "'%.*s' is no type of a variable", STR_ARG(p->tok.text));
    uint32_t width = simt_types[type].bits / 8;
    *align = *align ? *align : width;
    if (*align & (*align - 1))
        return parse_fail(p, "an alignment is a power of two");
    if (parse_next(p))
        return -1;
    out->name = p->tok.text;
    if (p->tok.kind != TOK_WORD || parse_next(p))
        return parse_fail(p, "a variable's name is missing");
    while (parse_sign(p, '[')) {
        if (parse_next(p))
            return -1;
        if (parse_sign(p, ']'))
            n = 0;
        else if (integer(p, 1 << 28, &n))
            return -1;
        count *= n;
        if (parse_expect(p, ']'))
            return -1;
        if (count * width > 1u << 28)
            return parse_fail(p, "a variable of more than 2^28 bytes");
    }
    out->size = (uint32_t)(count * width);
    if (init && parse_sign(p, '=')) {
        *init = calloc(out->size + 1, 1);
        if (!*init)
            return fail(p->err, E_MEMORY, "no memory for a module");
        return parse_next(p) || initial(p, *init, out->size, width, type) ? -1 : 0;
    }
    return 0;
}

// Places a variable behind the *used bytes of its space, and adds it to *used.
static int place_in(struct simt_parser *p, struct symbol *v, uint32_t align, uint32_t *used, uint32_t most)
{
    uint64_t at = align_up(*used, align);
    if (at + v->size > most)
        return parse_fail(p, "more than %u bytes with %.*s", most, STR_ARG(v->name));
    v->value = at;
    *used = (uint32_t)at + v->size;
    return 0;
}

static int place_variable(struct simt_parser *p, struct symbol *v, struct str space, uint32_t align, uint8_t *init)
{
    struct simt_kernel *k = p->kernel;
    if (str_equal_z(space, ".shared") && (k || !v->size)) {
        v->kind = SYM_SHARED;
        // An array without a size is the dynamic part: it begins where the others end, found at the end of the kernel.
        v->value = UINT64_MAX;
        if (v->size && place_in(p, v, align, &k->shared_size, SHARED_MOST))
            return -1;
    } else if (str_equal_z(space, ".local") && k) {
        v->kind = SYM_LOCAL;
        if (place_in(p, v, align, &k->local_size, LOCAL_MOST))
            return -1;
    } else if ((str_equal_z(space, ".global") || str_equal_z(space, ".const")) && v->size) {
        if (place_in(p, v, align, &p->placed, GLOBAL_MOST))
            return -1;
        uint8_t *zeros = init ? init : calloc(v->size, 1);
        v->kind = SYM_GLOBAL;
        v->value = zeros ? p->place(p->ctx, zeros, v->size) : 0;
        if (!init)
            free(zeros);
        if (!v->value)
            return fail(p->err, E_MEMORY, "no memory for a module");
    } else {
        return parse_fail(p, "%.*s cannot stand here", STR_ARG(space));
    }
    return 0;
}

static int declare(struct simt_parser *p, struct str space)
{
    struct symbol v = {.scope = p->scope};
    uint32_t align;
    uint8_t *init = NULL;
    int rc = -1;
    if (variable(p, &v, &align, &init) || place_variable(p, &v, space, align, init) || parse_expect(p, ';'))
        goto out;
    struct symbol *s = add_symbol(p, v.name);
    if (!s)
        goto out;
    v.next = s->next;
    *s = v;
    rc = 0;
out:
    free(init);
    return rc;
}

// ---- kernels

static int parameters(struct simt_parser *p)
{
    struct simt_kernel *k = p->kernel;
    size_t cap = 0;
    if (parse_expect(p, '('))
        return -1;
    while (!parse_sign(p, ')')) {
        struct symbol v = {.scope = p->scope, .kind = SYM_PARAM};
        uint32_t align;
        if (!str_equal_z(p->tok.text, ".param") || parse_next(p))
            return parse_fail(p, "a parameter begins with .param");
        if (variable(p, &v, &align, NULL))
            return -1;
        if (place_in(p, &v, align, &k->params_size, PARAMS_MOST))
            return -1;
        struct symbol *s = add_symbol(p, v.name);
        if (!s)
            return -1;
        v.next = s->next;
        *s = v;
        if (!parse_grow(&k->params, &cap, k->n_params + 1, sizeof(*k->params)))
            return fail(p->err, E_MEMORY, "no memory for a module");
        k->params[k->n_params++] = (struct simt_param){strndup(v.name.data, v.name.len), (uint32_t)v.value, v.size};
        if (!parse_sign(p, ')') && parse_expect(p, ','))
            return -1;
    }
    return parse_next(p);
}

// .maxntid, .reqntid, .minnctapersm, .maxnreg
static int performance(struct simt_parser *p)
{
    while (p->tok.kind == TOK_WORD && p->tok.text.data[0] == '.') {
        struct str name = p->tok.text;
        bool req = str_equal_z(name, ".reqntid"), max = str_equal_z(name, ".maxntid");
        if (!req && !max && !str_equal_z(name, ".minnctapersm") && !str_equal_z(name, ".maxnreg"))
            return parse_fail(p, "unknown directive %.*s", STR_ARG(name));
        uint64_t n[3] = {1, 1, 1};
        unsigned i = 0;
        do {
            if (i == 3 || parse_next(p) || integer(p, 1 << 20, &n[i++]))
                return parse_fail(p, "bad %.*s", STR_ARG(name));
        } while (parse_sign(p, ','));
        if (max || req)
            p->kernel->max_threads = (uint32_t)(n[0] * n[1] * n[2]);
        for (unsigned d = 0; req && d < 3; d++)
            p->kernel->req[d] = (uint32_t)n[d];
    }
    return 0;
}

static int open_scope(struct simt_parser *p)
{
    if (!parse_grow(&p->scopes, &p->cap_scopes, p->n_scopes + 1, sizeof(*p->scopes)))
        return fail(p->err, E_MEMORY, "no memory for a module");
    p->scopes[p->n_scopes].parent = p->scope;
    p->scope = (uint32_t)p->n_scopes++;
    return 0;
}

static int statement(struct simt_parser *p)
{
    struct str word = p->tok.text;
    if (parse_sign(p, '{'))
        return open_scope(p) || parse_next(p) ? -1 : 0;
    if (p->tok.kind != TOK_WORD && !parse_sign(p, '@'))
        return parse_fail(p, "an instruction is needed, not '%.*s'", STR_ARG(word));
    if (parse_sign(p, '@') || word.data[0] != '.') {
        const char *rest = p->at;
        if (!parse_sign(p, '@') && rest < p->end && *rest == ':') {
            struct symbol *s = add_symbol(p, word);
            if (!s || parse_next(p))
                return -1;
            s->kind = SYM_LABEL;
            s->value = p->kernel->n_insns;
            return parse_next(p);
        }
        return parse_instruction(p);
    }
    if (parse_next(p))
        return -1;
    if (str_equal_z(word, ".reg"))
        return registers(p);
    if (str_equal_z(word, ".shared") || str_equal_z(word, ".local"))
        return declare(p, word);
    if (str_equal_z(word, ".pragma")) {
        if (p->tok.kind != TOK_STRING || parse_next(p))
            return parse_fail(p, "a pragma is a string");
        return parse_expect(p, ';');
    }
    return parse_fail(p, "unknown directive %.*s", STR_ARG(word));
}

static int resolve_jumps(struct simt_parser *p)
{
    for (size_t i = 0; i < p->n_jumps; i++) {
        struct pending_jump *j = &p->jumps[i];
        struct symbol *s = parse_symbol(p, j->name, j->scope);
        p->tok.line = j->line;
        if (!s || s->kind != SYM_LABEL)
            return parse_fail(p, "no label %.*s", STR_ARG(j->name));
        if (s->value >= p->kernel->n_insns)
            return parse_fail(p, "nothing stands at label %.*s", STR_ARG(j->name));
        p->kernel->insns[j->insn].o[0].first = (uint32_t)s->value;
    }
    p->n_jumps = 0;
    return 0;
}

static int kernel_body(struct simt_parser *p)
{
    uint32_t outer = p->scope;
    if (open_scope(p) || parse_slot(p, STR_LIT("_"), T_B64) < 0 || parameters(p) || performance(p))
        return -1;
    uint32_t inner = p->scope;
    if (parse_expect(p, '{'))
        return -1;
    for (;;) {
        if (p->tok.kind == TOK_END)
            return parse_fail(p, "the kernel has no end");
        if (!parse_sign(p, '}')) {
            if (statement(p))
                return -1;
            continue;
        }
        if (p->scope == inner)
            break;
        p->scope = p->scopes[p->scope].parent;
        if (parse_next(p))
            return -1;
    }
    struct simt_kernel *k = p->kernel;
    if (resolve_jumps(p))
        return -1;
    if (!k->n_insns ||
        (k->insns[k->n_insns - 1].op != OP_RET && k->insns[k->n_insns - 1].op != OP_BRA &&
         k->insns[k->n_insns - 1].op != OP_TRAP) ||
        k->insns[k->n_insns - 1].guard)
        return parse_fail(p, "the kernel runs past its end");
    p->scope = outer;
    return parse_next(p);
}

static int kernel(struct simt_parser *p, struct simt_kernel **list)
{
    if (p->tok.kind != TOK_WORD)
        return parse_fail(p, "a kernel's name is missing");
    struct simt_kernel *k = calloc(1, sizeof(*k));
    if (!k || !(k->name = strndup(p->tok.text.data, p->tok.text.len))) {
        free(k);
        return fail(p->err, E_MEMORY, "no memory for a module");
    }
    k->older = *list;
    *list = k;
    p->kernel = k;
    if (parse_next(p) || kernel_body(p))
        return -1;
    p->kernel = NULL;
    return 0;
}

void simt_kernel_free(struct simt_kernel *k)
{
    for (size_t i = 0; i < k->n_slots; i++)
        free(k->slots[i].name);
    for (size_t i = 0; i < k->n_params; i++)
        free(k->params[i].name);
    free(k->params);
    free(k->slots);
    free(k->regs);
    free(k->insns);
    free(k->name);
    free(k);
}

// .version, .target, .address_size: in this order, once.
static int header(struct simt_parser *p)
{
    if (!str_equal_z(p->tok.text, ".version") || parse_next(p))
        return parse_fail(p, "a text begins with .version");
    double version;
    if (p->tok.kind != TOK_FLOAT)
        return parse_fail(p, "bad version");
    memcpy(&version, &p->tok.value, 8);
    if (!(version >= 6.0 && version <= 9.0)) // nor NaN
        return parse_fail(p, "unsupported version %.1f", version);
    p->version = (uint32_t)(version * 10 + 0.5);
    if (parse_next(p) || !str_equal_z(p->tok.text, ".target") || parse_next(p))
        return parse_fail(p, ".target is missing");
    // sm_75 to sm_121, and those with a letter: sm_90a
    struct str t = p->tok.text;
    bool known = t.len >= 5 && t.len <= 7 && !memcmp(t.data, "sm_", 3);
    for (size_t i = 3; known && i < t.len; i++) {
        bool digit = isdigit((unsigned char)t.data[i]);
        p->target = digit ? p->target * 10 + (uint32_t)(t.data[i] - '0') : p->target;
        known = digit || (i >= 5 && i == t.len - 1 && (t.data[i] == 'a' || t.data[i] == 'f'));
    }
    if (!known)
        return parse_fail(p, "unknown target %.*s", STR_ARG(t));
    if (parse_next(p) || !str_equal_z(p->tok.text, ".address_size") || parse_next(p))
        return parse_fail(p, ".address_size is missing");
    uint64_t bits = 0;
    if (integer(p, 64, &bits) || bits != 64)
        return parse_fail(p, "addresses have 64 bits");
    return 0;
}

int simt_parse(struct simt_parser *p, struct str text, struct simt_kernel **kernels)
{
    p->at = text.data;
    p->end = text.data + text.len;
    p->line = 1;
    *kernels = NULL;
    int rc = -1;
    if (!parse_grow(&p->scopes, &p->cap_scopes, 1, sizeof(*p->scopes)))
        return fail(p->err, E_MEMORY, "no memory for a module");
    p->n_scopes = 1;
    if (parse_next(p) || header(p))
        goto out;
    while (p->tok.kind != TOK_END) {
        struct str word = p->tok.text;
        if (parse_next(p))
            goto out;
        if (str_equal_z(word, ".visible") || str_equal_z(word, ".extern") || str_equal_z(word, ".weak"))
            continue;
        bool variable = str_equal_z(word, ".global") || str_equal_z(word, ".const") || str_equal_z(word, ".shared");
        if (str_equal_z(word, ".entry") ? kernel(p, kernels)
            : variable                  ? declare(p, word)
                                        : parse_fail(p, "unknown directive '%.*s'", STR_ARG(word)))
            goto out;
    }
    rc = 0;
out:
    free(p->symbols);
    free(p->scopes);
    free(p->jumps);
    return rc;
}
