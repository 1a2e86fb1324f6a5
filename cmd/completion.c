// One printer per shell and one for the manual page; all of them walk the same two tables and differ in quoting. The
// choices of a flag come from its argument text, "a|b|c"; only the types of the KV cache are listed here. The names
// of models are not in the scripts: a script runs `quern ls --names` when the user completes one.
#include "cmd/completion.h"
#include "cmd/options.h"

#include <stdio.h>

// --- quoting ---

// Appends `text` with the string `with` before each character that is in `special`.
static void print_escaped(struct text *out, const char *text, const char *special, const char *with)
{
    for (; *text; text++) {
        if (strchr(special, *text))
            text_append(out, str_from(with));
        text_append(out, (struct str){text, 1});
    }
}

// Appends `text` within single quotes; a quote inside becomes '\''.
static void print_quoted(struct text *out, const char *text)
{
    for (; *text; text++)
        if (*text == '\'')
            text_print(out, "'\\''");
        else
            text_append(out, (struct str){text, 1});
}

static bool takes_file(const struct option_info *o)
{
    return o->kind == OPTION_MODEL || (o->kind == OPTION_TEXT && o->argument && !strcmp(o->argument, "FILE"));
}

// Appends the choices of an option separated by blanks: those of "a|b|c", or the names of the KV cache types.
static void print_choices(struct text *out, const struct option_info *o)
{
    if (o->kind == OPTION_DTYPE) {
        text_print(out, "f32 f16 bf16 q8_0 q4_0");
        return;
    }
    for (const char *c = o->argument; *c; c++)
        text_print(out, "%c", *c == '|' ? ' ' : *c);
}

static bool has_choices(const struct option_info *o)
{
    return o->kind == OPTION_CHOICE || o->kind == OPTION_DTYPE;
}

static const char names_of_models[] = "$(quern ls --names 2>/dev/null)";

// --- bash ---

static void print_bash_words(struct text *out, unsigned mask)
{
    for (int n = -1; (n = options_next(n, mask)) >= 0;) {
        struct option_info o = options_info((enum option_number)n);
        text_print(out, "%s%s%s ", o.shorter ? o.shorter : "", o.shorter ? " " : "", o.longer);
    }
}

static void print_bash_value(struct text *out, const struct option_info *o)
{
    text_print(out, "    %s%s%s) ", o->shorter ? o->shorter : "", o->shorter ? "|" : "", o->longer);
    if (has_choices(o)) {
        text_print(out, "_quern_take < <(compgen -W '");
        print_choices(out, o);
        text_print(out, "' -- \"$cur\"); return;;\n");
    } else if (o->kind == OPTION_MODEL) {
        text_print(out, "_quern_take < <(compgen -f -W \"%s\" -- \"$cur\"); return;;\n", names_of_models);
    } else {
        text_print(out, "%s; return;;\n", takes_file(o) ? "_quern_take < <(compgen -f -- \"$cur\")" : "COMPREPLY=()");
    }
}

// bash takes a colon, as in NAME:TAG and gpu:0, for the end of a word: _quern puts the parts together, and leaves out of
// the answers what is on the line already.
static const char bash_head[] =
    "# bash completion of quern; put it where bash looks: quern help --completion bash >> ~/.bash_completion\n"
    "_quern() {\n"
    "  local at=$COMP_CWORD cur=${COMP_WORDS[COMP_CWORD]} i\n"
    "  [ \"${COMP_WORDS[at-1]}\" = : ] && cur=:$cur && at=$((at-1))\n"
    "  case $cur in :*) at=$((at-1)); cur=${COMP_WORDS[at]}$cur;; esac\n"
    "  _quern_answers \"$at\" \"$cur\"\n"
    "  [ \"$at\" = \"$COMP_CWORD\" ] && return\n"
    "  for i in \"${!COMPREPLY[@]}\"; do COMPREPLY[$i]=${COMPREPLY[$i]#\"${cur%:*}:\"}; done\n"
    "}\n"
    "# each line is an answer, and may hold blanks\n"
    "_quern_take() { local line; COMPREPLY=(); while IFS= read -r line; do COMPREPLY+=(\"$line\"); done; }\n"
    "_quern_answers() {\n"
    "  local cur=${2//\\\\/} prev=${COMP_WORDS[$1-1]} verb=${COMP_WORDS[1]} flags=\n"
    "  if [ \"$1\" = 1 ] || [ \"$verb\" = help ]; then\n    _quern_take < <(compgen -W '";

static void print_bash(struct text *out)
{
    text_append(out, str_from(bash_head));
    for (int i = 0; i < VERB_COUNT; i++)
        text_print(out, "%s ", verbs[i].name);
    text_print(out, "' -- \"$cur\")\n    return\n  fi\n  case $prev in\n");
    for (int n = -1; (n = options_next(n, V_ALL)) >= 0;) {
        struct option_info o = options_info((enum option_number)n);
        if (o.kind != OPTION_FLAG)
            print_bash_value(out, &o);
    }
    text_print(out, "  esac\n  case $verb in\n");
    for (int i = 0; i < VERB_COUNT; i++) {
        text_print(out, "    %s) flags='", verbs[i].name);
        print_bash_words(out, 1u << i);
        text_print(out, "';;\n");
    }
    text_print(out,
               "  esac\n"
               "  case $cur in\n"
               "    -*) _quern_take < <(compgen -W \"$flags\" -- \"$cur\");;\n"
               "    *) _quern_take < <(compgen -f -W \"%s\" -- \"$cur\");;\n"
               "  esac\n"
               "}\n"
               "complete -o filenames -F _quern quern\n",
               names_of_models);
}

// --- zsh ---

// Appends one flag in zsh's form: '(-m --model)'{-m,--model}'[help]:MODEL:_files'.
static void print_zsh_option(struct text *out, const struct option_info *o)
{
    const char *repeats = o->kind == OPTION_LIST ? "*" : "";
    if (o->shorter)
        text_print(out, "      '%s(%s %s)'{%s,%s}'[", repeats, o->shorter, o->longer, o->shorter, o->longer);
    else
        text_print(out, "      '%s%s[", repeats, o->longer);
    struct text help = {0};
    print_escaped(&help, o->help, "[]:\\", "\\");
    print_quoted(out, help.data ? help.data : "");
    text_free(&help);
    text_print(out, "]");
    if (o->kind != OPTION_FLAG) {
        text_print(out, ":%s:", has_choices(o) ? "value" : o->argument);
        if (has_choices(o)) {
            text_print(out, "(");
            print_choices(out, o);
            text_print(out, ")");
        } else if (o->kind == OPTION_MODEL) {
            text_print(out, "_quern_models");
        } else {
            text_print(out, takes_file(o) ? "_files" : " ");
        }
    }
    text_print(out, "' \\\n");
}

static void print_zsh(struct text *out)
{
    text_print(out,
               "#compdef quern\n"
               "# zsh completion of quern; put it in a folder of $fpath: quern help --completion zsh > _quern\n"
               "_quern_models() {\n"
               "  local -a names=(${(f)\"%s\"})\n"
               "  _alternative 'files:file:_files' 'models:model:compadd -a names'\n"
               "}\n"
               "_quern() {\n"
               "  local -a verbs=(\n",
               names_of_models);
    for (int i = 0; i < VERB_COUNT; i++) {
        text_print(out, "    '%s:", verbs[i].name);
        print_quoted(out, verbs[i].summary);
        text_print(out, "'\n");
    }
    text_print(out, "  )\n"
                    "  if (( CURRENT == 2 )); then\n    _describe verb verbs\n    return\n  fi\n"
                    "  local verb=$words[2]\n"
                    "  shift words\n"
                    "  (( CURRENT-- ))\n"
                    "  case $verb in\n");
    for (int i = 0; i < VERB_COUNT; i++) {
        text_print(out, "    %s) _arguments \\\n", verbs[i].name);
        for (int n = -1; (n = options_next(n, 1u << i)) >= 0;) {
            struct option_info o = options_info((enum option_number)n);
            print_zsh_option(out, &o);
        }
        text_print(out, "      '*:file:_files';;\n");
    }
    text_print(out, "  esac\n}\ncompdef _quern quern\n");
}

// --- fish ---

static void print_fish_names(struct text *out, const struct option_info *o)
{
    const char *names[] = {o->shorter, o->longer};
    for (int i = 0; i < 2; i++) {
        if (!names[i])
            continue;
        if (!strncmp(names[i], "--", 2))
            text_print(out, " -l %s", names[i] + 2);
        else
            text_print(out, " -%c %s", names[i][2] ? 'o' : 's', names[i] + 1);
    }
}

static void print_fish(struct text *out)
{
    text_print(out,
               "# fish completion of quern: quern help --completion fish > ~/.config/fish/completions/quern.fish\n");
    for (int i = 0; i < VERB_COUNT; i++) {
        text_print(out, "complete -c quern -n __fish_use_subcommand -f -a %s -d '", verbs[i].name);
        print_escaped(out, verbs[i].summary, "'\\", "\\");
        text_print(out, "'\n");
    }
    for (int i = 0; i < VERB_COUNT; i++)
        for (int n = -1; (n = options_next(n, 1u << i)) >= 0;) {
            struct option_info o = options_info((enum option_number)n);
            text_print(out, "complete -c quern -n '__fish_seen_subcommand_from %s'", verbs[i].name);
            print_fish_names(out, &o);
            if (has_choices(&o)) {
                text_print(out, " -x -a '");
                print_choices(out, &o);
                text_print(out, "'");
            } else if (o.kind == OPTION_MODEL) {
                text_print(out, " -r -F -a '(quern ls --names 2>/dev/null)'");
            } else if (o.kind != OPTION_FLAG) {
                text_print(out, takes_file(&o) ? " -r -F" : " -x");
            }
            text_print(out, " -d '");
            print_escaped(out, o.help, "'\\", "\\");
            text_print(out, "'\n");
        }
}

void completion_print(enum completion_shell shell, struct text *out)
{
    if (shell == SHELL_BASH)
        print_bash(out);
    else if (shell == SHELL_ZSH)
        print_zsh(out);
    else
        print_fish(out);
}

// --- man ---

// Appends text as a line of roff: backslashes and hyphens are escaped, and a leading period or apostrophe is
// protected.
static void print_roff(struct text *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        text_print(out, "\\&");
    for (; *text; text++)
        if (*text == '\\')
            text_print(out, "\\e");
        else if (*text == '-')
            text_print(out, "\\-");
        else
            text_append(out, (struct str){text, 1});
}

static void print_man_option(struct text *out, const struct option_info *o)
{
    text_print(out, ".TP\n");
    const char *names[] = {o->shorter, o->longer};
    for (int i = 0; i < 2; i++) {
        if (!names[i])
            continue;
        text_print(out, "\\fB");
        print_roff(out, names[i]);
        text_print(out, "\\fR%s", i == 0 ? ", " : "");
    }
    if (o->argument && o->kind != OPTION_FLAG) {
        text_print(out, " \\fI");
        print_roff(out, o->argument);
        text_print(out, "\\fR");
    }
    text_print(out, "\n");
    print_roff(out, o->help);
    if (o->preset) {
        text_print(out, " (");
        print_roff(out, o->preset);
        text_print(out, ")");
    }
    text_print(out, "\n.br\nof:");
    for (int i = 0; i < VERB_COUNT; i++)
        if (o->verbs & 1u << i)
            text_print(out, " %s", verbs[i].name);
    text_print(out, "\n");
}

void completion_print_man(struct text *out)
{
    text_print(out, ".TH QUERN 1 \"\" \"quern " QUERN_VERSION "\" \"User Commands\"\n"
                    ".SH NAME\nquern \\- run language models in GGUF files\n"
                    ".SH SYNOPSIS\n.B quern\n.I VERB\n[\\fIflags\\fR]\n"
                    ".SH VERBS\n");
    for (int i = 0; i < VERB_COUNT; i++) {
        text_print(out, ".TP\n\\fBquern %s\\fR ", verbs[i].name);
        print_roff(out, verbs[i].usage);
        text_print(out, "\n");
        print_roff(out, verbs[i].summary);
        text_print(out, "\n");
    }
    text_print(out, ".SH FLAGS\nNumbers may be written as 25.6k (thousands) or 32K (times 1024).\n");
    for (int n = -1; (n = options_next(n, V_ALL)) >= 0;) {
        struct option_info o = options_info((enum option_number)n);
        print_man_option(out, &o);
    }
    text_print(out,
               ".SH EXIT STATUS\n"
               "0 all well, 1 some items failed, 2 usage, 3 bad model file, 4 memory, 5 I/O, 6 GPU, 130 interrupted.\n"
               ".SH ENVIRONMENT\n.TP\n.B QUERN_MODEL\nthe model where \\fB\\-m\\fR is not given\n"
               ".TP\n.B XDG_STATE_HOME\nwhere the history and the sessions of chats lie (~/.local/state/quern)\n"
               ".TP\n.B NO_COLOR\nno colours\n");
}
