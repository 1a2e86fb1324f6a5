// quern dump: prints a stage of the compilation of a model: graph, plan or PTX.
#include "cmd/load.h"
#include "cmd/confine.h"
#include "cmd/ptx_stats.h"
#include "cmd/terminal/terminal.h"
#include "kernels/card.h"

static struct compile_options compile_options(const struct options *o)
{
    return (struct compile_options){
        .max_tokens = (int)MIN(o->batch, o->ubatch), .max_outputs = 1, .kv_type = {o->kv_key, o->kv_value}};
}

// Prints a machine's description of its plan. The plan is compiled as `run` would compile it, but no KV cache is
// allocated.
static int print_plan_of(struct machine *m, const struct model *model, const struct options *o, struct text *out,
                         struct error *err)
{
    struct compile_options compile = compile_options(o);
    struct plan *plan;
    if (m->v->compile(m, model->graph, &compile, &plan, err))
        return -1;
    m->v->describe(m, plan, out);
    m->v->print(plan, out);
    m->v->plan_free(m, plan);
    return 0;
}

static int print_graph(const struct model *m, const struct options *o, struct text *out, struct error *err)
{
    (void)o;
    (void)err;
    return graph_print(m->graph, out);
}

static int print_plan(const struct model *m, const struct options *o, struct text *out, struct error *err)
{
    return print_plan_of(m->machine, m, o, out, err);
}

// ---- the GPU's kernels, emitted for a GPU on paper (driver_paper.c), so that none is needed

enum { PAPER_CARD = 90 };

static int open_paper(struct machine **card, const struct options *o, struct error *err)
{
    const struct machine_options machine = {.exact = o->exact};
    const struct gpu_options paper = {.paper = PAPER_CARD, .variant = (int)o->variant};
    return machine_open_gpu(card, &machine, &paper, err);
}

static int print_paper_plan(const struct model *m, const struct options *o, struct text *out, struct error *err)
{
    struct machine *card;
    if (open_paper(&card, o, err))
        return -1;
    terminal_note("the plan of a GPU of compute capability 9.0, since this machine has none");
    int status = print_plan_of(card, m, o, out, err);
    card->v->close(card);
    return status;
}

static int print_ptx(const struct model *m, const struct options *o, struct text *out, struct error *err)
{
    struct machine *card;
    struct plan *plan;
    struct card_kernel k;
    struct compile_options compile = compile_options(o);
    if (open_paper(&card, o, err))
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

// ---- stages

typedef int print_fn(const struct model *m, const struct options *o, struct text *out, struct error *err);
static const struct stage {
    const char *name;
    print_fn *print;
    bool device; // it depends on the machine that --device names
    bool ptx;    // it is about the GPU's kernels
} stages[] = {{"graph", print_graph, false, false}, {"plan", print_plan, true, false}, {"ptx", print_ptx, false, true}};
static const struct stage plan_on_paper = {"plan", print_paper_plan, false, false};

static const struct stage *find_stage(const struct options *o, struct error *err)
{
    for (size_t i = 0; o->args.n == 1 && i < COUNT_OF(stages); i++)
        if (!strcmp(o->args.at[0], stages[i].name))
            return &stages[i];
    fail(err, E_USAGE, "say what to dump: graph, plan or ptx");
    return NULL;
}

// A flag that a stage does not heed is an error, so that nobody reads something else than was asked for.
static int check_flags(const struct stage *s, const struct options *o, struct error *err)
{
    const bool other = o->given[OPT_device] && !s->device && !(s->ptx && o->device >= (int)DEVICE_GPU);
    const char *flag = o->given[OPT_stats] && !s->ptx     ? "--stats"
                       : o->given[OPT_variant] && !s->ptx ? "--variant"
                       : other                            ? "--device"
                                                          : NULL;
    return flag ? fail(err, E_USAGE, "dump %s takes no %s%s", s->name, flag,
                       s->ptx ? " but gpu: it shows the kernels of a GPU, also where there is none" : "")
                : 0;
}

// The plan of a GPU, where there is none, is that of one on paper. The model is loaded for the CPU then.
static const struct stage *stage_here(const struct stage *s, struct options *o)
{
    int n;
    if (!s->device || o->device < (int)DEVICE_GPU || !card_count(&n, NULL))
        return s;
    o->device = DEVICE_CPU;
    return &plan_on_paper;
}

static int dump(struct options *o, struct error *err)
{
    const struct stage *stage = find_stage(o, err);
    if (!stage || check_flags(stage, o, err))
        return -1;
    stage = stage_here(stage, o);
    struct loaded l;
    struct text out = {0};
    int status = load_model_as_meant(&l, o, err) || stage->print(l.model, o, &out, err) ? -1 : 0;
    if (!status && out.failed)
        status = fail(err, E_MEMORY, "no memory for the text of a dump");
    if (!status)
        status = (stage->ptx ? terminal_write_untrusted : terminal_write_table)((struct str){out.data, out.size}, err);
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
