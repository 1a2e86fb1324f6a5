// Changes a kernel's text in one random place; see ptx_mutate.h.
#include "tests/ptx_mutate.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { LONGEST = 64 }; // bytes that a change adds, at most

uint64_t mutate_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

size_t mutate_below(uint64_t *state, size_t n)
{
    return (size_t)(mutate_random(state) % n);
}

static bool begins(const char *text, struct mutate_span s, const char *word)
{
    return s.len >= strlen(word) && !memcmp(text + s.at, word, strlen(word));
}

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '%';
}

// ".reg .type %a, %b;"
static void read_registers(const char *text, struct mutate_span line, struct mutate_sites *out)
{
    size_t at = line.at + 5, end = line.at + line.len;
    struct mutate_span type = {at, 0};
    while (at < end && text[at] != ' ')
        at++;
    type.len = at - type.at;
    while (at < end && out->n_registers < MUTATE_REGISTERS) {
        if (text[at] != '%') {
            at++;
            continue;
        }
        struct mutate_span name = {at, 0};
        while (at < end && word_char(text[at]))
            at++;
        name.len = at - name.at;
        if (text[at] == '<')
            continue;
        out->types[out->n_registers] = type;
        out->registers[out->n_registers++] = name;
    }
}

void mutate_find_sites(const char *text, size_t len, struct mutate_sites *out)
{
    out->n_lines = out->n_registers = 0;
    for (size_t at = 0; at < len;) {
        size_t end = at;
        while (end < len && text[end] != '\n')
            end++;
        struct mutate_span line = {at, 0};
        while (line.at < end && text[line.at] == ' ')
            line.at++;
        line.len = end - line.at;
        if (begins(text, line, ".reg "))
            read_registers(text, line, out);
        else if (line.at > at && line.len > 3 && text[end - 1] == ';' && text[line.at] != '.' && text[line.at] != '/' &&
                 out->n_lines < MUTATE_LINES)
            out->lines[out->n_lines++] = line;
        at = end + 1;
    }
}

// Replaces [at, at + len) of a text by a word of less than LONGEST bytes. Returns the new length.
static size_t replace(char *text, size_t size, size_t at, size_t len, const char *word)
{
    size_t n = strlen(word);
    memmove(text + at + n, text + at + len, size - at - len);
    memcpy(text + at, word, n);
    return size - len + n;
}

static bool same_span(const char *text, struct mutate_span a, struct mutate_span b)
{
    return a.len == b.len && !memcmp(text + a.at, text + b.at, a.len);
}

// Replaces a register by another one of the same type.
static size_t change_register(char *text, size_t size, const struct mutate_sites *s, struct mutate_span line,
                              uint64_t *state)
{
    struct mutate_span found[16];
    size_t n = 0;
    for (size_t i = line.at; i < line.at + line.len && n < COUNT_OF(found); i++) {
        if (text[i] != '%' || word_char(text[i - 1]))
            continue;
        found[n].at = i;
        while (word_char(text[i]))
            i++;
        found[n].len = i - found[n].at;
        n++;
    }
    if (!n)
        return 0;
    struct mutate_span old = found[mutate_below(state, n)], type = {0, 0};
    for (size_t i = 0; i < s->n_registers; i++)
        if (same_span(text, s->registers[i], old))
            type = s->types[i];
    size_t pick = mutate_below(state, s->n_registers);
    struct mutate_span with = s->registers[pick];
    if (!type.len || !same_span(text, s->types[pick], type) || same_span(text, with, old))
        return 0;
    char word[LONGEST];
    snprintf(word, sizeof(word), "%.*s", (int)with.len, text + with.at);
    return replace(text, size, old.at, old.len, word);
}

// Changes an integer by 1 up or down; a multiple of `unit`, if there is one, by a whole unit.
static size_t change_number(char *text, size_t size, struct mutate_span line, uint32_t unit, uint64_t *state)
{
    if (begins(text, line, "bar.")) // the number of the barrier has no effect
        return 0;
    struct mutate_span found[16];
    size_t n = 0;
    for (size_t i = line.at + 1; i < line.at + line.len && n < COUNT_OF(found); i++) {
        if (!isdigit((unsigned char)text[i]) || !strchr(" +[-,", text[i - 1]))
            continue;
        size_t start = i;
        while (word_char(text[i]))
            i++;
        bool whole = true;
        for (size_t j = start; j < i; j++)
            whole = whole && isdigit((unsigned char)text[j]);
        if (whole && i - start < 10)
            found[n++] = (struct mutate_span){start, i - start};
    }
    if (!n)
        return 0;
    struct mutate_span old = found[mutate_below(state, n)];
    char word[LONGEST];
    long v = strtol(text + old.at, NULL, 10);
    // A distance of a butterfly that is a power of two plus 1 gives an equally good butterfly; who waits for more copies
    // than it must gets the same.
    bool up = v == 0 || (mutate_random(state) & 1 && !begins(text, line, "shfl.sync.bfly")) ||
              begins(text, line, "cp.async.wait_group");
    long by = unit && v && v % (long)unit == 0 ? (long)unit : 1;
    snprintf(word, sizeof(word), "%ld", up ? v + by : v - by);
    return replace(text, size, old.at, old.len, word);
}

static size_t change_word(char *text, size_t size, struct mutate_span line, const char *const pairs[][2],
                          size_t n_pairs, uint64_t *state)
{
    size_t pick = mutate_below(state, n_pairs);
    const char *from = pairs[pick][0];
    for (size_t i = line.at; i + strlen(from) <= line.at + line.len; i++)
        if (!memcmp(text + i, from, strlen(from)))
            return replace(text, size, i, strlen(from), pairs[pick][1]);
    return 0;
}

size_t mutate(char *text, size_t size, size_t cap, const struct mutate_sites *s, uint32_t unit, uint64_t *state,
              const char **what, size_t *where)
{
    static const char *const comparisons[][2] = {{".lt.", ".le."}, {".le.", ".lt."}, {".ge.", ".gt."},
                                                 {".gt.", ".ge."}, {".eq.", ".ne."}, {".ne.", ".eq."},
                                                 {".lt.", ".ge."}, {".ge.", ".lt."}};
    static const char *const operations[][2] = {{"add.", "sub."}, {"sub.", "add."}, {"min.", "max."}, {"max.", "min."},
                                                {"and.", "or."},  {"or.", "and."},  {"shl.", "shr."}, {"shr.", "shl."}};
    if (size + LONGEST > cap)
        return 0;
    struct mutate_span line = s->lines[mutate_below(state, s->n_lines)];
    size_t kind = mutate_below(state, 20);
    *where = line.at;
    // These have no effect: hints, and conversions that do not change the address.
    if (begins(text, line, "prefetch") || begins(text, line, "cvta") || begins(text, line, "griddepcontrol.launch"))
        return 0;
    if (kind < 7) {
        *what = "register";
        return change_register(text, size, s, line, state);
    }
    if (kind < 12) {
        *what = "number";
        return change_number(text, size, line, unit, state);
    }
    if (kind < 14) {
        *what = "comparison";
        return begins(text, line, "setp") ? change_word(text, size, line, comparisons, COUNT_OF(comparisons), state)
                                          : 0;
    }
    if (kind < 17) {
        *what = "operation";
        return change_word(text, size, line, operations, COUNT_OF(operations), state);
    }
    bool barrier = begins(text, line, "bar.") || begins(text, line, "cp.async.wait");
    *what = kind < 19 ? "barrier" : "instruction";
    return barrier == (kind < 19) ? replace(text, size, line.at, line.len, "") : 0;
}
