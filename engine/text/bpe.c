// Byte-pair encoding: a word is split into bytes or characters, which are then merged in the order of ranks.
#include "engine/text/encoder.h"
#include "engine/text/merge_loop.h"

static inline uint32_t pair(const void *ctx, uint32_t a, uint32_t b, uint32_t c, uint32_t *merged)
{
    (void)c;
    const struct merge *m = merge_find(ctx, a, b);
    if (m == NULL) {
        return MERGE_NONE;
    }
    *merged = m->merged;
    return m->rank;
}

static int emit(struct encoder *e, uint32_t symbol)
{
    return symbol & SYMBOL_NO_TOKEN ? encoder_byte(e, (unsigned char)symbol)
                                    : token_list_push(e->out, (int32_t)symbol, e->err);
}

static uint32_t byte_symbol(const struct tokenizer *t, unsigned char byte)
{
    return t->byte_token[byte] < 0 ? SYMBOL_NO_TOKEN | byte : (uint32_t)t->byte_token[byte];
}

// Returns the character at p as a symbol, or -1; *len is its length in bytes.
static int32_t letter_symbol(const struct tokenizer *t, const char *p, size_t n, size_t *len)
{
    int bytes = utf8_decode(p, n, NULL);
    *len = bytes > 0 ? (size_t)bytes : 1;
    int32_t id = bytes > 0 ? token_map_find(&t->map, p, *len) : -1;
    return id >= 0 && token_is_plain(t, id) ? id : -1;
}

static int encode_short(struct encoder *e, const uint32_t *symbols, size_t n)
{
    uint32_t v[MERGE_SHORT + 2];
    memcpy(v, symbols, n * sizeof *v);
    v[n] = v[n + 1] = 0;
    n = merge_short(v, n, pair, &e->t->merges);
    for (size_t i = 0; i < n; i++) {
        if (emit(e, v[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

static int encode_long(struct encoder *e, const uint32_t *symbols, size_t n)
{
    if (n > MERGE_LONGEST) {
        return fail(e->err, E_MEMORY, "a word of %zu characters is too long", n);
    }
    if (scratch_reserve(&e->merging, merge_long_bytes(n), e->err) != 0) {
        return -1;
    }
    struct merge_node *nodes = merge_long_nodes(e->merging.data, n);
    for (size_t i = 0; i < n; i++) {
        nodes[i].value = symbols[i];
    }
    nodes[n].value = 0;
    merge_long(e->merging.data, (uint32_t)n, pair, &e->t->merges);
    for (uint32_t i = 0; i < n; i = nodes[i].next) {
        if (emit(e, nodes[i].value) != 0) {
            return -1;
        }
    }
    return 0;
}

static int encode_symbols(struct encoder *e, const uint32_t *symbols, size_t n)
{
    return n <= MERGE_SHORT ? encode_short(e, symbols, n) : encode_long(e, symbols, n);
}

// Returns the plain token with the spelling of the whole word, or -1.
static int32_t whole_word(const struct tokenizer *t, const char *spelled, size_t len)
{
    int32_t id = len <= t->max_len ? token_map_find(&t->map, spelled, len) : -1;
    return id >= 0 && token_is_plain(t, id) ? id : -1;
}

// Writes the symbols of a word, one per character; a character that is not a token becomes its bytes. At most len
// symbols.
static size_t letter_symbols(const struct tokenizer *t, const char *word, size_t len, uint32_t *symbols)
{
    size_t n = 0, step;
    for (size_t i = 0; i < len; i += step) {
        int32_t id = letter_symbol(t, word + i, len - i, &step);
        if (id >= 0) {
            symbols[n++] = (uint32_t)id;
            continue;
        }
        for (size_t k = 0; k < step; k++) {
            symbols[n++] = byte_symbol(t, (unsigned char)word[i + k]);
        }
    }
    return n;
}

// For Gemma 4 and similar models: spaces are escaped, and symbols are characters.
static int encode_escaped(struct encoder *e, const char *word, size_t len)
{
    // the spelling has at most 3 * len bytes, and at most as many symbols; the symbols come first because of their
    // alignment
    if (scratch_reserve(&e->spelled, len * 3 * (sizeof(uint32_t) + 1), e->err) != 0) {
        return -1;
    }
    uint32_t *symbols = e->spelled.data;
    char *spelled = (char *)(symbols + 3 * len);
    size_t n_spelled = spell_escaped(word, len, false, spelled);
    // Runs of newlines are tokens regardless of merges. No pre-tokenizer of this kind says that of other words.
    int32_t whole = *word == '\n' ? whole_word(e->t, spelled, n_spelled) : -1;
    if (whole >= 0) {
        return token_list_push(e->out, whole, e->err);
    }
    return encode_symbols(e, symbols, letter_symbols(e->t, spelled, n_spelled, symbols));
}

// Finds the token that is the whole word in byte-level spelling: *whole, -1 if there is none. E_MEMORY.
static int whole_letters(struct encoder *e, const char *word, size_t len, int32_t *whole)
{
    // each byte is spelled with one or two bytes
    char few[2 * 64], *out = few;
    *whole = -1;
    if (len > e->t->max_len) {
        return 0;
    }
    if (len > sizeof few / 2) {
        if (scratch_reserve(&e->spelled, 2 * len, e->err) != 0) {
            return -1;
        }
        out = e->spelled.data;
    }
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        n += (size_t)utf8_encode(byte_to_letter((unsigned char)word[i]), out + n);
    }
    *whole = whole_word(e->t, out, n);
    return 0;
}

// Returns the length up to the first two adjacent bytes that are adjacent in no token.
static size_t joined_len(const struct tokenizer *t, const char *word, size_t len)
{
    size_t n = 1;
    while (n < len) {
        unsigned char a = (unsigned char)word[n - 1], b = (unsigned char)word[n];
        if ((t->joined[a][b / 8] >> b % 8 & 1) == 0) {
            break;
        }
        n++;
    }
    return n;
}

static int encode_joined(struct encoder *e, const char *word, size_t len)
{
    uint32_t few[MERGE_SHORT], *symbols = few;
    if (len > MERGE_SHORT) {
        if (scratch_reserve(&e->spelled, len * sizeof *symbols, e->err) != 0) {
            return -1;
        }
        symbols = e->spelled.data;
    }
    for (size_t i = 0; i < len; i++) {
        symbols[i] = byte_symbol(e->t, (unsigned char)word[i]);
    }
    return encode_symbols(e, symbols, len);
}

int bpe_encode_word(struct encoder *e, const char *word, size_t len)
{
    const struct tokenizer *t = e->t;
    if ((t->pre->flags & PRE_ESCAPE) != 0) {
        return encode_escaped(e, word, len);
    }
    if ((t->pre->flags & PRE_IGNORE_MERGES) != 0) {
        int32_t whole;
        if (whole_letters(e, word, len, &whole) != 0) {
            return -1;
        }
        if (whole >= 0) {
            return token_list_push(e->out, whole, e->err);
        }
    }
    for (size_t n; len > 0; word += n, len -= n) {
        n = len > MERGE_SHORT ? joined_len(t, word, len) : len;
        if (encode_joined(e, word, n) != 0) {
            return -1;
        }
    }
    return 0;
}
