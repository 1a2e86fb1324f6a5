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
    const int32_t *tokens; // taken from the start again when they end; NULL: random ones
    int n;
    uint64_t seed;
};

struct speed_test_result {
    double prompt_ms, gen_ms; // of all sequences together
    double *step_ms;          // [n_gen], where the caller wants it: one step of a token each. May be NULL
};

// Positions of a sequence, rows of a step that want logits, and sequences, which the session must have for a test.
struct session_options speed_test_needs(const struct speed_test *t, struct session_options o);
// E_USAGE when the session is too small; errors of session_step.
int speed_test_run(struct session *s, const struct model *m, const struct speed_test *t,
                   const struct speed_test_text *text, struct speed_test_result *r, struct error *err);

// --- of samples ---

double samples_mean(const double *x, int n);
double samples_deviation(const double *x, int n);    // of the sample, n - 1; 0 for one
double samples_quantile(double *x, int n, double q); // sorts x; between two samples the line
// Whether the mean of a differs from that of b: the interval of mean(a)/mean(b) that holds `level` (0.95) of `rounds`
// bootstrap resamplings; the seed makes it the same each time.
void samples_compare(const double *a, int n_a, const double *b, int n_b, double level, uint64_t seed, double *low,
                     double *high);

#endif
