// What a batch will take, for --dry-run: its rows and tokens counted, its speed probed on its first rows.
//
// Ownership: a tally keeps the first jobs for the probe, and frees them. Threads: the main thread.
#ifndef QUERN_BATCH_TALLY_H
#define QUERN_BATCH_TALLY_H

#include "cmd/batch/batch_job.h"

enum { TALLY_CODES = 16, TALLY_PROBED = 64 };

struct batch_tally {
    int64_t n_rows, n_failed;
    int64_t n_prompt, n_longest; // tokens of prompts, of the longest one
    int64_t n_new;               // tokens of answers at most
    int64_t n_unbounded;         // answers that only their end or the context bounds
    struct {
        char code[32], first[160]; // a kind of error, and the text of the first one
        int64_t n, first_row;
    } errors[TALLY_CODES];
    int n_codes;
    struct batch_job *probed[TALLY_PROBED]; // the first jobs
    int n_probed;
    double prompt_per_second, new_per_second; // 0: not measured
};

void batch_tally_error(struct batch_tally *t, int64_t number, const char *code, const struct error *err);
// Takes the job.
void batch_tally_job(struct batch_tally *t, struct batch_job *job, int n_ctx);
// Computes the first rows for some seconds.
int batch_tally_probe(struct batch_tally *t, struct scheduler *q, struct error *err);
// On stdout.
int batch_tally_print(const struct batch_tally *t, const struct session *s, struct error *err);
void batch_tally_free(struct batch_tally *t);

#endif
