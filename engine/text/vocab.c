// Reads the tokens of a file: spellings, attributes, scores, and the bytes that each token decodes to.
#include "engine/text/vocab.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "engine/text/unicode.h"

static const char tokens_key[] = "tokenizer.ggml.tokens";

// Shortens a string for messages.
static struct str clipped(struct str s)
{
    return (struct str){s.data, MIN(s.len, (size_t)64)};
}

int(vocab_fail)(const struct gguf *g, const char *key, struct error *err, const char *fmt, ...)
{
    char text[ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const struct gguf_kv *kv = gguf_find(g, key);
    return gguf_fail(g, kv != NULL ? kv->shard : 0, kv != NULL ? kv->offset : ERR_NO_OFFSET, err, "key '%s': %s", key,
                     text);
}

// --- byte-level spelling ---

// 188 bytes are printable and stand for themselves; the other 68 are numbered from U+0100 on in ascending order.
static bool prints(unsigned char b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
}

uint32_t byte_to_letter(unsigned char byte)
{
    if (prints(byte)) {
        return byte;
    }
    // Of those 68 bytes, 33 are below 0x21; then come 0x7F to 0xA0, and then 0xAD.
    return 0x100 + (byte < 0x21 ? byte : byte < 0xAD ? byte - 0x7Fu + 33 : 67);
}

int letter_to_byte(uint32_t cp)
{
    if (cp < 0x100) {
        return prints((unsigned char)cp) ? (int)cp : -1;
    }
    if (cp < 0x100 + 33) {
        return (int)cp - 0x100;
    }
    if (cp < 0x100 + 67) {
        return (int)cp - 0x100 - 33 + 0x7F;
    }
    return cp == 0x100 + 67 ? 0xAD : -1;
}

// --- spellings ---

// The caller has checked the limits: fewer than SYMBOL_NO_TOKEN tokens, fewer than 4 GiB of bytes.
static int spellings_new(struct spellings *s, size_t n, size_t bytes, struct arena *arena, struct error *err)
{
    *s = (struct spellings){ARENA_ARRAY(arena, char, bytes + 1), ARENA_ARRAY(arena, uint32_t, n + 1), (int32_t)n};
    if (s->bytes == NULL || s->at == NULL) {
        return fail(err, E_MEMORY, "no memory for %zu tokens of %zu bytes", n, bytes);
    }
    return 0;
}

static int copy_tokens(struct tokenizer *t, const struct gguf *g, const struct gguf_kv *kv, struct error *err)
{
    size_t bytes = 0;
    for (uint64_t i = 0; i < kv->count; i++) {
        if (kv->strings[i].len == 0) {
            return vocab_fail(g, tokens_key, err, "element %" PRIu64 " is empty", i);
        }
        bytes += kv->strings[i].len;
        t->max_len = MAX(t->max_len, kv->strings[i].len);
    }
    assert(kv->count < SYMBOL_NO_TOKEN && bytes <= UINT32_MAX); // a file has 128 MB of metadata at most
    if (spellings_new(&t->text, (size_t)kv->count, bytes, &t->arena, err) != 0) {
        return -1;
    }
    uint32_t at = 0;
    for (int32_t i = 0; i < t->text.n; i++) {
        memcpy(t->text.bytes + at, kv->strings[i].data, kv->strings[i].len);
        at += (uint32_t)kv->strings[i].len;
        t->text.at[i + 1] = at;
    }
    return 0;
}

static int index_tokens(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    if (token_map_new(&t->map, &t->text, &t->arena, err) != 0) {
        return -1;
    }
    for (int32_t i = 0; i < t->text.n; i++) {
        int32_t earlier = token_map_add(&t->map, i);
        if (earlier >= 0) {
            struct str s = clipped(spelling(&t->text, i));
            return vocab_fail(g, tokens_key, err, "elements %d and %d are both '%.*s'", earlier, i, STR_ARG(s));
        }
    }
    return 0;
}

// --- attributes and scores ---

// Finds the array under `key`, which must have a value for each token if it exists. Returns 1, 0 or -1 like
// gguf_get_array.
static int array_for_tokens(const struct tokenizer *t, const struct gguf *g, const char *key, enum gguf_type element,
                            const struct gguf_kv **kv, struct error *err)
{
    int found = gguf_get_array(g, key, element, kv, err);
    if (found == 1 && (*kv)->count < (uint64_t)t->text.n) {
        return vocab_fail(g, key, err, "%" PRIu64 " elements for %d tokens", (*kv)->count, t->text.n);
    }
    return found;
}

// Returns the byte that "<0xNN>" stands for; -1 for other spellings.
static int byte_spelling(struct str s)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *high, *low;
    if (s.len != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>' || s.data[3] == '\0' || s.data[4] == '\0' ||
        (high = strchr(digits, s.data[3])) == NULL || (low = strchr(digits, s.data[4])) == NULL) {
        return -1;
    }
    return (int)(high - digits) * 16 + (int)(low - digits);
}

static int load_attributes(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    // Indexed by the numbers in the file; 0 (undefined) is treated as unused.
    static const uint8_t attrs[] = {TOKEN_UNUSED,       TOKEN_NORMAL, TOKEN_UNKNOWN, TOKEN_CONTROL,
                                    TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE};
    static const char key[] = "tokenizer.ggml.token_type";
    const struct gguf_kv *kv = NULL;
    int found = array_for_tokens(t, g, key, GGUF_I32, &kv, err);
    t->attr = found < 0 ? NULL : ARENA_ARRAY(&t->arena, uint8_t, (size_t)t->text.n);
    t->flags = t->attr == NULL ? NULL : ARENA_ARRAY(&t->arena, uint8_t, (size_t)t->text.n);
    if (t->flags == NULL) {
        return found < 0 ? -1 : fail(err, E_MEMORY, "no memory for the attributes of %d tokens", t->text.n);
    }
    for (int32_t i = 0; i < t->text.n && found == 1; i++) {
        int64_t type = gguf_array_i64(kv, (uint64_t)i);
        if (type < 0 || type >= (int64_t)COUNT_OF(attrs)) {
            return vocab_fail(g, key, err, "element %d: no type has the number %" PRId64, i, type);
        }
        t->attr[i] = attrs[type];
        struct str s = spelling(&t->text, i);
        if (t->attr[i] == TOKEN_BYTE && byte_spelling(s) < 0) {
            return vocab_fail(g, tokens_key, err, "element %d: '%.*s' is of type byte, but not from <0x00> to <0xFF>",
                              i, STR_ARG(clipped(s)));
        }
    }
    return 0;
}

// Maps scores to numbers in the opposite order, so that the highest score gives the lowest number.
static uint32_t order_of_score(float score)
{
    float positive_zero = score + 0.0f;
    uint32_t bits;
    memcpy(&bits, &positive_zero, 4);
    return ~(bits & 0x80000000u ? ~bits : bits | 0x80000000u);
}

static int load_scores(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    static const char key[] = "tokenizer.ggml.scores";
    const struct gguf_kv *kv = gguf_find(g, key);
    enum gguf_type element = kv != NULL && kv->element == GGUF_I32 ? GGUF_I32 : GGUF_F32;
    int found = array_for_tokens(t, g, key, element, &kv, err);
    if (found <= 0) {
        return found < 0 ? -1 : vocab_fail(g, key, err, "missing, as the model is SentencePiece");
    }
    t->order = ARENA_ARRAY(&t->arena, uint32_t, (size_t)t->text.n);
    if (t->order == NULL) {
        return fail(err, E_MEMORY, "no memory for the scores of %d tokens", t->text.n);
    }
    for (int32_t i = 0; i < t->text.n; i++) {
        float score = gguf_array_f32(kv, (uint64_t)i);
        if (isnan(score)) {
            return vocab_fail(g, key, err, "element %d is not a number", i);
        }
        t->order[i] = order_of_score(score);
    }
    return 0;
}

int vocab_load_tokens(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    const struct gguf_kv *kv = NULL;
    int found = gguf_get_array(g, tokens_key, GGUF_STRING, &kv, err);
    if (found < 0) {
        return -1;
    }
    if (found == 0 || kv->count == 0) {
        return vocab_fail(g, tokens_key, err, found == 0 ? "missing" : "no tokens");
    }
    if (copy_tokens(t, g, kv, err) != 0 || index_tokens(t, g, err) != 0 || load_attributes(t, g, err) != 0) {
        return -1;
    }
    return t->kind == TOKENIZER_SPM ? load_scores(t, g, err) : 0;
}

// --- bytes, and what may follow them in a token ---

// Finds where a space or a newline may be next to another byte within a token. At all other such places a text can be
// cut and the parts encoded independently.
static void find_glue(struct tokenizer *t)
{
    t->glued[' '] = true;
    for (int32_t id = 0; id < t->text.n; id++) {
        struct str s = spelling(&t->text, id);
        if (!token_is_plain(t, id)) {
            continue;
        }
        for (size_t i = 1; i < s.len; i++) {
            if (s.len - i >= WORD_MARK_LEN && memcmp(s.data + i, WORD_MARK, WORD_MARK_LEN) == 0) {
                t->glued[(unsigned char)s.data[i - 1]] = true;
            }
            t->lines_glued |= (s.data[i] == '\n') != (s.data[i - 1] == '\n');
        }
    }
}

// Finds which bytes are adjacent in the spellings of tokens. All attributes count, because merges do not depend on
// them.
static void find_joined(struct tokenizer *t)
{
    for (int32_t id = 0; id < t->text.n; id++) {
        struct str s = spelling(&t->text, id);
        int before = -1;
        for (size_t i = 0; i < s.len;) {
            uint32_t cp;
            int len = utf8_decode(s.data + i, s.len - i, &cp), byte = len > 0 ? letter_to_byte(cp) : -1;
            if (before >= 0 && byte >= 0) {
                t->joined[before][byte / 8] |= (uint8_t)(1 << byte % 8);
            }
            before = byte;
            i += len > 0 ? (size_t)len : 1;
        }
    }
}

// The token that spells a byte: never one that only ends, begins or separates texts. -1 if there is none.
static int32_t find_byte(const struct tokenizer *t, const char *s, size_t len)
{
    int32_t id = token_map_find(&t->map, s, len);
    return id >= 0 && (token_is_plain(t, id) || t->attr[id] == TOKEN_BYTE) ? id : -1;
}

void vocab_load_bytes(struct tokenizer *t)
{
    static const char digits[] = "0123456789ABCDEF";
    for (int b = 0; b < 256; b++) {
        char s[8] = {'<', '0', 'x', digits[b >> 4], digits[b & 15], '>'};
        if (tokenizer_escapes(t) || t->kind == TOKENIZER_PLAMO2) {
            t->byte_token[b] = find_byte(t, s, 6);
            if (t->byte_token[b] < 0 && t->kind != TOKENIZER_PLAMO2) {
                s[0] = (char)b;
                t->byte_token[b] = find_byte(t, s, 1);
            }
        } else {
            int len = utf8_encode(byte_to_letter((unsigned char)b), s);
            t->byte_token[b] = find_byte(t, s, (size_t)len);
        }
    }
    if (tokenizer_escapes(t)) {
        find_glue(t);
    } else if (t->kind == TOKENIZER_BPE) {
        find_joined(t);
    }
}

// --- pieces ---

// Decodes a byte-level spelling. A spelling with any other character stands for itself.
static size_t print_letters(struct str s, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        int len = utf8_decode(s.data + i, s.len - i, &cp);
        int byte = len > 0 ? letter_to_byte(cp) : -1;
        if (byte < 0) {
            memcpy(out, s.data, s.len);
            return s.len;
        }
        out[n++] = (char)byte;
        i += (size_t)len;
    }
    return n;
}

// Decodes an escaped spelling: WORD_MARK becomes a space.
static size_t print_escaped(struct str s, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len;) {
        if (s.len - i >= WORD_MARK_LEN && memcmp(s.data + i, WORD_MARK, WORD_MARK_LEN) == 0) {
            out[n++] = ' ';
            i += WORD_MARK_LEN;
        } else {
            out[n++] = s.data[i++];
        }
    }
    return n;
}

static size_t print_token(const struct tokenizer *t, int32_t id, char *out)
{
    struct str s = spelling(&t->text, id);
    switch ((enum token_attr)t->attr[id]) {
    case TOKEN_NORMAL:
        if (t->kind == TOKENIZER_PLAMO2) { // spaces are spaces
            break;
        }
        if (t->kind == TOKENIZER_RWKV) {
            return unescape(s, out);
        }
        return t->kind == TOKENIZER_BPE && !tokenizer_escapes(t) ? print_letters(s, out) : print_escaped(s, out);
    case TOKEN_BYTE:
        *out = (char)byte_spelling(s);
        return 1;
    case TOKEN_UNUSED:
        return 0;
    case TOKEN_UNKNOWN:
    case TOKEN_CONTROL:
    case TOKEN_USER_DEFINED:
        break;
    }
    memcpy(out, s.data, s.len);
    return s.len;
}

int vocab_load_pieces(struct tokenizer *t, struct error *err)
{
    // a piece is never longer than its spelling
    if (spellings_new(&t->piece, (size_t)t->text.n, t->text.at[t->text.n], &t->arena, err) != 0) {
        return -1;
    }
    for (int32_t id = 0; id < t->text.n; id++) {
        t->piece.at[id + 1] = t->piece.at[id] + (uint32_t)print_token(t, id, t->piece.bytes + t->piece.at[id]);
    }
    return 0;
}

// --- tries ---

static int special_set(struct tokenizer *t, const struct gguf *g, struct trie *set, bool all, bool *any,
                       struct error *err)
{
    enum { LONGEST = 512 }; // bounds the time per byte of text
    size_t bytes = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && trie_new(set, bytes, &t->arena, err) != 0) {
            return -1;
        }
        for (int32_t id = 0; id < t->text.n; id++) {
            uint8_t attr = t->attr[id];
            if (attr != TOKEN_USER_DEFINED && !(all && (attr == TOKEN_CONTROL || attr == TOKEN_UNKNOWN))) {
                continue;
            }
            struct str s = spelling(&t->text, id);
            if (s.len > LONGEST) {
                return vocab_fail(g, tokens_key, err, "element %d: %zu bytes for a special token, limit %d", id, s.len,
                                  LONGEST);
            }
            *any = true;
            bytes += s.len;
            if (pass == 1) {
                trie_add(set, s, id);
            }
        }
    }
    return 0;
}

static bool contains(struct str s, const char *part)
{
    return memmem(s.data, s.len, part, strlen(part)) != NULL;
}

static void set_flag(struct tokenizer *t, const char *token, uint8_t flag, bool on)
{
    int32_t id = token_map_find(&t->map, token, strlen(token));
    if (id >= 0) {
        t->flags[id] = (uint8_t)(on ? t->flags[id] | flag : t->flags[id] & ~flag);
    }
}

static void strip_around_phi3(struct tokenizer *t)
{
    for (int32_t id = 0; id < t->text.n; id++) {
        uint8_t attr = t->attr[id];
        if (attr == TOKEN_CONTROL || attr == TOKEN_USER_DEFINED || attr == TOKEN_UNKNOWN) {
            t->flags[id] |= TOKEN_RSTRIP;
        }
    }
    set_flag(t, "<unk>", TOKEN_RSTRIP, false);
    set_flag(t, "<s>", TOKEN_RSTRIP, false);
    set_flag(t, "<|endoftext|>", TOKEN_RSTRIP, false);
}

// GGUF does not store whether a token absorbs the white space next to it, so this is decided by the name of the
// model.
static int load_strips(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct str name = {"", 0}, arch = {"", 0};
    if (gguf_get_str(g, "general.name", &name, err) < 0 || gguf_get_str(g, "general.architecture", &arch, err) < 0) {
        return -1;
    }
    char lower[64] = "";
    for (size_t i = 0; i < MIN(name.len, sizeof lower - 1); i++) {
        lower[i] = (char)unicode_lower((unsigned char)name.data[i] & 0x7F);
    }
    struct str low = str_from(lower), pre = t->pre_name;
    if (contains(pre, "jina-v2-de") || contains(pre, "jina-v2-es") || contains(pre, "jina-v2-code") ||
        contains(arch, "nomic-bert-moe") || contains(arch, "jina-bert-v3")) {
        set_flag(t, "<mask>", TOKEN_LSTRIP, true);
    } else if (contains(low, "phi-3") || contains(low, "phi3")) {
        strip_around_phi3(t);
    } else if (contains(low, "modern-bert")) {
        set_flag(t, "[MASK]", TOKEN_LSTRIP, true);
    }
    return 0;
}

int vocab_load_special(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct special_tokens *s = &t->special;
    if (special_set(t, g, &s->always, false, &s->any_always, err) != 0 ||
        special_set(t, g, &s->all, true, &s->any, err) != 0) {
        return -1;
    }
    return load_strips(t, g, err);
}

int vocab_load_words(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    enum { LONGEST = 1024 }; // bounds the time per byte of a word
    if (trie_new(&t->words, t->text.at[t->text.n], &t->arena, err) != 0) {
        return -1;
    }
    for (int32_t id = 0; id < t->text.n; id++) {
        struct str s = spelling(&t->text, id);
        if (s.len > LONGEST) {
            return vocab_fail(g, tokens_key, err, "element %d: %zu bytes for a piece of a word, limit %d", id, s.len,
                              LONGEST);
        }
        if (token_is_plain(t, id)) {
            trie_add(&t->words, s, id);
        }
    }
    return 0;
}
