// Tests the line editor without a terminal: keys go in; the text and a simulated small screen are compared.
#include "cmd/terminal/line_view.h"
#include "cmd/terminal/console.h"
#include "cmd/terminal/display.h"
#include "cmd/terminal/terminal.h"
#include "tests/screen.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct desk {
    struct line_editor editor;
    struct line_view view;
    struct screen *screen;
    struct history history;
    enum line_event event;
};

static void complete_fruit(void *arg, struct str before, struct completions *out)
{
    static const char *const fruit[] = {"apple", "apricot", "banana", "dir/"};
    (void)arg;
    while (out->from > 0 && before.data[out->from - 1] != ' ')
        out->from--;
    struct str word = {before.data + out->from, before.len - out->from};
    for (size_t i = 0; i < COUNT_OF(fruit); i++)
        if (!strncmp(fruit[i], word.data, word.len))
            completions_add(out, str_from(fruit[i]));
}

static void show(struct desk *d)
{
    screen_write(d->screen, d->view.out.data, d->view.out.size);
    d->view.out.size = 0;
}

static struct desk *sit_down(int cols, int rows)
{
    struct desk *d = calloc(1, sizeof *d);
    d->screen = calloc(1, sizeof *d->screen);
    screen_start(d->screen, cols, rows);
    line_editor_start(&d->editor, &d->history, complete_fruit, NULL);
    line_view_begin(&d->view, cols, rows, "> ");
    line_view_draw(&d->view, line_editor_look(&d->editor));
    show(d);
    return d;
}

static void get_up(struct desk *d)
{
    cr_expect_eq(d->screen->n_strange, 0, "%d sequences that no terminal should see", d->screen->n_strange);
    line_editor_free(&d->editor);
    line_view_free(&d->view);
    history_close(&d->history);
    free(d->screen);
    free(d);
}

static size_t type_bytes(struct desk *d, const char *bytes, size_t n)
{
    size_t used = line_editor_push(&d->editor, (struct str){bytes, n}, &d->event);
    line_view_draw(&d->view, line_editor_look(&d->editor));
    show(d);
    return used;
}

static void type(struct desk *d, const char *keys)
{
    type_bytes(d, keys, strlen(keys));
}

static void next_line(struct desk *d)
{
    struct error err;
    cr_assert_eq(history_add(&d->history, line_editor_text(&d->editor), &err), 0);
    line_view_end(&d->view, line_editor_look(&d->editor));
    show(d);
    line_editor_begin(&d->editor);
    line_view_begin(&d->view, d->screen->cols, d->screen->rows, "> ");
    line_view_draw(&d->view, line_editor_look(&d->editor));
    show(d);
}

static void expect_text(struct desk *d, const char *text, size_t at)
{
    struct str is = line_editor_text(&d->editor);
    cr_expect(str_equal_z(is, text), "[%.*s], not [%s]", STR_ARG(is), text);
    cr_expect_eq(d->editor.buffer.at, at, "cursor at %zu, not %zu, in [%s]", d->editor.buffer.at, at, text);
}

static void expect_screen(struct desk *d, const char *text, int row, int col)
{
    cr_expect_str_eq(screen_text(d->screen), text);
    cr_expect(d->screen->row == row && d->screen->col == col, "cursor at %d, %d, not %d, %d", d->screen->row,
              d->screen->col, row, col);
}

static char folder[] = "/tmp/quern-editor-XXXXXX";

static void set_up(void)
{
    cr_assert(mkdtemp(folder));
}

static void tear_down(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(line_editor, .init = set_up, .fini = tear_down, .timeout = 60);

// --- keys ---

// Keys, what they make of a text, where the cursor is then.
static const struct {
    const char *what, *keys, *text;
    size_t at;
} edits[] = {
    {"typed", "hello", "hello", 5},
    {"Ctrl-A, Ctrl-E", "bc\001a\005d", "abcd", 4},
    {"Home and End of xterm", "bc\033[Ha\033[Fd", "abcd", 4},
    {"Home and End of the console", "bc\033[1~a\033[4~d", "abcd", 4},
    {"Home and End in application mode", "bc\033OHa\033OFd", "abcd", 4},
    {"left and right", "ac\033[Db\033[Cd", "abcd", 4},
    {"Ctrl-B and Ctrl-F", "ac\002b\006d", "abcd", 4},
    {"backspace", "abx\177c", "abc", 3},
    {"Ctrl-H", "abx\010c", "abc", 3},
    {"delete", "axb\002\002\033[3~", "ab", 1},
    {"Ctrl-D within a text", "axb\002\002\004", "ab", 1},
    {"word left with Alt-b", "one two\033bX", "one Xtwo", 5},
    {"word left with Ctrl-left", "one two\033[1;5DX", "one Xtwo", 5},
    {"word left with Alt-left", "one two\033[1;3DX", "one Xtwo", 5},
    {"word right", "one two\001\033fX", "oneX two", 4},
    {"words of letters stop at points", "a.b c\033b\033bX", "a.Xb c", 3},
    {"Ctrl-W goes to blanks", "see a.b\027X", "see X", 5},
    {"Alt-backspace goes to points", "see a.b\033\177X", "see a.X", 7},
    {"Alt-d", "one two\001\033d", " two", 0},
    {"Ctrl-K", "one two\001\033f\013", "one", 3},
    {"Ctrl-U", "one two\002\002\002\025", "two", 0},
    {"yank", "one two\027\001\031", "twoone ", 3},
    {"kills in a row are one", "a b c\027\027\001\031", "b ca ", 3},
    {"kills apart are two", "a b c\027 \177\027\031", "a b ", 4},
    {"yank of the one before", "a b c\027 \177\027\031\033y", "a c", 3},
    {"transpose at the end", "ab\024", "ba", 2},
    {"transpose within", "abc\002\024", "acb", 3},
    {"undo of a word", "one two\037", "one ", 4},
    {"undo of all", "one two\037\037", "", 0},
    {"undo and redo", "one two\037\033_", "one two", 7},
    {"undo of a kill", "one two\025\037", "one two", 7},
    {"undo after undo goes further", "a b c\037\037", "a ", 2},
    {"Ctrl-J begins a line", "a\nb", "a\nb", 3},
    {"Alt-Enter begins a line", "a\033\rb", "a\nb", 3},
    {"Shift-Enter where the terminal tells", "a\033[13;2ub", "a\nb", 3},
    {"Shift-Enter of xterm", "a\033[27;2;13~b", "a\nb", 3},
    {"up and down within a text", "abc\nd\033[Ax\033[By", "axbc\ndy", 7},
    {"up keeps the column", "abc\ndef\002\033[AX", "abXc\ndef", 3},
    {"Alt-< and Alt->", "b\nc\033<a\033>d", "ab\ncd", 5},
    {"Ctrl-K takes a line's end where it is", "a\nb\033<\006\013", "ab", 1},
    {"F keys and what nobody knows is no text", "a\033[15~\033[[A\033OP\033[1;2;3;4z\033[?1;2cb", "ab", 2},
    {"an endless sequence is no text", "a\033[11111111111111111111111111111111111111111111111111111111111111111111~b",
     "ab", 2},
    {"a control within a sequence ends it", "a\033[1\001b", "ba", 1},
    {"Alt with a letter of another script", "a\033\303\251", "a\303\251", 3},
    {"focus reports", "a\033[I\033[Ob", "ab", 2},
    {"tab completes what is common", "ap\t", "ap", 2},
    {"tab completes one", "app\t", "apple ", 6},
    {"tab leaves a folder open", "d\t", "dir/", 4},
    {"tab within a text", "x ban y\002\002\t!", "x banana ! y", 10},
};

Test(line_editor, keys_do_what_they_do_in_emacs)
{
    for (size_t i = 0; i < COUNT_OF(edits); i++) {
        struct desk *d = sit_down(40, 10);
        type(d, edits[i].keys);
        cr_expect(str_equal_z(line_editor_text(&d->editor), edits[i].text) && d->editor.buffer.at == edits[i].at,
                  "%s: [%.*s] at %zu, not [%s] at %zu", edits[i].what, STR_ARG(line_editor_text(&d->editor)),
                  d->editor.buffer.at, edits[i].text, edits[i].at);
        get_up(d);
    }
}

Test(line_editor, keys_are_the_same_byte_by_byte)
{
    for (size_t i = 0; i < COUNT_OF(edits); i++) {
        struct desk *d = sit_down(40, 10);
        for (const char *key = edits[i].keys; *key; key++)
            type_bytes(d, key, 1);
        cr_expect(str_equal_z(line_editor_text(&d->editor), edits[i].text) && d->editor.buffer.at == edits[i].at,
                  "%s: [%.*s]", edits[i].what, STR_ARG(line_editor_text(&d->editor)));
        get_up(d);
    }
}

Test(line_editor, enter_ends_a_line_and_leaves_what_was_typed_ahead)
{
    struct desk *d = sit_down(40, 10);
    const char *keys = "one\rtwo\r";
    size_t used = type_bytes(d, keys, strlen(keys));
    cr_expect_eq(d->event, LINE_DONE);
    cr_expect_eq(used, 4u);
    expect_text(d, "one", 3);
    next_line(d);
    used = type_bytes(d, keys + used, strlen(keys) - used);
    cr_expect_eq(d->event, LINE_DONE);
    expect_text(d, "two", 3);
    get_up(d);
}

Test(line_editor, control_keys_end_a_line)
{
    static const struct {
        const char *keys;
        enum line_event event;
    } cases[] = {{"\003", LINE_INTERRUPT}, {"a\003", LINE_CLEARED}, {"\004", LINE_END},
                 {"a\004", LINE_MORE},     {"a\032", LINE_SUSPEND}, {"a\014", LINE_REFRESH}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct desk *d = sit_down(40, 10);
        type(d, cases[i].keys);
        cr_expect_eq(d->event, cases[i].event, "%zu", i);
        get_up(d);
    }
}

Test(line_editor, a_lone_escape_is_decided_when_nothing_follows)
{
    struct desk *d = sit_down(40, 10);
    type(d, "a\033");
    cr_expect(keys_is_waiting(&d->editor.keys));
    line_editor_flush(&d->editor, &d->event);
    type(d, "[C");
    expect_text(d, "a[C", 3);
    get_up(d);
}

Test(line_editor, three_quotes_hold_many_lines)
{
    struct desk *d = sit_down(40, 10);
    type(d, "\"\"\"one\rtwo\r");
    cr_expect_eq(d->event, LINE_MORE);
    type(d, "three\"\"\"\r");
    cr_expect_eq(d->event, LINE_DONE);
    expect_text(d, "\"\"\"one\ntwo\nthree\"\"\"", 19);
    get_up(d);
}

// --- characters ---

Test(line_editor, characters_are_edited_whole)
{
    static const struct {
        const char *what, *character;
        int cells;
    } cases[] = {
        {"wide", "漢", 2},
        {"two bytes", "é", 1},
        {"letter and accent", "e\u0301", 1},
        {"letter and many accents", "a\u0301\u0302\u0303\u0304", 1},
        {"emoji", "😀", 2},
        {"heart with its selector", "\u2764\ufe0f", 1},
        {"family", "👨\u200d👩\u200d👧", 6},
        {"flag", "🇩🇪", 2},
        {"thumb with a tone", "👍🏽", 4},
        {"Hangul", "한", 2},
        {"Hangul of parts", "\u1112\u1161\u11ab", 2},
        {"Devanagari with a vowel", "\u0915\u093f", 2},
        {"fullwidth", "Ａ", 2},
        {"halfwidth", "ｱ", 1},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct desk *d = sit_down(40, 10);
        char keys[100];
        snprintf(keys, sizeof keys, "a%sb\002\002", cases[i].character);
        type(d, keys);
        cr_expect_eq(d->editor.buffer.at, 1u, "%s: one step left is one character", cases[i].what);
        int width;
        display_next(line_editor_text(&d->editor), 1, &width);
        cr_expect_eq(width, cases[i].cells, "%s: %d cells", cases[i].what, width);
        type(d, "\033[3~");
        cr_expect(str_equal_z(line_editor_text(&d->editor), "ab"), "%s: deleted", cases[i].what);
        type(d, "\037\177");
        expect_text(d, "ab", 1);
        get_up(d);
    }
}

Test(line_editor, two_flags_are_two_characters)
{
    struct desk *d = sit_down(40, 10);
    type(d, "🇩🇪🇫🇷\177");
    expect_text(d, "🇩🇪", 8);
    get_up(d);
}

Test(line_editor, wide_characters_stand_where_they_belong)
{
    struct desk *d = sit_down(12, 5);
    type(d, "漢字漢字x");
    expect_screen(d, "> 漢字漢字x", 0, 11);
    type(d, "\177字"); // would need the last column
    expect_screen(d, "> 漢字漢字\n  字", 1, 4);
    type(d, "\001\033[C");
    expect_screen(d, "> 漢字漢字\n  字", 0, 4);
    type(d, "\033[3~");
    expect_screen(d, "> 漢漢字字", 0, 4);
    type(d, "e\u0301");
    expect_screen(d, "> 漢e\u0301漢字字", 0, 5);
    get_up(d);
}

Test(line_editor, bytes_that_are_no_text_become_a_sign)
{
    struct desk *d = sit_down(40, 10);
    type(d, "a\377b\300\200\001");
    expect_screen(d, "> a\ufffdb\ufffd\ufffd", 0, 2);
    get_up(d);
}

Test(line_editor, what_a_terminal_would_obey_is_not_sent_to_it)
{
    struct desk *d = sit_down(60, 10);
    type(d, "\033[200~a\033]0;title\007b\033[31mc\u202ed\302\233e\033[201~");
    cr_expect_eq(d->screen->n_strange, 0);
    cr_expect_str_eq(screen_text(d->screen), "> a]0;titleb[31mc\ufffdde");
    get_up(d);
}

// --- rows ---

Test(line_editor, long_lines_wrap_and_the_cursor_follows)
{
    struct desk *d = sit_down(20, 8);
    for (int i = 0; i < 40; i++)
        type(d, (char[]){(char)('a' + i % 26), 0});
    expect_screen(d, "> abcdefghijklmnopq\n  rstuvwxyzabcdefgh\n  ijklmn", 2, 8);
    type(d, "\001");
    cr_expect(d->screen->row == 0 && d->screen->col == 2);
    type(d, "X");
    expect_screen(d, "> Xabcdefghijklmnop\n  qrstuvwxyzabcdefg\n  hijklmn", 0, 3);
    type(d, "\013");
    expect_screen(d, "> X", 0, 3);
    get_up(d);
}

Test(line_editor, many_lines_at_the_bottom_scroll_what_is_above_and_no_more)
{
    struct desk *d = sit_down(20, 5);
    screen_write(d->screen, "\r", 1);
    for (int i = 0; i < 4; i++)
        screen_write(d->screen, "above\r\n", 7);
    line_view_begin(&d->view, 20, 5, "> ");
    type(d, "a\nb\nc");
    expect_screen(d, "above\nabove\n> a\n| b\n| c", 4, 3);
    type(d, "\033<X\033>\177\177\177\177");
    expect_screen(d, "above\nabove\n> Xa", 2, 4);
    get_up(d);
}

Test(line_editor, a_text_higher_than_the_screen_shows_the_part_around_the_cursor)
{
    struct desk *d = sit_down(30, 5);
    for (int i = 1; i <= 20; i++) {
        char line[20];
        snprintf(line, sizeof line, "line%d%s", i, i < 20 ? "\n" : "");
        type(d, line);
    }
    expect_screen(d, "| line17\n| line18\n| line19\n| line20\nline 20 of 20", 3, 8);
    type(d, "\033<");
    expect_screen(d, "> line1\n| line2\n| line3\n| line4\nline 1 of 20", 0, 2);
    type(d, "\016\016\016\016");
    cr_expect(screen_shows(d->screen, "| line5") && screen_shows(d->screen, "line 5 of 20"));
    next_line(d);
    cr_expect(screen_shows(d->screen, "| line20"), "%s", screen_text(d->screen));
    cr_expect_str_eq(screen_row(d->screen, d->screen->row), ">");
    get_up(d);
}

Test(line_editor, a_resize_in_mid_line_leaves_what_is_above)
{
    static const int widths[] = {40, 15, 60, 9, 4, 30};
    struct desk *d = sit_down(30, 10);
    screen_write(d->screen, "\rabove\r\n", 8);
    line_view_begin(&d->view, 30, 10, "> ");
    type(d, "the quick brown fox jumps over the lazy dog\002\002\002");
    for (size_t i = 0; i < COUNT_OF(widths); i++) {
        screen_resize(d->screen, widths[i], 20);
        line_view_resize(&d->view, widths[i], 20, line_editor_look(&d->editor));
        show(d);
        cr_expect(!strncmp(screen_row(d->screen, 0), "above", 4), "%d: %s", widths[i], screen_text(d->screen));
        type(d, "x\177");
    }
    expect_text(d, "the quick brown fox jumps over the lazy dog", 40);
    expect_screen(d, "abov\n> the quick brown fox jumps o\n  ver the lazy dog", 2, 15);
    get_up(d);
}

Test(line_editor, every_frame_is_what_a_fresh_drawing_would_be)
{
    static const char *const pieces[] = {"a",      "漢",     "e\u0301", "word ", "\n",     "\033[D",   "\033[C", "\177",
                                         "\033[A", "\033[B", "\001",    "\005",  "\027",   "\037",     "\031",   "\t",
                                         "\033b",  "\033f",  "\033[3~", "\013",  "ap\t\t", "\033[1;5C"};
    unsigned seed = 11;
    printf("seed %u\n", seed);
    srand(seed);
    struct desk *d = sit_down(14, 6);
    static struct screen fresh;
    for (int i = 0; i < 4000; i++) {
        type(d, pieces[(size_t)rand() % COUNT_OF(pieces)]);
        struct line_view again = {.top = d->view.top};
        screen_start(&fresh, 14, 6);
        line_view_begin(&again, 14, 6, "> ");
        again.top = d->view.top;
        line_view_draw(&again, line_editor_look(&d->editor));
        screen_write(&fresh, again.out.data, again.out.size);
        line_view_free(&again);
        cr_assert_str_eq(screen_text(d->screen), screen_text(&fresh), "step %d", i);
        cr_assert(d->screen->row == fresh.row && d->screen->col == fresh.col, "step %d", i);
    }
    get_up(d);
}

// --- paste ---

Test(line_editor, a_paste_of_10000_lines_is_one_text_and_one_drawing)
{
    struct desk *d = sit_down(80, 24);
    struct text paste = {0}, wanted = {0};
    for (int i = 0; i < 10000; i++) {
        text_print(&paste, "line %d, with some words after it\r%s", i, i % 2 ? "\n" : "");
        text_print(&wanted, "line %d, with some words after it\n", i);
    }
    type(d, "\033[200~");
    for (size_t at = 0; at < paste.size; at += 1000) {
        enum line_event event;
        struct str piece = {paste.data + at, MIN(paste.size - at, (size_t)1000)};
        cr_assert_eq(line_editor_push(&d->editor, piece, &event), piece.len);
        cr_assert_eq(event, LINE_MORE);
    }
    type(d, "\033[201~");
    struct str text = line_editor_text(&d->editor);
    cr_expect(str_equal(text, (struct str){wanted.data, wanted.size}));
    cr_expect(screen_shows(d->screen, "| line 9999, with some words after it"), "%s", screen_text(d->screen));
    type(d, "\037");
    expect_text(d, "", 0);
    text_free(&paste);
    text_free(&wanted);
    get_up(d);
}

Test(line_editor, the_mark_that_ends_a_paste_is_found_in_any_pieces)
{
    const char *keys = "a\033[200~b\033[20c\033\033[201~d\r";
    for (size_t cut = 1; cut < strlen(keys); cut++) {
        struct desk *d = sit_down(40, 10);
        type_bytes(d, keys, cut);
        type_bytes(d, keys + cut, strlen(keys) - cut);
        cr_expect_eq(d->event, LINE_DONE);
        cr_expect(str_equal_z(line_editor_text(&d->editor), "ab[20cd"), "cut at %zu: %.*s", cut,
                  STR_ARG(line_editor_text(&d->editor)));
        get_up(d);
    }
}

// --- history ---

static void remember(struct desk *d, const char *text)
{
    struct error err;
    cr_assert_eq(history_add(&d->history, str_from(text), &err), 0);
    line_editor_begin(&d->editor);
}

Test(line_editor, history_goes_up_and_comes_back_to_the_draft)
{
    struct desk *d = sit_down(40, 10);
    remember(d, "first");
    remember(d, "second\nline");
    type(d, "draft\033[A");
    expect_text(d, "second\nline", 11);
    type(d, "\033[A\033[A");
    expect_text(d, "first", 5);
    type(d, "\033[A");
    expect_text(d, "first", 5);
    type(d, "\033[B\033[B");
    expect_text(d, "draft", 5);
    get_up(d);
}

Test(line_editor, search_finds_shows_and_gives_back)
{
    struct desk *d = sit_down(40, 10);
    remember(d, "the red fox");
    remember(d, "a blue fox");
    remember(d, "nothing");
    type(d, "mine\022fox");
    expect_screen(d, "> a blue fox\nsearch: fox", 0, 9);
    type(d, "\022");
    expect_screen(d, "> the red fox\nsearch: fox", 0, 10);
    type(d, "\022");
    cr_expect(screen_shows(d->screen, "search, not found: fox"));
    type(d, "\023");
    expect_screen(d, "> a blue fox\nsearch: fox", 0, 9);
    type(d, "\007");
    expect_screen(d, "> mine", 0, 6);
    type(d, "\022red\005!");
    expect_text(d, "the red fox!", 12);
    type(d, "\022blue\r");
    cr_expect_eq(d->event, LINE_DONE);
    expect_text(d, "a blue fox", 10);
    get_up(d);
}

Test(line_editor, search_never_stops_within_a_character)
{
    struct desk *d = sit_down(40, 10);
    remember(d, "caf\303\251");
    type(d, "\022\251!");
    cr_expect(screen_shows(d->screen, "search, not found: \xef\xbf\xbd!"));
    type(d, "\177\177\303\251");
    expect_text(d, "caf\303\251", 3);
    get_up(d);
}

Test(line_editor, search_in_no_history_finds_nothing)
{
    struct desk *d = sit_down(40, 10);
    type(d, "a\022x\022\023\177\177\033");
    line_editor_flush(&d->editor, &d->event);
    expect_text(d, "a", 1);
    get_up(d);
}

Test(line_editor, tab_twice_lists_the_words)
{
    struct desk *d = sit_down(40, 10);
    type(d, "ap\t");
    expect_screen(d, "> ap", 0, 4);
    type(d, "\t");
    expect_screen(d, "> ap\napple  apricot", 0, 4);
    type(d, "r");
    expect_screen(d, "> apr", 0, 5);
    get_up(d);
}

// --- the file of the history ---

static const char *history_file(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static size_t count_lines(const char *path)
{
    FILE *f = fopen(path, "r");
    cr_assert(f);
    size_t n = 0;
    for (int c; (c = getc(f)) != EOF;)
        n += c == '\n';
    fclose(f);
    return n;
}

Test(line_editor, history_survives_a_restart_with_its_line_ends)
{
    struct history h;
    struct error err = {0};
    cr_assert_eq(history_open(&h, history_file("a"), &err), 0);
    static const char *const entries[] = {"plain", "two\nlines", "back\\slash \\n", "é漢", "plain"};
    for (size_t i = 0; i < COUNT_OF(entries); i++)
        cr_assert_eq(history_add(&h, str_from(entries[i]), &err), 0, "%s", err.text);
    history_close(&h);
    struct stat there;
    cr_assert_eq(stat(history_file("a"), &there), 0);
    cr_expect_eq(there.st_mode & 0777, 0600u);
    cr_assert_eq(history_open(&h, history_file("a"), &err), 0);
    cr_assert_eq(h.n, 4u, "of equal entries one stays");
    for (size_t i = 0; i < h.n; i++)
        cr_expect(str_equal_z(h.entries[i], entries[i + 1]), "%zu: %.*s", i, STR_ARG(h.entries[i]));
    history_close(&h);
}

Test(line_editor, two_histories_of_one_file_lose_nothing)
{
    struct history a, b;
    struct error err;
    cr_assert_eq(history_open(&a, history_file("b"), &err), 0);
    cr_assert_eq(history_open(&b, history_file("b"), &err), 0);
    for (int i = 0; i < 50; i++) {
        char text[20];
        snprintf(text, sizeof text, "%c%d", i % 2 ? 'a' : 'b', i);
        cr_assert_eq(history_add(i % 2 ? &a : &b, str_from(text), &err), 0);
    }
    history_close(&a);
    history_close(&b);
    cr_assert_eq(history_open(&a, history_file("b"), &err), 0);
    cr_expect_eq(a.n, 50u);
    history_close(&a);
}

Test(line_editor, a_grown_history_is_made_small_again)
{
    FILE *f = fopen(history_file("c"), "w");
    for (int i = 0; i < 2 * HISTORY_MAX + 10; i++)
        fprintf(f, "entry %d\n", i);
    fclose(f);
    struct history h;
    struct error err;
    cr_assert_eq(history_open(&h, history_file("c"), &err), 0);
    cr_expect_eq(h.n, (size_t)HISTORY_MAX);
    cr_expect(str_equal_z(h.entries[h.n - 1], "entry 4009"));
    cr_expect_eq(count_lines(history_file("c")), (size_t)HISTORY_MAX);
    history_close(&h);
}

Test(line_editor, a_folder_as_history_is_an_error_and_no_more)
{
    struct history h;
    struct error err = {0};
    cr_expect_eq(history_open(&h, folder, &err), -1);
    cr_expect_eq(err.code, E_IO);
    history_close(&h);
}

// A pipe whose bytes are always there lets no call of the system fail by a signal.
Test(line_editor, a_signal_ends_a_line_of_a_pipe_between_two_reads)
{
    int ends[2];
    struct console c;
    struct text line = {0};
    struct error err = {0};
    enum console_event event;
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(write(ends[1], "a line", 6), 6);
    close(ends[1]);
    cr_assert_eq(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    console_open(&c, NULL, NULL);
    atomic_store(&terminal_terminated, true);
    cr_expect_eq(console_read(&c, "> ", &line, &event, &err), -1);
    cr_expect_eq(err.code, E_INTERRUPTED);
    atomic_store(&terminal_terminated, false);
    console_close(&c);
    text_free(&line);
    close(ends[0]);
}
