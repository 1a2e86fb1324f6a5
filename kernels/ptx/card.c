// Describes the GPUs of this computer and measures the speed of their memory: by copies of up to 512 MiB within the
// GPU's memory and of up to 64 MiB from pinned host memory. The measurement takes up to half of the free memory.
#include "kernels/card.h"
#include "kernels/ptx/gpu.h"

#include <ctype.h>
#include <stdio.h>

enum {
    PASSES = 6,            // times that each copy is repeated; the fastest counts
    COPY_MAX = 512 << 20,  // bytes of a copy within the GPU's memory, at most
    UPLOAD_MAX = 64 << 20, // bytes of a copy from host memory to the GPU, at most
    COPY_MIN = 1 << 20     // bytes of a copy, at least; a copy within the GPU is a multiple of this
};

int card_count(int *n, struct error *err)
{
    return driver_count(NULL, n, err);
}

static int tier_of(const struct driver_card *c)
{
    int cc = c->major * 10 + c->minor;
    return cc >= 90 ? 90 : cc >= 80 ? 80 : cc >= 75 ? 75 : 0;
}

// Reads the first line of a file in the device's folder in sysfs, without its line break. Returns whether it was found.
static bool read_fact(const char *pci, const char *fact, char *out, size_t size)
{
    char path[128];
    size_t n = (size_t)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", pci, fact);
    FILE *f = n < sizeof(path) ? fopen(path, "re") : NULL;
    bool found = f && fgets(out, (int)size, f);
    if (f)
        fclose(f);
    if (found)
        out[strcspn(out, "\n")] = 0;
    return found;
}

static void read_link(const struct driver_card *c, char *out, size_t size)
{
    char pci[sizeof(c->pci)], speed[40], width[8];
    for (size_t i = 0; i < sizeof(pci); i++)
        pci[i] = (char)tolower((unsigned char)c->pci[i]);
    out[0] = 0;
    if (read_fact(pci, "current_link_speed", speed, sizeof(speed)) &&
        read_fact(pci, "current_link_width", width, sizeof(width)))
        snprintf(out, size, "%s x%s", speed, width);
}

static struct card facts_of(const struct driver_card *c)
{
    struct card out = {.major = c->major,
                       .minor = c->minor,
                       .n_sm = c->n_sm,
                       .tier = tier_of(c),
                       .driver = c->version,
                       .total = c->total,
                       .free = c->free};
    memcpy(out.name, c->name, sizeof(out.name));
    read_link(c, out.link, sizeof(out.link));
    return out;
}

int card_query(int i, struct card *out, struct error *err)
{
    struct driver_card c;
    if (driver_card(NULL, i, &c, err))
        return -1;
    *out = facts_of(&c);
    return 0;
}

int card_of(struct machine *m, struct card *out, struct error *err)
{
    struct driver *d = ((struct gpu *)m)->driver;
    *out = facts_of(driver_facts(d));
    return driver_memory(d, &out->free, err);
}

// Measures copies of n bytes to `to`, from host memory if `host` is not NULL, otherwise from `from`. *best: seconds of
// the fastest copy.
static int best_pass(struct driver *d, uint64_t to, uint64_t from, const void *host, size_t n, double *best,
                     struct error *err)
{
    *best = 0;
    for (int i = 0; i < PASSES; i++) {
        double seconds;
        if (driver_mark(d, 0, err) || (host ? driver_put(d, to, host, n, err) : driver_copy(d, to, from, n, err)) ||
            driver_mark(d, 1, err) || driver_between(d, &seconds, err))
            return -1;
        if (!*best || seconds < *best)
            *best = seconds;
    }
    return *best > 0 ? 0 : fail(err, E_GPU, "the card's clock does not run");
}

static int measure(struct driver *d, struct card_speed *out, struct error *err)
{
    size_t n = MIN((size_t)COPY_MAX, driver_facts(d)->free / 4) & ~(size_t)(COPY_MIN - 1),
           m = MIN(n, (size_t)UPLOAD_MAX);
    uint64_t at[2] = {0, 0};
    void *pinned = NULL;
    double copy, upload;
    if (!n)
        return fail(err, E_MEMORY, "less than 4 MiB of the card's memory are free");
    int status =
        driver_alloc(d, n, &at[0], err) || driver_alloc(d, n, &at[1], err) || driver_pinned(d, m, &pinned, err);
    if (!status) {
        memset(pinned, 1, m);
        status = best_pass(d, at[0], at[1], NULL, n, &copy, err) || best_pass(d, at[0], 0, pinned, m, &upload, err);
    }
    if (!status)
        *out = (struct card_speed){2 * (double)n / copy, (double)m / upload};
    driver_pinned_free(d, pinned);
    driver_free(d, at[0]);
    driver_free(d, at[1]);
    return status ? -1 : 0;
}

int card_measure(int i, struct card_speed *out, struct error *err)
{
    struct driver *d;
    if (driver_open(&d, &(struct driver_options){.device = i}, err))
        return -1;
    int status = measure(d, out, err);
    driver_close(d);
    return status;
}
