// Which ids have been seen: a set of fingerprints of 128 bits, 24 bytes an id.
//
// Ownership: zero-initialise; freed by batch_ids_free. Threads: one.
#ifndef QUERN_BATCH_IDS_H
#define QUERN_BATCH_IDS_H

#include "cmd/digest.h"

struct batch_ids {
    struct batch_id {
        struct digest_value id;
        int64_t number; // of the record; 0: a free place
    } * places;
    size_t n, cap;
};

// Adds the id of a record. *first: the number of the record that had it first, this one's own if none did.
int batch_ids_add(struct batch_ids *ids, struct str id, int64_t number, int64_t *first, struct error *err);
void batch_ids_free(struct batch_ids *ids);

#endif
