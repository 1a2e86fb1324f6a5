// A row while it is computed: it becomes requests for the scheduler, and their answers become an output line.
//
// Ownership: a job owns its row, its requests and everything that they view; it must not move in memory until it is
// freed. The context belongs to the run. Threads: the main thread.
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
    const struct sampling *sampling; // defaults for what a row does not say
    uint64_t seed;
    int n_ctx;
    char model_name[128];
    struct chat_template *chat; // NULL: the model has no template, or one that cannot be used
    struct error chat_error;    // why the template cannot be used
    const struct value *kwargs; // more variables for the template, from the flags; NULL: none. In the arena
    struct arena arena;
    struct batch_schemas *schemas;
    struct constrained constrained; // the constraint from the flags, for rows without a response_format
    time_t now;                     // the time that templates see; 0: the clock's
};
// Collects what rows may need from the model and the flags. The sampling seed is --seed, or 0, so that a run without
// the flag is reproducible as well.
int batch_context_open(struct batch_context *c, const struct model *m, const struct options *o,
                       const struct sampling *sampling, int n_ctx, struct error *err);
void batch_context_close(struct batch_context *c);
// Whether prompts are chat messages for this model, which means that it has a chat template.
bool batch_context_chats(const struct batch_context *c);

struct batch_job {
    struct batch_job *next, **link; // list links for the caller, who keeps the jobs under way in a list
    struct batch_row row;
    struct request *requests;   // [n_requests], one per prompt
    struct token_list *prompts; // [n_requests]
    int n_requests, n_open;     // n_open is the caller's count of requests that have not come back
    int64_t n_bad_calls;        // tool calls that could not be read, and are content
    float *vectors;             // [n_requests][width] of an embedding
    int width;
    bool failed;             // the vectors are no numbers
    bool cut;                // a text of an embedding had more tokens than the model takes
    struct text prompt_text; // of a chat: its last characters decide how the answer is split into reasoning and content
    struct str *stops;       // stop strings of all requests
    int32_t *stop_tokens;    // stop tokens of all requests
    struct text_scores *scores; // [n_requests] log-probabilities of the prompts; NULL: not wanted
    struct logit_bias *biases;
    struct batch_schemas *schemas; // where `schema` comes from, if it is the row's own
    struct batch_schema *schema;
    struct answer_rule **answer_rules; // [n_rules], one per sample
    struct token_rule *rules;          // [n_rules], the rules as the scheduler sees them
    int n_rules;
};

// Makes requests of a parsed row; the job must be zero but for the row. On an error *code is the kind of error for
// the output line.
int batch_job_make(struct batch_job *job, const struct batch_context *c, const char **code, struct error *err);
// Appends the line of a job whose requests have come back. *why: the reason if it reports an error, else NULL; it lives as
// long as the job.
int batch_job_print(struct batch_job *job, const struct batch_context *c, struct text *line, const char **why,
                    struct error *err);
// How the answer to a chat is split into reasoning, content and calls.
struct answer_style batch_job_style(const struct batch_job *job, const struct batch_context *c);
void batch_job_free(struct batch_job *job);

// Appends the beginning of an answer's line, up to the first brace of its body.
int batch_line_begin(const struct batch_job *job, struct text *line, struct error *err);
// Appends an id as it is written in an output line: a JSON string, or null.
int batch_id_print(struct str custom_id, struct text *out, struct error *err);
// Appends the line of a row that failed. custom_id has NULL data if it is not known.
int batch_error_print(int64_t number, struct str custom_id, const char *code, const char *message, struct text *line,
                      struct error *err);

#endif
