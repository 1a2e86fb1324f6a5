// Shared by the parts of `quern chat`: chat_verb.c reads lines and has them answered, chat_commands.c executes
// commands (lines that begin with a slash), chat_view.c displays answers, chat_session.c saves dialogues in files.
//
// Ownership: cmd_chat owns the struct. Threads: the main thread.
#ifndef QUERN_CHAT_VERB_H
#define QUERN_CHAT_VERB_H

#include "cmd/chat/session_lock.h"
#include "cmd/constraint_options.h"
#include "cmd/load.h"
#include "cmd/sampling_options.h"
#include "cmd/speculation.h"
#include "cmd/terminal/console.h"
#include "cmd/terminal/wrap.h"
#include "engine/chat/dialogue.h"

#include <sys/stat.h>

// Displays an answer: on a terminal with its reasoning dimmed, elsewhere the content only.
struct chat_view {
    bool terminal; // stdout is a terminal
    bool dims;     // and understands escape sequences
    bool hides_thinking;
    bool begun, ended_line; // of this answer: something was written; and it ended with a newline
    bool thinking;          // reasoning is being displayed
    bool wraps;             // lines are broken between words
    struct wrap wrap;
    struct error error; // why writing to stdout failed
};

struct chat {
    struct options *o;
    struct loaded l;
    struct chat_template *chat;
    char *session_path;       // of --session; NULL: none
    struct session_lock lock; // of that session
    struct stat kept;         // its file as this chat has read or last written it, once was_kept is set
    bool was_kept;
    bool plain; // the model has no chat template
    struct dialogue dialogue;
    struct sampling sampling;
    struct speculation ahead;
    struct constrained form; // the constraint on answers
    struct console console;
    struct chat_view view;
    struct text attached; // text from /read, to be put before the next message
    uint64_t n_again;     // answers by /regen so far: each one has other random numbers
    bool leaving;
    bool interrupted;                         // in a pipe: the exit status will be 130
    bool failed;                              // in a pipe: a line failed, and the exit status will be 1
    bool unkept;                              // the session was not kept the last time: the exit status will be 5
    enum err_code fatal;                      // what ended the chat, and is its exit status; E_OK: nothing did
    int64_t n_turns, n_computed, n_generated; // since the start, for /stats
    double prompt_ms, generate_ms;
    struct dialogue_result last;
};

// --- chat_verb.c ---

// Generates and displays the answer to the last message, and saves the session. After an error, which is noted, the
// message is removed again.
void chat_answer(struct chat *c);
// Saves the dialogue in the file of --session, if there is one. A failure is noted.
void chat_keep_session(struct chat *c);
// Adds a message, with text from /read in front, and answers it.
void chat_send(struct chat *c, struct str text);
// Applies flags that have changed. E_USAGE.
int chat_apply_options(struct chat *c, struct error *err);
// The beginning of a message, by which a note calls it: at most 60 bytes of its first line, in whole characters.
struct str chat_opening(struct str text);
// Prints a line on stderr, dimmed where the terminal can.
void chat_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// --- chat_commands.c ---

void chat_command(struct chat *c, struct str line); // `line` begins with a slash
void chat_complete(void *arg, struct str before, struct completions *out);

// --- chat_view.c ---

void chat_view_begin(struct chat_view *v, bool hides_thinking);
int chat_view_emit(void *view, enum answer_part part, struct str text);
// Ends the answer; afterwards the cursor is at the beginning of a line.
void chat_view_end(struct chat_view *v);

// --- chat_session.c ---

// The path of a saved session: a name with a slash, with .json at its end, or of a file that is there is a path already;
// others are kept in the user's state folder. The caller frees it. NULL: E_USAGE for an empty name, "-" and one that is too
// long; E_MEMORY; E_IO if there is no home folder.
char *chat_session_path(const char *name, struct error *err);
// Saves the dialogue, and with --cache its KV cache beside it. The file is replaced as a whole. E_IO;
// E_USAGE if another program has that session, or somebody else has changed the file of --session meanwhile.
int chat_session_save(struct chat *c, const char *path, struct error *err);
// Whether a file of this name can be made, which is tried. E_IO; E_USAGE if something there is no regular file.
int chat_session_try(const char *path, struct error *err);
// Replaces the dialogue by a saved one. E_IO; E_USAGE with line and column; after an error the dialogue is unchanged.
// If the saved cache cannot be used, this is noted and the dialogue is computed again.
int chat_session_load(struct chat *c, const char *path, struct error *err);

#endif
