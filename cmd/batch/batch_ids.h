// The set of ids seen so far: 128-bit fingerprints, in a table of 48 to 96 bytes for each id. A record without an id has
// "row-" and its number; of it only a bit is kept.
//
// Ownership: zero-initialise; batch_ids_free frees it. Threads: one at a time.
#ifndef QUERN_BATCH_IDS_H
#define QUERN_BATCH_IDS_H

#include "cmd/digest.h"

struct batch_ids {
    struct batch_id {
        struct digest_value id;
        int64_t number; // number of the record; 0: an empty slot
    } * places;
    size_t n, cap;
    uint8_t *own; // a bit for each number: the record has an id of its own making
    size_t own_size;
};

// Adds the id of a record. *first becomes the number of the record that had the id first: this record's own number if
// none did. `own`: the id is that of a record without one. E_MEMORY.
int batch_ids_add(struct batch_ids *ids, struct str id, int64_t number, bool own, int64_t *first, struct error *err);
void batch_ids_free(struct batch_ids *ids);

#endif
