// A handler may call little but write, so the lines are put together by hand. A bar that is on the line is erased first;
// if it is drawn again, it is on the next line.
#include "cmd/batch/batch_interrupt.h"
#include "cmd/terminal/terminal.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

static atomic_bool can_resume, on_terminal;
static _Atomic int64_t n_under_way;

struct line {
    char bytes[256];
    size_t n;
};

static void put(struct line *l, const char *text)
{
    for (; *text && l->n < sizeof l->bytes; text++)
        l->bytes[l->n++] = *text;
}

static void put_number(struct line *l, int64_t number)
{
    char digits[24];
    size_t at = sizeof digits - 1;
    for (digits[at] = '\0'; number > 0 && at; number /= 10)
        digits[--at] = (char)('0' + number % 10);
    put(l, digits + at);
}

static void begin(struct line *l)
{
    l->n = 0;
    put(l, atomic_load(&on_terminal) ? "\r\033[Kquern: " : "quern: ");
}

static void say(struct line *l)
{
    put(l, "\n");
    ssize_t ignored = write(STDERR_FILENO, l->bytes, l->n);
    (void)ignored;
}

static void say_draining(int number)
{
    struct line l;
    const int64_t n = atomic_load(&n_under_way);
    begin(&l);
    put(&l, "finishing ");
    if (n > 0)
        put_number(&l, n);
    put(&l, n <= 0 ? "the answers under way" : n == 1 ? " answer" : " answers");
    put(&l, number == SIGINT ? "; Ctrl-C again stops" : "; a second signal stops");
    put(&l, atomic_load(&can_resume) ? ", and the same command goes on" : "");
    say(&l);
}

static void on_signal(int number)
{
    const int cause = errno;
    struct line l;
    if (number != SIGINT)
        atomic_store(&terminal_terminated, true);
    if (atomic_exchange(&terminal_interrupted, true)) {
        begin(&l);
        put(&l, atomic_load(&can_resume) ? "stopped; the same command goes on" : "stopped");
        say(&l);
        terminal_end(E_INTERRUPTED);
    }
    say_draining(number);
    errno = cause;
}

void batch_interrupt_watch(bool resumable)
{
    atomic_store(&can_resume, resumable);
    atomic_store(&on_terminal, terminal_is_tty(STDERR_FILENO));
    terminal_on_interrupt(on_signal);
}

void batch_interrupt_count(int64_t n_answers)
{
    atomic_store(&n_under_way, n_answers);
}
