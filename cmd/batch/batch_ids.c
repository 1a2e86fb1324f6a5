// A hash table with open addressing and linear probing. Its capacity is a power of two, starts at 1024 and doubles
// when half of the slots are used. The digest of an id is both the hash and the key; the text of the id is not
// stored.
#include "cmd/batch/batch_ids.h"

#include <stdio.h>
#include <stdlib.h>

static struct batch_id *place_of(const struct batch_ids *ids, struct digest_value id)
{
    for (size_t i = id.a & (ids->cap - 1);; i = (i + 1) & (ids->cap - 1)) {
        struct batch_id *p = &ids->places[i];
        if (!p->number || (p->id.a == id.a && p->id.b == id.b))
            return p;
    }
}

static int grow(struct batch_ids *ids, struct error *err)
{
    struct batch_ids larger = *ids;
    larger.cap = ids->cap ? 2 * ids->cap : 1024;
    larger.places = calloc(larger.cap, sizeof *larger.places);
    if (!larger.places)
        return fail(err, E_MEMORY, "no memory for %zu ids", larger.cap);
    for (size_t i = 0; i < ids->cap; i++)
        if (ids->places[i].number)
            *place_of(&larger, ids->places[i].id) = ids->places[i];
    free(ids->places);
    *ids = larger;
    return 0;
}

static bool has_own(const struct batch_ids *ids, int64_t number)
{
    const size_t byte = (size_t)number / 8;
    return byte < ids->own_size && (ids->own[byte] >> number % 8 & 1);
}

static int set_own(struct batch_ids *ids, int64_t number, struct error *err)
{
    const size_t byte = (size_t)number / 8;
    if (byte >= ids->own_size) {
        const size_t size = 2 * byte + 256;
        uint8_t *larger = realloc(ids->own, size);
        if (!larger)
            return fail(err, E_MEMORY, "no memory for the ids of %lld rows", (long long)number);
        memset(larger + ids->own_size, 0, size - ids->own_size);
        ids->own = larger;
        ids->own_size = size;
    }
    ids->own[byte] |= (uint8_t)(1u << number % 8);
    return 0;
}

// The number N if the text is "row-N" as it is printed for record N, else -1.
static int64_t number_of(struct str id)
{
    char text[32], again[32], *end;
    if (id.len < 5 || id.len >= sizeof text || memcmp(id.data, "row-", 4))
        return -1;
    snprintf(text, sizeof text, "%.*s", STR_ARG(id));
    const long long n = strtoll(text + 4, &end, 10);
    snprintf(again, sizeof again, "row-%lld", n);
    return !*end && n > 0 && !strcmp(text, again) ? n : -1;
}

int batch_ids_add(struct batch_ids *ids, struct str id, int64_t number, bool own, int64_t *first, struct error *err)
{
    const struct batch_id *given = own && ids->cap ? place_of(ids, digest_of(id)) : NULL;
    const int64_t like = own ? -1 : number_of(id);
    *first = given && given->number ? given->number : number;
    if (own)
        return *first == number ? set_own(ids, number, err) : 0;
    if (like > 0 && has_own(ids, like)) {
        *first = like;
        return 0;
    }
    if (2 * ids->n >= ids->cap && grow(ids, err))
        return -1;
    struct digest_value digest = digest_of(id);
    struct batch_id *p = place_of(ids, digest);
    if (!p->number) {
        *p = (struct batch_id){digest, number};
        ids->n++;
    }
    *first = p->number;
    return 0;
}

void batch_ids_free(struct batch_ids *ids)
{
    free(ids->places);
    free(ids->own);
    *ids = (struct batch_ids){0};
}
