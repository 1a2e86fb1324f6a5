// Speed tests: a test computes a prompt and generates tokens, optionally behind a context of some depth, on one or
// several sequences, and measures the time of both parts.
//
// The tokens are random or those of a text. Nothing is sampled, and nothing that an earlier run computed is reused.
// Ownership: everything belongs to the caller. Threads: that of the session, whose sequences are empty afterwards.
#ifndef QUERN_SPEED_TEST_H
#define QUERN_SPEED_TEST_H

#include "engine/session.h"

struct speed_test {
    int n_prompt, n_gen; // tokens of each sequence
    int n_depth;         // tokens before them, computed but not timed
    int n_seqs;
};

struct speed_test_text {
    const int32_t *tokens; // repeated from the start when they end; NULL: random tokens
    int n;
    uint64_t seed;
};

struct speed_test_result {
    double prompt_ms, gen_ms; // for all sequences together
    double *step_ms; // [n_gen] the time of each generated token of all sequences; an array of the caller, or NULL
};

// Raises the options `o` to what a session needs for this test: sequences, positions, rows and outputs.
struct session_options speed_test_needs(const struct speed_test *t, struct session_options o);
// E_USAGE when the session is too small; errors of session_step.
int speed_test_run(struct session *s, const struct model *m, const struct speed_test *t,
                   const struct speed_test_text *text, struct speed_test_result *r, struct error *err);

// --- statistics of samples ---

double samples_mean(const double *x, int n);
double samples_deviation(const double *x, int n);    // the standard deviation, with n - 1; 0 for one sample
double samples_quantile(double *x, int n, double q); // sorts x; interpolates linearly between two samples
// Compares the means of a and b: the interval that contains mean(a) / mean(b) in a fraction `level` (such as 0.95) of
// bootstrap resamplings. The result is a function of the seed.
void samples_compare(const double *a, int n_a, const double *b, int n_b, double level, uint64_t seed, double *low,
                     double *high);

#endif
