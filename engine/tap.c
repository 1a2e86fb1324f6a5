// Passes the rows of tapped nodes on as a step yields them; no values are kept in memory. The head of a NumPy file
// has a fixed size of 128 bytes, so it is written first without rows and overwritten with their number at the end.
#include "engine/tap.h"
#include "engine/file_replace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NPY_HEAD = 128 };

struct target {
    const struct tensor *node;
    char *path; // of the file; NULL: the values are passed to `see`
    struct file_replace whole;
    FILE *file; // the stream of `whole`
    int64_t n_rows;
};
struct tap {
    struct taps taps;
    const struct tensor **nodes; // [n]
    struct target *targets;      // [n]
    int n;
    tap_see_fn *see;
    void *arg;
    struct error first; // the first error of writing
};

// --- files ---

// Writes the head of NumPy's format, version 1.0: a magic number, a length, and a Python dictionary padded with spaces
// and a line end. The head is written again when the file is closed, because only then is the number of rows known.
static int write_head(struct target *t)
{
    char head[NPY_HEAD], shape[96];
    int n = snprintf(shape, sizeof shape, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
                     (long long)t->n_rows, (long long)t->node->width);
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = NPY_HEAD - 10;
    head[9] = 0;
    memcpy(head + 10, shape, (size_t)n);
    head[NPY_HEAD - 1] = '\n';
    return fseek(t->file, 0, SEEK_SET) || fwrite(head, 1, sizeof head, t->file) != sizeof head ? -1 : 0;
}

static int fail_file(struct tap *t, const struct target *target)
{
    return fail_first(&t->first, E_IO, "%s: %s", target->path, strerror(errno));
}

static void save(struct tap *t, struct target *target, const float *rows, size_t stride, int n_rows)
{
    size_t width = (size_t)target->node->width;
    for (int i = 0; i < n_rows; i++)
        if (fwrite(rows + (size_t)i * stride, sizeof(float), width, target->file) != width)
            fail_file(t, target);
    target->n_rows += n_rows;
}

static void see(void *arg, int i, const float *rows, size_t stride, int n_rows)
{
    struct tap *t = arg;
    struct target *target = &t->targets[i];
    if (target->file)
        save(t, target, rows, stride, n_rows);
    else if (t->see)
        t->see(t->arg, target->node, rows, stride, n_rows);
}

// --- opening ---

static const struct tensor *find_node(const struct graph *g, struct str name)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (str_equal_z(name, g->nodes[i]->name))
            return g->nodes[i];
    return NULL;
}

// Fails with E_USAGE. The hint lists up to four nodes whose names contain the given one.
static int refuse_name(const struct graph *g, struct str name, struct error *err)
{
    char hint[160] = "", wanted[64];
    size_t at = 0;
    snprintf(wanted, sizeof wanted, "%.*s", STR_ARG(name));
    for (int i = 0, n = 0; i < g->n_nodes && n < 4; i++)
        if (strstr(g->nodes[i]->name, wanted) && at + strlen(g->nodes[i]->name) + 3 < sizeof hint)
            at += (size_t)snprintf(hint + at, sizeof hint - at, "%s%s", n++ ? ", " : "", g->nodes[i]->name);
    return fail(err, E_USAGE, "--tap %s: the graph has no such node%s%s; `quern dump graph` lists them", wanted,
                at ? ", but " : "", hint);
}

static int open_target(struct tap *t, const struct graph *g, const char *name, struct error *err)
{
    struct target *target = &t->targets[t->n];
    const char *sign = strchr(name, '=');
    struct str node = {name, sign ? (size_t)(sign - name) : strlen(name)};
    target->node = t->nodes[t->n] = find_node(g, node);
    if (!target->node)
        return refuse_name(g, node, err);
    t->n++;
    if (!sign)
        return 0;
    target->whole.fd = -1;
    target->path = strdup(sign + 1);
    if (!target->path)
        return fail(err, E_MEMORY, "no memory for a tap");
    if (file_replace_output(&target->whole, target->path, err) ||
        !(target->file = file_replace_stream(&target->whole, err)))
        return -1;
    return write_head(target) ? fail(err, E_IO, "%s: %s", target->path, strerror(errno)) : 0;
}

int tap_open(struct tap **out, const struct graph *g, const char *const *names, int n, tap_see_fn *see_fn, void *arg,
             struct error *err)
{
    struct tap *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return fail(err, E_MEMORY, "no memory for taps");
    t->nodes = calloc((size_t)n + 1, sizeof *t->nodes);
    t->targets = calloc((size_t)n + 1, sizeof *t->targets);
    t->see = see_fn;
    t->arg = arg;
    int status = t->nodes && t->targets ? 0 : fail(err, E_MEMORY, "no memory for taps");
    for (int i = 0; !status && i < n; i++)
        status = open_target(t, g, names[i], err);
    if (status) {
        tap_close(t);
        return -1;
    }
    t->taps = (struct taps){t->nodes, t->n, see, t};
    *out = t;
    return 0;
}

const struct taps *tap_taps(const struct tap *t)
{
    return &t->taps;
}

int tap_finish(struct tap *t, struct error *err)
{
    for (int i = 0; t && !t->first.code && i < t->n; i++) {
        struct target *target = &t->targets[i];
        if (target->file && write_head(target))
            fail_file(t, target);
        else if (target->file)
            file_replace_end(&target->whole, &t->first);
        target->file = NULL;
    }
    if (!t || !t->first.code)
        return 0;
    if (err)
        *err = t->first;
    return -1;
}

void tap_close(struct tap *t)
{
    for (int i = 0; t && i < t->n; i++) {
        if (t->targets[i].path)
            file_replace_abort(&t->targets[i].whole);
        free(t->targets[i].path);
    }
    if (t)
        free(t->targets);
    if (t)
        free(t->nodes);
    free(t);
}

struct tap_summary tap_summarise(const float *rows, size_t stride, int n_rows, int64_t width)
{
    struct tap_summary s = {.least = INFINITY, .greatest = -INFINITY};
    double sum = 0, squares = 0;
    for (int i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < width; j++) {
            double x = rows[(size_t)i * stride + (size_t)j];
            if (!isfinite(x)) {
                s.n_bad++;
                continue;
            }
            s.least = fmin(s.least, x);
            s.greatest = fmax(s.greatest, x);
            sum += x;
            squares += x * x;
            s.n++;
        }
    s.mean = s.n ? sum / (double)s.n : 0;
    s.rms = s.n ? sqrt(squares / (double)s.n) : 0;
    return s;
}
