// Speed tests leave a session as they found it, and their statistics are right.
#include "engine/measure.h"

#include <criterion/criterion.h>
#include <math.h>

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
    struct measure_test t = {.n_prompt = 100, .n_gen = 10, .n_depth = 1000, .n_seqs = 8};
    struct session_options o = measure_needs(&t, (struct session_options){.n_batch = 4});
    cr_expect(o.n_ctx == 1110 && o.n_seqs == 8 && o.n_batch == 8 && o.n_outputs == 8 && o.no_reuse);
}
