// The verbs of the program, one function each, from arguments to exit status.
//
// argv[0] is the verb itself. A verb prints its own errors and returns the exit status, an enum err_code. Threads:
// the main thread only.
#ifndef QUERN_VERBS_H
#define QUERN_VERBS_H

#include "gguf/base.h"

#define VERB(NAME, name, ...) int cmd_##name(int argc, char **argv);
#include "cmd/verbs.def"
#undef VERB

// The number of a verb, and its bit (1 << number) in the masks of options.def.
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
    V_MEASURE = V_PERPLEXITY | V_IMATRIX,          // verbs that compute a text in windows
    V_SET = 1 << 30,                               // not a verb: what /set can change within a chat
    V_SAMPLING = V_SET | V_CHAT | V_RUN | V_BATCH, // verbs that sample
    V_ANSWERS = V_SET | V_CHAT | V_RUN,            // verbs that answer one prompt after another
    V_SPECULATES = V_RUN | V_CHAT,                 // verbs that generate one text at a time, and so can speculate
    V_ALL = (1 << VERB_COUNT) - 1
};

struct verb {
    const char *name, *usage, *summary;
    int (*run)(int argc, char **argv);
};
extern const struct verb verbs[VERB_COUNT];

// The whole program: argv[1] names the verb.
int verb_main(int argc, char **argv);
// Prints what quern is and which command to try next. Shown when no verb is given.
int help_greet(void);
// Prints "quern: TEXT" on stderr, and returns the exit status of the error.
int verb_fail(const struct error *err);

#endif
