// From flags to sampling: what run, chat and batch share.
//
// What the user says goes before what the file recommends, and that before the house's defaults. Ownership: the caller
// frees with sampling_free; texts are those of the options. Threads: the main thread.
#ifndef QUERN_SAMPLING_OPTIONS_H
#define QUERN_SAMPLING_OPTIONS_H

#include "cmd/options.h"
#include "engine/sample/dry.h"
#include "engine/generate.h"

struct sampling {
    struct sampler_params params; // views the arrays below
    struct str *stops;            // [n_stops]
    int n_stops;
    struct logit_bias *biases;
    struct dry_breakers *breakers;
};

// Zero-initialise *s; to be freed in any case. Without --seed a new seed of 53 bits, so that every reader of JSON can
// give it back. E_USAGE names the flag.
int sampling_take(struct sampling *s, const struct options *o, const struct model *m, struct error *err);
void sampling_free(struct sampling *s);
// Puts the flags of sampling, -n, --stop and --ignore-eos into the options of an answer.
void sampling_apply(const struct sampling *s, const struct options *o, struct generate_options *g);

#endif
