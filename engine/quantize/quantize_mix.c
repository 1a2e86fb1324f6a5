// The rules of llama-quantize as tables and switches: the role of a tensor follows from its name, and its type from
// the role, the mix, the layer and the shape of the model. The tensors are sorted by layer and name first, because
// some rules count the tensors of a role seen so far.
#include "engine/quantize/quantize_mix.h"

#include <ctype.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

const struct mix_info mix_info[MIX_COUNT] = {
#define MIX(NAME, id, type, about) {#NAME, id, DT_##type, about},
#include "engine/quantize/quantize_mix.def"
#undef MIX
};

int mix_from_name(const char *name, enum mix *out)
{
    static const struct {
        const char *name;
        enum mix mix;
    } aliases[] = {{"Q3_K", MIX_Q3_K_M}, {"Q4_K", MIX_Q4_K_M}, {"Q5_K", MIX_Q5_K_M}, {"MXFP4", MIX_MXFP4_MOE}};
    for (int i = 0; i < MIX_COUNT; i++)
        if (!strcasecmp(name, mix_info[i].name)) {
            *out = (enum mix)i;
            return 0;
        }
    for (size_t i = 0; i < COUNT_OF(aliases); i++)
        if (!strcasecmp(name, aliases[i].name)) {
            *out = aliases[i].mix;
            return 0;
        }
    return -1;
}

// --- the role of a tensor, by its name ---

enum role {
    ROLE_EMBEDDING,
    ROLE_Q,
    ROLE_V,
    ROLE_K,
    ROLE_QKV,
    ROLE_KV_B,
    ROLE_ATTN_OUT,
    ROLE_UP,
    ROLE_GATE,
    ROLE_DOWN,
    ROLE_OUTPUT,
    ROLE_OTHER
};

static enum role role_of(const char *name)
{
    static const struct {
        const char *part;
        enum role role;
    } parts[] = {{"attn_qkv.weight", ROLE_QKV}, {"attn_kv_b.weight", ROLE_KV_B}, {"attn_v.weight", ROLE_V},
                 {"attn_k.weight", ROLE_K},     {"attn_q.weight", ROLE_Q},       {"attn_output.weight", ROLE_ATTN_OUT},
                 {"ffn_up", ROLE_UP},           {"ffn_gate", ROLE_GATE},         {"ffn_down", ROLE_DOWN}};
    if (!strcmp(name, "output.weight"))
        return ROLE_OUTPUT;
    if (!strcmp(name, "token_embd.weight") || !strcmp(name, "per_layer_token_embd.weight"))
        return ROLE_EMBEDDING;
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (strstr(name, parts[i].part))
            return parts[i].role;
    return ROLE_OTHER;
}

static bool is_value_like(enum role role)
{
    return role == ROLE_V || role == ROLE_QKV || role == ROLE_KV_B;
}

// Matrices whose names contain one of these are not converted: they are small, or few bits would ruin them.
static const char *const kept[] = {
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
};

static bool is_quantised(const struct gguf_tensor *t, const char *name, const struct mix_options *o)
{
    size_t len = strlen(name);
    if (o->mix == MIX_COPY || (t->ne[1] == 1 && t->ne[2] == 1 && t->ne[3] == 1))
        return false;
    if (len < 6 || strcmp(name + len - 6, "weight") || dtype_info[t->type].kind == DTYPE_KIND_INT)
        return false;
    if ((o->leave_output && !strcmp(name, "output.weight")) || !strcmp(name, "position_embd.weight") ||
        !strcmp(name, "token_types.weight"))
        return false;
    for (size_t i = 0; i < COUNT_OF(kept); i++)
        if (strstr(name, kept[i]))
            return false;
    return true;
}

// --- the choice ---

// What the choice depends on: the shape of the model, and how many tensors of a role came before.
struct model_shape {
    char arch[64];
    int64_t n_layer, n_expert, n_gqa;
    bool is_70b; // Llama 2 70B and similar models, in which eight heads share a value
    bool tied;   // there is no output.weight, so that the embeddings are the output matrix
};
struct chooser {
    const struct mix_options *o;
    struct model_shape shape;
    int n_value_like;               // all value-like tensors of the model
    int value_like, down, gate, up; // tensors of these roles so far
};

static bool mix_is(enum mix mix, const enum mix *list)
{
    while (*list != MIX_COUNT)
        if (*list++ == mix)
            return true;
    return false;
}
#define MIX_IS(mix, ...) mix_is(mix, (const enum mix[]){__VA_ARGS__, MIX_COUNT})

// Whether a layer gets more bits: it is in the first or the last eighth of n layers, or every third one between.
static bool deserves_more(int layer, int n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

// The layer of a tensor. With experts it is read from the name; without, it is the number of tensors counted so far.
static int layer_of(const struct chooser *c, const char *name, int counted)
{
    int layer;
    return c->shape.n_expert > 1 && sscanf(name, "blk.%9d.", &layer) == 1 ? layer : counted;
}

static enum dtype choose_output(const struct chooser *c, const struct gguf_tensor *t, enum dtype type)
{
    enum mix mix = c->o->mix;
    if (c->o->output_type >= 0)
        return (enum dtype)c->o->output_type;
    if (mix == MIX_MXFP4_MOE || !strcmp(c->shape.arch, "falcon") || t->ne[0] % dtype_info[type].block)
        return DT_Q8_0;
    if (MIX_IS(mix, MIX_IQ2_XXS, MIX_IQ2_XS, MIX_IQ3_XXS, MIX_IQ1_S, MIX_IQ2_S, MIX_IQ2_M, MIX_IQ1_M))
        return DT_Q5_K;
    return type == DT_Q8_0 ? type : DT_Q6_K;
}

static enum dtype choose_embedding(const struct chooser *c, enum dtype type)
{
    enum mix mix = c->o->mix;
    if (c->o->embedding_type >= 0)
        return (enum dtype)c->o->embedding_type;
    if (MIX_IS(mix, MIX_IQ2_XXS, MIX_IQ2_XS, MIX_IQ1_S, MIX_IQ1_M))
        return DT_Q2_K;
    if (MIX_IS(mix, MIX_IQ2_S, MIX_IQ2_M, MIX_IQ3_XXS))
        return DT_IQ3_S;
    return MIX_IS(mix, MIX_TQ1_0, MIX_TQ2_0, MIX_Q2_0) ? DT_Q4_K : type;
}

// Chooses for the mixes of about two bits or less.
static enum dtype choose_tiny(struct chooser *c, enum role role, enum dtype type)
{
    enum mix mix = c->o->mix;
    const struct model_shape *s = &c->shape;
    bool richer = mix == MIX_IQ2_S || mix == MIX_IQ2_M;
    if (is_value_like(role)) {
        c->value_like++;
        return s->n_gqa >= 4 || s->n_expert >= 4 ? DT_Q4_K : richer ? DT_IQ3_S : DT_Q2_K;
    }
    if (role == ROLE_K && s->n_expert == 8)
        return DT_Q4_K;
    if (role == ROLE_DOWN)
        return c->down++ < s->n_layer / 8 ? richer ? DT_IQ3_S : DT_Q2_K : type;
    if (role != ROLE_ATTN_OUT)
        return type;
    if (s->n_expert == 8)
        return DT_Q5_K;
    return MIX_IS(mix, MIX_IQ1_S, MIX_IQ1_M) ? DT_IQ2_XXS : richer ? DT_IQ3_S : type;
}

static enum dtype choose_value_by_mix(const struct chooser *c, enum dtype type)
{
    bool grouped = c->shape.n_gqa >= 4;
    switch (c->o->mix) {
    case MIX_Q2_K:
        return grouped ? DT_Q4_K : DT_Q3_K;
    case MIX_Q2_K_S:
    case MIX_IQ3_XS:
    case MIX_IQ3_S:
        return grouped ? DT_Q4_K : type;
    case MIX_IQ3_XXS:
        return grouped ? DT_Q4_K : c->o->has_importance ? DT_IQ3_XXS : DT_IQ3_S;
    case MIX_IQ3_M:
        return DT_Q4_K;
    case MIX_Q3_K_M:
        return c->value_like < 2 ? DT_Q5_K : DT_Q4_K;
    case MIX_Q3_K_L:
        return DT_Q5_K;
    case MIX_IQ4_NL:
    case MIX_IQ4_XS:
        return grouped ? DT_Q5_K : type;
    case MIX_Q4_K_M:
    case MIX_Q5_K_M:
        return deserves_more(c->value_like, c->n_value_like) ? DT_Q6_K : type;
    case MIX_Q4_K_S:
        return c->value_like < 4 ? DT_Q5_K : type;
    default:
        return type;
    }
}

static enum dtype choose_value(struct chooser *c, enum dtype type)
{
    type = choose_value_by_mix(c, type);
    if (c->shape.is_70b && (type == DT_Q3_K || type == DT_Q4_K))
        type = DT_Q5_K;
    c->value_like++;
    return c->shape.n_expert == 8 ? DT_Q8_0 : type;
}

static enum dtype choose_key_or_query(const struct chooser *c, enum role role, enum dtype type)
{
    if (role == ROLE_K && c->shape.n_expert == 8)
        return DT_Q8_0;
    if (c->o->mix == MIX_IQ3_XS)
        return DT_IQ3_XXS;
    return c->o->mix == MIX_IQ3_XXS ? DT_IQ2_S : type;
}

static enum dtype choose_down(struct chooser *c, const char *name, enum dtype type)
{
    int n = (int)c->shape.n_layer, layer = layer_of(c, name, c->down++);
    bool falcon = !strcmp(c->shape.arch, "falcon"), early = layer < n / 8, more = deserves_more(layer, n);
    bool importance = c->o->has_importance;
    switch (c->o->mix) {
    case MIX_Q2_K:
        return DT_Q3_K;
    case MIX_Q2_K_S:
        return early ? DT_Q4_K : type;
    case MIX_IQ3_XXS:
        return importance ? type : early ? DT_Q4_K : DT_Q3_K;
    case MIX_Q3_K_M:
        return layer < n / 16 ? DT_Q5_K : !falcon || more ? DT_Q4_K : DT_Q3_K;
    case MIX_IQ3_M:
        return early || (c->shape.n_expert == 8 && more) ? DT_Q4_K : type;
    case MIX_Q3_K_L:
        return falcon ? DT_Q4_K : DT_Q5_K;
    case MIX_Q4_K_M:
        if (falcon)
            return layer < n / 16 ? DT_Q6_K : more ? DT_Q5_K : DT_Q4_K;
        return more ? DT_Q6_K : type;
    case MIX_IQ4_NL:
    case MIX_IQ4_XS:
        return early && !importance ? DT_Q5_K : type;
    case MIX_Q5_K_M:
        return more ? DT_Q6_K : type;
    case MIX_Q4_K_S:
        return early && !falcon ? DT_Q5_K : type;
    case MIX_Q4_0:
        return early && importance ? DT_Q4_1 : type;
    case MIX_Q5_0:
        return early && importance ? DT_Q5_1 : type;
    default:
        return type;
    }
}

static enum dtype choose_attention_out(const struct chooser *c, enum dtype type)
{
    enum mix mix = c->o->mix;
    if (!strcmp(c->shape.arch, "falcon"))
        return mix == MIX_Q3_K_L ? DT_Q4_K : type;
    if (c->shape.n_expert == 8) {
        bool more = MIX_IS(mix, MIX_Q2_K, MIX_IQ3_XS, MIX_IQ3_XXS, MIX_Q3_K_S, MIX_Q3_K_M, MIX_IQ4_NL, MIX_Q4_K_S,
                           MIX_Q4_K_M, MIX_IQ3_S, MIX_IQ3_M, MIX_IQ4_XS);
        return more ? DT_Q5_K : type;
    }
    switch (mix) {
    case MIX_Q2_K:
        return DT_Q3_K;
    case MIX_IQ3_XXS:
        return DT_IQ3_S;
    case MIX_Q3_K_M:
    case MIX_IQ3_M:
        return DT_Q4_K;
    case MIX_Q3_K_L:
        return DT_Q5_K;
    default:
        return type;
    }
}

static enum dtype choose_up_or_gate(const struct chooser *c, const char *name, int *seen, enum dtype type)
{
    int n = (int)c->shape.n_layer, layer = layer_of(c, name, (*seen)++);
    return c->o->mix == MIX_IQ3_XS && layer >= n / 8 && layer < 7 * n / 8 ? DT_IQ3_XXS : type;
}

static enum dtype choose_by_mix(struct chooser *c, const struct gguf_tensor *t, const char *name, enum dtype type)
{
    enum role role = role_of(name);
    enum mix mix = c->o->mix;
    if (role == ROLE_OUTPUT || (role == ROLE_EMBEDDING && c->shape.tied))
        return choose_output(c, t, type);
    if (mix == MIX_MXFP4_MOE)
        return t->ne[2] > 1 ? DT_MXFP4 : DT_Q8_0;
    if (role == ROLE_EMBEDDING)
        return choose_embedding(c, type);
    if (MIX_IS(mix, MIX_IQ2_XXS, MIX_IQ2_XS, MIX_IQ1_S, MIX_IQ2_S, MIX_IQ2_M, MIX_IQ1_M))
        return choose_tiny(c, role, type);
    switch (role) {
    case ROLE_V:
    case ROLE_QKV:
    case ROLE_KV_B:
        return choose_value(c, type);
    case ROLE_K:
    case ROLE_Q:
        return choose_key_or_query(c, role, type);
    case ROLE_DOWN:
        return choose_down(c, name, type);
    case ROLE_ATTN_OUT:
        return choose_attention_out(c, type);
    case ROLE_GATE:
        return choose_up_or_gate(c, name, &c->gate, type);
    case ROLE_UP:
        return choose_up_or_gate(c, name, &c->up, type);
    default:
        return type;
    }
}

// --- rows that do not fit ---

// The type itself when rows of n elements are a multiple of its block, else a similar type with a smaller block, or
// F16.
static enum dtype fitting(enum dtype type, int64_t n)
{
    if (n % dtype_info[type].block == 0)
        return type;
    enum dtype smaller = DT_F16;
    switch (type) {
    case DT_IQ1_S:
    case DT_IQ1_M:
    case DT_IQ2_XXS:
    case DT_IQ2_XS:
    case DT_IQ2_S:
    case DT_IQ3_XXS:
    case DT_IQ3_S:
    case DT_IQ4_XS:
        smaller = DT_IQ4_NL;
        break;
    case DT_Q2_0:
    case DT_Q2_K:
    case DT_Q3_K:
    case DT_TQ1_0:
    case DT_TQ2_0:
        smaller = DT_Q4_0;
        break;
    case DT_Q4_K:
        smaller = DT_Q5_0;
        break;
    case DT_Q5_K:
        smaller = DT_Q5_1;
        break;
    case DT_Q6_K:
        smaller = DT_Q8_0;
        break;
    default:
        break;
    }
    return n % dtype_info[smaller].block == 0 ? smaller : DT_F16;
}

// --- the whole file ---

struct patterns {
    regex_t *at;
    int n;
};

static void free_patterns(struct patterns *p)
{
    for (int i = 0; i < p->n; i++)
        regfree(&p->at[i]);
    free(p->at);
}

// Converts a pattern to an extended regular expression of POSIX: \d becomes [0-9], and letters become lower case, like
// the names of tensors.
static char *to_extended(const char *pattern)
{
    char *out = malloc(5 * strlen(pattern) + 1), *at = out;
    for (; out && *pattern; pattern++) {
        if (pattern[0] == '\\' && pattern[1] == 'd') {
            at = stpcpy(at, "[0-9]");
            pattern++;
        } else {
            *at++ = (char)tolower((unsigned char)*pattern);
        }
    }
    if (out)
        *at = '\0';
    return out;
}

static int compile_patterns(const struct mix_options *o, struct patterns *p, struct error *err)
{
    *p = (struct patterns){calloc((size_t)o->n_overrides + 1, sizeof *p->at), 0};
    for (; p->at && p->n < o->n_overrides; p->n++) {
        char *pattern = to_extended(o->overrides[p->n].pattern), why[100] = "no memory";
        int status = pattern ? regcomp(&p->at[p->n], pattern, REG_EXTENDED | REG_NOSUB) : REG_ESPACE;
        if (status && pattern)
            regerror(status, &p->at[p->n], why, sizeof why);
        free(pattern);
        if (status)
            return fail(err, E_USAGE, "--tensor-type %s: %s", o->overrides[p->n].pattern, why);
    }
    return p->at ? 0 : fail(err, E_MEMORY, "no memory for %d patterns", o->n_overrides);
}

static int read_shape(const struct gguf *g, struct model_shape *s, struct error *err)
{
    *s = (struct model_shape){.tied = !gguf_find_tensor(g, "output.weight")};
    struct str arch = {"", 0};
    int64_t heads = 0, heads_kv = 0;
    if (gguf_get_str(g, "general.architecture", &arch, err) < 0)
        return -1;
    snprintf(s->arch, sizeof s->arch, "%.*s", STR_ARG(arch));
    struct {
        const char *key;
        int64_t *out;
    } keys[] = {{"block_count", &s->n_layer},
                {"expert_count", &s->n_expert},
                {"attention.head_count", &heads},
                {"attention.head_count_kv", &heads_kv}};
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        char key[128];
        snprintf(key, sizeof key, "%s.%s", s->arch, keys[i].key);
        const struct gguf_kv *kv = gguf_find(g, key);
        if (kv && kv->type == GGUF_ARRAY && kv->count && kv->element != GGUF_STRING)
            *keys[i].out = gguf_array_i64(kv, 0); // an array has one value per layer; take that of the first layer
        else if (gguf_get_i64(g, key, keys[i].out, err) < 0)
            return -1;
        if (*keys[i].out < 0 || *keys[i].out > 1 << 20)
            return fail(err, E_MODEL, "%s: %s is %lld", gguf_path(g, 0), key, (long long)*keys[i].out);
    }
    char key[128];
    snprintf(key, sizeof key, "%s.attention.head_count_kv", s->arch);
    if (!gguf_find(g, key))
        heads_kv = heads; // every head has its own keys and values
    s->n_gqa = heads_kv ? heads / heads_kv : 0;
    bool eighty = s->n_layer == 80;
    s->is_70b = (!strcmp(s->arch, "llama") && eighty && heads != heads_kv) ||
                (eighty && (!strcmp(s->arch, "qwen2") || !strcmp(s->arch, "olmo") || !strcmp(s->arch, "deci"))) ||
                (!strcmp(s->arch, "jais2") && s->n_layer == 68);
    return 0;
}

struct named {
    char name[128];
    int layer;
    const struct gguf_tensor *t;
    size_t at;
};

static int by_layer_and_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    return x->layer != y->layer ? (x->layer > y->layer) - (x->layer < y->layer) : strcmp(x->name, y->name);
}

static struct named *sort_tensors(const struct gguf *g, struct error *err)
{
    size_t n = gguf_n_tensors(g);
    struct named *list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; list && i < n; i++) {
        list[i].t = gguf_tensor_at(g, i);
        list[i].at = i;
        list[i].layer = -1;
        snprintf(list[i].name, sizeof list[i].name, "%.*s", STR_ARG(list[i].t->name));
        sscanf(list[i].name, "blk.%9d.", &list[i].layer);
    }
    if (list)
        qsort(list, n, sizeof *list, by_layer_and_name);
    else
        fail(err, E_MEMORY, "no memory for %zu tensors", n);
    return list;
}

static bool needs_importance(enum role role, enum dtype type, enum mix mix)
{
    static const enum dtype types[] = {DT_IQ3_XXS, DT_IQ2_XXS, DT_IQ2_XS, DT_IQ2_S, DT_IQ1_M, DT_IQ1_S};
    if (role == ROLE_EMBEDDING || role == ROLE_OUTPUT)
        return false;
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (type == types[i])
            return true;
    return type == DT_Q2_K && mix == MIX_Q2_K_S;
}

static enum dtype choose_type(struct chooser *c, const struct patterns *p, const struct named *n)
{
    const struct mix_options *o = c->o;
    enum role role = role_of(n->name);
    enum dtype type = mix_info[o->mix].type;
    if (role == ROLE_EMBEDDING && o->embedding_type >= 0)
        return (enum dtype)o->embedding_type;
    if (role == ROLE_OUTPUT && o->output_type >= 0)
        return (enum dtype)o->output_type;
    if (dtype_info[type].kind != DTYPE_KIND_QUANT)
        return type;
    for (int i = 0; i < p->n; i++)
        if (!regexec(&p->at[i], n->name, 0, NULL, 0))
            return o->overrides[i].type;
    return o->pure ? type : choose_by_mix(c, n->t, n->name, type);
}

int mix_choose(const struct gguf *g, const struct mix_options *o, struct mix_choice *choices, struct error *err)
{
    struct chooser c = {.o = o};
    struct patterns patterns = {0};
    struct named *tensors = NULL;
    size_t n = gguf_n_tensors(g);
    int status = read_shape(g, &c.shape, err) || compile_patterns(o, &patterns, err) ? -1 : 0;
    if (!status && !(tensors = sort_tensors(g, err)))
        status = -1;
    for (size_t i = 0; !status && i < n; i++)
        c.n_value_like += is_value_like(role_of(tensors[i].name));
    for (size_t i = 0; !status && i < n; i++) {
        const struct gguf_tensor *t = tensors[i].t;
        struct mix_choice *choice = &choices[tensors[i].at];
        *choice = (struct mix_choice){.type = t->type, .wanted = t->type};
        if (!is_quantised(t, tensors[i].name, o))
            continue;
        choice->wanted = choose_type(&c, &patterns, &tensors[i]);
        choice->type = fitting(choice->wanted, t->ne[0]);
        choice->needs_importance = needs_importance(role_of(tensors[i].name), choice->type, o->mix);
    }
    free(tensors);
    free_patterns(&patterns);
    return status;
}
