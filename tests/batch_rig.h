// Shared by test_batch and test_batch_kills: a folder with a small model, in which a shell runs `quern batch`.
#ifndef QUERN_BATCH_RIG_H
#define QUERN_BATCH_RIG_H

#include "models/synth_model.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char rig_folder[] = "/tmp/quern-batch-test-XXXXXX";

static void rig_open(void)
{
    struct synth_options o = {.preset = "llama-tiny", .mix = "Q8_0", .n_vocab = 600, .seed = 3};
    struct error err;
    cr_assert(mkdtemp(rig_folder));
    cr_assert_eq(chdir(rig_folder), 0);
    cr_assert_eq(synth_model_write(&o, "m.gguf", &err), 0, "%s", err.text);
    cr_assert(getenv("QUERN_BIN"), "QUERN_BIN does not say where quern is");
    setenv("QUERN_MODEL", "m.gguf", 1);
    unsetenv("SLURM_ARRAY_TASK_ID");
    unsetenv("JOB_COMPLETION_INDEX");
}

static void rig_close(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", rig_folder);
    cr_assert_eq(system(command), 0);
}

static inline int rig_status(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Runs a shell's command line, in which $Q is quern; what goes to stderr goes to the file "err", too.
static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...)
{
    char command[2048] = "Q=$QUERN_BIN; exec 2>err; ";
    size_t n = strlen(command);
    va_list args;
    va_start(args, format);
    vsnprintf(command + n, sizeof command - n, format, args);
    va_end(args);
    return rig_status(system(command));
}

static inline void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    cr_assert(f);
    fputs(text, f);
    cr_assert_eq(fclose(f), 0);
}

// The whole file, in a buffer of the heap; an empty text when there is none.
static inline char *read_text(const char *path)
{
    FILE *f = fopen(path, "r");
    struct stat st;
    if (!f || fstat(fileno(f), &st))
        return strdup("");
    char *text = calloc(1, (size_t)st.st_size + 1);
    cr_assert_eq(fread(text, 1, (size_t)st.st_size, f), (size_t)st.st_size);
    fclose(f);
    return text;
}

#define expect_says(path, text)                                                                                        \
    do {                                                                                                               \
        char *all_of_it = read_text(path);                                                                             \
        cr_assert(strstr(all_of_it, text), "%s does not say %s: %s", path, text, all_of_it);                           \
        free(all_of_it);                                                                                               \
    } while (0)

static inline bool same_files(const char *a, const char *b)
{
    return shell("cmp %s %s", a, b) == 0;
}

// Rows of several kinds: samples, log-probabilities, shared beginnings, and some that fail.
static inline void write_rows(const char *path, int n)
{
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 1; i <= n; i++) {
        if (i % 23 == 7) {
            fputs("{ no row\n", f);
            continue;
        }
        fprintf(f, "{\"custom_id\":\"id %d\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"",
                i);
        for (int j = 0; j < (i % 3 ? 5 + i % 11 : 60); j++)
            fprintf(f, "%s%d ", i % 3 ? "word" : "same", i % 3 ? i * j : j);
        fprintf(f, "\",\"max_tokens\":%d%s%s%s}}\n", 1 + i % 17, i % 5 ? "" : ",\"n\":3",
                i % 7 ? "" : ",\"logprobs\":2", i % 4 ? "" : ",\"echo\":true,\"prompt_logprobs\":1");
    }
    cr_assert_eq(fclose(f), 0);
}

#endif
