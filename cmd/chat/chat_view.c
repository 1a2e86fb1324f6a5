// How an answer appears in the chat: reasoning in another style or hidden, the answer's text as it comes, and blanks at
// its beginning left out.
#include "cmd/chat/chat_verb.h"
#include "cmd/terminal/terminal.h"

#include <stdio.h>
#include <unistd.h>

// Writes marks and headings of the view itself. They end with a line, or the line is not broken.
static void write_own(struct chat_view *v, struct str text)
{
    if (!v->error.code)
        terminal_write(text, &v->error);
    if (text.data[text.len - 1] == '\n')
        wrap_begin(&v->wrap, v->wraps);
}

static void write_line_end(struct chat_view *v)
{
    if (v->begun && !v->ended_line)
        write_own(v, STR_LIT("\n"));
    v->ended_line = true;
}

static void begin_thinking(struct chat_view *v)
{
    v->thinking = true;
    v->begun = v->ended_line = false;
    if (v->dims)
        write_own(v, STR_LIT("\033[2m"));
    if (v->hides_thinking || !v->dims)
        write_own(v, v->hides_thinking ? STR_LIT("thinking...") : STR_LIT("thinking:\n"));
    v->begun = v->hides_thinking;
}

static void end_thinking(struct chat_view *v)
{
    if (!v->thinking)
        return;
    v->thinking = false;
    if (v->dims)
        write_own(v, STR_LIT("\033[0m"));
    write_line_end(v);
    write_own(v, STR_LIT("\n"));
    v->begun = false;
}

void chat_view_begin(struct chat_view *v, bool hides_thinking)
{
    v->hides_thinking = hides_thinking;
    v->begun = v->thinking = false;
    v->ended_line = true;
    v->error = (struct error){0};
    wrap_begin(&v->wrap, v->wraps);
}

// Drops white space at the beginning of a part.
static struct str without_blanks(const struct chat_view *v, struct str text)
{
    while (!v->begun && text.len && strchr(" \t\r\n", text.data[0])) {
        text.data++;
        text.len--;
    }
    return text;
}

int chat_view_emit(void *view, enum answer_part part, struct str text)
{
    struct chat_view *v = view;
    bool thinks = part == ANSWER_REASONING;
    if (thinks && !v->terminal)
        return 0;
    if (thinks && !v->thinking)
        begin_thinking(v);
    if (thinks && v->hides_thinking)
        return v->error.code ? -1 : 0;
    if (!thinks)
        end_thinking(v);
    text = without_blanks(v, text);
    if (!text.len)
        return v->error.code ? -1 : 0;
    v->begun = true;
    v->ended_line = text.data[text.len - 1] == '\n';
    if (!v->error.code)
        wrap_write(&v->wrap, text, &v->error);
    return v->error.code ? -1 : 0;
}

void chat_view_end(struct chat_view *v)
{
    end_thinking(v);
    if (!v->begun && !v->terminal)
        write_own(v, STR_LIT("\n")); // an empty answer is still a line
    write_line_end(v);
}
