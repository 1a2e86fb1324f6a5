// Each token is computed from its index, so no list of words is stored. A seeded multiplier, coprime to the numbers
// of words, shuffles the words of each length. The score of a piece falls with its index, so earlier pieces are
// merged first.
#include "models/synth_vocab.h"
#include "models/synth_fill.h"

#include <stdio.h>

// A word is a sequence of syllables of one consonant and one vowel, so it splits into syllables in only one way.
static const char consonants[] = "bdfghjklmnprstvz", vowels[] = "aeiou", others[] = ".,!?";
enum {
    N_CONSONANTS = sizeof consonants - 1,
    N_VOWELS = sizeof vowels - 1,
    N_OTHERS = sizeof others - 1,
    SYLLABLES = N_CONSONANTS * N_VOWELS,
    SPECIALS = 3,
    BYTES = 256,
    TEXT = 16, // room for the longest token and its NUL
};
#define WORD_MARK "\xe2\x96\x81"

// The numbers of token types in the file.
enum token_type { TOKEN_NORMAL = 1, TOKEN_UNKNOWN = 2, TOKEN_CONTROL = 3, TOKEN_BYTE = 6 };

// Writes word i of all words with n syllables. The multiplier, which is coprime to their number, shuffles their order.
static void put_word(char *out, uint64_t i, int n, uint64_t multiplier)
{
    uint64_t count = 1;
    for (int k = 0; k < n; k++)
        count *= SYLLABLES;
    uint64_t code = i * multiplier % count;
    for (int k = 0; k < n; k++, code /= SYLLABLES) {
        *out++ = consonants[code % SYLLABLES / N_VOWELS];
        *out++ = vowels[code % N_VOWELS];
    }
    *out = 0;
}

// Writes piece i, counted from the first token after the bytes.
static void put_piece(char out[TEXT], uint64_t i, uint64_t multiplier)
{
    static const char *const letters[] = {consonants, vowels, others};
    if (i-- == 0) {
        memcpy(out, WORD_MARK, sizeof WORD_MARK);
        return;
    }
    for (size_t k = 0; k < COUNT_OF(letters); i -= strlen(letters[k]), k++)
        if (i < strlen(letters[k])) {
            out[0] = letters[k][i];
            out[1] = 0;
            return;
        }
    if (i < SYLLABLES) {
        put_word(out, i, 1, 1);
        return;
    }
    i -= SYLLABLES;
    int syllables = 1;
    for (uint64_t count = SYLLABLES; i >= count; count *= SYLLABLES, syllables++)
        i -= count;
    memcpy(out, WORD_MARK, sizeof WORD_MARK);
    put_word(out + sizeof WORD_MARK - 1, i, syllables, multiplier);
}

static enum token_type put_token(char out[TEXT], size_t i, uint64_t multiplier)
{
    static const char *const specials[SPECIALS] = {"<unk>", "<s>", "</s>"};
    if (i < SPECIALS) {
        strcpy(out, specials[i]);
        return i == 0 ? TOKEN_UNKNOWN : TOKEN_CONTROL;
    }
    if (i < SPECIALS + BYTES) {
        snprintf(out, TEXT, "<0x%02X>", (unsigned)(i - SPECIALS));
        return TOKEN_BYTE;
    }
    put_piece(out, i - SPECIALS - BYTES, multiplier);
    return TOKEN_NORMAL;
}

// A random multiplier that is coprime to all powers of SYLLABLES = 2^4 * 5: it is odd and not a multiple of 5.
static uint64_t coprime_multiplier(uint64_t seed)
{
    struct rng r = rng_seed(seed);
    uint64_t m;
    do
        m = rng_next(&r) % 500000 | 1;
    while (m % 5 == 0);
    return m;
}

int synth_vocab_write(struct gguf_writer *w, size_t n, uint64_t seed, struct error *err)
{
    struct arena arena = {0};
    struct str *tokens = ARENA_ARRAY(&arena, struct str, n);
    float *scores = ARENA_ARRAY(&arena, float, n);
    int32_t *types = ARENA_ARRAY(&arena, int32_t, n);
    char(*texts)[TEXT] = arena_array(&arena, n, TEXT, 1);
    if (!tokens || !scores || !types || !texts) {
        arena_free(&arena);
        return fail(err, E_MEMORY, "no memory for a vocabulary of %zu tokens", n);
    }
    uint64_t multiplier = coprime_multiplier(seed);
    for (size_t i = 0; i < n; i++) {
        types[i] = put_token(texts[i], i, multiplier);
        tokens[i] = str_from(texts[i]);
        // earlier pieces have higher scores and are merged first; only pieces can be merged
        scores[i] = types[i] == TOKEN_NORMAL ? -(float)(i - SPECIALS - BYTES) : 0;
    }
    gguf_write_str(w, "tokenizer.ggml.model", STR_LIT("llama"));
    gguf_write_str(w, "tokenizer.ggml.pre", STR_LIT("default"));
    gguf_write_str_array(w, "tokenizer.ggml.tokens", tokens, n);
    gguf_write_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, n);
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, n);
    gguf_write_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_write_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gguf_write_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    gguf_write_bool(w, "tokenizer.ggml.add_bos_token", true);
    gguf_write_bool(w, "tokenizer.ggml.add_eos_token", false);
    gguf_write_bool(w, "tokenizer.ggml.add_space_prefix", true);
    arena_free(&arena);
    return 0;
}
