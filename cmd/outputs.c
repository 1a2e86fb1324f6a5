// The files of --in-file are no inputs here: they are read as a whole before the sum of them replaces one.
#include "cmd/outputs.h"

#include <string.h>
#include <sys/stat.h>

static bool stat_file(const char *path, struct stat *st)
{
    return path && strcmp(path, "-") && !stat(path, st) && S_ISREG(st->st_mode);
}

int outputs_check(const char *out, const char *in, struct error *err)
{
    struct stat to, from;
    if (!stat_file(out, &to) || !stat_file(in, &from) || to.st_dev != from.st_dev || to.st_ino != from.st_ino)
        return 0;
    if (!strcmp(out, in))
        return fail(err, E_USAGE, "%s: is the input; name another output", out);
    return fail(err, E_USAGE, "%s: is the input %s; name another output", out, in);
}

int outputs_check_model(const char *out, const struct gguf *model, struct error *err)
{
    for (int i = 0; i < gguf_n_shards(model); i++)
        if (outputs_check(out, gguf_path(model, i), err))
            return -1;
    return 0;
}

// --- the flags ---

// The file of a --tap NODE=FILE; NULL if it is printed.
static const char *tap_file(const char *tap)
{
    const char *sign = strchr(tap, '=');
    return sign ? sign + 1 : NULL;
}

// The i-th output that the flags name, or NULL if that flag was not given. Returns false behind the last one.
static bool output_at(const struct options *o, int i, const char **out)
{
    const char *const single[] = {o->out, o->kl_base, o->bench_plot,
                                  o->bench_save && strchr(o->bench_save, '/') ? o->bench_save : NULL};
    const int n = (int)COUNT_OF(single);
    if (i >= n + o->taps.n)
        return false;
    *out = i < n ? single[i] : tap_file(o->taps.at[i - n]);
    return true;
}

int outputs_check_options(const struct options *o, const char *model, struct error *err)
{
    const char *const inputs[] = {model, o->draft_model,        o->file,         o->ids,
                                  o->kl, o->chat_template_file, o->grammar_file, o->json_schema_file};
    const char *out;
    for (int i = 0; output_at(o, i, &out); i++)
        for (size_t j = 0; j < COUNT_OF(inputs); j++)
            if (outputs_check(out, inputs[j], err))
                return -1;
    return 0;
}

int outputs_check_options_model(const struct options *o, const struct gguf *model, struct error *err)
{
    const char *out;
    for (int i = 0; output_at(o, i, &out); i++)
        if (outputs_check_model(out, model, err))
            return -1;
    return 0;
}
