#include "cmd/load.h"
#include "cmd/terminal.h"

#include <stdlib.h>

const char *load_path(const struct options *o, struct error *err)
{
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
    // line by line: terminal_note takes the ends of lines away from none of them
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
    terminal_note("family %s, %d layers, width %d, vocabulary %d, trained for %d positions, %.4g parameters, %s",
                  m->info.name, m->info.n_layer, m->info.n_embd, m->info.n_vocab, m->info.n_ctx_train,
                  (double)m->info.n_params, size);
    struct text machine = {0};
    m->machine->v->describe(m->machine, NULL, &machine);
    terminal_note("device: %s (%s)", m->device, m->device_why);
    load_note_text(&machine);
    terminal_note("loaded in %.1f ms", m->load_ms);
}

int load_model(struct loaded *l, const struct options *o, struct error *err)
{
    *l = (struct loaded){0};
    const char *path = load_path(o, err);
    if (!path)
        return -1;
    struct model_options options = {
        .path = path,
        .device = (enum device)o->device,
        .machine = load_machine_options(o),
        .n_ctx = (int)o->n_ctx,
        .no_mmap = o->no_mmap,
        .any_pre = o->any_pre,
    };
    if (model_open(&l->model, &options, err))
        return -1;
    for (int i = 0; i < gguf_n_shards(l->model->file); i++) {
        const void *from, *to;
        if (model_mapping(l->model, i, &from, &to))
            terminal_watch_mapping(from, to, gguf_path(l->model->file, i));
    }
    if (o->verbose)
        note_model(l->model, path);
    return 0;
}

static int make_room(struct model *m, const struct options *o, int64_t n_wanted, struct error *err)
{
    if (o->n_ctx == 0 && n_wanted > m->n_ctx && model_set_context(m, (int)MIN(n_wanted, INT32_MAX), err))
        return -1;
    return 0;
}

int load_session(struct loaded *l, const struct options *o, int64_t n_wanted, int n_outputs, struct error *err)
{
    if (make_room(l->model, o, n_wanted, err))
        return -1;
    int rows = (int)MIN(o->batch, o->ubatch);
    struct session_options options = {
        .n_batch = rows,
        .n_outputs = n_outputs < 0 ? rows : n_outputs,
        .n_rewind = MAX(n_outputs - 1, 0),  // logits of several rows at once: guesses, which may be wrong
        .kv_type = {o->kv_key, o->kv_value},
        .cancel = &terminal_interrupted,
    };
    if (session_open(&l->session, l->model, &options, err))
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

void load_close(struct loaded *l)
{
    session_close(l->session);
    model_close(l->model);
    *l = (struct loaded){0};
}
