// quern help and quern version.
#include "cmd/completion.h"
#include "cmd/confine.h"
#include "cmd/options.h"
#include "cmd/terminal/display.h"
#include "cmd/terminal/terminal.h"
#include "engine/model.h"

#include <stdio.h>
#include <stdlib.h>

static int show(struct text *text)
{
    struct error err;
    int status = text->failed ? fail(&err, E_MEMORY, "no memory for the help")
                              : terminal_write((struct str){text->data, text->size}, &err);
    text_free(text);
    return status ? verb_fail(&err) : E_OK;
}

static void print_overview(struct text *out)
{
    enum { INDENT = 13, FAMILIES = 10 };
    struct text families = {0};
    text_print(out, "quern runs language models in GGUF files.\n\nusage: quern VERB [flags]\n\n");
    for (int i = 0; i < VERB_COUNT; i++) {
        text_print(out, "  %-*s", INDENT - 2, verbs[i].name);
        display_print_lines(out, INDENT, INDENT, HELP_COLUMNS, str_from(verbs[i].summary));
    }
    arch_list(&families);
    text_print(out, "\n%-*s", FAMILIES, "families:");
    display_print_lines(out, FAMILIES, FAMILIES, HELP_COLUMNS, (struct str){families.data, families.size});
    text_free(&families);
    text_print(out, "\n");
    display_print_lines(
        out, 0, 13, HELP_COLUMNS,
        STR_LIT("exit status: 0 all well, 1 some items failed, 2 usage, 3 bad model file, 4 memory, 5 I/O, "
                "6 GPU, 130 interrupted"));
    text_print(out, "\n`quern help VERB` explains a verb, `quern help WORD` finds the flags that\n"
                    "speak of a word.\n");
}

// Prints what a verb without outputs is confined to, by confining this process.
static void print_sandbox(struct text *out)
{
    const struct options o = {.verb = VERB_HELP};
    struct text line = {0};
    struct sandbox_level level = confine(&o);
    if (!level.no_new_privs)
        level = confine_loaded(&o);
    sandbox_describe(&level, &line);
    text_print(out, "\n");
    display_print_lines(out, 0, 9, HELP_COLUMNS, (struct str){line.data, line.size ? line.size - 1 : 0});
    text_free(&line);
}

static void print_verb(int i, struct text *out)
{
    char usage[200];
    text_print(out, "quern %s: ", verbs[i].name);
    const int begun = (int)out->size;
    display_print_lines(out, begun, begun, HELP_COLUMNS, str_from(verbs[i].summary));
    snprintf(usage, sizeof usage, "quern %s %s [flags]", verbs[i].name, verbs[i].usage);
    text_print(out, "\nusage: ");
    display_print_lines(out, 7, 7 + 6, HELP_COLUMNS, str_from(usage));
    text_print(out, "\n");
    options_print_help(1u << i, NULL, out);
}

// Five lines for somebody who runs quern without arguments; they include the next command to try.
int help_greet(void)
{
    bool builtin = model_has_builtin();
    struct text out = {0};
    text_print(&out, "quern %s runs language models in GGUF files on this computer.\n", QUERN_VERSION);
    text_print(&out, builtin ? "A small model is built in, so that you can try it now:\n"
                             : "This build has no model of its own; with a file of yours, try:\n");
    text_print(&out, "    quern run %s\"Tell me a story about a fox\"\n", builtin ? "" : "-m FILE.gguf ");
    text_print(&out, "%s`quern ls` lists those on this disk.\n", builtin ? "-m MODEL takes another, " : "");
    text_print(&out, "`quern chat` holds a dialogue, `quern help` shows all that it does.\n");
    return show(&out);
}

// Prints a shell completion or the manual page.
static int print_for_tools(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    struct text out = {0};
    if (options_parse(&o, VERB_HELP, argc, argv, &err))
        return verb_fail(&err);
    if (o.given[OPT_completion])
        completion_print((enum completion_shell)o.completion, &out);
    else
        completion_print_man(&out);
    options_free(&o);
    return show(&out);
}

int cmd_help(int argc, char **argv)
{
    struct text out = {0};
    if (argc > 1 && (!strncmp(argv[1], "--completion", 12) || !strcmp(argv[1], "--man")))
        return print_for_tools(argc, argv);
    if (argc < 2) {
        print_overview(&out);
        return show(&out);
    }
    if (!strcmp(argv[1], "-v") || !strcmp(argv[1], "--verbose")) {
        print_overview(&out);
        print_sandbox(&out);
        return show(&out);
    }
    const char *word = argv[1];
    for (int i = 0; i < VERB_COUNT; i++)
        if (!strcmp(verbs[i].name, word)) {
            print_verb(i, &out);
            return show(&out);
        }
    if (options_print_help(V_ALL, word, &out) > 0)
        return show(&out);
    text_free(&out);
    struct error err;
    fail(&err, E_USAGE, "%s: no verb, and no flag speaks of it; see `quern help`", word);
    return verb_fail(&err);
}

int cmd_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct text out = {0};
    text_print(&out, "quern " QUERN_VERSION "\n");
    return show(&out);
}
