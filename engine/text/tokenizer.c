// The public interface: loading, encoding text cut at special tokens, and decoding.
#include "engine/text/tokenizer.h"

#include <stdlib.h>

#include "engine/text/encoder.h"

// --- loading ---

static int choose_pre(struct tokenizer *t, const struct gguf *g, struct str name, unsigned flags, struct error *err)
{
    t->pre = pretokenizer_find(name);
    t->pre_known = t->pre != NULL;
    if (t->pre == NULL && name.len > 0 && (flags & TOKENIZER_ANY_PRE) == 0) {
        return vocab_fail(g, "tokenizer.ggml.pre", err, "'%.*s' is not known; --any-pre reads it as 'default'",
                          (int)MIN(name.len, (size_t)64), name.data);
    }
    if (t->pre == NULL) {
        t->pre = pretokenizer_find(STR_LIT("default"));
    }
    const char *copy = arena_strdup(&t->arena, name);
    if (copy == NULL) {
        return fail(err, E_MEMORY, "no memory for the name of the pre-tokenizer");
    }
    t->pre_name = (struct str){copy, name.len};
    return 0;
}

static int choose_kind(struct tokenizer *t, const struct gguf *g, unsigned flags, struct error *err)
{
    static const char model_key[] = "tokenizer.ggml.model";
    struct str model = {"", 0}, pre = {"", 0};
    int found = gguf_get_str(g, model_key, &model, err);
    if (found < 0 || gguf_get_str(g, "tokenizer.ggml.pre", &pre, err) < 0) {
        return -1;
    }
    if (str_equal_z(model, "none") || str_equal_z(model, "no_vocab") ||
        (found == 0 && gguf_find(g, "tokenizer.ggml.tokens") == NULL)) {
        t->kind = TOKENIZER_NONE;
    } else if (found == 0) {
        return vocab_fail(g, model_key, err, "missing, as there are tokens");
    } else if (str_equal_z(model, "llama")) {
        t->kind = TOKENIZER_SPM;
    } else if (str_equal_z(model, "bert")) {
        t->kind = TOKENIZER_WPM;
    } else if (str_equal_z(model, "t5")) {
        t->kind = TOKENIZER_UGM;
    } else if (str_equal_z(model, "plamo2")) {
        t->kind = TOKENIZER_PLAMO2;
    } else if (str_equal_z(model, "rwkv")) {
        t->kind = TOKENIZER_RWKV;
    } else if (str_equal_z(model, "gpt2") || str_equal_z(model, "gemma4")) {
        t->kind = TOKENIZER_BPE;
        return choose_pre(t, g, str_equal_z(model, "gemma4") ? STR_LIT("gemma4") : pre, flags, err);
    } else {
        return vocab_fail(g, model_key, err, "'%.*s' is not one of llama, gpt2, gemma4, bert, t5, plamo2, rwkv",
                          (int)MIN(model.len, (size_t)64), model.data);
    }
    return 0;
}

static int load(struct tokenizer *t, const struct gguf *g, unsigned flags, struct error *err)
{
    if (choose_kind(t, g, flags, err) != 0) {
        return -1;
    }
    if (t->kind == TOKENIZER_NONE) {
        memset(t->role, -1, sizeof t->role);
        return 0;
    }
    if (vocab_load_tokens(t, g, err) != 0 || vocab_load_roles(t, g, err) != 0 || vocab_load_pieces(t, err) != 0 ||
        vocab_load_special(t, g, err) != 0) {
        return -1;
    }
    vocab_load_bytes(t);
    if (t->kind == TOKENIZER_BPE) {
        return vocab_load_merges(t, g, err);
    }
    switch (t->kind) {
    case TOKENIZER_WPM:
        return vocab_load_words(t, g, err);
    case TOKENIZER_UGM:
        return vocab_load_unigram(t, g, err);
    case TOKENIZER_PLAMO2:
        return vocab_load_costs(t, g, err);
    case TOKENIZER_RWKV:
        return vocab_load_greedy(t, g, err);
    default:
        return 0;
    }
}

int tokenizer_load(struct tokenizer **out, const struct gguf *g, unsigned flags, struct error *err)
{
    *out = NULL;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return fail(err, E_MEMORY, "no memory for a tokenizer");
    }
    t->pre_name = STR_LIT("");
    if (load(t, g, flags, err) != 0) {
        tokenizer_free(t);
        return -1;
    }
    *out = t;
    return 0;
}

void tokenizer_free(struct tokenizer *t)
{
    if (t != NULL) {
        arena_free(&t->arena);
        free(t);
    }
}

// --- encoding ---

// Returns the length up to the next space or newline at which no token can span the cut.
static size_t escaped_word_len(const struct tokenizer *t, const char *p, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        bool before_space = p[i] == ' ' && !t->glued[(unsigned char)p[i - 1]];
        bool around_lines = (p[i] == '\n') != (p[i - 1] == '\n') && !t->lines_glued;
        if (before_space || around_lines) {
            return i;
        }
    }
    return n;
}

// Encodes text with escaped spaces, cut into parts that can be encoded independently. A split_word_fn.
static int encode_escaped(void *encoder, const char *p, size_t n)
{
    struct encoder *e = encoder;
    for (size_t len; n > 0; p += len, n -= len) {
        len = escaped_word_len(e->t, p, n);
        if (encoder_word(e, p, len) != 0) {
            return -1;
        }
    }
    return 0;
}

// Encodes text between special tokens: it begins the text, or follows such a token.
static int encode_plain(struct encoder *e, const char *p, const char *end)
{
    const struct tokenizer *t = e->t;
    if (p == end) {
        return 0;
    }
    if (t->kind == TOKENIZER_BPE) {
        return split_text(t->pre->family, (struct str){p, (size_t)(end - p)},
                          tokenizer_escapes(t) ? encode_escaped : encoder_word, e);
    }
    if (t->kind == TOKENIZER_UGM) {
        return ugm_encode(e, p, end);
    }
    if (t->kind == TOKENIZER_PLAMO2) {
        return least_cost_encode(e, p, end);
    }
    if (t->kind == TOKENIZER_RWKV) {
        return greedy_encode(e, p, end);
    }
    if (t->kind == TOKENIZER_SPM && t->add_space_prefix) {
        size_t len = escaped_word_len(t, p, (size_t)(end - p));
        if (spm_encode_word(e, p, len, true) != 0) {
            return -1;
        }
        p += len;
    }
    if (t->kind == TOKENIZER_SPM) {
        return encode_escaped(e, p, (size_t)(end - p));
    }
    for (size_t len; p < end; p += len) {
        len = wpm_word_len(p, end);
        if (*p != ' ' && encoder_word(e, p, len) != 0) {
            return -1;
        }
    }
    return 0;
}

static bool is_ascii_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// Returns the number of bytes before the first marked one.
static size_t unmarked(const struct encoder *e, const char *p, const char *end)
{
    const uint8_t *marks = e->marks + (p - e->text.data);
    const uint8_t *first = memchr(marks, 1, (size_t)(end - p));
    return first != NULL ? (size_t)(first - marks) : (size_t)(end - p);
}

// Returns the longest special token at p; -1 if there is none. Control tokens, and tokens that end a turn, must
// consist of unmarked bytes only.
static int32_t special_at(const struct encoder *e, const struct trie *special, const char *p, const char *end,
                          size_t *len)
{
    if (special->root[(unsigned char)*p] == 0) {
        return -1;
    }
    int32_t id = trie_longest(special, p, end, len);
    size_t own = id >= 0 && e->marks != NULL ? unmarked(e, p, p + *len) : *len;
    if (id < 0 || *len <= own) {
        return id;
    }
    id = trie_longest(special, p, p + own, len);
    size_t other_len;
    int32_t other = trie_longest(&e->t->special.always, p, end, &other_len);
    if (other >= 0 && other_len > *len && (e->t->flags[other] & TOKEN_IS_END) == 0) {
        *len = other_len;
        id = other;
    }
    return id;
}

// Cuts the text at special tokens and encodes the parts between them.
static int encode_parts(struct encoder *e, const struct trie *special)
{
    const struct tokenizer *t = e->t;
    const char *part = e->text.data, *end = part + e->text.len, *p = part;
    while (p < end) {
        size_t len;
        int32_t id = special_at(e, special, p, end, &len);
        if (id < 0) {
            p++;
            continue;
        }
        const char *part_end = p;
        while ((t->flags[id] & TOKEN_LSTRIP) != 0 && part_end > part && is_ascii_space(part_end[-1])) {
            part_end--;
        }
        if (encode_plain(e, part, part_end) != 0 || token_list_push(e->out, id, e->err) != 0) {
            return -1;
        }
        p += len;
        while ((t->flags[id] & TOKEN_RSTRIP) != 0 && p < end && is_ascii_space(*p)) {
            p++;
        }
        part = p;
    }
    return encode_plain(e, part, end);
}

// Allocates a word cache whose size grows with the text. Without a cache encoding works, but is slower.
static void new_cache(struct encoder *e)
{
    enum { LEAST = 64, MOST = 1 << 16 };
    if (e->text.len < 256 || e->text.len > UINT32_MAX) {
        return;
    }
    size_t n = LEAST;
    while (n < MOST && n < e->text.len / 8) {
        n *= 2;
    }
    e->cache = calloc(n, sizeof *e->cache);
    e->cache_mask = n - 1;
}

static int encode_text(struct encoder *e, unsigned flags)
{
    const struct tokenizer *t = e->t;
    int32_t before = t->add_bos ? t->role[TOKEN_BOS] : -1;
    int32_t after = t->add_eos ? t->role[t->kind == TOKENIZER_WPM ? TOKEN_SEP : TOKEN_EOS] : -1;
    if ((flags & TOKENIZE_BOS) != 0 && before >= 0 && token_list_push(e->out, before, e->err) != 0) {
        return -1;
    }
    bool all = (flags & TOKENIZE_SPECIAL) != 0 || e->marks != NULL;
    int rc;
    if (e->text.len == 0) {
        rc = 0;
    } else if (all ? t->special.any : t->special.any_always) {
        rc = encode_parts(e, all ? &t->special.all : &t->special.always);
    } else {
        rc = encode_plain(e, e->text.data, e->text.data + e->text.len);
    }
    if (rc == 0 && (flags & TOKENIZE_BOS) != 0 && after >= 0) {
        rc = token_list_push(e->out, after, e->err);
    }
    return rc;
}

int tokenizer_encode(const struct tokenizer *t, struct str text, unsigned flags, struct token_list *list,
                     struct error *err)
{
    return tokenizer_encode_marked(t, text, NULL, flags, list, err);
}

int tokenizer_encode_marked(const struct tokenizer *t, struct str text, const uint8_t *marks, unsigned flags,
                            struct token_list *list, struct error *err)
{
    if (t->kind == TOKENIZER_NONE) {
        return fail(err, E_MODEL, "the model has no tokenizer (tokenizer.ggml.model); it takes token ids only");
    }
    if (text.len > TEXT_MAX) {
        return fail(err, E_MEMORY, "a text of %zu bytes is too long", text.len);
    }
    struct encoder e = {.t = t, .text = text, .marks = marks, .out = list, .err = err};
    size_t n = list->n;
    int rc = token_list_reserve(list, text.len / 4 + 16, err);
    if (rc == 0) {
        new_cache(&e);
        rc = encode_text(&e, flags);
    }
    if (rc != 0) {
        list->n = n;
    }
    free(e.cache);
    free(e.spelled.data);
    free(e.merging.data);
    return rc;
}

// --- single tokens ---

enum tokenizer_kind tokenizer_kind(const struct tokenizer *t)
{
    return t->kind;
}

int32_t tokenizer_n_vocab(const struct tokenizer *t)
{
    return t->text.n;
}

struct str tokenizer_pre(const struct tokenizer *t)
{
    return t->pre_name;
}

bool tokenizer_pre_is_known(const struct tokenizer *t)
{
    return t->kind != TOKENIZER_BPE || t->pre_known;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->add_bos && t->role[TOKEN_BOS] >= 0;
}

bool tokenizer_adds_eos(const struct tokenizer *t)
{
    return t->add_eos && t->role[t->kind == TOKENIZER_WPM ? TOKEN_SEP : TOKEN_EOS] >= 0;
}

static bool is_token(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->text.n;
}

int32_t tokenizer_role(const struct tokenizer *t, enum token_role role)
{
    return t->role[role];
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    return is_token(t, id) && (t->flags[id] & TOKEN_IS_END) != 0;
}

enum token_attr tokenizer_attr(const struct tokenizer *t, int32_t id)
{
    return is_token(t, id) ? (enum token_attr)t->attr[id] : TOKEN_UNUSED;
}

struct str tokenizer_text(const struct tokenizer *t, int32_t id)
{
    return is_token(t, id) ? spelling(&t->text, id) : (struct str){"", 0};
}

int32_t tokenizer_find(const struct tokenizer *t, struct str text)
{
    return t->kind == TOKENIZER_NONE ? -1 : token_map_find(&t->map, text.data, text.len);
}

struct str tokenizer_piece(const struct tokenizer *t, int32_t id, bool special)
{
    bool hidden = !is_token(t, id) || (!special && (t->attr[id] == TOKEN_CONTROL || t->attr[id] == TOKEN_UNKNOWN));
    return hidden ? (struct str){"", 0} : spelling(&t->piece, id);
}

// --- decoding ---

struct detokenizer detokenizer_begin(const struct tokenizer *t, bool special)
{
    return (struct detokenizer){t, special, true};
}

struct str detokenizer_next(struct detokenizer *d, int32_t id)
{
    struct str s = tokenizer_piece(d->t, id, d->special);
    enum token_attr attr = tokenizer_attr(d->t, id);
    // Encoding adds a space at the beginning of the text and after special tokens.
    if (attr == TOKEN_CONTROL || attr == TOKEN_UNKNOWN || attr == TOKEN_USER_DEFINED) {
        d->at_start = true;
    } else if (s.len > 0) {
        if (d->at_start && d->t->add_space_prefix && s.data[0] == ' ') {
            s = (struct str){s.data + 1, s.len - 1};
        }
        d->at_start = false;
    }
    return s;
}

// clean_up_tokenization_spaces of Hugging Face: three passes over the text, each of which removes some spaces.
static size_t clean_before_stops(char *s, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        bool stop = s[i] == '?' || s[i] == '!' || s[i] == '.' || s[i] == ',';
        if (stop && out > 0 && s[out - 1] == ' ') {
            out--;
        }
        s[out++] = s[i];
    }
    return out;
}

static size_t clean_around_apostrophes(char *s, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\'' && i + 1 < n && out > 0 && s[out - 1] == ' ' && s[i + 1] == ' ') {
            s[out - 1] = '\'';
            i++;
        } else {
            s[out++] = s[i];
        }
    }
    return out;
}

static size_t clean_before_contractions(char *s, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        char a = i + 1 < n ? s[i + 1] : '\0', b = i + 2 < n ? s[i + 2] : '\0';
        bool contraction = a == 's' || a == 'm' || (a == 'r' && b == 'e') || (a == 'v' && b == 'e');
        if (s[i] == '\'' && contraction && out > 0 && s[out - 1] == ' ') {
            out--;
        }
        s[out++] = s[i];
    }
    return out;
}

int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, unsigned flags, char **text, size_t *len,
                     struct error *err)
{
    bool special = (flags & DETOKENIZE_SPECIAL) != 0;
    size_t bytes = 1; // with the NUL at the end
    for (size_t i = 0; i < n; i++) {
        if (size_add(bytes, tokenizer_piece(t, ids[i], special).len, &bytes)) {
            return fail(err, E_MEMORY, "the text of %zu tokens is too long", n);
        }
    }
    char *out = malloc(bytes);
    if (out == NULL) {
        return fail(err, E_MEMORY, "no memory for a text of %zu bytes", bytes);
    }
    struct detokenizer d = detokenizer_begin(t, special);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        struct str s = detokenizer_next(&d, ids[i]);
        memcpy(out + at, s.data, s.len);
        at += s.len;
    }
    if ((flags & DETOKENIZE_CLEAN) != 0 && t->clean_spaces) {
        at = clean_before_stops(out, at);
        at = clean_around_apostrophes(out, at);
        at = clean_before_contractions(out, at);
    }
    out[at] = '\0';
    *text = out;
    *len = at;
    return 0;
}
