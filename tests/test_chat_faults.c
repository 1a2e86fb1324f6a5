// Tests chats for which memory runs out: each allocation fails once, the N-th one for every N, while a template is opened,
// while messages are rendered, and while an answer is split into its parts and its calls. The error must say so, or the outcome
// be what it is otherwise; nothing may leak.
#include "tests/arena_faults.h"
#include "engine/chat/chat.h"
#include "engine/json.h"
#include "tests/token_expect.h"

#include <stdio.h>
#include <stdlib.h>

// What is done, and what comes of it as text. It returns -1 with err.
struct work {
    const char *template, *input, *tools;
    struct tokenizer *vocabulary;
    struct chat_template *open;
};
typedef int work_fn(const struct work *w, char *made, size_t room, struct error *err);

static void fail_each(const struct work *w, work_fn *work, long least)
{
    char want[4000] = "", got[4000];
    struct error err = {0}, wanted = {0};
    const int expected = work(w, want, sizeof want, &wanted);
    const long live = heap_live;
    long n = 0, needed = 0;
    do {
        err = (struct error){0};
        got[0] = '\0';
        fault_arm(&memory_fault, n++);
        const int status = work(w, got, sizeof got, &err);
        fault_disarm(&memory_fault);
        const bool refused = status && err.code == E_MEMORY && strstr(err.text, "memory");
        const bool same = status == expected && !strcmp(got, want) && !strcmp(err.text, wanted.text);
        cr_expect(refused || same, "%s, allocation %ld: %d '%s' %s, not '%s' %s", w->input, n, status, got, err.text,
                  want, wanted.text);
        cr_assert_eq(heap_live, live, "%s, allocation %ld: %ld blocks leak", w->input, n, heap_live - live);
        needed += refused;
    } while (memory_fault.fired);
    cr_expect_geq(needed, least, "%s: %ld allocations are needed", w->input, needed);
}

// --- Answers ---

struct taken {
    char *made;
    size_t n, room;
};

static int take(void *arg, enum answer_part part, struct str text)
{
    struct taken *t = arg;
    t->n += (size_t)snprintf(t->made + t->n, t->room - t->n, "%c(%.*s)", "RCT"[part], STR_ARG(text));
    return 0;
}

static int put_calls(const struct answer *a, struct taken *t, struct error *err)
{
    struct arena arena = {0};
    struct value calls;
    struct text json = {0};
    size_t bad;
    const int status = answer_tool_calls(a, &arena, &calls, &bad, err) || json_write_text(&calls, NULL, &json, err);
    if (!status)
        snprintf(t->made + t->n, t->room - t->n, " %.*s %zu bad", (int)json.size, json.data, bad);
    text_free(&json);
    arena_free(&arena);
    return status ? -1 : 0;
}

// Answers in pieces of five bytes.
static int answer(const struct work *w, char *made, size_t room, struct error *err)
{
    struct taken t = {made, 0, room};
    struct answer a;
    struct answer_style style = chat_answer_style(w->open, STR_LIT(""), true);
    const struct str text = str_from(w->input);
    int status = 0;
    answer_begin(&a, &style, take, &t);
    for (size_t at = 0; !status && at < text.len; at += 5)
        status = answer_push(&a, (struct str){text.data + at, MIN((size_t)5, text.len - at)}, err);
    if (!status)
        status = answer_end(&a, err) || put_calls(&a, &t, err) ? -1 : 0;
    answer_free(&a);
    if (status)
        made[0] = '\0'; // what came before is right in itself
    return status;
}

#define LLAMA "{\"name\": function name, \"parameters\": dict} <|start_header_id|> <|python_tag|>"
static const struct work answers[] = {
    {"{# <think></think> #}", "<think>a thought</think> and the rest of it, which is long enough for a second buffer",
     NULL, NULL, NULL},
    {"<think></think><tool_call>", "x <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1]}}</tool_call> y", NULL,
     NULL, NULL},
    {"<tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 2}\"}; {\"name\": \"g\"}</tool_call>",
     NULL, NULL, NULL},
    {"<tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": }}</tool_call> y", NULL, NULL, NULL},
    {"[TOOL_CALLS]", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}}]", NULL, NULL, NULL},
    {LLAMA, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", NULL, NULL, NULL},
    {LLAMA, "{\"colour\": \"red\"}", NULL, NULL, NULL},
    {"[TOOL_CALLS][ARGS]", "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}", NULL, NULL, NULL},
    {"<function=<tool_call>",
     "<tool_call>\n<function=f>\n<parameter=a>\nZ\n</parameter>\n<parameter=n>3</parameter>\n</function>\n</tool_call>",
     NULL, NULL, NULL},
    {"<|tool_call_start|>", "<|tool_call_start|>[f(a=\"x\", b=[1, (2,)], c={'k': None}), g()]<|tool_call_end|>", NULL,
     NULL, NULL},
    {"<|channel>thought <|tool_call>call:", "<|tool_call>call:f{a:<|\"|>x<|\"|>,b:[1],c:{k:null}}<tool_call|>", NULL,
     NULL, NULL},
};

Test(chat_faults, answers_without_memory_say_so, .timeout = 60)
{
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        struct work w = answers[i];
        struct chat_choice choice = {.source = str_from(w.template)};
        struct error err = {0};
        cr_assert_eq(chat_open(&w.open, NULL, NULL, &choice, &err), 0, "%s", err.text);
        fail_each(&w, answer, 1);
        chat_close(w.open);
    }
}

// --- Templates ---

#define CHATML                                                                                                         \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"                         \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define WITHOUT_SYSTEM                                                                                                 \
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}<s>{{ m.role }}: "        \
    "{{ m.content }}{% endfor %}"
#define WITH_PARTS "{% for m in messages %}{{ m.role }}:{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
#define WITH_PARTS_ALONE                                                                                               \
    "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('no') }}{% endif %}"                           \
    "{% for p in m.content %}{{ p['text'] }}{% endfor %}{% endfor %}"
#define WITH_CALLS                                                                                                     \
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}<tool>{{ c.function.name }} "       \
    "{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}{% if tools %}{{ tools|tojson }}{% endif %}"
#define WITH_TEXT_ARGUMENTS                                                                                            \
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}<tool>{{ c.function.name + ' ' + "  \
    "c.function.arguments }}{% endfor %}{% endfor %}{% if enable_thinking %}<think>{% endif %}"
#define WITHOUT_TOOLS_ROLE "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"

static int open_template(const struct work *w, char *made, size_t room, struct error *err)
{
    struct chat_template *t;
    struct chat_choice choice = {.source = str_from(w->template)};
    if (chat_open(&t, NULL, w->vocabulary, &choice, err))
        return -1;
    const struct chat_abilities can = chat_can(t);
    snprintf(made, room, "%d%d%d%d %.*s", can.system, can.tools, can.parts, can.thinking, STR_ARG(chat_source(t)));
    chat_close(t);
    return 0;
}

static const char *const templates[] = {CHATML,     WITHOUT_SYSTEM,      WITH_PARTS,         WITH_PARTS_ALONE,
                                        WITH_CALLS, WITH_TEXT_ARGUMENTS, WITHOUT_TOOLS_ROLE, "{{ nothing.at.all }}",
                                        "{% if"};

Test(chat_faults, templates_without_memory_are_not_opened, .timeout = 60)
{
    for (size_t i = 0; i < COUNT_OF(templates); i++)
        fail_each(&(struct work){.template = templates[i], .input = templates[i]}, open_template, 5);
}

// --- Messages ---

static const char vocabulary[] =
    "model str gpt2\npre str gpt-2\nadd_bos_token bool 1\nbos_token_id u32 0\neos_token_id u32 1\nunknown_token_id u32 24\n"
    "tokens strs <s> </s> <|im_start|> <|im_end|> <tool> < | > / s i m _ t a r e n d u o l y \xC4\x8A <unk>\n"
    "token_type i32s 3 3 3 3 4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2\nmerges strs";

static int read_value(struct value *out, struct arena *arena, const char *text, struct error *err)
{
    struct json_reader reader = {.arena = arena, .flags = JSON_INPUT};
    return json_read(out, &reader, str_from(text), err);
}

static int render(const struct work *w, char *made, size_t room, struct error *err)
{
    struct arena arena = {0};
    struct value given, tools, kwargs;
    struct token_list ids = {0};
    struct text plain = {0};
    struct chat_request r = {
        .messages = &given, .kwargs = &kwargs, .add_generation_prompt = true, .thinking = 1, .now = 1};
    r.tools = w->tools ? &tools : NULL;
    int status = read_value(&given, &arena, w->input, err) || read_value(&kwargs, &arena, "{\"k\": [1]}", err) ||
                         (w->tools && read_value(&tools, &arena, w->tools, err)) ||
                         chat_render(w->open, &r, &ids, &plain, err)
                     ? -1
                     : 0;
    if (!status)
        snprintf(made, room, "%zu ids: %.*s", ids.n, (int)plain.size, plain.data);
    token_list_free(&ids);
    text_free(&plain);
    arena_free(&arena);
    return status;
}

#define TOOLS "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", \"parameters\": {}}}]"
#define HI "{\"role\": \"user\", \"content\": \"Hi\"}"
#define CALL(arguments)                                                                                                \
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", "           \
    "\"function\": {\"name\": \"f\"" arguments "}}]}"
static const struct work messages[] = {
    {CHATML, "[" HI "]", NULL, NULL, NULL},
    {CHATML, "[{\"role\": \"robot\", \"content\": \"short\"}, " HI "]", NULL, NULL, NULL},
    {CHATML, "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, \"b\"]}]", NULL, NULL, NULL},
    {CHATML, "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]", NULL, NULL, NULL},
    {WITHOUT_SYSTEM, "[{\"role\": \"system\", \"content\": \"Be brief.\"}, " HI "]", NULL, NULL, NULL},
    {WITHOUT_SYSTEM, "[{\"role\": \"system\", \"content\": [\"Be\", \" brief.\"]}, " HI ", " HI "]", NULL, NULL, NULL},
    {WITHOUT_SYSTEM, "[{\"role\": \"developer\", \"content\": \"Be brief.\"}, " HI "]", NULL, NULL, NULL},
    {WITH_PARTS, "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, \"b\"]}, " HI "]", NULL,
     NULL, NULL},
    {WITH_PARTS,
     "[{\"role\": \"user\", \"content\": [{\"type\": \"refusal\", \"refusal\": \"no\"}]}, {\"role\": \"assistant\"}]",
     NULL, NULL, NULL},
    {WITH_PARTS_ALONE,
     "[{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"content\": [\"Hi\"]}]", NULL, NULL,
     NULL},
    {WITH_CALLS, "[" HI ", " CALL(", \"arguments\": \"{\\\"a\\\": 1}\"") ", {\"role\": \"tool\", \"content\": \"x\"}]",
     TOOLS, NULL, NULL},
    {WITH_CALLS, "[" HI ", " CALL("") "]", TOOLS, NULL, NULL},
    {WITH_TEXT_ARGUMENTS, "[" HI ", " CALL(", \"arguments\": {\"a\": [1]}") "]", NULL, NULL, NULL},
    {WITHOUT_TOOLS_ROLE, "[" HI ", " CALL(", \"arguments\": {}") "]", NULL, NULL, NULL},
    {WITHOUT_TOOLS_ROLE, "[" HI ", {\"role\": \"assistant\", \"content\": \"left out\"}]", NULL, NULL, NULL},
};

Test(chat_faults, messages_without_memory_say_so, .timeout = 60)
{
    struct tokenizer *t = vocab_from(vocabulary);
    for (size_t i = 0; i < COUNT_OF(messages); i++) {
        struct work w = messages[i];
        struct chat_choice choice = {.source = str_from(w.template)};
        struct error err = {0};
        cr_assert_eq(chat_open(&w.open, NULL, t, &choice, &err), 0, "%s", err.text);
        fail_each(&w, render, 10);
        chat_close(w.open);
    }
    tokenizer_free(t);
}
