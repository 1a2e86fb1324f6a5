#include "engine/device_choice.h"
#include "engine/crossover.h"
#include "engine/memory.h"
#include "kernels/cpu.h"
#include "kernels/card.h"
#include "kernels/cost.h"

#include <stdio.h>

enum { ROWS_ON_PAPER = 512 }; // of a step, as sessions have by default

// What a model asks of a card.
struct demand {
    int n_launches;
    double token_bytes; // read for a token
    uint64_t weights, kv, plan;
};

static uint64_t kv_bytes(const struct model *m, const struct model_options *o)
{
    uint64_t bytes, pages = ((uint64_t)m->n_ctx + KV_PAGE - 1) / KV_PAGE;
    return __builtin_mul_overflow(pages, kv_page_bytes(m->graph, o->kv_type), &bytes) ? UINT64_MAX / 4 : bytes;
}

// By a plan for a card on paper, which brings nothing anywhere.
static int find_demand(const struct model *m, const struct model_options *o, const struct card *c, struct demand *out,
                       struct error *err)
{
    struct compile_options compile = {
        .max_tokens = MIN(ROWS_ON_PAPER, m->n_ctx), .max_outputs = 1, .kv_type = {o->kv_type[0], o->kv_type[1]}};
    struct cost_step token = {.n_tokens = 1, .n_outputs = 1, .n_seqs = 1, .kv_type = {o->kv_type[0], o->kv_type[1]}};
    struct machine *paper;
    struct plan *plan;
    size_t weights;
    if (machine_open_gpu(&paper, &o->machine, &(struct gpu_options){.paper = 10 * c->major + c->minor}, err))
        return -1;
    int status = paper->v->compile(paper, m->graph, &compile, &plan, err);
    if (!status) {
        card_plan(paper, plan, &out->n_launches, &weights);
        out->weights = weights;
        out->plan = paper->v->plan_bytes(plan);
        out->kv = kv_bytes(m, o);
        out->token_bytes = cost_of_graph(m->graph, &token).bytes;
        paper->v->plan_free(paper, plan);
    }
    paper->v->close(paper);
    return status;
}

static bool has_room(struct model *m, const struct card *c, const struct demand *d)
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
    snprintf(m->device_why, sizeof m->device_why,
             "%s has %s free, and %s are needed: weights %s, keys and values of %d positions %s, a step %s", c->name,
             free_text, need_text, weights, m->n_ctx, kv, plan);
    return false;
}

static bool is_faster(struct model *m, const struct card *c, const struct demand *d, const struct crossover *x)
{
    double cpu = crossover_on_cpu(x, d->token_bytes), card = crossover_on_card(x, d->n_launches, d->token_bytes);
    char bytes[24];
    memory_format((uint64_t)d->token_bytes, bytes);
    snprintf(m->device_why, sizeof m->device_why,
             "a token reads %s: %.3g ms by %d threads at %.1f GB/s, %.3g ms on %s at %.4g GB/s with %d launches of "
             "%.3g us and %.3g us a step",
             bytes, cpu * 1e3, x->n_threads, x->read / 1e9, card * 1e3, c->name, x->copy / 1e9, d->n_launches,
             x->launch * 1e6, x->step * 1e6);
    return card < cpu;
}

static int consider(struct model *m, const struct model_options *o, struct machine *card, bool *take, struct error *err)
{
    struct machine_cpu_choice cpu;
    struct card facts;
    struct demand demand;
    struct crossover x;
    machine_cpu_choice(m->machine, &cpu);
    if (card_of(card, &facts, err) || find_demand(m, o, &facts, &demand, err))
        return -1;
    if (!has_room(m, &facts, &demand))
        return 0;
    if (crossover_measure(card, cpu.n_threads, o->kernel_cache, &x, err))
        return -1;
    *take = is_faster(m, &facts, &demand, &x);
    return 0;
}

struct machine *device_choose(struct model *m, const struct model_options *o)
{
    struct error why = {0};
    struct machine *card = NULL;
    bool take = false;
    int n;
    if (o->machine.isa || o->machine.blas || o->machine.n_threads) {
        snprintf(m->device_why, sizeof m->device_why, "threads, an ISA or BLAS were asked for");
        return NULL;
    }
    if (card_count(&n, &why)) {
        snprintf(m->device_why, sizeof m->device_why, "%s", why.text);
        return NULL;
    }
    m->device_news = true;
    struct gpu_options gpu = {.device = o->card, .cache = o->kernel_cache};
    if (machine_open_gpu(&card, &o->machine, &gpu, &why) || consider(m, o, card, &take, &why))
        snprintf(m->device_why, sizeof m->device_why, "%s", why.text);
    if (card && !take) {
        card->v->close(card);
        card = NULL;
    }
    return card;
}
