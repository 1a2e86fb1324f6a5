// Tests that no verb writes over a file that it reads, under whatever name.
#include "tests/batch_rig.h"

TestSuite(outputs, .init = rig_open, .fini = rig_close, .timeout = 120);

// Runs a command, in which $F is an output, that must be refused and leave the file as it is.
static void expect_kept(const char *file, const char *out, const char *command)
{
    cr_assert_eq(shell("cp %s before; F=%s; $Q %s", file, out, command), 2, "%s to %s", command, out);
    expect_says("err", "is the input");
    expect_says("err", "; name another output");
    cr_assert(same_files("before", file), "%s to %s changed %s", command, out, file);
}

static void expect_all_kept(const char *file, const char *const *commands, size_t n)
{
    const char *const names[] = {file, "soft", "hard"};
    cr_assert_eq(shell("ln -s %s soft && ln %s hard", file, file), 0);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < COUNT_OF(names); j++)
            expect_kept(file, names[j], commands[i]);
}

Test(outputs, a_text_is_not_replaced_by_what_is_made_of_it)
{
    static const char *const commands[] = {
        "batch x -o $F --force --format jsonl",
        "batch x -o $F --dry-run --format jsonl",
        "imatrix -f x -o $F",
        "tokenize -f x -o $F",
        "perplexity -f x --kl-base $F",
        "bench -f x --plot $F",
        "bench -f x --save ./$F",
        "run -f x --tap logits=$F",
    };
    write_rows("x", 4);
    expect_all_kept("x", commands, COUNT_OF(commands));
    expect_kept("x", "soft", "batch merge $F x --force");
    expect_kept("x", "hard", "batch merge $F x --force");
}

Test(outputs, ids_are_not_replaced_by_their_logits)
{
    write_text("x", "a text\n");
    cr_assert_eq(shell("$Q tokenize -f x -o ids"), 0);
    expect_kept("ids", "ids", "logits --ids ids -o $F");
    expect_kept("ids", "ids", "logits --ids ids --tap logits=$F -o new");
    cr_assert_neq(access("new", F_OK), 0, "it was opened before");
}

Test(outputs, the_model_is_not_replaced)
{
    static const char *const commands[] = {
        "batch x -o $F --force",    "imatrix -f x -o $F",           "imatrix --in-file x -o $F", "tokenize -f x -o $F",
        "logits --ids ids -o $F",   "perplexity -f x --kl-base $F", "bench --plot $F",           "bench --save ./$F",
        "run -p a --tap logits=$F", "quantize m.gguf $F Q8_0",
    };
    write_text("x", "a text\n");
    cr_assert_eq(shell("$Q tokenize -f x -o ids"), 0);
    expect_all_kept("m.gguf", commands, COUNT_OF(commands));
    cr_assert_eq(shell("$Q tokenize -f x -o hard"), 2);
    expect_says("err", "hard: is the input m.gguf; name another output");
}

// A terminal, a pipe and /dev/null may be both.
Test(outputs, what_is_no_file_may_be_both)
{
    write_text("x", "a text\n");
    cr_assert_eq(shell("$Q batch - -o - --format lines -n 1 <x >x.out"), 0);
    cr_assert_eq(shell("$Q batch x -o new -n 1 --format lines"), 0);
    cr_assert_eq(shell("$Q batch /dev/null -o /dev/null --format lines"), 0);
}
