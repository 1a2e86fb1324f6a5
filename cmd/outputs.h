// Keeps the outputs of a command line away from the files that it reads.
//
// Two paths are one file if they have the same device and inode, so that symbolic and hard links are found, too. Only
// regular files count: "-", pipes and devices may be read and written at once, and a path that does not exist is new.
// Threads: any; nothing is shared.
#ifndef QUERN_OUTPUTS_H
#define QUERN_OUTPUTS_H

#include "cmd/options.h"
#include "gguf/gguf.h"

// Fails if the output is the file of the input; either may be NULL. E_USAGE names both.
int outputs_check(const char *out, const char *in, struct error *err);
// The same for every file of a model.
int outputs_check_model(const char *out, const struct gguf *model, struct error *err);

// Checks every output that the flags name against every input that they name, and against `model`, a path (NULL: none).
// Arguments are not looked at. To be called before an output is opened.
int outputs_check_options(const struct options *o, const char *model, struct error *err);
// Checks every output that the flags name against the files of a model.
int outputs_check_options_model(const struct options *o, const struct gguf *model, struct error *err);

#endif
