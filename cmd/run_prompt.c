// The text of -p or the argument comes first, then, after a blank line, that of -f; stdin is read if none of them is
// given, or as -f -. Files that begin like images, documents, archives or models are refused. The text is rendered as
// the user's message if there is a chat template, and continued as it stands with --raw or without a template.
#include "cmd/run_prompt.h"
#include "cmd/input.h"
#include "cmd/template_choice.h"
#include "cmd/terminal/terminal.h"

#include <stdlib.h>
#include <unistd.h>

// --- reading ---

// Recognises images and documents by their first bytes. Returns the kind by name; NULL if the data looks like text.
static const char *foreign_kind(struct str data)
{
    static const struct {
        size_t at;
        struct str begins;
        const char *kind;
    } kinds[] = {
        {0, {"\x89PNG", 4}, "an image (PNG)"},   {0, {"\xff\xd8\xff", 3}, "an image (JPEG)"},
        {0, {"GIF8", 4}, "an image (GIF)"},      {8, {"WEBP", 4}, "an image (WebP)"},
        {4, {"ftypheic", 8}, "an image (HEIC)"}, {4, {"ftypavif", 8}, "an image (AVIF)"},
        {0, {"II*\0", 4}, "an image (TIFF)"},    {0, {"MM\0*", 4}, "an image (TIFF)"},
        {0, {"%PDF-", 5}, "a PDF document"},     {8, {"WAVE", 4}, "a sound (WAV)"},
        {0, {"PK\3\4", 4}, "an archive (ZIP)"},  {0, {"GGUF", 4}, "a model (GGUF)"},
    };
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (data.len >= kinds[i].at + kinds[i].begins.len &&
            !memcmp(data.data + kinds[i].at, kinds[i].begins.data, kinds[i].begins.len))
            return kinds[i].kind;
    return NULL;
}

static int refuse_images(const struct options *o, struct error *err)
{
    if (!o->images.n)
        return 0;
    return fail(err, E_USAGE, "%s: quern reads text alone, no images or sounds", o->images.at[0]);
}

// Reads the text of a file without its final newline, which the model would take for the end of a paragraph.
static int read_file(struct run_prompt *p, const char *path, struct str *text, struct error *err)
{
    size_t size;
    if (input_read(path, INPUT_PROMPT, &p->data, &size, err))
        return -1;
    const char *kind = foreign_kind((struct str){p->data, size});
    if (kind)
        return fail(err, E_USAGE, "%s: %s; quern reads text alone", path, kind);
    *text = (struct str){p->data, size - (size && p->data[size - 1] == '\n')};
    return 0;
}

int run_prompt_read(struct run_prompt *p, const struct options *o, struct error *err)
{
    if (o->args.n > 1)
        return fail(err, E_USAGE, "%s: a second prompt; put the prompt in quotes", o->args.at[1]);
    if (o->prompt && o->args.n)
        return fail(err, E_USAGE, "more than one prompt: give one of -p and an argument");
    const char *said = o->prompt ? o->prompt : o->args.n ? o->args.at[0] : NULL;
    const char *path = o->file ? o->file : said ? NULL : "-";
    if (refuse_images(o, err))
        return -1;
    if (!o->file && !said && terminal_is_tty(STDIN_FILENO))
        return fail(err, E_USAGE, "no prompt: give one with -p TEXT, -f FILE, or on stdin");
    if (!path) {
        p->text = str_from(said);
        return 0;
    }
    if (read_file(p, path, &p->text, err))
        return -1;
    if (!said)
        return 0;
    text_print(&p->joined, "%s\n\n", said);
    text_append(&p->joined, p->text);
    p->text = (struct str){p->joined.data, p->joined.size};
    return p->joined.failed ? fail(err, E_MEMORY, "no memory for the prompt") : 0;
}

void run_prompt_free(struct run_prompt *p)
{
    token_list_free(&p->tokens);
    text_free(&p->joined);
    text_free(&p->rendered);
    free(p->data);
    *p = (struct run_prompt){0};
}

// --- tokens ---

// Tokenizes a text to be continued. An empty text becomes the BOS token, if the model has one.
static int encode_raw(struct run_prompt *p, const struct options *o, const struct model *m, struct error *err)
{
    unsigned flags = TOKENIZE_BOS | (o->special ? TOKENIZE_SPECIAL : 0);
    if (tokenizer_encode(m->tokenizer, p->text, flags, &p->tokens, err))
        return -1;
    // an EOS that the model file appends to whole texts must not stand before a continuation
    if (tokenizer_adds_eos(m->tokenizer) && p->tokens.n > 1)
        p->tokens.n--;
    if (p->tokens.n > 0)
        return 0;
    int32_t bos = tokenizer_role(m->tokenizer, TOKEN_BOS);
    if (bos < 0)
        return fail(err, E_USAGE, "an empty prompt, and the model has no token to begin a text with; give a prompt");
    return token_list_push(&p->tokens, bos, err);
}

static int add_message(struct arena *arena, struct value *messages, const char *role, struct str text,
                       struct error *err)
{
    struct value message;
    if (value_dict_new(&message, arena, err) ||
        value_dict_set(arena, &message, "role", value_string(str_from(role)), err) ||
        value_dict_set(arena, &message, "content", value_string(text), err))
        return -1;
    return value_list_push(arena, messages, message, err);
}

static int render(struct run_prompt *p, const struct options *o, const struct chat_template *t, struct error *err)
{
    struct arena arena = {0};
    struct value messages;
    int status = value_list_new(&messages, &arena, err);
    if (!status && o->system)
        status = add_message(&arena, &messages, "system", str_from(o->system), err);
    if (!status)
        status = add_message(&arena, &messages, "user", p->text, err);
    struct chat_request request = {.messages = &messages,
                                   .add_generation_prompt = true,
                                   .thinking = o->think      ? 1
                                               : o->no_think ? -1
                                                             : 0};
    if (!status)
        status = template_choice_kwargs(o, &arena, &request.kwargs, err);
    if (!status)
        status = chat_render(t, &request, &p->tokens, &p->rendered, err);
    arena_free(&arena);
    if (status)
        return status;
    p->is_chat = true;
    p->style = chat_answer_style(t, (struct str){p->rendered.data, p->rendered.size}, false);
    if (o->no_think && !chat_can(t).thinking)
        terminal_note("quern: note: --no-think: this model's template has no switch for that");
    return 0;
}

static int encode_chat(struct run_prompt *p, const struct options *o, const struct model *m, struct error *err)
{
    struct chat_template *t = NULL;
    int status = template_choice_open(&t, o, m, err) || render(p, o, t, err) ? -1 : 0;
    chat_close(t);
    return status;
}

int run_prompt_encode(struct run_prompt *p, const struct options *o, const struct model *m, struct error *err)
{
    const bool has_template = template_choice_any(o, m);
    if (has_template && !o->raw)
        return encode_chat(p, o, m, err);
    if (o->system || o->think || o->no_think || o->chat_template_kwargs)
        return fail(err, E_USAGE, "%s: %s",
                    o->system     ? "--system"
                    : o->think    ? "--think"
                    : o->no_think ? "--no-think"
                                  : "--chat-template-kwargs",
                    o->raw
                        ? "has no place in a raw prompt"
                        : "this model has no chat template; --chat-template chatml or plain, or --chat-template-file, "
                          "give one");
    return encode_raw(p, o, m, err);
}
