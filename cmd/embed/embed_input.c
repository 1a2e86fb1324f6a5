// The texts of `quern embed`: arguments, or the lines of a file, which may be JSON.
#include "cmd/embed/embed.h"
#include "cmd/input.h"
#include "engine/json.h"
#include "engine/text/tokenizer.h"

#include <stdlib.h>

// ---- Reading

static int add_text(struct embed_texts *t, struct str text, struct str id, struct error *err)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 64;
        struct embed_text *more = realloc(t->at, cap * sizeof *more);
        if (!more)
            return fail(err, E_MEMORY, "no memory for %zu texts", cap);
        t->at = more;
        t->cap = cap;
    }
    t->at[t->n] = (struct embed_text){.text = text, .id = id, .line = t->n + 1};
    t->n++;
    return 0;
}

// The id of a row as JSON, or nothing.
static int read_id(struct embed_texts *t, const struct value *row, struct str *id, struct error *err)
{
    const struct value *v = value_get(row, "custom_id");
    struct text json = {0};
    v = v ? v : value_get(row, "id");
    if (!v)
        return 0;
    struct value copy;
    int status = json_write_text(v, &(struct json_style){.ascii = true, .strict = true}, &json, err);
    if (!status && !(status = value_string_copy(&copy, &t->arena, (struct str){json.data, json.size}, err)))
        *id = copy.text;
    text_free(&json);
    return status;
}

// A line of JSON: a string, or an object whose text, input, prompt or content is a string.
static int add_json(struct embed_texts *t, struct str line, struct error *err)
{
    static const char *const names[] = {"text", "input", "prompt", "content"};
    struct json_reader reader = {.arena = &t->arena, .flags = JSON_INPUT};
    struct value row;
    struct str id = {"", 0};
    if (json_read(&row, &reader, line, err))
        return -1;
    const struct value *v = &row;
    for (size_t i = 0; row.kind == VALUE_DICT && i < COUNT_OF(names) && (!v || v == &row || v->kind != VALUE_STRING);
         i++)
        v = value_get(&row, names[i]);
    if (!v || v->kind != VALUE_STRING)
        return fail(err, E_USAGE, "neither a string nor an object with a string as text, input, prompt or content");
    return read_id(t, &row, &id, err) ? -1 : add_text(t, v->text, id, err);
}

static bool is_json(const struct options *o, struct str text)
{
    enum { FORMAT_AUTO, FORMAT_JSONL };
    const size_t space = strspn(text.len ? text.data : "", " \t\r\n");
    return o->embed_format == FORMAT_JSONL || (o->embed_format == FORMAT_AUTO && text.data[space] == '{');
}

static bool is_blank(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!strchr(" \t\r", s.data[i]))
            return false;
    return true;
}

// Adds each line, or what stands between NULs. A last line without a text ends the file and is none.
static int add_lines(struct embed_texts *t, const struct options *o, struct str rest, struct error *err)
{
    const char separator = o->nul ? '\0' : '\n';
    const bool json = is_json(o, rest);
    size_t number = 0;
    while (rest.len) {
        const char *end = memchr(rest.data, separator, rest.len);
        struct str line = {rest.data, end ? (size_t)(end - rest.data) : rest.len};
        const size_t used = line.len + (end != NULL);
        rest = (struct str){rest.data + used, rest.len - used};
        number++;
        if (separator == '\n' && line.len && line.data[line.len - 1] == '\r')
            line.len--;
        if (json && is_blank(line))
            continue;
        if (json ? add_json(t, line, err) : add_text(t, line, (struct str){"", 0}, err)) {
            struct error cause = *err;
            return fail(err, cause.code, "line %zu: %s", number, cause.text);
        }
        t->at[t->n - 1].line = number;
    }
    return 0;
}

int embed_texts_read(struct embed_texts *t, const struct options *o, struct error *err)
{
    if (o->args.n + (o->prompt != NULL) > 0 && o->file)
        return fail(err, E_USAGE, "texts come from the arguments or from -f %s, not from both", o->file);
    for (int i = 0; i < o->args.n; i++)
        if (add_text(t, str_from(o->args.at[i]), (struct str){"", 0}, err))
            return -1;
    if (o->prompt && add_text(t, str_from(o->prompt), (struct str){"", 0}, err))
        return -1;
    if (t->n)
        return 0;
    struct str text = {"", 0};
    if (input_take(o, INPUT_TEXT, &t->data, &text, err) || add_lines(t, o, text, err))
        return -1;
    return t->n ? 0 : fail(err, E_USAGE, "there is no text to embed");
}

// ---- Encoding

struct encoding {
    struct embed_texts *t;
    const struct tokenizer *tokenizer;
    unsigned flags;
    const char *query, *pattern; // of a reranker, and the form of its pairs if the file has one; NULL: none
    bool doubled;                // two marks stand between the parts of a pair
};

// What stands around a pair in the model's own form: {query} and {document} are replaced.
static int encode_form(const struct encoding *e, struct str document, struct error *err)
{
    struct text whole = {0};
    const char *p = e->pattern;
    for (const char *next; *p; p = next) {
        const bool query = !strncmp(p, "{query}", 7), doc = !strncmp(p, "{document}", 10);
        next = p + (query ? 7 : doc ? 10 : 1);
        text_append(&whole, query ? str_from(e->query) : doc ? document : (struct str){p, 1});
    }
    int status = whole.failed ? fail(err, E_MEMORY, "no memory for a pair of texts")
                              : tokenizer_encode(e->tokenizer, (struct str){whole.data, whole.size},
                                                 TOKENIZE_BOS | TOKENIZE_SPECIAL, &e->t->tokens, err);
    text_free(&whole);
    return status;
}

// The question, then the document without the mark that begins a text; in some vocabularies with one more between them.
static int encode_pair(const struct encoding *e, struct str document, struct error *err)
{
    struct token_list *out = &e->t->tokens;
    if (e->pattern)
        return encode_form(e, document, err);
    if (tokenizer_encode(e->tokenizer, str_from(e->query), e->flags, out, err))
        return -1;
    const int32_t sep = tokenizer_role(e->tokenizer, TOKEN_SEP), eos = tokenizer_role(e->tokenizer, TOKEN_EOS);
    const int32_t between = sep >= 0 ? sep : eos;
    if (e->doubled && between >= 0 && token_list_push(out, between, err))
        return -1;
    const size_t at = out->n;
    if (tokenizer_encode(e->tokenizer, document, e->flags, out, err))
        return -1;
    if (tokenizer_adds_bos(e->tokenizer) && out->n > at) {
        memmove(out->ids + at, out->ids + at + 1, (out->n - at - 1) * sizeof *out->ids);
        out->n--;
    }
    return 0;
}

// How many tokens stand before the document of a pair.
static int question_length(const struct encoding *e, size_t *n, struct error *err)
{
    struct token_list ids = {0};
    int status = tokenizer_encode(e->tokenizer, str_from(e->query), e->flags, &ids, err);
    *n = ids.n;
    token_list_free(&ids);
    return status;
}

bool embed_cut(int32_t *ids, size_t *n, int limit)
{
    if (*n <= (size_t)limit)
        return false;
    ids[limit - 1] = ids[*n - 1];
    *n = (size_t)limit;
    return true;
}

static int encode_one(const struct encoding *e, struct embed_text *text, const struct options *o, int limit,
                      struct error *err)
{
    struct embed_texts *t = e->t;
    text->first = t->tokens.n;
    if (e->query ? encode_pair(e, text->text, err)
                 : tokenizer_encode(e->tokenizer, text->text, e->flags, &t->tokens, err))
        return -1;
    if (t->tokens.n == text->first)
        return fail(err, E_USAGE, "text %zu has no tokens", text->line);
    size_t n = t->tokens.n - text->first;
    if (o->truncate)
        t->n_cut += embed_cut(t->tokens.ids + text->first, &n, limit);
    if (n > (size_t)limit)
        return fail(err, E_USAGE, "text %zu has %zu tokens, limit %d; --truncate cuts it", text->line, n, limit);
    t->tokens.n = text->first + n;
    text->n = (int)n;
    t->longest = MAX(t->longest, text->n);
    return 0;
}

int embed_texts_encode(struct embed_texts *t, const struct tokenizer *tokenizer, const struct gguf *file,
                       const struct options *o, int limit, struct error *err)
{
    struct encoding e = {.t = t, .tokenizer = tokenizer, .query = o->query};
    struct str pattern = {0};
    bool adds_sep = false;
    e.flags = TOKENIZE_BOS | (o->special ? TOKENIZE_SPECIAL : 0);
    if (o->query && (gguf_get_str(file, "tokenizer.chat_template.rerank", &pattern, err) < 0 ||
                     gguf_get_bool(file, "tokenizer.ggml.add_sep_token", &adds_sep, err) < 0))
        return -1;
    e.doubled = tokenizer_kind(tokenizer) != TOKENIZER_WPM && adds_sep;
    if (pattern.data && !(e.pattern = arena_strdup(&t->arena, pattern)))
        return fail(err, E_MEMORY, "no memory for the form of a pair");
    size_t question = 0;
    if (o->query && question_length(&e, &question, err))
        return -1;
    if (question + 1 >= (size_t)limit)
        return fail(err, E_USAGE, "--query: %zu tokens leave no room for a text, limit %d", question, limit);
    for (size_t i = 0; i < t->n; i++)
        if (encode_one(&e, &t->at[i], o, limit, err))
            return -1;
    return 0;
}

void embed_texts_free(struct embed_texts *t)
{
    free(t->at);
    free(t->data);
    token_list_free(&t->tokens);
    arena_free(&t->arena);
}
