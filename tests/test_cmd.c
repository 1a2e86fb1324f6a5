// Tests the program as a whole: its output on stdout and stderr, its exit status, and its reaction to failures of the
// system.
#include "models/builtin/builtin.h"
#include "models/synth_model.h"
#include "tests/golden.h"
#include "tests/sanitized.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ARGS_MAX = 32 };

// How to run it, and what came of it.
struct run {
    const char *in;        // what stdin holds; NULL: nothing
    const char *stdout_to; // a file for stdout; NULL: it is caught
    const char *model;     // $QUERN_MODEL
    rlim_t address_space;  // 0: no limit
    int status;            // exit status; 128 + n when signal n ended it
    char out[1 << 16], err[1 << 14];
    size_t out_n;
};

static const char *program(void)
{
    const char *path = getenv("QUERN_BIN");
    cr_assert(path, "QUERN_BIN does not say where quern is");
    return path;
}

static int temporary(const char *content)
{
    char path[] = "/tmp/quern-cmd-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    unlink(path);
    size_t n = content ? strlen(content) : 0;
    cr_assert_eq(write(fd, content, n), (ssize_t)n);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static size_t read_back(int fd, char *out, size_t size)
{
    ssize_t n = pread(fd, out, size - 1, 0);
    cr_assert_geq(n, 0);
    out[n] = '\0';
    close(fd);
    return (size_t)n;
}

static _Noreturn void become(const struct run *r, const char *const *argv, int in, int out, int err)
{
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    if (r->model)
        setenv("QUERN_MODEL", r->model, 1);
    else
        unsetenv("QUERN_MODEL");
    if (r->address_space)
        setrlimit(RLIMIT_AS, &(struct rlimit){r->address_space, r->address_space});
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(99);
}

static int status_of(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        cr_assert_eq(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void collect_args(const char **argv, va_list args)
{
    int argc = 0;
    argv[argc++] = program();
    while (argc < ARGS_MAX - 1 && (argv[argc] = va_arg(args, char *)))
        argc++;
    cr_assert_null(argv[argc]);
}

static void run(struct run *r, ...)
{
    const char *argv[ARGS_MAX] = {NULL};
    va_list args;
    va_start(args, r);
    collect_args(argv, args);
    va_end(args);
    int in = temporary(r->in), err = temporary(NULL);
    int out = r->stdout_to ? open(r->stdout_to, O_WRONLY) : temporary(NULL);
    cr_assert_geq(out, 0);
    pid_t pid = fork();
    if (pid == 0)
        become(r, argv, in, out, err);
    r->status = status_of(pid);
    r->out_n = r->stdout_to ? 0 : read_back(out, r->out, sizeof r->out);
    read_back(err, r->err, sizeof r->err);
    close(in);
    cr_assert_neq(r->status, 99, "%s cannot be run", argv[0]);
}

// --- models ---

static char folder[] = "/tmp/quern-cmd-models-XXXXXX";
static char tiny_f32[64], tiny_q4[64];

static void make_model(const char *mix, char *path, size_t size)
{
    snprintf(path, size, "%s/%s.gguf", folder, mix);
    struct synth_options o = {.preset = "llama-tiny", .mix = mix, .n_vocab = 600, .seed = 3};
    struct error err = {0};
    cr_assert_eq(synth_model_write(&o, path, &err), 0, "%s", err.text);
}

static void set_up(void)
{
    cr_assert(mkdtemp(folder));
    make_model("F32", tiny_f32, sizeof tiny_f32);
    make_model("Q4_K_M", tiny_q4, sizeof tiny_q4);
}

static void tear_down(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(cmd, .init = set_up, .fini = tear_down, .timeout = 120);

static const char *stories(void)
{
    static char path[512];
    const char *shared = getenv("QUERN_SHARED");
    snprintf(path, sizeof path, "%s/models/stories260K.gguf", shared ? shared : "../shared");
    if (access(path, R_OK))
        cr_skip_test("skipped: no %s", path);
    return path;
}

// --- what goes wrong is said in one line ---

static void check_error(const struct run *r, int status, const char *says)
{
    cr_expect_eq(r->status, status, "%d: %s", r->status, r->err);
    cr_expect(strstr(r->err, says), "'%s' says not '%s'", r->err, says);
    cr_expect(!strncmp(r->err, "quern: ", 7) && strchr(r->err, '\n') == r->err + strlen(r->err) - 1, "not one line: %s",
              r->err);
    cr_expect_eq(r->out_n, 0, "stdout is for answers: %s", r->out);
}

Test(cmd, without_a_word_it_says_in_five_lines_what_it_is_and_offers_a_command)
{
    struct run r = {0};
    run(&r, NULL);
    cr_expect_eq(r.status, 0);
    int lines = 0;
    for (size_t i = 0; i < r.out_n; i++)
        lines += r.out[i] == '\n';
    cr_expect_eq(lines, 5, "%s", r.out);
    const char *next = builtin_image().data ? "quern run \"Tell me" : "quern run -m FILE.gguf \"Tell me";
    cr_expect_not_null(strstr(r.out, next), "%s", r.out);
    cr_expect_str_eq(r.err, "");
}

Test(cmd, errors_are_one_line_with_the_right_status)
{
    struct run r = {0};
    run(&r, "rnu", NULL);
    check_error(&r, 2, "rnu: unknown verb, did you mean run");
    if (!builtin_image().data) {
        run(&r, "run", "-p", "x", NULL);
        check_error(&r, 2, "no model: give one with -m FILE.gguf or $QUERN_MODEL");
    }
    run(&r, "run", "-m", "/no/such.gguf", "-p", "x", NULL);
    check_error(&r, 5, "/no/such.gguf");
    run(&r, "run", "-m", "/etc/passwd", "-p", "x", NULL);
    check_error(&r, 3, "/etc/passwd");
    run(&r, "run", "-m", tiny_f32, "--device", "gpu:7", "-p", "x", NULL);
    check_error(&r, 6, "--device gpu");
    run(&r, "run", "-m", tiny_f32, "--isa", "mmx", "-p", "x", NULL);
    check_error(&r, 2, "mmx");
    run(&r, "run", "-m", tiny_f32, "-p", "x", "y", NULL);
    check_error(&r, 2, "more than one prompt");
    run(&r, "run", "-m", tiny_f32, "x", "y", NULL);
    check_error(&r, 2, "y: a second prompt");
    run(&r, "run", "-m", tiny_f32, "-f", "/no/prompt", NULL);
    check_error(&r, 5, "/no/prompt: No such file");
    run(&r, "run", "-m", tiny_f32, "-c", "8", "-p", "a prompt that is longer than eight tokens, whatever they are",
        NULL);
    check_error(&r, 2, " tokens, limit 8");
    run(&r, "dump", "-m", tiny_f32, "soup", NULL);
    check_error(&r, 2, "graph, plan or ptx");
    run(&r, "logits", "-m", tiny_f32, NULL);
    check_error(&r, 2, "--ids FILE and -o OUT");
    run(&r, "help", "qqqq", NULL);
    check_error(&r, 2, "qqqq");
}

Test(cmd, quantize_never_replaces_its_input)
{
    struct run r = {0};
    char link[80];
    struct stat before, after;
    snprintf(link, sizeof link, "%s/link.gguf", folder);
    cr_assert_eq(symlink(tiny_f32, link), 0);
    cr_assert_eq(stat(tiny_f32, &before), 0);
    run(&r, "quantize", tiny_f32, tiny_f32, "Q8_0", NULL);
    check_error(&r, 2, "is the input");
    run(&r, "quantize", tiny_f32, link, "Q8_0", NULL);
    check_error(&r, 2, "link.gguf: is the input");
    run(&r, "quantize", link, tiny_f32, "Q8_0", NULL);
    check_error(&r, 2, "is the input");
    cr_assert_eq(stat(tiny_f32, &after), 0);
    cr_expect(before.st_ino == after.st_ino && before.st_size == after.st_size, "the input was replaced");
}

Test(cmd, a_run_that_does_not_fit_is_refused_before_it_starts)
{
    struct run r = {0};
    run(&r, "run", "-m", tiny_f32, "-c", "1G", "-p", "x", NULL);
    check_error(&r, 4, "needed");
    cr_expect(strstr(r.err, "; -c "), "%s", r.err);
    run(&r, "run", "-m", tiny_f32, "--no-mmap", "-c", "1G", "-p", "x", NULL);
    check_error(&r, 4, "needed");
    if (sanitized) // its shadow alone is larger than any limit
        return;
    r.address_space = (rlim_t)1 << 30;
    run(&r, "run", "-m", tiny_f32, "-c", "2M", "-p", "x", NULL);
    check_error(&r, 4, "RLIMIT_AS");
    const char *fits = strstr(r.err, "; -c ");
    cr_assert(fits);
    char n_ctx[16];
    r.address_space = (rlim_t)400 << 20;
    run(&r, "run", "-m", tiny_f32, "-n", "1", "-p", "x", NULL);
    cr_expect_eq(r.status, 0, "%s", r.err);
    r.address_space = (rlim_t)1 << 30;
    snprintf(n_ctx, sizeof n_ctx, "%d", atoi(fits + 5) / 64 * 63); // a little less: the libraries grow
    run(&r, "run", "-m", tiny_f32, "-c", n_ctx, "-n", "1", "-p", "x", NULL);
    cr_expect_eq(r.status, 0, "-c %s: %s", n_ctx, r.err);
}

Test(cmd, stdout_that_is_full_or_closed)
{
    struct run r = {.stdout_to = "/dev/full"};
    run(&r, "run", "-m", tiny_f32, "-n", "20", "-p", "x", NULL);
    check_error(&r, 5, "stdout: No space left");
    run(&r, "help", NULL);
    check_error(&r, 5, "stdout: No space left");
    run(&r, "device", NULL);
    check_error(&r, 5, "stdout: No space left");
}

// --- what it says ---

static void expect_narrow(const struct run *r, const char *what)
{
    for (const char *at = r->out; *at;) {
        const size_t n = strcspn(at, "\n");
        cr_expect(n <= 80, "%s: %.*s", what, (int)n, at);
        at += n + (at[n] == '\n');
    }
}

Test(cmd, the_help_fits_80_columns)
{
    static const char *const verbs[] = {
#define VERB(NAME, name, ...) #name,
#include "cmd/verbs.def"
#undef VERB
    };
    struct run r = {0};
    run(&r, "help", NULL);
    expect_narrow(&r, "help");
    for (size_t i = 0; i < COUNT_OF(verbs); i++) {
        run(&r, "help", verbs[i], NULL);
        cr_expect(r.status == 0 && r.out_n > 50, "%s", verbs[i]);
        expect_narrow(&r, verbs[i]);
    }
}

Test(cmd, version_help_and_device_print_on_stdout)
{
    struct run r = {0};
    run(&r, "--version", NULL);
    cr_expect(r.status == 0 && !strncmp(r.out, "quern ", 6) && !r.err[0]);
    run(&r, "help", NULL);
    cr_expect(r.status == 0 && strstr(r.out, "logits") && strstr(r.out, "exit status"));
    run(&r, "run", "--help", NULL);
    cr_expect(r.status == 0 && strstr(r.out, "--repeat-penalty") && !strstr(r.out, "--measure"));
    run(&r, "help", "temperature", NULL);
    cr_expect(r.status == 0 && strstr(r.out, "--temp") && !strstr(r.out, "--top-k"));
    run(&r, "device", NULL);
    cr_expect(r.status == 0 && strstr(r.out, "threads") && strstr(r.out, "memory"), "%s", r.err);
    run(&r, "device", "--json", "--measure", "-t", "1", NULL);
    cJSON *json = cJSON_Parse(r.out);
    cr_assert(json, "%s", r.out);
    cr_expect_eq(cJSON_GetObjectItem(json, "threads")->valueint, 1);
    cr_expect_gt(cJSON_GetArraySize(cJSON_GetObjectItem(json, "isa")), 0);
    cr_expect_gt(cJSON_GetObjectItem(json, "read_bytes_per_second")->valuedouble, 1e8);
    cJSON_Delete(json);
}

Test(cmd, dump_prints_the_stages)
{
    struct run r = {0};
    run(&r, "dump", "graph", "-m", tiny_f32, NULL);
    cr_expect(r.status == 0 && strstr(r.out, "blk.3.attn_q") && !r.err[0], "%s", r.err);
    run(&r, "dump", "plan", "-m", tiny_q4, NULL);
    cr_expect(r.status == 0 && strstr(r.out, "phase") && !r.err[0], "%s", r.err);
}

Test(cmd, the_greedy_text_of_a_real_model)
{
    struct run r = {0};
    char path[512], want[1024] = {0};
    const char *model = stories();
    snprintf(path, sizeof path, "%.*s.greedy.txt", (int)strlen(model) - 5, model);
    FILE *f = fopen(path, "r");
    if (!f)
        cr_skip_test("skipped: no %s", path);
    size_t n = fread(want, 1, sizeof want - 1, f);
    fclose(f);
    while (n && want[n - 1] == '\n')
        want[--n] = '\0';
    want[n] = '\n';                                   // with which quern ends a text
    static const char prompt[] = " Once upon a time"; // the file begins with it
    const char *answer = want + sizeof prompt - 1;
    cr_assert(!strncmp(want, prompt, sizeof prompt - 1));
    run(&r, "run", "-m", model, "--temp", "0", "-n", "200", "-p", prompt + 1, NULL);
    cr_expect_eq(r.status, 0, "%s", r.err);
    cr_expect_str_eq(r.out, answer);
    run(&r, "run", "-m", model, "--temp", "0", "-n", "200", "-p", prompt + 1, "--device", "ref", NULL);
    cr_expect_str_eq(r.out, answer, "the law says otherwise");
    // without -n the context ends it, and that is said
    run(&r, "run", "-m", model, "--temp", "0", "-p", prompt + 1, NULL);
    cr_expect(r.status == 0 && !strncmp(r.out, answer, r.out_n - 1) && r.out_n > 200, "%s", r.out);
    cr_expect(strstr(r.err, "the context of 128 tokens is full"), "%s", r.err);
}

Test(cmd, a_seed_gives_the_same_text_in_every_setting)
{
    struct run first = {0}, r = {0};
    for (int kind = 0; kind < 2; kind++) {
        char *model = kind ? tiny_q4 : tiny_f32;
        run(&first, "run", "-m", model, "--seed", "7", "-n", "60", "-p",
            "some words to begin with, more than seven of them", NULL);
        cr_assert_eq(first.status, 0, "%s", first.err);
        cr_expect_str_eq(first.err, "", "nothing is said without -v");
        cr_expect_gt(first.out_n, 60);
        const char *settings[][2] = {{"-t", "1"},  {"-t", "2"},   {"-t", "3"},         {"-ub", "1"}, {"-ub", "7"},
                                     {"-b", "16"}, {"-c", "512"}, {"--no-mmap", NULL}, {"-v", NULL}};
        for (size_t i = 0; i < COUNT_OF(settings); i++) {
            run(&r, "run", "-m", model, "--seed", "7", "-n", "60", "-p",
                "some words to begin with, more than seven of them", settings[i][0], settings[i][1], NULL);
            cr_expect_eq(r.status, 0, "%s", r.err);
            cr_expect_str_eq(r.out, first.out, "%s %s", settings[i][0], settings[i][1] ? settings[i][1] : "");
        }
        run(&r, "run", "-m", model, "--seed", "8", "-n", "60", "-p",
            "some words to begin with, more than seven of them", NULL);
        cr_expect_str_neq(r.out, first.out, "another seed");
    }
}

Test(cmd, every_type_of_the_cache_runs)
{
    struct run r = {0};
    const char *types[] = {"f32", "f16", "bf16", "q8_0", "q4_0"};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        run(&r, "run", "-m", tiny_f32, "--temp", "0", "-n", "20", "-ctk", types[i], "-ctv", types[(i + 1) % 5], "-p",
            "to begin", NULL);
        cr_expect(r.status == 0 && r.out_n > 0, "%s: %s", types[i], r.err);
    }
    for (int i = 0; i < 2; i++) {
        run(&r, "run", "-m", tiny_q4, "--temp", "0", "-n", "20", i ? "--exact" : "--blas", "-p", "to begin", NULL);
        cr_expect(r.status == 0 || strstr(r.err, "built without OpenBLAS") ||
                      strstr(r.err, "libopenblas.so.0 cannot be"),
                  "%s", r.err);
    }
}

// It is looked for where --blas asks for it, and nowhere else; what is found here is no library.
Test(cmd, openblas_that_cannot_be_loaded_is_named)
{
    struct run r = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/libopenblas.so.0", folder);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    fclose(f);
    setenv("LD_LIBRARY_PATH", folder, 1);
    run(&r, "run", "-m", tiny_q4, "--temp", "0", "-n", "2", "-p", "to begin", NULL);
    cr_expect_eq(r.status, 0, "%s", r.err);
    run(&r, "run", "-m", tiny_q4, "--blas", "--temp", "0", "-n", "2", "-p", "to begin", NULL);
    if (r.status != 0) // else it is a part of the program
        check_error(&r, 2, "--blas: ");
}

Test(cmd, the_prompt_from_anywhere_is_the_same_prompt)
{
    struct run first = {0}, r = {0};
    run(&first, "run", "-m", tiny_f32, "--temp", "0", "-n", "20", "-p", "words to begin", NULL);
    cr_assert_eq(first.status, 0, "%s", first.err);
    r.model = tiny_f32;
    run(&r, "run", "--temp", "0", "-n", "20", "words to begin", NULL);
    cr_expect_str_eq(r.out, first.out, "$QUERN_MODEL, and the prompt as an argument");
    r.in = "words to begin\n";
    run(&r, "run", "--temp", "0", "-n", "20", NULL);
    cr_expect_str_eq(r.out, first.out, "stdin: %s", r.err);
    run(&r, "run", "--temp", "0", "-n", "20", "-f", "-", NULL);
    cr_expect_str_eq(r.out, first.out, "-f -: %s", r.err);
    r.in = "words to begin\n\n";
    run(&r, "run", "--temp", "0", "-n", "20", NULL);
    cr_expect_str_neq(r.out, first.out, "one line end is left out, not two");
    r.in = "";
    run(&r, "run", "--temp", "0", "-n", "5", NULL);
    cr_expect(r.status == 0 || (r.status == 2 && strstr(r.err, "an empty prompt")), "%d: %s", r.status, r.err);
}

static double number(const cJSON *json, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(json, name);
    cr_assert(cJSON_IsNumber(item), "%s is no number", name);
    return item->valuedouble;
}

Test(cmd, json_says_what_the_text_says)
{
    struct run text = {0}, r = {0};
    run(&text, "run", "-m", tiny_f32, "--seed", "5", "-n", "30", "-p", "begin", NULL);
    run(&r, "run", "-m", tiny_f32, "--seed", "5", "-n", "30", "-p", "begin", "--json", NULL);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cJSON *json = cJSON_Parse(r.out);
    cr_assert(json, "%s", r.out);
    const char *answer = cJSON_GetObjectItem(json, "text")->valuestring;
    if (utf8_valid(str_from(text.out)))
        cr_expect_str_eq(answer, text.out);
    cr_expect_eq(number(json, "tokens"), 30);
    cr_expect_gt(number(json, "prompt_tokens"), 0);
    cr_expect_eq(number(json, "seed"), 5);
    cr_expect_str_eq(cJSON_GetObjectItem(json, "stop_reason")->valuestring, "length");
    cr_expect_str_eq(cJSON_GetObjectItem(json, "model")->valuestring, tiny_f32);
    const cJSON *timings = cJSON_GetObjectItem(json, "timings");
    const char *names[] = {"load_ms", "prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_second",
                           "ttft_ms"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        cr_expect_gt(number(timings, names[i]), 0, "%s", names[i]);
    cJSON_Delete(json);
}

Test(cmd, stop_strings_end_the_answer_before_themselves)
{
    struct run all = {0}, r = {0};
    const char *model = stories();
    run(&all, "run", "-m", model, "--temp", "0", "-n", "100", "-p", "Once upon a time", NULL);
    char *at = strstr(all.out, "big, red");
    cr_assert(at, "%s", all.out);
    run(&r, "run", "-m", model, "--temp", "0", "-n", "100", "-p", "Once upon a time", "--stop", "never", "--stop",
        "big, red", NULL);
    const size_t n = (size_t)(at - all.out);
    cr_expect(r.status == 0 && r.out_n == n + 1 && !memcmp(r.out, all.out, n) && r.out[n] == '\n', "%s", r.out);
    run(&r, "run", "-m", model, "--temp", "0", "-n", "100", "-p", "Once upon a time", "--stop", "big, red", "--json",
        NULL);
    cr_expect(strstr(r.out, "\"stop_reason\": \"stop\""), "%s", r.out);
}

// --- logits files ---

static void write_ids(const char *path, int32_t n_tokens, const int32_t *ids, int n)
{
    FILE *f = fopen(path, "wb");
    int32_t head[2] = {n_tokens, 0};
    cr_assert(f && fwrite(head, 4, 2, f) == 2 && fwrite(ids, 4, (size_t)n, f) == (size_t)n);
    fclose(f);
}

static char *read_file(const char *path, size_t *n)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    cr_assert(f && !fstat(fileno(f), &st), "%s", path);
    char *data = malloc((size_t)st.st_size + 1);
    *n = fread(data, 1, (size_t)st.st_size, f);
    fclose(f);
    return data;
}

Test(cmd, logits_are_the_same_bytes_in_every_setting)
{
    struct run r = {0};
    char ids[80], out[80], first[80];
    int32_t tokens[100];
    for (int i = 0; i < 100; i++)
        tokens[i] = (i * 31 + 7) % 600;
    snprintf(ids, sizeof ids, "%s/ids", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    snprintf(first, sizeof first, "%s/first", folder);
    write_ids(ids, 100, tokens, 100);
    run(&r, "logits", "-m", tiny_q4, "--ids", ids, "-o", first, NULL);
    cr_assert_eq(r.status, 0, "%s", r.err);
    size_t n, n_out;
    char *want = read_file(first, &n);
    cr_expect_eq(n, 8 + 400 + 100 * 600 * sizeof(float));
    cr_expect(((int32_t *)(void *)want)[0] == 100 && ((int32_t *)(void *)want)[1] == 600 &&
              !memcmp(want + 8, tokens, 400));
    const char *settings[][2] = {{"-t", "1"}, {"-t", "3"}, {"-ub", "1"}, {"-ub", "7"}, {"-ub", "16"}, {"-c", "100"}};
    for (size_t i = 0; i < COUNT_OF(settings); i++) {
        run(&r, "logits", "-m", tiny_q4, "--ids", ids, "-o", out, settings[i][0], settings[i][1], NULL);
        cr_assert_eq(r.status, 0, "%s", r.err);
        char *got = read_file(out, &n_out);
        cr_expect(n_out == n && !memcmp(got, want, n), "%s %s", settings[i][0], settings[i][1]);
        free(got);
    }
    free(want);
}

Test(cmd, logits_agree_with_the_law)
{
    struct run r = {0};
    char ids[80], cpu[80], ref[80];
    int32_t tokens[40];
    for (int i = 0; i < 40; i++)
        tokens[i] = (i * 31 + 7) % 600;
    snprintf(ids, sizeof ids, "%s/ids", folder);
    snprintf(cpu, sizeof cpu, "%s/cpu", folder);
    snprintf(ref, sizeof ref, "%s/ref", folder);
    write_ids(ids, 40, tokens, 40);
    for (int quantised = 0; quantised < 2; quantised++) {
        char *model = quantised ? tiny_q4 : tiny_f32;
        run(&r, "logits", "-m", model, "--ids", ids, "-o", cpu, "-ctk", "f32", "-ctv", "f32", NULL);
        cr_assert_eq(r.status, 0, "%s", r.err);
        run(&r, "logits", "-m", model, "--ids", ids, "-o", ref, "-ctk", "f32", "-ctv", "f32", "--device", "ref", NULL);
        cr_assert_eq(r.status, 0, "%s", r.err);
        size_t n;
        char *a = read_file(cpu, &n), *b = read_file(ref, &n);
        double error = nmse((float *)(void *)(a + 168), (float *)(void *)(b + 168), 40 * 600);
        printf("%s: NMSE %.3g\n", quantised ? "Q4_K_M" : "F32", error);
        // Q4_K_M: activations of 8 bits cost up to 5e-5 a matmul, of which 17 follow each other (4 in each of 4 layers,
        // and the output)
        cr_expect_leq(error, quantised ? 17 * 5e-5 : 1e-9);
        free(a);
        free(b);
    }
}

Test(cmd, lists_of_ids_are_checked)
{
    struct run r = {0};
    char ids[80], out[80];
    snprintf(ids, sizeof ids, "%s/ids", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    const struct {
        int32_t n_tokens, ids[2];
        int n;
        const char *says;
    } cases[] = {
        {0, {0}, 0, "n_tokens is 0"},
        {-5, {0}, 0, "n_tokens is -5"},
        {INT32_MAX, {1, 2}, 2, "ends within its ids"},
        {2, {1, 600}, 2, "id 600 of token 1"},
        {2, {-1, 2}, 2, "id -1 of token 0"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        write_ids(ids, cases[i].n_tokens, cases[i].ids, cases[i].n);
        run(&r, "logits", "-m", tiny_f32, "--ids", ids, "-o", out, NULL);
        check_error(&r, 3, cases[i].says);
        cr_expect(access(out, F_OK), "nothing was written");
    }
    cr_assert_eq(truncate(ids, 5), 0);
    run(&r, "logits", "-m", tiny_f32, "--ids", ids, "-o", out, NULL);
    check_error(&r, 3, "ends within its two counts");
    write_ids(ids, 2, (int32_t[]){1, 2}, 2);
    run(&r, "logits", "-m", tiny_f32, "--ids", ids, "-o", "/no/such/out", NULL);
    check_error(&r, 5, "/no/such/out: cannot be written: No such file");
    run(&r, "logits", "-m", tiny_f32, "--ids", ids, "-o", "/dev/full", NULL);
    check_error(&r, 5, "/dev/full: No space left");
    run(&r, "logits", "-m", tiny_f32, "--ids", ids, "-o", out, "-c", "1", NULL);
    check_error(&r, 2, "2 tokens, limit 1");
}

// --- when the world misbehaves ---

// Starts a long answer of `verb`, and waits until its first bytes have come. Returns the end of the pipe.
static int start_long_answer(const char *verb, const char *model, pid_t *pid, int *err)
{
    const char *argv[] = {program(), verb,     "-m", model, "--ignore-eos", "-n",           "100000",
                          "-c",      "100000", "-t", "1",   "-p",           "go on and on", NULL};
    int pipes[2], in = temporary(NULL);
    cr_assert_eq(pipe2(pipes, O_CLOEXEC), 0);
    *err = temporary(NULL);
    *pid = fork();
    if (*pid == 0)
        become(&(struct run){0}, argv, in, pipes[1], *err);
    close(pipes[1]);
    close(in);
    char byte;
    cr_assert_eq(read(pipes[0], &byte, 1), 1);
    return pipes[0];
}

// Reads what still comes, so that the program is not held up by a full pipe.
static void drain(int fd)
{
    char bytes[4096];
    while (read(fd, bytes, sizeof bytes) > 0)
        ;
    close(fd);
}

Test(cmd, an_interrupt_ends_the_answer_with_130)
{
    const struct {
        const char *verb;
        int signal;
    } cases[] = {{"run", SIGINT}, {"run", SIGTERM}, {"chat", SIGINT}, {"chat", SIGTERM}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pid_t pid;
        int err, fd = start_long_answer(cases[i].verb, tiny_f32, &pid, &err);
        char said[1000];
        kill(pid, cases[i].signal);
        drain(fd);
        cr_expect_eq(status_of(pid), 130);
        read_back(err, said, sizeof said);
        cr_expect(!strstr(said, "quern: int"), "%s", said);
    }
}

// While a long prompt is computed there is nothing to keep: the program ends at once.
Test(cmd, an_interrupt_of_a_prompt_ends_at_once)
{
    static char words[8 * 4000 + 1];
    for (int i = 0; i < 4000; i++)
        memcpy(words + i * 8, "so many ", 8);
    const char *argv[] = {program(), "run", "-m", tiny_f32, "--device", "ref", "-ub", "100000", "-p", words, NULL};
    int out = temporary(NULL), err = temporary(NULL), in = temporary(NULL);
    pid_t pid = fork();
    if (pid == 0)
        become(&(struct run){0}, argv, in, out, err);
    usleep(300000);
    cr_assert_eq(waitpid(pid, NULL, WNOHANG), 0, "it was over too soon");
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    kill(pid, SIGINT);
    cr_expect_eq(status_of(pid), 130);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6;
    if (!getenv("QUERN_WATCHED"))
        cr_expect_lt(ms, 1000, "%.0f ms", ms); // 200 ms, but the machine may be busy
    close(in);
    close(out);
    close(err);
}

Test(cmd, a_reader_that_goes_away_is_no_news)
{
    pid_t pid;
    int err, fd = start_long_answer("run", tiny_f32, &pid, &err);
    char said[1000];
    close(fd);
    cr_expect_eq(status_of(pid), 5);
    read_back(err, said, sizeof said);
    cr_expect(!strstr(said, "stdout"), "%s", said);
}

Test(cmd, a_model_file_that_is_cut_while_it_is_used)
{
    pid_t pid;
    int err, fd = start_long_answer("run", tiny_f32, &pid, &err);
    char said[1000];
    cr_assert_eq(truncate(tiny_f32, 40000), 0);
    drain(fd);
    cr_expect_eq(status_of(pid), 5);
    read_back(err, said, sizeof said);
    cr_expect(strstr(said, "F32.gguf: model file changed"), "%s", said);
}

Test(cmd, another_bus_error_is_what_it_was)
{
    pid_t pid;
    int err, fd = start_long_answer("run", tiny_f32, &pid, &err);
    char said[1000];
    kill(pid, SIGBUS);
    drain(fd);
    cr_expect_eq(status_of(pid), 128 + SIGBUS);
    read_back(err, said, sizeof said);
    cr_expect(!strstr(said, "model file changed"), "%s", said);
}

// The length of one of the two sequences that quern itself writes to take a word back: CSI n D and CSI K. 0: of neither.
static size_t own_sequence(const unsigned char *bytes, size_t n)
{
    size_t i = 2;
    if (n < 3 || bytes[0] != 0x1b || bytes[1] != '[')
        return 0;
    while (i < n && bytes[i] >= '0' && bytes[i] <= '9')
        i++;
    return i < n && (bytes[i] == 'K' || (i > 2 && bytes[i] == 'D')) ? i + 1 : 0;
}

// A model with random weights generates every byte sooner or later. None of the control codes may reach the terminal.
Test(cmd, a_terminal_gets_no_control_codes)
{
    const char *model = stories();
    const char *argv[] = {program(), "run", "-m", model,  "--temp", "100", "--top-k",      "0",  "--top-p", "1",
                          "--min-p", "0",   "-n", "3000", "--seed", "1",   "--ignore-eos", "-p", "x",       NULL};
    int terminal;
    pid_t pid = forkpty(&terminal, NULL, NULL, NULL);
    if (pid < 0)
        cr_skip("this system lends no terminals: %s", strerror(errno));
    if (pid == 0) {
        close(STDERR_FILENO);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    size_t total = 0, line_ends = 0;
    static unsigned char bytes[1 << 18];
    for (ssize_t n; total < sizeof bytes && (n = read(terminal, bytes + total, sizeof bytes - total)) > 0;)
        total += (size_t)n;
    for (size_t i = 0; i < total; i++) {
        for (size_t n; (n = own_sequence(bytes + i, total - i));)
            i += n;
        if (i == total)
            break;
        line_ends += bytes[i] == '\n';
        cr_assert(bytes[i] >= 0x20 || bytes[i] == '\n' || bytes[i] == '\r' || bytes[i] == '\t', "byte 0x%02x",
                  bytes[i]);
        cr_assert_neq(bytes[i], 0x7f);
    }
    cr_expect_eq(status_of(pid), 0);
    cr_expect_gt(total, 3000);
    cr_expect_gt(line_ends, 0);
    close(terminal);
}

// Who gives no model on a terminal learns that a small one answers.
Test(cmd, the_built_in_model_says_so_on_a_terminal)
{
    const char *argv[] = {program(), "run", "-n", "2", "hello", NULL};
    int terminal;
    char seen[4096] = "";
    struct run r = {0};
    run(&r, "run", "-n", "2", "hello", NULL);
    if (r.status)
        cr_skip_test("skipped: this build has no model: %s", r.err);
    cr_expect(!strstr(r.err, "built-in"), "a file needs no such line: %s", r.err);
    pid_t pid = forkpty(&terminal, NULL, NULL, NULL);
    if (pid < 0)
        cr_skip("this system lends no terminals: %s", strerror(errno));
    if (pid == 0) {
        unsetenv("QUERN_MODEL");
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    size_t total = 0;
    for (ssize_t n; (n = read(terminal, seen + total, sizeof seen - 1 - total)) > 0; total += (size_t)n)
        continue;
    cr_expect_eq(status_of(pid), 0);
    cr_expect(strstr(seen, "quern: the small built-in model answers"), "%s", seen);
    close(terminal);
}
