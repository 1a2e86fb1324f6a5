// The flags of the command line, parsed: one table, options.def, serves all verbs.
//
// Ownership: the strings are those of argv, or paths that options_free frees with the lists. Threads: none.
#ifndef QUERN_OPTIONS_H
#define QUERN_OPTIONS_H

#include "cmd/verbs.h"
#include "gguf/dtype.h"
#include "kernels/text.h"

enum option_kind {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_MODEL,
    OPTION_LIST,
    OPTION_INTEGER,
    OPTION_REAL,
    OPTION_SEED,
    OPTION_CHOICE,
    OPTION_DTYPE
};

struct option_list {
    const char **at;
    int n;
};

enum option_number {
#define GROUP(title)
#define OPTION(name, ...) OPT_##name,
#include "cmd/options.def"
#undef OPTION
#undef GROUP
    OPT_COUNT
};

#define OPTION_TYPE_FLAG bool
#define OPTION_TYPE_TEXT const char *
#define OPTION_TYPE_MODEL const char *
#define OPTION_TYPE_LIST struct option_list
#define OPTION_TYPE_INTEGER int64_t
#define OPTION_TYPE_REAL double
#define OPTION_TYPE_SEED uint64_t
#define OPTION_TYPE_CHOICE int
#define OPTION_TYPE_DTYPE enum dtype

struct options {
#define GROUP(title)
#define OPTION(name, kind, ...) OPTION_TYPE_##kind name;
#include "cmd/options.def"
#undef OPTION
#undef GROUP
    bool given[OPT_COUNT];    // on the command line
    struct option_list args;  // what is no flag, in order
    struct option_list owned; // strings that options_free frees: paths of models that were named
};

// argv[0] is the verb. Defaults are set first. E_USAGE: one line that names the flag, and what would be right. --help
// prints the help and ends with -1 too: the error has no text then, and the status of the help. A model is looked for on the
// disk (cmd/catalog.h): its field is a path. Without -m it is that of $QUERN_MODEL, or NULL.
int options_parse(struct options *o, enum verb_number verb, int argc, char **argv, struct error *err);
void options_free(struct options *o);

// The value of option n (OPT_...) as it would be written, appended to *value; returns its long name, NULL when none of
// the verbs in `mask` has it.
const char *options_print_value(const struct options *o, int n, unsigned mask, struct text *value);
// One flag by its name without the dashes ("temp", "top-k", "top_k"), for the verbs in `mask`: its number, or -1.
int options_find(const char *name, unsigned mask);
// Sets it as the command line would, to a copy of the text; flags are "on" or "off", an empty text empties a list.
int options_set(struct options *o, enum option_number number, const char *text, struct error *err);
// Its name without the dashes, and the i-th of its values as options_set takes them: false when it has no i-th.
const char *options_name(enum option_number number);
bool options_value(const struct options *o, enum option_number number, int i, struct text *out);
// A row of options.def.
struct option_info {
    enum option_kind kind;
    const char *shorter, *longer, *argument, *preset, *help; // shorter, argument and preset may be NULL
    unsigned verbs;
};
struct option_info options_info(enum option_number number);
// The numbers of the verbs' flags, in their order: -1 after the last.
int options_next(int number, unsigned mask);
// The help of one flag.
void options_print_one(enum option_number number, struct text *out);

// The flags of the verbs in `mask` whose names or help hold `word` (NULL: all), by group. Returns how many there are.
int options_print_help(unsigned mask, const char *word, struct text *out);
// The name nearest to `word` among n, by edits, NULL when none is near.
const char *options_nearest(const char *word, const char *const *names, int n);
// "25.6k" (thousands), "32K" (1024s), likewise m M g G: 0, or -1 when it is no whole number that fits.
int options_parse_integer(const char *text, int64_t *out);

#endif
