#include "cmd/sampling_options.h"

#include <stdlib.h>
#include <sys/random.h>

// What the file recommends holds where no flag says otherwise.
static void take_flags(struct sampler_params *p, const struct options *o)
{
    if (o->given[OPT_temp])
        p->temperature = (float)o->temp;
    if (o->given[OPT_top_k])
        p->top_k = (int)o->top_k;
    if (o->given[OPT_top_p])
        p->top_p = (float)o->top_p;
    if (o->given[OPT_min_p])
        p->min_p = (float)o->min_p;
    if (o->given[OPT_repeat_penalty])
        p->repeat_penalty = (float)o->repeat_penalty;
    if (o->given[OPT_repeat_last])
        p->repeat_last = (int)o->repeat_last;
    p->seed = o->seed;
    if (!o->given[OPT_seed] && getrandom(&p->seed, sizeof p->seed, 0) == (ssize_t)sizeof p->seed)
        p->seed >>= 11;
}

static int take_stops(struct sampling *s, const struct options *o, struct error *err)
{
    s->stops = calloc((size_t)o->stops.n + 1, sizeof *s->stops);
    if (!s->stops)
        return fail(err, E_MEMORY, "no memory for --stop");
    for (; s->n_stops < o->stops.n; s->n_stops++)
        s->stops[s->n_stops] = str_from(o->stops.at[s->n_stops]);
    return 0;
}

int sampling_take(struct sampling *s, const struct options *o, const struct model *m, struct error *err)
{
    s->params = sampler_defaults();
    if (sampler_from_file(&s->params, m->file, true, err))
        return -1;
    take_flags(&s->params, o);
    return take_stops(s, o, err);
}

void sampling_free(struct sampling *s)
{
    free(s->stops);
    *s = (struct sampling){0};
}

void sampling_apply(const struct sampling *s, const struct options *o, struct generate_options *g)
{
    g->sampler = s->params;
    g->stops = s->stops;
    g->n_stops = s->n_stops;
    g->n_predict = o->n_predict;
    g->ignore_end = o->ignore_eos;
}
