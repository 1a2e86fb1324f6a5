// Decodes bytes to keys (keys.c) and dispatches each key to the group that handles it: search, movements, kills,
// edits, commands. `last` holds the kind of the previous command, because successive kills are joined and a yank can
// be exchanged only directly after a yank. The kills are a ring of KILLS_MAX texts.
#include "cmd/terminal/line_editor.h"
#include "cmd/terminal/display.h"

#include <stdlib.h>

static struct str view(const struct text *t)
{
    return (struct str){t->data ? t->data : "", t->size};
}

static void set_text(struct text *t, struct str s)
{
    t->size = 0;
    text_append(t, s);
}

// --- kills ---

static struct text *last_kill(struct line_editor *e)
{
    return &e->kills[(e->n_kills + KILLS_MAX - 1 - e->yank_back) % KILLS_MAX];
}

// Kills a range. Successive kills are joined; text killed backwards is put in front.
static void kill_range(struct line_editor *e, size_t from, size_t to, bool backwards)
{
    struct str text = line_buffer_text(&e->buffer), part = {text.data + from, to - from};
    if (from == to)
        return;
    e->yank_back = 0;
    if (e->last != LAST_KILL) {
        e->n_kills++;
        last_kill(e)->size = 0;
    }
    struct text joined = {0}, *kill = last_kill(e);
    text_append(&joined, backwards ? part : view(kill));
    text_append(&joined, backwards ? view(kill) : part);
    text_free(kill);
    *kill = joined;
    line_buffer_replace(&e->buffer, from, to, (struct str){"", 0});
    e->buffer.at = from;
    e->last = LAST_KILL;
}

static void yank(struct line_editor *e)
{
    e->yank_back = 0;
    e->yank_from = e->buffer.at;
    if (e->n_kills && line_buffer_replace(&e->buffer, e->buffer.at, e->buffer.at, view(last_kill(e))))
        e->last = LAST_YANK;
}

static void yank_pop(struct line_editor *e, bool after_yank)
{
    if (!after_yank)
        return;
    e->yank_back = (e->yank_back + 1) % MIN(e->n_kills, (size_t)KILLS_MAX);
    line_buffer_replace(&e->buffer, e->yank_from, e->buffer.at, view(last_kill(e)));
    e->last = LAST_YANK;
}

// --- history ---

static void show_entry(struct line_editor *e, size_t i)
{
    if (e->history_at == e->history->n)
        set_text(&e->draft, line_buffer_text(&e->buffer));
    e->history_at = i;
    line_buffer_reset(&e->buffer, i == e->history->n ? view(&e->draft) : e->history->entries[i]);
}

static void go_up(struct line_editor *e)
{
    if (!line_buffer_up(&e->buffer) && e->history_at > 0)
        show_entry(e, e->history_at - 1);
}

static void go_down(struct line_editor *e)
{
    if (!line_buffer_down(&e->buffer) && e->history_at < e->history->n)
        show_entry(e, e->history_at + 1);
}

// --- typed text ---

// Cleans text before it is inserted: newlines of one kind, tabs, and no other control characters; bytes that are not
// UTF-8 become U+FFFD.
static void clean(struct line_editor *e, struct str in, bool pasted, struct text *out)
{
    for (size_t i = 0; i < in.len;) {
        uint32_t cp;
        int n = utf8_decode(in.data + i, in.len - i, &cp);
        bool after_cr = pasted && e->paste_cr;
        e->paste_cr = n && cp == '\r';
        if (!n)
            text_append(out, STR_LIT("\xef\xbf\xbd"));
        else if (cp == '\r' || (cp == '\n' && !after_cr))
            text_append(out, STR_LIT("\n"));
        else if (cp == '\t' || (cp >= 0x20 && cp != 0x7f && !(cp >= 0x80 && cp < 0xa0)))
            text_append(out, (struct str){in.data + i, (size_t)n});
        i += (size_t)MAX(n, 1);
    }
}

// --- search ---

static void search_begin(struct line_editor *e)
{
    e->searching = true;
    e->search_failed = false;
    e->search_at = e->history->n;
    e->query.size = 0;
    set_text(&e->searched_from, line_buffer_text(&e->buffer));
}

// Goes to the nearest entry that contains the query, starting at `at` in steps of `by`, and displays it in place of
// the text.
static void search_from(struct line_editor *e, size_t at, int by)
{
    struct str query = view(&e->query);
    for (; at < e->history->n; at += (size_t)by) { // stepping below 0 wraps around, and is >= n as well
        struct str entry = e->history->entries[at];
        const char *found = query.len ? memmem(entry.data, entry.len, query.data, query.len) : entry.data;
        if (!found)
            continue;
        size_t place = (size_t)(found - entry.data);
        e->search_at = at;
        e->search_failed = false;
        if (line_buffer_reset(&e->buffer, entry))
            e->buffer.at = place;
        return;
    }
    e->search_failed = true;
}

static void search_again(struct line_editor *e, int by)
{
    if (e->query.size)
        search_from(e, by < 0 && e->search_at == e->history->n ? e->history->n - 1 : e->search_at + (size_t)by, by);
}

// Adds text to the query. It is cleaned as entries were, since otherwise a lone byte would match within a character.
static void search_type(struct line_editor *e, struct str text, bool pasted)
{
    clean(e, text, pasted, &e->query);
    search_from(e, e->search_at == e->history->n ? e->history->n - 1 : e->search_at, -1);
}

static void search_backspace(struct line_editor *e)
{
    if (!e->query.size)
        return;
    e->query.size = display_previous(view(&e->query), e->query.size);
    e->search_failed = false;
    e->search_at = e->history->n;
    if (e->query.size)
        search_from(e, e->history->n - 1, -1);
    else
        line_buffer_reset(&e->buffer, view(&e->searched_from));
}

static void search_accept(struct line_editor *e)
{
    e->searching = false;
    if (e->search_at == e->history->n)
        return;
    set_text(&e->draft, view(&e->searched_from));
    e->history_at = e->search_at;
}

static void search_cancel(struct line_editor *e)
{
    e->searching = false;
    line_buffer_reset(&e->buffer, view(&e->searched_from));
}

// Handles a key of the search. Returns false for any other key, which ends the search and is then handled as usual.
static bool search_key(struct line_editor *e, const struct key *key)
{
    switch (key->code) {
    case KEY_TEXT:
    case KEY_PASTE:
        search_type(e, key->text, key->code == KEY_PASTE);
        return true;
    case KEY_PASTE_END:
        return true;
    case KEY_BACKSPACE:
    case KEY_CTRL('h'):
        search_backspace(e);
        return true;
    case KEY_CTRL('r'):
        search_again(e, -1);
        return true;
    case KEY_CTRL('s'):
        search_again(e, 1);
        return true;
    case KEY_CTRL('g'):
    case KEY_CTRL('c'):
        search_cancel(e);
        return true;
    case KEY_ESCAPE:
        search_accept(e);
        return true;
    }
    search_accept(e);
    return false;
}

// --- completion ---

void completions_add(struct completions *c, struct str word)
{
    char *copy = arena_strdup(&c->arena, word);
    if (c->n == c->cap) {
        size_t cap = 2 * c->cap + 32;
        struct str *more = realloc(c->words, cap * sizeof *more);
        if (!more)
            return;
        c->words = more;
        c->cap = cap;
    }
    if (copy)
        c->words[c->n++] = (struct str){copy, word.len};
}

// The length of the longest common prefix of all words, in whole characters.
static size_t common_length(const struct completions *c)
{
    size_t n = c->words[0].len;
    for (size_t i = 1; i < c->n; i++) {
        size_t same = 0;
        while (same < MIN(n, c->words[i].len) && c->words[i].data[same] == c->words[0].data[same])
            same++;
        n = same;
    }
    while (n && n < c->words[0].len && ((uint8_t)c->words[0].data[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static int compare_words(const void *a, const void *b)
{
    const struct str *x = a, *y = b;
    int order = memcmp(x->data, y->data, MIN(x->len, y->len));
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static void list_words(struct line_editor *e, struct completions *c)
{
    enum { LISTED_MAX = 60 };
    qsort(c->words, c->n, sizeof *c->words, compare_words);
    for (size_t i = 0; i < MIN(c->n, (size_t)LISTED_MAX); i++)
        text_print(&e->message, "%s%.*s", i ? "  " : "", STR_ARG(c->words[i]));
    if (c->n > LISTED_MAX)
        text_print(&e->message, "  and %zu more", c->n - LISTED_MAX);
}

static void complete(struct line_editor *e, bool again)
{
    struct completions c = {.from = e->buffer.at};
    struct str text = line_buffer_text(&e->buffer);
    if (e->complete)
        e->complete(e->complete_arg, (struct str){text.data, e->buffer.at}, &c);
    if (c.n) {
        size_t n = common_length(&c), typed = e->buffer.at - c.from;
        bool whole = c.n == 1 && n && c.words[0].data[n - 1] != '/';
        if (n > typed || whole) {
            line_buffer_replace(&e->buffer, c.from, e->buffer.at, (struct str){c.words[0].data, n});
            if (whole)
                line_buffer_replace(&e->buffer, e->buffer.at, e->buffer.at, STR_LIT(" "));
        } else if (again) {
            list_words(e, &c);
        }
    }
    free(c.words);
    arena_free(&c.arena);
    e->last = LAST_TAB;
}

// --- typing ---

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

// Inserts typed text. Undo removes a word together with the blanks behind it, so a new change begins with each word.
static void type_words(struct line_editor *e, struct str text, bool goes_on)
{
    for (size_t from = 0, to; from < text.len; from = to) {
        to = from + 1;
        while (to < text.len && (is_blank(text.data[to]) || !is_blank(text.data[to - 1])))
            to++;
        struct str word = {text.data + from, to - from};
        bool begins_word = e->buffer.at && is_blank(e->buffer.text[e->buffer.at - 1]) && !is_blank(word.data[0]);
        if (goes_on && !begins_word)
            line_buffer_go_on(&e->buffer, word);
        else
            line_buffer_replace(&e->buffer, e->buffer.at, e->buffer.at, word);
        goes_on = true;
    }
    e->last = LAST_TYPED;
}

static void type(struct line_editor *e, struct str text, bool goes_on)
{
    struct text cleaned = {0};
    clean(e, text, false, &cleaned);
    if (!cleaned.failed)
        type_words(e, view(&cleaned), goes_on);
    text_free(&cleaned);
}

// Inserts pasted text. All pieces of a paste are one change.
static void paste(struct line_editor *e, struct str text)
{
    struct text cleaned = {0};
    clean(e, text, true, &cleaned);
    if (cleaned.failed || !cleaned.size)
        ;
    else if (e->in_paste)
        line_buffer_go_on(&e->buffer, view(&cleaned));
    else
        line_buffer_replace(&e->buffer, e->buffer.at, e->buffer.at, view(&cleaned));
    e->in_paste |= cleaned.size > 0;
    text_free(&cleaned);
}

static void erase(struct line_editor *e, size_t from, size_t to)
{
    line_buffer_replace(&e->buffer, from, to, (struct str){"", 0});
    e->buffer.at = from;
}

// Swaps the characters around the cursor; at the end of a line, the two before it.
static void transpose(struct line_editor *e)
{
    struct line_buffer *b = &e->buffer;
    if (b->at == line_buffer_line_end(b) && b->at > line_buffer_line_start(b))
        b->at = line_buffer_left(b);
    size_t mid = b->at, from = line_buffer_left(b), to = line_buffer_right(b);
    if (mid == line_buffer_line_start(b) || mid == to)
        return;
    struct text swapped = {0};
    text_append(&swapped, (struct str){b->text + mid, to - mid});
    text_append(&swapped, (struct str){b->text + from, mid - from});
    line_buffer_replace(b, from, to, view(&swapped));
    text_free(&swapped);
}

// Whether a text that begins with """ lacks the line that ends with """.
static bool is_open_block(struct str text)
{
    static const char mark[] = "\"\"\"";
    if (text.len < 3 || memcmp(text.data, mark, 3))
        return false;
    while (text.len && (text.data[text.len - 1] == ' ' || text.data[text.len - 1] == '\t'))
        text.len--;
    return text.len < 6 || memcmp(text.data + text.len - 3, mark, 3);
}

static void enter(struct line_editor *e)
{
    if (!is_open_block(line_buffer_text(&e->buffer))) {
        e->buffer.at = e->buffer.len;
        e->event = LINE_DONE;
        return;
    }
    e->buffer.at = e->buffer.len;
    type(e, STR_LIT("\n"), false);
}

static void interrupt(struct line_editor *e)
{
    e->event = e->buffer.len ? LINE_CLEARED : LINE_INTERRUPT;
}

static void delete_or_end(struct line_editor *e)
{
    if (!e->buffer.len)
        e->event = LINE_END;
    else
        erase(e, e->buffer.at, line_buffer_right(&e->buffer));
}

// --- keys ---

static bool move_key(struct line_buffer *b, int code)
{
    switch (code) {
    case KEY_LEFT:
    case KEY_CTRL('b'):
        b->at = line_buffer_left(b);
        return true;
    case KEY_RIGHT:
    case KEY_CTRL('f'):
        b->at = line_buffer_right(b);
        return true;
    case KEY_HOME:
    case KEY_CTRL('a'):
        b->at = line_buffer_line_start(b);
        return true;
    case KEY_END:
    case KEY_CTRL('e'):
        b->at = line_buffer_line_end(b);
        return true;
    case KEY_WORD_LEFT:
    case KEY_ALT + 'b':
        b->at = line_buffer_word_left(b);
        return true;
    case KEY_WORD_RIGHT:
    case KEY_ALT + 'f':
        b->at = line_buffer_word_right(b);
        return true;
    case KEY_ALT + '<':
        b->at = 0;
        return true;
    case KEY_ALT + '>':
        b->at = b->len;
        return true;
    }
    return false;
}

// The end of the line; if the cursor is there already, the position behind its newline.
static size_t kill_end(const struct line_buffer *b)
{
    size_t end = line_buffer_line_end(b);
    return end == b->at && end < b->len ? end + 1 : end;
}

static bool kill_key(struct line_editor *e, int code)
{
    struct line_buffer *b = &e->buffer;
    switch (code) {
    case KEY_CTRL('k'):
        kill_range(e, b->at, kill_end(b), false);
        return true;
    case KEY_CTRL('u'):
        kill_range(e, line_buffer_line_start(b), b->at, true);
        return true;
    case KEY_CTRL('w'):
        kill_range(e, line_buffer_blank_left(b), b->at, true);
        return true;
    case KEY_ALT + KEY_BACKSPACE:
        kill_range(e, line_buffer_word_left(b), b->at, true);
        return true;
    case KEY_WORD_DELETE:
    case KEY_ALT + 'd':
        kill_range(e, b->at, line_buffer_word_right(b), false);
        return true;
    case KEY_CTRL('y'):
        yank(e);
        return true;
    }
    return false;
}

static bool edit_key(struct line_editor *e, const struct key *key, bool after_typed)
{
    struct line_buffer *b = &e->buffer;
    switch (key->code) {
    case KEY_TEXT:
        type(e, key->text, after_typed);
        return true;
    case KEY_PASTE:
        paste(e, key->text);
        return true;
    case KEY_PASTE_END:
        e->paste_cr = e->in_paste = false;
        return true;
    case KEY_NEWLINE:
        type(e, STR_LIT("\n"), after_typed);
        return true;
    case KEY_BACKSPACE:
    case KEY_CTRL('h'):
        erase(e, line_buffer_left(b), b->at);
        return true;
    case KEY_DELETE:
        erase(e, b->at, line_buffer_right(b));
        return true;
    case KEY_CTRL('t'):
        transpose(e);
        return true;
    case KEY_CTRL_UNDERSCORE:
        line_buffer_undo(b);
        return true;
    case KEY_ALT + '_':
        line_buffer_redo(b);
        return true;
    }
    return false;
}

static void command_key(struct line_editor *e, int code)
{
    switch (code) {
    case KEY_ENTER:
        enter(e);
        break;
    case KEY_UP:
    case KEY_CTRL('p'):
        go_up(e);
        break;
    case KEY_DOWN:
    case KEY_CTRL('n'):
        go_down(e);
        break;
    case KEY_CTRL('r'):
        search_begin(e);
        break;
    case KEY_CTRL('c'):
        interrupt(e);
        break;
    case KEY_CTRL('d'):
        delete_or_end(e);
        break;
    case KEY_CTRL('l'):
        e->event = LINE_REFRESH;
        break;
    case KEY_CTRL('z'):
        e->event = LINE_SUSPEND;
        break;
    }
}

static bool take_key(void *arg, const struct key *key)
{
    struct line_editor *e = arg;
    int last = e->last;
    e->last = LAST_OTHER;
    e->message.size = 0;
    if (e->searching && search_key(e, key))
        return false;
    if (last == LAST_KILL)
        e->last = LAST_KILL; // kill_range joins kills by it
    if (kill_key(e, key->code))
        return false;
    e->last = LAST_OTHER;
    if (key->code == '\t')
        complete(e, last == LAST_TAB);
    else if (key->code == (KEY_ALT + 'y'))
        yank_pop(e, last == LAST_YANK);
    else if (!move_key(&e->buffer, key->code) && !edit_key(e, key, last == LAST_TYPED))
        command_key(e, key->code);
    return e->event != LINE_MORE;
}

// --- the editor as a whole ---

void line_editor_start(struct line_editor *e, struct history *history, complete_fn *complete_word, void *arg)
{
    *e = (struct line_editor){.history = history, .complete = complete_word, .complete_arg = arg};
    line_editor_begin(e);
}

void line_editor_free(struct line_editor *e)
{
    line_buffer_free(&e->buffer);
    struct text *const texts[] = {&e->draft, &e->query, &e->searched_from, &e->message};
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        text_free(texts[i]);
    for (size_t i = 0; i < KILLS_MAX; i++)
        text_free(&e->kills[i]);
}

void line_editor_begin(struct line_editor *e)
{
    line_buffer_reset(&e->buffer, (struct str){"", 0});
    e->history_at = e->history->n;
    e->searching = false;
    e->last = LAST_OTHER;
    e->draft.size = e->message.size = 0;
}

size_t line_editor_push(struct line_editor *e, struct str bytes, enum line_event *event)
{
    e->event = LINE_MORE;
    size_t n = keys_push(&e->keys, bytes, take_key, e);
    *event = e->event;
    return n;
}

void line_editor_flush(struct line_editor *e, enum line_event *event)
{
    e->event = LINE_MORE;
    keys_flush(&e->keys, take_key, e);
    *event = e->event;
}

void line_editor_end_paste(struct line_editor *e)
{
    e->event = LINE_MORE;
    keys_end_paste(&e->keys, take_key, e);
}

struct line_look line_editor_look(struct line_editor *e)
{
    if (e->searching) {
        e->message.size = 0;
        text_print(&e->message, "%s %.*s",
                   e->search_failed ? "search, not found:" : "search:", STR_ARG(view(&e->query)));
    }
    return (struct line_look){line_buffer_text(&e->buffer), e->buffer.at, view(&e->message)};
}

struct str line_editor_text(const struct line_editor *e)
{
    return line_buffer_text(&e->buffer);
}
