#include "cmd/constraint_options.h"

#include "cmd/input.h"
#include "cmd/load.h"
#include "cmd/terminal.h"

#include <stdlib.h>

static int mask(void *state, const uint32_t **allowed, struct error *err)
{
    *allowed = constraint_mask(state, err);
    return *allowed ? 0 : -1;
}

static int accept(void *state, int32_t token, struct error *err)
{
    return constraint_accept(state, token, err);
}

// --- which flag ---

struct source {
    const char *flag, *text, *path;
    bool schema;
};

static int find_source(const struct options *o, struct source *found, struct error *err)
{
    const struct source all[] = {
        {"--grammar", o->grammar, NULL, false},
        {"--grammar-file", NULL, o->grammar_file, false},
        {"--json-schema", o->json_schema, NULL, true},
        {"--json-schema-file", NULL, o->json_schema_file, true},
    };
    *found = (struct source){0};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        if (!all[i].text && !all[i].path)
            continue;
        if (found->flag)
            return fail(err, E_USAGE, "%s and %s: one of them", found->flag, all[i].flag);
        *found = all[i];
    }
    if (found->flag && o->ignore_eos)
        return fail(err, E_USAGE, "%s and --ignore-eos: an answer that has a form has an end", found->flag);
    if (!found->flag && o->grammar_after)
        return fail(err, E_USAGE, "--grammar-after: needs --grammar or --json-schema");
    return 0;
}

static int compile(struct constrained *c, const struct source *source, struct str text, struct error *err)
{
    int status = source->schema ? grammar_from_schema(&c->grammar, c->vocab, text, NULL, err)
                                : grammar_from_gbnf(&c->grammar, c->vocab, text, err);
    return status ? fail_prefix(err, source->path ? source->path : source->flag) : 0;
}

static int read_and_compile(struct constrained *c, const struct source *source, struct error *err)
{
    if (!source->path)
        return compile(c, source, str_from(source->text), err);
    char *data;
    size_t size;
    if (input_read(source->path, &data, &size, err))
        return -1;
    int status = compile(c, source, (struct str){data, size}, err);
    free(data);
    return status;
}

// --- after thinking ---

// Templates that begin an answer with thoughts end with this.
static bool is_thinking(struct str prompt)
{
    static const char mark[] = "<think>";
    size_t n = sizeof mark - 1;
    while (prompt.len > 0 && (prompt.data[prompt.len - 1] == '\n' || prompt.data[prompt.len - 1] == ' '))
        prompt.len--;
    return prompt.len >= n && !memcmp(prompt.data + prompt.len - n, mark, n);
}

int constrained_open(struct constrained *c, const struct options *o, const struct model *m, struct str prompt,
                     struct error *err)
{
    struct source source;
    if (find_source(o, &source, err))
        return -1;
    if (!source.flag)
        return 0;
    double begin = clock_ms();
    if (grammar_vocab_new(&c->vocab, m->tokenizer, m->info.n_vocab, err) || read_and_compile(c, &source, err))
        return -1;
    struct constraint_options options = {0};
    if (o->grammar_after)
        options.trigger = str_from(o->grammar_after);
    else if (is_thinking(prompt))
        options.trigger = STR_LIT("</think>");
    if (constraint_new(&c->constraint, c->grammar, &options, err))
        return -1;
    struct text note = {0};
    if (o->verbose) {
        text_print(&note, "%s: %.1f ms%s%.*s; ", source.flag, clock_ms() - begin,
                   options.trigger.len ? ", behind " : "", STR_ARG(options.trigger));
        grammar_describe(c->grammar, &note);
    }
    load_note_text(&note);
    return 0;
}

void constrained_close(struct constrained *c)
{
    constraint_free(c->constraint);
    grammar_free(c->grammar);
    grammar_vocab_free(c->vocab);
    *c = (struct constrained){0};
}

const struct token_rule *constrained_rule(struct constrained *c)
{
    if (!c->constraint)
        return NULL;
    constraint_reset(c->constraint);
    c->rule = (struct token_rule){c->constraint, mask, accept};
    return &c->rule;
}

void constrained_note_end(const struct constrained *c)
{
    if (c->constraint && !constraint_can_end(c->constraint))
        terminal_note("quern: note: the answer was cut before its form was complete; -n and -c give it more room");
}
