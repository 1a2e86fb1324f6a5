#include "engine/grammar/vocab_tree.h"

#include "engine/grammar/net.h"

#include <stdlib.h>

enum { PIECE_MAX = UINT16_MAX }; // bytes of a token: longer ones are never chosen

struct str vocab_tree_text(const struct grammar_vocab *v, int32_t token)
{
    if (token >= tokenizer_n_vocab(v->t) || tokenizer_is_end(v->t, token))
        return (struct str){"", 0};
    enum token_attr attr = tokenizer_attr(v->t, token);
    if (attr == TOKEN_CONTROL || attr == TOKEN_UNKNOWN || attr == TOKEN_UNUSED)
        return (struct str){"", 0};
    struct str text = tokenizer_piece(v->t, token, false);
    return text.len <= PIECE_MAX ? text : (struct str){"", 0};
}

bool vocab_tree_may_stand(const struct grammar_vocab *v, int32_t token)
{
    return token >= 0 && token < tokenizer_n_vocab(v->t) && !tokenizer_is_end(v->t, token) &&
           tokenizer_attr(v->t, token) != TOKEN_UNKNOWN && tokenizer_attr(v->t, token) != TOKEN_UNUSED;
}

// --- sorted by bytes ---

struct spelled {
    struct str text;
    int32_t token;
};

static int by_text(const void *a, const void *b)
{
    const struct spelled *x = a, *y = b;
    int order = memcmp(x->text.data, y->text.data, MIN(x->text.len, y->text.len));
    if (!order)
        order = (x->text.len > y->text.len) - (x->text.len < y->text.len);
    return order ? order : (x->token > y->token) - (x->token < y->token);
}

static size_t common(struct str a, struct str b)
{
    size_t n = 0;
    while (n < a.len && n < b.len && a.data[n] == b.data[n])
        n++;
    return n;
}

// Lays out one tree of sorted tokens: of each, the nodes that the one before it did not have.
static void lay_out(struct token_tree *tree, const struct spelled *list, size_t n, int32_t *next_same)
{
    struct str before = {"", 0};
    int32_t last = -1;
    for (size_t i = 0; i < n; i++) {
        struct str text = list[i].text;
        size_t shared = common(before, text);
        if (i > 0 && shared == text.len && before.len == text.len) {
            next_same[last] = list[i].token;
            last = list[i].token;
            continue;
        }
        for (size_t d = shared; d < text.len; d++) {
            tree->byte[tree->n] = (uint8_t)text.data[d];
            tree->depth[tree->n] = (uint16_t)(d + 1);
            tree->token[tree->n++] = -1;
        }
        tree->token[tree->n - 1] = last = list[i].token;
        before = text;
    }
    for (uint32_t i = tree->n; i-- > 0;) {
        // the next node that is not deeper, found by leaps over those that are
        uint32_t at = i + 1;
        while (at < tree->n && tree->depth[at] > tree->depth[i])
            at = tree->skip[at];
        tree->skip[i] = at;
    }
}

static bool build_tree(struct token_tree *tree, const struct spelled *list, size_t n, int32_t *next_same)
{
    size_t bytes = 1;
    struct str before = {"", 0};
    for (size_t i = 0; i < n; i++) {
        bytes += list[i].text.len - common(before, list[i].text);
        before = list[i].text;
    }
    if (bytes > UINT32_MAX)
        return false;
    tree->byte = malloc(bytes * sizeof *tree->byte);
    tree->depth = malloc(bytes * sizeof *tree->depth);
    tree->skip = malloc(bytes * sizeof *tree->skip);
    tree->token = malloc(bytes * sizeof *tree->token);
    if (!tree->byte || !tree->depth || !tree->skip || !tree->token)
        return false;
    lay_out(tree, list, n, next_same);
    return true;
}

// --- the vocabulary ---

static bool build(struct grammar_vocab *v)
{
    size_t n_all = (size_t)v->n_tokens + 1, n[TREE_COUNT] = {0};
    struct spelled *lists[TREE_COUNT] = {malloc(n_all * sizeof *lists[0]), malloc(n_all * sizeof *lists[0])};
    v->next_same = malloc(n_all * sizeof *v->next_same);
    v->ends = malloc(n_all * sizeof *v->ends);
    bool good = lists[0] && lists[1] && v->next_same && v->ends;
    for (int32_t id = 0; id < v->n_tokens && good; id++) {
        struct str text = vocab_tree_text(v, id);
        int tree = text.len < NET_CHAIN_MIN ? TREE_SHORT : TREE_LONG;
        v->next_same[id] = -1;
        if (text.len > 0)
            lists[tree][n[tree]++] = (struct spelled){text, id};
        if (text.len == 1)
            byte_set_add(&v->available, (uint8_t)text.data[0]);
        if (id < tokenizer_n_vocab(v->t) && tokenizer_is_end(v->t, id))
            v->ends[v->n_ends++] = id;
    }
    for (int i = 0; i < TREE_COUNT && good; i++) {
        qsort(lists[i], n[i], sizeof *lists[i], by_text);
        good = build_tree(&v->trees[i], lists[i], n[i], v->next_same);
    }
    free(lists[0]);
    free(lists[1]);
    return good;
}

int grammar_vocab_new(struct grammar_vocab **out, const struct tokenizer *t, int32_t n_tokens, struct error *err)
{
    *out = NULL;
    int32_t n = n_tokens > 0 ? n_tokens : tokenizer_n_vocab(t);
    struct grammar_vocab *v = calloc(1, sizeof *v);
    if (v)
        *v = (struct grammar_vocab){.t = t, .n_tokens = n};
    if (!v || !build(v)) {
        grammar_vocab_free(v);
        return fail(err, E_MEMORY, "no memory for a tree of %d tokens", n);
    }
    *out = v;
    return 0;
}

void grammar_vocab_free(struct grammar_vocab *v)
{
    if (!v)
        return;
    for (int i = 0; i < TREE_COUNT; i++) {
        free(v->trees[i].byte);
        free(v->trees[i].depth);
        free(v->trees[i].skip);
        free(v->trees[i].token);
    }
    free(v->next_same);
    free(v->ends);
    free(v);
}
