// quern imatrix: measures the inputs of each matrix over a text, column by column, for quern quantize --imatrix.
#include "cmd/input.h"
#include "cmd/confine.h"
#include "cmd/load.h"
#include "cmd/outputs.h"
#include "cmd/terminal/progress.h"
#include "cmd/terminal/terminal.h"
#include "engine/quantize/importance_collector.h"
#include "engine/measure/divergence.h"
#include "engine/measure/text_windows.h"

#include <stdio.h>
#include <stdlib.h>

enum { WINDOW_DEFAULT = 512 }; // as in llama-imatrix

struct collection {
    const struct options *o;
    struct loaded loaded;
    struct token_list tokens;
    struct text_windows windows;
    struct importance_collector *collector;
    struct importance importance;
    struct perplexity perplexity;
    struct progress progress;
    int n_vocab;
};

static int prepare_text(struct collection *c, struct error *err)
{
    const struct options *o = c->o;
    const struct tokenizer *t = c->loaded.model->tokenizer;
    char *data;
    struct str text;
    if (input_take(o, INPUT_TEXT, &data, &text, err))
        return -1;
    if (text.len && text.data[text.len - 1] == '\n')
        text.len--;
    int status = tokenizer_encode(t, text, TOKENIZE_BOS | (o->special ? TOKENIZE_SPECIAL : 0), &c->tokens, err);
    free(data);
    if (!status && tokenizer_adds_eos(t) && c->tokens.n)
        c->tokens.n--;
    int n_ctx = o->n_ctx ? (int)o->n_ctx : WINDOW_DEFAULT;
    if (status || text_windows_cut(&c->windows, c->tokens.ids, c->tokens.n, n_ctx, 0, (int)MAX(o->chunks, 0), err))
        return -1;
    if (tokenizer_adds_bos(t))
        c->windows.bos = tokenizer_role(t, TOKEN_BOS);
    return 0;
}

// All rows must pass through all layers, so logits of every row are requested; the number of output rows bounds the
// length of a step.
static int open_session(struct collection *c, struct error *err)
{
    struct model *m = c->loaded.model;
    if (model_set_context(m, c->windows.n_window, err) ||
        importance_collector_open(&c->collector, m->graph, c->o->process_output, err))
        return -1;
    struct session_options s = text_windows_session(&c->windows, (int)MIN(c->o->batch, c->o->ubatch), c->n_vocab);
    s.n_batch = s.n_outputs;
    s.kv_type[0] = c->o->kv_key;
    s.kv_type[1] = c->o->kv_value;
    s.cancel = &terminal_interrupted;
    s.taps = importance_collector_taps(c->collector);
    if (session_open(&c->loaded.session, m, &s, err))
        return -1;
    load_note_windows(&c->loaded, c->o, &c->windows, c->tokens.n);
    struct text text = {0};
    if (c->o->verbose)
        session_describe(c->loaded.session, &text);
    load_note_text(&text);
    return 0;
}

static int take_row(void *arg, int window, int i, const float *logits, int32_t target, struct error *err)
{
    struct collection *c = arg;
    (void)window, (void)i, (void)err;
    perplexity_add(&c->perplexity, log_sum_exp(logits, c->n_vocab) - logits[target]);
    return 0;
}

static void take_progress(void *arg, int64_t done, int64_t total)
{
    struct collection *c = arg;
    char note[40] = "";
    if (c->perplexity.n)
        snprintf(note, sizeof note, "PPL %.4f", perplexity_value(&c->perplexity).value);
    progress_show(&c->progress, done, total, note);
}

static int run_windows(struct collection *c, struct error *err)
{
    struct text_windows_sink sink = {take_row, take_progress, c, &terminal_interrupted};
    terminal_set_phase(PHASE_ANSWERING);
    progress_begin(&c->progress, "imatrix", "tokens");
    int status = text_windows_run(&c->windows, c->loaded.session, true, &sink, err);
    progress_end(&c->progress);
    if (status || importance_collector_result(c->collector, &c->importance, err))
        return -1;
    c->importance.n_chunks += (uint32_t)c->windows.n;
    c->importance.chunk_size = (uint32_t)c->windows.n_window;
    if (c->o->file)
        c->importance.dataset = c->o->file;
    return 0;
}

static int add_files(struct collection *c, struct error *err)
{
    for (int i = 0; i < c->o->in_files.n; i++) {
        struct importance other;
        if (importance_read(&other, c->o->in_files.at[i], err))
            return -1;
        int status = importance_merge(&c->importance, &other, err);
        c->importance.chunk_size = c->importance.chunk_size ? c->importance.chunk_size : other.chunk_size;
        importance_free(&other);
        if (status)
            return fail_prefix(err, c->o->in_files.at[i]);
    }
    return 0;
}

static void note_unused_experts(const struct importance *m)
{
    int64_t unused = 0, all = 0;
    for (int i = 0; i < m->n; i++)
        for (int64_t j = 0; j < m->entries[i].n_matrices; j++, all++)
            unused += m->entries[i].counts[j] == 0;
    if (unused)
        terminal_note("quern: note: %lld of %lld matrices were never used; a longer text would reach more experts",
                      (long long)unused, (long long)all);
}

static int imatrix(const struct options *o, struct error *err)
{
    struct collection c = {.o = o};
    if (!o->out)
        return fail(err, E_USAGE, "imatrix needs -o FILE");
    if (outputs_check_options(o, o->model, err))
        return -1;
    bool with_text = o->file || o->prompt || o->args.n || !o->in_files.n;
    int status = 0;
    if (with_text) {
        status = load_model(&c.loaded, o, err);
        c.n_vocab = status ? 0 : c.loaded.model->info.n_vocab;
        if (!status && !prepare_text(&c, err) && !open_session(&c, err))
            status = run_windows(&c, err);
        else
            status = -1;
    }
    if (!status)
        status = add_files(&c, err);
    if (!status)
        status = importance_write(&c.importance, o->out, err);
    if (!status) {
        note_unused_experts(&c.importance);
        struct estimate ppl = perplexity_value(&c.perplexity);
        if (with_text)
            terminal_note("%d matrices, %u windows of %u tokens; PPL = %.4f +/- %.5f", c.importance.n,
                          c.importance.n_chunks, c.importance.chunk_size, ppl.value, ppl.error);
    }
    load_close(&c.loaded);
    importance_collector_close(c.collector);
    importance_free(&c.importance);
    token_list_free(&c.tokens);
    return status;
}

int cmd_imatrix(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    if (options_parse(&o, VERB_IMATRIX, argc, argv, &err))
        return verb_fail(&err);
    confine(&o);
    int status = imatrix(&o, &err);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
