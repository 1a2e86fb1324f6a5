// Confines a verb to what its command line names: cmd/sandbox.h, with the folders of the outputs.
//
// The driver of a GPU opens devices for writing, makes sockets and may start a program of its own. Where there may be one
// (its devices are there, and --device allows it), files and sockets are left alone, and the rest is taken after the model
// was loaded. Threads: the main thread, before others are started.
#ifndef QUERN_CONFINE_H
#define QUERN_CONFINE_H

#include "cmd/options.h"
#include "cmd/sandbox.h"

// To be called when the command line is known and no file of it was opened.
struct sandbox_level confine(const struct options *o);
// To be called when the model was loaded. It does nothing where there can be no GPU.
struct sandbox_level confine_loaded(const struct options *o);

#endif
