// Opens a model: parses and maps the first part, finds the others by the name of the first, and checks that their
// tensors add up to the stated number, if there is one. A sorted index of all tensors then finds duplicate names and
// serves searches. The same path opens a whole file that lies in memory.
#include "gguf/gguf_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

// The path for messages. Of a long path only the end is kept, so that it leaves room for the rest of the message.
static const char *make_label(struct arena *arena, const char *path)
{
    enum { SHOWN = 160 };
    size_t n = strlen(path);
    if (n <= SHOWN)
        return path;
    char *label = arena_alloc(arena, SHOWN + 4, 1);
    if (!label)
        return NULL;
    memcpy(label, "...", 3);
    const char *tail = path + n - SHOWN;
    while ((*tail & 0xC0) == 0x80) // do not begin within a character
        tail++;
    strcpy(label + 3, tail);
    return label;
}

static int load_shard(struct gguf *g, int index, const char *path, struct bytes image, struct error *err)
{
    struct gguf_shard *shard = &g->shards[index];
    *shard = (struct gguf_shard){.path = path, .index = index, .fd = -1, .view = image.data, .size = image.size};
    shard->label = path ? make_label(&g->arena, path) : NULL;
    if (!shard->label)
        return gguf_fail_memory(err, 1, "the file's name");
    g->n_shards = index + 1;
    if (!image.data && shard_open(shard, err) != 0)
        return -1;
    return shard_parse(g, shard, err);
}

static int place_shard(struct gguf *g, struct gguf_shard *shard, unsigned flags, struct error *err)
{
    if (flags & GGUF_METADATA_ONLY) {
        shard_close(shard);
        return 0;
    }
    if (shard_map(shard, flags & GGUF_NO_MMAP, err) != 0)
        return -1;
    for (size_t i = 0; i < shard->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[shard->first_tensor + i];
        t->data = shard->view ? shard->view + t->offset : shard->map + (t->offset - shard->map_offset);
    }
    return 0;
}

// Opens parts 1 to count - 1, and compares the number of all tensors with the number that the first part states.
static int open_parts(struct gguf *g, unsigned flags, int count, int64_t n_tensors, struct error *err)
{
    struct gguf_shard *shards = realloc(g->shards, (size_t)count * sizeof *shards);
    if (!shards)
        return gguf_fail_memory(err, (size_t)count * sizeof *shards, "the parts");
    g->shards = shards;
    for (int i = 1; i < count; i++) {
        if (load_shard(g, i, split_path(&g->arena, &g->shards[0], i, count), (struct bytes){0}, err) != 0 ||
            split_check_part(&g->shards[i], count, n_tensors, err) != 0 ||
            place_shard(g, &g->shards[i], flags, err) != 0)
            return -1;
    }
    if (n_tensors >= 0 && (uint64_t)n_tensors != g->n_tensors)
        return shard_fail(&g->shards[0], err, E_MODEL, shard_find(&g->shards[0], "split.tensors.count")->offset,
                          "key 'split.tensors.count': %lld, but the parts hold %zu tensors", (long long)n_tensors,
                          g->n_tensors);
    return 0;
}

static int index_tensors(struct gguf *g, struct error *err)
{
    g->by_name = ARENA_ARRAY(&g->arena, const void *, g->n_tensors);
    if (!g->by_name)
        return gguf_fail_memory(err, g->n_tensors * sizeof *g->by_name, "the index of tensors");
    for (size_t i = 0; i < g->n_tensors; i++)
        g->by_name[i] = &g->tensors[i];
    if (names_sort(g->by_name, g->n_tensors, err) != 0)
        return -1;
    const struct gguf_tensor *twice = names_duplicate(g->by_name, g->n_tensors);
    if (!twice)
        return 0;
    return shard_fail(&g->shards[twice->shard], err, E_MODEL, twice->info_offset,
                      "tensor '%.*s': stands in the model twice", STR_ARG(twice->name));
}

// Checks that a view is a whole model and is aligned, so that its tensors are as aligned as in a mapping.
static int check_view(const struct gguf_shard *shard, int count, struct error *err)
{
    if (count > 1)
        return shard_fail(shard, err, E_MODEL, shard_find(shard, "split.count")->offset,
                          "this is one part of %d, and lies in memory, where its sisters cannot be found", count);
    if ((uintptr_t)shard->view % shard->alignment)
        return shard_fail(shard, err, E_MODEL, ERR_NO_OFFSET, "wants to lie at a multiple of %llu bytes in memory",
                          (unsigned long long)shard->alignment);
    return 0;
}

// Opens the image when its data is not NULL, with path as its name, else the file at path.
static int open_either(struct gguf **out, const char *path, struct bytes image, unsigned flags, struct error *err)
{
    *out = NULL;
    struct gguf *g = calloc(1, sizeof *g);
    if (!g)
        return gguf_fail_memory(err, sizeof *g, "the model file");
    int count;
    int64_t n_tensors;
    g->shards = malloc(sizeof *g->shards);
    if (!g->shards) {
        gguf_fail_memory(err, sizeof *g->shards, "the model file");
        goto failed;
    }
    if (load_shard(g, 0, arena_strdup(&g->arena, str_from(path)), image, err) != 0 ||
        split_describe(&g->shards[0], &count, &n_tensors, err) != 0 ||
        (image.data && check_view(&g->shards[0], count, err) != 0) || place_shard(g, &g->shards[0], flags, err) != 0)
        goto failed;
    if (count > 1 && open_parts(g, flags, count, n_tensors, err) != 0)
        goto failed;
    if (index_tensors(g, err) != 0)
        goto failed;
    *out = g;
    return 0;
failed:
    gguf_close(g);
    return -1;
}

int gguf_open(struct gguf **out, const char *path, unsigned flags, struct error *err)
{
    return open_either(out, path, (struct bytes){0}, flags, err);
}

int gguf_open_view(struct gguf **out, const char *name, struct bytes image, unsigned flags, struct error *err)
{
    assert(image.data);
    return open_either(out, name, image, flags, err);
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_shards; i++)
        shard_close(&g->shards[i]);
    free(g->shards);
    free(g->tensors);
    arena_free(&g->arena);
    free(g);
}

int(gguf_fail)(const struct gguf *g, int shard, uint64_t offset, struct error *err, const char *fmt, ...)
{
    char text[ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    assert(shard >= 0 && shard < g->n_shards);
    return shard_fail(&g->shards[shard], err, E_MODEL, offset, "%s", text);
}

const char *gguf_path(const struct gguf *g, int shard)
{
    assert(shard >= 0 && shard < g->n_shards);
    return g->shards[shard].path;
}

int gguf_n_shards(const struct gguf *g)
{
    return g->n_shards;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->shards[0].version;
}

uint64_t gguf_alignment(const struct gguf *g)
{
    return g->shards[0].alignment;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    uint64_t sum = 0;
    for (int i = 0; i < g->n_shards; i++)
        sum += g->shards[i].size;
    return sum;
}

size_t gguf_n_kv(const struct gguf *g)
{
    return g->shards[0].n_kv;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i)
{
    assert(i < g->shards[0].n_kv);
    return &g->shards[0].kv[i];
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    return shard_find(&g->shards[0], key);
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    assert(i < g->n_tensors);
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    return names_find(g->by_name, g->n_tensors, str_from(name));
}
