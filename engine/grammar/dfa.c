// The memory of automata and simple queries about them; dfa_build.c builds them. The transitions are a dense table of
// n states times n_classes byte classes, so that a step is one lookup.
#include "engine/grammar/dfa.h"

#include <stdlib.h>

struct dfa *dfa_new(uint32_t n, uint32_t n_classes)
{
    size_t cells;
    struct dfa *d = size_mul(n, n_classes, &cells) ? NULL : calloc(1, sizeof *d);
    if (!d)
        return NULL;
    *d = (struct dfa){
        .n = n, .n_classes = n_classes, .next = calloc(cells, sizeof *d->next), .accept = calloc(n, sizeof *d->accept)};
    if (d->next && d->accept)
        return d;
    dfa_free(d);
    return NULL;
}

void dfa_free(struct dfa *d)
{
    if (!d)
        return;
    free(d->next);
    free(d->accept);
    free(d);
}

bool dfa_accepts_empty(const struct dfa *d)
{
    return d->accept[d->start];
}

bool dfa_accepts(const struct dfa *d, struct str text)
{
    uint32_t s = d->start;
    for (size_t i = 0; i < text.len; i++)
        s = d->next[(size_t)s * d->n_classes + d->class_of[(uint8_t)text.data[i]]];
    return d->accept[s];
}

bool dfa_is_empty(const struct dfa *d)
{
    return d->start == DFA_DEAD;
}

uint32_t dfa_size(const struct dfa *d)
{
    uint32_t sum = d->n;
    for (uint32_t s = 0; s < d->n; s++) {
        const uint32_t *row = d->next + (size_t)s * d->n_classes;
        for (uint32_t c = 0; c < d->n_classes; c++) {
            bool first = true;
            for (uint32_t k = 0; k < c && first; k++)
                first = row[k] != row[c];
            sum += first && row[c] != DFA_DEAD ? 2 : 0;
        }
    }
    return sum;
}

bool dfa_edges(struct dfa_edges *out, const struct dfa *d, uint32_t state)
{
    const uint32_t *row = d->next + (size_t)state * d->n_classes;
    *out = (struct dfa_edges){.sets = calloc(d->n_classes, sizeof *out->sets),
                              .to = calloc(d->n_classes, sizeof *out->to)};
    if (!out->sets || !out->to) {
        dfa_edges_free(out);
        return false;
    }
    uint32_t edge_of[256];
    for (uint32_t c = 0; c < d->n_classes; c++) {
        uint32_t e = 0;
        while (e < out->n && out->to[e] != row[c])
            e++;
        edge_of[c] = row[c] == DFA_DEAD ? UINT32_MAX : e;
        if (e == out->n && row[c] != DFA_DEAD)
            out->to[out->n++] = row[c];
    }
    for (unsigned b = 0; b < 256; b++)
        if (edge_of[d->class_of[b]] != UINT32_MAX)
            byte_set_add(&out->sets[edge_of[d->class_of[b]]], b);
    return true;
}

void dfa_edges_free(struct dfa_edges *edges)
{
    free(edges->sets);
    free(edges->to);
    *edges = (struct dfa_edges){0};
}
