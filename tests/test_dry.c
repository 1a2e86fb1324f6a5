// Tests the DRY penalty: repetitions are found in linear time with the result of the quadratic definition, and are
// ended by sequence breakers that are part of a token, a whole token, or span several.
#include "engine/sample/dry.h"
#include "tests/vocab_recipe.h"

#include <criterion/criterion.h>
#include <math.h>

enum { VOCAB = 12 };

static int repeats(const struct dry_breakers *b, const int32_t *tokens, int n, int allowed, uint32_t lengths[VOCAB])
{
    struct dry_space space = {0};
    cr_assert(dry_reserve(&space, 1000));
    memset(lengths, 0, VOCAB * sizeof *lengths);
    int found = dry_repeats(&space, b, tokens, n, allowed, lengths), counted = 0;
    for (int i = 0; i < found; i++)
        cr_assert_gt(lengths[space.tokens[i]], 0);
    for (int i = 0; i < VOCAB; i++)
        counted += lengths[i] > 0;
    cr_assert_eq(counted, found, "each token once");
    dry_space_free(&space);
    return found;
}

Test(dry, repetitions_are_those_of_the_definition)
{
    uint64_t state = 5;
    printf("seed 5\n");
    for (int round = 0; round < 3000; round++) {
        int32_t tokens[120];
        int n = (int)random_below(&state, 120), variety = 1 + (int)random_below(&state, 4);
        int allowed = (int)random_below(&state, 4);
        for (int i = 0; i < n; i++)
            tokens[i] = (int32_t)random_below(&state, (size_t)variety);
        uint32_t lengths[VOCAB];
        repeats(NULL, tokens, n, allowed, lengths);
        for (int t = 0; t < variety; t++) {
            int longest = -1;
            for (int at = 1; at < n; at++) {
                int length = 0;
                while (tokens[at] == t && length < at && tokens[at - 1 - length] == tokens[n - 1 - length])
                    length++;
                longest = tokens[at] == t ? MAX(longest, length) : longest;
            }
            bool counts = n > allowed && longest >= allowed;
            cr_assert_eq(lengths[t], counts ? (uint32_t)longest + 1 : 0, "round %d, token %d", round, t);
        }
    }
}

// Ids: a b c d are 0 to 3, ":" is 4, s t o p 5 to 8, "to" 9, "as" 10, "b:" 11.
static struct tokenizer *letters(void)
{
    return vocab_from("model str gpt2\npre str default\ntokens strs a b c d : s t o p to as b:\n"
                      "token_type i32s 1 1 1 1 1 1 1 1 1 1 1 1\nmerges strs t\\so a\\ss b\\s:");
}

static int longest_with(const struct tokenizer *t, struct str breaker, const int32_t *tokens, int n, int32_t of)
{
    struct dry_breakers *b;
    struct error err = {0};
    uint32_t lengths[VOCAB];
    cr_assert_eq(dry_breakers_new(&b, t, &breaker, 1, &err), 0, "%s", err.text);
    repeats(b, tokens, n, 1, lengths);
    dry_breakers_free(b);
    return (int)lengths[of] - 1;
}

Test(dry, breakers_end_a_repetition)
{
    struct tokenizer *t = letters();
    const struct str colon = STR_LIT(":"), stop = STR_LIT("stop"), other = STR_LIT("ppp");
    const int32_t plain[] = {0, 4, 1, 2, 3, 0, 4, 1, 2}; // a : b c d a : b c, d would be next
    cr_expect_eq(longest_with(t, other, plain, 9, 3), 4);
    cr_expect_eq(longest_with(t, colon, plain, 9, 3), 2, "b c, up to the colon");
    const int32_t within[] = {0, 11, 2, 3, 0, 11, 2}; // a b: c d a b: c
    cr_expect_eq(longest_with(t, other, within, 7, 3), 3);
    cr_expect_eq(longest_with(t, colon, within, 7, 3), 1, "the colon is within a token");
    // "as" "to" "p": the breaker begins within the first and ends with the last
    const int32_t across[] = {0, 10, 9, 8, 1, 2, 3, 0, 10, 9, 8, 1, 2};
    cr_expect_eq(longest_with(t, other, across, 13, 3), 6);
    cr_expect_eq(longest_with(t, stop, across, 13, 3), 2);
    const int32_t unfinished[] = {0, 10, 9, 1, 2, 3, 0, 10, 9, 1, 2}; // as to b c: no stop
    cr_expect_eq(longest_with(t, stop, unfinished, 11, 3), 5);
    const int32_t next[] = {0, 1, 4, 2, 0, 1}; // a b : c a b, a colon would be next
    cr_expect_eq(longest_with(t, other, next, 6, 4), 2);
    cr_expect_eq(longest_with(t, colon, next, 6, 4), -1, "a breaker itself is no repetition");
    tokenizer_free(t);
}

Test(dry, the_penalty_grows_and_stays_finite)
{
    struct sampler_params p = sampler_defaults();
    p.dry_multiplier = 0.8f;
    cr_expect_float_eq(dry_penalty(&p, 3), (double)0.8f, 1e-9, "of the allowed length");
    cr_expect_float_eq(dry_penalty(&p, 5), (double)0.8f * 1.75 * 1.75, 1e-6);
    cr_expect(isfinite(dry_penalty(&p, UINT32_MAX)) && dry_penalty(&p, UINT32_MAX) > 1e38);
    p.dry_base = 1;
    cr_expect_float_eq(dry_penalty(&p, 1000), (double)0.8f, 1e-9);
}

Test(dry, texts_longer_than_the_room_are_looked_through_at_their_end)
{
    struct dry_space space = {0};
    int32_t tokens[50];
    uint32_t lengths[VOCAB] = {0};
    for (int i = 0; i < 50; i++)
        tokens[i] = i < 40 ? 7 : i % 5;
    cr_assert(dry_reserve(&space, 10));
    cr_expect_eq(dry_repeats(&space, NULL, tokens, 50, 2, lengths), 1);
    cr_expect_eq(lengths[0], 6, "five tokens came before");
    cr_expect_eq(lengths[7], 0);
    dry_space_free(&space);
}
