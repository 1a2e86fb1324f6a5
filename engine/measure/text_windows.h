// Cuts a text into windows for measuring a model on it. Each window is computed independently, and the tokens at its
// end are scored. The text is cut as llama-perplexity cuts it:
//   side by side  Windows have n_ctx tokens and do not overlap. The second half is scored; the last row is not, because
//                 the token after it belongs to the next window.
//   strided       Each window begins `stride` tokens after the one before it, and its last `stride` tokens are scored.
//                 A window has n_ctx + stride / 2 tokens, rounded up to a multiple of 256.
// When the model wants a BOS token, it replaces the first token of each window; with strided windows only the text
// begins with one.
//
// Ownership: the windows are views; the caller owns the tokens and the session. Threads: one at a time.
#ifndef QUERN_TEXT_WINDOWS_H
#define QUERN_TEXT_WINDOWS_H

#include "engine/session.h"

struct text_windows {
    const int32_t *tokens;
    int n_window;        // tokens of a window
    int step;            // tokens from the start of a window to the start of the next
    int first, n_scored; // rows first .. first + n_scored - 1 of a window are scored, each by the token after it
    int n;               // windows
    int32_t bos;         // replaces the first token of each window; -1: nothing is replaced
};

// n_chunks: the largest number of windows; 0: all. stride 0: side by side. E_USAGE when the text is shorter than two
// windows.
int text_windows_cut(struct text_windows *w, const int32_t *tokens, size_t n_tokens, int n_ctx, int stride,
                     int n_chunks, struct error *err);

// The options of a session for these windows. It computes as many windows at once as fit into n_batch rows. The caller
// sets kv_type and cancel.
struct session_options text_windows_session(const struct text_windows *w, int n_batch, int n_vocab);

// The most rows of a step that produce logits, so that they take little memory: 1 .. n_batch.
int text_windows_outputs(int n_batch, int n_vocab);

struct text_windows_sink {
    // Receives one scored row: the number of its window, its index among the scored rows of that window, its logits and
    // the token that follows it in the text. Rows are passed in order. May be NULL.
    int (*row)(void *arg, int window, int i, const float *logits, int32_t target, struct error *err);
    void (*progress)(void *arg, int64_t done, int64_t total); // in tokens, after each step. May be NULL
    void *arg;
    const atomic_bool *cancel; // E_INTERRUPTED between steps. May be NULL
};
// Computes all windows in a session that was opened with the options of text_windows_session and serves nothing else.
// With `whole`, every token of a window is computed, and each row produces logits: for taps.
int text_windows_run(const struct text_windows *w, struct session *s, bool whole, const struct text_windows_sink *sink,
                     struct error *err);

#endif
