// Encodes one word with the algorithm of the vocabulary. The word cache has one entry per slot, and a new word
// replaces the old one. An entry stores no bytes and no tokens, only where the word occurs in the text and where its
// tokens are in the output list, so a hit copies tokens within that list.
#include "engine/text/encoder.h"

#include <assert.h>
#include <stdlib.h>

int scratch_reserve(struct scratch *scratch, size_t n, struct error *err)
{
    if (n <= scratch->cap) {
        return 0;
    }
    size_t cap = MAX(n, 2 * scratch->cap);
    void *data = malloc(cap);
    if (data == NULL) {
        return fail(err, E_MEMORY, "no memory for %zu bytes of text", cap);
    }
    free(scratch->data);
    *scratch = (struct scratch){data, cap};
    return 0;
}

int encoder_byte(struct encoder *e, unsigned char byte)
{
    int32_t id = e->t->byte_token[byte] >= 0 ? e->t->byte_token[byte] : e->t->role[TOKEN_UNK];
    return id >= 0
               ? token_list_push(e->out, id, e->err)
               : fail(e->err, E_MODEL, "the vocabulary cannot spell the byte 0x%02X and has no unknown token", byte);
}

size_t spell_escaped(const char *p, size_t n, bool prefix, char *out)
{
    char *start = out;
    if (prefix) {
        memcpy(out, WORD_MARK, WORD_MARK_LEN);
        out += WORD_MARK_LEN;
    }
    for (size_t i = 0; i < n; i++) {
        if (p[i] == ' ') {
            memcpy(out, WORD_MARK, WORD_MARK_LEN);
            out += WORD_MARK_LEN;
        } else {
            *out++ = p[i];
        }
    }
    return (size_t)(out - start);
}

static int encode_word(struct encoder *e, const char *word, size_t len)
{
    switch (e->t->kind) {
    case TOKENIZER_BPE:
        return bpe_encode_word(e, word, len);
    case TOKENIZER_SPM:
        return spm_encode_word(e, word, len, false);
    default: // the other kinds encode a text as a whole
        assert(e->t->kind == TOKENIZER_WPM);
        return wpm_encode_word(e, word, len);
    }
}

int encoder_word(void *encoder, const char *word, size_t len)
{
    struct encoder *e = encoder;
    if (e->cache == NULL || len > UINT16_MAX) {
        return encode_word(e, word, len);
    }
    uint64_t h = token_hash(word, len, e->t->map.seed);
    uint32_t tag = (uint32_t)(h >> 32) | 1;
    struct cached_word *entry = &e->cache[h & e->cache_mask];
    struct token_list *out = e->out;
    if (entry->tag == tag && entry->len == len && bytes_equal(e->text.data + entry->text_at, word, len)) {
        if (token_list_reserve(out, entry->n_ids, e->err) != 0) {
            return -1;
        }
        memcpy(out->ids + out->n, out->ids + entry->ids_at, entry->n_ids * sizeof *out->ids);
        out->n += entry->n_ids;
        return 0;
    }
    size_t at = out->n;
    if (encode_word(e, word, len) != 0) {
        return -1;
    }
    if (out->n - at <= UINT16_MAX && at <= UINT32_MAX) {
        *entry = (struct cached_word){tag, (uint32_t)(word - e->text.data), (uint32_t)at, (uint16_t)len,
                                      (uint16_t)(out->n - at)};
    }
    return 0;
}
