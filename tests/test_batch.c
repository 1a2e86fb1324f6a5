// Tests quern batch as a program: its output for each input, the order, the exit status, and how it resumes.
#include "tests/batch_rows.h"

#include <signal.h>
#include <time.h>

TestSuite(batch, .init = rig_open, .fini = rig_close, .timeout = 120);

// --- forms of input ---

Test(batch, a_completion_has_the_shape_that_clients_of_openai_read)
{
    write_text("in",
               "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"model\":\"x\","
               "\"prompt\":[\"one two\",\"three\"],\"max_tokens\":4,\"n\":2,\"ignore_eos\":true,\"logprobs\":3}}\n");
    cr_assert_eq(shell("$Q batch in -o out"), 0);
    cJSON *row = row_of("out", 1);
    cr_assert_str_eq(cJSON_GetStringValue(at(row, "id")), "batch_req_1");
    cr_assert_str_eq(cJSON_GetStringValue(at(row, "custom_id")), "a");
    cr_assert(cJSON_IsNull(at(row, "error")));
    const cJSON *response = at(row, "response"), *body = at(response, "body"), *usage = at(body, "usage");
    cr_assert_eq(at(response, "status_code")->valueint, 200);
    cr_assert(at(response, "request_id"));
    cr_assert_str_eq(cJSON_GetStringValue(at(body, "object")), "text_completion");
    cr_assert_str_eq(cJSON_GetStringValue(at(body, "model")), "m");
    cr_assert_eq(cJSON_GetArraySize(at(body, "choices")), 4);
    cr_assert_eq(at(usage, "completion_tokens")->valueint, 16);
    cr_assert_eq(at(usage, "total_tokens")->valueint, at(usage, "prompt_tokens")->valueint + 16);
    for (int i = 0; i < 4; i++) {
        const cJSON *choice = choice_of(row, i), *logprobs = at(choice, "logprobs");
        cr_assert_eq(at(choice, "index")->valueint, i);
        cr_assert(cJSON_IsString(at(choice, "text")));
        cr_assert_str_eq(cJSON_GetStringValue(at(choice, "finish_reason")), "length");
        cr_assert_eq(cJSON_GetArraySize(at(logprobs, "tokens")), 4);
        cr_assert_eq(cJSON_GetArraySize(at(logprobs, "token_logprobs")), 4);
        cr_assert_leq(cJSON_GetArrayItem(at(logprobs, "token_logprobs"), 0)->valuedouble, 0);
    }
    cJSON_Delete(row);
}

// Ids that were given back are the answer: with some of them behind the prompt, the rest follows.
Test(batch, token_ids_of_an_answer_can_be_gone_on_with)
{
    write_text("in", "{\"prompt\":[5,6,7],\"max_tokens\":4,\"temperature\":0,\"ignore_eos\":true,"
                     "\"return_token_ids\":true}\n{\"prompt\":[5,6,7],\"max_tokens\":1}\n");
    cr_assert_eq(shell("$Q batch in -o out"), 0);
    cJSON *row = row_of("out", 1), *silent = row_of("out", 2);
    cr_assert_null(at(choice_of(silent, 0), "token_ids"));
    const cJSON *ids = at(choice_of(row, 0), "token_ids");
    cr_assert_eq(cJSON_GetArraySize(ids), 4);
    int id[4];
    for (int i = 0; i < 4; i++)
        id[i] = cJSON_GetArrayItem(ids, i)->valueint;
    char again[200];
    snprintf(again, sizeof again,
             "{\"prompt\":[5,6,7,%d,%d],\"max_tokens\":2,\"temperature\":0,\"ignore_eos\":true,"
             "\"return_token_ids\":true}\n",
             id[0], id[1]);
    write_text("in2", again);
    cr_assert_eq(shell("$Q batch in2 -o out2"), 0);
    cJSON *rest = row_of("out2", 1);
    const cJSON *last = at(choice_of(rest, 0), "token_ids");
    cr_assert_eq(cJSON_GetArraySize(last), 2);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(cJSON_GetArrayItem(last, i)->valueint, id[2 + i]);
    cJSON_Delete(row);
    cJSON_Delete(silent);
    cJSON_Delete(rest);
}

Test(batch, lines_objects_and_columns_become_prompts_by_a_template)
{
    static const struct {
        const char *name, *input, *flags;
        int n_rows;
        const char *id; // of the last row
    } cases[] = {
        {"in.txt", "one\n\n  \ntwo\r\nthree", "", 3, "row-3"},
        {"in.txt", "one\ntwo\n", "--template 'Say: {{text}}'", 2, "row-2"},
        {"in.jsonl", "{\"id\":\"x\",\"q\":\"why\",\"n\":[1,2]}\n", "--template '{{q}} {{ n }}?'", 1, "x"},
        {"in.jsonl", "{\"id\":7,\"prompt\":\"why\",\"max_tokens\":2}\n", "", 1, "7"},
        {"in.jsonl", "{\"text\":\"why\"}\n", "", 1, "row-1"},
        {"in.csv", "custom_id,text\na,\"one, \"\"two\"\"\nthree\"\nb,four\n", "", 2, "b"},
        {"in.csv", "\xef\xbb\xbfq,id\r\n\"x\",k\r\n", "--template '{{q}}'", 1, "k"},
        {"in.csv", "id,text\n1,plain one\n2,a 5\" pipe\n3,\"x\" y\"z\n4,plain\n", "--template '{{text}}'", 4, "4"},
        {"in.tsv", "q\tr\na \"b\tc\n", "--template '{{q}}-{{r}}'", 1, "row-1"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        write_text(cases[i].name, cases[i].input);
        cr_assert_eq(shell("rm -f out*; $Q batch %s -o out -n 3 %s", cases[i].name, cases[i].flags), 0, "case %zu", i);
        cr_assert_eq(count_lines("out"), cases[i].n_rows, "case %zu", i);
        cJSON *row = row_of("out", cases[i].n_rows);
        cr_assert_str_eq(cJSON_GetStringValue(at(row, "custom_id")), cases[i].id, "case %zu", i);
        cJSON_Delete(row);
    }
}

// As Python's csv module reads them.
Test(batch, quotes_within_a_field_of_csv_are_signs_like_others)
{
    write_text("a.jsonl", "{\"custom_id\":\"1\",\"prompt\":\"a 5\\\" pipe\"}\n"
                          "{\"custom_id\":\"2\",\"prompt\":\"x y\\\"z\"}\n"
                          "{\"custom_id\":\"3\",\"prompt\":\"\\\"\\nq, \"}\n");
    write_text("b.csv", "custom_id,text\n1,a 5\" pipe\n2,\"x\" y\"z\n3,\"\"\"\nq, \"\n");
    cr_assert_eq(shell("$Q batch a.jsonl -o a -n 5"), 0);
    cr_assert_eq(shell("$Q batch b.csv -o b -n 5 --template '{{text}}'"), 0);
    cr_assert(same_files("a", "b"));
}

Test(batch, variables_of_the_flags_stand_beside_those_of_a_row)
{
    write_text("t.jinja", "{{ messages[0].content }}{{ one }}{{ two }}{{ reasoning_effort }}");
    write_text("in.jsonl", "{\"custom_id\":\"1\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":4,"
                           "\"reasoning_effort\":\"d\",\"chat_template_kwargs\":{\"two\":\"c\"}}\n");
    write_text("plain.jsonl", "{\"custom_id\":\"1\",\"prompt\":\"abcd\",\"max_tokens\":4}\n");
    cr_assert_eq(
        shell(
            "$Q batch in.jsonl -o o1 --chat-template-file t.jinja --chat-template-kwargs '{\"one\":\"b\",\"two\":\"x\"}'"),
        0);
    cr_assert_eq(shell("$Q batch plain.jsonl -o o2"), 0);
    cJSON *chat = row_of("o1", 1), *text = row_of("o2", 1);
    cr_expect_str_eq(cJSON_GetStringValue(at(at(choice_of(chat, 0), "message"), "content")),
                     cJSON_GetStringValue(at(choice_of(text, 0), "text")));
    cJSON_Delete(chat);
    cJSON_Delete(text);
}

Test(batch, an_object_may_be_asked_for_with_its_schema)
{
    write_text(
        "in.jsonl",
        "{\"custom_id\":\"1\",\"prompt\":\"x\",\"max_tokens\":300,\"response_format\":{\"type\":\"json_object\","
        "\"schema\":{\"properties\":{\"n\":{\"enum\":[4,5]}},\"required\":[\"n\"],\"x\":1,\"nullable\":true}}}\n");
    cr_assert_eq(shell("$Q batch in.jsonl -o out"), 0);
    expect_says("err", "passed over: 'x', 'nullable'");
    cJSON *row = row_of("out", 1), *answer = cJSON_Parse(cJSON_GetStringValue(at(choice_of(row, 0), "text")));
    cr_assert(at(answer, "n")->valueint == 4 || at(answer, "n")->valueint == 5);
    cJSON_Delete(answer);
    cJSON_Delete(row);
}

Test(batch, fields_of_other_engines_are_taken_or_passed_over)
{
    write_text("t.jinja",
               "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}!{% endif %}");
    write_text(
        "in.jsonl",
        "{\"custom_id\":\"1\",\"prompt\":\"x\",\"max_tokens\":300,\"guided_json\":{\"enum\":[7]}}\n"
        "{\"custom_id\":\"2\",\"prompt\":\"x\",\"max_tokens\":300,\"guided_json\":\"{\\\"enum\\\":[7]}\"}\n"
        "{\"custom_id\":\"3\",\"prompt\":\"x\",\"max_tokens\":300,\"structured_outputs\":{\"json\":{\"enum\":[7]},"
        "\"regex\":null}}\n"
        "{\"custom_id\":\"4\",\"prompt\":\"x\",\"structured_outputs\":{\"structural_tag\":\"a\"}}\n"
        "{\"custom_id\":\"5\",\"prompt\":\"x\",\"max_tokens\":1,\"min_frob\":2}\n"
        "{\"custom_id\":\"6\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1}\n"
        "{\"custom_id\":\"7\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1,"
        "\"add_generation_prompt\":false}\n");
    cr_assert_eq(shell("$Q batch in.jsonl -o out --chat-template-file t.jinja"), 1);
    for (int i = 1; i <= 3; i++) {
        cJSON *row = row_of("out", i);
        cr_assert_str_eq(cJSON_GetStringValue(at(choice_of(row, 0), "text")), "7", "row %d", i);
        cJSON_Delete(row);
    }
    expect_error("out", 4, "invalid_request", "structured_outputs.structural_tag: not supported");
    expect_error("out", 5, "invalid_request", "min_frob");
    int n_prompt[2];
    for (int i = 0; i < 2; i++) {
        cJSON *row = row_of("out", 6 + i);
        n_prompt[i] = at(at(at(at(row, "response"), "body"), "usage"), "prompt_tokens")->valueint;
        cJSON_Delete(row);
    }
    cr_expect_eq(n_prompt[0], n_prompt[1] + 1, "%d and %d", n_prompt[0], n_prompt[1]);
    cr_assert_eq(shell("$Q batch in.jsonl -o out2 --chat-template-file t.jinja --ignore-unknown"), 1);
    expect_says("err", "1 rows failed");
}

Test(batch, a_template_writes_the_same_prompt_as_the_words_that_it_stands_for)
{
    write_text("a.jsonl", "{\"custom_id\":\"same\",\"prompt\":\"Say: one, two!\"}\n");
    write_text("b.csv", "custom_id,first,second\nsame,one,two\n");
    cr_assert_eq(shell("$Q batch a.jsonl -o a -n 9"), 0);
    cr_assert_eq(shell("$Q batch b.csv -o b -n 9 --template 'Say: {{first}}, {{second}}!'"), 0);
    cr_assert(same_files("a", "b"));
}

// The fields of a row show that a table was cut at the wrong separator.
Test(batch, a_field_that_a_template_lacks_is_named_with_those_there_are)
{
    write_text("a.csv", "title;text;label\none;two;three\n");
    write_text("b.jsonl", "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7}\n{}\n");
    cr_assert_eq(shell("$Q batch a.csv -o a --template '{{ text }}'"), 1);
    expect_error("a", 1, "invalid_request", "no field \" text \"; it has \"title;text;label\"");
    cr_assert_eq(shell("$Q batch b.jsonl -o b --template '{{text}}'"), 1);
    expect_error("b", 1, "invalid_request",
                 "no field \"text\"; it has \"a\", \"b\", \"c\", \"d\", \"e\", \"f\" and others");
    expect_error("b", 2, "invalid_request", "no field \"text\"");
    write_text("long.csv", "0123456789012345678901234567890123456789012345678901234567\xe2\x82\xac\xe2\x82\xac\nx\n");
    cr_assert_eq(shell("$Q batch long.csv -o long --template '{{text}}'"), 1);
    expect_error("long", 1, "invalid_request", "34567..\"");
}

Test(batch, every_failure_is_a_row_and_the_others_are_answered)
{
    static const struct {
        const char *line, *code, *text;
    } cases[] = {
        {"{\"custom_id\":\"ok\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"max_tokens\":1}}", NULL, NULL},
        {"{\"custom_id\":", "invalid_json", "line 2, column 14: a value expected"},
        {"[1]", "invalid_request", "line 3: array where an object is wanted"},
        {"{\"custom_id\":\"\xff\"}", "invalid_utf8", "not UTF-8"},
        {"{\"url\":\"/v1/completions\",\"body\":{}}", "invalid_request", "custom_id is missing"},
        {"{\"custom_id\":\"ok\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\"}}", "duplicate_id",
         "row 1 has it"},
        {"{\"custom_id\":\"1\",\"url\":\"/v2/x\",\"body\":{\"prompt\":\"a\"}}", "invalid_url", "/v2/x"},
        {"{\"custom_id\":\"2\",\"method\":\"GET\",\"url\":\"/v1/completions\",\"body\":{}}", "invalid_request", "POST"},
        {"{\"custom_id\":\"3\",\"url\":\"/v1/completions\",\"body\":{}}", "invalid_request", "prompt is missing"},
        {"{\"custom_id\":\"4\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"frobnicate\":1}}",
         "invalid_request", "frobnicate"},
        {"{\"custom_id\":\"5\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"temperature\":-1}}",
         "invalid_request", "temperature: -1"},
        {"{\"custom_id\":\"6\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"n\":1.5}}", "invalid_request",
         "no whole number"},
        {"{\"custom_id\":\"7\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":[600]}}", "invalid_request",
         "token 600 is not in the vocabulary"},
        {"{\"custom_id\":\"8\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"logit_bias\":{\"x\":1}}}",
         "invalid_request", "logit_bias"},
        {"{\"custom_id\":\"9\",\"url\":\"/v1/embeddings\",\"body\":{\"input\":\"a\"}}", "not_supported", "embeddings"},
        {"{\"custom_id\":\"10\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"stream\":true}}",
         "invalid_request", "stream"},
        {"{\"custom_id\":\"11\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"stop\":\"\"}}",
         "invalid_request", "stop"},
        {"{\"custom_id\":\"12\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"max_tokens\":2147483647}}",
         "invalid_request", "max_tokens: 2147483647: from 0 to 1073741824"},
        {"{\"what\":1}", "invalid_request", "neither a batch line"},
        {"{\"prompt\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", "invalid_request",
         "a body has one of prompt and messages"},
        {"{\"custom_id\":\"13\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"messages\":[]}}",
         "invalid_request", "a body has one of prompt and messages"},
        {"{\"custom_id\":\"last\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"b\",\"max_tokens\":1}}", NULL,
         NULL},
    };
    FILE *f = fopen("in.jsonl", "w");
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        fprintf(f, "%s\n", cases[i].line);
    fprintf(f, "{\"custom_id\":\"long\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"");
    for (int i = 0; i < 3000; i++)
        fputs("z ", f);
    fputs("\"}}\n", f);
    fclose(f);
    cr_assert_eq(shell("$Q batch in.jsonl -o out"), 1);
    expect_says("err", "21 rows failed");
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (cases[i].code)
            expect_error("out", (int)i + 1, cases[i].code, cases[i].text);
    expect_error("out", COUNT_OF(cases) + 1, "context_length_exceeded", "limit");
    cJSON *row = row_of("out", COUNT_OF(cases));
    cr_assert_str_eq(cJSON_GetStringValue(at(row, "custom_id")), "last");
    cr_assert(cJSON_IsNull(at(row, "error")));
    cJSON_Delete(row);
}

Test(batch, a_body_says_how_its_answer_is_made)
{
    write_text("in",
               "{\"custom_id\":\"a\",\"prompt\":\"x y\",\"max_tokens\":12,\"temperature\":0,\"ignore_eos\":true}\n"
               "{\"custom_id\":\"b\",\"prompt\":\"x y\",\"max_tokens\":12,\"temperature\":0,\"ignore_eos\":true,"
               "\"logit_bias\":{\"300\":100}}\n"
               "{\"custom_id\":\"c\",\"prompt\":\"x y\",\"max_tokens\":12,\"seed\":5,\"ignore_eos\":true}\n"
               "{\"custom_id\":\"d\",\"prompt\":\"x y\",\"max_tokens\":12,\"seed\":5,\"ignore_eos\":true}\n"
               "{\"custom_id\":\"e\",\"prompt\":\"x y\",\"max_tokens\":12,\"ignore_eos\":true}\n"
               "{\"custom_id\":\"f\",\"prompt\":\"x y\",\"max_tokens\":0}\n");
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 0);
    const char *texts[6];
    cJSON *rows[6];
    for (int i = 0; i < 6; i++) {
        rows[i] = row_of("out", i + 1);
        texts[i] = cJSON_GetStringValue(at(choice_of(rows[i], 0), "text"));
    }
    cr_assert_str_neq(texts[0], texts[1]);
    cr_assert_str_eq(texts[2], texts[3], "one seed, one text");
    cr_assert_str_neq(texts[2], texts[4], "rows without a seed have one of their own");
    cr_assert_str_eq(texts[5], "");
    for (int i = 0; i < 6; i++)
        cJSON_Delete(rows[i]);
}

static bool is_plain(char c)
{
    return c > ' ' && c < 127 && c != '"' && c != '\\';
}

// The first two characters of a text, from its seventh byte on, that JSON can hold as they are.
static const char *two_plain(const char *text)
{
    for (const char *at = text + 6; at[0] && at[1]; at++)
        if (is_plain(at[0]) && is_plain(at[1]))
            return at;
    return NULL;
}

Test(batch, stop_strings_end_an_answer_before_them)
{
    write_text("in", "{\"custom_id\":\"a\",\"prompt\":\"x y\",\"max_tokens\":40,\"seed\":5,\"ignore_eos\":true}\n");
    cr_assert_eq(shell("$Q batch in -o whole --format jsonl"), 0);
    cJSON *whole = row_of("whole", 1);
    const char *text = cJSON_GetStringValue(at(choice_of(whole, 0), "text"));
    const char *place = two_plain(text);
    cr_assert_not_null(place, "no place for a stop string in %s", text);
    char stop[3] = {place[0], place[1], 0};
    size_t before = (size_t)(strstr(text, stop) - text);
    char line[300];
    snprintf(
        line, sizeof line,
        "{\"custom_id\":\"a\",\"prompt\":\"x y\",\"max_tokens\":40,\"seed\":5,\"ignore_eos\":true,\"stop\":[\"%s\"]}\n",
        stop);
    write_text("in", line);
    cr_assert_eq(shell("$Q batch in -o cut --format jsonl"), 0);
    cJSON *cut = row_of("cut", 1);
    const char *shorter = cJSON_GetStringValue(at(choice_of(cut, 0), "text"));
    cr_assert_eq(strlen(shorter), before);
    cr_assert(!strncmp(text, shorter, before));
    cr_assert_str_eq(cJSON_GetStringValue(at(choice_of(cut, 0), "finish_reason")), "stop");
    cJSON_Delete(whole);
    cJSON_Delete(cut);
}

// --- schemas ---

Test(batch, answers_keep_the_schema_or_their_row_fails)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"yes\":{\"type\":\"boolean\"},\"n\":{\"enum\":[1,2]}},"
        "\"required\":[\"yes\",\"n\"]}";
    FILE *f = fopen("in.jsonl", "w");
    for (int i = 0; i < 12; i++)
        fprintf(
            f,
            "{\"custom_id\":\"%d\",\"prompt\":\"%d\",\"max_tokens\":%d,\"n\":2,\"ignore_eos\":true,\"response_format\":"
            "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":%s}}}\n",
            i, i, i == 5 ? 3 : 200, schema);
    fputs("{\"custom_id\":\"bad\",\"prompt\":\"x\",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
          "{\"schema\":{\"type\":\"frob\"}}}}\n",
          f);
    fclose(f);
    cr_assert_eq(shell("$Q batch in.jsonl -o out -np 5"), 1);
    for (int i = 0; i < 12; i++) {
        if (i == 5) {
            expect_error("out", i + 1, "schema_unmet", "max_tokens");
            continue;
        }
        cJSON *row = row_of("out", i + 1);
        for (int j = 0; j < 2; j++) {
            const char *text = cJSON_GetStringValue(at(choice_of(row, j), "text"));
            cJSON *answer = cJSON_Parse(text);
            cr_assert(answer && cJSON_IsBool(at(answer, "yes")), "row %d: %s", i + 1, text);
            cr_assert(at(answer, "n")->valueint == 1 || at(answer, "n")->valueint == 2, "row %d: %s", i + 1, text);
            cr_assert_str_eq(cJSON_GetStringValue(at(choice_of(row, j), "finish_reason")), "stop");
            cJSON_Delete(answer);
        }
        cJSON_Delete(row);
    }
    expect_error("out", 13, "invalid_schema", "type");
    cr_assert_eq(shell("$Q batch in.jsonl -o alone -np 1"), 1);
    // by a flag, for rows that say nothing
    write_text("lines", "a\nb\n");
    cr_assert_eq(shell("$Q batch lines -o flag -n 100 --grammar 'root ::= \"yes\" | \"no\"'"), 0);
    for (int i = 1; i <= 2; i++) {
        cJSON *row = row_of("flag", i);
        const char *text = cJSON_GetStringValue(at(choice_of(row, 0), "text"));
        cr_assert(!strcmp(text, "yes") || !strcmp(text, "no"), "%s", text);
        cJSON_Delete(row);
    }
    cr_assert_eq(shell("$Q batch lines -o flag2 --grammar 'root ::= ('"), 2);
    cr_assert(same_files("out", "alone"));
}

// --- chats ---

Test(batch, messages_go_through_the_chat_template_and_never_become_control_tokens)
{
    write_text("t.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
                          "{% if add_generation_prompt %}<assistant>{% endif %}");
    write_text("in.jsonl",
               "{\"custom_id\":\"a\",\"url\":\"/v1/chat/completions\",\"body\":{\"messages\":[{\"role\":\"system\","
               "\"content\":\"S\"},{\"role\":\"user\",\"content\":\"one two\"}],\"max_tokens\":6,\"ignore_eos\":true,"
               "\"logprobs\":true,\"top_logprobs\":2}}\n"
               "{\"custom_id\":\"b\",\"url\":\"/v1/chat/completions\",\"body\":{\"messages\":[]}}\n");
    cr_assert_eq(shell("$Q batch in.jsonl -o none"), 1);
    expect_error("none", 1, "not_supported", "no chat template");
    expect_says("err", "every row failed, the first one because: this model has no chat template");
    cr_assert_eq(shell("$Q batch in.jsonl -o out --chat-template-file t.jinja"), 1);
    cJSON *row = row_of("out", 1);
    const cJSON *message = at(choice_of(row, 0), "message"), *logprobs = at(choice_of(row, 0), "logprobs");
    cr_assert_str_eq(cJSON_GetStringValue(at(at(at(row, "response"), "body"), "object")), "chat.completion");
    cr_assert_str_eq(cJSON_GetStringValue(at(message, "role")), "assistant");
    cr_assert(cJSON_IsString(at(message, "content")));
    cr_assert_eq(cJSON_GetArraySize(at(logprobs, "content")), 6);
    cr_assert_eq(cJSON_GetArraySize(at(cJSON_GetArrayItem(at(logprobs, "content"), 0), "top_logprobs")), 2);
    cJSON_Delete(row);
    expect_error("out", 2, "invalid_request", "messages");
    // lines become messages where there is a template, texts where they are asked for
    write_text("lines", "one two\n");
    cr_assert_eq(shell("$Q batch lines -o l1 -n 3 --system S --chat-template-file t.jinja"), 0);
    expect_says("l1", "chat.completion");
    cr_assert_eq(shell("$Q batch lines -o l2 -n 3 --as completion --chat-template-file t.jinja"), 0);
    expect_says("l2", "text_completion");
}

// --- order, company, shards ---

Test(batch, the_output_is_the_same_bytes_in_any_company_and_from_stdin)
{
    write_rows("in", 60);
    cr_assert_eq(shell("$Q batch in -o out --format jsonl -np 1"), 1);
    static const char *const flags[] = {"-np 8", "-np 32 -ub 40", "-np 3 --kv-memory 100000 -t 1"};
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        cr_assert_eq(shell("rm -f other*; $Q batch in -o other --format jsonl %s", flags[i]), 1);
        cr_assert(same_files("out", "other"), "%s", flags[i]);
    }
    cr_assert_eq(shell("cat in | $Q batch - -o other2 --format jsonl"), 1);
    cr_assert(same_files("out", "other2"));
    cr_assert_eq(shell("$Q batch in -o - --format jsonl >other3"), 1);
    cr_assert(same_files("out", "other3"));
}

Test(batch, shards_merge_to_the_whole)
{
    write_rows("in", 50);
    cr_assert_eq(shell("$Q batch in -o whole --format jsonl"), 1);
    for (int i = 0; i < 3; i++)
        shell("$Q batch in -o 'part-{shard}' --format jsonl --shard %d/3", i);
    cr_assert_eq(shell("$Q batch merge all part-?-of-3 && echo"), 1, "two rows have failed");
    cr_assert(same_files("whole", "all"));
    cr_assert_eq(shell("mkdir d e; touch e/all; ln -s ../e/all d/link; $Q batch merge d/link part-?-of-3 --force"), 1);
    cr_assert(same_files("whole", "e/all"), "the file behind a link in another folder is replaced");
    cr_assert_eq(shell("$Q batch merge two part-0-of-3 part-1-of-3"), 1);
    expect_says("err", "16 rows of the input are in no part");
    cr_assert_eq(shell("$Q batch merge all part-0-of-3"), 2);
    expect_says("err", "is there already");
    cr_assert_eq(shell("mkfifo pipe; $Q batch merge --force pipe part-?-of-3"), 2);
    cr_assert_eq(system("test -p pipe"), 0, "a pipe is not replaced");
    expect_says("err", "no ordinary file");
    write_rows("in", 51);
    shell("$Q batch in -o other --format jsonl --shard 0/3");
    cr_assert_eq(shell("$Q batch merge more other part-1-of-3"), 2);
    expect_says("err", "of another input");
}

Test(batch, a_slurm_array_and_an_indexed_job_choose_the_shard)
{
    write_rows("in", 12);
    shell("$Q batch in -o a --format jsonl --shard 1/4");
    shell("SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_MIN=2 SLURM_ARRAY_TASK_COUNT=4 $Q batch in -o b --format jsonl");
    cr_assert(same_files("a", "b"));
    shell("JOB_COMPLETION_INDEX=1 $Q batch in -o c --format jsonl --shard /4");
    cr_assert(same_files("a", "c"));
    cr_assert_eq(shell("$Q batch in -o d --format jsonl --shard 4/4"), 2);
    cr_assert_eq(shell("$Q batch in -o d --format jsonl --shard x"), 2);
    cr_assert_eq(shell("$Q batch in -o d --format jsonl --shard /4"), 2);
}

// --- going on ---

Test(batch, what_is_done_is_not_computed_again_and_other_parameters_are_refused)
{
    write_rows("in", 20);
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 1);
    shell("cp out before");
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 1);
    cr_assert_eq(count_lines("err"), 1);
    expect_says("err", "quern: nothing to do: all 20 rows are in out, but 1 of them failed, --retry-errors computes");
    cr_assert(same_files("out", "before"));
    cr_assert_eq(shell("$Q batch in -o out --format jsonl --temp 0.3"), 2);
    expect_says("err", "begun with --temp (not given), now 0.3");
    cr_assert_eq(shell("$Q batch in -o out --format jsonl --temp 0.3 --force"), 1);
    cr_assert(same_files("out", "before"));
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 2, "the manifest now says 0.3");
    cr_assert_eq(shell("$Q batch in -o out --format jsonl --force"), 1);
    write_rows("in", 21);
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 2);
    expect_says("err", "begun with another input");
    cr_assert_eq(shell("$Q batch in -o out --format jsonl --force"), 1);
    cr_assert_eq(count_lines("out"), 21);
    write_text("in", "{\"prompt\":\"another\"}\n");
    cr_assert_eq(shell("$Q batch in -o out --format jsonl --force"), 2);
    cr_assert_eq(shell("rm out.manifest; $Q batch in -o out --format jsonl"), 2);
    expect_says("err", "has no manifest");
}

Test(batch, torn_tails_are_dropped_and_the_rest_is_done_again)
{
    write_rows("in", 20);
    cr_assert_eq(shell("$Q batch in -o whole --format jsonl"), 1);
    shell("cp whole out; cp whole.manifest out.manifest; truncate -s -30 out");
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 1);
    expect_says("err", "1 rows in");
    expect_says("err", "1 rows failed, 1 of them in earlier runs; see");
    cr_assert(same_files("out", "whole"));
    // a foreign line is not overwritten
    shell("(head -n 5 whole; echo mine; tail -n 3 whole) >out");
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 2);
    expect_says("err", "out: line 6 is no row of a batch");
}

Test(batch, rows_that_failed_are_tried_again_in_their_places)
{
    write_rows("in", 40);
    cr_assert_eq(shell("$Q batch in -o out --format jsonl --timeout 0.000001 -np 4"), 1);
    expect_says("out", "\"code\":\"timeout\"");
    cr_assert_eq(shell("$Q batch in -o out --format jsonl --retry-errors"), 1);
    cr_assert_eq(shell("$Q batch in -o whole --format jsonl"), 1);
    cr_assert(same_files("out", "whole"));
}

// The time that a row takes to be made, here by its template, is a part of its time.
Test(batch, the_timeout_counts_the_template)
{
    write_text(
        "t.jinja",
        "{% set r = range(1000) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}{{ messages[0].content }}");
    write_text("in.jsonl",
               "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":20,\"ignore_eos\":true}\n");
    cr_assert_eq(shell("$Q batch in.jsonl -o out --chat-template-file t.jinja --timeout 0.02"), 1);
    expect_says("out", "\"code\":\"timeout\"");
    cr_assert_eq(shell("$Q batch in.jsonl -o long --chat-template-file t.jinja --timeout 1e6"), 0);
}

// A pipe is written for whoever reads it, also if that one comes late; if it leaves, the run ends.
Test(batch, a_pipe_waits_for_its_reader)
{
    write_rows("in", 20);
    cr_assert_eq(shell("$Q batch in -o whole --format jsonl"), 1);
    cr_assert_eq(
        shell("mkfifo pipe; (sleep 0.3; cat pipe >got) & $Q batch in -o pipe --format jsonl; s=$?; wait; exit $s"), 1);
    cr_assert(same_files("got", "whole"));
    cr_assert_eq(shell("(head -c 10 pipe >got) & $Q batch in -o pipe --format jsonl -n 90 --ignore-eos"), 5);
}

Test(batch, too_many_errors_stop_it)
{
    write_rows("in", 200);
    cr_assert_eq(shell("$Q batch in -o out --format jsonl --max-errors 2 -np 2"), 1);
    expect_says("err", "more than --max-errors 2");
    cr_assert_lt(count_lines("out"), 150);
    cr_assert_eq(shell("$Q batch in -o out --format jsonl -np 2"), 1);
    cr_assert_eq(shell("$Q batch in -o whole --format jsonl"), 1);
    cr_assert(same_files("out", "whole"));
}

Test(batch, a_dry_run_counts_rows_tokens_and_memory_and_writes_nothing)
{
    write_rows("in", 40);
    cr_assert_eq(shell("$Q batch in -o out --format jsonl --dry-run >report"), 1);
    expect_says("report", "rows: 40, 2 of them would fail\n  invalid_json: 2, the first in row 7");
    expect_says("report", "prompt tokens: ");
    expect_says("report", "memory: ");
    expect_says("report", "time: ");
    cr_assert_neq(access("out", F_OK), 0);
    cr_assert_eq(shell("$Q batch in -o out --format jsonl -v"), 1);
}

// --- faults ---

Test(batch, a_full_disk_leaves_whole_rows_that_can_be_gone_on_from)
{
    write_rows("in", 60);
    cr_assert_eq(shell("$Q batch in -o whole --format jsonl"), 1);
    cr_assert_eq(shell("ulimit -f 6; $Q batch in -o out --format jsonl"), 5);
    char *err = read_text("err");
    cr_assert(strstr(err, "File too large; the partial line is removed, resumable at row "), "%s", err);
    free(err);
    cr_assert_eq(shell("test \"$(tail -c 1 out | od -An -c)\" = '  \\n'"), 0);
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 1);
    cr_assert(same_files("out", "whole"));
    cr_assert_eq(shell("$Q batch in -o /dev/full --format jsonl"), 5);
    expect_says("err", "/dev/full: No space left on device");
    cr_assert_eq(shell("$Q batch in -o nowhere/out --format jsonl"), 5);
    cr_assert_eq(shell("$Q batch nothing -o out2"), 5);
}

Test(batch, two_processes_do_not_write_to_one_output)
{
    write_rows("in", 5);
    cr_assert_eq(shell("$Q batch in -o out --format jsonl; flock out $Q batch in -o out --format jsonl"), 5);
    expect_says("err", "another process writes to it");
}

static pid_t start(const char *const *argv)
{
    pid_t pid = fork();
    if (pid == 0) {
        cr_assert(freopen("err", "w", stderr));
        execv(getenv("QUERN_BIN"), (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    return pid;
}

static void wait_for_rows(const char *path, int n)
{
    for (int i = 0; i < 2000 && count_lines(path) < n; i++)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

Test(batch, the_first_interrupt_drains_and_the_run_can_be_gone_on_with)
{
    write_rows("in", 1500);
    const char *const argv[] = {"quern", "batch", "in", "-o", "out", "--format", "jsonl", "-np", "4", NULL};
    pid_t pid = start(argv);
    wait_for_rows("out", 3);
    kill(pid, SIGINT);
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(rig_status(status), 130);
    expect_says("err", "stopped after");
    int n = count_lines("out");
    cr_assert(n >= 3 && n < 1500, "%d rows", n);
    cr_assert_eq(shell("head -n 30 in >few; $Q batch few -o whole --format jsonl"), 1);
    cr_assert_eq(shell("head -n 3 out | cmp - whole -n $(head -n 3 out | wc -c)"), 0);
}

// One row has six thousand tokens: long enough for both interrupts to come while it is computed. With two sequences
// it begins beside the first, so that it is under way when the first is written: with one, an interrupt could come
// after the one and before the other, and rightly end the run.
static void write_long_rows(const char *path)
{
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 1; i <= 5; i++)
        fprintf(f, "{\"prompt\":\"word %d\",\"max_tokens\":%d,\"n\":%d,\"ignore_eos\":true}\n", i, i == 2 ? 500 : 5,
                i == 2 ? 12 : 1);
    cr_assert_eq(fclose(f), 0);
}

Test(batch, the_second_interrupt_stops_at_once_and_the_run_can_be_gone_on_with)
{
    write_long_rows("in");
    const char *const argv[] = {"quern", "batch", "in", "-o", "out", "--format", "jsonl", "-np", "2", NULL};
    pid_t pid = start(argv);
    wait_for_rows("out", 1);
    kill(pid, SIGINT);
    int status, n_more = 0;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    cr_assert_eq(waitpid(pid, &status, WNOHANG), 0, "the first one does not stop what is under way");
    // one that comes while another is pending is lost: on a busy machine it is sent until it is seen
    for (; waitpid(pid, &status, WNOHANG) == 0; n_more++) {
        kill(pid, SIGINT);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    cr_assert_eq(rig_status(status), 130);
    cr_assert_eq(count_lines("out"), 1, "row 2 was not finished, after %d more", n_more);
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 0);
    cr_assert_eq(shell("$Q batch in -o whole --format jsonl"), 0);
    cr_assert(same_files("out", "whole"));
}

Test(batch, a_mistake_in_the_command_is_said_before_anything_is_computed)
{
    write_text("in", "a\n");
    static const struct {
        const char *flags, *text;
    } cases[] = {
        {"in", "no output: name one with -o"},
        {"in in2 -o out", "a second input"},
        {"merge out", "the output and its parts are wanted"},
        {"in -o out --as chat --system", "needs a value"},
        {"in -o out --parallel 0", "from 1 to"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cr_assert_eq(shell("$Q batch %s", cases[i].flags), 2, "%s", cases[i].flags);
        expect_says("err", cases[i].text);
    }
}

// A row without an id has "row-" and its number, which no other row may have.
Test(batch, ids_of_rows_without_one_are_theirs_alone)
{
    FILE *f = fopen("in", "w");
    fputs("{\"prompt\":\"a\",\"max_tokens\":1,\"custom_id\":\"row-2\"}\n{\"prompt\":\"b\",\"max_tokens\":1}\n"
          "{\"prompt\":\"c\",\"max_tokens\":1}\n{\"prompt\":\"d\",\"max_tokens\":1,\"custom_id\":\"row-3\"}\n"
          "{\"prompt\":\"e\",\"max_tokens\":1,\"custom_id\":\"row-03\"}\n",
          f);
    fclose(f);
    cr_expect_eq(shell("$Q batch in -o out"), 1);
    cr_expect_eq(shell("test $(grep -c duplicate_id out) = 2"), 0);
    cr_expect_eq(
        shell("sed -n 2p out | grep -q 'row 1 has it already' && sed -n 4p out | grep -q 'row 3 has it already'"), 0);
}
