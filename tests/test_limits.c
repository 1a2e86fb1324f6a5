// Tests that what never ends, or is absurdly long, is refused with its own limit before it has taken the memory.
#include "tests/batch_rig.h"
#include "tests/sanitized.h"

// Opens the rig. $MOST and $MORE are limits of the address space in KiB.
static void begin(void)
{
    setenv("MOST", sanitized ? "unlimited" : "1500000", 1);
    setenv("MORE", sanitized ? "unlimited" : "4000000", 1);
    rig_open();
}

TestSuite(limits, .init = begin, .fini = rig_close, .timeout = 120);

static const struct {
    const char *command, *limit; // $F is the file that never ends
} cases[] = {
    {"run -f $F", "64 MiB, the limit of a prompt"},
    {"run <$F", "64 MiB, the limit of a prompt"},
    {"run -p a --chat-template-file $F", "1 MiB, the limit of a chat template"},
    {"template --chat-template-file $F -f object", "1 MiB, the limit of a chat template"},
    {"template -f $F", "64 MiB, the limit of a file of variables"},
    {"run -p a --grammar-file $F", "16 MiB, the limit of a grammar"},
    {"run -p a --json-schema-file $F", "16 MiB, the limit of a JSON schema"},
    {"run -p a -sysf $F", "16 MiB, the limit of a file for a flag"},
    {"chat -f $F", "64 MiB, the limit of a first message"},
    {"chat <$F", "stdin: more than 64 MiB, the limit of a message"},
    {"batch merge out $F in", "/dev/zero: is no regular file"},
    {"batch in -o out --chat-template-file $F", "1 MiB, the limit of a chat template"},
    {"batch in -o out --json-schema-file $F", "16 MiB, the limit of a JSON schema"},
    {"bench -p 8 -n 0 -r 1 --no-ceilings --against $F", "64 MiB, the limit of a saved run of bench"},
    {"batch $F -o out", "is a device, which has no end"},
    {"batch - -o out <$F", "is a device, which has no end"},
};

Test(limits, what_never_ends_is_refused_with_its_limit)
{
    write_rows("in", 3);
    write_text("object", "{}");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cr_expect_eq(shell("F=/dev/zero; timeout 60 $Q %s >said", cases[i].command), 2, "%s", cases[i].command);
        expect_says("err", cases[i].limit);
        cr_expect_neq(access("out", F_OK), 0, "%s made its output", cases[i].command);
    }
}

// A file whose size says it is refused before a byte is read.
Test(limits, a_file_that_is_too_long_is_not_read)
{
    static const char *const commands[] = {"perplexity -f long",
                                           "imatrix -f long -o out",
                                           "tokenize -f long",
                                           "embed -f long",
                                           "run -f long",
                                           "bench -p 8 -n 0 -r 1 -f long",
                                           "perplexity --hellaswag -f long"};
    cr_assert_eq(shell("truncate -s 3G long"), 0);
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        cr_expect_eq(shell("ulimit -v $MOST; timeout 60 $Q %s >said </dev/null", commands[i]), 2, "%s", commands[i]);
        expect_says("err", "MiB, the limit of a ");
    }
}

// A text between quotes is one message, however many lines it has.
Test(limits, a_message_of_many_lines_has_the_limit_too)
{
    cr_expect_eq(shell("(echo '\"\"\"'; yes) | (ulimit -v $MORE; timeout 60 $Q chat >said)"), 2);
    expect_says("err", "stdin: more than 64 MiB, the limit of a message");
}

// So is what many files bring.
Test(limits, files_for_a_message_have_its_limit_together)
{
    cr_expect_eq(
        shell("head -c 1000000 /dev/zero | tr '\\0' a >f; for i in $(seq 70); do echo /read f; done | $Q chat"), 1);
    expect_says("err", "f: more than 64 MiB, the limit of a message");
}

// Neither a part nor what an earlier run has left is kept in memory up to a newline that never comes.
Test(limits, a_line_of_an_output_has_the_limit_of_a_row)
{
    write_rows("in", 3);
    cr_assert_eq(shell("$Q batch in -o whole && truncate -s 1G part"), 0);
    cr_expect_eq(shell("ulimit -v $MOST; timeout 60 $Q batch merge o part whole"), 2);
    expect_says("err", "part: line 1: longer than 64 MiB, the limit of a row");
    cr_expect_eq(shell("mkfifo pipe; timeout 60 $Q batch merge o pipe whole"), 2);
    expect_says("err", "pipe: is no regular file");
    cr_expect_eq(shell("head -n 1 whole >out; cp whole.manifest out.manifest; truncate -s 1G out; "
                       "ulimit -v $MOST; timeout 100 $Q batch in -o out"),
                 0);
    cr_expect(same_files("out", "whole"));
    cr_expect_eq(shell("rm out; printf 'quern batch journal 1\\n+ ' >out.journal; truncate -s 1G out.journal; "
                       "ulimit -v $MOST; timeout 100 $Q batch in -o out"),
                 0);
    cr_expect(same_files("out", "whole"));
}

// A small stack is widened where that is allowed, those of threads, too; else it is told.
Test(limits, a_small_stack_is_widened_or_refused)
{
    static const char *const commands[] = {"run -t 4 -n 4 -p a", "template --chat-template-file deep -f object",
                                           "batch in -o out --force -t 3", "device"};
    write_rows("in", 3);
    cr_assert_eq(shell("for i in $(seq 90); do printf '{%%%% if 1 %%%%}'; done >deep; "
                       "for i in $(seq 90); do printf '{%%%% endif %%%%}'; done >>deep; "
                       "{ printf '{\"a\":'; printf '[%%.0s' $(seq 90); printf ']%%.0s' $(seq 90); echo '}'; } >object"),
                 0);
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        const int status = shell("$Q %s >said </dev/null", commands[i]);
        char *err = read_text("err");
        cr_expect_lt(status, 2, "%s: %d, %s", commands[i], status, err);
        cr_expect_eq(shell("ulimit -S -s 32; $Q %s >said </dev/null", commands[i]), status, "%s", commands[i]);
        cr_expect_eq(shell("ulimit -s 256; $Q %s >said </dev/null", commands[i]), status, "%s", commands[i]);
        cr_expect_eq(shell("ulimit -s 32; $Q %s >said </dev/null", commands[i]), 4, "%s", commands[i]);
        expect_says("err", "the stack may have 32 KiB (ulimit -s), 256 are needed");
        free(err);
    }
}

// Names that are made from other names: a pipe there is not waited for.
Test(limits, a_pipe_with_the_name_of_a_file_of_ours_is_not_waited_for)
{
    write_rows("in", 3);
    cr_expect_eq(shell("mkfifo k.manifest; timeout 20 $Q batch in -o k"), 2);
    expect_says("err", "k.manifest: is no regular file");
    cr_expect_eq(shell("export XDG_STATE_HOME=$PWD/s; mkdir -p s/quern/bench; mkfifo s/quern/bench/b.json; "
                       "timeout 60 $Q bench -p 8 -n 0 -r 1 --no-ceilings --against b >said"),
                 2);
    expect_says("err", "b.json: is no regular file");
}

// What is just as long as the limit is read.
Test(limits, the_limit_itself_is_allowed)
{
    cr_assert_eq(shell("(printf '{{ 1 }}{#'; head -c 1048565 /dev/zero | tr '\\0' ' '; printf '#}') >t; "
                       "echo '{}' >object; wc -c <t; $Q template --chat-template-file t -f object"),
                 0);
    cr_assert_neq(shell("printf ' ' >>t; printf ' ' >>t; $Q template --chat-template-file t -f object"), 0);
}

// A pipe that nobody writes to does not stop the list of models.
Test(limits, a_pipe_among_the_models_is_passed_over)
{
    cr_assert_eq(
        shell("export HOME=$PWD OLLAMA_MODELS=$PWD/o; "
              "mkdir -p o/manifests/registry.ollama.ai/library/x .cache/huggingface/hub/models--a--b/refs; "
              "mkfifo o/manifests/registry.ollama.ai/library/x/y .cache/huggingface/hub/models--a--b/refs/main; "
              "timeout 20 $Q ls >said"),
        0);
}

// How many lines of the file hold the text.
static int count(const char *path, const char *text)
{
    char *all = read_text(path);
    int n = 0;
    for (const char *at = all; (at = strstr(at, text)); at++)
        n++;
    free(all);
    return n;
}

Test(limits, tokens_that_fill_no_window_are_said_once)
{
    static const char *const verbs[] = {"perplexity", "imatrix -o out"};
    cr_assert_eq(shell("seq 400 | tr '\\n' ' ' >x"), 0);
    for (size_t i = 0; i < COUNT_OF(verbs); i++) {
        cr_assert_eq(shell("$Q %s -f x -c 100 >said", verbs[i]), 0);
        cr_expect_eq(count("err", "do not fill a window of -c 100, and are left out"), 1);
        cr_assert_eq(shell("$Q %s -f x -c 100 --chunks 2 >said", verbs[i]), 0);
        cr_expect_eq(count("err", "note"), 0);
        cr_assert_eq(shell("seq 5000 | $Q %s -c 2500 --chunks 1 >said", verbs[i]), 0);
        cr_expect_eq(count("err", "longer than the 2048 positions"), 1);
    }
    cr_assert_eq(shell("$Q perplexity -f x -c 100 --ppl-stride 50 >said"), 0);
    cr_expect_eq(count("err", "windows have 256 tokens, more than -c 100, for --ppl-stride 50"), 1);
}
