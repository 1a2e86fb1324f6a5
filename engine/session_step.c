// A step of a session: each row gets a place in a page of its sequence (copying a page that another sequence shares), and
// the state after it a slot where it is needed. The machine's plan runs, and then the rows are settled or, on an error,
// undone, so that the sequences are unchanged.
#include "engine/session_parts.h"

#include <assert.h>

static int copy_page(struct session *s, int32_t to, int32_t from, struct error *err)
{
    const struct machine_vtable *v = s->model->machine->v;
    for (size_t at = 0; at < s->page_bytes; at += COPY_BYTES) {
        size_t n = MIN(s->page_bytes - at, (size_t)COPY_BYTES);
        if (v->get(s->model->machine, s->kv, (size_t)from * s->page_bytes + at, s->bounce, n, err) ||
            v->put(s->model->machine, s->kv, (size_t)to * s->page_bytes + at, s->bounce, n, err))
            return -1;
    }
    return 0;
}

// Whether sequence `seq` may write `token` into a slot of a page that it holds. It may not when the page is shared and
// the slot already holds a different token, nor when another sequence has written to the page in this step.
static bool may_write(const struct session *s, int32_t page, int slot, int32_t token, int seq)
{
    const struct page *it = &s->pages.page[page];
    if (it->step == s->n_steps && it->writer != seq)
        return false;
    return it->refs == 1 || slot == it->n_tokens || s->pages.tokens[(size_t)page * KV_PAGE + (size_t)slot] == token;
}

// Makes position `at` of the sequence writable. Its page is a new one when the position is the first of the page, and a
// private copy (copy-on-write) when other sequences rely on the present one.
static int provide_page(struct session *s, int seq, int at, int32_t token, struct error *err)
{
    int32_t *entry = &table_of(s, seq)[at / KV_PAGE];
    int slot = at % KV_PAGE;
    if (slot && may_write(s, *entry, slot, token, seq))
        return 0;
    // pages_copy sets the parent of a copy, because the page before it may have been released by now
    int32_t page = pages_take(&s->pages, slot || at == 0 ? PAGE_NONE : entry[-1]);
    if (page == PAGE_NONE)
        return fail(err, E_MEMORY, "the KV cache is full: %d pages of %d positions are in use", s->pages.n, KV_PAGE);
    if (slot) {
        if (copy_page(s, page, *entry, err)) {
            pages_release(&s->pages, page);
            return -1;
        }
        pages_copy(&s->pages, page, *entry, slot);
        pages_release(&s->pages, *entry);
    }
    *entry = page;
    return 0;
}

// Appends row i to its sequence and assigns a slot in a page to it.
static int place_row(struct session *s, const struct session_row *row, int i, struct error *err)
{
    struct sequence *q = &s->seqs[row->seq];
    int at = q->length;
    if (provide_page(s, row->seq, at, row->token, err))
        return -1;
    int32_t page = table_of(s, row->seq)[at / KV_PAGE];
    s->pages.page[page].step = s->n_steps;
    s->pages.page[page].writer = row->seq;
    s->fresh[i] = pages_write(&s->pages, page, at % KV_PAGE, row->token);
    s->tokens[i] = q->tokens[at] = row->token;
    s->positions[i] = at;
    s->row_seqs[i] = row->seq;
    q->length++;
    return 0;
}

// ---- State

// How many rows behind row i belong to the same sequence.
static int rows_after(const struct session *s, int i, int n)
{
    int after = 0;
    while (i + after + 1 < n && s->row_seqs[i + after + 1] == s->row_seqs[i])
        after++;
    return after;
}

// Whether row i fills a page.
static bool fills_page(const struct session *s, int i)
{
    return s->positions[i] % KV_PAGE == KV_PAGE - 1;
}

// How long the state at the end of a row that fills a page should be kept, see states_keep.
static int level_of(const struct session *s, int i)
{
    const int length = s->positions[i] + 1;
    return length == s->seqs[s->row_seqs[i]].parts_at ? STATE_LEVEL_FORK : __builtin_ctz((unsigned)length / KV_PAGE);
}

// Says where the state of each sequence comes from, and gives a slot to each row after which it is needed: the last row of
// a sequence and those before it that may be taken back, then rows that fill pages while there are slots, those that are
// kept longest first.
static void place_states(struct session *s, int n)
{
    for (int i = 0, after; i < n; i++) {
        after = rows_after(s, i, n);
        s->state_from[i] = state_marks_slot(&s->seqs[s->row_seqs[i]].marks, s->positions[i]);
        s->state_to[i] = after <= s->o.n_rewind ? states_take(&s->states) : STATE_NONE;
        assert(after > 0 || s->state_to[i] != STATE_NONE);
    }
    for (int level = STATE_LEVEL_FORK; level >= 0; level--)
        for (int i = 0; i < n; i++)
            if (s->state_to[i] == STATE_NONE && fills_page(s, i) && level_of(s, i) == level)
                s->state_to[i] = states_take(&s->states);
}

// Gives the slots back after a failed step.
static void undo_states(struct session *s, int n)
{
    for (int i = 0; i < n; i++)
        if (s->state_to[i] != STATE_NONE)
            states_release(&s->states, s->state_to[i]);
}

// Keeps the states at the ends of pages, and marks those that a sequence may go on from.
static void settle_states(struct session *s, int n)
{
    for (int i = 0; i < n; i++) {
        struct sequence *q = &s->seqs[s->row_seqs[i]];
        const int length = s->positions[i] + 1;
        if (s->state_to[i] == STATE_NONE)
            continue;
        if (fills_page(s, i))
            states_keep(&s->states, &s->pages, table_of(s, s->row_seqs[i])[length / KV_PAGE - 1], s->state_to[i],
                        level_of(s, i));
        if (length + s->o.n_rewind >= q->length)
            state_marks_add(&s->states, &q->marks, length, s->state_to[i]);
        else
            states_release(&s->states, s->state_to[i]);
    }
    for (int i = 0; i < n; i++)
        state_marks_forget(&s->states, &s->seqs[s->row_seqs[i]].marks, s->seqs[s->row_seqs[i]].length - s->o.n_rewind);
}

// ---- Rows

// Removes the n rows that were placed, in reverse order.
static void undo_rows(struct session *s, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        int seq = s->row_seqs[i], at = s->positions[i];
        int32_t page = table_of(s, seq)[at / KV_PAGE];
        if (s->fresh[i])
            pages_unwrite(&s->pages, page, at % KV_PAGE);
        s->seqs[seq].length = at;
        if (at % KV_PAGE == 0)
            pages_release(&s->pages, page);
    }
}

// After a step: seals the pages that its rows have filled, then releases those that have left the window.
static void settle_rows(struct session *s, int n)
{
    for (int i = 0; i < n; i++)
        if (s->positions[i] % KV_PAGE == KV_PAGE - 1)
            session_seal_page(s, s->row_seqs[i], s->positions[i] / KV_PAGE);
    if (has_state(s))
        settle_states(s, n);
    for (int i = 0; i < n; i++)
        session_release_behind_window(s, s->row_seqs[i]);
}

static int check_rows(const struct session *s, const struct session_row *rows, int n, struct error *err)
{
    if (n < 1 || n > s->o.n_batch)
        return fail(err, E_USAGE, "a step of %d rows, limit %d", n, s->o.n_batch);
    int n_outputs = 0;
    for (int i = 0; i < n; i++) {
        if (rows[i].seq < 0 || rows[i].seq >= s->o.n_seqs)
            return fail(err, E_USAGE, "sequence %d of %d", rows[i].seq, s->o.n_seqs);
        if (rows[i].token < 0 || rows[i].token >= s->model->info.n_vocab)
            return fail(err, E_USAGE, "token %d is not in the vocabulary of %d", rows[i].token, s->model->info.n_vocab);
        n_outputs += rows[i].logits;
    }
    if (n_outputs > s->o.n_outputs)
        return fail(err, E_USAGE, "a step with logits of %d rows, limit %d", n_outputs, s->o.n_outputs);
    return 0;
}

static int place_rows(struct session *s, const struct session_row *rows, int n, struct error *err)
{
    s->n_steps++;
    s->n_outputs = 0;
    for (int i = 0; i < n; i++) {
        int length = s->seqs[rows[i].seq].length;
        int failed = length < s->o.n_ctx
                         ? place_row(s, &rows[i], i, err)
                         : fail(err, E_USAGE, "%d tokens, limit %d: the context is full; -c sets its size", length + 1,
                                s->o.n_ctx);
        if (failed) {
            undo_rows(s, i);
            return -1;
        }
        if (rows[i].logits)
            s->outputs[s->n_outputs++] = i;
    }
    return 0;
}

// Whether the i-th row of logits has neither infinities nor NaN, which are the floats with all bits of the exponent
// set. When only the largest logits were asked for, the machine marks a bad row by a negative id of its first
// candidate.
static bool is_finite_row(const struct session *s, int i)
{
    const float *logits = s->logits + (size_t)i * (size_t)s->model->info.n_vocab;
    size_t n_vocab = (size_t)s->model->info.n_vocab;
    uint32_t bad = 0;
    if (s->top_k_last)
        return session_top(s, i)->id >= 0;
    for (size_t j = 0; j < n_vocab; j++) {
        uint32_t bits;
        memcpy(&bits, &logits[j], sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

// Weights and scales that are not finite end up in the logits, so the logits are checked after each step.
static int check_finite(const struct session *s, struct error *err)
{
    for (int i = 0; i < s->n_outputs; i++)
        if (!is_finite_row(s, i))
            return gguf_check_whole(s->model->file, err)
                       ? -1
                       : fail(err, E_MODEL,
                              "non-finite logits at position %d: the weights hold values that are no numbers",
                              s->positions[s->outputs[i]]);
    return 0;
}

// Only steps of a text are long enough to be cancelled while they run; the step of an answer, which drafts make a few
// rows long, is completed.
enum { ROWS_OF_AN_ANSWER = 16 };

int session_step(struct session *s, const struct session_row *rows, int n, struct error *err)
{
    if (check_rows(s, rows, n, err) || place_rows(s, rows, n, err))
        return -1;
    if (has_state(s))
        place_states(s, n);
    struct step step = {
        .n_tokens = n,
        .n_outputs = s->n_outputs,
        .tokens = s->tokens,
        .positions = s->positions,
        .seqs = s->row_seqs,
        .outputs = s->outputs,
        .pages = s->tables,
        .pages_stride = s->stride,
        .kv = s->kv,
        .logits = s->logits,
        .top_k = s->top_k,
        .top = s->top,
        .state_from = s->state_from,
        .state_to = s->state_to,
        .states = s->state_slots,
        .part = s->o.progress ? &s->o.progress->part : NULL,
    };
    s->top_k_last = s->top_k;
    if (s->model->machine->v->watch)
        s->model->machine->v->watch(s->plan, n > ROWS_OF_AN_ANSWER ? s->o.cancel : NULL);
    if (s->model->machine->v->run(s->model->machine, s->plan, &step, err) || check_finite(s, err)) {
        if (has_state(s))
            undo_states(s, n);
        undo_rows(s, n);
        return -1;
    }
    settle_rows(s, n);
    return 0;
}

const float *session_logits(const struct session *s, int i)
{
    assert(i >= 0 && i < s->n_outputs && !s->top_k_last);
    return s->logits + (size_t)i * (size_t)s->model->info.n_vocab;
}

int session_want_top(struct session *s, int k)
{
    s->top_k = k < 0 || k > MIN(TOP_K_MAX, s->model->info.n_vocab) ? 0 : k;
    return s->top_k;
}

const struct candidate *session_top(const struct session *s, int i)
{
    assert(i >= 0 && i < s->n_outputs && s->top_k_last);
    return s->top + (size_t)i * (size_t)s->top_k_last;
}
