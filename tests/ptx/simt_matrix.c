// Executes ldmatrix, mma.sync and wmma. Fragments are distributed over a warp as the ISA defines; for wmma, whose
// layout is opaque, the layout is our own. Products of integers are exact. Sums of floats are computed in double and
// rounded once, because the ISA leaves their order open.
#include "tests/ptx/simt_machine.h"

enum { SIDE = 16, MAX_K = 32 };

static int load_matrices(struct warp *w, const struct simt_insn *in)
{
    unsigned n = in->o[0].count;
    for (unsigned m = 0; m < n; m++) {
        uint16_t tile[8][8];
        uint64_t d[LANES];
        for (int row = 0; row < 8; row++) {
            int lane = (int)(8 * m) + row;
            const uint8_t *p = simt_touch(w, in, lane, simt_address(w, in, 1, lane), 16, READ);
            if (!p)
                return -1;
            memcpy(tile[row], p, 16);
        }
        for (int lane = 0; lane < LANES; lane++) {
            int g = lane / 4, t = lane % 4 * 2;
            bool turn = (in->mods & B(TRANS)) != 0;
            uint64_t low = turn ? tile[t][g] : tile[g][t], high = turn ? tile[t + 1][g] : tile[g][t + 1];
            d[lane] = low | high << 16;
        }
        simt_commit(w, in, 0, m, d, UINT32_MAX);
    }
    return 0;
}

// ---- elements of fragments

static double element(enum simt_type t, uint64_t reg, unsigned i)
{
    switch (t) {
    case T_F16:
    // clang-format off
    case T_BF16: return simt_half((uint16_t)(reg >> 16 * i), t == T_BF16);
    case T_S8: return (double)(int8_t)(reg >> 8 * i);
    case T_U8: return (double)(uint8_t)(reg >> 8 * i);
    case T_S32: return (double)(int32_t)reg;
    default: return (double)simt_f32(reg);
        // clang-format on
    }
}

static uint64_t result(const struct simt_insn *in, enum simt_type t, double v)
{
    if (t == T_F16)
        return simt_to_half(v, false);
    if (t == T_F32)
        return simt_f32_bits((float)v);
    if (in->mods & B(SATFINITE))
        v = MAX(INT32_MIN, MIN(INT32_MAX, v));
    return (uint32_t)(int64_t)v;
}

static bool known_shape(const struct simt_insn *in, unsigned m, unsigned n, unsigned k)
{
    return in->m == m && in->n == n && in->k == k;
}

static int check_mma(const struct warp *w, const struct simt_insn *in)
{
    enum simt_type d = in->type[0], a = in->type[1], b = in->type[2], c = in->type[3];
    bool ints = a == T_S8 || a == T_U8, halves = a == T_F16 || a == T_BF16;
    unsigned per = ints ? 4 : 2, tall = in->m / 8;
    bool shape = ints ? known_shape(in, 8, 8, 16) || known_shape(in, 16, 8, 16) || known_shape(in, 16, 8, 32)
                      : known_shape(in, 16, 8, 8) || known_shape(in, 16, 8, 16);
    bool types = ints ? d == T_S32 && c == T_S32 && (b == T_S8 || b == T_U8)
                      : halves && a == b && (d == T_F32 || (d == T_F16 && a == T_F16)) && (c == T_F32 || c == T_F16);
    unsigned deep = shape ? in->k / (4 * per) : 0;
    bool counts = in->o[1].count == tall * deep && in->o[2].count == deep &&
                  in->o[0].count == (d == T_F16 ? tall : 2 * tall) && in->o[3].count == (c == T_F16 ? tall : 2 * tall);
    if (!shape || !types || !counts || in->n_layouts != 2 || in->layout[0] != 0 || in->layout[1] != 1)
        return simt_fault(w, in, 0, "mma of a shape, types or registers that are not known");
    return 0;
}

static int mma(struct warp *w, const struct simt_insn *in)
{
    if (check_mma(w, in))
        return -1;
    bool ints = in->type[1] == T_S8 || in->type[1] == T_U8;
    unsigned per = ints ? 4 : 2, tall = in->m / 8;
    double a[SIDE][MAX_K], b[8][MAX_K], c[SIDE][8];
    for (unsigned lane = 0; lane < LANES; lane++) {
        unsigned g = lane / 4, t = lane % 4;
        for (unsigned r = 0; r < in->o[1].count; r++)
            for (unsigned i = 0; i < per; i++)
                a[g + 8 * (r % tall)][per * t + r / tall * 4 * per + i] =
                    element(in->type[1], simt_source(w, in, 1, r)[lane], i);
        for (unsigned r = 0; r < in->o[2].count; r++)
            for (unsigned i = 0; i < per; i++)
                b[g][per * t + r * 4 * per + i] = element(in->type[2], simt_source(w, in, 2, r)[lane], i);
        for (unsigned r = 0; r < 2 * tall; r++) {
            bool packed = in->type[3] == T_F16;
            c[g + r / 2 * 8][2 * t + r % 2] =
                element(in->type[3], simt_source(w, in, 3, packed ? r / 2 : r)[lane], packed ? r % 2 : 0);
        }
    }
    for (unsigned i = 0; i < in->m; i++)
        for (unsigned j = 0; j < 8; j++)
            for (unsigned k = 0; k < in->k; k++)
                c[i][j] += a[i][k] * b[j][k];
    for (unsigned r = 0; r < in->o[0].count; r++) {
        uint64_t d[LANES];
        bool packed = in->type[0] == T_F16;
        for (unsigned lane = 0; lane < LANES; lane++) {
            unsigned g = lane / 4, t = lane % 4;
            const double *row = c[g + (packed ? r : r / 2) * 8] + 2 * t;
            d[lane] = packed ? result(in, T_F16, row[0]) | result(in, T_F16, row[1]) << 16
                             : result(in, in->type[0], row[r % 2]);
        }
        simt_commit(w, in, 0, r, d, UINT32_MAX);
    }
    return 0;
}

// ---- wmma m16n16k16: lane l holds row l / 2, its left or right half. Fragments of a and b have it twice.

static int check_wmma(const struct warp *w, const struct simt_insn *in, unsigned data, enum simt_type t, bool operand)
{
    unsigned need = t == T_F32 || operand ? 8 : 4;
    if (!known_shape(in, 16, 16, 16) || in->o[data].count != need || !in->n_layouts)
        return simt_fault(w, in, 0, "wmma of a shape or registers that are not known");
    return 0;
}

static int wmma_memory(struct warp *w, const struct simt_insn *in, bool operand)
{
    bool store = in->op == OP_WMMA_STORE;
    unsigned data = store ? 1 : 0, mem = store ? 0 : 1, width = in->type[0] == T_F32 ? 4 : 2, per = 4 / width;
    uint64_t d[8][LANES] = {{0}};
    if (check_wmma(w, in, data, in->type[0], operand))
        return -1;
    for (int lane = 0; lane < LANES; lane++) {
        uint64_t base = simt_address(w, in, mem, lane);
        uint64_t stride = in->n_operands > 2 ? simt_source(w, in, 2, 0)[lane] : SIDE;
        if (base % 32)
            return simt_fault(w, in, lane, "0x%llx is not aligned to 32", (unsigned long long)base);
        if (stride * width % 16 || stride < SIDE)
            return simt_fault(w, in, lane, "a stride of %llu", (unsigned long long)stride);
        for (unsigned i = 0; i < 8; i++) {
            uint64_t row = (uint64_t)lane / 2, col = (uint64_t)lane % 2 * 8 + i, v = 0;
            uint64_t at = base + width * (in->layout[0] ? col * stride + row : row * stride + col);
            uint8_t *p = simt_touch(w, in, lane, at, width, store ? WRITE : READ);
            if (!p)
                return -1;
            if (store)
                v = simt_source(w, in, 1, i / per)[lane] >> 16 * (i % per);
            memcpy(store ? p : (uint8_t *)&v, store ? (const uint8_t *)&v : p, width);
            d[i / per][lane] |= v << 16 * (i % per);
        }
    }
    for (unsigned r = 0; !store && r < in->o[0].count; r++)
        simt_commit(w, in, 0, r, d[operand ? r % 4 : r], UINT32_MAX);
    return 0;
}

static int wmma(struct warp *w, const struct simt_insn *in)
{
    double a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];
    bool in16 = in->type[1] == T_F16, out16 = in->type[0] == T_F16;
    if (check_wmma(w, in, 0, in->type[0], false) || check_wmma(w, in, 1, T_F16, true) ||
        check_wmma(w, in, 2, T_F16, true) || check_wmma(w, in, 3, in->type[1], false))
        return -1;
    for (int lane = 0; lane < LANES; lane++)
        for (unsigned i = 0; i < 8; i++) {
            int row = lane / 2, col = lane % 2 * 8 + (int)i;
            a[row][col] = element(T_F16, simt_source(w, in, 1, i / 2)[lane], i % 2);
            b[row][col] = element(T_F16, simt_source(w, in, 2, i / 2)[lane], i % 2);
            c[row][col] = element(in->type[1], simt_source(w, in, 3, in16 ? i / 2 : i)[lane], in16 ? i % 2 : 0);
        }
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            for (int k = 0; k < SIDE; k++)
                c[i][j] += a[i][k] * b[k][j];
    for (unsigned r = 0; r < in->o[0].count; r++) {
        uint64_t d[LANES];
        for (unsigned lane = 0; lane < LANES; lane++) {
            const double *row = c[lane / 2] + lane % 2 * 8;
            d[lane] = out16 ? result(in, T_F16, row[2 * r]) | result(in, T_F16, row[2 * r + 1]) << 16
                            : result(in, T_F32, row[r]);
        }
        simt_commit(w, in, 0, r, d, UINT32_MAX);
    }
    return 0;
}

int simt_matrix(struct warp *w, const struct simt_insn *in)
{
    switch (in->op) {
    // clang-format off
    case OP_LDMATRIX: return load_matrices(w, in);
    case OP_MMA: return mma(w, in);
    case OP_WMMA_MMA: return wmma(w, in);
    default: return wmma_memory(w, in, in->operand_fragment);
        // clang-format on
    }
}
