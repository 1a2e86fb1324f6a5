// A group of rows is computed at once, so that steps are full; an embedder serves texts up to a length, and is opened anew
// for longer ones.
#include "cmd/batch/batch_embed.h"
#include "cmd/embed/embed.h"
#include "cmd/terminal/terminal.h"
#include "engine/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int batch_embed_check(const struct model *m, const struct options *o, struct error *err)
{
    if (!m->hidden && (o->given[OPT_pooling] || o->truncate))
        return fail(err, E_USAGE, "%s is for embeddings, and this run makes answers; --as embedding makes vectors",
                    o->truncate ? "--truncate" : "--pooling");
    if (m->hidden && o->given[OPT_timeout])
        return fail(err, E_USAGE, "--timeout is for answers, and this run makes embeddings");
    const enum pooling pooling = m->hidden ? embed_pooling(m, o) : POOLING_MEAN;
    if (o->given[OPT_pooling] && (pooling == POOLING_NONE || pooling == POOLING_RANK))
        return fail(err, E_USAGE, "--pooling %s: rows of a batch have one vector for a text; quern embed makes %s",
                    pooling == POOLING_NONE ? "none" : "rank", pooling == POOLING_NONE ? "more" : "scores");
    return 0;
}

// ---- From a row to texts

static int take_text(const struct batch_context *c, const struct value *v, struct token_list *out, struct error *err)
{
    if (v->kind == VALUE_STRING)
        return tokenizer_encode(c->model->tokenizer, v->text,
                                TOKENIZE_BOS | (c->options->special ? TOKENIZE_SPECIAL : 0), out, err);
    for (size_t i = 0; i < v->list->n; i++) {
        const int64_t id = v->list->items[i].integer;
        if (id < 0 || id >= c->model->info.n_vocab)
            return fail(err, E_USAGE, "input: %lld is no token of a vocabulary of %d", (long long)id,
                        c->model->info.n_vocab);
        if (token_list_push(out, (int32_t)id, err))
            return -1;
    }
    return 0;
}

static int check_length(struct token_list *text, const struct batch_context *c, bool *cut, const char **code,
                        struct error *err)
{
    const int64_t most = MIN((int64_t)c->n_ctx, c->model->graph->position_rows);
    if (c->options->truncate)
        *cut |= embed_cut(text->ids, &text->n, (int)most);
    if (!text->n)
        return fail(err, E_USAGE, "input: a text without tokens");
    if (text->n <= (size_t)most)
        return 0;
    *code = "context_length_exceeded";
    return fail(err, E_USAGE, "the text has %zu tokens, limit %lld%s", text->n, (long long)most,
                most < c->model->graph->position_rows ? "; -c sets it, --truncate cuts it" : "; --truncate cuts it");
}

int batch_embed_make(struct batch_job *job, const struct batch_context *c, const char **code, struct error *err)
{
    *code = "not_supported";
    if (job->row.kind != ROW_EMBEDDING)
        return fail(err, E_USAGE, "this run makes embeddings, not answers");
    if (embed_pooling(c->model, c->options) == POOLING_RANK)
        return fail(err, E_USAGE, "this model is a reranker; quern embed --query scores texts");
    *code = "invalid_request";
    const struct value *input = job->row.prompt;
    const bool many = input->kind == VALUE_LIST && input->list->items[0].kind != VALUE_INT;
    const int n = many ? (int)input->list->n : 1;
    job->prompts = calloc((size_t)n, sizeof *job->prompts);
    if (!job->prompts)
        return fail(err, E_MEMORY, "no memory for %d texts", n);
    for (; job->n_requests < n; job->n_requests++) {
        struct token_list *text = &job->prompts[job->n_requests];
        if (take_text(c, many ? &input->list->items[job->n_requests] : input, text, err) ||
            check_length(text, c, &job->cut, code, err))
            return job->n_requests++, -1; // its list is freed with the job
    }
    if (job->row.dimensions <= c->model->info.n_out)
        return 0;
    return fail(err, E_USAGE, "dimensions: %lld of %d", (long long)job->row.dimensions, c->model->info.n_out);
}

// ---- Computing

static int open_embedder(struct batch_embed *b, const struct batch_context *c, int n_longest, struct error *err)
{
    const struct model *m = c->model;
    if (b->embedder && n_longest <= b->n_longest)
        return 0;
    embedder_close(b->embedder);
    b->embedder = NULL;
    for (b->n_longest = 64; b->n_longest < n_longest; b->n_longest *= 2)
        ;
    b->n_longest = (int)MIN((int64_t)b->n_longest, MIN((int64_t)c->n_ctx, m->graph->position_rows));
    const struct embedder_options o = {.pooling = embed_pooling(m, c->options),
                                       .normalise = EMBED_AS_THEY_ARE,
                                       .n_longest = b->n_longest,
                                       .n_batch = (int)MIN(c->options->batch, c->options->ubatch),
                                       .kv_type = {c->options->kv_key, c->options->kv_value}};
    return embedder_open(&b->embedder, m, &o, err);
}

// Cuts a vector to the dimensions that the row asks for, and makes its length 1.
static void finish(float *v, int n)
{
    double squares = 0;
    for (int i = 0; i < n; i++)
        squares += (double)v[i] * (double)v[i];
    for (int i = 0; i < n; i++)
        v[i] = squares > 0 ? (float)((double)v[i] / sqrt(squares)) : 0;
}

static int alloc_vectors(struct batch_embed *b, struct error *err)
{
    for (int i = 0; i < b->n; i++) {
        struct batch_job *job = b->jobs[i];
        job->width = embedder_width(b->embedder);
        free(job->vectors);
        job->vectors = calloc((size_t)job->n_requests * (size_t)job->width, sizeof *job->vectors);
        if (!job->vectors)
            return fail(err, E_MEMORY, "no memory for %d vectors", job->n_requests);
    }
    return 0;
}

static size_t list_texts(const struct batch_embed *b, struct embedder_text *out)
{
    size_t n = 0;
    for (int i = 0; i < b->n; i++)
        for (int j = 0; j < b->jobs[i]->n_requests; j++) {
            const struct token_list *ids = &b->jobs[i]->prompts[j];
            out[n++] =
                (struct embedder_text){ids->ids, (int)ids->n, b->jobs[i]->vectors + (ptrdiff_t)j * b->jobs[i]->width};
        }
    return n;
}

int batch_embed_run(struct batch_embed *b, const struct batch_context *c, struct error *err)
{
    size_t n = 0;
    int longest = 1;
    for (int i = 0; i < b->n; i++) {
        n += (size_t)b->jobs[i]->n_requests;
        for (int j = 0; j < b->jobs[i]->n_requests; j++)
            longest = MAX(longest, (int)b->jobs[i]->prompts[j].n);
    }
    struct embedder_text *texts = calloc(MAX(n, 1u), sizeof *texts);
    int status = texts ? open_embedder(b, c, longest, err) : fail(err, E_MEMORY, "no memory for %zu texts", n);
    if (!status && !(status = alloc_vectors(b, err)))
        status = embedder_run(b->embedder, texts, list_texts(b, texts), err);
    free(texts);
    return status;
}

void batch_embed_free(struct batch_embed *b)
{
    embedder_close(b->embedder);
    *b = (struct batch_embed){0};
}

// ---- Lines

static void print_base64(struct text *out, const uint8_t *bytes, size_t n)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    text_print(out, "\"");
    for (size_t i = 0; i < n; i += 3) {
        uint32_t three = 0;
        for (size_t j = 0; j < 3; j++)
            three = three << 8 | (i + j < n ? bytes[i + j] : 0u);
        char four[4];
        for (size_t j = 0; j < 4; j++)
            four[j] = i + j <= n ? letters[three >> (18 - 6 * j) & 63] : '=';
        text_append(out, (struct str){four, 4});
    }
    text_print(out, "\"");
}

static void print_vector(struct text *out, const float *v, int n, bool base64)
{
    if (base64) {
        print_base64(out, (const uint8_t *)v, (size_t)n * sizeof *v);
        return;
    }
    text_print(out, "[");
    for (int i = 0; i < n; i++) {
        text_print(out, i ? "," : "");
        text_print_float32(out, v[i]);
    }
    text_print(out, "]");
}

int batch_embed_print(struct batch_job *job, const struct batch_context *c, struct text *line, struct error *err)
{
    const int n = job->row.dimensions ? (int)job->row.dimensions : job->width;
    size_t tokens = 0;
    if (batch_line_begin(job, line, err))
        return -1;
    text_print(line, "\"object\":\"list\",\"data\":[");
    for (int i = 0; i < job->n_requests; i++) {
        float *v = job->vectors + (ptrdiff_t)i * job->width;
        finish(v, n);
        text_print(line, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i ? "," : "", i);
        print_vector(line, v, n, job->row.base64);
        text_print(line, "}");
        tokens += job->prompts[i].n;
    }
    text_print(line, "],\"model\":");
    terminal_print_json(line, str_from(c->model_name));
    text_print(line, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}},\"error\":null}\n", tokens, tokens);
    return line->failed ? fail(err, E_MEMORY, "no memory for a line of output") : 0;
}
