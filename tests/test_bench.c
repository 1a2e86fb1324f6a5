// Tests the lists and labels of `quern bench`, and that a program which reads llama-bench's output can read it.
#include "cmd/bench/bench.h"
#include "cmd/terminal/display.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

// --- lists ---

static void expect_grid(const char *text, const int64_t *wanted, int n)
{
    struct grid g;
    struct error err;
    struct option_list list = {&text, 1};
    cr_assert_eq(grid_parse(&g, &list, "-p", "1", 0, 1 << 20, &err), 0, "%s: %s", text, err.text);
    cr_assert_eq(g.n, n, "%s: %d", text, g.n);
    for (int i = 0; i < n; i++)
        cr_expect_eq(g.at[i], wanted[i], "%s: %lld", text, (long long)g.at[i]);
}

Test(bench, lists_ranges_steps_and_factors)
{
    expect_grid("512", (int64_t[]){512}, 1);
    expect_grid("64,128", (int64_t[]){64, 128}, 2);
    expect_grid("1-4", (int64_t[]){1, 2, 3, 4}, 4);
    expect_grid("1-9+4", (int64_t[]){1, 5, 9}, 3);
    expect_grid("1-64*4,7", (int64_t[]){1, 4, 16, 64, 7}, 5);
    expect_grid("0,4K,1k", (int64_t[]){0, 4096, 1000}, 3);
}

Test(bench, what_is_no_list_is_refused)
{
    static const char *const wrong[] = {"",      "a",     "1,",    ",1",      "3-1",  "1-2*1",
                                        "0-4*2", "1-2+0", "1-2-3", "9999999", "1-100"};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct grid g;
        struct error err = {0};
        const char *text = wrong[i];
        struct option_list list = {&text, 1};
        cr_expect_eq(grid_parse(&g, &list, "-p", "1", 0, 1 << 20, &err), -1, "%s", text);
        cr_expect(err.code == E_USAGE && strstr(err.text, "-p"), "%s: %s", text, err.text);
    }
}

Test(bench, labels_are_those_of_llama_bench)
{
    char label[64];
    bench_label(&(struct speed_test){512, 0, 0, 1}, label);
    cr_expect_str_eq(label, "pp512");
    bench_label(&(struct speed_test){0, 128, 4096, 1}, label);
    cr_expect_str_eq(label, "tg128 @ d4096");
    bench_label(&(struct speed_test){512, 128, 0, 8}, label);
    cr_expect_str_eq(label, "pp512+tg128 x8");
}

// --- ceilings ---

// Each repetition is compared with the ceiling that was measured beside it, not with the best one of all.
Test(bench, a_part_is_the_median_over_repetitions_each_of_its_own_ceiling)
{
    const double took[] = {1e9, 2e9, 4e9}, peaks[] = {200, 50, 50}, gone[] = {200, 0, 50};
    cr_expect_float_eq(bench_part(100, took, peaks, 3), 0.5, 1e-12);  // 0.5, 1, 0.5
    cr_expect_float_eq(bench_part(100, took, peaks, 2), 0.75, 1e-12); // between the two
    cr_expect_eq(bench_part(100, took, gone, 3), 0);                  // a ceiling that is not known
    cr_expect_eq(bench_part(100, took, peaks, 0), 0);
}

// --- data ---

// llama-bench of August 2026.
static const char columns[] = "build_commit,build_number,cpu_info,gpu_info,backends,model_filename,model_type,model_"
                              "size,model_n_params,n_batch,n_ubatch,"
                              "n_threads,cpu_mask,cpu_strict,poll,type_k,type_v,n_gpu_layers,n_cpu_moe,split_mode,main_"
                              "gpu,no_kv_offload,flash_attn,"
                              "devices,tensor_split,tensor_buft_overrides,load_mode,embeddings,no_op_offload,no_host,"
                              "fit_target,fit_min_ctx,n_prompt,"
                              "n_gen,n_depth,test_time,avg_ns,stddev_ns,avg_ts,stddev_ts";

static double ns[] = {1e9, 2e9, 3e9}, ts[] = {12, 10, 11};

static struct bench_row a_row(void)
{
    return (struct bench_row){.path = "a\"b'.gguf",
                              .file = "a.gguf",
                              .type = "llama 1B Q8_0",
                              .size = 1000,
                              .n_params = 900,
                              .n_batch = 2048,
                              .n_ubatch = 512,
                              .n_threads = 2,
                              .kv_type = {DT_F16, DT_Q8_0},
                              .device = "cpu",
                              .backend = "CPU",
                              .gpu = "",
                              .test = {512, 0, 0, 1},
                              .when = 1790000000,
                              .n = 3,
                              .ns = ns,
                              .ts = ts};
}

static char *printed(enum bench_format format, int n)
{
    struct text out = {0};
    struct bench_row r = a_row();
    bench_print_head(format, NULL, &out);
    for (int i = 0; i < n; i++)
        bench_print_row(format, NULL, &r, i == 0, &out);
    bench_print_tail(format, &out);
    text_append(&out, (struct str){"", 1});
    return out.data;
}

Test(bench, csv_begins_with_the_columns_of_llama_bench_and_every_line_has_as_many)
{
    char *csv = printed(BENCH_CSV, 2);
    cr_expect_eq(strncmp(csv, columns, strlen(columns)), 0, "%s", csv);
    int commas[3] = {0}, line = 0;
    bool quoted = false;
    for (const char *p = csv; *p && line < 3; p++) {
        quoted ^= *p == '"';
        commas[line] += *p == ',' && !quoted;
        line += *p == '\n';
    }
    cr_expect(commas[0] == commas[1] && commas[1] == commas[2], "%d %d %d", commas[0], commas[1], commas[2]);
    cr_expect(strstr(csv, "\"a\"\"b'.gguf\""));
    free(csv);
}

Test(bench, json_has_every_key_of_llama_bench_with_its_samples)
{
    char *text = printed(BENCH_JSON, 2), keys[sizeof columns];
    cJSON *json = cJSON_Parse(text);
    cr_assert_eq(cJSON_GetArraySize(json), 2, "%s", text);
    const cJSON *row = cJSON_GetArrayItem(json, 1);
    memcpy(keys, columns, sizeof keys);
    for (char *save, *key = strtok_r(keys, ",", &save); key; key = strtok_r(NULL, ",", &save))
        cr_expect(cJSON_HasObjectItem(row, key), "%s", key);
    cr_expect_str_eq(cJSON_GetObjectItem(row, "model_filename")->valuestring, "a\"b'.gguf");
    cr_expect_float_eq(cJSON_GetObjectItem(row, "avg_ts")->valuedouble, 11, 1e-9);
    cr_expect_float_eq(cJSON_GetObjectItem(row, "stddev_ts")->valuedouble, 1, 1e-9);
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(row, "samples_ns")), 3);
    cJSON_Delete(json);
    free(text);
}

Test(bench, ceilings_stand_beside_the_samples_where_they_were_measured)
{
    double peaks[] = {3e10, 4e10, 5e10};
    struct bench_row r = a_row();
    for (int with = 0; with < 2; with++) {
        struct text out = {0};
        r.read_peaks = r.multiply_peaks = with ? peaks : NULL;
        bench_print_row(BENCH_JSONL, NULL, &r, true, &out);
        cJSON *row = cJSON_ParseWithLength(out.data, out.size);
        cr_assert(row, "%.*s", (int)out.size, out.data);
        cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(row, "samples_read_ceiling")), with ? 3 : 0);
        cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(row, "samples_multiply_ceiling")), with ? 3 : 0);
        cJSON_Delete(row);
        text_free(&out);
    }
}

Test(bench, json_lines_are_one_object_each)
{
    char *text = printed(BENCH_JSONL, 3);
    int n = 0;
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        cJSON *json = cJSON_Parse(line);
        cr_expect(cJSON_IsObject(json), "%s", line);
        cJSON_Delete(json);
        n++;
    }
    cr_expect_eq(n, 3);
    free(text);
}

Test(bench, sql_names_its_table_and_escapes_quotes)
{
    char *text = printed(BENCH_SQL, 1);
    cr_expect(strstr(text, "CREATE TABLE IF NOT EXISTS llama_bench (\n  build_commit TEXT,\n  build_number INTEGER"));
    cr_expect(strstr(text, "'a\"b''.gguf'"));
    cr_expect(strstr(text, "stddev_ts REAL"));
    free(text);
}

// --- the table ---

static double peer_ts[] = {10, 10, 10};

// A row of everything that a table can show, with long names.
static struct bench_row a_full_row(void)
{
    struct bench_row r = a_row();
    snprintf(r.type, sizeof r.type, "qwen3moe 30.5B Q4_K - Medium");
    r.test = (struct speed_test){512, 128, 16384, 1};
    r.peer_ts = peer_ts;
    r.read_part = 0.71;
    r.multiply_part = 0.1;
    r.unit_name = "AVX-512 VNNI";
    r.median_step_ms = r.p95_step_ms = r.first_ms = r.load_ms = 12.34;
    return r;
}

static char *table(unsigned shown, int label_width, int limit, const struct bench_row *r)
{
    struct text out = {0};
    struct bench_layout l = bench_layout_choose(&(struct bench_view){shown, label_width, limit});
    bench_print_table_head(&l, &out);
    bench_print_table_row(&l, r, &out);
    text_append(&out, (struct str){"", 1});
    return out.data;
}

// The columns of the widest line; every line of a table must have as many.
static int width_of(const char *text)
{
    int widest = 0;
    for (const char *p = text; *p; p += strcspn(p, "\n") + 1) {
        int width = (int)display_text_width((struct str){p, strcspn(p, "\n")});
        cr_expect(!widest || width == widest, "%d columns beside %d:\n%s", width, widest, text);
        widest = MAX(widest, width);
    }
    return widest;
}

Test(bench, a_table_fits_into_every_width_and_keeps_the_test_and_its_speed)
{
    struct bench_row r = a_full_row();
    for (unsigned shown = 0; shown < 1 << 4; shown++)
        for (int limit = 50; limit < 260; limit++) {
            char *text = table(shown, 20, limit, &r);
            cr_assert_leq(width_of(text), limit, "%s", text);
            cr_assert(strstr(text, "pp512+tg128 @ d16384") && strstr(text, "11.00 ± 1.00"), "%s", text);
            free(text);
        }
}

Test(bench, a_table_of_80_columns_says_which_ceiling_binds_and_how_near_it_is)
{
    struct bench_row r = a_full_row();
    r.test = (struct speed_test){0, 128, 0, 1};
    char *text = table(BENCH_SHOW_CEILING, 5, BENCH_WIDTH, &r);
    cr_expect(strstr(text, "| qwen3moe 30.5B Q4_K_M | "), "%s", text);
    cr_expect(strstr(text, "|  71% memory |") || strstr(text, "|   71% memory |"), "%s", text);
    cr_expect(strstr(text, "| size") || strstr(text, " size |"), "%s", text);
    cr_expect(!strstr(text, "threads") && !strstr(text, "type_k"), "%s", text);
    free(text);
}

Test(bench, a_setting_that_was_given_keeps_its_column_in_a_narrow_window)
{
    struct bench_row r = a_full_row();
    char *text = table(BENCH_SHOW_THREADS | BENCH_SHOW_VALUES | BENCH_SHOW_VERBOSE, 20, 66, &r);
    cr_expect(strstr(text, "threads") && strstr(text, "type_v") && strstr(text, "q8_0"), "%s", text);
    cr_expect(!strstr(text, "GB/s") && !strstr(text, "size"), "%s", text);
    free(text);
}

Test(bench, nothing_is_left_out_where_there_is_no_limit)
{
    static const char *const all[] = {"size", "params", "GB/s", "GMAC/s", "bound by", "step ms", "first ms", "memory"};
    struct bench_row r = a_full_row();
    char *text = table(BENCH_SHOW_VERBOSE, 20, 0, &r);
    for (size_t i = 0; i < COUNT_OF(all); i++)
        cr_expect(strstr(text, all[i]), "%s:\n%s", all[i], text);
    cr_expect(strstr(text, "qwen3moe 30.5B Q4_K - Medium"), "%s", text);
    free(text);
}

// No line of what `text` holds is wider than a table.
static void expect_narrow(const struct text *text)
{
    for (size_t at = 0; at < text->size;) {
        const char *end = memchr(text->data + at, '\n', text->size - at);
        size_t len = end ? (size_t)(end - text->data) - at : text->size - at;
        struct str line = {text->data + at, len};
        cr_expect_leq(display_text_width(line), BENCH_WIDTH, "%.*s", STR_ARG(line));
        at += len + 1;
    }
}

Test(bench, diagrams_and_depths_fit_into_80_columns)
{
    enum { ROWS = 64 };
    static struct bench_row rows[ROWS];
    struct bench_ceilings c = {.read = 4e10, .multiply = {5e11, 1e12, 2e11}};
    struct text out = {0};
    for (int i = 0; i < UNIT_COUNT; i++)
        c.unit[i] = "AVX-512 VNNI";
    for (int i = 0; i < ROWS; i++) {
        rows[i] = a_full_row();
        rows[i].test.n_depth = 100000 + i;
        rows[i].bytes = rows[i].products = 1e9 * (i + 1);
    }
    bench_print_depths(rows, ROWS, &out);
    cr_expect(memmem(out.data, out.size, "100000-100063", 13), "%.*s", (int)out.size, out.data);
    bench_print_depths(rows, 3, &out);
    cr_expect(memmem(out.data, out.size, "100000 100001 100002", 20), "%.*s", (int)out.size, out.data);
    bench_print_roofline(rows, ROWS, &c, &out);
    expect_narrow(&out);
    text_free(&out);
}

// --- kept rows ---

Test(bench, a_slower_run_is_told_from_a_kept_one_and_an_equal_one_is_not)
{
    char path[] = "/tmp/quern-bench-XXXXXX";
    int fd = mkstemp(path), n_slower;
    struct bench_row r = a_row();
    struct error err;
    struct text out = {0};
    double slow[] = {5, 5.5, 6};
    close(fd);
    cr_assert_eq(bench_save(path, &r, 1, &err), 0, "%s", err.text);
    cr_assert_eq(bench_against(path, &r, 1, &n_slower, &out, &err), 0, "%s", err.text);
    cr_expect_eq(n_slower, 0);
    r.ts = slow;
    cr_assert_eq(bench_against(path, &r, 1, &n_slower, &out, &err), 0);
    cr_expect_eq(n_slower, 1);
    cr_expect(strstr(out.data, "slower"), "%s", out.data);
    expect_narrow(&out);
    r.test.n_prompt = 64;
    cr_assert_eq(bench_against(path, &r, 1, &n_slower, &out, &err), 0);
    cr_expect_eq(n_slower, -1);
    cr_expect(strstr(out.data, "was not kept"));
    text_free(&out);
    unlink(path);
}

Test(bench, another_programs_rows_are_taken_and_its_failure_is_an_error)
{
    char path[] = "/tmp/quern-peer-XXXXXX";
    struct bench_row r = a_row();
    struct error err = {0};
    double peer;
    int fd = mkstemp(path);
    dprintf(fd, "#!/bin/sh\n[ \"$4\" = 512 ] || exit 3\necho '[{\"avg_ts\": 123.5}]'\n");
    fchmod(fd, 0700);
    close(fd);
    cr_expect_eq(bench_peer(path, &r, &peer, &err), 0, "%s", err.text);
    cr_expect_float_eq(peer, 123.5, 1e-9);
    r.test.n_prompt = 64;
    cr_expect_eq(bench_peer(path, &r, &peer, &err), -1);
    cr_expect(strstr(err.text, "status 3"), "%s", err.text);
    unlink(path);
}

// --- synthetic models ---

Test(bench, the_file_of_a_synthetic_model_has_no_name_and_opens_for_another_program)
{
    char folder[] = "/tmp/quern-bench-XXXXXX", path[PATH_MAX], command[PATH_MAX + 64];
    struct error err = {0};
    cr_assert(mkdtemp(folder));
    setenv("TMPDIR", folder, 1);
    int fd = bench_synthetic_open("llama-tiny:Q8_0", path, &err);
    cr_assert_geq(fd, 0, "%s", err.text);
    snprintf(command, sizeof command, "test \"$(head -c 4 %s)\" = GGUF", path);
    cr_expect_eq(system(command), 0);
    cr_expect_eq(rmdir(folder), 0, "a file was left in %s", folder); // the folder is empty while the file is in use
    close(fd);
    cr_expect_eq(bench_synthetic_open("llama-tiny:Q8_0", path, &err), -1);
    cr_expect(err.code == E_IO && strstr(err.text, folder), "%s", err.text);
    cr_expect_eq(bench_synthetic_open("list", path, &err), -1);
    cr_expect(strstr(err.text, "llama3-8b"), "%s", err.text);
}
