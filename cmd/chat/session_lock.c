// The file is removed by its owner while it is still locked. So a lock counts only if the file that was locked is still the
// one of that name; else the owner removed it between opening and locking, and the next try makes a new one.
#include "cmd/chat/session_lock.h"
#include "engine/file_replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// Of a symbolic link, the file behind it is locked, because that is what is written.
static char *lock_path(const char *session)
{
    char *real = realpath(session, NULL), *out;
    const int n = asprintf(&out, "%s.lock", real ? real : session);
    free(real);
    return n < 0 ? NULL : out;
}

static bool is_same(int a, int b)
{
    struct stat one, two;
    return !fstat(a, &one) && !fstat(b, &two) && file_is_same(&one, &two);
}

static bool is_file_of(int fd, const char *path)
{
    struct stat held, named;
    return !fstat(fd, &held) && !lstat(path, &named) && file_is_same(&held, &named);
}

enum attempt { ATTEMPT_HELD, ATTEMPT_OWN, ATTEMPT_AGAIN, ATTEMPT_FAILED };

static enum attempt try_lock(const struct session_lock *lock, const char *session, const struct session_lock *own,
                             struct error *err)
{
    if (own && own->path && is_same(lock->fd, own->fd))
        return ATTEMPT_OWN;
    if (flock(lock->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        fail(err, E_USAGE, "%s: in use by another quern; end that chat, or copy the file and continue the copy",
             session);
        return ATTEMPT_FAILED;
    }
    return is_file_of(lock->fd, lock->path) ? ATTEMPT_HELD : ATTEMPT_AGAIN;
}

static void drop(struct session_lock *lock)
{
    if (lock->fd >= 0)
        close(lock->fd);
    free(lock->path);
    *lock = (struct session_lock){.fd = -1};
}

int session_lock_take(struct session_lock *lock, const char *session, const struct session_lock *own, struct error *err)
{
    *lock = (struct session_lock){.path = lock_path(session), .fd = -1};
    if (!lock->path)
        return fail(err, E_MEMORY, "no memory for a path");
    enum attempt attempt = ATTEMPT_AGAIN;
    while (attempt == ATTEMPT_AGAIN) {
        if (lock->fd >= 0)
            close(lock->fd);
        lock->fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (lock->fd < 0)
            fail(err, E_IO, "%s: cannot be written: %s", lock->path, strerror(errno));
        attempt = lock->fd < 0 ? ATTEMPT_FAILED : try_lock(lock, session, own, err);
    }
    if (attempt != ATTEMPT_HELD)
        drop(lock);
    return attempt == ATTEMPT_FAILED ? -1 : 0;
}

void session_lock_release(struct session_lock *lock)
{
    struct stat st;
    if (!lock->path)
        return;
    if (!fstat(lock->fd, &st) && !st.st_size) // a file of that name with a content is somebody else's
        unlink(lock->path);
    drop(lock);
}
