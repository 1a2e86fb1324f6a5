// Constrained output: which tokens may come next, so that an answer has the form that a grammar or a schema asks for.
//
// Three things, each made from the one before: a *vocabulary* of a tokenizer, the bytes of its tokens in a tree, made
// once a model; a *grammar*, compiled from GBNF or a JSON Schema for that vocabulary, and shared by all answers that
// it shapes; and a *constraint*, how far one answer has come. Grammars speak of bytes: a character may lie across
// tokens, a token across characters. From every state that a constraint can be in, the grammar can be completed, and
// by tokens that the vocabulary has, so that no answer runs into a dead end; only its length can cut it short.
//
// Ownership: a vocabulary copies what it needs of the tokenizer but its names of tokens, so the tokenizer outlives it;
// it outlives its grammars, and they their constraints.
// Threads: a vocabulary is read-only. A grammar may be used by any number of threads at once: it learns its states as
// they are met, behind a lock of its own. A constraint belongs to one thread at a time.
#ifndef QUERN_GRAMMAR_H
#define QUERN_GRAMMAR_H

#include "engine/text/tokenizer.h"
#include "kernels/text.h"

struct grammar_vocab;
struct grammar;
struct constraint;

// --- the vocabulary ---

// `n_tokens` is how many logits the model gives, which may be more than the tokenizer has (0: as many). E_MEMORY.
int grammar_vocab_new(struct grammar_vocab **out, const struct tokenizer *t, int32_t n_tokens, struct error *err);
void grammar_vocab_free(struct grammar_vocab *v); // NULL is fine

// --- grammars ---

// GBNF, as llama.cpp's users write it: rules, literals, classes, groups, repeats, tokens; `root` is the answer.
// E_USAGE names line and column. Left recursion is refused by the name of the rule.
int grammar_from_gbnf(struct grammar **out, const struct grammar_vocab *v, struct str text, struct error *err);

struct schema_options {
    bool open_objects; // an object that names its properties and is silent on additionalProperties may have others, as
                       // the standard has it; otherwise it may not, as answers to a question are wanted
};
// JSON Schema (2020-12, and the spellings of draft 7): `json` is the schema's text; "{}" is any JSON. E_USAGE names the
// place as a JSON pointer; a keyword that cannot be kept is refused, never passed over. `o` may be NULL.
int grammar_from_schema(struct grammar **out, const struct grammar_vocab *v, struct str json,
                        const struct schema_options *o, struct error *err);
void grammar_free(struct grammar *g);                             // NULL is fine
void grammar_describe(const struct grammar *g, struct text *out); // a line of sizes, for -v

// --- constraints ---

struct constraint_options {
    // The grammar starts behind the first occurrence of this text ("</think>"), whether it is spelled by a token of
    // that name or by several; white space of up to 4 characters may follow it. Until then every token is allowed but
    // those that end an answer. Empty: the grammar starts at once. Copied.
    struct str trigger;
};

// `o` may be NULL. E_MEMORY.
int constraint_new(struct constraint **out, struct grammar *g, const struct constraint_options *o, struct error *err);
int constraint_clone(struct constraint **out, const struct constraint *c, struct error *err);
void constraint_free(struct constraint *c); // NULL is fine
// Back to the beginning, as new.
void constraint_reset(struct constraint *c);

// What may come next: bit i of word i / 32 is token i. Tokens that end an answer (tokenizer_is_end) are in it exactly
// when the grammar may end here. At least one bit is set. The mask is the constraint's, good until its next call.
// NULL: E_MEMORY, or E_USAGE when the grammar has more readings of this text than are followed.
const uint32_t *constraint_mask(struct constraint *c, struct error *err);
static inline bool mask_has(const uint32_t *mask, int32_t token)
{
    return mask[token >> 5] >> (token & 31) & 1;
}
// Whether the mask has this token, without computing the mask: for a draft. False on errors.
bool constraint_allows(struct constraint *c, int32_t token);
// Goes on by a token that was chosen. E_USAGE when it is not allowed, and nothing has changed then.
int constraint_accept(struct constraint *c, int32_t token, struct error *err);
// Whether the grammar is complete here, and whether it cannot go on: an end token is then the only one left.
bool constraint_can_end(const struct constraint *c);
bool constraint_must_end(const struct constraint *c);
// Whether the grammar is still waiting for its trigger.
bool constraint_is_waiting(const struct constraint *c);

// How many tokens were accepted, and going back to the first n of them: what a draft that was refused needs.
int64_t constraint_length(const struct constraint *c);
void constraint_rewind(struct constraint *c, int64_t n);

// The bytes with which every continuation begins, as far as there is one way to go: at most `cap`; returns how many.
// Their tokens make a draft that costs nothing to guess. 0 where there is a choice, or the answer may end.
size_t constraint_forced(struct constraint *c, char *out, size_t cap);

#endif
