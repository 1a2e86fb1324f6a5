// Decodes one instruction: checks its opcode and modifiers against the tables, and its operands against their types.
#include "tests/ptx/simt_parse.h"

#include <stdio.h>
#include <stdlib.h>

// ---- the opcode and what hangs on it with dots

static const struct simt_opcode *find_opcode(struct str word, size_t *used)
{
    const struct simt_opcode *best = NULL;
    for (size_t i = 0; i < simt_n_opcodes; i++) {
        size_t n = strlen(simt_opcodes[i].name);
        if (n <= word.len && !memcmp(word.data, simt_opcodes[i].name, n) && (n == word.len || word.data[n] == '.') &&
            (!best || n > *used)) {
            best = &simt_opcodes[i];
            *used = n;
        }
    }
    return best;
}

struct named {
    const char *name;
    uint8_t value;
};

static uint8_t find_named(const struct named *list, size_t n, struct str s)
{
    for (size_t i = 0; i < n; i++)
        if (str_equal_z(s, list[i].name))
            return list[i].value;
    return 0;
}

static const struct named compares[] = {{"eq", CMP_EQ},   {"ne", CMP_NE},   {"lt", CMP_LT},   {"le", CMP_LE},
                                        {"gt", CMP_GT},   {"ge", CMP_GE},   {"equ", CMP_EQU}, {"neu", CMP_NEU},
                                        {"ltu", CMP_LTU}, {"leu", CMP_LEU}, {"gtu", CMP_GTU}, {"geu", CMP_GEU},
                                        {"num", CMP_NUM}, {"nan", CMP_NAN}};
static const struct named combines[] = {{"and", DO_AND}, {"or", DO_OR},   {"xor", DO_XOR},   {"add", DO_ADD},
                                        {"min", DO_MIN}, {"max", DO_MAX}, {"exch", DO_EXCH}, {"cas", DO_CAS},
                                        {"inc", DO_INC}, {"dec", DO_DEC}};
static const char *const hints[] = {"ca",
                                    "cg",
                                    "cs",
                                    "lu",
                                    "cv",
                                    "wb",
                                    "wt",
                                    "L1",
                                    "L2",
                                    "L1::no_allocate",
                                    "L1::evict_last",
                                    "L1::evict_first",
                                    "L2::128B",
                                    "L2::256B",
                                    "L2::64B"};

// m16n8k16, row, col
static bool shape(struct simt_insn *in, struct str s)
{
    unsigned m, n, k;
    int used = 0;
    char text[16];
    if (in->n_layouts < 2 && (str_equal_z(s, "row") || str_equal_z(s, "col"))) {
        in->layout[in->n_layouts++] = s.data[0] == 'c';
        return true;
    }
    if (s.len >= sizeof(text) || in->m)
        return false;
    memcpy(text, s.data, s.len);
    text[s.len] = 0;
    if (sscanf(text, "m%2un%2uk%2u%n", &m, &n, &k, &used) != 3 || used != (int)s.len)
        return false;
    in->m = (uint8_t)m;
    in->n = (uint8_t)n;
    in->k = (uint8_t)k;
    return true;
}

static bool modifier(struct simt_insn *in, const struct simt_opcode *op, struct str s)
{
    uint8_t v;
    if ((op->fields & F_COMPARE) && !in->compare && (v = find_named(compares, COUNT_OF(compares), s)))
        return in->compare = v, true;
    if ((op->fields & F_COMBINE) && !in->combine && (v = find_named(combines, COUNT_OF(combines), s)))
        return in->combine = v, true;
    if ((op->fields & F_SHAPE) && shape(in, s))
        return true;
    if (str_equal_z(s, "shared::cta"))
        s = STR_LIT("shared");
    uint64_t bit = 0;
    for (int i = 0; i < MB_HINT; i++)
        if (str_equal_z(s, simt_mods[i]))
            bit = 1ull << i;
    for (size_t i = 0; i < COUNT_OF(hints); i++)
        if (str_equal_z(s, hints[i]))
            bit = B(HINT);
    if (!(op->mods & bit) || ((in->mods & bit) && bit != B(HINT)))
        return false;
    in->mods |= bit;
    return true;
}

static bool form_is_whole(const struct simt_insn *in, const struct simt_opcode *op)
{
    unsigned needed =
        op->op == OP_MMA || op->op == OP_WMMA_MMA || op->op == OP_CVT || op->op == OP_DP4A || op->op == OP_DP2A
            ? op->n_types
            : MIN(op->n_types, 1);
    bool is_float = simt_types[in->type[0]].kind == C_FLOAT;
    if (in->n_types < needed || (op->need && !(op->need & in->mods)))
        return false;
    if ((op->fields & F_COMPARE) && !in->compare)
        return false;
    if ((op->op == OP_ATOM || op->op == OP_RED || op->op == OP_REDUX) && !in->combine)
        return false;
    if ((op->fields & F_SHAPE) && !in->m)
        return false;
    if (op->op == OP_MUL || op->op == OP_MAD) {
        bool part = (in->mods & (B(LO) | B(HI) | B(WIDE))) != 0;
        return part != is_float;
    }
    if (op->op == OP_DIV && in->type[0] == T_F32)
        return (in->mods & (B(APPROX) | B(FULL) | B(RN) | B(RZ) | B(RM) | B(RP))) != 0;
    return is_float || op->op == OP_CVT || !(in->mods & (B(RN) | B(RZ) | B(RM) | B(RP) | B(FTZ)));
}

// What came after sm_75 and PTX 6.3, and where it is checked.
static const struct {
    uint8_t op, version, target;
} first_with[] = {
    {OP_MBAR_INIT, 70, 80},   {OP_MBAR_INVAL, 70, 80}, {OP_MBAR_ARRIVE, 70, 80},    {OP_MBAR_TEST, 70, 80},
    {OP_MBAR_PARITY, 71, 80}, {OP_CP_ASYNC, 70, 80},   {OP_CP_COMMIT, 70, 80},      {OP_CP_WAIT, 70, 80},
    {OP_CP_WAIT_ALL, 70, 80}, {OP_GRID_WAIT, 78, 90},  {OP_MBAR_ARRIVE_TX, 80, 90}, {OP_MBAR_EXPECT, 80, 90},
    {OP_PROXY_FENCE, 80, 90}, {OP_BULK, 80, 90},       {OP_ELECT, 80, 90},
};

static int check_version(struct simt_parser *p, const struct simt_opcode *op)
{
    bool tries = !strncmp(op->name, "mbarrier.try_wait", 17);
    for (size_t i = 0; i < COUNT_OF(first_with); i++) {
        uint32_t version = tries ? 78 : first_with[i].version, target = tries ? 90 : first_with[i].target;
        if (first_with[i].op == op->op && (p->version < version || p->target < target))
            return parse_fail(p, "%s needs PTX %u.%u and sm_%u", op->name, version / 10, version % 10, target);
    }
    return 0;
}

static int form(struct simt_parser *p, struct simt_insn *in, const struct simt_opcode **found)
{
    struct str word = p->tok.text;
    size_t at = 0;
    const struct simt_opcode *op = *found = find_opcode(word, &at);
    if (!op)
        return parse_fail(p, "unknown opcode %.*s", STR_ARG(word));
    if (check_version(p, op))
        return -1;
    in->op = op->op;
    in->operand_fragment =
        str_equal_z(str_from(op->name), "wmma.load.a") || str_equal_z(str_from(op->name), "wmma.load.b");
    while (at < word.len) {
        size_t end = ++at;
        while (end < word.len && word.data[end] != '.')
            end++;
        struct str part = {word.data + at, end - at};
        enum simt_type t = parse_type(part);
        if (t && in->n_types < op->n_types && (op->types >> t & 1))
            in->type[in->n_types++] = t;
        else if (!modifier(in, op, part))
            return parse_fail(p, "%s: unknown modifier or type .%.*s in %.*s", op->name, STR_ARG(part), STR_ARG(word));
        at = end;
    }
    if (!form_is_whole(in, op))
        return parse_fail(p, "%.*s lacks a modifier or a type, or has one too many", STR_ARG(word));
    return parse_next(p);
}

// ---- operands

static const char *const special_names[SP_COUNT] = {"%tid.x",       "%tid.y",
                                                    "%tid.z",       "%ntid.x",
                                                    "%ntid.y",      "%ntid.z",
                                                    "%ctaid.x",     "%ctaid.y",
                                                    "%ctaid.z",     "%nctaid.x",
                                                    "%nctaid.y",    "%nctaid.z",
                                                    "%laneid",      "%warpid",
                                                    "%nwarpid",     "%smid",
                                                    "%nsmid",       "%lanemask_lt",
                                                    "%lanemask_le", "%lanemask_gt",
                                                    "%lanemask_ge", "%lanemask_eq",
                                                    "%clock",       "%clock64",
                                                    "%globaltimer", ""};

static int64_t constant_slot(struct simt_parser *p, uint64_t value, enum simt_type type)
{
    struct simt_kernel *k = p->kernel;
    for (size_t i = 1; i < k->n_slots; i++)
        if (k->slots[i].constant && !k->slots[i].special && k->slots[i].value == value && k->slots[i].type == type)
            return (int64_t)i;
    int64_t slot = parse_slot(p, STR_LIT("a constant"), type);
    if (slot >= 0) {
        k->slots[slot].constant = true;
        k->slots[slot].value = value;
    }
    return slot;
}

static int64_t special_slot(struct simt_parser *p, struct simt_insn *in, struct str name)
{
    struct simt_kernel *k = p->kernel;
    for (int i = 0; i < SP_COUNT; i++) {
        if (!str_equal_z(name, i == SP_DYNAMIC ? "\x01" : special_names[i]))
            continue;
        bool clock = i == SP_CLOCK || i == SP_CLOCK64 || i == SP_TIMER;
        in->reads_clock |= clock;
        for (size_t s = 1; s < k->n_slots; s++)
            if (k->slots[s].special == i + 1)
                return (int64_t)s;
        int64_t slot = parse_slot(p, name, i == SP_CLOCK64 || i == SP_TIMER ? T_U64 : T_U32);
        if (slot >= 0) {
            k->slots[slot].special = (uint8_t)(i + 1);
            k->slots[slot].constant = true;
        }
        return slot;
    }
    return parse_fail(p, "unknown name %.*s", STR_ARG(name));
}

static int64_t variable_slot(struct simt_parser *p, struct simt_insn *in, const struct symbol *s)
{
    switch (s->kind) {
    case SYM_SHARED:
        return s->value == UINT64_MAX ? special_slot(p, in, STR_LIT("\x01")) : constant_slot(p, s->value, T_B64);
    case SYM_LOCAL:
    case SYM_GLOBAL:
    case SYM_PARAM:
        return constant_slot(p, s->value, T_B64);
    default:
        return parse_fail(p, "%.*s is a label", STR_ARG(s->name));
    }
}

static bool fits_register(enum simt_type have, enum simt_type want, bool wider)
{
    const struct simt_type_info *h = &simt_types[have], *w = &simt_types[want];
    if (h->kind == C_PRED || w->kind == C_PRED)
        return h->kind == w->kind;
    if (h->bits != w->bits && !(wider && h->bits > w->bits))
        return false;
    // Floats and integers are not interchangeable; untyped bits match both.
    bool float_for_int = h->kind == C_FLOAT && (w->kind == C_SIGNED || w->kind == C_UNSIGNED);
    bool int_for_float = w->kind == C_FLOAT && (h->kind == C_SIGNED || h->kind == C_UNSIGNED);
    return !float_for_int && !int_for_float;
}

static int64_t immediate(struct simt_parser *p, enum simt_type type, bool minus)
{
    const struct simt_type_info *t = &simt_types[type];
    uint64_t v = p->tok.value;
    if (p->tok.kind == TOK_FLOAT) {
        if (t->kind == C_SIGNED || t->kind == C_UNSIGNED || t->kind == C_PRED || t->bits < 32)
            return parse_fail(p, "a float stands where .%s is meant", t->name);
        double d;
        float f;
        uint32_t low = (uint32_t)v;
        memcpy(&d, &v, 8);
        memcpy(&f, &low, 4);
        if (!p->tok.wide && t->bits == 64)
            d = (double)f;
        if (p->tok.wide)
            f = (float)d;
        d = minus ? -d : d;
        f = minus ? -f : f;
        memcpy(&v, &d, 8);
        memcpy(&low, &f, 4);
        v = t->bits == 64 ? v : low;
    } else {
        if (t->kind == C_FLOAT)
            return parse_fail(p, "an integer stands where .%s is meant", t->name);
        v = minus ? 0 - v : v;
        v = t->kind == C_PRED ? v != 0 : t->bits < 64 ? v & ((1ull << t->bits) - 1) : v;
    }
    return parse_next(p) ? -1 : constant_slot(p, v, type);
}

// Returns the slot that holds a register, a constant or the address of a variable.
static int64_t scalar(struct simt_parser *p, struct simt_insn *in, enum simt_type type, bool dest, bool wider)
{
    bool minus = parse_sign(p, '-');
    if (minus && parse_next(p))
        return -1;
    if (!dest && (p->tok.kind == TOK_INT || p->tok.kind == TOK_FLOAT))
        return immediate(p, type, minus);
    if (p->tok.kind != TOK_WORD || minus)
        return parse_fail(p, "an operand is needed, not '%.*s'", STR_ARG(p->tok.text));
    struct str name = p->tok.text;
    if (str_equal_z(name, "_")) {
        if (!dest)
            return parse_fail(p, "_ cannot be read");
        return parse_next(p) ? -1 : SLOT_SINK;
    }
    struct symbol *s = parse_symbol(p, name, p->scope);
    int64_t slot = s && s->kind == SYM_REG ? (int64_t)s->value
                   : dest                  ? parse_fail(p, "%.*s is no register", STR_ARG(name))
                   : s                     ? variable_slot(p, in, s)
                                           : special_slot(p, in, name);
    if (slot < 0)
        return -1;
    enum simt_type have = p->kernel->slots[slot].type;
    bool address = s && s->kind != SYM_REG && simt_types[type].bits >= 32;
    // special registers may be moved to 64-bit registers too, except for %clock64 and the like
    if (!address && !fits_register(have, type, wider))
        return parse_fail(p, "%.*s is .%s where .%s is meant", STR_ARG(name), simt_types[have].name,
                          simt_types[type].name);
    return parse_next(p) ? -1 : slot;
}

static int add_register(struct simt_parser *p, struct simt_operand *o, int64_t slot)
{
    struct simt_kernel *k = p->kernel;
    if (slot < 0)
        return -1;
    if (!parse_grow(&k->regs, &k->cap_regs, k->n_regs + 1, sizeof(*k->regs)))
        return fail(p->err, E_MEMORY, "no memory for a module");
    if (!o->count)
        o->first = (uint32_t)k->n_regs;
    k->regs[k->n_regs++] = (uint32_t)slot;
    o->count++;
    return 0;
}

static int vector(struct simt_parser *p, struct simt_insn *in, struct simt_operand *o, enum simt_type type, bool dest,
                  bool wider)
{
    o->kind = K_VECTOR;
    do {
        if (o->count == 8 || parse_next(p))
            return parse_fail(p, "a vector has 8 registers at most");
        if (add_register(p, o, scalar(p, in, type, dest, wider)))
            return -1;
    } while (parse_sign(p, ','));
    return parse_expect(p, '}');
}

static int memory(struct simt_parser *p, struct simt_insn *in, struct simt_operand *o)
{
    o->kind = K_MEMORY;
    if (parse_expect(p, '['))
        return -1;
    if (p->tok.kind == TOK_INT) {
        if (add_register(p, o, immediate(p, T_B64, false)))
            return -1;
    } else {
        struct symbol *s = parse_symbol(p, p->tok.text, p->scope);
        bool narrow = s && s->kind == SYM_REG && simt_types[p->kernel->slots[s->value].type].bits == 32;
        bool small = narrow && (in->mods & (B(SHARED) | B(LOCAL) | B(CONST) | B(PARAM)));
        if (s && s->kind == SYM_PARAM && !(in->mods & B(PARAM)))
            return parse_fail(p, "a parameter is read with ld.param");
        bool either = in->op == OP_CP_ASYNC || in->op == OP_LDMATRIX || in->op == OP_BULK;
        if (add_register(p, o, scalar(p, in, small || (narrow && either) ? T_B32 : T_B64, false, false)))
            return -1;
    }
    if (parse_sign(p, '+') || parse_sign(p, '-')) {
        bool minus = parse_sign(p, '-');
        if (parse_next(p))
            return -1;
        if (parse_sign(p, '-')) {
            minus = !minus;
            if (parse_next(p))
                return -1;
        }
        if (p->tok.kind != TOK_INT)
            return parse_fail(p, "an offset is a number");
        o->offset = (int64_t)(minus ? 0 - p->tok.value : p->tok.value);
        if (parse_next(p))
            return -1;
    }
    return parse_expect(p, ']');
}

static enum simt_type twice(enum simt_type t)
{
    static const uint8_t wide[T_COUNT] = {[T_U16] = T_U32, [T_U32] = T_U64, [T_S16] = T_S32, [T_S32] = T_S64};
    return wide[t];
}

// The type of the registers of a matrix fragment, by the position of the operand.
static enum simt_type fragment_type(const struct simt_insn *in, unsigned place)
{
    enum simt_type t = in->type[0];
    if (in->op == OP_MMA)
        t = in->type[place];
    if (in->op == OP_WMMA_MMA)
        t = place == 0 ? in->type[0] : place == 3 ? in->type[1] : T_F16;
    return t == T_F32 ? T_F32 : T_B32;
}

static enum simt_type operand_type(const struct simt_insn *in, char letter, unsigned place)
{
    enum simt_type t = in->type[0], last = in->type[in->n_types ? in->n_types - 1 : 0];
    bool wide = (in->mods & B(WIDE)) != 0;
    if (in->op == OP_MMA || in->op >= OP_LDMATRIX)
        if (letter == 'V' || letter == 'v')
            return fragment_type(in, place);
    if (in->op == OP_CVT)
        t = letter == 't' ? last : t;
    switch (letter) {
    case 'u':
    case 'U':
    case 'i':
        return T_B32;
    case 'p':
        return T_PRED;
    case 'e':
        return in->op == OP_ELECT ? T_B32 : t;
    case 'd':
        return wide ? twice(t) : in->op == OP_DP4A || in->op == OP_DP2A ? T_B32 : t;
    case 'w':
        return wide ? twice(t) : t;
    case 'a':
        return in->op == OP_DP4A || in->op == OP_DP2A ? T_B32 : t;
    default:
        return t;
    }
}

static int predicate_pair(struct simt_parser *p, struct simt_insn *in, struct simt_operand *o, enum simt_type first)
{
    if (add_register(p, o, scalar(p, in, first, true, false)))
        return -1;
    if (!parse_sign(p, '|'))
        return 0;
    return parse_next(p) || add_register(p, o, scalar(p, in, T_PRED, true, false)) ? -1 : 0;
}

static int jump(struct simt_parser *p, struct simt_operand *o)
{
    o->kind = K_LABEL;
    if (p->tok.kind != TOK_WORD)
        return parse_fail(p, "a label is needed");
    if (!parse_grow(&p->jumps, &p->cap_jumps, p->n_jumps + 1, sizeof(*p->jumps)))
        return fail(p->err, E_MEMORY, "no memory for a module");
    p->jumps[p->n_jumps++] = (struct pending_jump){p->tok.text, p->kernel->n_insns, p->scope, p->tok.line};
    return parse_next(p);
}

static int operand(struct simt_parser *p, struct simt_insn *in, char letter)
{
    unsigned place = in->n_operands;
    struct simt_operand *o = &in->o[in->n_operands++];
    enum simt_type type = operand_type(in, letter, place);
    bool dest = strchr("dUVqe", letter) != NULL;
    // Loads, stores and conversions accept registers wider than their type; a pack takes narrower ones.
    bool wider = in->op == OP_CVT || ((in->op == OP_LD || in->op == OP_ST) && simt_types[type].kind != C_FLOAT);
    if (letter == 'm')
        return memory(p, in, o);
    if (letter == 'l')
        return jump(p, o);
    if (letter == 'q')
        return predicate_pair(p, in, o, T_PRED);
    if (letter == 'e')
        return predicate_pair(p, in, o, type);
    if (letter == 'p' && parse_sign(p, '!')) {
        o->negated = true;
        if (parse_next(p))
            return -1;
    }
    if ((letter == 'V' || letter == 'v') && parse_sign(p, '{')) {
        if (in->op == OP_MOV)
            type = simt_types[type].bits == 64 ? T_B32 : T_B16;
        return vector(p, in, o, type, dest, wider);
    }
    return add_register(p, o, scalar(p, in, type, dest, wider));
}

static bool counts_agree(const struct simt_insn *in)
{
    const struct simt_operand *o = in->o;
    unsigned n = in->mods & B(V2) ? 2 : in->mods & B(V4) ? 4 : 1;
    unsigned x = in->mods & B(X4) ? 4 : in->mods & B(X2) ? 2 : 1;
    switch (in->op) {
    case OP_LD:
        return o[0].count == n && simt_types[in->type[0]].bits * n <= 128;
    case OP_ST:
        return o[1].count == n && simt_types[in->type[0]].bits * n <= 128;
    case OP_LDMATRIX:
        return o[0].count == x;
    case OP_MOV: // a vector is the two halves of a register
        return (o[0].kind != K_VECTOR && o[1].kind != K_VECTOR) ||
               (simt_types[in->type[0]].bits >= 32 && o[0].count + o[1].count == 3);
    case OP_ATOM:
        return (in->n_operands == 4) == (in->combine == DO_CAS);
    default:
        return true;
    }
}

static int operands(struct simt_parser *p, struct simt_insn *in, const struct simt_opcode *op)
{
    bool optional = false;
    for (const char *c = op->operands; *c; c++) {
        if (*c == '?') {
            optional = true;
            continue;
        }
        if (optional && !parse_sign(p, ','))
            break;
        if (in->n_operands && parse_expect(p, ','))
            return -1;
        if (operand(p, in, *c))
            return -1;
    }
    if (!counts_agree(in))
        return parse_fail(p, "%s: the number of operands is wrong", op->name);
    return parse_expect(p, ';');
}

static int guard(struct simt_parser *p, struct simt_insn *in)
{
    if (!parse_sign(p, '@'))
        return 0;
    if (parse_next(p))
        return -1;
    if (parse_sign(p, '!')) {
        in->guard_negated = true;
        if (parse_next(p))
            return -1;
    }
    int64_t slot = scalar(p, in, T_PRED, false, false);
    in->guard = (uint32_t)slot;
    return slot < 0 ? -1 : 0;
}

int parse_instruction(struct simt_parser *p)
{
    struct simt_kernel *k = p->kernel;
    struct simt_insn in = {.line = p->tok.line};
    const struct simt_opcode *op;
    if (guard(p, &in) || form(p, &in, &op) || operands(p, &in, op))
        return -1;
    if (!parse_grow(&k->insns, &k->cap_insns, k->n_insns + 1, sizeof(*k->insns)))
        return fail(p->err, E_MEMORY, "no memory for a module");
    k->insns[k->n_insns++] = in;
    return 0;
}
