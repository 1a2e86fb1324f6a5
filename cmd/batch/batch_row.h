// A row of a batch: what one record of the input asks for, read and checked without a model.
//
// OpenAI's batch lines, plain JSON objects, CSV and TSV records and lines of text all become the same thing: an id, an
// endpoint, and a body with OpenAI's field names. A field that is not known is an error, for an answer that passes over
// a wish is a wrong one. Ownership: a row owns its arena; what it holds are views of it. Threads: one at a time.
#ifndef QUERN_BATCH_ROW_H
#define QUERN_BATCH_ROW_H

#include "cmd/batch/batch_input.h"
#include "engine/value.h"

enum row_kind { ROW_COMPLETION, ROW_CHAT, ROW_EMBEDDING };

// How records without an endpoint of their own are read.
struct row_form {
    enum batch_format format;
    enum row_kind kind; // of prompts
    struct str prompt;  // the template: {{name}} stands for a field; data NULL: "{{text}}", or the object is a body
    struct str system;  // of chats; data NULL: none
    const struct str *fields; // [n_fields] names of the columns
    int n_fields;
};

// What a body says about sampling; NAN and -1 stand for what it does not say.
struct row_settings {
    double temperature, top_p, min_p, frequency_penalty, presence_penalty, repeat_penalty;
    int64_t top_k, max_tokens, n_logprobs;
    int64_t n;
    bool has_seed, ignore_end, wants_ids;
    uint64_t seed;
};

enum { ROW_STOPS_MOST = 64, ROW_SAMPLES_MOST = 128, ROW_LOGPROBS_MOST = 20, ROW_PROMPTS_MOST = 2048 };

struct batch_row {
    struct arena arena;
    int64_t number;       // of the record
    struct str custom_id; // data NULL: it could not be read
    enum row_kind kind;
    struct str model; // as the body names it; data NULL: not at all
    struct row_settings settings;
    const struct value *messages, *tools, *kwargs; // of a chat
    const struct value *prompt;                    // of a completion: a string, a list of strings, ids, lists of ids
    const struct value *bias;                      // logit_bias: a dict; NULL: none
    bool wants_json;                               // response_format: any JSON
    const struct value *schema;                    // response_format: json_schema
    const struct value *stops[ROW_STOPS_MOST];     // strings
    int n_stops;
};

// Zero-initialise *row. On an error *code is the kind of it, e.g. "invalid_json", and what was found by then, such as
// the custom_id, stands.
int batch_row_parse(struct batch_row *row, const struct record *record, const struct row_form *form, const char **code,
                    struct error *err);
void batch_row_free(struct batch_row *row);

// The header of a CSV or TSV file: the names in the arena. E_USAGE when there is none.
int batch_row_columns(const struct record *record, enum batch_format format, struct arena *arena,
                      const struct str **fields, int *n_fields, struct error *err);

#endif
