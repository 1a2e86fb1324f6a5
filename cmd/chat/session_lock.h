// Keeps two programs from writing one session: the last one to save would silently drop what the other one kept.
//
// The lock is flock(2) on a file beside the session, NAME.lock, because the session itself is replaced with every answer. The
// system drops it when the program ends, also after kill -9; the file that then remains locks nobody out. Where the file
// system knows no locks, there is none. Ownership: whoever takes a lock releases it. Threads: one at a time.
#ifndef QUERN_SESSION_LOCK_H
#define QUERN_SESSION_LOCK_H

#include "gguf/base.h"

struct session_lock {
    char *path; // NULL: nothing is held
    int fd;
};

// Locks the session of this path. `own` is a lock of this program (NULL: none): if it is that of the same session, nothing
// more is locked. E_USAGE if another program has it, or if something else has the name of the lock; E_IO.
int session_lock_take(struct session_lock *lock, const char *session, const struct session_lock *own,
                      struct error *err);
void session_lock_release(struct session_lock *lock); // fine if nothing is held

#endif
