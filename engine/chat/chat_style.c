// The formats of reasoning and tool calls of the model families, recognized by words in their templates.
#include "engine/chat/chat.h"

struct think_family {
    const char *sign; // a text in the template
    const char *open, *close;
};
// The first row whose sign occurs in the template applies.
// clang-format off
static const struct think_family think_families[] = {
    {"<|channel|>analysis",  "<|channel|>analysis<|message|>", "<|end|>"},
    {"<|START_THINKING|>",   "<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|inner_prefix|>",     "<|inner_prefix|>", "<|inner_suffix|>"},
    {"[THINK]",              "[THINK]", "[/THINK]"},
    {"<seed:think>",         "<seed:think>", "</seed:think>"},
    {"<|channel>thought",    "<|channel>thought", "<channel|>"},
    {"\xE2\x97\x81think\xE2\x96\xB7", "\xE2\x97\x81think\xE2\x96\xB7", "\xE2\x97\x81/think\xE2\x96\xB7"},
    {"</think>",             "<think>", "</think>"},
    {"</thinking>",          "<thinking>", "</thinking>"},
    {"</reasoning>",         "<reasoning>", "</reasoning>"},
};

static const struct tool_family {
    const char *sign, *and_sign;  // texts that both occur in the template; and_sign may be NULL
    struct answer_style style;
} tool_families[] = {
    {"<\xEF\xBD\x9Ctool\xE2\x96\x81""calls\xE2\x96\x81""begin\xEF\xBD\x9C>", "function<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>", {.tools = TOOLS_NAME_JSON,
        .call_open = "<\xEF\xBD\x9Ctool\xE2\x96\x81""calls\xE2\x96\x81""begin\xEF\xBD\x9C>", .call_close = "<\xEF\xBD\x9Ctool\xE2\x96\x81""calls\xE2\x96\x81""end\xEF\xBD\x9C>",
        .name_open = "<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>", .name_close = "\n"}},
    {"<\xEF\xBD\x9Ctool\xE2\x96\x81""calls\xE2\x96\x81""begin\xEF\xBD\x9C>", NULL, {.tools = TOOLS_NAME_JSON,
        .call_open = "<\xEF\xBD\x9Ctool\xE2\x96\x81""calls\xE2\x96\x81""begin\xEF\xBD\x9C>", .call_close = "<\xEF\xBD\x9Ctool\xE2\x96\x81""calls\xE2\x96\x81""end\xEF\xBD\x9C>",
        .name_open = "<\xEF\xBD\x9Ctool\xE2\x96\x81""call\xE2\x96\x81""begin\xEF\xBD\x9C>", .name_close = "<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>"}},
    {"<\xEF\xBD\x9C" "DSML\xEF\xBD\x9C", NULL, {.tools = TOOLS_XML,
        .call_open = "<\xEF\xBD\x9C" "DSML\xEF\xBD\x9C" "function_calls>", .call_close = "</\xEF\xBD\x9C" "DSML\xEF\xBD\x9C" "function_calls>",
        .name_open = "invoke name=\"", .name_close = "\">", .key_open = "parameter name=\"", .key_close = "\"",
        .value_open = ">", .value_close = "</\xEF\xBD\x9C" "DSML\xEF\xBD\x9Cparameter>"}},
    {"<|tool_calls_section_begin|>", NULL, {.tools = TOOLS_NAME_JSON,
        .call_open = "<|tool_calls_section_begin|>", .call_close = "<|tool_calls_section_end|>",
        .name_open = "<|tool_call_begin|>", .name_close = "<|tool_call_argument_begin|>"}},
    {"<|channel|>analysis", NULL, {.tools = TOOLS_NAME_JSON,
        .call_open = "<|channel|>commentary to=", .call_close = "<|call|>", .name_open = "to=", .name_close = "<|message|>",
        .drop = {"<|channel|>final<|message|>", "<|start|>assistant", "<|channel|>commentary<|message|>", "<|end|>"}}},
    {"<minimax:tool_call>", NULL, {.tools = TOOLS_XML,
        .call_open = "<minimax:tool_call>", .call_close = "</minimax:tool_call>", .name_open = "<invoke name=\"", .name_close = "\">",
        .key_open = "<parameter name=\"", .key_close = "\">", .value_open = "", .value_close = "</parameter>"}},
    {"<seed:tool_call>", NULL, {.tools = TOOLS_XML,
        .call_open = "<seed:tool_call>", .call_close = "</seed:tool_call>", .name_open = "<function=", .name_close = ">",
        .key_open = "<parameter=", .key_close = ">", .value_open = "", .value_close = "</parameter>"}},
    {"<tool_call>", "<function=", {.tools = TOOLS_XML,
        .call_open = "<tool_call>", .call_close = "</tool_call>", .name_open = "<function=", .name_close = ">",
        .key_open = "<parameter=", .key_close = ">", .value_open = "", .value_close = "</parameter>"}},
    {"<arg_key>", NULL, {.tools = TOOLS_XML,
        .call_open = "<tool_call>", .call_close = "</tool_call>", .name_open = "<tool_call>", .name_close = "\n",
        .key_open = "<arg_key>", .key_close = "</arg_key>", .value_open = "<arg_value>", .value_close = "</arg_value>"}},
    {"<|tool_call_start|>", NULL, {.tools = TOOLS_PYTHON, .call_open = "<|tool_call_start|>", .call_close = "<|tool_call_end|>"}},
    {"<|START_ACTION|>", NULL, {.tools = TOOLS_JSON_TAG, .call_open = "<|START_ACTION|>", .call_close = "<|END_ACTION|>",
        .drop = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}}},
    {"[TOOL_CALLS]", "[ARGS]", {.tools = TOOLS_NAME_JSON, .call_open = "[TOOL_CALLS]", .name_open = "[TOOL_CALLS]", .name_close = "[ARGS]"}},
    {"[TOOL_CALLS]", NULL, {.tools = TOOLS_JSON_LIST, .call_open = "[TOOL_CALLS]"}},
    {"<TOOLCALL>", NULL, {.tools = TOOLS_JSON_TAG, .call_open = "<TOOLCALL>", .call_close = "</TOOLCALL>"}},
    {"<|tool_call>call:", NULL, {.tools = TOOLS_BRACES, .call_open = "<|tool_call>", .call_close = "<tool_call|>",
        .name_open = "call:", .name_close = "{", .value_open = "<|\"|>"}},
    {"<|tools_prefix|>", NULL, {.tools = TOOLS_JSON_TAG, .call_open = "<|tools_prefix|>", .call_close = "<|tools_suffix|>"}},
    {"<tool_call>", NULL, {.tools = TOOLS_JSON_TAG, .call_open = "<tool_call>", .call_close = "</tool_call>"}},
    {"<tool_calls>", NULL, {.tools = TOOLS_JSON_TAG, .call_open = "<tool_calls>", .call_close = "</tool_calls>"}},
    {"<|tool_call|>", NULL, {.tools = TOOLS_JSON_LIST, .call_open = "<|tool_call|>"}},
    {"functools[", NULL, {.tools = TOOLS_JSON_LIST, .call_open = " functools"}},
    {"<function=", "</function>", {.tools = TOOLS_NAME_JSON, .call_open = "<function=", .call_close = "</function>",
        .name_open = "<function=", .name_close = ">"}},
    {"\"parameters\": ", "python_tag", {.tools = TOOLS_JSON_BARE, .call_open = "<|python_tag|>"}},
    {"\"parameters\": ", "<|start_header_id|>", {.tools = TOOLS_JSON_BARE, .call_open = "<|python_tag|>"}},
};
// clang-format on

static bool says(const struct chat_template *t, const char *sign)
{
    struct str source = chat_source(t);
    return memmem(source.data, source.len, sign, strlen(sign)) != NULL;
}

// Whether a text ends with `mark`, apart from white space.
static bool ends_in(struct str text, const char *mark)
{
    size_t n = strlen(mark);
    while (text.len > 0 && (text.data[text.len - 1] == '\n' || text.data[text.len - 1] == ' '))
        text.len--;
    return text.len >= n && !memcmp(text.data + text.len - n, mark, n);
}

struct answer_style chat_answer_style(const struct chat_template *t, struct str prompt, bool tools)
{
    struct answer_style style = {0};
    for (size_t i = 0; i < COUNT_OF(tool_families); i++) {
        const struct tool_family *f = &tool_families[i];
        if (!says(t, f->sign) || (f->and_sign && !says(t, f->and_sign)))
            continue;
        style = f->style;
        break;
    }
    if (!tools)
        style.tools = TOOLS_NONE;
    for (size_t i = 0; i < COUNT_OF(think_families) && !style.think_open; i++)
        if (says(t, think_families[i].sign)) {
            style.think_open = think_families[i].open;
            style.think_close = think_families[i].close;
        }
    style.in_reasoning = style.think_open && ends_in(prompt, style.think_open);
    return style;
}
