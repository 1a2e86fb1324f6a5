// Signal handlers set atomic flags and write to a pipe that wakes whoever polls; those that end or stop the process
// restore the terminal's modes first, and those that end it remove temporary files. A bus error within a mapped file is
// reported as a changed file. The writers, the filter of untrusted text and the JSON strings come after that.
#include "cmd/terminal/terminal.h"
#include "cmd/terminal/display.h"
#include "gguf/mapped.h"
#include "gguf/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

// Signals are sent to the process, not to an object, so the flags of their handlers are the only global state that
// changes in the program.
atomic_bool terminal_interrupted, terminal_terminated, terminal_resized;
static atomic_int phase = PHASE_LOADING;
static int wake_pipe[2] = {-1, -1};

// The modes of the terminal on stdin: those found at the start, and the other modes. Valid once `saved` is set.
static atomic_bool saved;
static atomic_int mode_now = MODE_COOKED;
static struct termios modes[3];
static atomic_int n_typed_before; // bytes that waited on stdin when the original modes were left

// --- signals ---

static void say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void wake(void)
{
    ssize_t ignored = wake_pipe[1] < 0 ? 0 : write(wake_pipe[1], "", 1);
    (void)ignored;
}

static atomic_bool has_bar;

void terminal_set_bar(bool shown)
{
    atomic_store(&has_bar, shown);
}

// Restores the original modes, and clears a bar. May be called from a handler, since tcsetattr is async-signal-safe.
// Bracketed paste is on only while a line is edited.
static void restore(void)
{
    if (atomic_exchange(&has_bar, false))
        say("\r\033[K");
    int mode = atomic_exchange(&mode_now, MODE_COOKED);
    if (!atomic_load(&saved) || mode == MODE_COOKED)
        return;
    tcsetattr(STDIN_FILENO, TCSANOW, &modes[MODE_COOKED]);
    if (mode == MODE_EDITING)
        say("\033[?2004l");
}

_Noreturn void terminal_end(int status)
{
    temporary_remove_all();
    restore();
    _exit(status);
}

static void on_interrupt(int number)
{
    int cause = errno;
    if (number != SIGINT)
        atomic_store(&terminal_terminated, true);
    if (atomic_load(&phase) == PHASE_LOADING || atomic_exchange(&terminal_interrupted, true))
        terminal_end(E_INTERRUPTED);
    wake();
    errno = cause;
}

static void on_resize(int number)
{
    int cause = errno;
    (void)number;
    atomic_store(&terminal_resized, true);
    wake();
    errno = cause;
}

// Removes temporary files and restores the terminal before a signal ends the process in the default way: the signal, raised
// again, is delivered when this handler returns.
static void on_crash(int number)
{
    temporary_remove_all();
    restore();
    signal(number, SIG_DFL);
    raise(number);
}

// Stops the process as the system does by default, which spares one that nobody could continue: whose process group has
// no parent in its session, as in a window that was opened for this program alone.
static void stop(int number)
{
    struct sigaction as_usual = {.sa_handler = SIG_DFL}, before;
    sigset_t it;
    sigemptyset(&it);
    sigaddset(&it, number);
    sigaction(number, &as_usual, &before);
    raise(number);
    pthread_sigmask(SIG_UNBLOCK, &it, NULL); // here the process stops
    pthread_sigmask(SIG_BLOCK, &it, NULL);
    sigaction(number, &before, NULL);
}

// To be called when the original modes were left. May be called from a handler.
static void count_typed_before(void)
{
    int n = 0;
    if (!ioctl(STDIN_FILENO, FIONREAD, &n))
        atomic_store(&n_typed_before, n);
}

// Handles Ctrl-Z during an answer. Until the process is stopped, and when it goes on, keys may be typed in the original modes.
static void on_stop(int number)
{
    int cause = errno, mode = atomic_load(&mode_now);
    restore();
    stop(number);
    if (mode != MODE_COOKED && !tcsetattr(STDIN_FILENO, TCSANOW, &modes[mode])) {
        atomic_store(&mode_now, mode);
        count_typed_before();
    }
    errno = cause;
}

// Writes a path without characters that a terminal would interpret. A handler may call nothing but write.
static void say_path(const char *path)
{
    for (; *path; path++) {
        char c[2] = {(unsigned char)*path < 0x20 || (unsigned char)*path >= 0x7f ? '?' : *path, '\0'};
        say(c);
    }
}

// Several threads may meet the lost pages of a file at once: the first one speaks and ends the process.
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static atomic_flag is_told = ATOMIC_FLAG_INIT;
    (void)context;
    // a fault has a code above 0; a signal sent by a process carries no address
    const char *path = info->si_code > 0 ? mapped_find(info->si_addr) : NULL;
    if (!path) {
        on_crash(number);
        return;
    }
    while (atomic_flag_test_and_set(&is_told))
        pause();
    if (atomic_exchange(&has_bar, false))
        say("\r\033[K");
    say("quern: ");
    say_path(path);
    say(": model file changed while it was in use; run again with the whole file\n");
    terminal_end(E_IO);
}

void terminal_on_interrupt(void (*handler)(int number))
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = handler}, before;
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        if (!sigaction(numbers[i], NULL, &before) && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
}

static void watch_end(int number)
{
    struct sigaction end = {.sa_handler = on_crash}, before;
    if (!sigaction(number, NULL, &before) && before.sa_handler == SIG_DFL)
        sigaction(number, &end, NULL);
}

// Handles what ends the process by default, unless somebody else does already, as a sanitizer does.
static void watch_ends(void)
{
    static const int ends[] = {SIGSEGV, SIGILL,  SIGFPE,  SIGABRT,   SIGQUIT, SIGSYS,    SIGTRAP, SIGXCPU,
                               SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGSTKFLT, SIGIO,   SIGPWR};
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        watch_end(ends[i]);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        watch_end(number);
}

// Occupies the descriptors of stdin, stdout and stderr if they are closed, or a file opened later would get such a number
// and be written to as if it were stderr. Their modes make every use of them the error that it is.
static void occupy_standard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_NOCTTY) != fd)
            _exit(E_IO);
}

// Lets reads and writes of a standard stream wait, where the program that made the stream has asked for the opposite. The flag
// belongs to the open file, which other processes have, too, and may rely on: so pipes and terminals are opened anew. The flag
// of what cannot be opened so, such as a socket, is cleared. Regular files never wait.
static void make_waiting(int fd)
{
    struct stat st;
    char path[40];
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || !(flags & O_NONBLOCK) || fstat(fd, &st) || S_ISREG(st.st_mode))
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    // with the flag, opening itself does not wait for the other end of a pipe
    const bool has_place = !S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode); // a new open file begins at the beginning
    const int own = has_place ? -1 : open(path, (flags & O_ACCMODE) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own < 0 || fcntl(own, F_SETFL, flags & ~O_NONBLOCK) || dup2(own, fd) < 0)
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    if (own >= 0)
        close(own);
}

void terminal_start(void)
{
    occupy_standard();
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        make_waiting(fd);
    struct sigaction bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO}, ignore = {.sa_handler = SIG_IGN};
    terminal_on_interrupt(on_interrupt);
    watch_ends();
    sigaction(SIGBUS, &bus, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}

void terminal_set_phase(enum terminal_phase now)
{
    atomic_store(&phase, (int)now);
}

// --- a terminal with somebody typing ---

// Ignores SIGTTOU, which would stop a background process that sets modes.
static void watch_terminal(void)
{
    struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    sigaction(SIGTSTP, &stop, NULL);
    atexit(restore);
}

static bool save_modes(void)
{
    if (atomic_load(&saved))
        return true;
    if (tcgetattr(STDIN_FILENO, &modes[MODE_COOKED]))
        return false;
    struct termios *editing = &modes[MODE_EDITING], *answering = &modes[MODE_ANSWERING];
    *editing = modes[MODE_COOKED];
    editing->c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IGNCR | IXON | ISTRIP | BRKINT);
    editing->c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN | ISIG);
    editing->c_cc[VMIN] = 1;
    editing->c_cc[VTIME] = 0;
    *answering = *editing;
    answering->c_lflag |= ISIG;
    watch_terminal();
    atomic_store(&saved, true);
    return true;
}

void terminal_set_mode(enum terminal_mode mode)
{
    if (!terminal_is_tty(STDIN_FILENO) || !save_modes())
        return;
    // TCSADRAIN keeps what has been typed ahead
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &modes[mode]))
        return;
    if (atomic_exchange(&mode_now, (int)mode) == MODE_COOKED && mode != MODE_COOKED)
        count_typed_before();
}

size_t terminal_typed_before(void)
{
    int waiting = 0;
    const int before = atomic_exchange(&n_typed_before, 0);
    // fewer are left where a signal of the terminal has dropped them
    return before && !ioctl(STDIN_FILENO, FIONREAD, &waiting) ? (size_t)MIN(before, waiting) : 0;
}

void terminal_suspend(void)
{
    raise(SIGTSTP);
}

void terminal_size(int fd, int *cols, int *rows)
{
    struct winsize size = {0};
    bool known = !ioctl(fd, TIOCGWINSZ, &size) && size.ws_col && size.ws_row;
    *cols = known ? size.ws_col : 80;
    *rows = known ? size.ws_row : 24;
}

int terminal_wake_fd(void)
{
    if (wake_pipe[0] >= 0)
        return wake_pipe[0];
    if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK))
        return -1;
    struct sigaction resize = {.sa_handler = on_resize, .sa_flags = SA_RESTART};
    sigaction(SIGWINCH, &resize, NULL);
    return wake_pipe[0];
}

void terminal_wake_clear(void)
{
    char bytes[64];
    while (read(wake_pipe[0], bytes, sizeof bytes) > 0)
        ;
}

// --- output ---

bool terminal_is_tty(int fd)
{
    return isatty(fd);
}

bool terminal_obeys_escapes(void)
{
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb");
}

// Writes all of it. `gives_way`: an interrupt ends the wait for whoever reads a pipe, with EINTR.
static int write_all(int fd, struct str text, bool gives_way)
{
    while (text.len) {
        ssize_t n = write(fd, text.data, text.len);
        if (n < 0 && errno == EINTR && !(gives_way && atomic_load(&terminal_interrupted)))
            continue;
        if (n < 0)
            return -1;
        text.data += n;
        text.len -= (size_t)n;
    }
    return 0;
}

int terminal_write_fd(int fd, struct str text)
{
    return write_all(fd, text, false);
}

int terminal_write(struct str text, struct error *err)
{
    if (!write_all(STDOUT_FILENO, text, true))
        return 0;
    int cause = errno;
    if (cause == EINTR)
        return fail(err, E_INTERRUPTED, "interrupted while stdout was written");
    fail(err, E_IO, "stdout: %s", strerror(cause));
    if (cause == EPIPE && err)
        err->text[0] = '\0';
    return -1;
}

static bool is_harmless(uint32_t cp)
{
    return cp == '\n' || cp == '\t' || utf8_printable(cp);
}

size_t terminal_filter(struct str text, char *out)
{
    char *at = out;
    for (size_t i = 0; i < text.len;) {
        uint32_t cp;
        int n = utf8_decode(text.data + i, text.len - i, &cp);
        if (!n) {
            at += utf8_encode(0xfffd, at);
            i++;
            continue;
        }
        if (is_harmless(cp)) {
            memcpy(at, text.data + i, (size_t)n);
            at += n;
        }
        i += (size_t)n;
    }
    return (size_t)(at - out);
}

int terminal_write_untrusted(struct str text, struct error *err)
{
    if (!terminal_is_tty(STDOUT_FILENO))
        return terminal_write(text, err);
    char out[3 * 256];
    while (text.len) {
        size_t n = MIN(text.len, (size_t)256);
        // a piece must not end within a character
        for (int back = 0; back < 3 && n < text.len && n > 1 && ((uint8_t)text.data[n] & 0xc0) == 0x80; back++)
            n--;
        if (terminal_write((struct str){out, terminal_filter((struct str){text.data, n}, out)}, err))
            return -1;
        text.data += n;
        text.len -= n;
    }
    return 0;
}

// The bytes of a line's beginning that fill at most so many cells, with room for an ellipsis if it must be cut.
static size_t beginning(struct str line, int columns, bool *cut)
{
    size_t at = 0, kept = 0;
    *cut = false;
    for (int used = 0, width; at < line.len; used += width) {
        const size_t next = display_next(line, at, &width);
        *cut = used + width > columns;
        if (*cut)
            break;
        at = next;
        if (used + width < columns)
            kept = at;
    }
    return *cut ? kept : line.len;
}

int terminal_write_table(struct str text, struct error *err)
{
    if (!terminal_is_tty(STDOUT_FILENO))
        return terminal_write(text, err);
    int columns, rows, status = 0;
    terminal_size(STDOUT_FILENO, &columns, &rows);
    while (text.len && !status) {
        const char *end = memchr(text.data, '\n', text.len);
        const struct str line = {text.data, end ? (size_t)(end - text.data) : text.len};
        bool cut;
        const size_t n = beginning(line, columns, &cut);
        status = terminal_write_untrusted((struct str){line.data, n}, err);
        if (!status)
            status = terminal_write(cut ? STR_LIT("…\n") : STR_LIT("\n"), err);
        text.data += line.len + (end != NULL);
        text.len -= line.len + (end != NULL);
    }
    return status;
}

// Prints a line on stderr, which a terminal breaks between words. False: no memory for that.
static bool note_broken(struct str line)
{
    int columns, rows;
    struct text out = {0};
    terminal_size(STDERR_FILENO, &columns, &rows);
    display_print_lines(&out, 0, 0, columns, line);
    const bool whole = !out.failed;
    if (whole)
        fprintf(stderr, "%.*s", (int)out.size, out.data);
    text_free(&out);
    return whole;
}

void terminal_note(const char *fmt, ...)
{
    char raw[1024], out[3 * sizeof raw];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    if (n < 0)
        return;
    const struct str line = {out, terminal_filter((struct str){raw, MIN((size_t)n, sizeof raw - 1)}, out)};
    if (!terminal_is_tty(STDERR_FILENO) || !note_broken(line))
        fprintf(stderr, "%.*s\n", STR_ARG(line));
}

bool terminal_has_colours(void)
{
    const char *no_color = getenv("NO_COLOR");
    return terminal_obeys_escapes() && terminal_is_tty(STDERR_FILENO) && !(no_color && *no_color);
}

void terminal_aside(const char *text)
{
    const bool dim = terminal_has_colours();
    if (dim)
        terminal_write_fd(STDERR_FILENO, STR_LIT("\033[2m"));
    terminal_note("%s", text);
    if (dim)
        terminal_write_fd(STDERR_FILENO, STR_LIT("\033[0m"));
}

// --- JSON ---

static void print_json_character(struct text *out, uint32_t cp, const char *bytes, int n)
{
    static const char escapes[] = "\"\"\\\\\bb\ff\nn\rr\tt"; // pairs of a character and its escape letter
    for (size_t i = 0; i + 1 < sizeof escapes; i += 2)
        if (cp == (uint32_t)escapes[i]) {
            text_print(out, "\\%c", escapes[i + 1]);
            return;
        }
    if (cp < 0x20 || cp == 0x7f)
        text_print(out, "\\u%04x", cp);
    else
        text_print(out, "%.*s", n, bytes);
}

void terminal_print_json(struct text *out, struct str text)
{
    text_print(out, "\"");
    for (size_t i = 0; i < text.len;) {
        uint32_t cp;
        int n = utf8_decode(text.data + i, text.len - i, &cp);
        if (n)
            print_json_character(out, cp, text.data + i, n);
        else
            text_print(out, "\xef\xbf\xbd");
        i += (size_t)MAX(n, 1);
    }
    text_print(out, "\"");
}

void terminal_escape_json(struct text *out, struct str json)
{
    size_t start = 0;
    for (size_t i = 0; i < json.len;) {
        uint32_t cp = 0;
        const int n = utf8_decode(json.data + i, json.len - i, &cp);
        const size_t next = i + (size_t)MAX(n, 1);
        cp = n ? cp : 0xFFFD;
        if (!n || !is_harmless(cp)) {
            text_append(out, (struct str){json.data + start, i - start});
            text_print(out, "\\u%04x", cp); // all that is not printable has at most four digits
            start = next;
        }
        i = next;
    }
    text_append(out, (struct str){json.data + start, json.len - start});
}

int terminal_write_json(struct str json, struct error *err)
{
    if (!terminal_is_tty(STDOUT_FILENO))
        return terminal_write(json, err);
    struct text out = {0};
    terminal_escape_json(&out, json);
    const int status = out.failed ? fail(err, E_MEMORY, "no memory for the output")
                                  : terminal_write((struct str){out.data, out.size}, err);
    text_free(&out);
    return status;
}
