// Messages of a request, as values in the form that a chat template expects.
//
// Ownership: the values live in the arena of struct making. Threads: one at a time on a struct making.
#ifndef QUERN_MESSAGES_H
#define QUERN_MESSAGES_H

#include "engine/value.h"

// What a template takes.
struct message_form {
    bool strings;        // takes content as a string; otherwise it becomes a list of one part
    bool parts;          // takes content as a list of parts; otherwise their texts are joined
    bool system;         // keeps a system message; otherwise its text is put in front of the first user message
    bool developer;      // keeps a developer message; otherwise it becomes a system message
    bool text_arguments; // arguments of tool calls must be passed as JSON text
    bool empty_content;  // messages without content must be passed with an empty one
};

// The state of making the values for one rendering.
struct making {
    const struct message_form *form;
    struct arena arena;
    struct error *err;
};

// Makes the list of messages. E_USAGE: they do not have the form that chat.h describes, or hold what is no text.
int messages_make(struct making *m, const struct value *given, struct value *out);

// The same messages with a word of its own in the place of each text of a content and of each name of a called function,
// which message_mark and message_call_mark print; to find out which of them a template writes.
int messages_mark(struct arena *arena, const struct value *given, struct value *out, struct error *err);
struct message_mark {
    char text[48];
};
struct message_mark message_mark(size_t message, size_t part);
struct message_mark message_call_mark(size_t message, size_t call);
// The number of texts of a content: 1 of a string, one for each part of a list, and 0 of anything else.
size_t message_parts(const struct value *content);
struct str message_part(const struct value *content, size_t i);

#endif
