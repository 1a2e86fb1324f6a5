// Tests which device --device auto selects: from measured or stored figures and from the memory that is available; and
// that nothing is measured when a device is given.
#include "engine/crossover.h"
#include "engine/model.h"
#include "kernels/card.h"
#include "models/synth_model.h"
#include "tests/ptx/quern_cuda.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CARD_BYTES = 48 << 20 };
static char folder[64], model_path[96], cache[96];

static void make_all(void)
{
    struct error err = {0};
    snprintf(folder, sizeof folder, "/tmp/quern-crossover-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(model_path, sizeof model_path, "%s/model.gguf", folder);
    snprintf(cache, sizeof cache, "%s/cache/kernels", folder);
    struct synth_options synth = {.preset = "llama-tiny", .mix = "Q8_0", .seed = 1};
    cr_assert_eq(synth_model_write(&synth, model_path, &err), 0, "%s", err.text);
    quern_cuda_set(&(struct quern_cuda_setup){1, 9, 0, 13000, CARD_BYTES});
}

static void remove_all(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(crossover, .init = make_all, .fini = remove_all);

static struct crossover measure(void)
{
    struct machine *card;
    struct crossover x;
    struct error err = {0};
    cr_assert_eq(machine_open_gpu(&card, &(struct machine_options){0}, &(struct gpu_options){0}, &err), 0, "%s",
                 err.text);
    cr_assert_eq(crossover_measure(card, 1, cache, &x, &err), 0, "%s", err.text);
    card->v->close(card);
    return x;
}

// Whether what is kept will do: measuring fails, and at its first step already, which takes no time.
static bool is_used(void)
{
    struct machine *card;
    struct crossover x;
    struct error err = {0};
    cr_assert_eq(machine_open_gpu(&card, &(struct machine_options){0}, &(struct gpu_options){0}, &err), 0, "%s",
                 err.text);
    quern_cuda_fail("cuGraphLaunch", 1, 700);
    bool used = crossover_measure(card, 1, cache, &x, &err) == 0;
    quern_cuda_fail(NULL, 0, 0);
    card->v->close(card);
    return used;
}

// The file of kept figures.
static void find_kept(char path[256])
{
    char command[160];
    snprintf(command, sizeof command, "ls %s/speeds-*", cache);
    FILE *f = popen(command, "r");
    cr_assert_not_null(f);
    cr_assert_not_null(fgets(path, 256, f), "%s holds no figures", cache);
    path[strcspn(path, "\n")] = 0;
    pclose(f);
}

// Other figures, or anything else, behind the head of that file.
static void put_figures(const char *figures)
{
    char path[256], text[1024] = "";
    find_kept(path);
    FILE *f = fopen(path, "r+e");
    cr_assert_not_null(f);
    cr_assert_gt(fread(text, 1, sizeof text - 1, f), 0);
    char *at = text;
    for (int line = 0; line < 3; line++) {
        at = strchr(at, '\n');
        cr_assert_not_null(at, "%s", text);
        at++;
    }
    cr_assert_eq(ftruncate(fileno(f), at - text), 0);
    fseek(f, at - text, SEEK_SET);
    fputs(figures, f);
    fclose(f);
}

static struct model *open_model(const struct model_options *o)
{
    struct model *m;
    struct error err = {0};
    struct model_options options = *o;
    options.path = model_path;
    options.kernel_cache = cache;
    cr_assert_eq(model_open(&m, &options, &err), 0, "%s", err.text);
    return m;
}

static void expect_device(const struct model_options *o, const char *device, const char *why)
{
    struct model *m = open_model(o);
    cr_expect_str_eq(m->device, device, "%s: %s", m->device, m->device_why);
    cr_expect_str_eq(m->machine->v->name, device);
    cr_expect(strstr(m->device_why, why), "not \"%s\": %s", why, m->device_why);
    model_close(m);
}

Test(crossover, both_take_as_long_where_it_lies)
{
    const struct crossover x = {.step = 10e-6, .launch = 2e-6, .copy = 2e12, .read = 40e9};
    double bytes = crossover_bytes(&x, 101);
    cr_expect_float_eq(bytes, 210e-6 / (1 / 40e9 - 1 / 2e12), 1);
    cr_expect_float_eq(crossover_on_cpu(&x, bytes), crossover_on_card(&x, 101, bytes), 1e-12);
    cr_expect_lt(crossover_on_cpu(&x, bytes / 2), crossover_on_card(&x, 101, bytes / 2));
    cr_expect_gt(crossover_on_cpu(&x, bytes * 2), crossover_on_card(&x, 101, bytes * 2));
    const struct crossover slow = {.step = 10e-6, .launch = 2e-6, .copy = 40e9, .read = 40e9};
    cr_expect(isinf(crossover_bytes(&slow, 101)));
}

Test(crossover, figures_are_measured_once_and_kept)
{
    struct crossover x = measure();
    cr_expect_gt(x.step, 0);
    cr_expect_geq(x.launch, 0);
    cr_expect_gt(x.copy, 1e6);
    cr_expect_gt(x.read, 1e6);
    uint64_t replays = quern_cuda_calls("cuGraphLaunch"), copies = quern_cuda_calls("cuMemcpyDtoDAsync_v2");
    cr_expect_gt(replays, 0);
    cr_expect_gt(copies, 0);
    struct crossover again = measure();
    cr_expect_eq(quern_cuda_calls("cuGraphLaunch"), replays);
    cr_expect_eq(quern_cuda_calls("cuMemcpyDtoDAsync_v2"), copies);
    cr_expect_float_eq(again.step, x.step, x.step * 1e-8);
    cr_expect_float_eq(again.copy, x.copy, x.copy * 1e-8);
    cr_expect_float_eq(again.read, x.read, x.read * 1e-8);
    cr_expect_eq(again.n_threads, 1);
}

Test(crossover, what_is_no_measurement_is_measured_again)
{
    static const char *const bad[] = {
        "",
        "step",
        "step 1e-5\nlaunch 1e-6\ncopy 1e12\n",
        "step 1e-5\nlaunch 1e-6\ncopy 1e12\nread 1e10", // cut short
        "step nan\nlaunch 1e-6\ncopy 1e12\nread 1e10\n",
        "step 1e-5\nlaunch -1e-6\ncopy 1e12\nread 1e10\n",
        "step 1e-5\nlaunch 1e-6\ncopy inf\nread 1e10\n",
        "step 1e-5\nlaunch 1e-6\ncopy 1e12\nread 0\n",
    };
    measure();
    cr_expect(is_used());
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        put_figures(bad[i]);
        cr_expect(!is_used(), "%s", bad[i]);
    }
    struct crossover x = measure();
    cr_expect(x.read > 1e6 && isfinite(x.read) && isfinite(x.step));
    cr_expect(is_used());
}

// A pipe in the place of the figures is not waited for; timeout: with a reader that waits, the test never ends.
Test(crossover, a_pipe_holds_no_figures, .timeout = 60)
{
    char path[256];
    measure();
    find_kept(path);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect(!is_used());
}

Test(crossover, figures_of_last_month_and_of_another_card_are_not_used)
{
    char path[256];
    measure();
    find_kept(path);
    struct timespec old[2] = {{.tv_sec = time(NULL) - 30 * 86400}, {.tv_sec = time(NULL) - 30 * 86400}};
    cr_assert_eq(utimensat(AT_FDCWD, path, old, 0), 0);
    cr_expect(!is_used());
    cr_assert_eq(utimensat(AT_FDCWD, path, NULL, 0), 0);
    cr_expect(is_used());
    quern_cuda_set(&(struct quern_cuda_setup){1, 8, 0, 13000, CARD_BYTES});
    cr_expect(!is_used());
}

Test(crossover, auto_takes_what_is_faster_for_a_token)
{
    const struct model_options any = {.device = DEVICE_AUTO};
    struct model *m = open_model(&any); // measures, for as many threads as auto takes
    cr_expect(m->device_news);
    model_close(m);
    // by figures of an interpreter that is slow, and of a card that is fast
    put_figures("step 1e-4\nlaunch 1e-4\ncopy 1e9\nread 2e10\n");
    expect_device(&any, "cpu", "launches of 100 us");
    put_figures("step 1e-9\nlaunch 1e-12\ncopy 1e13\nread 1e7\n");
    expect_device(&any, "gpu", "GB/s");
    // small steps, so that only the bytes of the weights decide
    put_figures("step 1e-9\nlaunch 1e-12\ncopy 1e10\nread 2e10\n");
    expect_device(&any, "cpu", "at 20.0 GB/s");
}

Test(crossover, a_model_that_does_not_fit_stays_on_the_cpu)
{
    const struct model_options any = {.device = DEVICE_AUTO}, long_one = {.device = DEVICE_AUTO, .n_ctx = 1 << 20};
    model_close(open_model(&any));
    put_figures("step 1e-9\nlaunch 1e-12\ncopy 1e13\nread 1e7\n");
    expect_device(&any, "gpu", "GB/s");
    expect_device(&long_one, "cpu", "keys and values of 1048576 positions");
    quern_cuda_set(&(struct quern_cuda_setup){1, 9, 0, 13000, (size_t)1 << 20});
    expect_device(&any, "cpu", "1.0 MiB free");
}

Test(crossover, nobody_is_asked_where_a_device_was_named)
{
    uint64_t replays = quern_cuda_calls("cuGraphLaunch");
    expect_device(&(struct model_options){.device = DEVICE_GPU}, "gpu", "asked for");
    expect_device(&(struct model_options){.device = DEVICE_CPU}, "cpu", "asked for");
    expect_device(&(struct model_options){.device = DEVICE_AUTO, .machine.n_threads = 1}, "cpu", "were asked for");
    cr_expect_eq(quern_cuda_calls("cuGraphLaunch"), replays);
}

Test(crossover, a_card_that_fails_leaves_the_cpu_with_the_reason)
{
    const struct model_options any = {.device = DEVICE_AUTO};
    quern_cuda_fail("cuGraphLaunch", 1, 700);
    expect_device(&any, "cpu", "cuGraphLaunch: CUDA_ERROR_ILLEGAL_ADDRESS");
    quern_cuda_fail(NULL, 0, 0);
    quern_cuda_set(&(struct quern_cuda_setup){1, 7, 0, 13000, CARD_BYTES});
    expect_device(&any, "cpu", "7.5 is the least");
    struct quern_cuda_counts alive;
    quern_cuda_count(&alive);
    cr_expect_eq(alive.contexts + alive.blocks + alive.modules + alive.graphs + alive.pinned, 0);
}
