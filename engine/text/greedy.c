// The tokenizer of RWKV: from the beginning of a text on, always the longest token that the text goes on with. Tokens are
// strings of bytes, which a file spells with escapes: \t, \n, \r, \xNN for a byte, and a backslash before any other character
// for that character.
#include "engine/text/encoder.h"

int greedy_encode(struct encoder *e, const char *p, const char *end)
{
    for (size_t len; p < end; p += len) {
        const int32_t id = trie_longest(&e->t->words, p, end, &len);
        len = id >= 0 ? len : 1;
        if (id >= 0 ? token_list_push(e->out, id, e->err) : encoder_byte(e, (unsigned char)*p)) {
            return -1;
        }
    }
    return 0;
}

// ---- Spellings

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

// The byte at *at of a spelling, which moves behind it; -1: an escape is broken.
static int next_byte(struct str s, size_t *at)
{
    const char c = s.data[(*at)++];
    if (c != '\\') {
        return (unsigned char)c;
    }
    if (*at == s.len) {
        return -1;
    }
    const char escaped = s.data[(*at)++];
    if (escaped != 'x') {
        return escaped == 't' ? '\t' : escaped == 'n' ? '\n' : escaped == 'r' ? '\r' : (unsigned char)escaped;
    }
    const int high = *at + 2 <= s.len ? hex_digit(s.data[*at]) : -1;
    const int low = high >= 0 ? hex_digit(s.data[*at + 1]) : -1;
    *at += low >= 0 ? 2 : 0;
    return low >= 0 ? 16 * high + low : -1;
}

size_t unescape(struct str s, char *out)
{
    size_t n = 0;
    for (size_t at = 0; at < s.len;) {
        const int byte = next_byte(s, &at);
        if (byte < 0) {
            return 0;
        }
        out[n++] = (char)byte;
    }
    return n;
}

// ---- Loading

int vocab_load_greedy(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    static const char key[] = "tokenizer.ggml.tokens";
    enum { LONGEST = 1024 }; // bounds the time per byte of a text
    if (trie_new(&t->words, t->piece.at[t->piece.n], &t->arena, err) != 0) {
        return -1;
    }
    memset(t->byte_token, -1, sizeof t->byte_token); // tokens of one byte are found like others
    for (int32_t id = 0; id < t->text.n; id++) {
        const struct str s = spelling(&t->piece, id);
        if (t->attr[id] == TOKEN_NORMAL && s.len == 0) {
            return vocab_fail(g, key, err, "element %d: an escape is broken", id);
        }
        if (s.len > LONGEST) {
            return vocab_fail(g, key, err, "element %d: %zu bytes for a token, limit %d", id, s.len, LONGEST);
        }
        if (token_is_plain(t, id) && s.len > 0) {
            trie_add(&t->words, s, id);
        }
    }
    return 0;
}
