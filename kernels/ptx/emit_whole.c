// Emits the frame of a whole step: the loop over the table, the barrier of the grid, and for each part the loop over the
// CTAs of its launch. See emit_whole.h; emit_whole_parts.c writes the parts.
#include "kernels/ptx/emit_whole.h"

#include "kernels/ptx/emit_nibble.h"

// Named barriers: those of the parts' groups are below STEP_BARRIER, two for each group. STEP_BARRIER separates steps, and
// WAIT_BARRIER is where all threads wait for the one that looks at the counter.
enum { MOST_GROUPS = 4, WAIT_BARRIER = 14, STEP_BARRIER = 15, SLEEP_NS = 20, LEAST_THREADS = 96 };

struct frame {
    uint32_t threads, words; // of a CTA; 8 bytes each of a step in the table
    // Of shared memory: offsets of the step that is loaded, and of the arrivals to wait for; bytes of these and of the step
    // that is at work, which comes first.
    uint32_t next_at, target_at, args;
    uint32_t shared;
    uint32_t version, target;
    bool bulk; // a part has copies by another proxy
};

static uint32_t words_of(const struct ptx_whole *w, const struct ptx_whole_text *texts)
{
    int most = 0;
    for (int i = 0; i < w->n_parts; i++)
        most = MAX(most, texts[i].n_params + w->parts[i].n_numbers);
    return PTX_WHOLE_HEAD / 8 + 2 * ptx_tiles((uint32_t)most, 2);
}

// ---- the shape

// The groups of a part: as many as there are threads, barriers and shared memory for. A part whose CTAs take pieces of work
// in turn has one, and so has one whose threads are no power of two.
static uint32_t groups_of(const struct ptx_whole_text *t, const struct frame *r, uint32_t most_shared)
{
    const uint32_t each = (uint32_t)align_up(t->shared, WHOLE_ALIGN);
    uint32_t n = MIN(r->threads / t->part->threads, (uint32_t)MOST_GROUPS);
    if (t->part->loops || (t->part->threads & (t->part->threads - 1)))
        return 1;
    if (each)
        n = MIN(n, (most_shared - r->args) / each);
    return MAX(n, 1u);
}

static int frame_of(const struct ptx_whole *w, struct ptx_whole_text *texts, struct frame *r, struct error *err)
{
    *r = (struct frame){.threads = LEAST_THREADS, .version = 63, .target = 75};
    for (int i = 0; i < w->n_parts; i++) {
        if (ptx_whole_read(&w->parts[i], &texts[i], err))
            return -1;
        r->threads = MAX(r->threads, w->parts[i].threads);
        r->version = MAX(r->version, texts[i].version);
        r->target = MAX(r->target, texts[i].target);
        r->bulk = r->bulk || texts[i].bulk;
    }
    r->version = MAX(r->version, r->target >= 80 ? 70u : 63u);
    r->words = words_of(w, texts);
    r->next_at = 8 * r->words;
    r->target_at = 16 * r->words;
    r->args = (uint32_t)align_up(r->target_at + 8, WHOLE_ALIGN);
    for (int i = 0; i < w->n_parts; i++) {
        texts[i].groups = groups_of(&texts[i], r, w->most_shared);
        r->shared = MAX(r->shared, r->args + texts[i].groups * (uint32_t)align_up(texts[i].shared, WHOLE_ALIGN));
    }
    if (r->shared > w->most_shared)
        return fail(err, E_GPU, "a whole step takes %u bytes of shared memory of %u", r->shared, w->most_shared);
    return 0;
}

// ---- the head

static bool is_declared(const struct ptx_whole_text *texts, int n, struct str line)
{
    struct str other;
    for (int i = 0; i < n; i++)
        for (struct str text = texts[i].declared; ptx_whole_line(&text, &other);)
            if (str_equal(line, other))
                return true;
    return false;
}

// Writes the tables of all parts, each once. Equal names have equal contents: the emitters name tables by their contents.
static void declare(struct ptx *p, const struct ptx_whole_text *texts, int n)
{
    static const char dynamic[] = ".extern .shared ";
    struct str line;
    for (int i = 0; i < n; i++)
        for (struct str text = texts[i].declared; ptx_whole_line(&text, &line);) {
            const bool array = line.len >= sizeof dynamic - 1 && !memcmp(line.data, dynamic, sizeof dynamic - 1);
            if (!line.len || *line.data == '/' || array || is_declared(texts, i, line))
                continue;
            ptx_copy(p, line.data, line.len);
            PTX_LINES(p, "\n");
        }
}

static void head(struct ptx *p, const struct ptx_whole *w, const struct frame *r)
{
    PTX_FILL(p,
             ".extern .shared .align 128 .b8 whole[];\n"
             "// node $0: a whole step of $1 parts\n"
             ".visible .entry whole_$0(\n"
             "    .param .u64 table,\n"
             "    .param .u64 arrivals)\n"
             ".maxntid $2, 1, 1\n"
             ".minnctapersm 1\n",
             w->node, (uint32_t)w->n_parts, r->threads);
    PTX_LINES(p, "{\n"
                 "    .reg .pred %whole_in, %whole_first, %whole_came;\n"
                 "    .reg .u32 %whole_index, %whole_args, %whole_part, %whole_cta, %whole_thread, %whole_group;\n"
                 "    .reg .u32 %whole_base, %whole_at, %whole_many;\n"
                 "    .reg .u32 %whole_x, %whole_y, %whole_z, %whole_nx, %whole_ny, %whole_nz;\n"
                 "    .reg .u64 %whole_step, %whole_next, %whole_count, %whole_target, %whole_all, %whole_number;\n");
}

// Sets %whole_first in the thread that arrives and waits for its CTA.
static void find_first(struct ptx *p)
{
    PTX_LINES(p, "    mov.u32 %whole_index, %tid.x;\n"
                 "    setp.eq.u32 %whole_first, %whole_index, 0;\n");
}

// Begins to load the step at byte %whole_at of the table. From sm_80 on the copy goes on beside the step before. Older cards
// wait for it here.
static void load_step(struct ptx *p, const struct frame *r)
{
    const bool copies = r->target >= 80;
    PTX_FILL(p,
             "    mov.u32 %whole_index, %tid.x;\n"
             "    setp.lt.u32 %whole_in, %whole_index, $0;\n"
             "    ld.param.u64 %whole_step, [table];\n"
             "    cvta.to.global.u64 %whole_step, %whole_step;\n"
             "    mad.lo.u32 %whole_at, %whole_index, $1, %whole_at;\n"
             "    cvt.u64.u32 %whole_all, %whole_at;\n"
             "    add.u64 %whole_step, %whole_step, %whole_all;\n"
             "    mad.lo.u32 %whole_at, %whole_index, $1, %whole_args;\n",
             copies ? ptx_tiles(r->words, 2) : r->words, copies ? 16 : 8);
    if (copies)
        PTX_FILL(p, "    @%whole_in cp.async.cg.shared.global [%whole_at+$0], [%whole_step], 16;\n", r->next_at);
    else
        PTX_FILL(p,
                 "    @%whole_in ld.global.nc.u64 %whole_next, [%whole_step];\n"
                 "    @%whole_in st.shared.u64 [%whole_at+$0], %whole_next;\n",
                 r->next_at);
}

// The step that was loaded becomes that of the arguments.
static void take_step(struct ptx *p, const struct frame *r)
{
    PTX_FILL(p,
             "    mov.u32 %whole_index, %tid.x;\n"
             "    setp.lt.u32 %whole_in, %whole_index, $0;\n"
             "    mad.lo.u32 %whole_at, %whole_index, 8, %whole_args;\n"
             "    @%whole_in ld.shared.u64 %whole_next, [%whole_at+$1];\n"
             "    @%whole_in st.shared.u64 [%whole_at], %whole_next;\n"
             "    bar.sync $2;\n",
             r->words, r->next_at, STEP_BARRIER);
}

// The number of CTAs, and the address of the counter.
static void load_counter(struct ptx *p)
{
    PTX_LINES(p, "    mov.u32 %whole_at, %nctaid.x;\n"
                 "    cvt.u64.u32 %whole_all, %whole_at;\n"
                 "    ld.param.u64 %whole_count, [arrivals];\n"
                 "    cvta.to.global.u64 %whole_count, %whole_count;\n");
}

// The arrivals of earlier launches are the counter, rounded down to a multiple of the CTAs. What is kept from step to step
// takes as few registers as possible, because a part may need all others: the arrivals to wait for are in shared memory,
// where the first thread alone uses them.
static void begin(struct ptx *p, const struct frame *r)
{
    PTX_LINES(p, "    mov.u32 %whole_args, whole;\n"
                 "    mov.u32 %whole_at, 0;\n");
    load_step(p, r);
    find_first(p);
    load_counter(p);
    PTX_FILL(p,
             "    ld.relaxed.gpu.global.u64 %whole_target, [%whole_count];\n"
             "    rem.u64 %whole_all, %whole_target, %whole_all;\n"
             "    sub.u64 %whole_target, %whole_target, %whole_all;\n"
             "    @%whole_first st.shared.u64 [%whole_args+$0], %whole_target;\n",
             r->target_at);
    if (r->target >= 80)
        PTX_LINES(p, "    cp.async.wait_all;\n");
    PTX_FILL(p, "    bar.sync $0;\n", STEP_BARRIER);
    take_step(p, r);
}

// ---- the barrier

void ptx_whole_wait(struct ptx *p, uint32_t target_at, uint32_t label, bool again)
{
    if (again)
        PTX_FILL(p, "    @%whole_came bra PAST_$0;\n", label);
    find_first(p);
    PTX_FILL(p, "    @!%whole_first bra CAME_$0;\n", label);
    load_counter(p);
    PTX_FILL(p,
             "    ld.shared.u64 %whole_target, [%whole_args+$3];\n"
             "LOOK_$0:\n"
             "    ld.acquire.gpu.global.u64 %whole_all, [%whole_count];\n"
             "    setp.ge.u64 %whole_in, %whole_all, %whole_target;\n"
             "    @%whole_in bra CAME_$0;\n"
             "    nanosleep.u32 $1;\n"
             "    bra LOOK_$0;\n"
             "CAME_$0:\n"
             "    bar.warp.sync 0xffffffff;\n"
             "    bar.sync $2;\n",
             label, SLEEP_NS, WAIT_BARRIER, target_at);
    if (again)
        PTX_FILL(p, "    setp.eq.u32 %whole_came, 0, 0;\nPAST_$0:\n", label);
}

// ---- a part

// The group of the thread, and its first CTA: the first groups of all CTAs come first. Threads without one go to IDLE.
// A zero that comes with each step is added to the numbers of thread and CTA. The assembler cannot know that it is always the
// same, so it computes what follows from them in each step anew. Otherwise it would compute it once for all parts ahead of
// the loop over steps, and keep it in registers that the parts need.
static void groups(struct ptx *p, const struct ptx_whole_text *t, uint32_t k, const struct frame *r)
{
    const uint32_t threads = t->part->threads;
    PTX_FILL(p,
             "    ld.shared.u32 %whole_many, [%whole_args+28];\n"
             "    mov.u32 %whole_thread, %tid.x;\n"
             "    mov.u32 %whole_cta, %ctaid.x;\n"
             "    add.u32 %whole_thread, %whole_thread, %whole_many;\n"
             "    add.u32 %whole_cta, %whole_cta, %whole_many;\n"
             "    add.u32 %whole_base, %whole_args, $0;\n"
             "    ld.shared.u32 %whole_many, [%whole_args+20];\n",
             r->args);
    if (threads * t->groups < r->threads)
        PTX_FILL(p,
                 "    setp.ge.u32 %whole_in, %whole_thread, $0;\n"
                 "    @%whole_in bra IDLE_$1;\n",
                 threads * t->groups, k);
    if (t->groups > 1)
        PTX_FILL(p,
                 "    shr.u32 %whole_group, %whole_thread, $2;\n"
                 "    and.b32 %whole_thread, %whole_thread, $0;\n"
                 "    mad.lo.u32 %whole_base, %whole_group, $1, %whole_base;\n"
                 "    mov.u32 %whole_at, %nctaid.x;\n"
                 "    mad.lo.u32 %whole_cta, %whole_group, %whole_at, %whole_cta;\n",
                 threads - 1, (uint32_t)align_up(t->shared, WHOLE_ALIGN), (uint32_t)__builtin_ctz(threads));
    PTX_FILL(p,
             "    setp.ge.u32 %whole_in, %whole_cta, %whole_many;\n"
             "    @%whole_in bra IDLE_$0;\n",
             k);
}

static void arrays(struct ptx *p, const struct ptx_whole_text *t)
{
    for (int i = 0; i < t->n_symbols; i++) {
        PTX_LINES(p, "    .reg .u32 %whole_");
        ptx_copy(p, t->symbols[i].name.data, t->symbols[i].name.len);
        PTX_LINES(p, ";\n    add.u32 %whole_");
        ptx_copy(p, t->symbols[i].name.data, t->symbols[i].name.len);
        PTX_FILL(p, ", %whole_base, $0;\n", t->symbols[i].at);
    }
}

// The grid of the part's launch, and the place of the CTA in it. CTAs that take pieces of work in turn are in one line.
static void place(struct ptx *p, const struct ptx_whole_text *t)
{
    if (t->part->loops) {
        PTX_LINES(p, "    ld.shared.u32 %whole_nx, [%whole_args+8];\n"
                     "    mov.u32 %whole_x, %whole_cta;\n");
        return;
    }
    PTX_LINES(p, "    ld.shared.u32 %whole_nx, [%whole_args+8];\n"
                 "    ld.shared.u32 %whole_ny, [%whole_args+12];\n"
                 "    ld.shared.u32 %whole_nz, [%whole_args+16];\n"
                 "    rem.u32 %whole_x, %whole_cta, %whole_nx;\n"
                 "    div.u32 %whole_at, %whole_cta, %whole_nx;\n"
                 "    rem.u32 %whole_y, %whole_at, %whole_ny;\n"
                 "    div.u32 %whole_z, %whole_at, %whole_ny;\n");
}

// The array of mbarriers becomes memory again.
static void invalidate(struct ptx *p, const struct ptx_whole_text *t)
{
    for (int i = 0; i < t->n_symbols; i++)
        if (str_equal(t->symbols[i].name, STR_LIT("full")))
            PTX_FILL(p,
                     "    setp.lt.u32 %whole_in, %whole_thread, $0;\n"
                     "    mad.lo.u32 %whole_at, %whole_thread, 8, %whole_full;\n"
                     "    @%whole_in mbarrier.inval.shared::cta.b64 [%whole_at];\n",
                     t->symbols[i].bytes / 8);
}

// The end of a CTA of the part, and the next one of its group.
static void leave(struct ptx *p, const struct ptx_whole_text *t, uint32_t k)
{
    PTX_FILL(p, "LEFT_$0:\n    bar.warp.sync 0xffffffff;\n", k);
    if (t->copies)
        PTX_LINES(p, "    cp.async.wait_all;\n");
    if (t->groups > 1) {
        ptx_whole_barrier(p, t, 0);
        PTX_FILL(p, "    bar.sync %whole_at, $0;\n", t->part->threads);
    } else {
        PTX_FILL(p, "    bar.sync 0, $0;\n", t->part->threads);
    }
    if (t->bulk)
        invalidate(p, t);
    if (t->part->loops)
        return;
    PTX_FILL(p,
             "    mov.u32 %whole_at, %nctaid.x;\n"
             "    mad.lo.u32 %whole_cta, %whole_at, $1, %whole_cta;\n"
             "    ld.shared.u32 %whole_many, [%whole_args+20];\n"
             "    setp.lt.u32 %whole_in, %whole_cta, %whole_many;\n"
             "    @%whole_in bra AGAIN_$0;\n",
             k, t->groups);
}

static int part(struct ptx *p, const struct ptx_whole_text *t, uint32_t k, const struct frame *r, struct error *err)
{
    PTX_FILL(p, "PART_$0:\n    {\n", k);
    groups(p, t, k, r);
    arrays(p, t);
    if (!t->waits)
        ptx_whole_wait(p, r->target_at, 2 * k, false);
    else if (!t->part->loops)
        PTX_LINES(p, "    setp.ne.u32 %whole_came, 0, 0;\n");
    PTX_FILL(p, "AGAIN_$0:\n", k);
    place(p, t);
    PTX_LINES(p, "    {\n");
    if (ptx_whole_body(p, t, r->target_at, k, err))
        return -1;
    PTX_LINES(p, "    }\n");
    leave(p, t, k);
    PTX_FILL(p, "    bra OVER_$0;\nIDLE_$0:\n", k);
    ptx_whole_wait(p, r->target_at, 2 * k + 1, false);
    PTX_FILL(p, "OVER_$0:\n    }\n    bra ENDED;\n", k);
    return 0;
}

// ---- the loop over steps

// The successor of the step is loaded, and the threads go to its part.
static void choose(struct ptx *p, const struct frame *r, uint32_t n_parts)
{
    PTX_LINES(p, "STEP:\n"
                 "    ld.shared.u32 %whole_at, [%whole_args+24];\n");
    load_step(p, r);
    PTX_LINES(p, "    ld.shared.u32 %whole_part, [%whole_args];\n");
    for (uint32_t k = 0; k < n_parts; k++)
        PTX_FILL(p,
                 "    setp.eq.u32 %whole_in, %whole_part, $0;\n"
                 "    @%whole_in bra PART_$0;\n",
                 k);
    PTX_LINES(p, "    trap;\n");
}

// The release waits until what the CTA wrote is seen on the whole card, and holds its warp up for so long. It comes last, so
// that the other warps need not wait before they begin with the next part.
static void end_step(struct ptx *p, const struct frame *r)
{
    PTX_LINES(p, "ENDED:\n"
                 "    bar.warp.sync 0xffffffff;\n"
                 "    ld.shared.u32 %whole_part, [%whole_args+4];\n");
    if (r->target >= 80)
        PTX_LINES(p, "    cp.async.wait_all;\n");
    if (r->bulk)
        PTX_LINES(p, "    fence.proxy.async.shared::cta;\n");
    PTX_FILL(p,
             "    bar.sync $0;\n"
             "    setp.ne.u32 %whole_in, %whole_part, 0;\n"
             "    @%whole_in ret;\n",
             STEP_BARRIER);
    take_step(p, r);
    find_first(p);
    load_counter(p);
    PTX_FILL(p,
             "    @%whole_first red.release.gpu.global.add.u64 [%whole_count], 1;\n"
             "    @%whole_first ld.shared.u64 %whole_target, [%whole_args+$0];\n"
             "    @%whole_first add.u64 %whole_target, %whole_target, %whole_all;\n"
             "    @%whole_first st.shared.u64 [%whole_args+$0], %whole_target;\n"
             "    bra STEP;\n"
             "}\n",
             r->target_at);
}

int ptx_emit_whole(struct ptx *p, const struct ptx_whole *w, struct ptx_launch *launch, struct error *err)
{
    struct ptx_whole_text texts[PTX_WHOLE_PARTS];
    struct frame r;
    if (w->n_parts < 1 || w->n_parts > PTX_WHOLE_PARTS)
        return fail(err, E_GPU, "a whole step of %d parts", w->n_parts);
    if (frame_of(w, texts, &r, err))
        return -1;
    ptx_header(p, r.version, r.target);
    declare(p, texts, w->n_parts);
    head(p, w, &r);
    begin(p, &r);
    choose(p, &r, (uint32_t)w->n_parts);
    for (int k = 0; k < w->n_parts; k++)
        if (part(p, &texts[k], (uint32_t)k, &r, err))
            return -1;
    end_step(p, &r);
    *launch = (struct ptx_launch){.entry = "whole", .grid = {1, 1, 1}, .block = {r.threads, 1, 1}, .shared = r.shared};
    return ptx_finish(p, err);
}
