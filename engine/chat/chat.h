// Turns messages into the tokens of a prompt by the chat template of a model.
//
// The template (Jinja, see engine/chat/jinja.h) writes text around the messages. In the template's own text control
// tokens are recognized. Bytes that come from a message are marked as input and never become part of a control token,
// so whatever a user writes stays text. Otherwise there is no difference: adjacent normal text of both kinds is
// tokenized as one piece.
//
// Ownership: a chat_template copies what it needs of the file, and borrows the tokenizer. Threads: read-only once
// open; any number of threads may render at once.
#ifndef QUERN_CHAT_H
#define QUERN_CHAT_H

#include "engine/chat/answer.h"
#include "engine/text/tokenizer.h"
#include "engine/value.h"
#include "gguf/gguf.h"
#include "kernels/text.h"

#include <time.h>

struct chat_template;

struct chat_choice {
    struct str source; // a template to use instead of the model's; data NULL: the model's
    const char *name;  // name of one of the model's templates, e.g. "tool_use" (tokenizer.chat_template.NAME); NULL:
                       // the default one
};

// A common template for models without one, used if the caller decides so: <|im_start|>role ... <|im_end|>.
extern const struct str chat_template_chatml;

// Whether the file has the template with this name; NULL: the default one.
bool chat_template_exists(const struct gguf *file, const char *name);

// Reads and parses a template. E_MODEL: the file has no such template (the text lists those that it has), or a syntax
// error with line and column. `file` may be NULL if `choice` has a source.
int chat_open(struct chat_template **out, const struct gguf *file, const struct tokenizer *t,
              const struct chat_choice *choice, struct error *err);
void chat_close(struct chat_template *t); // NULL is fine

struct str chat_source(const struct chat_template *t);

// What a template supports, found by rendering small dialogues.
struct chat_abilities {
    bool system;   // keeps a system message; otherwise its text is put in front of the first user message
    bool tools;    // writes the tools
    bool parts;    // takes content as a list of parts; otherwise their texts are joined
    bool thinking; // `enable_thinking` changes the output, or the prompt ends with an open block of reasoning
};
struct chat_abilities chat_can(const struct chat_template *t);

// The input of one rendering. Zero-initialise it. What is NULL is not passed to the template.
struct chat_request {
    const struct value *messages; // a list of dicts: role, content (a string, or parts {type, text}), and optionally
                                  // reasoning_content, tool_calls, tool_call_id, name
    const struct value *tools;    // a list of {type: "function", function: {name, description, parameters}}
    const struct value *kwargs;   // a dict of more variables, e.g. reasoning_effort; all of it is marked as input
    bool add_generation_prompt;   // write the beginning of the answer
    bool continue_final;          // end the prompt behind the text of the last message, which the answer continues
    int thinking;                 // enable_thinking: 0 not passed, 1 true, -1 false
    time_t now;                   // for strftime_now, in local time; 0: the current time
};

// Appends the tokens of the prompt to *out and, unless `plain` is NULL, its text to *plain. The prompt is complete: a
// BOS that the vocabulary prescribes is there exactly once, whether or not the template writes it. Usually the prompt
// of a longer dialogue begins with that of a shorter one and its answer; the caller has to compare tokens. E_MODEL:
// an error raised by the template itself (raise_exception) or a fault in it, with line and column. E_USAGE: the
// messages do not have the form above, hold what is no text, the template would leave one of them out, or the last one
// cannot be continued.
int chat_render(const struct chat_template *t, const struct chat_request *r, struct token_list *out, struct text *plain,
                struct error *err);

// How to split the answer to this prompt. `prompt` is the text from chat_render; it may end inside reasoning. Tool
// calls are recognized only if `tools`. The style refers to constants.
struct answer_style chat_answer_style(const struct chat_template *t, struct str prompt, bool tools);

#endif
