// Tasks in which a model chooses one of several texts: HellaSwag, WinoGrande, and multiple choice (MMLU, ARC,
// TruthfulQA), from the files that llama-perplexity takes.
//   HellaSwag        six lines a task: the context, the number (from 0) of the right ending, four endings
//   WinoGrande       a line of CSV a task: number, a sentence with _ for what is to be chosen, two choices, 1 or 2
//   multiple choice  binary, little-endian: uint32 n, uint32 offsets[n] (not needed here), then of each task the
//                    question and two sets of answers, of which the first is used. A set: uint32 n, n texts, int32
//                    labels[n], 1 for a right answer. A text: uint32 size, bytes.
//
// Ownership: the texts are views of the file's bytes, which must outlive the tasks; choice_tasks_free frees the rest.
// Threads: one at a time.
#ifndef QUERN_CHOICE_TASKS_H
#define QUERN_CHOICE_TASKS_H

#include "gguf/base.h"

enum choice_kind { CHOICE_HELLASWAG, CHOICE_WINOGRANDE, CHOICE_MULTIPLE, CHOICE_KINDS };
enum { CHOICES_MAX = 100 };

// A task's text with choice i is: head, a space unless the kind is WinoGrande, choices[i], tail.
struct choice_task {
    struct str head, tail;
    int n; // choices, 1 .. CHOICES_MAX
    struct str *choices;
    uint64_t right[2]; // a bit for each choice: whether it is right
    int at;            // line of the file, or number of the task, from 1
};

struct choice_tasks {
    enum choice_kind kind;
    struct choice_task *tasks;
    int n;
    struct arena arena;
};

// What `at` counts: "line" or "task".
const char *choice_kind_unit(enum choice_kind kind);
bool choice_task_is_right(const struct choice_task *t, int choice);

// E_USAGE with the line or task that is not of this form; E_MEMORY.
int choice_tasks_read(struct choice_tasks *t, enum choice_kind kind, struct str file, struct error *err);
// Keeps `n` of the tasks (0: all), those that a llama-perplexity built with GNU's C++ library draws, in its order.
// E_MEMORY.
int choice_tasks_select(struct choice_tasks *t, int n, struct error *err);
void choice_tasks_free(struct choice_tasks *t); // zeroed ones are fine

#endif
