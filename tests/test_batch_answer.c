// Tests the output lines of quern batch for answers with reasoning and tool calls, and for answers that a stop string
// has cut.
#include "cmd/batch/batch_answer.h"
#include "models/synth_model.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[] = "/tmp/quern-answer-XXXXXX";
static struct model *model;
static struct batch_context context;
static bool one_call; // of the rows, see struct batch_row

// A template of a family that thinks and calls tools.
static const char template_text[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% "
                                    "endfor %}{% if tools %}Answer within "
                                    "<tool_call>{\"name\": ..., \"arguments\": ...}</tool_call>{% endif %}{% if "
                                    "add_generation_prompt %}<|im_start|>assistant\n"
                                    "{% endif %}{# <think> </think> #}{% if false %}<think>\n\n</think>{% endif %}";

static void open_all(void)
{
    struct error err;
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    struct synth_options o = {.preset = "llama-tiny", .mix = "Q8_0", .n_vocab = 600, .seed = 3};
    cr_assert_eq(synth_model_write(&o, path, &err), 0, "%s", err.text);
    cr_assert_eq(model_open(&model, &(struct model_options){.path = path, .n_ctx = 64}, &err), 0, "%s", err.text);
    context = (struct batch_context){.model = model, .n_ctx = 64, .model_name = "m"};
    struct chat_choice choice = {.source = str_from(template_text)};
    cr_assert_eq(chat_open(&context.chat, model->file, model->tokenizer, &choice, &err), 0, "%s", err.text);
}

static void close_all(void)
{
    batch_context_close(&context);
    model_close(model);
    unlink(path);
}

TestSuite(batch_answer, .init = open_all, .fini = close_all);

// The first choice of the line of a chat whose answer was this text, cut to n_text bytes by a stop string (-1: not).
static cJSON *choice_of(const char *answer, int n_text)
{
    struct batch_job job = {.row = {.number = 3, .custom_id = STR_LIT("c"), .kind = ROW_CHAT}};
    struct value tools = value_none();
    struct token_list tokens = {0};
    struct error err;
    struct text line = {0};
    cr_assert_eq(
        tokenizer_encode(model->tokenizer, str_from(answer + (*answer == ' ')), TOKENIZE_SPECIAL, &tokens, &err), 0);
    int32_t prompt[] = {300};
    struct sample sample = {
        .reason = n_text < 0 ? STOP_END : STOP_STRING, .tokens = tokens.ids, .n_tokens = (int)tokens.n};
    text_append(&sample.text, (struct str){answer, n_text < 0 ? strlen(answer) : (size_t)n_text});
    struct request request = {.prompt = prompt, .n_prompt = 1, .n_samples = 1, .n_logprobs = -1, .samples = &sample};
    job.requests = &request;
    job.n_requests = 1;
    job.row.tools = &tools;
    job.row.one_call = one_call;
    cr_assert_eq(batch_answer_print(&job, &context, &line, &err), 0, "%s", err.text);
    cJSON *all = cJSON_ParseWithLength(line.data, line.size);
    cr_assert(all, "%s", line.data);
    cJSON *body = cJSON_GetObjectItem(cJSON_GetObjectItem(all, "response"), "body");
    cJSON *choice = cJSON_Duplicate(cJSON_GetArrayItem(cJSON_GetObjectItem(body, "choices"), 0), true);
    cJSON_Delete(all);
    text_free(&line);
    text_free(&sample.text);
    token_list_free(&tokens);
    arena_free(&job.row.arena);
    return choice;
}

static const char *text_at(const cJSON *v, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItem(v, key));
}

Test(batch_answer, thoughts_are_told_from_the_answer)
{
    cJSON *choice = choice_of("<think>let me see</think>It is four.", -1);
    const cJSON *message = cJSON_GetObjectItem(choice, "message");
    cr_assert_str_eq(text_at(message, "content"), "It is four.");
    cr_assert_str_eq(text_at(message, "reasoning_content"), "let me see");
    cr_assert_str_eq(text_at(choice, "finish_reason"), "stop");
    cr_assert_null(cJSON_GetObjectItem(message, "tool_calls"));
    cJSON_Delete(choice);
}

Test(batch_answer, calls_of_tools_have_a_name_and_arguments_as_text)
{
    cJSON *choice =
        choice_of("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}\n</tool_call>", -1);
    const cJSON *message = cJSON_GetObjectItem(choice, "message");
    const cJSON *call = cJSON_GetArrayItem(cJSON_GetObjectItem(message, "tool_calls"), 0);
    cr_assert(call);
    cr_assert(cJSON_IsNull(cJSON_GetObjectItem(message, "content")));
    cr_assert_str_eq(text_at(choice, "finish_reason"), "tool_calls");
    cr_assert_str_eq(text_at(call, "type"), "function");
    cr_assert(text_at(call, "id"));
    const cJSON *function = cJSON_GetObjectItem(call, "function");
    cr_assert_str_eq(text_at(function, "name"), "add");
    cJSON *arguments = cJSON_Parse(text_at(function, "arguments"));
    cr_assert_eq(cJSON_GetObjectItem(arguments, "a")->valueint, 1);
    cJSON_Delete(arguments);
    cJSON_Delete(choice);
}

Test(batch_answer, of_several_calls_the_first_one_counts_where_one_is_allowed)
{
    static const char answer[] = "<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>"
                                 "<tool_call>{\"name\": \"b\", \"arguments\": {}}</tool_call>";
    for (int one = 0; one < 2; one++) {
        one_call = one;
        cJSON *choice = choice_of(answer, -1);
        const cJSON *calls = cJSON_GetObjectItem(cJSON_GetObjectItem(choice, "message"), "tool_calls");
        cr_assert_eq(cJSON_GetArraySize(calls), one ? 1 : 2);
        cr_assert_str_eq(text_at(cJSON_GetObjectItem(cJSON_GetArrayItem(calls, 0), "function"), "name"), "a");
        cJSON_Delete(choice);
    }
}

Test(batch_answer, what_a_stop_string_cut_is_not_in_the_content)
{
    // tokens carry the space before their word
    const char *answer = " one two three four";
    for (int n = 0; n <= (int)strlen(answer); n++) {
        cJSON *choice = choice_of(answer, n);
        const char *content = text_at(cJSON_GetObjectItem(choice, "message"), "content");
        cr_assert_eq(strlen(content), (size_t)n, "%d: \"%s\"", n, content);
        cr_assert(!strncmp(content, answer, (size_t)n));
        cJSON_Delete(choice);
    }
}
