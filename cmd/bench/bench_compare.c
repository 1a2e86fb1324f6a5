// Compares rows with saved ones, and with another engine's bench program.
#include "cmd/bench/bench.h"
#include "cmd/input.h"
#include "engine/file_replace.h"
#include "engine/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

// --- where rows are kept ---

// The path of a saved run. Its folders are created if `make` is set.
static int path_of(const char *name, bool make, char path[PATH_MAX], struct error *err)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool given = state && *state;
    if (strchr(name, '/'))
        return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX ? 0 : fail(err, E_USAGE, "%s: too long a path", name);
    if (!*name || *name == '-' || *name == '.')
        return fail(err, E_USAGE, "'%s': no name of a run; give one that begins with a letter, or a path with a slash",
                    name);
    if (!given && (!home || !*home))
        return fail(err, E_USAGE,
                    "neither $HOME nor $XDG_STATE_HOME says where runs are kept; give a path with a slash");
    if (snprintf(path, PATH_MAX, "%s%s/quern/bench/%s.json", given ? state : home, given ? "" : "/.local/state",
                 name) >= PATH_MAX)
        return fail(err, E_USAGE, "%s: too long a name", name);
    if (make)
        file_replace_folders(path);
    return 0;
}

// A path that the user gave is an output as others are; a run that is kept by its name is for its owner.
static int write_file(const char *path, bool given, struct str text, struct error *err)
{
    struct file_replace f;
    if ((given ? file_replace_output : file_replace_begin)(&f, path, err))
        return -1;
    if (file_replace_write(&f, text.data, text.len, err)) {
        file_replace_abort(&f);
        return -1;
    }
    return file_replace_end(&f, err);
}

int bench_save_try(const char *name, struct error *err)
{
    char path[PATH_MAX];
    return path_of(name, true, path, err) ? -1 : file_replace_check_output(path, err);
}

int bench_save(const char *name, const struct bench_row *rows, int n, struct error *err)
{
    char path[PATH_MAX];
    struct text out = {0};
    if (path_of(name, true, path, err))
        return -1;
    bench_print_head(BENCH_JSON, NULL, &out);
    for (int i = 0; i < n; i++)
        bench_print_row(BENCH_JSON, NULL, &rows[i], i == 0, &out);
    bench_print_tail(BENCH_JSON, &out);
    int status = out.failed ? fail(err, E_MEMORY, "no memory for %d rows", n)
                            : write_file(path, strchr(name, '/'), (struct str){out.data, out.size}, err);
    text_free(&out);
    return status;
}

// --- a saved row and a new one ---

// Parses the rows of a bench in JSON; they live in the arena. NULL if it is not a list.
static const struct value_list *rows_of(struct arena *arena, const char *data, size_t size)
{
    struct json_reader reader = {.arena = arena, .flags = JSON_NAN};
    struct value v;
    struct error why;
    return json_read(&v, &reader, (struct str){data, size}, &why) || v.kind != VALUE_LIST ? NULL : v.list;
}

static double number_at(const struct value *row, const char *key)
{
    const struct value *v = value_get(row, key);
    double number;
    return v && value_number(v, &number) ? number : -1;
}

static struct str text_at(const struct value *row, const char *key)
{
    const struct value *v = value_get(row, key);
    return value_is(v, VALUE_STRING) ? v->text : STR_LIT("");
}

static bool same_type(const struct value *row, const char *key, enum dtype type)
{
    enum dtype kept;
    return dtype_from_name(text_at(row, key), &kept) == 0 && kept == type;
}

// Whether a saved row is of the same test. Rows saved by llama-bench have no n_seqs, which means one sequence. Of the
// machine only its kind counts: a GPU is not compared with a CPU.
static bool is_same_test(const struct value *row, const struct bench_row *r)
{
    double seqs = number_at(row, "n_seqs");
    return number_at(row, "model_n_params") == (double)r->n_params &&
           str_equal_z(text_at(row, "model_type"), r->type) && number_at(row, "n_prompt") == r->test.n_prompt &&
           number_at(row, "n_gen") == r->test.n_gen && number_at(row, "n_depth") == r->test.n_depth &&
           (seqs < 0 ? 1 : seqs) == r->test.n_seqs && number_at(row, "n_threads") == r->n_threads &&
           number_at(row, "n_ubatch") == r->n_ubatch && str_equal_z(text_at(row, "backends"), r->backend) &&
           same_type(row, "type_k", r->kv_type[KV_KEY]) && same_type(row, "type_v", r->kv_type[KV_VALUE]);
}

// The samples of a saved row in an array that the caller frees. Returns how many; 0 if there are none.
static int samples_of(const struct value *row, double **out)
{
    const struct value *list = value_get(row, "samples_ts");
    size_t n = value_is(list, VALUE_LIST) ? MIN(list->list->n, (size_t)INT_MAX) : 0;
    *out = n ? calloc(n, sizeof **out) : NULL;
    for (size_t i = 0; *out && i < n; i++)
        value_number(&list->list->items[i], &(*out)[i]);
    return *out ? (int)n : 0;
}

enum { NAME_WIDTH = 30 }; // of a model and the label of its test: a comparison takes 80 columns

// Prints a comparison. Returns -1 if the new row is slower with 95% confidence, 1 if faster, else 0.
static int compare_row(const struct value *row, const struct bench_row *r, struct text *out)
{
    static const char *const verdicts[] = {"slower", "the same", "faster"};
    double *kept, low = 0, high = 0;
    char name[BENCH_NAME + 64], ratio[64];
    int n = samples_of(row, &kept);
    bench_name_and_test(r, NAME_WIDTH, name);
    bench_print_padded(name, NAME_WIDTH, false, out);
    if (!n) {
        text_print(out, " was not kept\n");
        return 0;
    }
    samples_compare(r->ts, r->n, kept, n, 0.95, 1, &low, &high);
    int verdict = high < 1 ? -1 : low > 1;
    double now = samples_mean(r->ts, r->n), then = samples_mean(kept, n);
    snprintf(ratio, sizeof ratio, "%.3f (%.3f-%.3f)", now / then, low, high);
    text_print(out, " %9.2f %9.2f %19s %s\n", now, then, ratio, verdicts[1 + verdict]);
    free(kept);
    return verdict;
}

int bench_against(const char *name, const struct bench_row *rows, int n, int *n_slower, struct text *out,
                  struct error *err)
{
    char path[PATH_MAX], *data;
    size_t size;
    if (path_of(name, false, path, err))
        return -1;
    if (access(path, F_OK))
        return fail(err, E_IO, "--against %s: no run is kept there (%s); --save %s keeps one", name, path, name);
    if ((strchr(name, '/') ? input_read : input_read_regular)(path, INPUT_SAVED_RUN, &data, &size, err))
        return -1;
    struct arena arena = {0};
    const struct value_list *kept = rows_of(&arena, data, size);
    free(data);
    int n_found = 0;
    *n_slower = 0;
    if (kept && n)
        text_print(out, "%-*s %9s %9s %19s\n", NAME_WIDTH, "", "t/s", "was", "ratio (95%)");
    for (int i = 0; kept && i < n; i++) {
        const struct value *found = NULL;
        for (size_t j = 0; j < kept->n; j++)
            if (is_same_test(&kept->items[j], &rows[i]))
                found = &kept->items[j];
        *n_slower += compare_row(found, &rows[i], out) < 0;
        n_found += found != NULL;
    }
    arena_free(&arena);
    if (!kept)
        return fail(err, E_IO, "%s: not the JSON of a bench", path);
    if (n && !n_found)
        *n_slower = -1;
    return 0;
}

// --- another engine ---

// Collects what a program writes to stdout until its end. Its stderr is ours.
static int read_output(const char *const *argv, char **data, size_t *size, struct error *err)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC))
        return fail(err, E_IO, "pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(pipes[1], STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(pipes[1]);
    char path[32];
    snprintf(path, sizeof path, "/dev/fd/%d", pipes[0]);
    int status = pid < 0 ? fail(err, E_IO, "fork: %s", strerror(errno)) : input_read(path, INPUT_PEER, data, size, err);
    close(pipes[0]);
    int ended = 0;
    if (pid > 0 && waitpid(pid, &ended, 0) == pid && ended && !status) {
        free(*data);
        return fail(err, E_IO, "%s ended with status %d", argv[0], WIFEXITED(ended) ? WEXITSTATUS(ended) : 128);
    }
    return status;
}

int bench_peer(const char *program, struct bench_row *r, double *ts, struct error *err)
{
    char numbers[6][16], types[2][16];
    const int values[6] = {r->test.n_prompt, r->test.n_gen, r->test.n_depth, r->n_threads, r->n_batch, r->n_ubatch};
    for (int i = 0; i < 6; i++)
        snprintf(numbers[i], sizeof numbers[i], "%d", values[i]);
    for (int i = 0; i < 2; i++)
        bench_type_text(r->kv_type[i], types[i]);
    if (r->test.n_seqs > 1)
        return fail(err, E_USAGE, "--against-bin: a llama-bench has no tests of several sequences (-npl)");
    // for llama-bench, too, a prompt with an answer is a test of its own
    char pair[40];
    snprintf(pair, sizeof pair, "%d,%d", r->test.n_prompt, r->test.n_gen);
    bool both = r->test.n_prompt && r->test.n_gen;
    const char *argv[] = {program,
                          "-m",
                          r->file,
                          "-p",
                          both ? "0" : numbers[0],
                          "-n",
                          both ? "0" : numbers[1],
                          "-d",
                          numbers[2],
                          "-t",
                          numbers[3],
                          "-b",
                          numbers[4],
                          "-ub",
                          numbers[5],
                          "-ctk",
                          types[0],
                          "-ctv",
                          types[1],
                          "-r",
                          "1",
                          "-o",
                          "json",
                          both ? "-pg" : NULL,
                          pair,
                          NULL};
    char *data;
    size_t size;
    if (read_output(argv, &data, &size, err))
        return -1;
    struct arena arena = {0};
    const struct value_list *printed = rows_of(&arena, data, size);
    const struct value *row = printed && printed->n ? &printed->items[0] : NULL;
    struct str build = text_at(row, "build_commit");
    free(data);
    *ts = number_at(row, "avg_ts");
    snprintf(r->peer_build, sizeof r->peer_build, "%.*s", (int)MIN(build.len, sizeof r->peer_build), build.data);
    arena_free(&arena);
    return *ts > 0 ? 0 : fail(err, E_IO, "%s printed no row with avg_ts", program);
}
