// The schema of a forced answer is made of those of the tools. Definitions that they refer to move to its top, because
// references count from there.
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

// --- the schema of a forced answer ---

// {"name": NAME, "parameters": {...}}
static struct value call_schema(struct builder *b, const struct value *tool)
{
    struct value v = dict(b), properties = dict(b), name = dict(b), required = list(b);
    set(b, &name, "const", *value_get(function_of(tool), "name"));
    set(b, &properties, "name", name);
    set(b, &properties, "parameters", parameters_of(b, tool, false));
    push(b, &required, VALUE_LIT("name"));
    push(b, &required, VALUE_LIT("parameters"));
    set(b, &v, "type", VALUE_LIT("object"));
    set(b, &v, "properties", properties);
    set(b, &v, "required", required);
    return v;
}

static struct value calls_schema(struct builder *b)
{
    static const char *const keys[] = {"$defs", "definitions"};
    const struct value *tools = b->row->tools;
    struct value v = dict(b), items = dict(b), any = list(b);
    for (size_t i = 0; i < value_count(tools); i++)
        push(b, &any, call_schema(b, &tools->list->items[i]));
    set(b, &items, "anyOf", any);
    set(b, &v, "type", VALUE_LIT("array"));
    set(b, &v, "minItems", value_int(1));
    if (b->row->one_call)
        set(b, &v, "maxItems", value_int(1));
    set(b, &v, "items", items);
    for (size_t k = 0; k < COUNT_OF(keys); k++) {
        struct value all = dict(b);
        for (size_t i = 0; i < value_count(tools); i++)
            add_definitions(b, &tools->list->items[i], keys[k], &all);
        if (value_count(&all))
            set(b, &v, keys[k], all);
    }
    return v;
}

static int force(struct batch_row *row, enum row_choice choice, const struct value *tool, struct error *err)
{
    struct builder b = {.row = row, .err = err};
    struct value *schema = ARENA_NEW(&row->arena, struct value);
    if (!schema)
        return fail(err, E_MEMORY, "no memory for a schema");
    *schema = tool ? parameters_of(&b, tool, true) : calls_schema(&b);
    row->choice = choice;
    return b.failed ? -1 : batch_guide_set(row, "tool_choice", GUIDE_SCHEMA, schema, err);
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
    row->chosen = name->text;
    return force(row, CHOICE_NAMED, tool, err);
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
    return choice->kind == VALUE_DICT ? force_named(row, choice, err) : force(row, CHOICE_REQUIRED, NULL, err);
}

int batch_tools_take(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *choice = body_get(body, "tool_choice");
    bool parallel = true;
    if (body_take_kind(body, "tools", VALUE_LIST, "a list", &row->tools, err) ||
        body_take_bool(body, "parallel_tool_calls", &parallel, err))
        return -1;
    row->one_call = !parallel;
    return choice ? take_choice(row, choice, err) : 0;
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
    struct value all, chosen = value_string(row->chosen), made = list(&b);
    if (b.failed || json_read(&all, &reader, answer, err))
        return -1;
    if (row->choice == CHOICE_NAMED)
        add_call(&b, &chosen, &all, &made);
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
