// quern tokenize: prints the token ids of texts, one line per text.
#include "cmd/input.h"
#include "cmd/confine.h"
#include "cmd/load.h"
#include "cmd/overrides.h"
#include "cmd/terminal/terminal.h"
#include "engine/file_replace.h"
#include "engine/text/tokenizer.h"

#include <stdlib.h>
#include <unistd.h>

// --- the texts ---

// Cuts off the text up to the next NUL, if texts are separated so. *rest becomes what follows; its data is NULL after
// the last text.
static struct str next_text(struct str *rest, bool nul)
{
    const char *end = nul && rest->len ? memchr(rest->data, '\0', rest->len) : NULL;
    if (!end) {
        struct str last = *rest;
        *rest = (struct str){NULL, 0};
        return last;
    }
    struct str text = {rest->data, (size_t)(end - rest->data)};
    *rest = (struct str){end + 1, rest->len - text.len - 1};
    return text;
}

// --- the lines ---

// Ids are written by the million, so they are formatted digit by digit into a buffer that is flushed in pieces.
struct writer {
    char bytes[1 << 16];
    size_t n;
};

static int flush(struct writer *w, struct error *err)
{
    struct str out = {w->bytes, w->n};
    w->n = 0;
    return terminal_write(out, err);
}

static int put(struct writer *w, const char *s, size_t n, struct error *err)
{
    if (n > sizeof w->bytes - w->n && flush(w, err))
        return -1;
    if (n > sizeof w->bytes)
        return terminal_write((struct str){s, n}, err);
    memcpy(w->bytes + w->n, s, n);
    w->n += n;
    return 0;
}

// Appends a non-negative number, preceded by the string `before`.
static int put_number(struct writer *w, const char *before, size_t number, struct error *err)
{
    char digits[24];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return put(w, before, strlen(before), err) ? -1 : put(w, digits + at, sizeof digits - at, err);
}

static int put_ids(struct writer *w, const struct token_list *ids, const char *comma, struct error *err)
{
    for (size_t i = 0; i < ids->n; i++)
        if (put_number(w, i ? comma : "", (size_t)ids->ids[i], err))
            return -1;
    return 0;
}

// Appends an object like {"n_tokens": 2, "ids": [1, 2], "pieces": ["a", "b"]}.
static int put_json(struct writer *w, const struct tokenizer *t, const struct token_list *ids, struct error *err)
{
    if (put_number(w, "{\"n_tokens\": ", ids->n, err) || put(w, ", \"ids\": [", 10, err) ||
        put_ids(w, ids, ", ", err) || put(w, "], \"pieces\": [", 14, err))
        return -1;
    struct text piece = {0};
    int status = 0;
    for (size_t i = 0; i < ids->n && !status; i++) {
        piece.size = 0;
        text_print(&piece, i ? ", " : "");
        terminal_print_json(&piece, tokenizer_piece(t, ids->ids[i], true));
        status =
            piece.failed ? fail(err, E_MEMORY, "no memory for a token's text") : put(w, piece.data, piece.size, err);
    }
    text_free(&piece);
    return status ? status : put(w, "]}", 2, err);
}

static int put_line(struct writer *w, const struct options *o, const struct tokenizer *t, const struct token_list *ids,
                    struct error *err)
{
    int status = o->json    ? put_json(w, t, ids, err)
                 : o->count ? put_number(w, "", ids->n, err)
                            : put_ids(w, ids, " ", err);
    return status ? status : put(w, "\n", 1, err);
}

// --- the verb ---

static int print_texts(const struct options *o, const struct tokenizer *t, struct str rest, struct error *err)
{
    unsigned flags = (o->special ? TOKENIZE_SPECIAL : 0) | (o->bos ? TOKENIZE_BOS : 0);
    struct token_list ids = {0};
    struct writer *w = calloc(1, sizeof *w);
    int status = w ? 0 : fail(err, E_MEMORY, "no memory for %zu bytes of output", sizeof *w);
    do {
        struct str text = next_text(&rest, o->nul);
        ids.n = 0;
        if (!status)
            status = tokenizer_encode(t, text, flags, &ids, err);
        if (!status)
            status = put_line(w, o, t, &ids, err);
    } while (!status && rest.data);
    if (!status)
        status = flush(w, err);
    free(w);
    token_list_free(&ids);
    return status;
}

// Writes the ids of all of the text as the file that `quern logits --ids` reads: int32 n_tokens, n_vocab, ids[n_tokens].
static int write_ids(const struct options *o, const struct tokenizer *t, struct str text, struct error *err)
{
    unsigned flags = (o->special ? TOKENIZE_SPECIAL : 0) | (o->bos ? TOKENIZE_BOS : 0);
    struct token_list ids = {0};
    struct file_replace f;
    int status = tokenizer_encode(t, text, flags, &ids, err);
    if (!status && !ids.n)
        status = fail(err, E_USAGE, "-o: the text has no tokens");
    if (!status && ids.n > INT32_MAX)
        status = fail(err, E_USAGE, "-o: %zu tokens are too many for a file of ids", ids.n);
    if (!status && !(status = file_replace_output(&f, o->out, err))) {
        const int32_t head[2] = {(int32_t)ids.n, tokenizer_n_vocab(t)};
        status = file_replace_write(&f, head, sizeof head, err) ||
                         file_replace_write(&f, ids.ids, ids.n * sizeof *ids.ids, err) || file_replace_end(&f, err)
                     ? -1
                     : 0;
        if (status)
            file_replace_abort(&f);
    }
    token_list_free(&ids);
    return status;
}

static int load_tokenizer(const struct options *o, struct tokenizer **t, struct error *err)
{
    struct gguf *file = NULL;
    const char *path = load_path(o, err);
    if (!path || model_file_open(&file, path, GGUF_METADATA_ONLY, err))
        return -1;
    int status = overrides_apply(o, file, err);
    if (!status)
        status = tokenizer_load(t, file, o->any_pre ? TOKENIZER_ANY_PRE : 0, err);
    gguf_close(file);
    return status;
}

static int tokenize(const struct options *o, struct error *err)
{
    struct tokenizer *t = NULL;
    char *data = NULL;
    struct str text = {NULL, 0};
    int status = load_tokenizer(o, &t, err);
    if (!status && !tokenizer_pre_is_known(t))
        terminal_note("quern: note: the pre-tokenizer '%.*s' is not known, 'default' is used: the ids may be wrong",
                      STR_ARG(tokenizer_pre(t)));
    if (!status)
        status = input_take(o, INPUT_TEXT, &data, &text, err);
    if (!status && o->out && (o->json || o->count || o->nul))
        status = fail(err, E_USAGE, "-o: a file of ids has no other form");
    if (!status)
        status = o->out ? write_ids(o, t, text, err) : print_texts(o, t, text, err);
    free(data);
    tokenizer_free(t);
    return status;
}

int cmd_tokenize(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    if (options_parse(&o, VERB_TOKENIZE, argc, argv, &err))
        return verb_fail(&err);
    confine(&o);
    int status = tokenize(&o, &err);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
