// Tests that JSON on a terminal is the same JSON as in a pipe, but escapes each character that a terminal obeys or that
// changes the order of what is read: C1 controls, DEL, bidi controls, and line separators.
#include "tests/batch_rig.h"
#include "tests/pty_harness.h"

#include "cmd/terminal/terminal.h"

TestSuite(json_terminal, .init = rig_open, .fini = rig_close, .timeout = 120);

// All of them: one by one, and the ends of the ranges.
static const uint32_t bad[] = {0x7F,   0x80,   0x85,   0x9B,   0x9D,   0x9F,   0x61C, 0x200E,
                               0x200F, 0x2028, 0x2029, 0x202A, 0x202E, 0x2066, 0x2069};

static struct str all_bad(char *text)
{
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        n += (size_t)utf8_encode(bad[i], text + n);
    text[n] = '\0';
    return (struct str){text, n};
}

// The file's text as a terminal must get it, made without the function under test.
static void escape_all(const char *from, struct text *out)
{
    for (size_t i = 0, n = strlen(from); i < n;) {
        uint32_t cp = 0;
        int len = utf8_decode(from + i, n - i, &cp);
        cr_assert_gt(len, 0, "no UTF-8 at %zu of %s", i, from);
        bool escaped = cp == 0x7F;
        for (size_t k = 0; k < COUNT_OF(bad); k++)
            escaped = escaped || cp == bad[k];
        if (escaped)
            text_print(out, "\\u%04x", cp);
        else if (cp == '\n')
            text_print(out, "\r\n"); // as the terminal's line discipline writes it
        else
            text_append(out, (struct str){from + i, (size_t)len});
        i += (size_t)len;
    }
}

// Runs quern in a pipe, and at a terminal: the pipe gets the characters themselves, the terminal their escapes.
static void compare(const char *what, const char *const *argv)
{
    static struct pty t;
    char text[4 * COUNT_OF(bad) + 1];
    struct text want = {0};
    char command[1024] = "";
    for (int i = 1; argv[i]; i++)
        snprintf(command + strlen(command), sizeof command - strlen(command), " '%s'", argv[i]);
    int status = shell("$Q%s >piped", command);
    char *said = read_text("err");
    cr_assert_eq(status, 0, "%s: %s", what, said);
    free(said);
    char *piped = read_text("piped");
    all_bad(text);
    cr_assert(strstr(piped, "\xC2\x9B") && strstr(piped, "\xE2\x80\xAE"), "%s changes a pipe: %s", what, piped);
    cr_assert(!strstr(piped, "\\u009b"), "%s escapes in a pipe: %s", what, piped);
    if (!pty_open(&t, "xterm", SCREEN_COLS_MAX, 24, argv))
        cr_skip("this system lends no terminals");
    cr_assert_eq(pty_wait_end(&t), 0, "%s: %s", what, screen_text(&t.screen));
    escape_all(piped, &want);
    // times differ from run to run, so only what stands before the first of them is compared to the letter
    const char *timed = strstr(want.data, "\"timings\"");
    size_t n = timed ? (size_t)(timed - want.data) : want.size;
    cr_expect(t.n_log >= n && memmem(t.log, t.n_log, want.data, n), "%s shows\n%.*s\nnot\n%.*s", what, (int)t.n_log,
              t.log, (int)n, want.data);
    for (size_t i = 0; i < t.n_log;) {
        uint32_t cp = 0;
        int len = utf8_decode(t.log + i, t.n_log - i, &cp);
        bool plain = len > 0 && (utf8_printable(cp) || cp == '\n' || cp == '\r' || cp == '\t' || cp == 0x1B);
        cr_expect(plain, "%s sends %04x", what, cp);
        i += (size_t)MAX(len, 1);
    }
    text_free(&want);
    free(piped);
    pty_close(&t);
}

Test(json_terminal, run_escapes_what_a_terminal_obeys)
{
    char prompt[4 * COUNT_OF(bad) + 1];
    all_bad(prompt);
    static const char *const forms[] = {"--json", "--jsonl"};
    for (int i = 0; i < 2; i++) {
        const char *const argv[] = {
            getenv("QUERN_BIN"), "run", forms[i], "--echo", "--raw", "-n", "3", "--seed", "1", "-p", prompt, NULL};
        compare(forms[i], argv);
    }
}

Test(json_terminal, batch_escapes_what_a_terminal_obeys)
{
    char text[4 * COUNT_OF(bad) + 1];
    struct text row = {0};
    all_bad(text);
    // a DEL may stand in JSON as it is, so that all of them do
    text_print(&row, "{\"custom_id\":\"%s\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\"",
               text);
    text_print(&row, ",\"max_tokens\":2}}\n");
    text_append(&row, (struct str){"", 1});
    write_text("in", row.data);
    const char *const argv[] = {getenv("QUERN_BIN"), "batch", "in", "-o", "-", "--temp", "0", NULL};
    compare("batch", argv);
    text_free(&row);
}

Test(json_terminal, names_of_files_are_escaped)
{
    char name[4 * COUNT_OF(bad) + 16];
    all_bad(name);
    strcat(name, ".gguf");
    cr_assert_eq(rename("m.gguf", name), 0);
    unsetenv("QUERN_MODEL");
    const char *const inspect[] = {getenv("QUERN_BIN"), "inspect", "--json", name, NULL};
    compare("inspect", inspect);
    const char *const embed[] = {getenv("QUERN_BIN"), "embed", "-m", name, "-p", "a", NULL};
    compare("embed", embed);
}

Test(json_terminal, what_is_no_utf8_and_what_is_plain)
{
    struct text out = {0};
    terminal_escape_json(&out, STR_LIT("{\"a\": \"\xC3\xA4\x9B\t\xF0\x9F\x98\x80\"}\n"));
    text_append(&out, (struct str){"", 1});
    cr_expect_str_eq(out.data, "{\"a\": \"\xC3\xA4\\ufffd\t\xF0\x9F\x98\x80\"}\n");
    text_free(&out);
}
