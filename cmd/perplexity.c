// quern perplexity: measures how well a model predicts a text, and how far its logits are from those of another
// model.
#include "cmd/input.h"
#include "cmd/confine.h"
#include "cmd/load.h"
#include "cmd/perplexity_tasks.h"
#include "cmd/terminal/progress.h"
#include "cmd/terminal/terminal.h"
#include "engine/clock.h"
#include "engine/measure/logits_base.h"
#include "engine/measure/divergence.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_CTX_DEFAULT_HERE = 512 }; // as in llama-perplexity

struct measurement {
    const struct options *o;
    struct loaded loaded;
    struct token_list tokens;
    struct text_windows windows;
    struct logits_base *save, *base;
    struct perplexity perplexity;
    struct divergence divergence;
    struct progress progress;
    double ms;
    int n_vocab, window; // window: the last window that was scored
};

// --- the text ---

static int tokenize(struct measurement *m, struct error *err)
{
    char *data;
    struct str text;
    if (input_take(m->o, INPUT_TEXT, &data, &text, err))
        return -1;
    if (text.len && text.data[text.len - 1] == '\n')
        text.len--;
    const struct tokenizer *t = m->loaded.model->tokenizer;
    int status = tokenizer_encode(t, text, TOKENIZE_BOS, &m->tokens, err);
    if (!status && tokenizer_adds_eos(t) && m->tokens.n)
        m->tokens.n--;
    free(data);
    return status;
}

static int cut(struct measurement *m, struct error *err)
{
    const struct options *o = m->o;
    const struct tokenizer *t = m->loaded.model->tokenizer;
    int n_ctx = o->n_ctx ? (int)o->n_ctx : N_CTX_DEFAULT_HERE;
    if (text_windows_cut(&m->windows, m->tokens.ids, m->tokens.n, n_ctx, (int)o->ppl_stride, (int)MAX(o->chunks, 0),
                         err))
        return -1;
    if (!o->ppl_stride && tokenizer_adds_bos(t))
        m->windows.bos = tokenizer_role(t, TOKEN_BOS);
    return 0;
}

// Takes the text from the base file; if a text is given as well, it must be the same.
static int take_base(struct measurement *m, struct error *err)
{
    const struct options *o = m->o;
    if (logits_base_open(&m->base, o->kl, err))
        return -1;
    if (logits_base_n_vocab(m->base) != m->n_vocab)
        return fail(err, E_USAGE, "%s: of a vocabulary of %d, the model's is %d: their logits cannot be compared",
                    o->kl, logits_base_n_vocab(m->base), m->n_vocab);
    m->windows = *logits_base_windows(m->base);
    if (!o->prompt && !o->file && !o->args.n)
        return 0;
    size_t n = logits_base_n_tokens(m->base);
    if (tokenize(m, err))
        return -1;
    if (m->tokens.n != n || memcmp(m->tokens.ids, m->windows.tokens, n * sizeof *m->tokens.ids))
        return fail(err, E_USAGE, "%s: its text has other tokens than the one given; leave the text away", o->kl);
    return 0;
}

static int prepare_text(struct measurement *m, struct error *err)
{
    const struct options *o = m->o;
    if (o->kl)
        return take_base(m, err);
    if (tokenize(m, err) || cut(m, err))
        return -1;
    return o->kl_base ? logits_base_create(&m->save, o->kl_base, &m->windows, m->tokens.n, m->n_vocab, err) : 0;
}

// --- the run ---

static int take_row(void *arg, int window, int i, const float *logits, int32_t target, struct error *err)
{
    struct measurement *m = arg;
    (void)i;
    if (m->o->verbose && window != m->window) {
        struct estimate e = perplexity_value(&m->perplexity);
        terminal_note("[%d] %.4f +/- %.5f", window, e.value, e.error);
    }
    m->window = window;
    perplexity_add(&m->perplexity, log_sum_exp(logits, m->n_vocab) - logits[target]);
    if (m->save && logits_base_write(m->save, logits, err))
        return -1;
    if (!m->base)
        return 0;
    const float *base = logits_base_read(m->base, err);
    return base ? divergence_add(&m->divergence, logits, base, m->n_vocab, target, err) : -1;
}

static void take_progress(void *arg, int64_t done, int64_t total)
{
    struct measurement *m = arg;
    char note[40] = "";
    if (m->perplexity.n)
        snprintf(note, sizeof note, "PPL %.4f", perplexity_value(&m->perplexity).value);
    progress_show(&m->progress, done, total, note);
}

static int open_session(struct measurement *m, struct error *err)
{
    const struct options *o = m->o;
    struct model *model = m->loaded.model;
    if (model_set_context(model, m->windows.n_window, err))
        return -1;
    struct session_options s = text_windows_session(&m->windows, (int)MIN(o->batch, o->ubatch), m->n_vocab);
    s.kv_type[0] = o->kv_key;
    s.kv_type[1] = o->kv_value;
    s.cancel = &terminal_interrupted;
    if (session_open(&m->loaded.session, model, &s, err))
        return -1;
    load_note_windows(&m->loaded, o, &m->windows, m->base ? logits_base_n_tokens(m->base) : m->tokens.n);
    struct text text = {0};
    if (o->verbose) {
        session_describe(m->loaded.session, &text);
        text_print(&text, "%d windows of %d tokens, %d scored in each, %d windows at once\n", m->windows.n,
                   m->windows.n_window, m->windows.n_scored, session_settings(m->loaded.session).n_seqs);
    }
    load_note_text(&text);
    return 0;
}

static int compute(struct measurement *m, struct error *err)
{
    if (open_session(m, err))
        return -1;
    terminal_set_phase(PHASE_ANSWERING); // from here on a signal removes the half-written file of logits
    struct text_windows_sink sink = {take_row, take_progress, m, &terminal_interrupted};
    progress_begin(&m->progress, "perplexity", "tokens");
    double start = clock_ms();
    int status = text_windows_run(&m->windows, m->loaded.session, false, &sink, err);
    m->ms = clock_ms() - start;
    progress_end(&m->progress);
    if (!status && m->save) {
        status = logits_base_finish(m->save, err);
        m->save = NULL;
    }
    return status;
}

// --- what is printed ---

static void print_estimate(struct text *out, const char *what, struct estimate e, double factor, const char *unit)
{
    text_print(out, "%-32s %12.6f +/- %.6f%s\n", what, factor * e.value, factor * e.error, unit);
}

static const struct {
    const char *name, *key;
    double fraction;
} percentiles[] = {
    {"99.9%", "p99_9", 0.999}, {"99.0%", "p99", 0.99},    {"95.0%", "p95", 0.95},  {"90.0%", "p90", 0.9},
    {"75.0%", "p75", 0.75},    {"median", "median", 0.5}, {"25.0%", "p25", 0.25},  {"10.0%", "p10", 0.1},
    {"5.0%", "p5", 0.05},      {"1.0%", "p1", 0.01},      {"0.1%", "p0_1", 0.001},
};

static void print_percentiles(struct text *out, const char *what, const float *sorted, int64_t n, double factor,
                              const char *unit)
{
    char label[64];
    text_print(out, "%-8s%-24s %12.6f%s\n", "maximum ", what, factor * sorted[n - 1], unit);
    for (size_t i = 0; i < COUNT_OF(percentiles); i++) {
        snprintf(label, sizeof label, "%-7s %s", percentiles[i].name, what);
        print_estimate(out, label, divergence_percentile(sorted, n, percentiles[i].fraction), factor, unit);
    }
    text_print(out, "%-8s%-24s %12.6f%s\n", "minimum ", what, factor * sorted[0], unit);
}

static void print_text(const struct measurement *m, struct text *out)
{
    struct estimate ppl = perplexity_value(&m->perplexity);
    const struct divergence *d = &m->divergence;
    if (m->base) {
        int64_t n = d->model.n;
        print_estimate(out, "PPL(base)", perplexity_value(&d->base), 1, "");
        print_estimate(out, "PPL/PPL(base)", divergence_ratio(d), 1, "");
        print_estimate(out, "ln(PPL/PPL(base))", divergence_ln_ratio(d), 1, "");
        print_estimate(out, "PPL-PPL(base)", divergence_difference(d), 1, "");
        text_print(out, "%-32s %12.6f%%\n\n", "correlation of ln PPL", 100 * divergence_correlation(d));
        print_estimate(out, "mean    KLD", divergence_kld(d), 1, "");
        print_percentiles(out, "KLD", d->kld, n, 1, "");
        text_print(out, "\n");
        print_estimate(out, "mean    delta-p", divergence_mean_delta(d), 100, " %");
        print_percentiles(out, "delta-p", d->delta, n, 100, " %");
        print_estimate(out, "RMS     delta-p", divergence_rms_delta(d), 100, " %");
        print_estimate(out, "same top token", divergence_same_top(d), 100, " %");
        text_print(out, "\n");
    }
    text_print(out, "Final estimate: PPL = %.4f +/- %.5f\n", ppl.value, ppl.error);
}

static void json_estimate(struct text *out, const char *key, struct estimate e)
{
    text_print(out, ", \"%s\": %.9g, \"%s_error\": %.9g", key, e.value, key, e.error);
}

static void json_percentiles(struct text *out, const char *what, const float *sorted, int64_t n)
{
    char key[48];
    text_print(out, ", \"%s_max\": %.9g, \"%s_min\": %.9g", what, sorted[n - 1], what, sorted[0]);
    for (size_t i = 0; i < COUNT_OF(percentiles); i++) {
        snprintf(key, sizeof key, "%s_%s", what, percentiles[i].key);
        json_estimate(out, key, divergence_percentile(sorted, n, percentiles[i].fraction));
    }
}

static void print_json(const struct measurement *m, struct text *out)
{
    const struct divergence *d = &m->divergence;
    const struct text_windows *w = &m->windows;
    text_print(out, "{\"model\": ");
    terminal_print_json(out, str_from(m->loaded.name));
    text_print(out, ", \"n_windows\": %d, \"n_window\": %d, \"step\": %d, \"n_scored\": %lld", w->n, w->n_window,
               w->step, (long long)m->perplexity.n);
    json_estimate(out, "ppl", perplexity_value(&m->perplexity));
    json_estimate(out, "nll", perplexity_mean_nll(&m->perplexity));
    if (m->base) {
        json_estimate(out, "ppl_base", perplexity_value(&d->base));
        json_estimate(out, "ppl_ratio", divergence_ratio(d));
        json_estimate(out, "ln_ppl_ratio", divergence_ln_ratio(d));
        json_estimate(out, "ppl_difference", divergence_difference(d));
        text_print(out, ", \"correlation\": %.9g", divergence_correlation(d));
        json_estimate(out, "kld", divergence_kld(d));
        json_percentiles(out, "kld", d->kld, d->model.n);
        json_estimate(out, "delta_p", divergence_mean_delta(d));
        json_percentiles(out, "delta_p", d->delta, d->model.n);
        json_estimate(out, "rms_delta_p", divergence_rms_delta(d));
        json_estimate(out, "same_top", divergence_same_top(d));
    }
    text_print(out, ", \"ms\": %.3f}\n", m->ms);
}

static int print_result(struct measurement *m, struct error *err)
{
    struct text out = {0};
    divergence_sort(&m->divergence);
    if (m->o->json)
        print_json(m, &out);
    else
        print_text(m, &out);
    int status = out.failed
                     ? fail(err, E_MEMORY, "no memory for the result")
                     : (m->o->json ? terminal_write_json : terminal_write)((struct str){out.data, out.size}, err);
    text_free(&out);
    if (!status && m->o->verbose)
        terminal_note("%d windows in %.1f ms, %.2f tokens/s", m->windows.n, m->ms,
                      (double)m->windows.n * (m->windows.first + m->windows.n_scored) * 1e3 / m->ms);
    return status;
}

static int perplexity(const struct options *o, struct error *err)
{
    if (o->kl && o->kl_base)
        return fail(err, E_USAGE, "--kl and --kl-base: one compares with a file, the other writes it");
    if (o->kl && (o->given[OPT_n_ctx] || o->ppl_stride || o->chunks))
        return fail(err, E_USAGE, "--kl: the windows are the file's: leave -c, --ppl-stride and --chunks away");
    struct measurement m = {.o = o};
    int status = load_model(&m.loaded, o, err);
    if (!status) {
        m.n_vocab = m.loaded.model->info.n_vocab;
        status = prepare_text(&m, err);
    }
    if (!status)
        status = compute(&m, err);
    if (!status)
        status = print_result(&m, err);
    load_close(&m.loaded);
    logits_base_close(m.save);
    logits_base_close(m.base);
    divergence_free(&m.divergence);
    token_list_free(&m.tokens);
    return status;
}

int cmd_perplexity(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    if (options_parse(&o, VERB_PERPLEXITY, argc, argv, &err))
        return verb_fail(&err);
    confine(&o);
    int status = perplexity_tasks_asked(&o) ? perplexity_tasks(&o, &err) : perplexity(&o, &err);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
