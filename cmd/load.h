// Opens a model and a session on it as the flags say. Shared by run, chat, batch, logits and dump.
//
// Ownership: the caller closes both with load_close. Threads: the main thread.
#ifndef QUERN_LOAD_H
#define QUERN_LOAD_H

#include "cmd/options.h"
#include "cmd/terminal/progress.h"
#include "engine/measure/text_windows.h"
#include "engine/session.h"
#include "engine/tap.h"

struct loaded {
    struct model *model;
    const char *name; // what to call the model: the name by which it was found, else its path
    struct session *session;
    struct tap *tap;                  // serves --tap; NULL: no taps
    struct session_progress progress; // of a prompt, see load_show_prompt
    struct progress_wait wait;
};

// The model to open: -m, else $QUERN_MODEL, else MODEL_BUILTIN. NULL with an error that says how to get a model if
// this build has no built-in one, or that names an output of the flags that is one of their inputs. The string belongs
// to the options.
const char *load_path(const struct options *o, struct error *err);
struct machine_options load_machine_options(const struct options *o);
// Opens the model. With -v it prints what was chosen and why.
int load_model(struct loaded *l, const struct options *o, struct error *err);
// The same for embeddings: the model computes hidden rows instead of logits.
int load_model_hidden(struct loaded *l, const struct options *o, struct error *err);
// The same for a model that is made for embeddings; others compute logits.
int load_model_as_meant(struct loaded *l, const struct options *o, struct error *err);
// Opens a session of one sequence with up to n_outputs rows of logits per step (-1: as many as a step has rows).
// Without -c the context has room for at least n_wanted tokens.
int load_session(struct loaded *l, const struct options *o, int64_t n_wanted, int n_outputs, struct error *err);
// While a prompt is computed for more than a moment, shows on stderr how far it is: `over` as on_prompt of struct
// generate_options has it.
void load_show_prompt(struct loaded *l, bool over);
// Completes the files of --tap. E_IO if one could not be written.
int load_finish_taps(struct loaded *l, struct error *err);
// Says how windows of a text of so many tokens differ from what -c asks for: that they are longer than the model was trained
// for, that --ppl-stride has made them longer than -c, and how many tokens at the end do not fill one.
void load_note_windows(const struct loaded *l, const struct options *o, const struct text_windows *w, size_t n_tokens);
// Prints each line of a description on stderr, and frees the text.
void load_note_text(struct text *text);
void load_close(struct loaded *l);

#endif
