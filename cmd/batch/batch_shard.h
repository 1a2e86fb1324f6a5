// Which rows of a batch are this process's: --shard, or what a Slurm array or a Kubernetes indexed job says.
#ifndef QUERN_BATCH_SHARD_H
#define QUERN_BATCH_SHARD_H

#include "cmd/batch/batch_manifest.h"

// "I/N"; "/N": I from $SLURM_ARRAY_TASK_ID or $JOB_COMPLETION_INDEX; NULL: both from a Slurm array, else all rows.
// *why (may be NULL): NULL, or what set the shard when no flag did. E_USAGE.
int batch_shard_take(struct batch_shard *s, const char *text, const char **why, struct error *err);
static inline bool batch_shard_has(struct batch_shard s, int64_t number)
{
    return (number - 1) % s.count == s.index;
}
// The path with "I-of-N" for {shard}, to be freed; NULL when memory is short.
char *batch_shard_path(struct batch_shard s, const char *path);

#endif
