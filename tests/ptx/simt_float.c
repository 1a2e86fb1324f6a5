// Floating point of the PTX ISA: f16, bf16, f32, f64 and conversions between them. The .approx functions are rounded
// correctly or nearly so, which is within every bound that the ISA states.
#include "tests/ptx/simt_machine.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>

double simt_half(uint16_t bits, bool bf16)
{
    if (bf16)
        return (double)simt_f32((uint64_t)bits << 16);
    int e = bits >> 10 & 31, m = bits & 1023;
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return bits >> 15 ? -v : v;
}

// Rounds in the current mode of the floating-point environment.
uint16_t simt_to_half(double x, bool bf16)
{
    int bits = bf16 ? 7 : 10, low = bf16 ? -126 : -14, top = bf16 ? 0x7f80 : 0x7c00, e;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x))
        return 0x7fff;
    if (isinf(x))
        return (uint16_t)(sign | top);
    if (x == 0)
        return sign;
    frexp(x, &e);
    e = MAX(e - 1, low);
    int64_t r = llabs(llrint(ldexp(x, bits - e)));
    int64_t v = ((int64_t)(e - low) << bits) + r;
    if (v >= top)
        v = top - ((fegetround() == FE_TOWARDZERO || fegetround() == (sign ? FE_UPWARD : FE_DOWNWARD)) ? 1 : 0);
    return (uint16_t)(sign | v);
}

float simt_f32(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float f;
    memcpy(&f, &low, 4);
    return f;
}

uint64_t simt_f32_bits(float f)
{
    uint32_t bits = 0x7fffffff;
    if (!isnan(f))
        memcpy(&bits, &f, 4);
    return bits;
}

static double f64(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, 8);
    return d;
}

static uint64_t f64_bits(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, 8);
    return bits;
}

static float flush(float f, bool ftz)
{
    return ftz && fpclassify(f) == FP_SUBNORMAL ? copysignf(0, f) : f;
}

// Returns a * b + c, rounded to odd. Rounding the result again to a format of at most half the bits then gives the same
// as rounding once.
static double fma_odd(double a, double b, double c)
{
    double p = a * b, s = p + c, back = s - p;
    double lost = (p - (s - back)) + (c - back);
    if (isfinite(s) && lost != 0 && !(f64_bits(s) & 1))
        s = nextafter(s, lost > 0 ? INFINITY : -INFINITY);
    return s;
}

static float f32_op(const struct simt_insn *in, float a, float b, float c)
{
    volatile float x = a, y = b; // so that a change of the rounding mode is not reasoned away
    switch (in->op) {
    // clang-format off
    case OP_ADD: return x + y;
    case OP_SUB: return x - y;
    case OP_MUL: return x * y;
    case OP_MAD:
    case OP_FMA: return fmaf(x, y, c);
    case OP_DIV: return x / y;
    case OP_MIN: return isnan(a) ? b : isnan(b) ? a : a < b || (a == b && signbit(a)) ? a : b;
    case OP_MAX: return isnan(a) ? b : isnan(b) ? a : a > b || (a == b && !signbit(a)) ? a : b;
    case OP_ABS: return fabsf(a);
    case OP_NEG: return -a;
    case OP_EX2: return (float)exp2((double)a);
    case OP_LG2: return (float)log2((double)a);
    case OP_RCP: return 1 / x;
    case OP_SQRT: return sqrtf(x);
    case OP_RSQRT: return (float)(1 / sqrt((double)a));
    case OP_SIN: return (float)sin((double)a);
    case OP_COS: return (float)cos((double)a);
    case OP_TANH: return (float)tanh((double)a);
    case OP_COPYSIGN: return copysignf(b, a);
    default: return NAN;
        // clang-format on
    }
}

static double f64_op(const struct simt_insn *in, double a, double b, double c)
{
    volatile double x = a, y = b;
    switch (in->op) {
    // clang-format off
    case OP_ADD: return x + y;
    case OP_SUB: return x - y;
    case OP_MUL: return x * y;
    case OP_MAD:
    case OP_FMA: return fma(x, y, c);
    case OP_DIV: return x / y;
    case OP_MIN: return fmin(a, b);
    case OP_MAX: return fmax(a, b);
    case OP_ABS: return fabs(a);
    case OP_NEG: return -a;
    case OP_RCP: return 1 / x;
    case OP_SQRT: return sqrt(x);
    case OP_RSQRT: return 1 / sqrt(a);
    case OP_COPYSIGN: return copysign(b, a);
    default: return NAN;
        // clang-format on
    }
}

static uint16_t half_op(const struct simt_insn *in, bool bf16, uint16_t a, uint16_t b, uint16_t c)
{
    if (in->op == OP_NEG || in->op == OP_ABS)
        return in->op == OP_NEG ? a ^ 0x8000 : a & 0x7fff;
    double x = simt_half(a, bf16), y = simt_half(b, bf16), z = simt_half(c, bf16), r;
    if (in->op == OP_FMA)
        r = fma_odd(x, y, z);
    else if (in->op == OP_EX2 || in->op == OP_TANH)
        r = in->op == OP_EX2 ? exp2(x) : tanh(x);
    else if (in->op == OP_ADD || in->op == OP_SUB)
        r = fma_odd(x, 1, in->op == OP_SUB ? -y : y);
    else
        r = in->op == OP_MUL ? x * y : (double)f32_op(in, (float)x, (float)y, 0);
    if (in->mods & B(RELU))
        r = r > 0 ? r : isnan(r) ? r : 0;
    if (in->mods & B(SAT))
        r = r > 0 ? MIN(r, 1) : 0;
    bool tiny = !bf16 && fabs(r) < 0x1p-14;
    return simt_to_half((in->mods & B(FTZ)) && tiny ? copysign(0, r) : r, bf16);
}

bool simt_float_op(const struct simt_insn *in, enum simt_type type, uint64_t a, uint64_t b, uint64_t c, uint64_t *d)
{
    bool ftz = (in->mods & B(FTZ)) != 0, bf16 = type == T_BF16 || type == T_BF16X2;
    if (type == T_F32) {
        float r = flush(f32_op(in, flush(simt_f32(a), ftz), flush(simt_f32(b), ftz), flush(simt_f32(c), ftz)), ftz);
        if (in->mods & B(SAT))
            r = r > 0 ? MIN(r, 1) : 0;
        *d = simt_f32_bits(r);
        if (in->op == OP_COPYSIGN)
            *d = (b & 0x7fffffff) | (a & 0x80000000);
        if ((in->mods & B(NAN)) && (isnan(simt_f32(a)) || isnan(simt_f32(b))))
            *d = 0x7fffffff;
    } else if (type == T_F64) {
        *d = f64_bits(f64_op(in, f64(a), f64(b), f64(c)));
    } else {
        *d = half_op(in, bf16, (uint16_t)a, (uint16_t)b, (uint16_t)c);
        if (type == T_F16X2 || type == T_BF16X2)
            *d |= (uint64_t)half_op(in, bf16, (uint16_t)(a >> 16), (uint16_t)(b >> 16), (uint16_t)(c >> 16)) << 16;
    }
    return true;
}

// ---- conversions

static double to_double(enum simt_type from, uint64_t v, bool ftz)
{
    const struct simt_type_info *t = &simt_types[from];
    if (from == T_F64)
        return f64(v);
    if (from == T_F32)
        return (double)flush(simt_f32(v), ftz);
    if (from == T_F16 || from == T_BF16)
        return simt_half((uint16_t)v, from == T_BF16);
    return t->kind == C_SIGNED ? (double)simt_signed(v, t->bits) : (double)v;
}

static double to_integral(const struct simt_insn *in, double d)
{
    return in->mods & B(RZI)   ? trunc(d)
           : in->mods & B(RMI) ? floor(d)
           : in->mods & B(RPI) ? ceil(d)
           : in->mods & B(RNI) ? rint(d)
                               : d;
}

static uint64_t float_to_int(double d, const struct simt_type_info *t)
{
    if (isnan(d))
        return t->bits == 64 ? 1ull << 63 : 0;
    double top = ldexp(1, t->kind == C_SIGNED ? t->bits - 1 : t->bits), bottom = t->kind == C_SIGNED ? -top : 0;
    if (d >= top)
        return t->kind == C_SIGNED ? (1ull << (t->bits - 1)) - 1 : UINT64_MAX;
    if (d <= bottom)
        return t->kind == C_SIGNED ? 1ull << 63 >> (64 - t->bits) : 0;
    return t->kind == C_SIGNED ? (uint64_t)(int64_t)d : (uint64_t)d;
}

static uint64_t int_to_int(const struct simt_insn *in, const struct simt_type_info *to,
                           const struct simt_type_info *from, uint64_t v)
{
    v = from->bits < 64 ? v & ((1ull << from->bits) - 1) : v;
    bool negative = from->kind == C_SIGNED && simt_signed(v, from->bits) < 0;
    if (negative)
        v = (uint64_t)simt_signed(v, from->bits);
    if (!(in->mods & B(SAT)))
        return v;
    if (to->kind == C_UNSIGNED)
        return negative ? 0 : to->bits < 64 ? MIN(v, (1ull << to->bits) - 1) : v;
    uint64_t top = (1ull << (to->bits - 1)) - 1;
    if (!negative)
        return MIN(v, top);
    return (int64_t)v < -(int64_t)top - 1 ? ~top : v;
}

uint64_t simt_convert(const struct simt_insn *in, enum simt_type to, enum simt_type from, uint64_t v)
{
    const struct simt_type_info *t = &simt_types[to], *f = &simt_types[from];
    if (t->kind != C_FLOAT && f->kind != C_FLOAT) {
        v = int_to_int(in, t, f, v);
    } else if (t->kind != C_FLOAT) {
        v = float_to_int(to_integral(in, to_double(from, v, in->mods & B(FTZ))), t);
    } else {
        volatile double d = to_integral(in, to_double(from, v, in->mods & B(FTZ)));
        if (in->mods & B(SAT))
            d = d > 0 ? MIN(d, 1) : 0;
        bool exact = f->bits < 64 || f->kind == C_FLOAT;
        if (to == T_F64)
            return f64_bits(d);
        if (to == T_F32)
            return simt_f32_bits(flush(exact                 ? (float)d
                                       : f->kind == C_SIGNED ? (float)(int64_t)v
                                                             : (float)v,
                                       in->mods & B(FTZ)));
        return simt_to_half(d, to == T_BF16);
    }
    // A value narrower than its register is extended by its own type.
    if (t->kind == C_SIGNED)
        return (uint64_t)simt_signed(v, t->bits);
    return t->bits < 64 ? v & ((1ull << t->bits) - 1) : v;
}
