// Tests that speed tests leave a session unchanged, and that their statistics are right.
#include "engine/measure/speed_test.h"
#include "models/synth_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

Test(measure, mean_deviation_and_quantiles)
{
    double x[] = {4, 1, 3, 2};
    cr_expect_float_eq(samples_mean(x, 4), 2.5, 1e-12);
    cr_expect_float_eq(samples_deviation(x, 4), sqrt(5.0 / 3), 1e-12);
    cr_expect_float_eq(samples_deviation(x, 1), 0, 0);
    cr_expect_float_eq(samples_quantile(x, 4, 0.5), 2.5, 1e-12);
    cr_expect_float_eq(samples_quantile(x, 4, 1), 4, 1e-12);
    cr_expect_float_eq(samples_quantile(x, 4, 0.95), 3.85, 1e-12);
}

Test(measure, the_interval_of_a_ratio_holds_it_and_is_the_same_each_time)
{
    double a[20], b[20], low, high, again_low, again_high;
    for (int i = 0; i < 20; i++) {
        a[i] = 110 + 3 * sin(i);
        b[i] = 100 + 3 * cos(3 * i);
    }
    samples_compare(a, 20, b, 20, 0.95, 7, &low, &high);
    samples_compare(a, 20, b, 20, 0.95, 7, &again_low, &again_high);
    cr_expect(low < 1.1 && 1.1 < high && low > 1.07 && high < 1.13, "%g to %g", low, high);
    cr_expect(low == again_low && high == again_high);
    samples_compare(a, 20, a, 20, 0.95, 7, &low, &high);
    cr_expect(low < 1 && 1 < high, "%g to %g", low, high);
}

Test(measure, a_session_is_asked_to_hold_what_a_test_needs)
{
    struct speed_test t = {.n_prompt = 100, .n_gen = 10, .n_depth = 1000, .n_seqs = 8};
    struct session_options o = speed_test_needs(&t, (struct session_options){.n_batch = 4});
    cr_expect(o.n_ctx == 1110 && o.n_seqs == 8 && o.n_batch == 8 && o.n_outputs == 8 && o.no_reuse);
}

// --- on a model ---

static struct model *open_tiny(void)
{
    char path[] = "/tmp/quern-measure-XXXXXX";
    struct error err;
    struct model *m;
    close(mkstemp(path));
    cr_assert_eq(
        synth_model_write(&(struct synth_options){.preset = "llama-tiny", .mix = "Q4_K_M", .seed = 1}, path, &err), 0,
        "%s", err.text);
    cr_assert_eq(model_open(&m, &(struct model_options){.path = path, .machine.n_threads = 2}, &err), 0, "%s",
                 err.text);
    unlink(path);
    return m;
}

Test(measure, a_test_times_its_parts_and_leaves_the_session_empty)
{
    struct model *m = open_tiny();
    struct speed_test t = {.n_prompt = 70, .n_gen = 5, .n_depth = 130, .n_seqs = 3};
    struct session_options o =
        speed_test_needs(&t, (struct session_options){.n_batch = 64, .kv_type = {DT_F16, DT_F16}});
    struct session *s;
    struct error err;
    double steps[5] = {0};
    struct speed_test_result r = {.step_ms = steps};
    cr_assert_eq(session_open(&s, m, &o, &err), 0, "%s", err.text);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(speed_test_run(s, m, &t, &(struct speed_test_text){.seed = 1}, &r, &err), 0, "%s", err.text);
        double sum = 0;
        for (int k = 0; k < 5; k++)
            sum += steps[k];
        cr_expect(r.prompt_ms > 0 && sum > 0 && sum <= r.gen_ms, "%g %g %g", r.prompt_ms, sum, r.gen_ms);
        for (int seq = 0; seq < 3; seq++)
            cr_expect_eq(session_length(s, seq), 0);
    }
    session_close(s);
    model_close(m);
}

Test(measure, a_profile_holds_every_node_that_ran_and_starts_again_when_it_was_asked_for)
{
    struct model *m = open_tiny();
    struct speed_test t = {.n_prompt = 20, .n_gen = 2, .n_seqs = 1};
    struct session_options o =
        speed_test_needs(&t, (struct session_options){.kv_type = {DT_F16, DT_F16}, .profile = true});
    struct session *s;
    struct error err;
    const struct node_time *times;
    struct speed_test_result r = {0};
    double wait;
    int n;
    cr_assert_eq(session_open(&s, m, &o, &err), 0, "%s", err.text);
    cr_assert_eq(speed_test_run(s, m, &t, &(struct speed_test_text){.seed = 1}, &r, &err), 0, "%s", err.text);
    cr_assert(session_profile(s, &times, &n, &wait));
    cr_expect(n > 10 && wait > 0);
    for (int i = 0; i < n; i++)
        cr_expect(times[i].calls > 0 && times[i].ns > 0, "%s", times[i].node->name);
    cr_assert(session_profile(s, &times, &n, &wait));
    for (int i = 0; i < n; i++)
        cr_expect(times[i].calls == 0 && times[i].ns == 0 && wait == 0);
    session_close(s);
    model_close(m);
}
