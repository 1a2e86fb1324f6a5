// The verbs: one function each, from arguments to exit status.
//
// argv[0] is the verb itself, as main's is the program. A verb prints its own errors and returns the exit status, an
// enum err_code. Threads: called from the main thread only.
#ifndef QUERN_VERBS_H
#define QUERN_VERBS_H

#include "gguf/base.h"

#define VERB(NAME, name, ...) int cmd_##name(int argc, char **argv);
#include "cmd/verbs.def"
#undef VERB

// Bits of the verbs, for the options that they take.
enum verb_number {
#define VERB(NAME, ...) VERB_##NAME,
#include "cmd/verbs.def"
#undef VERB
    VERB_COUNT
};
enum verb_bit {
#define VERB(NAME, ...) V_##NAME = 1 << VERB_##NAME,
#include "cmd/verbs.def"
#undef VERB
    V_MEASURE = V_PERPLEXITY | V_IMATRIX,          // on a text, in windows
    V_SET = 1 << 30,                               // no verb: what /set changes within a chat
    V_SAMPLING = V_SET | V_CHAT | V_RUN | V_BATCH, // those that generate text
    V_ANSWERS = V_SET | V_CHAT | V_RUN,            // those that answer one prompt after another
    V_SPECULATES = V_RUN | V_CHAT,                 // those that generate one text at a time
    V_ALL = (1 << VERB_COUNT) - 1
};

struct verb {
    const char *name, *usage, *summary;
    int (*run)(int argc, char **argv);
};
extern const struct verb verbs[VERB_COUNT];

// The whole program: argv[1] names the verb.
int verb_main(int argc, char **argv);
// What quern is and the next command to try, for who gave no verb.
int help_greet(void);
// Prints "quern: TEXT" on stderr and returns the exit status that the error asks for.
int verb_fail(const struct error *err);

#endif
