// Keys that a user sets in place of those of the file. The keys are copied to a new array, with room for one more, and
// their index is sorted anew; arrays of a file are views, and stay where they are.
#include "gguf/gguf_internal.h"

static size_t value_bytes(const struct gguf_override *o)
{
    return o->type == GGUF_BOOL ? 1 : 8;
}

// Fills in the value; strings and numbers live in the arena.
static int set_value(struct gguf *g, struct gguf_kv *kv, const struct gguf_override *o, struct error *err)
{
    const uint8_t flag = o->type == GGUF_BOOL && o->boolean;
    const void *from = o->type == GGUF_BOOL ? &flag : o->type == GGUF_I64 ? (const void *)&o->integer : &o->real;
    *kv = (struct gguf_kv){.key = kv->key, .type = o->type, .element = o->type, .count = 1, .offset = ERR_NO_OFFSET};
    if (o->type == GGUF_STRING) {
        struct str *s = ARENA_NEW(&g->arena, struct str);
        const char *copy = arena_strdup(&g->arena, str_from(o->string));
        if (!s || !copy)
            return gguf_fail_memory(err, strlen(o->string), "a key");
        *s = str_from(copy);
        kv->strings = s;
        return 0;
    }
    uint8_t *data = arena_alloc(&g->arena, value_bytes(o), 8);
    if (!data)
        return gguf_fail_memory(err, value_bytes(o), "a key");
    memcpy(data, from, value_bytes(o));
    kv->data = data;
    return 0;
}

int gguf_set(struct gguf *g, const struct gguf_override *o, struct error *err)
{
    struct gguf_shard *s = &g->shards[0];
    const struct gguf_kv *old = shard_find(s, o->key);
    const size_t n = s->n_kv + (old ? 0 : 1), at = old ? (size_t)(old - s->kv) : s->n_kv;
    struct gguf_kv *kv = ARENA_ARRAY(&g->arena, struct gguf_kv, n);
    const void **by_key = ARENA_ARRAY(&g->arena, const void *, n);
    const char *key = arena_strdup(&g->arena, str_from(o->key));
    if (!kv || !by_key || !key)
        return gguf_fail_memory(err, n * sizeof *kv, "keys");
    memcpy(kv, s->kv, s->n_kv * sizeof *kv);
    kv[at].key = str_from(key);
    if (set_value(g, &kv[at], o, err))
        return -1;
    for (size_t i = 0; i < n; i++)
        by_key[i] = &kv[i];
    s->kv = kv;
    s->n_kv = n;
    s->by_key = by_key;
    return names_sort(by_key, n, err);
}
