// options.def is included once as a table of rows, each with the offset of its field in struct options; one function,
// set, parses a value by the kind of the row and stores it there. Defaults are parsed by the same function before the
// command line. Names are searched one after the other. An unknown flag is answered with the verb that has it, or
// with the flag at the smallest edit distance.
#include "cmd/options.h"
#include "cmd/catalog.h"
#include "cmd/habits.h"
#include "cmd/input.h"
#include "cmd/terminal/display.h"
#include "cmd/terminal/terminal.h"
#include "kernels/card.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

// A row of options.def. Titles of groups are rows between the options that have only a help text.
struct option {
    int number; // OPT_...; -1 for a title
    enum option_kind kind;
    const char *shorter, *longer, *argument, *preset;
    double least, most;
    unsigned verbs;
    const char *help;
    size_t offset; // of the field in struct options
};
static const struct option table[] = {
#define GROUP(title) {.number = -1, .help = title},
#define OPTION(name, kind, shorter, longer, argument, preset, least, most, verbs, help)                                \
    {OPT_##name,                                                                                                       \
     OPTION_##kind,                                                                                                    \
     shorter,                                                                                                          \
     longer,                                                                                                           \
     argument,                                                                                                         \
     preset,                                                                                                           \
     least,                                                                                                            \
     most,                                                                                                             \
     verbs,                                                                                                            \
     help,                                                                                                             \
     offsetof(struct options, name)},
#include "cmd/options.def"
#undef OPTION
#undef GROUP
};

static const enum dtype kv_types[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0};

// --- values ---

int options_parse_integer(const char *text, int64_t *out)
{
    static const struct {
        char letter;
        double factor;
    } units[] = {{'k', 1e3}, {'K', 0x1p10}, {'m', 1e6}, {'M', 0x1p20}, {'g', 1e9}, {'G', 0x1p30}};
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno || strspn(text, "0123456789+-.") != (size_t)(end - text))
        return -1;
    for (size_t i = 0; *end && i < COUNT_OF(units); i++)
        if (*end == units[i].letter) {
            value *= units[i].factor;
            end++;
            break;
        }
    value = fabs(value - nearbyint(value)) < 1e-6 ? nearbyint(value)
                                                  : value; // 25.6 has no exact binary form, but 25.6k means 25600
    if (*end || value != nearbyint(value) || fabs(value) > 0x1p53)
        return -1;
    *out = (int64_t)value;
    return 0;
}

static int out_of_range(const struct option *o, const char *text, struct error *err)
{
    return fail(err, E_USAGE, "%s %s: from %.10g to %.10g%s", o->longer, text, o->least, o->most,
                o->number == OPT_threads ? "; -1 is 0" : "");
}

static int parse_integer(const struct option *o, const char *text, int64_t *out, struct error *err)
{
    if (options_parse_integer(text, out))
        return fail(err, E_USAGE, "%s %s: not a whole number such as 512, 25.6k or 32K", o->longer, text);
    return (double)*out >= o->least && (double)*out <= o->most ? 0 : out_of_range(o, text, err);
}

static int parse_real(const struct option *o, const char *text, double *out, struct error *err)
{
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end || !isfinite(*out))
        return fail(err, E_USAGE, "%s %s: not a number such as 0.8", o->longer, text);
    return *out >= o->least && *out <= o->most ? 0 : out_of_range(o, text, err);
}

static int parse_seed(const struct option *o, const char *text, uint64_t *out, struct error *err)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 0);
    if (end == text || *end || errno || strchr(text, '-'))
        return fail(err, E_USAGE, "%s %s: not a number from 0 to 2^64-1", o->longer, text);
    return 0;
}

// The index of `text` in the list "a|b|c".
static int parse_choice(const struct option *o, const char *text, int *out, struct error *err)
{
    size_t len = strlen(text);
    *out = 0;
    for (const char *at = o->argument;; at++, ++*out) {
        size_t n = strcspn(at, "|");
        if (n == len && !strncmp(at, text, n))
            return 0;
        at += n;
        if (!*at)
            return fail(err, E_USAGE, "%s %s: one of %s", o->longer, text, o->argument);
    }
}

static int parse_dtype(const struct option *o, const char *text, enum dtype *out, struct error *err)
{
    if (!dtype_from_name(str_from(text), out))
        for (size_t i = 0; i < COUNT_OF(kv_types); i++)
            if (*out == kv_types[i])
                return 0;
    return fail(err, E_USAGE, "%s %s: one of f32, f16, bf16, q8_0, q4_0", o->longer, text);
}

static int list_push(struct option_list *list, const char *text, struct error *err)
{
    const char **at = realloc(list->at, ((size_t)list->n + 1) * sizeof *at);
    if (!at)
        return fail(err, E_MEMORY, "no memory for the command line");
    at[list->n] = text;
    *list = (struct option_list){at, list->n + 1};
    return 0;
}

// Makes the options the owner of a string.
static int own(struct options *options, char *text, struct error *err)
{
    if (!list_push(&options->owned, text, err))
        return 0;
    free(text);
    return -1;
}

// Resolves the name of a model to its path.
static int find_model(struct options *options, const char *name, const char **field, struct error *err)
{
    char *path, *called;
    if (catalog_resolve(name, &path, &called, err))
        return -1;
    if (own(options, path, err)) {
        free(called);
        return -1;
    }
    if (called && own(options, called, err))
        return -1;
    *field = path;
    if (field == &options->model)
        options->model_name = called;
    return 0;
}

static int set(struct options *options, const struct option *o, const char *text, struct error *err)
{
    void *field = (char *)options + o->offset;
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return 0;
    case OPTION_TEXT:
        *(const char **)field = text;
        return 0;
    case OPTION_MODEL:
        return find_model(options, text, field, err);
    case OPTION_LIST:
        return *text ? list_push(field, text, err) : fail(err, E_USAGE, "%s: an empty text", o->longer);
    case OPTION_INTEGER:
        return parse_integer(o, text, field, err);
    case OPTION_REAL:
        return parse_real(o, text, field, err);
    case OPTION_SEED:
        return parse_seed(o, text, field, err);
    case OPTION_CHOICE:
        return parse_choice(o, text, field, err);
    case OPTION_DTYPE:
        return parse_dtype(o, text, field, err);
    }
    return -1;
}

// --- names ---

// The edit distance from a to b: insertions, deletions, substitutions, and swaps of neighbours. For long names it is
// LONGEST.
static int distance(const char *a, const char *b)
{
    enum { LONGEST = 40 };
    size_t n = strlen(b);
    // The rows of the matrix for the present letter of a, the one before, and the one before that.
    int rows[3][LONGEST + 1];
    int *row = rows[0], *last = rows[1], *before = rows[2];
    if (n > LONGEST || strlen(a) > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= n; j++)
        row[j] = (int)j;
    for (size_t i = 0; a[i]; i++) {
        int *oldest = before;
        before = last;
        last = row;
        row = oldest;
        row[0] = (int)i + 1;
        for (size_t j = 0; j < n; j++) {
            int exchanged = last[j] + (a[i] != b[j]);
            row[j + 1] = MIN(exchanged, MIN(row[j], last[j + 1]) + 1);
            if (i && j && a[i] == b[j - 1] && a[i - 1] == b[j])
                row[j + 1] = MIN(row[j + 1], before[j - 1] + 1);
        }
    }
    return row[n];
}

const char *options_nearest(const char *word, const char *const *names, int n)
{
    const char *best = NULL;
    // A misspelt word differs in a letter, or in one of four. Flags of one or two letters are all near each other.
    const int n_letters = (int)strlen(word);
    int least = word[0] == '-' && n_letters <= 3 ? 0 : MAX(2, n_letters / 4 + 1);
    for (int i = 0; i < n; i++) {
        int edits = distance(word, names[i]);
        // a prefix of a name beats everything but an exact match
        if (edits > 0 && strlen(word) >= 4 && !strncmp(word, names[i], strlen(word)))
            edits = 1;
        if (edits < least) {
            least = edits;
            best = names[i];
        }
    }
    return best;
}

static bool is_named(const struct option *o, const char *name, size_t len)
{
    const char *names[] = {o->shorter, o->longer};
    for (int i = 0; i < 2; i++)
        if (names[i] && strlen(names[i]) == len && !strncmp(names[i], name, len))
            return true;
    return false;
}

static const struct option *find(const char *name, size_t len, unsigned mask)
{
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (table[i].number >= 0 && (table[i].verbs & mask) && is_named(&table[i], name, len))
            return &table[i];
    return NULL;
}

static int unknown_flag(enum verb_number verb, const char *flag, size_t len, struct error *err)
{
    const char *names[2 * COUNT_OF(table) + HABITS_MOST];
    int n = habit_names(names);
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        if (table[i].number < 0 || !(table[i].verbs & 1u << verb))
            continue;
        names[n++] = table[i].longer;
        if (table[i].shorter)
            names[n++] = table[i].shorter;
    }
    char word[80];
    snprintf(word, sizeof word, "%.*s", (int)MIN(len, sizeof word - 1), flag);
    const struct option *other = find(flag, len, V_ALL);
    for (unsigned v = 0; other && v < VERB_COUNT; v++)
        if (other->verbs & 1u << v)
            return fail(err, E_USAGE, "%s: not a flag of %s, but of %s; see `quern help %s`", word, verbs[verb].name,
                        verbs[v].name, verbs[verb].name);
    const char *near = options_nearest(word, names, n);
    return fail(err, E_USAGE, "%s: unknown flag%s%s; see `quern help %s`", word, near ? ", did you mean " : "",
                near ? near : "", verbs[verb].name);
}

// --- the command line ---

static const char MODEL_FLAG[] = "--model";

static int set_defaults(struct options *o, struct error *err)
{
    *o = (struct options){0};
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (table[i].number >= 0 && table[i].preset && set(o, &table[i], table[i].preset, err))
            return -1;
    return 0;
}

static bool verb_has(const void *verb, const char *flag)
{
    return find(flag, strlen(flag), 1u << *(const enum verb_number *)verb);
}

// The words of a command line, and which of them is next.
struct words {
    int argc;
    char **argv;
    int at;
};

// The value of a flag that stands behind it: "--flag=value", or the next word. NULL: there is none.
static const char *value_behind(struct words *w, size_t len)
{
    const char *flag = w->argv[w->at];
    if (flag[len] == '=')
        return flag + len + 1;
    return w->at + 1 < w->argc ? w->argv[++w->at] : NULL;
}

// A flag that names one file. Of two such names one would be dropped without a word: a result in the wrong place, or an
// input that nobody read. Other flags may be repeated, and the last one counts.
static bool names_one_file(const struct option *o)
{
    return o->number == OPT_bench_save || (o->kind == OPTION_TEXT && !strncmp(o->argument, "FILE", 4));
}

static int check_repeated(const struct options *o, const struct option *option, const char *value, struct error *err)
{
    if (!o->given[option->number] || !names_one_file(option))
        return 0;
    const char *before = *(const char *const *)((const char *)o + option->offset);
    return strcmp(before, value)
               ? fail(err, E_USAGE, "%s: given twice, %s and %s, but it takes one", option->longer, before, value)
               : 0;
}

static int take_option(struct options *o, const struct option *option, struct words *w, size_t len, struct error *err)
{
    const char *flag = w->argv[w->at], *value = "";
    if (option->kind == OPTION_FLAG && flag[len] == '=')
        return fail(err, E_USAGE, "%s takes no value%s", option->longer,
                    option->number == OPT_think ? "; --no-think switches reasoning off, --think-budget N limits it"
                                                : "");
    if (option->kind != OPTION_FLAG && !(value = value_behind(w, len)))
        return fail(err, E_USAGE, "%s: needs a value, %s", flag, option->argument);
    if (!strcmp(value, "-1")) { // other engines' word for: as you like
        if (option->number == OPT_seed)
            return 0;
        if (option->number == OPT_threads)
            value = "0";
    }
    if (check_repeated(o, option, value, err))
        return -1;
    o->given[option->number] = true;
    return set(o, option, value, err);
}

// Gives the flag the content of a file as its value, without a newline at its end.
static int take_content(struct options *o, const struct option *option, const char *path, struct error *err)
{
    char *data, *text;
    size_t size;
    if (input_read(path, INPUT_SYSTEM, &data, &size, err))
        return -1;
    size -= size && data[size - 1] == '\n';
    text = strndup(data, size);
    free(data);
    if (list_push(&o->contents, path, err)) {
        free(text);
        return -1;
    }
    if (!text || list_push(&o->owned, text, err)) {
        free(text);
        return fail(err, E_MEMORY, "no memory for %s", path);
    }
    o->given[option->number] = true;
    return set(o, option, text, err);
}

// Takes a flag of another engine.
static int take_habit(struct options *o, const struct habit *h, enum verb_number verb, struct words *w, size_t len,
                      struct error *err)
{
    static const char *const switches[] = {"on", "off", "auto", "0", "1"};
    const char *next = w->at + 1 < w->argc ? w->argv[w->at + 1] : "", *path;
    const struct option *ours = h->ours ? find(h->ours, strlen(h->ours), 1u << verb) : NULL;
    assert(ours || (h->kind != HABIT_SAME && h->kind != HABIT_FILE)); // habit_of_flag looks for it
    if (h->kind == HABIT_NONE)
        return fail(err, E_USAGE, "%s: %s", h->flag, h->text);
    if (h->kind == HABIT_SAME)
        return take_option(o, ours, w, len, err);
    if (h->kind == HABIT_FILE)
        return (path = value_behind(w, len)) ? take_content(o, ours, path, err)
                                             : fail(err, E_USAGE, "%s: needs a value, FILE", h->flag);
    if (h->text)
        terminal_note("quern: note: %s: %s", h->flag, h->text);
    for (size_t i = 0; h->kind == HABIT_SWITCH && i < COUNT_OF(switches); i++)
        if (w->argv[w->at][len] != '=' && !strcmp(next, switches[i])) {
            w->at++;
            return 0;
        }
    if (h->kind == HABIT_VALUE && !value_behind(w, len))
        return fail(err, E_USAGE, "%s: needs a value", h->flag);
    return 0;
}

// Takes the flag at the next word with its value.
static int take_flag(struct options *o, enum verb_number verb, struct words *w, struct error *err)
{
    const char *flag = w->argv[w->at];
    const size_t len = strncmp(flag, "--", 2) ? strlen(flag) : strcspn(flag, "=");
    const struct option *option = find(flag, len, 1u << verb);
    const struct habit *habit = option ? NULL : habit_of_flag(flag, len, verb_has, &verb);
    if (habit)
        return take_habit(o, habit, verb, w, len, err);
    if (!option)
        return unknown_flag(verb, flag, len, err);
    if (option->number == OPT_help) {
        *err = (struct error){.code = (enum err_code)cmd_help(2, (char *[]){NULL, w->argv[0], NULL})};
        return -1;
    }
    return take_option(o, option, w, len, err);
}

// Whether a word can hardly be a prompt: NAME:TAG, of letters, digits and what stands between them, with a letter in both.
static bool is_surely_a_name(const char *word)
{
    const char *colon = strchr(word, ':');
    size_t n_letters = 0, n_after = 0;
    for (const char *c = word; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr(":._-/", *c))
            return false;
        n_letters += isalpha((unsigned char)*c) && (!colon || c < colon);
        n_after += isalnum((unsigned char)*c) && colon && c > colon;
    }
    return colon && colon > word && n_letters && n_after && !strchr(colon + 1, ':') && strncmp(colon, "://", 3);
}

// Takes the first argument as the model, as other engines do, if it is a GGUF file or surely the name of a model.
static int take_model(struct options *o, enum verb_number verb, struct error *err)
{
    static const unsigned by_place = 1u << VERB_RUN | 1u << VERB_CHAT | 1u << VERB_BENCH | 1u << VERB_PERPLEXITY |
                                     1u << VERB_TOKENIZE | 1u << VERB_IMATRIX;
    struct error none;
    const char *first = o->args.n ? o->args.at[0] : "", *end = strrchr(first, '.');
    if (o->model || !o->args.n || !(1u << verb & by_place))
        return 0;
    const bool file = end && !strcmp(end, ".gguf") && !access(first, R_OK);
    const bool named = !file && !strchr(first, ' ') && (o->args.n > 1 || verb == VERB_CHAT || strpbrk(first, ":/")) &&
                       strlen(first) < 200;
    if (file ? find_model(o, first, &o->model, err) != 0 : !named || find_model(o, first, &o->model, &none) != 0) {
        if (file || !(verb == VERB_RUN || verb == VERB_CHAT) || !is_surely_a_name(first))
            return file ? -1 : 0;
        return find_model(o, first, &o->model, err);
    }
    o->given[OPT_model] = true;
    memmove(o->args.at, o->args.at + 1, (size_t)--o->args.n * sizeof *o->args.at);
    return 0;
}

int options_parse(struct options *o, enum verb_number verb, int argc, char **argv, struct error *err)
{
    if (set_defaults(o, err))
        goto failed;
    o->verb = verb;
    bool flags = true;
    for (struct words w = {argc, argv, 1}; w.at < argc; w.at++) {
        bool is_flag = flags && argv[w.at][0] == '-' && argv[w.at][1];
        if (is_flag && !strcmp(argv[w.at], "--")) {
            flags = false;
            continue;
        }
        if (is_flag ? take_flag(o, verb, &w, err) : list_push(&o->args, argv[w.at], err))
            goto failed;
    }
    if (take_model(o, verb, err))
        goto failed;
    // a model on the command line wins, also where it is an argument
    const char *named = verb == VERB_INSPECT && o->args.n ? NULL : getenv("QUERN_MODEL");
    if (!o->model && named && *named && find(MODEL_FLAG, strlen(MODEL_FLAG), 1u << verb) &&
        find_model(o, named, &o->model, err))
        goto failed;
    return 0;
failed:
    options_free(o);
    return -1;
}

void options_free(struct options *o)
{
    for (int i = 0; i < o->owned.n; i++)
        free((char *)(uintptr_t)o->owned.at[i]);
    free(o->owned.at);
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        if (table[i].number < 0 || table[i].kind != OPTION_LIST)
            continue;
        struct option_list *list = (void *)((char *)o + table[i].offset);
        free(list->at);
        *list = (struct option_list){0};
    }
    free(o->args.at);
    free(o->contents.at);
    o->args = o->owned = o->contents = (struct option_list){0};
}

// --- values, as they would be written on the command line ---

static void print_choice(const char *names, int i, struct text *out)
{
    while (i-- > 0)
        names += strcspn(names, "|") + 1;
    text_append(out, (struct str){names, strcspn(names, "|")});
}

static void print_value(const struct options *o, const struct option *option, struct text *out)
{
    const void *field = (const char *)o + option->offset;
    const struct option_list *list = field;
    const char *text;
    switch (option->kind) {
    case OPTION_FLAG:
        text_print(out, "%s", *(const bool *)field ? "on" : "off");
        break;
    case OPTION_TEXT:
    case OPTION_MODEL:
        text = *(const char *const *)field;
        text_append(out, str_from(text ? text : ""));
        break;
    case OPTION_LIST:
        for (int i = 0; i < list->n; i++)
            text_print(out, "%s%s", i ? "\n" : "", list->at[i]);
        break;
    case OPTION_INTEGER:
        text_print(out, "%lld", (long long)*(const int64_t *)field);
        break;
    case OPTION_REAL:
        text_print(out, "%.9g", *(const double *)field);
        break;
    case OPTION_SEED:
        text_print(out, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    case OPTION_CHOICE:
        print_choice(option->argument, *(const int *)field, out);
        break;
    case OPTION_DTYPE:
        text_print(out, "%s", dtype_info[*(const enum dtype *)field].name);
        break;
    }
}

const char *options_print_value(const struct options *o, int n, unsigned mask, struct text *value)
{
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (table[i].number == n && (table[i].verbs & mask)) {
            print_value(o, &table[i], value);
            return table[i].longer;
        }
    return NULL;
}

// --- help ---

static bool speaks_of(const struct option *o, const char *word)
{
    return !word || strcasestr(o->longer, word) || (o->shorter && strcasestr(o->shorter, word)) ||
           strcasestr(o->help, word);
}

static void print_option(const struct option *o, struct text *out)
{
    enum { INDENT = 30 };
    char names[80], help[500];
    int n = snprintf(names, sizeof names, "  %s%s%s%s%s", o->shorter ? o->shorter : "", o->shorter ? ", " : "",
                     o->longer, o->argument ? " " : "", o->argument ? o->argument : "");
    snprintf(help, sizeof help, "%s%s%s%s", o->help, o->preset ? " (" : "", o->preset ? o->preset : "",
             o->preset ? ")" : "");
    text_print(out, n < INDENT ? "%-*s" : "%-*s\n%*s", INDENT, names, INDENT, "");
    display_print_lines(out, INDENT, INDENT, HELP_COLUMNS, str_from(help));
}

int options_print_help(unsigned mask, const char *word, struct text *out)
{
    int n = 0;
    const char *title = NULL;
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        if (table[i].number < 0) {
            title = table[i].help;
            continue;
        }
        if (!(table[i].verbs & mask) || !speaks_of(&table[i], word))
            continue;
        if (title)
            text_print(out, "%s\n", title);
        title = NULL;
        print_option(&table[i], out);
        n++;
    }
    return n;
}

// --- one flag by name, for /set and sessions ---

static const struct option *row_of(enum option_number number)
{
    const struct option *o = table;
    while (o->number != (int)number)
        o++;
    return o;
}

int options_find(const char *name, unsigned mask)
{
    char longer[64] = "--";
    size_t n = strlen(name);
    if (n > sizeof longer - 3)
        return -1;
    for (size_t i = 0; i <= n; i++)
        longer[2 + i] = (char)(name[i] == '_' ? '-' : name[i]);
    const struct option *o = find(longer, n + 2, mask);
    return o ? o->number : -1;
}

const char *options_name(enum option_number number)
{
    return row_of(number)->longer + 2;
}

struct option_info options_info(enum option_number number)
{
    const struct option *o = row_of(number);
    return (struct option_info){o->kind, o->shorter, o->longer, o->argument, o->preset, o->help, o->verbs};
}

int options_next(int number, unsigned mask)
{
    bool passed = number < 0;
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        if (passed && table[i].number >= 0 && (table[i].verbs & mask))
            return table[i].number;
        passed |= table[i].number == number;
    }
    return -1;
}

static int set_switch(const struct option *o, bool *field, const char *text, struct error *err)
{
    static const char *const yes[] = {"on", "true", "yes", "1", ""}, *const no[] = {"off", "false", "no", "0"};
    for (size_t i = 0; i < COUNT_OF(yes); i++)
        if (!strcmp(text, yes[i])) {
            *field = true;
            return 0;
        }
    for (size_t i = 0; i < COUNT_OF(no); i++)
        if (!strcmp(text, no[i])) {
            *field = false;
            return 0;
        }
    return fail(err, E_USAGE, "%s %s: on or off", o->longer + 2, text);
}

int options_set(struct options *o, enum option_number number, const char *text, struct error *err)
{
    const struct option *row = row_of(number);
    void *field = (char *)o + row->offset;
    if (row->kind == OPTION_LIST && !*text) {
        ((struct option_list *)field)->n = 0;
    } else if (row->kind == OPTION_FLAG) {
        if (set_switch(row, field, text, err))
            return -1;
    } else {
        char *copy = strdup(text);
        if (!copy)
            return fail(err, E_MEMORY, "no memory for %s", row->longer);
        if (list_push(&o->owned, copy, err)) {
            free(copy);
            return -1;
        }
        if (set(o, row, copy, err))
            return -1;
    }
    o->given[number] = true;
    return 0;
}

bool options_value(const struct options *o, enum option_number number, int i, struct text *out)
{
    const struct option *row = row_of(number);
    const struct option_list *list = (const void *)((const char *)o + row->offset);
    if (row->kind == OPTION_LIST ? i >= list->n : i > 0)
        return false;
    if (row->kind == OPTION_LIST)
        text_print(out, "%s", list->at[i]);
    else
        print_value(o, row, out);
    return true;
}

void options_print_one(enum option_number number, struct text *out)
{
    print_option(row_of(number), out);
}
