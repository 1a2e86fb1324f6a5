// What a session consists of; private to session.c and session_step.c.
//
// Ownership and threads: as in session.h.
#ifndef QUERN_SESSION_PARTS_H
#define QUERN_SESSION_PARTS_H

#include "engine/session.h"
#include "engine/states.h"

struct sequence {
    int length;
    int n_released;  // pages at its beginning that are behind every window and were released
    int32_t *tokens; // [n_ctx]
    // Of a model with state: the lengths at which its state is held, ascending, the last of them the length itself.
    struct state_marks marks;
    int parts_at; // known texts that share this beginning go on differently from here on; 0: not known
};

struct session {
    const struct model *model;
    struct session_options o;
    struct plan *plan;
    struct buffer *kv;
    struct pages pages;
    struct buffer *state_slots; // NULL in a model without state
    struct states states;
    size_t page_bytes;
    int window;            // positions that the layer with the widest window sees; 0 when a layer sees all positions
    int stride;            // pages of a full sequence, the row length of `tables`
    struct sequence *seqs; // [n_seqs]
    int32_t *tables;       // [n_seqs][stride] the pages of each sequence, in the order of its text
    uint64_t n_steps;
    struct memory_need need;
    // The last step.
    int32_t *tokens, *positions, *row_seqs; // [n_batch]
    int32_t *outputs;                       // [n_outputs] rows whose logits are wanted
    bool *fresh;                            // [n_batch] whether the row's slot in its page was new, for undo_rows
    int32_t *state_from, *state_to;         // [n_batch] see struct step
    int n_outputs;
    float *logits;            // [n_outputs][n_vocab]
    struct candidate *top;    // [n_outputs][top_k_last], allocated for TOP_K_MAX
    int top_k, top_k_last;    // largest logits per row for later steps, and in the last step; 0: all logits
    struct session_row *rows; // [n_batch] rows of a prompt
    void *bounce;             // bounce buffer of COPY_BYTES, for copies of pages
};
enum { COPY_BYTES = 1 << 18 };

static inline int pages_of(int positions)
{
    return (positions + KV_PAGE - 1) / KV_PAGE;
}

static inline int32_t *table_of(const struct session *s, int seq)
{
    return s->tables + (size_t)seq * (size_t)s->stride;
}

static inline bool has_state(const struct session *s)
{
    return s->model->graph->state_floats > 0;
}

// session.c: whether a sequence of n tokens no longer needs its first n_pages pages.
bool session_is_behind_window(const struct session *s, int n, int n_pages);
// Releases the pages that no later token of the sequence can see, even if it is first shortened by n_rewind tokens.
void session_release_behind_window(struct session *s, int seq);
// Enters the full i-th page of a sequence into the hash table. When a page with the same text is in the table already,
// the sequence uses that page instead and releases its own, unless another sequence holds its own page too.
void session_seal_page(struct session *s, int seq, int i);

#endif
