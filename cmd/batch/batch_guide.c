// The form that a body asks of its answer, under the names that several APIs have for it.
#include "cmd/batch/batch_guide.h"
#include "cmd/batch/batch_values.h"
#include "engine/json.h"

// A schema beside json_object: of an object, whether it says so or not.
static int take_object_schema(struct batch_row *row, const struct value *schema, struct error *err)
{
    row->schema = schema;
    if (!value_is(schema, VALUE_DICT) || value_get(schema, "type"))
        return 0;
    struct value *copy = ARENA_NEW(&row->arena, struct value);
    if (!copy)
        return fail(err, E_MEMORY, "no memory for a schema");
    if (value_dict_new(copy, &row->arena, err) || value_dict_set(&row->arena, copy, "type", VALUE_LIT("object"), err))
        return -1;
    for (size_t i = 0; i < schema->dict->n; i++)
        if (value_dict_put(&row->arena, copy, schema->dict->entries[i].key, schema->dict->entries[i].value, err))
            return -1;
    row->schema = copy;
    return 0;
}

static int take_response_format(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *format = NULL, *schema = NULL;
    if (body_take_kind(body, "response_format", VALUE_DICT, "an object", &format, err))
        return -1;
    if (!format)
        return 0;
    const struct value *type = body_get(format, "type");
    if (!value_is(type, VALUE_STRING))
        return fail(err, E_USAGE, "response_format.type: text, json_object or json_schema");
    if (str_equal_z(type->text, "text"))
        return 0;
    if (str_equal_z(type->text, "json_object")) {
        row->wants_json = true;
        return take_object_schema(row, body_get(format, "schema"), err);
    }
    if (!str_equal_z(type->text, "json_schema"))
        return fail(err, E_USAGE, "response_format.type: \"%.*s\"; text, json_object or json_schema",
                    STR_ARG(type->text));
    if (body_take_kind(format, "json_schema", VALUE_DICT, "an object", &schema, err))
        return -1;
    row->schema = schema ? body_get(schema, "schema") : NULL;
    return row->schema ? 0 : fail(err, E_USAGE, "response_format.json_schema.schema is missing");
}

// A schema as vLLM takes it: an object, or its text.
static int take_guide(struct batch_row *row, const char *name, const struct value *guide, struct error *err)
{
    struct json_reader reader = {.arena = &row->arena, .flags = JSON_INPUT};
    if (!guide)
        return 0;
    if (row->schema || row->wants_json)
        return fail(err, E_USAGE, "%s: response_format asks for a form, too", name);
    row->schema = guide;
    if (guide->kind != VALUE_STRING)
        return guide->kind == VALUE_DICT ? 0 : body_wrong_kind(name, guide, "a schema", err);
    struct value *read = ARENA_NEW(&row->arena, struct value);
    if (!read)
        return fail(err, E_MEMORY, "no memory for a schema");
    row->schema = read;
    return json_read(read, &reader, guide->text, err) ? fail_prefix(err, name) : 0;
}

// guided_json, and structured_outputs with json alone.
static int take_guides(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *outputs = NULL;
    if (body_take_kind(body, "structured_outputs", VALUE_DICT, "an object", &outputs, err) ||
        take_guide(row, "guided_json", body_get(body, "guided_json"), err))
        return -1;
    for (size_t i = 0; outputs && i < outputs->dict->n; i++) {
        const struct value_entry *e = &outputs->dict->entries[i];
        if (!str_equal_z(e->key.text, "json") && e->value.kind != VALUE_NONE)
            return fail(err, E_USAGE, "structured_outputs.%.*s: only json is supported", STR_ARG(e->key.text));
    }
    return outputs ? take_guide(row, "structured_outputs.json", body_get(outputs, "json"), err) : 0;
}

int batch_guide_take(struct batch_row *row, const struct value *body, struct error *err)
{
    return take_response_format(row, body, err) || take_guides(row, body, err) ? -1 : 0;
}
