// The commands of the chat (/set, /save, /undo, ...) and their completion. A table gives each command its name, its
// help and its function; /set changes the options that options.def marks with V_SET. An error is one line, and the
// chat goes on.
#include "cmd/chat/chat_verb.h"
#include "cmd/input.h"
#include "cmd/outputs.h"
#include "cmd/terminal/terminal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_MAX = 64 << 20 };

#define COMMAND(name, ...) static void command_##name(struct chat *c, const char *arg);
#include "cmd/chat/chat_commands.def"
#undef COMMAND

static const struct command {
    const char *name, *arguments, *help;
    void (*run)(struct chat *c, const char *arg);
} commands[] = {
#define COMMAND(name, arguments, help) {#name, arguments, help, command_##name},
#include "cmd/chat/chat_commands.def"
#undef COMMAND
    {0},
};

// Commands report errors on stderr, because stdout is for answers.
static void complain(struct chat *c, const struct error *err)
{
    c->failed = true;
    terminal_note("quern: %s", err->text);
}

static void show_lines(struct text *text)
{
    load_note_text(text);
}

// --- the dialogue ---

static void command_clear(struct chat *c, const char *arg)
{
    (void)arg;
    dialogue_cut(&c->dialogue, 0);
    text_free(&c->attached);
    chat_note("[the dialogue is empty]");
}

static void command_regen(struct chat *c, const char *arg)
{
    (void)arg;
    size_t question = dialogue_last_question(&c->dialogue);
    if (question == c->dialogue.n) {
        chat_note("[there is nothing to answer]");
        return;
    }
    // the old answer is dropped only after a new one is complete
    bool answered = question + 1 < c->dialogue.n;
    struct error err;
    if (answered) {
        struct dialogue kept = {0};
        struct dialogue_message *m = &c->dialogue.messages[question + 1];
        if (dialogue_add(&kept, ROLE_ASSISTANT, m->content, m->reasoning, &err) ||
            dialogue_add(&kept, ROLE_USER, c->dialogue.messages[question].content, (struct str){0}, &err)) {
            complain(c, &err);
            dialogue_close(&kept);
            return;
        }
        c->n_again++;
        dialogue_cut(&c->dialogue, question + 1);
        chat_answer(c);
        const struct dialogue_message old = kept.messages[0];
        if (c->dialogue.n <= question &&
            (dialogue_add(&c->dialogue, ROLE_USER, kept.messages[1].content, (struct str){0}, &err) ||
             dialogue_add(&c->dialogue, ROLE_ASSISTANT, old.content, old.reasoning, &err)))
            complain(c, &err);
        dialogue_close(&kept);
        return;
    }
    c->n_again++;
    chat_answer(c);
}

static void command_undo(struct chat *c, const char *arg)
{
    (void)arg;
    size_t question = dialogue_last_question(&c->dialogue);
    if (question == c->dialogue.n) {
        chat_note("[there is nothing to take back]");
        return;
    }
    const struct str text = c->dialogue.messages[question].content, shown = chat_opening(text);
    chat_note("[taken back: %.*s%s]", STR_ARG(shown), shown.len < text.len ? "..." : "");
    dialogue_cut(&c->dialogue, question);
}

static void command_system(struct chat *c, const char *arg)
{
    struct error err;
    if (!*arg)
        chat_note("%s", c->dialogue.system.len ? c->dialogue.system.data : "[there is no system prompt]");
    else if (dialogue_set_system(&c->dialogue, str_from(strcmp(arg, "-") ? arg : ""), &err))
        complain(c, &err);
    else
        chat_note("[the system prompt is %s]", strcmp(arg, "-") ? "set" : "taken away");
}

static void command_bye(struct chat *c, const char *arg)
{
    (void)arg;
    c->leaving = true;
}

// --- settings ---

// Appends what a setting is now.
static void print_setting(const struct chat *c, enum option_number number, struct text *out)
{
    bool any = false;
    for (int i = 0; c->o->given[number]; i++, any = true) {
        const size_t before = out->size;
        text_print(out, i ? ", " : " ");
        if (options_value(c->o, number, i, out))
            continue;
        out->size = before;
        break;
    }
    if (!any)
        text_print(out, " as the model and the defaults have it");
}

static void list_settings(const struct chat *c)
{
    struct text out = {0};
    for (int n = -1; (n = options_next(n, V_SET)) >= 0;) {
        if (!c->o->given[n])
            continue;
        text_print(&out, "%s:", options_name((enum option_number)n));
        print_setting(c, (enum option_number)n, &out);
        text_print(&out, "\n");
    }
    text_print(&out, "%s/set NAME explains a flag; the names:",
               out.size ? "" : "All is as the model and the defaults have it.\n");
    for (int n = -1; (n = options_next(n, V_SET)) >= 0;)
        text_print(&out, " %s", options_name((enum option_number)n));
    text_print(&out, "\n");
    show_lines(&out);
}

static void show_setting(const struct chat *c, enum option_number number)
{
    struct text out = {0};
    options_print_one(number, &out);
    text_print(&out, "  now:");
    print_setting(c, number, &out);
    text_print(&out, "\n");
    show_lines(&out);
}

static void confirm_setting(const struct chat *c, enum option_number number)
{
    struct text out = {0};
    print_setting(c, number, &out);
    if (!out.failed)
        chat_note("[%s:%.*s]", options_name(number), (int)MIN(out.size, (size_t)400), out.data);
    text_free(&out);
}

// Changes a setting; restores the old value if the new one conflicts with other settings.
static int change(struct chat *c, enum option_number number, const char *value, struct error *err)
{
    if (options_set(c->o, number, value, err))
        return -1;
    if (number == OPT_think && c->o->think)
        c->o->no_think = false;
    if (number == OPT_no_think && c->o->no_think)
        c->o->think = false;
    return chat_apply_options(c, err);
}

// Replaces the name of a setting in Ollama by ours, and with it a value that the name stands for.
static void take_foreign_name(char *name, size_t size, const char **value)
{
    static const struct {
        const char *foreign, *ours, *value; // value: NULL: as it was given
    } names[] = {
        {"temperature", "temp", NULL}, {"num_predict", "predict", NULL}, {"repeat_last_n", "repeat-last-n", NULL},
        {"nothink", "no-think", "on"}, {"nowordwrap", "no-wrap", "on"},  {"wordwrap", "no-wrap", "off"},
        {"think", "think", "on"},      {"quiet", "stats", "off"},        {"verbose", "stats", "on"},
    };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(name, names[i].foreign) && (!names[i].value || !**value)) {
            snprintf(name, size, "%s", names[i].ours);
            *value = names[i].value ? names[i].value : *value;
            return;
        }
}

static void command_set(struct chat *c, const char *arg)
{
    struct error err;
    char name[64];
    if (!strncmp(arg, "parameter ", 10)) // as in Ollama: /set parameter temperature 0.5
        arg += 10 + strspn(arg + 10, " \t");
    size_t n = strcspn(arg, " \t=");
    snprintf(name, sizeof name, "%.*s", (int)MIN(n, sizeof name - 1), arg);
    const char *value = arg + n + strspn(arg + n, " \t=");
    if (!*name) {
        list_settings(c);
        return;
    }
    if (!strcmp(name, "system")) {
        command_system(c, value);
        return;
    }
    take_foreign_name(name, sizeof name, &value);
    int number = options_find(name, V_SET);
    if (number < 0) {
        fail(&err, E_USAGE, "/set %s: %s; /set alone lists what can be set", name,
             options_find(name, V_CHAT) >= 0 ? "can be given at the start only" : "there is no such flag");
        complain(c, &err);
    } else if (!*value) {
        show_setting(c, (enum option_number)number);
    } else if (change(c, (enum option_number)number, strcmp(value, "\"\"") ? value : "", &err)) {
        complain(c, &err);
    } else {
        confirm_setting(c, (enum option_number)number);
    }
}

// --- files ---

// Expands "~/x" to a path in the home folder, as shells do.
static char *expand_home(const char *path)
{
    const char *home = getenv("HOME");
    char *out = NULL;
    if (path[0] != '~' || path[1] != '/' || !home)
        return strdup(path);
    return asprintf(&out, "%s%s", home, path + 1) < 0 ? NULL : out;
}

static int read_text(struct chat *c, const char *path, struct error *err)
{
    struct stat there;
    char *data;
    size_t size;
    if (!stat(path, &there) && !S_ISREG(there.st_mode))
        return fail(err, E_USAGE, "%s: not a regular file", path);
    if (!stat(path, &there) && there.st_size > READ_MAX)
        return fail(err, E_USAGE, "%s: %lld bytes, limit %d", path, (long long)there.st_size, READ_MAX);
    if (input_read_regular(path, INPUT_ATTACHMENT, &data, &size, err))
        return -1;
    int status = memchr(data, '\0', size) ? fail(err, E_USAGE, "%s: not a text, for it holds NUL bytes", path) : 0;
    if (!status && c->attached.size + size > input_limit(INPUT_MESSAGE))
        status = input_too_long(path, INPUT_MESSAGE, err);
    if (!status) {
        text_append(&c->attached, (struct str){data, size});
        if (size && data[size - 1] != '\n')
            text_append(&c->attached, STR_LIT("\n"));
        chat_note("[%s: %zu bytes go before your next message]", path, size);
    }
    free(data);
    return status;
}

static void command_read(struct chat *c, const char *arg)
{
    struct error err;
    char *path = expand_home(arg);
    if (!*arg   ? fail(&err, E_USAGE, "/read FILE: which file?")
        : !path ? fail(&err, E_MEMORY, "no memory for a path")
                : read_text(c, path, &err))
        complain(c, &err);
    free(path);
}

static char *session_path(struct chat *c, const char *arg, struct error *err)
{
    if (!*arg && !c->o->session) {
        fail(err, E_USAGE, "a name is needed: /save NAME, /load NAME");
        return NULL;
    }
    char *name = expand_home(*arg ? arg : c->o->session);
    char *path = name ? chat_session_path(name, err) : NULL;
    if (!name)
        fail(err, E_MEMORY, "no memory for a name");
    free(name);
    return path;
}

static void command_save(struct chat *c, const char *arg)
{
    struct error err;
    char *path = session_path(c, arg, &err);
    if (!path || outputs_check_inputs(path, c->o, c->o->model, &err) ||
        outputs_check_model(path, c->l.model->file, &err) || chat_session_save(c, path, &err))
        complain(c, &err);
    else
        chat_note("[%zu messages kept in %s]", c->dialogue.n, path);
    free(path);
}

static void command_load(struct chat *c, const char *arg)
{
    struct error err;
    char *path = session_path(c, arg, &err);
    if (!path || chat_session_load(c, path, &err))
        complain(c, &err);
    else
        chat_note("[%zu messages from %s]", c->dialogue.n, path);
    free(path);
}

// --- information ---

static void command_stats(struct chat *c, const char *arg)
{
    (void)arg;
    struct text out = {0};
    double prompt = c->prompt_ms > 0 ? (double)c->n_computed * 1e3 / c->prompt_ms : 0;
    double answer = c->generate_ms > 0 ? (double)c->n_generated * 1e3 / c->generate_ms : 0;
    text_print(&out, "answers: %lld; messages: %zu\n", (long long)c->n_turns, c->dialogue.n);
    text_print(&out, "prompt: %lld tokens computed, %.1f tokens/s\n", (long long)c->n_computed, prompt);
    text_print(&out, "answers: %lld tokens, %.1f tokens/s\n", (long long)c->n_generated, answer);
    text_print(&out, "context: %d of %d tokens\n", session_length(c->l.session, 0), session_n_ctx(c->l.session));
    sampler_describe(&c->sampling.params, &out);
    session_describe(c->l.session, &out);
    show_lines(&out);
}

static void command_help(struct chat *c, const char *arg)
{
    (void)arg;
    (void)c;
    struct text out = {0};
    for (const struct command *it = commands; it->name; it++) {
        char usage[64];
        snprintf(usage, sizeof usage, "/%s %s", it->name, it->arguments);
        text_print(&out, "  %-22s %s\n", usage, it->help);
    }
    text_print(&out, "\n"
                     "  \"\"\" ... \"\"\"            a message of several lines; Alt-Enter or Ctrl-J: a new line\n"
                     "  //...                  a message that begins with a slash\n"
                     "  Ctrl-C                 stops the answer, clears the line\n"
                     "  Ctrl-R, up, down       earlier lines\n"
                     "  Tab                    completes commands, names and files\n"
                     "  Ctrl-A E B F W U K Y T _, Alt-B F D Y _   as in Emacs; Ctrl-L clears the screen\n");
    show_lines(&out);
}

// --- executing commands ---

static const struct command *find_command(const char *name)
{
    if (!strcmp(name, "exit") || !strcmp(name, "quit"))
        name = "bye";
    if (!strcmp(name, "?"))
        name = "help";
    for (const struct command *it = commands; it->name; it++)
        if (!strcmp(it->name, name))
            return it;
    return NULL;
}

static const char *nearest(const char *name)
{
    const char *names[32];
    int n = 0;
    for (const struct command *it = commands; it->name && n < (int)COUNT_OF(names); it++)
        names[n++] = it->name;
    return options_nearest(name, names, n);
}

void chat_command(struct chat *c, struct str line)
{
    char *text = strndup(line.data + 1, line.len - 1);
    struct error err;
    if (!text) {
        fail(&err, E_MEMORY, "no memory for a command");
        complain(c, &err);
        return;
    }
    size_t end = strlen(text);
    while (end && strchr(" \t\r\n", text[end - 1]))
        text[--end] = '\0';
    size_t n = strcspn(text, " \t\n");
    char *arg = text + n + strspn(text + n, " \t\n");
    text[n] = '\0';
    const struct command *command = find_command(text);
    const size_t before = c->dialogue.n;
    if (command) {
        command->run(c, arg);
        if (c->dialogue.n != before)
            chat_keep_session(c);
    } else {
        const char *near = nearest(text);
        fail(&err, E_USAGE, "/%s: no such command%s%s; /help lists them, // begins a message with a slash", text,
             near ? ", did you mean /" : "", near ? near : "");
        complain(c, &err);
    }
    free(text);
}

// --- completion ---

static bool begins(const char *name, struct str word)
{
    return strlen(name) >= word.len && !memcmp(name, word.data, word.len);
}

static void complete_commands(struct str word, struct completions *out)
{
    for (const struct command *it = commands; it->name; it++)
        if (begins(it->name, word))
            completions_add(out, str_from(it->name));
}

static void complete_settings(struct str word, struct completions *out)
{
    for (int n = -1; (n = options_next(n, V_SET)) >= 0;)
        if (begins(options_name((enum option_number)n), word))
            completions_add(out, str_from(options_name((enum option_number)n)));
    if (begins("system", word))
        completions_add(out, STR_LIT("system"));
}

static bool is_folder(const char *folder, const char *name)
{
    char path[4096];
    struct stat there;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return !stat(path, &there) && S_ISDIR(there.st_mode);
}

// Adds the names in `folder` that begin with `word` and end with `tail`, without the tail.
static void complete_names(const char *folder, struct str word, const char *tail, struct completions *out)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));) {
        size_t n = strlen(e->d_name), m = strlen(tail);
        if ((e->d_name[0] == '.' && !(word.len && word.data[0] == '.')) || !begins(e->d_name, word) || n <= m ||
            strcmp(e->d_name + n - m, tail) || !strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        char name[300];
        snprintf(name, sizeof name, "%.*s%s", (int)(n - m), e->d_name, !m && is_folder(folder, e->d_name) ? "/" : "");
        completions_add(out, str_from(name));
    }
    closedir(dir);
}

static void complete_files(struct str word, struct completions *out)
{
    const char *slash = word.len ? memrchr(word.data, '/', word.len) : NULL;
    size_t n = slash ? (size_t)(slash - word.data) + 1 : 0;
    char typed[4096];
    if (n >= sizeof typed)
        return;
    snprintf(typed, sizeof typed, "%.*s", (int)n, word.data);
    char *folder = expand_home(n ? typed : "./");
    if (folder)
        complete_names(folder, (struct str){word.data + n, word.len - n}, "", out);
    free(folder);
    out->from -= word.len - n;
}

static void complete_sessions(struct str word, struct completions *out)
{
    char *path = history_state_path("sessions");
    if (path)
        complete_names(path, word, ".json", out);
    free(path);
    out->from -= word.len;
}

void chat_complete(void *arg, struct str before, struct completions *out)
{
    (void)arg;
    if (!before.len || before.data[0] != '/' || memchr(before.data, '\n', before.len))
        return;
    const char *space = memchr(before.data, ' ', before.len);
    if (!space) {
        out->from = 1;
        complete_commands((struct str){before.data + 1, before.len - 1}, out);
        return;
    }
    struct str command = {before.data + 1, (size_t)(space - before.data) - 1};
    struct str word = {space + 1, before.len - (size_t)(space + 1 - before.data)};
    bool path = word.len && memchr(word.data, '/', word.len);
    if (str_equal_z(command, "set") && !(word.len && memchr(word.data, ' ', word.len))) {
        out->from -= word.len;
        complete_settings(word, out);
    } else if (str_equal_z(command, "read") ||
               (path && (str_equal_z(command, "save") || str_equal_z(command, "load")))) {
        complete_files(word, out);
    } else if (str_equal_z(command, "save") || str_equal_z(command, "load")) {
        complete_sessions(word, out);
    }
}
