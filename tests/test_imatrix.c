// Tests taps and importance matrices: a tap on the CPU machine shows the values of the reference (ref.c), the sums of
// an importance matrix are those of its inputs, and its file is read back or refused.
#include "engine/quantize/importance_collector.h"
#include "engine/model.h"
#include "engine/session.h"
#include "engine/tap.h"
#include "gguf/writer.h"
#include "models/synth_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_TOKENS = 23, N_VOCAB = 300 };
static char folder[] = "/tmp/quern-imatrix-XXXXXX", dense[64], experts[64], file[64];
static int32_t tokens[N_TOKENS];

static void make(const char *preset, char *path)
{
    snprintf(path, 64, "%s/%s.gguf", folder, preset);
    struct synth_options o = {.preset = preset, .mix = "F32", .n_vocab = N_VOCAB, .seed = 11};
    struct error err;
    cr_assert_eq(synth_model_write(&o, path, &err), 0, "%s", err.text);
}

static void set_up(void)
{
    cr_assert(mkdtemp(folder));
    make("llama-tiny", dense);
    make("llama-moe-tiny", experts);
    snprintf(file, sizeof file, "%s/imatrix.gguf", folder);
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + 5) % N_VOCAB;
}

static void tear_down(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(imatrix, .init = set_up, .fini = tear_down, .timeout = 60);

static struct model *open_model(const char *path, enum device device, int n_threads)
{
    struct model *m;
    struct error err;
    struct model_options o = {.path = path, .device = device, .machine.n_threads = n_threads};
    cr_assert_eq(model_open(&m, &o, &err), 0, "%s", err.text);
    return m;
}

// All tokens, `n_batch` a step, with logits of each row, so that all rows go through all layers.
static void run(struct model *m, const struct taps *taps, int n_batch)
{
    struct session *s;
    struct error err;
    struct session_options o = {
        .n_ctx = 64, .n_batch = n_batch, .n_outputs = n_batch, .taps = taps, .kv_type = {DT_F32, DT_F32}};
    cr_assert_eq(session_open(&s, m, &o, &err), 0, "%s", err.text);
    for (int at = 0; at < N_TOKENS; at += n_batch) {
        struct session_row rows[N_TOKENS];
        int n = MIN(n_batch, N_TOKENS - at);
        for (int i = 0; i < n; i++)
            rows[i] = (struct session_row){tokens[at + i], 0, true};
        cr_assert_eq(session_step(s, rows, n, &err), 0, "%s", err.text);
    }
    session_close(s);
}

// --- taps ---

struct kept {
    float *rows;
    int n_rows;
    int64_t width;
};

static void keep(void *arg, const struct tensor *n, const float *rows, size_t stride, int n_rows)
{
    struct kept *k = (struct kept *)arg + n->id;
    k->width = n->width;
    k->rows = realloc(k->rows, (size_t)(k->n_rows + n_rows) * (size_t)n->width * sizeof(float));
    for (int i = 0; i < n_rows; i++)
        memcpy(k->rows + (k->n_rows + i) * n->width, rows + (size_t)i * stride, (size_t)n->width * sizeof(float));
    k->n_rows += n_rows;
}

// What all nodes held, by id.
static struct kept *see_all(struct model *m, int n_batch)
{
    struct kept *k = calloc((size_t)m->graph->n_nodes, sizeof *k);
    const char *names[512];
    int n = 0;
    for (int i = 0; i < m->graph->n_nodes && n < 512; i++)
        if (m->graph->nodes[i]->op != OP_KV_WRITE)
            names[n++] = m->graph->nodes[i]->name;
    struct tap *t;
    struct error err;
    cr_assert_eq(tap_open(&t, m->graph, names, n, keep, k, &err), 0, "%s", err.text);
    run(m, tap_taps(t), n_batch);
    cr_assert_eq(tap_finish(t, &err), 0);
    tap_close(t);
    return k;
}

static void free_kept(const struct model *m, struct kept *k)
{
    for (int i = 0; i < m->graph->n_nodes; i++)
        free(k[i].rows);
    free(k);
}

static void compare_node(const struct tensor *n, const struct kept *a, const struct kept *b, int n_batch)
{
    cr_assert(a->n_rows == N_TOKENS && b->n_rows == N_TOKENS && a->width == b->width, "%s: %d rows", n->name,
              a->n_rows);
    double worst = 0, top = 1e-6;
    int64_t floats = n->op == OP_ROUTE ? n->p.route.n_used : n->width; // the rest are ids
    for (int row = 0; row < N_TOKENS; row++)
        for (int64_t j = 0; j < floats; j++) {
            double x = a->rows[row * a->width + j], y = b->rows[row * a->width + j];
            worst = fmax(worst, fabs(x - y));
            top = fmax(top, fabs(y));
        }
    cr_expect_leq(worst, 1e-4 * top, "%s in steps of %d: %g off, of %g", n->name, n_batch, worst, top);
}

static void compare_taps(const char *path, int n_batch)
{
    struct model *cpu = open_model(path, DEVICE_CPU, 2), *ref = open_model(path, DEVICE_REF, 0);
    struct kept *a = see_all(cpu, n_batch), *b = see_all(ref, n_batch);
    for (int i = 0; i < cpu->graph->n_nodes; i++)
        if (cpu->graph->nodes[i]->op != OP_KV_WRITE)
            compare_node(cpu->graph->nodes[i], &a[i], &b[i], n_batch);
    // one alone, the others where they are without a tap
    struct kept *one = calloc((size_t)cpu->graph->n_nodes, sizeof *one);
    const char *name = "blk.0.ffn_glu";
    struct tap *t;
    struct error err;
    if (!tap_open(&t, cpu->graph, &name, 1, keep, one, &err)) {
        run(cpu, tap_taps(t), n_batch);
        for (int i = 0; i < cpu->graph->n_nodes; i++)
            if (one[i].rows)
                compare_node(cpu->graph->nodes[i], &one[i], &b[i], n_batch);
        tap_close(t);
    }
    free_kept(cpu, one);
    free_kept(cpu, a);
    free_kept(ref, b);
    model_close(cpu);
    model_close(ref);
}

Test(imatrix, a_tap_on_any_node_shows_what_the_law_computes)
{
    compare_taps(dense, 2);
    compare_taps(dense, N_TOKENS);
    compare_taps(experts, N_TOKENS);
}

Test(imatrix, taps_change_no_logits)
{
    struct model *m = open_model(dense, DEVICE_CPU, 2);
    struct kept *all = see_all(m, N_TOKENS), plain = all[m->graph->logits->id];
    const char *names[512];
    int n = 0;
    for (int i = 0; i < m->graph->n_nodes && n < 512; i++)
        if (m->graph->nodes[i]->op != OP_KV_WRITE && m->graph->nodes[i] != m->graph->logits)
            names[n++] = m->graph->nodes[i]->name;
    char path[80];
    snprintf(path, sizeof path, "%s=%s", m->graph->logits->name, file);
    names[n - 1] = path;
    struct tap *t;
    struct error err;
    cr_assert_eq(tap_open(&t, m->graph, names, n, NULL, NULL, &err), 0, "%s", err.text);
    run(m, tap_taps(t), N_TOKENS);
    cr_assert_eq(tap_finish(t, &err), 0, "%s", err.text);
    tap_close(t);
    FILE *f = fopen(file, "r");
    static float saved[N_TOKENS * N_VOCAB];
    char head[128];
    cr_assert(f && fread(head, 1, 128, f) == 128 && fread(saved, 4, N_TOKENS * N_VOCAB, f) == N_TOKENS * N_VOCAB);
    cr_expect_eq(fgetc(f), EOF);
    fclose(f);
    cr_expect(strstr(head + 10, "'shape': (23, 300)"), "%.100s", head + 10);
    cr_expect_arr_eq(saved, plain.rows, sizeof saved);
    free_kept(m, all);
    model_close(m);
}

Test(imatrix, a_node_that_is_not_there_is_named_with_what_is_near)
{
    struct model *m = open_model(dense, DEVICE_CPU, 1);
    const char *name = "attn_q_ro";
    struct tap *t;
    struct error err;
    cr_expect_eq(tap_open(&t, m->graph, &name, 1, NULL, NULL, &err), -1);
    cr_expect(err.code == E_USAGE && strstr(err.text, "but blk.0.attn_q_rope"), "%s", err.text);
    model_close(m);
}

Test(imatrix, a_tap_that_cannot_be_saved_is_an_error)
{
    struct model *m = open_model(dense, DEVICE_CPU, 1);
    char name[100];
    snprintf(name, sizeof name, "%s=/dev/full", m->graph->logits->name);
    const char *names[] = {name};
    struct tap *t;
    struct error err = {0};
    int status = tap_open(&t, m->graph, names, 1, NULL, NULL, &err);
    if (!status) {
        run(m, tap_taps(t), N_TOKENS);
        status = tap_finish(t, &err);
        tap_close(t);
    }
    cr_expect(status == -1 && err.code == E_IO, "%s", err.text);
    model_close(m);
}

// --- importance ---

static struct importance collect(struct model *m, int n_batch)
{
    struct importance_collector *c;
    struct importance out = {0};
    struct error err;
    cr_assert_eq(importance_collector_open(&c, m->graph, true, &err), 0, "%s", err.text);
    run(m, importance_collector_taps(c), n_batch);
    cr_assert_eq(importance_collector_result(c, &out, &err), 0, "%s", err.text);
    importance_collector_close(c);
    return out;
}

// Computes the sums from the taps of the reference, matrix by matrix.
static void expect_sums(const struct kept *all, const struct tensor *n, const struct importance_entry *e)
{
    struct kept x = all[n->src[0]->id], route = {0};
    int n_used = 1;
    if (n->op == OP_EXPERT_MATMUL) {
        route = all[n->src[1]->id];
        n_used = n->src[1]->p.route.n_used;
    }
    double *sums = calloc((size_t)(e->n_columns * e->n_matrices), sizeof *sums);
    int64_t counts[64] = {0};
    for (int row = 0; row < N_TOKENS; row++)
        for (int k = 0; k < n_used; k++) {
            int32_t id = 0;
            if (route.rows)
                memcpy(&id, &route.rows[row * route.width + n_used + k], 4);
            const float *values = x.rows + row * x.width + (x.width > e->n_columns ? k * e->n_columns : 0);
            counts[id]++;
            for (int64_t j = 0; j < e->n_columns; j++)
                sums[id * e->n_columns + j] += (double)values[j] * values[j];
        }
    for (int64_t i = 0; i < e->n_matrices; i++) {
        cr_expect_eq(e->counts[i], counts[i], "%s: expert %lld", e->name, (long long)i);
        for (int64_t j = 0; j < e->n_columns; j++) {
            double want = sums[i * e->n_columns + j];
            cr_expect(fabs(e->sums[i * e->n_columns + j] - want) <= 1e-3 * want + 1e-9, "%s: %g, not %g", e->name,
                      (double)e->sums[i * e->n_columns + j], want);
        }
    }
    free(sums);
}

static void compare_sums(const char *path, int n_batch)
{
    struct model *cpu = open_model(path, DEVICE_CPU, 2), *ref = open_model(path, DEVICE_REF, 0);
    struct importance m = collect(cpu, n_batch);
    struct kept *all = see_all(ref, N_TOKENS);
    int n = 0;
    for (int i = 0; i < ref->graph->n_nodes; i++) {
        const struct tensor *node = ref->graph->nodes[i];
        if (node->op != OP_MATMUL && node->op != OP_EXPERT_MATMUL)
            continue;
        const struct importance_entry *e = importance_find(&m, str_from(node->w[0]->name));
        cr_assert(e, "nothing on %s", node->w[0]->name);
        expect_sums(all, node, e);
        n++;
    }
    cr_expect_eq(n, m.n);
    free_kept(ref, all);
    importance_free(&m);
    model_close(cpu);
    model_close(ref);
}

Test(imatrix, sums_are_those_of_the_inputs)
{
    compare_sums(dense, N_TOKENS);
    compare_sums(dense, 5);
    compare_sums(experts, N_TOKENS);
    compare_sums(experts, 4);
}

Test(imatrix, a_file_is_read_as_it_was_written)
{
    struct model *m = open_model(experts, DEVICE_CPU, 2);
    struct importance a = collect(m, N_TOKENS), b;
    struct error err;
    a.n_chunks = 3;
    a.chunk_size = 23;
    a.dataset = "some text";
    cr_assert_eq(importance_write(&a, file, &err), 0, "%s", err.text);
    cr_assert_eq(importance_read(&b, file, &err), 0, "%s", err.text);
    cr_expect(b.n == a.n && b.n_chunks == 3 && b.chunk_size == 23 && !strcmp(b.dataset, "some text"));
    for (int i = 0; i < a.n; i++) {
        const struct importance_entry *x = &a.entries[i], *y = importance_find(&b, str_from(x->name));
        cr_assert(y && y->n_columns == x->n_columns && y->n_matrices == x->n_matrices, "%s", x->name);
        cr_expect_arr_eq(y->sums, x->sums, (size_t)(x->n_columns * x->n_matrices) * sizeof(float));
        cr_expect_arr_eq(y->counts, x->counts, (size_t)x->n_matrices * sizeof(int64_t));
    }
    cr_assert_eq(importance_merge(&b, &a, &err), 0);
    cr_expect_eq(b.entries[0].counts[0], 2 * importance_find(&a, str_from(b.entries[0].name))->counts[0]);
    importance_free(&a);
    importance_free(&b);
    model_close(m);
}

Test(imatrix, columns_that_no_row_came_to_weigh_one)
{
    struct importance m = {0};
    struct importance_entry *e = importance_add(&m, STR_LIT("blk.0.ffn_up_exps.weight"), 2, 2, NULL);
    e->sums[0] = 6;
    e->sums[1] = 3;
    e->counts[0] = 3;
    float weights[2];
    importance_weights(e, 0, weights);
    cr_expect(weights[0] == 6 / 4.5f && weights[1] == 3 / 4.5f);
    importance_weights(e, 1, weights);
    cr_expect(weights[0] == 1 && weights[1] == 1);
    cr_expect_eq(importance_unmeasured(e), 0);
    struct error err;
    cr_expect_null(importance_add(&m, STR_LIT("blk.0.ffn_up_exps.weight"), 3, 2, &err));
    cr_expect_eq(err.code, E_USAGE);
    importance_free(&m);
}

// A column that was 0 on the text counts like the average, and neither tiny nor huge sums leave the range of float.
Test(imatrix, columns_that_were_zero_weigh_one)
{
    const float scales[] = {1, 1e-38f, 1e-44f, 8e37f};
    for (size_t s = 0; s < COUNT_OF(scales); s++) {
        struct importance m = {0};
        struct importance_entry *e = importance_add(&m, STR_LIT("blk.0.ffn_up.weight"), 4, 1, NULL);
        const float sums[] = {4, 0, 2, 2};
        for (int i = 0; i < 4; i++)
            e->sums[i] = sums[i] * scales[s];
        e->counts[0] = 1000;
        float weights[4];
        importance_weights(e, 0, weights);
        cr_expect_float_eq(weights[0], 2, 1e-6, "%g: %g", scales[s], weights[0]);
        cr_expect_eq(weights[1], 1);
        cr_expect_float_eq(weights[2], 1, 1e-6);
        cr_expect_eq(importance_unmeasured(e), 1);
        importance_free(&m);
    }
}

// --- files that must be refused ---

struct entry {
    const char *name;
    int64_t ne0, ne1;
    float value;
};

static void write_entries(const struct entry *entries, int n)
{
    struct gguf_writer *w;
    struct error err;
    cr_assert_eq(gguf_writer_open(&w, file, &err), 0);
    gguf_write_str(w, "general.type", STR_LIT("imatrix"));
    for (int i = 0; i < n; i++)
        cr_assert_eq(
            gguf_write_tensor_info(w, entries[i].name, DT_F32, 2, (int64_t[]){entries[i].ne0, entries[i].ne1}, &err),
            0);
    for (int i = 0; i < n; i++)
        for (int64_t j = 0; j < entries[i].ne0 * entries[i].ne1; j++)
            cr_assert_eq(gguf_write_data(w, &entries[i].value, 4, &err), 0);
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
}

static void expect_refused(const char *says)
{
    struct importance m;
    struct error err = {0};
    cr_expect_eq(importance_read(&m, file, &err), -1);
    cr_expect(err.code == E_MODEL && strstr(err.text, says), "%d: '%s' says not '%s'", err.code, err.text, says);
}

Test(imatrix, hostile_files_are_refused)
{
    write_entries((struct entry[]){{"a.in_sum2", 4, 1, 1}}, 1);
    expect_refused("a.in_sum2 has no counts beside it");
    write_entries((struct entry[]){{"a.in_sum2", 4, 1, NAN}, {"a.counts", 1, 1, 1}}, 2);
    expect_refused("a.in_sum2: value 0 is nan");
    write_entries((struct entry[]){{"a.in_sum2", 4, 1, 1}, {"a.counts", 1, 1, INFINITY}}, 2);
    expect_refused("a.counts: value 0 is inf");
    write_entries((struct entry[]){{"a.in_sum2", 4, 1, -1}, {"a.counts", 1, 1, 1}}, 2);
    expect_refused("value 0 is -1");
    write_entries((struct entry[]){{"a.in_sum2", 5, 1, 1}, {"a.counts", 1, 2, 1}}, 2);
    expect_refused("5 sums for 2 counts");
    write_entries((struct entry[]){{"a.weight", 5, 1, 1}}, 1);
    expect_refused("no importance matrix");
    expect_refused("no importance matrix");
}

static void write_bytes(const void *data, size_t n)
{
    FILE *f = fopen(file, "w");
    cr_assert_eq(fwrite(data, 1, n, f), n);
    fclose(f);
}

// The older form: n, then for each a name, calls, values.
static size_t older(uint8_t *out)
{
    const struct {
        int32_t n, length;
        char name[4];
        int32_t calls, n_values;
        float values[2];
    } data = {1, 4, "blk.", 2, 2, {6, 4}};
    memcpy(out, &data, sizeof data);
    return sizeof data;
}

Test(imatrix, the_older_form_is_read_and_refused_when_cut)
{
    uint8_t data[64];
    size_t n = older(data);
    struct importance m;
    struct error err;
    write_bytes(data, n);
    cr_assert_eq(importance_read(&m, file, &err), 0, "%s", err.text);
    const struct importance_entry *e = &m.entries[0];
    cr_expect(m.n == 1 && e->sums[0] / (float)e->counts[0] == 3 && e->sums[1] / (float)e->counts[0] == 2);
    importance_free(&m);
    for (size_t cut = 0; cut < n; cut++) {
        write_bytes(data, cut);
        expect_refused("neither a GGUF nor an older importance matrix");
    }
    int32_t huge = INT32_MAX;
    memcpy(data + 16, &huge, 4); // values that are not there
    write_bytes(data, n);
    expect_refused("neither a GGUF nor");
}

Test(imatrix, a_full_disk_leaves_no_file)
{
    struct importance m = {0};
    importance_add(&m, STR_LIT("blk.0.x"), 4096, 1, NULL);
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, 1000}), 0);
    struct error err;
    cr_expect_eq(importance_write(&m, file, &err), -1);
    cr_expect_eq(err.code, E_IO);
    cr_expect_eq(access(file, F_OK), -1);
    importance_free(&m);
}
