// Tests dialogues in the engine: which tokens are computed again, which are kept, and what happens in a full context.
#include "engine/answer_rule.h"
#include "engine/chat/dialogue.h"
#include "models/synth_model.h"
#include "tests/stopwatch.h"
#include "tests/vocab_recipe.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[] = "/tmp/quern-dialogue-XXXXXX";
static struct model *model;
static struct session *session;
static struct chat_template *chat;
static struct dialogue dialogue;

static const char template_text[] =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' and m.reasoning_content and "
    "loop.last "
    "%}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}"
    "[assistant]{% if enable_thinking %}<think>{% endif %}{% endif %}";

static void set_up(void)
{
    struct error err = {0};
    struct synth_options synth = {.preset = "llama-tiny", .mix = "F32", .n_vocab = 600, .seed = 3};
    close(mkstemp(path));
    cr_assert_eq(synth_model_write(&synth, path, &err), 0, "%s", err.text);
    struct model_options o = {.path = path, .device = DEVICE_CPU, .machine = {.n_threads = 1}};
    cr_assert_eq(model_open(&model, &o, &err), 0, "%s", err.text);
    struct session_options s = {.n_ctx = 256, .n_batch = 64, .kv_type = {DT_F16, DT_F16}};
    cr_assert_eq(session_open(&session, model, &s, &err), 0, "%s", err.text);
    struct chat_choice choice = {.source = STR_LIT(template_text)};
    cr_assert_eq(chat_open(&chat, model->file, model->tokenizer, &choice, &err), 0, "%s", err.text);
    dialogue_open(&dialogue, model, session, chat);
}

static void tear_down(void)
{
    dialogue_close(&dialogue);
    chat_close(chat);
    session_close(session);
    model_close(model);
    unlink(path);
}

TestSuite(dialogue, .init = set_up, .fini = tear_down, .timeout = 60);

static atomic_bool stop;

struct seen {
    struct text parts[3];
    size_t n_dropped;
    int tokens_dropped;
};

static int take_part(void *arg, enum answer_part part, struct str text)
{
    text_append(&((struct seen *)arg)->parts[part], text);
    return 0;
}

static void take_shift(void *arg, size_t n, int n_tokens)
{
    ((struct seen *)arg)->n_dropped += n;
    ((struct seen *)arg)->tokens_dropped += n_tokens;
}

// Words of the vocabulary, so that what is said is text.
static const struct logit_bias words[] = {{300, 50}, {310, 50}, {320, 50}, {330, 50}};

static struct dialogue_settings settings(struct seen *seen, int n_predict)
{
    struct dialogue_settings s = {.emit = take_part, .shifted = take_shift, .arg = seen};
    s.base.n_predict = n_predict;
    s.base.n_logprobs = -1;
    s.base.sampler = sampler_defaults();
    s.base.sampler.temperature = 0;
    s.base.sampler.biases = words;
    s.base.sampler.n_biases = COUNT_OF(words);
    return s;
}

static void ask(const char *text, const struct dialogue_settings *s, struct dialogue_result *r)
{
    struct error err = {0};
    cr_assert_eq(dialogue_add(&dialogue, ROLE_USER, str_from(text), (struct str){0}, &err), 0);
    cr_assert_eq(dialogue_answer(&dialogue, s, r, &err), 0, "%s", err.text);
}

static void forget(struct seen *seen)
{
    for (int i = 0; i < 3; i++)
        text_free(&seen->parts[i]);
    *seen = (struct seen){0};
}

Test(dialogue, a_turn_computes_only_what_is_new)
{
    struct seen seen = {0};
    struct dialogue_settings s = settings(&seen, 20);
    struct dialogue_result r;
    int held = 0;
    for (int i = 0; i < 4; i++) {
        ask("and then?", &s, &r);
        cr_expect_eq(r.n_computed, r.n_prompt - held, "turn %d: %d of %d computed, %d were held", i, r.n_computed,
                     r.n_prompt, held);
        held = r.n_context;
    }
    cr_expect_eq(dialogue.n, 8u);
    forget(&seen);
}

Test(dialogue, an_answer_anew_computes_one_token)
{
    struct seen seen = {0};
    struct dialogue_settings s = settings(&seen, 10);
    struct dialogue_result r;
    ask("one", &s, &r);
    dialogue_cut(&dialogue, 1);
    struct error err;
    cr_assert_eq(dialogue_answer(&dialogue, &s, &r, &err), 0);
    cr_expect_eq(r.n_computed, 1);
    forget(&seen);
}

static struct answer_rule *budget_rule(int64_t budget)
{
    struct answer_rule_options o = {NULL, "<think>", "</think>", true, budget};
    struct answer_rule *rule;
    struct error err = {0};
    cr_assert_eq(answer_rule_new(&rule, model->tokenizer, model->info.n_vocab, &o, &err), 0, "%s", err.text);
    return rule;
}

Test(dialogue, thinking_that_a_template_drops_is_computed_around)
{
    struct seen seen = {0};
    struct dialogue_settings s = settings(&seen, 12);
    struct dialogue_result r;
    struct answer_rule *rule = budget_rule(5);
    s.thinking = 1;
    struct token_rule first = answer_rule_begin(rule);
    s.base.rule = &first;
    ask("one", &s, &r);
    cr_expect(seen.parts[ANSWER_REASONING].size > 0);
    cr_expect(dialogue.messages[1].reasoning.len > 0);
    int before_thinking = r.n_prompt;
    struct token_rule second = answer_rule_begin(rule);
    s.base.rule = &second;
    ask("two", &s, &r);
    answer_rule_free(rule);
    cr_expect_lt(r.n_computed, r.n_prompt - before_thinking / 2, "the beginning is held");
    forget(&seen);
}

Test(dialogue, a_budget_closes_thinking)
{
    for (int budget = 0; budget < 8; budget += 3) {
        struct seen seen = {0};
        struct dialogue_settings s = settings(&seen, 40);
        struct dialogue_result r;
        s.thinking = 1;
        struct answer_rule *rule = budget_rule(budget);
        struct token_rule begun = answer_rule_begin(rule);
        s.base.rule = &begun;
        ask("why", &s, &r);
        answer_rule_free(rule);
        struct text *thought = &seen.parts[ANSWER_REASONING], *said = &seen.parts[ANSWER_CONTENT];
        cr_expect(said->size > 0, "budget %d: nothing was said", budget);
        cr_expect(budget > 0 || !thought->size);
        cr_expect(!thought->size || !memmem(thought->data, thought->size, "</think>", 8));
        cr_expect(!memmem(said->data, said->size, "think>", 6), "%.*s", (int)said->size, said->data);
        struct token_list tokens = {0};
        struct error err;
        cr_assert_eq(tokenizer_encode(model->tokenizer, (struct str){thought->data ? thought->data : "", thought->size},
                                      0, &tokens, &err),
                     0);
        cr_expect_leq(tokens.n, (size_t)budget + 1);
        token_list_free(&tokens);
        forget(&seen);
        dialogue_cut(&dialogue, 0);
    }
}

Test(dialogue, a_full_context_is_refused_and_nothing_is_lost)
{
    struct seen seen = {0};
    struct dialogue_settings s = settings(&seen, 100);
    struct dialogue_result r;
    struct error err = {0};
    ask("one", &s, &r);
    ask("two", &s, &r);
    char far_too_long[2000];
    memset(far_too_long, 'x', sizeof far_too_long - 1);
    far_too_long[sizeof far_too_long - 1] = '\0';
    cr_assert_eq(dialogue_add(&dialogue, ROLE_USER, str_from(far_too_long), (struct str){0}, &err), 0);
    cr_expect_eq(dialogue_answer(&dialogue, &s, &r, &err), -1);
    cr_expect_eq(err.code, E_USAGE);
    cr_expect(strstr(err.text, "the context 256") && strstr(err.text, "--context-shift"), "%s", err.text);
    cr_expect_eq(dialogue.n, 5u, "the messages are all there");
    forget(&seen);
}

Test(dialogue, an_answer_that_fills_the_context_is_cut_and_says_why)
{
    struct seen seen = {0};
    struct dialogue_settings s = settings(&seen, -1);
    struct dialogue_result r;
    s.base.ignore_end = true;
    ask("one", &s, &r);
    cr_expect_eq(r.reason, STOP_CONTEXT);
    cr_expect_eq(r.n_context, 256);
    cr_expect_eq(dialogue.n, 2u);
    forget(&seen);
}

Test(dialogue, a_shift_drops_the_oldest_turns_and_the_answer_goes_on)
{
    struct seen seen = {0};
    struct dialogue_settings s = settings(&seen, 60);
    struct dialogue_result r;
    struct error err;
    s.shift = true;
    s.base.ignore_end = true;
    cr_assert_eq(dialogue_set_system(&dialogue, STR_LIT("be kind"), &err), 0);
    for (int i = 0; i < 6; i++) {
        char text[20];
        snprintf(text, sizeof text, "turn %d", i);
        ask(text, &s, &r);
        cr_expect_eq(r.n_generated, 60, "turn %d: %lld tokens", i, (long long)r.n_generated);
        cr_expect_leq(r.n_context, 256);
    }
    cr_expect_gt(seen.n_dropped, 0u);
    cr_expect_eq(seen.n_dropped + dialogue.n, 12u);
    cr_expect_gt(seen.tokens_dropped, 0);
    cr_expect(str_equal_z(dialogue.system, "be kind"));
    cr_expect(str_equal_z(dialogue.messages[dialogue.n - 2].content, "turn 5"));
    forget(&seen);
}

static void add(enum dialogue_role role, const char *what, int i)
{
    struct error err = {0};
    char text[60];
    snprintf(text, sizeof text, "%s %d%s", what, i, i % 7 ? "" : " with much more of it");
    cr_assert_eq(dialogue_add(&dialogue, role, str_from(text), (struct str){0}, &err), 0);
}

static void add_turns(int n, bool begins_with_answer)
{
    if (begins_with_answer)
        add(ROLE_ASSISTANT, "hello", 7);
    for (int i = 1; i < n; i++) {
        add(ROLE_USER, "question", i);
        add(ROLE_ASSISTANT, "answer", 2 * i);
    }
    add(ROLE_USER, "and now", n);
}

// The tokens of the prompt of all messages but the oldest `n_dropped`.
static size_t prompt_without(size_t n_dropped)
{
    struct error err = {0};
    struct text plain = {0};
    struct token_list tokens = {0};
    struct dialogue rest = dialogue;
    rest.messages += n_dropped;
    rest.n -= n_dropped;
    cr_assert_eq(dialogue_prompt(&rest, 0, &plain, &err), 0, "%s", err.text);
    cr_assert_eq(
        tokenizer_encode(model->tokenizer, (struct str){plain.data, plain.size}, TOKENIZE_SPECIAL, &tokens, &err), 0);
    const size_t n = tokens.n;
    text_free(&plain);
    token_list_free(&tokens);
    return n;
}

// How many messages go when turn after turn is dropped and the rest counted each time.
static size_t dropped_one_by_one(size_t n_ctx)
{
    size_t n = 0;
    const bool full = prompt_without(0) >= n_ctx;
    while (full && n < dialogue.n - 1 && prompt_without(n) > n_ctx - n_ctx / 4)
        do
            n++;
        while (dialogue.messages[n].role != ROLE_USER);
    return n;
}

Test(dialogue, a_shift_drops_as_many_turns_as_one_by_one)
{
    size_t n_shifts = 0;
    for (int n = 1; n < 40; n++) {
        struct seen seen = {0};
        struct dialogue_settings s = settings(&seen, 1);
        struct dialogue_result r;
        struct error err = {0};
        s.shift = true;
        dialogue_cut(&dialogue, 0);
        add_turns(n, n % 2);
        const size_t before = dialogue.n, wanted = dropped_one_by_one(256);
        cr_assert_eq(dialogue_answer(&dialogue, &s, &r, &err), 0, "%s", err.text);
        cr_expect_eq(seen.n_dropped, wanted, "%d turns: %zu and not %zu messages", n, seen.n_dropped, wanted);
        cr_expect_eq(dialogue.n, before - wanted + 1);
        n_shifts += wanted > 0;
        forget(&seen);
    }
    cr_expect_gt(n_shifts, 10u);
}

// Rendering thousands of turns once for each that is dropped would take minutes.
Test(dialogue, a_shift_of_a_long_dialogue_is_quick_and_can_be_stopped)
{
    struct seen seen = {0};
    struct dialogue_settings s = settings(&seen, 1);
    struct dialogue_result r;
    struct error err = {0};
    s.shift = true;
    s.base.cancel = &stop;
    add_turns(3000, false);
    atomic_store(&stop, true);
    cr_expect_eq(dialogue_answer(&dialogue, &s, &r, &err), -1);
    cr_expect_eq(err.code, E_INTERRUPTED, "%s", err.text);
    cr_expect_eq(dialogue.n, 5999u, "what was interrupted drops nothing");
    atomic_store(&stop, false);
    const double begun = seconds();
    cr_assert_eq(dialogue_answer(&dialogue, &s, &r, &err), 0, "%s", err.text);
    cr_expect_lt(seconds() - begun, 2 * patience());
    cr_expect_gt(seen.n_dropped, 5900u);
    forget(&seen);
}

// A shift in the middle of an answer: the turns before it go, and it goes on with what it has said.
Test(dialogue, an_answer_goes_on_when_the_turns_before_it_went)
{
    struct seen seen = {0};
    struct dialogue_settings s = settings(&seen, 60);
    struct dialogue_result r;
    s.shift = true;
    s.base.ignore_end = true;
    ask("one", &s, &r);
    ask("two", &s, &r);
    cr_assert_eq(seen.n_dropped, 0u);
    s.base.n_predict = 150;
    ask("three", &s, &r);
    cr_expect_eq(r.reason, STOP_LENGTH);
    cr_expect_eq(r.n_generated, 150, "%lld", (long long)r.n_generated);
    cr_expect_gt(seen.n_dropped, 0u);
    // with nothing left to go, the context is the end
    s.base.n_predict = -1;
    ask("four", &s, &r);
    cr_expect_eq(r.reason, STOP_CONTEXT);
    cr_assert_eq(dialogue.n, 2u);
    cr_expect(str_equal_z(dialogue.messages[0].content, "four"));
    cr_expect_gt(r.n_generated, 200);
    forget(&seen);
}

static int stop_soon(void *arg, enum answer_part part, struct str text)
{
    if (((struct seen *)arg)->parts[part].size > 10)
        atomic_store(&stop, true);
    return take_part(arg, part, text);
}

Test(dialogue, an_interrupted_answer_is_kept_as_far_as_it_came)
{
    struct seen seen = {0};
    struct dialogue_settings s = settings(&seen, 200);
    struct dialogue_result r;
    s.emit = stop_soon;
    s.base.cancel = &stop;
    atomic_store(&stop, false);
    ask("one", &s, &r);
    cr_expect_eq(r.reason, STOP_INTERRUPTED);
    cr_assert_eq(dialogue.n, 2u);
    cr_expect(str_equal(dialogue.messages[1].content,
                        (struct str){seen.parts[ANSWER_CONTENT].data, seen.parts[ANSWER_CONTENT].size}));
    atomic_store(&stop, false);
    int held = r.n_context;
    ask("two", &s, &r);
    cr_expect_eq(r.n_computed, r.n_prompt - held);
    forget(&seen);
}

Test(dialogue, stopped_before_the_first_token_it_leaves_no_answer)
{
    struct seen seen = {0};
    struct dialogue_settings s = settings(&seen, 20);
    struct dialogue_result r;
    struct error err = {0};
    s.base.cancel = &stop;
    atomic_store(&stop, true);
    cr_assert_eq(dialogue_add(&dialogue, ROLE_USER, STR_LIT("one"), (struct str){0}, &err), 0);
    cr_expect_eq(dialogue_answer(&dialogue, &s, &r, &err), -1);
    cr_expect_eq(err.code, E_INTERRUPTED);
    cr_expect_eq(dialogue.n, 1u);
    forget(&seen);
}

// --- other tokens of the same text ---

static void expect_aligned(const int32_t *from, size_t n_from, const int32_t *to, size_t n_to, const int32_t *wanted,
                           size_t n_wanted, const char *what)
{
    struct token_list out = {0};
    struct error err;
    cr_assert_eq(dialogue_align(model->tokenizer, from, n_from, to, n_to, &out, &err), 0);
    cr_expect(out.n == n_wanted && !memcmp(out.ids, wanted, n_wanted * sizeof *wanted), "%s: %zu tokens", what, out.n);
    token_list_free(&out);
}

// The byte tokens of a text, 3 + byte in this vocabulary, spell the same as its words do.
Test(dialogue, the_same_text_in_other_tokens_stays_what_it_was)
{
    struct token_list words_of = {0}, bytes = {0};
    struct error err;
    cr_assert_eq(tokenizer_encode(model->tokenizer, STR_LIT("bu gi"), 0, &words_of, &err), 0);
    for (size_t i = 0; i < words_of.n; i++) {
        struct str piece = tokenizer_piece(model->tokenizer, words_of.ids[i], false);
        for (size_t k = 0; k < piece.len; k++)
            cr_assert_eq(token_list_push(&bytes, 3 + (uint8_t)piece.data[k], &err), 0);
    }
    cr_assert_gt(bytes.n, words_of.n);
    expect_aligned(bytes.ids, bytes.n, words_of.ids, words_of.n, bytes.ids, bytes.n, "bytes for words");
    expect_aligned(words_of.ids, words_of.n, bytes.ids, bytes.n, words_of.ids, words_of.n, "words for bytes");
    expect_aligned(words_of.ids, words_of.n, words_of.ids, words_of.n, words_of.ids, words_of.n, "the same");
    expect_aligned(NULL, 0, words_of.ids, words_of.n, words_of.ids, words_of.n, "nothing held");
    bytes.ids[0]++; // the first byte is another
    expect_aligned(words_of.ids, words_of.n, bytes.ids, bytes.n, bytes.ids, bytes.n, "another text");
    int32_t with_end[] = {words_of.ids[0], 2}, with_bytes[] = {words_of.ids[0], 3 + '<', 3 + '/', 3 + 's', 3 + '>'};
    expect_aligned(with_bytes, COUNT_OF(with_bytes), with_end, COUNT_OF(with_end), with_end, COUNT_OF(with_end),
                   "a control token is not its text");
    token_list_free(&words_of);
    token_list_free(&bytes);
}

// A question that alone is longer than the context stays, and is refused, whether or not turns may go.
Test(dialogue, one_question_that_does_not_fit_is_refused)
{
    static char words_of_it[2000];
    for (size_t i = 0; i + 1 < sizeof words_of_it; i++)
        words_of_it[i] = i % 2 ? ' ' : (char)('a' + i / 2 % 26);
    for (int shift = 0; shift < 2; shift++) {
        struct seen seen = {0};
        struct dialogue_settings s = settings(&seen, 4);
        struct dialogue_result r;
        struct error err = {0};
        s.shift = shift;
        dialogue_cut(&dialogue, 0);
        cr_assert_eq(dialogue_add(&dialogue, ROLE_USER, str_from(words_of_it), (struct str){0}, &err), 0);
        cr_expect_eq(dialogue_answer(&dialogue, &s, &r, &err), -1);
        cr_expect(err.code == E_USAGE && strstr(err.text, "the context 256: /undo takes back the last turn"), "%s",
                  err.text);
        cr_expect_eq(seen.n_dropped, 0u);
        cr_expect_eq(dialogue.n, 1u);
        forget(&seen);
    }
}

// Tokens 0 to 4 are a, b, ab, abc and c; 5 is a control token.
Test(dialogue, other_tokens_of_the_same_text_are_taken_from_what_is_held)
{
    static const struct {
        int32_t held[4], given[4], want[4]; // -1 ends them
    } cases[] = {
        {{2, -1}, {0, 1, -1}, {2, -1}},
        {{0, 1, -1}, {2, -1}, {0, 1, -1}},
        {{3, -1}, {2, 4, -1}, {3, -1}},
        {{2, 4, -1}, {3, -1}, {2, 4, -1}},
        {{0, 2, -1}, {0, 0, 1, -1}, {0, 2, -1}},
        {{2, 4, -1}, {0, 1, 4, -1}, {2, 4, -1}},
        {{2, -1}, {0, 1, 4, -1}, {2, 4, -1}},
        {{2, -1}, {0, -1}, {0, -1}},       // the text given is shorter
        {{0, -1}, {2, -1}, {2, -1}},       // that held is
        {{2, -1}, {0, 4, -1}, {0, 4, -1}}, // it is another one
        {{5, -1}, {0, -1}, {0, -1}},       // a control token has no text
        {{2, -1}, {0, 5, -1}, {0, 5, -1}},
        {{5, 2, -1}, {5, 0, 1, -1}, {5, 2, -1}},
        {{-1}, {0, -1}, {0, -1}},
        {{0, -1}, {-1}, {-1}},
    };
    struct tokenizer *t = vocab_from("model str gpt2\npre str gpt-2\ntokens strs a b ab abc c <s>\n"
                                     "token_type i32s 1 1 1 1 1 3\nmerges strs");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct token_list got = {0};
        struct error err = {0};
        size_t n_held = 0, n_given = 0, n_want = 0;
        while (cases[i].held[n_held] >= 0)
            n_held++;
        while (cases[i].given[n_given] >= 0)
            n_given++;
        while (cases[i].want[n_want] >= 0)
            n_want++;
        cr_assert_eq(dialogue_align(t, cases[i].held, n_held, cases[i].given, n_given, &got, &err), 0, "%s", err.text);
        cr_expect(got.n == n_want && (!n_want || !memcmp(got.ids, cases[i].want, n_want * sizeof *got.ids)), "row %zu",
                  i);
        token_list_free(&got);
    }
    tokenizer_free(t);
}
