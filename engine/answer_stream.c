#include "engine/answer_stream.h"

#include <stdlib.h>

// Where the answer is cut: before the stop string that is whole first, of those that end together before the longest, so
// that nothing depends on how the text came in pieces. n_held when there is none.
static size_t find_stop(const struct stream *s)
{
    size_t cut = s->n_held, least_end = s->n_held + 1;
    for (int i = 0; i < s->n_stops; i++) {
        const char *found = memmem(s->held, s->n_held, s->stops[i].data, s->stops[i].len);
        if (!found)
            continue;
        size_t at = (size_t)(found - s->held), end = at + s->stops[i].len;
        if (end < least_end || (end == least_end && at < cut)) {
            cut = at;
            least_end = end;
        }
    }
    return cut;
}

// Where the longest end begins that is the beginning of a stop string.
static size_t find_partial_stop(const struct stream *s)
{
    size_t longest = 0;
    for (int i = 0; i < s->n_stops; i++) {
        for (size_t n = MIN(s->stops[i].len - 1, s->n_held); n > longest; n--)
            if (!memcmp(s->held + s->n_held - n, s->stops[i].data, n))
                longest = n;
    }
    return s->n_held - longest;
}

// n less the bytes at its end that begin a character which is not whole: a first byte of 2 to 4, with fewer behind it.
static size_t whole_characters(const char *text, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t c = (uint8_t)text[n - back];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t length = c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc2 && c < 0xe0 ? 2 : 1;
        return length > back ? n - back : n;
    }
    return n;
}

static void emit(struct stream *s, size_t n)
{
    if (!n)
        return;
    if (!s->refused)
        s->refused = s->emit(s->arg, (struct str){s->held, n});
    memmove(s->held, s->held + n, s->n_held - n);
    s->n_held -= n;
}

int stream_push(struct stream *s, struct str piece, struct error *err)
{
    if (s->stopped || !piece.len)
        return 0;
    if (s->n_held + piece.len > s->cap) {
        size_t cap = 2 * (s->n_held + piece.len) + 256;
        char *held = realloc(s->held, cap);
        if (!held)
            return fail(err, E_MEMORY, "no memory for %zu bytes of an answer", cap);
        s->held = held;
        s->cap = cap;
    }
    memcpy(s->held + s->n_held, piece.data, piece.len);
    s->n_held += piece.len;
    size_t stop = find_stop(s);
    if (stop < s->n_held) {
        s->stopped = true;
        emit(s, stop);
        return 0;
    }
    emit(s, whole_characters(s->held, find_partial_stop(s)));
    return 0;
}

void stream_end(struct stream *s)
{
    if (!s->stopped)
        emit(s, s->n_held);
    s->n_held = 0;
}

void stream_free(struct stream *s)
{
    free(s->held);
    s->held = NULL;
    s->n_held = s->cap = 0;
}
