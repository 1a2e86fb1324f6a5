// Where a tool call ends in the text of an answer, for the files that split answers and read calls.
//
// Threads: any; a struct quotes belongs to one text.
#ifndef QUERN_ANSWER_CALLS_H
#define QUERN_ANSWER_CALLS_H

#include "engine/chat/answer.h"

// Moves on over some text of a call. Only formats that write JSON or Python have strings.
void quotes_pass(const struct answer_style *style, struct quotes *q, struct str text);
// The offset of the mark that closes a call, outside of strings; SIZE_MAX if it is not in the text. `q` is the state at the
// beginning of the text.
size_t call_end(const struct answer_style *style, struct quotes q, struct str text);

#endif
