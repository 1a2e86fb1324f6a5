// Times grammars: how long each takes to compile, and how long the mask of a token takes. Each grammar follows a text
// token by token, twice; the second pass meets only states that the first one has seen.
//
//   bench_grammar VOCAB.gguf [NAME]
#include "engine/grammar/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct grammar_case {
    const char *name;
    bool schema;
    const char *grammar, *text;
};

#include "bench/grammar_cases.h"

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int die(const struct error *err)
{
    fprintf(stderr, "bench_grammar: %s\n", err->text);
    return 1;
}

// Follows the tokens and sets us[i] to the microseconds of token i. Returns -1 if a token is not allowed.
static int follow(struct constraint *c, const struct token_list *tokens, double *us, struct error *err)
{
    for (size_t i = 0; i < tokens->n; i++) {
        double begin = now_us();
        const uint32_t *mask = constraint_mask(c, err);
        us[i] = now_us() - begin;
        if (!mask)
            return -1;
        if (!mask_has(mask, tokens->ids[i]))
            return fail(err, E_USAGE, "token %zu (%d) of the text is not allowed", i, tokens->ids[i]);
        begin = now_us();
        if (constraint_accept(c, tokens->ids[i], err))
            return -1;
        us[i] += now_us() - begin;
    }
    return constraint_can_end(c) ? 0 : fail(err, E_USAGE, "the text is not complete");
}

static void print_times(double *us, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += us[i];
    qsort(us, n, sizeof *us, by_value);
    printf("  %8.1f %8.1f %8.1f", sum / (double)n, us[n * 99 / 100], us[n - 1]);
}

static int run(const struct grammar_vocab *v, const struct tokenizer *t, const struct grammar_case *c,
               struct error *err)
{
    struct grammar *g;
    struct constraint *state = NULL;
    struct token_list tokens = {0};
    double begin = now_us(), *us = NULL;
    int status = c->schema ? grammar_from_schema(&g, v, str_from(c->grammar), NULL, err)
                           : grammar_from_gbnf(&g, v, str_from(c->grammar), err);
    double compile_us = now_us() - begin;
    if (!status)
        status = constraint_new(&state, g, NULL, err);
    if (!status)
        status = tokenizer_encode(t, str_from(c->text), 0, &tokens, err);
    if (!status) {
        us = malloc((tokens.n + 1) * sizeof *us);
        printf("%-16s %9.2f ms %5zu", c->name, compile_us / 1000, tokens.n);
        for (int pass = 0; pass < 2 && !status && us; pass++) {
            status = follow(state, &tokens, us, err);
            if (!status)
                print_times(us, tokens.n);
            constraint_reset(state);
        }
        printf("\n");
    }
    free(us);
    token_list_free(&tokens);
    constraint_free(state);
    grammar_free(g);
    return status ? fail_prefix(err, c->name) : 0;
}

int main(int argc, char **argv)
{
    struct error err = {0};
    struct gguf *file;
    struct tokenizer *t;
    struct grammar_vocab *v;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_grammar VOCAB.gguf [NAME]\n");
        return 2;
    }
    if (gguf_open(&file, argv[1], 0, &err) || tokenizer_load(&t, file, TOKENIZER_ANY_PRE, &err))
        return die(&err);
    double begin = now_us();
    if (grammar_vocab_new(&v, t, 0, &err))
        return die(&err);
    printf("%d tokens, sorted in %.1f ms; microseconds a token, mask and accept\n", tokenizer_n_vocab(t),
           (now_us() - begin) / 1000);
    printf("%-16s %12s %5s  %26s  %26s\n", "", "compile", "n", "first time: mean, p99, max", "again: mean, p99, max");
    int status = 0;
    for (size_t i = 0; i < COUNT_OF(cases) && !status; i++)
        if (argc < 3 || !strcmp(argv[2], cases[i].name))
            status = run(v, t, &cases[i], &err);
    grammar_vocab_free(v);
    tokenizer_free(t);
    gguf_close(file);
    return status ? die(&err) : 0;
}
