// The estimate of --dry-run: counts rows and tokens, and measures the speed on the first rows.
//
// Ownership: a tally keeps the first jobs for the measurement, and frees them. Threads: the main thread.
#ifndef QUERN_BATCH_TALLY_H
#define QUERN_BATCH_TALLY_H

#include "cmd/batch/batch_job.h"

enum { TALLY_CODES = 16, TALLY_PROBED = 64 };

struct batch_tally {
    int64_t n_rows, n_failed;
    int64_t n_prompt, n_longest; // tokens of all prompts; of the longest prompt
    int64_t n_new;               // the most tokens that answers can have
    int64_t n_unbounded;         // answers without a limit of their own: only their end or the context bounds them
    struct {
        char code[32], first[160]; // a kind of error, and the message of the first one
        int64_t n, first_row;
    } errors[TALLY_CODES];
    int n_codes;
    struct batch_job *probed[TALLY_PROBED]; // the first jobs, whose speed is measured
    int n_probed;
    double prompt_per_second, new_per_second; // 0: not measured
};

void batch_tally_error(struct batch_tally *t, int64_t number, const char *code, const struct error *err);
// Counts a job, and takes ownership of it.
void batch_tally_job(struct batch_tally *t, struct batch_job *job, int n_ctx);
// Computes the first rows for a few seconds to measure the speed.
int batch_tally_probe(struct batch_tally *t, struct scheduler *q, struct error *err);
// Prints the estimate on stdout.
int batch_tally_print(const struct batch_tally *t, const struct session *s, struct error *err);
void batch_tally_free(struct batch_tally *t);

#endif
