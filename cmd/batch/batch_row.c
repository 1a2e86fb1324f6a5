// Every kind of record is first made into a body with OpenAI's field names, and all bodies then take the same path,
// see batch_body.h. A prompt is made of other fields by --template, in which {{name}} is replaced. The first fault ends
// the parse, with a code for the error line.
#include "cmd/batch/batch_row.h"
#include "cmd/batch/batch_body.h"
#include "cmd/batch/batch_values.h"
#include "engine/json.h"

#include <stdio.h>
#include <stdlib.h>

// A record while it is parsed.
struct parse {
    struct batch_row *row;
    const struct row_form *form;
    const char *code;
    int64_t line; // of the file, where the record begins
    struct error *err;
};
// --- ids ---

static int set_id(struct parse *p, const struct value *v)
{
    if (value_is(v, VALUE_STRING) && v->text.len) {
        p->row->custom_id = v->text;
        return 0;
    }
    if (value_is(v, VALUE_INT)) {
        char digits[24];
        int n = snprintf(digits, sizeof digits, "%lld", (long long)v->integer);
        const char *kept = arena_strdup(&p->row->arena, (struct str){digits, (size_t)n});
        p->row->custom_id = (struct str){kept, kept ? (size_t)n : 0};
        return kept ? 0 : fail(p->err, E_MEMORY, "no memory for an id");
    }
    return fail(p->err, E_USAGE, "custom_id: a string is wanted");
}

static int set_own_id(struct parse *p)
{
    char text[32];
    int n = snprintf(text, sizeof text, "row-%lld", (long long)p->row->number);
    const char *kept = arena_strdup(&p->row->arena, (struct str){text, (size_t)n});
    p->row->custom_id = (struct str){kept, (size_t)n};
    p->row->own_id = true;
    return kept ? 0 : fail(p->err, E_MEMORY, "no memory for an id");
}

// --- templates ---

// The value of {{name}}: strings verbatim, everything else as JSON. NULL if there is no such field.
static const struct value *field_of(const struct value *fields, struct str name)
{
    while (name.len && name.data[0] == ' ') {
        name.data++;
        name.len--;
    }
    while (name.len && name.data[name.len - 1] == ' ')
        name.len--;
    return value_get_str(fields, name);
}

// Appends at most so many bytes of a name, up to the end of a character.
static void append_beginning(struct text *out, struct str name)
{
    enum { BYTES_MOST = 60 };
    size_t n = MIN(name.len, (size_t)BYTES_MOST);
    while (n < name.len && n && ((uint8_t)name.data[n] & 0xc0) == 0x80)
        n--;
    text_append(out, (struct str){name.data, n});
    text_print(out, n < name.len ? ".." : "");
}

// Fails for a name that no field has, and shows some that there are: a table that was cut at the wrong separator has one
// field with the names of all.
static int no_field(const struct value *fields, struct str name, struct error *err)
{
    enum { SHOWN = 6 };
    struct text names = {0};
    const size_t n = value_count(fields);
    for (size_t i = 0; i < MIN(n, (size_t)SHOWN); i++) {
        text_print(&names, "%s\"", i ? ", " : "");
        append_beginning(&names, fields->dict->entries[i].key.text);
        text_print(&names, "\"");
    }
    const bool known = names.size && !names.failed;
    fail(err, E_USAGE, "--template: the row has no field \"%.*s\"%s%.*s%s", STR_ARG(name), known ? "; it has " : "",
         known ? (int)names.size : 0, known ? names.data : "", known && n > SHOWN ? " and others" : "");
    text_free(&names);
    return -1;
}

static int fill_template(const struct value *fields, struct str form, struct text *out, struct error *err)
{
    while (form.len) {
        const char *open = memmem(form.data, form.len, "{{", 2), *end = form.data + form.len;
        if (!open) {
            text_append(out, form);
            break;
        }
        const char *close = memmem(open, (size_t)(end - open), "}}", 2);
        if (!close)
            return fail(err, E_USAGE, "--template: {{ without }}");
        text_append(out, (struct str){form.data, (size_t)(open - form.data)});
        struct str name = {open + 2, (size_t)(close - open) - 2};
        const struct value *v = field_of(fields, name);
        if (!v)
            return no_field(fields, name, err);
        if (v->kind == VALUE_STRING)
            text_append(out, v->text);
        else if (json_write_text(v, NULL, out, err))
            return -1;
        form = (struct str){close + 2, (size_t)(end - close) - 2};
    }
    return out->failed ? fail(err, E_MEMORY, "no memory for a prompt") : 0;
}

// Appends {role, content} to the messages.
static int push_message(struct batch_row *row, struct value *list, const char *role, struct str content,
                        struct error *err)
{
    struct value message;
    return value_dict_new(&message, &row->arena, err) ||
           value_dict_set(&row->arena, &message, "role", value_string(str_from(role)), err) ||
           value_dict_set(&row->arena, &message, "content", value_string(content), err) ||
           value_list_push(&row->arena, list, message, err);
}

// Makes the body of a prompt: {prompt}, {input}, or {messages}.
static int make_body(struct parse *p, struct str prompt, struct value *body)
{
    struct batch_row *row = p->row;
    struct value messages;
    row->kind = p->form->kind;
    if (value_dict_new(body, &row->arena, p->err))
        return -1;
    if (row->kind != ROW_CHAT)
        return value_dict_set(&row->arena, body, row->kind == ROW_EMBEDDING ? "input" : "prompt", value_string(prompt),
                              p->err);
    return value_list_new(&messages, &row->arena, p->err) ||
           (p->form->system.data && push_message(row, &messages, "system", p->form->system, p->err)) ||
           push_message(row, &messages, "user", prompt, p->err) ||
           value_dict_set(&row->arena, body, "messages", messages, p->err);
}

static int body_of_template(struct parse *p, const struct value *fields, struct str form, struct value *body)
{
    struct text text = {0};
    struct value prompt = VALUE_LIT("");
    int status = fill_template(fields, form, &text, p->err);
    if (!status && text.size)
        status = value_string_copy(&prompt, &p->row->arena, (struct str){text.data, text.size}, p->err);
    text_free(&text);
    return status ? -1 : make_body(p, prompt.text, body);
}

// --- records ---

// The reader counts lines from the record's own beginning, which is one line of the file.
static int name_line(struct parse *p)
{
    static const char first[] = "line 1, ";
    char said[ERR_TEXT];
    snprintf(said, sizeof said, "%s", p->err->text);
    const bool counted = !strncmp(said, first, strlen(first));
    return fail(p->err, E_USAGE, "line %lld, %s", (long long)p->line, counted ? said + strlen(first) : said);
}

static int parse_json(struct parse *p, struct str text, struct value *out)
{
    struct json_reader reader = {.arena = &p->row->arena, .flags = JSON_INPUT};
    p->code = "invalid_json";
    if (json_read(out, &reader, text, p->err))
        return p->err->code == E_USAGE ? name_line(p) : -1;
    p->code = "invalid_request";
    return out->kind == VALUE_DICT ? 0
                                   : fail(p->err, E_USAGE, "line %lld: %s where an object is wanted",
                                          (long long)p->line, value_kind_name(out));
}

static int take_url(struct parse *p, const struct value *line)
{
    static const struct {
        const char *url;
        enum row_kind kind;
    } urls[] = {
        {"/v1/chat/completions", ROW_CHAT}, {"/v1/completions", ROW_COMPLETION}, {"/v1/embeddings", ROW_EMBEDDING}};
    const struct value *url = body_get(line, "url"), *method = body_get(line, "method");
    if (method && !(method->kind == VALUE_STRING && str_equal_z(method->text, "POST")))
        return fail(p->err, E_USAGE, "method: only POST is supported");
    if (!value_is(url, VALUE_STRING))
        return fail(p->err, E_USAGE, "url is missing");
    for (size_t i = 0; i < COUNT_OF(urls); i++)
        if (str_equal_z(url->text, urls[i].url)) {
            p->row->kind = urls[i].kind;
            return 0;
        }
    p->code = "invalid_url";
    return fail(p->err, E_USAGE, "url: \"%.*s\" is none of /v1/chat/completions, /v1/completions, /v1/embeddings",
                STR_ARG(url->text));
}

// Parses OpenAI's batch line, an object with a body.
static int parse_batch_line(struct parse *p, const struct value *line)
{
    const struct value *body = body_get(line, "body");
    if (!body_get(line, "custom_id"))
        return fail(p->err, E_USAGE, "custom_id is missing");
    if (set_id(p, body_get(line, "custom_id")) || take_url(p, line))
        return -1;
    if (!value_is(body, VALUE_DICT))
        return fail(p->err, E_USAGE, "body: an object is wanted");
    return batch_body_take(p->row, body, p->err);
}

static bool is_batch_line(const struct parse *p, const struct value *object)
{
    return !p->form->prompt.data && (body_get(object, "body") || body_get(object, "url"));
}

static int take_any_id(struct parse *p, const struct value *object)
{
    const struct value *id = body_get(object, "custom_id");
    if (!id)
        id = body_get(object, "id");
    return id ? set_id(p, id) : set_own_id(p);
}

// Parses an object that is its own body: every member but the id is a field.
static int parse_bare_body(struct parse *p, const struct value *object)
{
    struct value body;
    if (value_dict_new(&body, &p->row->arena, p->err))
        return -1;
    for (size_t i = 0; i < object->dict->n; i++) {
        const struct value_entry *e = &object->dict->entries[i];
        if (!str_equal_z(e->key.text, "custom_id") && !str_equal_z(e->key.text, "id") &&
            value_dict_put(&p->row->arena, &body, e->key, e->value, p->err))
            return -1;
    }
    p->row->kind = body_get(object, "messages") ? ROW_CHAT : body_get(object, "input") ? ROW_EMBEDDING : ROW_COMPLETION;
    return batch_body_take(p->row, &body, p->err);
}

static int parse_object(struct parse *p, struct str text)
{
    struct value object, body;
    if (parse_json(p, text, &object))
        return -1;
    if (is_batch_line(p, &object))
        return parse_batch_line(p, &object);
    if (take_any_id(p, &object))
        return -1;
    if (p->form->prompt.data)
        return body_of_template(p, &object, p->form->prompt, &body) || batch_body_take(p->row, &body, p->err);
    if (body_get(&object, "prompt") || body_get(&object, "messages") || body_get(&object, "input"))
        return parse_bare_body(p, &object);
    const struct value *prompt = body_get(&object, "text");
    if (!value_is(prompt, VALUE_STRING))
        return fail(p->err, E_USAGE,
                    "neither a batch line nor an object with a prompt, messages, input or text; --template "
                    "makes a prompt of other fields");
    return make_body(p, prompt->text, &body) || batch_body_take(p->row, &body, p->err);
}

enum { FIELDS_MOST = 1024 };

static int parse_columns(struct parse *p, struct str text)
{
    struct str fields[FIELDS_MOST];
    struct value object, body;
    int n = batch_split_fields(text, p->form->format, &p->row->arena, fields, FIELDS_MOST, p->err);
    if (n < 0 || value_dict_new(&object, &p->row->arena, p->err))
        return -1;
    for (int i = 0; i < MIN(n, p->form->n_fields); i++)
        if (value_dict_put(&p->row->arena, &object, value_string(p->form->fields[i]), value_string(fields[i]), p->err))
            return -1;
    const struct value *id = value_get(&object, "custom_id");
    id = id ? id : value_get(&object, "id");
    if (value_is(id, VALUE_STRING) && id->text.len ? set_id(p, id) : set_own_id(p))
        return -1;
    if (n != p->form->n_fields) {
        p->code = "invalid_row";
        return fail(p->err, E_USAGE, "%d fields, the header has %d", n, p->form->n_fields);
    }
    struct str form = p->form->prompt.data ? p->form->prompt : STR_LIT("{{text}}");
    return body_of_template(p, &object, form, &body) || batch_body_take(p->row, &body, p->err);
}

static int parse_line(struct parse *p, struct str text)
{
    struct value object, body;
    if (set_own_id(p))
        return -1;
    if (!p->form->prompt.data)
        return make_body(p, text, &body) || batch_body_take(p->row, &body, p->err);
    return value_dict_new(&object, &p->row->arena, p->err) ||
           value_dict_set(&p->row->arena, &object, "text", value_string(text), p->err) ||
           body_of_template(p, &object, p->form->prompt, &body) || batch_body_take(p->row, &body, p->err);
}

// Copies the record's bytes, of which the row keeps views: the buffer is reused for the next record.
static int copy_record(struct batch_row *row, const struct record *record, struct str *text, struct error *err)
{
    char *copy = arena_alloc(&row->arena, record->bytes.len, 1);
    if (!copy)
        return fail(err, E_MEMORY, "no memory for a row of %zu bytes", record->bytes.len);
    memcpy(copy, record->bytes.data, record->bytes.len);
    *text = (struct str){copy, record->bytes.len};
    return 0;
}

static int parse_record(struct parse *p, const struct record *record)
{
    struct str text;
    p->row->number = record->number;
    p->code = "invalid_row";
    if (record->is_too_long)
        return fail(p->err, E_USAGE, "line %lld: longer than %d MiB", (long long)record->line, RECORD_MOST >> 20);
    if (record->is_open)
        return fail(p->err, E_USAGE, "line %lld: a quote that nothing closes", (long long)record->line);
    p->code = "invalid_utf8";
    if (!utf8_valid(record->bytes))
        return fail(p->err, E_USAGE, "line %lld: not UTF-8", (long long)record->line);
    p->code = "invalid_request";
    if (p->form->format == FORMAT_JSONL)
        return parse_object(p, record->bytes);
    if (copy_record(p->row, record, &text, p->err))
        return -1;
    return p->form->format == FORMAT_LINES ? parse_line(p, text) : parse_columns(p, text);
}

int batch_row_parse(struct batch_row *row, const struct record *record, const struct row_form *form, const char **code,
                    struct error *err)
{
    struct parse p = {.row = row, .form = form, .line = record->line, .err = err};
    row->ignore_unknown = form->ignore_unknown;
    if (!parse_record(&p, record))
        return 0;
    *code = p.code;
    return -1;
}

void batch_row_free(struct batch_row *row)
{
    arena_free(&row->arena);
    *row = (struct batch_row){0};
}

int batch_row_columns(const struct record *record, enum batch_format format, struct arena *arena,
                      const struct str **fields, int *n_fields, struct error *err)
{
    struct str views[FIELDS_MOST];
    struct str *kept = NULL;
    char *text = arena_alloc(arena, record->bytes.len, 1);
    if (text)
        memcpy(text, record->bytes.data, record->bytes.len);
    if (!utf8_valid(record->bytes) || record->is_too_long || record->is_open)
        return fail(err, E_USAGE, "line %lld: no header of columns", (long long)record->line);
    int n =
        text ? batch_split_fields((struct str){text, record->bytes.len}, format, arena, views, FIELDS_MOST, err) : -1;
    if (n > FIELDS_MOST)
        return fail(err, E_USAGE, "line %lld: %d columns, limit %d", (long long)record->line, n, FIELDS_MOST);
    if (n >= 0)
        kept = ARENA_ARRAY(arena, struct str, (size_t)n);
    if (!kept)
        return fail(err, E_MEMORY, "no memory for the header");
    memcpy(kept, views, (size_t)n * sizeof *kept);
    *fields = kept;
    *n_fields = n;
    return 0;
}
