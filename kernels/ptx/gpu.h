// The machine that runs programs on an NVIDIA GPU: the structs and functions that the files gpu_*.c share.
//
// A plan is a compiled program: ordered lists of kernel launches (struct gpu_launch) and the GPU memory that they
// use. Kernels belong to the machine. Each distinct PTX text is loaded once and shared by all plans. Each weight is
// uploaded once, is shared by all plans that use it, and is freed with the last of them.
//
// The inputs of a step (tokens, positions, pages and so on) are copied in one transfer from pinned memory to one
// block of GPU memory. The layout of that block depends only on the step's bucket: its numbers of rows and of
// outputs, rounded up (gpu_buckets.h). Each bucket has a CUDA graph of its launches, captured at the first step of
// that bucket and replayed at later steps.
//
// Ownership: the machine owns kernels, weights and the buffer into which PTX is emitted; a plan owns its memory and
// its graphs. Threads: one at a time.
#ifndef QUERN_GPU_H
#define QUERN_GPU_H

#include "kernels/card.h"
#include "kernels/machine.h"
#include "kernels/program.h"
#include "kernels/ptx/driver.h"
#include "kernels/ptx/emit_fused.h"
#include "kernels/ptx/emit_matmul.h"
#include "kernels/ptx/emit_ops.h"
#include "kernels/ptx/emit_row.h"
#include "kernels/ptx/emit_whole.h"

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
    GPU_WEIGH,
    GPU_MATMUL,
    GPU_GROUP,
    GPU_GET_ROWS,
    GPU_REPACK,
    GPU_QUANTIZE,
    GPU_HALVE,
    GPU_FUSED,
    GPU_ROW,
    GPU_TOP,
    GPU_SLICE,
    GPU_JOIN,
    GPU_CONV,
    GPU_DELTA,
    GPU_SCAN,
    GPU_WHOLE,
};
// The arguments of one emitter: `kind` says which member of the union is valid.
struct gpu_spec {
    enum gpu_kind kind;
    bool early; // the kernel becomes one of emit_early.h
    union {
        uint32_t node; // the first field of each member
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
        struct ptx_halve halve;
        struct ptx_fused fused;
        struct ptx_row row;
        struct ptx_top top;
        struct ptx_slice slice;
        struct ptx_join join;
        struct ptx_conv conv;
        struct ptx_delta delta;
        struct ptx_scan scan;
        struct {
            uint32_t node;
            const struct ptx_whole *of; // its node is not used
        } whole;
    };
};
// A loaded kernel. Launches whose PTX is equal but for the node number share one kernel. The number appears only in the
// kernel's name and in comments, and is that of the node for which the kernel was made first.
struct gpu_kernel {
    struct ptx_launch launch;
    struct driver_module *module;
    struct driver_kernel *kernel;
    char *key;  // its PTX emitted for node 0, by which equal kernels are found
    char *text; // its PTX as it was loaded
    size_t key_size, text_size;
    int users; // launches and uploads of weights that were made with it, including those of freed plans
};

struct gpu {
    struct machine machine;
    struct machine_options options;
    int variant; // of gpu_options
    struct driver *driver;
    struct gpu_kernel **kernels;
    int n_kernels, cap_kernels;
    struct gpu_weight *weights;
    int n_weights, cap_weights;
    char *emission;          // buffer for the PTX of one kernel
    struct gpu_tuner *tuner; // NULL: kernels are chosen without measuring
};

// The compute capability of the card (75, 80, ...).
uint32_t gpu_target(const struct gpu *g);
int gpu_kernel_get(struct gpu *g, const struct gpu_spec *spec, struct gpu_kernel **out, struct error *err);
// Emits a kernel's PTX, which lies in the machine's buffer until the next call of either function.
int gpu_kernel_text(struct gpu *g, const struct gpu_spec *spec, struct str *out, struct error *err);
void gpu_kernels_free(struct gpu *g);

// ---- choices (gpu_tune.c)

int gpu_tuner_open(struct gpu *g, const struct gpu_options *o, struct error *err);
void gpu_tuner_close(struct gpu *g);
// The class of rows that serves this number of rows: the one that was measured to be the fastest. If none was: that of
// ptx_matmul_rows; or, where the machine's options ask for a variant above 0, PTX_WIDE_ROWS for so many rows and more.
uint32_t gpu_class_of(const struct gpu *g, const struct ptx_matmul *m, uint32_t rows);
// Measures the classes of a product, whose weights are at `tiles`, those of each section if it is a joined product, unless
// that was done before or no time is left for it. A joined product is measured as a whole, and counts as one with the
// outputs of all of its sections.
int gpu_tune(struct gpu *g, const struct ptx_matmul *m, const uint64_t tiles[PTX_SECTIONS], uint32_t rows,
             struct error *err);
// Does this for all products of the plan's list for any number of rows, and adds the kernels that were chosen. All weights
// are on the card by then, so that the memory for measuring takes no room from them.
struct plan;
int gpu_tune_products(struct plan *p, struct error *err);
// Measures a step of one row with each variant of its fused kernels, unless that was done before or no time is left for it,
// and makes the list of one row with the fastest. gpu_fuse_list makes that list anew with the variant of the plan.
int gpu_tune_step(struct plan *p, struct error *err);
// Ends the measurements of a plan: frees their memory, and keeps the choices.
void gpu_tuned(struct gpu *g);

// ---- weights (gpu_weights.c)

// A weight in GPU memory. Matrices are stored as tiles (weight_tile.h), the matrices of experts one after another.
struct gpu_weight {
    const void *data; // host address; a weight is identified by this address and `size`
    size_t size;      // bytes in host memory
    bool tiles;
    uint64_t at;
    size_t bytes; // bytes in GPU memory
    int uses;     // uses that have not been released
};
// Uploads a weight unless it is in GPU memory already. Each call counts one use, which the caller releases with
// gpu_weight_release.
int gpu_weight_tiles(struct gpu *g, const struct weight *w, uint64_t *at, struct error *err);
int gpu_weight_floats(struct gpu *g, const void *data, size_t n, uint64_t *at, struct error *err);
void gpu_weight_release(struct gpu *g, uint64_t at);

// ---- plans (gpu_plan.c, gpu_nodes.c)

// An argument of a launch. ARG_ADDRESS is a fixed address. ARG_STEP is the start of the step's block; TOKENS,
// POSITIONS, TABLES, OUTPUTS, STATE_FROM, STATE_TO and PAGES are arrays in that block, whose offsets depend on the bucket. ARG_N_ROWS is the
// bucket's number of rows of the launch's kind (tokens or outputs). ARG_PLACES is how a product with experts finds its
// rows: the address of the expert ids, or plan.groups if the kernel's class is above 1. ARG_LOGITS is the address
// of the logits in the list that serves the bucket. With attention both ways, ARG_LAST and ARG_LAST_NEAR are arrays of the
// last position that each row sees, of all or through the window, and ARG_ZEROS is an array of zeros.
enum gpu_arg_kind {
    ARG_ADDRESS,
    ARG_STEP,
    ARG_TOKENS,
    ARG_POSITIONS,
    ARG_TABLES,
    ARG_OUTPUTS,
    ARG_STATE_FROM,
    ARG_STATE_TO,
    ARG_PAGES,
    ARG_LAST,
    ARG_ZEROS,
    ARG_LAST_NEAR,
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
    const struct tensor *node; // for dumps and error messages
    enum rows rows;
    bool rows_in_y; // the number of rows sets grid[1]; if false, it multiplies grid[0], unless `groups` is set
    bool groups;    // groups rows by expert for `matmul`; skipped if that product's class is 1
    struct gpu_kernel *kernels[GPU_CLASSES];
    // The class that each kernel serves: rows per CTA of a product, or the size of groups for it; PTX_ATTEND_MANY
    // for the kernel of attention row by row that runs from that many rows on, otherwise 1.
    uint32_t classes[GPU_CLASSES];
    int n_kernels;
    bool early;               // a kernel that waits for the launches ahead of it where it starts before they end
    bool dependent;           // it may start so
    uint32_t most_ctas;       // upper limit of grid[0] of a fused kernel; 0: not a fused kernel
    struct ptx_matmul matmul; // the product from which the class is chosen; n_in is 0 if there is none
    uint32_t splits;          // attention row by row: grid[2] for one row (ptx_attend_lanes); 0: another kernel
    uint32_t tile;            // attention by tiles: rows per CTA, skipped below PTX_ATTEND_MANY rows; 0: another kernel
    struct gpu_arg args[GPU_ARGS];
    int n_args;
};

// The launches of a step in order, and the offsets of its values. A plan has a list for any number of rows, which
// computes every node, and a list for a step of one row, in which a fused launch computes many nodes (gpu_fuse.c);
// the latter is empty in a plan with taps. Both lists use the same memory.
enum gpu_list_kind { GPU_ANY_ROWS, GPU_ONE_ROW, GPU_LISTS };
struct gpu_list {
    size_t *offsets; // [program.n] offset of each value in plan.values, in bytes
    struct gpu_launch *launches;
    int n_launches, cap_launches;
    const struct tensor *routed; // the choice of experts that plan.groups holds at this point of the list; NULL: none
    bool routed_q8;              // whether its groups have the sizes for activations of 8 bits
};

// The variants of a step of one row: those of its fused kernels (enum ptx_fused_variant), and one kernel for the whole
// step, whose parts are the kernels of up to 256 threads, with a ring where they have one.
enum { GPU_WHOLE_STEP = FUSED_VARIANTS, GPU_STEP_VARIANTS };
_Static_assert((int)GPU_STEP_VARIANTS == CARD_VARIANTS, "card.h names the variants");
// The list of one row as one kernel (gpu_whole.c). The plan's arena has what is in host memory.
struct gpu_whole {
    struct gpu_kernel *kernel; // NULL: the list is launched kernel by kernel
    struct ptx_whole *parts;
    int *part_of;       // [n_launches] the part of which each launch is a step; -1: none
    uint64_t tables[2]; // without and with an output
    uint64_t arrivals;  // the counter of the barrier
    uint8_t *host;      // a table in host memory
    size_t bytes;       // of a table
};

// The launches that find the `keep` largest logits of each row; they run after the launches of a list. Made when a step
// first needs this `keep`, a power of two (gpu_top.c).
enum { GPU_TOP_LEVELS = 4, GPU_TOPS = 9 };
struct gpu_top {
    uint32_t keep;
    struct gpu_launch launches[GPU_TOP_LEVELS];
    int n_launches; // 0: not made yet
    uint64_t out;   // address of struct candidate [outputs][the step's top_k]
};

// The captured CUDA graph of all steps with these numbers of rows and this `keep`.
struct gpu_bucket {
    int rows[ROWS_KINDS];
    uint32_t keep; // of its gpu_top; 0: none
    struct driver_graph *graph;
};

struct plan {
    const struct graph *graph;
    struct gpu *gpu;
    struct compile_options options;
    struct arena arena;
    struct program program;
    struct fusion *fusion; // how the list of one row is fused
    struct tensor **into;  // [program.n] the sum that the epilogue of a product computes; NULL: none
    // [program.n] the first of the products that the list for any number of rows computes in one launch with this one; NULL:
    // a launch of its own
    const struct tensor **first;
    bool *tapped;    // [program.n] whether a tap reads the node
    uint64_t values; // GPU memory of all values
    size_t values_bytes;
    bool padded;     // a step had fewer rows than its bucket, and the values were zeroed for it
    uint64_t *owned; // GPU memory that is freed with the plan
    int n_owned, cap_owned;
    uint64_t *weights; // addresses of the weights whose uses the plan releases
    int n_weights, cap_weights;
    struct gpu_list lists[GPU_LISTS];
    struct gpu_list *list;         // the list under construction
    struct gpu_whole whole;        // of the list of one row
    struct gpu_top tops[GPU_TOPS]; // indexed by log2 of `keep`
    struct gpu_bucket *buckets;
    int n_buckets, cap_buckets;
    uint64_t groups; // rows grouped by expert (ptx_emit_group), for the most rows; each choice of experts reuses it
    const atomic_bool *cancel; // flag that ends a step early; NULL: none
    size_t page_bytes;
    uint64_t arrivals;             // counter of CTAs that have ended, for launches that choose experts at their end
    struct buffer parts, counters; // partial results and counters of attention, reused by each layer; owned
    uint64_t block;                // the step's inputs in GPU memory
    uint8_t *pinned;               // the same block in pinned host memory
    size_t block_bytes;
    int32_t *tables; // [max_tokens] the page table of each row; consecutive rows of one sequence share one
    float *seen;     // host copy of one tapped value, sized for the largest; NULL: no taps
    // With `profile`, [program.n]: times since the last gpu_profile, and the times that it returned.
    struct node_time *times, *taken;
    int repeats; // runs of each launch, with `profile`
    int max_rows[ROWS_KINDS];
    bool reads_zeros; // a table is read at row 0 for every token, for which a step has a zero for each
    int window;       // of the layers with a window, in a graph with attention both ways; 0: there are none
    int variant;      // of the list of one row: below GPU_STEP_VARIANTS, or the last one of each kernel
};

int gpu_compile(struct machine *m, const struct graph *g, const struct compile_options *o, struct plan **out,
                struct error *err);
void gpu_plan_free(struct machine *m, struct plan *p);
// Adds the launches of one node to the list under construction.
int gpu_node(struct plan *p, struct tensor *n, struct error *err);
// The parts of a launch: gpu_launch_new appends one to the list, and the gpu_add_* functions add its arguments and
// kernels.
struct gpu_launch *gpu_launch_new(struct plan *p, const struct tensor *n, struct error *err);
void gpu_add_arg(struct gpu_launch *l, enum gpu_arg_kind kind, uint64_t at);
int gpu_add_floats(struct plan *p, struct gpu_launch *l, const void *data, int64_t n, struct error *err);
int gpu_add_tiles(struct plan *p, struct gpu_launch *l, const struct weight *w, struct error *err);
int gpu_add_kernel(struct plan *p, struct gpu_launch *l, struct gpu_spec *spec, uint32_t rows, struct error *err);
int gpu_kv_of(const struct plan *p, const struct tensor *n, int layer, enum kv_part part, int dim, struct ptx_kv *out,
              struct error *err);
struct ptx_elements gpu_elements_of(const struct tensor *n);
struct ptx_route gpu_route_of(const struct tensor *n);
struct ptx_slice gpu_slice_of(const struct tensor *n);
struct ptx_join gpu_join_of(const struct tensor *n);
// Chooses the products that share a launch (gpu_join.c): sets p->first.
void gpu_join(struct plan *p);
// Makes a launch that of a joined product: adds the sections behind the first, which is the product n, to m, and what they
// need to the launch, whose other arguments are there. Does nothing if n has a launch of its own.
int gpu_join_sections(struct plan *p, struct gpu_launch *l, const struct tensor *n, struct ptx_matmul *m,
                      struct error *err);
// The i-th product of the launch that computes the product n first: n, those joined with it, and then NULL.
const struct tensor *gpu_joined(const struct plan *p, const struct tensor *n, int i);
// The addresses of the weights of a product's launch, of each section.
void gpu_tiles_of(const struct gpu_launch *l, uint64_t tiles[PTX_SECTIONS]);
// Whether n, of class ELEMENT, takes some columns of its second source; and the address of the first of them.
bool gpu_takes_part(const struct tensor *n);
uint64_t gpu_second(const struct plan *p, const struct tensor *n);
// Builds the list of one row (gpu_fuse.c) in two steps. gpu_fuse decides which launch computes which nodes and assigns
// the offsets of values, which may raise p->values_bytes. gpu_fuse_launches makes the launches after the memory of the
// values is allocated.
int gpu_fuse(struct plan *p, struct error *err);
// Whether a launch may start before the launches ahead of it have ended: from sm_90 on, with drivers that keep such
// dependencies in a captured graph (CUDA 12.3 or newer).
bool gpu_starts_early(const struct plan *p);
int gpu_fuse_launches(struct plan *p, struct error *err);
int gpu_fuse_list(struct plan *p, struct error *err);
uint64_t gpu_value(const struct plan *p, const struct tensor *n); // address in the list under construction
uint64_t gpu_value_in(const struct plan *p, enum gpu_list_kind list, const struct tensor *n);
// Returns the list that serves a bucket.
enum gpu_list_kind gpu_list_of(const struct plan *p, const int rows[ROWS_KINDS]);
// Allocate GPU memory that lives as long as the plan. gpu_scratch leaves it uninitialised; gpu_own copies `data` to
// it, or zeroes it if `data` is NULL.
int gpu_scratch(struct plan *p, size_t size, uint64_t *at, struct error *err);
int gpu_own(struct plan *p, const void *data, size_t size, uint64_t *at, struct error *err);
// Returns the launches that find the top_k largest logits of each row, and makes them at the first call.
int gpu_top_get(struct plan *p, int top_k, const struct gpu_top **out, struct error *err);
int gpu_run(struct machine *m, struct plan *p, const struct step *s, struct error *err);
// What a launch is in a step with these rows. `grid` is that of the work, before `most_ctas` limits it.
struct gpu_shape {
    uint32_t class;
    const struct gpu_kernel *kernel;
    uint32_t grid[3];
};
// Returns false if the launch is left out of such a step.
bool gpu_shape_of(const struct plan *p, const struct gpu_launch *g, const int rows[ROWS_KINDS], struct gpu_shape *out);
int gpu_launch_one(const struct plan *p, const struct gpu_launch *g, const int rows[ROWS_KINDS], struct error *err);
// The values of the launch's arguments in a step with these rows.
void gpu_args_of(const struct plan *p, const struct gpu_launch *g, const struct gpu_shape *shape,
                 const int rows[ROWS_KINDS], uint64_t args[GPU_ARGS]);
// Launches the list that serves these rows, kernel by kernel or as one kernel. gpu_ready must have been called with the same
// rows since the step's block was allocated, before driver_record.
int gpu_ready(struct plan *p, const int rows[ROWS_KINDS], struct error *err);
int gpu_launch_list(const struct plan *p, const int rows[ROWS_KINDS], struct error *err);
void gpu_watch(struct plan *p, const atomic_bool *cancel);

// ---- a step as one kernel (gpu_whole.c)

// Makes one kernel of the list of one row, if the plan's variant asks for it and it is possible.
int gpu_whole_make(struct plan *p, struct error *err);
// CTAs of the kernel: one for each multiprocessor.
uint32_t gpu_whole_ctas(const struct plan *p);
// Writes the table for steps with these rows, and launches the kernel.
int gpu_whole_put(struct plan *p, const int rows[ROWS_KINDS], struct error *err);
// Whether launch i of the list is a step of the kernel; *begins: it is the first one of a launch of the kernel.
bool gpu_whole_step(const struct plan *p, int i, const int rows[ROWS_KINDS], bool *begins);
int gpu_whole_launch(const struct plan *p, const int rows[ROWS_KINDS], struct error *err);

// ---- times (gpu_profile.c)

int gpu_profile_new(struct plan *p, struct error *err);
int gpu_profile_launch(struct plan *p, const struct gpu_launch *g, const int rows[ROWS_KINDS], struct error *err);
void gpu_profile(struct plan *p, const struct node_time **times, int *n, double *wait_ns);

void gpu_print(const struct plan *p, struct text *out);

// Makes room for one more item after the n items of a growing array. Returns the array, or NULL if memory is exhausted.
void *gpu_grow(void *items, int n, int *cap, size_t size);

#endif
