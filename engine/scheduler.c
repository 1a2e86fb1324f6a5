// Fills the steps of a session: one row of every running lane, then pieces of prompts, the oldest first. Lanes start
// when pages allow it, wait for a prefix that another lane computes, and give their pages back when these run out.
#include "engine/scheduler_lane.h"
#include "engine/clock.h"
#include "engine/scored_texts.h"

#include <assert.h>
#include <stdlib.h>

// A lane that chooses its next token after this step, and the index of its logits in the step.
struct output {
    struct lane *lane; // NULL: the lane has ended in the meantime
    int logits;
};

// A row whose logits score the next token of a prompt.
struct scored_row {
    const struct request *request;
    int32_t next;
    int logits; // the index of its logits in the step
};

struct scheduler {
    struct session *session;
    const struct model *model;
    int n_seqs, n_batch;
    struct lane **running; // [n_seqs] lanes with a sequence, the oldest first
    int n_running;
    int *free_seqs; // [n_seqs]
    int n_free;
    struct lane *first, **last; // the queue of waiting lanes, and its last link
    int n_waiting;
    struct request *done, **done_last; // the queue of finished requests, and its last link
    int n_open;                        // requests in flight
    struct session_row *rows;          // [n_batch] rows of a step
    int n_rows;
    struct output *outputs; // [n_seqs] lanes that choose a token after the step
    int n_outputs;
    struct scored_row *scored; // [n_logits_most]
    int n_scored;
    struct scored_texts texts;       // prompts that were scored lately
    int n_logits, n_logits_most;     // rows of the step that produce logits
    int top_k;                       // the step returns so many of the largest logits of a row; 0: all logits
    struct sampler_scratch *scratch; // shared by all samplers
    struct scheduler_stats stats;
};

enum {
    // A prompt waits for a running one when they share at least so many tokens that are not computed yet. Fewer tokens
    // are not worth the wait of a step.
    SHARED_LEAST = 16,
    // A further request starts only when free pages remain for so many more tokens of each answer.
    NEAR_FUTURE = 2 * KV_PAGE,
    // So many waiting lanes at most are examined for one that can start, which bounds the time of the search.
    LOOK_AHEAD = 64,
};

// --- the queue of waiting lanes ---

static void enqueue_last(struct scheduler *q, struct lane *l)
{
    l->next = NULL;
    *q->last = l;
    q->last = &l->next;
    q->n_waiting++;
}

static void enqueue_first(struct scheduler *q, struct lane *l)
{
    l->next = q->first;
    q->first = l;
    if (!l->next)
        q->last = &l->next;
    q->n_waiting++;
}

// Removes the lane that *link points to.
static struct lane *dequeue(struct scheduler *q, struct lane **link)
{
    struct lane *l = *link;
    *link = l->next;
    if (!l->next)
        q->last = link;
    q->n_waiting--;
    return l;
}

// --- requests ---

static void sample_free(struct sample *s)
{
    text_free(&s->text);
    free(s->tokens);
    free(s->logprobs);
    free(s->top);
}

void request_free(struct request *r)
{
    for (int i = 0; r->samples && i < r->n_samples; i++)
        sample_free(&r->samples[i]);
    free(r->samples);
    r->samples = NULL;
}

static void finish_request(struct scheduler *q, struct request *r)
{
    r->next = NULL;
    *q->done_last = r;
    q->done_last = &r->next;
}

// Releases the sequence of the i-th running lane. Its pages keep their content until they are taken for something else.
static struct lane *stop_running(struct scheduler *q, int i)
{
    struct lane *l = q->running[i];
    memmove(&q->running[i], &q->running[i + 1], (size_t)(--q->n_running - i) * sizeof *q->running);
    session_truncate(q->session, l->seq, 0);
    q->free_seqs[q->n_free++] = l->seq;
    l->seq = -1;
    return l;
}

static int index_of(const struct scheduler *q, const struct lane *l)
{
    int i = 0;
    while (q->running[i] != l)
        i++;
    return i;
}

static void finish_lane(struct scheduler *q, struct lane *l, enum stop_reason reason)
{
    struct request *r = l->request;
    answer_stream_end(&l->stream);
    r->samples[l->sample].reason = reason;
    if (r->samples[l->sample].text.failed && r->error.code == E_OK)
        fail(&r->error, E_MEMORY, "no memory for the answer");
    if (l->seq >= 0)
        stop_running(q, index_of(q, l));
    for (int i = 0; i < q->n_outputs; i++)
        if (q->outputs[i].lane == l)
            q->outputs[i].lane = NULL;
    lane_free(l);
    if (--r->n_open == 0) {
        q->n_open--;
        finish_request(q, r);
    }
}

// Ends all samples of the request with an error.
static void fail_request(struct scheduler *q, struct request *r, const struct error *err)
{
    r->error = *err;
    for (struct lane **link = &q->first; *link;)
        if ((*link)->request == r)
            finish_lane(q, dequeue(q, link), STOP_INTERRUPTED);
        else
            link = &(*link)->next;
    for (int i = q->n_running - 1; i >= 0; i--)
        if (q->running[i]->request == r)
            finish_lane(q, q->running[i], STOP_INTERRUPTED);
}

// Checks whether a sequence of this session can serve the request at all.
static int check_request(const struct scheduler *q, const struct request *r, struct error *err)
{
    int n_ctx = session_n_ctx(q->session);
    if (r->n_prompt < 1)
        return fail(err, E_USAGE, "an empty prompt");
    if (r->n_prompt > n_ctx)
        return fail(err, E_USAGE, "the prompt has %d tokens, limit %d; -c sets it", r->n_prompt, n_ctx);
    for (int i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= q->model->info.n_vocab)
            return fail(err, E_USAGE, "token %d is not in the vocabulary of %d", r->prompt[i], q->model->info.n_vocab);
    return 0;
}

int scheduler_add(struct scheduler *q, struct request *r, struct error *err)
{
    r->error = (struct error){.code = E_OK};
    r->n_reused = r->n_open = 0;
    r->start_ms = 0;
    r->samples = calloc((size_t)MAX(r->n_samples, 1), sizeof *r->samples);
    if (!r->samples)
        return fail(err, E_MEMORY, "no memory for %d samples", r->n_samples);
    for (int i = 0; i < r->n_samples; i++)
        r->samples[i].end_token = -1;
    if (check_request(q, r, &r->error) || (r->n_predict == 0 && !request_wants_scores(r))) {
        for (int i = 0; i < r->n_samples; i++)
            r->samples[i].reason = STOP_LENGTH;
        finish_request(q, r);
        return 0;
    }
    struct lane *first = NULL, **link = &first;
    for (int i = 0; i < r->n_samples; i++, link = &(*link)->next)
        if (lane_new(link, q->model, q->scratch, r, i, err))
            goto failed;
    q->n_open++;
    r->n_open = r->n_samples;
    for (struct lane *l = first, *next; l; l = next) {
        next = l->next;
        enqueue_last(q, l);
    }
    return 0;
failed:
    for (struct lane *l = first, *next; l; l = next) {
        next = l->next;
        lane_free(l);
    }
    request_free(r);
    return -1;
}

struct request *scheduler_take(struct scheduler *q)
{
    struct request *r = q->done;
    if (r && !(q->done = r->next))
        q->done_last = &q->done;
    return r;
}

void scheduler_stop(struct scheduler *q)
{
    struct error err;
    fail(&err, E_INTERRUPTED, "stopped");
    for (struct lane **link = &q->first; *link;) {
        if ((*link)->request->start_ms == 0) {
            fail_request(q, (*link)->request, &err);
            link = &q->first; // fail_request has removed other lanes of the queue, too
        } else {
            link = &(*link)->next;
        }
    }
}

bool scheduler_is_hungry(const struct scheduler *q)
{
    return q->n_waiting < MAX(q->n_seqs, 2);
}

bool scheduler_is_idle(const struct scheduler *q)
{
    return !q->n_open;
}

int scheduler_n_begun(const struct scheduler *q)
{
    int n = q->n_running;
    for (const struct lane *l = q->first; l; l = l->next)
        n += l->request->start_ms != 0;
    return n;
}

struct scheduler_stats scheduler_stats(const struct scheduler *q)
{
    return q->stats;
}

// --- starting ---

// The number of tokens that are not computed yet.
static int n_missing(const struct scheduler *q, const struct lane *l)
{
    return l->n_tokens - session_length(q->session, l->seq);
}

static int common_prefix(const struct lane *a, const struct lane *b)
{
    int n = MIN(a->n_tokens, b->n_tokens), i = 0;
    while (i < n && a->tokens[i] == b->tokens[i])
        i++;
    return i;
}

// Whether a running lane is scoring a prefix that this lane wants scored, too.
static bool scores_soon(const struct lane *l, const struct lane *other)
{
    if (!request_wants_scores(l->request) || !request_wants_scores(other->request))
        return false;
    return common_prefix(l, other) - 1 - l->request->scores->n_scored >= SHARED_LEAST;
}

// Whether a running lane is computing a prefix that this lane could share soon.
static bool should_wait(const struct scheduler *q, const struct lane *l)
{
    for (int i = 0; i < q->n_running; i++) {
        const struct lane *other = q->running[i];
        if (other->request == l->request && other->n_tokens == l->request->n_prompt)
            return true;
        if (scores_soon(l, other))
            return true;
        if (n_missing(q, other) <= 1)
            continue;
        int common = MIN(common_prefix(l, other), lane_reusable(l) - 1);
        if (common - session_length(q->session, other->seq) >= SHARED_LEAST)
            return true;
    }
    return false;
}

static int pages_for(int64_t tokens)
{
    return (int)((tokens + KV_PAGE - 1) / KV_PAGE);
}

// The number of pages for the text of the lane and its next NEAR_FUTURE tokens.
static int pages_soon(const struct scheduler *q, const struct lane *l)
{
    int64_t future = l->n_left < 0 ? NEAR_FUTURE : MIN(l->n_left, NEAR_FUTURE);
    return pages_for(MIN(l->n_tokens + future, session_n_ctx(q->session)));
}

// Whether the free pages suffice for the lane and for the next tokens of the running lanes. Pages that the lane will
// share with others are not known yet, so it is counted as if it shared none.
static bool has_room(const struct scheduler *q, const struct lane *l)
{
    if (!q->n_running)
        return true;
    int64_t promised = 0;
    for (int i = 0; i < q->n_running; i++) {
        const struct lane *r = q->running[i];
        promised += MAX(1, 1 + pages_soon(q, r) - pages_for(session_length(q->session, r->seq)));
    }
    return promised + pages_soon(q, l) + 1 <= session_pages_free(q->session);
}

static void run_lane(struct scheduler *q, struct lane *l)
{
    l->seq = q->free_seqs[--q->n_free];
    q->running[q->n_running++] = l;
    if (l->request->start_ms == 0)
        l->request->start_ms = clock_ms();
}

// Starts a lane with the longest prefix of its text that the page pool holds.
static void start_lane(struct scheduler *q, struct lane *l)
{
    run_lane(q, l);
    int n = session_begin(q->session, l->seq, l->tokens, lane_reusable(l));
    if (l->started) {
        q->stats.n_recomputed += l->n_tokens - n;
        return;
    }
    l->started = true;
    l->request->n_reused += n;
    q->stats.n_prompt += l->n_tokens;
    q->stats.n_reused += n;
}

// Takes what has become known of the lane's prompt since the last time.
static void find_scores(struct scheduler *q, struct lane *l)
{
    if (request_wants_scores(l->request) && l->n_texts != q->texts.n_added)
        scored_texts_find(&q->texts, l->request->prompt, l->request->scores);
    l->n_texts = q->texts.n_added;
}

// Starts waiting lanes in their order. A lane that waits for a shared prefix lets later ones start before it; a lane
// that waits for memory does not.
static void start_lanes(struct scheduler *q)
{
    struct lane **link = &q->first;
    for (int i = 0; *link && q->n_free && i < LOOK_AHEAD; i++) {
        find_scores(q, *link);
        if (should_wait(q, *link)) {
            link = &(*link)->next;
            continue;
        }
        if (!has_room(q, *link))
            return;
        start_lane(q, dequeue(q, link));
    }
}

// Preempts the youngest running lane: it releases its pages and becomes the first of the queue.
static void preempt(struct scheduler *q)
{
    assert(q->n_running > 1);
    q->stats.n_preempted++;
    enqueue_first(q, stop_running(q, q->n_running - 1));
}

// --- a step ---

static void begin_rows(struct scheduler *q)
{
    q->n_rows = q->n_outputs = q->n_scored = q->n_logits = 0;
}

// How many of the next n rows of the lane have at most so many rows with logits among them.
static int rows_with_logits(const struct scheduler *q, const struct lane *l, int n, int most)
{
    int begin = session_length(q->session, l->seq), i = 0;
    while (i < n && (!lane_has_logits(l, begin + i) || most-- > 0))
        i++;
    return i;
}

// Adds the next n tokens of the lane to the rows of the step.
static void put_rows(struct scheduler *q, struct lane *l, int n)
{
    int at = session_length(q->session, l->seq);
    for (int i = 0; i < n; i++, at++) {
        if (lane_is_scored(l, at))
            q->scored[q->n_scored++] = (struct scored_row){l->request, l->tokens[at + 1], q->n_logits};
        if (at == l->n_tokens - 1)
            q->outputs[q->n_outputs++] = (struct output){l, q->n_logits};
        q->n_logits += lane_has_logits(l, at);
        q->rows[q->n_rows++] = (struct session_row){l->tokens[at], l->seq, lane_has_logits(l, at)};
    }
}

// How many of n tokens the lane can compute with this number of free pages.
static int rows_within(const struct scheduler *q, const struct lane *l, int n, int pages)
{
    while (n > 0 && session_pages_wanted(q->session, l->seq, n) > pages)
        n = MAX(0, n - KV_PAGE);
    return n;
}

// Adds one row for each lane that lacks only its last token. Returns how many of the free pages are left; -1 when they
// do not suffice.
static int put_answers(struct scheduler *q, int pages)
{
    for (int i = 0; i < q->n_running; i++) {
        if (n_missing(q, q->running[i]) != 1)
            continue;
        int wanted = session_pages_wanted(q->session, q->running[i]->seq, 1);
        if (wanted > pages)
            return -1;
        pages -= wanted;
        put_rows(q, q->running[i], 1);
    }
    return pages;
}

static int count_prompts(const struct scheduler *q)
{
    int n = 0;
    for (int i = 0; i < q->n_running; i++)
        n += n_missing(q, q->running[i]) > 1;
    return n;
}

// Fills the remaining rows with pieces of prompts, those of the oldest lanes first. Of the rows with logits one is left
// for each later prompt, which may end in this step; there are as many as sequences at least.
static void put_prompts(struct scheduler *q, int pages)
{
    int later = count_prompts(q);
    for (int i = 0; i < q->n_running && q->n_rows < q->n_batch; i++) {
        struct lane *l = q->running[i];
        int missing = n_missing(q, l), n = rows_within(q, l, MIN(missing, q->n_batch - q->n_rows), pages);
        later -= missing > 1;
        n = rows_with_logits(q, l, n, q->n_logits_most - q->n_logits - later);
        if (missing <= 1 || !n)
            continue;
        pages -= session_pages_wanted(q->session, l->seq, n);
        put_rows(q, l, n);
    }
}

// Chooses the rows of a step, and preempts lanes until there are pages for them. This ends: every running lane has a
// row to compute, and the pool holds at least one whole sequence, which suffices for the oldest lane alone.
static void choose_rows(struct scheduler *q)
{
    for (;;) {
        begin_rows(q);
        int pages = put_answers(q, session_pages_free(q->session));
        if (pages >= 0)
            put_prompts(q, pages);
        if ((pages >= 0 && q->n_rows) || q->n_running <= 1)
            return;
        preempt(q);
    }
}

// Whether the answer ends here; sets the reason.
static bool is_over(const struct scheduler *q, const struct lane *l, enum stop_reason *reason)
{
    if (l->stream.stopped)
        *reason = STOP_STRING;
    else if (l->n_left == 0)
        *reason = STOP_LENGTH;
    else if (l->n_tokens > session_n_ctx(q->session))
        *reason = STOP_CONTEXT;
    else
        return false;
    return true;
}

// Sets how many of the largest logits the step returns per row: as many as each of its lanes needs, or all logits when
// one lane needs all.
static void want_logits(struct scheduler *q)
{
    int k = 0;
    for (int i = 0; i < q->n_outputs && !q->n_scored; i++) {
        int enough = lane_enough_logits(q->outputs[i].lane);
        if (!enough) {
            k = 0;
            break;
        }
        k = MAX(k, enough);
    }
    q->top_k = session_want_top(q->session, k);
}

static int sample_token(const struct scheduler *q, struct lane *l, int row, int32_t *token, struct error *err)
{
    const struct token_rule *rule = l->request->rules ? &l->request->rules[l->sample] : NULL;
    const uint32_t *allowed = NULL;
    int n = l->n_tokens;
    if (rule && rule->mask(rule->state, &allowed, err))
        return -1;
    *token = q->top_k ? sampler_next_of(l->sampler, session_top(q->session, row), q->top_k, l->tokens, n, n)
                      : sampler_next(l->sampler, session_logits(q->session, row), allowed, l->tokens, n, n);
    if (*token >= 0)
        return 0;
    if (l->request->samples[l->sample].n_tokens < l->request->n_least)
        return fail(err, E_USAGE, "min_tokens: only an end may come after %d tokens of the answer",
                    l->request->samples[l->sample].n_tokens);
    return fail(err, E_USAGE, "no token may come after %d tokens", l->n_tokens);
}

// Chooses the next token of the lane.
static int choose_token(struct scheduler *q, struct lane *l, int row, struct error *err)
{
    int32_t token;
    enum stop_reason reason;
    if (l->n_left == 0) { // only the log-probabilities of its prompt are wanted
        finish_lane(q, l, STOP_LENGTH);
        return 0;
    }
    if (sample_token(q, l, row, &token, err))
        return -1;
    const float *logits = q->top_k ? NULL : session_logits(q->session, row);
    if (lane_ends(l, q->model, token)) {
        int status = lane_end(l, q->model, logits, token, err);
        if (!status)
            finish_lane(q, l, STOP_END);
        return status;
    }
    q->stats.n_generated++;
    if (lane_add_token(l, q->model, logits, token, err))
        return -1;
    if (is_over(q, l, &reason))
        finish_lane(q, l, reason);
    return 0;
}

// Starts the other samples of a request once its prompt is computed: each gets a copy of the sequence and chooses its
// first token from the same logits.
static void fork_samples(struct scheduler *q, const struct output *from)
{
    for (struct lane **link = &q->first; from->lane->n_tokens == from->lane->request->n_prompt && *link && q->n_free;) {
        struct lane *l = *link;
        if (l->request != from->lane->request || l->started || !has_room(q, l)) {
            link = &l->next;
            continue;
        }
        run_lane(q, dequeue(q, link));
        session_fork(q->session, l->seq, from->lane->seq);
        l->started = true;
        l->request->n_reused += l->n_tokens;
        q->stats.n_prompt += l->n_tokens;
        q->stats.n_reused += l->n_tokens;
        q->outputs[q->n_outputs++] = (struct output){l, from->logits};
    }
}

static void score_row(struct scheduler *q, const struct scored_row *row)
{
    const struct request *r = row->request;
    text_scores_add(r->scores, session_logits(q->session, row->logits), q->model->info.n_vocab, row->next);
    if (text_scores_done(r->scores))
        scored_texts_add(&q->texts, r->prompt, r->scores);
}

// An error fails only the request of its lane.
static void choose_tokens(struct scheduler *q)
{
    struct error err;
    for (int i = 0; i < q->n_scored; i++)
        score_row(q, &q->scored[i]);
    for (int i = 0, n = q->n_outputs; i < n; i++)
        fork_samples(q, &q->outputs[i]);
    for (int i = 0; i < q->n_outputs; i++) {
        struct lane *l = q->outputs[i].lane; // NULL where its request has failed in this loop
        if (l && choose_token(q, l, q->outputs[i].logits, &err))
            fail_request(q, l->request, &err);
    }
}

// Repeats a step that has failed with non-finite logits, lane by lane, so that only the requests with such logits fail.
static void step_apart(struct scheduler *q)
{
    for (int i = 0; i < q->n_running;) {
        struct lane *l = q->running[i];
        struct error err;
        begin_rows(q);
        int n = rows_within(q, l, MIN(n_missing(q, l), q->n_batch), session_pages_free(q->session));
        put_rows(q, l, rows_with_logits(q, l, n, q->n_logits_most));
        want_logits(q);
        if (q->n_rows && session_step(q->session, q->rows, q->n_rows, &err))
            fail_request(q, l->request, &err);
        else if (q->n_rows)
            choose_tokens(q);
        i = i < q->n_running && q->running[i] == l ? i + 1 : 0;
    }
}

// Fails the requests that have taken longer than their timeout.
static void end_late(struct scheduler *q)
{
    double now = clock_ms();
    for (int i = q->n_running - 1; i >= 0; i = MIN(i, q->n_running) - 1) {
        struct request *r = q->running[i]->request;
        struct error err;
        if (r->timeout_ms <= 0 || now - r->start_ms + r->spent_ms <= r->timeout_ms)
            continue;
        fail(&err, E_ITEMS, "timeout: not done after %.4g s", r->timeout_ms / 1e3);
        fail_request(q, r, &err);
    }
}

static int step(struct scheduler *q, struct error *err)
{
    double start = clock_ms();
    want_logits(q);
    int status = session_step(q->session, q->rows, q->n_rows, err);
    q->stats.step_ms += clock_ms() - start;
    q->stats.n_steps++;
    q->stats.n_rows += q->n_rows;
    if (status && err->code != E_MODEL)
        return -1;
    if (status)
        step_apart(q);
    else
        choose_tokens(q);
    return 0;
}

int scheduler_step(struct scheduler *q, struct error *err)
{
    double start = clock_ms(), in_session = q->stats.step_ms;
    int status = 0;
    end_late(q);
    start_lanes(q);
    if (q->n_running) {
        choose_rows(q);
        status = step(q, err);
        session_want_top(q->session, 0);
        begin_rows(q);
    }
    q->stats.own_ms += clock_ms() - start - (q->stats.step_ms - in_session);
    return status;
}

// --- opening ---

int scheduler_new(struct scheduler **out, struct session *s, const struct model *m, int n_seqs, struct error *err)
{
    struct scheduler *q = calloc(1, sizeof *q);
    if (!q)
        return fail(err, E_MEMORY, "no memory for a scheduler");
    *q = (struct scheduler){.session = s,
                            .model = m,
                            .n_seqs = n_seqs,
                            .n_batch = session_n_batch(s),
                            .n_logits_most = session_n_outputs(s)};
    assert(n_seqs >= 1 && n_seqs <= q->n_batch && n_seqs <= q->n_logits_most);
    size_t n = (size_t)n_seqs;
    q->last = &q->first;
    q->done_last = &q->done;
    q->running = calloc(n, sizeof(struct lane *));
    q->free_seqs = calloc(n, sizeof *q->free_seqs);
    q->outputs = calloc(n, sizeof *q->outputs);
    q->rows = calloc((size_t)q->n_batch, sizeof *q->rows);
    q->scored = calloc((size_t)q->n_logits_most, sizeof *q->scored);
    if (!q->running || !q->free_seqs || !q->outputs || !q->rows || !q->scored ||
        sampler_scratch_new(&q->scratch, m->info.n_vocab, err)) {
        scheduler_free(q);
        return fail(err, E_MEMORY, "no memory for a scheduler of %d sequences", n_seqs);
    }
    while (q->n_free < n_seqs) {
        q->free_seqs[q->n_free] = n_seqs - 1 - q->n_free;
        q->n_free++;
    }
    *out = q;
    return 0;
}

void scheduler_free(struct scheduler *q)
{
    if (!q)
        return;
    while (q->n_running)
        lane_free(stop_running(q, q->n_running - 1));
    while (q->first)
        lane_free(dequeue(q, &q->first));
    sampler_scratch_free(q->scratch);
    scored_texts_free(&q->texts);
    free(q->running);
    free(q->free_seqs);
    free(q->outputs);
    free(q->rows);
    free(q->scored);
    free(q);
}
