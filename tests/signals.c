// Linked into every test. A shell that runs the tests in the background makes its children ignore some signals, which quern
// respects; tests that send these signals do not want that, and neither a test nor a program that it starts inherits it.
#include <signal.h>
#include <stddef.h>

static void __attribute__((constructor)) stop_ignoring(void)
{
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL);
}
