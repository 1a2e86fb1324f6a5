// Tests the choice of experts of every ISA level that this CPU runs: against the formula in double, and bit for bit
// against the scalar level.
#include "tests/kernel_test.h"

struct route_case {
    enum route_kind kind;
    int n_expert, n_used;
    bool normalise;
    float scale;
    const float *bias;
    int n_group, n_group_used;
    int share; // 0: each expert is one
};

// Replaces the scores of experts of groups that are not used.
static void leave_groups(const struct route_case *c, double *scores)
{
    const int size = c->n_expert / c->n_group;
    double sums[200];
    for (int g = 0; g < c->n_group; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (int i = 0; i < size; i++) {
            double s = scores[g * size + i];
            second = s > first ? first : fmax(second, s);
            first = fmax(first, s);
        }
        sums[g] = first + second;
    }
    for (int round = 0; round < c->n_group_used; round++) {
        int best = 0;
        for (int g = 1; g < c->n_group; g++)
            best = sums[g] > sums[best] ? g : best;
        sums[best] = -INFINITY;
    }
    for (int i = 0; i < c->n_expert; i++)
        scores[i] = isinf(sums[i / size]) ? scores[i] : -INFINITY;
}

static void scores_of(const struct route_case *c, const float *logits, double top, double total, double *scores)
{
    for (int i = 0; i < c->n_expert; i++) {
        double l = (double)logits[i], p = c->kind == ROUTE_SOFTMAX ? exp(l - top) / total : 1 / (1 + exp(-l));
        scores[i] = c->bias || c->n_group ? p + (c->bias ? (double)c->bias[i] : 0) : l;
    }
    if (c->n_group)
        leave_groups(c, scores);
}

static void expect_route(const struct route_case *c, const float *logits, double *weights, int32_t *ids)
{
    double total = 0, top = -INFINITY, used = 0, scores[400];
    for (int i = 0; i < c->n_expert; i++)
        top = fmax(top, (double)logits[i]);
    for (int i = 0; i < c->n_expert; i++)
        total += exp((double)logits[i] - top);
    scores_of(c, logits, top, total, scores);
    for (int j = 0; j < c->n_used; j++) {
        int best = -1;
        for (int i = 0; i < c->n_expert; i++) {
            bool taken = false;
            for (int t = 0; t < j; t++)
                taken = taken || ids[t] == i;
            if (!taken && (best < 0 || scores[i] > scores[best]))
                best = i;
        }
        ids[j] = best;
    }
    for (int j = 0; j < c->n_used; j++) {
        ids[j] /= MAX(c->share, 1);
        double l = (double)logits[ids[j]];
        weights[j] = c->kind == ROUTE_SOFTMAX ? exp(l - top) / total : 1 / (1 + exp(-l));
        used += weights[j];
    }
    for (int j = 0; j < c->n_used; j++)
        weights[j] = (c->normalise ? weights[j] / fmax(used, 0x1p-14) : weights[j]) * (double)c->scale;
}

static void check_route(const struct route_case *c, const float *logits)
{
    double want[24];
    int32_t want_ids[24];
    float first[24];
    struct guarded scratch = guarded_new(2 * (size_t)c->n_expert * sizeof(float), 0);
    struct route_args a = {.kind = c->kind,
                           .n_expert = c->n_expert,
                           .n_used = c->n_used,
                           .normalise = c->normalise,
                           .scale = c->scale,
                           .bias = c->bias,
                           .n_group = c->n_group,
                           .n_group_used = c->n_group_used,
                           .share = c->share,
                           .scratch = floats_of(scratch)};
    expect_route(c, logits, want, want_ids);
    EACH_LEVEL (k) {
        struct guarded w = guarded_new((size_t)c->n_used * 4, 0), ids = guarded_new((size_t)c->n_used * 4, 0);
        int32_t *id = (int32_t *)(void *)ids.data, first_ids[24];
        k->route(&a, logits, floats_of(w), id);
        cr_assert_eq(memcmp(id, want_ids, (size_t)c->n_used * 4), 0, "%s: other experts", k->name);
        cr_assert_leq(nmse(floats_of(w), want, c->n_used), 1e-10, "%s: weights", k->name);
        scalar_level()->route(&a, logits, first, first_ids);
        expect_same_bits(floats_of(w), first, c->n_used, k->name);
        guarded_check(w, "route");
        guarded_check(ids, "route");
        guarded_free(w);
        guarded_free(ids);
    }
    guarded_check(scratch, "scores");
    guarded_free(scratch);
}

Test(route, route_takes_the_greatest_and_the_lower_id_on_a_tie)
{
    struct random r = seeded("route");
    for (int round = 0; round < 300; round++) {
        struct route_case c = {.kind = round % 2,
                               .n_expert = 1 + random_below(&r, 200),
                               .normalise = round / 2 % 2,
                               .scale = round % 5 ? 1.0f : 2.5f};
        c.n_used = 1 + random_below(&r, MIN(c.n_expert, 24));
        c.share = round % 6 == 5 ? 1 + random_below(&r, 4) : 0;
        struct guarded logits = random_floats(&r, c.n_expert, round % 3 ? 3 : 30);
        for (int i = 0; round % 7 == 0 && i < c.n_expert; i++)
            floats_of(logits)[i] = rintf(floats_of(logits)[i]); // ties
        check_route(&c, floats_of(logits));
        guarded_free(logits);
    }
}

// A bias, groups, or both. The logits are small, so that float32 tells scores apart that are not equal.
Test(route, route_chooses_by_biases_and_groups)
{
    struct random r = seeded("route by scores");
    for (int round = 0; round < 300; round++) {
        struct route_case c = {.kind = round % 2, .normalise = round / 2 % 2, .scale = 2.5f};
        c.n_group = round % 3 ? 2 + random_below(&r, 12) : 0;
        const int size = c.n_group ? 2 + random_below(&r, 24) : 1 + random_below(&r, 200);
        c.n_expert = MAX(c.n_group, 1) * size;
        c.n_group_used = c.n_group ? 1 + random_below(&r, c.n_group) : 0;
        c.n_used = 1 + random_below(&r, MIN(c.n_group ? size * c.n_group_used : size, 24));
        struct guarded logits = random_floats(&r, c.n_expert, 1), bias = random_floats(&r, c.n_expert, 0.2f);
        for (int i = 0; round % 7 == 0 && i < c.n_expert; i++) {
            floats_of(logits)[i] = rintf(floats_of(logits)[i]); // ties
            floats_of(bias)[i] = 0.25f * rintf(8 * floats_of(bias)[i]);
        }
        c.bias = round % 3 != 1 ? floats_of(bias) : NULL;
        check_route(&c, floats_of(logits));
        guarded_free(logits);
        guarded_free(bias);
    }
}

Test(route, route_of_numbers_gone_wrong_still_names_distinct_experts)
{
    const float bad[] = {NAN, INFINITY, -INFINITY, 0};
    struct random r = seeded("bad route");
    for (int round = 0; round < 200; round++) {
        float logits[9], weights[5];
        int32_t ids[5];
        for (int i = 0; i < 9; i++)
            logits[i] = bad[random_below(&r, 4)];
        EACH_LEVEL (k) {
            float scratch[18];
            const struct route_args a = {.kind = round % 2,
                                         .n_expert = 9,
                                         .n_used = 5,
                                         .normalise = true,
                                         .scale = 1,
                                         .n_group = round % 3 ? 3 : 0,
                                         .n_group_used = round % 3 ? 2 : 0,
                                         .scratch = scratch};
            k->route(&a, logits, weights, ids);
            for (int j = 0; j < 5; j++) {
                cr_assert(ids[j] >= 0 && ids[j] < 9);
                for (int i = 0; i < j; i++)
                    cr_assert_neq(ids[i], ids[j], "%s: expert %d twice", k->name, ids[j]);
            }
        }
    }
}
