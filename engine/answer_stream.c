// Each piece is appended to the held text, all of which is searched for every stop string. What cannot be part of a
// stop string or of an incomplete character is emitted at once, so the held text stays short.
#include "engine/answer_stream.h"

// The position at which the answer is cut: the start of the stop string that is complete first. Of stop strings with
// the same end, the longest counts, so that the result does not depend on how the text is split into pieces. held.size
// when there is none.
static size_t find_stop(const struct answer_stream *s)
{
    size_t cut = s->held.size, least_end = s->held.size + 1;
    for (int i = 0; i < s->n_stops; i++) {
        const char *found = memmem(s->held.data, s->held.size, s->stops[i].data, s->stops[i].len);
        if (!found)
            continue;
        size_t at = (size_t)(found - s->held.data), end = at + s->stops[i].len;
        if (end < least_end || (end == least_end && at < cut)) {
            cut = at;
            least_end = end;
        }
    }
    return cut;
}

// The start of the longest suffix that is the beginning of a stop string.
static size_t find_partial_stop(const struct answer_stream *s)
{
    size_t longest = 0;
    for (int i = 0; i < s->n_stops; i++) {
        for (size_t n = MIN(s->stops[i].len - 1, s->held.size); n > longest; n--)
            if (!memcmp(s->held.data + s->held.size - n, s->stops[i].data, n))
                longest = n;
    }
    return s->held.size - longest;
}

// n without an incomplete UTF-8 character at its end: a lead byte of a sequence of 2 to 4 bytes with fewer bytes after
// it.
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

static void emit(struct answer_stream *s, size_t n)
{
    if (!n)
        return;
    if (!s->refused)
        s->refused = s->emit(s->arg, (struct str){s->held.data, n});
    memmove(s->held.data, s->held.data + n, s->held.size - n);
    s->held.size -= n;
}

int answer_stream_push(struct answer_stream *s, struct str piece, struct error *err)
{
    if (s->stopped || !piece.len)
        return 0;
    text_append(&s->held, piece);
    if (s->held.failed)
        return fail(err, E_MEMORY, "no memory for %zu bytes of an answer", s->held.size + piece.len);
    size_t stop = find_stop(s);
    if (stop < s->held.size) {
        s->stopped = true;
        emit(s, stop);
        return 0;
    }
    emit(s, whole_characters(s->held.data, find_partial_stop(s)));
    return 0;
}

void answer_stream_end(struct answer_stream *s)
{
    if (!s->stopped)
        emit(s, s->held.size);
    s->held.size = 0;
}

void answer_stream_free(struct answer_stream *s)
{
    text_free(&s->held);
}
