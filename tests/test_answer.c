// Tests that the answers of each model family are split into reasoning, content and calls, for any division of the text
// into pieces.
#include "engine/chat/chat.h"
#include "engine/json.h"
#include "tests/vocab_recipe.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

struct shown {
    struct text text;
    int part;
};

// Stretches of the same kind are one: "R(...)C(...)T(...)".
static int show(void *arg, enum answer_part part, struct str text)
{
    struct shown *s = arg;
    if (s->part != (int)part)
        text_print(&s->text, "%s%c(", s->part >= 0 ? ")" : "", "RCT"[part]);
    s->part = (int)part;
    text_append(&s->text, text);
    return 0;
}

static void push_cut(struct answer *a, struct str text, size_t size)
{
    struct error err = {0};
    for (size_t at = 0; at < text.len; at += size)
        cr_assert_eq(answer_push(a, (struct str){text.data + at, MIN(size, text.len - at)}, &err), 0, "%s", err.text);
}

static void expect_calls(const struct answer *a, const char *want, size_t want_bad)
{
    struct arena arena = {0};
    struct value calls, list;
    struct text json = {0};
    struct error err = {0};
    size_t bad;
    cr_assert_eq(answer_tool_calls(a, &arena, &calls, &bad, &err), 0, "%s", err.text);
    value_list_new(&list, &arena, &err);
    for (size_t i = 0; i < calls.list->n; i++)
        value_list_push(&arena, &list, *value_get(&calls.list->items[i], "function"), &err);
    json_write_text(&list, NULL, &json, &err);
    cr_expect_str_eq(json.data, want, "%s, not %s", json.data, want);
    cr_expect_eq(bad, want_bad, "%zu calls that cannot be read, not %zu", bad, want_bad);
    text_free(&json);
    arena_free(&arena);
}

// Splits the text cut into two at every place, into pieces of every size, and whole; all must give the same.
static void check_with(const char *source, const char *prompt, const char *text, const char *want, const char *calls,
                       size_t bad, const char *tools)
{
    struct arena arena = {0};
    struct value offered;
    struct json_reader reader = {.arena = &arena};
    struct chat_template *t;
    struct error err = {0};
    struct chat_choice choice = {.source = str_from(source)};
    cr_assert_eq(chat_open(&t, NULL, NULL, &choice, &err), 0, "%s", err.text);
    struct answer_style style = chat_answer_style(t, str_from(prompt), true);
    if (tools) {
        cr_assert_eq(json_read(&offered, &reader, str_from(tools), &err), 0, "%s", err.text);
        style.offered = &offered;
    }
    struct str whole = str_from(text);
    for (size_t round = 0; round < 2 * whole.len + 1; round++) {
        struct shown s = {.part = -1};
        struct answer a;
        answer_begin(&a, &style, show, &s);
        if (round < whole.len) {
            push_cut(&a, (struct str){text, round}, whole.len);
            push_cut(&a, (struct str){text + round, whole.len - round}, whole.len);
        } else {
            push_cut(&a, whole, round - whole.len + 1);
        }
        cr_assert_eq(answer_end(&a, &err), 0, "%s", err.text);
        text_print(&s.text, s.part >= 0 ? ")" : "");
        const char *got = s.text.data ? s.text.data : "";
        cr_assert_str_eq(got, want, "round %zu of %s:\n%s\nnot\n%s", round, text, got, want);
        if (round == 0 || round == whole.len)
            expect_calls(&a, calls, bad);
        text_free(&s.text);
        answer_free(&a);
    }
    chat_close(t);
    arena_free(&arena);
}

static void check(const char *source, const char *prompt, const char *text, const char *want, const char *calls)
{
    check_with(source, prompt, text, want, calls, 0, NULL);
}

#define THINK "{# <think></think> #}"
#define QWEN "{# <think></think><tool_call> #}"

Test(answer, without_marks_all_is_content)
{
    check("{{ 1 }}", "", "  Hello <think> you \n", "C(  Hello <think> you \n)", "[]");
    check(THINK, "", "a < b and </thin", "C(a < b and </thin)", "[]");
    check(THINK, "", "", "", "[]");
}

Test(answer, reasoning_is_split_off_whether_the_answer_or_the_prompt_opens_it)
{
    check(THINK, "", "<think>\nlet me\nsee\n</think>\n\nYes. ", "R(let me\nsee)C(Yes. )", "[]");
    check(THINK, "user <think>\n", "let me\nsee\n</think>\n\nYes.", "R(let me\nsee)C(Yes.)", "[]");
    check(THINK, "<think>", "<think>twice</think>x", "R(twice)C(x)", "[]");
    check(THINK, "", "<think></think>x", "C(x)", "[]");
    check(THINK, "", "<think>it never ends \n", "R(it never ends)", "[]");
    check(THINK, "", "<think>a </think", "R(a </think)", "[]");
    check("[THINK][/THINK]", "", "[THINK]a[b[/THINK]c", "R(a[b)C(c)", "[]");
}

Test(answer, calls_in_json_between_tags)
{
    check(QWEN, "", "Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
          "C(Sure.)T(<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>)",
          "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]");
    check(QWEN, "",
          "<think>x</think><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>"
          "{\"name\": \"g\", \"arguments\": \"{\\\"b\\\": 2}\"}</tool_call>",
          "R(x)T(<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><tool_call>"
          "{\"name\": \"g\", \"arguments\": \"{\\\"b\\\": 2}\"}</tool_call>)",
          "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {\"b\": 2}}]");
    check("<TOOLCALL>", "", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}]</TOOLCALL>",
          "T(<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}]</TOOLCALL>)", "[{\"name\": \"f\", \"arguments\": {}}]");
    check("<|START_ACTION|><|START_THINKING|>", "",
          "<|START_THINKING|>I will.<|END_THINKING|><|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
          "\"parameters\": {\"a\": [1]}}]<|END_ACTION|>",
          "R(I will.)T(<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": [1]}}]"
          "<|END_ACTION|>)",
          "[{\"name\": \"f\", \"arguments\": {\"a\": [1]}}]");
    check("<|START_ACTION|>", "", "<|START_RESPONSE|>Hi<|END_RESPONSE|>", "C(Hi)", "[]");
}

Test(answer, calls_in_a_list_behind_a_mark)
{
    check("[TOOL_CALLS]", "", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}, \"id\": \"1\"}]",
          "T([TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}, \"id\": \"1\"}])",
          "[{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}}]");
}

Test(answer, an_object_alone_is_a_call_when_it_reads_as_one)
{
    static const char llama[] = "{\"name\": function name, \"parameters\": dict} <|start_header_id|> <|python_tag|>";
    check(llama, "", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
          "T({\"name\": \"f\", \"parameters\": {\"a\": 1}})", "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]");
    check(llama, "", "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}",
          "T(<|python_tag|>{\"name\": \"f\", \"parameters\": {}})", "[{\"name\": \"f\", \"arguments\": {}}]");
    check(llama, "", "{\"colour\": \"red\"}", "C({\"colour\": \"red\"})", "[]");
    check(llama, "", "It is {red}.", "C(It is {red}.)", "[]");
}

Test(answer, calls_of_a_name_and_its_arguments)
{
    check("[TOOL_CALLS][ARGS]", "", "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}",
          "T([TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{})",
          "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]");
    check("<|tool_calls_section_begin|>", "",
          "Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}"
          "<|tool_call_end|><|tool_calls_section_end|>",
          "C(Ok)T(<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}"
          "<|tool_call_end|><|tool_calls_section_end|>)",
          "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]");
    check("<|channel|>analysis<|message|>", "",
          "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
          "<|constrain|>json<|message|>{\"a\": 1}<|call|>",
          "R(Hm.)T(<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>)",
          "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]");
    check("<|channel|>analysis<|message|>", "",
          "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.", "R(Hm.)C(Yes.)",
          "[]");
    check("<function= </function>", "", "<function=f>{\"a\": 1}</function>", "T(<function=f>{\"a\": 1}</function>)",
          "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]");
}

Test(answer, calls_in_tags)
{
    check("<tool_call><function=", "",
          "<tool_call>\n<function=f>\n<parameter=city>\nZürich\nSee\n</parameter>\n<parameter=n>\n3\n</parameter>\n</"
          "function>"
          "\n</tool_call>",
          "T(<tool_call>\n<function=f>\n<parameter=city>\nZürich\nSee\n</parameter>\n<parameter=n>\n3\n</parameter>\n"
          "</function>\n</tool_call>)",
          "[{\"name\": \"f\", \"arguments\": {\"city\": \"Zürich\\nSee\", \"n\": 3}}]");
    check("<tool_call><arg_key>", "",
          "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x "
          "y</arg_value>\n<arg_key>b</arg_key>\n<arg_value>[1]</arg_value>\n"
          "</tool_call><tool_call>g</tool_call>",
          "T(<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x "
          "y</arg_value>\n<arg_key>b</arg_key>\n<arg_value>[1]</arg_value>"
          "\n</tool_call><tool_call>g</tool_call>)",
          "[{\"name\": \"f\", \"arguments\": {\"a\": \"x y\", \"b\": [1]}}, {\"name\": \"g\", \"arguments\": {}}]");
    check("<minimax:tool_call>", "",
          "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter "
          "name=\"a\">x</parameter>\n</invoke>\n</minimax:tool_call>",
          "T(<minimax:tool_call>\n<invoke name=\"f\">\n<parameter "
          "name=\"a\">x</parameter>\n</invoke>\n</minimax:tool_call>)",
          "[{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}]");
}

Test(answer, calls_as_python_writes_them)
{
    check("<|tool_call_start|>", "",
          "<|tool_call_start|>[f(a=\"x\\\"y\", b=[1, -2.5], c={'k': None}), g(d=True)]<|tool_call_end|>Ok",
          "T(<|tool_call_start|>[f(a=\"x\\\"y\", b=[1, -2.5], c={'k': None}), g(d=True)]<|tool_call_end|>)C(Ok)",
          "[{\"name\": \"f\", \"arguments\": {\"a\": \"x\\\"y\", \"b\": [1, -2.5], \"c\": {\"k\": null}}}, "
          "{\"name\": \"g\", \"arguments\": {\"d\": true}}]");
}

Test(answer, calls_with_words_as_keys_and_marks_around_strings)
{
    check("<|channel>thought <|tool_call>call:", "",
          "<|channel>thought\nHm.<channel|><|tool_call>call:f{a:<|\"|>x, \"y\"}<|\"|>,b:[1,-2.5,<|\"|>z<|\"|>],"
          "c:{k:null,<|\"|>l m<|\"|>:1},d:true}<tool_call|><|tool_call>call:g{}<tool_call|>",
          "R(Hm.)T(<|tool_call>call:f{a:<|\"|>x, \"y\"}<|\"|>,b:[1,-2.5,<|\"|>z<|\"|>],"
          "c:{k:null,<|\"|>l m<|\"|>:1},d:true}<tool_call|><|tool_call>call:g{}<tool_call|>)",
          "[{\"name\": \"f\", \"arguments\": {\"a\": \"x, \\\"y\\\"}\", \"b\": [1, -2.5, \"z\"], \"c\": "
          "{\"k\": null, \"l m\": 1}, \"d\": true}}, {\"name\": \"g\", \"arguments\": {}}]");
}

static void expect_bad(const struct answer_style *style, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct shown s = {.part = -1};
        struct arena arena = {0};
        struct error err = {0};
        struct answer a;
        struct value calls;
        size_t bad;
        answer_begin(&a, style, show, &s);
        push_cut(&a, str_from(texts[i]), 7);
        cr_expect_eq(answer_end(&a, &err), 0);
        cr_expect_eq(answer_tool_calls(&a, &arena, &calls, &bad, &err), 0, "%s", err.text);
        cr_expect_eq(value_count(&calls), 0u);
        cr_expect_eq(bad, 1u, "%s: %zu", texts[i], bad);
        answer_free(&a);
        arena_free(&arena);
        text_free(&s.text);
    }
}

Test(answer, a_call_that_cannot_be_read_is_counted_and_left_out)
{
    static const char *const texts[] = {"<tool_call>{\"name\": \"f\"</tool_call>", "<tool_call>nonsense",
                                        "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
                                        "<tool_call>[[[[</tool_call>",
                                        "<tool_call>{\"name\": \"f\", \"arguments\": 3}"};
    struct answer_style style = {.tools = TOOLS_JSON_TAG, .call_open = "<tool_call>", .call_close = "</tool_call>"};
    expect_bad(&style, texts, COUNT_OF(texts));
}

Test(answer, a_call_in_braces_that_cannot_be_read_is_counted)
{
    static const char *const texts[] = {"<|tool_call>call:f{a:1",
                                        "<|tool_call>call:f",
                                        "<|tool_call>f{}<tool_call|>",
                                        "<|tool_call>call:{}<tool_call|>",
                                        "<|tool_call>call:f{a}<tool_call|>",
                                        "<|tool_call>call:f{a:<|\"|>x}<tool_call|>"};
    struct answer_style style = {.tools = TOOLS_BRACES,
                                 .call_open = "<|tool_call>",
                                 .call_close = "<tool_call|>",
                                 .name_open = "call:",
                                 .name_close = "{",
                                 .value_open = "<|\"|>"};
    expect_bad(&style, texts, COUNT_OF(texts));
}

static int refuse(void *arg, enum answer_part part, struct str text)
{
    (void)part, (void)text;
    ++*(int *)arg;
    return 7;
}

Test(answer, who_takes_the_text_can_end_it)
{
    int calls = 0;
    struct answer_style style = {0};
    struct error err = {0};
    struct answer a;
    answer_begin(&a, &style, refuse, &calls);
    answer_push(&a, STR_LIT("one"), &err);
    answer_push(&a, STR_LIT("two"), &err);
    answer_end(&a, &err);
    cr_expect_eq(calls, 1);
    cr_expect_eq(a.refused, 7);
    answer_free(&a);
}

Test(answer, a_mark_within_a_string_ends_no_call)
{
    check(QWEN, "", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\\"</tool_call>\"}}</tool_call>!",
          "T(<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\\"</tool_call>\"}}</tool_call>)C(!)",
          "[{\"name\": \"f\", \"arguments\": {\"a\": \"\\\"</tool_call>\"}}]");
    check("<|tool_call_start|>", "", "<|tool_call_start|>[f(a='<|tool_call_end|>')]<|tool_call_end|>Ok",
          "T(<|tool_call_start|>[f(a='<|tool_call_end|>')]<|tool_call_end|>)C(Ok)",
          "[{\"name\": \"f\", \"arguments\": {\"a\": \"<|tool_call_end|>\"}}]");
}

Test(answer, calls_without_arguments_have_none)
{
    static const char *const nothing[] = {"", ", \"arguments\": null", ", \"arguments\": \" \"",
                                          ", \"parameters\": {}"};
    for (size_t i = 0; i < COUNT_OF(nothing); i++) {
        char text[100], want[120];
        snprintf(text, sizeof text, "<tool_call>{\"name\": \"now\"%s}</tool_call>", nothing[i]);
        snprintf(want, sizeof want, "T(%s)", text);
        check(QWEN, "", text, want, "[{\"name\": \"now\", \"arguments\": {}}]");
    }
}

Test(answer, what_cannot_be_read_is_content_as_it_was_written)
{
    static const char *const broken[] = {
        "Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, }}\n</tool_call>\n",
        "Write <tool_call> and then JSON.", "<tool_call></tool_call>",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": [1]}</tool_call> so"};
    for (size_t i = 0; i < COUNT_OF(broken); i++) {
        char want[200];
        snprintf(want, sizeof want, "C(%s)", broken[i]);
        check_with(QWEN, "", broken[i], want, "[]", 1, NULL);
    }
    check_with("<function=<tool_call>", "",
               "a <tool_call>f</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
               "C(a <tool_call>f</tool_call>)T(<tool_call>\n<function=g>\n</function>\n</tool_call>)",
               "[{\"name\": \"g\", \"arguments\": {}}]", 1, NULL);
}

Test(answer, values_between_tags_have_the_types_of_the_schema)
{
    static const char tools[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {"
        "\"s\": {\"type\": \"string\"}, \"b\": {\"type\": \"boolean\"}, \"i\": {\"type\": \"integer\"}, "
        "\"o\": {\"anyOf\": [{\"type\": \"object\"}, {\"type\": \"null\"}]}, \"e\": {\"enum\": [\"1\", \"2\"]}, "
        "\"l\": {\"type\": [\"string\", \"null\"]}}}}}]";
    static const struct {
        const char *key, *text, *want;
    } cases[] = {
        {"s", "0123", "\"0123\""},
        {"s", "{\"k\": 1}", "\"{\\\"k\\\": 1}\""},
        {"s", "None", "\"None\""},
        {"s", "\"x\"", "\"\\\"x\\\"\""},
        {"b", "True", "true"},
        {"b", "false", "false"},
        {"b", "maybe", "\"maybe\""},
        {"i", "7", "7"},
        {"o", "{\"k\": 1}", "{\"k\": 1}"},
        {"o", "None", "null"},
        {"e", "1", "\"1\""},
        {"l", "null", "null"},
        {"l", "12", "\"12\""},
        {"unknown", "12", "12"},
        {"unknown", "True", "\"True\""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[200], want[220], calls[200];
        snprintf(text, sizeof text,
                 "<tool_call>\n<function=f>\n<parameter=%s>\n%s\n</parameter>\n</function>\n</tool_call>", cases[i].key,
                 cases[i].text);
        snprintf(want, sizeof want, "T(%s)", text);
        snprintf(calls, sizeof calls, "[{\"name\": \"f\", \"arguments\": {\"%s\": %s}}]", cases[i].key, cases[i].want);
        check_with("<function=<tool_call>", "", text, want, calls, 0, tools);
    }
}

Test(answer, an_object_alone_calls_tools_that_were_offered)
{
    static const char llama[] = "{\"name\": function name, \"parameters\": dict} <|start_header_id|> <|python_tag|>";
    static const char tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]";
    check_with(llama, "", "{\"name\": \"f\", \"parameters\": {}}", "T({\"name\": \"f\", \"parameters\": {}})",
               "[{\"name\": \"f\", \"arguments\": {}}]", 0, tools);
    check_with(llama, "", "{\"name\": \"Bob\", \"parameters\": {}}", "C({\"name\": \"Bob\", \"parameters\": {}})", "[]",
               0, tools);
    check("[TOOL_CALLS][ARGS]", "", "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}",
          "T([TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{})", "[{\"name\": \"f\", \"arguments\": {}}]");
}

// Forms of calls that models write beside those above: separators, other quotes, words of Python, and names with decoration.
#define XML "<function=<tool_call>"
#define LFM "<|tool_call_start|>"
Test(answer, calls_in_looser_forms_are_read)
{
    static const struct {
        const char *source, *text, *calls;
    } cases[] = {
        {QWEN, "<tool_call>{\"name\": \"f\"}; {\"name\": \"g\"}, {\"name\": \"h\"}</tool_call>",
         "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}, {\"name\": \"h\", \"arguments\": {}}]"},
        {QWEN, "<tool_call>{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}</tool_call>",
         "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]"},
        {"[TOOL_CALLS][ARGS]", "[TOOL_CALLS]f x:1[ARGS]{}", "[{\"name\": \"f\", \"arguments\": {}}]"},
        {"[TOOL_CALLS][ARGS]", "[TOOL_CALLS]f:1 x[ARGS]{}", "[{\"name\": \"f\", \"arguments\": {}}]"},
        {"[TOOL_CALLS][ARGS]", "[TOOL_CALLS]functions.[ARGS]{}", "[{\"name\": \"functions.\", \"arguments\": {}}]"},
        {XML, "<tool_call><function=f<parameter=a>1</parameter></function></tool_call>",
         "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]"},
        {XML, "<tool_call><function=f></function><function=g></function></tool_call>",
         "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]"},
        {XML, "<tool_call><function=f><parameter=a></parameter><parameter=b</tool_call>",
         "[{\"name\": \"f\", \"arguments\": {\"a\": \"\"}}]"},
        {"<tool_call><arg_key>", "<tool_call>f<arg_key>a</arg_key></tool_call>",
         "[{\"name\": \"f\", \"arguments\": {}}]"},
        {LFM, LFM "[f(a=(1, 2,), b=[], c={}, d=False, e=true, f=false, g=null)]<|tool_call_end|>",
         "[{\"name\": \"f\", \"arguments\": {\"a\": [1, 2], \"b\": [], \"c\": {}, \"d\": false, \"e\": true, \"f\": false, \"g\": null}}]"},
        {LFM, LFM "f(a='x\\n\\t\\r\\'\\q', b={1: 2,})<|tool_call_end|>",
         "[{\"name\": \"f\", \"arguments\": {\"a\": \"x\\n\\t\\r'q\", \"b\": {\"1\": 2}}}]"},
        {LFM, LFM "{\"name\": \"f\", \"arguments\": {}}<|tool_call_end|>", "[{\"name\": \"f\", \"arguments\": {}}]"},
        {LFM, LFM " [ f ( a = 1 ) , g(b_c=-2,) ] <|tool_call_end|>",
         "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {\"b_c\": -2}}]"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char want[300];
        snprintf(want, sizeof want, "T(%s)", cases[i].text);
        check(cases[i].source, "", cases[i].text, want, cases[i].calls);
    }
}

Test(answer, calls_in_broken_forms_are_content)
{
    static const struct {
        const char *source, *text;
        size_t bad;
    } cases[] = {
        {QWEN, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\"\"}</tool_call>", 1},
        {QWEN, "<tool_call>{\"function\": \"f\", \"arguments\": {}}</tool_call>", 1},
        {"[TOOL_CALLS][ARGS]", "[TOOL_CALLS]f[ARGS]nothing", 1},
        {"[TOOL_CALLS][ARGS]", "[TOOL_CALLS]f[ARGS]{\"a\"", 1},
        {"[TOOL_CALLS][ARGS]", "[TOOL_CALLS][ARGS]{}", 1},
        {"[TOOL_CALLS][ARGS]", "[TOOL_CALLS]f", 1},
        {XML, "<tool_call><function=></function></tool_call>", 1},
        {XML, "<tool_call><function=f</tool_call>", 1},
        {LFM, LFM "[(a=1)]<|tool_call_end|>", 1},
        {LFM, LFM "[f]<|tool_call_end|>", 1},
        {LFM, LFM "[f(1)]<|tool_call_end|>", 1},
        {LFM, LFM "[f(a 1)]<|tool_call_end|>", 1},
        {LFM, LFM "[f(=1)]<|tool_call_end|>", 1},
        {LFM, LFM "[f(a=)]<|tool_call_end|>", 1},
        {LFM, LFM "[f(a=1 b=2)]<|tool_call_end|>", 1},
        {LFM, LFM "[f(a='x)]", 1},
        {LFM, LFM "[f(a='x\\", 1},
        {LFM, LFM "[f(a=[1 2])]<|tool_call_end|>", 1},
        {LFM, LFM "[f(a=[)]<|tool_call_end|>", 1},
        {LFM, LFM "[f(a={1 2})]<|tool_call_end|>", 1},
        {LFM, LFM "[f(a={1: 2 3: 4})]<|tool_call_end|>", 1},
        {LFM, LFM "[f(a={1: })]<|tool_call_end|>", 1},
        {LFM, LFM "[f(a=1.2.3)]<|tool_call_end|>", 1},
        {LFM, LFM "[f(a=word)]<|tool_call_end|>", 1},
        {LFM, LFM "[f(a=", 1},
        {LFM, LFM "[f(", 1},
        {LFM,
         LFM
         "[g(a=[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
         1},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char want[300];
        snprintf(want, sizeof want, "C(%s)", cases[i].text);
        check_with(cases[i].source, "", cases[i].text, want, "[]", cases[i].bad, NULL);
    }
}

Test(answer, schemas_of_any_shape_type_the_values)
{
    static const char tools[] =
        "[5, {\"name\": 5}, {\"name\": \"f\", \"parameters\": {\"properties\": {"
        "\"u\": {\"type\": \"nonsense\"}, \"n\": {\"enum\": [1, 2]}, \"t\": {\"type\": 5}, "
        "\"w\": {\"type\": []}, \"x\": {\"oneOf\": [{\"oneOf\": [{\"type\": \"array\"}]}]}, "
        "\"d\": {\"oneOf\": [{\"oneOf\": [{\"oneOf\": [{\"oneOf\": [{\"oneOf\": [{\"oneOf\": [{\"oneOf\": "
        "[{\"oneOf\": [{\"oneOf\": [{\"type\": \"string\"}]}]}]}]}]}]}]}]}]}, "
        "\"m\": {\"enum\": [\"a\", 1]}, \"a\": true}}}]";
    static const struct {
        const char *key, *text, *want;
    } cases[] = {
        {"u", "12", "12"},
        {"n", "1", "1"},
        {"n", "\"1\"", "\"\\\"1\\\"\""},
        {"t", "[1]", "[1]"},
        {"w", "null", "null"},
        {"x", "[1]", "[1]"},
        {"x", "{\"a\": 1}", "\"{\\\"a\\\": 1}\""},
        {"d", "12", "12"},
        {"m", "1", "1"},
        {"m", "x", "\"x\""},
        {"a", "false", "false"},
        {"n", "False", "false"},
        {"x", "None", "\"None\""},
        {"u", "1 2", "\"1 2\""},
        {"u", "", "\"\""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[200], want[220], calls[200];
        snprintf(text, sizeof text, "<tool_call><function=f><parameter=%s>%s</parameter></function></tool_call>",
                 cases[i].key, cases[i].text);
        snprintf(want, sizeof want, "T(%s)", text);
        snprintf(calls, sizeof calls, "[{\"name\": \"f\", \"arguments\": {\"%s\": %s}}]", cases[i].key, cases[i].want);
        check_with(XML, "", text, want, calls, 0, tools);
    }
}

Test(answer, an_object_alone_may_stand_behind_white_space)
{
    static const char llama[] = "{\"name\": function name, \"parameters\": dict} <|start_header_id|> <|python_tag|>";
    check(llama, "", " \t\r\n{\"name\": \"f\", \"parameters\": {}}", "T( \t\r\n{\"name\": \"f\", \"parameters\": {}})",
          "[{\"name\": \"f\", \"arguments\": {}}]");
    check(llama, "", "\n{\"a\"", "C(\n{\"a\")", "[]");
    check(llama, "", " \n ", "C( \n )", "[]");
}

Test(answer, nobody_needs_to_take_the_error_or_the_count)
{
    struct arena arena = {0};
    struct value calls;
    struct answer a = {.style = {.tools = TOOLS_NONE}};
    cr_expect_eq(answer_tool_calls(&a, &arena, &calls, NULL, NULL), 0);
    cr_expect_eq(value_count(&calls), 0u);
    arena_free(&arena);
}

// Control tokens that are a part of a mark are text, others are dropped.
Test(answer, control_tokens_are_text_where_they_make_a_mark)
{
    struct tokenizer *t = vocab_from("model str gpt2\npre str gpt-2\ntokens strs a b <think> </think> <end> <unk>\n"
                                     "unknown_token_id u32 5\ntoken_type i32s 1 1 3 3 3 2\nmerges strs");
    static const int32_t ids[] = {2, 0, 4, 3, 5, 1, 4};
    const struct answer_style style = {.think_open = "<think>", .think_close = "</think>"};
    struct detokenizer d = detokenizer_begin(t, true);
    struct shown s = {.part = -1};
    struct error err = {0};
    struct answer a;
    answer_begin(&a, &style, show, &s);
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        cr_assert_eq(answer_push_token(&a, &d, ids[i], &err), 0, "%s", err.text);
    cr_assert_eq(answer_end(&a, &err), 0);
    text_append(&s.text, (struct str){"", 1});
    cr_expect_str_eq(s.text.data, "R(a)C(b");
    answer_free(&a);
    text_free(&s.text);
    tokenizer_free(t);
}
