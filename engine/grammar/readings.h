// All ways of reading a text by a grammar, followed in parallel. A reading is a configuration of a pushdown
// automaton.
//
// A reading consists of a state of the rule being read and a frame, which says where that rule returns. Frames form
// stacks; equal stacks are stored once. A set of readings contains everything that the future depends on, and each
// distinct set is stored once. A step leads from a set and a byte to the next set. Readings that cannot be completed
// within the depth limit are dropped at once, so every set except the dead one (0) can be completed.
//
// FRAME_UNKNOWN stands for a stack that is not examined: what holds above it holds on any stack. A set is `done` if
// it has reached the end of the rule directly above FRAME_UNKNOWN or FRAME_ROOT. Ownership: readings_free. Threads:
// one at a time.
#ifndef QUERN_READINGS_H
#define QUERN_READINGS_H

#include "engine/grammar/subset.h"

enum { FRAME_UNKNOWN = 0, FRAME_ROOT = 1, READINGS_DEAD = 0 };

struct frame {
    uint32_t back;  // state to which the rule returns
    uint32_t below; // frame of that state's rule
    uint32_t depth; // number of frames below
};

struct reading {
    uint32_t state, frame;
    bool called; // reached only through a call by another reading of the set: whatever is computed for that reading
                 // includes this one
};

struct reading_set {
    uint32_t first, n; // its readings in `pool`
    uint32_t *row;     // next set per byte class, UINT32_MAX if not known; NULL until the first step
    uint32_t deepest;  // maximum over its readings of the frames that they have plus those that they will need
    bool done, has_tokens;
    // Written by masks.c. `ahead` is the set that most characters lead to. Of the kinds of characters (kinds.h) that
    // were examined, those are alike of which every character leads to `ahead`.
    uint64_t examined, alike;
    uint32_t ahead;
    enum { GOES_ON_UNKNOWN, GOES_ON, GOES_ON_NOT } goes_on; // whether the set `ahead` has the same alike kinds
    // Written by masks.c. A run is this set and those that follow, each `ahead` of the one before it.
    uint64_t run_alike;   // kinds that are alike in all sets of the run
    uint32_t run_length;  // sets in it; 0: not computed
    uint32_t run_end;     // the set after it
    uint32_t run_deepest; // maximum of `deepest` over it
};

struct readings {
    const struct net *net;
    struct subsets subsets;
    uint32_t depth_max;
    struct frame *frames;
    uint32_t n_frames, cap_frames, *frame_table, frame_table_size;
    struct reading_set *at;
    uint32_t n, cap, *table, table_size;
    struct reading *pool;
    uint32_t n_pool, cap_pool;
    struct reading *making; // the set under construction
    uint32_t n_making, cap_making;
    bool making_done;
    size_t bytes;
    bool failed;   // out of memory, or the states exceed readings_bytes_max
    bool too_many; // some set since the caller last cleared this had more than READINGS_MAX readings
};
enum { READINGS_MAX = 256 };
static const size_t readings_bytes_max = (size_t)1 << 30;

int readings_init(struct readings *r, const struct net *net, uint32_t n_rules, uint32_t depth_spare, struct error *err);
void readings_free(struct readings *r);

// These return READINGS_DEAD also if they give up; then they set `failed` or `too_many`.
uint32_t readings_start(struct readings *r, uint32_t rule); // on FRAME_ROOT
uint32_t readings_of(struct readings *r, uint32_t state, uint32_t frame);
uint32_t readings_single(struct readings *r, uint32_t set, uint32_t i);  // a set of only the i-th reading and its
                                                                         // calls
uint32_t readings_step(struct readings *r, uint32_t set, uint8_t class); // caches the step
uint32_t readings_step_once(struct readings *r, uint32_t set, uint8_t class);
uint32_t readings_token(struct readings *r, uint32_t set, uint32_t token); // by ops that wait for the token
uint32_t readings_union(struct readings *r, uint32_t a, uint32_t b);

#endif
