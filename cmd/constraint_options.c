// At most one of the four flags may give a grammar; it is compiled once. If the chat template marks reasoning and
// --grammar-after is not given, an answer_rule applies the grammar after the reasoning and limits the reasoning to
// the budget. Otherwise a plain constraint applies the grammar from the beginning, or after the text of
// --grammar-after.
#include "cmd/constraint_options.h"

#include "cmd/input.h"
#include "cmd/load.h"
#include "cmd/terminal/terminal.h"
#include "engine/clock.h"

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
    if (input_read(source->path, source->schema ? INPUT_SCHEMA : INPUT_GRAMMAR, &data, &size, err))
        return -1;
    int status = compile(c, source, (struct str){data, size}, err);
    free(data);
    return status;
}

// --- the rule ---

static int compile_flags(struct constrained *c, const struct options *o, const struct model *m,
                         const struct source *source, struct error *err)
{
    double begin = clock_ms();
    if (grammar_vocab_new(&c->vocab, m->tokenizer, m->info.n_vocab, err) || read_and_compile(c, source, err))
        return -1;
    struct text note = {0};
    if (o->verbose) {
        text_print(&note, "%s: %.1f ms; ", source->flag, clock_ms() - begin);
        grammar_describe(c->grammar, &note);
    }
    load_note_text(&note);
    if (grammar_passed_over(c->grammar))
        terminal_note("quern: note: %s: what demands nothing of an answer is passed over: %s", source->flag,
                      grammar_passed_over(c->grammar));
    return 0;
}

int constrained_open(struct constrained *c, const struct options *o, const struct model *m,
                     const struct answer_style *style, struct error *err)
{
    struct source source;
    if (find_source(o, &source, err) || (source.flag && compile_flags(c, o, m, &source, err)))
        return -1;
    bool reasons = style && style->think_close && !o->grammar_after;
    if (reasons && (c->grammar || o->think_budget >= 0)) {
        struct answer_rule_options options = {c->grammar, style->think_open, style->think_close, style->in_reasoning,
                                              o->think_budget};
        return answer_rule_new(&c->reasoned, m->tokenizer, m->info.n_vocab, &options, err);
    }
    struct constraint_options options = {o->grammar_after ? str_from(o->grammar_after) : (struct str){0}};
    return c->grammar ? constraint_new(&c->constraint, c->grammar, &options, err) : 0;
}

void constrained_close(struct constrained *c)
{
    answer_rule_free(c->reasoned);
    constraint_free(c->constraint);
    grammar_free(c->grammar);
    grammar_vocab_free(c->vocab);
    *c = (struct constrained){0};
}

const struct token_rule *constrained_rule(struct constrained *c)
{
    if (!c->constraint && !c->reasoned)
        return NULL;
    if (c->constraint)
        constraint_reset(c->constraint);
    c->rule = c->reasoned ? answer_rule_begin(c->reasoned) : (struct token_rule){c->constraint, mask, accept};
    return &c->rule;
}

bool constrained_note_end(const struct constrained *c)
{
    const bool cut =
        (c->constraint && !constraint_can_end(c->constraint)) || (c->reasoned && !answer_rule_can_end(c->reasoned));
    if (cut)
        terminal_note("quern: note: the answer was cut before its form was complete; -n and -c give it more room");
    return cut;
}
