// A session's memory, its sequences and its prompts. session_open adds up all memory and refuses what does not fit before
// a page is touched.
#include "engine/session_parts.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

// Address space that a thread may map on its own: malloc does so for the first allocation of a thread, and a worker of
// OpenBLAS (--blas) when it starts. When the free address space is read, this may or may not have happened already.
enum { LATE_BYTES = 128 << 20 };

// --- opening ---

// The largest number of pages that a sequence of n_ctx positions holds. With a window these are the pages that it can
// still see, even when shortened by n_rewind, and those that one step adds before older ones are released.
static int pages_needed(const struct session *s, int n_ctx)
{
    int all = pages_of(n_ctx);
    if (!s->window || s->window > n_ctx)
        return all;
    int seen = pages_of(MIN(s->window, INT32_MAX / 4) + s->o.n_rewind) + pages_of(s->o.n_batch) + 1;
    return MIN(all, seen);
}

// The number of pages of the pool: as many as all sequences can hold, or fewer when kv_limit says so, but enough for
// one sequence.
static uint64_t pool_pages(const struct session *s, int n_ctx)
{
    uint64_t one = (uint64_t)pages_needed(s, n_ctx), all = one * (uint64_t)s->o.n_seqs;
    return s->o.kv_limit ? MAX(one, MIN(all, s->o.kv_limit / MAX(s->page_bytes, 1u))) : all;
}

static uint64_t kv_bytes(const struct session *s, int n_ctx)
{
    uint64_t bytes;
    return __builtin_mul_overflow(pool_pages(s, n_ctx), (uint64_t)s->page_bytes, &bytes) ? UINT64_MAX : bytes;
}

// How many slots of state fit into the bytes that are spent on those that are not needed at once.
static int spare_states(const struct session *s)
{
    enum { SPARE_BYTES = 256 << 20 };
    return (int)MIN(SPARE_BYTES / state_bytes(s->model->graph), (size_t)1 << 10);
}

// Slots of state: for each sequence those of the rows that it may be shortened to, twice, because a step stores into
// others than those that it starts from; and some that are kept at the ends of pages.
static int state_slots(const struct session *s, uint64_t n_pages)
{
    enum { KEPT_LEAST = 2, KEPT_MOST = 16 };
    if (!has_state(s))
        return 0;
    const int kept = MIN(MAX(spare_states(s), (int)KEPT_LEAST), (int)KEPT_MOST);
    return 2 * s->o.n_seqs * (s->o.n_rewind + 1) + (int)MIN(n_pages, (uint64_t)kept);
}

static int set_options(struct session *s, const struct session_options *o, struct error *err)
{
    s->o = *o;
    s->o.n_seqs = o->n_seqs ? o->n_seqs : 1;
    s->o.n_ctx = o->n_ctx ? o->n_ctx : s->model->n_ctx;
    s->o.n_batch = o->n_batch ? o->n_batch : N_BATCH_DEFAULT;
    // a step never has more rows than all sequences can hold
    s->o.n_batch = (int)MIN((int64_t)s->o.n_batch, (int64_t)s->o.n_ctx * s->o.n_seqs);
    s->o.n_outputs = MIN(o->n_outputs ? o->n_outputs : s->o.n_seqs, s->o.n_batch);
    if (has_state(s)) // drafts are shorter where states are large
        s->o.n_rewind = MIN(s->o.n_rewind, MIN((int)STATE_REWIND_MAX, MAX(spare_states(s) / 2 - 1, 0)));
    if (s->o.n_seqs < 1 || s->o.n_ctx < 1 || s->o.n_batch < 1 || s->o.n_outputs < 1)
        return fail(err, E_USAGE, "a session of %d sequences of %d positions, %d rows a step: each must be 1 or more",
                    s->o.n_seqs, s->o.n_ctx, s->o.n_batch);
    s->window = s->model->graph->window;
    s->stride = pages_of(s->o.n_ctx);
    s->page_bytes = kv_page_bytes(s->model->graph, s->o.kv_type);
    if (s->o.n_ctx > s->model->graph->position_rows)
        return fail(err, E_USAGE, "-c %d: this model knows %lld positions", s->o.n_ctx,
                    (long long)s->model->graph->position_rows);
    if (pool_pages(s, s->o.n_ctx) > INT32_MAX / KV_PAGE)
        return fail(err, E_MEMORY,
                    "%d sequences of %d positions are more KV pages than can be counted; try a smaller -c", s->o.n_seqs,
                    s->o.n_ctx);
    return 0;
}

// The largest n_ctx, in whole pages, with which the memory needed is at most `room` bytes; 0 when there is none.
static int fitting_n_ctx(const struct session *s, uint64_t room)
{
    uint64_t rest = memory_sum(&s->need) - s->need.kv;
    int low = 0, high = s->stride; // in pages: low fits, high does not
    while (high - low > 1) {
        int mid = low + (high - low) / 2;
        uint64_t bytes = kv_bytes(s, mid * KV_PAGE), sum;
        bool fits = !__builtin_add_overflow(rest, bytes, &sum) && sum <= room;
        *(fits ? &low : &high) = mid;
    }
    return low * KV_PAGE;
}

static void format_need(const struct memory_need *need, char *out, size_t size)
{
    char sum[24], weights[24], kv[24], states[24], plan[24], other[24];
    memory_format(memory_sum(need), sum);
    memory_format(need->weights, weights);
    memory_format(need->kv, kv);
    memory_format(need->states, states);
    memory_format(need->plan, plan);
    memory_format(need->other, other);
    snprintf(out, size, "%s needed (weights %s, KV cache %s, %s%sa step's values %s, tables %s)", sum, weights, kv,
             need->states ? "states " : "", need->states ? strcat(states, ", ") : "", plan, other);
}

// Fails with E_MEMORY and a setting that would fit. `late`: bytes of `room` that may be gone when the user tries again.
static int refuse(const struct session *s, uint64_t room, uint64_t late, const char *limit, struct error *err)
{
    char need[200], have[24];
    format_need(&s->need, need, sizeof need);
    memory_format(room, have);
    int n_ctx = fitting_n_ctx(s, room - MIN(room, late));
    if (n_ctx)
        return fail(err, E_MEMORY, "%s, %s free by %s; -c %d would fit", need, have, limit, n_ctx);
    if (s->o.n_batch > 32)
        return fail(err, E_MEMORY, "%s, %s free by %s; try -ub 32, -ctk q8_0 -ctv q8_0, or a smaller model", need, have,
                    limit);
    return fail(err, E_MEMORY, "%s, %s free by %s; a smaller model is needed", need, have, limit);
}

// Compares the memory needed with the memory that is free, before any page of it is touched.
static int check_memory(const struct session *s, struct error *err)
{
    const struct machine *machine = s->model->machine;
    struct memory_free free_now;
    if (machine->v->memory) { // a machine with memory of its own, which holds the weights and the plan already
        size_t room_there;
        if (machine->v->memory(s->model->machine, &room_there, err))
            return -1;
        uint64_t all = (uint64_t)room_there + s->need.weights + s->need.plan;
        return s->need.kv + s->need.states > room_there ? refuse(s, all, 0, "the card", err) : 0;
    }
    memory_query("", &free_now);
    // weights that were read are in memory already; mapped ones are read when they are first used
    uint64_t taken = s->need.weights_are_mapped ? 0 : s->need.weights, room;
    if (__builtin_add_overflow(free_now.bytes, taken, &room))
        room = UINT64_MAX;
    if (memory_sum(&s->need) > room)
        return refuse(s, room, 0, free_now.limit, err);
    if (free_now.address_space == UINT64_MAX)
        return 0;
    // the plan and the weights are a part of the address space already
    uint64_t mapped = s->need.plan + s->need.weights;
    if (__builtin_add_overflow(free_now.address_space, mapped, &room))
        return 0;
    room -= MIN(room, (uint64_t)LATE_BYTES);
    return memory_sum(&s->need) > room ? refuse(s, room, LATE_BYTES, "RLIMIT_AS", err) : 0;
}

static void add_up(struct session *s)
{
    const struct machine *machine = s->model->machine;
    uint64_t n_seqs = (uint64_t)s->o.n_seqs;
    s->need = (struct memory_need){
        .weights = (uint64_t)s->model->info.weight_bytes,
        .weights_are_mapped = s->model->weights_are_mapped,
        .kv = kv_bytes(s, s->o.n_ctx),
        .states = (uint64_t)state_slots(s, pool_pages(s, s->o.n_ctx)) * state_bytes(s->model->graph),
        .plan = machine->v->plan_bytes ? machine->v->plan_bytes(s->plan) : 0,
        .other = (uint64_t)s->o.n_outputs * (uint64_t)s->model->info.n_vocab * sizeof(float) + COPY_BYTES +
                 (uint64_t)s->o.n_outputs * TOP_K_MAX * sizeof(struct candidate) +
                 n_seqs * (uint64_t)s->o.n_ctx * sizeof(int32_t) + n_seqs * (uint64_t)s->stride * sizeof(int32_t) +
                 pool_pages(s, s->o.n_ctx) * (sizeof(struct page) + KV_PAGE * sizeof(int32_t)),
    };
}

static int alloc_tables(struct session *s, struct error *err)
{
    size_t n_seqs = (size_t)s->o.n_seqs, n_batch = (size_t)s->o.n_batch, n_outputs = (size_t)s->o.n_outputs;
    s->seqs = calloc(n_seqs, sizeof *s->seqs);
    s->tables = calloc(n_seqs * (size_t)s->stride, sizeof *s->tables);
    s->tokens = calloc(n_batch, sizeof *s->tokens);
    s->positions = calloc(n_batch, sizeof *s->positions);
    s->row_seqs = calloc(n_batch, sizeof *s->row_seqs);
    s->fresh = calloc(n_batch, sizeof *s->fresh);
    s->rows = calloc(n_batch, sizeof *s->rows);
    s->state_from = calloc(n_batch, sizeof *s->state_from);
    s->state_to = calloc(n_batch, sizeof *s->state_to);
    s->outputs = calloc(n_outputs, sizeof *s->outputs);
    s->logits = calloc(n_outputs * (size_t)s->model->info.n_vocab, sizeof *s->logits);
    s->top = calloc(n_outputs * TOP_K_MAX, sizeof *s->top);
    s->bounce = malloc(COPY_BYTES);
    bool ok = s->seqs && s->tables && s->tokens && s->positions && s->row_seqs && s->fresh && s->rows && s->outputs &&
              s->logits && s->top && s->bounce && s->state_from && s->state_to;
    for (size_t i = 0; ok && i < n_seqs; i++)
        ok = (s->seqs[i].tokens = calloc((size_t)s->o.n_ctx, sizeof(int32_t)));
    return ok ? 0 : fail(err, E_MEMORY, "no memory for %zu sequences of %d positions", n_seqs, s->o.n_ctx);
}

// Compiles the plan. Where a machine with memory of its own has too little, the error says how much was free before and
// what the weights take of it.
static int compile_plan(struct session *s, struct error *err)
{
    struct machine *machine = s->model->machine;
    const struct machine_vtable *v = machine->v;
    struct compile_options compile = {
        s->o.n_batch, s->o.n_outputs, {s->o.kv_type[0], s->o.kv_type[1]}, s->o.profile, s->o.taps};
    struct error why = {0};
    size_t room = 0;
    if (v->memory && v->memory(machine, &room, err))
        return -1;
    if (!v->compile(machine, s->model->graph, &compile, &s->plan, &why))
        return 0;
    if (!v->memory || why.code != E_MEMORY)
        return fail(err, why.code, "%s", why.text);
    char weights[24], have[24];
    memory_format((uint64_t)s->model->info.weight_bytes, weights);
    memory_format(room, have);
    return fail(err, E_MEMORY, "%s (the card had %s free, the weights take %s)", why.text, have, weights);
}

int session_open(struct session **out, const struct model *m, const struct session_options *o, struct error *err)
{
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return fail(err, E_MEMORY, "no memory for a session");
    s->model = m;
    const struct machine_vtable *v = m->machine->v;
    if (set_options(s, o, err))
        goto failed;
    if (compile_plan(s, err))
        goto failed;
    add_up(s);
    const int n_pages = (int)pool_pages(s, s->o.n_ctx), n_slots = state_slots(s, (uint64_t)n_pages);
    if (check_memory(s, err) || pages_init(&s->pages, n_pages, err) || alloc_tables(s, err) ||
        v->alloc(m->machine, s->need.kv, &s->kv, err))
        goto failed;
    if (n_slots &&
        (states_init(&s->states, n_slots, n_pages, err) || v->alloc(m->machine, s->need.states, &s->state_slots, err)))
        goto failed;
    *out = s;
    return 0;
failed:
    session_close(s);
    return -1;
}

bool session_profile(struct session *s, const struct node_time **times, int *n, double *wait_ns)
{
    const struct machine_vtable *v = s->model->machine->v;
    if (!s->o.profile || !v->profile)
        return false;
    v->profile(s->plan, times, n, wait_ns);
    return true;
}

void session_close(struct session *s)
{
    if (!s)
        return;
    const struct machine_vtable *v = s->model->machine->v;
    if (s->kv)
        v->free(s->model->machine, s->kv);
    if (s->state_slots)
        v->free(s->model->machine, s->state_slots);
    if (s->plan)
        v->plan_free(s->model->machine, s->plan);
    pages_free(&s->pages);
    states_free(&s->states);
    for (int i = 0; s->seqs && i < s->o.n_seqs; i++)
        free(s->seqs[i].tokens);
    void *const parts[] = {s->seqs,    s->tables, s->tokens, s->positions, s->row_seqs,   s->fresh,    s->rows,
                           s->outputs, s->logits, s->top,    s->bounce,    s->state_from, s->state_to, s};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        free(parts[i]);
}

int session_n_ctx(const struct session *s)
{
    return s->o.n_ctx;
}

int session_n_batch(const struct session *s)
{
    return s->o.n_batch;
}

int session_n_outputs(const struct session *s)
{
    return s->o.n_outputs;
}

int session_rewind_limit(const struct session *s)
{
    return has_state(s) ? s->o.n_rewind : INT_MAX;
}

struct session_options session_settings(const struct session *s)
{
    return s->o;
}

struct memory_need session_memory(const struct session *s)
{
    return s->need;
}

// Whether no layer has a place for values, so that their type has no meaning.
static bool keeps_keys_alone(const struct graph *g)
{
    bool alone = g->n_kv > 0;
    for (int i = 0; i < g->n_kv; i++)
        alone = alone && g->kv[i].keys_only;
    return alone;
}

void session_describe(const struct session *s, struct text *out)
{
    char need[200];
    format_need(&s->need, need, sizeof need);
    text_print(out, "memory: %s\n", need);
    text_print(out, "KV cache: %d pages of %d positions, keys %s, ", s->pages.n, KV_PAGE,
               dtype_info[s->o.kv_type[0]].name);
    if (keeps_keys_alone(s->model->graph))
        text_print(out, "of which values are a part\n");
    else
        text_print(out, "values %s\n", dtype_info[s->o.kv_type[1]].name);
    if (s->states.n)
        text_print(out, "states: %d of %zu bytes\n", s->states.n, state_bytes(s->model->graph));
    s->model->machine->v->describe(s->model->machine, s->plan, out);
}

// --- sequences ---

int session_length(const struct session *s, int seq)
{
    return s->seqs[seq].length;
}

const int32_t *session_tokens(const struct session *s, int seq)
{
    return s->seqs[seq].tokens;
}

// Whether a sequence of n tokens no longer needs its first n_pages pages. The next token, at position n, sees positions
// after n - window. The page of the token before it is kept in any case, because the next page is linked to it.
bool session_is_behind_window(const struct session *s, int n, int n_pages)
{
    return n_pages == 0 || (s->window && (int64_t)n_pages * KV_PAGE <= (int64_t)n - MAX(s->window, 2) + 1);
}

// Releases all pages from `first` on. The last page is released first, so that the pool reuses the end of a text before
// its beginning.
static void release_pages(struct session *s, int seq, int first)
{
    struct sequence *q = &s->seqs[seq];
    for (int i = pages_of(q->length) - 1; i >= MAX(first, q->n_released); i--)
        pages_release(&s->pages, table_of(s, seq)[i]);
}

static void clear(struct session *s, int seq)
{
    struct sequence *q = &s->seqs[seq];
    release_pages(s, seq, 0);
    state_marks_shorten(&s->states, &q->marks, 0);
    q->length = q->n_released = q->parts_at = 0;
}

// The greatest length up to n from which a sequence with state can go on: one that is marked, or the end of a page whose
// state was kept; that one is marked now. 0: none but the beginning.
static int last_state(struct session *s, int seq, int n)
{
    struct sequence *q = &s->seqs[seq];
    state_marks_shorten(&s->states, &q->marks, n);
    const int marked = q->marks.n ? q->marks.at[q->marks.n - 1].length : 0;
    for (int i = n / KV_PAGE; i > q->n_released && i * KV_PAGE > marked; i--) {
        const int32_t slot = states_of(&s->states, &s->pages, table_of(s, seq)[i - 1], true);
        if (slot == STATE_NONE)
            continue;
        states_hold(&s->states, slot);
        state_marks_add(&s->states, &q->marks, i * KV_PAGE, slot);
        return i * KV_PAGE;
    }
    return marked;
}

bool session_truncate(struct session *s, int seq, int n)
{
    struct sequence *q = &s->seqs[seq];
    if (n >= q->length)
        return true;
    const int length = has_state(s) ? last_state(s, seq, n) : n;
    if (!session_is_behind_window(s, length, q->n_released)) {
        clear(s, seq);
        return false;
    }
    release_pages(s, seq, pages_of(length));
    q->length = length;
    return length == n;
}

void session_fork(struct session *s, int to, int from)
{
    if (to == from)
        return;
    clear(s, to);
    struct sequence *a = &s->seqs[from], *b = &s->seqs[to];
    for (int i = 0; i < pages_of(a->length); i++) {
        table_of(s, to)[i] = table_of(s, from)[i];
        if (i >= a->n_released)
            pages_hold(&s->pages, table_of(s, from)[i]);
    }
    memcpy(b->tokens, a->tokens, (size_t)a->length * sizeof *a->tokens);
    b->length = a->length;
    b->n_released = a->n_released;
    b->parts_at = a->parts_at;
    state_marks_copy(&s->states, &b->marks, &a->marks);
}

int session_pages_free(const struct session *s)
{
    return s->pages.n_unheld;
}

int session_pages_total(const struct session *s)
{
    return s->pages.n;
}

int session_pages_wanted(const struct session *s, int seq, int n)
{
    int length = s->seqs[seq].length;
    bool shared = length % KV_PAGE && s->pages.page[table_of(s, seq)[length / KV_PAGE]].refs > 1;
    return pages_of(length + n) - pages_of(length) + shared;
}

// Enters a full page into the hash table. When a page with the same text is in the table already, the sequence uses
// that page instead and releases its own, unless another sequence holds its own page too.
void session_seal_page(struct session *s, int seq, int i)
{
    int32_t *entry = &table_of(s, seq)[i], page = *entry;
    int32_t twin = s->pages.page[page].sealed ? PAGE_NONE : pages_seal(&s->pages, page);
    if (twin == PAGE_NONE || s->pages.page[page].refs > 1)
        return;
    pages_hold(&s->pages, twin);
    pages_release(&s->pages, page);
    *entry = twin;
    if (i + 1 < pages_of(s->seqs[seq].length))
        pages_follow(&s->pages, table_of(s, seq)[i + 1], twin);
}

// Releases the pages that no later token of the sequence can see, even if it is first shortened by n_rewind tokens.
void session_release_behind_window(struct session *s, int seq)
{
    struct sequence *q = &s->seqs[seq];
    while (session_is_behind_window(s, q->length - s->o.n_rewind, q->n_released + 1))
        pages_release(&s->pages, table_of(s, seq)[q->n_released++]);
}

// --- the computed state of a sequence ---

size_t session_page_bytes(const struct session *s)
{
    return s->page_bytes;
}

void session_kv_types(const struct session *s, enum dtype out[2])
{
    out[0] = s->o.kv_type[0];
    out[1] = s->o.kv_type[1];
}

size_t session_state_bytes(const struct session *s)
{
    return state_bytes(s->model->graph);
}

int session_state_get(struct session *s, int seq, void *out, struct error *err)
{
    const struct machine *m = s->model->machine;
    const struct sequence *q = &s->seqs[seq];
    const size_t size = state_bytes(s->model->graph);
    const int32_t slot = state_marks_slot(&q->marks, q->length);
    assert(slot != STATE_NONE);
    return m->v->get(s->model->machine, s->state_slots, (size_t)slot * size, out, size, err);
}

int session_state_put(struct session *s, int seq, const void *state, struct error *err)
{
    const struct machine *m = s->model->machine;
    struct sequence *q = &s->seqs[seq];
    const size_t size = state_bytes(s->model->graph);
    const int32_t slot = states_take(&s->states);
    assert(slot != STATE_NONE && q->length > 0 && state_marks_slot(&q->marks, q->length) == STATE_NONE);
    if (m->v->put(s->model->machine, s->state_slots, (size_t)slot * size, state, size, err)) {
        states_release(&s->states, slot);
        return -1;
    }
    state_marks_add(&s->states, &q->marks, q->length, slot);
    return 0;
}

bool session_is_whole(const struct session *s, int seq)
{
    return s->seqs[seq].n_released == 0;
}

int session_page_get(struct session *s, int seq, int i, void *out, struct error *err)
{
    assert(i >= s->seqs[seq].n_released && i < pages_of(s->seqs[seq].length));
    size_t at = (size_t)table_of(s, seq)[i] * s->page_bytes;
    return s->model->machine->v->get(s->model->machine, s->kv, at, out, s->page_bytes, err);
}

int session_page_append(struct session *s, int seq, const int32_t *tokens, int n, const void *state, struct error *err)
{
    struct sequence *q = &s->seqs[seq];
    int i = q->length / KV_PAGE;
    assert(q->length % KV_PAGE == 0 && n > 0 && n <= KV_PAGE);
    if (n > s->o.n_ctx - q->length)
        return fail(err, E_USAGE, "%d tokens, limit %d: the context is full", q->length + n, s->o.n_ctx);
    int32_t *entry = &table_of(s, seq)[i], page = pages_take(&s->pages, i ? entry[-1] : PAGE_NONE);
    if (page == PAGE_NONE)
        return fail(err, E_MEMORY, "the KV cache is full: %d pages of %d positions are in use", s->pages.n, KV_PAGE);
    const struct machine *m = s->model->machine;
    if (m->v->put(s->model->machine, s->kv, (size_t)page * s->page_bytes, state, s->page_bytes, err)) {
        pages_release(&s->pages, page);
        return -1;
    }
    for (int slot = 0; slot < n; slot++)
        pages_write(&s->pages, page, slot, tokens[slot]);
    memcpy(q->tokens + q->length, tokens, (size_t)n * sizeof *tokens);
    *entry = page;
    q->length += n;
    if (n == KV_PAGE)
        session_seal_page(s, seq, i);
    session_release_behind_window(s, seq);
    return 0;
}

// --- prompts ---

static int common_prefix(const int32_t *a, const int32_t *b, int n)
{
    int i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

// Writes the pages that hold the longest known prefix of the text, at most `limit` tokens, to `table` and adds a
// reference to each. Returns the number of tokens.
static int hold_pages(struct session *s, const int32_t *tokens, int limit, int32_t *table)
{
    int n = 0, n_pages = 0;
    int32_t page = PAGE_NONE;
    for (; limit - n >= KV_PAGE; n += KV_PAGE) {
        int32_t next = pages_find(&s->pages, page, tokens + n);
        if (next == PAGE_NONE)
            break;
        table[n_pages++] = page = next;
    }
    int common = 0;
    if (limit > n)
        page = pages_find_partial(&s->pages, page, tokens + n, MIN(limit - n, KV_PAGE), &common);
    if (common)
        table[n_pages++] = page;
    for (int i = 0; i < n_pages; i++)
        pages_hold(&s->pages, table[i]);
    return n + common;
}

// The same for a model with state: the pages up to the last one whose state was kept. Pages that are known beyond it show
// where texts part, and the next step that comes there keeps the state.
static int hold_pages_with_state(struct session *s, struct sequence *q, const int32_t *tokens, int limit,
                                 int32_t *table)
{
    int known = 0, n_pages = 0;
    for (int32_t page = PAGE_NONE; limit - known * KV_PAGE >= KV_PAGE; known++) {
        page = pages_find(&s->pages, page, tokens + known * KV_PAGE);
        if (page == PAGE_NONE)
            break;
        table[known] = page;
        if (states_of(&s->states, &s->pages, page, false) != STATE_NONE)
            n_pages = known + 1;
    }
    q->parts_at = known > n_pages ? known * KV_PAGE : 0;
    if (!n_pages)
        return 0;
    const int32_t slot = states_of(&s->states, &s->pages, table[n_pages - 1], true);
    states_hold(&s->states, slot);
    state_marks_add(&s->states, &q->marks, n_pages * KV_PAGE, slot);
    for (int i = 0; i < n_pages; i++)
        pages_hold(&s->pages, table[i]);
    return n_pages * KV_PAGE;
}

// The length of the longest prefix of the text, in whole pages, whose state was kept; at most `limit`.
static int kept_prefix(struct session *s, const int32_t *tokens, int limit)
{
    int best = 0;
    int32_t page = PAGE_NONE;
    for (int n = 0; limit - n >= KV_PAGE; n += KV_PAGE) {
        page = pages_find(&s->pages, page, tokens + n);
        if (page == PAGE_NONE)
            break;
        if (states_of(&s->states, &s->pages, page, false) != STATE_NONE)
            best = n + KV_PAGE;
    }
    return best;
}

// Sets the sequence to the longest prefix of the text whose state is known, at most `limit` tokens. Returns its length.
static int reuse(struct session *s, int seq, const int32_t *tokens, int limit)
{
    struct sequence *q = &s->seqs[seq];
    int own = common_prefix(q->tokens, tokens, MIN(q->length, limit));
    if (s->o.no_reuse)
        own = limit = 0;
    if (!session_truncate(s, seq, own))
        own = q->length;
    // with a window the pages of the beginning may be gone, so the pool is searched only when the sequence shares
    // nothing
    if (own && (s->window || (has_state(s) && own >= kept_prefix(s, tokens, limit))))
        return own;
    clear(s, seq); // hold_pages finds its pages again, by their text
    q->length = has_state(s) ? hold_pages_with_state(s, q, tokens, limit, table_of(s, seq))
                             : hold_pages(s, tokens, limit, table_of(s, seq));
    memcpy(q->tokens, tokens, (size_t)q->length * sizeof *tokens);
    session_release_behind_window(s, seq);
    return q->length;
}

int session_begin(struct session *s, int seq, const int32_t *tokens, int n)
{
    clear(s, seq);
    return reuse(s, seq, tokens, MIN(n, s->o.n_ctx) - 1);
}

// Tells the progress, if somebody wants it, that `done` of `total` tokens are computed and a step of `rows` begins.
static void tell_progress(struct session_progress *p, int total, int done, int rows)
{
    if (!p)
        return;
    atomic_store(&p->part, 0);
    atomic_store(&p->rows, rows);
    atomic_store(&p->done, done);
    atomic_store(&p->total, total);
}

int session_prompt(struct session *s, int seq, const int32_t *tokens, int n, int *n_reused, struct error *err)
{
    if (n < 1)
        return fail(err, E_USAGE, "an empty prompt");
    if (n > s->o.n_ctx)
        return fail(err, E_USAGE, "the prompt has %d tokens, limit %d; -c sets it", n, s->o.n_ctx);
    int at = reuse(s, seq, tokens, n - 1);
    if (n_reused)
        *n_reused = at;
    const int first = at;
    int status = 0;
    while (at < n && !status) {
        int n_rows = MIN(n - at, s->o.n_batch);
        tell_progress(s->o.progress, n - first, at - first, n_rows);
        for (int i = 0; i < n_rows; i++, at++)
            s->rows[i] = (struct session_row){tokens[at], seq, at == n - 1};
        if (s->o.cancel && atomic_load_explicit(s->o.cancel, memory_order_relaxed))
            status = fail(err, E_INTERRUPTED, "interrupted");
        else
            status = session_step(s, s->rows, n_rows, err);
    }
    tell_progress(s->o.progress, 0, 0, 0);
    return status;
}
