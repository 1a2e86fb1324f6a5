// Tests the lower bound of a step's cost against sums computed by hand.
#include "kernels/cost.h"

#include <criterion/criterion.h>
#include <math.h>

static struct weight matrix(const char *name, enum dtype type, int64_t columns, int64_t rows, int64_t n)
{
    return (struct weight){
        .name = name, .type = type, .ne = {columns, rows, n}, .row_bytes = dtype_row_bytes(type, columns)};
}

static const struct cost_step one = {1, 1, 1, 0, {DT_F16, DT_F16}};

Test(cost, a_matrix_is_read_once_a_step_and_multiplied_once_a_row)
{
    struct weight table = matrix("t", DT_F16, 256, 100, 1), w = matrix("w", DT_Q4_K, 256, 64, 1);
    struct graph *g = graph_new();
    struct tensor *x = graph_embed(g, "x", &table, INPUT_TOKENS, 1);
    struct tensor *y = graph_matmul(g, "y", x, &w, NULL);
    struct error err;
    cr_assert_eq(graph_finish(g, graph_output_rows(g, "out", y), &err), 0, "%s", err.text);
    struct cost_step many = one;
    many.n_tokens = 10;
    cr_expect_eq(cost_of_node(y, &one).bytes, 64 * 144);
    cr_expect_eq(cost_of_node(y, &many).bytes, 64 * 144);
    cr_expect_eq(cost_of_node(y, &one).products, 64 * 256);
    cr_expect_eq(cost_of_node(y, &many).products, 10 * 64 * 256);
    cr_expect_eq(cost_of_graph(g, &many).bytes, 64 * 144 + 10 * 512);
    graph_free(g);
}

// 4 query heads over 2 KV heads of 32, keys and values in 16 bits: a position holds 2 * (64 + 64) bytes.
static struct tensor *attention(struct graph *g, struct weight *table, int window)
{
    *table = matrix("t", DT_F32, 128, 100, 1);
    struct tensor *x = graph_embed(g, "x", table, INPUT_TOKENS, 1);
    static struct weight kv;
    kv = matrix("kv", DT_F32, 128, 64, 1);
    struct tensor *k = graph_matmul(g, "k", x, &kv, NULL);
    int layer = graph_kv_layer(g, 2, 32, 32);
    struct tensor *key = graph_kv_write(g, "key", k, layer, KV_KEY);
    struct tensor *value = graph_kv_write(g, "value", k, layer, KV_VALUE);
    return graph_attention(g, "a", x, key, value, (struct attention_params){.n_head = 4, .scale = 1, .window = window});
}

Test(cost, attention_reads_the_positions_that_its_rows_see)
{
    struct weight table;
    struct graph *g = graph_new();
    struct tensor *a = attention(g, &table, 0);
    struct cost_step s = {3, 1, 1, 10, {DT_F16, DT_F16}};
    cr_assert(a, "%s", g->fault.text);
    cr_expect_eq(cost_of_node(a, &s).bytes, 13 * 2 * 128);
    cr_expect_eq(cost_of_node(a, &s).products, (11 + 12 + 13) * 4 * 64);
    struct cost_step two = {2, 2, 2, 10, {DT_F16, DT_F16}};
    cr_expect_eq(cost_of_node(a, &two).bytes, 2 * 11 * 2 * 128);
    cr_expect_eq(cost_of_node(a, &two).products, 2 * 11 * 4 * 64);
    graph_free(g);
}

Test(cost, a_window_bounds_what_is_seen)
{
    struct weight table;
    struct graph *g = graph_new();
    struct tensor *a = attention(g, &table, 4);
    for (int depth = 0; depth < 9; depth++)
        for (int rows = 1; rows < 9; rows++) {
            struct cost_step s = {rows, 1, 1, depth, {DT_F16, DT_F16}};
            double seen = 0;
            for (int i = 0; i < rows; i++)
                seen += fmin(depth + i + 1, 4);
            cr_expect_eq(cost_of_node(a, &s).products, seen * 4 * 64, "depth %d, %d rows", depth, rows);
            cr_expect_eq(cost_of_node(a, &s).bytes, fmin(depth + rows, 3 + rows) * 2 * 128);
        }
    graph_free(g);
}

Test(cost, a_chunk_bounds_what_is_seen)
{
    struct weight table;
    struct graph *g = graph_new();
    struct tensor *a = attention(g, &table, 4);
    struct tensor chunked = *a;
    chunked.p.attn.chunked = true;
    for (int depth = 0; depth < 9; depth++)
        for (int rows = 1; rows < 9; rows++) {
            struct cost_step s = {rows, 1, 1, depth, {DT_F16, DT_F16}};
            double seen = 0;
            for (int i = depth; i < depth + rows; i++)
                seen += i % 4 + 1;
            cr_expect_eq(cost_of_node(&chunked, &s).products, seen * 4 * 64, "depth %d, %d rows", depth, rows);
            cr_expect_eq(cost_of_node(&chunked, &s).bytes, (depth % 4 + rows) * 2 * 128);
        }
    graph_free(g);
}
