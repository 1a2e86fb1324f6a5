// Checks the names of the fields of a body against known_fields, and then the values that are used.
#include "cmd/batch/batch_body.h"
#include "cmd/batch/batch_guide.h"
#include "cmd/batch/batch_tools.h"
#include "cmd/batch/batch_values.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

// --- single fields ---

// Digits that JSON has not kept as an integer.
static bool is_of_64_bits(struct str digits, uint64_t *out)
{
    if (digits.len > 20 || digits.data[0] == '-')
        return false;
    errno = 0;
    *out = strtoull(digits.data, NULL, 10);
    return !errno;
}

static int take_seed(const struct value *body, struct row_settings *s, struct error *err)
{
    const struct value *v = body_get(body, "seed");
    if (!v)
        return 0;
    if (v->kind == VALUE_INT)
        s->seed = (uint64_t)v->integer;
    else if (v->kind != VALUE_BIGINT || !is_of_64_bits(v->text, &s->seed))
        return body_wrong_kind("seed", v, "a whole number of 64 bits", err);
    s->has_seed = true;
    return 0;
}

static int push_stop(struct batch_row *row, const struct value *v, struct error *err)
{
    if (!value_is(v, VALUE_STRING))
        return body_wrong_kind("stop", v, "a string or a list of strings", err);
    if (!v->text.len)
        return fail(err, E_USAGE, "stop: an empty string");
    if (row->n_stops == ROW_STOPS_MOST)
        return fail(err, E_USAGE, "stop: more than %d strings", ROW_STOPS_MOST);
    row->stops[row->n_stops++] = v;
    return 0;
}

static int take_stops(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *v = body_get(body, "stop");
    if (!v || v->kind == VALUE_STRING)
        return v ? push_stop(row, v, err) : 0;
    if (v->kind != VALUE_LIST)
        return push_stop(row, v, err);
    for (size_t i = 0; i < v->list->n; i++)
        if (push_stop(row, &v->list->items[i], err))
            return -1;
    return 0;
}

static int take_stop_ids(struct batch_row *row, const struct value *body, struct error *err)
{
    if (body_take_kind(body, "stop_token_ids", VALUE_LIST, "a list of token ids", &row->stop_ids, err))
        return -1;
    for (size_t i = 0; i < value_count(row->stop_ids); i++) {
        const struct value *id = &row->stop_ids->list->items[i];
        if (id->kind != VALUE_INT)
            return fail(err, E_USAGE, "stop_token_ids[%zu]: %s where a token id is wanted", i, value_kind_name(id));
    }
    return 0;
}

// --- bodies ---

enum { IN_CHAT = 1, IN_COMPLETION = 2, IN_EMBEDDING = 4, IN_BOTH = IN_CHAT | IN_COMPLETION };

// Every field of a body that has a meaning, or that may be ignored because it does not change an answer. Fields of
// which only some values are supported are checked in check_refused.
static const struct {
    const char *name;
    unsigned kinds;
} known_fields[] = {
    {"model", IN_BOTH | IN_EMBEDDING},
    {"user", IN_BOTH | IN_EMBEDDING},
    {"metadata", IN_BOTH},
    {"store", IN_BOTH},
    {"service_tier", IN_BOTH},
    {"safety_identifier", IN_BOTH},
    {"prompt_cache_key", IN_BOTH},
    {"stream", IN_BOTH},
    {"stream_options", IN_BOTH},
    {"temperature", IN_BOTH},
    {"top_p", IN_BOTH},
    {"top_k", IN_BOTH},
    {"min_p", IN_BOTH},
    {"frequency_penalty", IN_BOTH},
    {"presence_penalty", IN_BOTH},
    {"repeat_penalty", IN_BOTH},
    {"repetition_penalty", IN_BOTH},
    {"max_tokens", IN_BOTH},
    {"max_completion_tokens", IN_CHAT},
    {"min_tokens", IN_BOTH},
    {"stop", IN_BOTH},
    {"stop_token_ids", IN_BOTH},
    {"seed", IN_BOTH},
    {"n", IN_BOTH},
    {"best_of", IN_BOTH},
    {"use_beam_search", IN_BOTH},
    {"logits_processors", IN_BOTH},
    {"skip_special_tokens", IN_BOTH},
    {"spaces_between_special_tokens", IN_BOTH},
    {"include_stop_str_in_output", IN_BOTH},
    {"add_special_tokens", IN_BOTH},
    {"echo", IN_COMPLETION},
    {"suffix", IN_COMPLETION},
    {"prompt", IN_COMPLETION},
    {"messages", IN_CHAT},
    {"tools", IN_CHAT},
    {"tool_choice", IN_CHAT},
    {"parallel_tool_calls", IN_CHAT},
    {"reasoning_effort", IN_CHAT},
    {"chat_template_kwargs", IN_CHAT},
    {"logprobs", IN_BOTH},
    {"top_logprobs", IN_CHAT},
    {"prompt_logprobs", IN_BOTH},
    {"logit_bias", IN_BOTH},
    {"response_format", IN_BOTH},
    {"guided_json", IN_BOTH},
    {"guided_grammar", IN_BOTH},
    {"guided_regex", IN_BOTH},
    {"guided_choice", IN_BOTH},
    {"grammar", IN_BOTH},
    {"structured_outputs", IN_BOTH},
    {"add_generation_prompt", IN_CHAT},
    {"continue_final_message", IN_CHAT},
    {"ignore_eos", IN_BOTH},
    {"return_token_ids", IN_BOTH},
    {"input", IN_EMBEDDING},
    {"encoding_format", IN_EMBEDDING},
    {"dimensions", IN_EMBEDDING},
};

static int check_fields(const struct value *body, enum row_kind kind, bool ignore_unknown, struct error *err)
{
    static const unsigned bits[] = {
        [ROW_COMPLETION] = IN_COMPLETION, [ROW_CHAT] = IN_CHAT, [ROW_EMBEDDING] = IN_EMBEDDING};
    if (!ignore_unknown && body_get(body, "prompt") && body_get(body, "messages"))
        return fail(err, E_USAGE, "a body has one of prompt and messages, this one has both");
    for (size_t i = 0; i < body->dict->n; i++) {
        const struct value_entry *e = &body->dict->entries[i];
        bool known = e->value.kind == VALUE_NONE || ignore_unknown;
        for (size_t j = 0; !known && j < COUNT_OF(known_fields); j++)
            known = (known_fields[j].kinds & bits[kind]) && str_equal_z(e->key.text, known_fields[j].name);
        if (!known)
            return fail(err, E_USAGE, "body.%.*s: a field that quern does not know", STR_ARG(e->key.text));
    }
    return 0;
}

// Flags that clients send with the value that holds anyway, which is taken. The other one is refused with the reason.
static const struct {
    const char *name;
    bool holds;
    const char *why;
} fixed_flags[] = {
    {"stream", false, "a batch does not stream"},
    {"use_beam_search", false, "answers are sampled, there is no beam search"},
    {"skip_special_tokens", true, "the text of an answer has no special tokens; return_token_ids gives their ids"},
    {"include_stop_str_in_output", false, "an answer ends before its stop string"},
    {"add_special_tokens", true, "a prompt begins as the tokenizer says; one that is a list of ids is taken as it is"},
};

// A chat template makes the whole prompt, and so either value of this flag holds of messages.
static bool is_free(const struct value *body, const char *name)
{
    return !strcmp(name, "add_special_tokens") && body_get(body, "messages");
}

static int check_fixed_flags(const struct value *body, bool ignore_others, struct error *err)
{
    for (size_t i = 0; i < COUNT_OF(fixed_flags); i++) {
        bool value = fixed_flags[i].holds;
        if (body_take_bool(body, fixed_flags[i].name, &value, err))
            return -1;
        if (value != fixed_flags[i].holds && !ignore_others && !is_free(body, fixed_flags[i].name))
            return fail(err, E_USAGE, "%s: %s", fixed_flags[i].name, fixed_flags[i].why);
    }
    bool unused; // an answer's text has no special tokens between which there could be spaces
    return body_take_bool(body, "spaces_between_special_tokens", &unused, err);
}

// Refuses values of fields that ask for something quern does not do.
static int check_refused(const struct batch_row *row, const struct value *body, struct error *err)
{
    int64_t n = row->settings.n, best_of = n;
    const struct value *suffix = body_get(body, "suffix"), *processors = body_get(body, "logits_processors");
    if (check_fixed_flags(body, row->ignore_unknown, err) ||
        body_take_integer(body, "best_of", 1, ROW_SAMPLES_MOST, &best_of, err))
        return -1;
    if (best_of != n && best_of != 1)
        return fail(err, E_USAGE, "best_of: %lld, where n is %lld: every answer is given, none is chosen",
                    (long long)best_of, (long long)n);
    if (suffix && !(suffix->kind == VALUE_STRING && !suffix->text.len))
        return fail(err, E_USAGE, "suffix: not supported");
    if (processors && !row->ignore_unknown && !(processors->kind == VALUE_LIST && !processors->list->n))
        return fail(err, E_USAGE, "logits_processors: a row cannot bring code");
    return 0;
}

// Takes logprobs: in chats it is true, with top_logprobs beside it; in completions it is a number.
static int take_logprobs(const struct value *body, enum row_kind kind, struct row_settings *s, struct error *err)
{
    if (kind == ROW_COMPLETION)
        return body_take_integer(body, "logprobs", 0, ROW_LOGPROBS_MOST, &s->n_logprobs, err);
    bool wanted = false;
    int64_t top = 0;
    if (body_take_bool(body, "logprobs", &wanted, err) ||
        body_take_integer(body, "top_logprobs", 0, ROW_LOGPROBS_MOST, &top, err))
        return -1;
    if (!wanted && top)
        return fail(err, E_USAGE, "top_logprobs: needs logprobs to be true");
    s->n_logprobs = wanted ? top : -1;
    return 0;
}

static int take_settings(struct batch_row *row, const struct value *body, struct error *err)
{
    struct row_settings *s = &row->settings;
    enum { TOKENS_MOST = 1 << 30 };
    *s = (struct row_settings){
        NAN, NAN, NAN, NAN, NAN, NAN, .top_k = -1, .max_tokens = -1, .n_logprobs = -1, .n_prompt_logprobs = -1, .n = 1};
    if (body_take_real(body, "temperature", 0, 100, &s->temperature, err) ||
        body_take_real(body, "top_p", 0, 1, &s->top_p, err) || body_take_real(body, "min_p", 0, 1, &s->min_p, err) ||
        body_take_real(body, "frequency_penalty", -2, 2, &s->frequency_penalty, err) ||
        body_take_real(body, "presence_penalty", -2, 2, &s->presence_penalty, err) ||
        body_take_real(body, "repeat_penalty", 0.01, 100, &s->repeat_penalty, err) ||
        body_take_real(body, "repetition_penalty", 0.01, 100, &s->repeat_penalty, err) ||
        body_take_integer(body, "top_k", -1, TOKENS_MOST, &s->top_k, err) ||
        body_take_integer(body, "max_tokens", 0, TOKENS_MOST, &s->max_tokens, err) ||
        body_take_integer(body, "max_completion_tokens", 0, TOKENS_MOST, &s->max_tokens, err) ||
        body_take_integer(body, "min_tokens", 0, TOKENS_MOST, &s->min_tokens, err) ||
        body_take_integer(body, "prompt_logprobs", 0, ROW_LOGPROBS_MOST, &s->n_prompt_logprobs, err) ||
        body_take_integer(body, "n", 1, ROW_SAMPLES_MOST, &s->n, err) ||
        body_take_bool(body, "ignore_eos", &s->ignore_end, err) ||
        body_take_bool(body, "return_token_ids", &s->wants_ids, err))
        return -1;
    if (s->top_k < 0 && body_get(body, "top_k"))
        s->top_k = 0; // -1 means "all" in other engines
    if (s->max_tokens >= 0 && s->min_tokens > s->max_tokens)
        return fail(err, E_USAGE, "min_tokens: %lld, where max_tokens is %lld", (long long)s->min_tokens,
                    (long long)s->max_tokens);
    return take_seed(body, s, err) || take_logprobs(body, row->kind, s, err) || check_refused(row, body, err);
}

static bool are_ids(const struct value *list)
{
    for (size_t i = 0; i < list->list->n; i++)
        if (list->list->items[i].kind != VALUE_INT)
            return false;
    return true;
}

static int check_prompt(const struct value *v, const char *name, struct error *err)
{
    if (!v)
        return fail(err, E_USAGE, "%s is missing", name);
    if (v->kind == VALUE_STRING)
        return 0;
    if (v->kind != VALUE_LIST || !v->list->n)
        return fail(err, E_USAGE, "%s: a string, a list of strings, of token ids, or of lists of them", name);
    if (are_ids(v))
        return 0;
    if (v->list->n > ROW_PROMPTS_MOST)
        return fail(err, E_USAGE, "%s: %zu of them, limit %d", name, v->list->n, ROW_PROMPTS_MOST);
    for (size_t i = 0; i < v->list->n; i++) {
        const struct value *item = &v->list->items[i];
        if (item->kind != VALUE_STRING && !(item->kind == VALUE_LIST && item->list->n && are_ids(item)))
            return fail(err, E_USAGE, "%s[%zu]: neither a string nor a list of token ids", name, i);
    }
    return 0;
}

// Whether a message says nothing where it has to: a template would write an empty turn. An empty string is the user's
// choice, an assistant may have called tools or be silent, and what other roles have is the template's affair.
static bool lacks_content(const struct value *message)
{
    const struct value *role = value_get(message, "role"), *content = body_get(message, "content");
    if (!str_equal_z(role->text, "user") && !str_equal_z(role->text, "system") && !str_equal_z(role->text, "developer"))
        return false;
    return !value_count(value_get(message, "tool_calls")) &&
           (!content || (content->kind == VALUE_LIST && !content->list->n));
}

static int check_messages(const struct value *v, struct error *err)
{
    if (!value_is(v, VALUE_LIST) || !v->list->n)
        return fail(err, E_USAGE, "messages: a list of {role, content} is wanted");
    for (size_t i = 0; i < v->list->n; i++) {
        if (!value_is(value_get(&v->list->items[i], "role"), VALUE_STRING))
            return fail(err, E_USAGE, "messages[%zu]: no object with a role", i);
        if (lacks_content(&v->list->items[i]))
            return fail(err, E_USAGE, "messages[%zu]: no content", i);
    }
    return 0;
}

// reasoning_effort is a variable of the template.
static int take_effort(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *effort = body_get(body, "reasoning_effort");
    if (!effort)
        return 0;
    if (effort->kind != VALUE_STRING)
        return body_wrong_kind("reasoning_effort", effort, "a string", err);
    struct value kwargs, *kept;
    if (value_dict_new(&kwargs, &row->arena, err))
        return -1;
    for (size_t i = 0; row->kwargs && i < row->kwargs->dict->n; i++)
        if (value_dict_put(&row->arena, &kwargs, row->kwargs->dict->entries[i].key, row->kwargs->dict->entries[i].value,
                           err))
            return -1;
    if (value_dict_set(&row->arena, &kwargs, "reasoning_effort", *effort, err))
        return -1;
    kept = ARENA_NEW(&row->arena, struct value);
    if (!kept)
        return fail(err, E_MEMORY, "no memory for a row");
    *kept = kwargs;
    row->kwargs = kept;
    return 0;
}

// Takes what says where the answer begins.
static int take_beginning(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *last = &row->messages->list->items[row->messages->list->n - 1];
    bool begins = true;
    if (body_take_bool(body, "add_generation_prompt", &begins, err) ||
        body_take_bool(body, "continue_final_message", &row->continues, err))
        return -1;
    row->no_answer_begun = !begins || row->continues;
    if (!row->continues)
        return 0;
    if (body_get(body, "add_generation_prompt") && begins)
        return fail(err, E_USAGE, "continue_final_message: add_generation_prompt is true, too");
    if (!str_equal_z(value_get(last, "role")->text, "assistant"))
        return fail(err, E_USAGE, "continue_final_message: the last message is not the assistant's");
    if (value_count(value_get(last, "tool_calls")))
        return fail(err, E_USAGE, "continue_final_message: the last message calls tools");
    return 0;
}

static int take_chat(struct batch_row *row, const struct value *body, struct error *err)
{
    row->messages = body_get(body, "messages");
    if (check_messages(row->messages, err) || batch_tools_take(row, body, err) ||
        body_take_kind(body, "chat_template_kwargs", VALUE_DICT, "an object", &row->kwargs, err))
        return -1;
    return take_beginning(row, body, err) || take_effort(row, body, err) ? -1 : 0;
}

// What is to be embedded, and how vectors are written.
static int take_embedding(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *format = NULL;
    row->prompt = body_get(body, "input");
    if (check_prompt(row->prompt, "input", err) ||
        body_take_integer(body, "dimensions", 1, INT32_MAX, &row->dimensions, err) ||
        body_take_kind(body, "encoding_format", VALUE_STRING, "\"float\" or \"base64\"", &format, err))
        return -1;
    row->base64 = format && str_equal_z(format->text, "base64");
    if (format && !row->base64 && !str_equal_z(format->text, "float"))
        return fail(err, E_USAGE, "encoding_format: \"float\" or \"base64\" is wanted");
    return 0;
}

int batch_body_take(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *model = NULL;
    if (check_fields(body, row->kind, row->ignore_unknown, err) ||
        body_take_kind(body, "model", VALUE_STRING, "a string", &model, err))
        return -1;
    if (model)
        row->model = model->text;
    if (row->kind == ROW_EMBEDDING)
        return take_embedding(row, body, err);
    if (take_settings(row, body, err) || take_stops(row, body, err) || take_stop_ids(row, body, err) ||
        batch_guide_take(row, body, err) ||
        body_take_kind(body, "logit_bias", VALUE_DICT, "an object", &row->bias, err))
        return -1;
    if (row->kind == ROW_CHAT)
        return take_chat(row, body, err);
    if (body_take_bool(body, "echo", &row->settings.echo, err))
        return -1;
    row->prompt = body_get(body, "prompt");
    return check_prompt(row->prompt, "prompt", err);
}
