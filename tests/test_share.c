// Tests the division of work: the items of a step cover every row and column exactly once, and only the experts that
// may be chosen.
#include "kernels/cpu/share.h"

#include <criterion/criterion.h>

enum { EXPERTS = 128, USED = 8, WIDTH = 768, PART = 256, PARTS = WIDTH / PART, ROWS_MOST = 40 };

// A phase with one chain of expert products, whose columns are divided in three.
struct shared {
    struct arena arena;
    struct weight w;
    struct tensor node;
    struct tensor *nodes[1];
    struct columns items[PARTS];
    struct chain chain;
    struct phase phase;
    struct schedule schedule;
    struct sharing sharing;
};

static void share_begin(struct shared *s)
{
    struct error err;
    *s = (struct shared){.w = {.type = DT_Q4_K, .ne = {2048, WIDTH, EXPERTS}}};
    s->node = (struct tensor){.op = OP_EXPERT_MATMUL, .w[0] = &s->w, .p.expert.n_used = USED};
    s->nodes[0] = &s->node;
    for (int i = 0; i < PARTS; i++)
        s->items[i] = (struct columns){i * PART, (i + 1) * PART};
    s->chain = (struct chain){.kind = CHAIN_EXPERTS,
                              .rows = ROWS_TOKENS,
                              .width = WIDTH,
                              .unit = 1,
                              .items = s->items,
                              .n_items = PARTS,
                              .widest = PART,
                              .nodes = s->nodes,
                              .n_nodes = 1};
    s->phase = (struct phase){.chains = &s->chain, .n_chains = 1};
    s->schedule = (struct schedule){.phases = &s->phase, .n_phases = 1};
    cr_assert_eq(sharing_new(&s->arena, &s->schedule, &s->sharing, &err), 0, "%s", err.text);
}

static void expect_each_once(const struct shared *s, int rows, int n_choices)
{
    int seen[EXPERTS][PARTS] = {{0}};
    const int64_t n = s->sharing.items[0];
    cr_assert_eq(n, (int64_t)n_choices * PARTS, "%d rows: %lld items", rows, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const struct share share = share_at(&s->chain, &s->sharing.grids[0][0], i);
        cr_assert(share.row0 == 0 && share.row1 == rows);
        cr_assert(share.choice >= 0 && share.choice < n_choices);
        cr_assert_eq(share.col1, share.col0 + PART);
        cr_assert_eq(seen[share.choice][share.col0 / PART]++, 0, "%d rows: choice %d twice", rows, share.choice);
    }
}

// The cost of a row must depend on the experts that it reads, not on the number of all experts.
Test(share, experts_have_no_more_items_than_rows_choose)
{
    struct shared s;
    share_begin(&s);
    for (int rows = 0; rows <= ROWS_MOST; rows++) {
        sharing_update(&s.sharing, &s.schedule, (int[ROWS_KINDS]){[ROWS_TOKENS] = rows, [ROWS_OUTPUTS] = rows}, 2);
        expect_each_once(&s, rows, MIN(EXPERTS, rows * USED));
    }
    arena_free(&s.arena);
}

// An expert that several rows chose is multiplied once for all of them: two items of it would write to the same places.
Test(share, an_expert_that_several_rows_chose_has_one_item)
{
    enum { N = 6, CHOSEN = 2, STRIDE = 5 };
    static const int32_t ids[][STRIDE] = {{4, 1}, {1, 0}};
    static const int want[] = {4, 1, -1, 0};
    const struct weight w = {.ne = {256, 256, N}};
    const struct tensor n = {.op = OP_EXPERT_MATMUL, .w[0] = &w, .p.expert.n_used = CHOSEN};
    for (int choice = 0; choice < 2 * CHOSEN; choice++)
        cr_expect_eq(share_expert(&n, 2, ids[0], STRIDE, choice), want[choice], "choice %d", choice);
    for (int choice = 0; choice < N; choice++) // three rows may choose all
        cr_expect_eq(share_expert(&n, 3, ids[0], STRIDE, choice), choice);
}
