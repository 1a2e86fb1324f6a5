// From logits to the next token.
//
// Stages run in a given order, each on the candidates that the one before has left: what may come at all (an allowed
// mask, bans), then biases, then the stages of `order`, then the draw. Random numbers are a function of the seed and
// the position alone, so that a seed gives the same text on any number of threads, in any batch, however the prompt was
// cut and whether or not tokens were guessed ahead. Ownership: a sampler owns what it allocated; its parameters' arrays
// stay the caller's and must last. Threads: one at a time, each with its own, or with a scratch that is its thread's.
#ifndef QUERN_SAMPLER_H
#define QUERN_SAMPLER_H

#include "engine/sample/candidates.h"
#include "gguf/gguf.h"
#include "kernels/text.h"

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

// Work space as large as the vocabulary, which the samplers of one thread may share.
struct sampler_scratch;
int sampler_scratch_new(struct sampler_scratch **out, int n_vocab, struct error *err);
void sampler_scratch_free(struct sampler_scratch *scratch); // NULL is fine

struct sampler;

// scratch: NULL for one of its own. Nothing is allocated later.
int sampler_new(struct sampler **out, const struct sampler_params *p, int n_vocab, struct sampler_scratch *scratch,
                struct error *err);
void sampler_free(struct sampler *s); // NULL is fine
// That token is never chosen.
void sampler_ban(struct sampler *s, int32_t token);
// Chooses the token at `position` from its logits; history: the n tokens before it, all of the vocabulary. allowed: a
// bit for each token, that of token i is bit i % 32 of word i / 32; NULL: all. -1 when no token may come: none is
// allowed, or none has a finite logit. To be called once for each position in turn: mirostat follows what it has drawn.
int32_t sampler_next(struct sampler *s, const float *logits, const uint32_t *allowed, const int32_t *history, int n,
                     int64_t position);

// How many of the first logits (as kernels/top_k.h orders them) the next token can be chosen from as if all were there,
// those of banned tokens among them; 0: it cannot. sampler_next_of chooses from that many or more: the same token, with
// no mask of allowed ones.
int sampler_top_k(const struct sampler *s);
int32_t sampler_next_of(struct sampler *s, const struct candidate *top, int n_top, const int32_t *history, int n,
                        int64_t position);

// What the last token was drawn from, with logits as the stages have left them: views the scratch. Of the most likely
// token taken as it comes, that one.
const struct candidate *sampler_candidates(const struct sampler *s, int *n);

// The stages that will do something, in their order, and the seed: a line for -v.
void sampler_describe(const struct sampler_params *p, struct text *out);

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): four random words of a counter.
void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
