// Selects candidates by total weight with a radix selection, which takes at most eight rounds over ever fewer
// candidates and no sort. Sums exponentials in short blocks: a loop that the compiler vectorises computes them in
// float, and eight fixed lanes add them in double, so the result does not depend on the vector width.
#include "engine/sample/candidates.h"

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate t = *a;
    *a = *b;
    *b = t;
}

// The digit (8 bits) of a candidate's key above the lowest `shift` bits.
static int digit_of(struct candidate c, int shift)
{
    return (int)(candidate_key(c) >> shift & 255);
}

// Partitions candidates into those with a greater digit, then those with an equal digit, then the rest. The sizes of
// the first two groups go to *n_greater and *n_equal.
static void split_by_digit(struct candidate *c, int n, int shift, int digit, int *n_greater, int *n_equal)
{
    int greater = 0, rest = n;
    for (int i = 0; i < rest;) {
        int d = digit_of(c[i], shift);
        if (d > digit)
            swap(&c[i++], &c[greater++]);
        else if (d < digit)
            swap(&c[i], &c[--rest]);
        else
            i++;
    }
    *n_greater = greater;
    *n_equal = rest - greater;
}

// A radix selection over the digits of the keys, from the highest: the total weight of each digit shows which digit
// contains the last candidate to take. All candidates with a greater digit are taken, and the next digit decides among
// those with an equal one.
int candidates_select_mass(struct candidate *c, int n, double want, bool beyond, candidate_weight_fn *weigh,
                           const void *arg)
{
    int taken = 0;
    double reached = 0;
    for (int shift = 56; shift >= 0 && n > 1; shift -= 8) {
        double mass[256] = {0};
        for (int i = 0; i < n; i++)
            mass[digit_of(c[taken + i], shift)] += weigh(arg, c[taken + i]);
        int digit = 255, n_greater, n_equal;
        for (; digit > 0; digit--) {
            double with = reached + mass[digit];
            if (beyond ? with > want : with >= want)
                break;
            reached = with;
        }
        split_by_digit(c + taken, n, shift, digit, &n_greater, &n_equal);
        taken += n_greater;
        n = n_equal;
    }
    return taken + MIN(n, 1);
}

enum { STRETCH = 64, LANES = 8 };

// Adds up to STRETCH exponentials to the lanes: first all exponentials, which the compiler vectorises, then their
// sums in double.
static void add_exp(const float *x, int n, float max, double sums[LANES])
{
    float e[STRETCH];
    for (int i = 0; i < n; i++)
        e[i] = exp_negative(x[i] - max);
    for (int i = n; i < STRETCH; i++)
        e[i] = 0;
    for (int i = 0; i < STRETCH; i += LANES)
        for (int j = 0; j < LANES; j++)
            sums[j] += (double)e[i + j];
}

static double fold(const double sums[LANES])
{
    double sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += sums[j];
    return sum;
}

double logits_sum_exp(const float *x, int n, float max)
{
    double sums[LANES] = {0};
    int i = 0;
    for (; i + STRETCH <= n; i += STRETCH)
        add_exp(x + i, STRETCH, max, sums);
    add_exp(x + i, n - i, max, sums);
    return fold(sums);
}

double candidates_sum_exp(const struct candidate *c, int n, float max)
{
    double sums[LANES] = {0};
    float x[STRETCH];
    for (int i = 0; i < n; i += STRETCH) {
        int m = MIN(STRETCH, n - i);
        for (int j = 0; j < m; j++)
            x[j] = c[i + j].logit;
        add_exp(x, m, max, sums);
    }
    return fold(sums);
}
