// A few slots that are searched one after the other: a search costs far less than a row of a model.
#include "engine/scored_texts.h"

#include <assert.h>
#include <stdlib.h>

static size_t bytes_of(const struct text_scores *s)
{
    return (size_t)s->n_tokens *
           (sizeof(int32_t) + sizeof *s->logprobs + sizeof *s->ranks + (size_t)s->n_top * sizeof *s->top);
}

static void drop(struct scored_texts *t, struct scored_text *slot)
{
    assert(slot);
    if (!slot->tokens)
        return;
    t->n_bytes -= bytes_of(&slot->scores);
    free(slot->tokens);
    text_scores_free(&slot->scores);
    *slot = (struct scored_text){0};
}

void scored_texts_free(struct scored_texts *t)
{
    for (int i = 0; i < SCORED_TEXTS_KEPT; i++)
        drop(t, &t->kept[i]);
}

// An empty slot, or the one that was not used for longest. used: only one that is not empty.
static struct scored_text *oldest(struct scored_texts *t, bool used)
{
    struct scored_text *best = NULL;
    for (int i = 0; i < SCORED_TEXTS_KEPT; i++) {
        struct scored_text *slot = &t->kept[i];
        if (!slot->tokens && !used)
            return slot;
        if (slot->tokens && (!best || slot->last_use < best->last_use))
            best = slot;
    }
    return best;
}

static void copy_scores(struct text_scores *to, const struct text_scores *from, int i)
{
    to->logprobs[i] = from->logprobs[i];
    to->ranks[i] = from->ranks[i];
    memcpy(to->top + (ptrdiff_t)i * to->n_top, from->top + (ptrdiff_t)i * from->n_top,
           (size_t)to->n_top * sizeof *to->top);
}

void scored_texts_add(struct scored_texts *t, const int32_t *tokens, const struct text_scores *s)
{
    const size_t n = (size_t)s->n_tokens;
    struct scored_text made = {.last_use = ++t->n_uses, .tokens = malloc(n * sizeof *tokens)};
    struct error ignored;
    if (bytes_of(s) > SCORED_TEXTS_BYTES || !made.tokens ||
        text_scores_new(&made.scores, s->n_tokens, s->n_top, &ignored)) {
        free(made.tokens);
        return;
    }
    memcpy(made.tokens, tokens, n * sizeof *tokens);
    while (made.scores.n_scored < s->n_tokens - 1)
        copy_scores(&made.scores, s, ++made.scores.n_scored);
    while (t->n_bytes + bytes_of(s) > SCORED_TEXTS_BYTES)
        drop(t, oldest(t, true));
    struct scored_text *slot = oldest(t, false);
    drop(t, slot);
    *slot = made;
    t->n_bytes += bytes_of(s);
    t->n_added++;
}

static int common_prefix(const struct scored_text *known, const int32_t *tokens, int n)
{
    int i = 0;
    while (i < known->scores.n_tokens && i < n && known->tokens[i] == tokens[i])
        i++;
    return i;
}

void scored_texts_find(struct scored_texts *t, const int32_t *tokens, struct text_scores *s)
{
    struct scored_text *best = NULL;
    int most = s->n_scored + 1;
    for (int i = 0; i < SCORED_TEXTS_KEPT; i++) {
        struct scored_text *known = &t->kept[i];
        int n = known->tokens && known->scores.n_top >= s->n_top ? common_prefix(known, tokens, s->n_tokens) : 0;
        if (n > most) {
            best = known;
            most = n;
        }
    }
    if (!best)
        return;
    best->last_use = ++t->n_uses;
    while (s->n_scored + 1 < most)
        copy_scores(s, &best->scores, ++s->n_scored);
}
