// Each round chooses a token from the logits of the last row and adds it to the text. With a speculator, one step
// computes the last token together with a draft of the next ones; as long as the chosen tokens equal the drafted
// ones, no further step is needed, and at the first difference the rest of the draft is removed from the sequence.
#include "engine/generate.h"
#include "engine/clock.h"

#include <stdlib.h>

const char *const stop_reason_name[] = {"end", "length", "context", "stop", "interrupted", "output"};

// The state of one answer from its first token to its last.
struct run {
    struct session *session;
    const struct model *model;
    int seq;
    const struct generate_options *o;
    struct generate_result *r;
    struct sampler *sampler;
    struct answer_stream stream;
    struct answer split; // with a style
    struct error split_error;
    struct detokenizer text, bytes; // for emit, and for on_token
    struct candidate *top;          // [n_logprobs]
    int length;                     // of the sequence up to its last chosen token; drafted tokens follow
    int32_t drafted[DRAFT_MAX];
    int n_drafted; // drafted tokens that the last step computed
    int row;       // how many of them were accepted: the row of the next logits
    int top_k;     // how many of the largest logits of a row suffice; 0: all are needed
};

// --- before the answer ---

static void ban_end_tokens(struct sampler *sampler, const struct tokenizer *t)
{
    for (int32_t id = 0; id < tokenizer_n_vocab(t); id++)
        if (tokenizer_is_end(t, id))
            sampler_ban(sampler, id);
}

// How many of the largest logits of a row suffice to choose each token of this answer; 0: all are needed.
static int enough_logits(const struct run *run)
{
    return run->o->rule || run->o->n_logprobs >= 0 ? 0 : sampler_top_k(run->sampler);
}

// A detokenizer in the state after the prompt. The text of the prompt is discarded, but the answer continues it, so
// the leading space that some tokenizers drop is dropped at the beginning of the prompt and nowhere else.
static struct detokenizer after_prompt(const struct run *run, bool special)
{
    struct detokenizer d = detokenizer_begin(run->model->tokenizer, special);
    for (int i = 0; i < run->o->n_prompt; i++)
        detokenizer_next(&d, run->o->prompt[i]);
    return d;
}

// Receives one part of an answer that is split into content, reasoning and tool calls.
static int take_part(void *arg, enum answer_part part, struct str text)
{
    struct run *run = arg;
    if (part == ANSWER_CONTENT)
        return answer_stream_push(&run->stream, text, &run->split_error);
    return run->o->emit_aside ? run->o->emit_aside(run->o->arg, part, text) : 0;
}

static int start(struct run *run, struct error *err)
{
    const struct generate_options *o = run->o;
    int n_vocab = run->model->info.n_vocab, n_top = MIN(o->n_logprobs, n_vocab);
    run->stream = (struct answer_stream){.stops = o->stops, .n_stops = o->n_stops, .emit = o->emit, .arg = o->arg};
    run->text = after_prompt(run, o->special || o->style);
    if (o->style)
        answer_begin(&run->split, o->style, take_part, run);
    run->bytes = after_prompt(run, true);
    if (sampler_new(&run->sampler, &o->sampler, n_vocab, NULL, err))
        return -1;
    if (o->ignore_end)
        ban_end_tokens(run->sampler, run->model->tokenizer);
    run->top_k = session_want_top(run->session, enough_logits(run));
    if (o->speculator &&
        speculator_begin(o->speculator, o->prompt, o->n_prompt, &o->sampler, run->model->info.n_vocab, err))
        return -1;
    if (n_top > 0 && !(run->top = calloc((size_t)n_top, sizeof *run->top)))
        return fail(err, E_MEMORY, "no memory for %d log-probabilities a token", n_top);
    return 0;
}

// --- token by token ---

// Whether the answer ends before the next token; sets the reason.
static bool is_over(const struct run *run)
{
    const struct generate_options *o = run->o;
    struct generate_result *r = run->r;
    bool over = true;
    if (o->cancel && atomic_load_explicit(o->cancel, memory_order_relaxed))
        r->reason = STOP_INTERRUPTED;
    else if (run->stream.refused)
        r->reason = STOP_OUTPUT;
    else if (run->stream.stopped)
        r->reason = STOP_STRING;
    else if (o->n_predict >= 0 && r->n_generated >= o->n_predict)
        r->reason = STOP_LENGTH;
    else if (run->length >= session_n_ctx(run->session) && r->n_generated > 0)
        r->reason = STOP_CONTEXT;
    else
        over = false;
    return over;
}

// Chooses the next token. logits: NULL where the largest ones, from session_top, suffice.
static int choose(struct run *run, const float *logits, int32_t *token, struct error *err)
{
    const struct token_rule *rule = run->o->rule;
    const uint32_t *allowed = NULL;
    if (rule && rule->mask(rule->state, &allowed, err))
        return -1;
    const int32_t *history = session_tokens(run->session, run->seq);
    *token = logits ? sampler_next(run->sampler, logits, allowed, history, run->length, run->length)
                    : sampler_next_of(run->sampler, session_top(run->session, run->row), run->top_k, history,
                                      run->length, run->length);
    // the rule may allow only tokens that end the answer, and --ignore-eos excludes those
    if (*token < 0 && !(rule && run->o->ignore_end))
        return fail(err, E_USAGE, "no token of this vocabulary may come after %lld of the answer",
                    (long long)run->r->n_generated);
    return 0;
}

static void report(struct run *run, const float *logits, int32_t id)
{
    const struct generate_options *o = run->o;
    if (!o->on_token)
        return;
    struct generate_token token = {
        .id = id, .index = run->r->n_generated, .piece = detokenizer_next(&run->bytes, id), .top = run->top};
    if (o->n_logprobs >= 0) {
        token.n_top = MIN(o->n_logprobs, run->model->info.n_vocab);
        token.logprob = logprobs_of(logits, run->model->info.n_vocab, id, run->top, token.n_top);
    }
    if (o->on_token(o->arg, &token))
        run->stream.refused = 1;
}

// Ends the answer when take_part failed, with its error, or when emit_aside refused its text.
static int check_split(struct run *run, struct error *err)
{
    if (run->split_error.code) {
        if (err)
            *err = run->split_error;
        return -1;
    }
    if (run->split.refused)
        run->stream.refused = 1;
    return 0;
}

static int push_text(struct run *run, int32_t token, struct error *err)
{
    if (!run->o->style)
        return answer_stream_push(&run->stream, detokenizer_next(&run->text, token), err);
    return answer_push_token(&run->split, &run->text, token, err) ? -1 : check_split(run, err);
}

static int end_text(struct run *run, struct error *err)
{
    int status = run->o->style && !run->stream.stopped ? answer_end(&run->split, err) : 0;
    if (!status)
        status = check_split(run, err);
    answer_stream_end(&run->stream);
    return status;
}

// Adds a chosen token to the answer.
static int take(struct run *run, const float *logits, int32_t token, struct error *err)
{
    struct generate_result *r = run->r;
    const struct token_rule *rule = run->o->rule;
    report(run, logits, token);
    r->last_token = token;
    r->n_generated++;
    if (run->o->speculator)
        speculator_push(run->o->speculator, token);
    if (rule && rule->accept(rule->state, token, err))
        return -1;
    if (push_text(run, token, err))
        return -1;
    if (r->n_generated == 1)
        r->first_ms = clock_ms() - r->start_ms;
    return 0;
}

// Removes drafted tokens that were not accepted. A sequence that cannot be shortened is computed again, and no more
// drafts are made.
static int drop_drafted(struct run *run, struct error *err)
{
    run->n_drafted = run->row = 0;
    if (session_length(run->session, run->seq) <= run->length || session_truncate(run->session, run->seq, run->length))
        return 0;
    int n;
    const int32_t *tokens = speculator_tokens(run->o->speculator, &n);
    speculator_stop(run->o->speculator);
    return session_prompt(run->session, run->seq, tokens, run->length, NULL, err);
}

// How many tokens a draft may have: not more than the answer can still accept.
static int room_for_draft(const struct run *run)
{
    const struct generate_options *o = run->o;
    int64_t room = session_n_ctx(run->session) - run->length - 1;
    room = MIN(room, MIN(session_n_outputs(run->session), session_n_batch(run->session)) - 1);
    room = MIN(room, (int64_t)session_rewind_limit(run->session));
    return (int)(o->n_predict < 0 ? room : MIN(room, o->n_predict - run->r->n_generated - 1));
}

// Computes the last token together with a draft of the next ones.
static int step(struct run *run, struct error *err)
{
    struct speculator *speculator = run->o->speculator;
    struct session_row rows[DRAFT_MAX + 1] = {{run->r->last_token, run->seq, true}};
    int n = speculator ? speculator_draft(speculator, room_for_draft(run), run->drafted) : 0;
    for (int i = 0; i < n; i++)
        rows[i + 1] = (struct session_row){run->drafted[i], run->seq, true};
    double begin = clock_ms();
    // the step with a draft may fail where the step without it succeeds
    bool failed = n && session_step(run->session, rows, n + 1, err);
    if (failed)
        speculator_stop(speculator);
    if ((failed || !n) && session_step(run->session, rows, 1, err))
        return -1;
    run->n_drafted = failed ? 0 : n;
    run->r->n_drafted += run->n_drafted;
    run->r->n_steps++;
    if (speculator)
        speculator_note_step(speculator, run->n_drafted + 1, clock_ms() - begin);
    return 0;
}

// Adds the last token to the sequence: either it was drafted and computed already, or it is computed now.
static int advance(struct run *run, struct error *err)
{
    if (run->row < run->n_drafted && run->drafted[run->row] == run->r->last_token) {
        run->row++;
        run->r->n_right++;
    } else if (drop_drafted(run, err) || step(run, err)) {
        return -1;
    }
    run->length++;
    return 0;
}

// The last token of the answer is not computed, because its logits are not needed.
static int answer(struct run *run, struct error *err)
{
    struct generate_result *r = run->r;
    while (!is_over(run)) {
        if (r->n_generated > 0 && advance(run, err))
            return -1;
        const float *logits = run->top_k ? NULL : session_logits(run->session, run->row);
        int32_t token;
        if (choose(run, logits, &token, err))
            return -1;
        if (token < 0 || (!run->o->ignore_end && tokenizer_is_end(run->model->tokenizer, token))) {
            r->end_token = token;
            r->reason = STOP_END;
            break;
        }
        if (take(run, logits, token, err))
            return -1;
    }
    return drop_drafted(run, err);
}

static int compute_prompt(struct run *run, struct error *err)
{
    const struct generate_options *o = run->o;
    if (o->on_prompt)
        o->on_prompt(o->arg, false);
    int status = session_prompt(run->session, run->seq, o->prompt, o->n_prompt, &run->r->n_reused, err);
    if (o->on_prompt)
        o->on_prompt(o->arg, true);
    return status;
}

int generate(struct session *s, const struct model *m, int seq, const struct generate_options *o,
             struct generate_result *r, struct error *err)
{
    *r = (struct generate_result){
        .reason = STOP_INTERRUPTED, .n_prompt = o->n_prompt, .end_token = -1, .start_ms = clock_ms()};
    struct run run = {.session = s, .model = m, .seq = seq, .o = o, .r = r};
    int status = start(&run, err);
    if (!status)
        status = compute_prompt(&run, err);
    double begin = clock_ms();
    r->prompt_ms = begin - r->start_ms;
    run.length = o->n_prompt;
    if (!status && o->emit(o->arg, (struct str){"", 0}))
        run.stream.refused = 1;
    if (!status)
        status = answer(&run, err);
    r->generate_ms = clock_ms() - begin;
    if (end_text(&run, status ? NULL : err) && !status)
        status = -1;
    if (!status && run.stream.refused)
        r->reason = STOP_OUTPUT;
    session_want_top(s, 0);
    answer_free(&run.split);
    answer_stream_free(&run.stream);
    sampler_free(run.sampler);
    free(run.top);
    return status;
}
