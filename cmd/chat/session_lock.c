// The file is removed by its owner while it is still locked. So a lock counts only if the file that was locked is still the
// one of that name; else the owner removed it between opening and locking, and the next try makes a new one. What has the
// name and is no such file, which is empty, regular and has no other name, is somebody else's: it is neither opened nor
// removed.
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

static bool is_file_of(int fd, const char *path)
{
    struct stat held, named;
    return !fstat(fd, &held) && !lstat(path, &named) && file_is_same(&held, &named);
}

// Whether this may be the file of a lock. One that its owner has just removed has no link.
static bool is_lock(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_size == 0 && st->st_nlink <= 1;
}

static int refuse(const struct session_lock *lock, struct error *err)
{
    return fail(err, E_USAGE, "%s: is there already and is no lock of a session; move it away", lock->path);
}

enum attempt { ATTEMPT_HELD, ATTEMPT_OWN, ATTEMPT_AGAIN, ATTEMPT_FAILED };

// Opens the file, which is made if it is not there. It may be replaced between lstat and open: nothing of what then is opened
// waits, nor becomes the terminal of the process.
static int open_lock(struct session_lock *lock, struct error *err)
{
    struct stat there, opened;
    if (!lstat(lock->path, &there) && !is_lock(&there))
        return refuse(lock, err);
    lock->fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (lock->fd < 0 || fstat(lock->fd, &opened))
        return fail(err, E_IO, "%s: cannot be written: %s", lock->path, strerror(errno));
    return is_lock(&opened) ? 0 : refuse(lock, err);
}

static enum attempt try_lock(struct session_lock *lock, const char *session, const struct session_lock *own,
                             struct error *err)
{
    if (own && own->path && is_file_of(own->fd, lock->path))
        return ATTEMPT_OWN;
    if (open_lock(lock, err))
        return ATTEMPT_FAILED;
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
        lock->fd = -1;
        attempt = try_lock(lock, session, own, err);
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
    if (!fstat(lock->fd, &st) && is_lock(&st) && is_file_of(lock->fd, lock->path)) // else it has become somebody else's
        unlink(lock->path);
    drop(lock);
}
