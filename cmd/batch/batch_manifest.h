// The manifest of a batch, OUT.manifest: what an output was begun with, so that nothing else is appended to it.
//
// JSON: the model's fingerprint, the input's, its records, and every flag that changes an answer. It is written before
// the first row and replaced whole, by rename. Threads: the main thread.
#ifndef QUERN_BATCH_MANIFEST_H
#define QUERN_BATCH_MANIFEST_H

#include "cmd/batch/batch_input.h"
#include "cmd/options.h"

#include <time.h>

struct batch_shard {
    int64_t index, count; // this one computes the records whose number - 1 is `index` modulo `count`
};

struct batch_manifest {
    struct digest_value model;
    struct batch_survey input;
    struct batch_shard shard;
    struct text parameters; // JSON
    time_t started;         // when the output was begun: the date of chat templates, also of a run that goes on
};

// What this run would write. To be freed.
int batch_manifest_make(struct batch_manifest *m, const struct options *o, struct digest_value model,
                        const struct batch_survey *input, struct batch_shard shard, struct error *err);
void batch_manifest_free(struct batch_manifest *m);
// Compares it with what lies beside the output. E_USAGE names what differs, unless `force`; also when there are rows
// (n_bytes of the output above 0) but no manifest. Takes over when it was begun. *is_new: there was none, or it is to
// be replaced.
int batch_manifest_check(struct batch_manifest *m, const char *out_path, uint64_t n_bytes, bool force, bool *is_new,
                         struct error *err);
int batch_manifest_write(const struct batch_manifest *m, const char *out_path, struct error *err);

// What a part of a merge says about itself: 1, or 0 when it has no manifest.
struct batch_part {
    char input[33], model[33];
    int64_t n_records;
    struct batch_shard shard;
};
int batch_manifest_read_part(const char *out_path, struct batch_part *out, struct error *err);

#endif
