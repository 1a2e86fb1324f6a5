// The parameters of sampling: defaults, values from the model file, names of stages, and checks.
#include "engine/sample/sampler_params.h"

#include <inttypes.h>
#include <math.h>

// The names of a stage. The first one is canonical; '_' may be written as '-' or left out.
static const struct stage_name {
    enum sampler_stage stage;
    char letter;
    const char *names[3];
} stage_names[] = {
    {STAGE_PENALTIES, 'e', {"penalties"}},
    {STAGE_DRY, 'd', {"dry"}},
    {STAGE_TOP_N_SIGMA, 's', {"top_n_sigma"}},
    {STAGE_TOP_K, 'k', {"top_k"}},
    {STAGE_TYPICAL, 'y', {"typ_p", "typical_p", "typ"}},
    {STAGE_TOP_P, 'p', {"top_p", "nucleus"}},
    {STAGE_MIN_P, 'm', {"min_p"}},
    {STAGE_XTC, 'x', {"xtc"}},
    {STAGE_TEMPERATURE, 't', {"temperature", "temp"}},
};

struct sampler_params sampler_defaults(void)
{
    struct sampler_params p = {
        .temperature = 0.8f,
        .dynatemp_exponent = 1,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .typical_p = 1,
        .top_n_sigma = -1,
        .xtc_threshold = 0.1f,
        .repeat_penalty = 1,
        .repeat_last = 64,
        .dry_base = 1.75f,
        .dry_allowed_length = 2,
        .dry_last = 64,
        .mirostat_tau = 5,
        .mirostat_eta = 0.1f,
        .n_order = STAGE_COUNT,
    };
    for (int i = 0; i < STAGE_COUNT; i++)
        p.order[i] = (uint8_t)i;
    return p;
}

// --- properties of a set of parameters ---

bool sampler_is_greedy(const struct sampler_params *p)
{
    return p->temperature <= 0 && (p->mirostat || p->dynatemp_range <= 0);
}

static bool penalises(const struct sampler_params *p)
{
    return p->repeat_last != 0 && (p->repeat_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0);
}

static bool has_dry(const struct sampler_params *p)
{
    return p->dry_multiplier != 0 && p->dry_base >= 1 && p->dry_last != 0;
}

bool sampler_stage_acts(const struct sampler_params *p, enum sampler_stage stage)
{
    switch (stage) {
    case STAGE_PENALTIES:
        return penalises(p);
    case STAGE_DRY:
        return has_dry(p);
    case STAGE_TOP_N_SIGMA:
        return p->top_n_sigma > 0;
    case STAGE_TOP_K:
        return p->top_k > 0;
    case STAGE_TYPICAL:
        return p->typical_p < 1;
    case STAGE_TOP_P:
        return p->top_p < 1;
    case STAGE_MIN_P:
        return p->min_p > 0;
    case STAGE_XTC:
        return p->xtc_probability > 0 && p->xtc_threshold <= 0.5f;
    case STAGE_TEMPERATURE:
        return p->temperature != 1 || p->dynatemp_range > 0;
    case STAGE_COUNT:
        break;
    }
    return false;
}

bool sampler_takes_first(const struct sampler_params *p)
{
    bool can_leave_out = false;
    for (int i = 0; i < p->n_order; i++)
        can_leave_out |=
            (p->order[i] == STAGE_TYPICAL || p->order[i] == STAGE_XTC) && sampler_stage_acts(p, p->order[i]);
    return sampler_is_greedy(p) && (!can_leave_out || p->mirostat);
}

// The first stage with an effect that selects candidates instead of changing logits; STAGE_COUNT when there is none.
// *changed: whether a stage before it changes logits.
static enum sampler_stage first_choice(const struct sampler_params *p, bool *changed)
{
    *changed = false;
    for (int i = 0; !p->mirostat && i < p->n_order; i++) {
        enum sampler_stage stage = (enum sampler_stage)p->order[i];
        if (!sampler_stage_acts(p, stage))
            continue;
        if (stage != STAGE_PENALTIES && stage != STAGE_DRY)
            return stage;
        *changed = true;
    }
    return STAGE_COUNT;
}

int sampler_most_candidates(const struct sampler_params *p, int n_vocab)
{
    bool changed;
    if (sampler_takes_first(p))
        return 1;
    return first_choice(p, &changed) == STAGE_TOP_K ? MIN(p->top_k, n_vocab) : n_vocab;
}

static bool changes_logits(const struct sampler_params *p)
{
    bool changes = p->n_biases > 0;
    for (int i = 0; !p->mirostat && i < p->n_order; i++)
        changes |= (p->order[i] == STAGE_PENALTIES || p->order[i] == STAGE_DRY) && sampler_stage_acts(p, p->order[i]);
    return changes;
}

// A top-k that keeps the whole vocabulary does not count: sampler_next then leaves the candidates in the order of the
// vocabulary, in which sums round differently.
int sampler_first_wanted(const struct sampler_params *p, int n_vocab)
{
    bool changed;
    if (sampler_takes_first(p))
        return !changes_logits(p);
    bool enough = first_choice(p, &changed) == STAGE_TOP_K && !changed && !p->n_biases && p->top_k < n_vocab;
    return enough ? p->top_k : 0;
}

// --- the order ---

static bool is_name(struct str text, const char *name)
{
    size_t i = 0;
    for (; *name; name++) {
        char c = i < text.len ? text.data[i] : '\0';
        if (*name == '_') {
            i += c == '_' || c == '-';
            continue;
        }
        if (c != *name && c + 32 != *name) // a capital letter, too
            return false;
        i++;
    }
    return i == text.len;
}

static int find_stage(struct str text)
{
    for (size_t i = 0; i < COUNT_OF(stage_names); i++)
        for (size_t j = 0; j < COUNT_OF(stage_names[i].names) && stage_names[i].names[j]; j++)
            if (is_name(text, stage_names[i].names[j]))
                return (int)stage_names[i].stage;
    return -1;
}

static int find_letter(char letter)
{
    for (size_t i = 0; i < COUNT_OF(stage_names); i++)
        if (stage_names[i].letter == letter)
            return (int)stage_names[i].stage;
    return -1;
}

static int add_stage(struct sampler_params *p, int stage, struct str name, struct error *err)
{
    if (stage < 0)
        return fail(
            err, E_USAGE,
            "\"%.*s\" is no sampler: penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature, "
            "with ; between them, or the letters edskypmxt",
            STR_ARG(name));
    if (p->n_order == SAMPLER_ORDER_MAX)
        return fail(err, E_USAGE, "more than %d samplers in a row", SAMPLER_ORDER_MAX);
    p->order[p->n_order++] = (uint8_t)stage;
    return 0;
}

int sampler_parse_order(struct sampler_params *p, const char *names, struct error *err)
{
    bool letters = !strpbrk(names, ";,") && find_stage(str_from(names)) < 0;
    for (const char *c = names; letters && *c; c++)
        letters = find_letter(*c) >= 0;
    p->n_order = 0;
    for (const char *c = names; *c;) {
        size_t n = letters ? 1 : strcspn(c, ";,");
        struct str name = {c, n};
        if (n && add_stage(p, letters ? find_letter(*c) : find_stage(name), name, err))
            return -1;
        c += n;
        c += !letters && *c;
    }
    return 0;
}

// --- the file ---

static int take_order(struct sampler_params *p, const struct gguf *file, struct error *err)
{
    struct str sequence = {0};
    char names[256];
    int found = gguf_get_str(file, "general.sampling.sequence", &sequence, err);
    if (found <= 0)
        return found;
    if (sequence.len >= sizeof names)
        return fail(err, E_MODEL, "general.sampling.sequence: %zu bytes, limit %zu", sequence.len, sizeof names - 1);
    memcpy(names, sequence.data, sequence.len);
    names[sequence.len] = '\0';
    if (sampler_parse_order(p, names, err)) {
        if (err)
            err->code = E_MODEL;
        return fail_prefix(err, "general.sampling.sequence (--samplers sets another)");
    }
    return 0;
}

int sampler_from_file(struct sampler_params *p, const struct gguf *file, bool take_sequence, struct error *err)
{
    int64_t top_k = p->top_k, last = p->repeat_last, mirostat = p->mirostat;
    if (gguf_get_f32(file, "general.sampling.temp", &p->temperature, err) < 0 ||
        gguf_get_i64(file, "general.sampling.top_k", &top_k, err) < 0 ||
        gguf_get_f32(file, "general.sampling.top_p", &p->top_p, err) < 0 ||
        gguf_get_f32(file, "general.sampling.min_p", &p->min_p, err) < 0 ||
        gguf_get_f32(file, "general.sampling.xtc_probability", &p->xtc_probability, err) < 0 ||
        gguf_get_f32(file, "general.sampling.xtc_threshold", &p->xtc_threshold, err) < 0 ||
        gguf_get_f32(file, "general.sampling.penalty_repeat", &p->repeat_penalty, err) < 0 ||
        gguf_get_i64(file, "general.sampling.penalty_last_n", &last, err) < 0 ||
        gguf_get_i64(file, "general.sampling.mirostat", &mirostat, err) < 0 ||
        gguf_get_f32(file, "general.sampling.mirostat_tau", &p->mirostat_tau, err) < 0 ||
        gguf_get_f32(file, "general.sampling.mirostat_eta", &p->mirostat_eta, err) < 0 ||
        (take_sequence && take_order(p, file, err)))
        return -1;
    p->top_k = (int)MAX(0, MIN(top_k, INT32_MAX));
    p->repeat_last = (int)MAX(-1, MIN(last, INT32_MAX));
    p->mirostat = (int)MAX(-1, MIN(mirostat, 3));
    if (sampler_check(p, 0, err)) {
        if (err)
            err->code = E_MODEL;
        return fail_prefix(err, "general.sampling");
    }
    return 0;
}

// --- checks ---

int sampler_check(const struct sampler_params *p, int n_vocab, struct error *err)
{
    const struct {
        const char *name;
        float value, least, most;
    } ranges[] = {
        {"temp", p->temperature, 0, 1e6f},
        {"dynatemp_range", p->dynatemp_range, 0, 1e6f},
        {"dynatemp_exponent", p->dynatemp_exponent, 0, 1e6f},
        {"top_p", p->top_p, 0, 1e6f},
        {"min_p", p->min_p, 0, 1e6f},
        {"typical_p", p->typical_p, 0, 1e6f},
        {"top_n_sigma", p->top_n_sigma, -1e6f, 1e6f},
        {"xtc_probability", p->xtc_probability, 0, 1e6f},
        {"xtc_threshold", p->xtc_threshold, 0, 1e6f},
        {"penalty_repeat", p->repeat_penalty, 1e-6f, 1e6f},
        {"frequency_penalty", p->frequency_penalty, -1e6f, 1e6f},
        {"presence_penalty", p->presence_penalty, -1e6f, 1e6f},
        {"dry_multiplier", p->dry_multiplier, 0, 1e6f},
        {"dry_base", p->dry_base, 0, 1e6f},
        {"mirostat_tau", p->mirostat_tau, 0, 1e6f},
        {"mirostat_eta", p->mirostat_eta, 0, 1e6f},
        {"mirostat", (float)p->mirostat, 0, 2},
        {"dry_allowed_length", (float)p->dry_allowed_length, 0, (float)INT32_MAX},
    };
    for (size_t i = 0; i < COUNT_OF(ranges); i++)
        if (!(ranges[i].value >= ranges[i].least && ranges[i].value <= ranges[i].most))
            return fail(err, E_USAGE, "%s %g: from %g to %g", ranges[i].name, (double)ranges[i].value,
                        (double)ranges[i].least, (double)ranges[i].most);
    for (int i = 0; n_vocab && i < p->n_biases; i++) {
        if (p->biases[i].token < 0 || p->biases[i].token >= n_vocab)
            return fail(err, E_USAGE, "a bias of token %d, which is not in the vocabulary of %d", p->biases[i].token,
                        n_vocab);
        if (isnan(p->biases[i].bias) || p->biases[i].bias == INFINITY)
            return fail(err, E_USAGE, "a bias of %g on token %d: neither a number nor -inf", (double)p->biases[i].bias,
                        p->biases[i].token);
    }
    return 0;
}

// --- for -v ---

static const char *name_of(enum sampler_stage stage)
{
    for (size_t i = 0; i < COUNT_OF(stage_names); i++)
        if (stage_names[i].stage == stage)
            return stage_names[i].names[0];
    return "";
}

void sampler_describe(const struct sampler_params *p, struct text *out)
{
    bool greedy = sampler_is_greedy(p);
    text_print(out, "sampling:");
    if (p->n_biases)
        text_print(out, " %d biases,", p->n_biases);
    if (p->mirostat)
        text_print(out, " mirostat %d in place of other samplers, tau %g, eta %g,", p->mirostat,
                   (double)p->mirostat_tau, (double)p->mirostat_eta);
    for (int i = 0; !p->mirostat && i < p->n_order; i++)
        if (sampler_stage_acts(p, (enum sampler_stage)p->order[i]))
            text_print(out, " %s", name_of((enum sampler_stage)p->order[i]));
    text_print(out, greedy ? ", the most likely token\n" : ", seed %" PRIu64 "\n", p->seed);
}
