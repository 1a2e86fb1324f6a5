// How the list of one row is fused: what the files gpu_fuse*.c share. gpu_fuse.c decides which launch computes which nodes,
// gpu_fuse_build.c describes the kernel of each.
//
// Ownership: the plan's arena owns everything. Threads: one at a time.
#ifndef QUERN_GPU_FUSE_H
#define QUERN_GPU_FUSE_H

#include "kernels/ptx/gpu.h"

struct section {
    struct tensor *nodes[FUSED_NODES]; // in order of the program
    int n_nodes, n_legs;               // legs: products
    int room;                          // nodes of the kernel, those that load values included; at most FUSED_NODES
    int64_t width;                     // columns
    int64_t n_out;                     // columns of a leg, of which experts have one for each place
    uint32_t unit;                     // columns that a CTA computes at a time
    const struct tensor *expert;       // the first leg, if the legs are matrices of experts; NULL: plain matrices
    const struct tensor *combine;      // the sum of its places, which is the value of the leg; NULL: none
};
struct stage {
    int at; // its position
    enum rows rows;
    struct tensor *x; // the products' source, called the stage's row
    int params;       // an upper bound of its kernel's parameters, those of the prologue's nodes not counted
    int64_t parts;    // of the row: those of experts' places, or 1
    bool plain;       // the row is read from memory, because the kernel has no room for a prologue that computes it
    int n_sections, n_routes;
    struct section sections[FUSED_SECTIONS];
    struct tensor *routes[FUSED_ROUTES]; // choices of experts, which the last CTA makes
};

enum how {
    LAUNCHED, // by a launch of its own
    PICKED,   // by no launch: it is the same as its source
    UNUSED,   // by no launch: nothing reads it
    MADE,     // in a section of a stage, or as a choice of experts at its end
    INLINED,  // only in the prologue of each stage that needs it; but for rounded rows that is one
    CHAINED,  // in a chain of nodes that are no products
    CARRIED,  // in the prologue of the first stage that needs it, which stores it for all later readers
};
// How and where a node is computed, and who reads it.
struct fate {
    enum how how;
    struct stage *stage;       // the stage that computes it: MADE, CARRIED
    int made;                  // position from which on its value is in memory
    int memory, last;          // first and last position at which it is read from memory; NEVER and -1: none
    int inlined, last_inlined; // positions of the first and last stage that could compute it in their prologue
    struct stage *first;       // the first of these stages
};
// Nodes whose launches would follow each other, and that one CTA computes in one launch (emit_row.h).
struct chain {
    int n;
    struct tensor *nodes[PTX_ROW_NODES];
};
struct fusion {
    struct plan *p;
    struct stage **stages; // [program.n] the stage whose first product is this node; NULL: none
    struct fate *fates;    // [program.n]
    struct chain **chains; // [program.n] the chain whose first node this is; NULL: none
    int *readers;          // [program.n] how many nodes read each value
};

// The node itself, or the one whose only row OP_ROWS picks.
struct tensor *fuse_root(struct tensor *n);
static inline struct fate *fuse_fate(const struct fusion *u, const struct tensor *n)
{
    return &u->fates[n->id];
}

// Builds the description of a stage's kernel from the fates of nodes. With a launch, its arguments are added as well;
// without one, only the description is built, to find out whether it fits.
struct builder {
    struct fusion *u;
    const struct stage *stage;
    struct gpu_launch *l; // NULL: only the description
    struct ptx_fused *f;
    struct tensor *rows[FUSED_NODES]; // the node that each entry of f->prologue computes or loads
    bool full;                        // there are too many nodes or parameters
};
int fuse_build(struct builder *b, struct error *err);

// Forms the chains, after the fates are settled (gpu_fuse_rows.c): their nodes are CHAINED, and what they compute and read
// is alive from the first to the last. Then makes the launch of one.
int fuse_chains(struct fusion *u, struct error *err);
int fuse_launch_chain(struct fusion *u, const struct chain *c, struct error *err);

#endif
