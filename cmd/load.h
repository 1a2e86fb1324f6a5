// From flags to a loaded model and a session on it: what run, logits and dump share.
//
// Ownership: the caller closes both with load_close. Threads: the main thread.
#ifndef QUERN_LOAD_H
#define QUERN_LOAD_H

#include "cmd/options.h"
#include "engine/session.h"
#include "engine/tap.h"

struct loaded {
    struct model *model;
    struct session *session;
    struct tap *tap; // --tap; NULL: none
};

// -m, $QUERN_MODEL, or MODEL_BUILTIN, for model_open and model_file_open: NULL with an error that says how to get a
// model where the build has none. A view of the options.
const char *load_path(const struct options *o, struct error *err);
struct machine_options load_machine_options(const struct options *o);
// Opens the model; with -v says what was chosen and why.
int load_model(struct loaded *l, const struct options *o, struct error *err);
// Opens a session of one sequence, with n_outputs rows of logits a step (-1: as many as there are rows). Without -c it has
// room for n_wanted tokens at least.
int load_session(struct loaded *l, const struct options *o, int64_t n_wanted, int n_outputs, struct error *err);
// Finishes what --tap saves; E_IO when it could not be written.
int load_finish_taps(struct loaded *l, struct error *err);
// Prints the lines of a description on stderr, and frees it.
void load_note_text(struct text *text);
void load_close(struct loaded *l);

#endif
