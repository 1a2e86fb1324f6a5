// Flags and verbs of other engines, which hands type: what they mean here, from the table habits.def.
//
// Threads: any; it keeps no state.
#ifndef QUERN_HABITS_H
#define QUERN_HABITS_H

#include "gguf/base.h"

enum habit_kind { HABIT_SAME, HABIT_FILE, HABIT_ALWAYS, HABIT_VALUE, HABIT_SWITCH, HABIT_NONE };

struct habit {
    const char *flag;
    enum habit_kind kind;
    const char *ours; // of SAME and FILE
    const char *text; // NULL: nothing is to be said
};

// The habit of this flag, whose name has `len` bytes; NULL: there is none. has: whether the verb has one of our flags.
typedef bool has_flag_fn(const void *arg, const char *flag);
const struct habit *habit_of_flag(const char *flag, size_t len, has_flag_fn *has, const void *arg);
// The flags of other engines that mean one of ours, as candidates for misspelt words. Returns how many there are.
enum { HABITS_MOST = 64 };
int habit_names(const char *names[HABITS_MOST]);
// What to say of a verb; NULL: it is none that hands know.
const char *habit_of_verb(const char *verb);

#endif
