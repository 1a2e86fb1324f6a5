// SentencePiece: a word is split into characters, which are merged if they form a token, highest score first.
#include "engine/text/encoder.h"
#include "engine/text/merge_loop.h"

struct spelled_word {
    const struct tokenizer *t;
    const char *text;
};

// Symbols are offsets of their first bytes, so a and b together are the bytes from a to c.
static inline uint32_t pair(const void *ctx, uint32_t a, uint32_t b, uint32_t c, uint32_t *merged)
{
    (void)b;
    const struct spelled_word *w = ctx;
    if (c - a > w->t->max_len) {
        return MERGE_NONE;
    }
    int32_t id = token_map_find(&w->t->map, w->text + a, c - a);
    if (id < 0 || !token_is_plain(w->t, id)) {
        return MERGE_NONE;
    }
    *merged = a;
    return w->t->order[id];
}

// Appends the token of a fully merged symbol, or, if there is none, the tokens of its bytes.
static int emit(struct encoder *e, const char *p, size_t len)
{
    int32_t id = token_map_find(&e->t->map, p, len);
    if (id >= 0 && token_is_plain(e->t, id)) {
        return token_list_push(e->out, id, e->err);
    }
    for (size_t i = 0; i < len; i++) {
        if (encoder_byte(e, (unsigned char)p[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

static size_t letter_len(const char *p, size_t n)
{
    int len = utf8_decode(p, n, NULL);
    return len > 0 ? (size_t)len : 1;
}

static int encode_short(struct encoder *e, const char *text, size_t len, size_t n)
{
    uint32_t v[MERGE_SHORT + 2];
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        v[i] = (uint32_t)at;
        at += letter_len(text + at, len - at);
    }
    v[n] = v[n + 1] = (uint32_t)len;
    struct spelled_word w = {e->t, text};
    n = merge_short(v, n, pair, &w);
    for (size_t i = 0; i < n; i++) {
        if (emit(e, text + v[i], v[i + 1] - v[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

static int encode_long(struct encoder *e, const char *text, size_t len, size_t n)
{
    if (len > MERGE_LONGEST) { // the symbols are offsets
        return fail(e->err, E_MEMORY, "a word of %zu bytes is too long", len);
    }
    if (scratch_reserve(&e->merging, merge_long_bytes(n), e->err) != 0) {
        return -1;
    }
    struct merge_node *nodes = merge_long_nodes(e->merging.data, n);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        nodes[i].value = (uint32_t)at;
        at += letter_len(text + at, len - at);
    }
    nodes[n].value = (uint32_t)len;
    struct spelled_word w = {e->t, text};
    merge_long(e->merging.data, (uint32_t)n, pair, &w);
    for (uint32_t i = 0; i < n; i = nodes[i].next) {
        uint32_t start = nodes[i].value;
        if (emit(e, text + start, nodes[nodes[i].next].value - start) != 0) {
            return -1;
        }
    }
    return 0;
}

int spm_encode_word(struct encoder *e, const char *word, size_t len, bool prefix)
{
    char few[128], *text = few;
    const size_t room = (len + 1) * WORD_MARK_LEN;
    if (room > sizeof few) {
        if (scratch_reserve(&e->spelled, room, e->err) != 0) {
            return -1;
        }
        text = e->spelled.data;
    }
    len = spell_escaped(word, len, prefix, text);
    size_t n = 0;
    for (size_t at = 0; at < len; n++) {
        at += letter_len(text + at, len - at);
    }
    return n <= MERGE_SHORT ? encode_short(e, text, len, n) : encode_long(e, text, len, n);
}
