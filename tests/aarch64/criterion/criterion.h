// As much of Criterion as the tests of the kernels use, so that they run where Debian's cannot be installed: each test
// in turn in this process, which stops with status 1 at the first that fails. The program is one file of tests, or
// several.
#ifndef QUERN_CRITERION_H
#define QUERN_CRITERION_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test {
    const char *suite, *name;
    void (*run)(void);
    double timeout; // not kept
    struct test *next;
};

void test_add(struct test *test); // runner.c

#define Test(suite_, name_, ...)                                                                                       \
    static void suite_##_##name_(void);                                                                                \
    static __attribute__((constructor)) void suite_##_##name_##_add(void)                                              \
    {                                                                                                                  \
        static struct test test = {.suite = #suite_, .name = #name_, .run = suite_##_##name_, ##__VA_ARGS__};          \
        test_add(&test);                                                                                               \
    }                                                                                                                  \
    static void suite_##_##name_(void)

#define cr_fail_(what, ...)                                                                                            \
    do {                                                                                                               \
        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, what);                                                      \
        fprintf(stderr, "" __VA_ARGS__);                                                                               \
        fputc('\n', stderr);                                                                                           \
        exit(1);                                                                                                       \
    } while (0)
#define cr_assert(condition, ...)                                                                                      \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            cr_fail_(#condition, ##__VA_ARGS__);                                                                       \
    } while (0)
#define cr_assert_fail(...) cr_fail_("reached", ##__VA_ARGS__)
#define cr_assert_eq(a, b, ...) cr_assert((a) == (b), ##__VA_ARGS__)
#define cr_assert_neq(a, b, ...) cr_assert((a) != (b), ##__VA_ARGS__)
#define cr_assert_lt(a, b, ...) cr_assert((a) < (b), ##__VA_ARGS__)
#define cr_assert_leq(a, b, ...) cr_assert((a) <= (b), ##__VA_ARGS__)
#define cr_assert_gt(a, b, ...) cr_assert((a) > (b), ##__VA_ARGS__)
#define cr_assert_geq(a, b, ...) cr_assert((a) >= (b), ##__VA_ARGS__)
#define cr_assert_not(a, ...) cr_assert(!(a), ##__VA_ARGS__)
#define cr_assert_null(a, ...) cr_assert(!(a), ##__VA_ARGS__)
#define cr_assert_not_null(a, ...) cr_assert((a), ##__VA_ARGS__)
#define cr_assert_float_eq(a, b, most, ...) cr_assert((a) - (b) <= (most) && (b) - (a) <= (most), ##__VA_ARGS__)
#define cr_assert_arr_eq(a, b, size, ...) cr_assert(memcmp((a), (b), (size)) == 0, ##__VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) cr_assert(strcmp((a), (b)) == 0, ##__VA_ARGS__)

// Here what is expected stops a test, too.
#define cr_expect cr_assert
#define cr_expect_eq cr_assert_eq
#define cr_expect_neq cr_assert_neq
#define cr_expect_lt cr_assert_lt
#define cr_expect_leq cr_assert_leq
#define cr_expect_gt cr_assert_gt
#define cr_expect_geq cr_assert_geq
#define cr_expect_not cr_assert_not
#define cr_expect_null cr_assert_null
#define cr_expect_not_null cr_assert_not_null
#define cr_expect_float_eq cr_assert_float_eq
#define cr_expect_arr_eq cr_assert_arr_eq
#define cr_expect_str_eq cr_assert_str_eq

#endif
