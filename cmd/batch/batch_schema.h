// Rows whose answers must be JSON, or keep a schema: grammars, compiled once for all rows that ask for the same, and
// how far each answer has come in its own.
//
// Ownership: a store owns its grammars; those that rows hold stay until they are released. Threads: the main thread.
#ifndef QUERN_BATCH_SCHEMA_H
#define QUERN_BATCH_SCHEMA_H

#include "cmd/digest.h"
#include "engine/generate.h"
#include "engine/grammar/grammar.h"
#include "engine/value.h"

enum { SCHEMAS_KEPT = 32 };

struct batch_schema {
    struct digest_value id;  // of the schema's text
    struct grammar *grammar; // NULL: a free place
    int n_users;
    int64_t last_use;
};
struct batch_schemas {
    const struct tokenizer *tokenizer;
    int n_vocab;
    struct grammar_vocab *vocab; // made when it is first needed
    struct batch_schema *kept[SCHEMAS_KEPT];
    int64_t n_uses;
};
void batch_schemas_free(struct batch_schemas *s);

// schema NULL: any JSON object. E_USAGE names the place in a schema that cannot be kept.
int batch_schemas_take(struct batch_schemas *s, const struct value *schema, struct batch_schema **out,
                       struct error *err);
void batch_schemas_release(struct batch_schemas *s, struct batch_schema *schema); // NULL is fine

#endif
