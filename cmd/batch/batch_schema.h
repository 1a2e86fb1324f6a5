// Grammars of rows that ask for a form of their answers. A grammar is compiled once for all rows with the same schema,
// GBNF, regular expression or list of answers; each answer has its own state in it.
//
// Ownership: a store owns its grammars; one that a row holds stays until the row releases it. Threads: the main
// thread.
#ifndef QUERN_BATCH_SCHEMA_H
#define QUERN_BATCH_SCHEMA_H

#include "cmd/batch/batch_row.h"
#include "cmd/digest.h"
#include "engine/generate.h"
#include "engine/grammar/grammar.h"
#include "engine/value.h"

enum { SCHEMAS_KEPT = 32 };

struct batch_schema {
    struct digest_value id;  // fingerprint of the guide and its text
    struct grammar *grammar; // NULL: an empty slot
    int n_users;
    int64_t last_use;
};
struct batch_schemas {
    const struct tokenizer *tokenizer;
    int n_vocab;
    struct grammar_vocab *vocab; // made when the first schema is taken
    struct batch_schema *kept[SCHEMAS_KEPT];
    int64_t n_uses;
    bool noted; // the note about what is passed over was given
};
void batch_schemas_free(struct batch_schemas *s);

// What a grammar is compiled from.
struct guide {
    enum row_guide kind;       // neither GUIDE_NONE nor GUIDE_CALLS
    const struct value *v;     // as in struct batch_row
    struct schema_frame frame; // around a value, with GUIDE_SCHEMA
};
// E_USAGE names the place in it that cannot be enforced.
int batch_schemas_take(struct batch_schemas *s, const struct guide *guide, struct batch_schema **out,
                       struct error *err);
void batch_schemas_release(struct batch_schemas *s, struct batch_schema *schema); // NULL is allowed

#endif
