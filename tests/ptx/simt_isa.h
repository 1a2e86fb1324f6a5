// Parsed PTX instructions, and the tables of types, modifiers and opcodes.
#ifndef QUERN_SIMT_ISA_H
#define QUERN_SIMT_ISA_H

#include "gguf/base.h"

enum simt_type {
    // clang-format off
    T_NONE, T_B8, T_B16, T_B32, T_B64, T_U8, T_U16, T_U32, T_U64, T_S8, T_S16, T_S32, T_S64,
    T_F16, T_BF16, T_F16X2, T_BF16X2, T_F32, T_F64, T_PRED, T_COUNT,
    // clang-format on
};
enum simt_class { C_BITS, C_UNSIGNED, C_SIGNED, C_FLOAT, C_PRED };
struct simt_type_info {
    const char *name;
    uint8_t bits, kind;
};
extern const struct simt_type_info simt_types[T_COUNT];

// Modifiers that are present or absent; others (comparisons, operations, shapes) have fields of their own.
// clang-format off
#define SIMT_MODS(M)                                                                                                   \
    M(RN, "rn") M(RZ, "rz") M(RM, "rm") M(RP, "rp") M(RNI, "rni") M(RZI, "rzi") M(RMI, "rmi") M(RPI, "rpi")            \
    M(FTZ, "ftz") M(SAT, "sat") M(SATFINITE, "satfinite") M(APPROX, "approx") M(FULL, "full") M(NAN, "NaN")            \
    M(RELU, "relu") M(LO, "lo") M(HI, "hi") M(WIDE, "wide") M(GLOBAL, "global") M(SHARED, "shared")                    \
    M(PARAM, "param") M(LOCAL, "local") M(CONST, "const") M(VOLATILE, "volatile") M(RELAXED, "relaxed")                \
    M(ACQUIRE, "acquire") M(RELEASE, "release") M(ACQ_REL, "acq_rel") M(SC, "sc") M(WEAK, "weak") M(GPU, "gpu")        \
    M(CTA, "cta") M(SYS, "sys") M(GL, "gl") M(V2, "v2") M(V4, "v4") M(NC, "nc") M(UNI, "uni") M(TO, "to")              \
    M(LEFT, "l") M(RIGHT, "r") M(WRAP, "wrap") M(CLAMP, "clamp") M(SYNC, "sync") M(ALIGNED, "aligned") M(UP, "up")     \
    M(DOWN, "down") M(BFLY, "bfly") M(IDX, "idx") M(ALL, "all") M(ANY, "any") M(BALLOT, "ballot") M(X1, "x1")          \
    M(X2, "x2") M(X4, "x4") M(TRANS, "trans") M(M8N8, "m8n8") M(SHIFTAMT, "shiftamt") M(HINT, "")
// clang-format on
enum {
#define M(id, text) MB_##id,
    SIMT_MODS(M)
#undef M
        MB_COUNT
};
#define B(id) (1ull << MB_##id)
_Static_assert(MB_COUNT <= 64, "modifiers fit a word");
extern const char *const simt_mods[MB_COUNT];

enum simt_compare {
    CMP_NONE,
    CMP_EQ,
    CMP_NE,
    CMP_LT,
    CMP_LE,
    CMP_GT,
    CMP_GE,
    CMP_EQU,
    CMP_NEU,
    CMP_LTU,
    CMP_LEU,
    CMP_GTU,
    CMP_GEU,
    CMP_NUM,
    CMP_NAN
};
enum simt_combine { DO_NONE, DO_AND, DO_OR, DO_XOR, DO_ADD, DO_MIN, DO_MAX, DO_EXCH, DO_CAS, DO_INC, DO_DEC };

enum simt_op {
    // clang-format off
    OP_ADD, OP_SUB, OP_MUL, OP_MAD, OP_FMA, OP_DIV, OP_REM, OP_MIN, OP_MAX, OP_ABS, OP_NEG, OP_AND, OP_OR, OP_XOR,
    OP_NOT, OP_SHL, OP_SHR, OP_SHF, OP_BFE, OP_BFI, OP_BREV, OP_POPC, OP_CLZ, OP_BFIND, OP_PRMT, OP_LOP3, OP_DP4A, OP_DP2A,
    OP_EX2, OP_LG2, OP_RCP, OP_SQRT, OP_RSQRT, OP_SIN, OP_COS, OP_TANH, OP_COPYSIGN,
    OP_SETP, OP_SELP, OP_MOV, OP_CVT, OP_CVTA, OP_LD, OP_ST, OP_ATOM, OP_RED, OP_PREFETCH,
    OP_BRA, OP_RET, OP_TRAP, OP_BAR_SYNC, OP_BAR_ARRIVE, OP_WARP_SYNC, OP_SHFL, OP_VOTE, OP_ACTIVEMASK, OP_REDUX,
    OP_FENCE, OP_NOP, OP_SLEEP, OP_GRID_WAIT, OP_CP_ASYNC, OP_CP_COMMIT, OP_CP_WAIT, OP_CP_WAIT_ALL, OP_ELECT,
    OP_MBAR_INIT, OP_MBAR_INVAL, OP_MBAR_ARRIVE, OP_MBAR_ARRIVE_TX, OP_MBAR_EXPECT, OP_MBAR_TEST, OP_MBAR_PARITY,
    OP_PROXY_FENCE, OP_BULK, OP_LDMATRIX, OP_MMA, OP_WMMA_LOAD, OP_WMMA_STORE, OP_WMMA_MMA,
    // clang-format on
};

// The operands of an opcode, one letter each; those after '?' are optional.
//   d, a, w  destination and sources of the first type; with .wide, d and w are twice as wide
//   t        source of the last type
//   U, u     destination and source of 32 bits
//   q, p     destination predicate or pair p|q; source predicate
//   e        destination with an optional predicate
//   V, v     destination and source, each one register or a vector
//   m        memory
//   l        label
//   i        immediate
struct simt_opcode {
    const char *name;
    uint64_t mods;  // allowed modifiers
    uint64_t need;  // one of these modifiers must be present; 0: none is needed
    uint32_t types; // set of (1 << type), any place
    const char *operands;
    uint8_t op, n_types;
    uint8_t fields; // allowed: F_*
};
enum { F_COMPARE = 1, F_COMBINE = 2, F_SHAPE = 4 };
extern const struct simt_opcode simt_opcodes[];
extern const size_t simt_n_opcodes;

enum simt_operand_kind { K_REG, K_VECTOR, K_MEMORY, K_LABEL };
struct simt_operand {
    uint8_t kind, count; // registers
    bool negated;        // a predicate
    uint32_t first;      // first of its registers in the kernel's list; of a label, the target
    int64_t offset;      // of memory
};
enum { MAX_OPERANDS = 5, SLOT_SINK = 0 };

struct simt_insn {
    uint8_t op, n_operands, type[4], n_types, compare, combine, m, n, k, layout[2], n_layouts;
    bool guard_negated, reads_clock, operand_fragment; // operand_fragment: wmma.load of a or b
    uint32_t guard;                                    // slot, 0: none
    uint32_t line;
    uint64_t mods;
    struct simt_operand o[MAX_OPERANDS];
};

// A register of a kernel, a constant or a special register. Each is a slot of 32 values in a warp's register file.
struct simt_slot {
    char *name;
    uint8_t type, special; // special: enum simt_special + 1
    bool constant;
    uint64_t value;
};
enum simt_special {
    // clang-format off
    SP_TID_X, SP_TID_Y, SP_TID_Z, SP_NTID_X, SP_NTID_Y, SP_NTID_Z, SP_CTAID_X, SP_CTAID_Y, SP_CTAID_Z,
    SP_NCTAID_X, SP_NCTAID_Y, SP_NCTAID_Z, SP_LANEID, SP_WARPID, SP_NWARPID, SP_SMID, SP_NSMID, SP_LT, SP_LE, SP_GT,
    SP_GE, SP_EQ, SP_CLOCK, SP_CLOCK64, SP_TIMER, SP_DYNAMIC, SP_COUNT,
    // clang-format on
};

struct simt_param {
    char *name;
    uint32_t offset, size;
};
struct simt_kernel {
    char *name;
    struct simt_kernel *older;
    struct simt_insn *insns;
    uint32_t *regs;
    struct simt_slot *slots;
    struct simt_param *params;
    size_t n_insns, cap_insns, n_regs, cap_regs, n_slots, cap_slots, n_params;
    uint32_t params_size, shared_size, local_size, max_threads, req[3];
};

#define SHARED_WINDOW 0x100000000000ull
#define LOCAL_WINDOW 0x200000000000ull
#define GLOBAL_WINDOW 0x300000000000ull

#endif
