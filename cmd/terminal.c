#include "cmd/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// Signals come to the process, not to an object: what their handlers read is the only state of its kind in the program.
atomic_bool terminal_interrupted;
static atomic_int phase = PHASE_LOADING;

enum { MAPPINGS_MAX = 64 };
static struct {
    const char *from, *to, *path;
} mappings[MAPPINGS_MAX];
static atomic_int n_mappings;

// --- signals ---

static void say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void on_interrupt(int number)
{
    (void)number;
    if (atomic_load(&phase) == PHASE_LOADING || atomic_exchange(&terminal_interrupted, true))
        _exit(E_INTERRUPTED);
}

// Of the path only what may reach a terminal: a handler calls nothing but write.
static void say_path(const char *path)
{
    for (; *path; path++) {
        char c[2] = {(unsigned char)*path < 0x20 || (unsigned char)*path >= 0x7f ? '?' : *path, '\0'};
        say(c);
    }
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    const char *at = info->si_addr;
    // a fault has a code above 0; what another process sends has no address
    for (int i = 0; info->si_code > 0 && i < atomic_load(&n_mappings); i++) {
        if (at < mappings[i].from || at >= mappings[i].to)
            continue;
        say("quern: ");
        say_path(mappings[i].path);
        say(": model file changed while it was in use; run again with the whole file\n");
        _exit(E_IO);
    }
    signal(number, SIG_DFL);
    raise(number);  // comes when this handler has returned
}

void terminal_start(void)
{
    struct sigaction interrupt = {.sa_handler = on_interrupt},
                     bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGTERM, &interrupt, NULL);
    sigaction(SIGBUS, &bus, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

void terminal_set_phase(enum terminal_phase now)
{
    atomic_store(&phase, (int)now);
}

void terminal_watch_mapping(const void *from, const void *to, const char *path)
{
    // the kernel faults by whole pages: the last one reaches past the last tensor
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int n = atomic_load(&n_mappings);
    if (n == MAPPINGS_MAX)
        return;
    mappings[n].from = from;
    mappings[n].to = (const char *)to + page;
    mappings[n].path = path;
    atomic_store(&n_mappings, n + 1);
}

// --- output ---

bool terminal_is_tty(int fd)
{
    return isatty(fd);
}

int terminal_write(struct str text, struct error *err)
{
    while (text.len) {
        ssize_t n = write(STDOUT_FILENO, text.data, text.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int cause = errno;
            fail(err, E_IO, "stdout: %s", strerror(cause));
            if (cause == EPIPE && err)
                err->text[0] = '\0';
            return -1;
        }
        text.data += n;
        text.len -= (size_t)n;
    }
    return 0;
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
        // no character is cut in two where a piece ends
        for (int back = 0; back < 3 && n < text.len && n > 1 && ((uint8_t)text.data[n] & 0xc0) == 0x80; back++)
            n--;
        if (terminal_write((struct str){out, terminal_filter((struct str){text.data, n}, out)}, err))
            return -1;
        text.data += n;
        text.len -= n;
    }
    return 0;
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
    size_t len = terminal_filter((struct str){raw, MIN((size_t)n, sizeof raw - 1)}, out);
    fprintf(stderr, "%.*s\n", (int)len, out);
}

// --- JSON ---

static void print_json_character(struct text *out, uint32_t cp, const char *bytes, int n)
{
    static const char escapes[] = "\"\"\\\\\bb\ff\nn\rr\tt";  // pairs: the character and its letter
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
