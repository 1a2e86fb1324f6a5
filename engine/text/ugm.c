// Unigram (SentencePiece's other model, Kudo 2018, arXiv 1804.10959), as in T5 and XLM-RoBERTa: text is normalized, and of
// all ways to cut it into tokens the one with the greatest sum of scores is taken.
//
// The normalizer replaces the longest prefix that a double-array trie knows, spells spaces as WORD_MARK, and may merge
// them. The best way to cut is found from left to right: for each place the best way to get there (Viterbi 1967).
#include "engine/text/encoder.h"

#include <float.h>
#include <stdlib.h>

// The best way to a place in the normalized text: the score of all tokens before it, and the last of them.
struct way {
    double score;
    int32_t id;
    uint32_t len; // bytes of that token
};

// ---- The table of replacements

enum { UNIT_LEAF = 1 << 8, UNIT_FAR = 1 << 9, UNIT_LABEL = 0xFF };

// The distance from a unit to its children, or to the value that belongs to it.
static uint32_t base_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & UNIT_FAR) >> 6);
}

// The replacement of the longest prefix of [p, end) that the table knows. Returns the bytes of that prefix, 0: none.
static size_t find_replacement(const struct charsmap *m, const char *p, const char *end, struct str *out)
{
    size_t found = 0;
    uint32_t at = m->n ? base_of(m->units[0]) : 0;
    for (const char *q = p; q < end && *q && m->n; q++) {
        at ^= (unsigned char)*q;
        if (at >= m->n || (m->units[at] & (UINT32_C(1) << 31 | UNIT_LABEL)) != (unsigned char)*q) {
            break;
        }
        const uint32_t unit = m->units[at];
        at ^= base_of(unit);
        if (at >= m->n) {
            break;
        }
        const uint32_t text = m->units[at] & INT32_MAX;
        if ((unit & UNIT_LEAF) && text < m->texts.len) {
            found = (size_t)(q - p) + 1;
            *out = str_from(m->texts.data + text); // the loader has seen that the last text ends
        }
    }
    return found;
}

// The bytes of the character at p < end: as in UTF-8, but of longer forms and halves of pairs, too. 0: it is none.
static size_t char_len(const char *p, const char *end)
{
    const unsigned char c = (unsigned char)*p;
    const size_t len = c < 0x80 ? 1 : c < 0xC0 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF8 ? 4 : 0;
    for (size_t i = 1; i < len; i++) {
        if (p + i >= end || ((unsigned char)p[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return len;
}

// ---- Normalizing

struct normalizer {
    struct encoder *e;
    size_t n; // bytes written to e->spelled
    bool in_word, prefixed;
};

// Keeps what was written and makes room for more.
static int make_room(struct normalizer *s, size_t more)
{
    struct scratch *out = &s->e->spelled;
    if (s->n + more <= out->cap) {
        return 0;
    }
    const size_t cap = MAX(s->n + more, 2 * out->cap);
    void *data = realloc(out->data, cap);
    if (data == NULL) {
        return fail(s->e->err, E_MEMORY, "no memory for %zu bytes of text", cap);
    }
    *out = (struct scratch){data, cap};
    return 0;
}

static void put_space(struct normalizer *s)
{
    memcpy((char *)s->e->spelled.data + s->n, WORD_MARK, WORD_MARK_LEN);
    s->n += WORD_MARK_LEN;
}

static int put(struct normalizer *s, struct str text)
{
    const struct tokenizer *t = s->e->t;
    if (make_room(s, (WORD_MARK_LEN + 1) * text.len) != 0) {
        return -1;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == ' ') {
            s->in_word = false;
            if (!t->merge_spaces) {
                put_space(s);
            }
            continue;
        }
        if (!s->in_word && (t->merge_spaces || (t->add_space_prefix && !s->prefixed))) {
            put_space(s);
            s->prefixed = true;
        }
        s->in_word = true;
        ((char *)s->e->spelled.data)[s->n++] = text.data[i];
    }
    return 0;
}

static int normalize(struct normalizer *s, const char *p, const char *end)
{
    static const char replacement[] = "\xEF\xBF\xBD"; // U+FFFD
    while (p < end) {
        struct str text;
        size_t used = find_replacement(&s->e->t->charsmap, p, end, &text);
        if (used == 0 && (used = char_len(p, end)) > 0) {
            text = (struct str){p, used};
        } else if (used == 0) {
            text = str_from(replacement);
            used = 1;
        }
        if (put(s, text) != 0) {
            return -1;
        }
        p += used;
    }
    return 0;
}

// ---- Cutting

static void take_better(struct way *to, double score, int32_t id, size_t len)
{
    if (score > to->score) {
        *to = (struct way){score, id, (uint32_t)len};
    }
}

// Extends the way to `at` by every token that begins there, and by the unknown token if none of them is one character.
static size_t extend(const struct tokenizer *t, struct way *ways, const char *text, size_t at, size_t n)
{
    static const uint8_t lengths[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
    const size_t one = MIN((size_t)lengths[(unsigned char)text[at] >> 4], n - at);
    const double score = ways[at].score;
    bool spelled = false;
    uint32_t node = 0;
    for (size_t i = at; i < n && (node = trie_step(&t->words, node, (unsigned char)text[i])) != 0; i++) {
        const int32_t id = t->words.token[node];
        const size_t len = i - at + 1;
        if (id >= 0) {
            spelled |= len == one;
            take_better(&ways[at + len], score + (t->attr[id] == TOKEN_USER_DEFINED ? 0 : (double)t->score[id]), id,
                        len);
        }
    }
    if (!spelled) {
        take_better(&ways[at + one], score + (double)t->unknown_score, t->role[TOKEN_UNK], one);
    }
    return one;
}

// Appends the tokens of the best way, of which several unknown ones in a row are one.
static int emit(struct encoder *e, const struct way *ways, size_t n)
{
    const int32_t unknown = e->t->role[TOKEN_UNK];
    const size_t first = e->out->n;
    bool was_unknown = false;
    for (size_t at = n; at > 0; at -= ways[at].len) {
        const bool is_unknown = ways[at].id == unknown;
        if (is_unknown && unknown < 0) {
            return fail(e->err, E_MODEL, "the vocabulary cannot spell the text and has no unknown token");
        }
        if (!(is_unknown && was_unknown) && token_list_push(e->out, ways[at].id, e->err) != 0) {
            return -1;
        }
        was_unknown = is_unknown;
    }
    for (size_t i = first, j = e->out->n; i + 1 < j; i++) {
        const int32_t id = e->out->ids[i];
        e->out->ids[i] = e->out->ids[--j];
        e->out->ids[j] = id;
    }
    return 0;
}

int ugm_encode(struct encoder *e, const char *p, const char *end)
{
    struct normalizer s = {.e = e};
    if (normalize(&s, p, end) != 0 || scratch_reserve(&e->merging, (s.n + 1) * sizeof(struct way), e->err) != 0) {
        return -1;
    }
    struct way *ways = e->merging.data;
    for (size_t i = 0; i <= s.n; i++) {
        ways[i] = (struct way){i ? -DBL_MAX : 0, e->t->role[TOKEN_UNK], 1};
    }
    for (size_t at = 0; at < s.n;) {
        at += extend(e->t, ways, e->spelled.data, at, s.n);
    }
    return emit(e, ways, s.n);
}

// ---- Loading

static int load_scores(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    static const char key[] = "tokenizer.ggml.scores";
    const double penalty = 10;
    const struct gguf_kv *kv;
    int found = gguf_get_array(g, key, GGUF_F32, &kv, err);
    if (found < 1 || kv->count < (uint64_t)t->text.n) {
        return found < 0 ? -1
               : found == 0
                   ? vocab_fail(g, key, err, "missing, as the model is Unigram")
                   : vocab_fail(g, key, err, "%llu elements for %d tokens", (unsigned long long)kv->count, t->text.n);
    }
    float least = FLT_MAX;
    t->score = ARENA_ARRAY(&t->arena, float, (size_t)t->text.n);
    if (t->score == NULL) {
        return fail(err, E_MEMORY, "no memory for the scores of %d tokens", t->text.n);
    }
    for (int32_t i = 0; i < t->text.n; i++) {
        t->score[i] = gguf_array_f32(kv, (uint64_t)i);
        if (!(t->score[i] >= -FLT_MAX && t->score[i] <= FLT_MAX)) {
            return vocab_fail(g, key, err, "element %d is not a finite number", i);
        }
        least = t->attr[i] == TOKEN_NORMAL ? MIN(least, t->score[i]) : least;
    }
    t->unknown_score = (float)((double)least - penalty);
    return 0;
}

// The table: the bytes of the units, the units, and texts that end with NUL, to which the values of units are offsets.
static int load_charsmap(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL) {
        return 0;
    }
    if (gguf_get_array(g, key, kv->element == GGUF_I8 ? GGUF_I8 : GGUF_U8, &kv, err) < 0) {
        return -1;
    }
    uint32_t bytes = 0;
    if (kv->count == 0) {
        return 0;
    }
    if (kv->count >= sizeof bytes) {
        memcpy(&bytes, kv->data, sizeof bytes);
    }
    if (kv->count < sizeof bytes || bytes > kv->count - sizeof bytes || bytes % sizeof(uint32_t) != 0) {
        return vocab_fail(g, key, err, "units of %u bytes in %llu", bytes, (unsigned long long)kv->count);
    }
    const size_t n_texts = (size_t)kv->count - sizeof bytes - bytes;
    struct charsmap *m = &t->charsmap;
    char *texts = ARENA_ARRAY(&t->arena, char, n_texts + 1);
    uint32_t *units = ARENA_ARRAY(&t->arena, uint32_t, bytes / sizeof(uint32_t) + 1);
    if (texts == NULL || units == NULL) {
        return fail(err, E_MEMORY, "no memory for %llu bytes of replacements", (unsigned long long)kv->count);
    }
    memcpy(units, kv->data + sizeof bytes, bytes);
    memcpy(texts, kv->data + sizeof bytes + bytes, n_texts);
    if (n_texts && texts[n_texts - 1] != '\0') {
        return vocab_fail(g, key, err, "the last text does not end");
    }
    *m = (struct charsmap){units, bytes / sizeof(uint32_t), {texts, n_texts}};
    return 0;
}

int vocab_load_unigram(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    return load_scores(t, g, err) != 0 || load_charsmap(t, g, err) != 0 ? -1 : vocab_load_words(t, g, err);
}
