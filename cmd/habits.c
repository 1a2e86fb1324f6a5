// Searches the table from its beginning.
#include "cmd/habits.h"

static const struct habit habits[] = {
#define HABIT(flag, kind, ours, text) {flag, HABIT_##kind, ours, text},
#define VERB_HABIT(verb, text)
#include "cmd/habits.def"
#undef HABIT
#undef VERB_HABIT
};

static const struct {
    const char *verb, *text;
} verb_habits[] = {
#define HABIT(flag, kind, ours, text)
#define VERB_HABIT(verb, text) {verb, text},
#include "cmd/habits.def"
#undef HABIT
#undef VERB_HABIT
};

const struct habit *habit_of_flag(const char *flag, size_t len, has_flag_fn *has, const void *arg)
{
    for (size_t i = 0; i < COUNT_OF(habits); i++) {
        const struct habit *h = &habits[i];
        if (strlen(h->flag) == len && !strncmp(h->flag, flag, len) && (!h->ours || has(arg, h->ours)))
            return h;
    }
    return NULL;
}

int habit_names(const char *names[HABITS_MOST])
{
    int n = 0;
    for (size_t i = 0; i < COUNT_OF(habits) && n < HABITS_MOST; i++)
        if (habits[i].kind == HABIT_SAME && strlen(habits[i].flag) > 4)
            names[n++] = habits[i].flag;
    return n;
}

const char *habit_of_verb(const char *verb)
{
    for (size_t i = 0; i < COUNT_OF(verb_habits); i++)
        if (!strcmp(verb_habits[i].verb, verb))
            return verb_habits[i].text;
    return NULL;
}
