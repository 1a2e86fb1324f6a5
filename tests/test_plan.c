// Tests plans: no node runs before its sources, no value overwrites one that is still read, and a layer costs few
// barriers.
#include "kernels/cpu/schedule.h"
#include "tests/tiny_graph.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static enum act_form form_of(const void *ctx, enum dtype type, int64_t k)
{
    (void)ctx;
    (void)k;
    return type != DT_F32 ? ACT_Q8 : ACT_F32;
}

static size_t row_bytes(enum act_form form, int64_t k)
{
    (void)form;
    return (size_t)k * 2;
}

static const struct act_rules rules = {.form = form_of, .row_bytes = row_bytes};

struct built {
    struct arena arena;
    struct tiny tiny;
    struct program program;
    struct schedule schedule;
};

static void build(struct built *b, int n_layer, bool experts, enum schedule_kind kind)
{
    struct error err;
    *b = (struct built){.tiny = {.n_layer = n_layer, .experts = experts, .type = DT_Q4_K}};
    tiny_build(&b->tiny);
    cr_assert_eq(program_build(&b->arena, b->tiny.graph, rules, &b->program, &err), 0, "%s", err.text);
    struct schedule_options o = {.kind = kind,
                                 .n_threads = 2,
                                 .q8_block = TINY_BLOCK,
                                 .item_weights = 3 << 16,
                                 .max_rows = {kind == SCHEDULE_FEW ? 4 : 128, 4}};
    cr_assert_eq(schedule_build(&b->arena, &b->program, &o, &b->schedule, &err), 0, "%s", err.text);
}

static void unbuild(struct built *b)
{
    tiny_free(&b->tiny);
    arena_free(&b->arena);
}

static int count_op(const struct program *p, enum op op)
{
    int n = 0;
    for (int i = 0; i < p->n; i++)
        n += p->nodes[i]->op == op;
    return n;
}

Test(plan, dead_nodes_go_and_common_ones_merge)
{
    struct built b;
    build(&b, 3, false, SCHEDULE_FEW);
    cr_expect_eq(b.program.n_dead, 3, "%d", b.program.n_dead);
    cr_expect_eq(count_op(&b.program, OP_SCALE), 0);
    cr_expect_eq(count_op(&b.program, OP_ROPE_TABLE), 1, "one table serves all layers");
    cr_expect_eq(b.program.n_common, 2, "%d", b.program.n_common);
    // q, k and v share one; o, gate+up and down have their own; and the head
    cr_expect_eq(count_op(&b.program, OP_QUANTIZE), 3 * 4 + 1, "%d", count_op(&b.program, OP_QUANTIZE));
    unbuild(&b);
}

Test(plan, a_dense_layer_costs_five_phases_at_few_rows)
{
    struct built one, many;
    build(&one, 2, false, SCHEDULE_FEW);
    build(&many, 6, false, SCHEDULE_FEW);
    cr_expect_eq(many.schedule.n_phases - one.schedule.n_phases, 4 * 5, "%d phases for four layers",
                 many.schedule.n_phases - one.schedule.n_phases);
    unbuild(&one);
    unbuild(&many);
}

// The phase and chain of each node, and its position within the chain.
struct turn {
    int phase, chain, index;
};

static void note(struct turn *turns, const struct tensor *n, struct turn t)
{
    cr_assert_eq(turns[n->id].index, -1, "%s is scheduled twice", n->name);
    turns[n->id] = t;
}

static void find_turns(const struct built *b, struct turn *turns)
{
    for (int i = 0; i < b->program.n; i++)
        turns[i].index = -1;
    for (int p = 0; p < b->schedule.n_phases; p++) {
        const struct phase *ph = &b->schedule.phases[p];
        for (int i = 0; i < ph->n_prologue; i++)
            note(turns, ph->prologue[i], (struct turn){p, -1, i});
        for (int c = 0; c < ph->n_chains; c++)
            for (int i = 0; i < ph->chains[c].n_nodes; i++)
                note(turns, ph->chains[c].nodes[i], (struct turn){p, c, i});
    }
}

// Whether `src` is computed before `n`: in an earlier phase, in the prologue, or earlier in the same chain, whose items
// contain the part of it that n needs.
static bool is_ready(const struct turn *turns, const struct tensor *src, const struct tensor *n)
{
    struct turn s = turns[src->id], t = turns[n->id];
    if (s.phase != t.phase)
        return s.phase < t.phase;
    if (s.chain == -1)
        return t.chain != -1 || s.index < t.index;
    bool whole_row = n->op == OP_MATMUL || n->op == OP_EXPERT_MATMUL || n->op == OP_ATTENTION || n->op == OP_ROWS;
    return s.chain == t.chain && s.index < t.index && !whole_row;
}

static void check_order(bool experts, enum schedule_kind kind)
{
    struct built b;
    build(&b, 3, experts, kind);
    struct turn *turns = calloc((size_t)b.program.n, sizeof(*turns));
    find_turns(&b, turns);
    for (int i = 0; i < b.program.n; i++) {
        const struct tensor *n = b.program.nodes[i];
        cr_assert_neq(turns[i].index, -1, "%s is not scheduled", n->name);
        for (int s = 0; s < SRC_MAX; s++)
            if (n->src[s])
                cr_expect(is_ready(turns, n->src[s], n), "%s runs before %s", n->name, n->src[s]->name);
    }
    free(turns);
    unbuild(&b);
}

Test(plan, nothing_runs_before_what_it_needs)
{
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        check_order(false, kind);
        check_order(true, kind);
    }
}

// Whether j is computed in place of i, and no other node reads i in that phase or later.
static bool is_over(const struct program *p, const struct value *v, int i, int j)
{
    if (v[j].over != i)
        return false;
    const struct tensor *n = p->nodes[j];
    cr_expect(n->src[0] == p->nodes[i] || n->src[1] == p->nodes[i], "%s is made over what it does not read", n->name);
    cr_expect_eq(v[i].offset, v[j].offset);
    cr_expect_eq(v[i].bytes, v[j].bytes);
    cr_expect_lt(v[i].phase, v[j].phase, "%s is made over a value of its own phase", n->name);
    for (int k = 0; k < p->n; k++)
        for (int s = 0; s < SRC_MAX && k != j; s++)
            cr_expect(p->nodes[k]->src[s] != p->nodes[i] || v[k].phase < v[j].phase,
                      "%s still reads what %s is made over", p->nodes[k]->name, n->name);
    return true;
}

static void check_overlap(bool experts, enum schedule_kind kind)
{
    struct built b;
    build(&b, 4, experts, kind);
    const struct value *v = b.schedule.values;
    size_t rows = kind == SCHEDULE_FEW ? 4 : 128, without_reuse = 0;
    int n_over = 0;
    for (int i = 0; i < b.program.n; i++) {
        size_t whole = v[i].row_bytes * (b.program.nodes[i]->rows == ROWS_TOKENS ? rows : 4);
        bool shared = v[i].place == PLACE_SHARED, kept = v[i].place != PLACE_NONE && v[i].place != PLACE_OUTPUT;
        without_reuse += shared ? v[i].bytes : 0;
        cr_expect_eq(v[i].bytes > 0, kept);
        if (kept) {
            cr_expect(v[i].place == PLACE_TILE ? v[i].bytes <= whole : v[i].bytes == whole);
            cr_expect_leq(v[i].offset + v[i].bytes, shared ? b.schedule.shared_bytes : b.schedule.private_bytes);
        }
        for (int j = 0; j < i && kept; j++) {
            bool other = !v[j].bytes || (v[j].place == PLACE_SHARED) != shared;
            bool apart = v[i].offset + v[i].bytes <= v[j].offset || v[j].offset + v[j].bytes <= v[i].offset;
            int late = shared && kind == SCHEDULE_FEW ? b.schedule.lag : 0; // for threads that come late
            bool not_together = v[i].last + late < v[j].phase || v[j].last + late < v[i].phase,
                 over = is_over(&b.program, v, j, i);
            n_over += over;
            cr_expect(other || apart || not_together || over, "%s lies over %s", b.program.nodes[i]->name,
                      b.program.nodes[j]->name);
        }
    }
    if (kind == SCHEDULE_MANY)
        cr_expect_geq(n_over, 2 * 4 - 1, "residuals are summed in place");
    else
        cr_expect_eq(n_over, 0, "a late thread may still read what would be summed in place");
    if (kind == SCHEDULE_MANY)
        cr_expect_lt(b.schedule.shared_bytes, without_reuse / 2, "%zu of %zu", b.schedule.shared_bytes, without_reuse);
    unbuild(&b);
}

Test(plan, values_that_live_together_lie_apart)
{
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        check_overlap(false, kind);
        check_overlap(true, kind);
    }
}

static int count_in(const struct schedule *s, enum chain_kind kind, enum op op)
{
    int n = 0;
    for (int p = 0; p < s->n_phases; p++)
        for (int c = 0; c < s->phases[p].n_chains; c++)
            for (int i = 0; i < s->phases[p].chains[c].n_nodes && s->phases[p].chains[c].kind == kind; i++)
                n += s->phases[p].chains[c].nodes[i]->op == op;
    return n;
}

Test(plan, many_rows_are_quantised_by_the_items_that_make_them)
{
    struct built b;
    build(&b, 3, false, SCHEDULE_MANY);
    cr_expect_eq(count_in(&b.schedule, CHAIN_COLUMNS, OP_QUANTIZE), 3, "what the last product of a layer reads");
    cr_expect_eq(count_in(&b.schedule, CHAIN_ATTEND, OP_QUANTIZE), 3, "what attention leaves");
    cr_expect_eq(count_in(&b.schedule, CHAIN_ROWS, OP_QUANTIZE), 2 * 3 + 1, "and what norms leave");
    unbuild(&b);
    build(&b, 3, false, SCHEDULE_FEW);
    cr_expect_eq(count_in(&b.schedule, CHAIN_COLUMNS, OP_QUANTIZE), 0,
                 "few rows are quantised by every thread for itself");
    unbuild(&b);
}

Test(plan, scratch_does_not_grow_with_layers)
{
    struct built two, eight;
    build(&two, 2, false, SCHEDULE_MANY);
    build(&eight, 8, false, SCHEDULE_MANY);
    cr_expect_eq(two.schedule.shared_bytes, eight.schedule.shared_bytes);
    unbuild(&two);
    unbuild(&eight);
}

Test(plan, what_late_threads_still_read_does_not_grow_with_layers)
{
    struct built eight, twelve;
    build(&eight, 8, false, SCHEDULE_FEW);
    build(&twelve, 12, false, SCHEDULE_FEW);
    cr_expect_gt(eight.schedule.lag, 0);
    cr_expect_eq(eight.schedule.shared_bytes, twelve.schedule.shared_bytes);
    unbuild(&eight);
    unbuild(&twelve);
}

Test(plan, heads_stay_together_in_items)
{
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        struct built b;
        build(&b, 1, false, kind);
        for (int p = 0; p < b.schedule.n_phases; p++)
            for (int c = 0; c < b.schedule.phases[p].n_chains; c++) {
                const struct chain *ch = &b.schedule.phases[p].chains[c];
                cr_expect_eq(ch->widest % ch->unit, 0);
                for (int i = 0; i < ch->n_nodes && ch->kind == CHAIN_COLUMNS; i++)
                    cr_expect(ch->nodes[i]->op != OP_ROPE || ch->unit % TINY_DIM == 0);
                for (int i = 0; i < ch->n_nodes && ch->kind != CHAIN_ROWS; i++)
                    cr_expect(ch->nodes[i]->op != OP_QUANTIZE || ch->unit % TINY_BLOCK == 0,
                              "a block is quantised whole");
            }
        unbuild(&b);
    }
}
