// Measures a model by tasks of choice, and prints how often it is right.
#include "cmd/perplexity_tasks.h"
#include "cmd/input.h"
#include "cmd/load.h"
#include "cmd/terminal/progress.h"
#include "cmd/terminal/terminal.h"
#include "engine/clock.h"
#include "engine/measure/choice_score.h"

#include <stdio.h>
#include <stdlib.h>

struct exam {
    const struct options *o;
    enum choice_kind kind;
    struct loaded loaded;
    char *data; // content of the file, of which the tasks are views
    struct choice_tasks tasks;
    struct choice_set set;
    struct choice_tally tally;
    struct progress progress;
    double ms;
};

static const struct {
    const char *title, *key;
    size_t asked, n_tasks; // offsets of the flag and of the number of tasks in struct options
} kinds[CHOICE_KINDS] = {
    [CHOICE_HELLASWAG] = {"HellaSwag", "hellaswag", offsetof(struct options, hellaswag),
                          offsetof(struct options, hellaswag_tasks)},
    [CHOICE_WINOGRANDE] = {"WinoGrande", "winogrande", offsetof(struct options, winogrande),
                           offsetof(struct options, winogrande_tasks)},
    [CHOICE_MULTIPLE] = {"multiple choice", "multiple_choice", offsetof(struct options, multiple_choice),
                         offsetof(struct options, multiple_choice_tasks)},
};

static bool is_asked(const struct options *o, int kind)
{
    return *(const bool *)(const void *)((const char *)o + kinds[kind].asked);
}

static int n_tasks_of(const struct options *o, int kind)
{
    return (int)*(const int64_t *)(const void *)((const char *)o + kinds[kind].n_tasks);
}

bool perplexity_tasks_asked(const struct options *o)
{
    bool any = false;
    for (int kind = 0; kind < CHOICE_KINDS; kind++)
        any |= is_asked(o, kind);
    return any;
}

static int choose_kind(struct exam *e, struct error *err)
{
    const struct options *o = e->o;
    int n = 0;
    for (int kind = 0; kind < CHOICE_KINDS; kind++)
        if (is_asked(o, kind)) {
            e->kind = (enum choice_kind)kind;
            n++;
        }
    if (n != 1)
        return fail(err, E_USAGE, "--hellaswag, --winogrande, --multiple-choice: one of them at a time");
    if (o->kl || o->kl_base || o->ppl_stride || o->chunks)
        return fail(err, E_USAGE, "tasks have no windows: leave --kl, --kl-base, --ppl-stride and --chunks away");
    return 0;
}

// --- the tasks ---

// Puts the name of the file before an error in it.
static int in_file(const struct exam *e, int status, struct error *err)
{
    return status && e->o->file && err->code == E_USAGE ? fail_prefix(err, e->o->file) : status;
}

static int read_tasks(struct exam *e, struct error *err)
{
    struct str file;
    if (input_take(e->o, INPUT_TASKS, &e->data, &file, err))
        return -1;
    if (in_file(e, choice_tasks_read(&e->tasks, e->kind, file, err), err))
        return -1;
    return choice_tasks_select(&e->tasks, n_tasks_of(e->o, (int)e->kind), err);
}

static void describe(const struct exam *e)
{
    struct text text = {0};
    int n_trained = e->loaded.model->info.n_ctx_train;
    if (e->set.n_longest > n_trained)
        terminal_note("quern: note: a text of %d tokens is longer than the %d positions that the model was trained for",
                      e->set.n_longest, n_trained);
    if (e->o->verbose) {
        session_describe(e->loaded.session, &text);
        text_print(&text, "%d tasks, %lld tokens to compute, %d texts at once\n", e->set.n, (long long)e->set.n_rows,
                   session_settings(e->loaded.session).n_seqs);
    }
    load_note_text(&text);
}

static int open_session(struct exam *e, struct error *err)
{
    const struct options *o = e->o;
    struct model *model = e->loaded.model;
    if (in_file(e, choice_set_prepare(&e->set, &e->tasks, model->tokenizer, (int)o->n_ctx, err), err))
        return -1;
    if (model_set_context(model, e->set.n_longest, err))
        return -1;
    struct session_options s = choice_set_session(&e->set, (int)MIN(o->batch, o->ubatch), model->info.n_vocab);
    s.kv_type[0] = o->kv_key;
    s.kv_type[1] = o->kv_value;
    s.cancel = &terminal_interrupted;
    return session_open(&e->loaded.session, model, &s, err);
}

// --- the run ---

static void take_item(void *arg, const struct choice_item *item, const double *scores, int chosen)
{
    struct exam *e = arg;
    choice_tally_add(&e->tally, item, chosen);
    if (!e->o->verbose)
        return;
    struct text line = {0};
    for (int k = 0; k < item->task->n; k++)
        text_print(&line, "  %.6f", scores[k]);
    terminal_note("[%d] %s %d:%s  chosen %d, %s; accuracy %.4f%%", e->tally.n, choice_kind_unit(e->kind),
                  item->task->at, line.failed ? "" : line.data, chosen + 1,
                  choice_task_is_right(item->task, chosen) ? "right" : "wrong",
                  100 * choice_tally_accuracy(&e->tally).value);
    text_free(&line);
}

static void take_progress(void *arg, int64_t done, int64_t total)
{
    struct exam *e = arg;
    char note[64] = "";
    if (e->tally.n)
        snprintf(note, sizeof note, "%.1f%% of %d right", 100 * choice_tally_accuracy(&e->tally).value, e->tally.n);
    progress_show(&e->progress, done, total, note);
}

static int compute(struct exam *e, struct error *err)
{
    if (open_session(e, err))
        return -1;
    describe(e);
    terminal_set_phase(PHASE_ANSWERING);
    struct choice_sink sink = {take_item, take_progress, e, &terminal_interrupted};
    progress_begin(&e->progress, kinds[e->kind].title, "tokens");
    double start = clock_ms();
    int status = choice_set_run(&e->set, e->loaded.session, &sink, err);
    e->ms = clock_ms() - start;
    progress_end(&e->progress);
    return status;
}

// --- what is printed ---

static void print_text(const struct exam *e, struct text *out)
{
    struct estimate accuracy = choice_tally_accuracy(&e->tally);
    double low, high;
    choice_tally_interval(&e->tally, &low, &high);
    text_print(out, "%s: accuracy %.4f%% +/- %.4f%%, 95%% interval [%.4f%%, %.4f%%], %d tasks, chance %.4f%%\n",
               kinds[e->kind].title, 100 * accuracy.value, 100 * accuracy.error, 100 * low, 100 * high, e->tally.n,
               100 * choice_tally_chance(&e->tally));
}

static void print_json(const struct exam *e, struct text *out)
{
    struct estimate accuracy = choice_tally_accuracy(&e->tally);
    double low, high;
    choice_tally_interval(&e->tally, &low, &high);
    text_print(out, "{\"model\": ");
    terminal_print_json(out, str_from(e->loaded.name));
    text_print(out, ", \"tasks\": \"%s\", \"n_tasks\": %d, \"n_right\": %d, \"accuracy\": %.9g", kinds[e->kind].key,
               e->tally.n, e->tally.n_right, accuracy.value);
    text_print(out, ", \"accuracy_error\": %.9g, \"accuracy_low\": %.9g, \"accuracy_high\": %.9g", accuracy.error, low,
               high);
    text_print(out, ", \"chance\": %.9g, \"ms\": %.3f}\n", choice_tally_chance(&e->tally), e->ms);
}

static int print_result(const struct exam *e, struct error *err)
{
    struct text out = {0};
    if (e->o->json)
        print_json(e, &out);
    else
        print_text(e, &out);
    int status = out.failed
                     ? fail(err, E_MEMORY, "no memory for the result")
                     : (e->o->json ? terminal_write_json : terminal_write)((struct str){out.data, out.size}, err);
    text_free(&out);
    if (!status && e->o->verbose)
        terminal_note("%lld tokens in %.1f ms, %.2f tokens/s", (long long)e->set.n_rows, e->ms,
                      (double)e->set.n_rows * 1e3 / e->ms);
    return status;
}

int perplexity_tasks(const struct options *o, struct error *err)
{
    struct exam e = {.o = o};
    int status = choose_kind(&e, err) || read_tasks(&e, err) || load_model(&e.loaded, o, err) || compute(&e, err) ||
                         print_result(&e, err)
                     ? -1
                     : 0;
    if (status && err->code == E_INTERRUPTED && e.tally.n)
        terminal_note("%d of %d tasks were done, %.4f%% of them right", e.tally.n, e.set.n,
                      100 * choice_tally_accuracy(&e.tally).value);
    load_close(&e.loaded);
    choice_set_free(&e.set);
    choice_tasks_free(&e.tasks);
    free(e.data);
    return status;
}
