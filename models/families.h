// The functions that describe the families, one for each row of arch.def. Threads: any; they change only their
// arguments.
#ifndef QUERN_FAMILIES_H
#define QUERN_FAMILIES_H

#include "models/decoder.h"

#define ARCH(id, name) decoder_describe_fn describe_##id;
#include "models/arch.def"
#undef ARCH

#endif
