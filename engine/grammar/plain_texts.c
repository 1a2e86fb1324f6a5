// Grammars of plain texts: those that a regular expression matches, and those of a list.
#include "engine/grammar/compiled.h"
#include "engine/grammar/regex.h"

#include <stdlib.h>

// Compiles the expression as the rule that is the whole answer.
static int compile_root(struct grammar **out, const struct grammar_vocab *v, struct exprs *x, expr_id e,
                        struct error *err)
{
    uint32_t root = exprs_rule(x, STR_LIT("root"));
    if (exprs_check(x, err)) {
        exprs_free(x);
        return -1;
    }
    x->rules[root].body = e;
    x->rules[root].defined = true;
    return grammar_compile(out, v, x, root, err);
}

int grammar_from_regex(struct grammar **out, const struct grammar_vocab *v, struct str pattern, struct error *err)
{
    struct exprs x = {0};
    expr_id e;
    *out = NULL;
    if (regex_compile_whole(&e, &x, pattern, err)) {
        exprs_free(&x);
        return -1;
    }
    return compile_root(out, v, &x, e, err);
}

int grammar_from_texts(struct grammar **out, const struct grammar_vocab *v, const struct str *texts, size_t n,
                       struct error *err)
{
    struct exprs x = {0};
    expr_id *list = calloc(n + 1, sizeof *list);
    *out = NULL;
    if (!list)
        return fail(err, E_MEMORY, "no memory for a grammar of %zu texts", n);
    for (size_t i = 0; i < n; i++)
        list[i] = expr_text(&x, texts[i]);
    expr_id e = expr_alt_n(&x, list, n);
    free(list);
    return compile_root(out, v, &x, e, err);
}
