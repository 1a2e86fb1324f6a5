// quern embed: makes vectors of texts, or scores of texts for a question.
#include "cmd/embed/embed.h"
#include "cmd/confine.h"
#include "cmd/terminal/terminal.h"

#include <stdlib.h>

enum pooling embed_pooling(const struct model *m, const struct options *o)
{
    if (o->pooling)
        return (enum pooling)(o->pooling - 1);
    if (o->query)
        return POOLING_RANK;
    if (m->info.pooling.kind != POOLING_NONE)
        return m->info.pooling.kind;
    return m->info.encoder ? POOLING_MEAN : POOLING_LAST;
}

static int choose_norm(const struct options *o)
{
    return o->no_normalize ? EMBED_AS_THEY_ARE : (int)o->embd_normalize;
}

// Tokens that a text may have.
static int most_tokens(const struct model *m, const struct options *o)
{
    const int64_t known = MIN((int64_t)m->info.n_ctx_train, m->graph->position_rows);
    return (int)(o->n_ctx ? MIN(o->n_ctx, m->graph->position_rows) : known);
}

static int compute(struct embedder *e, const struct embed_texts *t, bool by_token, float *vectors, struct error *err)
{
    struct embedder_text *texts = calloc(t->n, sizeof *texts);
    if (!texts)
        return fail(err, E_MEMORY, "no memory for %zu texts", t->n);
    size_t row = 0;
    for (size_t i = 0; i < t->n; i++) {
        texts[i] = (struct embedder_text){t->tokens.ids + t->at[i].first, t->at[i].n,
                                          vectors + row * (size_t)embedder_width(e)};
        row += by_token ? (size_t)t->at[i].n : 1;
    }
    int status = embedder_run(e, texts, t->n, err);
    free(texts);
    return status;
}

static int embed_with(struct embedder *e, const struct loaded *l, const struct embed_texts *t, enum pooling pooling,
                      const struct options *o, struct error *err)
{
    const bool by_token = pooling == POOLING_NONE;
    const size_t rows = by_token ? t->tokens.n : t->n;
    float *vectors = calloc(rows * (size_t)embedder_width(e), sizeof *vectors);
    struct text about = {0};
    if (!vectors)
        return fail(err, E_MEMORY, "no memory for %zu vectors of %d", rows, embedder_width(e));
    if (o->verbose)
        embedder_describe(e, &about);
    load_note_text(&about);
    int status = compute(e, t, by_token, vectors, err);
    const struct embed_result r = {.texts = t,
                                   .vectors = vectors,
                                   .width = embedder_width(e),
                                   .by_token = by_token,
                                   .scores = pooling == POOLING_RANK,
                                   .model = l->name};
    if (!status)
        status = embed_write(&r, o, err);
    free(vectors);
    return status;
}

static int embed_texts(struct loaded *l, struct embed_texts *t, const struct options *o, struct error *err)
{
    struct embedder *e = NULL;
    if (load_model_hidden(l, o, err))
        return -1;
    struct model *m = l->model;
    const enum pooling pooling = embed_pooling(m, o);
    if (pooling == POOLING_RANK && !o->query)
        return fail(err, E_USAGE, "%s: --query TEXT says what the texts are scored for",
                    o->pooling ? "--pooling rank" : "this model is a reranker");
    if (pooling != POOLING_RANK && o->query)
        return fail(err, E_USAGE, "--query: scores are made by --pooling rank");
    if (embed_texts_encode(t, m->tokenizer, m->file, o, most_tokens(m, o), err))
        return -1;
    if (t->n_cut)
        terminal_note("quern: note: %zu of %zu texts were cut to %d tokens", t->n_cut, t->n, most_tokens(m, o));
    if (t->longest > m->n_ctx && model_set_context(m, t->longest, err))
        return -1;
    const struct embedder_options options = {.pooling = pooling,
                                             .normalise = choose_norm(o),
                                             .n_longest = t->longest,
                                             .n_batch = (int)MIN(o->batch, o->ubatch),
                                             .kv_type = {o->kv_key, o->kv_value},
                                             .cancel = &terminal_interrupted};
    if (embedder_open(&e, m, &options, err))
        return -1;
    int status = embed_with(e, l, t, pooling, o, err);
    embedder_close(e);
    return status;
}

int cmd_embed(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    struct loaded l = {0};
    struct embed_texts t = {0};
    if (options_parse(&o, VERB_EMBED, argc, argv, &err))
        return verb_fail(&err);
    confine(&o);
    int status = embed_check_output(&o, &err) || embed_texts_read(&t, &o, &err) ? -1 : 0;
    if (!status)
        status = embed_texts(&l, &t, &o, &err);
    embed_texts_free(&t);
    load_close(&l);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
