// The parsed flags of the command line. One table, options.def, serves all verbs.
//
// Ownership: strings are views of argv, or paths that options_free frees together with the lists. Threads: none are
// started; one caller at a time.
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
    bool given[OPT_COUNT];       // whether the flag was on the command line
    struct option_list args;     // arguments that are not flags, in order
    struct option_list contents; // files whose content became the value of a flag
    enum verb_number verb;       // whose command line it was
    struct option_list owned;    // strings that options_free frees: the paths of models given by name, and their names
    const char *model_name;      // the whole name of a model given by name, such as llama3.2:3b; NULL: it is a path
};

// Parses the command line of a verb; argv[0] is the verb. Defaults are set first. E_USAGE with one line that names
// the flag and what would be right. --help prints the help and returns -1 as well: the error then has no text, and
// carries the exit status of the help. Names of models are resolved on the disk (cmd/catalog.h), so that the field
// holds a path; without -m it is the path from $QUERN_MODEL, or NULL.
int options_parse(struct options *o, enum verb_number verb, int argc, char **argv, struct error *err);
void options_free(struct options *o);

// Appends the value of option n (OPT_...) as it would be written on the command line. Returns the long name of the
// option; NULL if no verb in `mask` has it.
const char *options_print_value(const struct options *o, int n, unsigned mask, struct text *value);
// Finds a flag by its name without dashes ("temp", "top-k", "top_k") among those of the verbs in `mask`. Returns its
// number, or -1.
int options_find(const char *name, unsigned mask);
// Sets a flag to a copy of the text, as the command line would. A FLAG takes "on" or "off"; an empty text empties a
// list.
int options_set(struct options *o, enum option_number number, const char *text, struct error *err);
// The name of a flag without dashes; and its i-th value in the form that options_set accepts (false if there is no
// i-th value).
const char *options_name(enum option_number number);
bool options_value(const struct options *o, enum option_number number, int i, struct text *out);
// A row of options.def, as completions and the manual page need it.
struct option_info {
    enum option_kind kind;
    const char *shorter, *longer, *argument, *preset, *help; // shorter, argument and preset may be NULL
    unsigned verbs;
};
struct option_info options_info(enum option_number number);
// Iterates over the flags of the verbs in `mask` in the order of the table: the number after `number`, -1 after the
// last.
int options_next(int number, unsigned mask);
// Appends the help of one flag.
void options_print_one(enum option_number number, struct text *out);

enum { HELP_COLUMNS = 80 }; // of the help's lines
// Appends the help of the flags of the verbs in `mask` whose name or help contains `word` (NULL: all of them), by
// group. Returns how many there are.
int options_print_help(unsigned mask, const char *word, struct text *out);
// The name among n that has the smallest edit distance to `word`; NULL if none is close.
const char *options_nearest(const char *word, const char *const *names, int n);
// Parses a whole number with an optional suffix: k, m, g are powers of 1000 ("25.6k"), K, M, G powers of 1024.
// Returns 0, or -1 if it is not a whole number that fits 64 bits.
int options_parse_integer(const char *text, int64_t *out);

#endif
