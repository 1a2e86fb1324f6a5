// The text of a lane grows by the tokens that are chosen. What is reported of a token is taken from the logits at once.
#include "engine/scheduler_lane.h"

#include <stdlib.h>

void lane_free(struct lane *l)
{
    if (!l)
        return;
    sampler_free(l->sampler);
    answer_stream_free(&l->stream);
    free(l->tokens);
    free(l);
}

static int lane_push(struct lane *l, int32_t token, struct error *err)
{
    if (l->n_tokens == l->cap) {
        int cap = l->cap + l->cap / 2 + 64;
        int32_t *tokens = realloc(l->tokens, (size_t)cap * sizeof *tokens);
        if (!tokens)
            return fail(err, E_MEMORY, "no memory for %d tokens of an answer", cap);
        l->tokens = tokens;
        l->cap = cap;
    }
    l->tokens[l->n_tokens++] = token;
    return 0;
}

static int append_text(void *arg, struct str text)
{
    struct text *out = arg;
    text_append(out, text);
    return out->failed;
}

uint64_t scheduler_sample_seed(uint64_t seed, int sample)
{
    if (!sample)
        return seed;
    uint32_t counter[4] = {(uint32_t)sample, 0, 0, 1}, out[4];
    philox(counter, (uint32_t[2]){(uint32_t)seed, (uint32_t)(seed >> 32)}, out);
    return (uint64_t)out[1] << 32 | out[0];
}

static bool is_stop_token(const struct request *r, int32_t token)
{
    for (int i = 0; i < r->n_stop_tokens; i++)
        if (r->stop_tokens[i] == token)
            return true;
    return false;
}

bool lane_ends(const struct lane *l, const struct model *m, int32_t token)
{
    const struct request *r = l->request;
    return (!r->ignore_end && tokenizer_is_end(m->tokenizer, token)) || is_stop_token(r, token);
}

// Bans or allows all tokens that end the answer.
static void for_each_ending(struct lane *l, const struct model *m, void (*set)(struct sampler *, int32_t))
{
    for (int32_t id = 0; id < m->info.n_vocab; id++)
        if (lane_ends(l, m, id))
            set(l->sampler, id);
}

static int make_sampler(struct lane *l, const struct model *m, struct sampler_scratch *scratch, struct error *err)
{
    struct sampler_params p = l->request->sampler;
    p.seed = scheduler_sample_seed(p.seed, l->sample);
    if (sampler_new(&l->sampler, &p, m->info.n_vocab, scratch, err))
        return -1;
    for (int32_t id = 0; l->request->ignore_end && id < m->info.n_vocab; id++)
        if (tokenizer_is_end(m->tokenizer, id) && !is_stop_token(l->request, id))
            sampler_ban(l->sampler, id);
    if (l->request->n_least > 0)
        for_each_ending(l, m, sampler_ban);
    return 0;
}

int lane_new(struct lane **out, const struct model *m, struct sampler_scratch *scratch, struct request *r, int sample,
             struct error *err)
{
    struct lane *l = calloc(1, sizeof *l);
    if (!l)
        return fail(err, E_MEMORY, "no memory for a request");
    *l = (struct lane){.request = r, .sample = sample, .seq = -1, .n_left = r->n_predict};
    l->stream = (struct answer_stream){
        .stops = r->stops, .n_stops = r->n_stops, .emit = append_text, .arg = &r->samples[sample].text};
    l->cap = r->n_prompt + (int)MIN(MAX(r->n_predict, 0), 256);
    l->tokens = malloc((size_t)l->cap * sizeof *l->tokens);
    if (!l->tokens || make_sampler(l, m, scratch, err)) {
        lane_free(l);
        return fail(err, E_MEMORY, "no memory for a request of %d tokens", r->n_prompt);
    }
    memcpy(l->tokens, r->prompt, (size_t)r->n_prompt * sizeof *l->tokens);
    l->n_tokens = r->n_prompt;
    // the text of the answer continues that of the prompt, see after_prompt in generate.c
    l->text = detokenizer_begin(m->tokenizer, false);
    for (int i = 0; i < r->n_prompt; i++)
        detokenizer_next(&l->text, r->prompt[i]);
    *out = l;
    return 0;
}

bool request_wants_scores(const struct request *r)
{
    return r->scores && !text_scores_done(r->scores);
}

int lane_reusable(const struct lane *l)
{
    return request_wants_scores(l->request) ? MIN(l->request->scores->n_scored + 1, l->n_tokens) : l->n_tokens;
}

bool lane_is_scored(const struct lane *l, int at)
{
    const struct text_scores *scores = l->request->scores;
    return scores && at + 1 < l->request->n_prompt && at >= scores->n_scored;
}

bool lane_has_logits(const struct lane *l, int at)
{
    return at == l->n_tokens - 1 || lane_is_scored(l, at);
}

static int grow_sample(struct sample *s, int n_logprobs, struct error *err)
{
    if (s->n_tokens < s->cap)
        return 0;
    size_t cap = 2 * (size_t)s->cap + 16, n_top = (size_t)MAX(n_logprobs, 0);
    int32_t *tokens = realloc(s->tokens, cap * sizeof *tokens);
    s->tokens = tokens ? tokens : s->tokens;
    float *logprobs = n_logprobs < 0 ? NULL : realloc(s->logprobs, cap * sizeof *logprobs);
    s->logprobs = logprobs ? logprobs : s->logprobs;
    struct candidate *top = n_top ? realloc(s->top, cap * n_top * sizeof *top) : NULL;
    s->top = top ? top : s->top;
    if (!tokens || (n_logprobs >= 0 && !logprobs) || (n_top && !top))
        return fail(err, E_MEMORY, "no memory for %zu tokens of an answer", cap);
    s->cap = (int)cap;
    return 0;
}

static void score_token(const struct request *r, struct sample *s, const struct model *m, const float *logits,
                        int32_t token)
{
    if (r->n_logprobs >= 0)
        s->logprobs[s->n_tokens] =
            logprobs_of(logits, m->info.n_vocab, token, s->top + (ptrdiff_t)s->n_tokens * r->n_logprobs, r->n_logprobs);
}

int lane_add_token(struct lane *l, const struct model *m, const float *logits, int32_t token, struct error *err)
{
    struct request *r = l->request;
    struct sample *s = &r->samples[l->sample];
    const struct token_rule *rule = r->rules ? &r->rules[l->sample] : NULL;
    if (grow_sample(s, r->n_logprobs, err))
        return -1;
    score_token(r, s, m, logits, token);
    s->tokens[s->n_tokens++] = token;
    l->n_left -= l->n_left > 0;
    l->stream.n_stops = s->n_tokens > r->n_least ? r->n_stops : 0;
    if (s->n_tokens == r->n_least)
        for_each_ending(l, m, sampler_unban);
    if (rule && rule->accept(rule->state, token, err))
        return -1;
    return lane_push(l, token, err) || answer_stream_push(&l->stream, detokenizer_next(&l->text, token), err);
}

int lane_enough_logits(const struct lane *l)
{
    return l->request->rules || l->request->n_logprobs >= 0 ? 0 : sampler_top_k(l->sampler);
}

int lane_end(struct lane *l, const struct model *m, const float *logits, int32_t token, struct error *err)
{
    struct request *r = l->request;
    struct sample *s = &r->samples[l->sample];
    if (r->n_logprobs >= 0 && grow_sample(s, r->n_logprobs, err))
        return -1;
    score_token(r, s, m, logits, token);
    s->end_token = token;
    return 0;
}
