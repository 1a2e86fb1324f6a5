#include "engine/generate.h"

#include <stdlib.h>

const char *const stop_reason_name[] = {"end", "length", "context", "stop", "interrupted", "output"};

// What one answer needs from its first token to its last.
struct run {
    struct session *session;
    const struct model *model;
    int seq;
    const struct generate_options *o;
    struct generate_result *r;
    struct sampler *sampler;
    struct stream stream;
    struct detokenizer text, bytes;  // what emit and what on_token is told
    struct candidate *top;           // [n_logprobs]
};

// --- before the answer ---

static void ban_end_tokens(struct sampler *sampler, const struct tokenizer *t)
{
    for (int32_t id = 0; id < tokenizer_n_vocab(t); id++)
        if (tokenizer_is_end(t, id))
            sampler_ban(sampler, id);
}

// The prompt's tokens pass through the detokenizer unseen: the answer goes on where they end, so that the space which
// begins a text is dropped at the beginning of the prompt and nowhere else.
static struct detokenizer after_prompt(const struct run *run, bool special)
{
    struct detokenizer d = detokenizer_begin(run->model->tokenizer, special);
    for (int i = 0; i < run->o->n_prompt; i++)
        detokenizer_next(&d, run->o->prompt[i]);
    return d;
}

static int start(struct run *run, struct error *err)
{
    const struct generate_options *o = run->o;
    int n_vocab = run->model->info.n_vocab, n_top = MIN(o->n_logprobs, n_vocab);
    run->stream = (struct stream){.stops = o->stops, .n_stops = o->n_stops, .emit = o->emit, .arg = o->arg};
    run->text = after_prompt(run, o->special);
    run->bytes = after_prompt(run, true);
    if (sampler_new(&run->sampler, &o->sampler, n_vocab, NULL, err))
        return -1;
    if (o->ignore_end)
        ban_end_tokens(run->sampler, run->model->tokenizer);
    if (n_top > 0 && !(run->top = calloc((size_t)n_top, sizeof *run->top)))
        return fail(err, E_MEMORY, "no memory for %d log-probabilities a token", n_top);
    return 0;
}

// --- token by token ---

// Whether something ends the answer before one more token.
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
    else if (session_length(run->session, run->seq) >= session_n_ctx(run->session) && r->n_generated > 0)
        r->reason = STOP_CONTEXT;
    else
        over = false;
    return over;
}

static int choose(struct run *run, const float *logits, int32_t *token, struct error *err)
{
    const struct token_rule *rule = run->o->rule;
    const uint32_t *allowed = NULL;
    if (rule && rule->mask(rule->state, &allowed, err))
        return -1;
    int n = session_length(run->session, run->seq);
    *token = sampler_next(run->sampler, logits, allowed, session_tokens(run->session, run->seq), n, n);
    if (*token < 0)
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

// Takes a token into the answer.
static int take(struct run *run, const float *logits, int32_t token, struct error *err)
{
    struct generate_result *r = run->r;
    const struct token_rule *rule = run->o->rule;
    report(run, logits, token);
    r->last_token = token;
    r->n_generated++;
    if (rule && rule->accept(rule->state, token, err))
        return -1;
    if (stream_push(&run->stream, detokenizer_next(&run->text, token), err))
        return -1;
    if (r->n_generated == 1)
        r->first_ms = clock_ms() - r->start_ms;
    return 0;
}

// The last token is not computed: its logits would be for nobody.
static int answer(struct run *run, struct error *err)
{
    struct generate_result *r = run->r;
    while (!is_over(run)) {
        if (r->n_generated > 0) {
            if (session_step(run->session, &(struct session_row){r->last_token, run->seq, true}, 1, err))
                return -1;
            r->n_steps++;
        }
        const float *logits = session_logits(run->session, 0);
        int32_t token;
        if (choose(run, logits, &token, err))
            return -1;
        if (!run->o->ignore_end && tokenizer_is_end(run->model->tokenizer, token)) {
            r->end_token = token;
            r->reason = STOP_END;
            return 0;
        }
        if (take(run, logits, token, err))
            return -1;
    }
    return 0;
}

int generate(struct session *s, const struct model *m, int seq, const struct generate_options *o,
             struct generate_result *r, struct error *err)
{
    *r = (struct generate_result){
        .reason = STOP_INTERRUPTED, .n_prompt = o->n_prompt, .end_token = -1, .start_ms = clock_ms()};
    struct run run = {.session = s, .model = m, .seq = seq, .o = o, .r = r};
    int status = start(&run, err);
    if (!status)
        status = session_prompt(s, seq, o->prompt, o->n_prompt, &r->n_reused, err);
    double begin = clock_ms();
    r->prompt_ms = begin - r->start_ms;
    if (!status && o->emit(o->arg, (struct str){"", 0}))
        run.stream.refused = 1;
    if (!status)
        status = answer(&run, err);
    r->generate_ms = clock_ms() - begin;
    stream_end(&run.stream);
    if (!status && run.stream.refused)
        r->reason = STOP_OUTPUT;
    stream_free(&run.stream);
    sampler_free(run.sampler);
    free(run.top);
    return status;
}
