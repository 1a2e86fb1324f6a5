// The manifest of a batch, OUT.manifest: what an output was begun with, so that only rows of the same run are
// appended.
//
// It is JSON with the fingerprints of model and input, the number of records, and every flag that changes an answer.
// It is written before the first row and always replaced as a whole, by rename. Threads: the main thread.
#ifndef QUERN_BATCH_MANIFEST_H
#define QUERN_BATCH_MANIFEST_H

#include "cmd/batch/batch_input.h"
#include "cmd/options.h"

#include <time.h>

struct batch_shard {
    int64_t index, count; // this shard computes the records for which (number - 1) % count == index
};

struct batch_manifest {
    struct digest_value model;
    struct batch_survey input;
    struct batch_shard shard;
    struct text parameters; // JSON
    time_t started;         // when the output was begun: the date that chat templates see, also in a resumed run
};

// Makes the manifest that this run would write. To be freed with batch_manifest_free.
int batch_manifest_make(struct batch_manifest *m, const struct options *o, struct digest_value model,
                        const struct batch_survey *input, struct batch_shard shard, struct error *err);
void batch_manifest_free(struct batch_manifest *m);
// Compares this manifest with the one beside the output. E_USAGE names the difference, unless `force` is set; it is
// also the error if the output has rows (n_bytes > 0) but no manifest. Takes over the start time of the existing one.
// *is_new: there was none, or it is to be replaced; that this can be done is checked.
int batch_manifest_check(struct batch_manifest *m, const char *out_path, uint64_t n_bytes, bool force, bool *is_new,
                         struct error *err);
int batch_manifest_write(const struct batch_manifest *m, const char *out_path, struct error *err);

// Reads what a part of a merge says about itself. Returns 1, or 0 if it has no manifest.
struct batch_part {
    char input[33], model[33];
    int64_t n_records;
    struct batch_shard shard;
};
int batch_manifest_read_part(const char *out_path, struct batch_part *out, struct error *err);

#endif
