// What each family is: one function a row of arch.def. Threads: pure but for their arguments.
#ifndef QUERN_FAMILIES_H
#define QUERN_FAMILIES_H

#include "models/decoder.h"

#define ARCH(id, name) decoder_describe_fn describe_##id;
#include "models/arch.def"
#undef ARCH

#endif
