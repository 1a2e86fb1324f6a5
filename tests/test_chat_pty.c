// Tests dialogues at a terminal: keys are typed, and the screen is compared.
#include "models/synth_model.h"
#include "tests/pty_harness.h"
#include "tests/sanitized.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/quern-chat-XXXXXX";
static char model[100];
static struct pty *tty;

static const char *in_folder(const char *name)
{
    static char paths[4][200];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void set_up(void)
{
    struct error err = {0};
    cr_assert(mkdtemp(folder));
    snprintf(model, sizeof model, "%s/tiny.gguf", folder);
    struct synth_options o = {.preset = "llama-tiny", .mix = "F32", .n_vocab = 600, .seed = 3};
    cr_assert_eq(synth_model_write(&o, model, &err), 0, "%s", err.text);
    setenv("XDG_STATE_HOME", folder, 1);
    setenv("HOME", folder, 1);
    unsetenv("NO_COLOR");
    tty = calloc(1, sizeof *tty);
}

static void tear_down(void)
{
    char command[100];
    if (tty->terminal)
        pty_close(tty);
    free(tty);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(chat_pty, .init = set_up, .fini = tear_down, .timeout = 240);

enum { ARGS_MAX = 40 };

static const char *program(void)
{
    const char *path = getenv("QUERN_BIN");
    cr_assert(path, "QUERN_BIN does not say where quern is");
    return path;
}

// "quern chat" with more arguments, a NULL at their end.
static void chat_typed(const char *term, int cols, int rows, const char *const *more, const char *keys)
{
    const char *argv[ARGS_MAX] = {program(), "chat", "-m", model, "-t", "1", "--temp", "0"};
    int n = 8;
    for (; more && *more; more++)
        argv[n++] = *more;
    if (!pty_open_typed(tty, term, cols, rows, argv, keys))
        cr_skip("this system lends no terminals");
}

static void chat_on(const char *term, int cols, int rows, const char *const *more)
{
    chat_typed(term, cols, rows, more, "");
}

static void chat(const char *const *more)
{
    chat_on("xterm-256color", 80, 24, more);
    cr_assert(pty_wait_prompt(tty), "no prompt:\n%s", screen_text(&tty->screen));
}

#define SHORT ((const char *const[]){"-n", "8", NULL})
#define ENDLESS ((const char *const[]){"--ignore-eos", "-c", "2000", NULL})

static void expect_text(const char *text)
{
    cr_assert(pty_wait_text(tty, text), "[%s] is not on the screen:\n%s", text, screen_text(&tty->screen));
}

static void say(const char *line)
{
    pty_type(tty, line);
    pty_type(tty, "\r");
}

static void say_and_wait(const char *line)
{
    say(line);
    cr_assert(pty_wait_prompt(tty), "no prompt after %s:\n%s", line, screen_text(&tty->screen));
}

static void leave(int status)
{
    cr_expect_eq(pty_wait_end(tty), status);
    cr_expect(pty_is_restored(tty), "the terminal is not as it was found");
    cr_expect_eq(tty->screen.n_strange, 0, "%d sequences that no terminal should see", tty->screen.n_strange);
    pty_close(tty);
    tty->terminal = 0;
}

static void say_bye(void)
{
    pty_type(tty, "/bye\r");
    leave(0);
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s is not there", path);
    char *data = calloc(1, 4 << 20);
    size_t n = fread(data, 1, (4 << 20) - 1, f);
    data[n] = '\0';
    fclose(f);
    return data;
}

// --- typing ---

Test(chat_pty, a_line_is_edited_sent_and_answered)
{
    chat(SHORT);
    pty_type(tty, "hello wrld\033[D\033[D\033[Do\001\005!");
    expect_text("> hello world!");
    say("");
    expect_text("context: ");
    cr_expect(screen_shows_dim(&tty->screen, "tokens/s"));
    cr_assert(pty_wait_prompt(tty));
    say_bye();
}

Test(chat_pty, wide_characters_and_accents_are_edited_whole)
{
    chat(SHORT);
    pty_type(tty, "漢字 e\u0301 😀x");
    expect_text("> 漢字 e\u0301 😀x");
    pty_type(tty, "\177\177"); // x and the picture
    pty_type(tty, "\001\006\033[3~");
    expect_text("> 漢 e\u0301");
    pty_type(tty, "\005\177\177.");
    pty_watch(tty, 100);
    cr_expect_str_eq(screen_row(&tty->screen, tty->screen.row), "> 漢 .");
    cr_expect_eq(tty->screen.col, 6);
    pty_type(tty, "\003");
    pty_watch(tty, 100);
    cr_assert(pty_wait_prompt(tty));
    say_bye();
}

Test(chat_pty, ctrl_c_clears_a_line_and_twice_on_none_says_how_to_leave)
{
    chat(SHORT);
    pty_type(tty, "not this\003");
    pty_watch(tty, 100);
    cr_assert(pty_wait_prompt(tty));
    pty_type(tty, "\003");
    pty_watch(tty, 100);
    cr_expect(!screen_shows(&tty->screen, "Ctrl-D or /bye"));
    pty_type(tty, "\003");
    expect_text("Ctrl-D or /bye leaves");
    pty_type(tty, "\004");
    leave(0);
}

Test(chat_pty, many_lines_are_one_message)
{
    chat(SHORT);
    say("\"\"\"one\rtwo\033\rthree\nfour\"\"\"");
    expect_text("context: ");
    cr_assert(pty_wait_prompt(tty));
    say_and_wait("/save lines");
    char *saved = read_file(in_folder("quern/sessions/lines.json"));
    cr_expect(strstr(saved, "\"one\\ntwo\\nthree\\nfour\""), "%s", saved);
    free(saved);
    say_bye();
}

Test(chat_pty, a_paste_of_10000_lines_is_taken_whole)
{
    chat(SHORT);
    size_t size = 1 << 20, n = 0;
    char *paste = malloc(size), *json = malloc(size);
    n = (size_t)snprintf(paste, size, "/system \033[200~");
    size_t m = 0;
    for (int i = 0; i < 10000; i++) {
        n += (size_t)snprintf(paste + n, size - n, "line %d \"of\" a long text%s", i, i < 9999 ? "\r" : "");
        m += (size_t)snprintf(json + m, size - m, "line %d \\\"of\\\" a long text%s", i, i < 9999 ? "\\n" : "");
    }
    n += (size_t)snprintf(paste + n, size - n, "\033[201~\r");
    pty_type_bytes(tty, paste, n);
    expect_text("line 9999 \"of\" a long text");
    cr_assert(pty_wait_prompt(tty));
    cr_expect_lt(tty->n_bytes, 100000, "%zu bytes were drawn", tty->n_bytes);
    say_and_wait("/save pasted");
    char *saved = read_file(in_folder("quern/sessions/pasted.json"));
    cr_expect(strstr(saved, json), "the text is not whole");
    free(saved);
    free(paste);
    free(json);
    say_bye();
}

// The program sees a pause when it waits; a test that waits longer than it does is on the safe side, but for a machine that
// does not let the program run.
Test(chat_pty, ctrl_c_after_a_pause_ends_a_paste_that_has_no_end)
{
    chat(SHORT);
    pty_type(tty, "\033[200~abc\003d"); // what is pasted has no keys
    pty_watch(tty, 1500);
    pty_type(tty, "e\003f\003"); // nor has what does not begin with Ctrl-C
    pty_watch(tty, 1500);
    cr_expect_eq(tty->screen.n_pastes, tty->n_prompts, "the paste has ended too early");
    pty_type(tty, "\003");
    cr_assert(pty_wait_prompt(tty), "deaf:\n%s", screen_text(&tty->screen));
    pty_type(tty, "heard");
    expect_text("> heard");
    say_and_wait("");
    say_bye();
}

// A terminal as it is found makes Enter a newline, which in the editor is Ctrl-J.
Test(chat_pty, lines_typed_before_it_begins_are_lines)
{
    chat_typed("xterm-256color", 80, 24, SHORT, "one\rtwo\rth");
    expect_text("> th");
    pty_type(tty, "ree\nfour"); // and now Ctrl-J is what it was
    expect_text("> three");
    tty->n_prompts = tty->screen.n_pastes; // none of them was empty
    say_and_wait("");
    say_and_wait("/save typed");
    char *saved = read_file(in_folder("quern/sessions/typed.json"));
    static const char *const parts[] = {"\"content\": \"one\"", "\"content\": \"two\"",
                                        "\"content\": \"three\\nfour\""};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        cr_expect(strstr(saved, parts[i]), "no %s in %s", parts[i], saved);
    free(saved);
    say_bye();
}

Test(chat_pty, history_is_there_after_a_restart)
{
    chat(SHORT);
    say_and_wait("/set temp 0");
    say_and_wait("the first message");
    say_bye();
    struct stat there;
    cr_assert_eq(stat(in_folder("quern/history"), &there), 0);
    cr_expect_eq(there.st_mode & 0777, 0600u);
    chat(SHORT);
    pty_type(tty, "\033[A");
    expect_text("> /bye");
    pty_type(tty, "\033[A");
    expect_text("> the first message");
    pty_type(tty, "\003\022temp");
    expect_text("> /set temp 0");
    pty_type(tty, "\007");
    pty_watch(tty, 50);
    cr_assert(pty_wait_prompt(tty));
    say_bye();
}

Test(chat_pty, tab_completes_commands_flags_and_files)
{
    FILE *f = fopen(in_folder("a_long_name.txt"), "w");
    cr_assert(f);
    fprintf(f, "what is in the file\n");
    fclose(f);
    chat(SHORT);
    pty_type(tty, "/he\t");
    expect_text("> /help");
    pty_type(tty, "\025/set top-n\t");
    expect_text("> /set top-n-sigma");
    pty_type(tty, "\025/read ");
    pty_type(tty, folder);
    pty_type(tty, "/a_lo\t");
    expect_text("a_long_name.txt");
    say("");
    expect_text("20 bytes go before your next message");
    cr_assert(pty_wait_prompt(tty));
    say_and_wait("and I");
    say_and_wait("/save read");
    char *saved = read_file(in_folder("quern/sessions/read.json"));
    cr_expect(strstr(saved, "\"what is in the file\\nand I\""), "%s", saved);
    free(saved);
    say_bye();
}

// --- resize ---

Test(chat_pty, a_resize_in_mid_line_draws_the_line_anew)
{
    chat(SHORT);
    pty_type(tty, "the quick brown fox jumps over the lazy dog, and then it jumps back again");
    expect_text("back again");
    pty_resize(tty, 40, 20);
    expect_text("> the quick brown fox jumps over the la");
    pty_resize(tty, 100, 30);
    expect_text("> the quick brown fox jumps over the lazy dog, and then it jumps back again");
    pty_type(tty, "!");
    expect_text("back again!");
    say("");
    expect_text("context: ");
    cr_assert(pty_wait_prompt(tty));
    say_bye();
}

Test(chat_pty, a_resize_in_mid_answer_is_harmless)
{
    chat(ENDLESS);
    say("hi");
    for (int i = 0; i < 5; i++) {
        pty_resize(tty, i % 2 ? 80 : 50, i % 2 ? 24 : 12);
        pty_watch(tty, 20);
    }
    pty_type(tty, "\003");
    cr_assert(pty_wait_prompt(tty), "%s", screen_text(&tty->screen));
    pty_type(tty, "still here");
    expect_text("> still here");
    pty_type(tty, "\025");
    say_bye();
}

// --- answers ---

Test(chat_pty, ctrl_c_stops_the_answer_and_not_the_program)
{
    chat(ENDLESS);
    say("hi");
    size_t before = tty->n_bytes;
    while (tty->n_bytes < before + 200)
        pty_watch(tty, 5);
    pty_type(tty, "\003");
    expect_text("[stopped]");
    cr_assert(pty_wait_prompt(tty));
    say_and_wait("/set predict 4");
    say_and_wait("go on");
    say_and_wait("/save stopped");
    char *saved = read_file(in_folder("quern/sessions/stopped.json")), *answer = saved;
    int n = 0;
    while ((answer = strstr(answer, "\"assistant\""))) {
        answer++;
        n++;
    }
    cr_expect_eq(n, 2, "%d answers: the part that had come is kept\n%s", n, saved);
    free(saved);
    say_bye();
}

Test(chat_pty, what_is_typed_during_an_answer_comes_after_it)
{
    chat(((const char *const[]){"--ignore-eos", "-n", "300", NULL}));
    say("hi");
    pty_watch(tty, 30);
    pty_type(tty, "typed ahead");
    expect_text("context: ");
    expect_text("> typed ahead");
    cr_expect(!strstr(tty->log, "typed ahead\r\n"));
    pty_type(tty, "\025");
    say_bye();
}

static void expect_restored_after(int number, int status)
{
    chat(ENDLESS);
    pty_type(tty, "half a line");
    expect_text("half a line");
    kill(tty->pid, number);
    leave(status);
    chat(ENDLESS);
    say("hi");
    pty_watch(tty, 100);
    kill(tty->pid, number);
    leave(status);
}

Test(chat_pty, sigterm_ends_it_and_leaves_the_terminal_as_it_was)
{
    expect_restored_after(SIGTERM, 130);
}

Test(chat_pty, a_crash_leaves_the_terminal_as_it_was)
{
    const int number = sanitized ? SIGTRAP : SIGFPE; // a sanitizer keeps the usual crashes for itself
    expect_restored_after(number, 128 + number);
}

// Below a shell that continues it after a line was typed.
Test(chat_pty, ctrl_z_stops_it_with_the_terminal_as_it_was_and_it_goes_on)
{
    const char *const argv[] = {
        "/bin/sh", "-mc", "\"$0\" \"$@\"; echo stopped with $?; read line; fg", program(), "chat", "-m", model, "-n",
        "8",       NULL};
    if (!pty_open(tty, "xterm-256color", 80, 24, argv))
        cr_skip("this system lends no terminals");
    cr_assert(pty_wait_prompt(tty));
    pty_type(tty, "before\032");
    expect_text("stopped with 148");
    cr_expect(pty_is_restored(tty));
    pty_type(tty, "\n");
    pty_watch(tty, 200);
    pty_type(tty, "+after");
    expect_text("> before+after");
    pty_type(tty, "\025");
    say_bye();
}

// Whom nobody could continue is not stopped: its process group has no parent in the session.
Test(chat_pty, ctrl_z_does_not_stop_what_has_no_shell)
{
    chat(SHORT);
    pty_type(tty, "before\032+after");
    expect_text("> before+after");
    pty_type(tty, "\025");
    kill(tty->pid, SIGTSTP);
    say_and_wait("hi");
    say_bye();
}

// Every token is a byte that a terminal would obey, or a part of a sequence: ESC [ ] 2 J ; BEL and C1 in two tokens.
Test(chat_pty, output_that_a_terminal_would_obey_reaches_it_harmless)
{
    static const unsigned char bytes[] = {0x1b, '[',  ']',  '2',  'J',  ';',  0x07,
                                          0xc2, 0x9b, 0x9d, 0xe2, 0x80, 0xae, 0x08};
    static char biases[sizeof bytes][20];
    const char *argv[ARGS_MAX] = {"--temp", "1.5", "--top-p", "1", "--min-p", "0", "--seed", "5", "-n", "600"};
    int n = 10;
    for (size_t i = 0; i < sizeof bytes; i++) {
        snprintf(biases[i], sizeof biases[i], "%d+30", 3 + bytes[i]);
        argv[n++] = "-l";
        argv[n++] = biases[i];
    }
    const char *all[ARGS_MAX + 10] = {program(), "chat", "-m", model};
    memcpy(all + 4, argv, sizeof argv);
    cr_assert(pty_open(tty, "xterm", 80, 24, all));
    cr_assert(pty_wait_prompt(tty));
    int row = tty->screen.n_scrolled;
    say("hi");
    expect_text("context: ");
    cr_assert(pty_wait_prompt(tty));
    cr_expect(tty->screen.n_scrolled > row || tty->screen.row > 3, "there was an answer");
    cr_expect_eq(tty->screen.n_strange, 0);
    size_t n_escapes = 0;
    for (size_t i = 0; i + 1 < tty->n_log; i++)
        if (tty->log[i] == '\033') {
            const char *at = tty->log + i + 1;
            n_escapes++;
            cr_assert(!strncmp(at, "[?2004", 6) || !strncmp(at, "[0m", 3) || !strncmp(at, "[2m", 3) ||
                          !strncmp(at, "[K", 2) || !strncmp(at, "[2C", 3) || !strncmp(at, "[3C", 3) ||
                          !strncmp(at, "[4C", 3),
                      "%.10s", at);
        }
    cr_expect_gt(n_escapes, 0);
    cr_expect(!memmem(tty->log, tty->n_log, "\xe2\x80\xae", 3) && !memmem(tty->log, tty->n_log, "\xc2\x9b", 2));
    say_bye();
}

// --- commands ---

Test(chat_pty, commands_do_what_they_say)
{
    chat(SHORT);
    say_and_wait("/help");
    expect_text("/regen");
    say_and_wait("/system you are a tree");
    say_and_wait("first");
    say_and_wait("second");
    say_and_wait("/regen");
    say_and_wait("/undo");
    expect_text("[taken back: second]");
    say_and_wait("/save kept");
    char *saved = read_file(in_folder("quern/sessions/kept.json"));
    cr_expect(strstr(saved, "you are a tree") && strstr(saved, "first") && !strstr(saved, "second"), "%s", saved);
    free(saved);
    say_and_wait("/clear");
    say_and_wait("/undo");
    expect_text("[there is nothing to take back]");
    say_and_wait("/load kept");
    expect_text("[2 messages from");
    say_and_wait("/stats");
    expect_text("KV cache");
    say_and_wait("/sistem x");
    expect_text("did you mean /system");
    say_and_wait("/set temp 1000");
    expect_text("from 0 to 100");
    say_and_wait("/set model x");
    expect_text("at the start only");
    say_and_wait("/set temp 0.25");
    expect_text("[temp: 0.25]");
    say_and_wait("/set parameter parameter temperature 0.5");
    expect_text("/set parameter: there is no such flag");
    say_and_wait("/set parameter temperature 0.5");
    expect_text("[temp: 0.5]");
    say_and_wait("/set");
    expect_text("temp: 0.5");
    say_and_wait("/set nowordwrap");
    expect_text("[no-wrap: on]");
    say_and_wait("/set temp 0.25");
    say_and_wait("/set temp");
    expect_text("now: 0.25");
    say_and_wait("/load nothing");
    expect_text("No such file");
    say_bye();
}

// --- the context ---

Test(chat_pty, a_full_context_says_so_and_loses_nothing)
{
    chat(((const char *const[]){"-n", "20", "--ignore-eos", "-c", "100", NULL}));
    say_and_wait("one");
    say_and_wait("two");
    say("three, and then a good deal more, so that there is no room for it in a context of a hundred");
    expect_text("--context-shift");
    cr_expect(screen_shows(&tty->screen, "/undo") && screen_shows(&tty->screen, "the context 100"), "%s",
              screen_text(&tty->screen));
    cr_assert(pty_wait_prompt(tty));
    say_and_wait("/save full");
    char *saved = read_file(in_folder("quern/sessions/full.json"));
    cr_expect(strstr(saved, "one") && strstr(saved, "two") && !strstr(saved, "three"), "%s", saved);
    free(saved);
    pty_type(tty, "\033[A\033[A");
    expect_text("> three, and then"); // the message is in the history
    pty_type(tty, "\025");
    say_bye();
}

Test(chat_pty, a_shift_of_the_context_is_said_each_time)
{
    chat(((const char *const[]){"-n", "30", "--ignore-eos", "-c", "120", "--context-shift", "-sys", "you are", NULL}));
    for (int i = 0; i < 6; i++) {
        char line[40];
        snprintf(line, sizeof line, "message %d", i);
        say_and_wait(line);
    }
    cr_expect(strstr(tty->log, "[context full: the oldest 2 messages"), "%s", screen_text(&tty->screen));
    say_and_wait("/save shifted");
    char *saved = read_file(in_folder("quern/sessions/shifted.json"));
    cr_expect(strstr(saved, "you are") && strstr(saved, "message 5") && !strstr(saved, "message 0"), "%s", saved);
    free(saved);
    say_bye();
}

// --- other terminals, and none ---

Test(chat_pty, a_dumb_terminal_gets_no_sequences)
{
    chat_on("dumb", 80, 24, SHORT);
    expect_text("Ctrl-D leaves.");
    pty_type(tty, "hello\n");
    expect_text("context: ");
    pty_watch(tty, 100);
    pty_type(tty, "\"\"\"two\nlines\"\"\"\n");
    pty_watch(tty, 300);
    pty_type(tty, "/save dumb\n");
    expect_text("4 messages");
    pty_type(tty, "\003");
    pty_watch(tty, 100);
    pty_type(tty, "\004");
    cr_expect_eq(pty_wait_end(tty), 0);
    cr_expect(!memchr(tty->log, '\033', tty->n_log), "an escape sequence");
    char *saved = read_file(in_folder("quern/sessions/dumb.json"));
    cr_expect(strstr(saved, "two\\nlines"), "%s", saved);
    free(saved);
}

// --- the model that ships with quern ---

static bool has_builtin(void)
{
    char command[600];
    snprintf(command, sizeof command, "'%s' inspect built-in > '%s' 2>&1", program(), in_folder("inspected"));
    return system(command) == 0;
}

// False where it is not a part of the program.
static bool chat_builtin(const char *const *more)
{
    const char *argv[ARGS_MAX] = {program(), "chat", "-m", "built-in", "-t", "1", "--temp", "0"};
    int n = 8;
    if (!has_builtin())
        return false;
    for (; more && *more; more++)
        argv[n++] = *more;
    if (!pty_open(tty, "xterm-256color", 80, 24, argv))
        cr_skip("this system lends no terminals");
    cr_assert(pty_wait_prompt(tty), "no prompt:\n%s", screen_text(&tty->screen));
    return true;
}

Test(chat_pty, the_built_in_model_answers_questions_in_turn)
{
    if (!chat_builtin(NULL))
        return;
    say("What is the capital of France?");
    expect_text("Paris");
    cr_assert(pty_wait_prompt(tty));
    say("/regen");
    cr_assert(pty_wait_prompt(tty));
    say("What is the opposite of hot?");
    expect_text("cold");
    cr_assert(pty_wait_prompt(tty));
    say_bye();
}

Test(chat_pty, every_turn_of_a_chat_has_the_form_that_is_asked_for)
{
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"animal\":{\"enum\":[\"fox\",\"owl\"]},"
                                 "\"legs\":{\"const\":4}},\"required\":[\"animal\",\"legs\"]}";
    if (!chat_builtin((const char *const[]){"-j", schema, NULL}))
        return;
    for (int turn = 0; turn < 2; turn++) {
        say("/clear");
        cr_assert(pty_wait_prompt(tty));
        say(turn ? "And another one?" : "Name an animal.");
        cr_assert(pty_wait_prompt(tty));
        cr_expect(screen_shows(&tty->screen, "\"legs\": 4"), "%s", screen_text(&tty->screen));
        cr_expect(screen_shows(&tty->screen, "\"animal\": \"fox\"") ||
                      screen_shows(&tty->screen, "\"animal\": \"owl\""),
                  "%s", screen_text(&tty->screen));
    }
    say_bye();
}

// A form that is a call of a tool, in a template that speaks of such calls. A chat offers no tools, so nothing runs it: it is
// text like any other, shown and kept whole.
Test(chat_pty, a_call_of_a_tool_is_shown_and_kept)
{
    static const char form[] =
        "root ::= \"<tool_call>{\\\"name\\\": \\\"weather\\\", \\\"arguments\\\": {\\\"city\\\": \\\"Oslo\\\"}}"
        "</tool_call>\"";
    static const char template[] =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if tools %}Answer by <tool_call>{\"name\": ...}</tool_call>{% endif %}"
        "<|im_start|>assistant\n";
    FILE *f = fopen(in_folder("tool.jinja"), "w");
    cr_assert(f && fputs(template, f) >= 0 && fclose(f) == 0);
    char path[300], session[300];
    snprintf(path, sizeof path, "%s", in_folder("tool.jinja"));
    snprintf(session, sizeof session, "%s", in_folder("tool.json"));
    if (!chat_builtin(
            (const char *const[]){"--chat-template-file", path, "--grammar", form, "--session", session, NULL}))
        return;
    say("What is the weather in Oslo?");
    expect_text("weather");
    cr_assert(pty_wait_prompt(tty));
    cr_expect(screen_shows(&tty->screen, "Oslo\"}}"), "%s", screen_text(&tty->screen));
    say_bye();
    char *saved = read_file(session);
    cr_expect(strstr(saved, "<tool_call>{\\\"name\\\": \\\"weather\\\""), "%s", saved);
    free(saved);
}

// Of all tokens four words: noise may be no UTF-8, which neither JSON nor a template keeps.
#define WORDS "--chat-template chatml -l 300+90 -l 310+90 -l 320+90 -l 330+90"

static int run_piped(const char *in, const char *flags, char *out, char *err, size_t size)
{
    char command[1000];
    FILE *f = fopen(in_folder("in"), "w");
    cr_assert(f && fputs(in, f) >= 0 && fclose(f) == 0);
    snprintf(command, sizeof command, "'%s' chat -m '%s' -t 1 --temp 0 %s < '%s' > '%s' 2> '%s'", program(), model,
             flags, in_folder("in"), in_folder("out"), in_folder("err"));
    int status = system(command);
    char *data = read_file(in_folder("out"));
    snprintf(out, size, "%s", data);
    free(data);
    data = read_file(in_folder("err"));
    snprintf(err, size, "%s", data);
    free(data);
    return WEXITSTATUS(status);
}

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

Test(chat_pty, a_pipe_is_a_turn_a_line_and_gets_the_answers_alone)
{
    static char out[1 << 16], err[1 << 16], again[1 << 16];
    cr_expect_eq(run_piped("one\n\n\"\"\"two\nlines\"\"\"\n/set predict 3\nthree", "-n 8", out, err, sizeof out), 0);
    cr_expect_geq(count_lines(out), 3, "%s", out);
    cr_expect(!strchr(out, '\033') && !strchr(out, '>') && !strchr(err, '\033'), "%s", out);
    cr_expect(!strstr(err, "tokens/s"), "%s", err);
    cr_expect_eq(run_piped("one\n\n\"\"\"two\nlines\"\"\"\n/set predict 3\nthree", "-n 8", again, err, sizeof out), 0);
    cr_expect_str_eq(out, again);
    cr_expect_eq(run_piped("/nonsense\none\n", "-n 8", again, err, sizeof out), 1);
    cr_expect(strstr(err, "/nonsense: no such command"));
    cr_expect(!strncmp(out, again, strlen(again)), "the first answer is the same");
}

// The statistics of the i-th answer.
static void find_counts(const char *err, int i, int *n_new, int *n_prompt, int *n_context)
{
    const char *at = err - 1;
    for (; i >= 0 && at; i--)
        at = strstr(at + 1, "[prompt: ");
    cr_assert(at, "%s", err);
    cr_assert_eq(sscanf(at, "[prompt: %d new of %d tokens", n_new, n_prompt), 2);
    at = strstr(at, "context: ");
    cr_assert(at && sscanf(at, "context: %d of", n_context) == 1);
}

Test(chat_pty, each_turn_computes_only_what_is_new)
{
    static char out[1 << 16], err[1 << 16];
    cr_expect_eq(run_piped("first\nsecond message\nthird\n", "-n 30 --stats " WORDS, out, err, sizeof out), 0);
    int n_new, n_prompt, before, after;
    find_counts(err, 0, &n_new, &n_prompt, &before);
    cr_expect_eq(n_new, n_prompt);
    for (int i = 1; i < 3; i++, before = after) {
        find_counts(err, i, &n_new, &n_prompt, &after);
        cr_expect_eq(n_new, n_prompt - before, "turn %d: %d computed, %d of %d were held", i, n_new, before, n_prompt);
    }
}

// --session finds under its name what /save kept, and what an earlier --session kept.
Test(chat_pty, a_session_is_found_by_the_name_it_was_kept_under)
{
    static char out[1 << 16], err[1 << 16];
    char flags[200];
    snprintf(flags, sizeof flags, "-n 6 %s", WORDS);
    cr_expect_eq(run_piped("first\n/save talk\n", flags, out, err, sizeof out), 0, "%s", err);
    snprintf(flags, sizeof flags, "-n 6 %s --session talk", WORDS);
    cr_expect_eq(run_piped("second\n", flags, out, err, sizeof out), 0, "%s", err);
    cr_expect(strstr(err, "[2 messages from ") && strstr(err, "quern/sessions/talk.json go on"), "%s", err);
    cr_expect_eq(run_piped("", flags, out, err, sizeof out), 0, "%s", err);
    cr_expect(strstr(err, "[4 messages from "), "%s", err);
}

Test(chat_pty, a_session_goes_on_where_it_was)
{
    static char out[1 << 16], err[1 << 16], whole[1 << 16];
    char flags[300];
    char words[100];
    snprintf(words, sizeof words, "-n 6 %s", WORDS);
    cr_expect_eq(run_piped("first\nsecond\nthird\n", words, whole, err, sizeof out), 0);
    cr_assert(utf8_valid(str_from(whole)));
    for (int with_cache = 0; with_cache < 2; with_cache++) {
        snprintf(flags, sizeof flags, "%s --stats --session '%s' %s", words,
                 in_folder(with_cache ? "b.json" : "a.json"), with_cache ? "--cache" : "");
        cr_expect_eq(run_piped("first\nsecond\n", flags, out, err, sizeof out), 0, "%s", err);
        size_t n = strlen(out);
        cr_expect(!strncmp(whole, out, n));
        int n_new, n_prompt, before, context;
        find_counts(err, 1, &n_new, &n_prompt, &before);
        cr_expect_eq(run_piped("third\n", flags, out, err, sizeof out), 0, "%s", err);
        cr_expect(strstr(err, "[4 messages from ") && strstr(err, " go on; the last question was: second]"), "%s", err);
        find_counts(err, 0, &n_new, &n_prompt, &context);
        cr_expect_eq(n_new, with_cache ? n_prompt - before : n_prompt);
        if (with_cache)
            cr_expect_str_eq(out, whole + n);
    }
}
