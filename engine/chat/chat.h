// From messages to the tokens of a prompt, by the chat template of a model.
//
// The template (Jinja, see engine/chat/jinja.h) writes a text around the messages. Its own text is parsed with control
// tokens; bytes that come from a message are marked as input, and no control token is ever made of them, not even in
// part: what a user writes is text. Between the two nothing else differs: normal text of both kinds that stands side by
// side is tokenised as one piece.
//
// Ownership: a chat_template copies what it needs of the file, and borrows the tokenizer. Threads: read-only once open;
// any number of threads may render at once.
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
    struct str source; // a template in place of the model's; data NULL: the model's
    const char *name;  // of a named one, e.g. "tool_use": tokenizer.chat_template.NAME; NULL: the default one
};

// The template that models without one are often used with, when the caller decides so: <|im_start|>role ...
// <|im_end|>.
extern const struct str chat_template_chatml;

// Whether the file has a template (NULL: the default one).
bool chat_template_exists(const struct gguf *file, const char *name);

// Reads and parses. E_MODEL: the file has no such template (the text lists those that it has), or a syntax error with
// its line and column. `file` may be NULL when the choice has a source.
int chat_open(struct chat_template **out, const struct gguf *file, const struct tokenizer *t,
              const struct chat_choice *choice, struct error *err);
void chat_close(struct chat_template *t); // NULL is fine

struct str chat_source(const struct chat_template *t);

// What the template does with what it is given, found by rendering small dialogues.
struct chat_abilities {
    bool system;   // keeps a system message; without it, its text is put in front of the first user message
    bool tools;    // mentions the tools
    bool parts;    // takes content as a list of parts; without it, texts are joined
    bool thinking; // `enable_thinking` changes what it writes, or it opens a block of reasoning itself
};
struct chat_abilities chat_can(const struct chat_template *t);

// One rendering. Zero-initialise; what is NULL is not given to the template.
struct chat_request {
    const struct value *messages; // a list of dicts: role, content (a string, or parts {type, text}), and where there
                                  // are any reasoning_content, tool_calls, tool_call_id, name
    const struct value *tools;    // a list of {type: "function", function: {name, description, parameters}}
    const struct value *kwargs;   // a dict of more variables, e.g. reasoning_effort; all of it counts as input
    bool add_generation_prompt;   // begin the answer
    int thinking;                 // enable_thinking: 0 not given, 1 true, -1 false
    time_t now;                   // for strftime_now, local time; 0: the clock
};

// Appends the tokens of the prompt to *out and, where `plain` is not NULL, its text to *plain. The prompt is complete:
// a BOS that the vocabulary asks for is there once, whether the template writes it or not. The prompt of a longer
// dialogue usually begins with that of a shorter one and its answer: the caller compares tokens. E_MODEL: the
// template's own refusal (raise_exception) or a fault in it, with line and column; E_USAGE: the messages are not of the
// form above.
int chat_render(const struct chat_template *t, const struct chat_request *r, struct token_list *out, struct text *plain,
                struct error *err);

// How an answer to this prompt is to be split: `prompt` is the text that chat_render gave, which may end within
// reasoning; tool calls are looked for only where there were tools. The style is a view of constants.
struct answer_style chat_answer_style(const struct chat_template *t, struct str prompt, bool tools);

#endif
