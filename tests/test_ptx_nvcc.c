// Tests the interpreter with PTX that nvcc has compiled: the same C source, compiled by the host's compiler, must give
// the same bits. It covers integers, single and double precision, local and shared memory, shuffles, votes and atomics.
// nvcc's mathematical functions must agree with libm within the ulps that the CUDA manual states. Skipped without nvcc.
#include "tests/ptx/interpreter.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// One source for two compilers: the code between the marks is also compiled here.
#define ON_BOTH(name, code)                                                                                            \
    static const char name[] = #code;                                                                                  \
    code

// ---- functions that are single instructions on a GPU, for the host

static unsigned both_popc(unsigned a)
{
    return (unsigned)__builtin_popcount(a);
}

static unsigned both_clz(unsigned a)
{
    return a ? (unsigned)__builtin_clz(a) : 32;
}

static unsigned both_ffs(unsigned a)
{
    return (unsigned)__builtin_ffs((int)a);
}

static unsigned both_brev(unsigned a)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (a >> i & 1) << (31 - i);
    return r;
}

static unsigned both_perm(unsigned a, unsigned b, unsigned s)
{
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (unsigned)(both >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
    return r;
}

static unsigned both_shift(unsigned low, unsigned high, unsigned n)
{
    return n & 31 ? high << (n & 31) | low >> (32 - (n & 31)) : high;
}

static int both_dot(int a, int b, int c)
{
    for (int i = 0; i < 4; i++)
        c = (int)((unsigned)c + (unsigned)((signed char)(a >> 8 * i) * (signed char)(b >> 8 * i)));
    return c;
}

static int both_mulhi(int a, int b)
{
    return (int)((long long)a * b >> 32);
}

static unsigned both_umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}

// The same names on the GPU.
static const char prelude[] =
    "#define both_popc(a) ((unsigned)__popc(a))\n#define both_clz(a) ((unsigned)__clz((int)(a)))\n"
    "#define both_ffs(a) ((unsigned)__ffs((int)(a)))\n#define both_brev(a) __brev(a)\n"
    "#define both_perm(a, b, s) __byte_perm(a, b, (s) & 0x7777)\n"
    "#define both_shift(l, h, n) __funnelshift_l(l, h, n)\n#define both_dot(a, b, c) __dp4a(a, b, c)\n"
    "#define both_mulhi(a, b) __mulhi(a, b)\n#define both_umulhi(a, b) __umulhi(a, b)\n";

enum { N = 192, INTS = 24, FLOATS = 16, DOUBLES = 8, MATHS = 12, GROUPS = 6, SIDE = 64 };

// clang-format off
ON_BOTH(integer_source,
static unsigned both_loop(unsigned v, unsigned t) {
    int s = (int)(v >> 2);
    unsigned r = v;
    for (unsigned i = 0; i < 5; i++) {
        r = r * 1664525u + 1013904223u;
        s += (int)(r >> (i + 3)) / (int)(t + 1) - s % (int)(2 * t + 3);
        if (s & 4) r ^= (unsigned)s << (i & 31); else r = (r << 7) | (r >> 25);
    }
    unsigned long long w = (unsigned long long)r * v + (unsigned)s;
    return (unsigned)(w >> 21) ^ (unsigned)(signed char)r;
}
static unsigned both_table(unsigned a, unsigned b) {
    unsigned char own[32];
    for (unsigned i = 0; i < 32; i++) own[i] = (unsigned char)(a * i + (b >> (i & 7)));
    for (unsigned i = 0; i < 8; i++) { unsigned char t = own[a >> i & 31]; own[a >> i & 31] = own[b >> i & 31]; own[b >> i & 31] = t; }
    return own[a & 31] | (unsigned)own[b & 31] << 8 | (unsigned)own[(a ^ b) & 31] << 16;
}
static unsigned both_cases(unsigned a, unsigned b) {
    switch (a % 11) {
    // clang-format off
    case 0: return a + b;
    case 1: return a * 3 - b;
    case 2: return a ^ b << 3;
    case 3: return ~a;
    case 4: return a / (b | 1);
    case 5: return b & 0xff00ff;
    case 6: return a > b ? a : b;
    case 9: return a - 1000 * b;
    default: return b;
            // clang-format on
        }
    } static void both_ints(unsigned a, unsigned b, unsigned *o) {
        int x = (int)a;
        int y = (int)b;
        long long w = (long long)x * 1048576 + y;
        unsigned long long u = ((unsigned long long)a << 32) | b;
        o[0] = a / (b % 1000 + 1) + a % (b | 1);
        o[1] = (unsigned)(x / (y % 1000 * 4 + 2)) + (unsigned)(x % ((y & ~1) | 2));
        o[2] = (unsigned)(x >> (b & 31)) ^ a << (b & 31) ^ a >> (b >> 5 & 31);
        o[3] = (unsigned)(w >> (b & 63)) ^ (unsigned)(u >> (a & 63)) ^ (unsigned)(u << (b & 63) >> 32);
        o[4] = (unsigned)(w / (y | 1)) ^ (unsigned)(u / (a | 1)) ^ (unsigned)(u % (b | 1)) ^ (unsigned)(w % (x | 1));
        o[5] = (unsigned)both_mulhi(x, y) + both_umulhi(a, b);
        o[6] = (unsigned)(w / 1048576 * x >> 7) ^ (unsigned)(u * b >> 33);
        o[7] = (unsigned)((signed char)(a >> 8) * (signed char)b) + (unsigned)((short)(b >> 4) * (short)a);
        o[8] = (unsigned)((int)(a << 7) >> 19) ^ ((b >> 11) & 0x1ff);
        o[9] = (a & 0xfff0000f) | ((b & 0xffff) << 4);
        o[10] = (unsigned)(x < y ? x : y) ^ (a > b ? a : b) ^ (unsigned)(x < 0 ? -(long long)x : x);
        o[11] = (a & b) ^ (~a | (b & 0x55555555)) ^ (a & ~b);
        o[12] = both_popc(a) | both_clz(a >> (b & 31)) << 8 | both_ffs(b & ~15u) << 16;
        o[13] = both_brev(a) + both_brev(b >> 3);
        o[14] = both_perm(a, b, a >> 3) ^ both_perm(a, b, 0x2301);
        o[15] = both_shift(a, b, a & 31) ^ both_shift(b, a, 13) ^ (a << 11 | a >> 21);
        o[16] = (unsigned)both_dot(x, y, x ^ y);
        o[17] = (unsigned)(unsigned char)(a + b) << 8 | (unsigned)(unsigned short)(a * b) >> 3;
        o[18] = (w < (long long)u ? 1u : 0u) | (u < (unsigned long long)w ? 2u : 0u) | (x <= y ? 4u : 0u) |
                (a <= b ? 8u : 0u) | (w != 0 && a != b ? 16u : 0u);
        o[19] = both_loop(a, b & 255);
        o[20] = both_table(a, b);
        o[21] = both_cases(a, b);
        o[22] = a / 7 + b / 641 + (unsigned)(x / 10) + (unsigned)(y % 9);
        o[23] = (unsigned)(short)(a / 3) + (unsigned)((short)b >> 2) * 5;
    })
ON_BOTH(
    float_source,
    static void both_floats(float x, float y, unsigned a, float *o) {
        o[0] = x + y * 0.5f - x * y;
        o[1] = x / (y + 3.0f) + y / 7.0f;
        o[2] = sqrtf(x * x + y * y) - sqrtf(fabsf(x));
        o[3] = fmaf(x, y, 1.0f) - fmaf(-x, 0.1f, y);
        o[4] = fminf(x, y) + 2.0f * fmaxf(x, y);
        o[5] = floorf(x) + ceilf(y) * 3.0f + truncf(x * 9.0f) + rintf(y * 5.0f);
        o[6] = (float)(int)(x * 100.0f) + (float)(unsigned)(fabsf(y) * 1e4f);
        o[7] = (float)a + (float)(int)a * 1e-3f;
        o[8] = (float)((unsigned long long)a * a) + (float)((long long)(int)a * (int)a);
        o[9] = x < y ? x : (y <= 0.5f ? y * 2.0f : x - y);
        o[10] = copysignf(x, y) + (x != x ? 1.0f : 0.0f) + (x == y ? 4.0f : 0.0f);
        o[11] = x * 1e-38f * y * 1e-3f;
        o[12] = x * 1e30f * y * 1e30f;
        o[13] = 1.0f / (x - x) * y;
        o[14] = (x > 0.0f && y > 0.0f) || !(x < y) ? x + 1.0f : y - 1.0f;
        o[15] = 1.0f / (1.0f + x * x) + (float)(long long)(y * 1e9f);
    } static void both_doubles(double x, double y, unsigned a, double *o) {
        o[0] = x * y + x / (y + 3.0) - y;
        o[1] = sqrt(x * x + y * y);
        o[2] = fma(x, y, 1.0 / (1.0 + x * x));
        o[3] = floor(x * 10.0) + ceil(y) + trunc(x * 99.0) + rint(y * 7.0);
        o[4] = (double)a + (double)(int)a * 1e-9 + (double)((unsigned long long)a * a);
        o[5] = (double)(float)x - (double)(long long)(y * 1e12);
        o[6] = fmin(x, y) - fmax(x, y) * 2.0 + fabs(x);
        o[7] = x < y ? x : (y > 0.25 ? -y : copysign(x, y));
    })
// clang-format on

static const char kernels[] =
    "extern \"C\" __global__ void ints(const unsigned *v, unsigned *o, unsigned n) {\n"
    "    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n) both_ints(v[i], v[i + n], o + 24 * i);\n}\n"
    "extern \"C\" __global__ void floats(const float *x, const unsigned *v, float *o, unsigned n) {\n"
    "    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n) both_floats(x[i], x[i + n], v[i], o + 16 * i);\n}\n"
    "extern \"C\" __global__ void doubles(const float *x, const unsigned *v, double *o, unsigned n) {\n"
    "    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n) both_doubles(x[i] * 1.1, x[i + n] / 3.0, v[i], o + 8 * i);\n}\n"
    "extern \"C\" __global__ void maths(const float *v, float *o, unsigned n) {\n"
    "    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i >= n) return;\n"
    "    float x = v[i], *y = o + 12 * i;\n"
    "    y[0] = expf(x); y[1] = logf(fabsf(x)); y[2] = sinf(x); y[3] = cosf(x * 1e6f); y[4] = tanhf(x);\n"
    "    y[5] = powf(fabsf(x), 1.7f); y[6] = rsqrtf(fabsf(x)); y[7] = exp2f(x); y[8] = log2f(fabsf(x)); y[9] = erff(x);\n"
    "    y[10] = atan2f(x, 0.7f); y[11] = cbrtf(x);\n}\n"
    // sum of a warp, of a CTA, a scan, a vote, atomics
    "extern \"C\" __global__ void groups(const unsigned *v, unsigned *o, unsigned *bins) {\n"
    "    __shared__ unsigned tile[64], most;\n"
    "    unsigned t = threadIdx.x, i = blockIdx.x * 64 + t, a = v[i], s = a;\n"
    "    for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);\n"
    "    o[i] = s;\n"
    "    unsigned scan = a;\n"
    "    for (int d = 1; d < 32; d *= 2) { unsigned b = __shfl_up_sync(0xffffffffu, scan, d); if ((t & 31) >= d) scan += b; }\n"
    "    o[192 + i] = scan + __shfl_sync(0xffffffffu, a, 3) + __shfl_down_sync(0xffffffffu, a, 1, 8);\n"
    "    o[384 + i] = __ballot_sync(0xffffffffu, a & 1) + (__any_sync(0xffffffffu, a % 97 == 0) ? 1 : 0) +\n"
    "        (__all_sync(0xffffffffu, a != 5) ? 2 : 0);\n"
    "    tile[t] = a;\n    if (t == 0) most = 0;\n    __syncthreads();\n"
    "    atomicMax(&most, a);\n"
    "    for (int d = 32; d; d >>= 1) { if (t < d) tile[t] += tile[t + d]; __syncthreads(); }\n"
    "    o[576 + i] = tile[0];\n    o[768 + i] = most;\n"
    "    atomicAdd(&bins[a & 7], 1u);\n    atomicXor(&bins[8], a);\n    atomicMin(&bins[9], a);\n"
    "    unsigned old = *(volatile unsigned *)&bins[10], was;\n"
    "    do { was = old; old = atomicCAS(&bins[10], was, was + (a & 3)); } while (old != was);\n"
    "    o[960 + i] = (t & 32) ? 7u : __popc(__activemask());\n}\n";

static char ptx[1 << 20];

static void put_source(FILE *f, const char *at)
{
    static const char mark[] = "static ";
    while (*at) {
        bool begins = !strncmp(at, mark, sizeof(mark) - 1);
        fputs(begins ? "__device__ static " : "", f);
        at += begins ? sizeof(mark) - 1 : 0;
        fputc(*at++, f);
    }
    fputc('\n', f);
}

// Compiles the source to PTX, once per process. Returns false if there is no nvcc.
static bool compile_both(void)
{
    char dir[] = "/tmp/quern-ptx-XXXXXX", path[64], command[256];
    if (system("nvcc --version >/dev/null 2>&1") || !mkdtemp(dir))
        return false;
    snprintf(path, sizeof(path), "%s/both.cu", dir);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    fputs(prelude, f);
    put_source(f, integer_source);
    put_source(f, float_source);
    fputs(kernels, f);
    fclose(f);
    snprintf(command, sizeof(command), "nvcc -arch=sm_80 -fmad=false -ptx %s -o %s/both.ptx", path, dir);
    int rc = system(command);
    snprintf(path, sizeof(path), "%s/both.ptx", dir);
    size_t n = 0;
    f = rc ? NULL : fopen(path, "r");
    if (f) {
        n = fread(ptx, 1, sizeof(ptx) - 1, f);
        fclose(f);
    }
    ptx[n] = 0;
    snprintf(command, sizeof(command), "rm -r %s", dir);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(rc, 0, "nvcc refuses the source");
    return true;
}

static uint64_t put_new(struct simt *s, const void *data, size_t size)
{
    struct error err = {0};
    uint64_t at = simt_alloc(s, size);
    cr_assert(at && (!data || simt_put(s, at, data, size, &err) == 0), "%s", err.text);
    return at;
}

static void launch_64(struct simt *s, const char *name, const void *params, size_t size)
{
    struct error err = {0};
    const struct simt_kernel *k = simt_find(s, name);
    cr_assert(k);
    int rc = simt_launch(s, k, (struct simt_dim){N / SIDE, 1, 1}, (struct simt_dim){SIDE, 1, 1}, 0, params, size, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
}

static void get_all(struct simt *s, uint64_t at, void *data, size_t size)
{
    struct error err = {0};
    cr_assert_eq(simt_get(s, at, data, size, &err), 0, "%s", err.text);
}

// Words of all magnitudes and signs, some small, some at the limits.
static uint32_t word_at(uint32_t i)
{
    static const uint32_t ends[] = {0, 1, 2, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0xff, 0x8000, 0xfffffffe};
    uint32_t r = (i + 1) * 2654435761u;
    r ^= r >> 13;
    return i % 19 < COUNT_OF(ends) ? ends[i % 19] : r >> (i % 5 * 6);
}

static float number_of(uint32_t i)
{
    static const float ends[] = {0.0f, -0.0f, 1.0f, -1.5f, 2.5f, 1e-30f, 3e4f};
    int32_t r = (int32_t)((i + 7) * 2654435761u);
    return i % 13 < COUNT_OF(ends) ? ends[i % 13] : (float)r * 0x1p-31f * (float)(1 << i % 8);
}

struct inputs {
    struct simt *s;
    uint32_t v[2 * N];
    float x[2 * N];
    uint64_t at_v, at_x;
};

static void inputs_begin(struct inputs *in)
{
    struct error err = {0};
    if (!compile_both())
        cr_skip_test("skipped: there is no nvcc");
    in->s = simt_new();
    cr_assert_eq(simt_load(in->s, str_from(ptx), &err), 0, "%s\n%s", err.text, ptx);
    for (uint32_t i = 0; i < 2 * N; i++) {
        in->v[i] = word_at(i < N ? i : 3 * i + 1);
        in->x[i] = number_of(i < N ? i : 5 * i + 2);
    }
    in->at_v = put_new(in->s, in->v, sizeof(in->v));
    in->at_x = put_new(in->s, in->x, sizeof(in->x));
}

static struct inputs in;

static void check_ints(void)
{
    static uint32_t o[N][INTS];
    struct {
        uint64_t v, o;
        uint32_t n;
    } params = {in.at_v, put_new(in.s, NULL, sizeof(o)), N};
    launch_64(in.s, "ints", &params, 20);
    get_all(in.s, params.o, o, sizeof(o));
    for (uint32_t i = 0; i < N; i++) {
        uint32_t want[INTS];
        both_ints(in.v[i], in.v[i + N], want);
        for (int f = 0; f < INTS; f++)
            cr_expect_eq(o[i][f], want[f], "%d of %x, %x: %x, not %x", f, in.v[i], in.v[i + N], o[i][f], want[f]);
    }
}

static void check_floats(void)
{
    static float o[N][FLOATS];
    struct {
        uint64_t x, v, o;
        uint32_t n;
    } params = {in.at_x, in.at_v, put_new(in.s, NULL, sizeof(o)), N};
    launch_64(in.s, "floats", &params, 28);
    get_all(in.s, params.o, o, sizeof(o));
    for (uint32_t i = 0; i < N; i++) {
        float want[FLOATS];
        both_floats(in.x[i], in.x[i + N], in.v[i], want);
        for (int f = 0; f < FLOATS; f++)
            cr_expect(o[i][f] == want[f] || (isnan(o[i][f]) && isnan(want[f])), "%d of %a, %a, %x: %a, not %a", f,
                      (double)in.x[i], (double)in.x[i + N], in.v[i], (double)o[i][f], (double)want[f]);
    }
}

static void check_doubles(void)
{
    static double o[N][DOUBLES];
    struct {
        uint64_t x, v, o;
        uint32_t n;
    } params = {in.at_x, in.at_v, put_new(in.s, NULL, sizeof(o)), N};
    launch_64(in.s, "doubles", &params, 28);
    get_all(in.s, params.o, o, sizeof(o));
    for (uint32_t i = 0; i < N; i++) {
        double want[DOUBLES];
        both_doubles((double)in.x[i] * 1.1, (double)in.x[i + N] / 3.0, in.v[i], want);
        for (int f = 0; f < DOUBLES; f++)
            cr_expect_eq(o[i][f], want[f], "%d of %a, %a, %x: %a, not %a", f, (double)in.x[i], (double)in.x[i + N],
                         in.v[i], o[i][f], want[f]);
    }
}

Test(ptx_nvcc, gives_the_hosts_bits)
{
    inputs_begin(&in);
    check_ints();
    check_floats();
    check_doubles();
    simt_free(in.s);
}

// The largest error of each function in ulps of the result, from the CUDA manual. The error is measured against double.
Test(ptx_nvcc, mathematical_functions_keep_their_bounds)
{
    static const double ulps[MATHS] = {2, 1, 2, 2, 2, 4, 2, 2, 1, 2, 3, 1};
    static float o[N][MATHS];
    inputs_begin(&in);
    struct {
        uint64_t v, o;
        uint32_t n;
    } params = {in.at_x, put_new(in.s, NULL, sizeof(o)), N};
    launch_64(in.s, "maths", &params, 20);
    get_all(in.s, params.o, o, sizeof(o));
    for (uint32_t i = 0; i < N; i++) {
        double x = (double)in.x[i], a = fabs(x), big = (double)(in.x[i] * 1e6f);
        double want[MATHS] = {exp(x),
                              log(a),
                              sin(x),
                              cos(big),
                              tanh(x),
                              pow(a, (double)1.7f),
                              1 / sqrt(a),
                              exp2(x),
                              log2(a),
                              erf(x),
                              atan2(x, (double)0.7f),
                              cbrt(x)};
        for (int f = 0; f < MATHS; f++) {
            float near = (float)want[f], y = o[i][f];
            double ulp = isinf(near) ? 0 : MAX((double)(nextafterf(fabsf(near), INFINITY) - fabsf(near)), 0x1p-149);
            bool good = y == near || fabs((double)y - want[f]) <= (ulps[f] + 0.5) * ulp;
            cr_expect(good, "%d of %a: %a, not %a", f, x, (double)y, (double)near);
        }
    }
    simt_free(in.s);
}

Test(ptx_nvcc, warps_and_ctas_work_together)
{
    static uint32_t o[GROUPS][N], bins[11], want_bins[11];
    inputs_begin(&in);
    bins[9] = want_bins[9] = UINT32_MAX;
    struct {
        uint64_t v, o, bins;
    } params = {in.at_v, put_new(in.s, NULL, sizeof(o)), put_new(in.s, bins, sizeof(bins))};
    launch_64(in.s, "groups", &params, sizeof(params));
    get_all(in.s, params.o, o, sizeof(o));
    get_all(in.s, params.bins, bins, sizeof(bins));
    for (uint32_t i = 0; i < N; i++) {
        uint32_t warp = i / 32 * 32, cta = i / SIDE * SIDE, sum = 0, scan = 0, ballot = 0, any = 0, all = 2, total = 0,
                 most = 0;
        for (uint32_t j = warp; j < warp + 32; j++) {
            sum += in.v[j];
            scan += j <= i ? in.v[j] : 0;
            ballot |= (in.v[j] & 1) << (j - warp);
            any |= in.v[j] % 97 == 0;
            all = in.v[j] == 5 ? 0 : all;
        }
        for (uint32_t j = cta; j < cta + SIDE; j++) {
            total += in.v[j];
            most = MAX(most, in.v[j]);
        }
        uint32_t next = i % 8 == 7 ? in.v[i] : in.v[i + 1];
        cr_expect_eq(o[0][i], sum);
        cr_expect_eq(o[1][i], scan + in.v[warp + 3] + next);
        cr_expect_eq(o[2][i], ballot + any + all);
        cr_expect_eq(o[3][i], total);
        cr_expect_eq(o[4][i], most);
        cr_expect_eq(o[5][i], i & 32 ? 7u : 32u);
        want_bins[in.v[i] & 7]++;
        want_bins[8] ^= in.v[i];
        want_bins[9] = MIN(want_bins[9], in.v[i]);
        want_bins[10] += in.v[i] & 3;
    }
    for (int b = 0; b < 11; b++)
        cr_expect_eq(bins[b], want_bins[b], "%d: %u, not %u", b, bins[b], want_bins[b]);
    simt_free(in.s);
}
