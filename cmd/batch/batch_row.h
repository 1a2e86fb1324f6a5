// A row of a batch: what one record of the input asks for, parsed and checked without the model.
//
// OpenAI's batch lines, plain JSON objects, CSV and TSV records and lines of text all become the same thing: an id,
// an endpoint, and a body with OpenAI's field names. An unknown field is an error, because an answer that ignores a
// request is wrong. Ownership: a row owns its arena; what it holds are views of it. Threads: one at a time.
#ifndef QUERN_BATCH_ROW_H
#define QUERN_BATCH_ROW_H

#include "cmd/batch/batch_input.h"
#include "engine/value.h"

enum row_kind { ROW_COMPLETION, ROW_CHAT, ROW_EMBEDDING };

// How to read records that have no endpoint of their own.
struct row_form {
    enum batch_format format;
    enum row_kind kind; // what prompts become
    // The template, in which {{name}} stands for a field. NULL data: "{{text}}" for lines, and an object is its own body.
    struct str prompt;
    struct str system;        // system message of chats; NULL data: none
    bool ignore_unknown;      // fields that are not known are passed over
    const struct str *fields; // [n_fields] names of the columns
    int n_fields;
};

// What says which form an answer has: nothing, any JSON object, a JSON Schema, GBNF, a regular expression that the
// whole answer matches, a list of answers, or calls of tools, see choice.
enum row_guide { GUIDE_NONE, GUIDE_OBJECT, GUIDE_SCHEMA, GUIDE_GRAMMAR, GUIDE_REGEX, GUIDE_CHOICE, GUIDE_CALLS };

// Whether an answer must call a tool: any, or one by name.
enum row_choice { CHOICE_FREE, CHOICE_REQUIRED, CHOICE_NAMED };

// The sampling settings of a body. NAN and -1 mean that it does not set a value.
struct row_settings {
    double temperature, top_p, min_p, frequency_penalty, presence_penalty, repeat_penalty;
    int64_t top_k, max_tokens, n_logprobs, n_prompt_logprobs;
    int64_t n, min_tokens;
    bool has_seed, ignore_end, wants_ids;
    bool echo; // the prompt stands before the answer
    uint64_t seed;
};

enum { ROW_STOPS_MOST = 64, ROW_SAMPLES_MOST = 128, ROW_LOGPROBS_MOST = 20, ROW_PROMPTS_MOST = 2048 };

struct batch_row {
    struct arena arena;
    int64_t number;       // number of the record
    struct str custom_id; // NULL data: it could not be read
    bool own_id;          // the row gave no id, and has "row-" and its number
    enum row_kind kind;
    struct str model; // as the body names it; NULL data: it does not
    struct row_settings settings;
    const struct value *messages, *tools, *kwargs; // of a chat; NULL: none
    const struct value *
        prompt; // of a completion, or the input of an embedding: a string, a list of strings, a list of ids, or a list of lists of ids
    int64_t dimensions;         // of an embedding; 0: all
    bool base64;                // embeddings are float32 in base64
    const struct value *bias;   // logit_bias, a dict; NULL: none
    bool ignore_unknown;        // see struct row_form
    bool no_answer_begun;       // add_generation_prompt is false: the prompt ends behind the last message
    bool continues;             // continue_final_message: the answer continues the last message
    enum row_choice choice;     // tool_choice
    const struct value *chosen; // the tool, with CHOICE_NAMED
    bool one_call;              // an answer has one call at most
    enum row_guide guide;
    const struct value *guide_value;           // the schema, the text, or the list of strings; NULL: none
    const struct value *stops[ROW_STOPS_MOST]; // strings
    int n_stops;
    const struct value *stop_ids; // stop_token_ids, a list of whole numbers; NULL: none
};

// Parses a record. *row must be zero-initialised. On an error *code is its kind, such as "invalid_json", and fields
// that were parsed before the error, such as the custom_id, remain set.
int batch_row_parse(struct batch_row *row, const struct record *record, const struct row_form *form, const char **code,
                    struct error *err);
void batch_row_free(struct batch_row *row);

// Parses the header of a CSV or TSV file; the names live in the arena. E_USAGE if there is no header.
int batch_row_columns(const struct record *record, enum batch_format format, struct arena *arena,
                      const struct str **fields, int *n_fields, struct error *err);

#endif
