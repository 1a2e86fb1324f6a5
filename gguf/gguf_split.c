// Split models: NAME-00001-of-00003.gguf and its further parts.
//
// Keys of a part: split.no (u16, its index from 0), split.count (u16, the number of parts; 0 or 1 when the model is
// not split) and split.tensors.count (i32, tensors of all parts). The names of the further parts are derived from the
// name that the user gave, never from the file.
#include "gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>

enum { SUFFIX = sizeof "-00001-of-00003.gguf" - 1 };

// Reads an optional key with an integer of the given type. *found: whether the key exists.
static int read_key(const struct gguf_shard *shard, const char *key, enum gguf_type type, int64_t *out, bool *found,
                    struct error *err)
{
    const struct gguf_kv *kv = shard_find(shard, key);
    *found = kv != NULL;
    if (!kv)
        return 0;
    if (kv->type != type)
        return shard_fail(shard, err, E_MODEL, kv->offset, "key '%s': has type %s, not %s", key,
                          gguf_type_name(kv->type), gguf_type_name(type));
    *out = gguf_array_i64(kv, 0);
    return 0;
}

// Of a key that exists.
static uint64_t key_offset(const struct gguf_shard *shard, const char *key)
{
    return shard_find(shard, key)->offset;
}

static void format_suffix(char out[SUFFIX + 1], int index, int count)
{
    snprintf(out, SUFFIX + 1, "-%05u-of-%05u.gguf", (unsigned)(index + 1) % 100000, (unsigned)count % 100000);
}

static bool ends_in_suffix(const char *path, int index, int count)
{
    char want[SUFFIX + 1];
    format_suffix(want, index, count);
    size_t n = strlen(path);
    return n > SUFFIX && path[n - SUFFIX - 1] != '/' && strcmp(path + n - SUFFIX, want) == 0;
}

const char *split_path(struct arena *arena, const struct gguf_shard *first, int index, int count)
{
    size_t n = strlen(first->path);
    char *path = arena_alloc(arena, n + 1, 1);
    if (!path)
        return NULL;
    memcpy(path, first->path, n - SUFFIX);
    format_suffix(path + n - SUFFIX, index, count);
    return path;
}

// Fails because the user has opened a further part. The error names the first part.
static int refuse_further_part(const struct gguf_shard *shard, int index, int count, struct error *err)
{
    char first[SUFFIX + 1];
    format_suffix(first, 0, count);
    uint64_t at = key_offset(shard, "split.no");
    if (!ends_in_suffix(shard->path, index, count))
        return shard_fail(shard, err, E_MODEL, at, "this is part %d of %d; open the first, named ...%s", index + 1,
                          count, first);
    const char *slash = strrchr(shard->path, '/');
    const char *name = slash ? slash + 1 : shard->path;
    return shard_fail(shard, err, E_MODEL, at, "this is part %d of %d; open the first, %.*s%s", index + 1, count,
                      (int)MIN(strlen(name) - SUFFIX, (size_t)160), name, first);
}

int split_describe(const struct gguf_shard *first, int *count, int64_t *n_tensors, struct error *err)
{
    int64_t no = 0, parts = 0;
    bool found;
    *count = 1;
    *n_tensors = -1;
    if (read_key(first, "split.count", GGUF_U16, &parts, &found, err) != 0 ||
        read_key(first, "split.no", GGUF_U16, &no, &found, err) != 0)
        return -1;
    if (parts > SHARDS_MAX)
        return shard_fail(first, err, E_MODEL, key_offset(first, "split.count"),
                          "key 'split.count': %" PRId64 " parts are over the limit of %d", parts, SHARDS_MAX);
    if (no >= MAX(parts, 1))
        return shard_fail(first, err, E_MODEL, key_offset(first, "split.no"),
                          "key 'split.no': part %" PRId64 ", from 0, of %" PRId64, no, parts);
    if (parts <= 1)
        return 0;
    if (!found)
        return shard_fail(first, err, E_MODEL, key_offset(first, "split.count"),
                          "key 'split.no' is missing from a model of %" PRId64 " parts", parts);
    *count = (int)parts;
    if (no != 0)
        return refuse_further_part(first, (int)no, *count, err);
    if (!ends_in_suffix(first->path, 0, *count)) {
        char want[SUFFIX + 1];
        format_suffix(want, 0, *count);
        return shard_fail(first, err, E_MODEL, key_offset(first, "split.count"),
                          "this is part 1 of %d, but its name does not end in %s, so the others cannot be found",
                          *count, want);
    }
    if (read_key(first, "split.tensors.count", GGUF_I32, n_tensors, &found, err) != 0)
        return -1;
    if (found && *n_tensors < 0)
        return shard_fail(first, err, E_MODEL, key_offset(first, "split.tensors.count"),
                          "key 'split.tensors.count': %" PRId64 " is no number of tensors", *n_tensors);
    return 0;
}

int split_check_part(const struct gguf_shard *part, int count, int64_t n_tensors, struct error *err)
{
    const struct {
        const char *key;
        enum gguf_type type;
        int64_t want;
    } checks[] = {
        {"split.no", GGUF_U16, part->index},
        {"split.count", GGUF_U16, count},
        {"split.tensors.count", GGUF_I32, n_tensors},
    };
    for (size_t i = 0; i < COUNT_OF(checks); i++) {
        const char *key = checks[i].key;
        int64_t have = -1;
        bool found;
        if (read_key(part, key, checks[i].type, &have, &found, err) != 0)
            return -1;
        if (checks[i].want < 0) // the first part does not state it
            continue;
        if (!found)
            return shard_fail(part, err, E_MODEL, ERR_NO_OFFSET, "key '%s' is missing", key);
        if (have != checks[i].want)
            return shard_fail(part, err, E_MODEL, key_offset(part, key),
                              "key '%s': %" PRId64 ", but by the first part and its place it is %" PRId64, key, have,
                              checks[i].want);
    }
    return 0;
}
