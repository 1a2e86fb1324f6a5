// Executes arithmetic, logic, comparisons and moves, 32 lanes at a time. All lanes are computed; the results of active
// lanes are stored.
#include "tests/ptx/simt_machine.h"

#include <fenv.h>
#include <math.h>

#define EACH(expr)                                                                                                     \
    do {                                                                                                               \
        for (int i = 0; i < LANES; i++)                                                                                \
            d[i] = (uint64_t)(expr);                                                                                   \
    } while (0)

void simt_commit(struct warp *w, const struct simt_insn *in, unsigned o, unsigned n, const uint64_t d[LANES],
                 uint32_t lanes)
{
    const struct simt_kernel *k = w->cta->launch->k;
    uint32_t slot = k->regs[in->o[o].first + n];
    unsigned bits = simt_types[k->slots[slot].type].bits;
    uint64_t mask = bits == 64 ? UINT64_MAX : (1ull << bits) - 1, *r = w->r[slot];
    if (slot == SLOT_SINK)
        return;
    if (lanes == UINT32_MAX) {
        for (int i = 0; i < LANES; i++)
            r[i] = d[i] & mask;
    } else {
        for (int i = 0; i < LANES; i++)
            if (lanes >> i & 1)
                r[i] = d[i] & mask;
    }
    w->written[slot] |= lanes;
}

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

static uint64_t multiply(const struct simt_insn *in, unsigned bits, bool is_signed, uint64_t a, uint64_t b)
{
    int128 p = is_signed ? (int128)simt_signed(a, bits) * simt_signed(b, bits) : (int128)((uint128)a * b);
    return (uint64_t)(in->mods & B(HI) ? p >> bits : p);
}

static uint64_t divide(const struct simt_insn *in, unsigned bits, bool is_signed, uint64_t a, uint64_t b)
{
    bool rem = in->op == OP_REM;
    if (!b)
        return rem ? a : UINT64_MAX;
    if (!is_signed)
        return rem ? a % b : a / b;
    int64_t x = simt_signed(a, bits), y = simt_signed(b, bits);
    if (y == -1)
        return rem ? 0 : 0 - (uint64_t)x;
    return (uint64_t)(rem ? x % y : x / y);
}

static uint64_t reverse(uint64_t v, unsigned bits)
{
    uint64_t r = 0;
    for (unsigned i = 0; i < bits; i++)
        r |= (v >> i & 1) << (bits - 1 - i);
    return r;
}

// bfind: returns the position of the highest bit that differs from the sign, or with .shiftamt its distance from the
// top; all ones if there is no such bit.
static uint64_t leading(const struct simt_insn *in, uint64_t a, unsigned bits, bool is_signed)
{
    uint64_t v = is_signed && simt_signed(a, bits) < 0 ? ~a << (64 - bits) >> (64 - bits) : a;
    if (!v)
        return UINT32_MAX;
    unsigned at = 63 - (unsigned)__builtin_clzll(v);
    return in->mods & B(SHIFTAMT) ? bits - 1 - at : at;
}

static uint64_t permute(uint64_t a, uint64_t b, uint64_t selector)
{
    uint64_t from = (a & UINT32_MAX) | b << 32, r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = selector >> 4 * i & 15;
        uint8_t v = (uint8_t)(from >> 8 * (s & 7));
        r |= (uint64_t)(s & 8 ? (uint8_t)((int8_t)v >> 7) : v) << 8 * i;
    }
    return r;
}

static uint64_t logic3(uint64_t a, uint64_t b, uint64_t c, unsigned table)
{
    uint64_t r = 0;
    for (unsigned i = 0; i < 8; i++)
        if (table >> i & 1)
            r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return r;
}

static uint64_t field(uint64_t a, uint64_t pos, uint64_t len, unsigned bits, bool is_signed)
{
    pos &= 255;
    len &= 255;
    if (!len)
        return 0;
    uint64_t msb = MIN(pos + len - 1, bits - 1);
    bool sign = is_signed && (a >> msb & 1);
    uint64_t v = pos < 64 ? a >> pos : 0;
    uint64_t width = pos < bits ? MIN(len, bits - pos) : 0, low = width < 64 ? (1ull << width) - 1 : UINT64_MAX;
    return (v & low) | (sign ? ~low : 0);
}

static uint64_t insert(uint64_t a, uint64_t b, uint64_t pos, uint64_t len, unsigned bits)
{
    pos &= 255;
    len &= 255;
    if (pos >= bits || !len)
        return b;
    uint64_t mask = (len < 64 ? (1ull << len) - 1 : UINT64_MAX) << pos;
    return (b & ~mask) | (a << pos & mask);
}

static uint64_t funnel(const struct simt_insn *in, uint64_t a, uint64_t b, uint64_t c)
{
    unsigned n = in->mods & B(WRAP) ? c & 31 : (unsigned)MIN(c, 32);
    uint64_t both = b << 32 | (a & UINT32_MAX);
    return in->mods & B(LEFT) ? both << n >> 32 : both >> n;
}

static uint64_t dot(const struct simt_insn *in, uint64_t a, uint64_t b, uint64_t c)
{
    bool two = in->op == OP_DP2A, sa = in->type[0] == T_S32, sb = in->type[1] == T_S32;
    for (unsigned i = 0; i < (two ? 2 : 4); i++) {
        unsigned bits = two ? 16 : 8, shift = bits * i, at = two ? 8 * (i + (in->mods & B(HI) ? 2 : 0)) : 8 * i;
        uint64_t x = a >> shift & ((1u << bits) - 1), y = b >> at & 255;
        c += (uint64_t)((sa ? simt_signed(x, bits) : (int64_t)x) * (sb ? simt_signed(y, 8) : (int64_t)y));
    }
    return c;
}

static uint64_t order(uint64_t a, uint64_t b, unsigned bits, bool is_signed, bool max)
{
    bool less = is_signed ? simt_signed(a, bits) < simt_signed(b, bits) : a < b;
    return less != max ? a : b;
}

static bool integer_op(const struct simt_insn *in, const uint64_t *a, const uint64_t *b, const uint64_t *c,
                       const uint64_t *e, uint64_t *d)
{
    const struct simt_type_info *t = &simt_types[in->type[0]];
    unsigned bits = t->bits;
    bool s = t->kind == C_SIGNED;
    switch (in->op) {
    case OP_ADD:
        if (in->mods & B(SAT))
            EACH(MAX(INT32_MIN, MIN(INT32_MAX, simt_signed(a[i], 32) + simt_signed(b[i], 32))));
        else
            EACH(a[i] + b[i]);
        break;
    case OP_SUB:
        if (in->mods & B(SAT))
            EACH(MAX(INT32_MIN, MIN(INT32_MAX, simt_signed(a[i], 32) - simt_signed(b[i], 32))));
        else
            EACH(a[i] - b[i]);
        break;
    case OP_MUL:
        if (bits <= 32 && !s && !(in->mods & B(HI)))
            EACH(a[i] * b[i]);
        else
            EACH(multiply(in, bits, s, a[i], b[i]));
        break;
    case OP_MAD:
        if (bits <= 32 && !s && !(in->mods & B(HI)))
            EACH(a[i] * b[i] + c[i]);
        else
            EACH(multiply(in, bits, s, a[i], b[i]) + c[i]);
        break;
    case OP_DIV:
    // clang-format off
    case OP_REM: EACH(divide(in, bits, s, a[i], b[i])); break;
    case OP_MIN: EACH(order(a[i], b[i], bits, s, false)); break;
    case OP_MAX: EACH(order(a[i], b[i], bits, s, true)); break;
    case OP_ABS: EACH(simt_signed(a[i], bits) < 0 ? 0 - a[i] : a[i]); break;
    case OP_NEG: EACH(0 - a[i]); break;
    case OP_AND: EACH(a[i] & b[i]); break;
    case OP_OR: EACH(a[i] | b[i]); break;
    case OP_XOR: EACH(a[i] ^ b[i]); break;
    case OP_NOT: EACH(~a[i]); break;
    case OP_SHL: EACH(b[i] >= bits ? 0 : a[i] << b[i]); break;
    // clang-format on
    case OP_SHR:
        if (s)
            EACH(simt_signed(a[i], bits) >> MIN(b[i], bits - 1));
        else
            EACH(b[i] >= bits ? 0 : a[i] >> b[i]);
        break;
    // clang-format off
    case OP_SHF: EACH(funnel(in, a[i], b[i], c[i])); break;
    case OP_BFE: EACH(field(a[i], b[i], c[i], bits, s)); break;
    case OP_BFI: EACH(insert(a[i], b[i], c[i], e[i], bits)); break;
    case OP_BREV: EACH(reverse(a[i], bits)); break;
    case OP_POPC: EACH(__builtin_popcountll(a[i])); break;
    case OP_CLZ: EACH(a[i] ? (unsigned)__builtin_clzll(a[i]) - (64 - bits) : bits); break;
    case OP_BFIND: EACH(leading(in, a[i], bits, s)); break;
    case OP_PRMT: EACH(permute(a[i], b[i], c[i])); break;
    case OP_LOP3: EACH(logic3(a[i], b[i], c[i], (unsigned)e[i])); break;
    case OP_DP4A:
    case OP_DP2A: EACH(dot(in, a[i], b[i], c[i])); break;
    default: return false;
        // clang-format on
    }
    return true;
}

// ---- comparisons

static bool compare_floats(enum simt_compare c, double a, double b)
{
    bool nan = isnan(a) || isnan(b);
    switch (c) {
    // clang-format off
    case CMP_EQ: return a == b;
    case CMP_NE: return !nan && a != b;
    case CMP_LT: return a < b;
    case CMP_LE: return a <= b;
    case CMP_GT: return a > b;
    case CMP_GE: return a >= b;
    case CMP_EQU: return nan || a == b;
    case CMP_NEU: return nan || a != b;
    case CMP_LTU: return nan || a < b;
    case CMP_LEU: return nan || a <= b;
    case CMP_GTU: return nan || a > b;
    case CMP_GEU: return nan || a >= b;
    case CMP_NUM: return !nan;
    default: return nan;
        // clang-format on
    }
}

static bool compare_integers(enum simt_compare c, uint64_t a, uint64_t b, const struct simt_type_info *t)
{
    bool less = t->kind == C_SIGNED ? simt_signed(a, t->bits) < simt_signed(b, t->bits) : a < b;
    switch (c) {
    // clang-format off
    case CMP_EQ: return a == b;
    case CMP_NE: return a != b;
    case CMP_LT: return less;
    case CMP_LE: return less || a == b;
    case CMP_GT: return !less && a != b;
    default: return !less;
        // clang-format on
    }
}

static double as_double(const struct simt_insn *in, uint64_t v)
{
    if (in->type[0] == T_F32) {
        float f = simt_f32(v);
        return (in->mods & B(FTZ)) && fpclassify(f) == FP_SUBNORMAL ? 0 : (double)f;
    }
    if (in->type[0] == T_F16)
        return simt_half((uint16_t)v, false);
    double x;
    memcpy(&x, &v, 8);
    return x;
}

static void set_predicates(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    const uint64_t *a = simt_source(w, in, 1, 0), *b = simt_source(w, in, 2, 0), *c = NULL;
    const struct simt_type_info *t = &simt_types[in->type[0]];
    uint64_t d[LANES], q[LANES];
    for (int i = 0; i < LANES; i++)
        d[i] = t->kind == C_FLOAT ? compare_floats(in->compare, as_double(in, a[i]), as_double(in, b[i]))
                                  : compare_integers(in->compare, a[i], b[i], t);
    if (in->n_operands == 4)
        c = simt_source(w, in, 3, 0);
    for (int i = 0; i < LANES; i++) {
        uint64_t p = c ? (c[i] & 1) ^ in->o[3].negated : 1, not = !d[i];
        q[i] = !c ? not : in->combine == DO_AND ? (not &p) : in->combine == DO_OR ? (not | p) : (not ^p);
        d[i] = !c ? d[i] : in->combine == DO_AND ? (d[i] & p) : in->combine == DO_OR ? (d[i] | p) : (d[i] ^ p);
    }
    simt_commit(w, in, 0, 0, d, lanes);
    if (in->o[0].count == 2)
        simt_commit(w, in, 0, 1, q, lanes);
}

// ---- moves

// mov between a register and a vector of narrower ones.
static void move(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    unsigned bits = simt_types[in->type[0]].bits, into = in->o[0].count, from = in->o[1].count;
    uint64_t d[LANES] = {0};
    if (into == 1 && from == 1) {
        memcpy(d, simt_source(w, in, 1, 0), sizeof(d));
        simt_commit(w, in, 0, 0, d, lanes);
        return;
    }
    for (unsigned n = 0; n < from; n++)
        for (int i = 0; i < LANES; i++)
            d[i] |= simt_source(w, in, 1, n)[i] << bits / from * n;
    for (unsigned n = 0; n < into; n++) {
        uint64_t part[LANES];
        for (int i = 0; i < LANES; i++)
            part[i] = d[i] >> bits / into * n;
        simt_commit(w, in, 0, n, part, lanes);
    }
}

static void convert(const struct warp *w, const struct simt_insn *in, uint64_t d[LANES])
{
    const uint64_t *a = simt_source(w, in, 1, 0);
    enum simt_type to = in->type[0], from = in->type[1];
    if (in->n_operands == 3) {
        const uint64_t *b = simt_source(w, in, 2, 0);
        enum simt_type half = to == T_F16X2 ? T_F16 : T_BF16;
        EACH(simt_convert(in, half, from, a[i]) << 16 | simt_convert(in, half, from, b[i]));
        return;
    }
    EACH(simt_convert(in, to, from, a[i]));
}

static void cast_address(const struct simt_insn *in, const uint64_t *a, uint64_t d[LANES])
{
    uint64_t base = in->mods & B(SHARED) ? SHARED_WINDOW : in->mods & B(LOCAL) ? LOCAL_WINDOW : 0;
    if (in->mods & B(TO))
        EACH(a[i] - base);
    else
        EACH(a[i] + base);
}

static int set_rounding(const struct simt_insn *in)
{
    int mode = in->mods & B(RZ)   ? FE_TOWARDZERO
               : in->mods & B(RM) ? FE_DOWNWARD
               : in->mods & B(RP) ? FE_UPWARD
                                  : FE_TONEAREST;
    if (mode != FE_TONEAREST)
        fesetround(mode);
    return mode;
}

int simt_alu(struct warp *w, const struct simt_insn *in, uint32_t lanes)
{
    uint64_t d[LANES];
    if (in->op == OP_SETP)
        return set_predicates(w, in, lanes), 0;
    if (in->op == OP_MOV)
        return move(w, in, lanes), 0;
    const uint64_t *a = simt_source(w, in, 1, 0), *b = in->n_operands > 2 ? simt_source(w, in, 2, 0) : a;
    const uint64_t *c = in->n_operands > 3 ? simt_source(w, in, 3, 0) : a;
    const uint64_t *e = in->n_operands > 4 ? simt_source(w, in, 4, 0) : a;
    int mode = set_rounding(in);
    if (in->op == OP_CVT)
        convert(w, in, d);
    else if (in->op == OP_CVTA)
        cast_address(in, a, d);
    else if (in->op == OP_SELP)
        EACH(((c[i] & 1) ^ in->o[3].negated) ? a[i] : b[i]);
    else if (simt_types[in->type[0]].kind == C_FLOAT)
        for (int i = 0; i < LANES; i++) {
            d[i] = 0;
            if (lanes >> i & 1)
                simt_float_op(in, in->type[0], a[i], b[i], c[i], &d[i]);
        }
    else
        integer_op(in, a, b, c, e, d);
    if (mode != FE_TONEAREST)
        fesetround(FE_TONEAREST);
    simt_commit(w, in, 0, 0, d, lanes);
    return 0;
}
