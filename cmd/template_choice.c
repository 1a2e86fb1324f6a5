// Finds the template's source: in a file, among the built-in ones, or in the model.
#include "cmd/template_choice.h"
#include "cmd/input.h"
#include "engine/json.h"

#include <stdlib.h>

// For models without a template: the dialogue is written like a text in which two people talk.
static const char plain_template[] =
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'system' %}{{ message.content }}\n\n"
    "{% elif message.role == 'user' %}User: {{ message.content }}\n"
    "{% else %}Assistant: {{ message.content }}\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}";
const struct str template_plain_stop = {"\nUser:", sizeof("\nUser:") - 1};

bool template_choice_any(const struct options *o, const struct model *m)
{
    return o->chat_template || o->chat_template_file || chat_template_exists(m->file, NULL);
}

bool template_choice_plain(const struct options *o)
{
    return o->chat_template && !strcmp(o->chat_template, "plain");
}

static int open_source(struct chat_template **out, struct str source, const struct model *m, struct error *err)
{
    struct chat_choice choice = {.source = source};
    return chat_open(out, m->file, m->tokenizer, &choice, err);
}

static int open_file(struct chat_template **out, const char *path, const struct model *m, struct error *err)
{
    char *data;
    size_t size;
    if (input_read(path, INPUT_TEMPLATE, &data, &size, err))
        return -1;
    int status = open_source(out, (struct str){data, size}, m, err);
    free(data);
    return status;
}

int template_choice_named(struct chat_template **out, const char *name, const struct model *m, struct error *err)
{
    if (!strcmp(name, "chatml"))
        return open_source(out, chat_template_chatml, m, err);
    if (!strcmp(name, "plain"))
        return open_source(out, str_from(plain_template), m, err);
    struct chat_choice choice = {.name = strcmp(name, "default") ? name : NULL};
    return chat_open(out, m->file, m->tokenizer, &choice, err);
}

int template_choice_open(struct chat_template **out, const struct options *o, const struct model *m, struct error *err)
{
    if (o->chat_template && o->chat_template_file)
        return fail(err, E_USAGE, "--chat-template and --chat-template-file: give one of them");
    if (o->chat_template_file)
        return open_file(out, o->chat_template_file, m, err);
    return template_choice_named(out, o->chat_template ? o->chat_template : "default", m, err);
}

int template_choice_kwargs(const struct options *o, struct arena *arena, const struct value **out, struct error *err)
{
    *out = NULL;
    if (!o->chat_template_kwargs)
        return 0;
    struct json_reader reader = {.arena = arena, .flags = JSON_INPUT};
    struct value *read = ARENA_NEW(arena, struct value);
    if (!read)
        return fail(err, E_MEMORY, "no memory for --chat-template-kwargs");
    if (json_read(read, &reader, str_from(o->chat_template_kwargs), err))
        return fail_prefix(err, "--chat-template-kwargs");
    if (read->kind != VALUE_DICT)
        return fail(err, E_USAGE,
                    "--chat-template-kwargs: %s where an object such as {\"reasoning_effort\": \"low\"} is wanted",
                    value_kind_name(read));
    *out = read;
    return 0;
}
