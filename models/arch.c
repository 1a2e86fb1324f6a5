// Finds the family whose name is general.architecture in the table made from arch.def, and has build_model build
// its graph. An unknown name is refused.
#include "models/arch.h"

#include "kernels/text.h"
#include "models/families.h"

#include <stdio.h>

struct family {
    const char *name;
    build_fn *build;
    enum family_kind kind;
};

static const struct family families[] = {
#define ARCH(id, name) {name, build_##id, FAMILY_DECODER},
#define ARCH_RECURRENT(id, name) {name, build_##id, FAMILY_RECURRENT},
#define ARCH_ENCODER(id, name) {name, build_##id, FAMILY_ENCODER},
#include "models/arch.def"
#undef ARCH
#undef ARCH_RECURRENT
#undef ARCH_ENCODER
};

void arch_list(struct text *out)
{
    for (size_t i = 0; i < COUNT_OF(families); i++)
        text_print(out, "%s%s", i ? " " : "", families[i].name);
}

static const struct family *find_name(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(families); i++)
        if (str_equal_z(name, families[i].name))
            return &families[i];
    return NULL;
}

bool arch_is_known(struct str name)
{
    return find_name(name);
}

static int refuse_unknown(const struct gguf *file, const struct gguf_kv *kv, struct str name, struct error *err)
{
    static const char where[] = "`quern help` lists those that are known";
    if (kv)
        return gguf_fail(file, kv->shard, kv->offset, err, "key 'general.architecture': '%.*s' is not known; %s",
                         (int)MIN(name.len, (size_t)64), name.data, where);
    return gguf_fail(file, 0, ERR_NO_OFFSET, err, "key 'general.architecture': is missing; %s", where);
}

static const struct family *find_family(const struct gguf *file, struct error *err)
{
    static const char key[] = "general.architecture";
    struct str name = {0};
    if (gguf_get_str(file, key, &name, err) < 0)
        return NULL;
    const struct family *found = find_name(name);
    if (!found)
        refuse_unknown(file, gguf_find(file, key), name, err);
    return found;
}

int arch_build(const struct gguf *file, const struct arch_options *o, struct graph **out, struct arch_info *info,
               struct error *err)
{
    *out = NULL;
    *info = (struct arch_info){0};
    const struct family *family = find_family(file, err);
    if (!family)
        return -1;
    struct graph *g = graph_new();
    if (!g)
        return fail(err, E_MEMORY, "out of memory for a graph");
    if (build_model(file, family->name, family->build, family->kind, o, g, info, err) != 0) {
        graph_free(g);
        return -1;
    }
    snprintf(info->name, sizeof info->name, "%s", family->name);
    *out = g;
    return 0;
}
