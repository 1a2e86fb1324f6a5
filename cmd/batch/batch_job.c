// A row becomes one request per prompt; they share the settings and stop strings, and each sample has its own rule. A
// setting of the row overrides the flag of the run. A row without a seed gets one derived from the run's seed and the
// row's id, so that its answer does not depend on the order of the rows. The first fault ends the row, with a code
// for the error line.
#include "cmd/batch/batch_job.h"
#include "cmd/batch/batch_answer.h"
#include "cmd/batch/batch_tools.h"
#include "cmd/digest.h"
#include "cmd/template_choice.h"
#include "engine/chat/messages.h"
#include "engine/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// Opens the chat template. A fault in the model's own template is reported by the rows that need it; a fault in one
// that the user names ends the run.
static int open_chat(struct batch_context *c, struct error *err)
{
    const struct options *o = c->options;
    const bool named = o->chat_template || o->chat_template_file;
    if (template_choice_kwargs(o, &c->arena, &c->kwargs, err))
        return -1;
    if (!template_choice_any(o, c->model)) {
        fail(&c->chat_error, E_MODEL,
             "this model has no chat template; --chat-template chatml or plain, or --chat-template-file, give one");
        return 0;
    }
    int status = template_choice_open(&c->chat, o, c->model, &c->chat_error);
    if (!status || (!named && c->chat_error.code != E_MEMORY))
        return 0;
    *err = c->chat_error;
    return -1;
}

int batch_context_open(struct batch_context *c, const struct model *m, const struct options *o,
                       const struct sampling *sampling, int n_ctx, struct error *err)
{
    *c = (struct batch_context){
        .model = m, .options = o, .sampling = sampling, .seed = o->given[OPT_seed] ? o->seed : 0, .n_ctx = n_ctx};
    const char *path = gguf_path(m->file, 0), *slash = strrchr(path, '/');
    snprintf(c->model_name, sizeof c->model_name, "%s", o->model_name ? o->model_name : slash ? slash + 1 : path);
    size_t n = strlen(c->model_name);
    if (n > 5 && !strcmp(c->model_name + n - 5, ".gguf"))
        c->model_name[n - 5] = '\0';
    c->schemas = calloc(1, sizeof *c->schemas);
    if (!c->schemas)
        return fail(err, E_MEMORY, "no memory for schemas");
    *c->schemas = (struct batch_schemas){.tokenizer = m->tokenizer, .n_vocab = m->info.n_vocab};
    if (constrained_open(&c->constrained, o, m, NULL, err))
        return -1;
    return open_chat(c, err);
}

void batch_context_close(struct batch_context *c)
{
    chat_close(c->chat);
    arena_free(&c->arena);
    constrained_close(&c->constrained);
    if (c->schemas)
        batch_schemas_free(c->schemas);
    free(c->schemas);
    *c = (struct batch_context){0};
}

bool batch_context_chats(const struct batch_context *c)
{
    return c->chat;
}

// --- sampling ---

static void set_real(float *out, double v)
{
    if (!isnan(v))
        *out = (float)v;
}

// Applies a row's settings. OpenAI's penalties look at the whole answer; the window of recent tokens is meant for the
// repeat penalty only.
static void take_settings(struct sampler_params *p, const struct row_settings *s)
{
    set_real(&p->temperature, s->temperature);
    set_real(&p->top_p, s->top_p);
    set_real(&p->min_p, s->min_p);
    set_real(&p->frequency_penalty, s->frequency_penalty);
    set_real(&p->presence_penalty, s->presence_penalty);
    set_real(&p->repeat_penalty, s->repeat_penalty);
    if (s->top_k >= 0)
        p->top_k = (int)s->top_k;
}

// The row's own seed, or one derived from the run's seed and the row's id.
static uint64_t seed_of(const struct batch_row *row, uint64_t seed)
{
    if (row->settings.has_seed)
        return row->settings.seed;
    struct digest d = {0};
    digest_add(&d, &seed, sizeof seed);
    digest_add(&d, row->custom_id.data, row->custom_id.len);
    return digest_end(&d).a;
}

// Applies logit_bias: names are token ids, biases range from -100 (never) to 100.
static int take_biases(struct batch_job *job, const struct batch_context *c, struct sampler_params *p,
                       struct error *err)
{
    const struct value *dict = job->row.bias;
    size_t n_own = (size_t)c->sampling->params.n_biases, n = dict ? dict->dict->n : 0;
    if (!n)
        return 0;
    job->biases = calloc(n_own + n, sizeof *job->biases);
    if (!job->biases)
        return fail(err, E_MEMORY, "no memory for logit_bias");
    if (n_own)
        memcpy(job->biases, c->sampling->params.biases, n_own * sizeof *job->biases);
    for (size_t i = 0; i < n; i++) {
        const struct value_entry *e = &dict->dict->entries[i];
        int64_t id = 0;
        double bias;
        bool is_id = e->key.text.len > 0 && e->key.text.len < 10;
        for (size_t j = 0; is_id && j < e->key.text.len; j++) {
            is_id = e->key.text.data[j] >= '0' && e->key.text.data[j] <= '9';
            id = id * 10 + e->key.text.data[j] - '0';
        }
        if (!is_id || id >= c->model->info.n_vocab)
            return fail(err, E_USAGE, "logit_bias: \"%.*s\" is no token of a vocabulary of %d", STR_ARG(e->key.text),
                        c->model->info.n_vocab);
        if (!value_number(&e->value, &bias) || !(bias >= -100 && bias <= 100))
            return fail(err, E_USAGE, "logit_bias.%lld: a number from -100 to 100 is wanted", (long long)id);
        job->biases[n_own + i] = (struct logit_bias){(int32_t)id, bias <= -100 ? -INFINITY : (float)bias};
    }
    p->biases = job->biases;
    p->n_biases = (int)(n_own + n);
    return 0;
}

// --- prompts ---

static int tokenize(const struct batch_context *c, struct str text, struct token_list *tokens, struct error *err)
{
    const struct tokenizer *t = c->model->tokenizer;
    unsigned flags = TOKENIZE_BOS | (c->options->special ? TOKENIZE_SPECIAL : 0);
    if (tokenizer_encode(t, text, flags, tokens, err))
        return -1;
    // an EOS that the model file appends to whole texts must not stand before a continuation
    if (tokenizer_adds_eos(t) && tokens->n > 1)
        tokens->n--;
    int32_t bos = tokenizer_role(t, TOKEN_BOS);
    if (tokens->n || bos < 0)
        return 0;
    return token_list_push(tokens, bos, err);
}

static int take_ids(const struct value *list, struct token_list *tokens, struct error *err)
{
    for (size_t i = 0; i < list->list->n; i++) {
        int64_t id = list->list->items[i].integer;
        if (id < 0 || id > INT32_MAX)
            return fail(err, E_USAGE, "prompt: %lld is no token", (long long)id);
        if (token_list_push(tokens, (int32_t)id, err))
            return -1;
    }
    return 0;
}

static bool is_list_of_ids(const struct value *v)
{
    return v->kind == VALUE_LIST && v->list->items[0].kind == VALUE_INT;
}

static int alloc_prompts(struct batch_job *job, int n, struct error *err)
{
    job->prompts = calloc((size_t)n, sizeof *job->prompts);
    job->requests = calloc((size_t)n, sizeof *job->requests);
    return job->prompts && job->requests ? 0 : fail(err, E_MEMORY, "no memory for %d prompts", n);
}

// The variables of the row, with those of the flags that it does not set.
static int take_kwargs(struct batch_row *row, const struct value *flags, struct value *out, struct error *err)
{
    const struct value *all[] = {flags, row->kwargs};
    if (value_dict_new(out, &row->arena, err))
        return -1;
    for (size_t i = 0; i < COUNT_OF(all); i++)
        for (size_t k = 0; k < value_count(all[i]); k++)
            if (value_dict_put(&row->arena, out, all[i]->dict->entries[k].key, all[i]->dict->entries[k].value, err))
                return -1;
    return 0;
}

// Renders and tokenizes the messages. All of a row's messages and tools come from outside, so no control tokens are
// made of their text.
static int take_chat(struct batch_job *job, const struct batch_context *c, const char **code, struct error *err)
{
    struct batch_row *row = &job->row;
    struct value messages, tools, kwargs;
    *code = "not_supported";
    if (!c->chat) {
        *err = c->chat_error;
        return -1;
    }
    *code = "template_error";
    if (alloc_prompts(job, 1, err) || take_kwargs(row, c->kwargs, &kwargs, err) ||
        value_mark_input(&messages, &row->arena, row->messages, err) ||
        (row->tools && value_mark_input(&tools, &row->arena, row->tools, err)))
        return -1;
    struct chat_request request = {
        .messages = &messages,
        .tools = row->tools ? &tools : NULL,
        .kwargs = &kwargs,
        .add_generation_prompt = !row->no_answer_begun,
        .continue_final = row->continues,
        .thinking = c->options->think - c->options->no_think,
        .now = c->now,
    };
    job->n_requests = 1;
    return chat_render(c->chat, &request, &job->prompts[0], &job->prompt_text, err);
}

static int take_texts(struct batch_job *job, const struct batch_context *c, struct error *err)
{
    const struct value *prompt = job->row.prompt;
    bool many = prompt->kind == VALUE_LIST && !is_list_of_ids(prompt);
    int n = many ? (int)prompt->list->n : 1;
    if (alloc_prompts(job, n, err))
        return -1;
    for (job->n_requests = 0; job->n_requests < n; job->n_requests++) {
        const struct value *v = many ? &prompt->list->items[job->n_requests] : prompt;
        struct token_list *tokens = &job->prompts[job->n_requests];
        if (v->kind == VALUE_STRING ? tokenize(c, v->text, tokens, err) : take_ids(v, tokens, err))
            return -1;
    }
    return 0;
}

// --- requests ---

static int take_stops(struct batch_job *job, const struct batch_context *c, struct request *common, struct error *err)
{
    // the last one of the flags may be that of the plain form, which holds for messages alone
    const int n_flags =
        c->sampling->n_stops - (template_choice_plain(c->options) && job->row.kind == ROW_COMPLETION ? 1 : 0);
    const int n = n_flags + job->row.n_stops;
    job->stops = calloc((size_t)n + 1, sizeof *job->stops);
    if (!job->stops)
        return fail(err, E_MEMORY, "no memory for stop strings");
    for (int i = 0; i < n; i++)
        job->stops[i] = i < n_flags ? c->sampling->stops[i] : job->row.stops[i - n_flags]->text;
    common->stops = job->stops;
    common->n_stops = n;
    return 0;
}

static int take_stop_tokens(struct batch_job *job, const struct batch_context *c, struct request *common,
                            struct error *err)
{
    const struct value *ids = job->row.stop_ids;
    size_t n = value_count(ids);
    job->stop_tokens = calloc(n + 1, sizeof *job->stop_tokens);
    if (!job->stop_tokens)
        return fail(err, E_MEMORY, "no memory for %zu stop tokens", n);
    for (size_t i = 0; i < n; i++) {
        int64_t id = ids->list->items[i].integer;
        if (id < 0 || id >= c->model->info.n_vocab)
            return fail(err, E_USAGE, "stop_token_ids: %lld is no token of a vocabulary of %d", (long long)id,
                        c->model->info.n_vocab);
        job->stop_tokens[i] = (int32_t)id;
    }
    common->stop_tokens = job->stop_tokens;
    common->n_stop_tokens = (int)n;
    return 0;
}

// Makes room for the log-probabilities of the prompts, where the row asks for them.
static int take_scores(struct batch_job *job, struct error *err)
{
    const struct row_settings *s = &job->row.settings;
    int64_t n_top = MAX(s->n_prompt_logprobs, s->echo ? s->n_logprobs : -1);
    if (n_top < 0)
        return 0;
    job->scores = calloc((size_t)job->n_requests, sizeof *job->scores);
    if (!job->scores)
        return fail(err, E_MEMORY, "no memory for the log-probabilities of %d prompts", job->n_requests);
    for (int i = 0; i < job->n_requests; i++) {
        if (text_scores_new(&job->scores[i], (int)job->prompts[i].n, (int)n_top, err))
            return -1;
        job->requests[i].scores = &job->scores[i];
    }
    return 0;
}

static int check_length(const struct batch_job *job, const struct batch_context *c, const char **code,
                        struct error *err)
{
    for (int i = 0; i < job->n_requests; i++)
        if (job->prompts[i].n > (size_t)c->n_ctx) {
            *code = "context_length_exceeded";
            return fail(err, E_USAGE, "the prompt has %zu tokens, limit %d; -c sets it", job->prompts[i].n, c->n_ctx);
        }
    return 0;
}

// Whether the last message, which the answer continues, has opened its reasoning and not closed it.
static bool is_left_thinking(const struct batch_row *row, const struct answer_style *style)
{
    const struct value *last = &row->messages->list->items[row->messages->list->n - 1];
    const struct value *content = value_get(last, "content");
    size_t n = message_parts(content);
    struct str text = n ? message_part(content, n - 1) : STR_LIT("");
    const char *open = memmem(text.data, text.len, style->think_open, strlen(style->think_open));
    return open && !memmem(open, (size_t)(text.data + text.len - open), style->think_close, strlen(style->think_close));
}

struct answer_style batch_job_style(const struct batch_job *job, const struct batch_context *c)
{
    const struct batch_row *row = &job->row;
    struct str prompt = {job->prompt_text.data, job->prompt_text.size};
    struct answer_style style = chat_answer_style(c->chat, prompt, row->tools != NULL);
    if (row->choice != CHOICE_FREE && !batch_tools_is_native(&style))
        style.tools = TOOLS_NONE;
    style.offered = row->tools;
    style.in_reasoning |= row->continues && style.think_open && is_left_thinking(row, &style);
    return style;
}

// Takes the grammar of the form that the row asks for.
static int take_guide(struct batch_job *job, const struct batch_context *c, struct error *err)
{
    struct guide guide = {job->row.guide, job->row.guide_value, {{0}, {0}, {0}, false}};
    if (guide.kind == GUIDE_CALLS) {
        struct answer_style style = batch_job_style(job, c);
        guide.kind = GUIDE_SCHEMA;
        if (batch_tools_schema(&job->row, &style, &guide.v, &guide.frame, err))
            return -1;
    }
    job->schemas = c->schemas;
    return batch_schemas_take(c->schemas, &guide, &job->schema, err);
}

// Makes a rule for each sample.
static int make_rules(struct batch_job *job, const struct model *m, const struct answer_rule_options *o,
                      struct error *err)
{
    int n = job->n_requests * (int)job->row.settings.n;
    job->answer_rules = calloc((size_t)n, sizeof(struct answer_rule *));
    job->rules = calloc((size_t)n, sizeof *job->rules);
    if (!job->answer_rules || !job->rules)
        return fail(err, E_MEMORY, "no memory for the rules of %d answers", n);
    for (; job->n_rules < n; job->n_rules++) {
        struct answer_rule **rule = &job->answer_rules[job->n_rules];
        if (answer_rule_new(rule, m->tokenizer, m->info.n_vocab, o, err))
            return -1;
        job->rules[job->n_rules] = answer_rule_begin(*rule);
    }
    return 0;
}

// Sets the constraint that the row asks for, or else that of the flags, applied after any reasoning. Each sample has
// a rule of its own.
static int take_rules(struct batch_job *job, const struct batch_context *c, const char **code, struct error *err)
{
    struct answer_rule_options o = {.grammar = c->constrained.grammar, .budget = c->options->think_budget};
    *code = "invalid_schema";
    if (job->row.guide != GUIDE_NONE) {
        if (take_guide(job, c, err))
            return -1;
        o.grammar = job->schema->grammar;
    }
    if (job->row.kind == ROW_CHAT) {
        struct answer_style style = batch_job_style(job, c);
        o.think_open = style.think_open;
        o.think_close = style.think_close;
        o.in_reasoning = style.in_reasoning;
    }
    if (!o.grammar && !(o.think_close && o.budget >= 0))
        return 0;
    return make_rules(job, c->model, &o, err);
}

static void set_request(struct batch_job *job, int i, const struct request *common, uint64_t seed)
{
    struct request *r = &job->requests[i];
    *r = *common;
    if (job->rules) {
        r->rules = job->rules + (ptrdiff_t)i * common->n_samples;
        r->ignore_end = false; // once the schema is satisfied only the end token is allowed
    }
    r->sampler.seed = scheduler_sample_seed(seed, i * common->n_samples);
    r->prompt = job->prompts[i].ids;
    r->n_prompt = (int)job->prompts[i].n;
}

int batch_job_make(struct batch_job *job, const struct batch_context *c, const char **code, struct error *err)
{
    const struct row_settings *s = &job->row.settings;
    const double start = clock_ms();
    *code = "not_supported";
    if (job->row.kind == ROW_EMBEDDING)
        return fail(err, E_USAGE, "this model answers; --as embedding makes embeddings of its hidden rows");
    *code = "invalid_request";
    struct request common = {
        .n_samples = (int)s->n,
        .n_least = s->min_tokens,
        .n_predict = s->max_tokens >= 0 ? s->max_tokens : c->options->n_predict,
        .sampler = c->sampling->params,
        .ignore_end = s->ignore_end || c->options->ignore_eos,
        .n_logprobs = (int)s->n_logprobs,
        .timeout_ms = c->options->timeout * 1e3,
        .user = job,
    };
    take_settings(&common.sampler, s);
    if (take_biases(job, c, &common.sampler, err) || sampler_check(&common.sampler, c->model->info.n_vocab, err) ||
        take_stops(job, c, &common, err) || take_stop_tokens(job, c, &common, err))
        return -1;
    if (job->row.kind == ROW_CHAT ? take_chat(job, c, code, err) : take_texts(job, c, err))
        return -1;
    if (check_length(job, c, code, err) || take_rules(job, c, code, err))
        return -1;
    common.spent_ms = clock_ms() - start;
    for (int i = 0; i < job->n_requests; i++)
        set_request(job, i, &common, seed_of(&job->row, c->seed));
    return take_scores(job, err);
}

void batch_job_free(struct batch_job *job)
{
    for (int i = 0; job->requests && i < job->n_requests; i++)
        request_free(&job->requests[i]);
    for (int i = 0; job->prompts && i < job->n_requests; i++)
        token_list_free(&job->prompts[i]);
    for (int i = 0; job->scores && i < job->n_requests; i++)
        text_scores_free(&job->scores[i]);
    for (int i = 0; i < job->n_rules; i++)
        answer_rule_free(job->answer_rules[i]);
    if (job->schemas)
        batch_schemas_release(job->schemas, job->schema);
    text_free(&job->prompt_text);
    free(job->vectors);
    free(job->answer_rules);
    free(job->rules);
    free(job->requests);
    free(job->prompts);
    free(job->stops);
    free(job->stop_tokens);
    free(job->scores);
    free(job->biases);
    batch_row_free(&job->row);
    *job = (struct batch_job){0};
}

// --- lines ---

static const char *code_of(const struct error *e)
{
    if (e->code == E_ITEMS)
        return "timeout";
    return e->code == E_MODEL ? "model_error" : e->code == E_MEMORY ? "out_of_memory" : "invalid_request";
}

int batch_job_print(struct batch_job *job, const struct batch_context *c, struct text *line, const char **why,
                    struct error *err)
{
    static const char cut[] =
        "the answer was cut before it had the form that the row asks for; a larger max_tokens may help";
    for (int i = 0; i < job->n_requests; i++) {
        const struct error *e = &job->requests[i].error;
        if (e->code == E_OK)
            continue;
        *why = e->text;
        return batch_error_print(job->row.number, job->row.custom_id, code_of(e), e->text, line, err);
    }
    for (int i = 0; i < job->n_rules; i++) {
        if (answer_rule_can_end(job->answer_rules[i]))
            continue;
        *why = cut;
        return batch_error_print(job->row.number, job->row.custom_id, "schema_unmet", cut, line, err);
    }
    *why = NULL;
    return batch_answer_print(job, c, line, err);
}
