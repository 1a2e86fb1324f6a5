// Translates flags into the options of model_open and session_open, and prints the notes of -v. If -c is not given,
// the context grows to what the verb wants. Also here: the folder in which compiled GPU kernels are kept,
// and the printing of tapped values.
#include "cmd/load.h"
#include "cmd/confine.h"
#include "cmd/outputs.h"
#include "cmd/overrides.h"
#include "cmd/terminal/terminal.h"

#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

const char *load_path(const struct options *o, struct error *err)
{
    if (outputs_check_options(o, o->model, err))
        return NULL;
    if (o->model)
        return o->model;
    if (model_has_builtin())
        return MODEL_BUILTIN;
    fail(err, E_USAGE,
         "no model: give one with -m FILE.gguf or $QUERN_MODEL; this build has none of its own (-Dbuiltin=false)");
    return NULL;
}

struct machine_options load_machine_options(const struct options *o)
{
    return (struct machine_options){.n_threads = (int)o->threads, .isa = o->isa, .exact = o->exact, .blas = o->blas};
}

void load_note_text(struct text *text)
{
    // printed line by line, because terminal_note removes line ends from a text
    for (char *line = text->data; line && *line;) {
        size_t n = strcspn(line, "\n");
        terminal_note("%.*s", (int)n, line);
        line += n + (line[n] == '\n');
    }
    text_free(text);
}

static void note_model(const struct model *m, const char *path)
{
    char size[24];
    memory_format((uint64_t)m->info.weight_bytes, size);
    terminal_note("model: %s", path);
    if (m->info.n_layer_unused)
        terminal_note("layers that predict further tokens, which are not used: %d", m->info.n_layer_unused);
    terminal_note("family %s, %d layers, width %d, vocabulary %d, trained for %d positions, %.4g parameters, %s",
                  m->info.name, m->info.n_layer, m->info.n_embd, m->info.n_vocab, m->info.n_ctx_train,
                  (double)m->info.n_params, size);
    struct text machine = {0};
    m->machine->v->describe(m->machine, NULL, &machine);
    load_note_text(&machine);
    terminal_note("loaded in %.1f ms", m->load_ms);
}

// Where attention sees more than the model was made to see, results may be worse: whoever runs it should know.
static void note_sparse(const struct model *m)
{
    if (m->info.sparse_from && m->n_ctx > m->info.sparse_from)
        terminal_note("attention sees all keys; the model was made to choose some of them from position %lld on",
                      (long long)m->info.sparse_from);
}

// Whoever gave no model on a terminal should know that it is a small one which answers.
static void note_builtin(void)
{
    terminal_aside("quern: the small built-in model answers (-m MODEL: another)");
}

// The folder in which compiled GPU kernels are kept; NULL if the environment names no home folder.
static const char *kernel_cache(char *out, size_t size)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (base && *base == '/')
        snprintf(out, size, "%s/quern/kernels", base);
    else if (home && *home)
        snprintf(out, size, "%s/.cache/quern/kernels", home);
    else
        return NULL;
    return out;
}

// How long a GPU's kernels may be measured, see struct gpu_options. A dump shows what is there, and measures nothing.
static double tune_seconds(const struct options *o)
{
    const double at_load = 2, all = 1e9, none = -1;
    return o->no_tune ? 0 : o->verb == VERB_DUMP ? none : o->tune ? all : at_load;
}

enum { ADAPTERS_MOST = 16 };

// Divides FILE:SCALE at the last colon, if a number follows it.
static int take_adapter(const char *flag, char *path, struct model_adapter *out, struct error *err)
{
    char *colon = strrchr(path, ':'), *end = NULL;
    *out = (struct model_adapter){path, 1};
    if (!colon || !colon[1])
        return 0;
    const float scale = strtof(colon + 1, &end);
    if (*end)
        return 0;
    if (!isfinite(scale))
        return fail(err, E_USAGE, "%s %s: the scale is no number", flag, path);
    out->scale = scale;
    *colon = '\0';
    return 0;
}

// The files and scales of --lora and then of --control-vector. `paths` keeps the names, one after another with a NUL behind
// each.
static int take_adapters(const struct options *o, struct model_adapter *out, struct text *paths, struct error *err)
{
    const struct option_list *lists[] = {&o->loras, &o->controls};
    static const char *const flags[] = {"--lora", "--control-vector"};
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        if (lists[i]->n > ADAPTERS_MOST)
            return fail(err, E_USAGE, "%s: %d files, limit %d", flags[i], lists[i]->n, (int)ADAPTERS_MOST);
        for (int j = 0; j < lists[i]->n; j++) {
            text_append(paths, str_from(lists[i]->at[j]));
            text_append(paths, (struct str){"", 1});
        }
    }
    if (paths->failed)
        return fail(err, E_MEMORY, "no memory for the names of adapters");
    char *path = paths->data;
    for (size_t i = 0; i < COUNT_OF(lists); i++)
        for (int j = 0; j < lists[i]->n; path += strlen(lists[i]->at[j++]) + 1)
            if (take_adapter(flags[i], path, out++, err))
                return -1;
    return 0;
}

// The layers of --control-vector-layers, A-B.
static int take_control_range(const struct options *o, struct control_range *out, struct error *err)
{
    int end = 0;
    *out = (struct control_range){0};
    if (!o->control_layers)
        return 0;
    if (sscanf(o->control_layers, "%5d-%5d%n", &out->first, &out->last, &end) == 2 && !o->control_layers[end] &&
        out->first >= 1 && out->last >= out->first)
        return 0;
    return fail(err, E_USAGE, "--control-vector-layers %s: wanted is A-B, numbers of layers from 1 on",
                o->control_layers);
}

static int set_keys(const void *options, struct gguf *file, struct error *err)
{
    return overrides_apply(options, file, err);
}

static int load(struct loaded *l, const struct options *o, bool hidden, bool if_meant, struct error *err)
{
    *l = (struct loaded){0};
    const char *path = load_path(o, err);
    if (!path)
        return -1;
    char cache[4096];
    struct model_adapter adapters[2 * ADAPTERS_MOST];
    struct control_range control_range;
    struct text adapter_paths = {0};
    if (take_adapters(o, adapters, &adapter_paths, err) || take_control_range(o, &control_range, err)) {
        text_free(&adapter_paths);
        return -1;
    }
    struct model_options options = {
        .path = path,
        .device = (enum device)MIN(o->device, (int)DEVICE_GPU),
        .card = MAX(0, o->device - (int)DEVICE_GPU - 1),
        .kernel_cache = kernel_cache(cache, sizeof cache),
        .tune_seconds = tune_seconds(o),
        .tune_again = o->tune,
        .kv_type = {o->kv_key, o->kv_value},
        .machine = load_machine_options(o),
        .n_ctx = (int)o->n_ctx,
        .no_mmap = o->no_mmap,
        .any_pre = o->any_pre,
        .set_keys = set_keys,
        .set_keys_arg = o,
        .adapters = adapters,
        .n_adapters = o->loras.n + o->controls.n,
        .n_controls = o->controls.n,
        .control_range = control_range,
        .hidden = hidden,
        .hidden_if_meant = if_meant,
    };
    struct progress_wait wait;
    progress_wait_begin(&wait, "loading the model");
    int status = model_open(&l->model, &options, err);
    progress_wait_end(&wait);
    text_free(&adapter_paths);
    if (status || outputs_check_options_model(o, l->model->file, err) || overrides_check_rope(o, &l->model->info, err))
        return -1;
    for (int i = 0; i < l->model->n_adapters; i++)
        if (outputs_check_options_model(o, l->model->adapter_files[i], err))
            return -1;
    l->name = o->model_name ? o->model_name : gguf_path(l->model->file, 0);
    if (o->verbose || l->model->device_news)
        terminal_note("device: %s (%s)", l->model->device, l->model->device_why);
    if (o->verbose)
        note_model(l->model, path);
    else if (!o->model && terminal_is_tty(STDERR_FILENO))
        note_builtin();
    note_sparse(l->model);
    confine_loaded(o);
    return 0;
}

int load_model(struct loaded *l, const struct options *o, struct error *err)
{
    return load(l, o, false, false, err);
}

int load_model_hidden(struct loaded *l, const struct options *o, struct error *err)
{
    return load(l, o, true, false, err);
}

int load_model_as_meant(struct loaded *l, const struct options *o, struct error *err)
{
    return load(l, o, false, true, err);
}

static int make_room(struct model *m, const struct options *o, int64_t n_wanted, struct error *err)
{
    if (o->n_ctx == 0 && n_wanted > m->n_ctx && model_set_context(m, (int)MIN(n_wanted, INT32_MAX), err))
        return -1;
    return 0;
}

// Prints a tapped value that is not saved to a file: one line per step with its first numbers and a summary of all.
static void note_value(void *arg, const struct tensor *n, const float *rows, size_t stride, int n_rows)
{
    enum { SHOWN = 6 };
    char first[16 * SHOWN + 1] = "";
    size_t at = 0;
    (void)arg;
    if (!n_rows)
        return;
    const float *last = rows + (size_t)(n_rows - 1) * stride;
    for (int i = 0; i < SHOWN && i < n->width; i++)
        at += (size_t)snprintf(first + at, sizeof first - at, " %.5g", (double)last[i]);
    struct tap_summary s = tap_summarise(rows, stride, n_rows, n->width);
    terminal_note("%s (%d, %lld): last row%s%s; least %.5g, greatest %.5g, mean %.5g, rms %.5g%s", n->name, n_rows,
                  (long long)n->width, first, n->width > SHOWN ? " .." : "", s.least, s.greatest, s.mean, s.rms,
                  s.n_bad ? ", and values that are no numbers" : "");
}

static int open_taps(struct loaded *l, const struct options *o, struct session_options *s, struct error *err)
{
    if (!o->taps.n)
        return 0;
    if (tap_open(&l->tap, l->model->graph, o->taps.at, o->taps.n, note_value, NULL, err))
        return -1;
    s->taps = tap_taps(l->tap);
    return 0;
}

int load_finish_taps(struct loaded *l, struct error *err)
{
    return tap_finish(l->tap, err);
}

int load_session(struct loaded *l, const struct options *o, int64_t n_wanted, int n_outputs, struct error *err)
{
    if (make_room(l->model, o, n_wanted, err))
        return -1;
    int rows = (int)MIN(o->batch, o->ubatch);
    struct session_options options = {
        .n_batch = rows,
        .n_outputs = n_outputs < 0 ? rows : n_outputs,
        .n_rewind =
            MAX(n_outputs - 1, 0), // drafted tokens, of which several rows have logits, may have to be taken back
        .kv_type = {o->kv_key, o->kv_value},
        .cancel = &terminal_interrupted,
        .progress = &l->progress,
    };
    if (open_taps(l, o, &options, err) || session_open(&l->session, l->model, &options, err))
        return -1;
    if (l->model->n_ctx > l->model->info.n_ctx_train)
        terminal_note("quern: note: %d positions are more than the %d that the model was trained for", l->model->n_ctx,
                      l->model->info.n_ctx_train);
    struct text text = {0};
    if (o->verbose)
        session_describe(l->session, &text);
    load_note_text(&text);
    return 0;
}

void load_note_windows(const struct loaded *l, const struct options *o, const struct text_windows *w, size_t n_tokens)
{
    const int n_trained = l->model->info.n_ctx_train;
    if (w->n_window > n_trained)
        terminal_note(
            "quern: note: windows of %d tokens are longer than the %d positions that the model was trained for",
            w->n_window, n_trained);
    if (!o->given[OPT_n_ctx] || !o->n_ctx)
        return;
    if (w->n_window != o->n_ctx)
        terminal_note("quern: note: windows have %d tokens, more than -c %lld, for --ppl-stride %d", w->n_window,
                      (long long)o->n_ctx, w->step);
    const size_t used = (size_t)(w->n - 1) * (size_t)w->step + (size_t)w->n_window;
    if (!o->chunks && used < n_tokens)
        terminal_note("quern: note: the last %zu of %zu tokens do not fill a window of -c %lld, and are left out",
                      n_tokens - used, n_tokens, (long long)o->n_ctx);
}

static int64_t read_progress(const void *arg, int64_t *total)
{
    const struct session_progress *p = arg;
    *total = atomic_load(&p->total);
    return atomic_load(&p->done) + (int64_t)atomic_load(&p->rows) * atomic_load(&p->part) / STEP_WHOLE;
}

void load_show_prompt(struct loaded *l, bool over)
{
    if (over)
        progress_wait_end(&l->wait);
    else
        progress_follow_begin(&l->wait, "prompt", "tokens", read_progress, &l->progress);
}

void load_close(struct loaded *l)
{
    session_close(l->session);
    tap_close(l->tap);
    model_close(l->model);
    *l = (struct loaded){0};
}
