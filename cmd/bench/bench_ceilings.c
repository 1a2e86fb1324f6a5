// Measures the ceilings that speeds are compared with: memory bandwidth, and the multiply peak of each unit of the
// CPU.
#include "cmd/bench/bench.h"
#include "cmd/terminal/terminal.h"
#include "engine/measure/bandwidth.h"
#include "kernels/cpu.h"
#include "kernels/card.h"

#include <math.h>
#include <stdlib.h>

static const size_t READ_BYTES = (size_t)512 << 20; // far more than the caches hold

// Measures a GPU: bytes read plus bytes written per second of a copy in its memory.
static int measure_card(struct bench_ceilings *c, const struct model *m, struct error *err)
{
    struct card_speed speed;
    if (card_measure(m->card, &speed, err))
        return -1;
    c->read = speed.copy;
    return 0;
}

int bench_ceilings_measure(struct bench_ceilings *c, const struct model *m, int n_threads, struct error *err)
{
    if (!strcmp(m->device, "gpu"))
        return measure_card(c, m, err);
    if (strcmp(m->device, "cpu"))
        return 0;
    for (int u = 0; u < UNIT_COUNT; u++) {
        c->multiply[u] = machine_cpu_peak(m->machine, u);
        c->unit[u] = machine_cpu_unit_name(m->machine, u);
    }
    c->moves = true;
    return bandwidth_measure(n_threads, READ_BYTES, &c->read, err);
}

void bench_ceilings_note(const struct bench_ceilings *c, const struct bench_row *r)
{
    struct text units = {0};
    bench_print_units(c, NULL, 0, "; ", "", &units);
    if (c->moves)
        terminal_note("ceilings, %d threads: %.1f GB/s read%s", r->n_threads, c->read / 1e9,
                      units.failed ? "" : units.data);
    else if (c->read > 0)
        terminal_note("ceiling, %s: %.1f GB/s copied", r->gpu, c->read / 1e9);
    text_free(&units);
}

int bench_ceilings_again(struct bench_ceilings *c, const struct model *m, const struct bench_row *r,
                         struct bench_peaks *now, struct error *err)
{
    *now = (struct bench_peaks){c->read, c->multiply[r->unit]};
    if (!c->moves)
        return 0;
    now->multiply = machine_cpu_peak(m->machine, r->unit);
    if (bandwidth_measure(r->n_threads, READ_BYTES, &now->read, err))
        return -1;
    c->read = fmax(c->read, now->read);
    c->multiply[r->unit] = fmax(c->multiply[r->unit], now->multiply);
    return 0;
}

double bench_part(double work, const double *ns, const double *peaks, int n)
{
    double *parts = calloc((size_t)n + 1, sizeof *parts), median = 0;
    bool known = parts != NULL;
    for (int i = 0; known && i < n; i++) {
        known = peaks[i] > 0 && ns[i] > 0;
        parts[i] = known ? work / (ns[i] * 1e-9) / peaks[i] : 0;
    }
    if (known)
        median = samples_quantile(parts, n, 0.5);
    free(parts);
    return median;
}
