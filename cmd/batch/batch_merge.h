// quern batch merge: joins the outputs of shards into one, in the order of the input.
#ifndef QUERN_BATCH_MERGE_H
#define QUERN_BATCH_MERGE_H

#include "cmd/options.h"

// Merges; args are OUT PART... . A row that is in two parts is taken once if both agree, and is E_USAGE otherwise.
// *n_missing: rows of the input that no part has, if the manifests tell how many there are. *n_failed: rows that
// report an error.
int batch_merge(const struct option_list *args, bool force, int64_t *n_missing, int64_t *n_failed, struct error *err);

#endif
