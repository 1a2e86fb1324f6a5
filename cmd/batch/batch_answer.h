// The output line of an answered row: OpenAI's batch line around a completion or a chat completion.
//
// The line does not depend on when the row ran or on what ran beside it, so equal rows give equal bytes: `created` is
// 0. Threads: the main thread.
#ifndef QUERN_BATCH_ANSWER_H
#define QUERN_BATCH_ANSWER_H

#include "cmd/batch/batch_job.h"

// Appends the line with its newline. Temporary values are made in the arena of the job's row.
int batch_answer_print(struct batch_job *job, const struct batch_context *c, struct text *line, struct error *err);

#endif
