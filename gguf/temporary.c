// A name is entered before its file is created, so that no signal finds a file that is not in the list. The random part
// of a name makes it unlikely that the file exists; if it does, the name is taken out again and another one is tried.
#include "gguf/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { TEMPORARIES_MAX = 256, TRIES = 100 };
static _Atomic(const char *) names[TEMPORARIES_MAX];

static int enter(const char *name)
{
    for (int i = 0; i < TEMPORARIES_MAX; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong(&names[i], &none, name))
            return 0;
    }
    errno = EMFILE;
    return -1;
}

static void forget(const char *name)
{
    for (int i = 0; i < TEMPORARIES_MAX; i++) {
        const char *there = name;
        if (atomic_compare_exchange_strong(&names[i], &there, NULL))
            return;
    }
}

static uint64_t random_word(int try)
{
    uint64_t word;
    if (getrandom(&word, sizeof word, GRND_NONBLOCK) == (ssize_t)sizeof word)
        return word;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_nsec << 32 ^ (uint64_t)getpid() << 8 ^ (uint64_t)try;
}

int temporary_create(const char *path, char *name, mode_t mode)
{
    for (int try = 0; try < TRIES; try++) {
        snprintf(name, strlen(path) + TEMPORARY_SUFFIX, "%s.%016llx.tmp", path, (unsigned long long)random_word(try));
        if (enter(name))
            return -1;
        const int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, mode);
        if (fd >= 0)
            return fd;
        const int cause = errno;
        forget(name);
        errno = cause;
        if (cause != EEXIST)
            return -1;
    }
    return -1;
}

int temporary_rename(const char *name, const char *path)
{
    if (rename(name, path))
        return -1;
    forget(name);
    return 0;
}

void temporary_remove(const char *name)
{
    unlink(name);
    forget(name);
}

void temporary_remove_all(void)
{
    for (int i = 0; i < TEMPORARIES_MAX; i++) {
        const char *name = atomic_exchange(&names[i], NULL);
        if (name)
            unlink(name);
    }
}
