// Compiles JSON Schemas into grammars: claims and their rules, references, and the paths in messages.
#include "engine/grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>

// --- messages ---

// Appends the JSON pointer of `target` to the n bytes of `path`; false if it is not below `v`.
static bool find_path(const struct value *v, const struct value *target, char *path, size_t n, size_t cap, int depth)
{
    if (v == target)
        return true;
    if (depth > SCHEMA_DEPTH_MAX * 3)
        return false;
    for (size_t i = 0; i < value_count(v); i++) {
        const struct value *child = v->kind == VALUE_DICT ? &v->dict->entries[i].value : &v->list->items[i];
        size_t len = n;
        if (v->kind == VALUE_LIST) {
            len += (size_t)snprintf(path + n, cap - n, "/%zu", i);
        } else {
            struct str key = v->dict->entries[i].key.text;
            path[len++] = '/';
            for (size_t k = 0; k < key.len && len + 4 < cap; k++) {
                bool escaped = key.data[k] == '~' || key.data[k] == '/';
                path[len++] = escaped ? '~' : key.data[k];
                if (escaped)
                    path[len++] = key.data[k] == '~' ? '0' : '1';
            }
            path[len] = '\0';
        }
        if (len + 32 < cap && find_path(child, target, path, len, cap, depth + 1))
            return true;
        path[n] = '\0';
    }
    return false;
}

int(schema_refuse)(struct schema *s, const struct value *at, const char *fmt, ...)
{
    char path[256] = "", message[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    if (!find_path(&s->root, at, path, 0, sizeof path, 0))
        path[0] = '\0';
    return fail(s->err, E_USAGE, "schema: %s: %s", *path ? path : "/", message);
}

int schema_no_memory(struct schema *s)
{
    return fail(s->err, E_MEMORY, "no memory for a schema of %u parts", s->n_claims);
}

int schema_spend(struct schema *s, size_t n)
{
    s->work += n;
    return s->work + s->x.made <= SCHEMA_WORK_MAX
               ? 0
               : fail(s->err, E_USAGE, "schema: it takes more than %d million steps to compile",
                      SCHEMA_WORK_MAX / 1000000);
}

// --- references ---

static bool unescape(struct str in, char *out, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < in.len; i++) {
        char c = in.data[i];
        if (c == '%' && in.len - i > 2) {
            char hex[3] = {in.data[i + 1], in.data[i + 2], 0}, *end;
            c = (char)strtoul(hex, &end, 16);
            if (end != hex + 2)
                return false;
            i += 2;
        } else if (c == '~') {
            char code = i + 1 < in.len ? in.data[++i] : 0;
            if (code != '0' && code != '1')
                return false;
            c = code == '0' ? '~' : '/';
        }
        out[(*n)++] = c;
    }
    return true;
}

static const struct value *step_into(const struct value *v, struct str part)
{
    if (v->kind == VALUE_DICT)
        return value_get_str(v, part);
    size_t i = 0;
    for (size_t k = 0; k < part.len; k++) {
        if (part.data[k] < '0' || part.data[k] > '9' || i > 1000000)
            return NULL;
        i = i * 10 + (size_t)(part.data[k] - '0');
    }
    return v->kind == VALUE_LIST && part.len > 0 && i < v->list->n ? &v->list->items[i] : NULL;
}

static const struct value *follow_pointer(const struct value *v, struct str pointer, char *buffer)
{
    while (v && pointer.len > 0 && pointer.data[0] == '/') {
        const char *end = memchr(pointer.data + 1, '/', pointer.len - 1);
        size_t len = end ? (size_t)(end - pointer.data) - 1 : pointer.len - 1, n;
        if (!unescape((struct str){pointer.data + 1, len}, buffer, &n))
            return NULL;
        v = step_into(v, (struct str){buffer, n});
        pointer = (struct str){pointer.data + len + 1, pointer.len - len - 1};
    }
    return pointer.len == 0 ? v : NULL;
}

// Finds the schema with that $anchor, or with that $id.
static const struct value *find_named(struct schema *s, const struct value *v, const char *keyword, struct str name,
                                      int depth)
{
    s->work++;
    if (depth > SCHEMA_DEPTH_MAX * 3)
        return NULL;
    const struct value *anchor = v->kind == VALUE_DICT ? value_get(v, keyword) : NULL;
    // an anchor is valid within its document, and a subschema with its own $id is another document
    if (depth > 0 && keyword[1] == 'a' && v->kind == VALUE_DICT && value_is(value_get(v, "$id"), VALUE_STRING))
        return NULL;
    if (value_is(anchor, VALUE_STRING) && str_equal(anchor->text, name))
        return v;
    const struct value *found = NULL;
    for (size_t i = 0; i < value_count(v) && !found; i++)
        found = find_named(s, v->kind == VALUE_DICT ? &v->dict->entries[i].value : &v->list->items[i], keyword, name,
                           depth + 1);
    return found;
}

int schema_resolve(struct schema *s, const struct value *ref, const struct value **target)
{
    if (!value_is(ref, VALUE_STRING))
        return schema_refuse(s, ref, "a $ref is a string");
    struct str text = ref->text;
    const char *hash = text.len ? memchr(text.data, '#', text.len) : NULL;
    struct str base = {text.data, hash ? (size_t)(hash - text.data) : text.len};
    struct str fragment = hash ? (struct str){hash + 1, text.len - base.len - 1} : (struct str){"", 0};
    const struct value *from = &s->root;
    const bool known = !base.len || (from = find_named(s, from, "$id", base, 0)) != NULL;
    char *buffer = malloc(text.len + 1);
    if (!buffer)
        return schema_no_memory(s);
    *target = NULL;
    if (known && (!fragment.len || fragment.data[0] == '/'))
        *target = follow_pointer(from, fragment, buffer);
    else if (known)
        *target = find_named(s, from, "$anchor", fragment, 0);
    free(buffer);
    if (schema_spend(s, 1 + text.len / 8))
        return -1;
    if (!known)
        return schema_refuse(s, ref, "$ref '%.*s' leads out of the schema, which is not supported", STR_ARG(text));
    if (!*target || ((*target)->kind != VALUE_DICT && (*target)->kind != VALUE_BOOL))
        return schema_refuse(s, ref, "$ref '%.*s' names no schema", STR_ARG(text));
    return 0;
}

// --- claims ---

void schema_pass_over(struct schema *s, struct str name)
{
    enum { NAMES_MOST = 8, NAME_MOST = 40 };
    char shown[NAME_MOST + 8];
    snprintf(shown, sizeof shown, ", '%.*s'", (int)MIN(name.len, (size_t)NAME_MOST), name.data);
    const char *said = s->passed_over.data ? s->passed_over.data : "";
    if (s->n_passed_over >= NAMES_MOST || strstr(said, shown))
        return;
    s->n_passed_over++;
    text_print(&s->passed_over, "%s", shown);
}

// 1: every value meets the literal; 0: no value does; -1: it depends on the value.
static int trivial(struct literal lit)
{
    if (lit.node->kind == VALUE_BOOL)
        return lit.node->boolean != lit.negated;
    return value_count(lit.node) == 0 ? !lit.negated : -1;
}

// Independent of the order of the literals. Their order only affects the order of properties when schemas share them.
static uint64_t claim_hash(const struct literal *list, size_t n)
{
    uint64_t sum = n;
    for (size_t i = 0; i < n; i++) {
        uint64_t h = ((uint64_t)(uintptr_t)list[i].node ^ list[i].negated) * 0x9E3779B97F4A7C15u;
        sum += h ^ h >> 29;
    }
    return sum ^ sum >> 32;
}

static bool has_literal(const struct literal *list, size_t n, struct literal lit)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].node == lit.node && list[i].negated == lit.negated)
            return true;
    return false;
}

static bool grow_table(struct schema *s)
{
    if (s->n_claims * 2 < s->table_size)
        return true;
    uint32_t size = s->table_size ? 2 * s->table_size : 256;
    uint32_t *table = calloc(size, sizeof *table);
    if (!table)
        return false;
    free(s->table);
    s->table = table;
    s->table_size = size;
    for (uint32_t i = 0; i < s->n_claims; i++) {
        uint32_t slot = (uint32_t)claim_hash(s->claims[i].at, s->claims[i].n) & (size - 1);
        while (table[slot])
            slot = (slot + 1) & (size - 1);
        table[slot] = i + 1;
    }
    return true;
}

static bool same_claim(const struct claim *c, const struct literal *list, size_t n)
{
    if (c->n != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!has_literal(c->at, n, list[i]))
            return false;
    return true;
}

// Returns the rule of the claim with these literals, which must be distinct. Adds the claim if it is new; it is built
// later.
static int find_claim(struct schema *s, const struct literal *list, size_t n, expr_id *out)
{
    if (!grow_table(s))
        return schema_no_memory(s);
    uint32_t slot = (uint32_t)claim_hash(list, n) & (s->table_size - 1);
    for (; s->table[slot]; slot = (slot + 1) & (s->table_size - 1))
        if (same_claim(&s->claims[s->table[slot] - 1], list, n)) {
            *out = expr_rule(&s->x, s->claims[s->table[slot] - 1].rule);
            return 0;
        }
    if (s->n_claims >= CLAIMS_MAX)
        return fail(s->err, E_USAGE, "schema: it comes to more than %d combinations of its parts", CLAIMS_MAX);
    if (s->n_claims == s->cap_claims) {
        uint32_t cap = s->cap_claims ? 2 * s->cap_claims : 64;
        struct claim *claims = realloc(s->claims, cap * sizeof *claims);
        if (!claims)
            return schema_no_memory(s);
        s->claims = claims;
        s->cap_claims = cap;
    }
    struct claim *c = &s->claims[s->n_claims];
    *c = (struct claim){.at = ARENA_ARRAY(&s->arena, struct literal, n), .n = n};
    if (!c->at)
        return schema_no_memory(s);
    if (n)
        memcpy(c->at, list, n * sizeof *list);
    char name[32];
    snprintf(name, sizeof name, "value-%u", s->n_claims);
    c->rule = exprs_rule(&s->x, str_from(s->n_claims ? name : "root"));
    if (c->rule == UINT32_MAX)
        return schema_no_memory(s);
    s->x.rules[c->rule].defined = true;
    s->table[slot] = ++s->n_claims;
    *out = expr_rule(&s->x, c->rule);
    return 0;
}

int schema_claim(struct schema *s, const struct literal *list, size_t n, expr_id *out)
{
    struct literal *kept = malloc((n + 1) * sizeof *kept);
    size_t n_kept = 0;
    bool never = false;
    if (!kept)
        return schema_no_memory(s);
    if (schema_spend(s, 1 + n * n / 8)) { // each literal is looked for among those before it
        free(kept);
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        int known = trivial(list[i]);
        struct literal opposite = {list[i].node, !list[i].negated};
        never = never || known == 0 || has_literal(kept, n_kept, opposite);
        if (known < 0 && !has_literal(kept, n_kept, list[i]))
            kept[n_kept++] = list[i];
    }
    *out = EXPR_NEVER;
    int status = never ? 0 : find_claim(s, kept, n_kept, out);
    free(kept);
    return status;
}

// --- rules ---

struct building {
    expr_id *ways;
    size_t n, cap;
};

static int add_branch(void *arg, struct schema *s, const struct branch *b)
{
    struct building *to = arg;
    expr_id e;
    if (schema_spend(s, 16 + 4 * b->n))
        return -1;
    if (++s->n_branches > BRANCHES_MAX)
        return fail(s->err, E_USAGE, "schema: its anyOf, oneOf and not come to more than %d combinations",
                    BRANCHES_MAX);
    if (schema_emit(s, b, &e))
        return -1;
    if (to->n == to->cap) {
        size_t cap = to->cap ? 2 * to->cap : 8;
        expr_id *ways = realloc(to->ways, cap * sizeof *ways);
        if (!ways)
            return schema_no_memory(s);
        to->ways = ways;
        to->cap = cap;
    }
    to->ways[to->n++] = e;
    return exprs_check(&s->x, s->err);
}

static int build_claim(struct schema *s, uint32_t i)
{
    struct claim claim = s->claims[i];
    struct building to = {0};
    int status = schema_expand(s, claim.at, claim.n, TYPE_ALL, add_branch, &to);
    if (!status)
        s->x.rules[claim.rule].body = expr_alt_n(&s->x, to.ways, to.n);
    free(to.ways);
    return status;
}

static bool is_before_2019(const struct value *root)
{
    const struct value *v = value_get(root, "$schema");
    static const char *const old[] = {"draft-07", "draft-06", "draft-04"};
    for (size_t i = 0; i < COUNT_OF(old) && value_is(v, VALUE_STRING); i++)
        if (v->text.len && memmem(v->text.data, v->text.len, old[i], strlen(old[i])))
            return true;
    return false;
}

static int build(struct schema *s, struct str json, expr_id *root)
{
    struct json_reader reader = {.arena = &s->arena, .max_depth = SCHEMA_DEPTH_MAX};
    if (json.len > SCHEMA_BYTES_MAX)
        return fail(s->err, E_USAGE, "schema: %zu bytes of text; %d at most", json.len, SCHEMA_BYTES_MAX);
    if (json_read(&s->root, &reader, json, s->err))
        return fail_prefix(s->err, "schema");
    if (s->root.kind != VALUE_DICT && s->root.kind != VALUE_BOOL)
        return fail(s->err, E_USAGE, "schema: a schema is an object, true or false");
    s->ref_alone = is_before_2019(&s->root);
    if (schema_claim(s, &(struct literal){&s->root, false}, 1, root))
        return -1;
    for (; s->n_built < s->n_claims; s->n_built++)
        if (build_claim(s, s->n_built))
            return -1;
    return 0;
}

// A control token has no bytes; other marks are text, which the tokens that spell it may write.
static expr_id mark(struct schema *s, const struct tokenizer *t, struct str name)
{
    int32_t token = name.len ? tokenizer_find(t, name) : -1;
    return token >= 0 && tokenizer_attr(t, token) == TOKEN_CONTROL ? expr_token(&s->x, token, false)
                                                                   : expr_text(&s->x, name);
}

// The rule of the whole answer: that of the value, which is the first, or one that has a frame around it.
static uint32_t frame(struct schema *s, const struct tokenizer *t)
{
    const struct schema_frame *f = &s->options.frame;
    if (!f->open.len && !f->close.len)
        return 0;
    uint32_t root = exprs_rule(&s->x, STR_LIT("framed"));
    const expr_id gap = expr_text(&s->x, f->gap), value = expr_rule(&s->x, 0);
    const expr_id parts[] = {mark(s, t, f->open), gap, value, gap, mark(s, t, f->close)};
    expr_id whole = expr_cat_n(&s->x, parts, COUNT_OF(parts));
    if (f->many)
        whole = expr_cat(&s->x, whole, expr_star(&s->x, expr_cat(&s->x, gap, whole)));
    if (root == UINT32_MAX)
        return 0; // exprs_check reports it
    s->x.rules[root].body = whole;
    s->x.rules[root].defined = true;
    return root;
}

int grammar_from_schema(struct grammar **out, const struct grammar_vocab *v, struct str json,
                        const struct schema_options *o, struct error *err)
{
    struct error local;
    struct schema s = {.err = err ? err : &local};
    s.string_rule = s.number_rule = s.integer_rule = UINT32_MAX;
    if (o)
        s.options = *o;
    *out = NULL;
    expr_id root = EXPR_NEVER;
    int status = build(&s, json, &root);
    if (!status && root == EXPR_NEVER)
        status = fail(err, E_USAGE, "schema: no value meets it");
    free(s.claims);
    free(s.table);
    free(s.patterns);
    arena_free(&s.arena);
    if (status) {
        exprs_free(&s.x);
        text_free(&s.passed_over);
        return -1;
    }
    status = grammar_compile(out, v, &s.x, frame(&s, v->t), err);
    if (status)
        text_free(&s.passed_over);
    else
        (*out)->passed_over = s.passed_over;
    if (status && err && err->code == E_USAGE && strstr(err->text, "matches no text"))
        return fail(err, E_USAGE, "schema: no value meets it, or none that can be written down");
    return status;
}
