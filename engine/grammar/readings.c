// Interns frames and sets of readings in hash tables, and caches the steps of each set in a row of one entry per byte
// class. A new set is closed over returns first and over calls second. A call at the end of a rule reuses the frame
// of the caller, so right recursion does not deepen the stack.
#include "engine/grammar/readings.h"

#include <stdlib.h>

static bool reserve(struct readings *r, void **array, uint32_t n, uint32_t more, uint32_t *cap, size_t size)
{
    if (*cap - n >= more)
        return true;
    size_t want = MAX((size_t)*cap * 2, (size_t)n + more + 64), bytes;
    void *grown = want > UINT32_MAX || size_mul(want, size, &bytes) ? NULL : realloc(*array, bytes);
    if (!grown) {
        r->failed = true;
        return false;
    }
    r->bytes += (want - *cap) * size;
    *array = grown;
    *cap = (uint32_t)want;
    return true;
}

static bool full(struct readings *r)
{
    if (r->bytes + r->subsets.bytes > readings_bytes_max || r->subsets.failed)
        r->failed = true;
    return r->failed;
}

int readings_init(struct readings *r, const struct net *net, uint32_t n_rules, uint32_t depth_spare, struct error *err)
{
    *r = (struct readings){.net = net};
    if (subsets_init(&r->subsets, net, n_rules, err))
        return -1;
    r->depth_max = net->ops[net->start[net->lead]].need + depth_spare;
    // FRAME_UNKNOWN and FRAME_ROOT, which are placeholders, and the dead set
    bool good = reserve(r, (void **)&r->frames, 0, 2, &r->cap_frames, sizeof *r->frames) &&
                reserve(r, (void **)&r->at, 0, 1, &r->cap, sizeof *r->at);
    if (!good) {
        readings_free(r);
        return fail(err, E_MEMORY, "no memory for a grammar");
    }
    r->frames[0] = r->frames[1] = (struct frame){0};
    r->n_frames = 2;
    r->at[0] = (struct reading_set){0};
    r->n = 1;
    return 0;
}

void readings_free(struct readings *r)
{
    subsets_free(&r->subsets);
    for (uint32_t i = 0; i < r->n; i++)
        free(r->at[i].row);
    free(r->frames);
    free(r->frame_table);
    free(r->at);
    free(r->table);
    free(r->pool);
    free(r->making);
    *r = (struct readings){0};
}

// --- frames: equal stacks are stored once ---

static uint32_t frame_hash(uint32_t back, uint32_t below)
{
    uint64_t h = ((uint64_t)back << 32 | below) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32);
}

static bool grow_frame_table(struct readings *r)
{
    if (r->n_frames * 2 < r->frame_table_size)
        return true;
    uint32_t size = r->frame_table_size ? 2 * r->frame_table_size : 64;
    uint32_t *table = calloc(size, sizeof *table);
    if (!table) {
        r->failed = true;
        return false;
    }
    r->bytes += (size - r->frame_table_size) * sizeof *table;
    free(r->frame_table);
    r->frame_table = table;
    r->frame_table_size = size;
    for (uint32_t i = 2; i < r->n_frames; i++) {
        uint32_t slot = frame_hash(r->frames[i].back, r->frames[i].below) & (size - 1);
        while (table[slot])
            slot = (slot + 1) & (size - 1);
        table[slot] = i;
    }
    return true;
}

// Returns the frame that returns to `back` on top of `below`; FRAME_UNKNOWN if memory runs out. If the rule at `back`
// has nothing left to read, the frame of its caller serves (tail call), so right recursion does not deepen the stack.
static uint32_t frame_on(struct readings *r, uint32_t back, uint32_t below)
{
    const struct subset *state = &r->subsets.at[back];
    if (state->n == 1 && r->net->ops[r->subsets.pool[state->first]].kind == NET_END)
        return below;
    if (!grow_frame_table(r) || !reserve(r, (void **)&r->frames, r->n_frames, 1, &r->cap_frames, sizeof *r->frames))
        return FRAME_UNKNOWN;
    uint32_t slot = frame_hash(back, below) & (r->frame_table_size - 1);
    for (; r->frame_table[slot]; slot = (slot + 1) & (r->frame_table_size - 1)) {
        const struct frame *f = &r->frames[r->frame_table[slot]];
        if (f->back == back && f->below == below)
            return r->frame_table[slot];
    }
    r->frames[r->n_frames] = (struct frame){back, below, r->frames[below].depth + 1};
    r->frame_table[slot] = r->n_frames;
    return r->n_frames++;
}

// --- the set under construction ---

static void begin(struct readings *r)
{
    r->n_making = 0;
    r->making_done = false;
}

// Adds a reading unless it is already there, cannot be completed within the depth limit, or exceeds READINGS_MAX.
// Dropping a reading is safe: an answer that follows fewer readings still conforms to the grammar. Sets are small, so
// a linear search suffices.
static void add(struct readings *r, uint32_t state, uint32_t frame, bool called)
{
    if (state == SUBSET_DEAD || r->subsets.at[state].need + r->frames[frame].depth > r->depth_max)
        return;
    for (uint32_t i = 0; i < r->n_making; i++)
        if (r->making[i].state == state && r->making[i].frame == frame)
            return;
    if (r->n_making >= READINGS_MAX) {
        r->too_many = true;
        return;
    }
    if (reserve(r, (void **)&r->making, r->n_making, 1, &r->cap_making, sizeof *r->making))
        r->making[r->n_making++] = (struct reading){state, frame, called};
}

static void add_return(struct readings *r, struct reading at)
{
    if (!r->subsets.at[at.state].ends)
        return;
    if (at.frame == FRAME_UNKNOWN || at.frame == FRAME_ROOT)
        r->making_done = true;
    else
        add(r, r->frames[at.frame].back, r->frames[at.frame].below, at.called);
}

static void add_calls(struct readings *r, struct reading at)
{
    uint32_t n;
    subsets_calls(&r->subsets, at.state, &n);
    for (uint32_t i = 0; i < n && !full(r); i++) {
        struct subset_call call = r->subsets.call[r->subsets.at[at.state].calls + i];
        uint32_t frame = frame_on(r, call.back, at.frame);
        if (!r->failed)
            add(r, subsets_start(&r->subsets, call.rule), frame, true);
    }
}

static int by_place(const void *a, const void *b)
{
    const struct reading *x = a, *y = b;
    return x->state != y->state ? (x->state > y->state) - (x->state < y->state)
                                : (x->frame > y->frame) - (x->frame < y->frame);
}

static uint32_t set_hash(const struct reading *list, uint32_t n, bool done)
{
    uint64_t h = n * 2u + done;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ list[i].state ^ (uint64_t)list[i].called << 40) * 0x9E3779B97F4A7C15u;
        h = (h ^ h >> 29 ^ list[i].frame) * 0xD6E8FEB86659FD93u;
    }
    return (uint32_t)(h ^ h >> 32);
}

static bool same_set(const struct reading *a, const struct reading *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (a[i].state != b[i].state || a[i].frame != b[i].frame || a[i].called != b[i].called)
            return false;
    return true;
}

static bool grow_table(struct readings *r)
{
    if (r->n * 2 < r->table_size)
        return true;
    uint32_t size = r->table_size ? 2 * r->table_size : 128;
    uint32_t *table = calloc(size, sizeof *table);
    if (!table) {
        r->failed = true;
        return false;
    }
    r->bytes += (size - r->table_size) * sizeof *table;
    free(r->table);
    r->table = table;
    r->table_size = size;
    for (uint32_t i = 1; i < r->n; i++) {
        uint32_t slot = set_hash(r->pool + r->at[i].first, r->at[i].n, r->at[i].done) & (size - 1);
        while (table[slot])
            slot = (slot + 1) & (size - 1);
        table[slot] = i;
    }
    return true;
}

static uint32_t add_set(struct readings *r, uint32_t slot)
{
    if (!reserve(r, (void **)&r->at, r->n, 1, &r->cap, sizeof *r->at) ||
        !reserve(r, (void **)&r->pool, r->n_pool, r->n_making + 1, &r->cap_pool, sizeof *r->pool))
        return READINGS_DEAD;
    struct reading_set *set = &r->at[r->n];
    *set = (struct reading_set){.first = r->n_pool, .n = r->n_making, .done = r->making_done};
    for (uint32_t i = 0; i < r->n_making; i++) {
        const struct subset *state = &r->subsets.at[r->making[i].state];
        r->pool[r->n_pool++] = r->making[i];
        set->has_tokens = set->has_tokens || state->has_tokens;
        set->deepest = MAX(set->deepest, r->frames[r->making[i].frame].depth + state->need);
    }
    r->table[slot] = r->n;
    return r->n++;
}

// Adds first everything reached by returns, then everything reached by calls, so that what is reached both ways
// counts as not called. Then looks up the set, or adds it.
static uint32_t finish(struct readings *r)
{
    for (uint32_t i = 0; i < r->n_making; i++)
        add_return(r, r->making[i]);
    for (uint32_t i = 0; i < r->n_making && !full(r); i++) {
        add_calls(r, r->making[i]);
        if (r->making[i].called)
            add_return(r, r->making[i]);
    }
    if (full(r) || (!r->n_making && !r->making_done))
        return READINGS_DEAD;
    // states that read nothing are dropped, as their returns and calls have been added; but states that were not
    // called themselves and have calls must stay, because masks are computed from them
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_making; i++) {
        const struct subset *state = &r->subsets.at[r->making[i].state];
        if (state->has_bytes || state->has_tokens || (!r->making[i].called && state->n_calls))
            r->making[n++] = r->making[i];
    }
    r->n_making = n;
    if (n > 1)
        qsort(r->making, n, sizeof *r->making, by_place);
    if (!grow_table(r))
        return READINGS_DEAD;
    uint32_t slot = set_hash(r->making, n, r->making_done) & (r->table_size - 1);
    for (; r->table[slot]; slot = (slot + 1) & (r->table_size - 1)) {
        const struct reading_set *set = &r->at[r->table[slot]];
        if (set->n == n && set->done == r->making_done && same_set(r->pool + set->first, r->making, n))
            return r->table[slot];
    }
    return add_set(r, slot);
}

// --- sets and steps ---

uint32_t readings_of(struct readings *r, uint32_t state, uint32_t frame)
{
    begin(r);
    add(r, state, frame, false);
    return finish(r);
}

uint32_t readings_single(struct readings *r, uint32_t set, uint32_t i)
{
    struct reading at = r->pool[r->at[set].first + i];
    return readings_of(r, at.state, at.frame);
}

uint32_t readings_start(struct readings *r, uint32_t rule)
{
    return readings_of(r, subsets_start(&r->subsets, rule), FRAME_ROOT);
}

uint32_t readings_step_once(struct readings *r, uint32_t set, uint8_t class)
{
    begin(r);
    for (uint32_t i = 0; i < r->at[set].n; i++) {
        struct reading at = r->pool[r->at[set].first + i];
        add(r, subsets_step(&r->subsets, at.state, class), at.frame, false);
    }
    return r->n_making ? finish(r) : READINGS_DEAD;
}

uint32_t readings_step(struct readings *r, uint32_t set, uint8_t class)
{
    if (r->at[set].row && r->at[set].row[class] != UINT32_MAX)
        return r->at[set].row[class];
    if (!r->at[set].n)
        return READINGS_DEAD;
    if (!r->at[set].row) {
        size_t size = r->net->n_classes * sizeof(uint32_t);
        r->at[set].row = malloc(size);
        if (!r->at[set].row) {
            r->failed = true;
            return READINGS_DEAD;
        }
        memset(r->at[set].row, 0xFF, size);
        r->bytes += size;
    }
    uint32_t next = readings_step_once(r, set, class);
    r->at[set].row[class] = next;
    return next;
}

uint32_t readings_token(struct readings *r, uint32_t set, uint32_t token)
{
    if (!r->at[set].has_tokens)
        return READINGS_DEAD;
    begin(r);
    for (uint32_t i = 0; i < r->at[set].n; i++) {
        struct reading at = r->pool[r->at[set].first + i];
        if (r->subsets.at[at.state].has_tokens)
            add(r, subsets_token(&r->subsets, at.state, token), at.frame, false);
    }
    return r->n_making ? finish(r) : READINGS_DEAD;
}

uint32_t readings_union(struct readings *r, uint32_t a, uint32_t b)
{
    if (a == READINGS_DEAD || b == READINGS_DEAD || a == b)
        return a == READINGS_DEAD ? b : a;
    begin(r);
    const uint32_t sets[] = {a, b};
    for (int k = 0; k < 2; k++) {
        r->making_done = r->making_done || r->at[sets[k]].done;
        for (uint32_t i = 0; i < r->at[sets[k]].n; i++) {
            struct reading at = r->pool[r->at[sets[k]].first + i];
            if (!at.called)
                add(r, at.state, at.frame, false);
        }
    }
    return finish(r);
}
