// Each loop runs independent chains of the instruction that computes the most products, so that its latency is
// hidden. Twelve chains suffice for all but vpdpbusd of 512 bits, which needs sixteen: with twelve it reaches 97% of
// the speed, and 90% where each turn loads its operands again.
#include "kernels/cpu.h"
#include "kernels/cpu/ceilings.h"
#include "gguf/base.h"

typedef void loop_fn(long turns);
enum { CHAINS = 12, CHAINS_512 = 16 };

// Operands with mixed bits, so that the instructions draw as much power as with real data. Both as bytes and as
// floats they have usual sizes.
static const float mixture[16] = {0.71f, -0.43f, 1.37f, -0.59f, 0.83f, -1.13f, 0.31f, -0.97f,
                                  1.19f, -0.67f, 0.53f, -1.27f, 0.89f, -0.37f, 1.03f, -0.79f};

#if defined(__x86_64__)
#define LOOP(name, load, instructions, registers)                                                                      \
    static void loop_##name(long turns)                                                                                \
    {                                                                                                                  \
        __asm__ volatile(load "1:\n\t" instructions "dec %0\n\tjnz 1b"                                                 \
                         : "+r"(turns)                                                                                 \
                         : "m"(mixture)                                                                                \
                         : registers, "cc");                                                                           \
    }
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define EACH_512(X) EACH(X) X(12) X(13) X(14) X(15)
#define CHANGED                                                                                                        \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",         \
        "xmm14", "xmm15"
#define CHANGED_512 CHANGED, "xmm13"
// Operands of 512 bits are in registers that the compiler does not use with this file's flags, so they need not be
// listed as changed.
#define LOAD_512 "vmovups %1, %%zmm16\n\tvmovups %1, %%zmm17\n\t"
#define LOAD_256 "vmovups %1, %%ymm14\n\tvmovups %1, %%ymm15\n\t"
#define DPBUSD(n) "vpdpbusd %%zmm16, %%zmm17, %%zmm" #n "\n\t"
#define DPBUSD_256(n) "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm" #n "\n\t"
#define FMA_512(n) "vfmadd231ps %%zmm16, %%zmm17, %%zmm" #n "\n\t"
#define FMA_256(n) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #n "\n\t"
// Without VNNI, 32 products take three instructions.
#define MADD_256(n)                                                                                                    \
    "vpmaddubsw %%ymm14, %%ymm15, %%ymm12\n\tvpmaddwd %%ymm12, %%ymm15, %%ymm12\n\t"                                   \
    "vpaddd %%ymm12, %%ymm" #n ", %%ymm" #n "\n\t"
LOOP(dpbusd, LOAD_512, EACH_512(DPBUSD), CHANGED_512)
LOOP(dpbusd_256, LOAD_256, EACH(DPBUSD_256), CHANGED)
LOOP(fma_512, LOAD_512, EACH(FMA_512), CHANGED)
LOOP(fma_256, LOAD_256, EACH(FMA_256), CHANGED)
LOOP(madd_256, LOAD_256, EACH(MADD_256), CHANGED)

// One instruction computes a tile of 16 x 16 sums over 64 elements. There are four chains.
static void loop_tiles(long turns)
{
    _Alignas(64) struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } c = {.palette = 1};
    for (int t = 0; t < 8; t++)
        c.rows[t] = 16, c.row_bytes[t] = 64;
    __asm__ volatile("ldtilecfg %0" ::"m"(c) : "memory");
#define TDP                                                                                                            \
    "tdpbsud %tmm5, %tmm4, %tmm0\n\ttdpbsud %tmm5, %tmm4, %tmm1\n\ttdpbsud %tmm7, %tmm6, %tmm2\n\t"                    \
    "tdpbsud %tmm7, %tmm6, %tmm3\n\t"
    for (long i = 0; i < turns; i++)
        __asm__ volatile(TDP TDP TDP);
    __asm__ volatile("tilerelease");
}
#elif defined(__aarch64__)
#define LOOP(name, instructions, registers)                                                                            \
    static void loop_##name(long turns)                                                                                \
    {                                                                                                                  \
        for (long i = 0; i < turns; i++)                                                                               \
            __asm__ volatile(instructions ::"m"(mixture) : registers);                                                 \
    }
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(16) X(17) X(18) X(19)
#define CHANGED "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20"
#define SDOT(n) "sdot v" #n ".4s, v30.16b, v31.16b\n\t"
#define SMMLA(n) "smmla v" #n ".4s, v30.16b, v31.16b\n\t"
#define FMLA(n) "fmla v" #n ".4s, v30.4s, v31.4s\n\t"
#define SMLAL(n) "smull v20.8h, v30.8b, v31.8b\n\tsadalp v" #n ".4s, v20.8h\n\t"
LOOP(sdot, ".arch armv8.2-a+dotprod\n\t" EACH(SDOT), CHANGED)
LOOP(smmla, ".arch armv8.2-a+i8mm\n\t" EACH(SMMLA), CHANGED)
LOOP(fmla, EACH(FMLA), CHANGED)
LOOP(smull, EACH(SMLAL), CHANGED)
#endif

// The loop of each unit of a level, and how many products one turn computes. A level lacks the units without a loop.
struct unit {
    const char *name;
    loop_fn *loop;
    int products;
};
static const struct ceiling {
    const char *level;
    struct unit units[UNIT_COUNT];
} ceilings[] = {
#if defined(__x86_64__)
    {"amx",
     {{"AVX-512 VNNI", loop_dpbusd, CHAINS_512 * 64},
      {"AMX", loop_tiles, CHAINS * 16384},
      {"AVX-512 FMA", loop_fma_512, CHAINS * 16}}},
    {"avx512", {{"AVX-512 VNNI", loop_dpbusd, CHAINS_512 * 64}, {0}, {"AVX-512 FMA", loop_fma_512, CHAINS * 16}}},
    {"avxvnni", {{"AVX-VNNI", loop_dpbusd_256, CHAINS * 32}, {0}, {"AVX2 FMA", loop_fma_256, CHAINS * 8}}},
    {"avx2", {{"AVX2", loop_madd_256, CHAINS * 32}, {0}, {"AVX2 FMA", loop_fma_256, CHAINS * 8}}},
#elif defined(__aarch64__)
    {"i8mm", {{"SMMLA", loop_smmla, CHAINS * 32}, {0}, {"FMLA", loop_fmla, CHAINS * 4}}},
    {"dotprod", {{"SDOT", loop_sdot, CHAINS * 16}, {0}, {"FMLA", loop_fmla, CHAINS * 4}}},
    {"neon", {{"SMULL", loop_smull, CHAINS * 8}, {0}, {"FMLA", loop_fmla, CHAINS * 4}}},
#endif
    {"scalar", {{0}}},
};

static const struct unit *unit_of(const char *level, enum cpu_unit unit)
{
    for (size_t i = 0; i < COUNT_OF(ceilings); i++)
        if (!strcmp(ceilings[i].level, level) && ceilings[i].units[unit].loop)
            return &ceilings[i].units[unit];
    return NULL;
}

double ceiling_run(const char *level, enum cpu_unit unit, long turns)
{
    const struct unit *u = unit_of(level, unit);
    if (!u)
        return 0;
    u->loop(turns);
    return (double)turns * u->products;
}

const char *ceiling_name(const char *level, enum cpu_unit unit)
{
    const struct unit *u = unit_of(level, unit);
    return u ? u->name : "";
}
