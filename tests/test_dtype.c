// Tests tensor types: the decoders against reference data and for consistency, the encoders against computed error
// bounds. The cases are taken from the table of types where possible, so that a new type is tested without an edit.
#include "gguf/dtype.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { SEED = 20240611, MAX_BLOCK = 256, MAX_BYTES = 256 };

struct random {
    uint64_t state;
};

static uint64_t random_u64(struct random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static double random_unit(struct random *r)
{
    return (double)(random_u64(r) >> 11) * 0x1p-53;
}

static double random_normal(struct random *r)
{
    return sqrt(-2 * log(1 - random_unit(r))) * cos(2 * M_PI * random_unit(r));
}

static struct random seeded(const char *test)
{
    printf("%s: seed %d\n", test, SEED);
    return (struct random){SEED};
}

static bool all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

// A block of random bytes whose decode is finite. Few are not: those with a scale of infinity or NaN.
static void random_block(struct random *r, enum dtype type, uint8_t *block)
{
    float x[MAX_BLOCK];
    for (int attempt = 0; attempt < 64; attempt++) {
        for (int i = 0; i < dtype_info[type].bytes; i++)
            block[i] = (uint8_t)random_u64(r);
        dtype_decode[type](block, x, dtype_info[type].block);
        if (all_finite(x, dtype_info[type].block))
            return;
    }
    cr_assert_fail("%s: 64 random blocks, none finite", dtype_info[type].name);
}

// A buffer of `size` bytes whose end is the end of readable memory: one byte more, and the test dies.
static uint8_t *guarded_new(size_t size, void **base, size_t *mapped)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (size + page - 1) / page * page;
    *mapped = room + page;
    *base = mmap(NULL, *mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(*base, MAP_FAILED);
    cr_assert_eq(mprotect((uint8_t *)*base + room, page, PROT_NONE), 0);
    return (uint8_t *)*base + room - size;
}

Test(dtype, table_is_consistent)
{
    for (int a = 0; a < DT_COUNT; a++) {
        const struct dtype_info *info = &dtype_info[a];
        cr_assert_not_null(info->name);
        cr_assert(info->block > 0 && info->block <= MAX_BLOCK && info->bytes > 0 && info->bytes <= MAX_BYTES);
        cr_expect_eq(dtype_decode[a] == NULL, info->kind == DTYPE_KIND_INT && a != DT_F64, "%s", info->name);
        cr_expect_eq(dtype_row_bytes((enum dtype)a, 512 * (int64_t)info->block), 512 * (size_t)info->bytes);
        for (int b = 0; b < a; b++) {
            cr_expect_neq(info->id, dtype_info[b].id, "%s and %s share an id", info->name, dtype_info[b].name);
            cr_expect_str_neq(info->name, dtype_info[b].name);
        }
    }
}

Test(dtype, row_bytes_hold_for_rows_over_4_gib)
{
    cr_expect_eq(dtype_row_bytes(DT_Q4_K, INT64_C(1) << 40), (size_t)144 << 32);
}

Test(dtype, ids_of_the_table_are_found_and_all_others_refused)
{
    for (uint32_t id = 0; id < 1000; id++) {
        int known = -1;
        for (int t = 0; t < DT_COUNT; t++)
            known = dtype_info[t].id == id ? t : known;
        enum dtype type = DT_COUNT;
        struct error err = {.code = E_OK};
        cr_expect_eq(dtype_from_id(id, &type, &err), known < 0 ? -1 : 0, "id %u", id);
        if (known >= 0) {
            cr_expect_eq((int)type, known);
            continue;
        }
        char number[16];
        snprintf(number, sizeof number, "%u", id);
        cr_expect_eq(err.code, E_MODEL);
        cr_expect_not_null(strstr(err.text, number), "%s", err.text);
    }
    enum dtype type;
    cr_expect_eq(dtype_from_id(UINT32_MAX, &type, NULL), -1);
}

Test(dtype, removed_and_internal_ids_are_refused_by_name)
{
    static const struct {
        uint32_t id;
        const char *name;
    } gone[] = {{4, "Q4_2"},      {5, "Q4_3"},      {9, "Q8_1"},        {15, "Q8_K"},       {31, "Q4_0_4_4"},
                {32, "Q4_0_4_8"}, {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}};
    for (size_t i = 0; i < COUNT_OF(gone); i++) {
        enum dtype type;
        struct error err;
        cr_assert_eq(dtype_from_id(gone[i].id, &type, &err), -1);
        cr_expect_not_null(strstr(err.text, gone[i].name), "%s", err.text);
        bool internal = gone[i].id == 9 || gone[i].id == 15;
        cr_expect_eq(strstr(err.text, "removed") == NULL, internal, "%s", err.text);
    }
}

Test(dtype, names_are_found_in_either_case)
{
    for (int t = 0; t < DT_COUNT; t++) {
        char lower[32] = "";
        for (size_t i = 0; dtype_info[t].name[i]; i++)
            lower[i] = (char)tolower(dtype_info[t].name[i]);
        enum dtype type = DT_COUNT;
        cr_expect_eq(dtype_from_name(str_from(dtype_info[t].name), &type), 0);
        cr_expect_eq((int)type, t);
        type = DT_COUNT;
        cr_expect_eq(dtype_from_name(str_from(lower), &type), 0);
        cr_expect_eq((int)type, t);
    }
    enum dtype type;
    cr_expect_eq(dtype_from_name(STR_LIT("Q4_"), &type), -1);
    cr_expect_eq(dtype_from_name(STR_LIT("Q4_K_M"), &type), -1);
    cr_expect_eq(dtype_from_name(STR_LIT(""), &type), -1);
}

// The whole file, or NULL when there is none.
static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*size + 1);
    cr_assert_eq(fread(data, 1, *size, f), *size, "%s", path);
    fclose(f);
    return data;
}

static void check_golden(const char *name, enum dtype type, const uint8_t *blocks, size_t size, const float *want)
{
    int64_t n = (int64_t)size / dtype_info[type].bytes * dtype_info[type].block;
    float *got = malloc((size_t)n * sizeof(float));
    dtype_decode[type](blocks, got, n);
    int64_t wrong = 0, first = -1;
    for (int64_t i = n - 1; i >= 0; i--)
        if (memcmp(&got[i], &want[i], sizeof(float)) != 0) {
            wrong++;
            first = i;
        }
    cr_expect_eq(wrong, 0, "%s: %lld of %lld differ, the first at %lld", name, (long long)wrong, (long long)n,
                 (long long)first);
    free(got);
}

// Compares every TYPE.blocks and TYPE.f32 under dir; the number of types found.
static int check_golden_folder(const char *dir)
{
    int found = 0;
    for (int t = 0; t < DT_COUNT; t++) {
        char path[4096];
        size_t size, want_size;
        snprintf(path, sizeof path, "%s/%s.blocks", dir, dtype_info[t].name);
        uint8_t *blocks = read_file(path, &size);
        if (!blocks)
            continue;
        snprintf(path, sizeof path, "%s/%s.f32", dir, dtype_info[t].name);
        uint8_t *want = read_file(path, &want_size);
        cr_assert_not_null(want, "%s", path);
        cr_assert_gt(size, (size_t)0);
        cr_assert_eq(size % (size_t)dtype_info[t].bytes, (size_t)0);
        cr_assert_eq(want_size, size / (size_t)dtype_info[t].bytes * (size_t)dtype_info[t].block * sizeof(float));
        check_golden(dtype_info[t].name, (enum dtype)t, blocks, size, (const float *)(const void *)want);
        free(blocks);
        free(want);
        found++;
    }
    return found;
}

Test(dtype, decode_is_bit_equal_with_reference_data)
{
    const char *tests = getenv("QUERN_TESTS");
    char dir[2048];
    snprintf(dir, sizeof dir, "%s/data/dequant", tests ? tests : "tests");
    int quants = 0, found = check_golden_folder(dir);
    for (int t = 0; t < DT_COUNT; t++)
        quants += dtype_info[t].kind == DTYPE_KIND_QUANT;
    cr_expect_geq(found, quants, "only %d types have reference data under %s", found, dir);
}

Test(dtype, decode_is_bit_equal_with_the_large_reference_set)
{
    const char *shared = getenv("QUERN_SHARED");
    char dir[2048];
    snprintf(dir, sizeof dir, "%s/golden/dequant", shared ? shared : "../shared");
    if (check_golden_folder(dir) == 0)
        cr_skip_test("skipped: no reference data under %s", dir);
}

Test(dtype, many_blocks_decode_as_one_by_one_at_any_alignment)
{
    struct random r = seeded("blocks");
    enum { N = 7 };
    for (int t = 0; t < DT_COUNT; t++) {
        if (!dtype_decode[t])
            continue;
        const struct dtype_info *info = &dtype_info[t];
        uint8_t blocks[N * MAX_BYTES], moved[N * MAX_BYTES + 8];
        float one[N * MAX_BLOCK], all[N * MAX_BLOCK + 1];
        for (int i = 0; i < N; i++) {
            random_block(&r, (enum dtype)t, blocks + i * info->bytes);
            dtype_decode[t](blocks + i * info->bytes, one + i * info->block, info->block);
        }
        cr_expect(all_finite(one, N * info->block), "%s", info->name);
        for (int shift = 0; shift < 8; shift++) {
            memcpy(moved + shift, blocks, (size_t)(N * info->bytes));
            all[N * info->block] = 12345;
            dtype_decode[t](moved + shift, all, N * (int64_t)info->block);
            cr_expect_arr_eq(all, one, (size_t)(N * info->block) * sizeof(float), "%s, shift %d", info->name, shift);
            cr_expect_eq(all[N * info->block], 12345.0f, "%s writes past the end", info->name);
        }
    }
}

Test(dtype, decode_and_encode_stay_within_their_blocks)
{
    struct random r = seeded("guard");
    for (int t = 0; t < DT_COUNT; t++) {
        if (!dtype_decode[t])
            continue;
        for (int n = 1; n <= 3; n++) {
            void *in_base, *out_base;
            size_t in_mapped, out_mapped, bytes = (size_t)(n * dtype_info[t].bytes);
            size_t out_bytes = (size_t)(n * dtype_info[t].block) * sizeof(float);
            uint8_t *in = guarded_new(bytes, &in_base, &in_mapped);
            uint8_t *out = guarded_new(out_bytes, &out_base, &out_mapped);
            for (int i = 0; i < n; i++)
                random_block(&r, (enum dtype)t, in + i * dtype_info[t].bytes);
            uint8_t before = in[-1] = 0x5a;
            dtype_decode[t](in, (float *)(void *)out, n * (int64_t)dtype_info[t].block);
            if (dtype_encode[t])
                dtype_encode[t]((const float *)(void *)out, in, n * (int64_t)dtype_info[t].block);
            cr_expect_eq(in[-1], before, "%s writes before its block", dtype_info[t].name);
            munmap(in_base, in_mapped);
            munmap(out_base, out_mapped);
        }
    }
}

Test(dtype, decode_of_nothing_touches_nothing)
{
    for (int t = 0; t < DT_COUNT; t++) {
        uint8_t in = 0;
        float out = 77;
        if (dtype_decode[t])
            dtype_decode[t](&in, &out, 0);
        cr_expect_eq(out, 77.0f);
    }
}

// Flips each bit of the middle one of three blocks: nearly each matters (a few do not, where a scale is 0), and none
// matters to the neighbours. A byte that the decoder forgets, or takes from elsewhere, shows here.
Test(dtype, every_byte_of_a_block_matters_to_that_block_alone)
{
    struct random r = seeded("flips");
    for (int t = 0; t < DT_COUNT; t++) {
        const struct dtype_info *info = &dtype_info[t];
        if (!dtype_decode[t] || t == DT_F64) // the low bits of a double are rounded away
            continue;
        uint8_t blocks[3 * MAX_BYTES];
        float was[3 * MAX_BLOCK], is[3 * MAX_BLOCK];
        size_t third = (size_t)info->block * sizeof(float);
        int flips = 0, felt = 0;
        bool byte_felt[MAX_BYTES] = {false};
        for (int round = 0; round < 8; round++) {
            for (int i = 0; i < 3; i++)
                random_block(&r, (enum dtype)t, blocks + i * info->bytes);
            dtype_decode[t](blocks, was, 3 * (int64_t)info->block);
            for (int bit = 0; bit < 8 * info->bytes; bit++) {
                uint8_t *byte = blocks + info->bytes + bit / 8;
                *byte ^= (uint8_t)(1 << bit % 8);
                dtype_decode[t](blocks, is, 3 * (int64_t)info->block);
                *byte ^= (uint8_t)(1 << bit % 8);
                cr_assert(memcmp(was, is, third) == 0 &&
                              memcmp(was + 2 * info->block, is + 2 * info->block, third) == 0,
                          "%s: bit %d reaches another block", info->name, bit);
                bool changed = memcmp(was + info->block, is + info->block, third) != 0;
                byte_felt[bit / 8] |= changed;
                felt += changed;
                flips++;
            }
        }
        for (int i = 0; i < info->bytes; i++)
            cr_expect(byte_felt[i], "%s: byte %d has no effect", info->name, i);
        cr_expect_gt(felt, flips * 85 / 100, "%s: %d of %d flips change nothing", info->name, flips - felt, flips);
    }
}

// What the reference data cannot show, by hand from the definitions: negative zero, the ends of the special scales.
Test(dtype, small_blocks_decode_as_worked_by_hand)
{
    float x[256];
    uint8_t q1_0[18] = {0x00, 0x3e, 0x05}; // d = 1.5, bits 0 and 2
    dtype_decode[DT_Q1_0](q1_0, x, 128);
    cr_expect(x[0] == 1.5f && x[1] == -1.5f && x[2] == 1.5f && x[3] == -1.5f && x[127] == -1.5f);

    uint8_t q2_0[18] = {0x00, 0x38, 0xe4}; // d = 0.5, q = 0 1 2 3
    dtype_decode[DT_Q2_0](q2_0, x, 64);
    cr_expect(x[0] == -0.5f && x[1] == 0 && x[2] == 0.5f && x[3] == 1 && x[4] == -0.5f);

    uint8_t mxfp4[17] = {0, 0x7e}; // 2^-127; elements 0 and 16 are -4 and 6
    dtype_decode[DT_MXFP4](mxfp4, x, 32);
    cr_expect(x[0] == -0x1p-125f && x[16] == 0x1.8p-125f && x[1] == 0);
    mxfp4[0] = 1;
    dtype_decode[DT_MXFP4](mxfp4, x, 32);
    cr_expect(x[0] == -0x1p-124f);
    mxfp4[0] = 127;
    dtype_decode[DT_MXFP4](mxfp4, x, 32);
    cr_expect(x[0] == -4 && x[16] == 6);

    uint8_t nvfp4[36] = {0x01, 0x08, 0x7e, 0x7f, [4] = 0x72, [12] = 0x72, [20] = 0x72, [28] = 0x72}; // 1 and 6
    dtype_decode[DT_NVFP4](nvfp4, x, 64);
    cr_expect(x[0] == 0x1p-9f && x[8] == 6 * 0x1p-9f);   // the smallest subnormal
    cr_expect(x[16] == 0x1p-6f && x[24] == 6 * 0x1p-6f); // the smallest normal
    cr_expect(x[32] == 448 && x[40] == 6 * 448.0f);      // the largest
    cr_expect(x[48] == 0 && x[56] == 0);                 // NaN counts as zero

    double f64[3] = {1.5, -0.0, 1e-3};
    dtype_decode[DT_F64](f64, x, 3);
    cr_expect(x[0] == 1.5f && x[1] == 0 && signbit(x[1]) && x[2] == 1e-3f);
}

Test(half, every_half_survives_the_round_trip)
{
    for (uint32_t h = 0; h < 65536; h++) {
        bool nan = (h & 0x7fff) > 0x7c00;
        float f = f16_to_f32((uint16_t)h);
        cr_assert_eq(!!isnan(f), nan, "%04x", h);
        cr_assert_eq(f32_to_f16(f), nan ? (h | 0x200) : h, "%04x", h);
    }
}

Test(half, every_half_has_its_value)
{
    for (int h = 0; h < 0x7c00; h++) {
        double want = h < 0x400 ? ldexp(h, -24) : ldexp(1024 + h % 1024, h / 1024 - 25);
        cr_assert_eq((double)f16_to_f32((uint16_t)h), want, "%04x", (unsigned)h);
        cr_assert_eq((double)f16_to_f32((uint16_t)(h | 0x8000)), -want);
    }
    cr_assert(signbit(f16_to_f32(0x8000)));
    cr_assert_eq(f16_to_f32(0x7c00), INFINITY);
    cr_assert_eq(f16_to_f32(0xfc00), -INFINITY);
}

// The definition: whole numbers of the last place, ties to even (what rint does), in double, where all of it is exact.
static uint16_t slow_half(float f)
{
    double x = fabs((double)f);
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    if (x == 0)
        return sign;
    int exponent = MAX(ilogb(x), -14);
    double steps = x < INFINITY ? rint(ldexp(x, 10 - exponent)) : 2048;
    if (exponent > 15 || ldexp(steps, exponent - 10) >= 65536)
        return sign | 0x7c00;
    return (uint16_t)(sign + (exponent + 14) * 1024 + (int)steps);
}

// Floats in and around the range of halfs; every other one on a tie or next to it.
static float random_near_half(struct random *r)
{
    uint64_t z = random_u64(r);
    uint32_t bits = (uint32_t)z & 0x807fffff, exponent = 127 - 28 + (uint32_t)(z >> 32) % 46;
    if (z >> 63)
        bits = (bits & ~0x1fffu) + 0x1000 + (uint32_t)(z >> 61 & 3) - 1;
    bits |= exponent << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

Test(half, f32_to_f16_rounds_to_nearest_even)
{
    struct random r = seeded("rounding");
    for (int i = 0; i < 2000000; i++) {
        float f = random_near_half(&r);
        cr_assert_eq(f32_to_f16(f), slow_half(f), "%a", (double)f);
    }
    static const float edges[] = {0x1p-25f,     0x1.000002p-25f, 0x1.fffffep-26f, 0x1.8p-24f, 65504, 65519.996f,  65520,
                                  0x1.ffcp-15f, 0x1.ffep-15f,    0x1.ffffp-15f,   FLT_MAX,    0,     FLT_TRUE_MIN};
    for (size_t i = 0; i < COUNT_OF(edges); i++) {
        cr_expect_eq(f32_to_f16(edges[i]), slow_half(edges[i]), "%a", (double)edges[i]);
        cr_expect_eq(f32_to_f16(-edges[i]), slow_half(-edges[i]), "%a", (double)-edges[i]);
    }
    cr_expect_eq(f32_to_f16(INFINITY), 0x7c00);
    cr_expect_eq(f32_to_f16(-INFINITY), 0xfc00);
}

#ifdef __x86_64__
__attribute__((target("f16c"))) static uint16_t hardware_half(float f)
{
    return (uint16_t)_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
}

__attribute__((target("f16c"))) static float hardware_float(uint16_t h)
{
    return _cvtsh_ss(h);
}

Test(half, both_ways_agree_with_the_hardware)
{
    if (!__builtin_cpu_supports("avx2")) // clang 14 cannot ask for F16C itself, which all with AVX2 have
        cr_skip_test("skipped: this CPU has no F16C");
    struct random r = seeded("hardware");
    for (uint32_t h = 0; h < 65536; h++) {
        float soft = f16_to_f32((uint16_t)h), hard = hardware_float((uint16_t)h);
        cr_assert_arr_eq(&soft, &hard, sizeof soft, "%04x", h);
    }
    for (int i = 0; i < 10000000; i++) {
        float f = random_near_half(&r);
        if (f32_to_f16(f) != hardware_half(f))
            cr_assert_fail("%a: %04x, not %04x", (double)f, f32_to_f16(f), hardware_half(f));
    }
    for (int i = 0; i < 1000000; i++) { // any bits at all: NaN payloads, infinities, subnormal floats
        uint32_t bits = (uint32_t)random_u64(&r);
        float f;
        memcpy(&f, &bits, sizeof f);
        if (f32_to_f16(f) != hardware_half(f))
            cr_assert_fail("%08x: %04x, not %04x", bits, f32_to_f16(f), hardware_half(f));
    }
}
#endif

Test(bfloat, every_value_survives_the_round_trip)
{
    for (uint32_t h = 0; h < 65536; h++) {
        bool nan = (h & 0x7fff) > 0x7f80;
        cr_assert_eq(f32_to_bf16(bf16_to_f32((uint16_t)h)), nan ? (h | 0x40) : h, "%04x", h);
    }
}

Test(bfloat, f32_to_bf16_rounds_to_nearest_even)
{
    struct random r = seeded("bfloat");
    for (int i = 0; i < 1000000; i++) {
        float f = random_near_half(&r), got = bf16_to_f32(f32_to_bf16(f));
        int exponent = ilogbf(f);
        cr_assert_eq((double)got, ldexp(rint(ldexp(f, 7 - exponent)), exponent - 7), "%a", (double)f);
    }
    cr_expect_eq(f32_to_bf16(FLT_MAX), 0x7f80);
    cr_expect_eq(f32_to_bf16(-INFINITY), 0xff80);
    cr_expect_eq(f32_to_bf16(0x1p-133f), 0x0001);
    cr_expect_eq(f32_to_bf16(0x1p-134f), 0x0000);
}

static float largest_of(const float *x, int n)
{
    float top = 0;
    for (int i = 0; i < n; i++)
        top = fmaxf(top, fabsf(x[i]));
    return top;
}

// The decode of the encode, n elements.
static void round_trip(enum dtype type, const float *x, float *out, int64_t n)
{
    uint8_t *blocks = malloc(dtype_row_bytes(type, n));
    dtype_encode[type](x, blocks, n);
    dtype_decode[type](blocks, out, n);
    free(blocks);
}

// How far an encoder may be off.
//   step        one step, as a share of the largest magnitude T among the elements that share a scale
//   worst       steps (of the whole block's T) that any element may be off
//   rms         steps that the elements of a block may be off as a root mean square
// Q8_0: d = T/127, half a step. Q4_0: d = T/8, half a step, a whole one where 8 was wanted and 7 is the end.
// Q4_K, Q5_K: the range of a sub-block is at most 2T, so a step is 2T/15 or 2T/31. Half a step of rounding, and the
// six-bit scale and min, each half of 1/63 of the largest of their kind off, which the refinement may have doubled:
// top/63 + (top at the widest min)/63 of a step, 15: 0.5 + 0.24 + 0.24, 31: 0.5 + 0.5 + 0.5. An element may be clipped
// once more by as much as the refinement moved the ends, which the root mean square bounds: an error over all 32.
// Q6_K: T/32, as Q4_0, and the 8-bit scale: 32 * 0.5/127 = 0.13 of a step.
static const struct bound {
    enum dtype type;
    int sharing; // elements that share a scale
    double step, worst, rms;
    int quants_from, quants_to; // bytes of the block that hold elements, not scales
    double most_of_grid;        // mean square error, as a share of that of a uniform grid (see the test of it)
} bounds[] = {
    {DT_Q8_0, 32, 1 / 127.0, 0.5, 0.5, 2, 34, 1.02},   {DT_Q4_0, 32, 1 / 8.0, 1.0, 1.0, 2, 18, 1.02},
    {DT_Q4_K, 32, 2 / 15.0, 3.0, 0.98, 16, 144, 0.86}, {DT_Q5_K, 32, 2 / 31.0, 3.0, 1.5, 16, 176, 0.9},
    {DT_Q6_K, 16, 1 / 32.0, 1.3, 1.13, 0, 192, 0.93},
};

// The scale is a half, with a relative error of up to 2^-11, or an absolute one of 2^-24 for subnormals. It is
// multiplied by q, which is at most 31 for types with two levels of scales. No error may exceed that of a block of
// zeros.
static const double SCALE_SLACK = 1 + 0x1p-10, SCALE_FLOOR = 32 * 0x1p-24;

static void check_bound(const struct bound *b, const float *x, const float *y, const char *what)
{
    int n = dtype_info[b->type].block;
    double top = largest_of(x, n), sum = 0, worst = 0;
    double step = top * b->step * SCALE_SLACK, extra = fmin(top * (1 + 1e-6), SCALE_FLOOR);
    for (int i = 0; i < n; i++) {
        double e = fabs((double)y[i] - x[i]);
        worst = fmax(worst, e);
        sum += e * e;
    }
    cr_expect_leq(worst, b->worst * step + extra, "%s, %s: worst error %g, step %g", dtype_info[b->type].name, what,
                  worst, step);
    cr_expect_leq(sqrt(sum / n), b->rms * step + extra, "%s, %s: rms error %g, step %g", dtype_info[b->type].name, what,
                  sqrt(sum / n), step);
}

typedef double shape_fn(struct random *r, int i);
static double shape_normal(struct random *r, int i)
{
    (void)i;
    return random_normal(r);
}
static double shape_uniform(struct random *r, int i)
{
    (void)i;
    return 2 * random_unit(r) - 1;
}
static double shape_positive(struct random *r, int i)
{
    (void)i;
    return 3 + random_unit(r);
}
static double shape_negative(struct random *r, int i)
{
    (void)i;
    return -3 - random_unit(r);
}
static double shape_outliers(struct random *r, int i)
{
    return random_normal(r) * (i % 37 == 0 ? 100 : 1);
}
static double shape_constant(struct random *r, int i)
{
    (void)r, (void)i;
    return -0.7;
}
static double shape_ramp(struct random *r, int i)
{
    (void)r;
    return i - 100;
}
static double shape_single(struct random *r, int i)
{
    (void)r;
    return i == 131 ? 1 : 0;
}
static double shape_two_sided(struct random *r, int i)
{
    (void)r;
    return i % 2 ? 1 : -1;
}

static const struct {
    const char *name;
    shape_fn *draw;
} shapes[] = {{"normal", shape_normal},     {"uniform", shape_uniform},   {"positive", shape_positive},
              {"negative", shape_negative}, {"outliers", shape_outliers}, {"constant", shape_constant},
              {"ramp", shape_ramp},         {"single", shape_single},     {"two-sided", shape_two_sided}};

Test(encode, every_quantised_encoder_has_a_bound)
{
    for (int t = 0; t < DT_COUNT; t++) {
        bool listed = false;
        for (size_t b = 0; b < COUNT_OF(bounds); b++)
            listed |= bounds[b].type == (enum dtype)t;
        cr_expect_eq(listed, dtype_encode[t] && dtype_info[t].kind == DTYPE_KIND_QUANT, "%s", dtype_info[t].name);
    }
}

Test(encode, errors_are_within_steps_of_the_scale)
{
    struct random r = seeded("bounds");
    static const double magnitudes[] = {1, 0.02, 1e-3, 1e-5, 1e-7, 1e-9, 40, 3000};
    for (size_t b = 0; b < COUNT_OF(bounds); b++)
        for (size_t s = 0; s < COUNT_OF(shapes); s++)
            for (int trial = 0; trial < 40; trial++) {
                float x[MAX_BLOCK], y[MAX_BLOCK];
                double magnitude = magnitudes[trial % (int)COUNT_OF(magnitudes)];
                for (int i = 0; i < dtype_info[bounds[b].type].block; i++)
                    x[i] = (float)(magnitude * shapes[s].draw(&r, i));
                round_trip(bounds[b].type, x, y, dtype_info[bounds[b].type].block);
                check_bound(&bounds[b], x, y, shapes[s].name);
            }
}

static double square_error(enum dtype type, const uint8_t *block, const float *x)
{
    float y[MAX_BLOCK];
    double sum = 0;
    dtype_decode[type](block, y, dtype_info[type].block);
    for (int i = 0; i < dtype_info[type].block; i++)
        sum += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
    return sum;
}

// The nearest value that the scales allow: no flipped bit of an element may do better (but for a tie).
Test(encode, no_flipped_bit_of_an_element_lowers_the_error)
{
    struct random r = seeded("nearest");
    for (size_t k = 0; k < COUNT_OF(bounds); k++)
        for (int trial = 0; trial < 4; trial++) {
            const struct bound *b = &bounds[k];
            float x[MAX_BLOCK];
            uint8_t block[MAX_BYTES];
            for (int i = 0; i < dtype_info[b->type].block; i++)
                x[i] = (float)(0.05 * random_normal(&r));
            dtype_encode[b->type](x, block, dtype_info[b->type].block);
            double best = square_error(b->type, block, x);
            for (int bit = 8 * b->quants_from; bit < 8 * b->quants_to; bit++) {
                block[bit / 8] ^= (uint8_t)(1 << bit % 8);
                double flipped = square_error(b->type, block, x);
                block[bit / 8] ^= (uint8_t)(1 << bit % 8);
                cr_expect_geq(flipped, best * (1 - 1e-6), "%s: bit %d", dtype_info[b->type].name, bit);
            }
        }
}

// Rounding to a grid of step h errs by h^2/12 on average. The grid is that of the range of each group of elements that
// share a scale (for signed types: twice the largest magnitude, over 2 times the levels on a side). Least squares must
// better that: the limits of the K-quants lie between what the fit of the range alone measures (0.91, 0.93, 0.96) and
// what the refined fit does (0.82, 0.88, 0.90).
Test(encode, mean_error_on_normal_data_is_that_of_the_grid)
{
    struct random r = seeded("mean");
    enum { N = 64 * MAX_BLOCK };
    static float x[N], y[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)(0.02 * random_normal(&r));
    for (size_t k = 0; k < COUNT_OF(bounds); k++) {
        const struct bound *b = &bounds[k];
        bool has_min = b->type == DT_Q4_K || b->type == DT_Q5_K;
        double grid = 0, error = 0;
        round_trip(b->type, x, y, N);
        for (int i = 0; i < N; i += b->sharing) {
            double lo = 0, hi = 0;
            for (int j = i; j < i + b->sharing; j++) {
                lo = fmin(lo, x[j]);
                hi = fmax(hi, x[j]);
                error += ((double)y[j] - x[j]) * ((double)y[j] - x[j]);
            }
            double h = has_min ? (hi - lo) / 2 * b->step : fmax(hi, -lo) * b->step;
            grid += b->sharing * h * h / 12;
        }
        printf("%s: mean square error %.3f of the grid's\n", dtype_info[b->type].name, error / grid);
        cr_expect_lt(error, grid * b->most_of_grid, "%s: %g", dtype_info[b->type].name, error / grid);
        cr_expect_gt(error, grid * 0.7, "%s: %g, too good to be true", dtype_info[b->type].name, error / grid);
    }
}

Test(encode, zeros_stay_zeros)
{
    for (int t = 0; t < DT_COUNT; t++) {
        float x[MAX_BLOCK] = {0}, y[MAX_BLOCK];
        if (!dtype_encode[t])
            continue;
        x[dtype_info[t].block / 2] = -0.0f;
        round_trip((enum dtype)t, x, y, dtype_info[t].block);
        for (int i = 0; i < dtype_info[t].block; i++)
            cr_expect_eq(y[i], 0.0f, "%s", dtype_info[t].name);
    }
}

Test(encode, subnormal_floats_become_nothing_worse_than_zero)
{
    struct random r = seeded("subnormal");
    for (int t = 0; t < DT_COUNT; t++) {
        float x[MAX_BLOCK], y[MAX_BLOCK];
        if (!dtype_encode[t] || dtype_info[t].kind != DTYPE_KIND_QUANT)
            continue;
        for (int i = 0; i < dtype_info[t].block; i++)
            x[i] = (float)(random_normal(&r) * 1e-41);
        round_trip((enum dtype)t, x, y, dtype_info[t].block);
        for (int i = 0; i < dtype_info[t].block; i++)
            cr_expect_eq(y[i], 0.0f, "%s: %g", dtype_info[t].name, (double)y[i]);
    }
}

Test(encode, huge_values_saturate_and_keep_their_sign)
{
    for (int t = 0; t < DT_COUNT; t++) {
        if (!dtype_encode[t] || dtype_info[t].kind != DTYPE_KIND_QUANT)
            continue;
        float x[MAX_BLOCK], y[MAX_BLOCK];
        for (int i = 0; i < dtype_info[t].block; i++)
            x[i] = i % 3 ? FLT_MAX : -FLT_MAX;
        round_trip((enum dtype)t, x, y, dtype_info[t].block);
        for (int i = 0; i < dtype_info[t].block; i++)
            cr_expect(isfinite(y[i]) && (x[i] > 0 ? y[i] > 1e5f : y[i] < -1e5f), "%s: %g became %g", dtype_info[t].name,
                      (double)x[i], (double)y[i]);
    }
}

Test(encode, a_nan_or_infinity_poisons_its_block_alone)
{
    struct random r = seeded("poison");
    static const float poisons[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int t = 0; t < DT_COUNT; t++) {
        if (!dtype_encode[t])
            continue;
        int n = dtype_info[t].block;
        for (int trial = 0; trial < 16; trial++) {
            float x[3 * MAX_BLOCK], y[3 * MAX_BLOCK];
            for (int i = 0; i < 3 * n; i++)
                x[i] = (float)random_normal(&r);
            x[n + (int)(random_u64(&r) % (uint64_t)n)] = poisons[trial % 4];
            round_trip((enum dtype)t, x, y, 3 * n);
            cr_expect(all_finite(y, n) && all_finite(y + 2 * n, n), "%s", dtype_info[t].name);
            for (int i = n; i < 2 * n; i++)
                cr_expect(dtype_info[t].kind == DTYPE_KIND_QUANT ? isnan(y[i]) : !isfinite(y[i]), "%s",
                          dtype_info[t].name);
        }
    }
}

Test(encode, floats_are_kept_as_their_type_rounds_them)
{
    struct random r = seeded("floats");
    float x[1000], y[1000];
    for (int i = 0; i < 1000; i++)
        x[i] = random_near_half(&r);
    round_trip(DT_F32, x, y, 1000);
    cr_expect_arr_eq(x, y, sizeof x);
    round_trip(DT_F16, x, y, 1000);
    for (int i = 0; i < 1000; i++)
        cr_expect_eq(y[i], f16_to_f32(slow_half(x[i])));
    round_trip(DT_BF16, x, y, 1000);
    for (int i = 0; i < 1000; i++)
        cr_expect_float_eq(y[i], x[i], fabsf(x[i]) * 0x1p-8f);
}

Test(encode, what_was_decoded_encodes_to_the_same_values)
{
    struct random r = seeded("again");
    static const enum dtype exact[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0};
    for (size_t k = 0; k < COUNT_OF(exact); k++)
        for (int trial = 0; trial < 100; trial++) {
            float x[32], y[32], z[32];
            for (int i = 0; i < 32; i++)
                x[i] = (float)random_normal(&r);
            round_trip(exact[k], x, y, 32);
            round_trip(exact[k], y, z, 32);
            cr_expect_arr_eq(y, z, sizeof y, "%s", dtype_info[exact[k]].name);
        }
}
