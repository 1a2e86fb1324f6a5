// A hash table from the spelling of a token to its id.
//
// Ownership: the table lives in the arena that it was built in; the spellings belong to the caller. The hash is
// seeded per process, so that a file cannot be crafted to collide. Threads: read-only once built.
#ifndef QUERN_TOKEN_MAP_H
#define QUERN_TOKEN_MAP_H

#include "gguf/base.h"

// The concatenated spellings of n tokens: token i is the bytes at[i] to at[i + 1].
struct spellings {
    char *bytes;
    uint32_t *at;
    int32_t n;
};

static inline struct str spelling(const struct spellings *s, int32_t i)
{
    return (struct str){s->bytes + s->at[i], s->at[i + 1] - s->at[i]};
}

struct token_slot {
    uint32_t tag; // high bits of the hash
    int32_t id;   // -1 when empty
};

struct token_map {
    const struct spellings *spellings;
    struct token_slot *slots;
    uint64_t mask, seed;
};

static inline uint64_t load64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static inline uint32_t load32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

// memcmp for short strings, without a function call. Loads overlap, so they never read past the end.
static inline bool bytes_equal(const char *a, const char *b, size_t n)
{
    if (n >= 8) {
        for (size_t i = 0; i + 8 < n; i += 8) {
            if (load64(a + i) != load64(b + i)) {
                return false;
            }
        }
        return load64(a + n - 8) == load64(b + n - 8);
    }
    if (n >= 4) {
        return load32(a) == load32(b) && load32(a + n - 4) == load32(b + n - 4);
    }
    return n == 0 || (a[0] == b[0] && a[n / 2] == b[n / 2] && a[n - 1] == b[n - 1]);
}

// A hash of n bytes.
uint64_t token_hash(const char *p, size_t n, uint64_t seed);
uint64_t token_hash_seed(void); // the same within a process

// An empty table with room for all of `spellings`, which must outlive it. E_MEMORY.
int token_map_new(struct token_map *map, const struct spellings *spellings, struct arena *arena, struct error *err);
// Adds token `id`: -1, or the earlier token that is spelled the same, which stays.
int32_t token_map_add(struct token_map *map, int32_t id);
// The token with that spelling, or -1.
int32_t token_map_find(const struct token_map *map, const char *p, size_t n);
// The same in two steps, for lookups in batches: the first one prefetches the memory that the second one reads.
uint64_t token_map_prefetch(const struct token_map *map, const char *p, size_t n);
int32_t token_map_find_hashed(const struct token_map *map, const char *p, size_t n, uint64_t hash);

#endif
