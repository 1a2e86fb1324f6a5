// The grammars of the rows' guides: compiled once, kept in SCHEMAS_KEPT slots by the text of the guide, and replaced
// when another one is needed, the least recently used first. A slot that a row holds is never replaced.
#include "cmd/batch/batch_schema.h"
#include "cmd/terminal/terminal.h"
#include "engine/json.h"

#include <stdlib.h>

static void schema_free(struct batch_schema *schema)
{
    if (!schema)
        return;
    grammar_free(schema->grammar);
    free(schema);
}

void batch_schemas_free(struct batch_schemas *s)
{
    for (int i = 0; i < SCHEMAS_KEPT; i++)
        schema_free(s->kept[i]);
    grammar_vocab_free(s->vocab);
    *s = (struct batch_schemas){0};
}

// An empty slot, or the least recently used slot that no row holds; -1 if all are held.
static int place_for_another(const struct batch_schemas *s)
{
    int best = -1;
    for (int i = 0; i < SCHEMAS_KEPT; i++) {
        if (!s->kept[i])
            return i;
        if (!s->kept[i]->n_users && (best < 0 || s->kept[i]->last_use < s->kept[best]->last_use))
            best = i;
    }
    return best;
}

static int compile_choice(struct grammar **out, const struct grammar_vocab *vocab, const struct value *list,
                          struct error *err)
{
    size_t n = value_count(list);
    struct str *texts = calloc(n + 1, sizeof *texts);
    if (!texts)
        return fail(err, E_MEMORY, "no memory for %zu answers", n);
    for (size_t i = 0; i < n; i++)
        texts[i] = list->list->items[i].text;
    int status = grammar_from_texts(out, vocab, texts, n, err);
    free(texts);
    return status;
}

static int compile_guide(struct grammar **out, const struct grammar_vocab *vocab, const struct guide *guide,
                         struct str text, struct error *err)
{
    struct schema_options o = {.frame = guide->frame};
    if (guide->kind == GUIDE_GRAMMAR)
        return grammar_from_gbnf(out, vocab, text, err);
    if (guide->kind == GUIDE_REGEX)
        return grammar_from_regex(out, vocab, text, err);
    if (guide->kind == GUIDE_CHOICE)
        return compile_choice(out, vocab, guide->v, err);
    return grammar_from_schema(out, vocab, text, &o, err);
}

static void note_passed_over(struct batch_schemas *s, const struct grammar *g)
{
    if (!grammar_passed_over(g) || s->noted)
        return;
    terminal_note("quern: note: a row's schema: what demands nothing of an answer is passed over: %s",
                  grammar_passed_over(g));
    s->noted = true;
}

static int compile(struct batch_schemas *s, const struct guide *guide, struct str text, struct batch_schema **out,
                   struct error *err)
{
    if (!s->vocab && grammar_vocab_new(&s->vocab, s->tokenizer, s->n_vocab, err))
        return -1;
    struct batch_schema *made = calloc(1, sizeof *made);
    if (!made)
        return fail(err, E_MEMORY, "no memory for a schema");
    if (compile_guide(&made->grammar, s->vocab, guide, text, err)) {
        free(made);
        return -1;
    }
    note_passed_over(s, made->grammar);
    *out = made;
    return 0;
}

static struct batch_schema *find(const struct batch_schemas *s, struct digest_value id)
{
    for (int i = 0; i < SCHEMAS_KEPT; i++)
        if (s->kept[i] && s->kept[i]->id.a == id.a && s->kept[i]->id.b == id.b)
            return s->kept[i];
    return NULL;
}

// The text that a guide stands for: the same for equal guides of a kind.
static int guide_text(const struct guide *guide, struct text *out, struct error *err)
{
    if (guide->kind == GUIDE_OBJECT)
        text_print(out, "{\"type\": \"object\", \"additionalProperties\": true}");
    else if (guide->kind == GUIDE_GRAMMAR || guide->kind == GUIDE_REGEX)
        text_append(out, guide->v->text);
    else if (json_write_text(guide->v, NULL, out, err))
        return -1;
    return out->failed ? fail(err, E_MEMORY, "no memory for a schema") : 0;
}

static struct digest_value guide_id(const struct guide *guide, struct str text)
{
    const struct schema_frame *f = &guide->frame;
    const struct str parts[] = {f->open, f->gap, f->close, text};
    struct digest d = {0};
    digest_add(&d, &guide->kind, sizeof guide->kind);
    digest_add(&d, &f->many, sizeof f->many);
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        digest_add(&d, &parts[i].len, sizeof parts[i].len);
        digest_add(&d, parts[i].data, parts[i].len);
    }
    return digest_end(&d);
}

static int take(struct batch_schemas *s, const struct guide *guide, struct str text, struct batch_schema **out,
                struct error *err)
{
    const struct digest_value id = guide_id(guide, text);
    *out = find(s, id);
    if (*out)
        return 0;
    if (compile(s, guide, text, out, err))
        return -1;
    (*out)->id = id;
    int place = place_for_another(s);
    if (place >= 0) {
        schema_free(s->kept[place]);
        s->kept[place] = *out;
    }
    return 0;
}

int batch_schemas_take(struct batch_schemas *s, const struct guide *guide, struct batch_schema **out, struct error *err)
{
    struct text text = {0};
    int status = guide_text(guide, &text, err) || take(s, guide, (struct str){text.data, text.size}, out, err) ? -1 : 0;
    text_free(&text);
    if (status) {
        *out = NULL;
        return -1;
    }
    (*out)->n_users++;
    (*out)->last_use = ++s->n_uses;
    return 0;
}

void batch_schemas_release(struct batch_schemas *s, struct batch_schema *schema)
{
    if (!schema || --schema->n_users)
        return;
    // a grammar made while all slots were held is in none of them
    if (find(s, schema->id) != schema)
        schema_free(schema);
}
