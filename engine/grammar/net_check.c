// The call graph of the rules, with Tarjan's algorithm for recursion and order, and the `need` of each op. Needs are
// computed backwards from the ends of the rules, one depth of nested calls after the other. An op that is never
// settled is dead. A search for cycles of calls that read no byte finds left recursion. All walks use explicit
// stacks, so a large grammar cannot overflow the C stack.
#include "engine/grammar/net_check.h"

#include <stdlib.h>

// --- the call graph ---

struct graph_builder {
    struct rule_graph *g;
    const struct exprs *x;
    uint32_t *seen; // per expression: last rule that visited it, + 1
    expr_id *todo;  // expressions yet to be visited; top bit WITHIN_REPEAT
    size_t n_todo, cap_todo;
};
#define WITHIN_REPEAT UINT32_C(0x80000000)
enum { LONG_REPEAT = 4 };

static bool push_todo(struct graph_builder *b, expr_id e)
{
    if (b->n_todo == b->cap_todo) {
        size_t cap = b->cap_todo ? 2 * b->cap_todo : 256;
        expr_id *todo = realloc(b->todo, cap * sizeof *todo);
        if (!todo)
            return false;
        b->todo = todo;
        b->cap_todo = cap;
    }
    b->todo[b->n_todo++] = e;
    return true;
}

static bool add_call(struct rule_graph *g, uint32_t callee, bool often)
{
    if (g->n_calls == g->cap_calls) {
        uint32_t cap = g->cap_calls ? 2 * g->cap_calls : 64;
        uint32_t *calls = realloc(g->calls, cap * sizeof *calls);
        if (!calls)
            return false;
        g->calls = calls;
        g->cap_calls = cap;
    }
    g->calls[g->n_calls++] = callee;
    g->uses[callee] += often ? 2 : 1;
    return true;
}

// Collects the calls in the body of a rule. A call in a shared subexpression counts each time that it is reached.
static bool collect_calls(struct graph_builder *b, uint32_t rule)
{
    if (!push_todo(b, b->x->rules[rule].body))
        return false;
    while (b->n_todo > 0) {
        expr_id e = b->todo[--b->n_todo], often = e & WITHIN_REPEAT;
        e &= ~WITHIN_REPEAT;
        const struct expr *at = &b->x->at[e];
        bool good = true;
        if (at->op == X_RULE)
            good = add_call(b->g, at->a, often || b->seen[e] == rule + 1);
        if (b->seen[e] == rule + 1)
            continue;
        b->seen[e] = rule + 1;
        if (at->op == X_CAT || at->op == X_ALT)
            good = push_todo(b, at->a | often) && push_todo(b, at->b | often);
        else if (at->op == X_REPEAT)
            good = push_todo(b, at->a | (at->max > LONG_REPEAT || often ? WITHIN_REPEAT : 0));
        if (!good)
            return false;
    }
    return true;
}

static int collect_all_calls(struct graph_builder *b, struct error *err)
{
    struct rule_graph *g = b->g;
    bool good = true;
    for (uint32_t r = 0; r < g->n && good; r++) {
        g->first[r] = g->n_calls;
        if (b->x->rules[r].defined)
            good = collect_calls(b, r);
    }
    g->first[g->n] = g->n_calls;
    return good ? 0 : fail(err, E_MEMORY, "no memory for the calls of %u rules", g->n);
}

// --- order and recursion: Tarjan's strongly connected components, with an explicit stack ---

struct walk {
    uint32_t *index, *low, *frames, *at, *members;
    bool *on_stack;
    uint32_t n_frames, n_members, clock;
};

static void enter(struct walk *w, const struct rule_graph *g, uint32_t rule)
{
    w->index[rule] = w->low[rule] = ++w->clock;
    w->at[rule] = g->first[rule];
    w->frames[w->n_frames++] = rule;
    w->members[w->n_members++] = rule;
    w->on_stack[rule] = true;
}

static void leave(struct walk *w, struct rule_graph *g, uint32_t rule)
{
    w->n_frames--;
    if (w->n_frames > 0)
        w->low[w->frames[w->n_frames - 1]] = MIN(w->low[w->frames[w->n_frames - 1]], w->low[rule]);
    if (w->low[rule] != w->index[rule])
        return;
    bool several = w->members[w->n_members - 1] != rule;
    for (uint32_t member = NET_NONE; member != rule;) {
        member = w->members[--w->n_members];
        w->on_stack[member] = false;
        g->recursive[member] = g->recursive[member] || several;
        g->order[g->n_order++] = member;
    }
}

static int walk_calls(struct walk *w, struct rule_graph *g, const struct exprs *x, uint32_t root, struct error *err)
{
    enter(w, g, root);
    while (w->n_frames > 0) {
        uint32_t rule = w->frames[w->n_frames - 1];
        if (!x->rules[rule].defined)
            return fail(err, E_USAGE, "grammar: line %d, column %d: rule %s is not defined", x->rules[rule].line,
                        x->rules[rule].column, x->rules[rule].name);
        if (w->at[rule] == g->first[rule + 1]) {
            leave(w, g, rule);
            continue;
        }
        uint32_t callee = g->calls[w->at[rule]++];
        g->recursive[rule] = g->recursive[rule] || callee == rule;
        if (!w->index[callee])
            enter(w, g, callee);
        else if (w->on_stack[callee])
            w->low[rule] = MIN(w->low[rule], w->index[callee]);
    }
    return 0;
}

static int find_order(struct rule_graph *g, const struct exprs *x, uint32_t root, struct error *err)
{
    uint32_t *lists = calloc((size_t)g->n * 5 + 1, sizeof *lists);
    struct walk w = {.index = lists, .on_stack = calloc((size_t)g->n + 1, 1)};
    int status = -1;
    if (!lists || !w.on_stack) {
        fail(err, E_MEMORY, "no memory for %u rules", g->n);
    } else {
        w.low = lists + g->n;
        w.frames = w.low + g->n;
        w.at = w.frames + g->n;
        w.members = w.at + g->n;
        status = walk_calls(&w, g, x, root, err);
    }
    free(lists);
    free(w.on_stack);
    return status;
}

int rule_graph_build(struct rule_graph *g, const struct exprs *x, uint32_t root, struct error *err)
{
    *g = (struct rule_graph){.n = x->n_rules};
    g->first = calloc((size_t)g->n + 1, sizeof *g->first);
    g->uses = calloc((size_t)g->n + 1, sizeof *g->uses);
    g->order = calloc((size_t)g->n + 1, sizeof *g->order);
    g->recursive = calloc((size_t)g->n + 1, sizeof *g->recursive);
    struct graph_builder b = {.g = g, .x = x, .seen = calloc((size_t)x->n + 1, sizeof *b.seen)};
    int status = -1;
    if (!g->first || !g->uses || !g->order || !g->recursive || !b.seen)
        fail(err, E_MEMORY, "no memory for %u rules", g->n);
    else
        status = collect_all_calls(&b, err);
    if (!status)
        status = find_order(g, x, root, err);
    free(b.seen);
    free(b.todo);
    return status;
}

void rule_graph_free(struct rule_graph *g)
{
    free(g->first);
    free(g->calls);
    free(g->uses);
    free(g->recursive);
    free(g->order);
    *g = (struct rule_graph){0};
}

// --- backward edges of the net ---

// The predecessors of each op, and the call ops of each rule.
struct back {
    uint32_t *first, *from;      // list of op i: from[first[i] .. first[i + 1] - 1]
    uint32_t *first_call, *call; // list of rule r: call[first_call[r] .. first_call[r + 1] - 1]
};

static void back_free(struct back *b)
{
    free(b->first);
    free(b->from);
    free(b->first_call);
    free(b->call);
}

// Turns counts into the start offsets of lists.
static void accumulate(uint32_t *first, uint32_t n)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i <= n; i++) {
        uint32_t count = first[i];
        first[i] = sum;
        sum += count;
    }
}

static bool back_build(struct back *b, const struct net *net, uint32_t n_rules)
{
    b->first = calloc((size_t)net->n + 2, sizeof *b->first);
    b->from = malloc(((size_t)net->n * 2 + 1) * sizeof *b->from);
    b->first_call = calloc((size_t)n_rules + 2, sizeof *b->first_call);
    b->call = malloc(((size_t)net->n + 1) * sizeof *b->call);
    if (!b->first || !b->from || !b->first_call || !b->call)
        return false;
    // round 0 counts, round 1 fills in; filling moves each offset on to the start of the next list
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < net->n; i++) {
            const struct net_op *op = &net->ops[i];
            uint32_t ways[2] = {op->kind == NET_END ? NET_NONE : op->next, op->kind == NET_SPLIT ? op->arg : NET_NONE};
            for (int k = 0; k < 2; k++) {
                if (ways[k] == NET_NONE)
                    continue;
                if (round == 0)
                    b->first[ways[k] + 1]++;
                else
                    b->from[b->first[ways[k] + 1]++] = i;
            }
            if (op->kind != NET_CALL)
                continue;
            if (round == 0)
                b->first_call[op->arg + 1]++;
            else
                b->call[b->first_call[op->arg + 1]++] = i;
        }
        if (round == 0) {
            accumulate(b->first, net->n + 1);
            accumulate(b->first_call, n_rules + 1);
        }
    }
    return true;
}

// --- the need of each op ---

struct needs {
    struct net *net;
    struct back back;
    uint32_t *rule_of_start; // rule that starts at each op, + 1; 0: none
    uint32_t *now, *later;   // ops to be settled at this depth, and at the next depth
    uint32_t n_now, n_later, depth;
};

static bool can_write(const struct net *net, const struct net_op *op)
{
    const struct byte_set *set = &net->x->sets[op->arg];
    uint64_t any = 0;
    for (int i = 0; i < 4; i++)
        any |= set->bits[i] & net->available.bits[i];
    return any != 0;
}

static void settle(struct needs *n, uint32_t op, uint32_t depth)
{
    struct net_op *at = &n->net->ops[op];
    if (at->need != NEED_DEAD || (at->kind == NET_BYTES && !can_write(n->net, at)))
        return;
    if (depth == n->depth) {
        at->need = depth;
        n->now[n->n_now++] = op;
    } else {
        n->later[n->n_later++] = op;
    }
}

// A call needs one level more than its callee, and at least what its continuation needs. It is settled once both are.
static void settle_call(struct needs *n, uint32_t op)
{
    const struct net_op *at = &n->net->ops[op];
    uint32_t start = n->net->start[at->arg];
    if (net_is_dead(n->net, start) || net_is_dead(n->net, at->next))
        return;
    settle(n, op, MAX(n->net->ops[start].need + 1, n->net->ops[at->next].need));
}

static void settle_all(struct needs *n)
{
    struct net *net = n->net;
    while (n->n_now > 0) {
        uint32_t op = n->now[--n->n_now];
        for (uint32_t i = n->back.first[op]; i < n->back.first[op + 1]; i++) {
            uint32_t from = n->back.from[i];
            if (net->ops[from].kind == NET_CALL)
                settle_call(n, from);
            else
                settle(n, from, n->depth);
        }
        uint32_t rule = n->rule_of_start[op];
        for (uint32_t i = rule ? n->back.first_call[rule - 1] : 0; rule && i < n->back.first_call[rule]; i++)
            settle_call(n, n->back.call[i]);
        if (n->n_now > 0)
            continue;
        n->depth++;
        uint32_t n_later = n->n_later;
        n->n_later = 0;
        for (uint32_t i = 0; i < n_later; i++)
            settle(n, n->later[i], n->depth);
    }
}

int net_find_needs(struct net *net, uint32_t n_rules, struct error *err)
{
    struct needs n = {.net = net};
    n.rule_of_start = calloc((size_t)net->n + 1, sizeof *n.rule_of_start);
    n.now = malloc(((size_t)net->n + 1) * sizeof *n.now);
    // an op is postponed at most twice: once through its callee and once through its continuation
    n.later = malloc(((size_t)net->n * 2 + 1) * sizeof *n.later);
    bool good = n.rule_of_start && n.now && n.later && back_build(&n.back, net, n_rules);
    if (good) {
        for (uint32_t r = 0; r < n_rules; r++)
            if (net->start[r] != NET_NONE)
                n.rule_of_start[net->start[r]] = r + 1;
        for (uint32_t i = 0; i < net->n; i++)
            if (net->ops[i].kind == NET_END)
                settle(&n, i, 0);
        settle_all(&n);
    }
    free(n.rule_of_start);
    free(n.now);
    free(n.later);
    back_free(&n.back);
    return good ? 0 : fail(err, E_MEMORY, "no memory for a grammar of %u states", net->n);
}

// --- left recursion ---

struct left {
    struct net *net;
    struct back back;
    uint32_t *todo;
    uint32_t n_todo;
    uint32_t *rule_of_start; // rule that starts at each op, + 1; 0: none
    uint32_t *seen;          // last rule that reached each op, + 1
    uint8_t *state;          // of each rule: 0 new, 1 in progress, 2 done
};

static void empty_at(struct left *l, uint32_t op)
{
    if (!l->net->ops[op].empty) {
        l->net->ops[op].empty = true;
        l->todo[l->n_todo++] = op;
    }
}

static void empty_call(struct left *l, uint32_t op)
{
    const struct net_op *at = &l->net->ops[op];
    if (l->net->ops[at->next].empty && l->net->ops[l->net->start[at->arg]].empty)
        empty_at(l, op);
}

static void find_empties(struct left *l)
{
    const struct net *net = l->net;
    for (uint32_t i = 0; i < net->n; i++)
        if (net->ops[i].kind == NET_END)
            empty_at(l, i);
    while (l->n_todo > 0) {
        uint32_t op = l->todo[--l->n_todo];
        for (uint32_t i = l->back.first[op]; i < l->back.first[op + 1]; i++) {
            uint32_t from = l->back.from[i];
            if (net->ops[from].kind == NET_SPLIT)
                empty_at(l, from);
            else if (net->ops[from].kind == NET_CALL)
                empty_call(l, from);
        }
        uint32_t rule = l->rule_of_start[op];
        for (uint32_t i = rule ? l->back.first_call[rule - 1] : 0; rule && i < l->back.first_call[rule]; i++)
            empty_call(l, l->back.call[i]);
    }
}

// Writes to `rules` the rules that `rule` can call before it reads a byte; returns their number. Uses `todo` as its
// stack.
static uint32_t first_calls(struct left *l, uint32_t rule, uint32_t *rules)
{
    const struct net *net = l->net;
    uint32_t n = 0, n_rules = 0;
    l->todo[n++] = net->start[rule];
    while (n > 0) {
        uint32_t op = l->todo[--n];
        if (l->seen[op] == rule + 1)
            continue;
        l->seen[op] = rule + 1;
        const struct net_op *at = &net->ops[op];
        if (at->kind == NET_SPLIT) {
            l->todo[n++] = at->next;
            l->todo[n++] = at->arg;
        } else if (at->kind == NET_CALL) {
            rules[n_rules++] = at->arg;
            if (net->ops[net->start[at->arg]].empty)
                l->todo[n++] = at->next;
        }
    }
    return n_rules;
}

// Depth-first search over rules that can come first in rules. Reaching a rule that is in progress is left recursion.
static int find_cycle(struct left *l, const struct exprs *x, uint32_t from, uint32_t *stack, uint32_t *rules,
                      struct error *err)
{
    uint32_t n = 0;
    stack[n++] = from;
    while (n > 0) {
        uint32_t rule = stack[n - 1];
        if (l->state[rule]) {
            l->state[rule] = 2;
            n--;
            continue;
        }
        l->state[rule] = 1;
        uint32_t n_first = first_calls(l, rule, rules);
        for (uint32_t i = 0; i < n_first; i++) {
            if (l->state[rules[i]] == 1)
                return fail(
                    err, E_USAGE,
                    "grammar: line %d, column %d: rule %s begins with itself (left recursion); write a repeat instead",
                    x->rules[rules[i]].line, x->rules[rules[i]].column, x->rules[rules[i]].name);
            if (!l->state[rules[i]])
                stack[n++] = rules[i];
        }
    }
    return 0;
}

static int check_left(struct left *l, const struct exprs *x, uint32_t n_rules, struct error *err)
{
    const struct net *net = l->net;
    size_t n = (size_t)net->n + n_rules + 1;
    l->todo = calloc(2 * n, sizeof *l->todo);
    l->rule_of_start = calloc(n, sizeof *l->rule_of_start);
    l->seen = calloc(n, sizeof *l->seen);
    l->state = calloc(n, 1);
    uint32_t *stack = calloc(n, sizeof *stack), *rules = calloc(n, sizeof *rules);
    int status = 0;
    if (!l->todo || !l->rule_of_start || !l->seen || !l->state || !stack || !rules ||
        !back_build(&l->back, net, n_rules)) {
        status = fail(err, E_MEMORY, "no memory for a grammar of %u states", net->n);
    } else {
        for (uint32_t r = 0; r < n_rules; r++)
            if (net->start[r] != NET_NONE)
                l->rule_of_start[net->start[r]] = r + 1;
        find_empties(l);
        for (uint32_t r = 0; r < n_rules && !status; r++)
            if (net->start[r] != NET_NONE && !l->state[r])
                status = find_cycle(l, x, r, stack, rules, err);
    }
    free(l->todo);
    free(l->rule_of_start);
    free(l->seen);
    free(l->state);
    free(stack);
    free(rules);
    back_free(&l->back);
    return status;
}

int net_check(struct net *net, const struct rule_graph *g, struct error *err)
{
    struct left l = {.net = net};
    if (net_find_needs(net, g->n, err) || check_left(&l, net->x, g->n, err))
        return -1;
    if (net_is_dead(net, net->start[net->root]))
        return fail(err, E_USAGE, "the grammar can never be completed: %s matches no text",
                    net->x->rules[net->root].name);
    return 0;
}
