// Constrained output: which tokens may come next, so that an answer has the form that a grammar or a JSON Schema asks
// for.
//
// There are three objects, each built from the one before it. A *vocabulary* holds the bytes of a tokenizer's tokens
// as a tree; it is built once per model. A *grammar* is compiled from GBNF or from a JSON Schema for one vocabulary;
// any number of answers share it. A *constraint* records how far one answer has come. Grammars are defined over
// bytes: a character may span several tokens, and a token may span several characters. From every state that a
// constraint can reach, the grammar can be completed with tokens of the vocabulary. An answer therefore never runs
// into a dead end; only a length limit can cut it short.
//
// Ownership: a vocabulary copies what it needs of the tokenizer, except the names of tokens, so the tokenizer must
// outlive it. A vocabulary must outlive its grammars, and a grammar must outlive its constraints.
// Threads: a vocabulary is read-only. Any number of threads may use one grammar at once: it builds its states on
// demand under its own lock. A constraint is used by one thread at a time.
#ifndef QUERN_GRAMMAR_H
#define QUERN_GRAMMAR_H

#include "engine/text/tokenizer.h"
#include "kernels/text.h"

struct grammar_vocab;
struct grammar;
struct constraint;

// --- the vocabulary ---

// `n_tokens` is the number of logits that the model computes, which may exceed the size of the tokenizer's
// vocabulary; 0 means that size. Error: E_MEMORY.
int grammar_vocab_new(struct grammar_vocab **out, const struct tokenizer *t, int32_t n_tokens, struct error *err);
void grammar_vocab_free(struct grammar_vocab *v); // NULL is fine

// --- grammars ---

// GBNF as in llama.cpp: rules, literals, classes, groups, repeats and tokens. The rule `root` is the whole answer.
// E_USAGE names the line and the column. Left recursion is an error that names the rule.
int grammar_from_gbnf(struct grammar **out, const struct grammar_vocab *v, struct str text, struct error *err);

// What stands around a value, such as the marks of a tool call: open, gap, the value, gap, close.
struct schema_frame {
    struct str open, close; // a control token by its name, or a text; may be empty
    struct str gap;         // a text
    bool many;              // further values may follow, each in a frame, with a gap between them
};
struct schema_options {
    bool open_objects; // an object with `properties` but without `additionalProperties` may have other properties, as
                       // the standard says; if false, it may not, which is what a caller who wants an answer means
    struct schema_frame frame; // around the whole answer
};
// JSON Schema (2020-12, and the spellings of draft 7). `json` is the text of the schema; "{}" allows any JSON value.
// E_USAGE names the place as a JSON pointer. A keyword that demands something and is not supported is an error. Unknown
// keywords and formats demand nothing, as the standard says, see grammar_passed_over. `o` may be NULL.
int grammar_from_schema(struct grammar **out, const struct grammar_vocab *v, struct str json,
                        const struct schema_options *o, struct error *err);
// The names of unknown keywords and formats that the schema has, for a note: "'a', 'b'"; NULL: none. Belongs to the grammar.
const char *grammar_passed_over(const struct grammar *g);
// The texts that the regular expression (see regex.h) matches from their beginning to their end. E_USAGE names the
// column.
int grammar_from_regex(struct grammar **out, const struct grammar_vocab *v, struct str pattern, struct error *err);
// One of n texts, n > 0.
int grammar_from_texts(struct grammar **out, const struct grammar_vocab *v, const struct str *texts, size_t n,
                       struct error *err);
void grammar_free(struct grammar *g);                             // NULL is fine
void grammar_describe(const struct grammar *g, struct text *out); // appends one line of sizes, for -v

// --- constraints ---

struct constraint_options {
    // The grammar starts after the first occurrence of this text (for example "</think>"), whether one token of that
    // name spells it or several tokens do. Up to 4 characters of white space may follow it. Until then every token is
    // allowed except those that end an answer. If empty, the grammar starts at once. The text is copied.
    struct str trigger;
};

// `o` may be NULL. Error: E_MEMORY.
int constraint_new(struct constraint **out, struct grammar *g, const struct constraint_options *o, struct error *err);
int constraint_clone(struct constraint **out, const struct constraint *c, struct error *err);
void constraint_free(struct constraint *c); // NULL is fine
// Returns to the beginning: the constraint is as after constraint_new.
void constraint_reset(struct constraint *c);

// Returns the tokens that may come next: bit i % 32 of word i / 32 stands for token i. Tokens that end an answer
// (tokenizer_is_end) are in the mask exactly if the grammar may end here. At least one bit is set. The mask belongs
// to the constraint and is valid until the next call. NULL: E_MEMORY, or E_USAGE if the grammar has more readings of
// the text so far than are followed.
const uint32_t *constraint_mask(struct constraint *c, struct error *err);
static inline bool mask_has(const uint32_t *mask, int32_t token)
{
    return mask[token >> 5] >> (token & 31) & 1;
}
// Returns whether the token is allowed, without computing the mask; used to check drafts. False on errors.
bool constraint_allows(struct constraint *c, int32_t token);
// Appends a chosen token. E_USAGE if it is not allowed; then nothing has changed.
int constraint_accept(struct constraint *c, int32_t token, struct error *err);
// Whether the grammar may end here, and whether it must: then the end tokens are the only tokens left.
bool constraint_can_end(const struct constraint *c);
bool constraint_must_end(const struct constraint *c);
// Whether the constraint still waits for its trigger.
bool constraint_is_waiting(const struct constraint *c);

// The number of accepted tokens; and a return to the first n of them, as needed when a draft is rejected.
int64_t constraint_length(const struct constraint *c);
void constraint_rewind(struct constraint *c, int64_t n);

// Writes the bytes with which every continuation begins, for as long as only one byte is possible: at most `cap`
// bytes. Returns the number of bytes; 0 where there is a choice or where the answer may end. Their tokens make a
// draft that needs no model.
size_t constraint_forced(struct constraint *c, char *out, size_t cap);

#endif
