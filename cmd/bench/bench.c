// quern bench: measures how fast a model runs, and how near that is to the limits of the machine.
//
// The tests are the cross product of the lists in the flags, as in llama-bench: for every setting that needs a
// machine or session of its own (threads, rows per step, types of the cache), every depth and number of sequences,
// each -p, each -n and each -pg. Memory bandwidth and multiply peak are measured before the first test and again
// around every repetition, because on a shared machine they change within minutes.
#include "cmd/bench/bench.h"
#include "cmd/confine.h"
#include "cmd/catalog.h"
#include "cmd/input.h"
#include "cmd/load.h"
#include "cmd/outputs.h"
#include "cmd/terminal/terminal.h"
#include "engine/cpu_name.h"
#include "kernels/cpu.h"
#include "kernels/card.h"
#include "kernels/cost.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { TESTS_MAX = 4096, PAIRS_MAX = 32, SEED = 42 };

struct bench {
    const struct options *o;
    // the grid
    struct grid prompts, gens, depths, seqs, threads, ubatches;
    struct grid keys, values; // values of enum dtype
    int pairs[PAIRS_MAX][2], n_pairs;
    // what the tests use
    struct bench_ceilings ceilings;
    struct loaded loaded;
    char *text; // content of the file of -f
    size_t text_size;
    struct token_list tokens;
    // what came out
    struct bench_row *rows;
    int n_rows, cap_rows;
    char cpu[128];              // name of the CPU
    struct text ops;            // the tables of --by-op
    struct bench_layout layout; // of the table
    bool head_is_printed;
};

// --- the grid ---

static int parse_types(struct grid *g, const struct option_list *list, const char *flag, struct error *err)
{
    static const enum dtype known[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0};
    *g = (struct grid){.at = {DT_F16}, .n = 1};
    for (int i = 0, n = 0; i < list->n; i++)
        for (const char *p = list->at[i]; *p; p += strspn(p, ",")) {
            size_t len = strcspn(p, ",");
            enum dtype type = DT_COUNT;
            bool ok = dtype_from_name((struct str){p, len}, &type) == 0;
            for (size_t k = 0; ok && k < COUNT_OF(known); k++)
                if (known[k] == type && n < GRID_MAX)
                    g->at[n++] = (int64_t)type;
            if (n == 0 || g->at[n - 1] != (int64_t)type)
                return fail(err, E_USAGE, "%s %.*s: one of f32, f16, bf16, q8_0, q4_0", flag, (int)len, p);
            g->n = n;
            p += len;
        }
    return 0;
}

static int parse_pairs(struct bench *b, struct error *err)
{
    const struct option_list *list = &b->o->bench_pairs;
    for (int i = 0; i < list->n; i++) {
        struct grid g = {0};
        struct option_list one = {&list->at[i], 1};
        if (grid_parse(&g, &one, "-pg", "", 1, 1 << 30, err))
            return -1;
        if (g.n % 2 || b->n_pairs + g.n / 2 > PAIRS_MAX)
            return fail(err, E_USAGE, "-pg %s: a prompt and an answer, such as 512,128; %d of them at most",
                        list->at[i], PAIRS_MAX);
        for (int k = 0; k < g.n; k += 2) {
            b->pairs[b->n_pairs][0] = (int)g.at[k];
            b->pairs[b->n_pairs++][1] = (int)g.at[k + 1];
        }
    }
    return 0;
}

static int parse_grid(struct bench *b, struct error *err)
{
    const struct options *o = b->o;
    enum { MANY = 1 << 30 };
    // -pg alone asks for no other test
    const char *prompt = o->bench_pairs.n && !o->bench_gen.n ? "0" : "512";
    const char *gen = o->bench_pairs.n && !o->bench_prompt.n ? "0" : "128";
    return grid_parse(&b->prompts, &o->bench_prompt, "-p", prompt, 0, MANY, err) ||
                   grid_parse(&b->gens, &o->bench_gen, "-n", gen, 0, MANY, err) ||
                   grid_parse(&b->depths, &o->bench_depth, "-d", "0", 0, MANY, err) ||
                   grid_parse(&b->seqs, &o->bench_seqs, "-npl", "1", 1, 4096, err) ||
                   grid_parse(&b->threads, &o->bench_threads, "-t", "0", 0, 1024, err) ||
                   grid_parse(&b->ubatches, &o->bench_ubatch, "-ub", "512", 1, 1 << 20, err) ||
                   parse_types(&b->keys, &o->bench_kv_key, "-ctk", err) ||
                   parse_types(&b->values, &o->bench_kv_value, "-ctv", err) || parse_pairs(b, err)
               ? -1
               : 0;
}

// The tests of one depth and number of sequences. Returns how many there are.
static int tests_of(const struct bench *b, int depth, int seqs, struct speed_test out[TESTS_MAX])
{
    int n = 0;
    for (int i = 0; i < b->prompts.n; i++)
        if (b->prompts.at[i])
            out[n++] = (struct speed_test){(int)b->prompts.at[i], 0, depth, seqs};
    for (int i = 0; i < b->gens.n; i++)
        if (b->gens.at[i])
            out[n++] = (struct speed_test){0, (int)b->gens.at[i], depth, seqs};
    for (int i = 0; i < b->n_pairs; i++)
        out[n++] = (struct speed_test){b->pairs[i][0], b->pairs[i][1], depth, seqs};
    return n;
}

// --- how a row describes the model ---

// The weight type that occupies most bytes, for a file that does not name its mix.
static const char *most_of(const struct graph *g)
{
    double bytes[DT_COUNT] = {0};
    int most = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct weight *w = g->nodes[i]->w[0];
        if (w)
            bytes[w->type] += (double)w->row_bytes * (double)w->ne[1] * (double)w->ne[2];
    }
    for (int t = 0; t < DT_COUNT; t++)
        most = bytes[t] > bytes[most] ? t : most;
    return dtype_info[most].name;
}

// The name of the mix of types as users of llama.cpp know it.
static const char *mix_name(const struct gguf *file, const struct graph *g)
{
    static const struct {
        int64_t id;
        const char *name;
    } names[] = {
        {0, "all F32"},       {1, "F16"},           {2, "Q4_0"},           {3, "Q4_1"},          {7, "Q8_0"},
        {8, "Q5_0"},          {9, "Q5_1"},          {10, "Q2_K - Medium"}, {11, "Q3_K - Small"}, {12, "Q3_K - Medium"},
        {13, "Q3_K - Large"}, {14, "Q4_K - Small"}, {15, "Q4_K - Medium"}, {16, "Q5_K - Small"}, {17, "Q5_K - Medium"},
        {18, "Q6_K"},         {19, "IQ2_XXS"},      {20, "IQ2_XS"},        {21, "Q2_K - Small"}, {22, "IQ3_XS"},
        {23, "IQ3_XXS"},      {24, "IQ1_S"},        {25, "IQ4_NL"},        {26, "IQ3_S"},        {27, "IQ3_M"},
        {28, "IQ2_S"},        {29, "IQ2_M"},        {30, "IQ4_XS"},        {31, "IQ1_M"},        {32, "BF16"},
        {36, "TQ1_0"},        {37, "TQ2_0"},        {38, "MXFP4 MoE"}};
    int64_t id = -1;
    struct error err;
    if (gguf_get_i64(file, "general.file_type", &id, &err) > 0)
        for (size_t i = 0; i < COUNT_OF(names); i++)
            if (names[i].id == id)
                return names[i].name;
    return most_of(g);
}

static void describe_model(struct bench_row *r, const struct model *m)
{
    double n = (double)m->info.n_params;
    r->size = m->info.weight_bytes;
    r->n_params = m->info.n_params;
    r->load_ms = m->load_ms;
    snprintf(r->type, sizeof r->type, n >= 1e9 ? "%s %.3gB %s" : "%s %.3gM %s", m->info.name,
             n / (n >= 1e9 ? 1e9 : 1e6), mix_name(m->file, m->graph));
}

// --- a test ---

struct sums {
    const struct graph *graph;
    const struct machine *cpu; // NULL: another machine
    bool exact;
    double bytes, products[UNIT_COUNT];
};

// The unit that does a node's products. Experts share the columns of a step.
static enum cpu_unit unit_of(const struct sums *s, const struct tensor *n, double products)
{
    const struct weight *w = n->op == OP_ATTENTION ? NULL : n->w[0];
    if (!w || !s->cpu || s->exact)
        return UNIT_FLOATS;
    double columns = products / ((double)w->ne[0] * (double)w->ne[1] * (double)w->ne[2]);
    return machine_cpu_unit(s->cpu, w->type, (int64_t)columns);
}

static void add_step(void *arg, const struct cost_step *s)
{
    struct sums *sums = arg;
    for (int i = 0; i < sums->graph->n_nodes; i++) {
        const struct tensor *n = sums->graph->nodes[i];
        struct cost c = cost_of_node(n, s);
        sums->bytes += c.bytes;
        sums->products[unit_of(sums, n, c.products)] += c.products;
    }
}

void bench_each_step(const struct bench_row *r, int n_batch, void (*take)(void *arg, const struct cost_step *s),
                     void *arg)
{
    const struct speed_test *t = &r->test;
    struct cost_step s = {.n_seqs = 1, .n_outputs = 1, .kv_type = {r->kv_type[0], r->kv_type[1]}};
    for (int seq = 0; seq < t->n_seqs; seq++)
        for (int at = 0; at < t->n_prompt; at += n_batch) {
            s.n_tokens = MIN(n_batch, t->n_prompt - at);
            s.depth = t->n_depth + at;
            take(arg, &s);
        }
    s.n_seqs = s.n_tokens = s.n_outputs = t->n_seqs;
    for (int i = 0; i < t->n_gen; i++) {
        s.depth = t->n_depth + t->n_prompt + i;
        take(arg, &s);
    }
}

// Resident bytes of the process now. A run neither allocates nor frees memory, so this is its peak after a run; the
// kernel's own peak would include the memory used to measure the ceilings.
static uint64_t resident_bytes(void)
{
    unsigned long long mapped, resident;
    FILE *f = fopen("/proc/self/statm", "r");
    int n = f ? fscanf(f, "%llu %llu", &mapped, &resident) : 0;
    if (f)
        fclose(f);
    return n == 2 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

// What one repetition reads and multiplies.
struct work {
    double bytes, products;
};

// Sums the work of a repetition, and finds the unit that does most of the products.
static struct work work_of(const struct bench *b, struct bench_row *r, int n_batch)
{
    const struct model *m = b->loaded.model;
    struct sums cost = {.graph = m->graph, .cpu = strcmp(m->device, "cpu") ? NULL : m->machine, .exact = b->o->exact};
    bench_each_step(r, n_batch, add_step, &cost);
    struct work w = {.bytes = cost.bytes};
    for (int u = 0; u < UNIT_COUNT; u++) {
        r->unit = cost.products[u] > cost.products[r->unit] ? (enum cpu_unit)u : r->unit;
        w.products += cost.products[u];
    }
    r->unit_name = b->ceilings.unit[r->unit];
    return w;
}

static void rate(struct bench_row *r, const struct work *w)
{
    double seconds = samples_mean(r->ns, r->n) * 1e-9;
    r->bytes = w->bytes / seconds;
    r->products = w->products / seconds;
    r->read_part = bench_part(w->bytes, r->ns, r->read_peaks, r->n);
    r->multiply_part = bench_part(w->products, r->ns, r->multiply_peaks, r->n);
}

static int alloc_samples(const struct bench *b, struct bench_row *r, struct error *err)
{
    size_t n = (size_t)r->n;
    r->ns = calloc(n, sizeof *r->ns);
    r->ts = calloc(n, sizeof *r->ts);
    r->read_peaks = calloc(n, sizeof *r->read_peaks);
    r->multiply_peaks = calloc(n, sizeof *r->multiply_peaks);
    r->peer_ts = b->o->bench_peer ? calloc(n, sizeof *r->peer_ts) : NULL;
    bool all = r->ns && r->ts && r->read_peaks && r->multiply_peaks && (r->peer_ts || !b->o->bench_peer);
    return all ? 0 : fail(err, E_MEMORY, "no memory for %d samples", r->n);
}

// Runs a test once without counting it: it brings in pages of the file and of the cache, and raises the clock.
static int warm_up(struct session *s, const struct model *m, const struct speed_test *t,
                   const struct speed_test_text *text, struct error *err)
{
    struct speed_test few = {MIN(t->n_prompt, session_n_batch(s)), MIN(t->n_gen, 1), 0, t->n_seqs};
    struct speed_test_result r = {0};
    return speed_test_run(s, m, &few, text, &r, err);
}

// Discards the times of the warm-up.
static void start_profile(struct session *s)
{
    const struct node_time *times;
    double wait;
    int n;
    session_profile(s, &times, &n, &wait);
}

static void take_profile(struct bench *b, struct session *s, const struct bench_row *r)
{
    const struct node_time *times;
    double wait;
    int n;
    if (session_profile(s, &times, &n, &wait))
        bench_print_ops(r, session_n_batch(s), times, n, wait, &b->ops);
}

// Runs one repetition between two measurements of the ceilings, of which the higher counts. *now: the last
// measurement.
static int repeat_once(struct bench *b, struct session *s, struct bench_row *r, int i,
                       const struct speed_test_text *text, double *step_ms, struct bench_peaks *now, struct error *err)
{
    const struct speed_test *t = &r->test;
    struct speed_test_result one = {.step_ms = step_ms};
    struct bench_peaks before = *now;
    if (speed_test_run(s, b->loaded.model, t, text, &one, err))
        return -1;
    r->peak_bytes = MAX(r->peak_bytes, resident_bytes());
    if (bench_ceilings_again(&b->ceilings, b->loaded.model, r, now, err))
        return -1;
    double ms = (t->n_prompt ? one.prompt_ms : 0) + (t->n_gen ? one.gen_ms : 0);
    r->ns[i] = ms * 1e6;
    r->ts[i] = (double)t->n_seqs * (t->n_prompt + t->n_gen) * 1e3 / ms;
    r->first_ms += t->n_prompt ? one.prompt_ms / r->n : 0;
    r->read_peaks[i] = fmax(before.read, now->read);
    r->multiply_peaks[i] = fmax(before.multiply, now->multiply);
    if (!r->peer_ts)
        return 0;
    return bench_peer(b->o->bench_peer, r, &r->peer_ts[i], err) ||
                   bench_ceilings_again(&b->ceilings, b->loaded.model, r, now, err)
               ? -1
               : 0;
}

static int repeat(struct bench *b, struct session *s, struct bench_row *r, struct error *err)
{
    const struct model *m = b->loaded.model;
    const struct speed_test *t = &r->test;
    struct speed_test_text text = {b->tokens.ids, (int)MIN(b->tokens.n, (size_t)INT32_MAX), SEED};
    struct bench_peaks now = {0};
    double *steps = calloc((size_t)r->n * (size_t)t->n_gen + 1, sizeof *steps);
    int status = steps ? 0 : fail(err, E_MEMORY, "no memory for the times of %d steps", t->n_gen);
    if (!status && !b->o->bench_no_warmup)
        status = warm_up(s, m, t, &text, err);
    if (!status)
        status = bench_ceilings_again(&b->ceilings, m, r, &now, err);
    start_profile(s);
    for (int i = 0; !status && i < r->n; i++) {
        text.seed++;
        status = repeat_once(b, s, r, i, &text, steps + (size_t)i * (size_t)t->n_gen, &now, err);
    }
    if (!status && t->n_gen) {
        r->median_step_ms = samples_quantile(steps, r->n * t->n_gen, 0.5);
        r->p95_step_ms = samples_quantile(steps, r->n * t->n_gen, 0.95);
    }
    free(steps);
    return status;
}

static int run_test(struct bench *b, struct bench_row *r, struct error *err)
{
    struct session *s = NULL;
    const struct model *m = b->loaded.model;
    struct session_options o = {.n_batch = MIN(r->n_batch, r->n_ubatch), .kv_type = {r->kv_type[0], r->kv_type[1]}};
    o.cancel = &terminal_interrupted;
    o.profile = b->o->bench_by_op;
    o = speed_test_needs(&r->test, o);
    if (o.n_ctx > m->n_ctx && model_set_context(b->loaded.model, o.n_ctx, err))
        return -1;
    int status = session_open(&s, m, &o, err);
    if (!status)
        status = alloc_samples(b, r, err);
    struct work work = {0};
    if (!status)
        work = work_of(b, r, session_n_batch(s));
    if (!status)
        status = repeat(b, s, r, err);
    if (!status)
        rate(r, &work);
    if (!status)
        take_profile(b, s, r);
    session_close(s);
    return status;
}

// --- all tests ---

static int print(struct text *out, int format, struct error *err)
{
    const struct str text = {out->data, out->size};
    int status = out->failed                                     ? fail(err, E_MEMORY, "no memory for a table")
                 : format == BENCH_MD                            ? terminal_write_table(text, err)
                 : format == BENCH_JSON || format == BENCH_JSONL ? terminal_write_json(text, err)
                                                                 : terminal_write_untrusted(text, err);
    text_free(out);
    return status;
}

static int add_row(struct bench *b, const struct bench_row *r, struct error *err)
{
    if (b->n_rows == b->cap_rows) {
        int cap = b->cap_rows ? 2 * b->cap_rows : 16;
        void *rows = realloc(b->rows, (size_t)cap * sizeof *b->rows);
        if (!rows)
            return fail(err, E_MEMORY, "no memory for %d rows", cap);
        b->rows = rows;
        b->cap_rows = cap;
    }
    b->rows[b->n_rows++] = *r;
    struct text out = {0};
    bench_print_row((enum bench_format)b->o->bench_output, &b->layout, &b->rows[b->n_rows - 1], b->n_rows == 1, &out);
    return print(&out, b->o->bench_output, err);
}

static int run_tests(struct bench *b, const struct bench_row *setting, struct error *err)
{
    struct speed_test *tests = calloc(TESTS_MAX, sizeof *tests);
    int status = tests ? 0 : fail(err, E_MEMORY, "no memory for a list of tests");
    for (int d = 0; !status && d < b->depths.n; d++)
        for (int s = 0; !status && s < b->seqs.n; s++) {
            int n = tests_of(b, (int)b->depths.at[d], (int)b->seqs.at[s], tests);
            for (int i = 0; !status && i < n; i++) {
                struct bench_row r = *setting;
                r.test = tests[i];
                r.n = (int)b->o->bench_repeats;
                r.when = time(NULL);
                status = run_test(b, &r, err);
                if (!status)
                    status = add_row(b, &r, err);
                else
                    bench_row_free(&r);
            }
        }
    free(tests);
    return status;
}

static int measure_ceilings(struct bench *b, const struct bench_row *r, struct error *err)
{
    b->ceilings = (struct bench_ceilings){0};
    if (b->o->bench_no_ceilings)
        return 0;
    if (bench_ceilings_measure(&b->ceilings, b->loaded.model, r->n_threads, err))
        return -1;
    if (b->o->bench_output == BENCH_MD || b->o->verbose)
        bench_ceilings_note(&b->ceilings, r);
    return 0;
}

static int take_text(struct bench *b, struct error *err)
{
    size_t size = 0;
    if (!b->o->file)
        return 0;
    if (!b->text && input_read(b->o->file, INPUT_TEXT, &b->text, &size, err))
        return -1;
    b->text_size = b->text_size ? b->text_size : size;
    b->tokens.n = 0;
    if (tokenizer_encode(b->loaded.model->tokenizer, (struct str){b->text, b->text_size}, TOKENIZE_BOS, &b->tokens,
                         err))
        return -1;
    return b->tokens.n ? 0 : fail(err, E_USAGE, "-f %s: no text", b->o->file);
}

// The longest label of a test.
static int label_width(const struct bench *b)
{
    struct speed_test *tests = calloc(TESTS_MAX, sizeof *tests);
    int width = 0;
    for (int d = 0; tests && d < b->depths.n; d++)
        for (int s = 0; s < b->seqs.n; s++)
            for (int i = tests_of(b, (int)b->depths.at[d], (int)b->seqs.at[s], tests) - 1; i >= 0; i--) {
                char label[64];
                bench_label(&tests[i], label);
                width = MAX(width, (int)strlen(label));
            }
    free(tests);
    return width;
}

// The columns that the flags ask for: those of a setting where one was given, and the machine where it is not the CPU.
static unsigned shown_columns(const struct options *o, const struct model *m)
{
    const struct {
        bool asked;
        unsigned shown;
    } asks[] = {
        {o->verbose, BENCH_SHOW_VERBOSE},
        {!o->verbose && !o->bench_no_ceilings, BENCH_SHOW_CEILING},
        {o->bench_peer, BENCH_SHOW_PEER},
        {o->given[OPT_device] || strcmp(m->device, "cpu"), BENCH_SHOW_BACKEND},
        {o->bench_threads.n, BENCH_SHOW_THREADS},
        {o->given[OPT_batch], BENCH_SHOW_BATCH},
        {o->bench_ubatch.n, BENCH_SHOW_UBATCH},
        {o->bench_kv_key.n, BENCH_SHOW_KEYS},
        {o->bench_kv_value.n, BENCH_SHOW_VALUES},
    };
    unsigned shown = 0;
    for (size_t i = 0; i < COUNT_OF(asks); i++)
        shown |= asks[i].asked ? asks[i].shown : 0;
    return shown;
}

// A table fits into the window; where there is none, into 80 columns, unless all was asked for.
static void choose_layout(struct bench *b)
{
    struct bench_view v = {shown_columns(b->o, b->loaded.model), label_width(b), b->o->verbose ? 0 : BENCH_WIDTH};
    int rows;
    if (terminal_is_tty(STDOUT_FILENO))
        terminal_size(STDOUT_FILENO, &v.limit, &rows);
    b->layout = bench_layout_choose(&v);
}

// Prints the head of the table, once, after the note about the first ceilings.
static int print_head(struct bench *b, struct error *err)
{
    struct text head = {0};
    if (b->head_is_printed)
        return 0;
    b->head_is_printed = true;
    choose_layout(b);
    bench_print_head((enum bench_format)b->o->bench_output, &b->layout, &head);
    int status = print(&head, b->o->bench_output, err);
    text_free(&head);
    return status;
}

// Describes the machine that computes.
static int describe_machine(struct bench *b, struct bench_row *r, struct error *err)
{
    const struct model *m = b->loaded.model;
    struct card card;
    bool on_card = !strcmp(m->device, "gpu");
    r->device = b->cpu;
    r->backend = on_card ? "CUDA" : !strcmp(m->device, "ref") ? "REF" : "CPU";
    if (!on_card)
        return 0;
    if (card_query(m->card, &card, err))
        return -1;
    memcpy(r->gpu, card.name, sizeof r->gpu);
    return 0;
}

// Runs all tests of one model with one number of threads. `path`: the file of a model given as an argument.
static int run_model(struct bench *b, const char *name, const char *path, int n_threads, struct error *err)
{
    struct options o = *b->o;
    o.model = path ? path : o.model;
    o.threads = n_threads;
    int status = load_model(&b->loaded, &o, err);
    struct machine_cpu_choice choice = {.n_threads = 1};
    if (!status && !strcmp(b->loaded.model->device, "cpu"))
        machine_cpu_choice(b->loaded.model->machine, &choice);
    struct bench_row r = {.path = name ? name : "built-in", .n_threads = choice.n_threads, .n_batch = (int)b->o->batch};
    r.file = o.model;
    if (!status)
        status = describe_machine(b, &r, err) || take_text(b, err) ? -1 : 0;
    if (!status)
        status = measure_ceilings(b, &r, err);
    if (!status)
        status = print_head(b, err);
    if (!status)
        describe_model(&r, b->loaded.model);
    terminal_set_phase(PHASE_ANSWERING);
    for (int u = 0; !status && u < b->ubatches.n; u++)
        for (int k = 0; !status && k < b->keys.n; k++)
            for (int v = 0; !status && v < b->values.n; v++) {
                r.n_ubatch = (int)b->ubatches.at[u];
                r.kv_type[KV_KEY] = (enum dtype)b->keys.at[k];
                r.kv_type[KV_VALUE] = (enum dtype)b->values.at[v];
                status = run_tests(b, &r, err);
            }
    return status;
}

// --- models ---

static int run_synthetic(struct bench *b, const char *what, struct error *err)
{
    char path[PATH_MAX];
    int fd = bench_synthetic_open(what, path, err), status = fd < 0 ? -1 : 0;
    for (int t = 0; !status && t < b->threads.n; t++) {
        status = run_model(b, what, path, (int)b->threads.at[t], err);
        load_close(&b->loaded);
    }
    if (fd >= 0)
        close(fd);
    return status;
}

// Runs the tests of all models: synthetic ones, -m, and arguments.
static int run_models(struct bench *b, struct error *err)
{
    const struct options *o = b->o;
    for (int i = 0; i < o->bench_synthetic.n; i++)
        if (run_synthetic(b, o->bench_synthetic.at[i], err))
            return -1;
    if (o->bench_synthetic.n && !o->given[OPT_model] && !o->args.n)
        return 0;
    for (int i = o->model || !o->args.n ? -1 : 0; i < o->args.n; i++) {
        char *named = NULL;
        int status = i >= 0 ? catalog_resolve(o->args.at[i], &named, NULL, err) : 0;
        for (int t = 0; !status && t < b->threads.n; t++) {
            status = run_model(b, i < 0 ? o->model : o->args.at[i], named, (int)b->threads.at[t], err);
            load_close(&b->loaded);
        }
        free(named);
        if (status)
            return -1;
    }
    return 0;
}

// Prints what concerns all rows together.
static int sum_up(struct bench *b, struct error *err)
{
    const struct options *o = b->o;
    struct text out = {0};
    int n_slower = 0, status = 0;
    bench_print_tail((enum bench_format)o->bench_output, &out);
    // tables of operations accompany a table, not data
    if (o->bench_output == BENCH_MD && b->ops.size)
        text_append(&out, (struct str){b->ops.data, b->ops.size});
    else
        load_note_text(&b->ops);
    if (o->bench_output == BENCH_MD) {
        bench_print_depths(b->rows, b->n_rows, &out);
        if (o->bench_roofline)
            bench_print_roofline(b->rows, b->n_rows, &b->ceilings, &out);
    }
    if (o->bench_plot)
        status = bench_plot(o->bench_plot, b->rows, b->n_rows, &b->ceilings, err);
    struct text compared = {0};
    if (!status && o->bench_against)
        status = bench_against(o->bench_against, b->rows, b->n_rows, &n_slower, &compared, err);
    if (!status && o->bench_save)
        status = bench_save(o->bench_save, b->rows, b->n_rows, err);
    load_note_text(&compared);
    if (!status)
        status = print(&out, o->bench_output, err);
    text_free(&out);
    if (!status && n_slower < 0)
        return fail(err, E_ITEMS, "--against %s: none of these tests was kept: nothing is compared", o->bench_against);
    if (!status && n_slower)
        return fail(err, E_ITEMS, "%d of %d tests are slower than %s", n_slower, b->n_rows, o->bench_against);
    return status;
}

// Checks that the saved rows to compare with exist, and that the results can be kept, before the measuring begins, which may
// take an hour.
static int check_kept(const struct options *o, struct error *err)
{
    struct text none = {0};
    int n_slower;
    if (outputs_check_options(o, o->model, err) || (o->bench_save && bench_save_try(o->bench_save, err)))
        return -1;
    if (o->bench_plot && o->bench_no_ceilings)
        return fail(err, E_USAGE, "--plot draws the ceilings of the machine; leave out --no-ceilings");
    return o->bench_against ? bench_against(o->bench_against, NULL, 0, &n_slower, &none, err) : 0;
}

static int bench(const struct options *o, struct error *err)
{
    struct bench b = {.o = o};
    cpu_name(b.cpu, sizeof b.cpu);
    int status = parse_grid(&b, err);
    if (!status)
        status = check_kept(o, err);
    if (!status)
        status = run_models(&b, err);
    if (!status || (err->code == E_INTERRUPTED && b.n_rows)) {
        struct error summing;
        if (sum_up(&b, &summing) && !status) {
            *err = summing;
            status = -1;
        }
    }
    for (int i = 0; i < b.n_rows; i++)
        bench_row_free(&b.rows[i]);
    free(b.rows);
    free(b.text);
    text_free(&b.ops);
    token_list_free(&b.tokens);
    load_close(&b.loaded);
    return status;
}

int cmd_bench(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    if (options_parse(&o, VERB_BENCH, argc, argv, &err))
        return verb_fail(&err);
    confine(&o);
    int status = bench(&o, &err);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
