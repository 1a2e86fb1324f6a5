// The numeric flags are copied by two tables, which pair the offset of a flag's field in struct options with that of
// the parameter; only flags that were given are copied. A --logit-bias on a text applies to the token with exactly
// that text, else to all tokens that spell it. Without --seed the seed is 53 random bits.
#include "cmd/sampling_options.h"
#include "cmd/template_choice.h"

#include <math.h>
#include <stdlib.h>
#include <sys/random.h>

// --- numbers ---

#define NUMBER(option, field)                                                                                          \
    {                                                                                                                  \
        OPT_##option, offsetof(struct options, option), offsetof(struct sampler_params, field)                         \
    }
struct number {
    enum option_number option;
    size_t from, to;
};
static const struct number reals[] = {
    NUMBER(temp, temperature),
    NUMBER(top_p, top_p),
    NUMBER(min_p, min_p),
    NUMBER(typical_p, typical_p),
    NUMBER(top_n_sigma, top_n_sigma),
    NUMBER(xtc_probability, xtc_probability),
    NUMBER(xtc_threshold, xtc_threshold),
    NUMBER(repeat_penalty, repeat_penalty),
    NUMBER(presence_penalty, presence_penalty),
    NUMBER(frequency_penalty, frequency_penalty),
    NUMBER(dry_multiplier, dry_multiplier),
    NUMBER(dry_base, dry_base),
    NUMBER(dynatemp_range, dynatemp_range),
    NUMBER(dynatemp_exponent, dynatemp_exponent),
    NUMBER(mirostat_tau, mirostat_tau),
    NUMBER(mirostat_eta, mirostat_eta),
};
static const struct number integers[] = {
    NUMBER(top_k, top_k),       NUMBER(repeat_last, repeat_last), NUMBER(dry_allowed_length, dry_allowed_length),
    NUMBER(dry_last, dry_last), NUMBER(mirostat, mirostat),
};

// Takes each number from the flag if it was given, else from the model file's recommendation.
static void take_numbers(struct sampler_params *p, const struct options *o)
{
    for (size_t i = 0; i < COUNT_OF(reals); i++)
        if (o->given[reals[i].option])
            *(float *)(void *)((char *)p + reals[i].to) =
                (float)*(const double *)(const void *)((const char *)o + reals[i].from);
    for (size_t i = 0; i < COUNT_OF(integers); i++)
        if (o->given[integers[i].option])
            *(int *)(void *)((char *)p + integers[i].to) =
                (int)*(const int64_t *)(const void *)((const char *)o + integers[i].from);
    p->seed = o->seed;
    if (!o->given[OPT_seed] && getrandom(&p->seed, sizeof p->seed, 0) == (ssize_t)sizeof p->seed)
        p->seed >>= 11;
}

// --- biases ---

// Finds where the number begins in "15043-2.5", " Hello+1" or "the-inf". NULL if there is none.
static const char *find_bias(const char *text, float *bias)
{
    for (size_t i = strlen(text); i-- > 1;) {
        char *end;
        if (text[i] != '+' && text[i] != '-')
            continue;
        *bias = strtof(text + i, &end);
        if (end > text + i && !*end && !isnan(*bias) && *bias < INFINITY && text[i - 1] != 'e')
            return text + i;
    }
    return NULL;
}

static int add_bias(struct sampling *s, int32_t token, float bias, struct error *err)
{
    int n = s->params.n_biases;
    struct logit_bias *grown = realloc(s->biases, ((size_t)n + 1) * sizeof *grown);
    if (!grown)
        return fail(err, E_MEMORY, "no memory for --logit-bias");
    grown[n] = (struct logit_bias){token, bias};
    s->params.biases = s->biases = grown;
    s->params.n_biases = n + 1;
    return 0;
}

static int take_bias(struct sampling *s, const char *text, const struct model *m, struct error *err)
{
    float bias;
    const char *number = find_bias(text, &bias);
    if (!number)
        return fail(err, E_USAGE, "--logit-bias %s: not TOKEN+NUMBER or TOKEN-NUMBER, such as 15043-2.5 or ' Hello+1'",
                    text);
    size_t len = (size_t)(number - text);
    if (strspn(text, "0123456789") == len) {
        long long id = len < 10 ? atoll(text) : INT32_MAX;
        return id < m->info.n_vocab
                   ? add_bias(s, (int32_t)id, bias, err)
                   : fail(err, E_USAGE, "--logit-bias %s: the vocabulary has %d tokens", text, m->info.n_vocab);
    }
    // a text that is one token means that token; otherwise it means all tokens that spell it
    for (int32_t id = 0; id < tokenizer_n_vocab(m->tokenizer); id++)
        if (str_equal(tokenizer_piece(m->tokenizer, id, true), (struct str){text, len}))
            return add_bias(s, id, bias, err);
    struct token_list tokens = {0};
    int status = tokenizer_encode(m->tokenizer, (struct str){text, len}, TOKENIZE_SPECIAL, &tokens, err);
    for (size_t i = 0; !status && i < tokens.n; i++)
        status = add_bias(s, tokens.ids[i], bias, err);
    token_list_free(&tokens);
    return status;
}

// --- texts ---

// Replaces the escapes \n, \t, \r, \\, \" and \' in place, and returns the new length.
static size_t unescape(char *text)
{
    static const char pairs[] = "n\nt\tr\r\\\\\"\"''";
    char *out = text;
    for (const char *c = text; *c; c++) {
        const char *pair = NULL;
        for (size_t i = 0; c[0] == '\\' && c[1] && i + 1 < sizeof pairs; i += 2)
            if (pairs[i] == c[1])
                pair = &pairs[i];
        c += pair != NULL;
        *out++ = pair ? pair[1] : *c;
    }
    *out = '\0';
    return (size_t)(out - text);
}

static int take_breakers(struct sampling *s, const struct options *o, const struct model *m, struct error *err)
{
    static const struct str preset[] = {{"\n", 1}, {":", 1}, {"\"", 1}, {"*", 1}};
    if (!sampler_stage_acts(&s->params, STAGE_DRY))
        return 0;
    if (!o->given[OPT_dry_breakers])
        return dry_breakers_new(&s->breakers, m->tokenizer, preset, COUNT_OF(preset), err);
    int n = 0, status = 0;
    struct str *texts = calloc((size_t)o->dry_breakers.n, sizeof *texts);
    for (int i = 0; texts && !status && i < o->dry_breakers.n; i++) {
        char *text = strcmp(o->dry_breakers.at[i], "none") ? strdup(o->dry_breakers.at[i]) : NULL;
        if (text) {
            texts[n].data = text;
            texts[n++].len = unescape(text);
        }
    }
    status = texts ? dry_breakers_new(&s->breakers, m->tokenizer, texts, n, err)
                   : fail(err, E_MEMORY, "no memory for --dry-sequence-breaker");
    for (int i = 0; i < n; i++)
        free((char *)(uintptr_t)texts[i].data);
    free(texts);
    return status;
}

static int take_stops(struct sampling *s, const struct options *o, struct error *err)
{
    s->stops = calloc((size_t)o->stops.n + 2, sizeof *s->stops);
    if (!s->stops)
        return fail(err, E_MEMORY, "no memory for --stop");
    for (; s->n_stops < o->stops.n; s->n_stops++)
        s->stops[s->n_stops] = str_from(o->stops.at[s->n_stops]);
    if (template_choice_plain(o) && !o->raw)
        s->stops[s->n_stops++] = template_plain_stop;
    return 0;
}

// --- all flags together ---

int sampling_take(struct sampling *s, const struct options *o, const struct model *m, struct error *err)
{
    s->params = sampler_defaults();
    if (sampler_from_file(&s->params, m->file, !o->samplers, err))
        return -1;
    if (o->samplers && sampler_parse_order(&s->params, o->samplers, err))
        return fail_prefix(err, "--samplers");
    take_numbers(&s->params, o);
    for (int i = 0; i < o->logit_bias.n; i++)
        if (take_bias(s, o->logit_bias.at[i], m, err))
            return -1;
    if (take_breakers(s, o, m, err) || take_stops(s, o, err))
        return -1;
    s->params.dry_breakers = s->breakers;
    return 0;
}

void sampling_free(struct sampling *s)
{
    free(s->stops);
    free(s->biases);
    dry_breakers_free(s->breakers);
    *s = (struct sampling){0};
}

void sampling_apply(const struct sampling *s, const struct options *o, struct generate_options *g)
{
    g->sampler = s->params;
    g->stops = s->stops;
    g->n_stops = s->n_stops;
    g->n_predict = o->n_predict;
    g->ignore_end = o->ignore_eos;
}
