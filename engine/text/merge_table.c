// The merges of BPE: turns the "left right" lines of the file into a hash table over pairs of token ids.
#include <assert.h>
#include <inttypes.h>

#include "engine/text/vocab.h"

static const char merges_key[] = "tokenizer.ggml.merges";

enum { MERGE_BATCH = 32 };

// The slot at which the search for a pair begins.
static struct merge *first_slot(const struct merge_table *table, uint32_t left, uint32_t right)
{
    uint64_t h = (((uint64_t)left << 32 | right) ^ table->seed) * UINT64_C(0x9E3779B97F4A7C15);
    return &table->slots[(h >> 32) & table->mask];
}

// The slot of a pair, or the empty slot where it belongs.
static struct merge *slot_of(const struct merge_table *table, uint32_t left, uint32_t right)
{
    for (struct merge *m = first_slot(table, left, right);;) {
        if ((m->left == left && m->right == right) || m->left == MERGE_NONE) {
            return m;
        }
        m = m == &table->slots[table->mask] ? table->slots : m + 1;
    }
}

const struct merge *merge_find(const struct merge_table *table, uint32_t left, uint32_t right)
{
    const struct merge *m = slot_of(table, left, right);
    return m->left == MERGE_NONE ? NULL : m;
}

static int table_new(struct merge_table *table, size_t n, struct arena *arena, struct error *err)
{
    size_t n_slots = 16;
    while (n_slots < 2 * n) {
        n_slots *= 2;
    }
    *table = (struct merge_table){ARENA_ARRAY(arena, struct merge, n_slots), n_slots - 1, token_hash_seed()};
    if (table->slots == NULL) {
        return fail(err, E_MEMORY, "no memory for %zu merges", n);
    }
    for (size_t i = 0; i < n_slots; i++) {
        table->slots[i].left = MERGE_NONE;
    }
    return 0;
}

// If a pair occurs twice, the first merge counts.
static void table_add(struct merge_table *table, struct merge m)
{
    struct merge *slot = slot_of(table, m.left, m.right);
    if (slot->left == MERGE_NONE) {
        *slot = m;
    }
}

// One line "left right": both parts and their concatenation, all of which must be tokens.
struct line {
    struct str part[3]; // left, right, joined
    uint64_t hash[3];
};

// Splits line i at its space, which is not its first character, because a part may be a space. Copies the parts
// without it to `joined`.
static int split_line(const struct tokenizer *t, const struct gguf *g, const struct gguf_kv *kv, uint64_t i,
                      char *joined, struct line *l, struct error *err)
{
    struct str line = kv->strings[i];
    const char *space = line.len > 2 ? memchr(line.data + 1, ' ', line.len - 2) : NULL;
    if (space == NULL) {
        return vocab_fail(g, merges_key, err, "element %" PRIu64 ": '%.*s' is not two tokens with a space between", i,
                          (int)MIN(line.len, (size_t)64), line.data);
    }
    size_t n_left = (size_t)(space - line.data), n_right = line.len - n_left - 1;
    memcpy(joined, line.data, n_left);
    memcpy(joined + n_left, space + 1, n_right);
    *l = (struct line){.part = {{joined, n_left}, {joined + n_left, n_right}, {joined, n_left + n_right}}};
    for (int k = 0; k < 3; k++) {
        l->hash[k] = token_map_prefetch(&t->map, l->part[k].data, l->part[k].len);
    }
    return 0;
}

static int find_parts(const struct tokenizer *t, const struct gguf *g, uint64_t i, const struct line *l,
                      struct merge *m, struct error *err)
{
    int32_t ids[3];
    for (int k = 0; k < 3; k++) {
        ids[k] = token_map_find_hashed(&t->map, l->part[k].data, l->part[k].len, l->hash[k]);
        if (ids[k] < 0) {
            return vocab_fail(g, merges_key, err, "element %" PRIu64 ": '%.*s' is not in tokenizer.ggml.tokens", i,
                              (int)MIN(l->part[k].len, (size_t)64), l->part[k].data);
        }
    }
    *m = (struct merge){(uint32_t)ids[0], (uint32_t)ids[1], (uint32_t)i, (uint32_t)ids[2]};
    __builtin_prefetch(first_slot(&t->merges, m->left, m->right), 1);
    return 0;
}

// Processes n lines in three passes with prefetches between them. There are hundreds of thousands of lines, and the
// tables are larger than the caches, so each lookup would otherwise wait for memory.
static int load_batch(struct tokenizer *t, const struct gguf *g, const struct gguf_kv *kv, uint64_t first, size_t n,
                      char *joined, struct error *err)
{
    struct line lines[MERGE_BATCH];
    struct merge merges[MERGE_BATCH];
    for (size_t i = 0; i < n; i++) {
        if (split_line(t, g, kv, first + i, joined, &lines[i], err) != 0) {
            return -1;
        }
        joined += lines[i].part[2].len;
    }
    for (size_t i = 0; i < n; i++) {
        if (find_parts(t, g, first + i, &lines[i], &merges[i], err) != 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (token_is_plain(t, (int32_t)merges[i].merged)) {
            table_add(&t->merges, merges[i]);
        }
    }
    return 0;
}

static int load_lines(struct tokenizer *t, const struct gguf *g, const struct gguf_kv *kv, struct error *err)
{
    size_t longest = 1; // bytes of the longest batch of lines
    for (uint64_t i = 0; i < kv->count; i += MERGE_BATCH) {
        size_t bytes = 0;
        for (uint64_t k = i; k < MIN(kv->count, i + MERGE_BATCH); k++) {
            bytes += kv->strings[k].len;
        }
        longest = MAX(longest, bytes);
    }
    struct arena scratch = {0};
    char *joined = arena_alloc(&scratch, longest, 1);
    int rc = joined != NULL ? 0 : fail(err, E_MEMORY, "no memory for merges of %zu bytes", longest);
    for (uint64_t i = 0; rc == 0 && i < kv->count; i += MERGE_BATCH) {
        rc = load_batch(t, g, kv, i, (size_t)MIN(kv->count - i, (uint64_t)MERGE_BATCH), joined, err);
    }
    arena_free(&scratch);
    return rc;
}

// Kimi's files may come without merges. Then any two tokens merge whose concatenation is a token, lower ids first.
static int derive_merges(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    enum { LONGEST = 512 }; // bounds the time, which is quadratic in the length
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && table_new(&t->merges, n, &t->arena, err) != 0) {
            return -1;
        }
        for (int32_t id = 0; id < t->text.n; id++) {
            struct str s = spelling(&t->text, id);
            if (s.len > LONGEST) {
                return vocab_fail(g, "tokenizer.ggml.tokens", err,
                                  "element %d: %zu bytes, limit %d where merges are derived", id, s.len, LONGEST);
            }
            for (size_t cut = 1; cut < s.len && t->attr[id] == TOKEN_NORMAL; cut++) {
                int32_t left = token_map_find(&t->map, s.data, cut);
                int32_t right = left < 0 ? -1 : token_map_find(&t->map, s.data + cut, s.len - cut);
                if (right < 0) {
                    continue;
                }
                n++;
                if (pass == 1) {
                    table_add(&t->merges, (struct merge){(uint32_t)left, (uint32_t)right, (uint32_t)id, (uint32_t)id});
                }
            }
        }
    }
    return 0;
}

int vocab_load_merges(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    const struct gguf_kv *kv = NULL;
    int found = gguf_get_array(g, merges_key, GGUF_STRING, &kv, err);
    if (found < 0) {
        return -1;
    }
    if (found == 0 && t->pre->family == SPLIT_KIMI_K2) {
        return derive_merges(t, g, err);
    }
    if (found == 0) {
        return vocab_fail(g, merges_key, err, "missing, as the model is BPE");
    }
    assert(kv->count < MERGE_NONE); // a file has 128 MB of metadata at most
    return table_new(&t->merges, (size_t)kv->count, &t->arena, err) == 0 ? load_lines(t, g, kv, err) : -1;
}
