// A row on its way through the scheduler: from what it asks for to requests, and from their answers to an output line.
//
// Ownership: a job owns its row, its requests and what they view; it stays in its place until it is freed. The context
// is the run's. Threads: the main thread.
#ifndef QUERN_BATCH_JOB_H
#define QUERN_BATCH_JOB_H

#include "cmd/batch/batch_row.h"
#include "cmd/batch/batch_schema.h"
#include "cmd/constraint_options.h"
#include "cmd/sampling_options.h"
#include "engine/answer_rule.h"
#include "engine/chat/chat.h"
#include "engine/scheduler.h"

// What all rows of a run share.
struct batch_context {
    const struct model *model;
    const struct options *options;
    const struct sampling *sampling; // what holds where a row says nothing
    uint64_t seed;
    int n_ctx;
    char model_name[128];
    struct chat_template *chat; // NULL: the model has none, or one that cannot be used
    struct error chat_error;    // why
    struct batch_schemas *schemas;
    struct constrained constrained; // by flags, of rows without a response_format
    time_t now;                     // of templates that ask for the date; 0: the clock
};
// Takes what rows may need of the model. The sampling's seed is --seed, or 0: a run without it can be repeated, too.
int batch_context_open(struct batch_context *c, const struct model *m, const struct options *o,
                       const struct sampling *sampling, int n_ctx, struct error *err);
void batch_context_close(struct batch_context *c);
// Whether prompts are messages to this model: it has a chat template.
bool batch_context_chats(const struct batch_context *c);

struct batch_job {
    struct batch_job *next, **link; // the caller's, who keeps those under way in a list
    struct batch_row row;
    struct request *requests;   // [n_requests], one a prompt
    struct token_list *prompts; // [n_requests]
    int n_requests, n_open;     // n_open: for the caller, who counts those that come back
    struct text prompt_text;    // of a chat: where it ends decides how the answer is split
    struct str *stops;          // of all of them
    struct logit_bias *biases;
    struct batch_schemas *schemas; // of the schema, where it is the row's own
    struct batch_schema *schema;
    struct answer_rule **answer_rules; // [n_rules], a sample each
    struct token_rule *rules;          // [n_rules], what the scheduler sees of them
    int n_rules;
};

// From a parsed row, zero but for it, to requests. On an error *code says of which kind.
int batch_job_make(struct batch_job *job, const struct batch_context *c, const char **code, struct error *err);
// The line of a job whose requests have come back, answers or an error: *is_error.
int batch_job_print(struct batch_job *job, const struct batch_context *c, struct text *line, bool *is_error,
                    struct error *err);
void batch_job_free(struct batch_job *job);

// The id as it stands in a line: a JSON string, or null.
int batch_id_print(struct str custom_id, struct text *out, struct error *err);
// The line of a row that failed. custom_id: data NULL when it is not known.
int batch_error_print(int64_t number, struct str custom_id, const char *code, const char *message, struct text *line,
                      struct error *err);

#endif
