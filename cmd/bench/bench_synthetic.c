// The file of a synthetic model (--synthetic). It never has a name, so that no end of the program, by SIGKILL either,
// leaves gigabytes behind: it is opened by its descriptor's path under /proc.
#include "cmd/bench/bench.h"
#include "models/synth_model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SEED = 42 };

static int list_shapes(struct error *err)
{
    struct text names = {0};
    for (size_t i = 0; synth_preset_name(i); i++)
        text_print(&names, " %s", synth_preset_name(i));
    fail(err, E_USAGE, "--synthetic PRESET:MIX: the shapes are%s; a mix is a tensor type, Q4_K_M or Q5_K_M",
         names.data ? names.data : "");
    text_free(&names);
    return -1;
}

// Opens an empty file without a name in a folder. Where the file system makes none, a name is given and taken away.
static int open_unnamed(const char *folder, struct error *err)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char path[PATH_MAX];
    if (fd >= 0)
        return fd;
    if (snprintf(path, sizeof path, "%s/quern-bench-XXXXXX", folder) >= PATH_MAX)
        return fail(err, E_USAGE, "$TMPDIR: too long a path");
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return fail(err, E_IO, "%s: %s", path, strerror(errno));
    unlink(path);
    return fd;
}

int bench_synthetic_open(const char *what, char path[PATH_MAX], struct error *err)
{
    char preset[64];
    const char *colon = strchr(what, ':'), *folder = getenv("TMPDIR");
    if (!colon || (size_t)(colon - what) >= sizeof preset)
        return list_shapes(err);
    snprintf(preset, sizeof preset, "%.*s", (int)(colon - what), what);
    int fd = open_unnamed(folder && *folder ? folder : "/tmp", err);
    if (fd < 0)
        return -1;
    // another engine's program reads the file as well, so the path names this process
    snprintf(path, PATH_MAX, "/proc/%ld/fd/%d", (long)getpid(), fd);
    struct synth_options o = {.preset = preset, .mix = colon + 1, .seed = SEED};
    if (synth_model_write_fd(&o, fd, what, err) == 0)
        return fd;
    close(fd);
    return -1;
}
