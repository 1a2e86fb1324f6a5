// Times the emission of PTX: emission [-o table|json]
//
// For each kernel it prints the bytes and lines of the text, and the CPU time of one emission as the minimum and the
// median of BATCHES batches. Then it prints how many kernels per second the tiled product gives. The minimum is the
// cost of the work itself; the median includes the disturbance by other programs.
#include "bench/emission_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 101, BATCH = 1000, BUFFER = 1 << 17 };

struct timing {
    double min_us, median_us;
    size_t bytes, lines;
};

static double thread_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int time_case(const struct emission_case *c, char *buffer, struct timing *t, struct error *err)
{
    double us[BATCHES];
    struct ptx p;
    struct ptx_launch launch;
    for (int batch = 0; batch < BATCHES; batch++) {
        double begin = thread_us();
        for (int i = 0; i < BATCH; i++) {
            ptx_start(&p, buffer, BUFFER);
            if (emission_emit(c, &p, &launch, err))
                return -1;
        }
        us[batch] = (thread_us() - begin) / BATCH;
    }
    qsort(us, BATCHES, sizeof(us[0]), by_value);
    *t = (struct timing){.min_us = us[0], .median_us = us[BATCHES / 2], .bytes = p.size};
    for (size_t i = 0; i < p.size; i++)
        t->lines += buffer[i] == '\n';
    return 0;
}

static void print_case(const struct emission_case *c, const struct timing *t, bool json, bool first)
{
    if (json)
        printf("%s\n  {\"kernel\": \"%s\", \"us_min\": %.4f, \"us_median\": %.4f, \"us_limit\": %.3f, \"bytes\": %zu, "
               "\"lines\": %zu}",
               first ? "" : ",", c->name, t->min_us, t->median_us, c->limit_us, t->bytes, t->lines);
    else
        printf("%-20s %8.3f %8.3f %8.3f %8zu %6zu\n", c->name, t->min_us, t->median_us, c->limit_us, t->bytes,
               t->lines);
}

static int run(bool json, struct error *err)
{
    static char buffer[BUFFER];
    struct timing t;
    printf(json ? "{\"kernels\": [" : "kernel                 us min   median    limit    bytes  lines\n");
    for (size_t i = 0; i < COUNT_OF(emission_cases); i++) {
        if (time_case(&emission_cases[i], buffer, &t, err))
            return -1;
        print_case(&emission_cases[i], &t, json, i == 0);
    }
    const struct emission_case rate = {.name = "gemm_tiled_64",
                                       .family = EMISSION_GEMM,
                                       .emit.gemm = ptx_emit_gemm_tiled,
                                       .of.gemm = emission_rate_case};
    if (time_case(&rate, buffer, &t, err))
        return -1;
    if (json)
        printf("],\n \"rate\": {\"kernel\": \"%s\", \"per_second\": %.0f, \"per_second_best\": %.0f, \"limit\": %.0f, "
               "\"bytes\": %zu, \"lines\": %zu}}\n",
               rate.name, 1e6 / t.median_us, 1e6 / t.min_us, EMISSION_RATE_LIMIT, t.bytes, t.lines);
    else
        printf("%s (%zu bytes, %zu lines): %.0f kernels/s by the median, %.0f at best; at least %.0f are wanted\n",
               rate.name, t.bytes, t.lines, 1e6 / t.median_us, 1e6 / t.min_us, EMISSION_RATE_LIMIT);
    return 0;
}

int main(int argc, char **argv)
{
    bool json = argc == 3 && !strcmp(argv[1], "-o") && !strcmp(argv[2], "json");
    bool table = argc == 1 || (argc == 3 && !strcmp(argv[1], "-o") && !strcmp(argv[2], "table"));
    if (!json && !table) {
        fprintf(stderr, "emission [-o table|json]\n");
        return E_USAGE;
    }
    struct error err;
    if (run(json, &err)) {
        fprintf(stderr, "emission: %s\n", err.text);
        return (int)err.code;
    }
    return 0;
}
