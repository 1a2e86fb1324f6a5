// The one interface that every machine serves: the CPU, the GPU, and the plain-C law.
//
// A machine runs compiled graphs. A plan is immutable and owns its scratch; run allocates nothing and moves nothing but the
// inputs of the step in and the wanted rows out. Ownership: whoever opens, closes; plans and buffers are freed before their
// machine. Threads: one run at a time on a machine; the machine brings its own threads.
#ifndef QUERN_MACHINE_H
#define QUERN_MACHINE_H

#include "kernels/graph.h"
#include "kernels/text.h"
#include "kernels/top_k.h"

#include <stdatomic.h>

struct machine;
struct plan;   // a compiled graph, of the machine that made it
struct buffer; // memory of a machine, zeroed

struct machine_options {
    int n_threads;   // 0: the machine chooses
    const char *isa; // NULL: the best that the CPU has
    bool exact;      // float32 activations throughout
    bool blas;       // OpenBLAS for float GEMMs of many rows (gives up the same-bits promise across chunks)
};

// Values that are shown while a step runs, as soon as they are whole, in the order of computing: row j of the i-th node is
// at rows + j * stride, its width floats, to be read within the call. One thread calls, and the others wait. A plan
// without taps costs nothing for them.
struct taps {
    const struct tensor *const *nodes; // of the graph, live until the plan is freed
    int n;
    void (*see)(void *arg, int i, const float *rows, size_t stride, int n_rows);
    void *arg;
};

struct compile_options {
    int max_tokens;          // rows of a step, at most
    int max_outputs;         // rows that want logits, at most
    enum dtype kv_type[2];   // of keys and of values: F32, F16, BF16, Q8_0, Q4_0
    bool profile;            // keep the time that each node takes; without it nothing is measured
    const struct taps *taps; // NULL: none
};

// What a node has taken since the plan was made, or was asked last, all threads together.
struct node_time {
    const struct tensor *node;
    uint64_t calls; // items of it: a node is cut into some a step
    double ns;
};

// What one run is given. Row t is token tokens[t] at position positions[t] of sequence seqs[t]; its key and value go to
// slot position % KV_PAGE of page pages[seqs[t] * pages_stride + position / KV_PAGE], and it sees all positions of its
// sequence up to its own: those of earlier steps and of this one.
struct step {
    int n_tokens, n_outputs;
    const int32_t *tokens;    // [n_tokens], each within the vocabulary
    const int32_t *positions; // [n_tokens]
    const int32_t *seqs;      // [n_tokens]
    const int32_t *outputs;   // [n_outputs] rows that want logits, ascending
    const int32_t *pages;     // [n_seqs][pages_stride]
    int pages_stride;
    struct buffer *kv; // of machine_kv_bytes(...) bytes
    float *logits;     // [n_outputs][n_vocab], host memory
    // 0: the logits come back whole. Else the first of each row do, top_k to TOP_K_MAX of them and no more than there
    // are, to top[n_outputs][top_k], and what becomes of `logits` is the machine's affair. A row of which a logit is not
    // finite has -1 for its first id.
    int top_k;
    struct candidate *top;
};
enum { TOP_K_MAX = 256 };

struct machine_vtable {
    const char *name;
    void (*close)(struct machine *m);
    int (*alloc)(struct machine *m, size_t size, struct buffer **out, struct error *err);
    void (*free)(struct machine *m, struct buffer *b);
    int (*put)(struct machine *m, struct buffer *b, size_t at, const void *src, size_t n, struct error *err);
    int (*get)(struct machine *m, const struct buffer *b, size_t at, void *dst, size_t n, struct error *err);
    int (*compile)(struct machine *m, const struct graph *g, const struct compile_options *o, struct plan **out,
                   struct error *err);
    int (*run)(struct machine *m, struct plan *p, const struct step *s, struct error *err);
    // From now on a run of the plan ends soon when the flag is true: E_INTERRUPTED, and what it computed is void. A flag
    // of NULL: no more. NULL: runs of this machine are not cancelled.
    void (*watch)(struct plan *p, const atomic_bool *cancel);
    void (*plan_free)(struct machine *m, struct plan *p);
    // Bytes that its own memory has free now. NULL: it is the host's.
    int (*memory)(struct machine *m, size_t *free, struct error *err);
    // Bytes of memory that a plan holds for its values, for the sum that is made before the first token.
    size_t (*plan_bytes)(const struct plan *p);
    // Lines for -v: what was chosen and why; what runs on a generic path. p may be NULL: of the machine alone.
    void (*describe)(const struct machine *m, const struct plan *p, struct text *out);
    // Of a plan made with `profile`: the time of every node, in *times, which is [*n] and belongs to the plan; *wait_ns is what
    // threads waited for each other. Starts again from nothing. NULL: the machine keeps no times.
    void (*profile)(struct plan *p, const struct node_time **times, int *n, double *wait_ns);
    // The whole plan, for `quern dump plan`.
    void (*print)(const struct plan *p, struct text *out);
};

// Every machine's struct begins with this.
struct machine {
    const struct machine_vtable *v;
};

int machine_open_cpu(struct machine **out, const struct machine_options *o, struct error *err);
int machine_open_ref(struct machine **out, const struct machine_options *o, struct error *err);
// A card of NVIDIA's, through its driver. E_GPU where there is none, with the reason.
struct gpu_options {
    const char *library; // of the driver; NULL: libcuda.so.1 as the loader finds it
    int device;          // which card
    const char *cache;   // folder of compiled kernels; NULL: none are kept
    int paper;           // 10 * compute capability of a card on paper, on which nothing runs; 0: a real one
};
int machine_open_gpu(struct machine **out, const struct machine_options *o, const struct gpu_options *options,
                     struct error *err);

// Bytes of one page over all layers, and where a layer's part lies within it (both multiples of 64). A part holds
// n_head_kv x KV_PAGE rows of its dim in its type; their arrangement is the machine's own. SIZE_MAX when a size does not
// fit.
size_t kv_page_bytes(const struct graph *g, const enum dtype kv_type[2]);
size_t kv_layer_offset(const struct graph *g, const enum dtype kv_type[2], int layer, enum kv_part part);
// Whether the graph's KV cache can be kept in these types: E_USAGE with what would help.
int kv_check(const struct graph *g, const enum dtype kv_type[2], struct error *err);
// Whether compile may serve a graph: it is finished, its weights have data, the bounds and types make sense.
int compile_check(const struct graph *g, const struct compile_options *o, struct error *err);
// Whether a step keeps to the graph and the bounds that it was compiled with: E_USAGE with the row at fault. Of the
// page tables, the entries that a row reads or writes; that they lie within the buffer is for step_check_pages.
int step_check(const struct graph *g, const struct compile_options *o, const struct step *s, struct error *err);
// After step_check: whether all those pages lie within n_pages.
int step_check_pages(const struct graph *g, const struct step *s, size_t n_pages, struct error *err);
// On machines whose logits are whole on the host in any case: what the step wants of them.
void step_choose(const struct graph *g, const struct step *s);

#endif
