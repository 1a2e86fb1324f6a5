// Tests which products of several rows share a launch on the GPU machine, with the tests' libcuda: those that read one value
// and have weights of one type; that a step has the bits of a plan in which each has its own, as one with taps has; and that
// a profile gives each its part of the time.
#include "kernels/ptx/gpu.h"
#include "tests/built_model.h"
#include "tests/ptx/quern_cuda.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

enum { ROWS = 20 };

static void look_away(void *arg, int i, const float *rows, size_t stride, int n_rows)
{
    (void)arg, (void)i, (void)rows, (void)stride, (void)n_rows;
}

static struct plan *compile(struct machine *m, const struct graph *g, const struct taps *taps, bool profile)
{
    struct plan *p;
    struct error err = {0};
    struct compile_options o = {ROWS, 1, {DT_F16, DT_F16}, profile, taps};
    cr_assert_eq(m->v->compile(m, g, &o, &p, &err), 0, "%s", err.text);
    return p;
}

static struct machine *open_card(bool exact)
{
    struct machine *m;
    struct error err = {0};
    cr_assert_eq(machine_open_gpu(&m, &(struct machine_options){.exact = exact}, &(struct gpu_options){0}, &err), 0,
                 "%s", err.text);
    return m;
}

// Runs a prompt of ROWS rows, and returns the logits of the last.
static void run(struct machine *m, struct plan *p, const struct graph *g, float *logits)
{
    struct error err = {0};
    struct buffer *kv, *states = NULL;
    int32_t tokens[ROWS], positions[ROWS], seqs[ROWS] = {0}, output = ROWS - 1, page = 0, none = -1, from[ROWS],
                                           to[ROWS];
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = (37 * i + 5) % N_VOCAB, positions[i] = i;
        from[i] = none, to[i] = i == ROWS - 1 ? 0 : none;
    }
    cr_assert_eq(m->v->alloc(m, kv_page_bytes(g, (enum dtype[2]){DT_F16, DT_F16}), &kv, &err), 0, "%s", err.text);
    if (state_bytes(g))
        cr_assert_eq(m->v->alloc(m, state_bytes(g), &states, &err), 0, "%s", err.text);
    struct step s = {.n_tokens = ROWS,
                     .n_outputs = 1,
                     .tokens = tokens,
                     .positions = positions,
                     .seqs = seqs,
                     .outputs = &output,
                     .pages = &page,
                     .pages_stride = 1,
                     .kv = kv,
                     .logits = logits,
                     .states = states,
                     .state_from = states ? from : NULL,
                     .state_to = states ? to : NULL};
    cr_assert_eq(m->v->run(m, p, &s, &err), 0, "%s", err.text);
    m->v->free(m, kv);
    if (states)
        m->v->free(m, states);
}

// Counts the products that the list for any number of rows computes, and its launches of them. All sections must read what
// the first reads, by weights of its type.
static void count_products(const struct plan *p, int *products, int *launches)
{
    const struct gpu_list *list = &p->lists[GPU_ANY_ROWS];
    *products = *launches = 0;
    for (int i = 0; i < list->n_launches; i++) {
        const struct gpu_launch *l = &list->launches[i];
        if (!l->matmul.n_in || l->groups || l->matmul.n_used)
            continue;
        *launches += 1;
        *products += (int)MAX(l->matmul.n_sections, 1u);
        for (uint32_t s = 1; s < l->matmul.n_sections; s++) {
            const struct tensor *n = gpu_joined(p, l->node, (int)s);
            cr_assert_not_null(n);
            cr_expect(n->src[0] == l->node->src[0] && n->w[0]->type == l->node->w[0]->type, "%s", n->name);
        }
        cr_expect(!l->matmul.n_sections || !gpu_joined(p, l->node, (int)l->matmul.n_sections));
    }
}

// spared: the launches that joining spares, of the whole model.
static void check(const char *preset, const char *mix, bool exact, int spared)
{
    static float joined[N_VOCAB + 64], alone[N_VOCAB + 64];
    struct built_model model = build_model(preset, mix, 7);
    struct machine *m = open_card(exact);
    const struct tensor *tapped[] = {model.graph->nodes[1]};
    const struct taps taps = {tapped, 1, look_away, NULL};
    struct plan *a = compile(m, model.graph, NULL, false), *b = compile(m, model.graph, &taps, false);
    int products[2], launches[2];
    count_products(a, &products[0], &launches[0]);
    count_products(b, &products[1], &launches[1]);
    cr_expect_eq(products[0], products[1]);
    cr_expect_eq(launches[1], products[1], "a plan with taps has a launch for each product");
    cr_expect_eq(products[0] - launches[0], spared, "%s, %s: %d launches for %d products", preset, mix, launches[0],
                 products[0]);
    run(m, a, model.graph, joined);
    run(m, b, model.graph, alone);
    cr_expect(!memcmp(joined, alone, (size_t)model.info.n_vocab * sizeof(float)), "%s, %s: other bits", preset, mix);
    m->v->plan_free(m, a);
    m->v->plan_free(m, b);
    m->v->close(m);
    built_model_free(&model);
}

Test(ptx_join, products_of_one_value_and_type_share_a_launch, .timeout = 240)
{
    check("llama-tiny", "F16", false, 12);
    check("llama-tiny", "Q4_K_M", false, 10); // V in Q6_K in two layers has a launch of its own
    check("llama-tiny", "Q4_K", true, 12);
    check("qwen2-tiny", "Q8_0", false, 12); // with a bias
    check("qwen35-tiny", "Q4_K_M", false, 11);
}

Test(ptx_join, a_profile_divides_the_time)
{
    static float logits[N_VOCAB + 64];
    struct built_model model = build_model("llama-tiny", "Q4_K_M", 7);
    struct machine *m = open_card(false);
    struct plan *p = compile(m, model.graph, NULL, true);
    const struct node_time *times;
    double wait, q = 0, k = 0;
    int n;
    run(m, p, model.graph, logits);
    gpu_profile(p, &times, &n, &wait);
    for (int i = 0; i < n; i++) {
        q += strcmp(times[i].node->name, "blk.0.attn_q") ? 0 : times[i].ns;
        k += strcmp(times[i].node->name, "blk.0.attn_k") ? 0 : times[i].ns;
    }
    cr_expect(k > 0 && q > k, "Q %g ns, K %g ns", q, k);
    m->v->plan_free(m, p);
    m->v->close(m);
    built_model_free(&model);
}
