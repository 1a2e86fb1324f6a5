// A scan of the table finds the slot to take: there are as many as sequences and kept states, a few dozen.
#include "engine/states.h"

#include <assert.h>
#include <stdlib.h>

int states_init(struct states *s, int n, int n_pages, struct error *err)
{
    *s = (struct states){.n = n};
    s->slot = calloc((size_t)MAX(n, 1), sizeof *s->slot);
    s->of_page = malloc((size_t)MAX(n_pages, 1) * sizeof *s->of_page);
    if (!s->slot || !s->of_page) {
        states_free(s);
        return fail(err, E_MEMORY, "no memory for a table of %d states", n);
    }
    for (int i = 0; i < n; i++)
        s->slot[i].page = PAGE_NONE;
    for (int i = 0; i < n_pages; i++)
        s->of_page[i] = STATE_NONE;
    return 0;
}

void states_free(struct states *s)
{
    free(s->slot);
    free(s->of_page);
    *s = (struct states){0};
}

// Whether slot a should be taken rather than slot b.
static bool goes_before(const struct state_slot *a, const struct state_slot *b)
{
    const int level_a = a->page == PAGE_NONE ? -1 : a->level, level_b = b->page == PAGE_NONE ? -1 : b->level;
    return level_a != level_b ? level_a < level_b : a->used < b->used;
}

int32_t states_take(struct states *s)
{
    int32_t best = STATE_NONE;
    for (int32_t i = 0; i < s->n; i++)
        if (!s->slot[i].refs && (best == STATE_NONE || goes_before(&s->slot[i], &s->slot[best])))
            best = i;
    if (best == STATE_NONE)
        return STATE_NONE;
    struct state_slot *slot = &s->slot[best];
    if (slot->page != PAGE_NONE)
        s->of_page[slot->page] = STATE_NONE;
    *slot = (struct state_slot){.refs = 1, .page = PAGE_NONE, .used = ++s->clock};
    return best;
}

void states_hold(struct states *s, int32_t slot)
{
    s->slot[slot].refs++;
    s->slot[slot].used = ++s->clock;
}

void states_release(struct states *s, int32_t slot)
{
    assert(s->slot[slot].refs > 0);
    s->slot[slot].refs--;
}

int32_t states_of(struct states *s, const struct pages *p, int32_t page, bool use)
{
    const int32_t slot = page == PAGE_NONE ? STATE_NONE : s->of_page[page];
    if (slot == STATE_NONE || s->slot[slot].generation != p->page[page].generation)
        return STATE_NONE;
    if (use)
        s->slot[slot].used = ++s->clock;
    return slot;
}

void states_keep(struct states *s, const struct pages *p, int32_t page, int32_t slot, int level)
{
    const int32_t old = s->of_page[page];
    if (states_of(s, p, page, true) != STATE_NONE) {
        s->slot[old].level = MAX(s->slot[old].level, level);
        return;
    }
    if (old != STATE_NONE) // of a text that the page held before
        s->slot[old].page = PAGE_NONE;
    s->of_page[page] = slot;
    s->slot[slot].page = page;
    s->slot[slot].generation = p->page[page].generation;
    s->slot[slot].level = level;
}

// --- marks ---

int32_t state_marks_slot(const struct state_marks *m, int length)
{
    for (int i = m->n - 1; i >= 0; i--)
        if (m->at[i].length == length)
            return m->at[i].slot;
    return STATE_NONE;
}

static void drop_first(struct states *s, struct state_marks *m)
{
    states_release(s, m->at[0].slot);
    memmove(m->at, m->at + 1, (size_t)--m->n * sizeof m->at[0]);
}

void state_marks_add(struct states *s, struct state_marks *m, int length, int32_t slot)
{
    if (m->n == (int)COUNT_OF(m->at))
        drop_first(s, m);
    m->at[m->n].length = length;
    m->at[m->n++].slot = slot;
}

void state_marks_shorten(struct states *s, struct state_marks *m, int length)
{
    while (m->n && m->at[m->n - 1].length > length)
        states_release(s, m->at[--m->n].slot);
}

void state_marks_forget(struct states *s, struct state_marks *m, int length)
{
    while (m->n > 1 && m->at[0].length < length)
        drop_first(s, m);
}

void state_marks_copy(struct states *s, struct state_marks *to, const struct state_marks *from)
{
    *to = *from;
    for (int i = 0; i < to->n; i++)
        states_hold(s, to->at[i].slot);
}
