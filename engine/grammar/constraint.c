// The state of one answer in its grammar. The set of readings before each token is kept, so going back is only a
// truncation.
#include "engine/grammar/compiled.h"

#include <stdlib.h>

enum { TRIGGER_MAX = 4096 };

// --- the trigger: found by the Knuth-Morris-Pratt algorithm as text arrives ---

static bool make_trigger(struct constraint *c, struct str trigger)
{
    c->trigger = malloc(trigger.len + 1);
    c->fallback = calloc(trigger.len + 1, sizeof *c->fallback);
    c->waiting_mask = calloc(trigger.len + 1, sizeof *c->waiting_mask);
    if (!c->trigger || !c->fallback || !c->waiting_mask)
        return false;
    if (trigger.len)
        memcpy(c->trigger, trigger.data, trigger.len);
    c->trigger_len = trigger.len;
    for (size_t i = 1, k = 0; i < trigger.len; i++) {
        while (k > 0 && trigger.data[i] != trigger.data[k])
            k = c->fallback[k];
        k += trigger.data[i] == trigger.data[k];
        c->fallback[i + 1] = (uint32_t)k;
    }
    return true;
}

// Returns the position in the trigger after more text, starting from position `place`. *used: bytes up to the end of
// the trigger, or all of the text.
static uint32_t seek(const struct constraint *c, uint32_t place, struct str text, size_t *used)
{
    size_t i = 0;
    for (; i < text.len && place < c->trigger_len; i++) {
        while (place > 0 && text.data[i] != c->trigger[place])
            place = c->fallback[place];
        place += text.data[i] == c->trigger[place];
    }
    *used = i;
    return place;
}

static bool is_waiting(const struct constraint *c)
{
    return c->n_waiting == SIZE_MAX;
}

// --- reading one token; the grammar's lock is held ---

static uint32_t read_text(struct grammar *g, uint32_t set, struct str text)
{
    for (size_t i = 0; i < text.len && set != READINGS_DEAD; i++)
        set = readings_step_once(&g->readings, set, g->net.class_of[(uint8_t)text.data[i]]);
    return set;
}

// Reads the text one reading at a time, after all readings together became too many. The first one that can read it
// wins.
static uint32_t read_apart(struct grammar *g, uint32_t set, struct str text)
{
    uint32_t to = READINGS_DEAD;
    for (uint32_t i = 0; i < g->readings.at[set].n && to == READINGS_DEAD; i++)
        if (!g->readings.pool[g->readings.at[set].first + i].called)
            to = read_text(g, readings_single(&g->readings, set, i), text);
    return to;
}

static uint32_t read_token(struct grammar *g, uint32_t set, int32_t token)
{
    if (token < 0 || token >= g->v->n_tokens)
        return READINGS_DEAD;
    struct str text = vocab_tree_text(g->v, token);
    uint32_t by_text = text.len ? read_text(g, set, text) : READINGS_DEAD, by_name = READINGS_DEAD;
    if (by_text == READINGS_DEAD && text.len && g->readings.too_many)
        by_text = read_apart(g, set, text);
    if (vocab_tree_may_stand(g->v, token))
        by_name = readings_token(&g->readings, set, (uint32_t)token);
    return readings_union(&g->readings, by_text, by_name);
}

// Reads a token while the trigger is awaited. Updates *place. When the trigger is complete, *set becomes the set of
// readings after the rest of the token. False if the token is not allowed.
static bool await_token(const struct constraint *c, uint32_t *place, int32_t token, uint32_t *set)
{
    if (!vocab_tree_may_stand(c->g->v, token))
        return false;
    struct str text = tokenizer_piece(c->g->v->t, token, true);
    size_t used;
    *place = seek(c, *place, text, &used);
    if (*place < c->trigger_len)
        return true;
    *set = read_text(c->g, c->g->start_after_trigger, (struct str){text.data + used, text.len - used});
    return *set != READINGS_DEAD;
}

// Computes what the history holds after one more token; false if the token is not allowed. *starts: the token
// completes the trigger.
static bool step(struct constraint *c, int32_t token, uint32_t *next, bool *starts)
{
    uint32_t place = c->history[c->n];
    *starts = false;
    if (!is_waiting(c)) {
        *next = read_token(c->g, place, token);
        return *next != READINGS_DEAD;
    }
    if (!await_token(c, &place, token, next))
        return false;
    *starts = place == c->trigger_len;
    if (!*starts)
        *next = place;
    return true;
}

static int report(struct grammar *g, struct error *err)
{
    if (g->readings.failed || g->masks.failed)
        return fail(err, E_MEMORY, "no memory for the states of the grammar (%zu MiB)",
                    (g->readings.bytes + g->readings.subsets.bytes + g->masks.bytes) >> 20);
    return fail(err, E_USAGE, "the grammar has more than %d readings of this text", READINGS_MAX);
}

// --- the mask ---

static bool make_waiting_mask(struct constraint *c, uint32_t place)
{
    uint32_t *mask = calloc(grammar_vocab_words(c->g->v), sizeof *mask);
    for (int32_t id = 0; mask && id < c->g->v->n_tokens; id++) {
        uint32_t at = place, set;
        if (await_token(c, &at, id, &set))
            mask[id >> 5] |= UINT32_C(1) << (id & 31);
    }
    c->waiting_mask[place] = mask;
    return mask != NULL;
}

static bool is_blank(const uint32_t *mask, size_t words)
{
    uint32_t any = 0;
    for (size_t i = 0; i < words; i++)
        any |= mask[i];
    return !any;
}

const uint32_t *constraint_mask(struct constraint *c, struct error *err)
{
    struct grammar *g = c->g;
    uint32_t at = c->history[c->n];
    const uint32_t *mask = c->mask;
    pthread_mutex_lock(&g->lock);
    g->readings.too_many = g->readings.subsets.too_wide = false;
    bool good;
    if (is_waiting(c)) {
        good = c->waiting_mask[at] || make_waiting_mask(c, at);
        mask = c->waiting_mask[at];
    } else {
        good = masks_of(&g->masks, at, c->mask);
        bool gave_up = g->readings.too_many || g->readings.subsets.too_wide;
        good = good && !(gave_up && is_blank(c->mask, grammar_vocab_words(g->v)));
    }
    if (!good)
        report(g, err);
    pthread_mutex_unlock(&g->lock);
    return good ? mask : NULL;
}

bool constraint_allows(struct constraint *c, int32_t token)
{
    uint32_t next;
    bool starts;
    if (token >= 0 && token < tokenizer_n_vocab(c->g->v->t) && tokenizer_is_end(c->g->v->t, token))
        return constraint_can_end(c);
    pthread_mutex_lock(&c->g->lock);
    bool allowed = step(c, token, &next, &starts);
    pthread_mutex_unlock(&c->g->lock);
    return allowed;
}

int constraint_accept(struct constraint *c, int32_t token, struct error *err)
{
    if (c->n + 2 > c->cap) {
        size_t cap = 2 * c->cap;
        uint32_t *history = realloc(c->history, cap * sizeof *history);
        if (!history)
            return fail(err, E_MEMORY, "no memory for the states of %zu tokens", cap);
        c->history = history;
        c->cap = cap;
    }
    uint32_t next = READINGS_DEAD;
    bool starts;
    struct grammar *g = c->g;
    pthread_mutex_lock(&g->lock);
    g->readings.too_many = g->readings.subsets.too_wide = false;
    bool allowed = step(c, token, &next, &starts);
    int status = 0;
    if (!allowed && (g->readings.too_many || g->readings.subsets.too_wide || g->readings.failed))
        status = report(g, err);
    pthread_mutex_unlock(&g->lock);
    if (!allowed)
        return status ? status : fail(err, E_USAGE, "token %d does not continue the grammar", token);
    c->history[++c->n] = next;
    if (starts)
        c->n_waiting = c->n;
    return 0;
}

// --- queries without a mask ---

bool constraint_is_waiting(const struct constraint *c)
{
    return is_waiting(c);
}

bool constraint_can_end(const struct constraint *c)
{
    if (is_waiting(c))
        return false;
    pthread_mutex_lock(&c->g->lock);
    bool done = c->g->readings.at[c->history[c->n]].done;
    pthread_mutex_unlock(&c->g->lock);
    return done;
}

bool constraint_must_end(const struct constraint *c)
{
    if (is_waiting(c))
        return false;
    pthread_mutex_lock(&c->g->lock);
    const struct reading_set *at = &c->g->readings.at[c->history[c->n]];
    bool over = at->done && !at->n;
    pthread_mutex_unlock(&c->g->lock);
    return over;
}

// Returns the only byte that can follow the set; -1 if several can, or if a token may follow or the answer may end.
static int only_byte(struct grammar *g, uint32_t set, uint32_t *next)
{
    const struct net *net = &g->net;
    if (g->readings.at[set].done || g->readings.at[set].has_tokens)
        return -1;
    int byte = -1;
    for (uint32_t class = 0; class < net->n_classes; class ++) {
        uint32_t to = readings_step_once(&g->readings, set, (uint8_t) class);
        if (to == READINGS_DEAD)
            continue;
        for (unsigned b = 0; b < 256; b++) {
            if (net->class_of[b] != class)
                continue;
            if (byte >= 0)
                return -1;
            byte = (int)b;
            *next = to;
        }
    }
    return byte;
}

size_t constraint_forced(struct constraint *c, char *out, size_t cap)
{
    if (is_waiting(c))
        return 0;
    size_t n = 0;
    pthread_mutex_lock(&c->g->lock);
    uint32_t set = c->history[c->n];
    for (int byte; n < cap && (byte = only_byte(c->g, set, &set)) >= 0;)
        out[n++] = (char)byte;
    pthread_mutex_unlock(&c->g->lock);
    return n;
}

// --- creating, rewinding, freeing ---

int64_t constraint_length(const struct constraint *c)
{
    return (int64_t)c->n;
}

void constraint_rewind(struct constraint *c, int64_t n)
{
    if (n < 0 || (size_t)n >= c->n)
        return;
    c->n = (size_t)n;
    if (c->trigger_len && c->n < c->n_waiting)
        c->n_waiting = SIZE_MAX;
}

void constraint_reset(struct constraint *c)
{
    c->n = 0;
    c->n_waiting = c->trigger_len ? SIZE_MAX : 0;
    c->history[0] = c->trigger_len ? 0 : c->g->start;
}

static struct constraint *make(struct grammar *g, struct str trigger, size_t cap)
{
    struct constraint *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->g = g;
    c->cap = cap;
    c->history = malloc(cap * sizeof *c->history);
    c->mask = calloc(grammar_vocab_words(g->v), sizeof *c->mask);
    if (c->history && c->mask && make_trigger(c, trigger))
        return c;
    constraint_free(c);
    return NULL;
}

int constraint_new(struct constraint **out, struct grammar *g, const struct constraint_options *o, struct error *err)
{
    struct str trigger = o && o->trigger.len ? o->trigger : (struct str){"", 0};
    *out = NULL;
    if (trigger.len > TRIGGER_MAX)
        return fail(err, E_USAGE, "a text of %zu bytes that starts a grammar; %d at most", trigger.len, TRIGGER_MAX);
    struct constraint *c = make(g, trigger, 1024);
    if (!c)
        return fail(err, E_MEMORY, "no memory for the state of a grammar");
    constraint_reset(c);
    *out = c;
    return 0;
}

int constraint_clone(struct constraint **out, const struct constraint *c, struct error *err)
{
    *out = NULL;
    struct constraint *twin = make(c->g, (struct str){c->trigger, c->trigger_len}, c->cap);
    if (!twin)
        return fail(err, E_MEMORY, "no memory for the state of a grammar");
    memcpy(twin->history, c->history, (c->n + 1) * sizeof *c->history);
    twin->n = c->n;
    twin->n_waiting = c->n_waiting;
    *out = twin;
    return 0;
}

void constraint_free(struct constraint *c)
{
    if (!c)
        return;
    for (size_t i = 0; c->waiting_mask && i <= c->trigger_len; i++)
        free(c->waiting_mask[i]);
    free(c->waiting_mask);
    free(c->fallback);
    free(c->trigger);
    free(c->history);
    free(c->mask);
    free(c);
}
