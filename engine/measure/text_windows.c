// Cuts the windows and runs them in groups of as many sequences as the session has. The rows of a group are computed
// window by window and fill steps of n_batch rows, so a step may span windows. Only the scored rows produce logits,
// at most n_outputs of them per step.
#include "engine/measure/text_windows.h"

#include <stdlib.h>

enum { STRIDED_ALIGN = 256 };
// The largest size of the logits of one step. Further rows are computed in the next step.
#define LOGITS_BYTES (64.0 * 1024 * 1024)

static int refuse_short(size_t n_tokens, int n_ctx, struct error *err)
{
    if (n_tokens < 16)
        return fail(err, E_USAGE, "the text has %zu tokens, too few to measure anything by", n_tokens);
    return fail(err, E_USAGE, "the text has %zu tokens, less than two windows of %d; -c %zu would do", n_tokens, n_ctx,
                n_tokens / 2);
}

int text_windows_cut(struct text_windows *w, const int32_t *tokens, size_t n_tokens, int n_ctx, int stride,
                     int n_chunks, struct error *err)
{
    if (n_ctx < 4)
        return fail(err, E_USAGE, "-c %d: a window needs 4 tokens at least", n_ctx);
    *w = (struct text_windows){.tokens = tokens, .n_window = n_ctx, .step = n_ctx, .bos = -1};
    if (stride) {
        w->n_window = (int)align_up((size_t)n_ctx + (size_t)stride / 2, STRIDED_ALIGN);
        w->step = stride;
    }
    if (stride >= w->n_window)
        return fail(err, E_USAGE, "--ppl-stride %d: must be less than the window of %d tokens", stride, w->n_window);
    if (n_tokens > INT32_MAX)
        return fail(err, E_USAGE, "a text of %zu tokens is more than can be counted", n_tokens);
    size_t n_window = (size_t)w->n_window;
    if (n_tokens < 2 * n_window)
        return refuse_short(n_tokens, w->n_window, err);
    if (stride) {
        w->n = (int)((n_tokens - n_window + (size_t)stride - 1) / (size_t)stride);
        w->first = w->n_window - stride - 1;
        w->n_scored = stride;
    } else {
        w->n = (int)(n_tokens / n_window);
        w->first = n_ctx / 2;
        w->n_scored = n_ctx - 1 - w->first;
    }
    w->n = n_chunks ? MIN(w->n, n_chunks) : w->n;
    return 0;
}

int text_windows_outputs(int n_batch, int n_vocab)
{
    return MAX(1, MIN(n_batch, (int)(LOGITS_BYTES / sizeof(float) / n_vocab)));
}

struct session_options text_windows_session(const struct text_windows *w, int n_batch, int n_vocab)
{
    return (struct session_options){
        .n_seqs = MAX(1, MIN(w->n, n_batch / w->n_window)),
        .n_ctx = w->n_window,
        .n_batch = n_batch,
        .n_outputs = text_windows_outputs(n_batch, n_vocab),
        .no_reuse = true,
    };
}

// The position of a run within a group of windows, which are sequences 0 .. n - 1 of the session.
struct cursor {
    const struct text_windows *w;
    int first_window, n; // the first window of the group, and the number of windows
    int n_rows;          // rows of each window that are computed
    int seq, at;         // sequence and position of the next row
    bool whole;          // every row produces logits
};

static bool is_scored(const struct text_windows *w, int at)
{
    return at >= w->first && at < w->first + w->n_scored;
}

static int32_t token_at(const struct text_windows *w, int window, int at)
{
    return at == 0 && w->bos >= 0 ? w->bos : w->tokens[(int64_t)window * w->step + at];
}

// Fills the rows of a step, up to n_batch rows of which up to n_outputs produce logits. Returns their number.
static int fill_step(struct cursor *c, struct session_row *rows, int n_batch, int n_outputs, bool scores)
{
    int n = 0;
    for (; n < n_batch && c->seq < c->n; n++) {
        bool scored = c->whole || (scores && is_scored(c->w, c->at));
        if (scored && n_outputs-- == 0)
            break;
        rows[n] = (struct session_row){token_at(c->w, c->first_window + c->seq, c->at), c->seq, scored};
        if (++c->at == c->n_rows) {
            c->seq++;
            c->at = 0;
        }
    }
    return n;
}

// Passes the scored rows of a step that began at `from` to the sink.
static int emit_rows(struct cursor from, const struct session *s, const struct session_row *rows, int n,
                     const struct text_windows_sink *sink, struct error *err)
{
    const struct text_windows *w = from.w;
    for (int i = 0, output = 0; i < n; i++) {
        int window = from.first_window + from.seq;
        const float *logits = rows[i].logits ? session_logits(s, output++) : NULL;
        if (logits && is_scored(w, from.at) &&
            sink->row(sink->arg, window, from.at - w->first, logits, w->tokens[(int64_t)window * w->step + from.at + 1],
                      err))
            return -1;
        if (++from.at == from.n_rows) {
            from.seq++;
            from.at = 0;
        }
    }
    return 0;
}

static int run_group(struct cursor c, struct session *s, struct session_row *rows, const struct session_options *o,
                     const struct text_windows_sink *sink, struct error *err)
{
    for (int i = 0; i < c.n; i++)
        session_truncate(s, i, 0);
    int64_t before = (int64_t)c.first_window * c.n_rows;
    while (c.seq < c.n) {
        if (sink->cancel && atomic_load_explicit(sink->cancel, memory_order_relaxed))
            return fail(err, E_INTERRUPTED, "interrupted");
        struct cursor from = c;
        int n = fill_step(&c, rows, o->n_batch, o->n_outputs, sink->row != NULL);
        if (session_step(s, rows, n, err) || (sink->row && emit_rows(from, s, rows, n, sink, err)))
            return -1;
        if (sink->progress)
            sink->progress(sink->arg, before + (int64_t)c.seq * c.n_rows + c.at, (int64_t)c.w->n * c.n_rows);
    }
    return 0;
}

int text_windows_run(const struct text_windows *w, struct session *s, bool whole, const struct text_windows_sink *sink,
                     struct error *err)
{
    struct session_options o = session_settings(s);
    struct session_row *rows = calloc((size_t)o.n_batch, sizeof *rows);
    if (!rows)
        return fail(err, E_MEMORY, "no memory for %d rows", o.n_batch);
    int status = 0;
    for (int i = 0; !status && i < w->n; i += o.n_seqs) {
        struct cursor c = {.w = w, .first_window = i, .n = MIN(o.n_seqs, w->n - i), .whole = whole};
        c.n_rows = whole ? w->n_window : w->first + w->n_scored;
        status = run_group(c, s, rows, &o, sink, err);
    }
    free(rows);
    return status;
}
