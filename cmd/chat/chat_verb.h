// quern chat: what its parts share. chat_verb.c reads lines and has them answered, chat_commands.c obeys the lines that
// begin with a slash, chat_view.c shows answers, chat_session.c keeps dialogues in files.
//
// Ownership: cmd_chat owns the struct. Threads: the main thread.
#ifndef QUERN_CHAT_VERB_H
#define QUERN_CHAT_VERB_H

#include "cmd/terminal/console.h"
#include "cmd/constraint_options.h"
#include "cmd/load.h"
#include "cmd/sampling_options.h"
#include "cmd/speculation.h"
#include "engine/chat/dialogue.h"

// How an answer is shown: on a terminal with its reasoning dimmed, elsewhere the content alone.
struct chat_view {
    bool terminal; // stdout is one
    bool dims;     // and obeys escape sequences
    bool hides_thinking;
    bool begun, ended_line; // of this answer: something is shown, and ends with a line end
    bool thinking;          // reasoning is being shown
    struct error error;     // of stdout
};

struct chat {
    struct options *o;
    struct loaded l;
    struct chat_template *chat;
    bool plain; // the model has no template
    struct dialogue dialogue;
    struct sampling sampling;
    struct speculation ahead;
    struct constrained form; // of answers
    struct console console;
    struct chat_view view;
    struct text attached; // by /read, for the next message
    uint64_t n_again;     // answers by /regen: each has random numbers of its own
    bool leaving;
    bool interrupted;                         // where nobody types: exit status 130
    bool failed;                              // some line could not be served: exit status 1 where nobody types
    int64_t n_turns, n_computed, n_generated; // since the start, for /stats
    double prompt_ms, generate_ms;
    struct dialogue_result last;
};

// --- chat_verb.c ---

// Has the last message answered and shown; keeps the session file. An error is noted, the message is taken back.
void chat_answer(struct chat *c);
// Adds a message, what /read has brought before it, and has it answered.
void chat_send(struct chat *c, struct str text);
// Takes over flags that have changed: E_USAGE.
int chat_apply_options(struct chat *c, struct error *err);
// A line on stderr, dimmed where that is possible.
void chat_note(const struct chat *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// --- chat_commands.c ---

void chat_command(struct chat *c, struct str line); // begins with a slash
void chat_complete(void *arg, struct str before, struct completions *out);

// --- chat_view.c ---

void chat_view_begin(struct chat_view *v, bool hides_thinking);
int chat_view_emit(void *view, enum answer_part part, struct str text);
// The end of the answer: the cursor is at the beginning of a line.
void chat_view_end(struct chat_view *v);

// --- chat_session.c ---

// Where a session of that name lies: the name itself when it is a path. The caller frees it. NULL: no memory, no home.
char *chat_session_path(const char *name);
// E_IO; the file is either the old one or the new one. With --cache the KV state beside it.
int chat_session_save(struct chat *c, const char *path, struct error *err);
// Replaces the dialogue. E_IO, E_USAGE with line and column; the dialogue is as it was then. A cache that is of no use
// is noted, and the dialogue computed anew.
int chat_session_load(struct chat *c, const char *path, struct error *err);

#endif
