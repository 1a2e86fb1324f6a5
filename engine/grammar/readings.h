// Where a text stands in a grammar: all the ways of reading it at once.
//
// A reading is a state of the rule that is being read, and the frame to which that rule returns; frames are a stack,
// and equal stacks are one. A set of readings, each set once, says all that the future depends on: it is what a text
// has become. A step takes a set and a byte to the next set. Readings that could not be completed within the depth
// that is left are dropped as soon as they arise, so that every set but the dead one (0) can be completed.
//
// FRAME_UNKNOWN stands for frames that are not looked at: what holds above it holds on any stack. A set that has
// reached the end of the rule above FRAME_UNKNOWN or FRAME_ROOT is `done`.
// Ownership: readings_free. Threads: one at a time.
#ifndef QUERN_READINGS_H
#define QUERN_READINGS_H

#include "engine/grammar/subset.h"

enum { FRAME_UNKNOWN = 0, FRAME_ROOT = 1, READINGS_DEAD = 0 };

struct frame {
    uint32_t back;  // the state to which the rule returns
    uint32_t below; // its frame
    uint32_t depth; // frames below
};

struct reading {
    uint32_t state, frame;
    bool called; // reached by a call of another one of the set: whoever sums up that one has summed up this
};

struct reading_set {
    uint32_t first, n; // in `pool`
    uint32_t *row;     // by class: the next set, UINT32_MAX: not known; NULL until a walk comes by
    uint32_t deepest;  // frames that any reading has and will need
    bool done, has_tokens;
    // of masks.c: the kinds of characters (kinds.h) all of which lead to one set, of those that were asked for
    uint64_t asked, alike;
    uint32_t ahead;                                         // that set
    enum { GOES_ON_UNKNOWN, GOES_ON, GOES_ON_NOT } goes_on; // whether what is alike here is so ahead of it, too
    // and those that are alike in a run of sets, each ahead of the one before it, that begins here
    uint64_t run_alike;
    uint32_t run_length, run_end, run_deepest; // 0: not known; the set behind the run; the most of `deepest`
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
    struct reading *making; // the set that is being made
    uint32_t n_making, cap_making;
    bool making_done;
    size_t bytes;
    bool failed;   // memory was short, or more states were met than are kept
    bool too_many; // somewhere, since the caller last looked, there were more readings than are followed
};
enum { READINGS_MAX = 256 };
static const size_t readings_bytes_max = (size_t)1 << 30;

int readings_init(struct readings *r, const struct net *net, uint32_t n_rules, uint32_t depth_spare, struct error *err);
void readings_free(struct readings *r);

// These return READINGS_DEAD also when they gave up, and say so in the struct.
uint32_t readings_start(struct readings *r, uint32_t rule); // on FRAME_ROOT
uint32_t readings_of(struct readings *r, uint32_t state, uint32_t frame);
uint32_t readings_single(struct readings *r, uint32_t set, uint32_t i);  // the set of its i-th reading alone
uint32_t readings_step(struct readings *r, uint32_t set, uint8_t class); // remembers the step
uint32_t readings_step_once(struct readings *r, uint32_t set, uint8_t class);
uint32_t readings_token(struct readings *r, uint32_t set, uint32_t token); // by an op that waits for tokens
uint32_t readings_union(struct readings *r, uint32_t a, uint32_t b);

#endif
