// The state of one rendering, and the functions that the parts of the interpreter offer each other. Only the
// interpreter includes this file.
//
// Values live in the arena of the rendering, which is freed only at its end. Arena, steps and the sizes of strings
// are bounded. Functions that return int return 0, or -1 if r->err is set. Ownership: a run borrows its template and
// context. Threads: one at a time.
#ifndef QUERN_JINJA_RUN_H
#define QUERN_JINJA_RUN_H

#include "engine/chat/jinja_ast.h"

struct run;

// ---- Strings ----

// A growing string. Zero-initialise it.
struct build {
    char *data;
    uint8_t *marks; // one per byte; NULL while all bytes have the same origin
    size_t n, cap;
    uint8_t origin;
    bool markup;
};
// These append text; a string value keeps its marks.
int build_text(struct run *r, struct build *b, struct str s, uint8_t origin, const uint8_t *marks);
int build_string(struct run *r, struct build *b, const struct value *s);
int build_slice(struct run *r, struct build *b, const struct value *s, size_t from, size_t to); // from, to: bytes
int build_fill(struct run *r, struct build *b, char c, size_t n, uint8_t origin);
struct value build_value(const struct build *b);

// Bytes [from, to) of a string; shares its memory.
struct value string_slice(const struct value *s, size_t from, size_t to);
uint8_t string_origin(const struct value *s, size_t at); // of the byte at `at`
int string_concat(struct run *r, const struct value *a, const struct value *b, struct value *out);
// Characters: bytes of one; their number; the offset of character i.
size_t text_char_len(const char *p, const char *end);
size_t string_chars(struct str s);
size_t string_char_at(struct str s, size_t i);

// ---- Objects that only templates have ----

enum undefined_kind { UNDEF_NAME, UNDEF_ATTRIBUTE, UNDEF_ITEM, UNDEF_UNSAFE, UNDEF_HINT };
struct undefined {
    enum undefined_kind kind;
    struct str name; // the name, or the hint
    struct value of, item;
};

enum object_kind {
    OBJ_NAMESPACE,
    OBJ_LOOP,
    OBJ_MACRO,
    OBJ_METHOD,
    OBJ_FUNCTION,
    OBJ_RANGE,
    OBJ_ITERATOR,
    OBJ_VIEW,
    OBJ_CYCLER,
    OBJ_JOINER
};
struct object {
    enum object_kind kind;
};

struct call_args {
    struct value *at; // n positional arguments, then n_named keyword arguments
    size_t n, n_named;
    struct str *names;
};
typedef int native_fn(struct run *r, const struct value *self, const struct call_args *args, struct value *out);

struct method {
    struct object head;
    struct value self;
    const char *name;
    native_fn *call;
};
struct function {
    struct object head;
    const char *name;
    native_fn *call;
};
struct range {
    struct object head;
    int64_t start, stop, step;
    int64_t n;
};
// Item i, which is one of the range: the product may need more than 64 bits on the way.
static inline int64_t range_item(const struct range *g, int64_t i)
{
    return (int64_t)((uint64_t)g->start + (uint64_t)i * (uint64_t)g->step);
}
// The result of map, select, items and similar filters: it can be iterated once.
struct iterator {
    struct object head;
    struct value list;
    size_t at;
    const char *name;
};
enum view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };
struct view {
    struct object head;
    enum view_kind kind;
    struct value dict;
};
struct scope;
struct namespace
{
    struct object head;
    struct value dict; // the attributes
};
struct loop {
    struct object head;
    const struct node *node; // of a recursive loop
    struct scope *outer;     // scope around the loop
    struct value source;     // the items that are iterated over
    size_t source_at;        // items before this one have been tested by the loop's condition,
    struct value items;      // and moved here if they passed; without a condition it equals `source`
    size_t at;
    int depth0;
    struct value changed; // value at the last call of loop.changed; VALUE_UNDEFINED before
};
struct macro {
    struct object head;
    const struct node *node;
    struct scope *scope; // where it was defined
    bool is_caller;
};
struct cycler {
    struct object head;
    struct value items;
    size_t at;
};
struct joiner {
    struct object head;
    struct value separator;
    bool used;
};

static inline enum object_kind object_kind(const struct value *v)
{
    return ((const struct object *)v->object)->kind;
}
static inline bool is_object(const struct value *v, enum object_kind kind)
{
    return v->kind == VALUE_OBJECT && object_kind(v) == kind;
}
static inline bool is_string(const struct value *v)
{
    return v->kind == VALUE_STRING;
}
static inline bool is_undefined(const struct value *v)
{
    return v->kind == VALUE_UNDEFINED;
}

// ---- The run ----

struct variable {
    struct str name;
    struct value value;
};
struct scope {
    struct scope *parent;
    struct variable *vars;
    uint32_t n, cap;
    bool kept; // a macro refers to it, so it cannot be reused for the next iteration of a loop
};

// Buffers of strings that can grow in place when text is appended to them repeatedly.
struct grown {
    char *data;
    uint8_t *marks;
    size_t n, cap;
};

struct run {
    const struct jinja_template *t;
    const struct value *context;
    const struct tm *now;
    struct arena arena;
    struct error *err;
    const struct node *node; // node being evaluated; errors refer to it
    struct scope *scope;     // the innermost scope
    int64_t steps, max_steps;
    int depth; // nesting of C calls that follow the tree
    int calls; // nesting of macro calls
    bool autoescape;
    struct build *out;
    struct grown grown[4];
    unsigned next_grown;
};

int run_fail(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define run_fail(...) minus_one(run_fail(__VA_ARGS__))
int run_no_memory(struct run *r);
// Counts work; -1 beyond the limit. Whatever takes time is counted before it is done: a step is at most about 100 ns, a
// visit to a node or an item, or 16 bytes of text that are copied or searched.
int run_step(struct run *r, size_t n);
int run_step_text(struct run *r, size_t bytes);
// The same for a float that is written with so many digits behind its point.
int run_step_float(struct run *r, double f, int64_t precision);
enum { FLOAT_REPR_STEPS = 24 };                            // of a float that is written with as few digits as will do
void *run_alloc(struct run *r, size_t count, size_t size); // NULL when r->err is set
#define RUN_NEW(r, type) ((type *)run_alloc((r), 1, sizeof(type)))
struct value value_of_object(void *object);

int run_list_new(struct run *r, struct value *out);
int run_list_push(struct run *r, struct value *list, struct value item);
int run_tuple(struct run *r, struct value *out, struct value a, struct value b);
int run_dict_new(struct run *r, struct value *out);
int run_dict_put(struct run *r, struct value *dict, struct value key, struct value v);
int run_iterator(struct run *r, struct value *out, struct value list, const char *name);
int run_undefined_hint(struct run *r, struct value *out, const char *hint);
int run_undefined(struct run *r, struct value *out, enum undefined_kind kind, const struct value *of, struct str name,
                  const struct value *item);

// ---- Evaluation (jinja_eval.c, jinja_exec.c) ----

enum { RUN_DEPTH_MAX = 2000 }; // nesting of nodes on the C stack: about 1 KiB each in an unoptimized build
int run_eval(struct run *r, const struct node *n, struct value *out);

enum jump { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE };
// Runs a chain of statements in the current scope; *jump tells how it ended.
int run_chain(struct run *r, const struct node *n, enum jump *jump);
int scope_set(struct run *r, struct str name, struct value v);
int scope_assign(struct run *r, const struct node *target, const struct value *v);
// Pushes a new innermost scope below `parent`; the caller restores r->scope.
int scope_push(struct run *r, struct scope *parent);
int run_eval_args(struct run *r, const struct node *list, struct call_args *out);
int run_call(struct run *r, const struct value *f, const struct call_args *args, struct value *out);
int run_call_macro(struct run *r, const struct macro *m, const struct call_args *args, struct value *out);
int loop_recurse(struct run *r, const struct loop *loop, const struct call_args *args, struct value *out);
int run_loop_length(struct run *r, struct loop *loop, int64_t *n); // tests all remaining items
int loop_attribute(struct run *r, const struct value *loop, struct str name, struct value *out, bool *found);
int scope_find(struct run *r, struct str name, struct value *out, bool *found);
int run_get_attribute(struct run *r, const struct value *of, struct str name, struct value *out);
int run_get_item(struct run *r, const struct value *of, const struct value *index, struct value *out);
int run_get_slice(struct run *r, const struct value *of, const struct value *from, const struct value *to,
                  const struct value *step, struct value *out);

// ---- Python (jinja_ops.c, jinja_repr.c, jinja_format.c) ----

const char *value_type_name(const struct value *v); // its name in Python
bool value_truth(const struct value *v);
int run_use_undefined(struct run *r, const struct value *v); // always fails
int run_binary(struct run *r, enum binary_op op, const struct value *a, const struct value *b, struct value *out);
int run_negate(struct run *r, const struct value *a, struct value *out);
int run_compare(struct run *r, enum binary_op op, const struct value *a, const struct value *b, bool *out);
int run_order(struct run *r, const struct value *a, const struct value *b, bool *less); // a < b
int run_same(struct run *r, const struct value *a, const struct value *b, bool *same);  // a == b
// The value of a dict's key; NULL when it is absent or when `dict` is no dict.
int run_find(struct run *r, const struct value *dict, const struct value *key, const struct value **found);
int run_find_name(struct run *r, const struct value *dict, struct str key, const struct value **found);
int run_contains(struct run *r, const struct value *in, const struct value *item, bool *out);
// All items that `for` would iterate over, as a list; a list is not copied. run_items counts a step for each item, for
// callers that look at all of them; run_sequence counts none for the items of a list.
int run_items(struct run *r, const struct value *v, struct value *list);
int run_sequence(struct run *r, const struct value *v, struct value *list);
int run_length(struct run *r, const struct value *v, int64_t *n); // len()
bool value_is_iterable(const struct value *v);
int run_int_arg(struct run *r, const struct value *v, int64_t *out);       // an int or a bool
int run_str(struct run *r, const struct value *v, struct value *out);      // str(v), a plain string
int run_soft_str(struct run *r, const struct value *v, struct value *out); // the same, but markup stays markup
int run_repr(struct run *r, const struct value *v, struct value *out);
int run_ascii(struct run *r, const struct value *v, struct value *out); // repr with escapes for all that is no ASCII
int build_str(struct run *r, struct build *b, const struct value *v);
int run_escape_html(struct run *r, const struct value *v, struct value *out); // markup
int run_percent_format(struct run *r, const struct value *format, const struct value *args, struct value *out);
int run_brace_format(struct run *r, const struct value *format, const struct call_args *args, struct value *out);

// ---- What there is to call ----

// Assigns arguments to parameters. `names` is a list such as "width first blank", of which the first `least` are
// required. Missing ones keep the value in `out`. `what` is the name of the function for errors.
int args_bind(struct run *r, const struct call_args *args, const char *what, const char *names, size_t least,
              struct value *out);
native_fn *filter_find(struct str name);
native_fn *test_find(struct str name);
int run_filter(struct run *r, struct str name, const struct value *in, const struct call_args *args, struct value *out);
int run_test(struct run *r, struct str name, const struct value *in, const struct call_args *args, bool *out);
native_fn *method_find(const struct value *of, struct str name, const char **canonical, bool *unsafe);
bool global_find(struct str name, struct value *out);
int cycler_attribute(struct run *r, const struct value *v, struct str name, struct value *out, bool *found);

#endif
