// Checks which ISA levels this CPU runs, and finds the best one. On x86 a level needs the instructions (cpuid) and a
// system that saves their registers when it switches threads (xgetbv).
#include "kernels/cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    XCR0_AVX = 0x06,      // xmm, ymm
    XCR0_AVX512 = 0xe6,   // the same, mask registers, zmm0 to zmm15 and zmm16 to zmm31
    XCR0_TILES = 3 << 17, // configuration and data of tiles
    LEAF7_1_EAX_AVXVNNI = 1 << 4,
    LEAF7_EDX_AMX = 1 << 24 | 1 << 25, // TILE, INT8
    // Linux lets a process use tiles, whose state is 8 KB per thread, after it has asked for them by arch_prctl.
    ARCH_ASK_STATE = 0x1023, // ARCH_REQ_XCOMP_PERM
    STATE_TILE_DATA = 18,
    FAMILY_ZEN_4 = 0x19, // also of Zen 3, which has no AVX-512
};

struct cpu {
    bool amd;
    uint32_t family;
    uint32_t leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_edx, leaf7_1_eax;
    uint32_t xcr0;
};

static struct cpu cpu_read(void)
{
    struct cpu c = {0};
    uint32_t eax, ebx, ecx, edx;
    if (__get_cpuid(0, &eax, &ebx, &ecx, &edx))
        c.amd = ebx == signature_AMD_ebx && ecx == signature_AMD_ecx && edx == signature_AMD_edx;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) {
        c.leaf1_ecx = ecx;
        c.family = (eax >> 8 & 15) + (eax >> 20 & 255); // base family and extended family
    }
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        c.leaf7_ebx = ebx;
        c.leaf7_ecx = ecx;
        c.leaf7_edx = edx;
    }
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx))
        c.leaf7_1_eax = eax;
    if (c.leaf1_ecx & bit_OSXSAVE)
        __asm__("xgetbv" : "=a"(c.xcr0), "=d"(edx) : "c"(0));
    return c;
}

static bool has(uint32_t flags, uint32_t wanted)
{
    return (flags & wanted) == wanted;
}

static bool runs_avx2(void)
{
    struct cpu c = cpu_read();
    return has(c.xcr0, XCR0_AVX) && has(c.leaf1_ecx, bit_AVX | bit_FMA | bit_F16C) &&
           has(c.leaf7_ebx, bit_AVX2 | bit_BMI | bit_BMI2);
}

static bool runs_avxvnni(void)
{
    return runs_avx2() && has(cpu_read().leaf7_1_eax, LEAF7_1_EAX_AVXVNNI);
}

static bool runs_avx512(void)
{
    struct cpu c = cpu_read();
    return runs_avx2() && has(c.xcr0, XCR0_AVX512) &&
           has(c.leaf7_ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL) &&
           has(c.leaf7_ecx, bit_AVX512VNNI | bit_AVX512VBMI | bit_GFNI);
}

static bool runs_amx(void)
{
    struct cpu c = cpu_read();
    return runs_avx512() && has(c.leaf7_edx, LEAF7_EDX_AMX) && has(c.xcr0, XCR0_TILES) &&
           syscall(SYS_arch_prctl, ARCH_ASK_STATE, STATE_TILE_DATA) == 0;
}
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

static bool runs_neon(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMD;
}

static bool runs_dotprod(void)
{
    return runs_neon() && getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}

static bool runs_i8mm(void)
{
    return runs_dotprod() && getauxval(AT_HWCAP2) & HWCAP2_I8MM;
}
#endif

static bool runs_scalar(void)
{
    return true;
}

static const struct level {
    const struct kernels *kernels;
    bool (*runs)(void);
    const char *needs;
} levels[] = {
#define ISA(NAME, name, needs) {&kernels_##name, runs_##name, needs},
#include "kernels/cpu/isa.def"
#undef ISA
};

int kernels_count(void)
{
    int n = 0;
    for (size_t i = 0; i < COUNT_OF(levels); i++)
        n += levels[i].runs();
    return n;
}

const struct kernels *kernels_at(int i)
{
    for (size_t l = 0; l < COUNT_OF(levels); l++)
        if (levels[l].runs() && i-- == 0)
            return levels[l].kernels;
    return NULL;
}

const struct kernels *kernels_best(void)
{
    return kernels_at(0);
}

enum reading kernels_reading(const struct kernels *k)
{
    const enum reading best = kernels_best()->reading;
    return reads_streams(k->reading) && reads_streams(best) ? best : k->reading;
}

bool kernels_spare_adders(void)
{
#if defined(__x86_64__)
    struct cpu c = cpu_read();
    return c.amd && c.family == FAMILY_ZEN_4;
#else
    return false;
#endif
}

static const struct level *level_find(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(levels); i++)
        if (strcmp(levels[i].kernels->name, name) == 0)
            return &levels[i];
    return NULL;
}

const struct kernels *kernels_find(const char *name, struct error *err)
{
    static const char all[] =
#define ISA(NAME, name, needs) " " #name
#include "kernels/cpu/isa.def"
#undef ISA
        ;
    const struct level *level = level_find(name);
    if (!level)
        return fail(err, E_USAGE, "there is no ISA level %s; this binary holds:%s", name, all), NULL;
    if (!level->runs())
        return fail(err, E_USAGE, "this CPU cannot run ISA level %s, which needs %s; the best it runs is %s", name,
                    level->needs, kernels_best()->name),
               NULL;
    return level->kernels;
}
