// Tests that the tests of attention on tensor cores detect wrong kernels: emitted kernels are changed in one random place,
// and each change must cause a fault or other bits. See test_ptx_mutations.c for what counts as a change, and ptx_effects.h
// for changes that provably have no effect and do not count.
//
// A subject is a kernel. Its unchanged results are held against attention computed in double; then a changed kernel runs
// with one step after another until one finds it. The steps reach the ends of the code: caches of few keys, behind which
// nothing has written the slots; several splits, on CTAs of their own and on one; rows that begin in a later page; tiles of
// rows that begin and end anywhere, and runs that change within a tile.
//
// Of 350 changes 333 were found. What stays, by kind, and most of it has no effect in these kernels:
//   - bounds that no head, pair, column or page of a subject meets, and sums of a number with one that is always 0;
//   - the end of a ring, which is reached at steps that are fixed: elsewhere the comparison with it never holds;
//   - addresses that move on behind the last page or part;
//   - places that are computed again, from the same numbers as before;
//   - pages before those that a row sees, and splits of which it sees nothing: what they add has the factor 0;
//   - a split on one CTA instead of several, which by law gives the same bits;
//   - the least scale, which is for heads whose elements are all below 2^-112;
//   - a barrier before an arrival that other CTAs see: the interpreter runs one CTA after another.
#include "tests/ptx_attention.h"
#include "tests/ptx_effects.h"
#include "tests/ptx_mutate.h"

#ifndef MUTATIONS
#define MUTATIONS 40
#endif

// An element of each head of a query is so large that without it the others would get too large a scale; the scores are
// made up for it.
#define SPIKE 6.0f
#define SCALE 0.6f

enum { SHARE = MUTATIONS < 200 ? 90 : 93 }; // percent that must be found: that of few scatters

struct subject {
    struct heads h;
    enum ptx_attend_form form;
};
#define F16 DT_F16, DT_F16
#define Q8 DT_Q8_0, DT_Q8_0
#define Q4 DT_Q4_0, DT_Q4_0
static const struct subject subjects[] = {
    {{34, 2, 80, 48, 0, 4, 0, F16, 0, false, false, 0}, PTX_ATTEND_ROWS},
    {{132, 2, 32, 32, 0, 2, 0, F16, 0, false, false, 0}, PTX_ATTEND_TILES},
    {{34, 2, 128, 48, 1024, 4, 0, F16, 20, false, false, 0}, PTX_ATTEND_ROWS},
    {{6, 2, 128, 256, 500, 2, 0, F16, 20, false, false, 0}, PTX_ATTEND_TILES},
    {{17, 1, 64, 64, 0, 4, 3, Q8, 0, false, false, 0}, PTX_ATTEND_ROWS},
    {{16, 2, 64, 64, 0, 2, 3, Q8, 0, false, false, 0}, PTX_ATTEND_TILES},
    {{17, 1, 128, 64, 0, 4, 0, Q4, 0, false, false, 0}, PTX_ATTEND_LONE},
    {{6, 2, 128, 128, 85, 4, 0, Q4, 0, false, false, 0}, PTX_ATTEND_TILES},
};

// Whether a line of these kernels may be any other, for a reason that lies in what they compute:
//   - what a lane has for a head, a query or a column that is not there goes to sums that are not stored, and so do the
//     scores of a warp without a page, whose addresses are not used;
//   - sums of a split begin with the factor 0, as nothing is larger than -inf, whatever number they held;
//   - all four lanes of a row have what one of them writes;
//   - the largest magnitude of a head is found from any smaller number on;
//   - what is loaded again, and a 0 that is added to a thread's number, spare ptxas registers: the numbers are the same.
static bool may_be_any(const char *line)
{
    // What a line begins with, and what follows a number behind that.
    static const char *const lines[][2] = {
        {"mov.f32 %keep, %nil;", ""},
        {"mov.f32 %other, %nil;", ""},
        {"mov.f32 %value, %nil;", ""},
        {"mov.u64 %next_", ""},
        {"setp.eq.u32 %writes, %col,", ""},
        {"mov.u32 %largest, 0;", ""},
        {"mov.f32 %o", ", %nil;"},
        {"mov.f32 %e", ", %nil;"},
        {"mov.f32 %s", ", %nil;"},
        {"mov.f32 %x", ", %nil;"},
        {"mov.f32 %sum", ", 0f00000000;"},
        {"mov.f32 %vsum", ", 0f00000000;"},
        {"ld.shared.v4.u32 {%row, %length,", ""},
        {"ld.shared.v4.u32 {%position, %last_position,", ""},
        {"add.u32 %thread, %thread, %nothing;", ""},
        {"add.u32 %block, %block, %nothing;", ""},
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        const size_t n = strlen(lines[i][0]);
        if (strncmp(line, lines[i][0], n))
            continue;
        const size_t digits = *lines[i][1] ? strspn(line + n, "0123456789") : 0;
        if (!strncmp(line + n + digits, lines[i][1], strlen(lines[i][1])))
            return true;
    }
    return false;
}

// A step: its rows, and the CTAs of a KV head's splits. Row by row, the last positions of the sequences go through the
// slots of a page: of the first one, and of one that is the last of several, few and many. For tiles there are
// runs of many lengths, which begin anywhere in a tile, and some rows are alone; the kernel for these has short ones.
enum { STEPS = 24, SHORT_STEPS = 16 };
static uint32_t make_step(const struct subject *s, int step, struct batch *r)
{
    static const int32_t bases[3][N_SEQS] = {{0, 128, 64, 256}, {0, 128, 1280, 768}, {0, 300, 120, 500}},
                         slots[] = {0, 3, 1, 2};
    const bool tiles = s->form == PTX_ATTEND_TILES;
    const int longest = tiles                        ? (int)MIN(16u, MAX(4u, 64 * s->h.n_kv / s->h.n))
                        : s->form == PTX_ATTEND_LONE ? 3
                        : s->h.window                ? 2
                                                     : 1;
    const bool deep = step % 2 || step >= SHORT_STEPS;
    const int32_t slot = step < SHORT_STEPS ? 4 * step : 8 * (step - SHORT_STEPS);
    *r = (struct batch){0};
    for (int32_t seq = 0; seq < N_SEQS; seq++) {
        const int32_t last = bases[tiles ? 2 : deep][seq] + slot + slots[seq];
        const int32_t n = 1 + (5 * step + 7 * seq) % longest;
        add_rows(r, seq, MAX(last - n + 1, 0), MIN(n, last + 1));
    }
    return tiles ? 1 : step % 3 == 1 ? 9 : 1 + (uint32_t)step % 3 / 2;
}

// What runs a step of a subject, and what it gives: the rows of y, and the counters behind them.
struct bench {
    struct card *c;
    struct batch r;
    uint32_t lanes;
    size_t y_size, size;
    uint8_t *want;
    uint64_t instructions;
};

static struct ptx_attend attend_of(const struct subject *s, const struct card *c)
{
    struct ptx_attend a = c->a;
    a.form = s->form;
    return a;
}

// Runs a text on a new machine. Returns false if it does not parse. *wrong: it has a fault.
static bool run(const struct subject *s, struct bench *b, struct str text, const struct ptx_launch *l, uint64_t limit,
                uint8_t *out, bool *wrong, uint64_t *instructions)
{
    struct card *c = b->c;
    struct error err;
    char entry[64];
    simt_free(c->simt);
    cr_assert(c->simt = simt_new());
    if (simt_load(c->simt, text, &err))
        return false;
    snprintf(entry, sizeof entry, "%s_7", l->entry);
    const struct simt_kernel *k = simt_find(c->simt, entry);
    cr_assert_not_null(k);
    c->kv_at = to_card(c, c->kv, (size_t)N_PAGES * c->a.k.page_bytes);
    if (c->sinks)
        c->sinks_at = to_card(c, c->sinks, c->h.n * sizeof(float));
    const struct inputs in = inputs_of(c, &b->r);
    forget_free_slots(c, &b->r);
    memset(out, 0, b->size);
    cr_assert_eq(simt_put(c->simt, in.y, out, b->y_size, &err), 0);
    simt_set_limit(c->simt, limit);
    *wrong = launch_form(c, &in, k, l, s->form, (uint32_t)b->r.n, b->lanes, &err) ||
             simt_get(c->simt, in.y, out, b->y_size, &err) ||
             simt_get(c->simt, in.counters, out + b->y_size, b->size - b->y_size, &err);
    *instructions = simt_count(c->simt).instructions;
    return true;
}

// Whether a row was left to the other kernel: a row of a run that is alone in its tile, or one that is not.
static bool is_left(const struct bench *b, int row)
{
    const size_t bytes = b->y_size / (size_t)b->r.n;
    for (size_t i = 0; i < bytes; i++)
        if (b->want[(size_t)row * bytes + i])
            return false;
    return true;
}

// The unchanged results of a step must be near to those in double, as test_ptx_attend.c asks it of a row of many heads.
static void expect_right(const struct bench *b)
{
    double error = 0, size = 0;
    for (int row = 0; row < b->r.n; row += 1 + b->r.n / 4) {
        if (is_left(b, row))
            continue;
        for (uint32_t head = 0; head < b->c->h.n; head += 1 + b->c->h.n / 8) {
            const struct errors e = errors_of_head(b->c, &b->r, row, head, (const float *)(const void *)b->want);
            error += e.error;
            size += e.size;
        }
    }
    cr_assert(error <= 1e-9 * ROW_OF_HALVES * size, "%d rows: %g of %g", b->r.n, error, size);
}

static void bench_open(const struct subject *s, int step, struct str text, const struct ptx_launch *l, struct bench *b)
{
    bool wrong;
    *b = (struct bench){.c = card_new(s->h, true)};
    b->c->a.scale *= SCALE;
    b->c->spike = SPIKE;
    b->lanes = make_step(s, step, &b->r);
    spoil_free_slots(b->c, &b->r);
    b->y_size = (size_t)b->r.n * s->h.n * s->h.dim_v * 4;
    b->size = b->y_size + ptx_attend_counters(&b->c->a, (uint32_t)b->r.n);
    cr_assert(b->want = malloc(b->size));
    cr_assert(run(s, b, text, l, 1 << 28, b->want, &wrong, &b->instructions) && !wrong);
    expect_right(b);
}

static void bench_close(struct bench *b)
{
    if (b->c)
        card_free(b->c);
    free(b->want);
}

// Whether a step finds a changed text. *parses: whether it is a text. whole: the unchanged one, for steps that come to be run
// for the first time.
static bool is_found(const struct subject *s, struct bench benches[STEPS], struct str whole, struct str text,
                     const struct ptx_launch *l, bool *parses)
{
    bool found = false;
    for (int i = 0; i < STEPS && !found; i++) {
        struct bench *b = &benches[i];
        if (!b->c)
            bench_open(s, i, whole, l, b);
        uint8_t *got = malloc(b->size);
        bool wrong;
        uint64_t n;
        cr_assert_not_null(got);
        *parses = run(s, b, text, l, 2 * b->instructions, got, &wrong, &n);
        found = *parses && (wrong || memcmp(got, b->want, b->size));
        free(got);
        if (!*parses)
            break;
    }
    return found;
}

// Makes changes until n of them parse. Returns how many of these are found.
static int found_of(const struct subject *s, int n, uint64_t *state)
{
    static char text[TEXT], changed[TEXT];
    static struct mutate_sites sites;
    struct bench benches[STEPS] = {0};
    struct card *c = card_new(s->h, true);
    c->a.scale *= SCALE;
    const struct ptx_attend a = attend_of(s, c);
    struct ptx p;
    struct ptx_launch l;
    struct error err;
    int counted = 0, found = 0;
    ptx_start(&p, text, TEXT);
    cr_assert_eq(ptx_emit_attend(&p, &a, &l, &err), 0, "%s", err.text);
    card_free(c);
    mutate_find_sites(p.data, p.size, &sites);
    while (counted < n) {
        const char *what;
        size_t where;
        bool parses = false;
        memcpy(changed, p.data, p.size);
        const size_t len = mutate(changed, p.size, sizeof changed, &sites, 0, state, &what, &where);
        if (!len || may_be_any(p.data + where) ||
            effects_are_none((struct str){p.data, p.size}, (struct str){changed, len}, where))
            continue;
        const bool differs =
            is_found(s, benches, (struct str){p.data, p.size}, (struct str){changed, len}, &l, &parses);
        counted += parses;
        found += differs;
        if (parses && !differs)
            printf("  not found (%s): %.*s -> %.*s\n", what, (int)strcspn(p.data + where, "\n"), p.data + where,
                   (int)strcspn(changed + where, "\n"), changed + where);
    }
    printf("%s, %s heads of %u and %u: %d of %d\n", l.entry, dtype_info[s->h.k_type].name, s->h.dim_k, s->h.dim_v,
           found, n);
    for (int i = 0; i < STEPS; i++)
        bench_close(&benches[i]);
    return found;
}

Test(ptx_attend_mutations, changes_are_found, .timeout = 1100)
{
    uint64_t state = SEED;
    const int n = MUTATIONS / (int)COUNT_OF(subjects), all = n * (int)COUNT_OF(subjects);
    int found = 0;
    printf("seed %d\n", SEED);
    for (size_t i = 0; i < COUNT_OF(subjects); i++)
        found += found_of(&subjects[i], n, &state);
    printf("%d of %d changes were found\n", found, all);
    cr_assert_geq(100 * found, SHARE * all);
}
