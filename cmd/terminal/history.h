// The history of typed lines: entries in memory, and a file that several processes may append to at the same time.
//
// The file has one entry per line; a newline within an entry is written \n and a backslash \\. An entry is appended
// by one write under a lock. When the file has grown to twice the entries that are kept, it is written anew and
// replaced by rename. Of equal entries the last one is kept. Ownership: the struct owns its entries. Threads: one at
// a time.
#ifndef QUERN_HISTORY_H
#define QUERN_HISTORY_H

#include "gguf/base.h"

enum { HISTORY_MAX = 2000, HISTORY_ENTRY_MAX = 64 << 10 };

struct history {
    struct str *entries; // oldest first
    size_t n, cap;
    char *path; // NULL: in memory only
};

// Reads the entries of a file, which need not exist. E_IO if it cannot be read; E_MEMORY. Entries read before the
// error are kept.
int history_open(struct history *h, const char *path, struct error *err);
void history_close(struct history *h);
// Adds an entry in memory and to the file. An empty text is ignored; a text over HISTORY_ENTRY_MAX is kept in memory
// only. E_IO: the entry is in memory only.
int history_add(struct history *h, struct str text, struct error *err);

// The path $XDG_STATE_HOME/quern/NAME, or ~/.local/state/quern/NAME. Its folders are created with mode 0700. NULL if
// there is no home folder or they cannot be created. The caller frees the path.
char *history_state_path(const char *name);

#endif
