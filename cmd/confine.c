// An output is written as a temporary file beside it, so that the folder is what must be writable. A folder that is made
// from the environment, as that of compiled kernels is, is only allowed if it exists.
#include "cmd/confine.h"
#include "cmd/outputs.h"
#include "engine/model.h"
#include "engine/file_replace.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct making {
    struct sandbox_needs needs;
    struct arena arena;
};

static void add(struct making *m, const char *path)
{
    const char *copy = m->needs.n_folders < SANDBOX_FOLDERS_MAX ? arena_strdup(&m->arena, str_from(path)) : NULL;
    if (copy)
        m->needs.folders[m->needs.n_folders++] = copy;
    else
        m->needs.writes = true; // rather too much than to break
}

// The folder of a file, or the file itself where it is a device or a pipe.
static int add_output(void *arg, const char *path, struct error *err)
{
    char real[PATH_MAX];
    struct stat st;
    (void)err;
    if (!strcmp(path, "-"))
        return 0;
    const bool is_there = realpath(path, real);
    if (!is_there && snprintf(real, sizeof real, "%s", path) >= (int)sizeof real)
        return 0;
    char *slash = strrchr(real, '/');
    const bool is_other = is_there && !stat(real, &st) && !S_ISREG(st.st_mode);
    if (!is_other && slash)
        slash[slash == real] = '\0'; // the folder above is / if nothing else is left
    add(arg, is_other || slash ? real : ".");
    return 0;
}

// A folder below the one that a variable of the environment names, or below the home folder.
static void add_below(struct making *m, const char *variable, const char *otherwise, const char *below, bool make)
{
    char path[PATH_MAX];
    const char *base = getenv(variable), *home = getenv("HOME");
    const bool given = base && *base == '/';
    if (!given && !(home && *home))
        return;
    if (snprintf(path, sizeof path, "%s%s/%s/", given ? base : home, given ? "" : otherwise, below) >= (int)sizeof path)
        return;
    if (make)
        file_replace_folders(path);
    if (!access(path, F_OK))
        add(m, path);
}

static bool asks_for_gpu(const struct options *o)
{
    return o->device >= (int)DEVICE_GPU;
}

// Whether the driver of a GPU may be loaded: the devices of Linux, of Windows' subsystem for it, and of Tegra.
static bool may_have_gpu(const struct options *o)
{
    static const char *const devices[] = {"/dev/nvidiactl", "/dev/nvidia0",     "/dev/nvidia-uvm",
                                          "/dev/dxg",       "/dev/nvhost-ctrl", "/dev/nvmap"};
    if (o->device != (int)DEVICE_AUTO && !asks_for_gpu(o))
        return false;
    for (size_t i = 0; i < COUNT_OF(devices); i++)
        if (!access(devices[i], F_OK))
            return true;
    return false;
}

// What a verb needs beside its outputs.
static void add_needs_of_verb(struct making *m, const struct options *o)
{
    const char *temporary = getenv("TMPDIR");
    const bool reads_stdin = o->verb == VERB_BATCH && (!o->args.n || !strcmp(o->args.at[0], "-"));
    if (o->verb == VERB_BATCH && o->args.n > 1 && !strcmp(o->args.at[0], "merge"))
        add_output(m, o->args.at[1], NULL);
    if (reads_stdin) { // a copy of it is beside the output, or in /tmp
        add(m, "/tmp");
        if (!o->out || !strcmp(o->out, "-"))
            add(m, ".");
    }
    if (o->verb == VERB_BENCH && o->bench_synthetic.n)
        add(m, temporary && *temporary ? temporary : "/tmp");
    if (o->bench_save && !strchr(o->bench_save, '/'))
        add_below(m, "XDG_STATE_HOME", "/.local/state", "quern/bench", true);
    add_below(m, "XDG_CACHE_HOME", "/.cache", "quern", asks_for_gpu(o));
    m->needs.writes |= o->verb == VERB_CHAT;   // /save names files later
    m->needs.executes |= o->verb == VERB_DUMP; // ptxas
}

struct sandbox_level confine(const struct options *o)
{
    struct making m = {0};
    struct error ignored;
    struct sandbox_level level = {0};
    // a program of somebody else is run as it would be run without us
    if (may_have_gpu(o) || (o->verb == VERB_BENCH && o->bench_peer))
        return level;
    outputs_each(o, add_output, &m, &ignored);
    add_needs_of_verb(&m, o);
    m.needs.writes |= m.needs.executes;
    level = sandbox_enter(&m.needs);
    arena_free(&m.arena);
    return level;
}

struct sandbox_level confine_loaded(const struct options *o)
{
    const struct sandbox_needs needs = {
        .writes = true, .connects = true, .executes = o->verb == VERB_DUMP || o->verb == VERB_DEVICE};
    if (!may_have_gpu(o) || (o->verb == VERB_BENCH && o->bench_peer))
        return (struct sandbox_level){0};
    return sandbox_enter(&needs);
}
