// quern dump: prints a stage of the compilation of a model: graph, plan or PTX.
#include "cmd/load.h"
#include "cmd/confine.h"
#include "cmd/ptx_stats.h"
#include "cmd/terminal/terminal.h"
#include "kernels/card.h"

// Prints the machine's description of its plan. The plan is compiled as `run` would compile it, but no KV cache is
// allocated.
static int print_plan(const struct model *m, const struct options *o, struct text *out, struct error *err)
{
    const struct machine_vtable *v = m->machine->v;
    struct compile_options compile = {
        .max_tokens = (int)MIN(o->batch, o->ubatch), .max_outputs = 1, .kv_type = {o->kv_key, o->kv_value}};
    struct plan *plan;
    if (v->compile(m->machine, m->graph, &compile, &plan, err))
        return -1;
    v->describe(m->machine, plan, out);
    v->print(plan, out);
    v->plan_free(m->machine, plan);
    return 0;
}

// ---- the GPU's kernels, emitted for a GPU on paper (driver_paper.c), so that none is needed

enum { PAPER_CARD = 90 };

static int print_ptx(const struct model *m, const struct options *o, struct text *out, struct error *err)
{
    struct machine *card;
    struct plan *plan;
    struct card_kernel k;
    struct machine_options machine = {.exact = o->exact};
    struct compile_options compile = {
        .max_tokens = (int)MIN(o->batch, o->ubatch), .max_outputs = 1, .kv_type = {o->kv_key, o->kv_value}};
    const struct gpu_options paper = {.paper = PAPER_CARD, .variant = (int)o->variant};
    if (machine_open_gpu(&card, &machine, &paper, err))
        return -1;
    int status = card->v->compile(card, m->graph, &compile, &plan, err);
    if (!status) {
        for (int i = 0; !o->stats && card_kernel(card, i, &k); i++)
            text_print(out, "%s%.*s", i ? "\n" : "", STR_ARG(k.text));
        status = o->stats ? ptx_stats_print(card, plan, PAPER_CARD, compile.max_tokens, out, err) : 0;
        card->v->plan_free(card, plan);
    }
    card->v->close(card);
    return status;
}

static int dump(const struct options *o, struct error *err)
{
    static const char *const stages[] = {"graph", "plan", "ptx"};
    int stage = -1;
    for (int i = 0; o->args.n == 1 && i < (int)COUNT_OF(stages); i++)
        stage = strcmp(o->args.at[0], stages[i]) ? stage : i;
    if (stage < 0)
        return fail(err, E_USAGE, "say what to dump: graph, plan or ptx");
    struct loaded l;
    struct text out = {0};
    int status = load_model_as_meant(&l, o, err);
    if (!status)
        status = stage == 0   ? graph_print(l.model->graph, &out)
                 : stage == 1 ? print_plan(l.model, o, &out, err)
                              : print_ptx(l.model, o, &out, err);
    if (!status && out.failed)
        status = fail(err, E_MEMORY, "no memory for the text of a dump");
    if (!status)
        status = (stage == 2 ? terminal_write_untrusted : terminal_write_table)((struct str){out.data, out.size}, err);
    text_free(&out);
    load_close(&l);
    return status;
}

int cmd_dump(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    if (options_parse(&o, VERB_DUMP, argc, argv, &err))
        return verb_fail(&err);
    confine(&o);
    int status = dump(&o, &err);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
