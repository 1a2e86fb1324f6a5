// The model that ships with quern, as it lies in the program: a whole GGUF file, for gguf_open_view.
//
// Ownership: it is a part of the program and lives as long. Threads: read-only.
#ifndef QUERN_BUILTIN_H
#define QUERN_BUILTIN_H

#include "gguf/base.h"

// Its data is NULL where the build left the model out (-Dbuiltin=false); else it begins at a multiple of 64.
struct bytes builtin_image(void);

#endif
