// A session: sequences of tokens on a model. Tokens go in, logits come out.
//
// A session holds a pool of KV pages and n_seqs sequences. A step computes rows (tokens) of any of them together; the
// logits of a row do not depend on the other rows of its step. Sequences with equal prefixes share pages, and a text
// that was computed before is not computed again while its pages are still in the pool. Ownership: a session owns its
// pages, its plan and its logits; the model must outlive it. Threads: one at a time.
#ifndef QUERN_SESSION_H
#define QUERN_SESSION_H

#include "engine/memory.h"
#include "engine/model.h"

#include <stdatomic.h>

// How far the computation of a text has come. The session writes it, any thread may read it.
struct session_progress {
    atomic_int total;      // tokens of the text that are to be computed; 0: no text is being computed
    atomic_int done;       // tokens whose step is over
    atomic_int rows, part; // tokens of the step that runs, and how much of STEP_WHOLE of it is done
};

struct session_options {
    int n_seqs;            // number of sequences; 0: 1
    int n_ctx;             // positions of a sequence; 0: those of the model
    int n_batch;           // most rows of a step; 0: N_BATCH_DEFAULT
    int n_outputs;         // most rows of a step that produce logits; 0: n_seqs
    int n_rewind;          // tokens by which a sequence can always be shortened, even with a sliding window; fewer
                           // with recurrent layers, see session_rewind_limit
    enum dtype kv_type[2]; // types of keys and of values
    uint64_t kv_limit;     // bytes of the page pool, raised to hold one whole sequence; 0: room for all
    bool no_reuse;         // compute every prompt from its first token
    bool profile;          // record the time of each node, for session_profile
    // Values of the model's graph that are reported at each step; they must outlive the session. May be NULL.
    const struct taps *taps;
    const atomic_bool *cancel;         // read while a text is computed; true gives E_INTERRUPTED. May be NULL
    struct session_progress *progress; // kept up to date by session_prompt; may be NULL
};
enum { N_BATCH_DEFAULT = 512 };

struct session;

// E_MEMORY when the session does not fit, with the sum and a setting that would fit; no page has been touched by then.
int session_open(struct session **out, const struct model *m, const struct session_options *o, struct error *err);
void session_close(struct session *s); // NULL is fine

int session_n_ctx(const struct session *s);
int session_n_batch(const struct session *s);
int session_n_outputs(const struct session *s);
// The options in effect, in which every 0 has been replaced by the chosen value.
struct session_options session_settings(const struct session *s);
struct memory_need session_memory(const struct session *s);
void session_describe(const struct session *s, struct text *out); // describes the choices of the plan, for -v
// The times of the plan's nodes since the last call, see struct machine_vtable; false when the machine records none.
bool session_profile(struct session *s, const struct node_time **times, int *n, double *wait_ns);

// --- sequences: numbered 0 .. n_seqs - 1, all of them empty at first ---

int session_length(const struct session *s, int seq);
const int32_t *session_tokens(const struct session *s, int seq);
// Shortens a sequence to its first n tokens; the computed state of the rest stays in the pool until its pages are
// taken for something else. False when this is not possible, and the sequence is shorter then: empty when a sliding
// window has already released a page that would be needed; with recurrent layers, whose state can not be taken back by
// more than session_rewind_limit tokens, as long as the last state before n that was kept.
bool session_truncate(struct session *s, int seq, int n);
// Empties the sequence, then sets it to the longest prefix of the n tokens that the pool holds, but at most n - 1
// tokens, because the last one must be computed. Returns the length of that prefix.
int session_begin(struct session *s, int seq, const int32_t *tokens, int n);
// By how many tokens, just computed, a sequence with recurrent layers can always be shortened; INT_MAX without such.
int session_rewind_limit(const struct session *s);
// Makes sequence `to` a copy of sequence `from` that shares all of its pages.
void session_fork(struct session *s, int to, int from);

// The number of pages that no sequence holds, an upper bound of the pages that a sequence takes for n more tokens, and
// the number of pages of the pool.
int session_pages_free(const struct session *s);
int session_pages_wanted(const struct session *s, int seq, int n);
int session_pages_total(const struct session *s);

// --- the computed state of a sequence, page by page, as snapshots store it in a file ---

size_t session_page_bytes(const struct session *s);
void session_kv_types(const struct session *s, enum dtype out[2]); // types of keys and of values
// Whether the sequence still holds all of its pages, that is, no sliding window has released one.
bool session_is_whole(const struct session *s, int seq);
// Copies the keys and values of the i-th page to out: session_page_bytes(s) bytes in the machine's own layout.
int session_page_get(struct session *s, int seq, int i, void *out, struct error *err);
// Appends a page of n tokens (KV_PAGE in all but the last page) with the state that session_page_get gave for the same
// text on the same model and machine. The length of the sequence must be a multiple of KV_PAGE. E_MEMORY when no page
// is free, E_USAGE when the context is full.
int session_page_append(struct session *s, int seq, const int32_t *tokens, int n, const void *state, struct error *err);

// The state of the recurrent layers after the whole sequence: session_state_bytes(s) bytes, 0 in a model without such
// layers. After session_page_append it must be put before the sequence is used.
size_t session_state_bytes(const struct session *s);
int session_state_get(struct session *s, int seq, void *out, struct error *err);
int session_state_put(struct session *s, int seq, const void *state, struct error *err);

// --- steps ---

struct session_row {
    int32_t token;
    int seq;
    bool logits; // whether the logits after this token are wanted
};
// Appends each row to its sequence, in the order of the rows, and computes them together. With recurrent layers the rows of
// a sequence must follow each other. E_USAGE for an invalid
// token, sequence or count, or a full context ("N tokens, limit M"); E_MODEL for non-finite logits. On an error the
// sequences are unchanged.
int session_step(struct session *s, const struct session_row *rows, int n, struct error *err);
// The logits of the i-th row of the last step that wanted them: n_vocab floats, valid until the next step.
const float *session_logits(const struct session *s, int i);
// Selects what later steps return for rows that want logits: with k > 0 only the k largest ones (session_top), which
// saves a GPU the transfer of the rest; with 0, the initial setting, all of them (session_logits). Returns the k in
// effect, which is 0 when k is too large.
int session_want_top(struct session *s, int k);
// The largest logits of the i-th row of the last step that wanted logits, in descending order; as many as
// session_want_top had set for that step.
const struct candidate *session_top(const struct session *s, int i);

// Sets the sequence to the n given tokens (n > 0) in steps of at most n_batch rows; the logits of the last token are
// then available. Tokens whose state is in the pool are not computed again, except the last one; their number goes to
// *n_reused (may be NULL). On an error the sequence is some prefix of the tokens.
int session_prompt(struct session *s, int seq, const int32_t *tokens, int n, int *n_reused, struct error *err);

#endif
