// The text is one contiguous array, and a change moves the bytes behind it. Undo is a list of changes, each with
// copies of the removed and the added bytes; it has no limit until line_buffer_reset. A change after an undo discards
// the changes that could have been redone. Up and down keep the column, counted in cells.
#include "cmd/terminal/line_buffer.h"
#include "cmd/terminal/display.h"
#include "engine/text/unicode.h"

#include <stdlib.h>

struct str line_buffer_text(const struct line_buffer *b)
{
    return (struct str){b->text ? b->text : "", b->len};
}

// --- undo ---

static void change_free(struct line_change *c)
{
    free(c->removed);
    free(c->added);
}

static void forget_changes(struct line_buffer *b, size_t from)
{
    for (size_t i = from; i < b->n_changes; i++)
        change_free(&b->changes[i]);
    b->n_changes = from;
    b->n_done = MIN(b->n_done, from);
}

static char *copy(struct str s)
{
    char *p = malloc(s.len + 1);
    if (p && s.len)
        memcpy(p, s.data, s.len);
    return p;
}

static bool extend_change(struct line_change *c, struct str with)
{
    char *added = realloc(c->added, c->n_added + with.len + 1);
    if (!added)
        return false;
    memcpy(added + c->n_added, with.data, with.len);
    c->added = added;
    c->n_added += with.len;
    return true;
}

static bool remember(struct line_buffer *b, size_t from, size_t to, struct str with)
{
    forget_changes(b, b->n_done);
    if (b->n_changes == b->cap_changes) {
        size_t cap = 2 * b->cap_changes + 16;
        struct line_change *more = realloc(b->changes, cap * sizeof *more);
        if (!more)
            return false;
        b->changes = more;
        b->cap_changes = cap;
    }
    struct line_change c = {from, copy((struct str){b->text + from, to - from}), copy(with), to - from, with.len};
    if (!c.removed || !c.added) {
        change_free(&c);
        return false;
    }
    b->changes[b->n_changes++] = c;
    b->n_done = b->n_changes;
    return true;
}

// --- changes ---

static bool reserve(struct line_buffer *b, size_t len)
{
    if (len < b->cap)
        return true;
    size_t cap;
    if (size_mul(len, 2, &cap) || size_add(cap, 128, &cap))
        return false;
    char *text = realloc(b->text, cap);
    if (!text)
        return false;
    b->text = text;
    b->cap = cap;
    return true;
}

static void splice(struct line_buffer *b, size_t from, size_t to, struct str with)
{
    memmove(b->text + from + with.len, b->text + to, b->len - to);
    if (with.len)
        memcpy(b->text + from, with.data, with.len);
    b->len += with.len - (to - from);
    b->at = from + with.len;
}

bool line_buffer_replace(struct line_buffer *b, size_t from, size_t to, struct str with)
{
    if (from == to && !with.len)
        return true;
    size_t len;
    if (size_add(b->len - (to - from), with.len, &len) || !reserve(b, len) || !remember(b, from, to, with))
        return false;
    splice(b, from, to, with);
    return true;
}

bool line_buffer_go_on(struct line_buffer *b, struct str with)
{
    struct line_change *last = b->n_done ? &b->changes[b->n_done - 1] : NULL;
    if (!last || b->n_done != b->n_changes || last->n_removed || last->at + last->n_added != b->at)
        return line_buffer_replace(b, b->at, b->at, with);
    if (!reserve(b, b->len + with.len) || !extend_change(last, with))
        return false;
    splice(b, b->at, b->at, with);
    return true;
}

bool line_buffer_undo(struct line_buffer *b)
{
    if (!b->n_done)
        return false;
    const struct line_change *c = &b->changes[b->n_done - 1];
    if (!reserve(b, b->len - c->n_added + c->n_removed))
        return false;
    splice(b, c->at, c->at + c->n_added, (struct str){c->removed, c->n_removed});
    b->n_done--;
    return true;
}

bool line_buffer_redo(struct line_buffer *b)
{
    if (b->n_done == b->n_changes)
        return false;
    const struct line_change *c = &b->changes[b->n_done];
    if (!reserve(b, b->len - c->n_removed + c->n_added))
        return false;
    splice(b, c->at, c->at + c->n_removed, (struct str){c->added, c->n_added});
    b->n_done++;
    return true;
}

bool line_buffer_reset(struct line_buffer *b, struct str text)
{
    forget_changes(b, 0);
    b->len = b->at = 0;
    if (!reserve(b, text.len))
        return false;
    splice(b, 0, 0, text);
    return true;
}

void line_buffer_free(struct line_buffer *b)
{
    forget_changes(b, 0);
    free(b->changes);
    free(b->text);
    *b = (struct line_buffer){0};
}

// --- movements ---

size_t line_buffer_left(const struct line_buffer *b)
{
    return b->at ? display_previous(line_buffer_text(b), b->at) : 0;
}

size_t line_buffer_right(const struct line_buffer *b)
{
    return b->at < b->len ? display_next(line_buffer_text(b), b->at, NULL) : b->len;
}

size_t line_buffer_line_start(const struct line_buffer *b)
{
    const char *end = b->at ? memrchr(b->text, '\n', b->at) : NULL;
    return end ? (size_t)(end - b->text) + 1 : 0;
}

size_t line_buffer_line_end(const struct line_buffer *b)
{
    const char *end = b->at < b->len ? memchr(b->text + b->at, '\n', b->len - b->at) : NULL;
    return end ? (size_t)(end - b->text) : b->len;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t';
}

// Whether the character at a position belongs to a word.
static bool is_word(const struct line_buffer *b, size_t at)
{
    unsigned bits = unicode_char_at(b->text + at, b->text + b->len).bits;
    return bits & (UNI_LETTER | UNI_NUMBER | UNI_MARK);
}

static bool is_no_blank(const struct line_buffer *b, size_t at)
{
    return !is_blank(b->text[at]);
}

static size_t left_over(const struct line_buffer *b, bool (*is_part)(const struct line_buffer *, size_t))
{
    size_t at = b->at, before;
    while (at > 0 && !is_part(b, before = display_previous(line_buffer_text(b), at)))
        at = before;
    while (at > 0 && is_part(b, before = display_previous(line_buffer_text(b), at)))
        at = before;
    return at;
}

size_t line_buffer_word_left(const struct line_buffer *b)
{
    return left_over(b, is_word);
}

size_t line_buffer_blank_left(const struct line_buffer *b)
{
    return left_over(b, is_no_blank);
}

size_t line_buffer_word_right(const struct line_buffer *b)
{
    size_t at = b->at;
    while (at < b->len && !is_word(b, at))
        at = display_next(line_buffer_text(b), at, NULL);
    while (at < b->len && is_word(b, at))
        at = display_next(line_buffer_text(b), at, NULL);
    return at;
}

// Moves the cursor into the line that begins at `start`, at most `cells` from its left edge.
static void go_to_column(struct line_buffer *b, size_t start, size_t cells)
{
    b->at = start;
    while (b->at < b->len && b->text[b->at] != '\n') {
        int width;
        size_t next = display_next(line_buffer_text(b), b->at, &width);
        if ((size_t)width > cells)
            break;
        cells -= (size_t)width;
        b->at = next;
    }
}

static size_t column(const struct line_buffer *b)
{
    size_t start = line_buffer_line_start(b);
    return display_text_width((struct str){b->text + start, b->at - start});
}

bool line_buffer_up(struct line_buffer *b)
{
    size_t start = line_buffer_line_start(b);
    if (!start)
        return false;
    size_t cells = column(b);
    b->at = start - 1;
    go_to_column(b, line_buffer_line_start(b), cells);
    return true;
}

bool line_buffer_down(struct line_buffer *b)
{
    size_t end = line_buffer_line_end(b);
    if (end == b->len)
        return false;
    size_t cells = column(b);
    go_to_column(b, end + 1, cells);
    return true;
}
