#include "engine/generate.h"

const char *const stop_reason_name[] = {"end", "length", "context", "stop", "interrupted", "output"};

static bool is_cancelled(const struct generate_options *o)
{
    return o->cancel && atomic_load_explicit(o->cancel, memory_order_relaxed);
}

static void ban_end_tokens(struct sampler *sampler, const struct tokenizer *t)
{
    for (int32_t id = 0; id < tokenizer_n_vocab(t); id++)
        if (tokenizer_is_end(t, id))
            sampler_ban(sampler, id);
}

// The prompt's tokens pass through the detokenizer unseen: the answer goes on where they end, so that the space which
// begins a text is dropped at the beginning of the prompt and nowhere else.
static struct detokenizer after_prompt(const struct tokenizer *t, const struct generate_options *o)
{
    struct detokenizer d = detokenizer_begin(t, false);
    for (int i = 0; i < o->n_prompt; i++)
        detokenizer_next(&d, o->prompt[i]);
    return d;
}

// Whether something ends the answer before one more token: *reason says what.
static bool is_over(const struct session *s, int seq, const struct generate_options *o, const struct stream *stream,
                    int64_t n_generated, enum stop_reason *reason)
{
    bool over = true;
    if (is_cancelled(o))
        *reason = STOP_INTERRUPTED;
    else if (stream->refused)
        *reason = STOP_OUTPUT;
    else if (stream->stopped)
        *reason = STOP_STRING;
    else if (o->n_predict >= 0 && n_generated >= o->n_predict)
        *reason = STOP_LENGTH;
    else if (session_length(s, seq) >= session_n_ctx(s) && n_generated > 0)
        *reason = STOP_CONTEXT;
    else
        over = false;
    return over;
}

// Token by token. The last one is not computed: its logits would be for nobody.
static int answer(struct session *s, const struct model *m, int seq, const struct generate_options *o,
                  struct sampler *sampler, struct stream *stream, struct generate_result *r, struct error *err)
{
    struct detokenizer text = after_prompt(m->tokenizer, o);
    while (!is_over(s, seq, o, stream, r->n_generated, &r->reason)) {
        if (r->n_generated > 0) {
            if (session_step(s, &(struct session_row){r->last_token, seq, true}, 1, err))
                return -1;
            r->n_steps++;
        }
        int length = session_length(s, seq);
        int32_t token = sampler_next(sampler, session_logits(s, 0), session_tokens(s, seq), length, length);
        if (!o->ignore_end && tokenizer_is_end(m->tokenizer, token)) {
            r->reason = STOP_END;
            return 0;
        }
        r->last_token = token;
        r->n_generated++;
        if (stream_push(stream, detokenizer_next(&text, token), err))
            return -1;
        if (r->n_generated == 1)
            r->first_ms = clock_ms() - r->start_ms;
    }
    return 0;
}

int generate(struct session *s, const struct model *m, int seq, const struct generate_options *o,
             struct generate_result *r, struct error *err)
{
    *r = (struct generate_result){.reason = STOP_INTERRUPTED, .n_prompt = o->n_prompt, .start_ms = clock_ms()};
    struct stream stream = {.stops = o->stops, .n_stops = o->n_stops, .emit = o->emit, .arg = o->arg};
    struct sampler *sampler = NULL;
    int status = sampler_new(&sampler, &o->sampler, m->info.n_vocab, err);
    if (status)
        return status;
    if (o->ignore_end)
        ban_end_tokens(sampler, m->tokenizer);
    status = session_prompt(s, seq, o->prompt, o->n_prompt, &r->n_reused, err);
    double begin = clock_ms();
    r->prompt_ms = begin - r->start_ms;
    if (!status && o->emit(o->arg, (struct str){"", 0}))
        stream.refused = 1;
    if (!status)
        status = answer(s, m, seq, o, sampler, &stream, r, err);
    r->generate_ms = clock_ms() - begin;
    stream_end(&stream);
    if (!status && stream.refused)
        r->reason = STOP_OUTPUT;
    stream_free(&stream);
    sampler_free(sampler);
    return status;
}
