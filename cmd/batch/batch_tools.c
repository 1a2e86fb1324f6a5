// The schema of a forced answer is made of those of the tools. Definitions that they refer to move to its top, because
// references count from there. A table says how calls look in the templates that have JSON in them.
#include "cmd/batch/batch_tools.h"
#include "cmd/batch/batch_guide.h"
#include "cmd/batch/batch_values.h"
#include "engine/json.h"

// A schema under construction. After a failure nothing more is made.
struct builder {
    struct batch_row *row;
    struct error *err;
    bool failed;
};

static struct value dict(struct builder *b)
{
    struct value v = value_none();
    b->failed = b->failed || value_dict_new(&v, &b->row->arena, b->err);
    return v;
}

static struct value list(struct builder *b)
{
    struct value v = value_none();
    b->failed = b->failed || value_list_new(&v, &b->row->arena, b->err);
    return v;
}

static void set(struct builder *b, struct value *to, const char *key, struct value v)
{
    b->failed = b->failed || value_dict_set(&b->row->arena, to, key, v, b->err);
}

static void push(struct builder *b, struct value *to, struct value v)
{
    b->failed = b->failed || value_list_push(&b->row->arena, to, v, b->err);
}

// --- tools ---

static const struct value *function_of(const struct value *tool)
{
    return value_get(tool, "function");
}

static int check_tools(const struct value *tools, struct error *err)
{
    for (size_t i = 0; i < value_count(tools); i++)
        if (!value_is(value_get(function_of(&tools->list->items[i]), "name"), VALUE_STRING))
            return fail(err, E_USAGE, "tools[%zu].function.name: a string is wanted", i);
    return value_count(tools) ? 0 : fail(err, E_USAGE, "tool_choice: there are no tools");
}

// What a template could leave out unseen: each tool is an object with a name, in its function or in itself.
static int check_names(const struct value *tools, struct error *err)
{
    for (size_t i = 0; i < value_count(tools); i++) {
        const struct value *tool = &tools->list->items[i], *function = function_of(tool);
        const struct value *name = value_get(function ? function : tool, "name");
        if (!value_is(name, VALUE_STRING) || !name->text.len)
            return fail(err, E_USAGE, "tools[%zu]: an object with a function and its name is wanted", i);
    }
    return 0;
}

static const struct value *find_tool(const struct value *tools, struct str name)
{
    for (size_t i = 0; i < value_count(tools); i++) {
        const struct value *own = value_get(function_of(&tools->list->items[i]), "name");
        if (own->text.len == name.len && !memcmp(own->text.data, name.data, name.len))
            return &tools->list->items[i];
    }
    return NULL;
}

// The schema of a tool's arguments, which are an object. Without `whole` the definitions are left out.
static struct value parameters_of(struct builder *b, const struct value *tool, bool whole)
{
    const struct value *given = value_get(function_of(tool), "parameters");
    struct value v = dict(b);
    set(b, &v, "type", VALUE_LIT("object"));
    if (!value_is(given, VALUE_DICT))
        set(b, &v, "properties", dict(b));
    for (size_t i = 0; value_is(given, VALUE_DICT) && !b->failed && i < given->dict->n; i++) {
        const struct value_entry *e = &given->dict->entries[i];
        bool defines = str_equal_z(e->key.text, "$defs") || str_equal_z(e->key.text, "definitions");
        if (whole || !defines)
            b->failed = value_dict_put(&b->row->arena, &v, e->key, e->value, b->err);
    }
    return v;
}

static bool begins_with(struct str text, const char *start)
{
    return text.len >= strlen(start) && !memcmp(text.data, start, strlen(start));
}

// Refuses references to other places than definitions: they would count from the top of a call.
static int check_references(const struct value *v, struct error *err)
{
    const struct value *ref = value_get(v, "$ref");
    if (value_is(ref, VALUE_STRING) && begins_with(ref->text, "#") && !begins_with(ref->text, "#/$defs/") &&
        !begins_with(ref->text, "#/definitions/"))
        return fail(err, E_USAGE, "tools: a reference to %.*s, where only definitions can be referred to",
                    STR_ARG(ref->text));
    for (size_t i = 0; i < value_count(v); i++)
        if (check_references(v->kind == VALUE_DICT ? &v->dict->entries[i].value : &v->list->items[i], err))
            return -1;
    return 0;
}

// Adds the definitions of a tool. Two tools may share one, but not have different ones of the same name.
static void add_definitions(struct builder *b, const struct value *tool, const char *key, struct value *to)
{
    const struct value *own = value_get(value_get(function_of(tool), "parameters"), key);
    for (size_t i = 0; value_is(own, VALUE_DICT) && !b->failed && i < own->dict->n; i++) {
        const struct value_entry *e = &own->dict->entries[i];
        const struct value *other = value_find(to, &e->key);
        if (other && !value_equal(other, &e->value))
            b->failed =
                fail(b->err, E_USAGE, "tools: two of them have different %s of %.*s", key, STR_ARG(e->key.text));
        else
            b->failed = value_dict_put(&b->row->arena, to, e->key, e->value, b->err);
    }
}

// --- the forms of forced answers ---

// What stands around a call, or a list of calls, in the templates whose calls are JSON, and the name of the arguments.
static const struct form {
    enum tool_format tools;
    const char *open, *close, *gap; // as in struct schema_frame
    const char *arguments;
    bool list, alone; // calls stand in a list; an answer has one call
} forms[] = {
    {TOOLS_JSON_TAG, "<tool_call>", "</tool_call>", "\n", "arguments", false, false},
    {TOOLS_JSON_LIST, "[TOOL_CALLS]", "", "", "arguments", true, false},
    {TOOLS_JSON_BARE, "", "", "", "parameters", false, true},
};
static const struct form plain_form = {TOOLS_NONE, "", "", "", "parameters", true, false};

static const struct form *form_of(const struct answer_style *style)
{
    for (size_t i = 0; i < COUNT_OF(forms); i++)
        if (forms[i].tools == style->tools && (!*forms[i].open || !strcmp(forms[i].open, style->call_open)))
            return &forms[i];
    return NULL;
}

bool batch_tools_is_native(const struct answer_style *style)
{
    return form_of(style) != NULL;
}

// {"name": NAME, "arguments": {...}}, under the form's own name of the arguments.
static struct value call_schema(struct builder *b, const struct form *form, const struct value *tool)
{
    struct value v = dict(b), properties = dict(b), name = dict(b), required = list(b);
    b->failed = b->failed || check_references(value_get(function_of(tool), "parameters"), b->err);
    set(b, &name, "const", *value_get(function_of(tool), "name"));
    set(b, &properties, "name", name);
    set(b, &properties, form->arguments, parameters_of(b, tool, false));
    push(b, &required, VALUE_LIT("name"));
    push(b, &required, value_string(str_from(form->arguments)));
    set(b, &v, "type", VALUE_LIT("object"));
    set(b, &v, "properties", properties);
    set(b, &v, "required", required);
    return v;
}

static bool is_wanted(const struct batch_row *row, const struct value *tool)
{
    return row->choice != CHOICE_NAMED || tool == row->chosen;
}

static void set_definitions(struct builder *b, struct value *to)
{
    static const char *const keys[] = {"$defs", "definitions"};
    const struct value *tools = b->row->tools;
    for (size_t k = 0; k < COUNT_OF(keys); k++) {
        struct value all = dict(b);
        for (size_t i = 0; i < value_count(tools); i++)
            if (is_wanted(b->row, &tools->list->items[i]))
                add_definitions(b, &tools->list->items[i], keys[k], &all);
        if (value_count(&all))
            set(b, to, keys[k], all);
    }
}

// A call of one of the wanted tools, or a list of such.
static struct value calls_schema(struct builder *b, const struct form *form, bool one)
{
    const struct value *tools = b->row->tools;
    struct value v = dict(b), any = list(b), items = dict(b);
    for (size_t i = 0; i < value_count(tools); i++)
        if (is_wanted(b->row, &tools->list->items[i]))
            push(b, &any, call_schema(b, form, &tools->list->items[i]));
    set(b, form->list ? &items : &v, "anyOf", any);
    if (form->list) {
        set(b, &v, "type", VALUE_LIT("array"));
        set(b, &v, "minItems", value_int(1));
        if (one)
            set(b, &v, "maxItems", value_int(1));
        set(b, &v, "items", items);
    }
    set_definitions(b, &v);
    return v;
}

int batch_tools_schema(struct batch_row *row, const struct answer_style *style, const struct value **schema,
                       struct schema_frame *frame, struct error *err)
{
    struct builder b = {.row = row, .err = err};
    const struct form *own = form_of(style), *form = own ? own : &plain_form;
    const bool one = row->one_call || row->choice == CHOICE_NAMED;
    struct value *made = ARENA_NEW(&row->arena, struct value);
    if (!made)
        return fail(err, E_MEMORY, "no memory for a schema");
    *frame = (struct schema_frame){str_from(form->open), str_from(form->close), str_from(form->gap),
                                   !form->list && !form->alone && !one};
    if (!own && row->choice == CHOICE_NAMED)
        *made = parameters_of(&b, row->chosen, true);
    else
        *made = calls_schema(&b, form, one);
    *schema = made;
    return b.failed ? -1 : 0;
}

// --- tool_choice ---

static int force_named(struct batch_row *row, const struct value *choice, struct error *err)
{
    const struct value *type = body_get(choice, "type"), *name = value_get(body_get(choice, "function"), "name");
    if (!value_is(type, VALUE_STRING) || !str_equal_z(type->text, "function") || !value_is(name, VALUE_STRING))
        return fail(err, E_USAGE,
                    "tool_choice: an object other than {\"type\": \"function\", \"function\": {\"name\"}}");
    const struct value *tool = find_tool(row->tools, name->text);
    if (!tool)
        return fail(err, E_USAGE, "tool_choice: no tool has the name \"%.*s\"", STR_ARG(name->text));
    row->chosen = tool;
    row->choice = CHOICE_NAMED;
    return 0;
}

static int take_choice(struct batch_row *row, const struct value *choice, struct error *err)
{
    if (choice->kind != VALUE_STRING && choice->kind != VALUE_DICT)
        return body_wrong_kind("tool_choice", choice, "a string or an object", err);
    if (choice->kind == VALUE_STRING && str_equal_z(choice->text, "auto"))
        return 0;
    if (choice->kind == VALUE_STRING && str_equal_z(choice->text, "none")) {
        row->tools = NULL;
        return 0;
    }
    if (choice->kind == VALUE_STRING && !str_equal_z(choice->text, "required"))
        return fail(err, E_USAGE, "tool_choice: \"%.*s\"; auto, none, required or a function", STR_ARG(choice->text));
    if (check_tools(row->tools, err))
        return -1;
    row->choice = CHOICE_REQUIRED;
    if (choice->kind == VALUE_DICT && force_named(row, choice, err))
        return -1;
    return batch_guide_set(row, "tool_choice", GUIDE_CALLS, NULL, err);
}

int batch_tools_take(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *choice = body_get(body, "tool_choice");
    bool parallel = true;
    if (body_take_kind(body, "tools", VALUE_LIST, "a list", &row->tools, err) ||
        body_take_bool(body, "parallel_tool_calls", &parallel, err))
        return -1;
    row->one_call = !parallel;
    return choice && take_choice(row, choice, err) ? -1 : check_names(row->tools, err);
}

// --- reading an answer ---

static void add_call(struct builder *b, const struct value *name, const struct value *arguments, struct value *to)
{
    struct value call = dict(b), function = dict(b);
    set(b, &function, "name", *name);
    set(b, &function, "arguments", *arguments);
    set(b, &call, "function", function);
    push(b, to, call);
}

int batch_tools_read(struct batch_row *row, struct str answer, struct value *calls, struct error *err)
{
    struct json_reader reader = {.arena = &row->arena};
    struct builder b = {.row = row, .err = err};
    struct value all, made = list(&b);
    if (b.failed || json_read(&all, &reader, answer, err))
        return -1;
    if (row->choice == CHOICE_NAMED)
        add_call(&b, value_get(function_of(row->chosen), "name"), &all, &made);
    for (size_t i = 0; row->choice == CHOICE_REQUIRED && i < value_count(&all); i++) {
        const struct value *item = all.kind == VALUE_LIST ? &all.list->items[i] : NULL;
        const struct value *name = value_get(item, "name"), *parameters = value_get(item, "parameters");
        if (!name || !parameters)
            return fail(err, E_USAGE, "the answer is no list of calls");
        add_call(&b, name, parameters, &made);
    }
    if (b.failed)
        return -1;
    *calls = made;
    return 0;
}
