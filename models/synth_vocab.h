// A generated vocabulary, so that a synthetic model needs no other file and prints text that looks like words.
//
// Its tokens, in order: <unk>, <s>, </s>, the 256 bytes, then pieces: the word mark U+2581, letters, punctuation,
// syllables, and words of one, two and three syllables in a seeded order. Each piece can be reached by merging two
// earlier ones, as a SentencePiece model of kind "llama" merges.
#ifndef QUERN_SYNTH_VOCAB_H
#define QUERN_SYNTH_VOCAB_H

#include "gguf/writer.h"

enum { SYNTH_VOCAB_MIN = 300, SYNTH_VOCAB_MAX = 500000 };

// Writes the keys tokenizer.* of such a vocabulary with n tokens, SYNTH_VOCAB_MIN to SYNTH_VOCAB_MAX.
int synth_vocab_write(struct gguf_writer *w, size_t n, uint64_t seed, struct error *err);

#endif
