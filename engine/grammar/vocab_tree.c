// Sorts the tokens by their bytes and lays the tree out level by level, so that the children of a node are adjacent.
// Tokens of at least NET_CHAIN_MIN bytes have a tree of their own. For the short tokens there are also bit masks per
// kind of characters, which give all tokens of a set of kinds without a walk.
#include "engine/grammar/vocab_tree.h"

#include <stdlib.h>

enum { PIECE_MAX = UINT16_MAX }; // bytes; longer tokens are never allowed

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

// --- sorting by bytes ---

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

// Appends the children of a node to the tree. The tokens below the node share their first `depth` bytes.
static void lay_out_children(struct token_tree *tree, uint32_t parent, const struct spelled *list, size_t depth)
{
    uint32_t last = tree->at[parent].last, i = tree->at[parent].first;
    tree->at[parent].child = tree->n;
    while (i < last && list[i].text.len == depth)
        i++;
    while (i < last) {
        struct token_node node = {.byte = (uint8_t)list[i].text.data[depth], .first = i};
        while (i < last && (uint8_t)list[i].text.data[depth] == node.byte)
            i++;
        node.last = i;
        tree->at[tree->n++] = node;
        tree->at[parent].n_child++;
    }
}

// Fills in `kinds`, `whole` and `reach`: takes one token of each node and follows the parents up to the root. False
// if memory runs out.
static bool look_below(struct token_tree *tree, const struct spelled *list, const uint32_t *parent)
{
    const struct kind_form *of[256];
    uint64_t *kinds = malloc((tree->longest + 1) * sizeof *kinds);
    kinds_by_byte(of);
    for (uint32_t node = 1; node < tree->n && kinds; node++) {
        if (tree->at[node].first == token_node_mid(tree, &tree->at[node]))
            continue;
        struct str text = list[tree->at[node].first].text;
        kinds_of_text(of, text, kinds);
        uint32_t up = node;
        for (size_t d = text.len;; d--, up = parent[up]) {
            struct token_node *at = &tree->at[up];
            at->kinds |= kinds[d];
            at->whole |= kinds[0];
            at->reach = (uint8_t)MAX(at->reach, MIN(text.len - d, REACH_MAX));
            if (!d)
                break;
        }
    }
    free(kinds);
    return kinds != NULL;
}

static bool build_tree(struct token_tree *tree, const struct spelled *list, size_t n)
{
    size_t n_nodes = 1;
    struct str before = {"", 0};
    for (size_t i = 0; i < n; i++) {
        n_nodes += list[i].text.len - common(before, list[i].text);
        tree->longest = MAX(tree->longest, list[i].text.len);
        before = list[i].text;
    }
    if (n_nodes > UINT32_MAX)
        return false;
    tree->at = aligned_alloc(64, (n_nodes + 1) / 2 * 64);
    tree->order = malloc((n + 1) * sizeof *tree->order);
    uint32_t *parent = calloc(n_nodes, sizeof *parent), level = 1; // level: first node of the next depth
    bool good = tree->at && tree->order && parent;
    if (good)
        tree->at[tree->n++] = (struct token_node){.last = (uint32_t)n};
    for (size_t i = 0; i < n && good; i++)
        tree->order[i] = list[i].token;
    for (uint32_t node = 0, depth = 0; node < tree->n && good; node++) {
        if (node == level) {
            level = tree->n;
            depth++;
        }
        lay_out_children(tree, node, list, depth);
        for (uint32_t i = tree->at[node].child; i < tree->n; i++)
            parent[i] = node;
    }
    good = good && look_below(tree, list, parent);
    free(parent);
    return good;
}

// --- masks by kinds of characters, and sorting by length ---

// Rows of `with_kind` after those of the single kinds. Groups of four kinds save work where a set lacks many kinds.
enum { ROW_NO_KIND = KIND_COUNT, ROW_ALL, ROW_GROUPS, GROUP = 4, ROW_COUNT = ROW_GROUPS + KIND_COUNT / GROUP };

static void put_token(struct grammar_vocab *v, int32_t token, uint64_t kinds)
{
    size_t words = grammar_vocab_words(v);
    uint32_t *word = v->with_kind + token / 32, bit = UINT32_C(1) << (token & 31);
    word[ROW_ALL * words] |= bit;
    if (kinds & KINDS_NONE)
        word[ROW_NO_KIND * words] |= bit;
    for (kinds &= ~KINDS_NONE; kinds; kinds &= kinds - 1) {
        size_t kind = (size_t)__builtin_ctzll(kinds);
        word[kind * words] |= bit;
        word[(ROW_GROUPS + kind / GROUP) * words] |= bit;
    }
}

static bool sort_by_kinds(struct grammar_vocab *v, const struct spelled *list, size_t n)
{
    const struct kind_form *of[256];
    uint64_t kinds[NET_CHAIN_MIN + 1];
    kinds_by_byte(of);
    v->with_kind = calloc(ROW_COUNT * (grammar_vocab_words(v) + 1), sizeof *v->with_kind);
    v->by_length = malloc((n + 1) * sizeof *v->by_length);
    if (!v->with_kind || !v->by_length)
        return false;
    for (size_t i = 0; i < n; i++) {
        kinds_of_text(of, list[i].text, kinds);
        put_token(v, list[i].token, kinds[0]);
        for (size_t length = 0; length < list[i].text.len; length++)
            v->n_longer[length]++;
    }
    int32_t place[NET_CHAIN_MIN + 1];
    memcpy(place, v->n_longer, sizeof place);
    for (size_t i = 0; i < n; i++)
        v->by_length[place[list[i].text.len]++] = list[i].token;
    return true;
}

static void take_away(const struct grammar_vocab *v, unsigned row, uint32_t *mask)
{
    size_t words = grammar_vocab_words(v);
    const uint32_t *away = v->with_kind + row * words;
    for (size_t i = 0; i < words; i++)
        mask[i] &= ~away[i];
}

void vocab_tree_of_kinds(const struct grammar_vocab *v, uint64_t kinds, unsigned length, uint32_t *mask)
{
    size_t words = grammar_vocab_words(v);
    memcpy(mask, v->with_kind + ROW_ALL * words, words * sizeof *mask);
    take_away(v, ROW_NO_KIND, mask);
    for (unsigned group = 0; group < KIND_COUNT / GROUP; group++) {
        if (!(kinds >> group * GROUP & ((1 << GROUP) - 1))) {
            take_away(v, ROW_GROUPS + group, mask);
            continue;
        }
        for (unsigned kind = group * GROUP; kind < (group + 1) * GROUP; kind++)
            if (!(kinds >> kind & 1))
                take_away(v, kind, mask);
    }
    for (int32_t i = 0; length < NET_CHAIN_MIN && i < v->n_longer[length]; i++)
        mask[v->by_length[i] >> 5] &= ~(UINT32_C(1) << (v->by_length[i] & 31));
}

// --- the vocabulary ---

static bool build(struct grammar_vocab *v)
{
    size_t n_all = (size_t)v->n_tokens + 1, n[TREE_COUNT] = {0};
    struct spelled *lists[TREE_COUNT] = {malloc(n_all * sizeof *lists[0]), malloc(n_all * sizeof *lists[0])};
    v->ends = malloc(n_all * sizeof *v->ends);
    bool good = lists[0] && lists[1] && v->ends;
    for (int32_t id = 0; id < v->n_tokens && good; id++) {
        struct str text = vocab_tree_text(v, id);
        int tree = text.len < NET_CHAIN_MIN ? TREE_SHORT : TREE_LONG;
        if (text.len > 0)
            lists[tree][n[tree]++] = (struct spelled){text, id};
        if (text.len == 1)
            byte_set_add(&v->available, (uint8_t)text.data[0]);
        if (id < tokenizer_n_vocab(v->t) && tokenizer_is_end(v->t, id))
            v->ends[v->n_ends++] = id;
    }
    for (int i = 0; i < TREE_COUNT && good; i++) {
        qsort(lists[i], n[i], sizeof *lists[i], by_text);
        good = build_tree(&v->trees[i], lists[i], n[i]);
    }
    good = good && sort_by_kinds(v, lists[TREE_SHORT], n[TREE_SHORT]);
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
        free(v->trees[i].at);
        free(v->trees[i].order);
    }
    free(v->with_kind);
    free(v->by_length);
    free(v->ends);
    free(v);
}
