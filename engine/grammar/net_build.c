// Emits the ops of each rule from its end to its beginning, so that the successor of an op is always known. Callees
// come before callers, and small rules and rules used once are inlined. A memo shares the ops of an expression that
// is built twice before the same op. The copies of a long counted repeat become a chain: they share nothing and have
// the same layout, so that subset.c can map a position in one copy to the same position in another.
#include "engine/grammar/net_build.h"

#include "engine/grammar/net_check.h"

#include <assert.h>
#include <stdlib.h>

enum { INLINE_OPS = 24, NEST_MAX = 8000, LEAD_MAX = 4 };

// --- size of rules, and which ones are inlined ---

// Properties of a rule that are known before its net is built.
struct shape {
    uint32_t size; // ops, including inlined rules; saturates
    uint32_t uses; // number of calls of it
    bool recursive, inlined, seen;
    uint32_t depth; // nesting depth of inlined rules in it
};

// Memo entry: the op that an expression became when followed by `next`. The same expression before the same op is
// built only once.
struct emitted {
    uint32_t e, next, op; // e 0 marks an empty slot
};

struct builder {
    struct net *net;
    struct exprs *x;
    struct shape *shapes; // [n_rules]
    uint32_t *sizes;      // [n_sizes]: ops of each expression; 0 means not computed
    uint32_t n_sizes;
    struct rule_graph graph;
    uint32_t nested; // depth of nested calls of emit
    bool in_chain, overgrown, too_deep;
    struct emitted *memo; // open addressing
    uint32_t n_memo, memo_size;
};

static uint32_t saturated(uint64_t n)
{
    return n > NET_OPS_MAX ? NET_OPS_MAX + 1 : (uint32_t)n;
}

static bool is_list(const struct expr *e)
{
    return e->op == X_CAT || e->op == X_ALT;
}

static uint32_t size_of(struct builder *b, expr_id e, uint32_t nested);

// The size of what is neither a sequence nor a choice.
static uint32_t size_of_one(struct builder *b, const struct expr *at, uint32_t nested)
{
    if (at->op == X_REPEAT) {
        uint64_t one = (uint64_t)size_of(b, at->a, nested + 1) + 1;
        return saturated(one * (at->max == REPEAT_ANY ? (uint64_t)at->min + 1 : at->max) + 1);
    }
    if (at->op == X_RULE)
        return b->shapes[at->a].inlined ? b->shapes[at->a].size : 1;
    return at->op == X_DFA ? saturated(dfa_size(b->x->dfas[at->a])) : at->op != X_EMPTY;
}

// Returns the number of ops that an expression takes. A shared subexpression counts at each use. The sizes of all
// suffixes of a sequence or choice are kept, from the last to the first, because other expressions share them.
static uint32_t size_of(struct builder *b, expr_id e, uint32_t nested)
{
    expr_id last = e;
    size_t n = 0;
    if (b->sizes[e] || nested > NEST_MAX)
        return b->sizes[e] ? b->sizes[e] : NET_OPS_MAX + 1;
    for (; is_list(&b->x->at[last]) && !b->sizes[last]; last = b->x->at[last].b)
        n++;
    expr_id *suffixes = calloc(n + 1, sizeof *suffixes);
    if (!suffixes)
        return NET_OPS_MAX + 1;
    n = 0;
    for (expr_id at = e; at != last; at = b->x->at[at].b)
        suffixes[n++] = at;
    uint64_t sum = b->sizes[last] ? b->sizes[last] : size_of_one(b, &b->x->at[last], nested);
    b->sizes[last] = saturated(sum);
    while (n > 0) {
        const struct expr *at = &b->x->at[suffixes[--n]];
        sum += size_of(b, at->a, nested + 1) + (at->op == X_ALT);
        b->sizes[suffixes[n]] = saturated(sum);
    }
    free(suffixes);
    return b->sizes[e];
}

// Decides whether a rule is inlined. Callees come first in graph.order, so their decisions are already known.
static void choose_inlining(struct builder *b, uint32_t rule)
{
    struct shape *s = &b->shapes[rule];
    s->recursive = b->graph.recursive[rule];
    for (uint32_t i = b->graph.first[rule]; i < b->graph.first[rule + 1]; i++) {
        const struct shape *callee = &b->shapes[b->graph.calls[i]];
        if (callee->inlined)
            s->depth = MAX(s->depth, callee->depth + 1);
    }
    s->size = size_of(b, b->x->rules[rule].body, 0);
    s->inlined = rule != b->net->root && rule != b->net->lead && !s->recursive && s->depth < 100 &&
                 (s->size <= INLINE_OPS || b->graph.uses[rule] == 1);
}

// --- ops, built from the end of a rule to its beginning ---

static uint32_t emit_op(struct builder *b, enum net_kind kind, uint32_t arg, uint32_t next)
{
    struct net *net = b->net;
    if (net->n >= NET_OPS_MAX) {
        b->overgrown = true;
        return NET_NONE;
    }
    if (net->n == net->cap) {
        uint32_t cap = net->cap ? 2 * net->cap : 256;
        struct net_op *ops = realloc(net->ops, cap * sizeof *ops);
        if (!ops)
            return NET_NONE;
        net->ops = ops;
        net->cap = cap;
    }
    net->ops[net->n] = (struct net_op){.kind = kind, .need = NEED_DEAD, .arg = arg, .next = next};
    return net->n++;
}

static uint32_t emit(struct builder *b, expr_id e, uint32_t next);

// --- memo of expressions already built before the same op ---

static uint32_t memo_slot(const struct builder *b, uint32_t e, uint32_t next)
{
    uint64_t h = ((uint64_t)e << 32 | next) * 0x9E3779B97F4A7C15u;
    uint32_t slot = (uint32_t)(h >> 32) & (b->memo_size - 1);
    while (b->memo[slot].e && (b->memo[slot].e != e || b->memo[slot].next != next))
        slot = (slot + 1) & (b->memo_size - 1);
    return slot;
}

// Copies in a chain must have the same layout, so nothing in them is shared.
static uint32_t recall(const struct builder *b, expr_id e, uint32_t next)
{
    if (b->in_chain || !b->memo_size || b->x->at[e].op < X_CAT)
        return NET_NONE;
    const struct emitted *at = &b->memo[memo_slot(b, e, next)];
    return at->e ? at->op : NET_NONE;
}

// If memory runs out here, the net only becomes larger.
static void remember(struct builder *b, expr_id e, uint32_t next, uint32_t op)
{
    if (b->in_chain || op == NET_NONE || b->x->at[e].op < X_CAT)
        return;
    if (2 * b->n_memo >= b->memo_size) {
        struct emitted *old = b->memo;
        uint32_t n = b->memo_size, size = n ? 2 * n : 256;
        struct emitted *memo = calloc(size, sizeof *memo);
        if (!memo)
            return;
        b->memo = memo;
        b->memo_size = size;
        for (uint32_t i = 0; i < n; i++)
            if (old[i].e)
                memo[memo_slot(b, old[i].e, old[i].next)] = old[i];
        free(old);
    }
    struct emitted *at = &b->memo[memo_slot(b, e, next)];
    b->n_memo += !at->e;
    *at = (struct emitted){e, next, op};
}

// --- the operations ---

// Emits the parts of a sequence from last to first. Starts at the longest suffix that was already built before `end`.
static uint32_t emit_sequence(struct builder *b, expr_id e, uint32_t end)
{
    size_t n = 0;
    expr_id last = e;
    uint32_t next = NET_NONE;
    for (; b->x->at[last].op == X_CAT && (next = recall(b, last, end)) == NET_NONE; last = b->x->at[last].b)
        n++;
    expr_id *suffixes = calloc(n + 1, sizeof *suffixes);
    if (!suffixes)
        return NET_NONE;
    for (n = 0; e != last; e = b->x->at[e].b)
        suffixes[n++] = e;
    if (next == NET_NONE)
        next = emit(b, last, end);
    while (n > 0 && next != NET_NONE) {
        e = suffixes[--n];
        next = emit(b, b->x->at[e].a, next);
        remember(b, e, end, next);
    }
    free(suffixes);
    return next;
}

static uint32_t emit_choice(struct builder *b, expr_id e, uint32_t next)
{
    uint32_t first = NET_NONE;
    while (e > EXPR_EMPTY && b->x->at[e].op == X_ALT) {
        uint32_t way = emit(b, b->x->at[e].a, next);
        if (way == NET_NONE)
            return NET_NONE;
        first = first == NET_NONE ? way : emit_op(b, NET_SPLIT, way, first);
        e = b->x->at[e].b;
    }
    uint32_t way = emit(b, e, next);
    return way == NET_NONE ? NET_NONE : emit_op(b, NET_SPLIT, way, first);
}

static bool add_chain(struct net *net, struct net_chain chain)
{
    if (net->n_chains == net->cap_chains) {
        uint32_t cap = net->cap_chains ? 2 * net->cap_chains : 8;
        struct net_chain *chains = realloc(net->chains, cap * sizeof *chains);
        if (!chains)
            return false;
        net->chains = chains;
        net->cap_chains = cap;
    }
    net->chains[net->n_chains++] = chain;
    return true;
}

// Whether the expression consists of only bytes, sequences and choices, and of at most *left of them.
static bool is_plain(const struct exprs *x, expr_id e, uint32_t *left)
{
    const struct expr *at = &x->at[e];
    if (!*left)
        return false;
    --*left;
    if (at->op == X_CAT || at->op == X_ALT)
        return is_plain(x, at->a, left) && is_plain(x, at->b, left);
    return at->op == X_BYTES;
}

// Whether the copies of a repeat become a chain. Chains do not nest and share nothing, so a repeat of few copies
// becomes one only if its content is plain.
static bool is_chain(const struct builder *b, expr_id e, uint32_t count)
{
    uint32_t left = 100;
    if (b->in_chain || expr_nullable(b->x, e))
        return false;
    return count >= NET_CHAIN_MIN || (count >= 4 && is_plain(b->x, e, &left));
}

// Emits `count` copies in sequence. With `optional`, each copy may be skipped to the end.
static uint32_t emit_copies(struct builder *b, expr_id e, uint32_t count, bool optional, uint32_t next)
{
    uint32_t first = b->net->n, end = next;
    bool chain = is_chain(b, e, count);
    b->in_chain = b->in_chain || chain;
    uint32_t stride = 0;
    for (uint32_t i = 0; i < count && next != NET_NONE; i++) {
        next = emit(b, e, next);
        if (optional && next != NET_NONE)
            next = emit_op(b, NET_SPLIT, end, next);
        stride = i ? stride : b->net->n - first;
    }
    if (!chain)
        return next;
    b->in_chain = false;
    return next != NET_NONE && add_chain(b->net, (struct net_chain){first, stride, count}) ? next : NET_NONE;
}

static uint32_t emit_repeat(struct builder *b, const struct expr *at, uint32_t next)
{
    struct expr e = *at;
    if (e.max == REPEAT_ANY) {
        uint32_t split = emit_op(b, NET_SPLIT, next, NET_NONE);
        uint32_t again = split == NET_NONE ? NET_NONE : emit(b, e.a, split);
        if (again == NET_NONE)
            return NET_NONE;
        b->net->ops[split].next = again;
        // the loop body itself serves as the last of the required copies
        return e.min ? emit_copies(b, e.a, e.min - 1, false, again) : split;
    }
    next = emit_copies(b, e.a, e.max - e.min, true, next);
    return next == NET_NONE ? NET_NONE : emit_copies(b, e.a, e.min, false, next);
}

// Emits a finished automaton: for each state, a list of splits over its outgoing edges.
static uint32_t emit_dfa(struct builder *b, const struct dfa *d, uint32_t next)
{
    uint32_t first = b->net->n;
    for (uint32_t s = 0; s < d->n; s++)
        if (emit_op(b, NET_SPLIT, NET_NONE, NET_NONE) == NET_NONE)
            return NET_NONE;
    for (uint32_t s = 0; s < d->n; s++) {
        uint32_t ways = d->accept[s] ? next : NET_NONE;
        struct dfa_edges edges;
        if (!dfa_edges(&edges, d, s))
            return NET_NONE;
        for (uint32_t i = 0; i < edges.n; i++) {
            expr_id set = expr_bytes(b->x, &edges.sets[i]);
            uint32_t way = emit_op(b, NET_BYTES, b->x->at[set].a, first + edges.to[i]);
            ways = way == NET_NONE || ways == NET_NONE ? way : emit_op(b, NET_SPLIT, way, ways);
            if (ways == NET_NONE)
                break;
        }
        dfa_edges_free(&edges);
        // a state without edges stays dead: a split that leads only to itself
        b->net->ops[first + s].next = b->net->ops[first + s].arg = ways == NET_NONE ? first + s : ways;
    }
    return first + d->start;
}

static uint32_t emit_dead(struct builder *b)
{
    uint32_t op = emit_op(b, NET_SPLIT, NET_NONE, NET_NONE);
    if (op != NET_NONE)
        b->net->ops[op].next = b->net->ops[op].arg = op;
    return op;
}

// Returns the first op of e when `next` follows it; NET_NONE if memory runs out or the nesting is too deep.
static uint32_t emit(struct builder *b, expr_id e, uint32_t next)
{
    if (b->nested >= NEST_MAX) {
        b->too_deep = true;
        return NET_NONE;
    }
    const struct expr *at = &b->x->at[e];
    uint32_t op = at->op == X_CAT ? NET_NONE : recall(b, e, next);
    if (op != NET_NONE)
        return op;
    b->nested++;
    switch (at->op) {
    case X_NEVER:
        op = emit_dead(b);
        break;
    case X_EMPTY:
        op = next;
        break;
    case X_BYTES:
        op = emit_op(b, NET_BYTES, at->a, next);
        break;
    case X_CAT:
        op = emit_sequence(b, e, next);
        break;
    case X_ALT:
        op = emit_choice(b, e, next);
        break;
    case X_REPEAT:
        op = emit_repeat(b, at, next);
        break;
    case X_RULE:
        assert(b->shapes && b->x->rules);
        op = b->shapes[at->a].inlined ? emit(b, b->x->rules[at->a].body, next) : emit_op(b, NET_CALL, at->a, next);
        break;
    case X_TOKEN:
        op = emit_op(b, NET_TOKEN, at->a | (at->b ? NET_NOT_TOKEN : 0), next);
        break;
    case X_DFA:
        op = emit_dfa(b, b->x->dfas[at->a], next);
        break;
    case X_AND:
    case X_NOT: // already lowered
        break;
    }
    b->nested--;
    if (b->x->at[e].op == X_ALT || b->x->at[e].op == X_REPEAT)
        remember(b, e, next, op);
    return op;
}

// --- building a whole net ---

static int emit_failed(const struct builder *b, const char *where, struct error *err)
{
    if (b->overgrown)
        return fail(err, E_USAGE, "the grammar is too large%s%s: its repeats come to more than %d states",
                    *where ? " at " : "", where, NET_OPS_MAX);
    if (b->too_deep)
        return fail(err, E_USAGE, "the grammar is nested too deeply%s%s", *where ? " at " : "", where);
    return fail(err, E_MEMORY, "no memory for a grammar of %u states", b->net->n);
}

static int emit_rules(struct builder *b, struct error *err)
{
    struct net *net = b->net;
    for (uint32_t i = 0; i < b->graph.n_order; i++) {
        uint32_t rule = b->graph.order[i];
        choose_inlining(b, rule);
        if (b->shapes[rule].inlined)
            continue;
        uint32_t end = emit_op(b, NET_END, 0, NET_NONE);
        net->start[rule] = end == NET_NONE ? NET_NONE : emit(b, b->x->rules[rule].body, end);
        if (net->start[rule] == NET_NONE)
            return emit_failed(b, b->x->rules[rule].name, err);
    }
    return 0;
}

static void find_classes(struct net *net)
{
    uint16_t class_of[256] = {0};
    uint32_t n = 1;
    for (uint32_t s = 0; s <= net->x->n_sets; s++) {
        const struct byte_set *set = s < net->x->n_sets ? &net->x->sets[s] : &net->available;
        uint16_t within[256], fresh = 0;
        bool has[256] = {false}, lacks[256] = {false};
        for (unsigned b = 0; b < 256; b++)
            *(byte_set_has(set, b) ? &has[class_of[b]] : &lacks[class_of[b]]) = true;
        for (uint32_t c = 0; c < n; c++)
            within[c] = has[c] && lacks[c] ? (uint16_t)(n + fresh++) : (uint16_t)c;
        for (unsigned b = 0; b < 256; b++)
            if (byte_set_has(set, b))
                class_of[b] = within[class_of[b]];
        n += fresh;
    }
    net->n_classes = n;
    for (unsigned b = 256; b-- > 0;) {
        net->class_of[b] = (uint8_t)class_of[b];
        net->class_byte[class_of[b]] = (uint8_t)b;
    }
}

static int build(struct builder *b, struct error *err)
{
    struct exprs *x = b->x;
    struct net *net = b->net;
    if (exprs_check(x, err) || rule_graph_build(&b->graph, x, net->lead, err))
        return -1;
    net->start = malloc((x->n_rules + 1) * sizeof *net->start);
    b->shapes = calloc(x->n_rules + 1, sizeof *b->shapes);
    b->sizes = calloc((size_t)x->n + 1, sizeof *b->sizes);
    if (!net->start || !b->shapes || !b->sizes)
        return fail(err, E_MEMORY, "no memory for a grammar of %u rules", x->n_rules);
    memset(net->start, 0xFF, (x->n_rules + 1) * sizeof *net->start);
    if (emit_rules(b, err) || exprs_check(x, err))
        return -1;
    find_classes(net);
    return net_check(net, &b->graph, err);
}

uint32_t net_add_lead(struct exprs *x, uint32_t root)
{
    struct char_set space = {0};
    char_set_add(&space, '\t', '\n');
    char_set_add(&space, '\r', '\r');
    char_set_add(&space, ' ', ' ');
    uint32_t lead = exprs_rule(x, STR_LIT("root"));
    if (lead != UINT32_MAX) {
        x->rules[lead].defined = true;
        x->rules[lead].body = expr_cat(x, expr_repeat(x, expr_chars(x, &space), 0, LEAD_MAX), expr_rule(x, root));
    }
    char_set_free(&space);
    return lead;
}

int net_build(struct net *net, struct exprs *x, uint32_t root, uint32_t lead, const struct byte_set *available,
              struct error *err)
{
    *net = (struct net){.x = x, .root = root, .lead = lead, .available = *available};
    struct builder b = {.net = net, .x = x};
    int status = build(&b, err);
    free(b.shapes);
    free(b.sizes);
    free(b.memo);
    rule_graph_free(&b.graph);
    if (status)
        net_free(net);
    return status;
}

int net_build_regular(struct net *net, struct exprs *x, expr_id e, struct error *err)
{
    *net = (struct net){.x = x, .root = 0};
    memset(&net->available, 0xFF, sizeof net->available);
    struct builder b = {.net = net, .x = x};
    int status = 0;
    net->start = malloc(sizeof *net->start);
    b.sizes = calloc((size_t)x->n + 1, sizeof *b.sizes);
    if (!net->start || !b.sizes)
        status = fail(err, E_MEMORY, "no memory for an expression");
    if (!status) {
        uint32_t end = emit_op(&b, NET_END, 0, NET_NONE);
        net->start[0] = end == NET_NONE ? NET_NONE : emit(&b, e, end);
        if (net->start[0] == NET_NONE)
            status = emit_failed(&b, "", err);
    }
    free(b.memo);
    free(b.sizes);
    if (!status)
        status = exprs_check(x, err);
    if (!status)
        find_classes(net);
    if (!status)
        status = net_find_needs(net, 1, err);
    if (status)
        net_free(net);
    return status;
}

void net_free(struct net *net)
{
    free(net->ops);
    free(net->start);
    free(net->chains);
    *net = (struct net){0};
}
