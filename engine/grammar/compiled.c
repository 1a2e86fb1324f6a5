// Compiles in order: intersection and complement are lowered to automata, the net is built from the expressions, and
// the tables of readings and masks are initialised. Masks are computed later, when they are needed.
#include "engine/grammar/compiled.h"

#include "engine/grammar/dfa_build.h"
#include "engine/grammar/net_build.h"

#include <stdlib.h>

// How much deeper calls may nest than the minimum that completing the grammar requires.
enum { DEPTH_SPARE = 100 };

static int compile(struct grammar *g, uint32_t root, struct error *err)
{
    uint32_t lead = net_add_lead(&g->x, root);
    if (exprs_lower(&g->x, err) || net_build(&g->net, &g->x, root, lead, &g->v->available, err) ||
        readings_init(&g->readings, &g->net, g->x.n_rules, DEPTH_SPARE, err) ||
        masks_init(&g->masks, g->v, &g->readings, err))
        return -1;
    g->has_lock = pthread_mutex_init(&g->lock, NULL) == 0;
    if (!g->has_lock)
        return fail(err, E_MEMORY, "no memory for a lock");
    g->start = readings_start(&g->readings, g->net.root);
    g->start_after_trigger = readings_start(&g->readings, g->net.lead);
    if (g->start != READINGS_DEAD && g->start_after_trigger != READINGS_DEAD)
        return 0;
    return g->readings.failed ? fail(err, E_MEMORY, "no memory for a grammar")
                              : fail(err, E_USAGE, "the grammar has more than %d readings at its start", READINGS_MAX);
}

int grammar_compile(struct grammar **out, const struct grammar_vocab *v, struct exprs *x, uint32_t root,
                    struct error *err)
{
    *out = NULL;
    struct grammar *g = calloc(1, sizeof *g);
    if (!g) {
        exprs_free(x);
        return fail(err, E_MEMORY, "no memory for a grammar");
    }
    g->v = v;
    g->x = *x;
    *x = (struct exprs){0};
    if (compile(g, root, err)) {
        grammar_free(g);
        return -1;
    }
    *out = g;
    return 0;
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    masks_free(&g->masks);
    readings_free(&g->readings);
    net_free(&g->net);
    exprs_free(&g->x);
    text_free(&g->passed_over);
    if (g->has_lock)
        pthread_mutex_destroy(&g->lock);
    free(g);
}

const char *grammar_passed_over(const struct grammar *g)
{
    return g->passed_over.size && !g->passed_over.failed ? g->passed_over.data + strlen(", ") : NULL;
}

void grammar_describe(const struct grammar *g, struct text *out)
{
    text_print(out, "grammar: %u rules, %u states, %u kinds of bytes\n", g->x.n_rules, g->net.n, g->net.n_classes);
}
