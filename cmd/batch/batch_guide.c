// The form that a body asks of its answer, under the names that several APIs have for it: a body may have one of them.
#include "cmd/batch/batch_guide.h"
#include "cmd/batch/batch_values.h"
#include "engine/json.h"

#include <stdio.h>

int batch_guide_set(struct batch_row *row, const char *name, enum row_guide guide, const struct value *v,
                    struct error *err)
{
    if (row->guide != GUIDE_NONE)
        return fail(err, E_USAGE, "%s: the body asks for another form of the answer, too", name);
    row->guide = guide;
    row->guide_value = v;
    return 0;
}

// --- response_format ---

// A schema beside json_object: of an object, whether it says so or not.
static int take_object_schema(struct batch_row *row, const struct value *schema, struct error *err)
{
    if (!schema)
        return batch_guide_set(row, "response_format", GUIDE_OBJECT, NULL, err);
    if (!value_is(schema, VALUE_DICT) || value_get(schema, "type"))
        return batch_guide_set(row, "response_format", GUIDE_SCHEMA, schema, err);
    struct value *copy = ARENA_NEW(&row->arena, struct value);
    if (!copy)
        return fail(err, E_MEMORY, "no memory for a schema");
    if (value_dict_new(copy, &row->arena, err) || value_dict_set(&row->arena, copy, "type", VALUE_LIT("object"), err))
        return -1;
    for (size_t i = 0; i < schema->dict->n; i++)
        if (value_dict_put(&row->arena, copy, schema->dict->entries[i].key, schema->dict->entries[i].value, err))
            return -1;
    return batch_guide_set(row, "response_format", GUIDE_SCHEMA, copy, err);
}

static int take_json_schema(struct batch_row *row, const struct value *format, struct error *err)
{
    const struct value *holder = NULL;
    if (body_take_kind(format, "json_schema", VALUE_DICT, "an object", &holder, err))
        return -1;
    const struct value *schema = holder ? body_get(holder, "schema") : NULL;
    if (!schema)
        return fail(err, E_USAGE, "response_format.json_schema.schema is missing");
    return batch_guide_set(row, "response_format", GUIDE_SCHEMA, schema, err);
}

static int take_response_format(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *format = NULL;
    if (body_take_kind(body, "response_format", VALUE_DICT, "an object", &format, err))
        return -1;
    if (!format)
        return 0;
    const struct value *type = body_get(format, "type");
    if (!value_is(type, VALUE_STRING))
        return fail(err, E_USAGE, "response_format.type: text, json_object or json_schema");
    if (str_equal_z(type->text, "text"))
        return 0;
    if (str_equal_z(type->text, "json_object"))
        return take_object_schema(row, body_get(format, "schema"), err);
    if (str_equal_z(type->text, "json_schema"))
        return take_json_schema(row, format, err);
    return fail(err, E_USAGE, "response_format.type: \"%.*s\"; text, json_object or json_schema", STR_ARG(type->text));
}

// --- other names ---

// A schema: an object, or its text.
static int take_schema(struct batch_row *row, const char *name, const struct value *v, struct error *err)
{
    struct json_reader reader = {.arena = &row->arena, .flags = JSON_INPUT};
    if (v->kind == VALUE_DICT)
        return batch_guide_set(row, name, GUIDE_SCHEMA, v, err);
    if (v->kind != VALUE_STRING)
        return body_wrong_kind(name, v, "a schema", err);
    struct value *read = ARENA_NEW(&row->arena, struct value);
    if (!read)
        return fail(err, E_MEMORY, "no memory for a schema");
    if (json_read(read, &reader, v->text, err))
        return fail_prefix(err, name);
    return batch_guide_set(row, name, GUIDE_SCHEMA, read, err);
}

static int take_object(struct batch_row *row, const char *name, const struct value *v, struct error *err)
{
    if (v->kind != VALUE_BOOL)
        return body_wrong_kind(name, v, "true or false", err);
    return v->boolean ? batch_guide_set(row, name, GUIDE_OBJECT, NULL, err) : 0;
}

static int check_text(const char *name, const struct value *v, struct error *err)
{
    if (v->kind != VALUE_STRING)
        return body_wrong_kind(name, v, "a string", err);
    return v->text.len ? 0 : fail(err, E_USAGE, "%s: an empty string", name);
}

static int take_grammar(struct batch_row *row, const char *name, const struct value *v, struct error *err)
{
    return check_text(name, v, err) ? -1 : batch_guide_set(row, name, GUIDE_GRAMMAR, v, err);
}

static int take_regex(struct batch_row *row, const char *name, const struct value *v, struct error *err)
{
    return check_text(name, v, err) ? -1 : batch_guide_set(row, name, GUIDE_REGEX, v, err);
}

static int take_choice(struct batch_row *row, const char *name, const struct value *v, struct error *err)
{
    if (v->kind != VALUE_LIST)
        return body_wrong_kind(name, v, "a list of strings", err);
    if (!v->list->n)
        return fail(err, E_USAGE, "%s: an empty list", name);
    for (size_t i = 0; i < v->list->n; i++)
        if (check_text(name, &v->list->items[i], err))
            return -1;
    return batch_guide_set(row, name, GUIDE_CHOICE, v, err);
}

typedef int take_fn(struct batch_row *row, const char *name, const struct value *v, struct error *err);

// Fields of a body, and those of structured_outputs.
static const struct {
    const char *name;
    take_fn *take;
} own_names[] = {{"guided_json", take_schema},
                 {"guided_grammar", take_grammar},
                 {"guided_regex", take_regex},
                 {"guided_choice", take_choice},
                 {"grammar", take_grammar}},
  inner_names[] = {{"json", take_schema},
                   {"json_object", take_object},
                   {"grammar", take_grammar},
                   {"regex", take_regex},
                   {"choice", take_choice}};

// Takes a field of structured_outputs.
static int take_inner(struct batch_row *row, const struct value_entry *e, struct error *err)
{
    char name[64];
    if (e->value.kind == VALUE_NONE)
        return 0;
    for (size_t i = 0; i < COUNT_OF(inner_names); i++) {
        if (!str_equal_z(e->key.text, inner_names[i].name))
            continue;
        snprintf(name, sizeof name, "structured_outputs.%s", inner_names[i].name);
        return inner_names[i].take(row, name, &e->value, err);
    }
    return fail(err, E_USAGE, "structured_outputs.%.*s: not supported", STR_ARG(e->key.text));
}

int batch_guide_take(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *outputs = NULL;
    if (take_response_format(row, body, err) ||
        body_take_kind(body, "structured_outputs", VALUE_DICT, "an object", &outputs, err))
        return -1;
    for (size_t i = 0; i < COUNT_OF(own_names); i++) {
        const struct value *v = body_get(body, own_names[i].name);
        if (v && own_names[i].take(row, own_names[i].name, v, err))
            return -1;
    }
    for (size_t i = 0; i < value_count(outputs); i++)
        if (take_inner(row, &outputs->dict->entries[i], err))
            return -1;
    return 0;
}
