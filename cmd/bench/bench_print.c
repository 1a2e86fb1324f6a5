// Prints the rows of `quern bench` as data; bench_table.c prints them as a table. Data has every key of llama-bench in its order; a key that
// does not apply has the value that llama-bench writes on a machine without the feature.
#include "cmd/build_commit.h"
#include "cmd/bench/bench.h"
#include "cmd/terminal/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void bench_label(const struct speed_test *t, char out[64])
{
    char prompt[24] = "", gen[24] = "", depth[24] = "", seqs[24] = "";
    if (t->n_prompt)
        snprintf(prompt, sizeof prompt, "pp%d", t->n_prompt);
    if (t->n_gen)
        snprintf(gen, sizeof gen, "%stg%d", t->n_prompt ? "+" : "", t->n_gen);
    if (t->n_depth)
        snprintf(depth, sizeof depth, " @ d%d", t->n_depth);
    if (t->n_seqs > 1)
        snprintf(seqs, sizeof seqs, " x%d", t->n_seqs);
    snprintf(out, 64, "%s%s%s%s", prompt, gen, depth, seqs);
}

const char *bench_bound(const struct bench_row *r)
{
    if (r->read_part <= 0 && r->multiply_part <= 0)
        return "";
    return r->read_part >= r->multiply_part ? "memory" : "multiply";
}

void bench_row_free(struct bench_row *r)
{
    free(r->ns);
    free(r->ts);
    free(r->read_peaks);
    free(r->multiply_peaks);
    free(r->peer_ts);
    *r = (struct bench_row){0};
}

// --- data: one table of columns ---

enum kind { TEXT, INTEGER, REAL, BOOLEAN };

struct value {
    enum kind kind;
    const char *text;
    double number;
};

#define T(s) ((struct value){TEXT, s, 0})
#define I(x) ((struct value){INTEGER, NULL, (double)(x)})
#define R(x) ((struct value){REAL, NULL, x})
#define B(x) ((struct value){BOOLEAN, NULL, x})

enum { COLUMNS_MAX = 72 };
struct column {
    const char *name;
    struct value value;
};

static const char *time_text(int64_t when, char out[32])
{
    time_t t = (time_t)when;
    struct tm tm;
    if (!gmtime_r(&t, &tm) || !strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm))
        out[0] = 0;
    return out;
}

const char *bench_type_text(enum dtype type, char out[16])
{
    snprintf(out, 16, "%s", dtype_info[type].name);
    for (char *p = out; *p; p++)
        *p = (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
    return out;
}

// Buffers into which the texts of a row's columns are formatted.
struct scratch {
    char when[32], key[16], value[16];
};

static int columns_of(const struct bench_row *r, struct scratch *s, struct column c[COLUMNS_MAX])
{
    const struct column all[] = {
        {"build_commit", T(BUILD_COMMIT)},
        {"build_number", I(0)},
        {"cpu_info", T(r->device)},
        {"gpu_info", T(r->gpu)},
        {"backends", T(r->backend)},
        {"model_filename", T(r->path)},
        {"model_type", T(r->type)},
        {"model_size", I(r->size)},
        {"model_n_params", I(r->n_params)},
        {"n_batch", I(r->n_batch)},
        {"n_ubatch", I(r->n_ubatch)},
        {"n_threads", I(r->n_threads)},
        {"cpu_mask", T("0x0")},
        {"cpu_strict", B(0)},
        {"poll", I(50)},
        {"type_k", T(bench_type_text(r->kv_type[KV_KEY], s->key))},
        {"type_v", T(bench_type_text(r->kv_type[KV_VALUE], s->value))},
        {"n_gpu_layers", I(r->gpu[0] ? -1 : 0)},
        {"n_cpu_moe", I(0)},
        {"split_mode", T("none")},
        {"main_gpu", I(0)},
        {"no_kv_offload", B(0)},
        {"flash_attn", I(1)},
        {"devices", T("none")},
        {"tensor_split", T("0.00")},
        {"tensor_buft_overrides", T("none")},
        {"load_mode", T("mmap")},
        {"embeddings", B(0)},
        {"no_op_offload", I(0)},
        {"no_host", B(0)},
        {"fit_target", I(0)},
        {"fit_min_ctx", I(0)},
        {"n_prompt", I(r->test.n_prompt)},
        {"n_gen", I(r->test.n_gen)},
        {"n_depth", I(r->test.n_depth)},
        {"test_time", T(time_text(r->when, s->when))},
        {"avg_ns", I(samples_mean(r->ns, r->n))},
        {"stddev_ns", I(samples_deviation(r->ns, r->n))},
        {"avg_ts", R(samples_mean(r->ts, r->n))},
        {"stddev_ts", R(samples_deviation(r->ts, r->n))},
        // quern's own keys
        {"n_seqs", I(r->test.n_seqs)},
        {"median_step_ms", R(r->median_step_ms)},
        {"p95_step_ms", R(r->p95_step_ms)},
        {"first_token_ms", R(r->first_ms)},
        {"load_ms", R(r->load_ms)},
        {"peak_bytes", I(r->peak_bytes)},
        {"read_bytes_per_second", R(r->bytes)},
        {"read_share", R(r->read_part)},
        {"products_per_second", R(r->products)},
        {"multiply_share", R(r->multiply_part)},
        {"bound", T(bench_bound(r))},
        {"multiply_unit", T(r->unit_name ? r->unit_name : "")},
    };
    _Static_assert(COUNT_OF(all) <= COLUMNS_MAX, "a row's columns fit");
    memcpy(c, all, sizeof all);
    return (int)COUNT_OF(all);
}

static void print_number(struct text *out, struct value v)
{
    text_print(out, v.kind == REAL ? "%.6f" : "%.0f", v.number);
}

static void print_json_value(struct text *out, struct value v)
{
    if (v.kind == TEXT)
        terminal_print_json(out, str_from(v.text));
    else if (v.kind == BOOLEAN)
        text_print(out, v.number != 0 ? "true" : "false");
    else
        print_number(out, v);
}

static void print_samples(struct text *out, const char *name, const double *x, int n, int digits)
{
    text_print(out, "\"%s\": [", name);
    for (int i = 0; i < n; i++)
        text_print(out, "%s %.*f", i ? "," : "", digits, x[i]);
    text_print(out, " ]");
}

static void print_json(const struct bench_row *r, bool lines, struct text *out)
{
    struct scratch s;
    struct column c[COLUMNS_MAX];
    int n = columns_of(r, &s, c);
    const char *gap = lines ? " " : "\n    ";
    text_print(out, lines ? "{" : "  {");
    for (int i = 0; i < n; i++) {
        text_print(out, "%s\"%s\": ", lines && !i ? "" : gap, c[i].name);
        print_json_value(out, c[i].value);
        text_print(out, ",");
    }
    text_print(out, "%s", gap);
    print_samples(out, "samples_ns", r->ns, r->n, 0);
    text_print(out, ",%s", gap);
    print_samples(out, "samples_ts", r->ts, r->n, 4);
    if (r->read_peaks && r->read_peaks[0] > 0) {
        text_print(out, ",%s", gap);
        print_samples(out, "samples_read_ceiling", r->read_peaks, r->n, 0);
        text_print(out, ",%s", gap);
        print_samples(out, "samples_multiply_ceiling", r->multiply_peaks, r->n, 0);
    }
    if (r->peer_ts) {
        text_print(out, ",%s", gap);
        print_samples(out, "peer_samples_ts", r->peer_ts, r->n, 4);
        text_print(out, ",%s\"peer_build_commit\": ", gap);
        terminal_print_json(out, str_from(r->peer_build));
    }
    text_print(out, lines ? "}\n" : "\n  }");
}

// Appends text in quotes; a quote inside is doubled.
static void print_quoted(struct text *out, const char *s, char quote)
{
    text_print(out, "%c", quote);
    for (; *s; s++)
        text_print(out, *s == quote ? "%c%c" : "%c", *s, quote);
    text_print(out, "%c", quote);
}

// Appends the values of a row in quotes, as llama-bench writes them, with `between` as separator.
static void print_values(const struct bench_row *r, char quote, const char *between, struct text *out)
{
    struct scratch s;
    struct column c[COLUMNS_MAX];
    int n = columns_of(r, &s, c);
    for (int i = 0; i < n; i++) {
        text_print(out, "%s", i ? between : "");
        if (c[i].value.kind == TEXT) {
            print_quoted(out, c[i].value.text, quote);
        } else {
            text_print(out, "%c", quote);
            print_number(out, c[i].value);
            text_print(out, "%c", quote);
        }
    }
}

static void print_names(const char *between, bool types, struct text *out)
{
    static const char *const sql[] = {"TEXT", "INTEGER", "REAL", "INTEGER"};
    struct bench_row none = {.device = "", .path = ""};
    struct scratch s;
    struct column c[COLUMNS_MAX];
    int n = columns_of(&none, &s, c);
    for (int i = 0; i < n; i++)
        text_print(out, "%s%s%s%s", i ? between : "", c[i].name, types ? " " : "", types ? sql[c[i].value.kind] : "");
}

// --- all formats ---

void bench_print_head(enum bench_format format, const struct bench_layout *l, struct text *out)
{
    switch (format) {
    case BENCH_MD:
        bench_print_table_head(l, out);
        break;
    case BENCH_CSV:
        print_names(",", false, out);
        text_print(out, "\n");
        break;
    case BENCH_JSON:
        text_print(out, "[\n");
        break;
    case BENCH_SQL:
        text_print(out, "CREATE TABLE IF NOT EXISTS llama_bench (\n  ");
        print_names(",\n  ", true, out);
        text_print(out, "\n);\n\n");
        break;
    case BENCH_JSONL:
        break;
    }
}

void bench_print_row(enum bench_format format, const struct bench_layout *l, const struct bench_row *r, bool first,
                     struct text *out)
{
    switch (format) {
    case BENCH_MD:
        bench_print_table_row(l, r, out);
        break;
    case BENCH_CSV:
        print_values(r, '"', ",", out);
        text_print(out, "\n");
        break;
    case BENCH_JSON:
        text_print(out, first ? "" : ",\n");
        print_json(r, false, out);
        break;
    case BENCH_JSONL:
        print_json(r, true, out);
        break;
    case BENCH_SQL:
        text_print(out, "INSERT INTO llama_bench (");
        print_names(", ", false, out);
        text_print(out, ") VALUES (");
        print_values(r, '\'', ", ", out);
        text_print(out, ");\n");
        break;
    }
}

void bench_print_tail(enum bench_format format, struct text *out)
{
    if (format == BENCH_JSON)
        text_print(out, "\n]\n");
    if (format == BENCH_MD)
        text_print(out, "\nbuild: quern %s (%s)\n", QUERN_VERSION, BUILD_COMMIT);
}
