// Tests the breaking of lines: on a small terminal, whatever the pieces in which the text comes, the screen shows what
// breaking the whole text at once would.
#include "cmd/terminal/terminal.h"
#include "cmd/terminal/wrap.h"
#include "tests/screen.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = SCREEN_ROWS_MAX };

struct bench {
    int terminal, line, kept;
    struct screen screen;
};

static void open_terminal(struct bench *b, int cols)
{
    struct winsize size = {.ws_row = ROWS, .ws_col = (unsigned short)cols};
    setenv("TERM", "xterm", 1);
    if (openpty(&b->terminal, &b->line, NULL, NULL, &size))
        cr_skip("this system lends no terminals");
    screen_start(&b->screen, cols, ROWS);
    fflush(stdout);
    b->kept = dup(STDOUT_FILENO);
    cr_assert_geq(dup2(b->line, STDOUT_FILENO), 0);
}

// Shows what has come.
static void look(struct bench *b)
{
    struct pollfd p = {b->terminal, POLLIN, 0};
    char bytes[4096];
    while (poll(&p, 1, 0) > 0) {
        ssize_t n = read(b->terminal, bytes, sizeof bytes);
        if (n <= 0)
            break;
        screen_write(&b->screen, bytes, (size_t)n);
    }
}

static void close_terminal(struct bench *b)
{
    cr_assert_geq(dup2(b->kept, STDOUT_FILENO), 0);
    close(b->kept);
    close(b->terminal);
    close(b->line);
}

static size_t character(const char *text, size_t n)
{
    size_t end = 1;
    while (end < n && ((unsigned char)text[end] & 0xc0) == 0x80)
        end++;
    return end;
}

// The screen of a text that comes in pieces of so many characters; 0: of random length.
static const char *shown(const char *text, int cols, int piece, unsigned *seed)
{
    static char out[ROWS * 4 * SCREEN_COLS_MAX];
    struct bench b;
    struct wrap w;
    struct error err;
    open_terminal(&b, cols);
    wrap_begin(&w, true);
    cr_expect(w.on);
    for (size_t at = 0, n = strlen(text), take; at < n; at += take) {
        int left = piece ? piece : 1 + (int)(rand_r(seed) % 7);
        for (take = 0; left-- && at + take < n;)
            take += character(text + at + take, n - at - take);
        cr_expect_eq(wrap_write(&w, (struct str){text + at, take}, &err), 0);
        look(&b);
    }
    snprintf(out, sizeof out, "%s", screen_text(&b.screen));
    cr_expect_eq(b.screen.n_strange, 0);
    close_terminal(&b);
    return out;
}

Test(wrap, known_texts)
{
    static const struct {
        const char *text, *screen;
    } cases[] = {
        {"the quick brown fox jumps", "the quick brown fox\njumps"},
        {"nineteen cells are a line", "nineteen cells are\na line"}, // "nineteen cells are" is 18
        {"1234567890123456789 end", "1234567890123456789\nend"},     // a word of all cells but the last
        {"1234567890123456789\n\nend", "1234567890123456789\n\nend"},
        {"1234567890123456789 \nend", "1234567890123456789\nend"}, // a blank at the edge breaks nothing twice
        {"1234567890123456789    end", "1234567890123456789\nend"},
        {"a http://example.org/a/long/path x", "a\nhttp://example.org/a\n/long/path x"}, // left to the terminal
        {"    indented words here", "    indented words\nhere"},
        {"\xe4\xb8\x80\xe4\xb8\x81\xe4\xb8\x83\xe4\xb8\x87\xe4\xb8\x88\xe4\xb8\x89\xe4\xb8\x8a\xe4\xb8\x8b\xe4\xb8\x8d"
         "\xe4\xb8\x8e",
         "\xe4\xb8\x80\xe4\xb8\x81\xe4\xb8\x83\xe4\xb8\x87\xe4\xb8\x88\xe4\xb8\x89\xe4\xb8\x8a\xe4\xb8\x8b\xe4\xb8\x8d"
         "\n\xe4\xb8\x8e"},
        {"x\n```c\nint a = 1234567890; // a b\n```\nthe quick brown fox jumps",
         "x\n```c\nint a = 1234567890;\n// a b\n```\nthe quick brown fox\njumps"},
        {"```x``` the quick brown fox", "```x``` the quick\nbrown fox"}, // code within a line opens no fence
        {"~~~\n```\nint a = 1234567890; // a b\n~~~\nthe quick brown fox",
         "~~~\n```\nint a = 1234567890;\n// a b\n~~~\nthe quick brown fox"},
        {"caf\xc3\xa9s e\xcc\x81t\xc3\xa9s na\xc3\xafve th\xc3\xa9",
         "caf\xc3\xa9s e\xcc\x81t\xc3\xa9s na\xc3\xafve\nth\xc3\xa9"},
        {"an\033[31mred word \007bell rings",
         "an[31mred word bell\nrings"}, // what could command a terminal is left out
    };
    unsigned seed = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int piece = 1; piece < 40; piece += 1 + piece / 3)
            cr_expect_str_eq(shown(cases[i].text, 20, piece, &seed), cases[i].screen, "%s in pieces of %d: %s",
                             cases[i].text, piece, shown(cases[i].text, 20, piece, &seed));
}

// The lines of words of less than `limit` letters with single blanks between them.
static void break_whole(const char *text, size_t limit, char *out)
{
    size_t column = 0;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, " \n");
        if (column && column + 1 + n > limit) {
            *out++ = '\n';
            column = 0;
        } else if (column) {
            *out++ = ' ';
            column++;
        }
        memcpy(out, at, n);
        out += n;
        column += n;
        at += n;
        if (*at == '\n') {
            *out++ = '\n';
            column = 0;
        }
        at += *at != '\0';
    }
    *out = '\0';
}

Test(wrap, random_texts_are_broken_as_a_whole_text_would_be)
{
    unsigned seed = 20;
    printf("seed %u\n", seed);
    for (int round = 0; round < 300; round++) {
        char text[1200], want[1300];
        int cols = 8 + (int)(rand_r(&seed) % 30), n = 0;
        for (int words = 0; words < 60; words++) {
            int length = 1 + (int)(rand_r(&seed) % (unsigned)(cols - 1));
            for (int i = 0; i < MIN(length, 12); i++)
                text[n++] = (char)('a' + rand_r(&seed) % 26);
            text[n++] = rand_r(&seed) % 12 ? ' ' : '\n';
        }
        text[n - 1] = '\0';
        break_whole(text, (size_t)cols - 1, want);
        int lines = 1;
        for (const char *at = want; (at = strchr(at, '\n')); at++)
            lines++;
        if (lines <= ROWS)
            cr_assert_str_eq(shown(text, cols, 0, &seed), want, "%d columns: %s", cols, text);
    }
}

Test(wrap, a_table_is_cut_to_the_window)
{
    struct bench b;
    struct error err;
    open_terminal(&b, 12);
    cr_expect_eq(terminal_write_table(
                     STR_LIT("short\nexactly 12 c\nthirteen cell\nna\xc3\xafve \xe4\xb8\x80\xe4\xb8\x81\xe4\xb8\x83"
                             "\xe4\xb8\x87\n\nlast"),
                     &err),
                 0);
    look(&b);
    cr_expect_str_eq(screen_text(&b.screen),
                     "short\nexactly 12 c\nthirteen ce\xe2\x80\xa6\nna\xc3\xafve "
                     "\xe4\xb8\x80\xe4\xb8\x81\xe2\x80\xa6\n\nlast",
                     "%s", screen_text(&b.screen));
    close_terminal(&b);
}

Test(wrap, where_no_terminal_is_bytes_pass_unchanged)
{
    int ends[2], kept = dup(STDOUT_FILENO);
    char seen[100];
    struct wrap w;
    struct error err;
    cr_assert_eq(pipe(ends), 0);
    fflush(stdout);
    cr_assert_geq(dup2(ends[1], STDOUT_FILENO), 0);
    wrap_begin(&w, true);
    int status = wrap_write(&w, STR_LIT("bytes \033[31m of any \xff kind"), &err);
    cr_assert_geq(dup2(kept, STDOUT_FILENO), 0);
    ssize_t n = read(ends[0], seen, sizeof seen);
    cr_expect_eq(status, 0);
    cr_expect(n == 25 && !memcmp(seen, "bytes \033[31m of any \xff kind", 25));
    close(ends[0]);
    close(ends[1]);
    close(kept);
}
