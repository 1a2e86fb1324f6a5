// The files of --in-file are no inputs here: they are read as a whole before the sum of them replaces one. A saved run of
// bench, too, is read before another run replaces it; but a plot must not.
#include "cmd/outputs.h"
#include "cmd/terminal/terminal.h"
#include "engine/file_replace.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool stat_file(const char *path, int standard, struct stat *st)
{
    return path && !(strcmp(path, "-") ? stat(path, st) : fstat(standard, st)) && S_ISREG(st->st_mode);
}

int outputs_check(const char *out, const char *in, struct error *err)
{
    struct stat to, from;
    if (!stat_file(out, STDOUT_FILENO, &to) || !stat_file(in, STDIN_FILENO, &from) || !file_is_same(&to, &from))
        return 0;
    const char *written = strcmp(out, "-") ? out : "stdout", *read = strcmp(in, "-") ? in : "stdin";
    if (!strcmp(out, in))
        return fail(err, E_USAGE, "%s: is the input; name another output", written);
    return fail(err, E_USAGE, "%s: is the input %s; name another output", written, read);
}

int outputs_check_model(const char *out, const struct gguf *model, struct error *err)
{
    for (int i = 0; i < gguf_n_shards(model); i++)
        if (outputs_check(out, gguf_path(model, i), err))
            return -1;
    return 0;
}

// --- what is read ---

// An adapter is FILE or FILE:SCALE.
static int check_adapter(const char *out, const char *adapter, struct error *err)
{
    const char *colon = strrchr(adapter, ':');
    char *file = strndup(adapter, colon ? (size_t)(colon - adapter) : strlen(adapter));
    int status = !file ? fail(err, E_MEMORY, "no memory for a path")
                       : outputs_check(out, adapter, err) || outputs_check(out, file, err);
    free(file);
    return status ? -1 : 0;
}

// The number of arguments at the beginning that are files to be read.
static int n_read(const struct options *o)
{
    switch (o->verb) {
    case VERB_BATCH: // merge checks its own
        return o->args.n && strcmp(o->args.at[0], "merge") ? 1 : 0;
    case VERB_QUANTIZE:
    case VERB_INSPECT:
        return MIN(o->args.n, 1);
    case VERB_BENCH:
        return o->args.n;
    default:
        return 0;
    }
}

// The program is read while it runs.
static int check_program(const char *out, struct error *err)
{
    struct stat to, program;
    if (!stat_file(out, STDOUT_FILENO, &to) || stat("/proc/self/exe", &program) || !file_is_same(&to, &program))
        return 0;
    return fail(err, E_USAGE, "%s: is this program; name another output", strcmp(out, "-") ? out : "stdout");
}

int outputs_check_inputs(const char *out, const struct options *o, const char *model, struct error *err)
{
    if (check_program(out, err))
        return -1;
    const char *const single[] = {
        model,           o->draft_model,      o->file, o->ids,    o->kl, o->chat_template_file,
        o->grammar_file, o->json_schema_file, "-",     o->imatrix};
    for (size_t i = 0; i < COUNT_OF(single); i++)
        if (outputs_check(out, single[i], err))
            return -1;
    for (int i = 0; i < n_read(o); i++)
        if (outputs_check(out, o->args.at[i], err))
            return -1;
    for (int i = 0; i < o->contents.n; i++)
        if (outputs_check(out, o->contents.at[i], err))
            return -1;
    for (int i = 0; i < o->loras.n; i++)
        if (check_adapter(out, o->loras.at[i], err))
            return -1;
    for (int i = 0; i < o->controls.n; i++)
        if (check_adapter(out, o->controls.at[i], err))
            return -1;
    return 0;
}

// --- what is written ---

// Calls `see` with the path and what stands beside it.
static int see_beside(const char *path, const char *const *suffixes, outputs_see_fn *see, void *arg, struct error *err)
{
    int status = see(arg, path, err);
    for (; !status && *suffixes; suffixes++) {
        char *beside;
        if (asprintf(&beside, "%s%s", path, *suffixes) < 0)
            return fail(err, E_MEMORY, "no memory for a path");
        status = see(arg, beside, err);
        free(beside);
    }
    return status;
}

// The file of a --tap NODE=FILE; NULL if it is printed.
static const char *tap_file(const char *tap)
{
    const char *sign = strchr(tap, '=');
    return sign ? sign + 1 : NULL;
}

enum form {
    FORM_TEXT,
    FORM_BYTES, // that are no text
    FORM_FILE,  // the same, which the verb writes to an ordinary file only
};

// An output that a flag or an argument names.
struct output {
    const char *path;          // NULL: none
    const char *const *beside; // suffixes of the files beside it
    enum form form;
};
enum { OUTPUTS_SINGLE = 7 };

static void list_single(const struct options *o, struct output list[OUTPUTS_SINGLE])
{
    static const char *const none[] = {NULL}, *const of_batch[] = {".journal", ".manifest", NULL},
                             *const of_chat[] = {".lock", NULL}, *const of_cached_chat[] = {".lock", ".kv", NULL};
    const enum form of_out = o->verb == VERB_IMATRIX                              ? FORM_FILE
                             : o->verb == VERB_LOGITS || o->verb == VERB_TOKENIZE ? FORM_BYTES
                                                                                  : FORM_TEXT;
    const struct output all[OUTPUTS_SINGLE] = {
        {"-", none, FORM_TEXT},
        {o->out, o->verb == VERB_BATCH && o->out && strcmp(o->out, "-") ? of_batch : none, of_out},
        {o->kl_base, none, FORM_FILE},
        {o->bench_plot, none, FORM_TEXT},
        {o->bench_save && strchr(o->bench_save, '/') ? o->bench_save : NULL, none, FORM_TEXT},
        {o->verb == VERB_QUANTIZE && o->args.n == 3 && !o->dry_run ? o->args.at[1] : NULL, none, FORM_FILE},
        {o->session, o->cache ? of_cached_chat : of_chat, FORM_TEXT},
    };
    memcpy(list, all, sizeof all);
}

int outputs_each(const struct options *o, outputs_see_fn *see, void *arg, struct error *err)
{
    struct output single[OUTPUTS_SINGLE];
    int status = 0;
    list_single(o, single);
    for (size_t i = 0; !status && i < COUNT_OF(single); i++)
        status = single[i].path ? see_beside(single[i].path, single[i].beside, see, arg, err) : 0;
    for (int i = 0; !status && i < o->taps.n; i++)
        status = tap_file(o->taps.at[i]) ? see(arg, tap_file(o->taps.at[i]), err) : 0;
    return status;
}

struct check {
    const struct options *o;
    const char *model;
    const struct gguf *file;
};

static int see_for_inputs(void *arg, const char *path, struct error *err)
{
    const struct check *c = arg;
    return outputs_check_inputs(path, c->o, c->model, err);
}

static int see_for_model(void *arg, const char *path, struct error *err)
{
    const struct check *c = arg;
    return outputs_check_model(path, c->file, err);
}

// ---- outputs beside each other

struct pair {
    const struct options *o;
    const char *path;
    int i, n; // outputs seen by the outer and by the inner walk
};

// The name of a file with its folder resolved, also of one that is not there yet. False if the folder is not there.
static bool resolve(const char *path, char out[PATH_MAX])
{
    char folder[PATH_MAX], real[PATH_MAX];
    if (realpath(path, out))
        return true;
    const char *slash = strrchr(path, '/');
    if (snprintf(folder, sizeof folder, "%.*s", slash ? MAX((int)(slash - path), 1) : 1, slash ? path : ".") >=
            (int)sizeof folder ||
        !realpath(folder, real))
        return false;
    return snprintf(out, PATH_MAX, "%s/%s", real, slash ? slash + 1 : path) < PATH_MAX;
}

static int see_second(void *arg, const char *path, struct error *err)
{
    struct pair *p = arg;
    char one[PATH_MAX], two[PATH_MAX];
    struct stat st;
    if (p->n++ <= p->i || !strcmp(path, "-") || !strcmp(p->path, "-"))
        return 0;
    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        return 0;
    if (resolve(p->path, one) && resolve(path, two) && !strcmp(one, two))
        return fail(err, E_USAGE, "%s: two outputs of this command; name another file for one of them", path);
    return 0;
}

static int see_first(void *arg, const char *path, struct error *err)
{
    struct pair *p = arg;
    p->path = path;
    p->n = 0;
    int status = outputs_each(p->o, see_second, p, err);
    p->i++;
    return status;
}

// ---- what can be written

int outputs_check_terminal(const char *path, struct error *err)
{
    struct stat st;
    const int descriptor = file_replace_descriptor(path);
    const bool is_device = descriptor < 0 && !stat(path, &st) && S_ISCHR(st.st_mode);
    const int fd = is_device ? open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : descriptor;
    const bool is_terminal = fd >= 0 && terminal_is_tty(fd);
    if (is_device && fd >= 0)
        close(fd);
    return is_terminal ? fail(err, E_USAGE, "%s: is a terminal, and numbers in bytes are not for one; name a file",
                              strcmp(path, "-") ? path : "stdout")
                       : 0;
}

// The outputs of a batch and of a dialogue are no files that are replaced at the end; these verbs try their own.
static int check_writable(const struct options *o, const struct output *out, struct error *err)
{
    if (!out->path || o->verb == VERB_BATCH || o->verb == VERB_CHAT)
        return 0;
    if (out->form != FORM_TEXT && outputs_check_terminal(out->path, err))
        return -1;
    if (out->form == FORM_FILE && check_replaceable(out->path, err))
        return -1;
    return file_replace_check_output(out->path, err);
}

static int check_all_writable(const struct options *o, struct error *err)
{
    struct output single[OUTPUTS_SINGLE];
    int status = 0;
    list_single(o, single);
    for (size_t i = 0; !status && i < COUNT_OF(single); i++)
        status = check_writable(o, &single[i], err);
    for (int i = 0; !status && i < o->taps.n; i++) {
        const struct output tap = {.path = tap_file(o->taps.at[i]), .form = FORM_BYTES};
        status = check_writable(o, &tap, err);
    }
    return status;
}

int outputs_check_options(const struct options *o, const char *model, struct error *err)
{
    struct check c = {.o = o, .model = model};
    struct pair p = {.o = o};
    // of a saved run a name without a slash is no path
    const char *against = o->bench_against && strchr(o->bench_against, '/') ? o->bench_against : NULL;
    return outputs_each(o, see_for_inputs, &c, err) || outputs_check(o->bench_plot, against, err) ||
                   outputs_each(o, see_first, &p, err) || check_all_writable(o, err)
               ? -1
               : 0;
}

int outputs_check_options_model(const struct options *o, const struct gguf *model, struct error *err)
{
    struct check c = {.file = model};
    return outputs_each(o, see_for_model, &c, err);
}
