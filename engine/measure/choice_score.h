// Lets a model choose in tasks of choice: the text with the highest mean log-probability a token wins. What is scored
// of a text is what llama-perplexity scores:
//   HellaSwag, multiple choice  the tokens behind those that all texts of the task begin with
//   WinoGrande                  the tokens behind the choice, without the last one, if each text has more than three
//                               tokens behind the common ones; else all behind the common ones, without the last one
// Where one text is the beginning of another, its last token is scored. WinoGrande gives a tie to the second choice.
//
// The common tokens of a task are computed once; the sequences of its texts share their pages. Ownership: the set owns
// its tokens; the tasks must outlive it. Threads: one at a time.
#ifndef QUERN_CHOICE_SCORE_H
#define QUERN_CHOICE_SCORE_H

#include "engine/measure/choice_tasks.h"
#include "engine/measure/divergence.h"
#include "engine/session.h"

struct choice_text {
    const int32_t *ids;
    int n;
    int from, to; // tokens from .. to - 1 are scored; 1 <= from < to <= n
};

struct choice_item {
    const struct choice_task *task;
    struct choice_text *texts; // [task->n]
    int n_common;              // tokens that are computed once, less than each text has
};

struct choice_set {
    struct choice_item *items;
    int n;
    int n_most, n_longest; // choices of a task, tokens of a text
    int n_vocab;           // of the model, known from choice_set_session on
    int64_t n_rows;        // tokens to compute
    enum choice_kind kind;
    struct arena arena;
};

// Makes tokens of all texts. n_limit: the most tokens of a text; 0: any number. E_USAGE with the line or task.
int choice_set_prepare(struct choice_set *s, const struct choice_tasks *tasks, const struct tokenizer *t, int n_limit,
                       struct error *err);
void choice_set_free(struct choice_set *s); // a zeroed one is fine

// The options of a session for these texts. The caller sets kv_type and cancel.
struct session_options choice_set_session(struct choice_set *s, int n_batch, int n_vocab);

struct choice_sink {
    // Receives each item in order: the mean log-probability of each choice, and which one wins.
    void (*item)(void *arg, const struct choice_item *item, const double *scores, int chosen);
    void (*progress)(void *arg, int64_t done, int64_t total); // in tokens, after each step. May be NULL
    void *arg;
    const atomic_bool *cancel; // E_INTERRUPTED between steps. May be NULL
};
// Computes all items in a session that was opened with the options of choice_set_session and serves nothing else.
int choice_set_run(const struct choice_set *set, struct session *s, const struct choice_sink *sink, struct error *err);

// --- counting ---

struct choice_tally { // zero-initialise
    int n, n_right;
    int64_t n_choices;
};
void choice_tally_add(struct choice_tally *t, const struct choice_item *item, int chosen);
// The fraction of tasks with a right choice, and its standard error.
struct estimate choice_tally_accuracy(const struct choice_tally *t);
// The fraction that guessing would reach: tasks by choices.
double choice_tally_chance(const struct choice_tally *t);
// Wilson's score interval of 95%.
void choice_tally_interval(const struct choice_tally *t, double *low, double *high);

#endif
