// Tests what quern batch has for evaluation harnesses: log-probabilities of prompts, other ends of answers, forms of
// answers, tools that must be called, and messages that are continued.
#include "tests/batch_rows.h"

#include <math.h>

TestSuite(batch_evals, .init = rig_open, .fini = rig_close, .timeout = 120);

enum { N_VOCAB = 600 };

static double number_at(const cJSON *list, int i)
{
    const cJSON *v = cJSON_GetArrayItem(list, i);
    cr_assert(cJSON_IsNumber(v), "entry %d", i);
    return v->valuedouble;
}

static const char *string_at(const cJSON *v, const char *key)
{
    const char *text = cJSON_GetStringValue(at(v, key));
    cr_assert(text, "no text in %s", key);
    return text;
}

static int usage_of(const cJSON *row, const char *key)
{
    return at(at(at(at(row, "response"), "body"), "usage"), key)->valueint;
}

// --- log-probabilities of prompts ---

// The logits behind each of n ids, as `quern logits` has them; [n][N_VOCAB], to be freed.
static float *logits_of(const int32_t *ids, int n)
{
    int32_t head[] = {n, N_VOCAB};
    float *logits = calloc((size_t)n * N_VOCAB, sizeof *logits);
    FILE *f = fopen("ids", "wb");
    fwrite(head, sizeof head, 1, f);
    fwrite(ids, sizeof *ids, (size_t)n, f);
    fclose(f);
    cr_assert_eq(shell("$Q logits --ids ids -o logits"), 0);
    f = fopen("logits", "rb");
    cr_assert_eq(fseek(f, (long)(8 + 4 * n), SEEK_SET), 0);
    cr_assert_eq(fread(logits, N_VOCAB * sizeof *logits, (size_t)n, f), (size_t)n);
    fclose(f);
    return logits;
}

static double logprob_of(const float *logits, int token)
{
    double sum = 0;
    for (int i = 0; i < N_VOCAB; i++)
        sum += exp((double)logits[i]);
    return (double)logits[token] - log(sum);
}

static double greatest_of(const float *logits)
{
    double best = -INFINITY;
    for (int i = 0; i < N_VOCAB; i++)
        best = fmax(best, logprob_of(logits, i));
    return best;
}

static double greatest_in(const cJSON *dict)
{
    double best = -INFINITY;
    for (const cJSON *v = dict->child; v; v = v->next)
        best = fmax(best, v->valuedouble);
    return best;
}

static const int32_t some_ids[] = {5, 260, 261, 300, 301, 5, 300, 599, 260, 400, 401};

static void print_ids(char *out, size_t room)
{
    *out = '\0';
    for (size_t i = 0; i < COUNT_OF(some_ids); i++)
        snprintf(out + strlen(out), room - strlen(out), "%s%d", i ? "," : "", some_ids[i]);
}

// As a harness asks for the likelihood of a text: with or without a token behind it, which it cuts off.
Test(batch_evals, echo_gives_the_log_probabilities_that_the_logits_have)
{
    enum { N = COUNT_OF(some_ids) };
    char ids[200], lines[1024];
    print_ids(ids, sizeof ids);
    snprintf(lines, sizeof lines,
             "{\"prompt\":[%s],\"max_tokens\":0,\"logprobs\":1,\"echo\":true}\n"
             "{\"prompt\":[[1,2],[%s]],\"max_tokens\":1,\"logprobs\":1,\"echo\":true,\"temperature\":0}\n",
             ids, ids);
    write_text("in", lines);
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 0);
    float *logits = logits_of(some_ids, N);
    cJSON *rows[] = {row_of("out", 1), row_of("out", 2)};
    for (int r = 0; r < 2; r++) {
        const cJSON *logprobs = at(choice_of(rows[r], r), "logprobs"), *own = at(logprobs, "token_logprobs");
        cr_assert_eq(cJSON_GetArraySize(own), N + r);
        cr_assert_eq(cJSON_GetArraySize(at(logprobs, "tokens")), N + r);
        cr_assert_eq(cJSON_GetArraySize(at(logprobs, "text_offset")), N + r);
        cr_assert(cJSON_IsNull(cJSON_GetArrayItem(own, 0)));
        cr_assert(cJSON_IsNull(cJSON_GetArrayItem(at(logprobs, "top_logprobs"), 0)));
        for (int i = 1; i < N; i++) {
            const float *before = logits + (size_t)(i - 1) * N_VOCAB;
            cr_expect_float_eq(number_at(own, i), logprob_of(before, some_ids[i]), 1e-5, "row %d, token %d", r, i);
            cr_expect_float_eq(greatest_in(cJSON_GetArrayItem(at(logprobs, "top_logprobs"), i)), greatest_of(before),
                               1e-5);
        }
    }
    cr_assert_eq(usage_of(rows[0], "prompt_tokens"), N);
    cr_assert_eq(usage_of(rows[0], "completion_tokens"), 0);
    cr_assert_eq(usage_of(rows[1], "prompt_tokens"), N + 2);
    cr_assert_str_eq(string_at(choice_of(rows[0], 0), "finish_reason"), "length");
    for (int r = 0; r < 2; r++)
        cJSON_Delete(rows[r]);
    free(logits);
}

// Without it, a harness that cuts off the last token would cut off one of the prompt.
Test(batch_evals, with_echo_the_token_that_ends_an_answer_is_listed)
{
    write_text("in", "{\"prompt\":[5,6,7],\"max_tokens\":1,\"logprobs\":2,\"echo\":true,\"logit_bias\":{\"2\":100}}\n"
                     "{\"prompt\":[5,6,7],\"max_tokens\":1,\"logprobs\":2,\"logit_bias\":{\"2\":100}}\n");
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 0);
    for (int i = 0; i < 2; i++) {
        cJSON *row = row_of("out", i + 1);
        const cJSON *own = at(at(choice_of(row, 0), "logprobs"), "token_logprobs");
        cr_assert_str_eq(string_at(choice_of(row, 0), "finish_reason"), "stop");
        cr_assert_eq(usage_of(row, "completion_tokens"), 0);
        cr_assert_eq(cJSON_GetArraySize(own), i ? 0 : 4);
        cJSON_Delete(row);
    }
}

Test(batch_evals, echo_puts_the_prompt_before_the_answer)
{
    write_text("in", "{\"prompt\":\"one two\",\"max_tokens\":5,\"temperature\":0,\"ignore_eos\":true}\n"
                     "{\"prompt\":[\"x\",\"one two\"],\"max_tokens\":5,\"temperature\":0,\"ignore_eos\":true,\"echo\":"
                     "true,\"logprobs\":0}\n"
                     "{\"prompt\":\"one two\",\"max_tokens\":0,\"echo\":true}\n");
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 0);
    cJSON *rows[] = {row_of("out", 1), row_of("out", 2), row_of("out", 3)};
    char wanted[200];
    snprintf(wanted, sizeof wanted, "one two%s", string_at(choice_of(rows[0], 0), "text"));
    cr_assert_str_eq(string_at(choice_of(rows[1], 1), "text"), wanted);
    cr_assert_str_eq(string_at(choice_of(rows[2], 0), "text"), "one two");
    const cJSON *offsets = at(at(choice_of(rows[1], 1), "logprobs"), "text_offset");
    int n = cJSON_GetArraySize(offsets);
    cr_assert_eq(number_at(offsets, 0), 0);
    cr_assert_eq(number_at(offsets, n - 5), strlen("one two"));
    for (int i = 1; i < n; i++)
        cr_assert_geq(number_at(offsets, i), number_at(offsets, i - 1));
    for (int i = 0; i < 3; i++)
        cJSON_Delete(rows[i]);
}

Test(batch_evals, prompt_logprobs_name_each_token_and_the_most_likely_ones)
{
    enum { N = COUNT_OF(some_ids) };
    char ids[200], lines[1024];
    print_ids(ids, sizeof ids);
    snprintf(lines, sizeof lines,
             "{\"prompt\":[%s],\"max_tokens\":1,\"prompt_logprobs\":3,\"n\":2}\n"
             "{\"messages\":[{\"role\":\"user\",\"content\":\"a b c\"}],\"max_tokens\":1,\"prompt_logprobs\":0}\n",
             ids);
    write_text("in", lines);
    write_text("t.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
    cr_assert_eq(shell("$Q batch in -o out --format jsonl --chat-template-file t.jinja"), 0);
    float *logits = logits_of(some_ids, N);
    cJSON *row = row_of("out", 1), *chat = row_of("out", 2);
    for (int c = 0; c < 2; c++) {
        const cJSON *list = at(choice_of(row, c), "prompt_logprobs");
        cr_assert_eq(cJSON_GetArraySize(list), N);
        cr_assert(cJSON_IsNull(cJSON_GetArrayItem(list, 0)));
        for (int i = 1; i < N; i++) {
            const float *before = logits + (size_t)(i - 1) * N_VOCAB;
            const cJSON *dict = cJSON_GetArrayItem(list, i);
            bool ranks[5] = {0};
            char own[16];
            snprintf(own, sizeof own, "%d", some_ids[i]);
            cr_assert(at(dict, own));
            for (const cJSON *v = dict->child; v; v = v->next) {
                int rank = at(v, "rank")->valueint, greater = 0;
                for (int t = 0; t < N_VOCAB; t++)
                    greater += before[t] > before[atoi(v->string)];
                cr_expect_eq(rank, greater + 1);
                cr_expect_float_eq(at(v, "logprob")->valuedouble, logprob_of(before, atoi(v->string)), 1e-5);
                cr_assert(cJSON_IsString(at(v, "decoded_token")));
                ranks[MIN(rank, 4)] = true;
            }
            cr_assert(ranks[1] && ranks[2] && ranks[3], "token %d", i);
        }
    }
    const cJSON *list = at(at(at(chat, "response"), "body"), "prompt_logprobs");
    cr_assert_eq(cJSON_GetArraySize(list), usage_of(chat, "prompt_tokens"));
    cr_assert_eq(cJSON_GetArraySize(cJSON_GetArrayItem(list, 1)), 1);
    cJSON_Delete(row);
    cJSON_Delete(chat);
    free(logits);
}

// Rows that begin alike, of which some want the log-probabilities of all of it, and some share it.
static void write_scored_rows(const char *path, int n)
{
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < n; i++) {
        fprintf(f, "{\"custom_id\":\"%d\",\"prompt\":\"", i);
        for (int j = 0; j < 40 + i % 5 * 20; j++)
            fprintf(f, "same%d ", j);
        fprintf(f, "end %d\",\"max_tokens\":%d%s%s%s}\n", i, i % 4 * 3,
                i % 3 == 1 ? ",\"echo\":true,\"logprobs\":2" : "", i % 3 == 2 ? ",\"prompt_logprobs\":1" : "",
                i % 5 ? "" : ",\"n\":3");
    }
    cr_assert_eq(fclose(f), 0);
}

Test(batch_evals, log_probabilities_are_the_same_bytes_whatever_ran_beside)
{
    static const char *const flags[] = {"-np 1 -t 1", "-np 8 -t 2", "-np 3 -ub 8", "-np 8 -ub 512 --kv-memory 1M",
                                        "-np 2 -ub 2"};
    write_scored_rows("in.jsonl", 24);
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        cr_assert_eq(shell("rm -f out out.*; $Q batch in.jsonl -o out %s", flags[i]), 0, "%s", flags[i]);
        if (!i)
            cr_assert_eq(shell("cp out first"), 0);
        cr_assert(same_files("first", "out"), "%s", flags[i]);
    }
}

// --- the ends of answers ---

// The ids of a greedy answer of n tokens.
static void greedy_ids(int *id, int n)
{
    char line[200];
    snprintf(line, sizeof line,
             "{\"prompt\":[5,6,7],\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true,\"return_token_ids\":true}\n",
             n);
    write_text("greedy.jsonl", line);
    cr_assert_eq(shell("$Q batch greedy.jsonl -o greedy"), 0);
    cJSON *row = row_of("greedy", 1);
    for (int i = 0; i < n; i++)
        id[i] = (int)number_at(at(choice_of(row, 0), "token_ids"), i);
    cJSON_Delete(row);
}

static int first_of(const int *id, int token)
{
    int i = 0;
    while (id[i] != token)
        i++;
    return i;
}

Test(batch_evals, an_answer_ends_at_a_stop_token_that_is_not_part_of_it)
{
    int id[12];
    char lines[1024];
    greedy_ids(id, 12);
    int last = first_of(id, id[8]);
    snprintf(lines, sizeof lines,
             "{\"prompt\":[5,6,7],\"max_tokens\":12,\"temperature\":0,\"ignore_eos\":true,\"return_token_ids\":true,"
             "\"stop_token_ids\":[599,%d]}\n{\"prompt\":[5],\"stop_token_ids\":[600]}\n",
             id[last]);
    write_text("in", lines);
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 1);
    cJSON *row = row_of("out", 1);
    cr_assert_eq(cJSON_GetArraySize(at(choice_of(row, 0), "token_ids")), last);
    cr_assert_str_eq(string_at(choice_of(row, 0), "finish_reason"), "stop");
    cr_assert_eq(at(choice_of(row, 0), "stop_reason")->valueint, id[last]);
    cr_assert_eq(usage_of(row, "completion_tokens"), last);
    expect_error("out", 2, "invalid_request", "stop_token_ids: 600");
    cJSON_Delete(row);
}

Test(batch_evals, nothing_ends_an_answer_before_its_least_length)
{
    // token 2 ends an answer, and its bias makes it the most likely one everywhere
    write_text("in", "{\"prompt\":[5,6,7],\"max_tokens\":20,\"min_tokens\":7,\"logit_bias\":{\"2\":100}}\n"
                     "{\"prompt\":[5,6,7],\"max_tokens\":20,\"min_tokens\":7,\"logit_bias\":{\"300\":100},\"stop_token_"
                     "ids\":[300]}\n"
                     "{\"prompt\":[5,6,7],\"max_tokens\":9,\"min_tokens\":7,\"logit_bias\":{\"300\":100},"
                     "\"ignore_eos\":true,\"return_token_ids\":true}\n"
                     "{\"prompt\":[5],\"max_tokens\":2,\"min_tokens\":3}\n");
    cr_assert_eq(shell("$Q batch in -o out --format jsonl --temp 0"), 1);
    for (int i = 1; i <= 2; i++) {
        cJSON *row = row_of("out", i);
        cr_assert_eq(usage_of(row, "completion_tokens"), 7, "row %d", i);
        cr_assert_str_eq(string_at(choice_of(row, 0), "finish_reason"), "stop");
        cJSON_Delete(row);
    }
    expect_error("out", 4, "invalid_request", "min_tokens: 3, where max_tokens is 2");
    // the text of token 300 stops an answer, but only behind the first tokens
    cJSON *row = row_of("out", 3);
    char *piece = strdup(string_at(choice_of(row, 0), "text")), line[400];
    size_t n = strlen(piece) / 9;
    cr_assert(n > 0 && strlen(piece) == 9 * n && strchr("abcdefghijklmnopqrstuvwxyz ", piece[0]), "%s", piece);
    snprintf(line, sizeof line,
             "{\"prompt\":[5,6,7],\"max_tokens\":9,\"min_tokens\":7,\"logit_bias\":{\"300\":100},\"stop\":\"%.*s\"}\n",
             (int)n, piece);
    write_text("in2.jsonl", line);
    cr_assert_eq(shell("$Q batch in2.jsonl -o out2 --temp 0"), 0);
    cJSON *stopped = row_of("out2", 1);
    cr_assert_eq(strlen(string_at(choice_of(stopped, 0), "text")), 7 * n);
    cr_assert_str_eq(string_at(choice_of(stopped, 0), "finish_reason"), "stop");
    free(piece);
    cJSON_Delete(row);
    cJSON_Delete(stopped);
}

// --- forms of answers ---

Test(batch_evals, answers_have_the_forms_of_other_engines)
{
    static const struct {
        const char *fields, *answer; // answer NULL: the row fails with the error
        const char *error;
    } cases[] = {
        {"\"grammar\":\"root ::= \\\"ab\\\" [c]\"", "abc", NULL},
        {"\"guided_grammar\":\"root ::= \\\"x\\\"{3}\"", "xxx", NULL},
        {"\"guided_regex\":\"a{4}\"", "aaaa", NULL},
        {"\"guided_choice\":[\"one\"]", "one", NULL},
        {"\"structured_outputs\":{\"choice\":[\"one\\\"\"]}", "one\"", NULL},
        {"\"structured_outputs\":{\"regex\":\"^[b]c$\",\"json\":null}", "bc", NULL},
        {"\"structured_outputs\":{\"grammar\":\"root ::= \\\"y\\\"\"}", "y", NULL},
        {"\"structured_outputs\":{\"json_object\":false},\"guided_choice\":[\"z\"]", "z", NULL},
        {"\"guided_regex\":\"(a\"", NULL, "pattern: column 1"},
        {"\"guided_regex\":7", NULL, "guided_regex: integer where a string is wanted"},
        {"\"grammar\":\"root := x\"", NULL, "grammar: line 1"},
        {"\"grammar\":\"\"", NULL, "grammar: an empty string"},
        {"\"guided_choice\":[]", NULL, "guided_choice: an empty list"},
        {"\"guided_choice\":[1]", NULL, "guided_choice: integer where a string is wanted"},
        {"\"guided_choice\":[\"a\"],\"guided_regex\":\"a\"", NULL, "the body asks for another form"},
        {"\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"b\"]}", NULL,
         "structured_outputs.choice: the body asks for another form"},
        {"\"structured_outputs\":{\"disable_any_whitespace\":true}", NULL,
         "structured_outputs.disable_any_whitespace: not supported"},
    };
    FILE *f = fopen("in.jsonl", "w");
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        fprintf(f, "{\"prompt\":\"x\",\"max_tokens\":60,%s}\n", cases[i].fields);
    fprintf(f, "{\"prompt\":\"x\",\"max_tokens\":900,\"structured_outputs\":{\"json_object\":true}}\n");
    fclose(f);
    cr_assert_eq(shell("$Q batch in.jsonl -o out"), 1);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cJSON *row = row_of("out", (int)i + 1);
        if (cases[i].answer)
            cr_expect_str_eq(string_at(choice_of(row, 0), "text"), cases[i].answer, "%s", cases[i].fields);
        else
            cr_expect(strstr(string_at(at(row, "error"), "message"), cases[i].error), "%s: %s", cases[i].fields,
                      string_at(at(row, "error"), "message"));
        cJSON_Delete(row);
    }
    cJSON *row = row_of("out", COUNT_OF(cases) + 1), *object = cJSON_Parse(string_at(choice_of(row, 0), "text"));
    cr_expect(cJSON_IsObject(object));
    cJSON_Delete(object);
    cJSON_Delete(row);
}

static void expect_answer(const char *path, int i, const char *what)
{
    cJSON *row = row_of(path, i);
    cr_expect(cJSON_IsNull(at(row, "error")), "%s", what);
    cJSON_Delete(row);
}

// What a body asks of an answer that has it anyway, as clients of vLLM send it; error NULL: it is taken.
static const struct {
    const char *fields, *error;
} fixed[] = {
    {"\"skip_special_tokens\":true,\"spaces_between_special_tokens\":true", NULL},
    {"\"spaces_between_special_tokens\":false,\"include_stop_str_in_output\":false", NULL},
    {"\"add_special_tokens\":true,\"use_beam_search\":false,\"logits_processors\":null", NULL},
    {"\"logits_processors\":[],\"best_of\":1", NULL},
    {"\"n\":2,\"best_of\":2", NULL},
    {"\"n\":2,\"best_of\":1", NULL},
    {"\"skip_special_tokens\":false", "skip_special_tokens: the text of an answer has no special tokens"},
    {"\"include_stop_str_in_output\":true", "include_stop_str_in_output: an answer ends before"},
    {"\"add_special_tokens\":false", "add_special_tokens: a prompt begins as the tokenizer says"},
    {"\"use_beam_search\":true", "use_beam_search: answers are sampled"},
    {"\"stream\":true", "stream: a batch does not stream"},
    {"\"logits_processors\":[\"a\"]", "logits_processors: a row cannot bring code"},
    {"\"best_of\":3", "best_of: 3, where n is 1"},
    {"\"spaces_between_special_tokens\":1", "spaces_between_special_tokens: integer where true or false is wanted"},
};

Test(batch_evals, what_holds_anyway_may_be_asked_for)
{
    enum { N = COUNT_OF(fixed) };
    FILE *f = fopen("in.jsonl", "w");
    for (int i = 0; i < 2 * N; i++)
        fprintf(f, "{%s,\"max_tokens\":1,%s}\n",
                i < N ? "\"prompt\":\"x\"" : "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]",
                fixed[i % N].fields);
    fclose(f);
    cr_assert_eq(shell("$Q batch in.jsonl -o out --chat-template chatml"), 1);
    for (int i = 0; i < 2 * N; i++) {
        const bool free_of_it = i >= N && strstr(fixed[i % N].fields, "add_special_tokens\":false"); // in chats
        if (fixed[i % N].error && !free_of_it)
            expect_error("out", i + 1, "invalid_request", fixed[i % N].error);
        else
            expect_answer("out", i + 1, fixed[i % N].fields);
    }
    cr_assert_eq(shell("grep -v -e best_of -e ':1}' in.jsonl >few.jsonl; $Q batch few.jsonl -o few --chat-template "
                       "chatml --ignore-unknown"),
                 0);
}

// Null is what clients write for a field that they do not set.
Test(batch_evals, null_is_as_no_field)
{
    static const char *const fields[] = {"user",
                                         "metadata",
                                         "stream",
                                         "stream_options",
                                         "temperature",
                                         "top_p",
                                         "top_k",
                                         "min_p",
                                         "frequency_penalty",
                                         "presence_penalty",
                                         "repeat_penalty",
                                         "repetition_penalty",
                                         "max_completion_tokens",
                                         "min_tokens",
                                         "stop",
                                         "stop_token_ids",
                                         "seed",
                                         "n",
                                         "best_of",
                                         "use_beam_search",
                                         "logits_processors",
                                         "skip_special_tokens",
                                         "spaces_between_special_tokens",
                                         "include_stop_str_in_output",
                                         "add_special_tokens",
                                         "echo",
                                         "suffix",
                                         "tools",
                                         "tool_choice",
                                         "parallel_tool_calls",
                                         "reasoning_effort",
                                         "chat_template_kwargs",
                                         "logprobs",
                                         "top_logprobs",
                                         "prompt_logprobs",
                                         "logit_bias",
                                         "response_format",
                                         "guided_json",
                                         "guided_grammar",
                                         "guided_regex",
                                         "guided_choice",
                                         "grammar",
                                         "structured_outputs",
                                         "add_generation_prompt",
                                         "continue_final_message",
                                         "ignore_eos",
                                         "return_token_ids",
                                         "model",
                                         "what_nobody_knows"};
    FILE *f = fopen("in.jsonl", "w");
    for (int i = 0; i < 4; i++) {
        fprintf(f, "{\"custom_id\":\"%d\",\"url\":\"/v1/%s\",\"body\":{\"max_tokens\":3", i,
                i < 2 ? "completions" : "chat/completions");
        for (size_t k = 0; i % 2 && k < COUNT_OF(fields); k++)
            fprintf(f, ",\"%s\":null", fields[k]);
        fputs(i < 2 ? ",\"prompt\":\"x\",\"messages\":null}}\n"
                    : ",\"prompt\":null,\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":null}]}}\n",
              f);
    }
    fclose(f);
    cr_assert_eq(shell("$Q batch in.jsonl -o out --chat-template chatml --temp 0"), 0);
    for (int i = 1; i < 4; i += 2) {
        cJSON *with = row_of("out", i), *without = row_of("out", i + 1);
        cr_assert(cJSON_Compare(at(choice_of(with, 0), i == 1 ? "text" : "message"),
                                at(choice_of(without, 0), i == 1 ? "text" : "message"), true));
        cJSON_Delete(with);
        cJSON_Delete(without);
    }
}

// A template would write an empty turn of it, and the model would answer that.
Test(batch_evals, a_message_without_content_fails)
{
    static const struct {
        const char *messages, *error; // error NULL: answered
    } cases[] = {
        {"{\"role\":\"user\",\"content\":null}", "messages[0]: no content"},
        {"{\"role\":\"user\"}", "messages[0]: no content"},
        {"{\"role\":\"user\",\"content\":[]}", "messages[0]: no content"},
        {"{\"role\":\"system\",\"content\":null},{\"role\":\"user\",\"content\":\"a\"}", "messages[0]: no content"},
        {"{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"developer\"}", "messages[1]: no content"},
        {"{\"role\":\"user\",\"content\":\"\"}", NULL},
        {"{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":null},"
         "{\"role\":\"user\",\"content\":\"b\"}",
         NULL},
    };
    FILE *f = fopen("in.jsonl", "w");
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        fprintf(f, "{\"messages\":[%s],\"max_tokens\":1}\n", cases[i].messages);
    fclose(f);
    cr_assert_eq(shell("$Q batch in.jsonl -o out --chat-template chatml"), 1);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (cases[i].error)
            expect_error("out", (int)i + 1, "invalid_request", cases[i].error);
        else
            expect_answer("out", (int)i + 1, cases[i].messages);
    }
}

// --- tools ---

// Templates whose calls have a form of their own, and one without.
#define SHOWS_TOOLS                                                                                                    \
    "{% for t in tools %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
static const char *const tools_templates[] = {
    SHOWS_TOOLS "{# <think> </think> #}",
    SHOWS_TOOLS "{# <tool_call>{\"name\"} <think> </think> #}",
    SHOWS_TOOLS "{# [TOOL_CALLS] #}",
    SHOWS_TOOLS "{# python_tag \"parameters\": #}",
};

#define TOOL(name, value)                                                                                              \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name                                                            \
    "\",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#/$defs/x" name                          \
    "\"}},\"required\":[\"x\"],\"$defs\":{\"x" name "\":{\"enum\":[" value "]}}}}}"
#define TOOL_ROW(fields)                                                                                               \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":300,\"tools\":[" TOOL("f", "7") "," TOOL(    \
        "g", "8,9") "]," fields "}\n"

static void expect_call(const cJSON *call, const char *name)
{
    const cJSON *function = at(call, "function");
    if (name)
        cr_assert_str_eq(string_at(function, "name"), name);
    cJSON *arguments = cJSON_Parse(string_at(function, "arguments"));
    int x = at(arguments, "x")->valueint;
    cr_assert(strcmp(string_at(function, "name"), "f") ? x == 8 || x == 9 : x == 7, "%d", x);
    cr_assert_eq(cJSON_GetArraySize(arguments), 1);
    cr_assert(string_at(call, "id"));
    cr_assert_str_eq(string_at(call, "type"), "function");
    cJSON_Delete(arguments);
}

static void expect_calls(const char *out)
{
    cJSON *named = row_of(out, 1), *any = row_of(out, 2), *many = row_of(out, 4);
    const cJSON *message = at(choice_of(named, 0), "message");
    cr_assert(cJSON_IsNull(at(message, "content")));
    cr_assert_eq(cJSON_GetArraySize(at(message, "tool_calls")), 1);
    expect_call(cJSON_GetArrayItem(at(message, "tool_calls"), 0), "g");
    cr_assert_str_eq(string_at(choice_of(named, 0), "finish_reason"), "stop");
    for (int i = 0; i < 4; i++) {
        message = at(choice_of(any, i), "message");
        cr_assert(cJSON_IsNull(at(message, "content")));
        cr_assert_eq(cJSON_GetArraySize(at(message, "tool_calls")), 1);
        expect_call(cJSON_GetArrayItem(at(message, "tool_calls"), 0), NULL);
        cr_assert_str_eq(string_at(choice_of(any, i), "finish_reason"), "tool_calls");
    }
    expect_error(out, 3, "schema_unmet", "cut before it had the form");
    const cJSON *calls = at(at(choice_of(many, 0), "message"), "tool_calls"), *call;
    cr_assert_geq(cJSON_GetArraySize(calls), 1);
    cJSON_ArrayForEach(call, calls) expect_call(call, NULL);
    cJSON_Delete(named);
    cJSON_Delete(any);
    cJSON_Delete(many);
}

Test(batch_evals, a_tool_that_must_be_called_is_called_in_the_form_of_the_template)
{
    write_text("in.jsonl",
               TOOL_ROW("\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}")
                   TOOL_ROW("\"tool_choice\":\"required\",\"parallel_tool_calls\":false,\"n\":4")
                       TOOL_ROW("\"tool_choice\":\"required\",\"parallel_tool_calls\":false,\"max_tokens\":4")
                           TOOL_ROW("\"tool_choice\":\"required\",\"max_tokens\":900"));
    for (size_t i = 0; i < COUNT_OF(tools_templates); i++) {
        write_text("t.jinja", tools_templates[i]);
        cr_assert_eq(shell("rm -f out*; $Q batch in.jsonl -o out --chat-template-file t.jinja --think-budget 3"), 1);
        expect_calls("out");
    }
}

Test(batch_evals, a_choice_of_tools_that_cannot_be_kept_to_fails)
{
    static const struct {
        const char *line, *error;
    } cases[] = {
        {TOOL_ROW("\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"h\"}}"),
         "no tool has the name \"h\""},
        {TOOL_ROW("\"tool_choice\":\"some\""), "tool_choice: \"some\""},
        {TOOL_ROW("\"tool_choice\":{\"type\":\"allowed_tools\"}"), "tool_choice: an object other than"},
        {TOOL_ROW("\"tool_choice\":\"required\",\"guided_regex\":\"a\""), "the body asks for another form"},
        {TOOL_ROW("\"parallel_tool_calls\":1"), "parallel_tool_calls"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tool_choice\":\"required\"}\n",
         "tool_choice: there are no tools"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tool_choice\":\"required\",\"tools\":[{\"type\":"
         "\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"$ref\":\"#\"}}}}}]}\n",
         "a reference to #,"},
    };
    FILE *f = fopen("in.jsonl", "w");
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        fputs(cases[i].line, f);
    fclose(f);
    write_text("t.jinja", tools_templates[0]);
    cr_assert_eq(shell("$Q batch in.jsonl -o out --chat-template-file t.jinja"), 1);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect_error("out", (int)i + 1, i + 1 < COUNT_OF(cases) ? "invalid_request" : "invalid_schema", cases[i].error);
}

// --- messages that are continued ---

#define CONTINUED(content, fields)                                                                                                \
    "{\"custom_id\":\"1\",\"messages\":[{\"role\":\"user\",\"content\":\"a end b\"},{\"role\":\"assistant\",\"content\":" content \
    "}],\"max_tokens\":6,\"continue_final_message\":true" fields "}\n"

Test(batch_evals, the_answer_continues_the_last_message)
{
    static const struct {
        const char *content, *prompt; // the text of the same prompt
    } cases[] = {
        {"\"b so\"", "[user]a end b<end>[assistant]b so"},
        {"\"end\"", "[user]a end b<end>[assistant]end"},
        {"\"so \"", "[user]a end b<end>[assistant]so "},
        {"\" so\"", "[user]a end b<end>[assistant] so"},
        {"[{\"type\":\"text\",\"text\":\"b so\"}]", "[user]a end b<end>[assistant]b so"},
    };
    write_text("t.jinja", "{% for m in messages %}[{{ m.role }}]{{ m.content }}<end>{% endfor %}"
                          "{% if add_generation_prompt %}[assistant]{% endif %}");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char line[600];
        snprintf(line, sizeof line, CONTINUED("%s", ",\"add_generation_prompt\":false"), cases[i].content);
        write_text("in.jsonl", line);
        snprintf(line, sizeof line, "{\"custom_id\":\"1\",\"prompt\":\"%s\",\"max_tokens\":6}\n", cases[i].prompt);
        write_text("plain.jsonl", line);
        cr_assert_eq(shell("rm -f out* text*; $Q batch in.jsonl -o out --chat-template-file t.jinja"), 0, "case %zu",
                     i);
        cr_assert_eq(shell("$Q batch plain.jsonl -o text"), 0);
        cJSON *chat = row_of("out", 1), *text = row_of("text", 1);
        cr_expect_eq(usage_of(chat, "prompt_tokens"), usage_of(text, "prompt_tokens"), "case %zu", i);
        cr_expect_str_eq(string_at(at(choice_of(chat, 0), "message"), "content"),
                         string_at(choice_of(text, 0), "text"));
        cJSON_Delete(chat);
        cJSON_Delete(text);
    }
}

Test(batch_evals, a_message_that_cannot_be_continued_fails)
{
    write_text("t.jinja", "{% for m in messages %}[{{ m.role }}]{{ m.content | replace('bad', 'good') }}{% endfor %}");
    write_text("in.jsonl",
               CONTINUED("\"b\"", ",\"add_generation_prompt\":true") CONTINUED("\"  \"", "")
                   CONTINUED("\"so bad\"", "") "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"continue_final_"
                                               "message\":true}\n" CONTINUED("\"b\",\"tool_calls\":[{\"a\":1}]", ""));
    static const struct {
        const char *code, *text;
    } errors[] = {{"invalid_request", "add_generation_prompt is true, too"},
                  {"template_error", "no text that could be continued"},
                  {"template_error", ""},
                  {"invalid_request", "the last message is not the assistant's"},
                  {"invalid_request", "the last message calls tools"}};
    cr_assert_eq(
        shell("sed -i 's/\"custom_id\":\"1\",//' in.jsonl; $Q batch in.jsonl -o out --chat-template-file t.jinja"), 1);
    for (size_t i = 0; i < COUNT_OF(errors); i++)
        expect_error("out", (int)i + 1, errors[i].code, errors[i].text);
}

// A thought that the request has begun is gone on with, and is no content.
Test(batch_evals, a_thought_that_was_begun_is_continued)
{
    write_text("t.jinja", "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{# <think> </think> #}");
    write_text("in.jsonl", CONTINUED("\"<think>well\"", ",\"guided_choice\":[\"yes\"]"));
    cr_assert_eq(shell("$Q batch in.jsonl -o out --chat-template-file t.jinja --think-budget 2 -n 60"), 1);
    expect_error("out", 1, "schema_unmet", "cut before");
    cr_assert_eq(shell("sed -i 's/:6,/:60,/' in.jsonl; rm out*; $Q batch in.jsonl -o out --chat-template-file t.jinja "
                       "--think-budget 2"),
                 0);
    cJSON *row = row_of("out", 1);
    const cJSON *message = at(choice_of(row, 0), "message");
    cr_assert_str_eq(string_at(message, "content"), "yes");
    cr_assert(at(message, "reasoning_content"));
    cJSON_Delete(row);
}

// The stop string of the plain form ends the turns of a chat, and texts to complete go on behind it.
Test(batch_evals, a_turn_ends_before_the_next_and_a_text_does_not)
{
    write_text("in.jsonl", "{\"prompt\":\"so\",\"grammar\":\"root ::= \\\"a\\\\nUser: b\\\"\"}\n"
                           "{\"messages\":[{\"role\":\"user\",\"content\":\"so\"}],"
                           "\"grammar\":\"root ::= \\\"a\\\\nUser: b\\\"\"}\n");
    cr_assert_eq(shell("$Q batch in.jsonl -o out --chat-template plain"), 1);
    cJSON *text = row_of("out", 1);
    cr_expect_str_eq(string_at(choice_of(text, 0), "text"), "a\nUser: b");
    expect_error("out", 2, "schema_unmet", "cut before it had the form");
    cJSON_Delete(text);
}
