// Measures error and speed of the quantizer of every type on Gaussian weights, and compares them with another engine's
// if its library is given ("-": none):
//   quern-quantizers [LIBGGML-BASE.SO|- [TYPE...]]
// Each runs on one thread, alternately; the time is the CPU time of the best of ROUNDS rounds. The RMSE is relative to
// the standard deviation of the weights. It is printed unweighted, and weighted by an importance that differs from
// column to column.
#include "kernels/cpu.h"
#include "engine/model.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROWS = 64, K = 4096, N = ROWS * K, ROUNDS = 5 };

typedef size_t other_fn(uint32_t type, const float *x, void *out, int64_t start, int64_t rows, int64_t k,
                        const float *w);

struct result {
    double ms, rmse, weighted;
};

static double gaussian(uint64_t *state)
{
    double u[2];
    for (int i = 0; i < 2; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        u[i] = ((double)(*state >> 11) + 0.5) * 0x1p-53;
    }
    return sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]);
}

static double thread_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void judge(enum dtype type, const uint8_t *blocks, const float *x, const float *w, struct result *r)
{
    static float back[N];
    dtype_decode[type](blocks, back, N);
    double sum = 0, weighted = 0, all = 0;
    for (int i = 0; i < N; i++) {
        double d = (double)back[i] - x[i];
        sum += d * d;
        weighted += w[i % K] * d * d;
        all += w[i % K];
    }
    r->rmse = sqrt(sum / N);
    r->weighted = sqrt(weighted / all);
}

static void run(enum dtype type, quantize_fn *own, other_fn *other, const float *x, const float *importance,
                uint8_t *out, struct result *r)
{
    double start = thread_ms();
    if (own)
        for (int i = 0; i < ROWS; i++)
            own(x + (size_t)i * K, importance, out + (size_t)i * dtype_row_bytes(type, K), K);
    else
        other(dtype_info[type].id, x, out, 0, ROWS, K, importance);
    double ms = thread_ms() - start;
    r->ms = r->ms == 0 || ms < r->ms ? ms : r->ms;
}

static void compare(enum dtype type, quantize_fn *own, other_fn *other, const float *x, const float *w)
{
    static uint8_t out[2][N * 4];
    for (int weighted = 0; weighted < 2; weighted++) {
        const char *name = dtype_info[type].name;
        bool needs = !strncmp(name, "IQ1", 3) || !strncmp(name, "IQ2", 3);
        if (needs && !weighted)
            continue;
        struct result r[2] = {{0}};
        for (int round = 0; round < ROUNDS; round++) {
            run(type, own, NULL, x, weighted ? w : NULL, out[0], &r[0]);
            if (other)
                run(type, NULL, other, x, weighted ? w : NULL, out[1], &r[1]);
        }
        judge(type, out[0], x, w, &r[0]);
        printf("%-8s %-10s %9.1f M/s  %.6f  %.6f", name, weighted ? "importance" : "alike", N / r[0].ms / 1e3,
               r[0].rmse, r[0].weighted);
        if (other) {
            judge(type, out[1], x, w, &r[1]);
            printf("   %9.1f M/s  %.6f  %.6f   x%.2f  %.4f %.4f%s", N / r[1].ms / 1e3, r[1].rmse, r[1].weighted,
                   r[1].ms / r[0].ms, r[0].rmse / r[1].rmse, r[0].weighted / r[1].weighted,
                   (weighted ? r[0].weighted > r[1].weighted : r[0].rmse > r[1].rmse) ? "  worse" : "");
        }
        printf("\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static float x[N], w[K];
    uint64_t state = 1;
    for (int i = 0; i < N; i++)
        x[i] = (float)gaussian(&state);
    for (int i = 0; i < K; i++)
        w[i] = (float)exp(gaussian(&state));
    other_fn *other = NULL;
    if (argc > 1 && strcmp(argv[1], "-")) {
        void *lib = dlopen(argv[1], RTLD_NOW);
        if (!lib) {
            fprintf(stderr, "%s\n", dlerror());
            return 5;
        }
        *(void **)&other = dlsym(lib, "ggml_quantize_chunk"); // which makes its tables itself
    }
    struct converters q;
    struct error err;
    struct machine *machine;
    if (machine_open_cpu(&machine, &(struct machine_options){.n_threads = 1}, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return (int)err.code;
    }
    machine_cpu_converters(machine, &q);
    printf("type     weights    speed          rmse  weighted   (other: speed, rmse, weighted)   ratios\n");
    for (int type = 0; type < DT_COUNT; type++) {
        bool wanted = argc < 3;
        for (int i = 2; i < argc; i++)
            wanted |= !strcasecmp(argv[i], dtype_info[type].name);
        if (q.quantize[type] && wanted)
            compare((enum dtype)type, q.quantize[type], other, x, w);
    }
    machine->v->close(machine);
    return 0;
}
