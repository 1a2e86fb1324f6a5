// Tests the rule of an answer with a grammar and an opening mark of several tokens.
#include "engine/answer_rule.h"
#include "tests/vocab_recipe.h"

#include <criterion/criterion.h>

enum { OPEN = 1, CLOSE, TURN, T, H, O, U, G, A, B, N_VOCAB };
static const int32_t thought[] = {T, H, O, U, G, H, T};

static struct tokenizer *tokenizer;
static struct grammar_vocab *vocab;
static struct grammar *grammar;
static struct answer_rule *rule;
static struct token_rule begun;

static void begin(void)
{
    struct error err = {0};
    tokenizer =
        vocab_from("model str gemma4\ntokens strs <bos> <|channel> <channel|> <turn|> t h o u g a b\n"
                   "token_type i32s 3 3 3 3 1 1 1 1 1 1 1\nmerges strs\nbos_token_id u32 0\neos_token_id u32 3");
    cr_assert_eq(grammar_vocab_new(&vocab, tokenizer, 0, &err), 0, "%s", err.text);
    cr_assert_eq(grammar_from_gbnf(&grammar, vocab, STR_LIT("root ::= \"ab\""), &err), 0, "%s", err.text);
    struct answer_rule_options o = {grammar, "<|channel>thought", "<channel|>", false, -1};
    cr_assert_eq(answer_rule_new(&rule, tokenizer, N_VOCAB, &o, &err), 0, "%s", err.text);
    begun = answer_rule_begin(rule);
}

static void end(void)
{
    answer_rule_free(rule);
    grammar_free(grammar);
    grammar_vocab_free(vocab);
    tokenizer_free(tokenizer);
}

TestSuite(answer_rule, .init = begin, .fini = end);

// The tokens that may come next, as bits; all of them where the rule says nothing.
static uint32_t may_come(void)
{
    const uint32_t *allowed = NULL;
    struct error err = {0};
    cr_assert_eq(begun.mask(begun.state, &allowed, &err), 0, "%s", err.text);
    return (allowed ? *allowed : UINT32_MAX) & ((1u << N_VOCAB) - 1);
}

static void take(int32_t token)
{
    struct error err = {0};
    cr_assert(may_come() & 1u << token, "token %d is not allowed", token);
    cr_assert_eq(begun.accept(begun.state, token, &err), 0, "%s", err.text);
}

Test(answer_rule, reasoning_begins_by_the_first_token_of_its_mark_and_the_others_follow)
{
    cr_expect_eq(may_come(), 1u << OPEN | 1u << A);
    take(OPEN);
    for (size_t i = 0; i < COUNT_OF(thought); i++) {
        cr_expect_eq(may_come(), 1u << thought[i], "token %zu of the mark", i);
        take(thought[i]);
    }
    take(B);
    take(T);
    cr_expect(!answer_rule_can_end(rule));
    take(CLOSE);
    cr_expect_eq(may_come(), 1u << A);
    take(A);
    take(B);
    cr_expect(answer_rule_can_end(rule));
}

Test(answer_rule, an_answer_without_reasoning_is_held_to_the_grammar_at_once)
{
    take(A);
    cr_expect_eq(may_come(), 1u << B);
    take(B);
    cr_expect(answer_rule_can_end(rule));
    begun = answer_rule_begin(rule);
    cr_expect_eq(may_come(), 1u << OPEN | 1u << A);
}
