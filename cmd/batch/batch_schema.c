// The grammars of the rows' schemas: compiled once, kept in SCHEMAS_KEPT slots by the text of the schema, and replaced
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

static int compile(struct batch_schemas *s, struct str text, struct batch_schema **out, struct error *err)
{
    if (!s->vocab && grammar_vocab_new(&s->vocab, s->tokenizer, s->n_vocab, err))
        return -1;
    struct batch_schema *made = calloc(1, sizeof *made);
    if (!made)
        return fail(err, E_MEMORY, "no memory for a schema");
    made->id = digest_of(text);
    if (grammar_from_schema(&made->grammar, s->vocab, text, NULL, err)) {
        free(made);
        return -1;
    }
    if (grammar_passed_over(made->grammar) && !s->noted) {
        terminal_note("quern: note: a row's schema: what demands nothing of an answer is passed over: %s",
                      grammar_passed_over(made->grammar));
        s->noted = true;
    }
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

int batch_schemas_take(struct batch_schemas *s, const struct value *schema, struct batch_schema **out,
                       struct error *err)
{
    struct text text = {0};
    int status = 0;
    if (schema)
        status = json_write_text(schema, NULL, &text, err);
    else
        text_print(&text, "{\"type\": \"object\", \"additionalProperties\": true}");
    if (!status && text.failed)
        status = fail(err, E_MEMORY, "no memory for a schema");
    struct str view = {text.data, text.size};
    *out = status ? NULL : find(s, digest_of(view));
    if (!status && !*out && !(status = compile(s, view, out, err))) {
        int place = place_for_another(s);
        if (place >= 0) {
            schema_free(s->kept[place]);
            s->kept[place] = *out;
        }
    }
    text_free(&text);
    if (status)
        return -1;
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
