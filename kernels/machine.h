// The interface of all machines: the CPU, the GPU, and the reference machine in plain C.
//
// A machine compiles a graph to a plan and runs steps with the plan. A plan is compiled once and owns its scratch
// memory. A run allocates nothing, except that a GPU records a graph when a step has a new size. It copies only the
// step's inputs in and the wanted logits out. Ownership: whoever opens a machine closes it, after freeing its plans
// and buffers. Threads: callers run one step at a time on a machine, which may have threads of its own.
#ifndef QUERN_MACHINE_H
#define QUERN_MACHINE_H

#include "kernels/graph.h"
#include "kernels/text.h"
#include "kernels/top_k.h"

#include <stdatomic.h>

struct machine;
struct plan;   // a compiled graph; it belongs to the machine that compiled it
struct buffer; // memory of a machine; zeroed when it is allocated

struct machine_options {
    int n_threads;   // 0: the machine chooses
    const char *isa; // name of an ISA level; NULL: the best that the CPU has
    bool exact;      // activations are float32 everywhere
    bool blas;       // OpenBLAS multiplies many rows of floats; bits then depend on how a prompt is split into steps
};

// Nodes whose values a caller wants to see while a step runs. `see` is called for node nodes[i] when its value is
// computed. Row j of the value begins at rows + j * stride and has as many floats as the node is wide. The rows are
// valid during the call only. One thread calls `see` while the others wait. Plans without taps have no cost from
// them.
struct taps {
    const struct tensor *const *nodes; // [n] nodes of the graph; the array must outlive the plan
    int n;
    void (*see)(void *arg, int i, const float *rows, size_t stride, int n_rows);
    void *arg;
};

struct compile_options {
    int max_tokens;          // the most rows that a step may have
    int max_outputs;         // the most rows of a step whose logits may be wanted
    enum dtype kv_type[2];   // types of cached keys and values: F32, F16, BF16, Q8_0 or Q4_0
    bool profile;            // measure the time that each node takes
    const struct taps *taps; // NULL: none
};

// The time that a node took, summed over all threads, since the plan was compiled or its times were last read.
struct node_time {
    const struct tensor *node;
    uint64_t calls; // work items that were computed; a node has one or more in a step
    double ns;
};

// The inputs and outputs of one run. A step is a batch of n_tokens rows, which may belong to several sequences. Row t
// is token tokens[t] at position positions[t] of sequence seqs[t]. With p = positions[t], its keys and values are
// stored in slot p % KV_PAGE of the cache page pages[seqs[t] * pages_stride + p / KV_PAGE]. The row attends to the
// positions of its sequence up to its own, from earlier steps and from this one; a layer with a window, to the last
// so many of them.
struct step {
    int n_tokens, n_outputs;  // rows; rows whose logits are wanted
    const int32_t *tokens;    // [n_tokens], each within the vocabulary
    const int32_t *positions; // [n_tokens]
    const int32_t *seqs;      // [n_tokens]
    const int32_t *outputs;   // [n_outputs] numbers of the rows whose logits are wanted, ascending
    const int32_t *pages;     // [sequences][pages_stride] page numbers: the page table of each sequence
    int pages_stride;         // entries of a page table
    struct buffer *kv;        // the KV cache: pages of kv_page_bytes(...) bytes each
    float *logits;            // [n_outputs][n_vocab] in host memory; needed for any top_k
    // 0: the run stores all logits in `logits`. Else it stores the top_k greatest logits of each output row in `top`,
    // best first, and the content of `logits` is unspecified. top_k is at most TOP_K_MAX and at most n_vocab. If a
    // logit of a row is not finite, the first id of this row is -1 and its other candidates are not valid.
    int top_k;
    struct candidate *top; // [n_outputs][top_k] in host memory
    // For a graph with attention both ways: a sequence whose rows are in the step is there as a whole, from position 0 on, and
    // its rows follow each other. Nothing is left of it behind the step.
    // For a graph with state: the rows of a sequence follow each other in the step, with consecutive positions. Before
    // the first of them, the state of the sequence is in slot state_from[t] of `states`; -1: it is zeros. After row t it
    // is stored in slot state_to[t], unless that is -1. Different rows store to different slots, and no row
    // to a slot from which a sequence starts in this step.
    const int32_t *state_from, *state_to; // [n_tokens]
    struct buffer *states;                // slots of state_bytes(...) bytes each
    // Unless NULL, machines that compute on the host count here, from 0 up to STEP_WHOLE, how much of the step is done,
    // for another thread to read.
    atomic_int *part;
};
enum { STEP_WHOLE = 1000 };
enum { TOP_K_MAX = 256 };

// The functions of a kind of machine. Functions that return int return 0, or -1 with an error.
struct machine_vtable {
    const char *name; // such as "cpu"
    void (*close)(struct machine *m);
    int (*alloc)(struct machine *m, size_t size, struct buffer **out, struct error *err);
    void (*free)(struct machine *m, struct buffer *b);
    // Copies n bytes from host memory into a buffer, from its byte `at` on; get copies the other way.
    int (*put)(struct machine *m, struct buffer *b, size_t at, const void *src, size_t n, struct error *err);
    int (*get)(struct machine *m, const struct buffer *b, size_t at, void *dst, size_t n, struct error *err);
    int (*compile)(struct machine *m, const struct graph *g, const struct compile_options *o, struct plan **out,
                   struct error *err);
    int (*run)(struct machine *m, struct plan *p, const struct step *s, struct error *err);
    // From now on, runs of the plan end early when *cancel becomes true. The run then fails with E_INTERRUPTED, and
    // nothing that the step computed is valid. If `cancel` is NULL, runs are no longer cancelled. The function is NULL
    // if this machine cannot cancel runs.
    void (*watch)(struct plan *p, const atomic_bool *cancel);
    void (*plan_free)(struct machine *m, struct plan *p);
    // Stores the bytes that are free now in the machine's own memory. The function is NULL if the machine uses the
    // host's memory.
    int (*memory)(struct machine *m, size_t *free, struct error *err);
    // Bytes of memory that a plan holds. session_open adds them to the other memory of a session.
    size_t (*plan_bytes)(const struct plan *p);
    // Appends lines for the option -v. If p is NULL, they say what the machine has chosen and why. Else they describe
    // the plan, such as which weight types have no kernel of their own.
    void (*describe)(const struct machine *m, const struct plan *p, struct text *out);
    // For a plan that was compiled with `profile`: stores the times of the nodes in *times and, in *wait_ns, how long
    // threads waited for each other. *times has *n elements and belongs to the plan. All times then start again from
    // zero. The function is NULL if the machine measures no times.
    void (*profile)(struct plan *p, const struct node_time **times, int *n, double *wait_ns);
    // Appends the whole plan as text, for `quern dump plan`.
    void (*print)(const struct plan *p, struct text *out);
};

// The first member of every machine's own struct.
struct machine {
    const struct machine_vtable *v;
};

int machine_open_cpu(struct machine **out, const struct machine_options *o, struct error *err);
int machine_open_ref(struct machine **out, const struct machine_options *o, struct error *err);
// Options of machine_open_gpu, which opens an NVIDIA GPU through its driver. E_GPU: there is no usable GPU; the message
// gives the reason.
struct gpu_options {
    const char *library; // the driver's library; NULL: libcuda.so.1 as the loader finds it
    int device;          // number of the GPU, from 0
    const char *cache;   // directory where compiled kernels are kept; NULL: they are not kept
    // How long plans may measure which kernels are the fastest on this GPU (all plans of the machine together). What was
    // measured is kept in `cache`. 0: nothing is measured, and what was kept is not used. Below 0: nothing is measured,
    // and what was kept is used.
    double tune_seconds;
    bool tune_again; // what was kept is measured again where a plan needs it
    int paper;       // 0: a real GPU; else an imaginary one of compute capability paper / 10, which runs nothing
    int variant;     // which variant of a kernel that has several, from 0; a kernel with fewer gets its last one
};
int machine_open_gpu(struct machine **out, const struct machine_options *o, const struct gpu_options *options,
                     struct error *err);

// The bytes of one page of the KV cache, and the offset of a layer's keys or values within a page. A page holds
// KV_PAGE positions of all layers. Both results are multiples of 64, or SIZE_MAX if they do not fit a size_t. The
// keys of a layer are n_head_kv x KV_PAGE rows of dim_k elements, its values as many rows of dim_v. Each machine
// arranges the rows within such a part in its own way.
size_t kv_page_bytes(const struct graph *g, const enum dtype kv_type[2]);
size_t kv_layer_offset(const struct graph *g, const enum dtype kv_type[2], int layer, enum kv_part part);
// The bytes of a slot, which holds the state of one sequence: a multiple of 64; 0 if the graph has no state. Each
// machine arranges a node's part of it in its own way.
size_t state_bytes(const struct graph *g);
// Checks that the graph's KV cache can be stored in these types. E_USAGE: it cannot; the message says which types can.
// E_MEMORY: a page is too large.
int kv_check(const struct graph *g, const enum dtype kv_type[2], struct error *err);
// The checks of compile that all machines share: the graph is finished, its weights have data, and the options are
// valid.
int compile_check(const struct graph *g, const struct compile_options *o, struct error *err);
// Checks that a step is within the limits of the graph and of the options it was compiled with. E_USAGE: it is not; the
// message names the row at fault. Page numbers that rows use must not be negative; step_check_pages also compares them
// with the size of the KV cache.
int step_check(const struct graph *g, const struct compile_options *o, const struct step *s, struct error *err);
// Checks, after step_check, that the numbers of all pages that rows use are below n_pages.
int step_check_pages(const struct graph *g, const struct step *s, size_t n_pages, struct error *err);
// Checks, after step_check, that the numbers of all slots that rows use are below n_slots.
int step_check_slots(const struct graph *g, const struct step *s, size_t n_slots, struct error *err);
// Whether row `row` is the first or the last row of its sequence in the step, in a graph with state.
static inline bool step_begins(const struct step *s, int row)
{
    return row == 0 || s->seqs[row - 1] != s->seqs[row];
}
static inline bool step_ends(const struct step *s, int row)
{
    return row + 1 == s->n_tokens || s->seqs[row + 1] != s->seqs[row];
}
// The number of positions of row `row`'s sequence, whose rows follow each other from here on: what the row sees in a graph
// with attention both ways.
static inline int step_end(const struct step *s, int row)
{
    while (!step_ends(s, row))
        row++;
    return s->positions[row] + 1;
}
// For machines that store all logits in host memory: fills `top` from `logits` if top_k is not 0.
void step_choose(const struct graph *g, const struct step *s);

#endif
