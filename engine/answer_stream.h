// The text of an answer while it is generated: pieces of tokens go in, whole characters come out, up to the first stop
// string.
//
// The stream holds back only what later pieces may change: up to 3 bytes of an incomplete character, and the longest
// suffix that may be the beginning of a stop string. Bytes that are not UTF-8 pass through unchanged.
// Ownership: a stream owns its buffer and views the stop strings; zero the struct, then set the first four fields.
// Threads: one at a time.
#ifndef QUERN_ANSWER_STREAM_H
#define QUERN_ANSWER_STREAM_H

#include "kernels/text.h"

// Receives text. A return value other than 0 ends the answer.
typedef int answer_stream_emit_fn(void *arg, struct str text);

struct answer_stream {
    const struct str *stops; // none is empty
    int n_stops;
    answer_stream_emit_fn *emit;
    void *arg;
    struct text held; // text that emit has not received yet
    bool stopped;     // a stop string was found
    int refused;      // the last value that emit returned
};

// Appends a piece and emits all text that can no longer change. -1 with E_MEMORY only.
int answer_stream_push(struct answer_stream *s, struct str piece, struct error *err);
// Ends the answer: emits the text that was held back, unless a stop string has ended the answer.
void answer_stream_end(struct answer_stream *s);
void answer_stream_free(struct answer_stream *s);

#endif
