// The slots of states: which slot holds the state of which sequence, after which text.
//
// A model with recurrent layers has, beside the KV cache, a state for each sequence (kernels/machine.h). A state can not
// be shortened, so copies of it are kept: a step stores the state after a row in a slot of its own, and a slot that was
// stored is never changed while somebody needs it. Sequences hold slots by reference count. The state at the end of a
// page can be kept for the page; it then serves every text that begins with the same pages, until the slot is taken for
// something else. Of the kept ones, those at the end of rounder numbers of pages live longer, so that a few slots cover
// a long text evenly. Ownership: the table owns its memory; the states belong to the session. Threads: one at a time.
#ifndef QUERN_STATES_H
#define QUERN_STATES_H

#include "engine/pages.h"

enum {
    STATE_NONE = -1,
    STATE_LEVEL_FORK = 32, // a level above all others
    STATE_REWIND_MAX = 8,  // tokens by which a sequence can be shortened without computing some again, at most
};

struct state_slot {
    int refs;            // sequences that hold it
    int32_t page;        // the page at whose end it is the state, or PAGE_NONE
    uint32_t generation; // of that page
    int level;           // among kept slots, those of the lowest level are taken first
    uint64_t used;       // and of these the one that was used least recently
};

struct states {
    int n;
    struct state_slot *slot; // [n]
    int32_t *of_page;        // [pages] the slot kept for each page; it counts while the page's generation is the slot's
    uint64_t clock;
};

int states_init(struct states *s, int n, int n_pages, struct error *err);
void states_free(struct states *s);

// Takes a slot, with one reference: a free one, or one that is kept only for a page. STATE_NONE: all are held.
int32_t states_take(struct states *s);
void states_hold(struct states *s, int32_t slot);
void states_release(struct states *s, int32_t slot);
// Keeps a slot that is held as the state at the end of a page, unless the page has one. level: the number of times that
// 2 divides the number of pages up to this one, or STATE_LEVEL_FORK where texts are known to part.
void states_keep(struct states *s, const struct pages *p, int32_t page, int32_t slot, int level);
// The slot kept for a page, or STATE_NONE. `use` counts as a use.
int32_t states_of(struct states *s, const struct pages *p, int32_t page, bool use);

// Lengths of a sequence at which its state is held, ascending; each has a reference to its slot.
struct state_marks {
    int n;
    struct {
        int length;
        int32_t slot;
    } at[STATE_REWIND_MAX + 1];
};
// The slot of that length, or STATE_NONE.
int32_t state_marks_slot(const struct state_marks *m, int length);
// Adds a mark, the longest, that takes over the caller's reference; the shortest one is given up if there is no room.
void state_marks_add(struct states *s, struct state_marks *m, int length, int32_t slot);
// Removes the marks beyond `length`.
void state_marks_shorten(struct states *s, struct state_marks *m, int length);
// Removes the marks below `length`, except the last one.
void state_marks_forget(struct states *s, struct state_marks *m, int length);
// Makes `to`, which is empty, a copy of `from`.
void state_marks_copy(struct states *s, struct state_marks *to, const struct state_marks *from);

#endif
