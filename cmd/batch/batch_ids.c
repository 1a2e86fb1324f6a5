// A hash table with open addressing and linear probing. Its capacity is a power of two, starts at 1024 and doubles
// when half of the slots are used. The digest of an id is both the hash and the key; the text of the id is not
// stored.
#include "cmd/batch/batch_ids.h"

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
    struct batch_ids larger = {.n = ids->n, .cap = ids->cap ? 2 * ids->cap : 1024};
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

int batch_ids_add(struct batch_ids *ids, struct str id, int64_t number, int64_t *first, struct error *err)
{
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
    *ids = (struct batch_ids){0};
}
