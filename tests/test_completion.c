// Tests shell completions and the manual page: they contain every verb and flag, and the installed shells accept them.
#include "cmd/completion.h"
#include "cmd/options.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const shells[] = {"bash", "zsh", "fish"};

Test(completion, every_verb_and_flag_is_there)
{
    for (int shell = SHELL_BASH; shell <= SHELL_FISH; shell++) {
        struct text out = {0};
        completion_print((enum completion_shell)shell, &out);
        cr_assert(out.data && !out.failed);
        for (int i = 0; i < VERB_COUNT; i++)
            cr_expect(strstr(out.data, verbs[i].name), "%s: %s", shells[shell], verbs[i].name);
        for (int n = -1; (n = options_next(n, V_ALL)) >= 0;)
            cr_expect(strstr(out.data, options_name((enum option_number)n)), "%s: %s", shells[shell],
                      options_name((enum option_number)n));
        text_free(&out);
    }
}

// Runs a command with the script of a shell in $1: its output.
static void run(int shell, const char *command, char *said, size_t size)
{
    char path[] = "/tmp/quern-completion-XXXXXX", line[1000];
    struct text out = {0};
    int fd = mkstemp(path);
    completion_print((enum completion_shell)shell, &out);
    cr_assert_eq(write(fd, out.data, out.size), (ssize_t)out.size);
    close(fd);
    snprintf(line, sizeof line, "set -- %s; %s", path, command);
    FILE *f = popen(line, "r");
    cr_assert(f);
    size_t n = fread(said, 1, size - 1, f);
    said[n] = '\0';
    cr_expect_eq(pclose(f), 0, "%s", command);
    unlink(path);
    text_free(&out);
}

static bool is_there(const char *shell)
{
    char line[100];
    snprintf(line, sizeof line, "command -v %s >/dev/null", shell);
    return system(line) == 0;
}

Test(completion, the_shells_read_it)
{
    char said[4000];
    for (int shell = SHELL_BASH; shell <= SHELL_FISH; shell++) {
        char command[100];
        snprintf(command, sizeof command, "%s -n $1 2>&1", shells[shell]);
        if (!is_there(shells[shell]))
            continue;
        run(shell, command, said, sizeof said);
        cr_expect_str_eq(said, "");
    }
}

Test(completion, bash_completes_verbs_flags_and_values)
{
    static const struct {
        const char *words, *answer;
    } cases[] = {
        {"quern cha", "chat\n"},
        {"quern run --dev", "--device\n"},
        {"quern chat --no-th", "--no-think\n"},
        {"quern run --device r", "ref\n"},
        {"quern run -ctk q", "q8_0\nq4_0\n"},
        {"quern help be", "bench\n"},
        {"quern run -f a/an", "a/another file.txt\n"},
        {"quern run -m a/my\\\\\\ fi", "a/my file.txt\n"},
        {"quern run --device gpu : 6", "6\n"},
        {"quern run --device gpu :", "0\n1\n2\n3\n4\n5\n6\n7\n"},
        {"quern chat -m llama3.2 : 3", "3b\n"},
        {"quern chat -m llama3.2 :", "1b-q8_0\n3b\n"},
        {"quern chat -m hf.co/org/repo : Q", "Q4_K_M\n"},
        {"quern chat llama3.2 : 1", "1b-q8_0\n"},
    };
    char folder[] = "/tmp/quern-completion-XXXXXX", command[600], said[4000];
    if (!is_there("bash"))
        cr_skip("there is no bash");
    cr_assert(mkdtemp(folder));
    snprintf(command, sizeof command, "cd %s && mkdir a && : >'a/my file.txt' && : >'a/another file.txt'", folder);
    cr_assert_eq(system(command), 0);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(
            command, sizeof command,
            "cd %s; bash -c '. $0; quern() { echo llama3.2:1b-q8_0; echo llama3.2:3b; echo hf.co/org/repo:Q4_K_M; }; "
            "COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _quern; "
            "printf \"%%s\\n\" \"${COMPREPLY[@]}\"' $1",
            folder, cases[i].words);
        run(SHELL_BASH, command, said, sizeof said);
        cr_expect_str_eq(said, cases[i].answer, "%s: %s", cases[i].words, said);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

Test(completion, the_manual_page_has_every_flag_and_no_stray_request)
{
    struct text out = {0};
    completion_print_man(&out);
    cr_assert(out.data && !out.failed);
    for (char *line = out.data; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (*line == '.' || *line == '\'')
            cr_expect(!strncmp(line, ".TH ", 4) || !strncmp(line, ".SH ", 4) || !strncmp(line, ".TP\n", 4) ||
                          !strncmp(line, ".br\n", 4) || !strncmp(line, ".B ", 3) || !strncmp(line, ".I ", 3),
                      "%.30s", line);
    for (int n = -1; (n = options_next(n, V_ALL)) >= 0;) {
        char name[100], *at = name;
        for (const char *c = options_info((enum option_number)n).longer; *c; c++)
            at += sprintf(at, *c == '-' ? "\\-" : "%c", *c);
        cr_expect(strstr(out.data, name), "%s", name);
    }
    text_free(&out);
}
