// Which rows of a batch this process computes: from --shard, a Slurm array, or a Kubernetes indexed job.
#ifndef QUERN_BATCH_SHARD_H
#define QUERN_BATCH_SHARD_H

#include "cmd/batch/batch_manifest.h"

// Parses a shard. text is "I/N"; "/N" takes I from $SLURM_ARRAY_TASK_ID or $JOB_COMPLETION_INDEX; NULL takes both
// from a Slurm array, and otherwise means all rows. *why (which may be NULL) names what set the shard if it was not
// the flag, else it becomes NULL. E_USAGE.
int batch_shard_take(struct batch_shard *s, const char *text, const char **why, struct error *err);
static inline bool batch_shard_has(struct batch_shard s, int64_t number)
{
    return (number - 1) % s.count == s.index;
}
// The path with {shard} replaced by "I-of-N", to be freed; NULL if memory is short.
char *batch_shard_path(struct batch_shard s, const char *path);

#endif
