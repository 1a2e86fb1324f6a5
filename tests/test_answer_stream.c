// Tests the streaming of an answer: the result does not depend on how the text is divided into pieces, and no text is
// held back without need.
#include "engine/answer_stream.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

struct sink {
    char text[4096];
    size_t n;
    bool whole;    // every part that came, the last excepted, ended with a whole character
    size_t refuse; // beyond so many bytes
};

static int take(void *arg, struct str text)
{
    struct sink *s = arg;
    cr_assert_gt(text.len, 0);
    cr_assert_lt(s->n + text.len, sizeof s->text);
    memcpy(s->text + s->n, text.data, text.len);
    s->n += text.len;
    s->whole = s->whole && utf8_valid(text);
    return s->refuse && s->n > s->refuse;
}

static void push(struct answer_stream *s, const char *text, size_t n)
{
    struct error err;
    cr_assert_eq(answer_stream_push(s, (struct str){text, n}, &err), 0);
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// Where the text ends by definition: letter by letter, until one of the stop strings stands at the end.
static size_t defined_end(const char *text, size_t n, const struct str *stops, int n_stops, bool *stopped)
{
    *stopped = false;
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (int i = 0; i < n_stops; i++)
            if (stops[i].len <= end && !memcmp(text + end - stops[i].len, stops[i].data, stops[i].len))
                longest = MAX(longest, stops[i].len);
        if (longest) {
            *stopped = true;
            return end - longest;
        }
    }
    return n;
}

Test(stream, ends_before_the_first_stop_string_however_the_text_is_cut)
{
    uint64_t state = 7;
    printf("seed 7\n");
    int n_stopped = 0;
    for (int round = 0; round < 20000; round++) {
        char text[60], words[3][6];
        struct str stops[3];
        size_t n = next(&state) % sizeof text;
        int n_stops = (int)(next(&state) % 4);
        for (size_t i = 0; i < n; i++)
            text[i] = (char)('a' + next(&state) % 3);
        for (int i = 0; i < n_stops; i++) {
            stops[i] = (struct str){words[i], 1 + next(&state) % 6};
            for (size_t j = 0; j < stops[i].len; j++)
                words[i][j] = (char)('a' + next(&state) % 3);
        }
        struct sink sink = {.whole = true};
        struct answer_stream s = {.stops = stops, .n_stops = n_stops, .emit = take, .arg = &sink};
        for (size_t at = 0; at < n;) {
            size_t piece = 1 + next(&state) % 7;
            piece = MIN(piece, n - at);
            push(&s, text + at, piece);
            at += piece;
        }
        answer_stream_end(&s);
        bool stopped;
        size_t want = defined_end(text, n, stops, n_stops, &stopped);
        cr_assert_eq(s.stopped, stopped, "round %d", round);
        cr_assert(sink.n == want && !memcmp(sink.text, text, want), "round %d: %.*s: %zu of %zu bytes, wanted %zu",
                  round, (int)n, text, sink.n, n, want);
        n_stopped += stopped;
        answer_stream_free(&s);
    }
    cr_expect_gt(n_stopped, 5000);
}

Test(stream, only_whole_characters_come_out)
{
    static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\xe4\xbd\xa0";
    struct sink sink = {.whole = true};
    struct answer_stream s = {.emit = take, .arg = &sink};
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        push(&s, text + i, 1);
        cr_expect_leq(s.held.size, 3);
    }
    cr_expect(sink.whole);
    cr_expect_eq(s.held.size, 0, "a whole character is not held back");
    answer_stream_end(&s);
    cr_expect(sink.n == sizeof text - 1 && !memcmp(sink.text, text, sink.n));
    answer_stream_free(&s);
}

Test(stream, what_is_no_utf8_passes_unchanged)
{
    uint64_t state = 9;
    for (int round = 0; round < 5000; round++) {
        char text[40];
        size_t n = next(&state) % sizeof text;
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(next(&state) % 4 ? 0x80 + next(&state) % 0x80 : next(&state));
        struct sink sink = {0};
        struct answer_stream s = {.emit = take, .arg = &sink};
        for (size_t i = 0; i < n; i++) {
            push(&s, text + i, 1);
            cr_assert_leq(s.held.size, 3, "round %d", round);
        }
        answer_stream_end(&s);
        cr_assert(sink.n == n && !memcmp(sink.text, text, n), "round %d", round);
        answer_stream_free(&s);
    }
}

Test(stream, what_cannot_become_a_stop_string_comes_at_once)
{
    struct str stops[] = {STR_LIT("</end>"), STR_LIT("\n\n")};
    struct sink sink = {0};
    struct answer_stream s = {.stops = stops, .n_stops = 2, .emit = take, .arg = &sink};
    push(&s, "one <", 5);
    cr_expect_eq(sink.n, 4);
    push(&s, "/en", 3);
    cr_expect_eq(sink.n, 4);
    push(&s, "d ", 2);
    cr_expect_eq(sink.n, 10, "it was none after all");
    push(&s, "x\n", 2);
    cr_expect_eq(sink.n, 11);
    answer_stream_end(&s);
    cr_expect_eq(sink.n, 12, "the end of the answer brings out what was held back");
    answer_stream_free(&s);
}

Test(stream, a_sink_that_refuses_is_not_asked_again)
{
    struct sink sink = {.refuse = 2};
    struct answer_stream s = {.emit = take, .arg = &sink};
    push(&s, "abc", 3);
    cr_expect_eq(s.refused, 1);
    push(&s, "def", 3);
    answer_stream_end(&s);
    cr_expect_eq(sink.n, 3);
    answer_stream_free(&s);
}
