// What `quern run` is asked: the texts of -p, an argument, -f and stdin, and the tokens that they become.
//
// Ownership: run_prompt_free frees all of it. Threads: the main thread.
#ifndef QUERN_RUN_PROMPT_H
#define QUERN_RUN_PROMPT_H

#include "cmd/options.h"
#include "engine/chat/chat.h"
#include "engine/model.h"

struct run_prompt {
    struct str text; // as it was given
    char *data;      // of a file
    struct text joined;
    struct token_list tokens;
    // where a chat template applies
    bool is_chat;
    struct text rendered;      // what the template made of it
    struct answer_style style; // how the answer is to be split
};

// Zero-initialise *p. Reads the texts: what -p or the argument says, then the file. E_USAGE when there are two of one
// kind or none, and for images, which are named.
int run_prompt_read(struct run_prompt *p, const struct options *o, struct error *err);
// Makes them tokens: as one turn of a user, by the model's chat template or that of a file, unless --raw says
// otherwise or there is none. E_USAGE when --system then has no place.
int run_prompt_encode(struct run_prompt *p, const struct options *o, const struct model *m, struct error *err);
void run_prompt_free(struct run_prompt *p);

#endif
