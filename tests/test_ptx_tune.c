// Tests that the GPU machine measures which class of rows serves a product, keeps what it chose, uses what was kept, and
// computes the same bits whatever was chosen.
#include "engine/model.h"
#include "engine/session.h"
#include "kernels/card.h"
#include "models/synth_model.h"
#include "tests/ptx/quern_cuda.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKENS = 40, FEW_TOKENS = 9, CARD_BYTES = 512 << 20 };
static char folder[64], model_path[96], cache[96];

static void make_all(void)
{
    struct error err = {0};
    snprintf(folder, sizeof folder, "/tmp/quern-tune-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(model_path, sizeof model_path, "%s/model.gguf", folder);
    snprintf(cache, sizeof cache, "%s/kernels", folder);
    struct synth_options synth = {.preset = "llama-tiny", .mix = "Q4_K_M", .n_vocab = 512, .seed = 1};
    cr_assert_eq(synth_model_write(&synth, model_path, &err), 0, "%s", err.text);
    quern_cuda_set(&(struct quern_cuda_setup){1, 9, 0, 13000, CARD_BYTES});
}

static void remove_all(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(ptx_tune, .init = make_all, .fini = remove_all, .timeout = 240);

// What a run with steps of n_batch rows did. With 2 of them there is little to measure, and the last step has one row.
struct outcome {
    int timed, choices, wide, steps; // wide: choices of PTX_WIDE_ROWS; steps: of variants of a step of one row
    float *logits;                   // [n_vocab] after the last token
    int n_vocab;
};

static struct outcome run_options(struct model_options o, int n_batch)
{
    struct model *m;
    struct session *s;
    struct error err = {0};
    struct outcome out = {0};
    struct card_choice c;
    int32_t tokens[TOKENS];
    const int n = n_batch > 2 ? TOKENS : FEW_TOKENS;
    o.path = model_path;
    o.device = DEVICE_GPU;
    cr_assert_eq(model_open(&m, &o, &err), 0, "%s", err.text);
    cr_assert_eq(session_open(&s, m, &(struct session_options){.n_ctx = 64, .n_batch = n_batch}, &err), 0, "%s",
                 err.text);
    for (int i = 0; i < n; i++)
        tokens[i] = (7 * i + 3) % m->info.n_vocab;
    cr_assert_eq(session_prompt(s, 0, tokens, n, NULL, &err), 0, "%s", err.text);
    out.n_vocab = m->info.n_vocab;
    out.logits = malloc((size_t)out.n_vocab * sizeof(float));
    memcpy(out.logits, session_logits(s, 0), (size_t)out.n_vocab * sizeof(float));
    out.timed = card_tuning(m->machine).measured;
    for (; card_choice(m->machine, out.choices, &c); out.choices++) {
        const bool step = !strcmp(c.type, "step");
        cr_expect(c.us > 0 && (step ? c.rows == 1 && c.class < 5 : c.rows >= 2 && c.class >= 1), "%s %u", c.type,
                  c.class);
        out.steps += step;
        out.wide += c.class == 128;
    }
    session_close(s);
    model_close(m);
    return out;
}

static struct outcome run(double tune_seconds, const char *kept, int n_batch)
{
    return run_options((struct model_options){.kernel_cache = kept, .tune_seconds = tune_seconds}, n_batch);
}

// The file of choices.
static void find_kept(char path[256])
{
    char command[160];
    snprintf(command, sizeof command, "ls %s/products-*", cache);
    FILE *f = popen(command, "r");
    cr_assert_not_null(f);
    cr_assert_not_null(fgets(path, 256, f), "%s holds no choices", cache);
    path[strcspn(path, "\n")] = 0;
    pclose(f);
}

// Writes lines to the file of choices, after those that are there if `append` is set.
static void put_kept(const char *lines, bool append)
{
    char path[256];
    find_kept(path);
    FILE *f = fopen(path, append ? "ae" : "we");
    cr_assert_not_null(f);
    fputs(lines, f);
    fclose(f);
}

static void expect_bits(const struct outcome *a, const struct outcome *b)
{
    cr_expect_eq(memcmp(a->logits, b->logits, (size_t)a->n_vocab * sizeof(float)), 0);
}

static void free_outcomes(struct outcome *a, struct outcome *b)
{
    free(a->logits);
    free(b->logits);
}

Test(ptx_tune, what_is_measured_is_kept_and_the_bits_are_the_same)
{
    struct outcome untuned = run(0, cache, 2), first = run(1e9, cache, 2), again = run(1e9, cache, 2);
    cr_expect_eq(untuned.timed + untuned.choices, 0, "without leave, nothing is measured");
    cr_expect_gt(first.timed, 6);
    cr_expect_eq(first.choices, first.timed);
    cr_expect_eq(again.timed, 0);
    cr_expect_eq(again.choices, first.choices);
    expect_bits(&untuned, &first);
    expect_bits(&untuned, &again);
    free(untuned.logits);
    free_outcomes(&first, &again);
}

// The seconds are those of all plans. What is not measured is served all the same.
Test(ptx_tune, measuring_ends_with_its_seconds)
{
    struct outcome little = run(1e-9, cache, 2), rest = run(1e9, cache, 2);
    cr_expect_eq(little.timed, 1, "%d", little.timed);
    cr_expect_gt(rest.timed, 5);
    cr_expect_eq(rest.choices, rest.timed + 1);
    expect_bits(&little, &rest);
    free_outcomes(&little, &rest);
}

Test(ptx_tune, without_a_folder_it_is_measured_each_time)
{
    struct outcome a = run(1e-9, NULL, 2), b = run(1e-9, NULL, 2);
    cr_expect(a.timed == 1 && b.timed == 1);
    free_outcomes(&a, &b);
}

// Every product of 48 rows by the class of 128, and by that of 2.
Test(ptx_tune, what_was_kept_is_used)
{
    // Q, K and V together and Q and K alone, V alone, the output, gate and up, and down by two types
    static const char *const shapes[] = {"Q4_K 256 512",  "Q4_K 256 384", "Q6_K 256 128", "Q4_K 256 256",
                                         "Q4_K 256 1536", "Q4_K 768 256", "Q6_K 768 256"};
    struct outcome first = run(1e-9, cache, 48);
    for (int class = 2; class <= 128; class *= 64) {
        char lines[1024] = "";
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%s q8 48 %d 1.0\n", shapes[i], class);
        put_kept(lines, false);
        struct outcome kept = run(1e-9, cache, 48);
        cr_expect_eq(kept.wide, class == 128 ? 7 : 0);
        expect_bits(&first, &kept);
        free(kept.logits);
    }
    free(first.logits);
}

// A step of one row with a variant of its kernels, and as one kernel.
Test(ptx_tune, what_was_kept_of_a_step_is_used)
{
    struct outcome first = run(1e9, cache, 2);
    char path[256], line[128];
    unsigned high, low, variant;
    static const unsigned variants[] = {1, 4, 5}; // there is no variant 5
    bool found = false;
    cr_expect_eq(first.steps, 1);
    find_kept(path);
    FILE *f = fopen(path, "re");
    cr_assert_not_null(f);
    while (!found && fgets(line, sizeof line, f))
        found = sscanf(line, "step %u %u f32 1 %u", &high, &low, &variant) == 3;
    fclose(f);
    cr_assert(found);
    for (size_t i = 0; i < COUNT_OF(variants); i++) {
        variant = variants[i];
        snprintf(line, sizeof line, "step %u %u f32 1 %u 1.0\n", high, low, variant);
        put_kept(line, false);
        struct outcome kept = run(1e-9, cache, 2);
        cr_expect_eq(kept.steps, variant < 5);
        expect_bits(&first, &kept);
        free(kept.logits);
    }
    free(first.logits);
}

// With less than 0 seconds nothing is measured, and what was kept is used all the same.
Test(ptx_tune, what_was_kept_can_be_used_without_measuring)
{
    struct outcome little = run(1e-9, cache, 2), kept = run(-1, cache, 2);
    cr_expect(!kept.timed && kept.choices == 1, "%d measured, %d used", kept.timed, kept.choices);
    expect_bits(&little, &kept);
    free_outcomes(&little, &kept);
}

Test(ptx_tune, what_was_kept_is_measured_again_where_that_is_asked_for)
{
    struct outcome first = run(1e9, cache, 2);
    struct outcome again =
        run_options((struct model_options){.kernel_cache = cache, .tune_seconds = 1e9, .tune_again = true}, 2);
    cr_expect_eq(again.timed, first.timed);
    cr_expect_eq(again.choices, first.choices);
    expect_bits(&first, &again);
    free_outcomes(&first, &again);
}

// A file that is a FIFO is not waited for. Where the choices cannot be kept, the reason is known.
Test(ptx_tune, a_file_that_cannot_be_kept_is_told)
{
    struct error err = {0};
    struct model *m;
    struct session *s;
    char path[256];
    struct outcome first = run(1e-9, cache, 2);
    find_kept(path);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
    struct outcome second = run(1e-9, cache, 2);
    cr_expect_eq(second.timed, 1);
    unlink(path);
    cr_assert_eq(mkdir(path, 0700), 0);
    const struct model_options o = {
        .path = model_path, .device = DEVICE_GPU, .kernel_cache = cache, .tune_seconds = 1e-9};
    cr_assert_eq(model_open(&m, &o, &err), 0, "%s", err.text);
    cr_assert_eq(session_open(&s, m, &(struct session_options){.n_ctx = 64, .n_batch = 2}, &err), 0, "%s", err.text);
    const struct card_tuning t = card_tuning(m->machine);
    cr_expect(t.measured == 1 && t.unmeasured > 5 && t.fault == EISDIR && !strcmp(t.file, path), "%d %d %d", t.measured,
              t.unmeasured, t.fault);
    session_close(s);
    model_close(m);
    free_outcomes(&first, &second);
}

// Lines that are no choices are left out, and a class that does not exist is measured again.
Test(ptx_tune, a_damaged_file_does_no_harm)
{
    struct outcome first = run(1e9, cache, 2);
    put_kept("what\n\nQ4_K 256 256 q8 2\nQ9_K 256 256 q8 2 64 1\nQ4_K 256 256 q9 2 64 1\nQ4_K 1 1 q8 2 0 1\n"
             "Q4_K 4294967295 256 q8 4 64 1\n\x80\xff\n",
             true);
    struct outcome second = run(1e9, cache, 2);
    cr_expect_eq(second.timed, 0);
    cr_expect_eq(second.choices, first.choices, "that of 4294967295 is of no product of this model");
    put_kept("Q4_K 256 256 q8 2 7 1.0\nQ6_K 768 256 q8 2 4096 1.0\nQ4_K 256 128 f16 2 128 1.0\n"
             "Q4_K 256 512 q8 2 4 nan\nQ4_K 256 384 q8 2 2 -1\nQ4_K 256 1536 q8 2 2 0\n",
             false);
    struct outcome third = run(1e9, cache, 2);
    cr_expect_eq(third.timed, first.timed);
    expect_bits(&first, &second);
    expect_bits(&first, &third);
    free(third.logits);
    free_outcomes(&first, &second);
}

// A call of the driver that fails while a product is measured is an error.
Test(ptx_tune, faults_while_measuring)
{
    struct model *m;
    struct session *s;
    struct error err = {0};
    const struct model_options o = {.path = model_path, .device = DEVICE_GPU, .tune_seconds = 1e9};
    cr_assert_eq(model_open(&m, &o, &err), 0, "%s", err.text);
    quern_cuda_fail("cuEventElapsedTime", 3, 700);
    int status = session_open(&s, m, &(struct session_options){.n_ctx = 64, .n_batch = 2}, &err);
    quern_cuda_fail(NULL, 0, 0);
    cr_expect(status == -1 && err.code == E_GPU, "%d: %s", status, err.text);
    model_close(m);
}
