// Where the answer of `quern run` goes: as text to stdout as it comes, as one JSON object at the end (--json), or as a
// line of JSON for each event (--jsonl). Reasoning is shown on a terminal, dimmed, and told in JSON; text that goes
// elsewhere is the answer alone.
//
// Ownership: run_output_free frees what was kept. Threads: the main thread.
#ifndef QUERN_RUN_OUTPUT_H
#define QUERN_RUN_OUTPUT_H

#include "cmd/options.h"
#include "engine/generate.h"

struct run_output {
    const struct options *o;
    const struct model *model;
    uint64_t seed;
    struct str prompt; // what --echo prints
    struct text text;  // the answer
    struct text reasoning;
    bool is_aside;      // what was written last was no part of the answer
    struct text tokens; // with --logprobs: the tokens as elements of a JSON array
    struct error error; // why writing failed
};

// Before the prompt is computed: what --echo asks for, of text.
int run_output_begin(struct run_output *out, struct error *err);
// For generate_options.emit, .emit_aside and .on_token, with the output as arg. On a failure out->error says why.
int run_output_text(void *out, struct str text);
int run_output_aside(void *out, enum answer_part part, struct str text);
int run_output_token(void *out, const struct generate_token *token);
// The end: the object of --json, the last line of --jsonl, or a line end where text on a terminal lacks one.
int run_output_end(struct run_output *out, const struct generate_result *r, struct error *err);
void run_output_free(struct run_output *out);

#endif
