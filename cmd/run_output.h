// Writes the answer of `quern run`: as text to stdout while it is generated, as one JSON object at the end (--json),
// or as one line of JSON per event (--jsonl). Reasoning is dimmed on a terminal and a member of its own in JSON; text
// that goes to a pipe or file is the answer alone.
//
// Ownership: run_output_free frees what was collected. Threads: the main thread.
#ifndef QUERN_RUN_OUTPUT_H
#define QUERN_RUN_OUTPUT_H

#include "cmd/load.h"
#include "cmd/terminal/wrap.h"
#include "engine/generate.h"

struct run_output {
    const struct options *o;
    struct loaded *loaded;
    const struct model *model;
    uint64_t seed;
    struct str prompt; // printed before the answer with --echo
    struct text text;  // the answer so far
    struct text reasoning;
    bool is_aside;      // the last text written was reasoning
    struct wrap wrap;   // what breaks text on a terminal
    struct text tokens; // with --logprobs: the tokens so far, as elements of a JSON array
    struct error error; // why writing failed
};

// Starts the output: prints the prompt for --echo in text form. To be called before the prompt is computed.
int run_output_begin(struct run_output *out, struct error *err);
// The callbacks for generate_options.on_prompt, .emit, .emit_aside and .on_token; `out` is the struct run_output. After a
// failure out->error holds the reason.
void run_output_prompt(void *out, bool over);
int run_output_text(void *out, struct str text);
int run_output_aside(void *out, enum answer_part part, struct str text);
int run_output_token(void *out, const struct generate_token *token);
// Ends the output: the object of --json, the last line of --jsonl, or the final newline of a text that lacks one.
int run_output_end(struct run_output *out, const struct generate_result *r, struct error *err);
void run_output_free(struct run_output *out);

#endif
