// Measures what a step, a launch and a byte cost on the GPU, and how fast the CPU reads memory. The results are kept
// for DAYS_KEPT days in a file whose head names GPU, driver, processor and thread count; with another head they are
// not used. The expected times are linear in the bytes, so the crossover is one division.
#include "engine/crossover.h"
#include "engine/measure/bandwidth.h"
#include "engine/cpu_name.h"
#include "engine/file_replace.h"
#include "engine/memory.h"
#include "kernels/card.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TEXT = 1024, PATH = 4096, DAYS_KEPT = 7, SECONDS_A_DAY = 86400 };
// More than most caches hold, but read within some milliseconds.
static const uint64_t READ_MOST = (uint64_t)256 << 20, READ_LEAST = (uint64_t)4 << 20;

// ---- what was measured before

// The head of a file of measurements: the GPU, driver and processor for which they are valid.
static void head_of(const struct card *c, int n_threads, char out[TEXT])
{
    char cpu[128];
    cpu_name(cpu, sizeof cpu);
    snprintf(out, TEXT,
             "quern, speeds of a card and a processor: 1\n"
             "card %s, sm_%d%d, %d multiprocessors, %zu bytes, driver %d\n"
             "processor %s, %d threads\n",
             c->name, c->major, c->minor, c->n_sm, c->total, c->driver, cpu, n_threads);
}

// The file name contains the FNV-1a hash of the head; the head itself is compared too.
static bool path_of(const char *folder, const char *head, char path[PATH])
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const char *p = head; *p; p++)
        h = (h ^ (uint8_t)*p) * 0x100000001b3u;
    int n = folder ? snprintf(path, PATH, "%s/speeds-%016llx", folder, (unsigned long long)h) : -1;
    return n > 0 && n < PATH;
}

static bool is_speed(double x)
{
    return isfinite(x) && x > 0;
}

// Reads a file of measurements, unless it is too old.
static bool read_file(const char *path, char text[TEXT])
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); // a pipe of this name is not waited for
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (!f) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    size_t n = fread(text, 1, TEXT - 1, f);
    bool good = !fstat(fileno(f), &st) && S_ISREG(st.st_mode) && feof(f) &&
                llabs((long long)time(NULL) - (long long)st.st_mtime) < DAYS_KEPT * SECONDS_A_DAY;
    text[n] = 0;
    fclose(f);
    return good;
}

static bool find_kept(const char *path, const char *head, struct crossover *out)
{
    char text[TEXT], end;
    size_t n = strlen(head);
    if (!read_file(path, text) || strncmp(text, head, n) != 0)
        return false;
    return sscanf(text + n, "step %lf launch %lf copy %lf read %lf%c", &out->step, &out->launch, &out->copy, &out->read,
                  &end) == 5 &&
           end == '\n' && is_speed(out->step) && isfinite(out->launch) && out->launch >= 0 && is_speed(out->copy) &&
           is_speed(out->read);
}

// Errors are ignored: a measurement that cannot be kept is made again the next time.
static void keep(const char *path, const char *head, const struct crossover *c)
{
    char text[2 * TEXT];
    struct file_replace f;
    struct error err;
    int n = snprintf(text, sizeof text, "%sstep %.9g\nlaunch %.9g\ncopy %.9g\nread %.9g\n", head, c->step, c->launch,
                     c->copy, c->read);
    file_replace_folders(path);
    if (file_replace_begin(&f, path, &err))
        return;
    if (file_replace_write(&f, text, (size_t)n, &err))
        file_replace_abort(&f);
    else
        file_replace_end(&f, &err);
}

// ---- measuring

static int measure(struct machine *card, struct crossover *c, struct error *err)
{
    struct card_costs costs;
    struct memory_free memory;
    memory_query("", &memory);
    uint64_t size = MIN(READ_MOST, MIN(memory.bytes, memory.address_space) / 8);
    if (size < READ_LEAST)
        return fail(err, E_MEMORY, "too little memory is free to measure how fast it is read");
    if (card_measure_costs(card, &costs, err) || bandwidth_measure(c->n_threads, (size_t)size, &c->read, err))
        return -1;
    c->step = costs.step;
    c->launch = costs.launch;
    c->copy = costs.copy;
    return 0;
}

int crossover_measure(struct machine *card, int n_threads, const char *folder, struct crossover *out, struct error *err)
{
    struct card facts;
    char head[TEXT], path[PATH];
    *out = (struct crossover){.n_threads = n_threads};
    if (card_of(card, &facts, err))
        return -1;
    head_of(&facts, n_threads, head);
    bool kept = path_of(folder, head, path);
    if (kept && find_kept(path, head, out))
        return 0;
    if (measure(card, out, err))
        return -1;
    if (kept)
        keep(path, head, out);
    return 0;
}

// ---- the comparison

double crossover_on_cpu(const struct crossover *c, double bytes)
{
    return bytes / c->read;
}

double crossover_on_card(const struct crossover *c, int n_launches, double bytes)
{
    return c->step + (n_launches - 1) * c->launch + bytes / c->copy;
}

double crossover_bytes(const struct crossover *c, int n_launches)
{
    double gain = 1 / c->read - 1 / c->copy; // seconds per byte
    return gain > 0 ? crossover_on_card(c, n_launches, 0) / gain : INFINITY;
}
