// What guessing from the text would bring, if a model gave a known answer: bench_speculate VOCAB.gguf PROMPT ANSWER
//
// The answer's tokens stand for the model's; no model runs. A step of r rows is said to cost 1 + slope * (r - 1) steps
// of one row: for each slope the rows of a step, the guesses that came true, and how many times sooner the answer is
// there. The slope of a machine and model: time `quern logits -ub R` over the same tokens for some R.
#include "engine/speculate.h"

#include <stdio.h>
#include <stdlib.h>

static char *read_text(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    char *data = malloc(1 << 20);
    if (!f || !data) {
        fprintf(stderr, "bench_speculate: %s cannot be read\n", path);
        exit(E_IO);
    }
    *size = fread(data, 1, 1 << 20, f);
    fclose(f);
    return data;
}

static int encode_file(const struct tokenizer *t, const char *path, struct token_list *out, struct error *err)
{
    size_t size;
    char *text = read_text(path, &size);
    int status = tokenizer_encode(t, (struct str){text, size}, 0, out, err);
    free(text);
    return status;
}

static int replay(const struct token_list *all, int n_prompt, int n_vocab, double slope, struct error *err)
{
    struct speculate_options o = {.lookup = true, .most = 16};
    struct sampler_params p = sampler_defaults();
    struct speculator *s = NULL;
    int n_all = (int)all->n, n = n_prompt, steps = 0, rows = 0, right = 0;
    double cost = 0;
    int32_t guess[GUESS_MAX];
    if (speculator_new(&s, &o, n_all, err) || speculator_begin(s, all->ids, n, &p, n_vocab, err)) {
        speculator_free(s);
        return -1;
    }
    while (n < n_all) {
        int k = speculator_guess(s, n_all - n - 1, guess), come = 0;
        double step = 1 + slope * k;
        speculator_note_step(s, k + 1, step);
        while (come < k && guess[come] == all->ids[n + come])
            come++;
        for (int i = 0; i <= come; i++)
            speculator_push(s, all->ids[n++]);
        steps++;
        rows += k + 1;
        right += come;
        cost += step;
    }
    speculator_free(s);
    printf("  %5.2f  %5d steps  %5.2f rows a step  %5d guessed  %5d right  %5.2f times\n", slope, steps,
           (double)rows / steps, rows - steps, right, (n_all - n_prompt) / cost);
    return 0;
}

static int run(char **argv, struct error *err)
{
    static const double slopes[] = {0, 0.02, 0.05, 0.1, 0.2, 0.4, 1};
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct token_list all = {0};
    int status = gguf_open(&g, argv[1], GGUF_METADATA_ONLY, err);
    if (!status)
        status = tokenizer_load(&t, g, 0, err);
    if (!status)
        status = encode_file(t, argv[2], &all, err);
    int n_prompt = (int)all.n;
    if (!status)
        status = encode_file(t, argv[3], &all, err);
    if (!status)
        printf("%d tokens of prompt, %d of answer; by the cost of a row more\n", n_prompt, (int)all.n - n_prompt);
    for (size_t i = 0; !status && i < COUNT_OF(slopes); i++)
        status = replay(&all, n_prompt, tokenizer_n_vocab(t), slopes[i], err);
    token_list_free(&all);
    tokenizer_free(t);
    gguf_close(g);
    return status;
}

int main(int argc, char **argv)
{
    struct error err;
    if (argc != 4) {
        fprintf(stderr, "usage: bench_speculate VOCAB.gguf PROMPT ANSWER\n");
        return E_USAGE;
    }
    if (run(argv, &err)) {
        fprintf(stderr, "bench_speculate: %s\n", err.text);
        return (int)err.code;
    }
    return 0;
}
