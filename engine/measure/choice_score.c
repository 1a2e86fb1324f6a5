// Tokens of the texts, and their computation in groups of tasks. A group has as many tasks as the session has sequences
// for their texts. First the common tokens of each task are computed in the sequence of its first text; then the other
// texts fork from it, and the rest of all texts is computed. Steps are filled without regard to tasks.
#include "engine/measure/choice_score.h"
#include "engine/measure/text_windows.h"

#include <math.h>
#include <stdlib.h>

enum { TRAILING = 3, SEQS_MOST = 64, STEPS_HELD = 16 };

// --- tokens ---

static int tokens_of(const struct tokenizer *t, const struct str *parts, size_t n, struct token_list *out,
                     struct error *err)
{
    struct text text = {0};
    for (size_t i = 0; i < n; i++)
        text_append(&text, parts[i]);
    out->n = 0;
    int status = text.failed ? fail(err, E_MEMORY, "no memory for a text")
                             : tokenizer_encode(t, (struct str){text.data, text.size}, TOKENIZE_BOS, out, err);
    text_free(&text);
    return status;
}

// Makes the tokens of a text. What looks like a control token in a file is text. n_base: see set_scored.
static int encode(struct choice_set *s, const struct tokenizer *t, const struct choice_task *task, int i,
                  struct token_list *list, int *n_base, struct error *err)
{
    bool winogrande = s->kind == CHOICE_WINOGRANDE;
    const struct str parts[] = {task->head, winogrande ? STR_LIT("") : STR_LIT(" "), task->choices[i], task->tail};
    if (winogrande && tokens_of(t, parts, 3, list, err))
        return -1;
    *n_base = winogrande ? (int)MIN(list->n, (size_t)INT32_MAX) : 0;
    return tokens_of(t, parts, 4, list, err);
}

static int keep(struct choice_set *s, const struct token_list *list, int n_limit, struct choice_text *out,
                const struct choice_task *task, struct error *err)
{
    const char *unit = choice_kind_unit(s->kind);
    size_t most = n_limit ? (size_t)n_limit : INT32_MAX;
    if (list->n < 2)
        return fail(err, E_USAGE, "%s %d: a text of %zu tokens has nothing to score", unit, task->at, list->n);
    if (list->n > most)
        return fail(err, E_USAGE, "%s %d: a text has %zu tokens, limit %zu; -c sets it", unit, task->at, list->n, most);
    int32_t *ids = ARENA_ARRAY(&s->arena, int32_t, list->n);
    if (!ids)
        return fail(err, E_MEMORY, "no memory for %zu tokens", list->n);
    memcpy(ids, list->ids, list->n * sizeof *ids);
    *out = (struct choice_text){.ids = ids, .n = (int)list->n};
    return 0;
}

// The number of tokens that all texts begin with. The last token of a text is not counted, so that each has one to score.
static int common_of(const struct choice_item *item)
{
    int n = item->texts[0].n - 1;
    for (int k = 1; k < item->task->n; k++) {
        const struct choice_text *a = &item->texts[0], *b = &item->texts[k];
        n = MIN(n, b->n - 1);
        for (int i = 0; i < n; i++)
            n = a->ids[i] == b->ids[i] ? n : i;
    }
    return n;
}

// Sets what is scored. n_base: tokens up to the end of the choice, of WinoGrande.
static void set_scored(enum choice_kind kind, struct choice_item *item, const int *n_base)
{
    bool skip = kind == CHOICE_WINOGRANDE;
    for (int k = 0; k < item->task->n; k++)
        skip = skip && item->texts[k].n - item->n_common > TRAILING;
    for (int k = 0; k < item->task->n; k++) {
        struct choice_text *t = &item->texts[k];
        int from = skip && n_base[k] < t->n ? MAX(n_base[k], item->n_common) : item->n_common;
        t->from = MAX(from, 1); // nothing predicts the first token
        t->to = t->n - (kind == CHOICE_WINOGRANDE && t->n - t->from > 1);
    }
}

static int prepare_item(struct choice_set *s, struct choice_item *item, const struct tokenizer *t, int n_limit,
                        struct token_list *list, struct error *err)
{
    const struct choice_task *task = item->task;
    int n_base[CHOICES_MAX] = {0};
    item->texts = ARENA_ARRAY(&s->arena, struct choice_text, (size_t)task->n);
    if (!item->texts)
        return fail(err, E_MEMORY, "no memory for %d texts", task->n);
    for (int k = 0; k < task->n; k++)
        if (encode(s, t, task, k, list, &n_base[k], err) || keep(s, list, n_limit, &item->texts[k], task, err))
            return -1;
    item->n_common = common_of(item);
    set_scored(s->kind, item, n_base);
    s->n_most = MAX(s->n_most, task->n);
    s->n_rows += item->n_common;
    for (int k = 0; k < task->n; k++) {
        s->n_rows += item->texts[k].to - 1 - item->n_common;
        s->n_longest = MAX(s->n_longest, item->texts[k].n);
    }
    return 0;
}

int choice_set_prepare(struct choice_set *s, const struct choice_tasks *tasks, const struct tokenizer *t, int n_limit,
                       struct error *err)
{
    struct token_list list = {0};
    *s = (struct choice_set){.kind = tasks->kind};
    s->items = ARENA_ARRAY(&s->arena, struct choice_item, (size_t)tasks->n);
    int status = s->items ? 0 : fail(err, E_MEMORY, "no memory for %d tasks", tasks->n);
    for (; !status && s->n < tasks->n; s->n++) {
        s->items[s->n].task = &tasks->tasks[s->n];
        status = prepare_item(s, &s->items[s->n], t, n_limit, &list, err);
    }
    token_list_free(&list);
    if (status)
        choice_set_free(s);
    return status;
}

void choice_set_free(struct choice_set *s)
{
    arena_free(&s->arena);
    *s = (struct choice_set){0};
}

struct session_options choice_set_session(struct choice_set *s, int n_batch, int n_vocab)
{
    int64_t room = (int64_t)STEPS_HELD * n_batch / s->n_longest; // long texts are not held in great numbers
    s->n_vocab = n_vocab;
    return (struct session_options){
        .n_seqs = (int)MAX(s->n_most, MIN(room, SEQS_MOST)),
        .n_ctx = s->n_longest,
        .n_batch = n_batch,
        .n_outputs = text_windows_outputs(n_batch, n_vocab),
        .no_reuse = true,
    };
}

// --- a group of tasks ---

// A row to compute: token `at` of a text. Its logits, if they are wanted, are those of token at + 1.
struct job {
    const struct choice_item *item;
    int text, at, seq;
    bool scores;
};

struct group {
    const struct choice_set *set;
    int first, n, n_seqs; // items and sequences
    struct job *jobs;
    size_t n_jobs, cap;
    double *sums; // [sequences] log-probabilities of the scored tokens
    int64_t done;
};

static int add_job(struct group *g, struct job job, struct error *err)
{
    if (g->n_jobs == g->cap) {
        size_t cap = g->cap ? 2 * g->cap : 1024;
        struct job *jobs = realloc(g->jobs, cap * sizeof *jobs);
        if (!jobs)
            return fail(err, E_MEMORY, "no memory for %zu rows", cap);
        g->jobs = jobs;
        g->cap = cap;
    }
    g->jobs[g->n_jobs++] = job;
    return 0;
}

static bool is_scored(const struct choice_text *t, int at)
{
    return at >= t->from && at < t->to;
}

// Lists the common rows of an item, whose first sequence is `seq`. The logits of the last one serve all of its texts.
static int add_common(struct group *g, const struct choice_item *item, int seq, struct error *err)
{
    bool scores = false;
    for (int k = 0; k < item->task->n; k++)
        scores |= is_scored(&item->texts[k], item->n_common);
    for (int at = 0; at < item->n_common; at++)
        if (add_job(g, (struct job){item, -1, at, seq, scores && at == item->n_common - 1}, err))
            return -1;
    return 0;
}

// Lists the rows of each text behind the common ones. Nothing needs what follows its last scored token.
static int add_rest(struct group *g, const struct choice_item *item, int seq, struct error *err)
{
    for (int k = 0; k < item->task->n; k++)
        for (int at = item->n_common; at < item->texts[k].to - 1; at++)
            if (add_job(g, (struct job){item, k, at, seq + k, is_scored(&item->texts[k], at + 1)}, err))
                return -1;
    return 0;
}

static int list_jobs(struct group *g, int (*add)(struct group *, const struct choice_item *, int, struct error *),
                     struct error *err)
{
    g->n_jobs = 0;
    for (int i = 0, seq = 0; i < g->n; seq += g->set->items[g->first + i].task->n, i++)
        if (add(g, &g->set->items[g->first + i], seq, err))
            return -1;
    return 0;
}

static void add_score(struct group *g, const struct job *j, const float *logits)
{
    double norm = log_sum_exp(logits, g->set->n_vocab);
    bool common = j->text < 0;
    int from = common ? 0 : j->text, to = common ? j->item->task->n : j->text + 1;
    for (int k = from; k < to; k++)
        if (is_scored(&j->item->texts[k], j->at + 1))
            g->sums[j->seq + (common ? k : 0)] += logits[j->item->texts[k].ids[j->at + 1]] - norm;
}

// Fills the rows of a step from job `at` on. Returns how many.
static int fill_step(const struct group *g, size_t at, struct session_row *rows, const struct session_options *o)
{
    int n = 0;
    for (int outputs = 0; n < o->n_batch && at + (size_t)n < g->n_jobs; n++) {
        const struct job *j = &g->jobs[at + (size_t)n];
        if (j->scores && outputs++ == o->n_outputs)
            break;
        rows[n] = (struct session_row){j->item->texts[MAX(j->text, 0)].ids[j->at], j->seq, j->scores};
    }
    return n;
}

static int run_jobs(struct group *g, struct session *s, struct session_row *rows, const struct choice_sink *sink,
                    struct error *err)
{
    struct session_options o = session_settings(s);
    for (size_t at = 0; at < g->n_jobs;) {
        if (sink->cancel && atomic_load_explicit(sink->cancel, memory_order_relaxed))
            return fail(err, E_INTERRUPTED, "interrupted");
        int n = fill_step(g, at, rows, &o);
        if (session_step(s, rows, n, err))
            return -1;
        for (int i = 0, output = 0; i < n; i++)
            if (rows[i].logits)
                add_score(g, &g->jobs[at + (size_t)i], session_logits(s, output++));
        at += (size_t)n;
        g->done += n;
        if (sink->progress)
            sink->progress(sink->arg, g->done, g->set->n_rows);
    }
    return 0;
}

// Passes the items of a computed group to the sink.
static void emit(struct group *g, const struct choice_sink *sink)
{
    bool last_wins = g->set->kind == CHOICE_WINOGRANDE; // where two are equal
    for (int i = 0, seq = 0; i < g->n; i++) {
        const struct choice_item *item = &g->set->items[g->first + i];
        double *scores = g->sums + seq;
        int best = 0;
        for (int k = 0; k < item->task->n; k++) {
            scores[k] /= item->texts[k].to - item->texts[k].from;
            best = scores[k] > scores[best] || (last_wins && scores[k] == scores[best]) ? k : best;
        }
        sink->item(sink->arg, item, scores, best);
        seq += item->task->n;
    }
}

// Takes as many items as there are sequences for their texts.
static void fill_group(struct group *g, int n_seqs)
{
    g->n = g->n_seqs = 0;
    for (int i = g->first; i < g->set->n && g->n_seqs + g->set->items[i].task->n <= n_seqs; i++, g->n++) {
        for (int k = 0; k < g->set->items[i].task->n; k++)
            g->sums[g->n_seqs + k] = 0;
        g->n_seqs += g->set->items[i].task->n;
    }
}

static void fork_all(const struct group *g, struct session *s)
{
    for (int i = 0, seq = 0; i < g->n; i++) {
        int n = g->set->items[g->first + i].task->n;
        for (int k = 1; k < n; k++)
            session_fork(s, seq + k, seq);
        seq += n;
    }
}

static int run_group(struct group *g, struct session *s, struct session_row *rows, const struct choice_sink *sink,
                     struct error *err)
{
    for (int i = 0; i < g->n_seqs; i++)
        session_truncate(s, i, 0);
    if (list_jobs(g, add_common, err) || run_jobs(g, s, rows, sink, err))
        return -1;
    fork_all(g, s);
    if (list_jobs(g, add_rest, err) || run_jobs(g, s, rows, sink, err))
        return -1;
    emit(g, sink);
    return 0;
}

int choice_set_run(const struct choice_set *set, struct session *s, const struct choice_sink *sink, struct error *err)
{
    struct session_options o = session_settings(s);
    struct session_row *rows = calloc((size_t)o.n_batch, sizeof *rows);
    struct group g = {.set = set, .sums = calloc((size_t)o.n_seqs, sizeof *g.sums)};
    int status = rows && g.sums ? 0 : fail(err, E_MEMORY, "no memory for %d rows", o.n_batch);
    for (; !status && g.first < set->n; g.first += g.n) {
        fill_group(&g, o.n_seqs);
        status = run_group(&g, s, rows, sink, err);
    }
    free(g.jobs);
    free(g.sums);
    free(rows);
    return status;
}

// --- counting ---

void choice_tally_add(struct choice_tally *t, const struct choice_item *item, int chosen)
{
    t->n++;
    t->n_right += choice_task_is_right(item->task, chosen);
    t->n_choices += item->task->n;
}

struct estimate choice_tally_accuracy(const struct choice_tally *t)
{
    double p = t->n ? (double)t->n_right / t->n : 0;
    return (struct estimate){p, t->n > 1 ? sqrt(p * (1 - p) / (t->n - 1)) : 0};
}

double choice_tally_chance(const struct choice_tally *t)
{
    return t->n_choices ? (double)t->n / (double)t->n_choices : 0;
}

// Wilson (1927): the values p for which the observed fraction lies within z standard errors, sqrt(p (1 - p) / n).
void choice_tally_interval(const struct choice_tally *t, double *low, double *high)
{
    const double z = 1.959963984540054, n = MAX(t->n, 1), p = choice_tally_accuracy(t).value;
    double middle = p + z * z / (2 * n), half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n));
    *low = (middle - half) / (1 + z * z / n);
    *high = (middle + half) / (1 + z * z / n);
}
