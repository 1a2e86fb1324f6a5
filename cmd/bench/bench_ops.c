// Prints where the time of a test went: one row per kind of operation and type of its weights.
#include "cmd/bench/bench.h"

#include <stdlib.h>

enum { KINDS_MAX = OP_COUNT * (DT_COUNT + 1), TITLE_WIDTH = 44 };

struct kind {
    enum op op;
    int type; // of the weights; -1: none
    uint64_t calls;
    double ns, bytes, products;
};

struct sum {
    const struct tensor *node;
    struct kind *kind;
};

static void add_cost(void *arg, const struct cost_step *s)
{
    struct sum *sum = arg;
    struct cost c = cost_of_node(sum->node, s);
    sum->kind->bytes += c.bytes;
    sum->kind->products += c.products;
}

static bool has_matrix(const struct tensor *n)
{
    return n->op == OP_MATMUL || n->op == OP_EXPERT_MATMUL || n->op == OP_EMBED;
}

static struct kind *kind_of(struct kind *kinds, int *n, const struct tensor *node)
{
    int type = has_matrix(node) ? (int)node->w[0]->type : -1;
    for (int i = 0; i < *n; i++)
        if (kinds[i].op == node->op && kinds[i].type == type)
            return &kinds[i];
    kinds[*n] = (struct kind){.op = node->op, .type = type};
    return &kinds[(*n)++];
}

static int by_time(const void *a, const void *b)
{
    const struct kind *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

static void print_kind(const struct kind *k, const struct bench_row *r, double all_ns, struct text *out)
{
    double seconds = k->ns * 1e-9 / r->n_threads; // wall time, if all threads had worked on it all the time
    text_print(out, "  %-15s %-8s %12llu %10.2f %6.1f%%", op_name(k->op), k->type < 0 ? "" : dtype_info[k->type].name,
               (unsigned long long)(k->calls / (uint64_t)r->n), k->ns / 1e6 / r->n_threads / r->n,
               100 * k->ns / all_ns);
    if (k->bytes > 0)
        text_print(out, " %8.1f %9.1f", k->bytes * r->n / seconds / 1e9, k->products * r->n / seconds / 1e9);
    text_print(out, "\n");
}

static void print_title(const struct bench_row *r, struct text *out)
{
    char name[BENCH_NAME + 64];
    bench_name_and_test(r, TITLE_WIDTH, name);
    text_print(out, "\n%s by operation, one run,", name);
    if (r->gpu[0])
        text_print(out, "\nlaunch by launch on %s", r->gpu);
    else
        text_print(out, " %d threads", r->n_threads);
    text_print(out, "%s\n", r->test.n_depth ? "\n(times hold the depth too)" : "");
}

void bench_print_ops(const struct bench_row *r, int n_batch, const struct node_time *times, int n, double wait_ns,
                     struct text *out)
{
    struct kind *kinds = calloc(KINDS_MAX, sizeof *kinds);
    int n_kinds = 0;
    double all = wait_ns;
    if (!kinds) {
        out->failed = true;
        return;
    }
    for (int i = 0; i < n; i++) {
        if (!times[i].calls) // computed together with another node
            continue;
        struct sum sum = {times[i].node, kind_of(kinds, &n_kinds, times[i].node)};
        sum.kind->calls += times[i].calls;
        sum.kind->ns += times[i].ns;
        all += times[i].ns;
        bench_each_step(r, n_batch, add_cost, &sum);
    }
    qsort(kinds, (size_t)n_kinds, sizeof *kinds, by_time);
    print_title(r, out);
    text_print(out, "  %-15s %-8s %12s %10s %7s %8s %9s\n", "operation", "weights", "calls", "ms", "share", "GB/s",
               "GMAC/s");
    for (int i = 0; i < n_kinds; i++)
        print_kind(&kinds[i], r, all, out);
    if (!r->gpu[0])
        text_print(out, "  %-24s %12s %10.2f %6.1f%%\n", "waiting at barriers", "", wait_ns / 1e6 / r->n_threads / r->n,
                   100 * wait_ns / all);
    free(kinds);
}
