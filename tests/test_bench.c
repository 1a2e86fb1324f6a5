// Tests the lists and labels of `quern bench`, and that a program which reads llama-bench's output can read it.
#include "cmd/bench/bench.h"

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
    bench_print_head(format, false, &out);
    for (int i = 0; i < n; i++)
        bench_print_row(format, &r, i == 0, &out);
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
        bench_print_row(BENCH_JSONL, &r, true, &out);
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
    r.test.n_prompt = 64;
    cr_assert_eq(bench_against(path, &r, 1, &n_slower, &out, &err), 0);
    cr_expect_eq(n_slower, 0);
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
