// Open addressing with linear probing, in a table of a power of two of slots that is at most half full. A slot holds
// 32 bits of the hash, so that spellings are compared only when these are equal. The hash takes eight bytes at a
// time, and its seed comes from the random bytes that Linux gives each process.
#include "engine/text/token_map.h"

#include <sys/auxv.h>

// Multiplies, then folds the high half into the low half, so that every input bit reaches the bits that index a
// table.
static uint64_t stir(uint64_t h)
{
    h *= UINT64_C(0x9E3779B97F4A7C15);
    return h ^ (h >> 32);
}

uint64_t token_hash(const char *p, size_t n, uint64_t seed)
{
    uint64_t h = seed ^ n;
    for (; n > 8; p += 8, n -= 8) {
        h = stir(h ^ load64(p));
    }
    uint64_t tail;
    if (n >= 4) {
        tail = (uint64_t)load32(p) << 32 | load32(p + n - 4);
    } else {
        tail = n == 0 ? 0
                      : (uint64_t)(unsigned char)p[0] << 16 | (uint64_t)(unsigned char)p[n / 2] << 8 |
                            (unsigned char)p[n - 1];
    }
    return stir(stir(h ^ tail));
}

uint64_t token_hash_seed(void)
{
    uint64_t seed = UINT64_C(0x5851F42D4C957F2D);
    const char *random = (const char *)(uintptr_t)getauxval(AT_RANDOM);
    return random != NULL ? seed ^ load64(random) : seed;
}

int token_map_new(struct token_map *map, const struct spellings *spellings, struct arena *arena, struct error *err)
{
    size_t n_slots = 16;
    while (n_slots < 2 * (size_t)spellings->n) {
        n_slots *= 2;
    }
    *map =
        (struct token_map){spellings, ARENA_ARRAY(arena, struct token_slot, n_slots), n_slots - 1, token_hash_seed()};
    if (map->slots == NULL) {
        return fail(err, E_MEMORY, "no memory for a table of %zu token spellings", n_slots);
    }
    for (size_t i = 0; i < n_slots; i++) {
        map->slots[i].id = -1;
    }
    return 0;
}

// The slot that contains these bytes, or the empty slot where they belong.
static struct token_slot *slot_of(const struct token_map *map, const char *p, size_t n, uint64_t hash)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    for (uint64_t i = hash & map->mask;; i = (i + 1) & map->mask) {
        struct token_slot *slot = &map->slots[i];
        if (slot->id < 0) {
            return slot;
        }
        if (slot->tag != tag) {
            continue;
        }
        struct str s = spelling(map->spellings, slot->id);
        if (s.len == n && bytes_equal(s.data, p, n)) {
            return slot;
        }
    }
}

int32_t token_map_add(struct token_map *map, int32_t id)
{
    struct str text = spelling(map->spellings, id);
    uint64_t hash = token_hash(text.data, text.len, map->seed);
    struct token_slot *slot = slot_of(map, text.data, text.len, hash);
    int32_t earlier = slot->id;
    if (earlier < 0) {
        *slot = (struct token_slot){(uint32_t)(hash >> 32), id};
    }
    return earlier;
}

int32_t token_map_find_hashed(const struct token_map *map, const char *p, size_t n, uint64_t hash)
{
    return slot_of(map, p, n, hash)->id;
}

int32_t token_map_find(const struct token_map *map, const char *p, size_t n)
{
    return slot_of(map, p, n, token_hash(p, n, map->seed))->id;
}

uint64_t token_map_prefetch(const struct token_map *map, const char *p, size_t n)
{
    uint64_t hash = token_hash(p, n, map->seed);
    __builtin_prefetch(&map->slots[hash & map->mask]);
    return hash;
}
