// The files of --in-file are no inputs here: they are read as a whole before the sum of them replaces one. A saved run of
// bench, too, is read before another run replaces it; but a plot must not.
#include "cmd/outputs.h"

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
    if (!stat_file(out, STDOUT_FILENO, &to) || !stat_file(in, STDIN_FILENO, &from) || to.st_dev != from.st_dev ||
        to.st_ino != from.st_ino)
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

int outputs_check_inputs(const char *out, const struct options *o, const char *model, struct error *err)
{
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

int outputs_each(const struct options *o, outputs_see_fn *see, void *arg, struct error *err)
{
    static const char *const none[] = {NULL}, *const of_batch[] = {".journal", ".manifest", NULL},
                             *const of_chat[] = {".kv", NULL};
    const struct {
        const char *path;
        const char *const *beside;
    } single[] = {
        {"-", none},
        {o->out, o->verb == VERB_BATCH && o->out && strcmp(o->out, "-") ? of_batch : none},
        {o->kl_base, none},
        {o->bench_plot, none},
        {o->bench_save && strchr(o->bench_save, '/') ? o->bench_save : NULL, none},
        {o->verb == VERB_QUANTIZE && o->args.n == 3 && !o->dry_run ? o->args.at[1] : NULL, none},
        {o->session, o->cache ? of_chat : none},
    };
    int status = 0;
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

int outputs_check_options(const struct options *o, const char *model, struct error *err)
{
    struct check c = {.o = o, .model = model};
    struct pair p = {.o = o};
    // of a saved run a name without a slash is no path
    const char *against = o->bench_against && strchr(o->bench_against, '/') ? o->bench_against : NULL;
    return outputs_each(o, see_for_inputs, &c, err) || outputs_check(o->bench_plot, against, err) ||
                   outputs_each(o, see_first, &p, err)
               ? -1
               : 0;
}

int outputs_check_options_model(const struct options *o, const struct gguf *model, struct error *err)
{
    struct check c = {.file = model};
    return outputs_each(o, see_for_model, &c, err);
}
