// Rows of /v1/embeddings: texts become vectors, many rows together.
//
// Ownership: a group borrows its jobs until they are taken; the run owns them. Threads: the main thread.
#ifndef QUERN_BATCH_EMBED_H
#define QUERN_BATCH_EMBED_H

#include "cmd/batch/batch_job.h"
#include "engine/embedder.h"

enum { EMBED_GROUP_ROWS = 256 }; // the most rows that are computed together

struct batch_embed {
    struct embedder *embedder;
    int n_longest; // tokens of a text that it takes
    struct batch_job *jobs[EMBED_GROUP_ROWS];
    int n;
    int64_t n_tokens; // of all rows so far
};

// Checks the flags of embeddings, which have no meaning for answers, and that pooling gives a vector for a text. E_USAGE.
int batch_embed_check(const struct model *m, const struct options *o, struct error *err);
// Makes the token lists of a parsed row. On an error *code is the kind of error for the output line.
int batch_embed_make(struct batch_job *job, const struct batch_context *c, const char **code, struct error *err);
// Computes the vectors of the jobs of the group.
int batch_embed_run(struct batch_embed *b, const struct batch_context *c, struct error *err);
// Appends the line of a job whose vectors are there.
int batch_embed_print(struct batch_job *job, const struct batch_context *c, struct text *line, struct error *err);
void batch_embed_free(struct batch_embed *b);

#endif
