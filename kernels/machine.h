// The interface of all machines: the CPU, the GPU, and the reference machine in plain C.
//
// A machine compiles a graph to a plan, and runs steps of the plan. A plan is compiled once and owns its scratch
// memory. A run allocates nothing; it copies only the step's inputs in and the wanted logits out. Ownership: whoever
// opens a machine closes it; its plans and buffers are freed before it. Threads: one run at a time on a machine; the
// machine has its own threads.
#ifndef QUERN_MACHINE_H
#define QUERN_MACHINE_H

#include "kernels/graph.h"
#include "kernels/text.h"
#include "kernels/top_k.h"

#include <stdatomic.h>

struct machine;
struct plan;   // a compiled graph, of the machine that made it
struct buffer; // memory of a machine; zeroed when it is allocated

struct machine_options {
    int n_threads;   // 0: the machine chooses
    const char *isa; // name of an ISA level; NULL: the best that the CPU has
    bool exact;      // activations are float32 everywhere
    bool blas;       // OpenBLAS for float products of many rows; bits then depend on the chunks of a prompt
};

// Values that a caller wants to see while a step runs. `see` is called with each as soon as it is computed: row j of
// node number i begins at rows + j * stride and has the node's width in floats, which are valid during the call. One
// thread calls `see` while the others wait. A plan without taps pays nothing for them.
struct taps {
    const struct tensor *const *nodes; // [n] of the graph; the array must outlive the plan
    int n;
    void (*see)(void *arg, int i, const float *rows, size_t stride, int n_rows);
    void *arg;
};

struct compile_options {
    int max_tokens;          // rows of a step, at most
    int max_outputs;         // rows that want logits, at most
    enum dtype kv_type[2];   // of keys and of values: F32, F16, BF16, Q8_0, Q4_0
    bool profile;            // measure the time that each node takes
    const struct taps *taps; // NULL: none
};

// The time that a node took since the plan was compiled or its times were last taken, summed over all threads.
struct node_time {
    const struct tensor *node;
    uint64_t calls; // items that were computed; a node has one or more in a step
    double ns;
};

// The inputs of one run. Row t is token tokens[t] at position positions[t] of sequence seqs[t]. Its key and value are
// stored in slot position % KV_PAGE of page pages[seqs[t] * pages_stride + position / KV_PAGE]. It sees all positions
// of its sequence up to its own, from earlier steps and from this one.
struct step {
    int n_tokens, n_outputs;
    const int32_t *tokens;    // [n_tokens], each within the vocabulary
    const int32_t *positions; // [n_tokens]
    const int32_t *seqs;      // [n_tokens]
    const int32_t *outputs;   // [n_outputs] rows whose logits are wanted, ascending
    const int32_t *pages;     // [n_seqs][pages_stride], the page tables
    int pages_stride;
    struct buffer *kv; // the KV cache: pages of kv_page_bytes(...) bytes each
    float *logits;     // [n_outputs][n_vocab], host memory
    // 0: `logits` is filled. Else top[n_outputs][top_k] gets the top_k greatest logits of each row in order, and the
    // content of `logits` is unspecified. top_k is at most TOP_K_MAX and n_vocab. In a row that has a logit which is
    // not finite, the first id is -1.
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
    // From now on a run of the plan ends early when *cancel is true: run returns E_INTERRUPTED, and nothing that the
    // step computed is valid. cancel NULL: runs are no longer cancelled. Function NULL: this machine cannot cancel
    // runs.
    void (*watch)(struct plan *p, const atomic_bool *cancel);
    void (*plan_free)(struct machine *m, struct plan *p);
    // Bytes that are free now in the machine's own memory. NULL: it uses the host's memory.
    int (*memory)(struct machine *m, size_t *free, struct error *err);
    // Bytes of memory that a plan holds for its values; session_open adds them up with all other memory.
    size_t (*plan_bytes)(const struct plan *p);
    // Appends lines for -v. p NULL: what the machine has chosen and why. Else: about the plan, such as which weight
    // types have no kernel of their own.
    void (*describe)(const struct machine *m, const struct plan *p, struct text *out);
    // For a plan compiled with `profile`: the times of all nodes and, in *wait_ns, how long threads waited for each
    // other. *times has *n elements and belongs to the plan. All times then start again from zero. NULL: the machine
    // measures none.
    void (*profile)(struct plan *p, const struct node_time **times, int *n, double *wait_ns);
    // Appends the whole plan as text, for `quern dump plan`.
    void (*print)(const struct plan *p, struct text *out);
};

// Every machine's struct begins with this.
struct machine {
    const struct machine_vtable *v;
};

int machine_open_cpu(struct machine **out, const struct machine_options *o, struct error *err);
int machine_open_ref(struct machine **out, const struct machine_options *o, struct error *err);
// Opens an NVIDIA GPU through its driver. E_GPU with the reason where there is none.
struct gpu_options {
    const char *library; // the driver's library; NULL: libcuda.so.1 as the loader finds it
    int device;          // number of the GPU
    const char *cache;   // directory where compiled kernels are kept; NULL: they are not kept
    int paper;           // 10 * compute capability of an imagined GPU, which runs nothing; 0: a real one
};
int machine_open_gpu(struct machine **out, const struct machine_options *o, const struct gpu_options *options,
                     struct error *err);

// Bytes of one page of the KV cache, which holds all layers, and the offset of a layer's keys or values within it.
// Both are multiples of 64; SIZE_MAX: it does not fit a size_t. Such a part holds n_head_kv x KV_PAGE rows of dim_k
// or dim_v elements; each machine arranges them in its own way.
size_t kv_page_bytes(const struct graph *g, const enum dtype kv_type[2]);
size_t kv_layer_offset(const struct graph *g, const enum dtype kv_type[2], int layer, enum kv_part part);
// Whether the graph's KV cache can be stored in these types. E_USAGE with what would help.
int kv_check(const struct graph *g, const enum dtype kv_type[2], struct error *err);
// The checks of compile that all machines share: the graph is finished, its weights have data, bounds and types make
// sense.
int compile_check(const struct graph *g, const struct compile_options *o, struct error *err);
// Whether a step is within the graph's limits and the bounds that it was compiled with. E_USAGE with the row at
// fault. Page numbers that rows use must not be negative; step_check_pages checks them against the buffer.
int step_check(const struct graph *g, const struct compile_options *o, const struct step *s, struct error *err);
// After step_check: whether all pages that rows use are below n_pages.
int step_check_pages(const struct graph *g, const struct step *s, size_t n_pages, struct error *err);
// For machines that compute all logits on the host: fills `top` from `logits` where the step wants only the greatest.
void step_choose(const struct graph *g, const struct step *s);

#endif
