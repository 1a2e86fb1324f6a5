// Keeps the outputs of a command line away from the files that it reads.
//
// Two paths are one file if they have the same device and inode, so that symbolic and hard links are found, too. Only
// regular files count: pipes and devices may be read and written at once, and a path that does not exist is new. "-" is
// stdin or stdout, which the shell may have joined to a file. What a verb puts beside an output, such as the journal of a
// batch, is an output as well. Threads: any; nothing is shared.
#ifndef QUERN_OUTPUTS_H
#define QUERN_OUTPUTS_H

#include "cmd/options.h"
#include "gguf/gguf.h"

// Fails if the output is the file of the input; either may be NULL. E_USAGE names both.
int outputs_check(const char *out, const char *in, struct error *err);
// The same for every file of a model.
int outputs_check_model(const char *out, const struct gguf *model, struct error *err);
// The same for every file that the command line makes the verb read: those of flags and arguments, and stdin. `model` is the
// path of the model (NULL: none).
int outputs_check_inputs(const char *out, const struct options *o, const char *model, struct error *err);

// Calls `see` with every file that the command line makes the verb write, until it returns something else than 0, which is
// returned. A path is valid during the call.
typedef int outputs_see_fn(void *arg, const char *path, struct error *err);
int outputs_each(const struct options *o, outputs_see_fn *see, void *arg, struct error *err);

// Fails with E_USAGE if an output of bytes that are no text would be written to a terminal.
int outputs_check_terminal(const char *path, struct error *err);

// Checks every output of the command line, stdout among them, against every input and against the other outputs, and whether
// it can be written. To be called before an output is opened, and before what takes long.
int outputs_check_options(const struct options *o, const char *model, struct error *err);
// Checks every output of the command line against the files of a model.
int outputs_check_options_model(const struct options *o, const struct gguf *model, struct error *err);

#endif
