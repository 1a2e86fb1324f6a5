// Tools that an answer must call: tool_choice becomes a form of the answer, and the answer becomes calls.
//
// A forced answer is JSON, whatever form the model's template has for calls: the arguments of a named function, or a
// list of {"name", "parameters"} where any tool may be called, as in vLLM.
// Ownership: what is made lives in the row's arena. Threads: one at a time.
#ifndef QUERN_BATCH_TOOLS_H
#define QUERN_BATCH_TOOLS_H

#include "cmd/batch/batch_row.h"

// Sets tools, choice and guide of a row by the body's tools, tool_choice and parallel_tool_calls. E_USAGE.
int batch_tools_take(struct batch_row *row, const struct value *body, struct error *err);
// The calls that a forced answer says, as answer_tool_calls gives them. E_USAGE when it is not what was asked for; *calls
// is then as it was.
int batch_tools_read(struct batch_row *row, struct str answer, struct value *calls, struct error *err);

#endif
