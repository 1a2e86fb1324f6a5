// Checks the rules of the source tree: includes run downwards, only cmd/ prints or exits, names are unique, and files
// stay readable.
//
// It reads all sources, including the tests. Each rule is a function of a path and a text, and is also tested with a
// text that violates it.
#include "gguf/base.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

// The folders, lower ones first. A file may include from folders of a lower rank and from its own; the insides of a
// machine serve that machine alone, and tests and benches, which look into everything.
static const struct layer {
    const char *folder;
    int rank;
    bool inside; // of a machine
} layers[] = {
    {"gguf/", 0, false},    {"kernels/cpu/", 2, true}, {"kernels/ptx/", 2, true},
    {"kernels/", 1, false}, {"models/", 3, false},     {"engine/", 4, false},
    {"cmd/", 5, false},     {"bench/", 6, false},      {"tests/", 7, false},
};
enum { RANK_CMD = 5, LINES_MAX = 800 };

static const struct layer *layer_of(const char *path)
{
    for (size_t i = 0; i < COUNT_OF(layers); i++)
        if (!strncmp(path, layers[i].folder, strlen(layers[i].folder)))
            return &layers[i];
    return NULL;
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && !strcmp(s + n - m, tail);
}

// ---- The rules: what is wrong goes to `complaint`; true when all is well

struct complaint {
    char text[512];
};

static bool may_include(const char *path, const char *target, struct complaint *c)
{
    const struct layer *from = layer_of(path), *to = layer_of(target);
    if (!from || !to) {
        snprintf(c->text, sizeof(c->text), "%s includes \"%s\", which is not written from the top", path, target);
        return false;
    }
    bool free_to_look = from->rank > RANK_CMD;
    if (to->rank > from->rank || (to != from && to->inside && !free_to_look)) {
        snprintf(c->text, sizeof(c->text), "%s includes \"%s\", which lies %s", path, target,
                 to->inside ? "inside a machine" : "above it");
        return false;
    }
    return true;
}

static bool check_includes(const char *path, const char *text, struct complaint *c)
{
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *p = line + strspn(line, " \t");
        if (*p != '#')
            continue;
        p += 1 + strspn(p + 1, " \t");
        if (strncmp(p, "include", 7))
            continue;
        p += 7 + strspn(p + 7, " \t");
        char target[256];
        if (*p == '"' && sscanf(p, "\"%255[^\"\n]", target) == 1 && !may_include(path, target, c))
            return false;
    }
    return true;
}

// A copy of C text in which comments, strings and characters are blanks.
static char *code_only(const char *text)
{
    size_t n = strlen(text);
    char *out = calloc(n + 1, 1);
    cr_assert_not_null(out);
    enum { CODE, LINE_COMMENT, COMMENT, STRING, CHARACTER } in = CODE;
    for (size_t i = 0; i < n; i++) {
        char c = text[i], next = text[i + 1];
        out[i] = c == '\n' || in == CODE ? c : ' ';
        if (in == CODE && c == '/' && (next == '/' || next == '*'))
            in = next == '/' ? LINE_COMMENT : COMMENT;
        else if (in == CODE && (c == '"' || c == '\''))
            in = c == '"' ? STRING : CHARACTER;
        else if (in == LINE_COMMENT && c == '\n')
            in = CODE;
        else if (in == COMMENT && c == '*' && next == '/' && text[i - 1] != '/')
            out[++i] = ' ', in = CODE;
        else if ((in == STRING || in == CHARACTER) && c == '\\' && next)
            out[++i] = ' ';
        else if ((in == STRING && c == '"') || (in == CHARACTER && c == '\''))
            in = CODE;
        if (in != CODE && c != '\n')
            out[i] = ' ';
    }
    return out;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

// Whether `word` stands in the code: as a call where `call` is set.
static bool has_word(const char *code, const char *word, bool call)
{
    size_t n = strlen(word);
    for (const char *p = strstr(code, word); p; p = strstr(p + 1, word)) {
        const char *after = p + n + strspn(p + n, " \t\n");
        if ((p == code || !is_word(p[-1])) && !is_word(p[n]) && (!call || *after == '('))
            return true;
    }
    return false;
}

static bool check_silence(const char *path, const char *text, struct complaint *c)
{
    static const char *const calls[] = {"printf", "vprintf",    "puts",  "putchar", "perror", "exit", "_exit",
                                        "_Exit",  "quick_exit", "abort", "err",     "errx",   "warn", "warnx"};
    static const char *const names[] = {"stdout", "stderr", "STDOUT_FILENO", "STDERR_FILENO"};
    const struct layer *layer = layer_of(path);
    if (layer && layer->rank >= RANK_CMD)
        return true;
    char *code = code_only(text);
    const char *found = NULL;
    for (size_t i = 0; i < COUNT_OF(calls); i++)
        found = has_word(code, calls[i], true) ? calls[i] : found;
    for (size_t i = 0; i < COUNT_OF(names); i++)
        found = has_word(code, names[i], false) ? names[i] : found;
    free(code);
    if (found)
        snprintf(c->text, sizeof(c->text), "%s uses %s: only cmd/ prints or exits", path, found);
    return !found;
}

static bool is_table(const char *path)
{
    return ends_with(path, "_tables.h") || ends_with(path, "_tables.c") || ends_with(path, ".def");
}

static bool check_length(const char *path, const char *text, struct complaint *c)
{
    int lines = 0;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    if (lines <= LINES_MAX || is_table(path))
        return true;
    snprintf(c->text, sizeof(c->text), "%s has %d lines, over %d: split it, or name it *_tables if it is a table", path,
             lines, LINES_MAX);
    return false;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// The folder of an ISA's kernels, which has the same file names as its neighbours for the same things; else NULL.
static const char *isa_folder(const char *path)
{
    static const char *const folders[] = {"kernels/cpu/avx2/", "kernels/cpu/avx512/", "kernels/cpu/amx/",
                                          "kernels/cpu/neon/"};
    for (size_t i = 0; i < COUNT_OF(folders); i++)
        if (!strncmp(path, folders[i], strlen(folders[i])))
            return folders[i];
    return NULL;
}

// Two paths that end in the same name; paths are compared with each other only here.
static bool check_names(const char *const *paths, size_t n, struct complaint *c)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(base_name(paths[i]), base_name(paths[k])) &&
                !(isa_folder(paths[i]) && isa_folder(paths[k]) && isa_folder(paths[i]) != isa_folder(paths[k]))) {
                snprintf(c->text, sizeof(c->text), "%s and %s share a name", paths[k], paths[i]);
                return false;
            }
    return true;
}

// ---- The sources

struct sources {
    struct arena arena;
    char root[4096];
    const char *paths[4096]; // below root
    size_t n;
};

static bool is_source(const char *name)
{
    return ends_with(name, ".c") || ends_with(name, ".h") || ends_with(name, ".def");
}

// Adds the sources in `folder` (with its slash) and below; a folder that is not there has none.
static void walk(struct sources *s, const char *folder)
{
    char path[8192];
    snprintf(path, sizeof(path), "%s/%s", s->root, folder);
    DIR *dir = opendir(path);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s%s", folder, e->d_name);
        if (is_source(e->d_name)) {
            cr_assert_lt(s->n, COUNT_OF(s->paths));
            s->paths[s->n++] = arena_strdup(&s->arena, str_from(path));
        } else if (!strchr(e->d_name, '.')) {
            size_t end = strlen(path);
            snprintf(path + end, sizeof(path) - end, "/");
            walk(s, path);
        }
    }
    closedir(dir);
}

static void find_sources(struct sources *s)
{
    const char *tests = getenv("QUERN_TESTS");
    *s = (struct sources){0};
    snprintf(s->root, sizeof(s->root), "%s/..", tests ? tests : "tests");
    for (size_t i = 0; i < COUNT_OF(layers); i++)
        if (!layers[i].inside) // they lie in kernels/
            walk(s, layers[i].folder);
    cr_assert_geq(s->n, 30u, "only %zu sources below %s: set QUERN_TESTS to the folder of the tests", s->n, s->root);
}

static char *read_source(const struct sources *s, const char *path)
{
    char full[8192];
    snprintf(full, sizeof(full), "%s/%s", s->root, path);
    FILE *f = fopen(full, "rb");
    cr_assert_not_null(f, "cannot read %s", full);
    fseek(f, 0, SEEK_END);
    size_t size = (size_t)ftell(f);
    rewind(f);
    char *text = calloc(size + 1, 1);
    cr_assert_eq(fread(text, 1, size, f), size, "cannot read %s", full);
    fclose(f);
    return text;
}

typedef bool rule_fn(const char *path, const char *text, struct complaint *c);
static void check_sources(rule_fn *rule)
{
    struct sources s;
    find_sources(&s);
    for (size_t i = 0; i < s.n; i++) {
        struct complaint c;
        char *text = read_source(&s, s.paths[i]);
        cr_expect(rule(s.paths[i], text, &c), "%s", c.text);
        free(text);
    }
    arena_free(&s.arena);
}

Test(layers, includes_run_downwards)
{
    check_sources(check_includes);
}

Test(layers, only_cmd_prints_or_exits)
{
    check_sources(check_silence);
}

Test(layers, files_stay_readable)
{
    check_sources(check_length);
}

Test(layers, no_two_files_share_a_name)
{
    struct sources s;
    find_sources(&s);
    struct complaint c;
    cr_expect(check_names(s.paths, s.n, &c), "%s", c.text);
    arena_free(&s.arena);
}

// ---- The rules themselves

static void expect_include(const char *path, const char *target, bool allowed)
{
    char text[256];
    struct complaint c;
    snprintf(text, sizeof(text), "int x;\n #  include   \"%s\"\n", target);
    cr_expect_eq(check_includes(path, text, &c), allowed, "%s -> %s", path, target);
}

Test(layers_rules, an_include_may_go_down_but_not_up)
{
    static const char *const order[] = {"gguf/a.h", "kernels/a.h", "models/a.h", "engine/a.h", "cmd/a.h"};
    for (size_t i = 0; i < COUNT_OF(order); i++)
        for (size_t k = 0; k < COUNT_OF(order); k++)
            expect_include(order[i], order[k], k <= i);
    expect_include("engine/text/a.c", "engine/chat/b.h", true);
    expect_include("tests/a.c", "cmd/a.h", true);
    expect_include("bench/a.c", "tests/a.h", false);
    expect_include("cmd/a.c", "bench/a.h", false);
}

Test(layers_rules, the_insides_of_a_machine_serve_that_machine_alone)
{
    expect_include("kernels/cpu/a.c", "kernels/cpu/b.h", true);
    expect_include("kernels/cpu/a.c", "kernels/program.h", true);
    expect_include("kernels/cpu/a.c", "gguf/base.h", true);
    expect_include("kernels/cpu/a.c", "kernels/ptx/b.h", false);
    expect_include("kernels/ptx/a.c", "kernels/cpu/b.h", false);
    expect_include("kernels/program.c", "kernels/cpu/b.h", false);
    expect_include("engine/a.c", "kernels/cpu/b.h", false);
    expect_include("cmd/a.c", "kernels/ptx/b.h", false);
    expect_include("tests/a.c", "kernels/cpu/b.h", true);
    expect_include("bench/a.c", "kernels/ptx/b.h", true);
}

Test(layers_rules, an_include_is_written_from_the_top)
{
    expect_include("engine/a.c", "b.h", false);
    expect_include("tests/a.c", "../gguf/base.h", false);
    struct complaint c;
    cr_expect(check_includes("gguf/a.c", "#include <stdio.h>\n#define include \"b.h\"\n// #include \"b.h\"\n", &c));
}

static void expect_silence(const char *path, const char *text, bool silent)
{
    struct complaint c;
    cr_expect_eq(check_silence(path, text, &c), silent, "%s: %s", path, text);
}

Test(layers_rules, what_prints_or_exits_is_found)
{
    static const char *const loud[] = {
        "printf(\"x\");",
        "a = b; puts (s);",
        "fprintf(stderr, \"x\");",
        "fputs(s, stdout)",
        "exit(1);",
        "if (x)\n\tabort();",
        "write(STDOUT_FILENO, s, n);",
        "char c = '\"'; exit(2);",
        "s = \"\\\"\"; exit(2);",
        "/* a */ exit(0); /* b */",
        "a / b; exit(0);",
        "/*/ not yet over */ perror(s);",
        "// it's\nexit(0);",
    };
    for (size_t i = 0; i < COUNT_OF(loud); i++) {
        expect_silence("engine/a.c", loud[i], false);
        expect_silence("kernels/cpu/a.c", loud[i], false);
        expect_silence("cmd/a.c", loud[i], true);
        expect_silence("bench/a.c", loud[i], true);
    }
}

Test(layers_rules, what_only_looks_like_it_is_not)
{
    static const char *const silent[] = {
        "snprintf(s, n, \"x\");",
        "text_printf(t);",
        "__attribute__((format(printf, 2, 3)))",
        "atexit(f);",
        "int exit = 0;",
        "// printf(x) and exit(1)\n",
        "/* exit(1);\n abort(); */",
        "s = \"exit(1)\";",
        "s = \"\\\"exit(1)\";",
        "fprintf(file, s);",
        "run_exit(1);",
        "my_stderr = 1;",
        "/*/ exit(0); */",
        "'\\''; // exit(1)",
    };
    for (size_t i = 0; i < COUNT_OF(silent); i++)
        expect_silence("engine/a.c", silent[i], true);
}

Test(layers_rules, a_file_of_more_lines_is_a_table_or_too_long)
{
    char text[LINES_MAX + 2];
    struct complaint c;
    memset(text, '\n', sizeof(text));
    text[LINES_MAX] = '\0';
    cr_expect(check_length("gguf/a.c", text, &c));
    text[LINES_MAX] = '\n', text[LINES_MAX + 1] = '\0';
    cr_expect_not(check_length("gguf/a.c", text, &c));
    cr_expect_not(check_length("tests/tables.c", text, &c));
    cr_expect(check_length("gguf/a_tables.c", text, &c));
    cr_expect(check_length("gguf/a_tables.h", text, &c));
    cr_expect(check_length("gguf/a.def", text, &c));
}

Test(layers_rules, a_name_is_compared_without_its_folder)
{
    struct complaint c;
    cr_expect_not(check_names((const char *[]){"gguf/a.c", "gguf/b.c", "engine/text/a.c"}, 3, &c));
    cr_expect_str_eq(c.text, "gguf/a.c and engine/text/a.c share a name");
    cr_expect(check_names((const char *[]){"gguf/a.c", "gguf/a.h", "engine/aa.c"}, 3, &c));
    cr_expect(check_names((const char *[]){"kernels/cpu/avx2/a.c", "kernels/cpu/amx/a.c"}, 2, &c));
    cr_expect_not(check_names((const char *[]){"kernels/cpu/avx2/a.c", "kernels/cpu/a.c"}, 2, &c));
}
