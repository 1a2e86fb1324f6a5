// Executes statements: scopes, loops and macros; and the rendering as a whole.
#include "engine/chat/jinja_run.h"

#include <stdlib.h>

// ---- Scopes ----

int scope_push(struct run *r, struct scope *parent)
{
    struct scope *s = RUN_NEW(r, struct scope);
    if (!s)
        return -1;
    s->parent = parent;
    r->scope = s;
    return 0;
}

int scope_set(struct run *r, struct str name, struct value v)
{
    struct scope *s = r->scope;
    if (run_step(r, s->n / 16))
        return -1;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->vars[i].name.data == name.data) {
            s->vars[i].value = v;
            return 0;
        }
    if (s->n == s->cap) {
        uint32_t cap = MAX(2 * s->cap, 4u);
        struct variable *vars = run_alloc(r, cap, sizeof *vars);
        if (!vars)
            return -1;
        if (s->n)
            memcpy(vars, s->vars, s->n * sizeof *vars);
        s->vars = vars;
        s->cap = cap;
    }
    s->vars[s->n++] = (struct variable){name, v};
    return 0;
}

static void keep_scopes(struct scope *s)
{
    for (; s && !s->kept; s = s->parent)
        s->kept = true;
}

static int assign_tuple(struct run *r, const struct node *target, const struct value *v)
{
    struct value items;
    size_t n = 0, i = 0;
    for (const struct node *t = target->list; t; t = t->next)
        n++;
    if (!value_is_iterable(v))
        return run_fail(r, "cannot unpack non-iterable %s object", value_type_name(v));
    if (run_sequence(r, v, &items) || run_step(r, n))
        return -1;
    if (value_count(&items) > n)
        return run_fail(r, "too many values to unpack (expected %zu)", n);
    if (value_count(&items) < n)
        return run_fail(r, "not enough values to unpack (expected %zu, got %zu)", n, value_count(&items));
    for (const struct node *t = target->list; t; t = t->next)
        if (scope_assign(r, t, &items.list->items[i++]))
            return -1;
    return 0;
}

static int assign_attribute(struct run *r, const struct node *target, const struct value *v)
{
    struct value of;
    bool found;
    if (scope_find(r, target->name, &of, &found))
        return -1;
    if (!found || !is_object(&of, OBJ_NAMESPACE))
        return run_fail(r, "cannot assign attribute on non-namespace object");
    struct namespace *ns = of.object;
    return run_dict_put(r, &ns->dict, target->value, *v);
}

int scope_assign(struct run *r, const struct node *target, const struct value *v)
{
    if (target->kind == N_TUPLE)
        return assign_tuple(r, target, v);
    return target->kind == N_NSREF ? assign_attribute(r, target, v) : scope_set(r, target->name, *v);
}

// ---- Captured output ----

// Runs statements in the current scope and captures their output as a string.
static int exec_caught(struct run *r, const struct node *body, struct value *out)
{
    struct build caught = {0}, *outer = r->out;
    enum jump jump;
    r->out = &caught;
    int status = run_chain(r, body, &jump);
    r->out = outer;
    if (!status)
        *out = build_value(&caught);
    if (!status && r->autoescape)
        out->markup = true;
    return status;
}

// The same in a new scope below `parent`.
static int exec_scoped(struct run *r, const struct node *body, struct scope *parent, struct value *out)
{
    struct scope *outer = r->scope;
    int status = scope_push(r, parent) || exec_caught(r, body, out) ? -1 : 0;
    r->scope = outer;
    return status;
}

// Applies a chain of filters of which the first takes `in` as its input.
static int apply_filters(struct run *r, const struct node *n, const struct value *in, struct value *out)
{
    struct value inner = *in;
    struct call_args args;
    if ((n->a && apply_filters(r, n->a, in, &inner)) || run_eval_args(r, n->list, &args))
        return -1;
    r->node = n;
    return run_filter(r, n->name, &inner, &args, out);
}

// ---- Loops ----

// Moves the next item that passes the loop's condition to its list; *more: there was one.
static int loop_pull(struct run *r, struct loop *loop, bool *more)
{
    const struct node *n = loop->node;
    for (*more = false; !*more && loop->source_at < loop->source.list->n; loop->source_at++) {
        struct value item = loop->source.list->items[loop->source_at], pass;
        struct scope *outer = r->scope;
        int status = scope_push(r, loop->outer) || scope_assign(r, n->a, &item) || run_eval(r, n->c, &pass);
        r->scope = outer;
        if (status)
            return -1;
        *more = value_truth(&pass);
        if (*more && run_list_push(r, &loop->items, item))
            return -1;
    }
    return 0;
}

static int loop_has(struct run *r, struct loop *loop, size_t i, bool *has)
{
    *has = i < loop->items.list->n;
    return *has ? 0 : loop_pull(r, loop, has);
}

int run_loop_length(struct run *r, struct loop *loop, int64_t *n)
{
    for (bool more = true; more;)
        if (loop_pull(r, loop, &more))
            return -1;
    *n = (int64_t)loop->items.list->n;
    return 0;
}

static int loop_cycle(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    const struct loop *loop = self->object;
    if (args->n == 0)
        return run_fail(r, "no items for cycling given");
    *out = args->at[loop->at % args->n];
    return 0;
}

static int loop_changed(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    struct loop *loop = self->object;
    struct value now;
    if (run_list_new(r, &now))
        return -1;
    for (size_t i = 0; i < args->n; i++)
        if (run_list_push(r, &now, args->at[i]))
            return -1;
    bool same = false;
    if (!is_undefined(&loop->changed) && run_same(r, &now, &loop->changed, &same))
        return -1;
    loop->changed = now;
    *out = value_bool(!same);
    return 0;
}

static int loop_method(struct run *r, const struct value *loop, const char *name, native_fn *call, struct value *out)
{
    struct method *m = RUN_NEW(r, struct method);
    if (!m)
        return -1;
    *m = (struct method){{OBJ_METHOD}, *loop, name, call};
    *out = value_of_object(m);
    return 0;
}

static int loop_neighbour(struct run *r, struct loop *loop, bool next, struct value *out)
{
    bool has = !next && loop->at > 0;
    size_t i = next ? loop->at + 1 : loop->at - 1;
    if (next && loop_has(r, loop, i, &has))
        return -1;
    if (!has)
        return run_undefined_hint(r, out, next ? "there is no next item" : "there is no previous item");
    *out = loop->items.list->items[i];
    return 0;
}

int loop_attribute(struct run *r, const struct value *v, struct str name, struct value *out, bool *found)
{
    static const char *const names[] = {"index", "index0", "first",    "last",     "length", "revindex", "revindex0",
                                        "depth", "depth0", "previtem", "nextitem", "cycle",  "changed"};
    struct loop *loop = v->object;
    size_t i = 0;
    int64_t n = 0, at = (int64_t)loop->at;
    bool has = false;
    while (i < COUNT_OF(names) && !str_equal_z(name, names[i]))
        i++;
    *found = i < COUNT_OF(names);
    switch (i) {
    case 0:
    case 1:
        *out = value_int(at + (i == 0));
        return 0;
    case 2:
        *out = value_bool(at == 0);
        return 0;
    case 3:
        if (loop_has(r, loop, loop->at + 1, &has))
            return -1;
        *out = value_bool(!has);
        return 0;
    case 4:
    case 5:
    case 6:
        if (run_loop_length(r, loop, &n))
            return -1;
        *out = value_int(i == 4 ? n : i == 5 ? n - at : n - at - 1);
        return 0;
    case 7:
    case 8:
        *out = value_int(loop->depth0 + (i == 7));
        return 0;
    case 9:
    case 10:
        return loop_neighbour(r, loop, i == 10, out);
    case 11:
        return loop_method(r, v, "cycle", loop_cycle, out);
    case 12:
        return loop_method(r, v, "changed", loop_changed, out);
    default:
        return 0;
    }
}

// One iteration: the scope contains the item and `loop`.
static int loop_turn(struct run *r, struct loop *loop, struct scope **scope, enum jump *jump)
{
    if (!*scope || (*scope)->kept) {
        if (scope_push(r, loop->outer))
            return -1;
        *scope = r->scope;
    }
    r->scope = *scope;
    (*scope)->n = 0;
    struct value item = loop->items.list->items[loop->at];
    if (scope_assign(r, loop->node->a, &item) || scope_set(r, r->t->n_loop, value_of_object(loop)))
        return -1;
    return run_chain(r, loop->node->list, jump);
}

static int run_loop(struct run *r, struct loop *loop)
{
    struct scope *outer = r->scope, *scope = NULL;
    enum jump jump = JUMP_NONE;
    bool more = false;
    int status = 0;
    for (loop->at = 0; !status && jump != JUMP_BREAK; loop->at++) {
        status = loop_has(r, loop, loop->at, &more);
        if (status || !more)
            break;
        status = run_step(r, 1) ? -1 : loop_turn(r, loop, &scope, &jump);
        r->scope = outer;
    }
    r->scope = outer;
    if (status || loop->at > 0 || !loop->node->other)
        return status;
    status = scope_push(r, loop->outer) ? -1 : run_chain(r, loop->node->other, &jump);
    r->scope = outer;
    return status;
}

static int start_loop(struct run *r, const struct node *n, const struct value *over, struct scope *outer, int depth0)
{
    struct loop *loop = RUN_NEW(r, struct loop);
    if (!loop)
        return -1;
    *loop = (struct loop){
        .head = {OBJ_LOOP}, .node = n, .outer = outer, .depth0 = depth0, .changed = {.kind = VALUE_UNDEFINED}};
    if (run_sequence(r, over, &loop->source))
        return -1;
    if (n->c)
        return run_list_new(r, &loop->items) ? -1 : run_loop(r, loop);
    loop->items = loop->source; // all items pass
    loop->source_at = loop->source.list->n;
    return run_loop(r, loop);
}

static int exec_for(struct run *r, const struct node *n)
{
    struct value over;
    if (run_eval(r, n->b, &over))
        return -1;
    r->node = n->b;
    return start_loop(r, n, &over, r->scope, 0);
}

static int enter_call(struct run *r)
{
    if (r->calls >= JINJA_CALLS_MAX)
        return run_fail(r, "macros call each other deeper than %d", JINJA_CALLS_MAX);
    r->calls++;
    return 0;
}

int loop_recurse(struct run *r, const struct loop *loop, const struct call_args *args, struct value *out)
{
    if (!loop->node->op)
        return run_fail(r, "the loop must have the 'recursive' marker to be called recursively");
    if (args->n != 1 || args->n_named)
        return run_fail(r, "a recursive loop takes exactly one argument");
    if (enter_call(r))
        return -1;
    struct build caught = {0}, *outer = r->out;
    r->out = &caught;
    int status = start_loop(r, loop->node, &args->at[0], loop->outer, loop->depth0 + 1);
    r->out = outer;
    r->calls--;
    *out = build_value(&caught);
    return status;
}

// ---- Macros ----

static int new_macro(struct run *r, const struct node *n, bool is_caller, struct value *out)
{
    struct macro *m = RUN_NEW(r, struct macro);
    if (!m)
        return -1;
    *m = (struct macro){{OBJ_MACRO}, n, r->scope, is_caller};
    keep_scopes(r->scope);
    *out = value_of_object(m);
    return 0;
}

// The index of the keyword argument with that name; args->n_named if there is none.
static size_t named_arg(const struct call_args *args, struct str name)
{
    size_t i = 0;
    while (i < args->n_named && !str_equal(args->names[i], name))
        i++;
    return i;
}

static int bind_parameter(struct run *r, const struct node *p, size_t i, const struct call_args *args, bool *used)
{
    if (run_step(r, args->n_named / 8))
        return -1;
    size_t k = named_arg(args, p->name);
    struct value v;
    if (i < args->n) {
        v = args->at[i];
    } else if (k < args->n_named) {
        v = args->at[args->n + k];
        used[k] = true;
    } else if (p->a) {
        if (run_eval(r, p->a, &v))
            return -1;
    } else if (run_undefined(r, &v, UNDEF_NAME, NULL, p->name, NULL)) {
        return -1;
    }
    return scope_set(r, p->name, v);
}

static int bind_caller(struct run *r, const struct macro *m, const struct call_args *args, bool *used)
{
    struct value v;
    size_t k = named_arg(args, r->t->n_caller);
    if (!(m->node->flags & USES_CALLER))
        return 0;
    if (k < args->n_named) {
        v = args->at[args->n + k];
        used[k] = true;
    } else if (run_undefined_hint(r, &v, "No caller defined")) {
        return -1;
    }
    return scope_set(r, r->t->n_caller, v);
}

static int bind_rest(struct run *r, const struct macro *m, const struct call_args *args, size_t n_params,
                     const bool *used)
{
    struct str name = m->is_caller ? STR_LIT("caller") : m->node->name;
    struct value kwargs, varargs;
    if (run_dict_new(r, &kwargs) || run_list_new(r, &varargs))
        return -1;
    for (size_t k = 0; k < args->n_named; k++) {
        if (used[k])
            continue;
        if (!(m->node->flags & USES_KWARGS))
            return run_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", STR_ARG(name), STR_ARG(args->names[k]));
        if (run_dict_put(r, &kwargs, value_string(args->names[k]), args->at[args->n + k]))
            return -1;
    }
    if (args->n > n_params && !(m->node->flags & USES_VARARGS))
        return run_fail(r, "macro '%.*s' takes not more than %zu argument(s)", STR_ARG(name), n_params);
    for (size_t i = n_params; i < args->n; i++)
        if (run_list_push(r, &varargs, args->at[i]))
            return -1;
    varargs.kind = VALUE_TUPLE;
    if (m->node->flags & USES_KWARGS && scope_set(r, r->t->n_kwargs, kwargs))
        return -1;
    return m->node->flags & USES_VARARGS ? scope_set(r, r->t->n_varargs, varargs) : 0;
}

static int bind_all(struct run *r, const struct macro *m, const struct call_args *args)
{
    size_t n_params = 0;
    bool *used = run_alloc(r, args->n_named + 1, sizeof *used);
    if (!used || bind_caller(r, m, args, used))
        return -1;
    for (const struct node *p = m->node->list; p; p = p->next, n_params++)
        if (bind_parameter(r, p, n_params, args, used))
            return -1;
    return bind_rest(r, m, args, n_params, used);
}

int run_call_macro(struct run *r, const struct macro *m, const struct call_args *args, struct value *out)
{
    struct scope *outer = r->scope;
    if (enter_call(r))
        return -1;
    int status = scope_push(r, m->scope) || bind_all(r, m, args) || exec_caught(r, m->node->other, out) ? -1 : 0;
    r->scope = outer;
    r->calls--;
    return status;
}

static int print(struct run *r, const struct value *v)
{
    struct value s;
    if (!r->autoescape)
        return build_str(r, r->out, v);
    return run_escape_html(r, v, &s) ? -1 : build_string(r, r->out, &s);
}

// Prints the result of a block, which must be a string; it is not converted.
static int print_text(struct run *r, const struct value *v)
{
    return is_string(v) ? print(r, v) : run_fail(r, "the block gives no string but %s", value_type_name(v));
}

// Calls with one more keyword argument: the block, as `caller`.
static int exec_call_block(struct run *r, const struct node *n)
{
    struct value f, caller, result;
    struct call_args args, more;
    if (new_macro(r, n, true, &caller) || run_eval(r, n->a->a, &f) || run_eval_args(r, n->a->list, &args))
        return -1;
    more = (struct call_args){.n = args.n, .n_named = args.n_named + 1};
    more.at = run_alloc(r, more.n + more.n_named, sizeof *more.at);
    more.names = more.at ? run_alloc(r, more.n_named, sizeof *more.names) : NULL;
    if (!more.names)
        return -1;
    if (args.n + args.n_named)
        memcpy(more.at, args.at, (args.n + args.n_named) * sizeof *more.at);
    if (args.n_named)
        memcpy(more.names, args.names, args.n_named * sizeof *more.names);
    more.at[more.n + args.n_named] = caller;
    more.names[args.n_named] = r->t->n_caller;
    r->node = n;
    return run_call(r, &f, &more, &result) ? -1 : print_text(r, &result);
}

// ---- Statements ----

static int exec_if(struct run *r, const struct node *n, enum jump *jump)
{
    for (;; n = n->c) {
        struct value cond;
        if (run_eval(r, n->a, &cond))
            return -1;
        if (value_truth(&cond))
            return run_chain(r, n->list, jump);
        if (!n->c)
            return run_chain(r, n->other, jump);
    }
}

static int exec_set(struct run *r, const struct node *n)
{
    struct value v;
    if (n->kind == N_SET) {
        if (run_eval(r, n->b, &v))
            return -1;
    } else {
        struct value body;
        if (exec_scoped(r, n->list, r->scope, &body))
            return -1;
        v = body;
        if (n->b && apply_filters(r, n->b, &body, &v))
            return -1;
    }
    r->node = n;
    return scope_assign(r, n->a, &v);
}

// The values are evaluated in the outer scope, before the first name is set.
static int exec_with(struct run *r, const struct node *n, enum jump *jump)
{
    struct scope *outer = r->scope, *inner;
    if (scope_push(r, outer))
        return -1;
    inner = r->scope;
    int status = 0;
    for (const struct node *set = n->list; set && !status; set = set->next) {
        struct value v;
        r->scope = outer;
        status = run_eval(r, set->b, &v);
        r->scope = inner;
        if (!status)
            status = scope_assign(r, set->a, &v);
    }
    if (!status)
        status = run_chain(r, n->other, jump);
    r->scope = outer;
    return status;
}

static int exec_in_scope(struct run *r, const struct node *body, enum jump *jump)
{
    struct scope *outer = r->scope;
    int status = scope_push(r, outer) ? -1 : run_chain(r, body, jump);
    r->scope = outer;
    return status;
}

static int exec_autoescape(struct run *r, const struct node *n, enum jump *jump)
{
    struct value on;
    bool before = r->autoescape;
    if (run_eval(r, n->a, &on))
        return -1;
    r->autoescape = value_truth(&on);
    int status = exec_in_scope(r, n->list, jump);
    r->autoescape = before;
    return status;
}

static int exec_print(struct run *r, const struct node *n)
{
    struct value v;
    return run_eval(r, n->a, &v) ? -1 : print(r, &v);
}

static int exec_macro(struct run *r, const struct node *n)
{
    struct value m;
    return new_macro(r, n, false, &m) ? -1 : scope_set(r, n->name, m);
}

static int exec_filter_block(struct run *r, const struct node *n)
{
    struct value body, out;
    return exec_scoped(r, n->list, r->scope, &body) || apply_filters(r, n->a, &body, &out) ? -1 : print_text(r, &out);
}

static int exec(struct run *r, const struct node *n, enum jump *jump)
{
    switch ((enum node_kind)n->kind) {
    case N_TEXT:
        return build_text(r, r->out, n->value.text, ORIGIN_OWN, NULL);
    case N_PRINT:
        return exec_print(r, n);
    case N_FOR:
        return exec_for(r, n);
    case N_IF:
        return exec_if(r, n, jump);
    case N_SET:
    case N_SET_BLOCK:
        return exec_set(r, n);
    case N_MACRO:
        return exec_macro(r, n);
    case N_CALL_BLOCK:
        return exec_call_block(r, n);
    case N_FILTER_BLOCK:
        return exec_filter_block(r, n);
    case N_WITH:
        return exec_with(r, n, jump);
    case N_AUTOESCAPE:
        return exec_autoescape(r, n, jump);
    case N_SCOPE:
        return exec_in_scope(r, n->list, jump);
    case N_BREAK:
    case N_CONTINUE:
        *jump = n->kind == N_BREAK ? JUMP_BREAK : JUMP_CONTINUE;
        return 0;
    default:
        return run_fail(r, "'%.*s' needs another template, and a chat template stands alone", STR_ARG(n->name));
    }
}

int run_chain(struct run *r, const struct node *n, enum jump *jump)
{
    *jump = JUMP_NONE;
    if (r->depth >= RUN_DEPTH_MAX)
        return run_fail(r, "statements, calls and operators are nested deeper than %d", RUN_DEPTH_MAX);
    r->depth++;
    int status = 0;
    for (; n && !status && *jump == JUMP_NONE; n = n->next) {
        r->node = n;
        status = run_step(r, 1) ? -1 : exec(r, n, jump);
    }
    r->depth--;
    return status;
}

// ---- The rendering ----

static int take_output(const struct build *b, struct jinja_output *out, struct error *err)
{
    *out = (struct jinja_output){.text = malloc(b->n + 1), .marks = malloc(b->n + 1), .size = b->n};
    if (!out->text || !out->marks) {
        jinja_output_free(out);
        return fail(err, E_MEMORY, "no memory for a prompt of %zu bytes", b->n);
    }
    if (b->n) {
        memcpy(out->text, b->data, b->n);
        if (b->marks)
            memcpy(out->marks, b->marks, b->n);
        else
            memset(out->marks, b->origin == ORIGIN_INPUT, b->n);
    }
    out->text[b->n] = '\0';
    return 0;
}

int jinja_render(const struct jinja_template *t, const struct value *context, const struct jinja_options *o,
                 struct jinja_output *out, struct error *err)
{
    struct error local;
    err = err ? err : &local;
    *err = (struct error){0};
    struct build text = {0};
    struct run r = {.t = t, .context = context, .now = &o->now, .err = err, .out = &text};
    r.max_steps = o->max_steps ? o->max_steps : JINJA_STEPS_MAX;
    enum jump jump;
    *out = (struct jinja_output){0};
    int status = scope_push(&r, NULL) || run_chain(&r, t->body, &jump) ? -1 : take_output(&text, out, err);
    arena_free(&r.arena);
    return status;
}

void jinja_output_free(struct jinja_output *out)
{
    free(out->text);
    free(out->marks);
    *out = (struct jinja_output){0};
}
