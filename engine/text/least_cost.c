// The tokenizer of PLaMo 2: of all ways to cut a text into tokens, the one of the least cost, where a token costs its score
// times -10,000, rounded, and a character without a token 10,000,000 and becomes its bytes. Of equal ways the one whose
// first token is the longest is taken, so that the search goes from the end of the text to its beginning.
#include "engine/text/encoder.h"

#include <math.h>

enum { UNKNOWN_COST = 10000000, COST_MOST = 20000000, SCALE = 10000 };

// The best way from a place to the end of the text, and its first token; -1: the bytes of a character.
struct way {
    int64_t cost;
    int32_t id;
    uint32_t len;
};

// The bytes of the character at p < end; 0: it is none.
static size_t char_len(const char *p, const char *end)
{
    uint32_t cp;
    const int len = utf8_decode(p, (size_t)(end - p), &cp);
    return len > 0 ? (size_t)len : 0;
}

// Copies the text, with U+FFFD for bytes that are no characters, and without a byte order mark. Returns its length.
static size_t clean(const char *p, const char *end, char *out)
{
    static const char replacement[] = "\xEF\xBF\xBD", mark[] = "\xEF\xBB\xBF";
    size_t n = 0;
    if (end - p >= 3 && !memcmp(p, mark, 3)) {
        p += 3;
    }
    while (p < end) {
        const size_t len = char_len(p, end);
        memcpy(out + n, len ? p : replacement, len ? len : 3);
        n += len ? len : 3;
        p += len ? len : 1;
    }
    return n;
}

// Finds the best way from `at`, which begins a character of `one` bytes.
static struct way best_from(const struct tokenizer *t, const struct way *ways, const char *text, size_t at, size_t one,
                            size_t n)
{
    struct way best = {INT64_MAX, -1, (uint32_t)one};
    uint32_t node = 0;
    for (size_t i = at; i < n && (node = trie_step(&t->words, node, (unsigned char)text[i])) != 0; i++) {
        const int32_t id = t->words.token[node];
        const size_t len = i - at + 1;
        if (id >= 0 && ways[at + len].cost + t->cost[id] <= best.cost) {
            best = (struct way){ways[at + len].cost + t->cost[id], id, (uint32_t)len};
        }
    }
    if (ways[at + one].cost + UNKNOWN_COST < best.cost) {
        best = (struct way){ways[at + one].cost + UNKNOWN_COST, -1, (uint32_t)one};
    }
    return best;
}

static int emit(struct encoder *e, const struct way *ways, const char *text, size_t n)
{
    for (size_t at = 0; at < n; at += ways[at].len) {
        if (ways[at].id >= 0 && token_list_push(e->out, ways[at].id, e->err) != 0) {
            return -1;
        }
        for (size_t i = 0; ways[at].id < 0 && i < ways[at].len; i++) {
            if (encoder_byte(e, (unsigned char)text[at + i]) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

int least_cost_encode(struct encoder *e, const char *p, const char *end)
{
    if (scratch_reserve(&e->spelled, 3 * (size_t)(end - p) + 4, e->err) != 0) {
        return -1;
    }
    const size_t n = clean(p, end, e->spelled.data);
    if (scratch_reserve(&e->merging, (n + 1) * sizeof(struct way), e->err) != 0) {
        return -1;
    }
    struct way *ways = e->merging.data;
    const char *text = e->spelled.data;
    ways[n] = (struct way){0, -1, 1};
    for (size_t at = n, last = n; at-- > 0;) {
        if (((unsigned char)text[at] & 0xC0) == 0x80) { // within a character
            ways[at] = (struct way){INT64_MAX / 2, -1, 1};
            continue;
        }
        ways[at] = best_from(e->t, ways, text, at, last - at, n);
        last = at;
    }
    return emit(e, ways, text, n);
}

// ---- Loading

int vocab_load_costs(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    static const char key[] = "tokenizer.ggml.scores";
    const struct gguf_kv *kv;
    int found = gguf_get_array(g, key, GGUF_F32, &kv, err);
    if (found < 0) {
        return -1;
    }
    if (found == 0 || kv->count < (uint64_t)t->text.n) {
        return vocab_fail(g, key, err, "a score for each of %d tokens is wanted", t->text.n);
    }
    t->cost = ARENA_ARRAY(&t->arena, int32_t, (size_t)t->text.n);
    if (t->cost == NULL || trie_new(&t->words, t->text.at[t->text.n], &t->arena, err) != 0) {
        return t->cost != NULL ? -1 : fail(err, E_MEMORY, "no memory for the costs of %d tokens", t->text.n);
    }
    for (int32_t id = 0; id < t->text.n; id++) {
        const double cost = -round((double)gguf_array_f32(kv, (uint64_t)id) * SCALE);
        if (!token_is_plain(t, id) || !(cost < COST_MOST && cost > -COST_MOST)) {
            continue;
        }
        t->cost[id] = (int32_t)cost;
        trie_add(&t->words, spelling(&t->text, id), id);
    }
    for (int b = 0; b < 256; b++) {
        if (t->byte_token[b] < 0) {
            return vocab_fail(g, "tokenizer.ggml.tokens", err, "there is no token <0x%02X>", (unsigned)b);
        }
    }
    return 0;
}
