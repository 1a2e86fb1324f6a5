// Tests graphs: what they accept, what they refuse with which message; the layout of KV pages; the checks of graphs and
// steps.
#include "kernels/machine.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// ---- Weights without data: a graph does not look at it

static struct weight matrices(const char *name, enum dtype type, int64_t k, int64_t rows, int64_t n)
{
    return (struct weight){.name = name, .type = type, .ne = {k, rows, n}, .row_bytes = dtype_row_bytes(type, k)};
}
static struct weight matrix(const char *name, int64_t k, int64_t rows)
{
    return matrices(name, DT_F32, k, rows, 1);
}
static struct weight vector(const char *name, int64_t n)
{
    return matrices(name, DT_F32, n, 1, 1);
}

static struct weight table, square, gain, experts, positions;

// A graph whose value x, made from tokens, has 64 columns; `weird` weights are made by the tests.
static struct graph *g;
static struct tensor *x;

static void setup(void)
{
    table = matrix("token_embd.weight", 64, 100);
    square = matrix("w.weight", 64, 64);
    gain = vector("norm.weight", 64);
    experts = matrices("exps.weight", DT_F32, 64, 32, 8);
    positions = matrix("position_embd.weight", 64, 512);
    g = graph_new();
    x = graph_embed(g, "embd", &table, INPUT_TOKENS, 1);
    cr_assert_not_null(x);
}

static void teardown(void)
{
    graph_free(g);
}

TestSuite(graph, .init = setup, .fini = teardown);
TestSuite(graph_refuses, .init = setup, .fini = teardown);
TestSuite(kv, .init = setup, .fini = teardown);
TestSuite(step, .init = setup, .fini = teardown);

static struct tensor *outputs(void)
{
    return graph_output_rows(g, "out", x);
}

static int finish(struct error *err)
{
    return graph_finish(g, outputs(), err);
}

// ---- What it accepts

Test(graph, an_operation_knows_its_shape)
{
    struct tensor *out = outputs();
    struct weight wide = matrix("wide.weight", 64, 192), bias = vector("wide.bias", 192);
    struct tensor *y = graph_matmul(g, "y", x, &wide, &bias), *z = graph_matmul(g, "z", out, &wide, NULL);
    cr_assert_eq(x->width, 64);
    cr_assert_eq(x->rows, ROWS_TOKENS);
    cr_assert_eq(out->rows, ROWS_OUTPUTS);
    cr_assert_eq(y->width, 192);
    cr_assert_eq(y->rows, ROWS_TOKENS);
    cr_assert_eq(y->src[0], x);
    cr_assert_eq(y->w[0], &wide);
    cr_assert_eq(y->w[1], &bias);
    cr_assert_eq(z->rows, ROWS_OUTPUTS);
    cr_assert_null(z->w[1]);
    cr_assert_eq(graph_norm(g, "n", y, &gain, NULL, NORM_RMS, 1e-5f, 64)->width, 192, "a gain for each group of 64");
}

Test(graph, attention_takes_its_shape_from_the_kv_layer)
{
    int kv = graph_kv_layer(g, 2, 16, 8);
    struct weight half = matrix("half.weight", 64, 32), quarter = matrix("quarter.weight", 64, 16);
    struct tensor *k = graph_kv_write(g, "k", graph_matmul(g, "xk", x, &half, NULL), kv, KV_KEY);
    struct tensor *v = graph_kv_write(g, "v", graph_matmul(g, "xv", x, &quarter, NULL), kv, KV_VALUE);
    struct tensor *a = graph_attention(g, "a", x, k, v, (struct attention_params){.n_head = 4, .scale = 0.25f});
    cr_assert_not_null(a, "%s", g->fault.text);
    cr_assert_eq(a->width, 4 * 8);
    cr_assert_eq(k->width, 0);
    cr_assert_eq(k->p.kv.head_dim, 16);
    cr_assert_eq(v->p.kv.head_dim, 8);
    cr_assert_eq(a->p.attn.dim_k, 16);
    cr_assert_eq(a->p.attn.dim_v, 8);
    cr_assert_eq(a->p.attn.n_head_kv, 2);
}

Test(graph, experts_take_one_row_for_all_or_one_each)
{
    struct weight router = matrix("router.weight", 64, 8), down = matrices("down.weight", DT_F32, 32, 64, 8);
    struct tensor *scores = graph_matmul(g, "logits", x, &router, NULL);
    struct tensor *route =
        graph_route(g, "route", scores, NULL, (struct route_params){ROUTE_SOFTMAX, 2, true, 1, 0, 0});
    struct tensor *up = graph_expert_matmul(g, "up", x, &experts, NULL, route);
    struct tensor *back = graph_expert_matmul(g, "down", up, &down, NULL, route);
    struct tensor *sum = graph_expert_combine(g, "sum", back, route);
    cr_assert_not_null(sum, "%s", g->fault.text);
    cr_assert_eq(route->width, 4);
    cr_assert(up->p.expert.shared);
    cr_assert_eq(up->width, 2 * 32);
    cr_assert_not(back->p.expert.shared);
    cr_assert_eq(back->width, 2 * 64);
    cr_assert_eq(sum->width, 64);
}

Test(graph, nodes_are_named_by_layer)
{
    graph_layer(g, 12);
    cr_assert_str_eq(graph_act(g, "act", x, ACT_SILU)->name, "blk.12.act");
    graph_layer(g, INT_MAX);
    cr_assert_str_eq(graph_act(g, "act", x, ACT_SILU)->name, "blk.2147483647.act");
    graph_layer(g, -1);
    cr_assert_str_eq(graph_act(g, "act", x, ACT_SILU)->name, "act");
}

Test(graph, frequencies_are_copied)
{
    double freq[2] = {1, 0.5};
    struct tensor *t = graph_rope_table(g, "rope", 2, freq, 1);
    freq[1] = 7;
    cr_assert_eq(t->p.rope_table.inv_freq[1], 0.5);
    cr_assert_eq(t->width, 4);
}

Test(graph, finish_gathers_what_steps_are_held_against)
{
    struct error err;
    struct tensor *p = graph_embed(g, "positions", &positions, INPUT_POSITIONS, 1);
    struct weight small = matrix("small.weight", 64, 90);
    graph_embed(g, "again", &small, INPUT_TOKENS, 1);
    cr_assert_eq(graph_finish(g, graph_output_rows(g, "out", graph_add(g, "sum", x, p)), &err), 0);
    cr_assert_eq(g->token_rows, 90);
    cr_assert_eq(g->position_rows, 512);
    cr_assert_eq(g->window, 0);
}

static int attention_layer(const char *name, int window)
{
    char names[3][32];
    int kv = graph_kv_layer(g, 4, 16, 16);
    for (int i = 0; i < 3; i++)
        snprintf(names[i], sizeof(names[i]), "%s_%d", name, i);
    struct tensor *k = graph_kv_write(g, names[0], x, kv, KV_KEY), *v = graph_kv_write(g, names[1], x, kv, KV_VALUE);
    struct attention_params p = {.n_head = 4, .scale = 0.25f, .window = window};
    cr_assert_not_null(graph_attention(g, names[2], x, k, v, p), "%s", g->fault.text);
    return kv;
}

Test(graph, the_window_is_that_of_the_layer_which_looks_farthest)
{
    struct error err;
    attention_layer("a", 100);
    attention_layer("b", 300);
    cr_assert_eq(finish(&err), 0, "%s", err.text);
    cr_assert_eq(g->window, 300);
}

Test(graph, a_layer_without_window_looks_back_to_the_start)
{
    struct error err;
    attention_layer("a", 100);
    attention_layer("b", 0);
    cr_assert_eq(finish(&err), 0, "%s", err.text);
    cr_assert_eq(g->window, 0);
}

Test(graph, holds_more_nodes_than_its_first_room)
{
    struct error err;
    for (int i = 0; i < 1000; i++) {
        graph_layer(g, i);
        x = graph_scale(g, "s", x, 2);
        cr_assert_eq(graph_kv_layer(g, 1, 1, 1), i);
    }
    cr_assert_eq(x->id, 1000);
    cr_assert_str_eq(g->nodes[500]->name, "blk.499.s");
    cr_assert_eq(finish(&err), -1);
    cr_assert_str_eq(err.text, "KV layer 0: its keys are never written");
}

Test(graph, a_weight_is_cut_by_rows)
{
    static const float data[6][4];
    struct weight w = matrix("qkv.weight", 4, 6);
    w.data = data;
    struct weight part = weight_rows(&w, 2, 3);
    cr_assert_eq(part.data, (const void *)data[2]);
    cr_assert_eq(part.ne[0], 4);
    cr_assert_eq(part.ne[1], 3);
    cr_assert_str_eq(part.name, "qkv.weight");
    cr_assert_eq(weight_rows(&w, 0, 6).ne[1], 6);
    w.data = NULL;
    cr_assert_null(weight_rows(&w, 2, 3).data, "a file opened without its tensors has no data to cut");
}

Test(graph, rows_that_a_weight_lacks_are_none)
{
    struct weight w = matrix("qkv.weight", 4, 6);
    cr_assert_eq(weight_rows(&w, 4, 3).ne[1], 0);
    cr_assert_eq(weight_rows(&w, -1, 3).ne[1], 0);
    cr_assert_eq(weight_rows(&w, 0, 0).ne[1], 0);
    cr_assert_eq(weight_rows(&w, 0, -1).ne[1], 0);
    cr_assert_eq(weight_rows(&w, INT64_MAX, 1).ne[1], 0);
    cr_assert_eq(weight_rows(&w, 1, INT64_MAX).ne[1], 0);
    cr_assert_eq(weight_rows(&experts, 0, 1).ne[1], 0, "rows of experts do not lie together");
}

Test(graph, each_of_many_matrices_is_cut_by_rows)
{
    static const float data[3][6][4];
    struct weight w = matrices("gate_up.weight", DT_F32, 4, 6, 3);
    w.data = data;
    struct weight part = weight_rows_of_each(&w, 2, 3), inner = weight_rows_of_each(&part, 1, 2);
    cr_assert(part.data == data[0][2] && part.ne[1] == 3 && part.ne[2] == 3);
    cr_assert_eq(weight_row_number(&part, 2, 1), 13);
    cr_assert(inner.data == data[0][3] && inner.ne[1] == 2);
    cr_assert_eq(weight_row_number(&inner, 2, 1), 13);
    cr_assert_eq(weight_row_number(&w, 2, 1), 13);
    cr_assert_eq(weight_rows_of_each(&part, 1, 3).ne[1], 0);
}

// ---- What it refuses

static void expect_fault(const char *text)
{
    struct error err = {0};
    cr_assert_eq(finish(&err), -1, "not refused: wanted was \"%s\"", text);
    cr_assert_eq(err.code, E_MODEL);
    cr_assert_str_eq(err.text, text);
}

#define REFUSES(what, text, ...)                                                                                       \
    Test(graph_refuses, what)                                                                                          \
    {                                                                                                                  \
        graph_layer(g, 3);                                                                                             \
        __VA_ARGS__;                                                                                                   \
        expect_fault(text);                                                                                            \
    }

Test(graph_refuses, only_its_first_fault_is_kept_and_all_later_calls_do_nothing)
{
    struct weight narrow = matrix("narrow.weight", 32, 64);
    double one = 1;
    int before = g->n_nodes;
    struct tensor *bad = graph_matmul(g, "first", x, &narrow, NULL);
    cr_assert_null(bad);
    cr_assert_null(graph_matmul(g, "second", bad, &square, NULL));
    cr_assert_null(graph_embed(g, "e", &table, INPUT_TOKENS, 1));
    cr_assert_null(graph_output_rows(g, "o", x));
    cr_assert_null(graph_norm(g, "n", x, NULL, NULL, NORM_RMS, 0, 0));
    cr_assert_null(graph_rope_table(g, "t", 1, &one, 1));
    cr_assert_null(graph_rope(g, "r", x, x, 64, ROPE_NORM));
    cr_assert_eq(graph_kv_layer(g, 1, 1, 1), -1);
    cr_assert_null(graph_kv_write(g, "k", x, 0, KV_KEY));
    cr_assert_null(graph_attention(g, "a", x, x, x, (struct attention_params){0}));
    cr_assert_null(graph_act(g, "act", bad, ACT_SILU));
    cr_assert_null(graph_glu(g, "glu", bad, x, ACT_SILU));
    cr_assert_null(graph_add(g, "add", x, bad));
    cr_assert_null(graph_scale(g, "s", x, 1));
    cr_assert_null(graph_softcap(g, "c", x, 1));
    cr_assert_null(graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SOFTMAX, 1, false, 1, 0, 0}));
    cr_assert_null(graph_expert_matmul(g, "em", x, &experts, NULL, bad));
    cr_assert_null(graph_expert_combine(g, "ec", x, bad));
    cr_assert_eq(g->n_nodes, before);
    expect_fault("first: weight narrow.weight (32, 64) does not fit embd of 64 columns");
}

static struct weight w;

REFUSES(a_missing_weight, "blk.3.attn_q: its weight is missing", graph_matmul(g, "attn_q", x, NULL, NULL))
REFUSES(a_weight_of_another_length,
        "blk.3.attn_q: weight blk.3.attn_q.weight (128, 64) does not fit embd of 64 columns",
        w = matrix("blk.3.attn_q.weight", 128, 64), graph_matmul(g, "attn_q", x, &w, NULL))
REFUSES(experts_where_one_matrix_is_wanted, "blk.3.up: weight exps.weight (64, 32, 8) holds 8 matrices, wanted are 1",
        graph_matmul(g, "up", x, &experts, NULL))
REFUSES(a_type_that_does_not_decode, "blk.3.y: weight ids (64, 64) is of type I32, which no operation takes",
        w = matrices("ids", DT_I32, 64, 64, 1), graph_matmul(g, "y", x, &w, NULL))
REFUSES(rows_of_broken_blocks, "blk.3.y: rows of weight w (64, 64) are no whole blocks of Q4_K",
        w = matrices("w", DT_Q4_K, 64, 64, 1), graph_matmul(g, "y", x, &w, NULL))
REFUSES(rows_that_are_not_packed, "blk.3.y: rows of weight w (64, 64) are no whole blocks of F32",
        w = matrix("w", 64, 64), w.row_bytes += 4, graph_matmul(g, "y", x, &w, NULL))
REFUSES(a_weight_without_rows, "blk.3.y: weight w.weight (64, 0) has a size out of range",
        w = weight_rows(&square, 60, 5), graph_matmul(g, "y", x, &w, NULL))
REFUSES(an_absurd_weight, "blk.3.y: weight w (64, 9223372036854775807) has a size out of range",
        w = matrix("w", 64, INT64_MAX), graph_matmul(g, "y", x, &w, NULL))
REFUSES(a_name_that_a_terminal_would_obey, "blk.3.y: weight \\x1B[2J (8, 8) does not fit embd of 64 columns",
        w = matrix("\x1b[2J", 8, 8), graph_matmul(g, "y", x, &w, NULL))
REFUSES(a_bias_of_another_length, "blk.3.y: vector b (32), wanted are 64 elements", w = vector("b", 32),
        graph_matmul(g, "y", x, &square, &w))
REFUSES(a_bias_that_is_a_matrix, "blk.3.y: vector b (64, 2), wanted are 64 elements", w = matrix("b", 64, 2),
        graph_matmul(g, "y", x, &square, &w))
REFUSES(a_bias_that_is_not_f32, "blk.3.y: vector b (64) is of type F16, wanted is F32",
        w = matrices("b", DT_F16, 64, 1, 1), graph_matmul(g, "y", x, &square, &w))
REFUSES(a_source_that_is_no_value, "blk.3.y: source 0 is no value of this graph", graph_act(g, "y", NULL, ACT_SILU))
REFUSES(a_source_of_another_graph, "blk.3.y: source 1 is no value of this graph", struct tensor other = {.id = 0};
        graph_add(g, "y", x, &other))
REFUSES(a_table_of_experts, "blk.3.e: weight exps.weight (64, 32, 8) holds 8 matrices, wanted are 1",
        graph_embed(g, "e", &experts, INPUT_TOKENS, 1))
REFUSES(a_scale_that_is_no_number, "blk.3.e: scale of nan is out of range",
        graph_embed(g, "e", &table, INPUT_TOKENS, NAN))
REFUSES(outputs_of_outputs, "again: out has rows of outputs, wanted are rows of tokens", graph_layer(g, -1);
        graph_output_rows(g, "again", outputs()))
REFUSES(a_gain_of_another_length, "blk.3.n: vector part (48), wanted are 32 elements",
        struct weight part = vector("part", 48);
        graph_norm(g, "n", x, &part, NULL, NORM_RMS, 1e-5f, 32))
REFUSES(groups_that_do_not_divide, "blk.3.n: embd has 64 columns, no multiple of groups of 48",
        graph_norm(g, "n", x, NULL, NULL, NORM_RMS, 1e-5f, 48))
REFUSES(groups_below_zero, "blk.3.n: embd has 64 columns, no multiple of groups of -1",
        graph_norm(g, "n", x, NULL, NULL, NORM_RMS, 1e-5f, -1))
REFUSES(a_negative_eps, "blk.3.n: eps of -1 is out of range", graph_norm(g, "n", x, NULL, NULL, NORM_RMS, -1, 0))
REFUSES(no_pairs, "blk.3.t: 0 pairs are out of range", graph_rope_table(g, "t", 0, (double[]){1}, 1))
REFUSES(a_frequency_that_is_no_number, "blk.3.t: frequency 1 is inf",
        graph_rope_table(g, "t", 2, (double[]){1, INFINITY}, 1))
REFUSES(heads_that_do_not_divide, "blk.3.r: embd has 64 columns, no multiple of heads of 24",
        graph_rope(g, "r", x, graph_rope_table(g, "t", 2, (double[]){1, 2}, 1), 24, ROPE_NORM))
REFUSES(a_head_of_nothing, "blk.3.r: embd has 64 columns, no multiple of heads of 0",
        graph_rope(g, "r", x, graph_rope_table(g, "t", 1, (double[]){1}, 1), 0, ROPE_NORM))
REFUSES(a_table_wider_than_a_head, "blk.3.r: blk.3.t turns 4 columns, a head has 2",
        graph_rope(g, "r", x, graph_rope_table(g, "t", 2, (double[]){1, 2}, 1), 2, ROPE_NORM))
REFUSES(a_value_where_a_rope_table_is_wanted, "blk.3.r: source embd is the result of embed, wanted is rope_table",
        graph_rope(g, "r", x, x, 16, ROPE_NORM))
REFUSES(a_rope_table_where_a_value_is_wanted,
        "blk.3.y: source blk.3.t is the result of rope_table, wanted is a plain value",
        graph_act(g, "y", graph_rope_table(g, "t", 1, (double[]){1}, 1), ACT_SILU))
REFUSES(values_of_different_widths, "blk.3.y: embd has 64 columns, blk.3.e has 32", w = matrix("w", 32, 100),
        graph_add(g, "y", x, graph_embed(g, "e", &w, INPUT_TOKENS, 1)))
REFUSES(gates_of_different_widths, "blk.3.y: embd has 64 columns, blk.3.e has 32", w = matrix("w", 32, 100),
        graph_glu(g, "y", x, graph_embed(g, "e", &w, INPUT_TOKENS, 1), ACT_SILU))
REFUSES(a_part_beyond_the_columns, "blk.3.y: 64 columns of blk.3.e from 37 on are wanted, it has 100",
        w = matrix("w", 100, 100), graph_glu_from(g, "y", x, graph_embed(g, "e", &w, INPUT_TOKENS, 1), ACT_SILU, 37))
REFUSES(a_part_before_the_columns, "blk.3.y: 64 columns of embd from -1 on are wanted, it has 64",
        graph_glu_from(g, "y", x, x, ACT_SILU, -1))
REFUSES(tokens_added_to_outputs, "blk.3.y: embd has rows of tokens, blk.3.o of outputs",
        graph_add(g, "y", x, graph_output_rows(g, "o", x)))
REFUSES(a_factor_that_is_infinite, "blk.3.y: factor of inf is out of range", graph_scale(g, "y", x, INFINITY))
REFUSES(a_cap_of_nothing, "blk.3.y: cap of 0 is out of range", graph_softcap(g, "y", x, 0))
REFUSES(a_kv_layer_without_heads, "blk.3.attention: 0 KV heads of 16 and 16 columns are out of range",
        graph_kv_layer(g, 0, 16, 16))
REFUSES(an_absurd_kv_layer, "blk.3.attention: 2147483647 KV heads of 2147483647 and 1 columns are out of range",
        graph_kv_layer(g, INT_MAX, INT_MAX, 1))
REFUSES(a_kv_layer_of_too_wide_heads, "blk.3.attention: 1 KV heads of 1024 and 1025 columns are out of range",
        graph_kv_layer(g, 1, 1024, 1025))
REFUSES(a_kv_layer_that_is_not_there, "blk.3.k: there is no KV layer 0", graph_kv_write(g, "k", x, 0, KV_KEY))
REFUSES(a_key_of_another_width, "blk.3.k: embd has 64 columns, the KV layer 2 heads of 16",
        graph_kv_write(g, "k", x, graph_kv_layer(g, 2, 16, 32), KV_KEY))

// Keys and values of 4 heads of 16 in layer 0.
static struct tensor *key, *value;
static void write_kv(void)
{
    int kv = graph_kv_layer(g, 4, 16, 16);
    key = graph_kv_write(g, "k", x, kv, KV_KEY);
    value = graph_kv_write(g, "v", x, kv, KV_VALUE);
}
static struct tensor *attend(struct tensor *q, int n_head)
{
    return graph_attention(g, "a", q, key, value, (struct attention_params){.n_head = n_head, .scale = 1});
}

REFUSES(keys_and_values_swapped, "blk.3.a: blk.3.v writes values, wanted are keys", write_kv(),
        graph_attention(g, "a", x, value, key, (struct attention_params){.n_head = 4}))
REFUSES(keys_that_were_not_written, "blk.3.a: source embd is the result of embed, wanted is kv_write", write_kv(),
        graph_attention(g, "a", x, x, value, (struct attention_params){.n_head = 4}))
REFUSES(keys_and_values_of_two_layers, "blk.3.a: keys of KV layer 0, values of KV layer 1", write_kv(),
        value = graph_kv_write(g, "v1", x, graph_kv_layer(g, 4, 16, 16), KV_VALUE), attend(x, 4))
REFUSES(heads_that_share_unevenly, "blk.3.a: 6 heads are no multiple of 4 KV heads", write_kv(), attend(x, 6))
REFUSES(no_heads, "blk.3.a: 0 heads are no multiple of 4 KV heads", write_kv(), attend(x, 0))
REFUSES(queries_of_another_width, "blk.3.a: embd has 64 columns, wanted are 8 heads of 16", write_kv(), attend(x, 8))
REFUSES(queries_of_outputs, "blk.3.a: blk.3.o has rows of outputs, wanted are rows of tokens", write_kv(),
        attend(graph_output_rows(g, "o", x), 4))
REFUSES(a_negative_window, "blk.3.a: a window of -1 is out of range", write_kv(),
        graph_attention(g, "a", x, key, value, (struct attention_params){.n_head = 4, .scale = 1, .window = -1}))
REFUSES(chunks_without_a_size, "blk.3.a: a window of 0 is out of range", write_kv(),
        graph_attention(g, "a", x, key, value, (struct attention_params){.n_head = 4, .scale = 1, .chunked = true}))
REFUSES(sinks_of_other_heads, "blk.3.a: vector b (5), wanted are 4 elements", write_kv(), w = vector("b", 5),
        graph_attention(g, "a", x, key, value, (struct attention_params){.n_head = 4, .scale = 1, .sinks = &w}))
REFUSES(a_negative_softcap, "blk.3.a: softcap of -1 is out of range", write_kv(),
        graph_attention(g, "a", x, key, value, (struct attention_params){.n_head = 4, .scale = 1, .softcap = -1}))
REFUSES(a_kv_write_where_a_value_is_wanted,
        "blk.3.y: source blk.3.k is the result of kv_write, wanted is a plain value", write_kv(),
        graph_act(g, "y", key, ACT_SILU))
REFUSES(a_layer_written_twice, "blk.3.k2: blk.3.k has written this part of KV layer 0", write_kv(),
        graph_kv_write(g, "k2", x, 0, KV_KEY))
REFUSES(values_that_are_never_written, "KV layer 0: its values are never written",
        graph_kv_write(g, "k", x, graph_kv_layer(g, 4, 16, 16), KV_KEY))

REFUSES(values_of_a_layer_of_keys, "blk.3.v: KV layer 0 stores keys alone",
        graph_kv_write(g, "v", x, graph_kv_layer_of_keys(g, 4, 16, 16), KV_VALUE))
REFUSES(values_longer_than_their_keys, "blk.3.attention: 1 KV heads of 64 and 65 columns are out of range",
        graph_kv_layer_of_keys(g, 1, 64, 65))
REFUSES(a_route_to_no_heads, "blk.3.route: 0 experts", graph_route_each(g, "route", x, 0))
REFUSES(a_route_without_logits_by_logits, "blk.3.route: a route of this kind has no logits",
        graph_route(g, "route", x, NULL, (struct route_params){ROUTE_EACH, 2, true, 1, 0, 0}))
REFUSES(parts_that_do_not_join, "blk.3.y: 16 columns of each of embd, which has 64, and 15 of embd, which has 64",
        graph_join(g, "y", x, 16, x, 15))
REFUSES(parts_of_nothing, "blk.3.y: 0 columns of each of embd, which has 64, and 64 of embd, which has 64",
        graph_join(g, "y", x, 0, x, 64))
REFUSES(more_experts_than_there_are, "blk.3.route: 65 experts used of 64",
        graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SOFTMAX, 65, true, 1, 0, 0}))
REFUSES(a_period_of_nothing, "blk.3.t: a period of 0, from 1 on, is out of range",
        graph_growing_rope_table(g, "t", 1, (double[]){1}, 1, 0.1f, 0, 1))
REFUSES(groups_of_one_expert, "blk.3.route: 64 experts in 64 groups",
        graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SOFTMAX, 2, true, 1, 64, 8}))
REFUSES(groups_that_share_experts, "blk.3.route: 64 experts in 5 groups",
        graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SOFTMAX, 2, true, 1, 5, 2}))
REFUSES(more_groups_than_there_are, "blk.3.route: 9 groups used of 8",
        graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SOFTMAX, 2, true, 1, 8, 9}))
REFUSES(too_few_experts_in_groups, "blk.3.route: 9 experts used of 1 groups of 8",
        graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SOFTMAX, 9, true, 1, 8, 1}))
REFUSES(biases_of_other_experts, "blk.3.route: vector b (65), wanted are 64 elements", w = vector("b", 65),
        graph_route(g, "route", x, &w, (struct route_params){ROUTE_SOFTMAX, 2, true, 1, 0, 0}))
REFUSES(a_clamped_gate_without_a_factor, "blk.3.y: a clamped SwiGLU has two sources",
        graph_act(g, "y", x, ACT_SWIGLU_CLAMPED))
REFUSES(no_experts, "blk.3.route: 0 experts used of 64",
        graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SOFTMAX, 0, true, 1, 0, 0}))
REFUSES(a_route_where_a_value_is_wanted, "blk.3.y: source blk.3.route is the result of route, wanted is a plain value",
        graph_act(g, "y", graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SOFTMAX, 2, true, 1, 0, 0}),
                  ACT_SILU))
REFUSES(another_number_of_experts, "blk.3.up: weight exps.weight (64, 32, 8) holds 8 matrices, wanted are 64",
        graph_expert_matmul(g, "up", x, &experts, NULL,
                            graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SOFTMAX, 2, true, 1, 0, 0})))
REFUSES(a_scale_a_matrix_where_no_experts_are, "blk.3.y: weight w (64, 64) has scales, which expert_matmul alone takes",
        w = matrix("w", 64, 64);
        w.scale = (const float[]){2}; graph_matmul(g, "y", x, &w, NULL))
REFUSES(biases_of_too_few_experts, "blk.3.up: vector b (32, 7), wanted are 32 elements for each expert",
        w = matrix("b", 32, 7);
        const struct weight all = matrices("exps", DT_F32, 64, 32, 64);
        graph_expert_matmul(g, "up", x, &all, &w,
                            graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SOFTMAX, 2, true, 1, 0, 0})))
REFUSES(experts_of_another_length,
        "blk.3.up: weight exps (16, 32, 64) does not fit embd of 64 columns, shared or for 2 experts",
        w = matrices("exps", DT_F32, 16, 32, 64),
        graph_expert_matmul(g, "up", x, &w, NULL,
                            graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SOFTMAX, 2, true, 1, 0, 0})))
REFUSES(parts_that_do_not_divide, "blk.3.sum: embd has 64 columns, no multiple of 3 experts",
        graph_expert_combine(g, "sum", x,
                             graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SOFTMAX, 3, true, 1, 0, 0})))
REFUSES(a_row_without_bound, "blk.3.up: a row of 536870912 floats is out of range",
        w = matrices("exps", DT_F32, 64, 1 << 28, 64),
        graph_expert_matmul(g, "up", x, &w, NULL,
                            graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SOFTMAX, 2, true, 1, 0, 0})))

REFUSES(two_nodes_of_one_name, "blk.3.y: two nodes have this name", graph_act(g, "y", x, ACT_SILU),
        graph_act(g, "y", x, ACT_RELU))
Test(graph_refuses, logits_that_are_no_plain_rows_of_outputs)
{
    struct error err = {0};
    cr_assert_eq(graph_finish(g, x, &err), -1);
    cr_assert_str_eq(err.text, "embd: logits are plain rows of outputs, this is embed of tokens");
}

Test(graph_refuses, to_finish_without_logits)
{
    struct error err = {0};
    cr_assert_eq(graph_finish(g, NULL, &err), -1);
    cr_assert_str_eq(err.text, "the logits are no value of this graph");
    cr_assert_eq(graph_finish(g, NULL, NULL), -1);
}

// ---- As text

Test(graph, every_operation_has_a_name)
{
    for (int op = 0; op < OP_COUNT; op++)
        cr_assert_gt(strlen(op_name((enum op)op)), 1u);
    cr_assert_str_eq(op_name(OP_EXPERT_COMBINE), "expert_combine");
    cr_assert_str_eq(op_name(OP_COUNT), "?");
}

Test(graph, prints_a_line_a_node)
{
    w = matrices("w\x1b[1m", DT_Q4_0, 64, 64, 1);
    graph_layer(g, 0);
    double freq[2] = {1, 0.25};
    struct tensor *t = graph_rope_table(g, "rope", 2, freq, 1);
    write_kv();
    struct tensor *q = graph_rope(g, "q", graph_matmul(g, "xq", x, &w, &gain), t, 16, ROPE_NEOX);
    struct attention_params p = {.n_head = 4, .scale = 0.25f, .softcap = 50, .window = 128};
    struct tensor *a = graph_attention(g, "a", q, key, value, p);
    struct text out = {0};
    cr_assert_not_null(graph_add(g, "sum", a, x), "%s", g->fault.text);
    cr_assert_eq(graph_print(g, &out), 0);
    cr_assert_str_eq(
        out.data, "   0 embd                         embed          (tokens, 64) weight=token_embd.weight:F32(64,100) "
                  "by=token scale=1\n"
                  "   1 blk.0.rope                   rope_table     (tokens, 4) pairs=2 mscale=1 inv_freq=1..0.25\n"
                  "   2 blk.0.k                      kv_write       (tokens, 0) <- embd kv=0 key head=16\n"
                  "   3 blk.0.v                      kv_write       (tokens, 0) <- embd kv=0 value head=16\n"
                  "   4 blk.0.xq                     matmul         (tokens, 64) <- embd weight=w\\x1B[1m:Q4_0(64,64) "
                  "weight=norm.weight:F32(64)\n"
                  "   5 blk.0.q                      rope           (tokens, 64) <- blk.0.xq, blk.0.rope head=16 neox\n"
                  "   6 blk.0.a                      attention      (tokens, 64) <- blk.0.q, blk.0.k, blk.0.v "
                  "kv=0 heads=4/4 dims=16,16 scale=0.25 softcap=50 window=128\n"
                  "   7 blk.0.sum                    add            (tokens, 64) <- blk.0.a, embd\n");
    text_free(&out);
}

Test(graph, prints_the_parameters_of_all_operations)
{
    struct text out = {0};
    struct tensor *route = graph_route(g, "route", x, NULL, (struct route_params){ROUTE_SIGMOID, 2, true, 2.5f, 0, 0});
    w = matrices("up", DT_F16, 64, 32, 64);
    w.scale = &(const float){1};
    graph_expert_combine(g, "sum", graph_expert_matmul(g, "up", x, &w, NULL, route), route);
    graph_norm(g, "norm", x, NULL, NULL, NORM_LAYER, 1e-5f, 16);
    graph_glu(g, "glu", x, x, ACT_GELU_TANH);
    struct weight wide = matrix("wide", 100, 100);
    graph_glu_from(g, "part", x, graph_embed(g, "long", &wide, INPUT_TOKENS, 1), ACT_SILU, 36);
    struct weight b = vector("b", 64);
    struct tensor *chosen = graph_route(g, "chosen", x, &b, (struct route_params){ROUTE_SIGMOID, 2, false, 1, 8, 4});
    graph_expert_sum(g, "plain", graph_expert_weigh(g, "weighed", x, chosen), chosen);
    graph_growing_rope_table(g, "grown", 1, (double[]){0}, 1, 0.1f, 8192, 1);
    graph_glu(g, "clamped", x, x, ACT_SWIGLU_CLAMPED);
    graph_softcap(g, "cap", x, 30);
    graph_scale(g, "scale", x, 0.5f);
    graph_gain(g, "gain", graph_clamp(g, "clamp", x, 8), &b);
    cr_assert_eq(graph_print(g, &out), 0);
    static const char *const parts[] = {
        "route          (tokens, 4) <- embd sigmoid used=2 normalised scale=2.5\n",
        "expert_matmul  (tokens, 64) <- embd, route weight=up:F16(64,32,64)*scale used=2 shared\n",
        "expert_combine (tokens, 32) <- up, route used=2\n",
        "norm           (tokens, 64) <- embd layer eps=1e-05 group=16\n",
        "glu            (tokens, 64) <- embd, embd gelu_tanh\n",
        "glu            (tokens, 64) <- embd, long silu from=36\n",
        "route          (tokens, 4) <- embd weight=b:F32(64) sigmoid used=2 scale=1 groups=4/8\n",
        "expert_weigh   (tokens, 128) <- embd, chosen used=2\n",
        "expert_combine (tokens, 64) <- weighed, chosen used=2 plain\n",
        "rope_table     (tokens, 2) pairs=1 mscale=1 inv_freq=0..0 growth=0.1/8192+1\n",
        "glu            (tokens, 64) <- embd, embd swiglu_clamped\n",
        "softcap        (tokens, 64) <- embd cap=30\n",
        "scale          (tokens, 64) <- embd factor=0.5\n",
        "clamp          (tokens, 64) <- embd limit=8\n",
        "gain           (tokens, 64) <- clamp weight=b:F32(64)\n",
    };
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        cr_assert_not_null(strstr(out.data, parts[i]), "no \"%s\" in\n%s", parts[i], out.data);
    text_free(&out);
}

Test(text, grows_and_ends_in_nul)
{
    struct text t = {0};
    for (int i = 0; i < 10000; i++)
        text_print(&t, "%d,", i % 10);
    cr_assert_eq(t.size, 20000u);
    cr_assert_eq(strlen(t.data), t.size);
    cr_assert_eq(memcmp(t.data + 19990, "5,6,7,8,9,", 10), 0);
    cr_assert_not(t.failed);
    text_free(&t);
    cr_assert_null(t.data);
    text_free(&t);
}

Test(text, writes_names_without_controls)
{
    struct text t = {0};
    text_print_name(&t, "a\n\xC3\xA9\xE2\x80\xAE\xFFz");
    cr_assert_str_eq(t.data, "a\\x0A\xC3\xA9\\xE2\\x80\\xAE\\xFFz");
    text_free(&t);
}

Test(text, adds_nothing_after_a_failure)
{
    struct text t = {0};
    text_print(&t, "head");
    t.failed = true; // as when memory was short
    text_print(&t, "tail");
    cr_assert_str_eq(t.data, "head");
    text_free(&t);
}

// ---- KV pages

Test(kv, a_page_holds_all_layers_in_order)
{
    static const enum dtype f16_q8[2] = {DT_F16, DT_Q8_0};
    graph_kv_layer(g, 2, 16, 32);
    graph_kv_layer(g, 1, 8, 32);
    size_t key0 = 2 * 64 * 16 * 2, value0 = 2 * 64 * 34, key1 = 64 * 8 * 2, value1 = 64 * 34;
    cr_assert_eq(kv_layer_offset(g, f16_q8, 0, KV_KEY), 0u);
    cr_assert_eq(kv_layer_offset(g, f16_q8, 0, KV_VALUE), key0);
    cr_assert_eq(kv_layer_offset(g, f16_q8, 1, KV_KEY), key0 + value0);
    cr_assert_eq(kv_layer_offset(g, f16_q8, 1, KV_VALUE), key0 + value0 + key1);
    cr_assert_eq(kv_page_bytes(g, f16_q8), key0 + value0 + key1 + value1);
}

Test(kv, a_graph_without_attention_needs_no_pages)
{
    static const enum dtype f16[2] = {DT_F16, DT_F16};
    cr_assert_eq(kv_page_bytes(g, f16), 0u);
    cr_assert_eq(kv_check(g, f16, NULL), 0);
}

Test(kv, sizes_that_do_not_fit_are_not_wrapped)
{
    static const enum dtype f32[2] = {DT_F32, DT_F32};
    struct kv_layer *large = malloc(sizeof(*large) * (1 << 12));
    for (int i = 0; i < 1 << 12; i++)
        large[i] = (struct kv_layer){INT_MAX, INT_MAX, INT_MAX, false}; // more than a graph takes, to reach the checks
    struct graph many = {.kv = large, .n_kv = 1 << 12};
    struct error err;
    cr_assert_eq(kv_page_bytes(&many, f32), SIZE_MAX);
    cr_assert_eq(kv_layer_offset(&many, f32, 4000, KV_KEY), SIZE_MAX);
    cr_assert_eq(kv_check(&many, f32, &err), -1);
    cr_assert_eq(err.code, E_MEMORY);
    free(large);
}

Test(kv, types_must_be_of_a_cache_and_fit_the_heads)
{
    struct error err;
    graph_kv_layer(g, 2, 64, 64);
    graph_kv_layer(g, 2, 80, 32);
    static const enum dtype good[] = {DT_F32, DT_F16, DT_BF16};
    for (size_t i = 0; i < COUNT_OF(good); i++)
        cr_assert_eq(kv_check(g, (enum dtype[2]){good[i], DT_Q8_0}, &err), 0);
    cr_assert_eq(kv_check(g, (enum dtype[2]){DT_Q8_0, DT_F16}, &err), -1);
    cr_assert_eq(err.code, E_USAGE);
    cr_assert_str_eq(err.text, "the key cache cannot be of type Q8_0: attention layer 1 has heads of 80, no multiple "
                               "of 32; F16 takes any size");
    cr_assert_eq(kv_check(g, (enum dtype[2]){DT_F16, DT_Q4_K}, &err), -1);
    cr_assert_str_eq(err.text, "the value cache cannot be of type Q4_K: choose F32, F16, BF16, Q8_0 or Q4_0");
    cr_assert_eq(kv_check(g, (enum dtype[2]){DT_COUNT, DT_F16}, &err), -1);
}

// ---- Graphs and steps that a machine may serve

Test(step, a_plan_needs_a_finished_graph_with_data_and_bounds)
{
    static const float data[100 * 64];
    struct error err;
    struct compile_options o = {.max_tokens = 8, .max_outputs = 8, .kv_type = {DT_F16, DT_F16}};
    cr_assert_eq(compile_check(g, &o, &err), -1);
    cr_assert_str_eq(err.text, "this graph was never finished");
    cr_assert_eq(finish(&err), 0);
    cr_assert_eq(compile_check(g, &o, &err), -1);
    cr_assert_str_eq(err.text, "embd: the data of its weight is not loaded");
    table.data = data;
    cr_assert_eq(compile_check(g, &o, &err), 0);
    o.max_tokens = 0;
    cr_assert_eq(compile_check(g, &o, &err), -1);
    o.max_tokens = 8, o.max_outputs = -1;
    cr_assert_eq(compile_check(g, &o, &err), -1);
    o.max_outputs = 0, o.kv_type[1] = DT_Q6_K;
    cr_assert_eq(compile_check(g, &o, &err), -1);
    cr_assert_eq(err.code, E_USAGE);
}

static int32_t tokens[4], at[4], seqs[4], wanted[4], pages[2][3];
static float logits[4 * 64];
static const struct compile_options limits = {.max_tokens = 4, .max_outputs = 3, .kv_type = {DT_F16, DT_F16}};

// Two sequences of up to 3 pages, rows at the given window; a step that is good.
static struct step good_step(int window)
{
    struct error err;
    attention_layer("a", window);
    graph_embed(g, "positions", &positions, INPUT_POSITIONS, 1);
    cr_assert_eq(finish(&err), 0, "%s", err.text);
    memcpy(tokens, (int32_t[]){0, 99, 5, 6}, sizeof(tokens));
    memcpy(at, (int32_t[]){0, 1, 2, 130}, sizeof(at));
    memcpy(seqs, (int32_t[]){0, 0, 0, 1}, sizeof(seqs));
    memcpy(wanted, (int32_t[]){0, 2, 3, 0}, sizeof(wanted));
    memcpy(pages, (int32_t[2][3]){{4, -1, -1}, {1, 0, 7}}, sizeof(pages));
    struct step s = {.n_tokens = 4, .n_outputs = 3, .tokens = tokens, .positions = at, .seqs = seqs, .outputs = wanted};
    s.pages = pages[0];
    s.pages_stride = 3;
    s.kv = (struct buffer *)(uintptr_t)64; // is not looked into
    s.logits = logits;
    cr_assert_eq(step_check(g, &limits, &s, &err), 0, "%s", err.text);
    return s;
}

static void expect_refusal(const struct step *s, const char *text)
{
    struct error err = {0};
    cr_assert_eq(step_check(g, &limits, s, &err), -1, "not refused: wanted was \"%s\"", text);
    cr_assert_eq(err.code, E_USAGE);
    cr_assert_str_eq(err.text, text);
}

Test(step, counts_are_held_against_the_plan)
{
    struct step s = good_step(0);
    s.n_tokens = 0;
    expect_refusal(&s, "a step of 0 tokens; the plan takes 1 to 4");
    s.n_tokens = 5;
    expect_refusal(&s, "a step of 5 tokens; the plan takes 1 to 4");
    s.n_tokens = 4, s.n_outputs = 4;
    expect_refusal(&s, "a step of 4 outputs; the plan takes 0 to 3");
    s.n_outputs = -1;
    expect_refusal(&s, "a step of -1 outputs; the plan takes 0 to 3");
    s.n_outputs = 0, s.outputs = NULL, s.logits = NULL;
    cr_assert_eq(step_check(g, &limits, &s, NULL), 0, "no output needs no room for logits");
}

Test(step, arrays_must_be_there)
{
    struct step good = good_step(0);
#define LACKS(member, text)                                                                                            \
    do {                                                                                                               \
        struct step s = good;                                                                                          \
        s.member = 0;                                                                                                  \
        expect_refusal(&s, text);                                                                                      \
    } while (0)
    LACKS(tokens, "a step lacks one of its arrays");
    LACKS(positions, "a step lacks one of its arrays");
    LACKS(seqs, "a step lacks one of its arrays");
    LACKS(outputs, "a step lacks one of its arrays");
    LACKS(logits, "a step lacks one of its arrays");
    LACKS(kv, "a step lacks its KV cache or its page tables");
    LACKS(pages, "a step lacks its KV cache or its page tables");
    LACKS(pages_stride, "a step lacks its KV cache or its page tables");
#undef LACKS
}

Test(step, rows_are_held_against_the_tables)
{
    struct step s = good_step(0);
    tokens[1] = 100;
    expect_refusal(&s, "row 1: token 100 is not within the vocabulary of 100");
    tokens[1] = -1;
    expect_refusal(&s, "row 1: token -1 is not within the vocabulary of 100");
    tokens[1] = 0, at[2] = -1;
    expect_refusal(&s, "row 2: position -1 is out of range");
    at[2] = INT32_MAX;
    expect_refusal(&s, "row 2: position 2147483647 is out of range");
    at[2] = 512;
    expect_refusal(&s, "row 2: position 512; this model knows 512 positions, a smaller context would fit");
    at[2] = 192;
    expect_refusal(&s, "row 2: position 192 lies beyond its page table of 3 pages");
    at[2] = 2, seqs[0] = -1;
    expect_refusal(&s, "row 0: sequence -1 is negative");
}

Test(step, outputs_are_rows_that_ascend)
{
    struct step s = good_step(0);
    wanted[2] = 4;
    expect_refusal(&s, "output 2 is row 4 of 4");
    wanted[2] = -1;
    expect_refusal(&s, "output 2 is row -1 of 4");
    wanted[2] = 2;
    expect_refusal(&s, "output 2 is row 2, after row 2: rows must ascend");
}

Test(step, all_pages_that_a_row_reads_must_be_there)
{
    struct error err;
    struct step s = good_step(0);
    cr_assert_eq(step_check_pages(g, &s, 8, &err), 0);
    cr_assert_eq(step_check_pages(g, &s, 7, &err), -1);
    cr_assert_str_eq(err.text, "row 3: page 2 of sequence 1 is number 7 of 7");
    pages[1][0] = -1;
    expect_refusal(&s, "row 3: page 0 of sequence 1 is number -1 of 2147483648");
    pages[1][0] = 1, at[2] = 64; // the second page of sequence 0 is none
    expect_refusal(&s, "row 2: page 1 of sequence 0 is number -1 of 2147483648");
}

Test(step, pages_that_all_windows_have_passed_may_be_gone)
{
    struct step s = good_step(67); // position 130 sees 64 .. 130
    pages[1][0] = -1;
    cr_assert_eq(step_check(g, &limits, &s, NULL), 0);
    at[3] = 129;
    expect_refusal(&s, "row 3: page 0 of sequence 1 is number -1 of 2147483648");
}

Test(step, a_row_that_looks_farther_back_than_the_one_before_it_is_checked_too)
{
    struct step s = good_step(10);
    seqs[2] = 1;
    at[2] = 150; // sees the last page
    at[3] = 5;   // sees the first one
    pages[1][1] = -1;
    cr_assert_eq(step_check(g, &limits, &s, NULL), 0);
    pages[1][0] = -1;
    expect_refusal(&s, "row 3: page 0 of sequence 1 is number -1 of 2147483648");
}

Test(step, a_graph_without_attention_needs_no_cache)
{
    cr_assert_eq(finish(NULL), 0);
    int32_t zero = 0;
    struct step s = {.n_tokens = 1, .tokens = &zero, .positions = &zero, .seqs = &zero};
    cr_assert_eq(step_check(g, &limits, &s, NULL), 0);
}
