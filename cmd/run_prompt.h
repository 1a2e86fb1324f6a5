// The prompt of `quern run`: the texts from -p, an argument, -f and stdin, and the tokens that they become.
//
// Ownership: run_prompt_free frees all of it. Threads: the main thread.
#ifndef QUERN_RUN_PROMPT_H
#define QUERN_RUN_PROMPT_H

#include "cmd/options.h"
#include "engine/chat/chat.h"
#include "engine/model.h"

struct run_prompt {
    struct str text; // the texts joined, as given
    char *data;      // the content of the file; NULL: none
    struct text joined;
    struct token_list tokens;
    // whether a chat template is applied
    bool is_chat;
    struct text rendered;      // the text that the template rendered
    struct answer_style style; // how reasoning and answer are told apart
};

// Reads the texts: -p or the argument, then the file. *p must be zero-initialised. E_USAGE if there are two of one
// kind, or none, and for images, which are named in the error.
int run_prompt_read(struct run_prompt *p, const struct options *o, struct error *err);
// Tokenizes the text: as one user message through the chat template of the model or of --chat-template-file, or as
// plain text with --raw or where there is no template. E_USAGE if --system then has no effect.
int run_prompt_encode(struct run_prompt *p, const struct options *o, const struct model *m, struct error *err);
void run_prompt_free(struct run_prompt *p);

#endif
