// What has been typed before: entries in memory, and a file that several processes may add to at once.
//
// The file has an entry a line; a line end within one is written \n, a backslash \\. An entry is one write under a
// lock; a file that has grown to twice what is kept is written anew beside itself and put in its place. Of equal
// entries the last one stays. Ownership: the struct owns its entries. Threads: one at a time.
#ifndef QUERN_HISTORY_H
#define QUERN_HISTORY_H

#include "gguf/base.h"

enum { HISTORY_MAX = 2000, HISTORY_ENTRY_MAX = 64 << 10 };

struct history {
    struct str *entries; // oldest first
    size_t n, cap;
    char *path; // NULL: in memory alone
};

// Takes the entries of a file, which need not be there. E_IO when it cannot be read, E_MEMORY: what was read stands.
int history_open(struct history *h, const char *path, struct error *err);
void history_close(struct history *h);
// Adds an entry, in memory and to the file; an empty one is none, one over HISTORY_ENTRY_MAX is not put into the file.
// E_IO: it stands in memory alone.
int history_add(struct history *h, struct str text, struct error *err);

// $XDG_STATE_HOME/quern/NAME, or ~/.local/state/quern/NAME, its folders made with 0700: NULL when there is no home, or
// they cannot be made. The caller frees it.
char *history_state_path(const char *name);

#endif
