// The text of an answer as it comes: pieces in, whole characters out, up to the first stop string.
//
// Held back is only what may still change: up to 3 bytes of a character that is not whole yet, and the longest end that
// may become a stop string. What is no UTF-8 passes through as it is.
// Ownership: a stream owns its buffer and views the stop strings. Threads: one at a time.
#ifndef QUERN_ANSWER_STREAM_H
#define QUERN_ANSWER_STREAM_H

#include "kernels/text.h"

// Takes text; anything but 0 ends the answer.
typedef int answer_stream_emit_fn(void *arg, struct str text);

struct answer_stream {
    const struct str *stops; // none is empty
    int n_stops;
    answer_stream_emit_fn *emit;
    void *arg;
    struct text held;
    bool stopped; // by a stop string
    int refused;  // what emit returned
};

// Adds a piece and emits what is certain. -1 only when memory is short.
int answer_stream_push(struct answer_stream *s, struct str piece, struct error *err);
// The end of the answer: what was held back comes out, unless a stop string has ended it.
void answer_stream_end(struct answer_stream *s);
void answer_stream_free(struct answer_stream *s);

#endif
