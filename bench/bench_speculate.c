// Measures what speculative drafts from the text bring, if a model gives a known answer:
//
//   bench_speculate VOCAB.gguf PROMPT ANSWER              from an assumed cost of a step; no model runs
//   bench_speculate VOCAB.gguf PROMPT ANSWER MODEL [N]    by the clock: MODEL computes, N times with drafts and
//                                                         N times without
//
// By the clock, a token rule forces the answer by allowing one token at each place. Everything else is as in `quern
// run`, and MODEL's own choices do not matter. It may have a different vocabulary with at least as many tokens.
//
// Without a model, a step of r rows is assumed to cost 1 + slope * (r - 1) steps of one row. For each slope the program
// prints the rows of a step, the drafted tokens that were right, and how many times faster the answer is complete. To
// get the slope of a machine and model, time `quern logits -ub R` over the same tokens for several R.
#include "engine/generate.h"

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
    int32_t drafted[DRAFT_MAX];
    if (speculator_new(&s, &o, n_all, err) || speculator_begin(s, all->ids, n, &p, n_vocab, err)) {
        speculator_free(s);
        return -1;
    }
    while (n < n_all) {
        int k = speculator_draft(s, n_all - n - 1, drafted), come = 0;
        double step = 1 + slope * k;
        speculator_note_step(s, k + 1, step);
        while (come < k && drafted[come] == all->ids[n + come])
            come++;
        for (int i = 0; i <= come; i++)
            speculator_push(s, all->ids[n++]);
        steps++;
        rows += k + 1;
        right += come;
        cost += step;
    }
    speculator_free(s);
    printf("  %5.2f  %5d steps  %5.2f rows a step  %5d drafted  %5d right  %5.2f times\n", slope, steps,
           (double)rows / steps, rows - steps, right, (n_all - n_prompt) / cost);
    return 0;
}

static int replay_all(const struct token_list *all, int n_prompt, int n_vocab, struct error *err)
{
    static const double slopes[] = {0, 0.02, 0.05, 0.1, 0.2, 0.4, 1};
    int status = 0;
    for (size_t i = 0; !status && i < COUNT_OF(slopes); i++)
        status = replay(all, n_prompt, n_vocab, slopes[i], err);
    return status;
}

// --- by the clock ---

// The state of the token rule: the one token that is allowed next, and its mask.
struct recorded {
    const int32_t *next;
    uint32_t *mask;
};

static int allow_recorded(void *state, const uint32_t **allowed, struct error *err)
{
    struct recorded *r = state;
    (void)err;
    r->mask[*r->next >> 5] = UINT32_C(1) << (*r->next & 31);
    *allowed = r->mask;
    return 0;
}

static int accept_recorded(void *state, int32_t token, struct error *err)
{
    struct recorded *r = state;
    if (token != *r->next)
        return fail(err, E_USAGE, "token %d was chosen in place of %d", token, *r->next);
    r->mask[token >> 5] = 0;
    r->next++;
    return 0;
}

static int pass_over(void *arg, struct str text)
{
    (void)arg, (void)text;
    return 0;
}

struct timing {
    struct model *model;
    struct session *session;
    uint32_t *mask;
    const struct token_list *all;
    int n_prompt;
};

static int time_once(struct timing *t, bool speculates, struct error *err)
{
    struct recorded recorded = {t->all->ids + t->n_prompt, t->mask};
    struct token_rule rule = {&recorded, allow_recorded, accept_recorded};
    struct generate_options o = {.prompt = t->all->ids,
                                 .n_prompt = t->n_prompt,
                                 .n_predict = (int64_t)t->all->n - t->n_prompt,
                                 .sampler = sampler_defaults(),
                                 .rule = &rule,
                                 .ignore_end = true,
                                 .n_logprobs = -1,
                                 .emit = pass_over};
    struct speculate_options so = {.lookup = true, .most = 16};
    struct generate_result r;
    o.sampler.temperature = 0;
    if (speculates && speculator_new(&o.speculator, &so, session_n_ctx(t->session), err))
        return -1;
    int status = generate(t->session, t->model, 0, &o, &r, err);
    speculator_free(o.speculator);
    if (!status)
        printf("  %-8s %7.2f tokens/s  %5lld tokens  %5lld steps  %5lld drafted  %5lld right\n",
               speculates ? "drafts" : "without", 1000 * (double)r.n_generated / r.generate_ms,
               (long long)r.n_generated, (long long)r.n_steps, (long long)r.n_drafted, (long long)r.n_right);
    return status;
}

static int time_all(const char *path, const struct token_list *all, int n_prompt, int times, struct error *err)
{
    struct timing t = {.all = all, .n_prompt = n_prompt};
    struct model_options mo = {.path = path, .n_ctx = (int)all->n + 64};
    struct session_options so = {.n_ctx = mo.n_ctx, .n_outputs = 17};
    int status = model_open(&t.model, &mo, err);
    if (!status)
        status = session_open(&t.session, t.model, &so, err);
    for (size_t i = 0; !status && i < all->n; i++)
        if (all->ids[i] >= t.model->info.n_vocab)
            status = fail(err, E_USAGE, "the model has only %d tokens", t.model->info.n_vocab);
    if (!status && !(t.mask = calloc((size_t)t.model->info.n_vocab / 32 + 1, sizeof *t.mask)))
        status = fail(err, E_MEMORY, "no memory for a mask");
    for (int i = 0; !status && i < 2 * times; i++)
        status = time_once(&t, i & 1, err);
    free(t.mask);
    session_close(t.session);
    model_close(t.model);
    return status;
}

static int run(char **argv, struct error *err)
{
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
        printf("%d tokens of prompt, %d of answer%s\n", n_prompt, (int)all.n - n_prompt,
               argv[4] ? "" : "; by the cost of a row more");
    if (!status)
        status = argv[4] ? time_all(argv[4], &all, n_prompt, argv[5] ? atoi(argv[5]) : 2, err)
                         : replay_all(&all, n_prompt, tokenizer_n_vocab(t), err);
    token_list_free(&all);
    tokenizer_free(t);
    gguf_close(g);
    return status;
}

int main(int argc, char **argv)
{
    struct error err;
    if (argc < 4 || argc > 6) {
        fprintf(stderr, "usage: bench_speculate VOCAB.gguf PROMPT ANSWER [MODEL.gguf [TIMES]]\n");
        return E_USAGE;
    }
    if (run(argv, &err)) {
        fprintf(stderr, "bench_speculate: %s\n", err.text);
        return (int)err.code;
    }
    return 0;
}
