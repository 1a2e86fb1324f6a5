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

Test(outputs, the_program_is_not_replaced)
{
    static const char *const commands[] = {"tokenize hi -o ./copy", "embed hi -o ./copy",
                                           "tokenize hi -o /proc/self/exe"};
    cr_assert_eq(shell("cp \"$Q\" copy; cp copy kept"), 0);
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        cr_expect_eq(shell("./copy %s", commands[i]), 2, "%s", commands[i]);
        expect_says("err", "is this program; name another output");
        cr_expect(same_files("copy", "kept"), "%s", commands[i]);
    }
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

// What is read but is neither the model nor the text: each stands as "x" in a command whose output is $F.
Test(outputs, nothing_that_is_read_is_replaced)
{
    static const char *const commands[] = {
        "batch in -o $F --force --chat-template-file x",
        "batch in -o $F --force --json-schema-file x",
        "batch in -o $F --force --grammar-file x",
        "batch in -o $F --force --lora x",
        "batch in -o $F --force --lora x:0.5",
        "batch in -o $F --force -m x",
        "batch - -o $F --force <x",
        "batch -o $F --force <x",
        "logits --ids ids -o $F --lora x",
        "logits --ids ids -o $F --control-vector x:0.5",
        "logits --ids ids -o new --lora x --tap logits=$F",
        "run -md x -p a --tap logits=$F",
        "run --tap logits=$F <x",
        "run -sysf x -p a --tap logits=$F",
        "embed -o $F -f x",
        "embed -o $F <x",
        "tokenize -o $F <x",
        "imatrix -o $F <x",
        "perplexity --kl-base $F <x",
        "perplexity -f in --kl-base $F --lora x",
        "quantize m.gguf $F Q8_0 --imatrix x --allow-requantize",
        "quantize x $F Q8_0 --allow-requantize",
        "bench -m x --plot $F",
        "bench x --plot $F",
        "chat --session $F -m x <in",
        "chat --session $F --chat-template-file x <in",
    };
    cr_assert_eq(shell("cp m.gguf x"), 0);
    write_rows("in", 2);
    cr_assert_eq(shell("$Q tokenize -f in -o ids"), 0);
    expect_all_kept("x", commands, COUNT_OF(commands));
    cr_assert_neq(access("new", F_OK), 0, "it was opened before");
}

// What a verb puts beside its output is an output, too.
Test(outputs, what_stands_beside_an_output_is_no_input)
{
    write_rows("x.journal", 2);
    cr_assert_eq(shell("cp x.journal x.manifest; cp x.journal before; cp m.gguf c.kv"), 0);
    cr_assert_eq(shell("$Q batch x.journal -o x --format jsonl"), 2);
    expect_says("err", "x.journal: is the input; name another output");
    cr_assert(same_files("before", "x.journal"));
    cr_assert_eq(shell("$Q batch x.manifest -o x --format jsonl --force"), 2);
    cr_assert(same_files("before", "x.manifest"));
    cr_assert_eq(shell("$Q chat -m c.kv --session ./c --cache </dev/null"), 2);
    expect_says("err", "./c.kv: is the input");
    cr_assert(same_files("m.gguf", "c.kv"));
    cr_assert_neq(shell("printf '/save c.kv\\n' | $Q chat -m c.kv >said"), 0);
    cr_assert(same_files("m.gguf", "c.kv"));
}

// An output whose run fails is what it was before.
Test(outputs, an_output_is_not_emptied_before_the_new_one_is_whole)
{
    static const char *const commands[] = {
        "logits --ids ids -o out --tap no_such_node",
        "logits --ids ids -o new --tap blk.0.attn_q=out --tap blk.0.attn_k=/no/such/folder/f",
        "run -p a --tap blk.0.attn_q=out --tap no_such_node",
        "bench -p 8 -n 0 -r 1 --no-ceilings --plot out",
    };
    write_text("x", "a text\n");
    write_text("out", "old\n");
    cr_assert_eq(shell("cp out before; $Q tokenize -f x -o ids"), 0);
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        cr_assert_neq(shell("$Q %s >/dev/null", commands[i]), 0, "%s", commands[i]);
        cr_assert(same_files("before", "out"), "%s", commands[i]);
        cr_assert_neq(shell("ls *.tmp"), 0, "%s", commands[i]);
    }
}

// New files have the mode that the umask leaves, and replaced ones keep theirs.
Test(outputs, the_umask_and_the_old_mode_are_kept)
{
    static const char *const commands[] = {"logits --ids ids -o out",
                                           "perplexity -f x -c 8 --kl-base out",
                                           "tokenize -f x -o out",
                                           "embed -f x -o out",
                                           "run -p a -n 2 --tap blk.0.attn_q=out",
                                           "quantize m.gguf out Q4_0 --allow-requantize",
                                           "imatrix -f x -c 8 -o out"};
    write_text("x", "a text that is as long as it must be for a window, and another one\n");
    cr_assert_eq(shell("$Q tokenize -f x -o ids"), 0);
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        cr_assert_eq(shell("rm -f out; umask 027; $Q %s >/dev/null", commands[i]), 0, "%s", commands[i]);
        cr_expect_eq(shell("[ $(stat -c %%a out) = 640 ]"), 0, "%s", commands[i]);
        cr_assert_eq(shell("chmod 604 out; umask 027; $Q %s >/dev/null", commands[i]), 0, "%s", commands[i]);
        cr_expect_eq(shell("[ $(stat -c %%a out) = 604 ]"), 0, "%s", commands[i]);
    }
}

// A terminal, a pipe and /dev/null may be both.
Test(outputs, what_is_no_file_may_be_both)
{
    write_text("x", "a text\n");
    cr_assert_eq(shell("$Q batch - -o - --format lines -n 1 <x >x.out"), 0);
    cr_assert_eq(shell("$Q batch x -o new -n 1 --format lines"), 0);
    cr_assert_eq(shell("$Q batch /dev/null -o /dev/null --format lines"), 0);
}

// What /save names may be the very file that /read has read, or any other.
Test(outputs, save_replaces_sessions_alone)
{
    write_text("notes.json", "my notes\n");
    write_text("in", "/read notes.json\n/save notes.json\n/save new.json\n/save new.json\n");
    cr_assert_eq(shell("cp notes.json before; $Q chat <in >said"), 1);
    expect_says("err", "notes.json: holds something else than a session, and is not replaced; name another file");
    cr_assert(same_files("before", "notes.json"));
    expect_says("new.json", "quern-session");
}

// Of two chats with one session the last to save would drop what the other one kept.
Test(outputs, a_session_belongs_to_one_program)
{
    write_text("in", "hello\n");
    write_text("save", "/save ./s.json\n/save s.json\n");
    cr_assert_eq(shell("$Q chat --session ./s.json -n 2 <in >said && ln -s s.json soft.json && cp s.json before"), 0);
    cr_assert_eq(shell("mkfifo talk; $Q chat --session ./s.json -n 2 <talk >said 2>log & first=$!; exec 3>talk; "
                       "for i in $(seq 400); do [ -e s.json.lock ] && break; sleep 0.05; done; "
                       "$Q chat --session s.json -n 2 <in >other 2>one; [ $? = 2 ] || exit 10; "
                       "$Q chat --session ./soft.json -n 2 <in >other 2>two; [ $? = 2 ] || exit 11; "
                       "$Q chat <save >other 2>three; [ $? = 1 ] || exit 12; cmp s.json before || exit 13; "
                       "cat save >&3; echo again >&3; exec 3>&-; wait $first || exit 14"),
                 0);
    expect_says("one", "s.json: in use by another quern; end that chat, or copy the file and continue the copy");
    expect_says("two", "soft.json: in use by another quern");
    expect_says("three", "s.json: in use by another quern");
    expect_says("s.json", "again");
    cr_assert_eq(access("s.json.lock", F_OK), -1, "the lock remains");
    char *log = read_text("log");
    cr_assert(!strstr(log, "in use"), "a program locks itself out: %s", log);
    free(log);
}

// The system drops the lock of a program that was killed; the file that it leaves behind locks nobody out.
Test(outputs, the_lock_of_a_killed_program_is_void)
{
    write_text("in", "hello\n");
    cr_assert_eq(
        shell(
            "mkfifo talk; $Q chat --session ./s.json -n 2 <talk >said 2>log & first=$!; exec 3>talk; "
            "for i in $(seq 400); do [ -e s.json.lock ] && break; sleep 0.05; done; kill -9 $first; wait $first; exec 3>&-; "
            "[ -e s.json.lock ] || exit 10; $Q chat --session ./s.json -n 2 <in >said"),
        0);
    expect_says("s.json", "hello");
    cr_assert_eq(access("s.json.lock", F_OK), -1, "the lock remains");
}

// What has the name of a lock and is none is not opened, which a pipe would make endless, and not removed.
Test(outputs, what_is_no_lock_is_neither_opened_nor_removed)
{
    static const char *const others[] = {
        "echo mine >s.json.lock",         "mkfifo s.json.lock",           "mkdir s.json.lock",
        ": >empty; ln empty s.json.lock", "ln -sf /dev/null s.json.lock", ": >empty; ln -s empty s.json.lock"};
    write_text("in", "hello\n/save ./s.json\n");
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        cr_assert_eq(shell("rm -rf s.json.lock empty; %s; ls -ldi s.json.lock >before", others[i]), 0);
        cr_expect_eq(shell("timeout 20 $Q chat --session ./s.json -n 2 <in >said"), 2, "%s", others[i]);
        expect_says("err", "s.json.lock: is there already and is no lock of a session; move it away");
        cr_expect_eq(shell("timeout 20 $Q chat -n 2 <in >said"), 1, "%s", others[i]);
        expect_says("err", "s.json.lock: is there already and is no lock of a session; move it away");
        cr_expect_eq(shell("ls -ldi s.json.lock | cmp - before"), 0, "%s", others[i]);
        cr_expect_neq(access("s.json", F_OK), 0);
    }
    cr_assert_eq(shell("rm -rf s.json.lock; : >s.json.lock; $Q chat --session ./s.json -n 2 <in >said"), 0);
    cr_expect_neq(access("s.json.lock", F_OK), 0, "an empty file is a lock that was left");
}

// A lock that has got another name or another content meanwhile is not removed.
Test(outputs, a_lock_that_became_something_else_stays)
{
    static const char *const changes[] = {"ln s.json.lock other", "echo mine >s.json.lock",
                                          "mv s.json.lock away; echo mine >s.json.lock"};
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        cr_assert_eq(shell("rm -f s.json.lock other away talk log; mkfifo talk; "
                           "$Q chat --session ./s.json -n 2 -v <talk >said 2>log & first=$!; exec 3>talk; "
                           "for i in $(seq 400); do grep -q s.json log && break; sleep 0.05; done; "
                           "%s; exec 3>&-; wait $first || exit 10; [ -e s.json.lock ]",
                           changes[i]),
                     0, "%s", changes[i]);
    }
}

// The cache of a session has a name that is made from the session's, and something else may have it.
Test(outputs, a_cache_that_is_something_else_stays)
{
    write_text("in", "hello\n");
    write_text("s.json.kv", "mine\n");
    cr_assert_eq(shell("cp s.json.kv before; $Q chat --session ./s.json --cache -n 2 <in >said"), 0);
    expect_says("err", "s.json.kv: is no snapshot, and is not replaced");
    cr_assert(same_files("before", "s.json.kv"));
    cr_assert_eq(shell("rm s.json.kv; ln -s before s.json.kv; $Q chat --session ./s.json --cache -n 2 <in >said"), 0);
    expect_says("err", "s.json.kv: is a symbolic link");
    cr_assert_eq(shell("grep -q mine before && rm s.json.kv; $Q chat --session ./s.json --cache -n 2 <in >said"), 0);
    cr_assert_eq(shell("$Q chat --session ./s.json --cache -n 2 <in >said"), 0);
    expect_says("s.json.kv", "QUERN-KV");
}

// A name of an open descriptor is that descriptor, which goes on where it stands.
Test(outputs, names_of_descriptors_are_not_replaced)
{
    write_rows("in", 2);
    cr_assert_eq(shell("printf 'kept\n' > r; $Q tokenize 'a b' -o - >> r; $Q tokenize 'a b' -o /dev/fd/1 >> r"), 0);
    cr_assert_eq(
        shell("ln -s /dev/stdout link; $Q tokenize 'a b' -o link >> r; $Q tokenize 'a b' -o /proc/self/fd/5 5>> r"), 0);
    cr_expect_eq(shell("$Q tokenize 'a b' -o one; (echo kept; cat one one one one) | cmp - r"), 0);
    cr_assert_eq(shell("$Q batch in -n 2 -o /dev/stdout > f && $Q batch in -n 2 -o - > g && cmp f g"), 0);
    cr_expect_eq(shell("$Q batch in -n 2 -o /dev/fd/5 5> f"), 2);
    expect_says("err", "an open descriptor");
}

// What takes long begins only when its result can be kept.
Test(outputs, what_cannot_be_written_is_said_before_the_work)
{
    static const struct {
        const char *command;
        int status;
        const char *says;
    } cases[] = {
        {"bench -p 8 -n 0 -r 1 --plot nosuch/x.svg", 5, "nosuch/x.svg: cannot be written"},
        {"bench -p 8 -n 0 -r 1 --save nosuch/x", 5, "nosuch/x: cannot be written"},
        {"bench -p 8 -n 0 -r 1 --save kept", 5, "kept.json: cannot be written"},
        {"bench -p 8 -n 0 -r 1 --no-ceilings --plot x.svg", 2, "leave out --no-ceilings"},
        {"imatrix -f in -o nosuch/x", 5, "nosuch/x: cannot be written"},
        {"imatrix -f in -o pipe", 2, "pipe: is there already and no ordinary file"},
        {"perplexity -f in --kl-base nosuch/x", 5, "nosuch/x: cannot be written"},
        {"embed a -o nosuch/x", 5, "nosuch/x: cannot be written"},
        {"logits --ids ids -o nosuch/x", 5, "nosuch/x: cannot be written"},
        {"logits --ids ids -o dangling", 2, "dangling: is a link that leads nowhere"},
        {"logits --ids ids -o y --tap tok_embd=nosuch/x", 5, "nosuch/x: cannot be written"},
        {"tokenize -f in -o nosuch/x", 5, "nosuch/x: cannot be written"},
        // names that are there no sooner than something is written to them
        {"perplexity -f in --kl-base ''", 2, "an output without a name"},
        {"imatrix -f in -o /sys/x", 5, "/sys/x: cannot be written"},
        {"imatrix -f in -o $(printf %0252d 1)", 5, "quern: 000"},
        {"bench -p 8 -n 0 -r 1 --plot /dev/fd/77", 5, "/dev/fd/77: cannot be written: Bad file descriptor"},
        {"bench -p 8 -n 0 -r 1 --save ''", 2, "'': no name of a run"},
        {"bench -p 8 -n 0 -r 1 --save ..", 2, "'..': no name of a run"},
        {"bench -p 8 -n 0 -r 1 --save=-", 2, "'-': no name of a run"},
    };
    write_rows("in", 2);
    cr_assert_eq(shell("$Q tokenize -f in -o ids; mkfifo pipe; ln -s nowhere dangling; echo >state"), 0);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        // a model that cannot be read shows that the output was tried before
        const char *model = strncmp(cases[i].command, "bench", 5) ? "nomodel.gguf" : "m.gguf";
        cr_expect_eq(
            shell("export QUERN_MODEL=%s XDG_STATE_HOME=$PWD/state; timeout 20 $Q %s >said", model, cases[i].command),
            cases[i].status, "%s", cases[i].command);
        expect_says("err", cases[i].says);
    }
    cr_assert_eq(shell("ls | grep -e tmp -e '^[xy]'"), 1, "something was left behind");
}

// Numbers in bytes would leave a terminal in any state.
Test(outputs, bytes_are_not_for_a_terminal)
{
    static const char *const commands[] = {
        "quantize m.gguf /dev/tty Q4_0",
        "logits --ids ids -o -",
        "logits --ids ids -o /dev/tty",
        "logits --ids ids -o /dev/stdout",
        "logits --ids ids -o y --tap tok_embd=/dev/tty",
        "run hi -n 1 --tap tok_embd=-",
        "imatrix -p hi -o /dev/tty",
        "tokenize hi -o /dev/stderr",
        "embed hi -o - --embd-output-format npy",
        "embed hi --embd-output-format raw",
        "perplexity -p hi --kl-base /dev/tty",
    };
    cr_assert_eq(shell("$Q tokenize hi -o ids"), 0);
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        cr_expect_eq(shell("export Q; timeout 20 script -qec \"$Q %s\" /dev/null </dev/null >said", commands[i]), 2,
                     "%s", commands[i]);
        cr_expect_eq(shell("tr -d '\r\n' <said | grep -q 'is a terminal, and numbers in bytes are not for one;'"), 0,
                     "%s", commands[i]);
    }
}

// A second output of one name would replace the first; stdout may be joined to what is read.
Test(outputs, two_outputs_are_two_files)
{
    write_rows("in", 2);
    cr_assert_eq(shell("$Q tokenize -f in -o ids && mkdir sub"), 0);
    cr_expect_eq(shell("$Q logits --ids ids -o s --tap tok_embd=sub/../s"), 2);
    expect_says("err", "two outputs of this command");
    cr_expect_eq(shell("$Q run -p a -n 1 --tap tok_embd=s --tap blk.0.attn_norm=./s"), 2);
    cr_expect_eq(shell("test -e s"), 1);
    cr_expect_eq(shell("$Q run -p a -n 1 --tap tok_embd=/dev/null --tap blk.0.attn_norm=/dev/null"), 0);
    cr_expect_eq(shell("$Q tokenize -f in >> in"), 2);
    expect_says("err", "stdout: is the input");
    cr_expect_eq(shell("$Q bench -p 2 -n 0 -r 1 --save ./run && grep -q avg_ts run && cp run old && "
                       "{ $Q bench -p 2 -n 0 -r 1 --against ./run --save ./run; test $? -le 1; } && ! cmp -s run old"),
                 0, "a saved run may be replaced by the one that is compared with it");
    cr_expect_eq(shell("$Q bench -p 2 -n 0 -r 1 --against ./base --plot base; cp in base; "
                       "$Q bench -p 2 -n 0 -r 1 --against ./base --plot base; cmp in base"),
                 0);
}

// A batch that is refused for what stands beside its output leaves nothing behind.
Test(outputs, a_refused_batch_creates_nothing)
{
    static const struct {
        const char *before, *flags, *says;
    } cases[] = {
        {"echo notes >out.journal", "", "out.journal: is no journal of a batch"},
        {"ln -s nowhere out.journal", "", "out.journal: is no journal of a batch"},
        {"mkdir out.journal", "", "out.journal: is no journal of a batch"},
        {"echo notes >out.manifest", "", "out.manifest: is no manifest of a batch"},
        {"ln -s nowhere out.manifest", "", "out.manifest: is a symbolic link"},
        {"ln -s nowhere out.manifest", "--force", "out.manifest: is a symbolic link"},
        {"echo notes >out", "--force", "out: holds something else than rows of a batch"},
        {"ln -s nowhere out", "--force", "out: is a link that leads nowhere"},
    };
    write_rows("in", 2);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cr_assert_eq(shell("rm -rf out*; %s; ls out* >before", cases[i].before), 0);
        cr_expect_eq(shell("$Q batch in -n 2 -o out %s", cases[i].flags), 2, "%s", cases[i].before);
        expect_says("err", cases[i].says);
        cr_expect_eq(shell("ls out* | cmp - before"), 0, "%s %s: something is new", cases[i].before, cases[i].flags);
    }
    cr_expect_eq(shell("rm -rf out*; $Q batch in -n 2 -o out"), 0);
}

// Protected files stay, links that lead nowhere are told, and a batch whose output was taken away says so.
Test(outputs, what_cannot_be_replaced_stays)
{
    write_rows("in", 2);
    cr_assert_eq(shell("ln -s nowhere link"), 0);
    cr_expect_eq(shell("$Q tokenize a -o link"), 2);
    expect_says("err", "a link that leads nowhere");
    cr_expect_eq(shell("test -L link"), 0);
    static const char *const others[] = {"quantize m.gguf link Q4_0", "batch in -n 2 -o link",
                                         "chat --session ./link <in", "batch merge link part"};
    cr_assert_eq(shell("$Q batch in -n 2 -o part"), 0);
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        cr_expect_eq(shell("$Q %s >said", others[i]), 2, "%s", others[i]);
        expect_says("err", "link: is a link that leads nowhere");
        cr_expect_eq(shell("test -L link && ! test -e nowhere && ! ls | grep '^link.'"), 0, "%s", others[i]);
    }
    if (geteuid()) { // root may write everything
        cr_assert_eq(shell("echo kept > r; chmod 444 r"), 0);
        cr_expect_eq(shell("$Q tokenize a -o r"), 5);
        cr_expect_eq(shell("grep -qx kept r"), 0);
        cr_expect_eq(shell("$Q quantize m.gguf r Q4_0 --allow-requantize"), 5);
        cr_expect_eq(shell("$Q chat --session ./r </dev/null"), 5);
        cr_expect_eq(shell("grep -qx kept r"), 0);
    }
    write_rows("many", 60);
    cr_expect_eq(shell("{ while ! test -s lost; do sleep 0.02; done; mv lost other; } & $Q batch many -n 12 -o lost"),
                 5);
    expect_says("err", "removed or replaced while it was written");
}
