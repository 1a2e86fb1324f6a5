// The machine on a card, inside: what its files share.
//
// A plan is a list of launches in order. Their kernels stand in the machine, made once for each text, and are shared by
// all plans; weights lie on the card once, whoever uses them, and go with the last plan that does. What a step brings
// goes over in one copy to one block of memory whose layout depends on the step's bucket alone: a bucket is a number of
// rows and of outputs, rounded up, and has a recorded graph of its own, made at its first step.
//
// Ownership: the machine owns kernels, weights and the emission buffer; a plan its memory and graphs. Threads: one at a
// time.
#ifndef QUERN_GPU_H
#define QUERN_GPU_H

#include "kernels/machine.h"
#include "kernels/program.h"
#include "kernels/ptx/driver.h"
#include "kernels/ptx/emit_fused.h"
#include "kernels/ptx/emit_matmul.h"
#include "kernels/ptx/emit_ops.h"

struct buffer {
    uint64_t at;
    size_t size;
};

// ---- kernels (gpu_kernels.c)

enum gpu_kind {
    GPU_ELEMENTS,
    GPU_PICK,
    GPU_NORM,
    GPU_ROPE_TABLE,
    GPU_ROPE,
    GPU_KV_WRITE,
    GPU_ATTEND,
    GPU_ROUTE,
    GPU_COMBINE,
    GPU_MATMUL,
    GPU_GROUP,
    GPU_GET_ROWS,
    GPU_REPACK,
    GPU_QUANTIZE,
    GPU_FUSED,
    GPU_TOP,
};
// What an emitter is told, whichever it is.
struct gpu_spec {
    enum gpu_kind kind;
    union {
        uint32_t node; // first in each of them
        struct ptx_elements elements;
        struct ptx_pick pick;
        struct ptx_norm norm;
        struct ptx_rope_table rope_table;
        struct ptx_rope rope;
        struct ptx_kv_write kv_write;
        struct ptx_attend attend;
        struct ptx_route route;
        struct ptx_combine combine;
        struct ptx_matmul matmul;
        struct ptx_group group;
        struct ptx_get_rows get_rows;
        struct ptx_repack repack;
        struct ptx_quantize quantize;
        struct ptx_fused fused;
        struct ptx_top top;
    };
};
// One text of one kernel. Those of equal shapes are one: only the node in the name and in a comment tells for whom it
// was made first.
struct gpu_kernel {
    struct ptx_launch launch;
    struct driver_module *module;
    struct driver_kernel *kernel;
    char *key;  // its text for node 0
    char *text; // as it was loaded
    size_t key_size, text_size;
    int users; // launches of plans, ever
};

struct gpu {
    struct machine machine;
    struct machine_options options;
    struct driver *driver;
    struct gpu_kernel **kernels;
    int n_kernels, cap_kernels;
    struct gpu_weight *weights;
    int n_weights, cap_weights;
    char *emission; // room for one text
};

int gpu_kernel_get(struct gpu *g, const struct gpu_spec *spec, struct gpu_kernel **out, struct error *err);
void gpu_kernels_free(struct gpu *g);

// ---- weights (gpu_weights.c)

// A weight's place on the card. The tile form of matrices is that of emit_matmul.h, one matrix behind another.
struct gpu_weight {
    const void *data; // of the host, which tells weights apart together with the size
    size_t size;      // bytes there
    bool tiles;
    uint64_t at;
    size_t bytes; // on the card
    int plans;    // that use it
};
// Brings a weight over, unless it is there. Each call counts a use, to be given back with gpu_weight_release.
int gpu_weight_tiles(struct gpu *g, const struct weight *w, uint64_t *at, struct error *err);
int gpu_weight_floats(struct gpu *g, const void *data, size_t n, uint64_t *at, struct error *err);
void gpu_weight_release(struct gpu *g, uint64_t at);

// ---- plans (gpu_plan.c, gpu_nodes.c)

// An argument of a launch: an address, or a part of the step's block, which each bucket has elsewhere. ARG_PLACES: what
// the places of rows are told by, the address of ids, or the plan's groups where the kernel's class takes many rows.
enum gpu_arg_kind {
    ARG_ADDRESS,
    ARG_STEP,
    ARG_TOKENS,
    ARG_POSITIONS,
    ARG_TABLES,
    ARG_OUTPUTS,
    ARG_PAGES,
    ARG_N_ROWS,
    ARG_PLACES,
    ARG_LOGITS,
};
struct gpu_arg {
    enum gpu_arg_kind kind;
    uint64_t at;
};
enum { GPU_ARGS = FUSED_PARAMS + 3, GPU_CLASSES = 8 };
struct gpu_launch {
    const struct tensor *node; // for dumps and messages
    enum rows rows;
    bool rows_in_y; // grid[1] is the caller's; else grid[0]
    bool groups;    // makes groups of places for `matmul`, where that takes many rows; else it is passed over
    struct gpu_kernel *kernels[GPU_CLASSES];
    uint32_t classes[GPU_CLASSES]; // rows that a CTA of that kernel takes: 1 where there is but one kernel
    int n_kernels;
    bool dependent;           // a fused kernel that waits for the launches before it by itself
    uint32_t most_ctas;       // a fused kernel goes through its units with so many; 0: it is none
    struct ptx_matmul matmul; // asked for the best class; n_in 0: none
    uint32_t splits;          // attention row by row: of a row's positions; 0: it is not that
    uint32_t tile;            // attention by tiles, passed over where rows are few: rows of a CTA; 0: it is not that
    struct gpu_arg args[GPU_ARGS];
    int n_args;
};

// The launches of a step, in order, and where its values lie. A plan has one list for any number of rows, which makes
// every node, and one for a step of one row, in which few launches make many (gpu_fuse.c). Both use the same memory.
enum gpu_list_kind { GPU_ANY_ROWS, GPU_ONE_ROW, GPU_LISTS };
struct gpu_list {
    size_t *offsets; // [program.n] of values
    struct gpu_launch *launches;
    int n_launches, cap_launches;
    const struct tensor *routed; // whose choice of experts the launches so far have grouped; NULL: none's
};

// The first logits of each row, found behind the launches of a list: for a number of them up to `keep`. Made when a step
// first asks for so many (gpu_top.c).
enum { GPU_TOP_LEVELS = 4, GPU_TOPS = 9 };
struct gpu_top {
    uint32_t keep;
    struct gpu_launch launches[GPU_TOP_LEVELS];
    int n_launches; // 0: not made yet
    uint64_t out;   // struct candidate [outputs][the step's top_k]
};

struct gpu_bucket {
    int rows[ROWS_KINDS];
    uint32_t keep; // of its gpu_top, 0: none
    struct driver_graph *graph;
};

struct plan {
    const struct graph *graph;
    struct gpu *gpu;
    struct compile_options options;
    struct arena arena;
    struct program program;
    struct fusion *fusion; // of a step of one row
    struct tensor **into;  // [program.n] the sum that a product is a part of, made with it; NULL: none
    bool *tapped;          // [program.n]
    uint64_t values;       // their memory on the card
    size_t values_bytes;
    bool padded;     // a step of fewer rows than its bucket has come, and the values were zeroed for it
    uint64_t *owned; // addresses that go with the plan
    int n_owned, cap_owned;
    uint64_t *weights; // uses to give back
    int n_weights, cap_weights;
    struct gpu_list lists[GPU_LISTS];
    struct gpu_list *list;         // that which is being made
    struct gpu_top tops[GPU_TOPS]; // by the logarithm of `keep`
    struct gpu_bucket *buckets;
    int n_buckets, cap_buckets;
    uint64_t groups;           // of places: room for the most, used by one choice of experts after another
    const atomic_bool *cancel; // NULL: nobody watches
    size_t page_bytes;
    struct buffer parts, counters; // of attention, which layers use in turn; owned
    uint64_t block;                // what a step brings, on the card
    uint8_t *pinned;               // the same on the host
    size_t block_bytes;
    int32_t *tables;                 // [max_tokens] the first row of each run of rows of one sequence
    float *seen;                     // rows for taps
    struct node_time *times, *taken; // [program.n] with `profile`: since the last call of it, and then
    int repeats;                     // of each launch, with `profile`
    int max_rows[ROWS_KINDS];
};

int gpu_compile(struct machine *m, const struct graph *g, const struct compile_options *o, struct plan **out,
                struct error *err);
void gpu_plan_free(struct machine *m, struct plan *p);
// The launches of one node, added to the list that is being made.
int gpu_node(struct plan *p, struct tensor *n, struct error *err);
// What launches are made of.
struct gpu_launch *gpu_launch_new(struct plan *p, const struct tensor *n, struct error *err);
void gpu_add_arg(struct gpu_launch *l, enum gpu_arg_kind kind, uint64_t at);
int gpu_add_floats(struct plan *p, struct gpu_launch *l, const void *data, int64_t n, struct error *err);
int gpu_add_tiles(struct plan *p, struct gpu_launch *l, const struct weight *w, struct error *err);
int gpu_add_kernel(struct plan *p, struct gpu_launch *l, struct gpu_spec *spec, uint32_t rows, struct error *err);
int gpu_kv_of(const struct plan *p, const struct tensor *n, int layer, enum kv_part part, int dim, struct ptx_kv *out,
              struct error *err);
struct ptx_elements gpu_elements_of(const struct tensor *n);
// The list of one row (gpu_fuse.c): which launch makes what, and where values lie, which may raise p->values_bytes; then,
// when their memory is there, the launches.
int gpu_fuse(struct plan *p, struct error *err);
int gpu_fuse_launches(struct plan *p, struct error *err);
uint64_t gpu_value(const struct plan *p, const struct tensor *n); // in the list that is being made
uint64_t gpu_value_in(const struct plan *p, enum gpu_list_kind list, const struct tensor *n);
// The list that serves a bucket.
enum gpu_list_kind gpu_list_of(const struct plan *p, const int rows[ROWS_KINDS]);
// Memory that lives as long as the plan: of these bytes, or zeroed; and scratch, which nothing has written.
int gpu_scratch(struct plan *p, size_t size, uint64_t *at, struct error *err);
int gpu_own(struct plan *p, const void *data, size_t size, uint64_t *at, struct error *err);
// The launches that find the top_k first logits of each row; makes them where that is new.
int gpu_top_get(struct plan *p, int top_k, const struct gpu_top **out, struct error *err);
int gpu_run(struct machine *m, struct plan *p, const struct step *s, struct error *err);
int gpu_launch_one(const struct plan *p, const struct gpu_launch *g, const int rows[ROWS_KINDS], struct error *err);
void gpu_watch(struct plan *p, const atomic_bool *cancel);

// ---- times (gpu_profile.c)

int gpu_profile_new(struct plan *p, struct error *err);
int gpu_profile_launch(struct plan *p, const struct gpu_launch *g, const int rows[ROWS_KINDS], struct error *err);
void gpu_profile(struct plan *p, const struct node_time **times, int *n, double *wait_ns);

void gpu_print(const struct plan *p, struct text *out);

// Bytes of a row of k activations in 8 bits: blocks of 256 bytes, 16 sums of 2 bytes and a scale, aligned to 64, as
// they are on the CPU.
static inline size_t gpu_q8_row_bytes(int64_t k)
{
    return align_up((size_t)((k + 255) / 256) * (256 + 2 * 16 + 4), 64);
}

// One more item in an array that grows: NULL when memory is short.
void *gpu_grow(void *items, int n, int *cap, size_t size);

#endif
