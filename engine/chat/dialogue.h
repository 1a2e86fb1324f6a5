// A dialogue: messages in turn, the prompt that a template makes of them, and what of it a session holds already.
//
// Before each answer all messages are rendered and compared with the sequence: only what differs is computed. Where
// the sequence holds the same text in other tokens (a model may spell a word otherwise than the tokenizer does), those
// stay. Nothing is dropped from a dialogue but by who asks for it, or by `shift`, which tells each time.
// Ownership: a dialogue owns its messages; model, session and template are borrowed and outlive it. Threads: that of
// the session.
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
    struct session *session; // whose sequence 0 is the dialogue's
    const struct chat_template *chat;
    struct str system; // data NULL: none
    struct dialogue_message *messages;
    size_t n, cap;
};

// --- messages; all texts are copied, E_MEMORY ---

void dialogue_open(struct dialogue *d, const struct model *m, struct session *s, const struct chat_template *t);
void dialogue_close(struct dialogue *d);
int dialogue_set_system(struct dialogue *d, struct str text, struct error *err); // empty: none
int dialogue_add(struct dialogue *d, enum dialogue_role role, struct str content, struct str reasoning,
                 struct error *err);
// Keeps the first n messages.
void dialogue_cut(struct dialogue *d, size_t n);
// Where the last question stands; d->n when there is none.
size_t dialogue_last_question(const struct dialogue *d);

// --- answers ---

struct dialogue_settings {
    // How to sample, when to stop, what rule the answer keeps, and `cancel`; the rest is the dialogue's.
    struct generate_options base;
    int thinking;         // as in chat_request: 0 as the template likes, 1, -1
    bool shift;           // where the context is full, the oldest turns go, and the answer goes on
    answer_emit_fn *emit; // takes the answer, part by part
    // The oldest n messages, of that many tokens, have been dropped.
    void (*shifted)(void *arg, size_t n, int n_tokens);
    void *arg; // of both
};

struct dialogue_result {
    enum stop_reason reason;
    int n_prompt, n_computed; // tokens of the prompt, and those of them that were not held
    int64_t n_generated, n_steps;
    double prompt_ms, generate_ms;
    int n_context; // tokens of the sequence now
};

// Answers the last message, which is a question: adds the answer, as far as it has come when it is interrupted. On an
// error no message is added, but those that shift has dropped are gone. E_USAGE when the dialogue does not fit into
// the context, with what would help; E_INTERRUPTED when there was no token yet; what the template says.
int dialogue_answer(struct dialogue *d, const struct dialogue_settings *o, struct dialogue_result *r,
                    struct error *err);

// The text of the prompt for an answer to the messages as they are.
int dialogue_prompt(const struct dialogue *d, int thinking, struct text *plain, struct error *err);

// Appends to `out` the tokens `to`, or others of the same text that begin more like `from`: the parts of `from` that
// say the same in other tokens stand in their place. Control tokens are never exchanged.
int dialogue_align(const struct tokenizer *t, const int32_t *from, size_t n_from, const int32_t *to, size_t n_to,
                   struct token_list *out, struct error *err);

#endif
