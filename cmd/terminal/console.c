// With the editor, one poll waits for bytes on stdin and for the wake descriptor, which signals make readable. The
// wait ends after 50 ms while an ESC may be the beginning of a key. The line is drawn only when no more bytes are
// waiting, so that a paste is drawn once. A paste whose end does not come would take all that is typed from then on: Ctrl-C
// ends it if it is the first byte after a pause, which no byte of what is pasted can be as long as the paste flows. Without the editor, input is split at newlines.
#include "cmd/terminal/console.h"
#include "cmd/input.h"
#include "cmd/terminal/terminal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

enum { ESCAPE_MS = 50, PASTE_PAUSE_MS = 500, READ_SIZE = 1 << 16 };

static void open_history(struct console *c)
{
    struct error err;
    char *path = history_state_path("history");
    if (history_open(&c->history, path, &err)) {
        terminal_note("quern: note: %s; what is typed is remembered until the end only", err.text);
        history_close(&c->history);
    }
    free(path);
}

void console_open(struct console *c, complete_fn *complete, void *arg)
{
    *c = (struct console){.typed = terminal_is_tty(STDIN_FILENO)};
    c->out = terminal_is_tty(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO;
    c->edited = c->typed && terminal_obeys_escapes() && terminal_is_tty(c->out) && terminal_wake_fd() >= 0;
    c->colours = terminal_has_colours();
    c->view.colours = c->colours;
    if (c->edited)
        open_history(c);
    line_editor_start(&c->editor, &c->history, complete, arg);
}

void console_close(struct console *c)
{
    terminal_set_mode(MODE_COOKED);
    line_editor_free(&c->editor);
    line_view_free(&c->view);
    history_close(&c->history);
    text_free(&c->input);
}

void console_remember(struct console *c, struct str line)
{
    struct error err;
    if (c->edited && history_add(&c->history, line, &err))
        terminal_note("quern: note: %s", err.text);
}

// --- bytes ---

static bool has_input(const struct console *c)
{
    return c->used < c->input.size;
}

// Reads available bytes. Returns 0 at the end of the input.
static ssize_t read_more(struct console *c, struct error *err)
{
    char bytes[READ_SIZE];
    c->input.size = has_input(c) ? c->input.size : 0;
    if (!c->input.size)
        c->used = 0;
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR)
        return -1;
    if (n < 0 && errno == EIO && c->typed) // the terminal is gone
        return 0;
    if (n < 0)
        return fail(err, E_IO, "stdin: %s", strerror(errno));
    text_append(&c->input, (struct str){bytes, (size_t)n});
    if (c->input.failed)
        return fail(err, E_MEMORY, "no memory for what was typed");
    return n;
}

// --- with the editor ---

static void flush(struct console *c)
{
    terminal_write_fd(c->out, (struct str){c->view.out.data, c->view.out.size});
    c->view.out.size = 0;
}

static void draw(struct console *c)
{
    line_view_draw(&c->view, line_editor_look(&c->editor));
    flush(c);
}

static void begin_editing(struct console *c, const char *prompt)
{
    int cols, rows;
    terminal_set_mode(MODE_EDITING);
    terminal_size(c->out, &cols, &rows);
    line_view_begin(&c->view, cols, rows, prompt);
    text_append(&c->view.out, STR_LIT("\033[?2004h"));
}

static void end_editing(struct console *c)
{
    line_view_end(&c->view, line_editor_look(&c->editor));
    text_append(&c->view.out, STR_LIT("\033[?2004l"));
    flush(c);
    terminal_set_mode(MODE_ANSWERING);
}

static void resize(struct console *c)
{
    int cols, rows;
    atomic_store(&terminal_resized, false);
    terminal_size(c->out, &cols, &rows);
    line_view_resize(&c->view, cols, rows, line_editor_look(&c->editor));
    flush(c);
}

static void suspend(struct console *c, const char *prompt)
{
    end_editing(c);
    terminal_set_mode(MODE_COOKED);
    terminal_suspend();
    begin_editing(c, prompt);
    draw(c);
}

// Waits for bytes, for a signal, or until a lone ESC is decided. Returns whether there are bytes to read.
static bool wait_for_key(struct console *c, enum line_event *event)
{
    struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {terminal_wake_fd(), POLLIN, 0}};
    const struct keys *keys = &c->editor.keys;
    int n = poll(fds, 2, keys_is_waiting(keys) ? ESCAPE_MS : keys->pasting && !c->paused ? PASTE_PAUSE_MS : -1);
    if (n == 0) {
        c->paused = keys->pasting;
        line_editor_flush(&c->editor, event);
    }
    if (n > 0 && fds[1].revents)
        terminal_wake_clear();
    if (atomic_load(&terminal_resized))
        resize(c);
    if (atomic_exchange(&terminal_interrupted, false)) // sent by kill(1): Ctrl-C itself is a key in this mode
        *event = c->editor.buffer.len ? LINE_CLEARED : LINE_INTERRUPT;
    return n > 0 && fds[0].revents;
}

// Whether more bytes are waiting than were read; if so, drawing is postponed.
static bool more_is_there(const struct console *c)
{
    struct pollfd fd = {STDIN_FILENO, POLLIN, 0};
    return c->editor.keys.pasting || poll(&fd, 1, 0) > 0;
}

// Reads bytes for the editor: those typed before its mode was set have a newline for Enter, and the first one after a pause
// may be the Ctrl-C that ends a paste.
static ssize_t read_keys(struct console *c, struct error *err)
{
    const size_t more = terminal_typed_before();
    c->typed_before = more ? more : c->typed_before;
    const ssize_t n = read_more(c, err);
    if (n <= 0)
        return n;
    char *bytes = c->input.data + c->input.size - n;
    const size_t before = MIN(c->typed_before, (size_t)n);
    for (size_t i = 0; i < before; i++)
        bytes[i] = bytes[i] == '\n' ? '\r' : bytes[i];
    c->typed_before -= before;
    if (c->paused && bytes[0] == KEY_CTRL('c'))
        line_editor_end_paste(&c->editor);
    c->paused = false;
    return n;
}

// Feeds the bytes that were read to the editor until an event comes.
static void feed(struct console *c, enum line_event *event)
{
    struct str bytes = {c->input.data + c->used, c->input.size - c->used};
    c->used += line_editor_push(&c->editor, bytes, event);
}

static int next_event(struct console *c, enum line_event *event, struct error *err)
{
    *event = LINE_MORE;
    bool drawn = false;
    while (*event == LINE_MORE) {
        if (atomic_load(&terminal_terminated))
            return fail(err, E_INTERRUPTED, "terminated");
        if (has_input(c)) {
            feed(c, event);
            drawn = false;
            continue;
        }
        if (!drawn && !more_is_there(c))
            draw(c);
        drawn = true;
        *err = (struct error){0};
        if (wait_for_key(c, event)) {
            ssize_t n = read_keys(c, err);
            if (n < 0 && err->code)
                return -1;
            if (n == 0)
                *event = LINE_END;
        } else {
            drawn = false;
        }
    }
    return 0;
}

static int edit(struct console *c, const char *prompt, enum console_event *event, struct error *err)
{
    static const enum console_event events[] = {[LINE_DONE] = CONSOLE_LINE,
                                                [LINE_CLEARED] = CONSOLE_CLEARED,
                                                [LINE_INTERRUPT] = CONSOLE_INTERRUPT,
                                                [LINE_END] = CONSOLE_END};
    enum line_event what = LINE_MORE;
    line_editor_begin(&c->editor);
    begin_editing(c, prompt);
    int status;
    while (!(status = next_event(c, &what, err))) {
        if (what == LINE_SUSPEND)
            suspend(c, prompt);
        else if (what == LINE_REFRESH)
            line_view_refresh(&c->view, line_editor_look(&c->editor));
        else
            break;
    }
    end_editing(c);
    *event = status ? CONSOLE_END : events[what];
    return status;
}

// --- without the editor ---

// Whether a signal has asked for the end. It may have come while bytes were there to read, and then no call has failed by it.
static bool is_stopped(const struct console *c)
{
    return atomic_load(&terminal_terminated) || (!c->typed && atomic_load(&terminal_interrupted));
}

// Appends the next line without its newline to `line`. *there is false at the end of the input.
static int read_line(struct console *c, struct text *line, bool *there, struct error *err)
{
    size_t before = line->size;
    *there = true;
    for (;;) {
        struct str rest = {c->used ? c->input.data + c->used : c->input.data, c->input.size - c->used};
        const char *end = rest.len ? memchr(rest.data, '\n', rest.len) : NULL;
        size_t n = end ? (size_t)(end - rest.data) : rest.len;
        if (n)
            text_append(line, (struct str){rest.data, n});
        c->used += n + (end != NULL);
        if (line->failed)
            return fail(err, E_MEMORY, "no memory for a line");
        if (line->size > input_limit(INPUT_MESSAGE))
            return input_too_long("stdin", INPUT_MESSAGE, err);
        if (end)
            return 0;
        if (is_stopped(c))
            return fail(err, E_INTERRUPTED, "interrupted");
        *err = (struct error){0};
        ssize_t got = read_more(c, err);
        if (got < 0)
            return err->code ? -1 : fail(err, E_INTERRUPTED, "interrupted");
        if (got == 0) {
            *there = line->size > before;
            return 0;
        }
    }
}

static bool starts_block(struct str text)
{
    return text.len >= 3 && !memcmp(text.data, "\"\"\"", 3);
}

static bool ends_block(struct str text)
{
    while (text.len && (text.data[text.len - 1] == ' ' || text.data[text.len - 1] == '\r'))
        text.len--;
    return text.len >= 6 && !memcmp(text.data + text.len - 3, "\"\"\"", 3);
}

static bool is_open(const struct text *line)
{
    struct str text = {line->data, line->size};
    return starts_block(text) && !ends_block(text);
}

static int read_plain(struct console *c, const char *prompt, struct text *line, enum console_event *event,
                      struct error *err)
{
    bool there, more = true;
    if (c->typed)
        terminal_write_fd(c->out, str_from(prompt));
    int status = read_line(c, line, &there, err);
    while (!status && there && more && is_open(line)) {
        text_append(line, STR_LIT("\n"));
        status = read_line(c, line, &more, err);
    }
    // after Ctrl-C the system has discarded the line
    if (status && err->code == E_INTERRUPTED && c->typed && !atomic_load(&terminal_terminated)) {
        atomic_store(&terminal_interrupted, false);
        terminal_write_fd(c->out, STR_LIT("\n"));
        *event = CONSOLE_INTERRUPT;
        return 0;
    }
    if (!status && line->size && line->data[line->size - 1] == '\r')
        line->size--;
    *event = there ? CONSOLE_LINE : CONSOLE_END;
    return status;
}

// Removes the quotes of a block, with one newline after the first and one before the last.
static void unquote(struct text *line)
{
    struct str text = {line->data, line->size};
    if (!starts_block(text))
        return;
    size_t from = 3 + (text.len > 3 && text.data[3] == '\n');
    size_t to = text.len;
    if (ends_block(text)) {
        while (text.data[to - 1] != '"')
            to--;
        to -= 3;
        to -= to > from && text.data[to - 1] == '\n';
    }
    memmove(line->data, line->data + from, to - from);
    line->size = to - from;
}

int console_read(struct console *c, const char *prompt, struct text *line, enum console_event *event, struct error *err)
{
    line->size = 0;
    int status = c->edited ? edit(c, prompt, event, err) : read_plain(c, prompt, line, event, err);
    if (status)
        return status;
    if (c->edited)
        text_append(line, line_editor_text(&c->editor));
    if (*event == CONSOLE_LINE)
        unquote(line);
    return line->failed ? fail(err, E_MEMORY, "no memory for a line") : 0;
}
