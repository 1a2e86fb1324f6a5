// quern quantize: writes a model in fewer bits.
#include "cmd/outputs.h"
#include "cmd/confine.h"
#include "cmd/terminal/progress.h"
#include "cmd/terminal/terminal.h"
#include "engine/clock.h"
#include "engine/memory.h"
#include "engine/model.h"
#include "engine/quantize/quantizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

struct job {
    const struct options *o;
    const char *in, *out; // out is NULL for a dry run
    struct type_override *overrides;
    char **patterns;
    struct gguf *file;
    struct machine *machine;
    struct importance importance;
    struct quantizer quantizer;
    struct progress progress;
    double ms;
};

// --- flags ---

static int unknown_mix(const char *name, struct error *err)
{
    char all[320];
    size_t at = 0;
    for (int i = 0; i < MIX_COUNT; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? " " : "", mix_info[i].name);
    return fail(err, E_USAGE, "%s: no type to quantise to; there are %s", name, all);
}

static int parse_type(const char *flag, const char *text, enum dtype *out, struct error *err)
{
    if (text && !dtype_from_name(str_from(text), out) && dtype_info[*out].kind != DTYPE_KIND_INT)
        return 0;
    return fail(err, E_USAGE, "%s %s: no type of tensors, such as Q6_K or F16", flag, text ? text : "");
}

static int parse_override(struct job *j, int i, struct error *err)
{
    const char *text = j->o->tensor_types.at[i], *sign = strrchr(text, '=');
    if (!sign || sign == text)
        return fail(err, E_USAGE, "--tensor-type %s: wanted is NAME=TYPE, such as ffn_down=Q6_K", text);
    j->patterns[i] = strndup(text, (size_t)(sign - text));
    j->overrides[i].pattern = j->patterns[i];
    if (!j->patterns[i])
        return fail(err, E_MEMORY, "no memory for the command line");
    return parse_type("--tensor-type", sign + 1, &j->overrides[i].type, err);
}

static int parse_mix_options(struct job *j, const char *mix, struct mix_options *out, struct error *err)
{
    const struct options *o = j->o;
    enum dtype type;
    *out =
        (struct mix_options){.pure = o->pure, .leave_output = o->leave_output, .output_type = -1, .embedding_type = -1};
    if (mix_from_name(mix, &out->mix))
        return unknown_mix(mix, err);
    if (o->output_type) {
        if (parse_type("--output-tensor-type", o->output_type, &type, err))
            return -1;
        out->output_type = (int)type;
    }
    if (o->embedding_type) {
        if (parse_type("--token-embedding-type", o->embedding_type, &type, err))
            return -1;
        out->embedding_type = (int)type;
    }
    int n = o->tensor_types.n;
    j->overrides = calloc((size_t)n + 1, sizeof *j->overrides);
    j->patterns = calloc((size_t)n + 1, sizeof *j->patterns);
    if (!j->overrides || !j->patterns)
        return fail(err, E_MEMORY, "no memory for the command line");
    for (int i = 0; i < n; i++)
        if (parse_override(j, i, err))
            return -1;
    out->overrides = j->overrides;
    out->n_overrides = n;
    return 0;
}

// Takes the arguments IN OUT TYPE; with --dry-run also IN TYPE.
static int take_paths(struct job *j, const char **mix, struct error *err)
{
    const struct option_list *a = &j->o->args;
    if (a->n != 3 && !(a->n == 2 && j->o->dry_run))
        return fail(err, E_USAGE,
                    "say which file becomes which, and of what type: quern quantize IN.gguf OUT.gguf Q4_K_M");
    j->in = a->at[0];
    j->out = j->o->dry_run ? NULL : a->at[1];
    *mix = a->at[a->n - 1];
    return 0;
}

// --- messages ---

static void note_tensors(const struct job *j)
{
    const struct quantizer *q = &j->quantizer;
    for (size_t i = 0; i < q->n_tensors; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(q->file, i);
        const struct mix_choice *c = &q->choices[i];
        char note[64] = "";
        if (c->type != c->wanted)
            snprintf(note, sizeof note, " (rows of %lld do not fit %s)", (long long)t->ne[0],
                     dtype_info[c->wanted].name);
        terminal_note("%-32.*s %s -> %s%s", STR_ARG(t->name), dtype_info[t->type].name, dtype_info[c->type].name, note);
    }
}

static void print_tensors(const struct job *j, struct text *out)
{
    const struct quantizer *q = &j->quantizer;
    for (size_t i = 0; i < q->n_tensors; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(q->file, i);
        text_print(out, "%-32.*s %-8s %s\n", STR_ARG(t->name), dtype_info[t->type].name,
                   dtype_info[q->choices[i].type].name);
    }
}

static void print_sizes(const struct job *j, struct text *out)
{
    const struct quantizer *q = &j->quantizer;
    char before[24], after[24];
    memory_format(q->bytes_in, before);
    memory_format(q->bytes_out, after);
    text_print(out, "%s -> %s, %.2f -> %.2f bits a weight", before, after,
               8.0 * (double)q->bytes_in / (double)q->n_weights, 8.0 * (double)q->bytes_out / (double)q->n_weights);
    if (j->out)
        text_print(out, ", %.1f s, %.1f M weights/s", j->ms / 1e3, (double)q->n_weights / j->ms / 1e3);
    text_print(out, "\n");
}

static void note_doubts(const struct quantizer *q)
{
    if (q->n_fallback)
        terminal_note(
            "quern: note: %d of %zu tensors have rows that do not fit the type, and get one with smaller blocks",
            q->n_fallback, q->n_tensors);
    if (q->n_without_importance)
        terminal_note("quern: note: %d tensors are quantised without importance: the matrix has nothing on them",
                      q->n_without_importance);
    if (q->n_unmeasured)
        terminal_note(
            "quern: note: %lld columns were 0 on the text of the importance matrix; they count like the average",
            (long long)q->n_unmeasured);
}

static void take_progress(void *arg, int64_t done, int64_t total, const struct gguf_tensor *t)
{
    struct job *j = arg;
    char note[80];
    snprintf(note, sizeof note, "%.*s", STR_ARG(t->name));
    progress_show(&j->progress, done / (1 << 20), total / (1 << 20), note);
}

// --- the work ---

static int open_all(struct job *j, struct error *err)
{
    const struct options *o = j->o;
    struct machine_options machine = {.n_threads = (int)o->threads, .isa = o->isa};
    if (o->imatrix && importance_read(&j->importance, o->imatrix, err))
        return -1;
    if (gguf_open(&j->file, j->in, j->out ? 0 : GGUF_METADATA_ONLY, err))
        return -1;
    return machine_open_cpu(&j->machine, &machine, err);
}

static int work(struct job *j, const struct quantize_options *q, struct error *err)
{
    if (outputs_check_options_model(j->o, j->file, err) || quantizer_plan(&j->quantizer, j->file, j->machine, q, err))
        return -1;
    note_doubts(&j->quantizer);
    if (!j->out)
        return 0;
    if (j->o->verbose)
        note_tensors(j);
    terminal_set_phase(PHASE_ANSWERING); // from here on a signal removes the half-written file
    progress_begin(&j->progress, "quantize", "MiB");
    double start = clock_ms();
    int status = quantizer_write(&j->quantizer, j->out, err);
    j->ms = clock_ms() - start;
    progress_end(&j->progress);
    return status;
}

static int print_result(const struct job *j, struct error *err)
{
    struct text out = {0};
    if (!j->out)
        print_tensors(j, &out);
    print_sizes(j, &out);
    int status = out.failed ? fail(err, E_MEMORY, "no memory for the result")
                            : terminal_write_table((struct str){out.data, out.size}, err);
    text_free(&out);
    return status;
}

static void close_all(struct job *j)
{
    for (int i = 0; j->patterns && i < j->o->tensor_types.n; i++)
        free(j->patterns[i]);
    free(j->patterns);
    free(j->overrides);
    quantizer_free(&j->quantizer);
    if (j->machine)
        j->machine->v->close(j->machine);
    gguf_close(j->file);
    importance_free(&j->importance);
}

static int quantize(const struct options *o, struct error *err)
{
    struct job j = {.o = o};
    struct quantize_options q = {.allow_requantize = o->allow_requantize,
                                 .types_only = o->dry_run,
                                 .importance_path = o->imatrix,
                                 .importance = o->imatrix ? &j.importance : NULL,
                                 .cancel = &terminal_interrupted,
                                 .progress = take_progress,
                                 .arg = &j};
    const char *mix;
    int status = take_paths(&j, &mix, err);
    if (!status)
        status = parse_mix_options(&j, mix, &q.mix, err);
    q.mix.has_importance = o->imatrix != NULL;
    if (!status)
        status = outputs_check_options(o, NULL, err) || open_all(&j, err) ? -1 : 0;
    if (!status)
        status = work(&j, &q, err);
    if (!status)
        status = print_result(&j, err);
    close_all(&j);
    return status;
}

int cmd_quantize(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    if (options_parse(&o, VERB_QUANTIZE, argc, argv, &err))
        return verb_fail(&err);
    confine(&o);
    int status = quantize(&o, &err);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
