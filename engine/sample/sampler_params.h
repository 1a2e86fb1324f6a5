// The parameters of sampling: which stages choose the next token, in which order and how strictly; their defaults, what a
// model file recommends, their names, and the checks of their values.
//
// Ownership: the arrays that the parameters point at stay the caller's. Threads: pure functions of their arguments.
#ifndef QUERN_SAMPLER_PARAMS_H
#define QUERN_SAMPLER_PARAMS_H

#include "gguf/gguf.h"
#include "kernels/text.h"

struct dry_breakers;

enum sampler_stage {
    STAGE_PENALTIES,
    STAGE_DRY,
    STAGE_TOP_N_SIGMA,
    STAGE_TOP_K,
    STAGE_TYPICAL,
    STAGE_TOP_P,
    STAGE_MIN_P,
    STAGE_XTC,
    STAGE_TEMPERATURE,
    STAGE_COUNT
};
enum { SAMPLER_ORDER_MAX = 16 };

struct logit_bias {
    int32_t token;
    float bias; // added to the logit; -INFINITY: never chosen
};

struct sampler_params {
    float temperature;       // 0 or less: the most likely token
    float dynatemp_range;    // above 0: the temperature is this much lower to higher, by the entropy
    float dynatemp_exponent; // of the entropy's part in that
    int top_k;               // the k most likely; 0 or less: all
    float top_p;             // the fewest that have this probability together; 1: all
    float min_p;             // those that have this part of the greatest probability; 0: all
    float typical_p;         // the nearest to the expected surprise that have this probability together; 1: all
    float top_n_sigma;       // logits within so many standard deviations of the greatest; 0 or less: all
    float xtc_probability;   // how often the likeliest are left out but for one; 0: never
    float xtc_threshold;     // how likely they are at least; above 0.5: never
    float repeat_penalty;    // logits of recent tokens are divided (or, when negative, multiplied) by it; 1: none
    float frequency_penalty; // taken off for each time that the token is among the recent ones
    float presence_penalty;  // taken off once
    int repeat_last;         // how many tokens are recent; -1: all
    float dry_multiplier;    // 0: no penalty on what would go on with a repetition
    float dry_base;          // it grows by this with each token of the repetition; below 1: none
    int dry_allowed_length;  // ... beyond this length
    int dry_last;            // how many tokens are looked through for repetitions; -1: all
    const struct dry_breakers *dry_breakers; // a repetition does not reach across them; NULL: none
    int mirostat; // 1 or 2: keeps the surprise at mirostat_tau, instead of all stages but the temperature
    float mirostat_tau, mirostat_eta;
    const struct logit_bias *biases;
    int n_biases;
    uint8_t order[SAMPLER_ORDER_MAX]; // enum sampler_stage
    int n_order;
    uint64_t seed;
};
// What holds where neither the user nor the file says otherwise.
struct sampler_params sampler_defaults(void);
// Takes what the file recommends (general.sampling.*), the order of stages only when asked to. E_MODEL when such a key
// has the wrong type or an absurd value, or names a stage that quern has not.
int sampler_from_file(struct sampler_params *p, const struct gguf *file, bool take_sequence, struct error *err);
// Sets the order of stages from "penalties;dry;top_k;temperature" (names as llama.cpp spells them) or from letters,
// "edkt". E_USAGE names the one that is not known.
int sampler_parse_order(struct sampler_params *p, const char *names, struct error *err);
// E_USAGE for values that mean nothing: NaN, a negative temperature, a bias of a token that is not there...
int sampler_check(const struct sampler_params *p, int n_vocab, struct error *err);

// Whether a stage would do anything: by default dry, xtc and some others are there and do nothing.
bool sampler_stage_acts(const struct sampler_params *p, enum sampler_stage stage);
// Whether the last choice is that of the most likely token; and whether that token is taken as it comes, for nothing
// could leave it out.
bool sampler_is_greedy(const struct sampler_params *p);
bool sampler_takes_first(const struct sampler_params *p);
// The most candidates that there will be: few where the first stage that asks for them is top-k.
int sampler_most_candidates(const struct sampler_params *p, int n_vocab);
// How many of the first logits are all that is needed of them where any token may come: 0 when others matter, too.
int sampler_first_wanted(const struct sampler_params *p, int n_vocab);

// The stages that will do something, in their order, and the seed: a line for -v.
void sampler_describe(const struct sampler_params *p, struct text *out);

#endif
