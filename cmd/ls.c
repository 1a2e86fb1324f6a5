// quern ls: lists the models that other programs have stored on this disk. Nothing is written there.
#include "cmd/catalog.h"
#include "cmd/confine.h"
#include "cmd/options.h"
#include "cmd/terminal/terminal.h"
#include "engine/memory.h"
#include "gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

enum { NAME_COLUMN = 60 };

// What the file says about itself: its model family, or why it cannot be read.
static void describe(const struct catalog_entry *e, char out[160], bool *sound)
{
    struct error err;
    struct gguf *g = NULL;
    struct str family = {"?", 1};
    *sound = gguf_open(&g, e->path, GGUF_METADATA_ONLY, &err) == 0;
    if (*sound && gguf_get_str(g, "general.architecture", &family, &err) < 0)
        family = (struct str){"?", 1};
    if (*sound)
        snprintf(out, 160, "%.*s", STR_ARG(family));
    else
        snprintf(out, 160, "%s", err.text);
    gguf_close(g);
}

static void print_row(struct text *out, const struct catalog_entry *e, int width)
{
    char family[160], size[24], day[16] = "?";
    bool sound;
    struct tm tm;
    time_t when = (time_t)e->modified;
    describe(e, family, &sound);
    memory_format(e->size, size);
    if (localtime_r(&when, &tm))
        strftime(day, sizeof day, "%Y-%m-%d", &tm);
    text_print(out, "%-*s  %9s  %-10s  %-11s  ", width, e->name, size, day, e->source);
    text_print_name(out, sound ? family : "not readable");
    text_print(out, "\n");
}

static void print_table(struct text *out, const struct catalog *c, const bool *shown)
{
    int width = 4;
    for (int i = 0; i < c->n; i++)
        width = shown[i] ? MAX(width, (int)MIN(strlen(c->entries[i].name), (size_t)NAME_COLUMN)) : width;
    text_print(out, "%-*s  %9s  %-10s  %-11s  %s\n", width, "NAME", "SIZE", "MODIFIED", "FROM", "FAMILY");
    for (int i = 0; i < c->n; i++)
        if (shown[i])
            print_row(out, &c->entries[i], width);
}

static void print_member(struct text *out, const char *key, const char *value)
{
    text_print(out, "\"%s\": ", key);
    terminal_print_json(out, str_from(value));
}

static void print_json(struct text *out, const struct catalog *c, const bool *shown)
{
    const char *comma = "";
    text_print(out, "[");
    for (int i = 0; i < c->n; i++) {
        const struct catalog_entry *e = &c->entries[i];
        char family[160];
        bool sound;
        if (!shown[i])
            continue;
        describe(e, family, &sound);
        text_print(out, "%s\n  {", comma);
        print_member(out, "name", e->name);
        text_print(out, ", ");
        print_member(out, "source", e->source);
        text_print(out, ", ");
        print_member(out, "path", e->path);
        text_print(out, ", \"size\": %llu, \"modified\": %lld, \"parts\": %d, ", (unsigned long long)e->size,
                   (long long)e->modified, e->n_parts);
        print_member(out, sound ? "family" : "error", family);
        text_print(out, "}");
        comma = ",";
    }
    text_print(out, "%s]\n", *comma ? "\n" : "");
}

static void print_names(struct text *out, const struct catalog *c, const bool *shown)
{
    for (int i = 0; i < c->n; i++)
        if (shown[i] && !strchr(c->entries[i].name, '\n'))
            text_print(out, "%s\n", c->entries[i].name);
}

// Selects the entries whose names contain every word. Returns how many there are.
static int choose(const struct catalog *c, const struct option_list *words, bool *shown)
{
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        shown[i] = true;
        for (int w = 0; w < words->n; w++)
            shown[i] &= strcasestr(c->entries[i].name, words->at[w]) != NULL;
        n += shown[i];
    }
    return n;
}

static int print_catalog(const struct options *o, const struct catalog *c, struct error *err)
{
    struct text out = {0};
    bool *shown = calloc((size_t)c->n + 1, 1);
    if (!shown)
        return fail(err, E_MEMORY, "no memory for a list of %d models", c->n);
    int n = choose(c, &o->args, shown), status = 0;
    if (o->json)
        print_json(&out, c, shown);
    else if (o->names)
        print_names(&out, c, shown);
    else if (n)
        print_table(&out, c, shown);
    else
        terminal_note(
            "quern: no model%s found where Ollama, the Hugging Face cache, LM Studio, llama.cpp and Docker keep theirs",
            o->args.n ? " of that name" : "");
    if (out.failed)
        status = fail(err, E_MEMORY, "no memory for a list of %d models", c->n);
    else if (out.size)
        status = (o->json    ? terminal_write_json
                  : o->names ? terminal_write_untrusted
                             : terminal_write_table)((struct str){out.data, out.size}, err);
    free(shown);
    text_free(&out);
    return status;
}

int cmd_ls(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    struct catalog c = {0};
    if (options_parse(&o, VERB_LS, argc, argv, &err))
        return verb_fail(&err);
    confine(&o);
    int status = catalog_read(&c, &err);
    if (!status)
        status = print_catalog(&o, &c, &err);
    catalog_free(&c);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
