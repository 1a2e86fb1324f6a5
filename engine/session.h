// Sequences of tokens on a model: tokens in, logits out.
//
// A session holds a pool of KV pages and up to n_seqs sequences. A step runs rows of any of them together; a row's
// logits do not depend on what else is in its step. Equal beginnings of sequences share pages, and a text that has been
// computed before is not computed again while its pages last. Ownership: a session owns its pages, its plan and its
// logits; the model outlives it. Threads: one at a time.
#ifndef QUERN_SESSION_H
#define QUERN_SESSION_H

#include "engine/memory.h"
#include "engine/model.h"

#include <stdatomic.h>

struct session_options {
    int n_seqs;            // sequences at once; 0: 1
    int n_ctx;             // positions of a sequence; 0: the model's
    int n_batch;           // rows of a step; 0: N_BATCH_DEFAULT
    int n_outputs;         // rows of a step that want logits; 0: n_seqs
    int n_rewind;          // tokens by which a sequence can be shortened whatever windows its model has
    enum dtype kv_type[2]; // of keys and of values
    uint64_t kv_limit;     // bytes of the pool of pages, but room for one whole sequence always; 0: for all of them
    bool no_reuse;         // compute every prompt from its first token
    bool profile;          // keep the time of each node, for session_profile
    const struct taps
        *taps; // values to be shown at each step, on the model's graph; they outlive the session. May be NULL
    const atomic_bool *cancel; // looked at while a prompt is computed: E_INTERRUPTED. May be NULL
};
enum { N_BATCH_DEFAULT = 512 };

struct session;

// E_MEMORY with the sum and a setting that would fit, before any page is touched.
int session_open(struct session **out, const struct model *m, const struct session_options *o, struct error *err);
void session_close(struct session *s); // NULL is fine

int session_n_ctx(const struct session *s);
int session_n_batch(const struct session *s);
int session_n_outputs(const struct session *s);
// The options as they hold: what was left at 0 is chosen.
struct session_options session_settings(const struct session *s);
struct memory_need session_memory(const struct session *s);
void session_describe(const struct session *s, struct text *out); // the plan's choices, for -v
// The times of the plan's nodes since the last call, see struct machine_vtable; false when the machine keeps none.
bool session_profile(struct session *s, const struct node_time **times, int *n, double *wait_ns);

// --- sequences: numbers from 0 to n_seqs - 1, all of them there and empty at first ---

int session_length(const struct session *s, int seq);
const int32_t *session_tokens(const struct session *s, int seq);
// Shortens a sequence to its first n tokens; what follows is kept in the pages while they last. False when a window has
// passed what would be needed: the sequence is then empty.
bool session_truncate(struct session *s, int seq, int n);
// Empties the sequence, then makes it as long a beginning of the n tokens as pages hold, but never all of them: the last
// one is to be computed. Returns how long.
int session_begin(struct session *s, int seq, const int32_t *tokens, int n);
// Makes `to` the same text as `from`, sharing all pages.
void session_fork(struct session *s, int to, int from);

// Pages that no sequence holds, and at most how many of them the sequence takes for n more tokens.
int session_pages_free(const struct session *s);
int session_pages_wanted(const struct session *s, int seq, int n);
int session_pages_total(const struct session *s);

// --- the computed state of a sequence, page by page: for keeping it in a file ---

size_t session_page_bytes(const struct session *s);
void session_kv_types(const struct session *s, enum dtype out[2]); // of keys and of values
// Whether the sequence holds all of its pages: no window has passed one.
bool session_is_whole(const struct session *s, int seq);
// The keys and values of the i-th page, session_page_bytes of them, as the machine keeps them.
int session_page_get(struct session *s, int seq, int i, void *out, struct error *err);
// Appends a page of n tokens (KV_PAGE of them in all but the last one) with the state that session_page_get gave for
// this text on this model and machine. The sequence is a number of whole pages. E_MEMORY, E_USAGE when it is full.
int session_page_append(struct session *s, int seq, const int32_t *tokens, int n, const void *state, struct error *err);

// --- steps ---

struct session_row {
    int32_t token;
    int seq;
    bool logits;
};
// Appends each row to its sequence, in their order. E_USAGE for a bad token, seq or count, or a full context: "N
// tokens, limit M"; E_MODEL for non-finite logits. On an error the sequences are as they were.
int session_step(struct session *s, const struct session_row *rows, int n, struct error *err);
// Of the i-th row that wanted logits, in the last step: n_vocab floats, to be used before the next step.
const float *session_logits(const struct session *s, int i);
// From now on rows that want logits get the k first of them alone (session_top), which spares a machine with memory of
// its own the way of the others; 0, as at first: all of them (session_logits). Returns what holds: 0 where k are too many.
int session_want_top(struct session *s, int k);
// Of the i-th row that wanted logits, in the last step: its first logits in order, as many as were wanted then.
const struct candidate *session_top(const struct session *s, int i);

// Makes the sequence the n given tokens (n > 0), in steps of n_batch rows, and leaves the logits of the last one.
// Computes only what no page holds yet, but the last token always; *n_reused (may be NULL) says how many were held.
// On an error the sequence is some beginning of the tokens.
int session_prompt(struct session *s, int seq, const int32_t *tokens, int n, int *n_reused, struct error *err);

#endif
