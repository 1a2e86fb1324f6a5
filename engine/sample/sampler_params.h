// The parameters of sampling: which stages choose the next token, in which order and how strictly; their defaults,
// what a model file recommends, their names, and the checks of their values.
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
    float temperature;       // 0 or less: always the most likely token
    float dynatemp_range;    // above 0: the temperature varies by +/- this, with the entropy
    float dynatemp_exponent; // exponent of the normalised entropy in that
    int top_k;               // keep the k most likely; 0 or less: all
    float top_p;             // keep the fewest that have this probability together; 1: all
    float min_p;             // keep those with at least this fraction of the greatest probability; 0: all
    float typical_p;         // keep those nearest to the expected surprise, up to this probability; 1: all
    float top_n_sigma;       // keep logits within so many standard deviations of the greatest; 0 or less: all
    float xtc_probability;   // how often the most likely are dropped, all but the least of them; 0: never
    float xtc_threshold;     // least probability of the tokens that are dropped; above 0.5: none
    float repeat_penalty;    // logits of recent tokens are divided (or, when negative, multiplied) by it; 1: none
    float frequency_penalty; // subtracted for each occurrence of the token among the recent ones
    float presence_penalty;  // subtracted once if it occurs among them
    int repeat_last;         // how many tokens are recent; -1: all
    float dry_multiplier;    // 0: no penalty on tokens that would continue a repetition
    float dry_base;          // the penalty grows by this factor per repeated token; below 1: none
    int dry_allowed_length;  // ... beyond this length of the repetition
    int dry_last;            // how many tokens are searched for repetitions; -1: all
    const struct dry_breakers *dry_breakers; // a repetition does not extend across these; NULL: none
    int mirostat; // 1 or 2: replaces all stages but the temperature, and holds the surprise at mirostat_tau
    float mirostat_tau, mirostat_eta;
    const struct logit_bias *biases;
    int n_biases;
    uint8_t order[SAMPLER_ORDER_MAX]; // enum sampler_stage
    int n_order;
    uint64_t seed;
};
// The defaults, for parameters that neither the user nor the model file sets.
struct sampler_params sampler_defaults(void);
// Sets the parameters that the file recommends (general.sampling.*); the order of the stages only with take_sequence.
// E_MODEL when such a key has the wrong type or an absurd value, or names an unknown stage.
int sampler_from_file(struct sampler_params *p, const struct gguf *file, bool take_sequence, struct error *err);
// Sets the order of stages from "penalties;dry;top_k;temperature" (names as llama.cpp spells them) or from letters,
// "edkt". E_USAGE with the name of an unknown stage.
int sampler_parse_order(struct sampler_params *p, const char *names, struct error *err);
// Checks the values. E_USAGE for values without a meaning: NaN, a negative temperature, a bias of a token outside of
// the vocabulary...
int sampler_check(const struct sampler_params *p, int n_vocab, struct error *err);

// Whether a stage has any effect with these parameters. By default dry, xtc and some others are in the order but have
// none.
bool sampler_stage_acts(const struct sampler_params *p, enum sampler_stage stage);
// sampler_is_greedy: whether the final choice is the most likely candidate. sampler_takes_first: whether the most
// likely token can be taken directly, because no stage could exclude it.
bool sampler_is_greedy(const struct sampler_params *p);
bool sampler_takes_first(const struct sampler_params *p);
// An upper bound of the number of candidates; it is small when the first stage that selects candidates is top-k.
int sampler_most_candidates(const struct sampler_params *p, int n_vocab);
// How many of the largest logits suffice when every token is allowed; 0: all logits are needed.
int sampler_first_wanted(const struct sampler_params *p, int n_vocab);

// Prints the stages that have an effect, in their order, and the seed: a line for -v.
void sampler_describe(const struct sampler_params *p, struct text *out);

#endif
