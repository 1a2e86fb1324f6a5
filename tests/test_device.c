// Tests quern device on a machine with GPUs, with a GPU that does not respond, and without any.
#include "engine/model.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { OUT_SIZE = 1 << 16 };

// Runs quern with words of the environment before it; gives the beginning of what it prints and checks its exit status.
static void quern_ends(int status, const char *environment, const char *words, char out[OUT_SIZE])
{
    char command[1024];
    const char *bin = getenv("QUERN_BIN"), *library = getenv("QUERN_CUDA_FOLDER");
    if (!bin || !library)
        cr_skip_test("skipped: QUERN_BIN and QUERN_CUDA_FOLDER are not set");
    snprintf(command, sizeof(command), "LD_LIBRARY_PATH=%s %s %s %s", library, environment, bin, words);
    FILE *f = popen(command, "r");
    cr_assert_not_null(f);
    size_t n = fread(out, 1, OUT_SIZE - 1, f);
    out[n] = 0;
    for (char rest[4096]; n == OUT_SIZE - 1 && fread(rest, 1, sizeof(rest), f);)
        ;
    const int ended = pclose(f);
    cr_assert(WIFEXITED(ended) && WEXITSTATUS(ended) == status, "%s: status %#x: %s", command, ended, out);
}

static void quern(const char *environment, const char *words, char out[OUT_SIZE])
{
    quern_ends(0, environment, words, out);
}

static void device(const char *environment, const char *flags, char out[OUT_SIZE])
{
    char words[256];
    snprintf(words, sizeof(words), "device %s", flags);
    quern(environment, words, out);
}

static void needs_builtin(void)
{
    if (!model_has_builtin())
        cr_skip_test("skipped: this build has no built-in model");
}

#define EXPECT_LINE(out, line) cr_expect(strstr(out, line "\n"), "no line \"%s\" in\n%s", line, out)

Test(device, lists_every_card)
{
    char out[OUT_SIZE];
    device("QUERN_CUDA_CARDS=2 QUERN_CUDA_CAPABILITY=8.6 QUERN_CUDA_MEMORY=512 QUERN_CUDA_VERSION=12040", "", out);
    EXPECT_LINE(out, "gpu:0    Interpreter of PTX (sm_86), compute capability 8.6, 4 multiprocessors");
    EXPECT_LINE(out, "gpu:1    Interpreter of PTX (sm_86), compute capability 8.6, 4 multiprocessors");
    EXPECT_LINE(out, "memory   512 MiB free of 512 MiB");
    EXPECT_LINE(out, "driver   CUDA 12.4");
    EXPECT_LINE(out, "kernels  those of sm_80");
    cr_expect(!strstr(out, "copy "), "%s", out);
}

Test(device, tells_the_tier_of_a_card)
{
    static const struct {
        const char *environment, *line;
    } cases[] = {{"QUERN_CUDA_CAPABILITY=7.5", "kernels  those of sm_75\n"},
                 {"QUERN_CUDA_CAPABILITY=8.9", "kernels  those of sm_80\n"},
                 {"QUERN_CUDA_CAPABILITY=12.0", "kernels  those of sm_90\n"},
                 {"QUERN_CUDA_CAPABILITY=7.0", "kernels  none: compute capability 7.5 is the least\n"}};
    char out[OUT_SIZE];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        device(cases[i].environment, "", out);
        cr_expect(strstr(out, cases[i].line), "%s: %s", cases[i].environment, out);
    }
}

Test(device, measures_cards_too)
{
    char out[OUT_SIZE];
    device("QUERN_CUDA_MEMORY=16", "--measure -t 1 --json", out);
    cJSON *json = cJSON_Parse(out), *card = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "gpus"), 0);
    cr_assert_not_null(card, "%s", out);
    cr_expect_gt(cJSON_GetObjectItem(card, "copy_bytes_per_second")->valuedouble, 1e6);
    cr_expect_gt(cJSON_GetObjectItem(card, "upload_bytes_per_second")->valuedouble, 1e6);
    cr_expect_eq(cJSON_GetObjectItem(card, "memory_total")->valuedouble, 16 << 20);
    cr_expect_eq(cJSON_GetObjectItem(card, "tier")->valueint, 90);
    cJSON_Delete(json);
}

Test(device, a_card_that_does_not_answer_is_told_beside_the_others)
{
    char out[OUT_SIZE];
    device("QUERN_CUDA_CARDS=2 QUERN_CUDA_FAIL=cuDevicePrimaryCtxRetain:1:2", "", out);
    cr_expect(strstr(out, "gpu:0    cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY (2)"), "%s", out);
    cr_expect(strstr(out, "gpu:1    Interpreter of PTX"), "%s", out);
}

Test(device, says_in_one_line_that_there_is_no_card)
{
    char out[OUT_SIZE];
    device("QUERN_CUDA_CARDS=0", "", out);
    cr_expect(strstr(out, "gpu      none: cuInit: CUDA_ERROR_NO_DEVICE (100)"), "%s", out);
    device("QUERN_CUDA_CARDS=0", "--json", out);
    cJSON *json = cJSON_Parse(out);
    cr_assert_not_null(json, "%s", out);
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(json, "gpus")), 0);
    cr_expect(cJSON_IsString(cJSON_GetObjectItem(json, "no_gpu")));
    cJSON_Delete(json);
}

// Kernels are written for a card on paper.
Test(device, dump_ptx_needs_no_card)
{
    char out[OUT_SIZE], again[OUT_SIZE];
    needs_builtin();
    quern("QUERN_CUDA_CARDS=0", "dump ptx", out);
    cr_expect(!strncmp(out, ".version ", 9), "%.100s", out);
    cr_expect(strstr(out, ".visible .entry "));
    quern("QUERN_CUDA_CARDS=0", "dump ptx", again);
    cr_expect_str_eq(out, again);
    quern("QUERN_CUDA_CARDS=0", "dump ptx --stats", out);
    cr_expect(strstr(out, "kernel ") && strstr(out, " bytes of PTX"), "%s", out);
    // where ptxas is installed, the time of a step is predicted
    cr_expect(!strstr(out, "assembled by") || strstr(out, " tokens/s"), "%s", out);
    // the first kernel of products, of many rows: launches, threads, bytes, lines, then instructions
    const char *line = strstr(out, "\nmatmul_");
    double per_weight = 0;
    cr_assert(line, "%s", out);
    cr_expect_eq(sscanf(line, "%*s %*d %*d %*d %*d %lf", &per_weight), 1, "%.100s", line);
    cr_expect(per_weight > 0.05 && per_weight < 16, "%.100s", line);
}

// Bulk copies of weights stand in kernels with a ring alone.
Test(device, dump_ptx_shows_variants)
{
    char out[OUT_SIZE];
    needs_builtin();
    quern("QUERN_CUDA_CARDS=0", "dump ptx | grep -c cp.async.bulk || :", out);
    cr_expect_eq(atoi(out), 0, "%s", out);
    quern("QUERN_CUDA_CARDS=0", "dump ptx --variant 2 | grep -c cp.async.bulk || :", out);
    cr_expect(atoi(out) > 0, "%s", out);
}

// A flag that is not heeded is refused, and the message says where it belongs.
Test(device, dump_refuses_flags_that_it_does_not_heed)
{
    static const struct {
        const char *words, *message;
    } cases[] = {
        {"dump plan --stats", "dump plan takes no --stats"},
        {"dump graph --variant 2", "dump graph takes no --variant"},
        {"dump ptx --device cpu", "dump ptx takes no --device but gpu"},
        {"dump ptx --variant 5", "--variant 5: from 0 to 4"},
        {"device --tune --device cpu", "--tune measures a GPU, not --device cpu"},
    };
    char out[OUT_SIZE], words[128];
    needs_builtin();
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(words, sizeof words, "%s 2>&1", cases[i].words);
        quern_ends(E_USAGE, "QUERN_CUDA_CARDS=0", words, out);
        cr_expect(strstr(out, cases[i].message), "%s: %s", words, out);
    }
}

// Where there is no GPU, the plan of one on paper is shown, and that is said.
Test(device, dump_plan_of_a_gpu_needs_no_card)
{
    char there[OUT_SIZE], paper[OUT_SIZE];
    needs_builtin();
    quern("QUERN_CUDA_MEMORY=64", "dump plan --device gpu | sed '1d; /^choices of kernels/d'", there);
    quern("QUERN_CUDA_CARDS=0", "dump plan --device gpu | sed '1d; /^choices of kernels/d'", paper);
    cr_expect(strstr(there, " launches"), "%s", there);
    cr_expect_str_eq(there, paper);
    quern("QUERN_CUDA_CARDS=0", "dump plan --device gpu 2>&1 >/dev/null", paper);
    cr_expect(strstr(paper, "this machine has none"), "%s", paper);
}

// A ptxas that fails without a word.
Test(device, a_failing_ptxas_is_told)
{
    char out[OUT_SIZE];
    needs_builtin();
    quern_ends(E_GPU,
               "PATH=/tmp/quern-no-ptxas:$PATH; mkdir -p /tmp/quern-no-ptxas; ln -sf /bin/false "
               "/tmp/quern-no-ptxas/ptxas; QUERN_CUDA_CARDS=0",
               "dump ptx --stats 2>&1", out);
    cr_expect(strstr(out, "ptxas ended with status 1 and said nothing"), "%s", out);
}

// A model is measured anew each time that this is asked for, and the verbs say where the choices are.
Test(device, tune_measures_anew_and_keeps_what_it_chose)
{
    char out[OUT_SIZE], folder[] = "/tmp/quern-device-XXXXXX", environment[128];
    needs_builtin();
    cr_assert_not_null(mkdtemp(folder));
    snprintf(environment, sizeof environment, "QUERN_CUDA_MEMORY=512 XDG_CACHE_HOME=%s", folder);
    for (int i = 0; i < 2; i++) {
        quern(environment, "device --tune -ub 2", out);
        cr_expect(strstr(out, "\nstep ") && strstr(out, " measured in ") && strstr(out, ", kept in /tmp/quern-device-"),
                  "%s", out);
        cr_expect(!strstr(out, "\n0 measured"), "%s", out);
    }
    quern(environment, "run -v --device gpu -n 1 -ub 2 --raw -p a 2>&1", out);
    cr_expect(strstr(out, "choices of kernels: 0 measured now in 0.0 s, "), "%s", out);
    quern("QUERN_CUDA_MEMORY=64", "device --tune -ub 2", out);
    cr_expect(strstr(out, "not measured, because the card has no memory left for it"), "%s", out);
    quern_ends(E_IO, "QUERN_CUDA_MEMORY=512 XDG_CACHE_HOME=/dev/null", "device --tune -ub 2 2>&1", out);
    cr_expect(strstr(out, "the choices are not kept in /dev/null/quern/kernels/products-"), "%s", out);
    snprintf(environment, sizeof environment, "rm -rf %s", folder);
    cr_expect_eq(system(environment), 0);
}

Test(device, bench_names_the_card)
{
    char out[OUT_SIZE];
    needs_builtin();
    quern("QUERN_CUDA_MEMORY=64", "bench --device gpu -p 4 -n 1 -r 1 -o json", out);
    cr_expect(strstr(out, "\"gpu_info\": \"Interpreter of PTX (sm_90)\""), "%s", out);
    cr_expect(strstr(out, "\"backends\": \"CUDA\""), "%s", out);
    quern("", "bench --device cpu -p 4 -n 1 -r 1 -t 1 --no-ceilings", out);
    cr_expect(strstr(out, "| CPU     |"), "%s", out);
}

// By their ceilings rows are judged; the memory that is read for these (512 MiB) is none that a model needs.
Test(device, bench_measures_ceilings_beside_a_run_and_not_their_memory)
{
    char out[OUT_SIZE];
    double peak = 0, first = 0, second = 0;
    needs_builtin();
    quern("", "bench --device cpu -p 0 -n 2 -r 2 -t 1 -o json", out);
    const char *at = strstr(out, "\"peak_bytes\": "), *ceiling = strstr(out, "\"samples_read_ceiling\": [ ");
    cr_assert(at && ceiling, "%s", out);
    cr_expect_eq(sscanf(at, "%*s %lf", &peak), 1);
    cr_expect_eq(sscanf(ceiling, "%*s [ %lf, %lf ]", &first, &second), 2, "%s", ceiling);
    cr_expect(peak > 1e6 && peak < 256e6, "%.0f bytes", peak);
    cr_expect(first > 1e8 && second > 1e8, "%s", ceiling);
}

// Every row is there, and no result differs from the CPU's: the program ends badly where one does.
Test(device, the_building_blocks_run_on_a_card, .timeout = 120)
{
    static const char *const rows[] = {"matmul",  "add",    "scale",    "relu",       "gelu",     "silu",
                                       "sigmoid", "swiglu", "rms_norm", "layer_norm", "transfer", "compile",
                                       "step",    "launch", "copy",     "read"};
    char command[1024], out[OUT_SIZE];
    const char *library = getenv("QUERN_CUDA_FOLDER"), *bin = getenv("QUERN_MICRO_BIN");
    if (!bin || !library)
        cr_skip_test("skipped: QUERN_MICRO_BIN and QUERN_CUDA_FOLDER are not set");
    snprintf(command, sizeof(command), "LD_LIBRARY_PATH=%s QUERN_CUDA_MEMORY=64 %s --device gpu --quick -o json",
             library, bin);
    FILE *f = popen(command, "r");
    cr_assert_not_null(f);
    size_t n = fread(out, 1, OUT_SIZE - 1, f);
    out[n] = 0;
    cr_assert_eq(pclose(f), 0, "%s: %s", command, out);
    cJSON *json = cJSON_Parse(out), *row;
    cr_assert(cJSON_IsArray(json), "%s", out);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        bool found = false;
        cJSON_ArrayForEach(row, json)
        {
            found |= !strcmp(cJSON_GetObjectItem(row, "what")->valuestring, rows[i]);
            cr_expect_geq(cJSON_GetObjectItem(row, "ms")->valuedouble, 0);
        }
        cr_expect(found, "no row of %s", rows[i]);
    }
    cJSON_Delete(json);
}
Test(device, bench_tells_the_time_of_operations_on_a_card)
{
    char out[OUT_SIZE];
    needs_builtin();
    quern("QUERN_CUDA_MEMORY=64", "bench --device gpu -p 4 -n 0 -r 1 --by-op 2>&1", out);
    char *table = strstr(out, "by operation");
    cr_assert_not_null(table, "%s", out);
    cr_expect(strstr(table, "  matmul          Q8_0 "), "%s", out);
    cr_expect(strstr(table, "  attention"), "%s", out);
    cr_expect(!strstr(table, "inf") && !strstr(table, "nan"), "%s", out);
}
