// The tables of the instruction set: types, modifiers, opcodes.
#include "tests/ptx/simt_isa.h"

// clang-format off
const struct simt_type_info simt_types[T_COUNT] = {
    [T_NONE] = {"", 0, C_BITS},
    [T_B8] = {"b8", 8, C_BITS}, [T_B16] = {"b16", 16, C_BITS}, [T_B32] = {"b32", 32, C_BITS}, [T_B64] = {"b64", 64, C_BITS},
    [T_U8] = {"u8", 8, C_UNSIGNED}, [T_U16] = {"u16", 16, C_UNSIGNED}, [T_U32] = {"u32", 32, C_UNSIGNED},
    [T_U64] = {"u64", 64, C_UNSIGNED}, [T_S8] = {"s8", 8, C_SIGNED}, [T_S16] = {"s16", 16, C_SIGNED},
    [T_S32] = {"s32", 32, C_SIGNED}, [T_S64] = {"s64", 64, C_SIGNED}, [T_F16] = {"f16", 16, C_FLOAT},
    [T_BF16] = {"bf16", 16, C_FLOAT}, [T_F16X2] = {"f16x2", 32, C_FLOAT}, [T_BF16X2] = {"bf16x2", 32, C_FLOAT},
    [T_F32] = {"f32", 32, C_FLOAT}, [T_F64] = {"f64", 64, C_FLOAT}, [T_PRED] = {"pred", 1, C_PRED},
};

const char *const simt_mods[MB_COUNT] = {
#define M(id, text) text,
    SIMT_MODS(M)
#undef M
};

#define S(t) (1u << T_##t)
#define BITS (S(B16) | S(B32) | S(B64))
#define INTS (S(U16) | S(U32) | S(U64) | S(S16) | S(S32) | S(S64))
#define HALVES (S(F16) | S(F16X2) | S(BF16) | S(BF16X2))
#define FLOATS (S(F32) | S(F64))
#define MEMORY (BITS | S(B8) | INTS | S(U8) | S(S8) | FLOATS)
#define ROUND (B(RN) | B(RZ) | B(RM) | B(RP))
#define SPACE (B(GLOBAL) | B(SHARED))
#define ORDER (B(RELAXED) | B(ACQUIRE) | B(RELEASE) | B(ACQ_REL) | B(SC) | B(GPU) | B(CTA) | B(SYS))
#define FRAGMENT (B(SYNC) | B(ALIGNED))

const struct simt_opcode simt_opcodes[] = {
    {"add", ROUND | B(FTZ) | B(SAT), 0, INTS | HALVES | FLOATS, "daa", OP_ADD, 1, 0},
    {"sub", ROUND | B(FTZ) | B(SAT), 0, INTS | HALVES | FLOATS, "daa", OP_SUB, 1, 0},
    {"mul", ROUND | B(FTZ) | B(SAT) | B(LO) | B(HI) | B(WIDE), 0, INTS | HALVES | FLOATS, "daa", OP_MUL, 1, 0},
    {"mad", ROUND | B(FTZ) | B(SAT) | B(LO) | B(HI) | B(WIDE), B(LO) | B(HI) | B(WIDE) | ROUND, INTS | FLOATS, "daaw", OP_MAD, 1, 0},
    {"fma", ROUND | B(FTZ) | B(SAT) | B(RELU), ROUND, HALVES | FLOATS, "daaa", OP_FMA, 1, 0},
    {"div", ROUND | B(FTZ) | B(APPROX) | B(FULL), 0, INTS | FLOATS, "daa", OP_DIV, 1, 0},
    {"rem", 0, 0, INTS, "daa", OP_REM, 1, 0},
    {"min", B(FTZ) | B(NAN), 0, INTS | HALVES | FLOATS, "daa", OP_MIN, 1, 0},
    {"max", B(FTZ) | B(NAN), 0, INTS | HALVES | FLOATS, "daa", OP_MAX, 1, 0},
    {"abs", B(FTZ), 0, S(S16) | S(S32) | S(S64) | HALVES | FLOATS, "da", OP_ABS, 1, 0},
    {"neg", B(FTZ), 0, S(S16) | S(S32) | S(S64) | HALVES | FLOATS, "da", OP_NEG, 1, 0},
    {"and", 0, 0, BITS | S(PRED), "daa", OP_AND, 1, 0},
    {"or", 0, 0, BITS | S(PRED), "daa", OP_OR, 1, 0},
    {"xor", 0, 0, BITS | S(PRED), "daa", OP_XOR, 1, 0},
    {"not", 0, 0, BITS | S(PRED), "da", OP_NOT, 1, 0},
    {"shl", 0, 0, BITS, "dau", OP_SHL, 1, 0},
    {"shr", 0, 0, BITS | INTS, "dau", OP_SHR, 1, 0},
    {"shf", B(LEFT) | B(RIGHT) | B(WRAP) | B(CLAMP), B(WRAP) | B(CLAMP), S(B32), "daau", OP_SHF, 1, 0},
    {"bfe", 0, 0, S(U32) | S(U64) | S(S32) | S(S64), "dauu", OP_BFE, 1, 0},
    {"bfi", 0, 0, S(B32) | S(B64), "daauu", OP_BFI, 1, 0},
    {"brev", 0, 0, S(B32) | S(B64), "da", OP_BREV, 1, 0},
    {"popc", 0, 0, S(B32) | S(B64), "Ua", OP_POPC, 1, 0},
    {"clz", 0, 0, S(B32) | S(B64), "Ua", OP_CLZ, 1, 0},
    {"bfind", B(SHIFTAMT), 0, S(U32) | S(U64) | S(S32) | S(S64), "Ua", OP_BFIND, 1, 0},
    {"prmt", 0, 0, S(B32), "daau", OP_PRMT, 1, 0},
    {"lop3", 0, 0, S(B32), "daaai", OP_LOP3, 1, 0},
    {"dp4a", 0, 0, S(U32) | S(S32), "daaa", OP_DP4A, 2, 0},
    {"dp2a", B(LO) | B(HI), B(LO) | B(HI), S(U32) | S(S32), "daaa", OP_DP2A, 2, 0},
    {"ex2", B(APPROX) | B(FTZ), B(APPROX), S(F32) | S(F16) | S(F16X2), "da", OP_EX2, 1, 0},
    {"lg2", B(APPROX) | B(FTZ), B(APPROX), S(F32), "da", OP_LG2, 1, 0},
    {"rcp", B(APPROX) | B(FTZ) | ROUND, B(APPROX) | ROUND, FLOATS, "da", OP_RCP, 1, 0},
    {"sqrt", B(APPROX) | B(FTZ) | ROUND, B(APPROX) | ROUND, FLOATS, "da", OP_SQRT, 1, 0},
    {"rsqrt", B(APPROX) | B(FTZ), B(APPROX), FLOATS, "da", OP_RSQRT, 1, 0},
    {"sin", B(APPROX) | B(FTZ), B(APPROX), S(F32), "da", OP_SIN, 1, 0},
    {"cos", B(APPROX) | B(FTZ), B(APPROX), S(F32), "da", OP_COS, 1, 0},
    {"tanh", B(APPROX), B(APPROX), S(F32) | S(F16) | S(F16X2), "da", OP_TANH, 1, 0},
    {"copysign", 0, 0, FLOATS, "daa", OP_COPYSIGN, 1, 0},
    {"setp", B(FTZ), 0, BITS | INTS | FLOATS | S(F16), "qaa?p", OP_SETP, 1, F_COMPARE | F_COMBINE},
    {"selp", 0, 0, BITS | INTS | FLOATS, "daap", OP_SELP, 1, 0},
    {"mov", 0, 0, BITS | INTS | FLOATS | S(PRED), "Vv", OP_MOV, 1, 0},
    {"cvt", ROUND | B(RNI) | B(RZI) | B(RMI) | B(RPI) | B(FTZ) | B(SAT), 0, INTS | S(U8) | S(S8) | HALVES | FLOATS, "dt?t", OP_CVT, 2, 0},
    {"cvta", B(TO) | SPACE | B(LOCAL) | B(CONST), SPACE | B(LOCAL) | B(CONST), S(U64), "da", OP_CVTA, 1, 0},
    {"ld", SPACE | B(PARAM) | B(LOCAL) | B(CONST) | B(VOLATILE) | B(WEAK) | B(RELAXED) | B(ACQUIRE) | B(GPU) | B(CTA) | B(SYS) | B(V2) | B(V4) | B(NC) | B(HINT), 0, MEMORY, "Vm", OP_LD, 1, 0},
    {"st", SPACE | B(LOCAL) | B(VOLATILE) | B(WEAK) | B(RELAXED) | B(RELEASE) | B(GPU) | B(CTA) | B(SYS) | B(V2) | B(V4) | B(HINT), 0, MEMORY, "mv", OP_ST, 1, 0},
    {"atom", SPACE | ORDER, 0, S(B32) | S(B64) | S(U32) | S(U64) | S(S32) | S(S64) | FLOATS, "dma?a", OP_ATOM, 1, F_COMBINE},
    {"red", SPACE | ORDER, 0, S(B32) | S(B64) | S(U32) | S(U64) | S(S32) | S(S64) | FLOATS, "ma", OP_RED, 1, F_COMBINE},
    {"prefetch", B(GLOBAL) | B(HINT), B(HINT), 0, "m", OP_PREFETCH, 0, 0},
    {"bra", B(UNI), 0, 0, "l", OP_BRA, 0, 0},
    {"ret", B(UNI), 0, 0, "", OP_RET, 0, 0},
    {"exit", 0, 0, 0, "", OP_RET, 0, 0},
    {"trap", 0, 0, 0, "", OP_TRAP, 0, 0},
    {"bar.sync", 0, 0, 0, "u?u", OP_BAR_SYNC, 0, 0},
    {"bar.arrive", 0, 0, 0, "uu", OP_BAR_ARRIVE, 0, 0},
    {"barrier.sync.aligned", 0, 0, 0, "u?u", OP_BAR_SYNC, 0, 0},
    {"bar.warp.sync", 0, 0, 0, "u", OP_WARP_SYNC, 0, 0},
    {"shfl.sync", B(UP) | B(DOWN) | B(BFLY) | B(IDX), B(UP) | B(DOWN) | B(BFLY) | B(IDX), S(B32), "eauuu", OP_SHFL, 1, 0},
    {"vote.sync", B(ALL) | B(ANY) | B(UNI) | B(BALLOT), B(ALL) | B(ANY) | B(UNI) | B(BALLOT), S(B32) | S(PRED), "dpu", OP_VOTE, 1, 0},
    {"activemask", 0, 0, S(B32), "d", OP_ACTIVEMASK, 1, 0},
    {"redux.sync", 0, 0, S(U32) | S(S32) | S(B32), "dau", OP_REDUX, 1, F_COMBINE},
    {"membar", B(CTA) | B(GL) | B(SYS), B(CTA) | B(GL) | B(SYS), 0, "", OP_FENCE, 0, 0},
    {"fence", B(ACQ_REL) | B(SC) | B(CTA) | B(GPU) | B(SYS), B(CTA) | B(GPU) | B(SYS), 0, "", OP_FENCE, 0, 0},
    {"nanosleep", 0, 0, S(U32), "a", OP_SLEEP, 1, 0},
    {"griddepcontrol.wait", 0, 0, 0, "", OP_GRID_WAIT, 0, 0},
    {"griddepcontrol.launch_dependents", 0, 0, 0, "", OP_NOP, 0, 0},
    {"cp.async", B(GLOBAL) | B(SHARED) | B(HINT), B(HINT), 0, "mmi?u", OP_CP_ASYNC, 0, 0},
    {"cp.async.commit_group", 0, 0, 0, "", OP_CP_COMMIT, 0, 0},
    {"cp.async.wait_group", 0, 0, 0, "i", OP_CP_WAIT, 0, 0},
    {"cp.async.wait_all", 0, 0, 0, "", OP_CP_WAIT_ALL, 0, 0},
    {"elect.sync", 0, 0, 0, "eu", OP_ELECT, 0, 0},
    {"mbarrier.init", B(SHARED), 0, S(B64), "mu", OP_MBAR_INIT, 1, 0},
    {"mbarrier.inval", B(SHARED), 0, S(B64), "m", OP_MBAR_INVAL, 1, 0},
    {"mbarrier.arrive", B(SHARED) | B(RELEASE) | B(CTA), 0, S(B64), "dm?u", OP_MBAR_ARRIVE, 1, 0},
    {"mbarrier.arrive.expect_tx", B(SHARED) | B(RELEASE) | B(CTA), 0, S(B64), "dmu", OP_MBAR_ARRIVE_TX, 1, 0},
    {"mbarrier.expect_tx", B(SHARED) | B(RELAXED) | B(CTA), 0, S(B64), "mu", OP_MBAR_EXPECT, 1, 0},
    {"mbarrier.test_wait", B(SHARED) | B(ACQUIRE) | B(CTA), 0, S(B64), "qma", OP_MBAR_TEST, 1, 0},
    {"mbarrier.try_wait", B(SHARED) | B(ACQUIRE) | B(CTA), 0, S(B64), "qma?u", OP_MBAR_TEST, 1, 0},
    {"mbarrier.test_wait.parity", B(SHARED) | B(ACQUIRE) | B(CTA), 0, S(B64), "qmu", OP_MBAR_PARITY, 1, 0},
    {"mbarrier.try_wait.parity", B(SHARED) | B(ACQUIRE) | B(CTA), 0, S(B64), "qmu?u", OP_MBAR_PARITY, 1, 0},
    {"fence.proxy.async", SPACE, 0, 0, "", OP_PROXY_FENCE, 0, 0},
    {"fence.mbarrier_init.release.cluster", 0, 0, 0, "", OP_PROXY_FENCE, 0, 0},
    {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", B(HINT), 0, 0, "mmum", OP_BULK, 0, 0},
    {"ldmatrix", FRAGMENT | B(M8N8) | B(X1) | B(X2) | B(X4) | B(TRANS) | B(SHARED), B(X1) | B(X2) | B(X4), S(B16), "Vm", OP_LDMATRIX, 1, 0},
    {"mma", FRAGMENT | B(SATFINITE), B(SYNC), S(F16) | S(BF16) | S(F32) | S(S8) | S(U8) | S(S32), "Vvvv", OP_MMA, 4, F_SHAPE},
    {"wmma.load.a", FRAGMENT | SPACE, B(SYNC), S(F16), "Vm?u", OP_WMMA_LOAD, 1, F_SHAPE},
    {"wmma.load.b", FRAGMENT | SPACE, B(SYNC), S(F16), "Vm?u", OP_WMMA_LOAD, 1, F_SHAPE},
    {"wmma.load.c", FRAGMENT | SPACE, B(SYNC), S(F16) | S(F32), "Vm?u", OP_WMMA_LOAD, 1, F_SHAPE},
    {"wmma.store.d", FRAGMENT | SPACE, B(SYNC), S(F16) | S(F32), "mv?u", OP_WMMA_STORE, 1, F_SHAPE},
    {"wmma.mma", FRAGMENT | B(SATFINITE), B(SYNC), S(F16) | S(F32), "Vvvv", OP_WMMA_MMA, 2, F_SHAPE},
};
const size_t simt_n_opcodes = COUNT_OF(simt_opcodes);
