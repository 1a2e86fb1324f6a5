// Chooses kernels by measuring on the card at hand: of products with several rows, and of a step of one row.
//
// A product has a kernel for each class of rows (emit_matmul.h), all with the same bits. Which class is fastest for so
// many outputs and rows depends on the card: on its multiprocessors, its tensor cores, its cache. ptx_matmul_rows guesses.
// Here the classes that could be faster are timed with the model's own weights, the first time that a plan needs a
// product of this shape with this number of rows, until the seconds that the caller grants are used up. What was chosen
// is kept in a file beside the compiled kernels, from second to second, so that what is interrupted goes on at the next
// load. Its name holds a hash of the card, its driver and the kernels' texts, so that what another card or other kernels
// were measured to do is not used.
//
// A step of one row has variants of its fused kernels (emit_fused.h), which differ in how launches share the card. So a
// whole step is measured, with each variant in all of its kernels. A plan is found again by a hash of their texts.
//
// A joined product (emit_matmul_joined.c) is measured as a whole, and counts as one with the outputs of all of its sections.
//
// A line of the file is a choice: the type of the weights, n_in, n_out, the form of the activations, the rows, the class,
// and its microseconds. Of a step the type is "step", n_in and n_out are the halves of the hash, and the class is the number
// of the variant. Lines that do not read like this, name a class that does not exist, or have no positive time, are left
// out, and the file is written without them.
#include "kernels/card.h"
#include "kernels/ptx/gpu.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CLASSES = 8, REPEATS = 3, FEW = 64, FLUSH = 64 << 20 };
static const double better = 0.97;  // of the time of the class that is taken without measuring
static const double slow = 20e-3;   // seconds: what takes longer is told apart by one run, without repeats
static const double keep_every = 1; // seconds
static const uint32_t classes[] = {1, 2, 4, 8, 16, 32, PTX_MANY_ROWS, PTX_WIDE_ROWS};
static const char *const forms[] = {"f32", "q8", "f16"};
static const char step_name[] = "step";

struct choice {
    enum dtype type; // DT_COUNT: a step of one row
    uint32_t n_in, n_out, rows, class;
    int form; // of `forms`
    double us;
    bool used;   // by a plan of this machine
    int n_tried; // classes that were measured; 0: read from the file
    struct card_class tried[CLASSES];
};
struct gpu_tuner {
    struct choice *choices;
    int n, cap;
    bool again;               // what was read from the file is measured again
    bool changed;             // there is more than in the file
    double seconds, written;  // that are left for measuring; when the file was written
    const char *folder;       // of the file
    char *path;               // of the file; NULL: none is kept
    struct card_tuning facts; // what is reported
    // Memory for products that are measured; 0: not allocated.
    uint64_t x, y, flush;
    size_t x_bytes, y_bytes;
};

// ---- choices

static int form_of(const struct ptx_matmul *m)
{
    return m->q8 ? 1 : m->halves ? 2 : 0;
}

static bool has_class(const struct gpu *g, const struct ptx_matmul *m, uint32_t class)
{
    return ptx_has_class(m, class, (uint32_t)driver_facts(g->driver)->max_shared);
}

// The choice for a product; NULL if there is none, or if it names a class that this product does not have.
static struct choice *find(const struct gpu *g, const struct ptx_matmul *m, uint32_t rows)
{
    const struct gpu_tuner *t = g->tuner;
    for (int i = 0; t && i < t->n; i++) {
        struct choice *c = &t->choices[i];
        if (c->type == m->type && c->n_in == m->n_in && c->n_out == m->n_out && c->rows == rows &&
            c->form == form_of(m) && has_class(g, m, c->class))
            return c;
    }
    return NULL;
}

uint32_t gpu_class_of(const struct gpu *g, const struct ptx_matmul *m, uint32_t rows)
{
    const struct choice *c = m->n_used ? NULL : find(g, m, rows);
    if (c)
        return c->class;
    if (g->variant && rows >= PTX_WIDE_ROWS && has_class(g, m, PTX_WIDE_ROWS))
        return PTX_WIDE_ROWS;
    return ptx_matmul_rows(m, rows, gpu_target(g));
}

static int add(struct gpu_tuner *t, const struct choice *c, struct error *err)
{
    struct choice *grown = gpu_grow(t->choices, t->n, &t->cap, sizeof *grown);
    if (!grown)
        return fail(err, E_MEMORY, "no memory for a choice of kernels");
    t->choices = grown;
    t->choices[t->n++] = *c;
    return 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Whether something has to be measured, given what is known of it. It is counted.
static bool has_to_measure(struct gpu_tuner *t, struct choice *known)
{
    if (known && (!t->again || known->n_tried || t->seconds <= 0)) {
        t->facts.known += !known->used;
        known->used = true;
        return false;
    }
    t->facts.unmeasured += t->seconds <= 0;
    return t->seconds > 0;
}

// ---- the file

static bool is_class(uint32_t class)
{
    for (size_t i = 0; i < COUNT_OF(classes); i++)
        if (class == classes[i])
            return true;
    return false;
}

static bool parse(const char *line, struct choice *c)
{
    char type[32], form[8];
    if (sscanf(line, "%31s %u %u %7s %u %u %lf", type, &c->n_in, &c->n_out, form, &c->rows, &c->class, &c->us) != 7 ||
        !isfinite(c->us) || c->us <= 0)
        return false;
    c->used = false;
    c->n_tried = 0;
    c->type = DT_COUNT;
    if (!strcmp(type, step_name))
        return c->rows == 1 && c->class < GPU_STEP_VARIANTS;
    for (int i = 0; i < DT_COUNT; i++)
        if (dtype_info[i].name && !strcmp(dtype_info[i].name, type))
            c->type = (enum dtype)i;
    c->form = -1;
    for (size_t i = 0; i < COUNT_OF(forms); i++)
        if (!strcmp(forms[i], form))
            c->form = (int)i;
    return c->type < DT_COUNT && c->form >= 0 && is_class(c->class);
}

static void read_choices(struct gpu_tuner *t)
{
    struct choice c;
    char *text = driver_kept(t->path);
    for (char *line = text, *next; line && *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = 0;
        if (parse(line, &c) && add(t, &c, NULL))
            break;
    }
    free(text);
}

static const char *name_of(const struct choice *c)
{
    return c->type < DT_COUNT ? dtype_info[c->type].name : step_name;
}

// Replaces the file by a complete one. A file that cannot be written costs another measurement, no more; its errno is
// reported.
static void write_choices(struct gpu_tuner *t)
{
    struct text text = {0};
    for (int i = 0; i < t->n; i++) {
        const struct choice *c = &t->choices[i];
        text_print(&text, "%s %u %u %s %u %u %.3f\n", name_of(c), c->n_in, c->n_out, forms[c->form], c->rows, c->class,
                   c->us);
    }
    const bool kept = !text.failed && driver_keep(t->folder, t->path, (struct str){text.data, text.size});
    t->facts.fault = kept ? 0 : text.failed ? ENOMEM : errno;
    t->changed = false;
    t->written = now();
    text_free(&text);
}

// Adds what was measured, or puts it in the place of what was known, and writes the file from time to time.
static int note_choice(struct gpu_tuner *t, struct choice *known, const struct choice *c, struct error *err)
{
    if (known)
        *known = *c;
    else if (add(t, c, err))
        return -1;
    t->facts.measured++;
    t->changed = true;
    if (t->path && now() - t->written >= keep_every)
        write_choices(t);
    return 0;
}

// A number for the card, its driver and the kernels of products: it changes when one of these does. A type stands for
// those that are unpacked by the same code.
static int revision_of(struct gpu *g, uint64_t *out, struct error *err)
{
    static const enum dtype types[] = {DT_Q4_K,    DT_Q6_K,   DT_Q8_0,  DT_F16,   DT_IQ2_XS,
                                       DT_IQ3_XXS, DT_IQ4_XS, DT_TQ1_0, DT_NVFP4, DT_Q2_0};
    uint64_t h = 1;
    for (size_t t = 0; t < COUNT_OF(types); t++)
        for (size_t c = 0; c < COUNT_OF(classes); c++) {
            struct gpu_spec s = {.kind = GPU_MATMUL};
            s.matmul = (struct ptx_matmul){.type = types[t],
                                           .n_in = 256,
                                           .n_out = 256,
                                           .rows = classes[c],
                                           .target = gpu_target(g),
                                           .q8 = ptx_takes_q8(types[t]),
                                           .halves = ptx_takes_halves(types[t], 256, gpu_target(g)),
                                           .x_stride = 1024,
                                           .y_stride = 1024};
            struct str text;
            if (!ptx_has_class(&s.matmul, classes[c], UINT32_MAX))
                continue;
            if (gpu_kernel_text(g, &s, &text, err))
                return -1;
            h = driver_hash(g->driver, text, h);
        }
    *out = h;
    return 0;
}

int gpu_tuner_open(struct gpu *g, const struct gpu_options *o, struct error *err)
{
    uint64_t revision;
    if (!(o->tune_seconds < 0 || o->tune_seconds > 0) || o->paper)
        return 0;
    struct gpu_tuner *t = g->tuner = calloc(1, sizeof *t);
    if (!t)
        return fail(err, E_MEMORY, "no memory for choices of kernels");
    t->seconds = o->tune_seconds;
    t->again = o->tune_again;
    t->written = now();
    if (!o->cache)
        return 0;
    t->folder = driver_folder(g->driver);
    size_t size = strlen(o->cache) + 64;
    if (!(t->path = malloc(size)))
        return fail(err, E_MEMORY, "no memory for choices of kernels");
    if (revision_of(g, &revision, err))
        return -1;
    snprintf(t->path, size, "%s/products-%016llx.txt", t->folder, (unsigned long long)revision);
    t->facts.file = t->path;
    read_choices(t);
    return 0;
}

void gpu_tuner_close(struct gpu *g)
{
    struct gpu_tuner *t = g->tuner;
    g->tuner = NULL;
    if (!t)
        return;
    driver_free(g->driver, t->x);
    driver_free(g->driver, t->y);
    driver_free(g->driver, t->flush);
    free(t->choices);
    free(t->path);
    free(t);
}

// ---- measuring

// Ends all measuring, because no memory is left for it. Returns 0.
static int give_up(struct gpu_tuner *t)
{
    t->facts.no_room = true;
    t->facts.unmeasured++;
    t->seconds = 0;
    return 0;
}

static void spend(struct gpu_tuner *t, double from)
{
    const double seconds = now() - from;
    t->seconds -= seconds;
    t->facts.seconds += seconds;
}

static int make_room(struct driver *d, uint64_t *at, size_t *has, size_t bytes, struct error *err)
{
    if (bytes <= *has)
        return 0;
    driver_free(d, *at);
    *at = 0;
    *has = 0;
    if (driver_alloc(d, bytes, at, err))
        return -1;
    *has = bytes;
    return 0;
}

// Measures one launch. Few rows are as fast as weights come, which must not lie in the card's cache from the time before.
static int time_launch(struct gpu *g, struct driver_kernel *k, const struct driver_launch *l, bool flush,
                       double *seconds, struct error *err)
{
    struct driver *d = g->driver;
    if (flush && driver_zero(d, g->tuner->flush, FLUSH, err))
        return -1;
    return driver_mark(d, 0, err) || driver_run(d, k, l, err) || driver_mark(d, 1, err) ||
                   driver_between(d, seconds, err)
               ? -1
               : 0;
}

// The bytes from one row of y to the next: of a joined product of all of its sections.
static size_t y_bytes(const struct ptx_matmul *m)
{
    size_t bytes = m->n_sections ? 0 : MAX(m->y_stride, m->residual_stride);
    for (uint32_t i = 0; i < m->n_sections; i++)
        bytes += m->sections[i].y_stride;
    return bytes;
}

// What further sections of a joined product take: the addresses of weights, y and bias. Their y follow that of the first.
static void find_sections(const struct gpu_tuner *t, const struct ptx_matmul *m, const uint64_t *tiles, uint32_t rows,
                          uint64_t at[PTX_SECTIONS][3])
{
    uint64_t y = t->y;
    for (uint32_t i = 0; i < m->n_sections; i++) {
        at[i][0] = tiles[i];
        at[i][1] = y;
        at[i][2] = t->x; // zeros
        y += (uint64_t)rows * m->sections[i].y_stride;
    }
}

// Sets *us to the shortest of some runs of the product with this class. The activations and the biases are the same zeros.
static int time_class(struct gpu *g, const struct ptx_matmul *m, uint32_t class, const uint64_t *tiles, uint32_t rows,
                      double *us, struct error *err)
{
    struct gpu_tuner *t = g->tuner;
    struct gpu_spec s = {.kind = GPU_MATMUL, .matmul = *m};
    struct gpu_kernel *k;
    s.matmul.rows = class;
    if (gpu_kernel_get(g, &s, &k, err))
        return -1;
    uint64_t zero = 0, n_rows = rows, y = t->y, w = tiles[0], sections[PTX_SECTIONS][3];
    void *params[8 + 3 * (PTX_SECTIONS - 1)] = {&t->x, &w, &y, &t->x, &y, &zero, &zero, &n_rows};
    find_sections(t, m, tiles, rows, sections);
    for (uint32_t i = 3; i < 3 * m->n_sections; i++)
        params[5 + i] = &sections[i / 3][i % 3];
    struct driver_launch l = {.params = params, .shared = k->launch.shared};
    memcpy(l.grid, k->launch.grid, sizeof l.grid);
    memcpy(l.block, k->launch.block, sizeof l.block);
    l.grid[1] = ptx_matmul_grid(&s.matmul, rows);
    *us = 0;
    for (int i = 0, n = REPEATS; i <= n; i++) {
        double seconds;
        if (time_launch(g, k->kernel, &l, rows <= FEW, &seconds, err))
            return -1;
        if (seconds > slow)
            n = 0;
        if ((i || !n) && (!*us || 1e6 * seconds < *us)) // the first run is not counted, unless it is the only one
            *us = 1e6 * seconds;
    }
    return 0;
}

// The classes that may be the fastest: that of ptx_matmul_rows first, then those from a quarter of the rows (32 at most)
// to less than twice as many.
static int candidates(const struct gpu *g, const struct ptx_matmul *m, uint32_t rows, uint32_t out[CLASSES])
{
    int n = 0;
    out[n++] = ptx_matmul_rows(m, rows, gpu_target(g));
    for (size_t i = 0; i < COUNT_OF(classes); i++) {
        const uint32_t c = classes[i];
        if (c != out[0] && c >= MIN(32u, ptx_tiles(rows, 4)) && c < 2 * rows && has_class(g, m, c))
            out[n++] = c;
    }
    return n;
}

static int measure(struct gpu *g, const struct ptx_matmul *m, const uint64_t *tiles, uint32_t rows, struct choice *out,
                   struct error *err)
{
    struct gpu_tuner *t = g->tuner;
    uint32_t of[CLASSES];
    const int n = candidates(g, m, rows, of);
    size_t flush = t->flush ? FLUSH : 0;
    *out = (struct choice){.type = m->type,
                           .n_in = m->n_in,
                           .n_out = m->n_out,
                           .rows = rows,
                           .class = of[0],
                           .form = form_of(m),
                           .used = true};
    if (make_room(g->driver, &t->x, &t->x_bytes, MAX((size_t)rows * m->x_stride, sizeof(float) * m->n_out), err) ||
        make_room(g->driver, &t->y, &t->y_bytes, (size_t)rows * y_bytes(m), err) ||
        make_room(g->driver, &t->flush, &flush, FLUSH, err))
        return -1;
    for (int i = 0; i < n; i++) {
        double us;
        if (time_class(g, m, of[i], tiles, rows, &us, err))
            return -1;
        out->tried[out->n_tried++] = (struct card_class){of[i], us};
        if (!i || us < better * out->us || (out->class != of[0] && us < out->us))
            out->class = of[i], out->us = us;
    }
    return 0;
}

int gpu_tune(struct gpu *g, const struct ptx_matmul *m, const uint64_t tiles[PTX_SECTIONS], uint32_t rows,
             struct error *err)
{
    struct gpu_tuner *t = g->tuner;
    struct choice c;
    uint32_t of[CLASSES];
    if (!t || m->n_used || rows < 2 || candidates(g, m, rows, of) < 2)
        return 0;
    struct choice *known = find(g, m, rows);
    if (!has_to_measure(t, known))
        return 0;
    const double from = now();
    struct error why = {0};
    int status = measure(g, m, tiles, rows, &c, &why);
    spend(t, from);
    if (status && why.code == E_MEMORY) // the model needs what is there
        return give_up(t);
    return status ? fail(err, why.code, "%s", why.text) : note_choice(t, known, &c, err);
}

// ---- a step of one row

// A hash of the kernels of the list of one row, of how many CTAs they have, and of whether they are one kernel.
static uint64_t hash_of_list(const struct plan *p)
{
    const struct gpu_list *list = &p->lists[GPU_ONE_ROW];
    uint64_t h = p->whole.kernel ? 3 : 2;
    for (int i = 0; i < list->n_launches; i++) {
        const struct gpu_kernel *k = list->launches[i].kernels[0];
        h = driver_hash(p->gpu->driver, (struct str){k->key, k->key_size}, h + list->launches[i].most_ctas);
    }
    return h;
}

static struct choice *find_step(const struct gpu_tuner *t, uint64_t hash)
{
    for (int i = 0; i < t->n; i++)
        if (t->choices[i].type == DT_COUNT && t->choices[i].n_in == (uint32_t)(hash >> 32) &&
            t->choices[i].n_out == (uint32_t)hash)
            return &t->choices[i];
    return NULL;
}

// Writes the inputs of a step with token 0 at position 0, whose keys and values go to page 0 at t->x, and which has no
// states.
static int put_first_step(struct plan *p, struct error *err)
{
    struct gpu_tuner *t = p->gpu->tuner;
    const int32_t none = -1;
    const size_t states = sizeof(struct ptx_step) + 3 * sizeof none; // behind a token, a position and a table
    const struct ptx_step head = {.rows = {1, 1}, .pages_stride = 1, .kv = t->x, .states = t->x};
    memset(p->pinned, 0, p->block_bytes);
    memcpy(p->pinned, &head, sizeof head);
    for (size_t i = 0; i < 2; i++)
        memcpy(p->pinned + states + i * sizeof none, &none, sizeof none);
    return driver_put(p->gpu->driver, p->block, p->pinned, p->block_bytes, err);
}

static int record_step(struct plan *p, struct driver_graph **out, struct error *err)
{
    const int rows[ROWS_KINDS] = {1, 1};
    struct driver *d = p->gpu->driver;
    if (gpu_ready(p, rows, err) || driver_record(d, err))
        return -1;
    if (gpu_launch_list(p, rows, err)) {
        driver_recorded(d, NULL, NULL);
        return -1;
    }
    return driver_recorded(d, out, err);
}

// Sets *us to the mean time of n steps that follow each other.
static int time_replays(struct driver *d, struct driver_graph *graph, int n, double *us, struct error *err)
{
    double seconds;
    if (driver_mark(d, 0, err))
        return -1;
    for (int i = 0; i < n; i++)
        if (driver_replay(d, graph, err))
            return -1;
    if (driver_mark(d, 1, err) || driver_between(d, &seconds, err))
        return -1;
    *us = 1e6 * seconds / n;
    return 0;
}

// Sets *us to the time of a step, after one that is not counted, unless that is slow.
static int time_step(struct plan *p, double *us, struct error *err)
{
    enum { STEPS = 8 };
    struct driver *d = p->gpu->driver;
    struct driver_graph *graph;
    if (record_step(p, &graph, err))
        return -1;
    int status = time_replays(d, graph, 1, us, err);
    if (!status && *us < 1e6 * slow)
        status = time_replays(d, graph, STEPS, us, err);
    driver_graph_free(d, graph);
    return status;
}

// Makes the list of a variant and measures it. *us is 0 if it is the list of the hash `before`, which it changes. A whole
// step that the card refuses, because its blocks are not there at the same time, is no variant.
static int measure_variant(struct plan *p, uint32_t v, uint64_t *before, double *us, struct error *err)
{
    struct error why = {0};
    p->variant = (int)v;
    *us = 0;
    if (gpu_fuse_list(p, err))
        return -1;
    const uint64_t hash = hash_of_list(p);
    if (v && hash == *before) // no kernel has more variants
        return 0;
    *before = hash;
    if (time_step(p, us, &why) && (v != GPU_WHOLE_STEP || why.code == E_MEMORY))
        return fail(err, why.code, "%s", why.text);
    *us = why.code ? 0 : *us;
    return 0;
}

// Measures the variants, as far as there is time, and sets c->class to the fastest. The list is that of the last one.
static int measure_step(struct plan *p, struct choice *c, struct error *err)
{
    struct gpu_tuner *t = p->gpu->tuner;
    uint64_t before = 0;
    if (make_room(p->gpu->driver, &t->x, &t->x_bytes, MAX(p->page_bytes, (size_t)1), err) || put_first_step(p, err))
        return -1;
    for (uint32_t v = 0; v < GPU_STEP_VARIANTS && t->seconds > 0; v++) {
        const double from = now();
        double us;
        if (measure_variant(p, v, &before, &us, err))
            return -1;
        spend(t, from);
        if (us <= 0)
            continue;
        c->tried[c->n_tried++] = (struct card_class){v, us};
        if (!v || us < (c->class ? 1 : better) * c->us)
            c->class = v, c->us = us;
    }
    return 0;
}

int gpu_tune_step(struct plan *p, struct error *err)
{
    struct gpu_tuner *t = p->gpu->tuner;
    if (!t || p->variant)
        return 0;
    const uint64_t hash = hash_of_list(p);
    struct choice *known = find_step(t, hash);
    const uint32_t was = known ? known->class : 0;
    struct choice c = {
        .type = DT_COUNT, .n_in = (uint32_t)(hash >> 32), .n_out = (uint32_t)hash, .rows = 1, .used = true};
    struct error why = {0};
    if (has_to_measure(t, known) && measure_step(p, &c, &why)) {
        if (why.code != E_MEMORY)
            return fail(err, why.code, "%s", why.text);
        c.n_tried = give_up(t);
    }
    if (c.n_tried && note_choice(t, known, &c, err))
        return -1;
    p->variant = (int)(c.n_tried ? c.class : was);
    return gpu_fuse_list(p, err);
}

void gpu_tuned(struct gpu *g)
{
    struct gpu_tuner *t = g->tuner;
    if (!t)
        return;
    driver_free(g->driver, t->x);
    driver_free(g->driver, t->y);
    driver_free(g->driver, t->flush);
    t->x = t->y = t->flush = 0;
    t->x_bytes = t->y_bytes = 0;
    if (t->path && t->changed)
        write_choices(t);
}

// ---- for card.h

struct card_tuning card_tuning(const struct machine *m)
{
    const struct gpu *g = (const struct gpu *)m;
    return g->tuner ? g->tuner->facts : (struct card_tuning){0};
}

// The i-th choice that is used; NULL if there are fewer.
static const struct choice *used_choice(const struct gpu_tuner *t, int i)
{
    for (int at = 0; t && i >= 0 && at < t->n; at++)
        if (t->choices[at].used && !i--)
            return &t->choices[at];
    return NULL;
}

bool card_choice(const struct machine *m, int i, struct card_choice *out)
{
    const struct gpu *g = (const struct gpu *)m;
    const struct choice *c = used_choice(g->tuner, i);
    if (!c)
        return false;
    *out = (struct card_choice){.type = name_of(c),
                                .form = forms[c->form],
                                .n_in = c->n_in,
                                .n_out = c->n_out,
                                .rows = c->rows,
                                .class = c->class,
                                .us = c->us,
                                .n_tried = c->n_tried};
    memcpy(out->tried, c->tried, sizeof out->tried);
    return true;
}
