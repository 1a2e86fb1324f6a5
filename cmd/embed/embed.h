// What the parts of `quern embed` share: the texts that came in, and the forms in which vectors go out.
//
// Ownership: embed_texts_free frees the texts. Threads: one at a time.
#ifndef QUERN_EMBED_H
#define QUERN_EMBED_H

#include "cmd/load.h"
#include "engine/embedder.h"
#include "engine/text/token.h"

// A text and its tokens.
struct embed_text {
    struct str text; // a view of the input
    struct str id;   // the JSON of the row's id or custom_id; empty: it has none
    size_t line;     // of the input, from 1
    size_t first;    // the text's tokens begin here in embed_texts.tokens
    int n;
};
struct embed_texts {
    struct embed_text *at;
    size_t n, cap;
    struct arena arena;
    char *data;               // the input
    struct token_list tokens; // of all texts, one after another
    int longest;              // tokens of the longest text
    size_t n_cut;             // texts that were cut
};

// embed_verb.c: what the flags and the file say about pooling. A model whose file says nothing has the mean of an encoder's
// rows or the last row of another model.
enum pooling embed_pooling(const struct model *m, const struct options *o);

// embed_input.c: cuts a text of more than `limit` tokens to as many, of which the last one stays. Returns whether it did.
bool embed_cut(int32_t *ids, size_t *n, int limit);
// Takes the texts from the arguments, -p, -f or stdin. E_USAGE with the line.
int embed_texts_read(struct embed_texts *t, const struct options *o, struct error *err);
// Encodes all texts, or the pairs of --query and each of them, as a reranker wants them. E_USAGE for a text of more tokens
// than `limit`, unless they are to be cut.
int embed_texts_encode(struct embed_texts *t, const struct tokenizer *tokenizer, const struct gguf *file,
                       const struct options *o, int limit, struct error *err);
void embed_texts_free(struct embed_texts *t);

// embed_output.c: writes the vectors, `width` floats each, as the flags say. `rows`: vectors of each text, one or, with
// --pooling none, one for each token.
struct embed_result {
    const struct embed_texts *texts;
    const float *vectors;
    int width;
    bool by_token, scores;
    const char *model;
};
// Fails with E_USAGE if the vectors would be written to a terminal as bytes.
int embed_check_output(const struct options *o, struct error *err);
int embed_write(const struct embed_result *r, const struct options *o, struct error *err);

#endif
