// quern template: renders a chat template with a context, and prints the text.
#include "cmd/input.h"
#include "cmd/confine.h"
#include "cmd/load.h"
#include "cmd/terminal/terminal.h"
#include "engine/chat/jinja.h"
#include "engine/json.h"

#include <stdlib.h>

// Parses a time such as "2026-01-15T12:00:00"; without one it takes the clock's.
static int take_time(const char *text, struct tm *now, struct error *err)
{
    if (!text) {
        time_t clock = time(NULL);
        localtime_r(&clock, now);
        return 0;
    }
    *now = (struct tm){.tm_isdst = -1};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", now);
    if (!end || *end)
        return fail(err, E_USAGE, "--now: '%s' is no time such as 2026-01-15T12:00:00", text);
    mktime(now); // fills in the day of the week
    return 0;
}

// The template's source, in a buffer that the caller frees.
static int model_source(const struct options *o, char **data, struct str *source, struct error *err)
{
    struct gguf *file = NULL;
    struct str view;
    const char *path = load_path(o, err);
    if (!path || model_file_open(&file, path, GGUF_METADATA_ONLY, err))
        return -1;
    int found = gguf_get_str(file, "tokenizer.chat_template", &view, err);
    if (found == 0)
        fail(err, E_MODEL,
             "the model has no chat template (tokenizer.chat_template); give one with --chat-template-file");
    if (found == 1 && !(*data = malloc(view.len + 1)))
        found = fail(err, E_MEMORY, "no memory for a chat template of %zu bytes", view.len);
    if (found == 1) {
        memcpy(*data, view.data, view.len);
        *source = (struct str){*data, view.len};
    }
    gguf_close(file);
    return found == 1 ? 0 : -1;
}

static int take_source(const struct options *o, char **data, struct str *source, struct error *err)
{
    size_t size;
    if (!o->chat_template_file)
        return model_source(o, data, source, err);
    if (input_read(o->chat_template_file, INPUT_TEMPLATE, data, &size, err))
        return -1;
    *source = (struct str){*data, size};
    return 0;
}

static int read_context(const struct options *o, struct arena *arena, struct value *context, struct error *err)
{
    struct json_reader reader = {.arena = arena, .flags = JSON_NAN};
    char *data = NULL;
    size_t size;
    if (!o->file)
        return fail(err, E_USAGE, "give the variables of the template with -f CONTEXT.json");
    if (input_read(o->file, INPUT_CONTEXT, &data, &size, err))
        return -1;
    int status = json_read(context, &reader, (struct str){data, size}, err);
    free(data);
    if (status)
        return fail_prefix(err, o->file);
    return context->kind == VALUE_DICT
               ? 0
               : fail(err, E_USAGE, "%s: an object is wanted, not %s", o->file, value_kind_name(context));
}

static int render(const struct options *o, struct arena *arena, char **source_data, struct jinja_template **t,
                  struct jinja_output *out, struct error *err)
{
    struct value context;
    struct str source;
    struct jinja_options how = {0};
    if (take_time(o->now, &how.now, err) || read_context(o, arena, &context, err) ||
        take_source(o, source_data, &source, err))
        return -1;
    if (!jinja_parse(t, source, err) && !jinja_render(*t, &context, &how, out, err))
        return 0;
    return fail_prefix(err, o->chat_template_file ? o->chat_template_file : "chat template");
}

int cmd_template(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    struct arena arena = {0};
    struct jinja_template *t = NULL;
    struct jinja_output out = {0};
    char *source = NULL;
    if (options_parse(&o, VERB_TEMPLATE, argc, argv, &err))
        return verb_fail(&err);
    confine(&o);
    int status = render(&o, &arena, &source, &t, &out, &err);
    if (!status)
        status = terminal_write_untrusted((struct str){out.text, out.size}, &err);
    jinja_output_free(&out);
    jinja_free(t);
    arena_free(&arena);
    free(source);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
