// Fuzz target: any bytes as what is typed. The text stays UTF-8, the cursor between characters, the screen sane, and
// what goes to the terminal holds no sequence but the editor's own.
// The first byte sizes the terminal, and where to cut the rest into pieces. Built as .ci/run does.
// With -DFUZZ_SEEDS it is a program that writes a few inputs into the directory that it is given, to start from.
#include "cmd/terminal/display.h"
#include "cmd/terminal/line_view.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_editor: %s\n", what);
    abort();
}

static void complete(void *arg, struct str before, struct completions *out)
{
    (void)arg;
    (void)before;
    completions_add(out, STR_LIT("word"));
    completions_add(out, STR_LIT("w\xc3\xb6rter"));
}

// Only CSI with a final of the editor's, CR LF, and text that a terminal shows.
static void check_output(struct str out)
{
    for (size_t i = 0; i < out.len;) {
        uint32_t cp;
        int n = utf8_decode(out.data + i, out.len - i, &cp);
        check(n > 0, "output that is no UTF-8");
        if (cp == 0x1b) {
            check(i + 2 < out.len && out.data[i + 1] == '[', "a lone ESC");
            for (i += 2; i < out.len && (out.data[i] < '@' || out.data[i] > '~'); i++)
                check(strchr("0123456789;", out.data[i]), "an odd parameter");
            check(i < out.len && strchr("ABCKJHm", out.data[i]), "an odd sequence");
            i++;
            continue;
        }
        check(cp == '\r' || cp == '\n' || utf8_printable(cp), "a control character");
        i += (size_t)n;
    }
}

static void check_state(struct line_editor *e)
{
    struct str text = line_editor_text(e);
    check(utf8_valid(text), "a text that is no UTF-8");
    check(e->buffer.at <= text.len, "the cursor behind the text");
    check(e->buffer.at == text.len || ((uint8_t)text.data[e->buffer.at] & 0xc0) != 0x80, "the cursor in a character");
}

static void draw(struct line_editor *e, struct line_view *v)
{
    line_view_draw(v, line_editor_look(e));
    check(v->cursor_row >= 0 && v->cursor_row < v->rows && v->cursor_col < v->cols, "the cursor off the screen");
    check_output((struct str){v->out.data ? v->out.data : "", v->out.size});
    v->out.size = 0;
}

static void new_line(struct line_editor *e, struct line_view *v, enum line_event event)
{
    struct error err;
    if (event == LINE_DONE)
        history_add(e->history, line_editor_text(e), &err);
    if (event == LINE_REFRESH) {
        line_view_refresh(v, line_editor_look(e));
        return;
    }
    line_view_end(v, line_editor_look(e));
    line_editor_begin(e);
    line_view_begin(v, v->cols, v->rows, "> ");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct history history = {0};
    struct line_editor e;
    struct line_view v = {0};
    uint8_t shape = size ? data[0] : 0;
    size_t piece = 1 + shape % 37;
    line_editor_start(&e, &history, complete, NULL);
    line_view_begin(&v, 4 + shape % 41, 2 + shape % 7, "> ");
    for (size_t at = 1; at < size;) {
        enum line_event event;
        size_t n = MIN(piece, size - at);
        at += line_editor_push(&e, (struct str){(const char *)data + at, n}, &event);
        check_state(&e);
        draw(&e, &v);
        if (event != LINE_MORE)
            new_line(&e, &v, event);
        if (shape & 64 && keys_is_waiting(&e.keys)) {
            line_editor_flush(&e, &event);
            if (event != LINE_MORE)
                new_line(&e, &v, event);
        }
        if (shape & 128)
            line_view_resize(&v, 4 + (int)(at * 7 % 60), 2 + (int)(at % 9), line_editor_look(&e));
    }
    draw(&e, &v);
    line_editor_free(&e);
    line_view_free(&v);
    history_close(&history);
    return 0;
}

#ifdef FUZZ_SEEDS
int main(int argc, char **argv)
{
    static const char *const seeds[] = {
        "\001hello\rworld\033[A\033[D\177\r",
        "\100\033[200~pasted\r\ntext\033[201~\001\013\031\031\033y",
        "\345\xe6\xbc\xa2\xe5\xad\x97 e\xcc\x81 \xf0\x9f\x98\x80\002\002\033[3~\037\033_",
        "\052one\rtwo\r\022o\022\033\t\t\"\"\"x\ry\"\"\"\r\004",
    };
    for (size_t i = 0; argc > 1 && i < COUNT_OF(seeds); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed%zu", argv[1], i);
        FILE *f = fopen(path, "wb");
        check(f && fwrite(seeds[i], 1, strlen(seeds[i]), f) == strlen(seeds[i]) && fclose(f) == 0, "no seed");
    }
    return 0;
}
#endif
