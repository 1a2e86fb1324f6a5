// Finds the verb by a linear search of the table that verbs.def fills, and runs it. A verb that succeeds still fails
// with E_IO if what stdio has buffered for stdout cannot be written.
#include "cmd/verbs.h"
#include "cmd/habits.h"
#include "cmd/options.h"
#include "cmd/terminal/terminal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

const struct verb verbs[VERB_COUNT] = {
#define VERB(NAME, name, usage, summary) {#name, usage, summary, cmd_##name},
#include "cmd/verbs.def"
#undef VERB
};

int verb_fail(const struct error *err)
{
    if (err->text[0]) // an empty text means that there is nobody to tell, see terminal_write
        terminal_note("quern: %s", err->text);
    return (int)err->code;
}

static const struct verb *find_verb(const char *name)
{
    for (int i = 0; i < VERB_COUNT; i++)
        if (!strcmp(verbs[i].name, name))
            return &verbs[i];
    return NULL;
}

static int unknown_verb(const char *word)
{
    const char *names[VERB_COUNT];
    for (int i = 0; i < VERB_COUNT; i++)
        names[i] = verbs[i].name;
    const char *near = options_nearest(word, names, VERB_COUNT);
    struct error err;
    const char *habit = habit_of_verb(word);
    if (habit) {
        fail(&err, E_USAGE, "%s: %s", word, habit);
        return verb_fail(&err);
    }
    const char *dot = strrchr(word, '.');
    if (word[0] == '-')
        fail(&err, E_USAGE, "%s: a verb comes first, as in `quern run %s ...`; see `quern help`", word, word);
    else if ((dot && !strcmp(dot, ".gguf")) || strpbrk(word, ":/"))
        fail(&err, E_USAGE, "%s: a verb comes first: `quern run %s PROMPT`, `quern chat %s`", word, word, word);
    else
        fail(&err, E_USAGE, "%s: unknown verb%s%s; see `quern help`", word, near ? ", did you mean " : "",
             near ? near : "");
    return verb_fail(&err);
}

// A thread's stack has the size of the limit with which the program began.
static void widen_threads(size_t size)
{
    pthread_attr_t attr;
    if (pthread_attr_init(&attr))
        return;
    if (!pthread_attr_setstacksize(&attr, size))
        pthread_setattr_default_np(&attr);
    pthread_attr_destroy(&attr);
}

// Widens stacks that would be too small for texts and templates nested as deeply as is allowed, as far as the hard limit lets.
static int widen_stack(struct error *err)
{
    enum { LEAST = 256 << 10, ENOUGH = 1 << 20, WANTED = 8 << 20 }; // bytes
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= ENOUGH)
        return 0;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = MIN(limit.rlim_max, (rlim_t)WANTED);
    const rlim_t now = setrlimit(RLIMIT_STACK, &limit) ? before : limit.rlim_cur;
    if (now < LEAST)
        return fail(err, E_MEMORY, "the stack may have %llu KiB (ulimit -s), %d are needed",
                    (unsigned long long)now >> 10, LEAST >> 10);
    widen_threads(WANTED);
    return 0;
}

int verb_main(int argc, char **argv)
{
    struct error err;
    terminal_start();
    if (widen_stack(&err))
        return verb_fail(&err);
    if (argc < 2)
        return help_greet();
    const char *word = argv[1];
    if (!strcmp(word, "--version") || !strcmp(word, "-V"))
        word = "version";
    if (!strcmp(word, "-h") || !strcmp(word, "--help"))
        word = "help";
    const struct verb *verb = find_verb(word);
    if (!verb)
        return unknown_verb(word);
    int status = verb->run(argc - 1, argv + 1);
    // what stdio still buffers must be written before success is reported
    if (fflush(stdout) == 0 || status != E_OK)
        return status;
    fail(&err, E_IO, "stdout: %s", strerror(errno));
    return verb_fail(&err);
}
