// Saves and loads a dialogue as a JSON file:
//   {"format": "quern-session", "version": 1, "model": NAME, "settings": {FLAG: TEXT or [TEXT...]},
//    "messages": [{"role", "content", "reasoning_content"}...]}
// The settings are the flags that were given. Messages have the form of OpenAI's API; the system prompt comes first.
#include "cmd/chat/chat_verb.h"
#include "cmd/input.h"
#include "cmd/terminal/terminal.h"
#include "engine/file_replace.h"
#include "engine/json.h"
#include "engine/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char format_name[] = "quern-session";
enum { VERSION = 1, FILE_MAX = 256 << 20 };

char *chat_session_path(const char *name, struct error *err)
{
    const size_t n = strlen(name);
    const bool is_path = strchr(name, '/') || (n > 5 && !strcmp(name + n - 5, ".json")) || !access(name, F_OK);
    enum { NAME_MOST = 200 }; // bytes, so that other files can stand beside it
    char below[NAME_MOST + sizeof "sessions/.json"], *path;
    if (!is_path && n > NAME_MOST) {
        fail(err, E_USAGE, "the name of a session has at most %d bytes; a path has a slash", NAME_MOST);
        return NULL;
    }
    if (!*name || !strcmp(name, "-")) {
        fail(err, E_USAGE, "\"%s\" is no session; a name or a path is wanted", name);
        return NULL;
    }
    snprintf(below, sizeof below, "sessions/%.*s.json", NAME_MOST, name);
    errno = 0;
    path = is_path ? strdup(name) : history_state_path(below);
    if (!path && errno == ENOMEM)
        fail(err, E_MEMORY, "no memory for the name of a session");
    else if (!path)
        fail(err, E_IO, "%s: no place to keep it below $XDG_STATE_HOME or $HOME%s%s", name, errno ? ": " : "",
             errno ? strerror(errno) : "");
    return path;
}

static const char *model_name(const struct chat *c)
{
    const char *slash = c->o->model_name ? NULL : strrchr(c->l.name, '/');
    return slash ? slash + 1 : c->l.name;
}

// --- writing ---

static int put_text(struct arena *arena, struct value *dict, const char *key, struct str text, struct error *err)
{
    return value_dict_set(arena, dict, key, value_string(text), err);
}

static int list_settings(const struct chat *c, struct arena *arena, struct value *out, struct error *err)
{
    if (value_dict_new(out, arena, err))
        return -1;
    for (int n = -1; (n = options_next(n, V_SET)) >= 0;) {
        struct value list, text;
        struct text value = {0};
        if (!c->o->given[n])
            continue;
        int status = value_list_new(&list, arena, err);
        for (int i = 0; !status && options_value(c->o, (enum option_number)n, i, &value); i++, value.size = 0)
            status = value.failed ? fail(err, E_MEMORY, "no memory for a setting")
                                  : value_string_copy(&text, arena, (struct str){value.data, value.size}, err) ||
                                        value_list_push(arena, &list, text, err);
        text_free(&value);
        if (status || value_dict_set(arena, out, options_name((enum option_number)n),
                                     value_count(&list) == 1 ? list.list->items[0] : list, err))
            return -1;
    }
    return 0;
}

static int add_message(struct arena *arena, struct value *list, const char *role, struct str content,
                       struct str reasoning, struct error *err)
{
    struct value m;
    if (value_dict_new(&m, arena, err) || put_text(arena, &m, "role", str_from(role), err) ||
        put_text(arena, &m, "content", content, err) ||
        (reasoning.len && put_text(arena, &m, "reasoning_content", reasoning, err)))
        return -1;
    return value_list_push(arena, list, m, err);
}

static int list_messages(const struct dialogue *d, struct arena *arena, struct value *out, struct error *err)
{
    int status = value_list_new(out, arena, err);
    if (!status && d->system.len)
        status = add_message(arena, out, "system", d->system, (struct str){0}, err);
    for (size_t i = 0; !status && i < d->n; i++) {
        const struct dialogue_message *m = &d->messages[i];
        status = add_message(arena, out, dialogue_role_name[m->role], m->content, m->reasoning, err);
    }
    return status;
}

static int print_session(const struct chat *c, struct text *out, struct error *err)
{
    struct arena arena = {0};
    struct value all, settings, messages;
    const struct json_style style = {.indented = true, .indent = STR_LIT(" ")};
    int status = value_dict_new(&all, &arena, err) || list_settings(c, &arena, &settings, err) ||
                         list_messages(&c->dialogue, &arena, &messages, err) ||
                         put_text(&arena, &all, "format", str_from(format_name), err) ||
                         value_dict_set(&arena, &all, "version", value_int(VERSION), err) ||
                         put_text(&arena, &all, "model", str_from(model_name(c)), err) ||
                         value_dict_set(&arena, &all, "settings", settings, err) ||
                         value_dict_set(&arena, &all, "messages", messages, err) ||
                         json_write_text(&all, &style, out, err)
                     ? -1
                     : 0;
    text_append(out, STR_LIT("\n"));
    arena_free(&arena);
    return !status && out->failed ? fail(err, E_MEMORY, "no memory for the session") : status;
}

// Whether this is the file of --session, under whatever name.
static bool is_of_chat(const struct chat *c, const char *path)
{
    struct stat own, named;
    return c->session_path && (!strcmp(path, c->session_path) ||
                               (!stat(c->session_path, &own) && !stat(path, &named) && file_is_same(&own, &named)));
}

static bool is_unchanged(const struct stat *a, const struct stat *b)
{
    return file_is_same(a, b) && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

// Refuses to replace the file of --session if it is not as this chat has read or written it. One that has vanished is
// written again.
static int check_unchanged(const struct chat *c, const char *path, struct error *err)
{
    struct stat now;
    if (!is_of_chat(c, path) || stat(path, &now) || (c->was_kept && is_unchanged(&c->kept, &now)))
        return 0;
    return fail(err, E_USAGE,
                "%s: was %s by somebody else since this chat %s, and is not replaced; /save NAME keeps this dialogue "
                "elsewhere",
                path, c->was_kept ? "changed" : "made", c->was_kept ? "had read or written it" : "began");
}

// A file that is there keeps its permissions; a new one is for its owner alone.
static int write_file(struct chat *c, const char *path, const struct text *text, struct error *err)
{
    struct file_replace f;
    struct stat old, written, named;
    const bool is_there = !stat(path, &old), is_own = is_of_chat(c, path);
    if (file_replace_begin(&f, path, err))
        return -1;
    if (is_there)
        file_replace_keep_mode(&f, &old);
    if (file_replace_write(&f, text->data, text->size, err)) {
        file_replace_abort(&f);
        return -1;
    }
    const bool known = !fstat(f.fd, &written);
    if (file_replace_end(&f, err))
        return -1;
    const bool found = !stat(path, &named);
    if (!is_own || (!known && !found))
        return 0;
    // some file systems set the time only now; another file or size is already somebody else's
    const bool settled = found && (!known || (file_is_same(&written, &named) && written.st_size == named.st_size));
    c->kept = settled ? named : written;
    c->was_kept = true;
    return 0;
}

int chat_session_try(const char *path, struct error *err)
{
    struct file_replace f;
    if (file_replace_begin(&f, path, err))
        return -1;
    file_replace_abort(&f);
    return 0;
}

// --- the KV cache beside it ---

static char *cache_path(const char *path)
{
    char *out;
    return asprintf(&out, "%s.kv", path) < 0 ? NULL : out;
}

// A key of what the KV cache depends on besides the model.
static uint64_t salt_of(const struct chat *c)
{
    return (uint64_t)c->o->exact | (uint64_t)c->o->blas << 1;
}

static void save_cache(struct chat *c, const char *path)
{
    struct error err;
    char *cache = cache_path(path);
    if (cache && snapshot_save(cache, c->l.model, c->l.session, 0, salt_of(c), &err))
        terminal_note("quern: warning: no cache is kept: %s", err.text);
    free(cache);
}

static void load_cache(struct chat *c, const char *path)
{
    struct error err = {0};
    struct stat there;
    int n = 0;
    char *cache = cache_path(path);
    if (cache && !stat(cache, &there) && snapshot_load(cache, c->l.model, c->l.session, 0, salt_of(c), &n, &err))
        terminal_note("quern: warning: %s; %s is computed anew", err.text,
                      n ? "the rest of the dialogue" : "the dialogue");
    else if (c->o->verbose && n)
        terminal_note("cache: %d tokens", n);
    free(cache);
}

// A file that is there and holds something else than a session is not replaced: /save takes any name. The file of --session
// was read when the chat began.
static int check_own(const struct chat *c, const char *path, struct error *err)
{
    enum { HEAD = 4096 }; // bytes in which a session says what it is
    char head[HEAD];
    if (c->session_path && !strcmp(path, c->session_path))
        return 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const ssize_t n = fd < 0 ? 0 : read(fd, head, sizeof head);
    if (fd >= 0)
        close(fd);
    if (n > 0 && !memmem(head, (size_t)n, format_name, sizeof format_name - 1))
        return fail(err, E_USAGE, "%s: holds something else than a session, and is not replaced; name another file",
                    path);
    return 0;
}

int chat_session_save(struct chat *c, const char *path, struct error *err)
{
    struct text text = {0};
    struct session_lock lock;
    if (check_own(c, path, err) || session_lock_take(&lock, path, &c->lock, err))
        return -1;
    int status =
        check_unchanged(c, path, err) || print_session(c, &text, err) || write_file(c, path, &text, err) ? -1 : 0;
    text_free(&text);
    if (!status && c->o->cache)
        save_cache(c, path);
    session_lock_release(&lock);
    return status;
}

// --- reading ---

static int bad(const char *what, struct error *err)
{
    return fail(err, E_USAGE, "not a session of quern: %s", what);
}

static int check_head(const struct value *all, struct error *err)
{
    const struct value *format = value_get(all, "format"), *version = value_get(all, "version");
    if (!value_is(format, VALUE_STRING) || !str_equal_z(format->text, format_name))
        return bad("there is no \"format\": \"quern-session\"", err);
    if (!value_is(version, VALUE_INT) || version->integer < 1)
        return bad("it has no version", err);
    if (version->integer > VERSION)
        return fail(err, E_USAGE, "a session of version %lld, this quern knows %d", (long long)version->integer,
                    VERSION);
    return 0;
}

static struct str text_of(const struct value *message, const char *key)
{
    const struct value *v = value_get(message, key);
    return value_is(v, VALUE_STRING) ? v->text : (struct str){0};
}

// Reads a message. A system prompt must come first; other roles may follow in any order.
static int take_message(struct dialogue *d, const struct value *m, bool first, struct error *err)
{
    struct str role = text_of(m, "role");
    if (!value_is(value_get(m, "content"), VALUE_STRING))
        return bad("a message without content", err);
    if (first && str_equal_z(role, "system"))
        return dialogue_set_system(d, text_of(m, "content"), err);
    for (int i = ROLE_USER; i <= ROLE_ASSISTANT; i++)
        if (str_equal_z(role, dialogue_role_name[i]))
            return dialogue_add(d, (enum dialogue_role)i, text_of(m, "content"), text_of(m, "reasoning_content"), err);
    return bad("a message with a role that is neither user nor assistant", err);
}

static int take_messages(struct dialogue *d, const struct value *list, struct error *err)
{
    if (!value_is(list, VALUE_LIST))
        return bad("it has no messages", err);
    for (size_t i = 0; i < value_count(list); i++)
        if (take_message(d, &list->list->items[i], i == 0, err))
            return -1;
    return 0;
}

// Reads a setting. A flag given on the command line takes precedence; an unknown flag is noted and skipped.
static int take_setting(struct chat *c, struct str name, const struct value *value, struct error *err)
{
    char key[64];
    snprintf(key, sizeof key, "%.*s", STR_ARG(name));
    int number = options_find(key, V_SET);
    if (number < 0) {
        terminal_note("quern: note: the session sets %s, which this quern does not know", key);
        return 0;
    }
    if (c->o->given[number])
        return 0;
    size_t n = value_is(value, VALUE_LIST) ? value_count(value) : 1;
    for (size_t i = 0; i < n; i++) {
        const struct value *v = value_is(value, VALUE_LIST) ? &value->list->items[i] : value;
        if (!value_is(v, VALUE_STRING) || memchr(v->text.data, '\0', v->text.len))
            return bad("a setting that is no text", err);
        char *text = strndup(v->text.data, v->text.len);
        int status = text ? options_set(c->o, (enum option_number)number, text, err)
                          : fail(err, E_MEMORY, "no memory for a setting");
        free(text);
        if (status)
            return -1;
    }
    return 0;
}

static int take_settings(struct chat *c, const struct value *settings, struct error *err)
{
    if (settings && !value_is(settings, VALUE_DICT))
        return bad("its settings are no object", err);
    for (size_t i = 0; i < value_count(settings); i++) {
        const struct value_entry *e = &settings->dict->entries[i];
        if (value_is(&e->key, VALUE_STRING) && take_setting(c, e->key.text, &e->value, err))
            return -1;
    }
    return chat_apply_options(c, err);
}

// Notes the first member that is none of quern's, which the next save leaves out. Returns whether there is one.
static bool note_foreign(const struct value *dict, const char *const *own, size_t n_own)
{
    for (size_t i = 0; value_is(dict, VALUE_DICT) && i < value_count(dict); i++) {
        const struct value *key = &dict->dict->entries[i].key;
        size_t k = 0;
        while (k < n_own && !str_equal_z(key->text, own[k]))
            k++;
        if (k < n_own)
            continue;
        terminal_note("quern: note: the session has \"%.*s\", which this quern does not know and does not keep",
                      STR_ARG(key->text));
        return true;
    }
    return false;
}

static void note_members(const struct value *all)
{
    static const char *const members[] = {"format", "version", "model", "settings", "messages"};
    static const char *const of_messages[] = {"role", "content", "reasoning_content"};
    const struct value *messages = value_get(all, "messages");
    bool noted = note_foreign(all, members, COUNT_OF(members));
    for (size_t i = 0; !noted && i < value_count(messages); i++)
        noted = note_foreign(&messages->list->items[i], of_messages, COUNT_OF(of_messages));
}

static void note_model(const struct chat *c, const struct value *all)
{
    struct str name = text_of(all, "model");
    if (name.len && !str_equal_z(name, model_name(c)))
        terminal_note("quern: note: the session was kept with %.*s, and goes on with %s", STR_ARG(name), model_name(c));
}

static int take_session(struct chat *c, struct str text, struct error *err)
{
    struct arena arena = {0};
    struct json_reader reader = {.arena = &arena};
    struct value all;
    struct dialogue now;
    dialogue_open(&now, c->l.model, c->l.session, c->chat);
    int status = json_read(&all, &reader, text, err) || check_head(&all, err) ||
                         take_messages(&now, value_get(&all, "messages"), err) ||
                         take_settings(c, value_get(&all, "settings"), err)
                     ? -1
                     : 0;
    if (!status) {
        struct dialogue old = c->dialogue;
        c->dialogue = now;
        now = old;
        note_model(c, &all);
        note_members(&all);
    }
    dialogue_close(&now);
    arena_free(&arena);
    return status;
}

int chat_session_load(struct chat *c, const char *path, struct error *err)
{
    struct stat there;
    char *data;
    size_t size;
    const bool found = !stat(path, &there); // before it is read, so that no later change is missed
    if (found && (!S_ISREG(there.st_mode) || there.st_size > FILE_MAX))
        return fail(err, E_USAGE, "%s: not a session of quern: no regular file of less than %d MiB", path,
                    FILE_MAX >> 20);
    if (input_read_regular(path, INPUT_SESSION, &data, &size, err))
        return -1;
    int status = take_session(c, (struct str){data, size}, err);
    free(data);
    if (status)
        return fail_prefix(err, path);
    if (found && is_of_chat(c, path)) {
        c->kept = there;
        c->was_kept = true;
    }
    load_cache(c, path);
    return 0;
}
