// quern dump: prints a stage of the compilation of a model: graph, plan or PTX.
#include "cmd/load.h"
#include "cmd/ptxas.h"
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

static int count_in(struct str text, char c)
{
    int n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += text.data[i] == c;
    return n;
}

// The entry name of a kernel in its PTX text.
static struct str entry_of(struct str text)
{
    static const char word[] = ".entry ";
    const char *p = memmem(text.data, text.len, word, sizeof word - 1);
    if (!p)
        return STR_LIT("?");
    p += sizeof word - 1;
    size_t n = 0, left = (size_t)(text.data + text.len - p);
    while (n < left && p[n] != '(' && p[n] != '\n' && p[n] != ' ')
        n++;
    return (struct str){p, n};
}

static void print_stats_line(const struct card_kernel *k, const struct ptxas_facts *facts, struct text *out)
{
    struct str name = entry_of(k->text);
    text_print(out, "%-24.*s %8d %7u %8zu %6d", STR_ARG(name), k->users, k->threads, k->text.len,
               count_in(k->text, '\n'));
    if (k->per_product > 0)
        text_print(out, " %8.3f", k->per_product);
    else
        text_print(out, " %8s", "-");
    if (facts)
        text_print(out, " %9d %7d %6d", facts->registers, facts->shared, facts->spills);
    text_print(out, "\n");
}

static int print_stats(const struct machine *card, struct text *out, struct error *err)
{
    char path[4096];
    bool assembler = ptxas_find(path);
    struct card_kernel k;
    long bytes = 0;
    int n = 0;
    text_print(out, "%-24s %8s %7s %8s %6s %8s", "kernel", "launches", "threads", "bytes", "lines", "a weight");
    text_print(out, assembler ? " %9s %7s %6s\n" : "\n", "registers", "shared", "spills");
    for (; card_kernel(card, n, &k); n++, bytes += (long)k.text.len) {
        struct ptxas_facts facts;
        if (assembler && ptxas_run(path, k.text, PAPER_CARD, &facts, err))
            return -1;
        print_stats_line(&k, assembler ? &facts : NULL, out);
    }
    text_print(out, "%d kernels, %ld bytes of PTX", n, bytes);
    text_print(out, assembler ? ", assembled by %s for sm_%d\n" : "; ptxas is not installed: no registers are told\n",
               path, PAPER_CARD);
    text_print(out,
               "a weight: instructions of PTX that a thread executes for a weight times a row of activations, in the"
               " kernel's dearest loop of products; -: it has none\n");
    return 0;
}

static int print_ptx(const struct model *m, const struct options *o, struct text *out, struct error *err)
{
    struct machine *card;
    struct plan *plan;
    struct card_kernel k;
    struct machine_options machine = {.exact = o->exact};
    struct compile_options compile = {
        .max_tokens = (int)MIN(o->batch, o->ubatch), .max_outputs = 1, .kv_type = {o->kv_key, o->kv_value}};
    if (machine_open_gpu(&card, &machine, &(struct gpu_options){.paper = PAPER_CARD}, err))
        return -1;
    int status = card->v->compile(card, m->graph, &compile, &plan, err);
    if (!status) {
        for (int i = 0; !o->stats && card_kernel(card, i, &k); i++)
            text_print(out, "%s%.*s", i ? "\n" : "", STR_ARG(k.text));
        status = o->stats ? print_stats(card, out, err) : 0;
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
    int status = load_model(&l, o, err);
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
    int status = dump(&o, &err);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
