// Answers are assumed to be as long as they may become, so the number of new tokens is an upper bound. The speed is
// measured on at most 64 rows in two phases of about 4 s at most: until as many tokens were generated as there are
// samples, which is mostly prompts, and then answers alone. The time is the tokens of each kind divided by its speed.
#include "cmd/batch/batch_tally.h"
#include "cmd/terminal/terminal.h"
#include "engine/clock.h"

#include <stdio.h>
#include <stdlib.h>

void batch_tally_error(struct batch_tally *t, int64_t number, const char *code, const struct error *err)
{
    int i = 0;
    t->n_rows++;
    t->n_failed++;
    while (i < t->n_codes && strcmp(t->errors[i].code, code))
        i++;
    if (i == TALLY_CODES)
        return;
    if (i == t->n_codes) {
        t->n_codes++;
        snprintf(t->errors[i].code, sizeof t->errors[i].code, "%s", code);
        snprintf(t->errors[i].first, sizeof t->errors[i].first, "%s", err->text);
        t->errors[i].first_row = number;
    }
    t->errors[i].n++;
}

static void free_job(struct batch_job *job)
{
    batch_job_free(job);
    free(job);
}

void batch_tally_job(struct batch_tally *t, struct batch_job *job, int n_ctx)
{
    t->n_rows++;
    for (int i = 0; i < job->n_requests; i++) {
        const struct request *r = &job->requests[i];
        int64_t room = n_ctx - r->n_prompt + 1, most = r->n_predict < 0 ? room : MIN(r->n_predict, room);
        t->n_prompt += r->n_prompt;
        t->n_longest = MAX(t->n_longest, r->n_prompt);
        t->n_new += most * r->n_samples;
        t->n_unbounded += r->n_predict < 0 ? r->n_samples : 0;
    }
    if (t->n_probed < TALLY_PROBED)
        t->probed[t->n_probed++] = job;
    else
        free_job(job);
}

void batch_tally_free(struct batch_tally *t)
{
    while (t->n_probed)
        free_job(t->probed[--t->n_probed]);
}

// --- speed ---

// Runs steps until `until` tokens have been generated, nothing is left to do, or some seconds have passed.
static int run_steps(struct scheduler *q, int64_t until, double *ms, struct error *err)
{
    enum { PROBE_MS = 4000 };
    double start = clock_ms();
    int status = 0;
    *ms = 0;
    while (!status && !scheduler_is_idle(q) && scheduler_stats(q).n_generated < until && *ms < PROBE_MS) {
        status = scheduler_step(q, err);
        *ms = clock_ms() - start;
        while (scheduler_take(q))
            ;
    }
    return status;
}

// Measures mostly prompts first, then answers alone.
int batch_tally_probe(struct batch_tally *t, struct scheduler *q, struct error *err)
{
    int64_t n_samples = 0;
    double prompt_ms, answer_ms;
    for (int i = 0; i < t->n_probed; i++)
        for (int j = 0; j < t->probed[i]->n_requests && scheduler_is_hungry(q); j++) {
            if (scheduler_add(q, &t->probed[i]->requests[j], err))
                return -1;
            n_samples += t->probed[i]->requests[j].n_samples;
        }
    if (run_steps(q, n_samples, &prompt_ms, err))
        return -1;
    struct scheduler_stats prompts = scheduler_stats(q);
    if (run_steps(q, INT64_MAX, &answer_ms, err))
        return -1;
    struct scheduler_stats all = scheduler_stats(q);
    if (prompt_ms > 0)
        t->prompt_per_second = (double)prompts.n_rows * 1e3 / prompt_ms;
    if (answer_ms > 0 && all.n_generated > prompts.n_generated)
        t->new_per_second = (double)(all.n_generated - prompts.n_generated) * 1e3 / answer_ms;
    return 0;
}

// --- report ---

static void print_time(const struct batch_tally *t, struct text *out)
{
    if (t->prompt_per_second <= 0 || (t->n_new && t->new_per_second <= 0)) {
        text_print(out, "time: not measured: no row can be computed\n");
        return;
    }
    double prompts = (double)t->n_prompt / t->prompt_per_second;
    double answers = t->n_new ? (double)t->n_new / t->new_per_second : 0;
    text_print(out,
               "time: %s%.0f s by the first rows: prompts %.0f s at %.0f tokens/s, answers %.0f s at %.0f tokens/s\n",
               t->n_unbounded ? "at most " : "about ", prompts + answers, prompts, t->prompt_per_second, answers,
               t->new_per_second);
}

int batch_tally_print(const struct batch_tally *t, const struct session *s, struct error *err)
{
    struct text out = {0};
    struct memory_need need = session_memory(s);
    char sum[24], kv[24];
    memory_format(memory_sum(&need), sum);
    memory_format(need.kv, kv);
    text_print(&out, "rows: %lld, %lld of them would fail\n", (long long)t->n_rows, (long long)t->n_failed);
    for (int i = 0; i < t->n_codes; i++)
        text_print(&out, "  %s: %lld, the first in row %lld: %s\n", t->errors[i].code, (long long)t->errors[i].n,
                   (long long)t->errors[i].first_row, t->errors[i].first);
    text_print(&out, "prompt tokens: %lld, the longest prompt %lld of %d\n", (long long)t->n_prompt,
               (long long)t->n_longest, session_n_ctx(s));
    text_print(&out, "new tokens: at most %lld", (long long)t->n_new);
    if (t->n_unbounded)
        text_print(&out, "; %lld answers have no max_tokens (-n sets it)", (long long)t->n_unbounded);
    text_print(&out, "\nmemory: %s, of it %s for %d pages of the KV cache\n", sum, kv, session_pages_total(s));
    print_time(t, &out);
    int status = out.failed ? fail(err, E_MEMORY, "no memory for a report")
                            : terminal_write_untrusted((struct str){out.data, out.size}, err);
    text_free(&out);
    return status;
}
