// A dialogue: a sequence of messages, the prompt that a template makes of them, and answers generated in a session.
//
// Before each answer all messages are rendered and compared with the tokens in the session; only what differs is
// computed. If the session holds the same text in other tokens (a model may choose other tokens than the tokenizer),
// those are kept. Messages are removed only by the caller, or by `shift`, which reports it each time. Ownership: a
// dialogue owns its messages. Model, session and template are borrowed and must outlive it. Threads: only the thread
// of the session.
#ifndef QUERN_DIALOGUE_H
#define QUERN_DIALOGUE_H

#include "engine/chat/chat.h"
#include "engine/generate.h"

enum dialogue_role { ROLE_USER, ROLE_ASSISTANT };
extern const char *const dialogue_role_name[];

struct dialogue_message {
    enum dialogue_role role;
    struct str content, reasoning; // data NULL: none
};

struct dialogue {
    const struct model *model;
    struct session *session; // the dialogue uses its sequence 0
    const struct chat_template *chat;
    struct str system; // data NULL: none
    struct dialogue_message *messages;
    size_t n, cap;
};

// --- messages; all texts are copied; E_MEMORY ---

void dialogue_open(struct dialogue *d, const struct model *m, struct session *s, const struct chat_template *t);
void dialogue_close(struct dialogue *d);
int dialogue_set_system(struct dialogue *d, struct str text, struct error *err); // empty: none
int dialogue_add(struct dialogue *d, enum dialogue_role role, struct str content, struct str reasoning,
                 struct error *err);
// Keeps the first n messages.
void dialogue_cut(struct dialogue *d, size_t n);
// The index of the last message of the user; d->n if there is none.
size_t dialogue_last_question(const struct dialogue *d);

// --- answers ---

struct dialogue_settings {
    // sampling, stop conditions, the rule for the answer, and `cancel`; the dialogue sets the other members
    struct generate_options base;
    int thinking; // as in chat_request: 0 (the template's default), 1, -1
    // if the context is full, drop the oldest turns and continue the answer; few renderings find how many
    bool shift;
    answer_emit_fn *emit; // receives the answer, part by part
    // Called after the oldest n messages, n_tokens in all, were dropped.
    void (*shifted)(void *arg, size_t n, int n_tokens);
    void (*on_prompt)(void *arg, bool over); // as in generate_options; may be NULL
    void *arg;                               // for the callbacks
};

struct dialogue_result {
    enum stop_reason reason;
    // Tokens of the prompt, and how many of them were not in the session; of all prompts, where turns were dropped.
    int n_prompt, n_computed;
    int64_t n_generated, n_steps;
    double prompt_ms, generate_ms;
    int n_context; // tokens in the sequence afterwards
};

// Answers the last message, which must be a question, and adds the answer; if interrupted, the part so far. On an
// error no message is added, but messages dropped by `shift` stay dropped. E_USAGE if the dialogue does not fit into
// the context, with a hint at a remedy; E_INTERRUPTED if there was no token yet; errors of the template.
int dialogue_answer(struct dialogue *d, const struct dialogue_settings *o, struct dialogue_result *r,
                    struct error *err);

// Writes the text of the prompt for an answer to the present messages.
int dialogue_prompt(const struct dialogue *d, int thinking, struct text *plain, struct error *err);

// Appends to `out` the tokens `to`, with other tokens where this keeps more of `from`: where both have the same
// bytes, the tokens of `from` are used. Control tokens are never exchanged.
int dialogue_align(const struct tokenizer *t, const int32_t *from, size_t n_from, const int32_t *to, size_t n_to,
                   struct token_list *out, struct error *err);

#endif
