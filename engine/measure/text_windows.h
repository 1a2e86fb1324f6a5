// Cuts a text into windows for measuring a model on it. Each window is computed independently, and the tokens at its
// end are scored. The text is cut as llama-perplexity cuts it:
//   side by side  windows of n_ctx tokens; the second half is scored, but for what follows the last token
//   strided       each window begins `stride` after the one before it, and its last `stride` tokens are scored; the
//                 window is n_ctx + stride / 2 tokens, rounded up to a multiple of 256
// Side by side, the first token of each window is taken for bos where the model asks for one; strided, only the
// text's.
//
// Ownership: views; the caller owns tokens and session. Threads: one at a time.
#ifndef QUERN_TEXT_WINDOWS_H
#define QUERN_TEXT_WINDOWS_H

#include "engine/session.h"

struct text_windows {
    const int32_t *tokens;
    int n_window;        // tokens of a window
    int step;            // from the start of one to that of the next
    int first, n_scored; // rows first .. first + n_scored - 1 of a window are scored, each by the token after it
    int n;               // windows
    int32_t bos;         // in place of each window's first token; -1: the text's own
};

// n_chunks: windows at most, 0: all. stride 0: side by side. E_USAGE when the text is shorter than two windows.
int text_windows_cut(struct text_windows *w, const int32_t *tokens, size_t n_tokens, int n_ctx, int stride,
                     int n_chunks, struct error *err);

// What a session for these windows needs: as many of them at once as n_batch rows hold. kv_type and cancel are left to
// the caller.
struct session_options text_windows_session(const struct text_windows *w, int n_batch, int n_vocab);

struct text_windows_sink {
    // One scored row: its window, its place among that window's scored rows, its logits and the token that came. Rows
    // come in order. May be NULL.
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
