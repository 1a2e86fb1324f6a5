// Makes sampling parameters from the flags, for run, chat and batch.
//
// A flag of the user overrides what the model file recommends (general.sampling.*), which overrides the defaults of
// options.def. Ownership: the caller calls sampling_free; strings belong to the options. Threads: the main thread.
#ifndef QUERN_SAMPLING_OPTIONS_H
#define QUERN_SAMPLING_OPTIONS_H

#include "cmd/options.h"
#include "engine/sample/dry.h"
#include "engine/generate.h"

struct sampling {
    struct sampler_params params; // has views of the arrays below
    struct str *stops;            // [n_stops]
    int n_stops;
    struct logit_bias *biases;
    struct dry_breakers *breakers;
};

// Reads the flags. *s must be zero-initialised, and is to be freed also after an error. Without --seed it draws a
// seed of 53 bits, which any JSON reader can represent exactly. E_USAGE names the flag.
int sampling_take(struct sampling *s, const struct options *o, const struct model *m, struct error *err);
void sampling_free(struct sampling *s);
// Copies the sampling flags, -n, --stop and --ignore-eos into the options of an answer.
void sampling_apply(const struct sampling *s, const struct options *o, struct generate_options *g);

#endif
