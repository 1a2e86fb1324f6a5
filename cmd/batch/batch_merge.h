// quern batch merge: the outputs of shards become one, in the order of the input.
#ifndef QUERN_BATCH_MERGE_H
#define QUERN_BATCH_MERGE_H

#include "cmd/options.h"

// args: OUT PART... A row that is in two parts is taken once if both say the same, else it is E_USAGE. *n_missing: rows
// of the input that no part has, where the manifests say how many there are; *n_failed: rows with an error.
int batch_merge(const struct option_list *args, bool force, int64_t *n_missing, int64_t *n_failed, struct error *err);

#endif
