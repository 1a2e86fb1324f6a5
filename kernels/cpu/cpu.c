// The CPU machine: the implementation of struct machine_vtable and of kernels/cpu.h on the host's CPU.
//
// On opening, the machine chooses the ISA level and the number of threads, and starts the threads. To compile a graph,
// it builds a program, from it one schedule for few and one for many rows, and maps the memory of the plan. exec.c runs
// the plan.
#include "kernels/cpu.h"
#include "kernels/cpu/ceilings.h"
#include "kernels/cpu/exec.h"
#include "kernels/cpu/host.h"

#include <stdlib.h>
#include <time.h>

struct cpu_machine {
    struct machine machine;
    struct machine_options options;
    const struct kernels *kernels;
    enum reading reading; // see kernels_reading
    bool spare_adders;    // see kernels_spare_adders
    struct thread_choice threads;
    struct pool *pool;
};

static struct cpu_machine *cpu_of(struct machine *m)
{
    return (struct cpu_machine *)m;
}

static void cpu_close(struct machine *m)
{
    if (!m)
        return;
    pool_close(cpu_of(m)->pool);
    free(m);
}

// A matmul with weights of a type takes activations in 8 bits if the ISA level has an 8-bit kernel for the type and the
// options do not ask for exact results.
static enum act_form form_of(const void *ctx, enum dtype type, int64_t k)
{
    const struct cpu_machine *m = ctx;
    (void)k;
    return !m->options.exact && m->kernels->matmul_q8[type] ? ACT_Q8 : ACT_F32;
}

static size_t row_bytes(enum act_form form, int64_t k)
{
    (void)form; // there is one
    return q8_row_bytes(k);
}

// Bytes of a copy of n q8 rows of k elements in the level's tiled layout (struct q8_tiles, struct q8_words). 0: a
// matmul with weights of this type is not faster with such a copy.
static size_t tiles_bytes(const void *ctx, enum dtype type, int64_t k, int n)
{
    const struct cpu_machine *m = ctx;
    return m->kernels->in_tiles && m->kernels->in_tiles(type, k, n, m->spare_adders) ? m->kernels->tiles_bytes(k, n)
                                                                                     : 0;
}

static void cpu_plan_free(struct machine *m, struct plan *p)
{
    (void)m;
    if (!p)
        return;
    host_unmap(p->shared, p->shared_bytes);
    host_unmap(p->local, p->local_bytes);
    arena_free(&p->arena);
    profile_free(p->profile);
    free(p->counters);
    free(p);
}

// Fails if a tapped node was dropped from the program because no other node needs it.
static int check_alive(const struct plan *p, struct error *err)
{
    const struct taps *taps = p->options.taps;
    for (int i = 0; i < taps->n; i++)
        if (!p->program.of[taps->nodes[i]->id])
            return fail(err, E_USAGE, "%s: nothing needs this node, so it is not computed", taps->nodes[i]->name);
    return 0;
}

// Builds the schedules for few and for many rows. The one for few rows takes at most FEW_ROWS.
static int build_schedules(struct plan *p, const struct compile_options *o, int n_threads, struct error *err)
{
    bool *tapped = o->taps ? exec_tapped(p) : NULL;
    if (o->taps && !tapped)
        return fail(err, E_MEMORY, "no memory for a plan");
    if (o->taps && check_alive(p, err))
        return -1;
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        struct schedule_options so = {.tapped = tapped,
                                      .kind = kind,
                                      .n_threads = n_threads,
                                      .q8_block = Q8_BLOCK,
                                      .item_weights = p->kernels->item_weights,
                                      .max_rows = {o->max_tokens, o->max_outputs}};
        if (kind == SCHEDULE_FEW)
            for (int i = 0; i < ROWS_KINDS; i++)
                so.max_rows[i] = MIN(so.max_rows[i], FEW_ROWS);
        if (schedule_build(&p->arena, &p->program, &so, &p->schedules[kind], err) ||
            sharing_new(&p->arena, &p->schedules[kind], &p->sharing[kind], err))
            return -1;
    }
    return 0;
}

// Stores the size of a page of the KV cache and the offsets of all layers' keys and values within it.
static int locate_kv(struct plan *p, const struct graph *g, struct error *err)
{
    p->page_bytes = kv_page_bytes(g, p->options.kv_type);
    p->kv = ARENA_ARRAY(&p->arena, struct kv_offset, (size_t)g->n_kv + 1);
    if (!p->kv)
        return fail(err, E_MEMORY, "no memory for a plan");
    for (int layer = 0; layer < g->n_kv; layer++)
        for (int part = 0; part < 2; part++)
            p->kv[layer].part[part] = kv_layer_offset(g, p->options.kv_type, layer, part);
    return 0;
}

// Maps the memory that the threads share, and the memory of each thread, which has in this order: scratch for the
// kernels, pointers to rows, and the thread's own values. An unused page of 4 KB separates it from that of the next
// thread.
static int map_memory(struct plan *p, int n_threads, struct error *err)
{
    const struct schedule *few = &p->schedules[SCHEDULE_FEW], *many = &p->schedules[SCHEDULE_MANY];
    size_t rows = (size_t)MAX(p->options.max_tokens, p->options.max_outputs);
    p->pointers_at = SCRATCH_BYTES;
    p->values_at = align_up(p->pointers_at + 2 * rows * sizeof(void *), 64);
    p->local_stride = align_up(p->values_at + MAX(few->private_bytes, many->private_bytes), 4096) + 4096;
    p->local_bytes = p->local_stride * (size_t)n_threads;
    p->shared_bytes = MAX(few->shared_bytes, many->shared_bytes);
    p->shared = host_map(p->shared_bytes);
    p->local = host_map(p->local_bytes);
    size_t counters = align_up(exec_counter_bytes(MAX(few->n_phases, many->n_phases)), 128);
    p->counters = aligned_alloc(128, counters);
    if (!p->shared || !p->local || !p->counters)
        return fail(err, E_MEMORY, "no memory for a plan: %zu bytes wanted",
                    p->shared_bytes + p->local_bytes + counters);
    return 0;
}

static int cpu_compile(struct machine *m, const struct graph *g, const struct compile_options *o, struct plan **out,
                       struct error *err)
{
    struct cpu_machine *cpu = cpu_of(m);
    *out = NULL;
    if (compile_check(g, o, err) || exec_check(g, err))
        return -1;
    struct plan *p = calloc(1, sizeof(*p));
    if (!p)
        return fail(err, E_MEMORY, "no memory for a plan");
    p->graph = g;
    p->kernels = cpu->kernels;
    p->reading = cpu->reading;
    p->spare_adders = cpu->spare_adders;
    p->exact = cpu->options.exact;
    p->options = *o;
    p->blas = cpu->options.blas;
    struct act_rules acts = {form_of, row_bytes, tiles_bytes, cpu};
    if (program_build(&p->arena, g, acts, &p->program, err) || build_schedules(p, o, cpu->threads.n, err) ||
        locate_kv(p, g, err) || map_memory(p, cpu->threads.n, err) ||
        (o->profile && profile_new(p, cpu->threads.n, err))) {
        cpu_plan_free(m, p);
        return -1;
    }
    *out = p;
    return 0;
}

static void cpu_watch(struct plan *p, const atomic_bool *cancel)
{
    p->cancel = cancel;
}

static int cpu_run(struct machine *m, struct plan *p, const struct step *s, struct error *err)
{
    size_t n_pages = p->page_bytes ? buffer_size(s->kv) / p->page_bytes : 0;
    size_t slot = state_bytes(p->graph), n_slots = slot && s->states ? buffer_size(s->states) / slot : 0;
    if (step_check(p->graph, &p->options, s, err) || step_check_pages(p->graph, s, n_pages, err) ||
        step_check_slots(p->graph, s, n_slots, err))
        return -1;
    if (!exec_run(p, cpu_of(m)->pool, s))
        return fail(err, E_INTERRUPTED, "interrupted");
    step_choose(p->graph, s);
    return 0;
}

static size_t cpu_plan_bytes(const struct plan *p)
{
    return p->shared_bytes + p->local_bytes;
}

// Prints the quantised weight types whose matmuls take float32 activations, with the number of these matmuls. A type
// does so if the ISA level has no 8-bit kernel for it, or if the machine is exact.
static void describe_generic(const struct cpu_machine *cpu, const struct program *p, struct text *out)
{
    int count[DT_COUNT] = {0};
    for (int i = 0; i < p->n; i++) {
        const struct tensor *n = p->nodes[i];
        bool matmul = op_class(n->op) == CLASS_MATVEC;
        if (matmul && n->src[0]->op != OP_QUANTIZE && dtype_info[n->w[0]->type].kind == DTYPE_KIND_QUANT)
            count[n->w[0]->type]++;
    }
    for (int type = 0; type < DT_COUNT; type++)
        if (count[type])
            text_print(out, "%s: %d matmuls go through the generic path (decode to float32)%s\n", dtype_info[type].name,
                       count[type], cpu->options.exact ? ", as --exact asks" : "");
}

static void cpu_describe(const struct machine *m, const struct plan *p, struct text *out)
{
    const struct cpu_machine *cpu = (const struct cpu_machine *)m;
    if (!p) {
        text_print(out, "cpu: %s kernels, %d threads (%s)%s%s\n", cpu->kernels->name, cpu->threads.n, cpu->threads.why,
                   cpu->options.exact ? ", exact" : "",
                   cpu->options.blas ? ", OpenBLAS for float GEMMs of many rows" : "");
        return;
    }
    text_print(out, "plan: %d nodes (%d dead and %d common ones dropped) in %d phases, %d for many rows\n",
               p->program.n, p->program.n_dead, p->program.n_common, p->schedules[SCHEDULE_FEW].n_phases,
               p->schedules[SCHEDULE_MANY].n_phases);
    describe_generic(cpu, &p->program, out);
}

static void cpu_print(const struct plan *p, struct text *out)
{
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
        schedule_print(&p->program, &p->schedules[kind], out);
}

static const struct machine_vtable cpu_vtable = {
    .name = "cpu",
    .close = cpu_close,
    .alloc = host_alloc,
    .free = host_free,
    .put = host_put,
    .get = host_get,
    .compile = cpu_compile,
    .run = cpu_run,
    .watch = cpu_watch,
    .plan_free = cpu_plan_free,
    .plan_bytes = cpu_plan_bytes,
    .describe = cpu_describe,
    .profile = profile_take,
    .print = cpu_print,
};

int machine_open_cpu(struct machine **out, const struct machine_options *o, struct error *err)
{
    *out = NULL;
    struct cpu_machine *cpu = calloc(1, sizeof(*cpu));
    if (!cpu)
        return fail(err, E_MEMORY, "no memory for a machine");
    cpu->machine.v = &cpu_vtable;
    cpu->options = *o;
    cpu->kernels = o->isa ? kernels_find(o->isa, err) : kernels_best();
    if (!cpu->kernels)
        goto failed;
    cpu->reading = kernels_reading(cpu->kernels);
    cpu->spare_adders = kernels_spare_adders();
    if (o->blas && blas_open(err))
        goto failed;
    threads_choose("", o->n_threads, &cpu->threads);
    if (pool_open(&cpu->pool, cpu->threads.n, err))
        goto failed;
    *out = &cpu->machine;
    return 0;
failed:
    cpu_close(&cpu->machine);
    return -1;
}

const char *machine_cpu_isa(int i)
{
    return i < kernels_count() ? kernels_at(i)->name : NULL;
}

void machine_cpu_choice(const struct machine *m, struct machine_cpu_choice *out)
{
    const struct cpu_machine *cpu = (const struct cpu_machine *)m;
    const struct thread_choice *t = &cpu->threads;
    *out = (struct machine_cpu_choice){cpu->kernels->name, t->n, t->allowed, t->cores, t->quota, t->why};
}

// ---- the peak rate of a unit

// The first of PEAK_TRIES tries runs PEAK_TURNS turns of the loop. The turns double from try to try until a try takes
// PEAK_NS. Each try is followed by a pause, so that the tries are spread over a quarter of a second. The time slice of
// another process, which can halve the rate of the tries that fall into it, is shorter, so some tries are undisturbed.
// The threads need 50 to 100 us to wake up, which is one or two hundredths of a try.
enum { PEAK_TURNS = 1 << 14, PEAK_NS = 4000000, PEAK_PAUSE_NS = 7000000, PEAK_TRIES = 24 };

struct peak {
    const char *level;
    enum cpu_unit unit;
    long turns;
};

static void run_ceiling(void *ctx, int thread)
{
    (void)thread;
    const struct peak *p = ctx;
    ceiling_run(p->level, p->unit, p->turns);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

enum cpu_unit machine_cpu_unit(const struct machine *m, enum dtype type, int64_t n)
{
    const struct kernels *k = ((const struct cpu_machine *)m)->kernels;
    if (!k->matmul_q8[type])
        return UNIT_FLOATS;
    // On the levels that have a unit for tiles, the result of in_tiles depends neither on k nor on spare_adders.
    bool tiles = k->in_tiles && k->in_tiles(type, Q8_BLOCK, n, false) && *ceiling_name(k->name, UNIT_TILES);
    return tiles ? UNIT_TILES : UNIT_BYTES;
}

const char *machine_cpu_unit_name(const struct machine *m, enum cpu_unit unit)
{
    return ceiling_name(((const struct cpu_machine *)m)->kernels->name, unit);
}

double machine_cpu_peak(struct machine *m, enum cpu_unit unit)
{
    struct cpu_machine *cpu = cpu_of(m);
    struct peak p = {cpu->kernels->name, unit, PEAK_TURNS};
    double a_turn = ceiling_run(p.level, unit, 1), best = 0;
    for (int i = 0; i < PEAK_TRIES && a_turn > 0; i++) {
        double start = seconds_now();
        pool_run(cpu->pool, run_ceiling, &p);
        double took = seconds_now() - start;
        best = MAX(best, a_turn * (double)p.turns * cpu->threads.n / took);
        if (took < PEAK_NS * 1e-9)
            p.turns *= 2;
        nanosleep(&(struct timespec){.tv_nsec = PEAK_PAUSE_NS}, NULL);
    }
    return best;
}

void machine_cpu_converters(const struct machine *m, struct converters *out)
{
    const struct kernels *k = ((const struct cpu_machine *)m)->kernels;
    quantize_fn *const *const tables[] = {k->quantize_blocks, k->quantize_k, k->quantize_grid};
    *out = (struct converters){0};
    for (int type = 0; type < DT_COUNT; type++) {
        for (size_t i = 0; i < COUNT_OF(tables); i++)
            if (tables[i][type])
                out->quantize[type] = tables[i][type];
        if (dtype_info[type].kind == DTYPE_KIND_FLOAT)
            out->encode[type] = k->encode[type];
        out->decode[type] = k->decode[type];
    }
}

void machine_cpu_share(struct machine *m, void (*work)(void *ctx, int thread), void *ctx)
{
    pool_run(cpu_of(m)->pool, work, ctx);
}
