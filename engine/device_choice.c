// Asks the cheaper question first: the memory that the plan needs is compared with the free memory of the GPU, and
// only if it fits are the speeds measured or read from the file of an earlier measurement. Each answer leaves its
// reason in `why`. An error is a reason for the CPU, not a failure.
#include "engine/device_choice.h"
#include "engine/crossover.h"
#include "engine/memory.h"
#include "kernels/card.h"
#include "kernels/cost.h"
#include "kernels/cpu.h"

#include <stdio.h>

enum { PLAN_ROWS = 512 }; // rows per step of the plan that is sized; the default of sessions

// What the model needs on a GPU.
struct demand {
    int n_launches;     // kernel launches per step of one token
    double token_bytes; // bytes read per token
    uint64_t weights, kv, plan;
};

static uint64_t kv_bytes(const struct device_question *q)
{
    uint64_t bytes, pages = ((uint64_t)q->n_ctx + KV_PAGE - 1) / KV_PAGE;
    return __builtin_mul_overflow(pages, kv_page_bytes(q->graph, q->kv_type), &bytes) ? UINT64_MAX / 4 : bytes;
}

// Compiles the graph for a GPU on paper of the same compute capability, which uploads nothing.
static int find_demand(const struct device_question *q, const struct card *c, struct demand *out, struct error *err)
{
    struct compile_options compile = {
        .max_tokens = MIN(PLAN_ROWS, q->n_ctx), .max_outputs = 1, .kv_type = {q->kv_type[0], q->kv_type[1]}};
    struct cost_step token = {.n_tokens = 1, .n_outputs = 1, .n_seqs = 1, .kv_type = {q->kv_type[0], q->kv_type[1]}};
    struct machine *paper;
    struct plan *plan;
    size_t weights;
    if (machine_open_gpu(&paper, q->machine, &(struct gpu_options){.paper = 10 * c->major + c->minor}, err))
        return -1;
    int status = paper->v->compile(paper, q->graph, &compile, &plan, err);
    if (!status) {
        card_plan(paper, plan, &out->n_launches, &weights);
        out->weights = weights;
        out->plan = paper->v->plan_bytes(plan);
        out->kv = kv_bytes(q);
        out->token_bytes = cost_of_graph(q->graph, &token).bytes;
        paper->v->plan_free(paper, plan);
    }
    paper->v->close(paper);
    return status;
}

static bool has_room(const struct device_question *q, const struct card *c, const struct demand *d,
                     struct device_choice *out)
{
    uint64_t need = d->weights + d->kv + d->plan;
    char free_text[24], need_text[24], weights[24], kv[24], plan[24];
    if (need <= c->free)
        return true;
    memory_format(c->free, free_text);
    memory_format(need, need_text);
    memory_format(d->weights, weights);
    memory_format(d->kv, kv);
    memory_format(d->plan, plan);
    snprintf(out->why, sizeof out->why,
             "%s has %s free, and %s are needed: weights %s, keys and values of %d positions %s, a step %s", c->name,
             free_text, need_text, weights, q->n_ctx, kv, plan);
    return false;
}

static bool is_faster(const struct card *c, const struct demand *d, const struct crossover *x,
                      struct device_choice *out)
{
    double cpu = crossover_on_cpu(x, d->token_bytes), card = crossover_on_card(x, d->n_launches, d->token_bytes);
    char bytes[24];
    memory_format((uint64_t)d->token_bytes, bytes);
    snprintf(out->why, sizeof out->why,
             "a token reads %s: %.3g ms by %d threads at %.1f GB/s, %.3g ms on %s at %.4g GB/s with %d launches of "
             "%.3g us and %.3g us a step",
             bytes, cpu * 1e3, x->n_threads, x->read / 1e9, card * 1e3, c->name, x->copy / 1e9, d->n_launches,
             x->launch * 1e6, x->step * 1e6);
    return card < cpu;
}

// Decides about an open GPU machine. *take is left false when it is not to be chosen, and the reason is in out->why.
static int consider(const struct device_question *q, struct machine *gpu, struct device_choice *out, bool *take,
                    struct error *err)
{
    struct machine_cpu_choice cpu;
    struct card facts;
    struct demand demand;
    struct crossover x;
    machine_cpu_choice(q->cpu, &cpu);
    if (card_of(gpu, &facts, err) || find_demand(q, &facts, &demand, err))
        return -1;
    if (!has_room(q, &facts, &demand, out))
        return 0;
    if (crossover_measure(gpu, cpu.n_threads, q->kernel_cache, &x, err))
        return -1;
    *take = is_faster(&facts, &demand, &x, out);
    return 0;
}

void device_choose(const struct device_question *q, struct device_choice *out)
{
    struct error why = {0};
    struct machine *gpu = NULL;
    bool take = false;
    int n;
    *out = (struct device_choice){0};
    if (q->machine->isa || q->machine->blas || q->machine->n_threads) {
        snprintf(out->why, sizeof out->why, "threads, an ISA or BLAS were asked for");
        return;
    }
    if (card_count(&n, &why)) {
        snprintf(out->why, sizeof out->why, "%s", why.text);
        return;
    }
    out->found_gpu = true;
    struct gpu_options options = {.device = q->card, .cache = q->kernel_cache, .tune_seconds = q->tune_seconds};
    if (machine_open_gpu(&gpu, q->machine, &options, &why) || consider(q, gpu, out, &take, &why))
        snprintf(out->why, sizeof out->why, "%s", why.text);
    if (gpu && !take)
        gpu->v->close(gpu);
    else
        out->gpu = gpu;
}
