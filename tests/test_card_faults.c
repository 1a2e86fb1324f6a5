// Each call of the driver fails, at its n-th use, in run, batch and chat. The verb ends with the status of its error and
// names the call, or goes on to the same output; nothing is left behind, and a batch that is started again comes to the
// output of one that nothing disturbed. The everyday suite has some of the calls, the long one (EVERY_CALL) all of them.
#include "engine/model.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { OUT_SIZE = 1 << 14, NO_MEMORY = 2, UNKNOWN = 999 };
static char folder[64];

static const char *const calls[] = {
#ifdef EVERY_CALL
#define CU_CALL(symbol, params) #symbol,
#define CU_MAYBE CU_CALL
#include "kernels/ptx/cuda_api.def"
#undef CU_CALL
#undef CU_MAYBE
#else
    "cuGraphLaunch",
    "cuMemcpyDtoHAsync_v2",
#endif
};
#ifdef EVERY_CALL
static const int uses[] = {1, 2, 5, 15, 60};
#else
static const int uses[] = {3};
#endif

// Runs quern with a failing call; 0 as `use`: none fails. Stores what it prints on both streams, and returns its status.
static int quern(const char *call, int use, int result, const char *words, char out[OUT_SIZE])
{
    char command[1024], failing[96] = "unset QUERN_CUDA_FAIL";
    if (use)
        snprintf(failing, sizeof failing, "export QUERN_CUDA_FAIL=%s:%d:%d", call, use, result);
    const int n = snprintf(command, sizeof command,
                           "cd %s && export XDG_CACHE_HOME=%s/cache LD_LIBRARY_PATH=%s && %s && { %s; } 2>&1", folder,
                           folder, getenv("QUERN_CUDA_FOLDER"), failing, words);
    cr_assert(n < (int)sizeof command);
    FILE *f = popen(command, "r");
    cr_assert_not_null(f);
    size_t size = fread(out, 1, OUT_SIZE - 1, f);
    out[size] = 0;
    for (char rest[4096]; fread(rest, 1, sizeof rest, f);)
        ;
    const int status = pclose(f);
    cr_assert(WIFEXITED(status), "%s:%d: status %#x: %s", call, use, status, out);
    return WEXITSTATUS(status);
}

static void shell(const char *format, ...)
{
    char command[512], text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(command, sizeof command, "cd %s && %s", folder, text);
    cr_assert_eq(system(command), 0, "%s", command);
}

static void make_all(void)
{
    if (!getenv("QUERN_BIN") || !getenv("QUERN_CUDA_FOLDER") || !model_has_builtin())
        cr_skip_test("skipped: QUERN_BIN and QUERN_CUDA_FOLDER are not set, or there is no built-in model");
    snprintf(folder, sizeof folder, "/tmp/quern-card-faults-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_all(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (folder[0])
        cr_expect_eq(system(command), 0);
}

TestSuite(card_faults, .init = make_all, .fini = remove_all, .timeout = 3600);

// Does `one` for each call, use and result.
static void each_fault(void (*one)(const char *call, int use, int result))
{
    for (size_t c = 0; c < COUNT_OF(calls); c++)
        for (size_t u = 0; u < COUNT_OF(uses); u++) {
            one(calls[c], uses[u], UNKNOWN);
            if (!strncmp(calls[c], "cuMem", 5))
                one(calls[c], uses[u], NO_MEMORY);
        }
}

// The status of a failure, and a line that names the call.
static void expect_failure(const char *call, int use, int result, int status, const char *out)
{
    cr_expect_eq(status, result == NO_MEMORY ? E_MEMORY : E_GPU, "%s:%d:%d: status %d: %s", call, use, result, status,
                 out);
    cr_expect(strstr(out, call), "%s:%d:%d: %s", call, use, result, out);
}

#define FLAGS " --device gpu --no-tune --temp 0 -c 64 -ub 4 -t 1"

static void run_fails(const char *call, int use, int result)
{
    static char want[OUT_SIZE];
    char out[OUT_SIZE];
    const char *words = "$QUERN_BIN run" FLAGS " -n 3 --raw -p once";
    if (!want[0])
        cr_assert_eq(quern(call, 0, 0, words, want), 0, "%s", want);
    const int status = quern(call, use, result, words, out);
    if (status)
        expect_failure(call, use, result, status, out);
    else
        cr_expect(!strncmp(out, want, strlen(want)), "%s:%d:%d: %s instead of %s", call, use, result, out, want);
}

Test(card_faults, run_says_what_failed)
{
    each_fault(run_fails);
}

static void chat_fails(const char *call, int use, int result)
{
    char out[OUT_SIZE];
    const int status = quern(call, use, result, "printf 'one\\ntwo\\n' | $QUERN_BIN chat" FLAGS " -n 2", out);
    if (status)
        expect_failure(call, use, result, status, out);
}

Test(card_faults, chat_says_what_failed)
{
    each_fault(chat_fails);
}

static void batch_fails(const char *call, int use, int result)
{
    const char *words = "$QUERN_BIN batch in.txt -o out.jsonl" FLAGS " -n 2";
    char out[OUT_SIZE];
    shell("rm -f out.jsonl*");
    const int status = quern(call, use, result, words, out);
    if (status) {
        expect_failure(call, use, result, status, out);
        cr_expect_eq(quern(call, 0, 0, words, out), 0, "%s:%d:%d, again: %s", call, use, result, out);
    }
    shell("cmp out.jsonl want.jsonl");
    shell("test $(ls | wc -l) = $(cat n_files)");
}

Test(card_faults, a_batch_goes_on_to_the_same_output)
{
    char out[OUT_SIZE];
    shell("printf 'one\\ntwo\\nthree\\n' >in.txt");
    cr_assert_eq(quern("none", 0, 0, "$QUERN_BIN batch in.txt -o out.jsonl" FLAGS " -n 2", out), 0, "%s", out);
    shell("cp out.jsonl want.jsonl; touch n_files; ls | wc -l >n_files");
    each_fault(batch_fails);
}

// What has been answered is named with the failure, and the way on.
Test(card_faults, a_batch_says_how_it_goes_on)
{
    char out[OUT_SIZE];
    shell("printf 'one\\ntwo\\nthree\\n' >in.txt");
    cr_assert_eq(
        quern("cuMemcpyDtoHAsync_v2", 4, UNKNOWN, "$QUERN_BIN batch in.txt -o out.jsonl -np 1" FLAGS " -n 3", out),
        E_GPU, "%s", out);
    cr_expect(strstr(out, "1 rows are in out.jsonl, and the same command goes on"), "%s", out);
}

// Too little memory for the weights: what was free, and what they take.
Test(card_faults, too_little_memory_is_told_in_figures)
{
    char out[OUT_SIZE];
    cr_assert_eq(quern("none", 0, 0, "export QUERN_CUDA_MEMORY=4; $QUERN_BIN run" FLAGS " -n 3 once", out), E_MEMORY,
                 "%s", out);
    cr_expect(strstr(out, "(the card had 4.0 MiB free, the weights take 4.8 MiB)"), "%s", out);
}
