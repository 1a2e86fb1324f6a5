// quern dump: the stages between a model file and what runs.
#include "cmd/load.h"
#include "cmd/terminal.h"

// What the machine says of its plan. A plan is made as run would make it, but holds no KV cache.
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

static int dump(const struct options *o, struct error *err)
{
    if (o->args.n != 1 || (strcmp(o->args.at[0], "graph") && strcmp(o->args.at[0], "plan")))
        return fail(err, E_USAGE, "say what to dump: graph or plan");
    struct loaded l;
    struct text out = {0};
    int status = load_model(&l, o, err);
    if (!status)
        status = strcmp(o->args.at[0], "graph") ? print_plan(l.model, o, &out, err) : graph_print(l.model->graph, &out);
    if (!status && out.failed)
        status = fail(err, E_MEMORY, "no memory for the text of a dump");
    if (!status)
        status = terminal_write_untrusted((struct str){out.data, out.size}, err);
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
    int status = dump(&o, &err);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
