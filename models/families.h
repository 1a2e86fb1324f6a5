// The functions that build the families, one for each row of arch.def. Threads: any; they change only their arguments.
#ifndef QUERN_FAMILIES_H
#define QUERN_FAMILIES_H

#include "models/blocks/self_attention.h"
#include "models/blocks/feed_forward.h"
#include "models/blocks/mixture.h"
#include "models/blocks/mamba.h"
#include "models/build.h"

#define ARCH(id, name) build_fn build_##id;
#define ARCH_RECURRENT(id, name) build_fn build_##id;
#define ARCH_ENCODER(id, name) build_fn build_##id;
#include "models/arch.def"
#undef ARCH
#undef ARCH_RECURRENT
#undef ARCH_ENCODER

#endif
