// KEY=TYPE:VALUE, and the flags of rotary positions, which are keys of every family: rope.freq_base, rope.scaling.type and
// so on.
#include "cmd/overrides.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// Copies the name of a key; its place is an offset until all names are there, since the text may move.
static size_t add_name(struct overrides *out, const char *prefix, struct str name)
{
    const size_t at = out->names.size;
    text_print(&out->names, "%s%.*s", prefix, (int)MIN(name.len, (size_t)4096), name.data);
    text_append(&out->names, (struct str){"", 1});
    return at;
}

static int parse_value(struct gguf_override *o, const char *type, const char *value, const char *flag,
                       struct error *err)
{
    char *end = NULL;
    errno = 0;
    if (!strncmp(type, "int:", 4)) {
        o->type = GGUF_I64;
        o->integer = strtoll(value, &end, 10);
    } else if (!strncmp(type, "float:", 6)) {
        o->type = GGUF_F64;
        o->real = strtod(value, &end);
    } else if (!strncmp(type, "bool:", 5)) {
        o->type = GGUF_BOOL;
        o->boolean = !strcmp(value, "true");
        return o->boolean || !strcmp(value, "false") ? 0 : fail(err, E_USAGE, "--override-kv %s: true or false", flag);
    } else if (!strncmp(type, "str:", 4)) {
        o->type = GGUF_STRING;
        o->string = value;
        return 0;
    } else {
        return fail(err, E_USAGE, "--override-kv %s: the type is int, float, bool or str", flag);
    }
    return *value && !*end && !errno ? 0 : fail(err, E_USAGE, "--override-kv %s: %s is no number", flag, value);
}

static int take_key(struct overrides *out, const char *flag, size_t *name, struct error *err)
{
    const char *sign = strchr(flag, '='), *colon = sign ? strchr(sign, ':') : NULL;
    if (!colon || sign == flag)
        return fail(err, E_USAGE, "--override-kv %s: KEY=TYPE:VALUE is wanted", flag);
    *name = add_name(out, "", (struct str){flag, (size_t)(sign - flag)});
    return parse_value(&out->at[out->n], sign + 1, colon + 1, flag, err);
}

static void set_real(struct overrides *out, size_t *names, const char *prefix, const char *key, double value)
{
    names[out->n] = add_name(out, prefix, str_from(key));
    out->at[out->n++] = (struct gguf_override){.type = GGUF_F64, .real = value};
}

static int take_rope(struct overrides *out, size_t *names, const struct options *o, const char *prefix,
                     struct error *err)
{
    static const char *const kinds[] = {"none", "linear", "yarn"};
    if (o->given[OPT_rope_scale] && o->given[OPT_rope_freq_scale])
        return fail(err, E_USAGE, "--rope-scale and --rope-freq-scale say the same in two ways: one of them is enough");
    if (o->given[OPT_rope_scaling]) {
        names[out->n] = add_name(out, prefix, STR_LIT("rope.scaling.type"));
        out->at[out->n++] = (struct gguf_override){.type = GGUF_STRING, .string = kinds[o->rope_scaling]};
    }
    if (o->given[OPT_rope_freq_base])
        set_real(out, names, prefix, "rope.freq_base", o->rope_freq_base);
    if (o->given[OPT_rope_scale])
        set_real(out, names, prefix, "rope.scaling.factor", o->rope_scale);
    if (o->given[OPT_rope_freq_scale])
        set_real(out, names, prefix, "rope.scaling.factor", 1 / o->rope_freq_scale);
    if (o->given[OPT_yarn_orig_ctx]) {
        names[out->n] = add_name(out, prefix, STR_LIT("rope.scaling.original_context_length"));
        out->at[out->n++] = (struct gguf_override){.type = GGUF_I64, .integer = o->yarn_orig_ctx};
    }
    return 0;
}

int overrides_check_rope(const struct options *o, const struct arch_info *info, struct error *err)
{
    static const enum option_number flags[] = {OPT_rope_scaling, OPT_rope_scale, OPT_rope_freq_scale,
                                               OPT_rope_freq_base, OPT_yarn_orig_ctx};
    for (size_t i = 0; !info->rotary && i < COUNT_OF(flags); i++)
        if (o->given[flags[i]])
            return fail(err, E_USAGE, "--%s: this model has no rotary positions (its family is %s)",
                        options_name(flags[i]), info->name);
    return 0;
}

int overrides_take(struct overrides *out, const struct options *o, const char *arch, struct error *err)
{
    enum { ROPE_MOST = 8 };
    size_t names[OVERRIDES_MAX] = {0};
    char prefix[80];
    *out = (struct overrides){0};
    snprintf(prefix, sizeof prefix, "%.64s.", arch);
    if (o->overrides.n > OVERRIDES_MAX - ROPE_MOST)
        return fail(err, E_USAGE, "--override-kv: %d of them, limit %d", o->overrides.n, OVERRIDES_MAX - ROPE_MOST);
    if (take_rope(out, names, o, prefix, err))
        return -1;
    for (int i = 0; i < o->overrides.n; i++, out->n++)
        if (take_key(out, o->overrides.at[i], &names[out->n], err))
            return -1;
    if (out->names.failed)
        return fail(err, E_MEMORY, "no memory for the names of keys");
    for (int i = 0; i < out->n; i++)
        out->at[i].key = out->names.data + names[i];
    return 0;
}

int overrides_apply(const struct options *o, struct gguf *file, struct error *err)
{
    struct overrides all;
    struct str arch = {"", 0};
    char name[65];
    if (gguf_get_str(file, "general.architecture", &arch, err) < 0)
        return -1;
    snprintf(name, sizeof name, "%.*s", (int)MIN(arch.len, sizeof name - 1), arch.data);
    int status = overrides_take(&all, o, name, err);
    for (int i = 0; !status && i < all.n; i++)
        status = gguf_set(file, &all.at[i], err);
    overrides_free(&all);
    return status;
}

void overrides_free(struct overrides *o)
{
    text_free(&o->names);
}
