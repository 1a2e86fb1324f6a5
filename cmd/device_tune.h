// quern device --tune: measures which kernels serve a model fastest on a GPU, and shows what was chosen.
#ifndef QUERN_DEVICE_TUNE_H
#define QUERN_DEVICE_TUNE_H

#include "cmd/options.h"

// Loads the model of -m on the GPU, measures all of its products for every number of rows up to -ub without a limit of
// time, and prints the choices. They are kept beside the compiled kernels, where later runs find them.
int device_tune(const struct options *o, struct error *err);

#endif
