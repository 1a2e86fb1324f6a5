// What the process takes from itself before it reads files of strangers: new privileges, writing outside named folders,
// executing programs, sockets, and looking into other processes.
//
// Three features of Linux are used as far as the kernel has them: no_new_privs, Landlock and seccomp filters. What it lacks
// is left out, and what was taken cannot be had back. Children inherit all of it. Threads: to be called before others are
// started, for Landlock binds only the calling thread and those that it starts.
#ifndef QUERN_SANDBOX_H
#define QUERN_SANDBOX_H

#include "kernels/text.h"

enum { SANDBOX_FOLDERS_MAX = 32 };

// What stays allowed. Reading files always is.
struct sandbox_needs {
    const char *folders[SANDBOX_FOLDERS_MAX]; // files may be made, written, renamed and removed in them and below
    int n_folders;
    bool writes; // anywhere
    bool executes;
    bool connects; // sockets
};

// What came into force.
struct sandbox_level {
    bool no_new_privs;
    int landlock; // the version of the kernel's interface; 0: none
    bool seccomp;
    bool sockets; // are still allowed
};
struct sandbox_level sandbox_enter(const struct sandbox_needs *needs);
// Appends a line that says what is in force.
void sandbox_describe(const struct sandbox_level *level, struct text *out);

#endif
