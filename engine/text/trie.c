// All edges of the trie are in one hash table with the key (parent, byte), at most half full, so that a step down the
// trie costs about one access to memory. The first byte is looked up in a plain array instead. The hash is seeded as
// in token_map.c.
#include "engine/text/trie.h"

#include "engine/text/token_map.h"

int trie_new(struct trie *trie, size_t bytes, struct arena *arena, struct error *err)
{
    if (bytes >= TRIE_MAX_NODES) {
        return fail(err, E_MODEL, "key 'tokenizer.ggml.tokens': %zu bytes of strings, limit %d", bytes,
                    TRIE_MAX_NODES - 1);
    }
    size_t n_edges = 16;
    while (n_edges < 2 * bytes) {
        n_edges *= 2;
    }
    *trie = (struct trie){.edges = ARENA_ARRAY(arena, uint64_t, n_edges),
                          .mask = n_edges - 1,
                          .seed = token_hash_seed(),
                          .token = ARENA_ARRAY(arena, int32_t, bytes + 1),
                          .n_nodes = 1};
    if (trie->edges == NULL || trie->token == NULL) {
        return fail(err, E_MEMORY, "no memory for a trie of %zu bytes of strings", bytes);
    }
    trie->token[0] = -1;
    return 0;
}

// The edge from `parent` by `byte`, or the empty slot where it belongs.
static uint64_t *edge_of(const struct trie *trie, uint32_t parent, unsigned char byte)
{
    uint64_t key = (uint64_t)parent << 8 | byte;
    uint64_t h = (key ^ trie->seed) * UINT64_C(0x9E3779B97F4A7C15);
    for (uint64_t i = (h >> 32) & trie->mask;; i = (i + 1) & trie->mask) {
        if (trie->edges[i] == 0 || trie->edges[i] >> 32 == key) {
            return &trie->edges[i];
        }
    }
}

void trie_add(struct trie *trie, struct str s, int32_t token)
{
    uint32_t node = 0;
    for (size_t i = 0; i < s.len; i++) {
        unsigned char byte = (unsigned char)s.data[i];
        uint64_t *edge = edge_of(trie, node, byte);
        if (*edge == 0) {
            uint32_t child = trie->n_nodes++;
            trie->token[child] = -1;
            *edge = (uint64_t)node << 40 | (uint64_t)byte << 32 | child;
            if (node == 0) {
                trie->root[byte] = (int32_t)child;
            }
        }
        node = (uint32_t)*edge;
    }
    trie->token[node] = token;
}

int32_t trie_longest(const struct trie *trie, const char *p, const char *end, size_t *len)
{
    int32_t found = -1;
    *len = 0;
    uint32_t node = p < end ? (uint32_t)trie->root[(unsigned char)*p] : 0;
    for (size_t n = 1; node != 0; n++) {
        if (trie->token[node] >= 0) {
            found = trie->token[node];
            *len = n;
        }
        node = p + n < end ? (uint32_t)*edge_of(trie, node, (unsigned char)p[n]) : 0;
    }
    return found;
}

uint32_t trie_step(const struct trie *trie, uint32_t node, unsigned char byte)
{
    return node == 0 ? (uint32_t)trie->root[byte] : (uint32_t)*edge_of(trie, node, byte);
}
