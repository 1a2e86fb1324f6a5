// Tests perplexity and KL divergence: the sums against double arithmetic, the windows against those of
// llama-perplexity, and all errors in a file of base logits.
#include "models/synth_model.h"
#include "engine/measure/logits_base.h"
#include "engine/measure/divergence.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t state;

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53;
}

static void seed(uint64_t value)
{
    printf("seed %llu\n", (unsigned long long)value);
    state = value;
}

// --- sums ---

static double exact_log_sum_exp(const float *x, int n)
{
    double most = x[0], sum = 0;
    for (int i = 0; i < n; i++)
        most = fmax(most, x[i]);
    for (int i = 0; i < n; i++)
        sum += exp(x[i] - most);
    return most + log(sum);
}

Test(perplexity, log_sum_exp_is_that_of_doubles)
{
    seed(11);
    static float x[5000];
    for (int n = 1; n <= 5000; n = n * 3 + 1)
        for (int scale = 1; scale <= 1000; scale *= 10) {
            for (int i = 0; i < n; i++)
                x[i] = (float)((uniform() - 0.5) * scale);
            cr_expect_float_eq(log_sum_exp(x, n), exact_log_sum_exp(x, n), 1e-6, "n %d scale %d", n, scale);
        }
}

Test(perplexity, log_sum_exp_takes_logits_far_apart)
{
    float x[20];
    for (int i = 0; i < 20; i++)
        x[i] = -3e38f;
    x[7] = 3e38f;
    cr_expect_float_eq(log_sum_exp(x, 20), 3e38f, 1e30);
}

static void fill_pair(float *x, float *base, int n)
{
    for (int i = 0; i < n; i++) {
        base[i] = (float)((uniform() - 0.5) * 12);
        x[i] = base[i] + (float)((uniform() - 0.5) * 2);
    }
}

Test(perplexity, divergence_is_that_of_doubles)
{
    enum { N = 997, ROWS = 300 };
    seed(5);
    float x[N], base[N];
    struct divergence d = {0};
    double kld_sum = 0, delta2 = 0, nll = 0, same = 0;
    for (int row = 0; row < ROWS; row++) {
        fill_pair(x, base, N);
        int token = (int)(uniform() * N), top = 0, base_top = 0;
        double norm = exact_log_sum_exp(x, N), base_norm = exact_log_sum_exp(base, N), kld = 0;
        for (int i = 0; i < N; i++) {
            kld += exp(base[i] - base_norm) * ((base[i] - base_norm) - (x[i] - norm));
            top = x[i] > x[top] ? i : top;
            base_top = base[i] > base[base_top] ? i : base_top;
        }
        double delta = exp(x[token] - norm) - exp(base[token] - base_norm);
        kld_sum += kld;
        delta2 += delta * delta;
        nll += norm - x[token];
        same += top == base_top;
        cr_assert_eq(divergence_add(&d, x, base, N, token, NULL), 0);
        cr_expect_float_eq(d.kld[row], kld, 2e-6);
    }
    cr_expect_float_eq(divergence_kld(&d).value, kld_sum / ROWS, 1e-6);
    cr_expect_float_eq(divergence_rms_delta(&d).value, sqrt(delta2 / ROWS), 1e-7);
    cr_expect_float_eq(perplexity_value(&d.model).value, exp(nll / ROWS), 1e-3);
    cr_expect_float_eq(divergence_same_top(&d).value, same / ROWS, 1e-12);
    cr_expect_float_eq(divergence_ratio(&d).value, perplexity_value(&d.model).value / perplexity_value(&d.base).value,
                       1e-9);
    cr_expect_gt(divergence_kld(&d).error, 0);
    cr_expect_gt(divergence_ln_ratio(&d).error, 0);
    divergence_free(&d);
}

Test(perplexity, a_model_does_not_diverge_from_itself)
{
    enum { N = 333 };
    seed(9);
    float x[N], base[N];
    struct divergence d = {0};
    for (int row = 0; row < 200; row++) {
        fill_pair(x, base, N);
        cr_assert_eq(divergence_add(&d, x, x, N, row, NULL), 0);
    }
    divergence_sort(&d);
    cr_expect_eq(d.kld[0], 0.0f);
    cr_expect_eq(d.kld[199], 0.0f);
    cr_expect_eq(divergence_ratio(&d).value, 1.0);
    cr_expect_eq(divergence_same_top(&d).value, 1.0);
    cr_expect_eq(divergence_rms_delta(&d).value, 0.0);
    divergence_free(&d);
}

Test(perplexity, errors_shrink_with_the_root_of_the_tokens)
{
    struct perplexity few = {0}, many = {0};
    seed(3);
    for (int i = 0; i < 40000; i++) {
        double nll = uniform() * 4;
        if (i < 400)
            perplexity_add(&few, nll);
        perplexity_add(&many, nll);
    }
    cr_expect_float_eq(perplexity_mean_nll(&few).error / perplexity_mean_nll(&many).error, 10, 0.5);
    cr_expect_float_eq(perplexity_mean_nll(&many).error, 4 / sqrt(12) / 200, 1e-4);
}

Test(perplexity, percentiles_lie_between_neighbours_with_the_error_of_the_rank)
{
    static float x[10001];
    for (int i = 0; i <= 10000; i++)
        x[i] = (float)i / 10000;
    cr_expect_float_eq(divergence_percentile(x, 10001, 0.25).value, 0.25, 1e-6);
    cr_expect_float_eq(divergence_percentile(x, 10001, 0.25).error, sqrt(0.25 * 0.75 / 10001), 1e-6);
    cr_expect_float_eq(divergence_percentile((float[]){1, 2}, 2, 0.5).value, 1.5, 1e-9);
    cr_expect_float_eq(divergence_percentile((float[]){4}, 1, 0.99).value, 4, 1e-9);
}

// --- windows ---

Test(perplexity, a_text_is_cut_as_llama_perplexity_cuts_it)
{
    static const int32_t tokens[1];
    struct text_windows w;
    struct error err;
    cr_assert_eq(text_windows_cut(&w, tokens, 1300, 128, 0, 0, &err), 0);
    cr_expect(w.n == 10 && w.step == 128 && w.first == 64 && w.n_scored == 63);
    cr_assert_eq(text_windows_cut(&w, tokens, 1300, 128, 64, 0, &err), 0); // 128 + 32, rounded up to 256
    cr_expect(w.n == 17 && w.n_window == 256 && w.step == 64 && w.first == 191 && w.n_scored == 64);
    cr_assert_eq(text_windows_cut(&w, tokens, 1300, 128, 0, 3, &err), 0);
    cr_expect_eq(w.n, 3);
    cr_expect_eq(text_windows_cut(&w, tokens, 255, 128, 0, 0, &err), -1);
    cr_expect(err.code == E_USAGE && strstr(err.text, "255 tokens, less than two windows of 128; -c 127 would do"),
              "%s", err.text);
    cr_expect_eq(text_windows_cut(&w, tokens, 2000, 128, 512, 0, &err), -1);
    cr_expect_eq(text_windows_cut(&w, tokens, 2000, 3, 0, 0, &err), -1);
}

static struct model *open_model(const char *path)
{
    struct model *m;
    struct error err;
    cr_assert_eq(model_open(&m, &(struct model_options){.path = path, .machine.n_threads = 2}, &err), 0, "%s",
                 err.text);
    return m;
}

static int add_nll(void *arg, int window, int i, const float *logits, int32_t target, struct error *err)
{
    (void)window, (void)i, (void)err;
    perplexity_add(arg, log_sum_exp(logits, 300) - logits[target]);
    return 0;
}

static struct perplexity measure(struct model *m, const struct text_windows *w, int n_batch)
{
    struct session *s;
    struct error err;
    struct session_options o = text_windows_session(w, n_batch, 300);
    cr_assert_eq(session_open(&s, m, &o, &err), 0, "%s", err.text);
    struct perplexity p = {0};
    struct text_windows_sink sink = {.row = add_nll, .arg = &p};
    cr_assert_eq(text_windows_run(w, s, false, &sink, &err), 0, "%s", err.text);
    session_close(s);
    return p;
}

// Every window by itself, a token a step.
static struct perplexity measure_plainly(struct model *m, const struct text_windows *w)
{
    struct perplexity p = {0};
    for (int i = 0; i < w->n; i++) {
        struct session *s;
        struct error err;
        struct session_options o = {.n_ctx = w->n_window, .n_batch = 1};
        cr_assert_eq(session_open(&s, m, &o, &err), 0, "%s", err.text);
        for (int j = 0; j + 1 < w->n_window; j++) {
            int32_t token = j == 0 && w->bos >= 0 ? w->bos : w->tokens[i * w->step + j];
            cr_assert_eq(session_step(s, &(struct session_row){token, 0, true}, 1, &err), 0, "%s", err.text);
            if (j >= w->first && j < w->first + w->n_scored)
                add_nll(&p, i, j, session_logits(s, 0), w->tokens[i * w->step + j + 1], &err);
        }
        session_close(s);
    }
    return p;
}

Test(perplexity, windows_in_any_batch_give_what_single_tokens_give)
{
    char path[] = "/tmp/quern-perplexity-XXXXXX";
    close(mkstemp(path));
    struct synth_options so = {.preset = "llama-tiny", .mix = "F32", .n_vocab = 300, .seed = 7};
    struct error err;
    cr_assert_eq(synth_model_write(&so, path, &err), 0, "%s", err.text);
    struct model *m = open_model(path);
    unlink(path);
    seed(21);
    int32_t tokens[150];
    for (int i = 0; i < 150; i++)
        tokens[i] = (int32_t)(uniform() * 300);
    struct text_windows w;
    cr_assert_eq(text_windows_cut(&w, tokens, 150, 32, 0, 0, &err), 0);
    w.bos = 1;
    struct perplexity want = measure_plainly(m, &w);
    cr_expect_eq(want.n, 4 * 15);
    const int batches[] = {1, 7, 32, 50, 64, 512};
    for (size_t i = 0; i < COUNT_OF(batches); i++) {
        struct perplexity got = measure(m, &w, batches[i]);
        cr_expect(got.n == want.n && got.nll == want.nll && got.nll2 == want.nll2, "batch %d: %.17g, not %.17g",
                  batches[i], got.nll, want.nll);
    }
    model_close(m);
}

// --- the file of base logits ---

enum { BASE_VOCAB = 5, BASE_TOKENS = 8 };
static const int32_t base_tokens[BASE_TOKENS] = {0, 1, 2, 3, 4, 3, 2, 1};
static const struct text_windows base_windows = {base_tokens, 4, 4, 2, 1, 2, -1};
static char folder[] = "/tmp/quern-base-XXXXXX", base_path[64];

static void write_base(void)
{
    cr_assert(mkdtemp(folder));
    snprintf(base_path, sizeof base_path, "%s/base", folder);
    struct logits_base *b;
    struct error err;
    cr_assert_eq(logits_base_create(&b, base_path, &base_windows, BASE_TOKENS, BASE_VOCAB, &err), 0, "%s", err.text);
    cr_expect_eq(access(base_path, F_OK), -1, "a file that is not whole must not stand under its name");
    for (int i = 0; i < 2; i++)
        cr_assert_eq(logits_base_write(b, (float[]){(float)i, 1, 2, 3, 4}, &err), 0);
    cr_assert_eq(logits_base_finish(b, &err), 0, "%s", err.text);
}

static void remove_folder(void)
{
    unlink(base_path);
    cr_expect_eq(rmdir(folder), 0, "something was left behind");
}

TestSuite(logits_base, .init = write_base, .fini = remove_folder);

Test(logits_base, what_is_written_is_read)
{
    struct logits_base *b;
    struct error err;
    cr_assert_eq(logits_base_open(&b, base_path, &err), 0, "%s", err.text);
    const struct text_windows *w = logits_base_windows(b);
    cr_expect(w->n_window == 4 && w->step == 4 && w->first == 2 && w->n_scored == 1 && w->n == 2 && w->bos == -1);
    cr_expect(logits_base_n_vocab(b) == BASE_VOCAB && logits_base_n_tokens(b) == BASE_TOKENS);
    cr_expect_arr_eq(w->tokens, base_tokens, sizeof base_tokens);
    for (int i = 0; i < 2; i++) {
        const float *row = logits_base_read(b, &err);
        cr_assert(row, "%s", err.text);
        cr_expect(row[0] == (float)i && row[4] == 4);
    }
    cr_expect_null(logits_base_read(b, &err));
    logits_base_close(b);
}

Test(logits_base, a_device_is_not_replaced)
{
    struct logits_base *b;
    struct error err;
    struct stat there;
    unlink(base_path);
    cr_assert_eq(mkfifo(base_path, 0600), 0);
    cr_expect_eq(logits_base_create(&b, base_path, &base_windows, BASE_TOKENS, BASE_VOCAB, &err), -1);
    cr_expect(err.code == E_USAGE && strstr(err.text, "no ordinary file"), "%s", err.text);
    cr_expect(stat(base_path, &there) == 0 && S_ISFIFO(there.st_mode));
}

static void expect_refused(const char *says)
{
    struct logits_base *b = NULL;
    struct error err = {0};
    int status = logits_base_open(&b, base_path, &err);
    while (!status) // or a row is
        status = logits_base_read(b, &err) ? 0 : -1;
    cr_expect(err.code == E_MODEL && strstr(err.text, says), "'%s' says not '%s'", err.text, says);
    logits_base_close(b);
}

static void patch(long at, int32_t value)
{
    FILE *f = fopen(base_path, "r+");
    fseek(f, at, SEEK_SET);
    fwrite(&value, 4, 1, f);
    fclose(f);
}

Test(logits_base, a_file_cut_anywhere_is_refused)
{
    struct stat st;
    cr_assert_eq(stat(base_path, &st), 0);
    for (off_t n = st.st_size - 1; n >= 0; n--) {
        cr_assert_eq(truncate(base_path, n), 0);
        expect_refused(n < 8 + 32 ? "ends within its head" : "but its head announces");
    }
}

Test(logits_base, a_head_that_makes_no_sense_is_refused)
{
    static const struct {
        int field;
        int32_t value;
        const char *says;
    } cases[] = {{-1, 7, "no file of base logits"},
                 {0, 0, "n_vocab is 0"},
                 {0, INT32_MAX, "n_vocab is"},
                 {1, 3, "n_window is 3"},
                 {2, 0, "step is 0"},
                 {2, 5, "step is 5"},
                 {3, 3, "first is 3, must be 0 to 2"},
                 {3, -1, "first is -1"},
                 {4, 0, "n_scored is 0"},
                 {4, 2, "n_scored is 2"},
                 {5, 0, "n_windows is 0"},
                 {5, 3, "3 windows need 12 tokens"},
                 {6, -2, "bos is -2"},
                 {6, 5, "bos is 5"},
                 {7, 0, "n_tokens is 0"},
                 {7, 9, "but its head announces"},
                 {8, 5, "id 5 of token 0"},
                 {8, -1, "id -1 of token 0"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        FILE *f = fopen(base_path, "r");
        int32_t before;
        fseek(f, 8 + 4 * cases[i].field, SEEK_SET);
        cr_assert_eq(fread(&before, 4, 1, f), 1);
        fclose(f);
        patch(8 + 4 * cases[i].field, cases[i].value);
        expect_refused(cases[i].says);
        patch(8 + 4 * cases[i].field, before);
    }
}

Test(logits_base, logits_that_are_no_numbers_are_refused)
{
    patch(8 + 32 + 32 + 4 * 7, 0x7fc00000);
    expect_refused("row 1 holds a value that is no number");
}

Test(logits_base, a_full_disk_is_an_error_and_leaves_the_old_file)
{
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {100, 100};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct logits_base *b;
    struct error err = {0};
    cr_assert_eq(logits_base_create(&b, base_path, &base_windows, BASE_TOKENS, BASE_VOCAB, &err), 0);
    int status = 0;
    for (int i = 0; i < 2; i++)
        status |= logits_base_write(b, (float[]){0, 1, 2, 3, 4}, &err);
    status |= logits_base_finish(b, &err);
    cr_expect(status == -1 && err.code == E_IO && strstr(err.text, "File too large"), "%s", err.text);
    cr_assert_eq(logits_base_open(&b, base_path, &err), 0, "the old file is gone: %s", err.text);
    logits_base_close(b);
}

// --- a model that learned something ---

// What llama-perplexity says of the same file and text (F32 cache, no flash attention): to all its digits.
Test(perplexity, of_a_real_model_is_what_llama_perplexity_finds)
{
    const char *shared = getenv("QUERN_SHARED");
    char model[512], text[512], out[64], command[2048];
    snprintf(model, sizeof model, "%s/models/stories260K.gguf", shared ? shared : "../shared");
    snprintf(text, sizeof text, "%s/vocab/war-and-peace.txt", shared ? shared : "../shared");
    if (access(model, R_OK) || access(text, R_OK))
        cr_skip_test("skipped: no %s or %s", model, text);
    static const struct {
        const char *flags, *says;
    } cases[] = {{"-c 128", "Final estimate: PPL = 54.2880 +/- 3.65629\n"},
                 {"-c 64 --ppl-stride 32", "Final estimate: PPL = 51.08"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(command, sizeof command,
                 "head -c 20000 '%s' | '%s' perplexity -m '%s' %s --chunks 40 -ctk f32 -ctv f32 2>/dev/null", text,
                 getenv("QUERN_BIN"), model, cases[i].flags);
        FILE *f = popen(command, "r");
        cr_assert(f && fgets(out, sizeof out, f));
        cr_expect_eq(pclose(f), 0);
        cr_expect(!strncmp(out, cases[i].says, strlen(cases[i].says)), "%s: %s", cases[i].flags, out);
    }
}
