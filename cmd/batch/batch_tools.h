// Tools that an answer must call: tool_choice becomes a form of the answer, and the answer becomes calls.
//
// The form is that of the model's template where its calls are JSON between marks. Elsewhere the answer is JSON as in
// vLLM: the arguments of a named function, or a list of {"name", "parameters"} where any tool may be called.
// Ownership: what is made lives in the row's arena. Threads: one at a time.
#ifndef QUERN_BATCH_TOOLS_H
#define QUERN_BATCH_TOOLS_H

#include "cmd/batch/batch_row.h"
#include "engine/chat/answer.h"
#include "engine/grammar/grammar.h"

// Sets tools, choice and guide of a row by the body's tools, tool_choice and parallel_tool_calls. E_USAGE.
int batch_tools_take(struct batch_row *row, const struct value *body, struct error *err);
// Whether a template with this style of calls has a form of its own for a forced answer, which is then read like any
// other.
bool batch_tools_is_native(const struct answer_style *style);
// The schema of a forced answer, and what stands around it. style: how the template's calls look. E_USAGE: the schemas
// of the tools do not go together.
int batch_tools_schema(struct batch_row *row, const struct answer_style *style, const struct value **schema,
                       struct schema_frame *frame, struct error *err);
// The calls that an answer in vLLM's form says, as answer_tool_calls gives them. E_USAGE when it is not what was asked
// for; *calls is then as it was.
int batch_tools_read(struct batch_row *row, struct str answer, struct value *calls, struct error *err);

#endif
