// quern chat: a dialogue with a model, on a terminal or in a pipe.
#include "cmd/chat/chat_verb.h"
#include "cmd/confine.h"
#include "cmd/input.h"
#include "cmd/template_choice.h"
#include "cmd/terminal/terminal.h"
#include "engine/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void chat_note(const char *fmt, ...)
{
    char text[900];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    terminal_aside(text);
}

struct str chat_opening(struct str text)
{
    enum { SHOWN = 60 };
    size_t n = MIN(text.len, (size_t)SHOWN);
    const char *end = n ? memchr(text.data, '\n', n) : NULL;
    n = end ? (size_t)(end - text.data) : n;
    while (n && n < text.len && ((uint8_t)text.data[n] & 0xc0) == 0x80)
        n--;
    return (struct str){text.data, n};
}

// --- the template ---

static int open_template(struct chat *c, struct error *err)
{
    const struct model *m = c->l.model;
    c->plain = template_choice_plain(c->o) || !template_choice_any(c->o, m);
    if (template_choice_any(c->o, m))
        return template_choice_open(&c->chat, c->o, m, err);
    terminal_note("quern: note: this model has no chat template; turns are written as \"User: ...\" and \"Assistant: "
                  "...\" (--chat-template chatml or --chat-template-file FILE choose another form)");
    return template_choice_named(&c->chat, "plain", m, err);
}

// --- answers ---

static void note_statistics(struct chat *c, const struct dialogue_result *r)
{
    if (!(c->console.typed && terminal_is_tty(STDERR_FILENO)) && !c->o->verbose && !c->o->stats)
        return;
    chat_note("[prompt: %d new of %d tokens, %.1f tokens/s | answer: %lld tokens, %.1f tokens/s | context: %d of %d]",
              r->n_computed, r->n_prompt, per_second(r->n_computed, r->prompt_ms), (long long)r->n_generated,
              per_second((double)r->n_steps, r->generate_ms), r->n_context, session_n_ctx(c->l.session));
}

static void note_end(struct chat *c, const struct dialogue_result *r)
{
    if (r->reason == STOP_CONTEXT || r->reason == STOP_LENGTH)
        constrained_note_end(&c->form);
    if (r->reason == STOP_INTERRUPTED && c->console.typed)
        chat_note("[stopped]");
    if (r->reason == STOP_CONTEXT)
        terminal_note("quern: note: the context of %d tokens is full, and the answer is cut: /undo takes back the last "
                      "turn, /clear all; -c N gives more room, --context-shift lets the oldest turns go",
                      session_n_ctx(c->l.session));
}

static struct chat *chat_of(struct chat_view *v)
{
    return (struct chat *)(void *)((char *)v - offsetof(struct chat, view));
}

static void show_prompt(void *arg, bool over)
{
    load_show_prompt(&chat_of(arg)->l, over);
}

static void note_shift(void *arg, size_t n, int n_tokens)
{
    struct chat_view *v = arg;
    if (v->terminal && !v->ended_line)
        terminal_write_fd(STDERR_FILENO, STR_LIT("\n"));
    chat_note("[context full: the oldest %zu messages, %d tokens, are no longer part of it]", n, n_tokens);
}

static void count(struct chat *c, const struct dialogue_result *r)
{
    c->last = *r;
    c->n_turns++;
    c->n_computed += r->n_computed;
    c->n_generated += r->n_generated;
    c->prompt_ms += r->prompt_ms;
    c->generate_ms += r->generate_ms;
}

void chat_keep_session(struct chat *c)
{
    struct error err;
    if (!c->session_path)
        return;
    c->unkept = chat_session_save(c, c->session_path, &err) != 0;
    if (c->unkept)
        terminal_note("quern: warning: the session is not kept: %s", err.text);
}

static int thinking_of(const struct options *o)
{
    return o->no_think ? -1 : o->think ? 1 : 0;
}

static struct dialogue_settings settings_of(struct chat *c)
{
    struct dialogue_settings s = {
        .thinking = c->o->no_think ? -1
                    : c->o->think  ? 1
                                   : 0,
        .shift = c->o->context_shift,
        .emit = chat_view_emit,
        .shifted = note_shift,
        .on_prompt = show_prompt,
        .arg = &c->view,
    };
    s.base.n_logprobs = -1;
    sampling_apply(&c->sampling, c->o, &s.base);
    s.base.sampler.seed += c->n_again;
    s.base.rule = constrained_rule(&c->form);
    s.base.speculator = c->ahead.speculator;
    s.base.cancel = &terminal_interrupted;
    return s;
}

static void report(struct chat *c, const struct error *err)
{
    c->failed = true;
    if (err->code == E_INTERRUPTED)
        chat_note("[stopped before the answer; the message is taken back]");
    else if (err->text[0])
        terminal_note("quern: %s", err->text);
}

// A GPU that has failed answers no more. Nor does a pipe, whose reader counts on all answers, go on without memory.
static void end_if_fatal(struct chat *c, enum err_code code)
{
    if (code != E_GPU && (code != E_MEMORY || c->console.typed))
        return;
    c->fatal = code;
    c->leaving = true;
    if (c->session_path)
        chat_note("[the dialogue up to here is in %s]", c->session_path);
}

void chat_answer(struct chat *c)
{
    struct error err = {0};
    struct dialogue_result r;
    struct dialogue_settings s = settings_of(c);
    size_t question = dialogue_last_question(&c->dialogue), n = c->dialogue.n - question;
    if (c->console.edited)
        terminal_set_mode(MODE_ANSWERING);
    c->view.wraps = !c->o->no_wrap;
    chat_view_begin(&c->view, c->o->hide_thinking);
    int status = dialogue_answer(&c->dialogue, &s, &r, &err);
    if (!status || c->view.begun)
        chat_view_end(&c->view);
    if (c->view.error.code) {
        err = c->view.error; // stdout was closed: nobody reads the answers
        c->leaving = true;
        status = -1;
    }
    if (status) {
        dialogue_cut(&c->dialogue, c->dialogue.n - MIN(n, c->dialogue.n));
        report(c, &err);
        end_if_fatal(c, err.code);
    } else {
        count(c, &r);
        note_end(c, &r);
        note_statistics(c, &r);
        chat_keep_session(c);
    }
    // in a pipe an interrupt ends the chat
    if (atomic_exchange(&terminal_interrupted, false) && !c->console.typed)
        c->leaving = c->interrupted = true;
}

void chat_send(struct chat *c, struct str text)
{
    struct error err;
    text_append(&c->attached, text);
    struct str message = {c->attached.data, c->attached.size};
    int status = c->attached.failed ? fail(&err, E_MEMORY, "no memory for the message")
                                    : dialogue_add(&c->dialogue, ROLE_USER, message, (struct str){0}, &err);
    text_free(&c->attached);
    if (status)
        report(c, &err);
    else
        chat_answer(c);
}

// --- the loop ---

static void greet(const struct chat *c)
{
    if (!c->console.typed || !terminal_is_tty(STDERR_FILENO))
        return;
    chat_note("%s, context %d tokens. /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.", c->l.name,
              session_n_ctx(c->l.session));
}

static bool is_blank(struct str s)
{
    return strspn(s.data, " \t\r\n") >= s.len;
}

// Says which dialogue goes on, or where the new one will be kept.
static void note_session(const struct chat *c)
{
    const size_t last = dialogue_last_question(&c->dialogue);
    if (last < c->dialogue.n) {
        const struct str text = c->dialogue.messages[last].content, shown = chat_opening(text);
        chat_note("[%zu messages from %s go on; the last question was: %.*s%s]", c->dialogue.n, c->session_path,
                  STR_ARG(shown), shown.len < text.len ? "..." : "");
    } else if (c->session_path && (c->console.typed || c->o->verbose)) {
        chat_note("[a new dialogue, kept in %s]", c->session_path);
    }
}

// Handles a line that is not empty. Two slashes at the beginning stand for a message that begins with one.
static void take_line(struct chat *c, struct text *line)
{
    struct error err;
    text_append(line, (struct str){"", 1}); // strspn needs a NUL
    if (line->failed) {
        fail(&err, E_MEMORY, "no memory for a line");
        report(c, &err);
        return;
    }
    struct str text = {line->data, line->size - 1};
    if (is_blank(text) && !c->attached.size)
        return;
    console_remember(&c->console, text);
    if (text.len && text.data[0] == '/' && !(text.len > 1 && text.data[1] == '/'))
        chat_command(c, text);
    else if (text.len > 1 && text.data[0] == '/')
        chat_send(c, (struct str){text.data + 1, text.len - 1});
    else
        chat_send(c, text);
}

static int converse(struct chat *c, struct error *err)
{
    struct text line = {0};
    bool hinted = false;
    int status = 0;
    while (!c->leaving) {
        enum console_event event;
        status = console_read(&c->console, "> ", &line, &event, err);
        if (status || event == CONSOLE_END)
            break;
        if (event == CONSOLE_INTERRUPT && hinted)
            chat_note("[Ctrl-D or /bye leaves]");
        hinted = event == CONSOLE_INTERRUPT;
        if (event == CONSOLE_LINE)
            take_line(c, &line);
        if (atomic_load(&terminal_terminated))
            c->leaving = true;
    }
    text_free(&line);
    return status;
}

static int first_message(const struct options *o, char **data, struct str *text, struct error *err)
{
    *text = (struct str){0};
    if (!o->prompt && !o->file && !o->args.n)
        return 0;
    if (input_take(o, INPUT_FIRST_MESSAGE, data, text, err))
        return -1;
    if (*data && text->len && text->data[text->len - 1] == '\n')
        text->len--;
    return 0;
}

// --- the verb ---

// Opens the constraint on answers. Rendering a first prompt shows whether the model begins with reasoning, after
// which the constraint applies.
static int open_form(struct chat *c, struct constrained *form, struct error *err)
{
    struct dialogue first;
    struct text prompt = {0};
    dialogue_open(&first, c->l.model, c->l.session, c->chat);
    int status = dialogue_add(&first, ROLE_USER, STR_LIT("?"), (struct str){0}, err) ||
                         dialogue_prompt(&first, thinking_of(c->o), &prompt, err)
                     ? -1
                     : 0;
    if (!status) {
        struct answer_style style = chat_answer_style(c->chat, (struct str){prompt.data, prompt.size}, false);
        status = constrained_open(form, c->o, c->l.model, &style, err);
    }
    dialogue_close(&first);
    text_free(&prompt);
    return status;
}

int chat_apply_options(struct chat *c, struct error *err)
{
    struct sampling now = {0};
    struct constrained form = {0};
    if (sampling_take(&now, c->o, c->l.model, err) || open_form(c, &form, err)) {
        sampling_free(&now);
        constrained_close(&form);
        return -1;
    }
    constrained_close(&c->form);
    c->form = form;
    if (!c->o->given[OPT_seed] && c->sampling.stops)
        now.params.seed = c->sampling.params.seed; // a chat keeps the seed it began with
    if (c->plain) {
        struct str *stops = realloc(now.stops, ((size_t)now.n_stops + 1) * sizeof *stops);
        if (stops) {
            now.stops = stops;
            now.stops[now.n_stops++] = template_plain_stop;
        }
    }
    sampling_free(&c->sampling);
    c->sampling = now;
    return 0;
}

static int check_flags(const struct options *o, struct error *err)
{
    if (o->think && o->no_think)
        return fail(err, E_USAGE, "--think and --no-think: give one of them");
    if (o->cache && !o->session)
        return fail(err, E_USAGE, "--cache keeps the computed state of a session: give --session FILE, too");
    return 0;
}

// Finds the file of --session, and whether it can be written and no other program does so: that is said before an answer
// would be lost.
static int find_session(struct chat *c, struct error *err)
{
    if (!c->o->session)
        return 0;
    c->session_path = chat_session_path(c->o->session, err);
    if (!c->session_path)
        return fail_prefix(err, "--session");
    return chat_session_try(c->session_path, err) ? -1 : session_lock_take(&c->lock, c->session_path, NULL, err);
}

// Takes up the dialogue of --session where it was left.
static int open_session(struct chat *c, struct error *err)
{
    return !c->session_path || access(c->session_path, F_OK) ? 0 : chat_session_load(c, c->session_path, err);
}

static int open_chat(struct chat *c, struct error *err)
{
    if (load_model(&c->l, c->o, err) || load_session(&c->l, c->o, 0, speculation_rows(c->o), err) ||
        speculation_open(&c->ahead, c->o, &c->l, err) || open_template(c, err) || chat_apply_options(c, err))
        return -1;
    dialogue_open(&c->dialogue, c->l.model, c->l.session, c->chat);
    if (open_session(c, err))
        return -1;
    return c->o->system ? dialogue_set_system(&c->dialogue, str_from(c->o->system), err) : 0;
}

static int chat(struct chat *c, struct error *err)
{
    char *data = NULL;
    struct str first;
    int status =
        check_flags(c->o, err) || first_message(c->o, &data, &first, err) || find_session(c, err) || open_chat(c, err)
            ? -1
            : 0;
    if (!status) {
        terminal_set_phase(PHASE_ANSWERING);
        console_open(&c->console, chat_complete, c);
        c->view.terminal = terminal_is_tty(STDOUT_FILENO);
        c->view.dims = c->view.terminal && c->console.colours;
        greet(c);
        note_session(c);
        if (first.len)
            chat_send(c, first);
        status = converse(c, err);
        console_close(&c->console);
    }
    if (!status && (c->interrupted || atomic_load(&terminal_terminated)))
        status = fail(err, E_INTERRUPTED, "ended by a signal");
    text_free(&c->attached);
    session_lock_release(&c->lock);
    free(c->session_path);
    dialogue_close(&c->dialogue);
    chat_close(c->chat);
    constrained_close(&c->form);
    sampling_free(&c->sampling);
    speculation_close(&c->ahead);
    load_close(&c->l);
    free(data);
    return status;
}

int cmd_chat(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    if (options_parse(&o, VERB_CHAT, argc, argv, &err))
        return verb_fail(&err);
    confine(&o);
    struct chat c = {.o = &o};
    int status = chat(&c, &err);
    options_free(&o);
    if (status && err.code == E_INTERRUPTED)
        return E_INTERRUPTED;
    if (!status && c.view.error.code) // reported where it was met
        return (int)c.view.error.code;
    if (!status && c.fatal)
        return (int)c.fatal;
    if (!status && c.unkept)
        return E_IO;
    return status ? verb_fail(&err) : c.failed && !c.console.typed ? E_ITEMS : E_OK;
}
